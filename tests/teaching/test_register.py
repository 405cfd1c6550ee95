"""The register of a lesson: what is declared once is found by name, and what cannot be right is refused."""

import inspect

import pytest
import torch

from course_lib.teaching.explorer import Explorer
from course_lib.teaching.laws import inputs, whole
from course_lib.teaching.register import Contents
from course_lib.teaching.style import text_alternative


@pytest.fixture
def lesson():
    return Contents()


def test_a_figure_is_labelled_described_and_registered_by_name(lesson):
    @lesson.figure(
        "Title", "x", ["left", "right"], grid=(1, 2), size=(5, 3), ylim=(0, 9), example=lambda: [1, 2]
    )
    def plot_two(left, right, values, *, scale=1):
        """Draw two."""
        left.plot(values, label="here")
        right.plot([scale * v for v in values])
        return f"Two curves, scale {scale}."

    figure = plot_two([3, 4], scale=2)
    left, right = figure.axes
    assert text_alternative(figure) == "Two curves, scale 2."
    assert (left.get_title(), left.get_xlabel(), left.get_ylabel(), right.get_ylabel()) == (
        "Title",
        "x",
        "left",
        "right",
    )
    assert (left.get_ylim(), tuple(figure.get_size_inches())) == ((0, 9), (5, 3))
    assert left.get_legend() is not None
    assert right.get_legend() is None
    assert right.lines[0].get_ydata().tolist() == [6, 8]
    assert list(inspect.signature(plot_two).parameters) == ["values", "scale"]
    assert plot_two.__doc__ == "Draw two."
    assert list(lesson.figures) == ["two"]
    assert lesson.figures["two"]().axes[1].lines[0].get_ydata().tolist() == [1, 2]


def test_variants_are_figures_of_their_own(lesson):
    @lesson.figure(variants={"small": {"size": 1}, "large": {"size": 9}})
    def plot_size(axes, *, size=1):
        axes.set(xlabel="x", ylabel="y")
        return f"A figure of size {size}."

    assert {name: text_alternative(draw()) for name, draw in lesson.figures.items()} == {
        "small": "A figure of size 1.", "large": "A figure of size 9.",
    }  # fmt: skip


def test_a_name_is_registered_once(lesson):
    def plot_twice(axes):
        return "Once."

    lesson.figure()(plot_twice)
    with pytest.raises(ValueError, match=r"twice is registered already; the names so far are \['twice'\]"):
        lesson.figure()(plot_twice)


def test_an_explorers_strip_is_a_figure(lesson):
    @lesson.explorer
    class First(Explorer):
        def strip(self):
            return "the strip"

        def __init__(self):
            """Nothing is drawn here."""

    @lesson.explorer
    class Second(First):
        pass

    assert lesson.explorers == {"First": First, "Second": Second}
    assert {name: draw() for name, draw in lesson.figures.items()} == {
        "explorer": "the strip",
        "second": "the strip",
    }


def test_a_prediction_hands_the_pages_data_to_its_figure(lesson):
    @lesson.figure(example=lambda: (1, 2))
    def plot_sum(axes, a, b):
        return f"The sum is {a + b}."

    ask = lesson.prediction("90.P1", "How much?", {"3": "Yes.", "4": "No."}, answer="3", reveal=plot_sum)
    prediction = ask(10, b=20)
    assert (prediction.id, prediction.question, prediction.answer) == ("90.P1", "How much?", "3")
    assert text_alternative(prediction.reveal()) == "The sum is 30."
    assert text_alternative(ask.example().reveal()) == "The sum is 3."
    assert list(lesson.predictions) == ["90.P1"]
    with pytest.raises(TypeError, match="missing a required argument: 'b'"):
        ask(10)


def test_the_sentences_of_a_prediction_may_say_what_the_page_measured(lesson):
    @lesson.figure(example=lambda: 1)
    def plot_number(axes, number):
        return f"The number is {number}."

    ask = lesson.prediction(
        "90.P2",
        "More?",
        lambda number: {"yes": f"{number} is.", "no": "No."},
        answer="yes",
        reveal=plot_number,
    )
    for prediction, number in ((ask(7), 7), (ask.example(), 1)):
        assert prediction.choices == {"yes": f"{number} is.", "no": "No."}
        assert text_alternative(prediction.reveal()) == f"The number is {number}."


def test_exercises_of_all_kinds(lesson):
    about = {"difficulty": 1, "minutes": 1, "prompt": "?", "hints": ("a", "b", "c")}

    @lesson.exercise(
        "90.1",
        "Twice",
        draw=inputs(extra=whole(5, 9), n=lambda extra: extra + 1),
        mistakes=[("once", lambda n: n, "Once."), ("thrice", lambda n: 3 * n, "Thrice.")],
        **about,
    )
    def twice(n):
        return 2 * n

    mistakes = [("zero", 0, "Zero."), ("negative", -1, "Negative.", lambda answer: answer < 0)]
    lesson.value(
        "90.2",
        "One",
        answer=1,
        mistakes=mistakes,
        properties=[("It is one.", lambda answer: answer == 1)],
        **about,
    )
    flaws = [("zero", {"k": 0}, "Zero."), ("negative", {"k": -1}, "Negative.", lambda k: k < 0)]
    lesson.flaw(
        "90.3", "Positive", answer={"k": 1}, mistakes=flaws, properties=[("k > 0.", lambda k: k > 0)], **about
    )

    assert twice(4) == 8, "the reference stays a plain function"
    assert {n: (e.kind, e.title) for n, e in lesson.exercises.items()} == {
        "90.1": ("function", "Twice"), "90.2": ("value", "One"), "90.3": ("flaw", "Positive"),
    }  # fmt: skip
    rng = lambda: torch.Generator().manual_seed(0)  # noqa: E731
    assert set(lesson.exercises["90.1"].draw(rng())) == {"n"}, (
        "sizes that the function does not take are left out"
    )
    for number, wrong in (("90.1", lambda n: 3 * n), ("90.2", -7), ("90.3", {"k": -3})):
        exercise = lesson.exercises[number]
        assert exercise.grade(exercise.reference, generator=rng()).status == "solved"
        assert exercise.grade(wrong, generator=rng()).mistake in ("thrice", "negative")
