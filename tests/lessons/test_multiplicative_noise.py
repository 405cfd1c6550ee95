"""What the curves, the runs and the words of lesson 05 are, and which answers its exercises take."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from course_lib.lessons import multiplicative_noise as lesson
from course_lib.measured import measured, origin
from course_lib.optimization.ridge import second_moment_step_limit, three_point_noise
from tests.drawing import assert_line, line_labelled

F64 = {"dtype": torch.float64}


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def verdict(number, answer):
    return lesson.EXERCISES[number].grade(answer, generator=rng())


def state_of(**settings):
    explorer = lesson.RunsExplorer()
    defaults = {name: control.default for name, control in explorer.controls.items()}
    return explorer.compute(**{**defaults, **settings})


def test_the_run_of_the_question_is_gradient_descent_on_noisy_inputs():
    noise, w = torch.randn(2000, generator=rng(2), **F64), torch.zeros(1, **F64)
    found = lesson.one_run()
    for step in range(5):
        w.requires_grad_()
        (0.5 * ((1 + noise[step]) * w - 2).square()).sum().backward()
        w = (w - 0.45 * w.grad).detach()
        assert float(found[step]) == pytest.approx(float(w), rel=1e-9)
    assert_line(lesson.plot_question(found).axes[0].get_lines()[0], np.arange(1, 2001), found)


def test_the_exact_mean_square_leaves_the_means_over_runs():
    axes = lesson.plot_mean_squares().axes[0]
    exact = line_labelled(axes, "exact mean")
    assert_line(exact, np.arange(61), 1.225 ** np.arange(61))
    trials = lesson.mean_squares()
    assert trials.shape == (4, 61)
    assert trials[:, 3].tolist() == pytest.approx([1.225**3] * 4, rel=0.3)
    assert float(trials[:, -1].max()) < 1e-3


def test_the_explorer_s_averages_are_those_of_many_runs():
    state = state_of(step_size=0.2)
    w = torch.full((200_000,), 3.0, **F64)
    generator = rng(3)
    for _ in range(4):
        seen = 1 + torch.randn(len(w), generator=generator, **F64)
        w = w - 0.2 * (seen * w - 2) * seen
    assert state["mean"][4] == pytest.approx(abs(float(w.mean()) - 1), abs=0.02)
    assert state["spread"][4] == pytest.approx(float((w - 1).square().mean().sqrt()), rel=0.03)


def test_without_noise_all_curves_of_the_explorer_are_one():
    state = state_of(noise=0.0, target=0.5)
    for run in state["distances"]:
        assert run == pytest.approx(state["mean"])
    assert state["spread"] == pytest.approx(state["mean"], rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(
    ("step_size", "mean_shrinks", "spread_shrinks"),
    [(0.38, True, True), (0.42, True, False), (1.02, False, False)],
)
def test_mean_and_spread_of_the_explorer_stop_settling_where_the_text_says(
    step_size, mean_shrinks, spread_shrinks
):
    state = state_of(step_size=step_size, target=0.0)
    assert (state["mean"][-1] < 3) == mean_shrinks
    assert (state["spread"][-1] < 3) == spread_shrinks


def test_the_carriers_of_few_steps_are_the_weighted_paths_of_coins():
    """Three-sided coins have the moments of the noise that E w^2 and E w^2 ln|w| need only nearly: compare E[w^2 N]."""
    coins, chances = three_point_noise(1, noise=1.0)
    weight = chances * (1 - 0.45 * (1 + coins[0]) ** 2) ** 2
    mean_noise = float((weight * coins[0]).sum() / weight.sum())
    drawn = lesson.pictures.carrying_noise(1.0, noise=1.0, step_size=0.45, shape=(200_000,), generator=rng())
    assert float(drawn.mean()) == pytest.approx(mean_noise, abs=0.02)
    plain, carrying = lesson.logarithms(60)
    assert float(plain.max()) < float(carrying.min())


def test_tails_fall_with_their_exponents():
    r = torch.linspace(1e-6, 1, 100_000, **F64).flip(0) ** (-1 / 1.5)  # P(R > r) = r^-1.5
    assert lesson.tail_slope(r) == pytest.approx(1.5, rel=0.01)
    slopes = [lesson.tail_slope(lesson.long_run(eta)) for eta in lesson.pictures.TAIL_STEPS]
    assert slopes == sorted(slopes, reverse=True)


def test_the_gap_closes_with_more_weights():
    axes = lesson.plot_gap().axes[0]
    ratio = line_labelled(axes, "one run").get_ydata() / line_labelled(axes, "spread").get_ydata()
    assert ratio[0] == pytest.approx(3.6, abs=0.05)
    assert list(ratio) == sorted(ratio, reverse=True)
    assert ratio[-1] == pytest.approx(1.02, abs=0.01)


def test_growth_is_that_of_runs_that_are_never_brought_back():
    generator = rng(38)
    w = torch.ones(50, 3, **F64) / math.sqrt(3)
    for _ in range(20):
        seen = torch.randn(50, 3, generator=generator, **F64)
        w = w - 0.9 * 0.4 * (seen * w).sum(1, keepdim=True) * seen
    assert lesson.growth(3, 0.9, runs=50, steps=20) == pytest.approx(float(w.norm(dim=1).log().median()) / 20)


@pytest.mark.parametrize(
    ("arm", "rows", "threshold"),
    [("1 row a step", 1, None), ("1 row a step, clipped at 0.3", 1, 0.3), ("4 rows a step", 4, None)],
)
def test_an_arm_is_a_plain_loop(arm, rows, threshold):
    one, generator = lesson.problem(30), rng(38)
    runs = [torch.zeros(12, **F64), torch.zeros(12, **F64)]
    late = [torch.zeros(12, **F64), torch.zeros(12, **F64)]
    steps = 40 // rows
    for step in range(steps):
        places = torch.randint(12, (1, 2, rows), generator=generator)[0]
        noise = torch.randn(1, 2, rows, 12, generator=generator, **F64)[0]
        for run in range(2):
            gradient = torch.zeros(12, **F64)
            for place, added in zip(places[run], noise[run], strict=True):
                u = one.matrix[place] + 0.5 * added
                gradient += (u @ runs[run] - one.target[place]) * u / rows
            if threshold and gradient.norm() > threshold:
                gradient *= threshold / gradient.norm()
            runs[run] = runs[run] - 0.1 * gradient
            if step >= steps // 2:
                late[run] += runs[run] / (steps - steps // 2)
    found = lesson.excesses(arm, (0.05, 0.1), [30], runs=2, rows_read=40)
    assert found.shape == (2, 1, 2)
    torch.testing.assert_close(found[1, 0], one.excess(torch.stack(late)))


def test_the_excess_is_the_mean_loss_on_noisy_rows_above_the_smallest():
    one, away = lesson.problem(29), torch.randn(12, generator=rng(), **F64)

    def loss(w):
        return float((one.matrix @ w - one.target).square().mean() + 0.25 * w.square().sum())

    assert float(one.excess(one.best)) == pytest.approx(0, abs=1e-15)
    assert float(one.excess(one.best + away)) == pytest.approx(
        loss(one.best + away) - loss(one.best), rel=1e-9
    )


def test_what_grows_without_bound_is_cut():
    assert float(lesson.excesses(lesson.ONE, (1.4,), [29], runs=2).min()) == lesson.CAP


def test_an_unknown_arm_is_named():
    with pytest.raises(ValueError, match="arm must be one of 1 row a step"):
        lesson.excesses("luck", (0.1,), [29], runs=1)


@pytest.mark.parametrize("arm", lesson.ARMS)
def test_the_best_step_size_of_the_stored_run_is_not_at_an_end(arm):
    found, sizes = measured("bursts", arm), origin("bursts")["settings"]["step sizes"]
    assert min(sizes) < found["best step size"] < max(sizes)
    assert found["excess"] == found["excess by step size"][f"{found['best step size']:g}"]


def test_the_best_threshold_is_not_at_an_end():
    best = [np.log(measured("bursts", arm)["excess"]).mean() for arm in lesson.CLIPPED]
    assert 0 < int(np.argmin(best)) < len(best) - 1


def test_the_closing_picture_shows_what_was_stored():
    axes = lesson.plot_closing().axes[0]
    line = line_labelled(axes, "16 rows a step")
    stored = measured("bursts", "16 rows a step")["excess by step size"]
    means = [np.exp(np.log(values).mean()) for values in stored.values()]
    assert_line(line, [float(s) for s in stored], np.minimum(means, 1e3))
    limits = [one.get_xdata()[0] for one in axes.get_lines() if len(one.get_xdata()) == 2]
    matrix = lesson.problem(29).matrix
    assert limits == [second_moment_step_limit(matrix, noise=0.5, rows_a_step=rows) for rows in (1, 16)]


def test_the_limit_for_several_rows_is_that_of_all_pairs_of_coins():
    """The mean of A kron A over all pairs of noisy rows has the radius 1 at the limit."""
    rows, (shown, chances) = torch.randn(2, 1, generator=rng(5), **F64), three_point_noise(1, noise=0.6)
    seen = [(row + side, chance / 2) for row in rows for side, chance in zip(shown.T, chances, strict=True)]
    limit = second_moment_step_limit(rows, noise=0.6, rows_a_step=2)
    total = sum(p * q * (1 - limit * (u * u + v * v) / 2) ** 2 for (u, p), (v, q) in product(seen, repeat=2))
    assert float(total) == pytest.approx(1, abs=1e-12)
    with pytest.raises(ValueError, match="rows_a_step must be 1 or more"):
        second_moment_step_limit(rows, noise=0.6, rows_a_step=0)


@pytest.mark.parametrize("number", [10**400, -(10**400), float("inf"), float("nan")])
def test_numbers_without_bound_are_refused_at_once(number):
    assert verdict("05.1", {"mean": number, "square": 1.525, "run": 0.8246}).status != "solved"
    assert verdict("05.3", {"x": number, "sigma": 1.0, "step_size": 0.45}).status != "solved"
    assert verdict("05.3", {"x": 1.0, "sigma": 1.0, "step_size": number}).status != "solved"
    assert verdict("05.4", number).status != "solved"
