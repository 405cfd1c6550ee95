"""What the curves of lesson 06 are."""

from functools import cache

import numpy as np
import pytest
import torch

from course_lib.lessons import newton_schulz_and_muon as lesson
from course_lib.optimization.newton_schulz import (
    CUBIC,
    KELLER,
    minimax_composition,
    minimax_quintic,
    odd_polynomial,
    orthogonality_error,
    orthogonalize,
    polar_express,
)
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_legend, assert_line, line_labelled


@cache
def figure(name):
    return lesson.FIGURES[name]()


def numbers(line):
    return np.asarray(line.get_ydata(), dtype=float)


def test_the_question_shows_five_steps_of_each_family():
    axes = figure("question").axes[0]
    values = lesson.harmonic(64) / lesson.harmonic(64).norm()
    assert_line(line_labelled(axes, "gradient, scaled to norm 1"), np.arange(1, 65), values)
    for family, quintics in (
        ("cubic", [CUBIC] * 5), ("Keller", [KELLER] * 5), ("Polar Express", polar_express(5)),
    ):  # fmt: skip
        expected = values
        for quintic in quintics:
            expected = odd_polynomial(expected, quintic)
        assert_line(line_labelled(axes, f"five steps, {family}"), np.arange(1, 65), expected)


def test_orbits_of_the_cubic_end_where_the_caption_says():
    axes = figure("orbits").axes[0]
    ends = {}
    for start in lesson.STARTS:
        orbit = numbers(line_labelled(axes, f"$s_0$ = {start:g}"))
        assert orbit[0] == start
        np.testing.assert_allclose(orbit[1:], (3 * orbit[:-1] - orbit[:-1] ** 3) / 2, atol=1e-12)
        ends[start] = round(orbit[-1], 2)
    assert ends == {0.05: 1, 0.5: 1, 1.7: 1, 1.75: -1, 2.0: -1, 2.2: 1}


def test_the_best_quintic_touches_its_band_four_times():
    axes = figure("quintic").axes[0]
    _, error = minimax_quintic(0.1, 1)
    touched = numbers(line_labelled(axes, "error $E$, signs alternate"))
    np.testing.assert_allclose(touched - 1, error * np.array([-1, 1, -1, 1]), atol=1e-9)
    best = line_labelled(axes, "best on [0.1, 1]")
    x = np.asarray(best.get_xdata())
    inside = numbers(best)[(x >= 0.1) & (x <= 1)]
    assert abs(inside - 1).max() <= error + 1e-9


def test_the_composition_closes_in():
    left, right = figure("composition").axes
    assert_legend(left, [f"step {t}" for t in range(1, 6)])
    worst = [abs(numbers(line) - 1).max() for line in left.lines]
    assert worst == pytest.approx([minimax_composition(1e-3, t)[1] for t in range(1, 6)], abs=2e-3)
    assert [numbers(bar).tolist() for bar in right.lines[1:6]] == [
        pytest.approx([1 - error, 1 + error], abs=2e-3) for error in worst
    ]


def test_the_ellipse_becomes_a_circle():
    last = [axes.lines[1].get_xydata() for axes in figure("ellipses").axes]
    lengths = [np.linalg.norm(points, axis=1) for points in last]
    for steps, length in zip((0, 2, 4, 8), lengths, strict=True):
        s = torch.tensor(0.14, dtype=torch.float64)
        for _ in range(steps):
            s = odd_polynomial(s, CUBIC)
        assert length.min() == pytest.approx(float(s), abs=1e-6)
    assert lengths[-1].min() > 0.9


