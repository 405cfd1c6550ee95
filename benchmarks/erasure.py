"""Erasure against concept-erasure, purification against scikit-learn's Ridge, and what a probe reads afterwards.

20,000 x 768 rows, float32, 10 classes; CPU time of one thread, every candidate once a round. Less than 1 means faster than
the peer. R^2 is that of a least-squares probe in float64 on the erased rows, the largest over the classes, among all
directions with more than 1e-5 of a feature's spread: on balanced classes, for 23 positives of 20,000, and with scales of
features from 1 to 1e4. Beside it what a probe reads that counts directions down to 1e-6 as well, where float32 rounds.
"""

import time

import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import Spread, interleave
from course_lib.representation.erasure import fit_eraser, probe_r2
from course_lib.representation.purification import Purifier

ROWS, WIDTH, CLASSES, ROUNDS = 20_000, 768, 10, 9


def _read(x: Tensor, z: Tensor, cut: float) -> float:
    """R^2 of a probe that counts directions with more than `cut` of the widest, of standardised rows."""
    x, z = x.double() - x.double().mean(0), z.double() - z.double().mean(0)
    u, s, _ = torch.linalg.svd(x / x.std(0).clamp(min=1e-30), full_matrices=False)
    return float(((u[:, s > cut * s[0]].T @ z).square().sum(0) / z.square().sum(0)).max())


def run() -> dict[str, Spread]:
    """Return ratios of CPU time, and what a probe reads after erasing."""
    from concept_erasure import LeaceFitter
    from sklearn.linear_model import Ridge

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (ROWS,), generator=generator)
    noise = torch.randn(ROWS, WIDTH, generator=generator)
    x = noise + 0.3 * torch.randn(CLASSES, WIDTH, generator=generator)[labels]
    z = torch.eye(CLASSES)[labels]
    penalties = np.logspace(0, 6, 20).tolist()

    def twenty(_: int) -> None:
        purifier = Purifier.fit(x)
        for penalty in penalties:
            purifier.matrix(penalty)

    candidates = {
        "ours": lambda _: fit_eraser(x, labels).erase(x),
        "concept-erasure": lambda _: LeaceFitter.fit(x, z).eraser(x),
        "twenty penalties": twenty,
        "Ridge": lambda _: Ridge(alpha=1.0, fit_intercept=False).fit(x.numpy(), x.numpy()),
    }
    seconds = interleave(candidates, rounds=ROUNDS, clock=time.thread_time, warm_up=1)
    took = {name: np.array(each) for name, each in seconds.items()}
    figures = {
        "fit and erase / concept-erasure": Spread.of(took["ours"] / took["concept-erasure"]),
        "20 penalties, one eigh / 20 of Ridge": Spread.of(took["twenty penalties"] / (20 * took["Ridge"])),
    }
    rare = torch.zeros(ROWS, 1)
    rare[torch.randperm(ROWS, generator=generator)[:23]] = 1
    tables = {
        "balanced": (x, z),
        "23 positives": (noise + 0.1 * rare * torch.randn(1, WIDTH, generator=generator), rare),
        "scales 1 to 1e4": (x * torch.logspace(0, 4, WIDTH), z),
    }
    for name, (table, concept) in tables.items():
        for who, erased in (
            ("before", table),
            ("ours", fit_eraser(table, concept).erase(table)),
            ("concept-erasure", LeaceFitter.fit(table, concept).eraser(table)),
        ):
            left = float(probe_r2(erased, concept).max())
            figures[f"R^2, {name}: {who}"] = Spread(left, left, left)
            left = _read(erased, concept, 1e-6)
            figures[f"R^2 down to 1e-6, {name}: {who}"] = Spread(left, left, left)
    return figures
