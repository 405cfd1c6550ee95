"""The sentences of lesson 17, each with what decides on it."""

import math

import torch

from course_lib.attention.scaled_dot_product import argmax_attention
from course_lib.lessons.attention_scaling.contents import lesson
from course_lib.lessons.attention_scaling.exercises import KEYS, VALUES
from course_lib.teaching import fact


def _all_cases(mean: list[float], std: float) -> torch.Tensor:
    """Return q.k of all pairs of vectors whose entries are mean plus or minus std."""
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * len(mean))
    vectors = torch.tensor(mean, dtype=torch.float64) + std * signs
    return vectors @ vectors.T


@lesson.sentence("17.Q1",
                 "Independent entries have mean 0 and standard deviation σ. Divided by √d σ, a score has variance 1.",
                 answer="only if σ = 1", conditions=("only if σ = 1", "only if d is large"))  # fmt: skip
def one_sigma_too_few():
    """The variance is dσ⁴, not dσ²: both the query and the key bring a σ. Four entries, σ = 2, all cases."""
    scores = _all_cases([0.0] * 4, 2.0)
    return "\n".join(
        fact(f"divided by {name} the variance is {{}}", (scores / by).var(correction=0), equals=left, within=1e-12)
        for name, by, left in (("√d", 2, 16), ("√d σ", 4, 4), ("√d σ²", 8, 1))
    )


@lesson.sentence(
    "17.Q2",
    "If all entries of q and k are independent, with means μᵢ for both, the mean of (q · k)² is the sum of all E qᵢ² E kᵢ².",
    answer="only if at most one entry has a mean other than 0",
    conditions=("only if at most one entry has a mean other than 0", "only if all entries are normal"),
)
def cross_terms():
    """A square of a sum has products of different entries. Their mean is that of q_i k_i times that of q_j k_j."""
    lines = []
    for mean in ([2.0, 0.0], [1.0, 2.0]):
        second = sum((m**2 + 0.25) ** 2 for m in mean)
        off = float(_all_cases(mean, 0.5).square().mean()) - second
        lines.append(
            fact(
                f"means {mean[0]:g} and {mean[1]:g}, σ = 0.5: the sum misses {{}}",
                off, equals=2 * math.prod(mean) ** 2, within=1e-12,
            )
        )  # fmt: skip
    return "\n".join(lines)


@lesson.sentence("17.Q3",
                 "If all keys and all values differ, the derivative of argmax attention with respect to the query is 0.",
                 answer="only where the largest score is unique",
                 conditions=("only where the largest score is unique", "only if the keys are orthogonal"))  # fmt: skip
def jumps_at_a_tie():
    """Next to a clear winner nothing changes. At a tie the output jumps, and there is no derivative."""
    keys, values = torch.tensor(KEYS, dtype=torch.float64), torch.tensor(VALUES, dtype=torch.float64)

    def output(t):
        return argmax_attention(torch.tensor([[1.0, 1.0, t]], dtype=torch.float64), keys, values)[0]

    moved = lambda t: (output(t + 1e-9) - output(t - 1e-9)).abs().max()  # noqa: E731
    return "\n".join(
        [
            fact("keys of exercise 17.4, q = (1, 1, 2): the output changes by {}", moved(2.0), equals=0, within=0),
            fact("q = (1, 1, 1/2), at the tie: by {}", moved(0.5), equals=5, within=0),
        ]
    )


@lesson.sentence(
    "17.Q4", "With argmax in place of the softmax, gradients reach none of W_Q, W_K and W_V.", answer=False
)
def values_still_learn():
    """W_Q and W_K get nothing. W_V learns through the values that are chosen."""
    generator = torch.Generator().manual_seed(2)
    tokens, *weights = (
        torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((4, 5), *[(5, 3)] * 3)
    )
    weights = [w.requires_grad_() for w in weights]
    output = argmax_attention(*(tokens @ w for w in weights))
    found = torch.autograd.grad(output.square().sum(), weights, allow_unused=True)
    sizes = [0.0 if g is None else float(g.norm()) for g in found]
    return "\n".join(
        [
            fact("size of the gradient of W_Q and W_K: {}", sizes[:2], equals=0, within=0),
            fact("of W_V: {}", sizes[2], at_least=0.1),
        ]
    )


@lesson.sentence("17.Q5", "Adding one and the same vector to all keys leaves every weight as it is.", answer=True)
def a_shift_of_all_keys():
    """It adds the same number to all scores of a query. Added to the queries instead, it counts."""
    generator = torch.Generator().manual_seed(3)
    q, k = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    c = 3 * torch.randn(4, generator=generator, dtype=torch.float64)
    before = (q @ k.T).softmax(-1)
    return "\n".join(
        [
            fact(
                "added to the keys: weights change by {}",
                ((q @ (k + c).T).softmax(-1) - before).abs().max(),
                at_most=1e-12,
            ),
            fact("added to the queries: by {}", (((q + c) @ k.T).softmax(-1) - before).abs().max(), at_least=0.1),
        ]
    )


@lesson.sentence(
    "17.Q6",
    "Divided by √d, all scores keep their size while d grows and σ = 1, whatever training does (17.3).",
    answer=False,
)
def a_match_outgrows_the_root():
    """For unrelated queries and keys they do. For a key that has come to match, the score over √d grows like √d."""
    generator = torch.Generator().manual_seed(4)
    q, k = torch.randn(2, 4000, 1024, generator=generator, dtype=torch.float64)
    spread = [float((q[:, :d] * k[:, :d]).sum(1).std()) / d**0.5 for d in (64, 1024)]
    match = [float(q[:, :d].square().sum(1).mean()) / d**0.5 for d in (64, 1024)]
    return "\n".join(
        [
            fact("d = 64 and 1,024, unrelated: spread {:.2f}", spread, equals=1, within=0.05),
            fact("k = q: mean {:.1f}", match, equals=[8, 32], within=0.3),
        ]
    )
