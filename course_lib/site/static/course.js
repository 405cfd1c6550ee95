/* Explorers get their controls, predictions their answer. Without this script the page still shows the default
   picture, the strip of three settings, and all answers to unfold. */
"use strict";

function explorer(root) {
  const { folder, controls } = JSON.parse(root.querySelector("script").textContent);
  const image = root.querySelector("img");
  const words = root.querySelector(".course-words");
  const about = image.alt;
  const inputs = [];

  // One control moves; the others go back to their defaults, for which the frames were drawn.
  const show = (moved) => {
    controls.forEach((control, i) => {
      if (i !== moved) inputs[i].value = control.default;
      const value = control.values[inputs[i].value];
      inputs[i].parentElement.querySelector("output").textContent = value;
      if (inputs[i].type === "range") inputs[i].setAttribute("aria-valuetext", value);
    });
    const at = inputs[moved].value;
    image.src = `${folder}/${controls[moved].files[at]}`;
    words.textContent = controls[moved].words[at];
    image.alt = `${about} ${controls[moved].words[at]}`;
  };

  // The row is fetched when the reader turns to its control, so that the picture follows the hand.
  const fetchRow = (control) => {
    if (control.fetched) return;
    control.fetched = control.files.map((file) => {
      const frame = new Image();
      frame.src = `${folder}/${file}`;
      return frame;
    });
  };

  const panel = root.querySelector(".course-controls");
  controls.forEach((control, i) => {
    const label = document.createElement("label");
    label.title = control.about;
    const name = document.createElement("span");
    name.textContent = control.label;
    let input;
    if (control.kind === "slider") {
      input = document.createElement("input");
      input.type = "range";
      input.min = 0;
      input.max = control.values.length - 1;
      input.step = 1;
    } else {
      input = document.createElement("select");
      control.values.forEach((value, at) => input.add(new Option(value, at)));
    }
    input.value = control.default;
    input.setAttribute("aria-label", control.label);
    const output = document.createElement("output");
    output.setAttribute("aria-hidden", "true");
    output.hidden = control.kind !== "slider";
    label.append(name, input, output);
    panel.append(label);
    inputs.push(input);
    input.addEventListener("input", () => show(i));
    for (const turn of ["focus", "pointerenter", "touchstart"]) {
      input.addEventListener(turn, () => fetchRow(control), { passive: true });
    }
  });
  if (controls.length > 1) {
    const note = document.createElement("p");
    note.className = "course-note";
    note.textContent = "Here one control moves at a time: the others return to their defaults.";
    panel.append(note);
  }
  controls.forEach((control, i) => {
    inputs[i].parentElement.querySelector("output").textContent = control.values[control.default];
    if (inputs[i].type === "range") inputs[i].setAttribute("aria-valuetext", control.values[control.default]);
  });
}

function prediction(form) {
  const answers = [...form.querySelectorAll("dl dt")];
  const unfold = form.querySelector("details");
  const button = form.querySelector("button");
  const line = form.querySelector("[role=status]");
  unfold.hidden = true;
  form.addEventListener("change", () => { button.disabled = false; });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const choice = answers[form.querySelector("input:checked").value];
    const why = choice.nextElementSibling;
    const opening = why.dataset.right === "true" ? "As you predicted. " : "Not what happens. ";
    line.textContent = opening + [...why.childNodes].slice(1).map((node) => node.textContent).join("").trim();
    line.className = "course-words";
    unfold.hidden = false;
  });
}

/* What scrolls sideways can be reached by keyboard. */
function reachable() {
  for (const box of document.querySelectorAll(".course-frame, div.math, mjx-container, pre, table, .table-wrapper")) {
    if (box.scrollWidth > box.clientWidth + 1) {
      box.tabIndex = 0;
      if (!box.getAttribute("aria-label")) {
        box.setAttribute("role", "group");
        box.setAttribute("aria-label", box.tagName === "PRE" ? "Code, scrolls sideways" : "Scrolls sideways");
      }
    } else if (box.tabIndex === 0) {
      box.removeAttribute("tabindex");
    }
  }
}

document.querySelectorAll(".course-explorer").forEach(explorer);
document.querySelectorAll(".course-prediction").forEach(prediction);
const typeset = window.MathJax?.startup?.promise ?? Promise.resolve();
typeset.then(() => { reachable(); document.documentElement.dataset.ready = "true"; });
let waiting;
window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(reachable, 200); });
window.addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details.course-strip")) folded.open = true;
});
