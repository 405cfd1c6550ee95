"""Can a table of weights point every query at its own token? What a similarity of few features costs (lesson 19).

N tokens attend to each other, and each has to fetch its own value. Whatever the values are, that asks for weights A
close to the identity matrix: with random values of mean 0 and equal variance the mean squared error of A V, over
that of answering 0, is ||A - I||^2 / N (19.14). A similarity with C features gives weights of rank at most C, and
the nearest such matrix to the identity has the error 1 - C/N (Eckart and Young 1936).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from course_lib.attention.feature_maps import Quadratic, elu_features, exp_similarity


@dataclass(frozen=True)
class Form:
    """One similarity: how queries and keys meet, and how many columns they have (None: as many as the input)."""

    similarity: Callable[[Tensor, Tensor], Tensor]
    columns: int | None = None


def elu_form(columns: int | None) -> Form:
    """elu + 1 of so many learned columns: as many features as columns."""
    return Form(lambda q, k: elu_features(q) @ elu_features(k).mT, columns)


SOFTMAX = Form(exp_similarity)
SQUARE = Form(Quadratic().similarity)


def unit_tokens(length: int, d: int, *, seed: int) -> Float[Tensor, "length d"]:
    """Random unit vectors, float64."""
    generator = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(length, d, generator=generator, dtype=torch.float64), dim=-1)


class Retrieval(nn.Module):
    """Weights of N tokens on each other: queries x W_q + b_q, keys x W_k + b_k, a similarity, divided by the row's sum.

    The weights start as random numbers of variance 1/d, drawn with `generator`, the biases at 0.
    """

    def __init__(self, form: Form, d: int, *, generator: torch.Generator):
        super().__init__()
        columns = form.columns or d
        draw = [torch.randn(d, columns, generator=generator, dtype=torch.float64) for _ in "qk"]
        self.w_q, self.w_k = (nn.Parameter(w / math.sqrt(d)) for w in draw)
        self.b_q, self.b_k = (nn.Parameter(torch.zeros(columns, dtype=torch.float64)) for _ in "qk")
        self.similarity = form.similarity

    def forward(self, x: Float[Tensor, "length d"]) -> Float[Tensor, "length length"]:
        """Return the weights, one row a query, each of sum 1."""
        table = self.similarity(x @ self.w_q + self.b_q, x @ self.w_k + self.b_k)
        return table / table.sum(-1, keepdim=True)


def miss(weights: Float[Tensor, "length length"]) -> Float[Tensor, ""]:
    """||A - I||^2 / N (19.14): the mean squared error of what is fetched, in units of the values' own size."""
    identity = torch.eye(len(weights), dtype=weights.dtype, device=weights.device)
    return (weights - identity).square().sum() / len(weights)


def learn_to_retrieve(
    form: Form, *, length: int, d: int = 8, step_size: float, seed: int, steps: int = 300
) -> tuple[Retrieval, list[float]]:
    """Train queries and keys by Adam to fetch each token's own value; return the layer and the miss at every step.

    Units: `step_size` is that of Adam; the list has steps + 1 entries, the last one after the last step.
    """
    x = unit_tokens(length, d, seed=seed)
    layer = Retrieval(form, d, generator=torch.Generator().manual_seed(seed + 1000))
    optimizer = torch.optim.Adam(layer.parameters(), lr=step_size)
    misses = []
    for _ in range(steps):
        loss = miss(layer(x))
        misses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        misses.append(miss(layer(x)).item())
    return layer, misses
