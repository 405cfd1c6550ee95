"""Words of a software manual, named on English paragraphs: does the same feature find their translations?

The text is the help of LibreOffice in English, German, French and Spanish, a table that `course corpus libreoffice-help
--languages en de fr es --out help.tsv` writes; `COURSE_HELP_TABLE` names the file. The model is `course-mbart-help`, read
at the end of its encoder, a value at each token; a sentence's is the largest over its tokens. `ROWS` training rows are drawn
with each seed, in all four languages; the held-out rows are all that the table has, on other pages.

Concepts are the English words of `translated_words.find_words` in `LEAST` held-out rows or more: of the whole table, so that
they are the same for all seeds. A sentence holds a word if the English one of its row has it. "Translated" are those that no
other language spells alike, and the table of figures is theirs; the others stand beside them.

Everything is chosen (column, sign, threshold) on training sentences, by F1: of English ones alone ("named in English"), or
of all four languages. Arms: TopK dictionaries of the trained and of the untrained model, as the pipeline trains them;
neurons and principal components of either sign; as many random features; word pieces; and, told the labels, one direction
for each word: difference of means, LDA, and LDA refitted on the token of the largest value, with the shrinkage that has the
largest mean F1 in training, and with each one. The ceiling is a linear probe of the words of each language, told the labels
of all training rows of the table (`translated_words.word_ceiling`).
"""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import torch
from torch import Tensor

from benchmarks.help_text import ENGLISH, LEAST, models, read_rows, text
from course_lib import sae
from course_lib.interpret import rivals, translated_words
from course_lib.interpret.across import SHRINKAGES
from course_lib.interpret.concepts import (
    LabelledRows,
    encode_rows,
    principal_components,
    random_features,
)
from course_lib.interpret.detectors import SHARED, Detectors, best_detectors
from course_lib.interpret.translated_words import CEILING_REACHED
from course_lib.pipeline import SparseConfig
from course_lib.pipeline.config import dictionary

ROWS, SEEDS = 4_000, (0, 1, 2, 3, 4)
SETTINGS = {"training rows": ROWS, "held-out rows of a word, at least": LEAST, "shrinkages": SHRINKAGES}
LABELS = {ENGLISH: "named in English", None: "named in all languages"}


def fitted(states: Tensor, seed: int, config: SparseConfig) -> sae.SparseAutoencoder:
    """A dictionary as the pipeline trains it."""
    made = dictionary(config, states.shape[1], generator=torch.Generator().manual_seed(seed))
    sae.train(
        made, states, config.training, generator=torch.Generator().manual_seed(100 + seed), progress=False
    )
    return made.requires_grad_(False)


def told_nothing(
    sides, pieces, n_pieces: int, seed: int, config: SparseConfig
) -> Iterator[tuple[str, tuple]]:
    """The values of the arms that labels choose a column of, in training and held-out sentences, one arm at a time."""
    trained, untrained = sides
    for name, pair in (("features", trained), ("features of the untrained model", untrained)):
        made = fitted(pair[0].states, seed, config)
        yield name, tuple(side.largest(encode_rows(made, side.states)).to_sparse_coo() for side in pair)
    states = tuple(side.states for side in trained)
    both = lambda tables: tuple(  # noqa: E731
        torch.cat([side.largest(table), side.largest(-table)], dim=1)
        for side, table in zip(trained, tables, strict=True)
    )
    yield "neurons", both(states)
    yield "principal components", both([table.float() for table in principal_components(states[0], *states)])
    random = random_features(
        states[0], *states, n_features=made.n_features, active=config.k,
        generator=torch.Generator().manual_seed(200 + seed),
    )  # fmt: skip
    yield (
        "random features",
        tuple(side.largest(table).to_sparse_coo() for side, table in zip(trained, random, strict=True)),
    )
    yield (
        "word pieces",
        tuple(
            rivals.piece_table(token, side.groups, n_sentences=len(side.labels), n_pieces=n_pieces).coalesce()
            for side, token in zip(trained, pieces, strict=True)
        ),
    )


def told_labels(train: LabelledRows, held_out: LabelledRows) -> Iterator[tuple[str, Detectors, Tensor]]:
    """The arms with a direction for each word, their detectors and their values in the held-out sentences."""

    def judged(made: Tensor) -> tuple[Detectors, Tensor]:
        found = rivals.own_detectors(rivals.largest_projections(train, made), train.labels)
        return found, rivals.largest_projections(held_out, made)

    labels = train.labels[train.groups]
    yield "difference of means", *judged(rivals.difference_of_means(train.states, labels))
    fits = {
        "LDA": lambda shrinkage: rivals.discriminants(train.states, labels, shrinkage=shrinkage),
        "LDA refitted": lambda shrinkage: rivals.refitted_discriminants(train, shrinkage=shrinkage),
    }
    for name, fit in fits.items():
        tried = {shrinkage: judged(fit(shrinkage)) for shrinkage in SHRINKAGES}
        yield name, *max(tried.values(), key=lambda one: float(one[0].f1.mean()))
        for shrinkage, one in tried.items():
            yield f"{name} with shrinkage {shrinkage:g}", *one


