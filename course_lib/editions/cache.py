"""What one build leaves to the next: a folder for each lesson, named by a hash of all that it was made from."""

import hashlib
import importlib.metadata
import multiprocessing
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tqdm import tqdm

from course_lib.lessons.catalog import Lesson

PACKAGE = Path(__file__).resolve().parents[1]
# What no lesson's frames and outputs depend on, but for the module that draws; other lessons' folders are left out too.
APART = ("commands/", "editions/", "pipeline/", "interpret/browser/")
DRAWS = "editions/site/facts.py"


def fingerprint(lesson: Lesson) -> str:
    """Return a hash of the lesson's package, of the library that it may use, and of what draws."""
    digest = hashlib.sha256()
    for name in ("matplotlib", "pillow", "torch", "numpy"):
        digest.update(importlib.metadata.version(name).encode())
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        parts = place.split("/")
        other = parts[0] == "lessons" and len(parts) > 2 and parts[1] != lesson.slug
        if not other and (place == DRAWS or not place.startswith(APART)):
            digest.update(place.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def sources(names: Sequence[str], *begin: bytes) -> str:
    """Return a hash of `begin` and of the files or folders of the package that are named."""
    digest = hashlib.sha256(b"".join(begin))
    for name in names:
        for path in sorted([PACKAGE / name, *(PACKAGE / name).rglob("*")]):
            if path.is_file() and path.suffix != ".pyc":
                digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def folder_of(cache: Path, lesson: Lesson, name: str) -> Path:
    """Return the folder of `cache` that holds a lesson as made from sources of this hash."""
    return cache / f"{lesson.number}-{name}"


def find_made(cache: Path, lesson: Lesson) -> list[Path]:
    """Return the folders of `cache` that hold a lesson."""
    return sorted(cache.glob(f"{lesson.number}-*"))


def make_missing(
    make: Callable[..., None], tasks: Mapping[Lesson, tuple], folders: Mapping[Lesson, Path], *, workers: int
) -> None:
    """Call `make(*task, folder)` for each lesson whose folder is not there; older folders of the lesson are removed.

    `workers` is the number of processes.

    Raises:
        ValueError: `workers` is below 1.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    missing = [lesson for lesson in tasks if not folders[lesson].is_dir()]
    calls = [(*tasks[lesson], folders[lesson]) for lesson in missing]
    progress = tqdm(
        zip(missing, _run(make, calls, workers), strict=True), total=len(missing), unit=" lessons"
    )
    for _ in progress if missing else ():
        pass
    for lesson, folder in folders.items():
        for old in set(find_made(folder.parent, lesson)) - {folder}:
            shutil.rmtree(old)


def _run(make: Callable[..., None], calls: Sequence[tuple], workers: int) -> Iterator[None]:
    if workers == 1:
        for call in calls:
            yield make(*call)
        return
    # Spawned, since torch's threads do not survive a fork.
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(make, *call) for call in calls]:
            yield done.result()
