"""Units as detectors of concepts, judged by F1: what a name on a feature is worth.

AUROC asks whether rows with a concept rank above rows without it, and is lenient where a concept is rare: a unit
that fires for every tool reaches 0.95 for "hammer" although most of its calls are wrong. F1, the harmonic mean of
precision and recall, is not: that unit's F1 for "hammer" is low. Here the unit and its threshold are those with
the largest F1 on training rows, and what counts is the F1 of that unit with that threshold on held-out rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.sae.concepts import LabelledRows, best_thresholds, f1_scores, paired_auroc

REACHED = 0.9  # the held-out F1 from which a concept counts as having a unit
SHARED = 0.8  # the held-out F1 from which a unit counts as its detector in one language

_TRIPLES = 1 << 24  # entries times concepts a row that are sorted at a time


@dataclass(frozen=True)
class Detectors:
    """One detector a concept: the rows whose value of `unit` exceeds `threshold`; and its F1 where it was chosen."""

    unit: Int[Tensor, " concepts"]
    threshold: Float[Tensor, " concepts"]
    f1: Float[Tensor, " concepts"]

    def calls(self, scores: Float[Tensor, "rows units"]) -> Bool[Tensor, "rows concepts"]:
        """Return which rows each detector calls."""
        return _columns(scores, self.unit) > self.threshold


def best_detectors(
    scores: Float[Tensor, "rows units"], labels: Bool[Tensor, "labelled concepts"]
) -> Detectors:
    """Return for each concept the unit and the threshold with the largest F1 on these rows.

    Readable: `best_detectors_by_columns`. Fast: F1 = 2 TP / (calls + P) can be largest only where the last row
    called is a positive one, so of a unit's rows in falling order only pairs of a row and a concept that it holds
    are looked at: few, since rows hold few concepts. A sparse table (COO, entries above 0) gives only what is
    stored in it; its thresholds are above 0. Of equals the first unit is taken, and its highest threshold.

    Raises ValueError where `scores` and `labels` differ in rows, a concept has no positive row, or scores are not
    finite.
    """
    if len(scores) != len(labels):
        raise ValueError(f"scores has {len(scores)} rows, labels {len(labels)}; expected as many")
    positives = labels.sum(dim=0)
    if not (positives > 0).all():
        raise ValueError(f"labels has no positive row for concept {int((positives == 0).nonzero()[0])}")
    n_concepts, dtype = labels.shape[1], torch.float64
    best = Detectors(
        torch.zeros(n_concepts, dtype=torch.long),
        torch.full((n_concepts,), float("inf"), dtype=scores.dtype),
        torch.zeros(n_concepts, dtype=dtype),
    )
    held = labels.nonzero()[:, 1]
    of_row = labels.sum(dim=1)
    first = of_row.cumsum(0) - of_row
    for row, unit, value in _falling(scores, per_row=max(1, round(len(held) / max(1, len(labels))))):
        # Rows called down to each entry of its unit; of equal values all are called together.
        start = torch.ones(len(unit), dtype=torch.bool)
        start[1:] = unit[1:] != unit[:-1]
        last = torch.ones_like(start)
        last[:-1] = start[1:] | (value[1:] != value[:-1])
        place = torch.arange(len(unit))
        offset = torch.where(start, place, 0).cummax(0).values
        end = torch.where(last, place, len(unit)).flip(0).cummin(0).values.flip(0)
        # One triple for each concept that an entry's row holds, sorted by unit and concept, order kept within.
        times = of_row[row]
        entry = place.repeat_interleave(times)
        step = torch.arange(len(entry)) - (times.cumsum(0) - times).repeat_interleave(times)
        concept = held[first[row[entry]] + step]
        order = (unit[entry] * n_concepts + concept).argsort(stable=True)
        entry, concept = entry[order], concept[order]
        key = unit[entry] * n_concepts + concept
        new = torch.ones(len(key), dtype=torch.bool)
        new[1:] = key[1:] != key[:-1]
        index = torch.arange(len(key))
        hits = index - torch.where(new, index, 0).cummax(0).values + 1
        called = end[entry] - offset[entry] + 1
        f1 = 2 * hits.to(dtype) / (called + positives[concept])
        top = best.f1.scatter_reduce(0, concept, f1, "amax")
        # The first triple, and so the lowest unit and highest threshold, that is as good as the best and better than before.
        wins = (f1 == top[concept]) & (f1 > best.f1[concept])
        chosen = torch.full((n_concepts,), len(key)).scatter_reduce(0, concept[wins], index[wins], "amin")
        better = chosen < len(key)
        at = entry[chosen[better]]
        best.unit[better] = unit[at]
        best.threshold[better] = _below(value, unit, end[at], empty=0.0 if scores.is_sparse else None)
        best.f1[better] = top[better]
    return best


def best_detectors_by_columns(
    scores: Float[Tensor, "rows units"], labels: Bool[Tensor, "rows concepts"]
) -> Detectors:
    """`best_detectors`, readable: the best threshold of every unit, then the best unit. Dense tables only."""
    units, n_concepts = scores.shape[1], labels.shape[1]
    repeated = scores.repeat_interleave(n_concepts, dim=1)
    truth = labels.repeat(1, units)
    threshold = best_thresholds(repeated, truth)
    f1 = f1_scores(repeated > threshold, truth).view(units, n_concepts)
    unit = f1.argmax(dim=0)
    pick = torch.arange(n_concepts)
    return Detectors(unit, threshold.view(units, n_concepts)[unit, pick], f1[unit, pick])


def _falling(scores: Tensor, *, per_row: int):
    """Yield rows, units and values of a table by blocks of units: by unit, and within it by falling value."""
    if scores.is_sparse:
        table = scores.coalesce()
        keep = table.values() > 0
        row, unit = table.indices()[:, keep]
        value = table.values()[keep]
        counts = unit.bincount(minlength=scores.shape[1])
    else:
        row = torch.arange(len(scores))
        counts = torch.full((scores.shape[1],), len(scores))
    total, start = 0, 0
    for stop in range(1, len(counts) + 1):
        total += int(counts[stop - 1]) * per_row
        if stop < len(counts) and total + int(counts[stop]) * per_row <= _TRIPLES:
            continue
        if scores.is_sparse:
            here = (unit >= start) & (unit < stop)
            r, u, v = row[here], unit[here], value[here]
        else:
            r = row.repeat(stop - start)
            u = torch.arange(start, stop).repeat_interleave(len(scores))
            v = scores[:, start:stop].T.flatten()
        if not v.isfinite().all():
            raise ValueError("scores have NaN or infinite values; expected finite numbers")
        order = v.argsort(descending=True, stable=True)
        order = order[u[order].argsort(stable=True)]
        if len(order):
            yield r[order], u[order], v[order]
        total, start = 0, stop


def _below(value: Tensor, unit: Tensor, at: Tensor, *, empty: float | None) -> Tensor:
    """Thresholds half-way between the entries at some places and the next ones of the same unit.

    Below a unit's last entry stand the zeros that a sparse table does not store, or nothing: 1 below it.
    """
    following = (at + 1).clamp(max=len(value) - 1)
    more = (at + 1 < len(value)) & (unit[following] == unit[at])
    below = value[at] - 2 if empty is None else torch.full_like(value[at], empty)
    return (value[at] + torch.where(more, value[following], below)) / 2


def _columns(values: Tensor, units: Tensor) -> Tensor:
    picked = values.index_select(1, units)
    return picked.to_dense() if picked.is_sparse else picked


@dataclass(frozen=True)
class Judged:
    """What the detectors of some concepts are worth on held-out rows, one entry a concept.

    `languages` counts the languages on whose rows the F1 is at least `SHARED`; `scored` those with enough
    positive rows to say so.
    """

    detectors: Detectors
    positives: Int[Tensor, " concepts"]
    f1: Float[Tensor, " concepts"]
    auroc: Float[Tensor, " concepts"]
    languages: Int[Tensor, " concepts"]
    scored: Int[Tensor, " concepts"]

    def reached(self) -> float:
        """Return the share of concepts with a held-out F1 of at least `REACHED`."""
        return float((self.f1 >= REACHED).double().mean())

    def shared(self, languages: int = 3) -> float:
        """Return the share of concepts whose one unit is their detector in so many languages or more."""
        return float((self.languages >= languages).double().mean())


def judge(
    train: Float[Tensor, "rows units"],
    held_out: Float[Tensor, "other units"],
    train_rows: LabelledRows,
    held_out_rows: LabelledRows,
    *,
    min_positives: int = 5,
) -> Judged:
    """Choose a detector for each concept on training rows, and judge it on held-out rows.

    The tables are of whole rows (`LabelledRows.largest` of tokens' values), sparse or dense. A language is scored
    for a concept with at least `min_positives` positive held-out rows in it. Raises ValueError as `best_detectors`,
    and where a held-out meaning is a training meaning.
    """
    shared = set(train_rows.meanings or ()) & set(held_out_rows.meanings or ())
    if shared:
        raise ValueError(
            f"{len(shared)} meanings, such as {min(shared)}, are in train and in held_out; split rows by meaning"
        )
    found = best_detectors(train, train_rows.labels)
    labels, calls = held_out_rows.labels, found.calls(held_out)
    languages, scored = torch.zeros(2, len(found.unit), dtype=torch.long).unbind()
    for name in sorted(set(held_out_rows.languages or ())):
        rows = torch.tensor([language == name for language in held_out_rows.languages])
        enough = labels[rows].sum(dim=0) >= min_positives
        languages += enough & (f1_scores(calls[rows], labels[rows]) >= SHARED)
        scored += enough
    return Judged(
        found,
        labels.sum(dim=0),
        f1_scores(calls, labels),
        paired_auroc(_columns(held_out, found.unit), labels),
        languages,
        scored,
    )


def joined_detectors(
    scores: Float[Tensor, "rows units"],
    labels: Bool[Tensor, "rows concepts"],
    held_out: Float[Tensor, "other units"],
    truth: Bool[Tensor, "other concepts"],
    *,
    sizes: Sequence[int] = (1, 2, 4),
    candidates: int = 12,
) -> Float[Tensor, "sizes concepts"]:
    """Return the held-out F1 of the best 1, 2, 4 units together: a row is called where any of them calls it.

    Units are added one by one, each with the threshold for which the calls of all have the largest F1 on the
    training rows, as long as that rises; they come from the `candidates` whose own F1 for the concept is largest.
    How much F1 rises from one unit to several says how far a concept is split among features. Dense tables.
    """
    units = scores.shape[1]
    result = torch.zeros(len(sizes), labels.shape[1], dtype=torch.float64)
    for concept in range(labels.shape[1]):
        label = labels[:, concept]
        # A unit that is silent on all positive rows cannot help.
        active = (scores[label] > 0).sum(dim=0)
        pool = active.topk(min(4 * candidates, units)).indices
        own = best_thresholds(scores[:, pool], label[:, None].expand(-1, len(pool)))
        f1 = f1_scores(scores[:, pool] > own, label[:, None].expand(-1, len(pool)))
        pool = pool[f1.topk(min(candidates, len(pool))).indices]
        called = torch.zeros(len(scores), dtype=torch.bool)
        called_out = torch.zeros(len(held_out), dtype=torch.bool)
        best = 0.0
        for size in range(1, max(sizes) + 1):
            joined = scores[:, pool].masked_fill(called[:, None], torch.inf)
            cut = best_thresholds(joined, label[:, None].expand(-1, len(pool)))
            value = f1_scores(joined > cut, label[:, None].expand(-1, len(pool)))
            top = int(value.argmax())
            if float(value[top]) > best:
                best = float(value[top])
                called |= scores[:, pool[top]] > cut[top]
                called_out |= held_out[:, pool[top]] > cut[top]
            if size in sizes:
                result[list(sizes).index(size), concept] = f1_scores(
                    called_out[:, None], truth[:, concept, None]
                )[0]
    return result
