"""Ways to attend, in one interleaved run for each length: time against `scaled_dot_product_attention`, and memory.

One head, head_dim 64, float32; on a CPU one thread and its CPU time. Less than 1 means faster than torch's softmax
attention. "features by index" forms the quadratic kernel's features as its definition does, a chunk at a time; "all
features" keeps them for the whole sequence; "cumulative sums" adds up all outer products along the sequence, as
performer-pytorch does on a CPU. Those that need too much memory or time are left out of the longer sequences.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.kernelized import ON_GPU, crossing, peak_memory, seconds_of, tensors
from benchmarks.random_features import N_FEATURES, cumulative_sums
from benchmarks.timing import Spread
from course_lib.attention.kernelized import Quadratic, crossover_length, linear_attention
from course_lib.attention.random_features import positive_features, random_feature_attention

LENGTHS = tuple(2**power for power in range(8, 16))
HEAD_DIM = 64
LONGEST = {"all features": 16384, "similarities in memory": 4096, "cumulative sums": 2048}


def all_features(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """Attention with all features of the quadratic kernel in memory; causal by a mask over all pairs."""
    phi_q, phi_k = Quadratic()(q), Quadratic()(k)
    if causal:
        scores = (phi_q @ phi_k.mT).tril()
        return scores @ v / scores.sum(-1, keepdim=True)
    return phi_q @ (phi_k.mT @ v) / (phi_q @ phi_k.sum(-2)[..., None])


def eager_softmax(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """Softmax attention with all similarities in memory."""
    scores = q @ k.mT / HEAD_DIM**0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    return scores.softmax(-1) @ v


def ways(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> dict[str, Callable[[], Tensor]]:
    """Return every way to attend, as a call without arguments; torch's own comes first."""
    drawn = positive_features(HEAD_DIM, N_FEATURES, generator=torch.Generator().manual_seed(0))
    found = {
        "SDPA": lambda: scaled_dot_product_attention(q, k, v, is_causal=causal),
        "quadratic kernel": lambda: linear_attention(q, k, v, feature_map=Quadratic(), causal=causal),
        "random features": lambda: random_feature_attention(q, k, v, features=drawn, causal=causal),
        "features by index": lambda: linear_attention(
            q, k, v, feature_map=lambda x: Quadratic()(x), causal=causal
        ),
        "all features": lambda: all_features(q, k, v, causal=causal),
        "similarities in memory": lambda: eager_softmax(q, k, v, causal=causal),
    }
    if causal:
        del found["all features"]  # with a mask it is quadratic in the length, and no peer does it
        found["cumulative sums"] = lambda: cumulative_sums(q, k, v, features=drawn)
    return found


def run() -> dict[str, Spread]:
    """Return time and memory of each way, and where it overtakes torch's."""
    torch.set_num_threads(1)
    rows: dict[str, Spread] = {}
    for causal in (False, True):
        kind = ("causal" if causal else "no mask") + (", GPU" if ON_GPU else "")
        ratios: dict[str, dict[int, Spread]] = {}
        for length in LENGTHS:
            inputs = [0.3 * t for t in tensors(length)]
            timed = seconds_of(
                {n: c for n, c in ways(*inputs, causal=causal).items() if length <= LONGEST.get(n, length)},
                rounds=5 if length > 8192 else 9,
            )
            for name, seconds in list(timed.items())[1:]:
                ratio = Spread.of(seconds / timed["SDPA"])
                ratios.setdefault(name, {})[length] = ratio
                rows[f"{name} / SDPA, {kind}, N={length}"] = ratio
        for name in ("quadratic kernel", "random features", "features by index"):
            lengths, spreads = zip(*ratios[name].items(), strict=True)
            measured = [crossing(lengths, [getattr(s, q) for s in spreads]) for q in ("q25", "median", "q75")]
            if np.isfinite(measured).all():
                rows[f"crossover N measured, {name}, {kind}"] = Spread.of(measured)
            features = N_FEATURES if name == "random features" else Quadratic().n_features(HEAD_DIM)
            predicted = crossover_length(HEAD_DIM, HEAD_DIM, n_features=features, causal=causal)
            rows[f"crossover N by multiply-adds, {name}, {kind}"] = Spread.of([predicted])
        if ON_GPU:
            continue
        for length in (8192, 32768):
            for name in ways(*tensors(8), causal=causal):
                if length <= 4 * LONGEST.get(name, length):
                    rows[f"peak memory, MiB, {name}, {kind}, N={length}"] = peak_memory(name, length, causal)
    return rows
