"""Six numbers of the shipped dictionary: what is stored of them, how they are read live, pictures, guesses, explorer.

What is stored is measured by `benchmarks.first_features`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from IPython.display import Markdown
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.lessons.start_here.contents import lesson
from course_lib.measured import measured
from course_lib.teaching import Choice, Explorer, Slider, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY

if TYPE_CHECKING:
    from course_lib.language.corpus import Sentence

PART, MEANINGS = "first_features", 1500
FIRST, OTHERS = 1733, (143, 594, 656, 1213, 1984)
NAMES = {"en_XX": "English", "fr_XX": "French", "de_DE": "German", "es_XX": "Spanish"}
SHORT = {name: code[:2] for code, name in NAMES.items()}
COLORS = dict(zip(NAMES, (SKY, BLUE, GREEN, ORANGE), strict=True))
HATCHES = dict(zip(NAMES, ("", "//", "..", "xx"), strict=True))
SHOWN = 8
# What the benchmark chose as the name of each, on other sentences: a concept, and a language where it keeps to one.
MEANT = {
    1733: ("grammar:negation", None),
    143: ("grammar:negation", "fr_XX"),
    594: ("grammar:negation", "en_XX"),
    656: ("grammar:question", "es_XX"),
    1213: ("quality:cruel", None),
    1984: ("person:child", None),
}


def stored(number: int, name: str) -> Any:
    """Return a stored figure of a number."""
    return measured(PART, f"{number}: {name}")


@lru_cache(maxsize=1)
def drawn() -> list["Sentence"]:
    """Return the 6,000 held-out sentences of the stored lists: 1,500 meanings in each language."""
    from course_lib.language.corpus import LANGUAGES, draw_meanings, render

    meanings = draw_meanings(MEANINGS, seed=29, split="test")
    return [render(meaning, language) for language in LANGUAGES for meaning in meanings]


def sentences_at(number: int, share: int) -> list[tuple[str, str, float]]:
    """Return eight neighbours of the list, strongest first: language, text and strength; `share` % of the way down."""
    rows = stored(number, "sentences by place")[str(share)]
    return [(NAMES[drawn()[i].language], drawn()[i].text, value) for i, value in rows]


def strongest(number: int) -> Markdown:
    """Return the table of the eight sentences in which a number is largest."""
    rows = []
    for i, value in stored(number, "sentences by place")["0"]:
        # English comes first among the languages.
        rows.append((f"{value:.2f}", NAMES[drawn()[i].language], drawn()[i].text, drawn()[i % MEANINGS].text))
    return markdown_table([f"number {number}", "language", "sentence", "in English"], rows)


def five_more() -> Markdown:
    """Return the table of the other numbers: the language of their eight strongest sentences, and the first of them."""
    rows = []
    for number in OTHERS:
        languages = ", ".join(sorted({language for language, _, _ in sentences_at(number, 0)}))
        first = stored(number, "sentences by place")["0"][0][0]
        rows.append((number, languages, drawn()[first].text, drawn()[first % MEANINGS].text))
    return markdown_table(["number", "all eight in", "the strongest", "in English"], rows)


def said_and_denied() -> Markdown:
    """Return a table, read live: one meaning in four languages, stated and denied, and three numbers' strengths."""
    from course_lib.language.corpus import LANGUAGES, draw_meanings, render

    simple = (
        meaning
        for meaning in draw_meanings(400, seed=0, split="test")
        if meaning.object and not (meaning.question or meaning.recipient or meaning.place or meaning.time)
    )
    meaning = next(meaning for meaning in simple if meaning.tense == "present")
    sentences = [render(replace(meaning, negated=denied), one) for denied in (False, True) for one in LANGUAGES]
    shown = (FIRST, 143, 594)
    rows = [
        (sentence.text, *(f"{float(row[number]):.1f}" for number in shown))
        for sentence, row in zip(sentences, strengths(sentences), strict=True)
    ]
    return markdown_table(["sentence", *shown], rows)


