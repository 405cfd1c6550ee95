"""Ridge attention by chunks against the token loops and against softmax attention, head width 64, float32.

Times are CPU time of one thread, every candidate once a round. Errors are relative (Frobenius) to one float64 solve
a token, for keys and queries of length 1, over three seeds. On a GPU the same chunk form is timed there as well.
"""

import time
from functools import partial

import numpy as np
import torch
from torch.nn.functional import normalize, scaled_dot_product_attention

from benchmarks.timing import Spread, interleave
from course_lib.attention.ridge import ridge_attention

WIDTH = 64
SHAPES = ((1, 512), (16, 512), (1, 4096), (16, 2048))  # heads, tokens


def draw(heads: int, tokens: int, *, seed: int = 0) -> list[torch.Tensor]:
    """Return queries and keys of length 1, and values."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, heads, tokens, WIDTH, generator=generator) for _ in range(3))
    return [normalize(q, dim=-1), normalize(k, dim=-1), v]


def _candidates(qkv: list[torch.Tensor]) -> dict:
    ridge = partial(ridge_attention, *qkv, penalty=1e-2)
    return {
        "chunk": lambda _: ridge(),
        "chunk 16": lambda _: ridge(chunk_size=16),
        "chunk, refreshed every 8": lambda _: ridge(refresh_every=8),
        "Sherman-Morrison loop": lambda _: ridge(method="sherman_morrison"),
        "causal SDPA": lambda _: scaled_dot_product_attention(*qkv, is_causal=True),
    }


def _ratios(name: str, seconds: dict[str, list[float]], pairs: list[tuple[str, str]]) -> dict[str, Spread]:
    return {f"{name}: {a} / {b}": Spread.of(np.array(seconds[a]) / np.array(seconds[b])) for a, b in pairs}


@torch.no_grad()
def run() -> dict[str, Spread]:
    """Return ratios of CPU time, ratios of errors and, where there is one, GPU milliseconds."""
    torch.set_num_threads(1)
    figures: dict[str, Spread] = {}
    loop = "Sherman-Morrison loop"
    for heads, tokens in SHAPES:
        candidates = _candidates(draw(heads, tokens))
        seconds = interleave(candidates, rounds=9, clock=time.thread_time, warm_up=1)
        pairs = [(name, loop) for name in candidates if name.startswith("chunk")]
        figures |= _ratios(f"{heads} x {tokens}", seconds, [*pairs, ("chunk", "causal SDPA")])
    qkv = draw(1, 512)
    loops = {m: lambda _, m=m: ridge_attention(*qkv, penalty=1e-2, method=m) for m in ("solve", "cholesky")}
    loops[loop] = lambda _: ridge_attention(*qkv, penalty=1e-2, method="sherman_morrison")
    seconds = interleave(loops, rounds=7, clock=time.thread_time, warm_up=1)
    figures |= _ratios("1 x 512", seconds, [("solve", loop), ("cholesky", loop)])

    four = draw(4, 2048)
    ranks = {
        "4-D": four,
        "4-D, one head": draw(1, 2048),
        "2-D": [x.reshape(-1, WIDTH)[:2048] for x in draw(1, 2048)],
    }
    ranks |= {"3-D": [x[0] for x in four], "5-D": [x.reshape(1, 2, 2, 2048, WIDTH) for x in four]}
    calls = {name: lambda _, x=x: ridge_attention(*x, penalty=1e-2) for name, x in ranks.items()}
    seconds = interleave(calls, rounds=15, clock=time.thread_time)
    figures |= _ratios("2048 tokens", seconds, [("2-D", "4-D, one head"), ("3-D", "4-D"), ("5-D", "4-D")])

    for penalty in (1.0, 1e-2, 1e-4):
        errors: dict[str, list[float]] = {loop: [], "chunk": [], "chunk, refreshed every 8": []}
        for seed in range(3):
            qkv = draw(1, 4096, seed=seed)
            exact = ridge_attention(*(x.double() for x in qkv), penalty=penalty, method="solve")
            ridge = partial(ridge_attention, *qkv, penalty=penalty)
            for name, y in (
                (loop, ridge(method="sherman_morrison")),
                ("chunk", ridge()),
                ("chunk, refreshed every 8", ridge(refresh_every=8)),
            ):
                errors[name].append(float((y - exact).norm() / exact.norm()))
        for name, found in errors.items():
            figures[f"lambda {penalty:g}: error of {name}, in 1e-6"] = Spread.of(1e6 * np.array(found))
    return figures | (_on_gpu() if torch.cuda.is_available() else {})


def _on_gpu() -> dict[str, Spread]:
    qkv = [x.cuda() for x in draw(16, 4096)]

    def timed(call, round_):
        call(round_)
        torch.cuda.synchronize()

    candidates = {name: partial(timed, call) for name, call in _candidates(qkv).items() if "loop" not in name}
    seconds = interleave(candidates, rounds=9, clock=time.perf_counter)
    return {
        f"GPU, 16 x 4096: {name}, ms": Spread.of(1e3 * np.array(values)) for name, values in seconds.items()
    }
