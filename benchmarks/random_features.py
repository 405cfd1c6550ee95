"""Attention through 256 random features against softmax attention and against per-token cumulative sums.

Float32, head_dim 64, one head unless a row says otherwise; on a CPU one thread and its CPU time. Rows with
performer-pytorch appear where it can be imported (it is no dependency); the stand-in does as its CPU path does:
all outer products of a piece are formed and summed up along the sequence.
"""

import contextlib
import io
import time
import warnings
from importlib import import_module

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.timing import Spread, interleave
from course_lib.attention.random_features import PositiveFeatures, positive_features, random_feature_attention

HEAD_DIM, N_FEATURES, PIECES = 64, 256, 128
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"


def cumulative_sums(q: Tensor, k: Tensor, v: Tensor, *, features: PositiveFeatures) -> Tensor:
    """Causal attention by cumulative sums of the outer products phi(k_j) v_j^T, in 128 pieces of the sequence."""
    outputs, sums, norms = [], 0.0, 0.0
    for queries, keys, values in zip(
        *(t.chunk(PIECES, dim=-2) for t in (features(q), features(k), v)), strict=True
    ):
        running = sums + (keys[..., :, None] * values[..., None, :]).cumsum(-3)
        norm = norms + keys.cumsum(-2)
        outputs.append(
            torch.einsum("...nd,...nde->...ne", queries, running) / (queries * norm).sum(-1)[..., None]
        )
        sums, norms = running[..., -1:, :, :], norm[..., -1:, :]
    return torch.cat(outputs, dim=-2)


def performer():
    """Return performer-pytorch's causal attention on a CPU, or None where it is not installed."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            peer = import_module("performer_pytorch")  # by name: it is no dependency of the project
            return peer.FastAttention(dim_heads=HEAD_DIM, nb_features=N_FEATURES, causal=True)
    except ImportError:
        return None


def tensors(length: int, *, heads: int = 1) -> list[Tensor]:
    """Return q, k and v, (1, heads, length, 64), of a size for which the estimate is good."""
    generator = torch.Generator().manual_seed(length)
    drawn = torch.randn(3, 1, heads, length, HEAD_DIM, generator=generator)
    return [t.to(DEVICE) for t in (0.3 * drawn[0], 0.3 * drawn[1], drawn[2])]


def _time(candidates: dict, *, rounds: int) -> dict[str, np.ndarray]:
    def on_device(call):
        def waited(_):
            with torch.no_grad():
                call()
            if ON_GPU:
                torch.cuda.synchronize()

        return waited

    seconds = interleave(
        {name: on_device(call) for name, call in candidates.items()},
        rounds=rounds,
        clock=time.perf_counter if ON_GPU else time.thread_time,
        warm_up=2,
    )
    return {name: np.array(values) for name, values in seconds.items()}


def _against_sdpa(length: int, *, heads: int = 1) -> dict[str, Spread]:
    q, k, v = tensors(length, heads=heads)
    features = positive_features(HEAD_DIM, N_FEATURES, generator=torch.Generator().manual_seed(0))
    seconds = _time(
        {
            "causal": lambda: random_feature_attention(q, k, v, features=features, causal=True),
            "causal SDPA": lambda: scaled_dot_product_attention(q, k, v, is_causal=True),
            "all keys": lambda: random_feature_attention(q, k, v, features=features),
            "SDPA": lambda: scaled_dot_product_attention(q, k, v),
        },
        rounds=15,
    )
    name = f"N={length}" + (f", {heads} heads" if heads > 1 else "") + (", GPU" if ON_GPU else "")
    return {
        f"random features / SDPA, causal, {name}": Spread.of(seconds["causal"] / seconds["causal SDPA"]),
        f"random features / SDPA, {name}": Spread.of(seconds["all keys"] / seconds["SDPA"]),
    }


def _against_cumulative_sums(length: int) -> dict[str, Spread]:
    q, k, v = tensors(length)
    features = positive_features(HEAD_DIM, N_FEATURES, generator=torch.Generator().manual_seed(0))
    candidates = {
        "ours": lambda: random_feature_attention(q, k, v, features=features, causal=True),
        "cumulative sums": lambda: cumulative_sums(q, k, v, features=features),
    }
    if (peer := performer()) is not None:
        candidates["performer-pytorch"] = lambda: peer(q, k, v)
    seconds = _time(candidates, rounds=7)
    return {
        f"{name} / ours, causal, N={length}": Spread.of(seconds[name] / seconds["ours"])
        for name in list(candidates)[1:]
    }


def _errors() -> dict[str, Spread]:
    """Relative error of the output against softmax attention, over 7 draws of the features."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 512, HEAD_DIM, generator=generator, dtype=torch.float64)
    figures = {}
    for length in (2, 4, 8):
        queries, keys = (length * x / x.norm(dim=-1, keepdim=True) for x in (q, k))
        exact = scaled_dot_product_attention(queries, keys, v)
        for orthogonal in (False, True):
            for m in (256, 4096):
                errors = []
                for _ in range(7):
                    drawn = positive_features(HEAD_DIM, m, orthogonal=orthogonal, generator=generator)
                    found = random_feature_attention(queries, keys, v, features=drawn)
                    errors.append(float((found - exact).norm() / exact.norm()))
                kind = "orthogonal" if orthogonal else "independent"
                figures[f"relative error, |q|=|k|={length}, m={m}, {kind}"] = Spread.of(errors)
    return figures


def run() -> dict[str, Spread]:
    """Return time against SDPA and against cumulative sums, and errors."""
    torch.set_num_threads(1)
    figures = _against_sdpa(2500) | _against_sdpa(4096, heads=16)
    if not ON_GPU:
        for length in (1024, 4096):
            figures |= _against_cumulative_sums(length)
    return figures | _errors()
