"""A real JupyterLab server and a headless Chromium for the browser tests.

Without Chromium the tests are skipped; with REQUIRE_BROWSER=1 they fail instead.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from setup_course import CONTENTS, EXTENSIONS, KERNEL
from tests.browser.learner import HANG, STUCK, close

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# The browser is to reach this machine only: no updates, no sync, no telemetry.
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Those of the course, and every cell is on the page, also those that are scrolled out of sight.
SETTINGS = json.loads((ROOT / "lab-settings.json").read_text()) | {
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"}
}


def pytest_collection_modifyitems(items):
    """Mark everything here as a browser test."""
    for item in items:
        if ROOT / "tests" / "browser" in Path(item.path).parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium():
    """The path of the browser."""
    if CHROMIUM is None:
        if os.environ.get("REQUIRE_BROWSER") == "1":
            pytest.fail("REQUIRE_BROWSER=1 is set and no Chromium was found (Debian: apt install chromium)")
        pytest.skip(
            "no Chromium on this machine: the browser tests did not run (Debian: apt install chromium)"
        )
    return CHROMIUM


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab on a copy of the notebooks."""

    root: Path
    url: str
    token: str

    @property
    def address(self) -> str:
        return f"{self.url}/lab?token={self.token}"


@pytest.fixture(scope="session")
def lab(tmp_path_factory, chromium):
    """Start JupyterLab on loopback with a token, with settings and runtime files of its own."""
    root = tmp_path_factory.mktemp("lab")
    for folder in ("notebooks", "figures"):
        shutil.copytree(
            ROOT / folder, root / folder, ignore=shutil.ignore_patterns(".*", "*.damaged.json", "runs")
        )
    settings = root / "settings"
    for name, values in SETTINGS.items():
        path = settings / f"{name.replace(':', '/')}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    profile = root / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_kernel_config.py").write_text(KERNEL)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    environment = {
        **os.environ,
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "JUPYTER_CONFIG_DIR": str(root / "config"),
        "JUPYTER_DATA_DIR": str(root / "data"),
        "IPYTHONDIR": str(root / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(root / "runtime"),
        "COURSE_PROGRESS": str(root / "progress.json"),
        "PYTHONPATH": str(ROOT),  # for the small explorer of these tests
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
    command += [f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={root}"]
    command += ["--LabApp.expose_app_in_browser=True"]
    command += [f"--ServerApp.{name}={value}" for name, value in CONTENTS.items()]
    command.append(f"--LabApp.extra_labextensions_path={EXTENSIONS}")
    if os.geteuid() == 0:
        command.append("--allow-root")
    log = (root / "server.log").open("w")
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    running = Lab(root, f"http://127.0.0.1:{port}", token)
    try:
        _wait_until_up(running, server, root / "server.log")
        yield running
    finally:
        server.terminate()
        server.wait(timeout=HANG)
        log.close()


def _wait_until_up(running: Lab, server: subprocess.Popen, log: Path):
    deadline = time.monotonic() + HANG
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"JupyterLab ended at once:\n{log.read_text()[-3000:]}")
        try:
            urllib.request.urlopen(f"{running.url}/api/status?token={running.token}", timeout=HANG)
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not answer within {HANG} s:\n{log.read_text()[-3000:]}")


@pytest.fixture(scope="session")
def browser(chromium):
    """One Chromium for all tests."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGS)
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def desk(browser, lab):
    """JupyterLab in a page of 1280 x 1000 pixels, loaded once and kept open."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    context.set_default_timeout(1000 * STUCK)
    opened = context.new_page()
    opened.goto(lab.address)
    opened.wait_for_function("() => window.jupyterapp")
    opened.evaluate("() => window.jupyterapp.restored")
    yield opened
    context.close()


@pytest.fixture
def page(desk):
    """The page for one test; what the test opened is closed afterwards."""
    yield desk
    close(desk)


@pytest.fixture
def page_errors(page):
    """The errors that scripts of the page raised and did not catch."""
    found = []

    def note(error):
        found.append(str(error))

    page.on("pageerror", note)
    yield found
    page.remove_listener("pageerror", note)
