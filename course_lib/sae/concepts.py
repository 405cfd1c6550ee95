"""Concept scores: how well single units of a code say which known concept a row holds.

A low reconstruction error says little about concepts: a few dominant directions can hold most of the
variance. Here each concept is a binary label on the rows (sentences or tokens), and a unit is scored as a
detector of it. Whatever is chosen (the unit, its sign, its threshold) is chosen on training rows, and the
score is that of held-out rows, so having thousands of units to choose from gains nothing by itself.

Beside the features of an autoencoder stand four yardsticks: single neurons (the raw dimensions), principal
components, random features of equal number and sparsity, and a logistic probe, which may use all dimensions
at once. Of rows with groups (the tokens of a sentence) it reads the means, units their largest values.
"""

import json
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.sae.autoencoder import Autoencoder

REACHED = 0.95  # the held-out AUROC from which a concept counts as having a unit

_BLOCK = 1 << 23  # entries of a dense table that are ranked at a time
_PROBED = 64  # concepts that are probed at a time
_SPARSE = 0.05  # density up to which a table is kept, ranked and multiplied as a sparse one


# --- AUROC -----------------------------------------------------------------------------------------


def auroc(
    scores: Float[Tensor, "rows units"], labels: Bool[Tensor, "rows concepts"]
) -> Float[Tensor, "units concepts"]:
    """Area under the ROC curve of every unit as a detector of every concept, in float64.

    AUROC = P(s+ > s-) + P(s+ = s-) / 2 = (R - P (P + 1) / 2) / (P N) for P positive and N negative rows,
    R the sum of the positive rows' ranks, equal scores sharing the mean of their ranks. It is that of
    -s with 1 - AUROC, and NaN where a concept has no positive or no negative row.

    `scores` may be a sparse COO tensor, or dense. Where most are 0 only the others are sorted: all zeros of a
    unit share one rank r0, so R = sum_{s != 0, positive} (r - r0) + P r0, a product of a sparse table with
    the labels. Raises ValueError for scores that are not finite. Source: Mann and Whitney (1947).
    """
    truth = labels.double()
    positives = truth.sum(dim=0)
    sums = torch.empty(scores.shape[1], labels.shape[1], dtype=torch.float64)
    for start, block in _column_blocks(scores):
        if block.is_sparse:
            ranks, zero_rank = _sparse_ranks(block)
            part = torch.sparse.mm(ranks, truth) + zero_rank[:, None] * positives
        else:
            part = _ranks(block.T) @ truth
        sums[start : start + block.shape[1]] = part
    return _from_rank_sums(sums, labels)


def paired_auroc(
    scores: Float[Tensor, "rows pairs"], labels: Bool[Tensor, "rows pairs"]
) -> Float[Tensor, " pairs"]:
    """AUROC of each column of `scores` for the same column of `labels`, see `auroc`."""
    return _from_rank_sums((_ranks(scores.T) * labels.T).sum(dim=1), labels)


def _ranks(scores: Float[Tensor, "units rows"]) -> Float[Tensor, "units rows"]:
    """Ranks from 1 within each row of the table, equal scores sharing the mean of theirs."""
    values, order = scores.contiguous().sort(dim=1)
    _check_finite(values)
    rank = torch.arange(1.0, scores.shape[1] + 1, dtype=torch.float64).expand(scores.shape)
    new = torch.ones_like(values, dtype=torch.bool)
    new[:, 1:] = values[:, 1:] != values[:, :-1]
    if not new.all():
        rank = _shared(rank.flatten(), new.flatten()).view(scores.shape)
    return torch.empty(scores.shape, dtype=torch.float64).scatter_(1, order, rank)


