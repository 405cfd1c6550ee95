"""What the figures and the explorer of lesson 28 show, and that the stored measurements can be measured again."""

from functools import cache

import numpy as np
import pytest

from course_lib.lessons import feature_recovery as lesson
from course_lib.measured import figures, measured, origin
from course_lib.sae.resonance import resonance_band
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_line, line_labelled


@cache
def figure(name):
    return lesson.FIGURES[name]()


def test_stored_measurements_are_complete_and_those_of_these_settings():
    stored, known = figures("feature_recovery"), origin("feature_recovery")
    assert known["settings"] == lesson.settings()
    assert known["seeds"] == list(lesson.SEEDS)
    assert {"torch", "python"} <= set(known["versions"])
    curves = [f"curve: {name}, {knob}" for name, knobs in lesson.KNOBS.items() for knob in knobs]
    for name in curves:
        assert len(stored[name]) == len(lesson.SEEDS)
        assert all(0 <= run["0.9"] <= run["0.8"] <= 1 for run in stored[name])
    resonance = [f"resonance: {d}, {s}" for d, s in lesson.RESONANCE]
    assert all(np.shape(stored[name]) == (3, len(lesson.RATIOS)) for name in resonance)
    explorer = [f"explorer: {d}, {s}" for d in lesson.DIMENSIONS for s in lesson.ACTIVE]
    assert set(stored) == {*curves, "frequencies", *resonance, *explorer}


# Another processor rounds another way, and training carries that on: near the middle of a curve an atom or
# two of 32 may change sides, at its ends none does.
@pytest.mark.parametrize(("trainer", "knob"), [("topk", 8), ("topk", 32), ("l1", 0.1), ("gba", 0.28)])
def test_points_of_the_curves_can_be_measured_again(trainer, knob):
    stored = measured("feature_recovery", f"curve: {trainer}, {knob}")[0]
    again = lesson.measure_point(trainer, knob, seed=0)
    assert again["0.8"] == pytest.approx(stored["0.8"], abs=0.2)
    assert again["fvu"] == pytest.approx(stored["fvu"], rel=0.1, abs=0.002)
    assert again["l0"] == pytest.approx(stored["l0"], rel=0.1)


def test_a_curve_of_resonance_can_be_measured_again():
    again = lesson.measure_resonance(32, 2, seed=0)
    stored = measured("feature_recovery", "resonance: 32, 2")[0]
    np.testing.assert_allclose(again, stored, atol=0.1)
    assert again[lesson.RATIOS.index(0.5)] >= 0.9
    assert again[lesson.RATIOS.index(8)] <= 0.05


def test_atoms_of_the_question_are_the_ends_of_its_rays():
    one, two = figure("question").axes
    rows = np.asarray(line_labelled(one, "rows").get_xydata())
    rays = [np.asarray(line.get_xydata())[1] for line in one.lines[1:]]
    directions = np.stack([ray / np.linalg.norm(ray) for ray in rays])
    best = (rows / np.linalg.norm(rows, axis=1, keepdims=True)) @ directions.T
    assert best.max(axis=1).min() > 1 - 1e-6
    rows = np.asarray(line_labelled(two, "rows").get_xydata())
    best = (rows / np.linalg.norm(rows, axis=1, keepdims=True)) @ directions.T
    assert (best.max(axis=1) > 0.99).mean() < 0.5


def test_l1_runs_half_the_penalty_below():
    axes = figure("shrinkage").axes[0]
    y = np.linspace(-0.4, 1.6, 401)
    assert_line(line_labelled(axes, "L1: $\\max(y - \\lambda/2, 0)$"), y, np.maximum(y - 0.3, 0))
    jump = np.asarray(line_labelled(axes, "jump at $\\lambda/2$").get_ydata())
    assert set(np.round(jump - np.maximum(y, 0), 12)[y > 0.31]) == {0}
    assert (jump[y < 0.29] == 0).all()


def test_resonance_curves_are_the_means_of_what_was_measured():
    axes = figure("resonance").axes[0]
    for d_model, active in lesson.RESONANCE:
        means = np.mean(measured("feature_recovery", f"resonance: {d_model}, {active}"), axis=0)
        assert_line(line_labelled(axes, f"$d$ = {d_model}, $s$ = {active}"), lesson.RATIOS, means)
    means = np.asarray(line_labelled(axes, "$d$ = 32, $s$ = 2").get_ydata())
    assert lesson.RATIOS[means.argmax()] in (0.25, 0.5, 0.75)
    said = text_alternative(figure("resonance"))
    assert f"{means[lesson.RATIOS.index(0.5)]:.2f} at a half" in said


def test_every_trainer_has_a_range_and_errors_are_lowest_beyond_it():
    left, _, right = figure("curves").axes
    knob, shares = lesson.curve("topk", "0.8")
    assert_line(line_labelled(left, "cosine 0.8"), knob, shares.mean(1))
    shares, missing = shares.mean(1), lesson.curve("topk", "fvu")[1].mean(1)
    assert shares.max() > 0.9
    assert shares[[0, -1]].max() < 0.1
    assert missing.argmin() == len(knob) - 1
    knob, shares = lesson.curve("gba", "0.9")
    assert_line(line_labelled(right, "cosine 0.9"), knob / 0.125, shares.mean(1))
    assert shares.mean(1)[-1] <= 0.1 < 0.5 < shares.mean(1).max()


def test_locked_units_fire_as_often_as_their_features():
    axes = figure("frequencies").axes[0]
    drawn = sum(len(line.get_xdata()) for line in axes.lines if line.get_label().startswith("target"))
    found = lesson.frequencies()
    assert drawn == len(found) >= 30
    assert np.corrcoef(np.log(found[:, 1]), np.log(found[:, 2]))[0, 1] > 0.8


@pytest.mark.parametrize("active", [1, 2, 4])
def test_the_explorer_draws_what_it_says(active):
    explorer = lesson.ResonanceExplorer()
    state = explorer.compute(log_ratio=-1.0, d_model=40, active=active)
    assert state["frequency"] == pytest.approx(active / 128)
    assert state["band"] == pytest.approx([edge * 64 / active for edge in resonance_band(64, active)])
    assert state["shares"][lesson.LOG_RATIOS.index(-1.0)] == pytest.approx(state["found"] / 64, abs=0.1)
    for counts in state["counts"]:
        assert counts.sum() == pytest.approx(1, abs=0.02)
    said = explorer.words(state)
    assert f"{state['found']} of 64 atoms are found" in said
    assert ("inside the band" in said) == (active > 1)


def test_a_neuron_that_fires_too_often_fires_without_its_atom():
    explorer = lesson.ResonanceExplorer()
    seldom, often = (explorer.compute(log_ratio=r, d_model=40, active=2) for r in (-1.0, 2.0))
    assert seldom["purity"] > 0.95
    assert often["purity"] < 0.3
    assert seldom["found"] > often["found"] + 20
    assert often["threshold"] < seldom["threshold"]