def sentences_of(rows: LabelledRows, language: str | None, concepts: Tensor) -> tuple[LabelledRows, Tensor]:
    """The sentences of a language (all with None) with the labels of some words, and which they are."""
    which = torch.tensor([language in (None, spoken) for spoken in rows.languages])
    number, parts = which.cumsum(0) - 1, which[rows.groups]
    chosen = LabelledRows(
        rows.states[parts], rows.labels[which][:, concepts], groups=number[rows.groups[parts]]
    )
    return chosen, which.nonzero()[:, 0]


def of_seed(seed: int, n_rows: int, steps: int) -> dict[str, list[float]]:
    """The held-out F1 of each arm and word, by arm and language, in the order of the words; NaN where it was not asked."""
    torch.set_num_threads(1)
    known, (both, tokenizer) = text(), models()
    config = replace(SparseConfig(), training=replace(SparseConfig().training, steps=steps))
    rows = known.drawn(n_rows, seed)
    others = known.held_out.nonzero()[:, 0]
    read = {
        name: [read_rows(known, some, model, tokenizer) for some in (rows, others)]
        for name, model in both.items()
    }
    sides = [tuple(side for side, _ in pair) for pair in read.values()]
    pieces = [token for _, token in read["trained"]]
    asked = known.labels[rows].sum(dim=0) >= translated_words.MIN_ROWS
    train, held_out = sides[0]
    judged = replace(held_out, labels=held_out.labels[:, asked])
    found: dict[str, list[float]] = {}

    def note(name: str, label: str, detectors: Detectors, values: Tensor) -> None:
        for language, f1 in rivals.language_scores(detectors, values, judged):
            row = torch.full((len(asked),), torch.nan, dtype=torch.float64)
            row[asked] = f1.double()
            found[f"{name}, {label}: {language}"] = row.tolist()

    for name, (values, other) in told_nothing(sides, pieces, len(tokenizer), seed, config):
        for language, label in LABELS.items():
            own, which = sentences_of(train, language, asked)
            note(name, label, best_detectors(values.index_select(0, which), own.labels), other)
    for language, label in LABELS.items():
        own, _ = sentences_of(train, language, asked)
        for name, detectors, values in told_labels(own, judged):
            note(name, label, detectors, values)
    return found


def percent(which: Tensor) -> float:
    return round(100 * which.double().mean().item(), 2)


def summary(f1: dict[str, Tensor], ceiling: dict[str, Tensor], chosen: Tensor) -> dict[str, float]:
    """What is said of one arm and one seed: medians by language, and shares of the words `chosen` that were asked."""
    chosen = chosen & ~f1[ENGLISH].isnan()
    others = [code for code in f1 if code != ENGLISH]
    reached = {code: f1[code][chosen] >= CEILING_REACHED * ceiling[code][chosen] for code in f1}
    return {
        **{f"median F1, {code}": round(f1[code][chosen].median().item(), 4) for code in f1},
        **{f"0.9 of the ceiling, {code}, %": percent(reached[code]) for code in f1},
        "0.9 of the ceiling in the three others, %": percent(
            torch.stack([reached[code] for code in others]).all(dim=0)
        ),
        f"F1 {SHARED} in the three others, %": percent(
            torch.stack([f1[code][chosen] >= SHARED for code in others]).all(dim=0)
        ),
    }


def run(
    *, seeds: tuple[int, ...] = SEEDS, rows: int = ROWS, steps: int = SparseConfig().training.steps
) -> dict[str, object]:
    """Return figures of each arm with all seeds, in their order, and what the text itself allows."""
    known = text()
    ceiling = known.ceiling()
    with ProcessPoolExecutor(
        max_workers=min(2, os.cpu_count() or 1), mp_context=get_context("spawn")
    ) as pool:
        asked = [pool.submit(of_seed, seed, rows, steps) for seed in seeds]
        runs = [one.result() for one in asked]
    groups = {"translated": known.translated, "alike": ~known.translated}
    figures: dict[str, object] = {
        "rows to draw from": known.n_train,
        "held-out rows": int(known.held_out.sum()),
        "words": {word.word: len(word.alike) for word in known.words},  # languages that spell it alike
        **{f"words, {group}": int(which.sum()) for group, which in groups.items()},
    }
    codes = list(known.texts)
    for code in codes:
        figures[f"ceiling of each word, {code}"] = [round(value, 4) for value in ceiling[code].tolist()]
        for group, which in groups.items():
            figures[f"{group}: ceiling: median F1, {code}"] = round(ceiling[code][which].median().item(), 4)
    arms = list(dict.fromkeys(name.rpartition(": ")[0] for name in runs[0]))
    for arm in arms:
        by_seed = [
            {code: torch.tensor(run[f"{arm}: {code}"], dtype=torch.float64) for code in codes} for run in runs
        ]
        for group, which in groups.items():
            said = [summary(f1, ceiling, which) for f1 in by_seed]
            figures |= {f"{group}: {arm}: {what}": [one[what] for one in said] for what in said[0]}
        if arm.startswith("features, "):
            for code in codes:
                median = torch.stack([f1[code] for f1 in by_seed]).nanmedian(dim=0).values
                figures[f"{arm}: median over the seeds of each word, {code}"] = [
                    round(value, 4) for value in median.tolist()
                ]
    return figures
