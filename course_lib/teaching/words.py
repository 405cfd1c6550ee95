"""The line in words under a picture, and the names that a screen reader needs around it.

ipywidgets' sliders give their handle and their readout no accessible name, and its Image no
alternative text. `Words` is a live region that says what the picture shows; when it is on the page
it also names, from their visible labels, the sliders of the explorer that it stands in.

And it puts the controls back where Reset is pressed. The page keeps the last values of a drag until the kernel has
taken the earlier ones: a kernel that resets alone is overtaken by them.

And it keeps the cells that answer a prediction closed until the guess is recorded. JupyterLab opens the outputs of a cell
that runs, so that hiding them in the stored notebook is not enough: the cells that name the prediction in their
metadata get a note in the place of their code and of what they show, and open with the guess or by the note's button.
The bounds in a claim's code answer as plainly as its output. A figure that then stands in the next cell is left out of the
prediction's panel.

And it says when the kernel cannot answer yet. After Run All an explorer is on the page long before the cells below it
are done. `answer_while_busy` lets the kernel answer beside them; where it does not, a note says why nothing moves.
"""

import re

import anywidget
import ipywidgets
import traitlets

_PAGE = """
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

WITH KERNEL
  // Cells whose metadata have course.answers = opens: the notebook's model knows them, by their place.
  const opens = model.get("opens");
  const notebook = () => el.closest(".jp-Notebook");
  const closed = () => opens && !model.get("answered");
  const waiting = () => {
    const known = model.widget_manager.context?.model?.cells;
    const root = notebook();
    if (!known || !root) return [];
    const nodes = [...root.querySelectorAll(".jp-Cell")];
    return nodes.filter((node, at) => {
      const place = Number(node.dataset.windowedListIndex ?? at);
      const cell = place < known.length ? known.get(place) : null;
      return cell?.getMetadata("course")?.answers === opens;
    });
  };
  const showMe = () => { model.set("answered", true); model.save_changes(); };
  const note = () => {
    const line = document.createElement("div");
    line.className = "course-note";
    line.dataset.prediction = opens;
    line.append(`What answers ${opens} is shown here after your guess. `);
    const button = document.createElement("button");
    button.textContent = "Show me";
    button.setAttribute("aria-label", `Show me what answers ${opens}`);
    button.addEventListener("click", showMe);
    line.append(button);
    return line;
  };
  const gate = () => {
    let last = null;
    for (const node of waiting()) {
      const has = node.querySelector(":scope > .course-note");
      if (closed()) {
        node.classList.add("course-waits");
        // One note where several cells stand in a row.
        const follows = last && last === node.previousElementSibling;
        if (!has && !follows) node.append(note());
        last = node;
      } else {
        has?.remove();
        node.classList.remove("course-waits");
        node.querySelector(".jp-Cell-outputWrapper .jp-OutputPlaceholder .jp-Placeholder-content")?.click();
      }
    }
  };
  let gated = null;
  const watch = () => {
    const root = notebook();
    if (!root) { if (!stopped) requestAnimationFrame(watch); return; }
    // Cells far away are drawn when the reader comes near them.
    const list = root.querySelector(".jp-WindowedPanel-viewport") ?? root;
    gated = new MutationObserver(() => { if (closed()) gate(); });
    gated.observe(list, { childList: true });
    gate();
  };
  if (opens) {
    model.on("change:answered", gate);
    watch();
  }
  return () => {
    stopped = true;
    gated?.disconnect();
    model.off("change:answered", gate);
    rest();
    observer?.disconnect();
    model.off("change:text", update);
    model.off("change:alt", update);
  };
}
export default { render };
"""

