"""A notebook that is stored again differs from what was stored only where its outputs do."""

import base64
import errno
import io
import os

import nbformat
import pytest
from PIL import Image

from course_lib.editions.notebooks import states
from course_lib.lessons import exercises_of
from tests.notebooks.store import state_exercises, store

# Two pictures, one of them inside HTML, and a widget, whose names in the kernel are random.
CELLS = (
    "import base64, io, pathlib, ipywidgets\n"
    "from IPython.display import HTML, Image, display\n"
    "from PIL import Image as Picture\n"
    "file = io.BytesIO()\n"
    "Picture.new('RGB', (9, 9), pathlib.Path('colour').read_text()).save(file, 'png')\n"
    "display(Image(file.getvalue()))",
    "HTML('<img src=\"data:image/png;base64,' + base64.b64encode(file.getvalue()).decode() + '\">')",
    "ipywidgets.IntSlider(3)",
)


def pictures(notebook):
    """Return both pictures, as stored."""
    (first,), (second,) = (cell.outputs for cell in notebook.cells[:2])
    return first.data["image/png"].strip(), second.data["text/html"].split(",")[1].split('"')[0]


@pytest.fixture
def path(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    nbformat.write(notebook, tmp_path / "small.ipynb")
    (tmp_path / "colour").write_text("red")
    return tmp_path / "small.ipynb"


def test_what_did_not_change_keeps_its_bytes(path):
    store(path, {})
    first = path.read_bytes()
    store(path, {})
    assert path.read_bytes() == first

    # The same pixels in other bytes, as another version of the encoder writes them.
    file = io.BytesIO()
    Image.new("RGBA", (9, 9), "red").save(file, "png", compress_level=0)
    other = base64.b64encode(file.getvalue()).decode()
    notebook = nbformat.reads(first.decode(), as_version=4)
    for old in pictures(notebook):
        first = first.replace(old.encode(), other.encode())
    path.write_bytes(first)
    assert pictures(nbformat.read(path, as_version=4)) == (other, other)
    store(path, {})
    assert path.read_bytes() == first

    (path.parent / "colour").write_text("#fe0000")  # one step of one channel is another picture
    store(path, {})
    changed = pictures(nbformat.read(path, as_version=4))
    assert changed[0] == changed[1] != other
    assert sorted(found.name for found in path.parent.iterdir() if not found.name.startswith(".ipy")) == [
        "colour",
        "small.ipynb",
    ]


def test_a_notebook_that_fails_is_left_as_it_was(path):
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[0].source = "raise ValueError('no')"
    nbformat.write(notebook, path)
    before = path.read_bytes()
    with pytest.raises(Exception, match="raise ValueError"):
        store(path, {})
    assert path.read_bytes() == before


def test_a_full_disk_leaves_the_notebook_as_it_was(path, monkeypatch):
    before = path.read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            store(path, {})
    assert path.read_bytes() == before
    assert not list(path.parent.glob(".*.partial"))
    store(path, {})
    assert path.read_bytes() != before


def answer(number):
    return nbformat.v4.new_code_cell("answer = ...", metadata={"exercise": number})


def test_an_exercise_is_stated_above_its_answer_cell_wherever_that_stands():
    exercises = exercises_of("00")
    about = {"course": {"answers": "00.P1", "states": "00.2"}}
    old = nbformat.v4.new_markdown_cell("of another form", id="mine", metadata=about)
    cells = [old, nbformat.v4.new_markdown_cell("Text."), answer("00.1"), answer("00.2")]
    made = state_exercises(nbformat.v4.new_notebook(cells=cells), exercises)
    nbformat.validate(made)
    text, new, _, kept, _ = made.cells
    assert text.source == "Text."
    assert (new.id, states(new), new.source) == ("exercise-00-1", "00.1", exercises["00.1"].statement)
    assert (kept.id, kept.metadata, kept.source) == ("mine", about, exercises["00.2"].statement)
    assert state_exercises(made, exercises) == made


def test_statements_are_written_without_running_anything(path):
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [nbformat.v4.new_code_cell("raise ValueError('no')", execution_count=3), answer("00.1")]
    nbformat.write(notebook, path)
    store(path, exercises_of("00"), runs=False)
    first, stated, last = nbformat.read(path, as_version=4).cells
    assert [first, last] == notebook.cells
    assert stated.source == exercises_of("00")["00.1"].statement
