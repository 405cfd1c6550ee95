"""The two networks of lesson 11, a deep and a small one, on one task, trained with or without batch norm.

The target is sin(2 x1) + x2 x3 for ten normal inputs. The deep network has sixteen layers of 32 ReLU units and a linear
readout. Many of its runs are trained side by side; every update takes a fresh batch, the same for all runs of a seed, and
is plain gradient descent. The small network has one layer of 16 units, and only its weights are trained; it follows
how long they are and by which angle each step turns them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

F32 = {"dtype": torch.float32}  # whatever the default is
INPUTS, WIDTH, DEPTH, BATCH, STEPS = 10, 32, 16, 128, 300
TESTED, MOMENTUM, EPS = 4000, 0.1, 1e-5
PLAIN, NORMED, FROZEN = "plain", "batch norm", "first batch's statistics, kept"
ARMS = (PLAIN, NORMED, FROZEN)


def _normal(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, **F32)


def target(inputs: Tensor) -> Tensor:
    """Return what the network should say of inputs (..., 10, batch)."""
    return torch.sin(2 * inputs[..., 0, :]) + inputs[..., 1, :] * inputs[..., 2, :]


class DeepNetworks:
    """Runs that differ by seed, start and step size, side by side: activations have the shape (runs, units, batch).

    Weights are normal. Their standard deviation is `starts` times He's, the root of 2 over the number of inputs, and that
    of the readout the root of 1 over it. With `kind` batch norm each layer uses the statistics of its batch in training and
    running ones in the test. With the third kind it uses those of the very first batch, as constants. Both have a trained
    weight and bias for each unit, the plain network a bias.
    """

    def __init__(self, kind: str, *, seeds: Sequence[int], starts: Sequence[float]):
        if kind not in ARMS:
            raise ValueError(f"kind must be one of {ARMS}, got {kind!r}")
        self.kind, self.seeds, runs = kind, list(seeds), len(seeds)
        size = torch.tensor(starts, **F32)[:, None, None]
        shapes = [(WIDTH, INPUTS)] + [(WIDTH, WIDTH)] * (DEPTH - 1)
        self.weights = [
            size * torch.stack([(2 / shape[1]) ** 0.5 * _normal(*shape, seed=1000 * s + layer) for s in seeds])
            for layer, shape in enumerate(shapes)
        ]
        self.weights.append(torch.stack([_normal(1, WIDTH, seed=1000 * s + DEPTH) / WIDTH**0.5 for s in seeds]))
        self.biases = [torch.zeros(runs, WIDTH, 1, **F32) for _ in range(DEPTH)] + [torch.zeros(runs, 1, 1, **F32)]
        self.gains = [torch.ones(runs, WIDTH, 1, **F32) for _ in range(DEPTH)]
        self.parameters = self.weights + self.biases + (self.gains if kind != PLAIN else [])
        self.statistics: list[tuple[Tensor, Tensor]] = []

    def outputs(self, inputs: Tensor, *, training: bool) -> Tensor:
        """Return (runs, batch) for inputs (runs, 10, batch)."""
        hidden, first = inputs, not self.statistics
        for layer in range(DEPTH):
            hidden = self.weights[layer] @ hidden
            if self.kind != PLAIN:
                if first:
                    self.statistics.append(self._begin(hidden.detach()))
                hidden = self._normalised(layer, hidden, training=training)
            else:
                hidden = hidden + self.biases[layer]
            hidden = torch.relu(hidden)
        return (self.weights[DEPTH] @ hidden + self.biases[DEPTH])[:, 0]

    def _begin(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        flat = hidden.flatten(0, 1)
        if self.kind == NORMED:
            return torch.zeros(len(flat), **F32), torch.ones(len(flat), **F32)
        return flat.mean(1), flat.var(1, correction=0)

    def _normalised(self, layer: int, hidden: Tensor, *, training: bool) -> Tensor:
        mean, variance = self.statistics[layer]
        out = functional.batch_norm(
            hidden.flatten(0, 1)[None],
            mean,
            variance,
            self.gains[layer].flatten(),
            self.biases[layer].flatten(),
            training=training and self.kind == NORMED,
            momentum=MOMENTUM,
            eps=EPS,
        )
        return out.view_as(hidden)


def train_deep(
    kind: str, *, seeds: Sequence[int], starts: Sequence[float], rates: Sequence[float], steps: int = STEPS
) -> tuple[Tensor, Tensor]:
    """Train runs side by side; return training losses (steps, runs) and test losses (runs,); one that blew up has none."""
    networks = DeepNetworks(kind, seeds=seeds, starts=starts)
    rate = torch.tensor(rates, **F32)[:, None, None]
    own = sorted(set(seeds))
    place = torch.tensor([own.index(s) for s in seeds])
    batches = [torch.Generator().manual_seed(500_000 + s) for s in own]
    for parameter in networks.parameters:
        parameter.requires_grad_()
    losses = []
    for _ in range(steps):
        drawn = [torch.randn(INPUTS, BATCH, generator=g, **F32) for g in batches]
        inputs = torch.stack(drawn)[place]
        loss = (networks.outputs(inputs, training=True) - target(inputs)).square().mean(1)
        gradients = torch.autograd.grad(loss.sum(), networks.parameters)
        with torch.no_grad():
            for parameter, gradient in zip(networks.parameters, gradients, strict=True):
                parameter -= rate * gradient
        losses.append(loss.detach())
    with torch.no_grad():
        inputs = _normal(INPUTS, TESTED, seed=900_000)
        found = networks.outputs(inputs.expand(len(seeds), -1, -1), training=False)
        return torch.stack(losses), (found - target(inputs)).square().mean(1)


@cache
def cost_of_a_constant() -> float:
    """Return the test loss of the best constant guess: the variance of the target."""
    return float(target(_normal(INPUTS, TESTED, seed=900_000)).var(correction=0))


# The small network: one layer with batch norm, its first weights trained

EXAMPLES, UNITS, SMALL_BATCH, LOOK = 256, 16, 32, 10
TOO_LARGE = 1e6  # a loss above it ends a run


def small_network() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return inputs (256, 10), targets (256,), weights to start from (10, 16) and the fixed readout (16,), in float64."""
    generator = torch.Generator().manual_seed(9)
    shapes = ((EXAMPLES, INPUTS), (INPUTS, UNITS), (UNITS,))
    x, first, readout = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return x, target(x.T), first / INPUTS**0.5, readout / UNITS**0.5


