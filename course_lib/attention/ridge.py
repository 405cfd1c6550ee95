"""Ridge attention: the memory that fits the pairs seen so far best, by least squares (lesson 17).

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
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.attention.shapes import (
    check_causal,
    check_qkv,
    clear_hidden,
    key_weights,
    merge_leading,
    without_autocast,
)

Method = Literal["chunk", "sherman_morrison", "cholesky", "solve"]


def _check_penalty(penalty: float | int) -> None:
    if isinstance(penalty, Tensor) or not (0 < penalty < math.inf):
        raise ValueError(
            f"penalty must be a finite number above 0, got {penalty}; to learn it, scale queries and keys instead"
        )


def _cholesky(matrix: Tensor) -> Tensor:
    try:
        return torch.linalg.cholesky(matrix)
    except torch.linalg.LinAlgError:
        raise RuntimeError(
            f"after rounding to {matrix.dtype} a matrix of ridge attention is not positive definite: the penalty is too "
            "small for keys of this size, or the keys hold NaN or infinity; use a larger penalty, shorter keys, "
            "refresh_every or float64"
        ) from None


def _sums(k: Tensor, v: Tensor, penalty: float | int) -> tuple[Tensor, Tensor]:
    """Return lambda I + K^T K and K^T V (17.6)."""
    gram = k.mT @ k
    gram.diagonal(dim1=-2, dim2=-1).add_(penalty)
    return gram, k.mT @ v


# The memory of a set of pairs


def ridge_memory(
    k: Float[Tensor, "... keys d"], v: Float[Tensor, "... keys d_v"], *, penalty: float | int
) -> Float[Tensor, "... d d_v"]:
    """Return W = (lambda I + K^T K)^-1 K^T V, which minimises ||K W - V||^2 + lambda ||W||^2 (17.4).

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
    """Count the leading multiplications that the inverse of lambda I + K^T K costs (17.7).

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


def sherman_morrison(
    inverse: Float[Tensor, "d d"], u: Float[Tensor, " d"], v: Float[Tensor, " d"]
) -> Float[Tensor, "d d"]:
    """Return (M + u v^T)^-1 = M^-1 - (M^-1 u)(v^T M^-1) / (1 + v^T M^-1 u), in O(d^2) (17.8).

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


