"""What the figures and the explorer of lesson 16 show."""

import math
from functools import cache

import numpy as np
import pytest
import torch

from course_lib.attention.random_features import draw_frequencies, relative_variance
from course_lib.lessons import random_features as lesson
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_labels, assert_line, line_labelled


@cache
def figure(name):
    return lesson.FIGURES[name]()


def test_the_question_shows_weights_that_add_up_to_one():
    axes = figure("question").axes[0]
    weights = lesson.question_weights()
    bars = np.array([bar.get_height() for bar in axes.containers[0]])
    np.testing.assert_allclose(bars, weights["softmax"])
    for name, shift in (("trigonometric", -0.15), ("positive", 0.15)):
        assert_line(line_labelled(axes, f"{name} features"), np.arange(1, 13) + shift, weights[name])
        assert weights[name].sum() == pytest.approx(1, abs=1e-12)
    assert weights["trigonometric"].min() < -0.05 < 0 < weights["positive"].min()


def test_each_law_has_its_own_kernel():
    axes = figure("laws").axes[0]
    d = np.linspace(0, 6, 200)
    assert_line(line_labelled(axes, "mean of $N(0, \\sigma^{-2} I)$"), d, np.exp(-(d**2) / 8))
    assert_line(line_labelled(axes, "mean of $N(0, \\sigma^2 I)$, as printed"), d, np.exp(-2 * d**2))
    points = np.linspace(0, 6, 13)
    measured = [line for line in axes.lines if line.get_label() == "4,000 draws"]
    for line, curve in zip(measured, (np.exp(-(points**2) / 8), np.exp(-2 * points**2)), strict=True):
        assert np.abs(np.asarray(line.get_ydata()) - curve).max() < 6 / math.sqrt(2 * 4000)


def test_nearly_half_of_the_estimates_are_negative():
    estimates, share = lesson.negative_share()
    assert share == pytest.approx(0.48, abs=0.02)
    assert float(estimates.mean()) == pytest.approx(math.exp(-4.5), abs=0.01)
    assert "About 48 percent" in text_alternative(figure("negative"))
    assert_labels(
        figure("negative").axes[0], x="estimate of $K(q, k)$", y="share of draws (%)",
        title="8 frequencies, $\\|q - k\\|$ = 3 $\\sigma$",
    )  # fmt: skip


def test_variances_against_the_angle_are_those_of_the_library():
    axes = figure("variances").axes[0]
    angles = torch.arange(181, dtype=torch.float64)
    q = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    k = torch.stack([angles.deg2rad().cos(), angles.deg2rad().sin()], 1)
    for kind in ("trigonometric", "positive"):
        expected = relative_variance(q, k, kind=kind, sigma=1)[0].sqrt()
        assert_line(line_labelled(axes, f"{kind}, by (16.8)"), angles, expected, atol=1e-7)
    for line in (line for line in axes.lines if line.get_label() == "200,000 draws"):
        curve = next(c for c in axes.lines if c.get_color() == line.get_color() and len(c.get_xdata()) == 181)
        at = np.asarray(line.get_xdata(), dtype=int)
        np.testing.assert_allclose(line.get_ydata(), np.asarray(curve.get_ydata())[at], rtol=0.15)


def test_errors_fall_with_the_root_of_the_number_while_vectors_are_short():
    axes = figure("errors").axes[0]
    at = {n: np.asarray(line_labelled(axes, f"$\\|q\\| = \\|k\\|$ = {n}").get_ydata()) for n in (1, 2, 4, 8)}
    for n in (1, 2):
        predicted, measured = lesson.output_errors(n, (16, 64, 256, 1024))
        np.testing.assert_allclose(at[n], measured)
        np.testing.assert_allclose(measured, predicted, rtol=0.3)
        assert predicted[0] / predicted[-1] == pytest.approx(8)
    assert at[8].min() > 1
    assert all((at[n] < at[2 * n]).all() for n in (1, 2, 4))


