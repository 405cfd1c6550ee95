"""A page of the third edition: one question, one sitting, claims that show what they measured, nothing given away."""

import re
from pathlib import Path

import nbformat
import pytest

from course_lib.editions.budget import APPENDIX, budget, is_hidden, main_line
from course_lib.editions.notebooks import PREDICTION, states
from course_lib.editions.teacher.solved import WIDGETS
from course_lib.lessons import contents_of
from course_lib.lessons.catalog import LESSONS
from course_lib.teaching.words import STORED_MODULE, Words
from tests.notebooks.neighbours import code_of, neighbours

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
QUIZ, SUMMARY = "Which of these sentences are true?", "Summary"
COLLAPSED = "jp-MarkdownHeadingCollapsed"
NUMBER = re.compile(r"\((\d\d\.[A-Za-z]?\d+)\)")
BOLD = re.compile(r"\*\*([^*]+\.)\*\*")


def read(lesson):
    return nbformat.read(NOTEBOOKS / lesson.notebook, as_version=4)


PAGES = [lesson for lesson in LESSONS if read(lesson).metadata.course.get("edition") == 3]
pytestmark = pytest.mark.parametrize("lesson", PAGES, ids=lambda lesson: lesson.name)


def markdown(cells):
    """Return the text of a page, without what exercises ask."""
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown" and not states(cell))


def code(cells):
    return [cell for cell in cells if cell.cell_type == "code"]


def claims(cells):
    """Return the number and the statement of each claim."""
    found = []
    for cell in code(cells):
        found += re.findall(r"\bclaim\(\s*\"([^\"]+)\",\s*f?\"((?:[^\"\\]|\\.)*)\"", cell.source)
    return found


def printed(cell):
    """Return what a learner reads of a cell's outputs; of a picture, its text alternative."""
    parts = []
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        parts += [output.get("text", ""), data.get("text/plain", ""), data.get("text/markdown", "")]
        parts += [re.sub(r"<img [^>]*?alt=\"([^\"]*)\"[^>]*>|<[^>]+>", r" \1 ", data.get("text/html", ""))]
    return "\n".join(parts)


def carriers(notebook, lesson):
    """Return all numbers that a sentence may name as what carries it."""
    contents, text = contents_of(lesson), markdown(notebook.cells)
    tags = re.findall(r"\\tag\{([^}]*)\}", text)
    numbered = [*contents.predictions, *contents.exercises, *contents.sentences]
    return {*tags, *numbered, *(number for number, _ in claims(notebook.cells))}


def test_it_fits_one_sitting_and_says_how_long_it_takes(lesson):
    notebook, contents = read(lesson), contents_of(lesson)
    spent = budget(notebook, contents.exercises, len(contents.sentences))
    assert spent.overdrawn() == []
    assert spent.line() in notebook.cells[0].source
    assert notebook.metadata.course.minutes == lesson.minutes == spent.minutes


def test_quiz_and_summary_close_the_main_line_and_the_appendix_is_folded(lesson):
    notebook = read(lesson)
    titles = re.findall(r"^## (.*)$", markdown(notebook.cells), re.MULTILINE)
    closing = [QUIZ, SUMMARY, *([APPENDIX] if APPENDIX in titles else [])]
    assert titles[-len(closing) :] == closing
    assert 4 <= len(titles) - len(closing) <= 9
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and cell.source.startswith(f"## {APPENDIX}"):
            assert cell.metadata.get(COLLAPSED) is True
            assert cell.source.strip() == f"## {APPENDIX}"
        else:
            assert COLLAPSED not in cell.metadata


def test_the_quiz_is_shown_and_has_false_true_and_tempting_sentences(lesson):
    sentences = contents_of(lesson).sentences
    assert 4 <= len(sentences) <= 8
    assert list(sentences) == [f"{lesson.number}.Q{n}" for n in range(1, len(sentences) + 1)]
    assert len({one.right for one in sentences.values()}) >= 2
    assert sum("lesson.quiz()" in cell.source for cell in code(read(lesson).cells)) == 1
    assert "notes say" not in markdown(read(lesson).cells)


def test_claims_show_what_they_measured_one_fact_a_line(lesson):
    cells = read(lesson).cells
    found = claims(cells)
    assert len(found) == sum(len(re.findall(r"\bclaim\(", cell.source)) for cell in code(cells)), (
        'a claim is written as claim("NN.k", "statement", ...)'
    )
    for number, statement in found:
        lines = [
            line
            for cell in code(cells)
            for line in printed(cell).splitlines()
            if line.startswith(f"({number}) ")
        ]
        assert lines, f"claim {number} printed nothing"
        assert not any(line.startswith(f"({number}) holds: ") for line in lines), (
            f"claim {number} hides what it measured: put {{}} into {statement!r}"
        )
    bare = [
        number
        for number, statement in claims(main_line(read(lesson)))
        if not re.search(r"\{(:[^{}]*)?\}", statement)
    ]
    assert len(bare) <= 2, f"claims without a measured value: {bare}"


