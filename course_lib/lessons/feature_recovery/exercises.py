"""Exercises of lesson 28, feature_recovery."""

import math

import numpy as np
import torch

from course_lib.lessons.feature_recovery.contents import lesson
from course_lib.teaching import close, edit, inputs, integers, uniform


def _is_lowest(projection, penalty, answer):
    def loss(strength):
        return (projection - strength) ** 2 + penalty * strength

    return float(answer) >= 0 and loss(float(answer)) <= loss(np.linspace(0, 3, 601)).min() + 1e-9


@lesson.exercise(
    "28.1", "What L1 leaves", difficulty=1, minutes=6,
    prompt="Write `l1_strength(projection, penalty)`: the $f \\ge 0$ that minimises "
    "$\\lVert x - f v\\rVert^2 + \\lambda f$ for a unit vector $v$. `projection` is $v \\cdot x$, any number; `penalty` is "
    "$\\lambda > 0$. Return a number.",
    draw=inputs(projection=uniform(-0.8, 1.8), penalty=uniform(0.2, 1.6)),
    properties=[("Another strength of 0 or more has a lower loss than yours.", _is_lowest)],
    hints=(
        "Write the loss as a parabola in f: ‖x‖² - 2f(v . x) + f² + λf.",
        "Set its derivative in f to zero. What if the f that you find is negative?",
        "The derivative is 2f - 2(v . x) + λ. Where the root is below 0 the parabola rises on all of f ≥ 0.",
    ),
    mistakes=[
        ("the other loss", edit(" / 2", ""),
         "You subtracted λ. That belongs to the loss with 1/2 in front of the square; here it is λ/2."),
        ("negative strengths", edit("max(projection - penalty / 2, 0.0)", "projection - penalty / 2"),
         "Your strength can be negative, and f ≥ 0 was asked."),
        ("kept it whole", edit("max(projection - penalty / 2, 0.0)", "projection if projection > penalty / 2 else 0.0"),
         "You cut off what is small and kept the rest whole: that is a jump. L1 takes λ/2 from the large ones too."),
        ("no penalty", edit(" - penalty / 2", ""), "That ignores the penalty."),
        ("both signs", lambda projection, penalty: math.copysign(l1_strength(abs(projection), penalty), projection),
         "That is soft thresholding for codes of both signs. Here f ≥ 0: a negative projection gives 0."),
        ("penalty added", edit("projection - penalty", "projection + penalty"),
         "Your penalty makes the strength larger. More of f costs more, so the lowest point moves down."),
        ("lowest loss", edit("max(projection - penalty / 2, 0.0)",
                             "projection**2 - max(projection - penalty / 2, 0.0) ** 2"),
         "That is the value of the loss at its lowest point. The place is asked for, not the value."),
        ("multiplied", edit("projection - penalty / 2", "projection / (1 + penalty)"),
         "You divided by 1 + λ. That is the answer to a penalty λf²; an L1 penalty subtracts."),
        ("size of the projection", lambda projection, penalty: max(abs(projection) - penalty / 2, 0.0),
         "You took the size of the projection. A row that points away from the atom has strength 0."),
    ],
)
def l1_strength(projection, penalty):
    """Return the f of 0 or more at which (projection - f)^2 + penalty f is lowest."""
    return max(projection - penalty / 2, 0.0)


