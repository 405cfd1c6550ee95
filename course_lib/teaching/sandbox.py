"""Calling a learner's function: under limits, with its errors shown as the learner's own line.

On Linux without an accelerator the calls run in a forked child. It sees all that the kernel knows, and nothing that it
changes there reaches the kernel. The system ends it at its limit of CPU time, denies it memory beyond its share, and
the parent kills it when it waits too long: no code is busy inside a library in a way that could not be ended. What
the child prints is kept and cut. What comes back is plain data (numbers, text, tensors and arrays, and lists, tuples,
sets and dictionaries of them), which runs no code when it is read; anything else comes back as its description.

Elsewhere a thread of the kernel runs the calls. macOS forks, but its libraries may not be used after that; a process
whose torch has seen an accelerator cannot run autograd after it. When the limit is reached, an exception is raised
inside the thread, which ends a loop written in Python at its next step; code busy inside one long call of a
library ends when that call returns, and the learner is told so. Memory has no limit there, and what the answer
prints appears as it is.

Both limits count CPU time, so that a busy machine does not stop a right answer; a function that waits is stopped after
a few times the limit.
"""

import builtins
import contextlib
import ctypes
import dis
import faulthandler
import gc
import importlib.util
import io
import linecache
import marshal
import math
import os
import select
import signal
import sys
import sysconfig
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

PATIENCE = 4  # times the limit that may pass on the clock, for a function that waits or a busy machine
BLOCKED = 20  # rounds of 0.05 s without CPU time after which a thread counts as inside one long call
DEAF = 200  # rounds after which a thread that catches every exception is given up
MEMORY = 2 * 2**30  # bytes that a child may take beyond what the kernel has when it is forked
LARGEST = 2**28  # bytes of answers that a child hands back
PRINTED = 2000  # characters kept of what one call prints
RUNNING = -1  # no status of a process that has ended
WATCHED = ("autograd", "loop", "overwritten inputs")


class _Stopped(BaseException):
    """Raised inside a learner's function at its time limit (no `except Exception` catches it)."""


@dataclass(frozen=True)
class Raised:
    """An error of a learner's function: its class with the module, and what it says in one line."""

    kind: str
    text: str

    @property
    def name(self) -> str:
        """The name of the class alone."""
        return self.kind.rpartition(".")[2]


@dataclass(frozen=True)
class Other:
    """What a learner's function returned, where that is no plain data: the class and a description."""

    kind: str
    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Outcome:
    """What one call gave: a value, or the error that it raised.

    `watched` holds what it did of the things looked for: for "loop" the line of its own code that ran most often
    and how often, for the others True. `printed` is the start of what it printed, `lines` the number of all lines.
    """

    value: Any = None
    error: Raised | None = None
    line: str = ""
    watched: tuple[tuple[str, Any], ...] = ()
    printed: str = ""
    lines: int = 0

    @property
    def raised(self) -> bool:
        """Whether the call ended in an error of its own."""
        return self.error is not None


class TimeLimitError(Exception):
    """A learner's function did not return in time; `ended` says whether it could be stopped."""

    def __init__(self, seconds: float, *, ended: bool):
        super().__init__(f"stopped after {seconds:g} s")
        self.seconds, self.ended = seconds, ended


class EndedError(Exception):
    """A learner's function ended the process in which it ran, and returned nothing."""


@cache
def can_fork() -> bool:
    """Whether a forked child may run torch: on Linux, where no accelerator is at hand.

    With one at hand autograd starts threads for it, even for tensors in main memory, and refuses to work after a fork.
    """
    return sys.platform == "linux" and not (torch.cuda.is_available() or torch.xpu.is_available())


def call_each(
    function: Callable, cases: Sequence[dict[str, Any]], *, seconds: float, watch: Collection[str] = ()
) -> list[Outcome]:
    """Call `function` once for each case, by position, on copies of the inputs.

    Units: `seconds` of CPU time are the limit for all the calls together. `watch` names what to look for, of
    "autograd" (torch's derivatives are used), "loop" (lines of its own that run several times are counted) and
    "overwritten inputs".

    Raises:
        TimeLimitError: the calls did not all return in time.
        EndedError: the function ended its process, or crashed it.
    """
    return (_in_child if can_fork() else _in_thread)(function, cases, seconds, watch)


