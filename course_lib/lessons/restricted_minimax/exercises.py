"""Exercises of lesson 30, restricted minimax estimation."""

import torch

from course_lib.lessons.restricted_minimax.contents import lesson
from course_lib.teaching import edit, inputs, uniform, whole
from course_lib.theory.restricted_minimax import bayes_rule, likelihood, risk, two_point_limit


@lesson.exercise(
    "30.1", "The risk of a rule", difficulty=1, minutes=6,
    prompt="Write `mean_squared_error(rule, theta)`: `rule` holds the reports for 0, 1, ..., $n$ failures, `theta` is the "
    "true rate, a number. Return the risk at `theta`, a number. `likelihood(theta, n)` takes a tensor and returns the "
    "probabilities of 0, 1, ..., $n$ failures.",
    draw=inputs(n=whole(2, 5), size=lambda n: n + 1, rule=uniform(0, 1, "size"), theta=uniform(0.1, 0.9)),
    agrees="It should be the average of (delta_x - theta)^2 over the counts, each with its probability.",
    hints=(
        "For every count there is one squared error. How often does it occur?",
        "The rule has $n + 1$ entries for $n$ tests.",
        "Multiply the squared errors by the binomial probabilities and add up.",
    ),
    mistakes=[
        ("n is the length", edit("len(rule) - 1", "len(rule)", "* p", "* p[:-1]"),
         "You took the number of reports for the number of tests. With n tests there are n + 1 counts."),
        ("mean over the counts", edit("((rule - theta) ** 2 * p).sum()", "((rule - theta) ** 2).mean()"),
         "You gave all counts the same probability. They have binomial ones."),
        ("bias only", edit("((rule - theta) ** 2 * p).sum()", "((rule * p).sum() - theta) ** 2"),
         "You squared the mean error: that is the squared bias. The variance of the report is missing."),
        ("variance only", edit("((rule - theta) ** 2 * p).sum()", "((rule - (rule * p).sum()) ** 2 * p).sum()"),
         "You took the distance from the rule's own mean: that is the variance. The squared bias is missing."),
        ("absolute", edit("((rule - theta) ** 2 * p)", "((rule - theta).abs() * p)"), "The error is to be squared."),
        ("no coefficient", edit("* p)", "* p / likelihood(torch.tensor(0.5), len(rule) - 1) * 0.5 ** (len(rule) - 1))"),
         "The binomial coefficient is missing: a count can come about in several orders."),
    ],
)
def mean_squared_error(rule, theta):
    """Average the squared errors over the counts."""
    p = likelihood(torch.tensor(theta, dtype=rule.dtype), len(rule) - 1)
    return ((rule - theta) ** 2 * p).sum()


@lesson.exercise(
    "30.2", "The best reply to a prior", difficulty=2, minutes=8,
    prompt="Write `posterior_means(atoms, weights, n)`: nature draws $\\theta$ from the places `atoms` with the shares "
    "`weights`, then the number of failures among $n$ tests comes from this $\\theta$. Return the $n + 1$ reports "
    "(a tensor) whose average risk under the prior is smallest.",
    draw=inputs(n=whole(1, 4), atoms=uniform(0.05, 0.95, "3"), raw=uniform(0.1, 1, "3"),
                weights=lambda raw: raw / raw.sum()),
    agrees="Each report should be the mean of theta, given the count.",
    hints=(
        "Given the count, how probable is each place? Use Bayes' rule.",
        "`weights[:, None] * likelihood(atoms, n)` holds the probability of an atom and a count together.",
        "Divide the sum of these times the atoms by their sum, over the atoms.",
    ),
    mistakes=[
        ("weights left out", edit("weights[:, None] * likelihood", "likelihood"),
         "You left out the prior's weights: an atom with a small weight should count less."),
        ("not divided", edit("atoms @ joint / joint.sum(0)", "atoms @ joint"),
         "You did not divide by the probability of the count. The weights given a count have to sum to 1."),
        ("prior's mean", edit("atoms @ joint / joint.sum(0)", "(atoms @ weights).repeat(n + 1)"),
         "You gave the prior's mean for every count: the count has no influence."),
        ("most probable atom", edit("atoms @ joint / joint.sum(0)", "atoms[joint.argmax(0)]"),
         "You took the most probable atom. For squared error the best answer is the mean."),
    ],
)
def posterior_means(atoms, weights, n):
    """Bayes' rule for each count."""
    joint = weights[:, None] * likelihood(atoms, n)
    return atoms @ joint / joint.sum(0)


