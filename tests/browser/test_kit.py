"""What explorer, prediction and exercise do in the page, tried thoroughly on one small notebook with one kernel."""

import json
import re

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.learner import (
    STUCK,
    close,
    drag,
    errors,
    named_controls,
    new_picture,
    open_notebook,
    press_reset,
    pull,
    run_all,
    settled,
    wait_for_words,
    wait_until_answered,
    wide_panels,
)

pytestmark = pytest.mark.xdist_group("kit")

CELLS = (
    "from course_lib.lessons import start_here as lesson\n"
    "from tests.browser.small_explorer import EveryControl\n\n"
    "explorer = EveryControl()\nexplorer",
    "lesson.wait_prediction()",
    "answer = ...",
    "exercises = lesson.EXERCISES",
    "from course_lib.teaching.panel import Panel\n\n"
    "Panel(['one', 'two'], label='Go', tooltip='Go', answered=print).widget",
)


@pytest.fixture(scope="module")
def kit(desk, lab):
    """The page with the notebook open and run."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, lab.root / "notebooks" / "kit.ipynb")
    open_notebook(desk, "kit.ipynb")
    run_all(desk)
    yield desk
    close(desk)


@pytest.fixture
def panel(kit):
    """The explorer, as it was at first."""
    panel = kit.locator(".course-panel", has=kit.locator(".noUi-handle"))
    press_reset(panel)
    wait_for_words(panel, "P: red, 2 to the right, 0.50 m high.")
    yield panel
    assert errors(kit) == []


def test_every_control_has_its_name(kit, panel):
    assert sorted(named_controls(kit, panel)) == [
        ("button", "Reset"),
        ("combobox", "colour"),
        ("image", "A point. One point. P: red, 2 to the right, 0.50 m high."),
        ("slider", "count n"),
        ("slider", "height h (m)"),
        ("textbox", "count n, type a value"),
        ("textbox", "height h (m), type a value"),
        ("textbox", "name"),
    ]


@pytest.fixture
def dark(kit):
    """Put JupyterLab's dark theme on, and the light one back."""
    change = "async theme => { await window.jupyterapp.commands.execute('apputils:change-theme', {theme}); }"
    body = kit.locator("body")
    settled(kit, change, "JupyterLab Dark")
    expect(body).to_have_attribute("data-jp-theme-light", "false")
    yield
    settled(kit, change, "JupyterLab Light")
    expect(body).to_have_attribute("data-jp-theme-light", "true")


def test_in_the_dark_a_figure_is_a_card_that_fits(kit, panel, dark):
    picture, wide = panel.locator("img"), kit.viewport_size
    expect(panel.locator("select")).to_have_css("background-image", re.compile("fill%3D%22white%22"))
    expect(picture).to_have_css("filter", "brightness(0.88)")
    expect(picture).to_have_css("padding", "8px")
    assert picture.evaluate("node => node.clientWidth") == 384 + 2 * 8  # as large as it was drawn
    kit.set_viewport_size({"width": 700, "height": wide["height"]})
    kit.wait_for_function("() => document.querySelector('.course-panel').clientWidth < 384")
    too_wide = wide_panels(kit)
    kit.set_viewport_size(wide)
    assert too_wide == []


@pytest.mark.parametrize(("width", "closed"), [(900, True), (1280, False)])
def test_a_narrow_window_starts_with_the_file_browser_closed(browser, lab, width, closed):
    context = browser.new_context(viewport={"width": width, "height": 800})
    context.set_default_timeout(1000 * STUCK)
    page = context.new_page()
    page.goto(re.sub(r"/lab\b", f"/lab/workspaces/{width}", lab.address))
    page.wait_for_function("() => window.jupyterapp")
    page.evaluate("() => window.jupyterapp.restored")
    expect(page.locator("#jp-left-stack")).to_be_visible(visible=not closed)
    context.close()


def test_sliders_by_keyboard(kit, panel):
    height, count = panel.locator(".noUi-handle").all()
    for handle, key, words in (
        (height, "ArrowRight", "P: red, 2 to the right, 0.55 m high."),
        (height, "ArrowLeft", "P: red, 2 to the right, 0.50 m high."),
        (height, "End", "P: red, 2 to the right, 1.00 m high."),
        (count, "Home", "P: red, 1 to the right, 1.00 m high."),
        (count, "ArrowUp", "P: red, 2 to the right, 1.00 m high."),
    ):
        with new_picture(kit, panel):
            handle.press(key)
        wait_for_words(panel, words)
    assert [handle.get_attribute("aria-valuetext") for handle in (height, count)] == ["1.00", "2"]


