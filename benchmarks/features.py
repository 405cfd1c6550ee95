"""What size, k, steps and step size make of the features of the built-in models: F1, sharing, splitting, dead ones.

TopK autoencoders with decoder columns of length 1 on the token states of sentences drawn by chance; each lexical
concept's unit and threshold are chosen on training meanings and judged on held-out ones (`sae.detectors`). Shares are
of the lexical concepts with at least `LEAST` held-out sentences, in %, on several seeds. Beside them stands the same
autoencoder untrained. By token: medians over the concepts of what `sae.spans` measures. Absorption: the share of the
sentences with a word in which its own feature fires and its category's is silent; for pairs, another category's. Of
the concepts below, the share whose unit fires or not by grammar or language, or for another word too (`sae.splits`).
Are the verbs that tense divides those whose past is another word ("eat", "ate")? The AUROC of `past_unlike` for them
among all verbs, and the largest 5% of it where verbs are shuffled.

`run()` takes some minutes: `GRID` with `SEEDS`. Without the contrastive loss at the end of its training a model is
`course-mbart-unaligned`; `figures(model=...)` asks any model, at either side, in any grid:

    python -m benchmarks.features --model course-mbart-unaligned --side decoder --sizes 512 2048 --seeds 0 1 2
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

import torch

from benchmarks.timing import Spread
from course_lib import sae
from course_lib.interpret import concepts
from course_lib.interpret.concept_report import ConceptReport, category_scores, scores_of
from course_lib.interpret.concepts import auroc
from course_lib.interpret.detectors import REACHED, SHARED, best_detectors, joined_detectors, judge
from course_lib.interpret.spans import span_scores, span_summary
from course_lib.interpret.splits import Shortfall, shortfalls
from course_lib.language.corpus import (
    CONCEPTS,
    GRAMMATICAL_CONCEPTS,
    LANGUAGES,
    LEXICAL_CONCEPTS,
    VERBS,
    Verb,
    generate,
)
from course_lib.pipeline.text import token_concepts

LEAST, SENTENCES, SEEDS = 30, 12_000, (0, 1)


@dataclass(frozen=True)
class Setting:
    """A number of features, of active ones and of steps, a step size, and Adam's betas."""

    n_features: int
    k: int = 8
    steps: int = 2000
    step_size: float = 4e-3
    betas: tuple[float, float] = (0.9, 0.999)

    def __str__(self) -> str:
        said = f"{self.n_features} features, k = {self.k}, {self.steps} steps of {self.step_size:g}"
        return (
            said if self.betas == Setting.betas else f"{said}, betas {self.betas[0]:g} and {self.betas[1]:g}"
        )


GRID = (
    Setting(512, steps=1000),
    Setting(2048, steps=1000),
    Setting(2048),
    Setting(2048, betas=(0.9, 0.9)),
)
TENSES = ("grammar:past", "grammar:present", "grammar:future")


def past_unlike(verb: Verb) -> float:
    """1 less the share of the past form's letters that begin the present one, in the mean over the four languages."""
    forms = (
        (verb.en[0], verb.en[2]),
        (verb.de[0], verb.de[2]),
        (verb.fr_present[0], verb.fr_participle),
        (verb.es_present, verb.es_past[0]),
    )
    alike = [
        len(list(takewhile(lambda pair: pair[0] == pair[1], zip(*words, strict=False)))) / len(words[1])
        for words in forms
    ]
    return 1 - sum(alike) / len(alike)


