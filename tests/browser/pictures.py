"""Redraw the pictures of the README: `make pictures`. Chromium shows them, so they are what a reader will see.

They are fixtures' users like the browser tests, but no tests: pytest collects this file only where it is named.
"""

import re

from course_lib import pipeline
from course_lib.interpret.browser.server import serve
from tests.browser.conftest import ROOT
from tests.browser.learner import open_notebook, run_all

FIGURES = ROOT / "figures"
# Of the built-in model's features the page shows one whose name a reader understands without a lesson.
CONCEPT = "verb:dance"


def test_lesson_01(page):
    page.set_viewport_size({"width": 1280, "height": 900})
    open_notebook(page, "01_gradient_descent_stability.ipynb")
    run_all(page)
    page.evaluate("() => window.jupyterapp.commands.execute('application:toggle-left-area')")
    panel = page.locator(".course-panel", has=page.locator(".noUi-handle")).first
    panel.scroll_into_view_if_needed()
    page.mouse.wheel(0, 60)
    page.wait_for_timeout(1000)
    page.screenshot(path=FIGURES / "lesson_01.png")


def test_feature_browser(browser, tmp_path):
    run = pipeline.run(out=tmp_path / "run", progress=False)
    server = serve(run, progress=False)
    try:
        shown = browser.new_page(viewport={"width": 1280, "height": 900})
        shown.goto(server.address)
        search = shown.get_by_role("searchbox", name="Search word, concept or number")
        search.fill(CONCEPT)
        shown.get_by_role("link", name=re.compile(r"^Feature \d")).click()
        shown.get_by_role("heading", name=re.compile(r"^Feature \d")).wait_for()
        shown.wait_for_timeout(1000)
        shown.screenshot(path=FIGURES / "feature_browser.png")
    finally:
        server.close()
