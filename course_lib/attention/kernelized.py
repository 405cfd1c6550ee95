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
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from course_lib.attention.decay import decay_mask_with_past, decay_weights, decayed_sums
from course_lib.attention.shapes import (
    as_torch_takes_them,
    check_causal,
    check_no_dropout,
    check_qkv,
    clear_hidden,
    key_weights,
    merge_leading,
    without_autocast,
)
from course_lib.attention.states import AttentionState

FeatureMap = Callable[[Tensor], Tensor]
Decay = float | int | Float[Tensor, "..."] | None
PENDING = 64  # tokens that wait until they are added to the sums of a state
ROUNDED = 64  # tokens of a positive sum in one product of matrices, which may round to one side at each
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
        # As rows, since many tokens side by side are picked three times as fast; sqrt(c) is one row more, the first.
        rows = math.sqrt(self.scale) * x.mT
        if self.offset != 0:
            rows = torch.cat([torch.full_like(rows[..., :1, :], math.sqrt(self.offset)), rows], -2)
        count = rows.shape[-2]
        i, j = torch.triu_indices(count, count, device=x.device)
        rows = torch.cat([rows, math.sqrt(2) * rows], -2)  # the second half is for rows that meet another one
        first, second = rows.index_select(-2, i), rows.index_select(-2, j + count * (i != j))
        # Without a gradient the product takes the place of its factor: new memory costs as much as the product.
        return (first * second if first.requires_grad else first.mul_(second)).mT

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

    Shapes: `similarity(q, k)` returns (..., q_len, k_len); `attn_mask` broadcasts to that, True takes part. With fewer
    queries than keys, causal queries are the last of the sequence. A denominator of 0 gives NaN or infinity, as the
    equation says.

    Raises:
        ValueError: q, k and v do not belong together, or causal attention gets more queries than keys.
    """
    check_qkv(q, k, v)
    k, v = clear_hidden(attn_mask, k, v)
    weights = similarity(q, k)
    if causal:
        check_causal(q, k)
        weights = weights.tril(k.shape[-2] - q.shape[-2])
    if attn_mask is not None:
        weights = weights.masked_fill(~attn_mask, 0)
    return (weights @ v) / weights.sum(-1, keepdim=True)


# Attention as a recurrence


@dataclass(frozen=True, eq=False)
class LinearState(AttentionState):
    """What linear attention keeps of the past: U and z of (15.12), and the latest tokens, which are not in them yet.

    Adding one token changes all C (M + 1) sums, and reading them reads all once more. So the last tokens wait, up to
    63, and are compared with a query one by one; then they enter the sums together. Decoding reads the sums and writes
    them only then, and over a long text the sums are rounded once in 64 tokens, not at each.

    Shapes: `sums` is [U, z], (..., C, M + 1); `keys` and `values` are what waits, n < 64 rows: features, or for
    `Quadratic` keys as they are, and values with their weight, 0 where masked, as last column; `fade` is the decay of the
    sums since they were written, `seen` whether any key took part, both (..., 1, 1).
    """

    sums: Tensor
    keys: Tensor
    values: Tensor
    fade: Tensor
    seen: Tensor
    feature_map: FeatureMap
    head_dim: int

    @classmethod
    def empty(cls, like: Tensor, feature_map: FeatureMap, head_dim: int, value_dim: int) -> "LinearState":
        """Return the state before the first token, for features C as many as `like` (..., n, C) has."""
        zeros = lambda *shape: like.new_zeros(*like.shape[:-2], *shape, dtype=_sum_dtype(like.dtype))  # noqa: E731
        width = head_dim if isinstance(feature_map, Quadratic) else like.shape[-1]
        return cls(
            sums=zeros(like.shape[-1], value_dim + 1),
            keys=zeros(0, width),
            values=zeros(0, value_dim + 1),
            fade=zeros(1, 1) + 1,
            seen=zeros(1, 1).bool(),
            feature_map=feature_map,
            head_dim=head_dim,
        )

    def settled(self) -> "LinearState":
        """Return the same state with no token waiting: all are in the sums."""
        flat = self.merged()
        phi = self.feature_map(flat.keys) if isinstance(self.feature_map, Quadratic) else flat.keys
        # In memory each column of [U, z] lies in one piece: a query then reads it a fifth faster.
        columns = (flat.fade * flat.sums.mT).contiguous().baddbmm_(flat.values.mT, phi)
        return replace(
            self,
            sums=columns.mT.reshape(self.sums.shape),
            keys=self.keys[..., :0, :],
            values=self.values[..., :0, :],
            fade=torch.ones_like(self.fade),
        )

    @property
    def u(self) -> Tensor:
        """U = sum_j phi(k_j) v_j^T, (..., C, M), the waiting tokens included."""
        return self.settled().sums[..., :-1]

    @property
    def z(self) -> Tensor:
        """z = sum_j phi(k_j), (..., C), the waiting tokens included."""
        return self.settled().sums[..., -1]

    def __getitem__(self, index: int) -> Tensor:
        return (self.u, self.z)[index]


def recurrent_step(
    state: LinearState | None,
    q: Float[Tensor, "... d"],
    k: Float[Tensor, "... d"],
    v: Float[Tensor, "... d_v"],
    *,
    feature_map: FeatureMap,
    decay: Decay = None,
    attn_mask: Tensor | None = None,
    normalize: bool = True,
    eps: float | int = 0.0,
) -> tuple[Float[Tensor, "... d_v"], LinearState]:
    """One token of causal linear attention: U += phi(k) v^T, z += phi(k), V' = U^T phi(q) / z.phi(q) (15.12).

    A recurrent network whose state, U (..., C, M) and z (..., C), does not grow with the tokens seen: what a
    decoder keeps in the place of a cache of keys and values. Start with None, or with what `linear_attention` returned
    for the prompt; returns the output and the new state, which `u, z = state` unpacks. The sums are float32 or wider.

    Shapes: `attn_mask` is (..., 1, 1), False for a token that no query may look at; `decay` is a number, one for each of
    the leading dimensions, or one a token, (..., 1).

    Raises:
        ValueError: as `linear_attention`.
    """
    options = {"decay": decay, "attn_mask": attn_mask, "normalize": normalize, "eps": eps}
    tokens = (x[..., None, :] for x in (q, k, v))
    out, state = linear_attention(
        *tokens, feature_map=feature_map, causal=True, initial_state=state, return_state=True, **options
    )
    return out[..., 0, :], state


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
        ValueError: q, k and v do not belong together, or causal attention gets more queries than keys.
    """
    check_qkv(q, k, v)
    if causal:
        check_causal(q, k)
    phi_q, phi_k = feature_map(q), feature_map(k)
    ahead, u, z, rows = k.shape[-2] - q.shape[-2], 0, 0, []

    def read(i):
        rows.append((phi_q[..., i, None, :] @ u)[..., 0, :] / (phi_q[..., i, :] * z).sum(-1, keepdim=True))

    for j in range(k.shape[-2]):
        u = u + phi_k[..., j, :, None] * v[..., j, None, :]
        z = z + phi_k[..., j, :]
        if causal and j >= ahead:  # the queries are the last tokens
            read(j - ahead)
    if not causal:
        for i in range(q.shape[-2]):
            read(i)
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
    decay: Decay = None,
    initial_state: LinearState | None = None,
    return_state: bool = False,
    padding_mask: Tensor | None = None,
    is_causal: bool | None = None,
    scale: float | int | None = None,
    enable_gqa: bool = False,
    dropout_p: float | int = 0.0,
) -> Float[Tensor, "... q_len d_v"] | tuple[Float[Tensor, "... q_len d_v"], LinearState]:
    """V'_i = phi(q_i)^T sum_j phi(k_j) v_j^T / (phi(q_i)^T sum_j phi(k_j) + eps), j <= i if causal (15.8), (15.13).

    Time in proportion to N C d_v; memory beyond inputs and output: C d_v numbers and the features of one chunk, whatever N
    is. `Quadratic` has a path of its own, which never collects its features by index and takes about a third of the time of
    the general one. For sequences much shorter than C, `kernel_attention` is faster.

    Derivatives of any order are exact. For the first one features are computed again rather than kept: `Quadratic` keeps
    the inputs, the output and its denominators; other maps go through torch.utils.checkpoint, which torch.func does not
    support: what the map itself learns gets its gradient, and if causal a state, C x d_v, is kept a chunk.

    A state stands for all keys of earlier calls, which every query sees: with `return_state` the result is (output,
    state), and `initial_state` goes on from it, by one token or by many, with gradients into the state.

    With `decay`, key j counts gamma_(j+1) ... gamma_i times for query i, as in (12.14), in numerator and denominator.
    It needs `causal`, and its gradient cannot be differentiated again; where one is asked for, `Quadratic` takes the general
    path as well.

    As torch calls it: `is_causal`, where given, counts in place of `causal`; `enable_gqa` repeats heads of k and v, and
    leading dimensions of size 1 are repeated (a state then is one for each head of q); `padding_mask` is boolean, (batch,
    keys), True takes part; `scale` multiplies the queries; `dropout_p` must be 0.

    Shapes: any leading dimensions; `feature_map` turns (..., n, d) into (..., n, C), row by row;
    `attn_mask` is boolean, (..., 1, k_len), True takes part. `decay` is a number, one for each of the leading dimensions
    (heads, say), or one a token, (..., k_len). float16 and bfloat16 are summed in float32. With fewer queries than keys,
    causal queries are the last of the sequence: query i sees the keys up to i + k_len - q_len.
    Units: `eps` is in units of the denominator, `decay` lies between 0, which forgets everything, and 1. `normalize=False`
    leaves the denominator out. A query all of whose keys are masked gets zeros; one all of whose similarities are 0 gets
    NaN, 0 divided by `eps` = 0.

    Raises:
        ValueError: q, k and v do not belong together, causal attention gets more queries than keys, the mask depends on
            the query, `chunk_size` is below 1, the feature map returns another number of rows, `decay` is not causal, has
            a shape of its own or is a number outside 0 to 1, or the state is another one's.
    Source: Katharopoulos et al. 2020, arXiv:2006.16236; with decay Sun et al. 2023, arXiv:2307.08621 (RetNet).
    """
    causal = causal if is_causal is None else is_causal
    check_no_dropout(dropout_p)
    q, k, v, attn_mask = as_torch_takes_them(
        q, k, v, attn_mask, padding_mask=padding_mask, enable_gqa=enable_gqa
    )
    if scale is not None:
        q = q * scale
    if causal:
        check_causal(q, k)
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be 1 or more, got {chunk_size}")
    lead, length, dtype = q.shape[:-2], q.shape[-2], v.dtype
    decay = decay_weights(decay, k, causal=causal)
    stateful = return_state or initial_state is not None
    if not stateful and not (length and k.shape[-2]):
        return v.new_zeros(*q.shape[:-1], v.shape[-1])
    weights = key_weights(attn_mask, k)
    if weights is None:
        weights = v.new_ones(1).expand(*v.shape[:-1], 1)
    else:
        k, v = clear_hidden(attn_mask, k, v)
    q, k, v, weights = map(merge_leading, (q, k, v, weights))
    decay = None if decay is None else decay.reshape(len(k), -1)
    with without_autocast(q.device):  # sums keep their digits, as in half precision
        state = None
        if stateful:
            state = _start(initial_state, k, v, feature_map, lead)
            if state.sums.dtype == torch.float64:
                q, k, v = (x.double() for x in (q, k, v))
        if causal and (ahead := k.shape[1] - length):  # keys before the first query: all queries see them
            head = None if decay is None else decay[:, :ahead]
            state = state or _start(None, k, v, feature_map, lead)
            # What fades is read and written in one pass: queries of 0, whose outputs nobody divides or sees.
            nobody = q[:, :0] if head is None else torch.zeros_like(k[:, :ahead])
            own = nobody, k[:, :ahead], v[:, :ahead], weights[:, :ahead], head, state
            _, state = _attend(*own, feature_map, head is not None, False, chunk_size, eps, masked=True)
            k, v, weights = (x[:, ahead:] for x in (k, v, weights))
            decay = None if decay is None else decay[:, ahead:]
        masked = attn_mask is not None
        out, state = _attend(
            q, k, v, weights, decay, state, feature_map, causal, normalize, chunk_size, eps, masked=masked
        )
    out = out.to(dtype).reshape(*lead, length, v.shape[-1])
    return (out, state.unmerged(lead)) if return_state else out


