"""Every link, picture, script and anchor of the built site leads somewhere, and every equation can be linked to."""

import re
from html.parser import HTMLParser
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

import nbformat
import pytest

from course_lib.editions.site.pages import CLAIM, MENTION, NO_TEXT, TAG
from course_lib.lessons.catalog import LESSONS
from tests.editions.site.pages.conftest import ROOT

NO_PAGE = re.compile(r"^(?:[a-z]+:|//|data:)")


class Page(HTMLParser):
    """The links, sources and ids of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.ids = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag == "link" and given.get("href"):
            self.loaded.append(given["href"])
        elif given.get("src"):
            self.loaded.append(given["src"])


@pytest.fixture(scope="module")
def pages(site):
    return {
        path.relative_to(site).as_posix(): Page(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
        if "_static" not in path.parts
    }


def resolved(page, link):
    """The file in the site and the anchor that a link on a page means."""
    parts = urlsplit(link)
    path = PurePosixPath(page).parent / unquote(parts.path) if parts.path else PurePosixPath(page)
    names = []
    for name in path.parts:
        names = names[:-1] if name == ".." else [*names, name]
    return "/".join(names), unquote(parts.fragment)


def broken(pages, site):
    """What leads nowhere, as (page, link)."""
    faults = []
    for name, page in pages.items():
        for link in [*page.links, *page.loaded]:
            if NO_PAGE.match(link):
                continue
            file, anchor = resolved(name, link)
            if not (site / file).is_file() or (anchor and file in pages and anchor not in pages[file].ids):
                faults.append((name, link))
    return faults


def test_every_link_resolves(pages, site):
    assert {f"lessons/{lesson.notebook.removesuffix('.ipynb')}.html" for lesson in LESSONS} <= set(pages)
    assert sum(len(page.links) for page in pages.values()) > 5000
    assert broken(pages, site) == []


def test_a_broken_link_is_found(pages, site):
    page = '<a href="01_x.html">a</a><a href="#no">b</a><a href="../index.html#no">c</a><img src="x.png"><a href="http://x">d</a>'
    faults = broken({**pages, "lessons/zz.html": Page(page)}, site)
    assert [link for _, link in faults] == ["01_x.html", "#no", "../index.html#no", "x.png"]


def test_nothing_is_loaded_from_elsewhere(pages):
    loaded = [link for page in pages.values() for link in page.loaded]
    assert [link for link in loaded if NO_PAGE.match(link) and not link.startswith("data:")] == []


def test_no_id_stands_twice_on_a_page(pages):
    assert {name: {i for i in page.ids if page.ids.count(i) > 1} for name, page in pages.items()} == {
        name: set() for name in pages
    }


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.number)
def test_every_equation_is_an_anchor_and_every_mention_a_link(lesson, pages):
    notebook = nbformat.read(ROOT / "notebooks" / lesson.notebook, as_version=4)
    page = pages[f"lessons/{lesson.notebook.removesuffix('.ipynb')}.html"]
    text = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    stated = {number for source in text for number in TAG.findall(source)}
    measured = {n for cell in notebook.cells if cell.cell_type == "code" for n in CLAIM.findall(cell.source)}
    ids = {name.removeprefix("eq-") for name in page.ids if name.startswith("eq-")}
    assert stated <= ids
    assert {number for number in measured if number.startswith(lesson.number)} <= ids
    mentions = [n for source in text for n in MENTION.findall(NO_TEXT.sub("", source))]
    links = [link.partition("#eq-")[2] for link in page.links if "#eq-" in link]
    assert [number for number in mentions if number not in links] == []
