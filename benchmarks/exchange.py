"""Lesson 38's long run on three dictionaries: words switched off, and one noun exchanged for another by features.

The dictionary is the shipped one; dictionaries of other seeds (`OTHERS`), trained as it was on other sentences, stand beside
it. "off" are counts of `Outcome` on held-out sentences, one a word with a detector of training F1 0.8 or more, nouns and
words of all kinds. "exchanged, N = 5: features" are shares (%) of sentences that become exactly the aimed one, one for each
of `SEEDS`: a draw of N labelled occurrences of each noun. Strength, and the precision from which a feature is taken for
a noun's, are chosen for each N on other sentences with a draw of their own ("chosen"). `benchmarks.steering` compares
features with ways that need no dictionary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any

import torch
from torch import Tensor

from course_lib.interpret import interventions
from course_lib.interpret.concepts import encode_rows
from course_lib.interpret.detectors import best_detectors
from course_lib.interpret.outcomes import Outcome
from course_lib.interpret.word_table import WordTable
from course_lib.language.word_cases import find_slots
from course_lib.lessons.using_features import measurements as using
from course_lib.lessons.using_features.measurements import Cases, Setting, Words, by_features, by_means
from course_lib.pipeline import course_dictionary as recipe
from course_lib.pipeline.config import SparseConfig
from course_lib.sae import train

SEEDS = (0, 1, 2, 3, 4)
COUNTS = (1, 2, 5, 20)
STRENGTHS, PRECISIONS = (1.0, 1.25), (0.02, 0.05, 0.1, 0.2)
OTHERS = (1, 2)
SETTINGS = {"labelled sentences": 4000, "cases": 150, "cases to choose on": 80, "words of all kinds": 260}
CHOOSE, OFF, KINDS = 1, 2, 3  # seeds of cases
TUNING = 100  # seed of the labels on which settings are chosen


def seeded(seed: int) -> torch.Generator:
    """Return a generator."""
    return torch.Generator().manual_seed(seed)


def percent(hits: Tensor) -> float:
    """Return the share of hits in percent, rounded."""
    return round(100 * float(hits.double().mean()), 2)


def strongest(cases: Cases) -> Tensor:
    """The feature that adds most to the states of each case's word, (cases, features), one True a row."""
    setting = cases.setting
    _, _, states = cases._read
    code = setting.autoencoder.encode(states[cases.own])
    sums = torch.zeros(len(cases), code.shape[1]).index_add(0, cases.own.nonzero()[:, 0], code)
    return torch.nn.functional.one_hot(sums.argmax(dim=1), code.shape[1]).bool()


def switched_off(setting: Setting, *, everything: bool = True) -> dict[str, Any]:
    """Nouns with their detector or all their features off, beside controls; with `everything`, words of all kinds."""
    made, generator = setting.autoencoder, seeded(0)
    nouns = using.draw_word_cases(setting, setting.good(using.NOUN_CONCEPTS), SETTINGS["cases"], seed=OFF)
    own = nouns.concept
    one = interventions.edit_features(made, setting.alone[own])
    many = interventions.edit_features(made, setting.features(0.1)[own])
    other, unit = ~setting.features(0.05)[own], setting.detector[own]
    arms = {
        "detector": one,
        "detector times -1": interventions.edit_features(made, setting.alone[own], factor=-1),
        "features": many,
        "another feature": interventions.edit_other_feature(made, unit, other),
        "another feature, as far": interventions.edit_other_feature(made, unit, other, like=one),
        "random, as far as features": interventions.move_randomly(many, generator),
        "means, erased": interventions.erase_direction(
            (setting.table.state - setting.of_kind)[own], setting.of_kind[own]
        ),
    }
    found = {f"off: {name}": nouns.translated(edit) for name, edit in arms.items()}
    if not everything:
        return found
    found["off: reconstruction"] = nouns.translated(interventions.reconstruct(made), everywhere=True)
    words = using.draw_word_cases(setting, setting.good(), SETTINGS["words of all kinds"], seed=KINDS)
    best, detector = strongest(words), setting.alone[words.concept]
    effects = {
        "detector": words.effects_of(interventions.edit_features(made, detector)),
        "strongest feature": words.effects_of(interventions.edit_features(made, best)),
    }
    parts = [find_slots(case.meaning, case.concept)[0][1] for case in words.cases]
    for arm, seen in effects.items():
        found[f"all kinds: {arm}"] = Outcome.of(words.cases, seen)
        for part in sorted(set(parts)):
            rows = [i for i, one_part in enumerate(parts) if one_part == part]
            found[f"{part}: {arm}"] = Outcome.of([words.cases[i] for i in rows], [seen[i] for i in rows])
    changed = {arm: torch.tensor([effect.changed for effect in seen]) for arm, seen in effects.items()}
    differ = (best != detector).any(dim=1)
    return found | {
        "all kinds: the detector is the strongest feature, %": percent(~differ),
        "all kinds: only the strongest changes the word": int(
            (differ & changed["strongest feature"] & ~changed["detector"]).sum()
        ),
        "all kinds: only the detector changes the word": int(
            (differ & changed["detector"] & ~changed["strongest feature"]).sum()
        ),
    }


