"""Attention trained through random features, with a new draw at each step or one that is kept, then made exact.

Every token of 16 has to fetch its own value (`course_lib.attention.trained_through`). All arms get the same texts, steps
and rates. A figure is a mean squared error on fresh texts after the last step, one number for each seed: `own` of the
attention that an arm was trained through, `exact` of softmax attention with the same matrices. "best" is the rate whose
mean exact error over the seeds is least.
"""

from statistics import mean

import torch

from course_lib.attention.trained_through import (
    Attend,
    Fetched,
    fresh_error,
    learn_to_fetch,
    through_features,
    through_softmax,
)

SEEDS = (0, 1, 2, 3, 4)
RATES = (0.05, 0.1, 0.2, 0.4, 0.8)
FEATURES = (16, 64, 256)
SETTINGS = {"rates": list(RATES), "steps": 80, "long": 320, "every": 20}
STEPS, LONG, EVERY = (SETTINGS[name] for name in ("steps", "long", "every"))
SCALES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)


def attention(arm: str, seed: int) -> Attend:
    """Return the attention that an arm is trained through: "softmax", "16 redrawn" or "16 kept"."""
    if arm == "softmax":
        return through_softmax
    m, kind = arm.split()
    return through_features(int(m), redrawn=kind == "redrawn", seed=seed)


ARMS = ("softmax", *(f"{m} {kind}" for m in FEATURES for kind in ("redrawn", "kept")))


def runs(arm: str, *, rate: float, steps: int, every: int | None = None) -> list[Fetched]:
    """Train an arm once for each seed."""
    return [
        learn_to_fetch(attention(arm, seed), step_size=rate, seed=seed, steps=steps, every=every)
        for seed in SEEDS
    ]


def rescaled(run: Fetched, seed: int) -> float:
    """Return the least exact error with the queries multiplied by any of nine numbers."""
    return min(fresh_error(scale * run.w_q, run.w_k, through_softmax, seed=seed) for scale in SCALES)


def run() -> dict[str, list[float] | list[list[float]] | float]:
    """Sweep the rates of every arm over 80 steps, and go on to 320 steps at the best."""
    torch.set_num_threads(1)
    rows: dict[str, list[float] | list[list[float]] | float] = {}
    for arm in ARMS:
        found = {rate: runs(arm, rate=rate, steps=STEPS) for rate in RATES}
        for rate, trained in found.items():
            rows[f"{arm}, rate {rate}, own"] = [round(one.own[-1], 5) for one in trained]
            rows[f"{arm}, rate {rate}, exact"] = [round(one.exact[-1], 5) for one in trained]
        best = min(RATES, key=lambda rate: mean(one.exact[-1] for one in found[rate]))
        rows[f"{arm}, best rate"] = best
        for kind in ("own", "exact"):
            rows[f"{arm}, {kind}"] = rows[f"{arm}, rate {best}, {kind}"]
        long = runs(arm, rate=best, steps=LONG, every=EVERY)
        rows[f"{arm}, {LONG} steps, own"] = [[round(loss, 5) for loss in one.own] for one in long]
        rows[f"{arm}, {LONG} steps, exact"] = [[round(loss, 5) for loss in one.exact] for one in long]
        rows[f"{arm}, {LONG} steps, rescaled"] = [
            round(rescaled(one, seed), 5) for one, seed in zip(long, SEEDS, strict=True)
        ]
    return rows
