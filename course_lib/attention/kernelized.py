"""Kernelized attention: weights from a similarity phi(q).phi(k), in time linear in the sequence (lesson 19).

Softmax attention weighs the values by sim(q, k) = exp(q.k / sqrt(D)). Any other similarity may take its place as
long as its sum over the keys does not vanish. If the similarity is a dot product of features, the sum over the
keys can be taken once, before any query is seen, and attention costs N times the number of features C instead
of N^2. Three implementations that agree stand here: `kernel_attention` forms all N^2 similarities,
`linear_attention_loop` is the token loop in full, and `linear_attention` is the fast one. It works in chunks of
the sequence (`kernelized_chunks`), with `Quadratic` by products that are never collected (`fused_quadratic`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.attention.decay import decay_mask_with_past, decay_weights
from course_lib.attention.feature_maps import FeatureMap, Quadratic, compute_features, sum_dtype
from course_lib.attention.feature_maps import elu_features as elu_features
from course_lib.attention.feature_maps import exp_similarity as exp_similarity
from course_lib.attention.fused_quadratic import attend_by_products
from course_lib.attention.kernelized_chunks import Form, Tokens, attend_in_chunks
from course_lib.attention.shapes import (
    TorchOptions,
    check_causal,
    check_qkv,
    hide_keys,
    merge_leading,
    normalize_inputs,
    without_autocast,
    zero_hidden,
)
from course_lib.attention.states import AttentionState
from course_lib.checks import named

Decay = float | int | Float[Tensor, "..."] | None
PENDING = 64  # tokens that wait until they are added to the sums of a state


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
    """V'_i = sum_j sim(q_i, k_j) v_j / sum_j sim(q_i, k_j) (19.1), with all similarities in memory.

    Shapes: `similarity(q, k)` returns (..., q_len, k_len); `attn_mask` broadcasts to that, True takes part. With fewer
    queries than keys, causal queries are the last of the sequence. A denominator of 0 gives NaN or infinity, as the
    equation says.

    Raises:
        ValueError: q, k and v do not belong together, or causal attention gets more queries than keys.
    """
    check_qkv(q, k, v)
    k, v = zero_hidden(attn_mask, k, v)
    weights = similarity(q, k)
    if causal:
        check_causal(q, k)
        weights = weights.tril(k.shape[-2] - q.shape[-2])
    if attn_mask is not None:
        weights = weights.masked_fill(~attn_mask, 0)
    return (weights @ v) / weights.sum(-1, keepdim=True)


def linear_attention_loop(
    q: Float[Tensor, "... q_len d"],
    k: Float[Tensor, "... k_len d"],
    v: Float[Tensor, "... k_len d_v"],
    *,
    feature_map: FeatureMap,
    causal: bool = False,
) -> Float[Tensor, "... q_len d_v"]:
    """Linear attention token by token (19.8), (19.12), to be read: `linear_attention` gives the same and is much faster.

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
    """N^2 (D + M) multiply-adds (19.7): one dot product and one sum of values a pair; N(N + 1)/2 pairs if causal.

    Units: multiply-adds; `length` is N, `d` is D, `d_v` is M. Exponentials and divisions are not counted.
    """
    pairs = length * (length + 1) // 2 if causal else length**2
    return pairs * (d + d_v)


def linear_multiply_adds(length: int, d_v: int, *, n_features: int) -> int:
    """2 N C (M + 1) multiply-adds (19.9): C M for U and C for z a token, and as much again for reading them.

    The same with and without a causal mask. What it takes to compute the features is not counted.
    """
    return 2 * length * n_features * (d_v + 1)


def crossover_length(d: int, d_v: int, *, n_features: int, causal: bool = False) -> float:
    """N from which on the linear form needs fewer multiply-adds: 2 C (M + 1)/(D + M) (19.10), about twice that if causal."""
    length = 2 * n_features * (d_v + 1) / (d + d_v)
    return 2 * length - 1 if causal else length


def memory_crossover_length(d_v: int, *, n_features: int) -> float:
    """N from which on N^2 stored scores take more room than U and z: sqrt(C (M + 1)) (19.11)."""
    return math.sqrt(n_features * (d_v + 1))


# Attention as a recurrence


@dataclass(frozen=True, eq=False)
class LinearState(AttentionState):
    """What linear attention keeps of the past: U and z of (19.12), and the latest tokens, which are not in them yet.

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

        def zeros(*shape: int) -> Tensor:
            return like.new_zeros(*like.shape[:-2], *shape, dtype=sum_dtype(like.dtype))

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


@named
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
    """One token of causal linear attention: U += phi(k) v^T, z += phi(k), V' = U^T phi(q) / z.phi(q) (19.12).

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


