"""Run the parts of `make test` one after the other, all of them, and say at the end how each went.

    python -m tests.parts test     # everything
    python -m tests.parts quick    # the tests of what changed since the last commit, and something small of each part

A part is a target of the Makefile, which has the commands. The last line names the parts that failed.
"""

import ast
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUMMARY = ROOT / ".venv" / "last_test"
# What more lessons than this import is no lesson's own: the smoke tests stand for them.
FEW = 3
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
    """Return for each part what `make quick` runs."""
    tests = {test for path in changed for test in tests_of(path)}
    notebooks = {test for test in tests if test.endswith(".ipynb")}
    return SMOKE | {"unit": SMOKE["unit"] | tests - notebooks, "notebooks": SMOKE["notebooks"] | notebooks}


def tests_of(changed: Path) -> set[str]:
    """Return the unit tests and notebooks that a changed file concerns.

    A lesson has the tests of its name and its notebook. Another module has the tests of its name (where there are
    none, those of its folder that import it) and the tests of the lessons that import it, if they are few.
    """
    found: list[Path] = []
    if changed.match("notebooks/*.ipynb") or (changed.match("test_*.py") and changed.parts[1] != "browser"):
        found = [ROOT / changed]
    elif changed.match("course_lib/lessons/*.py") or changed.match("course_lib/lessons/*/*.py"):
        slug = changed.relative_to("course_lib/lessons").with_suffix("").parts[0]
        found = [*ROOT.glob(f"tests/lessons/test_{slug}.py"), *ROOT.glob(f"notebooks/??_{slug}.ipynb")]
    elif changed.parts[0] == "course_lib" and changed.suffix == ".py":
        module = ".".join(changed.with_suffix("").parts)
        tests = ROOT / "tests" / changed.parent.relative_to("course_lib")
        lessons = ROOT / "course_lib" / "lessons"
        found = list(tests.glob(f"test_{changed.stem}.py")) or [
            test for test in tests.glob("test_*.py") if module in imports(test)
        ]
        files = [path for path in lessons.rglob("*.py") if module in imports(path)]
        slugs = {path.relative_to(lessons).with_suffix("").parts[0] for path in files}
        if len(slugs) <= FEW:
            found += [test for slug in slugs for test in ROOT.glob(f"tests/lessons/test_{slug}.py")]
    return {path.relative_to(ROOT).as_posix() for path in found}


def imports(path: Path) -> set[str]:
    """Return the dotted names that a file imports, `from a import b` as a and a.b."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
