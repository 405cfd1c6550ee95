"""What the figures and the explorer of lesson 07 show, and how its networks are set up."""

import itertools
import math

import numpy as np
import pytest
import torch

from course_lib.figures import text_alternative
from course_lib.lessons import maximal_update_parametrization as lesson
from course_lib.lessons.maximal_update_parametrization import networks
from course_lib.measured import figures, measured
from course_lib.optimization.mup import param_groups, parametrize
from tests.drawing import line_labelled

SET_UPS = list(itertools.product(networks.STARTS, networks.STEPS))


def test_the_networks_have_the_shapes_and_the_start_that_the_text_says():
    for width in (32, 512):
        model = lesson.network(width)
        assert [tuple(p.shape) for p in model.parameters()] == [(width, 8), (width, width), (1, width)]
        for p in model.parameters():
            assert float(p.detach().std()) == pytest.approx(p.shape[1] ** -0.5, rel=0.4)
    assert torch.equal(lesson.network(32)[2].weight, lesson.network(32)[2].weight)
    assert not any(p.requires_grad for p in lesson.teacher().parameters())


def test_both_halves_together_are_what_the_library_does():
    model, groups = lesson.set_up(128, start="muP", steps="muP", lr=0.25)
    theirs = parametrize(lesson.network(128), lesson.network(32))
    for ours, other in zip(model.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(ours, other)
    rates = {
        id(p): group["lr"]
        for group in param_groups(theirs, torch.optim.Adam, 0.25)
        for _, p in group["params"]
    }
    assert [group["lr"] for group in groups] == [rates[id(p)] for p in theirs.parameters()]


@pytest.mark.parametrize(("start", "steps"), SET_UPS)
def test_a_half_alone_changes_only_what_it_names(start, steps):
    model, groups = lesson.set_up(512, start=start, steps=steps, lr=1.0)
    usual = lesson.network(512)
    ratios = [
        float((p / q).detach().mean()) for p, q in zip(model.parameters(), usual.parameters(), strict=True)
    ]
    assert ratios == pytest.approx([1, 1, 0.25 if start == "muP" else 1])
    rates = [group["lr"] for group in groups]
    assert rates == ([1, 1 / 16, 1 / 16] if steps == "muP" else [1, 1, 1])
    at_base, _ = lesson.set_up(32, start=start, steps=steps, lr=1.0)
    assert all(
        torch.equal(p, q) for p, q in zip(at_base.parameters(), lesson.network(32).parameters(), strict=True)
    )


def test_the_best_exponent_is_the_lowest_point_of_a_parabola():
    exponents = np.array(lesson.EXPONENTS)
    count = len(exponents) - 1
    assert lesson.best_exponent(np.exp((exponents + 5.3) ** 2).tolist()) == pytest.approx(-5.3)
    assert lesson.best_exponent([1.0] + [2.0] * count) == -12
    assert lesson.best_exponent([2.0] * count + [1.0]) == -1
    narrow, wide = np.exp((exponents + 4.0) ** 2).tolist(), np.exp((exponents + 6.0) ** 2).tolist()
    drift, regret = lesson.drift_and_regret({32: narrow, 512: wide})
    assert drift == pytest.approx(-2)
    assert regret == pytest.approx(math.exp(4))


def test_a_slope_is_the_exponent_of_a_power_law():
    assert lesson.slope((1, 2, 8), [3.0, 6.0, 24.0]) == pytest.approx(1)
    assert lesson.slope((64, 1024), [1.0, 0.25]) == pytest.approx(-0.5)


# The stored sweep


def test_a_stored_loss_is_that_of_a_run():
    row = lesson.stored("SP", "one", 32)[1]
    found = lesson.losses(32, start="SP", steps="one", seed=1, exponents=(-8, -5))
    assert [row[4], row[7]] == pytest.approx(found, rel=0.02)


def test_every_best_step_size_lies_inside_the_sweep_and_at_the_base_all_set_ups_are_one():
    assert len(figures("width_transfer")) == len(SET_UPS)
    for start, steps in SET_UPS:
        for width in lesson.WIDTHS:
            losses = lesson.stored(start, steps, width)
            assert losses.shape == (5, len(lesson.EXPONENTS))
            assert (losses.argmin(1) > 0).all()
            assert (losses.argmin(1) < len(lesson.EXPONENTS) - 1).all()
        assert np.array_equal(lesson.stored(start, steps, 32), lesson.stored("SP", "one", 32))


def test_a_smaller_readout_can_be_tried_at_any_width():
    settings = {"steps": "muP", "seed": 1, "exponents": (-5,), "length": 5}
    usual = lesson.losses(64, start="SP", **settings)
    smaller = lesson.losses(64, start="muP", **settings)
    assert lesson.losses(64, start="SP", readout=2**-0.5, **settings) == pytest.approx(smaller)
    assert smaller != pytest.approx(usual)


def test_what_carrying_costs_is_read_off_the_sweep():
    row = measured("width_transfer", "start muP, steps one")
    for seed in range(5):
        narrow, wide = row["32"][seed], row["512"][seed]
        k = narrow.index(min(narrow))
        for shift, divided_by in ((0, 1), (2, 4), (4, 16)):
            cost = lesson.regret("muP", "one", divided_by=divided_by)[seed]
            assert cost == pytest.approx(wide[k - shift] / min(wide))
    with pytest.raises(ValueError, match="smaller than any"):
        lesson.carried("SP", "one", divided_by=4096)


def test_what_the_text_and_the_predictions_say_of_the_sweep():
    apart = [
        lesson.stored("SP", "one", 32).argmin(1) - lesson.stored("SP", "one", 512).argmin(1),
        lesson.stored("muP", "one", 32).argmin(1) - lesson.stored("muP", "one", 512).argmin(1),
    ]
    assert set(apart[0]) <= {4, 5}  # 16 or 32
    assert min(apart[1]) >= 3
    assert (lesson.regret("SP", "one", divided_by=4) > 1.3).all()
    over = {
        start: lesson.carried(start, "one", divided_by=16) / lesson.carried(start, "muP")
        for start in networks.STARTS
    }
    assert (over["muP"] > 1).all()
    assert int((over["SP"] < 1).sum()) == 4
    # A sixth seed on the page: 11
    assert (lesson.carried("SP", "one") / lesson.smallest("SP", "one", 32)).max() < 6
    wide = lesson.stored("SP", "one", 512)
    assert max(abs(np.log(wide[:, 4] / wide[:, 3]))) < np.log(1.25)  # nearly flat from 2^-8 to 2^-9
    assert (lesson.smallest("SP", "one", 512) < lesson.smallest("SP", "one", 32)).all()
    assert int((lesson.smallest("muP", "one", 512) < lesson.smallest("muP", "muP", 512)).sum()) == 3


def test_question_and_halves_draw_the_median_of_the_stored_losses():
    for axes, set_up in zip(
        [*lesson.plot_question().axes, *lesson.plot_halves().axes], [("SP", "one"), *SET_UPS], strict=True
    ):
        for width in lesson.WIDTHS:
            wanted = np.median(lesson.stored(*set_up, width) / lesson.smallest("SP", "one", 32)[:, None], 0)
            np.testing.assert_allclose(line_labelled(axes, f"width {width}").get_ydata(), wanted)
            lowest = (lesson.EXPONENTS[int(wanted.argmin())], wanted.min())
            assert any(np.allclose(line.get_xydata(), [lowest]) for line in axes.lines)


def test_the_hook_and_the_closing_picture_draw_each_seed():
    drawn = [line.get_ydata() for line in lesson.plot_hook().axes[0].lines]
    wide = lesson.carried("SP", "one") / lesson.smallest("SP", "one", 32)
    assert any(len(y) == 5 and np.allclose(y, wide) for y in drawn)
    costs, losses = lesson.plot_arms().axes
    for axes, value in (
        (costs, lambda start, steps, by: lesson.regret(start, steps, divided_by=by)),
        (
            losses,
            lambda start, steps, by: lesson.smallest(start, steps, 512) / lesson.smallest("SP", "one", 512),
        ),
    ):
        dots = [line.get_xdata() for line in axes.lines if len(line.get_xdata()) == 5]
        arms = [arm for arm in reversed(lesson.ARMS.values()) if axes is costs or arm[2] == 1]
        for found, arm in zip(dots, arms, strict=True):
            np.testing.assert_allclose(found, value(*arm))
    table = lesson.stored_table().data.splitlines()[2:]
    assert [row.split("|")[1].strip() for row in table] == list(lesson.ARMS)
    cost = lesson.regret("SP", "muP")
    assert f"{np.median(cost):.2f} ({cost.min():.2f}–{cost.max():.2f})" in table[3]


# One step


def by_autograd(width, *, init, rate, out_init, out_rate, seed):
    """The sizes of one step with the gradients of autograd, in float64."""
    r = width / 32
    U, W, v = (p.detach().double() for p in lesson.network(width, seed=seed).parameters())
    W, v = W * r ** (0.5 - init), v * r ** (0.5 - out_init)
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(3))
    wanted, x = lesson.teacher()(x).double(), x.double()
    layers = [w.requires_grad_() for w in (U, W, v)]

    def outputs(U, W, v):
        first = x @ U.T
        hidden = torch.tanh(first) @ W.T
        return first, hidden, torch.tanh(hidden) @ v.T

    before = outputs(*layers)
    gradients = torch.autograd.grad((before[2] - wanted).square().mean(), layers)
    sizes = (1.0, r**-rate, r**-out_rate)
    moved = [w - s * g.sign() / 128 for w, g, s in zip(layers, gradients, sizes, strict=True)]
    rms = lambda t: float(t.detach().square().mean().sqrt())  # noqa: E731
    first, hidden, output = (rms(a - b) for a, b in zip(outputs(*moved), before, strict=True))
    return {
        "first": first,
        "hidden": rms(before[1]),
        "change": hidden,
        "output": rms(before[2]),
        "moved": output,
    }


