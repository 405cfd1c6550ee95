"""A page that is opened without its kernel: every lesson, as stored and as it may have been saved."""

import asyncio
import copy
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from jupyter_client import AsyncMultiKernelManager
from jupyter_server.serverapp import ServerApp

from course_lib.reopened import (
    FOLDED,
    FOLDED_EXPLORER,
    NOTE_CLASS,
    PROGRESS_NAME,
    PROGRESS_VARIABLE,
    WIDGET_STATE,
    WIDGET_VIEW,
    LessonContents,
    guesses_beside,
    show_without_kernel,
)
from course_lib.teaching import Quiz, Sentence, progress
from tests.browser.small_explorer import EveryControl
from tests.teaching.test_exercise import WHOLE

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def html(notebook):
    return [output.get("data", {}).get("text/html", "") for output in outputs(notebook)]


def views(notebook):
    found = (output.get("data", {}).get(WIDGET_VIEW) for output in outputs(notebook))
    return [view["model_id"] for view in found if view]


def notes(notebook):
    return [text for text in html(notebook) if NOTE_CLASS in text]


def models(notebook):
    return notebook.metadata.get("widgets", {}).get(WIDGET_STATE, {}).get("state", {})


def small(*shown, state=("a" * 32,)):
    """Return a notebook with one cell that shows views (of 32 equal letters) and HTML, and the state of some models."""
    datas = [
        {WIDGET_VIEW: {"model_id": one, "version_major": 2}} if len(one) == 32 else {"text/html": one}
        for one in shown
    ]
    made = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(outputs=[nbformat.v4.new_output("display_data", d) for d in datas])]
    )
    widgets = {"state": {name: {"state": {}} for name in state}, "version_major": 2, "version_minor": 0}
    made.metadata["widgets"] = {WIDGET_STATE: widgets}
    return made


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_lesson_shows_its_pictures_as_stored(path):
    notebook = nbformat.read(path, as_version=4)
    before = copy.deepcopy(notebook)
    show_without_kernel(notebook)
    nbformat.validate(notebook)
    explorers = [text for text in html(before) if text.startswith(FOLDED_EXPLORER)]
    assert explorers
    opened = [text for text in html(notebook) if text.startswith(FOLDED_EXPLORER.replace(">", " open>", 1))]
    assert [text.replace(" open", "", 1) for text in opened] == explorers
    assert len(notes(notebook)) == len(views(before))
    assert len(views(before)) - len(views(notebook)) == len(explorers)
    assert set(views(notebook)) <= set(models(notebook)) < set(models(before))
    # What the page shows beside widgets stays.
    assert [o for o in outputs(notebook) if o.output_type == "stream"] == [
        o for o in outputs(before) if o.output_type == "stream"
    ]
    once = copy.deepcopy(notebook)
    show_without_kernel(notebook)
    assert notebook == once


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_every_lesson_shows_its_pictures_where_no_state_was_saved(path):
    notebook = nbformat.read(path, as_version=4)
    count = len(views(notebook))
    del notebook.metadata["widgets"]
    show_without_kernel(notebook)
    assert views(notebook) == []
    assert len(notes(notebook)) == count
    assert [text for text in html(notebook) if text.startswith(FOLDED)] == []


def test_the_state_of_a_widget_that_is_shown_is_kept_with_its_parts():
    a, b, c, d = (letter * 32 for letter in "abcd")
    notebook = small(a, d, state=(a, b, c))
    models(notebook)[a]["state"] = {"children": [f"IPY_MODEL_{b}"]}
    show_without_kernel(notebook)
    assert (views(notebook), list(models(notebook))) == ([a], [a, b])
    assert [("answer" in text, NOTE_CLASS in text) for text in html(notebook)][::2] == [(True, True)] * 2


def test_an_explorer_asks_to_be_moved_and_a_quiz_to_be_answered():
    assert EveryControl().static().data.startswith(FOLDED_EXPLORER)

    def run():
        """Since it is."""
        return "It is."

    quiz = Quiz([Sentence("90.Q1", "It is.", answer=True, run=run)]).static().data
    assert quiz.startswith(FOLDED)
    assert not quiz.startswith(FOLDED_EXPLORER)
    a = "a" * 32
    notebook = small(a, EveryControl().static().data)
    show_without_kernel(notebook)
    assert ["to move this." in html(notebook)[0], len(html(notebook))] == [True, 2]
    notebook = small(a, quiz)
    show_without_kernel(notebook)
    assert "to answer this." in html(notebook)[0]
    assert views(notebook) == [a]
    assert html(notebook)[2].startswith("<details open>")


