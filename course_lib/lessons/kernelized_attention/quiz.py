"""Sentences of lesson 19, kernelized_attention, each with what decides on it."""

import math

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from course_lib.attention.feature_maps import Quadratic
from course_lib.attention.kernelized import kernel_attention
from course_lib.lessons.kernelized_attention.contents import lesson
from course_lib.lessons.kernelized_attention.pictures import SIMILARITIES, queries_and_keys
from course_lib.teaching import fact

POINTS = queries_and_keys(200, 4)


@lesson.sentence("19.Q1", "A similarity can be regrouped only if it is positive semi-definite.", answer=False)
def psd():
    """That is needed where queries and keys share one map. With maps of their own, any finite sum of products will do."""
    q, k = POINTS
    points = q[:50]
    same = SIMILARITIES["(q·k - 1)²"](points, points)
    gram = torch.linalg.eigvalsh(same)
    ones = torch.ones_like(q[:, :1])
    products = torch.einsum("ni,nj->nij", q, q).flatten(1), torch.einsum("ni,nj->nij", k, k).flatten(1)
    phi, psi = (torch.cat(parts, 1) for parts in ([products[0], -2 * q, ones], [products[1], k, ones]))
    gap = (phi @ psi.T - SIMILARITIES["(q·k - 1)²"](q, k)).abs().max()
    return "\n".join(
        [
            fact("(q·k - 1)² has a negative eigenvalue on 50 points: {:.1f}", gram.min(), at_most=-1),
            fact("two different maps give it on 200 queries and keys, with a gap of {:.0e}", gap, at_most=1e-9),
        ]
    )


@lesson.sentence(
    "19.Q2",
    "The features (1, √2 xᵢ, xᵢ²), which are those of (19.5) without the last group, give (q·k + 1)².",
    answer="only if D = 1",
    conditions=("only if D = 1", "only if q = k"),
)
def cross_terms():
    """With one entry there is no pair of different entries. From two on, the cross terms are missing."""

    def short(x: Tensor) -> Tensor:
        return torch.cat([torch.ones(1), math.sqrt(2) * x, x**2])

    ones, line = torch.ones(2), torch.tensor([3.0])
    return "\n".join(
        [
            fact(
                "q = k = (1, 1): they give {:.0f} in the place of 9", short(ones) @ short(ones), equals=7, within=1e-5
            ),
            fact("q = k = 3: they give {:.0f}, which is right", short(line) @ short(line), equals=100, within=1e-3),
        ]
    )


@lesson.sentence(
    "19.Q3", "Attention has a finite output only if all similarities of a query have the same sign.", answer=False
)
def one_sign():
    """The denominator must not be 0, and no more. A shared sign is not needed; nor is it enough: squares may vanish."""
    one, values = torch.ones(1, 1), torch.tensor([[1.0], [3.0]])
    mixed = kernel_attention(one, values, values, similarity=lambda q, k: torch.tensor([[2.0, -1.0]]))
    zero = kernel_attention(one, -torch.ones(2, 1), values, similarity=Quadratic().similarity)
    return "\n".join(
        [
            fact("similarities 2 and -1 with the values 1 and 3 give {:.0f}", mixed, equals=-1, within=1e-6),
            fact("the squares of q = 1 with two keys -1 are 0, and 0/0 is no number", bool(zero.isnan().all())),
        ]
    )


@lesson.sentence(
    "19.Q4",
    "If no similarity of a query is negative, each entry of its output lies between the least and the greatest value.",
    answer="only if they do not all vanish",
    conditions=("only if they do not all vanish", "only if they are at most 1"),
)
def average():
    """Divided by a sum above 0, the similarities become weights of an average: none is negative, and they add up to 1."""
    q, k = POINTS
    v = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    squares = kernel_attention(q, k, v, similarity=SIMILARITIES["(q·k + 1)²"])
    signed = kernel_attention(q, k, v, similarity=SIMILARITIES["q·k"])
    beyond = lambda out: float((out - v.amax(0)).clamp(min=0).max())  # noqa: E731
    return "\n".join(
        [
            fact("(q·k + 1)², 200 tokens: the outputs exceed the greatest value by {}", beyond(squares), at_most=1e-12),
            fact("q·k, which has both signs: by up to {}", beyond(signed), at_least=1),
        ]
    )


@lesson.sentence(
    "19.Q5", "Of the multiply-adds in (19.9), summing U takes NM: one for each entry of each value.", answer=False
)
def first_loop():
    """Each token adds an outer product of its C features and its M values, so the sum takes NCM."""
    count = sum(torch.outer(features, torch.ones(64)).numel() for features in Quadratic()(torch.ones(10, 64)))
    return fact(
        "10 tokens with D = M = 64 add {:,.0f} products to U; N M would be 640", count, equals=10 * 2145 * 64, within=0
    )


def one_pass(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, int]:
    """Return softmax attention with one key at a time, and the most numbers that one of its tensors holds."""
    top, bottom = torch.zeros(len(q), v.shape[1], dtype=v.dtype), torch.zeros(len(q), 1, dtype=v.dtype)
    largest, most = torch.full((len(q), 1), -math.inf, dtype=v.dtype), 0
    for key, value in zip(k, v, strict=True):
        score = (q @ key / math.sqrt(len(key)))[:, None]
        new = torch.maximum(largest, score)
        shrink, weight = (largest - new).exp(), (score - new).exp()
        top, bottom, largest = top * shrink + weight * value, bottom * shrink + weight, new
        most = max(most, *(t.numel() for t in (score, weight, top, bottom)))
    return top / bottom, most


@lesson.sentence(
    "19.Q6",
    "Softmax attention has to store N² similarities, so regrouping saves memory for every N beyond (19.11).",
    answer=False,
)
def softmax_memory():
    """One pass over the keys, with a running maximum and running sums, needs no table. PyTorch's fused kernels work so."""
    q, k = POINTS
    v = torch.randn(200, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    out, most = one_pass(q, k, v)
    return "\n".join(
        [
            fact(
                "one pass gives softmax attention, with a gap of {:.0e}",
                (out - scaled_dot_product_attention(q[None], k[None], v[None])[0]).abs().max(),
                at_most=1e-12,
            ),
            fact("its largest tensor has {:,.0f} numbers; N² is 40,000", most, equals=800, within=0),
        ]
    )
