"""Noisy rows of lesson 04's twelve points: one row a step, the same with clipped gradients, 4 rows and 16 rows a step.

Five problems with the same twelve places and errors of their own, 4,000 noisy rows each, noise 0.5 on each feature. Each
arm is tried with each step size. What is stored is the median excess of the mean of the last half of the weights over
40 runs, one figure a problem, and for each arm the step size that is best on 20 other runs of each problem.
"""

import math

import torch

from course_lib.lessons.multiplicative_noise.bursts import ARMS, NOISE, ROWS_READ, THRESHOLDS, excesses

SEEDS = (29, 30, 31, 32, 33)
STEP_SIZES = (0.001, 0.0014, 0.002, 0.003, 0.004, 0.008, 0.016, 0.032, 0.064, 0.1, 0.145, 0.175)
STEP_SIZES += (0.25, 0.35, 0.45, 0.55, 0.7, 0.9, 1.15, 1.4)
CHOOSING, SCORED = 20, 40
SETTINGS = {
    "noise": NOISE,
    "rows read": ROWS_READ,
    "problems": list(SEEDS),
    "runs": SCORED,
    "step sizes": list(STEP_SIZES),
    "clipped at": list(THRESHOLDS),
}


def run() -> dict:
    """Return for each arm the median excess by step size and problem, and the best step size with its figures."""
    torch.set_num_threads(1)
    figures = {}
    for arm in ARMS:
        by_size = excesses(arm, STEP_SIZES, SEEDS, runs=CHOOSING + SCORED)
        found = dict(zip(STEP_SIZES, by_size, strict=True))
        chosen = {s: float(one[:, :CHOOSING].median(1).values.log().mean()) for s, one in found.items()}
        best = min(chosen, key=chosen.get)
        medians = {
            s: [float(f"{float(v):.3g}") for v in one[:, CHOOSING:].median(1).values]
            for s, one in found.items()
        }
        figures[arm] = {
            "best step size": best,
            "excess": medians[best],
            "excess by step size": {f"{s:g}": values for s, values in medians.items()},
        }
        print(arm, best, medians[best], math.exp(min(chosen.values())), flush=True)
    return figures