def _sparse_ranks(scores: Tensor) -> tuple[Tensor, Float[Tensor, " units"]]:
    """Ranks of each column's non-zero entries less r0, as a sparse table (units, rows); and r0."""
    n_rows, n_columns = scores.shape
    (rows, columns), values = scores._indices(), scores._values()
    _check_finite(values)
    order = values.argsort()
    order = order[columns[order].argsort(stable=True)]
    rows, columns, values = rows[order], columns[order], values[order]
    count = columns.bincount(minlength=n_columns)
    below = columns[values < 0].bincount(minlength=n_columns)
    zeros = n_rows - count
    # Entries of a column stand together in rising order; its zeros are thought between the two signs.
    place = torch.arange(1, len(values) + 1) - (count.cumsum(0) - count)[columns]
    rank = (place + zeros[columns] * (values > 0)).double()
    new = torch.ones_like(values, dtype=torch.bool)
    new[1:] = (columns[1:] != columns[:-1]) | (values[1:] != values[:-1])
    zero_rank = (below + (zeros + 1) / 2).double()
    table = torch.sparse_coo_tensor(
        torch.stack([columns, rows]),
        _shared(rank, new) - zero_rank[columns],
        (n_columns, n_rows),
        check_invariants=False,
    )
    return table, zero_rank


def _shared(rank: Float[Tensor, " entries"], new: Bool[Tensor, " entries"]) -> Float[Tensor, " entries"]:
    """Means of ranks over runs of equal scores, given where a run starts."""
    run = new.cumsum(0) - 1
    means = torch.zeros(int(new.sum()), dtype=rank.dtype).index_add_(0, run, rank) / run.bincount()
    return means[run]


def _check_finite(values: Tensor) -> None:
    if not values.isfinite().all():
        raise ValueError("scores have NaN or infinite values; expected finite numbers")


def _from_rank_sums(sums: Tensor, labels: Tensor) -> Tensor:
    positive = labels.sum(dim=0).double()
    return (sums - positive * (positive + 1) / 2) / (positive * (len(labels) - positive))


