"""What a lesson shows when it is opened again: a contents manager for JupyterLab, `LessonContents`.

A saved page names the widgets of a kernel that is gone. JupyterLab draws them from the state that was saved with the page:
sliders that move nothing, beside a picture that was stored empty. Where no state was saved, it says "Error displaying
widget: model not found". So a page without a running kernel is handed out with each explorer's static picture in the place
of the explorer, and with words that say how to bring it back. Predictions and quizzes are drawn as they were left; their
state is saved because `lab-settings.json` asks for it. A page that was saved after its kernel was started anew has lost that
state; the guesses themselves stand in the progress file, and are told. The file of the page stays as it is, until JupyterLab
saves it.

A page whose kernel runs may be opened again, too: the browser loads it anew. Its kernel has the widgets that it made, and
they are alive. But the file may name others, those of a run before, where the page was not saved since: so the kernel is
asked which it has, and the others are treated like those of a page without one.
"""

import asyncio
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from html import escape
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from nbformat import NotebookNode
from nbformat.v4 import new_output

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
# How the static editions begin that `Explorer` and `Quiz` display after their widget.
FOLDED = "<details><summary>For reading without a kernel"
FOLDED_EXPLORER = f"{FOLDED}: three settings"
# What `HintButton` says of itself in plain text: it stands again when its cell is run.
HINT = "Stuck? Run "
NOTE_CLASS = "course-not-run"
# The style hides the sign of a broken link that ipywidgets puts beside whatever has no kernel.
NOTE = (
    f'<p class="{NOTE_CLASS}"><em>{{}}</em></p>'
    f"<style>.jp-Cell:has(.{NOTE_CLASS}) .jupyter-widgets-disconnected::before {{{{ content: none; }}}}</style>"
)
# Seconds in which a kernel says what widgets it has. Its control channel answers while a cell runs, too.
KERNEL_ANSWERS = 3
MODEL_ID = re.compile(r"[0-9a-f]{32}")
# How a page shows a prediction, and where `Progress` keeps the guesses. It is not imported: it takes seconds.
PREDICTION = re.compile(r"^\*\*Prediction (\d\d\.P\d+)\.\*\* ")
PROGRESS_VARIABLE, PROGRESS_NAME = "COURSE_PROGRESS", ".course_progress.json"


class LessonContents(AsyncLargeFileManager):
    """JupyterLab's own manager of files, but for notebooks that are opened: see this module."""

    async def get(self, path: str, content: bool = True, **options: Any) -> dict[str, Any]:
        """Return the model of a file; a notebook shows what can be seen of widgets that no kernel has."""
        model = await super().get(path, content=content, **options)
        if content and model["type"] == "notebook":
            alive = await self._alive(model["path"])
            if alive is not None:
                folder = Path(self._get_os_path(model["path"])).parent
                show_without_kernel(model["content"], alive, guesses_beside(folder))
        return model

    async def _alive(self, path: str) -> set[str] | None:
        """Return the ids of the widgets that the kernel of a page has, None where there is one that does not say."""
        sessions = self.parent.session_manager
        if not await sessions.session_exists(path):
            return set()
        try:
            session = await sessions.get_session(path=path)
            kernel = self.parent.kernel_manager.get_kernel(session["kernel"]["id"])
            async with asyncio.timeout(KERNEL_ANSWERS):
                return await _widgets_of(kernel.client())
        except Exception as error:  # the page is opened all the same
            self.log.debug("the kernel of %s does not say which widgets it has: %r", path, error)
            return None


async def _widgets_of(client: AsyncKernelClient) -> set[str]:
    """Return the ids of the widgets that a kernel has, which it is asked for on its control channel."""
    client.start_channels(shell=False, iopub=False, stdin=False, hb=False, control=True)
    try:
        asked = client.session.msg("comm_info_request", {"target_name": "jupyter.widget"})
        client.control_channel.send(asked)
        while True:
            answer = await client.control_channel.get_msg()
            if answer["parent_header"].get("msg_id") == asked["header"]["msg_id"]:
                return set(answer["content"]["comms"])
    finally:
        client.stop_channels()


def guesses_beside(folder: Path) -> dict[str, str]:
    """Return the guesses, by prediction, of the progress file of the pages in a folder; none where none can be read."""
    path = Path(os.environ.get(PROGRESS_VARIABLE) or folder / PROGRESS_NAME)
    try:
        predictions = json.loads(path.read_text(encoding="utf-8"))["predictions"]
        return {name: str(entry["guess"]) for name, entry in predictions.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # a page says so when it runs
        return {}


def show_without_kernel(
    notebook: dict[str, Any],
    alive: Collection[str] = (),
    guesses: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Let a notebook show, in place, what can be seen without a kernel.

    Widgets whose ids are in `alive` stay, with what is shown beside them: a kernel has these. An explorer gives way to
    its static picture, unfolded. Any other widget stays where its state was saved. The state of widgets that are not shown
    is dropped, so that it does not grow from day to day. `guesses` are those that were recorded, by prediction.
    """
    widgets = notebook["metadata"].get("widgets", {}).get(WIDGET_STATE, {})
    saved = widgets.get("state", {})
    kept = []
    for cell in notebook["cells"]:
        outputs, shown, guess = cell.get("outputs", []), [], None
        for output, after in zip_longest(outputs, outputs[1:], fillvalue={}):
            if asked := PREDICTION.match(output.get("data", {}).get("text/markdown", "")):
                guess = guesses.get(asked[1])
            view = output.get("data", {}).get(WIDGET_VIEW)
            if view is not None and view.get("model_id") in alive:
                kept.append(view["model_id"])
                shown.append(output)
                continue
            if view is not None and output["data"].get("text/plain", "").startswith(HINT):
                continue
            if view is not None:
                static = _html(after)
                explorer = static.startswith(FOLDED_EXPLORER)
                if not (shown and NOTE_CLASS in _html(shown[-1])):
                    shown.append(_note("move" if explorer else "answer", guess))
                if static.startswith(FOLDED):
                    after["data"]["text/html"] = static.replace("<details>", "<details open>", 1)
                if explorer or view.get("model_id") not in saved:
                    continue
                kept.append(view["model_id"])
            shown.append(output)
        if shown:
            cell["outputs"] = shown
    if saved:
        reached = _reached(saved, kept)
        widgets["state"] = {name: model for name, model in saved.items() if name in reached}


def _html(output: dict[str, Any]) -> str:
    return output.get("data", {}).get("text/html", "")


def _note(verb: str, guess: str | None) -> NotebookNode:
    said = f"Run the cells above, and this one, to {verb} this."
    if guess is not None:
        said = f"You guessed: {guess.rstrip('.')}. Run the cells above, and this one, to guess again or see the answer."
    return new_output("display_data", {"text/html": NOTE.format(escape(said)), "text/plain": said})


def _reached(saved: dict[str, Any], roots: Iterable[str]) -> set[str]:
    """Return the ids of the models in `saved` that `roots` are made of: a model's state names its parts by their ids."""
    reached, to_visit = set(), list(roots)
    while to_visit:
        if (name := to_visit.pop()) in saved and name not in reached:
            reached.add(name)
            to_visit += MODEL_ID.findall(json.dumps(saved[name]["state"]))
    return reached
