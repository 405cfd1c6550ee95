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

from course_lib.interpret.concepts import LabelledRows, best_thresholds, f1_scores, paired_auroc

REACHED = 0.9  # the held-out F1 from which a concept counts as having a unit
SHARED = 0.8  # the held-out F1 from which a unit counts as its detector in one language

_TRIPLES = 1 << 22  # entries times rare concepts a row that are sorted at a time
_RARE = 16  # a concept of fewer than one row in so many is rare
_DEEP = 16  # of a dense table's rows one in so many is looked at first, in each unit the largest


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
    called is a positive one, so of a unit's rows in falling order only pairs of a row and a rare concept that it
    holds are looked at: few, since rows hold few of them. With n rows called F1 is at most 2 P / (n + P): what a
    concept reaches among the largest rows of a dense table says how deep its other rows have to be looked at. A
    sparse table (COO, entries above 0) gives only what is stored in it; its thresholds are above 0. Of equals the
    first unit is taken, and its highest threshold.

    Raises ValueError where `scores` and `labels` differ in rows, a concept has no positive row, or scores are not
    finite.
    """
    if len(scores) != len(labels):
        raise ValueError(f"scores has {len(scores)} rows, labels {len(labels)}; expected as many")
    positives = labels.sum(dim=0)
    if not (positives > 0).all():
        raise ValueError(f"labels has no positive row for concept {int((positives == 0).nonzero()[0])}")
    if not (scores.coalesce().values() if scores.is_sparse else scores).isfinite().all():
        raise ValueError("scores have NaN or infinite values; expected finite numbers")
    if scores.is_sparse:
        return _best_to_depth(scores, labels, len(scores))
    depth = 1 + len(scores) // _DEEP
    best = _best_to_depth(scores, labels, depth)
    reach = _reach(positives, best.f1)
    if (deeper := reach > depth).any():
        again = _best_to_depth(scores, labels[:, deeper], int(reach.max().ceil().clamp(max=len(scores))))
        for name in ("unit", "threshold", "f1"):
            getattr(best, name)[deeper] = getattr(again, name)
    return best


def _reach(positives: Tensor, f1: Tensor) -> Tensor:
    """The largest number of called rows with which F1 can be as large."""
    return positives * (2 / f1 - 1)


def _best_to_depth(scores: Tensor, labels: Tensor, depth: int) -> Detectors:
    """`best_detectors` of detectors that call at most `depth` rows."""
    positives = labels.sum(dim=0)
    n_concepts, dtype = labels.shape[1], torch.float64
    best = Detectors(
        torch.zeros(n_concepts, dtype=torch.long),
        torch.full((n_concepts,), float("inf"), dtype=scores.dtype),
        torch.zeros(n_concepts, dtype=dtype),
    )
    empty = 0.0 if scores.is_sparse else None
    # Frequent concepts are counted one by one along the sorted entries, rare ones all together.
    common = positives > len(labels) / _RARE
    rare = labels & ~common
    holding, held = rare.nonzero().T
    of_row = rare.sum(dim=1)
    first = of_row.cumsum(0) - of_row
    per_row = max(1, round(len(held) / max(1, len(labels))))
    for row, unit, value in _falling(scores, depth=depth, per_row=per_row):
        # Rows called down to each entry of its unit; of equal values all are called together.
        start = torch.ones(len(unit), dtype=torch.bool)
        start[1:] = unit[1:] != unit[:-1]
        last = torch.ones_like(start)
        last[:-1] = start[1:] | (value[1:] != value[:-1])
        place = torch.arange(len(unit))
        offset = torch.where(start, place, 0).cummax(0).values
        end = torch.where(last, place, len(unit)).flip(0).cummin(0).values.flip(0)
        calls = (end - offset + 1).to(dtype)
        calls[calls > depth] = torch.inf  # more rows than are here may have that value
        for concept in common.nonzero()[:, 0].tolist():
            holds = labels[:, concept][row]
            hits = holds.cumsum(0)
            f1 = 2 * (hits - hits[offset] + holds[offset]) / (calls + positives[concept])
            at = f1.argmax()
            if f1[at] > best.f1[concept]:
                best.unit[concept], best.f1[concept] = unit[at], f1[at]
                best.threshold[concept] = _below(value, unit, end[at], empty=empty)
        # Rows of a concept that are too deep to be better than the best so far need not be looked at.
        reach = _reach(positives, best.f1)
        rank = place - offset
        deepest = torch.zeros(len(labels), dtype=dtype).scatter_reduce(0, holding, reach[held], "amax")
        seen = (rank < deepest[row]).nonzero()[:, 0]
        # One triple for each rare concept that an entry's row holds, sorted by unit and concept, order kept within.
        times = of_row[row[seen]]
        entry = seen.repeat_interleave(times)
        step = torch.arange(len(entry)) - (times.cumsum(0) - times).repeat_interleave(times)
        concept = held[first[row[entry]] + step]
        near = rank[entry] < reach[concept]
        entry, concept = entry[near], concept[near]
        order = (unit[entry] * n_concepts + concept).argsort(stable=True)
        entry, concept = entry[order], concept[order]
        key = unit[entry] * n_concepts + concept
        new = torch.ones(len(key), dtype=torch.bool)
        new[1:] = key[1:] != key[:-1]
        index = torch.arange(len(key))
        hits = index - torch.where(new, index, 0).cummax(0).values + 1
        f1 = 2 * hits / (calls[entry] + positives[concept])
        top = best.f1.scatter_reduce(0, concept, f1, "amax")
        # The first triple, and so the lowest unit and highest threshold, that is as good as the best and better than before.
        wins = (f1 == top[concept]) & (f1 > best.f1[concept])
        chosen = torch.full((n_concepts,), len(key)).scatter_reduce(0, concept[wins], index[wins], "amin")
        better = chosen < len(key)
        at = entry[chosen[better]]
        best.unit[better] = unit[at]
        best.threshold[better] = _below(value, unit, end[at], empty=empty)
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


def _falling(scores: Tensor, *, depth: int, per_row: int):
    """Yield rows, units and values of a table by blocks of units: by unit, and within it by falling value.

    Of a dense table `depth` rows a unit and one more, where there are so many.
    """
    if scores.is_sparse:
        table = scores.coalesce()
        keep = table.values() > 0
        row, unit = table.indices()[:, keep]
        value = table.values()[keep]
        counts = unit.bincount(minlength=scores.shape[1])
    else:
        deepest = min(depth + 1, len(scores))
        counts = torch.full((scores.shape[1],), deepest)
    total, start = 0, 0
    for stop in range(1, len(counts) + 1):
        total += int(counts[stop - 1]) * per_row
        if stop < len(counts) and total + int(counts[stop]) * per_row <= _TRIPLES:
            continue
        if scores.is_sparse:
            here = (unit >= start) & (unit < stop)
            r, u, v = row[here], unit[here], value[here]
            order = v.argsort(descending=True, stable=True)
            order = order[u[order].argsort(stable=True)]
            r, u, v = r[order], u[order], v[order]
        else:
            v, r = scores[:, start:stop].T.contiguous().topk(deepest, dim=1)
            u = torch.arange(start, stop).repeat_interleave(deepest)
            r, v = r.flatten(), v.flatten()
        if len(v):
            yield r, u, v
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
    found: Detectors,
    held_out: Float[Tensor, "rows units"],
    rows: LabelledRows,
    *,
    min_positives: int = 5,
) -> Judged:
    """Judge detectors that were chosen on other rows.

    The table is of whole rows (`LabelledRows.largest` of tokens' values), sparse or dense. A language is scored for
    a concept with at least `min_positives` positive rows in it. Raises ValueError where concepts differ in number.
    """
    labels = rows.labels
    if labels.shape[1] != len(found.unit):
        raise ValueError(f"rows has labels for {labels.shape[1]} concepts, found {len(found.unit)} detectors")
    values = _columns(held_out, found.unit)
    calls = values > found.threshold
    languages, scored = torch.zeros(2, len(found.unit), dtype=torch.long).unbind()
    for name in sorted(set(rows.languages or ())):
        own = torch.tensor([language == name for language in rows.languages])
        enough = labels[own].sum(dim=0) >= min_positives
        languages += enough & (f1_scores(calls[own], labels[own]) >= SHARED)
        scored += enough
    return Judged(
        found, labels.sum(dim=0), f1_scores(calls, labels), paired_auroc(values, labels), languages, scored
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

    Units are added one by one, each with the threshold above 0 for which the calls of all have the largest F1 on
    the training rows, as long as that rises. They come from the `candidates` that look best alone: by the harmonic
    mean of the share of a concept's rows in which a unit is positive and of the share of its squares that lie in
    these rows. How much F1 rises from one unit to several says how far a concept is split among features. Dense
    tables.
    """
    result = torch.zeros(len(sizes), labels.shape[1], dtype=torch.float64)
    fires, squares, truths = (scores > 0).float(), scores.clamp(min=0).square(), labels.float()
    recall = truths.T @ fires / labels.sum(dim=0)[:, None].clamp(min=1)
    precision = truths.T @ squares / squares.sum(dim=0).clamp(min=torch.finfo(scores.dtype).tiny)
    alone = 2 * recall * precision / (recall + precision).clamp(min=torch.finfo(scores.dtype).tiny)
    pools = alone.topk(min(candidates, scores.shape[1]), dim=1).indices
    for concept, pool in enumerate(pools):
        # Rows without the concept in which no candidate is positive are never called.
        rows = (labels[:, concept] | fires[:, pool].any(dim=1)).nonzero()[:, 0]
        values, label = scores[rows[:, None], pool], labels[rows, concept]
        pairs = label[:, None].expand(-1, len(pool))
        called = torch.zeros(len(rows), dtype=torch.bool)
        called_out = torch.zeros(len(held_out), dtype=torch.bool)
        best = 0.0
        rises = True
        for size in range(1, max(sizes) + 1):
            if rises:
                joined = values.masked_fill(called[:, None], torch.inf)
                cut = best_thresholds(joined, pairs).clamp(min=torch.finfo(scores.dtype).tiny)
                f1 = f1_scores(joined > cut, pairs)
                top = int(f1.argmax())
                rises = float(f1[top]) > best
            if rises:
                best = float(f1[top])
                called |= values[:, top] > cut[top]
                called_out |= held_out[:, pool[top]] > cut[top]
            if size in sizes:
                result[list(sizes).index(size), concept] = f1_scores(
                    called_out[:, None], truth[:, concept, None]
                )[0]
    return result
