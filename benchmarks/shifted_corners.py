"""Lesson 10's rivals: each training image shifted by 0 to 8 columns, no corner cut; and images whose edges are joined.

Seeds, images and choice of the step size are those of `corners`. A network is trained for 15 epochs, and with shifted
images for five times as many. These, and the one with joined edges, have three step sizes, and larger ones as long as
the largest is the best.
"""

import torch

from benchmarks import corners
from course_lib.lessons.convolution.corners import CONV, EPOCHS, JOINED, MEAN, WHOLE

SEEDS = corners.SEEDS
FIVE = 5
THREE = {CONV: (0.01, 0.03, 0.1), MEAN: (0.1, 0.3, 1.0)}
ARMS = {}
for name in (CONV, MEAN):
    ARMS[f"{name}, shifted by 0 to 8"] = {"name": name, "shifts": WHOLE}
    ARMS[f"{name}, shifted by 0 to 8, five times as long"] = {
        "name": name,
        "shifts": WHOLE,
        "epochs": FIVE * EPOCHS,
        "rates": THREE[name],
    }
ARMS[JOINED] = {"name": JOINED, "rates": THREE[MEAN]}
SETTINGS = {
    "images": 1000,
    "epochs": EPOCHS,
    "largest shift": WHOLE - 1,
    "step sizes": [corners.RATES[0], corners.RATES[-1]],
    "held out of each half": 2000,
}


def run() -> dict:
    """Return what was found, by arm."""
    torch.set_num_threads(1)
    figures = {}
    for arm, options in ARMS.items():
        figures[arm] = corners.swept(**options)
        print(arm, figures[arm], flush=True)
    return figures
