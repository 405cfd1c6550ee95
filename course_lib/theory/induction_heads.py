"""An induction head in three parts, trained on chains: copier, selector and classifier (lesson 27).

The model is the simplified two-layer transformer of arXiv:2409.10559, as its official code has it. H heads of the first
layer look at the last M tokens by weights for each lag (the copier); a polynomial compares what they copied at two places,
one term for each set of heads (the selector); the second layer attends by that comparison (the classifier) and averages the
tokens it finds. Trained is one part after the other.

At one place, all that the model knows is the window of the last M tokens, one of S^M. So a sequence is a table of counts,
one for each window and next token, and a comparison is a table of S^M x S^M: that is what makes training take
milliseconds a step.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.theory.markov_chains import check_lags

EPS = 1e-3  # added to the prediction inside the logarithm


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """S `tokens`, `n_heads` H with weights for the lags 1 to `reach` M, and terms of at most `degree` D heads.

    Raises:
        ValueError: a size is not a whole number of at least 1, or there are more heads than lags.
    """

    tokens: int = 3
    n_heads: int = 3
    reach: int = 3
    degree: int = 2

    def __post_init__(self) -> None:
        for name in ("tokens", "n_heads", "reach", "degree"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.n_heads > self.reach:
            raise ValueError(
                f"n_heads must be at most reach, {self.reach}: head h starts at lag h, got {self.n_heads}"
            )

    @property
    def sets(self) -> tuple[tuple[int, ...], ...]:
        """The sets S of heads, numbered from 1, that have a term, the empty set first."""
        heads = range(1, self.n_heads + 1)
        return tuple(
            chosen for d in range(min(self.degree, self.n_heads) + 1) for chosen in combinations(heads, d)
        )

    def codes(self, device: torch.device | str = "cpu") -> Int[Tensor, "windows reach"]:
        """The token at each lag (column) in each of the S^M windows (row); the newest token is the last digit."""
        window = torch.arange(self.tokens**self.reach, device=device)
        return torch.stack([window // self.tokens**m % self.tokens for m in range(self.reach)], dim=1)


@dataclass(frozen=True)
class Weights:
    """The trained numbers of one model or of many (leading dimensions): `w` (H, M), `c` (sets), `a` ()."""

    w: Tensor
    c: Tensor
    a: Tensor

    def selection(self) -> Float[Tensor, "*runs sets"]:
        """p_S = c_S^2 / sum_T c_T^2: the share of each set in the comparison (27.3)."""
        return self.c.square() / self.c.square().sum(dim=-1, keepdim=True)

    def own_lag(self) -> Float[Tensor, "*runs heads"]:
        """The share of its attention that head h gives to lag h (27.2)."""
        return self.w.softmax(dim=-1).diagonal(dim1=-2, dim2=-1)


def start(
    sizes: Sizes,
    *,
    own: float | int = 3.0,
    other: float | int = 0.01,
    small: float | int = 0.01,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> Weights:
    """Where training starts: weight `own` on each head's own lag and `other` elsewhere, `small` for all c_S and for a.

    Raises:
        ValueError: `small` is not positive: from 0 nothing moves.
    """
    if not 0 < small < math.inf:
        raise ValueError(f"small must be a positive finite number, got {small!r}")
    w = torch.full((sizes.n_heads, sizes.reach), float(other), dtype=dtype, device=device)
    w.diagonal().fill_(float(own))
    new = {"dtype": dtype, "device": device}
    return Weights(w, torch.full((len(sizes.sets),), float(small), **new), torch.tensor(float(small), **new))


# The readable form: one place after the other


def attend_by_places(
    tokens: Int[Tensor, " length"], sizes: Sizes, weights: Weights
) -> Float[Tensor, " vocabulary"]:
    """The prediction (27.2) to (27.4) for the token after one sequence, to be read: vectors, comparison, softmax."""
    one_hot = torch.nn.functional.one_hot(tokens, sizes.tokens).to(weights.w.dtype)
    places = range(sizes.reach, len(tokens) + 1)  # the last one is the place to come
    share, p = weights.w.softmax(dim=-1), weights.selection()

    def copied(place: int) -> Tensor:  # (heads, tokens), rows of length 1
        v = share @ one_hot[place - sizes.reach : place].flip(0)
        return v / v.norm(dim=-1, keepdim=True)

    def alike(place: int) -> Tensor:
        by_head = (copied(place) * copied(len(tokens))).sum(dim=-1)
        return sum(
            p[i] * by_head[[h - 1 for h in heads]].prod() for i, heads in enumerate(sizes.sets)
        )  # an empty product is 1

    scores = torch.stack([alike(place) for place in places[:-1]])
    return (weights.a * scores).softmax(dim=0) @ one_hot[sizes.reach :]


# The fast form: counts and tables


@dataclass(frozen=True)
class Examples:
    """Sequences as counts: `window` (*runs, N) of the place to come, `counts` (*runs, N, windows, S), `target` (*runs, N).

    `counts[n, u, e]` is how often the window u was followed by e in sequence n. `places` (*runs, N, windows) is its sum
    over e, and `hits` its part for the target: all that a loss needs.
    """

    window: Tensor
    counts: Tensor
    target: Tensor
    places: Tensor
    hits: Tensor


def examples(
    tokens: Int[Tensor, "*runs sequences length"], sizes: Sizes, *, dtype: torch.dtype = torch.float64
) -> Examples:
    """Count the windows of sequences; the last token is the target, all before it are what the model reads.

    Raises:
        ValueError: the sequences are shorter than `reach` + 2.
    """
    m, s, length = sizes.reach, sizes.tokens, tokens.shape[-1] - 1
    if length < m + 1:
        raise ValueError(f"tokens must hold at least {m + 2} a sequence for reach {m}, got {length + 1}")
    code = sum(tokens[..., m - lag : length + 1 - lag] * s ** (lag - 1) for lag in range(1, m + 1))
    pair = code[..., :-1] * s + tokens[..., m:length]
    counts = torch.zeros(*tokens.shape[:-1], s ** (m + 1), dtype=dtype, device=tokens.device)
    counts = counts.scatter_add(-1, pair, torch.ones_like(pair, dtype=dtype))
    counts, target = counts.unflatten(-1, (s**m, s)), tokens[..., -1]
    which = target[..., None, None].expand(*counts.shape[:-1], 1)
    return Examples(code[..., -1], counts, target, counts.sum(dim=-1), counts.gather(-1, which)[..., 0])


def _copied(sizes: Sizes, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Window tokens one-hot (M, windows, S), the unit vectors (*runs, H, windows, S), and their lengths before."""
    one_hot = torch.nn.functional.one_hot(sizes.codes(w.device), sizes.tokens).to(w.dtype).transpose(0, 1)
    raw = torch.tensordot(w.softmax(dim=-1), one_hot, dims=1)
    norm = raw.norm(dim=-1, keepdim=True)
    return one_hot, raw / norm, norm


