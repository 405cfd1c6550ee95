"""A learner's function may do anything: it comes back in time, as an outcome, and the interpreter goes on."""

import ctypes
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from fractions import Fraction

import numpy as np
import pytest
import torch

from course_lib.teaching import sandbox
from course_lib.teaching.sandbox import (
    EndedError,
    Other,
    TimeLimitError,
    _raise_in,
    call_each,
    call_ours,
    can_fork,
    does_nothing,
)

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


needs_fork = pytest.mark.skipif(not can_fork(), reason="answers run in a thread here")


@pytest.fixture(params=["child", "thread"])
def either(request, monkeypatch):
    """Run a test twice: with answers called in a child of the process, and in a thread of it."""
    if request.param == "thread":
        monkeypatch.setattr(sandbox, "can_fork", lambda: False)
    elif not can_fork():
        pytest.skip("answers run in a thread here")
    return request.param


@pytest.fixture
def in_thread(monkeypatch):
    """Call answers in a thread, as on systems that do not fork."""
    monkeypatch.setattr(sandbox, "can_fork", lambda: False)


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
@pytest.mark.usefixtures("either")
def test_an_endless_loop_is_stopped_and_gone(function):
    with pytest.raises(TimeLimitError, match=r"stopped after 0\.3 s") as stopped:
        call_each(function, [{"x": 1.0}] * 40, seconds=LIMIT)
    assert stopped.value.ended
    assert not learners()
    assert [o.value for o in call_each(lambda x: 2 * x, CASES, seconds=LIMIT)] == [2.0, 4.0]


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.usefixtures("in_thread")
def test_in_a_thread_one_long_call_is_set_aside_and_ends_by_itself():
    wake, woken = threading.Event(), []

    def sleeps(x):
        wake.wait()
        woken.append(x)

    with pytest.raises(TimeLimitError) as stopped:  # which waits for no one to wake it
        call_each(sleeps, CASES, seconds=LIMIT)
    assert not stopped.value.ended
    (left,) = learners()
    wake.set()
    left.join()
    assert not woken, "the function must not go on after its long call"


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("watch", ["autograd", "loop"])
def test_an_answer_is_watched_while_a_stopped_thread_is_still_in_its_long_call(watch):
    """Python 3.11 would repeat the answer's first instruction for ever."""
    wake = threading.Event()
    waits = threading.Thread(target=wake.wait, daemon=True)
    waits.start()
    _raise_in(waits.ident, SystemExit)
    try:
        (outcome,) = call_each(lambda x: x + 1, [{"x": 1.0}], seconds=LIMIT, watch=(watch,))
    finally:
        wake.set()
        waits.join()
    assert outcome.value == 2


@pytest.mark.usefixtures("either")
def test_the_limit_is_for_all_calls_together():
    def works(x):
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass

    with pytest.raises(TimeLimitError):
        call_each(works, [{"x": 1.0}] * 40, seconds=1.0)
    assert len(call_each(works, [{"x": 1.0}] * 4, seconds=1.0)) == 4


@pytest.mark.usefixtures("either")
def test_a_busy_machine_does_not_count():
    """Time on the clock in which the function got no processor is not held against it."""
    waits = lambda x: time.sleep(0.3)  # noqa: E731
    assert len(call_each(waits, CASES, seconds=0.5)) == 2


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, RecursionError, GeneratorExit])
@pytest.mark.usefixtures("either")
def test_every_kind_of_error_is_an_outcome(error):
    def fails_on_the_second(x):
        if x == 2.0:
            raise error("told you")
        return x

    first, second, third = call_each(fails_on_the_second, [*CASES, {"x": 3.0}], seconds=LIMIT)
    assert (first.value, third.value) == (1.0, 3.0)
    assert second.raised
    assert second.error.kind == f"builtins.{error.__name__}"
    assert (second.error.name, second.error.text) == (error.__name__, "told you")
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


@pytest.mark.usefixtures("either")
def test_inputs_are_copies():
    case = {"tensor": torch.ones(2), "items": [1, 2]}

    def destroys(tensor, items):
        tensor.zero_()
        items.clear()

    call_each(destroys, [case, case], seconds=LIMIT)
    assert case["tensor"].tolist() == [1.0, 1.0]
    assert case["items"] == [1, 2]