lesson.value(
    "28.2", "A bias for a frequency", difficulty=1, minutes=4,
    prompt="The projections $w \\cdot x$ of a neuron are distributed as $N(0, 1)$, and it fires where "
    "$w \\cdot x + b > 0$. Which bias $b$ makes it fire in 10% of the rows?",
    answer=-1.2816,
    same=lambda one, other: abs(one - other) <= 0.02,
    properties=[
        ("With your bias a standard normal number plus b is above 0 with another probability than 10%.",
         lambda answer: abs(0.5 * math.erfc(-answer / math.sqrt(2)) - 0.1) < 4e-3),
    ],
    hints=(
        "The neuron fires where w . x > -b. So -b is a quantile of the standard normal distribution.",
        "Firing is one-sided: only large projections count, not very negative ones.",
        "How many standard deviations leave 10% above them? (90% lie below.)",
    ),
    mistakes=[
        ("the sign", 1.2816, "With that bias it fires in 90% of the rows: a bias that makes firing rare is negative."),
        ("two sides", -1.645, "You split 10% over both tails. A ReLU or a jump fires on one side only."),
        ("two sides and the sign", 1.645,
         "Two things: firing is one-sided, and a bias that makes firing rare is negative."),
        ("the share itself", -0.1, "That is the share. The bias is the quantile that belongs to it.",
         lambda answer: abs(abs(answer) - 0.1) < 1e-3),
        ("the density", -0.3989, "That is the height of the density at 0. The quantile that leaves 10% above "
         "it is asked for.",
         lambda answer: abs(abs(answer) - 0.3989) < 2e-3),
        ("5%, 1%", -2.326, "That bias belongs to 1% of the rows. Look up 10%.",
         lambda answer: abs(abs(answer) - 2.326) < 6e-3),
        ("frequency for quantile", 0.4602,
         "You looked up the probability of the number 0.1. Turn the table round: which number has the "
         "probability 0.1 above it?",
         lambda answer: min(abs(abs(answer) - 0.4602), abs(abs(answer) - 0.5398)) < 1e-3),
    ],
)

lesson.value(
    "28.3", "The upper edge of the band", difficulty=1, minutes=3,
    prompt="There are $n = 64$ atoms, and $s = 3$ are active in each row. What is the upper edge of the band "
    "of target frequencies, as this lesson takes it below (28.14)? Give it to four decimals.",
    answer=64 ** (-2 / 3),
    same=lambda one, other: abs(one - other) <= 2e-4,
    properties=[
        ("The sixth power of the edge should be 64⁻⁴, since the exponent is -(1 + 1/3)/2 = -4/6.",
         lambda answer: 0 < answer < 1 and abs(6 * math.log2(answer) + 24) < 0.02),
    ],
    hints=(
        "Work out the exponent first: 1 + 1/3 is 4/3.",
        "Half of 4/3 is 2/3. Now take 64 to the power of minus that.",
        "64 is 4 cubed, so its cube root is a whole number. Square that and take the reciprocal.",
    ),
    mistakes=[
        ("the feature frequency", 3 / 64, "That is f = s/n, how often an atom occurs. The edge is a power of n."),
        ("s without end", 0.125, "That is n^(-1/2), what the edge tends to for many active atoms. Here 1/s = 1/3."),
        ("the lower edge", 1 / 64, "That is 1/n, the lower edge of the band."),
        ("forgot the half", 64 ** (-4 / 3), "You left out the division by 2 in the exponent."),
        ("forgot the minus", 16.0, "You left out the minus sign of the exponent. A frequency lies below 1."),
        ("one minus for one plus", 64 ** (-1 / 3), "Your exponent has 1 - 1/s. It is 1 + 1/s."),
        ("times s", 3 / 16, "You multiplied the edge by s. It is a power of n, and s stands in the exponent alone."),
        ("in units of f", 64 ** (-2 / 3) * 64 / 3, "That is the edge in units of f = s/n. The frequency itself "
         "is asked for."),
    ],
)


def _adapted_one_by_one(bias, frequency, largest, target, gamma, answer):
    firing = [value for value in largest.tolist() if value > 0]
    expected = []
    for b, q, r in zip(bias.tolist(), frequency.tolist(), largest.tolist(), strict=True):
        if q > target:
            b = max(b - gamma * r, -1.0)
        elif q == 0:
            b = min(b + gamma * sum(firing) / len(firing), 0.0)
        expected.append(b)
    return close(answer, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-12)


