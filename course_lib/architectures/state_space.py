"""State space models: one linear map of a sequence, as a loop over a state or as one convolution (lesson 15).

A state x is carried from token to token, x_t = A x_(t-1) + B u_t, and read, y_t = C x_t + D u_t. Unrolled, the output
is a convolution of the input with the kernel C A^l B. If A is diagonal, each entry of the state keeps its own power of
one complex number, its pole, and the kernel costs a product of two small matrices (`diagonal_kernel`). Trained as a
convolution (`diagonal_ssm`) and run as a loop (`diagonal_step`), the layer is the same.

What changes its state by rules that depend on the token is in `course_lib.architectures.selective`.
"""

import math
from typing import Literal

import torch
from jaxtyping import Complex, Float
from torch import Tensor
from torch.nn.functional import pad

from course_lib.architectures.convolution import fft_size

Method = Literal["zero-order hold", "bilinear", "euler"]
METHODS = ("zero-order hold", "bilinear", "euler")


# Bad input


def check_sequence(name: str, u: Tensor, *, dim: int = -2) -> None:
    """Raise ValueError where a sequence is empty, holds no floating-point numbers, or (on a CPU) NaN or infinity.

    Elsewhere values are not looked at: that would stop the queue of kernels at every step.
    """
    if not u.is_floating_point():
        raise ValueError(f"{name} must hold floating-point numbers, got {u.dtype}")
    if u.shape[dim] == 0:
        raise ValueError(f"{name} must have at least one token, got the shape {tuple(u.shape)}")
    if u.device.type == "cpu" and not torch.compiler.is_compiling() and not bool(u.detach().isfinite().all()):
        wrong = int((~u.detach().isfinite()).sum())
        raise ValueError(
            f"{name} must be finite, got {wrong} of {u.numel()} entries that are NaN or infinite"
        )


def check_whole(least: int, **numbers: int) -> None:
    """Raise ValueError where a named number is not a whole one of at least `least`."""
    for name, value in numbers.items():
        if not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def check_shape(name: str, tensor: Tensor, wanted: tuple[int, ...], like: Tensor) -> None:
    """Raise ValueError where a tensor has not the wanted shape, or not the dtype and device of `like`."""
    if tuple(tensor.shape) != wanted:
        raise ValueError(f"{name} must have shape {wanted}, got {tuple(tensor.shape)}")
    dtype = like.dtype.to_complex() if tensor.is_complex() else like.dtype
    if (tensor.dtype, tensor.device) != (dtype, like.device):
        raise ValueError(
            f"{name} must have dtype {dtype} and lie on {like.device}, got {tensor.dtype} on {tensor.device}"
        )


def _check_full_precision(u: Tensor) -> None:
    if u.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"u must be float32 or float64, which Fourier transforms take, got {u.dtype}")


def _check_poles(u: Tensor, a: Tensor, c: Tensor | None = None, d: Tensor | None = None) -> None:
    """Check poles (channels, n), weights of their shape and the direct path (channels,) against u (..., channels)."""
    _check_full_precision(u)
    if not a.is_complex():
        raise ValueError(f"a must hold complex numbers, {u.dtype.to_complex()}, got {a.dtype}")
    if a.ndim != 2 or not a.shape[1]:
        raise ValueError(f"a must have shape (channels, poles) with one pole or more, got {tuple(a.shape)}")
    check_shape("a", a, (u.shape[-1], a.shape[1]), u)
    if c is not None:
        if not c.is_complex():
            raise ValueError(f"c must hold complex numbers, {u.dtype.to_complex()}, got {c.dtype}")
        check_shape("c", c, tuple(a.shape), u)
    if d is not None:
        check_shape("d", d, (u.shape[-1],), u)


# One channel and any matrix, to be read


