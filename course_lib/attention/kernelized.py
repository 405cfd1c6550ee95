"""Kernelized attention: weights from a similarity phi(q).phi(k), in time linear in the sequence (lesson 15).

Softmax attention weighs the values by sim(q, k) = exp(q.k / sqrt(D)). Any other similarity may take its place as
long as its sum over the keys does not vanish. If the similarity is a dot product of features, the sum over the
keys can be taken once, before any query is seen, and attention costs N times the number of features C instead
of N^2. Three implementations that agree stand here: `kernel_attention` forms all N^2 similarities,
`linear_attention_loop` is the token loop in full, and `linear_attention` is the fast one, which works in chunks of
the sequence and never holds the features of more than one chunk.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from course_lib.attention.shapes import (
    check_causal,
    check_qkv,
    clear_hidden,
    key_weights,
    merge_leading,
    without_autocast,
)

FeatureMap = Callable[[Tensor], Tensor]
BLOCK_ROWS = 8  # rows of x that meet all later rows at once: few small products, little counted twice


# Similarities and their feature maps


@dataclass(frozen=True)
class Quadratic:
    """The quadratic kernel sim(q, k) = (alpha q.k + c)^2 (15.4) and its features.

    A call returns phi(x) with phi(q).phi(k) = sim(q, k) (15.5): c, the entries sqrt(2 alpha c) x_i, the squares
    alpha x_i^2 and the cross terms sqrt(2) alpha x_i x_j for i < j. With c = 0 only squares and cross terms are left.

    Units: `scale` is alpha, `offset` is c.

    Raises:
        ValueError: alpha is not above 0 or c is below 0: then no feature map exists.
    """

    scale: float | int = 1.0
    offset: float | int = 1.0

    def __post_init__(self):
        if not (0 < self.scale < math.inf and 0 <= self.offset < math.inf):
            raise ValueError(
                f"a quadratic kernel needs a finite scale > 0 and offset >= 0, got {self.scale} and {self.offset}"
            )

    def __call__(self, x: Float[Tensor, "... seq d"]) -> Float[Tensor, "... seq n_features"]:
        """Return phi(x)."""
        i, j = torch.triu_indices(x.shape[-1], x.shape[-1], device=x.device)
        pairs = self.scale * (2 - (i == j).to(x.dtype)).sqrt() * x[..., i] * x[..., j]
        if self.offset == 0:
            return pairs
        constant = torch.full_like(x[..., :1], self.offset)
        return torch.cat([constant, math.sqrt(2 * self.scale * self.offset) * x, pairs], -1)

    def n_features(self, head_dim: int) -> int:
        """C = (D + 1)(D + 2)/2, or D(D + 1)/2 where c = 0 (15.6)."""
        rows = head_dim + (self.offset != 0)
        return rows * (rows + 1) // 2

    def similarity(
        self, q: Float[Tensor, "... q_len d"], k: Float[Tensor, "... k_len d"]
    ) -> Float[Tensor, "... q_len k_len"]:
        """Return (alpha q.k + c)^2 of every query with every key."""
        return (self.scale * (q @ k.mT) + self.offset).square()


def elu_features(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """elu(x) + 1, which is x + 1 above 0 and e^x below: positive features, as many as x has entries.

    Source: Katharopoulos et al. 2020, arXiv:2006.16236.
    """
    # elu(x) + 1 itself would round to 0 where e^x is below the dtype's epsilon.
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def exp_similarity(
    q: Float[Tensor, "... q_len d"], k: Float[Tensor, "... k_len d"]
) -> Float[Tensor, "... q_len k_len"]:
    """exp(q.k / sqrt(D)), up to a factor for each query that attention cancels: the similarity of softmax attention."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return (scores - scores.amax(-1, keepdim=True)).exp()


# Attention by its definition


