"""Figures, explorers and predictions of lesson 39, real_language.

Shaded sentences are read by the model when the page runs; what is counted in the manual comes from stored runs.
"""

import numpy as np
import torch
from matplotlib.patches import Rectangle

from course_lib.lessons.real_language.contents import lesson
from course_lib.lessons.real_language.material import (
    ENGLISH,
    LANGUAGES,
    NAMES,
    OTHERS,
    OWN_WORDS,
    REACHED,
    OwnText,
    at_ceiling,
    ceilings,
    detector,
    feature_f1,
    median_f1,
    own_text,
    share_at_ceiling,
    told_word_f1,
)
from course_lib.measured import measured
from course_lib.teaching import Choice, Explorer, Slider, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY

GREY, PALE = "0.45", "0.88"
COLOURS = {"de_DE": BLUE, "fr_XX": ORANGE, "es_XX": GREEN}
MARKS = {"de_DE": "o", "fr_XX": "s", "es_XX": "^"}
MOST = 24  # tokens of a sentence that are drawn
LETTER = 0.9  # width of a letter
ROWS = 4
LETTER_WORDS = (
    "cell",
    "sheet",
    "button",
    "window",
    "field",
    "paragraph",
    "line",
    "value",
    "save",
    "select",
    "open",
    "display",
)


def shaded_lines(axes, rows, threshold: float):
    """Draw sentences, a line each, every piece on a ground as dark as its activation; at three thresholds it is full."""
    for r, (name, pieces, values) in enumerate(rows):
        axes.text(0.5, r + 0.5, name, va="center", fontsize=10, fontweight="bold")
        for (column, width, text), value in zip(_laid_out(pieces), values, strict=False):
            alpha = _alpha(value, threshold)
            axes.add_patch(Rectangle((column, r + 0.16), width, 0.68, color=RED, alpha=alpha, linewidth=0))
            axes.text(column, r + 0.5, text, va="center", fontsize=10, family="monospace", parse_math=False)


def _laid_out(pieces) -> list[tuple[float, float, str]]:
    """Where each piece of a line stands, how wide it is, and its letters."""
    places, column = [], 11.0
    for piece in pieces[:MOST]:
        text = piece.lstrip("▁")
        column += LETTER * (len(piece) - len(text))
        places.append((column, LETTER * len(text), text))
        column += LETTER * len(text)
    return places


def _alpha(value: float, threshold: float) -> float:
    return 0.8 * min(value / (3 * threshold), 1)


def _own_rows(read: OwnText, meaning: int, word: str) -> list[tuple[str, list[str], list[float]]]:
    return [
        (NAMES[code], *read.tokens(len(LANGUAGES) * meaning + place, detector(word).feature))
        for place, code in enumerate(LANGUAGES)
    ]


@lesson.figure(bare=True, size=(9.4, 2.3), legend=None, example=own_text, xlim=(0, 98), ylim=(4.1, -0.1))
def plot_own(axes, read: OwnText, word: str = "cell", meaning: int = 1):
    """Shade one sentence in four languages by the activation of a word's feature."""
    rows = _own_rows(read, meaning, word)
    shaded_lines(axes, rows, detector(word).threshold)
    top = [f"{name} at “{p[int(np.argmax(v))].lstrip('▁')}” {max(v):.2f}" for name, p, v in rows]
    return (
        f"Feature {detector(word).feature} at the pieces of one sentence in four languages, darker where it is larger. "
        f"Largest: {', '.join(top)}; threshold {detector(word).threshold:.2f}."
    )


@lesson.figure(
    "The probe of the words, told everything", "words, sorted for each language", "F1 on held-out paragraphs",
    size=(6.6, 3.6), ylim=(0, 1.02),
)  # fmt: skip
def plot_ceiling(axes):
    """Sort the words by their ceiling in each language."""
    said = []
    for code, line in zip(OTHERS, ("-", "--", ":"), strict=True):
        values = np.array(list(ceilings(code).values()))
        axes.plot(np.sort(values)[::-1], linestyle=line, marker="", color=COLOURS[code], label=NAMES[code])
        said.append(f"{NAMES[code]} median {np.median(values):.2f}, {(values >= 0.9).sum()} of {len(values)} at 0.9")
    axes.axhline(0.9, color=GREY, linestyle="-", linewidth=0.8)
    return "The F1 of the probe, a word each, in falling order: " + "; ".join(said) + "."