def _start(state: LinearState | None, k: Tensor, v: Tensor, feature_map: FeatureMap, lead) -> LinearState:
    """Check a state and merge its leading dimensions, or make the first one."""
    if state is None:
        return LinearState.empty(_features(feature_map, k[:, :1]), feature_map, k.shape[-1], v.shape[-1])
    if not isinstance(state, LinearState):
        raise ValueError(
            f"initial_state must be a LinearState, as linear_attention returns it, got {type(state).__name__}"
        )
    if isinstance(feature_map, Quadratic):
        count = feature_map.n_features(k.shape[-1])
    elif feature_map is state.feature_map and state.head_dim == k.shape[-1]:
        count = state.sums.shape[-2]  # known: a token of decoding need not compute features to count them
    else:
        count = _features(feature_map, k[:, :1]).shape[-1]
    wanted = (*lead, count, v.shape[-1] + 1)
    if state.sums.shape != wanted or state.sums.device != k.device:
        raise ValueError(
            f"initial_state must have sums of shape {wanted} on {k.device} for these keys and values, got "
            f"{tuple(state.sums.shape)} on {state.sums.device}"
        )
    if Quadratic in map(type, (feature_map, state.feature_map)) and state.feature_map != feature_map:
        raise ValueError(f"initial_state was made with {state.feature_map}, got feature_map {feature_map}")
    wide = torch.promote_types(state.sums.dtype, _sum_dtype(k.dtype))
    if state.feature_map is not feature_map or state.head_dim != k.shape[-1]:
        state = replace(state, feature_map=feature_map, head_dim=k.shape[-1])
    return (state if state.sums.dtype == wide else state.to(dtype=wide)).merged()


