"""State space models: the library's fast forms against plain ones, forward and all gradients, float32, one thread.

4,096 tokens and 64 channels. CPU time, every candidate once a round; a ratio below 1 means faster than the plain form.

- Diagonal: two small tables of powers and one Fourier transform, against the full table of N x L powers.
- Selective scan: chunks whose states are computed again in the backward pass, against a loop over `unbind`, and
  mambapy's parallel scan against the same loop.
- Scalar decay: products within chunks, against the same kind of loop.
"""

import time
from collections.abc import Callable

import numpy as np
import torch
from mambapy.pscan import pscan
from torch import Tensor

from benchmarks.timing import Spread, interleave
from course_lib.architectures.selective import decayed_attention, selective_scan
from course_lib.architectures.state_space import diagonal_ssm

LENGTH, CHANNELS = 4096, 64


def full_table(u: Tensor, a: Tensor, c: Tensor, d: Tensor) -> Tensor:
    """All N x L powers of the poles by exponentials, and a convolution by FFT; u (batch, channels, length)."""
    length = u.shape[-1]
    powers = torch.exp(a.log()[..., None] * torch.arange(length))
    kernel = 2 * torch.einsum("hn,hnl->hl", c, powers).real
    spectrum = torch.fft.rfft(u, n=2 * length) * torch.fft.rfft(kernel, n=2 * length)
    return torch.fft.irfft(spectrum, n=2 * length)[..., :length] + d[:, None] * u


def _entries(u: Tensor, delta: Tensor, A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """Decays and inputs of all tokens, (batch, length, channels, n)."""
    return torch.exp(delta[..., None] * A), (delta * u)[..., None] * B[:, :, None]


def unbind_loop(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """The selective scan with all decays in memory and a loop over tokens for autograd."""
    h, states = 0, []
    for a_t, x_t in zip(*(t.unbind(1) for t in _entries(u, delta, A, B)), strict=True):
        h = a_t * h + x_t
        states.append(h)
    return (torch.stack(states, 1) @ C[..., None])[..., 0]


def by_mambapy(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    """The same with mambapy's scan in the place of the loop."""
    return (pscan(*_entries(u, delta, A, B)) @ C[..., None])[..., 0]


def decay_loop(q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> Tensor:
    """Attention with decay, token by token, for autograd."""
    state, outputs = 0, []
    for q_t, k_t, v_t, g_t in zip(*(t.unbind(1) for t in (q, k, v, decay)), strict=True):
        state = g_t[:, None, None] * state + k_t[:, :, None] * v_t[:, None]
        outputs.append((q_t[:, None] @ state)[:, 0])
    return torch.stack(outputs, 1)


def _ratios(name: str, layers: dict[str, tuple[Callable, tuple]], *, rounds: int) -> dict[str, Spread]:
    """Time forward and all gradients of each; the first one is what the others are divided by."""

    def once(layer, inputs):
        leaves = [t.detach().requires_grad_() for t in inputs]
        y = layer(*leaves)
        dy = torch.ones_like(y)
        return lambda _: torch.autograd.grad(layer(*leaves), leaves, dy)

    passes = {key: once(*pair) for key, pair in layers.items()}
    seconds = interleave(passes, rounds=rounds, clock=time.thread_time, warm_up=2)
    (plain, base), *others = seconds.items()
    return {f"{key} / {plain}, {name}": Spread.of(np.array(s) / np.array(base)) for key, s in others}


def run() -> dict[str, Spread]:
    """Return ratios of CPU time, forward and all gradients."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    normal = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    uniform = lambda *shape: torch.rand(*shape, generator=generator)  # noqa: E731
    u, figures = normal(1, LENGTH, CHANNELS), {}
    for n in (16, 32, 64):
        a = torch.polar(0.9 + 0.0999 * uniform(CHANNELS, n), 3.14 * uniform(CHANNELS, n))
        inputs = a, torch.complex(normal(CHANNELS, n), normal(CHANNELS, n)), normal(CHANNELS)
        layers = {
            "full table of powers": (full_table, (u.mT.contiguous(), *inputs)),
            "diagonal": (diagonal_ssm, (u, *inputs)),
        }
        figures |= _ratios(f"N = {n}", layers, rounds=9)
    for n in (16, 64):
        delta, A = 0.1 * uniform(1, LENGTH, CHANNELS), -(1 + uniform(CHANNELS, n) * n)
        inputs = u, delta, A, normal(1, LENGTH, n), normal(1, LENGTH, n)
        layers = {
            "loop over unbind": (unbind_loop, inputs),
            "selective": (lambda *t: selective_scan(*t)[0], inputs),
            "mambapy": (by_mambapy, inputs),
        }
        figures |= _ratios(f"N = {n}", layers, rounds=9)
    for n in (16, 64):
        inputs = normal(1, LENGTH, n), normal(1, LENGTH, n), u, 0.9 + 0.1 * uniform(1, LENGTH)
        layers = {
            "loop": (decay_loop, inputs),
            "decay in chunks": (lambda *t: decayed_attention(*t)[0], inputs),
        }
        figures |= _ratios(f"{n} x {CHANNELS}", layers, rounds=9)
    return figures
