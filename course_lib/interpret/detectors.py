"""Units as detectors of concepts, judged by F1: how well the name of a feature fits.

AUROC measures whether rows with a concept rank above rows without it. It is lenient where a concept is rare: a unit
that fires for every tool reaches 0.95 for "hammer" although most of its calls are wrong. F1, the harmonic mean of
precision and recall, is not: that unit's F1 for "hammer" is low. Here unit and threshold have the largest F1 on
training rows, and the score is their F1 on held-out rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.checks import all_finite
from course_lib.interpret.concepts import LabelledRows, best_thresholds, f1_scores, paired_auroc

REACHED = 0.9  # the held-out F1 from which a concept counts as having a unit
SHARED = 0.8  # the held-out F1 from which a unit counts as its detector in one language

_TRIPLES = 1 << 22  # entries times rare concepts a row that are sorted at a time
_UNITS = 256  # of a dense table whose squares are held at a time
_RARE = 16  # a concept of fewer than one row in so many is rare
_DEEP = 16  # of a dense table's rows one in so many is looked at first, in each unit the largest


@dataclass(frozen=True)
class Detectors:
    """One detector for each concept: it calls rows whose value of `unit` exceeds `threshold`; `f1` is in training."""

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
    if not all_finite(scores.coalesce().values() if scores.is_sparse else scores):
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
    n_concepts = labels.shape[1]
    search = _Search(
        Detectors(
            torch.zeros(n_concepts, dtype=torch.long),
            torch.full((n_concepts,), float("inf"), dtype=scores.dtype),
            torch.zeros(n_concepts, dtype=torch.float64),
        ),
        positives=labels.sum(dim=0),
        empty=0.0 if scores.is_sparse else None,
    )
    # Frequent concepts are counted one by one along the sorted entries, rare ones all together.
    common = search.positives > len(labels) / _RARE
    rare = _HeldConcepts.of(labels & ~common)
    per_row = max(1, round(len(rare.concept) / max(1, len(labels))))
    for row, unit, value in _falling(scores, depth=depth, per_row=per_row):
        block = _Block.of(row, unit, value, depth=depth)
        for concept in common.nonzero()[:, 0].tolist():
            search.try_concept(concept, labels[:, concept], block)
        search.try_rare(rare, block)
    return search.best


@dataclass(frozen=True)
class _Block:
    """Entries of some units: by unit, and within it by falling value.

    `rank` counts the unit's entries above each, `first` is the place of the unit's first entry and `end` that of the
    last one of equal value. `calls` counts the rows that a threshold below the entry calls.
    """

    row: Int[Tensor, " entries"]
    unit: Int[Tensor, " entries"]
    value: Float[Tensor, " entries"]
    rank: Int[Tensor, " entries"]
    first: Int[Tensor, " entries"]
    end: Int[Tensor, " entries"]
    calls: Float[Tensor, " entries"]

    @classmethod
    def of(cls, row: Tensor, unit: Tensor, value: Tensor, *, depth: int) -> "_Block":
        start = _differs_from_previous(unit)
        last = torch.ones_like(start)
        last[:-1] = start[1:] | (value[1:] != value[:-1])
        place = torch.arange(len(unit))
        first = torch.where(start, place, 0).cummax(0).values
        end = torch.where(last, place, len(unit)).flip(0).cummin(0).values.flip(0)
        calls = (end - first + 1).double()
        calls[calls > depth] = torch.inf  # more rows than are here may have that value
        return cls(row, unit, value, place - first, first, end, calls)


@dataclass(frozen=True)
class _HeldConcepts:
    """The concepts that each row holds, row after row: `row` and `concept` of each pair, `n` pairs from `first` on."""

    row: Int[Tensor, " pairs"]
    concept: Int[Tensor, " pairs"]
    n: Int[Tensor, " rows"]
    first: Int[Tensor, " rows"]

    @classmethod
    def of(cls, labels: Bool[Tensor, "rows concepts"]) -> "_HeldConcepts":
        n = labels.sum(dim=1)
        return cls(*labels.nonzero().T, n, n.cumsum(0) - n)


@dataclass(frozen=True)
class _Search:
    """The best detectors of the blocks so far, which each further block may improve; `empty` is for `_below`."""

    best: Detectors
    positives: Int[Tensor, " concepts"]
    empty: float | None

    def try_concept(self, concept: int, holds: Bool[Tensor, " rows"], block: _Block) -> None:
        """Count one concept along all entries."""
        held = holds[block.row]
        hits = held.cumsum(0)
        hits = hits - hits[block.first] + held[block.first]
        f1 = 2 * hits / (block.calls + self.positives[concept])
        at = f1.argmax()
        if f1[at] > self.best.f1[concept]:
            self._choose(concept, at, f1[at], block)

    def try_rare(self, rare: _HeldConcepts, block: _Block) -> None:
        """Count all rare concepts at once, along the entries whose rows hold them."""
        entry, concept = self._triples(rare, block)
        new = _differs_from_previous(block.unit[entry] * len(self.positives) + concept)
        index = torch.arange(len(entry))
        hits = index - torch.where(new, index, 0).cummax(0).values + 1
        f1 = 2 * hits / (block.calls[entry] + self.positives[concept])
        top = self.best.f1.scatter_reduce(0, concept, f1, "amax")
        # The first triple, and so the lowest unit and highest threshold, that is as good as the best and better than before.
        wins = (f1 == top[concept]) & (f1 > self.best.f1[concept])
        none = len(entry)
        chosen = torch.full_like(self.positives, none).scatter_reduce(0, concept[wins], index[wins], "amin")
        better = chosen < none
        self._choose(better, entry[chosen[better]], top[better], block)

    def _triples(self, rare: _HeldConcepts, block: _Block) -> tuple[Tensor, Tensor]:
        """One triple (unit, concept, entry) for each rare concept that an entry's row holds, in this order.

        Left out are entries of a concept that are too deep to be better than its best so far.
        """
        reach = _reach(self.positives, self.best.f1)
        deepest = torch.zeros_like(rare.n, dtype=reach.dtype)
        deepest.scatter_reduce_(0, rare.row, reach[rare.concept], "amax")
        seen = (block.rank < deepest[block.row]).nonzero()[:, 0]
        times = rare.n[block.row[seen]]
        entry = seen.repeat_interleave(times)
        step = torch.arange(len(entry)) - (times.cumsum(0) - times).repeat_interleave(times)
        concept = rare.concept[rare.first[block.row[entry]] + step]
        near = block.rank[entry] < reach[concept]
        entry, concept = entry[near], concept[near]
        order = (block.unit[entry] * len(self.positives) + concept).argsort(stable=True)
        return entry[order], concept[order]

    def _choose(self, concept: int | Tensor, at: Tensor, f1: Tensor, block: _Block) -> None:
        self.best.unit[concept] = block.unit[at]
        self.best.threshold[concept] = _below(block.value, block.unit, block.end[at], empty=self.empty)
        self.best.f1[concept] = f1


def _differs_from_previous(values: Int[Tensor, " entries"]) -> Bool[Tensor, " entries"]:
    new = torch.ones_like(values, dtype=torch.bool)
    new[1:] = values[1:] != values[:-1]
    return new


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


def best_concepts(
    scores: Float[Tensor, "rows units"], labels: Bool[Tensor, "labelled concepts"]
) -> tuple[Int[Tensor, " active"], Detectors]:
    """Return for each unit that is ever above 0 the concept that it detects best, and these units as its detectors.

    Best is the F1 that lies furthest above that of always yes, (F1 - c) / (1 - c) with c = 2 p / (1 + p) where a share p of
    the rows holds the concept: F1 itself would give every unit the most frequent concept. Thresholds are above 0 and, as in
    `best_detectors`, half-way between values; of equals the first concept and the highest threshold is taken. A concept
    that all rows hold is nobody's. `scores` is never negative.

    Raises ValueError where `scores` and `labels` differ in rows, or a concept has no positive row.
    """
    if len(scores) != len(labels):
        raise ValueError(f"scores has {len(scores)} rows, labels {len(labels)}; expected as many")
    positives = labels.sum(dim=0)
    if not (positives > 0).all():
        raise ValueError(f"labels has no positive row for concept {int((positives == 0).nonzero()[0])}")
    sparse = scores if scores.is_sparse else scores.to_sparse_coo()
    chance = 2 * positives.double() / (len(labels) + positives)
    found = []
    for row, unit, value in _falling(sparse, depth=len(scores), per_row=1):
        for number, n in zip(*(t.tolist() for t in unit.unique_consecutive(return_counts=True)), strict=True):
            (rows, row), (values, value) = row.split([n, len(row) - n]), value.split([n, len(value) - n])
            hits = labels[rows].cumsum(dim=0).double()
            f1 = 2 * hits / (torch.arange(1, n + 1)[:, None] + positives)
            f1[:-1][values[:-1] == values[1:]] = -1  # rows with equal values are called together
            above = torch.where(chance < 1, (f1 - chance) / (1 - chance).clamp(min=1e-12), -1)
            at, concept = divmod(int(above.argmax()), len(positives))
            below = values[at + 1] if at + 1 < n else 0.0
            found.append((number, concept, float(values[at] + below) / 2, float(f1[at, concept])))
    units, concept, threshold, f1 = zip(*found, strict=True) if found else ((),) * 4
    return torch.tensor(concept, dtype=torch.long), Detectors(
        torch.tensor(units, dtype=torch.long),
        torch.tensor(threshold, dtype=scores.dtype),
        torch.tensor(f1, dtype=torch.float64),
    )


def strongest_of_equals(
    found: Detectors, scores: Float[Tensor, "rows units"], labels: Bool[Tensor, "rows concepts"]
) -> tuple[Detectors, Int[Tensor, " concepts"]]:
    """Choose again among units that are as good as the best, and count these units for each concept.

    `found` are the best detectors of these rows. Of all units whose best threshold above 0 reaches the same F1 the
    one with the largest mean value in the rows with the concept is taken. `scores` is dense and never negative, such
    as features' largest activations: a unit that never fires at a concept is not looked at.
    """
    unit, threshold = found.unit.clone(), found.threshold.clone()
    equals = torch.ones_like(unit)
    tiny = torch.finfo(scores.dtype).tiny
    for concept, label in enumerate(labels.T):
        # A unit that fires in a share r of the concept's rows has an F1 of at most 2 r / (1 + r).
        share = (scores[label] > 0).double().mean(dim=0)
        able = (2 * share / (1 + share) >= found.f1[concept] - 1e-9).nonzero()[:, 0]
        values, truth = scores[:, able], label[:, None].expand(-1, len(able))
        cut = best_thresholds(values, truth).clamp(min=tiny)
        equal = (f1_scores(values > cut, truth) >= found.f1[concept] - 1e-9).nonzero()[:, 0]
        if len(equal):
            equals[concept] = len(equal)
            best = equal[values[label][:, equal].mean(dim=0).argmax()]
            unit[concept], threshold[concept] = able[best], cut[best]
    return Detectors(unit, threshold, found.f1), equals


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
    """Scores of detectors on held-out rows, one entry for each concept.

    `languages` counts the languages on whose rows the F1 is at least `SHARED`, out of the `scored` ones, which have
    enough positive rows. `by_language` has the F1 on the rows of each language, NaN where too few are positive.
    `calls` counts the rows that a detector calls, `hits` those of them that hold the concept.
    """

    detectors: Detectors
    positives: Int[Tensor, " concepts"]
    f1: Float[Tensor, " concepts"]
    auroc: Float[Tensor, " concepts"]
    languages: Int[Tensor, " concepts"]
    scored: Int[Tensor, " concepts"]
    calls: Int[Tensor, " concepts"]
    hits: Int[Tensor, " concepts"]
    by_language: dict[str, Float[Tensor, " concepts"]] = field(default_factory=dict)

    def reached(self) -> float:
        """Return the share of concepts with a held-out F1 of at least `REACHED`."""
        return float((self.f1 >= REACHED).double().mean())

    def shared(self, languages: int = 3) -> float:
        """Return the share of concepts whose one unit detects them in at least this many languages."""
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
    by_language = {}
    for name in sorted(set(rows.languages or ())):
        own = torch.tensor([language == name for language in rows.languages])
        enough = labels[own].sum(dim=0) >= min_positives
        by_language[name] = f1_scores(calls[own], labels[own]).where(enough, torch.nan)
        languages += by_language[name] >= SHARED
        scored += enough
    return Judged(
        found,
        labels.sum(dim=0),
        f1_scores(calls, labels),
        paired_auroc(values, labels),
        languages,
        scored,
        calls.sum(dim=0),
        (calls & labels).sum(dim=0),
        by_language,
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
    these rows. A rise of F1 from one unit to several measures how far a concept is split among features. Dense
    tables.
    """
    result = torch.zeros(len(sizes), labels.shape[1], dtype=torch.float64)
    for concept, pool in enumerate(_candidates(scores, labels, candidates)):
        # Rows without the concept in which no candidate is positive are never called.
        rows = (labels[:, concept] | (scores[:, pool] > 0).any(dim=1)).nonzero()[:, 0]
        joined = _join(scores[rows[:, None], pool], labels[rows, concept], held_out[:, pool])
        for size, called in zip(range(1, max(sizes) + 1), joined, strict=False):
            if size in sizes:
                result[list(sizes).index(size), concept] = f1_scores(
                    called[:, None], truth[:, concept, None]
                )[0]
    return result