def cholesky_update(factor: Float[Tensor, "... d d"], x: Float[Tensor, "... d"]) -> Float[Tensor, "... d d"]:
    """Return the lower triangular R' with R' R'^T = R R^T + x x^T, in O(d^2) (17.14).

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


# Attention


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
) -> Float[Tensor, "... queries d_v"]:
    """Return y_i = W_i^T q_i with W_i the ridge memory of the pairs up to i, or of all pairs (17.4, 17.13).

    Causal attention has four forms: "chunk" is fast and works on `chunk_size` tokens at a time; "sherman_morrison",
    "cholesky" and "solve" go token by token and are there to be read and compared with. Without `causal` there is one
    memory, and one solve with the smaller of the matrices lambda I + K^T K and lambda I + K K^T.

    Shapes: (..., seq, head_dim) with any leading dimensions, as scaled_dot_product_attention takes it; `attn_mask`
    is boolean, (..., 1, keys): a key where it is False is not stored. Half precision is computed in float32.
    Ranges: `penalty` is lambda > 0. The chunk form computes inverse and memory anew
    from the sums of all pairs after d and 2 d tokens, and with `refresh_every` = r every r chunks: worth it where
    keys bring new directions late.

    Raises:
        ValueError: shapes, dtypes or devices do not fit, `penalty` is not a finite number above 0, a size is below
            1, or `method` is unknown.
        RuntimeError: rounding makes a positive definite matrix indefinite. (Compiled, torch's own LinAlgError.)
    """
    check_qkv(q, k, v)
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
    if causal:
        check_causal(q, k)
    lead, dtype = q.shape[:-1], q.dtype
    if not k.numel():
        return q.new_zeros(*lead, v.shape[-1])
    if attn_mask is not None:
        key_weights(attn_mask, k)  # refuses a mask that is none over keys
        k, v = clear_hidden(attn_mask, k, v)  # a key of zeros changes neither K^T K nor K^T V
    q, k, v = (merge_leading(x).to(_work_dtype(dtype)) for x in (q, k, v))
    # Factorisations do not exist in half precision: autocast must leave the products alone.
    with without_autocast(q.device):
        if not causal:
            y = _by_one_solve(q, k, v, penalty)
        else:
            sizes = (chunk_size, refresh_every) if method == "chunk" else ()
            y = forms[method](q, k, v, penalty, *sizes)
    return y.to(dtype).reshape(*lead, v.shape[-1])


def _work_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _by_one_solve(q: Tensor, k: Tensor, v: Tensor, penalty: float | int) -> Tensor:
    if k.shape[-2] >= k.shape[-1]:
        gram, cross = _sums(k, v, penalty)
        return q @ torch.cholesky_solve(cross, _cholesky(gram))
    # Fewer keys than dimensions: K^T (K K^T + lambda I)^-1 V is the same matrix from a smaller system (17.5).
    scores = k @ k.mT
    scores.diagonal(dim1=-2, dim2=-1).add_(penalty)
    return (q @ k.mT) @ torch.cholesky_solve(v, _cholesky(scores))


def _by_solves(q: Tensor, k: Tensor, v: Tensor, penalty: float | int) -> Tensor:
    """One factorisation a token, O(n d^3): the definition, and the most exact."""
    gram, cross = _sums(k[:, :0], v[:, :0], penalty)
    outputs = []
    for i in range(k.shape[1]):
        gram = gram + k[:, i, :, None] * k[:, i, None, :]
        cross = cross + k[:, i, :, None] * v[:, i, None, :]
        reading = torch.cholesky_solve(q[:, i, :, None], _cholesky(gram))
        outputs.append(reading.mT @ cross)
    return torch.cat(outputs, dim=1)


def _by_sherman_morrison(q: Tensor, k: Tensor, v: Tensor, penalty: float | int) -> Tensor:
    """The inverse by rank-one updates beside the sum of k v^T, O(n d^2) (17.8)."""
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
    """The Cholesky factor by rank-one updates beside the sum of k v^T, O(n d^2) (17.14)."""
    gram, cross = _sums(k[:, :0], v[:, :0], penalty)
    factor = gram / math.sqrt(penalty)  # gram is lambda I here
    outputs = []
    for i in range(k.shape[1]):
        factor = cholesky_update(factor, k[:, i])
        cross = cross + k[:, i, :, None] @ v[:, i, None]
        outputs.append(torch.cholesky_solve(q[:, i, :, None], factor).mT @ cross)
    return torch.cat(outputs, dim=1)


def _by_chunks(
    q: Tensor, k: Tensor, v: Tensor, penalty: float | int, chunk_size: int, refresh_every: int | None
) -> Tensor:
    """All tokens of a chunk at once, O(n d^2) and O(n C d) in products of matrices (17.11 to 17.13).

    Inverse and memory stand side by side as [P, -W]: then K [P, -W] + [0, V] = [K P, V - K W] is the right-hand side
    Z is solved from, and the update of both is one product, [P, -W] - Z_k^T Z with Z = [Z_k, Z_v].

    While the first d tokens bring new directions, P falls in them from 1 / lambda to the size that stays: a difference
    of large numbers, whose rounding errors stay as well. After d and after 2 d tokens both are computed anew from
    the sums, which takes these errors out; later updates hardly add any.
    """
    width = k.shape[-1]
    gram, cross = _sums(k[:, :0], v[:, :0], penalty)
    memory = torch.cat([gram / penalty**2, -cross], dim=-1)
    # Autograd needs every memory that a product has used; otherwise one buffer serves all chunks.
    tracked = torch.is_grad_enabled() and (k.requires_grad or v.requires_grad or q.requires_grad)
    update = torch.Tensor.baddbmm if tracked else torch.Tensor.baddbmm_
    eye = torch.eye(chunk_size, dtype=k.dtype, device=k.device)
    anew = {math.ceil(many * width / chunk_size) for many in (1, 2)}
    outputs, summed = [], 0
    for index, start in enumerate(range(0, k.shape[1], chunk_size)):
        if index in anew or (index and refresh_every and index % refresh_every == 0):
            keys, values = k[:, summed:start], v[:, summed:start]
            gram, cross, summed = gram + keys.mT @ keys, cross + keys.mT @ values, start
            inverse = torch.cholesky_inverse(_cholesky(gram))
            memory = torch.cat([inverse, -(inverse @ cross)], dim=-1)
        queries, keys, values = (x[:, start : start + chunk_size] for x in (q, k, v))
        right = keys @ memory
        right[..., width:] += values
        own = eye[: keys.shape[1], : keys.shape[1]]
        factor = _cholesky(torch.baddbmm(own, right[..., :width], keys.mT))
        # The inverse of a small triangle and a product are faster than a triangular solve with 2 d columns.
        solved = torch.linalg.solve_triangular(factor, own.expand_as(factor), upper=False) @ right
        past, present = queries @ memory[..., width:], (queries @ solved[..., :width].mT).tril_()
        outputs.append(past.baddbmm_(present, solved[..., width:], beta=-1))
        memory = update(memory, solved[..., :width].mT, solved, alpha=-1)
    return torch.cat(outputs, dim=1)


# Streaming


@dataclass(frozen=True)
class RidgeState:
    """What ridge attention keeps of the past, for decoding token by token: its size does not grow.

    Shapes: `inverse` is P = (lambda I + K^T K)^-1, (..., d, d); `weights` is W = P K^T V, (..., d, d_v); `gram` and
    `cross` are the sums lambda I + K^T K and K^T V, from which both can be computed anew.
    """

    inverse: Tensor
    weights: Tensor
    gram: Tensor
    cross: Tensor

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
        return cls(inverse=eye / penalty, weights=zeros, gram=penalty * eye, cross=zeros)

    def update(self, k: Float[Tensor, "... keys d"], v: Float[Tensor, "... keys d_v"]) -> "RidgeState":
        """Return the state after more pairs, one or many: by (17.11), or by one solve where that is cheaper.

        Raises:
            ValueError: the shapes do not fit the state.
            RuntimeError: rounding makes a positive definite matrix indefinite.
        """
        expected = (self.cross.shape[:-2], *self.cross.shape[-2:])
        if (k.shape[:-2], k.shape[-1], v.shape[-1]) != expected or k.shape[:-1] != v.shape[:-1]:
            raise ValueError(
                f"k and v must have shapes (*{tuple(expected[0])}, keys, {expected[1]}) and "
                f"(*{tuple(expected[0])}, keys, {expected[2]}), got {tuple(k.shape)} and {tuple(v.shape)}"
            )
        k, v = k.to(self.gram.dtype), v.to(self.gram.dtype)
        new = replace(self, gram=self.gram + k.mT @ k, cross=self.cross + k.mT @ v)
        if k.shape[-2] >= k.shape[-1]:
            return new.refreshed()
        moved = k @ self.inverse
        small = moved @ k.mT
        small.diagonal(dim1=-2, dim2=-1).add_(1)
        gain = torch.cholesky_solve(moved, _cholesky(small)).mT
        return replace(
            new, inverse=self.inverse - gain @ moved, weights=self.weights + gain @ (v - k @ self.weights)
        )

    def refreshed(self) -> "RidgeState":
        """Return the same state with inverse and memory computed anew from the sums, free of what had piled up.

        Raises:
            RuntimeError: rounding makes lambda I + K^T K indefinite.
        """
        factor = _cholesky(self.gram)
        return replace(
            self, inverse=torch.cholesky_inverse(factor), weights=torch.cholesky_solve(self.cross, factor)
        )

    def read(self, q: Float[Tensor, "... queries d"]) -> Float[Tensor, "... queries d_v"]:
        """Return W^T q for each row q, in q's dtype (17.4)."""
        return (q.to(self.weights.dtype) @ self.weights).to(q.dtype)


# Relatives


def delta_rule(
    q: Float[Tensor, "... seq d"],
    k: Float[Tensor, "... seq d"],
    v: Float[Tensor, "... seq d_v"],
    *,
    step_size: float | int = 1.0,
) -> Float[Tensor, "... seq d_v"]:
    """Return y_i = W_i^T q_i for W_i = W_{i-1} + eta k_i (v_i - W_{i-1}^T k_i)^T: one gradient step a token (17.15).

    Shapes: as in `ridge_attention`, causal; token by token, to be read and compared with.

    Raises:
        ValueError: shapes, dtypes or devices do not fit.
    Source: I. Schlag, K. Irie and J. Schmidhuber, arXiv:2102.11174; S. Yang et al., arXiv:2406.06484.
    """
    check_qkv(q, k, v)
    check_causal(q, k)
    weights, outputs = k.new_zeros(*k.shape[:-2], k.shape[-1], v.shape[-1]), []
    for i in range(k.shape[-2]):
        query, key, value = q[..., i, None, :], k[..., i, None, :], v[..., i, None, :]
        weights = weights + step_size * key.mT @ (value - key @ weights)
        outputs.append(query @ weights)
    return torch.cat(outputs, dim=-2) if outputs else torch.zeros_like(v)


def conjugate_gradient(
    matrix: Float[Tensor, "... d d"], right: Float[Tensor, "... d columns"], *, steps: int
) -> Float[Tensor, "... d columns"]:
    """Return x after `steps` steps of conjugate gradients on A x = b from x = 0, each column for itself (17.19).

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
