"""What the pictures of lesson 06 show, what its explorer says, and how its networks are trained."""

import itertools
import math
import re
import statistics

import numpy as np
import pytest
import torch

from course_lib.lessons import steepest_descent as lesson
from course_lib.lessons.steepest_descent import rotated as closing
from course_lib.measured import measured


def boundary(p, degrees):
    direction = np.array([math.cos(math.radians(degrees)), math.sin(math.radians(degrees))])
    sizes = np.abs(direction)
    return direction / (sizes.max() if p == math.inf else (sizes**p).sum() ** (1 / p))


def test_the_explorer_says_what_a_search_along_the_boundary_finds():
    explorer = lesson.BallExplorer()
    grid = itertools.product(
        (0, 95, 207, 359), (0.0, 0.25, 0.5, 1.0), (-2.0, 0.0, 1.0), (0.0, 1.0), (False, True)
    )
    for direction, inverse, first, second, reveal in grid:
        _, words = explorer.frame(
            direction=direction, inverse=inverse, first=first, second=second, reveal=reveal
        )
        p = 1 / inverse if inverse else math.inf
        gradient = np.array([first, second])
        own = boundary(p, direction)
        said = re.search(
            r"your step \((-?[\d.]+), (-?[\d.]+)\) changes the linear model by (-?[\d.]+)\.", words
        )
        assert [float(x) for x in said.groups()] == pytest.approx([*own, gradient @ own], abs=0.0051)
        found = re.search(r"lowest step is \((-?[\d.]+), (-?[\d.]+)\), with (-?[\d.]+)\.", words)
        assert (found is not None) == (reveal and gradient.any())
        if found:
            values = np.array([gradient @ boundary(p, degrees) for degrees in np.arange(0, 360, 0.5)])
            a, b, lowest = (float(x) for x in found.groups())
            assert lowest == pytest.approx(values.min(), abs=0.0051)
            assert first * a + second * b == pytest.approx(lowest, abs=0.03)
            several = (values < values.min() + 1e-9).sum() > 1
            assert several == ("Others are as low" in words)


@pytest.mark.parametrize("mixed", [False, True])
def test_gradients_are_those_of_autograd(mixed):
    problem = closing.problems((3, 4), mixed=mixed)
    losses, *found = closing.gradients(problem.x, problem.y, problem.first, problem.second)
    for k in range(2):
        layers = [W[k].clone().requires_grad_() for W in (problem.first, problem.second)]
        loss = (torch.tanh(problem.x[k] @ layers[0].T) @ layers[1].T - problem.y[k]).square().mean()
        wanted = torch.autograd.grad(loss, layers)
        assert float(losses[k]) == pytest.approx(float(loss.detach()), rel=1e-12)
        for ours, theirs in zip(found, wanted, strict=True):
            assert torch.allclose(ours[k], theirs, rtol=1e-9, atol=1e-12)


def test_changes_of_the_inputs_keep_the_function_at_the_start():
    problem = closing.problems((1,))
    turned = closing.rotated(problem)
    same = problem.x @ problem.first.mT
    others = (closing.standardised, closing.whitened, closing.on_principal_axes)
    for one in (turned, *(change(p) for change in others for p in (problem, turned))):
        assert torch.allclose(one.x @ one.first.mT, same, atol=1e-9)
    assert not torch.allclose(turned.x, problem.x, atol=0.1)


def test_on_principal_axes_the_second_moments_are_diagonal_and_a_rotation_changes_the_signs_of_axes_only():
    problem = closing.problems((1,))
    one, other = (closing.on_principal_axes(p).x[0] for p in (problem, closing.rotated(problem)))
    moments = one.T @ one / len(one)
    assert torch.allclose(moments, torch.diag(moments.diagonal()), atol=1e-9)
    assert float(moments.diagonal().max() / moments.diagonal().min()) > 1000
    assert torch.allclose(one.abs(), other.abs(), atol=1e-8)


