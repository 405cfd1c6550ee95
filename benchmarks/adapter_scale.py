"""Two rules for an adapter's scale, trained: lesson 25.

course-mbart learns the fifth language for 16 steps of Adam with adapters of rank 2 and 32, s = alpha/r or alpha/sqrt(r)
(both 4 at rank 8), two rates and five seeds. Stored is the held-out loss after the last step, one a seed; and by how much
one step of plain gradient descent and of Adam moves the decoder's last states, for three ranks.
"""

import torch
from tqdm.auto import tqdm

from course_lib.lessons.low_rank_adaptation import measurements
from course_lib.lessons.low_rank_adaptation.measurements import (
    RANKS,
    RATES,
    SCALE_ALPHA,
    SCALES,
    STEP_RANKS,
    STEPS,
    first_steps,
    one_step,
)

SEEDS = measurements.SEEDS
SETTINGS = {"alpha": SCALE_ALPHA, "steps": STEPS, "ranks": list(RANKS), "rates": list(RATES)}


def run() -> dict[str, list[float]]:
    """Return how far one step moves the states, and the losses of every rule, rank and rate."""
    torch.set_num_threads(1)
    rows = {}
    for name, optimiser in (("SGD", torch.optim.SGD), ("Adam", torch.optim.Adam)):
        for rule in SCALES:
            for rank in STEP_RANKS:
                found = [one_step(rank, rule=rule, optimiser=optimiser, seed=seed) for seed in SEEDS]
                rows[f"one step, {name}, {rule}, rank {rank}"] = [float(f"{moved:.4g}") for moved in found]
    cells = [(rule, rank, rate) for rate in RATES for rule in SCALES for rank in RANKS]
    for rule, rank, rate in tqdm(cells, desc="settings"):
        found = [first_steps(rank, scale=SCALES[rule](rank), rate=rate, seed=seed) for seed in SEEDS]
        rows[f"{rule}, rank {rank}, rate {rate:g}"] = [round(loss, 3) for loss in found]
    return rows
