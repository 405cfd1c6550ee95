"""Ridge attention: the memory that fits the pairs seen so far best, by least squares (lesson 22).

The rows of K are keys, those of V values. The memory is the matrix W that minimises
||K W - V||^2 + lambda ||W||^2, and a query reads W^T q; for a whole matrix of queries, Q W. With causal
attention there is one memory a token, made of the pairs up to it. They are reached in four ways that agree up
to rounding: by a solve a token, by the inverse and the Sherman-Morrison formula, by updates of a Cholesky factor,
and by chunks, which is the fast one: everything in it is a product of matrices.

Only the ratio of the keys' squared size to lambda matters: dividing queries and keys by sqrt(lambda) gives the
same outputs with lambda = 1. A lambda that is to be learned is therefore a scale of queries and keys.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, Unpack

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from course_lib.attention.shapes import (
    TorchOptions,
    check_causal,
    check_qkv,
    hide_keys,
    merge_leading,
    normalize_inputs,
    without_autocast,
)
from course_lib.attention.states import AttentionState
from course_lib.checks import checked, named

Method = Literal["chunk", "sherman_morrison", "cholesky", "solve"]


def _check_penalty(penalty: float | int) -> None:
    if isinstance(penalty, Tensor) or not (0 < penalty < math.inf):
        raise ValueError(
            f"penalty must be a finite number above 0, got {penalty}; to learn it, scale queries and keys instead"
        )


def _check_decay(decay: float | int) -> None:
    if isinstance(decay, Tensor) or not 0 < decay <= 1:
        raise ValueError(f"decay must be a number above 0 and at most 1, got {decay}")


def _cholesky(matrix: Tensor) -> Tensor:
    try:
        return torch.linalg.cholesky(matrix)
    except torch.linalg.LinAlgError:
        raise RuntimeError(
            f"after rounding to {matrix.dtype} a matrix of ridge attention is not positive definite: the penalty is too "
            "small for keys of this size (or has faded, and the latest keys do not span all directions), or the keys hold "
            "NaN or infinity; use a larger penalty, shorter keys, refresh_every, a decay nearer to 1 or float64"
        ) from None


def _sums(k: Tensor, v: Tensor, penalty: float | int) -> tuple[Tensor, Tensor]:
    """Return lambda I + K^T K and K^T V (22.4)."""
    gram = k.mT @ k
    gram.diagonal(dim1=-2, dim2=-1).add_(penalty)
    return gram, k.mT @ v


# The memory of a set of pairs


def ridge_memory(
    k: Float[Tensor, "... keys d"], v: Float[Tensor, "... keys d_v"], *, penalty: float | int
) -> Float[Tensor, "... d d_v"]:
    """Return W = (lambda I + K^T K)^-1 K^T V, which minimises ||K W - V||^2 + lambda ||W||^2 (22.2).

    A query q, a vector, reads W^T q; a matrix of queries, one a row, reads Q W.
    Ranges: `penalty` is lambda > 0.

    Raises:
        ValueError: `penalty` is not a finite number above 0.
        RuntimeError: rounding makes lambda I + K^T K indefinite.
    """
    _check_penalty(penalty)
    gram, cross = _sums(k, v, penalty)
    return torch.cholesky_solve(cross, _cholesky(gram))


def operations(tokens: int, head_dim: int, *, method: Literal["single", "resolve", "rank_one"]) -> int:
    """Count the leading multiplications that the inverse of lambda I + K^T K costs (22.8).

    "single": n d^2 for the sum of k k^T and d^3 for one inversion after the last token. The other two have the
    inverse after every token: "resolve" inverts anew each time, n d^3; "rank_one" updates it by a product P k and
    an outer product, 2 n d^2.

    Raises:
        ValueError: a size is below 1, or `method` is unknown.
    """
    if tokens < 1 or head_dim < 1:
        raise ValueError(f"tokens and head_dim must be 1 or more, got {tokens} and {head_dim}")
    counts = {
        "single": tokens * head_dim**2 + head_dim**3,
        "resolve": tokens * head_dim**3,
        "rank_one": 2 * tokens * head_dim**2,
    }
    if method not in counts:
        raise ValueError(f"method must be one of {list(counts)}, got {method!r}")
    return counts[method]


# Rank-one updates


@checked
def sherman_morrison(
    inverse: Float[Tensor, "d d"], u: Float[Tensor, " d"], v: Float[Tensor, " d"]
) -> Float[Tensor, "d d"]:
    """Return (M + u v^T)^-1 = M^-1 - (M^-1 u)(v^T M^-1) / (1 + v^T M^-1 u), in O(d^2) (22.11).

    Shapes: `inverse` is M^-1, which must be known.

    Raises:
        ValueError: 1 + v^T M^-1 u is 0 up to rounding, where M + u v^T is singular.
    Source: J. Sherman and W. J. Morrison, Annals of Mathematical Statistics 21 (1950).
    """
    left, right = inverse @ u, v @ inverse
    product = v @ left
    if abs(1 + product) <= 8 * torch.finfo(inverse.dtype).eps * (1 + v.abs() @ left.abs()):
        raise ValueError("1 + v^T M^-1 u is 0, so that M + u v^T has no inverse")
    return inverse - torch.outer(left, right) / (1 + product)


@checked
def cholesky_update(factor: Float[Tensor, "... d d"], x: Float[Tensor, "... d"]) -> Float[Tensor, "... d d"]:
    """Return the lower triangular R' with R' R'^T = R R^T + x x^T, in O(d^2).

    [R, x] is turned by one plane rotation a column until the last column is 0. A rotation keeps the product
    with the transpose, never enlarges rounding errors, and leaves the diagonal positive: nothing is subtracted.

    Shapes: `factor` is R, lower triangular with a positive diagonal.
    Source: P. E. Gill, G. H. Golub, W. Murray and M. A. Saunders, Mathematics of Computation 28 (1974).
    """
    columns = []
    for j in range(factor.shape[-1]):
        column = factor[..., j]
        radius = torch.hypot(column[..., j, None], x[..., j, None])
        cosine, sine = column[..., j, None] / radius, x[..., j, None] / radius
        columns.append(cosine * column + sine * x)
        x = cosine * x - sine * column
    return torch.stack(columns, dim=-1)


# Streaming


def _added(sums: Tensor, lost: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """Return sums + new and what rounding takes from it, which goes into the next sum (W. Kahan)."""
    new = new + lost
    total = sums + new
    return total, new - (total - sums)


@dataclass(frozen=True, eq=False)
class RidgeState(AttentionState):
    """What ridge attention keeps of the past, for decoding token by token: its size does not grow.

    Shapes: `inverse` is P = (lambda I + K^T K)^-1, (..., d, d); `weights` is W = P K^T V, (..., d, d_v); `gram` and
    `cross` are the sums lambda I + K^T K and K^T V, from which both are computed anew, after d tokens each time; `lost`,
    (..., d, d + d_v), is what rounding took from these sums. `since` counts the tokens since then, and `penalty` is
    lambda. With a decay, gram and cross fade: each token multiplies them by it first, lambda I included.
    """

    inverse: Tensor
    weights: Tensor
    gram: Tensor
    cross: Tensor
    lost: Tensor | None = None
    since: int = 0
    penalty: float | int | None = None

    @classmethod
    def empty(
        cls,
        *lead: int,
        head_dim: int,
        value_dim: int,
        penalty: float | int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> "RidgeState":
        """Return the state before the first token, for the leading dimensions `lead` (batch, heads, ...).

        Raises:
            ValueError: `penalty` is not a finite number above 0, or `dtype` is a half precision.
        """
        _check_penalty(penalty)
        if _work_dtype(dtype) != dtype:
            raise ValueError(f"dtype of a state must be float32 or float64, got {dtype}")
        eye = torch.eye(head_dim, dtype=dtype, device=device).expand(*lead, head_dim, head_dim)
        zeros = torch.zeros(*lead, head_dim, value_dim, dtype=dtype, device=device)
        return cls(inverse=eye / penalty, weights=zeros, gram=penalty * eye, cross=zeros, penalty=penalty)

    def update(
        self,
        k: Float[Tensor, "... keys d"],
        v: Float[Tensor, "... keys d_v"],
        *,
        attn_mask: Tensor | None = None,
        decay: float | int = 1.0,
    ) -> "RidgeState":
        """Return the state after more pairs, one or many: by (22.10), or by one solve where that is cheaper.

        Shapes: `attn_mask` is boolean, (..., 1, keys): a key where it is False is not stored. `decay` as in
        `ridge_attention`.

        Raises:
            ValueError: the shapes do not fit the state, or `decay` is not above 0 and at most 1.
            RuntimeError: rounding makes a positive definite matrix indefinite.
        """
        expected = (self.cross.shape[:-2], *self.cross.shape[-2:])
        if (k.shape[:-2], k.shape[-1], v.shape[-1]) != expected or k.shape[:-1] != v.shape[:-1]:
            raise ValueError(
                f"k and v must have shapes (*{tuple(expected[0])}, keys, {expected[1]}) and "
                f"(*{tuple(expected[0])}, keys, {expected[2]}), got {tuple(k.shape)} and {tuple(v.shape)}"
            )
        _check_decay(decay)
        k, v, _ = hide_keys(attn_mask, k, v)
        k, v = _weighed(k.to(self.gram.dtype), v.to(self.gram.dtype), decay)
        faded = decay ** k.shape[-2]
        sums = torch.cat([self.gram, self.cross], dim=-1)
        lost = torch.zeros_like(sums) if self.lost is None else self.lost
        sums, lost = _added(faded * sums, faded * lost, k.mT @ torch.cat([k, v], dim=-1))
        gram, cross = sums.tensor_split((k.shape[-1],), dim=-1)
        new = replace(self, gram=gram, cross=cross, lost=lost, since=self.since + k.shape[-2])
        if new.since >= k.shape[-1]:
            return new.refreshed()
        inverse = self.inverse / faded
        moved = k @ inverse
        small = moved @ k.mT
        small.diagonal(dim1=-2, dim2=-1).add_(1)
        gain = torch.cholesky_solve(moved, _cholesky(small)).mT
        return replace(
            new, inverse=inverse - gain @ moved, weights=self.weights + gain @ (v - k @ self.weights)
        )

    def refreshed(self) -> "RidgeState":
        """Return the same state with inverse and memory computed anew from the sums, free of what had piled up.

        Raises:
            RuntimeError: rounding makes lambda I + K^T K indefinite.
        """
        factor = _cholesky(self.gram)
        inverse, weights = torch.cholesky_inverse(factor), torch.cholesky_solve(self.cross, factor)
        return replace(self, inverse=inverse, weights=weights, since=0)

    def read(self, q: Float[Tensor, "... queries d"]) -> Float[Tensor, "... queries d_v"]:
        """Return W^T q for each row q, in q's dtype (22.2)."""
        return (q.to(self.weights.dtype) @ self.weights).to(q.dtype)


