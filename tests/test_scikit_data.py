"""The tables that are read from scikit-learn's files are those that it gives itself."""

import subprocess
import sys

import numpy as np
from sklearn.datasets import load_diabetes, load_digits

from course_lib import scikit_data


def test_the_tables_are_scikit_learns_own():
    for found, expected in (
        (scikit_data.digits(), load_digits(return_X_y=True)),
        (scikit_data.diabetes(), load_diabetes(return_X_y=True, scaled=False)),
    ):
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)


def test_reading_them_does_not_import_it():
    code = (
        "import sys; from course_lib import scikit_data as data; data.digits(); data.diabetes(); "
        "sys.exit('sklearn' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
