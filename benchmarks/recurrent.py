"""Recurrent networks: ours against torch.nn's, forward and all gradients.

float32, CPU time of one thread, every candidate once a round. Less than 1 means faster than the peer.
"""

import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.timing import Spread, interleave
from course_lib.architectures.recurrent import gru, min_gru, rnn

SIZES = ((256, 32, 128), (1024, 16, 64), (1024, 1, 64))  # steps, batch, units; as many features as units


def _pass(layer: Callable, leaves: list[torch.Tensor], dy: torch.Tensor) -> Callable:
    return lambda _: torch.autograd.grad(layer(*leaves), leaves, dy)


def _library(kind: type, units: int) -> tuple[Callable, list[torch.Tensor]]:
    module = kind(units, units)
    return lambda x, *_: module(x)[0], list(module.parameters())


def run() -> dict[str, Spread]:
    """Return ratios of CPU time, forward and all gradients."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    figures = {}
    for steps, batch, units in SIZES:
        x, dy = torch.randn(steps, batch, units, requires_grad=True), torch.randn(steps, batch, units)
        (nn_rnn, (w_x, w_h, b, b_h)), (nn_gru, gates) = (
            _library(kind, units) for kind in (torch.nn.RNN, torch.nn.GRU)
        )
        mingru = torch.nn.Linear(units, 2 * units)
        halves = [
            *(w.detach().requires_grad_() for w in mingru.weight.chunk(2)),
            *(w.detach().requires_grad_() for w in mingru.bias.chunk(2)),
        ]
        passes = {
            "nn.RNN": _pass(nn_rnn, [x, w_x, w_h, b, b_h], dy),
            "our RNN": _pass(rnn, [x, w_x, w_h, b], dy),
            "minGRU": _pass(min_gru, [x, *halves], dy),
            "nn.GRU": _pass(nn_gru, [x, *gates], dy),
            "our GRU": _pass(gru, [x, *gates], dy),
            "our GRU, reset before": _pass(lambda *t: gru(*t, reset="before"), [x, *gates], dy),
        }
        seconds = interleave(passes, rounds=15, clock=time.thread_time, warm_up=2)
        for name, peer in (
            ("our RNN", "nn.RNN"),
            ("minGRU", "nn.RNN"),
            ("our GRU", "nn.GRU"),
            ("our GRU, reset before", "nn.GRU"),
        ):
            figures[f"{name} / {peer}, {steps} x {batch} x {units}"] = Spread.of(
                np.array(seconds[name]) / np.array(seconds[peer])
            )
    return figures