@cache
def batch_indices(steps: int) -> Tensor:
    """Return which examples (steps, 32) each step takes; a longer run begins like a shorter one."""
    drawn = np.random.default_rng(9).integers(0, EXAMPLES, (steps, SMALL_BATCH))
    return torch.from_numpy(drawn)


def small_gradient(
    weights: np.ndarray, x: np.ndarray, wanted: np.ndarray, readout: np.ndarray, *, normalise: bool
) -> tuple[float, np.ndarray]:
    """Return the mean squared error and its gradient in the first weights, by (11.5)."""
    hidden = x @ weights
    if normalise:
        hidden = hidden - hidden.mean(0)
        s = np.sqrt((hidden * hidden).mean(0))
        hidden = hidden / s
    error = np.maximum(hidden, 0) @ readout - wanted
    g = (2 / len(wanted)) * error[:, None] * readout * (hidden > 0)
    if normalise:
        g = (g - g.mean(0) - hidden * (g * hidden).mean(0)) / s
    return float((error * error).mean()), x.T @ g


@dataclass(frozen=True)
class SmallRun:
    """What happens to the small network in training.

    `losses` are those on all 256 examples, every 10 steps and at the end; `lengths` of all first weights, the start's
    first; `angles` by which each step turns the weights of a unit, in radians, the root of the mean square over units.
    A run that blows up ends early.
    """

    losses: np.ndarray
    lengths: np.ndarray
    angles: np.ndarray
    blew_up: bool


@cache
def train_small(
    step_size: float | int,
    *,
    times: float | int = 1,
    decay: float | int = 0,
    steps: int = 1500,
    normalise: bool = True,
) -> SmallRun:
    """Train the first layer by w <- (1 - step_size decay) w - step_size gradient, on batches of 32 of the 256 examples."""
    x, wanted, start, readout = (part.numpy() for part in small_network())
    weights, losses, lengths, angles = times * start, [], [], []
    size = np.sqrt((weights * weights).sum(0))
    for k, rows in enumerate(batch_indices(steps).numpy()):
        if k % LOOK == 0:
            losses.append(small_gradient(weights, x, wanted, readout, normalise=normalise)[0])
            if not losses[-1] < TOO_LARGE:
                break
        lengths.append(float(np.sqrt((size * size).sum())))
        _, gradient = small_gradient(weights, x[rows], wanted[rows], readout, normalise=normalise)
        new = (1 - step_size * decay) * weights - step_size * gradient
        new_size = np.sqrt((new * new).sum(0))
        cosines = (weights * new).sum(0) / (size * new_size)
        angles.append(float(np.sqrt((np.arccos(np.clip(cosines, -1, 1)) ** 2).mean())))
        weights, size = new, new_size
    else:
        losses.append(small_gradient(weights, x, wanted, readout, normalise=normalise)[0])
        lengths.append(float(np.sqrt((size * size).sum())))
    blew_up = not losses[-1] < TOO_LARGE
    return SmallRun(np.array(losses[: -1 if blew_up else None]), np.array(lengths), np.array(angles), blew_up)


def root_mean_square(angles: np.ndarray) -> float:
    """Return the root of the mean square."""
    return float(np.sqrt((angles * angles).mean()))