@lesson.figure(
    "Features beside the probe", "F1 of the probe of the words", "F1 of the feature named in English",
    size=(6.0, 4.6), xlim=(0, 1.02), ylim=(0, 1.02),
)  # fmt: skip
def plot_reached(axes):
    """Set the feature of each word beside the ceiling, a point a word and language."""
    said = []
    for code in OTHERS:
        probe, found = (np.array(list(of(code).values())) for of in (ceilings, feature_f1))
        axes.plot(probe, found, linestyle="", marker=MARKS[code], markersize=4, color=COLOURS[code], label=NAMES[code])
        said.append(f"{NAMES[code]} {100 * (found >= REACHED * probe).mean():.0f}%")
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="-", linewidth=0.8, label="as good as the probe")
    axes.plot([0, 1], [0, REACHED], color=GREY, linestyle="--", linewidth=1, label="0.9 of it")
    return f"Words whose feature has at least 0.9 of the probe's F1: {', '.join(said)}."


@lesson.figure(
    "Letters say it roughly", "share of the paragraphs whose English version has “cell” or “cells”, %", "version: words",
    size=(7.4, 2.6), legend=None, xlim=(0, 112),
)  # fmt: skip
def plot_cells(axes):
    """Show how many of the paragraphs with "cell" have its usual translation."""
    n = measured("real_words", "cell or cells: paragraphs")
    rows = [
        ("German: Zelle, Zellen", "cell or cells: of these with zelle or zellen, de_DE"),
        ("German: the letters zell", "cell or cells: of these with the letters zell, de_DE"),
        ("French: cellule, cellules", "cell or cells: of these with cellule or cellules, fr_XX"),
        ("Spanish: celda, celdas", "cell or cells: of these with celda or celdas, es_XX"),
    ]
    values = [100 * measured("real_words", name) / n for _, name in rows]
    places = np.arange(len(rows))[::-1]
    axes.barh(places, values, color=[BLUE, SKY, ORANGE, GREEN], height=0.6)
    axes.set_yticks(places, [label for label, _ in rows])
    for place, value in zip(places, values, strict=True):
        axes.text(value + 1, place, f"{value:.0f}%", va="center")
    axes.grid(visible=False)
    return (
        f"Of {n:,} paragraphs: "
        + ", ".join(f"{label} {value:.0f}%" for (label, _), value in zip(rows, values, strict=True))
        + "."
    )


ARMS = {
    "features": ("features", BLUE),
    "LDA refitted, tuned elsewhere": ("LDA refitted", ORANGE),
    "LDA, tuned elsewhere": ("LDA", SKY),
    "difference of means": ("difference of means", GREEN),
    "random features": ("random features", GREY),
    "neurons": ("neurons", GREY),
    "principal components": ("principal components", GREY),
    "word pieces": ("word pieces", PURPLE),
    "features, untrained model": ("features of the untrained model", RED),
}


@lesson.figure(
    ["Not spelled alike", "Spelled alike somewhere"],
    ["words with 0.9 of the ceiling in all three, %"] * 2,
    ["arm, named in English"] * 2,
    grid=(1, 2), size=(10.4, 4.4), legend=None, xlim=[(-3, 103), (-3, 103)],
)  # fmt: skip
def plot_named(left, right_):
    """Draw the share of the words that an arm, named in English, finds in all three other languages; a point a seed."""
    said = []
    for axes, translated in ((left, True), (right_, False)):
        for place, (label, (arm, colour)) in enumerate(ARMS.items()):
            values = at_ceiling(arm, translated=translated)
            axes.plot(values, [-place] * len(values), linestyle="", marker="o", markersize=5, color=colour, alpha=0.6)
            axes.plot([np.median(values)], [-place], linestyle="", marker="|", markersize=16, color=colour)
            if translated:
                said.append(f"{label} {np.median(values):.0f}%")
        axes.set_ylim(-len(ARMS) + 0.4, 0.6)
        axes.set_yticks([-i for i in range(len(ARMS))], list(ARMS) if translated else [""] * len(ARMS))
    return "Medians over five seeds, words that are not spelled alike: " + ", ".join(said) + "."


