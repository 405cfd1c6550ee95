"""Learners of lesson 06."""

import math

import torch

from course_lib.teaching import edit


def _case(gradient_1, gradient_2, alpha, step_1, step_2):
    return {
        "gradient_1": gradient_1,
        "gradient_2": gradient_2,
        "alpha": alpha,
        "step_1": step_1,
        "step_2": step_2,
    }


def _entry_by_entry(gradient, alpha):
    length = alpha * sum(abs(float(v)) for v in gradient) / 2
    return torch.tensor([-length if v > 0 else length for v in gradient], dtype=torch.float64)


def _in_place(gradient, alpha):
    return gradient.sign_().mul_(-0.5 * alpha * gradient.abs().sum())


def _by_eigenvectors(gradient, radius):
    values, vectors = torch.linalg.eigh(gradient.T @ gradient)
    roots = torch.where(values > 1e-12, values.clamp(min=1e-300) ** -0.5, 0)
    return -radius * gradient @ (vectors * roots) @ vectors.T


def _by_numpy(gradient, radius):
    left, _, right = torch.linalg.svd(gradient)
    rank = min(gradient.shape)
    return -radius * left[:, :rank] @ right[:rank]


def _columns_normalised(gradient, radius):
    return -radius * gradient / gradient.norm(dim=0, keepdim=True)


def _qr(gradient, radius):
    return -radius * torch.linalg.qr(gradient)[0]


def _rms(factor):
    return lambda gradient, radius: -radius * factor(*gradient.shape) * _by_numpy(gradient, -1.0)


def _turn(gradient_1, gradient_2, degrees):
    return {"gradient_1": gradient_1, "gradient_2": gradient_2, "degrees": degrees}


