"""A new edition comes into a clone: nothing of the learner's is lost, stopped or not, and every page is a notebook."""

import json
import os
import shutil
import subprocess
from datetime import date
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner

from course_lib import update as module
from course_lib.__main__ import app
from course_lib.teaching import progress
from course_lib.update import EARLIER, KEPT, PROGRESS_COPY, RENUMBERED, UNFINISHED, update

ROOT = Path(__file__).resolve().parents[1]
TODAY = f"{KEPT}/{date.today().isoformat()}"
IDENTITY = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
NEWEST = ["This is the newest edition: nothing was changed."]
ONE, TWO = "notebooks/01_one.ipynb", "notebooks/02_two.ipynb"


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No settings of the machine's git, and progress beside the notebooks."""
    for name, value in (IDENTITY | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("COURSE_PROGRESS")


def git(folder, *words):
    return subprocess.run(
        ["git", *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def stub(number, body="answer = ..."):
    return f'{body}\nexercises["{number}"].check(answer)'


def page(*parts):
    """Return a notebook of texts, and of answer cells given as (number, source)."""
    cells = []
    for place, part in enumerate(parts):
        if isinstance(part, str):
            cells.append(nbformat.v4.new_markdown_cell(part, id=f"t{place}"))
        else:
            number, source = part
            cells.append(nbformat.v4.new_code_cell(source, id=f"c{place}", metadata={"exercise": number}))
    return nbformat.writes(nbformat.v4.new_notebook(cells=cells)) + "\n"


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


FIRST = {
    "course_lib/lessons/catalog.py": "LESSONS = ()\n",
    "README.md": "The course\n",
    "LICENSE": "Free\n",
    ".gitignore": ".course_progress*.json\n",
    ONE: page("# One", ("01.1", stub("01.1")), ("01.2", stub("01.2"))),
    TWO: page("# Two", ("03.1", stub("03.1"))),
}
# Both pages have another text.
SECOND = {
    ONE: page("# One, better", ("01.1", stub("01.1")), "Why", ("01.2", stub("01.2"))),
    TWO: page("# Two, better", ("03.1", stub("03.1"))),
}


@pytest.fixture
def origin(tmp_path):
    """The course's repository, with one edition."""
    made = tmp_path / "origin"
    made.mkdir()
    git(made, "init", "-q", "-b", "main")
    publish(made, FIRST)
    return made


def publish(origin, files):
    write(origin, files)
    git(origin, "add", "-A")
    git(origin, "commit", "-qm", "edition")


@pytest.fixture
def clone(origin, tmp_path):
    git(tmp_path, "clone", "-q", str(origin), "clone")
    return tmp_path / "clone"


def answer(clone, number, body, *, path=ONE):
    """Write into the answer cell of an exercise, as a learner does."""
    notebook = nbformat.read(clone / path, as_version=4)
    (cell,) = (cell for cell in notebook.cells if cell.metadata.get("exercise") == number)
    cell.source = body if "check" in body else stub(number, body)
    cell.execution_count = 7
    nbformat.write(notebook, clone / path)


def sources(clone, path=ONE):
    """Return the sources of a page's cells; it must be a valid notebook."""
    notebook = nbformat.read(clone / path, as_version=4)
    nbformat.validate(notebook)
    return [cell.source for cell in notebook.cells]


def snapshot(folder):
    """Return every file outside .git, with its bytes."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }


# ---------------------------------------------------------------- answers


def test_an_answer_stands_in_the_new_page_and_the_old_page_is_kept(origin, clone):
    answer(clone, "01.2", "answer = 42")
    mine = (clone / ONE).read_bytes()
    publish(origin, SECOND)
    said = update(clone)
    assert sources(clone) == ["# One, better", stub("01.1"), "Why", stub("01.2", "answer = 42")]
    assert sources(clone, TWO)[0] == "# Two, better"
    assert (clone / TODAY / ONE).read_bytes() == mine
    assert said[1:] == [
        f"Changed by you and by the new edition, yours is now in {TODAY}: {ONE}",
        "Answer to 01.2: carried over.",
    ]
    assert git(clone, "rev-parse", "HEAD") == git(origin, "rev-parse", "HEAD")
    after = snapshot(clone)
    assert update(clone) == NEWEST
    assert snapshot(clone) == after
    # The next edition finds the answer again.
    publish(origin, {ONE: page("# One, best", ("01.1", stub("01.1")), ("01.2", stub("01.2")))})
    update(clone / "notebooks")
    assert sources(clone) == ["# One, best", stub("01.1"), stub("01.2", "answer = 42")]
    assert (clone / f"{TODAY}-2" / ONE).is_file()
    assert (clone / TODAY / ONE).read_bytes() == mine


def test_what_only_one_side_changed_is_as_that_side_has_it(origin, clone):
    answer(clone, "03.1", "answer = 1", path=TWO)
    write(clone, {"LICENSE": "Mine\n", "notes.txt": "note"})
    mine = (clone / TWO).read_bytes()
    publish(origin, {ONE: SECOND[ONE], "README.md": "New\n"})
    assert len(update(clone)) == 1
    assert (clone / TWO).read_bytes() == mine
    assert [(clone / name).read_text() for name in ("LICENSE", "notes.txt", "README.md")] == [
        "Mine\n",
        "note",
        "New\n",
    ]
    assert not (clone / KEPT).exists()


def test_a_page_that_was_only_run_does_not_block(origin, clone):
    notebook = nbformat.read(clone / ONE, as_version=4)
    notebook.cells[1].outputs = [nbformat.v4.new_output("stream", text="not attempted yet")]
    notebook.metadata["widgets"] = {"state": {}}
    nbformat.write(notebook, clone / ONE)
    publish(origin, SECOND)
    assert len(update(clone)) == 2
    assert (clone / ONE).read_text() == SECOND[ONE]


def test_an_answer_follows_its_exercise_to_another_page(origin, clone):
    answer(clone, "01.2", "answer = 'moved'")
    publish(
        origin,
        {
            ONE: page("# One", ("01.1", stub("01.1"))),
            "notebooks/03_three.ipynb": page("# Three", ("01.2", stub("01.2"))),
        },
    )
    assert "Answer to 01.2: carried over." in update(clone)
    assert sources(clone, "notebooks/03_three.ipynb")[1] == stub("01.2", "answer = 'moved'")


def test_an_answer_to_a_question_in_another_form_becomes_a_comment(origin, clone):
    answer(clone, "01.1", "answer = 3\n\n# so")
    publish(origin, {ONE: page(("01.1", stub("01.1", "def f(x):\n    ...")), ("01.2", stub("01.2")))})
    assert "Answer to 01.1: asked in another form; yours is a comment in its cell." in update(clone)
    lines = [EARLIER, "# answer = 3", "#", "# # so", '# exercises["01.1"].check(answer)', ""]
    assert sources(clone)[0] == "\n".join(lines) + "\n" + stub("01.1", "def f(x):\n    ...")


def test_an_answer_to_what_is_no_longer_asked_is_named(origin, clone):
    answer(clone, "01.1", "answer = 3")
    publish(origin, {ONE: page(("01.2", stub("01.2")))})
    assert update(clone)[-1] == f"Answer to 01.1: no longer asked; yours is in {TODAY}."
    assert sources(clone / TODAY)[1] == stub("01.1", "answer = 3")


def test_of_copied_answer_cells_the_last_that_says_something_counts(origin, clone):
    notebook = nbformat.read(clone / ONE, as_version=4)
    for body in ("answer = 1", "answer = 2"):
        cell = nbformat.v4.new_code_cell(stub("01.1", body), metadata={"exercise": "01.1"})
        notebook.cells.append(cell)
    notebook.cells.append(nbformat.v4.new_code_cell("", metadata={"exercise": "01.1"}))
    nbformat.write(notebook, clone / ONE)
    publish(origin, SECOND)
    update(clone)
    assert stub("01.1", "answer = 2") in sources(clone)


def test_a_page_that_the_edition_took_away_is_kept(origin, clone):
    answer(clone, "03.1", "answer = 5", path=TWO)
    publish(origin, {TWO: None})
    update(clone)
    assert not (clone / TWO).exists()
    assert sources(clone / TODAY, TWO)[1] == stub("03.1", "answer = 5")


def test_a_page_that_is_no_notebook_is_kept_as_it_was(origin, clone):
    broken = '<<<<<<< mine\n{"cells": ['
    write(clone, {ONE: broken, TWO: "[]"})
    publish(origin, SECOND)
    said = update(clone)
    assert [line for line in said if "could not be read as a notebook" in line] == said[-2:]
    assert [(clone / path).read_text() for path in (ONE, TWO)] == [SECOND[ONE], SECOND[TWO]]
    assert (clone / TODAY / ONE).read_text() == broken


def test_a_page_of_the_course_keeps_its_format(origin, clone):
    """What nbformat writes and what is written here differ in the answer only."""
    name = "notebooks/00_start_here.ipynb"
    real = (ROOT / name).read_text(encoding="utf-8")
    publish(origin, {name: real})
    update(clone)
    answer(clone, "00.2", "answer = 7", path=name)
    later = real.replace("What is stored", "What was stored").replace("## Summary", "## In short")
    assert later != real
    publish(origin, {name: later})
    assert "Answer to 00.2: carried over." in update(clone)
    wanted = later.replace(
        '"answer = ...\\n",\n    "exercises[\\"00.2\\"]', '"answer = 7\\n",\n    "exercises[\\"00.2\\"]'
    )
    assert wanted != later
    assert (clone / name).read_text(encoding="utf-8") == wanted


# ---------------------------------------------------------------- other files


def test_files_in_the_way_are_moved_whatever_git_knows_of_them(origin, clone):
    write(clone, {"README.md": "staged\n", "new.md": "mine\n", "other.md": "mine\n", "same.md": "theirs\n"})
    git(clone, "add", "README.md", "new.md")
    (clone / ONE).unlink()
    publish(
        origin,
        SECOND
        | {"README.md": "theirs\n", "new.md": "theirs\n", "other.md": "theirs\n", "same.md": "theirs\n"},
    )
    update(clone)
    assert {name: (clone / TODAY / name).read_text() for name in ("README.md", "new.md", "other.md")} == {
        "README.md": "staged\n",
        "new.md": "mine\n",
        "other.md": "mine\n",
    }
    assert sorted(path.name for path in (clone / TODAY).iterdir()) == ["README.md", "new.md", "other.md"]
    assert (clone / ONE).read_text() == SECOND[ONE]
    assert git(clone, "status", "--porcelain", "--untracked-files=no") == ""


# ---------------------------------------------------------------- other numbers


def progress_file(clone, **kinds):
    path = clone / "notebooks" / ".course_progress.json"
    path.write_text(json.dumps({"exercises": {}, "predictions": {}, "sentences": {}} | kinds))
    return path


def test_answers_and_progress_follow_the_numbers(origin, clone):
    answer(clone, "01.1", "answer = 'one'")
    answer(clone, "01.2", "answer = 'two'")
    guess, solved = {"guess": "a", "right": True}, {"attempts": 2, "hints": 0, "solved": True, "mistakes": {}}
    path = progress_file(clone, exercises={"01.1": solved, "01.3": {}}, predictions={"01.P1": guess})
    before = path.read_bytes()
    # "01.1" and "01.2" change places, then "01.2" becomes "01.3", which is no more.
    publish(origin, {RENUMBERED: json.dumps([{"01.1": "01.2", "01.2": "01.1", "01.P1": "01.P2"}])})
    publish(
        origin,
        {
            RENUMBERED: json.dumps([{"01.1": "01.2", "01.2": "01.1", "01.P1": "01.P2"}, {"01.2": "01.3"}]),
            ONE: page(("01.1", stub("01.1")), ("01.3", stub("01.3"))),
        },
    )
    said = update(clone)
    assert sources(clone) == [stub("01.1", "answer = 'two'"), stub("01.3", "answer = 'one'")]
    assert json.loads(path.read_text()) == {
        "exercises": {"01.3": solved},
        "predictions": {"01.P2": guess},
        "sentences": {},
    }
    assert (clone / TODAY / PROGRESS_COPY).read_bytes() == before
    assert "Your progress has the new numbers of its exercises" in said[-1]
    assert update(clone) == NEWEST
    publish(origin, {"README.md": "3\n"})  # what was renumbered once is not renumbered again
    assert len(update(clone)) == 1
    assert list(json.loads(path.read_text())["exercises"]) == ["01.3"]


def test_progress_that_is_damaged_stays(origin, clone):
    path = progress_file(clone)
    path.write_text("{")
    publish(origin, {RENUMBERED: '[{"01.1": "01.2"}]'})
    assert "could not be read" in update(clone)[-1]
    assert path.read_text() == "{"


@pytest.mark.parametrize(
    "text",
    ["{}", '[{"01.1": 2}]', '[{"01.1": "02.x"}]', '[{"01.1": "01.3", "01.2": "01.3"}]', '["01.1"]', "["],
)
def test_wrong_mappings_are_refused_before_anything_moves(origin, clone, text):
    answer(clone, "01.1", "answer = 1")
    publish(origin, SECOND | {RENUMBERED: text})
    before = snapshot(clone)
    with pytest.raises(ValueError, match=r"must be a list of mappings|Expecting"):
        update(clone)
    assert snapshot(clone) == before


def test_the_names_are_those_of_the_progress_file():
    assert (module.PROGRESS_VARIABLE, module.PROGRESS_NAME) == (progress.VARIABLE, progress.DEFAULT_NAME)
    mappings = ROOT / RENUMBERED
    assert isinstance(module._mappings(mappings.read_bytes() if mappings.is_file() else None), list)
    assert f"/{KEPT}/" in (ROOT / ".gitignore").read_text().splitlines()


# ---------------------------------------------------------------- what stands in the way


def refused(clone, words, kind=ValueError):
    before = snapshot(clone)
    with pytest.raises(kind, match=words) as caught:
        update(clone)
    assert snapshot(clone) == before
    return str(caught.value)


@pytest.fixture
def answered(origin, clone):
    """A clone with an answer, and a later edition of its page."""
    answer(clone, "01.1", "answer = 1")
    publish(origin, SECOND)
    return clone


def test_no_clone_and_another_clone_are_named(tmp_path, answered):
    refused(tmp_path, "is in no git clone")
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    refused(other, "but not of the course")


def test_no_git_is_said(answered, monkeypatch):
    monkeypatch.setenv("PATH", "")
    refused(answered, "no program `git`")


def test_no_network_is_said(origin, answered):
    origin.rename(origin.with_name("gone"))
    refused(answered, "`git fetch` failed", RuntimeError)
    origin.with_name("gone").rename(origin)
    update(answered)


def test_a_detached_head_is_said_and_the_command_that_it_names_helps(answered):
    git(answered, "switch", "-q", "--detach")
    refused(answered, "git switch main")
    git(answered, "switch", "-q", "main")
    assert "Answer to 01.1: carried over." in update(answered)


def test_a_branch_that_follows_none_is_said(answered):
    git(answered, "branch", "--unset-upstream")
    refused(answered, "git branch --set-upstream-to=origin/main")
    git(answered, "branch", "--set-upstream-to=origin/main")
    assert len(update(answered)) > 1


def test_own_commits_are_kept_by_the_commands_that_are_named(answered):
    git(answered, "commit", "-qam", "mine")
    mine = (answered / ONE).read_bytes()
    said = refused(answered, "has 1 commits that origin/main lacks")
    for command in said.split("`")[1::2]:
        subprocess.run(command, shell=True, cwd=answered, check=True)
    assert "Answer to 01.1: carried over." in update(answered)
    assert git(answered, "show", f"my-work:{ONE}").encode() + b"\n" == mine


def test_a_merge_that_was_begun_is_said(answered):
    write(answered, {ONE: (answered / ONE).read_text().replace("# One", "# Mine")})
    git(answered, "commit", "-qam", "mine")
    assert subprocess.run(["git", "pull", "-q", "--no-rebase"], cwd=answered, capture_output=True).returncode
    refused(answered, "git merge --abort")


def test_history_that_was_written_anew_is_followed(origin, answered):
    git(origin, "checkout", "-q", "--orphan", "anew")
    git(origin, "commit", "-qm", "all in one")
    git(origin, "branch", "-q", "-M", "main")
    assert "Answer to 01.1: carried over." in update(answered)
    assert git(answered, "rev-list", "--count", "HEAD") == "1"


def test_a_clone_without_history_is_updated(origin, tmp_path):
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{origin}", "shallow")
    answer(tmp_path / "shallow", "01.1", "answer = 1")
    publish(origin, SECOND)
    publish(origin, {"README.md": "3\n"})
    assert "Answer to 01.1: carried over." in update(tmp_path / "shallow")


def test_where_git_fails_every_file_is_put_back(answered):
    before = snapshot(answered)
    (answered / ".git" / "index.lock").touch()
    with pytest.raises(RuntimeError, match=r"index\.lock"):
        update(answered)
    left = snapshot(answered)
    assert {name: text for name, text in left.items() if not name.startswith(KEPT)} == before
    assert [name for name in left if name.startswith(KEPT)] == []
    (answered / ".git" / "index.lock").unlink()
    assert "Answer to 01.1: carried over." in update(answered)


def test_two_at_a_time_are_one_too_many(answered):
    with module.locked(answered / ".git" / "course-update.lock", busy=RuntimeError("no")):
        refused(answered, "another update of .* is running", RuntimeError)


# ---------------------------------------------------------------- stopped


class Stop(BaseException):
    """As Ctrl+C, or the end of the process: nothing after it happens."""


def stopping(monkeypatch, at):
    """Stop at the call of that number of those that change something; return how many there were, once all are done."""
    calls = []

    def counted(function):
        def call(*args, **kwargs):
            reads = function is run and args[0][1] not in ("fetch", "checkout", "reset")
            if not reads:
                if len(calls) == at:
                    raise Stop
                calls.append(function)
            return function(*args, **kwargs)

        return call

    run = module.subprocess.run
    for owner, name in ((module.subprocess, "run"), (Path, "replace"), (Path, "mkdir"), (Path, "unlink")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    return calls


def test_a_run_that_is_stopped_anywhere_loses_nothing_and_the_next_one_ends_it(
    origin, clone, tmp_path, monkeypatch
):
    answer(clone, "01.1", "answer = 1")
    write(clone, {"README.md": "mine\n", "new.md": "mine\n"})
    progress_file(clone, exercises={"01.2": {}})
    publish(
        origin,
        {
            ONE: page("# New", ("01.1", stub("01.1")), ("01.4", stub("01.4"))),
            "README.md": "theirs\n",
            "new.md": "theirs\n",
            RENUMBERED: '[{"01.2": "01.4"}]',
        },
    )
    before = snapshot(clone)
    mine = {before[name] for name in (ONE, "README.md", "new.md")}

    def new_clone():
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(clone, tmp_path / "copy")
        return tmp_path / "copy"

    with monkeypatch.context() as watched:
        calls = stopping(watched, None)
        update(new_clone())
    wanted = snapshot(tmp_path / "copy")
    assert len(calls) > 20
    for at in range(len(calls)):
        copy = new_clone()
        with monkeypatch.context() as watched:
            stopping(watched, at)
            with pytest.raises(Stop):
                update(copy)
        stopped = snapshot(copy)
        assert mine <= set(stopped.values()), at
        for name in stopped:
            if name.endswith(".ipynb"):
                nbformat.validate(nbformat.reads(stopped[name].decode(), as_version=4))
        update(copy)
        assert {name: text for name, text in snapshot(copy).items() if not name.startswith(KEPT)} == {
            name: text for name, text in wanted.items() if not name.startswith(KEPT)
        }, at
        assert mine <= set(snapshot(copy).values()), at
        assert not list((copy / KEPT).glob(f"*/{UNFINISHED}"))
        assert update(copy) == NEWEST


def test_an_answer_given_after_a_stop_is_not_overwritten(answered, monkeypatch):
    with monkeypatch.context() as watched:
        watched.setattr(module, "_put_in", lambda *_: (_ for _ in ()).throw(Stop))
        with pytest.raises(Stop):
            update(answered)
    answer(answered, "01.1", "answer = 'newer'")
    assert (
        "Answer to 01.1: the cell holds a newer answer and was left; the earlier one is in"
        in update(answered)[-1]
    )
    assert sources(answered)[1] == stub("01.1", "answer = 'newer'")


# ---------------------------------------------------------------- the command


def test_the_command_says_what_was_done_and_what_is_wrong(answered, tmp_path, monkeypatch):
    monkeypatch.chdir(answered)
    done = CliRunner().invoke(app, ["update"])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0].startswith("New edition: ")
    assert done.stdout.splitlines()[-1] == "Answer to 01.1: carried over."
    done = CliRunner().invoke(app, ["update", str(tmp_path)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
