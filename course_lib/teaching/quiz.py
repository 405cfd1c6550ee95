"""Which of these sentences are true? Each answer runs the counterexample or the proof on the spot.

A sentence is true, false, or true under one condition among several. The function behind it computes what decides, and
returns that as text (lines made by `fact`, which fail where they do not hold), with a figure where one helps.
"""

import base64
import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ipywidgets
from IPython.display import HTML, Markdown, display
from matplotlib.figure import Figure

from course_lib.teaching.panel import Panel
from course_lib.teaching.progress import Progress
from course_lib.teaching.style import png_bytes, text_alternative

TRUE, FALSE = "True", "False"


@dataclass(frozen=True)
class Shown:
    """What decides on a sentence: text with what was measured, and a figure or None."""

    text: str
    figure: Figure | None = None


@dataclass(frozen=True)
class Sentence:
    """A sentence to judge. `answer` is True, False or one of `conditions`, all of which can be chosen.

    `run` computes what decides: text, or text and figure. Its docstring says why, in words.

    Raises:
        ValueError: `answer` is none of the options, or there is no explanation.
    """

    id: str
    text: str
    answer: bool | str
    run: Callable[[], str | tuple[str, Figure]]
    conditions: tuple[str, ...] = ()

    def __post_init__(self):
        if self.right not in self.options or len(set(self.options)) != len(self.options):
            raise ValueError(
                f"answer of sentence {self.id} must be one of {self.options}, got {self.answer!r}"
            )
        if not self.explanation:
            raise ValueError(f"the function of sentence {self.id} must say in its docstring why")

    @property
    def options(self) -> tuple[str, ...]:
        """What can be chosen."""
        return (TRUE, FALSE, *self.conditions)

    @property
    def right(self) -> str:
        """The option that is right."""
        return {True: TRUE, False: FALSE}.get(self.answer, self.answer)

    @property
    def explanation(self) -> str:
        """Why, in words."""
        return " ".join((self.run.__doc__ or "").split())

    def shown(self) -> Shown:
        """Run what decides.

        Raises:
            ClaimError: it does not hold.
        """
        found = self.run()
        return Shown(*found) if isinstance(found, tuple) else Shown(found)


class Quiz:
    """The sentences of a lesson on its page, each with its own options and its own answer."""

    def __init__(self, sentences: Sequence[Sentence], *, progress: Progress | None = None):
        if not sentences:
            raise ValueError("a quiz needs sentences, got none")
        self.sentences = {one.id: one for one in sentences}
        self.progress = progress or Progress()
        self._panels = {
            one.id: Panel(
                one.options,
                label="Check",
                tooltip=f"Check sentence {one.id}",
                answered=lambda choice, number=one.id: self.mark(number, choice),
            )
            for one in sentences
        }
        self.widget = ipywidgets.VBox(
            [
                part
                for number, one in self.sentences.items()
                for part in (
                    ipywidgets.HTMLMath(f"<p><b>{number}</b> {html.escape(one.text)}</p>"),
                    self._panels[number].widget,
                )
            ]
        )

    def mark(self, number: str, choice: str) -> None:
        """Take the learner's answer to sentence `number`, run what decides, and say whether it was right and why.

        Raises:
            ValueError: there is no such sentence, or `choice` is none of its options.
        """
        if number not in self.sentences:
            raise ValueError(f"number must be one of {list(self.sentences)}, got {number!r}")
        sentence = self.sentences[number]
        if choice not in sentence.options:
            raise ValueError(f"choice must be one of {sentence.options}, got {choice!r}")
        right = choice == sentence.right
        self.progress.record_sentence(number, choice=choice, right=right)
        shown = sentence.shown()
        opening = "Right." if right else f"No: {verdict(sentence)}."
        measured = "; ".join(shown.text.splitlines())  # a page runs lines together
        self._panels[number].show(
            choice, f"{opening} {sentence.explanation} Measured: {measured}", shown.figure
        )

    def _ipython_display_(self) -> None:
        earlier = self.progress.read()["sentences"]
        for number, one in self.sentences.items():
            if (choice := earlier.get(number, {}).get("choice")) in one.options:
                self.mark(number, choice)
        display(
            Markdown("Mark each sentence, then check it: the check runs what decides."),
            self.widget,
            self.static(),
        )

    def static(self) -> HTML:
        """Return sentences and answers, folded, for readers who have no kernel."""
        rows = "".join(folded(one) for one in self.sentences.values())
        return HTML(
            "<details><summary>For reading without a kernel: the sentences, each with its answer</summary>"
            f"<ol>{rows}</ol></details>"
        )


def verdict(sentence: Sentence) -> str:
    """Return what holds, as it is said to a learner: "it is false", "only if D = 1"."""
    fixed = {TRUE: "it is true", FALSE: "it is false"}
    return fixed.get(sentence.right, sentence.right)


def opening(text: str) -> str:
    """Return a text that begins with a capital letter, and is as it was else: symbols keep theirs."""
    return text[:1].upper() + text[1:]


def inline_picture(figure: Figure | None) -> str:
    """Return a figure as an image in HTML that needs no file, empty where there is none."""
    if figure is None:
        return ""
    data = base64.b64encode(png_bytes(figure, dpi=110)).decode()
    alt, width = html.escape(text_alternative(figure)), round(figure.get_figwidth() * 80)
    return f'<img alt="{alt}" width="{width}" src="data:image/png;base64,{data}"/>'


def folded(sentence: Sentence) -> str:
    """Return a sentence as an item of a list in HTML, with its answer folded below it."""
    shown = sentence.shown()
    options = ", ".join(html.escape(option) for option in sentence.options)
    measured = html.escape(shown.text).replace("\n", "<br/>")
    return (
        f"<li>{html.escape(sentence.text)} <em>({options}?)</em><details><summary>Answer to {sentence.id}</summary>"
        f"<p><strong>{html.escape(opening(verdict(sentence)))}.</strong> {html.escape(sentence.explanation)}</p>"
        f"<p>Measured: {measured}</p>{inline_picture(shown.figure)}</details></li>"
    )
