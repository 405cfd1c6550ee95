"""What does it pay to bend encoder or decoder? Variance of held-out sentence states that codes of 2, 8 and 32 keep.

The rows are the pooled encoder states of 6,000 sentences of `course-mbart` or, for 8 numbers, of their normal twin: as
many normal rows with the same mean and covariance. Each of five splits has 4,000 rows to fit, 1,000 to choose settings on
and 1,000 to be judged by. A figure is the share of the variance of the last ones that is kept, one number for each split.
Step sizes are chosen on split 0's 1,000 rows; all other settings on those of each split.
"""

import torch
from torch import Tensor

from course_lib.lessons.stacked_autoencoder import normal_twin, sentence_states
from course_lib.representation.bottleneck import (
    bump_features,
    cluster_code,
    fit_bottleneck,
    nearest_decoder,
    quadratic_features,
    ridge_decoder,
)
from course_lib.representation.pca import pca
from course_lib.sae.metrics import explained_variance

SPLITS, ROWS = (0, 1, 2, 3, 4), 6000
CASES = (("states", 2), ("states", 8), ("states", 32), ("twin", 8))
RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)
SETTINGS = {"rates": list(RATES), "steps": 1000, "batch": 128, "hidden": 128}
MORE = 12  # components beyond k that are counted
CLUSTERS = (4, 16, 64, 128, 256)
WEIGHTS = (1e-5, 1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1, 3, 10)
BENT = {"bent encoder": ("encoder",), "bent decoder": ("decoder",), "both bent": ("encoder", "decoder")}


def split(rows: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return 4,000 rows to fit, 1,000 to choose on and 1,000 to judge by, in float32."""
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    fit, choose, judge = rows[order].float().split((len(rows) - 2000, 1000, 1000))
    return fit, choose, judge


def best(tried: list[tuple[float, float]]) -> float:
    """Return what is kept of the judged rows where most is kept of the rows to choose on."""
    return round(max(tried)[1], 4)


def without_training(parts: tuple[Tensor, Tensor, Tensor], k: int, *, seed: int) -> dict[str, float]:
    """Return what PCA and the decoders for its codes keep."""
    fit, *others = (part.double() for part in parts)
    found = pca(fit, k)
    code, (chosen, judged) = found.project(fit), (found.project(part) for part in others)
    flat = [found.reconstruct(z) for z in (code, chosen, judged)]
    unit = found.variances.sqrt()

    def both(*restored: Tensor) -> tuple[float, float]:
        kept = [explained_variance(row, back) for row, back in zip(others, restored, strict=True)]
        return kept[0], kept[1]

    rows = {"PCA": round(both(*flat[1:])[1], 4)}
    parts_of = [quadratic_features(z / unit) for z in (code, chosen, judged)]
    ridge = ridge_decoder(parts_of[0], fit, WEIGHTS)
    rows["PCA, quadratic"] = best([both(one(parts_of[1]), one(parts_of[2])) for one in ridge.values()])
    generator = torch.Generator().manual_seed(seed)
    centres = code[torch.randperm(len(code), generator=generator)[:500]]
    usual = torch.cdist(centres, centres).median()
    tried = []
    for share in (0.25, 0.5, 1, 2):
        parts_of = [bump_features(z, centres, float(share * usual)) for z in (code, chosen, judged)]
        ridge = ridge_decoder(parts_of[0], fit, WEIGHTS)
        tried += [both(one(parts_of[1]), one(parts_of[2])) for one in ridge.values()]
    rows["PCA, bumps"] = best(tried)
    tried = []
    for count in (5, 10, 20, 40, 80, 160):
        decode = nearest_decoder(code, fit, flat[0], count)
        tried.append(both(decode(chosen, flat[1]), decode(judged, flat[2])))
    rows["PCA, neighbours"] = best(tried)
    tried = []
    for clusters in CLUSTERS:
        restore = cluster_code(fit, k, clusters, seed=seed)
        tried.append(both(restore(others[0]), restore(others[1])))
    rows["clusters"] = best(tried)
    return rows


def run() -> dict[str, list[float] | list[list[float]] | float]:
    """Measure every arm on the states, and with 8 numbers on the twin."""
    torch.set_num_threads(1)
    rows: dict[str, list[float] | list[list[float]] | float] = {}
    for name, k in CASES:
        rows |= case(name, k)
    return rows


def case(name: str, k: int) -> dict[str, list[float] | list[list[float]] | float]:
    """Measure the arms for one table and one width."""
    states = sentence_states(ROWS)
    tables = [normal_twin(states, seed=seed) if name == "twin" else states for seed in SPLITS]
    parts = [split(table, seed) for table, seed in zip(tables, SPLITS, strict=True)]
    rows: dict[str, list[float] | list[list[float]] | float] = {}
    flat = [without_training(one, k, seed=seed) for one, seed in zip(parts, SPLITS, strict=True)]
    for arm in flat[0]:
        rows[f"{name}, {k}, {arm}"] = [one[arm] for one in flat]
    wide = [pca(fit, k + MORE) for fit, _, _ in parts]
    rows[f"{name}, {k}, components"] = [
        [round(_kept(one, judge, j), 4) for j in range(k, k + MORE + 1)]
        for one, (_, _, judge) in zip(wide, parts, strict=True)
    ]
    for arm, bent in BENT.items():
        found = {rate: _trained(parts[0], k, bent, rate, 0) for rate in RATES}
        rate = max(RATES, key=lambda rate: found[rate][0])
        rows[f"{name}, {k}, {arm}, rates"] = [round(found[rate][0], 4) for rate in RATES]
        rows[f"{name}, {k}, {arm}, best rate"] = rate
        rest = [_trained(parts[seed], k, bent, rate, seed) for seed in SPLITS[1:]]
        rows[f"{name}, {k}, {arm}"] = [round(kept, 4) for _, kept in (found[rate], *rest)]
    return rows


def _kept(found, judge: Tensor, j: int) -> float:
    code = found.project(judge)
    code[:, j:] = 0
    return explained_variance(judge, found.reconstruct(code))


def _trained(
    parts: tuple[Tensor, Tensor, Tensor], k: int, bent, rate: float, seed: int
) -> tuple[float, float]:
    fit, choose, judge = parts
    network = fit_bottleneck(
        fit, choose, k, bent=bent, step_size=rate, steps=SETTINGS["steps"], batch=SETTINGS["batch"], seed=seed
    )
    with torch.no_grad():
        return explained_variance(choose, network(choose)), explained_variance(judge, network(judge))
