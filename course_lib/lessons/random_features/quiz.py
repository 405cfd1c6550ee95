"""Sentences of lesson 21, random_features, each with what decides on it."""

import math

import torch

from course_lib.attention.random_features import gaussian_kernel, relative_variance, trigonometric_features
from course_lib.attention.trained_through import learn_to_fetch, through_features
from course_lib.lessons.random_features.contents import lesson
from course_lib.lessons.random_features.pictures import output_errors, projections, randn, rng
from course_lib.teaching import fact


@lesson.sentence(
    "21.Q1",
    "The kernel of any width σ, times its two factors as on the right of (21.1), is softmax's similarity.",
    answer="only if σ² = √D",
    conditions=("only if σ² = √D", "only if σ = √D"),
)
def width():
    """For any other width the product is another power of the exponential, which sharpens or flattens the weights."""
    q, k = torch.zeros(2, 1, 16, dtype=torch.float64)
    q[0, :2], k[0, :3] = torch.tensor([2.0, 1.0]), torch.tensor([2.0, 0.8167, -1.5])

    def product(sigma: float | int) -> float:
        lengths = (q.square().sum() + k.square().sum()) / (2 * sigma**2)
        return float(lengths.exp() * gaussian_kernel(q, k, sigma=sigma))

    exact = math.exp(float(q[0] @ k[0]) / 4)
    return "\n".join(
        [
            fact("D = 16, softmax 3.334; the product with σ = 2: {:.3f}", product(2), equals=exact, within=1e-9),
            fact("with σ = 1: {:.1f}", product(1), equals=123.6, within=0.1),
        ]
    )


@lesson.sentence(
    "21.Q2",
    "For every draw of the features, the product (21.4) is the kernel itself.",
    answer="only if q = k",
    conditions=("only if q = k", "only if m is at least D"),
)
def equality():
    """Equal are the means over all draws. For q = k every cosine is 1, and so is the kernel."""
    q, k = randn(1, 4, seed=1), randn(1, 4, seed=2)
    features = trigonometric_features(4, 4000, generator=rng(3), dtype=torch.float64)
    gap = float((features(q) @ features(k).mT - gaussian_kernel(q, k)).abs())
    same = float((features(q) @ features(q).mT - 1).abs())
    return "\n".join(
        [
            fact("D = 4, m = 4,000: they differ by {:.4f}", gap, at_least=1e-4),
            fact("q = k: by {:.0e}", same, at_most=1e-12),
        ]
    )


@lesson.sentence(
    "21.Q3",
    "Weights from positive features are 0 or more and add up to 1, so the output stays near that of softmax.",
    answer=False,
)
def safe():
    """It stays an average of the values, but with the wrong weights."""
    error = output_errors(8)
    return fact("length 8, 256 features: an error of {:.1f} times the output", error, at_least=2)


@lesson.sentence(
    "21.Q4",
    "Double a query and halve a key: no score changes, and neither does the error of positive features.",
    answer=False,
)
def rescaled():
    """The error depends on the length of q + k, (21.7), and that changes."""
    q, k = (torch.tensor([[x]], dtype=torch.float64) for x in (1.0, 1.0))
    before, after = (float(relative_variance(a, b, kind="positive", sigma=1)) for a, b in ((q, k), (2 * q, k / 2)))
    return "\n".join(
        [
            fact("q = k = 1, σ = 1: relative variance {:.1f}", before, equals=math.exp(4) - 1, within=1e-6),
            fact("q = 2, k = 1/2: {:.0f}", after, equals=math.exp(6.25) - 1, within=1e-6),
        ]
    )


@lesson.sentence("21.Q5", "Four times the frequencies halve the root mean square error.", answer=True)
def root():
    """Independent draws: the variance of their mean is that of one, divided by m."""
    ratios = torch.from_numpy(projections() - 0.5).exp()  # |q + k| = sigma
    errors = {m: float((ratios[:, :m].mean(1) - 1).square().mean().sqrt()) for m in (16, 64)}
    return fact(
        "1,500 draws, |q + k| = σ: 16 over 64 positive features {:.2f}", errors[16] / errors[64], equals=2, within=0.2
    )


@lesson.sentence(
    "21.Q6",
    "Of two trainings through as many features, the one with the lower loss through them has better weights for softmax.",
    answer=False,
)
def lower():
    """A draw that is kept can be fitted: training can exploit its errors, and softmax does not have
    them. Below, another seed and 80 steps."""
    kept, redrawn = (
        learn_to_fetch(through_features(16, redrawn=redrawn), step_size=0.2, seed=1, steps=80)
        for redrawn in (False, True)
    )
    return "\n".join(
        [
            fact("loss through 16 features, kept over redrawn: {:.2f}", kept.own[-1] / redrawn.own[-1], at_most=0.9),
            fact("with softmax: {:.1f}", kept.exact[-1] / redrawn.exact[-1], at_least=3),
        ]
    )
