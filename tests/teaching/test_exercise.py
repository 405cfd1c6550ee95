"""The judge of an exercise: every kind of answer gets its own line, and no answer breaks it or fools it."""

import math
import os
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from course_lib.teaching import but, sandbox
from course_lib.teaching.exercise import (
    Edit,
    Exercise,
    Mistake,
    Progress,
    Property,
    _extreme,
    close,
    edit,
    edited,
    source_of,
)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def grade(exercise, answer, seed=0):
    return exercise.grade(answer, generator=rng(seed))


def doubled(values, shift):
    """Return twice the values plus the shift."""
    return 2 * values + shift


VECTORS = Exercise(
    id="90.1",
    title="Twice and a shift",
    kind="function",
    difficulty=1,
    minutes=1,
    prompt="Double and shift.",
    draw=lambda generator: {
        "values": torch.randn(3, generator=generator, dtype=torch.float64),
        "shift": 1 + float(torch.rand((), generator=generator)),
    },
    reference=doubled,
    properties=(
        Property(
            "Every entry is doubled and shifted.",
            lambda values, shift, answer: torch.allclose(answer, 2 * values + shift, atol=1e-9),
        ),
    ),
    hints=("Twice.", "Plus.", "Twice plus the shift."),
    mistakes=(
        Mistake("not doubled", lambda values, shift: values + shift, "You did not double."),
        Mistake("not shifted", edit(" + shift", ""), "You did not shift."),
    ),
    time_limit=0.5,
)


def square(n):
    return float(n * n)


WHOLE = Exercise(
    id="90.2",
    title="Square",
    kind="function",
    difficulty=1,
    minutes=1,
    prompt="Square a whole number.",
    draw=lambda generator: {"n": int(torch.randint(1, 1000, (), generator=generator))},
    reference=square,
    properties=(Property("The result is the square.", lambda n, answer: float(answer) == n**2),),
    hints=("Times itself.", "n times n.", "A product."),
    mistakes=(
        Mistake("double", lambda n: 2 * n, "That is the double."),
        Mistake("cube", lambda n: n**3, "That is the cube."),
    ),
)
VALUE = replace(
    WHOLE,
    id="90.3",
    kind="value",
    draw=None,
    reference=9.0,
    properties=(Property("It is the square of 3.", lambda answer: abs(float(answer) - 9) < 1e-9),),
    mistakes=(Mistake("double", 6, "That is the double."), Mistake("cube", 27, "That is the cube.")),
    same=lambda a, b: abs(float(a) - float(b)) < 0.1,
)
FLAW = replace(
    VALUE,
    id="90.4",
    kind="flaw",
    reference={"n": 3.0},
    properties=(Property("1 / n is above 0.1.", lambda n: 1 / n**2 > 0.1),),
    mistakes=(
        Mistake("negative", {"n": -9.0}, "Negative.", lambda n: n < 0),
        Mistake("large", {"n": 9.0}, "Large.", lambda n: 1 / n < 1 / 4),
    ),
    same=None,
)


# Not attempted


def dots(values, shift): ...


def passes(values, shift):
    pass


def only_a_docstring(values, shift):
    """Return the doubled values."""


def returns_dots(values, shift):
    return ...


@pytest.mark.parametrize(
    "answer",
    [..., dots, passes, only_a_docstring, returns_dots],
    ids=lambda a: getattr(a, "__name__", "dots alone"),
)
def test_an_untouched_answer_is_not_attempted(answer, capsys):
    verdict = grade(VECTORS, answer)
    assert (verdict.status, verdict.message) == ("not attempted", "not attempted yet.")
    VECTORS.check(answer)
    assert capsys.readouterr().out == "Exercise 90.1: not attempted yet.\n"
    assert Progress().read()["exercises"] == {}, "an untouched cell is no attempt"


@pytest.mark.parametrize("exercise", [VALUE, FLAW])
def test_an_untouched_value_is_not_attempted(exercise):
    assert grade(exercise, ...).status == "not attempted"


def test_a_constant_is_an_attempt():
    assert grade(WHOLE, lambda n: 5).status == "wrong"
    assert "single number" not in grade(WHOLE, lambda n: 5).message
    assert grade(VECTORS, lambda values, shift: 5).status == "malformed"


# Right answers


@pytest.mark.parametrize("exercise", [VECTORS, WHOLE, VALUE, FLAW], ids=lambda e: e.id)
def test_the_reference_solves(exercise):
    verdict = grade(exercise, exercise.reference)
    assert (verdict.status, verdict.message, verdict.mistake) == ("solved", "solved.", None)


@pytest.mark.parametrize(
    "answer",
    [
        lambda *inputs: doubled(*inputs),
        lambda values, shift: doubled(values, shift).requires_grad_(),
        lambda v, s: v.add_(v).add_(s),
        lambda values, shift, extra=3: doubled(values, shift),
    ],
)
def test_other_ways_to_write_it_solve_too(answer):
    assert grade(VECTORS, answer).status == "solved"


