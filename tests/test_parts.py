"""What `make test` and `make quick` run, and what they say about it."""

import os
import subprocess
from pathlib import Path

import pytest

from tests import parts

RIDGE = {"tests/attention/test_ridge.py", "tests/lessons/test_ridge_attention.py"}


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A Makefile whose parts write down that they ran; `failing` fail."""

    def write(*failing):
        lines = [
            f"{part}:\n\t@echo {part} $({part.upper()}) >> calls; echo said by {part}; exit {int(part in failing)}\n"
            for part in parts.PARTS
        ]
        (tmp_path / "Makefile").write_text("\n".join(lines))
        return tmp_path

    # An outer `make test` hands nothing down to these.
    for name in [name for name in os.environ if name.startswith(("MAKE", "MFLAGS"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    monkeypatch.setattr(parts, "SUMMARY", tmp_path / "summary")
    return write


@pytest.mark.parametrize("failing", [(), ("lint",), ("unit", "browser")])
def test_every_part_runs_and_the_last_line_names_those_that_failed(stand_in, capfd, failing):
    folder = stand_in(*failing)
    assert parts.main("test") == bool(failing)
    assert [line.split()[0] for line in (folder / "calls").read_text().splitlines()] == list(parts.PARTS)
    said = capfd.readouterr().out.splitlines()
    table = {line.split()[0]: line for line in said[-6:-1]}
    assert list(table) == [*parts.PARTS, "total"]
    assert all(table[part].endswith(f" s  said by {part}") for part in parts.PARTS)
    ended = f"FAILED in {', '.join(failing)}" if failing else "all parts passed"
    assert said[-1] == f"make test: {ended}"
    assert (folder / "summary").read_text().splitlines() == said[-6:]


def test_quick_hands_its_choice_to_the_parts(stand_in, monkeypatch):
    folder = stand_in()
    monkeypatch.setattr(parts, "changed_files", lambda: {Path("notebooks/15_kernelized_attention.ipynb")})
    monkeypatch.setattr(parts, "tests_of", lambda path: {str(path)})
    parts.main("quick")
    calls = dict(line.split(" ", 1) for line in (folder / "calls").read_text().splitlines()[1:])
    assert set(calls["unit"].split()) == parts.SMOKE["unit"]
    assert calls["notebooks"].split() == sorted(
        {*parts.SMOKE["notebooks"], "notebooks/15_kernelized_attention.ipynb"}
    )
    assert set(calls["browser"].split()) == parts.SMOKE["browser"]


def test_what_quick_always_runs_exists():
    for chosen in parts.SMOKE.values():
        assert all((parts.ROOT / path).is_file() for path in chosen)


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("course_lib/attention/ridge.py", RIDGE),
        ("notebooks/01_gradient_descent_stability.ipynb", {"notebooks/01_gradient_descent_stability.ipynb"}),
        (
            "course_lib/lessons/ridge_attention/pictures.py",
            {"tests/lessons/test_ridge_attention.py", "notebooks/17_ridge_attention.ipynb"},
        ),
        ("course_lib/teaching/claims.py", {"tests/teaching/test_claims.py"}),
        ("tests/attention/test_ridge.py", {"tests/attention/test_ridge.py"}),
        ("tests/browser/test_lessons.py", set()),
        ("README.md", set()),
    ],
)
def test_a_changed_file_has_the_tests_of_its_row(changed, tests):
    assert parts.tests_of(Path(changed)) == tests


def test_a_module_without_tests_of_its_name_has_those_that_import_it():
    assert parts.tests_of(Path("course_lib/attention/no_such_module.py")) == set()
    assert "tests/language/test_corpus.py" in parts.tests_of(Path("course_lib/language/lexicon.py"))


def test_changed_files_are_those_that_git_sees_changed_or_does_not_know(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for name in ("same", "changed", "staged", "gone"):
        (tmp_path / name).write_text("before")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    (tmp_path / "changed").write_text("after")
    (tmp_path / "staged").write_text("after")
    (tmp_path / "gone").unlink()
    (tmp_path / ".gitignore").write_text("ignored\n")
    (tmp_path / "ignored").touch()
    (tmp_path / "new").touch()
    subprocess.run([*git, "add", "staged"], cwd=tmp_path, check=True)
    assert parts.changed_files() == {Path(name) for name in ("changed", "staged", "new", ".gitignore")}


def test_tests_that_share_something_stay_in_one_process(request):
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("not run with --dist loadgroup")
    assert request.node.nodeid.endswith("@test_parts.py")
