"""Exercises of lesson 24, linear purification."""

import torch

from course_lib.lessons.linear_purification.contents import lesson
from course_lib.representation.purification import purification_gradient
from course_lib.teaching import close, edit, inputs, near, normal, uniform


@lesson.exercise(
    "24.1", "The purifying matrix", difficulty=2, minutes=8,
    prompt="Write `purify_matrix(x, penalty)`: `x` holds one example in each row, float64, not centred. Return the "
    "matrix "
    "$W$ that minimises $\\lVert X - XW\\rVert_F^2 + \\lambda\\lVert W\\rVert_F^2$, where `penalty` is $\\lambda > 0$.",
    draw=inputs(x=normal("5 3"), penalty=uniform(0.2, 5)),
    properties=[
        ("W maps features to features: its shape should be (features, features).",
         lambda x, answer: answer.shape == (x.shape[1],) * 2),
        ("The gradient of the loss should be zero at W.",
         lambda x, penalty, answer: purification_gradient(answer, x, penalty).abs().max() < 1e-6),
    ],
    hints=(
        "Set the gradient of (24.1) to zero and solve for W.",
        "The penalty stands on the diagonal of the Gram matrix of the features.",
        "`torch.linalg.solve(A, B)` returns A⁻¹B.",
    ),
    mistakes=[
        ("Gram of the rows", edit("gram = x.T @ x", "gram = x @ x.T"),
         "You took XXᵀ, which compares examples. With examples in rows, the features meet in XᵀX."),
        ("penalty everywhere", edit("gram + penalty * torch.eye(len(gram), dtype=x.dtype)", "gram + penalty"),
         "You added λ to every entry of XᵀX. It belongs on the diagonal only: λI."),
        ("penalty squared", edit("penalty * torch.eye", "penalty**2 * torch.eye"),
         "You squared λ. The singular values are squared, the penalty is not."),
        ("divided by the rows", edit("gram = x.T @ x", "gram = x.T @ x / len(x)"),
         "You divided XᵀX by the number of rows. The loss is a sum over them, not a mean."),
        ("centred", edit("gram = x.T @ x", "x = x - x.mean(0)\n    gram = x.T @ x"),
         "You centred the rows. The loss is that of the rows as they are."),
        ("no penalty", edit("gram + penalty * torch.eye(len(gram), dtype=x.dtype)", "gram"),
         "You left out λ: then W is the identity, which returns every row and shrinks nothing."),
        ("only the inverse", edit("gram)\n", "torch.eye(len(gram), dtype=x.dtype))\n"),
         "That is (XᵀX + λI)⁻¹. The right-hand side XᵀX is missing."),
    ],
)  # fmt: skip
def purify_matrix(x, penalty):
    """Solve the ridge regressions of all features on all features at once."""
    gram = x.T @ x
    return torch.linalg.solve(gram + penalty * torch.eye(len(gram), dtype=x.dtype), gram)


def _positive(a, b, c):
    return all(abs(v) < 1e6 for v in (a, b, c)) and a > 0 and a * b - c * c > 1e-9 * a * abs(b)


def _left(a, b, c):
    """The share of the concept's covariance (1, 0) that stays after the probe's direction was projected out."""
    w = torch.tensor([b, -c], dtype=torch.float64)
    return float((torch.tensor([1.0, 0.0]).double() - w * w[0] / (w @ w)).norm()) if w.any() else 1.0


