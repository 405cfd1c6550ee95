"""The two commands do what they promise: asked of make itself, on copies, so that nothing is installed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import HANG_S
from tests.parts import PARTS

ROOT = Path(__file__).resolve().parents[1]
INSTALLS = "-m pip install"


def make(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """Run make in `folder` without what an outer `make test PYTHON=...` hands down to its children."""
    settable = re.findall(r"^(\w+) \?=", (ROOT / "Makefile").read_text(), re.MULTILINE)
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in settable and not name.startswith(("MAKE", "MFLAGS", "GNUMAKEFLAGS"))
    }
    return subprocess.run(
        ["make", *arguments],
        cwd=folder,
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )


@pytest.fixture
def fresh(tmp_path):
    """What a clone has before the first call: no .venv."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "lab-settings.json"):
        shutil.copy(ROOT / name, tmp_path)
        os.utime(tmp_path / name, (1000, 1000))
    return tmp_path


@pytest.fixture
def ready(fresh):
    """The same after an installation that is newer than what decided it."""
    stamp = fresh / ".venv" / ".ready"
    stamp.parent.mkdir()
    stamp.touch()
    os.utime(stamp, (2000, 2000))
    return fresh


# ---------------------------------------------------------------- make lab


def lab_line(folder: Path, *arguments: str) -> str:
    """The one line that starts JupyterLab, continuation lines joined."""
    planned = make(folder, "-n", "lab", *arguments)
    assert planned.returncode == 0, planned.stderr
    (line,) = [line for line in planned.stdout.replace("\\\n", " ").splitlines() if "jupyter lab" in line]
    return line


def test_lab_passes_arguments_on(ready):
    assert lab_line(ready, "LAB_ARGS=--no-browser --port 8899").endswith(" --no-browser --port 8899")
    assert "--port" not in lab_line(ready)
    assert "--no-browser" not in lab_line(ready)


def test_lab_listens_on_loopback_only_and_keeps_the_token(ready):
    words = lab_line(ready, "LAB_ARGS=--no-browser --port 8899").split()
    assert [word for word in words if "ip" in word.partition("=")[0]] == ["--ip=127.0.0.1"]
    assert [word for word in words if "token" in word or "password" in word or "auth" in word] == []


def test_lab_trusts_the_notebooks_and_opens_the_first(ready):
    planned = make(ready, "-n", "lab").stdout
    assert planned.index("jupyter trust notebooks/*.ipynb") < planned.index("jupyter lab")
    assert "default_url=/lab/tree/notebooks/00_start_here.ipynb" in lab_line(ready)


# ---------------------------------------------------------------- what is installed, and when


@pytest.mark.parametrize("target", ["lab", "test", "quick", *PARTS, "figures", "bench", "doctor"])
def test_every_target_installs_first_in_a_fresh_clone(fresh, target):
    planned = make(fresh, "-n", target, f"PYTHON={sys.executable}").stdout
    assert planned.count(INSTALLS) == 1
    assert "-c constraints.txt" in planned
    assert planned.index("-m venv .venv") < planned.index(INSTALLS) < planned.index("touch .venv/.ready")


@pytest.mark.parametrize("target", ["lab", "test"])
def test_a_second_call_installs_nothing(ready, target):
    planned = make(ready, "-n", target)
    assert planned.returncode == 0
    assert "pip" not in planned.stdout
    assert "-m venv" not in planned.stdout


@pytest.mark.parametrize("changed", ["constraints.txt", "pyproject.toml"])
def test_a_changed_list_of_dependencies_installs_again(ready, changed):
    os.utime(ready / changed, (3000, 3000))
    assert make(ready, "-n", "lab", f"PYTHON={sys.executable}").stdout.count(INSTALLS) == 1


def test_a_failed_installation_is_tried_again(fresh):
    python = fresh / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@" >> calls\ncase "$*" in *install*) exit 1;; esac\n')
    python.chmod(0o755)
    for calls in (1, 2):
        assert make(fresh, "doctor", f"PYTHON={sys.executable}").returncode != 0
        assert (fresh / "calls").read_text().count("pip install") == calls
    assert not (fresh / ".venv" / ".ready").exists()


def test_test_and_quick_run_the_parts(ready):
    for target in ("test", "quick"):
        assert make(ready, "-n", target).stdout.split() == [".venv/bin/python", "-m", "tests.parts", target]


@pytest.mark.parametrize(
    ("part", "steps"),
    [
        ("lint", ["ruff format --check .", "ruff check ."]),
        (
            "unit",
            [
                "pytest -q -n 2 --dist loadgroup -p no:nbval --jaxtyping-packages=",
                ",beartype.beartype tests --ignore=tests/browser --ignore=tests/editions/site/pages "
                "--ignore=tests/editions/teacher/pages",
            ],
        ),
        ("notebooks", ["--nbval --nbval-current-env -p tests.notebooks.solutions", " notebooks"]),
        ("browser", ["pytest -q -n 2 --dist loadgroup tests/browser"]),
    ],
)
def test_a_part_looks_at_everything_unless_told_otherwise(ready, part, steps):
    # A variable of the environment, BROWSER for one, does not narrow a part.
    planned = make(ready, "-n", part, **{part.upper(): "less"}).stdout.replace("\\\n\t\t", "")
    assert [step in planned for step in steps] == [True] * len(steps)
    assert "--nbval-lax" not in planned
    assert "--reruns" not in planned
    if part != "lint":
        assert make(ready, "-n", part, f"{part.upper()}=tests/less").stdout.split()[-1] == "tests/less"


