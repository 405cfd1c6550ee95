"""What lesson 28 measures: layers trained through products of factors, and how long their error stands still."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from course_lib.theory.in_context_regression import (
    Prompts,
    Tasks,
    gradients,
    mean_squared_error,
    start,
)

TASKS = Tasks()  # three tasks with four features each, 60 examples, noise 0.2
ETA = 0.05
Factors = tuple[Tensor, Tensor, Tensor, Tensor]  # q, k, o, v


def seeded(seed: int) -> torch.Generator:
    """Return a generator."""
    return torch.Generator().manual_seed(seed)


def held_out(n: int = 4000, **options) -> Prompts:
    """Return prompts that no training has seen."""
    return TASKS.draw(n, generator=seeded(2300), **options)


def starts(heads: int, seeds: Sequence[int], *, scale: float = 0.25, **options) -> tuple[Tensor, Tensor]:
    """Return the equal factors (q, v) of runs side by side, one for each seed."""
    q, v = zip(*(start(TASKS, heads, scale=scale, generator=seeded(s), **options) for s in seeds), strict=True)
    return torch.stack(q), torch.stack(v)


def part(t: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return two factors that differ from `t` by random shares of at most `share`, uniform and independent."""
    one, other = torch.rand(2, *t.shape, generator=seeded(seed), dtype=t.dtype)
    return t * (1 + share * (2 * one - 1)), t * (1 + share * (2 * other - 1))


def parted(heads: int, share: float, seeds: Sequence[int], *, scale: float = 0.25) -> Factors:
    """Return q, k, o, v of runs side by side, in float64: the factors of each product differ by random shares."""
    q, v = starts(heads, seeds, scale=scale, dtype=torch.float64)
    pairs = [
        (*part(one, share, 100 + s), *part(other, share, 200 + s)) for one, other, s in zip(q, v, seeds, strict=True)
    ]
    return tuple(map(torch.stack, zip(*pairs, strict=True)))


def factor_descent(factors: Factors, prompts: Prompts, step_size: float) -> Factors:
    """Take one step of gradient descent on q, k, o, v, where w = q k and u = o v."""
    q, k, o, v = factors
    _, d_w, d_u = gradients(prompts, q * k, o * v)
    return q - step_size * k * d_w, k - step_size * q * d_w, o - step_size * v * d_u, v - step_size * o * d_u


def direct_descent(weights: Sequence[Tensor], prompts: Prompts, step_size: float) -> tuple[Tensor, Tensor]:
    """Take one step of gradient descent on w and u themselves."""
    w, u = weights
    _, d_w, d_u = gradients(prompts, w, u)
    return w - step_size * d_w, u - step_size * d_u


def products(parameters: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return w and u of four factors, or of themselves."""
    if len(parameters) == 2:
        return parameters[0], parameters[1]
    q, k, o, v = parameters
    return q * k, o * v


def followed(
    parameters: Sequence[Tensor],
    *,
    steps: int,
    seed: int,
    step_size: float = ETA,
    batch: int = 64,
    every: int = 20,
    prompts: int = 1000,
    take: Callable | None = None,
) -> tuple[Tensor, list[Sequence[Tensor]]]:
    """Train, and return the errors on held-out prompts (times, *runs) and the parameters at those times.

    Four parameters are factors, two are w and u. All runs see the same prompts, drawn with `seed`.
    """
    dtype = parameters[0].dtype
    take = take or (factor_descent if len(parameters) == 4 else direct_descent)
    generator, test = seeded(seed), held_out(prompts, dtype=dtype)
    errors, kept = [], []
    for step in range(steps + 1):
        if step % every == 0:
            errors.append(mean_squared_error(test, *products(parameters)))
            kept.append(parameters)
        parameters = take(parameters, TASKS.draw(batch, generator=generator, dtype=dtype), step_size)
    return torch.stack(errors), kept


def first_below(errors: Tensor, limit: float, *, every: int) -> list[int | None]:
    """Return for each run the first recorded step with an error below the limit, None where there is none."""
    below = errors < limit
    return [every * int(b.float().argmax()) if b.any() else None for b in below.T]