def test_whitened_inputs_have_no_second_moments_but_one_and_turn_with_a_rotation():
    problem = closing.problems((1,))
    white = closing.whitened(problem).x[0]
    assert torch.allclose(white.T @ white / len(white), torch.eye(16, dtype=torch.float64), atol=1e-9)
    turned = closing.whitened(closing.rotated(problem)).x
    assert torch.allclose(turned, closing.whitened(problem).x @ problem.turn.mT, atol=1e-8)
    sizes = closing.standardised(problem).x.square().mean(1)
    assert torch.allclose(sizes, torch.ones(1, 16, dtype=torch.float64))


def test_an_l2_step_on_whitened_inputs_is_the_steepest_step_in_the_norm_of_the_outputs():
    """The first layer moves by G C^(-1), scaled to length 1 in the norm ||D C^(1/2)||."""
    problem = closing.problems((1,))
    white = closing.whitened(problem)
    _, gradient, _ = closing.gradients(problem.x, problem.y, problem.first, problem.second)
    _, in_white, _ = closing.gradients(white.x, white.y, white.first, white.second)
    moments = problem.x[0].T @ problem.x[0] / closing.POINTS
    values, vectors = torch.linalg.eigh(moments)
    back = vectors @ torch.diag(values**-0.5) @ vectors.T
    step = closing.DIRECTIONS["l2"](in_white)[0] @ back
    wanted = gradient[0] @ torch.linalg.inv(moments)
    assert torch.allclose(step, wanted / (wanted @ torch.linalg.inv(back)).norm(), atol=1e-6)


@pytest.mark.parametrize(("method", "momentum"), [("gradient", 0.9), ("sign", 0.0), ("adam", 0.0)])
def test_training_is_that_of_torch(method, momentum, monkeypatch):
    monkeypatch.setattr(closing, "STEPS", 5)
    problem = closing.problems((2,))
    losses = closing.train(problem, method, [0.01, 0.02], momentum=momentum)[:, 0, 1]
    layers = [W[0].clone().requires_grad_() for W in (problem.first, problem.second)]
    optimizer = (
        torch.optim.Adam(layers, lr=0.02)
        if method == "adam"
        else torch.optim.SGD(layers, lr=0.02, momentum=momentum)
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 5)
    for step in range(6):
        loss = (torch.tanh(problem.x[0] @ layers[0].T) @ layers[1].T - problem.y[0]).square().mean()
        assert float(losses[step]) == pytest.approx(float(loss.detach()), rel=1e-6)
        optimizer.zero_grad()
        loss.backward()
        if method == "sign":
            for W in layers:
                W.grad = W.grad.sign()
        optimizer.step()
        if step < 5:
            schedule.step()


def test_mixing_all_weights_changes_the_spectral_run_and_not_the_l2_run(monkeypatch):
    monkeypatch.setattr(closing, "STEPS", 10)
    plain, mixed = closing.problems((0,)), closing.problems((0,), mixed=True)

    def last(problem, method):
        return float(closing.train(problem, method, [0.5])[-1])

    assert last(plain, "l2") == pytest.approx(last(mixed, "l2"), rel=1e-9)
    assert abs(last(plain, "spectral") - last(mixed, "spectral")) > 0.01


def test_signs_on_rotated_inputs_end_higher_at_the_size_that_is_best_there_too():
    plain, turned = lesson.live_losses()["sign step"]
    assert float(plain[-1]) < float(lesson.retuned_sign_losses()[-1]) < float(turned[-1])


def test_the_picture_of_the_first_step_is_what_each_norm_leaves_unread():
    on_axes, turned = (lesson.descent_by_input("sign", rotate=rotate) for rotate in (False, True))
    assert on_axes.shape == (5, 16)
    assert float(on_axes.min()) > 0.6 > 0.3 > float(turned[:, 8:].mean(1).max())
    for method in ("l2", "spectral"):
        same = [lesson.descent_by_input(method, rotate=rotate) for rotate in (False, True)]
        assert torch.allclose(*same, atol=1e-9)


def columns():
    """Yield whether there is momentum, the kind of inputs, and the arms of that column."""
    for momentum in (False, True):
        for kind in ("axes", "rotated") if momentum else ("axes", "rotated", "mixed"):
            arms = ("L2 step", "sign step", "spectral step") if kind == "mixed" else lesson.ROWS
            yield momentum, kind, [arm for arm in arms if momentum or arm != "Adam"]