lesson.flaw(
    "24.2", "Projecting out the probe", difficulty=2, minutes=8,
    prompt="\"A least-squares probe uses one direction $w$. Project every row on the plane at right angles to $w$, "
    "and no linear "
    "probe finds the concept.\" Give a counterexample: two features with the covariance matrix $\\Sigma = "
    "\\begin{pmatrix}a & c\\\\ c & b\\end{pmatrix}$, whose covariances with the concept are in proportion to "
    "$(1, 0)$, so that the probe's direction is $w = \\Sigma^{-1}(1, 0)^\\top$. The answer is a "
    "dictionary with the numbers `a`, `b`, `c`.",
    answer={"a": 1, "b": 1, "c": 0.5},
    properties=[
        ("a, b and c should be smaller than a million and make a covariance matrix with an inverse: a > 0 and ab > c².",
         _positive),
        ("After the projection, the covariance of rows and concept is zero: here the claim is right.",
         lambda a, b, c: _left(a, b, c) > 1e-6),
    ],
    hints=(
        "A linear probe finds the concept as long as a feature has a covariance with it.",
        "Projecting out w takes from (1, 0) its part along w. What is left is zero if (1, 0) and w are parallel.",
        "Compute w for a = b = 1 and any c. When is it parallel to (1, 0)?",
    ),
    mistakes=[
        ("uncorrelated", {"a": 1, "b": 1, "c": 0},
         "The features are uncorrelated, so w is parallel to (1, 0), and the projection takes the concept out.",
         lambda a, b, c: _positive(a, b, c) and c == 0 and a == b),
        ("unequal, uncorrelated", {"a": 1, "b": 4, "c": 0},
         "Unequal variances do not suffice: with c = 0 the direction w is still parallel to (1, 0).",
         lambda a, b, c: _positive(a, b, c) and c == 0 and a != b),
        ("no covariance matrix", {"a": 1, "b": 1, "c": 2},
         "A covariance cannot be that large: c² must be smaller than ab.",
         lambda a, b, c: a > 0 and b > 0 and c * c > a * b),
        ("one feature twice", {"a": 1, "b": 1, "c": 1},
         "With c² = ab the two features are one, and Σ has no inverse.",
         lambda a, b, c: a > 0 and b > 0 and c * c == a * b),
        ("negative variance", {"a": 1, "b": -1, "c": 0.5}, "A variance cannot be negative or zero.",
         lambda a, b, c: a <= 0 or b <= 0),
    ],
)  # fmt: skip


