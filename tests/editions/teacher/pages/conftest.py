"""The built edition for teachers in a browser. `make teacher-test` builds three lessons of it first."""

import pytest

from tests.browser.conftest import browser, chromium  # noqa: F401
from tests.editions.site.pages.conftest import ROOT, address, visit  # noqa: F401


@pytest.fixture(scope="session")
def site():
    """The folder of the built edition."""
    folder = ROOT / "build" / "teacher"
    if not (folder / "index.html").is_file():
        pytest.fail(f"{folder} holds no pages: run make teacher-test, which builds some")
    return folder
