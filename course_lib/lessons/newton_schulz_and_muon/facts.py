"""The closing experiment of lesson 08: a matrix that learns 64 facts from samples, by steps that are more or less flat.

W (64 x 64) is to map each of 64 orthonormal keys x_k to a value v_k, also orthonormal. A batch draws facts, fact k with
probability f_k in proportion to k^-1.5; its loss is 1/2 the mean of ||W x - v||^2 over the facts drawn. The step is that of
momentum M over its Frobenius norm, after a number of cubic steps of Newton and Schulz: none, a few, or as many as it takes
(exactly flat). Rates fall linearly to zero.

In the bases of values and keys everything is diagonal: the gradient is (w_k - 1) times the share of fact k in the batch,
and a polynomial of M is the polynomial of its diagonal. So `train` follows 64 numbers, for many seeds and rates side by
side, and `train_matrix` the matrix itself; a test compares the two.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from course_lib.optimization.newton_schulz import CUBIC, JORDAN, newton_schulz_step, odd_polynomial
from course_lib.optimization.steepest_descent import orthogonal_factor

FACTS, STEPS = 64, 50
CUBIC_STEPS = (0, 1, 2, 3, 4, 6, 9)
EXACT, QUINTICS, MOMENTUM = "exactly flat", "Jordan's five quintics", "momentum, not normalised"
ARMS = (*(f"{n} cubic step{'s' * (n != 1)}" for n in CUBIC_STEPS), EXACT, QUINTICS, MOMENTUM)


def frequencies() -> Tensor:
    """Return how often each of the 64 facts is drawn, in proportion to k^-1.5."""
    seen = torch.arange(1, FACTS + 1, dtype=torch.float64) ** -1.5
    return seen / seen.sum()


def shares(seeds: Sequence[int], batch: int | None) -> Tensor:
    """Draw the share of each fact in the batch of each step, shape (seeds, 50, 64); without a size, the frequencies."""
    if batch is None:
        return frequencies().expand(len(seeds), STEPS, FACTS)
    drawn = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        facts = torch.multinomial(frequencies(), STEPS * batch, replacement=True, generator=generator)
        counts = torch.zeros(STEPS, FACTS, dtype=torch.float64)
        drawn.append(counts.scatter_add_(1, facts.view(STEPS, batch), torch.ones(STEPS, batch).double()) / batch)
    return torch.stack(drawn)


def polynomial(arm: str) -> Callable[[Tensor, Callable], Tensor]:
    """Return the odd polynomial that an arm applies after the norm, given how one step is taken."""
    rule, times = (JORDAN, 5) if arm == QUINTICS else (CUBIC, int(arm.split()[0]))

    def apply(values: Tensor, step: Callable) -> Tensor:
        for _ in range(times):
            values = step(values, rule)
        return values

    return apply


def train(
    arm: str,
    drawn: Tensor,
    rates: Sequence[float],
    *,
    momentum: float,
    only_drawn: bool = False,
    falls: bool = True,
) -> Tensor:
    """Return what fact k keeps of its distance at the end, w_k - 1, for each seed and rate: (seeds, rates, 64).

    With `only_drawn`, a fact moves only in the steps whose batch holds it, whatever momentum remembers of it. The rate
    falls linearly to zero, or stays where `falls` is false.
    """
    size = torch.tensor(rates, dtype=drawn.dtype)[:, None]
    w = torch.zeros(len(drawn), len(rates), FACTS, dtype=drawn.dtype)
    mean = torch.zeros_like(w)
    for t in range(STEPS):
        gradient = (w - 1) * drawn[:, t, None]
        mean = momentum * mean + (1 - momentum) * gradient
        step = momentum * mean + (1 - momentum) * gradient
        if arm == EXACT:
            step = step.sign()
        elif arm != MOMENTUM:
            step = step / step.norm(dim=-1, keepdim=True).clamp(min=1e-300)
            step = polynomial(arm)(step, odd_polynomial)
        if only_drawn:
            step = step * (drawn[:, t, None] > 0)
        w = w - size * (1 - t / STEPS if falls else 1) * step
    return w - 1


def loss(remaining: Tensor) -> Tensor:
    """Return sum_k f_k ||W x_k - v_k||^2, which is 1 before training; a run that diverged counts as infinite."""
    return (frequencies() * remaining.square()).sum(-1).nan_to_num(nan=torch.inf)


def keys_and_values(seed: int) -> tuple[Tensor, Tensor]:
    """Return 64 orthonormal keys and 64 orthonormal values, as the columns of two matrices."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(2, FACTS, FACTS, generator=generator, dtype=torch.float64)
    return tuple(torch.linalg.qr(drawn).Q)


def train_matrix(arm: str, drawn: Tensor, rate: float, *, momentum: float, seed: int = 0) -> Tensor:
    """Return the matrix W after the 50 steps on the shares (50, 64) of one seed: the slow version of `train`."""
    keys, values = keys_and_values(seed)
    W = torch.zeros(FACTS, FACTS, dtype=torch.float64)
    mean = torch.zeros_like(W)
    for t in range(STEPS):
        gradient = (W @ keys - values) * drawn[t] @ keys.T
        mean = momentum * mean + (1 - momentum) * gradient
        step = momentum * mean + (1 - momentum) * gradient
        if arm == EXACT:
            step = orthogonal_factor(step)
        elif arm != MOMENTUM:
            step = polynomial(arm)(step / step.norm(), newton_schulz_step)
        W = W - rate * (1 - t / STEPS) * step
    return W
