"""What the curves of lesson 27 are, and what its explorer says."""

import math
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from course_lib.lessons import stacked_autoencoder as lesson
from course_lib.representation.normality import moment_scores
from course_lib.sae.metrics import pca_curve
from tests.drawing import assert_line, line_labelled


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_lesson_does_not_import_transformers():
    code = "import sys, course_lib.lessons.stacked_autoencoder; print('transformers' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


# States and codes


def test_the_states_are_the_models_pooled_encoder_states():
    from course_lib.language.corpus import generate
    from course_lib.mbart.activations import pooled_states
    from course_lib.mbart.model import load

    states = lesson.sentence_states()
    model, tokenizer = load("course-mbart")
    wanted = pooled_states(model, tokenizer, generate(8, seed=27), progress=False).encoder.double()
    assert states.shape == (3000, model.config.d_model)
    assert states.dtype == torch.float64
    torch.testing.assert_close(states[:8], wanted, rtol=1e-4, atol=1e-4)


def test_labelled_states_are_of_the_decoder_with_the_languages_of_their_sentences():
    from course_lib.language.corpus import LANGUAGES, generate
    from course_lib.mbart.activations import pooled_states
    from course_lib.mbart.model import load

    states, languages = lesson.labelled_states(8, split="test")
    drawn = generate(8, seed=28, split="test")
    wanted = pooled_states(*load("course-mbart"), drawn, progress=False)
    torch.testing.assert_close(states, wanted.decoder, rtol=1e-4, atol=1e-4)
    assert [LANGUAGES[i] for i in languages] == [sentence.language for sentence in drawn]
    encoder, _ = lesson.labelled_states(8, split="test", side="encoder")
    torch.testing.assert_close(encoder, wanted.encoder, rtol=1e-4, atol=1e-4)


def test_the_stored_sweep_has_a_setting_that_meets_both_aims_and_controls_that_do_not():
    sweep = lesson.aims_sweep()
    decoder, best = sweep["decoder"], lesson.BETAS.index(1)
    assert abs(decoder["mean activation"][best] - 0.05) < 0.01
    assert decoder["mean activation"][lesson.BETAS.index(0.01)] > 0.15
    assert min(decoder["reader right, %"][1:]) > 95
    for found in sweep.values():
        assert found["shuffled"][0] < 40
        assert found["reader right, %"][0] < 60  # gamma = 0
    assert max(sweep["encoder"]["reader right, %"]) < 60


def test_the_aims_are_drawn_as_stored():
    sweep = lesson.aims_sweep()
    drawn = lesson.plot_aims(sweep)
    for axes, what in zip(
        drawn.axes, ("mean activation", "variance explained, %", "reader right, %"), strict=True
    ):
        for side, found in sweep.items():
            assert_line(line_labelled(axes, f"{side}'s states"), range(len(found[what])), found[what])


def test_principal_codes_have_variance_one_and_are_uncorrelated():
    code = lesson.principal_codes(normal(300, 6) @ normal(6, 6, seed=1) + 2, 4)
    torch.testing.assert_close(code.T @ code / 300, torch.eye(4, dtype=torch.float64))
    assert code.mean(dim=0).abs().max() < 1e-9


def test_the_twin_is_normal_with_the_same_mean_and_covariance():
    states = torch.rand(4000, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64) ** 3 + 1
    twin = lesson.normal_twin(states)
    assert twin.shape == states.shape
    torch.testing.assert_close(torch.cov(twin.T), torch.cov(states.T), rtol=0.2, atol=0.01)
    torch.testing.assert_close(twin.mean(dim=0), states.mean(dim=0), rtol=0.05, atol=0.05)
    assert max(s.abs().max() for s in moment_scores(twin)) < 6
    assert moment_scores(states).skewness.min() > 10


def test_training_rises_and_never_passes_the_bound():
    states = normal(400, 16) @ normal(16, 16, seed=1)
    kept = lesson.training_curve(states, (8, 4), steps=300, every=30)
    assert len(kept) == 11
    assert kept[-1] > kept[0] + 0.2
    assert kept.max() <= float(pca_curve(states)[3]) + 1e-6


# Figures


def test_the_question_compares_the_model_with_the_straight_line():
    axes = lesson.FIGURES["question"]().axes[0]
    k = np.arange(1, 257)
    curve = 100 * pca_curve(lesson.sentence_states())
    assert_line(line_labelled(axes, "sentence states of course-mbart"), k, curve)
    assert_line(line_labelled(axes, "isotropic: the same in every direction"), k, 100 * k / 256)
    assert_line(line_labelled(axes, "the notes' 12.5%"), [32], [12.5])
    assert curve[31] > 60


def test_units_are_squared_correlations():
    left, right = lesson.FIGURES["units"]().axes
    u = normal(400_000)
    line = line_labelled(left, "max(u + b, 0)")
    for bias in (-1.0, 0.0, 2.0):
        drawn = np.interp(bias, line.get_xdata(), line.get_ydata())
        r = torch.relu(u + bias)
        wanted = torch.corrcoef(torch.stack([u, r]))[0, 1].square()
        assert drawn == pytest.approx(float(wanted), abs=0.01)
    gains, shares = (np.asarray(a) for a in line_labelled(right, "$1/(1 + e^{-gu})$").get_data())
    assert (np.diff(shares) < 0).all()
    assert shares[0] > 0.99
    assert shares[-1] == pytest.approx(2 / math.pi, abs=0.015)
    assert gains[-1] == 100


