"""The hands and eyes of a learner at a notebook in JupyterLab: open it, run it, look at it, move things.

Each step ends when what it waits for has happened in the page.
"""

import re
from contextlib import contextmanager

from playwright.sync_api import Locator, Page, expect

# Seconds. Both only guard against a hang: they are far above what a busy machine needs to run a notebook (HANG),
# or to answer one key press (STUCK).
HANG, STUCK = 900, 180

ROLES = ("slider", "textbox", "button", "radio", "combobox", "checkbox", "image")

_OPEN = """async ([path, id]) => {
  const options = {path, factory: "Notebook", ...(id && {kernel: {id}})};
  const panel = await window.jupyterapp.commands.execute("docmanager:open", options);
  await panel.context.ready;
  await panel.sessionContext.ready;
  await panel.sessionContext.session.kernel.info;
}"""

# The command's promise settles when the last cell has run, or the first has failed.
_RUN_ALL = """async () => {
  const app = window.jupyterapp;
  await app.commands.execute("notebook:clear-all-cell-outputs");
  await app.commands.execute("notebook:run-all-cells");
  return app.shell.currentWidget.content.widgets
    .filter(cell => cell.model.type === "code" && !cell.model.executionCount).length;
}"""

# The same for single cells, in their order; the others keep the outputs that are stored with them.
_RUN_CELLS = """async places => {
  const app = window.jupyterapp, notebook = app.shell.currentWidget.content;
  notebook.deselectAll();
  for (const place of places) {
    notebook.activeCellIndex = place;
    await app.commands.execute("notebook:run-cell");
  }
}"""

_RENDERED = """() => {
  const shown = name => [...document.querySelectorAll(`[data-mime-type='${name}']`)];
  return shown("application/vnd.jupyter.widget-view+json").every(node => node.querySelector(".jupyter-widgets"))
    && [...document.querySelectorAll(".jp-Notebook img")].every(image => image.complete)
    && window.jupyterapp.shell.currentWidget.content.widgets
      .filter(cell => cell.model.type === "markdown" && cell.model.sharedModel.source.includes("$$"))
      .every(cell => cell.node.querySelector("mjx-container"));
}"""


def settled(page: Page, script: str, argument=None):
    """Call an async function in the page and return what its promise gives, within the guard against a hang."""
    guarded = f"""argument => Promise.race([({script})(argument), new Promise((_, fail) => setTimeout(
      () => fail(new Error("the page hangs: nothing came for {HANG} s")), {1000 * HANG}))])"""
    return page.evaluate(guarded, argument)


def open_notebook(page: Page, notebook: str, *, kernel: str | None = None) -> None:
    """Open a notebook in the page and wait until its kernel is ready: a new one, or that of the id `kernel`."""
    settled(page, _OPEN, [f"notebooks/{notebook}", kernel])


def run_all(page: Page) -> None:
    """Run every cell, as the menu Run > Run All Cells does, and wait until all is on the page.

    Raises:
        RuntimeError: cells are left that did not run, because one before them failed.
    """
    left = settled(page, _RUN_ALL)
    if left or errors(page):
        raise RuntimeError(f"{left} cells did not run; errors on the page: {errors(page)}")
    page.wait_for_function(_RENDERED)


def run_cells(page: Page, places: list[int]) -> None:
    """Run the cells at these places, as Shift+Enter does, and wait until all is on the page.

    Raises:
        RuntimeError: a cell failed.
    """
    settled(page, _RUN_CELLS, places)
    if errors(page):
        raise RuntimeError(f"errors on the page: {errors(page)}")
    page.wait_for_function(_RENDERED)


def show_answers(page: Page) -> None:
    """Ask to see what waits for a guess, for every prediction of the page that was run."""
    buttons = page.get_by_role("button", name=re.compile("^Show me what answers"))
    while left := buttons.count():
        buttons.first.click()  # it is gone with what it showed, as are all of the same prediction
        expect(buttons).not_to_have_count(left)
    page.wait_for_function(_RENDERED)


_LEAVE = """async code => {
  const panel = window.jupyterapp.shell.currentWidget;
  const kernel = panel.sessionContext.session.kernel;
  await kernel.requestExecute({code}).done;
  panel.dispose();
  return kernel.id;
}"""

# No name and no widget on a page is left behind, and torch is as in a new kernel. Modules stay loaded, with the layouts
# that they share.
_SWEEP = """
import ipywidgets, sys
if "torch" in sys.modules:
    sys.modules["torch"].set_default_dtype(sys.modules["torch"].float32)
for widget in [*ipywidgets.widgets.widget._instances.values()]:
    if isinstance(widget, ipywidgets.DOMWidget):
        widget.close()
%reset -f
"""


def leave(page: Page) -> str:
    """Close the notebook, unsaved, sweep its kernel, which goes on, and return the kernel's id."""
    return settled(page, _LEAVE, _SWEEP)


_CLOSE = """async () => {
  for (const panel of [...window.jupyterapp.shell.widgets("main")]) {
    await panel.sessionContext?.shutdown();
    panel.dispose();
  }
}"""


