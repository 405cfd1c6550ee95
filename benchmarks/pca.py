"""Principal components against scikit-learn and torch.pca_lowrank: time, and the variance that a solver loses.

20,000 x 1,024 rows, 32 components, CPU time of one thread, every candidate once a round. Less than 1 means faster than the
peer that is named after the stroke. Lost variance is 1 - kept / the most that 32 directions keep, on a flat spectrum, the
hard case for randomised solvers, and on one that falls like 1/i.
"""

import time
from itertools import product

import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import Spread, interleave
from course_lib.representation.pca import pca, pca_by_svd

ROWS, WIDTH, K, ROUNDS = 20_000, 1024, 32, 5


def _lost(x: Tensor, best: float, directions: Tensor) -> Spread:
    centred = x.double() - x.double().mean(0)
    kept = float((centred @ torch.linalg.qr(directions.double()).Q).square().sum()) / len(x)
    lost = 1 - kept / best
    return Spread(lost, lost, lost)


def run() -> dict[str, Spread]:
    """Return ratios of CPU time, and shares of variance that are lost."""
    from sklearn.decomposition import PCA

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    flat = torch.randn(ROWS, WIDTH, generator=generator)
    figures = {}
    for dtype in (torch.float32, torch.float64):
        x = flat.to(dtype)
        candidates = {
            "pca": lambda _, x=x: pca(x, K),
            "pca, products in float32": lambda _, x=x: pca(x, K, products=torch.float32),
            "scikit-learn auto": lambda _, x=x: PCA(K, random_state=0).fit(x.numpy()),
            "scikit-learn covariance_eigh": lambda _, x=x: PCA(K, svd_solver="covariance_eigh").fit(
                x.numpy()
            ),
            "torch.pca_lowrank": lambda _, x=x: torch.pca_lowrank(x, K),
        }
        seconds = interleave(candidates, rounds=ROUNDS, clock=time.thread_time, warm_up=1)
        for ours, name in product(list(candidates)[:2], list(candidates)[2:]):
            ratio = np.array(seconds[ours]) / np.array(seconds[name])
            figures[f"{ours} / {name}, {dtype}"] = Spread.of(ratio)
    falling = flat / torch.arange(1, WIDTH + 1).sqrt()
    for name, x in (("flat", flat), ("falling", falling)):
        best = float(pca_by_svd(x, K).variances.sum())
        torch.manual_seed(0)
        for solver, directions in (
            ("pca", pca(x, K).components.T),
            ("pca, products in float32", pca(x, K, products=torch.float32).components.T),
            ("auto", torch.tensor(PCA(K, random_state=0).fit(x.numpy()).components_.T)),
            (
                "covariance_eigh",
                torch.tensor(PCA(K, svd_solver="covariance_eigh").fit(x.numpy()).components_.T),
            ),
            ("pca_lowrank", torch.pca_lowrank(x, K)[2]),
        ):
            figures[f"variance lost, {name} spectrum: {solver}"] = _lost(x, best, directions)
    return figures
