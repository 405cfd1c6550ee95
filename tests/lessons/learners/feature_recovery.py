"""What learners answer to lesson 28, feature_recovery, and what its predictions must not be told."""

import torch
from torch.nn.functional import relu

from course_lib.teaching import edit


def l1_by_relu(projection, penalty):
    return relu(torch.tensor(projection - penalty / 2, dtype=torch.float64))


def adapt_in_a_loop(bias, frequency, largest, target, gamma):
    mean = sum(r for r in largest.tolist() if r > 0) / int((largest > 0).sum())
    new = bias.clone()
    for m in range(len(bias)):
        if frequency[m] > target:
            new[m] = max(bias[m] - gamma * largest[m], torch.tensor(-1.0).double())
        elif frequency[m] == 0:
            new[m] = min(bias[m] + gamma * mean, torch.tensor(0.0).double())
    return new


def adapt_in_place(bias, frequency, largest, target, gamma):
    often, dead, alive = frequency > target, frequency == 0, frequency > 0
    bias[often] -= gamma * largest[often]
    bias[dead] += gamma * largest[alive].mean()
    return bias.clamp_(-1, 0)


def two(angle_1, angle_2, strength_1, strength_2):
    return {"angle_1": angle_1, "angle_2": angle_2, "strength_1": strength_1, "strength_2": strength_2}


ANSWERS = {
    "28.1": [
        ("solved", "if and else", lambda projection, penalty: (
            projection - penalty / 2 if 2 * projection > penalty else 0)),
        ("solved", "relu", l1_by_relu),
        ("solved", "half of a difference", lambda projection, penalty: max(0, (2 * projection - penalty) / 2)),
        ("the other loss", "lambda", lambda projection, penalty: max(projection - penalty, 0)),
        ("negative strengths", "no maximum", lambda projection, penalty: projection - penalty / 2),
        ("kept it whole", "a jump", lambda projection, penalty: projection * (projection > penalty / 2)),
        ("no penalty", "relu alone", lambda projection, penalty: max(projection, 0)),
        ("both signs", "soft threshold of both signs", lambda projection, penalty: (
            (projection > 0) - (projection < 0)) * max(abs(projection) - penalty / 2, 0)),
        ("penalty added", "sign", lambda projection, penalty: max(projection + penalty / 2, 0)),
        ("multiplied", "ridge", lambda projection, penalty: max(projection / (1 + penalty), 0)),
        ("size of the projection", "absolute value", lambda projection, penalty: max(abs(projection) - penalty / 2, 0)),
        ("wrong", "a quarter of lambda", lambda projection, penalty: max(projection - penalty / 4, 0)),
    ],
    "28.2": [
        ("solved", "five digits", -1.28155),
        ("solved", "a table's digits", -1.28),
        ("solved", "icdf", torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(0.1))),
        ("the sign", "quantile of 90%", 1.2816),
        ("two sides", "5%", -1.645),
        ("two sides and the sign", "95%", 1.645),
        ("the share itself", "the share", 0.1),
        ("the share itself", "minus the share", -0.1),
        ("the density", "density at 0", 0.3989),
        ("5%, 1%", "1%", -2.326),
        ("frequency for quantile", "distribution function at -0.1", 0.4602),
        ("frequency for quantile", "distribution function at 0.1", 0.5398),
        ("wrong", "another number", -1.0),
    ],
    "28.3": [
        ("solved", "a fraction", 1 / 16),
        ("solved", "four decimals", 0.0625),
        ("solved", "as a power", 64 ** (-4 / 6)),
        ("the feature frequency", "f", 3 / 64),
        ("the lower edge", "1/n", 1 / 64),
        ("s without end", "root of 1/n", 1 / 8),
        ("forgot the half", "no half", 64 ** (-4 / 3)),
        ("forgot the minus", "16", 16),
        ("one minus for one plus", "1 - 1/s", 0.25),
        ("times s", "s times the edge", 3 / 16),
        ("in units of f", "in units of f", 4 / 3),
        ("wrong", "per cent", 6.25),
    ],
    "28.4": [
        ("solved", "unit by unit", adapt_in_a_loop),
        ("solved", "in place, one clamp for both", adapt_in_place),
        ("solved", "mean over the units above 0", edit(
            "largest[largest > 0].mean()", "(largest.sum() / (largest > 0).sum())")),
        ("a dead unit's own largest value", "own r", edit("largest[largest > 0].mean()", "largest")),
        ("no ceiling", "no minimum", edit(".clamp(max=0)", "")),
        ("no floor", "no maximum", edit(".clamp(min=-1)", "")),
        ("the printed maximum", "clamp(0)", edit("clamp(max=0)", "clamp(0)")),
        ("mean over all", "mean of all", edit("largest[largest > 0].mean()", "largest.mean()")),
        ("raised all below the target", "all below", edit("frequency == 0", "frequency < target")),
        ("dead for gamma alone", "gamma", edit("gamma * largest[largest > 0].mean()", "gamma")),
        ("lowered by the mean", "mean for both", edit(
            "bias - gamma * largest)", "bias - gamma * largest[largest > 0].mean())")),
        ("sum for mean", "sum", edit("largest[largest > 0].mean()", "largest.sum()")),
        ("largest of all", "maximum", edit("largest[largest > 0].mean()", "largest.max()")),
        ("the wrong way", "busy units raised", edit(
            "(bias - gamma * largest).clamp(min=-1)", "(bias + gamma * largest).clamp(max=0)")),
    ],
    "28.5": [
        ("solved", "45 degrees", two(45, -45, 2**-0.5, 2**-0.5)),
        ("solved", "exchanged", two(-60, 60, 1, 1)),
        ("solved", "more than a turn", two(300, 60, 1, 1)),
        ("a negative strength", "a difference", two(60, 120, 1, -1)),
        ("a negative strength", "a strength of 0", two(0, 90, 1, 0)),
        ("too close", "30 degrees", two(30, -30, 3**-0.5, 3**-0.5)),
        ("too close", "the atom itself, twice", two(0, 0, 0.5, 0.5)),
        ("does not cancel", "one side", two(60, 60, 1, 1)),
        ("does not cancel", "0 and 90", two(0, 90, 1, 1)),
        ("no way forward", "opposite", two(120, -120, 1, 1)),
        ("wrong length", "a half each at 60", two(60, -60, 0.5, 0.5)),
        ("wrong length", "45 degrees, 1 each", two(45, -45, 1, 1)),
        ("in radians", "radians", two(1.0472, -1.0472, 1, 1)),
        ("malformed", "a list", [60, -60, 1, 1]),
    ],
}  # fmt: skip

GIVES_AWAY = {
    "28.P1": [r"[Pp] = f/2", r"somewhat \*less\* often", r"half as often"],
    "28.P2": [r"A small error says nothing", r"no error at all", r"nothing is recovered", r"none at 32"],
}
