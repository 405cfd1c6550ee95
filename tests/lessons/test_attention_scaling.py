"""What the curves of lesson 13 are, and that its experiments are what they say."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.attention.scaled_dot_product import softmax_jacobian
from course_lib.lessons import attention_scaling as lesson
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_labels, assert_legend, assert_line, line_labelled

# Experiments


@given(st.integers(0, 2**31), st.integers(1, 6), st.floats(0, 20))
def test_the_size_of_the_jacobian_needs_no_matrix(seed, n, scale):
    generator = torch.Generator().manual_seed(seed)
    weights = (scale * torch.randn(3, n, generator=generator, dtype=torch.float64)).softmax(-1)
    expected = torch.linalg.matrix_norm(softmax_jacobian(weights))
    # Near a single choice the squares cancel down to rounding, whose root is about 1e-8.
    torch.testing.assert_close(lesson.jacobian_size(weights), expected, rtol=1e-6, atol=1e-7)


def test_the_size_of_the_jacobian_of_a_single_choice_is_zero():
    for dtype in (torch.float32, torch.float64):
        assert lesson.jacobian_size(torch.eye(5, dtype=dtype)).tolist() == [0] * 5
        nearly = torch.tensor([1000.0, 980.0, 970.0], dtype=dtype).softmax(-1)
        assert 0 <= float(lesson.jacobian_size(nearly)) <= 1e-3


def test_mean_and_median_of_two_keys_agree_with_samples():
    spreads = torch.tensor([0.5, 2.0, 8.0], dtype=torch.float64)
    mean, median = lesson.two_key_norms(spreads)
    generator = torch.Generator().manual_seed(0)
    for i, s in enumerate(spreads.tolist()):
        scores = s * torch.randn(200_000, 2, generator=generator, dtype=torch.float64)
        norms = torch.linalg.eigvalsh(softmax_jacobian(scores.softmax(-1)))[:, -1]
        assert float(mean[i]) == pytest.approx(float(norms.mean()), abs=5 * float(norms.std()) / 200_000**0.5)
        # Between the quantiles that lie five standard errors of a share to either side of one half.
        low, high = torch.quantile(norms, torch.tensor([0.494, 0.506], dtype=torch.float64))
        assert low <= median[i] <= high


def test_training_is_repeatable_and_leaves_the_defaults_alone():
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        first = lesson.train_lookup(lesson.FORMS["QK-norm"], step_size=0.01, steps=5)
    finally:
        torch.set_default_dtype(before)
    assert first == lesson.train_lookup(lesson.FORMS["QK-norm"], step_size=0.01, steps=5)
    assert len(first) == 5
    # The mean of the values misses the target by 1 - 1/16 on average, a wrong value by 2.
    assert 0.5 < first[0] < 2


def test_the_learned_scale_is_learned():
    seen = []

    def form(q, k, v, g):
        seen.append(float(g.detach()))
        return lesson.FORMS["QK-norm"](q, k, v, g)

    lesson.train_lookup(form, step_size=0.01, steps=10)
    assert seen[0] == pytest.approx(8, rel=1e-6)
    assert seen[-1] != pytest.approx(8, rel=1e-3)


# Figures


def test_the_question_shows_rows_that_become_choices_only_without_the_scale():
    figure = lesson.plot_question()
    left, right = figure.axes
    assert_legend(left, ["d = 4", "d = 64", "d = 1024"])
    assert_labels(left, x="rank of the key", y="attention weight", title="softmax(q·k)")
    for axes in (left, right):
        for d in (4, 64, 1024):
            weights = np.asarray(line_labelled(axes, f"d = {d}").get_ydata())
            assert weights.sum() == pytest.approx(1, abs=1e-9)
            assert (np.diff(weights) <= 0).all()
    top = lambda axes, d: line_labelled(axes, f"d = {d}").get_ydata()[0]  # noqa: E731
    assert top(left, 1024) > 0.95
    assert top(left, 4) < top(left, 64) < top(left, 1024)
    assert max(top(right, d) for d in (4, 64, 1024)) < 0.4
    assert f"{top(left, 64):.2f} against {top(right, 64):.2f} for d = 64" in text_alternative(figure)


def test_measured_spreads_lie_on_the_squares_of_sigma():
    axes = lesson.plot_spread().axes[0]
    for sigma in (1, 2, 3):
        line = line_labelled(axes, f"measured, $\\sigma$ = {sigma}")
        assert np.allclose(line.get_ydata(), sigma**2, rtol=0.2)
    levels = [line.get_ydata()[0] for line in axes.lines if len(set(line.get_ydata())) == 1]
    assert levels == [1, 1, 4, 2, 9, 3]


def test_saturation_is_below_its_bounds_and_falls_exponentially():
    figure = lesson.plot_saturation()
    axes = figure.axes[0]
    norm = line_labelled(axes, "norm of $J$")
    scales, norms = np.asarray(norm.get_xdata()), np.asarray(norm.get_ydata())
    for label in ("$2(1 - \\alpha_{max})$", "$2(n-1)e^{-\\beta\\Delta}$"):
        assert (norms <= np.asarray(line_labelled(axes, label).get_ydata()) + 1e-12).all()
    assert norms.max() <= 0.5
    exponential = line_labelled(axes, "$2(n-1)e^{-\\beta\\Delta}$")
    assert_line(exponential, scales, 14 * np.exp(-0.5 * scales))
    assert f"{norms.max():.2f} at scale {scales[norms.argmax()]:.1f}" in text_alternative(figure)


def test_slopes_at_the_tie_are_derivatives_of_the_weights():
    left, right = lesson.plot_tie().axes
    for scale in (1, 4, 16):
        weight, slope = (line_labelled(axes, f"$\\beta$ = {scale}") for axes in (left, right))
        t, y = np.asarray(weight.get_xdata()), np.asarray(weight.get_ydata())
        assert np.allclose(np.gradient(y, t)[1:-1], slope.get_ydata()[1:-1], atol=5e-3 * scale)
        assert y[len(t) // 2] == pytest.approx(0.5, abs=1e-12)
    assert set(np.asarray(line_labelled(left, "argmax").get_ydata())) == {0, 1}
    assert not np.asarray(line_labelled(right, "argmax").get_ydata()).any()


def test_the_mean_stays_near_its_bound_and_the_median_does_not():
    axes = lesson.plot_mean_and_median().axes[0]
    mean, bound, median = (
        np.asarray(line_labelled(axes, label).get_ydata())
        for label in ("mean over rows", "$1/(\\sqrt{\\pi}\\,s)$", "median row")
    )
    assert (mean <= bound * (1 + 1e-9)).all()
    assert mean[-1] / bound[-1] == pytest.approx(1, abs=1e-3)
    assert mean[0] == pytest.approx(0.5, abs=0.01)
    assert median[-1] < 1e-30


def test_the_training_figure_shows_the_table():
    one = {"a": {0.1: 1.0, 0.2: 0.5}, "b": {0.1: 2.0}, "c": {0.1: 1.5}}
    table = {1.0: one, 4.0: {**one, "a": {0.1: 3.0}}}
    figure = lesson.plot_training(table)
    left, right = figure.axes
    assert_line(line_labelled(left, "a"), [0.1, 0.2], [1.0, 0.5])
    assert_line(line_labelled(left, "b"), [0.1], [2.0])
    assert_line(line_labelled(right, "a"), [0.1], [3.0])
    assert [axes.get_title() for axes in figure.axes] == [
        f"entries start with $\\sigma$ = {s}" for s in (1, 4)
    ]


# Explorer


@pytest.fixture(scope="module")
def explorer():
    return lesson.ScaleExplorer()


def test_the_state_is_what_the_settings_say(explorer):
    state = explorer.compute(power=0.5, log_dim=8, std=2.0)
    assert state["d"] == 256
    assert state["predicted"] == pytest.approx(4)
    assert state["measured"] == pytest.approx(4, rel=0.15)
    assert state["shares"].sum() == pytest.approx(1)
    assert state["expected"].sum() == pytest.approx(1)
    assert np.allclose(state["weights"].sum(1), 1)
    assert state["weights"].shape == (8, 32)


def test_every_row_stands_on_its_own_line(explorer):
    explorer.frame(power=0.0, log_dim=10)
    weights = explorer.compute(power=0.0, log_dim=10, std=1.0)["weights"]
    for i, line in enumerate(explorer.artists["rows"]):
        assert_line(line, np.arange(1, 33), i + 1 + 0.85 * weights[i])


def test_with_the_root_nothing_depends_on_the_dimension(explorer):
    state = explorer.compute(power=0.5, log_dim=5, std=1.0)
    assert np.ptp(state["entropy"]) < 0.1
    assert np.ptp(state["jacobian"]) < 0.1
    unscaled = explorer.compute(power=0.0, log_dim=10, std=1.0)
    assert unscaled["entropy"][0] > 0.7 > 0.2 > unscaled["entropy"][-1]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"power": 0.0, "log_dim": 10, "std": 1.0}, "Saturated"),
        ({"power": 1.0, "log_dim": 10, "std": 1.0}, "Nearly equal weights"),
        ({"power": 0.5, "log_dim": 8, "std": 1.0}, "Between the extremes"),
        ({"power": 0.5, "log_dim": 1, "std": 1.0}, "far from normal"),
        ({"power": 0.5, "log_dim": 8, "std": 1.0}, "β = d^-0.5 = 0.0625"),
    ],
)
def test_words_say_what_the_setting_shows(explorer, settings, said):
    state = explorer.compute(**settings)
    words = explorer.words(state)
    assert said in words
    assert f"largest weight of a row is {state['largest']:.2f}" in words


def test_random_upstream_gradients_meet_the_size_of_the_jacobian():
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(6, generator=generator, dtype=torch.float64).softmax(-1)
    upstream = torch.randn(100_000, 6, generator=generator, dtype=torch.float64)
    squares = (upstream @ softmax_jacobian(weights)).square().sum(1)
    error = 5 * float(squares.std()) / math.sqrt(len(squares))
    assert float(lesson.jacobian_size(weights)) ** 2 == pytest.approx(float(squares.mean()), abs=error)
