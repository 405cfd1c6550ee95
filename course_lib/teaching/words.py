"""The line in words under a picture, and the names that a screen reader needs around it.

ipywidgets' sliders give their handle and their readout no accessible name, and its Image no
alternative text. `Words` is a live region that says what the picture shows; when it is on the page
it also names, from their visible labels, the sliders of the explorer that it stands in.

And it puts the controls back where Reset is pressed. The page keeps the last values of a drag until the kernel has
taken the earlier ones: a kernel that resets alone is overtaken by them.
"""

import anywidget
import traitlets

_MODULE = """
function render({ model, el }) {
  const line = document.createElement("p");
  line.className = "course-words";
  line.setAttribute("role", "status");
  line.setAttribute("aria-live", "polite");
  el.appendChild(line);

  const set = (node, name, value) => {
    if (node && node.getAttribute(name) !== value) node.setAttribute(name, value);
  };
  const nameNeighbours = () => {
    const root = el.closest(".course-panel");
    if (!root) return;
    for (const slider of root.querySelectorAll(".widget-slider, .widget-hslider")) {
      const label = slider.querySelector(".widget-label")?.textContent ?? "";
      const readout = slider.querySelector(".widget-readout");
      const handle = slider.querySelector(".noUi-handle");
      set(handle, "aria-label", label);
      if (readout) set(handle, "aria-valuetext", readout.textContent);
      set(readout, "role", "textbox");
      set(readout, "aria-label", label + ", type a value");
    }
    for (const image of root.querySelectorAll("img")) set(image, "alt", model.get("alt"));
  };
  const update = () => {
    line.textContent = model.get("text");
    line.style.display = model.get("text") ? "" : "none";
    nameNeighbours();
  };
  model.on("change:text", update);
  model.on("change:alt", update);
  update();

  // The neighbours arrive after this widget is made: look again whenever the panel changes.
  let observer = null;
  const attach = () => {
    const root = el.closest(".course-panel");
    if (!root) { if (!stopped) requestAnimationFrame(attach); return; }
    observer = new MutationObserver(nameNeighbours);
    observer.observe(root, { childList: true, subtree: true, characterData: true });
    nameNeighbours();
  };
  let stopped = false;
  attach();

  const reset = async (event) => {
    const button = event.target.closest?.(".course-reset");
    if (!button || button.closest(".course-panel") !== el.closest(".course-panel")) return;
    for (const [id, start] of Object.entries(model.get("start"))) {
      const control = await model.widget_manager.get_model(id);
      control.set(start);
      control.save_changes();
    }
  };
  document.addEventListener("click", reset);
  return () => {
    stopped = true;
    document.removeEventListener("click", reset);
    observer?.disconnect();
    model.off("change:text", update);
    model.off("change:alt", update);
  };
}
export default { render };
"""

_STYLE = """
.course-words { margin: 4px 0; padding: 6px 10px; max-width: 70em; line-height: 1.4;
  border-left: 4px solid #0072B2; background: rgba(0, 114, 178, 0.08);
  font-family: var(--jp-content-font-family, sans-serif); color: var(--jp-content-font-color1, inherit); }
.course-panel .noUi-handle:focus-visible, .course-panel .widget-readout:focus-visible,
.course-panel button:focus-visible, .course-panel input:focus-visible {
  outline: 3px solid #0072B2; outline-offset: 2px; }
"""

PANEL_CLASS, RESET_CLASS = "course-panel", "course-reset"


class Words(anywidget.AnyWidget):
    """A line of text, announced when it changes; put it in a box that has the class `PANEL_CLASS`.

    A button of the class `RESET_CLASS` in the same box gives each control its `start`: {model id: state of the model}.
    """

    _esm = _MODULE
    _css = _STYLE
    text = traitlets.Unicode("").tag(sync=True)
    alt = traitlets.Unicode("").tag(sync=True)
    start = traitlets.Dict().tag(sync=True)
