"""Training a linear autoencoder from small weights: the staircase of lesson 23, and when its falls come."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from course_lib.representation.pca import linear_gradients, linear_loss

VALUES = torch.tensor([4.0, 2.0, 1.0, 0.3], dtype=torch.float64)  # the variances of the lesson's data
UNITS, STEP = 3, 0.02


def normal(*shape: int, seed: int) -> Tensor:
    """Return standard normal numbers in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_weights(units: int, d_model: int, *, scale: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return an encoder and a decoder of independent normal numbers."""
    return scale * normal(units, d_model, seed=seed), scale * normal(d_model, units, seed=1000 + seed)


def descend(
    encoder: Tensor, decoder: Tensor, moment: Tensor, *, penalty=0.0, step_size=STEP, steps=1000, record=False
) -> tuple[Tensor, Tensor, list[float]]:
    """Run gradient descent on a linear autoencoder; return its weights and its losses: the last one, or all."""
    losses = []
    for _ in range(steps):
        if record:
            losses.append(float(linear_loss(encoder, decoder, moment, penalty)))
        d_encoder, d_decoder = linear_gradients(encoder, decoder, moment, penalty)
        encoder, decoder = encoder - step_size * d_encoder, decoder - step_size * d_decoder
    return encoder, decoder, [*losses, float(linear_loss(encoder, decoder, moment, penalty))]


@dataclass(frozen=True)
class Run:
    """One training: the loss after each step, what the network returns of each direction, and the size of its weights.

    The size of an axis is the length of (a + b) / 2 over the units, a and b the units' encoder and decoder weights on it.
    Shapes: `losses` (steps + 1,), `factors` and `sizes` (steps + 1, directions).
    """

    losses: np.ndarray
    factors: np.ndarray
    sizes: np.ndarray

    def falls(self) -> list[int]:
        """Return the steps at which the loss falls fastest, one for each fall between two flatter stretches."""
        from scipy.signal import find_peaks

        drops = -np.diff(self.losses)
        peaks, found = find_peaks(drops, prominence=1e-9)
        return peaks[found["prominences"] > 0.5 * drops[peaks]].tolist()


@cache
def train(
    *,
    scale: float = 1e-4,
    step_size: float = STEP,
    values: tuple[float, ...] = tuple(VALUES.tolist()),
    seed: int = 0,
    steps: int = 600,
    units: int = UNITS,
) -> Run:
    """Train a few units on data whose axes are the coordinates, in NumPy: all steps are one frame of an explorer."""
    s, one = np.array(values), np.eye(len(values))
    w1, w2 = (w.numpy().copy() for w in random_weights(units, len(values), scale=scale, seed=seed))
    outputs = np.empty((steps + 1, len(values), len(values)))
    sizes = np.empty((steps + 1, len(values)))
    for step in range(steps + 1):
        outputs[step], sizes[step] = w2 @ w1, np.sqrt(np.square(w1 + w2.T).sum(0)) / 2
        error = (outputs[step] - one) * s
        w1, w2 = w1 - 2 * step_size * w2.T @ error, w2 - 2 * step_size * error @ w1.T
    losses = (np.square(outputs - one) * s).sum((1, 2))
    return Run(losses, outputs.diagonal(axis1=1, axis2=2), sizes)
