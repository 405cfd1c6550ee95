"""Figures, explorer and predictions of lesson 38, using_features.

What is drawn is measured by `measurements`, on the model and the dictionary that are shipped.
"""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from textwrap import fill
from typing import Any

import numpy as np
import torch
from IPython.display import Markdown
from matplotlib.patches import FancyArrowPatch, Rectangle
from torch import Tensor

from course_lib.interpret.outcomes import Outcome
from course_lib.lessons.using_features.contents import lesson
from course_lib.lessons.using_features.measurements import (
    CONCEPTS,
    NUMBER,
    OTHER_LANGUAGES,
    PUSHES,
    TEXT,
    Setting,
    multiply,
    setting,
)
from course_lib.measured import measured
from course_lib.teaching import Choice, Explorer, Slider, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, ORANGE, PURPLE, RED, SKY

NAMES = {"en_XX": "English", "fr_XX": "French", "de_DE": "German", "es_XX": "Spanish"}
PALE, GREY = "0.88", "0.45"


def word_of(concept: str) -> str:
    """The concept's name without its kind."""
    return concept.partition(":")[2]


def named(setting: Setting, feature: int) -> str:
    """The word that a feature detects best among those it is the detector of, or "no name"."""
    own = [c for c in setting.good() if int(setting.detector[NUMBER[c]]) == feature]
    best = max(own, key=lambda c: float(setting.f1_train[NUMBER[c]]), default=None)
    return "no name" if best is None else f"“{word_of(best)}”"


def changed_words(before: str, after: str) -> list[tuple[str, bool]]:
    """The words of the second translation, each with whether it differs from the first; signs are words of their own."""
    a, b = _split(before), _split(after)
    differs = [True] * len(b)
    for block in SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks():
        differs[block.b : block.b + block.size] = [False] * block.size
    return list(zip(b, differs, strict=True))


def _split(text: str) -> list[str]:
    """Words with the signs after them as words of their own, so that a full stop does not mark the word before it."""
    return text.replace(".", " .").replace("?", " ?").replace(",", " ,").split()


def shown_words(before: str, after: str) -> list[tuple[str, bool]]:
    """The words of `changed_words`, followed by "(–)" if words were only left out."""
    words = changed_words(before, after)
    only_lost = after != before and not any(differs for _, differs in words)
    return [*words, ("(–)", False)] if only_lost else words


def marked(before: str, after: str) -> str:
    """The second translation with the words that differ in bold; what was only left out is marked by "(–)"."""
    words = shown_words(before, after)
    return " ".join(f"**{word}**" if differs else word for word, differs in words).replace(" .", ".")


def sentence_table(
    setting: Setting, rows: Mapping[str, Mapping[int, float | int]], targets: Sequence[str] = OTHER_LANGUAGES
) -> Markdown:
    """Return the sentence's translations under some changes as a table; words that differ are bold."""
    plain = setting.translate(TEXT, "en_XX", targets, {})
    found = [("nothing changed", *plain)]
    for label, factors in rows.items():
        after = setting.translate(TEXT, "en_XX", targets, factors)
        found.append((label, *("the same" if a == b else marked(a, b) for a, b in zip(plain, after, strict=True))))
    return markdown_table(("", *(NAMES[target] for target in targets)), found)


# --- The pipeline on one line ------------------------------------------------------------------------


def at_word(setting: Setting, concept: str) -> tuple[list[str], int, Tensor, Tensor]:
    """The sentence's tokens, the place of the first one of a word, and state and code there."""
    tokens, states, code = setting.read(TEXT, "en_XX")
    place = next(i for i, token in enumerate(tokens) if token.lstrip("▁").startswith(word_of(concept)))
    return tokens, place, states[place], code[place]