def kernel_attention(
    q: Float[Tensor, "... q_len d"],
    k: Float[Tensor, "... k_len d"],
    v: Float[Tensor, "... k_len d_v"],
    *,
    similarity: Callable[[Tensor, Tensor], Tensor],
    causal: bool = False,
    attn_mask: Tensor | None = None,
) -> Float[Tensor, "... q_len d_v"]:
    """V'_i = sum_j sim(q_i, k_j) v_j / sum_j sim(q_i, k_j) (15.1), with all similarities in memory.

    Shapes: `similarity(q, k)` returns (..., q_len, k_len); `attn_mask` broadcasts to that, True takes part.
    A denominator of 0 gives NaN or infinity, as the equation says.

    Raises:
        ValueError: q, k and v do not belong together, or causal attention gets sequences of two lengths.
    """
    check_qkv(q, k, v)
    k, v = clear_hidden(attn_mask, k, v)
    weights = similarity(q, k)
    if causal:
        check_causal(q, k)
        weights = weights.tril()
    if attn_mask is not None:
        weights = weights.masked_fill(~attn_mask, 0)
    return (weights @ v) / weights.sum(-1, keepdim=True)


# Attention as a recurrence

State = tuple[Tensor, Tensor]


def recurrent_step(
    state: State | None,
    q: Float[Tensor, "... d"],
    k: Float[Tensor, "... d"],
    v: Float[Tensor, "... d_v"],
    *,
    feature_map: FeatureMap,
) -> tuple[Float[Tensor, "... d_v"], State]:
    """One token of causal linear attention: U += phi(k) v^T, z += phi(k), V' = U^T phi(q) / z.phi(q) (15.12).

    A recurrent network whose state, U (..., C, M) and z (..., C), does not grow with the tokens seen: what a
    decoder keeps in the place of a cache of keys and values. Start with None; returns the output and the new state.
    """
    phi_q, phi_k = feature_map(q[..., None, :])[..., 0, :], feature_map(k[..., None, :])[..., 0, :]
    update = phi_k[..., :, None] * v[..., None, :], phi_k
    u, z = update if state is None else (state[0] + update[0], state[1] + update[1])
    return (u * phi_q[..., None]).sum(-2) / (z * phi_q).sum(-1, keepdim=True), (u, z)


def linear_attention_loop(
    q: Float[Tensor, "... q_len d"],
    k: Float[Tensor, "... k_len d"],
    v: Float[Tensor, "... k_len d_v"],
    *,
    feature_map: FeatureMap,
    causal: bool = False,
) -> Float[Tensor, "... q_len d_v"]:
    """Linear attention token by token (15.8), (15.12), to be read: `linear_attention` gives the same and is much faster.

    Raises:
        ValueError: q, k and v do not belong together, or causal attention gets sequences of two lengths.
    """
    check_qkv(q, k, v)
    if causal:
        check_causal(q, k)
        state, outputs = None, []
        for token in zip(q.unbind(-2), k.unbind(-2), v.unbind(-2), strict=True):
            out, state = recurrent_step(state, *token, feature_map=feature_map)
            outputs.append(out)
        return torch.stack(outputs, -2)
    phi_q, phi_k = feature_map(q), feature_map(k)
    u, z = 0, 0
    for j in range(k.shape[-2]):
        u = u + phi_k[..., j, :, None] * v[..., j, None, :]
        z = z + phi_k[..., j, :]
    rows = [
        (phi_q[..., i, None, :] @ u)[..., 0, :] / (phi_q[..., i, :] * z).sum(-1, keepdim=True)
        for i in range(q.shape[-2])
    ]
    return torch.stack(rows, -2)


# What it costs


def softmax_multiply_adds(length: int, d: int, d_v: int, *, causal: bool = False) -> int:
    """N^2 (D + M) multiply-adds (15.7): one dot product and one sum of values a pair; N(N + 1)/2 pairs if causal.

    Units: multiply-adds; `length` is N, `d` is D, `d_v` is M. Exponentials and divisions are not counted.
    """
    pairs = length * (length + 1) // 2 if causal else length**2
    return pairs * (d + d_v)