def close(page: Page) -> None:
    """Close what is open, unsaved, and shut its kernel down."""
    settled(page, _CLOSE)


def errors(page: Page) -> list[str]:
    """Return the text of every error output on the page.

    JupyterLab shows a traceback as stderr, which lessons leave empty.
    """
    kinds = ("error", "stderr")
    return page.locator(
        ", ".join(f"[data-mime-type='application/vnd.jupyter.{kind}']" for kind in kinds)
    ).all_inner_texts()


_EMPTY_PICTURES = """() => [...document.querySelectorAll(".jp-OutputArea img")]
  .filter(image => image.checkVisibility() && !image.naturalWidth)
  .map(image => image.alt || image.outerHTML.slice(0, 80))"""


def empty_pictures(page: Page) -> list[str]:
    """Return the text alternative of every picture that should be seen and is not."""
    return page.evaluate(_EMPTY_PICTURES)


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


_WIDE_PANELS = """() => [...document.querySelectorAll(".course-panel")]
  .filter(panel => panel.scrollWidth > panel.clientWidth)
  .map(panel => `${panel.scrollWidth} in ${panel.clientWidth}: ${panel.innerText.slice(0, 60)}`)"""


def wide_panels(page: Page) -> list[str]:
    """Return the width and the start of every panel that does not fit its column, and so gets a scrollbar."""
    return page.evaluate(_WIDE_PANELS)


def named_controls(page: Page, panel: Locator) -> list[tuple[str, str]]:
    """Return (role, name) of every control in the panel, as Chromium's accessibility tree has them."""
    session = page.context.new_cdp_session(page)
    panel.evaluate("node => { window.panelUnderTest = node; }")
    node = session.send("Runtime.evaluate", {"expression": "window.panelUnderTest"})["result"]["objectId"]
    nodes = session.send("Accessibility.queryAXTree", {"objectId": node})["nodes"]
    session.detach()
    return [
        (node["role"]["value"], node.get("name", {}).get("value", "").strip())
        for node in nodes
        if not node["ignored"] and node["role"]["value"] in ROLES
    ]


@contextmanager
def change(page: Page, place: Locator, value: str, *, once: str = "true"):
    """Wait after the block until the script `value` of `node` differs from before, and the script `once` holds."""
    node = place.element_handle()
    before = node.evaluate(f"node => {value}")
    yield
    page.wait_for_function(f"([node, before]) => {value} !== before && {once}", arg=[node, before])


def new_picture(page: Page, panel: Locator):
    """Wait after the block until the panel shows another picture than before."""
    return change(page, panel.locator("img"), "node.src", once="node.complete && node.naturalWidth > 0")


def new_words(page: Page, panel: Locator):
    """Wait after the block until the panel says something else than before."""
    return change(page, panel.locator(".course-words"), "node.innerText")


_STATE = """panel => [
  panel.querySelector(".course-words").innerText,
  ...[...panel.querySelectorAll(".noUi-handle")].map(handle => handle.getAttribute("aria-valuetext")),
  ...[...panel.querySelectorAll("input, select")].map(control => control.value)]"""


def state(panel: Locator) -> list[str]:
    """Return what the panel says and the settings of its controls."""
    return panel.evaluate(_STATE)


def press_reset(panel: Locator) -> None:
    panel.get_by_role("button", name="Reset").click()


# The kernel answers a slider and a button in two threads, so that one may still draw when the other is done. What it
# sends for a message comes before the message's end.
_ANSWERED = """async () => {
  const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const open = () => [...kernel._futures.values()].some(one => one.msg.header.msg_type === "comm_msg");
  do await new Promise(next => setTimeout(next, 50)); while (open());
}"""


def wait_until_answered(page: Page) -> None:
    """Wait until the kernel is done with every message that a widget of the page has sent."""
    settled(page, _ANSWERED)


def wait_for_words(panel: Locator, words: str) -> None:
    """Wait until the panel says these words."""
    expect(panel.locator(".course-words")).to_have_text(words, timeout=1000 * STUCK)


def step(page: Page, panel: Locator, handle: Locator) -> None:
    """Press one arrow key on a slider, towards its middle; its value and the picture follow."""
    low, now, high = (float(handle.get_attribute(f"aria-value{which}")) for which in ("min", "now", "max"))
    with new_picture(page, panel), change(page, handle, "node.getAttribute('aria-valuetext')"):
        handle.press("ArrowRight" if now < (low + high) / 2 else "ArrowLeft")


def pull(page: Page, handle: Locator) -> None:
    """Pull the handle of a slider towards the farther end of its track."""
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    track = handle.locator("xpath=ancestor::*[contains(@class, 'noUi-base')]").bounding_box()
    to_right = box["x"] - track["x"] < track["width"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(track["x"] + track["width"] * (0.9 if to_right else 0.1), box["y"] + 5, steps=6)
    page.mouse.up()


def drag(page: Page, panel: Locator, handle: Locator) -> None:
    """Pull the handle of a slider; picture and words begin to follow."""
    with new_picture(page, panel), new_words(page, panel):
        pull(page, handle)
