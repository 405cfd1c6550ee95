"""Similarities of queries and keys, and feature maps whose dot products they are (lesson 19)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.checks import named

FeatureMap = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Quadratic:
    """The quadratic kernel sim(q, k) = (alpha q.k + c)^2 (19.4) and its features.

    A call returns phi(x) with phi(q).phi(k) = sim(q, k) (19.5): c, the entries sqrt(2 alpha c) x_i, the squares
    alpha x_i^2 and the cross terms sqrt(2) alpha x_i x_j for i < j. With c = 0 only squares and cross terms are left.

    Units: `scale` is alpha, `offset` is c.

    Raises:
        ValueError: alpha is not above 0 or c is below 0: then no feature map exists.
    """

    scale: float | int = 1.0
    offset: float | int = 1.0

    def __post_init__(self):
        if not (0 < self.scale < math.inf and 0 <= self.offset < math.inf):
            raise ValueError(
                f"a quadratic kernel needs a finite scale > 0 and offset >= 0, got {self.scale} and {self.offset}"
            )

    def __call__(self, x: Float[Tensor, "... seq d"]) -> Float[Tensor, "... seq n_features"]:
        """Return phi(x)."""
        # As rows, since many tokens side by side are picked three times as fast; sqrt(c) is one row more, the first.
        rows = math.sqrt(self.scale) * x.mT
        if self.offset != 0:
            rows = torch.cat([torch.full_like(rows[..., :1, :], math.sqrt(self.offset)), rows], -2)
        count = rows.shape[-2]
        i, j = torch.triu_indices(count, count, device=x.device)
        rows = torch.cat([rows, math.sqrt(2) * rows], -2)  # the second half is for rows that meet another one
        first, second = rows.index_select(-2, i), rows.index_select(-2, j + count * (i != j))
        # Without a gradient the product takes the place of its factor: new memory costs as much as the product.
        return (first * second if first.requires_grad else first.mul_(second)).mT

    def n_features(self, head_dim: int) -> int:
        """C = (D + 1)(D + 2)/2, or D(D + 1)/2 where c = 0 (19.6)."""
        rows = head_dim + (self.offset != 0)
        return rows * (rows + 1) // 2

    def similarity(
        self, q: Float[Tensor, "... q_len d"], k: Float[Tensor, "... k_len d"]
    ) -> Float[Tensor, "... q_len k_len"]:
        """Return (alpha q.k + c)^2 of every query with every key."""
        return (self.scale * (q @ k.mT) + self.offset).square()


@named
def elu_features(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """elu(x) + 1, which is x + 1 above 0 and e^x below: positive features, as many as x has entries.

    Source: Katharopoulos et al. 2020, arXiv:2006.16236.
    """
    # elu(x) + 1 itself would round to 0 where e^x is below the dtype's epsilon.
    return torch.where(x > 0, x + 1, x.clamp(max=0).exp())


def exp_similarity(
    q: Float[Tensor, "... q_len d"], k: Float[Tensor, "... k_len d"]
) -> Float[Tensor, "... q_len k_len"]:
    """exp(q.k / sqrt(D)), up to a factor for each query that attention cancels: the similarity of softmax attention."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return (scores - scores.amax(-1, keepdim=True)).exp()


def compute_features(
    feature_map: FeatureMap, x: Float[Tensor, "batch seq d"]
) -> Float[Tensor, "batch seq n_features"]:
    """phi(x), in the dtype of the sums.

    Raises:
        ValueError: the map returns another number of rows.
    """
    phi = feature_map(x)
    if phi.shape[:-1] != x.shape[:-1]:
        raise ValueError(
            f"feature_map must return (..., seq, n_features), got {tuple(phi.shape)} for an input of shape "
            f"{tuple(x.shape)}"
        )
    return phi.to(sum_dtype(x.dtype))


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """float32, or float64 for that: sums over a whole sequence need more digits than half precision has."""
    return torch.promote_types(dtype, torch.float32)
