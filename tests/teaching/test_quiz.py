"""A quiz on the page: nothing is run or said before an answer, and every answer runs what decides."""

import ipywidgets
import pytest

from course_lib.teaching import Contents, fact
from course_lib.teaching.claims import ClaimError
from course_lib.teaching.progress import Progress
from course_lib.teaching.quiz import Quiz, Sentence
from course_lib.teaching.style import describe, new_figure


@pytest.fixture
def ran():
    return []


@pytest.fixture
def quiz(ran):
    lesson = Contents()

    @lesson.sentence("90.Q1", "All squares are < 10.", answer=False)
    def squares():
        """Four squared
        is more."""
        ran.append("Q1")
        largest = fact("the largest of four squares is {}", 16, at_least=10)
        return f"{largest}\n{fact('the smallest is {}', 1, equals=1, within=0)}"

    @lesson.sentence(
        "90.Q2",
        "The mean is the median.",
        answer="only if it is even",
        conditions=("only if it is even", "only if n > 2"),
    )
    def mean():
        """One long tail moves the mean only."""
        ran.append("Q2")
        return fact("the gap is {}", 0.0, at_most=1e-12), describe(new_figure(2, 2), "A long tail.")

    assert list(lesson.sentences) == ["90.Q1", "90.Q2"]
    return lesson.quiz()


def panels(quiz):
    return [box for box in quiz.widget.children if isinstance(box, ipywidgets.VBox)]


def test_nothing_is_run_or_said_before_an_answer(quiz, ran):
    texts = [box.value for box in quiz.widget.children if isinstance(box, ipywidgets.HTMLMath)]
    assert texts == [
        "<p><b>90.Q1</b> All squares are &lt; 10.</p>",
        "<p><b>90.Q2</b> The mean is the median.</p>",
    ]
    for box, options in zip(panels(quiz), (2, 4), strict=True):
        choices, button, words, picture = box.children
        assert (len(choices.options), choices.value, button.disabled) == (options, None, True)
        assert (words.text, picture.value) == ("", b"")
    assert ran == []


@pytest.mark.parametrize(("choice", "opening"), [("False", "Right. "), ("True", "No: it is false. ")])
def test_an_answer_runs_what_decides_and_says_why(quiz, ran, choice, opening):
    choices, button, words, picture = panels(quiz)[0].children
    choices.value = choice
    button.click()
    assert ran == ["Q1"]
    measured = "Measured: the largest of four squares is ≈16, at least 10; the smallest is 1"
    assert words.text.startswith(f"{opening}Four squared is more. ")
    assert words.text.endswith(measured)
    assert picture.value == b""
    assert Progress().read()["sentences"] == {"90.Q1": {"choice": choice, "right": choice == "False"}}


def test_a_condition_can_be_the_answer_and_a_figure_is_shown(quiz):
    choices, button, words, picture = panels(quiz)[1].children
    assert choices.options == ("True", "False", "only if it is even", "only if n > 2")
    choices.value = "only if n > 2"
    button.click()
    assert words.text.startswith("No: only if it is even. One long tail")
    assert words.alt == "A long tail."
    assert bytes(picture.value).startswith(b"\x89PNG")
    quiz.mark("90.Q2", "only if it is even")
    assert words.text.startswith("Right. ")
    assert Progress().read()["sentences"]["90.Q2"] == {"choice": "only if n > 2", "right": False}


def test_what_was_marked_is_shown_again(quiz, ran, monkeypatch):
    quiz.mark("90.Q1", "True")
    shown = []
    monkeypatch.setattr("course_lib.teaching.quiz.display", lambda *things: shown.extend(things))
    again = Quiz(list(quiz.sentences.values()))
    again._ipython_display_()
    assert panels(again)[0].children[0].value == "True"
    assert panels(again)[1].children[0].value is None
    assert shown[1] is again.widget


def test_without_a_kernel_sentences_and_answers_are_there_to_unfold(quiz):
    text = quiz.static().data
    assert text.startswith("<details><summary>For reading without a kernel")
    assert text.count("<li>") == 2
    assert "All squares are &lt; 10. <em>(True, False?)</em>" in text
    assert "<strong>It is false.</strong> Four squared is more." in text
    assert "<strong>Only if it is even.</strong>" in text
    assert '<img alt="A long tail."' in text


def test_a_symbol_keeps_its_capital_letter_in_the_answer():
    lesson = Contents()

    @lesson.sentence(
        "90.Q1",
        "One number holds all.",
        answer="only if D = 1",
        conditions=("only if D = 1", "only if D > 1"),
    )
    def entries():
        """With two entries a second number is needed."""
        return fact("entries: {}", 1, equals=1, within=0)

    assert "<strong>Only if D = 1.</strong>" in lesson.quiz().static().data


def test_what_does_not_hold_is_an_error_and_not_an_answer():
    wrong = Sentence("90.Q9", "1 > 2", answer=True, run=broken)
    with pytest.raises(ClaimError):
        Quiz([wrong]).mark("90.Q9", "True")


def broken():
    """It is said to hold."""
    return fact("one is {}", 1, at_least=2)


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"answer": "only if n = 1"}, "answer of sentence 90.Q1 must be one of"),
        ({"answer": True, "conditions": ("a", "a")}, "answer of sentence 90.Q1 must be one of"),
        ({"answer": True, "run": lambda: ""}, "must say in its docstring why"),
    ],
)
def test_a_sentence_without_an_answer_or_a_reason_is_refused(about, message):
    with pytest.raises(ValueError, match=message):
        Sentence("90.Q1", "A sentence.", **{"run": broken, **about})


def test_unknown_sentences_and_choices_are_refused(quiz, ran):
    with pytest.raises(ValueError, match="number must be one of"):
        quiz.mark("90.Q7", "True")
    with pytest.raises(ValueError, match="choice must be one of"):
        quiz.mark("90.Q1", "Perhaps")
    with pytest.raises(ValueError, match="a quiz needs sentences"):
        Quiz([])
    assert ran == []
    assert Progress().read()["sentences"] == {}