def figures(arm, kind, momentum):
    return measured("rotated", f"{arm}{', momentum' if momentum and arm != 'Adam' else ''}, {kind}")


def by_layer(arm, kind):
    return measured("rotated_layers", f"{arm}, {kind}")


def test_the_stored_losses_are_drawn():
    three = [(arm, kind) for arm in list(lesson.EACH_LAYER)[:3] for kind in ("axes", "rotated")]
    five = [(arm, kind) for arm in list(lesson.EACH_LAYER)[:5] for kind in ("rotated", "raw teacher")]
    for plot, wanted in (
        (lesson.plot_stored, [*three, ("spectral step", "mixed")]),
        (lesson.plot_rivals, five),
    ):
        lines = [line for axes in plot().axes for line in axes.lines]
        drawn = [sorted(line.get_xdata()) for line in lines if len(line.get_xdata()) == 5]
        assert sorted(drawn) == sorted(sorted(by_layer(*one)["losses"]) for one in wanted)


def test_the_stored_losses_are_in_the_tables():
    def cell(losses):
        losses = sorted(losses)
        return f"{losses[2]:.3f} ({losses[0]:.3f}–{losses[4]:.3f})"

    rows = [row.split("|")[2:-1] for row in lesson.stored_table().data.splitlines()[2:]]
    for column, (momentum, kind, arms) in enumerate(columns()):
        for arm, row in zip(lesson.ROWS, rows, strict=True):
            wanted = cell(figures(arm, kind, momentum)["losses"]) if arm in arms else ""
            assert row[column].strip() == wanted
    rows = [row.split("|")[2:-1] for row in lesson.layer_table().data.splitlines()[2:]]
    for row, (arm, kinds) in zip(rows, lesson.EACH_LAYER.items(), strict=True):
        for said, kind in zip(row, lesson.KINDS, strict=True):
            assert said.strip() == (cell(by_layer(arm, kind)["losses"]) if kind in kinds else "")


def test_all_neighbours_of_the_best_pair_of_step_sizes_were_tried():
    for arm, kinds in lesson.EACH_LAYER.items():
        for kind in kinds:
            found = by_layer(arm, kind)
            size, ratio = (round(math.log2(found[f"best {name}"])) for name in ("step size", "ratio"))
            tried = found["mean loss by log2 of step size and ratio"]
            around = {f"{a}, {b}" for a in range(size - 1, size + 2) for b in range(ratio - 1, ratio + 2)}
            assert around <= set(tried)
            lowest = min(mean for mean in tried.values() if mean is not None)
            assert tried[f"{size}, {ratio}"] == lowest
            assert lowest == pytest.approx(statistics.mean(found["losses"]), abs=1e-4)


def test_a_ratio_is_the_second_layers_step_over_the_firsts(monkeypatch):
    monkeypatch.setattr(closing, "STEPS", 1)
    problem = closing.problems((2,))
    _, *gradients = closing.gradients(problem.x, problem.y, problem.first, problem.second)
    moved = [
        W - size * G.sign()
        for W, size, G in zip((problem.first, problem.second), (0.1, 0.1 * 0.25), gradients, strict=True)
    ]
    wanted = closing.gradients(problem.x, problem.y, *moved)[0]
    losses = closing.train(problem, "sign", [0.3, 0.1], ratios=[1.0, 0.25])
    assert float(losses[-1, 0, 1]) == pytest.approx(float(wanted), rel=1e-9)


def test_a_teacher_on_the_raw_inputs_uses_the_large_ones():
    """The share of the outputs that a linear fit to the eight smallest inputs explains."""
    shares = []
    for raw in (False, True):
        problem = closing.problems((0, 1, 2), raw_teacher=raw)
        small = problem.x[:, :, 8:] / closing.SCALES[8:]
        fit = small @ torch.linalg.lstsq(small, problem.y).solution
        shares.append(float(fit.square().sum() / problem.y.square().sum()))
    assert shares[0] > 0.2 > 0.05 > shares[1]