# Attention


@named
def ridge_attention(
    q: Float[Tensor, "... queries d"],
    k: Float[Tensor, "... keys d"],
    v: Float[Tensor, "... keys d_v"],
    *,
    penalty: float | int,
    causal: bool = True,
    attn_mask: Tensor | None = None,
    method: Method = "chunk",
    chunk_size: int = 32,
    refresh_every: int | None = None,
    decay: float | int = 1.0,
    initial_state: RidgeState | None = None,
    return_state: bool = False,
    scale: float | int | None = None,
    **call: Unpack[TorchOptions],
) -> Float[Tensor, "... queries d_v"] | tuple[Float[Tensor, "... queries d_v"], RidgeState]:
    """Return y_i = W_i^T q_i with W_i the ridge memory of the pairs up to i, or of all pairs (22.2, 22.10).

    Causal attention has four forms: "chunk" is fast and works on `chunk_size` tokens at a time; "sherman_morrison",
    "cholesky" and "solve" go token by token and are there to be read and compared with. Without `causal` there is one
    memory, and one solve with the smaller of the matrices lambda I + K^T K and lambda I + K K^T.

    A state stands for the pairs of earlier calls: with `return_state` the result is (output, state), and `initial_state`
    goes on from it, by one token or by many, with gradients into the state. With `decay` = gamma the loss of pair j
    counts gamma^(i - j) times at token i and the penalty gamma^i times (22.12); nothing grows with i, but gamma^i lambda
    vanishes, so that keys of the last few 1 / (1 - gamma) tokens must span all directions. States and decay belong to the
    chunk form, decay also to "solve".

    As torch calls it: `scale` multiplies the queries; the other options are `TorchOptions`. Where heads are repeated, a
    state is one for each head of q.

    Shapes: (..., seq, head_dim) with any leading dimensions, as scaled_dot_product_attention takes it; `attn_mask`
    is boolean, (..., 1, keys): a key where it is False is not stored. Half precision is computed in float32. With fewer
    queries than keys, causal queries are the last of the sequence: query i sees the keys up to i + keys - queries.
    Ranges: `penalty` is lambda > 0, `decay` lies above 0 and at most at 1. The chunk form computes inverse and memory anew
    from the sums of all pairs after d and 2 d tokens (with decay after every d), and with `refresh_every` = r every r
    chunks: that helps where keys bring new directions late.

    Raises:
        ValueError: shapes, dtypes or devices do not fit, causal attention gets more queries than keys, `penalty` is not a
            finite number above 0, a size is below 1, `method` is unknown or has no states or decay, `decay` is outside its
            range or not causal, or the state is another one's.
        RuntimeError: rounding makes a positive definite matrix indefinite. (Compiled, torch's own LinAlgError.)
    """
    q, k, v, attn_mask, causal = normalize_inputs(q, k, v, attn_mask, causal, **call)
    if scale is not None:
        q = q * scale
    _check_penalty(penalty)
    forms = {
        "chunk": _by_chunks,
        "sherman_morrison": _by_sherman_morrison,
        "cholesky": _by_cholesky_updates,
        "solve": _by_solves,
    }
    if method not in forms:
        raise ValueError(f"method must be one of {list(forms)}, got {method!r}")
    for name, size in (("chunk_size", chunk_size), ("refresh_every", refresh_every)):
        if size is not None and size < 1:
            raise ValueError(f"{name} must be 1 or more, got {size}")
    stateful = return_state or initial_state is not None
    _check_decay(decay)
    if decay != 1 and (not causal or method not in ("chunk", "solve")):
        raise ValueError(
            f"decay needs causal=True and method 'chunk' or 'solve', got causal={causal} and {method!r}"
        )
    if stateful and method != "chunk":
        raise ValueError(f"a state needs method 'chunk', got {method!r}")
    lead, dtype = q.shape[:-1], q.dtype
    if not stateful and not k.numel():
        return q.new_zeros(*lead, v.shape[-1])
    k, v, _ = hide_keys(attn_mask, k, v)  # a key of zeros changes neither K^T K nor K^T V
    state = _start(initial_state, k, v, penalty) if stateful else None
    work = _work_dtype(dtype) if state is None else state.gram.dtype
    q, k, v = (merge_leading(x).to(work) for x in (q, k, v))
    # Factorisations do not exist in half precision: autocast must leave the products alone.
    with without_autocast(q.device):
        new = state.update(k, v, decay=decay) if stateful else None
        if stateful and (not causal or q.shape[1] == 1):
            y = new.read(q)
        elif not causal:
            y = _by_one_solve(q, k, v, penalty)
        else:
            options = (chunk_size, refresh_every, decay, state) if method == "chunk" else ()
            ahead = k.shape[1] - q.shape[1]  # queries of 0, whose outputs are left out
            padded = pad(q, (0, 0, ahead, 0))
            y = forms[method](padded, k, v, penalty, *((decay,) if method == "solve" else options))[:, ahead:]
    y = y.to(dtype).reshape(*lead, v.shape[-1])
    return (y, new.unmerged(lead[:-1])) if return_state else y


