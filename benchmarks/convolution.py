"""Convolution: shifted products against torch's conv2d, and depthwise convolution by FFT against the direct one.

Forward and all gradients, float32, CPU time of one thread, every candidate once a round. Less than 1 means faster than
`torch.nn.functional.conv2d`.
"""

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.timing import Spread, interleave
from course_lib.architectures.convolution import conv2d, conv2d_by_shifts, depthwise_conv2d

BATCH, CHANNELS, SIZE = 16, 64, 32
KERNELS = (3, 5, 7, 9, 11, 15, 31)


def by_unfold(x: Tensor, weight: Tensor) -> Tensor:
    """K^2 copies of the image in memory, and one product."""
    columns = functional.unfold(x, weight.shape[-1], padding=weight.shape[-1] // 2)
    return (weight.flatten(1) @ columns).view(len(x), len(weight), *x.shape[2:])


def _pass(layer: Callable[[Tensor, Tensor], Tensor], x: Tensor, weight: Tensor, dy: Tensor) -> Callable:
    return lambda _: torch.autograd.grad(layer(x, weight), (x, weight), dy)


def _ratios(name: str, candidates: dict[str, Callable], *, rounds: int) -> dict[str, Spread]:
    seconds = interleave(candidates, rounds=rounds, clock=time.thread_time, warm_up=2)
    peer = np.array(seconds["conv2d"])
    return {f"{key} / conv2d, {name}": Spread.of(np.array(s) / peer) for key, s in list(seconds.items())[1:]}


def run() -> dict[str, Spread]:
    """Return ratios of CPU time, forward and all gradients."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    normal = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    x, dy = normal(BATCH, CHANNELS, SIZE, SIZE).requires_grad_(), normal(BATCH, CHANNELS, SIZE, SIZE)
    weight = normal(CHANNELS, CHANNELS, 3, 3).requires_grad_()
    layers = {
        "conv2d": lambda x, w: functional.conv2d(x, w, padding=1),
        "shifted products": lambda x, w: conv2d(x, w, padding=1),
        "shifts, as read": lambda x, w: conv2d_by_shifts(x, w, padding=1),
        "unfold and matmul": by_unfold,
    }
    figures = _ratios("3 x 3", {n: _pass(f, x, weight, dy) for n, f in layers.items()}, rounds=15)
    for k in KERNELS:
        weight = normal(CHANNELS, 1, k, k).requires_grad_()
        layers = {
            "conv2d": lambda x, w, p=k // 2: functional.conv2d(x, w, padding=p, groups=CHANNELS),
            "depthwise by FFT": lambda x, w, p=k // 2: depthwise_conv2d(x, w, padding=p),
        }
        passes = {n: _pass(f, x, weight, dy) for n, f in layers.items()}
        figures |= _ratios(f"depthwise, K = {k}", passes, rounds=15 if k < 15 else 5)
    return figures