def state_space_loop(
    u: Float[Tensor, " length"],
    A: Float[Tensor, "n n"],
    B: Float[Tensor, " n"],
    C: Float[Tensor, " n"],
    D: float | int = 0.0,
) -> Float[Tensor, " length"]:
    """x_t = A x_(t-1) + B u_t, y_t = C.x_t + D u_t (15.1), from x = 0: the state is written, then read.

    Raises:
        ValueError: u is empty or not finite.
    """
    check_sequence("u", u, dim=0)
    x, outputs = torch.zeros_like(B), []
    for u_t in u:
        x = A @ x + B * u_t
        outputs.append(C @ x + D * u_t)
    return torch.stack(outputs)


def matrix_powers(A: Float[Tensor, "n n"], length: int) -> Float[Tensor, "length n n"]:
    """(I, A, ..., A^(length - 1)) by doubling, X_2m = (X_m, A^m X_m): log2(length) rounds of products.

    Raises:
        ValueError: `length` is below 1.
    """
    check_whole(1, length=length)
    powers, last = torch.eye(len(A), dtype=A.dtype, device=A.device)[None], A
    while len(powers) < length:
        powers, last = torch.cat([powers, last @ powers]), last @ last
    return powers[:length]


def ssm_kernel(
    A: Float[Tensor, "n n"],
    B: Float[Tensor, " n"],
    C: Float[Tensor, " n"],
    D: float | int = 0.0,
    *,
    length: int,
) -> Float[Tensor, " length"]:
    """K_0 = C.B + D and K_l = C A^l B (15.2).

    Raises:
        ValueError: `length` is below 1.
    """
    kernel = matrix_powers(A, length) @ B @ C
    return torch.cat([kernel[:1] + D, kernel[1:]])


def rank_one_power(p: Float[Tensor, " n"], power: int) -> Float[Tensor, "n n"]:
    """(I + p p^T)^L = I + p p^T ((1 + s)^L - 1)/s with s = |p|^2 (15.7): no product of matrices.

    Raises:
        ValueError: `power` is below 0.
    """
    check_whole(0, power=power)
    s = p @ p
    safe = torch.where(s > 0, s, 1)  # for s = 0 the factor is its limit L, and p p^T is 0 anyway
    factor = torch.where(s > 0, torch.expm1(power * torch.log1p(safe)) / safe, power)
    return torch.eye(len(p), dtype=p.dtype, device=p.device) + factor * torch.outer(p, p)


# Convolution


def causal_convolution(
    u: Float[Tensor, "batch length channels"], kernel: Float[Tensor, "channels taps"]
) -> Float[Tensor, "batch length channels"]:
    """y_t = sum_l K_l u_(t - l) with u = 0 before the start (15.2), one tap after the other; to be read.

    Raises:
        ValueError: u is empty or not finite, or the kernel has another number of channels, dtype or device.
    """
    _check_kernel(u, kernel)
    length, y = u.shape[1], torch.zeros_like(u)
    for lag in range(min(length, kernel.shape[1])):
        y = y + kernel[:, lag] * pad(u, (0, 0, lag, 0))[:, :length]
    return y


def fft_convolution(
    u: Float[Tensor, "batch length channels"], kernel: Float[Tensor, "channels taps"]
) -> Float[Tensor, "batch length channels"]:
    """y = F^-1(F(K) F(u)) with zeros behind both, so that nothing wraps round (15.4).

    In float32 the error is near 1e-6 of the largest output. Gradients are by hand, two more such products; they cannot
    be differentiated again.

    Raises:
        ValueError: u is empty or not finite, or the kernel has another number of channels, dtype or device.
    """
    _check_kernel(u, kernel)
    return _FFTConvolution.apply(u, kernel)


def _check_kernel(u: Tensor, kernel: Tensor) -> None:
    check_sequence("u", u)
    _check_full_precision(u)
    if kernel.ndim != 2 or not kernel.shape[1]:
        raise ValueError(
            f"kernel must have shape (channels, taps) with one tap or more, got {tuple(kernel.shape)}"
        )
    check_shape("kernel", kernel, (u.shape[-1], kernel.shape[1]), u)