def _column_blocks(scores: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Column ranges: sparse tables of entries other than 0 where most are 0, else dense ones."""
    if scores.is_sparse:
        table = scores.coalesce()
        keep = table._values() != 0
        indices, values = table._indices()[:, keep], table._values()[keep]
        yield 0, torch.sparse_coo_tensor(indices, values, table.shape, check_invariants=False)
        return
    width = max(1, _BLOCK // max(1, len(scores)))
    for start in range(0, scores.shape[1], width):
        block = scores[:, start : start + width]
        few = block.count_nonzero() < _SPARSE * block.numel()
        yield start, block.to_sparse_coo() if few else block


# --- F1 --------------------------------------------------------------------------------------------


def best_thresholds(
    scores: Float[Tensor, "rows pairs"], labels: Bool[Tensor, "rows pairs"]
) -> Float[Tensor, " pairs"]:
    """Threshold t of each column for which the detector s > t has the largest F1 on these rows.

    F1 = 2 TP / (2 TP + FP + FN). Candidates lie half-way between neighbouring scores and below the smallest;
    of equals the highest is taken.
    """
    falling, order = scores.T.contiguous().sort(dim=1, descending=True)
    hits = labels.T.gather(1, order).cumsum(dim=1)
    called = torch.arange(1, len(scores) + 1)
    f1 = 2 * hits.double() / (called + labels.sum(dim=0)[:, None])
    # Rows with equal scores are called together: a cut is possible only below the last of them.
    f1[:, :-1][falling[:, :-1] == falling[:, 1:]] = -1
    cut = f1.argmax(dim=1, keepdim=True)
    above = falling.gather(1, cut)
    below = falling.gather(1, (cut + 1).clamp(max=len(scores) - 1))
    return torch.where(cut == len(scores) - 1, above - 1, (above + below) / 2).squeeze(1)


def f1_scores(
    predicted: Bool[Tensor, "rows pairs"], labels: Bool[Tensor, "rows pairs"]
) -> Float[Tensor, " pairs"]:
    """F1 = 2 TP / (2 TP + FP + FN) of each column, 0 where it has neither a positive nor a call."""
    hits = (predicted & labels).sum(dim=0)
    return 2 * hits.double() / (predicted.sum(dim=0) + labels.sum(dim=0)).clamp(min=1)


# --- rows and labels -------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelledRows:
    """Hidden states of sentences or tokens, and which concepts each row holds.

    `languages` names the language of each row; without it nothing is said about languages. `meanings` are
    those of `Sentence.meaning`: with them, `concept_report` refuses rows whose meanings were trained on.

    With `groups` the states are those of parts (the tokens of sentences) and all else is about the wholes:
    states[i] belongs to the whole groups[i], and a unit's value for a whole is its largest over the parts.
    """

    states: Float[Tensor, "states d_model"]
    labels: Bool[Tensor, "rows concepts"]
    languages: Sequence[str] | None = None
    meanings: Sequence[int] | None = None
    groups: Int[Tensor, " states"] | None = None

    def __post_init__(self) -> None:
        if self.groups is None and len(self.labels) != len(self.states):
            raise ValueError(f"labels has {len(self.labels)} entries for {len(self.states)} rows of states")
        for name in ("languages", "meanings"):
            value = getattr(self, name)
            if value is not None and len(value) != len(self.labels):
                raise ValueError(f"{name} has {len(value)} entries for {len(self.labels)} rows of labels")
        if self.groups is not None and (
            len(self.groups) != len(self.states)
            or not torch.equal(self.groups.unique(), torch.arange(len(self.labels)))
        ):
            raise ValueError(
                f"groups has {len(self.groups)} entries for {len(self.states)} states and {len(self.labels)} rows "
                "of labels; expected one for each state, and every row of labels to have a state"
            )

    def largest(self, values: Float[Tensor, "states units"]) -> Float[Tensor, "rows units"]:
        """The largest value of each unit in each group; without groups the values themselves.

        Sparse (COO) values are taken to be 0 where nothing is stored, and never negative.
        """
        if self.groups is None:
            return values
        size = (len(self.labels), values.shape[1])
        if not values.is_sparse:
            index = self.groups[:, None].expand_as(values)
            return values.new_full(size, -float("inf")).scatter_reduce(0, index, values, "amax")
        values = values.coalesce()
        part, unit = values.indices()
        place = self.groups[part] * size[1] + unit
        return (
            values.new_zeros(size)
            .to_dense()
            .view(-1)
            .scatter_reduce(0, place, values.values(), "amax")
            .view(size)
        )

    def mean(self) -> Float[Tensor, "rows d_model"]:
        """The mean state of each group; without groups the states themselves."""
        if self.groups is None:
            return self.states
        sums = torch.zeros(len(self.labels), self.states.shape[1]).index_add(
            0, self.groups, self.states.float()
        )
        return sums / self.groups.bincount(minlength=len(self.labels))[:, None]


def label_table(held: Sequence[Collection[str]], concepts: Sequence[str]) -> Bool[Tensor, "rows concepts"]:
    """Labels of rows from the concepts that each holds, for instance `[s.concepts for s in sentences]`.

    Concepts that are not in `concepts` are left out. Raises ValueError where a name stands twice in it.
    """
    column = {concept: i for i, concept in enumerate(concepts)}
    if len(column) != len(concepts):
        raise ValueError("concepts holds a name twice; expected distinct names")
    table = torch.zeros(len(held), len(concepts), dtype=torch.bool)
    pairs = [(row, column[c]) for row, names in enumerate(held) for c in names if c in column]
    if pairs:
        rows, columns = torch.tensor(pairs).T
        table[rows, columns] = True
    return table


def token_concepts(
    spans: Sequence[tuple[int, int, str]], offsets: Sequence[tuple[int, int]]
) -> list[frozenset[str]]:
    """Concepts of each token of a sentence: those of the character spans that it overlaps.

    `spans` are `(start, end, concept)` as `Sentence.words` holds them, `offsets` the `(start, end)` of each
    token in the same text, as a tokenizer's `return_offsets_mapping` gives them.
    """
    return [
        frozenset(concept for start, end, concept in spans if start < stop and begin < end)
        for begin, stop in offsets
    ]


@torch.no_grad()
def encode_rows(
    autoencoder: Autoencoder, states: Float[Tensor, "rows d_model"], *, batch_size: int = 4096
) -> Float[Tensor, "rows code"]:
    """Code of all rows on the CPU in float32, batch by batch: a sparse COO tensor where few units are active.

    For 30 active of 4,096 features that takes a thirtieth of the memory of the dense table.
    """
    reference, parts = autoencoder.input_mean, []
    for batch in states.split(batch_size):
        code = autoencoder.encode(batch.to(reference.device, reference.dtype)).float().cpu()
        few = parts[0].is_sparse if parts else (code != 0).sum() < _SPARSE * code.numel()
        parts.append(code.to_sparse_coo() if few else code)
    return torch.cat(parts)


# --- one set of units ------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConceptScore:
    """The best unit of a concept: chosen on training rows, scored on held-out rows.

    `unit`, `sign` and `threshold` say the detector: sign * s > threshold (in the units of sign * s).
    `languages_best` counts the languages whose own best unit, by the AUROC on training rows of that
    language, is this one with this sign. `languages_reached` counts those on whose held-out rows this unit
    has an AUROC of at least `REACHED`. Of `languages_scored` languages: those with enough positive rows in
    both. The three are 0 without languages.
    """

    concept: str
    category: str
    positives_train: int
    positives_held_out: int
    unit: int
    sign: int
    threshold: float
    auroc_train: float
    auroc: float
    f1: float
    languages_best: int = 0
    languages_reached: int = 0
    languages_scored: int = 0


def score_units(
    train: Float[Tensor, "rows units"],
    held_out: Float[Tensor, "other units"],
    train_rows: LabelledRows,
    held_out_rows: LabelledRows,
    *,
    concepts: Sequence[str],
    categories: Mapping[str, str],
    min_positives: int = 10,
) -> list[ConceptScore]:
    """Score of each concept by its best single unit, for units given by their values on the rows.

    The unit and its sign are those with the largest AUROC on the training rows, the threshold the one with
    the largest F1 there; AUROC and F1 are of the held-out rows. Values may be sparse (COO) or dense.

    Concepts with fewer than `min_positives` positive (or negative) rows in either part are left out: their
    scores would be noise. Raises ValueError for tables that do not belong together.
    """
    for name, values, rows in (("train", train, train_rows), ("held_out", held_out, held_out_rows)):
        if len(values) != len(rows.labels):
            raise ValueError(f"{name} has {len(values)} rows, its labels {len(rows.labels)}")
        if rows.labels.shape[1] != len(concepts):
            raise ValueError(
                f"{name} has labels for {rows.labels.shape[1]} concepts; {len(concepts)} are named"
            )
    kept = _kept(train_rows, held_out_rows, min_positives)
    labels = train_rows.labels[:, kept]
    if not kept.any():
        return []
    unit, sign, _ = _best_units(auroc(train, labels))
    own = [
        _best_units(auroc(train.index_select(0, rows), labels[rows]))[:2]
        for rows, _ in _by_language(train_rows, held_out_rows)
    ]
    return _score_detectors(
        sign * _columns(train, unit),
        sign * _columns(held_out, unit),
        train_rows,
        held_out_rows,
        kept=kept,
        unit=unit,
        sign=sign,
        same=[(u == unit) & (s == sign) for u, s in own],
        concepts=concepts,
        categories=categories,
        min_positives=min_positives,
    )


def _score_detectors(
    train: Float[Tensor, "rows pairs"],
    held_out: Float[Tensor, "other pairs"],
    train_rows: LabelledRows,
    held_out_rows: LabelledRows,
    *,
    kept: Bool[Tensor, " concepts"],
    unit: Int[Tensor, " pairs"],
    sign: Float[Tensor, " pairs"],
    same: Sequence[Bool[Tensor, " pairs"]],
    concepts: Sequence[str],
    categories: Mapping[str, str],
    min_positives: int,
) -> list[ConceptScore]:
    """Scores of one chosen detector a concept; `same` says for each language whether it chose the same."""
    labels, held_out_labels = train_rows.labels[:, kept], held_out_rows.labels[:, kept]
    threshold = best_thresholds(train, labels)
    best, reached, scored = torch.zeros(3, len(unit), dtype=torch.long).unbind()
    for i, (rows, other) in enumerate(_by_language(train_rows, held_out_rows)):
        enough = _enough(labels[rows], min_positives) & _enough(held_out_labels[other], min_positives)
        best += enough & same[i]
        reached += enough & (paired_auroc(held_out[other], held_out_labels[other]) >= REACHED)
        scored += enough
    columns = (
        labels.sum(dim=0),
        held_out_labels.sum(dim=0),
        unit,
        sign.long(),
        threshold,
        paired_auroc(train, labels),
        paired_auroc(held_out, held_out_labels),
        f1_scores(held_out > threshold, held_out_labels),
        best,
        reached,
        scored,
    )
    names = [c for c, keep in zip(concepts, kept.tolist(), strict=True) if keep]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [ConceptScore(c, categories[c], *row) for c, row in zip(names, rows, strict=True)]


def _best_units(table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Unit, sign and AUROC that are best for each concept."""
    table = table.nan_to_num(0.5)
    distance, unit = (table - 0.5).abs().max(dim=0)
    sign = torch.where(table.gather(0, unit[None])[0] < 0.5, -1.0, 1.0)
    return unit, sign, 0.5 + distance


def _columns(values: Tensor, units: Tensor) -> Tensor:
    """One dense column a unit."""
    picked = values.index_select(1, units)
    return picked.to_dense() if picked.is_sparse else picked


def _kept(train: LabelledRows, held_out: LabelledRows, least: int) -> Tensor:
    return _enough(train.labels, least) & _enough(held_out.labels, least)


def _enough(labels: Tensor, least: int) -> Tensor:
    positive = labels.sum(dim=0)
    return (positive >= max(1, least)) & (len(labels) - positive >= max(1, least))


def _by_language(train: LabelledRows, held_out: LabelledRows) -> Iterator[tuple[Tensor, Tensor]]:
    """Training and held-out rows of each language."""
    if train.languages is None or held_out.languages is None:
        return
    for language in sorted(set(train.languages) & set(held_out.languages)):
        yield tuple(
            torch.tensor([i for i, name in enumerate(part.languages) if name == language])
            for part in (train, held_out)
        )


# --- the yardsticks --------------------------------------------------------------------------------


def principal_components(
    fitted_on: Float[Tensor, "rows d_model"], *applied_to: Float[Tensor, "_ d_model"]
) -> tuple[Tensor, ...]:
    """Coordinates of tables of rows along all principal components of `fitted_on`."""
    mean = fitted_on.double().mean(dim=0)
    centred = fitted_on.double() - mean
    directions = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)
    return tuple((rows.double() - mean) @ directions for rows in applied_to)