def linear_multiply_adds(length: int, d_v: int, *, n_features: int) -> int:
    """2 N C (M + 1) multiply-adds (15.9): C M for U and C for z a token, and as much again for reading them.

    The same with and without a causal mask. What it takes to compute the features is not counted.
    """
    return 2 * length * n_features * (d_v + 1)


def crossover_length(d: int, d_v: int, *, n_features: int, causal: bool = False) -> float:
    """N from which on the linear form needs fewer multiply-adds: 2 C (M + 1)/(D + M) (15.10), about twice that if causal."""
    length = 2 * n_features * (d_v + 1) / (d + d_v)
    return 2 * length - 1 if causal else length


def memory_crossover_length(d_v: int, *, n_features: int) -> float:
    """N from which on N^2 stored scores take more room than U and z: sqrt(C (M + 1)) (15.11)."""
    return math.sqrt(n_features * (d_v + 1))


# Attention in chunks


def linear_attention(
    q: Float[Tensor, "... q_len d"],
    k: Float[Tensor, "... k_len d"],
    v: Float[Tensor, "... k_len d_v"],
    *,
    feature_map: FeatureMap,
    causal: bool = False,
    attn_mask: Tensor | None = None,
    normalize: bool = True,
    chunk_size: int = 256,
    eps: float | int = 0.0,
) -> Float[Tensor, "... q_len d_v"]:
    """V'_i = phi(q_i)^T sum_j phi(k_j) v_j^T / (phi(q_i)^T sum_j phi(k_j) + eps), j <= i if causal (15.8), (15.13).

    Time in proportion to N C d_v; memory beyond inputs and output: C d_v numbers and the features of one chunk, whatever N
    is. `Quadratic` has a path of its own, which never collects its features by index and takes about a third of the time of
    the general one. For sequences much shorter than C, `kernel_attention` is faster.

    Derivatives of any order are exact. For the first one features are computed again rather than kept: `Quadratic` keeps
    the inputs, the output and its denominators; other maps go through torch.utils.checkpoint, which torch.func does not
    support: what the map itself learns gets its gradient, and if causal a state, C x d_v, is kept a chunk.

    Shapes: any leading dimensions, the same in all three; `feature_map` turns (..., n, d) into (..., n, C), row by row;
    `attn_mask` is boolean, (..., 1, k_len), True takes part. float16 and bfloat16 are summed in float32.
    Units: `eps` is in units of the denominator. `normalize=False` leaves the denominator out. A query all of whose keys
    are masked gets zeros; one all of whose similarities are 0 gets NaN, 0 divided by `eps` = 0.

    Raises:
        ValueError: q, k and v do not belong together, causal attention gets sequences of two lengths, the mask depends on
            the query, `chunk_size` is below 1, or the feature map returns another number of rows.
    Source: Katharopoulos et al. 2020, arXiv:2006.16236.
    """
    check_qkv(q, k, v)
    if causal:
        check_causal(q, k)
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be 1 or more, got {chunk_size}")
    if not (q.shape[-2] and k.shape[-2]):
        return v.new_zeros(*q.shape[:-1], v.shape[-1])
    weights = key_weights(attn_mask, k)
    floor = v.new_full((1, 1), eps, dtype=_sum_dtype(v.dtype)).expand(*q.shape[:-1], 1)
    if weights is None:
        weights = v.new_ones(1).expand(*v.shape[:-1], 1)
    else:
        k, v = clear_hidden(attn_mask, k, v)
        # A query that sees no key: 0 divided by 1, with gradients of 0, in the place of 0/0.
        floor = floor + ((weights.cumsum(-2) if causal else weights.sum(-2, keepdim=True)) == 0)
    inputs = *map(merge_leading, (q, k, v, weights, floor)), feature_map, causal, normalize, chunk_size
    with without_autocast(q.device):  # sums keep their digits, as in half precision
        if isinstance(feature_map, Quadratic):
            out, _ = _QuadraticAttention.apply(*inputs)
        else:
            out = _chunked(*inputs)
    return out.reshape(*q.shape[:-1], v.shape[-1])


