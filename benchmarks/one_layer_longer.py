"""One layer of plain attention with more heads, more width and more steps (lesson 26).

The task is that of `one_place_back`: go on with a sequence that repeats. "N steps, loss" is the loss in nats on 256 test
sequences after N steps of Adam, one number for each seed, at the rate that is best for N: it has the least mean loss on 256
other sequences, which served for that only. 3,000 steps are made at the rate that is best for 750.
"""

from statistics import mean

import torch

from course_lib.representation.one_place_back import loss_on, sequences, train, weights

SEEDS = (0, 1, 2, 3, 4)
WIDE, HEADS = "twice the width", "16 heads, four times the width"
SETTINGS = {
    "wide_rates": [0.002, 0.003, 0.005],
    "heads_rates": [0.001, 0.002, 0.004],
    "steps": [250, 750],
    "last": 3000,
}
RATES = {WIDE: SETTINGS["wide_rates"], HEADS: SETTINGS["heads_rates"]}
TEST, VALIDATION = 2000, 3000


def one(arm: str, *, seed: int, rate: float, steps: int) -> dict[int, tuple[float, float]]:
    """Train once; return the validation and the test loss after each 250 steps."""
    seen = {}

    def see(step: int, model: torch.nn.Module) -> None:
        seen[step] = tuple(loss_on(model, *sequences(256, part)) for part in (VALIDATION, TEST))

    train(arm, seed=seed, rate=rate, steps=steps, every=250, see=see)
    return seen


def run() -> dict[str, list[float] | float | int]:
    """Sweep the rates of both arms; go on with the wider one, at the rate that is best after 750 steps."""
    torch.set_num_threads(1)
    rows: dict[str, list[float] | float | int] = {}
    for arm, rates in RATES.items():
        found = {rate: [one(arm, seed=seed, rate=rate, steps=750) for seed in SEEDS] for rate in rates}
        rows[f"{arm}, weights"] = weights(arm)
        for steps in SETTINGS["steps"]:
            best = min(rates, key=lambda rate: mean(seen[steps][0] for seen in found[rate]))
            rows[f"{arm}, {steps} steps, best rate"] = best
            rows[f"{arm}, {steps} steps, loss"] = [round(seen[steps][1], 5) for seen in found[best]]
    best, last = rows[f"{WIDE}, 750 steps, best rate"], SETTINGS["last"]
    rows[f"{WIDE}, {last} steps, best rate"] = best
    rows[f"{WIDE}, {last} steps, loss"] = [
        round(one(WIDE, seed=seed, rate=best, steps=last)[last][1], 5) for seed in SEEDS
    ]
    return rows
