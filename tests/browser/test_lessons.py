"""What a learner does with every lesson, done in a real JupyterLab: run it, look at it, move its sliders."""

import pytest

from tests.browser.conftest import ROOT
from tests.browser.learner import (
    drag,
    empty_pictures,
    errors,
    leave,
    named_controls,
    new_picture,
    open_notebook,
    press_reset,
    run_all,
    run_cells,
    show_answers,
    state,
    step,
    wait_until_answered,
    wide_equations,
    wide_panels,
)
from tests.browser.needed import needed_cells
from tests.notebooks.order import rank

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"), key=lambda path: (rank(path), path.name))


@pytest.fixture(scope="session")
def kept():
    """The kernel that one lesson leaves to the next: starting it and its imports take longer than the rest."""
    return {}


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_lesson_runs_and_its_sliders_move(page, page_errors, kept, notebook, subtests):
    """One visit; a subtest for each question, so that one visit says everything that is wrong.

    Lesson 00 is run whole. Of the others the cells run that its widgets need; the rest is on the page as stored,
    what waits for a guess too, and nbval runs and compares it.
    """
    open_notebook(page, notebook.name, kernel=kept.pop("kernel", None))
    if notebook.name.startswith("00"):
        run_all(page)
    else:
        run_cells(page, needed_cells(notebook))
        show_answers(page)
    panels = page.locator(".course-panel")
    explorers = panels.filter(has=page.locator(".noUi-handle"))
    with subtests.test("everything is rendered"):
        assert page.get_by_text("model not found").count() == 0
        assert empty_pictures(page) == []
        assert page.locator("mjx-merror").all_inner_texts() == []
        assert wide_equations(page) == []
    with subtests.test("equations and panels fit a narrow window beside the file browser"):
        wide = page.viewport_size
        page.set_viewport_size({"width": 900, "height": wide["height"]})
        page.wait_for_function("() => document.querySelector('.jp-RenderedMarkdown').clientWidth < 500")
        too_wide = wide_equations(page) + wide_panels(page)
        page.set_viewport_size(wide)
        assert too_wide == []
    with subtests.test("every control has a name"):
        assert panels.count() >= 1
        for panel in panels.all():
            controls = named_controls(page, panel)
            assert controls
            assert [role for role, name in controls if not name] == []
    with subtests.test("sliders move the picture, Reset puts it back"):
        assert explorers.count() >= 1
        for panel in explorers.all():
            handles = panel.locator(".noUi-handle").all()
            for handle in handles:
                step(page, panel, handle)
            with new_picture(page, panel):
                press_reset(panel)
            wait_until_answered(page)
            at_rest = state(panel)
            drag(page, panel, handles[0])
            press_reset(panel)
            wait_until_answered(page)
            assert state(panel) == at_rest
    with subtests.test("nothing failed on the way"):
        assert errors(page) == []
        assert page_errors == []
    kept["kernel"] = leave(page)


def test_a_cell_that_fails_is_noticed(page):
    open_notebook(page, "00_start_here.ipynb")
    place = page.evaluate("""() => {
      const cells = window.jupyterapp.shell.currentWidget.content.widgets;
      const place = cells.findIndex(cell => cell.model.type === "code");
      cells[place].model.sharedModel.setSource("1 / 0");
      return place;
    }""")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run_cells(page, [place])
    (said,) = errors(page)  # of a kernel that has run nothing else
    assert said.startswith("This cell stopped at line 1, and the cells below it have not run: 1 / 0\n")
