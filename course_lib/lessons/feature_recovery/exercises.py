"""Exercises of lesson 36, feature_recovery."""

import math

import numpy as np
import torch

from course_lib.lessons.feature_recovery.contents import lesson
from course_lib.teaching import close, edit, inputs, normal, uniform, whole


def _nothing_negative(answer):
    return bool((answer >= 0).all())


def _rebuilds(x, basis, answer):
    return close(answer @ torch.cat([basis, -basis]), x, rtol=1e-9, atol=1e-9)


def _few(x, answer):
    return int((answer > 0).sum()) <= len(x)


@lesson.exercise(
    "36.1", "A code without an error", difficulty=1, minutes=6,
    prompt="The rows $u_1, \\dots, u_d$ of `basis` are any $d$ orthogonal unit vectors. Take them and their negatives as "
    "the $2d$ directions of an autoencoder. Write `code(x, basis)`: strengths of 0 or more, first those of the $u_i$, then "
    "those of the $-u_i$, that rebuild `x` exactly, with at most $d$ of them above 0. `x` is a float64 vector with $d$ "
    "entries; return $2d$ numbers.",
    draw=inputs(d=whole(2, 4), x=normal("d"), square=normal("d d"), basis=lambda square: torch.linalg.qr(square)[0]),
    properties=[
        ("A strength is negative.", _nothing_negative),
        ("Strengths times directions do not add up to x.", _rebuilds),
        ("More than d strengths are above 0.", _few),
    ],
    hints=(
        "In an orthonormal basis x is the sum of (u_i . x) u_i. Which of these numbers may be strengths as they are?",
        "Where u_i . x is negative, the direction -u_i can do the work. With which strength?",
        "A number is its positive part less its negative part: y = max(y, 0) - max(-y, 0).",
    ),
    mistakes=[
        ("signed strengths", edit("y.clamp(min=0), (-y).clamp(min=0)", "y, -y"),
         "Half of your strengths are negative, and together they write every part twice."),
        ("halves", edit("y.clamp(min=0), (-y).clamp(min=0)", "y / 2, -y / 2"),
         "That adds up, but half of your strengths are negative."),
        ("positive parts only", edit("(-y).clamp(min=0)", "0 * y"),
         "You left out the negative projections: the directions -u_i have to write them."),
        ("sizes", edit("y.clamp(min=0), (-y).clamp(min=0)", "y.abs(), y.abs()"),
         "You gave both directions of a pair the same strength: they cancel."),
        ("the other order", edit("[y.clamp(min=0), (-y).clamp(min=0)]", "[(-y).clamp(min=0), y.clamp(min=0)]"),
         "You exchanged the two halves: what you write is -x."),
        ("columns for rows", edit("basis @ x", "basis.T @ x"),
         "You projected on the columns of `basis`. Its rows are the directions."),
    ],
)
def code(x, basis):
    """Return 2d strengths of 0 or more that rebuild x from a basis and its negatives."""
    y = basis @ x
    return torch.cat([y.clamp(min=0), (-y).clamp(min=0)])


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
    "36.2", "Perfect, and wrong", difficulty=2, minutes=8,
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
        "With angles a and -a and one strength z for both, the sum is (2z cos a, 0).",
        "The cosine with the atom is cos a: take a well above 37 degrees, and z = 1/(2 cos a).",
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

def _is_lowest(projection, penalty, answer):
    def loss(strength):
        return (projection - strength) ** 2 + penalty * strength

    return float(answer) >= 0 and loss(float(answer)) <= loss(np.linspace(0, 3, 601)).min() + 1e-9


@lesson.exercise(
    "36.3", "What L1 leaves", difficulty=1, minutes=6,
    prompt="Write `l1_strength(projection, penalty)`: the $z \\ge 0$ that minimises "
    "$\\lVert x - z v\\rVert^2 + \\lambda z$ for a unit vector $v$. `projection` is $v \\cdot x$, any number; `penalty` is "
    "$\\lambda > 0$. Return a number.",
    draw=inputs(projection=uniform(-0.8, 1.8), penalty=uniform(0.2, 1.6)),
    properties=[("Another strength of 0 or more has a lower loss than yours.", _is_lowest)],
    hints=(
        "Write the loss as a parabola in z: ‖x‖² - 2z(v . x) + z² + λz.",
        "Set its derivative in z to zero. What if the z that you find is negative?",
        "The derivative is 2z - 2(v . x) + λ. Where the root is below 0 the parabola rises on all of z ≥ 0.",
    ),
    mistakes=[
        ("the other loss", edit(" / 2", ""),
         "You subtracted λ. That belongs to the loss with 1/2 in front of the square; here it is λ/2."),
        ("negative strengths", edit("max(projection - penalty / 2, 0.0)", "projection - penalty / 2"),
         "Your strength can be negative, and z ≥ 0 was asked."),
        ("kept it whole", edit("max(projection - penalty / 2, 0.0)", "projection if projection > penalty / 2 else 0.0"),
         "You cut off what is small and kept the rest whole: that is a jump. L1 takes λ/2 from the large ones too."),
        ("no penalty", edit(" - penalty / 2", ""), "That ignores the penalty."),
        ("both signs", lambda projection, penalty: math.copysign(l1_strength(abs(projection), penalty), projection),
         "That is soft thresholding for codes of both signs. Here z ≥ 0: a negative projection gives 0."),
        ("penalty added", edit("projection - penalty", "projection + penalty"),
         "Your penalty makes the strength larger. More of z costs more, so the lowest point moves down."),
        ("lowest loss", edit("max(projection - penalty / 2, 0.0)",
                             "projection**2 - max(projection - penalty / 2, 0.0) ** 2"),
         "That is the value of the loss at its lowest point. The place is asked for, not the value."),
        ("multiplied", edit("projection - penalty / 2", "projection / (1 + penalty)"),
         "You divided by 1 + λ. That is the answer to a penalty λz²; an L1 penalty subtracts."),
        ("size of the projection", lambda projection, penalty: max(abs(projection) - penalty / 2, 0.0),
         "You took the size of the projection. A row that points away from the atom has strength 0."),
    ],
)
def l1_strength(projection, penalty):
    """Return the z of 0 or more at which (projection - z)^2 + penalty z is lowest."""
    return max(projection - penalty / 2, 0.0)


EXERCISES = lesson.exercises
