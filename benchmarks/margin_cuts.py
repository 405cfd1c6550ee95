"""Rivals that are cut, penalised and cut, or narrow, and how many training samples each answers (lesson 29).

The twenty sets of `margin_rivals`; accuracy on the 1,000 test samples and on the 40 training samples, one number for each
set. A rank, a penalty, both together or a number of columns is chosen by the mean on held-out samples.
"""

import torch

from benchmarks.margin_rivals import KINDS, PENALTIES, SEEDS, TRUNCATED, chosen, rounded
from course_lib.lessons.attention_margin.experiment import accuracy, cut, penalised, problem, trained
from course_lib.theory.attention_margin import product

RANKS = (1, 3, 10)
COLUMNS = (1, 2, 3, 5, 10)
SETTINGS = {"ranks": list(RANKS), "penalties": list(PENALTIES), "columns": list(COLUMNS)}


def at_ten(given, kind: str, width: int = 10) -> torch.Tensor:
    """Return the weights at margin 10, or the last ones where the layer never got there."""
    flow = trained(given, kind, SEEDS, [10], width)
    ten = flow.products[0]
    return torch.where(ten.isnan(), product(flow.parameters, kind), ten)


def run() -> dict[str, object]:
    """Train every arm on every set, for three ranks of the truth."""
    torch.set_num_threads(1)
    rows: dict[str, object] = {}
    for rank in RANKS:
        at = problem(rank, SEEDS)
        ten = {kind: at_ten(at.training, kind) for kind in KINDS}
        shrunk = {size: penalised(at.training, size, "nuclear") for size in PENALTIES}
        arms = {f"{kind}, margin 10": {10: weight} for kind, weight in ten.items()}
        arms |= {f"{kind} cut": {r: cut(weight, r) for r in TRUNCATED} for kind, weight in ten.items()}
        arms["W, nuclear penalty"] = shrunk
        arms["W, nuclear penalty, cut"] = {
            (size, r): cut(weight, r) for size, weight in shrunk.items() for r in TRUNCATED
        }
        arms["KQ, few columns"] = {width: at_ten(at.training, "KQ", width) for width in COLUMNS}
        for name, weights in arms.items():
            setting, got, _ = chosen(at, weights)
            rows[f"rank {rank}, {name}"] = rounded(got)
            rows[f"rank {rank}, {name}, training"] = rounded(accuracy(at.training, weights[setting]))
            rows[f"rank {rank}, {name}, setting"] = list(setting) if isinstance(setting, tuple) else setting
    return rows