def test_shapes_are_checked_in_every_module_that_says_them():
    planned = make(ROOT, "-n", "-o", ".venv/.ready", "unit").stdout
    checked = re.search(r"--jaxtyping-packages=(\S+),beartype.beartype", planned)[1].split(",")
    modules = [
        path for path in (ROOT / "course_lib").rglob("*.py") if "\nfrom jaxtyping import" in path.read_text()
    ]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in modules]
    assert len(names) > 50
    assert sorted(checked) == sorted(name.removesuffix(".__init__") for name in names)


# ---------------------------------------------------------------- a wrong Python


@pytest.mark.parametrize("python", ["/no/such/python", "old"])
def test_a_wrong_python_is_named(fresh, python):
    if python == "old":
        # What any Python but 3.11 and 3.12 answers to the question that the Makefile asks it.
        python = str(fresh / "python3.9")
        Path(python).write_text("#!/bin/sh\nexit 1\n")
        Path(python).chmod(0o755)
    called = make(fresh, "lab", f"PYTHON={python}")
    assert called.returncode != 0
    assert f"PYTHON={python} is not a Python 3.11 or 3.12" in called.stdout
    assert "make lab PYTHON=/path/to/python" in called.stdout
    assert not (fresh / ".venv").exists()


def test_the_python_of_the_machine_is_found(fresh, monkeypatch):
    monkeypatch.setenv("PYTHON", "/of/an/outer/make/test")
    programs = fresh / "programs"
    programs.mkdir()
    for name in ("make", "sh", "id"):
        (programs / name).symlink_to(shutil.which(name))
    # Only python3.12 is one of the two: the others are absent or answer that they are not.
    for name, answer in (("python3.12", 0), ("python3", 1), ("python", 1)):
        (programs / name).write_text(f"#!{shutil.which('sh')}\nexit {answer}\n")
        (programs / name).chmod(0o755)
    planned = make(fresh, "-n", "lab", PATH=str(programs))
    assert "|| python3.12 -m venv .venv" in planned.stdout


def test_no_python_is_said(fresh):
    called = make(fresh, "lab", "PYTHON=")
    assert called.returncode != 0
    assert "No Python 3.11 or 3.12 was found" in called.stdout
    assert not (fresh / ".venv").exists()


def test_a_python_without_venv_is_said(fresh):
    python = fresh / "python3.11"
    python.write_text('#!/bin/sh\ncase "$*" in *ensurepip*) exit 1;; esac\n')
    python.chmod(0o755)
    called = make(fresh, "lab", f"PYTHON={python}")
    assert called.returncode != 0
    assert "has no venv module" in called.stdout


# ---------------------------------------------------------------- continuous integration


@pytest.mark.parametrize("has_browser", [True, False])
def test_ci_installs_chromium_and_calls_all_tests(tmp_path, has_browser):
    """`.ci/run` itself, with stand-ins for make, apt-get and chromium that write down how they were called."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("bash", "dirname", "env", "rm"):
        (programs / name).symlink_to(shutil.which(name))
    log = tmp_path / "log"
    stand_in = f'#!{shutil.which("sh")}\necho "${{0##*/}} $* browser=$REQUIRE_BROWSER in $PWD" >> {log}\n'
    for name in ("make", "apt-get", *(["chromium"] if has_browser else [])):
        (programs / name).write_text(stand_in)
        (programs / name).chmod(0o755)
    environment = {"PATH": str(programs), "REQUIRE_BROWSER": ""}
    subprocess.run([ROOT / ".ci" / "run"], cwd=tmp_path, env=environment, check=True, timeout=HANG_S)
    calls = log.read_text().splitlines()
    wanted = [
        f"make {target} browser=1 in {ROOT}"
        for target in ("test", "site-test", "teacher-test", "grading-test")
    ]
    assert calls[-4:] == wanted
    installs = [call for call in calls if call.startswith("apt-get install") and "chromium" in call]
    assert len(installs) == (0 if has_browser else 1)


@pytest.mark.parametrize("failing", ["test", "site-test", "teacher-test", "grading-test"])
def test_ci_fails_where_one_of_them_fails(tmp_path, failing):
    programs = {"make": f'#!/bin/sh\n[ "$1" != {failing} ] || exit 2\n', "chromium": "#!/bin/sh\n"}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    called = subprocess.run([ROOT / ".ci" / "run"], cwd=tmp_path, env=environment, timeout=HANG_S)
    assert called.returncode == 2