def _start(state: RidgeState | None, k: Tensor, v: Tensor, penalty: float | int) -> RidgeState:
    """Check a state and merge its leading dimensions, or make the first one."""
    lead, d, d_v, dtype = k.shape[:-2], k.shape[-1], v.shape[-1], _work_dtype(k.dtype)
    if state is None:
        options = {"head_dim": d, "value_dim": d_v, "penalty": penalty, "dtype": dtype, "device": k.device}
        return RidgeState.empty(lead.numel(), **options)
    if not isinstance(state, RidgeState):
        raise ValueError(f"initial_state must be a RidgeState, got {type(state).__name__}")
    if state.cross.shape != (*lead, d, d_v) or state.cross.device != k.device:
        raise ValueError(
            f"initial_state must have sums of shape {(*lead, d, d_v)} on {k.device} for these keys and values, got "
            f"{tuple(state.cross.shape)} on {state.cross.device}"
        )
    if state.penalty not in (None, penalty):
        raise ValueError(f"initial_state was made with penalty {state.penalty}, got {penalty}")
    return state.to(dtype=torch.promote_types(dtype, state.gram.dtype)).merged()


def _weighed(k: Tensor, v: Tensor, decay: float | int) -> tuple[Tensor, Tensor]:
    """Return pairs in units of the last token, k_j gamma^((n - j) / 2): older ones are smaller."""
    if decay == 1:
        return k, v
    ages = torch.arange(k.shape[-2] - 1, -1, -1, dtype=k.dtype, device=k.device)[:, None]
    return k * decay ** (ages / 2), v * decay ** (ages / 2)