@pytest.mark.parametrize("panel", [0, 1])
def test_errors_are_those_of_the_matrices(panel):
    axes = figure("errors").axes[panel]
    assert_legend(figure("errors").axes[0], list(lesson.CURVES))
    name, values = list(lesson.spectra().items())[panel]
    assert axes.get_title() == name
    matrix = torch.diag(values)
    for label, (family, norm, *_) in lesson.CURVES.items():
        name = family.lower().replace(" ", "_")
        drawn = numbers(line_labelled(axes, label))
        for steps in (1, 5):
            found = orthogonalize(matrix, steps, coefficients=name, norm=norm)
            assert drawn[steps - 1] == pytest.approx(float(orthogonality_error(found)), rel=1e-6)
    best, keller = (numbers(line_labelled(axes, n)) for n in ("Polar Express, Gram norm", "Keller"))
    assert best[4] < 0.2 < 0.3 < keller[4]
    assert best[-1] == 1e-8
    assert keller[-1] > 0.3


def test_only_the_gram_matrix_computed_once_runs_away():
    axes = figure("gram").axes[0]
    assert_legend(axes, ["plain form", "Gram form, once and for all", "Gram form, computed anew"])
    plain, once, anew = (numbers(line) for line in axes.lines[:3])
    assert plain.max() < 2.1
    assert anew.max() < 2.1
    assert once[2] < 2.1 < once[4]
    assert once[5] > 1e6


def table_lines():
    return lesson.measured_table().data.splitlines()


def test_the_table_holds_every_measured_number():
    header, _, *rows = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in table_lines()]
    assert header[:4] == ["method", "256 x 256", "1024 x 1024", "4096 x 1024"]
    wanted = [
        [name, *("" if value is None else f"{value:.2g}" for value in lesson.stored_row(method))]
        for name, method in lesson.METHODS.items()
    ]
    assert rows == wanted


def test_times_below_the_decompositions_are_bold():
    for line, row in zip(table_lines()[2:], map(lesson.stored_row, lesson.METHODS.values()), strict=True):
        bold = [cell.strip().startswith("**") for cell in line.split("|")[2:5]]
        assert bold == [value is not None and value < 0.95 for value in row[:3]]


def test_rare_facts_are_known_to_muon_only():
    axes = figure("memory").axes[0]
    rare = {name: numbers(line_labelled(axes, name))[40:] for name in lesson.OPTIMIZERS}
    assert rare["Muon"].max() < 0.2
    assert all(rare[name].min() > 0.4 for name in rare if name != "Muon")
    assert "Muon misses all alike" in text_alternative(figure("memory"))


def test_gradient_descent_solves_equal_frequencies_in_its_first_step():
    seen = lesson.frequencies(skewed=False)
    assert float(lesson.misses("gradient descent", 64.0, seen, steps=1).max()) < 1e-9
    assert float(seen.sum()) == pytest.approx(1)


@pytest.mark.parametrize("family", lesson.FAMILIES)
def test_the_explorer_says_what_it_draws(family):
    explorer = lesson.SingularValueExplorer()
    state = explorer.compute(smallest=-3.0, steps=5, family=family)
    expected = lesson.compose(torch.tensor([1e-3, 1.0], dtype=torch.float64), lesson.schedule(family, 5))
    assert state["reached"] == pytest.approx(float(expected[0]))
    (places, highest), (_, lowest) = state["highest"], state["lowest"]
    nearby = lesson.compose(torch.from_numpy(places), lesson.schedule(family, 5)).numpy()
    assert (lowest <= nearby + 0.01).all()
    assert (nearby <= highest + 0.01).all()
    ends = np.array([orbit[-1] for _, orbit in state["orbits"]])
    assert ends[[0, -1]] == pytest.approx(expected.numpy())
    assert state["low"] <= ends.min() + 0.02
    words = explorer.words(state)
    assert f"the smallest, 0.001, has become {state['reached']:.3g}" in words
    assert f"between {state['low']:.3g} and {state['high']:.3g}" in words


def test_the_explorer_says_when_all_have_arrived_and_when_none_has_started():
    explorer = lesson.SingularValueExplorer()
    arrived = explorer.words(explorer.compute(smallest=-2.0, steps=9, family="Polar Express"))
    assert "all lie within 0.005 of 1" in arrived
    assert "No step yet" in explorer.words(explorer.compute(smallest=-2.0, steps=0, family="cubic"))
