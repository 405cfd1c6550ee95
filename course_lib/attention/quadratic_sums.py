"""What tokens write for others in attention with the quadratic kernel, and how others read it, in plain torch (lesson 19).

With U_b = sum_j y_jb y_j v_j^T for every entry b, D^2 M numbers, the far part of (alpha q.k + c)^2 is
alpha^2 sum_b q_b (q U_b) + 2 alpha c q (sum_j y_j v_j^T) + c^2 sum_j v_j. `write` makes these sums for every chunk, `read`
reads them and compares the tokens of one chunk with each other, `pull` is its derivative. `quadratic_triton` does the same
on a GPU and keeps no product in memory. The products count each pair of entries twice, which costs less there than to pick
each once.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from course_lib.attention.feature_maps import Quadratic


class Side(NamedTuple):
    """One side of the attention: x (B, N, D), what it brings (B, N, M), and its weight (B, N, 1)."""

    x: Tensor
    value: Tensor
    weight: Tensor


class Sums(NamedTuple):
    """What a side wrote: `pairs` sum_n y_nb y_n v_n^T (B, G, D, D, M), in the dtype of the tokens, and in float32 `singles`
    (B, G, D M + D^2 + M + D + 1): the sums of y v^T, weight y y^T, v, weight y and weight."""

    pairs: Tensor
    singles: Tensor


def write(tokens: Side, n_chunks: int, direction: str) -> Sums:
    """The sums that each chunk of the other side reads.

    `direction` is "past" for those of earlier chunks, "future" for those of later ones, "" for all, and then G = 1.
    """
    y, v, weight = (t.unflatten(1, (n_chunks, -1)).float() for t in tokens)
    products = (y[..., None] * y[..., None, :]).flatten(-2)
    pairs = (products.mT @ v).unflatten(-2, (y.shape[-1], -1))
    parts = y.mT @ v, y.mT @ (weight * y), v.sum(2), (weight * y).sum(2), weight.sum(2)
    singles = torch.cat([t.flatten(2) for t in parts], -1)
    return Sums(seen(pairs, direction).to(tokens.x.dtype), seen(singles, direction))


def seen(added: Tensor, direction: str) -> Tensor:
    """Sum up over the chunks before ("past") or behind ("future") each chunk of (B, G, ...); over all for ""."""
    if not direction:
        return added.sum(1, keepdim=True)
    if direction == "future":
        return seen(added.flip(1), "past").flip(1)
    return torch.cat([torch.zeros_like(added[:, :1]), added[:, :-1].cumsum(1)], 1)


def read(
    rows: Side, columns: Side, sums: Sums, kernel: Quadratic, direction: str, floor: Tensor | None
) -> tuple[Tensor, Tensor]:
    """sum_j sim(x_i, y_j) v_j (B, N, M), divided by sum_j sim(x_i, y_j) weight_j + floor_i (B, N, 1) unless that is None."""
    pairs, line, gram, total, weighted, count = _parts(columns, sums)
    a, c = kernel.scale, kernel.offset
    x = rows.x.unflatten(1, (pairs.shape[1], -1)).float()
    products = (x[..., None] * x[..., None, :]).flatten(-2)
    top = a * a * products @ pairs.flatten(2, 3) + 2 * a * c * x @ line + c * c * total
    below = ((a * a * x @ gram + 2 * a * c * weighted) * x).sum(-1, keepdim=True) + c * c * count
    if direction:
        y, v, weight = (t.unflatten(1, (x.shape[1], -1)).float() for t in columns)
        scores = _visible(a * x @ y.mT + c, direction).square()
        top, below = top + scores @ v, below + (scores * weight.mT).sum(-1, keepdim=True)
    top, below = top.flatten(1, 2), below.flatten(1, 2)
    if floor is not None:
        below = below + floor
        top = top / below
    return top.to(rows.x.dtype), below


def pull(rows: Side, columns: Side, sums: Sums, kernel: Quadratic, direction: str) -> Tensor:
    """The derivative by x_i of sum_j sim(x_i, y_j) (value_i.v_j + weight_i weight_j), (B, N, D)."""
    pairs, line, gram, _, weighted, _ = _parts(columns, sums)
    a, c = kernel.scale, kernel.offset
    x, g, h = (t.unflatten(1, (pairs.shape[1], -1)).float() for t in rows)
    products = (x[..., None] * g[..., None, :]).flatten(-2)
    grad = 2 * a * a * products @ pairs.mT.flatten(2, 3) + 2 * a * c * g @ line.mT
    grad = grad + h * (2 * a * a * x @ gram + 2 * a * c * weighted)
    if direction:
        y, v, weight = (t.unflatten(1, (x.shape[1], -1)).float() for t in columns)
        wanted = g @ v.mT + h * weight.mT
        grad = grad + _visible(2 * a * (a * x @ y.mT + c) * wanted, direction) @ y
    return grad.flatten(1, 2).to(rows.x.dtype)


def _visible(scores: Tensor, direction: str) -> Tensor:
    return scores.triu() if direction == "future" else scores.tril()


def _parts(columns: Side, sums: Sums) -> tuple[Tensor, ...]:
    """The pairs, and the singles as matrices: y v^T, y y^T weight, v, y weight and weight, each summed up."""
    d, m = columns.x.shape[2], columns.value.shape[2]
    line, gram, total, weighted, count = sums.singles.split([d * m, d * d, m, d, 1], -1)
    shaped = line.unflatten(-1, (d, m)), gram.unflatten(-1, (d, d))
    return sums.pairs.float(), *shaped, *(t[:, :, None] for t in (total, weighted, count))
