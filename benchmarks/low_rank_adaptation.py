"""Lesson 25's long run: course-mbart learns a fifth language, and what is left of the four that it knew.

Each way of training (`measurements.ARMS`) runs with each of its rates and five seeds until its held-out loss on the fifth
language passes 2 nats a token. Stored are, one a seed, the `steps` that this took and the loss among the `old` languages
there; for two of them the run goes on to 1.4, and all that it learned is then turned down until the loss is 2 again.
"""

import torch
from tqdm.auto import tqdm

from course_lib.lessons.low_rank_adaptation import measurements
from course_lib.lessons.low_rank_adaptation.measurements import (
    ALPHA,
    BATCH,
    DEEPER,
    GOAL,
    SCORED,
    plan,
    teach,
    turned_down,
)

SEEDS = measurements.SEEDS
SETTINGS = {"alpha": ALPHA, "batch_size": BATCH, "scored": SCORED, "goal": GOAL, "deeper": DEEPER}


def run(settings=None) -> dict[str, list[float]]:
    """Return steps and old losses at the goal, and old losses after turning down."""
    torch.set_num_threads(1)
    rows = {"before": [round(v, 4) for v in measurements.losses(measurements.language()[0])]}
    for arm, rate, deeper in tqdm(list(plan() if settings is None else settings), desc="settings"):
        name = f"{arm.name}, rate {rate:g}"
        found = [
            teach(arm.rank, rate=rate, old=arm.old, seed=seed, goal=DEEPER if deeper else GOAL)
            for seed in SEEDS
        ]
        ends = [taught.at_goal() for taught in found]
        rows[f"{name}, steps"] = [round(steps, 1) for steps, _ in ends]
        rows[f"{name}, old"] = [round(old, 4) for _, old in ends]
        if deeper:
            turned = [turned_down(taught) for taught in found]
            rows[f"{name}, turned down, old"] = [round(old, 4) for _, old in turned]
    return rows
