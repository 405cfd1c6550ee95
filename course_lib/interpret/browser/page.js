"use strict";
// Everything that comes from a run or from the reader is put into the page as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const about = data.about, columns = data.list, offline = data.features;
  const token = new URLSearchParams(location.search).get("token") || "";
  const main = document.getElementById("main"), status = document.getElementById("status");
  const ROWS = 60;
  const place = new Map(columns.id.map((id, at) => [id, at]));
  const languages = about.languages;
  let shownRows = ROWS, lastHash = null, lastRead = "", latest = 0;

  // --- the page's state is its hash ---------------------------------------------------------------

  const STANDARD = {
    view: "features", q: "", sort: "strength", language: "", feature: "", in: "",
    text: "", source: about.default_language || "", target: "", change: "", other: "", list: "",
    find: "", among: "", sentence: "",
  };

  // A link may hold anything; what can be no choice of the reader's counts as not given.
  function possible(name, value) {
    if (name === "view") return ["features", "sentences", "try", "compare"].includes(value);
    if (name === "sort") return Object.hasOwn(SORTS, value);
    if (name === "language" || name === "in" || name === "among") return value === "" || languages.includes(value);
    return true;
  }

  function readHash() {
    const given = new URLSearchParams(location.hash.slice(1));
    const found = { ...STANDARD };
    for (const name of Object.keys(STANDARD)) if (given.has(name) && possible(name, given.get(name))) found[name] = given.get(name);
    return found;
  }

  function hashOf(changes) {
    const state = { ...readHash(), ...changes }, kept = new URLSearchParams();
    for (const [name, value] of Object.entries(state)) if (String(value) !== STANDARD[name]) kept.set(name, value);
    if (!kept.has("view")) kept.set("view", "features");
    return "#" + kept;
  }

  function go(changes, { replace = false } = {}) {
    history[replace ? "replaceState" : "pushState"](null, "", hashOf(changes));
    render();
  }

  // change=57:scale:0,12:set:0.8:3 is feature 57 times 0, and feature 12 set to 0.8 at token 3.
  const readChanges = (text) => text.split(",").filter(Boolean).map((part) => {
    const [feature, mode, number, at] = part.split(":");
    return { feature: Number(feature), mode, number: Number(number), token: at === undefined ? null : Number(at) };
  }).filter((change) => Number.isInteger(change.feature) && change.feature >= 0 && change.feature < about.features);
  const writeChanges = (changes) => changes.map((change) =>
    [change.feature, change.mode, change.number, ...(change.token === null ? [] : [change.token])].join(":")).join(",");

  // --- small helpers ------------------------------------------------------------------------------

  function h(name, attributes, ...children) {
    const svg = ["svg", "rect", "text", "line", "title"].includes(name);
    const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (key === "heat") node.style.setProperty("--a", Math.min(1, Math.max(0, value)).toFixed(3));
      else if (key === "width" && !svg) node.style.width = value + "px";
      else if (key === "value") node.value = value;
      else node.setAttribute(key, value === true ? "" : key === "href" ? value : plain(value));
    }
    return put(node, ...children);
  }

  function put(node, ...children) {
    node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined)
      .map((child) => typeof child === "string" && /\S{40}/.test(child) && BREAKABLE.has(node.localName) ? breakable(child) : plain(child)));
    return node;
  }

  // A word as long as this may break at any letter: what holds it must not become as wide.
  const BREAKABLE = new Set(["a", "bdi", "div", "h2", "h3", "h4", "li", "mark", "p", "span", "td", "th"]);
  function breakable(text) {
    const node = document.createElement("span");
    node.className = "long";
    node.textContent = plain(text);
    return node;
  }

  // Signs that turn the direction of all that follows are shown by their number, or a text could reorder the words beside it.
  function plain(text) {
    return typeof text === "string"
      ? text.replace(/[\u202a-\u202e\u2066-\u2069]/g, (sign) => `⟨U+${sign.codePointAt(0).toString(16).toUpperCase()}⟩`) : text;
  }

  // Words from a run inside a line of the page: their own direction ends with them.
  const bdi = (text) => h("bdi", {}, text);

  const number = (value) => value === null || value === undefined ? "–"
    : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
  const percent = (value) => value >= 0.1 ? (100 * value).toFixed(0) + "%"
    : value === 0 ? "0%" : Number((100 * value).toPrecision(2)) + "%";
  const signed = (value) => (value > 0 ? "+" : "−") + number(Math.abs(value));
  const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

  // Words for screen readers; those that everybody should read are seen, too.
  function say(text, kind = "quiet") {
    status.className = kind;
    status.textContent = plain(text);
  }

  async function ask(path, body) {
    let answer;
    try {
      answer = await fetch(path, {
        method: body ? "POST" : "GET", headers: { Authorization: "token " + token },
        body: body && JSON.stringify(body),
      });
    } catch {
      throw new Error("The server does not answer: was it stopped?");
    }
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error || `The server answers ${answer.status}.`);
    return found;
  }

  const cut = (text) => text.length > 100 ? text.slice(0, 99) + "…" : text;
  const listed = (texts) => texts.length ? texts.map((text, at) => [at ? ", " : "", bdi(cut(text))]) : null;

  // The words of a feature for a link to it: its name where it has one, else its first tokens.
  function words(id) {
    const at = place.get(id);
    if (at === undefined) return "";
    if (columns.names[at]) return cut(columns.names[at]);
    return columns.tokens[at].slice(0, 3).map(cut).join(", ") || "never active";
  }

  // --- notes and lists ----------------------------------------------------------------------------

  // Served, they are kept in a file beside the run; in an exported file by the browser, under the autoencoder's identity.
  const STORE = "feature-browser-notes:" + data.identity;
  // As the reader has them, and as they were when they were last read or written.
  let notes = {}, saved = {};

  async function loadNotes() {
    try {
      notes = saved = data.notes ? (await ask("api/notes")).features : JSON.parse(localStorage.getItem(STORE) || "{}");
    } catch (error) { return error; }
    return null;
  }

  const NO_NOTE = { note: "", lists: [] };
  const noteOf = (id) => notes[id] || NO_NOTE;
  const joined = (first, second) => first.includes(second) ? first : second.includes(first) ? second : `${first}\n${second}`;

  // What `after` changed of `before`, done to what is stored; the server does the same (`notes.merged`).
  function mergedNote(stored, before, after) {
    const lists = new Set([...stored.lists, ...after.lists]);
    for (const list of before.lists) if (!after.lists.includes(list)) lists.delete(list);
    const note = after.note === before.note ? stored.note : [before.note, after.note].includes(stored.note) ? after.note : joined(stored.note, after.note);
    return { note, lists: [...lists].sort() };
  }
  const listNames = () => [...new Set(Object.values(notes).flatMap((one) => one.lists))].sort((a, b) => a.localeCompare(b));

  // `changed` has the notes of some features; what other pages wrote in the meantime stays.
  async function keep(changed, what) {
    const before = Object.fromEntries(Object.keys(changed).map((id) => [id, saved[id] || NO_NOTE]));
    try {
      if (data.notes) notes = (await ask("api/notes", { features: changed, before })).features;
      else {
        const found = JSON.parse(localStorage.getItem(STORE) || "{}");
        for (const [id, one] of Object.entries(changed)) found[id] = mergedNote(found[id] || NO_NOTE, before[id], one);
        notes = Object.fromEntries(Object.entries(found).filter(([, one]) => one.note.trim() || one.lists.length));
        localStorage.setItem(STORE, JSON.stringify(notes));
      }
      saved = notes;
      if (Object.entries(changed).every(([id, one]) => noteOf(id).note.trim() === one.note.trim())) say(what);
      else { draw(readHash()); say("Another page changed this note in the meantime: see what is kept.", "busy"); }
      return true;
    } catch (error) { say(error.message, "error"); return false; }
  }

  function exportNotes() {
    const content = JSON.stringify({ format: 1, identity: data.identity, features: notes }, null, 1);
    const url = URL.createObjectURL(new Blob([content], { type: "application/json" }));
    h("a", { href: url, download: "feature_notes.json" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  async function importNotes(file) {
    let given;
    try { given = JSON.parse(await file.text()); } catch { given = null; }
    const found = given && typeof given === "object" ? given.features : null;
    const whole = found && typeof found === "object" && Object.entries(found).every(([id, one]) => /^\d{1,9}$/.test(id) && Number(id) < about.features
      && one && typeof one.note === "string" && Array.isArray(one.lists) && one.lists.every((name) => typeof name === "string"));
    if (!whole || given.format !== 1) { say(`${file.name} holds no notes: expected a file that “Export notes” wrote.`, "error"); return; }
    if (given.identity !== data.identity) { say(`${file.name} holds notes on the features of another autoencoder.`, "error"); return; }
    // A note that both have is kept from both.
    const merged = Object.fromEntries(Object.entries(found).map(([id, one]) => {
      const own = noteOf(id);
      return [id, { note: joined(own.note, one.note), lists: [...new Set([...own.lists, ...one.lists])] }];
    }));
    if (await keep(merged, "")) { draw(readHash()); say(`Notes on ${plural(Object.keys(found).length, "feature")} were read.`, "busy"); }
  }

  function notePart(id) {
    const own = noteOf(id), save = (changes, what) => keep({ [id]: { ...noteOf(id), ...changes } }, what);
    const area = h("textarea", { id: "note", maxlength: "10000", value: own.note, placeholder: "What do you think it stands for?",
      oninput: (event) => { notes = { ...notes, [id]: { ...noteOf(id), note: event.target.value } }; },
      onchange: (event) => save({ note: event.target.value }, "The note is kept.") });
    const name = h("input", { id: "list-name", list: "list-names", maxlength: "100", autocomplete: "off" });
    const relist = async (lists, what) => { if (await save({ lists }, "")) { draw(readHash()); say(what); } };
    return h("details", { class: "notes", open: own.note || own.lists.length ? true : null },
      h("summary", {}, "Your note and lists"),
      h("label", {}, "Note on this feature", area),
      own.lists.length ? h("ul", { class: "chips", "aria-label": "Lists that hold this feature" }, own.lists.map((list) => h("li", {},
        h("a", { href: hashOf({ view: "features", feature: "", list, q: "" }) }, bdi(list)),
        h("button", { type: "button", "aria-label": `Take feature ${id} off the list ${list}`, onclick: () => relist(own.lists.filter((one) => one !== list), `Feature ${id} is off the list.`) }, "×")))) : null,
      h("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); const list = name.value.trim(); if (list) relist([...new Set([...noteOf(id).lists, list])], `Feature ${id} is on the list ${list}.`); } },
        h("label", {}, "Put it on a list", name), h("datalist", { id: "list-names" }, listNames().map((list) => h("option", { value: list }))), h("button", {}, "Add to list")),
      h("p", { class: "soft" }, data.notes ? `Kept in ${data.notes} beside the run.` : "Kept by this browser for this file; “Export notes” below the list of features writes them to a file."));
  }

  function notesPart() {
    const picker = h("input", { type: "file", id: "import", accept: ".json,application/json", onchange: (event) => { if (event.target.files.length) importNotes(event.target.files[0]); } });
    return h("details", {}, h("summary", {}, "Notes and lists"), h("p", { class: "soft" }, `${plural(Object.keys(notes).length, "feature")} with a note or on a list.`),
      h("div", { class: "filters" }, h("button", { type: "button", onclick: exportNotes }, "Export notes"), h("label", {}, "Import notes", picker)));
  }

  // --- list ---------------------------------------------------------------------------------------

  const share = (at, language) => {
    const rates = columns.languages[at], sum = rates.reduce((a, b) => a + b, 0);
    if (!sum) return 0;
    return language ? rates[languages.indexOf(language)] / sum : Math.max(...rates) / sum;
  };
  const f1 = (at) => Math.max(-1, ...columns.concepts[at].map((concept) => concept[1] ?? -1));
  const hasConcepts = data.concepts;
  const SORTS = {
    strength: ["strength (root mean square)", (at) => columns.strength[at]],
    largest: ["largest activation", (at) => columns.largest[at]],
    density: ["density", (at) => columns.density[at]],
    rare: ["density, rarest first", (at) => columns.density[at] ? -columns.density[at] : -2],
    ...(hasConcepts ? { f1: ["F1 of its best concept", f1] } : {}),
    ...(languages.length > 1 ? { language: ["language share", (at, state) => share(at, state.language)] } : {}),
    id: ["number", (at) => -columns.id[at]],
  };

  const NOTED = "*";
  const WORD = /[\p{L}\p{M}\p{N}]+/gu;
  const wordsOf = (text) => text.toLowerCase().match(WORD) || [];

  // Whether some words have all that are looked for, whole; the last one may be a beginning: “cell*”. Null without a word.
  function finder(wanted) {
    const all = wordsOf(wanted), open = wanted.endsWith("*");
    if (!all.length) return null;
    return (words) => all.every((word, at) => words.some((own) => own === word || (open && at === all.length - 1 && own.startsWith(word))));
  }

  function matching(state) {
    const wanted = state.q.trim().toLowerCase(), order = [...columns.id.keys()];
    const exact = /^#?\d+$/.test(wanted) ? Number(wanted.replace("#", "")) : null;
    const found = finder(wanted), noted = (id) => state.list === "" || (state.list === NOTED ? noteOf(id).note : noteOf(id).lists.includes(state.list));
    const hit = (at) => {
      if (!noted(columns.id[at])) return null;
      if (!wanted || columns.id[at] === exact) return 0;
      // A piece of a word and a sign are looked for as they are shown.
      if (!found || wanted.startsWith("…")) return columns.tokens[at].some((token) => token.toLowerCase() === wanted) ? 1 : null;
      if (columns.concepts[at].some(([name]) => found(wordsOf(name)))) return 1;
      return found(columns.words[at]) ? (found(columns.words[at].slice(0, 1)) ? 2 : 3) : null;
    };
    const [, value] = SORTS[state.sort];
    return order.map((at) => [at, hit(at), value(at, state)]).filter(([, rank]) => rank !== null)
      .sort((a, b) => (wanted && Math.floor(a[1]) - Math.floor(b[1])) || b[2] - a[2] || columns.id[a[0]] - columns.id[b[0]])
      .map(([at]) => at);
  }

  // How sure a name is, in a line below it; nothing for a concept that is no name.
  const sureOf = (sure) => sure && h("div", { class: "soft", title: "On sentences kept out of training: the share of the sentences with the concept at which it fires (recall), the share of its alarms that are right (precision), and how far its F1 is from that of “always yes” (0%) to perfect (100%)." },
    sure.recall === null ? "" : `finds ${percent(sure.recall)}, right ${percent(sure.precision)}, `, `${percent(sure.above_chance)} above chance`);

  function listPane(state) {
    const found = matching(state), rows = found.slice(0, shownRows);
    const refresh = (changes) => { shownRows = ROWS; go(changes, { replace: true }); };
    // The address of a view, of this page or of one that was served earlier, opens that view.
    const search = (text) => { const view = text.match(/#(\S*\bview=\S*)$/); if (view) location.hash = view[1]; else refresh({ q: text }); };
    const wanted = state.q.trim().toLowerCase(), finds = finder(wanted), lists = listNames();
    const pane = h("section", { class: "list", "aria-label": "Features" },
      h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
        h("label", { class: "wide" }, "Search word, concept or number",
          h("input", { type: "search", id: "q", value: state.q, autocomplete: "off", "aria-describedby": "search-help", oninput: (event) => search(event.target.value) })),
        h("label", {}, "Sort by", h("select", { id: "sort", onchange: (event) => refresh({ sort: event.target.value }) },
          Object.entries(SORTS).map(([name, [label]]) => h("option", { value: name, selected: name === state.sort }, label)))),
        languages.length > 1 ? h("label", {}, "Language", h("select", { id: "language", onchange: (event) => refresh({ language: event.target.value, sort: "language" }) },
          h("option", { value: "" }, "its main one"), languages.map((name) => h("option", { value: name, selected: name === state.language }, name)))) : null,
        lists.length || Object.keys(notes).length || state.list ? h("label", {}, "Your lists", h("select", { id: "list", onchange: (event) => refresh({ list: event.target.value }) },
          h("option", { value: "" }, "all features"), h("option", { value: NOTED, selected: state.list === NOTED }, "with a note"),
          [...new Set([...lists, ...(state.list && state.list !== NOTED ? [state.list] : [])])].map((list) => h("option", { value: list, selected: list === state.list }, cut(list))))) : null),
      h("p", { class: "soft", id: "search-help" }, "Whole words; “cell*” finds all that begin with cell. Paste the address of a view here to open it."),
      h("p", { class: "soft", id: "found" }, found.length
        ? `${plural(found.length, "feature")}${found.length < columns.id.length ? " of " + columns.id.length.toLocaleString("en") : ""}`
        : (state.list && !wanted ? "No feature is on that list." : "No feature has that number, that word in its concepts, or that word among those at which it fires most. Add * to search for a beginning.")),
      wanted && finds && !/^#?\d+$/.test(wanted) ? h("p", { class: "soft" }, h("a", { id: "find-sentences", href: hashOf({ view: "sentences", find: state.q.trim(), sentence: "" }) }, "Sentences with “", bdi(cut(state.q.trim())), "”")) : null);
    if (!found.length) { pane.append(notesPart()); return [pane, found]; }
    const head = ["Feature", "Words", ...(hasConcepts ? ["Best concept"] : [])];
    pane.append(h("table", {},
      h("caption", { class: "hidden" }, "Features, " + SORTS[state.sort][0] + " first"),
      h("thead", {}, h("tr", {}, head.map((text) => h("th", { scope: "col" }, text)),
        ...(hasConcepts ? [h("th", { scope: "col", class: "n" }, "F1")] : []),
        h("th", { scope: "col", class: "n wideonly" }, "Largest"), h("th", { scope: "col", class: "n roomy" }, "Density"),
        languages.length > 1 ? h("th", { scope: "col", class: "n wideonly" }, state.language ? ["Share ", bdi(state.language)] : "Main language") : null)),
      h("tbody", {}, rows.map((at) => {
        const id = columns.id[at], best = columns.concepts[at][0], rates = columns.languages[at];
        const mainLanguage = rates.length ? languages[rates.indexOf(Math.max(...rates))] : "";
        return h("tr", { "aria-current": String(id) === state.feature ? "true" : null },
          h("td", {}, h("a", { href: hashOf({ view: "features", feature: id, in: "" }), "aria-label": `Feature ${id}: ${words(id)}` }, String(id))),
          h("td", {}, listed(columns.words[at].filter((word, n) => n < 4 || (finds && finds([word])))) || h("span", { class: "soft" }, "never active")),
          ...(hasConcepts ? [h("td", { class: "name" }, best ? [cut(best[0]).split(":").map((part, at) => at ? [":", h("wbr"), part] : part), sureOf(columns.sure[at])] : ""), h("td", { class: "n" }, best ? number(best[1]) : "")] : []),
          h("td", { class: "n wideonly" }, number(columns.largest[at])), h("td", { class: "n roomy" }, percent(columns.density[at])),
          languages.length > 1 ? h("td", { class: "n wideonly" }, columns.density[at]
            ? [state.language ? "" : [bdi(mainLanguage), " "], percent(share(at, state.language))] : "–") : null);
      }))));
    if (found.length > rows.length) pane.append(h("p", {}, h("button", { type: "button", onclick: () => { shownRows += 5 * ROWS; render(); } }, `Show more (${(found.length - rows.length).toLocaleString("en")} left)`)));
    pane.append(notesPart());
    return [pane, found];
  }

  // --- one feature --------------------------------------------------------------------------------

  function coloured(parts, top) {
    let peak = -1, largest = 0;
    parts.forEach(([, a], at) => { if (a > largest) { largest = a; peak = at; } });
    return parts.map(([text, a], at) => a
      ? h("span", { class: at === peak ? "token peak" : "token", heat: 0.12 + 0.88 * a / (top || 1), title: `activation ${number(a)}` }, text)
      : text);
  }

  function histogram({ counts, edges }, silent) {
    const width = 440, height = 150, left = 46, bottom = 24, top = Math.max(...counts, 1);
    const step = (width - left - 8) / counts.length;
    const picture = h("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `Histogram of activations from 0 to ${number(edges.at(-1))}: ${counts.reduce((a, b) => a + b, 0).toLocaleString("en")} active tokens, most of them, ${top.toLocaleString("en")}, between ${number(edges[counts.indexOf(top)])} and ${number(edges[counts.indexOf(top) + 1])}. At ${silent.toLocaleString("en")} tokens it is silent, which are not drawn.` });
    counts.forEach((count, at) => {
      const tall = count ? Math.max(1, (height - bottom - 12) * count / top) : 0;
      const bar = h("rect", { x: left + at * step, y: height - bottom - tall, width: Math.max(step - 1, 0.5), height: tall });
      bar.append(h("title", {}, `${number(edges[at])} to ${number(edges[at + 1])}: ${plural(count, "token")}`));
      picture.append(bar);
    });
    picture.append(h("line", { x1: left, x2: width - 8, y1: height - bottom, y2: height - bottom }));
    for (const [x, text, anchor] of [[left, "0", "start"], [(left + width) / 2, "activation", "middle"], [width - 8, number(edges.at(-1)), "end"]])
      picture.append(h("text", { x, y: height - 7, "text-anchor": anchor }, text));
    picture.append(h("text", { x: left - 6, y: 18, "text-anchor": "end" }, top.toLocaleString("en")));
    picture.append(h("text", { x: left - 6, y: height - bottom, "text-anchor": "end" }, "0"));
    return picture;
  }

  const table = (label, head, rows, numeric) => h("div", { class: "scroll" }, h("table", { "aria-label": label },
    h("thead", {}, h("tr", {}, head.map((text, at) => h("th", { scope: "col", class: numeric.includes(at) ? "n" : null }, text)))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, at) => h("td", { class: numeric.includes(at) ? "n" : null }, cell)))))));

  const meter = (size, down) => h("span", { class: down ? "meter down" : "meter", width: Math.max(1, Math.round(60 * size)), "aria-hidden": "true" });

  function effectPart(found) {
    const box = h("div", { id: "effect" });
    const fill = (effect) => {
      const top = Math.max(...[...effect.raised, ...effect.lowered].map((row) => Math.abs(row.change)), 1e-12);
      const side = (label, rows) => h("div", {}, h("h4", {}, label), rows.length
        ? table(label, ["token", `change (${about.effects_unit})`, ""], rows.map((row) => [row.token, signed(row.change), meter(Math.abs(row.change) / top, row.change < 0)]), [1])
        : h("p", { class: "soft" }, "none"));
      box.replaceChildren(h("p", { class: "soft" }, about.effects),
        h("div", { class: "two" }, side("Raises", effect.raised), side("Lowers", effect.lowered)),
        effect.divergence === null ? "" : h("p", {}, `Without it the prediction changes by ${number(effect.divergence)} nats a sentence (KL); without a random direction of the same length at the same tokens by ${number(effect.divergence_random)}.`));
    };
    if (found.effect) fill(found.effect);
    else if (!found.count) box.append(h("p", { class: "soft" }, "It is never active, so there is no effect to be measured."));
    else if (offline) box.append(h("p", { class: "soft" }, "Not measured for this feature."));
    else box.append(h("p", { class: "soft" }, "Not measured yet for this feature."), h("button", { type: "button", onclick: async (event) => {
      event.target.disabled = true;
      say("Measuring; the model is loaded at the first time ...", "busy");
      try {
        fill(await ask("api/effect", { feature: found.id }));
        say(`The effect of feature ${found.id} is measured.`);
      } catch (error) { say(error.message, "error"); event.target.disabled = false; }
    } }, "Measure it now"));
    return box;
  }

  // Why a feature has its name, or none, for a reader who knows neither precision nor recall.
  function namePart(found) {
    const row = found.concepts.find((one) => one.named) || found.tried;
    if (!row) return h("p", { id: "why" }, h("b", {}, "No name. "), hasConcepts
      ? "It was the best feature of no concept, so it was tried with none. It may stand for something that no concept of this run describes: judge by its sentences."
      : "No concept was scored in this run, so no feature has a name. Judge it by its sentences.");
    const concept = () => ["“", bdi(cut(row.concept)), "”"];
    const rates = row.recall === undefined ? null
      : [`it fires on ${percent(row.recall)} of the ${plural(row.positives_held_out, "sentence")} with `, concept(), ` (its recall) and on ${percent(row.false_alarms)} of the ${row.negatives_held_out.toLocaleString("en")} without`];
    const right = rates && row.precision !== null ? ` Where it fires, it is right ${percent(row.precision)} of the time (its precision).` : "";
    const F1 = `Its F1, which joins the two, is ${number(row.f1)}; always saying yes has ${number(row.chance)}. `;
    const way = row.above_chance > 0 ? `That is ${percent(row.above_chance)} of the way from always yes to perfect` : "That is no better than always yes";
    const rest = h("p", { class: "soft" }, rates ? "“Fires” here means that its largest activation in the sentence is above a threshold chosen in training. " : "How often it fires with and without the concept was not stored: run the pipeline again. ",
      F1, `${way}; a name needs more than 50%. All this on sentences kept out of training; a sentence has a concept of parallel text if its row does, in any language.`);
    return h("div", { id: "why" }, h("p", {}, row.named
      ? [h("b", {}, "Named "), concept(), rates ? [" because ", rates, ".", right] : [` because its F1 on sentences kept out of training is ${number(row.f1)}.`]]
      : [h("b", {}, "No name. "), "Of all concepts, ", concept(), " fits it best in training, but not well enough on other sentences", rates ? [": ", rates, ".", right] : ".", " It may stand for something that no concept describes: judge by its sentences."]), rest);
  }

  function conceptPart(found) {
    if (!found.concepts.length) return hasConcepts
      ? h("p", { class: "soft" }, "It is the best feature of no concept that was scored.")
      : null;
    const named = { f1: "F1", chance: "F1, always yes", auroc: "AUROC", positives_held_out: "sentences", f1_neurons: "F1, best neuron", f1_random: "F1, random features", f1_lda: "F1, LDA told the sentences" };
    const present = Object.keys(named).filter((name) => found.concepts.some((row) => name in row));
    return h("div", {}, h("p", { class: "soft" }, "Its name, if it has one, and concepts for which no other feature is better, on held-out sentences; beside them the best neuron and the best of as many random features, chosen in the same way, and linear discriminant analysis of the tokens, told which sentences hold the concept."),
      table("Concepts", ["concept", ...present.map((name) => named[name])],
        found.concepts.map((row) => [row.concept, ...present.map((name) => number(row[name]))]), present.map((_, at) => at + 1)));
  }

  const sentenceList = (rows, top) => h("ol", { class: "sentences" }, rows.map((row) => h("li", {}, h("span", { class: "n" }, number(row.activation)),
    h("span", { lang: row.language ? row.language.slice(0, 2) : null, dir: "auto" }, coloured(row.parts, top), row.language ? h("span", { class: "tag" }, row.language) : null, row.held_out ? h("span", { class: "tag" }, "held out") : null,
      " ", h("a", { class: "soft", href: hashOf({ view: "sentences", sentence: row.id }), "aria-label": `Features of sentence ${row.id}` }, "its features")))));

  function featurePane(found, state) {
    const name = words(found.id), silent = about.tokens - found.count;
    const groupName = (quantile) => quantile === "strongest" ? "Strongest" : `At the ${percent(quantile)} quantile of the sentences where it is active`;
    const rates = found.languages.map((row) => row.rate), most = Math.max(...rates, 1e-12);
    const changes = writeChanges([{ feature: found.id, mode: "scale", number: 0, token: null }]);
    const strongest = found.groups[0].sentences[0];
    const pane = h("section", { "aria-labelledby": "feature-title" },
      h("a", { class: "back", href: hashOf({ feature: "" }) }, "← All features"),
      state.find || state.sentence !== "" ? h("p", {}, h("a", { id: "back-to-sentences", href: hashOf({ view: "sentences" }) }, "← ", sentencesName(state))) : null,
      h("h2", { id: "feature-title", tabindex: "-1" }, `Feature ${found.id}`, h("span", { class: "soft" }, " ", bdi(name))),
      h("dl", { class: "facts" }, [["active at", percent(found.density) + " of tokens"], ["largest", number(found.largest)], ["mean where active", number(found.mean)], ["strength", number(found.strength)]]
        .map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, value)))));
    put(pane, namePart(found), notePart(found.id));
    if (!found.count) { pane.append(h("p", {}, "This feature is active at no token of the run's text.")); return pane; }
    if (!offline && strongest) pane.append(h("p", {}, h("a", { href: hashOf({ view: "try", text: strongest.parts.map(([text]) => text).join(""), source: strongest.language || STANDARD.source, change: changes }) }, "Switch it off in its strongest sentence")));
    pane.append(compareForm(String(found.id), state.other));
    put(pane,
      h("div", { class: "two" },
        h("div", {}, h("h3", {}, "Activations"), histogram(found.histogram, silent), h("p", { class: "soft" }, `${plural(found.count, "active token")}; silent at ${silent.toLocaleString("en")}, not drawn.`)),
        h("div", {}, h("h3", {}, "Tokens"), table("Tokens", ["token", "share of activation", "", "active at"], found.tokens.map((row) => [row.token, percent(row.share), meter(row.share), `${row.count.toLocaleString("en")} of ${row.of.toLocaleString("en")}`]), [1, 3]),
          h("p", { class: "soft" }, "Tokens may be pieces of words. Whole words: ", found.words.map((row, at) => [at ? ", " : "", bdi(cut(row.word)), ` ${percent(row.share)}`]), "."))),
      h("h3", {}, "Sentences"),
      languages.length > 1 && !offline ? h("label", {}, "Sentences in", h("select", { id: "in", onchange: (event) => go({ in: event.target.value }, { replace: true }) },
        h("option", { value: "" }, "all languages"), languages.map((language) => h("option", { value: language, selected: language === state.in }, language)))) : "",
      h("p", { class: "soft" }, `${plural(found.sentences, "sentence")}${found.language ? " in " + found.language : ""} where it is active. The number is the largest activation; the underlined token has it.`),
      found.groups.filter((group) => group.sentences.length).map((group) => h("div", {}, h("h4", {}, groupName(group.quantile)), sentenceList(group.sentences, found.largest))),
      h("h3", {}, "Effect on what the decoder writes"), effectPart(found),
      h("div", { class: "two" },
        h("div", {}, h("h3", {}, "Nearest features"), h("p", { class: "soft" }, `By the cosine of what they write. The nearest of as many random directions would have about ${number(about.random_nearest)}.`),
          table("Nearest features", ["feature", "tokens", "cosine", ""], found.nearest.map((row) => [place.has(row.id) ? h("a", { href: hashOf({ feature: row.id, in: "" }), "aria-label": `Feature ${row.id}: ${words(row.id)}` }, String(row.id)) : String(row.id), listed(row.tokens), number(row.cosine), place.has(row.id) ? h("a", { href: hashOf({ view: "compare", feature: found.id, other: row.id }), "aria-label": `Compare feature ${found.id} with feature ${row.id}` }, "compare") : ""]), [2])),
        h("div", {}, found.languages.length ? [h("h3", {}, "Languages"), h("p", { class: "soft" }, "Share of each language's tokens at which it is active."),
          table("Languages", ["language", "active at", ""], found.languages.map((row) => [row.language, percent(row.rate), meter(row.rate / most)]), [1])] : [])));
    const concepts = conceptPart(found);
    if (concepts) pane.append(h("h3", {}, "Concepts"), concepts);
    return pane;
  }

  async function load(id, language) {
    if (!/^\d{1,9}$/.test(id)) throw new Error(`There is no feature “${id.slice(0, 40)}”: expected a number from 0 to ${about.features - 1}.`);
    if (offline) {
      if (!Object.hasOwn(offline, id)) throw new Error(`Feature ${id} is not in this file, which holds the ${columns.id.length} strongest.`);
      return offline[id];
    }
    return ask(`api/feature/${encodeURIComponent(id)}${language ? "?language=" + encodeURIComponent(language) : ""}`);
  }

  // --- two features -------------------------------------------------------------------------------

  function compareForm(a, b) {
    const one = (id, label, value) => h("label", {}, label, h("input", { type: "number", id, value, min: "0", max: String(about.features - 1), step: "1", required: true }));
    const alone = readHash().view !== "compare";
    return h("form", { class: "filters", "aria-label": "Compare features", onsubmit: (event) => { event.preventDefault(); go({ view: "compare", feature: alone ? a : document.getElementById("compare-a").value, other: document.getElementById("compare-b").value, in: "" }); } },
      alone ? null : one("compare-a", "Feature", a), one("compare-b", alone ? "Compare with feature" : "and feature", b), h("button", {}, "Compare"));
  }

  async function loadPair(a, b) {
    const found = await Promise.all([load(a, ""), load(b, "")]);
    if (!offline) return { found, together: await ask(`api/together/${a}/${b}`) };
    const [low, high] = [a, b].map(Number).sort((x, y) => x - y);
    if (low === high) return { found, together: null };
    const [cosine, tokens, sentences, shown] = data.pairs[low][high];
    return { found, together: { cosine, tokens: [found[0].count, found[1].count, tokens], sentences: [found[0].sentences, found[1].sentences, sentences],
      examples: shown.map((id) => found.map((one) => heldExample(id, one.id))) } };
  }

  function comparePane(state) {
    const pane = h("section", { "aria-labelledby": "compare-title" }, h("h2", { id: "compare-title", tabindex: "-1" }, pair ? `Features ${pair.found[0].id} and ${pair.found[1].id}` : "Compare two features"), compareForm(state.feature, state.other));
    if (!pair) return pane;
    const { found, together } = pair, [a, b] = found;
    if (a.id === b.id) return put(pane, h("p", {}, "This is one feature twice: choose another number."));
    const share = ([x, y, both], word) => {
      const of = (n, id) => n ? `${percent(both / n)} of those of ${id}` : `${id} is never active`;
      return `${plural(both, word)}: ${of(x, a.id)}, ${of(y, b.id)}`;
    };
    const heading = (one) => h("h3", {}, h("a", { href: hashOf({ view: "features", feature: one.id, other: "" }) }, `Feature ${one.id}`), h("span", { class: "soft" }, " ", bdi(words(one.id))));
    put(pane, h("h3", {}, "Together"),
      h("p", {}, `Both are active at ${share(together.tokens, "token")}.`), h("p", {}, `Both are active in ${share(together.sentences, "sentence")}.`),
      h("p", {}, `The cosine of what they write to a state is ${number(together.cosine)}: 1 is the same direction, 0 none in common; the nearest of as many random directions would have about ${number(about.random_nearest)}.`),
      h("div", { class: "two" }, found.map((one) => h("section", { "aria-label": `Feature ${one.id}` }, heading(one), namePart(one),
        h("p", { class: "soft" }, `Active at ${percent(one.density)} of tokens, largest activation ${number(one.largest)}. `, "Words: ", listed(one.words.map((row) => row.word)) || "none"),
        one.count ? [histogram(one.histogram, about.tokens - one.count), h("h4", {}, "Strongest sentences"), sentenceList(one.groups[0].sentences, one.largest)] : null))),
      h("h3", {}, "Sentences in which both are active"));
    if (!together.examples.length) return put(pane, h("p", { class: "soft" }, together.sentences[2] ? "This file holds their number only, because of its many features; “course browse RUN” shows the sentences." : "There is none."));
    return put(pane, h("p", { class: "soft" }, `${together.examples.length.toLocaleString("en")} of ${together.sentences[2].toLocaleString("en")}, each twice: on the left shaded by feature ${a.id}, on the right by feature ${b.id}.`),
      h("div", { class: "two" }, found.map((one, side) => h("div", {}, h("h4", {}, `Feature ${one.id}`), sentenceList(together.examples.map((both) => both[side]), one.largest)))));
  }

  // --- sentences of the run -----------------------------------------------------------------------

  let hits = null, hitsOf = "", shownHits = 20;

  const sentencesName = (state) => state.sentence !== "" ? `Sentence ${cut(state.sentence)}` : state.find.trim() ? ["Sentences with “", bdi(cut(state.find.trim())), "”"] : "Sentences";

  // In an exported file: a sentence as the server shows it, and one by its number.
  function held(id) {
    const one = data.sentences[id], text = one.pieces.join("");
    const features = Object.entries(one.code).map(([feature, numbers]) => {
      let at = 0;
      for (let n = 0; n < numbers.length; n += 2) if (numbers[n + 1] > numbers[at + 1]) at = n;
      return { id: Number(feature), activation: numbers[at + 1], at: one.pieces[numbers[at]] };
    }).sort((a, b) => b.activation - a.activation || a.id - b.id);
    return { id: Number(id), language: one.language, held_out: one.held_out, text, active: features.length, features };
  }

  function heldExample(id, feature) {
    const one = data.sentences[id], code = one.code[feature] || [], parts = one.pieces.map((piece) => [piece, null]);
    for (let n = 0; n < code.length; n += 2) parts[code[n]][1] = code[n + 1];
    return { id: Number(id), language: one.language, held_out: one.held_out, activation: Math.max(0, ...code.filter((_, n) => n % 2)), parts };
  }

  function findHeld(wanted, language, n) {
    const found = finder(wanted), phrase = " " + wordsOf(wanted).join(" ") + (wanted.endsWith("*") ? "" : " "), texts = new Set();
    const all = Object.entries(data.sentences).filter(([, one]) => !language || one.language === language).map(([id, one]) => [id, one.pieces.join("")])
      .filter(([, text]) => found ? found(wordsOf(text)) : text.includes(wanted))
      .map(([id, text]) => [id, text, (" " + wordsOf(text).join(" ") + " ").includes(phrase) ? 0 : 1]).sort((a, b) => a[2] - b[2]);
    const shown = all.filter(([, text]) => !texts.has(text) && texts.add(text)).slice(0, n).map(([id]) => held(id));
    return { count: all.length, sentences: shown.map((one) => ({ ...one, features: one.features.slice(0, 6) })) };
  }

  async function loadSentences(state) {
    if (state.sentence !== "") {
      if (!/^\d{1,9}$/.test(state.sentence)) throw new Error(`There is no sentence “${state.sentence.slice(0, 40)}”: expected a number from 0 to ${about.sentences - 1}.`);
      if (!offline) return ask(`api/sentence/${state.sentence}`);
      if (!Object.hasOwn(data.sentences, state.sentence)) throw new Error(`Sentence ${state.sentence} is not in this file.`);
      const one = held(state.sentence);
      return { ...one, features: one.features.slice(0, 32).map((feature) => ({ ...feature, parts: heldExample(state.sentence, feature.id).parts })) };
    }
    const wanted = state.find.trim();
    if (!wanted) return null;
    if (offline) return findHeld(wanted, state.among, shownHits);
    return ask("api/sentences?" + new URLSearchParams({ words: wanted, language: state.among, n: shownHits }));
  }

  const tags = (row) => [row.language ? h("span", { class: "tag" }, row.language) : null, row.held_out ? h("span", { class: "tag" }, "held out") : null];
  const spoken = (row, ...content) => h("span", { lang: row.language ? row.language.slice(0, 2) : null, dir: "auto" }, content);
  const featureLink = ({ id, activation, at }, ...content) => h("a", { href: hashOf({ view: "features", feature: id, in: "" }), title: `activation ${number(activation)} at “${at}”`,
    "aria-label": `Feature ${id}: ${words(id)}, activation ${number(activation)} at ${at}` }, h("b", {}, String(id)), " ", bdi(words(id)), content);

  // The words that were looked for; not in a sentence that was looked for whole.
  function marked(text, wanted) {
    const all = wordsOf(wanted), open = wanted.trim().endsWith("*"), found = [];
    let done = 0;
    if (all.length < 4) for (const { 0: word, index } of text.matchAll(WORD)) {
      const own = word.toLowerCase();
      if (!all.some((one, at) => own === one || (open && at === all.length - 1 && own.startsWith(one)))) continue;
      found.push(text.slice(done, index), h("mark", {}, word));
      done = index + word.length;
    }
    return [...found, text.slice(done)];
  }

  const heldWords = () => offline ? h("p", { class: "soft" }, `This file holds ${plural(Object.keys(data.sentences).length, "sentence")} of ${about.sentences.toLocaleString("en")}, with the activations of its ${plural(columns.id.length, "feature")}.`) : null;

  function sentencesPane(state) {
    const pane = h("section", { "aria-labelledby": "sentences-title" });
    if (state.sentence !== "") return onePane(pane, state);
    const refresh = (changes) => { shownHits = 20; go(changes, { replace: true }); };
    put(pane, h("h2", { id: "sentences-title", tabindex: "-1" }, "Sentences"),
      h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
        h("label", { class: "wide" }, "Word, beginning of one, or sentence",
          h("input", { type: "search", id: "find", value: state.find, autocomplete: "off", "aria-describedby": "find-help", oninput: (event) => refresh({ find: event.target.value }) })),
        languages.length > 1 ? h("label", {}, "Sentences in", h("select", { id: "among", onchange: (event) => refresh({ among: event.target.value }) },
          h("option", { value: "" }, "all languages"), languages.map((name) => h("option", { value: name, selected: name === state.among }, name)))) : null),
      h("p", { class: "soft", id: "find-help" }, "Finds the sentences of the run that hold all these words, whole and in any order; “cell*” finds all that begin with cell."), heldWords());
    if (!hits || !state.find.trim()) return put(pane, h("p", { class: "soft", id: "hits" }, state.find.trim() ? "" : "Type a word: each sentence comes with the features that fire most on it."));
    const rows = hits.sentences, top = Math.max(...rows.map((row) => row.features.length ? row.features[0].activation : 0), 1e-9);
    put(pane, h("p", { class: "soft", id: "hits" }, hits.count ? `${plural(hits.count, "sentence")}${rows.length < hits.count ? `, ${rows.length.toLocaleString("en")} different ones shown` : ""}. The numbers are a feature's largest activation in the sentence.`
        : `No sentence${state.among ? " in " + state.among : ""} holds all these words.${state.find.trim().endsWith("*") ? "" : " Add * to search for a beginning."}`),
      h("p", { class: "soft" }, h("a", { href: hashOf({ view: "features", q: state.find.trim(), feature: "", list: "" }) }, "Features with “", bdi(cut(state.find.trim())), "”")),
      h("ol", { class: "hits" }, rows.map((row) => h("li", {}, spoken(row, marked(row.text, state.find)), tags(row),
        h("ul", { class: "chips", "aria-label": `Features of sentence ${row.id}` }, row.features.map((one) => h("li", { heat: one.activation / top }, featureLink(one, ` · ${number(one.activation)}`))),
          h("li", {}, h("a", { href: hashOf({ sentence: row.id }), "aria-label": `All features of sentence ${row.id}` }, `all ${row.active.toLocaleString("en")} …`)))))));
    const more = Math.min(200, 5 * shownHits);
    if (rows.length === shownHits && rows.length < hits.count && more > shownHits) pane.append(h("p", {}, h("button", { type: "button", id: "more-sentences", onclick: () => { shownHits = more; render(); } }, "Show more")));
    return pane;
  }

  function onePane(pane, state) {
    put(pane, h("p", {}, h("a", { href: hashOf({ sentence: "" }) }, "← ", sentencesName({ ...state, sentence: "" }))), h("h2", { id: "sentences-title", tabindex: "-1" }, `Sentence ${cut(state.sentence)}`));
    if (!hits) return pane;
    const top = hits.features.length ? hits.features[0].activation : 1;
    return put(pane, h("p", { class: "whole" }, spoken(hits, hits.text), tags(hits)), heldWords(),
      offline ? null : h("p", {}, h("a", { href: hashOf({ view: "try", text: hits.text, source: hits.language || STANDARD.source, change: "" }) }, "Change features on it")),
      h("p", { class: "soft" }, `${plural(hits.active, "feature")} active in it${hits.features.length < hits.active ? `, the strongest ${hits.features.length} shown` : ""}. The number is the largest activation; the underlined token has it. All are shaded on one scale.`),
      h("ol", { class: "hits of-one", "aria-label": "Features of this sentence" }, hits.features.map((one) => h("li", {}, h("span", { class: "n" }, number(one.activation)), h("span", {}, featureLink(one)), h("span", { class: "text", dir: "auto", lang: hits.language ? hits.language.slice(0, 2) : null }, coloured(one.parts, top))))));
  }

  async function renderSentences(state, moved) {
    const wanted = JSON.stringify([state.find.trim(), state.among, state.sentence, shownHits]);
    if (wanted !== hitsOf) {
      try {
        const found = await loadSentences(state), now = readHash();
        if (now.view !== "sentences" || now.find !== state.find || now.among !== state.among || now.sentence !== state.sentence) return;
        hits = found; hitsOf = wanted;
      } catch (error) { hits = null; hitsOf = ""; draw(state); say(error.message, "error"); return; }
    }
    draw(state);
    if (moved) main.querySelector("h2").focus();
    say(state.sentence !== "" ? `Sentence ${hits.id}, ${plural(hits.active, "feature")} active.` : document.getElementById("hits").textContent);
  }

  // --- a sentence that is typed in ----------------------------------------------------------------

  const typed = { state: "", read: null, compared: null };

  function tryPane(state) {
    if (offline) return h("section", {}, h("h2", { tabindex: "-1" }, "Try a sentence"), h("p", {}, "This file holds what was found and no model. Serve the run with “python -m course_lib browse RUN” to type sentences and to change features."));
    const known = about.known_languages, choose = (id, label, value) => h("label", {}, label, h("select", { id }, known.map((name) => h("option", { value: name, selected: name === value }, name))));
    const target = state.target || known.find((name) => languages.includes(name) && name !== state.source) || known.find((name) => name !== state.source) || state.source;
    const take = () => ({ text: document.getElementById("text").value, source: document.getElementById("source").value, target: document.getElementById("target").value });
    const changes = readChanges(state.change), set = (next) => go({ ...take(), change: writeChanges(next) });
    const tokens = typed.read && typed.read.tokens;
    const form = h("form", { onsubmit: (event) => { event.preventDefault(); typed.state = ""; go(take()); } },
      h("label", {}, "Sentence", h("textarea", { id: "text", dir: "auto", value: state.text, placeholder: "Type a sentence", onkeydown: (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); form.requestSubmit(); } } })),
      h("div", { class: "filters" }, choose("source", "Language of the sentence", state.source), choose("target", "Translate into", target), h("button", { class: "main" }, "Read and translate")));
    const changeRow = (change, at) => {
      const edit = (next) => set(changes.map((old, other) => other === at ? { ...old, ...next } : old)), name = `feature ${change.feature}`;
      return h("div", { class: "change", role: "group", "aria-label": `Change of ${name}` },
        h("span", { class: "who" }, h("a", { href: hashOf({ view: "features", feature: change.feature }) }, `Feature ${change.feature}`), h("span", { class: "soft" }, " ", bdi(words(change.feature)))),
        h("label", {}, "Change", h("select", { "aria-label": `Change of ${name}`, onchange: (event) => {
          const kind = event.target.value, at = place.get(change.feature);
          edit(kind === "off" ? { mode: "scale", number: 0 } : kind === "scale" ? { mode: "scale", number: 2 } : { mode: "set", number: Number((at === undefined ? 1 : columns.largest[at]).toPrecision(3)) });
        } }, [["off", "switch off"], ["scale", "scale by"], ["set", "set to"]].map(([value, label]) => h("option", { value, selected: value === (change.mode === "set" ? "set" : change.number === 0 ? "off" : "scale") }, label)))),
        change.mode === "scale" && change.number === 0 ? null : h("label", {}, change.mode === "set" ? "Activation" : "Factor", h("input", { type: "number", step: "any", value: change.number, "aria-label": `${change.mode === "set" ? "Activation" : "Factor"} of ${name}`, onchange: (event) => { if (event.target.value !== "" && event.target.checkValidity()) edit({ number: Number(event.target.value) }); } })),
        about.site.startsWith("encoder") ? h("label", {}, "At", h("select", { "aria-label": `Tokens at which ${name} is changed`, onchange: (event) => edit({ token: event.target.value === "" ? null : Number(event.target.value) }) },
          h("option", { value: "" }, "all tokens"), (tokens || []).map((row, number) => h("option", { value: String(number), selected: change.token === number }, `${number}: ${row.text}`)),
          change.token !== null && !(tokens && change.token < tokens.length) ? h("option", { value: String(change.token), selected: true }, `${change.token}`) : null)) : null,
        h("button", { type: "button", "aria-label": `Remove the change of ${name}`, onclick: () => set(changes.filter((_, other) => other !== at)) }, "Remove"));
    };
    const add = h("input", { type: "number", id: "add", min: "0", max: String(about.features - 1), step: "1" });
    const addNow = () => { if (add.value !== "" && add.checkValidity()) set([...changes, { feature: Number(add.value), mode: "scale", number: 0, token: null }]); else add.reportValidity(); };
    add.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); addNow(); } });
    return h("section", { "aria-labelledby": "try-title" }, h("h2", { id: "try-title", tabindex: "-1" }, "Try a sentence"), form,
      h("fieldset", {}, h("legend", {}, "Changes of features"), changes.length ? changes.map(changeRow) : h("p", { class: "soft" }, "None yet. Choose “±” beside a feature below, or add one by its number."),
        h("div", { class: "filters" }, h("label", {}, "Feature number", add), h("button", { type: "button", onclick: addNow }, "Add"))),
      h("div", { id: "compared" }, typed.compared && compared(typed.compared, changes.length)), h("div", { id: "read" }, typed.read && readPart(typed.read, changes, set)));
  }

  // A word without the punctuation around it, by which words are compared; a sign alone is what it is.
  const bare = (word) => word.replace(/^[^\p{L}\p{M}\p{N}]+|[^\p{L}\p{M}\p{N}]+$/gu, "") || word;

  // The words of b that are in no longest common subsequence with a.
  function differing(before, after) {
    const [a, b] = [before, after].map((words) => words.map(bare));
    const rows = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
    for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--)
      rows[i][j] = a[i] === b[j] ? rows[i + 1][j + 1] + 1 : Math.max(rows[i + 1][j], rows[i][j + 1]);
    const found = [];
    for (let i = 0, j = 0; j < b.length;) {
      if (i < a.length && a[i] === b[j]) { found.push([after[j], false]); i++; j++; }
      else if (i < a.length && rows[i + 1][j] >= rows[i][j + 1]) i++;
      else found.push([after[j++], true]);
    }
    return found;
  }

  function compared(found, n) {
    const original = found.original.split(/\s+/);
    const card = (title, text, note) => {
      const marked = differing(original, text.split(/\s+/)), other = marked.some(([, differs]) => differs) || marked.length !== original.length;
      return h("article", { class: "card" }, h("h3", {}, title), h("p", { dir: "auto" }, marked.map(([word, differs]) => [differs ? h("mark", {}, word) : word, " "])), h("p", { class: "soft" }, note(text === found.original, other)));
    };
    const same = (equal, other) => equal ? "the same as the original" : other ? "different words are marked" : "the same words as the original; only punctuation or spaces differ";
    return h("div", {}, h("h3", {}, "Translations"), h("div", { class: "cards" },
      card("Original", found.original, () => "the model as it is"), card("Reconstruction spliced in", found.reconstructed, same),
      card(n ? `With ${plural(n, "change")}` : "With no change", found.changed, same)));
  }

  function readPart(found, changes, set) {
    const top = Math.max(...found.features.map((row) => row.activation), 1e-9), chosen = new Set(changes.map((change) => change.feature));
    const toggle = (id) => set(chosen.has(id) ? changes.filter((change) => change.feature !== id) : [...changes, { feature: id, mode: "scale", number: 0, token: null }]);
    return h("div", {}, h("h3", {}, "Features by token"), h("p", { class: "soft" }, "The strongest first. “±” switches a feature off in the comparison above, or takes the change back."),
      found.tokens.map((row) => h("div", { class: "token-row" }, h("div", { class: "word" }, bdi(row.text), h("span", { class: "soft" }, ` ${row.active}`)),
        h("ul", { class: "chips", "aria-label": `Features active at ${row.text}` }, row.features.map(({ id, activation }) => h("li", { heat: activation / top },
          h("a", { href: hashOf({ view: "features", feature: id, in: "" }), title: `activation ${number(activation)}`, "aria-label": `Feature ${id}: ${words(id)}, activation ${number(activation)}` }, h("b", {}, String(id)), " ", bdi(words(id))),
          h("button", { type: "button", "aria-pressed": String(chosen.has(id)), "aria-label": `Switch feature ${id} off`, onclick: () => toggle(id) }, chosen.has(id) ? "✓" : "±")))))));
  }

  async function runTry(state) {
    if (offline || !state.text.trim()) { typed.read = typed.compared = null; return; }
    const changes = readChanges(state.change), target = document.getElementById("target").value;
    const wanted = JSON.stringify([state.text, state.source, target, changes]);
    if (wanted === typed.state) return;
    typed.state = wanted;
    const mine = ++latest, of = JSON.stringify([state.text, state.source]);
    say("The model reads; it is loaded at the first time ...", "busy");
    try {
      if (lastRead !== of) {
        typed.compared = null;
        typed.read = await ask("api/read", { text: state.text, language: state.source });
        lastRead = of;
      }
      const found = await ask("api/translate", { text: state.text, source: state.source, target, changes });
      if (mine !== latest) return;
      typed.compared = found;
      if (readHash().view === "try") {
        const box = document.getElementById("text"), kept = document.activeElement === box ? box.value : null;
        draw(readHash());
        if (kept !== null) document.getElementById("text").value = kept;
        say(`${plural(typed.read.features.length, "feature")} active at ${plural(typed.read.tokens.length, "token")}. Original: ${found.original} Changed: ${found.changed}`);
      }
    } catch (error) {
      if (mine === latest) { typed.compared = null; typed.state = ""; document.getElementById("compared")?.replaceChildren(); say(error.message, "error"); }
    }
  }

  // --- drawing ------------------------------------------------------------------------------------

  let detail = null, detailOf = "", pair = null, pairOf = "";

  // What had the focus has it again when its part of the page was drawn anew.
  function keepingFocus(work) {
    const active = document.activeElement, id = active && active.id, label = active && active.getAttribute("aria-label");
    const caret = active && active.type === "search" ? active.selectionStart : null, top = document.querySelector(".list")?.scrollTop;
    work();
    const again = (id && document.getElementById(id)) || (label && [...document.querySelectorAll("[aria-label]")].find((node) => node.getAttribute("aria-label") === label));
    if (again && active !== document.body) { again.focus({ preventScroll: true }); if (caret !== null) again.setSelectionRange(caret, caret); }
    if (top) { const list = document.querySelector(".list"); if (list) list.scrollTop = top; }
  }

  function draw(state) {
    keepingFocus(() => {
      if (state.view === "try") { main.replaceChildren(tryPane(state)); return; }
      if (state.view === "compare") { main.replaceChildren(comparePane(state)); return; }
      if (state.view === "sentences") { main.replaceChildren(sentencesPane(state)); return; }
      const [list] = listPane(state);
      main.replaceChildren(h("div", { class: state.feature !== "" ? "panes detail" : "panes" }, list, state.feature !== "" && detail ? featurePane(detail, state) : null));
    });
  }

  async function render() {
    const state = readHash(), moved = lastHash !== null && (lastHash.view !== state.view || lastHash.feature !== state.feature || lastHash.other !== state.other || lastHash.sentence !== state.sentence);
    lastHash = state;
    for (const [id, view] of [["to-features", "features"], ["to-sentences", "sentences"], ["to-compare", "compare"], ["to-try", "try"]]) {
      const link = document.getElementById(id);
      if (view === state.view) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
      link.href = hashOf({ view });
    }
    if (state.view === "try") {
      draw(state);
      if (moved) main.querySelector("h2").focus();
      await runTry(state);
      return;
    }
    if (state.view === "compare") { await renderPair(state, moved); return; }
    if (state.view === "sentences") { await renderSentences(state, moved); return; }
    const wanted = state.feature + " " + state.in;
    if (state.feature === "") { detail = null; detailOf = ""; }
    else if (wanted !== detailOf) {
      try {
        const found = await load(state.feature, state.in);
        if (readHash().feature !== state.feature || readHash().in !== state.in) return;
        detail = found; detailOf = wanted;
      } catch (error) { detail = null; detailOf = ""; draw({ ...state, feature: "" }); say(error.message, "error"); return; }
    }
    draw(state);
    if (moved && detail) { const title = document.getElementById("feature-title"); title.focus({ preventScroll: true }); title.scrollIntoView({ block: "nearest" }); if (innerWidth < 1000) scrollTo(0, 0); }
    say(detail ? `Feature ${detail.id}, ${words(detail.id)}.` : document.getElementById("found").textContent);
  }

  async function renderPair(state, moved) {
    const wanted = state.feature + " " + state.other, both = state.feature !== "" && state.other !== "";
    if (!both || wanted !== pairOf) {
      pair = null; pairOf = "";
      if (both) {
        try {
          const found = await loadPair(state.feature, state.other), now = readHash();
          if (now.view !== "compare" || now.feature !== state.feature || now.other !== state.other) return;
          pair = found; pairOf = wanted;
        } catch (error) { draw(state); say(error.message, "error"); return; }
      }
    }
    draw(state);
    if (moved) main.querySelector("h2").focus();
    say(pair ? `Features ${pair.found[0].id} and ${pair.found[1].id}.` : "Type the numbers of two features.");
  }

  document.title = plain(`Feature browser: ${about.run}`);
  put(document.getElementById("run"), bdi(about.run), ": ", bdi(about.model), `, ${about.site}, ${about.features.toLocaleString("en")} features (${about.kind}), ${about.sentences.toLocaleString("en")} sentences, ${about.tokens.toLocaleString("en")} tokens`);
  const warnings = document.getElementById("warnings");
  warnings.hidden = !about.warnings?.length; // an index of an earlier version has none
  put(warnings, (about.warnings || []).map((text) => h("p", {}, h("b", {}, "Warning: "), `${text}.`)));
  document.getElementById("notes").textContent = `An activation is the length of what a feature adds to a token's state, as a ${about.units}.` +
    (about.kept < 0.9999 ? ` Only the strongest features of each token are kept, with ${percent(about.kept)} of the squared activation.` : "") +
    (offline ? ` This file holds the ${plural(columns.id.length, "strongest feature")} of ${about.features.toLocaleString("en")}.` : "");
  document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
  addEventListener("hashchange", render);
  addEventListener("popstate", render);
  loadNotes().then(async (error) => { await render(); if (error) say(error.message, "error"); });
})();