def call_ours(function: Callable, cases: Sequence[dict[str, Any]]) -> Iterator[Outcome]:
    """Yield what a function of the course gives for each case: without limits, and as a learner's would come back."""
    for case in cases:
        yield _as_returned(_outcome(function, case, ()))


def _outcome(function: Callable, case: dict[str, Any], watch: Collection[str]) -> Outcome:
    """Call the function once, and write down its value as plain data.

    A learner may raise anything, SystemExit included: it is shown, not hidden.
    """
    given = deepcopy(list(case.values()))
    seen: dict[str, Any] = {}
    try:
        with _watching(watch, seen):
            value = function(*given)
        if "overwritten inputs" in watch and not _same_bits(given, list(case.values())):
            seen["overwritten inputs"] = True
        return Outcome(value=_plain(value), watched=tuple(seen.items()))
    except _Stopped:
        raise
    except BaseException as error:
        return Outcome(error=_described(error), line=_own_line(error, function), watched=tuple(seen.items()))


def _as_returned(outcome: Outcome) -> Outcome:
    return replace(outcome, value=_restored(outcome.value))


# In a child of the process.


def _in_child(function, cases, seconds, watch) -> list[Outcome]:
    imported: set[str] = set()
    while True:
        sent = marshal.loads(_sent_by_a_child(function, cases, seconds, watch, imported))
        if isinstance(sent, list):
            return [_read(outcome) for outcome in sent]
        # The answer is about to import a library, torch's compiler for instance, which takes seconds and would be
        # lost with the child every time: the kernel imports it, and the answer starts anew.
        imported.add(sent)
        with contextlib.suppress(
            Exception
        ):  # a library that fails here fails in the answer, and is shown there
            importlib.import_module(sent)


def _sent_by_a_child(function, cases, seconds, watch, imported) -> bytes:
    read, write = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of forking beside other threads, which every kernel has. The child uses none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _be_the_child(function, cases, seconds, watch, imported, write)
    os.close(write)
    _reap()
    status = None
    try:
        with contextlib.suppress(OSError):  # so that what the child starts can be killed with it
            os.setpgid(child, child)
        payload, in_time = _received(read, time.monotonic() + PATIENCE * seconds)
        if payload is None and in_time:
            status = _status(child, 0)
    finally:
        os.close(read)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if status is None:
            _ending.append(child)  # the system takes its memory back meanwhile: nobody waits for that
    if payload is not None:
        return payload
    if not in_time or (
        status is not None
        and os.WIFSIGNALED(status)
        and os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGXCPU)
    ):
        raise TimeLimitError(seconds, ended=True)
    if status is None:
        raise EndedError("ended the process in which it ran")
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        raise EndedError(
            f"crashed the process in which it ran ({signal.Signals(number).name}: {signal.strsignal(number)})"
        )
    raise EndedError(f"ended the process in which it ran (exit code {os.WEXITSTATUS(status)})")


_ending: list[int] = []


def _reap() -> None:
    """Collect the children that have ended by now."""
    _ending[:] = [child for child in _ending if _status(child, os.WNOHANG) == RUNNING]


def _status(child: int, options: int) -> int | None:
    """Return how a child ended, RUNNING where it has not, and None where somebody else has collected it.

    That may be another thread that judges at the same time, or the learner's own code (`os.wait`).
    """
    try:
        ended, status = os.waitpid(child, options)
    except ChildProcessError:
        return None
    return status if ended else RUNNING


