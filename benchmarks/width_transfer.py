"""Which half of muP carries a step size from a narrow network to a wide one, and which lowers the loss: lesson 07.

The networks of the lesson, with Adam, at widths 32, 128 and 512, on five seeds, each with another teacher, start and stream
of data. Two halves, each as in the standard parametrization or as in muP: the readout's start, and the step sizes of the
layers. Every combination is trained for 120 steps with every power of two from 2^-12 to 2^-1. What is stored is the test
loss for each width, seed and step size. Rules that divide one step size by a number are read off the sweep.
"""

import math

import torch

from course_lib.lessons.maximal_update_parametrization import networks

SEEDS = (0, 1, 2, 3, 4)
SETTINGS = {
    "widths": list(networks.WIDTHS),
    "log2 of the step sizes": list(networks.EXPONENTS),
    "steps": 120,
    "batch": 32,
}


def run() -> dict:
    """Return the test losses of each combination by width: one row a seed, one number a step size, null where infinite."""
    torch.set_num_threads(1)

    def kept(loss: float) -> float | None:
        return float(f"{loss:.4g}") if math.isfinite(loss) else None

    return {
        f"start {start}, steps {steps}": {
            str(width): [
                [kept(loss) for loss in networks.losses(width, start=start, steps=steps, seed=seed)]
                for seed in SEEDS
            ]
            for width in networks.WIDTHS
        }
        for start in networks.STARTS
        for steps in networks.STEPS
    }
