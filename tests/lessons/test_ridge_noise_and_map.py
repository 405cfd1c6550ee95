"""What the pictures of lesson 04 draw, and what its explorer says, against loops and definitions."""

import itertools
import re

import numpy as np
import pytest
import torch

from course_lib.lessons import ridge_noise_and_map as lesson
from course_lib.optimization.ridge import ridge
from tests.drawing import line_labelled


def solved(matrix, target, penalty):
    """Return the ridge weights by least squares on the rows with sqrt(lambda) I below them, by NumPy."""
    below = np.sqrt(penalty) * np.eye(matrix.shape[1])
    longer = np.concatenate([target, np.zeros(matrix.shape[1])])
    return np.linalg.lstsq(np.concatenate([matrix, below]), longer, rcond=None)[0]


def test_features_are_chebyshev_polynomials_and_least_squares_meets_every_point():
    places, matrix, target, _, _ = lesson.wiggly_data()
    by_numpy = np.polynomial.chebyshev.chebvander(places.numpy(), 11)
    np.testing.assert_allclose(matrix, by_numpy, atol=1e-12)
    grid, curve = lesson.plot_question.example().axes[0].lines[0].get_data()
    at_points = np.polynomial.chebyshev.chebval(places.numpy(), np.linalg.solve(by_numpy, target.numpy()))
    np.testing.assert_allclose(at_points, target, atol=1e-9)
    np.testing.assert_allclose(
        curve, np.polynomial.chebyshev.chebval(grid, np.linalg.solve(by_numpy, target.numpy())), atol=1e-9
    )


def test_the_points_of_the_matching_picture_are_on_two_lines():
    noise, prior = lesson.plot_matching().axes[0].lines
    np.testing.assert_allclose(np.array(noise.get_ydata()) / noise.get_xdata(), 0.15**2, rtol=0.1)
    np.testing.assert_allclose(prior.get_ydata(), 0.27, rtol=1e-3)


def test_the_explorer_says_what_least_squares_with_more_rows_finds():
    explorer = lesson.PenaltyExplorer()
    _, matrix, target, _, grid_matrix = (part.numpy() for part in lesson.wiggly_data())
    dotted = grid_matrix @ solved(matrix, target, 0.27)
    _, s, right = np.linalg.svd(matrix)
    plain = right @ np.linalg.solve(matrix, target)
    for penalty, times in itertools.product((0.01, 0.12, 0.27, 0.54, 2.0), (1, 2, 4)):
        _, words = explorer.frame(penalty=penalty, times=times)
        weights = solved(np.tile(matrix, (times, 1)), np.tile(target, times), penalty)
        kept = right @ weights / plain
        said = re.match(
            r"λ = ([\d.]+), each point (once|twice|four times): the two weakest directions keep ([\d.]+) and ([\d.]+), "
            r"the other ten at least ([\d.]+)\. The curve is at most ([\d.]+) from the dotted one\.$",
            words,
        ).groups()
        assert (float(said[0]), said[1]) == (penalty, {1: "once", 2: "twice", 4: "four times"}[times])
        away = abs(grid_matrix @ weights - dotted).max()
        assert 0 <= kept[:-2].min() - float(said[4]) < 0.01
        expected = (kept[-2], kept[-1], away)
        assert [float(said[i]) for i in (2, 3, 5)] == pytest.approx(expected, abs=0.0051)
    bars = [bar.get_height() for bar in explorer.artists["bars"]]
    np.testing.assert_allclose(bars, 4 * s**2 / (4 * s**2 + 2.0), atol=1e-9)


def test_at_penalty_zero_the_explorer_shows_least_squares():
    state = lesson.PenaltyExplorer().compute(penalty=0.0, times=1)
    assert state["bars"] == pytest.approx([1.0] * 12)
    _, matrix, target, _, grid_matrix = lesson.wiggly_data()
    torch.testing.assert_close(state["curve"][1], grid_matrix @ torch.linalg.pinv(matrix) @ target)