def _features(feature_map: FeatureMap, x: Tensor) -> Tensor:
    phi = feature_map(x)
    if phi.shape[:-1] != x.shape[:-1]:
        raise ValueError(
            f"feature_map must return (..., seq, n_features), got {tuple(phi.shape)} for an input of shape "
            f"{tuple(x.shape)}"
        )
    return phi.to(_sum_dtype(x.dtype))


def _attend(
    q, k, v, weights, decay, state, feature_map, causal, normalize, chunk_size, eps, *, masked
) -> tuple[Tensor, LinearState | None]:
    """Linear attention on (batch, ., .) tensors, with a state if there is one: outputs and the new state."""
    floor = v.new_full((1, 1, 1), eps, dtype=_sum_dtype(v.dtype)).expand(*q.shape[:2], 1)
    if masked or (state is not None and not k.shape[1]):
        # A query that sees no key: 0 divided by 1, with gradients of 0, in the place of 0/0.
        seen = weights.cumsum(-2) > 0 if causal else weights.sum(-2, keepdim=True) > 0
        floor = floor + ~(seen if state is None else seen | state.seen)
    if state is not None and max(k.shape[1], q.shape[1]) < PENDING:
        if state.keys.shape[1] + k.shape[1] >= PENDING:
            state = state.settled()
        return _short(
            q, k, v, weights, floor, decay, state, _seen(state, k, weights, masked), causal, normalize
        )
    held = None if state is None else state.settled()
    start = None if held is None else held.sums
    options, stream = (feature_map, causal, normalize, chunk_size), held is not None
    learns = torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (q, k, v, decay, start)
    )
    if not isinstance(feature_map, Quadratic) or (decay is not None and learns):
        out, sums = _chunked(q, k, v, weights, floor, start, decay, *options)
    elif decay is None:
        out, _, sums = _QuadraticAttention.apply(q, k, v, weights, floor, start, *options, stream)
    else:
        out, sums = _quadratic_fading(
            q, k, v, weights, floor, start, decay, feature_map, normalize, chunk_size
        )
    return out, replace(held, sums=sums, seen=_seen(state, k, weights, masked)) if stream else None