@pytest.mark.parametrize("kind", [int, float, np.float64, np.float32, torch.tensor, np.array])
def test_numbers_of_every_kind_are_numbers(kind):
    assert grade(VALUE, kind(9)).status == "solved"
    assert grade(WHOLE, lambda n: kind(n * n)).status == "solved"


# Malformed answers

MALFORMED = [
    (lambda v, s: print(end=""), "returned None. Is a `return` missing?"),
    (lambda v, s: (2 * v + s).tolist(), "a torch.Tensor of shape (3,) is expected, you gave ["),
    (lambda v, s: (2 * v + s).numpy(), "a torch.Tensor of shape (3,) is expected"),
    (lambda v, s: float(s), "a torch.Tensor of shape (3,) is expected, you gave 1."),
    (lambda v, s: "twice", "a torch.Tensor of shape (3,) is expected, you gave 'twice'"),
    (lambda v, s: {"v": v}, "a torch.Tensor of shape (3,) is expected"),
    (lambda v, s: (2 * v + s)[:2], "the shape should be (3,), yours is (2,)"),
    (lambda v, s: (2 * v + s)[:, None], "the shape should be (3,), yours is (3, 1)"),
    (lambda v, s: (2 * v + s).float(), "the dtype should be torch.float64, yours is torch.float32"),
    (lambda v, s: (2 * v + s).to(torch.complex128), "the dtype should be torch.float64, yours is"),
    (lambda v, s: v * math.nan, "contains NaN or infinity"),
    (lambda v, s: v / 0, "contains NaN or infinity"),
    (lambda v: v, "must take 2 arguments (values, shift): too many positional arguments"),
    (lambda v, s, t: v, "must take 2 arguments (values, shift): missing a required argument: 't'"),
    (lambda *, v, s: v, "must take 2 arguments (values, shift)"),
    (3.0, "3 was given, and the answer should be a function"),
    (None, "None was given, and the answer should be a function"),
]


@pytest.mark.parametrize(("answer", "message"), MALFORMED)
def test_a_malformed_output_is_named(answer, message):
    verdict = grade(VECTORS, answer)
    assert verdict.status == "malformed"
    assert message in verdict.message
    assert "\n" not in verdict.message


MALFORMED_NUMBERS = [
    ("seven", "a single number is expected, you gave 'seven'"),
    ([9.0], "a single number is expected, you gave [9.0]"),
    (torch.tensor([9.0]), "a single number is expected, you gave torch.tensor([9.0])"),
    (np.array([9.0, 1.0]), "a single number is expected"),
    (True, "a single number is expected, you gave True"),
    (9 + 0j, "a single number is expected"),
    (torch.tensor(9 + 0j), "a single number is expected"),
    (torch.tensor(True), "a single number is expected"),
    (np.str_("9"), "a single number is expected"),
    (math.nan, "a finite number is expected, you gave nan"),
    (torch.tensor(math.inf), "a finite number is expected, you gave inf"),
    (10**400, "a finite number is expected, you gave inf"),
]


@pytest.mark.parametrize(("value", "message"), MALFORMED_NUMBERS)
def test_a_malformed_number_is_named(value, message):
    for verdict in (grade(VALUE, value), grade(WHOLE, lambda n: value)):
        assert verdict.status == "malformed"
        assert message in verdict.message


@pytest.mark.parametrize(
    ("value", "status", "message"),
    [
        (lambda: 9.0, "malformed", "a function (<lambda>) was given, and the answer should be a value"),
        (None, "malformed", "None"),
    ],
)
def test_a_malformed_value_is_named(value, status, message):
    verdict = grade(VALUE, value)
    assert verdict.status == status
    assert message in verdict.message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"m": 3.0}, "a dictionary with the keys ['n'] is expected"),
        ({"n": 3.0, "m": 1}, "a dictionary with the keys ['n'] is expected"),
        (3.0, "a dictionary with the keys ['n'] is expected, you gave 3"),
        ({"n": "three"}, "'n' should be a number, you gave 'three'"),
        ({"n": None}, "'n' should be a number, you gave None"),
        ({"n": math.nan}, "'n' should be a finite number, you gave nan"),
        ({"n": 10**400}, "'n' should be a finite number, you gave inf"),
    ],
)
def test_a_malformed_dictionary_is_named(value, message):
    verdict = grade(FLAW, value)
    assert verdict.status == "malformed"
    assert message in verdict.message


