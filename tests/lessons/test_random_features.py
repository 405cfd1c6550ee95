"""What the figures, tables and the explorer of lesson 21 show."""

import math
import re
from functools import cache

import numpy as np
import pytest
import torch

from benchmarks.through_features import RATES
from course_lib.attention.random_features import relative_variance
from course_lib.lessons import random_features as lesson
from course_lib.measured import measured
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
    assert_line(line_labelled(axes, "from 32 random vectors"), np.arange(1, 13), weights["estimate"])
    assert weights["estimate"].sum() == pytest.approx(1, abs=1e-12)
    # What the text says: four below 0, and the two largest squares on the two largest bars.
    assert (weights["estimate"] < 0).sum() == 4
    assert set(weights["estimate"].argsort()[-2:]) == set(weights["softmax"].argsort()[-2:])
    assert "Key 1 gets -0.08" in text_alternative(figure("question"))


def test_nearly_half_of_the_averages_are_negative():
    averages, share = lesson.negative_share()
    assert share == pytest.approx(0.48, abs=0.02)
    assert float(averages.mean()) == pytest.approx(math.exp(-4.5), abs=0.01)
    assert float(averages.std()) == pytest.approx(0.25, abs=0.005)
    assert "48% of them are negative" in text_alternative(figure("negative"))
    assert_labels(
        figure("negative").axes[0], x="average", y="share of the draws (%)", title="Averages of eight cosines"
    )


def test_the_cosines_average_to_the_bell():
    left, right = figure("cosines").axes
    at = np.linspace(-5, 5, 401)
    waves = np.array([line.get_ydata() for line in left.lines])
    assert len(waves) == 5
    assert waves[:, 200] == pytest.approx(1)
    assert_line(line_labelled(right, "average of 5"), at, waves.mean(0))
    bell = np.exp(-(at**2) / 2)
    missed = [
        np.abs(np.asarray(line_labelled(right, f"average of {n}").get_ydata()) - bell).max()
        for n in (5, 50, 500)
    ]
    assert missed[0] > 2 * missed[1] > 2 * missed[2]


def test_variances_against_the_angle_are_those_of_the_library():
    axes = figure("variances").axes[0]
    angles = torch.arange(181, dtype=torch.float64)
    q = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    k = torch.stack([angles.deg2rad().cos(), angles.deg2rad().sin()], 1)
    for kind in ("trigonometric", "positive"):
        expected = relative_variance(q, k, kind=kind, sigma=1)[0].sqrt()
        assert_line(line_labelled(axes, f"{kind}, by (21.7)"), angles, expected, atol=1e-7)
    for line in (line for line in axes.lines if line.get_label() == "200,000 draws"):
        curve = next(c for c in axes.lines if c.get_color() == line.get_color() and len(c.get_xdata()) == 181)
        at = np.asarray(line.get_xdata(), dtype=int)
        np.testing.assert_allclose(line.get_ydata(), np.asarray(curve.get_ydata())[at], rtol=0.15)


def test_the_features_that_are_needed_grow_five_million_fold():
    axes = figure("needed").axes[0]
    lengths, need = line_labelled(axes, "predicted, right angle").get_data()
    # |q + k|^2 = 2 r^2 at a right angle, and the width squared is 8.
    np.testing.assert_allclose(need, np.expm1(2 * np.asarray(lengths) ** 2 / 8) / 0.1**2, rtol=1e-9)
    at, found = line_labelled(axes, "measured").get_data()
    np.testing.assert_allclose(found, np.expm1(2 * np.asarray(at) ** 2 / 8) / 0.1**2, rtol=0.15)
    assert np.expm1(16) / np.expm1(1) == pytest.approx(5.2e6, rel=0.01)
    assert [t.get_text() for t in axes.texts] == ["172", "889 million"]
    assert "172" in text_alternative(figure("needed"))


def test_the_error_of_the_output_grows_with_the_length():
    of_output = [lesson.output_errors(length) for length in lesson.LENGTHS]
    assert list(of_output) == sorted(of_output)
    assert of_output[1] == pytest.approx(0.06, abs=0.01)
    assert of_output[3] > 2
    rows = lesson.error_table().data.splitlines()[2:]
    assert [float(row.split("|")[2]) for row in rows] == [n**2 / 8 for n in lesson.LENGTHS]
    assert [float(row.split("≈")[1].split("%")[0]) / 100 for row in rows] == pytest.approx(
        of_output, abs=6e-4
    )


def test_redrawn_features_train_better_matrices_and_no_lower_loss_of_their_own():
    """What the text says of the stored runs, at every size: the ranges do not touch."""
    for m in lesson.FEATURES:
        redrawn, kept = (lesson.stored(f"{m} {arm}", "exact") for arm in ("redrawn", "kept"))
        assert max(redrawn) < min(kept)
        own = [np.mean(lesson.stored(f"{m} {arm}", "own")) for arm in ("redrawn", "kept")]
        assert own[0] > own[1]
        assert np.mean(lesson.stored(f"{m} kept", "rescaled")) > 3 * np.mean(redrawn)
    few, many = (np.mean(lesson.stored(arm, "exact")) for arm in ("16 redrawn", "256 kept"))
    assert few == pytest.approx(many, rel=0.25)
    ratio = np.mean(lesson.stored("16 kept", "exact")) / np.mean(lesson.stored("16 redrawn", "exact"))
    assert ratio == pytest.approx(65, abs=2)
    assert np.mean(lesson.stored("16 redrawn", "own")) == pytest.approx(0.72, abs=0.005)
    assert max(lesson.stored("16 redrawn", "exact")) < 0.02


