"""What the pictures of lesson 08 show, what its explorer says, and how its facts are learned."""

import re
import statistics
from functools import cache

import numpy as np
import pytest
import torch

from course_lib.lessons import newton_schulz_and_muon as lesson
from course_lib.lessons.newton_schulz_and_muon import facts
from course_lib.measured import measured
from course_lib.optimization.muon import Muon
from course_lib.optimization.newton_schulz import (
    CUBIC,
    JORDAN,
    minimax_composition,
    minimax_quintic,
    orthogonality_error,
    orthogonalize,
    polar_express,
)
from tests.drawing import assert_line, line_labelled


@cache
def figure(name):
    return lesson.FIGURES[name]()


def numbers(line):
    return np.asarray(line.get_ydata(), dtype=float)


def repeated(values, quintics):
    for a, b, c in quintics:
        values = a * values + b * values**3 + c * values**5
    return values


def spectrum():
    f = np.arange(1, 65) ** -1.5
    return f / np.linalg.norm(f)


def test_the_memory_s_gradient_has_the_frequencies_as_singular_values():
    G = lesson.memory_gradient()
    assert torch.linalg.svdvals(G).numpy() == pytest.approx(spectrum(), abs=1e-12)
    keys, values = facts.keys_and_values(0)
    W = torch.zeros(64, 64, dtype=torch.float64, requires_grad=True)
    (facts.frequencies() * (W @ keys - values).square().sum(0)).sum().mul(0.5).backward()
    assert torch.allclose(W.grad / W.grad.norm(), G, atol=1e-12)


def test_three_steps_of_both_recipes():
    axes = figure("three_steps").axes[0]
    for label, recipe in (
        ("before", []), ("one cubic, 3 times", [CUBIC] * 3), ("changing, 3 steps", polar_express(6)[:3]),
    ):  # fmt: skip
        assert_line(line_labelled(axes, label), np.arange(1, 65), repeated(spectrum(), recipe))


def test_the_race_is_that_of_the_matrices_at_the_same_number_of_products():
    axes = figure("race").axes[0]
    G = lesson.memory_gradient()
    quintics, cubic = axes.lines[:2]
    assert numbers(cubic)[0] == numbers(quintics)[0] == pytest.approx(float(orthogonality_error(G)))
    assert list(quintics.get_xdata()) == list(range(0, 19, 3))
    assert list(cubic.get_xdata()) == list(range(0, 19, 2))
    for line, recipe in ((quintics, polar_express(6)), (cubic, [CUBIC] * 9)):
        for steps in range(1, len(recipe) + 1):
            found = orthogonalize(G, steps, coefficients=recipe[:steps], norm="frobenius")
            assert numbers(line)[steps] == pytest.approx(float(orthogonality_error(found)), rel=1e-6)


def test_the_climb_is_that_of_the_cubic():
    lines = figure("climb").axes[0].lines[:7]
    for steps, line in zip(range(0, 19, 3), lines, strict=True):
        assert_line(line, np.arange(1, 65), repeated(spectrum(), [CUBIC] * steps))


def test_jordan_s_quintic_stays_restless_and_the_cubic_arrives():
    near, error = figure("restless").axes
    x, y = near.lines[2].get_data()
    for k in range(0, len(x) - 1):  # a move up or down to the curve, or across to the diagonal
        assert x[k] == x[k + 1] or y[k] == y[k + 1]
    s = 0.9
    for _ in range(40):
        s = repeated(s, [JORDAN])
    assert y[-1] == pytest.approx(s)
    cubic, jordan = (numbers(line_labelled(error, name)) for name in ("cubic", "Jordan's quintic"))
    assert jordan[5:].min() > 0.3
    assert cubic[20] < 1e-3 < jordan[5] < cubic[12]
    products = [line_labelled(error, name).get_xdata()[1] for name in ("cubic", "Jordan's quintic")]
    assert products == [2, 3]


