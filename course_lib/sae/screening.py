"""The k largest features of each row, found in small integers and decided in float32.

Of 8,192 pre-activations of a row 32 are kept. Which ones can be seen without exact numbers, and a processor that
multiplies 8-bit integers does so in a quarter of the time of float32. So all pre-activations are estimated from rounded
states and weights, the largest k and a few more of each row are computed exactly, and the k largest of these are
taken. What the estimates miss by is then known. A row in which something that was left out may come close to the
k-th one is done again as a whole, so that rounding decides nothing.
"""

import torch
from jaxtyping import Float, Int8
from torch import Tensor

from course_lib import devices, torch_private
from course_lib.sae import kernels, memory

BLOCK = 512
SPARE = 16  # entries computed exactly beyond the k
SAFE = 4.0  # standard deviations of the estimates' error
SMALLEST = 2**20  # weights, from which on estimates save more than they cost
LARGEST = 127


def topk_code(
    centred: Float[Tensor, "batch d_model"],
    encoder_weight: Float[Tensor, "features d_model"],
    encoder_bias: Float[Tensor, " features"],
    *,
    k: int,
    compute_dtype: torch.dtype,
) -> kernels.SparseCode:
    """`kernels.topk_code` with values in float32, estimated first where that is faster.

    It is for float32 on a processor that multiplies 8-bit integers, a large `encoder_weight` and finite biases. Measured, in
    CPU time of one thread: on a processor with AVX-512 VNNI a step of `sae train` from 1,024 to 8,192 features takes 0.61
    of the time without it. On an AVX2 processor, where it is not used, a step with it would take 4.1 times the
    time without (256 rows). The dictionary of `pipeline`'s default has 0.5 M weights, fewer than `SMALLEST`, and never uses
    it; with as many (128 to 4,096) a step would take 10 times as long on the AVX2 processor.
    """
    if not (
        centred.dtype == torch.float32
        and encoder_weight.numel() >= SMALLEST
        and len(encoder_weight) >= 16 * (k + SPARE)
        and devices.multiplies_int8(centred.device)
    ):
        return kernels.topk_code(centred, encoder_weight, encoder_bias, k=k, compute_dtype=compute_dtype)
    return screened(centred, encoder_weight, encoder_bias, k=k)


@torch.no_grad()
def screened(
    centred: Float[Tensor, "batch d_model"],
    encoder_weight: Float[Tensor, "features d_model"],
    encoder_bias: Float[Tensor, " features"],
    *,
    k: int,
) -> kernels.SparseCode:
    """The code of `topk_code` by estimates, fast or slow, for k + `SPARE` features or more."""
    n, count = len(centred), k + SPARE
    small = _small_integers(centred, encoder_weight, encoder_bias)
    if small is None:
        return kernels.topk_code(centred, encoder_weight, encoder_bias, k=k, compute_dtype=centred.dtype)
    states, weights, step = small
    estimates = memory.empty(min(BLOCK, n), len(weights), like=centred, dtype=torch.int32)
    found = []
    for block in states.split(BLOCK):
        products = torch_private.multiply_int8(block, weights.T, out=estimates[: len(block)])
        found.append(kernels.largest(products, count))
    estimated, columns = (torch.cat(parts) for parts in zip(*found, strict=True))
    entries = kernels.even_code(torch.zeros_like(estimated, dtype=centred.dtype), columns)
    exact = kernels.entries_of_product(centred, encoder_weight.T, entries).view(n, count)
    exact += encoder_bias[columns]
    values, places = exact.topk(k, dim=-1, sorted=False)
    estimated = estimated * step
    error = (estimated - exact).square_().mean().sqrt()
    # Whatever was left out was estimated to be at most the smallest of what was not. Negative values count as 0.
    unsure = estimated.amin(dim=1) + SAFE * error > values.amin(dim=1).relu()
    columns = columns.gather(1, places)
    if again := unsure.nonzero()[:, 0].tolist():
        pre = torch.addmm(encoder_bias, centred[again], encoder_weight.T)
        values[again], columns[again] = kernels.largest(pre, k)
    return kernels.even_code(values.relu_(), columns)


def _small_integers(
    centred: Float[Tensor, "batch d_model"],
    encoder_weight: Float[Tensor, "features d_model"],
    encoder_bias: Float[Tensor, " features"],
) -> tuple[Int8[Tensor, "batch inner"], Int8[Tensor, "features inner"], Tensor] | None:
    """Whole numbers whose products, times the third result, are about W_e c + b_e; None if not all are finite.

    A dimension's factor can stand in the states or in the weights: it is divided so that both have the same range
    there. The bias is a product, too, with as many dimensions of constant states as it takes to fit in.
    """
    of_states, of_weights = (
        torch.maximum(table.amax(dim=0), -table.amin(dim=0)).clamp_(min=1e-30)
        for table in (centred, encoder_weight)
    )
    balance = (of_weights / of_states).sqrt_()
    unit = (of_weights * of_states).sqrt_().amax() / LARGEST
    step = unit.square()
    most = encoder_bias.abs().amax() / (step * LARGEST**2)
    if not torch.isfinite(step + most):
        return None
    extra = 2 ** int(most.log2().ceil().clamp(0, 5))  # few different shapes, which memory is kept for
    bias = (encoder_bias / (step * LARGEST * extra))[:, None]
    return (
        _rounded(centred, balance / unit, torch.full((1, 1), LARGEST), extra),
        _rounded(encoder_weight, 1 / (balance * unit), bias, extra),
        step,
    )


def _rounded(
    table: Float[Tensor, "rows d_model"], factors: Float[Tensor, " d_model"], last: Tensor, n_last: int
) -> Int8[Tensor, "rows inner"]:
    """The table times its columns' factors, and `last` beside it n_last times, as whole numbers to ±127."""
    d_model = table.shape[1]
    low = memory.empty(len(table), d_model + n_last, like=table, dtype=torch.int8)
    scaled = memory.empty(min(BLOCK, len(table)), d_model, like=table)
    for rows, out in zip(table.split(BLOCK), low.split(BLOCK), strict=True):
        part = torch.mul(rows, factors, out=scaled[: len(rows)])
        out[:, :d_model] = part.round_().clamp_(-LARGEST, LARGEST)
    low[:, d_model:] = last.round().clamp(-LARGEST, LARGEST)
    return low