@pytest.mark.parametrize(
    ("value", "status", "message"),
    [
        ({"step": 4, "mend": "new rows"}, "solved", "solved"),
        ({"step": 4.0, "mend": "more rows"}, "wrong", "The repair."),
        ({"step": 4, "mend": 1}, "malformed", "'mend' should be a string, you gave 1"),
        ({"step": "four", "mend": "new rows"}, "malformed", "'step' should be a number, you gave 'four'"),
    ],
)
def test_a_dictionary_may_hold_words(value, status, message):
    repaired = Property("The repair.", lambda step, mend: step == 4 and mend == "new rows")
    mistakes = (
        Mistake("earlier", {"step": 1, "mend": "new rows"}, "Earlier.", lambda step, mend: step == 1),
        Mistake("later", {"step": 5, "mend": "new rows"}, "Later.", lambda step, mend: step == 5),
    )
    words = replace(
        FLAW, reference={"step": 4, "mend": "new rows"}, properties=(repaired,), mistakes=mistakes
    )
    verdict = grade(words, value)
    assert verdict.status == status
    assert message in verdict.message


@pytest.mark.parametrize("n", [0.0, 1e200, 1e-200])
def test_a_number_that_no_check_can_compute_with_is_wrong_and_breaks_nothing(n):
    verdict = grade(FLAW, {"n": n})
    assert verdict.status in ("wrong", "mistake", "solved")


# Errors of the learner


@pytest.mark.parametrize(
    "steps",
    [lambda n: sum(1 for _ in range(int(n))), lambda n: len(bytearray(int(n)))],
    ids=["time", "memory"],
)
def test_a_test_that_computes_as_far_as_the_value_says_is_stopped(steps):
    counted = Property("It takes seven steps.", lambda n: steps(n) == 7)
    exercise = replace(FLAW, reference={"n": 7}, properties=(counted,), time_limit=0.3)
    start = time.process_time()
    verdict = grade(exercise, {"n": 10**13})
    assert verdict.status == "malformed"
    assert "{'n': 10000000000000} was given" in verdict.message
    assert time.process_time() - start < 1
    assert grade(exercise, {"n": 7}).status == "solved"
    assert "It takes seven steps." in grade(exercise, {"n": 2}).message


@pytest.mark.parametrize(
    "value", [1e7, {"n": -(10**9)}, [1, [2e6]], torch.tensor([1.0, -1e6]), torch.zeros(10**6)]
)
def test_a_value_is_extreme_by_its_size_or_the_number_of_its_entries(value):
    assert _extreme(value)


@pytest.mark.parametrize(
    "value", [999_999, {"n": 1.0, "word": "text"}, [1.0], torch.ones(3, dtype=torch.bool), "text"]
)
def test_other_values_are_not(value):
    assert not _extreme(value)


@pytest.mark.parametrize("error", [ValueError, ZeroDivisionError, SystemExit, KeyboardInterrupt, MemoryError])
def test_an_error_is_shown_as_the_learners_own_line(error):
    def answer(values, shift):
        total = values.sum()
        raise error(f"this and\nthat {total}")

    verdict = grade(VECTORS, answer)
    number = answer.__code__.co_firstlineno + 2
    assert verdict.status == "malformed"
    assert f'raised {error.__name__} at line {number}: raise error(f"this and' in verdict.message
    assert "(this and that " in verdict.message
    assert "\n" not in verdict.message


def test_an_error_inside_torch_is_shown_at_the_learners_call():
    def answer(values, shift):
        return torch.linalg.solve(values, values)

    verdict = grade(VECTORS, answer)
    number = answer.__code__.co_firstlineno + 1
    assert f"at line {number}: return torch.linalg.solve(values, values)" in verdict.message


def test_an_error_on_some_inputs_only_is_shown():
    def answer(n):
        return n * n if n > 500 else [][n]

    verdict = grade(WHOLE, answer)
    assert verdict.status == "malformed"
    assert "raised IndexError" in verdict.message
    generator = rng()
    smallest = min(WHOLE.draw(generator)["n"] for _ in range(40))
    assert verdict.message.endswith(f"It was called with n = {smallest}.")


def test_a_mistake_that_raises_on_some_inputs_is_recognised():
    def wrong(n):
        return math.log(500 - n)

    exercise = replace(WHOLE, mistakes=(*WHOLE.mistakes, Mistake("log", wrong, "No logarithm here.")))
    assert grade(exercise, lambda k: math.log(500 - k)).mistake == "log"


def endless(values, shift):
    while True:
        pass


def endless_and_deaf(values, shift):
    while True:
        try:
            shift = shift + 1
        except:  # noqa: E722 - a learner may write it
            shift = 0


def deaf_around_the_loop(values, shift):
    try:
        while True:
            shift = shift + 1
    except:  # noqa: E722
        return values


@pytest.mark.parametrize("answer", [endless, endless_and_deaf, deaf_around_the_loop])
def test_an_endless_loop_comes_back_as_stopped(answer, capsys):
    VECTORS.check(answer)
    said = capsys.readouterr().out
    assert said.startswith("Exercise 90.1:")
    assert "stopped after 0.5 s" in said
    assert "background" not in said
    assert grade(VECTORS, doubled).status == "solved"
    assert Progress().exercise("90.1")["attempts"] == 1