def test_from_0_9_jordan_s_quintic_ends_in_a_cycle_of_four():
    s, seen = 0.9, []
    for _ in range(200):
        s = repeated(s, [JORDAN])
        seen.append(round(s, 9))
    assert seen[-4:] == seen[-8:-4]
    assert len(set(seen[-4:])) == 4


def test_the_best_quintic_touches_its_band_four_times():
    axes = figure("quintic").axes[0]
    _, error = minimax_quintic(0.1, 1)
    touched = numbers(line_labelled(axes, "four points"))
    np.testing.assert_allclose(touched - 1, error * np.array([-1, 1, -1, 1]), atol=1e-9)
    best = line_labelled(axes, "best quintic")
    x = np.asarray(best.get_xdata())
    assert abs(numbers(best)[(x >= 0.1) & (x <= 1)] - 1).max() <= error + 1e-9


def test_the_composition_closes_in():
    left, right = figure("composition").axes
    quintics, _ = minimax_composition(1e-3, 6)
    for steps, line in enumerate(left.lines[:7]):
        assert_line(line, np.arange(1, 65), repeated(spectrum(), quintics[:steps]))
    for steps, bar in enumerate(right.lines[1:7], start=1):
        error = minimax_composition(1e-3, steps)[1]
        assert numbers(bar).tolist() == pytest.approx([1 - error, 1 + error], abs=2e-3)


def test_batches_hold_what_was_drawn():
    for axes, batch in zip(figure("batches").axes, (16, 64, 256), strict=True):
        dots = axes.lines[1]
        drawn = numbers(dots) * batch
        assert drawn == pytest.approx(drawn.round(), abs=1e-9)
        assert drawn.sum() == pytest.approx(batch)
        assert f"{64 - len(drawn)} of 64 are 0" in [text.get_text() for text in axes.texts]


def arm_losses(arm, batch):
    return measured("flat_step", f"{arm}, batch {batch}")["losses"]


def test_the_stored_losses_are_drawn_and_in_the_table():
    lines = figure("flatness").axes[0].lines
    dots = sorted(sorted(numbers(line)) for line in lines if len(line.get_xdata()) == 20)
    arms = [arm for arm in facts.ARMS if arm not in (facts.QUINTICS, facts.MOMENTUM)]
    assert dots == sorted(sorted(arm_losses(arm, batch)) for arm in arms for batch in (16, 64, 256))
    means = [numbers(line) for line in lines if len(line.get_xdata()) == len(arms)]
    for batch, mean in zip((16, 64, 256), means, strict=True):
        assert mean.tolist() == pytest.approx([statistics.mean(arm_losses(arm, batch)) for arm in arms])
    stars = [float(numbers(line)[0]) for line in lines if line.get_marker() == "*"]
    assert stars == [statistics.mean(arm_losses(facts.QUINTICS, batch)) for batch in (16, 64, 256)]
    rows = [row.split("|")[1:-1] for row in lesson.stored_table().data.splitlines()[2:]]
    assert [row[0].strip() for row in rows] == list(facts.ARMS)
    for row in rows:
        for cell, batch in zip(row[1:], ("16", "64", "256", "1024", "all"), strict=True):
            mean = statistics.mean(arm_losses(row[0].strip(), batch))
            lowest = min(statistics.mean(arm_losses(arm, batch)) for arm in facts.ARMS)
            shown = cell.split("(")[0].strip()
            assert shown.startswith("**") == (mean == lowest)
            if mean < 1e-8:
                assert shown.strip("*") == "< 1e-8"
            else:
                assert float(shown.strip("*")) == pytest.approx(mean, rel=0.05)


def test_a_partly_flattened_step_has_the_lowest_mean_at_each_batch_size_shown():
    for batch, worse in ((16, facts.EXACT), (64, facts.EXACT), (256, "0 cubic steps")):
        means = {arm: statistics.mean(arm_losses(arm, batch)) for arm in lesson.PLACES}
        assert min(means, key=means.get) not in ("0 cubic steps", facts.EXACT)
        assert max(means, key=means.get) == worse
        assert measured("flat_step", f"{facts.EXACT}, batch {batch}")["momentum"] == 0