def random_features(
    fitted_on: Float[Tensor, "rows d_model"],
    *applied_to: Float[Tensor, "_ d_model"],
    n_features: int,
    active: int,
    generator: torch.Generator,
) -> tuple[Tensor, ...]:
    """Features that nobody trained: the `active` largest projections on random unit directions.

    f = TopK(ReLU(W (x - mean))), rows of W uniform on the unit sphere, the mean that of `fitted_on`. Sparse
    COO tensors.
    """
    if not 1 <= active <= n_features:
        raise ValueError(f"active is {active}; expected 1 to n_features = {n_features}")
    mean = fitted_on.double().mean(dim=0).to(fitted_on.dtype)
    directions = torch.randn(n_features, fitted_on.shape[1], generator=generator).to(fitted_on)
    directions /= directions.norm(dim=1, keepdim=True)
    tables = []
    for rows in applied_to:
        values, columns = [], []
        for chunk in (rows - mean).split(4096):
            top = (chunk @ directions.T).relu().topk(active, dim=1)
            values.append(top.values.float())
            columns.append(top.indices)
        index = torch.arange(len(rows)).repeat_interleave(active)
        tables.append(
            torch.sparse_coo_tensor(
                torch.stack([index, torch.cat(columns).flatten()]),
                torch.cat(values).flatten(),
                (len(rows), n_features),
                check_invariants=False,
            ).coalesce()
        )
    return tuple(tables)


