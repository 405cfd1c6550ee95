"""What a notebook says when one of its cells stops: in its first line where that was, below it the traceback.

Of a claim that fails and of an interrupt there is no traceback: where, and for a claim what was measured, says it all.

An extension of IPython, which `course_lib.teaching` loads: `%load_ext course_lib.stopped`. The kernels of the course's own
environment start with it (`setup_course.py`), since the cell that is run first need not be the first of the page.
"""

import linecache
from collections.abc import Mapping
from typing import Any

# What the first cell of a lesson makes or imports.
FIRST_CELL = ("claim", "exercises", "lesson", "show", "torch")


def load_ipython_extension(shell: Any) -> None:
    """Let an IPython shell say first where a cell stopped."""
    show = shell._showtraceback

    def first_where(kind: type, error: BaseException, trace: list[str]) -> None:
        # The verdict of a graded answer is all that is to be read.
        found = None if getattr(error, "says_all", False) else place(error, shell.user_ns)
        if found is not None:
            trace = [line(error, *found)] + (trace if not isinstance(error, KeyboardInterrupt) else [])
        show(kind, error, trace)

    shell._showtraceback = first_where


def place(error: BaseException, names: Mapping[str, Any]) -> tuple[int, str] | None:
    """Return which line of a cell was reached last, from 1, and its text; None where no cell is in the traceback.

    `names` are the globals of the cells.
    """
    trace, file, found = error.__traceback__, None, None
    while trace is not None:
        code = trace.tb_frame.f_code
        if file is None and trace.tb_frame.f_globals is names:
            file = code.co_filename
        if code.co_filename == file:
            found = trace.tb_lineno, linecache.getline(file, trace.tb_lineno).strip()
        trace = trace.tb_next
    return found


def line(error: BaseException, number: int, text: str) -> str:
    """Return the line to read first of an error that came from line `number` of a cell."""
    if isinstance(error, KeyboardInterrupt):
        return f"You interrupted this cell at line {number}: {text}"
    if isinstance(error, NameError) and error.name in FIRST_CELL:
        return f"Run the first cell of this page: it makes `{error.name}`, which line {number} needs: {text}"
    return f"This cell stopped at line {number}, and the cells below it have not run: {text}"
