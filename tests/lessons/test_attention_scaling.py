"""What lesson 17 draws and trains: walks, rows of two keys, its explorer and the search for one of sixteen items."""

import math

import numpy as np
import pytest
import torch

from course_lib.attention.scaled_dot_product import attention, qk_norm_attention, softmax_jacobian
from course_lib.lessons import attention_scaling as lesson
from course_lib.lessons.attention_scaling import lookup
from course_lib.measured import measured
from course_lib.teaching.style import text_alternative
from tests.drawing import line_labelled

# Walks


def test_walks_end_at_the_scores():
    generator = torch.Generator().manual_seed(4)
    q, k = torch.randn(2, lesson.PAIRS, lesson.LONG, generator=generator, dtype=torch.float64)
    independent, matching = lesson.walks()
    torch.testing.assert_close(independent[:, -1], (q * k).sum(1))
    torch.testing.assert_close(matching[:, 63], q[:, :64].square().sum(1))


def test_the_first_figure_draws_both_kinds_up_to_64_terms():
    (axes,) = lesson.plot_walks().axes
    independent, matching = lesson.walks()
    ends = sorted(float(line.get_ydata()[-1]) for line in axes.lines)
    drawn = torch.cat([independent[: lesson.DRAWN, 63], matching[: lesson.DRAWN, 63]])
    assert ends == pytest.approx(sorted(drawn.tolist()))
    low, high = axes.get_ylim()
    assert all(low < np.min(line.get_ydata()) <= np.max(line.get_ydata()) < high for line in axes.lines)


def test_the_long_figure_says_what_it_draws():
    figure = lesson.plot_long_walks()
    independent, matching = lesson.walks()
    spread = line_labelled(figure.axes[0], "± standard deviation").get_ydata()
    mean = line_labelled(figure.axes[1], "mean").get_ydata()
    assert np.allclose(spread, independent.std(0))
    assert np.allclose(mean, matching.mean(0))
    said = text_alternative(figure)
    assert f"terms: {spread[63]:.1f} and {spread[-1]:.1f}" in said
    assert f"matching ones: {mean[63]:.0f} and {mean[-1]:,.0f}" in said
    for axes in figure.axes:
        low, high = axes.get_ylim()
        assert all(low < np.min(line.get_ydata()) <= np.max(line.get_ydata()) < high for line in axes.lines)


# What a softmax sees


def test_rows_without_their_means_have_the_same_weights():
    left, right = lesson.plot_rows().axes
    rows = [
        [line.get_xdata() for line in axes.lines if len(line.get_xdata()) == 12] for axes in (left, right)
    ]
    assert len(rows[0]) == lesson.ROWS
    for before, after in zip(*rows, strict=True):
        assert np.mean(after) == pytest.approx(0, abs=1e-12)
        assert np.ptp(before) == pytest.approx(np.ptp(after))
        weights = [torch.tensor(np.asarray(row)).softmax(0) for row in (before, after)]
        torch.testing.assert_close(*weights)
    means = [np.mean(row) for row in rows[0]]
    assert max(means) - min(means) > 5


# Rows that are drawn


def test_two_keys_have_the_norm_of_their_matrix():
    x, norms = lesson.two_key_norms(3.0, count=200)
    scores = torch.stack([torch.zeros_like(x), x], 1)
    torch.testing.assert_close(norms, torch.linalg.eigvalsh(softmax_jacobian(scores.softmax(-1)))[:, -1])
    assert float(x.std()) == pytest.approx(3 * math.sqrt(2), rel=0.2)


def test_mean_and_median_obey_their_bounds():
    for r in (1.0, 10.0, 100.0):
        norms = lesson.two_key_norms(r)[1]
        error = 5 * float(norms.std()) / len(norms) ** 0.5
        assert float(norms.mean()) <= 1 / (math.sqrt(math.pi) * r) + error
        # Half of the rows have |x| above 0.954 r; 1% of slack for the sample.
        assert float(norms.median()) <= 2 * math.exp(-0.95 * r * 0.99)
    assert 100 * float(norms.mean()) == pytest.approx(1 / math.sqrt(math.pi), rel=0.05)


def test_the_share_of_rows_by_hand():
    norms = torch.tensor([1.0, 5.0, 4.0, 0.0])
    assert lesson.share_of_rows(norms, 0.5) == 0.25
    assert lesson.share_of_rows(norms, 0.9) == 0.5
    assert lesson.share_of_rows(norms, 0.95) == 0.75


