"""What the curves of lesson 19 are, and what its explorer says."""

import math
import re

import numpy as np
import pytest
import torch

from course_lib.attention.kernelized import crossover_length
from course_lib.lessons import kernelized_attention as lesson
from course_lib.measured import measured
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_line, line_labelled

LENGTHS = 2.0 ** np.arange(6, 17)


def test_the_costs_cross_where_the_marks_stand():
    axes = lesson.plot_costs(64).axes[0]
    assert_line(line_labelled(axes, "softmax"), LENGTHS, LENGTHS**2 * 128)
    assert_line(line_labelled(axes, "softmax, causal"), LENGTHS, LENGTHS * (LENGTHS + 1) / 2 * 128)
    assert_line(line_labelled(axes, "square, C = 2,145"), LENGTHS, LENGTHS * 2 * 2145 * 65)
    assert_line(line_labelled(axes, "elu + 1, C = 64"), LENGTHS, LENGTHS * 2 * 64 * 65)
    full, causal = (line for line in axes.lines if line.get_label() == "_crossover")
    (n,), (y,) = full.get_data()
    assert n**2 * 128 == pytest.approx(y)
    (n,), (y,) = causal.get_data()
    assert n * (n + 1) / 2 * 128 == pytest.approx(y)
    assert {t.get_text() for t in axes.texts} == {"N = 2,179", "N = 4,357"}
    assert "2,179" in text_alternative(lesson.plot_costs(64))


def test_the_measured_ratios_fall_below_one():
    for causal in (False, True):
        for d in (16, 32, 64):
            stored = lesson.measured_ratios(d, causal=causal)
            ratios = list(stored.values())
            assert ratios[-1] < 1 < ratios[0]
            crossing = lesson.measured_crossing(d, causal=causal)
            above, below = (
                {n for n, ratio in stored.items() if (ratio > 1) == slower} for slower in (True, False)
            )
            assert max(above) <= crossing <= min(below)


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