def logistic_probe(
    states: Float[Tensor, "rows d_model"],
    labels: Bool[Tensor, "rows concepts"],
    *,
    ridge: float | int = 1e-4,
    tolerance: float | int = 1e-7,
    max_iterations: int = 100,
) -> tuple[Float[Tensor, "d_model concepts"], Float[Tensor, " concepts"]]:
    """Weights and biases of logistic regressions of every concept on the states.

    min_{w, b} (1/N) sum_n log(1 + exp(-y_n (w.x_n + b))) + (ridge / 2) ||w||^2 with y = +-1 and each
    dimension of x centred and divided by its standard deviation; the weights returned are for raw states.
    At what is returned, rounding of the result to the states' dtype aside, the gradient in (w, b) of each
    concept is no longer than `tolerance`.

    Newton's method in float64, its systems solved by conjugate gradients for many concepts at a time. Along
    the principal components of x, on which hidden states have very different lengths, the diagonal of the
    Hessian is a good preconditioner.

    Raises ValueError for a ridge that is not positive, and RuntimeError where `max_iterations` steps do not
    reach the minimum. Source: Nocedal and Wright (2006), Numerical optimization, 7.1.
    """
    if not 0 < ridge < float("inf"):
        raise ValueError(f"ridge is {ridge}; expected a positive number")
    mean, spread = states.double().mean(dim=0), states.double().std(dim=0).clamp(min=1e-12)
    x = (states - mean) / spread
    components = torch.linalg.eigh(x.T @ x).eigenvectors
    x = torch.cat([x @ components, x.new_ones(len(x), 1)], dim=1)
    penalty = torch.full_like(x[0, :, None], ridge)
    penalty[-1] = 0  # the bias is free
    parts = [
        _logistic_minimum(x, part.double(), penalty, tolerance=tolerance, max_iterations=max_iterations)
        for part in labels.split(_PROBED, dim=1)
    ]
    w, bias = torch.cat(parts, dim=1).split([len(spread), 1])
    w = components @ w / spread[:, None]
    return w.to(states.dtype), (bias[0] - mean @ w).to(states.dtype)


