"""What the figures, tables and the explorer of lesson 28 show, and answers that its checkers must tell apart."""

import math
import re
from statistics import mean

import numpy as np
import pytest
import torch

from benchmarks.flat_stretches import ADAM, RATES, SCALES, SHARES
from course_lib.lessons import in_context_regression as lesson
from course_lib.measured import measured
from course_lib.teaching.style import text_alternative
from course_lib.theory.in_context_regression import (
    gradients,
    one_head_each,
    start,
    train,
    winners,
    zero_sum_heads,
)
from tests.drawing import assert_line, line_labelled

EXERCISES = lesson.EXERCISES


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


# Training through factors


def test_equal_factors_follow_the_training_of_the_library():
    q, v = start(lesson.TASKS, 2, generator=lesson.seeded(1))
    errors, kept = lesson.followed((q[None], q[None], v[None], v[None]), steps=20, seed=3, batch=16, every=20)
    alone = train(lesson.TASKS, q, v, steps=20, batch=16, every=20, generator=lesson.seeded(3))
    # `train` has drawn one batch more for its last error, which moves nothing.
    torch.testing.assert_close(lesson.products(kept[-1])[1][0], alone.u[-1], rtol=1e-4, atol=1e-6)
    assert errors.shape == (2, 1)


def test_factors_that_differ_descend_by_the_product_rule():
    factors = [t.requires_grad_() for t in lesson.parted(3, 0.2, [0])]
    prompts = lesson.held_out(30, dtype=torch.float64)
    w, u = lesson.products(factors)
    loss = ((lesson_attention(prompts, w[0], u[0]) - prompts.target) ** 2).sum(1).mean() / 2
    slopes = torch.autograd.grad(loss, factors)
    moved = lesson.factor_descent(tuple(t.detach() for t in factors), prompts, 0.1)
    for new, old, slope in zip(moved, factors, slopes, strict=True):
        torch.testing.assert_close(new, old.detach() - 0.1 * slope, rtol=1e-9, atol=1e-12)


def lesson_attention(prompts, w, u):
    scores = torch.einsum("bj,hj,blj->bhl", prompts.query, w, prompts.x)
    return torch.einsum("hi,bhl,bli->bi", u, scores.softmax(-1), prompts.y)


def test_parted_factors_differ_by_the_share_at_most():
    q, k, o, v = lesson.parted(3, 0.02, [0, 1])
    assert q.shape == k.shape == (2, 3, 12)
    for one, other in ((q, k), (o, v)):
        assert 0.005 < float((one / other - 1).abs().max()) < 0.0417
    q, k, o, v = lesson.parted(3, 0, [0])
    assert torch.equal(q, k)
    assert torch.equal(o, v)


def test_the_first_step_below_is_counted_for_each_run():
    errors = torch.tensor([[9.0, 9.0, 5.0], [9.0, 5.0, 9.0], [5.0, 9.0, 9.0]])
    assert lesson.first_below(errors, 6, every=20) == [40, 20, 0]
    assert lesson.first_below(errors, 4, every=20) == [None] * 3


# Figures


def test_the_layer_stands_still_twice_and_leaves_while_its_twin_stays():
    curve = lesson.plot_question().axes[0].lines[0].get_ydata()
    assert min(curve[:16]) > 10
    assert max(abs(curve[40:] - 2.4)) < 0.7
    axes = lesson.plot_left().axes[0]
    errors, twin = (
        np.asarray(line_labelled(axes, name).get_ydata()) for name in ("the layer", "equal factors")
    )
    assert errors[-10:].mean() < 1.5
    assert twin[-10:].mean() > 2.2
    assert_line(line_labelled(axes, "the layer"), np.arange(0, 4001, 40), errors)


def test_idle_heads_wake_where_factors_differ_only():
    for scale in (0.05, 0.1):
        for rate in RATES:
            name = f"idle, scale {scale}, share {{}}, rate {rate}"
            assert None not in measured("idle_heads", f"{name.format(0.02)}, steps")
            assert measured("idle_heads", f"{name.format(0)}, steps") == [None] * 8
    errors = lesson.woken()
    assert float(errors[110:131].min()) > 3
    assert float(errors[-21:, 0].mean()) < 1.9
    assert float(errors[-21:, 1].min()) > 3


