"""What learners of lesson 30 answer, and what gives its predictions away."""

import math
from fractions import Fraction

import torch

from course_lib.teaching import edit

GIVES_AWAY = {
    "30.P1": [r"1\.61|2\.21", r"(?i)safest of the five"],
    "30.P2": [r"(?i)nine places", r"(?i)at most 26"],
    "30.P3": [r"(?i)clumps around", r"(?i)floor of the tally|tally of worst cases"],
}
NEIGHBOURS = {
    "30.e1": ("worst_case(rule, 0.3)[0] for name", "worst_case(rule, 0.25)[0] for name"),
    "30.1": (
        "measured = (some[failures] - 0.25).square().mean()",
        "measured = (some[failures] - 0.25).var()",
    ),
    "30.2": ("bayes_rule(places, shares, 20).req", "bayes_rule(places + 1e-4, shares, 20).req"),
    "30.3": ("best = minimax(20, 0.3)", "best = Solution.of(places, shares, n=20, eta=0.3)"),
    "30.4": ("s = max(1 - eta, 1 / 4) ** 0.5", "s = (1 - eta) ** 0.5"),
    "30.5": ("two_point(n, 0.999 * eta)", "two_point(n, 1.01 * eta)"),
    "30.e7": ("pairs = [minimax(20, eta)", "pairs = [two_point(20, eta)"),
    "30.7": ("for steps in (0, 100, 1000):", "for steps in (0, 1000, 100):"),
    "30.e2": (
        "top, at = worst_case(found.rule, 0.75)",
        "top, at = worst_case(two_point(50, 0.75).rule, 0.75)",
    ),
    "30.e3": ("worst = risks.argmax()", "worst = risks.argmin()"),
    "30.8": (
        "reply, average = bayes_rule(values, tally, 20)",
        "reply, average = bayes_rule(values, torch.ones(61) / 61, 20)",
    ),
}


def counted(rule, theta):
    n = len(rule) - 1
    return sum(
        math.comb(n, k) * theta**k * (1 - theta) ** (n - k) * (float(rule[k]) - theta) ** 2
        for k in range(n + 1)
    )


def bias_and_variance(rule, theta):
    n = len(rule) - 1
    p = torch.tensor(
        [math.comb(n, k) * theta**k * (1 - theta) ** (n - k) for k in range(n + 1)], dtype=rule.dtype
    )
    mean = p @ rule
    return p @ (rule - mean) ** 2, (mean - theta) ** 2


def probabilities(atoms, n):
    counts = torch.arange(n + 1, dtype=atoms.dtype)
    return torch.distributions.Binomial(n, atoms[:, None]).log_prob(counts).exp()


def count_by_count(atoms, weights, n):
    estimates = []
    for k in range(n + 1):
        posterior = weights * atoms**k * (1 - atoms) ** (n - k)  # the binomial coefficient cancels
        estimates.append((posterior @ atoms) / posterior.sum())
    return torch.stack(estimates)


def risks(rule, thetas):
    return torch.stack([sum(bias_and_variance(rule, float(theta))) for theta in thetas])


def both(lower, upper):
    return torch.stack([torch.as_tensor(lower), torch.as_tensor(upper)])


def by_posterior_variance(rule, atoms, weights, places):
    """The Bayes risk as the mean variance of theta given the count."""
    joint = weights[:, None] * probabilities(atoms, len(rule) - 1)
    mean = atoms @ joint / joint.sum(0)
    return both((joint * (atoms[:, None] - mean) ** 2).sum(), risks(rule, places).max())


def by_hand(rule, atoms, weights, places):
    best = count_by_count(atoms, weights, len(rule) - 1)
    return both(weights @ risks(best, atoms), max(counted(rule, float(place)) for place in places)).to(
        rule.dtype
    )


def answer(a, risk):
    return {"a": a, "risk": risk}


def two_points(weight, estimate):
    return {"weight": weight, "estimate": estimate}


def case(n, eta):
    return {"n": n, "eta": eta}


