"""Lesson 15's long run: find a hidden system at equal CPU time, by convolution, scan, loop and truncated loop.

Each arm trains the same layer of eight poles on the same records for SECONDS of CPU time of one thread, with every rate
and seed; what differs is the form in which the layer is computed. Errors are on held-out records four times as long,
without noise, root mean square over that of the outputs. The best rate of an arm is that with the smallest median.
Rivals: convolution from poles uniform in the disc; free taps by ridge regression, with a flat penalty and with one that
grows with the lag, the best of all on the held-out records. A second comparison gives the convolution the number of
updates, and not the time, of the other arms. About 8 minutes of one CPU thread; CPU time is a clock's measure, so another
machine gives other errors, and only their order is to be expected.
"""

import time

import numpy as np
import torch

from course_lib.lessons.state_space_models import experiment
from course_lib.lessons.state_space_models.experiment import ARMS, Records, identify
from course_lib.measured import Spread

SEEDS = tuple(range(5))
SECONDS, RATES = 3.0, (0.003, 0.01, 0.03, 0.1)
TAPS = (16, 64, 256, 1024, 2048)
PENALTIES, GROWTH = (
    (1.0, 10.0, 100.0, 1000.0),
    (None, 100.0, 250.0, 600.0),
)  # tokens in which a penalty grows e-fold
SETTINGS = {
    "seconds": SECONDS, "rates": list(RATES), "records": experiment.RECORDS, "length": experiment.LENGTH,
    "held_out_length": experiment.LONGER * experiment.LENGTH, "noise": experiment.NOISE, "poles": experiment.POLES,
    "window": experiment.WINDOW,
}  # fmt: skip


def _rounded(values, digits: int = 4) -> list[float]:
    return [round(float(value), digits) for value in values]


def run() -> dict:
    """Return errors and updates of each arm and rate, curves at its best rate, and the rivals' errors."""
    torch.set_num_threads(1)
    records, found = [Records.draw(seed) for seed in SEEDS], {}
    identify("convolution", records[0], rate=0.01, updates=20)  # warm up
    for arm in ARMS:
        runs = {
            rate: [
                identify(arm, r, rate=rate, seconds=SECONDS, seed=s)
                for s, r in zip(SEEDS, records, strict=True)
            ]
            for rate in RATES
        }
        last = {rate: [one.errors[-1] for one in several] for rate, several in runs.items()}
        best = min(RATES, key=lambda rate: np.median(last[rate]))
        for rate in RATES:
            found[f"{arm}, rate {rate:g}"] = {
                "errors": _rounded(last[rate]),
                "updates": [one.updates[-1] for one in runs[rate]],
            }
        found[f"{arm}, best"] = {"rate": best} | found[f"{arm}, rate {best:g}"]
        found[f"{arm}, curves"] = [
            {"updates": one.updates, "seconds": _rounded(one.seconds, 3), "errors": _rounded(one.errors)}
            for one in runs[best]
        ]
        found[f"{arm}, ms an update"] = Spread.of(
            [1000 * one.seconds[-1] / one.updates[-1] for several in runs.values() for one in several]
        )
    rate = found["convolution, best"]["rate"]
    for arm in ARMS[1:4]:
        same = [
            identify("convolution", r, rate=rate, updates=count, seed=s).errors[-1]
            for s, r, count in zip(SEEDS, records, found[f"{arm}, best"]["updates"], strict=True)
        ]
        found[f"convolution with the updates of: {arm}"] = _rounded(same)
    return found | _free_taps(records)


def _free_taps(records: list[Records]) -> dict:
    """Return the errors of free taps with the best penalty, and the CPU seconds of one fit."""
    errors, seconds = {}, {taps: [] for taps in TAPS}
    for data in records:
        for taps in TAPS:
            start = time.thread_time()
            sums = experiment.lagged_sums(data, taps)
            spent = time.thread_time() - start
            for growth in GROWTH:
                for penalty in PENALTIES:
                    start = time.thread_time()
                    kernel = experiment.free_taps(*sums, penalty=penalty, growth=growth)
                    seconds[taps].append(spent + time.thread_time() - start)
                    y = experiment.answer(data.new_u, kernel)
                    errors.setdefault((taps, growth, penalty), []).append(data.error(y))
    found = {}
    for taps in TAPS:
        for kind, growths in (("flat", GROWTH[:1]), ("growing", GROWTH[1:])):
            best = min(
                (key for key in errors if key[0] == taps and key[1] in growths),
                key=lambda key: np.median(errors[key]),
            )
            found[f"{taps} free taps, {kind} penalty"] = {
                "errors": _rounded(errors[best]), "penalty": best[2], "growth": best[1],
            }  # fmt: skip
        found[f"{taps} free taps, seconds a fit"] = Spread.of(seconds[taps])
    return found
