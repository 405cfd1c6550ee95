"""Selective copying: the last flagged number, held by five memories of equal size, and by a fixed one with more of all.

500 steps of 16 texts of 64 tokens, a tenth of them flagged; five seeds. Each arm's step size is the one of three with
the lowest median error on texts for choosing; the errors are those on other texts, and on texts of 400 tokens with flags
a fifth as frequent. An error is squared and divided by that of the answer 0.
"""

from statistics import median

import torch
from tqdm import tqdm

from benchmarks.timing import Spread
from course_lib.architectures.selective_copying import (
    MEMORIES,
    CopyNetworks,
    copy_errors,
    parameter_count,
    train_to_copy,
    units_for,
)

SEEDS = (0, 1, 2, 3, 4)
RATES = (0.003, 0.01, 0.03)
STEPS, PARAMETERS = 500, 1700
SETTINGS = {"steps": STEPS, "batch": 16, "parameters": PARAMETERS, "step sizes": list(RATES)}
WIDE, LONG = "fixed, four times the parameters", "fixed, three times the steps"
EVERY = 10  # a point of a learning curve is the mean loss of so many steps


def trained(memory: str, rate: float, *, parameters: int, steps: int) -> dict:
    """Train one arm at one step size with all seeds; its errors and its learning curve."""
    networks = CopyNetworks(memory, units=units_for(memory, parameters=parameters), seeds=SEEDS)
    losses = train_to_copy(networks, seeds=SEEDS, step_size=rate, steps=steps, batch=16)
    choosing = [100 + seed for seed in SEEDS]
    return {
        "rate": rate,
        "chosen by": median(copy_errors(networks, seeds=choosing).tolist()),
        "64 tokens": copy_errors(networks, seeds=SEEDS).tolist(),
        "400 tokens": copy_errors(networks, seeds=SEEDS, length=400, share=0.02).tolist(),
        "curve": losses.view(steps // EVERY, EVERY, -1).mean(1).median(-1).values.tolist(),
        "parameters": parameter_count(memory, networks.units),
        "units": networks.units,
    }


def run() -> dict[str, object]:
    """Return errors, step sizes and learning curves by arm."""
    torch.set_num_threads(1)
    arms = {memory: (memory, PARAMETERS, STEPS) for memory in MEMORIES}
    arms |= {WIDE: ("fixed", 4 * PARAMETERS, STEPS), LONG: ("fixed", PARAMETERS, 3 * STEPS)}
    rows: dict[str, object] = {}
    for arm, (memory, parameters, steps) in tqdm(arms.items()):
        tried = [trained(memory, rate, parameters=parameters, steps=steps) for rate in RATES]
        best = min(tried, key=lambda one: one["chosen by"])
        for texts in ("64 tokens", "400 tokens"):
            rows[f"{arm}: {texts}"] = Spread.of(best[texts])
            rows[f"{arm}: {texts}, by seed"] = [round(error, 5) for error in best[texts]]
        rows[f"{arm}: by step size"] = {f"{one['rate']:g}": round(one["chosen by"], 5) for one in tried}
        rows[f"{arm}: step size"] = best["rate"]
        rows[f"{arm}: parameters"], rows[f"{arm}: units"] = best["parameters"], best["units"]
        rows[f"{arm}: curve"] = [round(loss, 4) for loss in best["curve"]]
        tqdm.write(
            f"{arm}: {rows[f'{arm}: 64 tokens']}; {rows[f'{arm}: 400 tokens']}; {rows[f'{arm}: by step size']}"
        )
    return rows
