"""What the curves of lesson 23 are, what its explorer says, and answers that its checkers must tell apart."""

import numpy as np
import pytest
import torch

from course_lib.lessons import in_context_regression as lesson
from course_lib.theory.in_context_regression import one_head_each, zero_sum_heads
from tests.drawing import line_labelled

EXERCISES = lesson.EXERCISES


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


def test_one_head_and_three_wait_and_fall_together_and_part():
    axes = lesson.plot_question().axes[0]
    one, three = (line_labelled(axes, name).get_ydata() for name in ("one head", "three heads"))
    assert max(abs(one[:16] - 12)) < 1
    assert max(abs(three[:16] - 12)) < 1
    assert one[-1] / three[-1] > 1.6


def test_a_run_of_the_film_is_its_own_training():
    """Runs side by side, absent heads and all, do not touch each other."""
    q, v = lesson.starts([(2, 0.4, 2)], 2)
    tasks, film = lesson.TASKS, lesson.film()
    alone = lesson.train(tasks, q, v, steps=20, batch=48, every=20, generator=lesson.seeded(23))
    run = lesson.run_of(0.4, 2)
    torch.testing.assert_close(alone.u[:, 0], film.u[:2, run, :2], rtol=1e-3, atol=1e-4)
    assert not film.u[:, run, 2:].any()


def test_three_and_four_heads_end_in_an_allocation_at_every_scale():
    film = lesson.film()
    for scale in lesson.SCALES:
        assert one_head_each(film.u[-1, lesson.run_of(scale, 3)])
        assert one_head_each(film.u[-1, lesson.run_of(scale, 4)])
        assert not one_head_each(film.u[-1, lesson.run_of(scale, 2)])


def test_words():
    explorer = lesson.AllocationExplorer()
    assert explorer.frame(step=0)[1].endswith(". No head answers yet.")
    assert "1 head, step 600" in explorer.frame(heads=1, step=600)[1]
    assert "task 3: head 1 (100%)" in explorer.frame(heads=1, step=600)[1]
    assert len({explorer.frame(heads=3, step=600)[1].split(f"task {i}: head ")[1][0] for i in (1, 2, 3)}) == 3


def test_the_plateau_follows_the_inverse_square():
    axes = lesson.plot_plateau().axes[0]
    measured, formula, other = (
        line_labelled(axes, name).get_ydata() for name in ("measured", "(23.9)", "1/s, for comparison")
    )
    np.testing.assert_allclose(measured, formula, rtol=0.2)
    assert other[-1] > 3 * measured[-1]


def test_free_signs_lead_away_from_the_allocation():
    history = lesson.released()
    assert one_head_each(history.u[0])
    assert float(history.u[0].min()) > -1e-6
    assert float(history.u[-1].min()) < -1
    assert float(history.u[-1].sum(0).abs().max()) < 0.5


# Exercises


@pytest.mark.parametrize("n", [1, 4])
def test_every_basis_of_zero_sums_is_accepted(n):
    """Helmert's matrix, signs turned at random, and the library's own."""

    def helmert(n_tasks):
        rows = [
            [1 / (k * (k + 1)) ** 0.5] * k + [-((k / (k + 1)) ** 0.5)] + [0] * (n_tasks - k)
            for k in range(1, n_tasks + 1)
        ]
        return -torch.tensor(rows, dtype=torch.float64).T

    def library(n_tasks):
        return zero_sum_heads(lesson.Tasks(n_tasks=n_tasks, block=1), 1.0)[0]

    for form in (helmert, library):
        assert form(n).shape == (n + 1, n)
        assert grade("23.6", form).status == "solved"


def test_the_mean_through_a_matrix_is_accepted_too():
    def average(x, y, query, w):
        scores = torch.einsum("lj,j,j->l", x, w, query)
        raw = (scores - scores.max()).exp()
        return (raw[:, None] * y).sum(0) / raw.sum()

    assert grade("23.1", average).status == "solved"


def test_the_gradient_by_autograd_is_right_and_refused():
    def gradient(x, y, query, target, w, u):
        leaf = w.clone().requires_grad_()
        loss = (u * ((x @ (leaf * query)).softmax(0) @ y) - target) ** 2 / 2
        return torch.autograd.grad(loss, leaf)[0]

    found = grade("23.4", gradient)
    assert (found.status, found.mistake) == ("mistake", "autograd")
    assert found.message.startswith("The numbers are right")
    assert grade("23.4", lambda **given: 2 * gradient(**given)).status != "solved"
    assert grade("23.4", lambda x, y, query, target, w, u: 0 * w).status != "solved"


@pytest.mark.parametrize(
    "numbers", [(0.01, 0.04, 0.04, 0.03), (0.001, 0.2, 0.2, 0.19), (0.02, 0.05, 0.05, 0.04)]
)
def test_heads_that_emerge_late_with_a_larger_factor(numbers):
    assert grade("23.5", dict(zip(("w_1", "u_1", "w_2", "u_2"), numbers, strict=True))).status == "solved"


def test_heads_that_meet_one_condition_only():
    assert grade("23.5", {"w_1": 0.01, "u_1": 0.04, "w_2": 0.04, "u_2": 0.04}).status == "wrong"
    assert grade("23.5", {"w_1": 1.0, "u_1": 4.0, "w_2": 4.0, "u_2": 3.0}).status == "wrong"
    assert grade("23.5", {"w_1": 0.01, "u_1": 0.1, "w_2": 0.011, "u_2": 0.01}).status == "wrong"


def test_rounded_numbers_count():
    assert grade("23.2", 0.5).status == grade("23.3", 13 / 5).status == "solved"
    assert grade("23.2", 0.289).mistake == "all features"
    assert grade("23.3", 2.55).status != "solved"
