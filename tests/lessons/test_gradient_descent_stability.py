"""What the pictures of lesson 01 show, and what its explorer says, against runs written out."""

import itertools
import re

import numpy as np
import pytest
import torch

from course_lib.lessons import gradient_descent_stability as lesson
from course_lib.optimization.gradient_descent import gradient_descent, least_squares_loss, stability_limit
from tests.drawing import line_labelled

pytest.importorskip("sklearn")


def removable_left(version, step_size, steps, subset=None):
    """Run gradient descent on the patients step by step, and return the share of the removable loss left."""
    matrix, target = lesson.patients(version, subset=subset)
    path = gradient_descent(
        matrix, target, torch.zeros(11, dtype=torch.float64), step_size=step_size, steps=steps
    )
    losses = least_squares_loss(matrix, target, path)
    least = (
        (target - matrix @ torch.linalg.lstsq(matrix, target[:, None], driver="gelsd").solution[:, 0])
        .square()
        .sum()
    )
    return (losses - least) / (losses[0] - least)


def test_versions_differ_in_columns_only_and_fit_alike():
    fits = []
    for version in lesson.VERSIONS:
        matrix, target = lesson.patients(version)
        assert matrix.shape == (442, 11)
        assert (matrix[:, 0] == 1).all()
        assert float(target.mean()) == pytest.approx(0, abs=1e-9)
        fits.append(matrix @ torch.linalg.lstsq(matrix, target[:, None], driver="gelsd").solution[:, 0])
        columns = matrix[:, 1:]
        assert torch.allclose(columns.mean(0), columns.new_zeros(10), atol=1e-9) == (
            version in ("centred", "standardised")
        )
        assert torch.allclose(columns.std(0, correction=0), columns.new_ones(10)) == (
            version in ("scaled", "standardised")
        )
    assert all(torch.allclose(fit, fits[0], atol=1e-5) for fit in fits)
    with pytest.raises(ValueError, match="version must be one of"):
        lesson.patients("whitened")
    assert lesson.patients(subset=1)[0].shape == (350, 11)


def test_the_hook_runs_gradient_descent():
    step_size = lesson.best_of_sweep()
    left = lesson.run_of_patients(step_size, steps=300)
    assert np.allclose(left, removable_left("raw", step_size, 300), rtol=1e-6)
    assert lesson.run_of_patients(1.01 * stability_limit(lesson.spectrum("raw")[0]), steps=900)[-1] > 10


@pytest.mark.parametrize("subset", [None, 2])
def test_fewest_steps_are_those_of_real_runs(subset):
    steps, share = lesson.fewest_steps("standardised", subset=subset)
    limit = stability_limit(lesson.spectrum("standardised", subset)[0])
    runs = {s: removable_left("standardised", s * limit, 40, subset) for s in lesson.SWEEP}
    first = {s: int((run <= 0.01).int().argmax()) for s, run in runs.items() if (run <= 0.01).any()}
    assert min(first.values()) == first[share] == steps


def test_momentum_counts_are_those_of_a_run():
    steps, momentum = lesson.fewest_with_momentum("standardised")
    matrix, target = lesson.patients("standardised")
    sigmas, _ = lesson.spectrum("standardised")
    least = (target - matrix @ torch.linalg.pinv(matrix) @ target).square().sum()
    found = []
    for share in lesson.MOMENTUM_SWEEP:
        weights = before = torch.zeros(11, dtype=torch.float64)
        for _ in range(steps):
            pull = 2 * matrix.T @ (target - matrix @ weights)
            size = share * (1 + momentum) * stability_limit(sigmas)
            weights, before = weights + size * pull + momentum * (weights - before), weights
        loss = (target - matrix @ weights).square().sum()
        found.append(float((loss - least) / (target.square().sum() - least)))
    assert min(found) <= 0.01
    assert steps < lesson.fewest_steps("standardised")[0]


