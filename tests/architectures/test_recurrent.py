"""Recurrent networks: worked examples, loops against fast forms and torch, gradients by hand, refusals."""

import pytest
import torch

from course_lib.architectures.recurrent import (
    affine_scan,
    gated_scan,
    gradient_by_distance,
    gru,
    gru_by_steps,
    min_gru,
    power_norms,
    rnn,
    rnn_by_steps,
    spectral_radius,
    state_deltas,
)

HUMP = torch.tensor([[0.5, 10.0], [0.0, 0.5]], dtype=torch.float64)
STEPS, BATCH, FEATURES, UNITS = 6, 3, 4, 5


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def leaves(gates, *, biases, dtype=torch.float64):
    """Inputs, weights, biases and the first state, all with gradients."""
    shapes = [(STEPS, BATCH, FEATURES), (gates * UNITS, FEATURES), (gates * UNITS, UNITS)]
    shapes += [(gates * UNITS,)] * biases + [(BATCH, UNITS)]
    return [normal(*shape, seed=n, dtype=dtype).requires_grad_() for n, shape in enumerate(shapes)]


def gaps(found, expected):
    return [float((a - b).detach().abs().max()) for a, b in zip(found, expected, strict=True)]


def passed(form, inputs, **options):
    """Outputs and all gradients for one incoming gradient."""
    out = form(*inputs, **options)
    return [out, *torch.autograd.grad(out, inputs, normal(*out.shape, seed=99, dtype=out.dtype))]


# Worked examples


def test_the_powers_of_the_notes_matrix():
    assert torch.linalg.matrix_power(HUMP, 2).tolist() == [[0.25, 10], [0, 0.25]]
    assert torch.linalg.matrix_power(HUMP, 3).tolist() == [[0.125, 7.5], [0, 0.125]]
    norms = power_norms(HUMP, 20)
    found = [float(norms[k]) for k in (0, 1, 2, 3, 5, 10, 20)]
    assert found == pytest.approx([1, 10.025, 10.006, 7.502, 3.1253, 0.19532, 3.8147e-4], rel=1e-3)
    assert float(spectral_radius(HUMP)) == pytest.approx(0.5, abs=1e-6)


def test_the_spectral_radius_is_the_largest_size_not_the_largest_value():
    assert float(spectral_radius(torch.tensor([[-3.0, 0.0], [0.0, 2.0]]))) == pytest.approx(3)
    turn = torch.tensor([[0.0, -2.0], [2.0, 0.0]])  # eigenvalues 2i and -2i
    assert float(spectral_radius(turn)) == pytest.approx(2)


def test_total_times_immediate_and_not_total_times_full():
    # h_1 = w x with x = 1, h_2 = w h_1: as a network with W_x = W_h = w, the two gradients add up to 2w.
    w = torch.tensor([[3.0]], dtype=torch.float64, requires_grad=True)
    x = torch.tensor([1.0, 0.0], dtype=torch.float64).view(2, 1, 1)
    last = rnn(x, w, w, nonlinearity="identity")[-1].sum()
    assert float(torch.autograd.grad(last, w)[0]) == 6  # 9 counts the path through h_1 twice


def test_the_linear_gradient_of_the_notes():
    x, w_x, w_h = normal(4, 1, 2), normal(3, 2, seed=1), normal(3, 3, seed=2)
    w_y, y, h0 = normal(2, 3, seed=3), normal(2, seed=4), normal(1, 3, seed=5).requires_grad_()
    states = rnn(x, w_x, w_h, h0=h0, nonlinearity="identity")
    (found,) = torch.autograd.grad((states[-1, 0] @ w_y.T - y).square().sum(), h0)
    power = torch.linalg.matrix_power(w_h, 4)
    error_at = lambda t: (2 * (states[t, 0] @ w_y.T - y) @ w_y @ power).detach()  # noqa: E731
    assert torch.allclose(found[0], error_at(-1), rtol=1e-10)
    assert not torch.allclose(found[0], error_at(0), rtol=0.1)  # as printed, the error of an earlier output


def test_a_gated_scan_by_hand():
    keep = torch.tensor([0.5, 0.0, 1.0]).view(3, 1, 1)
    add = torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1)
    assert gated_scan(keep, add, torch.tensor([[4.0]])).flatten().tolist() == [3, 2, 5]


# The fast forms are the equations, and torch


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu", "identity"])
def test_rnn_by_hand_is_the_loop(nonlinearity):
    inputs = leaves(1, biases=1)
    found, expected = (passed(form, inputs, nonlinearity=nonlinearity) for form in (rnn, rnn_by_steps))
    assert max(gaps(found, expected)) < 1e-11