def test_a_slider_by_typing_its_value(kit, panel):
    with new_picture(kit, panel):
        readout = panel.get_by_role("textbox", name="count n, type a value")
        readout.fill("7")
        readout.press("Enter")
    wait_for_words(panel, "P: red, 7 to the right, 0.50 m high.")


def test_sliders_by_mouse(kit, panel):
    height, count = panel.locator(".noUi-handle").all()
    drag(kit, panel, count)
    drag(kit, panel, height)
    # 90% of both tracks, which go from 1 to 9 and from 0 to 1.
    wait_for_words(panel, "P: red, 8 to the right, 0.90 m high.")


def test_choice_and_text_by_keyboard(kit, panel):
    with new_picture(kit, panel):
        panel.get_by_role("combobox").press("g")
    wait_for_words(panel, "P: green, 2 to the right, 0.50 m high.")
    with new_picture(kit, panel):
        name = panel.get_by_role("textbox", name="name")
        name.fill("Here")
        name.press("Enter")
    wait_for_words(panel, "Here: green, 2 to the right, 0.50 m high.")


def test_reset_puts_every_control_back(kit, panel):
    panel.locator(".noUi-handle").first.press("End")
    wait_for_words(panel, "P: red, 2 to the right, 1.00 m high.")
    panel.get_by_role("combobox").select_option("blue")
    wait_for_words(panel, "P: blue, 2 to the right, 1.00 m high.")
    with new_picture(kit, panel):
        press_reset(panel)
    wait_for_words(panel, "P: red, 2 to the right, 0.50 m high.")
    assert panel.get_by_role("combobox").input_value() == "red"
    assert panel.locator(".noUi-handle").first.get_attribute("aria-valuetext") == "0.50"


def test_reset_is_not_overtaken_by_the_last_values_of_a_slider(kit, panel):
    run_source(kit, "import time\nexplorer.compute = lambda **settings: time.sleep(1) or settings")
    pull(kit, panel.locator(".noUi-handle").first)
    press_reset(panel)
    wait_until_answered(kit)
    run_source(kit, "del explorer.compute")
    assert run_source(kit, "print(explorer.settings['height'])") == "0.5\n"
    wait_for_words(panel, "P: red, 2 to the right, 0.50 m high.")


def test_code_moves_the_panel(kit, panel):
    with new_picture(kit, panel):
        run_source(kit, "explorer.set(height=0.25, colour='blue')")
    wait_for_words(panel, "P: blue, 2 to the right, 0.25 m high.")
    assert panel.locator(".noUi-handle").first.get_attribute("aria-valuetext") == "0.25"
    assert panel.get_by_role("combobox").input_value() == "blue"


def test_a_prediction_shows_its_figure_only_after_the_guess(kit):
    panel = kit.locator(".course-panel", has=kit.get_by_role("button", name="Record my guess"))
    button = panel.get_by_role("button", name="Record my guess")
    assert button.is_disabled()
    assert not panel.locator("img").is_visible()
    panel.get_by_label("After about 500").check()
    panel.get_by_label("I am sure").check()
    button.click()
    panel.locator("img").wait_for(state="visible")
    assert panel.locator(".course-words").inner_text().startswith("As you predicted.")
    assert "about ten times as long" in panel.locator("img").get_attribute("alt")


def test_while_a_cell_runs_explorer_and_prediction_answer_and_what_cannot_says_so(kit, panel, tmp_path):
    gate = tmp_path / "opened"
    start_source(
        kit, f"import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists():\n    time.sleep(0.05)"
    )
    panel.locator(".noUi-handle").first.press("End")
    wait_for_words(panel, "P: red, 2 to the right, 1.00 m high.")
    asked = kit.locator(".course-panel", has=kit.get_by_role("button", name="Go"))
    busy = asked.locator(".course-busy")
    expect(busy).to_be_empty()
    asked.locator("input[type=radio]").first.check()
    expect(busy).to_have_text("The kernel is still busy. This follows when it is done.")
    expect(panel.locator(".course-busy")).to_be_empty()
    guess = kit.locator(".course-panel", has=kit.get_by_role("button", name="Record my guess"))
    guess.get_by_label("After about 200").check()
    guess.get_by_role("button").click()
    expect(guess.locator(".course-words")).to_contain_text("Not what happens.")
    assert kit.evaluate(f"() => {_CELL}.node.querySelector('.jp-InputPrompt').innerText") == "[*]:"
    gate.touch()
    expect(asked.get_by_role("button")).to_be_enabled(timeout=1000 * STUCK)
    expect(busy).to_be_empty()
    run_source(kit, "del pathlib, time")