def tense_splits(short: Sequence[Shortfall], generator: torch.Generator) -> dict[str, float]:
    """How many verbs are divided by tense, and how well `past_unlike` ranks them first."""
    divided = {one.concept for one in short if one.split and one.divided_by in TENSES}
    split = torch.tensor([f"verb:{name}" in divided for name in VERBS])
    unlike = torch.tensor([past_unlike(verb) for verb in VERBS.values()])[:, None]
    found = {"verbs split by tense": int(split.sum())}
    if not 3 <= split.sum() < len(VERBS):
        return found | {"AUROC of an unlike past": math.nan, "the same, verbs shuffled, highest 5%": math.nan}
    draws = torch.stack([split[torch.randperm(len(split), generator=generator)] for _ in range(200)], dim=1)
    return found | {
        "AUROC of an unlike past": float(auroc(unlike, split[:, None])),
        "the same, verbs shuffled, highest 5%": float(auroc(unlike, draws)[0].quantile(0.95)),
    }


def states_of(model: str, side: Literal["encoder", "decoder"], *, split: str, sentences: int):
    """Token states of held-out or training sentences with the lexical concepts of their sentence; its grammar."""
    from course_lib.mbart.activations import Site, extract
    from course_lib.mbart.model import load

    drawn = generate(sentences, seed=100 if split == "train" else 200, split=split)
    site = Site(side)
    read = load(model)
    found = extract(*read, drawn, [site], pool="tokens", progress=False)[site]
    spoken = token_concepts(read[1], drawn, target=side == "decoder")
    labels = concepts.label_table([s.concepts for s in drawn], LEXICAL_CONCEPTS)
    spoken_in = [[*s.concepts, s.language] for s in drawn]
    grammar = concepts.label_table(spoken_in, (*GRAMMATICAL_CONCEPTS, *LANGUAGES))
    rows = concepts.LabelledRows(
        found.values.float(),
        labels,
        [s.language for s in drawn],
        [s.meaning for s in drawn],
        found.sentence,
        concepts.label_table(spoken, LEXICAL_CONCEPTS),
    )
    return rows, grammar


def measured(
    setting: Setting, train, held_out, grammar, *, seed: int, trained: bool = True
) -> dict[str, float]:
    """The figures of one TopK autoencoder, by name."""
    autoencoder = sae.TopKSparseAutoencoder(
        train.states.shape[1],
        setting.n_features,
        k=setting.k,
        generator=torch.Generator().manual_seed(seed),
    )
    sae.train(
        autoencoder,
        train.states,
        sae.TrainConfig(
            steps=setting.steps if trained else 1,
            batch_size=1024,
            step_size=setting.step_size if trained else 1e-9,
            betas=setting.betas,
            revive_every=250,
            unit_norm_decoder=True,
        ),
        generator=torch.Generator().manual_seed(1000 + seed),
        progress=False,
    )
    return judged_figures(autoencoder, train, held_out, grammar, seed=seed)


