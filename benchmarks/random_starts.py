"""The worksheet's autoencoder from random starts: how many learn its four examples, by activation, start and optimiser.

A copy has learned them where its loss, which is 72 for an output of 0, is below 0.1 after 4,000 steps. For each arm the step
size is the one of a grid with which most of 100 starts learn (with ties, the lower median of the loss); the numbers that are
stored come from five times 100 other starts.
"""

import torch

from course_lib.lessons.autoencoders_by_hand.experiment import SOLVED, random_starts, train

SEEDS, TUNED_ON, COUNT = (1, 2, 3, 4, 5), 100, 100
RATES = tuple(0.000125 * 2**k for k in range(11))
ADAM_RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
STEPS, LONG = 4000, 20_000
SETTINGS = {
    "seeds": list(SEEDS),
    "rates": list(RATES),
    "adam_rates": list(ADAM_RATES),
    "steps": STEPS,
    "long": LONG,
}
ARMS: dict[str, dict] = {
    "as on the worksheet": {},
    "Adam": {"adam": True},
    "He's starts": {"he": True},
    "starts half as large": {"scale": 0.5},
    "64 units in layers 1 and 3": {"widths": (4, 64, 2, 64, 4)},
    "no gate at the output": {"output_leak": 1.0},
    "output biases start at 1": {"output_bias": 1.0},
    "all biases start at 1": {"bias": 1.0},
    "slope 0.01 below 0": {"leak": 0.01},
    "slope 0.1 below 0": {"leak": 0.1},
    "slope 0.3 below 0": {"leak": 0.3},
    "slope 0.1 below 0, Adam": {"leak": 0.1, "adam": True},
    "slope 0.1 backward only": {"backward_leak": 0.1},
    "slope 0.1 backward only, Adam": {"backward_leak": 0.1, "adam": True},
    "no gates": {"leak": 1.0},
}


def _figures(losses: torch.Tensor) -> tuple[list[int], list[float]]:
    return [int((one < SOLVED).sum()) for one in losses], [round(float(one.median()), 3) for one in losses]


def run() -> dict[str, list[int] | list[float] | float]:
    """Sweep the step sizes of every arm, then train fresh starts at the best."""
    torch.set_num_threads(1)
    rows: dict[str, list[int] | list[float] | float] = {}
    for arm, given in ARMS.items():
        adam = given.get("adam", False)
        options = {name: value for name, value in given.items() if name != "adam"}
        rates = ADAM_RATES if adam else RATES
        tuned = random_starts(COUNT, seed=TUNED_ON, **options).repeated(len(rates))
        sizes = torch.tensor(rates, dtype=torch.float64).repeat_interleave(COUNT)
        learned, medians = _figures(
            train(tuned, step_size=sizes, steps=STEPS, adam=adam).losses().view(len(rates), COUNT)
        )
        best = max(range(len(rates)), key=lambda k: (learned[k], -medians[k]))
        rows[f"{arm}, by rate"] = learned
        rows[f"{arm}, best rate"] = rates[best]
        starts = [random_starts(COUNT, seed=seed, **options) for seed in SEEDS]
        ended = [train(one, step_size=rates[best], steps=STEPS, adam=adam) for one in starts]
        rows[f"{arm}, learned"], rows[f"{arm}, median loss"] = _figures(
            torch.stack([one.losses() for one in ended])
        )
        for when, copies in (("start", starts), ("end", ended)):
            rows[f"{arm}, an output shut at the {when}"] = [
                int((one.shut_outputs() > 0).sum()) for one in copies
            ]
        if not given:
            alive = [one.shut_outputs() == 0 for one in starts]
            rows[f"{arm}, learned of those with no output shut"] = [
                int((one.losses()[open_] < SOLVED).sum()) for one, open_ in zip(ended, alive, strict=True)
            ]
            rows[f"{arm}, losses"] = sorted(round(float(v), 2) for one in ended for v in one.losses())
            long = torch.stack([train(one, step_size=rates[best], steps=LONG).losses() for one in starts])
            rows[f"{arm}, learned in {LONG} steps"], _ = _figures(long)
    return rows
