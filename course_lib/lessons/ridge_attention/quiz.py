"""Sentences of lesson 22, ridge_attention, each with what decides on it."""

from statistics import mean, stdev

import torch

from course_lib.attention.ridge import operations, ridge_memory, sherman_morrison
from course_lib.lessons.ridge_attention.contents import lesson
from course_lib.lessons.ridge_attention.experiment import ORDERS, SEEDS, closing, digits, right, values_of
from course_lib.lessons.ridge_attention.pictures import answers_at_stored_keys, two_of_each
from course_lib.teaching import fact


@lesson.sentence(
    "22.Q1",
    "Keys are the rows of K, values those of V: the memory W of (22.2) answers a query q by W q.",
    answer=False,
)
def other_side():
    """Rows of W belong to entries of keys, so the answer is Wᵀq. If keys and values differ in width, W q does not exist."""
    keys = torch.tensor([[1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    memory = ridge_memory(keys, torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64), penalty=1)
    query = torch.ones(2, dtype=torch.float64)
    return "\n".join(
        [
            fact("keys (1, 0), (1, 1), values (1, 2), (3, 4), λ = 1: (1, 1) reads {:.1f}", memory.T @ query,
                 equals=[2, 14 / 5], within=1e-12),
            fact("W q: {:.1f}", memory @ query, equals=[13 / 5, 11 / 5], within=1e-12),
        ]
    )  # fmt: skip


@lesson.sentence(
    "22.Q2",
    "Updating the inverse key by key, by (22.6), saves multiplications.",
    answer="only if it is needed after each key, or n is below d",
    conditions=(
        "only if it is needed after each key, or n is below d",
        "only if it is needed once, after many keys",
    ),
)
def cheaper():
    """Against an inversion after each key it saves much. A single inversion after many keys is cheaper than all updates."""
    count = {(n, m): operations(n, 64, method=m) for n in (8, 2048) for m in ("single", "resolve", "rank_one")}
    return "\n".join(
        [
            fact("leading terms of (22.8), d = 64, n = 2,048: inverting after each key over updating {:.0f}",
                 count[2048, "resolve"] / count[2048, "rank_one"], at_least=30),
            fact("all updates over a single inversion {:.2f}",
                 count[2048, "rank_one"] / count[2048, "single"], at_least=1.9),
            fact("the same for n = 8: {:.2f}", count[8, "rank_one"] / count[8, "single"], at_most=0.3),
        ]
    )  # fmt: skip


@lesson.sentence(
    "22.Q3",
    "Adding one more pair can make the formula (22.6) divide by 0, in exact arithmetic.",
    answer=False,
)
def divides():
    """P is positive definite, so 1 + kᵀPk is above 1 for each key but 0. Taking a pair away can fail."""
    keys, penalty = digits()[0][0], 0.001
    inverse, least = torch.eye(64, dtype=torch.float64) / penalty, float("inf")
    for key in keys[:200]:
        least = min(least, float(1 + key @ inverse @ key))
        inverse = sherman_morrison(inverse, key, key)
    first = torch.eye(2, dtype=torch.float64)[0]
    return "\n".join(
        [
            fact("200 digits, λ = 0.001: the least 1 + kᵀPk {:.2f}", least, at_least=1),
            fact("P = I, the key (1, 0) taken away: 1 - kᵀPk = {}", 1 - float(first @ first), equals=0, within=0),
        ]
    )


@lesson.sentence(
    "22.Q4",
    "Of two penalties, the one that answers the stored pairs better also answers new queries better.",
    answer=False,
)
def new_ones():
    """With 64 digits and hardly any penalty, the stored pairs are answered better than with λ = 1, and new digits worse,
    even worse than by plain sums."""
    errors, shares = {0.001: 0.0, 1.0: 0.0}, {0.001: 0.0, 1.0: 0.0, "sums": 0.0}
    for seed in SEEDS:
        stored, _, new = digits(seed)
        keys, values = stored[0][:64], values_of(stored[1][:64])
        shares["sums"] += float(right(keys.T @ values, new)) / len(SEEDS)
        for penalty in errors:
            memory = ridge_memory(keys, values, penalty=penalty)
            errors[penalty] += float((keys @ memory - values).square().sum() / values.square().sum()) / len(SEEDS)
            shares[penalty] += float(right(memory, new)) / len(SEEDS)
    return "\n".join(
        [
            fact("64 digits, five splits: error at the stored ones, λ = 0.001: {:.2f}", errors[0.001], at_most=0.1),
            fact("λ = 1: {:.2f}", errors[1.0], at_least=0.2),
            fact("new digits right, λ = 0.001: {:.0%}", shares[0.001], at_most=0.72),
            fact("λ = 1: {:.0%}", shares[1.0], at_least=0.8),
            fact("sums: {:.0%}", shares["sums"], at_least=0.75),
        ]
    )


@lesson.sentence(
    "22.Q5",
    "Softmax attention keeps all pairs, so a stored key of length 1 reads nearly its own value.",
    answer="only if the scores are scaled up enough",
    conditions=("only if the scores are scaled up enough", "only if there are fewer pairs than dimensions"),
)
def temperature():
    """For keys of length 1 the scores lie between -1 and 1. Divided by the root of d they give almost a plain mean."""
    values = values_of(two_of_each()[1])
    errors = {}
    for scale in (1 / 8, 20):
        answers = answers_at_stored_keys(scale=scale)["softmax"]
        errors[scale] = float((answers - values).square().sum() / values.square().sum())
    return "\n".join(
        [
            fact("twenty digits, scores k·k′/8: relative squared error {:.2f}", errors[1 / 8], at_least=0.8),
            fact("scores 20 k·k′: {:.3f}", errors[20], at_most=0.05),
        ]
    )


@lesson.sentence(
    "22.Q6",
    "On digits in mixed order ridge attention is clearly better than a delta rule whose step size is tuned.",
    answer=False,
)
def hardly():
    """Compared split by split, the sign of the difference changes. In sorted order ridge attention leads in each split."""
    found = closing()
    leads = {o: [a - b for a, b in zip(found["ridge", o], found["delta rule", o], strict=True)] for o in ORDERS}
    error = stdev(leads["mixed"]) / len(SEEDS) ** 0.5
    return "\n".join(
        [
            fact("mixed: ridge less delta rule, mean of five splits {:+.1%}", mean(leads["mixed"]), at_most=0.01),
            fact("in standard errors of the mean {:.1f}", mean(leads["mixed"]) / error, at_most=1.5),
            fact("least of the five {:+.1%}", min(leads["mixed"]), at_most=0),
            fact("sorted: least of the five {:+.1%}", min(leads["sorted"]), at_least=0.03),
        ]
    )
