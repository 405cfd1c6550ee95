"""Predict, then look: the learner commits a guess, and only then is the figure drawn."""

from collections.abc import Callable, Mapping

import ipywidgets
from IPython.display import Markdown, display
from matplotlib.figure import Figure

from course_lib.teaching.progress import Progress
from course_lib.teaching.style import png_bytes, text_alternative
from course_lib.teaching.words import PANEL_CLASS, Words


class Prediction:
    """A question with a few answers, whose figure appears after a guess.

    `choices` maps each answer to the sentence that a learner who picked it should read; `answer` is the
    right one. `reveal` draws the figure; it is not called before a guess.

    Raises:
        ValueError: `answer` is not among `choices`, or there are fewer than two of them.
    """

    def __init__(
        self,
        prediction_id: str,
        question: str,
        *,
        choices: Mapping[str, str],
        answer: str,
        reveal: Callable[[], Figure],
        progress: Progress | None = None,
    ):
        if len(choices) < 2 or answer not in choices:
            raise ValueError(f"answer must be one of at least two choices {list(choices)}, got {answer!r}")
        self.id, self.question, self.choices, self.answer = prediction_id, question, dict(choices), answer
        self.reveal, self.progress = reveal, progress or Progress()
        self.guess: str | None = None
        self._options = ipywidgets.RadioButtons(
            options=list(choices), value=None, layout=ipywidgets.Layout(width="auto")
        )
        self._button = ipywidgets.Button(
            description="Commit my guess",
            tooltip=f"Commit the guess of prediction {prediction_id}",
            disabled=True,
        )
        self._words = Words()
        self._picture = ipywidgets.Image(format="png", layout=ipywidgets.Layout(display="none"))
        self._options.observe(self._on_choice, "value")
        self._button.on_click(lambda _: self.commit(self._options.value))
        self.widget = ipywidgets.VBox([self._options, self._button, self._words, self._picture])
        self.widget.add_class(PANEL_CLASS)

    def _on_choice(self, change) -> None:
        self._button.disabled = change["new"] is None

    def commit(self, guess: str) -> None:
        """Take the guess, say whether it was right and why, and draw the figure.

        Raises:
            ValueError: `guess` is not one of the choices.
        """
        if guess not in self.choices:
            raise ValueError(f"guess must be one of {list(self.choices)}, got {guess!r}")
        self.guess = guess
        right = guess == self.answer
        self.progress.record_prediction(self.id, guess=guess, right=right)
        figure = self.reveal()
        self._options.value = guess
        self._picture.value = png_bytes(figure, dpi=192)
        self._picture.layout = ipywidgets.Layout(
            width=f"{round(figure.get_figwidth() * 96)}px", max_width="100%"
        )
        self._words.alt = text_alternative(figure)
        opening = "As you predicted." if right else f"Not what happens. You predicted: {guess}."
        self._words.text = f"{opening} {self.choices[guess]}"

    def _ipython_display_(self) -> None:
        display(Markdown(f"**Prediction {self.id}.** {self.question}"), self.widget)
