"""Set the course up in .venv, and open it: `python setup_course.py`. Needs Python alone; `make lab` calls it too.

    python setup_course.py                      set up what the lessons import, and open JupyterLab
    python setup_course.py --peers              also what single lessons compare with
    python setup_course.py -- --no-browser      arguments after -- go to JupyterLab
    python setup_course.py --only test          set up all that `make test` needs, and open nothing
    python setup_course.py --prepare            settings and trust for the Python that runs this, and nothing installed

A second call installs nothing, unless one of the files that decide what is installed has changed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHONS = ((3, 11), (3, 12), (3, 13), (3, 14))
# Each holds what stands before it.
LEVELS = {"lab": "lab", "peers": "lab,peers", "test": "test"}
# MB to download and MB on disk, on Linux with Python 3.11 and a torch for the CPU; and what CUDA adds to the download.
SIZES = {"lab": (360, 1300), "peers": (530, 1800), "test": (830, 2900)}
CUDA_MB = 2500
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
DECIDING = ("pyproject.toml", "constraints.txt", "lab-settings.json")
PACKAGE_MB = 5  # a smaller download is not worth a line
QUIET_S = 10
# A lesson that is opened again shows its pictures, though the kernel that drew them is gone.
CONTENTS = {"contents_manager_class": "course_lib.reopened.LessonContents"}
# What JupyterLab itself does for the course: `labextensions/course/course.js` says what.
EXTENSIONS = ROOT / "course_lib" / "labextensions"
# A cell that stops says first where, also in a kernel in which no cell of the course has run yet.
KERNEL = 'c = get_config() \nc.InteractiveShellApp.extensions = ["course_lib.stopped"]\n'


def main(arguments: list[str]) -> int:
    """Do what the command line asks for; 1 where that failed."""
    given, for_lab = split(arguments)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", action="store_true", help="also what single lessons compare with")
    parser.add_argument("--only", choices=LEVELS, help="set up this much and open nothing")
    parser.add_argument("--prepare", action="store_true", help="settings and trust for this Python")
    asked = parser.parse_args(given)
    if asked.prepare:
        prepare(Path(sys.prefix), sys.executable)
        trust(sys.executable)
        return 0
    level = asked.only or ("peers" if asked.peers else "lab")
    if not is_ready(level):
        if sys.version_info[:2] not in PYTHONS:
            return say_wrong_python()
        start = time.monotonic()
        print(*plan(level), sep="\n", flush=True)
        failed = install(level)
        if failed:
            return failed
        prepare(VENV, str(python()))
        stamp(level).touch()
        print(f"set up in {time.monotonic() - start:.0f} s")
    if asked.only:
        return 0
    print("opening JupyterLab, on this machine only; Ctrl+C ends it", flush=True)
    trust(str(python()))
    return open_lab(for_lab)


def plan(level: str) -> list[str]:
    """What is going to be done, how large it is, and how it is undone, as lines."""
    download, disk = SIZES[level]
    lines = [
        f"Sets up the course: about {download:,} MB to download and {disk:,} MB in {VENV}, a few minutes.",
        "Ctrl+C stops it, and a later call goes on. To undo it, delete that folder: outside of it only the caches of pip",
        "and uv and Jupyter's list of trusted notebooks get entries.",
    ]
    if sys.platform == "linux" and "/cpu" not in os.environ.get("PIP_EXTRA_INDEX_URL", ""):
        lines += [
            f"If torch comes from PyPI, it brings CUDA, about {CUDA_MB:,} MB more. The course needs no GPU. To do without:",
            f"    export PIP_EXTRA_INDEX_URL={CPU_INDEX}",
        ]
    return lines


class Alive:
    """Lines on the screen while something long runs: what is told, and after every QUIET_S of silence that it goes on."""

    def __init__(self, stage: str) -> None:
        self.stage, self.start = stage, time.monotonic()
        self.told_at, self.done = self.start, threading.Event()
        self.waiting = threading.Thread(target=self.wait, daemon=True)

    def tell(self, line: str) -> None:
        """Print a line, indented below its step."""
        self.told_at = time.monotonic()
        print(f"    {line}", flush=True)

    def wait(self) -> None:
        """Say that the stage goes on, until it is done."""
        while not self.done.wait(1):
            if time.monotonic() - self.told_at > QUIET_S:
                self.tell(f"{self.stage} ... {time.monotonic() - self.start:.0f} s")

    def __enter__(self) -> Alive:
        self.waiting.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.done.set()
        self.waiting.join()


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What stands before the first --, and what stands after it."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:cut], arguments[cut + 1 :]


def python() -> Path:
    """The interpreter of .venv."""
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def environment() -> dict[str, str]:
    """Matplotlib's list of fonts belongs to .venv: one that another environment left may name files that are gone."""
    return os.environ | {"MPLCONFIGDIR": str(VENV / "matplotlib")}