def _received(descriptor: int, deadline: float) -> tuple[bytes | None, bool]:
    """Return what the child sent, or None, and whether it came, or ended, in time."""
    chunks, missing = [], 8
    length = None
    while missing:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None, False
        chunk = os.read(descriptor, min(missing, 2**20))
        if not chunk:
            return None, True
        chunks.append(chunk)
        missing -= len(chunk)
        if not missing and length is None:
            length = missing = int.from_bytes(b"".join(chunks), "big")
            chunks = []
    return b"".join(chunks), True


def _be_the_child(function, cases, seconds, watch, imported, write) -> None:
    """Call the function under the limits, send what it gave, and end the process whatever happens."""
    own = os.getpid()

    def send(sent: Any) -> None:
        if os.getpid() != own:  # the function forked, and this is its child
            os._exit(0)
        payload = marshal.dumps(sent)
        if len(payload) > LARGEST:
            error = ("builtins.MemoryError", f"its outputs take {len(payload) / 2**20:.0f} MiB")
            payload = marshal.dumps([(None, error, "", (), "", 0)] * len(cases))
        with open(write, "wb", closefd=False) as pipe:
            pipe.write(len(payload).to_bytes(8, "big") + payload)
        os._exit(0)

    def hook(event: str, arguments: tuple) -> None:
        if event == "import" and arguments[0] not in imported and _is_a_librarys(arguments[0]):
            send(arguments[0])

    try:
        _limit(seconds)
        tap = _Tap()
        sys.stdout = sys.stderr = tap
        sys.addaudithook(hook)
        outcomes = []
        for case in cases:
            outcome = _outcome(function, case, watch)
            printed, lines = tap.taken()
            error = outcome.error and (outcome.error.kind, outcome.error.text)
            outcomes.append((outcome.value, error, outcome.line, outcome.watched, printed, lines))
        send(outcomes)
    finally:
        os._exit(1)


def _limit(seconds: float) -> None:
    """Give this process, a child, its limits, and cut it off from the kernel's input and output."""
    import resource  # which not every system has

    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    sys.stdin = open(os.devnull)  # noqa: SIM115 - for as long as the process lives
    builtins.input = _no_input
    faulthandler.disable()  # which would write to the kernel's terminal
    for number in (signal.SIGINT, signal.SIGPROF, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)  # which the system enforces, in the middle of any call
    whole = math.ceil(seconds) + 1  # a second line of defence, in whole seconds
    resource.setrlimit(resource.RLIMIT_CPU, (whole, whole))
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The threads of OpenMP did not come along, and a parallel region would wait for them for ever.
    torch.set_num_threads(1)
    gc.freeze()  # a collection would touch, and so copy, every object of the kernel


def _no_input(prompt: str = "") -> str:
    raise EOFError("an answer is called by the checker, and nobody is there to type an input")


class _Tap(io.TextIOBase):
    """Take what is printed: keep its start, count its lines."""

    def __init__(self):
        self.kept, self.size, self.lines = [], 0, 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.size < PRINTED:
            self.kept.append(text[: PRINTED - self.size])
        self.size += len(text)
        self.lines += text.count("\n")
        return len(text)

    def taken(self) -> tuple[str, int]:
        """Return what was kept and the number of lines since the last time."""
        taken = "".join(self.kept), self.lines
        self.kept, self.size, self.lines = [], 0, 0
        return taken


def _read(sent: tuple) -> Outcome:
    value, error, line, watched, printed, lines = sent
    return Outcome(_restored(value), error and Raised(*error), line, watched, printed, lines)


# Plain data: what marshal writes, with a tag in front of everything that is more.


def _plain(value: Any) -> Any:
    """Return the value as data that marshal writes; what is no plain data becomes its description."""
    try:
        return _as_plain(value)
    except RecursionError:
        return ("other", type(value).__qualname__, "something nested without end")


# What returns a value of a built-in type, where it is one of a class of the learner's that is derived from it.
_ITSELF = {
    int: int.__pos__,
    float: float.__pos__,
    complex: complex.__pos__,
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
}