def test_training_through_features_finds_weights_but_no_small_loss():
    runs = lesson.retrieval_runs()
    assert np.mean(runs["softmax"][0][-10:]) < 0.03
    for name, floor in (("64 features", 0.3), ("256 features", 0.15)):
        losses, sizes, final = runs[name]
        assert np.mean(losses[-10:]) > floor
        assert final < 0.1
        assert sizes[-1] > 4
    left, right = figure("training").axes
    for name, (losses, sizes, _) in runs.items():
        assert_line(line_labelled(left, name), np.arange(80), losses)
        assert_line(line_labelled(right, name), np.arange(80), sizes)


# The explorer


def test_projections_have_the_law_of_one_component():
    direction = torch.zeros(16, dtype=torch.float64)
    direction[3] = 1
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack(
        [draw_frequencies(16, 16, orthogonal=True, generator=generator, dtype=torch.float64) @ direction
         for _ in range(4000)]
    )  # fmt: skip
    blocks = lesson.projections(True).reshape(-1, 16)
    for found in (drawn.numpy(), blocks):
        # Two rows of a block are uncorrelated, and their squares are not: the directions share one unit length.
        # E u_i^2 u_j^2 = 1 / (d (d + 2)) for a uniform unit vector, times the mean squared lengths d and d.
        assert np.square(found).mean() == pytest.approx(1, abs=0.03)
        pairs = (found[:, :8] ** 2 * found[:, 8:] ** 2).mean()
        assert pairs == pytest.approx(16 / 18, abs=0.05)
        assert abs((found[:, :8] * found[:, 8:]).mean()) < 0.03
    plain = lesson.projections(False).reshape(-1, 16)
    assert (plain[:, :8] ** 2 * plain[:, 8:] ** 2).mean() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("kind", lesson.KINDS)
@pytest.mark.parametrize("angle", [0, 60, 180])
def test_the_explorer_measures_what_it_predicts(kind, angle):
    state = lesson.EstimateExplorer().compute(m=64, length=0.5, angle=angle, kind=kind)
    assert state["exact"] == pytest.approx(math.exp(0.25 * math.cos(math.radians(angle))))
    np.testing.assert_allclose(state["measured"], state["predicted"], rtol=0.2, atol=1e-9)
    assert state["error"] == pytest.approx(state["expected"], rel=0.2, abs=1e-9)
    # One frequency, to compare with the library: m errors^2 is its relative variance where rows are independent.
    if not kind.endswith("orthogonal"):
        q = torch.tensor([[0.5, 0.0]], dtype=torch.float64)
        k = 0.5 * torch.tensor([[math.cos(math.radians(angle)), math.sin(math.radians(angle))]]).double()
        variance = float(relative_variance(q, k, kind=kind, sigma=1))
        assert 64 * state["expected"] ** 2 == pytest.approx(variance, rel=1e-6, abs=1e-9)


def test_orthogonal_frequencies_are_better_and_positive_ones_never_negative():
    explorer = lesson.EstimateExplorer()
    at = {
        kind: explorer.compute(m=128, length=1.0, angle=60, kind=kind)
        for kind in ("positive", "positive, orthogonal")
    }
    assert at["positive, orthogonal"]["expected"] < 0.97 * at["positive"]["expected"]
    assert all(state["negative"] == 0 for state in at.values())
    assert explorer.compute(m=32, length=1.5, angle=150, kind="trigonometric")["negative"] > 0.4


def test_words_tell_the_numbers_of_the_picture():
    explorer = lesson.EstimateExplorer()
    _, words = explorer.frame(m=64, length=2.0, angle=0, kind="positive")
    state = explorer.compute(**explorer.settings)
    assert "m = 64" in words
    assert f"{state['error']:.2g} measured" in words
    assert "too rare" in words
    assert float(explorer.artists["current"].get_ydata()[0]) == pytest.approx(state["error"])
    _, words = explorer.frame(length=0.5, angle=60)
    assert "too rare" not in words
