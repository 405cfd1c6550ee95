"""What lesson 29 needs to ask what features cause: nouns in sentences to be translated, and the features of each."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.figures import BLUE, RED, describe, new_figure, styled
from course_lib.interpret.interventions import find_word_tokens, keep_correct
from course_lib.interpret.outcomes import Outcome
from course_lib.interpret.word_table import WordTable, number_concepts
from course_lib.language.corpus import generate
from course_lib.language.lexicon import NOUNS
from course_lib.language.word_cases import Case, draw_cases, find_slots
from course_lib.lessons.mbart_to_sparse_features.contents import lesson
from course_lib.measured import measured

if TYPE_CHECKING:
    from course_lib.interpret.browser.features import FeatureBrowser

GOOD = 0.8  # training F1 from which a concept's detector is used


@dataclass(frozen=True)
class NounCases:
    """Nouns in held-out sentences that the model translates right, and what there is to change at their tokens.

    - `cases`, and `aims`: for each the concept of another noun of its kind.
    - `own`: which tokens are the noun's, shape (cases, tokens).
    - `concept`, `aim`: the numbers of both in `concepts`, shape (cases,).
    - `detectors`: the feature of each concept with the best training F1; `table`: what all features do at each noun.
    """

    cases: list[Case]
    aims: list[str]
    own: Tensor
    concept: Tensor
    aim: Tensor
    concepts: list[str]
    detectors: Tensor
    table: WordTable

    def features(self, precision: float | int) -> Tensor:
        """The features (concepts, features): the detector, and all with so much precision at its words, or more."""
        return self.table.features(self.detectors, precision=float(precision))


def noun_cases(browser: "FeatureBrowser", n_cases: int, *, seed: int = 29, n_sentences: int = 1000) -> NounCases:
    """Draw cases of nouns with a good detector; training sentences say which features belong to which noun."""
    nouns = {noun.concept for noun in NOUNS.values()}
    good = {
        score.concept: score.unit
        for score in browser.run.concepts.scores["features"]
        if score.concept in nouns and score.sign > 0 and score.f1_train >= GOOD
    }
    concepts = sorted(good)
    read = generate(n_sentences, seed=seed)
    states = browser.states(read)
    with torch.no_grad():
        code = browser.autoencoder.encode(states.values)
    held = number_concepts(browser.tokenizer, read, concepts)
    table = WordTable.of(states.values, code.to_sparse_coo(), held, len(concepts))
    drawn = draw_cases(concepts, n_cases, seed=seed, pool=1200)
    cases = keep_correct(browser.model, browser.tokenizer, drawn)
    rng, number = random.Random(seed), {concept: i for i, concept in enumerate(concepts)}
    aims = [
        rng.choice(
            [c for c in concepts if c.split(":")[0] == case.concept.split(":")[0] and not find_slots(case.meaning, c)]
        )
        for case in cases
    ]
    return NounCases(
        cases=cases,
        aims=aims,
        own=find_word_tokens(browser.tokenizer, cases),
        concept=torch.tensor([number[case.concept] for case in cases]),
        aim=torch.tensor([number[aim] for aim in aims]),
        concepts=concepts,
        detectors=torch.tensor([good[concept] for concept in concepts]),
        table=table,
    )


@styled
def draw_arms(groups: Mapping[str, Mapping[str, Outcome]], *, controls: Sequence[str]) -> Figure:
    """Draw how often the word changed, and how often another word, for the arms of some groups.

    Arms named in `controls` are drawn hollow. Bars are 95% intervals (`Outcome.share`).
    """
    names = [(group, arm) for group, arms in groups.items() for arm in arms]
    figure = new_figure(7.2, 1.1 + 0.24 * (len(names) + len(groups)))
    axes = figure.add_subplot()
    height, ticks, labels, shares = 0.0, [], [], []
    for group, arms in groups.items():
        axes.text(0, height, group, fontweight="bold", va="center", fontsize=9.5)
        height += 1
        for arm, outcome in arms.items():
            for what, color, marker, lift in (("changed", BLUE, "o", -0.13), ("elsewhere", RED, "s", 0.13)):
                share, low, high = (100 * value for value in outcome.share(what))
                face = "white" if arm in controls else color
                axes.plot([low, high], [height + lift] * 2, color=color, linewidth=1.2, linestyle="-")
                axes.plot(share, height + lift, marker, color=color, markerfacecolor=face, markersize=5)
            shares.append(
                f"{group}, {arm}: the word changed in {100 * outcome.changed / outcome.n:.0f}%, "
                f"another word in {100 * outcome.elsewhere / outcome.n:.0f}%"
            )
            ticks.append(height)
            labels.append(arm)
            height += 1
    axes.set(xlim=(-2, 102), ylim=(height - 0.3, -0.7), xlabel="sentences, %", yticks=ticks, yticklabels=labels)
    axes.grid(axis="y", visible=False)
    handles = [
        axes.plot([], [], marker, color=color, markerfacecolor=face, linestyle="none", label=label)[0]
        for marker, color, face, label in (
            ("o", BLUE, BLUE, "the word changed"),
            ("s", RED, RED, "another word changed"),
            ("o", BLUE, "white", "hollow: controls"),
        )
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False)
    return describe(figure, ". ".join(shares) + ".")


ARMS = {
    "one feature": "its feature off",
    "opposite": "its feature times -1",
    "features": "its features off",
    "exchange": "another noun's features instead",
}
CONTROLS = {
    "other feature": "another active feature off",
    "other, as far": "another active feature, as far as its own",
    "random": "random direction, as far as its features",
    "reconstruction": "reconstruction of the whole sentence",
}
STORED_ARMS = {
    "one feature": "encoder, switched off: detector",
    "opposite": "encoder, switched off: detector, factor -1",
    "features": "encoder, switched off: features, 0.1",
    "exchange": "encoder, exchanged for a noun of its kind: features, 0.05",
    "other feature": "encoder, switched off: control: another active feature",
    "other, as far": "encoder, switched off: control: another active feature, as far",
    "random": "encoder, switched off: control: random direction, as far as features",
    "reconstruction": "encoder, switched off: control: reconstruction, all tokens",
}


def stored_outcomes(arms: dict[str, str]) -> dict[str, Outcome]:
    """Return what `make bench causes` stored under the names of some arms."""
    return {arm: Outcome(**measured("causes", name)) for arm, name in arms.items()}


def draw_nouns(outcomes: dict[str, Outcome] | None = None) -> Figure:
    """Draw what became of the nouns; without outcomes, what `make bench causes` stored for the same arms."""
    outcomes = outcomes or stored_outcomes(STORED_ARMS)
    groups = {
        "At the noun's tokens": {label: outcomes[name] for name, label in ARMS.items()},
        "Controls": {label: outcomes[name] for name, label in CONTROLS.items()},
    }
    figure = draw_arms(groups, controls=list(CONTROLS.values()))
    # No digits: they depend on the processor.
    return describe(
        figure,
        "Shares of sentences in which the noun changes, and in which another word changes, with 95% intervals. With its "
        "feature off the noun changes in fewer than half; with the feature times -1 it changes in most sentences; with all "
        "its features off, or another noun's features instead, in nearly all, and other words in few. Controls, hollow: "
        "another active feature off, a random direction and the reconstruction change almost no noun; another feature's "
        "direction, as far as its own, changes some.",
    )


LARGE_ARMS = {
    "Switched off": {
        "detector": "encoder, switched off: detector",
        "detector times -1": "encoder, switched off: detector, factor -1",
        "features, precision 0.2": "encoder, switched off: features, 0.2",
        "features, precision 0.1": "encoder, switched off: features, 0.1",
        "difference of means, erased": "encoder, switched off: difference of means, erased",
    },
    "Exchanged for a noun of its kind": {
        "detectors": "encoder, exchanged for a noun of its kind: detector",
        "features, precision 0.05": "encoder, exchanged for a noun of its kind: features, 0.05",
        "difference of means": "encoder, exchanged for a noun of its kind: difference of means",
    },
    "Controls": {
        "another active feature off": "encoder, switched off: control: another active feature",
        "another active feature, as far": "encoder, switched off: control: another active feature, as far",
        "random direction, as far as features": "encoder, switched off: control: random direction, as far as features",
        "reconstruction, all tokens": "encoder, switched off: control: reconstruction, all tokens",
    },
}


def draw_large() -> Figure:
    """Draw what `make bench causes` stored: words of all kinds, more features, more sentences."""
    groups = {group: stored_outcomes(arms) for group, arms in LARGE_ARMS.items()}
    return draw_arms(groups, controls=list(LARGE_ARMS["Controls"]))


causes_prediction = lesson.prediction(
    "29.P2",
    "A feature detects “dog” with an F1 of 1. It is switched off at the tokens of the dog, and the model translates. In "
    "how many of such sentences does the noun of the translation change?",
    {
        "in nearly all": "A perfect detector need not be all that carries the word. With one feature off the noun changes "
        "in few sentences; with all features of the noun off, in nearly all.",
        "in a few": "The detector is one of several features that fire for the noun. The others, and what the "
        "autoencoder does not reconstruct, still say it.",
        "in none: features only describe": "A few nouns do change, and with the features of the noun together nearly all. "
        "The controls change almost none.",
    },
    answer="in a few",
    reveal=draw_nouns,
)
