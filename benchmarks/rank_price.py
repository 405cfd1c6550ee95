"""What few features cost: the part of the values that weights of low rank cannot fetch, against features and tokens.

Each of N unit vectors in 8 dimensions has to fetch its own value; queries and keys are trained by Adam. All arms get the
same tokens, steps and rates; a figure is what is missed after the last step, one number for each seed. "best" is the
rate whose mean over the seeds is least.
"""

from statistics import mean

import torch

from course_lib.attention.retrieval import SOFTMAX, SQUARE, elu_form, learn_to_retrieve

SEEDS = (0, 1, 2, 3, 4)
SETTINGS = {"d": 8, "steps": 300, "rates": [0.01, 0.03, 0.1, 0.3, 1.0]}
ARMS = {
    "softmax": SOFTMAX,
    "square, C = 45": SQUARE,
    "elu + 1, C = 8": elu_form(8),
    "elu + 1, C = 45": elu_form(45),
}
LENGTHS = (8, 16, 32, 64)
FEATURES = (2, 4, 8, 16, 24, 32, 45, 64)
LONG = 3000  # steps of the runs that ask whether 300 were too few


def misses(form, *, length: int, step_size: float, steps: int) -> list[float]:
    """Return what is missed after the last step, one number for each seed."""
    runs = [
        learn_to_retrieve(form, length=length, step_size=step_size, seed=seed, steps=steps) for seed in SEEDS
    ]
    return [round(found[-1], 5) for _, found in runs]


def swept(name: str, form, *, length: int) -> dict[str, list[float] | float]:
    """Return the misses at every rate, the best rate and those at that."""
    by_rate = {
        rate: misses(form, length=length, step_size=rate, steps=SETTINGS["steps"])
        for rate in SETTINGS["rates"]
    }
    best = min(by_rate, key=lambda rate: mean(by_rate[rate]))
    rows = {f"N = {length}, {name}, rate {rate}": found for rate, found in by_rate.items()}
    return rows | {f"N = {length}, {name}": by_rate[best], f"N = {length}, {name}, best rate": best}


def run() -> dict[str, list[float] | float]:
    """Measure all arms against the number of tokens, and elu + 1 against the number of features."""
    torch.set_num_threads(1)
    rows: dict[str, list[float] | float] = {}
    for length in LENGTHS:
        for name, form in ARMS.items():
            rows |= swept(name, form, length=length)
    for count in FEATURES:
        if (name := f"elu + 1, C = {count}") not in ARMS:
            rows |= swept(name, elu_form(count), length=32)
    for name in ("square, C = 45", "elu + 1, C = 45"):
        rate = rows[f"N = 32, {name}, best rate"]
        rows[f"N = 32, {name}, {LONG} steps"] = misses(ARMS[name], length=32, step_size=rate, steps=LONG)
    return rows
