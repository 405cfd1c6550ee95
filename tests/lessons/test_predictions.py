"""Every prediction of every lesson: a question, an answer, a sentence for each guess, and a figure that can be read."""

import pytest

from course_lib.teaching.style import text_alternative
from tests.drawing import assert_clear_layout
from tests.lessons import MODULES, PREDICTIONS
from tests.lessons.learners import GIVEN_AWAY, LEARNERS


def test_every_lesson_asks():
    assert {number.split(".")[0] for number, _ in PREDICTIONS} == set(MODULES)


def test_every_prediction_has_the_words_that_would_give_it_away():
    listed = [number for module in LEARNERS.values() for number in module.GIVES_AWAY]
    assert sorted(listed) == sorted(number for number, _ in PREDICTIONS)
    assert set(GIVEN_AWAY) <= set(listed)


@pytest.mark.parametrize(("number", "ask"), PREDICTIONS, ids=lambda v: v if isinstance(v, str) else "")
def test_every_guess_has_its_sentence_and_the_figure_can_be_read(number, ask):
    prediction = ask.example()
    assert prediction.id == number
    assert prediction.question.strip().endswith(("?", "."))
    assert prediction.answer in prediction.choices
    assert len(set(prediction.choices.values())) == len(prediction.choices) >= 2
    assert all(sentence.strip().endswith(".") for sentence in prediction.choices.values())
    if not hasattr(ask.reveal, "example"):  # a figure of the lesson's own is drawn and read in test_figures
        figure = prediction.reveal()
        assert text_alternative(figure)
        assert_clear_layout(figure)
