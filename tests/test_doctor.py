"""Every check of the doctor on a right environment and on made-up wrong ones."""

import http.server
import json
import os
import shlex
import socket
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from nbformat.sign import NotebookNotary

from course_lib import doctor
from course_lib.doctor import Finding

ROOT = Path(__file__).resolve().parents[1]


# ---------------------------------------------------------------- Python


@pytest.mark.parametrize("supported", [(3, 11, 0), (3, 12, 9)])
def test_supported_python_is_ok(supported):
    assert doctor.check_python(supported, checkout=None).status == "ok"


@pytest.mark.parametrize(
    ("found", "status"), [((3, 10, 14), "fail"), ((3, 13, 0), "warn"), ((2, 7, 18), "fail")]
)
def test_other_python_is_named_with_a_way_out(found, status):
    finding = doctor.check_python(found, checkout=ROOT)
    assert finding.status == status
    assert ".".join(map(str, found)) in finding.detail
    assert "make lab PYTHON=python3.12" in finding.mend


# ---------------------------------------------------------------- versions

REQUIREMENTS = [
    "torch>=2.11,<2.14",
    "numpy>=1.26,<3",
    'pytest>=9; extra == "test"',
    "old==1; python_version<'3'",
]
PINS = "# tested together\ntorch==2.13.0\nnumpy==2.4.6\n\nabsent==1.0\n"


def versions(installed, constraints=PINS, checkout=ROOT):
    return doctor.check_versions(
        requirements=REQUIREMENTS, constraints=constraints, installed=installed, checkout=checkout
    )


def test_pinned_versions_are_ok_with_a_local_build_of_torch():
    assert versions({"torch": "2.13.0+cpu", "numpy": "2.4.6"}).status == "ok"


def test_a_version_off_its_pin_but_in_its_range_is_a_warning():
    finding = versions({"torch": "2.12.0", "numpy": "2.4.6"})
    assert finding.status == "warn"
    assert "torch is 2.12.0, pinned ==2.13.0" in finding.detail
    assert "pip install -c constraints.txt -e" in finding.mend


def test_a_version_outside_its_range_and_a_missing_package_fail():
    finding = versions({"torch": "2.10.0"})
    assert finding.status == "fail"
    assert "torch is 2.10.0" in finding.detail
    assert "numpy is not installed" in finding.detail


def test_without_a_checkout_the_ranges_decide_and_the_mend_names_them():
    assert versions({"torch": "2.12.0", "numpy": "2.0"}, constraints=None, checkout=None).status == "ok"
    finding = versions({"torch": "2.14.0", "numpy": "2.0"}, constraints=None, checkout=None)
    assert finding.status == "fail"
    assert shlex.split(finding.mend)[:5] == [sys.executable, "-m", "pip", "install", "--upgrade"]
    assert shlex.split(finding.mend)[5] in ("torch>=2.11,<2.14", "torch<2.14,>=2.11")


def test_many_differences_are_counted():
    pins = "\n".join(f"package{i}==1.0" for i in range(7))
    installed = {"torch": "2.13.0", "numpy": "2.4.6", **{f"package{i}": "2.0" for i in range(7)}}
    assert "and 3 more" in versions(installed, constraints=pins).detail


def test_the_installed_versions_are_read():
    installed = doctor._installed()
    assert installed["pytest"] == version("pytest")
    assert installed["pyyaml"] == version("PyYAML")


# ---------------------------------------------------------------- kernel and server


def kernel(**changes):
    right = {
        "prefix": "/envs/course",
        "in_notebook": True,
        "server_prefixes": ["/envs/course"],
        "kernelspec_program": "python",
        "python": "/envs/course/bin/python",
    }
    return doctor.check_kernel(**(right | changes))


@pytest.mark.parametrize("program", ["python", "python3", "python3.11", "/envs/course/bin/python"])
def test_kernel_and_server_in_one_environment(program):
    assert kernel(kernelspec_program=program).status == "ok"


def test_a_server_from_another_environment_fails_and_both_are_named():
    finding = kernel(server_prefixes=["/usr"])
    assert finding.status == "fail"
    assert "/envs/course" in finding.detail
    assert "/usr" in finding.detail
    assert finding.mend == "/envs/course/bin/python -m jupyter lab"


