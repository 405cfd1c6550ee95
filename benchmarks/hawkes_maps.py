"""Lesson 31's maps of 40 places: what three penalties recover of a kernel through a hub and of straight waves, one seed.

The relative error of the kernel, and the share of the truth's gain in held-out likelihood; some minutes of one CPU thread.
"""

import torch

from course_lib.lessons.hawkes_tensor_recovery.pictures import MAP_SHARES, map_scores


def run() -> dict[str, float]:
    """Return both for each penalty and map."""
    torch.set_num_threads(1)
    found = {}
    for penalty in MAP_SHARES:
        for what, values in zip(("error", "share of gain"), map_scores(penalty), strict=True):
            for name, value in zip(("hub", "straight"), values.tolist(), strict=True):
                found[f"{penalty}: {name}, {what}"] = round(value, 4)
    return found