# In a child: what no thread could stop


def in_one_call_of_python(x):
    return 10 ** (10**9)


def starts_a_process_and_waits(x):
    subprocess.run([sys.executable, "-c", "while True: pass"], check=False)


@needs_fork
@pytest.mark.parametrize("function", [in_one_call_of_python, starts_a_process_and_waits, time.sleep])
def test_a_call_that_nothing_interrupts_is_stopped_in_time(function):
    since = time.monotonic()
    with pytest.raises(TimeLimitError, match=r"stopped after 0\.3 s") as stopped:
        call_each(function, [{"x": 1000.0}], seconds=LIMIT)
    assert stopped.value.ended
    assert time.monotonic() - since < 10 * sandbox.PATIENCE * LIMIT, (
        "a loaded machine may be slow, but not this slow"
    )


@needs_fork
def test_what_a_stopped_answer_started_is_stopped_too(tmp_path):
    program = f"import pathlib, time\nwhile True: pathlib.Path({str(tmp_path / 'alive')!r}).touch(); time.sleep(0.01)"

    def starts_and_sleeps(x):
        subprocess.Popen([sys.executable, "-c", program])
        time.sleep(100)

    with pytest.raises(TimeLimitError):
        call_each(starts_and_sleeps, CASES, seconds=LIMIT)
    (tmp_path / "alive").unlink(missing_ok=True)
    time.sleep(0.3)
    assert not (tmp_path / "alive").exists()


@needs_fork
@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: os._exit(0), r"ended the process .*exit code 0"),
        (lambda x: os._exit(7), r"exit code 7"),
        (lambda x: ctypes.string_at(0), r"crashed the process .*SIGSEGV"),
        (lambda x: os.kill(os.getpid(), signal.SIGKILL), r"crashed the process .*SIGKILL"),
    ],
)
def test_an_answer_that_ends_its_process_is_told_so(function, said):
    with pytest.raises(EndedError, match=said):
        call_each(function, CASES, seconds=LIMIT)
    assert [o.value for o in call_each(lambda x: 2 * x, CASES, seconds=LIMIT)] == [2.0, 4.0]


@needs_fork
def test_memory_that_grows_ends_in_an_error_of_the_answer():
    def in_python(x):
        return len(bytearray(100 * 2**30))

    def in_torch(x):
        return torch.ones(100 * 2**30)

    (first,) = call_each(in_python, CASES[:1], seconds=LIMIT)
    assert first.error.name == "MemoryError"
    (second,) = call_each(in_torch, CASES[:1], seconds=LIMIT)
    assert "can't allocate memory" in second.error.text
    assert second.line.endswith("return torch.ones(100 * 2**30)")


@needs_fork
def test_a_usual_amount_of_memory_is_granted():
    (outcome,) = call_each(lambda x: torch.ones(2**27).sum(), CASES[:1], seconds=5.0)  # half a GiB
    assert float(outcome.value) == 2**27


@needs_fork
def test_outputs_that_are_too_large_to_hand_back_are_an_error(monkeypatch):
    monkeypatch.setattr(sandbox, "LARGEST", 2**20)
    outcomes = call_each(lambda x: torch.ones(2**18), CASES, seconds=5.0)
    assert [o.error.name for o in outcomes] == ["MemoryError"] * 2
    assert "its outputs take" in outcomes[0].error.text


@needs_fork
def test_what_an_answer_prints_is_kept_and_cut(capfd):
    def prints(x):
        for number in range(20_000):
            print("line", number)
        print("warned", file=sys.stderr)
        os.write(1, b"not through Python")
        return x

    first, second = call_each(prints, CASES, seconds=5.0)
    assert first.printed.startswith("line 0\nline 1\n")
    assert len(first.printed) == sandbox.PRINTED
    assert first.lines == second.lines == 20_001
    assert tuple(capfd.readouterr()) == ("", "")