def test_the_angle_decodes_to_a_circle():
    for axes, wanted in zip(lesson.FIGURES["angle"]().axes, ("line", "circle"), strict=True):
        points = np.asarray(line_labelled(axes, "points").get_xydata())
        decoded = np.asarray(line_labelled(axes, "reconstructions").get_xydata())
        if wanted == "line":
            np.testing.assert_allclose(decoded, points * [1, 0], atol=1e-12)
        else:
            np.testing.assert_allclose(np.hypot(*decoded.T), math.sqrt(math.pi / 2))
            np.testing.assert_allclose(np.arctan2(*decoded.T), np.arctan2(*points.T))


def test_every_depth_stays_below_principal_components():
    axes = lesson.plot_depths(steps=50, every=25).axes[0]
    bound = line_labelled(axes, "PCA with 32 components").get_ydata()[0]
    assert bound == pytest.approx(float(pca_curve(lesson.sentence_states())[31]))
    for name in ("encoder 256-32", "encoder 256-128-32", "encoder 256-128-64-32"):
        line = line_labelled(axes, name)
        assert list(line.get_xdata()) == [0, 25, 50]
        assert max(line.get_ydata()) <= bound + 1e-6


def test_the_distribution_shows_the_scores_of_the_three_codes():
    quantiles, scores = lesson.FIGURES["distribution"]().axes
    for name, code in lesson.three_codes(lesson.sentence_states()).items():
        drawn = line_labelled(scores, name)
        assert_line(drawn, *moment_scores(code), rtol=1e-6, atol=1e-6)
        assert len(line_labelled(quantiles, name).get_xdata()) == 3000
    flat = np.asarray(line_labelled(quantiles, "normal rows, ReLU").get_ydata())
    assert (flat == flat[0]).mean() == pytest.approx(0.5, abs=0.05)


# Explorer


@pytest.fixture(scope="module")
def explorer():
    return lesson.CodeExplorer()


def test_isotropic_states_keep_k_over_d(explorer):
    _, words = explorer.frame(power=0.0, k=32, unit="linear")
    assert "k/d = 12.5%" in words
    assert "32 units (linear) keep exactly that" in words
    assert "231 of 256" in words  # ceil(0.9 * 256)
    np.testing.assert_allclose(explorer.artists["pca"].get_ydata(), 100 * np.arange(1, 129) / 256, rtol=1e-9)


def test_the_spectrum_is_the_models_at_power_one(explorer):
    explorer.frame(power=1.0)
    variances = torch.linalg.eigvalsh(torch.cov(lesson.sentence_states().T)).flip(0).clamp(min=0)
    drawn = np.asarray(explorer.artists["spectrum"].get_ydata())
    np.testing.assert_allclose(drawn[:100], (variances / variances.sum())[:100].clamp(min=1e-7), rtol=1e-6)


@pytest.mark.parametrize("unit", ["linear", "ReLU", "sigmoid", "angle, circle decoder"])
@pytest.mark.parametrize(("power", "k", "bias"), [(0.0, 5, 0.0), (1.0, 32, 0.5), (0.5, 100, -1.0)])
def test_codes_keep_what_a_sample_says(explorer, unit, power, k, bias):
    _, words = explorer.frame(power=power, k=k, unit=unit, bias=bias)
    kept = explorer.artists["units"].get_ydata()[k - 1] / 100
    spectrum = explorer.compute(power=power, k=k, unit=unit, bias=bias)["spectrum"]
    assert float(spectrum.sum()) == pytest.approx(1)
    u = normal(4000, 256, seed=k)
    if unit == "angle, circle decoder":
        pairs = u[:, : 2 * k].reshape(4000, k, 2)
        decoded = math.sqrt(math.pi / 2) * pairs / pairs.norm(dim=2, keepdim=True)
        mean_square = 1 - (pairs - decoded).square().mean(dim=0)
        wanted = (mean_square.reshape(-1) * spectrum[: 2 * k]).sum()
    else:
        code = {"linear": u, "ReLU": torch.relu(u + bias), "sigmoid": torch.sigmoid(4 * (u + bias))}[unit][
            :, :k
        ]
        both = torch.stack([u[:, :k], code]).sub(torch.stack([u[:, :k], code]).mean(dim=1, keepdim=True))
        covariance = (both[0] * both[1]).mean(dim=0)
        shares = covariance.square() / (both[0].square().mean(dim=0) * both[1].square().mean(dim=0))
        wanted = (shares * spectrum[:k]).sum()
    assert kept == pytest.approx(float(wanted), rel=0.08)
    assert (unit == "linear") or f"{kept:.1%}" in words
    numbers = [float(n) for n in re.findall(r"([0-9.]+)%", words)]
    pca = explorer.compute(power=power, k=k, unit=unit, bias=bias)["pca"]
    assert float(pca[k - 1]) == pytest.approx(numbers[0], abs=0.051)


def test_angles_pass_the_bound_only_where_pairs_are_alike(explorer):
    assert "more than any affine decoder can" in explorer.frame(power=0.0, unit=lesson.ANGLE)[1]
    assert "less than PCA keeps" in explorer.frame(power=1.5, k=128, unit=lesson.ANGLE)[1]
    assert "The best direction keeps" in explorer.frame(power=1.0, k=1, unit="ReLU")[1]