@lesson.figure(bare=True, size=(9.6, 3.2), legend=None, example=setting, xlim=(0, 112), ylim=(2, 33))
def plot_line(axes, setting: Setting, concept: str = "food:apple"):
    """Draw one token's path: its state, its code with one feature turned, and what the model then writes."""
    tokens, place, state, own = at_word(setting, concept)
    active = own.argsort(descending=True)[: int((own > 0).sum())]
    turned, target = int(setting.detector[NUMBER[concept]]), OTHER_LANGUAGES[0]
    after = setting.translate(TEXT, "en_XX", [target], {turned: -1})[0]
    axes.text(0, 31, "tokens", fontweight="bold", va="top")
    for i, token in enumerate(tokens):
        held = i == place
        axes.text(
            1, 27 - 2.15 * i, token.replace("▁", " ").strip() or token, va="center", fontsize=9,
            color=BLUE if held else GREY, fontweight="bold" if held else "normal",
        )  # fmt: skip
    axes.text(19, 31, f"state of “{tokens[place].lstrip('▁')}”", fontweight="bold", va="top")
    values = state[:48].numpy() / float(state.abs().max())
    for i, value in enumerate(values):
        axes.add_patch(Rectangle((19 + 0.42 * i, 16), 0.3, 6 * value, color=GREY))
    axes.text(19, 8, f"{len(state)} numbers\n(48 are drawn)", va="top", fontsize=9)
    axes.text(50, 31, f"code: {len(active)} of {len(own):,} features", fontweight="bold", va="top")
    axes.plot([50, 50], [5.5, 28], color=GREY, linewidth=0.8, linestyle="-")
    for i, feature in enumerate(active.tolist()):
        length, height = 10 * float(own[feature]) / float(own.max()), 26.2 - 2.7 * i
        changed = feature == turned
        look = {"facecolor": "white", "edgecolor": RED, "linestyle": "--"} if changed else {"color": SKY}
        axes.add_patch(Rectangle((50, height - 0.9), length, 1.8, **look))
        if changed:
            axes.add_patch(Rectangle((50 - length, height - 0.9), length, 1.8, color=RED))
        label = f"{feature}: {named(setting, feature)}" + (", times -1" if changed else "")
        axes.text(61, height, label, va="center", fontsize=9, color=RED if changed else BLACK)
    for start, end in (((12, 16), (18, 16)), ((41, 16), (49, 16)), ((74, 16), (78.5, 16)), ((89.5, 16), (92.5, 16))):
        axes.add_patch(
            FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=14, color=BLACK, shrinkA=0, shrinkB=0)
        )
    axes.text(
        84, 16, "back into\nthe state:\nhow?", ha="center", va="center", fontsize=9,
        bbox={"boxstyle": "round,pad=0.4", "fc": "white", "ec": BLACK},
    )  # fmt: skip
    axes.text(45, 17.5, "encode", ha="center", fontsize=9)
    axes.text(93.5, 31, "the model writes", fontweight="bold", va="top")
    axes.text(93.5, 16, fill(after, 18), va="center", fontsize=9)
    return (
        f"The state of “{word_of(concept)}”, its code with {len(active)} active features, the detector turned from the "
        f"dashed bar to its opposite, and what the model writes: “{after}”."
    )


# --- What carries a word -----------------------------------------------------------------------------


def shares_of_way(setting: Setting, concept: str) -> list[tuple[str, float]]:
    """How far each part of a word's mean state goes along the way from its kind's mean to it, in shares; sum 1."""
    i = NUMBER[concept]
    way = setting.table.state[i] - setting.of_kind[i]
    weights = setting.autoencoder.decoder_weight.T * setting.autoencoder.input_scale
    each = setting.more_active[i] * (weights @ way) / way.square().sum()
    own, detector = setting.features(0.1)[i], int(setting.detector[i])
    others = own.clone()
    others[detector] = False
    parts = [("the detector", float(each[detector]))]
    order = (each * others).argsort(descending=True)[: int(others.sum())].tolist()
    parts += [(f"feature {feature}", float(each[feature])) for feature in order]
    return [*parts, ("not in S_a", 1 - sum(share for _, share in parts))]


def carried_example() -> tuple[Setting, list[str]]:
    """A few nouns of one kind."""
    made = setting()
    return made, [c for c in made.good() if c.startswith("food:")][:8]


@lesson.figure(
    "How much of the distance from “some food” to that food do a word's features cover?",
    "share of the distance from the mean of its kind to the word (%)",
    "word",
    size=(7.6, 3.2),
    legend=None,
    example=carried_example,
)
def plot_carried(axes, setting: Setting, concepts: Sequence[str]):
    """Draw, for some words, the way from their kind's mean state as a bar of what more active features add."""
    said = []
    for place, concept in enumerate(concepts):
        parts, left = shares_of_way(setting, concept), 0.0
        for k, (_, share) in enumerate(parts[:-1]):
            color = SKY if k else BLUE
            axes.barh(place, 100 * share, left=100 * left, height=0.7, color=color, edgecolor="white", linewidth=0.8)
            if k == 0:
                axes.text(50 * share, place, f"{100 * share:.0f}", va="center", ha="center", fontsize=8, color="white")
            left += share
        axes.barh(place, 100 * (1 - left), left=100 * left, height=0.7, facecolor="white", edgecolor=GREY, hatch="///")
        said.append(f"{word_of(concept)} {100 * parts[0][1]:.0f}, {100 * left:.0f}")
    axes.set_yticks(range(len(concepts)), labels=[word_of(c) for c in concepts])
    axes.set(xlim=(0, 104), ylim=(len(concepts) - 0.4, -0.6))
    axes.grid(axis="y", visible=False)
    handles = [
        Rectangle((0, 0), 1, 1, facecolor=face, edgecolor=edge, hatch=hatch, label=label)
        for face, edge, hatch, label in (
            (BLUE, "white", None, "its detector"),
            (SKY, "white", None, "other features in $S_a$"),
            ("white", GREY, "///", "all that is not in $S_a$"),
        )
    ]
    axes.figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return (
        "The distance from a kind's mean state to a word's, cut into what its detector, its other features and all else "
        f"add. In percent, detector and all its features: {'; '.join(said)}."
    )


