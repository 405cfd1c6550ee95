"""Learners of lesson 08."""

import math

import torch

from course_lib.teaching import edit


def _iterate(matrix, steps, size, step=lambda X: (3 * X - X @ X.T @ X) / 2):
    X = matrix / size
    for _ in range(steps):
        X = step(X)
    return X


def _from_the_right(matrix, steps):
    return _iterate(
        matrix,
        steps,
        torch.linalg.matrix_norm(matrix),
        lambda X: X @ (3 * torch.eye(X.shape[1]) - X.T @ X) / 2,
    )


def _by_values(matrix, steps):
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    values = values / values.square().sum().sqrt()
    for _ in range(steps):
        values = 1.5 * values - 0.5 * values**3
    return left @ torch.diag(values) @ right


def _returns_in_the_loop(matrix, steps):
    X = matrix / matrix.norm()
    for _ in range(steps):
        return 1.5 * X - 0.5 * X @ X.T @ X


def _square_only(matrix, steps):
    return _iterate(matrix, steps, matrix.norm(), lambda X: 1.5 * X - 0.5 * X @ X @ X)


def _pair(a, b):
    return torch.tensor([a, b], dtype=torch.float64)


def _by_search(lower):
    """The best of all cubics with p(l) = p(1), by ternary search for the size."""
    total, s = 1 + lower + lower**2, torch.linspace(lower, 1, 4001, dtype=torch.float64)
    low, high = 0.0, 10.0
    for _ in range(200):
        thirds = [low + (high - low) / 3, high - (high - low) / 3]
        errors = [float((size * (total * s - s**3) - 1).abs().max()) for size in thirds]
        low, high = (low, thirds[1]) if errors[0] < errors[1] else (thirds[0], high)
    return _pair(low * total, -low)


def _linear_system(lower):
    """Solve p(l) = 1 - E, p(m) = 1 + E, p(1) = 1 - E for a, b and E."""
    m = math.sqrt((1 + lower + lower**2) / 3)
    rows = [[s, s**3, sign] for s, sign in ((lower, 1.0), (m, -1.0), (1.0, 1.0))]
    ones = torch.ones(3, dtype=torch.float64)
    return torch.linalg.solve(torch.tensor(rows, dtype=torch.float64), ones)[:2]


def _least_squares(lower):
    s = torch.linspace(lower, 1, 2001, dtype=torch.float64)
    return torch.linalg.lstsq(
        torch.stack([s, s**3], dim=1), torch.ones(2001, 1, dtype=torch.float64)
    ).solution[:, 0]


def _second_by_system(lower):
    """Find the worst error of the first, then solve three equations on what it leaves."""
    a, b = _linear_system(lower).tolist()
    low, high = a + b, 2 - a - b
    m = math.sqrt((low**2 + low * high + high**2) / 3)
    rows = [[s, s**3, sign] for s, sign in ((low, 1.0), (m, -1.0), (high, 1.0))]
    ones = torch.ones(3, dtype=torch.float64)
    return torch.linalg.solve(torch.tensor(rows, dtype=torch.float64), ones)[:2]


def _second_by_scaling(lower):
    """Use the answer of the exercise before."""
    first = _linear_system(lower)
    low = float(first.sum())
    return _linear_system(low / (2 - low)) / torch.tensor([2 - low, (2 - low) ** 3], dtype=torch.float64)


def _up_to_one(lower):
    return _linear_system(float(_linear_system(lower).sum()))


def _unscaled(lower):
    low = float(_linear_system(lower).sum())
    return _linear_system(low / (2 - low))


def _scaled_by(power_a, power_b):
    def second(lower):
        high = 2 - float(_linear_system(lower).sum())
        return _unscaled(lower) * torch.tensor([high**power_a, high**power_b], dtype=torch.float64)

    return second


SHORT, LONG = 768, 3072