def test_the_figure_of_rare_rows_counts_its_dots():
    figure = lesson.plot_rare()
    counts = []
    for axes in figure.axes[:2]:
        _, dots = axes.lines
        assert np.allclose(dots.get_ydata(), 0.5 / np.cosh(np.asarray(dots.get_xdata()) / 2) ** 2)
        counts.append(int((np.asarray(dots.get_ydata()) > 0.05).sum()))
    assert (
        f"remains in {counts[0]} of the 200 rows for r = 1, and in {counts[1]} for r = 10"
        in text_alternative(figure)
    )
    mean, median = (
        np.asarray(line_labelled(figure.axes[2], name).get_ydata()) for name in ("mean", "median")
    )
    r = np.asarray(line_labelled(figure.axes[2], "mean").get_xdata())
    assert mean[4] / mean[-1] == pytest.approx(r[-1] / r[4], rel=0.1)
    assert median[4] < mean[4] / 100


def test_slopes_at_the_tie_are_derivatives_of_the_weights():
    left, right = lesson.plot_tie().axes
    for scale in lesson.SCALES:
        weight, slope = (line_labelled(axes, f"$\\beta$ = {scale}") for axes in (left, right))
        t, y = np.asarray(weight.get_xdata()), np.asarray(weight.get_ydata())
        assert np.allclose(np.gradient(y, t)[1:-1], slope.get_ydata()[1:-1], atol=5e-3 * scale)
        keys = torch.tensor(lesson.TIE_KEYS, dtype=torch.float64)
        query = torch.tensor([1.0, 1.0, float(t[300])], dtype=torch.float64)
        assert y[300] == pytest.approx(float((scale * keys @ query).softmax(0)[0]), abs=1e-12)
    assert set(np.asarray(line_labelled(left, "argmax").get_ydata())) == {0, 1}
    assert not np.asarray(line_labelled(right, "argmax").get_ydata()).any()


# Explorer


@pytest.fixture(scope="module")
def explorer():
    return lesson.ScaleExplorer()


SETTING = {"log_dim": 6, "power": 0.0, "std": 1.0, "match": False, "law": False}


def test_the_explorer_opens_at_the_problem(explorer):
    assert {name: control.default for name, control in lesson.ScaleExplorer.controls.items()} == SETTING
    assert max(explorer.compute(**SETTING)["bars"]) > 0.9


def test_walks_end_at_the_scores_whose_weights_are_drawn(explorer):
    for changed in ({}, {"log_dim": 10, "power": 0.5}, {"log_dim": 0}, {"match": True, "std": 2.0}):
        state = explorer.compute(**{**SETTING, **changed})
        weights = torch.tensor(state["shown"]).softmax(0)
        assert state["bars"] == pytest.approx(weights.tolist(), abs=1e-12)
        window = float(state["top"].split(": ")[1].replace(",", ""))
        assert [y[-1] * window for _, y in state["walks"]] == pytest.approx(list(state["shown"]), rel=1e-3)
        assert all(np.abs(y).max() <= 1 for _, y in state["walks"])
        assert all(x[-1] == 1 for x, _ in state["walks"])


def test_spread_and_match_follow_their_laws(explorer):
    for log_dim in (6, 10):
        state = explorer.compute(log_dim=log_dim, power=0.5, std=2.0, match=True, law=True)
        assert state["spread"] == pytest.approx(4, rel=0.1)
        assert state["matching"] == pytest.approx(4 * 2 ** (log_dim / 2), rel=0.1)
        up, down, line = (y[-1] for _, y in state["laws"])
        window = float(state["top"].split(": ")[1].replace(",", ""))
        assert (up * window, down * window) == pytest.approx((4, -4), rel=1e-3)
        assert line * window == pytest.approx(4 * 2 ** (log_dim / 2), rel=1e-3)
    assert explorer.compute(**SETTING)["laws"] == [([], [])] * 3


def test_words_say_what_was_counted(explorer):
    state = explorer.compute(**{**SETTING, "log_dim": 10})
    words = explorer.words(state)
    assert f"{state['clear']} have a weight above 0.9" in words
    assert "matching" not in words
    matched = explorer.compute(**{**SETTING, "match": True})
    assert f"that of a matching key is {matched['matching']:.3g} on average" in explorer.words(matched)


