"""Lesson 10's long run: two corner shapes, trained in the left half of an image and asked about in both halves.

Nine arms, five seeds (images, start and batches), 1,000 images, 15 epochs, six step sizes for Adam, and larger ones as
long as the largest is the best. Four arms see each image shifted by a random number of columns, past the edge and in
again; one of these is trained ten times as long. The step size with the largest mean accuracy on 1,000 further images of
the left half is kept; what is stored is the accuracy on 2,000 held-out images of each half.
"""

from collections.abc import Sequence

import torch

from course_lib.lessons.convolution.corners import (
    CONV,
    DENSE,
    EPOCHS,
    MAX,
    MEAN,
    OWN,
    SIZE,
    accuracy,
    data,
    train,
    weights,
)

SEEDS = (0, 1, 2, 3, 4)
RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)
LONG = 10
ARMS = {
    DENSE: {"name": DENSE},
    CONV: {"name": CONV},
    MAX: {"name": MAX},
    MEAN: {"name": MEAN},
    OWN: {"name": OWN},
    f"{DENSE}, shifted images": {"name": DENSE, "shifts": SIZE},
    f"{CONV}, shifted images": {"name": CONV, "shifts": SIZE},
    f"{OWN}, shifted images": {"name": OWN, "shifts": SIZE},
    f"{CONV}, shifted images, ten times as long": {"name": CONV, "shifts": SIZE, "epochs": LONG * EPOCHS},
}
SETTINGS = {
    "images": 1000,
    "epochs": EPOCHS,
    "step sizes": [RATES[0], RATES[-1]],
    "held out of each half": 2000,
}


def swept(name: str, rates: Sequence[float] = RATES, **options) -> dict:
    """Return the best step size of an arm, its accuracies by seed, and what was chosen from."""
    found, rates = {}, list(rates)
    for rate in rates:
        networks = [train(name, *data(seed)["train"], rate=rate, seed=seed, **options) for seed in SEEDS]
        found[rate] = {
            half: [
                accuracy(network, *data(seed)[half]) for network, seed in zip(networks, SEEDS, strict=True)
            ]
            for half in ("choose", "left", "right")
        }
        chosen = {rate: sum(one["choose"]) / len(SEEDS) for rate, one in found.items()}
        best = max(chosen, key=chosen.get)
        if best == rate == rates[-1]:
            rates.append(round(3 * rate, 4))
    return {
        "step size": best,
        "at an end of the grid": best in (rates[0], rates[-1]),
        "weights": weights(name),
        "left": [round(value, 4) for value in found[best]["left"]],
        "right": [round(value, 4) for value in found[best]["right"]],
        "by step size": [round(value, 4) for value in chosen.values()],
        "right by step size": [round(sum(one["right"]) / len(SEEDS), 4) for one in found.values()],
    }


def run() -> dict:
    """Return what was found, by arm."""
    torch.set_num_threads(1)
    return {arm: swept(**options) for arm, options in ARMS.items()}
