"""What the networks, the curves and the words of lesson 14 are."""

import numpy as np
import pytest
import torch
from torch import nn

from course_lib.architectures.recurrent import power_norms, spectral_radius
from course_lib.lessons import recurrent_networks as lesson
from course_lib.measured import measured, origin
from tests.drawing import assert_line, line_labelled


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def state_of(explorer, /, **settings):
    defaults = {name: control.default for name, control in explorer.controls.items()}
    return explorer.compute(None, **{**defaults, **settings})


def as_torch(net, place, layer):
    """Return a layer of torch with the weights of one of the networks."""
    core = layer(lesson.WIDTH, lesson.UNITS, dtype=torch.float32)
    for p, value in zip(core.parameters(), (net.w_x, net.w_h, net.b_x, net.b_h), strict=True):
        p.data.copy_(value[place].detach())
    return core


def test_only_the_first_token_is_a_symbol():
    x, symbols = lesson.recall_batch(7, rng())
    assert x.shape == (8, lesson.BATCH, 12)
    assert torch.equal(x[0].argmax(1), symbols)
    assert int(symbols.max()) < lesson.SYMBOLS <= int(x[1:].argmax(2).min())
    assert torch.equal(x.sum(2), torch.ones(8, lesson.BATCH))


def test_batches_side_by_side_are_those_of_their_generators():
    x, symbols = lesson.recall_batches(7, [rng(3), rng(4)], batch=5)
    for place, seed in enumerate((3, 4)):
        alone, right = lesson.recall_batch(7, rng(seed), batch=5)
        assert torch.equal(x[:, place], alone)
        assert torch.equal(symbols[place], right)


@pytest.mark.parametrize("kind", lesson.KINDS)
def test_networks_are_those_of_torch_side_by_side(kind):
    torch.manual_seed(5)
    untouched = torch.rand(3)
    torch.manual_seed(5)
    net = lesson.Recall(kind, [0, 3])
    assert torch.equal(torch.rand(3), untouched), "the global generator is left as it was"
    x, _ = lesson.recall_batches(6, [rng(0), rng(1)])
    scores = net(x)
    assert scores.shape == (2, lesson.BATCH, lesson.SYMBOLS)
    for place in range(2):
        last = as_torch(net, place, lesson.LAYERS[net.name])(x[:, place])[0][-1]
        wanted = last @ net.w_out[place].T + net.b_out[place]
        torch.testing.assert_close(scores[place], wanted, atol=1e-5, rtol=0)
    alone = lesson.Recall(kind, [3])(x[:, 1:])
    torch.testing.assert_close(scores[1:], alone, atol=1e-6, rtol=0)


def test_starts_differ_from_pytorchs_in_what_their_name_says():
    plain, larger = lesson.Recall("tanh", [1]), lesson.Recall("tanh", [1], factor=1.4)
    torch.testing.assert_close(larger.w_h, 1.4 * plain.w_h)
    assert torch.equal(larger.w_x, plain.w_x)
    (weight,) = lesson.Recall("tanh, orthogonal").w_h.detach()
    torch.testing.assert_close(weight @ weight.T, torch.eye(lesson.UNITS).float(), atol=1e-5, rtol=0)
    for kind in ("LSTM, forget bias 4", "GRU, keep bias 4"):
        gates = lesson.Recall(kind).b_x[0].view(-1, lesson.UNITS)
        assert (gates[1] == 4).all()
        assert (gates[[0, 2]].abs() < 1).all()
    with pytest.raises(ValueError, match=r"kind must be one of .*'GRU'.*, got 'RNN'"):
        lesson.Recall("RNN")
    with pytest.raises(ValueError, match=r"only W_h of a tanh network takes a factor, got 2.0 for 'GRU'"):
        lesson.Recall("GRU", factor=2.0)


