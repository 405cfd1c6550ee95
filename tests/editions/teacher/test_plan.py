"""A plan's minutes add up, nothing in it answers a prediction, and what it shows is what the explorer says."""

import html
import re

import pytest
from nbformat import v4

from course_lib.editions.teacher import plan
from course_lib.lessons.catalog import LESSONS
from tests.editions.teacher.conftest import register_of, stored


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.number)
def test_minutes_add_up_and_every_question_has_a_section(lesson):
    notebook, register = stored(lesson), register_of(lesson)
    timed = plan.timed(lesson, notebook, register.exercises)
    extra = plan.more(notebook)
    said = dict(plan.ABOUT.findall(notebook.cells[0].source)).get("Time", "")
    numbers = re.findall(r"(?<![\w.])\d+(?!\.?\d)", said)  # "25.5" is an exercise
    on_top = "optional" in said and not re.search(r"\d of the", said)
    assert extra == (int(numbers[1]) if on_top else 0)
    assert sum(minutes for part, minutes in timed if not (part.optional and extra)) == lesson.minutes
    for part, minutes in timed:
        assert minutes >= sum(register.exercises[number].minutes for number in part.exercises)
    assert [n for part, _ in timed for n in part.exercises] == list(register.exercises)
    assert sorted(n for part, _ in timed for n in part.predictions) == sorted(register.predictions)


@pytest.mark.parametrize(
    ("weights", "total", "expected"),
    [([1, 1, 1], 10, [4, 3, 3]), ([3, 1], 4, [3, 1]), ([0, 5], 7, [0, 7]), ([], 5, []), ([0, 0], 0, [0, 0])],
)
def test_shares_are_whole_and_in_proportion(weights, total, expected):
    assert plan.shares(weights, total) == expected


@pytest.mark.parametrize(
    ("said", "minutes"),
    [
        ("About 90 minutes. The section on momentum is optional: 15 minutes more.", 15),
        ("About 100 minutes. Two sections are optional, about 20 of the 100 minutes.", 0),
        ("About 90 minutes. Sections marked *optional* are a second sitting of about 40 minutes.", 40),
        ("About 90 minutes. The section marked *optional* takes another 20.", 20),
    ],
)
def test_optional_minutes_are_read_from_the_lesson(said, minutes):
    cell = v4.new_markdown_cell(f"# Title\n\n**Goal.** Know.\n\n**Time.** {said}")
    assert plan.more(v4.new_notebook(cells=[cell])) == minutes


def test_a_prediction_is_asked_without_its_answer(predictions):
    for prediction in predictions.values():
        text = html.unescape(plan.asked(prediction))
        assert prediction.question in text
        assert [choice for choice in prediction.choices if choice not in text] == []
        assert [why for why in prediction.choices.values() if why in text] == []
        assert "Right" not in text


def test_settings_show_what_the_explorer_says(register, notebook):
    (kind,) = register.explorers.values()
    shown = dict(plan.settings(kind, notebook))
    explorer = kind()
    settings = explorer.checked({"sigma_1": 2.0, "sigma_2": 1.0, "step_size": 0.2})
    assert explorer.words(explorer.compute(**settings)) in shown.values()
    assert (
        "both directions are equally fast"
        in shown["singular value σ₁ = 2, singular value σ₂ = 1, step size η = 0.2"]
    )
    assert shown["step size η = 0.6"].startswith("Diverges")
    assert len(shown) == 2 + 2 * len(explorer.controls)


def test_mistakes_that_hide_come_first(register):
    telling = plan.telling(register)
    shares = [share for share, _, _ in telling]
    assert shares == sorted(shares, reverse=True)
    assert 0 < shares[0] < 1
    ids = [exercise.id for _, exercise, _ in telling]
    assert {number: ids.count(number) for number in register.exercises} == dict.fromkeys(
        register.exercises, 2
    )
    # Rounding up is wrong at whole bounds only; the other half of the bank is wrong nearly everywhere.
    assert telling[0][2].name == "rounded up"
    best = register.exercises["01.5"]
    by_name = {mistake.name: mistake for mistake in best.mistakes}
    assert plan.hides(best, by_name["kept the zero"]) > plan.hides(best, by_name["the limit itself"]) == 0


def test_a_page_holds_all_its_parts(lesson, notebook, register, predictions):
    page = plan.page(lesson, notebook, register, list(predictions.values()), 61.4)
    for title in ("Prepare", "Minutes", "Ask", "Show", "Likely misunderstandings"):
        assert f"\n## {title}\n" in page
    assert "[00 Start here](../plans/00_start_here.md)" in page
    assert "took 61 seconds" in page
    assert "| Optional track: momentum | 15 (on top) |" in page
    assert "The exponent is lost." in page
    assert notebook.metadata.course.goal in page


@pytest.mark.parametrize("text", ["a | b", "$x$ and w*", "`code`", "[a](b)", "<b>"])
def test_a_cell_of_a_table_is_plain_text(text):
    assert html.unescape(plan.cell(text)) == text
    assert not set("|$*`[]<>") & set(plan.cell(text))
