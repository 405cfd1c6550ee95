"""A layer K Q^T, a layer W and their rivals on new samples, for truths of rank 1 to 10 (lesson 29).

Twenty sets of 40 samples each (`course_lib.lessons.attention_margin.experiment`); accuracy on 1,000 new samples, one
number for each set, null where a layer never reached the margin. What a rival chooses, a rank, a penalty or when to stop,
it chooses on 200 held-out samples of each set.
"""

import torch

from course_lib.lessons.attention_margin.experiment import (
    MARGINS,
    Problem,
    accuracy,
    cut,
    penalised,
    problem,
    stopped,
    trained,
)
from course_lib.theory.attention_margin import product

SEEDS = tuple(range(20))
RANKS = (1, 2, 3, 5, 10)
PENALTIES = (0, 0.003, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7)
SETTINGS = {"margins": list(MARGINS), "ranks": list(RANKS), "penalties": list(PENALTIES)}
KINDS = ("KQ", "W")
TRUNCATED = (1, 2, 3, 5, 8, 10)


def rounded(values: torch.Tensor) -> list[float | None]:
    """Return the accuracies of the sets, None for a set without one."""
    return [None if value != value else round(value, 4) for value in values.tolist()]


def chosen(at: Problem, weights: dict) -> tuple[object, torch.Tensor, list[float]]:
    """Return the setting that is best on held-out samples, its accuracies in the test, and all held-out means."""
    means = [float(accuracy(at.held_out, one).mean()) for one in weights.values()]
    best = list(weights)[max(range(len(means)), key=means.__getitem__)]
    return best, accuracy(at.test, weights[best]), [round(mean, 4) for mean in means]


def run() -> dict[str, object]:
    """Train every arm on every set, for every rank of the truth."""
    torch.set_num_threads(1)
    rows: dict[str, object] = {}
    for rank in RANKS:
        at = problem(rank, SEEDS)
        rivals = {}
        for kind in KINDS:
            flow = trained(at.training, kind, SEEDS)
            for margin, weight in zip(MARGINS, flow.products, strict=True):
                got = accuracy(at.test, weight.nan_to_num())
                got[weight.flatten(1).isnan().any(1)] = torch.nan
                rows[f"rank {rank}, {kind}, margin {margin}"] = rounded(got)
            last = product(flow.parameters, kind)
            rows[f"rank {rank}, {kind}, last"] = rounded(accuracy(at.test, last))
            rows[f"rank {rank}, {kind} stopped"] = rounded(accuracy(at.test, stopped(at, kind, SEEDS)))
            ten = flow.products[1]
            ten = torch.where(ten.isnan(), last, ten)
            rivals[f"{kind} cut"] = {r: cut(ten, r) for r in TRUNCATED}
        first = at.training.features.sum((1, 2))
        rivals["one step cut"] = {r: cut(first, r) for r in TRUNCATED}
        for penalty in ("nuclear", "frobenius"):
            rivals[f"W, {penalty} penalty"] = {
                size: penalised(at.training, size, penalty) for size in PENALTIES
            }
        rows[f"rank {rank}, one step"] = rounded(accuracy(at.test, first))
        for name, weights in rivals.items():
            setting, got, held_out = chosen(at, weights)
            rows[f"rank {rank}, {name}"] = rounded(got)
            rows[f"rank {rank}, {name}, setting"] = setting
            rows[f"rank {rank}, {name}, held out"] = held_out
    return rows
