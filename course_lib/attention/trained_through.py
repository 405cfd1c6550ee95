"""Queries and keys trained through an attention that is only estimated, and evaluated with the exact one (lesson 21).

Every token of a short text has to fetch its own value. Softmax attention learns that by making queries and keys longer,
until each query finds only its own key. Here the same two matrices are trained through positive random features: with
frequencies that are drawn anew at each step, or with one draw that is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize, scaled_dot_product_attention

from course_lib.attention.random_features import positive_features, random_feature_attention

D, TOKENS, TEXTS, VALUES = 16, 16, 16, 4
Attend = Callable[[Tensor, Tensor, Tensor, int], Tensor]


def through_softmax(q: Tensor, k: Tensor, v: Tensor, step: int) -> Tensor:
    """Attend exactly."""
    return scaled_dot_product_attention(q, k, v)


def through_features(m: int, *, redrawn: bool, seed: int = 0) -> Attend:
    """Return attention through m independent positive features, drawn anew at each step or kept."""

    def attend(q: Tensor, k: Tensor, v: Tensor, step: int) -> Tensor:
        generator = torch.Generator().manual_seed(1_000_003 * (seed + 1) + (step if redrawn else 0))
        features = positive_features(q.shape[-1], m, generator=generator, dtype=q.dtype)
        return random_feature_attention(q, k, v, features=features)

    return attend


def texts(
    generator: torch.Generator,
) -> tuple[Float[Tensor, "texts tokens d"], Float[Tensor, "texts tokens values"]]:
    """Return 16 texts of 16 random unit vectors, and for each token a value of 4 entries N(0, 1), float64."""
    x = torch.randn(TEXTS, TOKENS, D, generator=generator, dtype=torch.float64)
    values = torch.randn(TEXTS, TOKENS, VALUES, generator=generator, dtype=torch.float64)
    return normalize(x, dim=-1), values


def error(w_q: Tensor, w_k: Tensor, attend: Attend, generator: torch.Generator, step: int) -> Tensor:
    """Return the mean squared error of what 16 fresh texts fetch, with queries x W_q and keys x W_k."""
    x, values = texts(generator)
    return (attend(x @ w_q, x @ w_k, values, step) - values).square().mean()


def fresh_error(w_q: Tensor, w_k: Tensor, attend: Attend, *, seed: int, batches: int = 20) -> float:
    """Return the mean of `error` over texts, and draws of the features, that no training has seen."""
    generator = torch.Generator().manual_seed(10_000 + seed)
    with torch.no_grad():
        found = [error(w_q, w_k, attend, generator, 100_000 + n).item() for n in range(batches)]
    return sum(found) / batches


@dataclass(frozen=True)
class Fetched:
    """One training: the two matrices at its end, and the losses on fresh texts at its start and after every `every` steps.

    `own` is the loss of the attention that it was trained through, `exact` that of softmax attention with the same
    matrices. A loss is a mean squared error; answers of 0 have the loss 1.
    """

    w_q: Tensor
    w_k: Tensor
    own: list[float]
    exact: list[float]


def learn_to_fetch(
    attend: Attend, *, step_size: float | int, seed: int, steps: int = 320, every: int | None = None
) -> Fetched:
    """Train W_q and W_k from the identity by Adam, each step on 16 new texts.

    Units: `step_size` is that of Adam; `every` is a number of steps, None for the start and the end alone.
    """
    generator = torch.Generator().manual_seed(seed)
    w_q, w_k = (torch.eye(D, dtype=torch.float64).requires_grad_() for _ in "qk")
    optimizer = torch.optim.Adam([w_q, w_k], lr=step_size)
    own, exact = [], []
    for step in range(steps + 1):
        if step % (every or steps) == 0:
            own.append(fresh_error(w_q, w_k, attend, seed=seed))
            exact.append(fresh_error(w_q, w_k, through_softmax, seed=seed))
        if step < steps:
            optimizer.zero_grad()
            error(w_q, w_k, attend, generator, step).backward()
            optimizer.step()
    return Fetched(w_q.detach(), w_k.detach(), own, exact)


def gradient(
    at: Float[Tensor, "two d d"] | float | int, attend: Attend, *, step: int = 0, seed: int = 0
) -> Float[Tensor, "two d d"]:
    """Return the gradient of `error` on 16 texts with respect to W_q and W_k.

    `at` holds the two matrices; a number stands for both being that many times the identity.
    """
    at = at if isinstance(at, Tensor) else at * torch.eye(D, dtype=torch.float64)
    matrices = at.detach().expand(2, D, D).clone().requires_grad_()
    generator = torch.Generator().manual_seed(20_000 + seed)
    error(matrices[0], matrices[1], attend, generator, step).backward()
    return matrices.grad
