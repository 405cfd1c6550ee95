"""What the curves of lesson 35 are, and what its explorer says."""

import math
import re
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import torch

from benchmarks.bent_codes import BENT, CASES, RATES
from course_lib.lessons import stacked_autoencoder as lesson
from course_lib.measured import measured
from course_lib.representation.normality import moment_scores
from course_lib.sae.metrics import explained_variance
from course_lib.teaching.style import text_alternative
from tests.drawing import line_labelled


@cache
def figure(name):
    return lesson.FIGURES[name]()


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


# Figures


def test_the_angle_decodes_to_a_circle():
    for axes, wanted in zip(lesson.FIGURES["angle"]().axes, ("line", "circle"), strict=True):
        points = np.asarray(line_labelled(axes, "points").get_xydata())
        decoded = np.asarray(line_labelled(axes, "reconstructions").get_xydata())
        if wanted == "line":
            np.testing.assert_allclose(decoded, points * [1, 0], atol=1e-12)
        else:
            np.testing.assert_allclose(np.hypot(*decoded.T), math.sqrt(math.pi / 2))
            np.testing.assert_allclose(np.arctan2(*decoded.T), np.arctan2(*points.T))


# What comes back from a few numbers


def test_a_decoder_is_judged_on_rows_that_it_was_not_fitted_to():
    for name, code, decoder in (
        (lesson.TRAINED, lesson.ENTRIES, lesson.FIT),
        (lesson.UNTRAINED, lesson.DIRECTIONS, lesson.BACK),
        (lesson.NORMAL, lesson.COMPONENTS, lesson.FIT),
    ):
        table = lesson.table_of(name)
        fit, new = table[:2000], table[2000:]
        mean, directions = fit.mean(dim=0), lesson.directions_of(name, code)[:, :20]
        z, other = (fit - mean) @ directions, (new - mean) @ directions
        back = torch.linalg.lstsq(z, fit - mean).solution if decoder == lesson.FIT else directions.T
        wanted = explained_variance(new, mean + other @ back)
        assert lesson.kept_of_others(name, code, decoder, 20) == pytest.approx(wanted, abs=1e-8)


def test_the_states_decide_what_32_entries_give_back():
    axes = figure("entries").axes[0]
    at = lesson.KEPT_AT.index(32)
    drawn = [
        line_labelled(axes, name).get_ydata()[at]
        for name in ("states of the trained model", "of the untrained model", "normal rows")
    ]
    assert drawn == pytest.approx([69, 27, 11], abs=1.5)
    assert "69% for states of the trained model" in text_alternative(figure("entries"))


def test_the_picture_of_a_state_shows_the_entries_that_are_sent():
    axes = figure("state").axes[0]
    sent, thrown = sorted(len(bars) for bars in axes.containers)
    assert (sent, thrown) == (32, 224)


def test_only_a_bent_decoder_leaves_the_line():
    points = lesson.arc(600, seed=0)
    for name, flat in (
        ("both flat", True),
        ("bent encoder", True),
        ("bent decoder", False),
        ("both bent", False),
    ):
        with torch.no_grad():
            restored = lesson.arc_network(name)(points)
        sizes = torch.linalg.svdvals(restored - restored.mean(dim=0))
        assert (float(sizes[1] / sizes[0]) < 1e-4) == flat, name
    assert len(figure("arc").axes) == 4
    assert "bent encoder 59%" in text_alternative(figure("arc"))


# The stored experiment


def test_no_best_rate_stands_at_an_end_of_the_grid():
    for name, k in CASES:
        for arm in BENT:
            rates = measured("bent_codes", f"{name}, {k}, {arm}, rates")
            best = measured("bent_codes", f"{name}, {k}, {arm}, best rate")
            assert rates[RATES.index(best)] >= max(rates) - 2e-4
            assert len(rates) == len(RATES)
            assert min(RATES) < best < max(RATES)