def _work_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _by_one_solve(q: Tensor, k: Tensor, v: Tensor, penalty: float | int) -> Tensor:
    if k.shape[-2] >= k.shape[-1]:
        gram, cross = _sums(k, v, penalty)
        return q @ torch.cholesky_solve(cross, _cholesky(gram))
    # Fewer keys than dimensions: K^T (K K^T + lambda I)^-1 V is the same matrix from a smaller system (22.3).
    scores = k @ k.mT
    scores.diagonal(dim1=-2, dim2=-1).add_(penalty)
    return (q @ k.mT) @ torch.cholesky_solve(v, _cholesky(scores))


def _by_solves(q: Tensor, k: Tensor, v: Tensor, penalty: float | int, decay: float | int = 1.0) -> Tensor:
    """One factorisation a token, O(n d^3): the definition, and the most exact."""
    gram, cross = _sums(k[:, :0], v[:, :0], penalty)
    outputs = []
    for i in range(k.shape[1]):
        gram = decay * gram + k[:, i, :, None] * k[:, i, None, :]
        cross = decay * cross + k[:, i, :, None] * v[:, i, None, :]
        reading = torch.cholesky_solve(q[:, i, :, None], _cholesky(gram))
        outputs.append(reading.mT @ cross)
    return torch.cat(outputs, dim=1)


