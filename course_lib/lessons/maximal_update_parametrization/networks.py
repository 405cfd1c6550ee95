"""The networks of lesson 07, how they are set up and trained, and what one step does to them."""

import math
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from course_lib.optimization.mup import param_groups, parametrize

WIDTHS, EXPONENTS = (32, 128, 512), tuple(range(-12, 0))
BASE = min(WIDTHS)
LAYERS = {"0": "first", "2": "hidden", "4": "readout"}
STARTS = ("SP", "muP")  # of the readout
STEPS = ("one", "muP")  # step sizes of the three layers


def network(width: int, *, seed: int = 2) -> nn.Sequential:
    """Eight inputs, two hidden layers of tanh, one output; weights of variance 1 / fan_in, no biases."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((width, 8), (width, width), (1, width))
    first, hidden, readout = (nn.Linear(columns, rows, bias=False) for rows, columns in shapes)
    for layer in (first, hidden, readout):
        nn.init.normal_(layer.weight, std=layer.in_features**-0.5, generator=generator)
    return nn.Sequential(first, nn.Tanh(), hidden, nn.Tanh(), readout)


@cache
def teacher(seed: int = 6) -> nn.Sequential:
    """Return a fixed network of width 32, with 1.5 times the usual weights in its hidden layers."""
    model = network(32, seed=seed).requires_grad_(False)
    model[0].weight *= 1.5
    model[2].weight *= 1.5
    return model


def train(
    model: nn.Module, groups: Sequence[Mapping], *, steps: int = 120, target: nn.Module | None = None, seed: int = 3
) -> float:
    """Return the test loss after `steps` steps of Adam on fresh data, its step sizes falling linearly to zero."""
    target = target or teacher()
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.95), fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = torch.randn(32, 8, generator=generator)
        optimizer.zero_grad()
        (model(x) - target(x)).square().mean().backward()
        optimizer.step()
        schedule.step()
    x = torch.randn(2000, 8, generator=generator)
    with torch.no_grad():
        return float((model(x) - target(x)).square().mean())


def groups_for(model: nn.Module, optimizer: type, lr: float, *, mup: bool, base_width: int = BASE) -> list[dict]:
    """One step size for all weights, or muP's, after its rescaling of the weights."""
    if mup:
        return param_groups(parametrize(model, network(base_width)), optimizer, lr)
    return [{"params": list(model.parameters()), "lr": lr}]


def set_up(width: int, *, start: str, steps: str, lr: float, seed: int = 2) -> tuple[nn.Sequential, list[dict]]:
    """Return a network and Adam's groups, each half as in the standard parametrization or as in muP.

    `start` "muP" divides the readout's initial weights by the root of width / 32; `steps` "muP" divides the step sizes of
    the hidden matrix and of the readout by width / 32, "one" gives all three matrices the same.
    """
    model, r = network(width, seed=seed), width / BASE
    if start == "muP":
        with torch.no_grad():
            model[4].weight /= math.sqrt(r)
    shares = (1, 1 / r, 1 / r) if steps == "muP" else (1, 1, 1)
    return model, [
        {"params": [weight], "lr": lr * share} for weight, share in zip(model.parameters(), shares, strict=True)
    ]


def losses(
    width: int,
    *,
    start: str,
    steps: str,
    seed: int,
    length: int = 120,
    exponents: Sequence[int] = EXPONENTS,
    readout: float = 1.0,
) -> list[float]:
    """Return the test loss for each exponent; start, teacher and data are those of that seed.

    `readout` multiplies the initial weights of the readout once more.
    """
    found = []
    for exponent in exponents:
        model, groups = set_up(width, start=start, steps=steps, lr=2.0**exponent, seed=3 * seed)
        with torch.no_grad():
            model[4].weight *= readout
        found.append(train(model, groups, steps=length, target=teacher(3 * seed + 1), seed=3 * seed + 2))
    return found


def best_exponent(losses: Sequence[float], exponents: Sequence[int] = EXPONENTS) -> float:
    """The exponent of the best step size: the lowest point of the parabola through the minimum and its neighbours.

    The parabola is laid through the logarithms of the losses. A minimum at an end of the range stays there.
    """
    k = int(np.argmin(losses))
    if k in (0, len(losses) - 1):
        return float(exponents[k])
    left, middle, right = np.log(losses[k - 1 : k + 2])
    return exponents[k] + float((left - right) / (2 * (left - 2 * middle + right)))


def drift_and_regret(
    losses: Mapping[int, Sequence[float]], exponents: Sequence[int] = EXPONENTS
) -> tuple[float, float]:
    """How many octaves the best step size moves from the narrowest to the widest network, and what staying costs.

    The second is the widest network's loss at the narrowest one's best step size, over its own smallest loss.
    """
    narrow, wide = losses[min(losses)], losses[max(losses)]
    drift = best_exponent(wide, exponents) - best_exponent(narrow, exponents)
    return drift, wide[int(np.argmin(narrow))] / min(wide)


def slope(widths: Sequence[int], sizes: Sequence[float] | np.ndarray) -> float:
    """The exponent p of the power law width^p that fits the sizes best."""
    return float(np.polyfit(np.log(widths), np.log(sizes), 1)[0])


# One step on one batch

STEP_WIDTHS, STEP_SIZE, STEP_SEEDS = (32, 64, 128, 256, 512, 1024), 2.0**-7, (2, 3, 4)


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


@cache
def _batch() -> tuple[Tensor, Tensor]:
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(3))
    return x, teacher()(x)


@cache
def _weights(width: int, seed: int) -> tuple[Tensor, ...]:
    return tuple(network(width, seed=seed).requires_grad_(False).parameters())


def one_step(
    width: int, *, init: float, rate: float, out_init: float, out_rate: float, seed: int = 2
) -> dict[str, float]:
    """Sizes in the network of that width before and after one sign step on one batch of 32.

    With r = width / 32, the hidden matrix starts with entries of size r^-init / sqrt(32) and its steps are
    r^-rate / 128; the readout's are r^-out_init / sqrt(32) and r^-out_rate / 128. The first matrix is the same at every
    width: entries of size 1 / sqrt(8), steps of 1 / 128.
    """
    x, wanted = _batch()
    r = width / BASE
    with torch.no_grad():
        U, W, v = _weights(width, seed)
        W, v = W * r ** (0.5 - init), v * r ** (0.5 - out_init)
        start = U
        h = torch.tanh(x @ U.T)
        before = h @ W.T
        k = torch.tanh(before)
        output = k @ v.T
        error = output - wanted
        back = (error @ v) * (1 - k.square())  # with respect to what W puts out
        first = (back @ W) * (1 - h.square())
        U = U - STEP_SIZE * (first.T @ x).sign()
        W = W - STEP_SIZE * r**-rate * (back.T @ h).sign()
        v = v - STEP_SIZE * r**-out_rate * (error.T @ k).sign()
        after = torch.tanh(x @ U.T) @ W.T
        moved = torch.tanh(after) @ v.T - output
        return {
            "first": _rms(x @ (U - start).T),
            "hidden": _rms(before),
            "change": _rms(after - before),
            "output": _rms(output),
            "moved": _rms(moved),
        }