def _slices(length: int, chunk_size: int) -> list[slice]:
    return [slice(start, min(start + chunk_size, length)) for start in range(0, length, chunk_size)]


def _sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """Sums over a whole sequence need more digits than half precision has."""
    return torch.promote_types(dtype, torch.float32)


def _chunked(
    q, k, v, weights, floor, feature_map, causal, normalize, chunk_size, *, keep_features: bool = False
) -> Tensor:
    """Linear attention with any feature map; q (B, L, D), k (B, S, D), v (B, S, M), weights (B, S, 1), floor (B, L, 1).

    `weights` are 0 for masked keys, `floor` is added to the denominators.
    """
    dtype = _sum_dtype(v.dtype)

    def features(x):
        phi = feature_map(x)
        if phi.shape[:-1] != x.shape[:-1]:
            raise ValueError(
                f"feature_map must return (..., seq, n_features), got {tuple(phi.shape)} for an input of shape "
                f"{tuple(x.shape)}"
            )
        return phi.to(dtype)

    def absorb(phi_k, value, weight, u, z):
        return u + phi_k.mT @ value.to(dtype), z + phi_k.mT @ weight.to(dtype)

    def divide(top, bottom, below):
        return (top / (bottom + below) if normalize else top).to(v.dtype)

    def write(key, value, weight, u, z):
        return absorb(features(key), value, weight, u, z)

    def read(query, below, u, z):
        phi_q = features(query)
        return divide(phi_q @ u, phi_q @ z, below)

    def read_and_write(query, below, key, value, weight, u, z):
        phi_q, phi_k = features(query), features(key)
        near = (phi_q @ phi_k.mT).tril()  # the chunk's own keys, each query up to itself
        out = divide(phi_q @ u + near @ value.to(dtype), phi_q @ z + near @ weight.to(dtype), below)
        return out, *absorb(phi_k, value, weight, u, z)

    probe = features(k[:, :1])
    u = torch.zeros(len(v), probe.shape[-1], v.shape[-1], dtype=dtype, device=v.device)
    z = torch.zeros(len(v), probe.shape[-1], 1, dtype=dtype, device=v.device)
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in (probe, q, k, v)) and not keep_features
    call = (
        (lambda f, *inputs: checkpoint(f, *inputs, use_reentrant=False)) if learns else (lambda f, *i: f(*i))
    )
    outputs = []
    if not causal:
        for at in _slices(k.shape[1], chunk_size):
            u, z = call(write, k[:, at], v[:, at], weights[:, at], u, z)
    for at in _slices(q.shape[1], chunk_size):
        if causal:
            own = k[:, at], v[:, at], weights[:, at]
            out, u, z = call(read_and_write, q[:, at], floor[:, at], *own, u, z)
        else:
            out = call(read, q[:, at], floor[:, at], u, z)
        outputs.append(out)
    return torch.cat(outputs, 1)


# The quadratic kernel without its features
#
# With the entries of x as rows of a matrix (rows x tokens) and c as one row more, (alpha q.k + c)^2 is the square of a
# dot product, and its features are all products of two rows. Multiplying 8 rows with all later ones at a time is
# one broadcast product of contiguous rows, and what it gives is at once a factor of a matrix product. Rows within a
# block meet twice, others once: the latter count double, on the reading side only.
#
# The gradient has the shape of the forward pass. With g_i = dL/dV'_i / Z_i and h_i = -(dL/dV'_i . V'_i) / Z_i,
# dL = sum_ij d[sim_ij] (g_i.v_j + h_i w_j): the queries see sums over the keys, the keys and values see sums over the
# queries, and under a causal mask these run from the end of the sequence to its start.


