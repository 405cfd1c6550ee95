"""What the figures and the explorer of lesson 05 show."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from course_lib.lessons import maximal_update_parametrization as lesson
from course_lib.optimization.mup import rounding_loss
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_labels, assert_legend, assert_line, line_labelled


def test_the_networks_have_the_shapes_and_the_start_that_the_text_says():
    for width in (32, 512):
        model = lesson.network(width)
        assert [tuple(p.shape) for p in model.parameters()] == [(width, 8), (width, width), (1, width)]
        for p in model.parameters():
            assert float(p.detach().std()) == pytest.approx(p.shape[1] ** -0.5, rel=0.4)
    assert torch.equal(lesson.network(32)[2].weight, lesson.network(32)[2].weight)
    assert not any(p.requires_grad for p in lesson.teacher().parameters())


def test_the_transfer_experiment_reaches_what_the_lesson_claims():
    drift, regret = lesson.drift_and_regret(lesson.transfer()["muP"])
    assert abs(drift) <= 1
    assert 1 <= regret <= 1.1
    drift, regret = lesson.drift_and_regret(lesson.transfer()["SP"])
    assert drift <= -3
    assert regret >= 1.5
    # At the base width the two are one and the same.
    assert lesson.transfer()["SP"][32] == lesson.transfer()["muP"][32]


def test_the_best_exponent_is_the_lowest_point_of_a_parabola():
    exponents = np.array(lesson.EXPONENTS)
    assert lesson.best_exponent(np.exp((exponents + 5.3) ** 2).tolist()) == pytest.approx(-5.3)
    assert lesson.best_exponent([1.0] + [2.0] * 8) == -10
    assert lesson.best_exponent([2.0] * 8 + [1.0]) == -2
    narrow, wide = np.exp((exponents + 4.0) ** 2).tolist(), np.exp((exponents + 6.0) ** 2).tolist()
    drift, regret = lesson.drift_and_regret({32: narrow, 512: wide})
    assert drift == pytest.approx(-2)
    assert regret == pytest.approx(math.exp(4))


def test_question_and_transfer_draw_the_measured_losses():
    (question,) = lesson.plot_question().axes
    standard, maximal = lesson.plot_transfer().axes
    for axes, name in ((question, "SP"), (standard, "SP"), (maximal, "muP")):
        assert_legend(axes, [f"width {width}" for width in lesson.WIDTHS])
        for width, losses in lesson.transfer()[name].items():
            assert_line(line_labelled(axes, f"width {width}"), lesson.EXPONENTS, losses)
            lowest = (lesson.EXPONENTS[int(np.argmin(losses))], min(losses))
            assert any(np.allclose(line.get_xydata(), [lowest]) for line in axes.lines)
    assert_labels(
        maximal, x="$\\log_2$ of Adam's step size", y="test loss", title="Maximal update parametrization"
    )
    made_up = {32: [1.0] * 8 + [0.5], 512: [0.5] + [1.0] * 8}
    assert "a drift of -8.0 octaves" in text_alternative(
        lesson.plot_transfer({"SP": made_up, "muP": made_up})
    )


def test_the_coordinate_check_is_flat_under_mup_only():
    for optimizer, lr in ((torch.optim.Adam, 2**-6), (torch.optim.SGD, 2**-4)):
        found = lesson.coordinates(optimizer, lr)
        exponents = {
            name: [abs(lesson.slope(lesson.COORDINATE_WIDTHS, sizes)) for sizes in layers.values()]
            for name, layers in found.items()
        }
        assert max(exponents["muP"]) <= 0.25
        assert max(exponents["SP"]) >= 0.5
    standard, maximal = lesson.plot_coordinates().axes
    for axes, name in ((standard, "SP"), (maximal, "muP")):
        for line, sizes in zip(axes.lines, lesson.coordinates()[name].values(), strict=True):
            assert_line(line, lesson.COORDINATE_WIDTHS, sizes)
            assert line.get_label().endswith(f"{lesson.slope(lesson.COORDINATE_WIDTHS, sizes):+.2f}")
    hidden = lesson.coordinates()["SP"]["2"]
    assert hidden[-1] / hidden[0] > 10  # the answer of prediction 05.P1


def test_a_slope_is_the_exponent_of_a_power_law():
    assert lesson.slope((1, 2, 8), [3.0, 6.0, 24.0]) == pytest.approx(1)
    assert lesson.slope((64, 1024), [1.0, 0.25]) == pytest.approx(-0.5)


def test_rounding_draws_error_and_zeros():
    left, right = lesson.plot_rounding().axes
    dims = 2.0 ** np.arange(0, 19, 2)
    zeros = line_labelled(right, "fp8 e4m3").get_ydata()
    # Half of the distance to the smallest number, 2^-9, is rounded to zero.
    expected = [100 * math.erf(2**-10 * math.sqrt(d / 2)) for d in dims]
    np.testing.assert_allclose(zeros, expected, atol=0.01)
    errors = line_labelled(left, "bf16").get_ydata()
    lost, _ = rounding_loss(lesson.normal_grid(), torch.bfloat16)
    assert errors[0] == pytest.approx(100 * lost)
    assert np.ptp(errors) < 1e-9
    assert_legend(left, ["bf16", "fp8 e4m3", "fp8 e5m2"])


def test_the_normal_grid_has_the_moments_of_a_normal_variable():
    grid = lesson.normal_grid()
    assert float(grid.mean()) == pytest.approx(0, abs=1e-12)
    assert float(grid.square().mean()) == pytest.approx(1, abs=1e-3)
    assert float((grid.abs() < 1).double().mean()) == pytest.approx(math.erf(1 / math.sqrt(2)), abs=1e-4)


# The explorer


def test_one_step_is_that_of_autograd_on_the_whole_network():
    width, setting = 128, {"init": 0.3, "rate": 0.6, "out_init": 0.8, "out_rate": 1.1}
    generator = np.random.default_rng(width)
    x = generator.standard_normal(8)
    x /= np.sqrt(np.mean(x**2))
    U = generator.standard_normal((width, 8)) / math.sqrt(8)
    Z, z = generator.standard_normal((width, width), dtype=np.float32), generator.standard_normal(width)
    U /= np.sqrt(np.mean((U @ x) ** 2))
    r = width / lesson.BASE
    tensor = lambda array: torch.tensor(array, dtype=torch.float64)  # noqa: E731
    x, first = tensor(x), nn.Parameter(tensor(U))
    hidden = nn.Parameter(tensor(Z) * r ** -setting["init"] / 8)
    readout = nn.Parameter(tensor(z) * r ** -setting["out_init"] / 8)
    k = hidden @ (first @ x)
    f = readout @ k
    f.backward()
    with torch.no_grad():
        first -= lesson.STEP_SIZE * first.grad.sign()
        hidden -= lesson.STEP_SIZE * r ** -setting["rate"] * hidden.grad.sign()
        readout -= lesson.STEP_SIZE * r ** -setting["out_rate"] * readout.grad.sign()
        after = hidden @ (first @ x)
        moved = readout @ after - f
    found = lesson.one_step(width, **setting)
    assert found["hidden"] == pytest.approx(float(k.detach().square().mean().sqrt()), rel=1e-4)
    assert found["change"] == pytest.approx(float((after - k.detach()).square().mean().sqrt()), rel=1e-4)
    assert found["moved"] == pytest.approx(abs(float(moved)), rel=1e-4)


def test_all_settings_agree_at_the_base_width():
    free = {"init": 0.1, "rate": 1.7, "out_init": 0.0, "out_rate": 2.0}
    mup = {"init": 0.5, "rate": 1.0, "out_init": 1.0, "out_rate": 1.0}
    assert lesson.one_step(64, **free) == lesson.one_step(64, **mup)


@pytest.mark.parametrize(
    ("settings", "exponents", "said"),
    [
        ({}, {"hidden": 0, "change": 0, "output": -0.5, "moved": 0}, "as under muP"),
        (
            {"rate": 0.0},
            {"hidden": 0, "change": 1, "moved": 1},
            "Explodes: their change, change of the output.",
        ),
        ({"out_init": 0.5}, {"change": 0, "output": 0, "moved": 0.5}, "Explodes: change of the output."),
        ({"init": 1.0}, {"hidden": -0.5}, "Vanishes: hidden activations."),
        ({"out_rate": 2.0, "out_init": 1.5}, {"change": 0, "output": -1}, "Vanishes: change of the output."),
    ],
)
def test_words_say_what_explodes_and_what_vanishes(settings, exponents, said):
    explorer = lesson.SizesExplorer()
    _, words = explorer.frame(**settings)
    state = explorer.compute(**explorer.settings)
    for name, exponent in exponents.items():
        assert state["exponents"][name] == pytest.approx(exponent, abs=0.2), name
        assert f"{state['exponents'][name]:.2f}" in words
        fitted = np.polyfit(np.log(lesson.SIZES), np.log(explorer.artists[name].get_ydata()), 1)[0]
        assert fitted == pytest.approx(state["exponents"][name], abs=0.006)
    assert said in words


def test_the_curves_stay_within_the_axes():
    explorer = lesson.SizesExplorer()
    for rate in (0.0, 2.0):
        for out in (0.0, 1.5):
            explorer.frame(rate=rate, init=min(out, 1.0), out_rate=rate, out_init=out)
            for axes in explorer.figure.axes:
                low, high = axes.get_ylim()
                assert all(low < v < high for line in axes.lines for v in line.get_ydata())