_SIGN = "node => getComputedStyle(node.querySelector('.jp-InputPrompt'), '::before').content"


def test_a_cell_whose_code_is_hidden_shows_that_it_runs(kit, tmp_path):
    kit.evaluate(f"() => {{ {_CELL}.inputHidden = true; }}")
    code = kit.locator(".jp-CodeCell").nth(2).locator(".jp-InputPlaceholder")
    assert code.evaluate(_SIGN) == "none"
    height = code.bounding_box()["height"]
    gate = tmp_path / "opened"
    start_source(
        kit, f"import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists():\n    time.sleep(0.05)"
    )
    kit.wait_for_function(f"node => ({_SIGN})(node) === '\"[*]:\"'", arg=code.element_handle())
    assert code.bounding_box()["height"] == height
    gate.touch()
    kit.wait_for_function(f"node => ({_SIGN})(node) === 'none'", arg=code.element_handle())
    kit.evaluate(f"() => {{ {_CELL}.inputHidden = false; }}")
    run_source(kit, "del pathlib, time")


def test_an_exercise_tells_mistakes_apart_and_the_kernel_survives_an_endless_loop(kit):
    check = 'exercises["00.2"].check(answer)'
    assert "One more." in run_source(kit, f"answer = 6\n{check}")
    assert "solved." in run_source(kit, f"answer = 7\n{check}")
    output = kit.locator(".jp-CodeCell").nth(2).locator(".jp-OutputArea")
    assert output.inner_text().strip() == "✓ Exercise 00.2: solved."
    assert output.get_by_role("button", name="Hint").count() == 0
    endless = (
        "def f1(hits, misses, false_alarms):\n    while True:\n        pass\n\nexercises['00.1'].check(f1)"
    )
    assert re.search(r"stopped after 5 s", run_source(kit, endless))
    raising = "def f1(hits, misses, false_alarms):\n    return hits / hist\n\nexercises['00.1'].check(f1)"
    said = run_source(kit, raising)
    assert "NameError" in said
    assert "line 2: return hits / hist" in said


def test_a_wrong_answer_is_marked_and_its_hints_are_a_button(kit, lab):
    output = kit.locator(".jp-CodeCell").nth(2).locator(".jp-OutputArea")
    for answer, sign in (("...", "○"), ("None", "!"), ("8", "✗")):
        run_source(kit, f"exercises['00.2'].check({answer})")
        expect(output.locator(".jp-RenderedHTML strong")).to_have_text(sign)
    button = output.get_by_role("button")
    for number in (1, 2, 3, 3):
        expect(button).to_have_text(f"Hint {number} of 3")
        button.click()
        expect(output.locator(".course-words")).to_contain_text(f"Hint {number} of 3: ")
    assert json.loads((lab.root / "progress.json").read_text())["exercises"]["00.2"]["hints"] == 3


_CELL = "window.jupyterapp.shell.currentWidget.content.widgets[2]"


def start_source(page, source):
    """Write a source into the third cell, and let it run without waiting for its end."""
    page.evaluate(
        f"""source => {{
          {_CELL}.model.sharedModel.setSource(source);
          window.jupyterapp.shell.currentWidget.content.activeCellIndex = 2;
          window.jupyterapp.commands.execute("notebook:run-cell");
        }}""",
        source,
    )


def run_source(page, source):
    """Write a source into the third cell, run it, and return what it prints."""
    return settled(
        page,
        """async source => {
          const panel = window.jupyterapp.shell.currentWidget;
          const cell = panel.content.widgets[2];
          cell.model.sharedModel.setSource(source);
          panel.content.activeCellIndex = 2;
          await window.jupyterapp.commands.execute("notebook:run-cell");
          const outputs = cell.model.outputs.toJSON();
          return outputs.map(output => output.text ?? output.evalue ?? output.data["text/plain"]).join("");
        }""",
        source,
    )
