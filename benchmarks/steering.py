"""Lesson 38: how far must a noun's state be pushed to change it, and what exchanges nouns without a dictionary?

"pushed 2: detector" are counts of `Outcome` on held-out sentences, one a noun with a detector of training F1 0.8 or more.
The noun's tokens are pushed against its detector, against another active feature, or in a random direction; the length is
given in units of the step that switches the detector off. "exchanged, N = 5: means" are shares (%) of sentences that
become exactly the aimed one, one for each of `SEEDS`: a draw of N labelled occurrences of each noun. Every arm has a
strength; it and an arm's other knob are chosen for each arm and N on other sentences with a draw of their own ("chosen"):

- "means": the difference of two mean states. "neighbours": each mean is replaced by the mean of the unlabelled tokens
  nearest to it. "clusters": each labelled state is replaced by the mean of its cluster of unlabelled tokens.
- "active": all features active at the labelled tokens. "features": of these only those with enough of their firings at the
  noun, by the labels of all nouns. "rare": of these only those that fire at few of all tokens, which takes no labels.
- "another word's features" sets the right features and switches those of a third noun off.
"""

from itertools import product
from typing import Any

import torch

from benchmarks import exchange as parts
from course_lib.interpret import interventions
from course_lib.lessons.using_features import measurements as using
from course_lib.lessons.using_features.measurements import Setting

SEEDS = parts.SEEDS
STRENGTHS = (1.0, 1.25, 1.5, 2.0)
SETTINGS = {name: parts.SETTINGS[name] for name in ("labelled sentences", "cases", "cases to choose on")}
GRIDS: parts.Grids = {
    "means": list(product(STRENGTHS)),
    "neighbours": list(product(STRENGTHS, (5, 10, 20))),
    "clusters": list(product(STRENGTHS)),
    "features": list(product(STRENGTHS, (0.01, 0.02, 0.05, 0.1))),
    "rare": list(product(STRENGTHS, (0.002, 0.004, 0.008, 0.016))),
    "active": list(product(STRENGTHS)),
}


def pushed(setting: Setting) -> dict[str, Any]:
    """Nouns under pushes of some lengths, and under one as far as that which switches all features off."""
    nouns = using.draw_word_cases(
        setting, setting.good(using.NOUN_CONCEPTS), SETTINGS["cases"], seed=parts.OFF
    )
    found: dict[str, Any] = {
        f"pushed {length}: {arm}": nouns.translated(edit)
        for length in using.PUSHES
        for arm, edit in using.push_edits(setting, nouns, length).items()
    }
    own = nouns.concept
    many = interventions.edit_features(setting.autoencoder, setting.features(0.1)[own])
    other = interventions.edit_other_feature(
        setting.autoencoder, setting.detector[own], ~setting.features(0.05)[own], like=many
    )
    return found | {
        "pushed as far as features off: another feature": nouns.translated(other),
        "features off": nouns.translated(many),
    }


def run(setting: Setting | None = None) -> dict[str, Any]:
    """All figures."""
    torch.set_num_threads(1)
    setting = setting or using.setting()
    return {**pushed(setting), **parts.exchanged(setting, GRIDS, controls=("another word's features",))}
