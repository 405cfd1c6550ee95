"""The quadratic kernel in linear time on a GPU: against softmax attention, a peer, and the floor of the machine.

16 heads, bfloat16 unless a row says otherwise, wall time of a call up to the last kernel, both candidates in turn. The
floor of a call is the larger of its multiply-adds, with C features, at the rate of a large product of matrices, and of its
bytes, inputs and outputs once, at the rate of a large copy; both rates are measured here. The peer is `parallel_rebased`
of flash-linear-attention, the square of q.k / sqrt(D) by comparing all pairs, forward, where it is installed.
Without a GPU only what is counted stands here.
"""

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.kernelized import ON_GPU, crossing, seconds_of
from benchmarks.timing import Spread
from course_lib.attention.kernelized import (
    Quadratic,
    linear_attention,
    linear_multiply_adds,
    softmax_multiply_adds,
)

HEADS = 16
HEAD_DIMS = (16, 64)
LENGTHS = tuple(2**power for power in range(11, 17))
FEATURES = {  # of a head of D entries
    "quadratic": lambda d: Quadratic().n_features(d),
    "elu": lambda d: d,
    "256 random features": lambda d: 256,
}
FORWARD, TRAINING = "forward", "forward and backward"
# A gradient by hand computes each product of the forward pass again, and its derivative by both factors.
TIMES_FORWARD = {FORWARD: 1.0, TRAINING: 3.5}


def counted() -> dict[str, Spread]:
    """Multiply-adds a token of linear attention, and the length from which softmax attention needs more."""
    rows = {}
    for d in HEAD_DIMS:
        for name, features in FEATURES.items():
            c = features(d)
            each = linear_multiply_adds(1, d, n_features=c)
            rows[f"multiply-adds a token, {name}, D={d}"] = Spread.of([each])
            for causal in (False, True):
                per_pair = softmax_multiply_adds(1, d, d) / (2 if causal else 1)
                kind = "causal" if causal else "no mask"
                rows[f"N where multiply-adds are equal, {name}, D={d}, {kind}"] = Spread.of([each / per_pair])
    return rows


def rates() -> tuple[dict[str, Spread], float, float]:
    """Multiply-adds a second of a large bfloat16 product, and bytes a second of a large copy, read and written."""
    left, right = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    source = torch.randn(2**29, device="cuda")
    target = torch.empty_like(source)
    timed = seconds_of({"product": lambda: left @ right, "copy": lambda: target.copy_(source)}, rounds=15)
    product, copy = 8192**3 / timed["product"], 2 * source.nbytes / timed["copy"]
    rows = {
        "bfloat16 product of matrices, TFLOP/s": Spread.of(2e-12 * product),
        "copy, TB/s": Spread.of(1e-12 * copy),
    }
    return rows, float(np.median(product)), float(np.median(copy))


def ways(
    d: int, length: int, *, causal: bool, dtype: torch.dtype, pass_: str
) -> dict[str, Callable[[], object]]:
    """Return the candidates as calls."""
    generator = torch.Generator("cuda").manual_seed(length)
    q, k, v = (
        (0.3 * torch.randn(1, HEADS, length, d, generator=generator, device="cuda"))
        .to(dtype)
        .requires_grad_(pass_ == TRAINING)
        for _ in range(3)
    )
    gradient = torch.randn(q.shape, generator=generator, device="cuda").to(dtype)

    def whole(attend: Callable[[], Tensor]) -> Callable[[], object]:
        if pass_ == FORWARD:
            return attend
        return lambda: torch.autograd.grad(attend(), (q, k, v), gradient)

    found = {
        "SDPA": whole(lambda: scaled_dot_product_attention(q, k, v, is_causal=causal)),
        "linear": whole(lambda: linear_attention(q, k, v, feature_map=Quadratic(), causal=causal)),
    }
    if causal and find_spec("fla") and length <= 32768 and pass_ == FORWARD:
        from fla.ops.rebased import parallel_rebased

        turned = [t.transpose(1, 2).contiguous() for t in (q, k, v)]
        found["rebased"] = lambda: parallel_rebased(*turned)
    return found


def run() -> dict[str, Spread]:
    """Return what is counted, and on a GPU what is measured."""
    rows = counted()
    if not ON_GPU:
        return rows
    more, products, bytes_ = rates()
    rows |= more
    for d in HEAD_DIMS:
        for causal in (False, True):
            for pass_ in TIMES_FORWARD:
                kind = f"{'causal' if causal else 'no mask'}, D={d}, {pass_}"
                ratios = {}
                for length in LENGTHS:
                    timed = seconds_of(
                        ways(d, length, causal=causal, dtype=torch.bfloat16, pass_=pass_), rounds=9
                    )
                    for name, seconds in list(timed.items())[1:]:
                        rows[f"{name} / SDPA, {kind}, N={length}"] = Spread.of(seconds / timed["SDPA"])
                    ratios[length] = Spread.of(timed["linear"] / timed["SDPA"])
                    work = HEADS * linear_multiply_adds(length, d, n_features=Quadratic().n_features(d))
                    moved = HEADS * 4 * length * d * 2
                    floor = TIMES_FORWARD[pass_] * max(work / products, moved / bytes_)
                    if length >= 16384:
                        rows[f"share of the floor, {kind}, N={length}"] = Spread.of(floor / timed["linear"])
                measured = [
                    crossing(LENGTHS, [getattr(r, q) for r in ratios.values()])
                    for q in ("q25", "median", "q75")
                ]
                if np.isfinite(measured).all():
                    rows[f"crossover N measured, {kind}"] = Spread.of(measured)
            kind = f"{'causal' if causal else 'no mask'}, D={d}, forward, float32, N=8192"
            timed = seconds_of(ways(d, 8192, causal=causal, dtype=torch.float32, pass_=FORWARD), rounds=9)
            rows[f"linear / SDPA, {kind}"] = Spread.of(timed["linear"] / timed["SDPA"])
    return rows
