"""Every exercise of every lesson: its reference passes, and each of its wrong answers is told its own mistake."""

import ast
import inspect
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.teaching import sandbox
from course_lib.teaching.exercise import source_of
from tests.lessons import EXERCISES

every_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
every_function = pytest.mark.parametrize(
    "exercise", [e for e in EXERCISES if e.kind == "function"], ids=lambda e: e.id
)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_ids_are_unique_and_every_lesson_has_three():
    ids = [e.id for e in EXERCISES]
    assert len(set(ids)) == len(ids)
    for lesson in {number.split(".")[0] for number in ids}:
        own = [e for e in EXERCISES if e.id.startswith(lesson + ".")]
        assert len(own) >= 3
        assert len({e.kind for e in own}) >= 2


@every_exercise
def test_the_reference_solves_and_every_mistake_gets_its_own_sentence(exercise, monkeypatch):
    # Called in a thread, as where no process can be forked; test_learners.py calls every exercise in forks.
    monkeypatch.setattr(sandbox, "can_fork", lambda: False)
    # A grade draws 40 inputs, and more as long as two mistakes agree with the answer: mistakes that behave alike
    # fail here, since the second one is taken for the first.
    verdict = exercise.grade(exercise.reference, generator=rng())
    assert (verdict.status, verdict.message) == ("solved", "solved.")
    assert len({m.name for m in exercise.mistakes}) == len(exercise.mistakes)
    assert len({m.explanation for m in exercise.mistakes}) == len(exercise.mistakes)
    for mistake in exercise.mistakes:
        verdict = exercise.grade(exercise.wrong_answer(mistake), generator=rng())
        assert (verdict.status, verdict.mistake) == ("mistake", mistake.name)
        assert verdict.message == mistake.explanation


@every_exercise
def test_prompt_and_hints_name_what_is_asked_and_do_not_tell(exercise):
    assert exercise.prompt.strip()
    assert exercise.minutes > 0
    assert len(set(exercise.hints)) == 3
    solution = str(exercise.reference)
    if exercise.kind == "function":
        names = list(inspect.signature(exercise.reference).parameters)
        assert f"`{exercise.reference.__name__}({', '.join(names)})`" in exercise.prompt
        body = ast.parse(source_of(exercise.reference)).body[0].body
        steps = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        solution = "".join(ast.unparse(step) for step in steps).removeprefix("return ")
    squeezed = "".join(solution.split())
    for hint in exercise.hints:
        told = "".join(hint.replace("`", "").split())
        assert told != squeezed
        assert squeezed not in told or exercise.kind == "value"


@every_function
def test_inputs_come_by_name_and_depend_on_the_seed_alone(exercise):
    draw = lambda seed: str([exercise.draw(g) for g in [rng(seed)] for _ in range(5)])  # noqa: E731
    assert list(exercise.draw(rng())) == list(inspect.signature(exercise.reference).parameters)
    assert draw(3) == draw(3)
    assert draw(3) != draw(4)


# Answers that no bank holds: whatever a learner gives, the tests of this exercise can look at it.

NUMBERS = (
    0,
    -1,
    1e-200,
    1e200,
    -(10**400),
    math.inf,
    math.nan,
    True,
    None,
    "text",
    [1.0],
    1j,
    torch.zeros(2),
)


@every_function
def test_no_constant_breaks_the_judge(exercise):
    right = exercise.reference(*exercise.draw(rng()).values())
    # Where a tensor is expected, a number never gets as far as the tests of the exercise.
    for constant in (
        (0,) if isinstance(right, torch.Tensor) and right.ndim else (0, -1, 1e200, 1e-200, -(10**400))
    ):
        verdict = exercise.grade(lambda *inputs, c=constant: c, generator=rng())
        assert verdict.status in ("malformed", "wrong", "mistake")
        assert "\n" not in verdict.message


@every_function
def test_an_unknown_wrong_answer_gets_a_counterexample_with_every_input(exercise):
    verdict = exercise.grade(lambda *inputs: exercise.reference(*inputs) + 7, generator=rng())
    assert verdict.status == "wrong"
    for name in exercise.draw(rng()):
        assert f"{name} = " in verdict.message
    assert "the expected output is" in verdict.message
    assert "yours is" in verdict.message


@pytest.mark.parametrize("exercise", [e for e in EXERCISES if e.kind != "function"], ids=lambda e: e.id)
@given(data=st.data())
def test_no_value_breaks_the_judge(exercise, data):
    anything = st.one_of(st.floats(), st.integers(-(10**400), 10**400), st.sampled_from(NUMBERS))
    if isinstance(exercise.reference, dict):
        right = st.sampled_from(list(exercise.reference.values()))
        value = {key: data.draw(st.one_of(anything, right)) for key in exercise.reference}
    else:
        value = data.draw(anything)
    verdict = exercise.grade(value, generator=rng())
    assert verdict.message
    assert "\n" not in verdict.message


def test_two_steps_more_than_the_first_are_refused():
    """Only one property of 01.3 sees it: the error is below the accuracy, and was so a step before."""
    (exercise,) = (e for e in EXERCISES if e.id == "01.3")
    verdict = exercise.grade(lambda *inputs: exercise.reference(*inputs) + 2, generator=rng())
    assert verdict.status == "wrong"
    assert "One step earlier the error is below the accuracy already." in verdict.message
