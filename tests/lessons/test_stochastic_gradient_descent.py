"""What the pictures of lesson 03 draw, and what its explorer says, against loops and definitions."""

import itertools
import re
from itertools import pairwise

import numpy as np
import pytest
import torch

from course_lib.lessons import stochastic_gradient_descent as lesson
from course_lib.measured import measured
from course_lib.optimization.stochastic_gradient_descent import draw_indices
from tests.drawing import line_labelled


def test_every_step_goes_at_a_right_angle_to_a_line_and_ends_on_it():
    matrix, target = lesson.four_lines("right")
    for before, after in pairwise(lesson.walk("right", steps=14)[0]):
        missed = (matrix @ after - target).abs()
        drawn = matrix[missed.argmin()]
        assert missed.min() < 1e-12
        step = after - before
        torch.testing.assert_close(step, (step @ drawn) * drawn, rtol=0, atol=1e-12)


def test_the_lines_meet_in_one_point_on_the_left_only():
    for side, meet in (("left", True), ("right", False)):
        matrix, target = lesson.four_lines(side)
        end = lesson.walk(side, steps=200)[0, -1]
        assert bool((matrix @ end - target).norm() < 1e-6) == meet


def test_exact_mean_distances_are_those_of_many_runs():
    matrix, target = lesson.four_lines("left")
    best = torch.linalg.pinv(matrix) @ target
    squared = (lesson.walk("left", steps=4, runs=40_000) - best).square().sum(2).mean(0)
    exact = lesson.mean_squared_distances(4)
    torch.testing.assert_close(squared / squared[0], exact, rtol=0.05, atol=0)


def test_different_draws_end_at_one_point_and_only_from_zero_at_the_shortest():
    shortest = torch.linalg.pinv(lesson.TWO_ROWS) @ lesson.TWO_LABELS
    for start in lesson.STARTS:
        height, paths = start[2], lesson.zigzags(start, steps=200)
        assert (paths[0, :10] - paths[1, :10]).abs().max() > 0.1
        assert float((paths[:, :, 2] - height).abs().max()) == 0
        nearest = shortest + torch.tensor([0, 0, height], dtype=torch.float64)
        torch.testing.assert_close(paths[:, -1], nearest.expand(2, 3), rtol=0, atol=1e-9)
    assert float(shortest[2].abs()) < 1e-12


def by_loop(matrix, target, step_size, *, steps=600, runs=6):
    """Return L(w_t) / L(w_0) of each run by its definition."""
    drawn = draw_indices(len(matrix), runs=runs, steps=steps, generator=torch.Generator().manual_seed(1))[
        ..., 0
    ]
    found = []
    for run in drawn.tolist():
        w = torch.zeros(matrix.shape[1], dtype=torch.float64)
        for i in run:
            w = w + step_size * matrix[i] * (target[i] - matrix[i] @ w)
        found.append(float((matrix @ w - target).square().sum() / target.square().sum()))
    return np.array(found)


def test_the_explorer_says_what_a_loop_finds_at_every_setting():
    explorer = lesson.SgdExplorer()
    for columns, step_size, noise, guarantee in itertools.product(
        (2, 11, 12, 24), (0.5, 1.0, 2.2), (0.0, 1.0), (False, True)
    ):
        _, words = explorer.frame(columns=columns, step_size=step_size, noise=noise, guarantee=guarantee)
        matrix, target = lesson.twelve_equations(columns, noise=noise)
        common = noise == 0 or columns >= 12
        said = re.match(
            r"d = (\d+), η = ([\d.]+), noise ([\d.]+): after 600 steps the median loss is "
            r"(under 1e-12|over 1,000|[\d.e+-]+) of the start\. The least that any weights have is ([\d.e-]+)\.(.*)$",
            words,
        ).groups()
        assert (int(said[0]), float(said[1]), float(said[2])) == (columns, step_size, noise)
        end = np.median(by_loop(matrix, target, step_size))
        if said[3][0].isdigit():
            assert float(said[3]) == pytest.approx(end, rel=0.06)
        else:
            assert end < 1e-12 if said[3].startswith("under") else end > 1e3
        best = torch.linalg.lstsq(matrix, target[:, None], driver="gelsd").solution[:, 0]
        least = float((matrix @ best - target).square().sum() / target.square().sum())
        assert float(said[4]) == pytest.approx(0 if common else least, rel=0.06)
        assert ("solve all 12" in said[5]) == (guarantee and not common)
        if guarantee and common and step_size <= 2:
            smallest = min(float(v) ** 2 for v in torch.linalg.svdvals(matrix) if v > 1e-9)
            assert float(said[5].split("=")[1].rstrip(".")) == pytest.approx(smallest, rel=0.06)


def test_the_guarantee_of_the_explorer_lies_above_the_mean_of_many_runs():
    for columns, noise in ((24, 1.0), (3, 0.0)):
        explorer = lesson.SgdExplorer()
        state = explorer.compute(columns=columns, step_size=1.0, noise=noise, guarantee=True)
        matrix, target = lesson.twelve_equations(columns, noise=noise)
        mean = lesson.relative_losses(matrix, target, step_size=1.0, steps=100, runs=400, seed=9).mean(0)
        assert (mean <= state["promised"][1][:101] + 1e-12).all()


def test_the_closing_picture_and_table_are_what_is_stored():
    axes = lesson.plot_closing().axes[0]
    table = lesson.closing_table().data
    for arm, (name, *_) in lesson.ARMS.items():
        by_size = measured("averaging", arm)["excess by step size"]
        line = line_labelled(axes, name)
        assert list(line.get_xdata()) == sorted(float(s) for s in by_size)
        assert list(line.get_ydata()) == [sorted(by_size[f"{s:g}"])[2] for s in line.get_xdata()]
        full, best = sorted(by_size["1"]), sorted(measured("averaging", arm)["excess"])
        least = f"{best[2]:.4f}" if best[2] > 1e-4 else f"{best[2]:.0e}"
        assert f"| {name} | {full[2]:.4f} ({full[0]:.4f}–{full[4]:.4f}) | {least}" in table
