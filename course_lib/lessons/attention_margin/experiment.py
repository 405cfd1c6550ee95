"""The experiment of lesson 29: a layer K Q^T and a layer W, trained to the same margin, then tested on new samples.

A sample holds T tokens and a query; the right token has the largest logit under a fixed matrix W*, whose non-zero singular
values are equal. The right token comes first in each sample. Its value is 1, that of the others -1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.theory.attention_margin import (
    Constraints,
    Flow,
    flow_step,
    frobenius_svm,
    gradient_flow,
    loss_gradient,
    nuclear_svm,
    product,
)

WIDTH, TOKENS, SAMPLES = 10, 4, 40
HELD_OUT, TEST = 200, 1000
MARGINS = (1, 10, 100)
START, STEPS = 0.01, 800


def rng(seed: int) -> torch.Generator:
    """Return a generator with that seed."""
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, generator: torch.Generator) -> Tensor:
    """Return float64 standard normal numbers."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def truth(seed: int, rank: int) -> Float[Tensor, "d d"]:
    """Return W*: `rank` equal singular values, random singular vectors, Frobenius norm sqrt(d)."""
    generator = rng(seed)
    left, right = (torch.linalg.qr(randn(WIDTH, WIDTH, generator=generator))[0] for _ in range(2))
    return math.sqrt(WIDTH / rank) * left[:, :rank] @ right[:, :rank].mT


@dataclass(frozen=True)
class Problem:
    """Sets of samples, drawn one by one from their seeds: to train on, to choose settings on, and to test on."""

    training: Constraints
    held_out: Constraints
    test: Constraints


def conditions(tokens: Tensor, queries: Tensor) -> Constraints:
    """Return the conditions of samples whose first token is the right one: its value is 1, that of the others -1."""
    features = (tokens[..., :1, :] - tokens[..., 1:, :])[..., None] * queries[..., None, None, :]
    gaps = torch.full(features.shape[:-2], 2.0, dtype=features.dtype)
    return Constraints(features, gaps, torch.ones_like(gaps[..., 0]))


def drawn(seed: int, rank: int, n: int = SAMPLES) -> list[tuple[Tensor, Tensor]]:
    """Return tokens (n, T, d), the right one first, and queries (n, d): for training, held out, and for the test."""
    w_star, generator = truth(seed, rank), rng(1000 + seed)
    parts = []
    for size in (HELD_OUT, TEST, n):
        tokens, queries = (randn(*s, generator=generator) for s in ((size, TOKENS, WIDTH), (size, WIDTH)))
        order = torch.einsum("ntd,de,ne->nt", tokens, w_star, queries).argsort(dim=1, descending=True)
        parts.append((tokens.gather(1, order[..., None].expand_as(tokens)), queries))
    return [parts[2], parts[0], parts[1]]


def problem(rank: int, seeds: Sequence[int], n: int = SAMPLES) -> Problem:
    """Return one set of samples for each seed, stacked."""
    parts = zip(*(drawn(seed, rank, n) for seed in seeds), strict=True)
    return Problem(*(conditions(*map(torch.stack, zip(*part, strict=True))) for part in parts))


def accuracy(given: Constraints, weight: Float[Tensor, "*sets d d"]) -> Float[Tensor, "*sets"]:
    """Return the share of samples whose right token has the largest logit."""
    return (given.margins(weight) > 0).all(dim=-1).double().mean(dim=-1)


def beginning(kind: str, seeds: Sequence[int], width: int = WIDTH) -> list[Tensor]:
    """Return where a layer starts: W at 0, K and Q at independent normal numbers of size 0.01."""
    if kind == "W":
        return [torch.zeros(len(seeds), WIDTH, WIDTH, dtype=torch.float64)]
    draw = [[START * randn(WIDTH, WIDTH, generator=rng(part + s))[:, :width] for s in seeds] for part in (5000, 6000)]
    return [torch.stack(one) for one in draw]