# What is installed


def stamp(level: str) -> Path:
    """The file that says when this much was installed."""
    return VENV / f".ready-{level}"


def is_ready(level: str) -> bool:
    """Whether this much or more is installed, by files no newer than that."""
    newest = max((ROOT / name).stat().st_mtime for name in DECIDING)
    enough = list(LEVELS)[list(LEVELS).index(level) :]
    return any(stamp(each).exists() and stamp(each).stat().st_mtime >= newest for each in enough)


def install(level: str) -> int:
    """Make .venv where there is none, and install this project with its extras."""
    if (
        not python().exists()
        or subprocess.run([python(), "-m", "pip", "--version"], capture_output=True).returncode
    ):
        version = ".".join(map(str, sys.version_info[:3]))
        print(f"1/3 a new environment in .venv, of Python {version}", flush=True)
        with Alive("making it"):
            failed = subprocess.run([sys.executable, "-m", "venv", VENV]).returncode
        if failed:
            print(f"{sys.executable} cannot make one (Debian and Ubuntu: apt install python3-venv).")
            return 1
    what = ["-c", "constraints.txt", "-e", f".[{LEVELS[level]}]"]
    print(f"2/3 packages for `{level}`", flush=True)
    if by_uv(python(), what) and by_pip(python(), what):
        return 1
    files = [file.stat() for file in VENV.rglob("*") if file.is_file() and not file.is_symlink()]
    print(f"    {sum(file.st_size for file in files) / 1e6:,.0f} MB in .venv", flush=True)
    return 0


def by_uv(interpreter: Path, what: list[str]) -> int:
    """Install by uv, which takes a tenth of pip's time; not 0 where that failed.

    uv does not read pip's settings, so it is told them: where pip finds a torch for the CPU, uv must find it too.
    """
    uv = shutil.which("uv")
    if uv is None:
        with Alive("first uv, which installs the others"):
            got = subprocess.run(
                [interpreter, "-m", "pip", "install", "-qq", "-c", "constraints.txt", "uv"], cwd=ROOT
            )
        if got.returncode:
            return got.returncode
        uv = interpreter.with_name("uv" + interpreter.suffix)
    asked = subprocess.run([interpreter, "-m", "pip", "config", "list"], capture_output=True, text=True)
    sources = []
    for line in asked.stdout.splitlines():
        name, _, value = line.partition("=")
        setting = name.rpartition(".")[2]
        if setting in ("find-links", "index-url", "extra-index-url"):
            sources += [word for each in ast.literal_eval(value).split() for word in (f"--{setting}", each)]
    # As pip does: the best version of all indexes, not the first index that knows the name.
    strategy = ["--index-strategy", "unsafe-best-match"]
    command = [uv, "pip", "install", "--python", interpreter, *strategy, *sources, *what]
    installing = subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, encoding="utf-8", errors="replace"
    )
    with Alive("downloading and unpacking") as alive:
        for line in installing.stderr:
            if not line.startswith((" + ", " - ")):  # a line for each package, once all is done
                alive.tell(line.rstrip())
        return installing.wait()


