"""The command line: `course COMMAND`, or `python -m course_lib COMMAND`; `course --help` lists the commands."""

from course_lib.commands import app

if __name__ == "__main__":
    app(prog_name="course")
