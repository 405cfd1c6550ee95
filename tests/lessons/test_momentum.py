"""What the runs, the curves and the words of lesson 02 are, and which answers its exercises take."""

from functools import cache

import numpy as np
import pytest
import torch

from course_lib.lessons import momentum as lesson
from course_lib.lessons.momentum import exercises
from course_lib.optimization.gradient_descent import best_heavy_ball
from tests.drawing import assert_line, line_labelled

F64 = {"dtype": torch.float64}


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def verdict(number, answer):
    return lesson.EXERCISES[number].grade(answer, generator=rng())


@cache
def an_explorer():
    return lesson.CanyonExplorer()


def state_of(**settings):
    explorer = an_explorer()
    defaults = {name: control.default for name, control in explorer.controls.items()}
    return explorer.compute(**{**defaults, **settings})


def by_velocity(step_size, momentum, steps):
    """The canyon, step by step as (02.1) says."""
    w, velocity, path = [0.2, 1.0], [0.0, 0.0], [[0.2, 1.0]]
    for _ in range(steps):
        for i, curvature in enumerate((1.0, 0.01)):
            velocity[i] = momentum * velocity[i] + curvature * w[i]
            w[i] = w[i] - step_size * velocity[i]
        path.append(list(w))
    return np.array(path)


@pytest.mark.parametrize(("step_size", "momentum"), [(1.0, 0.0), (3.0, 0.6), (0.5, 0.95)])
def test_a_run_in_the_canyon_is_that_of_a_velocity(step_size, momentum):
    path = lesson.canyon_run(step_size, momentum, 50)
    np.testing.assert_allclose(path, by_velocity(step_size, momentum, 50), atol=1e-12)


def test_the_canyon_shows_both_runs():
    axes = lesson.plot_canyon().axes[1]
    for name, pair in lesson.SETTINGS.items():
        errors = np.linalg.norm(by_velocity(pair["step_size"], pair["momentum"], 800), axis=1)
        assert_line(line_labelled(axes, name), range(801), errors)


def test_the_settings_of_the_canyon_have_the_lowest_rates():
    best = {name: max(lesson.rate(pair["step_size"] * c, pair["momentum"]) for c in (1.0, 0.01))
            for name, pair in lesson.SETTINGS.items()}  # fmt: skip
    assert best == pytest.approx({"gradient descent": 99 / 101, "with momentum": 9 / 11}, abs=1e-6)


def test_borders_are_found_and_drawn():
    found = line_labelled(lesson.plot_borders().axes[0], "found by running")
    momenta = np.array(found.get_xdata())
    assert list(found.get_ydata()) == pytest.approx(2 * (1 + momenta), abs=0.01)
    assert lesson.border_of(0.5, curvature=4.0) == pytest.approx(0.75, abs=1e-3)


def test_velocities_approach_10_and_swing_by_10_over_19():
    steady, alternating = (axes.get_lines()[-1].get_ydata() for axes in lesson.plot_sums().axes)
    assert steady[-1] == pytest.approx(10 * (1 - 0.9**40))
    assert abs(alternating[-1]) == pytest.approx(10 / 19, abs=0.01)
    assert np.sign(alternating[-1]) == -np.sign(alternating[-2])


@pytest.mark.parametrize("x", [0.01, 0.1, 1.0, 3.0, 3.26])
@pytest.mark.parametrize("momentum", [0.0, 0.25, 0.64])
def test_roots_are_the_eigenvalues_of_a_step(x, momentum):
    step = np.array([[1 + momentum - x, -momentum], [1.0, 0.0]])
    expected = np.sort_complex(np.linalg.eigvals(step).astype(complex))
    np.testing.assert_allclose(np.sort_complex(lesson.roots(x, momentum)), expected, atol=1e-7)
    assert lesson.rate(x, momentum) == pytest.approx(np.abs(expected).max(), abs=1e-7)