@needs_fork
def test_nothing_that_an_answer_changes_reaches_the_kernel(monkeypatch):
    kept = []

    def patches(x):
        kept.append(x)
        torch.allclose = lambda *_, **__: True
        os.environ["COURSE_LEFT"] = "1"
        return len(kept)

    before = torch.allclose
    assert [o.value for o in call_each(patches, CASES, seconds=LIMIT)] == [1, 2], (
        "calls share what they change"
    )
    assert kept == []
    assert torch.allclose is before
    assert "COURSE_LEFT" not in os.environ


@needs_fork
def test_an_answer_that_forks_gives_its_own_value_once():
    def forks(x):
        return 0 if os.fork() == 0 else x

    assert [o.value for o in call_each(forks, CASES, seconds=5.0)] == [1.0, 2.0]


@needs_fork
def test_an_answer_that_asks_for_input_is_not_waited_for():
    (outcome,) = call_each(lambda x: input("How much?"), CASES[:1], seconds=LIMIT)
    assert outcome.error.name == "EOFError"


IMPORTS = """
import sys
from course_lib.teaching.sandbox import call_each

def optimizes(x):  # which imports torch's compiler: 2 to 8 s
    weight = torch.tensor(x, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    (weight * weight).backward()
    optimizer.step()
    return float(weight)

def fails(x):
    import no_such_library

import torch
print([outcome.value for outcome in call_each(optimizes, [{"x": 1.0}], seconds=1.0)], "torch._dynamo" in sys.modules)
print(call_each(fails, [{"x": 1.0}], seconds=1.0)[0].error.name)
"""


@needs_fork
def test_libraries_are_imported_once_and_outside_of_the_limit():
    command = [sys.executable, "-c", IMPORTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout == "[0.0] True\nModuleNotFoundError\n", done.stderr


@needs_fork
def test_children_do_not_stay():
    for _ in range(5):
        call_each(lambda x: x, CASES, seconds=LIMIT)
    time.sleep(0.2)
    sandbox._reap()
    assert sandbox._ending == []


WARM = """
import torch
from course_lib.teaching.sandbox import call_each, can_fork

assert can_fork()
torch.set_num_threads(4)
warm = torch.randn(700, 700)
for _ in range(3):  # the threads of OpenMP are running, and autograd was used
    warm.requires_grad_()
    ((warm @ warm).exp().sum() + torch.linalg.svdvals(warm).sum()).backward()
    warm = warm.detach()

def heavy(x):
    leaf = torch.randn(700, 700, requires_grad=True)
    loss = (leaf @ leaf).tanh().sum() + torch.linalg.svdvals(leaf).sum()
    loss.backward()
    return float(leaf.grad.isfinite().all()) + torch.nn.functional.conv1d(warm[None], warm[:, :, None]).shape[-1]

outcomes = call_each(heavy, [{"x": 1.0}] * 2, seconds=20.0)
print([outcome.value for outcome in outcomes], torch.get_num_threads())
"""


@needs_fork
def test_large_products_and_autograd_work_after_torch_used_its_threads():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WARM)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "4"},
    )
    assert done.stdout == "[701.0, 701.0] 4\n", done.stderr


# What comes back

PLAIN = [
    None,
    True,
    7,
    10**400,
    -0.5,
    math.inf,
    1 + 2j,
    "text",
    b"bytes",
    [1, [2.0, None]],
    (1, (2, 3)),
    {"a": 1, (1, 2): [3]},
    {1, 2},
    Fraction(1, 3),
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
@pytest.mark.usefixtures("either")
def test_plain_data_comes_back_as_it_is(value):
    (outcome,) = call_each(lambda x: value, CASES[:1], seconds=5.0)
    assert outcome.value == value
    assert type(outcome.value) is type(value)


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex128],
)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_tensors_come_back_as_they_are(dtype, shape):
    tensor = torch.arange(6)[: math.prod(shape)].reshape(shape).to(dtype)
    (outcome,) = call_each(lambda x: tensor, CASES[:1], seconds=5.0)
    assert outcome.value.dtype == dtype
    assert outcome.value.shape == shape
    assert torch.equal(outcome.value, tensor)