def _logistic_minimum(
    x: Float[Tensor, "rows d"],
    target: Float[Tensor, "rows concepts"],
    penalty: Float[Tensor, "d 1"],
    *,
    tolerance: float | int,
    max_iterations: int,
) -> Float[Tensor, "d concepts"]:
    """Minima of mean_n log(1 + exp(-y_n w.x_n)) + sum_i penalty_i w_i^2 / 2, a column a concept."""
    n = len(x)
    # A probe that knows nothing calls each concept at its rate: the bias starts there, and all else at 0.
    w = x.new_zeros(x.shape[1], target.shape[1])
    w[-1] = torch.logit(target.mean(dim=0).clamp(1 / (2 * n), 1 - 1 / (2 * n)))
    for _ in range(max_iterations):
        logits = x @ w
        called = logits.sigmoid()
        gradient = x.T @ (called - target) / n + penalty * w
        length = gradient.norm(dim=0)
        if (length <= tolerance).all():
            return w
        # The nearer the minimum, the more exact the step (Nocedal and Wright, 7.3): convergence is superlinear.
        goal = (length * length.sqrt().clamp(max=0.1)).clamp(min=tolerance / 10)
        step = _newton_step(x, called * (1 - called) / n, penalty, gradient, goal)
        # A full step may overshoot far from the minimum. It is halved until the loss, which is convex, rises at its
        # end half as steeply at most as it falls at its start. Slopes are compared, which rounding spares: losses
        # themselves are equal in all digits long before the minimum.
        moved, fall, share = x @ step, -(gradient * step).sum(dim=0), torch.ones_like(length)
        for _ in range(30):
            excess = (logits + share * moved).sigmoid() - target
            slope = (moved * excess).sum(dim=0) / n + (penalty * step * (w + share * step)).sum(dim=0)
            if (slope <= fall / 2).all():
                break
            share = torch.where(slope <= fall / 2, share, share / 2)
        w = w + share * step
    raise RuntimeError(
        f"the probe has a gradient of length {length.max():.1e} after {max_iterations} steps, more than "
        f"tolerance = {tolerance}; use a larger ridge or tolerance, or more max_iterations"
    )


