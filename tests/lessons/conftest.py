"""What the tests of all lessons share."""

from functools import partial

import pytest

from course_lib.lessons.mbart_to_sparse_features import pictures


@pytest.fixture(scope="session", autouse=True)
def short_run():
    """Lesson 29's pictures outside of its notebook come from a run of the pipeline: here from a short one."""
    with pytest.MonkeyPatch.context() as patch:
        short = partial(pictures.lesson_run, n_sentences=1500, sparse_steps=100)
        patch.setattr(pictures, "lesson_run", short)
        yield
