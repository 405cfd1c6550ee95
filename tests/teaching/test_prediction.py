"""Every prediction of every lesson: nothing is shown before a guess, and every guess has its sentence."""

import inspect

import ipywidgets
import pytest

from course_lib.lessons.gradient_descent_stability import edge_of_stability_runs
from course_lib.lessons.mbart_to_sparse_features import pipeline_run
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.progress import Progress
from course_lib.teaching.style import new_figure, text_alternative
from course_lib.teaching.words import PANEL_CLASS, Words
from tests.drawing import assert_clear_layout
from tests.lessons import PREDICTIONS

every_prediction = pytest.mark.parametrize("build", PREDICTIONS, ids=lambda f: f.__name__)


@pytest.fixture(scope="module")
def measured():
    """What a lesson measures before it asks, in a short version."""
    return {
        "runs": edge_of_stability_runs(steps=60, every=20),
        "every": 20,
        "run": pipeline_run(),
    }


@pytest.fixture
def make(measured):
    def build(function):
        prediction = function(**{name: measured[name] for name in inspect.signature(function).parameters})
        prediction.drawn = []
        reveal = prediction.reveal
        prediction.reveal = lambda: prediction.drawn.append(reveal()) or prediction.drawn[-1]
        return prediction

    return build


def parts(prediction):
    options, button, words, picture = prediction.widget.children
    assert isinstance(options, ipywidgets.RadioButtons)
    assert isinstance(button, ipywidgets.Button)
    assert isinstance(words, Words)
    assert isinstance(picture, ipywidgets.Image)
    return options, button, words, picture


def test_the_lessons_ask_for_predictions():
    assert len(PREDICTIONS) >= 3


@every_prediction
def test_nothing_is_drawn_or_said_before_a_guess(build, make):
    prediction = make(build)
    options, button, words, picture = parts(prediction)
    assert PANEL_CLASS in prediction.widget._dom_classes
    assert options.value is None
    assert list(options.options) == list(prediction.choices)
    assert button.disabled
    assert prediction.id in button.tooltip
    assert (words.text, picture.value, picture.layout.display) == ("", b"", "none")
    assert prediction.drawn == []
    assert prediction.guess is None
    options.value = prediction.answer
    assert not button.disabled
    assert prediction.drawn == []
    options.value = None
    assert button.disabled
    assert Progress().read()["predictions"] == {}


@every_prediction
def test_every_guess_has_its_sentence_and_shows_the_figure(build, make):
    sentences = set()
    for guess in make(build).choices:
        Progress().reset()
        prediction = make(build)
        options, button, words, picture = parts(prediction)
        options.value = guess
        button.click()
        right = guess == prediction.answer
        assert prediction.guess == guess
        assert len(prediction.drawn) == 1
        assert words.text.startswith(
            "As you predicted." if right else f"Not what happens. You predicted: {guess}."
        )
        assert prediction.choices[guess] in words.text
        alternative = text_alternative(prediction.drawn[0])
        assert words.alt == alternative
        assert bytes(picture.value).startswith(b"\x89PNG")
        assert picture.layout.display is None
        assert Progress().read()["predictions"] == {prediction.id: {"guess": guess, "right": right}}
        sentences.add(prediction.choices[guess])
    assert len(sentences) == len(prediction.choices)


@every_prediction
def test_only_the_first_guess_is_recorded(build, make):
    prediction = make(build)
    wrong = next(choice for choice in prediction.choices if choice != prediction.answer)
    prediction.commit(wrong)
    prediction.commit(prediction.answer)
    assert parts(prediction)[2].text.startswith("As you predicted.")
    assert parts(prediction)[0].value == prediction.answer
    assert Progress().read()["predictions"] == {prediction.id: {"guess": wrong, "right": False}}


@every_prediction
def test_an_unknown_guess_is_refused_and_shows_nothing(build, make):
    prediction = make(build)
    for guess in ("none of these", None):
        with pytest.raises((ValueError, TypeError), match=r"guess must be one of|Type-check error"):
            prediction.commit(guess)
    assert prediction.drawn == []
    assert parts(prediction)[3].value == b""
    assert Progress().read()["predictions"] == {}


@every_prediction
def test_the_revealed_figure_can_be_read(build, make):
    prediction = make(build)
    prediction.commit(prediction.answer)
    assert_clear_layout(prediction.drawn[0])


@every_prediction
def test_the_cell_shows_the_question_and_the_panel(build, make, monkeypatch):
    shown = []
    monkeypatch.setattr("course_lib.teaching.prediction.display", lambda *things: shown.extend(things))
    prediction = make(build)
    prediction._ipython_display_()
    question, panel = shown
    assert prediction.id in question.data
    assert prediction.question in question.data
    assert panel is prediction.widget
    assert prediction.drawn == []


@pytest.mark.parametrize(
    ("choices", "answer"), [({"a": "A.", "b": "B."}, "c"), ({"a": "A."}, "a"), ({}, "a")]
)
def test_a_question_without_a_choice_or_an_answer_is_refused(choices, answer):
    with pytest.raises(ValueError, match="answer must be one of at least two choices"):
        Prediction("90.P1", "?", choices=choices, answer=answer, reveal=new_figure)
