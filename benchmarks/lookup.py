"""Find one of 16 items by its content: attention with six kinds of scale, at three sizes of its first scores.

Ten seeds, 13 rates a factor of 2 apart (those of the smaller start are smaller by the factor of its weights); 100 steps of
Adam with 32 new examples each. Stored is the mean loss of the last 20 steps of each run, before the step is taken.
"""

import torch

from course_lib.lessons.attention_scaling import lookup

SEEDS = lookup.SEEDS
SETTINGS = {
    "items": lookup.ITEMS,
    "steps": lookup.STEPS,
    "examples a step": lookup.BATCH,
    "solved below": lookup.SOLVED,
    "rates": [lookup.RATES[0], lookup.RATES[-1]],
}


def run() -> dict:
    """Return for each arm, sigma and d the rates and the loss of every seed at each of them."""
    torch.set_num_threads(1)
    figures = {}
    for std, d in lookup.SETTINGS:
        for arm in lookup.ARMS:
            losses = lookup.end(lookup.train(arm, std=std, d=d))
            figures[f"{arm}, sigma {std:g}, d {d}"] = {
                "rates": [float(f"{rate:.6g}") for rate in lookup.rates_of(arm, std, d)],
                "losses": [[float(f"{loss:.3g}") for loss in row] for row in losses.tolist()],
            }
            print(arm, std, d, (losses < lookup.SOLVED).sum(0).tolist(), flush=True)
    return figures
