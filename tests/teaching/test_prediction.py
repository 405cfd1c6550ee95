"""A prediction on the page: nothing is drawn or said before a guess, and every guess has its sentence."""

import ipywidgets
import pytest

from course_lib.teaching.prediction import Prediction, right
from course_lib.teaching.progress import Progress
from course_lib.teaching.style import describe, new_figure, text_alternative
from course_lib.teaching.words import PANEL_CLASS, Words

CHOICES = {"up": "It goes down.", "down": "Gravity.", "sideways.": "There is no wind."}


@pytest.fixture
def prediction():
    drawn = []

    def reveal():
        drawn.append(describe(new_figure(2, 2), "A stone that falls."))
        return drawn[-1]

    made = Prediction("90.P1", "Where does a stone go?", choices=CHOICES, answer="down", reveal=reveal)
    made.drawn = drawn
    return made


def parts(prediction):
    options, sure, button, words, picture = prediction.widget.children
    assert isinstance(sure, ipywidgets.Checkbox)
    assert isinstance(options, ipywidgets.RadioButtons)
    assert isinstance(button, ipywidgets.Button)
    assert isinstance(words, Words)
    assert isinstance(picture, ipywidgets.Image)
    return options, button, words, picture


def test_nothing_is_drawn_or_said_before_a_guess(prediction):
    options, button, words, picture = parts(prediction)
    assert PANEL_CLASS in prediction.widget._dom_classes
    assert (options.value, list(options.options)) == (None, list(CHOICES))
    assert button.disabled
    assert prediction.id in button.tooltip
    assert (words.text, picture.value, picture.layout.display) == ("", b"", "none")
    options.value = "down"
    assert not button.disabled
    assert prediction.drawn == []
    options.value = None
    assert button.disabled
    assert (prediction.guess, Progress().read()["predictions"]) == (None, {})


@pytest.mark.parametrize("guess", CHOICES)
def test_every_guess_has_its_sentence_and_shows_the_figure(prediction, guess):
    options, button, words, picture = parts(prediction)
    options.value = guess
    button.click()
    right = guess == "down"
    assert prediction.guess == guess
    assert words.text.startswith(
        "As you predicted."
        if right
        else f"Not what happens. The right answer: down. You predicted: {guess.rstrip('.')}. "
    )
    assert words.text.endswith(CHOICES[guess])
    (figure,) = prediction.drawn
    assert words.alt == text_alternative(figure)
    assert bytes(picture.value).startswith(b"\x89PNG")
    assert picture.layout.display is None
    assert Progress().read()["predictions"] == {"90.P1": {"guess": guess, "right": right, "sure": False}}


def test_a_learner_who_is_sure_says_so_once(prediction):
    options, button, _, _ = parts(prediction)
    sure = prediction.widget.children[1]
    assert (sure.description, sure.value) == ("I am sure", False)
    options.value, sure.value = "up", True
    button.click()
    sure.value = False
    button.click()
    kept = {"90.P1": {"guess": "up", "right": False, "sure": True}}
    assert Progress().read()["predictions"] == kept
    prediction._ipython_display_()
    again = Prediction("90.P1", "", choices=CHOICES, answer="down", reveal=prediction.reveal)
    again._ipython_display_()
    assert again.widget.children[1].value
    assert Progress().read()["predictions"] == kept


def test_only_the_first_guess_is_recorded(prediction):
    prediction.record("up")
    prediction.record("down")
    assert parts(prediction)[2].text.startswith("As you predicted.")
    assert parts(prediction)[0].value == "down"
    assert Progress().read()["predictions"] == {"90.P1": {"guess": "up", "right": False}}


def test_an_unknown_guess_is_refused_and_shows_nothing(prediction):
    for guess in ("none of these", None):
        with pytest.raises((ValueError, TypeError), match=r"guess must be one of|Type-check error"):
            prediction.record(guess)
    assert prediction.drawn == []
    assert parts(prediction)[3].value == b""
    assert Progress().read()["predictions"] == {}


def test_the_cell_shows_the_question_and_the_panel(prediction, monkeypatch):
    shown = []
    monkeypatch.setattr("course_lib.teaching.prediction.display", lambda *things: shown.extend(things))
    prediction._ipython_display_()
    question, panel = shown
    assert question.data == "**Prediction 90.P1.** Where does a stone go?"
    assert panel is prediction.widget
    assert prediction.drawn == []


@pytest.mark.parametrize(
    ("choices", "answer"),
    [
        ({"a": "A.", "b": "B."}, "c"),
        ({"a": "A."}, "a"),
        ({}, "a"),
        ({"a": "A.", "b": "B."}, None),
        ({"a": right("A."), "b": right("B.")}, None),
        ({"a": right("A."), "b": "B."}, "b"),
    ],
)
def test_a_question_without_a_choice_or_an_answer_is_refused(choices, answer):
    with pytest.raises(ValueError, match="exactly one of at least two choices"):
        Prediction("90.P1", "?", choices=choices, answer=answer, reveal=new_figure)


def test_the_right_choice_is_marked_by_its_sentence():
    asked = Prediction("90.P2", "?", choices={"a": "No.", "b": right("Yes.")}, reveal=new_figure)
    assert (asked.answer, asked.choices) == ("b", {"a": "No.", "b": "Yes."})


def test_cells_that_answer_open_with_the_guess(prediction):
    words = parts(prediction)[2]
    assert (words.opens, words.answered) == ("90.P1", False)
    prediction.record("up")
    assert words.answered


def test_a_recorded_guess_is_shown_again_and_counts_once(prediction, monkeypatch):
    prediction.record("up")
    monkeypatch.setattr("course_lib.teaching.prediction.display", lambda *things: None)
    again = Prediction("90.P1", "?", choices=CHOICES, answer="down", reveal=prediction.reveal)
    assert parts(again)[0].value is None
    again._ipython_display_()
    assert (parts(again)[0].value, again.guess) == ("up", "up")
    assert parts(again)[2].text.startswith("Not what happens. The right answer: down. You predicted: up.")
    assert Progress().read()["predictions"] == {"90.P1": {"guess": "up", "right": False}}