# --- Outcomes ----------------------------------------------------------------------------------------


def example_outcomes() -> dict[str, dict[str, Outcome]]:
    """What the long runs stored for one feature and for all, beside controls."""
    return {group: {arm: stored(part, name) for arm, (part, name) in arms.items()} for group, arms in STORED.items()}


STORED = {
    "At the noun's tokens": {
        "its detector off": ("steering", "pushed 1: detector"),
        "its detector times -1": ("steering", "pushed 2: detector"),
        "all its features off": ("steering", "features off"),
    },
    "Another active feature": {
        "off": ("exchange", "off: another feature"),
        "pushed as far as detector off": ("steering", "pushed 1: another feature"),
        "pushed as far as detector times -1": ("steering", "pushed 2: another feature"),
        "pushed as far as all features off": ("steering", "pushed as far as features off: another feature"),
    },
    "A random push": {
        "as far as detector times -1": ("steering", "pushed 2: random"),
    },
}


def stored(part: str, name: str) -> Outcome:
    """Return what `python -m benchmarks` stored under a name."""
    return Outcome(**measured(part, name))


@lesson.figure(size=(8.0, 4.3), legend=None, example=lambda: (example_outcomes(),), x="sentences (%)", y="what is done")
def plot_arms(axes, groups: Mapping[str, Mapping[str, Outcome]]):
    """Draw how often the word changed, and how often another word, for the arms of some groups."""
    height, ticks, labels, said = 0.0, [], [], []
    for group, arms in groups.items():
        axes.text(0, height, group, fontweight="bold", va="center", fontsize=9.5)
        height, first = height + 1, len(said)
        hollow = group != next(iter(groups))
        for arm, outcome in arms.items():
            for what, color, marker, lift in (("changed", BLUE, "o", -0.14), ("elsewhere", RED, "s", 0.14)):
                share, low, high = (100 * value for value in outcome.share(what))
                axes.plot([low, high], [height + lift] * 2, color=color, linewidth=1.3, linestyle="-")
                axes.plot(
                    share,
                    height + lift,
                    marker,
                    color=color,
                    markerfacecolor="white" if hollow else color,
                    markersize=6,
                )
            said.append(f"{arm} {100 * outcome.changed / outcome.n:.0f}%, {100 * outcome.elsewhere / outcome.n:.0f}%")
            ticks.append(height)
            labels.append(arm)
            height += 1
        said[first] = f"{group}: {said[first]}"
    axes.set(xlim=(-2, 102), ylim=(height - 0.3, -0.7), yticks=ticks, yticklabels=labels)
    axes.grid(axis="y", visible=False)
    handles = [
        axes.plot([], [], marker, color=color, markerfacecolor=face, linestyle="none")[0]
        for marker, color, face in (("o", BLUE, BLUE), ("s", RED, RED), ("o", BLUE, "white"))
    ]
    axes.figure.legend(
        handles, ["the word changed", "another word changed", "hollow: controls"], loc="outside upper center", ncols=3,
        frameon=False,
    )  # fmt: skip
    return "With 95% intervals, the word changed, another word changed. " + "; ".join(said) + "."


LINES = {
    "detector": ("against the detector", BLUE, "o", "-"),
    "another feature": ("against another active feature", RED, "s", "--"),
    "random": ("in a random direction", GREY, "^", "-."),
}


def pushes() -> dict[str, dict[float, Outcome]]:
    """What the long run stored: by direction and length, what a push did."""
    return {arm: {c: stored("steering", f"pushed {c}: {arm}") for c in PUSHES} for arm in LINES}


@lesson.figure(
    "How far must a noun's state be pushed?",
    "length of the push (1: detector off, 2: detector times -1)",
    "nouns that change (%)",
    size=(7.2, 3.6),
    legend=None,
    example=lambda: (pushes(),),
    ylim=(-4, 104),
)
def plot_pushes(axes, found: Mapping[str, Mapping[float, Outcome]]):
    """Draw the share of nouns that change against the length of a push, in three directions, with 95% intervals."""
    said = []
    for k, (arm, (label, color, marker, style)) in enumerate(LINES.items()):
        at = [length + 0.03 * (k - 1) for length in found[arm]]
        share, low, high = 100 * np.transpose([outcome.share("changed") for outcome in found[arm].values()])
        axes.vlines(at, low, high, color=color, linewidth=1.2)
        axes.plot(at, share, color=color, linestyle=style, marker=marker, label=label)
        said.append(f"{label} {', '.join(f'{value:.0f}' for value in share)}")
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return (
        f"Nouns that change (%, 95% intervals) under pushes {', '.join(f'{c:g}' for c in PUSHES)} times as long as "
        f"detector off: {'; '.join(said)}."
    )