def _by_sherman_morrison(q: Tensor, k: Tensor, v: Tensor, penalty: float | int) -> Tensor:
    """The inverse by rank-one updates beside the sum of k v^T, O(n d^2) (22.6)."""
    gram, cross = _sums(k[:, :0], v[:, :0], penalty)
    inverse = gram / penalty**2  # gram is lambda I here
    outputs = []
    for i in range(k.shape[1]):
        query, key, value = q[:, i, None], k[:, i, :, None], v[:, i, None]
        moved = inverse @ key
        inverse = inverse - moved @ moved.mT / (1 + key.mT @ moved)
        cross = cross + key @ value
        outputs.append(query @ inverse @ cross)
    return torch.cat(outputs, dim=1)


def _by_cholesky_updates(q: Tensor, k: Tensor, v: Tensor, penalty: float | int) -> Tensor:
    """The Cholesky factor by rank-one updates beside the sum of k v^T, O(n d^2)."""
    gram, cross = _sums(k[:, :0], v[:, :0], penalty)
    factor = gram / math.sqrt(penalty)  # gram is lambda I here
    outputs = []
    for i in range(k.shape[1]):
        factor = cholesky_update(factor, k[:, i])
        cross = cross + k[:, i, :, None] @ v[:, i, None]
        # The inverse of R R^T underflows where long keys square; in units of a power of two nothing is rounded.
        exponent = torch.frexp(factor.detach().diagonal(dim1=-2, dim2=-1).amax(-1))[1]
        unit = torch.exp2(exponent.to(factor.dtype))[:, None, None]
        reading = torch.cholesky_solve(q[:, i, :, None], factor / unit)
        outputs.append(reading.mT @ (cross / unit) / unit)
    return torch.cat(outputs, dim=1)


