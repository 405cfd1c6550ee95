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
DECIDING = ("pyproject.toml", "constraints.txt", "lab-settings.json")
PACKAGE_MB = 5  # a smaller download is not worth a line
QUIET_S = 10
# A lesson that is opened again shows its pictures, though the kernel that drew them is gone.
CONTENTS = {"contents_manager_class": "course_lib.reopened.LessonContents"}
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
        failed = install(level)
        if failed:
            return failed
        prepare(VENV, str(python()))
        stamp(level).touch()
        print(f"set up in {time.monotonic() - start:.0f} s")
    if asked.only:
        return 0
    trust(str(python()))
    return open_lab(for_lab)


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
        if subprocess.run([sys.executable, "-m", "venv", VENV]).returncode:
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
    for line in installing.stderr:
        if not line.startswith((" + ", " - ")):  # a line for each package, once all is done
            print(f"    {line.rstrip()}", flush=True)
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
    found, told_at, stage = 0, time.monotonic(), "looking for packages"
    done = threading.Event()

    def tell(line: str) -> None:
        nonlocal told_at
        told_at = time.monotonic()
        print(f"    {line}", flush=True)

    def wait() -> None:
        while not done.wait(1):
            if time.monotonic() - told_at > QUIET_S:
                tell(f"{stage}: {found} found so far" if stage == "looking for packages" else f"{stage} ...")

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    with log.open("w", encoding="utf-8") as kept:
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
            found += line.startswith("Collecting ")
            if words[:1] == ["Downloading"] and "MB)" in line and float(words[-2].lstrip("(")) >= PACKAGE_MB:
                tell(f"downloading {words[1]} {words[-2]} {words[-1]}")
            elif line.startswith("Installing collected packages:"):
                stage = f"installing {line.count(',') + 1} packages"
                tell(stage)
        failed = pip.wait()
    done.set()
    waiting.join()
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