class _FFTConvolution(torch.autograd.Function):
    """Product of padded spectra, and its gradients by hand: the conjugate spectrum runs backwards in time."""

    @staticmethod
    def forward(ctx, u, kernel):
        ctx.sizes = u.shape[1], kernel.shape[1], fft_size(u.shape[1] + kernel.shape[1] - 1)
        signals, taps = torch.fft.rfft(u.mT, ctx.sizes[2]), torch.fft.rfft(kernel, ctx.sizes[2])
        ctx.save_for_backward(signals, taps)
        return torch.fft.irfft(signals * taps, ctx.sizes[2])[..., : ctx.sizes[0]].mT.contiguous()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        (signals, taps), (length, count, size), du, dk = ctx.saved_tensors, ctx.sizes, None, None
        dy = torch.fft.rfft(dy.mT, size)
        if ctx.needs_input_grad[0]:
            du = torch.fft.irfft(dy * taps.conj(), size)[..., :length].mT.contiguous()
        if ctx.needs_input_grad[1]:
            dk = torch.fft.irfft((dy * signals.conj()).sum(0), size)[..., :count].contiguous()
        return du, dk


# A diagonal matrix: one complex pole for each entry of the state
#
# Each pole a stands for itself and its conjugate, so that sums of both are real: 2 Re(c x). The input enters with the
# factor 1, since only the product of the factors at entry and exit counts: pass c b for c.


def diagonal_kernel_by_powers(
    a: Complex[Tensor, "channels n"], c: Complex[Tensor, "*lead channels n"], length: int
) -> Float[Tensor, "*lead channels length"]:
    """K_l = 2 Re sum_n c_n a_n^l (15.3), with all n x length powers in memory; to be read.

    Raises:
        ValueError: `length` is below 1.
    """
    check_whole(1, length=length)
    powers = torch.cat(
        [torch.ones_like(a)[..., None], a[..., None].expand(*a.shape, length - 1)], -1
    ).cumprod(-1)
    return 2 * (c[..., None] * powers).sum(-2).real


def diagonal_kernel(
    a: Complex[Tensor, "channels n"], c: Complex[Tensor, "*lead channels n"], length: int
) -> Float[Tensor, "*lead channels length"]:
    """K_l = 2 Re sum_n c_n a_n^l (15.3) as a product of two small tables of powers, a^(mi + j) = (a^m)^i a^j (15.10).

    The powers come by doubling in double precision and are rounded once, so that nothing is lost for |a| between 0 and
    1, both included, however long the kernel. Gradients are by hand; they cannot be differentiated again.

    Raises:
        ValueError: `length` is below 1, or a and c do not belong together.
    """
    check_whole(1, length=length)
    if not (a.is_complex() and c.dtype == a.dtype and a.device == c.device and a.ndim == 2 and a.numel()):
        raise ValueError(
            f"a must be a complex tensor (channels, n) that is not empty, and c must share its dtype and device, "
            f"got {a.dtype} of shape {tuple(a.shape)} on {a.device} and {c.dtype} on {c.device}"
        )
    if c.shape[-2:] != a.shape:
        raise ValueError(f"c must have shape (..., {a.shape[0]}, {a.shape[1]}), as a, got {tuple(c.shape)}")
    return _DiagonalKernel.apply(a, c, length)


