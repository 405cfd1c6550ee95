"""Lesson 11's long run: sixteen layers with and without batch norm, from weights of a quarter to twice He's size.

Arms: plain, plain with twice the steps (about the CPU time of batch norm), batch norm, and the statistics of the first
batch, kept as constants. Each arm and start is tried with step sizes in factors of two and five seeds; weights and batches
of a seed are the same for all. The step size with the smallest median loss over its last 20 batches, all fresh, is kept;
the figure is the loss on 4,000 test inputs. None stands for a run that blew up. Below 6 minutes of CPU time; another
processor rounds otherwise, and single runs differ there.
"""

import math
import statistics
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from course_lib.lessons.batch_norm.experiment import (
    ARMS,
    BATCH,
    DEPTH,
    FROZEN,
    NORMED,
    PLAIN,
    STEPS,
    TESTED,
    WIDTH,
    cost_of_a_constant,
    train_deep,
)

SEEDS = (0, 1, 2, 3, 4)
LONG = "plain, twice the steps"
STARTS = tuple(round(2.0 ** (k / 2), 4) for k in range(-4, 3))
CLOSE = (0.8409, 1.0, 1.1892)  # around the start at which the plain network learns
LAST = 20
GRIDS = {
    PLAIN: (sorted({*STARTS, *CLOSE}), [2.0**-k for k in range(1, 12)], STEPS),
    LONG: (list(CLOSE), [2.0**-k for k in range(1, 12)], 2 * STEPS),
    NORMED: (list(STARTS), [2.0**-k for k in range(8)], STEPS),
    FROZEN: (list(STARTS), [2.0**-k for k in range(2, 13)], STEPS),
}
SETTINGS = {
    "layers": DEPTH,
    "width": WIDTH,
    "batch": BATCH,
    "steps": STEPS,
    "test inputs": TESTED,
    "a constant costs": round(cost_of_a_constant(), 4),
}


def _kept(loss: float) -> float | None:
    return round(loss, 4) if math.isfinite(loss) and loss < 1e4 else None


def train_arm(arm: str, start: float) -> dict:
    """Train one arm from one start with all step sizes and seeds side by side."""
    torch.set_num_threads(1)
    _, rates, steps = GRIDS[arm]
    kind, seeds = PLAIN if arm == LONG else arm, list(SEEDS) * len(rates)
    every = [rate for rate in rates for _ in SEEDS]
    losses, tested = train_deep(kind, seeds=seeds, starts=[start] * len(seeds), rates=every, steps=steps)
    last = losses[-LAST:].mean(0).nan_to_num(nan=math.inf, posinf=math.inf)
    found = {}
    for place, rate in enumerate(rates):
        own = slice(place * len(SEEDS), (place + 1) * len(SEEDS))
        found[rate] = (statistics.median(last[own].tolist()), [_kept(loss) for loss in tested[own].tolist()])
    best = min(found, key=lambda rate: found[rate][0])
    return {
        "best step size": best,
        "test loss": found[best][1],
        "test loss by step size": {f"{rate:g}": scored for rate, (_, scored) in found.items()},
    }


def run() -> dict:
    """Return for each arm and start the best step size and the test loss of every seed, there and at all step sizes."""
    assert set(ARMS) < set(GRIDS)
    jobs = [(arm, start) for arm, (starts, _, _) in GRIDS.items() for start in starts]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        results = list(pool.map(train_arm, *zip(*jobs, strict=True)))
    return {f"{arm}, start {start:g}": figures for (arm, start), figures in zip(jobs, results, strict=True)}
