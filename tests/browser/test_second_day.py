"""A lesson lives through two days: run, saved, its kernel shut down, opened again. Its pictures are there each time."""

import json
import re

import nbformat
import pytest
from nbformat.sign import NotebookNotary
from playwright.sync_api import expect

from tests.browser.conftest import ROOT
from tests.browser.learner import close, empty_pictures, errors, open_notebook, run_cells, settled, step
from tests.browser.needed import needed_cells

LESSON = "01_gradient_descent_stability.ipynb"
NOT_RUN = "Run the cells above, and this one, to {} this."
_SAVE = """() => window.jupyterapp.commands.execute("docmanager:save")"""
# Closes the page and leaves its kernel running, as a browser does that is closed.
_LEAVE_RUNNING = """() => window.jupyterapp.shell.currentWidget.dispose()"""
_BROKEN_SIGNS = """() => [...document.querySelectorAll(".jupyter-widgets-disconnected")]
  .filter(node => node.checkVisibility() && getComputedStyle(node, "::before").content !== "none").length"""


def trust(lab, path):
    """Sign the notebook, as `make lab` does."""
    NotebookNotary(data_dir=str(lab.root / "data")).sign(nbformat.read(path, as_version=4))


@pytest.fixture
def path(lab, request):
    """The lesson as it was stored, trusted, under a name of its own: no other test has had a kernel for it."""
    path = lab.root / "notebooks" / f"{request.node.name}.ipynb"
    path.write_bytes((ROOT / "notebooks" / LESSON).read_bytes())
    trust(lab, path)
    yield path
    path.unlink()


@pytest.fixture
def page(desk, lab, path):
    """The page, with no progress."""
    yield desk
    close(desk)
    (lab.root / "progress.json").unlink(missing_ok=True)


def opened(page, path):
    """Open the lesson, and wait until each widget of it is drawn, or said to be missing."""
    open_notebook(page, path.name)
    page.wait_for_function("""() => [...document.querySelectorAll(".jp-OutputArea-output")]
      .every(node => !node.textContent.startsWith("Loading widget"))""")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.jp-Notebook img')].every(one => one.complete)"
    )


def explorers(page):
    return page.locator(".course-panel", has=page.locator(".noUi-handle"))


def assert_pictures_without_kernel(page, count):
    """Each explorer is its static picture with the words below which it stands, and nothing looks broken."""
    assert page.get_by_text("Error displaying widget").count() == 0
    assert explorers(page).count() == 0
    assert page.get_by_text(NOT_RUN.format("move")).count() == count
    strips = page.locator("details[open] > summary", has_text="three settings").locator("xpath=../img")
    assert strips.count() == count
    assert all(one.is_visible() and one.evaluate("node => node.naturalWidth") > 0 for one in strips.all())
    assert empty_pictures(page) == []
    assert page.evaluate(_BROKEN_SIGNS) == 0


def test_a_lesson_lives_through_two_days(page, path, page_errors):
    count = path.read_text().count("<details><summary>For reading without a kernel: three settings")
    assert count > 0

    opened(page, path)  # as it comes, not yet run
    assert_pictures_without_kernel(page, count)
    run_cells(page, needed_cells(path))
    expect(explorers(page)).to_have_count(count)
    settled(
        page, _LEAVE_RUNNING
    )  # not saved: the kernel goes on, but the file names widgets that it does not have
    opened(page, path)
    assert_pictures_without_kernel(page, count)
    run_cells(page, needed_cells(ROOT / "notebooks" / LESSON))
    expect(explorers(page)).to_have_count(count)
    assert page.get_by_text(re.compile("Run the cells above, and this one, to")).count() == 0
    question = page.locator(".course-panel", has=page.locator("input[type=radio]")).first
    question.locator("input[type=radio]").first.check()
    question.get_by_role("button", name="Record my guess").click()
    # The figure that answers stands once, in the next cell.
    answer = page.locator(".jp-Cell", has=question).locator("xpath=following-sibling::*[1]").locator("img")
    expect(answer).to_be_visible()
    expect(question.locator("img")).not_to_be_visible()
    said = question.locator(".course-words").inner_text()
    settled(page, _SAVE)

    settled(page, _LEAVE_RUNNING)  # the kernel goes on: what it holds is shown alive
    opened(page, path)
    expect(explorers(page)).to_have_count(count)
    step(page, explorers(page).first, explorers(page).first.locator(".noUi-handle").first)
    settled(page, _SAVE)
    close(page)

    opened(page, path)  # the next day
    assert_pictures_without_kernel(page, count)
    assert question.locator("input[type=radio]").first.is_checked()
    assert question.locator(".course-words").inner_text() == said
    settled(page, _SAVE)
    close(page)
    size = path.stat().st_size

    opened(page, path)  # and one more, on which nothing was run
    assert_pictures_without_kernel(page, count)
    settled(page, _SAVE)
    assert path.stat().st_size <= size
    run_cells(page, needed_cells(ROOT / "notebooks" / LESSON))
    assert question.locator(".course-words").inner_text() == said
    step(page, explorers(page).first, explorers(page).first.locator(".noUi-handle").first)
    assert errors(page) == []
    assert page_errors == []


def test_a_lesson_that_was_saved_without_its_widgets_shows_its_pictures(page, lab, path):
    notebook = json.loads(path.read_text())
    del notebook["metadata"]["widgets"]
    path.write_text(json.dumps(notebook))
    trust(lab, path)
    count = path.read_text().count("three settings, as a picture")
    opened(page, path)
    assert page.get_by_text(NOT_RUN.format("answer")).count() > 0
    assert_pictures_without_kernel(page, count)


def test_a_page_that_was_only_opened_is_not_marked_as_changed(page, lab, path):
    notebook = json.loads(path.read_text())
    notebook["metadata"]["language_info"]["version"] = (
        "3.0.0"  # stored by another Python than that of the kernel
    )
    path.write_text(json.dumps(notebook))
    trust(lab, path)
    dot = page.locator(".lm-TabBar-tab.jp-mod-dirty")
    opened(page, path)
    assert page.locator(".course-panel").count() > 0  # widgets were restored
    expect(dot).to_have_count(0)
    run_cells(page, needed_cells(path))
    expect(dot).to_have_count(1)
    settled(page, _SAVE)
    expect(dot).to_have_count(0)
    question = page.locator(".course-panel", has=page.locator("input[type=radio]")).first
    question.locator("input[type=radio]").first.check()
    question.get_by_role("button", name="Record my guess").click()
    expect(dot).to_have_count(1)
