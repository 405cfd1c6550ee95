"""Linear attention with the quadratic kernel, fused: no feature is ever collected by its index (lesson 19).

With the entries of x as rows of a matrix (rows x tokens) and c as one row more, (alpha q.k + c)^2 is the square of a
dot product, and its features are all products of two rows. Multiplying 8 rows with all later ones at a time is
one broadcast product of contiguous rows, and what it gives is at once a factor of a matrix product. Rows within a
block meet twice, others once: the latter count double, on the reading side only.

The gradient has the shape of the forward pass. With g_i = dL/dV'_i / Z_i and h_i = -(dL/dV'_i . V'_i) / Z_i,
dL = sum_ij d[sim_ij] (g_i.v_j + h_i w_j): the queries see sums over the keys, the keys and values see sums over the
queries, and under a causal mask these run from the end of the sequence to its start.
"""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from course_lib.attention.feature_maps import Quadratic, sum_dtype
from course_lib.attention.kernelized_chunks import Form, Tokens, attend_in_chunks, slices
from course_lib.attention.quadratic_in_parallel import attend_in_parallel, fits

ROUNDED = 64  # tokens of a positive sum in one product of matrices, which may round to one side at each
BLOCK_ROWS = 8  # rows of x that meet all later rows at once: few small products, little counted twice


def attend_by_products(tokens: Tokens, form: Form, sums: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """What `attend_in_chunks` returns, for `Quadratic` without a decay; the last sums are None where `sums` are.

    Derivatives of any order are exact; for the first one the inputs, the output and its denominators are kept.
    Where a GPU gains by it, and there are no sums, `quadratic_in_parallel` takes the place of this module.
    """
    if sums is None and fits(tokens, form):
        return attend_in_parallel(tokens, form), None
    out, _, last = _QuadraticAttention.apply(*tokens[:5], sums, form)
    return out, last


def _rows(x: Tensor, kernel: Quadratic) -> Tensor:
    """Turn tokens (B, n, D) into rows (B, D + 1, n), so that sim is the square of a dot product of columns."""
    rows = math.sqrt(kernel.scale) * x.mT.to(sum_dtype(x.dtype))
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
            like.new_zeros(batch, (high - low) * (rows - low), width, dtype=sum_dtype(like.dtype))
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

    def absorb(self, y: Tensor, a: Tensor, w: Tensor) -> None:
        """Add a chunk: columns of y, rows of a and w."""
        for block, products in zip(self.blocks, _products(y, reading=False), strict=True):
            torch.baddbmm(block, products, a, out=block)
        for at in slices(y.shape[-1], ROUNDED):
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


def _start(y: Tensor, a: Tensor, kernel: Quadratic, sums: Tensor | None) -> _Sums:
    """The sums before the first token (behind the last one, in a pass backwards): `sums`, or zeros for None."""
    started = _Sums(len(y), y.shape[2] + (kernel.offset != 0), a.shape[2], y)
    if sums is not None:
        started.load(sums, kernel)
    return started


def _sweep(
    x: Tensor,
    y: Tensor,
    values: tuple[Tensor, Tensor],
    form: Form,
    direction: str,
    sums: _Sums,
    *,
    stream: bool,
) -> Iterator[tuple]:
    """Yield for each chunk of x: where it is, its rows, and the parts (`_Sums`, `_Near`) of the sum over y it sees.

    `direction` is "" for all of y, "past" for y up to the token, "future" for y from the token on. With `stream` the sums
    hold something at the start, and in the end all of y; `values` are a and w of y.
    """
    kernel, as_summed = form.feature_map, lambda at: [t[:, at].to(sums.gram.dtype) for t in values]
    if not direction:
        for at in slices(y.shape[1], form.chunk_size):
            sums.absorb(_rows(y[:, at], kernel), *as_summed(at))
        for at in slices(x.shape[1], form.chunk_size):
            yield at, _rows(x[:, at], kernel), [sums]
        return
    chunks = slices(x.shape[1], form.chunk_size)
    keep = torch.tril if direction == "past" else torch.triu
    for number, at in enumerate(chunks if direction == "past" else reversed(chunks)):
        rows, own = _rows(y[:, at], kernel), as_summed(at)
        yield at, _rows(x[:, at], kernel), [_Near(rows, *own, keep)] + ([sums] if stream or number else [])
        if stream or number < len(chunks) - 1:
            sums.absorb(rows, *own)


def _total(pairs) -> tuple[Tensor, Tensor]:
    (top, bottom), *others = pairs
    for more, below in others:
        top, bottom = top + more, bottom + below
    return top, bottom


class _QuadraticAttention(torch.autograd.Function):
    """Attention with the quadratic kernel: outputs (B, L, M), their denominators (B, L, 1), and [U, z] in the end.

    `sums` is [U, z] of earlier tokens, or None; the last ones are None then. What reaches the last sums from behind is
    where the pass backwards starts, and what it ends with reaches the first ones.
    """

    @staticmethod
    def forward(q, k, v, weights, floor, sums, form):
        out = v.new_empty(*q.shape[:2], v.shape[2])
        total = floor.new_ones(floor.shape)
        stream, past = sums is not None, "past" if form.causal else ""
        held = _start(k, v, form.feature_map, sums)
        for at, x, parts in _sweep(q, k, (v, weights), form, past, held, stream=stream):
            top, bottom = _total(part.read(x) for part in parts)
            if form.normalize:
                total[:, at] = bottom + floor[:, at]
            out[:, at] = top / total[:, at]
        return out, total, held.by_feature(form.feature_map) if stream else None

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.form = inputs
        ctx.save_for_backward(*tensors, *output[:2])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, grad_out, _, grad_sums):
        q, k, v, weights, floor, sums, out, total = ctx.saved_tensors
        needed = [ctx.needs_input_grad[i] for i in (0, 1, 2, 5)]
        form, kernel, stream = ctx.form, ctx.form.feature_map, sums is not None
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            # create_graph: by operations with derivatives
            again = attend_in_chunks(Tokens(q, k, v, weights, floor), form, sums, keep_features=True)
            wanted = [t for t, need in zip((q, k, v, sums), needed, strict=True) if need]
            pulls = (grad_out, grad_sums) if stream else (grad_out,)
            found = iter(torch.autograd.grad(again[: len(pulls)], wanted, pulls, create_graph=True))
            dq, dk, dv, dsums = (next(found) if need else None for need in needed)
            return dq, dk, dv, None, None, dsums, None
        g = grad_out / total
        h = -(g * out).sum(-1, keepdim=True) if form.normalize else torch.zeros_like(total)
        past, future = ("past", "future") if form.causal else ("", "")
        grads = grad_q, grad_k, grad_v = [torch.empty_like(t) for t in (q, k, v)]

        def back(rows_grad):  # from rows to tokens: the row of c has no token entry
            return math.sqrt(kernel.scale) * rows_grad[:, : q.shape[2]].mT

        held = _start(k, v, kernel, sums)
        for at, x, parts in _sweep(q, k, (v, weights), form, past, held, stream=stream):
            grad_q[:, at] = back(sum(part.pull(x, g[:, at], h[:, at]) for part in parts))
        held = _start(q, g, kernel, grad_sums)
        for at, x, parts in _sweep(k, q, (g, h), form, future, held, stream=stream):
            grad_v[:, at] = _total(part.read(x) for part in parts)[0]
            own = v[:, at].to(x.dtype), weights[:, at].to(x.dtype)
            grad_k[:, at] = back(sum(part.pull(x, *own) for part in parts))
        return *grads, None, None, held.by_feature(kernel) if needed[3] else None, None
