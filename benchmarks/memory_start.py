"""Lesson 14's long run: who names a symbol 40 steps back, by the factor on W_h, and with PyTorch's start left as it is.

Each arm is trained with each of four rates and five seeds, for 600 steps of Adam on 24 fresh sequences each. A run has
learned at the first test in which it names 90% of 240 held-out symbols; tests come every 20 steps. Stored for every arm
and rate, one figure a seed: the accuracy at step 200, the step at which the run had learned (0 if it never did), and the
accuracy at the end. The three starts of PyTorch are trained once more in float64, with an epsilon of Adam far below any
gradient. About 14 minutes of CPU time; another processor rounds otherwise, and single runs differ there.
"""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from course_lib.lessons.recurrent_networks.experiment import FAR, KINDS, Recall, train

SEEDS = (0, 1, 2, 3, 4)
RATES = (0.0015, 0.005, 0.015, 0.05)
FACTORS = (1.0, 1.4, 1.73, 2.1, 2.5, 3.5)
STEPS, EARLY = 600, 200
ARMS = {f"tanh, factor {factor:g}": ("tanh", factor) for factor in FACTORS} | {
    kind: (kind, 1.0) for kind in KINDS[1:]
}
EXACT, EPSILON = "{}, float64", 1e-30  # an arm without the two floors under a small gradient
ARMS |= {EXACT.format(kind): (kind, 1.0) for kind in ("tanh", "LSTM", "GRU")}
SETTINGS = {
    "distance": FAR,
    "rates": list(RATES),
    "steps": STEPS,
    "early": EARLY,
    "epsilon of float64": EPSILON,
}


def train_arm(arm: str) -> dict[str, dict[str, list[float]]]:
    """Train one arm with all rates and seeds side by side."""
    torch.set_num_threads(1)
    kind, factor = ARMS[arm]
    seeds, found = list(SEEDS) * len(RATES), {}
    rates = [rate for rate in RATES for _ in SEEDS]
    net, epsilon = Recall(kind, seeds, factor=factor), 1e-8
    if arm == EXACT.format(kind):
        net, epsilon = net.double(), EPSILON
    run_ = train(net, FAR, seeds=seeds, rate=rates, steps=STEPS, epsilon=epsilon)
    for place, rate in enumerate(RATES):
        own = slice(place * len(SEEDS), (place + 1) * len(SEEDS))
        found[f"{arm}, rate {rate:g}"] = {
            "accuracy at 200": [round(a, 4) for a in run_.accuracy[EARLY][own].tolist()],
            "learned at": run_.learned_at[own].tolist(),
            "last accuracy": [round(a, 4) for a in run_.accuracy[STEPS][own].tolist()],
        }
    return found


def run() -> dict:
    """Return three lists, one entry a seed, for each arm and rate."""
    slowest_first = sorted(ARMS, key=lambda arm: arm.startswith("tanh"))
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        results = dict(zip(slowest_first, pool.map(train_arm, slowest_first), strict=True))
    return {name: figures for arm in ARMS for name, figures in results[arm].items()}
