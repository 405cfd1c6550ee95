"""Formulas as plain text: those of the lessons, and the forms that TeX gives them."""

import re

import pytest

from course_lib.editions.plain import plain
from course_lib.lessons import exercises_of, predictions_of
from course_lib.lessons.catalog import LESSONS


@pytest.mark.parametrize(
    ("tex", "text"),
    [
        (r"\frac{\partial L}{\partial h_t}\cdot\frac{dh_t}{dw}", "∂L/∂hₜ·dhₜ/dw"),
        (r"\frac{a + b}{2}", "(a + b)/2"),
        (r"\lVert q - k\rVert^2", "‖q - k‖²"),
        (r"\lambda I + K^\top K", "λI + KᵀK"),
        (r"\eta = 0.75", "η = 0.75"),
        (r"\sqrt d\,\sigma^2 = 128", "√d σ² = 128"),
        (r"P_i = \gamma_0\cdots\gamma_i", "Pᵢ = γ₀⋯γᵢ"),
        (r"w^*, W_Q, w_{60}^2, x_{t+1}, 2^{-n}", "w*, W_Q, w₆₀², xₜ₊₁, 2⁻ⁿ"),
        (r"x_{\max} \le \theta \le 1/\sqrt{a + b}", "x_(max) ≤ θ ≤ 1/√(a + b)"),
    ],
)
def test_a_formula_is_a_line_of_text(tex, text):
    assert plain(f"Let ${tex}$ hold.") == f"Let {text} hold."


def test_emphasis_goes_and_code_and_products_stay():
    assert plain("*One* is **not** `a*b*c`, and 2*3*4 = 24.") == "One is not `a*b*c`, and 2*3*4 = 24."


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.number)
def test_nothing_of_tex_is_left_of_what_a_record_shows(lesson):
    texts = []
    for ask in predictions_of(lesson.number).values():
        texts += [ask.question, *ask.example().choices]
    for exercise in exercises_of(lesson.number).values():
        texts += [exercise.title, *(one.explanation for one in exercise.mistakes)]
    assert texts
    for text in texts:
        assert not re.search(r"[$\\]|\b(frac|cdot|lVert)\b", re.sub(r"`[^`]*`", "", plain(text)))