def test_views_of_tensors_come_back_by_their_entries():
    turned = torch.tensor([[1 + 2j, 3j], [4, 5]])
    for view in (turned.T, turned.conj(), turned.mH, turned.imag, turned[:, 1]):
        for (outcome,) in (
            call_each(lambda x, view=view: view, CASES[:1], seconds=5.0),
            call_ours(lambda x, view=view: view, CASES[:1]),
        ):
            assert torch.equal(outcome.value, view)
    (outcome,) = call_each(lambda x: torch.ones(2).requires_grad_(), CASES[:1], seconds=5.0)
    assert not outcome.value.requires_grad


@pytest.mark.parametrize(
    "value", [np.float32(1.5), np.int64(3), np.arange(3.0), np.zeros((2, 0)), np.str_("a")]
)
def test_numpy_comes_back_as_it_is(value):
    (outcome,) = call_each(lambda x: value, CASES[:1], seconds=5.0)
    assert type(outcome.value) is type(value)
    assert outcome.value.dtype == value.dtype
    assert np.array_equal(outcome.value, value)


class Deaf(float):
    """A number that says that it is equal to everything."""

    def __eq__(self, other):
        return True

    __hash__ = float.__hash__


class Mute:
    """An object that does not say what it is."""

    def __repr__(self):
        raise ValueError("no")


@pytest.mark.usefixtures("either")
def test_other_objects_come_back_as_a_description():
    def nested(x):
        value = []
        value.append(value)
        return value

    values = [lambda x: print, lambda x: Mute(), lambda x: object, lambda x: torch.eye(2).to_sparse(), nested]
    print_, mute, kind, sparse, endless = (call_each(f, CASES[:1], seconds=5.0)[0].value for f in values)
    assert print_ == Other("builtin_function_or_method", "a function (print)")
    assert mute == Other("Mute", "an object of class Mute")
    assert kind.text == "a function (object)"
    assert sparse.kind == "Tensor"
    assert "sparse" in sparse.text
    assert endless.text == "something nested without end"
    (outcome,) = call_each(lambda x: Deaf(3), CASES[:1], seconds=5.0)
    assert type(outcome.value) is float
    assert outcome.value != 4.0
    deafs = [
        type("Deaf", (kind,), {})(value)
        for kind, value in ((int, 3), (str, "a"), (bytes, b"a"), (complex, 1j))
    ]
    (outcome,) = call_each(lambda x: deafs, CASES[:1], seconds=5.0)
    assert outcome.value == [3, "a", b"a", 1j]
    assert [type(one) for one in outcome.value] == [int, str, bytes, complex]


# Watching


def by_grad(x):
    leaf = torch.tensor(x, requires_grad=True)
    return torch.autograd.grad(leaf * leaf, leaf)[0]


def by_backward(x):
    leaf = torch.tensor(x, requires_grad=True)
    (leaf * leaf).backward()
    return leaf.grad


stored_grad = torch.autograd.grad


def by_a_name_of_its_own(x):
    leaf = torch.tensor(x, requires_grad=True)
    return stored_grad(leaf * leaf, leaf)[0]


def secretly(x):
    try:
        return by_grad(x)
    except BaseException:
        return 2 * x


def by_func(x):
    return torch.func.grad(lambda t: t * t)(torch.tensor(x))


def by_jacrev(x):
    return torch.func.jacrev(lambda t: t * t)(torch.tensor(x))


def forward(x):
    return torch.func.jvp(lambda t: t * t, (torch.tensor(x),), (torch.tensor(1.0),))[1]


@pytest.mark.parametrize(
    "function", [by_grad, by_backward, by_a_name_of_its_own, secretly, by_func, by_jacrev, forward]
)
@pytest.mark.usefixtures("either")
def test_autograd_is_seen_under_any_name(function):
    for outcome in call_each(function, CASES, seconds=5.0, watch=("autograd",)):
        assert outcome.watched == (("autograd", True),)


