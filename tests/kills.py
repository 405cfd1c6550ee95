"""Commands that are killed and given again: `make faults` kills some hundreds of them.

Its table stands in docs/pipeline.md.

A command runs in a process of its own and is ended by SIGKILL, which nothing can catch: just before one of the calls by
which it makes, renames or removes something in its directory, a few milliseconds after one, or at any time. Then what
was there before must be there, and the same command, given again, must end without an error with the files of a run
that nobody killed, and without what the killed one left. A kill ends as

    whole    the killed command had done all already
    again    the same command gave the same files
    lost     something that was there before is not as it was
    other    the same command failed, gave other files, or left something behind
"""

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import torch
from tqdm import tqdm

from course_lib import sae
from course_lib.commands import app
from course_lib.editions import html
from course_lib.editions.grading.hand_out import write_source
from course_lib.language.corpus import Sentence
from course_lib.lessons.catalog import LESSONS
from course_lib.mbart.activation_store import write_store
from course_lib.mbart.activations import Site
from course_lib.mbart.model import load
from course_lib.mbart.pretraining.config import PretrainConfig
from course_lib.mbart.pretraining.pretrain import pretrain
from course_lib.pipeline.config import SparseConfig, StackedConfig
from course_lib.pipeline.run import run as pipeline
from tests.faults import put_into_page
from tests.interpret.browser.runs import make_run, some_concepts
from tests.notebooks.store import store as store_notebook
from tests.tiny_mbart import SENTENCES, write_tiny_mbart

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
CHANGES = (
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "shutil.rmtree",
)
BEGIN, END = "<!-- kills: written by make faults -->", "<!-- end of kills -->"
LIMIT = 600  # seconds of one run, after which it counts as one that failed
WAYS = ("before a change", "after a change", "at any time")


@dataclass(frozen=True)
class Command:
    """What is run in an empty directory; `before` puts there what must survive."""

    name: str
    run: Callable[[Path], None]
    before: Callable[[Path], None] = lambda directory: None
    # Of a file's bytes, those that two runs have in common; None for a file that does not count.
    counts: Callable[[str, bytes], bytes | None] = lambda name, data: data
    # Names of `before` that the command replaces: they hold the old bytes or the new ones.
    replaces: tuple[str, ...] = field(default=())


def files(directory: Path, counts: Callable[[str, bytes], bytes | None]) -> dict[str, str]:
    """Digests of the files of a directory that count, by name."""
    found = {}
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        name = path.relative_to(directory).as_posix()
        if (kept := counts(name, path.read_bytes())) is not None:
            found[name] = hashlib.sha256(kept).hexdigest()
    return found


def leftovers(directory: Path) -> list[str]:
    """What a killed process left under a name of its own."""
    return sorted(p.name for p in directory.rglob("*") if p.name.endswith((".partial", ".tmp")))


def watch(directory: Path, act: Callable[[int], None]) -> None:
    """Call `act(n)` just before this process changes something in a directory for the n-th time, from 0."""
    root, seen, me = str(directory.resolve()), 0, os.getpid()

    def hook(event: str, arguments: tuple) -> None:
        nonlocal seen
        if event == "open":
            path, mode, flags = arguments
            changes = bool(mode and set(mode) & set("wax+")) or bool(
                isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            )
        else:
            path, changes = arguments[0] if arguments else None, event in CHANGES
        if not changes or not isinstance(path, str | bytes | os.PathLike) or os.getpid() != me:
            return
        if os.path.abspath(os.fsdecode(path)).startswith(root):
            seen += 1
            act(seen - 1)

    sys.addaudithook(hook)


def start(command: Command, directory: Path, log: Path, act: Callable[[int], None]) -> int:
    """Run a command in a new process and process group; return the number of the process."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setsid()
        signal.alarm(LIMIT)
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        watch(directory, act)
        command.run(directory)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def ended(child: int) -> int:
    """Wait for a process; return its code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def undisturbed(command: Command, directory: Path, log: Path) -> tuple[dict[str, str], int, float]:
    """Run a command to its end: its files, how often it changed something, and its seconds."""
    tell, told = os.pipe()
    began = time.monotonic()
    child = start(command, directory, log, lambda n: os.write(told, b"."))
    os.close(told)
    changes = 0
    while chunk := os.read(tell, 65536):
        changes += len(chunk)
    os.close(tell)
    if code := ended(child):
        raise RuntimeError(f"{command.name} ended with {code}: {log.read_text(errors='replace')[-2000:]}")
    return files(directory, command.counts), changes, time.monotonic() - began


