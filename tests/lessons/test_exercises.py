"""Every exercise of every lesson: its reference passes, and each of its wrong answers is told its own mistake."""

import ast
import inspect
import math
import textwrap
from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.teaching.sandbox import call_each
from tests.lessons import EXERCISES

SEEDS = range(5)
every_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.id)
every_function = pytest.mark.parametrize(
    "exercise", [e for e in EXERCISES if e.kind == "function"], ids=lambda e: e.id
)
every_mistake = pytest.mark.parametrize(
    ("exercise", "mistake"),
    [(e, m) for e in EXERCISES for m in e.mistakes],
    ids=lambda v: getattr(v, "id", v),
)


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_ids_are_unique_and_every_lesson_has_three_of_rising_difficulty():
    ids = [e.id for e in EXERCISES]
    assert len(set(ids)) == len(ids)
    for lesson in {number.split(".")[0] for number in ids}:
        difficulties = [e.difficulty for e in EXERCISES if e.id.startswith(lesson + ".")]
        assert len(difficulties) >= 3
        assert difficulties == sorted(difficulties)
        assert {e.kind for e in EXERCISES if e.id.startswith(lesson + ".")} == {"value", "function", "flaw"}


@pytest.mark.parametrize("seed", SEEDS)
@every_exercise
def test_the_reference_is_right(exercise, seed):
    verdict = exercise.grade(exercise.reference, generator=rng(seed))
    assert (verdict.status, verdict.message) == ("solved", "solved.")


@pytest.mark.parametrize("seed", SEEDS)
@every_mistake
def test_a_mistake_is_told_with_its_own_sentence(exercise, mistake, seed):
    verdict = exercise.grade(mistake.solution, generator=rng(seed))
    assert (verdict.status, verdict.mistake) == ("mistake", mistake.name)
    assert verdict.message == mistake.explanation


@every_exercise
def test_mistakes_differ_in_name_sentence_and_behaviour(exercise):
    assert len({m.name for m in exercise.mistakes}) == len(exercise.mistakes)
    assert len({m.explanation for m in exercise.mistakes}) == len(exercise.mistakes)
    generator = rng(11)
    cases = [exercise.draw(generator) for _ in range(200)]
    for mine, other in permutations(exercise.mistakes, 2):
        function = mine.solution if exercise.kind == "function" else lambda *_, m=mine: m.solution
        outcomes = call_each(function, cases, seconds=5.0)
        assert not exercise._agrees(other, cases, outcomes), f"{mine.name!r} behaves as {other.name!r}"


@every_exercise
def test_hints_do_not_hold_the_solution(exercise):
    assert len(set(exercise.hints)) == 3
    if exercise.kind == "function":
        body = ast.parse(textwrap.dedent(inspect.getsource(exercise.reference))).body[0].body
        without_docstring = [
            s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        ]
        solution = "".join(ast.unparse(s) for s in without_docstring).removeprefix("return ")
    else:
        solution = str(exercise.reference)
    squeezed = "".join(solution.split())
    for hint in exercise.hints:
        told = "".join(hint.replace("`", "").split())
        assert told != squeezed
        assert squeezed not in told or exercise.kind == "value"


@every_exercise
def test_the_prompt_names_what_is_asked(exercise):
    assert exercise.prompt.strip()
    assert exercise.minutes > 0
    if exercise.kind == "function":
        names = list(inspect.signature(exercise.reference).parameters)
        assert f"`{exercise.reference.__name__}({', '.join(names)})`" in exercise.prompt
        assert list(exercise.draw(rng(0))) == names


@every_exercise
def test_the_same_seed_draws_the_same_inputs_and_another_seed_others(exercise):
    draw = lambda seed: str([exercise.draw(g) for g in [rng(seed)] for _ in range(5)])  # noqa: E731
    assert draw(3) == draw(3)
    assert draw(3) != draw(4)


# Answers that no bank holds


@every_exercise
def test_untouched_cells_are_not_attempted(exercise):
    assert exercise.grade(..., generator=rng(0)).status == "not attempted"


@every_function
def test_an_untouched_function_is_not_attempted(exercise):
    scope = {}
    names = ", ".join(inspect.signature(exercise.reference).parameters)
    for body in ("...", "pass", '"""Say something."""', "return ..."):
        exec(f"def answer({names}):\n    {body}", scope)
        assert exercise.grade(scope["answer"], generator=rng(0)).status == "not attempted", body
    exec(f"def answer({names}):\n    return 5", scope)
    assert exercise.grade(scope["answer"], generator=rng(0)).status != "not attempted"


@every_function
def test_outputs_of_the_wrong_kind_are_malformed(exercise):
    reference = exercise.reference
    for spoil in (
        lambda *i: print(end=""),
        lambda *i: "text",
        lambda *i: [reference(*i)],
        lambda *i: reference(*i) * math.nan,
        lambda *i: reference(*i) + math.inf,
        lambda *i: torch.as_tensor(reference(*i)).double().reshape(-1)[None, None],
        lambda: reference,
        lambda *i: 1 / 0,
    ):
        verdict = exercise.grade(spoil, generator=rng(0))
        assert verdict.status == "malformed", verdict
        assert "\n" not in verdict.message


@every_function
def test_an_unknown_wrong_answer_gets_a_counterexample_with_every_input(exercise):
    wrong = lambda *inputs: exercise.reference(*inputs) + 7  # noqa: E731
    verdict = exercise.grade(wrong, generator=rng(0))
    assert verdict.status == "wrong"
    for name in exercise.draw(rng(0)):
        assert f"{name} = " in verdict.message
    assert "the expected output is" in verdict.message
    assert "yours is" in verdict.message


@every_function
def test_inputs_changed_in_place_do_not_fool_the_checker(exercise):
    def zeroes_and_returns_zero(*inputs):
        for value in inputs:
            if isinstance(value, torch.Tensor):
                value.zero_()
        return torch.as_tensor(exercise.reference(*original)).double() * 0

    original = list(exercise.draw(rng(0)).values())
    assert exercise.grade(zeroes_and_returns_zero, generator=rng(0)).status != "solved"


NUMBERS = st.one_of(
    st.floats(),
    st.integers(-(10**400), 10**400),
    st.sampled_from([0, 1, -1, 1e-200, 1e200, None, True, "text", [1.0], 1j, torch.zeros(2)]),
)


@pytest.mark.parametrize("exercise", [e for e in EXERCISES if e.kind != "function"], ids=lambda e: e.id)
@given(data=st.data())
def test_no_value_breaks_the_judge(exercise, data):
    if isinstance(exercise.reference, dict):
        numbers = [v for v in exercise.reference.values()]
        value = {k: data.draw(st.one_of(NUMBERS, st.sampled_from(numbers))) for k in exercise.reference}
    else:
        value = data.draw(NUMBERS)
    verdict = exercise.grade(value, generator=rng(0))
    assert verdict.message
    assert "\n" not in verdict.message


@every_function
@given(constant=NUMBERS)
def test_no_constant_breaks_the_judge(exercise, constant):
    verdict = exercise.grade(lambda *inputs: constant, generator=rng(0))
    assert verdict.status in ("malformed", "wrong", "mistake")
    assert "\n" not in verdict.message
