"""Attention for 2 to 5 dimensions: this course's entry point and torch's own call, against torch's 4-D call.

One head of width 64 in float32. On a CPU the clock is CPU time of one thread; with a GPU the same calls run there
too, in wall time with the device synchronised.
"""

import time

import numpy as np
import torch
from torch.nn import functional

from benchmarks.timing import Spread, interleave
from course_lib.attention.scaled_dot_product import attention

LEADS = {2: (), 3: (1,), 4: (1, 1), 5: (1, 1, 1)}
ROUNDS = 41


def _ratios(length: int, device: str) -> dict[str, Spread]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, length, 64, generator=generator).to(device)
    inputs = {n: [x.view(*lead, length, 64) for x in (q, k, v)] for n, lead in LEADS.items()}
    # Several calls a round, so that one round takes milliseconds and the clock's grain does not matter.
    repeats = max(1, 2048 // length)

    def candidate(form, n):
        def call(_round: int) -> None:
            for _ in range(repeats):
                form(*inputs[n])
            if device == "cuda":
                torch.cuda.synchronize()

        return call

    torchs = functional.scaled_dot_product_attention
    calls = {"base": candidate(torchs, 4)}
    calls |= {f"attention, {n}-D": candidate(attention, n) for n in LEADS}
    calls |= {f"torch, {n}-D": candidate(torchs, n) for n in (3, 5)}
    clock = time.thread_time if device == "cpu" else time.perf_counter
    seconds = {name: np.array(spent) for name, spent in interleave(calls, rounds=ROUNDS, clock=clock).items()}
    base = seconds.pop("base")
    return {
        f"{device}, N = {length}: {name} / torch, 4-D": Spread.of(spent / base)
        for name, spent in seconds.items()
    }


def run() -> dict:
    """Return the ratio of each call to torch's call with 4 dimensions."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
        return {
            name: spread
            for device in devices
            for length in (512, 2048)
            for name, spread in _ratios(length, device).items()
        }
    finally:
        torch.set_num_threads(threads)
