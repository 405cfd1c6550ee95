/* Explorers get their controls, predictions their answer. Without this script the page still shows the default
   picture, the strip of three settings, and all answers to unfold. */
"use strict";

function explorer(root) {
  const { folder, about, controls, grid } = JSON.parse(root.querySelector("script").textContent);
  const pair = grid ? grid.controls : [];
  const image = root.querySelector("img");
  const words = root.querySelector(".course-words");
  const inputs = [];

  const say = (i) => {
    const value = controls[i].values[inputs[i].value];
    inputs[i].parentElement.querySelector("output").textContent = value;
    if (inputs[i].type === "range") inputs[i].setAttribute("aria-valuetext", value);
  };

  // What control i shows at a position: in the grid beside the setting of its partner, else in its row.
  const frame = (i, at) => {
    if (!pair.includes(i)) return { file: controls[i].files[at], words: controls[i].words[at] };
    const [a, b] = pair.map((one) => (one === i ? at : inputs[one].value));
    return { file: grid.files[a][b], words: grid.words[a][b] };
  };

  // The controls that frames were not drawn for, beside the one that moves, go back to their defaults.
  const show = (moved) => {
    controls.forEach((control, i) => {
      const stays = i === moved || (pair.includes(i) && pair.includes(moved));
      if (!stays) inputs[i].value = control.default;
      say(i);
    });
    const shown = frame(moved, inputs[moved].value);
    image.src = `${folder}/${shown.file}`;
    words.textContent = shown.words;
    image.alt = `${about} ${shown.words}`;
  };

  // The frames of a control are fetched when the reader turns to it, so that the picture follows the hand.
  const fetched = new Map();
  const fetchRow = (i) => {
    controls[i].values.forEach((_, at) => {
      const { file } = frame(i, at);
      if (fetched.has(file)) return;
      fetched.set(file, new Image());
      fetched.get(file).src = `${folder}/${file}`;
    });
  };

  const add = (i) => {
    const control = controls[i];
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
    inputs[i] = input;
    say(i);
    input.addEventListener("input", () => show(i));
    for (const turn of ["focus", "pointerenter", "touchstart"]) {
      input.addEventListener(turn, () => fetchRow(i), { passive: true });
    }
    return label;
  };

  const group = (places, note) => {
    const box = document.createElement("div");
    box.append(...places.map(add));
    if (note) {
      const line = document.createElement("p");
      line.className = "course-note";
      line.textContent = note;
      box.prepend(line);
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", note);
    }
    root.querySelector(".course-controls").append(box);
  };
  const rest = controls.map((_, i) => i).filter((i) => !pair.includes(i));
  if (pair.length) group(pair, "These two act together: move both.");
  if (rest.length) {
    const by = pair.length ? "Each control below moves by itself" : "One control moves at a time";
    group(rest, controls.length > 1 ? `${by}: the others return to their defaults.` : "");
  }
}

/* What answers a prediction stays hidden until the reader has guessed, or asks to see it. */
function prediction(form, i, forms) {
  const choices = [...form.querySelectorAll("dl dt")];
  const unfold = form.querySelector("details");
  const button = form.querySelector("button");
  const line = form.querySelector("[role=status]");
  const follows = (one, other) => one.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_FOLLOWING;
  const answers = [...document.querySelectorAll(".course-answer, .cell.tag_course-answer")].filter(
    (one) => follows(form, one) && !(forms[i + 1] && follows(forms[i + 1], one)));
  const number = form.querySelector("input").name;
  const notes = [];
  const peek = document.createElement("button");

  const reveal = (shown) => {
    for (const one of answers) one.classList.toggle("course-shown", shown);
    for (const note of notes) note.hidden = shown;
    peek.setAttribute("aria-expanded", shown);
    reachable();
  };

  unfold.hidden = true;
  if (answers.length) {
    // One note where several parts stand in a row.
    for (const one of answers.filter((one) => !answers.includes(one.previousElementSibling))) {
      const note = document.createElement("p");
      const link = document.createElement("a");
      note.className = "course-note course-waiting";
      link.href = `#${form.id}`;
      link.textContent = "your guess";
      note.append(`What answers ${number} is shown here after `, link, ".");
      one.before(note);
      notes.push(note);
    }
    peek.type = "button";
    peek.className = "course-peek";
    peek.textContent = "Show the answer without guessing";
    peek.addEventListener("click", () => reveal(peek.getAttribute("aria-expanded") !== "true"));
    button.after(peek);
    reveal(false);
    // A link into the passage asks to see it.
    const meant = () => {
      const place = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (!place || !answers.some((one) => one.contains(place))) return;
      reveal(true);
      place.scrollIntoView();
    };
    window.addEventListener("hashchange", meant);
    meant();
  }
  form.addEventListener("change", () => { button.disabled = false; });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const choice = choices[form.querySelector("input:checked").value];
    const why = choice.nextElementSibling;
    const opening = why.dataset.right === "true" ? form.dataset.right : form.dataset.wrong;
    line.textContent = `${opening} ` + [...why.childNodes].slice(1).map((node) => node.textContent).join("").trim();
    line.className = "course-words";
    unfold.hidden = false;
    peek.hidden = true;
    reveal(true);
  });
}

/* The appendix is folded; a link into it unfolds it. */
function appendix(section) {
  const heading = section.querySelector("h2");
  const folded = document.createElement("details");
  const summary = document.createElement("summary");
  folded.className = "course-appendix";
  summary.textContent = "Show the appendix";
  folded.append(summary);
  while (heading.nextSibling) folded.append(heading.nextSibling);
  section.append(folded);
  folded.addEventListener("toggle", reachable);
  const meant = () => {
    const place = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!place || !folded.contains(place)) return;
    folded.open = true;
    place.scrollIntoView();
  };
  window.addEventListener("hashchange", meant);
  window.addEventListener("beforeprint", () => { folded.open = true; });
  meant();
}

/* In the list of all pages a part of the course is folded, unless this page belongs to it. */
function part(caption) {
  const pages = caption.nextElementSibling;
  const folded = document.createElement("details");
  const summary = document.createElement("summary");
  folded.className = "course-part-pages";
  folded.open = pages.querySelector(".current") !== null;
  caption.before(folded);
  summary.append(caption);
  folded.append(summary, pages);
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

// The theme's link back to the top shows after a scroll upwards, and is part of the article like all else that is read.
document.querySelector("article").prepend(document.querySelector(".back-to-top"));
[...document.querySelectorAll(".sidebar-tree p.caption")].filter((one) => /^[IVX]+ /.test(one.textContent)).forEach(part);
document.querySelectorAll(".course-explorer").forEach(explorer);
document.querySelectorAll(".course-prediction").forEach(prediction);
document.querySelectorAll("section#Appendix").forEach(appendix);
const typeset = window.MathJax?.startup?.promise ?? Promise.resolve();
typeset.then(() => { reachable(); document.documentElement.dataset.ready = "true"; });
let waiting;
window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(reachable, 200); });
window.addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details.course-strip")) folded.open = true;
});