# --- Closing experiment ------------------------------------------------------------------------------

COUNTS = (1, 2, 5, 20)
CURVES = {
    "means": ("difference of two means", BLUE, "o", "-"),
    "neighbours": ("mean of the nearest unlabelled tokens", PURPLE, "D", (0, (6, 2))),
    "features": ("features, chosen by all nouns' labels", RED, "s", "--"),
    "rare": ("features, chosen without labels", ORANGE, "^", "-."),
}


def exchange_shares() -> dict[str, dict[int, list[float]]]:
    """What the long run stored: by arm and N, the share of exactly aimed sentences in each draw (%), shipped dictionary."""
    return {arm: {n: measured("steering", f"exchanged, N = {n}: {arm}") for n in COUNTS} for arm in CURVES}


@lesson.figure(
    "What does the dictionary buy?",
    "labelled occurrences of each noun N (logarithmic axis)",
    "exactly the aimed sentence (%), from 50",
    size=(7.0, 3.7),
    legend=None,
    example=lambda: (exchange_shares(),),
    xscale="log",
    ylim=(50, 90),
)
def plot_exchange(axes, shares: Mapping[str, Mapping[int, Sequence[float]]]):
    """Draw the share of exactly aimed sentences against the number of labels: means of draws, and every draw."""
    said = []
    for k, (arm, (label, color, marker, style)) in enumerate(CURVES.items()):
        middle = [float(np.mean(shares[arm][n])) for n in COUNTS]
        shift = 1.07 ** (k - 1.5)  # curves beside each other, and each one's draws to the right of it
        axes.plot([n * shift for n in COUNTS], middle, color=color, linestyle=style, marker=marker, label=label)
        for n in COUNTS:
            draws = shares[arm][n]
            axes.plot([n * shift * 1.03] * len(draws), draws, "o", color=color, markersize=3.5, markerfacecolor="white")
        said.append(f"{label} {', '.join(f'{value:.0f}%' for value in middle)}")
    axes.set_xticks(COUNTS, labels=[str(n) for n in COUNTS])
    axes.minorticks_off()
    axes.set_xlim(0.8, 25)
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return f"Means of five draws (rings), N = {', '.join(map(str, COUNTS))}: " + "; ".join(said) + "."


def example_neighbours() -> tuple[Setting, int]:
    """A labelled token of "apple"."""
    made = setting()
    tokens = made.words.draw(1, seed=0, concepts=["food:apple"]).nonzero()[:, 0]
    return made, int(tokens[0])


@lesson.figure(
    "What “neighbours” does with one labelled token",
    "first principal direction of the tokens of food",
    "second",
    size=(5.8, 3.2),
    legend=None,
    example=example_neighbours,
)
def plot_neighbours(axes, setting: Setting, labelled: int, count: int = 10):
    """Draw a labelled token among all tokens of its kind, the tokens nearest to it, and their mean."""
    words = setting.words
    food = [i for i, concept in enumerate(CONCEPTS) if concept.startswith("food:")]
    cloud = words.states[torch.isin(words.concept, torch.tensor(food))]
    plane = torch.linalg.svd(cloud - cloud.mean(dim=0), full_matrices=False).Vh[:2]
    mean = words.neighbours(words.states[[labelled]], count)
    near = words.states[words.nearest(words.states[[labelled]], count)[0]]
    dots, rings, (start,), (end,) = (
        ((x - cloud.mean(dim=0)) @ plane.T).numpy() for x in (cloud, near, words.states[[labelled]], mean)
    )
    axes.plot(*dots.T, ".", color="0.7", markersize=2.5, label="tokens of food, without labels")
    axes.plot(*rings.T, "o", color=PURPLE, markerfacecolor="none", markersize=7, label=f"the {count} nearest")
    axes.plot(*start, "*", color=BLUE, markersize=15, label="the labelled token")
    axes.plot(*end, "D", color=PURPLE, markersize=8, label="their mean takes its place")
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return f"A labelled token, the {count} tokens nearest to it in all dimensions, and their mean."


# --- Explorer ----------------------------------------------------------------------------------------

SHOWN = 3
PLACES = {"young": "condition:young", "girl": "person:girl", "eats": "verb:eat", "green": "colour:green",
          "apple": "food:apple", "garden": "place:garden"}  # fmt: skip