def test_both_directions_of_the_question_have_the_rate_of_the_circle():
    dots = next(line for line in lesson.plot_rates().axes[0].get_lines() if line.get_marker() == "o")
    assert list(dots.get_xdata()) == [0.1, 3.0]
    assert list(dots.get_ydata()) == pytest.approx([0.8, 0.8])


def test_conjugate_roots_are_drawn_on_one_circle_and_real_ones_are_not():
    axes = lesson.plot_roots().axes[0]
    sizes = {}
    for x in ("0.02", "0.1", "3", "3.26"):
        line = line_labelled(axes, f"ηλ = {x}")
        sizes[x] = np.hypot(line.get_xdata(), line.get_ydata())
        assert np.prod(sizes[x]) == pytest.approx(0.64)
    for x in ("0.1", "3"):
        assert sizes[x] == pytest.approx([0.8, 0.8])
    assert max(sizes["0.02"]) > 0.9 < max(sizes["3.26"])


def test_the_steep_direction_keeps_its_rate_from_0_04_to_3_24():
    rates = {x: state_of(step_size=x, momentum=0.64)["rates"][0] for x in (0.02, 0.04, 2.0, 3.24, 3.26)}
    assert [rates[x] for x in (0.04, 2.0, 3.24)] == pytest.approx([0.8] * 3, abs=1e-6)
    assert min(rates[0.02], rates[3.26]) > 0.9


@pytest.mark.parametrize(("momentum", "border"), [(0.25, 2.5), (0.75, 3.5)])
def test_the_explorer_s_first_task_is_seen_in_its_errors(momentum, border):
    below, above = (state_of(step_size=border + d, momentum=momentum)["errors"][0] for d in (-0.1, 0.1))
    assert below[-10:].max() < 0.5 * below[:10].max()
    assert above[-10:].max() > 2 * above[:10].max()


def test_the_explorer_draws_its_path_its_errors_and_on_request_its_rates():
    state = state_of(step_size=1.0, momentum=0.64)
    path = by_velocity(1.0, 0.64, 60)
    np.testing.assert_allclose(np.transpose(state["path"]), path[:, ::-1], atol=1e-12)
    np.testing.assert_allclose(state["errors"], np.abs(path.T).clip(1e-9), atol=1e-12)
    assert state["promised"] == [([], []), ([], [])]
    shown = state_of(step_size=1.0, momentum=0.64, reveal=True)["promised"]
    assert [float(line[1][10]) for line in shown] == pytest.approx([0.8**10, 0.9706**10], rel=1e-3)


def test_rates_are_said_on_request_only():
    explorer = lesson.CanyonExplorer()
    assert "Rates" not in explorer.frame()[1]
    explorer.set(reveal=True, momentum=0.64, step_size=1.0)
    assert "steep 0.800, flat 0.971" in explorer.frame()[1]


def test_runs_that_explode_stay_drawable():
    state = state_of(step_size=4.0, momentum=0.0)
    assert np.isfinite(state["path"]).all()
    assert "beyond 100" in an_explorer().words(state)


def test_networks_go_on_from_where_lesson_01_starts_them():
    runs = lesson.sharpness_runs()
    assert runs.shape == (4, 3, 26)
    assert np.allclose(runs[:, :, 0], runs[0, :, 0])  # the same three networks under each setting
    _, loss = lesson.pictures.small_network()
    weights = lesson.pictures.small_network(seed=1)[0]
    largest = torch.linalg.eigvalsh(torch.func.hessian(loss)(weights))[-1]
    assert runs[0, 1, 0] == pytest.approx(float(largest), rel=1e-2)


def test_each_setting_without_high_momentum_ends_near_its_border():
    for (step_size, momentum), looks in zip(lesson.NETWORK_SETTINGS, lesson.sharpness_runs(), strict=True):
        border, ends = 2 * (1 + momentum) / step_size, looks[:, -10:].mean(1)
        if momentum < 0.9:
            assert ends == pytest.approx([border] * 3, rel=0.08)
        else:
            assert max(ends) < 0.9 * border


