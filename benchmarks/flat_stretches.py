"""Who gets which task, and how long one head for each task lasts, with its rivals: lesson 28.

Layers of `course_lib.lessons.in_context_regression.measurements`. Runs side by side see the same prompts; each rate has
prompts of its own. "allocation": equal factors, 24 starts for each scale, 2,600 steps at rate 0.05 and 1,300 at 0.1; how
many end with different heads for the three tasks ("permutations"), how many of the 72 tasks end with the head that led
in u at the start ("kept"), and the errors on held-out prompts. The other arms start at scale 0.25 with five seeds and
train for the same time: 6,000 steps at rate 0.05, 3,000 at 0.1. "steps" is the first recorded step with an error on
held-out prompts below 1.9, null where there is none; "first" the same for 6; "error" is that after the last step, on
4,000 other prompts.
"""

import torch

from course_lib.lessons.in_context_regression.measurements import (
    TASKS,
    direct_descent,
    factor_descent,
    first_below,
    followed,
    parted,
    products,
    starts,
)
from course_lib.theory.in_context_regression import (
    factor_step,
    gradients,
    mean_squared_error,
    one_head_each,
    winners,
)

SEEDS = (0, 1, 2, 3, 4)
SHARES = (0.2, 0.02, 0.002, 0.0002)
SCALES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
STARTS = range(24)
RATES = (0.05, 0.1)
DIRECT = (0.0125, 0.025, 0.05, 0.1, 0.2)
ADAM = (0.001, 0.003, 0.01, 0.03, 0.1)
SETTINGS = {"rates": list(RATES), "shares": list(SHARES), "time": 300, "limit": 1.9, "every": 20, "batch": 32}
TIME, LIMIT, EVERY, BATCH = (SETTINGS[name] for name in ("time", "limit", "every", "batch"))


def adam(rate):
    """Return a step of Adam on factors, with a rate for each run."""
    moments = {}

    def take(factors, prompts, _):
        q, k, o, v = factors
        _, d_w, d_u = gradients(prompts, q * k, o * v)
        new = []
        step = moments["step"] = moments.get("step", 0) + 1
        for name, t, slope in zip("qkov", factors, (k * d_w, q * d_w, v * d_u, o * d_u), strict=True):
            mean, square = moments.get(name, (0, 0))
            mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope.square()
            moments[name] = mean, square
            new.append(t - rate * (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + 1e-8))
        return tuple(new)

    return take


def stacked(heads, shares):
    """Return the factors of all seeds for each share, one after the other."""
    return tuple(map(torch.cat, zip(*(parted(heads, share, SEEDS) for share in shares), strict=True)))


def allocations(rate) -> dict[str, list[float] | int]:
    """Train equal factors from 24 starts at each scale."""
    test = TASKS.draw(2000, generator=torch.Generator().manual_seed(2310))
    q, v = map(torch.cat, zip(*(starts(3, STARTS, scale=scale) for scale in SCALES), strict=True))
    leads, generator = winners(v), torch.Generator().manual_seed(round(1000 * rate))
    for _ in range(round(130 / rate)):
        _, q, v = factor_step(TASKS.draw(BATCH, generator=generator), q, v, rate)
    w, u = q.square(), v.square()
    errors, kept, different = mean_squared_error(test, w, u), (winners(u) == leads).sum(1), one_head_each(u)
    rows = {}
    for place, scale in enumerate(SCALES):
        name, runs = f"allocation, scale {scale}, rate {rate}", slice(24 * place, 24 * place + 24)
        rows[f"{name}, permutations"] = int(different[runs].sum())
        rows[f"{name}, kept"] = int(kept[runs].sum())
        rows[f"{name}, error"] = [round(x, 3) for x in errors[runs].tolist()]
    return rows


def run() -> dict[str, list[float | None] | int]:
    """Train every arm."""
    torch.set_num_threads(1)
    test = TASKS.draw(4000, generator=torch.Generator().manual_seed(2310), dtype=torch.float64)
    rows: dict[str, list[float | None] | int] = {}

    def record(names, parameters, rate, *, take, steps=None):
        errors, kept = followed(
            parameters, steps=steps or round(TIME / rate), seed=5000 + round(1000 * rate), step_size=rate,
            batch=BATCH, every=EVERY, prompts=300, take=take,
        )  # fmt: skip
        end = [round(float(mean_squared_error(test, *(t[run] for t in products(kept[-1]))))  , 4)
               for run in range(errors.shape[1])]  # fmt: skip
        left, first = (first_below(errors, limit, every=EVERY) for limit in (LIMIT, 6))
        for place, name in enumerate(names):
            runs = slice(5 * place, 5 * place + 5)
            rows.update(
                {f"{name}, steps": left[runs], f"{name}, first": first[runs], f"{name}, error": end[runs]}
            )
        print(names[0], "done", flush=True)

    for rate in RATES:
        rows |= allocations(rate)
        names = [f"share {share}, rate {rate}" for share in (*SHARES, 0)]
        record(names, stacked(3, (*SHARES, 0)), rate, take=factor_descent)
        names = [f"4 heads, share {share}, rate {rate}" for share in (0.02, 0)]
        record(names, stacked(4, (0.02, 0)), rate, take=factor_descent)
    record(["1 head, rate 0.05"], stacked(1, [0.02]), 0.05, take=factor_descent, steps=3000)

    def each(rates):
        return torch.tensor(rates, dtype=torch.float64).repeat_interleave(5)[:, None, None]

    w, u = (t.square().double().repeat(len(DIRECT), 1, 1) for t in starts(3, SEEDS))
    names = [f"direct, rate {rate}" for rate in DIRECT]
    record(names, (w, u), 0.05, take=lambda pair, prompts, _: direct_descent(pair, prompts, each(DIRECT)))
    take = adam(each(ADAM))
    record([f"Adam, rate {rate}" for rate in ADAM], stacked(3, [0.02] * len(ADAM)), 0.05, take=take)
    return rows
