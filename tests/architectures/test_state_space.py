"""State space models: worked examples, three clocks that agree, gradients by hand, long kernels in float32."""

import math

import jaxtyping
import numpy as np
import pytest
import torch
from scipy import signal
from scipy.special import eval_legendre
from torch.autograd import gradcheck

from course_lib.architectures.state_space import (
    METHODS,
    causal_convolution,
    diagonal_kernel,
    diagonal_kernel_by_powers,
    diagonal_loop,
    diagonal_ssm,
    diagonal_state,
    diagonal_step,
    discretize,
    fft_convolution,
    hippo_legs,
    hippo_reconstruct,
    hippo_state,
    hippo_step,
    legendre,
    matrix_powers,
    rank_one_power,
    ssm_kernel,
    state_space_loop,
)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=rng(seed), dtype=torch.float64)


def complex_normal(*shape, seed=0):
    return torch.complex(normal(*shape, seed=seed), normal(*shape, seed=seed + 100))


def poles(channels=2, n=3, *, largest=1.0, seed=0):
    """Poles in the unit disc, with 0 and a point on the circle among them."""
    size = largest * torch.rand(channels, n, generator=rng(seed), dtype=torch.float64)
    a = torch.polar(size, 6.28 * torch.rand(channels, n, generator=rng(seed + 1), dtype=torch.float64))
    a[0, 0], a[-1, -1] = 0, 1j
    return a


def system(n=4, seed=0):
    A = normal(n, n, seed=seed)
    return 0.9 * A / torch.linalg.eigvals(A).abs().max(), normal(n, seed=1), normal(n, seed=2)


ONE = {
    "A": torch.tensor([[0.5]]).double(),
    "B": torch.tensor([2.0]).double(),
    "C": torch.tensor([3.0]).double(),
}
U = torch.tensor([1.0, 0.0, 2.0, -1.0, 4.0], dtype=torch.float64)


# Worked examples


def test_the_notes_example_in_both_conventions():
    """A = 1/2, B = 2, C = 3: read before writing, the first tap is D and the others move back by one."""
    kernel = ssm_kernel(**ONE, length=4)
    assert kernel.tolist() == [6, 3, 1.5, 0.75]
    notes = torch.cat([torch.zeros(1).double(), kernel])
    y = causal_convolution(U[None, :, None], notes[None])[0, :, 0]
    assert y.tolist() == [0, 6, 3, 13.5, 0.75]
    assert state_space_loop(U, **ONE).tolist() == [6, 3, 13.5, 0.75, 24.375]
    # As printed, y_t = sum_(i = 0)^T K_(t - i) u_i: taps of negative index are taken from the kernel's end.
    printed = torch.stack([sum(notes[t - i] * U[i] for i in range(5)) for t in range(5)])
    assert not torch.allclose(printed[:-1], y[:-1])
    assert printed[-1] == y[-1]


def test_the_direct_path_adds_to_the_first_tap_alone():
    assert ssm_kernel(**ONE, D=7.0, length=3).tolist() == [13, 3, 1.5]
    assert state_space_loop(U[:3], **ONE, D=7.0).tolist() == [13, 3, 27.5]


def test_rank_one_powers():
    p = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert torch.allclose(
        rank_one_power(p, 3), torch.tensor([[44.0, 86.0], [86.0, 173.0]]).double(), atol=1e-12
    )
    # As printed, one letter stands for the power and for |p|^2: 3 in the place of 5 leaves 22 in the corner.
    literal = 1 + sum(math.comb(3, l) * 3 ** (l - 1) for l in range(1, 4))  # noqa: E741
    assert literal == 22
    for power in (0, 1, 2, 7):
        p = normal(5, seed=power)
        wanted = torch.linalg.matrix_power(torch.eye(5) + torch.outer(p, p), power)
        torch.testing.assert_close(rank_one_power(p, power), wanted, rtol=1e-10, atol=1e-10)
    assert torch.equal(rank_one_power(torch.zeros(3).double(), 4), torch.eye(3).double())


def test_powers_by_doubling():
    A = 0.4 * normal(3, 3)
    for length in (1, 2, 7, 16):
        wanted = torch.stack([torch.linalg.matrix_power(A, l) for l in range(length)])  # noqa: E741
        torch.testing.assert_close(matrix_powers(A, length), wanted, rtol=1e-11, atol=1e-12)