@pytest.mark.parametrize(
    "powers", [(0.5, 0.0, 0.5, 0.0), (0.5, 1.0, 1.0, 1.0), (0.25, 2.0, 0.0, 0.5)], ids=["SP", "muP", "other"]
)
def test_one_step_is_a_sign_step_down_the_gradient(powers):
    settings = dict(zip(("init", "rate", "out_init", "out_rate"), powers, strict=True))
    found, wanted = lesson.one_step(128, **settings, seed=2), by_autograd(128, **settings, seed=2)
    assert found == pytest.approx(
        wanted, rel=0.02
    )  # signs of tiny gradients may differ between float32 and float64


def test_all_settings_agree_at_the_base_width():
    free = {"init": 0.0, "rate": 1.75, "out_init": 0.0, "out_rate": 2.0}
    mup = {"init": 0.5, "rate": 1.0, "out_init": 1.0, "out_rate": 1.0}
    assert lesson.one_step(32, **free) == lesson.one_step(32, **mup)


@pytest.mark.parametrize(
    ("settings", "exponents"),
    [
        ({}, {"hidden": 0, "change": 0.9, "output": 0, "moved": 1.2}),
        ({"rate": 1.0}, {"change": 0, "moved": 0.6}),
        ({"rate": 1.0, "out_rate": 1.0}, {"change": 0, "moved": 0.4}),
        ({"rate": 1.0, "out_init": 1.0}, {"change": 0, "moved": 0.5}),
        (
            {"rate": 1.0, "out_rate": 1.0, "out_init": 1.0},
            {"hidden": 0, "change": 0, "output": -0.5, "moved": 0},
        ),
    ],
)
def test_the_words_give_the_powers_of_the_curves(settings, exponents):
    explorer = lesson.SizesExplorer()
    _, words = explorer.frame(**settings)
    state = explorer.compute(**explorer.settings)
    for name, exponent in exponents.items():
        fitted = lesson.slope(lesson.SIZES, explorer.artists[name].get_ydata())
        assert fitted == pytest.approx(exponent, abs=0.15), name
        assert state["exponents"][name] == pytest.approx(fitted, abs=0.051)
    e = state["exponents"]
    assert (
        f"start {e['hidden']:.1f}, its change {e['change']:.1f}; output at the start {e['output']:.1f}"
        in words
    )