ANSWERS = {
    "30.1": [
        ("solved", "counted one by one", counted),
        ("solved", "variance plus squared bias", lambda rule, theta: sum(bias_and_variance(rule, theta))),
        ("bias only", "the squared bias", lambda rule, theta: bias_and_variance(rule, theta)[1]),
        ("variance only", "the variance", lambda rule, theta: bias_and_variance(rule, theta)[0]),
        ("mean over the counts", "the mean of the squared errors", lambda rule, theta: (rule - theta).square().mean()),
        ("absolute", "sizes of errors", edit("(rule - theta) ** 2", "(rule - theta).abs()")),
        ("no coefficient", "powers only", lambda rule, theta: sum(
            theta**k * (1 - theta) ** (len(rule) - 1 - k) * (rule[k] - theta) ** 2 for k in range(len(rule)))),
        ("wrong", "success and failure exchanged", lambda rule, theta: counted(rule.flip(0), theta)),
        ("malformed", "one for each count", lambda rule, theta: (rule - theta) ** 2),
    ],
    "30.2": [
        ("solved", "count by count, without the coefficient", count_by_count),
        ("solved", "torch's binomial distribution", lambda atoms, weights, n: atoms @ torch.softmax(
            probabilities(atoms, n).log() + weights.log()[:, None], 0)),
        ("weights left out", "equal atoms", lambda atoms, weights, n: count_by_count(atoms, torch.ones_like(weights), n)),
        ("not divided", "joint, not given the count",
         lambda atoms, weights, n: (atoms * weights) @ probabilities(atoms, n)),
        ("prior's mean", "the count ignored", lambda atoms, weights, n: (atoms @ weights).expand(n + 1)),
        ("most probable atom", "argmax", lambda atoms, weights, n: atoms[
            (weights[:, None] * probabilities(atoms, n)).argmax(0)]),
        ("wrong", "counts reversed", lambda atoms, weights, n: count_by_count(atoms, weights, n).flip(0)),
        ("malformed", "one for each atom", lambda atoms, weights, n: probabilities(atoms, n).sum(1)),
    ],
    "30.3": [
        ("solved", "the mean posterior variance", by_posterior_variance),
        ("solved", "by hand", by_hand),
        ("the rule's own average", "the given rule at the atoms", lambda rule, atoms, weights, places: both(
            weights @ risks(rule, atoms), risks(rule, places).max())),
        ("mean for the largest", "the mean risk", lambda rule, atoms, weights, places: both(
            by_posterior_variance(rule, atoms, weights, places)[0], risks(rule, places).mean())),
        ("largest at the atoms", "atoms for places", lambda rule, atoms, weights, places: by_posterior_variance(
            rule, atoms, weights, atoms)),
        ("the Bayes rule twice", "its largest risk", lambda rule, atoms, weights, places: by_posterior_variance(
            count_by_count(atoms, weights, len(rule) - 1), atoms, weights, places)),
        ("smallest at the atoms", "the minimum", edit("weights @ risk(best, atoms)", "risk(best, atoms).min()")),
        ("weights left out", "the plain mean", edit("weights @ risk(best, atoms)", "risk(best, atoms).mean()")),
        ("wrong", "half of the bound", edit("weights @ risk(best, atoms)", "weights @ risk(best, atoms) / 2")),
        ("wrong", "the largest of both", edit(
            "risk(rule, places).max()", "torch.maximum(risk(rule, places), risk(best, places)).max()")),
        ("largest for the average", "the Bayes rule's largest risk", edit(
            "weights @ risk(best, atoms)", "risk(best, atoms).max()")),
        ("exchanged", "upper bound first", lambda rule, atoms, weights, places: by_posterior_variance(
            rule, atoms, weights, places).flip(0)),
        ("malformed", "the lower bound alone", lambda rule, atoms, weights, places: by_posterior_variance(
            rule, atoms, weights, places)[:1]),
    ],
    "30.4": [
        ("solved", "s / (1 + s) of eta", answer(0.36 * 0.8 / 1.8, (0.36 * 0.8 / 1.8) ** 2)),
        ("solved", "tensors", answer(torch.tensor(0.16), torch.tensor(0.0256))),
        ("clipped", "the unrestricted rule", answer(1 / 4, 1 / 16)),
        ("truncated", "x / n", answer(0.0, 0.64 * 0.36**2)),
        ("no root", "0.64 for its root", answer(0.64 * 0.36 / 1.64, (0.64 * 0.36 / 1.64) ** 2)),
        ("times 0.64", "s(1 - s) with s = 0.64", answer(0.64 * 0.36, 0.64**2 * 0.36**2)),
        ("the middle", "half of eta", answer(0.36 / 2, 0.18**2)),
        ("risk not squared", "a for the risk", answer(0.16, 0.16)),
        ("malformed", "other keys", {"estimate": 0.16, "risk": 0.0256}),
    ],
    "30.5": [
        ("solved", "s = 0.8", two_points(1 / (1 + 0.8), 0.2 * 0.8 / (1 + 0.8))),
        ("solved", "fractions", two_points(Fraction(5, 9), Fraction(4, 45))),
        ("solved", "rounded", two_points(0.5556, 0.0889)),
        ("weight of 0", "the other atom", two_points(4 / 9, 4 / 45)),
        ("weight of 0", "the weight after two failures", two_points(0.0889 / 0.2, 0.0889)),
        ("wrong", "the weight times the estimate", two_points(5 / 9, 0.2 * 5 / 9)),
        ("one trial", "one failure", two_points(1 / (1 + 0.8**0.5), 0.2 * 0.8**0.5 / (1 + 0.8**0.5))),
        ("s squared", "0.64 for s", two_points(1 / 1.64, 0.2 * 0.64 / 1.64)),
        ("equal weights", "one half", two_points(0.5, 0.2 * 0.64 / 1.64)),
        ("wrong", "the right weight, the middle", two_points(5 / 9, 0.1)),
        ("malformed", "a pair", (5 / 9, 4 / 45)),
    ],
    "30.6": [
        ("solved", "three trials", case(3, 0.3)),
        ("solved", "as many as expected allow", case(2, 0.45)),
        ("many trials", "a thousand", case(1000, 0.0009)),
        ("above 0.9", "one trial, nearly certain", case(1, 0.95)),
        ("at the limit", "three quarters", case(1, 3 / 4)),
        ("below the limit", "a small eta", case(2, 0.1)),
        ("wrong", "no trial", case(0, 0.5)),
        ("malformed", "an interval", {"n": 2, "eta": (0.43, 0.45)}),
    ],
}  # fmt: skip
