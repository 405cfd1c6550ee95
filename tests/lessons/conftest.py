"""What the tests of all lessons share."""

from functools import partial

import pytest

from course_lib.lessons.mbart_to_sparse_features import pictures as of_29


@pytest.fixture(scope="session", autouse=True)
def short_runs():
    """Pictures that train longest are drawn from shorter runs: their notebooks run them whole, and look at them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of_29, "lesson_run", partial(of_29.lesson_run, n_sentences=1500, sparse_steps=100))
        yield
