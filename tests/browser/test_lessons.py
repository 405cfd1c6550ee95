"""What a learner does with a lesson, done in a real JupyterLab: run it, move things, answer."""

import re
import time

import pytest

from tests.browser.conftest import ROOT, errors, open_notebook, run_all, wide_equations

NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))

ROLES = ("slider", "textbox", "button", "radio", "combobox", "checkbox", "image")


def explorers(page):
    """The panels that hold a slider."""
    return page.locator(".course-panel", has=page.locator(".noUi-handle"))


def picture_of(panel):
    return panel.locator("img").get_attribute("src")


def wait_for_new_picture(page, panel, old, *, seconds=10):
    page.wait_for_function(
        "([image, old]) => image.src !== old && image.complete",
        arg=[panel.locator("img").element_handle(), old],
        timeout=1000 * seconds,
    )


def accessible(page, panel):
    """Return (role, name) of every control in the panel, as Chromium's accessibility tree has them."""
    session = page.context.new_cdp_session(page)
    panel.evaluate("node => { window.panelUnderTest = node; }")
    object_id = session.send("Runtime.evaluate", {"expression": "window.panelUnderTest"})["result"][
        "objectId"
    ]
    found = []
    for role in ROLES:
        for node in session.send("Accessibility.queryAXTree", {"objectId": object_id, "role": role})["nodes"]:
            if not node["ignored"]:
                found.append((role, node.get("name", {}).get("value", "").strip()))
    return found


def set_cell(page, marker, source):
    """Replace the source of the answer cell of an exercise and run it; return its output."""
    return page.evaluate(
        """async ([marker, source]) => {
          const panel = window.jupyterapp.shell.currentWidget;
          const cells = panel.content.widgets;
          const index = cells.findIndex(cell => cell.model.metadata.exercise === marker);
          cells[index].model.sharedModel.setSource(source);
          panel.content.activeCellIndex = index;
          await window.jupyterapp.commands.execute("notebook:run-cell");
          return cells[index].model.outputs.toJSON().map(o => o.text ?? o.evalue).join("");
        }""",
        [marker, source],
    )


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_runs_from_top_to_bottom_and_every_control_has_a_name(lab, page, notebook):
    failures = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    open_notebook(page, lab, notebook)
    run_all(page)
    assert errors(page) == []
    assert page.get_by_text("model not found").count() == 0
    assert wide_equations(page) == []
    panels = page.locator(".course-panel")
    assert panels.count() >= 1
    for i in range(panels.count()):
        controls = accessible(page, panels.nth(i))
        assert controls
        assert [role for role, name in controls if not name] == []
    assert failures == []


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_the_sliders_move_the_picture_by_keyboard_and_by_mouse(lab, page, notebook):
    open_notebook(page, lab, notebook)
    run_all(page)
    assert explorers(page).count() >= 1
    for i in range(explorers(page).count()):
        panel = explorers(page).nth(i)
        for j in range(panel.locator(".noUi-handle").count()):
            handle = panel.locator(".noUi-handle").nth(j)
            handle.scroll_into_view_if_needed()
            before, value = picture_of(panel), handle.get_attribute("aria-valuetext")
            handle.focus()
            # A slider at its right end cannot go further right: step towards the middle.
            position = float(handle.get_attribute("aria-valuenow"))
            middle = (
                float(handle.get_attribute("aria-valuemin")) + float(handle.get_attribute("aria-valuemax"))
            ) / 2
            page.keyboard.press("ArrowRight" if position < middle else "ArrowLeft")
            wait_for_new_picture(page, panel, before)
            page.wait_for_function(
                "([handle, value]) => handle.getAttribute('aria-valuetext') !== value",
                arg=[handle.element_handle(), value],
            )

        handle = panel.locator(".noUi-handle").first
        handle.scroll_into_view_if_needed()
        before, words = picture_of(panel), panel.locator(".course-words").inner_text()
        box = handle.bounding_box()
        track = panel.locator(".noUi-base").first.bounding_box()
        # Drag towards the farther end of the track.
        to_right = box["x"] - track["x"] < track["width"] / 2
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(track["x"] + track["width"] * (0.9 if to_right else 0.1), box["y"] + 5, steps=6)
        page.mouse.up()
        wait_for_new_picture(page, panel, before)
        page.wait_for_function(
            "([line, old]) => line.innerText !== old",
            arg=[panel.locator(".course-words").element_handle(), words],
        )
        panel.get_by_role("button", name="Reset").click()
        page.wait_for_timeout(500)
    assert errors(page) == []