def own_table(read: OwnText):
    """Return what the features of eight words call among the page's sentences, as a table."""
    rows = []
    for word in OWN_WORDS:
        counted = read.counts(word)
        cells = [f"{hit} of {n}" + (f", {false} false" if false else "") for hit, n, false in counted.values()]
        rows.append((word, detector(word).feature, *cells))
    return markdown_table(("word", "feature", *(NAMES[code] for code in LANGUAGES)), rows)


def arms_table():
    """Return the median F1 of each arm in each language, words not spelled alike, as a table."""
    rows = []
    for label, (arm, _) in ARMS.items():
        rows.append((label, *(f"{np.median(median_f1(arm, code)):.2f}" for code in LANGUAGES)))
    ceiling = [measured("real_text", f"translated: ceiling: median F1, {code}") for code in LANGUAGES]
    return markdown_table(
        ("named in English", *(NAMES[code] for code in LANGUAGES)),
        [*rows, ("ceiling", *(f"{value:.2f}" for value in ceiling))],
    )


def both_table():
    """Return how the arms do with labels of all languages, as a table."""
    rows = []
    for label, (arm, _) in ARMS.items():
        shares = [np.median(at_ceiling(arm, label=how)) for how in (ENGLISH, "named in all languages")]
        rows.append((label, *(f"{share:.0f}%" for share in shares)))
    rows.append(("the best word of each language", "", f"{share_at_ceiling(told_word_f1):.0f}%"))
    return markdown_table(("0.9 of the ceiling in German, French and Spanish", *LABELLED), rows)


LABELLED = ("labels of English paragraphs", "labels of all four languages")


def words_table(worst: int = 8):
    """Return the words with the smallest and the largest share of the probe's F1, in their worst language, as a table."""
    ratios = {
        word: {code: feature_f1(code)[word] / ceilings(code)[word] for code in OTHERS} for word in feature_f1("de_DE")
    }
    order = sorted(ratios, key=lambda word: min(ratios[word].values()))
    rows = [
        (word, *(f"{feature_f1(code)[word]:.2f} of {ceilings(code)[word]:.2f}" for code in OTHERS))
        for word in (*order[:worst], *order[-worst:])
    ]
    rows.insert(worst, ("...", "", "", ""))
    return markdown_table(("word", *(NAMES[code] for code in OTHERS)), rows)


KINDS = {
    "topk": "TopK",
    "batchtopk": "BatchTopK",
    "matryoshka-batchtopk": "Matryoshka BatchTopK",
    "relu": "ReLU + L1",
    "gated": "gated",
    "gba": "GBA",
}


def _spread(values: list[float], digits: int = 0) -> str:
    """The median of some runs with the smallest and the largest."""
    return f"{np.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def kinds_table(text: str):
    """Return what each kind of dictionary finds in the "real" text or in the "built" one, as a table."""
    rows = []
    for kind, name in KINDS.items():
        setting = measured("real_kinds", f"{text}: {kind}: setting")
        stored = lambda what, kind=kind: measured("real_kinds", f"{text}: {kind}: {what}")  # noqa: E731
        rows.append(
            (
                name,
                " to ".join(f"{value:g}" for value in setting) if isinstance(setting, list) else f"{setting:g}",
                _spread(stored("active features")),
                _spread(stored("dead features")),
                _spread(stored("variance explained, %")),
                _spread(stored("0.9 of the ceiling, en_XX, %")),
                _spread(stored("0.9 of the ceiling in the three others, %")),
            )
        )
    return markdown_table(
        ("kind", "its setting", "active", "dead", "variance, %", "words in English, %", "in the three others, %"), rows
    )


CAUSES = {
    "off: difference of means": "off: difference of two means",
    "off: LDA refitted": "off: LDA refitted",
    "off: its features": "off: all features that fire mostly with the word",
    "off: feature": "off: the word's feature",
    "off: another feature, as far": "control: another active feature, as far",
    "off: random, as far": "control: a random direction, as far",
    "exchanged: difference of means": "exchanged: difference of two means",
    "exchanged: its features": "exchanged: all its features for the other's one",
    "exchanged: feature": "exchanged: feature for feature",
}


def causes_table():
    """Return what happens to translations when a word is switched off or exchanged, as a table."""
    rows = [
        (
            label,
            *(_spread(measured("real_causes", f"{arm}: {what}")) for what in ("hits, %", "gone, %", "rest kept, %")),
        )
        for arm, label in CAUSES.items()
    ]
    return markdown_table(("edit", "hits, %", "word gone, %", "rest kept, %"), rows)