def test_a_sleeping_function_is_stopped():
    verdict = grade(replace(VECTORS, time_limit=0.1), lambda values, shift: time.sleep(30))
    assert verdict.status == "malformed"
    assert "stopped after 0.1 s" in verdict.message


def test_in_a_thread_a_sleeping_function_is_set_aside_and_said_to_be(monkeypatch):
    monkeypatch.setattr(sandbox, "can_fork", lambda: False)
    verdict = grade(replace(VECTORS, time_limit=0.1), lambda values, shift: time.sleep(3))
    assert verdict.status == "malformed"
    assert "stopped after 0.1 s" in verdict.message
    assert "still runs in the background" in verdict.message


# Fooling the judge


def test_changing_the_inputs_does_not_fool_the_checker():
    def zeroes_everything(values, shift):
        return values.zero_()

    def moves_the_goal(values, shift):
        wrong = values.clone()
        values.copy_((values - shift) / 2)  # with these values the returned ones would be right
        return wrong

    for answer in (zeroes_everything, moves_the_goal):
        assert grade(VECTORS, answer).status == "wrong"


def test_an_output_that_is_an_input_is_judged_by_its_value_at_return():
    kept = []

    def same_object(values, shift):
        kept.append(values)
        return values

    assert grade(VECTORS, same_object).status == "wrong"


def test_a_patched_library_does_not_make_an_answer_right(monkeypatch):
    answer = lambda values, shift: 3 * values + shift  # noqa: E731
    assert grade(VECTORS, answer).status == "wrong"
    monkeypatch.setattr(torch, "allclose", lambda *_, **__: True)
    monkeypatch.setattr(torch.Tensor, "abs", lambda self: self * 0)
    verdict = grade(VECTORS, answer)
    assert verdict.status == "wrong"
    assert "(In this kernel torch.allclose and 1 others was replaced." not in verdict.message
    assert "In this kernel torch.allclose and one other function were replaced" in verdict.message
    assert torch.allclose(torch.zeros(1), torch.ones(1)), "the kernel keeps what it was given"
    assert float(torch.tensor(-1.0).abs()) == 0


def test_an_answer_sees_the_kernel_as_it_is(monkeypatch):
    monkeypatch.setattr(torch, "square", lambda value: value**3)
    verdict = grade(WHOLE, lambda n: float(torch.square(torch.tensor(n))))
    assert verdict.mistake == "cube"
    assert "torch.square was replaced" in verdict.message


@pytest.mark.skipif(not sandbox.can_fork(), reason="answers run in a thread here")
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda n: 10 ** (10**9), "stopped after 0.5 s. Does a loop"),
        (
            lambda n: os._exit(0),
            "your function ended the process in which it ran (exit code 0). It should return",
        ),
        (lambda n: len(bytearray(2**37)), "raised MemoryError at line"),
        (lambda n: object, "a single number is expected, you gave a function (object)"),
    ],
)
def test_nothing_that_an_answer_does_ends_the_kernel(answer, said):
    verdict = grade(replace(WHOLE, time_limit=0.5), answer)
    assert verdict.status == "malformed"
    assert said in verdict.message
    assert grade(WHOLE, square).status == "solved"


def test_a_value_that_says_it_is_right_is_not_believed():
    class Agreeable(float):
        def __eq__(self, other):
            return True

        __hash__ = float.__hash__

        def __sub__(self, other):
            return 0.0

        def __float__(self):
            return 9.0

    assert grade(VALUE, Agreeable(3)).status == "wrong"
    assert grade(WHOLE, lambda n: Agreeable(n)).status == "wrong"


# What an answer prints