def _left_of_ones(b):
    """The share of the concept's covariances (1, 1) that stays after the probe's direction was projected out."""
    w, ones = torch.tensor([b - 1.0, 1.0], dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    return float((ones - w * (w @ ones) / (w @ w)).norm())


lesson.value(
    "24.3", "When one removal suffices", difficulty=2, minutes=4,
    prompt="Two features have the covariance matrix $\\Sigma_{xx} = \\begin{pmatrix}2 & 1\\\\ 1 & b\\end{pmatrix}$ and "
    "equal covariances with the concept, so that $\\Sigma_{xz}$ is in proportion to $(1, 1)^\\top$. For which $b$ "
    "does projecting out the probe's direction, at right angles, hide the concept from every linear probe?",
    answer=2,
    properties=[
        ("b should make a covariance matrix with an inverse: 2b > 1.", lambda answer: 2 * float(answer) > 1),
        ("After the projection some of (1, 1) is left.", lambda answer: _left_of_ones(float(answer)) < 1e-3),
    ],
    hints=(
        "The probe's direction is w = Σ⁻¹(1, 1). When does projecting out w take all of (1, 1)?",
        "When w is parallel to (1, 1), which is the same as Σ(1, 1) being parallel to (1, 1).",
        "Σ(1, 1) is (3, 1 + b).",
    ),
    mistakes=[
        ("the eigenvalue", 3, "3 is the eigenvalue of (1, 1) for the right b; asked is b."),
        ("no inverse", 0.5, "With b = 1/2 the matrix has no inverse, and the probe is not defined.",
         near(0.5, within=1e-6)),
        ("the probe uses one feature", 1,
         "With b = 1 the probe's direction is (0, 1): it is not parallel to (1, 1), and part of (1, 1) is left."),
        ("uncorrelated", 0, "b is the variance of the second feature; it cannot be 0 beside a covariance of 1."),
    ],
)  # fmt: skip


def _groups(generator):
    label = torch.arange(12) % 2
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    x, shift = draw(12, 3) @ draw(3, 3), draw(3)
    return (x + label[:, None] * shift + torch.randint(2, 5, (3,), generator=generator)).round(decimals=1)


@lesson.exercise(
    "24.4", "An eraser for two classes", difficulty=3, minutes=14,
    prompt="Write `erase(x, label, new)`: `x` holds one row for each example, float64, and `label` its class, 0 or "
    "1. Return "
    "the table `new`, which has the same features, changed as the paragraph above says, with everything fitted to `x` and "
    "`label`: the smallest affine change after which no linear probe finds the class in `x`. You may not use `course_lib`.",
    draw=inputs(x=_groups, label=lambda: torch.arange(12) % 2, new=normal("2 3")),
    properties=[
        ("What is taken out of each row should lie along the difference of the class means.",
         lambda x, label, new, answer: _along(x, label, new, answer)),
    ],
    agrees="It should be the smallest change that erases.",
    hints=(
        "Centre x and the label (and new, by the mean of x). Which direction has the covariances of features and "
        "label as entries?",
        "Read by the probe w = Σ⁻¹s, write along s: centred rows lose (row · w) s, divided by a number.",
        "The number makes the map a projection: with u = s, w must be scaled so that w · u = 1.",
    ),
    mistakes=[
        ("probe's direction, at right angles", edit("write = cross", "write = read"),
         "You projected out the probe's direction at right angles. Then the class means still differ."),
        ("difference of means, at right angles",
         edit("read = torch.linalg.solve(centred.T @ centred, cross)", "read = cross"),
         "You projected out the difference of means at right angles. That erases, but changes the rows more than "
         "needed: the "
         "direction to read is the probe's."),
        ("not a projection", edit(" / (read @ write)", ""),
         "You left out the division by w · u: what is removed is too much or too little."),
        ("new not centred", edit("(new - x.mean(0)) @ read", "new @ read"),
         "You did not centre `new` by the mean of x: all rows are moved by the same amount too far."),
        ("own mean of new", edit("(new - x.mean(0)) @ read", "(new - new.mean(0)) @ read"),
         "You centred `new` by its own mean. The map is fitted to x, with the mean of x."),
        ("covariance not centred", edit("centred = x - x.mean(0)", "centred = x"),
         "You did not centre x: what you take for covariances holds the mean of the rows."),
        ("mean left out", edit("return new -", "return new - x.mean(0) -"),
         "You removed the mean of the rows as well. Erasing keeps it."),
    ],
)  # fmt: skip
def erase(x, label, new):
    """Read by the probe's direction, write along the covariances."""
    centred = x - x.mean(0)
    cross = centred.T @ (label - label.double().mean())
    read = torch.linalg.solve(centred.T @ centred, cross)
    write = cross
    return new - torch.outer((new - x.mean(0)) @ read, write) / (read @ write)


def _along(x, label, new, answer):
    """Whether what was taken out lies along the difference of the class means."""
    gap = x[label == 1].mean(0) - x[label == 0].mean(0)
    taken = new - answer
    return close(taken, torch.outer(taken @ gap, gap) / (gap @ gap), atol=1e-6)


lesson.value(
    "24.5", "A penalty for three quarters", difficulty=1, minutes=5,
    prompt="Rows have the singular values 6, 3 and 1. Which penalty $\\lambda$ makes purification (24.2) leave "
    "exactly three "
    "quarters of the direction with $\\sigma = 3$?",
    answer=3,
    properties=[
        ("The factor of the direction should be 3/4.", lambda answer: close(9 / (9 + answer), 0.75, rtol=1e-3)),
    ],
    hints=(
        "Each direction has a factor of its own; the other two do not matter.",
        "The factor is σ²/(σ² + λ), with the square.",
        "Solve 9/(9 + λ) = 3/4 for λ.",
    ),
    mistakes=[
        ("not squared", 1, "You used σ/(σ + λ). The factor has the squares of the singular values."),
        ("upside down", 27, "With this λ a quarter is left: you solved λ/(σ² + λ) = 3/4."),
        ("soft threshold", 2.25, "You used 1 - λ/σ² of lesson 23, which belongs to a penalty on two matrices.",
         near(2.25, within=1e-3)),
        ("the largest direction", 12, "That is the penalty for the direction with σ = 6."),
        ("the smallest direction", 1 / 3, "That is the penalty for the direction with σ = 1.", near(1 / 3, within=5e-3)),
    ],
)

EXERCISES = lesson.exercises
