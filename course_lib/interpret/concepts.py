"""The parts of concept scores: AUROC, F1, labelled rows, and the baselines beside an autoencoder's features.

A low reconstruction error says little about concepts: a few dominant directions can hold most of the
variance. Here each concept is a binary label on the rows (sentences or tokens), and a unit is scored as a
detector of it. `detectors` chooses and judges units, `concept_report` compares sets of them.

The features of an autoencoder are compared with four baselines: single neurons (the raw dimensions), principal
components, random features of equal number and sparsity, and a logistic probe, which may use all dimensions
at once. Where rows have groups (the tokens of a sentence), the probe reads means and units their largest values.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.checks import all_finite, checked
from course_lib.sae.autoencoder import Autoencoder

_BLOCK = 1 << 23  # entries of a dense table that are ranked at a time
_CHUNK = 1 << 20  # entries of a table of states that are held in float64 at a time
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


@checked
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
    if not all_finite(values):
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


@checked
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


@checked
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

    `languages` names the language of each row; without it no scores by language are computed. `meanings` are
    those of `Sentence.meaning`: with them, `concept_report` refuses rows whose meanings were trained on.

    With `groups` the states belong to parts (the tokens of sentences) and everything else to rows:
    states[i] is a part of row groups[i], and a unit's value for a row is its largest over the parts.
    `part_labels` then holds the concepts of each part: a token of a concept's word holds it.
    """

    states: Float[Tensor, "states d_model"]
    labels: Bool[Tensor, "rows concepts"]
    languages: Sequence[str] | None = None
    meanings: Sequence[int] | None = None
    groups: Int[Tensor, " states"] | None = None
    part_labels: Bool[Tensor, "states concepts"] | None = None

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
        if self.part_labels is not None and self.part_labels.shape != (
            len(self.states) if self.groups is not None else -1,
            self.labels.shape[1],
        ):
            raise ValueError(
                f"part_labels has shape {tuple(self.part_labels.shape)}; expected one row for each of {len(self.states)} "
                f"states, {self.labels.shape[1]} columns, and groups"
            )

    def largest(self, values: Float[Tensor, "states units"]) -> Float[Tensor, "rows units"]:
        """Return the largest value of each unit in each group; without groups the values themselves.

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
        """Return the mean state of each group; without groups the states themselves."""
        if self.groups is None:
            return self.states
        states = self.states.float()
        sums = states.new_zeros(len(self.labels), states.shape[1]).index_add(0, self.groups, states)
        return sums / self.groups.bincount(minlength=len(self.labels))[:, None]


def label_table(held: Sequence[Collection[str]], concepts: Sequence[str]) -> Bool[Tensor, "rows concepts"]:
    """Make the labels of rows from the concepts that each holds, such as `[s.concepts for s in sentences]`.

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
    """Return the concepts of each token of a sentence: those of the character spans that it overlaps.

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
    """Encode all rows batch by batch, to float32 on the CPU: a sparse COO tensor where few units are active.

    For 30 active of 4,096 features that takes a thirtieth of the memory of the dense table.
    """
    reference, parts = autoencoder.input_mean, []
    for batch in states.split(batch_size):
        code = autoencoder.encode(batch.to(reference.device, reference.dtype)).float().cpu()
        few = parts[0].is_sparse if parts else (code != 0).sum() < _SPARSE * code.numel()
        parts.append(code.to_sparse_coo() if few else code)
    return torch.cat(parts)


# --- baselines -------------------------------------------------------------------------------------


def principal_components(
    fitted_on: Float[Tensor, "rows d_model"], *applied_to: Float[Tensor, "_ d_model"]
) -> tuple[Tensor, ...]:
    """Project tables of rows on all principal components of `fitted_on`: computed in float64, given in the rows' dtype.

    The rows are read in chunks, since each table in float64 would be twice as large as the states.
    """
    mean = _mean(fitted_on)
    centred = (chunk.double() - mean for chunk in _chunks(fitted_on))
    directions = torch.linalg.eigh(sum(chunk.T @ chunk for chunk in centred)).eigenvectors.flip(1)
    projected = tuple(torch.empty_like(rows) for rows in applied_to)
    for rows, made in zip(applied_to, projected, strict=True):
        for chunk, place in zip(_chunks(rows), _chunks(made), strict=True):
            place.copy_((chunk.double() - mean) @ directions)
    return projected


def _mean(rows: Float[Tensor, "rows d_model"]) -> Float[Tensor, " d_model"]:
    """Mean of the rows in float64, read in chunks."""
    return sum(chunk.double().sum(dim=0) for chunk in _chunks(rows)) / len(rows)


def _chunks(rows: Float[Tensor, "rows d_model"]) -> tuple[Tensor, ...]:
    return rows.split(max(1, _CHUNK // max(1, rows.shape[1])))


def random_features(
    fitted_on: Float[Tensor, "rows d_model"],
    *applied_to: Float[Tensor, "_ d_model"],
    n_features: int,
    active: int,
    generator: torch.Generator,
) -> tuple[Tensor, ...]:
    """Compute untrained features: the `active` largest projections on random unit directions.

    f = TopK(ReLU(W (x - mean))), rows of W uniform on the unit sphere, the mean that of `fitted_on`. Sparse
    COO tensors.
    """
    if not 1 <= active <= n_features:
        raise ValueError(f"active is {active}; expected 1 to n_features = {n_features}")
    mean = _mean(fitted_on).to(fitted_on.dtype)
    directions = torch.randn(n_features, fitted_on.shape[1], generator=generator).to(fitted_on)
    directions /= directions.norm(dim=1, keepdim=True)
    tables = []
    for rows in applied_to:
        values, columns = [], []
        for chunk in rows.split(4096):
            top = ((chunk - mean) @ directions.T).relu().topk(active, dim=1)
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


@checked
def logistic_probe(
    states: Float[Tensor, "rows d_model"],
    labels: Bool[Tensor, "rows concepts"],
    *,
    ridge: float | int = 1e-4,
    tolerance: float | int = 1e-7,
    max_iterations: int = 100,
) -> tuple[Float[Tensor, "d_model concepts"], Float[Tensor, " concepts"]]:
    """Fit a logistic regression of every concept on the states; return weights and biases.

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
    # Without states the best probe predicts each concept's rate: the bias starts there, and all else at 0.
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