def _candidates(scores: Tensor, labels: Tensor, n: int) -> Int[Tensor, "concepts candidates"]:
    """Return the units of each concept that look best alone; the table is read a part of its units at a time."""
    truths, positives = labels.float(), labels.sum(dim=0)[:, None].clamp(min=1)
    tiny = torch.finfo(scores.dtype).tiny
    alone = []
    for part in scores.split(_UNITS, dim=1):
        squares = part.clamp(min=0).square()
        recall = truths.T @ (part > 0).float() / positives
        precision = truths.T @ squares / squares.sum(dim=0).clamp(min=tiny)
        alone.append(2 * recall * precision / (recall + precision).clamp(min=tiny))
    return torch.cat(alone, dim=1).topk(min(n, scores.shape[1]), dim=1).indices


def _join(
    values: Float[Tensor, "rows candidates"],
    label: Bool[Tensor, " rows"],
    held_out: Float[Tensor, "other candidates"],
) -> Iterator[Bool[Tensor, " other"]]:
    """Yield which held-out rows 1, 2, 3, ... units call together; the same again once no unit helps in training."""
    labels = label[:, None].expand_as(values)
    called, called_out = label.new_zeros(len(values)), label.new_zeros(len(held_out))
    best, rises = 0.0, True
    while True:
        if rises:
            joined = values.masked_fill(called[:, None], torch.inf)
            cut = best_thresholds(joined, labels).clamp(min=torch.finfo(values.dtype).tiny)
            f1 = f1_scores(joined > cut, labels)
            top = int(f1.argmax())
            rises = float(f1[top]) > best
        if rises:
            best = float(f1[top])
            called = called | (values[:, top] > cut[top])
            called_out = called_out | (held_out[:, top] > cut[top])
        yield called_out
