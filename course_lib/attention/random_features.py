"""Softmax attention through random features: a kernel written as an average over random frequencies (lesson 21).

With a width sigma the softmax similarity is a Gaussian kernel between two norms,
exp(q.k / sigma^2) = exp(|q|^2 / 2 sigma^2) K(q, k) exp(|k|^2 / 2 sigma^2), and both kernels are expectations over
a frequency w ~ N(0, I). The average over m drawn frequencies is a product of two feature vectors, so attention
becomes linear in the length of the sequence. It is an estimate: ask `relative_variance` or `attention_error` how
good a one before you trust it.

`sigma` is a length in the space of queries and keys; None stands for head_dim^(1/4), which makes
q.k / sigma^2 the scores q.k / sqrt(head_dim) of softmax attention.
"""

import math
from dataclasses import dataclass
from typing import Literal, Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.attention.shapes import (
    TorchOptions,
    check_qkv,
    hide_keys,
    merge_leading,
    normalize_inputs,
    without_autocast,
)
from course_lib.attention.states import AttentionState
from course_lib.checks import checked, named


def _width(sigma: float | int | None, head_dim: int) -> float:
    if sigma is None:
        return head_dim**0.25
    if not 0 < sigma < math.inf:
        raise ValueError(f"sigma must be a finite number above 0, or None for head_dim^(1/4), got {sigma}")
    return float(sigma)


@checked
def gaussian_kernel(
    q: Float[Tensor, "*batch queries d"],
    k: Float[Tensor, "*batch keys d"],
    *,
    sigma: float | int | None = None,
) -> Float[Tensor, "*batch queries keys"]:
    """K(q, k) = exp(-|q - k|^2 / 2 sigma^2) for every pair (21.1).

    Raises:
        ValueError: `sigma` is not a finite number above 0.
    """
    # The differences themselves: |q|^2 + |k|^2 - 2 q.k would lose the digits of close pairs.
    squares = (q[..., :, None, :] - k[..., None, :, :]).square().sum(-1)
    return torch.exp(-squares / (2 * _width(sigma, q.shape[-1]) ** 2))


# Frequencies and features