def by_pip(interpreter: Path, what: list[str]) -> int:
    """Install by pip; not 0 where that failed."""
    # Compiled when first imported: to compile all of it would take as long as to unpack it.
    options = ["--disable-pip-version-check", "--no-compile", "--progress-bar", "off"]
    return told(
        [interpreter, "-m", "pip", "install", *options, *what], interpreter.parent.parent / "set_up.log"
    )


def told(command: list, log: Path) -> int:
    """Run pip, keep what it says in `log`, and tell of it what shows how far it is."""
    found = 0
    with log.open("w", encoding="utf-8") as kept, Alive("looking for packages") as alive:
        pipes = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
            "encoding": "utf-8",
            "errors": "replace",
        }
        pip = subprocess.Popen(command, cwd=ROOT, **pipes)
        for line in pip.stdout:
            kept.write(line)
            words = line.split()
            if line.startswith("Collecting "):
                found += 1
                alive.stage = f"looking for packages, {found} found so far"
            if words[:1] == ["Downloading"] and "MB)" in line and float(words[-2].lstrip("(")) >= PACKAGE_MB:
                alive.tell(f"downloading {words[1]} {words[-2]} {words[-1]}")
            elif line.startswith("Installing collected packages:"):
                alive.stage = f"installing {line.count(',') + 1} packages"
                alive.tell(alive.stage)
        failed = pip.wait()
    if failed:
        print(log.read_text(encoding="utf-8"), f"pip failed; what it said is kept in {log}", sep="\n")
    return failed


# What is done once


def prepare(prefix: Path, interpreter: str) -> None:
    """No pop-up about news and no look for updates at the first start; and a list of fonts, made now: the first
    notebook that draws would say in its output that it makes one."""
    print("3/3 settings", flush=True)
    settings = prefix / "share" / "jupyter" / "lab" / "settings"
    settings.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "lab-settings.json", settings / "overrides.json")
    kernel = prefix / "etc" / "ipython" / "ipython_kernel_config.py"
    kernel.parent.mkdir(parents=True, exist_ok=True)
    kernel.write_text(KERNEL, encoding="utf-8")
    if prefix != VENV:  # where JupyterLab is started by hand
        config = prefix / "etc" / "jupyter" / "jupyter_server_config.d" / "course.json"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(json.dumps({"ServerApp": CONTENTS}), encoding="utf-8")
        shutil.copytree(EXTENSIONS, prefix / "share" / "jupyter" / "labextensions", dirs_exist_ok=True)
    env = environment() if prefix == VENV else None
    subprocess.run([interpreter, "-c", "import matplotlib.font_manager"], env=env, check=True)


def trust(interpreter: str) -> None:
    """Sign the notebooks, so that their stored pictures show before they are run."""
    notebooks = sorted(str(path) for path in (ROOT / "notebooks").glob("*.ipynb"))
    subprocess.run([interpreter, "-m", "jupyter", "trust", *notebooks], stdout=subprocess.DEVNULL, check=True)


def open_lab(arguments: list[str]) -> int:
    """Open the course on this machine only, with a token, until Ctrl+C."""
    command = [python(), "-m", "jupyter", "lab", "--ip=127.0.0.1", f"--ServerApp.root_dir={ROOT}"]
    command += ["--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb"]
    command += [f"--ServerApp.{name}={value}" for name, value in CONTENTS.items()]
    command.append(f"--LabApp.extra_labextensions_path={EXTENSIONS}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # containers: JupyterLab refuses to start as root unless it is told to
    try:
        return subprocess.run([*command, *arguments], cwd=ROOT, env=environment()).returncode
    except KeyboardInterrupt:
        return 0


def say_wrong_python() -> int:
    """Name the Python that runs this, and those that can."""
    wanted = ", ".join(".".join(map(str, version)) for version in PYTHONS)
    found = ".".join(map(str, sys.version_info[:3]))
    print(f"{sys.executable} is Python {found}; the course needs one of {wanted}.")
    print("Install one, or name it: make lab PYTHON=/path/to/python, or /path/to/python setup_course.py")
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
