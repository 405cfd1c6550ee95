"""Every figure of every lesson can be read and says what it shows; what the curves of lessons 00 and 01 are."""

from functools import cache

import numpy as np
import pytest
import torch

from course_lib.lessons.gradient_descent_stability import SPECTRUM
from course_lib.optimization.gradient_descent import best_step, stability_limit
from course_lib.teaching.style import text_alternative
from tests.drawing import assert_clear_layout, assert_labels, assert_line, line_labelled
from tests.lessons import FIGURES, MODULES


@cache
def figure(number, name):
    """Draw a figure once: some train a network first."""
    return MODULES[number].FIGURES[name]()


@pytest.mark.parametrize(("number", "name"), FIGURES)
def test_every_figure_can_be_read_and_says_what_it_shows(number, name):
    drawn = figure(number, name)
    text = text_alternative(drawn)
    assert len(text.split()) >= 8
    assert text.rstrip().endswith(".")
    assert_clear_layout(drawn)
    for axes in drawn.findobj(lambda a: hasattr(a, "get_xlabel")):
        # A diagram without axes (boxes and words) has no labels to give.
        if axes.axison:
            assert axes.get_xlabel().strip()
            assert axes.get_ylabel().strip()
            for line in axes.lines:
                assert np.isfinite(np.asarray(line.get_xydata(), dtype=float)).all()
        told_apart = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
        # get_linestyle() calls every pattern of one's own "--": only the pattern itself tells them apart.
        looks = [(str(li._unscaled_dash_pattern), li.get_marker(), li.get_linewidth()) for li in told_apart]
        assert len(set(looks)) == len(looks), f"{[li.get_label() for li in told_apart]} look alike in grey"


# What is drawn


def test_the_wait_is_counted():
    axes = figure("00", "wait").axes[0]
    distance = np.geomspace(1e-3, 0.5, 60)
    waits = [next(t for t in range(10_000) if (1 - d) ** t < 0.01) for d in distance]
    assert_line(line_labelled(axes, "counted"), distance, waits)
    assert_labels(
        axes, x="distance $1 - f$", y="multiplications $t$", title="how long until the power is below 0.01"
    )


def test_worst_rate_is_the_largest_curve_and_lowest_at_the_best_step():
    axes = figure("01", "worst_rate").axes[0]
    largest = line_labelled(axes, "largest of them")
    step_sizes = np.asarray(largest.get_xdata())
    rates = np.abs(1 - 2 * step_sizes * SPECTRUM.numpy()[:, None] ** 2)
    assert_line(largest, step_sizes, rates.max(axis=0))
    best = best_step(SPECTRUM)
    point = line_labelled(axes, f"best {best:.4f}")
    assert_line(point, [best], [(2**2 - 0.8**2) / (2**2 + 0.8**2)])
    assert largest.get_ydata().min() >= point.get_ydata()[0] - 1e-12
    assert (
        line_labelled(axes, "limit $1/\\sigma_{max}^2$").get_xdata()[0] == stability_limit(SPECTRUM) == 0.25
    )


def test_figures_do_not_change_the_default_dtype_or_thread_count():
    before = (torch.get_default_dtype(), torch.get_num_threads())
    MODULES["01"].FIGURES["overshoot"]()
    assert (torch.get_default_dtype(), torch.get_num_threads()) == before
