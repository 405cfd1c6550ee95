import pytest

from course_lib.interpret.browser.build import build_index
from tests.interpret.browser.runs import make_run, some_concepts
from tests.tiny_mbart import write_tiny_mbart


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tiny")
    write_tiny_mbart(directory)
    return directory


@pytest.fixture(scope="session")
def run(tiny, tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("browse") / "run", tiny, concepts=some_concepts())


@pytest.fixture(scope="session")
def index(run):
    return build_index(run, effects=5, threads=1, progress=False)
