"""What the curves of lesson 08 are, and what its explorer connects."""

import numpy as np
import pytest
import torch

from course_lib.lessons import convolution as lesson
from tests.drawing import assert_line, line_labelled


def state_of(**settings):
    defaults = {name: control.default for name, control in lesson.StencilExplorer.controls.items()}
    return lesson.StencilExplorer.compute(None, **{**defaults, **settings})


def test_the_explorer_connects_what_autograd_connects():
    for stride, padding, dilation in ((1, 1, 1), (2, 0, 1), (3, 2, 2), (1, 2, 2)):
        layer = {"stride": stride, "padding": padding, "dilation": dilation}
        x = torch.ones(1, 1, 8, 8, requires_grad=True)
        w = torch.arange(1.0, 10.0).view(1, 1, 3, 3).requires_grad_()
        y = torch.nn.functional.conv2d(x, w, **layer)[0, 0]
        for i, j in ((1, 1), (2, 3), (8, 8)):
            state = state_of(target="an output", row=i, col=j, **layer)
            p, q = state["here"]
            (dx,) = torch.autograd.grad(y[p - 1, q - 1], x, retain_graph=True)
            assert 9 - state["outside"] == int((dx != 0).sum())
            # The letters that an input pixel shows are the weights with which outputs answer to it.
            state = state_of(target="an input pixel", row=i, col=j, **layer)
            answers = torch.stack([torch.autograd.grad(v, x, retain_graph=True)[0] for v in y.flatten()])
            answers = answers[:, 0, 0, i - 1, j - 1]
            assert sorted(state["names"]) == sorted("abcdefghi"[int(a) - 1] for a in answers[answers != 0])
            assert state["count"] == int((answers != 0).sum())
            k = (min(i, 3) - 1, min(j, 3) - 1)
            state = state_of(target="a weight", row=i, col=j, **layer)
            (dw,) = torch.autograd.grad(y.sum(), w, retain_graph=True)
            assert state["count"] == y.numel()
            assert state["count"] - state["outside"] == int(dw[0, 0, k[0], k[1]])


def test_the_words_of_the_three_targets():
    explorer = lesson.StencilExplorer()
    assert "Output (1, 3) is the sum of 9 products, 3 of them" in explorer.frame(row=1)[1]
    said = explorer.frame(target="an input pixel", row=4)[1]
    assert "through i, h, g, f, e, d, c, b, a: the kernel backwards" in said
    assert (
        "Weight f is used by all 64 outputs, 8 times on padding"
        in explorer.frame(target="a weight", row=2)[1]
    )
    # The places that the notebook names.
    for row, col, count in ((4, 4, "4 outputs"), (4, 3, "2 outputs"), (3, 3, "1 output,")):
        assert f"is read by {count}" in explorer.frame(target="an input pixel", row=row, col=col, stride=2)[1]
    # Two outputs at distance 3 without padding read six pixels and the last two not at all.
    unread = explorer.frame(target="an input pixel", row=8, col=8, stride=3, padding=0)[1]
    assert unread.startswith("No output reads the input pixel (8, 8): its gradient is 0.")


def test_the_spread_of_the_figure():
    axes = lesson.plot_spread().axes[0]
    rho = np.linspace(0, 1, 101)
    offsets = np.abs(np.arange(-29, 30))
    both = [((30 - offsets) * float(r) ** (2 * offsets)).sum() for r in rho]
    assert_line(line_labelled(axes, "X and dY correlated"), rho, both)
    assert_line(line_labelled(axes, "only X correlated"), rho, np.full(101, 30))
    measured = line_labelled(axes, "measured, both").get_ydata()
    assert measured == pytest.approx([both[0], both[50], both[80], both[95]], rel=0.12)
    assert line_labelled(axes, "measured, only X").get_ydata() == pytest.approx([30] * 4, rel=0.12)


def test_the_energy_of_a_gradient():
    energy = lesson.gradient_energy(4, nets=2)
    assert energy.shape == (9, 9)
    assert float(energy.sum()) == pytest.approx(1)
    assert lesson.share_within(energy, 4) == pytest.approx(1)
    even = torch.full((9, 9), 1 / 81, dtype=torch.float64)
    assert lesson.width_of(even) == pytest.approx((80 / 12) ** 0.5)
    assert lesson.share_within(even, 1) == pytest.approx(9 / 81)
    assert lesson.width_of(energy) < 0.8 * lesson.width_of(even)
