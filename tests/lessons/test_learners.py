"""Answers that learners give, beyond the banks: each gets the verdict that is right for it."""

from collections import Counter

import pytest
import torch

from course_lib.teaching.exercise import FORBIDDEN, Edit, edited
from tests.lessons import EXERCISES
from tests.lessons.learners import LEARNERS

BY_ID = {exercise.id: exercise for exercise in EXERCISES}
ANSWERS = {slug: module.ANSWERS for slug, module in LEARNERS.items()}
LEAST, RIGHT, WRONG, NAMED = 8, 2, 4, 0.7
LONGEST = (
    800  # characters of a message; the inputs of a counterexample can be pasted into a cell, types included
)


def judged(exercise, answer):
    answer = edited(exercise.reference, answer) if isinstance(answer, Edit) else answer
    verdict = exercise.grade(answer, generator=torch.Generator().manual_seed(0))
    unmet = verdict.status == "wrong" and any(need.sentence in verdict.message for need in exercise.needs)
    return verdict.mistake or ("need" if unmet else verdict.status), verdict.message


@pytest.mark.parametrize("number", [number for given in ANSWERS.values() for number in given])
def test_every_answer_gets_the_verdict_that_is_right_for_it(number):
    answers = next(given[number] for given in ANSWERS.values() if number in given)
    right = sum(verdict in ("solved", *FORBIDDEN) for verdict, _, _ in answers)
    assert len(answers) >= LEAST
    assert right >= RIGHT
    assert len(answers) - right >= WRONG
    assert len({about for _, about, _ in answers}) == len(answers)
    got = {about: judged(BY_ID[number], answer) for _, about, answer in answers}
    assert {about: verdict for about, (verdict, _) in got.items()} == {about: v for v, about, _ in answers}
    for about, (_, message) in got.items():
        assert len(message) <= LONGEST, f"{about}: {len(message)} characters are too many to read"


@pytest.mark.parametrize("slug", ANSWERS)
def test_most_wrong_answers_of_a_lesson_get_their_own_sentence(slug):
    kinds = Counter(
        verdict if verdict in ("solved", "wrong", "malformed") else "named"
        for answers in ANSWERS[slug].values()
        for verdict, _, _ in answers
    )
    assert kinds["solved"], "right answers in other forms are tried as well"
    assert kinds["named"] >= NAMED * (kinds["named"] + kinds["wrong"] + kinds["malformed"]), kinds


def test_every_exercise_of_every_lesson_is_tried():
    assert sorted(number for given in ANSWERS.values() for number in given) == sorted(BY_ID)
    for given in ANSWERS.values():
        assert len({number.split(".")[0] for number in given}) == 1
