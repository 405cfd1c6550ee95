"""Associative recall, keys that are written again, and copying: the accuracy of each form of attention on new texts.

One layer, one head of 16, 400 steps of 32 texts with 4, 8, 16 and 32 pairs (or tokens); three seeds,
each of which repeats itself to the rounding of the processor.
"""

import torch

from benchmarks.timing import Spread
from course_lib.attention.recall import FORMS, TASKS, compare_recall

SEEDS = (0, 1, 2)


def run(seeds: tuple[int, ...] = SEEDS) -> dict[str, Spread]:
    """Return shares of right answers."""
    torch.set_num_threads(1)
    rows: dict[str, Spread] = {}
    for task in TASKS:
        found = [compare_recall(task, seed=seed) for seed in seeds]
        for form in ("untrained", *FORMS):
            for size in found[0][form]:
                shares = [by_form[form][size] for by_form in found]
                rows[f"{task}, {size} pairs, {form}"] = Spread.of(shares)
    return rows