def test_every_best_step_size_lies_inside_its_sweep():
    for momentum, kind, arms in columns():
        for arm in arms:
            found = figures(arm, kind, momentum)
            tried = [float(size) for size in found["mean loss by step size"]]
            assert min(tried) < found["best step size"] < max(tried)


def test_what_the_text_says_of_the_table():
    def span(arm, kind="rotated", *, momentum=False):
        losses = figures(arm, kind, momentum)["losses"]
        return min(losses), max(losses)

    def overlap(one, other):
        return one[0] <= other[1] and other[0] <= one[1]

    for momentum in (False, True):
        assert overlap(span("sign step", momentum=momentum), span("L2 step", momentum=momentum))
        assert span("sign step", "axes", momentum=momentum)[1] < span("L2 step", "axes", momentum=momentum)[0]
        white, spectral = (
            span("L2 step, inputs whitened", momentum=momentum),
            span("spectral step", momentum=momentum),
        )
        assert white[1] < spectral[0]
        assert spectral[1] < span("L2 step", momentum=momentum)[0]
    assert span("spectral step, inputs whitened")[1] < span("L2 step, inputs whitened")[0]
    assert overlap(
        span("spectral step, inputs whitened", momentum=True), span("L2 step, inputs whitened", momentum=True)
    )
    with_signs, with_l2 = (figures(arm, "rotated", True)["losses"] for arm in ("sign step", "L2 step"))
    assert all(one < other for one, other in zip(with_signs, with_l2, strict=True))
    assert overlap(span("spectral step", "mixed"), span("L2 step", "mixed"))
    middle = {
        (0.249, "L2 step", "axes"),
        (0.088, "spectral step", "axes"),
        (0.017, "spectral step, inputs whitened", "rotated"),
        (0.031, "L2 step, inputs whitened", "rotated"),
    }
    for said, arm, kind in middle:
        assert round(statistics.median(figures(arm, kind, False)["losses"]), 3) == said
    for momentum, kind in itertools.product((False, True), ("axes", "rotated")):
        with_signs, with_l2 = (
            statistics.median(figures(f"{arm} step, inputs whitened", kind, momentum)["losses"])
            for arm in ("sign", "L2")
        )
        assert with_signs > with_l2
    assert span("Adam", "axes")[1] < span("Adam")[0]
    assert overlap(span("Adam"), span("L2 step", momentum=True))


def test_what_the_text_says_of_runs_with_a_size_for_each_layer():
    def span(arm, kind="rotated"):
        losses = by_layer(arm, kind)["losses"]
        return min(losses), max(losses)

    def overlap(one, other):
        return one[0] <= other[1] and other[0] <= one[1]

    middle = {
        (0.203, "L2 step", "axes"),
        (0.042, "spectral step", "axes"),
        (0.012, "spectral step", "raw teacher"),
        (0.030, "L2 step", "raw teacher"),
        (0.014, "spectral step, inputs whitened", "rotated"),
        (0.014, "L2 step, inputs whitened", "rotated"),
    }
    for said, arm, kind in middle:
        assert round(statistics.median(by_layer(arm, kind)["losses"]), 3) == said
    for arm in ("sign step", "spectral step"):  # the leads are smaller with one size for both layers
        one, two = (
            [a / b for a, b in zip(of("L2 step")["losses"], of(arm)["losses"], strict=True)]
            for of in (lambda arm: figures(arm, "axes", False), lambda arm: by_layer(arm, "axes"))
        )
        assert all(a < b for a, b in zip(one, two, strict=True))
    assert overlap(span("sign step, principal axes"), span("sign step", "axes"))
    white = span("L2 step, inputs whitened")[1]
    assert white < min(span("sign step, principal axes")[0], span("spectral step")[0])
    assert overlap(span("sign step, principal axes", "raw teacher"), span("L2 step", "raw teacher"))
    assert span("spectral step", "raw teacher")[1] < span("L2 step", "raw teacher")[0]
    assert overlap(span("spectral step, inputs whitened"), span("L2 step, inputs whitened"))