@lesson.exercise(
    "28.4", "One adaptation", difficulty=2, minutes=12,
    prompt="Write `adapt(bias, frequency, largest, target, gamma)`: the update (28.9) for the units of one group. `bias`, "
    "`frequency` and `largest` are $b$, $q$ and $r$, float64 tensors with one entry a unit; a dead unit has frequency 0 "
    "and largest 0. `target` and `gamma` are the numbers $p$ and $\\gamma$. At least one unit is alive. Return the new "
    "biases.",
    # Three units of six are always met: a dead one near 0, one that fires too often near -1, and one that may stay.
    draw=inputs(
        alive=integers("3", 0, 2), often=uniform(0.01, 0.31, "3"), strength=uniform(0.2, 1.2, "6"),
        others=uniform(-1.0, 0.0, "4"),
        bias=lambda others: torch.cat([others.new_tensor([-0.01, -0.99]), others]),
        frequency=lambda alive, often: torch.cat([often.new_tensor([0.0, 0.4, 0.05]), often * (alive > 0)]),
        largest=lambda frequency, strength: strength * (frequency > 0),
        target=0.125, gamma=uniform(0.05, 0.2),
    ),
    properties=[("Going through the units one by one by (28.9) gives other biases.", _adapted_one_by_one)],
    hints=(
        "There are three kinds of units: those that fire too often, the dead, and all others. Which of them move?",
        "The mean of the largest values is over the units that fired at all: `largest[largest > 0].mean()`.",
        "torch.where can be nested. `clamp(min=-1)` is a maximum with -1; which clamp is a minimum with 0?",
    ),
    mistakes=[
        ("the printed maximum", edit("clamp(max=0)", "clamp(min=0)"),
         "You took the maximum with 0, as one page prints it. Every dead unit then gets a bias of 0 or more at once and "
         "fires in half of the rows."),
        ("mean over all", edit("largest[largest > 0]", "largest"),
         "Your mean of the largest values counts the dead units as 0. It is over the units that fired."),
        ("no floor", edit(".clamp(min=-1)", ""),
         "A bias of yours is below -1. Rows of length 1 cannot wake a unit there."),
        ("raised all below the target", edit("frequency == 0", "frequency <= target"),
         "You raised every unit that fires less often than the target. Only dead ones are raised: a unit may fire as "
         "seldom as its feature does."),
        ("the wrong way", edit("(bias - gamma * largest).clamp(min=-1)", "(bias + gamma * largest).clamp(max=0)"),
         "A unit that fires too often has to be made rarer: its bias goes down."),
        ("a dead unit's own largest value", edit("largest[largest > 0].mean()", "largest"),
         "You raised a dead unit by its own largest value, which is 0: it stays dead. The mean of its group's counts."),
        ("no ceiling", edit(".clamp(max=0)", ""),
         "A bias of yours is above 0. The rule stops at 0."),
        ("dead for gamma alone", edit("gamma * largest[largest > 0].mean()", "gamma"),
         "You raised dead units by gamma itself. The step is gamma times the mean of the largest values."),
        ("lowered by the mean", edit("bias - gamma * largest)", "bias - gamma * largest[largest > 0].mean())"),
         "You lowered the busy units by the mean. Each goes down by gamma times its own largest value."),
        ("sum for mean", edit(".mean()", ".sum()"), "You added up the largest values. Their mean is taken."),
        ("largest of all", edit("largest[largest > 0].mean()", "largest.max()"),
         "You took the largest of all values. It is the mean over the units that fired."),
    ],
)
def adapt(bias, frequency, largest, target, gamma):
    """Return the biases of one group after one adaptation."""
    lowered = (bias - gamma * largest).clamp(min=-1)
    raised = (bias + gamma * largest[largest > 0].mean()).clamp(max=0)
    return torch.where(frequency > target, lowered, torch.where(frequency == 0, raised, bias))


def _along(degrees):
    return math.cos(math.radians(degrees))


