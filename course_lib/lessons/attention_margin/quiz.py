"""Sentences of lesson 29, the margin that attention maximises, each with what decides on it."""

import torch

from course_lib.lessons.attention_margin.contents import lesson
from course_lib.lessons.attention_margin.experiment import conditions, randn, rng, trained
from course_lib.lessons.attention_margin.pictures import stored
from course_lib.teaching import fact
from course_lib.theory.attention_margin import (
    Constraints,
    constraints,
    direction_cosine,
    excess,
    gradient_flow,
    nuclear_norm,
    nuclear_svm,
    product,
    random_samples,
    stacked,
)


def asked(*rows: tuple[float, float]) -> Constraints:
    """Return one sample of two tokens for each feature of two diagonal weights."""
    features = torch.tensor(rows, dtype=torch.float64)[:, None]
    return Constraints(features, torch.full((len(rows), 1), 2.0).double(), torch.ones(len(rows)).double())


@lesson.sentence(
    "29.Q1",
    "If some W answers all samples correctly, gradient flow on k and q answers them all in the end.",
    answer=False,
)
def arrives():
    """The loss (29.1) of a sample is at most e. With little attention on the right token it pulls little, by (29.3): twenty
    others can push it so far that it never comes back. Theorems about the end of training assume that the loss reaches
    its infimum."""
    given = asked(*[(1.0, 0.2)] * 20, (-2.0, 1.0))
    zero = torch.zeros(2, dtype=torch.float64)
    flow = gradient_flow(given, [zero + 1, zero], parametrisation="kq", margins=[50], max_steps=1000)
    last = given.margins(product(flow.parameters, "kq"))
    return "\n".join(
        [
            fact(
                "β = (1, 3): the least of all leads is {}", given.margin(zero + torch.tensor([1.0, 3.0])), at_least=0.99
            ),
            fact("after training: lead of the twenty {:.0f}", last[0], at_least=100),
            fact("lead of the last sample {:.0f}", last[-1], at_most=-100),
        ]
    )


@lesson.sentence(
    "29.Q2",
    "A single sample with two tokens, all numbers normal: the product and the matrix trained directly end in different "
    "directions.",
    answer="only if both are kept diagonal",
    conditions=("only if both are kept diagonal", "only if the margin is large"),
)
def single():
    """The feature (29.2) is one matrix of rank one. Its nuclear and its Frobenius norm are the same, and so are the two
    shortest answers: the feature itself. Its diagonal has unequal entries, and they race as in (29.7)."""
    tokens, query = randn(1, 2, 10, generator=rng(1)), randn(1, 10, generator=rng(2))
    given = conditions(tokens, query)
    stack = Constraints(given.features[None], given.gaps[None], given.best[None])
    one, other = (trained(stack, kind, [0], [100]).products[0, 0] for kind in ("KQ", "W"))
    entries, zero = given.features.diagonal(dim1=-2, dim2=-1), torch.zeros(10, dtype=torch.float64)
    apart = [
        gradient_flow(
            Constraints(entries, given.gaps, given.best), start, parametrisation=kind, margins=[100]
        ).products[0]
        for kind, start in (("kq", [zero + 0.01, zero]), ("W", [zero]))
    ]
    return "\n".join(
        [
            fact(
                "margin 100, full matrices: cosine of both {:.4f}",
                direction_cosine(one, other, diagonal=False),
                at_least=0.999,
            ),
            fact("on the diagonal: cosine of both {:.2f}", direction_cosine(*apart, diagonal=True), at_most=0.9),
        ]
    )


@lesson.sentence(
    "29.Q3",
    "A layer whose nuclear norm per margin is within 10% of the least has nearly the direction of the solution.",
    answer=False,
)
def yardsticks():
    """The nuclear ball has flat faces. Along a face the norm is constant; where the points of margin 1 lie close to a face,
    it hardly changes, while the angle does. Below, small sets of samples with random scores."""
    drawn = [random_samples(4, 3, 8, generator=rng(seed)) for seed in range(6)]
    many = constraints(stacked(drawn), diagonal=False)
    start = [0.01 * torch.stack([randn(8, 8, generator=rng(k + s)) for s in range(6)]) for k in (100, 200)]
    made = gradient_flow(many, start, parametrisation="KQ", margins=[100]).products[0]
    least = torch.stack([nuclear_svm(constraints(one, diagonal=False)) for one in drawn])
    norms = [nuclear_norm(one, diagonal=False) for one in (made, least)]
    return "\n".join(
        [
            fact(
                "six sets, margin 100: largest excess {:.2f}",
                excess(norms[0], many.margin(made), norms[1]),
                at_most=0.1,
            ),
            fact("smallest cosine {:.2f}", direction_cosine(made, least, diagonal=False).min(), at_most=0.9),
        ]
    )


@lesson.sentence(
    "29.Q4",
    "One condition, 2β₁ + β₂: wherever k starts, at c = 0.1 or at c = 10, β/m tends to (0.5, 0).",
    answer=True,
)
def starts():
    """By (29.7) the ratio of the coordinates tends to 0 for each c > 0. A larger c only delays it. By (29.8), no point
    of lead 1 has a smaller nuclear norm than (0.5, 0). Trained directly, β keeps the ratio of (29.6)."""
    given, zero = asked((2.0, 1.0)), torch.zeros(2, dtype=torch.float64)
    shares = []
    for c, margin in ((0.1, 1e4), (10.0, 1e8)):
        flow = gradient_flow(given, [zero + c, zero], parametrisation="kq", margins=[margin], logit_step=margin / 20)
        beta = flow.products[0]
        shares.append(beta[1] / beta[0])
    direct = gradient_flow(given, [zero], parametrisation="W", margins=[1000]).products[0]
    points = randn(100_000, 2, generator=rng(3))
    leads = points @ torch.tensor([2.0, 1.0], dtype=torch.float64)
    least = (points[leads > 0].abs().sum(1) / leads[leads > 0]).min()
    return "\n".join(
        [
            fact(
                "β₂ over β₁, c = 0.1 at margin ten thousand and c = 10 at a hundred million: {:.4f}",
                shares,
                at_most=0.01,
            ),
            fact("trained directly: β₂ over β₁ {:.3f}", direct[1] / direct[0], equals=0.5, within=1e-6),
            fact("100,000 random points: least nuclear norm per lead {:.3f}", least, equals=0.5, within=0.001),
        ]
    )


@lesson.sentence(
    "29.Q5",
    "A larger margin on the same training samples means more right answers on new ones.",
    answer=False,
)
def larger():
    """Not with one property. Both numbers are of layers that answer all training samples correctly."""
    pairs = [
        (one, other)
        for one, other in zip(stored(1, "KQ", ", margin 1"), stored(1, "KQ", ", margin 100"), strict=True)
        if one is not None and other is not None
    ]
    fall = [100 * (one - other) for one, other in pairs]
    return fact(
        "K and Q, one singular value, stored run: points lost from margin 1 to 100, mean {:.1f}",
        sum(fall) / len(fall),
        at_least=3,
    )