def test_the_columns_of_u_come_to_sum_to_nothing():
    early, late = (lesson.products(lesson.factors_at(step))[1].sum(0) for step in (1400, 4000))
    assert float(early.min()) > 1.4
    assert float(late.abs().max()) < 0.3
    table = [text.get_text() for text in lesson.plot_inside().axes[1].texts]
    assert len(table) == 12
    assert [float(text) for text in table[-3:]] == pytest.approx(late.tolist(), abs=0.06)


def test_each_head_of_the_layer_has_a_task_and_later_subtracts():
    early, late = (lesson.products(lesson.factors_at(step))[1] for step in (1400, 4000))
    assert one_head_each(early)
    assert float(early.min()) > -0.1
    assert float(late.min()) < -2
    assert torch.equal(winners(early), winners(late))


def test_sum_and_difference_cross_where_the_product_changes_its_sign():
    left, right = lesson.plot_crossing().axes
    total, gap = (np.asarray(line_labelled(left, name).get_ydata()) for name in ("$|o + v|$", "$|o - v|$"))
    at = lesson.crossing() // 20
    assert total[at - 1] > gap[at - 1]
    assert total[at] < gap[at]
    assert_line(right.lines[0], np.arange(0, 4001, 20), lesson.layer()[0][:, 0].numpy())
    assert total[20] > gap[20]
    assert total[-1] < gap[-1]


def test_the_waits_follow_the_inverse_square_with_factors_only():
    found = lesson.waits()
    for half, whole in ((0.1, 0.2), (0.05, 0.1)):
        assert mean(found["factors"][half][0]) / mean(found["factors"][whole][0]) == pytest.approx(4, abs=0.4)
        assert mean(found["direct"][half][0]) / mean(found["direct"][whole][0]) < 2
    axes = lesson.plot_waits().axes[1]
    assert_line(
        line_labelled(axes, "factors trained"),
        lesson.SIZES,
        [mean(found["factors"][s][0]) for s in lesson.SIZES],
    )


def test_larger_starts_keep_all_heads_busy_at_both_rates():
    axes = lesson.plot_allocation().axes[0]
    for rate in RATES:
        counts = [lesson.allocated(scale, "permutations", rate) for scale in SCALES]
        assert_line(line_labelled(axes, f"step size {rate:g}"), SCALES, counts)
        assert counts == sorted(counts)
        assert counts[0] <= 12
        assert counts[4] >= 23
        kept = [lesson.allocated(scale, "kept", rate) for scale in SCALES]
        assert kept == sorted(kept, reverse=True)
    assert lesson.allocated(0.25, "permutations") == 23  # as the prediction says
    # The table beside it: one head has all tasks.
    assert (lesson.small_start() > 0.5).sum(1).sort().values.tolist() == [0, 0, 3]


def test_a_tenth_of_the_difference_costs_a_fixed_number_of_steps():
    for rate in RATES:
        assert max(lesson.gaps(rate)) < (1.15 if rate == 0.05 else 2.3) * min(lesson.gaps(rate))
        assert lesson.tenfold(rate) == pytest.approx(math.log(10) / (rate * lesson.growth()), rel=0.15)
    assert mean(lesson.stays(0.02)) == pytest.approx(1470, abs=5)
    assert mean(lesson.stays(0.002)) == pytest.approx(1864, abs=5)
    axes = lesson.plot_stays().axes[0]
    for rate in RATES:
        found = [mean(lesson.stays(share, rate)) for share in SHARES]
        assert_line(line_labelled(axes, f"step size {rate:g}"), SHARES, found)


def test_the_rate_is_the_gradient_of_an_idle_gain():
    """A head on another block has the gradient u tau^2 / L."""
    w = torch.zeros(2, 12, dtype=torch.float64)
    w[0, :4], w[1, 4:8] = 0.5, 0.5
    u = torch.tensor([[1.7, 0.0, 0.0], [0.0, 1.7, 0.0]], dtype=torch.float64)
    _, _, d_u = gradients(lesson.TASKS.draw(40_000, generator=lesson.seeded(1), dtype=torch.float64), w, u)
    assert float(d_u[1, 0] + d_u[0, 1]) / 2 == pytest.approx(lesson.growth(1.7), rel=0.1)


