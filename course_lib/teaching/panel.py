"""A question on the page: a few answers to choose from, a button, a line in words, and a picture that comes last."""

from collections.abc import Iterable

import ipywidgets
from matplotlib.figure import Figure

from course_lib.teaching.style import png_bytes, text_alternative
from course_lib.teaching.words import PANEL_CLASS, Words


class Panel:
    """Answers as radio buttons, and a button that is enabled once one is chosen; what it does is `answered(choice)`.

    `also` are widgets above the button. `label` is what the button says, `tooltip` what it says of itself. `opens` names
    the cells that wait for the answer (`metadata.course.answers`), see `Words`.
    """

    def __init__(
        self, options: Iterable[str], *, label: str, tooltip: str, answered, opens: str = "", also=()
    ):
        self.options = ipywidgets.RadioButtons(
            options=list(options), value=None, layout=ipywidgets.Layout(width="auto")
        )
        self.button = ipywidgets.Button(description=label, tooltip=tooltip, disabled=True)
        self.words = Words(opens=opens)
        self.picture = ipywidgets.Image(format="png", layout=ipywidgets.Layout(display="none"))
        self.options.observe(self._on_choice, "value")
        self.button.on_click(lambda _: answered(self.options.value))
        self.widget = ipywidgets.VBox([self.options, *also, self.button, self.words, self.picture])
        self.widget.add_class(PANEL_CLASS)

    def _on_choice(self, change) -> None:
        self.button.disabled = change["new"] is None

    def show(self, choice: str, text: str, figure: Figure | None) -> None:
        """Mark the choice, say the text, show the figure where there is one, and open the cells that waited."""
        self.options.value = choice
        if figure is not None:
            self.picture.value = png_bytes(figure, dpi=192)
            self.picture.layout = ipywidgets.Layout(
                width=f"{round(figure.get_figwidth() * 96)}px", max_width="100%"
            )
            self.words.alt = text_alternative(figure)
        self.words.text = text
        self.words.answered = True
