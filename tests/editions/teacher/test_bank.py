"""The bank's page of a lesson holds every exercise, every mistake as code and in words, every hint and choice."""

import html

import pytest

from course_lib.editions.teacher import bank
from course_lib.lessons import contents_of
from course_lib.lessons.catalog import LESSONS
from course_lib.teaching.exercise import Edit, edited_source, source_of


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.number)
def test_every_exercise_stands_with_all_that_is_known_of_it(lesson):
    exercises = list(contents_of(lesson).exercises.values())
    page = bank.page(lesson, exercises, [])
    plain = html.unescape(page)
    for exercise in exercises:
        assert f"## {exercise.id} {exercise.title}" in page
        assert exercise.prompt in page
        assert bank.solution(exercise) in page
        said = [*exercise.hints, *(one.sentence for one in exercise.properties)]
        said += [text for one in exercise.mistakes for text in (one.name, one.explanation)]
        assert [text for text in said if text not in plain] == []
    assert page.count('class="course-mistake"') == sum(len(one.mistakes) for one in exercises)


def test_a_changed_line_is_shown_with_the_right_one(register):
    exercise = register.exercises["01.5"]
    shown = bank.diff_from_reference(exercise, exercise.mistakes[0].solution)
    right, wrong = shown.splitlines()
    assert right.startswith("-") and wrong.startswith("+")  # noqa: PT018
    assert right[1:] in source_of(exercise.reference)
    assert wrong[1:] in edited_source(exercise.reference, exercise.mistakes[0].solution)
    assert wrong[1:] not in source_of(exercise.reference)


def test_a_mistake_shows_how_it_is_written_and_recognised(register):
    module = "course_lib.lessons.gradient_descent_stability.exercises"
    looks = {}
    for exercise in register.exercises.values():
        for mistake in exercise.mistakes:
            looks[exercise.id, mistake.name] = bank.show_mistake(exercise, mistake, module)
            if isinstance(mistake.solution, Edit):
                assert "```diff" in looks[exercise.id, mistake.name]
    assert "-0.5" in looks["01.2", "negative step"]
    assert "lambda answer: answer < 0" in looks["01.2", "negative step"]
    assert "s[0] ** 2 + s[-1] ** 2" in looks["01.4", "first and last entry"]
    assert "holds" not in looks["01.4", "first and last entry"]


def test_a_prediction_shows_each_answer_and_marks_the_right_one(predictions):
    for prediction in predictions.values():
        page = html.unescape(bank.prediction(prediction))
        assert prediction.question in page
        for choice, why in prediction.choices.items():
            mark = "Right" if choice == prediction.answer else "Not what happens"
            assert f"<dt>{choice}</dt><dd><strong>{mark}.</strong> {why}</dd>" in page
