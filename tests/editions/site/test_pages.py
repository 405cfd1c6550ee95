"""A stored notebook as a page: equations and their mentions, outputs, forms, links into the library."""

import base64
import io
import json
import re

import nbformat
import pytest
from nbformat import v4
from PIL import Image

from course_lib.editions.site import pages
from course_lib.lessons.catalog import LESSONS

LESSON = LESSONS[1]
WHERE = {"01.4": "01_a.html#eq-01.4", "03.e1": "02_b.html#eq-02.e1"}
LINK = '<a class="equation" href="01_a.html#eq-01.4">(01.4)</a>'
FACTS = {
    "folder": "01-abc",
    "predictions": {
        "01.P1": {"choices": [["It <grows>", "No: |f| < 1."], ["It falls", "Yes."]], "answer": "It falls"}
    },
    "hints": {"01.1": ["First.", "Second.", "Third."]},
    "explorers": {
        "OneExplorer": {
            "title": "One",
            "summary": "A line.",
            "size": [640, 400],
            "controls": [
                {
                    "label": label,
                    "about": "",
                    "symbol": "",
                    "kind": "slider",
                    "values": ["0", "1"],
                    "default": 1,
                    "files": ["0-0.webp", "default.webp"],
                    "words": ["low </script>", "middle"],
                }
                for label in ("step", "width")
            ],
            "grid": {
                "controls": [0, 1],
                "files": [["a", "b"], ["c", "d"]],
                "words": [["p", "q"], ["r", "s"]],
            },
        }
    },
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("by (01.4).", f"by {LINK}."),
        ("(01.4)(01.4)", LINK + LINK),
        ("see (11.9) and f(01.4", "see (11.9) and f(01.4"),
        ("`(01.4)` and $(01.4)$ and [(01.4)](x.html)", "`(01.4)` and $(01.4)$ and [(01.4)](x.html)"),
        ("```\n(01.4)\n```\n(01.4)", f"```\n(01.4)\n```\n{LINK}"),
        ("# On (01.4)\n(01.4)", f"# On (01.4)\n{LINK}"),
        ("costs \\$5 (01.4) or \\$6", f"costs \\$5 {LINK} or \\$6"),
    ],
)
def test_a_mention_becomes_a_link_where_it_is_text(text, expected):
    assert pages.link_equations(text, WHERE) == expected


def test_an_equation_gets_an_anchor_before_it_as_a_block_of_its_own():
    made = pages.link_equations("so\n\n$$x = 1 \\tag{01.4}$$\n\nand", {})
    assert made == 'so\n\n<div class="course-anchor" id="eq-01.4"></div>\n\n$$x = 1 \\tag{01.4}$$\n\nand'
    assert "id=" not in pages.link_equations("$$x = 1$$ and `\\tag{01.4}`", {}).split("`")[0]


def test_in_a_list_the_equation_keeps_its_indent():
    assert pages.link_equations("- so\n\n  $$x \\tag{01.4}$$", {}).endswith("</div>\n\n  $$x \\tag{01.4}$$")


def notebook(*cells):
    return v4.new_notebook(cells=list(cells))


def test_a_number_leads_to_its_equation_and_without_one_to_the_cell_that_measures_it():
    one = notebook(
        v4.new_code_cell('claim("01.4", "x")\nclaim("01.e1", "y")'), v4.new_markdown_cell("$$a \\tag{01.4}$$")
    )
    two = notebook(v4.new_markdown_cell("text, `\\tag`"), v4.new_code_cell('claim(  "02.n1", "z")'))
    assert pages.anchors({"01_a.ipynb": one, "02_b.ipynb": two}) == {
        "01.4": "01_a.html#eq-01.4",
        "01.e1": "01_a.html#eq-01.e1",
        "02.n1": "02_b.html#eq-02.n1",
    }
    with pytest.raises(ValueError, match=r"equation \(01.4\) of 02_b.ipynb is also in 01_a.html"):
        pages.anchors({"01_a.ipynb": one, "02_b.ipynb": notebook(one.cells[1])})


def output(**data):
    names = {"png": "image/png", "text": "text/plain", "html": "text/html", "markdown": "text/markdown"}
    return v4.new_output("display_data", {names.get(name, name): value for name, value in data.items()})


