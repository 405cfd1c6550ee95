"""Every notebook is a lesson as the course defines one, and is stored as it ran."""

import ast
import re
from importlib import import_module
from pathlib import Path

import nbformat
import pytest

from course_lib.editions.notebooks import states
from course_lib.lessons import contents_of
from course_lib.lessons.catalog import LESSONS
from tests.notebooks.store import state_exercises

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
BY_FILE = {lesson.notebook: lesson for lesson in LESSONS}
SECTIONS = (
    "The question",
    "Derivation and claims",
    "Predict, then look",
    "Explorer",
    "What the notes say wrongly",
    "Exercises",
    "In practice",
    "Summary",
)
# Later lessons let the learner predict and play before any formula.
PLAY_FIRST = (SECTIONS[0], *SECTIONS[2:4], SECTIONS[1], *SECTIONS[4:])
# Some of them set all exercises where what they train was derived.
NO_EXERCISES_APART = tuple(section for section in PLAY_FIRST if section != "Exercises")
WIDGET = "application/vnd.jupyter.widget-view+json"
# The only other cells whose output may differ from one machine or learner to the next.
PERSONAL = ("doctor.report()", "Progress().report()")


@pytest.fixture(params=PATHS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def notebook(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def markdown(notebook):
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def third_edition(notebook):
    return notebook.metadata.course.get("edition") == 3


def ignored(cell):
    return "nbval-ignore-output" in cell.metadata.get("tags", [])


def test_there_are_lessons():
    assert {"00_start_here.ipynb", "01_gradient_descent_stability.ipynb"} <= {p.name for p in PATHS}


def test_format(notebook, path):
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    assert path.name in BY_FILE


def test_stored_as_it_ran_from_top_to_bottom(notebook):
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        for output in cell.outputs:
            assert output.output_type != "error", cell.source
            assert output.get("name") != "stderr", output.text


def test_metadata_agree_with_the_first_cell_and_the_catalog(notebook, path):
    about, first = notebook.metadata.course, notebook.cells[0].source
    lesson = BY_FILE[path.name]
    assert (about.number, about.slug) == (lesson.number, lesson.slug)
    assert first.splitlines()[0] == f"# {lesson.title}"
    assert f"**Goal.** {about.goal}" in first
    assert f"**Time.** About {about.minutes} minutes" in first
    assert (about.minutes, sorted(about.prerequisites)) == (lesson.minutes, sorted(lesson.needs.split()))
    named = first.split("**Prerequisites.**")[1].split("**Time.**")[0]
    for number in about.prerequisites:
        assert re.search(rf"\b{number}\b", named), f"prerequisite {number} is not named in the first cell"


def test_headings(notebook, path):
    headings = re.findall(r"^(#+) (.*)$", markdown(notebook), flags=re.M)
    assert [level for level, _ in headings].count("#") == 1
    assert headings[0][0] == "#"
    if BY_FILE[path.name].number != "00" and not third_edition(notebook):
        sections = [text for level, text in headings if level == "##"]
        assert tuple(s for s in sections if s in SECTIONS) in (SECTIONS, PLAY_FIRST, NO_EXERCISES_APART)


def test_every_numbered_equation_is_claimed(notebook, path):
    number = notebook.metadata.course.number
    tags = re.findall(r"\\tag\{([^}]*)\}", markdown(notebook))
    assert tags == [f"{number}.{k}" for k in range(1, len(tags) + 1)], "equations are numbered in order"
    claimed = re.findall(r"\bclaim\(\s*\"([^\"]+)\"", "\n".join(cell.source for cell in code_cells(notebook)))
    assert tags
    carried = set(claimed)
    if third_edition(notebook):  # what an exercise or a sentence of the quiz checks needs no claim
        contents = contents_of(BY_FILE[path.name])
        texts = [e.prompt for e in contents.exercises.values()]
        texts += [f"{one.text} {one.explanation}" for one in contents.sentences.values()]
        carried |= set(re.findall(r"\((\d\d\.\d+)\)", "\n".join(texts)))
    assert set(tags) <= carried
    for other in set(claimed) - set(tags):
        assert re.fullmatch(rf"{number}\.[a-z]\d+", other), f"claim {other} belongs to no equation"


def test_every_claim_is_stored_as_holding(notebook):
    for cell in code_cells(notebook):
        named = re.findall(r"\bclaim\(\s*\"([^\"]+)\"", cell.source)
        printed = "".join(output.text for output in cell.outputs if output.output_type == "stream")
        for name in named:
            assert f"({name}) " in printed


def test_widget_cells_and_only_they_are_not_compared(notebook):
    for cell in code_cells(notebook):
        has_widget = any(WIDGET in output.get("data", {}) for output in cell.outputs)
        personal = any(name in cell.source for name in PERSONAL)
        assert ignored(cell) == (has_widget or personal), cell.source


def test_code_moves_every_explorer(notebook):
    source = "\n".join(cell.source for cell in code_cells(notebook))
    names = re.findall(r"^(\w+) = lesson\.\w*Explorer\(", source, flags=re.M)
    assert names
    for name in names:
        assert f"{name}.set(" in source


def test_experiments_are_short_enough_to_read(notebook):
    for cell in code_cells(notebook):
        lines = [line for line in cell.source.splitlines() if line.strip()]
        assert len(lines) <= 24, cell.source
        assert max(map(len, lines), default=0) <= 98, cell.source


def test_pictures_have_a_text_alternative(notebook):
    for cell in code_cells(notebook):
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                assert len(data["text/plain"]) > 40, "a picture's plain text says what it shows"
            if "<img" in data.get("text/html", ""):
                assert re.search(r'<img alt="[^"]{40,}"', data["text/html"])


def test_exercises_stand_unanswered_and_in_order(notebook, path):
    lesson = BY_FILE[path.name]
    exercises = import_module(f"course_lib.lessons.{lesson.slug}").EXERCISES
    answer_cells = [cell for cell in code_cells(notebook) if "exercise" in cell.metadata]
    assert [cell.metadata.exercise for cell in answer_cells] == list(exercises)
    assert len(exercises) >= 3
    if not third_edition(notebook):  # whose exercises stand where their step needs them
        difficulties = [exercise.difficulty for exercise in exercises.values()]
        assert difficulties == sorted(difficulties)
    for cell in answer_cells:
        number = cell.metadata.exercise
        assert "".join(o.text for o in cell.outputs) == f"Exercise {number}: not attempted yet.\n"


def test_exercises_are_stated_above_their_answer_cells_as_their_lesson_has_them(notebook, path):
    exercises = contents_of(BY_FILE[path.name]).exercises
    stated = [cell for cell in notebook.cells if states(cell)]
    assert state_exercises(notebook, exercises).cells == notebook.cells, "run `make statements`"
    assert [states(cell) for cell in stated] == list(exercises)
    assert {cell.cell_type for cell in stated} == {"markdown"}
    shown = [cell.source for cell in code_cells(notebook) if cell.source.startswith("exercises[")]
    assert shown == [], "an exercise is stated by a cell of Markdown, not by what a cell displays"


def test_no_cell_needs_an_answer(notebook):
    """So that all but the answer cells do the same whether exercises are answered or not."""
    of_answers = set()
    for cell in code_cells(notebook):
        nodes = list(ast.walk(ast.parse(cell.source)))
        names = [node for node in nodes if isinstance(node, ast.Name)]
        bound = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        bound |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
        if "exercise" in cell.metadata:
            of_answers |= bound
        else:
            of_answers -= bound
            assert not of_answers & {node.id for node in names}, cell.source


def test_links_lead_to_files_and_headings(notebook, path):
    for target in re.findall(r"\]\(([^)\s]+)\)", markdown(notebook)):
        if not target.startswith("http"):
            file, _, heading = target.partition("#")
            assert (NOTEBOOKS / file).exists(), target
            if heading:
                there = markdown(nbformat.read(NOTEBOOKS / (file or path.name), as_version=4))
                headings = re.findall(r"^#+ (.*)$", there, flags=re.M)
                assert heading in {text.replace(" ", "-") for text in headings}, target


def test_it_is_small_enough_to_keep_every_version(path):
    assert path.stat().st_size <= 512 * 1024, "store it again with `make store`, which keeps pictures small"


def test_nothing_personal_is_stored(notebook):
    text = nbformat.writes(notebook)
    assert not re.search(r"(^|[^A-Za-z0-9_.-])/(home|root|work|tmp|mnt|opt|Users)/\w", text)