def killed(
    command: Command, directory: Path, log: Path, way: str, changes: int, seconds: float, rng: random.Random
) -> None:
    """Run a command and kill it."""
    at = rng.randrange(changes)
    if way == "before a change":
        ended(start(command, directory, log, lambda n: os.killpg(0, signal.SIGKILL) if n == at else None))
        return
    tell, told = os.pipe()
    child = start(command, directory, log, lambda n: os.write(told, b".") if n == at else None)
    os.close(told)
    if way == "after a change":
        os.read(tell, 1)
        time.sleep(rng.uniform(0, 0.01))
    else:
        time.sleep(rng.uniform(0, seconds))
    os.close(tell)
    # A process that ended meanwhile is not waited for yet, so its group is still there.
    os.killpg(child, signal.SIGKILL)
    ended(child)


def trial(
    command: Command,
    root: Path,
    truth: dict[str, str],
    way: str,
    changes: int,
    seconds: float,
    rng: random.Random,
) -> tuple[str, str]:
    """Kill a command once and give it again; how it ended, and what was wrong."""
    directory, log = root / "out", root / "log"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    command.before(directory)
    before = files(directory, command.counts)
    killed(command, directory, log, way, changes, seconds, rng)
    now = files(directory, command.counts)
    for name, digest in before.items():
        allowed = {digest, truth.get(name)} if name in command.replaces else {digest}
        if now.get(name) not in allowed:
            return "lost", f"{command.name}, {way}: {name}"
    if now == truth and not leftovers(directory):
        return "whole", ""
    if code := ended(start(command, directory, log, lambda n: None)):
        return "other", f"{command.name}, {way}: code {code}: {log.read_text(errors='replace')[-800:]}"
    now = files(directory, command.counts)
    if now != truth:
        different = sorted(name for name in {*now, *truth} if now.get(name) != truth.get(name))
        return "other", f"{command.name}, {way}: other files: {different[:8]}"
    if left := leftovers(directory):
        return "other", f"{command.name}, {way}: left {left}"
    return "again", ""


def course(*arguments: object) -> None:
    """Run `course` as the terminal does."""
    app([str(one) for one in arguments], prog_name="course")


def without(*patterns: str, skip: str = r"\.lock$") -> Callable[[str, bytes], bytes | None]:
    """What counts of files: all but the names that `skip` finds, and in them all but what the patterns find."""

    def counts(name: str, data: bytes) -> bytes | None:
        if re.search(skip, name):
            return None
        for pattern in patterns:
            data = re.sub(pattern.encode(), b"", data)
        return data

    return counts


def write_inputs(inputs: Path) -> None:
    """Write what the commands read."""
    write_tiny_mbart(inputs / "model")
    (inputs / "text.tsv").write_text("".join(f"en_XX\t{one}\n" for one in SENTENCES[:60]), encoding="utf-8")
    mbart, tokenizer = load(str(inputs / "model"))
    sentences = [Sentence(one, "en_XX") for one in SENTENCES[:40]]
    write_store(
        inputs / "store", mbart, tokenizer, sentences, site=Site("encoder"), shard_size=20, progress=False
    )
    make_run(inputs / "run", inputs / "model", concepts=some_concepts())
    (inputs / "learners").mkdir()
    for name in ("ana", "ben"):
        done = {"00.1": {"attempts": 4, "hints": 2, "solved": True, "mistakes": {}}}
        (inputs / "learners" / f"{name}.json").write_text(json.dumps({"exercises": done, "predictions": {}}))


def commands(inputs: Path) -> Iterator[Command]:
    """The commands, by what `write_inputs` left."""
    model, text, store, run = inputs / "model", inputs / "text.tsv", inputs / "store", inputs / "run"
    yield Command(
        "activations",
        lambda out: course(
            "activations", "--model", model, "--text", text, "--shard-size", 40, "--out", out / "store", "--no-progress"
        ),
    )  # fmt: skip
    training = ["--store", store, "--features", 24, "--steps", 6, "--batch-size", 16, "--checkpoint-every", 2]
    yield Command(
        "sae train",
        lambda out: course("sae", "train", *training, "--out", out / "run", "--no-progress"),
        counts=without(skip=r"\.lock$|checkpoints/"),
    )
    for kind in ("saelens", "safetensors"):
        yield Command(
            f"sae export ({kind})",
            lambda out, kind=kind: course("sae", "export", run, "--format", kind, "--out", out / "exported"),
        )
    few = sae.TrainConfig(steps=4, batch_size=16)
    yield Command(
        "pipeline",
        lambda out: pipeline(
            out=out / "run", model=str(model), text=str(text), sparse=SparseConfig(n_features=24, training=few),
            stacked=StackedConfig(training=few), threads=1, progress=False,
        ),
        counts=without(r'"seconds": \{[^}]*\}', r'"metrics.json": "[0-9a-f]*"', skip=r"\.lock$|\.html$"),
    )  # fmt: skip
    yield Command(
        "browse --export",
        lambda out: course("browse", out / "run", "--export", out / "page.html", "--effects", 2, "--no-progress"),
        before=lambda out: shutil.copytree(run, out / "run"),
        counts=without(skip=r"\.lock$"),
    )  # fmt: skip
    small = PretrainConfig(
        d_model=16, layers=1, heads=2, ffn_dim=32, pieces=300, n_meanings=40, denoising_steps=2, translation_steps=4,
        batch_size=8, warmup_steps=1,
    )  # fmt: skip
    yield Command(
        "pretrain",
        lambda out: pretrain(small, out / "model", n_scored=8, checkpoint_every=2, progress=False),
        counts=without(r'"training_cpu_minutes": [0-9.e-]*', skip=r"\.lock$|README\.md$|SHA256SUMS$"),
    )
    yield Command(
        "storing a notebook",
        lambda out: store_notebook(out / "small.ipynb"),
        before=lambda out: _notebook(out / "small.ipynb"),
        replaces=("small.ipynb",),
    )
    zero = LESSONS[0]
    yield Command(
        "hand-out, its own part",
        lambda out: write_source(out, zero, NOTEBOOKS),
        before=lambda out: (out / "gradebook.db").write_bytes(b"marks of learners"),
    )
    yield Command(
        "progress",
        lambda out: course(
            "progress", inputs / "learners", "--csv", out / "all.csv", "--html", out / "all.html"
        ),
        before=lambda out: (out / "all.csv").write_text("last week's table"),
        replaces=("all.csv",),
    )
    yield Command(
        "pages of the site", _pages, counts=without(skip=r"(^|/)doctrees/|\.buildinfo$|searchindex")
    )


