"""The built pages and slides: links, three widths, no other host, and slides that hold on one screen."""

import json
from urllib.parse import unquote, urlsplit

import pytest

from tests.editions.site.pages.conftest import ROOT
from tests.editions.site.pages.test_links import Page, broken
from tests.editions.site.pages.test_site import OUTSIDE, WIDTHS, violations

pytestmark = pytest.mark.browser

FOLDER = ROOT / "build" / "teacher"
# Three lessons stand for all: make teacher-test builds them.
NAMES = ("00_start_here", "01_gradient_descent_stability", "15_state_space_models")
PAGES = ["index.html", *(f"{kind}/{name}.html" for name in NAMES for kind in ("plans", "banks", "lessons"))]
# Of every slide: its place, by how much it is too high and too wide, and the share of the text's full size.
SLIDES = """() => [...document.querySelectorAll(".slides > section")].flatMap((column, i) =>
  [...column.children].map((slide, j) => {
    const before = [column.style.display, slide.style.display, column.hidden, slide.hidden];
    [column.style.display, slide.style.display, column.hidden, slide.hidden] = ["block", "block", false, false];
    const found = [`${i}/${j}`, slide.scrollHeight - slide.clientHeight, slide.scrollWidth - slide.clientWidth,
      parseFloat(getComputedStyle(slide).fontSize) / 26, slide.clientHeight];
    [column.style.display, slide.style.display, column.hidden, slide.hidden] = before;
    return found;
  }))"""


def first_heading(name):
    cells = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    lines = "".join(
        line for cell in cells if cell["cell_type"] == "markdown" for line in [*cell["source"], "\n"]
    )
    return next(line.removeprefix("## ") for line in lines.splitlines() if line.startswith("## "))


def elsewhere(page, address):
    return [url for url in page.requested if not url.startswith((f"{address}/", "data:", "blob:"))]


def test_every_link_leads_somewhere(site):
    pages = {
        path.relative_to(site).as_posix(): Page(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
        if "_static" not in path.parts
    }
    assert {f"slides/{name}.html" for name in NAMES} <= set(pages)
    assert broken(pages, site) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_sidebar_leads_to_the_slides(name, visit):
    page = visit(f"plans/{name}.html")
    link = page.locator(f'.sidebar-tree a[href="../slides/{name}.html"]')
    assert "Slides:" in link.inner_text()
    link.evaluate("one => one.click()")
    page.wait_for_selector("html[data-ready='yes'] .reveal .slides section.present")


@pytest.mark.parametrize("place", PAGES)
def test_a_page_fits_at_three_widths_and_is_accessible(place, visit, address):
    page = visit(place)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert (width, page.evaluate(OUTSIDE)) == (width, [])
    assert elsewhere(page, address) == []
    assert page.locator("mjx-merror").count() == 0
    assert page.faults == []
    assert violations(page, contrast=False) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_slide_holds_on_one_screen(name, visit, address, site):
    page = visit(f"slides/{name}.html")
    page.set_viewport_size({"width": 1280, "height": 720})
    found = page.evaluate(SLIDES)
    assert len(found) > 10
    assert [one for one in found if one[4] != 720] == []
    assert [one for one in found if one[1] > 0 or one[2] > 0] == []
    assert [one for one in found if one[3] < 0.7] == []
    assert elsewhere(page, address) == []
    assert all(
        (site / unquote(urlsplit(url).path).lstrip("/")).is_file()
        for url in page.requested
        if "data:" not in url
    )
    assert page.locator("mjx-merror").count() == 0
    assert page.locator("mjx-container").count() > 0 or name == NAMES[0]
    assert page.faults == []


def test_a_slide_that_is_too_long_would_be_found(visit):
    page = visit(f"slides/{NAMES[1]}.html")
    page.evaluate(
        "document.querySelector('.slides section section').insertAdjacentHTML('beforeend', '<p>more</p>'.repeat(40))"
    )
    assert [one[0] for one in page.evaluate(SLIDES) if one[1] > 0] == ["0/0"]


def test_code_is_one_step_down_and_the_next_statement_one_to_the_right(visit):
    page = visit(f"slides/{NAMES[1]}.html")
    page.keyboard.press("ArrowDown")
    current = page.locator("section.present section.present, section.present.stack > section.present")
    assert "import torch" in current.first.inner_text()
    page.keyboard.press("ArrowRight")
    assert current.first.inner_text().startswith(first_heading(NAMES[1]))
