"""Two small data sets of scikit-learn, read from its files: importing it costs seconds and 150 MB for two tables."""

import gzip
from importlib.util import find_spec
from pathlib import Path

import numpy as np


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the images of `sklearn.datasets.load_digits` (1,797 of 64 pixels, from 0 to 16) and their labels."""
    table = _table("digits.csv.gz", delimiter=",")
    return table[:, :-1], table[:, -1].astype(int)


def diabetes() -> tuple[np.ndarray, np.ndarray]:
    """Return what `sklearn.datasets.load_diabetes(scaled=False)` does: ten measurements of 442 patients, and the target."""
    return _table("diabetes_data_raw.csv.gz"), _table("diabetes_target.csv.gz")


def _table(name: str, **options: str) -> np.ndarray:
    (package,) = find_spec("sklearn").submodule_search_locations
    with gzip.open(Path(package, "datasets", "data", name), "rt", encoding="utf-8") as lines:
        return np.loadtxt(lines, **options)
