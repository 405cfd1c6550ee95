"""Slides of a lesson, for reveal.js: its text split at headings, with the code below the slide that it belongs to.

To the right stand statements, claims that were printed, and figures; below each stands the code that made it, below
a prediction its answers. So a lecture goes to the right, and down where somebody asks. A code cell of a lesson has
at most 24 lines, which one slide holds, so none is cut. Answer cells stay out: solutions are in the notebook.
"""

import base64
import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

from nbconvert.exporters import SlidesExporter
from nbformat import NotebookNode, v4
from traitlets.config import Config

from course_lib.editions.notebooks import EXPLORER, FOLDED_QUIZ, PREDICTION, STRIP, WIDGET, statement, states
from course_lib.lessons.catalog import Lesson
from course_lib.teaching import Prediction
from course_lib.teaching.register import Contents
from course_lib.teaching.style import png_bytes, text_alternative

HERE = Path(__file__).parent
# What a slide holds below its title, in lines of text of so many characters; with smaller letters it holds a few more.
LINES, WIDTH = 14, 88
JOINED = 17
FEW = 40  # words, from which on text has a slide of its own
LINE = "\n"
NOTEBOOK = re.compile(r"\]\((\d\d_\w+)\.ipynb(#[^)\s]*)?\)")
BLOCK = re.compile(r"```.*?```|\$\$.*?\$\$[^\n]*|(?:(?!\n\s*\n|\n- |\n\d+\. |\$\$).)+", re.DOTALL)
HEADING = re.compile(r"#+ (.+)")


@dataclass
class Slide:
    """One slide: its title, its blocks of Markdown with their height in lines, and the slides below it."""

    title: str
    blocks: list[str] = field(default_factory=list)
    lines: float = 0.0
    below: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The slide in Markdown."""
        return "\n\n".join([f"## {self.title}", *self.blocks])

    @property
    def is_short(self) -> bool:
        """Whether the slide is a few words and nothing else."""
        return self.lines < LINES and len(re.sub(r"<[^>]+>", " ", " ".join(self.blocks)).split()) < FEW

    @property
    def asks(self) -> bool:
        """Whether a prediction is asked, which what follows would answer."""
        return any(PREDICTION.match(one) for one in self.blocks)


def slides(notebook: NotebookNode, register: Contents, predictions: Mapping[str, Prediction]) -> list[Slide]:
    """Return the slides of a lesson's notebook as it was run, in order."""
    made: list[Slide] = []
    title, new = "", True

    def add(text: str, lines: float) -> None:
        nonlocal new
        if new or made[-1].below or made[-1].lines + lines > LINES:
            made.append(Slide(title))
            new = False
        made[-1].blocks.append(text)
        made[-1].lines += lines

    for cell in notebook.cells:
        if states(cell):
            add(statement(cell), height(statement(cell)))
        elif cell.cell_type == "markdown":
            for text in blocks(cell.source):
                if heading := HEADING.match(text):
                    title, new = heading[1], True
                else:
                    add(text, height(text))
        elif cell.cell_type == "code" and "exercise" not in cell.metadata:
            live = any(WIDGET in output.get("data", {}) for output in cell.outputs)
            for output in cell.outputs:
                for text, lines, below in render_output(output, cell.source, register, predictions):
                    add(text, lines)
                    made[-1].below += below
            if made and not live:
                made[-1].below.append(f"### {title}\n\n```python\n{cell.source}\n```")
    return join_short(made)


def join_short(found: list[Slide]) -> list[Slide]:
    """Return the slides with those of a few words joined to a neighbour of the same section that has room."""
    made: list[Slide] = []
    for slide in found:
        last = made[-1] if made else None
        if (
            last
            and last.title == slide.title
            and (last.is_short or slide.is_short)
            and not last.asks
            and not (slide.asks and last.below)  # what is below a question begins with its answers
            and last.lines + slide.lines <= JOINED
        ):
            last.blocks += slide.blocks
            last.lines += slide.lines
            last.below += slide.below
        else:
            made.append(slide)
    return made


def blocks(text: str) -> list[str]:
    """Split Markdown into what must not be torn apart: paragraphs, each with the equation after it, items, tables."""
    found: list[str] = []
    for line in re.split(r"\n(?=#+ )|(?<=\n)(?=#+ )", text):
        heading, _, rest = line.partition("\n") if line.startswith("#") else ("", "", line)
        found += [heading] if heading else []
        start = len(found)
        for block in filter(None, (one.strip() for one in BLOCK.findall(rest))):
            together = f"{found[-1]}\n\n{block}" if len(found) > start else ""
            if block.startswith("$$") and together and height(together) <= LINES:
                found[-1] = together
            else:
                found.append(block)
    return found


