"""Lesson 36: which units would one trust? Two minutes of one CPU thread.

Each figure is a list over the five dictionaries of `feature_choice`: `trusted` says what is kept of two TopK autoencoders,
`refitted` what of one with the largest L1 penalty.
"""

from typing import Any

import torch
from tqdm.auto import tqdm

from course_lib.lessons.feature_recovery import measurements as lesson

SEEDS = lesson.DICTIONARIES
SETTINGS = lesson.settings()


def run() -> dict[str, Any]:
    """Return a list over the dictionaries under the name of trainer and setting."""
    torch.set_num_threads(1)
    penalty = max(lesson.KNOBS["L1"])
    found: dict[str, Any] = {
        f"L1, {penalty:g}": [
            lesson.refitted(lesson.trained("L1", penalty, 0, dictionary=number), lesson.toy(number))
            for number in tqdm(SEEDS, desc="L1")
        ]
    }
    for k in tqdm(lesson.LOOKED_AT, desc="TopK"):
        found[f"TopK, {k}"] = [lesson.measure_units(k, number) for number in SEEDS]
    return found