@pytest.mark.skipif(not sandbox.can_fork(), reason="a thread prints to the kernel")
def test_what_an_answer_prints_is_shown_in_front_of_the_verdict_and_cut(capsys):
    WHOLE.check(lambda n: [print(f"step {k}") for k in range(100_000 // 40)] and n * n)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:10] == [f"step {k}" for k in range(10)]
    assert lines[10] == "(Your function printed 100,000 lines in 40 calls: these are the first 10.)"
    assert lines[11:] == ["Exercise 90.2: solved."]
    WHOLE.check(lambda n: n * n)
    assert capsys.readouterr().out == "Exercise 90.2: solved.\n"


# What is needed, and what is forbidden

NEEDS = replace(
    FLAW,
    id="90.5",
    needs=(
        Property("Take n > 0.", lambda n: n > 0),
        Property("Take a whole number.", lambda n: float(n).is_integer()),
    ),
    properties=(Property("1 / n is above 0.1.", lambda n: 1 / n < 0.1),),
    reference={"n": 20.0},
    mistakes=(
        Mistake("one", {"n": 1.0}, "That is one.", but(lambda n: n == 1)),
        Mistake("small", {"n": 3.0}, "Too small.", but()),
    ),
)


@pytest.mark.parametrize(
    ("n", "status", "message"),
    [
        (20, "solved", "solved."),
        (-1, "wrong", "not yet. Take n > 0."),
        (-0.5, "wrong", "not yet. Take n > 0."),
        (1.5, "wrong", "not yet. Take a whole number."),
        (20.5, "wrong", "not yet. Take a whole number."),
        (1, "mistake", "That is one."),
        (7, "mistake", "Too small."),
        ("x", "malformed", "'n' should be a number, you gave 'x'."),
    ],
)
def test_what_is_needed_comes_before_mistakes(n, status, message):
    verdict = grade(NEEDS, {"n": n})
    assert (verdict.status, verdict.message) == (status, message)


def test_a_function_that_breaks_a_need_reads_its_sentence_with_a_counterexample():
    positive = replace(WHOLE, needs=(Property("It is above 0.", lambda answer: answer > 0),))
    verdict = grade(positive, lambda n: -2 * n)
    assert verdict.status == "wrong"
    assert verdict.message.startswith("not yet. It is above 0. The smallest counterexample found: for n = ")
    assert grade(positive, lambda n: 2 * n).mistake == "double"
    assert grade(positive, square).status == "solved"


def by_autograd(values, shift):
    leaf = values.clone().requires_grad_()
    return torch.autograd.grad((leaf * leaf + shift * leaf).sum(), leaf)[0]


def entry_by_entry(values, shift):
    total = torch.empty_like(values)
    for i in range(len(values)):
        total[i] = 2 * values[i] + shift
    return total


def in_place(values, shift):
    return values.mul_(2).add_(shift)


SIZED = replace(
    VECTORS,
    draw=lambda generator: {
        "values": torch.randn(
            int(torch.randint(2, 6, (), generator=generator)), generator=generator, dtype=torch.float64
        ),
        "shift": 1.5,
    },
    time_limit=5.0,
)


@pytest.mark.parametrize(
    ("name", "answer", "sentence"),
    [
        ("autograd", by_autograd, "without autograd"),
        ("loop", entry_by_entry, "no Python loop over the input"),
        ("overwritten inputs", in_place, "leave the inputs as they are"),
    ],
)
def test_a_right_answer_that_does_what_is_forbidden_is_refused(name, answer, sentence):
    assert grade(SIZED, answer).status == "solved"
    forbidding = replace(SIZED, forbids=(name,))
    verdict = grade(forbidding, answer)
    assert (verdict.status, verdict.mistake) == ("mistake", name), verdict.message
    assert sentence in verdict.message
    assert grade(forbidding, doubled).status == "solved"
    others = {by_autograd, entry_by_entry, in_place} - {answer}
    assert all(grade(forbidding, other).status == "solved" for other in others)


def test_a_refused_loop_is_named_by_its_line():
    verdict = grade(replace(SIZED, forbids=("loop",)), entry_by_entry)
    number = entry_by_entry.__code__.co_firstlineno
    assert any(f"Line {number + k} of yours runs " in verdict.message for k in (2, 3))


def test_a_wrong_answer_reads_its_mistake_though_it_does_what_is_forbidden():
    forbidding = replace(SIZED, forbids=("autograd", "loop", "overwritten inputs"))
    assert grade(forbidding, lambda values, shift: values.add_(shift)).mistake == "not doubled"


# The mistake bank


@pytest.mark.parametrize("exercise", [VECTORS, WHOLE, VALUE, FLAW], ids=lambda e: e.id)
def test_every_mistake_is_told_with_its_own_sentence(exercise):
    for mistake in exercise.mistakes:
        verdict = grade(exercise, exercise.wrong_answer(mistake))
        assert (verdict.status, verdict.mistake) == ("mistake", mistake.name)
        assert verdict.message == mistake.explanation


def test_matching_is_by_behaviour_not_by_source():
    assert grade(WHOLE, lambda n: n + n).mistake == "double"
    assert grade(WHOLE, lambda n: sum([n] * n) * n).mistake == "cube"


def rare(name, at_zero):
    """A mistake that shows its own face on one input in a hundred."""
    return Mistake(name, lambda n: 2 * n if n else at_zero, f"You are {name}.")


RARE = replace(
    WHOLE,
    draw=lambda generator: {"n": int(torch.randint(0, 100, (), generator=generator))},
    mistakes=(rare("first", 1), rare("second", 2), rare("third", 3)),
)


def test_entries_that_differ_on_one_input_in_a_hundred_are_told_apart():
    for seed in range(20):
        for mistake in RARE.mistakes:
            assert grade(RARE, mistake.solution, seed).message == mistake.explanation


def test_some_of_those_agree_on_the_first_inputs():
    seeds_without_zero = [
        seed for seed in range(20) if all(RARE.draw(g)["n"] for g in [rng(seed)] for _ in range(40))
    ]
    assert seeds_without_zero, "the test above would say nothing about drawing more"


# Mistakes as edits, and answers that must agree with the reference


def test_an_edit_changes_the_reference_once_and_keeps_its_globals():
    third = edited(square, edit("n * n", "n * n * n", "float(", "math.sqrt("))
    assert third(4) == 8.0
    assert source_of(square) == "def square(n):\n    return float(n * n)\n"
    assert square(3) == 9.0


@pytest.mark.parametrize(("old", "count"), [("n", 4), ("m", 0)])
def test_an_edit_that_does_not_apply_exactly_once_is_refused(old, count):
    with pytest.raises(ValueError, match=f"'{old}' stands {count} times in square"):
        edited(square, edit(old, "k"))


def test_an_edit_is_made_of_pairs():
    assert edit("a", "b", "c", "d") == Edit((("a", "b"), ("c", "d")))
    for texts in ((), ("a",), ("a", "b", "c")):
        with pytest.raises(ValueError, match=f"pairs of old and new text, got {len(texts)}"):
            edit(*texts)


def test_without_properties_or_with_agrees_the_reference_decides():
    said = replace(WHOLE, properties=(), agrees="It should be the square.")
    for exercise, sentence in (
        (said, "It should be the square."),
        (replace(said, agrees=None), "The smallest counterexample found: for n = "),
    ):
        assert grade(exercise, lambda n: n**2).status == "solved"
        assert grade(exercise, lambda n: n**2 + 0.5).message.startswith(f"not yet. {sentence}")
    both = replace(
        WHOLE, properties=(Property("It is not negative.", lambda answer: answer >= 0),), agrees="Agree."
    )
    assert "It is not negative." in grade(both, lambda n: -1).message
    assert "Agree." in grade(both, lambda n: 0.5).message
    loose = replace(said, same=lambda a, b: abs(float(a) - float(b)) < 1)
    assert grade(loose, lambda n: n**2 + 0.5).status == "solved"


def test_a_value_is_judged_once():
    seen = []
    counted = replace(
        VALUE, properties=(Property("Nine.", lambda answer: seen.append(answer) or answer == 9),)
    )
    assert grade(counted, 9).status == "solved"
    assert seen == [9]


# The counterexample


@pytest.mark.parametrize("seed", range(2))
def test_an_unknown_mistake_gets_the_smallest_counterexample_drawn(seed):
    generator = rng(seed)
    drawn = [WHOLE.draw(generator)["n"] for _ in range(40)]
    bound = sorted(drawn)[5]
    n = min(d for d in drawn if d >= bound)
    verdict = grade(WHOLE, lambda k: float(k * k + 1 if k >= bound else k * k), seed)
    assert (verdict.status, verdict.mistake) == ("wrong", None)
    assert verdict.message == (
        f"not yet. The result is the square. The smallest counterexample found: for n = {n} "
        f"the expected output is {float(n * n):.6g}, yours is {float(n * n + 1):.6g}, too large by 1."
    )


def test_tensors_are_shown_in_a_counterexample():
    verdict = grade(VECTORS, lambda values, shift: 3 * values)
    assert "for values = torch.tensor([" in verdict.message
    assert ", shift = 1." in verdict.message
    assert "the expected output is torch.tensor([" in verdict.message
    assert "yours is torch.tensor([" in verdict.message
    assert "\n" not in verdict.message


def test_zero_is_shown_without_a_sign():
    minus = replace(VECTORS, draw=lambda generator: {"values": torch.full((2,), -0.0).double(), "shift": 0.0})
    verdict = grade(minus, lambda values, shift: values + 1)
    assert "values = torch.tensor([0.0, 0.0], dtype=torch.float64)" in verdict.message
    assert "the expected output is torch.tensor([0.0, 0.0], dtype=torch.float64)" in verdict.message


def test_a_wrong_value_reads_the_property_that_it_breaks():
    assert grade(VALUE, 11).message == "not yet. It is the square of 3."


@pytest.mark.parametrize(
    ("value", "message"), [(8.0, "Your number is too small."), (11, "Your number is too large.")]
)
def test_a_wrong_value_without_a_sentence_reads_which_way_it_is_off(value, message):
    exercise = replace(VALUE, properties=(), same=None)
    assert grade(exercise, value).message == f"not yet. {message}"
    said = replace(exercise, agrees="It is the square of 3.")
    assert grade(said, value).message == f"not yet. It is the square of 3. {message}"
    pair = replace(exercise, reference={"a": 1.0, "b": 9.0})
    assert (
        grade(pair, {"a": 1.0, "b": value}).message == f"not yet. {message.replace('Your number', repr('b'))}"
    )


def test_a_counterexample_can_be_pasted_and_fails_again():
    exact = replace(VECTORS, properties=(), draw=lambda generator: {
        "values": torch.randn(3, generator=generator, dtype=torch.float64) / 3,
        "shift": float(torch.rand((), generator=generator)) / 3,
    })  # fmt: skip
    answer = lambda values, shift: torch.where(values > 0.1, 2 * values + shift, 2 * values - shift)  # noqa: E731
    message = grade(exact, answer).message
    pasted = message.partition("found: for ")[2].partition(" the expected")[0].replace(", shift", "; shift")
    scope = {"torch": torch}
    exec(pasted, scope)
    assert not torch.allclose(
        answer(scope["values"], scope["shift"]), doubled(scope["values"], scope["shift"])
    )
    drawn = [exact.draw(g) for g in [rng()] for _ in range(40)]
    assert any(
        torch.equal(scope["values"], case["values"]) and scope["shift"] == case["shift"] for case in drawn
    )


# check, hint, solution


def another_way(values, shift):
    return torch.stack([value + value + shift for value in values])


def test_solved_shows_the_reference_where_it_is_written_differently(capsys):
    VECTORS.check(another_way)
    said = capsys.readouterr().out
    assert said.startswith(
        "Exercise 90.1: solved.\n\nThe reference writes it this way:\n\ndef doubled(values, shift):"
    )
    assert said.endswith(
        "    return 2 * values + shift\n\nYours runs a Python loop; the reference has none.\n"
    )
    VECTORS.check(doubled)
    assert capsys.readouterr().out == "Exercise 90.1: solved.\n"


def test_check_prints_one_line_and_records(capsys):
    WHOLE.check(lambda n: 2 * n)
    assert capsys.readouterr().out == "Exercise 90.2: That is the double.\n"
    counted = {"attempts": 1, "hints": 0, "solved": False, "mistakes": {"double": 1}}
    assert Progress().exercise("90.2") == counted
    WHOLE.check(square)
    assert capsys.readouterr().out == "Exercise 90.2: solved.\n"
    WHOLE.check(lambda n: n)
    assert Progress().exercise("90.2") == counted | {"attempts": 2, "solved": True}
    assert len(capsys.readouterr().out.splitlines()) == 1


def factor():
    return 2


def helped(n):
    return factor() * n


def alone(n):
    return n + 1


def test_an_answer_counts_once_however_often_it_is_checked(monkeypatch):
    def attempts(exercise, answer):
        exercise.check(answer)
        return Progress().exercise(exercise.id)["attempts"]

    assert [attempts(WHOLE, answer) for answer in (alone, alone, helped, helped)] == [1, 1, 2, 2]
    monkeypatch.setitem(globals(), "factor", lambda: 5)
    assert [attempts(WHOLE, answer) for answer in (helped, helped, alone)] == [3, 3, 4]
    unwritten = eval("lambda n: n")
    assert [attempts(WHOLE, answer) for answer in (unwritten, unwritten)] == [5, 6]
    values = [7, 7, 8, *({"n": torch.tensor(100.0 + more)} for more in (0, 0, 1e-4))]
    assert [attempts(FLAW, answer) for answer in values] == [1, 1, 2, 3, 3, 4]


def test_check_draws_other_inputs_every_time(capsys):
    said = []
    for _ in range(2):
        WHOLE.check(lambda n: print(n) or n * n)
        said.append(capsys.readouterr().out)
    assert said[0] != said[1]


@pytest.fixture
def at_a_page(monkeypatch):
    """What `check` displays to a learner in JupyterLab."""
    shown = []
    monkeypatch.setattr("course_lib.teaching.exercise.display", shown.append)
    monkeypatch.setattr("course_lib.teaching.exercise.at_a_page", lambda: True)
    return shown


@pytest.mark.parametrize(
    ("answer", "sign", "said"),
    [
        (..., "○", "not attempted yet."),
        (square, "✓", "solved."),
        (lambda n: 2 * n, "✗", "That is the double."),
        (lambda n: n + 100, "✗", "not yet."),
        (3, "!", "3 was given"),
    ],
)
def test_on_a_page_a_verdict_has_its_sign_and_all_but_solved_a_button(at_a_page, answer, sign, said):
    WHOLE.check(answer)
    line, *buttons = at_a_page
    assert repr(line).startswith(f"Exercise 90.2: {said}")
    assert f">{sign}</strong> Exercise 90.2: {said}" in line._repr_html_()
    assert len(buttons) == (sign != "✓")


def test_a_verdict_is_no_markup(at_a_page):
    WHOLE.check("<b>nine</b>")
    assert "<b>" not in at_a_page[0]._repr_html_()


def test_the_button_shows_one_hint_after_the_other(at_a_page):
    WHOLE.check(...)
    button, words = at_a_page[1].children
    for number, hint in ((1, "Times itself."), (2, "n times n."), (3, "A product."), (3, "A product.")):
        assert button.description == f"Hint {number} of 3"
        button.click()
        assert words.text == f"Hint {number} of 3: {hint}"
    assert Progress().exercise("90.2")["hints"] == 3
    assert repr(at_a_page[1]) == WHOLE.help_line


def test_hints_go_one_two_three_three(capsys):
    for _ in range(4):
        WHOLE.hint()
    assert capsys.readouterr().out.splitlines() == [
        "Hint 1 of 3: Times itself.",
        "Hint 2 of 3: n times n.",
        "Hint 3 of 3: A product.",
        "Hint 3 of 3: A product.",
    ]
    assert Progress().exercise("90.2")["hints"] == 3


def test_the_solution_opens_after_three_hints(capsys):
    for _ in range(3):
        WHOLE.solution()
        assert "return float" not in (said := capsys.readouterr().out)
        assert "The solution opens when exercise 90.2 is solved" in said
        WHOLE.hint()
        capsys.readouterr()
    WHOLE.solution()
    assert "def square(n):\n    return float(n * n)" in capsys.readouterr().out


def test_the_solution_opens_when_solved(capsys):
    VALUE.check(8)
    VALUE.solution()
    assert "The solution opens" in capsys.readouterr().out
    VALUE.check(9)
    capsys.readouterr()
    VALUE.solution()
    assert capsys.readouterr().out == "One right answer: 9\n"


def test_the_statement_has_title_difficulty_minutes_prompt_and_help_and_is_displayed(monkeypatch):
    shown = []
    monkeypatch.setattr("course_lib.teaching.exercise.display", lambda *things: shown.extend(things))
    WHOLE._ipython_display_()
    assert [one.data for one in shown] == [WHOLE.statement]
    for part in (
        "90.2 Square",
        "difficulty ★☆☆",
        "about 1 minutes",
        WHOLE.prompt,
        'exercises["90.2"].hint()',
    ):
        assert part in WHOLE.statement


@pytest.mark.parametrize(("title", "shown"), [("Square", "Square.**"), ("A square?", "A square?**")])
def test_a_title_ends_with_one_mark(title, shown):
    assert replace(WHOLE, title=title).statement.startswith(f"**90.2 {shown} ")


# Construction


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "essay"}, "kind must be one of"),
        ({"difficulty": 4}, "difficulty 1, 2 or 3"),
        ({"hints": ("one", "two")}, "three hints"),
        ({"mistakes": WHOLE.mistakes[:1]}, "at least two mistakes"),
        ({"draw": None}, "draw= is missing"),
        ({"forbids": ("loops",)}, "forbids= takes names of"),
    ],
)
def test_an_incomplete_exercise_is_refused(change, message):
    # Where annotations are checked too, that check may be the first to speak, with a TypeError.
    with pytest.raises((ValueError, TypeError), match=f"{message}|Type-check error"):
        replace(WHOLE, **change)