def f1_of(active: Bool[Tensor, " sentences"], holds: Bool[Tensor, " sentences"]) -> float:
    """Return the F1 of a name: 2 hits over (2 hits + misses + false alarms)."""
    return float(2 * (active & holds).sum() / (active.sum() + holds.sum()))


@lru_cache(maxsize=1)
def _model_and_dictionary() -> tuple:
    from course_lib.mbart.model import load
    from course_lib.sae.course_dictionary import course_dictionary

    return *load("course-mbart"), course_dictionary()


def strengths(sentences: Sequence["Sentence"]) -> Float[Tensor, "sentences numbers"]:
    """Read sentences with the shipped model and dictionary: the largest value of each number over a sentence's tokens.

    The first call takes some seconds, in which the model is loaded.
    """
    from course_lib.lessons.mbart_to_sparse_features.material import read_text

    return read_text(*_model_and_dictionary(), sentences).scores


@lesson.figure(
    ["what it could have found", "strength in negated sentences"],
    ["F1", "strength of number 1733"],
    ["name", "% of the sentences"],
    size=(8.4, 3.2),
    grid=(1, 2),
    legend=[None, {"loc": "upper left", "fontsize": 8}],
    xlim=[(0, 1.2), (0.45, 1.4)],
    xticks=[(0, 0.5, 1), None],
    ylim=[None, (0, 48)],
    subplots={"width_ratios": (1, 1.5)},
)
def plot_negation(guesses, strength):
    """Draw the F1 of four guesses, and how strong the number is in negated sentences of each kind."""
    scores = measured(PART, "F1 of four guesses")
    names = list(scores)[::-1]
    guesses.barh(range(len(names)), [scores[name] for name in names], color=BLUE, height=0.6)
    guesses.set_yticks(range(len(names)), [name.replace("negated ", "negated\n") for name in names])
    for row, name in enumerate(names):
        guesses.plot([by_chance(name)] * 2, [row - 0.4, row + 0.4], ":", color=BLACK, linewidth=1.5)
        guesses.text(scores[name] + 0.02, row, f"{scores[name]:.3f}", va="center", fontsize=8)
    edges = np.array(measured(PART, "edges"))
    looks = zip(negated_kinds().items(), (ORANGE, PURPLE, BLUE, BLACK), ("-", ":", "--", "-."), strict=True)
    for (label, counts), color, style in looks:
        strength.stairs(100 * counts / counts.sum(), edges, color=color, linestyle=style, linewidth=1.6, label=label)
    strength.axvspan(sentences_at(FIRST, 0)[-1][2], edges[-1], color="0.9", zorder=0)
    strength.text(1.395, 26, "the eight", ha="right", fontsize=8)
    return (
        "Left: how well four names agree with number 1733; 1 is perfect, and a dotted line is the F1 of a random name, true "
        "of equally many sentences. Right: its strength in the negated sentences of each kind. The grey strip "
        "holds the eight strongest."
    )


def by_chance(name: str) -> float:
    """Return the F1 of a name that is true of as many sentences as this one, but of random sentences."""
    true, active, all_of_them = measured(PART, "true of")[name], stored(FIRST, "active"), measured(PART, "sentences")
    return 2 * true * active / all_of_them / (true + active)


def negated_kinds() -> dict[str, np.ndarray]:
    """Return the stored counts of the first number's strengths in negated sentences, by kind."""
    groups = {"Spanish": ["es_XX"], "other": [one for one in NAMES if one != "es_XX"]}
    return {
        f"{name} {kind}s": np.sum([measured(PART, f"strengths, negated {kind}, {one}") for one in languages], axis=0)
        for name, languages in groups.items()
        for kind in ("question", "statement")
    }