@pytest.mark.usefixtures("either")
def test_what_is_no_autograd_is_not_seen():
    by_hand = lambda x: 2 * torch.tensor(x, requires_grad=True)  # noqa: E731 - which only could be differentiated
    assert all(o.watched == () for o in call_each(by_hand, CASES, seconds=5.0, watch=("autograd",)))
    assert all(o.watched == () for o in call_each(by_grad, CASES, seconds=5.0))


def for_loop(x):
    total = 0.0
    for entry in x:
        total = total + entry
    return total


def while_loop(x):
    i = 0
    while i < len(x):
        i += 1
    return i


def comprehension(x):
    return torch.stack([2 * entry for entry in x])


def generator(x):
    return sum(2 * entry for entry in x)


def mapped(x):
    return list(map(lambda entry: 2 * entry, x))


def recursion(x):
    return 0.0 if len(x) == 0 else x[0] + recursion(x[1:])


def through_a_helper(x):
    return for_loop(x)


def vectorised(x):
    y = 2 * x
    return y.sum()


def fixed_rounds(x):
    for _ in range(3):
        x = x / 2
    return x


SIZES = [{"x": torch.ones(n)} for n in (2, 5)]


@pytest.mark.parametrize(
    "function", [for_loop, while_loop, comprehension, generator, mapped, recursion, through_a_helper]
)
@pytest.mark.usefixtures("either")
def test_a_loop_runs_a_line_more_often_for_a_larger_input(function):
    small, large = (
        dict(o.watched)["loop"][1] for o in call_each(function, SIZES, seconds=5.0, watch=("loop",))
    )
    assert large - small >= 3


@pytest.mark.parametrize("function", [vectorised, fixed_rounds])
@pytest.mark.usefixtures("either")
def test_other_code_runs_as_often_for_every_input(function):
    small, large = (
        dict(o.watched)["loop"][1] for o in call_each(function, SIZES, seconds=5.0, watch=("loop",))
    )
    assert small == large


def test_loops_of_libraries_do_not_count():
    def sorts(x):
        return textwrap.fill("word " * len(x), width=7)  # which loops over words in Python

    small, large = (dict(o.watched)["loop"][1] for o in call_each(sorts, SIZES, seconds=5.0, watch=("loop",)))
    assert small == large == 1


def test_packages_of_another_environment_are_not_the_learners(monkeypatch, tmp_path):
    """As where lessons are graded: the course's own packages are reached by a .pth file there."""
    other = tmp_path / "site-packages"
    monkeypatch.setattr(sys, "path", [*sys.path, str(other)])
    for kept in (sandbox._libraries, sandbox.is_own):
        kept.cache_clear()
    try:
        assert not sandbox.is_own(str(other / "torch" / "random.py"))
        assert sandbox.is_own(str(tmp_path / "answer.py"))
    finally:
        for kept in (sandbox._libraries, sandbox.is_own):
            kept.cache_clear()


@pytest.mark.usefixtures("either")
def test_overwritten_inputs_are_seen():
    def zeroes(tensor, items):
        tensor.zero_()

    def appends(tensor, items):
        items.append(1)

    def works_on_copies(tensor, items):
        tensor = tensor.clone().zero_()
        return tensor, [*items, 1]

    case = {"tensor": torch.tensor([1.0, math.nan]), "items": [1, 2]}
    for function, seen in ((zeroes, True), (appends, True), (works_on_copies, False)):
        (outcome,) = call_each(function, [case], seconds=5.0, watch=("overwritten inputs",))
        assert outcome.watched == ((("overwritten inputs", True),) if seen else ())


# Answers that were not attempted


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


@pytest.mark.skipif(not can_fork(), reason="answers are judged in a thread here")
def test_answers_can_be_judged_in_several_threads_at_once():
    failed = []

    def judge():
        for _ in range(40):
            try:
                assert call_each(lambda x: 2 * x, CASES, seconds=5)[1].value == 4.0
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=judge) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


@pytest.mark.skipif(not can_fork(), reason="answers are judged in a thread here")
def test_a_child_that_somebody_else_collected_is_forgotten(monkeypatch):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    monkeypatch.setattr(sandbox, "_ending", [child])
    assert call_each(lambda x: x, CASES, seconds=5)[0].value == 1.0
    assert child not in sandbox._ending
