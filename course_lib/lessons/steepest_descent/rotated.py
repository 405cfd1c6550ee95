"""The closing experiment of lesson 06: one network, inputs of unequal scale, and the same inputs rotated.

A network x -> W2 tanh(W1 x) with 16 inputs, 32 hidden units and 4 outputs learns a teacher of the same form. Input i has the
standard deviation 10^(-2 (i - 1) / 15), from 1 down to 0.01, and the teacher sees all inputs at scale 1. Rotated means that
x becomes Q x and the first layer W1 becomes W1 Q^T, Q a random orthogonal matrix: the network's function at the start is
the same. Standardised and whitened inputs keep it, too, and inputs turned to their principal axes. Mixed means a random
rotation of all 512 weights of the first layer, which is not of the form W1 -> P W1 Q. All step sizes fall linearly to zero.
Runs are trained side by side, each with its own data, start and step size.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

INPUTS, HIDDEN, OUTPUTS, POINTS = 16, 32, 4, 256
STEPS = 200
SCALES = torch.logspace(0, -2, INPUTS, dtype=torch.float64)


@dataclass(frozen=True)
class Problems:
    """One problem for each seed: inputs x, outputs y of variance 1, the start of both layers, and two rotations.

    Shapes: x (seeds, 256, 16), y (seeds, 256, 4), first (seeds, 32, 16), second (seeds, 4, 32), turn (seeds, 16, 16),
    mixing (seeds, 512, 512) or None.
    """

    x: Tensor
    y: Tensor
    first: Tensor
    second: Tensor
    turn: Tensor
    mixing: Tensor | None = None


def _orthogonal(n: int, generator: torch.Generator) -> Tensor:
    q, r = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))
    return q * r.diagonal().sign()


def problems(seeds: Sequence[int], *, mixed: bool = False, raw_teacher: bool = False) -> Problems:
    """Draw a problem for each seed, with a random rotation of all 512 weights of the first layer where `mixed`.

    Where `raw_teacher`, the teacher sees the inputs at their own scales, all divided by one number so that their mean
    square is 1, in the place of all at scale 1.
    """
    drawn = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        normal = lambda *shape, g=generator: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
        z = normal(POINTS, INPUTS)
        seen = z * SCALES / SCALES.square().mean().sqrt() if raw_teacher else z
        y = torch.tanh(2 * seen @ normal(INPUTS, HIDDEN) / INPUTS**0.5) @ normal(HIDDEN, OUTPUTS)
        y = (y - y.mean(0)) / y.std(0, unbiased=False)
        start = normal(HIDDEN, INPUTS) / INPUTS**0.5, normal(OUTPUTS, HIDDEN) / HIDDEN**0.5
        turn = _orthogonal(INPUTS, generator)
        drawn.append((z * SCALES, y, *start, turn, *([_orthogonal(HIDDEN * INPUTS, generator)] if mixed else [])))
    return Problems(*(torch.stack(parts) for parts in zip(*drawn, strict=True)))


def rotated(problem: Problems) -> Problems:
    """Rotate the inputs, and the first layer with them."""
    return replace(problem, x=problem.x @ problem.turn.mT, first=problem.first @ problem.turn.mT)


def standardised(problem: Problems) -> Problems:
    """Divide each input by its root mean square, and multiply its weights by it: the network computes the same."""
    sizes = problem.x.square().mean(1, keepdim=True).sqrt()
    return replace(problem, x=problem.x / sizes, first=problem.first * sizes)


def whitened(problem: Problems) -> Problems:
    """Multiply the inputs by C^(-1/2), with C their second moments, and the first layer by C^(1/2)."""
    values, vectors = torch.linalg.eigh(problem.x.mT @ problem.x / POINTS)
    roots = values.sqrt()[:, None]
    return replace(
        problem,
        x=problem.x @ (vectors / roots) @ vectors.mT,
        first=problem.first @ (vectors * roots) @ vectors.mT,
    )


def on_principal_axes(problem: Problems) -> Problems:
    """Turn the inputs to the eigenvectors of their second moments, and the first layer with them; scales stay."""
    vectors = torch.linalg.eigh(problem.x.mT @ problem.x / POINTS).eigenvectors
    return replace(problem, x=problem.x @ vectors, first=problem.first @ vectors)


def gradients(x: Tensor, y: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean squared error of each network and its gradients with respect to both layers."""
    hidden = torch.tanh(x @ first.mT)
    error = hidden @ second.mT - y
    count = y.shape[-2] * y.shape[-1]
    back = (error @ second) * (1 - hidden.square())
    loss = error.square().sum((-1, -2)) / count
    return loss, 2 / count * back.mT @ x, 2 / count * error.mT @ hidden


def _length(matrix: Tensor) -> Tensor:
    return matrix.flatten(1).norm(dim=1)[:, None, None]


def _orthogonalised(matrix: Tensor) -> Tensor:
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    return left @ right


DIRECTIONS = {
    "gradient": lambda gradient: gradient,
    "l2": lambda gradient: gradient / _length(gradient),
    "sign": torch.sign,
    "spectral": _orthogonalised,
}


def train(
    problem: Problems,
    method: str,
    step_sizes: Sequence[float],
    *,
    momentum: float = 0.0,
    ratios: Sequence[float] | None = None,
) -> Tensor:
    """Train a network on each problem with each step size; return its losses, (steps + 1, seeds, step sizes).

    The second layer's steps are as long as the first's, or `ratios` times as long, with one ratio for each step size.

    `method` is a name of DIRECTIONS, taken of the gradient, or with `momentum` of the running sum of the gradients; or
    "adam", with averages over 10 and 1,000 steps and bias correction.
    """
    seeds, count = len(problem.x), len(step_sizes)
    spread = lambda t: t.repeat_interleave(count, 0)  # noqa: E731  problems first, step sizes second
    x, y, layers = spread(problem.x), spread(problem.y), [spread(problem.first), spread(problem.second)]
    mixing = None if problem.mixing is None else spread(problem.mixing)
    sizes = torch.tensor([step_sizes, step_sizes], dtype=x.dtype)
    if ratios is not None:
        sizes[1] *= torch.tensor(ratios, dtype=x.dtype)
    sizes = sizes.repeat(1, seeds)[:, :, None, None]  # layers, problems and step sizes
    means, squares, losses = [0.0, 0.0], [0.0, 0.0], []
    for step in range(STEPS):
        loss, *found = gradients(x, y, *layers)
        losses.append(loss)
        for k, gradient in enumerate(found):
            mixes = k == 0 and mixing is not None
            seen = (mixing @ gradient.flatten(1)[..., None]).view_as(gradient) if mixes else gradient
            if method == "adam":
                means[k] = 0.9 * means[k] + 0.1 * seen
                squares[k] = 0.999 * squares[k] + 0.001 * seen.square()
                root = (squares[k] / (1 - 0.999 ** (step + 1))).sqrt()
                move = means[k] / (1 - 0.9 ** (step + 1)) / (root + 1e-8)
            else:
                means[k] = momentum * means[k] + seen
                move = DIRECTIONS[method](means[k])
            if mixes:
                move = (mixing.mT @ move.flatten(1)[..., None]).view_as(move)
            layers[k] = layers[k] - sizes[k] * (1 - step / STEPS) * move
    losses.append(gradients(x, y, *layers)[0])
    return torch.stack(losses).view(STEPS + 1, seeds, count)
