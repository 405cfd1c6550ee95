"""A learner's function may do anything: it comes back in time, as an outcome, and the interpreter goes on."""

import threading
import time

import pytest
import torch

from course_lib.teaching.sandbox import TimeLimitError, call_each, does_nothing

LIMIT = 0.3
CASES = [{"x": 1.0}, {"x": 2.0}]


def loops(x):
    while True:
        pass


def loops_and_catches_everything(x):
    while True:
        try:
            x = x + 1
        except:  # noqa: E722 - a learner may write it
            x = 0


def loops_inside_a_bare_except(x):
    try:
        while True:
            x = x + 1
    except:  # noqa: E722
        return x


def loops_in_torch(x):
    while True:
        torch.ones(10).sum()


def learners() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "learner"]


@pytest.mark.parametrize(
    "function",
    [
        loops,
        loops_and_catches_everything,
        loops_inside_a_bare_except,
        loops_in_torch,
    ],
)
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_endless_loop_is_stopped_and_gone(function):
    with pytest.raises(TimeLimitError, match=r"stopped after 0\.3 s") as stopped:
        call_each(function, [{"x": 1.0}] * 40, seconds=LIMIT)
    assert stopped.value.ended
    assert not learners()
    assert [o.value for o in call_each(lambda x: 2 * x, CASES, seconds=LIMIT)] == [2.0, 4.0]


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_one_long_call_is_set_aside_and_ends_by_itself():
    woken = []

    def sleeps(x):
        time.sleep(3)
        woken.append(x)

    with pytest.raises(TimeLimitError) as stopped:
        call_each(sleeps, CASES, seconds=0.05)
    assert not stopped.value.ended
    (left,) = learners()
    left.join(60)
    assert not left.is_alive()
    assert not woken, "the function must not go on after its long call"


def test_the_limit_is_for_all_calls_together():
    def works(x):
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass

    with pytest.raises(TimeLimitError):
        call_each(works, [{"x": 1.0}] * 20, seconds=LIMIT)
    assert len(call_each(works, [{"x": 1.0}] * 2, seconds=LIMIT)) == 2


def test_a_busy_machine_does_not_count():
    """Time on the clock in which the function got no processor is not held against it."""
    waits = lambda x: time.sleep(0.3)  # noqa: E731
    assert len(call_each(waits, CASES, seconds=0.5)) == 2


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, RecursionError, GeneratorExit])
def test_every_kind_of_error_is_an_outcome(error):
    def fails_on_the_second(x):
        if x == 2.0:
            raise error("told you")
        return x

    first, second, third = call_each(fails_on_the_second, [*CASES, {"x": 3.0}], seconds=LIMIT)
    assert (first.value, third.value) == (1.0, 3.0)
    assert second.raised
    assert type(second.error) is error
    assert "raise error" in second.line
    assert not first.raised


def test_the_line_is_the_learners_own_even_when_torch_raises():
    def multiplies(x):
        matrix = torch.ones(2, 3)
        return matrix @ matrix  # shapes do not fit

    (outcome,) = call_each(multiplies, [{"x": 1.0}], seconds=LIMIT)
    number = multiplies.__code__.co_firstlineno + 2
    assert outcome.line == f"line {number}: return matrix @ matrix  # shapes do not fit"


def test_the_line_is_the_last_one_of_the_learner_also_in_a_helper():
    def helper(x):
        return x / 0

    def calls(x):
        return helper(x)

    (outcome,) = call_each(calls, [{"x": 1.0}], seconds=LIMIT)
    assert outcome.line == f"line {helper.__code__.co_firstlineno + 1}: return x / 0"


def test_an_error_outside_the_learners_code_has_no_line():
    (outcome,) = call_each(torch.linalg.cholesky, [{"x": 1.0}], seconds=LIMIT)
    assert outcome.raised
    assert outcome.line == ""


def test_inputs_are_copies():
    case = {"tensor": torch.ones(2), "items": [1, 2]}

    def destroys(tensor, items):
        tensor.zero_()
        items.clear()

    call_each(destroys, [case, case], seconds=LIMIT)
    assert case["tensor"].tolist() == [1.0, 1.0]
    assert case["items"] == [1, 2]


def dots(x): ...


def passes(x):
    pass


def only_a_docstring(x):
    """Say something."""


def docstring_and_dots(x):
    """Say something."""
    ...


def docstring_and_pass(x):
    """Say something."""
    pass


def returns_nothing(x):
    return None


@pytest.mark.parametrize(
    "function", [dots, passes, only_a_docstring, docstring_and_dots, docstring_and_pass, returns_nothing]
)
def test_an_empty_body_does_nothing(function):
    assert does_nothing(function)


def returns_five(x):
    return 5


def returns_zero(x):
    return 0


def forgets_to_return(x):
    y = x + 1  # noqa: F841


def raises(x):
    raise NotImplementedError


@pytest.mark.parametrize(
    "function", [returns_five, returns_zero, forgets_to_return, raises, loops, lambda x: x, max]
)
def test_anything_else_is_an_attempt(function):
    assert not does_nothing(function)