def _by_chunks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    penalty: float | int,
    chunk_size: int,
    refresh_every: int | None,
    decay: float | int,
    state: RidgeState | None,
) -> Tensor:
    """All tokens of a chunk at once, O(n d^2) and O(n C d) in products of matrices (22.9, 22.10).

    Inverse and memory stand side by side as [P, -W]: then K [P, -W] + [0, V] = [K P, V - K W] is the right-hand side
    Z is solved from, and the update of both is one product, [P, -W] - Z_k^T Z with Z = [Z_k, Z_v].

    While the first d tokens bring new directions, P falls in them from 1 / lambda to the size that stays: a difference
    of large numbers, whose rounding errors stay as well. After d and after 2 d tokens both are computed anew from
    the sums, which takes these errors out; later updates hardly add any.

    With decay gamma all of this holds for pairs k_j gamma^(-j/2) within a chunk, in units of the token before it. At its
    end P is brought back to the units of the last token; W is the same in all units.
    """
    width = k.shape[-1]
    if state is None:
        gram, cross = _sums(k[:, :0], v[:, :0], penalty)
        memory = torch.cat([gram / penalty**2, -cross], dim=-1)
    else:
        gram, cross, memory = state.gram, state.cross, torch.cat([state.inverse, -state.weights], dim=-1)
    if decay < 1:  # factors up to a million and no further
        chunk_size = max(1, min(chunk_size, int(math.log(1e6) / -math.log(decay))))
        refresh_every = refresh_every or math.ceil(width / chunk_size)
        young = decay ** (-torch.arange(1, chunk_size + 1, dtype=k.dtype, device=k.device)[:, None] / 2)
    # Autograd needs every memory that a product has used; otherwise one buffer serves all chunks.
    tracked = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, memory))
    update = torch.Tensor.baddbmm if tracked else torch.Tensor.baddbmm_
    eye = torch.eye(chunk_size, dtype=k.dtype, device=k.device)
    anew = {math.ceil(many * width / chunk_size) for many in (1, 2)}
    outputs, summed = [v[:, :0]], 0
    for index, start in enumerate(range(0, k.shape[1], chunk_size)):
        if index in anew or (index and refresh_every and index % refresh_every == 0):
            keys, values = _weighed(k[:, summed:start], v[:, summed:start], decay)
            faded, summed = decay ** (start - summed), start
            gram, cross = faded * gram + keys.mT @ keys, faded * cross + keys.mT @ values
            inverse = torch.cholesky_inverse(_cholesky(gram))
            memory = torch.cat([inverse, -(inverse @ cross)], dim=-1)
        queries, keys, values = (x[:, start : start + chunk_size] for x in (q, k, v))
        if decay < 1:
            keys, values = young[: keys.shape[1]] * keys, young[: keys.shape[1]] * values
        right = keys @ memory
        right[..., width:] += values
        own = eye[: keys.shape[1], : keys.shape[1]]
        factor = _cholesky(torch.baddbmm(own, right[..., :width], keys.mT))
        # The inverse of a small triangle and a product are faster than a triangular solve with 2 d columns.
        solved = torch.linalg.solve_triangular(factor, own.expand_as(factor), upper=False) @ right
        past, present = queries @ memory[..., width:], (queries @ solved[..., :width].mT).tril_()
        outputs.append(past.baddbmm_(present, solved[..., width:], beta=-1))
        memory = update(memory, solved[..., :width].mT, solved, alpha=-1)
        if decay < 1:
            inverse, weights = memory.tensor_split((width,), dim=-1)
            memory = torch.cat([inverse / decay ** keys.shape[1], weights], dim=-1)
    return torch.cat(outputs, dim=1)


