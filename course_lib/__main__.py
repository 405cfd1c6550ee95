"""The command line: `course COMMAND`, or `python -m course_lib COMMAND`; `course --help` lists the commands."""

import io
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from course_lib.commands import app

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Stopped(BaseException):
    """A signal asked the process to end: every block on the way out tidies up."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise Stopped(number)


def _print(text: str) -> None:
    """Print a text after all that is left to print; where that is impossible, say so in a line and leave with code 1."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        print(f"error: standard output cannot be written: {error.strerror}", file=sys.stderr, flush=True)
        # Python tries again when it ends, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


def main() -> None:
    """Run a command. One that a signal stops leaves nothing half made, says so in a line, and ends by that signal.

    What the terminal has no letter for is printed as its number; where nothing can be printed, a line on stderr says so.
    """
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _stop)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            app(prog_name="course")
        except OSError:
            _print("\n")  # shows whether standard output is what failed, which its error does not tell
            raise
        finally:
            _print("")
    except Stopped as stopped:
        print("stopped; run the same command again", file=sys.stderr, flush=True)
        # The caller sees what ended the process, as if nothing had listened.
        signal.signal(stopped.number, signal.SIG_DFL)
        os.kill(os.getpid(), stopped.number)


if __name__ == "__main__":
    main()