def test_the_streams_excess_is_that_of_the_weights():
    """One momentum, one effective step and one seed, row by row."""
    generator = rng(37)
    normal = lambda *shape: torch.randn(*shape, generator=generator, **F64)  # noqa: E731
    variances = torch.logspace(0, -2, 10, **F64)
    truth = normal(lesson.STREAM_SEEDS, 10)
    data = [(normal(lesson.STREAM_SEEDS, 4, 10) * variances.sqrt(), normal(lesson.STREAM_SEEDS, 1, 4))
            for _ in range(lesson.STREAM_STEPS)]  # fmt: skip
    w = velocity = torch.zeros(10, **F64)
    for rows, labels in data:
        x, y = rows[3], rows[3] @ truth[3] + labels[3, 0]
        velocity = 0.5 * velocity + x.T @ (x @ w - y) / 4
        w = w - 0.5 * float(lesson.EFFECTIVE[9]) * velocity
    excess = ((w - truth[3]) ** 2 * variances).sum()
    assert float(lesson.stream(*lesson.NOISY)[0.5][9, 3]) == pytest.approx(float(excess), rel=1e-9)


@pytest.mark.parametrize("falling", [False, True])
@pytest.mark.parametrize("task", [lesson.EXACT, lesson.NOISY])
def test_no_best_effective_step_is_at_an_end(task, falling):
    for excess in lesson.stream(*task, falling=falling).values():
        assert 2 <= int(excess.mean(1).argmin()) <= len(lesson.EFFECTIVE) - 3


def test_streams_are_drawn_as_they_ran():
    for axes, task in zip(lesson.plot_streams().axes, (lesson.EXACT, lesson.NOISY), strict=True):
        for beta in lesson.MOMENTA:
            mean = lesson.stream(*task)[beta].mean(1)
            assert_line(line_labelled(axes, f"β = {beta:g}"), lesson.EFFECTIVE, mean)


def test_a_default_dtype_changes_nothing():
    torch.set_default_dtype(torch.float64)
    try:
        doubled = lesson.stream.__wrapped__(*lesson.NOISY, momenta=(0.5,))[0.5]
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(doubled, lesson.stream.__wrapped__(*lesson.NOISY, momenta=(0.5,))[0.5])


def test_the_variance_of_the_quiz_is_the_one_of_a_long_run():
    generator = rng()
    noise = torch.randn(3000, 400, generator=generator, **F64)
    w = velocity = torch.zeros(400, **F64)
    for one in noise:
        velocity = 0.9 * velocity + w + one
        w = w - 0.01 * velocity
    assert lesson.scatter(0.9) == pytest.approx(float(w.square().mean()), rel=0.25)
    assert lesson.scatter(0.0) == pytest.approx(0.1 / 1.9, rel=1e-6)


@pytest.mark.parametrize("number", ["1e400", 10**400, -(10**400), float("inf"), float("nan")])
def test_numbers_without_bound_are_refused_at_once(number):
    number = float(number) if isinstance(number, str) else number
    assert verdict("02.1", {"steady": number, "alternating": 0.5263}).status != "solved"
    for exercise in ("02.2", "02.5"):
        assert verdict(exercise, number).status != "solved"


@pytest.mark.parametrize(("answer", "right"), [(0.9, True), (0.8999, True), (0.89, False), (0.91, False)])
def test_the_border_of_the_exercise_is_judged_by_runs(answer, right):
    assert exercises._is_border(answer) == right


def test_a_pair_beside_the_best_is_refused():
    curvatures = torch.tensor([1.0, 0.3, 0.01], **F64)
    best = torch.tensor(best_heavy_ball(curvatures.sqrt(), half=True), **F64)
    assert exercises._is_best(curvatures, best)
    for scale in ([1.02, 1.0], [0.98, 1.0], [1.0, 1.03], [1.0, 0.97]):
        assert not exercises._is_best(curvatures, best * torch.tensor(scale, **F64))