@named
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
    scale: float | int | None = None,
    **call: Unpack[TorchOptions],
) -> Float[Tensor, "... q_len d_v"] | tuple[Float[Tensor, "... q_len d_v"], LinearState]:
    """V'_i = phi(q_i)^T sum_j phi(k_j) v_j^T / (phi(q_i)^T sum_j phi(k_j) + eps), j <= i if causal (19.8), (19.13).

    Time in proportion to N C d_v; memory beyond inputs and output: C d_v numbers and the features of one chunk, whatever N
    is (by the kernels for a GPU, `quadratic_in_parallel`, about 2 C d_v numbers for each 512 tokens if causal).
    `Quadratic` without a decay has a path of its own, which never collects its features by index. For sequences much
    shorter than C, `kernel_attention` is faster.

    Derivatives of any order are exact. For the first one features are computed again rather than kept: `Quadratic` keeps
    the inputs, the output and its denominators; other maps go through torch.utils.checkpoint, which torch.func does not
    support: what the map itself learns gets its gradient, and if causal a state, C x d_v, is kept a chunk.

    A state stands for all keys of earlier calls, which every query sees: with `return_state` the result is (output,
    state), and `initial_state` goes on from it, by one token or by many, with gradients into the state.

    With `decay`, key j counts gamma_(j+1) ... gamma_i times for query i, as in (16.6), in numerator and denominator.
    It needs `causal`, and its gradient cannot be differentiated again.

    As torch calls it: `scale` multiplies the queries; the other options are `TorchOptions`. There is no dropout, since no
    weights are formed that could be dropped. Where heads are repeated, a state is one for each head of q.

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
    q, k, v, attn_mask, causal = normalize_inputs(q, k, v, attn_mask, causal, **call)
    if scale is not None:
        q = q * scale
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be 1 or more, got {chunk_size}")
    lead, length, dtype = q.shape[:-2], q.shape[-2], v.dtype
    decay = decay_weights(decay, k, causal=causal)
    stateful = return_state or initial_state is not None
    if not stateful and not (length and k.shape[-2]):
        return v.new_zeros(*q.shape[:-1], v.shape[-1])
    k, v, weights = hide_keys(attn_mask, k, v)
    masked = weights is not None
    if not masked:
        weights = v.new_ones(1).expand(*v.shape[:-1], 1)
    q, k, v, weights = map(merge_leading, (q, k, v, weights))
    decay = None if decay is None else decay.reshape(len(k), -1)
    with without_autocast(q.device):  # sums keep their digits, as in half precision
        state = None
        if stateful:
            state = _start(initial_state, k, v, feature_map, lead)
            if state.sums.dtype == torch.float64:
                q, k, v = (x.double() for x in (q, k, v))
        floor = v.new_full((1, 1, 1), eps, dtype=sum_dtype(v.dtype)).expand(*q.shape[:2], 1)
        tokens, form = (
            Tokens(q, k, v, weights, floor, decay),
            Form(feature_map, causal, normalize, chunk_size),
        )
        if causal and (ahead := k.shape[1] - length):  # keys before the first query: all queries see them
            state = _read_ahead(tokens, form, state or _start(None, k, v, feature_map, lead), ahead)
            k, v, weights = (x[:, ahead:] for x in (k, v, weights))
            tokens = Tokens(q, k, v, weights, floor, None if decay is None else decay[:, ahead:])
        out, state = _attend(tokens, form, state, masked=masked)
    out = out.to(dtype).reshape(*lead, length, v.shape[-1])
    return (out, state.unmerged(lead)) if return_state else out


def _start(state: LinearState | None, k: Tensor, v: Tensor, feature_map: FeatureMap, lead) -> LinearState:
    """Check a state and merge its leading dimensions, or make the first one."""
    if state is None:
        return LinearState.empty(
            compute_features(feature_map, k[:, :1]), feature_map, k.shape[-1], v.shape[-1]
        )
    if not isinstance(state, LinearState):
        raise ValueError(
            f"initial_state must be a LinearState, as linear_attention returns it, got {type(state).__name__}"
        )
    if isinstance(feature_map, Quadratic):
        count = feature_map.n_features(k.shape[-1])
    elif feature_map is state.feature_map and state.head_dim == k.shape[-1]:
        count = state.sums.shape[-2]  # known: a token of decoding need not compute features to count them
    else:
        count = compute_features(feature_map, k[:, :1]).shape[-1]
    wanted = (*lead, count, v.shape[-1] + 1)
    if state.sums.shape != wanted or state.sums.device != k.device:
        raise ValueError(
            f"initial_state must have sums of shape {wanted} on {k.device} for these keys and values, got "
            f"{tuple(state.sums.shape)} on {state.sums.device}"
        )
    if Quadratic in map(type, (feature_map, state.feature_map)) and state.feature_map != feature_map:
        raise ValueError(f"initial_state was made with {state.feature_map}, got feature_map {feature_map}")
    wide = torch.promote_types(state.sums.dtype, sum_dtype(k.dtype))
    if state.feature_map is not feature_map or state.head_dim != k.shape[-1]:
        state = replace(state, feature_map=feature_map, head_dim=k.shape[-1])
    return (state if state.sums.dtype == wide else state.to(dtype=wide)).merged()


def _read_ahead(tokens: Tokens, form: Form, state: LinearState, ahead: int) -> LinearState:
    """The state after the first `ahead` keys, which stand before the first query."""
    k, v, weights = (x[:, :ahead] for x in (tokens.k, tokens.v, tokens.weights))
    decay = None if tokens.decay is None else tokens.decay[:, :ahead]
    # What fades is read and written in one pass, so that there must be queries; their outputs are left.
    q = tokens.q[:, :0] if decay is None else torch.zeros_like(k)
    floor = tokens.floor[:, :1].expand(-1, q.shape[1], -1)
    form = form._replace(causal=decay is not None, normalize=False)
    return _attend(Tokens(q, k, v, weights, floor, decay), form, state, masked=True)[1]


def _attend(
    tokens: Tokens, form: Form, state: LinearState | None, *, masked: bool
) -> tuple[Tensor, LinearState | None]:
    """Outputs, and the new state if there was one."""
    k, weights = tokens.k, tokens.weights
    if masked or (state is not None and not k.shape[1]):
        # A query that sees no key: 0 divided by 1, with gradients of 0, in the place of 0/0.
        seen = weights.cumsum(-2) > 0 if form.causal else weights.sum(-2, keepdim=True) > 0
        tokens = tokens._replace(floor=tokens.floor + ~(seen if state is None else seen | state.seen))
    attend = attend_in_chunks
    if tokens.decay is None and isinstance(form.feature_map, Quadratic):
        attend = attend_by_products
    if state is None:
        return attend(tokens, form, None)[0], None
    seen = torch.ones_like(state.seen) if k.shape[1] else state.seen
    if masked:
        seen = (weights > 0).any(-2, keepdim=True) | state.seen
    if max(k.shape[1], tokens.q.shape[1]) < PENDING:
        if state.keys.shape[1] + k.shape[1] >= PENDING:
            state = state.settled()
        out, state = _attend_to_pending(tokens, form, state)
    else:
        state = state.settled()
        out, sums = attend(tokens, form, state.sums)
        state = replace(state, sums=sums)
    return out, replace(state, seen=seen)


def _attend_to_pending(tokens: Tokens, form: Form, state: LinearState) -> tuple[Tensor, LinearState]:
    """Few tokens: the queries look at the sums, and one by one at the tokens that wait; the new ones join these."""
    q, k, v, weights, floor, decay = tokens
    quadratic, dtype = isinstance(state.feature_map, Quadratic), state.sums.dtype
    if quadratic:
        q, k = q.to(dtype), k.to(dtype)
    phi_q = compute_features(state.feature_map, q)
    waiting, own = state.keys.shape[1], torch.cat([v.to(dtype), weights.to(dtype)], -1)
    keys = torch.cat([state.keys, k if quadratic else compute_features(state.feature_map, k)], 1)
    values = torch.cat([state.values, own], 1)
    scores = state.feature_map.similarity(q, keys) if quadratic else phi_q @ keys.mT
    read, fade = state.fade * (phi_q @ state.sums), state.fade
    if decay is None:
        read = read + (scores.tril(waiting) if form.causal else scores) @ values
    else:
        mask = decay_mask_with_past(decay.to(dtype))
        fading = torch.cat([mask[..., :1].expand(-1, -1, waiting), mask[..., 1:]], -1)
        read = mask[:, 1:, :1] * read + (scores * fading[:, 1:]) @ values
        values, fade = fading[:, -1, :, None] * values, mask[:, -1:, :1] * fade
    out = form.divide(read[..., :-1], read[..., -1:] + floor).to(v.dtype)
    return out, replace(state, keys=keys, values=values, fade=fade)