def _as_plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufcSU":
        scalar = not isinstance(value, np.ndarray)
        return ("numpy", value.dtype.str, value.shape, np.asarray(value).tobytes(), scalar)
    if value is None or value is ... or isinstance(value, bool):
        return value
    for kind, itself in _ITSELF.items():
        if isinstance(value, kind):
            return itself(value)
    if isinstance(value, Fraction):
        return ("fraction", value.numerator, value.denominator)
    if isinstance(value, torch.Tensor) and value.layout is torch.strided and value.device.type == "cpu":
        plain = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        name = str(value.dtype).removeprefix("torch.")
        return ("tensor", name, tuple(value.shape), plain.view(torch.uint8).numpy().tobytes())
    if isinstance(value, list):
        return [_as_plain(one) for one in value]
    if isinstance(value, dict):
        return {_hashable(key): _as_plain(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return ("tuple", [_as_plain(one) for one in value])
    if isinstance(value, set | frozenset):
        return ("set", [_as_plain(one) for one in value])
    return ("other", type(value).__qualname__, _description(value))


def _hashable(key: Any) -> Any:
    plain = _as_plain(key)
    return plain if not isinstance(plain, tuple) or plain[0] != "tuple" else ("tuple", tuple(plain[1]))


def _description(value: Any) -> str:
    if callable(value):
        return f"a function ({getattr(value, '__name__', type(value).__name__)})"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a repr of the learner's own may fail in any way
        text = ""
    return text[:200] or f"an object of class {type(value).__qualname__}"


def _restored(plain: Any) -> Any:
    """Return the value that `_plain` wrote down."""
    if isinstance(plain, list):
        return [_restored(one) for one in plain]
    if isinstance(plain, dict):
        return {_restored(key): _restored(one) for key, one in plain.items()}
    if not isinstance(plain, tuple):
        return plain
    kind, *rest = plain
    if kind == "tensor":
        name, shape, data = rest
        dtype = getattr(torch, name)
        if not data:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)
    if kind == "numpy":
        name, shape, data, scalar = rest
        array = np.frombuffer(bytearray(data), dtype=name).reshape(shape)
        return array[()] if scalar else array
    if kind == "fraction":
        return Fraction(*rest)
    if kind == "other":
        return Other(*rest)
    return {"tuple": tuple, "set": set}[kind](_restored(one) for one in rest[0])


def _described(error: BaseException) -> Raised:
    try:
        text = " ".join(str(error).split())
    except Exception:  # an error of the learner's own class may fail to say what it is
        text = ""
    return Raised(f"{type(error).__module__}.{type(error).__qualname__}", text[:300])


# Watching what a function does.


@contextlib.contextmanager
def _watching(watch: Collection[str], seen: dict[str, Any]) -> Iterator[None]:
    """Note in `seen` whether autograd is used, and which line of the learner's own code runs most often."""
    if not {"autograd", "loop"} & set(watch):
        yield
        return
    times: Counter = Counter()

    def profile(frame, event, _argument):
        if event == "call" and frame.f_code in _derivatives():
            seen["autograd"] = True
            sys.setprofile(None)  # which makes everything slower

    def trace(frame, event, _argument):
        if not is_own(frame.f_code.co_filename):
            return None
        if event == "line":
            times[frame.f_code.co_filename, frame.f_lineno] += 1
        return trace

    _settle()
    before = sys.getprofile(), sys.gettrace()
    if "autograd" in watch:
        sys.setprofile(profile)
    if "loop" in watch:
        sys.settrace(trace)
    try:
        yield
    finally:
        if "loop" in watch:
            sys.settrace(before[1])
        if "autograd" in watch:
            sys.setprofile(before[0])
        if times:
            (_, line), count = times.most_common(1)[0]
            seen["loop"] = (line, count)


class _Settled(BaseException):
    """Raised inside this thread by `_settle`, and caught there."""


def _settle() -> None:
    """Clear the interpreter's note that some thread has an exception to take.

    It stays where a thread ended before it took the one that `_stop` sent, or still waits in a long call; a fork inherits
    it. While it stands, Python 3.11 repeats the first instruction of a function for ever under a trace or profile function.
    It goes when a thread takes an exception, so this one takes one of its own.
    """
    with contextlib.suppress(_Settled):
        _raise_in(threading.get_ident(), _Settled)
        while True:
            pass


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    """Have the thread raise an exception at its next step in Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


@cache
def _derivatives() -> frozenset:
    """The code of the functions that all of torch's derivatives go through, whatever name they are called by."""
    entries = (torch.autograd.grad, torch.autograd.backward, torch.autograd.forward_ad.make_dual)
    names = ("grad", "grad_and_value", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "linearize")
    ways = (getattr(torch.func, name) for name in names)
    return frozenset(entry.__code__ for entry in (*entries, *ways))


@cache
def _libraries() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    # Packages may come from another environment, as torch does where lessons are graded, or from the user's own folder.
    paths |= {path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")}
    return (*sorted(paths), str(Path(__file__).parents[1]), "<frozen")


@cache
def _is_a_librarys(module: str) -> bool:
    """Whether a module belongs to a package that is installed."""
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None and not is_own(spec.origin)


@cache
def is_own(filename: str) -> bool:
    """Whether code is the learner's: not Python's, a package's or the course's."""
    return not filename.startswith(_libraries())


def _same_bits(given: list, drawn: list) -> bool:
    return marshal.dumps(_plain(given)) == marshal.dumps(_plain(drawn))


# In a thread of the kernel.


def _in_thread(function, cases, seconds, watch) -> list[Outcome]:
    outcomes: list[Outcome] = []
    stopping = threading.Event()

    def work():
        for case in cases:
            if stopping.is_set():  # the function swallowed the exception and returned
                return
            try:
                outcomes.append(_as_returned(_outcome(function, case, watch)))
            except _Stopped:
                return

    thread = threading.Thread(target=work, daemon=True, name="learner")
    thread.since = time.monotonic()
    thread.start()
    deadline = time.monotonic() + PATIENCE * seconds
    while thread.is_alive() and _cpu_time(thread) < seconds and time.monotonic() < deadline:
        thread.join(0.05)
    if thread.is_alive():
        stopping.set()
        raise TimeLimitError(seconds, ended=_stop(thread))
    return outcomes


def _cpu_time(thread: threading.Thread) -> float:
    """Return the CPU seconds that a thread has used, or the time on the clock where the system does not count them."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic() - thread.since
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    except OSError:  # the thread ended just now
        return 0.0


def _stop(thread: threading.Thread) -> bool:
    """Raise `_Stopped` inside the thread, again and again, since a bare `except:` in a loop swallows it."""
    used, idle = _cpu_time(thread), 0
    for _ in range(DEAF):
        _raise_in(thread.ident, _Stopped)
        thread.join(0.05)
        if not thread.is_alive():
            return True
        before, used = used, _cpu_time(thread)
        idle = idle + 1 if used - before < 1e-3 else 0
        if idle == BLOCKED:
            break
    return False


def _own_line(error: BaseException, function: Callable) -> str:
    """Return 'line 3: `...`', the last line of the learner's own code that the error passed through."""
    code = getattr(function, "__code__", None)
    own, trace = None, error.__traceback__
    while trace is not None:
        if code is not None and trace.tb_frame.f_code.co_filename == code.co_filename:
            own = trace
        trace = trace.tb_next
    if own is None:
        return ""
    source = linecache.getline(own.tb_frame.f_code.co_filename, own.tb_lineno).strip()
    return f"line {own.tb_lineno}" + (f": {source}" if source else "")


def does_nothing(function: Callable) -> bool:
    """Whether the body is only `...`, `pass` or a docstring: an exercise that was not attempted."""
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    steps = [
        step for step in dis.get_instructions(code) if step.opname not in ("RESUME", "NOP", "RETURN_VALUE")
    ]
    return [step.opname for step in steps] in (["LOAD_CONST"], ["RETURN_CONST"]) and steps[0].argval is None
