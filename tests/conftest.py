import os
import re
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from course_lib.lessons.catalog import LESSONS

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


def group_of(item):
    """Return what a test belongs to: a lesson, or else its file; the browser tests have groups of their own."""
    path = item.path.relative_to(Path(__file__).parent)
    if path.parts[0] == "browser":
        return None
    if path.parts[0] == "lessons":
        by_slug = {lesson.slug: lesson.number for lesson in LESSONS}
        of_the_case = re.match(r"\d\d(?=[.-])", item.callspec.id) if hasattr(item, "callspec") else None
        return of_the_case[0] if of_the_case else by_slug.get(path.stem.removeprefix("test_"), path.stem)
    return path.as_posix()


@pytest.hookimpl(wrapper=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config, items):
    """Keep tests that share a fixture or a lesson's trained networks in one process; leave out nightly ones."""
    for item in items:
        if (group := group_of(item)) is not None:
            item.add_marker(pytest.mark.xdist_group(group))
    if config.getoption("--hypothesis-profile") not in ("nightly", "search"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("nightly")])
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    return (yield)


@pytest.fixture(autouse=True)
def progress_file(tmp_path, monkeypatch):
    """Keep every test away from a learner's progress file."""
    path = tmp_path / "progress" / "progress.json"
    monkeypatch.setitem(os.environ, "COURSE_PROGRESS", str(path))
    return path


@pytest.fixture
def double_by_default():
    """Lessons set torch's default dtype to float64: what a function makes from its inputs must not follow it."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