def test_training_side_by_side_is_adam_with_clipped_gradients():
    seeds, rates = [0, 2], [0.005, 0.05]
    run = lesson.train(lesson.Recall("tanh", seeds), 5, seeds=seeds, rate=rates, steps=20)
    assert run.losses.shape == (20, 2)
    for place, (seed, rate) in enumerate(zip(seeds, rates, strict=True)):
        net, fresh = lesson.Recall("tanh", [seed]), rng(seed)
        optimizer, losses = torch.optim.Adam(net.parameters(), lr=rate), []
        for _ in range(20):
            x, symbols = lesson.recall_batches(5, [fresh])
            loss = nn.functional.cross_entropy(net(x)[0], symbols[0])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        assert run.losses[:, place].tolist() == pytest.approx(losses, abs=1e-3)
        test, answers = lesson.recall_batches(5, [rng(10_000 + seed)], batch=lesson.HELD_OUT)
        share = float((net(test).argmax(2) == answers).double().mean())
        assert float(run.accuracy[20][place]) == pytest.approx(share, abs=0.02)


def test_a_network_has_learned_at_its_first_good_test():
    run = lesson.train(lesson.Recall("tanh", [0, 1]), 1, seeds=[0, 1], steps=100)
    for place in range(2):
        good = [step for step, found in run.accuracy.items() if float(found[place]) >= lesson.ENOUGH]
        assert int(run.learned_at[place]) == (good[0] if good else 0)
        assert good, "one step back is learned within 100 steps"


def test_gradients_and_traces_begin_near_by():
    net = lesson.Recall("tanh").double()
    back, trace = lesson.input_gradients(net, 12), lesson.traces(net, 12)
    assert back.shape == trace.shape == (13,)
    assert float(back[0]) > 10 * float(back[12])
    x, symbols = lesson.recall_batches(12, [rng(0)])
    other = x.clone()
    other[0, 0] = nn.functional.one_hot((symbols[0] + 1) % 8, 12)
    core = as_torch(net, 0, nn.RNN).double()
    moved = (core(x[:, 0].double())[0] - core(other[:, 0].double())[0]).norm(dim=2).mean(1)
    torch.testing.assert_close(trace, moved.detach())


def test_the_explorer_shows_the_networks_of_the_page():
    for kind, factor in (("tanh", 1.5), ("LSTM", 1.0), ("GRU", 1.0)):
        state = state_of(lesson.BothWaysExplorer, kind=kind, factor=factor, seed=2)
        net = lesson.Recall(kind, [2], factor=factor).double()
        assert state["back"] == pytest.approx(lesson.input_gradients(net).numpy())
        assert state["forward"] == pytest.approx(lesson.traces(net).numpy())
    words = lesson.BothWaysExplorer().frame(factor=1.5)[1]
    assert "W × 1.5" in words
    assert "at 40 the gradient is 2.3e-05" in words


def test_the_stored_runs_are_counted():
    assert origin("memory_start")["settings"]["rates"] == list(lesson.RATES)
    assert origin("memory_start")["settings"]["steps"] == lesson.STEPS
    for arm in lesson.ARMS:
        by_rate = {rate: measured("memory_start", f"{arm}, rate {rate:g}") for rate in lesson.RATES}
        counts = {rate: sum(step > 0 for step in stored["learned at"]) for rate, stored in by_rate.items()}
        assert counts[lesson.best_rate(arm)] == max(counts.values())
        for rate in lesson.RATES:
            early = sum(0 < step <= 200 for step in by_rate[rate]["learned at"])
            assert (lesson.learned(arm, rate), lesson.learned(arm, rate, 200)) == (counts[rate], early)


def test_the_hump_of_the_figure():
    axes = lesson.plot_hump().axes[0]
    k = np.arange(21)
    norms = power_norms(lesson.HUMP, 20).numpy()
    assert_line(line_labelled(axes, "largest factor, ‖Wᵏ‖"), k, norms)
    assert_line(line_labelled(axes, "spectral radius, 0.5ᵏ"), k, 0.5**k)


def test_the_three_starts():
    drawn, larger, turn = (
        lesson.start_weights(128, kind) for kind in ("PyTorch", "times 1.73", "orthogonal")
    )
    assert float(spectral_radius(drawn)) == pytest.approx(3**-0.5, abs=0.1)
    torch.testing.assert_close(larger, drawn * 3**0.5)
    assert float(spectral_radius(turn)) == pytest.approx(1, abs=1e-9)