def test_every_best_rate_and_momentum_lies_inside_what_was_tried():
    for arm in facts.ARMS:
        for batch in ("16", "64", "256", "1024", "all"):
            found = measured("flat_step", f"{arm}, batch {batch}")
            low, high = found["chosen among rates"]
            assert low < found["rate"] < high
            assert found["momentum"] < 0.98  # no momentum at all is an end that nothing lies beyond


def test_only_seeds_that_chose_nothing_are_reported():
    found = measured("flat_step", "6 cubic steps, batch 64")
    drawn = facts.shares(range(10, 30), 64)
    again = facts.loss(facts.train("6 cubic steps", drawn, [found["rate"]], momentum=found["momentum"]))
    assert again[:, 0].tolist() == pytest.approx(found["losses"], rel=1e-3, abs=2e-7)


def test_at_a_constant_rate_of_one_a_flat_step_puts_each_drawn_fact_on_its_value():
    drawn = facts.shares([0], 16)
    left = facts.train(facts.EXACT, drawn, [1.0], momentum=0.0, falls=False)[0, 0]
    assert torch.equal(left, -(drawn[0].sum(0) == 0).to(left.dtype))
    fallen = facts.train(facts.EXACT, drawn, [1.0], momentum=0.0)[0, 0]
    assert not torch.equal(fallen, left)


def test_a_fact_can_be_kept_from_moving_outside_its_batches():
    drawn = facts.shares([3], 16)
    free = facts.train(facts.EXACT, drawn, [0.1], momentum=0.5)
    held = facts.train(facts.EXACT, drawn, [0.1], momentum=0.5, only_drawn=True)
    once = (drawn[0] > 0).sum(0) == 1
    when = (drawn[0] > 0).int().argmax(0)
    assert once.any()
    assert torch.allclose(held[0, 0, once] + 1, 0.1 * (1 - when[once] / 50).double())  # one step each
    assert not torch.allclose(free[0, 0, once], held[0, 0, once])
    without = [
        facts.train(facts.EXACT, drawn, [0.1], momentum=0.0, only_drawn=only) for only in (False, True)
    ]
    assert torch.equal(*without)


@pytest.mark.parametrize(
    "arm", ["0 cubic steps", "3 cubic steps", facts.EXACT, facts.QUINTICS, facts.MOMENTUM]
)
def test_64_numbers_are_followed_as_the_matrix_goes(arm, monkeypatch):
    monkeypatch.setattr(facts, "STEPS", 12)
    drawn = facts.shares([3], 64)
    rate = 8.0 if arm == facts.MOMENTUM else 0.2
    W = facts.train_matrix(arm, drawn[0], rate, momentum=0.5, seed=3)
    keys, values = facts.keys_and_values(3)
    remaining = facts.train(arm, drawn, [0.01, rate], momentum=0.5)[0, 1]
    diagonal = values.T @ (W @ keys - values)
    assert torch.allclose(diagonal, remaining.diag(), atol=1e-8)


def test_the_matrix_goes_as_with_muon(monkeypatch):
    """The library's optimiser takes these steps, with momentum, Nesterov's look ahead and five of Jordan's quintics."""
    monkeypatch.setattr(facts, "STEPS", 8)  # steep quintics multiply rounding from step to step
    drawn = facts.shares([4], 256)[0]
    wanted = facts.train_matrix(facts.QUINTICS, drawn, 0.1, momentum=0.5, seed=4)
    keys, values = facts.keys_and_values(4)
    W = torch.zeros(64, 64, dtype=torch.float64, requires_grad=True)
    optimizer = Muon(
        [W], lr=0.1, momentum=0.5, weight_decay=0.0, compute_dtype=torch.float64,
        ns_coefficients="jordan", ns_norm="frobenius",
    )  # fmt: skip
    for t, share in enumerate(drawn):
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - t / 8)
        W.grad = ((W.detach() @ keys - values) * share) @ keys.T
        optimizer.step()
    assert torch.allclose(W.detach(), wanted, atol=1e-8)


