"""A real JupyterLab server and a headless Chromium for the browser tests.

Without Chromium the tests are skipped with one line; with REQUIRE_BROWSER=1 they fail instead.
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
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

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
SETTINGS = {
    # Every cell is on the page, also those that are scrolled out of sight.
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


def pytest_collection_modifyitems(items):
    """Mark everything here as a browser test, and skip it all with one line where there is no browser."""
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


class Lab:
    """A running JupyterLab on a copy of the notebooks."""

    def __init__(self, root: Path, url: str, token: str):
        self.root, self.url, self.token = root, url, token

    def address(self, notebook: str) -> str:
        return f"{self.url}/lab/tree/notebooks/{notebook}?token={self.token}&reset"


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
        path = settings / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    environment = {
        **os.environ,
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "JUPYTER_CONFIG_DIR": str(root / "config"),
        "JUPYTER_DATA_DIR": str(root / "data"),
        "JUPYTER_RUNTIME_DIR": str(root / "runtime"),
        "COURSE_PROGRESS": str(root / "progress.json"),
        "PYTHONPATH": str(ROOT),  # for the figures that the latency test shares with the benchmark
    }
    subprocess.run(
        [sys.executable, "-m", "jupyter", "trust", *map(str, sorted((root / "notebooks").glob("*.ipynb")))],
        env=environment,
        check=True,
        capture_output=True,
    )
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
    command += [f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={root}"]
    command += ["--LabApp.expose_app_in_browser=True"]
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
        server.wait(timeout=20)
        log.close()


def _wait_until_up(running: Lab, server: subprocess.Popen, log: Path, seconds: float = 60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"JupyterLab ended at once:\n{log.read_text()[-3000:]}")
        try:
            urllib.request.urlopen(f"{running.url}/api/status?token={running.token}", timeout=2)
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not answer within {seconds:g} s:\n{log.read_text()[-3000:]}")


@pytest.fixture(scope="session")
def browser(chromium):
    """One Chromium for all tests."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGS)
        yield launched
        launched.close()


@pytest.fixture
def page(browser):
    """A fresh page of 1280 x 1000 pixels."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    opened = context.new_page()
    yield opened
    context.close()


_KERNEL_READY = """async () => {
  const panel = window.jupyterapp.shell.currentWidget;
  await panel.context.ready;
  await panel.sessionContext.ready;
  const kernel = panel.sessionContext.session.kernel;
  await kernel.info;
  return kernel.status;
}"""

_CELLS_LEFT = """() => window.jupyterapp.shell.currentWidget.content.widgets
  .filter(cell => cell.model.type === "code" && (cell.model.executionState !== "idle" || !cell.model.executionCount))
  .length"""


def open_notebook(page: Page, lab: Lab, notebook: str) -> None:
    """Open a notebook and wait until its kernel is ready."""
    page.goto(lab.address(notebook))
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
    page.evaluate(_KERNEL_READY)


def run_all(page: Page, *, seconds: float = 300) -> None:
    """Run every cell, as the menu Run > Run All Cells does, and wait until each has run.

    Raises:
        RuntimeError: cells are left that did not run, because one before them failed or time ran out.
    """
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
    deadline = time.monotonic() + seconds
    while left := page.evaluate(_CELLS_LEFT):
        if errors(page) or time.monotonic() > deadline:
            raise RuntimeError(f"{left} cells did not run; errors on the page: {errors(page)}")
        page.wait_for_timeout(200)


def errors(page: Page) -> list[str]:
    """Return the text of every error output on the page."""
    return page.locator("[data-mime-type='application/vnd.jupyter.error']").all_inner_texts()


_WIDE_EQUATIONS = """() => [...document.querySelectorAll(".jp-RenderedMarkdown mjx-container")]
  .filter(equation => {
    const column = equation.closest(".jp-RenderedMarkdown").getBoundingClientRect().right;
    const parts = [equation, ...equation.querySelectorAll("mjx-math, mjx-mtable, mjx-mtd")];
    return parts.some(part => part.getBoundingClientRect().right > column + 2);
  })
  .map(equation => equation.innerText.replaceAll("\\n", "").slice(0, 60))"""


def wide_equations(page: Page) -> list[str]:
    """Return the start of every equation that is wider than its column, and so is cut off."""
    return page.evaluate(_WIDE_EQUATIONS)
