"""What remains of each optimiser's lead when the inputs are rotated: one small network, inputs of unequal scale.

Each arm is trained for 200 full-batch steps on five problems, on the inputs' own axes and after a rotation of inputs and
start. Step sizes are powers of two; as long as the best lies at the edge of those tried, another is added. The best has the
lowest mean of the final training loss over the five seeds, on each kind of inputs by itself.
"""

import torch

from course_lib.lessons.steepest_descent.rotated import (
    on_principal_axes,
    problems,
    rotated,
    standardised,
    train,
    whitened,
)

SEEDS = (0, 1, 2, 3, 4)
FIRST = {
    "gradient": 3,
    "l2": 3,
    "sign": -3,
    "spectral": 0,
    "adam": -2,
}  # log2 of the largest step size tried at first
DIVERGED = 10.0  # a larger mean loss is stored as null
# kind of step: prepare the inputs, method
STEPS = {
    "gradient descent": (None, "gradient"),
    "L2 step": (None, "l2"),
    "sign step": (None, "sign"),
    "spectral step": (None, "spectral"),
    "L2 step, inputs standardised": (standardised, "l2"),
    "L2 step, inputs whitened": (whitened, "l2"),
    "spectral step, inputs whitened": (whitened, "spectral"),
    "sign step, principal axes": (on_principal_axes, "sign"),
    "sign step, inputs whitened": (whitened, "sign"),
}
MOMENTUM = 0.9
SETTINGS = {
    "steps": 200,
    "points": 256,
    "network": "16-32-4",
    "momentum": MOMENTUM,
    "step sizes": "powers of two",
}
# name: prepare the inputs, method, momentum. Adam averages over 10 gradients by itself.
ARMS = {
    **{name: (*kind, 0.0) for name, kind in STEPS.items()},
    **{f"{name}, momentum": (*kind, MOMENTUM) for name, kind in STEPS.items()},
    "Adam": (None, "adam", 0.0),
}


def swept(problem, method: str, momentum: float) -> dict:
    """Return the best step size, its final losses by seed, and the mean loss at each step size tried."""
    powers = [FIRST[method] - k for k in range(5)]
    found = {}
    while powers:
        losses = train(problem, method, [2.0**power for power in powers], momentum=momentum)[-1]
        found |= dict(zip(powers, torch.nan_to_num(losses, nan=torch.inf).T.tolist(), strict=True))
        means = {power: sum(row) / len(row) for power, row in found.items()}
        best = min(sorted(means), key=means.get)
        powers = [best - 1] if best == min(means) else [best + 1] if best == max(means) else []
    return {
        "best step size": 2.0**best,
        "losses": [round(loss, 4) for loss in found[best]],
        "mean loss by step size": {
            f"{2.0**power:g}": round(means[power], 4) if means[power] < DIVERGED else None
            for power in sorted(means)
        },
    }


def run() -> dict:
    """Return the sweep of each arm on the axes and rotated, and with all weights of the first layer rotated at random."""
    torch.set_num_threads(1)
    drawn, found = problems(SEEDS), {}
    for name, (prepare, method, momentum) in ARMS.items():
        for kind, problem in (("axes", drawn), ("rotated", rotated(drawn))):
            found[f"{name}, {kind}"] = swept(prepare(problem) if prepare else problem, method, momentum)
    mixed = problems(SEEDS, mixed=True)
    for name in ("L2 step", "sign step", "spectral step"):
        found[f"{name}, mixed"] = swept(mixed, ARMS[name][1], 0.0)
    return found