def page_of(*cells, tmp_path, where=WHERE):
    title = v4.new_markdown_cell("# When it is stable\n\n**Goal.** Know.")
    made = pages.page(notebook(title, *cells), LESSON, FACTS, where, pictures=tmp_path / "pictures")
    nbformat.validate(made)
    return made.cells


def test_title_part_and_library(tmp_path):
    code = v4.new_code_cell(
        "from course_lib.attention import elu_features\nfrom course_lib.optimization.ridge import ridge_path as r"
        "\nfrom course_lib.teaching import claim\nfrom course_lib.lessons import ridge_attention\nimport math"
    )
    title, kept = page_of(code, tmp_path=tmp_path)
    assert title.source.startswith(
        '# 01 When it is stable\n\n<p class="course-part">Part I, Optimisation</p>\n'
    )
    places = re.findall(r'href="([^"]*)"', title.source)
    assert "../api/course_lib.attention.html#course_lib.attention.feature_maps.elu_features" in places
    assert not [place for place in places if "lessons" in place]
    assert kept.source == code.source


def test_a_widget_leaves_nothing_and_what_was_printed_stays(tmp_path):
    widget = output(text="VBox(...)", **{"application/vnd.jupyter.widget-view+json": {"model_id": "1"}})
    said = v4.new_output("stream", name="stdout", text="said")
    _, code = page_of(v4.new_code_cell("x", outputs=[said, widget]), tmp_path=tmp_path)
    assert code.outputs == [said]
    assert "VBox" not in json.dumps(code)


def test_a_figure_keeps_its_width_and_its_text_and_outputs_keep_their_order(tmp_path):
    drawn = io.BytesIO()
    Image.new("RGB", (2, 3)).save(drawn, format="png")
    figure = output(png=base64.b64encode(drawn.getvalue()).decode(), text="Figure: a line")
    figure.metadata = {"image/png": {"width": 614, "alt": "A line rises."}}
    printed = [v4.new_output("stream", name="stdout", text=text) for text in ("before", "after")]
    cells = page_of(v4.new_code_cell("show(f)", outputs=[printed[0], figure, printed[1]]), tmp_path=tmp_path)
    _, code, picture, rest = cells
    assert (code.source, code.outputs, code.metadata.tags) == ("show(f)", [printed[0]], [])
    assert (rest.outputs, rest.metadata.tags) == ([printed[1]], ["remove-input"])
    place = re.search(r"\{image\} (\S+)\n:alt: A line rises.\n:width: 614px", picture.source)[1]
    assert (tmp_path / place).read_bytes() == drawn.getvalue()


def test_a_prediction_is_a_form_with_every_sentence(tmp_path):
    asked = output(markdown="**Prediction 01.P1.** What, by (01.4)?")
    _, code, form = page_of(v4.new_code_cell("lesson.ask()", outputs=[asked]), tmp_path=tmp_path)
    assert code.metadata.tags == ["hide-input"]
    assert form.source.startswith(f"**Prediction 01.P1.** What, by {LINK}?\n\n<form")
    assert form.source.count('type="radio"') == 2
    assert "It &lt;grows&gt;" in form.source
    assert '<dt>It falls</dt><dd data-right="true"><strong>Right.</strong> Yes.</dd>' in form.source
    assert '<dd data-right="false"><strong>Not what happens.</strong> No: |f| &lt; 1.</dd>' in form.source
    assert "\n\n" not in form.source.partition("<form")[2]  # an empty line would end the form


def test_a_cell_that_introduces_a_symbol_can_be_linked_to(tmp_path):
    cells = [v4.new_markdown_cell(f"Text {i}.") for i in range(3)]
    made = pages.page(
        notebook(v4.new_markdown_cell("# T\n"), *cells),
        LESSON,
        FACTS,
        WHERE,
        pictures=tmp_path,
        introduced={"symbol-01-1": 2, "symbol-01-2": 2},
    )
    sources = [cell.source for cell in made.cells]
    assert sources[1:] == [
        "Text 0.",
        pages.target("symbol-01-1") + pages.target("symbol-01-2"),
        "Text 1.",
        "Text 2.",
    ]


def stated():
    """The cell that states the only exercise that has hints here."""
    text = "**01.1 How often.** *Compute.*\n\nSee (01.4).\n\nStuck? Run `hint()` in a new cell."
    return v4.new_markdown_cell(text, metadata={"course": {"states": "01.1"}})


