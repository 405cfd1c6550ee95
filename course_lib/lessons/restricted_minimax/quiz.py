"""Sentences of lesson 30, restricted minimax estimation, each with what decides on it."""

import torch

from course_lib.lessons.restricted_minimax.contents import lesson
from course_lib.lessons.restricted_minimax.pictures import BOUND, F64, TESTS, five_rules, ratio, solved
from course_lib.teaching import fact
from course_lib.theory.restricted_minimax import classical_rule, risk, two_point, two_point_limit

EVENLY = (torch.arange(4000, dtype=F64) + 0.5) / 4000 * BOUND


@lesson.sentence(
    "30.Q1",
    "Take the rule that is safest without the bound, and cut its reports at η: that is the safest rule with the bound.",
    answer=False,
)
def clipped():
    """Cutting changes only the reports above η. The bound also asks for smaller reports after few failures. Where it
    is worth nothing (appendix), cutting changes nothing."""
    unit = "{:.2f} times the smallest possible largest risk"
    cut = {n: ratio(classical_rule(n).clamp(max=BOUND), n, BOUND) for n in (20, 50)}
    return "\n".join(
        [
            fact(f"20 tests, η = 0.3: {unit}", cut[20], equals=2.209, within=0.002),
            fact(f"50 tests, η = 0.3: {unit}", cut[50], equals=1.98, within=0.01),
        ]
    )


@lesson.sentence(
    "30.Q2",
    "20 tests. Nature's best prior lies on 0 and η, the two extremes.",
    answer="only if η is at most about 0.045",
    conditions=("only if η is at most about 0.045", "only if η is at least about 0.045"),
)
def extremes():
    """Beyond the limit of (30.6) the risk of the reply rises at 0, so some θ in between costs more."""
    below, above = (factor * two_point_limit(TESTS) for factor in (0.999, 1.1))
    return "\n".join(
        [
            fact(
                "just below the limit: the ceiling is the floor, up to {:.0e}",
                two_point(TESTS, below).gap,
                at_most=1e-9,
            ),
            fact(
                "a tenth above it: {:.4f} times the smallest possible largest risk",
                two_point(TESTS, above).upper / solved(TESTS, above).upper,
                at_least=1.001,
            ),
            fact(
                "η = 0.3: {:.1f} times",
                two_point(TESTS, BOUND).upper / solved(TESTS, BOUND).upper,
                equals=11.03,
                within=0.02,
            ),
        ]
    )


@lesson.sentence(
    "30.Q3",
    "One test. A smaller bound η always makes a smaller largest risk possible.",
    answer="only if η is at most 3/4",
    conditions=("only if η is at most 3/4", "only if η is above 3/4"),
)
def always_worth():
    """Between 3/4 and 1 the safest rule does not change, and its risk is 1/16 for every θ, (30.4)."""
    return "\n".join(
        [
            fact("η = 0.9 over η = 1: {:.6f}", solved(1, 0.9).upper / solved(1, 1.0).upper, equals=1, within=1e-6),
            fact("η = 0.6 over η = 0.7: {:.3f}", solved(1, 0.6).upper / solved(1, 0.7).upper, at_most=0.99),
        ]
    )


@lesson.sentence(
    "30.Q4", "The safest rule also has the smallest risk on average over all θ from 0 to 0.3.", answer=False
)
def on_average():
    """The mean under a uniform prior has the smallest average, by its definition. Its largest risk is larger."""
    rules, unit = five_rules(), solved(TESTS, BOUND).upper
    ours, theirs = (float(risk(rules[name], EVENLY).mean()) / unit for name in "DC")
    return "\n".join(
        [
            fact("average risk of D over its largest: {:.2f}", ours, equals=0.95, within=0.005),
            fact("average risk of C, in the same unit: {:.2f}", theirs, equals=0.804, within=0.005),
        ]
    )


@lesson.sentence(
    "30.Q5",
    "If the guarantee is wrong and the true rate is 45%, D still errs less than the uncut share x/n.",
    answer=False,
)
def broken_guarantee():
    """D never reports more than 30%. It trusts the guarantee completely."""
    there = torch.tensor([0.45], dtype=F64)
    plain = torch.arange(TESTS + 1, dtype=F64) / TESTS
    found = float(risk(five_rules()["D"], there) / risk(plain, there))
    return fact("risk of D over that of x/n at θ = 0.45: {:.2f}", found, equals=2.01, within=0.01)


def tuned() -> tuple[float, float, float]:
    """Return the least largest risk of min((x + a)/(n + b), eta) for 20 tests, over the smallest possible, with a and b."""
    x, found = torch.arange(TESTS + 1, dtype=F64), []
    at = torch.linspace(0, BOUND, 121, dtype=F64)
    for b in torch.arange(4, 9.01, 0.25).tolist():
        for a in torch.arange(1, 2.51, 0.05).tolist():
            rule = ((x + a) / (TESTS + b)).clamp(max=BOUND)
            found.append((float(risk(rule, at).max()) / solved(TESTS, BOUND).upper, a, b))
    return min(found)


@lesson.sentence(
    "30.Q6",
    "Without three places and a computer nobody comes near: every simple formula risks at least a quarter as much again.",
    answer=False,
)  # fmt: skip
def simple():
    """Add a to the failures and b to the tests, cut at 30%, and choose a and b for the smallest largest risk. Only the
    floor shows how good that is."""
    best, a, b = tuned()
    return "\n".join(
        [
            fact("best on a grid of a and b: {:.3f} times the smallest possible", best, at_most=1.05),
            fact("and no better than {:.3f} times", best, at_least=1.01),
            f"its a is {a:.2f} and its b is {b:.2f}",
            fact(
                "rule B, with a = 0.5 and b = 1, not tuned: {:.2f} times",
                ratio(five_rules()["B"], TESTS, BOUND),
                equals=1.42,
                within=0.005,
            ),
        ]
    )