def height(text: str) -> float:
    """Return about how many lines a block takes on a slide, the space after it included."""
    lines = 0.6
    for part in re.split(r"(\$\$.*?\$\$)", text, flags=re.DOTALL):
        if part.startswith("$$"):
            lines += 2.8 + 1.5 * part.count("\\\\")
        else:
            plain = re.sub(r"\]\([^)]*\)|\\[a-zA-Z]+|[{}$*`]", "", part).strip()
            lines += sum(ceil(len(line) / WIDTH) for line in plain.split("\n") if line)
    return lines


def render_output(
    output: NotebookNode, source: str, register: Contents, predictions: Mapping[str, Prediction]
) -> Iterator[tuple[str, float, list[str]]]:
    """What stands for an output: Markdown, its height in lines, and the slides below it."""
    data = output.get("data", {})
    if output.output_type == "stream":
        printed = output.text.rstrip("\n")
        lines = sum(ceil(len(line) / 110) for line in printed.split("\n"))
        yield f'<pre class="printed">{html.escape(printed)}</pre>', 0.75 * lines + 1.2, []
    elif "image/png" in data:
        about = output.metadata.get("image/png", {})
        yield picture(base64.b64decode(data["image/png"]), about.get("alt", "Figure")), LINES, []
    elif number := PREDICTION.match(data.get("text/markdown", "")):
        yield from prediction(predictions[number[1]])
    elif data.get("text/html", "").startswith(STRIP) and not data["text/html"].startswith(FOLDED_QUIZ):
        for name in EXPLORER.findall(source):
            if name in register.explorers:
                yield from explorer(register, name)
    elif "text/html" in data:
        yield data["text/html"], LINES, []


def picture(png: bytes, alt: str) -> str:
    """Return a picture within the slide's own file."""
    return f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def prediction(about: Prediction) -> Iterator[tuple[str, float, list[str]]]:
    """A prediction with its choices; below it the answers, and below these the figure that the guess opens."""
    question = f"**Prediction {about.id}.** {about.question}"
    choices = "\n".join(f"<li>{html.escape(choice)}</li>" for choice in about.choices)
    answers = []
    for choice, why in about.choices.items():
        mark = ' class="right"' if choice == about.answer else ""
        answers.append(f"<li><span{mark}>{html.escape(choice)}</span><br>{html.escape(why)}</li>")
    figure = about.reveal()
    yield (
        f"{question}\n\n<ol>\n{choices}\n</ol>",
        height(question) + 1.3 * len(about.choices),
        [
            f"### Answers to {about.id}\n\n<ol>\n{LINE.join(answers)}\n</ol>",
            f"### What happens: {about.id}\n\n{picture(png_bytes(figure, dpi=144), text_alternative(figure))}",
        ],
    )


def explorer(register: Contents, name: str) -> Iterator[tuple[str, float, list[str]]]:
    """An explorer at the start; below it, its first control at either end."""
    shown = register.explorers[name]()
    control, about = next(iter(shown.controls.items()))
    frames = []
    for value in (about.default, about.values()[0], about.values()[2]):
        png, words = shown.frame(**{control: value})
        frames.append(
            f'<div class="explorer"><p><strong>{html.escape(about.say(value))}.</strong> {html.escape(words)}</p>'
            f"{picture(png, f'{shown.title}. {shown.summary}')}</div>"
        )
    yield frames[0], LINES, [f"### {shown.title}\n\n{frame}" for frame in frames[1:]]


def page(
    lesson: Lesson, notebook: NotebookNode, register: Contents, predictions: Mapping[str, Prediction]
) -> str:
    """Return the slides of a lesson as HTML, which loads reveal.js and MathJax from beside it."""
    cells = []
    for slide in slides(notebook, register, predictions):
        for place, text in enumerate([slide.text, *slide.below]):
            kind = "subslide" if place else "slide"
            text = NOTEBOOK.sub(r"](../lessons/\1.html\2)", text)
            cells.append(
                v4.new_markdown_cell(
                    text, id=f"slide-{len(cells)}", metadata={"slideshow": {"slide_type": kind}}
                )
            )
    exporter = SlidesExporter(
        template_name="slides",
        extra_template_basedirs=[str(HERE / "templates")],
        exclude_anchor_links=True,
        config=Config(CSSHTMLHeaderPreprocessor={"style": "a11y-high-contrast-light"}),
    )
    title = f"{lesson.number} {lesson.title}: slides"
    made, _ = exporter.from_notebook_node(
        v4.new_notebook(cells=cells), resources={"metadata": {"title": title}}
    )
    return made