def _newton_step(
    x: Float[Tensor, "rows d"],
    curvature: Float[Tensor, "rows concepts"],
    penalty: Float[Tensor, "d 1"],
    gradient: Float[Tensor, "d concepts"],
    goal: Float[Tensor, " concepts"],
) -> Float[Tensor, "d concepts"]:
    """-H^-1 g of every concept by conjugate gradients, H = X^T diag(curvature) X + diag(penalty).

    The residual of each becomes no longer than `goal`, or 200 products with H have been made.
    """
    diagonal = x.square().T @ curvature + penalty
    step, residual = torch.zeros_like(gradient), -gradient
    direction = scaled = residual / diagonal
    size = (residual * scaled).sum(dim=0)
    for _ in range(200):
        product = x.T @ (curvature * (x @ direction)) + penalty * direction
        along = (direction * product).sum(dim=0)
        rate = torch.where(along > 0, size / along, 0)  # a concept that is done has no direction left
        step, residual = step + rate * direction, residual - rate * product
        if (residual.norm(dim=0) <= goal).all():
            break
        scaled, before = residual / diagonal, size
        size = (residual * scaled).sum(dim=0)
        direction = scaled + torch.where(before > 0, size / before, 0) * direction
    return step


# --- the report ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConceptReport:
    """Concept scores of an autoencoder's features and of the yardsticks beside them.

    `scores` holds for each of "features", "neurons", "components", "random" and "probe" one row a
    concept; the probe of a concept is its own unit, and
    `languages_best` is 0 for it. `skipped` are the concepts with too few rows.
    """

    scores: dict[str, list[ConceptScore]]
    lexical: frozenset[str]
    skipped: list[str]
    settings: dict[str, float | int]

    def summary(self) -> dict[str, dict[str, object]]:
        """For each set of units: shares of the scored lexical concepts, and medians by category.

        "lexical_reached" is the share with a held-out AUROC of at least `REACHED`. "lexical_judged" counts the
        concepts with enough rows in at least 3 languages to be scored in each. The next two are shares of
        these that reach it and besides: "lexical_shared_best" with the same best unit in at least 3 languages,
        "lexical_shared_reached" with at least `REACHED` on the held-out rows of at least 3.
        """
        return {name: self._summary_of(scores) for name, scores in self.scores.items()}

    def _summary_of(self, scores: list[ConceptScore]) -> dict[str, object]:
        lexical = [s for s in scores if s.concept in self.lexical]
        judged = [s for s in lexical if s.languages_scored >= 3]

        def share(whole: list[ConceptScore], holds: Callable[[ConceptScore], bool]) -> float | None:
            return sum(s.auroc >= REACHED and holds(s) for s in whole) / len(whole) if whole else None

        by_category: dict[str, list[ConceptScore]] = {}
        for score in scores:
            by_category.setdefault(score.category, []).append(score)
        return {
            "n_concepts": len(scores),
            "n_lexical": len(lexical),
            "lexical_reached": share(lexical, lambda s: True),
            "lexical_judged": len(judged),
            "lexical_shared_best": share(judged, lambda s: s.languages_best >= 3),
            "lexical_shared_reached": share(judged, lambda s: s.languages_reached >= 3),
            "lexical_median_auroc": statistics.median(s.auroc for s in lexical) if lexical else None,
            "lexical_median_f1": statistics.median(s.f1 for s in lexical) if lexical else None,
            "categories": {
                category: {
                    "n": len(rows),
                    "median_auroc": statistics.median(s.auroc for s in rows),
                    "median_f1": statistics.median(s.f1 for s in rows),
                }
                for category, rows in sorted(by_category.items())
            },
        }

    def to_json(self, *, indent: int | None = 2) -> str:
        """Settings, summary, the concepts left out, and every row."""
        content = {
            "settings": self.settings,
            "summary": self.summary(),
            "skipped": self.skipped,
            "scores": {name: [asdict(s) for s in rows] for name, rows in self.scores.items()},
        }
        return json.dumps(content, indent=indent, allow_nan=False) + "\n"


class TooFewRowsError(ValueError):
    """Rows that are too few to score any concept on."""