# One of sixteen


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("normed", [False, True])
def test_scores_are_those_of_attention(normed):
    w_q, w_k, items, values = (
        normal(5, 7),
        normal(5, 7, seed=1),
        normal(3, 4, 5, seed=2),
        normal(3, 4, 2, seed=3),
    )
    weights = lookup.scores_of(w_q, w_k, items, scale=0.7, normed=normed).softmax(-1)
    form = qk_norm_attention if normed else attention
    expected = form(items[:, :1] @ w_q, items @ w_k, values, scale=0.7)
    torch.testing.assert_close(weights[:, None] @ values, expected)


def test_every_arm_has_its_scale():
    found = [lookup.scale_of(arm, 4.0, 64) for arm in lookup.ARMS]
    assert found == pytest.approx([1, 1 / 8, 1 / 128, 1 / 64, 1, 1])
    assert [lookup.shrink_of(arm, 4.0, 64) for arm in lookup.ARMS] == pytest.approx([1] * 5 + [128**-0.5])
    rates = lookup.rates_of(lookup.SMALL, 4.0, 64)
    assert np.array(rates) / np.array(lookup.RATES) == pytest.approx([128**-0.5] * 13)


def test_a_smaller_start_is_the_scaled_run_and_no_other():
    run = {"std": 2.0, "d": 16, "seeds": (0,), "dtype": torch.float64, "steps": 20}
    scaled = lookup.train(lookup.ROOT_STD, rates=(0.05,), **run)
    small = lookup.train(lookup.SMALL, rates=(0.05 / 4,), **run)
    assert float((scaled - small).abs().max()) < 1e-7
    same_rate = lookup.train(lookup.SMALL, rates=(0.05,), **run)
    assert float((scaled - same_rate).abs().max()) > 0.1


def test_runs_side_by_side_are_single_runs():
    run = {"std": 1.0, "d": 8, "dtype": torch.float64, "steps": 5}
    for arm in (lookup.ROOT, lookup.QK_NORM):
        together = lookup.train(arm, rates=(0.01, 0.1), seeds=(3, 5), **run)
        assert together.shape == (2, 2, 5)
        torch.testing.assert_close(lookup.train(arm, rates=(0.1,), seeds=(5,), **run)[0, 0], together[1, 1])


def test_adam_is_torchs():
    """Three steps of one arm, once more by torch."""
    generator = torch.Generator().manual_seed(2)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    w_q, w_k = (w.clone().requires_grad_() for w in draw(2, 32, 8) / 32**0.5)
    optimizer, losses = torch.optim.Adam([w_q, w_k], lr=0.05, eps=1e-12), []
    for _ in range(3):
        items, values = draw(32, 16, 32), draw(32, 16, 8)
        output = attention(items[:, :1] @ w_q, items @ w_k, values)
        loss = (output - values[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    found = lookup.train(lookup.ROOT, std=1.0, d=8, rates=(0.05,), seeds=(2,), steps=3, dtype=torch.float64)
    assert found[0, 0].tolist() == pytest.approx(losses, rel=1e-9)


def test_what_is_stored_is_complete_and_each_best_rate_is_inside():
    for std, d in lookup.SETTINGS:
        for arm in lookup.ARMS:
            rates, losses = lesson.stored(arm, std, d)
            assert losses.shape == (len(lookup.SEEDS), len(lookup.RATES))
            assert rates == pytest.approx(lookup.rates_of(arm, std, d), rel=1e-5)
            if arm != lookup.QK_NORM:  # which does well up to the largest rate
                assert 0 < np.median(losses, 0).argmin() < len(rates) - 1


def test_the_training_figure_and_table_show_what_is_stored():
    figure = lesson.plot_training()
    for axes, (std, d) in zip(figure.axes, lookup.SETTINGS, strict=True):
        losses = np.array(measured("lookup", f"{lookup.NONE}, sigma {std:g}, d {d}")["losses"])
        assert np.allclose(line_labelled(axes, "no division").get_ydata(), np.median(losses, 0))
        best = (losses < lookup.SOLVED).sum(0)
        assert f"σ = {std:g}, d = {d:,}: no division {best.max()}" in text_alternative(figure)
        assert f"{best.max()}, {(best >= 9).sum()}" in lesson.training_table().data.split("\n")[2]
    shown = {line.get_label() for line in figure.axes[2].lines}
    assert {lesson.NAMES[arm] for arm in lesson.CURVES} <= shown


def test_a_stored_run_comes_again():
    rates, losses = lesson.stored(lookup.ROOT, 1.0, 64)
    again = lookup.end(lookup.train(lookup.ROOT, std=1.0, d=64, seeds=lookup.SEEDS[:1], rates=rates[4:6]))
    assert again[0].tolist() == pytest.approx(list(losses[0, 4:6]), rel=0.02)