def _least_average(atoms, weights, n):
    """The smallest average risk of any rule: the variance of theta given the count, on average."""
    joint = weights[:, None] * likelihood(atoms, n)
    return float(atoms.square() @ weights - ((atoms @ joint).square() / joint.sum(0)).sum())


@lesson.exercise(
    "30.3", "A certificate", difficulty=3, minutes=10,
    prompt="Write `bounds(rule, atoms, weights, places)`: any rule (a tensor of $n + 1$ reports), any prior, "
    "and a tensor `places` of values of $\\theta$. Return a tensor of two numbers: first the floor, the best lower bound on "
    "the largest risk of *any* rule that (30.3) gives for this prior, then the largest risk of this rule over `places`. You "
    "may call `risk(rule, thetas)` and `bayes_rule(atoms, weights, n)`, which is (30.2).",
    draw=inputs(n=whole(1, 3), size=lambda n: n + 1, rule=uniform(0, 1, "size"), atoms=uniform(0.05, 0.95, "3"),
                raw=uniform(0.1, 1, "3"), weights=lambda raw: raw / raw.sum(), places=uniform(0, 1, "6")),
    properties=[
        ("The first number is no bound from below: some rule has a smaller average risk under this prior.",
         lambda atoms, weights, rule, answer: answer[0] <= _least_average(atoms, weights, len(rule) - 1) * (1 + 1e-6)),
        ("The first number is a bound from below, but not the best that (30.3) gives for this prior.",
         lambda atoms, weights, rule, answer: answer[0] >= _least_average(atoms, weights, len(rule) - 1) * (1 - 1e-6)),
        ("At one of the places the rule's risk is larger than your second number.",
         lambda rule, places, answer: float(answer[1]) >= float(risk(rule, places).max()) * (1 - 1e-6)),
        ("At none of the places is the rule's risk as large as your second number.",
         lambda rule, places, answer: float(answer[1]) <= float(risk(rule, places).max()) * (1 + 1e-6)),
    ],
    hints=(
        "A bound from below has to hold for *every* rule. Which rule does best against this prior?",
        "The average risk under the prior is smallest for the prior's own Bayes rule.",
        "The rule that is given plays no part in the first, and the atoms play no part in the second.",
    ),
    mistakes=[
        ("the rule's own average", edit("risk(best, atoms)", "risk(rule, atoms)"),
         "You averaged the risk of the given rule. Another rule may have a smaller average: that is no bound "
         "from below."),
        ("mean for the largest", edit("risk(rule, places).max()", "risk(rule, places).mean()"),
         "You averaged the rule's risk over the places. Nature takes the worst one."),
        ("largest at the atoms", edit("risk(rule, places)", "risk(rule, atoms)"),
         "You looked for the largest risk at the atoms alone. Nature may answer elsewhere."),
        ("the Bayes rule twice", edit("risk(rule, places)", "risk(best, places)"),
         "You measured the largest risk of the Bayes rule. The given rule's is asked for."),
        ("exchanged", edit("weights @ risk(best, atoms), risk(rule, places).max()",
                           "risk(rule, places).max(), weights @ risk(best, atoms)"),
         "You exchanged the two: the bound from below comes first."),
        ("largest for the average", edit("weights @ risk(best, atoms)", "risk(best, atoms).max()"),
         "The first is the largest risk of the Bayes rule at the atoms, and that of another rule may be smaller. The "
         "average is the bound."),
        ("weights left out", edit("weights @ risk(best, atoms)", "risk(best, atoms).mean()"),
         "You averaged over the atoms with equal weights. The prior has its own."),
        ("smallest at the atoms", edit("weights @ risk(best, atoms)", "risk(best, atoms).min()"),
         "The smallest risk at an atom is a bound too, but a weaker one: the average is larger."),
    ],
)
def bounds(rule, atoms, weights, places):
    """The Bayes risk of the prior, and the largest risk of the rule."""
    best = bayes_rule(atoms, weights, len(rule) - 1)
    return torch.stack([weights @ risk(best, atoms), risk(rule, places).max()])