def concept_report(
    autoencoder: Autoencoder,
    train: LabelledRows,
    held_out: LabelledRows,
    *,
    concepts: Sequence[str],
    categories: Mapping[str, str],
    lexical: Collection[str],
    generator: torch.Generator,
    min_positives: int = 10,
    ridge: float | int = 1e-4,
) -> ConceptReport:
    """Score an autoencoder's features on known concepts, beside neurons, PCA, random features and a probe.

    `concepts` names the labels' columns, `categories` gives the category of each and `lexical` those that
    are words of content. Random features are as many as the autoencoder's, with as many active in a row as
    its features have on the mean of the training rows. See `score_units` for what is chosen where. Of rows with
    groups every unit's largest value counts, for neurons and components in either direction, and the probe reads
    the mean states.

    Raises ValueError where a held-out meaning is a training meaning and for tables that do not fit, and
    TooFewRowsError where no concept (of the lexical ones, where there are any) has enough rows.
    """
    if train.meanings is not None and held_out.meanings is not None:
        shared = set(train.meanings) & set(held_out.meanings)
        if shared:
            raise ValueError(
                f"{len(shared)} meanings, such as {min(shared)}, are in train and in held_out; split rows by "
                "meaning, or a unit is scored on translations of what it was chosen on"
            )
    kept = _kept(train, held_out, min_positives)
    words = torch.tensor([concept in lexical for concept in concepts])
    if not (kept & words if words.any() else kept).any():
        raise TooFewRowsError(
            f"no {'lexical ' * bool(words.any())}concept has {min_positives} positive and negative rows in train "
            "and in held_out; give more rows or a lower min_positives"
        )
    states = (train.states.float(), held_out.states.float())
    features = [encode_rows(autoencoder, part) for part in states]
    per_row = int((features[0]._values() if features[0].is_sparse else features[0]).count_nonzero()) / len(
        train.states
    )
    units = {
        "features": features,
        "neurons": states,
        "components": principal_components(states[0], *states),
        "random": random_features(
            states[0],
            *states,
            n_features=autoencoder.code_width,
            active=max(1, round(per_row)),
            generator=generator,
        ),
    }
    common = {"concepts": concepts, "categories": categories, "min_positives": min_positives}
    scores = {
        name: _score_set(values, train, held_out, signed=name in ("neurons", "components"), **common)
        for name, values in units.items()
    }

    # The probe of a concept is its one detector: there is no unit to choose, in any language.
    kept = _kept(train, held_out, min_positives)
    weight, bias = logistic_probe(train.mean().float(), train.labels[:, kept], ridge=ridge)
    own = torch.arange(int(kept.sum()))
    scores["probe"] = _score_detectors(
        train.mean().float() @ weight + bias,
        held_out.mean().float() @ weight + bias,
        train,
        held_out,
        kept=kept,
        unit=own,
        sign=torch.ones(len(own)),
        same=[torch.zeros(len(own), dtype=torch.bool)] * len(set(train.languages or ())),
        **common,
    )
    settings = {
        "rows_train": len(train.labels),
        "rows_held_out": len(held_out.labels),
        "d_model": train.states.shape[1],
        "n_features": autoencoder.code_width,
        "active_per_row": per_row,
        "reached": REACHED,
        "min_positives": min_positives,
        "ridge": ridge,
    }
    skipped = [c for c, keep in zip(concepts, kept.tolist(), strict=True) if not keep]
    return ConceptReport(scores, frozenset(lexical), skipped, settings)


def _score_set(
    values: Sequence[Tensor], train: LabelledRows, held_out: LabelledRows, *, signed: bool, **common: Any
) -> list[ConceptScore]:
    """Scores of one set of units, whose values are largest in their groups where the rows have any.

    The largest value and the largest negative value are two things, so signed units are scored as both.
    """
    if train.groups is None:
        return score_units(*values, train, held_out, **common)
    n_units = values[0].shape[1]
    both = [torch.cat([table, -table], dim=1) if signed else table for table in values]
    scores = score_units(train.largest(both[0]), held_out.largest(both[1]), train, held_out, **common)
    return [s if s.unit < n_units else replace(s, unit=s.unit - n_units, sign=-s.sign) for s in scores]
