"""A network that reads digits with wrong labels: nothing, dropout, the mean penalty of dropout, and weight decay.

Five splits of scikit-learn's digits: 200 images to train on, a share of 0.3 of their labels drawn anew, 300 to choose
by, the other 1,297 to score. One hidden layer of 128 units, squared error, 400 steps of Adam on all 200 images. Each arm
is tried with five settings (but for the one that has none) and five rates; of each run the look is taken, among one every
25 steps, that has the fewest wrong answers on the images to choose by. The pair of setting and rate with the lowest mean
there is kept, and what is stored is the share of wrong answers on the scored images, one figure a split.
"""

import torch

from course_lib.lessons.dropout.coins import (
    BOTH,
    BOTH_KEEP,
    CHOOSING,
    COINS,
    DECAY,
    INPUT_KEEP,
    INPUTS_TOO,
    MEAN,
    NOTHING,
    REDRAWN,
    STEPS,
    TRAINED,
    train,
)

SEEDS = (0, 1, 2, 3, 4)
RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
KEEPS, DECAYS = (0.65, 0.5, 0.35, 0.2, 0.1), (0.01, 0.02, 0.04, 0.08, 0.16)
GRIDS = {
    NOTHING: (1.0,),
    COINS: KEEPS,
    MEAN: KEEPS,
    DECAY: DECAYS,
    INPUTS_TOO: KEEPS,
    BOTH: DECAYS,
}
SETTINGS = {
    "trained on": TRAINED,
    "chosen by": CHOOSING,
    "labels drawn anew": REDRAWN,
    "steps": STEPS,
    "keep": list(KEEPS),
    "weight decay": list(DECAYS),
    "rates": list(RATES),
    "inputs kept": INPUT_KEEP,
    "kept beside weight decay": BOTH_KEEP,
}


def rounded(values: torch.Tensor) -> list[float]:
    """Return shares to four decimals."""
    return [round(float(v), 4) for v in values]


def run() -> dict:
    """Return for each arm the setting and rate that are best, their shares of wrong answers, and those of all others."""
    torch.set_num_threads(1)
    figures = {}
    for arm, grid in GRIDS.items():
        runs = {(setting, rate): train(arm, setting, rate, SEEDS) for setting in grid for rate in RATES}
        chosen = {pair: one.stopped()[0].mean() for pair, one in runs.items()}
        setting, rate = min(chosen, key=chosen.get)
        last = {pair: one.choosing[-1].mean() for pair, one in runs.items()}
        end = min(last, key=last.get)
        figures[arm] = {
            "setting": setting,
            "rate": rate,
            "wrong": rounded(runs[setting, rate].stopped()[1]),
            "wrong after the last step": rounded(runs[end].scored[-1]),
            "setting and rate for the last step": list(end),
            "choosing by setting": {
                f"{s:g}": round(min(float(chosen[s, r]) for r in RATES), 4) for s in grid
            },
            "choosing by rate": {f"{r:g}": round(min(float(chosen[s, r]) for s in grid), 4) for r in RATES},
        }
        print(arm, figures[arm], flush=True)
    return figures