def _notebook(path: Path) -> None:
    cells = [
        nbformat.v4.new_code_cell(source, id=f"cell-{at}") for at, source in enumerate(("1 + 1", "print(2)"))
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)


def _pages(out: Path) -> None:
    """Build pages as `site` and `teacher` do."""
    texts = {f"page{at}.md": f"# Page {at}\n\nText of page {at}." for at in range(8)}
    names = "\n".join(name.removesuffix(".md") for name in texts)
    texts["index.md"] = f"# Pages\n\n```{{toctree}}\n\n{names}\n```\n"
    html.write(out / "source", texts)
    with html.building(out / "doctrees") as anew:
        html.sphinx(out / "source", out / "site", out / "doctrees", {}, title="Pages", anew=anew)
        html.make_accessible(out / "site")


def measure(n: int, *, seed: int = 0, names: str = "") -> tuple[dict[str, Counter], list[str]]:
    """`n` kills of each command whose name `names` finds: counts by command, and what was lost or other."""
    rng, ends, bad = random.Random(seed), {}, []
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        root = Path(folder)
        inputs, log = root / "inputs", root / "log"
        inputs.mkdir()
        # In a process of its own, too: threads that it starts would be missing in those that follow.
        if ended(start(Command("inputs", write_inputs), inputs, log, lambda n: None)):
            raise RuntimeError(f"the inputs were not written: {log.read_text(errors='replace')[-2000:]}")
        for command in commands(inputs):
            if not re.search(names, command.name):
                continue
            found = []
            for _ in range(2):
                shutil.rmtree(root / "out", ignore_errors=True)
                (root / "out").mkdir()
                command.before(root / "out")
                found.append(undisturbed(command, root / "out", log))
            (truth, changes, seconds), again = found[0], found[1][0]
            if truth != again:
                unlike = sorted(name for name in truth if again.get(name) != truth[name])
                raise RuntimeError(f"{command.name} does not write the same files twice: {unlike}")
            ends[command.name] = Counter()
            for at in tqdm(range(n), desc=command.name, disable=not sys.stderr.isatty()):
                end, said = trial(command, root, truth, WAYS[at % len(WAYS)], changes, seconds, rng)
                ends[command.name][end] += 1
                bad += [said] if said else []
    return ends, bad


COLUMNS = ("again", "whole", "lost", "other")


def table(ends: dict[str, Counter]) -> list[str]:
    """The rows of the table."""
    rows = ["| command | " + " | ".join(COLUMNS) + " |", "|---|" + "---|" * len(COLUMNS)]
    return rows + [
        f"| {name} | " + " | ".join(str(found[c]) for c in COLUMNS) + " |" for name, found in ends.items()
    ]


def main() -> None:
    """Kill the commands, print the table, and end with an error where something was lost or other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, default=40, help="how many kills of each command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--names", default="", help="commands whose name this pattern finds")
    parser.add_argument("--page", action="store_true", help="write the table into docs/pipeline.md, too")
    given = parser.parse_args()
    ends, bad = measure(given.n, seed=given.seed, names=given.names)
    print("\n".join(table(ends)))
    if bad:
        print("\n".join(bad))
        raise SystemExit(1)
    if given.page:
        put_into_page(BEGIN, END, table(ends))


if __name__ == "__main__":
    main()