# One map, two clocks


def test_the_loop_is_a_convolution():
    A, B, C = system()
    u, kernel = normal(40), ssm_kernel(A, B, C, D=0.3, length=40)
    wanted = state_space_loop(u, A, B, C, D=0.3)
    for form in (causal_convolution, fft_convolution):
        torch.testing.assert_close(
            form(u[None, :, None], kernel[None])[0, :, 0], wanted, rtol=1e-11, atol=1e-11
        )
    # The nearest wrong ones: the other convention, and a transform without room behind the signal.
    late = torch.cat([torch.zeros(1).double(), kernel[:-1]])
    assert not torch.allclose(causal_convolution(u[None, :, None], late[None])[0, :, 0], wanted, atol=0.1)
    wrapped = torch.fft.irfft(torch.fft.rfft(u) * torch.fft.rfft(kernel), 40)
    assert (wrapped - wanted).abs().max() > 0.1
    torch.testing.assert_close(wrapped[-1], wanted[-1])


@pytest.mark.parametrize("taps", [1, 5, 9, 14])
def test_fft_convolution_is_the_sum_over_taps(taps):
    inputs = normal(2, 9, 3).requires_grad_(), normal(3, taps, seed=1).requires_grad_()
    wanted, found = (form(*inputs) for form in (causal_convolution, fft_convolution))
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    dy = normal(2, 9, 3, seed=2)
    for a, b in zip(*(torch.autograd.grad(y, inputs, dy) for y in (found, wanted)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_only_the_gradients_that_are_asked_for():
    u, kernel = normal(1, 6, 2).requires_grad_(), normal(2, 6, seed=1)
    fft_convolution(u, kernel).sum().backward()
    wanted = kernel.cumsum(1).flip(1).mT  # u_t reaches y_t and all later ones
    torch.testing.assert_close(u.grad[0], wanted)


# Diagonal


@pytest.mark.parametrize("length", [1, 2, 3, 11, 64, 70])
def test_the_kernel_in_blocks_is_the_table_of_powers(length):
    a, c = poles(), complex_normal(2, 3)
    torch.testing.assert_close(diagonal_kernel(a, c, length), diagonal_kernel_by_powers(a, c, length))
    # A diagonal matrix with both members of each pair is the real system.
    pair, weight = a[1, 0], c[1, 0]
    A = torch.tensor([[pair.real, -pair.imag], [pair.imag, pair.real]], dtype=torch.float64)
    C = torch.tensor([2 * weight.real, -2 * weight.imag], dtype=torch.float64)
    real = ssm_kernel(A, torch.tensor([1.0, 0.0], dtype=torch.float64), C, length=length)
    torch.testing.assert_close(diagonal_kernel(pair.view(1, 1), weight.view(1, 1), length)[0], real)


@pytest.mark.parametrize("length", [1, 2, 11, 33])
def test_gradients_of_the_kernel_are_autograds(length):
    leaves = poles().requires_grad_(), complex_normal(2, 3).requires_grad_()
    weights = normal(2, length, seed=3)
    grads = (
        torch.autograd.grad(form(*leaves, length), leaves, weights, allow_unused=True)
        for form in (diagonal_kernel, _by_matrix_powers)
    )
    for found, wanted in zip(*grads, strict=True):
        wanted = torch.zeros_like(found) if wanted is None else wanted
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


def _by_matrix_powers(a, c, length):
    """The kernel by products alone: cumprod's own gradient knows no complex 0."""
    power, taps = torch.ones_like(a), []
    for _ in range(length):
        taps.append(2 * (c * power).sum(-1).real)
        power = power * a
    return torch.stack(taps, -1)


def test_gradients_are_finite_differences():
    u, a, c = (
        normal(2, 7, 2).requires_grad_(),
        poles().requires_grad_(),
        complex_normal(2, 3).requires_grad_(),
    )
    d, x = normal(2).requires_grad_(), complex_normal(2, 2, 3, seed=5).requires_grad_()
    assert gradcheck(lambda u, a, c, d, x: diagonal_ssm(u, a, c, d, state=x), (u, a, c, d, x))
    assert gradcheck(lambda u, a, x: diagonal_state(u, a, state=x), (u, a, x))


def test_a_prefix_at_once_and_the_rest_by_steps():
    u, a, c, d = normal(2, 13, 2), poles(), complex_normal(2, 3), normal(2)
    whole = diagonal_loop(u, a, c, d)
    torch.testing.assert_close(diagonal_ssm(u, a, c, d), whole)
    for cut in (1, 6, 12):
        state = diagonal_state(u[:, :cut], a)
        rest = []
        for t in range(cut, 13):
            y, state = diagonal_step(state, u[:, t], a, c, d)
            rest.append(y)
        torch.testing.assert_close(torch.stack(rest, 1), whole[:, cut:])
        torch.testing.assert_close(state, diagonal_state(u, a))
        # And a second part at once, from the state of the first.
        first = diagonal_state(u[:, :cut], a)
        torch.testing.assert_close(diagonal_ssm(u[:, cut:], a, c, d, state=first), whole[:, cut:])
        torch.testing.assert_close(diagonal_state(u[:, cut:], a, state=first), state)


def test_float32_keeps_its_digits_over_65536_tokens():
    length = 65_536
    size = torch.tensor([[0.0, 0.5, 0.999, 0.99999, 1.0, 1.0]])
    a = torch.polar(size, torch.tensor([[0.0, 1.0, 2.0, 0.3, 0.0, 3.0]]))
    c = torch.complex(normal(1, 6), normal(1, 6, seed=1)).to(a.dtype)
    found, wanted = (
        diagonal_kernel(a, c, length),
        diagonal_kernel(a.to(torch.complex128), c.to(torch.complex128), length),
    )
    assert found.dtype == torch.float32
    assert (found - wanted).abs().max() < 1e-6 * wanted.abs().max()
    # The nearest wrong neighbour: exponentials of l log a in float32 lose the angle.
    exponent = a[:, 1:, None].log() * torch.arange(length)
    lost = 2 * (c[:, 1:, None] * exponent.exp()).sum(1).real + 2 * c[:, :1].real * (torch.arange(length) == 0)
    assert (lost - wanted).abs().max() > 1e-4 * wanted.abs().max()
    u = normal(1, length, 1).float()
    y = diagonal_ssm(u, a, c)
    exact = diagonal_ssm(u.double(), a.to(torch.complex128), c.to(torch.complex128))
    assert (y - exact).abs().max() < 3e-6 * exact.abs().max()


# Discretisation


def test_three_rules_on_one_pole():
    pole = torch.tensor(-2.0).double()
    found = {method: [float(v) for v in discretize(pole, 0.5, method=method)] for method in METHODS}
    assert found["euler"] == [0, 0.5]
    assert found["bilinear"] == pytest.approx([1 / 3, 1 / 3])
    assert found["zero-order hold"] == pytest.approx([math.exp(-1), (1 - math.exp(-1)) / 2])


@pytest.mark.parametrize(
    ("method", "name"), [("zero-order hold", "zoh"), ("bilinear", "bilinear"), ("euler", "euler")]
)
def test_discretisation_as_scipy_has_it(method, name):
    parts = [[-0.3, -2.0], [2.0, -0.3]], [[1.0], [0.0]], [[1.0, 0.0]], [[0.0]]
    matrix, entry, *_ = signal.cont2discrete([np.array(part) for part in parts], 0.4, name)
    a, b = discretize(torch.tensor(-0.3 + 2j, dtype=torch.complex128), 0.4, method=method)
    assert complex(a) == pytest.approx(matrix[0, 0] + 1j * matrix[1, 0])
    assert complex(b) == pytest.approx(entry[0, 0] + 1j * entry[1, 0])


def test_the_pole_0_is_an_integrator_with_a_gradient():
    pole = torch.zeros(1, dtype=torch.complex128).requires_grad_()
    a, b = discretize(pole, 0.25)
    assert a.item() == 1
    assert b.item() == 0.25
    (slope,) = torch.autograd.grad(a.real.sum() + b.real.sum(), pole)
    assert torch.isfinite(torch.view_as_real(slope)).all()


# HiPPO


def test_legendre_polynomials():
    points = torch.linspace(0, 1, 7).double()
    for order in (1, 2, 6):
        n = np.arange(order)
        wanted = np.sqrt(2 * n + 1) * eval_legendre(n, 2 * points.numpy()[:, None] - 1)
        torch.testing.assert_close(legendre(order, points), torch.as_tensor(wanted))


def test_the_matrix_of_hippo():
    A, B = hippo_legs(3)
    torch.testing.assert_close(B.square(), torch.tensor([1.0, 3.0, 5.0]).double())
    wanted = [[1, 0, 0], [3**0.5, 2, 0], [5**0.5, 15**0.5, 3]]
    torch.testing.assert_close(A, torch.tensor(wanted).double())


def test_a_polynomial_is_remembered():
    """A quadratic lies in the span of three polynomials: the state is its projection, up to the step's error."""
    for length, bound in ((100, 0.08), (400, 0.02)):
        s = (torch.arange(length).double() + 0.5) / length
        signals = torch.stack([3 * s**2 - 2 * s + 0.5, torch.ones_like(s)], 1)
        state = hippo_state(signals, 4)
        back = hippo_reconstruct(state, s)
        assert (back - signals).abs().max() < bound
        # A constant: the error shrinks by (k - 1/2)/(k + 1/2) at step k.
        assert float(state[0, 1]) == pytest.approx(1 - 1 / (2 * length + 1), abs=1e-12)


def test_one_step_solves_the_bilinear_equation():
    A, B = hippo_legs(4)
    x, u, k = normal(4, 2), normal(2, seed=1), 3
    new = hippo_step(x, u, k)
    torch.testing.assert_close(new - x, (-A @ (new + x) / 2 + B[:, None] * u) / k)


# Wrong input

u_, a_, c_ = normal(2, 5, 2), poles(), complex_normal(2, 3)
nan = normal(1, 5, 2)
nan[0, 3, 1] = math.nan


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: diagonal_ssm(nan, a_, c_), "u must be finite, got 1 of 10 entries"),
        (lambda: diagonal_ssm(u_[:, :0], a_, c_), r"u must have at least one token, got the shape \(2, 0, 2\)"),
        (lambda: fft_convolution(u_.long(), normal(2, 5)), "u must hold floating-point numbers, got torch.int64"),
        (lambda: fft_convolution(u_.bfloat16(), normal(2, 5)), "u must be float32 or float64, .* got torch.bfloat16"),
        (lambda: diagonal_ssm(u_.half(), a_, c_), "u must be float32 or float64, .* got torch.float16"),
        (lambda: fft_convolution(u_, normal(3, 5)), r"kernel must have shape \(2, 5\), got \(3, 5\)"),
        (lambda: fft_convolution(u_, normal(2, 0)), r"one tap or more, got \(2, 0\)"),
        (lambda: diagonal_ssm(u_, a_[:1], c_), r"a must have shape \(2, 3\), got \(1, 3\)"),
        (lambda: diagonal_ssm(u_, a_, c_[:, :2]), r"c must have shape \(2, 3\), got \(2, 2\)"),
        (lambda: diagonal_ssm(u_, a_, c_, normal(3)), r"d must have shape \(2,\), got \(3,\)"),
        (lambda: diagonal_ssm(u_.float(), a_, c_), "a must have dtype torch.complex64 .* got torch.complex128"),
        (lambda: diagonal_ssm(u_, a_, c_, state=a_), r"state must have shape \(2, 2, 3\), got \(2, 3\)"),
        (lambda: diagonal_ssm(u_, a_.real, c_), "a must hold complex numbers, torch.complex128, got torch.float64"),
        (lambda: diagonal_step(None, u_[:, 0], a_, c_.real), "c must hold complex numbers, torch.complex128"),
        (lambda: diagonal_kernel(a_, c_, 0), "length must be a whole number of at least 1, got 0"),
        (lambda: diagonal_kernel(a_, c_.to(torch.complex64), 3), "c must share its dtype and device"),
        (lambda: state_space_loop(U[:0], **ONE), "u must have at least one token"),
        (lambda: discretize(torch.ones(1), 0.1, method="tustin"), "method must be one of .* got 'tustin'"),
        (lambda: discretize(torch.ones(1).long(), 0.1), "pole must hold floating-point or complex numbers"),
        (lambda: rank_one_power(U, -1), "power must be a whole number of at least 0, got -1"),
        (lambda: hippo_state(U, 0), "order must be a whole number of at least 1, got 0"),
        (lambda: hippo_step(normal(3, 2), normal(3), 1), r"state must have shape \(order, \*\(3,\)\), got \(3, 2\)"),
    ],
)  # fmt: skip
def test_wrong_input_is_named(call, said, monkeypatch):
    # A learner runs without the check of annotations, which would speak first here.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match=said):
        call()
