"""The layers of lesson 29 at three margins beside the exact matrices of least norm: accuracy, excess and s2/s1.

The same twenty sets as in `margin_rivals`; only sets in which both layers reached margin 100 have numbers, one each. The
excess is that of the nuclear norm per unit of margin over the least one, as a share.
"""

import torch

from benchmarks.margin_rivals import KINDS, RANKS, SEEDS
from course_lib.lessons.attention_margin.experiment import (
    MARGINS,
    accuracy,
    chosen_sets,
    least_norms,
    problem,
    second,
    trained,
)
from course_lib.theory.attention_margin import excess, nuclear_norm

SETTINGS = {"margins": list(MARGINS), "ranks": list(RANKS)}


def run() -> dict[str, object]:
    """Train both layers, and solve for both least norms, on every set and for every rank of the truth."""
    torch.set_num_threads(1)
    rows: dict[str, object] = {}
    for rank in RANKS:
        at = problem(rank, SEEDS)
        flows = {kind: trained(at.training, kind, SEEDS) for kind in KINDS}
        kept = flows["KQ"].reached & flows["W"].reached
        some = chosen_sets(at, kept)
        best = least_norms(some.training)
        least = nuclear_norm(best["nuclear"], diagonal=False)
        arms = {f"least {name} norm": weight for name, weight in best.items()}
        for kind, flow in flows.items():
            arms |= {
                f"{kind}, margin {margin}": weight[kept]
                for margin, weight in zip(MARGINS, flow.products, strict=True)
            }
        rows[f"rank {rank}, sets"] = [seed for seed, here in zip(SEEDS, kept.tolist(), strict=True) if here]
        for name, weight in arms.items():
            above = excess(nuclear_norm(weight, diagonal=False), some.training.margin(weight), least)
            numbers = {"accuracy": accuracy(some.test, weight), "excess": above, "second": second(weight)}
            for what, values in numbers.items():
                rows[f"rank {rank}, {name}, {what}"] = [round(value, 4) for value in values.tolist()]
    return rows
