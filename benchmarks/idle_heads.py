"""Whether idle heads stay idle, and which factors must differ: lesson 28.

Layers of `course_lib.lessons.in_context_regression.measurements`, in float64; runs side by side see the same prompts.
"idle": eight starts of scale 0.05 and 0.1, with equal factors (share 0) and with factors off by up to 2%, for 8,000 steps at
rate 0.05 and 4,000 at 0.1. The other arms have five seeds and rate 0.05 for 6,000 steps: from scale 0.25 with one pair of
factors off by 2% and the other equal, and four independent normal factors of standard deviation 0.25. Prompts are those of
`flat_stretches`. "steps" is the first recorded step with an error on held-out prompts below 1.9, null where there is none;
"early" is the error after a time of 130, as in "allocation" there, and "error" that after the last step, both on 4,000 other
prompts.
"""

import torch

from course_lib.lessons.in_context_regression.measurements import (
    TASKS,
    factor_descent,
    first_below,
    followed,
    parted,
    products,
    starts,
)
from course_lib.theory.in_context_regression import mean_squared_error

SEEDS = (0, 1, 2, 3, 4)
STARTS = range(8)
SCALES = (0.05, 0.1)
SHARES = (0.02, 0)
RATES = (0.05, 0.1)
SETTINGS = {"rates": list(RATES), "scales": list(SCALES), "time": 400, "limit": 1.9, "every": 20, "batch": 32}
TIME, LIMIT, EVERY, BATCH = (SETTINGS[name] for name in ("time", "limit", "every", "batch"))
EARLY = 130  # steps times rate, as long as the allocations of `flat_stretches`


def beside(parts):
    """Return the factors of all arms, one after the other."""
    return tuple(map(torch.cat, zip(*parts, strict=True)))


def normal_factors():
    """Return q, k, o, v with independent normal entries of any sign."""
    q, v = starts(3, SEEDS, dtype=torch.float64)
    runs = []
    for seed in SEEDS:
        generator = torch.Generator().manual_seed(300 + seed)
        runs.append(
            [0.25 * torch.randn(t.shape[1:], generator=generator, dtype=t.dtype) for t in (q, q, v, v)]
        )
    return tuple(map(torch.stack, zip(*runs, strict=True)))


def run() -> dict[str, list[float | None]]:
    """Train every arm."""
    torch.set_num_threads(1)
    test = TASKS.draw(4000, generator=torch.Generator().manual_seed(2310), dtype=torch.float64)
    rows: dict[str, list[float | None]] = {}

    def record(names, factors, rate, time, each):
        errors, kept = followed(
            factors, steps=round(time / rate), seed=5000 + round(1000 * rate), step_size=rate, batch=BATCH,
            every=EVERY, prompts=300, take=factor_descent,
        )  # fmt: skip
        left = first_below(errors, LIMIT, every=EVERY)
        found = {
            kind: [
                round(float(mean_squared_error(test, *(t[run] for t in products(kept[at])))), 4)
                for run in range(len(left))
            ]
            for kind, at in (("early", round(EARLY / (rate * EVERY))), ("error", -1))
        }
        for place, name in enumerate(names):
            runs = slice(each * place, each * place + each)
            rows[f"{name}, steps"] = left[runs]
            rows.update({f"{name}, {kind}": values[runs] for kind, values in found.items()})
        print(names[0], "done", flush=True)

    for rate in RATES:
        names = [f"idle, scale {scale}, share {share}, rate {rate}" for scale in SCALES for share in SHARES]
        parts = [parted(3, share, STARTS, scale=scale) for scale in SCALES for share in SHARES]
        record(names, beside(parts), rate, TIME, 8)
    off, equal = parted(3, 0.02, SEEDS), parted(3, 0, SEEDS)
    arms = [(*off[:2], *equal[2:]), (*equal[:2], *off[2:]), normal_factors()]
    names = ["only q and k differ", "only o and v differ", "normal factors"]
    record(names, beside(arms), 0.05, 300, 5)
    return rows
