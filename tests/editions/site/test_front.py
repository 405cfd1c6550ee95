"""The pages around the lessons, from the catalog, the notebooks and README."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from course_lib.editions.site import front
from course_lib.lessons.catalog import LESSONS, PATHS, lessons_for
from tests.editions.site.pages.conftest import ROOT


def test_measurements_are_read_from_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = front.read_measurements(readme)
    assert table.startswith("| what | figure |")
    assert table in readme
    assert (
        front.read_measurements("# A\n\n| x |\n|---|\n\n## Measured\n\nb\n\n| y |\n|---|\n| 1 |\n\nc | d")
        == "| y |\n|---|\n| 1 |"
    )
    with pytest.raises(ValueError, match="README must have a table"):
        front.read_measurements("# A\n\n| x |\n")


def test_paths_have_their_lessons_and_hours():
    cards = front.paths().split("<section")[1:]
    for card, (name, goals) in zip(cards, PATHS.items(), strict=True):
        taken = lessons_for(*goals)
        assert f"<h3>{name}</h3>" in card
        assert re.findall(r">(\d\d)</a>", card) == [lesson.number for lesson in taken]
        assert f"about {sum(lesson.minutes for lesson in taken) / 60:.0f} hours" in card


def test_a_binder_address_names_repository_and_notebook():
    for lesson in LESSONS:
        parts = urlsplit(front.binder("someone/a-course", lesson))
        assert (parts.scheme, parts.netloc, parts.path) == (
            "https",
            "mybinder.org",
            "/v2/gh/someone/a-course/HEAD",
        )
        (place,) = parse_qs(parts.query)["labpath"]
        assert (ROOT / place).is_file()
    assert "mybinder" not in front.open_page()
    assert front.open_page("someone/a-course").count("mybinder.org") == len(LESSONS)
    for lesson in LESSONS:
        assert f'id="lesson-{lesson.number}"' in front.open_page()
    with pytest.raises(ValueError, match="repository must be 'owner/name' on GitHub, got 'https"):
        front.open_page("https://github.com/a/b")


def test_what_the_explorers_move_is_listed_with_its_lessons():
    def control(symbol, label):
        return {"symbol": symbol, "label": label}

    facts = {lesson.number: {"explorers": {}} for lesson in LESSONS}
    facts["01"]["explorers"]["A"] = {"controls": [control("η", "step size η"), control("", "name")]}
    facts["02"]["explorers"]["B"] = {
        "controls": [control("η", "step size η"), control("|x|", "length |x| (m)")]
    }
    rows = [line for line in front.list_controls(facts).splitlines() if line.startswith("| ")][1:]
    one, two = f"[01](lessons/{LESSONS[1].notebook})", f"[02](lessons/{LESSONS[2].notebook})"
    assert f"| η | step size | {one}, {two} |" in rows
    assert f"| \\|x\\| | length (m) | {two} |" in rows
    assert len(rows) == 2


def test_a_symbol_of_the_text_leads_to_where_each_lesson_introduces_it():
    facts = {lesson.number: {"symbols": {}} for lesson in LESSONS}
    facts["01"]["symbols"] = {r"\eta": "step size", "w^*": "solution"}
    facts["02"]["symbols"] = {"B": "price", r"\eta": "step size"}
    facts["03"]["symbols"] = {r"\eta": "width"}
    first, second, third = (lesson.name for lesson in LESSONS[1:4])
    assert front.list_symbols(facts, greek=True).splitlines()[2:] == [
        f'| $\\eta$ | step size | <a href="lessons/{first}.html#symbol-01-1">01</a>, '
        f'<a href="lessons/{second}.html#symbol-02-2">02</a> |',
        f'| $\\eta$ | width | <a href="lessons/{third}.html#symbol-03-1">03</a> |',
    ]
    assert [row.split(" | ")[0] for row in front.list_symbols(facts, greek=False).splitlines()[2:]] == [
        "| $B$",
        "| $w^*$",
    ]
