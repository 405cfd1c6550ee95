"""Learners of lesson 36, feature_recovery: answers, what gives predictions away, and a slip for each claim."""

import torch
from torch.nn.functional import relu


def l1_by_relu(projection, penalty):
    return relu(torch.tensor(projection - penalty / 2, dtype=torch.float64))


def by_loop(x, basis):
    strengths = torch.zeros(2 * len(x), dtype=x.dtype)
    for i, u in enumerate(basis):
        y = torch.dot(u, x)
        strengths[i if y > 0 else len(x) + i] = y.abs()
    return strengths


def shifted(x, basis):
    y = basis @ x
    return torch.cat([relu(y) + 1, relu(-y) + 1])


def two(angle_1, angle_2, strength_1, strength_2):
    return {"angle_1": angle_1, "angle_2": angle_2, "strength_1": strength_1, "strength_2": strength_2}


ANSWERS = {
    "36.1": [
        ("solved", "relu of both signs", lambda x, basis: relu(torch.cat([basis, -basis]) @ x)),
        ("solved", "one by one", by_loop),
        ("solved", "half of size and value", lambda x, basis: torch.cat(
            [((basis @ x).abs() + basis @ x) / 2, ((basis @ x).abs() - basis @ x) / 2])),
        ("signed strengths", "no clamp", lambda x, basis: torch.cat([basis @ x, -basis @ x])),
        ("halves", "half each", lambda x, basis: torch.cat([basis @ x, -basis @ x]) / 2),
        ("positive parts only", "zeros behind", lambda x, basis: torch.cat([relu(basis @ x), torch.zeros_like(x)])),
        ("sizes", "sizes twice", lambda x, basis: torch.cat([(basis @ x).abs()] * 2)),
        ("the other order", "negative first", lambda x, basis: relu(torch.cat([-basis, basis]) @ x)),
        ("columns for rows", "x @ basis", lambda x, basis: torch.cat([relu(x @ basis), relu(-(x @ basis))])),
        ("wrong", "all units on", shifted),
        ("wrong", "nothing", lambda x, basis: torch.zeros(2 * len(x), dtype=x.dtype)),
        ("malformed", "d numbers", lambda x, basis: basis @ x),
    ],
    "36.2": [
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
    "36.3": [
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
}  # fmt: skip

GIVES_AWAY = {
    "36.P1": [r"All are found at k = 6", r"found none of the atoms"],
    "36.P2": [r"L1 held most atoms", r"Most of the error is in the strengths"],
    "36.P3": [r"agree as well at \$k = 2\$", r"as high at k = 2", r"all the atoms had been found"],
}

NEIGHBOURS = {
    "36.e1": (
        '"k = 6 finds {:.0%} of the atoms", found[6]',
        '"k = 6 finds {:.0%} of the atoms", found[2]',
    ),
    "36.e2": ('"k = 32 finds {:.0%}", found[32]', '"k = 32 finds {:.0%}", found[6]'),
    "36.2": ("recovery(units.T, toy.planted.atoms)", "recovery(toy.planted.atoms.T, toy.planted.atoms)"),
    "36.e3": ('unit writes {:.0%}", share[6]', 'unit writes {:.0%}", share[16]'),
    "36.3": ('"k = 16: {:.0%}", share[16]', '"k = 16: {:.0%}", share[6]'),
    "36.4": ("(y - strengths) ** 2 + 0.4 * strengths", "(y - strengths) ** 2 / 2 + 0.4 * strengths"),
    "36.e4": ('lesson.trained("L1", 1.0, seed=0)', 'lesson.trained("L1", 0.003, seed=0)'),
    "36.e10": ("toy, out=mean)", "toy, out=other)"),
    "36.5": ("min(mean_share(product, *column)", "min(mean_share(both, *column)"),
    "36.e6": ("for rule in (both, sparse)", "for rule in (both, bend)"),
    "36.e7": ("mean_share(bend, *from_6_on", "mean_share(both, *from_6_on"),
    "36.e8": (
        'nine tenths, k = 6: {:.0%} are atoms", precise[6]',
        'nine tenths, k = 6: {:.0%} are atoms", precise[2]',
    ),
}