def test_what_the_two_weakest_directions_draw_is_what_the_others_leave():
    _, matrix, target, _, grid_matrix = lesson.wiggly_data()
    s, whole, weak, kept = lesson.along_directions(0.27)
    _, _, right = torch.linalg.svd(matrix)
    plain = torch.linalg.solve(matrix, target)
    strong = grid_matrix @ (right[:10].T @ (right[:10] @ plain))
    torch.testing.assert_close(whole, strong + weak.sum(1))
    ridge_strong = grid_matrix @ (right[:10].T @ (right[:10] @ ridge(matrix, target, 0.27)))
    torch.testing.assert_close(kept, grid_matrix @ ridge(matrix, target, 0.27) - ridge_strong)
    assert len(s) == 12


def test_risk_is_the_mean_squared_error_on_drawn_rows():
    generator = torch.Generator().manual_seed(5)
    truth, weights = (torch.randn(1, 12, generator=generator, dtype=torch.float64) for _ in range(2))
    rows = torch.randn(200_000, 12, generator=generator, dtype=torch.float64) * lesson.SCALES
    noise = 0.4 * torch.randn(200_000, 12, generator=generator, dtype=torch.float64)
    for added, squared in ((0 * noise, 0.0), (noise, 0.16)):
        sampled = ((rows + added) @ weights[0] - rows @ truth[0]).square().mean()
        torch.testing.assert_close(
            lesson.risk(weights, truth, noise_squared=squared)[0], sampled, rtol=0.02, atol=0
        )


def test_leaving_out_each_row_by_hand_chooses_the_same_penalty():
    matrix, target, _ = lesson.drawn_problems(24, problems=3)
    penalties = torch.logspace(-2, 2, 9, dtype=torch.float64)
    found = lesson.leave_one_out(matrix, target, penalties)
    for X, y, weights in zip(matrix.numpy(), target.numpy(), found, strict=True):
        errors = [
            sum(
                (y[i] - X[i] @ solved(np.delete(X, i, 0), np.delete(y, i), penalty)) ** 2
                for i in range(len(y))
            )
            for penalty in penalties.tolist()
        ]
        best = solved(X, y, penalties[int(np.argmin(errors))].item())
        np.testing.assert_allclose(weights, best, atol=1e-9)


def test_a_limit_is_the_risk_of_the_noisy_fit_with_very_many_rows():
    generator = torch.Generator().manual_seed(3)
    matrix = torch.randn(1, 400_000, 12, generator=generator, dtype=torch.float64) * lesson.SCALES
    truth = torch.randn(1, 12, generator=generator, dtype=torch.float64)
    weights = lesson.ridge_all(matrix, (matrix @ truth[:, :, None])[:, :, 0], 400_000 / 12)
    assert float(lesson.risk(weights, truth)) == pytest.approx(float(lesson.limits(truth)), rel=0.02)


def test_the_closing_picture_and_table_are_the_risks_of_all_problems():
    axes, table = lesson.plot_closing().axes[0], lesson.closing_table().data
    penalty = {"noise, σ kept": lambda m: m / 12, "prior": lambda m: 1.0}
    for arm, of_rows in penalty.items():
        line = line_labelled(axes, arm)
        for m, drawn in zip(line.get_xdata(), line.get_ydata(), strict=True):
            if m > 100:
                continue
            matrix, target, truth = (part.numpy() for part in lesson.drawn_problems(int(m)))
            risks = [
                (((solved(X, y, of_rows(m)) - w) * lesson.SCALES.numpy()) ** 2).sum()
                for X, y, w in zip(matrix, target, truth, strict=True)
            ]
            assert drawn == pytest.approx(np.median(risks), rel=1e-6)
        assert f"| {arm} | {line.get_ydata()[0]:.3g} |" in table


def test_errors_on_patients_are_those_of_a_plain_loop():
    from sklearn.datasets import load_diabetes

    plain, by_variance = lesson.patient_errors(20, splits=1)
    X, y = load_diabetes(return_X_y=True)
    X, y = ((part - part.mean(0)) / part.std(0, ddof=1) for part in (X, y))
    order = torch.randperm(442, generator=torch.Generator().manual_seed(0)).numpy()
    seen, held_out = order[:20], order[320:]
    error = lambda w: ((X[held_out] @ w - y[held_out]) ** 2).mean()  # noqa: E731
    assert plain == pytest.approx(error(np.linalg.lstsq(X[seen], y[seen], rcond=None)[0]))
    for variance, found in by_variance.items():
        assert found == pytest.approx(error(solved(X[seen], y[seen], 20 * variance)))
