"""Every check of the doctor on a right environment and on made-up wrong ones."""

import json
import os
import shlex
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from course_lib import doctor
from course_lib.doctor import Finding

ROOT = Path(__file__).resolve().parents[1]


# ---------------------------------------------------------------- Python


@pytest.mark.parametrize("supported", [(3, 11, 0), (3, 12, 9), (3, 13, 0), (3, 14, 1)])
def test_supported_python_is_ok(supported):
    assert doctor.check_python(supported, checkout=None).status == "ok"


@pytest.mark.parametrize(
    ("found", "status"), [((3, 10, 14), "fail"), ((3, 15, 0), "warn"), ((2, 7, 18), "fail")]
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


# ---------------------------------------------------------------- the whole


def test_find_checkout(tmp_path):
    assert doctor.find_checkout([ROOT / "course_lib" / "teaching"]) == ROOT
    assert doctor.find_checkout([tmp_path]) is None
    for name, text in (("pyproject.toml", 'name = "another"'), ("constraints.txt", "")):
        (tmp_path / name).write_text(text)
    assert doctor.find_checkout([tmp_path]) is None
    assert doctor.find_checkout([tmp_path, ROOT]) == ROOT


NAMES = ["Python", "package versions", "kernel and server", "widget manager"]


def test_examine_covers_everything_and_mends_what_is_not_ok():
    findings = doctor.examine()
    assert [finding.name for finding in findings] == NAMES
    assert all((finding.status == "ok") == (finding.mend == "") for finding in findings)


def test_a_check_that_breaks_is_a_finding_and_hides_no_other(monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.setattr(doctor, "_in_notebook", lambda: True)
    monkeypatch.setattr(doctor, "check_widget_manager", lambda **given: 1 / 0)
    findings = {finding.name: finding for finding in doctor.examine()}
    assert list(findings) == NAMES
    assert findings["kernel and server"].status == "fail"
    assert findings["kernel and server"].detail == "psutil is not installed (ModuleNotFoundError)"
    assert "pip install" in findings["kernel and server"].mend
    assert findings["widget manager"].status == "fail"
    assert "ZeroDivisionError: division by zero" in findings["widget manager"].detail


def test_nothing_is_installed_into_the_python_of_the_system(monkeypatch):
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert doctor._reinstall(ROOT) == f"cd {shlex.quote(str(ROOT))} && make lab"


def test_outside_a_checkout_the_package_ranges_are_used(tmp_path):
    findings = {finding.name: finding for finding in doctor.examine(start=tmp_path)}
    assert findings["package versions"] == Finding(
        "package versions", "ok", "package versions agree with the ranges that course-lib asks for"
    )


def test_a_package_that_is_not_installed_is_said(monkeypatch):
    monkeypatch.setattr(doctor, "DISTRIBUTION", "course-lib-that-nobody-installed")
    finding = doctor._versions_here(None)
    assert finding.status == "fail"
    assert "is not installed" in finding.detail


FINE = [Finding("Python", "ok", "Python 3.11.7"), Finding("widget manager", "ok", "ipywidgets 8")]
FINDINGS = [
    FINE[0],
    Finding("package versions", "fail", "torch is <1>", "python -m pip install " + "x" * 100),
]


def test_where_all_is_well_one_line_says_so(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda: FINE)
    line = "Everything is in order: Python 3.11.7; ipywidgets 8."
    assert doctor.main() == 0
    assert capsys.readouterr().out == f"{line}\n"
    assert repr(doctor.report()) == line
    assert line in doctor.report()._repr_html_()
    assert doctor.main(details=True) == 0
    assert "widget manager" in capsys.readouterr().out


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
    ("findings", "code"), [(FINDINGS, 1), (FINE, 0), ([Finding("Python", "warn", "", "x")], 0)]
)
def test_main_returns_1_only_for_a_failure(findings, code, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "examine", lambda: findings)
    assert doctor.main() == code
    assert findings[0].detail in capsys.readouterr().out


def test_report_in_a_notebook_and_as_text(monkeypatch):
    monkeypatch.setattr(doctor, "examine", lambda: FINDINGS)
    shown = doctor.report()
    page = shown._repr_html_()
    assert "torch is &lt;1&gt;" in page
    assert page.count("<tr>") == 3
    assert f"<code>{FINDINGS[1].mend}</code>" in page
    text = repr(shown)
    assert "ok    Python            Python 3.11.7" in text
    assert FINDINGS[1].mend in text


def test_an_environment_in_order_names_no_folder_of_the_machine():
    # The notebook that shows this report is stored with its output.
    for finding in doctor.examine():
        if finding.status == "ok":
            assert os.sep not in finding.detail