def test_at_twice_the_power_the_hidden_change_levels_off():
    found = lesson.sizes_by_width(init=0.5, rate=2.0, out_init=1.0, out_rate=1.0)["change"]
    assert found[0] > 2 * found[-1]
    assert found[-1] > 0.85 * found[-2]


def test_the_words_give_no_power_where_the_curve_bends():
    explorer = lesson.SizesExplorer()
    _, words = explorer.frame(rate=2.0)
    state = explorer.compute(**explorer.settings)
    assert state["exponents"]["change"] is None
    assert "its change no straight line;" in words
    assert "output at the start 0.0," in words


def test_the_curves_stay_within_the_axes():
    explorer = lesson.SizesExplorer()
    for rate, out_rate, init, out_init in itertools.product((0.0, 2.0), (0.0, 2.0), (0.0, 1.0), (0.0, 1.5)):
        explorer.frame(rate=rate, init=init, out_init=out_init, out_rate=out_rate)
        for axes in explorer.figure.axes:
            low, high = axes.get_ylim()
            assert all(low < v < high for line in axes.lines for v in line.get_ydata())


def test_a_hidden_start_of_power_0_makes_size_and_change_grow():
    found = lesson.sizes_by_width(init=0.0, rate=1.0, out_init=1.0, out_rate=1.0)
    slopes = [lesson.slope(lesson.SIZES, found[name]) for name in ("hidden", "change")]
    assert slopes == pytest.approx([0.5, 0.17], abs=0.05)


def test_two_thirds_of_the_random_sums_end_between_the_roots():
    start, step = lesson.plot_sums().axes
    walks = [line.get_ydata() for line in start.lines if len(line.get_ydata()) < 256]
    assert len(walks) == 16
    assert sum(abs(walk[-1]) < 16 for walk in walks) == 11
    assert "11 of the 16 sums end between" in text_alternative(start.figure)
    assert all(line.get_ydata()[-1] > 180 for line in step.lines)


def test_the_broken_check_has_one_flat_line_and_the_cure_flattens_all():
    (axes,) = lesson.plot_check().axes
    found = [lesson.slope(lesson.SIZES, line.get_ydata()) for line in axes.lines]
    assert found == pytest.approx([0, 0.45, 0.4], abs=0.1)
    cured = lesson.sizes_by_width(**{**lesson.EXPLODING, "rate": 1.0})
    assert [
        lesson.slope(lesson.SIZES, cured[name]) for name in ("first", "change", "moved")
    ] == pytest.approx([0, 0, 0], abs=0.06)


def test_sign_norms_lie_between_their_ends():
    (axes,) = lesson.plot_sign_norms().axes
    for width in (64, 256):
        shares = lesson.sign_norms(width)
        np.testing.assert_allclose(
            line_labelled(axes, f"width {width}, in training").get_ydata(), shares["training"]
        )
        assert all(width**-0.5 < share <= 1 for share in [*shares["training"], shares["unrelated"]])