def trained(
    given: Constraints, kind: str, seeds: Sequence[int], margins: Sequence[float | int] = MARGINS, width: int = WIDTH
) -> Flow:
    """Follow gradient flow from the beginning to each of the margins; give up after 800 steps along the path."""
    start = beginning(kind, seeds, width)
    return gradient_flow(given, start, parametrisation=kind, margins=margins, max_steps=STEPS)


def cut(weight: Float[Tensor, "*sets d d"], rank: int) -> Float[Tensor, "*sets d d"]:
    """Keep the `rank` largest singular values and their vectors."""
    left, values, right = torch.linalg.svd(weight)
    return (left[..., :rank] * values[..., None, :rank]) @ right[..., :rank, :]


def stopped(at: Problem, kind: str, seeds: Sequence[int], every: int = 4) -> Tensor:
    """Return the weights at the place of the path with the most right answers on held-out samples, set by set."""
    parameters = beginning(kind, seeds)
    best, kept = torch.full((len(seeds),), -1.0, dtype=torch.float64), product(parameters, kind)
    for step in range(STEPS):
        parameters = flow_step(parameters, at.training, parametrisation=kind)
        if step % every == 0 and step < STEPS // 2:
            here = product(parameters, kind)
            found = accuracy(at.held_out, here)
            kept = torch.where((found > best)[:, None, None], here, kept)
            best = torch.maximum(best, found)
    return kept


def penalised(
    given: Constraints, penalty: float | int, kind: str, steps: int = 1500, step_size: float | int = 1.0
) -> Float[Tensor, "sets d d"]:
    """Minimise the mean loss plus a penalty times the nuclear norm, or half the squared Frobenius norm."""
    *sets, n, _, d, e = given.features.shape
    weight = given.features.new_zeros(*sets, d, e)
    for _ in range(steps):
        weight = weight - step_size / n * loss_gradient(given, weight)
        if kind == "nuclear":
            left, values, right = torch.linalg.svd(weight)
            weight = (left * (values - step_size * penalty).clamp(min=0)[..., None, :]) @ right
        else:
            weight = weight / (1 + step_size * penalty)
    return weight


def least_norms(given: Constraints) -> dict[str, Float[Tensor, "sets d d"]]:
    """Return the matrices of margin 1 with the least nuclear and the least Frobenius norm, for each set of samples."""
    each = [Constraints(*parts) for parts in zip(given.features, given.gaps, given.best, strict=True)]
    return {
        "nuclear": torch.stack([nuclear_svm(one) for one in each]),
        "Frobenius": torch.stack([frobenius_svm(one) for one in each]),
    }


def chosen_sets(at: Problem, kept: Bool[Tensor, " sets"]) -> Problem:
    """Return the same problem with only some of its sets of samples."""
    parts = (at.training, at.held_out, at.test)
    return Problem(*(Constraints(one.features[kept], one.gaps[kept], one.best[kept]) for one in parts))


def second(weight: Float[Tensor, "*sets d e"]) -> Float[Tensor, "*sets"]:
    """Return the second singular value over the largest."""
    values = torch.linalg.svdvals(weight)
    return values[..., 1] / values[..., 0]


def by_size(kind: str, given: Constraints, seeds: Sequence[int], sizes: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Return the weights where their Frobenius norm first reached each of the sizes, and the size when all came right.

    Shapes: (sizes, sets, d, d) and (sets,); NaN where that never happened in 800 steps, short ones at the start.
    """
    parameters = beginning(kind, seeds)
    wanted = torch.tensor(sizes, dtype=torch.float64)[:, None]
    found = given.features.new_full((len(sizes), len(seeds), WIDTH, WIDTH), torch.nan)
    came_right = given.features.new_full((len(seeds),), torch.nan)
    for step in range(STEPS):
        parameters = flow_step(
            parameters, given, parametrisation=kind, logit_step=0.25 if step < 250 else 1.0, growth=0.1
        )  # fmt: skip
        here = product(parameters, kind)
        size = here.flatten(1).norm(dim=1)
        first = (size >= wanted) & found[..., 0, 0].isnan()
        found = torch.where(first[..., None, None], here, found)
        came_right = torch.where((given.margin(here) > 0) & came_right.isnan(), size, came_right)
    return found, came_right