def test_tensors_are_close_in_both_of_their_parts():
    turned = torch.tensor([1j, 1 + 1j])
    assert close(turned, turned + 1e-12)
    assert not close(turned, turned.conj())
    assert not close(turned, turned.real)


# ---------------------------------------------------------------- the results that are right


def test_right_results_of_a_function_are_counted():
    right_below_500 = WHOLE.count_right(lambda n: square(n) if n < 500 else None, generator=rng())
    drawn = [WHOLE.draw(generator)["n"] for generator in [rng()] for _ in range(40)]
    assert right_below_500 == (sum(n < 500 for n in drawn), 40)
    assert 0 < right_below_500[0] < 40
    assert WHOLE.count_right(square, generator=rng()) == (40, 40)
    below = replace(WHOLE, needs=(Property("Below 10⁵.", lambda answer: answer < 1e5),))
    assert below.count_right(square, generator=rng()) == (sum(n * n < 1e5 for n in drawn), 40)


@pytest.mark.parametrize("answer", [lambda n: None, lambda n: 1 / 0, lambda n: time.sleep(60), 4.0])
def test_an_answer_that_cannot_be_judged_has_no_right_result(answer):
    exercise = replace(WHOLE, properties=(Property("Any.", lambda answer: True),), time_limit=0.5)
    assert exercise.count_right(answer, generator=rng()) == (0, 40)


def test_each_number_of_a_value_is_a_result_and_a_counterexample_is_one():
    exercise = replace(
        VALUE,
        reference={"a": 1.0, "b": 2.0, "c": 3.0},
        properties=(
            Property("They add up to 6.", lambda a, b, c: abs(a + b + c - 6) < 1e-9),
            Property("b is 2.", lambda b: b == 2),
            Property("c is 3.", lambda c: c == 3),
        ),
    )
    count = lambda exercise, answer: exercise.count_right(answer, generator=rng())  # noqa: E731
    assert count(exercise, {"a": 1.0, "b": 2.0, "c": 4.0}) == (2, 3)
    assert count(exercise, {"a": 0.0, "b": 2.0, "c": 4.0}) == (1, 3)
    assert count(exercise, {"a": 1.0, "b": 2.0}) == count(exercise, {"a": 1e9, "b": 2.0, "c": 3.0}) == (0, 3)
    assert count(replace(exercise, kind="flaw"), {"a": 1.0, "b": 2.0, "c": 4.0}) == (0, 1)
    assert (count(VALUE, 9.0), count(VALUE, 8.0)) == ((1, 1), (0, 1))