def test_on_a_gpu_the_square_overtakes_later_than_by_its_count():
    _, _, *rows = lesson.gpu_table().data.splitlines()
    cells = np.array([[float(n.replace(",", "")) for n in re.findall(r"[\d,.]+", row)] for row in rows])
    length = cells[:, 0]
    assert length.tolist() == [2**power for power in range(11, 17)]
    for column, d in ((1, 64), (3, 16)):
        timed, counted = cells[:, column], cells[:, column + 1]
        assert (timed > counted).all()
        np.testing.assert_allclose(
            counted, crossover_length(d, d, n_features=(d + 1) * (d + 2) // 2) / length, rtol=0.05
        )
        crossing = measured(
            "gpu/quadratic_on_gpu", f"crossover N measured, no mask, D={d}, forward and backward"
        )
        assert length[timed > 1].max() < crossing < length[timed < 1].min()


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


def test_the_features_that_are_counted_are_enough_and_none_is_spare():
    """Where a number is named, tables of many tokens have that rank; where none is, their rank keeps growing."""
    for d in (1, 2, 4, 7):
        q, k = lesson.queries_and_keys(100, d, seed=3)
        for name, similarity in lesson.SIMILARITIES.items():
            table = similarity(q, k)
            assert table.shape == (100, 100)
            sizes = torch.linalg.svdvals(table)
            count = lesson.count_features(name, d)
            if count is not None:
                above = int((sizes > 1e-12 * sizes[0]).sum())
                assert above == min(count, 100), (name, d)
            elif name.startswith("exp"):
                # Its values fall below rounding after a dozen for one entry: a few tokens show that none is 0.
                few = torch.linalg.svdvals(similarity(q[:7], k[:7]))
                assert (few > 1e-12 * few[0]).all()
            else:
                rank = [int(torch.linalg.matrix_rank(similarity(q[:n], k[:n]))) for n in (10, 40, 100)]
                assert rank[0] < rank[1] < rank[2]


@pytest.mark.parametrize("name", list(lesson.SIMILARITIES))
def test_similarities_are_what_they_are_called(name):
    q, k = torch.tensor([[1.0, -2.0]]), torch.tensor([[0.5, 3.0], [-1.0, 1.0]])
    dots, distances = np.array([-5.5, -3.0]), np.array([0.25 + 25, 4 + 9])
    elu = lambda x: np.where(x > 0, x + 1, np.exp(x))  # noqa: E731
    wanted = {
        "q·k": dots,
        "(q·k + 1)²": (dots + 1) ** 2,
        "(q·k - 1)²": (dots - 1) ** 2,
        "‖q - k‖²": distances,
        "‖q - k‖": np.sqrt(distances),
        "max(0, q·k)": np.maximum(dots, 0),
        "exp(q·k/√D)": np.exp(dots / math.sqrt(2)),
        "elu + 1": elu(k.numpy()) @ elu(q[0].numpy()),
    }[name]
    assert np.allclose(lesson.SIMILARITIES[name](q, k)[0].numpy(), wanted, rtol=1e-5)


def test_the_layers_add_up_to_the_table():
    table, *layers = (axes.images[0].get_array() for axes in lesson.plot_layers().axes)
    at = np.linspace(-1.5, 1.5, 13)
    assert np.allclose(table, (np.outer(at, at) - 1) ** 2)
    assert np.allclose(table, sum(layers))
    assert [np.linalg.matrix_rank(layer) for layer in layers] == [1, 1, 1]


def test_two_of_the_four_ranks_stop():
    axes = lesson.plot_ranks().axes[0]
    last = {text.get_text().split(":")[0]: int(text.get_text().split()[-5]) for text in axes.texts}
    assert last == {"(q·k - 1)²": 15, "‖q - k‖²": 6, "max(0, q·k)": 300, "‖q - k‖": 300}
    for name, line in zip(lesson.ASKED, axes.lines, strict=True):
        n, rank = line.get_data()
        assert list(rank) == [min(m, last[name]) for m in n]


def test_chunks_count_what_they_compute():
    for axes, (computed, reads) in zip(lesson.plot_chunks().axes, ((12, 11), (30, 2), (78, 0)), strict=True):
        cells = [p for p in axes.patches if p.get_width() == p.get_height() == 1 and p.get_alpha() == 0.55]
        frames = [p for p in axes.patches if p.get_facecolor()[3] == 0]
        assert (len(cells), len(frames)) == (computed, reads)
        assert f"{computed} similarities computed,\nstate read {reads} times" in {
            t.get_text() for t in axes.texts
        }


def test_the_rank_explorer_counts_singular_values_and_names_features_on_request_only():
    explorer = lesson.RankExplorer()
    for name in lesson.SIMILARITIES:
        for d, length in ((1, 20), (4, 40), (8, 60)):
            q, k = lesson.queries_and_keys(60, d)
            sizes = np.linalg.svd(lesson.SIMILARITIES[name](q[:length], k[:length]).numpy(), compute_uv=False)
            _, words = explorer.frame(similarity=name, d=d, length=length, counted=False)
            above = int((sizes > 1e-12 * sizes[0]).sum())
            assert f"of {length} singular values {above} stand above" in words
            assert "enough" not in words
            assert explorer.artists["mark"].get_text() == ""
            _, words = explorer.frame(counted=True)
            count = lesson.count_features(name, d)
            said = "No number of features is enough" if count is None else f"{count} features are enough"
            assert said in words
            if count is not None:
                assert above == min(count, length)


def test_the_cost_explorer_crosses_where_it_says_and_only_on_request():
    for settings, features, crossing in (
        ({}, 2145, 2179),
        ({"causal": True}, 2145, 4357),
        ({"features": "elu + 1"}, 64, 65),
    ):
        explorer = lesson.CostExplorer()
        _, words = explorer.frame(**settings)
        assert f"C = {features:,}:" in words
        assert "Fewer" not in words
        assert len(explorer.artists["crossing"].get_xdata()) == 0
        _, words = explorer.frame(marked=True)
        assert f"Fewer from N = {crossing:,} on" in words
        (n,), (y,) = explorer.artists["crossing"].get_data()
        assert math.ceil(n) == crossing
        assert y == pytest.approx((n * (n + 1) / 2 if settings.get("causal") else n**2) * 128)
    _, words = lesson.CostExplorer().frame(power=16, d=128, causal=True)
    assert "0.258 times as many" in words
    explorer = lesson.CostExplorer()
    explorer.frame(d=8, features="elu + 1", marked=True)
    assert len(explorer.artists["crossing"].get_xdata()) == 0


def test_the_price_is_drawn_as_stored():
    left, right = lesson.plot_price().axes
    counts = [2, 4, 8, 16, 24, 32, 45, 64]
    stored = [np.mean(lesson.price(f"elu + 1, C = {count}")) for count in counts]
    assert_line(line_labelled(left, "elu + 1, learned columns"), counts, stored)
    for count, missed in zip(counts, stored, strict=True):
        assert missed >= 1 - count / 32 - 1e-9
    for name in lesson.ARMS:
        wanted = [np.mean(measured("rank_price", f"N = {n}, {name}")) for n in (8, 16, 32, 64)]
        assert_line(line_labelled(right, name), [8, 16, 32, 64], wanted)


def test_tables_of_weights_are_sorted_not_changed():
    generator = torch.Generator().manual_seed(0)
    tables = {name: torch.rand(32, 32, generator=generator) for name in lesson.ARMS}
    for axes in lesson.plot_weights(tables).axes:
        name = axes.get_title().split(":")[0]
        drawn = np.asarray(axes.images[0].get_array())
        assert np.allclose(np.sort(drawn, None), np.sort(tables[name].numpy(), None))
        assert np.allclose(np.sort(np.diag(drawn)), np.sort(np.diag(tables[name].numpy())))