# --- Explorers -----------------------------------------------------------------------------------------


class LettersExplorer(Explorer):
    """Look for an English word in another language by the first letters of its usual translation."""

    title = "Letters for a word"
    summary = (
        "Of the paragraphs that have the first n letters of the word's best translation: how many hold the English word "
        "(precision), how many with the word have these letters (recall), and F1. The marks stand at the chosen n."
    )
    word = Choice("English word", "Which word the English version has", "button", LETTER_WORDS)
    language = Choice(
        "language", "In which language the letters are looked for", "German", tuple(NAMES[c] for c in OTHERS)
    )
    letters = Slider("letters", "n", "How many letters from the start of the translation", 3, 1, 12, 1)
    size = (7.6, 3.9)

    def compute(self, *, word, language, letters):
        """Return precision, recall and F1 for every number of letters, and the letters at the chosen one."""
        code = next(code for code in OTHERS if NAMES[code] == language)
        ((best, counts),) = measured("real_words", f"{word}: first letters of its translation, {code}").items()
        counted = np.array(counts, dtype=float)
        total = measured("real_words", f"{word}: paragraphs")
        n = min(letters, len(best))
        precision, recall = counted[:, 1] / counted[:, 0], counted[:, 1] / total
        return {
            "word": word,
            "language": language,
            "best": best,
            "n": n,
            "total": total,
            "called": int(counted[n - 1, 0]),
            "both": int(counted[n - 1, 1]),
            "precision": precision,
            "recall": recall,
            "f1": 2 * counted[:, 1] / (counted[:, 0] + total),
        }

    layout = panels(
        "Letters of the translation",
        "letters n",
        "share of the paragraphs",
        xlim=(0.7, 12.3),
        ylim=(0, 1.03),
        legend="best",
    )

    def draw(self, axes):
        """Draw three empty curves, their marks and the letters."""
        looks = {"precision": (BLUE, "--"), "recall": (ORANGE, ":"), "f1": (BLACK, "-")}
        artists = {}
        for name, (colour, line) in looks.items():
            shown = "F1" if name == "f1" else name
            (artists[name],) = axes.plot([], [], color=colour, linestyle=line, marker=".", label=shown)
            (artists[f"{name} mark"],) = axes.plot([], [], color=colour, linestyle="", marker="o", markersize=9)
        artists["text"] = axes.text(
            0.98, 0.03, "", transform=axes.transAxes, ha="right", fontsize=11, family="monospace", parse_math=False
        )
        return artists

    def update(self, artists, state):
        """Set curves, marks and letters."""
        steps = np.arange(1, len(state["best"]) + 1)
        for name in ("precision", "recall", "f1"):
            artists[name].set_data(steps, state[name])
            artists[f"{name} mark"].set_data([state["n"]], [state[name][state["n"] - 1]])
        artists["text"].set_text(
            f"{state['best'][: state['n']]}…" if state["n"] < len(state["best"]) else state["best"]
        )

    def words(self, state):
        """Say the counts at the chosen number of letters."""
        i, best = state["n"] - 1, state["best"]
        return (
            f"“{best[: state['n']]}” stands in {state['called']:,} {state['language']} paragraphs; {state['both']:,} of "
            f"them hold “{state['word']}”, and {state['total']:,} paragraphs do: precision {state['precision'][i]:.2f}, "
            f"recall {state['recall'][i]:.2f}, F1 {state['f1'][i]:.2f}"
        )


