"""The experiment of `rotated` with a step size for each layer, and for a teacher that sees the raw inputs.

With one size for both layers, part of a lead may be the balance of the layers. Here both sizes are tried, the second
layer's as a ratio to the first's: a coarse grid comes first, then the neighbours of the best pair, factors of 2 in one or
both, until all eight have been tried. The best pair has the lowest mean of the final training loss over the five seeds.
"""

from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context

import torch

from benchmarks.rotated import DIVERGED, SEEDS, SETTINGS, STEPS
from course_lib.lessons.steepest_descent.rotated import Problems, problems, rotated, train

# log2 of the first layer's step sizes tried at first, and of the second layer's size over it
FIRST = {"l2": (1, 3, 5), "sign": (-4, -2, 0), "spectral": (-1, 1, 3)}
FIRST_RATIOS = (-5, -3, -1)
SETTINGS = {**SETTINGS, "momentum": 0.0}
ARMS = {
    "axes": ("L2 step", "sign step", "spectral step"),
    "rotated": (
        "L2 step",
        "sign step",
        "spectral step",
        "sign step, principal axes",
        "L2 step, inputs whitened",
        "spectral step, inputs whitened",
    ),
    "raw teacher": (
        "L2 step",
        "sign step",
        "spectral step",
        "sign step, principal axes",
        "L2 step, inputs whitened",
    ),
    "mixed": ("spectral step",),
}


def drawn(kind: str) -> Problems:
    """Return the problems of a kind of inputs; where the teacher sees the raw inputs, they are rotated."""
    if kind == "axes":
        return problems(SEEDS)
    if kind == "mixed":
        return problems(SEEDS, mixed=True)
    return rotated(problems(SEEDS, raw_teacher=kind == "raw teacher"))


def swept(arm: str, kind: str) -> dict:
    """Return the best pair of step size and ratio, its final losses by seed, and the mean loss at each pair tried."""
    torch.set_num_threads(1)
    prepare, method = STEPS[arm]
    problem = prepare(drawn(kind)) if prepare else drawn(kind)
    pairs, found = list(product(FIRST[method], FIRST_RATIOS)), {}
    while pairs:
        sizes, ratios = ([2.0**power for power in column] for column in zip(*pairs, strict=True))
        losses = train(problem, method, sizes, ratios=ratios)[-1]
        found |= dict(zip(pairs, torch.nan_to_num(losses, nan=torch.inf).T.tolist(), strict=True))
        means = {pair: sum(row) / len(row) for pair, row in found.items()}
        size, ratio = best = min(sorted(means), key=means.get)
        around = product((size - 1, size, size + 1), (ratio - 1, ratio, ratio + 1))
        pairs = [pair for pair in around if pair not in found]
    return {
        "best step size": 2.0**size,
        "best ratio": 2.0**ratio,
        "losses": [round(loss, 4) for loss in found[best]],
        "mean loss by log2 of step size and ratio": {
            f"{size}, {ratio}": round(mean, 4) if mean < DIVERGED else None
            for (size, ratio), mean in sorted(means.items())
        },
    }


def run() -> dict:
    """Return the sweep of each arm on each kind of inputs, two at a time."""
    wanted = [(arm, kind) for kind, arms in ARMS.items() for arm in arms]
    with ProcessPoolExecutor(max_workers=2, mp_context=get_context("spawn")) as pool:
        found = []
        for pair, one in zip(wanted, pool.map(swept, *zip(*wanted, strict=True)), strict=True):
            print(pair, one["best step size"], one["best ratio"], one["losses"], flush=True)
            found.append((f"{pair[0]}, {pair[1]}", one))
    return dict(found)