# What only a page that was run needs: reset the controls, show an answer's figure once, and say that the kernel is busy.
_WITH_KERNEL = """
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

  // The figure of an answer often stands in the next cell, too, for readers who have no kernel: that one is enough.
  const once = () => {
    if (stopped || !opens || !model.get("alt")) return;
    const cell = el.closest(".jp-Cell");
    const picture = el.closest(".course-panel")?.querySelector("img");
    if (!cell || !picture) { requestAnimationFrame(once); return; }
    const nodes = [...cell.closest(".jp-Notebook").querySelectorAll(".jp-Cell")];
    const place = Number(cell.dataset.windowedListIndex ?? nodes.indexOf(cell));
    const after = [...model.widget_manager.context?.model?.cells ?? []].slice(place + 1);
    const outputs = after.find((one) => one.type === "code")?.outputs;
    const look = () => {
      const said = [...Array(outputs.length).keys()].map((at) => outputs.get(at).data["text/plain"]);
      if (!said.includes("Figure: " + model.get("alt"))) return;
      picture.classList.add("lm-mod-hidden"); // Lumino's class: the style belongs to ipywidgets
      outputs.changed.disconnect(look);
    };
    outputs?.changed.connect(look);
    if (outputs) look();
  };
  model.on("change:alt", once);
  requestAnimationFrame(once);

  // Where the kernel has not answered the hand after a while, the panel says so until it has.
  const kernel = model.widget_manager.kernel;
  const busy = document.createElement("p");
  busy.className = "course-busy";
  busy.setAttribute("role", "status");
  el.appendChild(busy);
  const sent = new Set();
  let mine = false;  // whether the hand was last at this panel
  const touch = (event) => {
    const root = el.closest(".course-panel");
    mine = root !== null && event.target.closest?.(".course-panel") === root;
  };
  const hear = (_, { msg, direction }) => {
    const { msg_type, msg_id } = msg.header;
    if (direction === "send" && msg_type === "comm_msg" && mine) {
      sent.add(msg_id);
      setTimeout(() => {
        if (sent.has(msg_id)) busy.textContent = "The kernel is still busy. This follows when it is done.";
      }, 1500);
    } else if (direction === "recv" && msg_type === "status") {
      if (msg.content.execution_state === "idle") sent.delete(msg.parent_header.msg_id);
      if (msg.content.execution_state === "starting") sent.clear();
      if (!sent.size) busy.textContent = "";
    }
  };
  const gestures = ["pointerdown", "keydown", "change", "click"];
  for (const gesture of gestures) document.addEventListener(gesture, touch, true);
  kernel?.anyMessage?.connect(hear);
  const rest = () => {
    document.removeEventListener("click", reset);
    model.off("change:alt", once);
    for (const gesture of gestures) document.removeEventListener(gesture, touch, true);
    kernel?.anyMessage?.disconnect(hear);
  };
"""

_STYLE = """
.course-words { margin: 4px 0; padding: 6px 10px; max-width: 70em; line-height: 1.4;
  border-left: 4px solid #0072B2; background: rgba(0, 114, 178, 0.08);
  font-family: var(--jp-content-font-family, sans-serif); color: var(--jp-content-font-color1, inherit); }
.course-busy { margin: 4px 0; padding: 6px 10px; max-width: 70em; line-height: 1.4; border-left: 4px solid #D55E00;
  background: rgba(213, 94, 0, 0.08); font-family: var(--jp-content-font-family, sans-serif);
  color: var(--jp-content-font-color1, inherit); }
.course-busy:empty { display: none; }
.course-waits .jp-Cell-inputWrapper, .course-waits .jp-Cell-outputWrapper { display: none !important; }
.course-note { margin: 6px 0 6px 64px; color: var(--jp-content-font-color2, inherit);
  font-family: var(--jp-content-font-family, sans-serif); font-size: var(--jp-content-font-size1, 14px); }
.course-panel .noUi-handle:focus-visible, .course-panel .widget-readout:focus-visible,
.course-panel button:focus-visible, .course-panel input:focus-visible {
  outline: 3px solid #0072B2; outline-offset: 2px; }
"""

PANEL_CLASS, RESET_CLASS = "course-panel", "course-reset"


# The module that a stored notebook keeps: no kernel answers there, and a page has a copy of it for each of its panels.
_STILL = re.compile(r"^\s*(//.*)?\n|^\s+", re.MULTILINE)
STORED_MODULE = _STILL.sub("", _PAGE.replace("WITH KERNEL", "const rest = () => {};"))


class Words(anywidget.AnyWidget):
    """A line of text, announced when it changes; put it in a box that has the class `PANEL_CLASS`.

    A button of the class `RESET_CLASS` in the same box gives each control its `start`: {model id: state of the model}.
    Cells of the notebook whose metadata name `opens` as what they answer wait until `answered`.
    """

    _esm = _PAGE.replace("WITH KERNEL\n", _WITH_KERNEL)
    _css = _STYLE
    text = traitlets.Unicode("").tag(sync=True)
    alt = traitlets.Unicode("").tag(sync=True)
    start = traitlets.Dict().tag(sync=True)
    opens = traitlets.Unicode("").tag(sync=True)
    answered = traitlets.Bool(False).tag(sync=True)


def answer_while_busy(*widgets: ipywidgets.Widget) -> None:
    """Let the kernel answer these widgets in the thread that JupyterLab asks for, also while it runs a cell.

    JupyterLab addresses what widgets send to a thread of its own (a subshell). From 7.4 on ipykernel sends it back to
    the thread that spoke last through the widget, which for a widget that a cell made is the one that runs the cells:
    it would answer when all of them are done. Without ipykernel, or with an earlier one, there is nothing to change.
    """
    for widget in widgets:
        if hasattr(widget.comm, "_reply_subshell_for"):
            widget.comm._reply_subshell_for = lambda _data, asked: asked