def test_the_steps_picture_shows_the_counts():
    counts = lesson.step_counts()
    assert list(counts) == list(lesson.VERSIONS)
    for version, methods in counts.items():
        for method, found in methods.items():
            assert found.shape == (1 if method == "with momentum" else 6, len(lesson.GOALS))
            assert (np.diff(found) >= 0).all(), (version, method)
        assert methods["gradient descent"][0, 2] == lesson.fewest_steps(version)[0]
    assert counts["standardised"]["with momentum"][0, 2] == lesson.fewest_with_momentum("standardised")[0]
    first, second = lesson.FIGURES["steps"]().axes
    shown = [line.get_ydata().tolist() for line in first.lines]
    assert shown == [counts[version]["gradient descent"][0].tolist() for version in lesson.VERSIONS]
    assert second.lines[-1].get_ydata().tolist() == counts["raw"]["conjugate gradients"][0].tolist()
    assert all(tuple(line.get_xdata()) == lesson.GOALS for line in (*first.lines, *second.lines))


def test_conjugate_gradients_by_the_textbook():
    matrix, target = lesson.patients("standardised", subset=1)
    weights, residual = torch.zeros(11, dtype=torch.float64), target.clone()
    pull = matrix.T @ residual
    direction, losses = pull, [residual.square().sum()]
    for _ in range(11):
        image = matrix @ direction
        length = pull @ pull / image.square().sum()
        weights, residual = weights + length * direction, residual - length * image
        losses.append((target - matrix @ weights).square().sum())
        pull, before = matrix.T @ residual, pull
        direction = pull + pull @ pull / (before @ before) * direction
    fit = torch.linalg.lstsq(matrix, target[:, None], driver="gelsd").solution[:, 0]
    least = (target - matrix @ fit).square().sum()
    left = (torch.stack(losses) - least) / (losses[0] - least)
    assert np.allclose(lesson.conjugate_left("standardised", subset=1, steps=11), left, atol=1e-6)


def test_whitened_columns_need_one_step():
    assert lesson.whitened_steps() == 1
    assert lesson.whitened_steps(share=1e-12) == 1


def test_the_staircases_hold_the_share_of_all_flatter_directions():
    (axes,) = lesson.FIGURES["versions"]().axes
    for version in lesson.VERSIONS:
        ratios, held = line_labelled(axes, version).get_data()
        matrix, target = lesson.patients(version)
        left, values, _ = np.linalg.svd(matrix.numpy(), full_matrices=False)
        parts, flat = (left.T @ target.numpy()) ** 2, (values / values[0]) ** 2
        for place, share in zip(ratios[1::2], held[1::2], strict=True):
            assert share == pytest.approx(parts[flat <= place * (1 + 1e-9)].sum() / parts.sum(), abs=1e-6)
        waits = lesson.waited_for(version, 0.01)
        assert parts[flat < waits * (1 - 1e-9)].sum() / parts.sum() <= 0.01
        assert parts[flat <= waits * (1 + 1e-9)].sum() / parts.sum() > 0.01


def test_the_stacked_terms_add_up_to_the_curve_of_the_hook():
    (axes,) = lesson.FIGURES["terms"]().axes
    times, total = axes.lines[0].get_data()
    left = removable_left("raw", lesson.best_of_sweep(), 2000).numpy()
    assert np.allclose(np.interp(times[times < 2000], np.arange(2001), left), total[times < 2000], atol=2e-4)
    assert len(axes.collections) == 11


def test_without_the_mean_subtracted_the_target_is_that_of_the_data():
    (_, kept), (_, less) = lesson.patients(keep_mean=True), lesson.patients()
    assert float(kept.mean()) == pytest.approx(152.13, abs=0.01)
    assert torch.allclose(kept - kept.mean(), less)


def test_both_runs_of_the_second_prediction():
    *axes, losses = lesson.FIGURES["overshoot"]().axes
    for one, step_size in zip(axes, (0.1, 0.2), strict=True):
        for name, sigma in (("1", 2.0), ("2", 1.0)):
            errors = line_labelled(one, f"direction {name}").get_ydata()
            assert np.allclose(errors, -((1 - 2 * step_size * sigma**2) ** np.arange(17)))
    dots = [line.get_xdata()[0] for line in losses.lines if len(line.get_xdata()) == 1]
    assert dots == [31, 16]