def test_a_kernelspec_of_another_environment_fails():
    finding = kernel(in_notebook=False, server_prefixes=[], kernelspec_program="/envs/other/bin/python")
    assert finding.status == "fail"
    assert "/envs/other/bin/python" in finding.detail
    assert "-m ipykernel install --sys-prefix --name python3" in finding.mend


def test_no_kernelspec_fails():
    assert kernel(kernelspec_program=None).status == "fail"


def test_an_unknown_server_is_said_to_be_unknown():
    finding = kernel(server_prefixes=[])
    assert finding.status == "ok"
    assert "not visible" in finding.detail


def test_a_linked_environment_is_the_same_environment(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert kernel(prefix=str(tmp_path / "real"), server_prefixes=[str(tmp_path / "link")]).status == "ok"


def test_server_prefixes_from_interpreter_and_script(tmp_path):
    venv = ["/envs/course/bin/python3.11", "/envs/course/bin/jupyter-lab", "--no-browser"]
    assert doctor.server_prefixes(venv, cwd="/", path=None) == ["/envs/course"] * 2
    framework = ["/Library/Python.app/Contents/MacOS/Python", "/envs/course/bin/jupyter-lab"]
    assert doctor.server_prefixes(framework, cwd="/", path=None) == ["/envs/course"]
    relative = [".venv/bin/python", "-m", "jupyterlab"]
    assert doctor.server_prefixes(relative, cwd="/course", path=None) == ["/course/.venv"]
    assert doctor.server_prefixes(["/usr/bin/node", "server.js"], cwd="/", path=None) == []
    bare = tmp_path / "env" / "bin" / "python3"
    bare.parent.mkdir(parents=True)
    bare.touch(mode=0o755)
    assert doctor.server_prefixes(["python3", "-m"], cwd="/", path=str(bare.parent)) == [
        str(tmp_path / "env")
    ]


# ---------------------------------------------------------------- widget manager


def extensions(folder, *, manager="5.0.16", anywidget="0.11.0"):
    for name, number in (("@jupyter-widgets/jupyterlab-manager", manager), ("anywidget", anywidget)):
        if number:
            (folder / name).mkdir(parents=True)
            (folder / name / "package.json").write_text(json.dumps({"name": name, "version": number}))
    return folder


def widgets(folder, ipywidgets="8.1.9"):
    return doctor.check_widget_manager(extensions=folder, ipywidgets_version=ipywidgets, checkout=None)


def test_fitting_widget_extensions(tmp_path):
    finding = widgets(extensions(tmp_path))
    assert finding.status == "ok"
    assert "jupyterlab-manager 5.0.16, anywidget 0.11.0" in finding.detail


@pytest.mark.parametrize("absent", ["manager", "anywidget"])
def test_a_missing_widget_extension_fails(tmp_path, absent):
    finding = widgets(extensions(tmp_path, **{absent: None}))
    assert finding.status == "fail"
    assert absent in finding.detail
    assert "--force-reinstall" in finding.mend


@pytest.mark.parametrize(
    ("manager", "ipywidgets"), [("3.1.0", "8.1.9"), ("5.0.16", "7.8.1"), ("6.0.0", "9.0.0")]
)
def test_a_widget_extension_of_another_major_fails(tmp_path, manager, ipywidgets):
    finding = widgets(extensions(tmp_path, manager=manager), ipywidgets)
    assert finding.status == "fail"
    assert manager in finding.detail
    assert ipywidgets in finding.detail


def test_ipywidgets_7_goes_with_manager_3(tmp_path):
    assert widgets(extensions(tmp_path, manager="3.1.0"), "7.8.1").status == "ok"


def test_missing_ipywidgets_fails(tmp_path):
    assert widgets(extensions(tmp_path), None).status == "fail"


# ---------------------------------------------------------------- notebook trust


@pytest.fixture
def notary(tmp_path):
    return NotebookNotary(data_dir=str(tmp_path))


def notebook(path, source="1 + 1"):
    output = nbformat.v4.new_output("execute_result", data={"text/html": "<b>2</b>"}, execution_count=1)
    cell = nbformat.v4.new_code_cell(source, outputs=[output], execution_count=1)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    return path


def test_trust(tmp_path, notary):
    paths = [notebook(tmp_path / "a.ipynb"), notebook(tmp_path / "b.ipynb", "2")]
    notary.sign(nbformat.read(paths[0], as_version=4))
    finding = doctor.check_trust(notebooks=paths, notary=notary, checkout=tmp_path)
    assert finding.status == "warn"
    assert finding.detail == "1 of 2 not trusted: b.ipynb"
    assert "-m jupyter trust notebooks/*.ipynb" in finding.mend
    notary.sign(nbformat.read(paths[1], as_version=4))
    assert doctor.check_trust(notebooks=paths, notary=notary, checkout=tmp_path).status == "ok"
    notebook(paths[0], "3")
    assert doctor.check_trust(notebooks=paths, notary=notary, checkout=tmp_path).status == "warn"


@pytest.mark.parametrize("damage", ["<<<<<<< HEAD\n{}", "[]", ""])
def test_a_damaged_notebook_is_named_and_kept(tmp_path, notary, damage):
    path = tmp_path / "c.ipynb"
    path.write_text(damage)
    finding = doctor.check_trust(notebooks=[path], notary=notary, checkout=None)
    assert finding.status == "fail"
    assert "c.ipynb" in finding.detail
    assert finding.mend.startswith("mv notebooks/c.ipynb notebooks/c.ipynb.damaged && git checkout")


def test_no_notebooks_is_no_fault(notary):
    assert doctor.check_trust(notebooks=[], notary=notary, checkout=None).status == "ok"


# ---------------------------------------------------------------- device, disk, hub


def torch_with(*, cuda=False, mps=False, threads=2):
    return SimpleNamespace(
        cuda=SimpleNamespace(is_available=lambda: cuda, get_device_name=lambda index: f"Accelerator {index}"),
        backends=SimpleNamespace(mps=SimpleNamespace(is_available=lambda: mps)),
        get_num_threads=lambda: threads,
    )


@pytest.mark.parametrize(
    ("machine", "detail"),
    [
        ({"cuda": True}, "cuda: Accelerator 0"),
        ({"mps": True}, "mps"),
        ({"threads": 8}, "cpu, 8 threads"),
        ({"threads": 1}, "cpu, 1 thread"),
    ],
)
def test_device(machine, detail):
    assert doctor.check_device(torch_with(**machine)) == Finding("device", "ok", detail)


@pytest.mark.parametrize(
    ("free", "status"), [(80e9, "ok"), (5e9, "ok"), (4.9e9, "warn"), (1e9, "warn"), (9e8, "fail")]
)
def test_disk(free, status):
    finding = doctor.check_disk(int(free))
    assert finding.status == status
    assert finding.mend.endswith("-m pip cache purge") == (status != "ok")


def unreachable(url):
    raise OSError("no route")


def test_hub_reachable():
    asked = []
    finding = doctor.check_hub(environment={}, head=lambda url: asked.append(url) or 200)
    assert finding.status == "ok"
    assert asked == ["https://huggingface.co"]


@pytest.mark.parametrize("value", ["1", "true", "ON", "yes"])
def test_hub_set_offline_asks_nobody(value):
    finding = doctor.check_hub(environment={"HF_HUB_OFFLINE": value}, head=lambda url: pytest.fail("asked"))
    assert finding.status == "warn"
    assert "built-in model works" in finding.detail
    assert finding.mend == "unset HF_HUB_OFFLINE"


@pytest.mark.parametrize("head", [unreachable, lambda url: 503, lambda url: int("no status")])
def test_hub_in_any_trouble_is_a_warning(head):
    finding = doctor.check_hub(environment={"HF_ENDPOINT": "https://mirror.example/"}, head=head)
    assert finding.status == "warn"
    assert "built-in model works" in finding.detail
    assert finding.mend == "curl --head https://mirror.example"


@pytest.fixture
def hub():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(404 if self.path == "/missing" else 200)
            self.end_headers()

        def log_message(self, *args):
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_head_of_a_server_that_answers(hub, no_proxy):
    assert doctor._head(hub) == 200
    assert doctor._head(f"{hub}/missing") == 404


def test_head_of_nothing_raises(no_proxy):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match=r"refused"):
            doctor._head(f"http://127.0.0.1:{closed.getsockname()[1]}")
    with pytest.raises(ValueError, match="unknown url type"):
        doctor._head("no-scheme")


