"""Run the parts of `make test` one after the other, all of them, and say at the end how each went.

    python -m tests.parts test     # everything
    python -m tests.parts quick    # the tests of what changed since the last commit, and something small of each part

A part is a target of the Makefile, which has the commands. The last line names the parts that failed.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUMMARY = ROOT / ".venv" / "last_test"
PARTS = ("lint", "unit", "notebooks", "browser")

# What `make quick` always runs: a few seconds of each room, the shortest notebook, the kit in the browser.
SMOKE = {
    "unit": {
        "tests/attention/test_shapes.py",
        "tests/lessons/test_catalog.py",
        "tests/language/test_noise.py",
        "tests/notebooks/test_structure.py",
        "tests/optimization/test_gradient_descent.py",
        "tests/representation/test_variance.py",
        "tests/sae/test_losses.py",
        "tests/teaching/test_claims.py",
        "tests/test_readme.py",
    },
    "notebooks": {"notebooks/00_start_here.ipynb"},
    "browser": {"tests/browser/test_kit.py"},
}


def main(which: str) -> int:
    """Run all parts, print the table, and return 1 where one failed."""
    chosen = quick_choice(changed_files()) if which == "quick" else {}
    table, failed, start = [], [], time.monotonic()
    for part in PARTS:
        arguments = [f"{part.upper()}={' '.join(sorted(chosen[part]))}"] if part in chosen else []
        print(f"---- {part}", flush=True)
        began = time.monotonic()
        code, last_line = run(["make", "--no-print-directory", part, *arguments])
        table.append((part, time.monotonic() - began, last_line))
        if code:
            failed.append(part)
    table.append(("total", time.monotonic() - start, ""))
    lines = [f"{part:<10}{seconds:5.0f} s  {last_line}".rstrip() for part, seconds, last_line in table]
    lines.append(f"make {which}: " + (f"FAILED in {', '.join(failed)}" if failed else "all parts passed"))
    print("----", *lines, sep="\n", flush=True)
    SUMMARY.write_text("\n".join([*lines, ""]))
    return 1 if failed else 0


def run(command: list[str]) -> tuple[int, str]:
    """Run a command, pass on what it prints as it comes, and return its exit status and its last line of output."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    tail = b""
    while piece := os.read(process.stdout.fileno(), 65536):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        tail = (tail + piece)[-2000:]
    lines = tail.decode(errors="replace").split("\n")
    return process.wait(), next((line.strip() for line in reversed(lines) if line.strip()), "")


def changed_files() -> set[Path]:
    """Return what differs from the last commit, files that git does not know yet included, if it is still there."""
    names = set()
    for question in (["diff", "--name-only", "HEAD"], ["ls-files", "--others", "--exclude-standard"]):
        answer = subprocess.run(["git", *question], cwd=ROOT, capture_output=True, text=True, check=True)
        names |= set(answer.stdout.splitlines())
    return {Path(name) for name in names if (ROOT / name).exists()}


def quick_choice(changed: set[Path]) -> dict[str, set[str]]:
    """Return for each part what `make quick` runs: SMOKE, and the tests and notebooks of the names that changed.

    A module has the tests of its name, and a lesson, all of whose files lie in one folder, those of the folder's.
    """
    names = {path.parent.name if path.match("course_lib/lessons/*/*") else path.stem for path in changed}
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if path.stem.removeprefix("test_") in names]
    tests += [ROOT / path for path in changed if path.match("tests/**/test_*.py")]
    unit = {path.relative_to(ROOT).as_posix() for path in tests if "browser" not in path.parts}
    notebooks = [path for path in (ROOT / "notebooks").glob("*.ipynb") if {path.stem, path.stem[3:]} & names]
    return SMOKE | {
        "unit": SMOKE["unit"] | unit,
        "notebooks": SMOKE["notebooks"] | {path.relative_to(ROOT).as_posix() for path in notebooks},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
