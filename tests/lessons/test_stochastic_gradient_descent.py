"""What the pictures of lesson 02 draw."""

from itertools import pairwise

import torch

from course_lib.lessons import stochastic_gradient_descent as lesson


def test_every_step_goes_at_a_right_angle_to_a_line_and_ends_on_it():
    matrix, target, path = lesson.projections((0.5, -0.4, 0.4, -0.5), steps=14)
    for before, after in pairwise(path):
        missed = (matrix @ after - target).abs()
        drawn = matrix[missed.argmin()]
        assert missed.min() < 1e-12
        step = after - before
        torch.testing.assert_close(step, (step @ drawn) * drawn, rtol=0, atol=1e-12)


def test_the_lines_meet_in_one_point_on_the_left_only():
    for labels, meet in (((0.0,) * 4, True), ((0.5, -0.4, 0.4, -0.5), False)):
        matrix, target, path = lesson.projections(labels, steps=200)
        assert bool((matrix @ path[-1] - target).norm() < 1e-6) == meet


def test_only_from_zero_the_shortest_solution_is_reached():
    paths = [line.get_xydata() for line in lesson.plot_row_space(steps=200).axes[0].lines[2:5]]
    reached = [bool(abs(path[-1] - [1.6, 0.8]).max() < 1e-9) for path in paths]
    assert reached == [True, False, False]
    assert all(abs(path[-1] @ [2.0, 1.0] - 4) < 1e-9 for path in paths)
