"""The sums of `quadratic_sums` as Triton kernels: products of two entries stand in registers only (lesson 19).

`write`, `read` and `pull` do what the functions of these names do there, on contiguous tensors whose sizes are powers of
two and whose chunks are whole, which `quadratic_in_parallel` sees to. Half precision is multiplied in bfloat16 and added
up in float32; float32 is taken as TF32 where torch is allowed to, else in three products that keep its digits.
`TRITON_INTERPRET=1` runs them without a GPU.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from course_lib.attention.feature_maps import Quadratic
from course_lib.attention.quadratic_sums import Side, Sums

TILE = 64  # tokens at a time
ROWS = 128  # tokens that read together
WIDE = 256  # columns that a program writes
MANY = 128  # programs that keep a GPU busy
WRITE = {"num_warps": 4, "num_stages": 3}
READ = {"num_warps": 4, "num_stages": 3}


def _precision(dtype: torch.dtype) -> str:
    """How `tl.dot` is to take float32; half precision has one way only."""
    exact = dtype == torch.float32 and torch.get_float32_matmul_precision() == "highest"
    return "tf32x3" if exact else "tf32"


@triton.jit
def _write_pairs(
    y_columns, v, out, length, chunk, n_chunks, chunks_each,
    D: tl.constexpr, M: tl.constexpr, TOGETHER: tl.constexpr, T: tl.constexpr,
    IN_ORDER: tl.constexpr, BACKWARD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """sum_n y_nb y_n v_n^T for `TOGETHER` entries b, over some chunks one after the other."""
    first, batch, part = TOGETHER * tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    d, m, tokens = tl.arange(0, D), tl.arange(0, M), tl.arange(0, T)
    together, wide = tl.arange(0, TOGETHER), tl.arange(0, TOGETHER * M)
    to = d[:, None] * M + (wide // M)[None, :] * D * M + (wide % M)[None, :]
    y_columns += batch * D * length
    sums = tl.zeros((D, TOGETHER * M), tl.float32)
    for number in range(chunks_each):
        slot = part * chunks_each + number
        at = slot
        if BACKWARD:
            at = n_chunks - 1 - slot
        if not IN_ORDER:  # what a chunk adds stands one slot further, to be summed up
            slot += 1
        into = out + ((batch * (n_chunks + 1) + slot) * D + first) * D * M + to
        if IN_ORDER:
            tl.store(into, sums.to(out.dtype.element_ty))
        for start in range(at * chunk, (at + 1) * chunk, T):
            here = start + tokens
            second = tl.load(y_columns + d[:, None] * length + here[None, :])
            one = tl.load(y_columns + (first + together)[None, :] * length + here[:, None])
            value = tl.load(v + (batch * length + here)[:, None] * M + m[None, :])
            scaled = tl.reshape(one[:, :, None] * value[:, None, :], (T, TOGETHER * M))
            sums = tl.dot(second, scaled, sums, input_precision=PRECISION)
        if not IN_ORDER:
            tl.store(into, sums.to(out.dtype.element_ty))
            sums = tl.zeros((D, TOGETHER * M), tl.float32)


@triton.jit
def _write_singles(
    y, v, weight, out, y_columns, length, chunk, n_chunks,
    D: tl.constexpr, M: tl.constexpr, T: tl.constexpr, BACKWARD: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """What one chunk adds to `Sums.singles`; it also lays y out by columns for `_write_pairs`."""
    at, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    d, m, tokens = tl.arange(0, D), tl.arange(0, M), tl.arange(0, T)
    line, gram = tl.zeros((D, M), tl.float32), tl.zeros((D, D), tl.float32)
    total, weighted, count = (
        tl.zeros((M,), tl.float32),
        tl.zeros((D,), tl.float32),
        tl.zeros((T,), tl.float32),
    )
    for start in range(at * chunk, (at + 1) * chunk, T):
        here = batch * length + start + tokens
        own = tl.load(y + here[:, None] * D + d[None, :])
        turned = tl.trans(own)
        tl.store(y_columns + (batch * D + d)[:, None] * length + (start + tokens)[None, :], turned)
        value = tl.load(v + here[:, None] * M + m[None, :])
        w = tl.load(weight + here).to(tl.float32)
        scaled = own.to(tl.float32) * w[:, None]
        line = tl.dot(turned, value, line, input_precision=PRECISION)
        gram = tl.dot(turned, scaled.to(own.dtype), gram, input_precision=PRECISION)
        total += tl.sum(value.to(tl.float32), 0)
        weighted += tl.sum(scaled, 0)
        count += w
    slot = at + 1
    if BACKWARD:
        slot = n_chunks - at
    out += (batch * (n_chunks + 1) + slot) * (D * M + D * D + M + D + 1)
    tl.store(out + d[:, None] * M + m[None, :], line)
    tl.store(out + D * M + d[:, None] * D + d[None, :], gram)
    tl.store(out + D * M + D * D + m, total)
    tl.store(out + D * M + D * D + M + d, weighted)
    tl.store(out + D * M + D * D + M + D, tl.sum(count, 0))


@triton.jit
def _read(
    x, value, weight, columns, columns_value, columns_weight, pairs, singles, floor, out, below,
    length, others, chunk, n_chunks, scale, offset,
    D: tl.constexpr, M: tl.constexpr, K: tl.constexpr, OUT: tl.constexpr, TOGETHER: tl.constexpr,
    T: tl.constexpr, S: tl.constexpr, PULL: tl.constexpr, NORMALIZE: tl.constexpr,
    NEAR: tl.constexpr, FUTURE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """`T` tokens read all pairs, then single entries, then the tokens of their own chunk one by one.

    K is the width of what meets the pairs, x or (with PULL) the value, OUT that of the result.
    """
    start, batch = T * tl.program_id(0), tl.program_id(1).to(tl.int64)
    at = batch
    if NEAR:
        slot = start // chunk
        if FUTURE:
            slot = n_chunks - 1 - slot
        at = batch * (n_chunks + 1) + slot
    d, m, k, o, tokens = tl.arange(0, D), tl.arange(0, M), tl.arange(0, K), tl.arange(0, OUT), tl.arange(0, T)
    here = batch * length + start + tokens
    own = tl.load(x + here[:, None] * D + d[None, :])
    if PULL:
        meeting = tl.load(value + here[:, None] * M + m[None, :])
        own_weight = tl.load(weight + here).to(tl.float32)
        by_pair, by_one = 2 * scale * scale, 2 * scale * offset
    else:
        meeting = own
        by_pair, by_one = scale * scale, 2 * scale * offset

    together, wide = tl.arange(0, TOGETHER), tl.arange(0, TOGETHER * K)
    if PULL:  # every D x M is read as M x D
        tile = (wide // K)[:, None] * D * M + (wide % K)[:, None] + o[None, :] * M
        turned = k[:, None] + o[None, :] * M
    else:
        tile = wide[:, None] * M + o[None, :]
        turned = k[:, None] * M + o[None, :]
    pairs += at * D * D * M
    entries = x + here[:, None] * D + together[None, :]
    found = tl.zeros((T, OUT), tl.float32)
    for first in range(0, D, TOGETHER):
        one = tl.load(entries + first)
        if TOGETHER == 1:  # noqa: SIM108, the kernel's compiler reads statements
            scaled = one * meeting
        else:
            scaled = tl.reshape(one[:, :, None] * meeting[:, None, :], (T, TOGETHER * K))
        sums = tl.load(pairs + first * D * M + tile)
        found = tl.dot(scaled, sums, found, input_precision=PRECISION)

    singles += at * (D * M + D * D + M + D + 1)
    line = tl.load(singles + turned).to(own.dtype)
    gram = tl.load(singles + D * M + d[:, None] * D + d[None, :]).to(own.dtype)
    weighted = tl.load(singles + D * M + D * D + M + d)
    found = by_pair * found + by_one * tl.dot(meeting, line, input_precision=PRECISION)
    met = tl.dot(own, gram, input_precision=PRECISION)
    if PULL:
        found += own_weight[:, None] * (by_pair * met + by_one * weighted[None, :])
    else:
        total = tl.sum((by_pair * met + by_one * weighted[None, :]) * own.to(tl.float32), 1)
        total += offset * offset * tl.load(singles + D * M + D * D + M + D)
        found += offset * offset * tl.load(singles + D * M + D * D + m)[None, :]

    if NEAR:
        low, high = start // chunk * chunk, start + T
        if FUTURE:
            low, high = start, (start // chunk + 1) * chunk
        inside = tl.arange(0, S)
        for other in range(low, high, S):
            there = batch * others + other + inside
            column = tl.load(columns + there[:, None] * D + d[None, :])
            column_value = tl.load(columns_value + there[:, None] * M + m[None, :])
            column_weight = tl.load(columns_weight + there).to(tl.float32)
            score = scale * tl.dot(own, tl.trans(column), input_precision=PRECISION) + offset
            if FUTURE:
                visible = (other + inside)[None, :] >= (start + tokens)[:, None]
            else:
                visible = (other + inside)[None, :] <= (start + tokens)[:, None]
            if PULL:
                wanted = tl.dot(meeting, tl.trans(column_value), input_precision=PRECISION)
                wanted += own_weight[:, None] * column_weight[None, :]
                near = tl.where(visible, 2 * scale * score * wanted, 0.0).to(own.dtype)
                found = tl.dot(near, column, found, input_precision=PRECISION)
            else:
                similar = tl.where(visible, score * score, 0.0)
                total += tl.sum(similar * column_weight[None, :], 1)
                found = tl.dot(similar.to(own.dtype), column_value, found, input_precision=PRECISION)

    if NORMALIZE:
        total += tl.load(floor + here)
        tl.store(below + here, total)
        found /= total[:, None]
    tl.store(out + here[:, None] * OUT + o[None, :], found.to(out.dtype.element_ty))


def write(tokens: Side, n_chunks: int, direction: str) -> Sums:
    """What `quadratic_sums.write` returns."""
    y, v, weight = tokens
    (batch, length, d), m = y.shape, v.shape[2]
    together = min(d, max(1, WIDE // m))
    groups = d // together
    sizes = {"D": d, "M": m, "T": TILE, "PRECISION": _precision(y.dtype)}
    n_parts = n_chunks if direction else max(1, length // (4 * TILE))
    singles, columns = _slots(tokens, n_parts, d * m + d * d + m + d + 1), torch.empty_like(y)
    backward = direction == "future"
    _write_singles[n_parts, batch](
        y, v, weight, singles, columns, length, length // n_parts, n_parts,
        BACKWARD=backward, **sizes, num_warps=4,
    )  # fmt: skip
    if direction and batch * groups >= MANY:  # one program reads all chunks in order
        pairs = y.new_empty(batch, n_chunks + 1, d, d, m)
        n_parts, in_order = n_chunks, True
    else:
        n_parts = n_chunks if direction else math.gcd(length // TILE, _power_of_two(MANY / (batch * groups)))
        pairs, in_order = _slots(tokens, n_parts, d, d, m), False
    _write_pairs[groups, batch, 1 if in_order else n_parts](
        columns, v, pairs, length, length // n_parts, n_parts, n_parts if in_order else 1,
        TOGETHER=together, IN_ORDER=in_order, BACKWARD=backward, **sizes, **WRITE,
    )  # fmt: skip
    if not in_order:
        pairs = _summed(pairs, direction).to(y.dtype)
    return Sums(pairs, _summed(singles, direction))


def _slots(tokens: Side, n_parts: int, *shape: int) -> Tensor:
    """Room for what each part adds, and before it for the nothing that the first part sees."""
    slots = torch.empty(len(tokens.x), n_parts + 1, *shape, device=tokens.x.device)
    slots[:, 0].zero_()
    return slots


def _summed(slots: Tensor, direction: str) -> Tensor:
    return torch.cumsum(slots, 1, out=slots) if direction else slots.sum(1, keepdim=True)


def _power_of_two(least: float) -> int:
    return 1 << max(0, math.ceil(math.log2(max(1, least))))


def read(
    rows: Side, columns: Side, sums: Sums, kernel: Quadratic, direction: str, floor: Tensor | None
) -> tuple[Tensor, Tensor]:
    """What `quadratic_sums.read` returns."""
    (batch, length, _), m = rows.x.shape, columns.value.shape[2]
    out = torch.empty(batch, length, m, device=rows.x.device, dtype=rows.x.dtype)
    below = out if floor is None else torch.empty_like(floor)
    _launch(rows, columns, sums, kernel, direction, floor, out, below, pull=False)
    return out, below


def pull(rows: Side, columns: Side, sums: Sums, kernel: Quadratic, direction: str) -> Tensor:
    """What `quadratic_sums.pull` returns."""
    out = torch.empty_like(rows.x)
    _launch(rows, columns, sums, kernel, direction, None, out, rows.weight, pull=True)
    return out


def _launch(rows, columns, sums, kernel, direction, floor, out, below, *, pull: bool) -> None:
    (batch, length, d), others = rows.x.shape, columns.x.shape[1]
    n_chunks = max(1, sums.pairs.shape[1] - 1)
    m = columns.value.shape[2]
    k = m if pull else d
    _read[length // ROWS, batch](
        rows.x, rows.value, rows.weight, *columns, *sums,
        below if floor is None else floor, out, below,
        length, others, length // n_chunks, n_chunks, float(kernel.scale), float(kernel.offset),
        D=d, M=m, K=k, OUT=d if pull else m, TOGETHER=max(1, min(d, 64 // k)), T=ROWS, S=TILE,
        PULL=pull, NORMALIZE=floor is not None, NEAR=direction != "", FUTURE=direction == "future",
        PRECISION=_precision(rows.x.dtype), **READ,
    )  # fmt: skip