def _rows(x: Tensor, kernel: Quadratic) -> Tensor:
    """Turn tokens (B, n, D) into rows (B, D + 1, n), so that sim is the square of a dot product of columns."""
    rows = math.sqrt(kernel.scale) * x.mT.to(_sum_dtype(x.dtype))
    if kernel.offset == 0:
        return rows.contiguous()
    return torch.cat([rows, torch.full_like(rows[:, :1], math.sqrt(kernel.offset))], 1)


def _blocks(rows: int) -> list[tuple[int, int]]:
    return [(low, min(low + BLOCK_ROWS, rows)) for low in range(0, rows, BLOCK_ROWS)]


def _products(x: Tensor, *, reading: bool) -> Iterator[Tensor]:
    """Yield the products of each block of rows with itself and all later rows, (B, pairs, n)."""
    later = 2 * x if reading else x
    for low, high in _blocks(x.shape[1]):
        if reading:
            later[:, low:high] = x[:, low:high]
        yield (x[:, low:high, None] * later[:, None, low:]).flatten(1, 2)


class _Sums:
    """Sums over tokens y with values a and weights w: y y^T a of every block, and y y^T w for the denominator."""

    def __init__(self, batch: int, rows: int, width: int, like: Tensor):
        self.blocks = [
            like.new_zeros(batch, (high - low) * (rows - low), width, dtype=_sum_dtype(like.dtype))
            for low, high in _blocks(rows)
        ]
        self.gram = self.blocks[0].new_zeros(batch, rows, rows)

    def absorb(self, y: Tensor, a: Tensor, w: Tensor) -> None:
        """Add a chunk: columns of y, rows of a and w."""
        for block, products in zip(self.blocks, _products(y, reading=False), strict=True):
            torch.baddbmm(block, products, a, out=block)
        torch.baddbmm(self.gram, y * w.mT, y.mT, out=self.gram)

    def read(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return sum_j sim(x_i, y_j) a_j and sum_j sim(x_i, y_j) w_j for every column of x."""
        top = x.new_zeros(len(x), x.shape[2], self.blocks[0].shape[2])
        for block, products in zip(self.blocks, _products(x, reading=True), strict=True):
            torch.baddbmm(top, products.mT, block, out=top)
        return top, ((self.gram @ x) * x).sum(1)[..., None]

    def pull(self, x: Tensor, g: Tensor, h: Tensor) -> Tensor:
        """Return the derivative by x of sum_i g_i.top_i + h_i bottom_i, with top and bottom as `read` returns them."""
        grad = 2 * (self.gram @ x) * h.mT
        for (low, high), block in zip(_blocks(x.shape[1]), self.blocks, strict=True):
            by_pair = 2 * (block @ g.mT).unflatten(1, (high - low, -1))
            grad[:, low:high] += (by_pair * x[:, None, low:]).sum(2)
            grad[:, high:] += (by_pair[:, :, high - low :] * x[:, low:high, None]).sum(1)
        return grad


class _Near:
    """What `_Sums` does, for the tokens of one chunk of a causal pass: from the similarities themselves."""

    def __init__(self, y: Tensor, a: Tensor, w: Tensor, keep: Callable[[Tensor], Tensor]):
        self.y, self.a, self.w, self.keep = y, a, w, keep

    def read(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.keep((x.mT @ self.y).square())
        return scores @ self.a, scores @ self.w

    def pull(self, x: Tensor, g: Tensor, h: Tensor) -> Tensor:
        by_score = 2 * (x.mT @ self.y) * (g @ self.a.mT + h @ self.w.mT)
        return self.y @ self.keep(by_score).mT


def _sweep(x, y, a, w, kernel: Quadratic, causal: str, chunk_size: int) -> Iterator[tuple]:
    """Yield for each chunk of x: where it is, its rows, and the parts (`_Sums`, `_Near`) of the sum over y it sees.

    `causal` is "" for all of y, "past" for y up to the token, "future" for y from the token on.
    """
    width = y.shape[2] + (kernel.offset != 0)
    sums = _Sums(len(y), width, a.shape[2], y)
    as_summed = lambda at: (t[:, at].to(sums.gram.dtype) for t in (a, w))  # noqa: E731
    if not causal:
        for at in _slices(y.shape[1], chunk_size):
            sums.absorb(_rows(y[:, at], kernel), *as_summed(at))
        for at in _slices(x.shape[1], chunk_size):
            yield at, _rows(x[:, at], kernel), [sums]
        return
    chunks = _slices(x.shape[1], chunk_size)
    keep = torch.tril if causal == "past" else torch.triu
    for number, at in enumerate(chunks if causal == "past" else reversed(chunks)):
        rows, own = _rows(y[:, at], kernel), list(as_summed(at))
        yield at, _rows(x[:, at], kernel), [_Near(rows, *own, keep)] + ([sums] if number else [])
        if number < len(chunks) - 1:
            sums.absorb(rows, *own)


def _total(pairs) -> tuple[Tensor, Tensor]:
    (top, bottom), *others = pairs
    for more, below in others:
        top, bottom = top + more, bottom + below
    return top, bottom


class _QuadraticAttention(torch.autograd.Function):
    """Attention with the quadratic kernel: outputs (B, L, M) and their denominators (B, L, 1)."""

    @staticmethod
    def forward(q, k, v, weights, floor, kernel, causal, normalize, chunk_size):
        out = v.new_empty(*q.shape[:2], v.shape[2])
        total = floor.new_ones(floor.shape)
        for at, x, parts in _sweep(q, k, v, weights, kernel, "past" if causal else "", chunk_size):
            top, bottom = _total(part.read(x) for part in parts)
            if normalize:
                total[:, at] = bottom + floor[:, at]
            out[:, at] = top / total[:, at]
        return out, total

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.kernel, ctx.causal, ctx.normalize, ctx.chunk_size = inputs
        ctx.save_for_backward(*tensors, *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, grad_out, _):
        q, k, v, weights, floor, out, total = ctx.saved_tensors
        if (
            torch.is_grad_enabled() and not torch.compiler.is_compiling()
        ):  # create_graph: by operations with derivatives
            options = ctx.causal, ctx.normalize, ctx.chunk_size
            again = _chunked(q, k, v, weights, floor, lambda x: ctx.kernel(x), *options, keep_features=True)
            wanted = [t for t, needed in zip((q, k, v), ctx.needs_input_grad, strict=False) if needed]
            found = iter(torch.autograd.grad(again, wanted, grad_out, create_graph=True))
            return *(next(found) if needed else None for needed in ctx.needs_input_grad[:3]), *(None,) * 6
        g = grad_out / total
        h = -(g * out).sum(-1, keepdim=True) if ctx.normalize else torch.zeros_like(total)
        past, future = ("past", "future") if ctx.causal else ("", "")
        grads = grad_q, grad_k, grad_v = [torch.empty_like(t) for t in (q, k, v)]

        def back(rows_grad):  # from rows to tokens: the row of c has no token entry
            return math.sqrt(ctx.kernel.scale) * rows_grad[:, : q.shape[2]].mT

        for at, x, parts in _sweep(q, k, v, weights, ctx.kernel, past, ctx.chunk_size):
            grad_q[:, at] = back(sum(part.pull(x, g[:, at], h[:, at]) for part in parts))
        for at, x, parts in _sweep(k, q, g, h, ctx.kernel, future, ctx.chunk_size):
            grad_v[:, at] = _total(part.read(x) for part in parts)[0]
            own = v[:, at].to(x.dtype), weights[:, at].to(x.dtype)
            grad_k[:, at] = back(sum(part.pull(x, *own) for part in parts))
        return *grads, None, None, None, None, None, None
