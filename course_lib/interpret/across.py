"""What is chosen on the sentences of one language and called in the others: features beside directions from labels.

In one language a word nearly always has one spelling, and whatever knows the spelling detects the word: so do the
features of an untrained model (`make bench across_languages`). In the other languages only what stands for the meaning
does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.interpret import rivals
from course_lib.interpret.concepts import LabelledRows
from course_lib.interpret.detectors import REACHED, SHARED, Detectors, best_detectors

SHRINKAGES = (0.01, 0.1, 1.0, 10.0)  # of the discriminants, from Fisher's towards the difference of means
_ENGLISH = "en_XX"


@dataclass(frozen=True)
class ArmAcross:
    """Shares of the concepts: F1 of at least `REACHED` in the language of choice, `SHARED` in every other one."""

    own: float
    others: float


@dataclass(frozen=True)
class AcrossLanguages:
    """Detectors chosen on training sentences of one language, and scored on held-out ones of each.

    `language` is that of choice, `others` are the languages beside it, `n` counts the concepts with enough sentences.
    `arms` has "features" and "neurons" (the best column of the table), "means", "lda" and "refitted" (the concept's own
    direction, from labels of sentences; the last is `rivals.refitted_discriminants`). `shrinkages` are for "lda" and
    "refitted" those of `SHRINKAGES` with the largest share in the other languages, which favours both.
    """

    language: str
    others: list[str]
    n: int
    arms: dict[str, ArmAcross]
    shrinkages: dict[str, float]


def across_languages(
    tables: Mapping[str, Sequence[Float[Tensor, "_ units"]]],
    train: LabelledRows,
    held_out: LabelledRows,
    *,
    min_train: int = 10,
    min_held_out: int = 5,
    language: str | None = None,
) -> AcrossLanguages | None:
    """Choose detectors in one language, English where it is there and else the most frequent, and score them in each.

    With `language` they are chosen in that one.

    `tables` are values of the training and of the held-out rows (`LabelledRows.largest`), by arm. A concept counts
    with `min_train` training rows in the language of choice and `min_held_out` held-out rows in every language. None
    where the rows name fewer than two languages or no concept has enough rows.
    """
    spoken = list(train.languages or ())
    languages = sorted(set(spoken) & set(held_out.languages or ()), key=spoken.count, reverse=True)
    if len(languages) < 2:
        return None
    if language not in languages:
        language = _ENGLISH if _ENGLISH in languages else languages[0]
    own = torch.tensor([name == language for name in spoken])
    enough = train.labels[own].sum(dim=0) >= max(1, min_train)
    enough &= ~train.labels[own].all(dim=0)
    for name in languages:
        there = torch.tensor([one == name for one in held_out.languages])
        enough &= held_out.labels[there].sum(dim=0) >= max(1, min_held_out)
    if not enough.any():
        return None
    chosen = _rows_of(train, own, enough)
    judged = replace(held_out, labels=held_out.labels[:, enough], part_labels=None)
    others = sorted(set(languages) - {language})

    def arm(found: Detectors, values: Tensor) -> ArmAcross:
        f1 = dict(rivals.language_scores(found, values, judged))
        elsewhere = torch.stack([f1[name] for name in others])
        return ArmAcross(_share(f1[language] >= REACHED), _share((elsewhere >= SHARED).all(dim=0)))

    arms = {
        name: arm(best_detectors(_select(known, own), chosen.labels), values)
        for name, (known, values) in tables.items()
    }
    labels = chosen.labels[chosen.groups] if chosen.groups is not None else chosen.labels

    def directed(made: Tensor) -> ArmAcross:
        return arm(
            rivals.own_detectors(rivals.largest_projections(chosen, made), chosen.labels),
            rivals.largest_projections(judged, made),
        )

    fits = {
        "lda": lambda shrinkage: rivals.discriminants(chosen.states, labels, shrinkage=shrinkage),
        "refitted": lambda shrinkage: rivals.refitted_discriminants(chosen, shrinkage=shrinkage),
    }
    arms["means"] = directed(rivals.difference_of_means(chosen.states, labels))
    shrinkages = {}
    for name, fit in fits.items():
        tried = {shrinkage: directed(fit(shrinkage)) for shrinkage in SHRINKAGES}
        shrinkages[name] = max(SHRINKAGES, key=lambda one: tried[one].others)
        arms[name] = tried[shrinkages[name]]
    return AcrossLanguages(language, others, int(enough.sum()), arms, shrinkages)


def _rows_of(rows: LabelledRows, which: Bool[Tensor, " rows"], concepts: Tensor) -> LabelledRows:
    """Keep some rows, with the labels of some concepts and states in single precision."""
    number = which.cumsum(0) - 1
    parts = which if rows.groups is None else which[rows.groups]
    return LabelledRows(
        rows.states[parts].float(),
        rows.labels[which][:, concepts],
        groups=None if rows.groups is None else number[rows.groups[parts]],
    )


def _select(table: Tensor, which: Tensor) -> Tensor:
    """Keep some rows of a table, sparse or dense."""
    return table.index_select(0, which.nonzero()[:, 0])


def _share(which: Tensor) -> float:
    return which.double().mean().item()
