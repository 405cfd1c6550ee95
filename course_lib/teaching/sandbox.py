"""Calling a learner's function: under a time limit, with its errors shown as the learner's own line.

The function runs in a thread of its own. When the limit is reached, an exception is raised inside that
thread, which ends a loop written in Python at its next step; the kernel, which only waited, stays alive.
Code that is busy inside one long call of a compiled library ends when that call returns, and a loop that
catches every exception may not end at all: such code is set aside, and said to be.
"""

import ctypes
import dis
import linecache
import threading
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any


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

    Units: `seconds` is the limit for all the calls together.

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
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        stopping.set()
        raise TimeLimitError(seconds, ended=_stop(thread))
    return outcomes


def _stop(thread: threading.Thread) -> bool:
    """Raise `_Stopped` inside the thread; a few times, since a bare `except:` in a loop swallows it."""
    for _ in range(20):
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Stopped))
        thread.join(0.05)
        if not thread.is_alive():
            return True
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
