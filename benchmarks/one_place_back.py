"""One layer of attention with its keys, queries or values mixed with another place's, against plain layers (lesson 26).

The task is to go on with a sequence that repeats (`course_lib.representation.one_place_back`). All arms of a seed get the
same sequences and 250 steps of Adam, one arm 750. A figure is the loss in nats on 256 test sequences, one number for each
seed. "best rate" has the least mean loss on 256 other sequences, which served for that only.
"""

from statistics import mean

import torch

from course_lib.representation.one_place_back import ARMS, loss_on, sequences, train, weights

SEEDS = (0, 1, 2, 3, 4)
SETTINGS = {"rates": [0.002, 0.005, 0.01, 0.02], "long_rates": [0.001, 0.002, 0.005, 0.01], "steps": 250,
            "every": 10}  # fmt: skip
RATES, LONG_RATES, STEPS, EVERY = (SETTINGS[name] for name in ("rates", "long_rates", "steps", "every"))
LONG = "one layer, 750 steps"
VALIDATION, TEST = 3000, 2000


def one(arm: str, *, seed: int, rate: float) -> tuple[float, list[float], list[float]]:
    """Train once; return the validation loss, the test losses on the way, and the shares of the heads, if there are any."""
    test, curve = sequences(256, TEST), []
    steps = 3 * STEPS if arm == LONG else STEPS
    model = train(
        "one layer" if arm == LONG else arm,
        seed=seed,
        rate=rate,
        steps=steps,
        every=EVERY,
        see=lambda _, model: curve.append(round(loss_on(model, *test), 5)),
    )
    shares = getattr(model.layers[0], "share", None)
    return loss_on(model, *sequences(256, VALIDATION)), curve, [] if shares is None else shares.tolist()


def run() -> dict[str, list[float] | list[list[float]] | float | int]:
    """Sweep the rates of every arm."""
    torch.set_num_threads(1)
    rows: dict[str, list[float] | list[list[float]] | float | int] = {}
    for arm in (*ARMS, LONG):
        rates = LONG_RATES if arm == LONG else RATES
        found = {rate: [one(arm, seed=seed, rate=rate) for seed in SEEDS] for rate in rates}
        best = min(rates, key=lambda rate: mean(loss for loss, _, _ in found[rate]))
        for rate in rates:
            rows[f"{arm}, rate {rate}"] = [curve[-1] for _, curve, _ in found[rate]]
        rows[f"{arm}, best rate"] = best
        rows[f"{arm}, loss"] = rows[f"{arm}, rate {best}"]
        rows[f"{arm}, weights"] = weights("one layer" if arm == LONG else arm)
        if arm in ("one layer", "keys, one place back", "two layers", "values, one place ahead"):
            rows[f"{arm}, curves"] = [curve for _, curve, _ in found[best]]
        if arm == "keys, one place back":
            rows[f"{arm}, shares"] = [[round(m, 3) for m in shares] for _, _, shares in found[best]]
    return rows
