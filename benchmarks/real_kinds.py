"""Kinds of sparse autoencoders on a real language and on a built one: whose features find the words of other languages?

Real text: that of `real_text`, read by `course-mbart-help`. Built text: meanings of the course's own corpus, each said in
the same four languages and read by `course-mbart`; the held-out ones are those of its other split. States are those at the
end of the encoder, a value at each token; `ROWS` training rows are drawn with each seed, in all four languages.

A concept is an English word of the real text that no other language spells alike, or a lexical concept of the built one,
in `LEAST` held-out rows or more. Feature and threshold are chosen by F1 on *English* training sentences alone and judged
on the held-out rows of each language. The ceiling of the real text is that of `real_text`; of the built one it is 1: each
of its sentences says its meaning whole.

Every kind has 8 d features and takes the steps of the pipeline's default. What makes a kind sparse is its own: k, a weight,
or the highest and lowest target frequency of GBA's groups. From the setting in `START` each kind climbs by factors of 2,
up or down, until no neighbour has a larger mean F1 in English after half as many steps, on a draw of its own: fitted and
named on its rows, judged on the next `ROWS` / 2 training rows. The kind's figures are then those of all `SEEDS`.
"""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import get_context

import torch
from torch import Tensor

from benchmarks import help_text, real_text
from benchmarks.help_text import ENGLISH, LEAST
from benchmarks.real_text import sentences_of, summary
from course_lib import sae
from course_lib.interpret import rivals, translated_words
from course_lib.interpret.concepts import LabelledRows, encode_rows, label_table
from course_lib.interpret.detectors import REACHED, best_detectors
from course_lib.language.corpus import LEXICAL_CONCEPTS, concepts_of, draw_meanings, render
from course_lib.pipeline.config import SparseConfig, sparse_config
from course_lib.sae import metrics

ROWS, SEEDS, TUNING = 3_000, (0, 1, 2), 90
STEPS = SparseConfig().training.steps
Setting = float | tuple[float, float]
START: dict[str, Setting] = {
    "topk": 16,
    "batchtopk": 16,
    "matryoshka-batchtopk": 16,
    "relu": 0.2,
    "gated": 0.2,
    "gba": (0.05, 0.0005),
}
GROUPS = 6
SETTINGS = {
    "training rows": ROWS,
    "held-out rows of a word, at least": LEAST,
    "first settings": START,
    "groups of GBA": GROUPS,
}


class BuiltText:
    """Meanings said in four languages and their lexical concepts: training rows first, then the held-out ones."""

    def __init__(self, n_train: int, n_held_out: int) -> None:
        self.n_train = n_train
        meanings = [
            *draw_meanings(n_train, seed=700, split="train"),
            *draw_meanings(n_held_out, seed=701, split="test"),
        ]
        self.texts = {
            code: [render(meaning, code).text for meaning in meanings]
            for code in ("en_XX", "de_DE", "fr_XX", "es_XX")
        }
        self.held_out = torch.arange(len(meanings)) >= n_train
        labels = label_table([concepts_of(meaning) for meaning in meanings], LEXICAL_CONCEPTS)
        self.labels = labels[:, labels[self.held_out].sum(dim=0) >= LEAST]
        self.translated = torch.ones(self.labels.shape[1], dtype=torch.bool)

    def ceiling(self) -> dict[str, Tensor]:
        return {code: torch.ones(self.labels.shape[1]) for code in self.texts}

    drawn = help_text.Text.drawn
    sentences = help_text.Text.sentences


@cache
def text_of(name: str):
    return help_text.text() if name == "real" else BuiltText(12_000, 4_000)


@cache
def model_of(name: str):
    from course_lib.mbart.model import load

    return load(help_text.MODEL if name == "real" else "course-mbart")


def fitted(kind: str, setting: Setting, states: Tensor, seed: int, steps: int) -> sae.SparseAutoencoder:
    """A dictionary of a kind with its own setting, trained as the pipeline does but for the number of steps."""
    if kind == "gba":  # the pipeline has fixed target frequencies
        highest, lowest = setting
        made = sae.GroupBiasAdaptedAutoencoder(
            states.shape[1],
            8 * states.shape[1],
            groups=GROUPS,
            highest=highest,
            lowest=lowest,
            generator=torch.Generator().manual_seed(seed),
        )
        sae.train(
            made,
            states,
            sparse_config(kind=kind, steps=steps).training,
            generator=torch.Generator().manual_seed(100 + seed),
            progress=False,
        )
        return made.requires_grad_(False)
    by = "k" if isinstance(setting, int) else "penalty"
    return real_text.fitted(states, seed, sparse_config(kind=kind, steps=steps, **{by: setting}))


def judged(
    made: sae.SparseAutoencoder, train: LabelledRows, others: LabelledRows
) -> tuple[dict[str, Tensor], Tensor]:
    """The F1 of each concept in other rows, by language, and which features fire in training.

    Features and thresholds are those of English training rows.
    """
    tables = [side.largest(encode_rows(made, side.states)) for side in (train, others)]
    concepts = torch.arange(train.labels.shape[1])
    english, which = sentences_of(train, ENGLISH, concepts)
    found = best_detectors(tables[0].index_select(0, which).to_sparse_coo(), english.labels)
    fires = (tables[0].to_dense() > 0).any(dim=0)
    return dict(rivals.language_scores(found, tables[1], others)), fires


