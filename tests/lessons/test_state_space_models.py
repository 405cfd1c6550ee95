"""What the explorers of lesson 15 compute, how its meter counts, what its curves are, and its closing experiment."""

import numpy as np
import pytest
import torch

from course_lib.lessons import state_space_models as lesson
from course_lib.lessons.state_space_models import experiment
from tests.drawing import assert_line, line_labelled


def by_hand(rule, pole, u):
    """The loop of a box, written out once more."""
    x, outputs = 0, []
    for t, token in enumerate(u):
        x = pole * (5 / 9 if rule == lesson.CLOCK and t % 2 else 1) * x + token
        if rule == lesson.TANH:
            x = np.tanh(abs(x)) * np.exp(1j * np.angle(x))
        outputs.append(np.real(x))
    return np.array(outputs)


def settings(kind, **changed):
    return {**{name: control.default for name, control in kind.controls.items()}, **changed}


@pytest.mark.parametrize("rule", lesson.RULES)
@pytest.mark.parametrize("radius", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("turn", [0.0, 1.5])
@pytest.mark.parametrize("loudness", [0.02, 3.0])
def test_the_boxes_of_the_explorer(rule, radius, turn, loudness):
    kind = lesson.BoxExplorer
    state = kind.compute(
        None, **settings(lesson.BoxExplorer, rule=rule, radius=radius, turn=turn, loudness=loudness, token=40)
    )
    pole, u = radius * np.exp(1j * turn), lesson.noise()
    loop = by_hand(rule, pole, loudness * u) / loudness
    click = by_hand(rule, pole, loudness * np.eye(64)[0]) / loudness
    added = np.array([sum(click[t - s] * u[s] for s in range(t + 1)) for t in range(64)])
    assert state["at token"] == pytest.approx((loop[40], added[40]), abs=1e-9)
    assert state["weights"][1] == pytest.approx(click[40 - np.arange(41)], abs=1e-9)
    assert state["gap"] == pytest.approx(np.abs(loop - added).max() / np.abs(loop).max(), abs=1e-9)
    words = kind.words(None, state)
    assert (
        ("give every output" in words) == (rule == lesson.FIXED) == bool(np.allclose(loop, added, atol=1e-9))
    )
    if rule == lesson.FIXED and radius < 1:
        kept = max(lag for lag in range(2000) if radius**lag >= 0.01)
        assert f"stay at 1% or more for {kept} tokens" in words


def test_no_setting_of_the_boxes_leaves_the_panel():
    worst = max(np.abs(by_hand(rule, 1.0, lesson.noise())).max() for rule in lesson.RULES)
    (low, high) = lesson.BoxExplorer.layout.settings["ylim"][2]
    assert worst < min(-low, high)


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
    left, right = lesson.plot_wrap().axes
    u, kernel = lesson.noise(), (lesson.TURNING ** np.arange(64)).real
    wrapped = [sum(kernel[(t - j) % 64] * u[j] for j in range(64)) for t in range(64)]
    assert_line(line_labelled(right, "circle of 64"), np.arange(64), wrapped, atol=1e-9)
    full = np.convolve(u, kernel)
    assert_line(line_labelled(left, lesson.WRAPPED[1]), np.arange(64, 127), full[64:], atol=1e-9)
    assert_line(line_labelled(right, "the red part"), np.arange(63), full[64:], atol=1e-9)


def test_the_figure_of_the_first_prediction():
    for axes, (rule, pole) in zip(lesson.plot_noise().axes, lesson.BOXES.values(), strict=True):
        u = lesson.noise()
        loop, added = line_labelled(axes, "the box itself"), line_labelled(axes, "clicks, shifted and added")
        assert loop.get_ydata() == pytest.approx(by_hand(rule, pole, u), abs=1e-9)
        assert np.allclose(loop.get_ydata(), added.get_ydata(), atol=1e-9) == (rule == lesson.FIXED)


def test_the_prompt_hands_over_its_state():
    axes = lesson.plot_prompt().axes[0]
    whole = by_hand(lesson.FIXED, lesson.TURNING, lesson.noise())
    assert line_labelled(axes, "48 outputs by one convolution").get_ydata() == pytest.approx(
        whole[:48], abs=1e-9
    )
    steps = line_labelled(axes, "16 outputs by steps, from one state")
    assert steps.get_ydata() == pytest.approx(whole[48:], abs=1e-9)


def test_three_forms_of_the_layer_share_outputs_and_gradients():
    u = torch.randn(2, 70, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    layer, found = experiment.Layer(0), []
    with torch.no_grad():
        for parameter in layer.parameters[2:]:
            parameter += 0.3
    for form in experiment.FORMS.values():
        y = form(u, *layer())
        found.append((y.detach(), *torch.autograd.grad(y.square().sum(), layer.parameters)))
    for others in found[1:]:
        for ours, theirs in zip(found[0], others, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_records_are_those_of_the_hidden_system():
    data = experiment.Records.draw(3)
    assert (data.u.shape, data.new_u.shape) == ((4, 2048), (4, 8192))
    a, c = (value[0].numpy() for value in experiment.hidden_system())
    kernel = 2 * (c[:, None] * a[:, None] ** np.arange(8192)).sum(0).real
    clean = np.stack([np.convolve(u, kernel)[:8192] for u in data.new_u.numpy()])
    assert data.new_y.numpy() == pytest.approx(clean, abs=1e-8)
    assert data.error(data.new_y) == 0
    assert data.error(0 * data.new_y) == pytest.approx(1)
    noise = data.y.numpy() - np.stack([np.convolve(u, kernel)[:2048] for u in data.u.numpy()])
    assert noise.std() == pytest.approx(experiment.NOISE * data.new_y.std(), rel=0.05)


def test_the_cut_loop_goes_on_where_it_stopped_and_ends_its_gradients():
    data, layer = experiment.Records.draw(0), experiment.Layer(0)
    pieces = experiment._pieces("loop, cut every 64", data)
    with torch.no_grad():
        for parameter in layer.parameters[2:]:
            parameter += 0.3
        whole = experiment.by_loop(data.u, *layer())
    for start in (0, 64):
        y, heard = next(pieces)(layer)
        torch.testing.assert_close(y.detach(), whole[:, start : start + 64])
        torch.testing.assert_close(heard, data.y[:, start : start + 64])
    # The second piece alone, from the first one's state as a constant, has the same gradient.
    state = experiment.loop_states(data.u[:, :64], layer()[0])[:, -1].detach()
    alone = experiment.by_loop(data.u[:, 64:128], *layer(), state)
    for ours, theirs in zip(
        torch.autograd.grad(y.sum(), layer.parameters),
        torch.autograd.grad(alone.sum(), layer.parameters),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_free_taps_find_a_short_kernel():
    data, kernel = experiment.Records.draw(0), torch.tensor([1.0, -0.5, 0.25], dtype=torch.float64)
    data.y = experiment.answer(data.u, kernel)
    sums = experiment.lagged_sums(data, 5)
    found = experiment.free_taps(*sums, penalty=1e-9)
    torch.testing.assert_close(
        found, torch.cat([kernel, torch.zeros(2, dtype=torch.float64)]), atol=1e-6, rtol=0
    )
    shrunk = experiment.free_taps(*sums, penalty=500.0, growth=0.5)
    assert abs(shrunk[2]) < 0.5 * abs(found[2])
    assert abs(shrunk[0]) > 0.8


def test_training_stops_by_updates_or_seconds_and_looks_on_the_way():
    data = experiment.Records.draw(0)
    run = lesson.identify("convolution", data, rate=0.01, updates=3)
    assert run.updates == [0, 1, 2, 3]
    assert run.errors[0] == pytest.approx(1)
    assert run.errors[-1] < 1
    assert run.seconds == sorted(run.seconds)
    assert run.layer[0].shape == (8,)
    assert lesson.identify("scan", data, rate=0.01, seconds=0.0).updates == [0]
    with pytest.raises(ValueError, match=r"arm must be one of .*'convolution'.*, got 'fast'"):
        lesson.identify("fast", data, rate=0.01, updates=1)