ANSWERS = {
    "08.1": [
        ("solved", "on the other side", _from_the_right),
        ("solved", "by singular values", _by_values),
        (
            "solved",
            "the Frobenius norm by its name",
            lambda m, steps: _iterate(m, steps, torch.linalg.matrix_norm(m, "fro")),
        ),
        ("not normalised", "as it comes", lambda m, steps: _iterate(m, steps, 1.0)),
        ("normalised by the largest entry", "amax", lambda m, steps: _iterate(m, steps, m.abs().amax())),
        (
            "normalised by the spectral norm",
            "norm(2)",
            lambda m, steps: _iterate(m, steps, torch.linalg.svdvals(m)[0]),
        ),
        (
            "normalised by the squared norm",
            "trace",
            lambda m, steps: _iterate(m, steps, torch.trace(m @ m.T)),
        ),
        (
            "the half left out",
            "3X - XXX",
            lambda m, steps: _iterate(m, steps, m.norm(), lambda X: 3 * X - X @ X.T @ X),
        ),
        (
            "cube of the entries",
            "stars for @",
            lambda m, steps: _iterate(m, steps, m.norm(), lambda X: 1.5 * X - 0.5 * X * X * X),
        ),
        (
            "a plus sign",
            "added",
            lambda m, steps: _iterate(m, steps, m.norm(), lambda X: 1.5 * X + 0.5 * X @ X.T @ X),
        ),
        ("one step too many", "steps + 1", lambda m, steps: _iterate(m, steps + 1, m.norm())),
        ("one step too few", "steps - 1", lambda m, steps: _iterate(m, steps - 1, m.norm())),
        ("one step whatever is asked", "return in the loop", _returns_in_the_loop),
        (
            "normalised at every step",
            "norm in the loop",
            lambda m, steps: _iterate(
                m, steps, 1.0, lambda X: 1.5 * (X / X.norm()) - 0.5 * (X @ X.T @ X) / X.norm() ** 3
            ),
        ),
        ("malformed", "X^3 of a rectangular matrix", _square_only),
        (
            "wrong",
            "half the cube forgotten",
            lambda m, steps: _iterate(m, steps, m.norm(), lambda X: 1.5 * X - X @ X.T @ X),
        ),
    ],
    "08.2": [
        ("solved", "three linear equations", _linear_system),
        ("solved", "ternary search", _by_search),
        ("Newton-Schulz", "(3/2, -1/2)", lambda lower: _pair(1.5, -0.5)),
        (
            "right at both ends",
            "p(l) = p(1) = 1",
            lambda lower: _pair((1 + lower + lower**2) / (lower + lower**2), -1 / (lower + lower**2)),
        ),
        (
            "never above 1",
            "maximum 1",
            lambda lower: (
                _linear_system(lower)
                / (2 / 3 * _linear_system(lower)[0] * math.sqrt((1 + lower + lower**2) / 3))
            ),
        ),
        ("maximum at 1", "p'(1) = 0", lambda lower: _pair(3.0, -1.0) * 2 / (3 * lower - lower**3 + 2)),
        ("the order of the pair", "(b, a)", lambda lower: _linear_system(lower).flip(0)),
        ("a plus sign", "b without its sign", lambda lower: _linear_system(lower).abs()),
        ("not scaled", "b = -1", lambda lower: _pair(1 + lower + lower**2, -1.0)),
        ("half the size", "sum 1 for sum 2", lambda lower: _linear_system(lower) / 2),
        ("wrong", "least squares", _least_squares),
        ("malformed", "with E as third", edit("-size]", "-size, 0.0]")),
        ("malformed", "a tuple", lambda lower: tuple(_linear_system(lower).tolist())),
    ],
    "08.3": [
        ("solved", "three linear equations", _second_by_system),
        ("solved", "scaled from the answer before", _second_by_scaling),
        ("the first cubic again", "best_cubic(lower)", _linear_system),
        ("up to 1 only", "best_cubic(1 - E)", _up_to_one),
        ("not scaled back", "best_cubic of the ratio", _unscaled),
        ("scaled the wrong way", "times u and its cube", _scaled_by(1, 3)),
        ("result divided", "the polynomial over u", _scaled_by(-1, -1)),
        ("Newton-Schulz", "(3/2, -1/2)", lambda lower: _pair(1.5, -0.5)),
        ("wrong", "only the cube scaled", _scaled_by(0, -3)),
        ("wrong", "order exchanged", lambda lower: _second_by_system(lower).flip(0)),
        ("malformed", "a tuple", lambda lower: tuple(_second_by_system(lower).tolist())),
    ],
    "08.4": [
        ("solved", "2 mnp twice", 2 * SHORT * LONG * SHORT + 2 * LONG * SHORT * SHORT),
        ("solved", "the number", 7_247_757_312),
        ("solved", "as a float", 4.0 * LONG * SHORT**2),
        ("the larger Gram matrix", "from the left", 4 * LONG * LONG * SHORT),
        ("one product", "the Gram matrix alone", 2 * SHORT * SHORT * LONG),
        ("one product", "one multiplication for each term", LONG * SHORT**2 * 2),
        ("two for each entry", "four for each entry", 4 * LONG * SHORT),
        ("square of the Gram matrix", "the Gram matrix twice", 4 * SHORT**3),
        ("a quintic", "with the square of the Gram matrix", 4 * SHORT**2 * LONG + 2 * SHORT**3),
        ("a third product", "three products", 3 * 2 * SHORT**2 * LONG),
        ("both sides", "formed left, applied right", 2 * LONG * SHORT * (LONG + SHORT)),
        ("shapes cubed", "a square matrix", 4 * LONG**3),
        ("entries of the result", "two for each entry", 2 * (SHORT**2 + LONG * SHORT)),
        ("wrong", "the sums as well", 4 * SHORT**2 * LONG + 2 * LONG * SHORT),
        ("malformed", "as text", "4 * 768**2 * 3072"),
    ],
}