ANSWERS = {
    "06.2": [
        ("solved", "a small second entry", _turn(10, 1, 70)),
        ("solved", "a small first entry, the other way", _turn(0.2, -4.0, -25.0)),
        ("solved", "more than a full turn", _turn(-3.0, 0.1, -420)),
        ("solved", "numbers of torch", _turn(*torch.tensor([5.0, 0.5, 55.0]))),
        ("quarter turns", "half a turn", _turn(2.0, 1.0, 180.0)),
        ("quarter turns", "no turn", _turn(2.0, 1.0, 0)),
        ("no entry", "one input alone", _turn(0.0, 2.0, 40.0)),
        ("no entry", "no gradient", _turn(0, 0, 40)),
        ("equal entries", "opposite entries", _turn(2.0, -2.0, 50.0)),
        ("too little", "a tiny entry", _turn(1.0, 1e-4, 60.0)),
        ("on the border", "entries 1 and 2", _turn(1.0, 2.0, math.degrees(math.atan2(1, 2)))),
        ("both downhill", "the hook's gradient", _turn(2.0, 1.0, 45.0)),
        ("both downhill", "a small turn", _turn(10.0, 0.1, 10.0)),
        ("malformed", "a list", [3.0, 0.1, 60.0]),
        ("malformed", "an angle that is not a number", _turn(3.0, 0.1, math.nan)),
    ],
    "06.3": [
        ("solved", "entry by entry", _entry_by_entry),
        ("solved", "g / |g| for the sign", lambda g, alpha: -alpha / 2 * g.abs().sum() * g / g.abs()),
        (
            "solved",
            "the L1 norm of torch",
            lambda g, alpha: -alpha / 2 * torch.linalg.vector_norm(g, ord=1) * torch.sign(g),
        ),
        (
            "solved",
            "the inner product of g and its signs",
            lambda g, alpha: -alpha / 2 * (g @ g.sign()) * g.sign(),
        ),
        (
            "mean for sum",
            "mean of the sizes",
            lambda g, alpha: -0.5 * alpha * torch.mean(torch.abs(g)) * torch.sign(g),
        ),
        ("summed with signs", "size of the signed sum", lambda g, alpha: -0.5 * alpha * g.sum() * g.sign()),
        ("Euclidean length", "norm() with its default", lambda g, alpha: -alpha / 2 * g.norm() * g.sign()),
        ("divided by the step size", "over alpha", lambda g, alpha: -g.abs().sum() / (2 * alpha) * g.sign()),
        (
            "moved one weight",
            "coordinate descent of that length",
            edit(
                "gradient.sign()",
                "torch.nn.functional.one_hot(gradient.abs().argmax(), len(gradient)) * gradient.sign()",
            ),
        ),
        ("forgot the one half", "alpha ||g||_1", lambda g, alpha: -alpha * g.abs().sum() * g.sign()),
        ("gradient descent", "alpha / 2 times g", lambda g, alpha: -alpha * g / 2),
        (
            "left out the dual norm",
            "sign descent with alpha / 2",
            lambda g, alpha: -alpha / 2 * torch.sign(g),
        ),
        ("largest entry", "amax of the sizes", lambda g, alpha: -alpha / 2 * g.abs().amax() * g.sign()),
        ("went uphill", "no minus", lambda g, alpha: alpha / 2 * g.abs().sum() * g.sign()),
        ("wrong", "changed g in place before summing", _in_place),
        ("malformed", "the length alone", lambda g, alpha: alpha / 2 * g.abs().sum()),
    ],
    "06.4": [
        ("solved", "far down along -g", _case(3, 4, 1.0, -30, -40)),
        ("solved", "no step, small gradient", _case(0.3, 0.4, 1.0, 0, 0)),
        ("solved", "a shorter step, small gradient", _case(0.5, 0.0, 1.0, -0.01, 0.0)),
        ("solved", "not along -g", _case(3.0, 4.0, 1.0, -20.0, -30.0)),
        ("solved", "numbers of torch", _case(*torch.tensor([3.0, 0.0, 1.0, -9.0, 0.0]))),
        ("the same step", "the claimed step rounded", _case(1.0, 2.0, 0.5, -0.25, -0.5)),
        ("uphill", "sign of the step turned", _case(1.0, 2.0, 0.5, 0.25, 0.5)),
        ("need", "alpha 0", _case(1.0, 2.0, 0.0, -1.0, -2.0)),
        ("no gradient", "zero gradient, no step", _case(0, 0, 1, 0, 0)),
        ("on the border", "length 1 and alpha 1", _case(0.6, 0.8, 1.0, -6.0, -8.0)),
        ("shorter where longer is better", "no step, large gradient", _case(3.0, 4.0, 1.0, 0.0, 0.0)),
        ("longer where shorter is better", "far down, small gradient", _case(0.3, 0.4, 1.0, -3.0, -4.0)),
        ("wrong", "long, but nearly along the level line", _case(3.0, 4.0, 1.0, -40.0, 29.0)),
        (
            "malformed",
            "a step as one list",
            {"gradient_1": 3.0, "gradient_2": 4.0, "alpha": 1.0, "step": [-3, -4]},
        ),
        ("malformed", "infinite step", _case(3.0, 4.0, 1.0, -math.inf, 0.0)),
    ],
    "06.1": [
        ("solved", "square factors, cut", _by_numpy),
        ("solved", "G (G^T G)^(-1/2)", _by_eigenvectors),
        ("solved", "torch.svd, which returns V", lambda g, r: -r * torch.svd(g)[0] @ torch.svd(g)[2].T),
        (
            "full matrices",
            "svd with its default",
            lambda g, r: -r * torch.linalg.svd(g)[0] @ torch.linalg.svd(g)[2],
        ),
        ("forgot the radius", "U V^T alone", lambda g, r: -_by_numpy(g, -1.0)),
        ("kept the singular values", "eta times G", lambda g, r: -r * g),
        (
            "inverted the singular values",
            "the pseudo-inverse's transpose",
            lambda g, r: -r * torch.linalg.pinv(g).T,
        ),
        ("the largest direction only", "rank one", edit("left @ right", "torch.outer(left[:, 0], right[0])")),
        ("went uphill", "plus eta", lambda g, r: _by_numpy(g, -r)),
        (
            "gradient over its Frobenius norm",
            "normalised gradient",
            lambda g, r: -r * g / torch.linalg.norm(g),
        ),
        (
            "gradient over its spectral norm",
            "matrix norm 2",
            lambda g, r: -r * g / torch.linalg.matrix_norm(g, 2),
        ),
        ("signs of the entries", "torch.sign", lambda g, r: -r * torch.sign(g)),
        ("wrong", "columns of length eta", _columns_normalised),
        ("malformed", "Q of a QR decomposition", _qr),
        ("malformed", "the singular values", lambda g, r: -r * torch.linalg.svdvals(g)),
    ],
    "06.5": [
        ("solved", "square factors, cut", _rms(lambda rows, columns: (rows / columns) ** 0.5)),
        ("solved", "two roots", _rms(lambda rows, columns: math.sqrt(rows) / math.sqrt(columns))),
        ("left out the widths", "the spectral step", _rms(lambda rows, columns: 1)),
        ("ratio upside down", "d_in over d_out", _rms(lambda rows, columns: (columns / rows) ** 0.5)),
        ("no square root", "d_out over d_in", _rms(lambda rows, columns: rows / columns)),
        ("never below one", "Muon's factor", _rms(lambda rows, columns: max(1, rows / columns) ** 0.5)),
        ("one over the root of the input width", "1 / sqrt(d_in)", _rms(lambda rows, columns: columns**-0.5)),
        ("one over the input width", "1 / d_in", _rms(lambda rows, columns: 1 / columns)),
        ("root of both widths", "sqrt(d_in d_out)", _rms(lambda rows, columns: math.sqrt(rows * columns))),
        ("went uphill", "no minus", edit("return -", "return ")),
        ("signs of the entries", "sign step with the ratio", edit("left @ right", "torch.sign(gradient)")),
        (
            "scaled the gradient to the bound",
            "G over its RMS norm",
            edit("left @ right", "gradient / torch.linalg.matrix_norm(gradient, 2)"),
        ),
        ("wrong", "the integer ratio", _rms(lambda rows, columns: math.sqrt(rows // columns))),
        ("wrong", "Muon's 0.2 sqrt(max)", _rms(lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)))),
        ("malformed", "a matrix for the transposed layer", lambda g, r: _by_numpy(g, r).T),
    ],
}

GIVES_AWAY = {
    "06.P1": [r"mathrm\{sign\}\(g\)", r"(?i)sign descent", r"\(-1\.00, -1\.00\)"],
    "06.P2": [
        r"(?i)equivariant",
        r"P\\Delta Q",
        r"(?i)large ones mostly",
        r"orthogonal \$P\$",
        r"gQ\^",
        r"G\\,Q\^",
    ],
}

NEIGHBOURS = {
    "06.1": ("- h * (g @ direction))", "- 1.01 * h * (g @ direction))"),
    "06.2": ('(("l2", 2), ("linf", torch.inf), ("l1", 1))', '(("l2", 2), ("linf", 1), ("l1", torch.inf))'),
    "06.3": ("(many / many.abs().max())", "many.sign()"),
    "06.4": ('-(G * constrained_step(G, norm="spectral"', '-(G * constrained_step(G, norm="l2"'),
    "06.5": (
        'miss("spectral", maps["all 72 entries rotated"])',
        'miss("l2", maps["all 72 entries rotated"])',
    ),
    "06.6": ('max(gaps["l2"], gaps["spectral"])', 'max(gaps["l2"], gaps["linf"])'),
    "06.7": (
        'constrained_step(x, norm="spectral", radius=1.0) for x in (G, G * sizes)',
        'constrained_step(x, norm="linf", radius=1.0) for x in (G, G * sizes)',
    ),
    "06.8": ("steps.abs().amax(1) ** 2 / 0.4", "steps.square().sum(1) / 0.4"),
    "06.c1": ('stored(arm, "axes")', 'stored(arm, "rotated")'),
    "06.c2": ('stored("sign step", "rotated") /', 'stored("sign step", "axes") /'),
    "06.c3": ('ratio = stored("spectral step", "mixed")', 'ratio = stored("spectral step", "rotated")'),
    "06.c4": (
        'ratio = stored("spectral step", "rotated") / stored(white, "rotated")',
        'ratio = stored("spectral step", "raw teacher") / stored(white, "raw teacher")',
    ),
    "06.c5": (
        'ratio = stored("spectral step", "raw teacher") / stored(white, "raw teacher")',
        'ratio = stored("spectral step", "rotated") / stored(white, "rotated")',
    ),
}