def _powers(a: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(1, a, ..., a^(count - 1)) along a new axis before the last, and a^count, for count a power of 2: by doubling."""
    powers, last = torch.ones_like(a)[..., None, :], a
    while powers.shape[-2] < count:
        powers, last = torch.cat([powers, last[..., None, :] * powers], -2), last * last
    return powers, last


def _slope(powers: Tensor, a: Tensor, step: int) -> Tensor:
    """The derivative of a^(step i) by a, i = 0, 1, ...: step i a^(step i - 1), without a division."""
    shifted = torch.cat([torch.zeros_like(powers[..., :1, :]), powers[..., :-1, :]], -2)
    order = step * torch.arange(powers.shape[-2], device=a.device, dtype=a.real.dtype)
    # a^(step i - 1) = a^(step (i - 1)) a^(step - 1)
    return shifted * order[:, None] * (_power(a, step - 1)[..., None, :] if step > 1 else 1)


def _power(a: Tensor, exponent: int) -> Tensor:
    result = torch.ones_like(a)
    while exponent:
        result, a, exponent = (result * a if exponent % 2 else result), a * a, exponent // 2
    return result


def _block(length: int) -> int:
    """The columns of a table of about sqrt(length) rows and columns: a power of 2."""
    return 1 << math.ceil(math.log2(length) / 2)


def _tables(a: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Fine powers a^j, j < m, and coarse ones a^(mi), (channels, count, n) each, in double precision."""
    columns = _block(length)
    fine, step = _powers(a.to(torch.complex128), columns)
    coarse, _ = _powers(step, 1 << math.ceil(math.log2(-(-length // columns))))
    return fine, coarse[..., : -(-length // columns), :]


def _stacked(z: Tensor, sign: int) -> Tensor:
    """Real and (signed) imaginary parts side by side: a complex product becomes a real one of twice the width."""
    return torch.cat([z.real, sign * z.imag], -1)


class _DiagonalKernel(torch.autograd.Function):
    """Two tables of powers and their product, and its gradients by hand."""

    @staticmethod
    def forward(ctx, a, c, length):
        fine, coarse = _tables(a, length)
        ctx.save_for_backward(a, c, fine, coarse)
        rows = c[..., None, :] * coarse.to(a.dtype)
        kernel = 2 * _stacked(rows, -1) @ _stacked(fine.to(a.dtype), 1).mT
        return kernel.flatten(-2)[..., :length].contiguous()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dk):
        a, c, fine, coarse = ctx.saved_tensors
        columns, rows = fine.shape[-2], coarse.shape[-2]
        dk = pad(dk, (0, rows * columns - dk.shape[-1])).unflatten(-1, (rows, columns))
        wide = a.to(torch.complex128)
        both = torch.cat([fine, _slope(fine, wide, 1)], -1).to(a.dtype)
        n = a.shape[-1]
        real, imaginary = (dk @ _stacked(both, 1)).split(2 * n, -1)
        sums = torch.complex(real, imaginary)  # sum_j dK_ij a^j, and beside it sum_j dK_ij j a^(j-1)
        inner, slope = sums.split(n, -1)
        dc = 2 * (inner * coarse.to(a.dtype)).sum(-2)
        steps = _slope(coarse, wide, columns).to(a.dtype)
        da = 2 * c * (inner * steps + slope * coarse.to(a.dtype)).sum(-2)
        return da.flatten(0, -3).sum(0).conj() if da.ndim > 2 else da.conj(), dc.conj(), None


def diagonal_loop(
    u: Float[Tensor, "batch length channels"],
    a: Complex[Tensor, "channels n"],
    c: Complex[Tensor, "channels n"],
    d: Float[Tensor, " channels"] | None = None,
) -> Float[Tensor, "batch length channels"]:
    """x_t = a x_(t-1) + u_t, y_t = 2 Re sum_n c_n x_tn + d u_t (15.3), token by token; to be read.

    Raises:
        ValueError: u is empty or not finite, or shapes, dtypes or devices do not belong together.
    """
    check_sequence("u", u)
    state, outputs = None, []
    for u_t in u.unbind(1):
        y_t, state = diagonal_step(state, u_t, a, c, d)
        outputs.append(y_t)
    return torch.stack(outputs, 1)


def diagonal_ssm(
    u: Float[Tensor, "batch length channels"],
    a: Complex[Tensor, "channels n"],
    c: Complex[Tensor, "channels n"],
    d: Float[Tensor, " channels"] | None = None,
    *,
    state: Complex[Tensor, "batch channels n"] | None = None,
) -> Float[Tensor, "batch length channels"]:
    """What `diagonal_loop` computes, as one convolution with `diagonal_kernel`: time L log L for each channel.

    Shapes: `state` is what came before u, as `diagonal_state` and `diagonal_step` return it; None for nothing.
    Ranges: |a| <= 1 forgets or keeps; above 1 the kernel grows until it overflows.

    Raises:
        ValueError: u is empty or not finite, or shapes, dtypes or devices do not belong together.
    Source: Gu et al. 2022, arXiv:2206.11893 (S4D).
    """
    check_sequence("u", u)
    _check_poles(u, a, c, d)
    y = fft_convolution(u, diagonal_kernel(a, c, u.shape[1]))
    if state is not None:  # what is left of it decays like a kernel with other weights
        check_shape("state", state, (len(u), *a.shape), u)
        y = y + diagonal_kernel(a, c * a * state, u.shape[1]).mT
    return y if d is None else y + d * u


def diagonal_state(
    u: Float[Tensor, "batch length channels"],
    a: Complex[Tensor, "channels n"],
    *,
    state: Complex[Tensor, "batch channels n"] | None = None,
) -> Complex[Tensor, "batch channels n"]:
    """The state after the last token, sum_l a^(L-1-l) u_l + a^L x (15.6), by the same two tables of powers.

    Read a prompt with `diagonal_ssm` and this, then go on with `diagonal_step`. Gradients are autograd's.

    Raises:
        ValueError: u is empty or not finite, or shapes, dtypes or devices do not belong together.
    """
    check_sequence("u", u)
    _check_poles(u, a)
    length = u.shape[1]
    fine, coarse = _tables(a, length)
    rows, columns = coarse.shape[-2], fine.shape[-2]
    past = pad(u.mT.flip(-1), (0, rows * columns - length)).unflatten(-1, (rows, columns))
    real, imaginary = (past @ _stacked(fine.to(a.dtype), 1)).chunk(2, -1)
    total = (torch.complex(real, imaginary) * coarse.to(a.dtype)).sum(-2)
    if state is None:
        return total
    check_shape("state", state, (len(u), *a.shape), u)
    return total + _power(a.to(torch.complex128), length).to(a.dtype) * state


def diagonal_step(
    state: Complex[Tensor, "batch channels n"] | None,
    u: Float[Tensor, "batch channels"],
    a: Complex[Tensor, "channels n"],
    c: Complex[Tensor, "channels n"],
    d: Float[Tensor, " channels"] | None = None,
) -> tuple[Float[Tensor, "batch channels"], Complex[Tensor, "batch channels n"]]:
    """One token of (15.3): return its output and the new state. None is the state before the first token.

    Raises:
        ValueError: shapes, dtypes or devices do not belong together.
    """
    _check_poles(u, a, c, d)
    if state is not None:
        check_shape("state", state, (len(u), *a.shape), u)
    state = u[..., None] + (0 * a if state is None else a * state)
    y = 2 * (c * state).sum(-1).real
    return (y if d is None else y + d * u), state


# From continuous time to steps


def discretize(
    pole: Tensor, step: float | Tensor, *, method: Method = "zero-order hold"
) -> tuple[Tensor, Tensor]:
    """The factors a, b of x_t = a x_(t-1) + b u_t for dx/ds = pole x + u, with one token every `step`.

    "zero-order hold": a = e^(step pole), b = (a - 1)/pole, exact for an input that is constant within a step.
    "bilinear": a = (1 + step pole/2)/(1 - step pole/2), b = step/(1 - step pole/2); "euler": a = 1 + step pole,
    b = step.

    Shapes: `pole` (real or complex) and `step` broadcast. Units: `step` in those of time, `pole` in their inverse.

    Raises:
        ValueError: `method` is unknown, or `pole` is neither real nor complex.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {list(METHODS)}, got {method!r}")
    if not (pole.is_floating_point() or pole.is_complex()):
        raise ValueError(f"pole must hold floating-point or complex numbers, got {pole.dtype}")
    z = step * pole
    if method == "euler":
        return 1 + z, step * torch.ones_like(z)
    if method == "bilinear":
        return (1 + z / 2) / (1 - z / 2), step / (1 - z / 2)
    zero = z == 0
    safe = torch.where(zero, 1, z)
    return torch.exp(z), step * torch.where(zero, 1, torch.expm1(safe) / safe)


# A state that remembers: HiPPO


def hippo_legs(
    order: int, *, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
) -> tuple[Float[Tensor, "order order"], Float[Tensor, " order"]]:
    """A and B of HiPPO-LegS, dx/ds = (-A x + B u)/s (15.8).

    A_nk = sqrt((2n + 1)(2k + 1)) for n > k, n + 1 for n = k and 0 above; B_n = sqrt(2n + 1), n from 0.

    Raises:
        ValueError: `order` is below 1.
    Source: Gu et al. 2020, arXiv:2008.07669.
    """
    check_whole(1, order=order)
    n = torch.arange(order, dtype=dtype, device=device)
    B = (2 * n + 1).sqrt()
    return torch.outer(B, B).tril(-1) + torch.diag(n + 1), B


def hippo_step(
    state: Float[Tensor, "order *lead"], u: Float[Tensor, "*lead"], step: int
) -> Float[Tensor, "order *lead"]:
    """One sample more, number `step` counted from 1: (15.8) by the bilinear rule with the step 1/`step`.

    (I + A/2k) x_k = (I - A/2k) x_(k-1) + B u_k / k. Start from a state of zeros.

    Raises:
        ValueError: `step` is below 1, or the state has not one entry of u's shape for each coefficient.
    """
    check_whole(1, step=step)
    if state.shape[1:] != u.shape or not len(state):
        raise ValueError(f"state must have shape (order, *{tuple(u.shape)}), got {tuple(state.shape)}")
    return _hippo_update(*hippo_legs(len(state), dtype=state.dtype, device=state.device), state, u, step)


def _hippo_update(A: Tensor, B: Tensor, state: Tensor, u: Tensor, step: int) -> Tensor:
    flat, half = state.reshape(len(state), -1), A / (2 * step)
    right = flat - half @ flat + torch.outer(B / step, u.reshape(-1))
    eye = torch.eye(len(A), dtype=A.dtype, device=A.device)
    return torch.linalg.solve_triangular(eye + half, right, upper=False).view_as(state)


def hippo_state(signal: Float[Tensor, "length *lead"], order: int) -> Float[Tensor, "order *lead"]:
    """The state after a whole signal, sample by sample (15.8): `order` numbers, whatever the length.

    Raises:
        ValueError: the signal is empty or not finite, or `order` is below 1.
    """
    check_sequence("signal", signal, dim=0)
    check_whole(1, order=order)
    A, B = hippo_legs(order, dtype=signal.dtype, device=signal.device)
    state = signal.new_zeros(order, *signal.shape[1:])
    for step, u in enumerate(signal, start=1):
        state = _hippo_update(A, B, state, u, step)
    return state


def legendre(order: int, points: Float[Tensor, " points"]) -> Float[Tensor, "points order"]:
    """sqrt(2n + 1) P_n(2s - 1) for n < order: orthonormal polynomials on 0 <= s <= 1.

    Raises:
        ValueError: `order` is below 1.
    """
    check_whole(1, order=order)
    z = 2 * points - 1
    columns = [torch.ones_like(z), z]
    for n in range(1, order - 1):
        columns.append(((2 * n + 1) * z * columns[n] - n * columns[n - 1]) / (n + 1))
    scale = (2 * torch.arange(order, dtype=points.dtype, device=points.device) + 1).sqrt()
    return torch.stack(columns[:order], -1) * scale


def hippo_reconstruct(
    state: Float[Tensor, "order *lead"], points: Float[Tensor, " points"]
) -> Float[Tensor, "points *lead"]:
    """The signal at shares s of its past, 0 the start and 1 now: sum_n x_n sqrt(2n + 1) P_n(2s - 1) (15.9)."""
    return torch.einsum("pn,n...->p...", legendre(len(state), points), state)
