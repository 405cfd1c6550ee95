"""The two commands do what they promise: asked of make and of setup_course.py, on copies, so that nothing is installed."""

import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from traitlets.config import PyFileConfigLoader

from tests import HANG_S
from tests.parts import PARTS

ROOT = Path(__file__).resolve().parents[1]
INSTALLS = "setup_course.py"


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
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "lab-settings.json", "setup_course.py"):
        shutil.copy(ROOT / name, tmp_path)
        os.utime(tmp_path / name, (1000, 1000))
    extensions = Path("course_lib", "labextensions")
    shutil.copytree(ROOT / extensions, tmp_path / extensions)
    return tmp_path


@pytest.fixture
def ready(fresh):
    """The same after an installation that is newer than what decided it."""
    stamp = fresh / ".venv" / ".ready-test"
    stamp.parent.mkdir()
    stamp.touch()
    os.utime(stamp, (2000, 2000))
    return fresh


@pytest.fixture
def course(ready, monkeypatch):
    """setup_course.py of such a copy, with a stand-in for every program: what it runs is written down, not run."""
    spec = importlib.util.spec_from_file_location("setup_course_copy", ready / "setup_course.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    calls = []

    def run(command, **options):
        calls.append([str(word) for word in command])
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    monkeypatch.setattr(module, "subprocess", SimpleNamespace(run=run, DEVNULL=None))
    return SimpleNamespace(main=module.main, calls=calls, module=module)


# ---------------------------------------------------------------- make lab


def lab_line(course, *arguments: str) -> list[str]:
    """The one command that starts JupyterLab."""
    # A plain script may be run again in the same process: only the last start counts.
    course.calls.clear()
    assert course.main(list(arguments)) == 0
    (line,) = [call for call in course.calls if call[1:4] == ["-m", "jupyter", "lab"]]
    return line


def test_make_lab_hands_arguments_and_peers_on(ready):
    planned = make(ready, "-n", "lab", "LAB_ARGS=--no-browser --port 8899", "PEERS=1").stdout
    assert "setup_course.py --peers -- --no-browser --port 8899" in planned
    assert "--peers" not in make(ready, "-n", "lab").stdout


def test_lab_passes_arguments_on(course):
    assert lab_line(course, "--", "--no-browser", "--port", "8899")[-3:] == ["--no-browser", "--port", "8899"]
    assert "--port" not in lab_line(course)
    assert "--no-browser" not in lab_line(course)


def test_lab_listens_on_loopback_only_and_keeps_the_token(course):
    words = lab_line(course, "--", "--no-browser", "--port", "8899")
    assert [word for word in words if "ip" in word.partition("=")[0]] == ["--ip=127.0.0.1"]
    assert [word for word in words if "token" in word or "password" in word or "auth" in word] == []


def test_lab_opens_notebooks_by_the_course(course):
    (word,) = [word for word in lab_line(course) if "contents_manager" in word]
    module, _, name = word.removeprefix("--ServerApp.contents_manager_class=").rpartition(".")
    assert issubclass(getattr(importlib.import_module(module), name), AsyncLargeFileManager)


def test_lab_finds_the_course_s_extension(course):
    (word,) = [word for word in lab_line(course) if "labextensions" in word]
    assert Path(word.removeprefix("--LabApp.extra_labextensions_path="), "course", "package.json").is_file()


def test_a_python_of_its_own_learns_it_by_a_file(course, tmp_path, monkeypatch):
    monkeypatch.setattr(course.module.sys, "prefix", str(tmp_path / "conda"))
    assert course.main(["--prepare"]) == 0
    written = tmp_path / "conda" / "etc" / "jupyter" / "jupyter_server_config.d" / "course.json"
    assert json.loads(written.read_text()) == {"ServerApp": course.module.CONTENTS}
    extension = tmp_path / "conda" / "share" / "jupyter" / "labextensions" / "course"
    loaded = json.loads((extension / "package.json").read_text())["jupyterlab"]["_build"]["load"]
    assert (extension / loaded).is_file()
    course.module.prepare(course.module.VENV, sys.executable)
    assert not (course.module.VENV / "etc" / "jupyter").exists()


def test_kernels_start_with_what_says_where_a_cell_stopped(course):
    course.module.prepare(course.module.VENV, sys.executable)
    written = course.module.VENV / "etc" / "ipython" / "ipython_kernel_config.py"
    loaded = PyFileConfigLoader(written.name, str(written.parent)).load_config()
    (name,) = loaded.InteractiveShellApp.extensions
    assert callable(importlib.import_module(name).load_ipython_extension)


def test_lab_trusts_the_notebooks_and_opens_the_first(course, ready):
    (ready / "notebooks").mkdir()
    (ready / "notebooks" / "00_start_here.ipynb").touch()
    line = lab_line(course)
    assert "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb" in line
    assert [call[1:4] for call in course.calls] == [["-m", "jupyter", "trust"], ["-m", "jupyter", "lab"]]
    assert course.calls[0][4:] == [str(ready / "notebooks" / "00_start_here.ipynb")]


# ---------------------------------------------------------------- what is installed, and when


@pytest.mark.parametrize("target", ["test", "quick", *PARTS, "figures", "bench", "doctor", "update"])
def test_every_target_installs_first_in_a_fresh_clone(fresh, target):
    planned = make(fresh, "-n", target, "PYTHON=python3").stdout
    assert planned.count(INSTALLS) == 1
    assert f"{INSTALLS} --only {'lab' if target in ('doctor', 'update') else 'test'}" in planned
    assert planned.index(INSTALLS) < planned.index(".venv/bin/")


def test_a_second_make_test_installs_nothing(ready):
    planned = make(ready, "-n", "test")
    assert planned.returncode == 0
    assert INSTALLS not in planned.stdout


def installed(course, *arguments: str) -> list[list[str]]:
    course.calls.clear()
    course.module.by_uv = lambda interpreter, what: course.calls.append(what) or 0
    course.module.prepare = lambda prefix, interpreter: None
    assert course.main(list(arguments)) == 0
    return [call for call in course.calls if "-e" in call]


def test_each_command_installs_its_part_once(course, ready):
    (ready / ".venv" / ".ready-test").unlink()
    for arguments, extras in (
        (["--only", "lab"], "lab"),
        (["--peers"], "lab,peers"),
        (["--only", "test"], "test"),
    ):
        assert installed(course, *arguments) == [["-c", "constraints.txt", "-e", f".[{extras}]"]]
        assert installed(course, *arguments) == []
    # What holds all of it holds its parts.
    assert installed(course, "--only", "lab") == installed(course) == []


@pytest.mark.parametrize("changed", ["constraints.txt", "pyproject.toml", "lab-settings.json"])
def test_a_changed_list_of_dependencies_installs_again(course, ready, changed):
    assert installed(course, "--only", "test") == []
    os.utime(ready / changed, (3000, 3000))
    assert len(installed(course, "--only", "test")) == 1
    os.utime(ready / changed, (3000, 3000))
    assert INSTALLS not in make(ready, "-n", "test", f"PYTHON={sys.executable}").stdout


def test_pip_takes_over_where_uv_fails_and_a_failure_is_tried_again(course, ready):
    os.utime(ready / "pyproject.toml", (3000, 3000))
    tried = []
    course.module.by_uv = lambda interpreter, what: tried.append("uv") or 1
    course.module.by_pip = lambda interpreter, what: tried.append("pip") or 1
    for _ in range(2):
        assert course.main(["--only", "test"]) == 1
    assert tried == ["uv", "pip"] * 2


def test_where_pip_looks_uv_looks_too(course, monkeypatch):
    settings = "global.find-links='/of/wheels /more'\nglobal.cert='x'\n:env:.index-url='https://mirror.example/simple'\n"
    started = []

    def popen(command, **options):
        started.append([str(word) for word in command])
        return SimpleNamespace(stderr=[], wait=lambda: 0)

    fake = SimpleNamespace(
        run=lambda command, **options: SimpleNamespace(returncode=0, stdout=settings), Popen=popen, PIPE=None
    )
    monkeypatch.setattr(course.module, "subprocess", fake)
    monkeypatch.setattr(course.module.shutil, "which", lambda name: None)
    assert course.module.by_uv(Path("/env/bin/python"), ["-e", "."]) == 0
    (line,) = started
    assert line[0] == "/env/bin/uv"
    wanted = [
        "--find-links",
        "/of/wheels",
        "--find-links",
        "/more",
        "--index-url",
        "https://mirror.example/simple",
    ]
    assert line[line.index("--find-links") : -2] == wanted


def test_what_pip_does_can_be_seen(course, tmp_path, monkeypatch, capsys):
    said = [
        "Collecting torch",
        "  Downloading torch-2.whl (191.8 MB)",
        "  Downloading six.whl (11 kB)",
        "Installing collected packages: a, b, c",
    ]
    monkeypatch.setattr(course.module, "subprocess", subprocess)
    program = f"print({chr(10).join(said)!r})"
    log = tmp_path / "log"
    assert course.module.told([sys.executable, "-c", program], log) == 0
    assert capsys.readouterr().out.split("\n")[:-1] == [
        "    downloading torch-2.whl (191.8 MB)",
        "    installing 3 packages",
    ]
    assert log.read_text().splitlines() == said
    assert course.module.told([sys.executable, "-c", "print('no such thing'); raise SystemExit(3)"], log) == 3
    assert "no such thing" in capsys.readouterr().out


@pytest.mark.parametrize("level", ["lab", "peers", "test"])
def test_what_is_going_to_be_done_is_said_before_anything_is(course, ready, monkeypatch, capsys, level):
    os.utime(ready / "pyproject.toml", (3000, 3000))
    said = []
    note = lambda *asked: said.append(capsys.readouterr().out)  # noqa: E731
    monkeypatch.setattr(course.module, "install", note)
    monkeypatch.setattr(course.module, "prepare", note)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    assert course.main(["--only", level]) == 0
    download, disk = course.module.SIZES[level]
    for words in (f"{download:,} MB to download", f"{disk:,} MB", str(ready / ".venv"), "To undo it"):
        assert words in said[0]
    assert ("brings CUDA" in said[0]) == (sys.platform == "linux")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://download.pytorch.org/whl/cpu")
    assert "CUDA" not in "\n".join(course.module.plan(level))
    # The page of the systems has the same figures.
    page = (ROOT / "docs" / "setup.md").read_text(encoding="utf-8")
    size = f"{disk / 1000:.1f} GB"
    assert re.search(rf"^\| `make .*\| {download} MB \| {size} \|$", page, re.MULTILINE)


def test_what_takes_long_says_that_it_goes_on(course, monkeypatch, capsys):
    monkeypatch.setattr(course.module, "QUIET_S", 0.5)
    lines = []
    with course.module.Alive("unpacking"):
        end = time.monotonic() + HANG_S
        while not lines and time.monotonic() < end:
            time.sleep(0.1)
            lines += capsys.readouterr().out.splitlines()
    assert re.fullmatch(r" {4}unpacking \.\.\. \d+ s", lines[0])
    # It ends with what it stands around.
    capsys.readouterr()
    time.sleep(1.5)
    assert capsys.readouterr().out == ""


def test_it_runs_where_there_is_no_make(ready):
    called = subprocess.run(
        [sys.executable, "setup_course.py", "--only", "lab"],
        cwd=ready,
        env={"PATH": ""},
        capture_output=True,
        text=True,
    )
    assert (called.returncode, called.stdout) == (0, "")


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
        (
            "notebooks",
            [
                "--nbval --nbval-current-env --nbval-sanitize-with tests/notebooks/sanitize.cfg -p",
                " notebooks",
            ],
        ),
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
    planned = make(ROOT, "-n", "-o", ".venv/.ready-test", "unit").stdout
    checked = re.search(r"--jaxtyping-packages=(\S+),beartype.beartype", planned)[1].split(",")
    modules = [
        path for path in (ROOT / "course_lib").rglob("*.py") if "\nfrom jaxtyping import" in path.read_text()
    ]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in modules]
    assert len(names) > 50
    assert sorted(checked) == sorted(name.removesuffix(".__init__") for name in names)