def test_no_best_rate_stands_at_an_end_of_the_grid():
    for arm in ("softmax", *(f"{m} {kind}" for m in lesson.FEATURES for kind in ("redrawn", "kept"))):
        mean_exact = {
            rate: np.mean(measured("through_features", f"{arm}, rate {rate}, exact")) for rate in RATES
        }
        best = measured("through_features", f"{arm}, best rate")
        assert best == min(mean_exact, key=mean_exact.get)
        assert min(RATES) < best < max(RATES)
    for arm in ("16 redrawn", "16 kept"):  # what the page runs live
        assert measured("through_features", f"{arm}, best rate") == 0.2


def test_the_picture_and_the_tables_show_what_is_stored():
    at = np.arange(0, 321, 20)
    for axes, kind in zip(figure("training").axes, ("own", "exact"), strict=True):
        for label, arm in (("redrawn at each step", "redrawn"), ("one draw, kept", "kept")):
            curves = np.array(measured("through_features", f"16 {arm}, 320 steps, {kind}"))
            assert curves.shape == (5, 17)
            assert_line(line_labelled(axes, label), at, curves.mean(0))
    rows = lesson.training_table().data.splitlines()[2:]
    assert len(rows) == 7
    found = re.findall(r"\d\.\d{4}", rows[0])
    exact = lesson.stored("16 redrawn", "exact")
    assert [float(x) for x in found[3:]] == pytest.approx([np.mean(exact), min(exact), max(exact)], abs=6e-5)
    for row, m in zip(lesson.rescaled_table().data.splitlines()[2:], lesson.FEATURES, strict=True):
        plain, best = (float(x) for x in re.findall(r"\d\.\d{4}", row))
        assert best <= plain
        assert best == pytest.approx(np.mean(lesson.stored(f"{m} kept", "rescaled")), abs=6e-5)


def test_averages_of_gradients_turn_to_the_exact_one_later_for_longer_vectors():
    cosines = lesson.gradient_cosines()
    for name in (1, 2, 3, lesson.TRAINED):
        assert (np.diff(cosines[name]) > 0).all()
    assert all(a > b > c for a, b, c in zip(*(cosines[scale] for scale in (1, 2, 3)), strict=True))
    assert min(cosines[1][0], cosines[2][0]) > 0.5 > cosines[3][0]
    assert min(cosines[1][-1], cosines[2][-1]) > 0.95
    assert cosines[4][-1] < 0 < 0.3 < cosines[lesson.TRAINED][-1] < cosines[3][-1]
    for scale, label in ((1, "matrices $I$"), (3, "matrices 3 $I$")):
        assert_line(line_labelled(figure("gradients").axes[0], label), lesson.AVERAGED, cosines[scale])


# The explorer


@pytest.mark.parametrize("kind", lesson.KINDS)
@pytest.mark.parametrize("angle", [0, 60, 180])
def test_the_explorer_measures_what_it_predicts(kind, angle):
    state = lesson.EstimateExplorer().compute(m=64, length=0.5, angle=angle, kind=kind, law=True)
    assert state["exact"] == pytest.approx(math.exp(0.25 * math.cos(math.radians(angle))))
    np.testing.assert_allclose(state["measured"], state["predicted"][1], rtol=0.2, atol=1e-9)
    assert state["error"] == pytest.approx(state["expected"], rel=0.2, abs=1e-9)
    # One frequency, to compare with the library: m errors^2 is its relative variance.
    q = torch.tensor([[0.5, 0.0]], dtype=torch.float64)
    k = 0.5 * torch.tensor([[math.cos(math.radians(angle)), math.sin(math.radians(angle))]]).double()
    variance = float(relative_variance(q, k, kind=kind, sigma=1))
    assert 64 * state["expected"] ** 2 == pytest.approx(variance, rel=1e-6, abs=1e-9)


def test_the_tasks_have_the_answers_that_the_text_gives():
    explorer = lesson.EstimateExplorer()
    opposite = {"length": 1.0, "angle": 180, "kind": "trigonometric", "law": False}
    # Fewer than one in a hundred of the 1,500 from some m between 100 and 180 on.
    assert all(explorer.compute(m=m, **opposite)["negative"] > 15 for m in range(4, 104, 4))
    assert all(explorer.compute(m=m, **opposite)["negative"] < 15 for m in range(180, 257, 4))
    own = explorer.compute(m=32, length=2.0, angle=0, kind="positive", law=False)
    assert own["middle"] == pytest.approx(1 / 20, abs=0.01)
    assert own["negative"] == 0


def test_words_tell_the_numbers_of_the_picture_and_the_law_on_request_only():
    explorer = lesson.EstimateExplorer()
    _, words = explorer.frame(m=64, length=2.0, angle=0, kind="positive", law=True)
    state = explorer.compute(**explorer.settings)
    assert "m = 64" in words
    assert f"Relative error of these draws: {state['error']:.2g}" in words
    assert "predicted" in words
    assert "too rare" in words
    assert float(explorer.artists["current"].get_ydata()[0]) == pytest.approx(state["error"])
    assert len(explorer.artists["predicted"].get_xdata()) == 7
    _, words = explorer.frame(length=0.5, angle=60)
    assert "too rare" not in words
    _, words = explorer.frame(law=False)
    assert "predicted" not in words
    assert len(explorer.artists["predicted"].get_xdata()) == 0
