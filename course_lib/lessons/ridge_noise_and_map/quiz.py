"""The quiz of lesson 04, ridge_noise_and_map."""

import torch

from course_lib.lessons.ridge_noise_and_map.contents import lesson
from course_lib.lessons.ridge_noise_and_map.pictures import drawn_problems, ridge_all, risk, wiggly_data
from course_lib.optimization.ridge import most_probable, ridge
from course_lib.teaching import fact


@lesson.sentence(
    "04.Q1", r"If the errors are normal with variance $v$ and the prior is $N(0, pI)$, the most probable weights are "
    r"those of ridge with $\lambda = v$, whatever the data.",
    answer="only if p = 1",
    conditions=("only if p = 1", "only if v = 1"),
)  # fmt: skip
def ratio_of_variances():
    """By (04.4) λ is v/p. Below are one feature with the values 1 and 2, the targets 1 and 3, and v = 1/2: ridge
    with λ = 1/2 gives 14/11."""
    column, target = torch.tensor([[1.0], [2.0]]).double(), torch.tensor([1.0, 3.0]).double()
    found = {p: most_probable(column, target, noise_variance=0.5, prior_variance=p) for p in (1.0, 4.0)}
    return "\n".join(
        (
            fact("p = 1: the most probable weight is {:.4f}", float(found[1.0]), equals=14 / 11, within=1e-6),
            fact("p = 4: it is {:.4f}, which is not 14/11", float(found[4.0]), at_least=14 / 11 + 0.05),
        )
    )


@lesson.sentence(
    "04.Q2", r"Fresh noise with mean 0 on the features, drawn alike for each row, costs on average a multiple of "
    r"$\lVert w\rVert^2$, the same multiple for all $w$.",
    answer="only if its entries are uncorrelated and have the same variance",
    conditions=(
        "only if its entries are uncorrelated and have the same variance",
        "only if its entries are independent and normal",
    ),
)  # fmt: skip
def covariance_decides():
    """The derivation of (04.1) needs the covariance of the noise and nothing else: with covariance S a row costs
    w·Sw. That is a multiple of ‖w‖² for all w if and only if S is a multiple of the identity. Coin flips will
    do. Normal entries with different variances will not: below, the first entry has four times the variance."""
    generator = torch.Generator().manual_seed(0)
    coins = 2.0 * torch.randint(2, (100_000, 2), generator=generator).double() - 1
    uneven = torch.randn(100_000, 2, generator=generator).double() * torch.tensor([2.0, 1.0])
    along, across = torch.tensor([1.0, 0.0]).double(), torch.tensor([0.0, 1.0]).double()
    mixed = torch.tensor([0.6, 0.8]).double()
    cost = lambda noise, w: float((noise @ w).square().mean() / w.square().sum())  # noqa: E731
    return "\n".join(
        (
            fact("coin flips: (0.6, 0.8) costs {:.2f} times as much as (1, 0)",
                 cost(coins, mixed) / cost(coins, along), equals=1, within=0.03),
            fact("normal, uneven variances: (1, 0) costs {:.1f} times as much as (0, 1)",
                 cost(uneven, along) / cost(uneven, across), equals=4, within=0.2),
        )
    )  # fmt: skip


@lesson.sentence(
    "04.Q3", r"If every row is copied once, (04.2) needs twice the $\lambda$ to give the same weights.", answer=True
)
def copied_rows():
    """Copying doubles the squared errors, so the penalty has to double to keep its share. A row that is measured anew
    is different: it brings an error of its own. Treating a copy as a new measurement makes one overconfident."""
    _, matrix, target, *_ = wiggly_data()
    once = ridge(matrix, target, 0.27)
    twice = {lam: ridge(matrix.repeat(2, 1), target.repeat(2), lam) for lam in (0.27, 0.54)}
    return "\n".join(
        (
            fact(
                "copied rows, λ = 0.54: the weights move by {:.0e}", float((twice[0.54] - once).norm()), at_most=1e-10
            ),
            fact("copied rows, λ = 0.27: they move by {:.2f}", float((twice[0.27] - once).norm()), at_least=0.05),
        )
    )


@lesson.sentence(
    "04.Q4", "With a mean loss, the weight decay that is best for 12 rows is best for 1,536 rows, too.", answer=False
)
def decay_kept():
    """In a mean loss, a weight decay κ is ridge with λ = mκ/2, (04.5): it grows with the rows, like the noise. On
    the problems of the closing experiment the best λ is about 1 for any number of rows, so that the best κ falls
    like 1/m."""
    penalties = torch.logspace(-3, 3, 25, dtype=torch.float64).tolist()
    best = {}
    for rows in (12, 1536):
        matrix, target, truth = drawn_problems(rows)
        mean = [float(risk(ridge_all(matrix, target, lam), truth).mean()) for lam in penalties]
        best[rows] = 2 * penalties[mean.index(min(mean))] / rows
    matrix, target, truth = drawn_problems(1536)
    at = {kappa: float(risk(ridge_all(matrix, target, 768 * kappa), truth).mean()) for kappa in best.values()}
    return "\n".join(
        (
            fact("the best weight decay for 12 rows is {:.0f} times that for 1,536", best[12] / best[1536], at_least=30),
            fact("kept at 1,536 rows it has {:.0f} times the risk of the best one there",
                 at[best[12]] / at[best[1536]], at_least=3),
        )
    )  # fmt: skip


@lesson.sentence(
    "04.Q5", "If the prior is right, the most probable weights have less risk than least squares on every data set.",
    answer=False,
)  # fmt: skip
def on_average():
    """A prior helps on average over the weights that it describes, and over the errors. Where least squares happens to come
    out too short already, it pulls further towards 0. Below are the 200 closing problems with 1,536 rows."""
    matrix, target, truth = drawn_problems(1536)
    prior, plain = (risk(ridge_all(matrix, target, penalty), truth) for penalty in (1.0, 0.0))
    return "\n".join(
        (
            fact("the mean risk is {:.2f} of that of least squares", float(prior.mean() / plain.mean()), at_most=0.98),
            fact("in {:.0%} of the problems it is larger", float((prior > plain).double().mean()), at_least=0.1),
        )
    )
