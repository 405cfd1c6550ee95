"""Bring a new edition of the course into a learner's clone, and lose nothing: `course update`.

Nothing is merged, since a merged notebook may be no notebook. A file that both the learner and the new edition changed is
moved to `my-notebooks/DATE/`, the edition's takes its place, and what was written into its answer cells is put into
the cells of the same exercises, wherever these stand now. A file that only one side changed is as that side has it.

An edition that gives an exercise, a prediction or a sentence another number says so in RENUMBERED: a list with one
`{"old": "new", ...}` for each edition that did, the latest last.

A run that is stopped at any moment leaves every file where it was or in the dated folder, and UNFINISHED beside them;
the next run goes on from there.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from course_lib.files import locked, replacing

RENUMBERED = "course_lib/lessons/renumbered.json"
KEPT, UNFINISHED, PROGRESS_COPY = "my-notebooks", "unfinished.json", "progress_before.json"
# As in course_lib.teaching.progress, which would load torch.
PROGRESS_VARIABLE, PROGRESS_NAME = "COURSE_PROGRESS", ".course_progress.json"
NUMBER = re.compile(r"\d\d\.[A-Z]?\d+")
EARLIER = "# Your answer to an earlier form of this exercise:"


def update(directory: Path | str = ".") -> list[str]:
    """Bring the clone that holds `directory` to the newest edition, and return what was done, in lines to read.

    Raises:
        ValueError: `directory` is in no clone of the course, or the clone is in a state that must be ended by hand.
        RuntimeError: git is missing or failed, as without a network, or another update is running. No file has moved.
    """
    git = Git(Path(directory))
    with locked(
        git.folder / "course-update.lock", busy=RuntimeError(f"another update of {git.root} is running")
    ):
        branch, before = _branch(git), git("rev-parse", "HEAD")
        target = _fetched(git, branch)
        _renumberings(git, before, target)  # says what is wrong with them, before anything is moved
        unfinished = sorted(path.parent for path in (git.root / KEPT).glob(f"*/{UNFINISHED}"))
        if before == target and not unfinished:
            return ["This is the newest edition: nothing was changed."]
        said = []
        if before != target:
            unfinished += _moved_to(git, before, target)
            said = [
                f"New edition: {git('rev-parse', '--short', target)} of {git('log', '-1', '--format=%as', target)}."
            ]
        for folder in unfinished:
            said += _carried(git, folder)
        return said


class Git:
    """The git program in the clone that holds `directory`; calling it runs a command and returns what it prints.

    Raises:
        ValueError: `directory` is in no clone of the course.
        RuntimeError: there is no git, or a command fails.
    """

    def __init__(self, directory: Path):
        self.root = directory
        try:
            found = self("rev-parse", "--show-toplevel", "--absolute-git-dir").splitlines()
        except RuntimeError as error:
            raise ValueError(
                f"{directory.resolve()} is in no git clone ({error}): clone the course to have its new editions"
            ) from None
        self.root, self.folder = map(Path, found)
        if not (self.root / "course_lib" / "lessons" / "catalog.py").is_file():
            raise ValueError(f"{self.root} is a git clone, but not of the course")

    def __call__(self, *words: str) -> str:
        """Run `git words`."""
        return self.raw(*words).decode().strip()

    def raw(self, *words: str) -> bytes:
        """Run `git words` and return its output as it is."""
        apart = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
        environment = {name: value for name, value in os.environ.items() if name not in apart}
        environment |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
        try:
            done = subprocess.run(
                ["git", *words],
                cwd=self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
        except FileNotFoundError:
            raise RuntimeError("there is no program `git` on this machine, or no such folder") from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()
            raise RuntimeError(f"`git {words[0]}` failed: {said or f'exit status {done.returncode}'}")
        return done.stdout

    def names(self, *words: str) -> set[str]:
        """Run `git words -z` and return the paths that it lists."""
        command, *rest = words
        return {os.fsdecode(name) for name in self.raw(command, "-z", *rest).split(b"\0") if name}

    def file(self, commit: str, path: str) -> bytes | None:
        """Return a file of a commit, None where it has none."""
        return (
            self.raw("show", f"{commit}:{path}")
            if self.names("ls-tree", "--name-only", commit, path)
            else None
        )


def _branch(git: Git) -> str:
    """Return the branch that the clone is on, once nothing stands in the way of moving it."""
    if any((git.folder / name).exists() for name in ("rebase-merge", "rebase-apply")):
        raise ValueError("a rebase was begun and not ended; `git rebase --abort` takes it back")
    if (git.folder / "MERGE_HEAD").exists():
        raise ValueError(
            "a merge was begun and not ended, as `git pull` does it; `git merge --abort` takes it back and keeps your "
            "files as they were before. Then update again"
        )
    if branch := git("branch", "--show-current"):
        return branch
    raise ValueError("the clone is on no branch (a detached HEAD); `git switch main` brings it back to one")


def _fetched(git: Git, branch: str) -> str:
    """Fetch, and return the commit that the branch should be at.

    Raises:
        ValueError: the branch follows no other, or holds commits that only this clone has.
    """
    try:
        followed = git("rev-parse", "--abbrev-ref", "@{upstream}")
        before = git("rev-parse", "@{upstream}")
    except RuntimeError:
        raise ValueError(
            f"branch {branch} follows no branch of another repository; "
            f"`git branch --set-upstream-to=origin/{branch}` lets it follow one"
        ) from None
    git("fetch", "--quiet", git("config", f"branch.{branch}.remote"))
    target = git("rev-parse", "@{upstream}")
    # Commits that were fetched earlier are no one's own, though the other side may have taken them back since.
    own = git("rev-list", "--count", "HEAD", "--not", before, target)
    if own != "0":
        raise ValueError(
            f"branch {branch} has {own} commits that {followed} lacks. These two commands keep them on a branch of their "
            "own, and what they changed in your files: `git branch my-work` and "
            f"`git reset --soft $(git merge-base HEAD {followed})`. Then update again"
        )
    return target


def _moved_to(git: Git, before: str, target: str) -> list[Path]:
    """Bring the branch from one commit to another; return the folder that holds what both sides changed, if any.

    Raises:
        RuntimeError: git fails; then every file is back in its place.
    """
    touched = git.names("diff", "--name-only", "--no-renames", before, target)
    known = git.names("ls-tree", "-r", "--name-only", before)
    changed = git.names("diff", "--name-only", "--no-renames", before) & touched
    changed |= {path for path in touched - known if (git.root / path).is_file()}
    aside = sorted(path for path in changed if _differs(git, target, path))
    progress = _progress(git)
    renumbers = progress.is_file() and _renumberings(git, before, target)
    folder = None
    if aside or renumbers:
        folder = _new_folder(git)
        with replacing(folder / UNFINISHED) as file:
            file.write(json.dumps({"from": before}).encode())
    if renumbers:
        with replacing(folder / PROGRESS_COPY) as file:
            file.write(progress.read_bytes())
    try:
        for path in aside:
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            (git.root / path).replace(place)
        git("reset", "--quiet", "--", ".")
        for path in sorted(changed):
            if path in known:
                git("checkout", "--quiet", before, "--", path)
            else:
                (git.root / path).unlink(missing_ok=True)  # the same as in the new edition
        git("reset", "--quiet", "--keep", target)
    except (RuntimeError, OSError):
        for path in aside:
            if (folder / path).exists():
                (folder / path).replace(git.root / path)
        if folder:
            (folder / UNFINISHED).unlink()
        raise
    return [folder] if folder else []


def _differs(git: Git, target: str, path: str) -> bool:
    """Whether a file is there and is another one than in the commit `target`."""
    if not (git.root / path).is_file():
        return False
    return git("hash-object", "--", path) not in git("ls-tree", target, "--", path).split()


def _new_folder(git: Git) -> Path:
    """Make my-notebooks/DATE, or DATE-2 where that is taken."""
    name, count = date.today().isoformat(), 1
    while (folder := git.root / KEPT / (name if count == 1 else f"{name}-{count}")).exists():
        count += 1
    folder.mkdir(parents=True)
    return folder


# What is carried over


@dataclass(frozen=True)
class Answer:
    """What a learner wrote into the cell of an exercise, and what stood there before."""

    number: str
    source: str
    asked: str

    def renumbered(self, number: str) -> "Answer":
        """Return the answer to the same exercise under another number, which its cell names."""
        old, new = f'"{self.number}"', f'"{number}"'
        return Answer(number, self.source.replace(old, new), self.asked.replace(old, new))

    def as_comment(self) -> str:
        """Return the answer as lines that do nothing."""
        return "\n".join([EARLIER, *(f"# {line}".rstrip() for line in self.source.splitlines())])


def _carried(git: Git, folder: Path) -> list[str]:
    """Put the answers and the progress of a dated folder into the present edition, and say so.

    Doing it twice changes nothing: a cell in which the learner has written since is left as it is.
    """
    begun = json.loads((folder / UNFINISHED).read_bytes())["from"]
    steps = _renumberings(git, begun, "HEAD")
    place = folder.relative_to(git.root).as_posix()
    paths = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    paths = [path for path in paths if path not in (UNFINISHED, PROGRESS_COPY)]
    said = [f"Changed by you and by the new edition, yours is now in {place}: {path}" for path in paths]
    answers: dict[str, Answer] = {}
    for path in paths:
        if path.endswith(".ipynb"):
            try:
                found = list(_answers(_cells(folder.joinpath(path).read_bytes()), git.file(begun, path)))
            except ValueError:
                said.append(f"{path} could not be read as a notebook; it is kept in {place} as it was.")
                continue
            for answer in found:
                number = _renumber(answer.number, steps)
                if number is None:
                    said.append(f"Exercise {answer.number} is gone; your answer to it is in {place}/{path}.")
                else:
                    answers[number] = answer.renumbered(number)
    said += _put_in(git, answers, place) if answers else []
    said += _progress_renumbered(git, folder, steps) if steps else []
    (folder / UNFINISHED).unlink()
    return said


def _cells(notebook: bytes) -> list[dict[str, Any]]:
    """Return the cells of a notebook. Raises ValueError where it is none."""
    try:
        return list(json.loads(notebook)["cells"])
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"not a notebook: {error}") from error


def _exercise_cells(cells: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for cell in cells:
        if number := cell.get("metadata", {}).get("exercise"):
            yield number, cell


def _source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def _answers(cells: list[dict[str, Any]], edition: bytes | None) -> Iterator[Answer]:
    """Yield what differs in cells of exercises from the edition that they came with; of copied cells the last one counts."""
    asked = {number: _source(cell) for number, cell in _exercise_cells(_cells(edition) if edition else [])}
    for number, cell in _exercise_cells(cells):
        source = _source(cell)
        if source.strip() and source != asked.get(number):
            yield Answer(number, source, asked.get(number, ""))


def _put_in(git: Git, answers: dict[str, Answer], place: str) -> list[str]:
    """Write answers into the cells of their exercises in the edition's notebooks; return what became of each."""
    became: dict[str, str] = {}
    for path in sorted(git.names("ls-tree", "-r", "--name-only", "HEAD", "notebooks/")):
        if not path.endswith(".ipynb"):
            continue
        edition = _cells(git.file("HEAD", path) or b"")
        asked = {number: _source(cell) for number, cell in _exercise_cells(edition) if number in answers}
        # A run that was stopped may have left the new edition's own cells to be kept.
        for number in [number for number in asked if answers[number].source == asked[number]]:
            del answers[number], asked[number]
        if not asked:
            continue
        notebook = json.loads((git.root / path).read_bytes())
        for number, cell in _exercise_cells(notebook["cells"]):
            if number not in asked:
                continue
            answer = answers[number]
            same = answer.asked == asked[number]
            wanted = answer.source if same else f"{answer.as_comment()}\n\n{asked[number]}"
            if _source(cell) not in (asked[number], wanted):
                became[number] = f"the cell holds a newer answer and was left; the earlier one is in {place}"
            else:
                became[number] = (
                    "carried over" if same else "asked in another form; yours is a comment in its cell"
                )
                cell["source"] = wanted.splitlines(keepends=True)
        with replacing(git.root / path) as file:
            file.write((json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode())
    return [
        f"Answer to {number}: {became.get(number, f'no longer asked; yours is in {place}')}."
        for number in sorted(answers)
    ]


# What has another number


def _renumberings(git: Git, old: str, new: str) -> list[dict[str, str]]:
    """Return the mappings that edition `new` has and `old` lacks, the latest last.

    Raises:
        ValueError: they are no such mappings.
    """
    had, has = (_mappings(git.file(commit, RENUMBERED)) for commit in (old, new))
    return has[len(had) :]


def _mappings(text: bytes | None) -> list[dict[str, str]]:
    read = json.loads(text) if text else []
    if not isinstance(read, list) or not all(
        isinstance(one, dict)
        and all(isinstance(n, str) and NUMBER.fullmatch(n) for n in (*one, *one.values()))
        and len(set(one.values())) == len(one)
        for one in read
    ):
        raise ValueError(
            f'{RENUMBERED} must be a list of mappings {{"01.5": "01.6", ...}} whose new numbers differ, got {read!r:.200}'
        )
    return read


def _renumber(number: str, steps: list[dict[str, str]]) -> str | None:
    """Return the number of an exercise after some steps, None where another one took its number."""
    for step in steps:
        if number in step.values() and number not in step:
            return None
        number = step.get(number, number)
    return number


def _progress(git: Git) -> Path:
    return Path(os.environ.get(PROGRESS_VARIABLE) or git.root / "notebooks" / PROGRESS_NAME)


def _progress_renumbered(git: Git, folder: Path, steps: list[dict[str, str]]) -> list[str]:
    """Give the entries of the progress file their new numbers, from the copy in `folder`: twice is as once."""
    path, copy = _progress(git), folder / PROGRESS_COPY
    if not copy.is_file():
        return []
    kept = f"as it was before it is kept in {copy.relative_to(git.root).as_posix()}."
    before = copy.read_bytes()
    try:
        state = {
            kind: {new: entry for old, entry in entries.items() if (new := _renumber(old, steps))}
            for kind, entries in json.loads(before).items()
        }
    except (ValueError, AttributeError, RecursionError):
        return [f"The progress file {path} could not be read, and keeps the old numbers; {kept}"]
    after = json.dumps(state, indent=1, sort_keys=True).encode()
    now = path.read_bytes() if path.is_file() else b""
    if now not in (before, after):
        return [f"You went on before the update was done, so the progress file {path} was left; {kept}"]
    if now != after:
        with replacing(path) as file:
            file.write(after)
    return [f"Your progress has the new numbers of its exercises; {kept}"]