def read(name: str, rows: Tensor) -> LabelledRows:
    return help_text.read_rows(text_of(name), rows, *model_of(name))[0]


def neighbours(setting: Setting) -> list[Setting]:
    """One number of a setting halved or doubled; k stays whole."""
    if isinstance(setting, tuple):
        highest, lowest = setting
        return [(2 * highest, lowest), (highest / 2, lowest), (highest, 2 * lowest), (highest, lowest / 2)]
    return [2 * setting, setting // 2 or 1] if isinstance(setting, int) else [2 * setting, setting / 2]


def climbed(
    start: Setting, measure: Callable[[Setting], dict[str, float]]
) -> dict[Setting, dict[str, float]]:
    """What `measure` gives at each setting tried, until no neighbour of the best one in English is untried."""
    tried = {start: measure(start)}
    while True:
        best = max(tried, key=lambda setting: tried[setting][ENGLISH])
        new = [setting for setting in neighbours(best) if setting not in tried]
        if not new:
            return tried
        tried |= {setting: measure(setting) for setting in new}


@cache
def tuning_rows(name: str, n_rows: int) -> tuple[LabelledRows, LabelledRows]:
    """Training rows to fit on and further ones to judge on, with the concepts that both have in English."""
    drawn = text_of(name).drawn(n_rows + n_rows // 2, TUNING)
    train, others = read(name, drawn[:n_rows]), read(name, drawn[n_rows:])
    english = [sentences_of(side, ENGLISH, torch.arange(side.labels.shape[1]))[0] for side in (train, others)]
    asked = torch.stack([side.labels.sum(dim=0) for side in english]).amin(dim=0) >= translated_words.MIN_ROWS
    asked &= text_of(name).translated
    return replace(train, labels=train.labels[:, asked]), replace(others, labels=others.labels[:, asked])


def tuned(name: str, kind: str, n_rows: int, steps: int) -> dict[Setting, dict[str, float]]:
    """Of each setting of a kind the mean F1 by language, in training rows that it was not fitted on."""
    torch.set_num_threads(1)
    train, others = tuning_rows(name, n_rows)

    def measure(setting: Setting) -> dict[str, float]:
        f1, _ = judged(fitted(kind, setting, train.states, TUNING, steps), train, others)
        return {code: round(float(one.mean()), 4) for code, one in f1.items()}

    return climbed(START[kind], measure)


def of_seed(
    name: str,
    seed: int,
    chosen: dict[str, Setting],
    ceiling: dict[str, Tensor],
    n_rows: int,
    steps: int,
) -> dict[str, dict[str, float]]:
    """The figures of each kind with its setting, on the draw of a seed."""
    torch.set_num_threads(1)
    known = text_of(name)
    rows = known.drawn(n_rows, seed)
    train, held_out = read(name, rows), read(name, known.held_out.nonzero()[:, 0])
    asked = (known.labels[rows].sum(dim=0) >= translated_words.MIN_ROWS) & known.translated
    train, held_out = (replace(side, labels=side.labels[:, asked]) for side in (train, held_out))
    reachable = {code: values[asked] for code, values in ceiling.items()}
    found = {}
    for kind, setting in chosen.items():
        made = fitted(kind, setting, train.states, seed, steps)
        f1, fires = judged(made, train, held_out)
        some = held_out.states[:20_000]
        features = made.encode(some)
        found[kind] = {
            "concepts": int(asked.sum()),
            "active features": round(metrics.l0(features), 2),
            "dead features": int((~fires).sum()),
            "variance explained, %": round(100 * metrics.explained_variance(some, made.decode(features)), 2),
            f"F1 {REACHED} in English, %": round(100 * float((f1[ENGLISH] >= REACHED).double().mean()), 2),
            **summary(f1, reachable, torch.ones(int(asked.sum()), dtype=torch.bool)),
        }
    return found


def run(*, seeds: tuple[int, ...] = SEEDS, rows: int = ROWS, steps: int = STEPS) -> dict[str, object]:
    """Return of both texts the settings tried and, of each kind with the one it takes, the figures of all seeds in order."""
    names = ("real", "built")
    with ProcessPoolExecutor(
        max_workers=min(2, os.cpu_count() or 1), mp_context=get_context("spawn")
    ) as pool:
        tuning = {
            name: {kind: pool.submit(tuned, name, kind, rows, steps // 2) for kind in START} for name in names
        }
        ceiling = {name: text_of(name).ceiling() for name in names}
        tried = {name: {kind: one.result() for kind, one in by.items()} for name, by in tuning.items()}
        chosen = {
            name: {
                kind: max(by, key=lambda setting: by[setting][ENGLISH]) for kind, by in tried[name].items()
            }
            for name in names
        }
        asked = {
            name: [
                pool.submit(of_seed, name, seed, chosen[name], ceiling[name], rows, steps) for seed in seeds
            ]
            for name in names
        }
        runs = {name: [one.result() for one in each] for name, each in asked.items()}
    figures: dict[str, object] = {}
    for name in names:
        for kind, by in tried[name].items():
            figures[f"{name}: {kind}: settings"] = [
                {"setting": setting, "mean F1 in the tuning draw": f1} for setting, f1 in by.items()
            ]
            figures[f"{name}: {kind}: setting"] = chosen[name][kind]
            said = [one[kind] for one in runs[name]]
            figures |= {f"{name}: {kind}: {what}": [one[what] for one in said] for what in said[0]}
    return figures
