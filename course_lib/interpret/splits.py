"""Why a concept's detector falls short: what separates its hits from its misses, and what it calls instead."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

MARGIN = 0.25  # how far above chance a gap is a split, and a share a merger


@dataclass(frozen=True)
class Shortfall:
    """Why a concept's detector misses rows that hold the concept, and which rows it calls that do not.

    - `precision` and `recall` are those of its calls. A detector without calls has the precision None.
    - `divided_by` is the label that best separates hits from misses among the rows with the concept: the recall is
      `recall_with` in rows with that label and `recall_without` in the others. `gap` is their difference, and
      `gap_shuffled` the mean largest gap of any label when the same number of hits falls on rows at random. A gap that
      is larger by `MARGIN` is a `split`: some other unit stands for the concept there.
    - `mistaken_for` is the concept that most of the false calls hold. `mistaken` is its share of them and
      `mistaken_by_chance` the mean largest share of any concept in as many random rows without the concept. A share
      that is larger by `MARGIN` is a `merger`: one unit stands for both.

    The fields of a part are None where there are too few rows on either side.
    """

    concept: str
    precision: float | None
    recall: float
    divided_by: str | None
    recall_with: float | None
    recall_without: float | None
    gap: float | None
    gap_shuffled: float | None
    mistaken_for: str | None
    mistaken: float | None
    mistaken_by_chance: float | None

    @property
    def split(self) -> bool:
        """Whether hits and misses are divided by a label, beyond chance."""
        return self.gap is not None and self.gap - self.gap_shuffled >= MARGIN

    @property
    def merger(self) -> bool:
        """Whether false calls hold one concept, beyond chance."""
        return self.mistaken is not None and self.mistaken - self.mistaken_by_chance >= MARGIN


def shortfalls(
    calls: Bool[Tensor, "rows concepts"],
    holds: Bool[Tensor, "rows concepts"],
    *,
    concepts: Sequence[str],
    labels: Bool[Tensor, "rows labels"],
    names: Sequence[str],
    generator: torch.Generator,
    which: Collection[str] | None = None,
    least: int = 10,
    draws: int = 20,
) -> list[Shortfall]:
    """Find for each concept's detector what divides its hits from its misses, and what its false calls hold.

    `calls` are the rows that the detector of each concept calls and `holds` those that hold it; `labels` are what may
    divide a concept (grammar, language), named by `names`. `which` are the concepts to look at: None means all.
    A label divides only if `least` rows of the concept have it and `least` do not; false calls are examined if there
    are `least` of them. `draws` shufflings give the values by chance.

    Raises:
        ValueError: tables and names do not fit, or `least` or `draws` is below 1.
    """
    if holds.shape != (len(calls), len(concepts)) or labels.shape != (len(calls), len(names)):
        raise ValueError(
            f"calls, holds and labels must have the same rows and a column a name, got {tuple(calls.shape)}, "
            f"{tuple(holds.shape)} and {tuple(labels.shape)} for {len(concepts)} concepts and {len(names)} labels"
        )
    if min(least, draws) < 1:
        raise ValueError(f"least and draws must be 1 or more, got {least} and {draws}")
    asked = [i for i, concept in enumerate(concepts) if which is None or concept in which]
    found = []
    for i in asked:
        own, called = holds[:, i], calls[:, i]
        hits, others = called[own], holds[~own].double()
        false_calls = called[~own]
        n_calls = int(called.sum())
        found.append(
            Shortfall(
                concepts[i],
                int(hits.sum()) / n_calls if n_calls else None,
                float(hits.double().mean()),
                *_divided(hits, labels[own], names, least, draws, generator),
                *_mistaken(false_calls, others, concepts, least, draws, generator),
            )
        )
    return found


def _divided(hits: Tensor, labels: Tensor, names: Sequence[str], least: int, draws: int, generator) -> tuple:
    """The label that divides hits from misses most, its two recalls, their gap, and the largest gap by chance."""
    counts = labels.sum(dim=0)
    at = ((counts >= least) & (len(hits) - counts >= least)).nonzero()[:, 0]
    if not len(at):
        return (None,) * 5
    with_label, without = _recalls(hits[:, None], labels[:, at])
    gaps = (with_label - without)[:, 0].abs()
    top = int(gaps.argmax())
    order = torch.stack([torch.randperm(len(hits), generator=generator) for _ in range(draws)], dim=1)
    chance = torch.sub(*_recalls(hits[order.to(hits.device)], labels[:, at])).abs().amax(dim=0)
    return (
        names[at[top]],
        float(with_label[top, 0]),
        float(without[top, 0]),
        float(gaps[top]),
        float(chance.mean()),
    )


def _recalls(
    hits: Bool[Tensor, "rows draws"], labels: Bool[Tensor, "rows labels"]
) -> tuple[Float[Tensor, "labels draws"], Float[Tensor, "labels draws"]]:
    """The share of hits in the rows with each label and in those without it."""
    sides = (labels.double(), (~labels).double())
    return tuple(side.T @ hits.double() / side.sum(dim=0)[:, None] for side in sides)


def _mistaken(
    false_calls: Tensor, others: Tensor, concepts: Sequence[str], least: int, draws: int, generator
) -> tuple:
    """The concept of most false calls, its share of them, and the largest share in as many rows by chance."""
    count = int(false_calls.sum())
    if count < least:
        return (None,) * 3
    shares = others[false_calls].mean(dim=0)
    top = int(shares.argmax())
    by_chance = [
        others[torch.randperm(len(others), generator=generator)[:count].to(others.device)].mean(dim=0).max()
        for _ in range(draws)
    ]
    return concepts[top], float(shares[top]), float(torch.stack(by_chance).mean())