def test_every_claim_of_the_main_line_has_a_near_and_wrong_neighbour(lesson):
    source = "\n".join(code_of(lesson))
    stated = {number for number, _ in claims(main_line(read(lesson)))}
    assert stated <= set(neighbours(lesson))
    for number, (old, new) in neighbours(lesson).items():
        assert source.count(old) == 1, f"{number}: {old!r} stands {source.count(old)} times in the code"
        assert old != new


def test_what_answers_a_prediction_waits_for_it(lesson):
    cells, asked = read(lesson).cells, None
    waiting = {}
    for cell in cells:
        if found := PREDICTION.search(printed(cell)):
            asked = found[1]
            waiting[asked] = 0
        answers = cell.metadata.get("course", {}).get("answers")
        if answers is not None:
            assert answers == asked, f"what answers {answers} stands behind the question {asked}"
            waiting[asked] += 1
            if cell.cell_type == "code":
                assert cell.metadata.get("jupyter", {}).get("outputs_hidden") is True, cell.source
    assert list(waiting) == list(contents_of(lesson).predictions)
    assert all(waiting.values()), f"nothing on the page answers a prediction: {waiting}"


def test_stored_widgets_have_the_script_and_the_style_of_today(lesson):
    """JupyterLab draws stored widgets when a page opens, and their style stays: an old one may hide less."""
    state = read(lesson).metadata.widgets[WIDGETS]["state"].values()
    stored = [one["state"] for one in state if one["state"].get("_anywidget_id", "").endswith(".words.Words")]
    assert stored
    assert all((one["_esm"], one["_css"]) == (STORED_MODULE, Words._css) for one in stored)


def test_the_deciding_picture_stands_in_the_flow(lesson):
    gated = [cell for cell in code(read(lesson).cells) if "answers" in cell.metadata.get("course", {})]
    answered = {
        cell.metadata.course.answers
        for cell in gated
        for o in cell.outputs
        if "image/png" in o.get("data", {})
    }
    assert answered == set(contents_of(lesson).predictions)


def test_set_up_and_widgets_have_their_source_hidden(lesson):
    for cell in code(read(lesson).cells):
        lines = [line for line in cell.source.splitlines() if line.strip() and not line.startswith("#")]
        plumbing = all(re.match(r"(import|from|    \w|\)|show\(|lesson\.\w+\()", line) for line in lines)
        if plumbing and "exercise" not in cell.metadata:
            assert is_hidden(cell), cell.source


def test_headline_sentences_name_what_carries_them(lesson):
    notebook = read(lesson)
    known = carriers(notebook, lesson)
    text = markdown(main_line(notebook))
    summary = text.split(f"## {SUMMARY}")[1]
    bullets = re.findall(r"^- (.*(?:\n(?!- |\n).*)*)", summary, re.MULTILINE)
    assert 3 <= len(bullets) <= 6
    for bullet in bullets:
        named = NUMBER.findall(bullet)
        assert named, f"the summary does not say what carries: {bullet}"
        assert set(named) <= known, bullet
    for paragraph in text.split("\n\n"):
        for sentence in BOLD.findall(paragraph):
            if len(sentence.split()) > 4 and not sentence.startswith(
                ("Goal", "Prerequisites", "Time", "Tasks", "Prediction")
            ):
                assert set(NUMBER.findall(paragraph)) & known, f"nothing carries: {sentence}"


VALUE = re.compile(
    r"(?<![\w.])-?(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?:e(-?\d+)|\s?\\times 10\^\{?(-?\d+)\}?)?(%?)"
)


def values(text):
    """Return the numbers of a text as (value, half a unit of its last digit)."""
    text = re.sub(r"\{,\}", ",", re.sub(r"(?<=\d)\\,(?=\d)", ",", text))
    for whole, part, e, ten, percent in VALUE.findall(text):
        scale = 10.0 ** int(e or ten or 0) / (100 if percent else 1)
        digits = len(part) - 1 if part else 0
        yield float(whole.replace(",", "") + part) * scale, 0.51 * 10.0**-digits * scale


def test_numbers_in_the_text_come_from_a_run(lesson):
    """A number with a decimal point, a percent sign or three digits stands in what the page computes or prints."""
    notebook = read(lesson)
    contents = contents_of(lesson)
    source = "\n".join(cell.source for cell in code(notebook.cells))
    asked = "\n".join(exercise.prompt for exercise in contents.exercises.values())
    known = [
        abs(v)
        for v, _ in values(source + "\n" + asked + "\n" + "\n".join(map(printed, code(notebook.cells))))
    ]
    text = re.sub(
        r"\\tag\{[^}]*\}|\(\d\d\.\w+\)|\]\([^)]*\)|arXiv:\S+|\b(19|20)\d\d\b|`[^`]*`",
        " ",
        markdown(notebook.cells),
    )
    text = text.replace(re.search(r"\*\*Time\.\*\*.*", text)[0], "")
    unknown = []
    for found in VALUE.finditer(re.sub(r"\{,\}", ",", text)):
        if not (found[2] or found[5] or len(found[1]) >= 3):
            continue
        (value, half), *_ = values(found[0])
        # A share may stand as 0.31 in one place and as 31% in the other.
        if not any(abs(v * factor - abs(value)) <= half for v in known for factor in (1, 0.01, 100)):
            unknown.append(found[0])
    assert unknown == []