GIVES_AWAY = {
    "08.P1": [
        r"divides the error by about a hundred",
        r"last ones collect",
        r"the cubic's error is",
        r"nearly 500 times",
        r"root mean square of \$?s(_i)? - 1",
        r"and no more",
    ],
    "08.P2": [
        r"exactly flat (loses|lost|wins)",
        r"Momentum rescues",
        r"what is missing",
        r"lowest at a partly flattened",
        r"six cubic steps (end|beat)",
        r"partly flattened step ha[sd]",
    ],
}

NEIGHBOURS = {
    "08.c1": ("lesson.errors_after(lesson.PLANNED)", "lesson.errors_after(lesson.PLANNED[:5])"),
    "08.1": ("b * gram @ X + c", "b * X**3 + c"),
    "08.3": (
        "X = (3 * X - X @ X.T @ X) / 2\n    smallest",
        "X = (4 * X - 2 * X @ X.T @ X) / 2\n    smallest",
    ),
    "08.4": ("lesson.errors_after([JORDAN] * 30)", "lesson.errors_after([CUBIC] * 30)"),
    "08.5": ("minimax_quintic(0.1, 1.0)", "minimax_quintic(0.11, 1.0)"),
    "08.6": ("minimax_composition(1e-2, 2)", "minimax_composition(1.05e-2, 2)"),
    "08.c2": ("stored(flat, 16) / stored(kept, 16)", "stored(six, 16) / stored(kept, 16)"),
    "08.c3": ("stored(six, 64) / lower", 'stored("9 cubic steps", 64) / lower'),
    "08.c4": ("stored(flat, 256) / stored(kept, 256)", "stored(flat, 64) / stored(kept, 64)"),
    "08.c5": (
        'by[flat]["0.9"] / by[kept]["0.9"]',
        'by[flat]["0.8"] / by[kept]["0.8"]',
    ),
    "08.c6": (
        'losses[flat, 0, False] / losses["unflattened", 0, False]',
        'losses[flat, 0, False] / losses["unflattened", 0.7, False]',
    ),
    "08.c7": ('"only_drawn": only}', '"only_drawn": False}'),
}