@named
def draw_frequencies(
    head_dim: int,
    n_frequencies: int,
    *,
    orthogonal: bool = False,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Float[Tensor, "n_frequencies head_dim"]:
    """Draw rows w ~ N(0, I), independent or, within blocks of `head_dim` rows, orthogonal (21.10).

    An orthogonal block is a uniformly random rotation whose rows are stretched to independent lengths, each
    distributed as the length of a Gaussian vector: every single row is still N(0, I).

    Raises:
        ValueError: `head_dim` or `n_frequencies` is below 1.
    """
    if head_dim < 1 or n_frequencies < 1:
        raise ValueError(f"head_dim and n_frequencies must be 1 or more, got {head_dim} and {n_frequencies}")
    if device is None and generator is not None:
        device = generator.device
    options = {"generator": generator, "dtype": dtype, "device": device}
    if not orthogonal:
        return torch.randn(n_frequencies, head_dim, **options)
    blocks = -(-n_frequencies // head_dim)
    rotations, triangles = torch.linalg.qr(torch.randn(blocks, head_dim, head_dim, **options))
    # A QR routine chooses the signs of the columns as it likes; with those of R's diagonal the law is uniform.
    rotations = rotations * triangles.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]
    lengths = torch.randn(blocks, head_dim, head_dim, **options).norm(dim=-1, keepdim=True)
    return (lengths * rotations).reshape(-1, head_dim)[:n_frequencies]


@dataclass(frozen=True, eq=False)
class RandomFeatures:
    """Frequencies w_1, ..., w_m, rows drawn from N(0, I), and the width sigma of the kernel they stand for.

    Shapes: `frequencies` is (m, head_dim).

    Raises:
        ValueError: `frequencies` is not a matrix with at least one row, or `sigma` is not a finite number above 0.
    """

    frequencies: Tensor
    sigma: float | int | None = None

    def __post_init__(self):
        if self.frequencies.ndim != 2 or 0 in self.frequencies.shape:
            raise ValueError(
                f"frequencies must have shape (m, head_dim), got {tuple(self.frequencies.shape)}"
            )
        _width(self.sigma, self.frequencies.shape[1])

    @property
    def n_features(self) -> int:
        """How many features a vector gets."""
        return len(self.frequencies)

    def factors(self, x: Tensor, shift: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return exponents a, with `shift` added, and signed factors f (None for ones).

        With shift = log_norm(x), exp(a) f / sqrt(m) are features of exp(q.k / sigma^2). Here and in `log_norm`,
        x is in units of sigma and of shape (batch, seq, head_dim).
        """
        raise NotImplementedError

    def log_norm(self, x: Tensor) -> Tensor:
        """Return the part of the exponents that only depends on the length of x, (..., seq, 1)."""
        raise NotImplementedError

    def in_units(self, x: Tensor) -> Tensor:
        """Return x / sigma.

        Raises:
            ValueError: the head dimension of x is not that of the frequencies.
        """
        if x.shape[-1] != self.frequencies.shape[1]:
            raise ValueError(
                f"features were drawn for head_dim {self.frequencies.shape[1]}, got vectors of {x.shape[-1]}"
            )
        return x / _width(self.sigma, x.shape[-1])


class TrigonometricFeatures(RandomFeatures):
    """phi(x) = m^(-1/2) [sin(w_i.x / sigma), cos(w_i.x / sigma)], with E phi(q).phi(k) = K(q, k) (21.4).

    Shapes: x (..., seq, head_dim) becomes (..., seq, 2 m).
    Source: Rahimi and Recht (2007), "Random features for large-scale kernel machines".
    """

    def __call__(self, x: Float[Tensor, "*batch seq d"]) -> Float[Tensor, "*batch seq features"]:
        """Return the features of each row of x."""
        rows = merge_leading(self.in_units(x))
        values = self.factors(rows, rows)[1] / math.sqrt(len(self.frequencies))
        return values.reshape(*x.shape[:-1], values.shape[-1])

    @property
    def n_features(self) -> int:
        """A sine and a cosine for each frequency."""
        return 2 * len(self.frequencies)

    def factors(self, x: Tensor, shift: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the shift alone and f = [sin w_i.x, cos w_i.x]."""
        angles = x @ self.frequencies.to(x).mT
        return shift, torch.cat([angles.sin(), angles.cos()], dim=-1)

    def log_norm(self, x: Tensor) -> Tensor:
        """Return |x|^2 / 2: softmax is the Gaussian kernel times its exponentials."""
        return x.square().sum(-1, keepdim=True) / 2


class PositiveFeatures(RandomFeatures):
    """phi(x) = m^(-1/2) exp(w_i.x / sigma - |x|^2 / 2 sigma^2), with E phi(q).phi(k) = exp(q.k / sigma^2) (21.6).

    Shapes: x (..., seq, head_dim) becomes (..., seq, m).
    Source: Choromanski et al. (2021), "Rethinking attention with Performers", arXiv:2009.14794.
    """

    def __call__(self, x: Float[Tensor, "*batch seq d"]) -> Float[Tensor, "*batch seq features"]:
        """Return the features of each row of x. Large ones overflow; `random_feature_attention` avoids that."""
        rows = merge_leading(self.in_units(x))
        values = self.factors(rows, self.log_norm(rows))[0].exp() / math.sqrt(len(self.frequencies))
        return values.reshape(*x.shape[:-1], values.shape[-1])

    def factors(self, x: Tensor, shift: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return a_i = w_i.x + shift; all factors are 1."""
        # One call: adding the shift on its own would read and write every exponent once more.
        frequencies = self.frequencies.to(x).mT.expand(len(x), -1, -1)
        return torch.baddbmm(shift, x, frequencies), None

    def log_norm(self, x: Tensor) -> Tensor:
        """Return -|x|^2 / 2, which makes E exp(w_i.q) exp(w_i.k) = exp(|q + k|^2 / 2) into exp(q.k)."""
        return x.square().sum(-1, keepdim=True) / -2


@named
def trigonometric_features(
    head_dim: int, n_frequencies: int, *, sigma: float | int | None = None, **options
) -> TrigonometricFeatures:
    """Draw trigonometric features, two for each frequency; `options` are those of `draw_frequencies`."""
    return TrigonometricFeatures(draw_frequencies(head_dim, n_frequencies, **options), sigma)


@named
def positive_features(
    head_dim: int, n_frequencies: int, *, sigma: float | int | None = None, **options
) -> PositiveFeatures:
    """Draw positive features, one for each frequency; `options` are those of `draw_frequencies`."""
    return PositiveFeatures(draw_frequencies(head_dim, n_frequencies, **options), sigma)


# Attention


@dataclass(frozen=True, eq=False)
class RandomFeatureState(AttentionState):
    """What attention through random features keeps of the past: sums, from which the largest exponents are taken out.

    Shapes: `sums` is (..., n_features, M + 1), the sums of phi(k_j) v_j and, as last column, of phi(k_j); `top` is the
    largest exponent of each feature that is taken out of them, (..., 1, m) or (..., 1, 1); `seen`, (..., 1, 1), is whether
    any key took part.
    """

    sums: Tensor
    top: Tensor
    seen: Tensor


@named
def random_feature_attention(
    q: Float[Tensor, "... queries d"],
    k: Float[Tensor, "... keys d"],
    v: Float[Tensor, "... keys d_v"],
    *,
    features: RandomFeatures,
    causal: bool = False,
    attn_mask: Tensor | None = None,
    chunk_size: int = 128,
    initial_state: RandomFeatureState | None = None,
    return_state: bool = False,
    scale: float | int | None = None,
    **call: Unpack[TorchOptions],
) -> Float[Tensor, "... queries d_v"] | tuple[Float[Tensor, "... queries d_v"], RandomFeatureState]:
    """Estimate softmax attention with scores q.k / sigma^2, in time linear in the sequence (21.11).

    out_i = sum_j phi(q_i).phi(k_j) v_j / sum_j phi(q_i).phi(k_j), over j <= i where `causal`.

    Features are exponentials, so factors are taken out of them before exp (21.12): for each feature the largest
    exponent of the keys read so far, which the queries are given back, and for each query its own largest
    exponent. Both cancel in the ratio. Without `causal` the denominator of positive features is then at least 1,
    whatever the inputs. With it, an early query of a chunk could underflow to 0/0 where exponents rise by more than
    about 71 (float32) within that chunk: there the chunk is cut in halves, down to single tokens, where the same
    bound holds. That looks at values, which on a GPU would stop its queue of kernels at every chunk: there, and in a
    compiled function, chunks stay whole, and rows with 0/0 are NaN; a smaller `chunk_size` helps. Trigonometric
    features may have a denominator of either sign, or zero.

    A state stands for all keys of earlier calls, which every query sees: with `return_state` the result is (output,
    state), and `initial_state` goes on from it, by one token or by many, with gradients into the state.

    As torch calls it: `scale`, above 0, makes the scores scale q.k, in place of 1 / sigma^2; the other options are
    `TorchOptions`. Where heads are repeated, a state is one for each head of q.

    Shapes: any leading dimensions; `attn_mask` is (..., 1, keys), True takes part; a query that sees no key gets
    zeros. Half precision is computed in float32 and returned in its own dtype. With fewer queries than keys, causal
    queries are the last of the sequence: query i sees the keys up to i + keys - queries.
    Cost: O(seq m (head_dim + d_v + chunk_size)) operations; memory for copies of the inputs, a chunk and m d_v sums.

    Raises:
        ValueError: shapes, dtypes or devices do not belong together, causal attention gets more queries than keys,
            `chunk_size` is below 1, or the state is another one's.
    Source: Choromanski et al. (2021), arXiv:2009.14794; the maxima by feature are this course's.
    """
    q, k, v, attn_mask, causal = normalize_inputs(q, k, v, attn_mask, causal, **call)
    if scale is not None:
        if not 0 < scale < math.inf:
            raise ValueError(f"scale must be a finite number above 0, got {scale}")
        q, k = (x * (math.sqrt(scale) * _width(features.sigma, x.shape[-1])) for x in (q, k))
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be 1 or more, got {chunk_size}")
    shape, dtype = (*q.shape[:-1], v.shape[-1]), q.dtype
    k, v, weights = hide_keys(attn_mask, k, v)
    visible = None if weights is None else merge_leading(weights) > 0
    stateful = return_state or initial_state is not None
    if not stateful and not (q.shape[-2] and k.shape[-2]):
        return v.new_zeros(shape)
    state = _start(initial_state, k, v, features)
    q, k, v = (merge_leading(x).to(state.sums.dtype) for x in (q, k, v))
    with without_autocast(q.device):  # exponents and sums need their digits
        q, k, ahead = features.in_units(q), features.in_units(k), k.shape[1] - q.shape[1] if causal else 0
        if ahead:  # keys before the first query: all queries see them
            before = None if visible is None else visible[:, :ahead]
            own = q[:, :0], k[:, :ahead], v[:, :ahead], before
            _, state = _sums_and_counts(*own, features, causal=False, chunk_size=chunk_size, state=state)
            k, v = k[:, ahead:], v[:, ahead:]
            visible = None if visible is None else visible[:, ahead:]
        output, new = _sums_and_counts(q, k, v, visible, features, causal, chunk_size, state)
    numerators, denominators = output[..., :-1], output[..., -1:]
    if attn_mask is not None or not k.shape[1]:
        seen = new.seen
        if causal and visible is not None:
            seen = (visible.cumsum(dim=1) > 0) | state.seen
        # Both branches of `where` have a gradient: 0/0 must not stand in the unused one.
        denominators = torch.where(seen, denominators, 1)
    out = (numerators / denominators).reshape(shape).to(dtype)
    return (out, new.unmerged(shape[:-2])) if return_state else out


def _start(state: RandomFeatureState | None, k: Tensor, v: Tensor, features: RandomFeatures):
    """Check a state and merge its leading dimensions, or make the first one."""
    dtype, shape = torch.promote_types(k.dtype, torch.float32), (features.n_features, v.shape[-1] + 1)
    if state is None:
        sums = v.new_zeros(k.shape[:-2].numel(), *shape, dtype=dtype)
        # Finite, since infinity minus infinity is no number; as far from every exponent as infinity.
        top = torch.full_like(sums[:, :1, :1], torch.finfo(dtype).min / 4)
        return RandomFeatureState(sums, top, torch.zeros_like(top, dtype=torch.bool))
    if not isinstance(state, RandomFeatureState):
        raise ValueError(
            f"initial_state must be a RandomFeatureState, as this function returns it, got {type(state).__name__}"
        )
    wanted = (*k.shape[:-2], *shape)
    if state.sums.shape != wanted or state.sums.device != k.device:
        raise ValueError(
            f"initial_state must have sums of shape {wanted} on {k.device} for these keys, values and features, got "
            f"{tuple(state.sums.shape)} on {state.sums.device}"
        )
    return state.to(dtype=torch.promote_types(dtype, state.sums.dtype)).merged()


def _sums_and_counts(
    q, k, v, visible, features, causal, chunk_size, state
) -> tuple[Tensor, RandomFeatureState]:
    """Return the numerators and, as last column, the denominators; q, k in units of sigma, (batch, seq, d).

    And the state after the last key; `state` is the one before the first.
    """
    norms = features.log_norm(k)
    # The denominator is the same sum with ones for values: one more column.
    v = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)

    top, sums, outputs = state.top, state.sums, [v[:, :0]]
    left = _chunks(k.shape[1], chunk_size if causal else 4 * chunk_size)[::-1]
    while left:
        rows = left.pop()
        exponents, signs = features.factors(k[:, rows], norms[:, rows])
        if visible is not None:
            exponents = exponents.masked_fill(~visible[:, rows], -math.inf)
        # Detached: the output does not depend on these factors, so neither does its gradient.
        new_top = torch.maximum(top, exponents.detach().amax(dim=-2, keepdim=True))
        if causal and _rises_too_far(exponents.detach(), visible, rows, top, new_top):
            middle = (rows.start + rows.stop) // 2
            left += [slice(middle, rows.stop), slice(rows.start, middle)]
            continue
        keys = _signed_exp(exponents - new_top, signs)
        sums = sums * (top - new_top).exp().mT
        top = new_top
        if causal:
            queries = _queries(q[:, rows], top, features)
            scores = torch.bmm(queries, keys.mT).tril_()
            outputs.append(torch.baddbmm(torch.bmm(queries, sums), scores, v[:, rows]))
        sums = torch.baddbmm(sums, keys.mT, v[:, rows])
    if not causal:
        for rows in _chunks(q.shape[1], 4 * chunk_size):
            outputs.append(torch.bmm(_queries(q[:, rows], top, features), sums))
    seen = state.seen | (visible.any(dim=1, keepdim=True) if visible is not None else bool(k.shape[1]))
    return torch.cat(outputs, dim=1), RandomFeatureState(sums, top, seen)


def _chunks(length: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, length)) for start in range(0, length, size)]


def _rises_too_far(exponents: Tensor, visible, rows: slice, top: Tensor, new_top: Tensor) -> bool:
    """Whether the chunk's largest exponents would leave nothing of what its first queries see.

    They are compared with what the chunk's first query sees: the largest before the chunk, and the first key's own. If
    it sees nothing, with the first key that takes part. Terms keep their digits as long as exp(-rise) times the dtype's
    epsilon does not underflow. Asked on the CPU only, where looking at values costs nothing.
    """
    if rows.stop - rows.start == 1 or exponents.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    number = torch.finfo(exponents.dtype)
    start = torch.maximum(top, exponents[:, :1])
    if visible is not None:
        at = visible[:, rows].to(torch.uint8).argmax(dim=1, keepdim=True)
        first = exponents.gather(1, at.expand(-1, 1, exponents.shape[2]))
        start = torch.where(start > number.min / 8, start, first)
    return bool((new_top - start).max() > math.log(number.eps) - math.log(number.tiny))


def _signed_exp(exponents: Tensor, signs: Tensor | None) -> Tensor:
    return exponents.exp_() if signs is None else exponents.exp_() * signs


def _queries(q: Tensor, top: Tensor, features: RandomFeatures) -> Tensor:
    """Return the features of queries: what was taken from the keys is put back, and each row's largest taken out.

    The norm of a query is a factor of its whole row as well, so it is not even computed.
    """
    exponents, signs = features.factors(q, top)
    return _signed_exp(exponents - exponents.detach().amax(dim=-1, keepdim=True), signs)


# What to expect of it


Kind = Literal["trigonometric", "positive"]


def _sums(q: Tensor, k: Tensor, kind: str, sigma: float | int | None) -> Tensor:
    """Return what the variance grows with, (..., queries, keys, d): (q + k) / sigma, or (q - k) / sigma."""
    if kind not in ("trigonometric", "positive"):
        raise ValueError(f"kind must be 'trigonometric' or 'positive', got {kind!r}")
    sign = 1 if kind == "positive" else -1
    return (q[..., :, None, :] + sign * k[..., None, :, :]) / _width(sigma, q.shape[-1])


def _covariance(products: Tensor, kind: str) -> Tensor:
    """Return m Cov(r_i, r_j) from the inner products of the vectors above."""
    return products.expm1() if kind == "positive" else 2 * (products / 2).sinh().square()


def relative_variance(
    q: Float[Tensor, "*batch queries d"],
    k: Float[Tensor, "*batch keys d"],
    *,
    kind: Kind,
    sigma: float | int | None = None,
) -> Float[Tensor, "*batch queries keys"]:
    """Variance of (estimate / exp(q.k / sigma^2)) with one frequency, for every pair (21.7).

    exp(|q + k|^2 / sigma^2) - 1 for positive features, 2 sinh^2(|q - k|^2 / 2 sigma^2) for trigonometric ones.
    With m independent frequencies it is divided by m: a relative error of e needs about variance / e^2 of them.

    Raises:
        ValueError: `kind` is unknown or `sigma` is not a finite number above 0.
    """
    return _covariance(_sums(q, k, kind, sigma).square().sum(-1), kind)


def orthogonal_covariance(
    squared_length: Float[Tensor, "*shape"], *, head_dim: int
) -> Float[Tensor, "*shape"]:
    """Covariance of the relative estimates of two frequencies in one orthogonal block, positive features (21.10).

    exp(-s^2) sum_j (s^2)^j / j! prod_{i<j} (d + i) / (d + 2i) - 1, where s^2 = |q + k|^2 / sigma^2, is `squared_length`;
    without the product it would be zero, and every factor of it is at most 1.

    Shapes: any; float64 is advised. The series is summed as far as it matters for s^2 up to 100.

    Raises:
        ValueError: `head_dim` is below 1.
    """
    if head_dim < 1:
        raise ValueError(f"head_dim must be 1 or more, got {head_dim}")
    # Summed as probabilities of a Poisson variable with mean s^2: no term is large.
    j = torch.arange(300, dtype=squared_length.dtype, device=squared_length.device)
    i = j[:-1]
    log_product = torch.cat([j[:1], ((head_dim + i) / (head_dim + 2 * i)).log().cumsum(0)])
    x = squared_length[..., None]
    chances = (torch.xlogy(j, x) - x - torch.lgamma(j + 1)).exp()
    return (chances * log_product.expm1()).sum(-1)


def attention_error(
    q: Float[Tensor, "*batch queries d"],
    k: Float[Tensor, "*batch keys d"],
    v: Float[Tensor, "*batch keys d_v"],
    *,
    kind: Kind,
    n_frequencies: int,
    sigma: float | int | None = None,
) -> Float[Tensor, "*batch queries"]:
    """Root mean square distance of each output from softmax attention's, to first order in 1/m (21.9).

    sqrt(1/m sum_ij a_i a_j (v_i - o).(v_j - o) c_ij) with attention weights a, output o and c_ij = m Cov(r_i, r_j).
    Independent frequencies; good where the result is small against the values, else too small or too large.
    Cost: O(queries keys^2) numbers, so take a few queries.

    Raises:
        ValueError: shapes do not belong together, `kind` is unknown or `sigma` is not a finite number above 0.
    """
    check_qkv(q, k, v)
    weights = (q @ k.mT / _width(sigma, q.shape[-1]) ** 2).softmax(dim=-1)
    around = weights[..., None] * (v[..., None, :, :] - (weights @ v)[..., :, None, :])
    sums = _sums(q, k, kind, sigma)
    covariance = _covariance(sums @ sums.mT, kind)
    squares = ((covariance @ around) * around).sum((-2, -1)) / n_frequencies
    return squares.clamp(min=0).sqrt()
