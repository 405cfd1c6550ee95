"""A plan's minutes add up, nothing in it answers a prediction, and what it shows is what the explorer says."""

import html

import pytest

from course_lib.editions.teacher import plan
from course_lib.lessons import contents_of
from course_lib.lessons.catalog import LESSONS
from course_lib.teaching import Switch
from tests.editions.teacher.conftest import stored


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.number)
def test_minutes_add_up_and_every_question_has_a_section(lesson):
    notebook, register = stored(lesson), contents_of(lesson)
    timed = plan.assign_minutes(lesson, notebook, register)
    extra = notebook.metadata.course.optional_minutes
    within = [minutes for part, minutes in timed if not part.appendix and not (part.optional and extra)]
    assert sum(within) == lesson.minutes
    # Rounding to whole minutes apart, each section takes what it costs.
    assert [part.title for part, minutes in timed if abs(minutes - part.cost(register).spent) > 2] == []
    for part, minutes in timed:
        assert minutes >= sum(register.exercises[number].minutes for number in part.exercises)
    assert [n for part, _ in timed for n in part.exercises] == list(register.exercises)
    assert sorted(n for part, _ in timed for n in part.predictions) == sorted(register.predictions)


@pytest.mark.parametrize(
    ("weights", "total", "expected"),
    [([1, 1, 1], 10, [4, 3, 3]), ([3, 1], 4, [3, 1]), ([0, 5], 7, [0, 7]), ([], 5, []), ([0, 0], 0, [0, 0])],
)
def test_shares_are_whole_and_in_proportion(weights, total, expected):
    assert plan.split_in_proportion(weights, total) == expected


def test_a_prediction_is_asked_without_its_answer(predictions):
    for prediction in predictions.values():
        text = html.unescape(plan.write_question(prediction))
        assert prediction.question in text
        assert [choice for choice in prediction.choices if choice not in text] == []
        assert [why for why in prediction.choices.values() if why in text] == []
        assert "Right" not in text


def test_settings_show_what_the_explorer_says(register, notebook):
    (kind,) = register.explorers.values()
    shown = dict(plan.settings(kind, notebook))
    explorer = kind()
    settings = explorer.checked({"sigma_1": 1.0, "step_size": 0.3})
    said = shown["singular value σ₁ = 1, singular value σ₂ = 0.6, step size η = 0.3"]
    assert said == explorer.words(explorer.compute(**settings))
    assert "direction 1: -2.5, -1, size below 1e-6" in said
    assert "size over 100,000" in shown["step size η = 1.2"]
    assert len(shown) == 2 + sum(1 if isinstance(c, Switch) else 2 for c in explorer.controls.values())


def test_mistakes_that_hide_come_first(register):
    telling = plan.rank_mistakes(register)
    shares = [share for share, _, _ in telling]
    assert shares == sorted(shares, reverse=True)
    assert 0 < shares[0] < 1
    ids = [exercise.id for _, exercise, _ in telling]
    assert {number: ids.count(number) for number in register.exercises} == dict.fromkeys(
        register.exercises, 2
    )
    # Rounding up is wrong at whole bounds only; the other half of the bank is wrong nearly everywhere.
    assert telling[0][2].name == "rounded up"
    best = register.exercises["01.4"]
    by_name = {mistake.name: mistake for mistake in best.mistakes}
    assert (
        plan.share_right(best, by_name["kept the zero"])
        > plan.share_right(best, by_name["the limit itself"])
        == 0
    )


def test_a_page_holds_all_its_parts(lesson, notebook, register, predictions):
    page = plan.page(lesson, notebook, register, list(predictions.values()), 61.4)
    for title in ("Prepare", "Minutes", "Ask", "Show", "Likely misunderstandings"):
        assert f"\n## {title}\n" in page
    assert "[00 Start here: what has number 1733 found?](../plans/00_start_here.md)" in page
    assert "took 61 seconds" in page
    assert "| Sum or mean | 6 (on top) | 01.5 (5) |" in page
    assert "| Momentum | under 1 (on top) |" in page
    _, _, first = plan.rank_mistakes(register)[0]
    assert html.escape(first.explanation) in page
    assert notebook.metadata.course.goal in page


@pytest.mark.parametrize("text", ["a | b", "$x$ and w*", "`code`", "[a](b)", "<b>"])
def test_a_cell_of_a_table_is_plain_text(text):
    assert html.unescape(plan.escape_cell(text)) == text
    assert not set("|$*`[]<>") & set(plan.escape_cell(text))