def test_a_guess_of_the_progress_file_is_told_where_the_page_has_lost_it(server, tmp_path, monkeypatch):
    monkeypatch.delenv(PROGRESS_VARIABLE, raising=False)
    kept = progress.Progress(tmp_path / PROGRESS_NAME)
    kept.record_prediction("01.P1", guess="a < b", right=False)
    notebook = small("a" * 32, state=())
    asked = {"text/markdown": "**Prediction 01.P1.** Which?"}
    notebook.cells[0].outputs.insert(0, nbformat.v4.new_output("display_data", asked))
    nbformat.write(notebook, tmp_path / "page.ipynb")
    server.session_manager = sessions(running=False)
    manager = LessonContents(parent=server, root_dir=str(tmp_path))
    (note,) = notes(asyncio.run(manager.get("page.ipynb"))["content"])
    assert "You guessed: a &lt; b. Run the cells above, and this one," in note
    assert (PROGRESS_VARIABLE, PROGRESS_NAME) == (progress.VARIABLE, progress.DEFAULT_NAME)


@pytest.mark.parametrize(
    "text", [None, "", "[]", "{}", '{"predictions": [1]}', '{"predictions": {"01.P1": {}}}']
)
def test_a_progress_file_that_cannot_be_read_tells_no_guess(tmp_path, monkeypatch, text):
    monkeypatch.delenv(PROGRESS_VARIABLE, raising=False)
    if text is not None:
        (tmp_path / PROGRESS_NAME).write_text(text)
    assert guesses_beside(tmp_path) == {}


def test_a_page_without_widgets_is_as_it_was():
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_markdown_cell("Text"),
            nbformat.v4.new_code_cell("1", outputs=[nbformat.v4.new_output("stream", text="1\n")]),
            nbformat.v4.new_code_cell("2"),
        ]
    )
    before = copy.deepcopy(notebook)
    show_without_kernel(notebook)
    assert notebook == before


def test_a_widget_that_the_kernel_has_stays_and_one_of_a_run_before_gives_way():
    static = EveryControl().static().data
    a, b, c = (letter * 32 for letter in "abc")
    notebook = small(a, static, b, static, state=(a, b, c))
    models(notebook)[a]["state"] = {"children": [f"IPY_MODEL_{c}"]}
    show_without_kernel(notebook, alive={a})
    assert views(notebook) == [a]
    assert html(notebook) == [
        "",
        static,
        notes(notebook)[0],
        static.replace("<details>", "<details open>", 1),
    ]
    assert list(models(notebook)) == [a, c]


@pytest.fixture
def server():
    """A server without pages, to hang sessions and kernels on."""
    server = ServerApp()
    server.init_event_logger()
    return server


def sessions(running, kernel="k"):
    """Return a manager of sessions that has one for every page, or none."""

    async def session_exists(asked):
        assert asked == "page.ipynb"
        return running

    async def get_session(path):
        return {"kernel": {"id": kernel}}

    return SimpleNamespace(session_exists=session_exists, get_session=get_session)


def test_a_page_that_no_kernel_runs_is_changed_and_never_its_file(tmp_path, server):
    path = tmp_path / "page.ipynb"
    nbformat.write(small("b" * 32), path)
    before = path.read_bytes()
    server.session_manager = sessions(running=False)
    manager = LessonContents(parent=server, root_dir=str(tmp_path))
    opened = asyncio.run(manager.get("page.ipynb"))["content"]
    assert (views(opened), len(notes(opened))) == ([], 1)
    assert path.read_bytes() == before
    assert asyncio.run(manager.get("page.ipynb", content=False))["content"] is None


@pytest.mark.parametrize("ends", [False, True])
def test_a_page_that_is_loaded_anew_keeps_the_widgets_that_its_kernel_has(ends, tmp_path, server):
    """Also while the kernel runs a cell; with the kernel gone in this moment, the page is as it was stored."""

    async def opened():
        kernels = AsyncMultiKernelManager()
        name = await kernels.start_kernel()
        kernel = kernels.get_kernel(name)
        client = kernel.client()
        client.start_channels()
        await client.wait_for_ready(timeout=60)
        said = []
        await client.execute_interactive(
            "import ipywidgets; print(ipywidgets.IntSlider().model_id)",
            output_hook=lambda message: said.append(message["content"].get("text", "")),
        )
        alive = "".join(said).strip()
        nbformat.write(small(alive, "b" * 32), tmp_path / "page.ipynb")
        client.execute("import time; time.sleep(60)")
        if ends:
            await kernels.shutdown_kernel(name, now=True)
        server.session_manager, server.kernel_manager = sessions(running=True, kernel=name), kernels
        manager = LessonContents(parent=server, root_dir=str(tmp_path))
        try:
            return alive, (await manager.get("page.ipynb"))["content"]
        finally:
            client.stop_channels()
            await kernels.shutdown_all(now=True)

    alive, notebook = asyncio.run(opened())
    assert views(notebook) == ([alive, "b" * 32] if ends else [alive])
    assert len(notes(notebook)) == (not ends)


def test_a_button_for_hints_is_left_out_where_no_kernel_answers_it():
    notebook = small("<p>Not yet.</p>", "a" * 32, "<p>below</p>")
    notebook.cells[0].outputs[1].data["text/plain"] = WHOLE.help_line
    show_without_kernel(notebook)
    assert html(notebook) == ["<p>Not yet.</p>", "<p>below</p>"]
    assert models(notebook) == {}