def test_a_prediction_shows_its_figure_only_after_the_guess(lab, page):
    open_notebook(page, lab, "00_start_here.ipynb")
    run_all(page)
    panel = page.locator(".course-panel", has=page.locator("input[type=radio]"))
    button = panel.get_by_role("button", name="Commit my guess")
    assert button.is_disabled()
    assert not panel.locator("img").is_visible()
    panel.get_by_label("They grow and change sign").check()
    button.click()
    panel.locator("img").wait_for(state="visible")
    assert panel.locator(".course-words").inner_text().startswith("As you predicted.")
    assert "swing between both signs" in panel.locator("img").get_attribute("alt")


def test_an_exercise_tells_mistakes_apart_and_the_kernel_survives_an_endless_loop(lab, page):
    open_notebook(page, lab, "00_start_here.ipynb")
    run_all(page)
    check = 'exercises["00.1"].check(answer)'
    assert "One more." in set_cell(page, "00.1", f"answer = 6\n{check}")
    assert "solved." in set_cell(page, "00.1", f"answer = 7\n{check}")
    endless = "def power(factor, count):\n    while True:\n        pass\n\nexercises['00.2'].check(power)"
    assert re.search(r"stopped after 5 s", set_cell(page, "00.2", endless))
    raising = "def power(factor, count):\n    return factor ** cuont\n\nexercises['00.2'].check(power)"
    said = set_cell(page, "00.2", raising)
    assert "NameError" in said
    assert "line 2: return factor ** cuont" in said


def test_the_explorer_is_faster_than_interact_from_key_to_picture(lab, page, capsys):
    """Press a key on each slider in turn and wait for the new picture; the ratio is printed, not asserted."""
    source = (
        "%matplotlib inline\nfrom tests.benchmarks.explorer import TwoCurves, interact_slider\n"
        "explorer = TwoCurves()\ndisplay(explorer)\npeer = interact_slider()"
    )
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, lab.root / "notebooks" / "latency.ipynb")
    open_notebook(page, lab, "latency.ipynb")
    run_all(page)
    page.locator(".noUi-handle").nth(1).wait_for()
    images = {"explorer": ".course-panel img", "interact": ".widget-interact .jp-RenderedImage img"}
    handles = {name: page.locator(".noUi-handle").nth(i) for i, name in enumerate(images)}
    milliseconds = {name: [] for name in images}
    for round_ in range(15):
        for name, selector in images.items():
            page.locator(selector).wait_for()
            handles[name].focus()
            page.evaluate(
                "selector => { window.oldPicture = document.querySelector(selector).src; }", selector
            )
            start = time.perf_counter()
            page.keyboard.press("ArrowRight")
            page.wait_for_function(
                "selector => { const i = document.querySelector(selector); "
                "return i && i.complete && i.src !== window.oldPicture; }",
                arg=selector,
                polling="raf",
            )
            if round_ >= 2:
                milliseconds[name].append(1e3 * (time.perf_counter() - start))
    medians = {name: sorted(values)[len(values) // 2] for name, values in milliseconds.items()}
    with capsys.disabled():
        print(
            f"\nkey press to new picture: explorer {medians['explorer']:.0f} ms, interact {medians['interact']:.0f} ms, "
            f"ratio {medians['interact'] / medians['explorer']:.1f}"
        )
    assert all(len(values) == 13 for values in milliseconds.values())