class OwnTextExplorer(Explorer):
    """Shade one of the page's sentences, in four languages, by the feature of a word."""

    title = "One feature, four languages"
    summary = (
        "Each line is the same sentence in another language. Darker background: larger activation of the feature; at three "
        "times the threshold it is full."
    )
    word = Choice("feature of", "Whose feature shades the sentence", "file", OWN_WORDS)
    row = Slider("sentence", "s", "Which of the page's sentences is shaded", 5, 1, 32, 1)
    size = (9.4, 2.5)
    strip_scale = 1.0

    def __init__(self, of: OwnText | None = None):
        self.read = of or own_text()
        super().__init__()

    def compute(self, *, word, row):
        """Return the pieces of the sentence in each language, and the feature's activation at each."""
        rows = _own_rows(self.read, row - 1, word)
        one = detector(word)
        return {
            "word": word,
            "feature": one.feature,
            "threshold": one.threshold,
            "names": [name for name, _, _ in rows],
            "pieces": [pieces for _, pieces, _ in rows],
            "values": [torch.tensor(values) for _, _, values in rows],
        }

    layout = panels(bare=True, legend=None, xlim=(0, 98), ylim=(ROWS + 0.1, -0.1))

    def draw(self, axes):
        """Draw empty places for pieces."""
        mono = {"va": "center", "fontsize": 10, "family": "monospace", "parse_math": False}
        return {
            "names": [axes.text(0.5, r + 0.5, "", va="center", fontsize=10, fontweight="bold") for r in range(ROWS)],
            "grounds": [axes.add_patch(Rectangle((0, 0), 0, 0, color=RED, linewidth=0)) for _ in range(ROWS * MOST)],
            "pieces": [axes.text(0, 0, "", **mono) for _ in range(ROWS * MOST)],
        }

    def update(self, artists, state):
        """Set pieces and grounds."""
        for r in range(ROWS):
            artists["names"][r].set_text(state["names"][r])
            places = _laid_out(state["pieces"][r])
            for k in range(MOST):
                column, width, text = places[k] if k < len(places) else (0.0, 0.0, "")
                value = float(state["values"][r][k]) if k < len(places) else 0.0
                ground = artists["grounds"][MOST * r + k]
                ground.set_bounds(column, r + 0.16, width, 0.68)
                ground.set_alpha(_alpha(value, state["threshold"]))
                artists["pieces"][MOST * r + k].set(text=text, x=column, y=r + 0.5)

    def words(self, state):
        """Say where the feature is largest in each language, and whether it calls the sentence."""
        said = []
        for name, pieces, values in zip(state["names"], state["pieces"], state["values"], strict=True):
            top = int(values.argmax())
            if float(values[top]) == 0:
                said.append(f"{name} nowhere active, not called")
                continue
            calls = "called" if float(values[top]) > state["threshold"] else "not called"
            said.append(f"{name} {float(values[top]):.2f} at “{pieces[top].lstrip('▁')}”, {calls}")
        return f"Feature {state['feature']} of “{state['word']}”, threshold {state['threshold']:.2f}: {'; '.join(said)}"


EXPLORERS = (LettersExplorer, OwnTextExplorer)


# --- Predictions ---------------------------------------------------------------------------------------

ask_cells = lesson.prediction(
    "39.P1",
    "1,469 English paragraphs of the manual have *cell* or *cells*. Of their German versions, how many have *Zelle* or "
    "*Zellen* as a word?",
    {
        "Nearly all, 98%": "French and Spanish are near that. German builds compounds: *Zellbereich* is one word and no "
        "*Zelle*.",
        "Three of four": right("German builds compounds: *Zellbereich*, cell range, is one word and no *Zelle*."),
        "Half": "Compounds take a good part of them, but not half.",
        "One of four": "Translators are not that free with the words of a manual.",
    },
    reveal=plot_cells,
)

ask_ceiling = lesson.prediction(
    "39.P2",
    "A probe is told, for each word, which German training paragraphs hold it, and reads the 2,000 most frequent German "
    "words. On held-out paragraphs, for how many of the 87 words does it reach F1 0.9 in German?",
    {
        "About 70": "That would need translators who always choose the same word.",
        "About 45": "Half would need translators who mostly choose the same word, and no compounds.",
        "About 10": right(
            "No text decides more: translators vary their words, and German compounds are words of their own."
        ),
        "None": "A few words do have one fixed translation.",
    },
    reveal=plot_ceiling,
)

ask_named = lesson.prediction(
    "39.P3",
    "Each word's feature is chosen on English paragraphs alone. For which share of the 87 words does it reach 0.9 of the "
    "ceiling in German, in French *and* in Spanish?",
    {
        "Less than 5%": "So it is for neurons, and for the features of a model with random weights.",
        "About 15%": "Named in English, most features are near the ceiling in one language. All three at once is harder.",
        "About 45%": right("The feature was made without a label of any language, and named in one."),
        "More than 90%": "A manual has small and general words, and words that another language divides otherwise.",
    },
    reveal=plot_named,
)

FIGURES = lesson.figures
