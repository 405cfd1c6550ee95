"""The pages around the lessons, from the catalog, the notebooks and README."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from course_lib.editions.notebooks import answers, read
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
        assert f'<a href="lessons.html#{name}">{name}</a>' in card
        hours = sum(lesson.minutes for lesson in taken) / 60
        assert f"{len(taken)} lessons, about {hours:.0f} hours" in card


def test_the_page_of_lessons_has_every_lesson_with_its_question_and_every_path_in_order():
    notebooks = {lesson.notebook: read(ROOT / "notebooks" / lesson.notebook) for lesson in LESSONS}
    sections = front.lessons_page(notebooks).split("\n## ")
    paths = {section.partition("\n")[0]: section for section in sections}
    for name, goals in PATHS.items():
        found = re.findall(r">(\d\d)</a>", paths[name])
        assert found == [lesson.number for lesson in lessons_for(*goals)]
    rows = [line for section in sections for line in section.splitlines() if line.startswith("| [")]
    assert len(rows) == len(LESSONS)
    for lesson in LESSONS:
        (row,) = [row for row in rows if row.startswith(f"| [{lesson.number} ")]
        assert f"](lessons/{lesson.notebook}) |" in row
        assert row.split(" | ")[2] == str(lesson.minutes)


def test_the_front_page_asks_a_question_of_the_first_lesson_and_keeps_its_answer_apart(tmp_path):
    first = front.FIRST
    notebook = read(ROOT / "notebooks" / first.notebook)
    choices = [["About 3 million", "Less."], ["About 30 million", "So it is."]]
    facts = {
        "folder": "01-abc",
        "hints": {},
        "explorers": {},
        "predictions": {"01.P1": {"choices": choices, "answer": "About 30 million"}},
    }
    made = front.first_question(notebook, facts, {}, pictures=tmp_path / "pictures")
    asked, form, answered = re.fullmatch(r"(.*?)(<form.*?</form>)(.*)", made, re.DOTALL).groups()
    assert "**Prediction 01.P1.**" in asked
    assert asked.count("```{image} pictures/") == 1
    assert "About 30 million" in form
    # All that the lesson says as an answer waits for the guess, and nothing else of the lesson is there.
    told = [
        cell.source for cell in notebook.cells if answers(cell) == "01.P1" and cell.cell_type == "markdown"
    ]
    assert told
    assert all(source in answered for source in told)
    assert answered.count("```{image} pictures/") == 1
    assert "```{image}" not in re.sub(r'<div class="course-answer">.*?</div>', "", answered, flags=re.DOTALL)
    assert len(list((tmp_path / "pictures").glob("*.png"))) == 2


@pytest.mark.parametrize("repository", ["", "someone/a-course"])
def test_the_form_for_mistakes_is_there_and_is_led_to_where_it_is_known(repository):
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "mistake.yml").read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= set(form)
    fields = [field["id"] for field in form["body"]]
    made = front.correct_page(repository)
    assert ("github.com" in made) == bool(repository)
    for path in ("notebooks", "docs/sources.md", "docs/setup.md", "README.md", "CONTRIBUTING.md"):
        assert f"`{path}" in made
        assert (ROOT / path).exists()
    if repository:
        parts = urlsplit(front.issue(repository, "lessons/a & b"))
        assert parts.path == f"/{repository}/issues/new"
        asked = parse_qs(parts.query)
        assert asked == {"template": ["mistake.yml"], "page": ["lessons/a & b"]}
        assert set(asked) - {"template"} <= set(fields)


def test_how_to_open_a_lesson_is_said_for_each_system_with_what_was_tried():
    setup = (ROOT / "docs" / "setup.md").read_text(encoding="utf-8")
    made = front.open_page(setup)
    systems = ("Linux", "macOS", "Windows", "conda", "Binder", "Colab")
    table = {
        row.split(" | ")[0].removeprefix("| "): row for row in setup.splitlines() if row.startswith("| ")
    }
    for system in systems:
        assert re.search(r"\b(not )?tried\b", table[system])
        section = re.search(rf"^## {system}\n(.*?)(?=^## |\Z)", made, re.MULTILINE | re.DOTALL)[1]
        assert section.strip()
    assert "](../" not in made


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
    assert "mybinder" not in front.open_page("# Set up\n")
    assert front.open_page("# Set up\n", "someone/a-course").count("mybinder.org") == len(LESSONS)
    for lesson in LESSONS:
        assert f'id="lesson-{lesson.number}"' in front.open_page("# Set up\n")
    assert front.check_repository("") == ""
    with pytest.raises(ValueError, match="repository must be 'owner/name' on GitHub, got 'https"):
        front.check_repository("https://github.com/a/b")


def test_what_the_explorers_move_is_listed_with_its_lessons():
    def control(symbol, label):
        return {"symbol": symbol, "label": label}

    facts = {lesson.number: {"explorers": {}} for lesson in LESSONS}
    facts["01"]["explorers"]["A"] = {"controls": [control("η", "step size η"), control("", "name")]}
    facts["02"]["explorers"]["B"] = {
        "controls": [control("η", "step size η"), control("|x|", "length |x| (m)")]
    }
    rows = [line for line in front.list_controls(facts).splitlines() if line.startswith("| ")][1:]
    one, two = (f"[{lesson.number}](lessons/{lesson.notebook})" for lesson in LESSONS[1:3])
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