def test_the_network_stays_near_its_border_and_the_control_passes_it():
    (second,) = lesson.FIGURES["edge_of_stability"]().axes
    for step_size in (0.1, 0.05):
        losses, _ = lesson.train_network(step_size)
        assert losses[-1] < losses[0] / 20
        assert any(np.allclose(line.get_ydata(), 2 / step_size) for line in second.lines)
    late = np.asarray(line_labelled(second, "$\\eta$ = 0.1").get_ydata())[25:]
    assert late.mean() == pytest.approx(20, abs=0.5)
    control = np.asarray(line_labelled(second, "$\\eta$ = 0.05").get_ydata())
    assert 30 < control[-1] == control.max() < 40


def test_past_the_border_the_frozen_quadratic_explodes_and_the_network_does_not():
    found = lesson.past_the_border()
    growth = np.diff(np.log(found["frozen"][-10:]))
    assert np.allclose(growth, np.log(0.1 * found["sharpness"][0] - 1), atol=2e-3)
    assert found["frozen"][-1] > 1000 * max(found["network"])
    assert found["network"][-1] < 0.01 * max(found["network"])
    assert max(found["sharpness"]) > 20 > min(found["sharpness"])


def test_without_its_jumps_the_sharpness_of_each_network_rises_past_the_border():
    found = lesson.past_crossing()
    for with_jumps, without in zip(found["with"], found["without"], strict=True):
        assert with_jumps[0] == pytest.approx(without[0], rel=1e-2)
        assert with_jumps[0] > 20 > min(with_jumps)
        assert (np.diff(without) > 0).all()


def test_a_network_by_itself_moves_as_in_the_batch():
    rows = torch.stack([lesson.small_network(seed=seed)[0] for seed in range(3)])
    _, loss = lesson.small_network()
    assert torch.allclose(loss(rows), torch.stack([loss(row) for row in rows]))
    assert loss(rows[0]).shape == ()


def test_the_explorer_says_what_a_loop_finds_at_every_setting():
    explorer = lesson.TrajectoryExplorer()
    grid = itertools.product(
        (0.02, 0.2, 0.45, 1.2), (0.2, 1.0, 3.0), (0.0, 0.6, 3.0), (-1.5, 1.0), (0.5, 2.5), (False, True)
    )
    for step_size, sigma_1, sigma_2, start_1, start_2, reveal in grid:
        _, words = explorer.frame(
            step_size=step_size,
            sigma_1=sigma_1,
            sigma_2=sigma_2,
            start_1=start_1,
            start_2=start_2,
            reveal=reveal,
        )
        said = re.findall(
            r"direction (\d): (.*?), ([^,;]*?), (.*?)(?: and stays, since σ. = 0)?(?:;|\. |\.$)", words
        )
        assert [number for number, *_ in said] == ["1", "2"]
        for (_, *said_errors), (sigma, start, solution) in zip(
            said, ((sigma_1, start_1, 1.0), (sigma_2, start_2, 0.5)), strict=True
        ):
            error = start - solution
            errors = [error]
            for _ in range(40):
                error = max(-1e9, min(1e9, error - 2 * step_size * sigma**2 * error))
                errors.append(error)
            for text, error in zip(said_errors, (errors[0], errors[1], errors[40]), strict=True):
                if abs(error) > 1e5:
                    assert text == "size over 100,000"
                elif abs(error) < 1e-6:
                    assert text == "size below 1e-6"
                else:
                    assert float(text) == pytest.approx(error, rel=0.01)
        assert ("stays" in words) == (sigma_2 == 0)
        assert ("Border" in words) == reveal
        if reveal:
            border = float(re.search(r"Border: ([\d.]+)", words).group(1))
            assert border == pytest.approx(1 / max(sigma_1, sigma_2) ** 2, abs=0.001)
