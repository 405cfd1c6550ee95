"""No page answers a prediction before it asks: neither text nor code, nor what a cell printed or drew."""

import re
from pathlib import Path

import nbformat
import pytest

from course_lib.lessons.catalog import LESSONS
from tests.lessons.learners import GIVEN_AWAY, LEARNERS

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
GIVES_AWAY = [
    (slug, number, words) for slug, module in LEARNERS.items() for number, words in module.GIVES_AWAY.items()
]
THIRD_EDITION = {
    lesson.slug
    for lesson in LESSONS
    if nbformat.read(NOTEBOOKS / lesson.notebook, as_version=4).metadata.course.get("edition") == 3
}


def read(cell):
    """Return what a learner reads of a cell: its source, and the text of its outputs (a picture's text alternative)."""
    parts = [cell.source]
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        parts += [output.get("text", ""), data.get("text/plain", ""), data.get("text/markdown", "")]
        parts += re.findall(r'alt="([^"]*)"', data.get("text/html", ""))
    return "\n".join(parts)


def pages(slug):
    (lesson,) = (lesson for lesson in LESSONS if lesson.slug == slug)
    return nbformat.read(NOTEBOOKS / lesson.notebook, as_version=4).cells


def asked_in(cells, number):
    """Return the position of the cell whose output asks the prediction."""
    places = [
        i
        for i, cell in enumerate(cells)
        if any(
            f"Prediction {number}." in output.get("data", {}).get("text/markdown", "")
            for output in cell.get("outputs", [])
        )
    ]
    assert len(places) == 1, f"prediction {number} is asked in cells {places}"
    return places[0]


@pytest.mark.parametrize(
    ("slug", "number", "words"), GIVES_AWAY, ids=lambda v: v if isinstance(v, str) else ""
)
def test_the_answer_comes_after_the_question(slug, number, words):
    cells = pages(slug)
    place = asked_in(cells, number)
    before = "\n".join(read(cell) for cell in cells[:place])
    after = "\n".join(read(cell) for cell in cells[place + 1 :])
    assert words
    found = [match[0] for word in words if (match := re.search(word, before))]
    if number in GIVEN_AWAY:
        assert found, f"prediction {number} is no longer given away: its entry in GIVEN_AWAY has to go"
    else:
        assert not found, f"{found} stands in front of prediction {number}"
    for word in words:
        assert re.search(word, before + after), (
            f"{word!r} is nowhere on the page: does it give {number} away?"
        )


@pytest.mark.parametrize("slug", LEARNERS)
def test_predict_and_play_come_before_formulas(slug):
    cells = pages(slug)
    first = min(asked_in(cells, number) for number in LEARNERS[slug].GIVES_AWAY)
    code = [(i, cell.source) for i, cell in enumerate(cells) if cell.cell_type == "code"]
    play = min(i for i, source in code if re.search(r"lesson\.\w*Explorer\(", source))
    claims = min(i for i, source in code if "claim(" in source)
    answers = min(i for i, cell in enumerate(cells) if "exercise" in cell.metadata)
    assert first < play < answers
    if slug not in THIRD_EDITION:  # whose first run may print what it measured
        assert play < claims
