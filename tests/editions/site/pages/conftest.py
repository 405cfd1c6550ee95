"""The built site, served on this machine, and a browser that looks at it. `make site-test` builds it first."""

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser.conftest import browser, chromium  # noqa: F401

ROOT = Path(__file__).resolve().parents[4]
SITE = ROOT / "build" / "site"


@pytest.fixture(scope="session")
def site():
    """The folder of the built site."""
    if not (SITE / "index.html").is_file():
        pytest.fail(f"{SITE} holds no site: run make site-test, which builds it")
    return SITE


@pytest.fixture(scope="session")
def address(site):
    """The site's address, on loopback."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture
def visit(browser, address):  # noqa: F811
    """Open a page of the site; the page notes what it asked for and what went wrong."""
    contexts = []

    def opened(place, **options):
        context = browser.new_context(viewport={"width": 1400, "height": 900}, **options)
        context.set_default_timeout(120_000)
        contexts.append(context)
        page = context.new_page()
        page.requested, page.faults = [], []
        page.on("request", lambda request: page.requested.append(request.url))
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.on(
            "console",
            lambda message: (
                page.faults.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        page.goto(f"{address}/{place}")
        if options.get("java_script_enabled", True):
            page.wait_for_function("document.documentElement.dataset.ready")
        return page

    yield opened
    for context in contexts:
        context.close()