def _written(angle_1, angle_2, strength_1, strength_2):
    """What the two units write along the atom, and across it."""
    across = strength_1 * math.sin(math.radians(angle_1)) + strength_2 * math.sin(math.radians(angle_2))
    return strength_1 * _along(angle_1) + strength_2 * _along(angle_2), across


def _exact(answer):
    along, across = _written(**answer)
    return max(abs(along - 1), abs(across)) < 1e-3


def _positive(strength_1, strength_2):
    return strength_1 > 0 and strength_2 > 0


def _unlike(angle_1, angle_2):
    return max(_along(angle_1), _along(angle_2)) < 0.8


lesson.flaw(
    "28.5", "Perfect, and wrong", difficulty=2, minutes=8,
    prompt="Somebody says: \"A TopK autoencoder that rebuilds all rows exactly has found the atoms.\" Let all rows be "
    "multiples of one atom, $v = (1, 0)$, and let $k = 2$. Give a counterexample: a dictionary with the angles `angle_1` "
    "and `angle_2` (in degrees, from $v$) of two unit vectors, and `strength_1` and `strength_2`, both above 0, that "
    "rebuild $v$ itself to three decimals, while neither unit has a cosine of 0.8 or more with $v$.",
    answer={"angle_1": 60.0, "angle_2": -60.0, "strength_1": 1.0, "strength_2": 1.0},
    properties=[
        ("Both strengths should be above 0.", _positive),
        ("Your two units do not rebuild (1, 0) to three decimals.", _exact),
        ("One of your units has a cosine of 0.8 or more with the atom.", _unlike),
    ],
    hints=(
        "Let the two units lie on either side of the atom, so that what they write across it cancels.",
        "With angles a and -a and one strength f for both, the sum is (2f cos a, 0).",
        "The cosine with the atom is cos a: take a well above 37 degrees, and f = 1/(2 cos a).",
    ),
    mistakes=[
        ("a negative strength", {"angle_1": 60.0, "angle_2": 120.0, "strength_1": 1.0, "strength_2": -1.0},
         "A strength is 0 or negative. Units add, they never subtract: both must be above 0.",
         lambda strength_1, strength_2: not _positive(strength_1, strength_2)),
        ("in radians", {"angle_1": 1.0472, "angle_2": -1.0472, "strength_1": 1.0, "strength_2": 1.0},
         "Your angles would do in radians. The question asks for degrees.",
         lambda angle_1, angle_2, strength_1, strength_2: max(abs(angle_1), abs(angle_2)) < 3.2 and _exact(
             {"angle_1": math.degrees(angle_1), "angle_2": math.degrees(angle_2),
              "strength_1": strength_1, "strength_2": strength_2}) and abs(angle_1) > 0.6),
        ("too close", {"angle_1": 30.0, "angle_2": -30.0, "strength_1": 3**-0.5, "strength_2": 3**-0.5},
         "It rebuilds the atom, but a unit of yours has a cosine of 0.8 or more with it and counts as a find.",
         lambda angle_1, angle_2, answer: _exact(answer) and not _unlike(angle_1, angle_2)),
        ("does not cancel", {"angle_1": 60.0, "angle_2": -50.0, "strength_1": 1.0, "strength_2": 1.0},
         "What your two units write across the atom does not cancel.",
         lambda answer: abs(_written(**answer)[1]) >= 1e-3),
        ("no way forward", {"angle_1": 120.0, "angle_2": -120.0, "strength_1": 1.0, "strength_2": 1.0},
         "Your sum is zero or points away from the atom, and no strengths can repair that: at least one unit has to have an "
         "angle below 90 degrees with it.",
         lambda answer: _written(**answer)[0] <= 1e-3),
        ("wrong length", {"angle_1": 60.0, "angle_2": -60.0, "strength_1": 0.5, "strength_2": 0.5},
         "Your sum points along the atom but has another length: scale both strengths.",
         lambda answer: _written(**answer)[0] > 1e-3 and abs(_written(**answer)[1]) < 1e-3 and not _exact(answer)),
    ],
)

EXERCISES = lesson.exercises
