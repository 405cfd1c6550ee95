"""Attention that goes on from a state: a token of decoding, decay in chunks, and the delta rule in chunks.

Float32, one sequence, head_dim 64; one thread and its CPU time, candidates in turn. "memory-traffic floor" is a copy of
the sums U and z, which a token that is added to them at once has to read and to write.
"""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, scaled_dot_product_attention

from benchmarks.timing import Spread, interleave
from course_lib.attention.kernelized import PENDING, Quadratic, elu_features, linear_attention
from course_lib.attention.ridge import delta_rule, delta_rule_loop

HEADS, HEAD_DIM = 16, 64


def tensors(heads: int, length: int, *, seed: int = 0) -> list[Tensor]:
    """Return q, k and v, (1, heads, length, 64)."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(1, heads, length, HEAD_DIM, generator=generator) for _ in range(3)]


def decode(feature_map: Callable) -> Callable:
    """Return a call that takes one token more, each time, behind a prompt of 256 tokens."""
    form = partial(linear_attention, feature_map=feature_map, causal=True, return_state=True)
    held, token = [form(*tensors(HEADS, 256))[1]], tensors(HEADS, 1, seed=1)

    def step(_):
        _, held[0] = form(*token, initial_state=held[0])

    return step


def cached(context: int) -> Callable:
    """Return a call that adds one token to a cache of that length in place and attends to all of it."""
    _, keys, values = tensors(HEADS, context)
    q, k, v = tensors(HEADS, 1, seed=1)

    def step(round_):
        keys[:, :, round_ % context], values[:, :, round_ % context] = k[:, :, 0], v[:, :, 0]
        scaled_dot_product_attention(q, keys, values)

    return step


def _ratio(candidates: dict[str, Callable], *, rounds: int, mean_of: int = 1) -> dict[str, Spread]:
    """Return each candidate over the last one; times are means of `mean_of` neighbouring rounds."""
    seconds = interleave(candidates, rounds=rounds, clock=time.thread_time, warm_up=2)
    means = {name: np.array(values).reshape(-1, mean_of).mean(1) for name, values in seconds.items()}
    *names, last = means
    return {f"{name} / {last}": Spread.of(means[name] / means[last]) for name in names}


@torch.no_grad()
def run() -> dict[str, Spread]:
    """Return ratios of CPU time."""
    torch.set_num_threads(1)
    rows: dict[str, Spread] = {}
    sums = torch.randn(HEADS, Quadratic().n_features(HEAD_DIM), HEAD_DIM + 1)
    # A round of 64 tokens holds one in which the waiting ones are added.
    often = {"rounds": 9 * PENDING, "mean_of": PENDING}
    quadratic, elu = decode(Quadratic()), decode(elu_features)
    rows |= _ratio({"a token, quadratic": quadratic, "memory-traffic floor": lambda _: sums.clone()}, **often)
    for context in (1_000, 4_000, 16_000):
        candidates = {"a token, quadratic": quadratic, "a token, elu": elu}
        rows |= _ratio({**candidates, f"softmax with a cache of {context:,}": cached(context)}, **often)

    for name, feature_map, length in (("elu", elu_features, 8192), ("quadratic", Quadratic(), 4096)):
        call = partial(linear_attention, *tensors(1, length), feature_map=feature_map, causal=True)
        fading = torch.rand(1, 1, length, generator=torch.Generator().manual_seed(2)) ** 0.01
        candidates = {f"decay in chunks, {name}": lambda _, c=call, d=fading: c(decay=d)}
        rows |= _ratio({**candidates, f"without decay, N={length:,}": lambda _, c=call: c()}, rounds=9)

    q, k, v = tensors(1, 4096)
    k = normalize(k, dim=-1)
    candidates = {"delta rule in chunks": lambda _: delta_rule(q, k, v)}
    rows |= _ratio({**candidates, "its loop, N=4,096": lambda _: delta_rule_loop(q, k, v)}, rounds=7)
    return rows
