"""What a cell says first when it stops, in an IPython shell of its own."""

import os
import subprocess
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell

from course_lib.stopped import load_ipython_extension


@pytest.fixture
def stopped(monkeypatch):
    """Run a cell that fails, and return the lines of what it shows."""
    shell = InteractiveShell()
    shell.history_manager.enabled = False
    shown = []
    monkeypatch.setattr(shell, "_showtraceback", lambda _kind, _error, trace: shown.extend(trace))
    load_ipython_extension(shell)

    def run(source):
        shown.clear()
        assert not shell.run_cell(source).success
        return "\n".join(shown).splitlines()

    yield run
    shell.history_manager.end_session()


def test_the_first_line_says_where_the_cell_stopped_and_the_traceback_follows(stopped):
    first, *rest = stopped("x = 1\nx / 0\nx = 2")
    assert first == "This cell stopped at line 2, and the cells below it have not run: x / 0"
    assert any("ZeroDivisionError" in one for one in rest)


def test_it_is_the_innermost_line_of_the_cell_not_one_of_a_library(stopped):
    source = "import json\n\ndef read(text):\n    return json.loads(text)\n\nread('{')"
    assert stopped(source)[0].endswith(
        " line 4, and the cells below it have not run: return json.loads(text)"
    )


def test_a_name_of_the_first_cell_is_said_to_be_made_there(stopped):
    first, *rest = stopped("answer = 3\nexercises['01.1'].check(answer)")
    assert first == (
        "Run the first cell of this page: it makes `exercises`, which line 2 needs: exercises['01.1'].check(answer)"
    )
    assert any("NameError" in one for one in rest)
    assert stopped("histo")[0].startswith("This cell stopped at line 1")  # a slip of the pen


def test_an_interrupt_is_one_line(stopped):
    assert stopped("import time\nraise KeyboardInterrupt") == [
        "You interrupted this cell at line 2: raise KeyboardInterrupt"
    ]


def test_of_a_claim_the_line_and_what_was_measured_are_all(stopped):
    source = "from course_lib.teaching import claim\n\nclaim('01.1', 'it is {}', 0.5, at_most=0.01)"
    assert stopped(source) == [
        "This cell stopped at line 3, and the cells below it have not run: claim('01.1', 'it is {}', 0.5, at_most=0.01)",
        "claim (01.1) fails: it is ≈0.5, at most 0.01; measured 0.5",
    ]


def test_an_error_that_says_all_is_shown_alone(stopped):
    source = (
        "class Verdict(Exception):\n    says_all = True\n"
        "    def _render_traceback_(self):\n        return ['one more']\n\nraise Verdict"
    )
    assert stopped(source) == ["one more"]


def test_what_is_not_python_is_shown_as_it_was(stopped):
    assert not any("stopped" in one for one in stopped("x = ("))


def test_a_page_that_imports_the_kit_has_it(tmp_path):
    source = "import course_lib.teaching; 1 / 0"
    environment = os.environ | {"IPYTHONDIR": str(tmp_path)}
    command = [sys.executable, "-m", "IPython", "--colors=NoColor", "-c", source]
    said = subprocess.run(command, env=environment, capture_output=True, text=True).stdout
    assert f"This cell stopped at line 1, and the cells below it have not run: {source}\n" in said
