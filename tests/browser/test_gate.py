"""What answers a prediction waits for the guess in the page, also after all cells ran."""

import json

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.learner import STUCK, close, errors, open_notebook, run_all, run_cells

pytestmark = pytest.mark.xdist_group("kit")

WAITS = {"course": {"answers": "00.P3"}}
CELLS = (
    ("code", "from course_lib.lessons import start_here as lesson\nprint('before')", {}),
    ("code", "lesson.wait_prediction()", {}),
    ("code", "from course_lib.teaching import show\nshow(lesson.plot_wait())", WAITS),
    ("code", "print('the answer')", WAITS | {"jupyter": {"outputs_hidden": True}}),
    ("markdown", "Because of the answer.", WAITS),
    ("code", "print('after')", {}),
)
SMALL_QUIZ = """
from course_lib.teaching import Contents, fact
own = Contents()

@own.sentence("00.Q1", "The number $2^1$ is odd.", answer=False)
def two():
    "Halves."
    return fact("two leaves {} behind", 2 % 2, equals=0, within=0)

own.quiz()
"""


@pytest.fixture
def page(desk, lab):
    """A fresh notebook, open and run, of a learner who has not guessed yet."""
    (lab.root / "progress.json").unlink(missing_ok=True)
    notebook = nbformat.v4.new_notebook()
    for kind, source, metadata in CELLS:
        new = nbformat.v4.new_code_cell if kind == "code" else nbformat.v4.new_markdown_cell
        notebook.cells.append(new(source, metadata=json.loads(json.dumps(metadata))))
    notebook.cells.append(nbformat.v4.new_code_cell(SMALL_QUIZ))
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, lab.root / "notebooks" / "gate.ipynb")
    open_notebook(desk, "gate.ipynb")
    run_all(desk)
    yield desk
    assert errors(desk) == []
    close(desk)


def test_cells_that_answer_wait_after_run_all_and_open_with_the_guess(page):
    answer, because, source = (
        page.get_by_text("the answer", exact=True),
        page.locator("p", has_text="Because of the answer."),
        page.locator(".jp-CodeCell .jp-InputArea", has_text="print('the answer')"),
    )
    page.get_by_text("after", exact=True).wait_for()
    note = page.get_by_text("What answers 00.P3 is shown here after your guess.")
    note.wait_for()
    assert note.count() == 1  # three cells in a row have one note
    assert not answer.is_visible()
    assert not because.is_visible()
    assert not source.is_visible()  # a claim's bounds answer as well
    panel = page.locator(".course-panel", has=page.get_by_role("button", name="Record my guess"))
    panel.locator("input[type=radio]").first.check()
    panel.get_by_role("button", name="Record my guess").click()
    answer.wait_for()
    because.wait_for()
    source.wait_for()
    assert note.count() == 0
    # Run once more: the guess is known, and nothing waits.
    run_all(page)
    answer.wait_for()
    assert note.count() == 0


def test_a_figure_that_stands_in_the_next_cell_is_left_out_of_the_panel(page, lab):
    figures = page.locator(".jp-Notebook img")
    panel = page.locator(".course-panel", has=page.get_by_role("button", name="Record my guess"))

    def guess():
        panel.locator("input[type=radio]").first.check()
        panel.get_by_role("button", name="Record my guess").click()

    guess()
    expect(figures.filter(visible=True)).to_have_count(1)
    expect(panel.locator("img")).not_to_be_visible()
    assert panel.locator("img").evaluate("node => node.naturalWidth") > 0
    close(page)
    (lab.root / "progress.json").unlink()
    open_notebook(
        page, "gate.ipynb"
    )  # nothing ran: the panel alone has the figure, until the next cell shows it
    run_cells(page, [0, 1])
    guess()
    expect(panel.locator("img")).to_be_visible()
    run_cells(page, [2])
    expect(figures.filter(visible=True)).to_have_count(1)
    expect(panel.locator("img")).not_to_be_visible()


def test_who_does_not_want_to_guess_can_ask_to_see(page):
    answer = page.get_by_text("the answer", exact=True)
    page.get_by_role("button", name="Show me what answers 00.P3").click()
    answer.wait_for()
    page.locator("p", has_text="Because of the answer.").wait_for()


def test_a_sentence_is_marked_by_keyboard_and_says_what_was_measured(page):
    page.locator(".jupyter-widgets mjx-container", has_text="2").wait_for()  # the sentence is typeset
    panel = page.locator(".course-panel", has=page.get_by_role("button", name="Check"))
    panel.get_by_label("False").press("Space")
    button = panel.get_by_role("button", name="Check")
    expect(button).to_be_enabled(timeout=1000 * STUCK)  # the kernel enables it
    button.press("Enter")
    words = panel.locator(".course-words")
    words.wait_for()
    assert words.inner_text() == "Right. Halves. Measured: two leaves 0 behind"