EXERCISES = lesson.exercises


lesson.value(
    "30.4", "One test, at most 36%", difficulty=1, minutes=6,
    prompt="One test, $\\theta \\le 0.36$, and nature uses $\\theta = 0$ and $\\theta = 0.36$ only. After a failure you "
    "know that it was 0.36, and report that. Which report `a` after no failure makes the risks at 0 and at 0.36 equal, and "
    "how large are they? The answer is a dictionary with the numbers `a` and `risk`.",
    answer={"a": 0.16, "risk": 0.0256},
    properties=[
        ("a is not what makes the risks at 0 and 0.36 equal.", lambda a: abs(a - 0.16) < 5e-4),
        ("The risk at 0 is not that of your a.", lambda a, risk: abs(risk - 0.0256) < 5e-5),
    ],
    hints=(
        "At θ = 0 there is never a failure. What is the squared error then?",
        "The risk at 0 is $a^2$; at 0.36 only the case without a failure costs anything, and it has the probability 0.64.",
        "Take the square root of $a^2 = 0.64\\,(0.36 - a)^2$.",
    ),
    mistakes=[
        ("clipped", {"a": 0.25, "risk": 0.0625},
         "That is the rule that is best without the bound. With it the risk at 0 is larger than at 0.36: make a smaller."),
        ("truncated", {"a": 0, "risk": 0.64 * 0.36**2}, "With a = 0 the risk at 0 is 0, and at 0.36 it is 0.083: raise a.",
         lambda a, risk: a == 0 and abs(risk - 0.08294) < 1e-4),
        ("no root", {"a": 0.64 * 0.36 / 1.64, "risk": (0.64 * 0.36 / 1.64) ** 2},
         "You forgot to take the root of 0.64 when you took that of both sides.",
         lambda a, risk: abs(a - 0.14049) < 5e-4),
        ("times 0.64", {"a": 0.64 * 0.36, "risk": (0.64 * 0.36) ** 2},
         "You multiplied 0.36 by the probability of no failure. Equal risks at both ends are asked for.",
         lambda a, risk: abs(a - 0.2304) < 5e-4),
        ("the middle", {"a": 0.18, "risk": 0.0324}, "You reported the middle of the interval. No failure is likelier "
         "under θ = 0.",
         lambda a, risk: abs(a - 0.18) < 1e-6),
        ("risk not squared", {"a": 0.16, "risk": 0.16}, "a is right. The risk at 0 is its square."),
    ],
)