def comparison_terms(
    sizes: Sizes, w: Float[Tensor, "*runs heads reach"]
) -> Float[Tensor, "*runs sets windows windows"]:
    """prod_{h in S} <v_h(u), v_h(u')> for every set S and every pair of windows (27.4)."""
    _, unit, _ = _copied(sizes, w)
    return _products(sizes, unit @ unit.mT)


def _products(sizes: Sizes, by_head: Tensor) -> Tensor:
    one = torch.ones_like(by_head[..., 0, :, :])
    terms = []
    for heads in sizes.sets:
        term = one
        for h in heads:
            term = term * by_head[..., h - 1, :, :]
        terms.append(term)
    return torch.stack(terms, dim=-3)


def _attend(data: Examples, table: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    """Attention to one place of each window, (*runs, N, windows), summing to 1 over all places; and the index of rows."""
    at = data.window[..., None].expand_as(data.places)
    raw = (a[..., None, None] * table.gather(-2, at)).exp()
    return raw / (raw * data.places).sum(dim=-1, keepdim=True), at


def predict(data: Examples, sizes: Sizes, weights: Weights) -> Float[Tensor, "*runs sequences tokens"]:
    """The prediction (27.4) for every sequence, of many models at once: equal to `attend_by_places`."""
    weights = _spread(weights, data)
    terms = comparison_terms(sizes, weights.w)
    weight, _ = _attend(data, _mixed(weights.selection(), terms), weights.a)
    return (weight[..., None] * data.counts).sum(dim=-2)


def _spread(weights: Weights, data: Examples) -> Weights:
    """Weights with the leading dimensions of the data, repeated where they have none."""
    runs, parts = data.window.shape[:-1], {}
    for name, base in (("w", 2), ("c", 1), ("a", 0)):
        value = getattr(weights, name)
        parts[name] = value.expand((*runs, *value.shape[value.ndim - base :]))
    return Weights(**parts)


def loss_and_gradients(
    data: Examples, sizes: Sizes, weights: Weights, *, eps: float | int = EPS, parts: Sequence[str] = "wca"
) -> tuple[Float[Tensor, "*runs"], Weights]:
    """Mean of -log(y_target + eps), and its gradients with respect to the `parts` of w, c and a, by hand.

    With attention weights f, dL/dK_l = -a f_l (1[x_l = e] - y_e) / (y_e + eps) for the target e. From there: with respect
    to p_S its sum with the term of S, and dL/dc_T = 2 c_T (dL/dp_T - sum_S p_S dL/dp_S) / sum c^2; through a
    product of cosines, the length 1 and the softmax to w. Gradients of other parts are 0 and cost nothing.
    """
    weights = _spread(weights, data)
    one_hot, unit, norm = _copied(sizes, weights.w)
    by_head = unit @ unit.mT
    terms, p = _products(sizes, by_head), weights.selection()
    table = _mixed(p, terms)
    weight, at = _attend(data, table, weights.a)
    y = (weight * data.hits).sum(dim=-1, keepdim=True)
    loss = -(y + eps).log().mean(dim=(-2, -1))
    d_rows = weight * (data.places * y - data.hits) / ((y + eps) * y.shape[-2])  # with respect to a K
    d_scaled = torch.zeros_like(table).scatter_add(-2, at, d_rows)
    d_a = (d_scaled * table).sum(dim=(-2, -1))
    d_table = weights.a[..., None, None] * d_scaled
    d_c, d_w = torch.zeros_like(weights.c), torch.zeros_like(weights.w)
    if "c" in parts:
        d_p = (terms.flatten(-2) @ d_table.flatten(-2)[..., None])[..., 0]
        mean = (p * d_p).sum(dim=-1, keepdim=True)
        d_c = 2 * weights.c * (d_p - mean) / weights.c.square().sum(dim=-1, keepdim=True)
    if "w" in parts:
        d_w = _copier_gradient(sizes, weights, one_hot, unit, norm, by_head, d_table)
    return loss, Weights(d_w, d_c, d_a)


def _mixed(p: Tensor, terms: Tensor) -> Tensor:
    """sum_S p_S of the terms: the comparison K of every pair of windows."""
    return (p[..., None, :] @ terms.flatten(-2))[..., 0, :].unflatten(-1, terms.shape[-2:])


def _copier_gradient(sizes, weights, one_hot, unit, norm, by_head, d_table) -> Tensor:
    p, factors = weights.selection(), []
    for head in range(1, sizes.n_heads + 1):
        factor = torch.zeros_like(d_table)
        for i, heads in enumerate(sizes.sets):
            if head in heads:
                rest = p[..., i, None, None].expand_as(d_table)
                for other in heads:
                    rest = rest if other == head else rest * by_head[..., other - 1, :, :]
                factor = factor + rest
        factors.append(factor)
    d_cosine = d_table[..., None, :, :] * torch.stack(factors, dim=-3)
    d_unit = (d_cosine + d_cosine.mT) @ unit
    d_raw = (d_unit - unit * (unit * d_unit).sum(dim=-1, keepdim=True)) / norm
    d_share = torch.einsum("...hus,mus->...hm", d_raw, one_hot)
    share = weights.w.softmax(dim=-1)
    return share * (d_share - (share * d_share).sum(dim=-1, keepdim=True))


# Training


@dataclass(frozen=True)
class History:
    """Weights after every step, and the loss before it, stacked in the first dimension; `stages` holds its length each.

    Entry 0 is the start; the last loss is that of the last weights.
    """

    weights: Weights
    loss: Tensor
    stages: tuple[int, int, int]


def train(
    data: Examples,
    sizes: Sizes,
    weights: Weights,
    *,
    steps: tuple[int, int, int] = (100, 100, 150),
    step_sizes: tuple[float | int, float | int, float | int] = (1.0, 1e4, 1.0),
    together: bool = False,
    eps: float | int = EPS,
) -> History:
    """Gradient descent on all examples: first c, then w, then a; or on all three in each step where `together`.

    Leading dimensions of the data are runs; weights without them start all runs alike.

    Raises:
        ValueError: `steps` or `step_sizes` does not have three entries, or one is negative.
    """
    if len(steps) != 3 or len(step_sizes) != 3 or min(*steps, *step_sizes) < 0:
        raise ValueError(
            f"steps and step_sizes must have three entries each, of at least 0, got {steps}, {step_sizes}"
        )
    names, weights = ("c", "w", "a"), _spread(weights, data)
    order = (
        [names] * sum(steps)
        if together
        else [(n,) for n, k in zip(names, steps, strict=True) for _ in range(k)]
    )
    sized, kept, losses = dict(zip(names, step_sizes, strict=True)), [weights], []
    for trained in order:
        loss, slopes = loss_and_gradients(data, sizes, weights, eps=eps, parts=trained)
        new = {name: getattr(weights, name) - sized[name] * getattr(slopes, name) for name in trained}
        weights = replace(weights, **new)
        kept.append(weights)
        losses.append(loss)
    losses.append(loss_and_gradients(data, sizes, weights, eps=eps, parts=())[0])
    stacked = {name: torch.stack([getattr(one, name) for one in kept]) for name in names}
    return History(Weights(**stacked), torch.stack(losses), tuple(steps))


def growth_rates(
    data: Examples, sizes: Sizes, weights: Weights, *, eps: float | int = EPS
) -> Float[Tensor, "*runs sets"]:
    """d log c_S / dt of gradient flow (27.8): -dL/dc_S / c_S. By the theory, affine in I(S)."""
    return -loss_and_gradients(data, sizes, weights, eps=eps, parts="c")[1].c / weights.c


def predicted_rates(values: Float[Tensor, "*runs sets"], weights: Weights) -> Float[Tensor, "*runs sets"]:
    """2 a / sum c^2 (I(S) - sum_T p_T I(T)) (27.8): the growth rates for small a, long sequences and sharp copiers."""
    p = weights.selection()
    scale = 2 * weights.a[..., None] / weights.c.square().sum(dim=-1, keepdim=True)
    return scale * (values - (p * values).sum(dim=-1, keepdim=True))


# Heads of real models


def matched_weight(
    pattern: Float[Tensor, "batch queries keys"], tokens: Int[Tensor, "batch tokens"], lags: Sequence[int]
) -> Float[Tensor, ""]:
    """Weight of causal attention on places whose `lags` match those of the place to come, over queries that have one.

    Query t predicts token t + 1, so it looks for places j with tokens[j - lag] = tokens[t + 1 - lag] for every lag. For the
    lag 1 that is the induction score of lesson 26.

    Raises:
        ValueError: the tokens do not fit the pattern, or `lags` are not lags in rising order within the sequence.
    """
    batch, queries, keys = pattern.shape
    if tuple(tokens.shape) != (batch, queries) or queries != keys:
        raise ValueError(
            f"tokens must have shape {(batch, keys)} to fit the pattern, got {tuple(tokens.shape)}"
        )
    lags = check_lags("lags", lags, keys - 1)
    reach = max(lags, default=0)
    place = torch.arange(keys, device=tokens.device)
    same = (place[None, :] <= place[:, None]) & (place >= reach)[None, :] & (place >= reach - 1)[:, None]
    same = same.expand(batch, keys, keys)
    for lag in lags:
        shifted = tokens.roll(
            lag, dims=1
        )  # at j: the token `lag` before j; what wraps around is left out above
        wanted = tokens.roll(lag - 1, dims=1)
        same = same & (wanted[:, :, None] == shifted[:, None, :])
    has = same.any(dim=2)
    return ((pattern * same).sum(dim=2) * has).sum() / has.sum().clamp(min=1)