def test_rnn_is_torch():
    layer = torch.nn.RNN(FEATURES, UNITS, dtype=torch.float64)
    x, h0 = normal(STEPS, BATCH, FEATURES), normal(BATCH, UNITS, seed=1)
    w_x, w_h, b_x, b_h = layer.parameters()
    assert torch.allclose(rnn(x, w_x, w_h, b_x + b_h, h0), layer(x, h0[None])[0], atol=1e-12)
    assert not torch.allclose(rnn(x, w_x, w_h, b_x, h0), layer(x, h0[None])[0], atol=1e-3)


@pytest.mark.parametrize("reset", ["after", "before"])
def test_gru_by_hand_is_the_loop(reset):
    inputs = leaves(3, biases=2)
    found, expected = (passed(form, inputs, reset=reset) for form in (gru, gru_by_steps))
    assert max(gaps(found, expected)) < 1e-11


def test_gru_is_torch_with_the_reset_gate_behind_the_product():
    layer = torch.nn.GRU(FEATURES, UNITS, dtype=torch.float64)
    x, h0 = normal(STEPS, BATCH, FEATURES), normal(BATCH, UNITS, seed=1)
    expected = layer(x, h0[None])[0]
    assert torch.allclose(gru(x, *layer.parameters(), h0), expected, atol=1e-12)
    assert not torch.allclose(gru(x, *layer.parameters(), h0, reset="before"), expected, atol=1e-3)


def test_gradients_by_hand_pass_gradcheck():
    assert torch.autograd.gradcheck(rnn, leaves(1, biases=1))
    assert torch.autograd.gradcheck(lambda *t: gru(*t, reset="before"), leaves(3, biases=2))


def test_a_bias_and_a_first_state_may_be_left_out():
    x, w_x, w_h = leaves(1, biases=0)[:3]
    zeros = torch.zeros(UNITS, dtype=torch.float64), torch.zeros(BATCH, UNITS, dtype=torch.float64)
    assert torch.equal(rnn(x, w_x, w_h), rnn(x, w_x, w_h, *zeros))
    (alone,) = torch.autograd.grad(rnn(x, w_x.detach(), w_h.detach()).sum(), x)
    assert torch.allclose(alone, torch.autograd.grad(rnn_by_steps(x, w_x, w_h).sum(), x)[0])


def test_float32_stays_near_float64():
    for form, gates, biases in ((rnn, 1, 1), (gru, 3, 2)):
        wide = leaves(gates, biases=biases)
        narrow = [t.detach().float().requires_grad_() for t in wide]
        assert max(gaps(passed(form, narrow), passed(form, wide))) < 1e-4


# Deltas and scans


def test_the_deltas_are_the_gradients_at_the_sums():
    x, w_x, w_h, bias, h0 = leaves(1, biases=1)
    shift = torch.zeros(STEPS, BATCH, UNITS, dtype=torch.float64, requires_grad=True)
    h, states, g = h0, [], normal(STEPS, BATCH, UNITS, seed=7)
    for t in range(STEPS):
        h = torch.tanh(h @ w_h.T + x[t] @ w_x.T + bias + shift[t])
        states.append(h)
    states = torch.stack(states)
    (expected,) = torch.autograd.grad(states, shift, g)
    assert torch.allclose(state_deltas(states, g, w_h), expected, atol=1e-12)
    assert not torch.allclose(state_deltas(states, g, w_h.T.contiguous()), expected, atol=1e-2)


@pytest.mark.parametrize("steps", [1, 2, 7, 8])
def test_the_affine_scan_is_the_loop(steps):
    matrices, offsets = normal(steps, 3, 3), normal(steps, 3, seed=1)
    state, expected = torch.zeros(3, dtype=torch.float64), []
    for a, c in zip(matrices, offsets, strict=True):
        state = a @ state + c
        expected.append(state)
    assert torch.allclose(affine_scan(matrices, offsets), torch.stack(expected), atol=1e-10)


@pytest.mark.parametrize(("steps", "units"), [(1, 2), (15, 2), (16, 2), (50, 2), (5, 900)])
def test_the_gated_scan_is_the_loop_in_blocks_and_without(steps, units):
    keep, add = (normal(steps, 3, units, seed=n).requires_grad_() for n in (1, 2))
    h0 = normal(3, units, seed=3).requires_grad_()

    def loop(keep, add, h):
        return torch.stack([h := k * h + a for k, a in zip(keep, add, strict=True)])

    inputs = (keep, add, h0)
    assert max(gaps(passed(gated_scan, inputs), passed(loop, inputs))) < 1e-6