def test_head_of_a_silent_server_stops_in_time(no_proxy, monkeypatch):
    monkeypatch.setattr(doctor, "HUB_TIMEOUT_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        # The server never answers: without a time limit this would hang.
        with pytest.raises(OSError, match=r"timed out|no answer"):
            doctor._head(f"http://127.0.0.1:{silent.getsockname()[1]}")


# ---------------------------------------------------------------- the whole


def test_find_checkout(tmp_path):
    assert doctor.find_checkout([ROOT / "course_lib" / "teaching"]) == ROOT
    assert doctor.find_checkout([tmp_path]) is None
    for name, text in (("pyproject.toml", 'name = "another"'), ("constraints.txt", "")):
        (tmp_path / name).write_text(text)
    assert doctor.find_checkout([tmp_path]) is None
    assert doctor.find_checkout([tmp_path, ROOT]) == ROOT


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


NAMES = [
    *("Python", "package versions", "kernel and server", "widget manager"),
    *("notebook trust", "device", "disk", "hub"),
]


def test_examine_covers_everything_and_mends_what_is_not_ok(offline):
    findings = doctor.examine()
    assert [finding.name for finding in findings] == NAMES
    assert all((finding.status == "ok") == (finding.mend == "") for finding in findings)
    assert {finding.name: finding.status for finding in findings}["hub"] == "warn"


def test_a_check_that_breaks_is_a_finding_and_hides_no_other(offline, monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.setitem(sys.modules, "nbformat.sign", None)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(doctor, "_in_notebook", lambda: True)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: 1 / 0)
    findings = {finding.name: finding for finding in doctor.examine()}
    assert list(findings) == NAMES
    for name, module in (
        ("kernel and server", "psutil"),
        ("notebook trust", "nbformat.sign"),
        ("device", "torch"),
    ):
        assert findings[name].status == "fail"
        assert findings[name].detail == f"{module} is not installed (ModuleNotFoundError)"
        assert "pip install" in findings[name].mend
    assert findings["disk"].status == "fail"
    assert "ZeroDivisionError: division by zero" in findings["disk"].detail


def test_nothing_is_installed_into_the_python_of_the_system(monkeypatch):
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert doctor._reinstall(ROOT) == f"cd {shlex.quote(str(ROOT))} && make lab"


def test_outside_a_checkout_the_package_ranges_are_used(offline, tmp_path):
    findings = {finding.name: finding for finding in doctor.examine(start=tmp_path)}
    assert findings["package versions"] == Finding(
        "package versions", "ok", "agree with the ranges that course-lib asks for"
    )


def test_a_package_that_is_not_installed_is_said(monkeypatch):
    monkeypatch.setattr(doctor, "DISTRIBUTION", "course-lib-that-nobody-installed")
    finding = doctor._versions_here(None)
    assert finding.status == "fail"
    assert "is not installed" in finding.detail


FINDINGS = [
    Finding("Python", "ok", "Python 3.11.7"),
    Finding("disk", "fail", "0.5 GB <free>", "python -m pip cache purge " + "x" * 100),
]


def test_table_on_the_terminal_keeps_commands_in_one_line(capsys):
    doctor.print_findings(FINDINGS)
    lines = capsys.readouterr().out.splitlines()
    assert any("Python 3.11.7" in line and "ok" in line for line in lines)
    assert f"  {FINDINGS[1].mend}" in lines


def test_without_rich_the_table_is_plain(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    doctor.print_findings(FINDINGS)
    assert capsys.readouterr().out == f"{doctor.Findings(tuple(FINDINGS))!r}\n"


@pytest.mark.parametrize(
    ("findings", "code"), [(FINDINGS, 1), (FINDINGS[:1], 0), ([Finding("hub", "warn", "", "x")], 0)]
)
def test_main_returns_1_only_for_a_failure(findings, code, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "examine", lambda: findings)
    assert doctor.main() == code
    assert findings[0].name in capsys.readouterr().out


def test_report_in_a_notebook_and_as_text(monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda: FINDINGS)
    shown = doctor.report()
    page = shown._repr_html_()
    assert "0.5 GB &lt;free&gt;" in page
    assert page.count("<tr>") == 3
    assert f"<code>{FINDINGS[1].mend}</code>" in page
    text = repr(shown)
    assert "ok    Python            Python 3.11.7" in text
    assert FINDINGS[1].mend in text


def test_an_environment_in_order_names_no_folder_of_the_machine(monkeypatch):
    # The notebook that shows this report is stored with its output.
    monkeypatch.setattr(doctor, "_head", lambda url: 200)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(doctor, "_trust_here", lambda checkout: Finding("notebook trust", "ok", "3 trusted"))
    for finding in doctor.examine():
        if finding.status == "ok":
            assert os.sep not in finding.detail.replace("https://", "")