# ---------------------------------------------------------------- a wrong Python


def test_a_wrong_python_is_named(course, ready, monkeypatch, capsys):
    (ready / ".venv" / ".ready-test").unlink()
    monkeypatch.setattr(
        course.module, "sys", SimpleNamespace(version_info=(3, 10, 4), executable="/of/an/old/python")
    )
    assert course.main(["--only", "lab"]) == 1
    said = capsys.readouterr().out
    assert "/of/an/old/python is Python 3.10.4; the course needs one of 3.11, 3.12, 3.13, 3.14" in said
    assert "make lab PYTHON=/path/to/python" in said
    assert course.calls == []


@pytest.mark.parametrize("python", ["/no/such/python", ""])
def test_no_python_is_said(fresh, python):
    called = make(fresh, "lab", f"PYTHON={python}")
    assert called.returncode != 0
    assert f"No Python 3.11 to 3.14 was found{f' at {python}' if python else ''}." in called.stdout
    assert not (fresh / ".venv").exists()


def test_the_python_of_the_machine_is_found(fresh, monkeypatch):
    monkeypatch.setenv("PYTHON", "/of/an/outer/make/test")
    programs = fresh / "programs"
    programs.mkdir()
    for name in ("make", "sh"):
        (programs / name).symlink_to(shutil.which(name))
    # Only python3.12 is one of the right ones: the others are absent or answer that they are not.
    for name, answer in (("python3.12", 0), ("python3", 1), ("python", 1)):
        (programs / name).write_text(f"#!{shutil.which('sh')}\nexit {answer}\n")
        (programs / name).chmod(0o755)
    planned = make(fresh, "-n", "lab", PATH=str(programs))
    assert "python3.12 setup_course.py" in planned.stdout