def judged_figures(
    autoencoder: sae.SparseAutoencoder, train, held_out, grammar, *, seed: int
) -> dict[str, float]:
    """What an autoencoder knows of the concepts; `grammar` is what may divide them in the held-out sentences."""
    enough = held_out.labels.sum(dim=0) >= LEAST
    labels = [rows.labels[:, enough] for rows in (train, held_out)]
    codes = [concepts.encode_rows(autoencoder, rows.states) for rows in (train, held_out)]
    tables = [rows.largest(code) for rows, code in zip((train, held_out), codes, strict=True)]
    tables = [table.to_dense() if table.is_sparse else table for table in tables]
    found = best_detectors(tables[0].to_sparse_coo(), labels[0])
    scored = concepts.LabelledRows(held_out.states, labels[1], held_out.languages, groups=held_out.groups)
    judged = judge(found, tables[1], scored)
    names = [c for c, keep in zip(LEXICAL_CONCEPTS, enough.tolist(), strict=True) if keep]
    of_train = concepts.LabelledRows(train.states, labels[0], groups=train.groups)
    scores = scores_of(judged, of_train, concepts=names, categories=CONCEPTS)
    pairs = torch.Generator().manual_seed(seed)
    by_category = category_scores(tables, of_train, scored, scores, generator=pairs)
    absorbed = ConceptReport({}, by_category, frozenset(names), [], {}).absorption()
    by_token = span_summary(
        span_scores(
            *codes,
            *(rows.part_labels[:, enough] for rows in (train, held_out)),
            sentences=held_out.groups,
            concepts=names,
            categories=CONCEPTS,
        )
    )
    below = {score.concept for score in scores if score.f1 < REACHED}
    short = shortfalls(
        judged.detectors.calls(tables[1]),
        labels[1],
        concepts=names,
        labels=grammar,
        names=(*GRAMMATICAL_CONCEPTS, *LANGUAGES),
        generator=pairs,
        which=below,
    )
    together = joined_detectors(tables[0], labels[0], tables[1], labels[1], sizes=(2, 4))
    return {
        "concepts scored": int(enough.sum()),
        f"F1 {REACHED}, %": 100 * judged.reached(),
        f"same unit at F1 {SHARED} in three languages, %": 100 * judged.shared(),
        f"F1 {REACHED} of two units together, %": 100 * (together[0] >= REACHED).double().mean().item(),
        f"F1 {REACHED} of four units together, %": 100 * (together[1] >= REACHED).double().mean().item(),
        "tokens, median precision": by_token["precision"],
        "tokens, median recall": by_token["recall"],
        "tokens, median F1": by_token["f1"],
        "words called, median %": 100 * by_token["words"],
        "absorbed, %": 100 * absorbed["absorbed"],
        "absorbed in random pairs, %": 100 * absorbed["absorbed_random"],
        f"below F1 {REACHED}, split by grammar or language, %": 100
        * sum(s.split for s in short)
        / len(names),
        f"below F1 {REACHED}, also another word's, %": 100 * sum(s.merger for s in short) / len(names),
        **tense_splits(short, pairs),
        "different units": len(set(found.unit.tolist())),
        "dead features": int((tables[0].amax(dim=0) <= 0).sum()),
    }


def figures(
    *,
    model: str = "course-mbart",
    side: Literal["encoder", "decoder"] = "encoder",
    grid: Sequence[Setting] = GRID,
    seeds: Sequence[int] = SEEDS,
    sentences: int = SENTENCES,
) -> dict[str, Spread]:
    """The figures of all settings over the seeds, and of the largest one untrained."""
    torch.set_num_threads(1)
    (train, _), (held_out, grammar) = (
        states_of(model, side, split=split, sentences=sentences) for split in ("train", "test")
    )
    asked = (train, held_out, grammar)
    runs = {str(setting): [measured(setting, *asked, seed=s) for s in seeds] for setting in grid}
    largest = max(grid, key=lambda setting: setting.n_features)
    name = f"{largest.n_features} features, k = {largest.k}, untrained"
    runs[name] = [measured(largest, *asked, seed=s, trained=False) for s in seeds]
    values = {
        f"{model} {side}, {setting}: {what}": [one[what] for one in found if not math.isnan(one[what])]
        for setting, found in runs.items()
        for what in found[0]
    }
    return {name: Spread.of(known) for name, known in values.items() if known}


def run() -> dict[str, Spread]:
    """Return the figures of the default grid."""
    return figures()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="course-mbart")
    parser.add_argument("--side", default="encoder", choices=("encoder", "decoder"))
    parser.add_argument("--sizes", type=int, nargs="+", default=[2048])
    parser.add_argument("--active", type=int, nargs="+", default=[8])
    parser.add_argument("--steps", type=int, nargs="+", default=[2000])
    parser.add_argument("--step-size", type=float, default=4e-3)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--sentences", type=int, default=SENTENCES)
    asked = parser.parse_args()
    wanted = [
        Setting(n, k, steps, asked.step_size)
        for n in asked.sizes
        for k in asked.active
        for steps in asked.steps
    ]
    for name, spread in figures(
        model=asked.model, side=asked.side, grid=wanted, seeds=asked.seeds, sentences=asked.sentences
    ).items():
        print(f"{name:110s} {spread}")