def test_what_the_text_says_of_the_closing_table():
    def stored(arm, kind="error"):
        return measured("flat_stretches", f"{arm}, {kind}")

    rows = lesson.closing_table().data.splitlines()[2:]
    assert len(rows) == 16
    for share in SHARES:
        assert None not in stored(f"share {share}, rate 0.05", "steps")
        assert max(stored(f"share {share}, rate 0.05")) < 1.6
    for arm in ("share 0", "4 heads, share 0"):
        assert stored(f"{arm}, rate 0.05", "steps") == [None] * 5
        assert min(stored(f"{arm}, rate 0.05")) > 2.3
    assert max(stored("direct, rate 0.05", "steps")) <= 300
    assert max(stored("direct, rate 0.0125")) < 1.5
    assert min(ADAM) < lesson.best_adam() < max(ADAM)
    assert lesson.best_adam() == 0.003
    assert min(ADAM) < lesson.fastest_adam() < max(ADAM)
    assert mean(stored(f"Adam, rate {lesson.fastest_adam()}")) > mean(stored("Adam, rate 0.003"))
    assert measured("idle_heads", "only q and k differ, steps") == [None] * 5
    assert sorted(measured("idle_heads", "only q and k differ, error"))[3:] == pytest.approx(
        [2.42, 3.26], abs=6e-3
    )
    assert max(measured("idle_heads", "only o and v differ, steps")) < 2000
    waits = measured("idle_heads", "normal factors, steps")
    assert mean(waits) < min(stored("share 0.02, rate 0.05", "steps"))
    found = re.findall(r"\d+\.\d+", rows[12].split("|")[4])
    assert [float(x) for x in found] == pytest.approx(
        [f(stored("4 heads, share 0.02, rate 0.05")) for f in (mean, min, max)], abs=6e-3
    )


# The explorer


def test_the_race_has_the_answers_that_the_text_gives():
    race = lesson.RaceExplorer()
    equal = race.compute(u_1=0.06, u_2=0.06, w_2=0.04, factor=1.0)
    np.testing.assert_array_equal(equal["one"], equal["two"])
    assert equal["parts"] == [0.5, 0.5]
    smaller = race.compute(u_1=0.06, u_2=0.04, w_2=0.12, factor=1.0)
    assert smaller["parts"][1] > 0.5
    whole, half = (race.compute(u_1=0.06, u_2=0.05, w_2=0.04, factor=f) for f in (1.0, 0.5))
    assert half["half"] / whole["half"] == pytest.approx(4, abs=0.2)
    assert "head 1 carries" in race.frame(factor=0.5)[1]
    assert "exponential" in text_alternative(lesson.FIGURES["explorer"]())


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
        assert grade("28.5", form).status == "solved"


def test_the_mean_through_a_matrix_is_accepted_too():
    def average(x, y, query, w):
        scores = torch.einsum("lj,j,j->l", x, w, query)
        raw = (scores - scores.max()).exp()
        return (raw[:, None] * y).sum(0) / raw.sum()

    assert grade("28.1", average).status == "solved"


@pytest.mark.parametrize(
    "numbers", [(0.01, 0.04, 0.05, 0.005), (0.02, 0.08, 0.2, 0.0075), (0.01, 0.04, 0.0018, 0.2)]
)
def test_heads_that_emerge_late_with_a_larger_product(numbers):
    assert grade("28.2", dict(zip(("w_1", "u_1", "w_2", "u_2"), numbers, strict=True))).status == "solved"


def test_heads_that_meet_one_condition_only():
    assert grade("28.2", {"w_1": 0.01, "u_1": 0.04, "w_2": 0.04, "u_2": 0.01}).status == "wrong"
    assert grade("28.2", {"w_1": 1.0, "u_1": 4.0, "w_2": 4.0, "u_2": 3.0}).status == "wrong"
    assert grade("28.2", {"w_1": 0.01, "u_1": 0.1, "w_2": 0.011, "u_2": 0.01}).status == "wrong"


def test_rounded_numbers_count():
    assert grade("28.3", 0.5).status == "solved"
    assert grade("28.3", 0.289).mistake == "all features"
