// A page that was only opened is not marked as changed.
//
// The widgets' manager marks a page for each widget that it finds in the file, since `lab-settings.json` asks it to save
// them; and JupyterLab does where the Python that runs is not the one that ran the page. So a mark counts once something
// else on the page has changed, as a cell that runs changes it, or the kernel has made a widget, as an answer does.
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
  const plugin = {
    id: "course:opened",
    autoStart: true,
    activate: (app) => {
      app.docRegistry.addWidgetExtension("Notebook", { createNew: (_, context) => { watch(context); } });
    },
  };
  // What webpack would write around a plugin that needs no other module.
  window._JUPYTERLAB = window._JUPYTERLAB ?? {};
  window._JUPYTERLAB.course = { init: () => {}, get: async () => () => ({ __esModule: true, default: plugin }) };
})();