def test_hints_unfold_one_by_one_in_the_place_of_how_to_get_them_by_code(tmp_path):
    _, text = page_of(stated(), tmp_path=tmp_path)
    assert text.source.startswith(f"**01.1 How often.** *Compute.*\n\nSee {LINK}.\n\n<div")
    assert "Stuck?" not in text.source
    inside = text.source
    for number, hint in enumerate(("First.", "Second.", "Third."), start=1):
        folded = inside.partition("<details>")[2].rpartition("</details>")[0]
        assert folded.startswith(f"<summary>Hint {number} of 3")
        assert hint in folded
        assert hint not in inside.partition("<details>")[0]
        inside = folded.partition("</p>")[2] + "</details>"
    assert 'href="../open.html#lesson-01"' in text.source


def test_an_explorer_stands_before_its_strip(tmp_path):
    strip = output(html="<details><summary>For reading without a kernel: x</summary></details>")
    widget = output(**{"application/vnd.jupyter.widget-view+json": {"model_id": "1"}})
    code = v4.new_code_cell("e = lesson.OneExplorer()\ne", outputs=[widget, strip])
    _, kept, made = page_of(code, tmp_path=tmp_path)
    assert kept.metadata.tags == ["hide-input"]
    assert made.source.index("course-explorer") < made.source.index('<details class="course-strip">')
    assert 'src="../_explorers/01-abc/OneExplorer/default.webp"' in made.source
    assert "middle</p>" in made.source
    data = re.search(r'<script type="application/json">(.*?)</script>', made.source)[1]
    assert json.loads(data)["controls"] == FACTS["explorers"]["OneExplorer"]["controls"]
    assert json.loads(data)["grid"] == FACTS["explorers"]["OneExplorer"]["grid"]
    # One whose class the register does not know keeps its strip.
    unknown = v4.new_code_cell("lesson.Other()", outputs=[strip])
    assert "course-explorer" not in page_of(unknown, tmp_path=tmp_path)[2].source


def test_the_front_page_shows_the_first_controls_only():
    about = FACTS["explorers"]["OneExplorer"]
    for most, labels, grid in ((1, ["step"], None), (2, ["step", "width"], about["grid"])):
        made = pages.explorer(about, "x", most=most)
        data = json.loads(re.search(r"json\">(.*?)</script>", made)[1])
        assert [control["label"] for control in data["controls"]] == labels
        assert data["grid"] == grid


def printing(text):
    return v4.new_code_cell(f"print({text!r})", outputs=[v4.new_output("stream", name="stdout", text=text)])


def waits(cell):
    """Whether a cell of a page is marked as the answer to a prediction."""
    if cell.cell_type == "code":
        return "course-answer" in cell.metadata.tags
    return cell.source.startswith('<div class="course-answer">\n\n') and cell.source.endswith("\n\n</div>")


@pytest.mark.parametrize(
    "end",
    [
        v4.new_markdown_cell("## Next"),
        v4.new_markdown_cell("That is it.\n\n### Next"),
        stated(),
    ],
)
def test_what_answers_a_prediction_waits_up_to_the_next_heading_or_exercise(end, tmp_path):
    drawn = io.BytesIO()
    Image.new("RGB", (2, 3)).save(drawn, format="png")
    figure = output(png=base64.b64encode(drawn.getvalue()).decode(), text="Figure: a line")
    asked = v4.new_code_cell("ask()", outputs=[output(markdown="**Prediction 01.P1.** What?")])
    shown = v4.new_code_cell("show(f)", outputs=[figure, output(markdown="*It falls.*")])
    cells = [
        printing("before"),
        asked,
        v4.new_markdown_cell("Text, with no heading: `## x`."),
        v4.new_code_cell("x = 1"),
        shown,
        printing("answer"),
        end,
        printing("after"),
    ]
    made = page_of(*cells, tmp_path=tmp_path)
    marked = [waits(cell) for cell in made]
    first, last = marked.index(True), len(marked) - marked[::-1].index(True)
    # Text, code, what the next cell draws, its caption, what is printed, and text before the heading; nothing else.
    waiting = made[first:last]
    assert all(marked[first:last])
    assert "Text, with no heading" in waiting[0].source
    assert waiting[1].source == "x = 1"
    assert len(waiting) == 6 + ("That is it" in end.source)
    assert ("That is it." in waiting[-1].source) == ("That is it" in end.source)
    assert not any("## Next" in cell.source for cell in waiting)
    assert any("print('answer')" in cell.source for cell in waiting)
    assert "<form" in made[first - 1].source
    assert "after" in made[-1].source
    assert made[last].source.startswith(("## Next", "### Next", "**01.1 How often.**"))
    kept = pages.page(
        notebook(v4.new_markdown_cell("# T\n"), *cells), LESSON, FACTS, WHERE, pictures=tmp_path, guess=False
    )
    assert not any(map(waits, kept.cells))


