import os

import pytest
import torch
from hypothesis import settings

# Tensors in the tests are small: a second thread costs more than it brings, above all beside other tests.
# COURSE_TEST_THREADS=2 asks whether a result depends on their number.
torch.set_num_threads(int(os.environ.get("COURSE_TEST_THREADS", "1")))

# A loaded machine is slow now and then; a slow example is no failure. The same examples in every run, so that
# a commit that passed keeps passing; `pytest --hypothesis-profile=search` looks further, at random.
settings.register_profile("course", deadline=None, max_examples=10, derandomize=True)
settings.register_profile("nightly", deadline=None, max_examples=40, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("course")

pytest.register_assert_rewrite("tests.drawing")


def pytest_collection_modifyitems(config, items):
    """Leave out what is marked `nightly`, unless the profile is `nightly` or `search`."""
    if config.getoption("--hypothesis-profile") in ("nightly", "search"):
        return
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("nightly")])
    items[:] = [item for item in items if not item.get_closest_marker("nightly")]


@pytest.fixture(autouse=True)
def progress_file(tmp_path, monkeypatch):
    """Keep every test away from a learner's progress file."""
    path = tmp_path / "progress" / "progress.json"
    monkeypatch.setitem(os.environ, "COURSE_PROGRESS", str(path))
    return path