# Relatives


@dataclass(frozen=True, eq=False)
class DeltaState(AttentionState):
    """What the delta rule keeps of the past: its memory W, (..., d, d_v)."""

    weights: Tensor


def delta_rule_loop(
    q: Float[Tensor, "... seq d"],
    k: Float[Tensor, "... seq d"],
    v: Float[Tensor, "... seq d_v"],
    *,
    step_size: float | int | Float[Tensor, "... seq"] = 1.0,
) -> Float[Tensor, "... seq d_v"]:
    """Return what `delta_rule` returns, token by token (20.4), to be read.

    Raises:
        ValueError: shapes, dtypes or devices do not fit.
    """
    check_qkv(q, k, v)
    check_causal(k, q)
    eta = _steps(step_size, k)
    weights, outputs = k.new_zeros(*k.shape[:-2], k.shape[-1], v.shape[-1]), [v[..., :0, :]]
    for i in range(k.shape[-2]):
        query, key, value = q[..., i, None, :], k[..., i, None, :], v[..., i, None, :]
        weights = weights + eta[..., i, None, :] * key.mT @ (value - key @ weights)
        outputs.append(query @ weights)
    return torch.cat(outputs, dim=-2)


@named
def delta_rule(
    q: Float[Tensor, "... queries d"],
    k: Float[Tensor, "... keys d"],
    v: Float[Tensor, "... keys d_v"],
    *,
    step_size: float | int | Float[Tensor, "... keys"] = 1.0,
    attn_mask: Tensor | None = None,
    chunk_size: int = 64,
    initial_state: DeltaState | None = None,
    return_state: bool = False,
    scale: float | int | None = None,
    **call: Unpack[TorchOptions],
) -> Float[Tensor, "... queries d_v"] | tuple[Float[Tensor, "... queries d_v"], DeltaState]:
    """Return y_i = W_i^T q_i for W_i = W_{i-1} + eta_i k_i (v_i - W_{i-1}^T k_i)^T: one gradient step a token (20.4).

    In chunks: W_i = W_0 + sum_(j <= i) k_j u_j^T, where u_i = eta_i (v_i - W_0^T k_i - sum_(j < i) (k_i.k_j) u_j) is a
    triangular system. Its solution is linear in W_0, so that the systems of all chunks are solved at once, and what goes
    from chunk to chunk is products of matrices.

    Shapes: as in `ridge_attention`, causal, with `attn_mask` and states as there; `step_size` is a number or one a token,
    (..., keys). Half precision is computed in float32. As torch calls it: `scale` multiplies the queries; the other
    options are `TorchOptions`, of which `is_causal` may be True, as the rule is in any case. Where heads are repeated,
    states and step sizes are those of the heads of q.
    Ranges: eta_i |k_i|^2 lies between 0 and 2, beyond which errors grow from token to token.

    Raises:
        ValueError: shapes, dtypes or devices do not fit, there are more queries than keys, `chunk_size` is below 1,
            `is_causal` is False, or the state is another one's.
    Source: I. Schlag, K. Irie and J. Schmidhuber, arXiv:2102.11174; in chunks S. Yang et al., arXiv:2406.06484.
    """
    q, k, v, attn_mask, causal = normalize_inputs(q, k, v, attn_mask, True, **call)
    if not causal:
        raise ValueError("is_causal must be True or left out, got False: the rule learns from token to token")
    if scale is not None:
        q = q * scale
    if chunk_size < 1:
        raise ValueError(f"chunk_size must be 1 or more, got {chunk_size}")
    eta = _steps(step_size, k)
    k, v, _ = hide_keys(attn_mask, k, v)  # a key of zeros moves nothing
    lead, dtype, length = q.shape[:-1], q.dtype, k.shape[-2]
    work = _work_dtype(dtype)
    if initial_state is None:
        weights = k.new_zeros(*k.shape[:-2], k.shape[-1], v.shape[-1], dtype=work)
    elif not isinstance(initial_state, DeltaState):
        raise ValueError(f"initial_state must be a DeltaState, got {type(initial_state).__name__}")
    else:
        weights, wanted = initial_state.weights, (*k.shape[:-2], k.shape[-1], v.shape[-1])
        if weights.shape != wanted or weights.device != k.device:
            raise ValueError(
                f"initial_state must have weights of shape {wanted} on {k.device} for these keys and values, got "
                f"{tuple(weights.shape)} on {weights.device}"
            )
        work = torch.promote_types(work, weights.dtype)
    q, k, v, eta, weights = (merge_leading(x).to(work) for x in (q, k, v, eta, weights))
    q = pad(
        q, (0, 0, length - q.shape[1], 0)
    )  # queries of 0 before the first one, whose outputs are left out
    outputs = [v[:, :0]]
    with without_autocast(q.device):
        if length:
            size = min(chunk_size, length)
            # Keys of 0 behind the end move nothing.
            q, k, v, eta = (
                pad(x, (0, 0, 0, -length % size)).unflatten(1, (-1, size)) for x in (q, k, v, eta)
            )
            system = (eta * (k @ k.mT)).tril(-1) + torch.eye(size, dtype=work, device=k.device)
            right = eta * torch.cat([k, v], dim=-1)
            solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
            by_keys, by_values = solved.tensor_split((k.shape[-1],), dim=-1)
            near = (q @ k.mT).tril()
            for at in range(k.shape[1]):
                moves = by_values[:, at] - by_keys[:, at] @ weights
                outputs.append(q[:, at] @ weights + near[:, at] @ moves)
                weights = weights + k[:, at].mT @ moves
    y = torch.cat(outputs, dim=1)[:, length - lead[-1] : length].to(dtype).reshape(*lead, v.shape[-1])
    return (y, DeltaState(weights).unmerged(lead[:-1])) if return_state else y


