"""Calling a learner's function: under a time limit, with its errors shown as the learner's own line.

The function runs in a thread of its own, and the limit counts that thread's CPU time, so that a busy machine
does not stop a right answer; a function that waits is stopped after a few times the limit. When the limit is
reached, an exception is raised inside that thread, which ends a loop written in Python at its next step; the
kernel, which only waited, stays alive. Code that is busy inside one long call of a compiled library ends when
that call returns, and a loop that catches every exception may not end at all: such code is set aside, and the
learner is told so.
"""

import ctypes
import dis
import linecache
import threading
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

PATIENCE = 4  # times the limit that may pass on the clock, for a function that waits or a busy machine
BLOCKED = 20  # rounds of 0.05 s without CPU time after which a thread counts as inside one long call
DEAF = 200  # rounds after which a thread that catches every exception is given up


class _Stopped(BaseException):
    """Raised inside a learner's function at its time limit (no `except Exception` catches it)."""


@dataclass(frozen=True)
class Outcome:
    """What one call gave: a value, or the error that it raised, or neither because it was stopped."""

    value: Any = None
    error: BaseException | None = None
    line: str = ""

    @property
    def raised(self) -> bool:
        """Whether the call ended in an error of its own."""
        return self.error is not None


class TimeLimitError(Exception):
    """A learner's function did not return in time; `ended` says whether it could be stopped."""

    def __init__(self, seconds: float, *, ended: bool):
        super().__init__(f"stopped after {seconds:g} s")
        self.seconds, self.ended = seconds, ended


def call_each(function: Callable, cases: Sequence[dict[str, Any]], *, seconds: float) -> list[Outcome]:
    """Call `function` once for each case, by position, on copies of the inputs.

    Units: `seconds` of CPU time are the limit for all the calls together.

    Raises:
        TimeLimitError: the calls did not all return in time.
    """
    outcomes: list[Outcome] = []
    stopping = threading.Event()

    def work():
        for case in cases:
            if stopping.is_set():  # the function swallowed the exception and returned
                return
            try:
                outcomes.append(Outcome(value=function(*deepcopy(list(case.values())))))
            except _Stopped:
                return
            except BaseException as error:
                # A learner may raise anything, SystemExit included: it is shown, not hidden.
                outcomes.append(Outcome(error=error, line=_own_line(error, function)))

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
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Stopped))
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