SILENT = "dog"
LINE_WIDTH = 78


@lesson.explorer
class FeatureExplorer(Explorer):
    """Turn the three strongest features at one word of the sentence, and read three translations."""

    title = "Feature switches"
    summary = (
        "Above: the three strongest features at the chosen word of the sentence, as strong as they are there (grey) and "
        "after the factors (blue). Below: the translations into German, French and Spanish; words that differ from the "
        "unchanged translation stand between stars; one that only lost words ends with (–)."
    )
    first = Slider("factor of the", "1st", "0 is off, 1 leaves it as it is, 2 makes it twice as strong", 0, -1, 3, 1)
    second = Slider("factor of the", "2nd", "0 is off, 1 leaves it as it is, 2 makes it twice as strong", 1, -1, 3, 1)
    third = Slider("factor of the", "3rd", "0 is off, 1 leaves it as it is, 2 makes it twice as strong", 1, -1, 3, 1)
    word = Choice("word", "Whose three strongest features the factors turn", "apple", (*PLACES, SILENT))
    size = (9.4, 4.2)
    continuous = False
    strip_scale = 0.8

    def __init__(self, of: Setting | None = None):
        self.setting = of or setting()
        self.translate = lru_cache(maxsize=512)(self._translate)
        tokens, _, code = self.setting.read(TEXT, "en_XX")
        self.choices = {}
        for word in PLACES:
            place = next(i for i, t in enumerate(tokens) if t.lstrip("▁").startswith(word[:3]))
            strongest = code[place].topk(SHOWN)
            self.choices[word] = [(int(i), float(v)) for i, v in zip(strongest.indices, strongest.values, strict=True)]
        dog = self.setting.table.activation[NUMBER["animal:dog"]]
        quiet = torch.where((code > 0).any(dim=0), 0, dog).topk(SHOWN).indices
        self.choices[SILENT] = [(int(i), 0.0) for i in quiet]
        super().__init__()

    def _translate(self, factors: tuple[tuple[int, int], ...]) -> tuple[str, ...]:
        return tuple(self.setting.translate(TEXT, "en_XX", OTHER_LANGUAGES, dict(factors)))

    def compute(self, *, word, first, second, third):
        """Return the features, their strength before and after, and the translations' words."""
        factors = (first, second, third)
        features = self.choices[word]
        turned = tuple((i, c) for (i, _), c in zip(features, factors, strict=True) if c != 1)
        plain, after = self.translate(()), self.translate(turned)
        return {
            "word": word,
            "features": [i for i, _ in features],
            "names": [named(self.setting, i) for i, _ in features],
            "before": [v for _, v in features],
            "factors": list(factors),
            "plain": list(plain),
            "after": list(after),
            "marked": [shown_words(a, b) for a, b in zip(plain, after, strict=True)],
        }

    together = ("word", "first")
    layout = panels(
        ["The three strongest features of the word", "What the model writes"],
        ["activation", "words that differ stand between stars; (–): words are only lost"],
        ["feature", "language"],
        grid=(2, 1),
        legend=None,
        subplots={"height_ratios": (1, 1)},
        xlim=[(-1.6, 2.6), (0, LINE_WIDTH)],
        ylim=[(SHOWN - 0.4, -0.6), (3, 0)],
    )

    def draw(self, bars, text):
        """Draw empty bars and places for words."""
        bars.set_yticks([])
        text.set_yticks([])
        text.set_xticks([])
        for axes in (bars, text):
            axes.grid(visible=False)
        bars.axvline(0, color=BLACK, linewidth=0.8)
        rows = range(SHOWN)
        small = {"va": "center", "fontsize": 9, "parse_math": False}
        mono = {"family": "monospace", "va": "center", "fontsize": 9, "parse_math": False}
        return {
            "old": [bars.add_patch(Rectangle((0, r - 0.36), 0, 0.3, facecolor=PALE, edgecolor=GREY)) for r in rows],
            "new": [bars.add_patch(Rectangle((0, r + 0.02), 0, 0.3, facecolor=BLUE)) for r in rows],
            "labels": [bars.text(-1.57, r, "", **small) for r in rows],
            "languages": [text.text(0.6, 0.5 + r, NAMES[t], **small) for r, t in enumerate(OTHER_LANGUAGES)],
            "lines": [text.text(10, 0.5 + r, "", **mono) for r in rows for _ in range(14)],
        }

    def update(self, artists, state):
        """Set bars, labels and the words of the translations."""
        for r in range(SHOWN):
            before, factor = state["before"][r], state["factors"][r]
            artists["old"][r].set_bounds(0, r - 0.36, before, 0.3)
            artists["new"][r].set_bounds(0, r + 0.02, before * factor, 0.3)
            artists["labels"][r].set_text(f"{state['features'][r]}  {state['names'][r]}\ntimes {factor}")
        for r, words in enumerate(state["marked"]):
            column = 10
            for k in range(14):
                artist = artists["lines"][14 * r + k]
                word, differs = words[k] if k < len(words) else ("", False)
                shown = f"*{word}*" if differs else word
                artist.set(text=shown, x=column, color=RED if differs else BLACK)
                column += 0.8 * (len(shown) + (1 if shown else 0))

    def words(self, state: Any) -> str:
        """Say which features were turned, and what became of the translations."""
        turned = ", ".join(
            f"{i} ({name}) times {c}"
            for i, name, c in zip(state["features"], state["names"], state["factors"], strict=True)
        )
        firing = sum(v > 0 for v in state["before"])
        where = f"at “{state['word']}”" if firing else "of “dog”, silent in this sentence"
        said = []
        for target, a, b in zip(OTHER_LANGUAGES, state["plain"], state["after"], strict=True):
            said.append(f"{NAMES[target]} stays “{a}”" if a == b else f"{NAMES[target]} becomes “{b}”")
        return f"Features {where}: {turned}. {'; '.join(said)}."