@pytest.mark.parametrize(
    ("module", "name", "place"),
    [
        (
            "course_lib.attention",
            "elu_features",
            "api/course_lib.attention.html#course_lib.attention.feature_maps.elu_features",
        ),
        ("course_lib.attention.kernelized", "PENDING", None),
        ("course_lib.attention.kernelized", "checkpoint", None),
        ("course_lib.lessons", "ridge_attention", None),
    ],
)
def test_where_a_name_is_documented(module, name, place):
    assert pages.find_place(module, name) == place


def test_a_build_is_repeatable(tmp_path):
    cells = [v4.new_markdown_cell("a"), v4.new_code_cell("b")]
    once, again = (page_of(*cells, tmp_path=tmp_path) for _ in range(2))
    assert once == again


SENTENCES = [
    {
        "id": "01.Q1",
        "text": "It always <falls>.",
        "options": ["True", "False", "only if |f| < 1"],
        "right": "only if |f| < 1",
        "verdict": "Only if |f| < 1",
        "why": "Powers grow.",
        "measured": "2 to the 3rd is 8\nmore",
        "picture": '<img alt="Powers" src="data:,"/>',
    }
]


def third(*cells, tmp_path):
    title = v4.new_markdown_cell("# When it is stable\n\n**Goal.** Know.")
    made = notebook(title, *cells)
    made.metadata.course = {"edition": 3}
    facts = {**FACTS, "sentences": SENTENCES}
    return pages.page(made, LESSON, facts, WHERE, pictures=tmp_path / "pictures").cells[1:]


def test_on_a_page_of_the_third_edition_the_cells_that_answer_wait_and_no_others(tmp_path):
    asked = v4.new_code_cell("lesson.ask()", outputs=[output(markdown="**Prediction 01.P1.** What?")])
    between = v4.new_markdown_cell("No answer.")
    says = {"course": {"answers": "01.P1"}}
    text = v4.new_markdown_cell("It falls.\n\n## Next\n\nBecause.", metadata=says)
    code = v4.new_code_cell("f(1)", outputs=[v4.new_output("stream", text="0.9")], metadata=says)
    _, _, kept, falls, heading, because, run, after = third(
        asked, between, text, code, v4.new_markdown_cell("Then."), tmp_path=tmp_path
    )
    assert kept.source == "No answer."
    assert falls.source == '<div class="course-answer">\n\nIt falls.\n\n</div>'
    assert heading.source == "## Next"
    assert because.source == '<div class="course-answer">\n\nBecause.\n\n</div>'
    assert run.metadata.tags == ["course-answer"]
    assert after.source == "Then."


def test_hidden_source_stays_hidden(tmp_path):
    code = v4.new_code_cell("import math", metadata={"jupyter": {"source_hidden": True}})
    (made,) = third(code, tmp_path=tmp_path)
    assert made.metadata.tags == ["hide-input"]


def test_a_quiz_is_a_form_for_each_sentence_and_what_was_measured_waits(tmp_path):
    folded = output(html="<details><summary>For reading without a kernel: the sentences</summary></details>")
    _, made = third(v4.new_code_cell("lesson.quiz()", outputs=[folded]), tmp_path=tmp_path)
    assert "<p><strong>01.Q1</strong> It always &lt;falls&gt;.</p>" in made.source
    assert 'id="prediction-01.Q1" data-right="Right." data-wrong="No."' in made.source
    assert made.source.count('<input type="radio" name="01.Q1"') == 3
    assert '<dd data-right="true"><strong>Right.</strong> Powers grow.</dd>' in made.source
    assert made.source.count("<strong>No.</strong> Only if |f| &lt; 1. Powers grow.") == 2
    waits = '<div class="course-answer"><p>Measured: 2 to the 3rd is 8<br/>more</p><img alt="Powers" src="data:,"/></div>'
    assert made.source.endswith(waits)