def test_the_table_says_what_is_stored():
    rows = lesson.codes_table().data.splitlines()[2:]
    assert len(rows) == len(lesson.ARMS)
    for row, arm in zip(rows, lesson.ARMS, strict=True):
        for cell, k in zip(row.split("|")[2:5], (2, 8, 32), strict=True):
            mean, low, high, count = map(float, re.findall(r"[0-9.]+", cell))
            found = lesson.stored("states", k, arm)
            assert [mean, low, high] == pytest.approx([np.mean(found), min(found), max(found)], abs=0.051)
            assert count >= k


def test_what_the_text_says_of_the_stored_run():
    gain = {(name, k, arm): np.mean(lesson.gains(name, k, arm)) for name, k in CASES for arm in lesson.ARMS}
    assert gain["states", 8, "both bent"] == pytest.approx(6.5, abs=0.1)
    assert gain["twin", 8, "both bent"] < 1 < gain["twin", 8, "clusters"] < gain["states", 8, "clusters"] / 4
    assert [lesson.as_components(k, "both bent") for k in (2, 8, 32)] == ["4", "10", "34"]
    assert gain["states", 32, "PCA, bumps"] == pytest.approx(gain["states", 32, "both bent"], abs=0.1)
    for k in (2, 8):
        assert gain["states", k, "clusters"] == max(gain["states", k, arm] for arm in lesson.ARMS)
    assert lesson.as_components(32, "clusters") == "below 32"
    kept = {arm: np.mean(lesson.stored("states", 32, arm)) for arm in lesson.ARMS}
    assert max(kept, key=kept.get) == "PCA, bumps"
    assert [kept["PCA"], kept["PCA, bumps"]] == pytest.approx([89.4, 90.7], abs=0.05)
    # PCA keeps as much of the twin as of the states.
    twin, states = (np.mean(lesson.stored(name, 8, "PCA")) for name in ("twin", "states"))
    assert twin == pytest.approx(states, abs=1)


def test_the_closing_table_holds_what_the_codes_give_back():
    sent = ((lesson.ENTRIES, lesson.BACK), (lesson.ENTRIES, lesson.FIT), (lesson.COMPONENTS, lesson.BACK))
    for rows, shares in ((lesson.UNTRAINED, (13, 27, 45)), (lesson.TRAINED, (11, 69, 89))):
        found = [100 * lesson.kept_of_others(rows, *how, 32) for how in sent]
        assert found == pytest.approx(shares, abs=1)
        assert lesson.kept_of_others(rows, lesson.COMPONENTS, lesson.FIT, 32) == pytest.approx(
            found[-1] / 100
        )


def test_the_twin_picture_shows_the_means():
    for name in ("states", "twin"):
        (x,) = line_labelled(figure("twin").axes[0], f"_{name} PCA, bumps").get_xdata()
        assert x == pytest.approx(np.mean(lesson.gains(name, 8, "PCA, bumps")))


def test_the_picture_of_gains_shows_the_means():
    for axes, k in zip(figure("gains").axes, (2, 8, 32), strict=True):
        (x,) = line_labelled(axes, "_states both bent").get_xdata()
        assert x == pytest.approx(np.mean(lesson.gains("states", k, "both bent")))


# Explorer


def test_the_tasks_have_the_answers_that_the_text_gives():
    explorer = lesson.CodeExplorer()
    share = lambda **settings: explorer.compute(**{**explorer.settings, **settings})["kept"]  # noqa: E731
    for code in (lesson.ENTRIES, lesson.DIRECTIONS):
        assert share(code=code) == pytest.approx(12, abs=2)
        assert share(code=code, decoder=lesson.FIT) == pytest.approx(70, abs=2)
    components = [share(code=lesson.COMPONENTS, k=k) for k in (32, 33)]
    assert components[0] < 90 < components[1]


def test_words_tell_the_settings_and_the_share():
    explorer = lesson.CodeExplorer()
    _, words = explorer.frame(k=1, rows=lesson.NORMAL, code=lesson.ENTRIES, decoder=lesson.FIT)
    kept = explorer.compute(**explorer.settings)["kept"]
    assert f"{kept:.1f}%" in words
    assert ("worse than answering the mean" in words) == (kept < 0)
    assert "1 of 256 numbers" in words