def test_shares_are_those_of_a_sampler():
    drawn = facts.shares([0, 1], 1024)
    assert drawn.shape == (2, 50, 64)
    assert torch.allclose(drawn.sum(-1), torch.ones(2, 50, dtype=torch.float64))
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.allclose(drawn.mean((0, 1)), facts.frequencies(), atol=0.005)


def test_what_is_never_drawn_is_a_floor_of_the_loss():
    for batch in (16, 64):
        floor = lesson.never_drawn(batch)
        expected = float((facts.frequencies() * (1 - facts.frequencies()) ** (50 * batch)).sum())
        assert floor == pytest.approx(expected, rel=0.35)
        assert all(statistics.mean(arm_losses(arm, batch)) > floor for arm in facts.ARMS)


def test_the_gram_matrix_computed_once_runs_away():
    X = lesson.with_singular_values(lesson.harmonic(128), 128, 512)
    start = X / torch.linalg.matrix_norm(X @ X.T).sqrt()
    exact = lesson.gram_once(start, polar_express(5))
    assert torch.allclose(exact, orthogonalize(X, form="plain"), atol=1e-6)
    once = lesson.gram_once(start.bfloat16(), polar_express(5)).double()
    assert float(torch.linalg.matrix_norm(once, ord=2)) > 1000


def table_lines():
    return lesson.measured_table().data.splitlines()


def test_the_table_holds_every_measured_number():
    header, _, *rows = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in table_lines()]
    assert header[:4] == ["method", "256 x 256", "1024 x 1024", "4096 x 1024"]
    wanted = [
        [name, *("" if value is None else f"{value:.2g}" for value in lesson.stored_row(method))]
        for name, method in lesson.METHODS.items()
    ]
    assert rows == wanted


def test_times_below_the_decompositions_are_bold():
    for line, row in zip(table_lines()[2:], map(lesson.stored_row, lesson.METHODS.values()), strict=True):
        bold = [cell.strip().startswith("**") for cell in line.split("|")[2:5]]
        assert bold == [value is not None and value < 0.95 for value in row[:3]]


@pytest.mark.parametrize(("start", "ends"), [(0.05, 1), (1.7, 1), (1.8, -1), (2.0, -1), (2.15, 1), (2.22, 1)])
def test_the_explorer_says_where_the_path_of_the_cubic_ends(start, ends):
    words = lesson.CobwebExplorer().frame(start=start, steps=20)[1]
    assert float(re.search(r"ends at (-?[\d.]+);", words)[1]) == pytest.approx(ends, abs=0.01)


def test_the_first_task_takes_ten_steps():
    explorer = lesson.CobwebExplorer()
    ends = [explorer.compute(steps=n, start=0.01, a=1.5, b=-0.5, c=0.0)["end"] for n in (9, 10)]
    assert ends[0] < 0.5 < ends[1]


@pytest.mark.parametrize("settings", [(1.5, -0.5, 0.0), (3.45, -4.75, 2.05), (4.0, 0.0, 3.0)])
def test_the_explorer_says_what_it_draws(settings):
    a, b, c = settings
    explorer = lesson.CobwebExplorer()
    state = explorer.compute(steps=5, start=0.2, a=a, b=b, c=c)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = repeated(spectrum(), [settings] * 5)
    words = explorer.words(state)
    if np.nanmax(abs(expected)) < 50 and not np.isnan(expected).any():
        low, high = re.search(r"lie between (-?[\d.]+) and (-?[\d.]+)\.$", words).groups()
        assert [float(low), float(high)] == pytest.approx([expected.min(), expected.max()], rel=0.06)
        assert state["now"][1].numpy() == pytest.approx(abs(expected), abs=1e-9)
        assert state["end"] == pytest.approx(repeated(0.2, [settings] * 5), abs=1e-9)
    else:
        assert "left the picture in part" in words
    assert "No step yet" in explorer.words(explorer.compute(steps=0, start=0.2, a=a, b=b, c=c))
