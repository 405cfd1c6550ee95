"""Which set of lags a small attention model comes to compare, by how it is trained: lesson 27.

Five ways to train for 400 steps on 800 players (`course_lib.lessons.induction_heads.measurements`), nine rates each and
five seeds. The rate is the smallest whose mean loss on validation players lies within 0.001 of the best; losses that are
stored without a rate are those on held-out players at that rate. "selector at a" trains the selector alone, the scale held.
"""

from statistics import mean

import torch

from course_lib.lessons.induction_heads.measurements import (
    ARMS,
    COUNT,
    DELTA,
    HELD,
    LENGTH,
    RATES,
    STEPS,
    best_reader,
    fixed_table,
    game,
    held_out,
    loss_on,
    named,
    shares,
    smoothed_reader,
    train_arm,
    train_selector,
    validation,
)
from course_lib.theory.markov_chains import cross_entropy, generalised_head, oracle

SETTINGS = {
    "delta": DELTA, "players": COUNT, "presses": LENGTH, "steps": STEPS, "rates": list(RATES), "held": list(HELD),
}  # fmt: skip
EXTRAS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
LONG, NEAR = 1600, 0.001


def rounded(values, digits: int = 4) -> list[float]:
    """Return floats as they are stored."""
    return [round(float(value), digits) for value in values]


def readers() -> dict[str, float]:
    """Return the losses on held-out players of all that the model is compared with."""
    chains, presses = held_out()
    seen, target = presses[:, :-1], presses[:, -1]
    tuning = validation()[1]

    def smoothed(lags, extra, known):
        return float(cross_entropy(smoothed_reader(known[:, :-1], lags, extra), known[:, -1]))

    found = {f"reader {lags}": generalised_head(seen, lags, 2) for lags in ((), (1,), (2,), (1, 2))}
    found |= {"one table": fixed_table(seen, game(8000, DELTA, seed=2400)[1]), "best": best_reader(seen, DELTA),
              "knows the player": oracle(chains, seen)}  # fmt: skip
    rows = {name: round(float(cross_entropy(answer, target)), 4) for name, answer in found.items()}
    for lags in ((1,), (1, 2)):
        extra = min(EXTRAS, key=lambda extra, lags=lags: smoothed(lags, extra, tuning))
        rows[f"smoothed {lags}, extra"] = extra
        rows[f"smoothed {lags}"] = round(smoothed(lags, extra, presses), 4)
    return rows


def run() -> dict[str, list[float] | float]:
    """Sweep the rates of every way to train, and hold the scale at several values."""
    torch.set_num_threads(1)
    rows: dict[str, list[float] | float] = dict(readers())
    for way, a in ARMS:
        arm = f"{way}, a from {a:g}"
        found = {rate: train_arm(way, a, rate=rate) for rate in RATES}
        chosen = {rate: loss_on(validation(), history) for rate, history in found.items()}
        for rate, losses in chosen.items():
            rows[f"{arm}, rate {rate:g}, validation"] = rounded(losses)
            for lags in ((1,), (1, 2)):
                rows[f"{arm}, rate {rate:g}, share of {named(lags)}"] = rounded(shares(found[rate], lags)[-1])
            rows[f"{arm}, rate {rate:g}, a"] = rounded(found[rate].weights.a[-1], 2)
        least = min(map(mean, chosen.values()))
        best = min(rate for rate in RATES if mean(chosen[rate]) <= least + NEAR)
        rows[f"{arm}, best rate"] = best
        lowest = min(RATES, key=lambda rate, chosen=chosen: mean(chosen[rate]))
        rows[f"{arm}, rate with the lowest loss"] = lowest
        for steps, history in ((STEPS, found[best]), (LONG, train_arm(way, a, rate=best, steps=LONG))):
            rows[f"{arm}, {steps} steps, loss"] = rounded(loss_on(held_out(), history))
            rows[f"{arm}, {steps} steps, share of {{1, 2}}"] = rounded(shares(history, (1, 2))[-1])
            rows[f"{arm}, {steps} steps, share of {{1}}"] = rounded(shares(history, (1,))[-1])
            rows[f"{arm}, {steps} steps, a"] = rounded(history.weights.a[-1], 2)
            rows[f"{arm}, {steps} steps, steps with {{1}} above 0.99"] = [
                int(n) for n in (shares(history, (1,)) > 0.99).sum(0)
            ]
            rows[f"{arm}, {steps} steps, highest share of {{1}}"] = rounded(shares(history, (1,)).amax(0))
    for a in HELD:
        history = train_selector(a)
        rows[f"selector at a = {a:g}, share of {{1}}"] = rounded(shares(history, (1,))[-1])
        rows[f"selector at a = {a:g}, share of {{1, 2}}"] = rounded(shares(history, (1, 2))[-1])
    return rows
