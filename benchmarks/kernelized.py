"""Attention with the quadratic kernel in linear time: narrow heads, many heads, training, accuracy, input shapes.

One head and float32 unless a row says otherwise; ratios are linear / SDPA, where less than 1 means that the linear
form is faster. The table over all lengths for head_dim 64 is that of `benchmarks.attention`, whose memory is
measured here: the growth of the peak resident set during one call, in a process of its own (Linux).
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.timing import Spread, interleave
from course_lib.attention.kernelized import Quadratic, crossover_length, kernel_attention, linear_attention

ROUNDS = 7
LENGTHS = tuple(2**power for power in range(8, 14))
HEAD_DIMS = (16, 32)
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"

_PEAK = """
import json, sys, torch
from pathlib import Path
from benchmarks.attention import ways
from benchmarks.kernelized import tensors
torch.set_num_threads(1)
torch.set_grad_enabled(False)
name, length, causal = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True"
ways(*tensors(256), causal=causal)[name]()  # what is loaded at the first call belongs to no call

def resident(field):
    line = next(li for li in Path("/proc/self/status").read_text().splitlines() if li.startswith(field))
    return int(line.split()[1]) / 1024

call = ways(*tensors(length), causal=causal)[name]
Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
before = resident("VmRSS")
call()
print(json.dumps(resident("VmHWM") - before))
"""


def tensors(length: int, *, heads: int = 1, head_dim: int = 64, grad: bool = False) -> list[torch.Tensor]:
    """Return q, k and v of one sequence, (1, heads, length, head_dim)."""
    generator = torch.Generator().manual_seed(length)
    shape = (1, heads, length, head_dim)
    made = [torch.randn(shape, generator=generator).to(DEVICE) for _ in range(3)]
    return [t.requires_grad_(grad) for t in made]


def _on_device(call: Callable) -> Callable:
    """Wait for a GPU inside the call, so that the clock sees its work."""

    def waited(*_):
        call()
        if ON_GPU:
            torch.cuda.synchronize()

    return waited


def call_linear(inputs, causal: bool) -> Callable:
    """Return a call of the quadratic kernel in linear time."""
    return lambda: linear_attention(*inputs, feature_map=Quadratic(), causal=causal)


def call_sdpa(inputs, causal: bool) -> Callable:
    """Return a call of softmax attention."""
    return lambda: scaled_dot_product_attention(*inputs, is_causal=causal)


def seconds_of(candidates: dict[str, Callable], *, rounds: int = ROUNDS) -> dict[str, np.ndarray]:
    """Interleave calls without arguments and return the seconds that each took."""
    clock = time.perf_counter if ON_GPU else time.thread_time
    waited = {name: _on_device(call) for name, call in candidates.items()}
    seconds = interleave(waited, rounds=rounds, clock=clock, warm_up=1)
    return {name: np.array(values) for name, values in seconds.items()}


def _ratio(candidates: dict[str, Callable], *, rounds: int = ROUNDS) -> Spread:
    """Interleave two calls and return the spread of first / second."""
    first, second = seconds_of(candidates, rounds=rounds).values()
    return Spread.of(first / second)


def _against_sdpa(length: int, causal: bool, **options) -> Spread:
    inputs = tensors(length, **options)
    rounds = ROUNDS if length * options.get("heads", 1) >= 4096 else 2 * ROUNDS
    return _ratio({"linear": call_linear(inputs, causal), "sdpa": call_sdpa(inputs, causal)}, rounds=rounds)


def crossing(lengths, ratios) -> float:
    """Return the length from which on the ratio stays below 1, between two measured ones on a log-log line."""
    above = [i for i, ratio in enumerate(ratios) if ratio >= 1]
    if not above:
        return float(lengths[0])
    if above[-1] == len(lengths) - 1:
        return float("inf")
    left = above[-1]
    x, y = np.log(lengths[left : left + 2]), np.log(ratios[left : left + 2])
    return float(np.exp(x[0] - y[0] * (x[1] - x[0]) / (y[1] - y[0])))


def peak_memory(name: str, length: int, causal: bool) -> Spread:
    """Return by how many MiB the peak resident set grows during one call of a way to attend."""
    command = [sys.executable, "-c", _PEAK, name, str(length), str(causal)]
    return Spread.of([json.loads(subprocess.check_output(command))])


def _relative_error(length: int, causal: bool) -> Spread:
    inputs = tensors(length)
    exact = kernel_attention(*(t.double() for t in inputs), similarity=Quadratic().similarity, causal=causal)
    found = linear_attention(*inputs, feature_map=Quadratic(), causal=causal)
    return Spread.of([1e7 * float((found - exact).norm() / exact.norm())])


def _training(length: int, causal: bool) -> Spread:
    inputs = tensors(length, grad=True)

    def step(call: Callable) -> Callable:
        return lambda: call().sum().backward()

    linear = step(lambda: linear_attention(*inputs, feature_map=Quadratic(), causal=causal))
    softmax = step(lambda: scaled_dot_product_attention(*inputs, is_causal=causal))
    return _ratio({"linear": linear, "sdpa": softmax})


def run() -> dict[str, Spread]:
    """Measure all rows."""
    torch.set_num_threads(1)
    rows: dict[str, Spread] = {}
    suffix = ", GPU" if ON_GPU else ""
    for causal in (False, True):
        kind = "causal, " if causal else ""
        for head_dim in HEAD_DIMS:
            ratios = [_against_sdpa(n, causal, head_dim=head_dim) for n in LENGTHS]
            name = f"{kind}D={head_dim}{suffix}"
            for length, ratio in zip(LENGTHS, ratios, strict=True):
                rows[f"linear / SDPA, {name}, N={length}"] = ratio
            measured = [crossing(LENGTHS, [getattr(r, q) for r in ratios]) for q in ("q25", "median", "q75")]
            if np.isfinite(measured).all():
                rows[f"crossover N measured, {name}"] = Spread.of(measured)
            features = Quadratic().n_features(head_dim)
            predicted = crossover_length(head_dim, head_dim, n_features=features, causal=causal)
            rows[f"crossover N predicted, {name}"] = Spread.of([predicted])
        rows[f"linear / SDPA, {kind}D=64{suffix}, 16 heads, N=4096"] = _against_sdpa(4096, causal, heads=16)
        rows[f"relative error times 1e7, {kind}D=64{suffix}, N=4096"] = _relative_error(4096, causal)
        rows[f"linear / SDPA, {kind}D=64{suffix}, N=8192, forward and backward"] = _training(8192, causal)
    four = tensors(4096)
    for dims, reshape in ((2, lambda t: t[0, 0]), (3, lambda t: t[0]), (5, lambda t: t[None])):
        other = [reshape(t) for t in four]
        rows[f"{dims}-D / 4-D input{suffix}, N=4096"] = _ratio(
            {"other": call_linear(other, False), "four": call_linear(four, False)}, rounds=3 * ROUNDS
        )
    return rows
