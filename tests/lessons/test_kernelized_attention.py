"""What the curves of lesson 15 are, and what its explorer says."""

import math
import re

import numpy as np
import pytest
import torch

from course_lib.lessons import kernelized_attention as lesson
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_legend, assert_line, line_labelled

LENGTHS = 2.0 ** np.arange(6, 17)


def test_the_costs_cross_where_the_marks_stand():
    axes = lesson.plot_costs(64).axes[0]
    assert_line(line_labelled(axes, "softmax"), LENGTHS, LENGTHS**2 * 128)
    assert_line(line_labelled(axes, "softmax, causal"), LENGTHS, LENGTHS * (LENGTHS + 1) / 2 * 128)
    assert_line(line_labelled(axes, "quadratic kernel, C = 2,145"), LENGTHS, LENGTHS * 2 * 2145 * 65)
    assert_line(line_labelled(axes, "elu + 1, C = 64"), LENGTHS, LENGTHS * 2 * 64 * 65)
    full, causal = (line for line in axes.lines if line.get_label() == "_crossover")
    (n,), (y,) = full.get_data()
    assert n**2 * 128 == pytest.approx(y)
    (n,), (y,) = causal.get_data()
    assert n * (n + 1) / 2 * 128 == pytest.approx(y)
    assert {t.get_text() for t in axes.texts} == {"N = 2,179", "N = 4,357"}
    assert "2,179" in text_alternative(lesson.plot_costs(64))


def test_the_memory_of_state_chunk_and_stored_numbers():
    axes = lesson.plot_memory(64, chunk=256).axes[0]
    assert_line(line_labelled(axes, "stored similarities, $N^2$"), LENGTHS, LENGTHS**2)
    assert_line(line_labelled(axes, "stored features, $2NC$"), LENGTHS, 2 * LENGTHS * 2145)
    assert_line(line_labelled(axes, "U and z, $C(M + 1)$"), LENGTHS, np.full(11, 139425))
    chunk = line_labelled(axes, "U, z and the features of 256 tokens")
    assert_line(chunk, LENGTHS, np.full(11, 139425 + 2 * 256 * 2145))


def test_the_similarities():
    axes = lesson.plot_kernels().axes[0]
    s = np.linspace(-4, 3, 141)
    assert_line(line_labelled(axes, "softmax: $e^s$"), s, np.exp(s))
    assert_line(line_labelled(axes, "quadratic: $(s + 1)^2$"), s, (s + 1) ** 2)
    assert_line(line_labelled(axes, "elu + 1, for D = 1, q = 1"), s, 2 * np.where(s > 0, s + 1, np.exp(s)))


def test_the_measured_ratios_fall_below_one():
    for axes, causal in zip(lesson.plot_measured().axes, (False, True), strict=True):
        assert_legend(axes, ["D = 16", "D = 32", "D = 64"])
        for d in (16, 32, 64):
            stored = lesson.measured_ratios(d, causal=causal)
            lengths, ratios = list(stored), list(stored.values())
            assert_line(line_labelled(axes, f"D = {d}"), lengths, ratios)
            assert ratios[-1] < 1 < ratios[0]
            crossing = lesson.measured_crossing(d, causal=causal)
            assert (
                max(n for n in stored if stored[n] > 1) <= crossing <= min(n for n in stored if stored[n] < 1)
            )


def test_the_table_of_crossings_holds_the_stored_ones():
    _, _, *rows = lesson.measured_table().data.splitlines()
    assert len(rows) == 3
    for row, d in zip(rows, (64, 32, 16), strict=True):
        for cell, causal in zip(row.split("|")[2:4], (False, True), strict=True):
            crossing, counted = (int(n.replace(",", "")) for n in re.findall(r"[\d,]+", cell))
            assert crossing == pytest.approx(lesson.measured_crossing(d, causal=causal), abs=5)
            # N^2 (D + M) = 2 N C (M + 1), and under a causal mask N (N + 1) / 2 of the pairs.
            features = (d + 1) * (d + 2) // 2
            bound = 2 * features * (d + 1) / (2 * d)
            assert counted - 1 < (2 * bound - 1 if causal else bound) <= counted


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cancellation_is_measured_in_float32_whatever_the_default(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        signed, error = lesson.cancellation(signed=True)
        positive, small = lesson.cancellation(signed=False)
    finally:
        torch.set_default_dtype(before)
    assert signed.min() >= 1
    assert signed.max() > 1e4
    assert error.max() > 10 * small.max() > 1e-8
    assert torch.allclose(positive, torch.ones_like(positive))
    # By definition, for one query.
    generator = torch.Generator().manual_seed(0)
    q, k, _ = (torch.randn(256, 4, generator=generator, dtype=torch.float32).double() for _ in range(3))
    products = q[7] @ k.T
    assert float(signed[7]) == pytest.approx(float(products.abs().sum() / products.sum().abs()))


def test_the_explorer_crosses_where_it_says():
    explorer = lesson.CostExplorer()
    for settings, features, crossing in (
        ({}, 2145, 2179),
        ({"causal": "yes"}, 2145, 4357),
        ({"offset": 0.0}, 2080, 2113),
        ({"features": "elu + 1"}, 64, 65),
        ({"features": "256 random"}, 256, 260),
    ):
        explorer = lesson.CostExplorer()
        _, words = explorer.frame(**settings)
        assert f"C = {features:,} features" in words
        assert f"Fewer from N = {crossing:,} on" in words
        state = explorer.compute(**explorer.settings)
        (n,), (y,) = explorer.artists["time crossing"].get_data()
        assert math.ceil(n) == crossing
        pairs = n * (n + 1) / 2 if settings.get("causal") == "yes" else n**2
        assert y == pytest.approx(pairs * 128)
        assert_line(explorer.artists["memory linear"], LENGTHS, np.full(11, state["state"]))
    _, words = lesson.CostExplorer().frame(power=16, d=128, causal="yes")
    assert "fewer by the factor 0.258" in words


def test_marks_outside_of_the_picture_are_not_drawn():
    explorer = lesson.CostExplorer()
    explorer.frame(d=8, features="elu + 1")
    assert len(explorer.artists["time crossing"].get_xdata()) == 0
    assert len(explorer.artists["memory crossing"].get_xdata()) == 0


def test_recall_is_drawn_as_means_over_seeds():
    shares = {form: place / 10 for place, form in enumerate(lesson.MEMORIES)}
    runs = {
        task: {
            form: [{size: share + offset for size in (4, 8, 16)} for offset in (0.0, 0.1)]
            for form, share in shares.items()
        }
        for task in ("copying", "rewritten")
    }
    figure = lesson.plot_recall(runs)
    for axes in figure.axes:
        for form, name in lesson.MEMORIES.items():
            assert_line(line_labelled(axes, name), [4, 8, 16], np.full(3, shares[form] + 0.05))
        assert len([line for line in axes.lines if line.get_label() == "_seed"]) == 2 * len(shares)
    assert_legend(figure.axes[0], list(lesson.MEMORIES.values()))


def test_recall_is_that_of_the_form_that_is_named():
    untrained = lesson.trained_to_recall("copying", "untrained", seed=3)
    assert set(untrained) == {4, 8, 16}
    assert max(untrained.values()) < 0.2
    assert lesson.trained_to_recall("copying", "delta", seed=3, steps=60)[4] > untrained[4] + 0.1