def _seen(state: LinearState, k: Tensor, weights: Tensor, masked: bool) -> Tensor:
    """Whether any key has taken part so far, (B, 1, 1)."""
    if masked:
        return (weights > 0).any(-2, keepdim=True) | state.seen
    return torch.ones_like(state.seen) if k.shape[1] else state.seen


def _short(q, k, v, weights, floor, decay, state, seen, causal, normalize) -> tuple[Tensor, LinearState]:
    """Few tokens: the queries look at the sums, and one by one at the tokens that wait; the new ones join these."""
    quadratic, dtype = isinstance(state.feature_map, Quadratic), state.sums.dtype
    phi_q = _features(state.feature_map, q.to(dtype) if quadratic else q)
    waiting, own = state.keys.shape[1], torch.cat([v.to(dtype), weights.to(dtype)], -1)
    keys = torch.cat([state.keys, k.to(dtype) if quadratic else _features(state.feature_map, k)], 1)
    values = torch.cat([state.values, own], 1)
    scores = state.feature_map.similarity(q.to(dtype), keys) if quadratic else phi_q @ keys.mT
    read = state.fade * (phi_q @ state.sums)
    if decay is None:
        read = read + (scores.tril(waiting) if causal else scores) @ values
        state = replace(state, keys=keys, values=values, seen=seen)
    else:
        mask = decay_mask_with_past(decay.to(dtype))
        fading = torch.cat([mask[..., :1].expand(-1, -1, waiting), mask[..., 1:]], -1)
        read = mask[:, 1:, :1] * read + (scores * fading[:, 1:]) @ values
        faded = fading[:, -1, :, None] * values
        fade = mask[:, -1:, :1] * state.fade
        state = replace(state, keys=keys, values=faded, fade=fade, seen=seen)
    top = read[..., :-1]
    return (top / (read[..., -1:] + floor) if normalize else top).to(v.dtype), state


