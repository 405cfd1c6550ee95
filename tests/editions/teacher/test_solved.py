"""Answer cells are filled with solutions that run where they stand, and a solution that does not pass is named."""

import math
from pathlib import Path

import nbformat
import pytest
import torch

from course_lib.editions.teacher.solved import (
    answer_source,
    find_needed_names,
    find_unsolved,
    read_imports,
    run,
    solved,
)
from course_lib.lessons import contents_of
from course_lib.lessons.catalog import LESSONS
from course_lib.teaching import Exercise, Mistake
from tests.editions.teacher.conftest import stored

CHECK = 'exercises["99.1"].check(answer)'


def halved(number):
    """Half of the square root of a number."""
    return math.sqrt(number) / 2


def exercise(reference):
    kind = "function" if callable(reference) else "value"
    mistakes = (Mistake("one", 1, "One."), Mistake("two", 2, "Two."))
    return Exercise(
        id="99.1", title="", kind=kind, difficulty=1, minutes=1, prompt="", reference=reference,
        hints=("", "", ""), mistakes=mistakes, draw=lambda generator: {},
    )  # fmt: skip


@pytest.mark.parametrize("reference", [7, -1.5, {"a": 1.0, "b": -2}])
def test_a_value_is_written_as_it_is_typed(reference):
    source = answer_source(exercise(reference), f"answer = ...  # not yet\n\n\n{CHECK}")
    first, last = source.splitlines()
    assert last == CHECK
    assert eval(first.removeprefix("answer = ")) == reference


def test_a_function_gets_its_name_and_what_it_needs():
    source = answer_source(exercise(halved), f"def answer(number):\n    ...\n\n\n{CHECK}")
    assert source.splitlines()[0] == "import math"
    scope = {}
    exec(source.removesuffix(CHECK), scope)
    assert scope["answer"](16) == 2


def test_a_name_that_the_notebook_has_is_not_imported_again():
    source = answer_source(exercise(halved), CHECK, read_imports("import math\nx = 1"))
    assert "import" not in source


def test_a_name_that_means_another_thing_in_the_notebook_is_imported_inside():
    source = answer_source(exercise(halved), CHECK, read_imports("import torch as math"))
    lines = source.splitlines()
    assert lines[0].startswith("def halved")
    assert lines[2] == "    import math"
    scope = {"math": torch}
    exec(source.removesuffix(CHECK), scope)
    assert scope["answer"](16) == 2
    assert scope["math"] is torch


def test_what_a_function_needs_are_names_of_its_module_only():
    assert find_needed_names(halved) == {"math"}


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.number)
def test_every_answer_of_every_lesson_is_filled_in(lesson):
    notebook = stored(lesson)
    filled = solved(notebook, contents_of(lesson).exercises)
    for before, after in zip(notebook.cells, filled.cells, strict=True):
        if "exercise" in before.metadata:
            compile(after.source, "answer", "exec")
            assert after.source.splitlines()[-1] == before.source.splitlines()[-1]
            assert "..." in before.source
            assert "    ...\n" not in after.source
            assert "= ..." not in after.source
        else:
            assert after.source == before.source


def test_a_run_shows_which_solutions_pass(tmp_path: Path):
    setup = nbformat.v4.new_code_cell(
        "from course_lib.lessons.start_here import EXERCISES as exercises\nanswer = 6"
    )
    right = nbformat.v4.new_code_cell(
        'answer = ...\nexercises["00.2"].check(answer)', metadata={"exercise": "00.2"}
    )
    wrong = nbformat.v4.new_code_cell(
        'answer = 8\nexercises["00.3"].check(answer)', metadata={"exercise": "00.3"}
    )
    notebook = nbformat.v4.new_notebook(cells=[setup, right])
    notebook = solved(notebook, contents_of(LESSONS[0]).exercises)
    notebook.cells.append(wrong)
    run(notebook, tmp_path)
    assert find_unsolved(notebook) == ["00.3"]
    assert notebook.cells[1].execution_count == 2
