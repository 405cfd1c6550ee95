"""What the recall task, the curves and the words of lesson 11 are."""

import math

import numpy as np
import pytest
import torch

from course_lib.architectures.recurrent import power_norms, spectral_radius
from course_lib.lessons import recurrent_networks as lesson
from tests.drawing import assert_line, line_labelled


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def state_of(**settings):
    defaults = {name: control.default for name, control in lesson.HumpExplorer.controls.items()}
    return lesson.HumpExplorer.compute(None, **{**defaults, **settings})


def test_only_the_first_token_is_a_symbol():
    x, symbols = lesson.recall_batch(7, rng())
    assert x.shape == (8, lesson.BATCH, 12)
    assert torch.equal(x[0].argmax(1), symbols)
    assert int(symbols.max()) < lesson.SYMBOLS <= int(x[1:].argmax(2).min())
    assert torch.equal(x.sum(2), torch.ones(8, lesson.BATCH))


@pytest.mark.parametrize("kind", lesson.KINDS)
def test_every_kind_reads_a_sequence_and_its_seed_decides_its_start(kind):
    torch.manual_seed(5)
    untouched = torch.rand(3)
    torch.manual_seed(5)
    x, _ = lesson.recall_batch(6, rng())
    first, again, other = (lesson.Recall(kind, seed)(x) for seed in (0, 0, 1))
    assert first.shape == (lesson.BATCH, lesson.SYMBOLS)
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
    assert torch.equal(torch.rand(3), untouched), "the global generator is left as it was"


def test_the_networks_of_the_course_are_those_of_torch():
    x, _ = lesson.recall_batch(6, rng())
    for kind in ("tanh", "GRU"):
        net = lesson.Recall(kind, 0)
        assert torch.allclose(net(x), net.read(net.core(x)[0][-1]), atol=1e-5)


def test_the_diagonal_network_is_its_recursion():
    net, (x, _) = lesson.Recall("diagonal linear", 0), lesson.recall_batch(6, rng())
    h = torch.zeros(lesson.BATCH, lesson.UNITS)
    for x_t in x:
        h = torch.sigmoid(net.logits) * h + net.value(x_t)
    assert torch.allclose(net(x), net.read(h), atol=1e-5)


def test_the_controls_differ_from_pytorchs_start_in_what_their_name_says():
    weight = lesson.Recall("tanh, orthogonal start", 0).core.weight_hh_l0.detach()
    assert torch.allclose(weight @ weight.T, torch.eye(lesson.UNITS), atol=1e-5)
    for kind in ("LSTM, forget bias 4", "GRU, keep bias 4"):
        gates = lesson.Recall(kind, 0).core.bias_ih_l0.view(-1, lesson.UNITS)
        assert (gates[1] == 4).all()
        assert (gates[[0, 2]].abs() < 1).all()


def test_input_gradients_begin_at_the_last_input():
    curve = lesson.input_gradients(lesson.Recall("tanh", 0), 12)
    assert curve.shape == (13,)
    assert float(curve[0]) > 10 * float(curve[12])


def test_the_explorer_sends_a_gradient_through_the_transposed_matrix():
    state = state_of(eigenvalue=0.5, coupling=10.0, angle=0, slope=0.5)
    # W^T (1, 0) = (0.5, 10); each step is halved by the slope.
    assert state["lengths"][:2] == pytest.approx([1, math.hypot(0.5, 10) / 2])
    assert state["radius"] == pytest.approx(0.25, abs=1e-6)
    assert state["most"][:2] == pytest.approx([1, 10.025 / 2], rel=1e-3)
    alone = state_of(eigenvalue=0.5, coupling=10.0, angle=90)["lengths"]
    assert alone == pytest.approx(0.5 ** np.arange(26)), "a direction in which nothing grows"
    assert state_of(coupling=0.0)["most"] == pytest.approx(0.5 ** np.arange(26), rel=1e-6)


def test_the_words_name_the_peak():
    explorer = lesson.HumpExplorer()
    assert "longest at distance" in explorer.frame(angle=0, coupling=10.0)[1]
    assert "never longer than at the start" in explorer.frame(angle=90)[1]
    assert "grows up to the end" in explorer.frame(angle=0, eigenvalue=1.1)[1]


def test_the_hump_of_the_figure():
    axes = lesson.plot_hump().axes[0]
    k = np.arange(21)
    norms = power_norms(lesson.HUMP, 20).numpy()
    assert_line(line_labelled(axes, "largest factor, ‖Wᵏ‖"), k, norms)
    assert_line(line_labelled(axes, "spectral radius, 0.5ᵏ"), k, 0.5**k)


def test_the_three_starts():
    radii = [
        float(spectral_radius(lesson.start_weights(128, kind)))
        for kind in ("PyTorch", "variance 1/H", "orthogonal")
    ]
    assert radii == pytest.approx([3**-0.5, 1, 1], abs=0.1)
    assert radii[2] == pytest.approx(1, abs=1e-9)