def _slices(length: int, chunk_size: int) -> list[slice]:
    return [slice(start, min(start + chunk_size, length)) for start in range(0, length, chunk_size)]


def _sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """Sums over a whole sequence need more digits than half precision has."""
    return torch.promote_types(dtype, torch.float32)


def _chunked(
    q, k, v, weights, floor, sums, decay, feature_map, causal, normalize, chunk_size, *, keep_features=False
) -> tuple[Tensor, Tensor]:
    """Linear attention with any feature map: outputs (B, L, M) and the sums [U, z] after the last key (B, C, M + 1).

    q (B, L, D), k (B, S, D), v (B, S, M), weights (B, S, 1), floor (B, L, 1), decay (B, S) or None, sums as above or None
    for zeros. `weights` are 0 for masked keys, `floor` is added to the denominators.
    """
    dtype, features = _sum_dtype(v.dtype), partial(_features, feature_map)

    def widened(value, weight):
        return torch.cat([value.to(dtype), weight.to(dtype)], -1)

    def divide(read, below):
        top = read[..., :-1]
        return (top / (read[..., -1:] + below) if normalize else top).to(v.dtype)

    def write(key, value, weight, sums):
        return sums + features(key).mT @ widened(value, weight)

    def read(query, below, sums):
        return divide(features(query) @ sums, below)

    def read_and_write(query, below, key, value, weight, sums):
        phi_q, phi_k, value = features(query), features(key) * weight, value.to(dtype)
        near = (phi_q @ phi_k.mT).tril()  # the chunk's own keys, each query up to itself
        # Where all are positive, a product of matrices would lose more of the digits than `sum` does.
        own = torch.cat([near @ value, near.sum(-1, keepdim=True)], -1)
        added = torch.cat([phi_k.mT @ value, phi_k.sum(-2).unsqueeze(-1)], -1)
        return divide(phi_q @ sums + own, below), sums + added

    def read_and_write_fading(query, below, key, value, weight, fading, sums):
        if isinstance(feature_map, Quadratic):  # similarities and features then have the same digits
            query, key = query.to(dtype), key.to(dtype)
        phi_q, phi_k, values = features(query), features(key), widened(value, weight)
        if not isinstance(feature_map, Quadratic):
            out, sums = decayed_sums(phi_q, phi_k, values, fading, sums)
            return divide(out, below), sums
        # Similarities cost less than products of so many features: the whole chunk meets itself.
        mask = decay_mask_with_past(fading.to(dtype))
        near = feature_map.similarity(query, key) * mask[:, 1:, 1:]
        out = mask[:, 1:, :1] * (phi_q @ sums) + near @ values
        sums = torch.baddbmm(mask[:, -1:, :1] * sums, phi_k.mT, mask[:, -1, 1:, None] * values)
        return divide(out, below), sums

    probe = features(k[:, :1])
    if sums is None:
        sums = torch.zeros(len(v), probe.shape[-1], v.shape[-1] + 1, dtype=dtype, device=v.device)
    inputs = (probe, q, k, v, sums, *(() if decay is None else (decay,)))
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in inputs) and not keep_features
    call = (
        (lambda f, *inputs: checkpoint(f, *inputs, use_reentrant=False)) if learns else (lambda f, *i: f(*i))
    )
    outputs = [v.new_empty(len(v), 0, v.shape[-1])]
    if not causal:
        for at in _slices(k.shape[1], chunk_size):
            sums = call(write, k[:, at], v[:, at], weights[:, at], sums)
    if decay is not None:
        # Few features: chunks up to four times as long, whose features are no more numbers than the scores of a plain chunk.
        chunk_size *= max(1, min(4, chunk_size // probe.shape[-1]))
    for at in _slices(q.shape[1], chunk_size):
        own = k[:, at], v[:, at], weights[:, at]
        if not causal:
            out = call(read, q[:, at], floor[:, at], sums)
        elif decay is None:
            out, sums = call(read_and_write, q[:, at], floor[:, at], *own, sums)
        else:
            out, sums = call(read_and_write_fading, q[:, at], floor[:, at], *own, decay[:, at], sums)
        outputs.append(out)
    return torch.cat(outputs, 1), sums


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


def _pairs(rows: int, kernel: Quadratic, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return for each feature of the kernel its two rows, i <= j, and its factor (C, 1) before their product."""
    d, device = rows - (kernel.offset != 0), like.device
    i, j = torch.triu_indices(d, d, device=device)
    if d < rows:  # the row of c comes last, its features first
        last = torch.full((rows,), d, device=device)
        i, j = torch.cat([last[:1], torch.arange(d, device=device), i]), torch.cat([last, j])
    return i, j, (2 - (i == j).to(like.dtype)).sqrt()[:, None]


class _Sums:
    """Sums over tokens y with values a and weights w: y y^T a of every block, and y y^T w for the denominator."""

    def __init__(self, batch: int, rows: int, width: int, like: Tensor):
        self.blocks = [
            like.new_zeros(batch, (high - low) * (rows - low), width, dtype=_sum_dtype(like.dtype))
            for low, high in _blocks(rows)
        ]
        self.gram = self.blocks[0].new_zeros(batch, rows, rows)

    def load(self, sums: Tensor, kernel: Quadratic) -> None:
        """Go on from [U, z] (B, C, M + 1), in the order of the features of `Quadratic`."""
        rows = self.gram.shape[-1]
        i, j, factor = _pairs(rows, kernel, sums)
        place = torch.empty(rows, rows, dtype=torch.long, device=sums.device)
        place[i, j] = place[j, i] = torch.arange(len(i), device=sums.device)
        sums = sums / factor
        self.blocks = [sums[:, place[low:high, low:].flatten(), :-1] for low, high in _blocks(rows)]
        self.gram = sums[:, place, -1]

    def by_feature(self, kernel: Quadratic) -> Tensor:
        """Return [U, z] as `load` takes it."""
        rows, start = self.gram.shape[-1], 0
        i, j, factor = _pairs(rows, kernel, self.gram)
        place = torch.zeros(rows, rows, dtype=torch.long, device=self.gram.device)
        for low, high in _blocks(rows):
            count = (high - low) * (rows - low)
            at = torch.arange(start, start + count, device=place.device)
            place[low:high, low:] = at.view(high - low, rows - low)
            start += count
        u = torch.cat(self.blocks, 1)[:, place[i, j]]
        return factor * torch.cat([u, self.gram[:, i, j, None]], -1)

    def fade(self, decay: Tensor) -> None:
        """Multiply all by a decay, (B, 1, 1)."""
        for sums in (*self.blocks, self.gram):
            sums.mul_(decay)

    def absorb(self, y: Tensor, a: Tensor, w: Tensor) -> None:
        """Add a chunk: columns of y, rows of a and w."""
        for block, products in zip(self.blocks, _products(y, reading=False), strict=True):
            torch.baddbmm(block, products, a, out=block)
        for at in _slices(y.shape[-1], ROUNDED):
            torch.baddbmm(self.gram, y[..., at] * w[:, at].mT, y[..., at].mT, out=self.gram)

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
        # All of one sign in a denominator: a product of matrices would lose more of its digits.
        return scores @ self.a, (scores * self.w.mT).sum(-1, keepdim=True)

    def pull(self, x: Tensor, g: Tensor, h: Tensor) -> Tensor:
        by_score = 2 * (x.mT @ self.y) * (g @ self.a.mT + h @ self.w.mT)
        return self.y @ self.keep(by_score).mT


def _sums(y: Tensor, a: Tensor, kernel: Quadratic, start: Tensor | None) -> _Sums:
    """Return the sums before the first token (behind the last one, in a pass backwards): `start`, or zeros for None."""
    sums = _Sums(len(y), y.shape[2] + (kernel.offset != 0), a.shape[2], y)
    if start is not None:
        sums.load(start, kernel)
    return sums


def _sweep(
    x, y, a, w, kernel: Quadratic, causal: str, chunk_size: int, sums: _Sums, *, stream: bool
) -> Iterator[tuple]:
    """Yield for each chunk of x: where it is, its rows, and the parts (`_Sums`, `_Near`) of the sum over y it sees.

    `causal` is "" for all of y, "past" for y up to the token, "future" for y from the token on. With `stream` the sums hold
    something at the start, and in the end all of y.
    """
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
        yield at, _rows(x[:, at], kernel), [_Near(rows, *own, keep)] + ([sums] if stream or number else [])
        if stream or number < len(chunks) - 1:
            sums.absorb(rows, *own)


def _quadratic_fading(
    q, k, v, weights, floor, start, decay, kernel: Quadratic, normalize, chunk_size
) -> tuple[Tensor, Tensor | None]:
    """Causal attention with sums that fade, without a gradient: outputs and, if they began with some, the last sums."""
    sums, stream, outputs = _sums(k, v, kernel, start), start is not None, []
    chunks = _slices(q.shape[1], chunk_size)
    for number, at in enumerate(chunks):
        x, y = _rows(q[:, at], kernel), _rows(k[:, at], kernel)
        a, w = (t[:, at].to(x.dtype) for t in (v, weights))
        mask = decay_mask_with_past(decay[:, at].to(x.dtype))
        parts = [_Near(y, a, w, partial(torch.mul, mask[:, 1:, 1:])).read(x)]
        if stream or number:
            parts.append(tuple(mask[:, 1:, :1] * read for read in sums.read(x)))
        top, bottom = _total(parts)
        outputs.append((top / (bottom + floor[:, at]) if normalize else top).to(v.dtype))
        if stream or number < len(chunks) - 1:
            sums.fade(mask[:, -1:, :1])
            to_end = mask[:, -1, 1:, None]
            sums.absorb(y, to_end * a, to_end * w)
    return torch.cat(outputs, 1), sums.by_feature(kernel) if stream else None


def _total(pairs) -> tuple[Tensor, Tensor]:
    (top, bottom), *others = pairs
    for more, below in others:
        top, bottom = top + more, bottom + below
    return top, bottom


class _QuadraticAttention(torch.autograd.Function):
    """Attention with the quadratic kernel: outputs (B, L, M), their denominators (B, L, 1), and [U, z] in the end.

    `sums` is [U, z] of earlier tokens or None; `stream` asks for those in the end, which otherwise are empty. What reaches
    the last sums from behind is where the pass backwards starts, and what it ends with reaches the first ones.
    """

    @staticmethod
    def forward(q, k, v, weights, floor, sums, kernel, causal, normalize, chunk_size, stream):
        out = v.new_empty(*q.shape[:2], v.shape[2])
        total = floor.new_ones(floor.shape)
        held, past = _sums(k, v, kernel, sums), "past" if causal else ""
        for at, x, parts in _sweep(q, k, v, weights, kernel, past, chunk_size, held, stream=stream):
            top, bottom = _total(part.read(x) for part in parts)
            if normalize:
                total[:, at] = bottom + floor[:, at]
            out[:, at] = top / total[:, at]
        return out, total, held.by_feature(kernel) if stream else total[:0]

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.kernel, ctx.causal, ctx.normalize, ctx.chunk_size, ctx.stream = inputs
        ctx.save_for_backward(*tensors, *output[:2])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, grad_out, _, grad_sums):
        q, k, v, weights, floor, sums, out, total = ctx.saved_tensors
        needed = [ctx.needs_input_grad[i] for i in (0, 1, 2, 5)]
        if (
            torch.is_grad_enabled() and not torch.compiler.is_compiling()
        ):  # create_graph: by operations with derivatives
            options = ctx.kernel.__call__, ctx.causal, ctx.normalize, ctx.chunk_size
            again = _chunked(q, k, v, weights, floor, sums, None, *options, keep_features=True)
            wanted = [t for t, need in zip((q, k, v, sums), needed, strict=True) if need]
            pulls = (grad_out, grad_sums) if ctx.stream else (grad_out,)
            found = iter(torch.autograd.grad(again[: len(pulls)], wanted, pulls, create_graph=True))
            dq, dk, dv, dsums = (next(found) if need else None for need in needed)
            return dq, dk, dv, None, None, dsums, *(None,) * 5
        g = grad_out / total
        h = -(g * out).sum(-1, keepdim=True) if ctx.normalize else torch.zeros_like(total)
        past, future = ("past", "future") if ctx.causal else ("", "")
        grads = grad_q, grad_k, grad_v = [torch.empty_like(t) for t in (q, k, v)]

        def back(rows_grad):  # from rows to tokens: the row of c has no token entry
            return math.sqrt(ctx.kernel.scale) * rows_grad[:, : q.shape[2]].mT

        options = ctx.kernel, past, ctx.chunk_size, _sums(k, v, ctx.kernel, sums)
        for at, x, parts in _sweep(q, k, v, weights, *options, stream=ctx.stream):
            grad_q[:, at] = back(sum(part.pull(x, g[:, at], h[:, at]) for part in parts))
        held = _sums(q, g, ctx.kernel, grad_sums if ctx.stream else None)
        for at, x, parts in _sweep(k, q, g, h, ctx.kernel, future, ctx.chunk_size, held, stream=ctx.stream):
            grad_v[:, at] = _total(part.read(x) for part in parts)[0]
            own = v[:, at].to(x.dtype), weights[:, at].to(x.dtype)
            grad_k[:, at] = back(sum(part.pull(x, *own) for part in parts))
        return *grads, None, None, held.by_feature(ctx.kernel) if needed[3] else None, *(None,) * 5
