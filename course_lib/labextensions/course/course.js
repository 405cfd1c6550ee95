// What JupyterLab does for the course: three plugins.
//
// A page that was only opened is not marked as changed. The widgets' manager marks a page for each widget that it finds in
// the file, since `lab-settings.json` asks it to save them; and JupyterLab does where the Python that runs is not the one
// that ran the page. So a mark counts once something else on the page has changed, as a cell that runs changes it, or the
// kernel has made a widget, as an answer does.
//
// In a narrow window the file browser starts closed: beside it, a figure of two panels would be too small to read.
//
// A panel fits its column. In a dark theme a figure is a card: it has a margin and round corners, and its white is grey.
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
  const figures = {
    id: "course:figures",
    autoStart: true,
    activate: () => {
      const style = document.createElement("style");
      style.textContent = `
        .course-panel > .jupyter-widgets { margin-left: 0; margin-right: 0; } /* else 4px wider than the panel */
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
  window._JUPYTERLAB.course = { init: () => {}, get: async () => () => ({ __esModule: true, default: [opened, figures, room] }) };
})();
