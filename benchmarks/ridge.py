"""Ridge by the d x d system against the m x m system, and against scikit-learn, in float64 on one thread."""

import time

import numpy as np
import torch
from sklearn.linear_model import Ridge

from benchmarks.timing import Spread, interleave
from course_lib.optimization.ridge import ridge

ROWS = 400
COLUMNS = (100, 200, 400, 800, 1600)
PENALTY = 0.1


def run(*, rounds: int = 15) -> dict:
    """Return the ratio of the two systems for each number of columns, and ours against scikit-learn's."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    figures = {}
    for columns in COLUMNS:
        X = torch.randn(ROWS, columns, generator=generator, dtype=torch.float64)
        y = torch.randn(ROWS, generator=generator, dtype=torch.float64)
        peer = Ridge(alpha=PENALTY, fit_intercept=False)
        seconds = interleave(
            {
                "primal": lambda _, X=X, y=y: ridge(X, y, PENALTY, system="primal"),
                "dual": lambda _, X=X, y=y: ridge(X, y, PENALTY, system="dual"),
                "auto": lambda _, X=X, y=y: ridge(X, y, PENALTY),
                "sklearn": lambda _, X=X, y=y, peer=peer: peer.fit(X.numpy(), y.numpy()),
            },
            rounds=rounds,
            clock=time.thread_time,
        )
        time_of = {name: np.array(values) for name, values in seconds.items()}
        shape = f"{ROWS} x {columns}"
        figures[f"{shape}: d x d / m x m system"] = Spread.of(time_of["primal"] / time_of["dual"])
        figures[f"{shape}: ours / scikit-learn"] = Spread.of(time_of["auto"] / time_of["sklearn"])
    return figures