class Exchange:
    """Cases of nouns and the arms that exchange them, from labels of some tokens."""

    def __init__(self, cases: Cases) -> None:
        self.cases, self.setting = cases, cases.setting
        third = torch.randint(len(using.NOUN_CONCEPTS), (len(cases),), generator=seeded(7))
        self.third = torch.tensor([using.NUMBER[using.NOUN_CONCEPTS[i]] for i in third.tolist()])

    def labels(self, n: int, seed: int) -> Tensor:
        """The tokens of n occurrences of each noun."""
        return self.setting.words.draw(n, seed=seed, concepts=using.NOUN_CONCEPTS)

    @cached_property
    def by_cluster(self) -> Words:
        """All tokens, each with the mean state of its cluster."""
        return self.setting.words.clustered(self.setting.autoencoder.code_width).cluster_means()

    def hits(self, arm: str, labelled: Tensor, table: WordTable, knobs: tuple[float, ...]) -> Tensor:
        """Which cases become exactly the aimed sentence."""
        cases, words, strength = self.cases, self.setting.words, knobs[0]
        if arm == "means":
            return cases.hits(by_means(cases, table, strength=strength))
        if arm == "neighbours":
            smooth = replace(table, state=words.neighbours(table.state, int(knobs[1])))
            return cases.hits(by_means(cases, smooth, strength=strength))
        if arm == "clusters":
            return cases.hits(by_means(cases, self.by_cluster.table(labelled), strength=strength))
        chosen = table.recall > 0
        if arm == "rare":
            chosen &= words.firings <= knobs[1] * len(words.states)
        elif arm != "active":
            chosen &= table.precision >= knobs[1]
        if (
            arm == "another word's features"
        ):  # what is set is right, what is switched off belongs to a third noun
            values = torch.where(chosen[cases.aim], strength * table.activation[cases.aim], 0)
            return cases.hits(
                interventions.edit_features(self.setting.autoencoder, chosen[self.third], values=values)
            )
        return cases.hits(by_features(cases, table, chosen, strength=strength))


Grids = Mapping[str, Sequence[tuple[float, ...]]]
GRIDS: Grids = {"features": list(product(STRENGTHS, PRECISIONS))}


def exchanged(setting: Setting, grids: Grids = GRIDS, *, controls: Sequence[str] = ()) -> dict[str, Any]:
    """Shares by arm, N and draw, with the knobs that other cases chose; controls have the knobs of "features"."""
    choosing, testing = (
        Exchange(
            using.draw_word_cases(setting, using.NOUN_CONCEPTS, SETTINGS[cases], seed=seed, pool_seed=pool)
        )
        for cases, seed, pool in (("cases to choose on", CHOOSE, 300), ("cases", OFF, 200))
    )
    found: dict[str, Any] = {"exchanged, cases": len(testing.cases)}
    for n in COUNTS:
        labelled = choosing.labels(n, TUNING)
        table = setting.words.table(labelled)
        knobs = {
            arm: max(grid, key=lambda one: float(choosing.hits(arm, labelled, table, one).double().mean()))
            for arm, grid in grids.items()
        }
        knobs |= {arm: knobs["features"] for arm in controls}
        found[f"chosen, N = {n}"] = {arm: list(one) for arm, one in knobs.items()}
        shares: dict[str, list[float]] = {arm: [] for arm in knobs}
        for seed in SEEDS:
            labelled = testing.labels(n, seed)
            table = setting.words.table(labelled)
            for arm, one in knobs.items():
                shares[arm].append(percent(testing.hits(arm, labelled, table, one)))
        found |= {f"exchanged, N = {n}: {arm}": values for arm, values in shares.items()}
    return found


def another(shipped: Setting, seed: int) -> Setting:
    """The same model and words with a dictionary that was trained as the shipped one, on sentences of another seed."""
    rows = recipe.token_rows(recipe.SENTENCES, seed=seed, split="train")
    config = SparseConfig()
    made = recipe.dictionary(config, rows.states.shape[1], generator=recipe.generator(seed, 3))
    train(made, rows.states, config.training, generator=recipe.generator(seed, 4), progress=False)
    made.requires_grad_(False)
    found = best_detectors(rows.largest(encode_rows(made, rows.states)).to_sparse_coo(), rows.labels)
    words = replace(shipped.words, code=encode_rows(made, shipped.words.states))
    return replace(shipped, autoencoder=made, detector=found.unit, f1_train=found.f1, words=words)


def run(setting: Setting | None = None) -> dict[str, Any]:
    """All figures."""
    torch.set_num_threads(1)
    setting = setting or using.setting()
    found = {**switched_off(setting), **exchanged(setting)}
    for seed in OTHERS:
        other = another(setting, seed)
        figures = {**switched_off(other, everything=False), **exchanged(other)}
        found |= {f"dictionary {seed}, {name}": figure for name, figure in figures.items()}
    return found