# --- Predictions -------------------------------------------------------------------------------------

P1_CHOICES = {
    "in nine of ten or more": (0.85, 1.01, "A good detector need not be all that carries the word."),
    "in about six of ten": (
        0.45,
        0.85,
        "The detector carries much of the word, not all, and how much differs from noun to noun.",
    ),
    "in about three of ten": (
        0.2,
        0.45,
        "The detector is not the only feature of its word, but it does more than that.",
    ),
    "in one of ten or fewer": (-0.01, 0.2, "The apple is an exception: most nouns do change."),
}


def _off_choices(groups: Mapping[str, Mapping[str, Outcome]]) -> dict[str, str]:
    """The choices of 38.P1, each with what was measured."""
    arms = {name: o.changed / o.n for name, o in groups["At the noun's tokens"].items()}
    one = arms["its detector off"]
    said = f"Detector off: {one:.0%} of the nouns change. All features off: {arms['all its features off']:.0%}."
    return {
        choice: right(f"{why} {said}") if low <= one < high else f"{why} {said}"
        for choice, (low, high, why) in P1_CHOICES.items()
    }


ask_off = lesson.prediction(
    "38.P1",
    "Not the apple alone: take 148 nouns that have a detector with an F1 of 0.8 or more, one sentence each. The detector is "
    "switched off at the noun's tokens. In how many sentences does the noun leave the translation?",
    _off_choices,
    reveal=plot_arms,
)