lesson.value(
    "30.5", "Two places for two tests", difficulty=2, minutes=6,
    prompt="Two tests, $\\theta \\le 0.2$. The prior on 0 and 0.2 makes the risks there equal. What share does it give to "
    "0.2, and what does its best reply report if neither test fails? The answer is a dictionary with the numbers "
    "`weight` and `estimate`.",
    answer={"weight": 1 / 1.8, "estimate": 0.16 / 1.8},
    properties=[
        ("With this share the best reply to the prior has different risks at 0 and at 0.2.",
         lambda weight: abs(weight - 1 / 1.8) < 1e-3),
        ("The report should be the mean of θ after no failure: 0.2 times the share that 0.2 then has.",
         lambda estimate: abs(estimate - 0.16 / 1.8) < 5e-4),
    ],
    hints=(
        "The risk at 0 is $\\delta_0^2$. At $\\eta$ only a count of 0 costs anything. How probable is it?",
        "With square roots: $\\delta_0 = s(\\eta - \\delta_0)$ with $s^2$ the probability of no failure.",
        "The posterior share of $\\eta$ after the count 0 is $\\delta_0/\\eta$. Solve Bayes' rule for the "
        "prior share.",
    ),
    mistakes=[
        ("weight of 0", {"weight": 0.8 / 1.8, "estimate": 0.16 / 1.8}, "4/9 is the prior share of 0, and "
         "also the share of 0.2 once no test has failed. The prior share of 0.2 is asked for.",
         lambda weight, estimate: abs(weight - 0.8 / 1.8) < 1e-3),
        ("one trial", {"weight": 1 / (1 + 0.8**0.5), "estimate": 0.2 * 0.8**0.5 / (1 + 0.8**0.5)},
         "You took s for one test. With two, neither may fail.",
         lambda weight, estimate: abs(weight - 0.5279) < 1e-3),
        ("s squared", {"weight": 1 / 1.64, "estimate": 0.2 * 0.64 / 1.64},
         "You took s for the probability of no failure. It is the square root of that.",
         lambda weight, estimate: abs(weight - 1 / 1.64) < 1e-3),
        ("equal weights", {"weight": 0.5, "estimate": 0.2 * 0.32 / 0.82},
         "Equal shares do not make the risks equal.", lambda weight, estimate: abs(weight - 0.5) < 1e-3),
    ],
)


def _in_range(n, eta):
    return 0 < n < 1e4 and n == int(n) and 0 < eta < 1


lesson.flaw(
    "30.6", "Nine tenths of a failure", difficulty=2, minutes=8,
    prompt="\"The limit of $n\\eta_n$ is 0.913. So 0 and $\\eta$ suffice whenever at most 0.9 failures are "
    "expected at $\\eta$, that is, "
    "$n\\eta \\le 0.9$.\" Give a counterexample: a dictionary with `n`, a whole number below 10,000, and `eta`.",
    answer={"n": 2, "eta": 0.44},
    properties=[
        ("n should be a whole number from 1 to 9,999, and eta between 0 and 1.", _in_range),
        ("n times eta should be at most 0.9.", lambda n, eta: n * eta <= 0.9 + 1e-12),
        ("0 and η do suffice here.", lambda n, eta: _in_range(n, eta) and eta > two_point_limit(int(n)) + 1e-12),
    ],
    hints=(
        "Is the limit approached from above or from below? Look at $n\\eta_n$ for small $n$.",
        "For one test 0 and $\\eta$ suffice up to 3/4.",
        "Choose a small $n$, and $\\eta$ between $\\eta_n$ and $0.9/n$.",
    ),
    mistakes=[
        ("many trials", {"n": 100, "eta": 0.009}, "From 10 tests on the statement holds: n η_n is above 0.9. "
         "Take fewer.",
         lambda n, eta: _in_range(n, eta) and n >= 10 and n * eta <= 0.9),
        ("above 0.9", {"n": 2, "eta": 0.5}, "0 and η do not suffice here, but the statement does not say so: "
         "n η is above 0.9.",
         lambda n, eta: _in_range(n, eta) and n * eta > 0.9 + 1e-12),
        ("at the limit", {"n": 1, "eta": 0.75}, "Up to the limit, this value included, 0 and η suffice. Go "
         "above it.",
         lambda n, eta: _in_range(n, eta) and n < 10 and abs(eta - two_point_limit(int(n))) < 1e-4),
        ("below the limit", {"n": 2, "eta": 0.3}, "With so small an η they suffice. Choose it larger.",
         lambda n, eta: _in_range(n, eta) and n < 10 and eta < two_point_limit(int(n)) - 1e-4),
    ],
)