def test_gates_of_0_and_1_are_exact_over_many_steps():
    add = normal(4096, 1, 3)
    assert torch.equal(gated_scan(torch.zeros_like(add), add), add)
    kept = gated_scan(torch.ones_like(add), torch.zeros_like(add), normal(1, 3, seed=1))
    assert torch.equal(kept[-1], normal(1, 3, seed=1))


def test_min_gru_is_its_equation():
    x, w_z, w_n, b_z, b_n = (
        normal(9, 2, 3),
        normal(4, 3, seed=1),
        normal(4, 3, seed=2),
        normal(4, seed=3),
        normal(4),
    )
    z, n, h = torch.sigmoid(x @ w_z.T + b_z), x @ w_n.T + b_n, torch.zeros(2, 4, dtype=torch.float64)
    expected = torch.stack([h := (1 - z[t]) * h + z[t] * n[t] for t in range(9)])
    assert torch.allclose(min_gru(x, w_z, w_n, b_z, b_n), expected, atol=1e-12)


# Gradients by distance


def test_gradient_by_distance_is_the_norm_of_autograds_jacobian():
    x, w_x, w_h = normal(5, 2, 3), normal(4, 3, seed=1), normal(4, 4, seed=2)
    states = rnn(x, w_x, w_h)
    norms = gradient_by_distance(states, w_h)
    assert norms.shape == (5, 2)
    last = lambda h, k: rnn_by_steps(x[5 - k :], w_x, w_h, h0=h)[-1]  # noqa: E731
    for k in (1, 2, 4):
        jacobian = torch.autograd.functional.jacobian(lambda h, k=k: last(h, k), states[4 - k])
        for n in range(2):
            expected = torch.linalg.matrix_norm(jacobian[n, :, n], ord=2)
            assert float(norms[k, n]) == pytest.approx(float(expected), rel=1e-9)
    assert torch.allclose(norms[0], torch.ones(2, dtype=torch.float64))


def test_a_linear_network_has_the_norms_of_the_powers():
    states = normal(6, 1, 2)
    norms = gradient_by_distance(states, HUMP, nonlinearity="identity")[:, 0]
    assert torch.allclose(norms, power_norms(HUMP, 5))


# Refusals

X, W_X, W_H = normal(4, 2, 3), normal(5, 3), normal(5, 5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rnn(X[:0], W_X, W_H), r"x must have shape .* at least one step, got \(0, 2, 3\)"),
        (lambda: rnn(X, W_X[:, :2], W_H), r"weight_ih must have shape \(5, 3\)"),
        (lambda: rnn(X, W_X, W_H, normal(4)), r"bias must have one entry for each of 5 rows, got \(4,\)"),
        (
            lambda: rnn(X, W_X, W_H, h0=normal(3, 5)),
            r"h0 must have shape \(batch, units\) = \(2, 5\), got \(3, 5\)",
        ),
        (lambda: rnn(X.float(), W_X, W_H), "weight_ih must share dtype and device with x, torch.float32"),
        (lambda: rnn(X / 0, W_X, W_H), "x must be finite, got 24 entries"),
        (lambda: rnn(X, W_X, W_H, nonlinearity="sin"), "nonlinearity must be one of .* got 'sin'"),
        (lambda: gru(X, W_X, W_H), r"weight_ih must have shape \(15, 3\)"),
        (lambda: gru(X, normal(15, 3), normal(15, 5), reset="never"), "reset must be one of .* got 'never'"),
        (lambda: gated_scan(X, X[:3]), "keep and add must have the same shape"),
        (lambda: min_gru(X[:0], W_X, W_X), "at least one step"),
        (lambda: affine_scan(normal(0, 2, 2), normal(0, 2)), "at least one step"),
        (lambda: power_norms(HUMP, -1), "distance must be a whole number of at least 0, got -1"),
        (lambda: spectral_radius(HUMP * float("nan")), "weight_hh must be finite, got 4 entries"),
        (lambda: gradient_by_distance(normal(3, 1, 3), HUMP), r"states must have shape \(time, batch, 2\)"),
        (lambda: state_deltas(X, X[:2], W_H), "states and upstream must have the same shape"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_large_finite_inputs_are_no_overflow():
    x = torch.full((2, 1, 1), 3e38)  # the sum overflows, the entries do not
    assert torch.isfinite(rnn(x, torch.zeros(1, 1), torch.zeros(1, 1))).all()
