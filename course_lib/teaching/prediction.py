"""Predict, then look: the learner records a guess, and only then is the figure drawn.

Cells that answer a prediction carry its number in their metadata, `{"course": {"answers": "19.P1"}}`. In JupyterLab
they wait for the guess, or for "Show me", with their code and what it shows, also after all cells ran.
"""

from collections.abc import Callable, Mapping

import ipywidgets
from IPython.display import Markdown, display
from matplotlib.figure import Figure

from course_lib.teaching.panel import Panel
from course_lib.teaching.progress import Progress
from course_lib.teaching.words import answer_while_busy


class RightSentence(str):
    """A sentence that belongs to the right choice."""


def right(sentence: str) -> RightSentence:
    """Mark the sentence of the right choice: `{"It falls": right("Gravity."), "It rises": "It goes down."}`."""
    return RightSentence(sentence)


def the_right_one(choices: Mapping[str, str], answer: str | None = None) -> str:
    """Return the choice whose sentence is marked `right`, or `answer` where it is named apart.

    Raises:
        ValueError: there are fewer than two choices, `answer` is not one of them, or not exactly one is right.
    """
    marked = [choice for choice, sentence in choices.items() if isinstance(sentence, RightSentence)]
    found = marked if answer is None else [answer]
    if len(choices) < 2 or len(found) != 1 or found[0] not in choices or (marked and marked != found):
        raise ValueError(
            f"exactly one of at least two choices {list(choices)} must be right, got {found or 'none'}"
        )
    return found[0]


class Prediction:
    """A question with a few answers, whose figure appears after a guess.

    `choices` maps each answer to the sentence that a learner who picked it should read; the right one is
    marked by `right` or named by `answer`. `reveal` draws the figure; it is not called before a guess. A guess that
    the progress file holds is shown again where `again` is true.

    Raises:
        ValueError: there are fewer than two choices, or not exactly one is right.
    """

    def __init__(
        self,
        prediction_id: str,
        question: str,
        *,
        choices: Mapping[str, str],
        answer: str | None = None,
        reveal: Callable[[], Figure],
        progress: Progress | None = None,
    ):
        self.answer = the_right_one(choices, answer)
        self.id, self.question = prediction_id, question
        self.choices = {choice: str(sentence) for choice, sentence in choices.items()}
        self.reveal, self.progress = reveal, progress or Progress()
        self.guess: str | None = None
        self._sure = ipywidgets.Checkbox(description="I am sure", indent=False)
        self._panel = Panel(
            choices,
            label="Record my guess",
            tooltip=f"Record the guess of prediction {prediction_id}",
            answered=lambda choice: self.record(choice, sure=self._sure.value),
            opens=prediction_id,
            also=[self._sure],
        )
        answer_while_busy(self._panel.options, self._panel.button)
        self.widget = self._panel.widget

    def record(self, guess: str, *, sure: bool | None = None) -> None:
        """Keep the guess, say whether it was right, what is, and why, and draw the figure.

        `sure` is whether the learner was sure of it, None where nobody asked.

        Raises:
            ValueError: `guess` is not one of the choices.
        """
        if guess not in self.choices:
            raise ValueError(f"guess must be one of {list(self.choices)}, got {guess!r}")
        self.guess = guess
        right = guess == self.answer
        self.progress.record_prediction(self.id, guess=guess, right=right, sure=sure)
        answer, guessed = self.answer.rstrip("."), guess.rstrip(".")
        missed = f"Not what happens. The right answer: {answer}. You predicted: {guessed}."
        opening = "As you predicted." if right else missed
        self._panel.show(guess, f"{opening} {self.choices[guess]}", self.reveal())

    def _ipython_display_(self) -> None:
        earlier = self.progress.read()["predictions"].get(self.id, {})
        if self.guess is None and earlier.get("guess") in self.choices:
            self._sure.value = earlier.get("sure", False)
            self.record(earlier["guess"])
        display(Markdown(f"**Prediction {self.id}.** {self.question}"), self.widget)
