// What JupyterLab does for the course: four plugins.
//
// A page that was only opened is not marked as changed. The widgets' manager marks a page for each widget that it finds in
// the file, since `lab-settings.json` asks it to save them; and JupyterLab does where the Python that runs is not the one
// that ran the page. So a mark counts once something else on the page has changed, as a cell that runs changes it, or the
// kernel has made a widget, as an answer does.
//
// In a narrow window the file browser starts closed: beside it, a figure of two panels would be too small to read.
//
// A cell whose code is hidden has the [*] of other cells while it runs or waits to.
//
// A panel fits its column. In a dark theme a figure is a card: it has a margin and round corners, and its white is grey;
// and the arrow of a list to choose from, black in ipywidgets, is white.
(() => {
  const watch = ({ model, sessionContext }) => {
    let changed = false, language = false;
    model.metadataChanged.connect((_, { key }) => { language = key === "language_info"; });
    model.contentChanged.connect(() => {
      changed ||= !language;
      language = false;
    });
    model.stateChanged.connect((_, { name, newValue }) => {
      if (name !== "dirty") return;
      if (!newValue) changed = false; // loaded or saved
      else if (!changed) model.dirty = false;
    });
    sessionContext.iopubMessage.connect((_, { header }) => {
      if (header.msg_type !== "comm_open") return;
      changed = true;
      model.dirty = true;
    });
  };
  const opened = {
    id: "course:opened",
    autoStart: true,
    activate: (app) => {
      app.docRegistry.addWidgetExtension("Notebook", { createNew: (_, context) => { watch(context); } });
    },
  };
  const mark = (panel, { model }) => {
    const look = (cell) => {
      const shown = panel.content.widgets.find((one) => one.model === cell);
      shown?.toggleClass("course-running", cell.executionState === "running");
    };
    model.cells.changed.connect((cells) => {
      for (const cell of cells) cell.stateChanged.connect(look); // once each: a second time counts for nothing
    });
  };
  const running = {
    id: "course:running",
    autoStart: true,
    activate: (app) => { app.docRegistry.addWidgetExtension("Notebook", { createNew: mark }); },
  };
  const figures = {
    id: "course:figures",
    autoStart: true,
    activate: () => {
      const path = '<path fill="white" d="M5.2 5.9 9 9.7l3.8-3.8L14 7.1l-5 5-5-5z"/>';
      const arrow = encodeURIComponent(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 18 18">${path}</svg>`);
      const style = document.createElement("style");
      style.textContent = `
        .course-panel > .jupyter-widgets { margin-left: 0; margin-right: 0; } /* else 4px wider than the panel */
        .course-running .jp-InputPlaceholder .jp-InputPrompt::before { content: "[*]:"; display: block; height: 0; }
        body[data-jp-theme-light="false"] { --jp-widgets-dropdown-arrow: url("data:image/svg+xml,${arrow}"); }
        body[data-jp-theme-light="false"] .jp-Notebook .jp-OutputArea img {
          box-sizing: content-box; padding: 8px; max-width: calc(100% - 16px) !important; /* ipywidgets sets its own */
          border-radius: 6px; background: white; filter: brightness(0.88); }`;
      document.head.append(style);
    },
  };
  const room = {
    id: "course:room",
    autoStart: true,
    activate: (app) => { app.restored.then(() => { if (window.innerWidth < 1000) app.shell.collapseLeft(); }); },
  };
  // What webpack would write around plugins that need no other module.
  window._JUPYTERLAB = window._JUPYTERLAB ?? {};
  window._JUPYTERLAB.course = { init: () => {}, get: async () => () => ({ __esModule: true, default: [opened, running, figures, room] }) };
})();