def test_a_python_without_venv_is_said(course, ready, monkeypatch, capsys):
    (ready / ".venv" / ".ready-test").unlink()
    monkeypatch.setattr(
        course.module.subprocess, "run", lambda command, **options: SimpleNamespace(returncode=1)
    )
    assert course.main(["--only", "lab"]) == 1
    assert "apt install python3-venv" in capsys.readouterr().out


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
        for target in ("test", "site-test", "teacher-test", "grading-test", "wheel-test")
    ]
    assert calls[-5:] == wanted
    installs = [call for call in calls if call.startswith("apt-get install") and "chromium" in call]
    assert len(installs) == (0 if has_browser else 1)


@pytest.mark.parametrize("failing", ["test", "site-test", "teacher-test", "grading-test", "wheel-test"])
def test_ci_fails_where_one_of_them_fails(tmp_path, failing):
    programs = {"make": f'#!/bin/sh\n[ "$1" != {failing} ] || exit 2\n', "chromium": "#!/bin/sh\n"}
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    called = subprocess.run([ROOT / ".ci" / "run"], cwd=tmp_path, env=environment, timeout=HANG_S)
    assert called.returncode == 2


def test_the_same_versions_of_python_are_named_everywhere(course):
    """Those that are accepted; README and the page on setting up say which of them nothing was run on."""
    from course_lib.doctor import SUPPORTED_PYTHON

    assert course.module.PYTHONS == SUPPORTED_PYTHON
    first, last = (".".join(map(str, one)) for one in (SUPPORTED_PYTHON[0], SUPPORTED_PYTHON[-1]))
    for name in ("Makefile", "README.md", "docs/setup.md"):
        said = (ROOT / name).read_text(encoding="utf-8")
        assert set(re.findall(r"Python (3\.\d+) to (3\.\d+)", said)) == {(first, last)}
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    untried = {".".join(map(str, one)) for one in SUPPORTED_PYTHON} - set(re.findall(r'"(3\.\d+)"', workflow))
    assert untried == {"3.14"}
    assert "(3.14 was not tried)" in (ROOT / "README.md").read_text(encoding="utf-8")
