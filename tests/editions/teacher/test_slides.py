"""Slides: text split where it may be, code below its slide, no solution, nothing from another host."""

import re
from types import SimpleNamespace

import pytest
from matplotlib.figure import Figure
from nbformat import v4

from course_lib.editions.teacher import slides
from course_lib.lessons import contents_of
from course_lib.lessons.catalog import LESSONS
from course_lib.teaching.exercise import source_of
from tests.editions.teacher.conftest import stored


def test_blocks_keep_an_equation_with_its_sentence_and_split_lists():
    text = "## Title\n\nA line,\n\n$$a\n= b. \\tag{01.1}$$\n\nMore $x$ and\nmore.\n\n- one\n- two\n\n1. first\n2. second"
    assert slides.blocks(text) == [
        "## Title",
        "A line,\n\n$$a\n= b. \\tag{01.1}$$",
        "More $x$ and\nmore.",
        "- one",
        "- two",
        "1. first",
        "2. second",
    ]


def test_code_and_tables_are_not_torn_apart():
    code, table = "```\na\n\n- b\n```", "| a | b |\n|---|---|\n| 1 | 2 |"
    assert slides.blocks(f"{code}\n\n{table}") == [code, table]


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.number)
def test_no_word_of_a_lesson_is_lost(lesson):
    for cell in stored(lesson).cells:
        if cell.cell_type == "markdown":
            assert "".join("".join(slides.blocks(cell.source)).split()) == "".join(cell.source.split())


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.number)
def test_a_lesson_has_at_most_one_slide_a_minute(lesson, monkeypatch):
    """Pictures are not drawn: each takes a slide of its own, however it looks."""
    monkeypatch.setattr(slides, "explorer", lambda register, name: iter([("", slides.LINES, [])]))
    register = contents_of(lesson)
    choices = dict.fromkeys("abcd", "")
    predictions = {
        number: SimpleNamespace(id=number, question=ask.question, choices=choices, answer="a", reveal=Figure)
        for number, ask in register.predictions.items()
    }
    monkeypatch.setattr(slides, "png_bytes", lambda figure, dpi: b"")
    monkeypatch.setattr(slides, "text_alternative", lambda figure: "")
    assert 10 < len(slides.slides(stored(lesson), register, predictions)) <= lesson.minutes


def test_long_text_goes_on_to_another_slide():
    words = "word " * 60
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell("# Title\n\n" + "\n\n".join([words] * 7))])
    made = slides.slides(notebook, None, {})
    assert [slide.title for slide in made] == ["Title"] * len(made)
    assert len(made) == 3
    assert all(slide.lines <= slides.LINES for slide in made)
    assert sum(len(slide.blocks) for slide in made) == 7


PRINTED = v4.new_output("stream", name="stdout", text="(99.1) holds: 1 < 2\n")


def test_code_stands_below_and_what_follows_beside():
    more = "More. " * slides.FEW
    cells = [
        v4.new_markdown_cell("## One\n\n" + "Text. " * slides.FEW),
        v4.new_code_cell("print(1)", outputs=[PRINTED]),
        v4.new_markdown_cell(more),
        v4.new_code_cell("secret = 1", metadata={"exercise": "99.1"}),
    ]
    first, second = slides.slides(v4.new_notebook(cells=cells), None, {})
    assert "Text." in first.text
    assert "(99.1) holds: 1 &lt; 2" in first.text
    assert first.below == ["### One\n\n```python\nprint(1)\n```"]
    assert second.text == f"## One\n\n{more.strip()}"
    assert second.below == []


def test_a_few_words_stand_on_a_slide_with_their_neighbour():
    cells = [
        v4.new_markdown_cell("## One\n\n" + "Text. " * slides.FEW),
        v4.new_code_cell("print(1)", outputs=[PRINTED]),
        v4.new_markdown_cell("More."),
        v4.new_code_cell("print(2)", outputs=[PRINTED]),
        v4.new_markdown_cell("## Two\n\nA few."),
    ]
    first, second = slides.slides(v4.new_notebook(cells=cells), None, {})
    assert first.text.index("Text.") < first.text.index("More.") < first.text.rindex("(99.1)")
    assert first.below == [f"### One\n\n```python\nprint({n})\n```" for n in (1, 2)]
    assert second.text == "## Two\n\nA few."  # of another section


def test_nothing_is_joined_to_a_question_that_it_may_answer_or_where_there_is_no_room():
    few, long = slides.Slide("One", ["It falls."], 1.6), slides.Slide("One", ["word " * 100], 16.0)
    question = slides.Slide("One", ["**Prediction 99.P1.** Does it fall?"], 3.0, ["Answers"])
    assert [one.text for one in slides.join_short([question, few, long])] == [
        question.text,
        few.text,
        long.text,
    ]
    (before,) = slides.join_short([slides.Slide("One", ["A stone."], 1.6), question])
    assert before.text.endswith("A stone.\n\n**Prediction 99.P1.** Does it fall?")


@pytest.fixture(scope="module")
def start():
    """Lesson 00, which draws quickly: itself, its notebook, its register and its predictions."""
    lesson = LESSONS[0]
    register = contents_of(lesson)
    return lesson, stored(lesson), register, {n: ask.example() for n, ask in register.predictions.items()}


def test_the_slides_of_a_lesson(start):
    _, notebook, register, predictions = start
    made = slides.slides(notebook, register, predictions)
    shown = "\n".join(text for slide in made for text in [slide.text, *slide.below])
    assert [one.prompt for one in register.exercises.values() if shown.count(one.prompt) != 1] == []
    assert "Stuck?" not in shown
    references = [one.reference for one in register.exercises.values() if callable(one.reference)]
    assert [one for one in references if source_of(one).strip() in shown] == []
    for prediction in predictions.values():
        (asked,) = [slide for slide in made if f"**Prediction {prediction.id}.**" in slide.text]
        answers, figure, *_ = asked.below
        assert not any(why in asked.text for why in prediction.choices.values())
        assert answers.count('class="right"') == 1
        assert "<img" in figure
    # Every claim that was printed, on the slide above its code.
    claims = {cell.source for cell in notebook.cells if "\nclaim(" in cell.source}
    above = {
        text.partition("```python\n")[2].removesuffix("\n```"): slide
        for slide in made
        for text in slide.below
    }
    assert claims
    numbers = {source: re.findall(r'claim\(\s*"([^"]+)"', source) for source in claims}
    assert [s for s, found in numbers.items() if not all(f"({n}) " in above[s].text for n in found)] == []


def test_the_page_loads_only_what_lies_beside_it(start):
    page = slides.page(*start)
    loaded = re.findall(r'(?:src|<link[^>]*href)="([^"]{1,200})', page)
    local = [one for one in loaded if not one.startswith("data:")]
    assert sorted(set(local)) == [
        "../_static/icon.svg", "reveal/reveal.css", "reveal/reveal.js", "slides.css", "slides.js",
    ]  # fmt: skip
    assert f"<title>00 {start[0].title}: slides</title>" in page
    assert 'href="../lessons/01_gradient_descent_stability.html"' in page


def test_a_function_of_a_lesson_is_no_explorer(start):
    _, _, register, _ = start
    strip = v4.new_output("display_data", data={"text/html": slides.STRIP})
    (name,) = list(register.explorers)[:1]
    cell = v4.new_code_cell(f"explorer = lesson.{name}()\nlesson.film()", outputs=[strip])
    (slide,) = slides.slides(v4.new_notebook(cells=[cell]), register, {})
    assert len(slide.below) == 2 + 1  # its first control at both ends, and the code