def _steps(step_size: float | int | Tensor, k: Tensor) -> Tensor:
    """Bring step sizes to one a token, (..., keys, 1)."""
    if not isinstance(step_size, Tensor):
        return k.new_full((1, 1), step_size).expand(*k.shape[:-1], 1)
    try:
        return step_size.expand(k.shape[:-1])[..., None]
    except RuntimeError:
        raise ValueError(
            f"step_size must be a number or broadcast to {tuple(k.shape[:-1])}, one a token, got {tuple(step_size.shape)}"
        ) from None


@checked
def conjugate_gradient(
    matrix: Float[Tensor, "... d d"], right: Float[Tensor, "... d columns"], *, steps: int
) -> Float[Tensor, "... d columns"]:
    """Return x after `steps` steps of conjugate gradients on A x = b from x = 0, each column for itself.

    Shapes: `matrix` is A, symmetric and positive definite. The number of steps that are needed grows with the
    root of the condition number of A.

    Raises:
        ValueError: `steps` is negative.
    Source: M. R. Hestenes and E. Stiefel, Journal of Research of the NBS 49 (1952).
    """
    if steps < 0:
        raise ValueError(f"steps must be 0 or more, got {steps}")
    x, residual = torch.zeros_like(right), right
    direction, size = residual, residual.square().sum(-2, keepdim=True)
    # A column that has converged has residual 0: the tiny number keeps 0 / 0 out of its step.
    tiny = torch.finfo(right.dtype).tiny
    for _ in range(steps):
        image = matrix @ direction
        length = size / ((direction * image).sum(-2, keepdim=True) + tiny)
        x, residual = x + length * direction, residual - length * image
        size, before = residual.square().sum(-2, keepdim=True), size
        direction = residual + size / (before + tiny) * direction
    return x