@lesson.figure(
    size=(6.6, 2.1), legend=None, x="exactly the aimed sentence (%)", y="what is done", xlim=(0, 104),
    example=lambda: (example_exchange(),),
)  # fmt: skip
def plot_exchanged(axes, hits: Mapping[str, Tensor]):
    """Draw the share of sentences that become exactly the aimed one, with 95% intervals, for ways to exchange a noun."""
    looks = {"features": (BLUE, None), "difference of two means": (RED, "//")}
    said = []
    for place, (name, found) in enumerate(hits.items()):
        color, hatch = looks.get(name, (PALE, None))
        share, low, high = (100 * end for end in interval(int(found.sum()), len(found)))
        axes.barh(place, share, height=0.62, color=color, hatch=hatch, edgecolor="white" if hatch else color)
        axes.plot([low, high], [place] * 2, color=BLACK, linewidth=1.4, linestyle="-")
        axes.text(high + 1.5, place, f"{share:.0f}%", va="center", fontsize=9)
        said.append(f"{name}: {share:.0f}%")
    axes.set_yticks(range(len(hits)), labels=list(hits))
    axes.set_ylim(len(hits) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    n = len(next(iter(hits.values())))
    return f"Exactly the aimed sentence, of {n}, with 95% intervals: {'; '.join(said)}."


def interval(hits: int, n: int) -> tuple[float, float, float]:
    """A share and the ends of its 95% interval. Source: Wilson (1927)."""
    return Outcome(n=n, changed=hits, elsewhere=0, agreement=0, exact=0, words_changed=0, words=0).share("changed")


def example_exchange() -> dict[str, Tensor]:
    """Made-up hits of two ways to exchange a noun."""
    return {"features": torch.arange(10) < 8, "random step, as far as the features": torch.zeros(10, dtype=torch.bool)}


ask_means = lesson.prediction(
    "38.P2",
    "The means and features of 4,000 labelled sentences are known. Exchange nouns by (38.4), or by (38.5). In how many "
    "sentences is the translation exactly the aimed one, in round numbers?",
    {
        "(38.4) 5%, (38.5) 80%": "One arrow is enough: nouns of a kind lie far apart along the line between their means.",
        "(38.4) 40%, (38.5) 80%": "Averaging over many examples loses nothing that is needed: the context averages out of "
        "both means.",
        "(38.4) 80%, (38.5) 80%": right(
            "With many labelled examples the arrow between two means needs no dictionary, and no features to be chosen."
        ),
        "(38.4) 80%, (38.5) 40%": "What the features leave out stays in the state, but it does not hold the noun back.",
    },
    reveal=plot_exchanged,
)

ask_labels = lesson.prediction(
    "38.P3",
    "Labels are scarce: ONE labelled occurrence of each noun. Exchange nouns by means, by features or by neighbours. In how "
    "many sentences is the exchange exact, in round numbers?",
    {
        "means 80%, features 80%, neighbours 80%": "The one labelled state carries its context along: number, language, the "
        "words around it. This costs the bare means more than 10 points.",
        "means 60%, features 80%, neighbours 60%": "Features lead the bare means. But the neighbours average the context "
        "out as well, and need no dictionary.",
        "means 60%, features 60%, neighbours 80%": "Neighbours lead the bare means. But features leave out what fires at "
        "other nouns too, and with it most of the context.",
        "means 60%, features 80%, neighbours 80%": right(
            "Both read tokens without labels, and lose the context of the one example. The dictionary is one way to do so."
        ),
    },
    reveal=plot_exchange,
)


# --- Arrows ------------------------------------------------------------------------------------------


def arrow_chains(
    setting: Setting, concept: str, factors: Sequence[float | int]
) -> tuple[dict[float | int, np.ndarray], np.ndarray, list[int]]:
    """A word's token in the sentence as a chain of what its features add, in a plane, for each factor of its detector.

    The first axis runs from the mean of the word's kind to the word, in units of that distance; the second is the direction
    across in which the features add most. Returns chains (features + 1, 2), the token's own state (2,), and the features.
    """
    _, _, state, code = at_word(setting, concept)
    i = NUMBER[concept]
    way = setting.table.state[i] - setting.of_kind[i]
    first = way / way.square().sum()
    active = [int(f) for f in code.argsort(descending=True) if code[f] > 0]
    active.sort(key=lambda f: f == int(setting.detector[i]))  # the detector last
    added = setting.autoencoder.decoder_weight.T[active] * (setting.autoencoder.input_scale * code[active])[:, None]
    across = added - (added @ first)[:, None] * way
    second = torch.linalg.svd(across, full_matrices=False).Vh[0] / way.norm()
    plane = torch.stack([first, second], dim=1)
    start = (setting.autoencoder.decode(torch.zeros(1, len(code)))[0] - setting.of_kind[i]) @ plane
    chains = {}
    for factor in factors:
        scaled = added.clone()
        scaled[-1] *= factor
        chains[factor] = torch.cat([start[None], start + (scaled @ plane).cumsum(dim=0)]).numpy()
    return chains, ((state - setting.of_kind[i]) @ plane).numpy(), active


def nearest_words(setting: Setting, concept: str, factor: float | int, count: int = 5) -> list[str]:
    """The words whose mean states are nearest to the word's state in the sentence, its detector multiplied by a factor."""
    _, _, state, _ = at_word(setting, concept)
    turned = multiply(setting.autoencoder, {int(setting.detector[NUMBER[concept]]): factor})(state[None], None)
    distance = torch.cdist(turned, setting.table.state)[0].masked_fill(setting.table.n_tokens == 0, torch.inf)
    return [word_of(CONCEPTS[i]) for i in distance.argsort()[:count].tolist()]


def _arrow(axes, start: np.ndarray, end: np.ndarray, **look: Any) -> None:
    axes.annotate("", tuple(end), tuple(start), arrowprops={"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, **look})


@lesson.figure(
    "A state is a sum of arrows, and one of them is turned",
    "way from “some food” (0) to “apple” (1)",
    "direction across, in the same unit",
    size=(7.0, 4.2),
    legend=None,
    example=setting,
)
def plot_arrows(axes, setting: Setting, concept: str = "food:apple"):
    """Draw the chain of arrows that make up a word's state, and where it ends with the detector off and turned round."""
    chains, state, features = arrow_chains(setting, concept, (1, 0, -1))
    chain = chains[1]
    for start, end, feature in zip(chain[:-1], chain[1:], features, strict=True):
        own = feature == features[-1]
        _arrow(axes, start, end, color=BLUE if own else GREY, linewidth=2.6 if own else 1.4)
    base, (x1, y1) = chain[-2], chain[-1]
    turned = chains[-1][-1]
    _arrow(axes, base, turned, color=RED, linewidth=2.2, linestyle="--")
    axes.plot(*state, "*", color=BLACK, markersize=13)
    axes.plot(*base, "o", color=ORANGE, markersize=8)
    axes.plot(*chain[0], "s", color=GREY, markersize=6)
    axes.plot([0, 1], [0, 0], "P", color=PURPLE, markersize=9, linestyle="none")
    points = np.vstack([chain, turned[None], state[None], [[0, 0], [1, 0]]])
    low, high = points.min(axis=0), points.max(axis=0)
    axes.set_xlim(low[0] - 0.35, high[0] + 0.35)
    axes.set_ylim(low[1] - 0.2, high[1] + 0.2)
    axes.set_aspect("equal")
    for text, (x, y), offset, align in (
        ("the state", state, (8, 8), "left"),
        ("without its detector", base, (6, -16), "left"),
        ("detector times -1", turned, (0, -16), "center"),
        ("start: no feature", chain[0], (0, 8), "center"),
        ("mean of food", (0, 0), (-8, -4), "right"),
        (f"mean of {word_of(concept)}", (1, 0), (0, 9), "center"),
        (f"detector, {features[-1]}", ((base[0] + x1) / 2, (base[1] + y1) / 2), (-8, 10), "right"),
    ):
        axes.annotate(text, (x, y), xytext=offset, textcoords="offset points", ha=align, fontsize=9)
    return (
        f"The state of “{word_of(concept)}” in a plane: to the right, the way from its kind's mean to the word; upwards, "
        f"the direction across it in which its features add most. Its {len(features)} active features as arrows head to "
        f"tail, the detector's last, from the start without a feature. The end without the detector stands at {base[0]:.2f} "
        f"of the way, with it at {x1:.2f}, with it times -1 at {turned[0]:.2f}; the state itself (star) at {state[0]:.2f}."
    )


# --- Tables ------------------------------------------------------------------------------------------


def _percent(outcome: Outcome, what: str = "changed") -> str:
    return f"{100 * getattr(outcome, what) / outcome.n:.0f}%"


def kinds_table() -> Markdown:
    """Return what the long run stored of words of all kinds: the detector off, and the strongest feature off."""
    rows = []
    for label, kind in (
        ("all", "all kinds"),
        ("adjectives", "adjective"),
        ("nouns", "noun"),
        ("places", "place"),
        ("times", "time"),
        ("verbs", "verb"),
    ):
        both = [stored("exchange", f"{kind}: {arm}") for arm in ("detector", "strongest feature")]
        rows.append((label, both[0].n, *map(_percent, both)))
    same = measured("exchange", "all kinds: the detector is the strongest feature, %")
    only = (measured("exchange", f"all kinds: only the {name} changes the word") for name in ("strongest", "detector"))
    table = markdown_table(("words", "cases", "changed, detector off", "changed, strongest feature off"), rows)
    counts = "in {} cases the strongest feature changes the word and the detector does not, in {} the reverse".format(
        *only
    )
    return Markdown(f"{table.data}\n\nThe detector is the strongest feature in {same:.0f}% of the cases; {counts}.")


def exchange_table() -> Markdown:
    """Return means and ranges over the draws of labels of the long run, by arm and N."""
    arms = {
        "difference of two means": "means",
        "mean of the nearest unlabelled tokens": "neighbours",
        "mean of the labelled token's cluster": "clusters",
        "features, chosen by labels": "features",
        "features, chosen without labels": "rare",
        "all active features": "active",
        "a wrong noun's features off": "another word's features",
    }
    rows = []
    for label, arm in arms.items():
        found = [measured("steering", f"exchanged, N = {n}: {arm}") for n in COUNTS]
        rows.append((label, *(f"{np.mean(v):.0f}% ({min(v):.0f} to {max(v):.0f})" for v in found)))
    cases = measured("steering", "exchanged, cases")
    return markdown_table((f"exactly the aimed sentence, of {cases}", *(f"N = {n}" for n in COUNTS)), rows)


def dictionaries_table() -> Markdown:
    """Return what three dictionaries gave in the long run."""
    rows = []
    for label, prefix in (("shipped", ""), ("seed 1", "dictionary 1, "), ("seed 2", "dictionary 2, ")):
        off = [stored("exchange", f"{prefix}off: {arm}") for arm in ("detector", "features", "another feature, as far")]
        one, five = (np.mean(measured("exchange", f"{prefix}exchanged, N = {n}: features")) for n in (1, 5))
        rows.append((label, off[0].n, *map(_percent, off), f"{one:.0f}%", f"{five:.0f}%"))
    return markdown_table(
        ("dictionary", "nouns", "changed, detector off", "all features off",
         "another feature, as far", "exchanged, N = 1", "N = 5"), rows,
    )  # fmt: skip


FIGURES = lesson.figures
