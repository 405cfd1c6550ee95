"""The command line: `course COMMAND`, or `python -m course_lib COMMAND`; `course --help` lists the commands."""

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


def main() -> None:
    """Run a command. One that a signal stops leaves nothing half made, says so in a line, and ends by that signal."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _stop)
    try:
        app(prog_name="course")
    except Stopped as stopped:
        sys.stdout.flush()
        print("stopped; run the same command again", file=sys.stderr, flush=True)
        # The caller sees what ended the process, as if nothing had listened.
        signal.signal(stopped.number, signal.SIG_DFL)
        os.kill(os.getpid(), stopped.number)


if __name__ == "__main__":
    main()
