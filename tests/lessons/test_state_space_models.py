"""What the explorer of lesson 12 computes, how its meter counts, and what its curves are."""

import cmath

import numpy as np
import pytest
import torch

from course_lib.lessons import state_space_models as lesson
from tests.drawing import assert_line, line_labelled


def state_of(**settings):
    defaults = {name: control.default for name, control in lesson.PoleExplorer.controls.items()}
    return lesson.PoleExplorer.compute(None, **{**defaults, **settings})


def test_the_hold_lies_on_the_line_and_euler_outside_of_the_disc():
    pole = complex(-0.3, 2.5)
    state = state_of(rule="zero-order hold")
    time, found = state["switch"]
    assert found == pytest.approx([((cmath.exp(pole * t) - 1) / pole).real for t in time], abs=1e-12)
    assert state["pole"] == pytest.approx(state["ring"])
    assert state["error"] < 0.005
    grows = state_of(rule="Euler")
    assert abs(grows["a"]) == pytest.approx(abs(1 + 0.5 * pole))
    assert grows["error"] > 1
    # The line is that of continuous time, whatever the rule.
    s, line = grows["switch, exact"]
    assert line == pytest.approx([((cmath.exp(pole * t) - 1) / pole).real for t in s], abs=2e-3)


def test_the_words_of_the_cell_that_moves_the_explorer():
    said = lesson.PoleExplorer().frame(rule="bilinear", decay=0.0, frequency=3.0, step=0.6)[1]
    assert "|a| = 1.000 (exact 1.000): the state keeps its size" in said
    assert "pole 0 + 3i" in said
    assert "off by up to 0.57" in said
    assert "the state grows" in lesson.PoleExplorer().frame(rule="Euler")[1]
    assert "the state fades, and the response to a switch is on the line" in lesson.PoleExplorer().frame()[1]


def test_the_meter_counts_by_hand():
    x, y = torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    with lesson.Meter() as meter:
        (x * y + x)[1:] * 2.0
    assert (meter.depth, meter.work) == (3, 11)
    with lesson.Meter() as meter:
        torch.stack([x * y, x + y]).sum(0)  # side by side; a sum along an axis is not counted
    assert (meter.depth, meter.work) == (1, 8)
    with lesson.Meter() as meter:
        torch.ones(3, 4) @ torch.ones(4, 2)
    assert (meter.depth, meter.work) == (3, 3 * 2 * 7)


@pytest.mark.parametrize("length", [2, 8, 64])
def test_counts_are_those_of_the_formulas(length):
    found, rounds = lesson.counts(length), length.bit_length() - 1
    assert found["loop"] == (2 * length, 2 * length)
    # Two products and one sum for all but the first `distance` tokens of each round.
    assert found["scan by doubling"] == (2 * rounds, 3 * (length * rounds - length + 1))
    # Two transforms one after the other, of two operations a level on a circle of twice the length; two products.
    assert found["convolution by FFT"][0] == 4 * (rounds + 1) + 2


def test_the_transform_by_halves_is_the_transform():
    x = torch.complex(torch.randn(16).double(), torch.randn(16).double())
    torch.testing.assert_close(lesson.fft_by_halves(x), torch.fft.fft(x))
    u, kernel = torch.randn(8).double(), torch.randn(8).double()
    wanted = torch.as_tensor(np.convolve(u, kernel)[:8])
    torch.testing.assert_close(lesson.convolve_by_halves(u, kernel), wanted)


def test_the_transform_that_wraps_round():
    axes = lesson.plot_wrap().axes[0]
    u = lesson.normal(64, seed=3).numpy()
    kernel = 0.97 ** np.arange(64)
    right = [sum(kernel[t - j] * u[j] for j in range(t + 1)) for t in range(64)]
    wrapped = [sum(kernel[(t - j) % 64] * u[j] for j in range(64)) for t in range(64)]
    assert_line(line_labelled(axes, "loop, and size 128"), np.arange(64), right, atol=1e-9)
    assert_line(line_labelled(axes, "size 64"), np.arange(64), wrapped, atol=1e-9)


def test_the_question_shows_one_output_twice():
    right = lesson.plot_question().axes[2]
    loop = line_labelled(right, "loop, one complex number")
    assert line_labelled(right, "convolution with K").get_ydata() == pytest.approx(loop.get_ydata())


def test_the_memory_of_the_figure():
    for axes, now in zip(lesson.plot_memory().axes, (400, 1000), strict=True):
        signal = line_labelled(axes, "signal").get_ydata()[:now]
        read = line_labelled(axes, "read from the state").get_ydata()
        assert np.abs(read - signal)[20:].max() < 0.25
        assert np.sqrt(np.mean((read - signal) ** 2)) < 0.1
