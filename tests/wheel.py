"""Build the wheel, install it with its core dependencies outside the checkout, and use it there: `python -m tests.wheel`.

Nothing of the checkout is on the path of what is run, and no extra is installed: a file that is missing from the wheel,
or a package that only an extra brings, shows here.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import setup_course

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("course_lib", "pyproject.toml", "README.md", "LICENSE", "NOTICE")
SENTENCES = [
    f"The {who} {does} a {what}."
    for who in ("boy", "girl", "teacher", "doctor")
    for does in ("sees", "reads", "draws", "buys")
    for what in ("book", "house", "bird", "letter", "car")
]

IMPORT = """
import sys, course_lib
assert course_lib.__file__.startswith(sys.prefix), course_lib.__file__
assert "torch" not in sys.modules
"""
EXPLORER = """
from course_lib.lessons import start_here
explorer = start_here.NumberExplorer()
picture, words = explorer.frame(number="143")
assert picture.startswith(b"\\x89PNG") and words, words
"""
FIGURES = """
import sys
from pathlib import Path
from course_lib.lessons import lesson_modules
wanted = {f"{lesson.number}_{name}.svg" for lesson, module in lesson_modules() for name in module.FIGURES}
drawn = {path.name for path in Path("figures").iterdir()}
assert wanted and wanted <= drawn, wanted - drawn
print(len(drawn), "figures")
"""


def build(folder: Path, *, without: str = "") -> Path:
    """Build the wheel from a copy, since building leaves files beside the sources; `without`: leave this file out."""
    tree = folder / "tree"
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, tree / name)
    if without:
        (tree / without).unlink()
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        ".",
        "--no-deps",
        "--no-build-isolation",
        "--no-cache-dir",
        "-q",
    ]
    subprocess.run([*command, "-w", str(folder)], cwd=tree, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, environment: Path) -> Path:
    """Make an environment that holds the wheel and its core dependencies; return the folder of its programs."""
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    programs = environment / ("Scripts" if os.name == "nt" else "bin")
    python = programs / ("python.exe" if os.name == "nt" else "python")
    what = ["-c", str(ROOT / "constraints.txt"), str(wheel)]
    if setup_course.by_uv(python, what) and setup_course.by_pip(python, what):
        raise SystemExit("the wheel could not be installed")
    return programs


def use(programs: Path, folder: Path) -> list[str]:
    """Run what a user of the wheel runs; return the names of the steps that failed."""
    (folder / "text.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    env |= {"HF_HUB_OFFLINE": "1", "MPLCONFIGDIR": str(folder / "matplotlib")}
    python, course = str(programs / "python"), str(programs / "course")
    pipeline = shlex.split("pipeline --out run --text text.txt --features 64 --steps 50 --no-progress")
    browse = shlex.split("browse run --export page.html --features 8 --effects 8 --no-progress")
    steps = {
        "import": [python, "-c", IMPORT],
        "help": [course, "--help"],
        "explorer": [python, "-c", EXPLORER],
        "pipeline": [course, *pipeline],
        "browse": [course, *browse],
        "figures": [course, "figures", "figures"],
        "every figure": [python, "-c", FIGURES],
    }
    failed = []
    for name, command in steps.items():
        start = time.monotonic()
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
        print(
            f"{name:<13} {'failed' if done.returncode else 'ok':<7}{time.monotonic() - start:5.0f} s",
            flush=True,
        )
        if done.returncode:
            failed.append(name)
            print(done.stdout[-2000:], done.stderr[-4000:], sep="\n", flush=True)
    for name, start in (("run/report.html", "<!DOCTYPE html"), ("page.html", "<!DOCTYPE html")):
        path = folder / name
        if not path.is_file() or not path.read_text(encoding="utf-8").lower().startswith(start.lower()):
            failed.append(name)
    return failed


def main() -> int:
    """Build, install and use; 1 where a step failed."""
    without = sys.argv[1] if len(sys.argv) > 1 else ""
    with TemporaryDirectory(prefix="wheel-test-") as name:
        folder = Path(name)
        start = time.monotonic()
        programs = install(build(folder, without=without), folder / "environment")
        print(f"{'installed':<13} {'':<7}{time.monotonic() - start:5.0f} s", flush=True)
        (folder / "work").mkdir()
        failed = use(programs, folder / "work")
    print(f"wheel-test: {'FAILED: ' + ', '.join(failed) if failed else 'all passed'}")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