@lesson.figure(
    "the languages of all sentences in which a number is active",
    "share of these sentences, %",
    "number",
    size=(7.4, 2.9),
    legend={"loc": "upper center", "bbox_to_anchor": (0.5, -0.22), "ncols": 4, "fontsize": 8, "frameon": False},
    xlim=(0, 100),
)
def plot_languages(axes):
    """Draw, for each number, in which languages it is active."""
    numbers = (FIRST, *OTHERS)
    for row, number in enumerate(numbers):
        share, left = np.array(stored(number, "share active")), 0.0
        for language, part in zip(NAMES, 100 * share / share.sum(), strict=True):
            axes.barh(
                row,
                part,
                left=left,
                height=0.66,
                color=COLORS[language],
                hatch=HATCHES[language],
                edgecolor="white",
                label=NAMES[language] if row == 0 else None,
            )
            left += part
    axes.set_yticks(range(len(numbers)), [str(number) for number in numbers])
    axes.invert_yaxis()
    axes.grid(False)
    return (
        "The same 1,500 meanings in each language. Numbers 143, 594 and 656 keep to one of them but for a few sentences; "
        "1733, 1213 and 1984 are active in all four alike."
    )


@lesson.explorer
class NumberExplorer(Explorer):
    """The sentences in which a number is active, from the strongest to the weakest."""

    title = "Further down the list"
    summary = "Eight sentences in which the chosen number is active, from its list with the strongest first."
    number = Choice("number", "One of six numbers", str(FIRST), tuple(map(str, (FIRST, *OTHERS))))
    place = Slider("further down", "", "0 is the top of the list, 100 its end", 0, 0, 100, 10, unit="%")
    strip_dpi = 90
    stills = ({"place": 0}, {"place": 10}, {"number": "1984", "place": 50})
    size = (8.0, 2.7)
    together = ("number", "place")
    layout = panels(
        None,
        "strength, language, sentence",
        "one a row",
        legend=None,
        xlim=(0, 1),
        ylim=(SHOWN - 0.4, -0.6),
        xticks=[()],
        yticks=[()],
    )

    def compute(self, *, number, place):
        """Return the eight sentences at a place of the list."""
        if place % 10:
            raise ValueError(f"place must be a multiple of 10, got {place}")
        found = sentences_at(int(number), place)
        return {
            "number": int(number),
            "place": place,
            "found": found,
            "lines": [f"{value:.2f}  {SHORT[language]}  {text}" for language, text, value in found],
        }

    def draw(self, axes):
        """Draw lines to be filled."""
        axes.grid(False)
        return {"lines": [axes.text(0.01, row, "", va="center", fontsize=8.5, color=BLACK) for row in range(SHOWN)]}

    def words(self, state):
        """Say where in the list this is, and which languages the eight sentences are in."""
        said = [language for language, _, _ in state["found"]]
        counts = ", ".join(f"{said.count(name)} {name}" for name in NAMES.values() if name in said)
        active = stored(state["number"], "active")
        first = round((active - SHOWN) * state["place"] / 100) + 1
        where = f"sentences {first:,} to {first + SHOWN - 1:,} of the {active:,}"
        return f"Number {state['number']}, {where} in which it is active: {counts}."


found_prediction = lesson.prediction(
    "00.P1",
    "What has number 1733 found?",
    {
        "Spanish": "It is active in a quarter of the Spanish sentences only, and in as many English ones.",
        "Questions": "It is silent in most questions, and active in many statements.",
        "Negation": right("It is active where something is denied, in four languages, asked or stated."),
        "Spanish questions that are negated": "These are where it is strongest. It is active in hundreds of others.",
    },
    reveal=plot_negation,
)

language_prediction = lesson.prediction(
    "00.P2",
    "For how many of the five is the language a part of what was found, so that the number stays silent when another "
    "language says the same?",
    {
        "For none": "Look at the languages of all sentences in which each is active: some have only one.",
        "For two": "One more.",
        "For three": right("Two find the word for “not” in one language, one finds questions in one language."),
        "For all five": "Two of them are active in four languages alike.",
    },
    reveal=plot_languages,
)

FIGURES = lesson.figures
