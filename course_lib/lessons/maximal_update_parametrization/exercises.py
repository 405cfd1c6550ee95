"""Exercises of lesson 07, maximal_update_parametrization."""

import math

import numpy as np
import torch

from course_lib.lessons.maximal_update_parametrization.contents import lesson
from course_lib.lessons.maximal_update_parametrization.networks import slope
from course_lib.lessons.maximal_update_parametrization.pictures import EXPLODING, SIZES, sizes_by_width
from course_lib.optimization.mup import sign_change_mean_square
from course_lib.teaching import but, close, edit, inputs, near, normal, one_of, whole

_LAW = sign_change_mean_square(4, step_size=1)


# Sums with other numbers of squares (4) and products (12), or with √(2/π) in the place of 2/π.
_WRONG_WEIGHTS = (16 * (1 - 2 / math.pi), 4 + 6 * 2 / math.pi, 4 + 16 * 2 / math.pi, 4 + 12 * math.sqrt(2 / math.pi),
                  12 + 4 * 2 / math.pi)


def _agrees_with_draws(answer):
    """Whether 5,000 draws of ||x||_1^2 have that mean, up to eight standard errors."""
    draws = torch.randn(5_000, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    squares = draws.abs().sum(1).square()
    return abs(float(squares.mean()) - float(answer)) <= 8 * float(squares.std()) / math.sqrt(len(squares))


lesson.value(
    "07.1", "How far a sign update moves the output", difficulty=1, minutes=6,
    prompt="$x$ has 4 independent entries $N(0, 1)$ and $g$ has no entry 0. What is the expected "
    "value of $\\mathrm{RMS}(\\mathrm{sign}(gx^\\top)\\,x)^2$? Give it to two decimals.",
    answer=_LAW,
    properties=[
        ("5,000 draws of x have another mean.", _agrees_with_draws),
        ("Close, but not to two decimals.",
         lambda answer: abs(float(answer) - 2 / math.pi * 16 - (1 - 2 / math.pi) * 4) < 0.01),
    ],
    hints=(
        "Each entry of the output is the sum of all |x_i|, up to its sign.",
        "Square the sum: there are 4 terms x_i², and 12 products of two different sizes.",
        "For a standard normal number, E x² = 1 and E|x| = √(2/π).",
    ),
    mistakes=[
        ("each size taken as 1", 16.0,
         "You took every |x_i| as 1, as if x had entries ±1. Their mean is √(2/π), about 0.8.", near(16.0, within=0.02)),
        ("square of the mean", 32 / math.pi,
         "That is the square of the expected sum. The expected square is larger, by the variance of the sum.",
         near(32 / math.pi, within=0.02)),
        ("random signs", 4.0,
         "You added the squares only, as if the terms had random signs. The sign of the update meets the sign of its "
         "own input: all products are positive.", near(4.0, within=0.02)),
        ("the root", math.sqrt(_LAW), "That is the root of it: the question asks for the expected square.",
         near(math.sqrt(_LAW), within=0.02)),
        ("sum of the outputs", 4 * _LAW,
         "RMS takes the mean over the outputs, not their sum, and each output has the same square.",
         near(4 * _LAW, within=0.02)),
        ("squares and products miscounted", 4 + 6 * 2 / math.pi,
         "You counted or weighed the terms of the square otherwise: 4 squares have expectation 1 each, and the 12 products "
         "of two different sizes have expectation (√(2/π))² = 2/π each.",
         lambda answer: min(abs(answer - value) for value in _WRONG_WEIGHTS) < 0.02),
        ("the mean of the sum", 4 * math.sqrt(2 / math.pi),
         "That is E‖x‖₁, the expected sum. The question asks for the expected *square* of it.",
         near(4 * math.sqrt(2 / math.pi), within=0.02)),
    ],
)


@lesson.exercise(
    "07.2", "Adam's step size for one matrix", difficulty=1, minutes=6,
    prompt="Write `adam_rate(fan_out, fan_in, base_fan_out, base_fan_in, lr)`: the step size with which a step of "
    "Adam changes the output of a weight matrix of shape `(fan_out, fan_in)` by as much as in the base model. There the "
    "matrix has shape `(base_fan_out, base_fan_in)`, and its step size is `lr`. It may be of any kind: first, hidden or "
    "readout.",
    draw=inputs(
        base_fan_out=one_of(4, 8, 16, 32), base_fan_in=one_of(4, 8, 16, 32), more_out=one_of(1, 2, 4, 8, 16),
        more_in=one_of(1, 2, 4, 8, 16), fan_out=lambda base_fan_out, more_out: base_fan_out * more_out,
        fan_in=lambda base_fan_in, more_in: base_fan_in * more_in, thousandths=whole(1, 9),
        lr=lambda thousandths: thousandths / 1000,
    ),
    properties=[
        ("One output adds up fan_in moves of its weights: the step size times fan_in should be what it is in the base.",
         lambda fan_in, base_fan_in, lr, answer: math.isclose(float(answer) * fan_in, lr * base_fan_in, rel_tol=1e-6)),
    ],
    hints=(
        "Adam moves each entry by about its step size, in the direction of the sign of its gradient.",
        "How many such moves add up in one output? Does it matter how many outputs there are?",
        "An output changes by the step size times fan_in, and this should be the same as in the base.",
    ),
    mistakes=[
        ("the same for all", edit(" * base_fan_in / fan_in", ""),
         "You left the step size as it was. Wider inputs then change the output by more."),
        ("the wrong fan", edit("base_fan_in / fan_in", "base_fan_out / fan_out"),
         "You divided by the growth of the outputs. What adds up in one output are the moves of its inputs."),
        ("the root", edit("base_fan_in / fan_in", "(base_fan_in / fan_in) ** 0.5"),
         "You divided by the root. That is for weights at the start, whose signs are random; signs of a step agree "
         "with those of its inputs."),
        ("the rule of SGD", edit("base_fan_in / fan_in", "fan_out / base_fan_out * base_fan_in / fan_in"),
         "That is the rule of SGD, whose steps are in proportion to the gradient. Adam's are not."),
        ("upside down", edit("base_fan_in / fan_in", "fan_in / base_fan_in"),
         "Upside down: more inputs need a smaller step."),
        ("Muon's rule", edit("base_fan_in / fan_in", "(fan_out / base_fan_out * base_fan_in / fan_in) ** 0.5"),
         "That is the rule for orthogonalised steps, √(fan_out/fan_in). Adam's steps are nearly signs: they need 1/fan_in."),
        ("without the base", edit("lr * base_fan_in / fan_in", "lr / fan_in"),
         "You divided by fan_in itself. The step size was found at the base width, so only the growth since then counts."),
        ("both fans", edit("base_fan_in / fan_in", "(base_fan_in * base_fan_out / fan_in / fan_out)"),
         "You divided by the growth of both fans. How many outputs there are does not change how far each of them moves."),
        ("squared", edit("base_fan_in / fan_in", "(base_fan_in / fan_in) ** 2"),
         "You divided by the square of the growth. fan_in moves add up in an output, so the first power is right."),
        ("integer division", edit("lr * base_fan_in / fan_in", "lr * (base_fan_in // fan_in)"),
         "You divided with //, which rounds down to a whole number and makes most step sizes 0. Use /."),
    ],
)
def adam_rate(fan_out, fan_in, base_fan_out, base_fan_in, lr):
    """Return the step size that keeps the change of the outputs what it is in the base model."""
    return lr * base_fan_in / fan_in


def _case(W, h):
    return dict(zip(("w_11", "w_12", "w_21", "w_22", "h_1", "h_2"), (*W, *h), strict=True))


def _sizes(answer):
    """Spectral norm of W, RMS of h and RMS of W h."""
    numbers = np.array([float(value) for value in _case(list(answer.values())[:4], list(answer.values())[4:]).values()])
    if not (np.isfinite(numbers).all() and np.abs(numbers).max() < 1e6):
        return math.inf, math.inf, math.inf
    W, h = numbers[:4].reshape(2, 2), numbers[4:]
    rms = lambda v: float(np.sqrt(np.mean(v**2)))  # noqa: E731
    return float(np.linalg.norm(W, 2)), rms(h), rms(W @ h)


lesson.flaw(
    "07.3", "Bounded, but not of that size", difficulty=2, minutes=8,
    prompt="Someone claims: if $\\lVert W\\rVert_2 = \\sqrt{d_{out}/d_{in}}$ and the input $h$ has RMS 1, then "
    "$Wh$ has RMS 1 too. Give a counterexample for $d_{out} = d_{in} = 2$: a dictionary with the numbers "
    "`w_11`, `w_12`, `w_21`, `w_22`, `h_1`, `h_2` such that $\\lVert W\\rVert_2 = 1$ and $\\mathrm{RMS}(h) = 1$ (each "
    "to 0.001), and $\\mathrm{RMS}(Wh) \\le 0.01$.",
    answer=_case((1.0, 0.0, 0.0, 0.0), (0.0, math.sqrt(2))),
    needs=[
        ("Your W is zero, and so is its spectral norm. It should be 1.", lambda answer: _sizes(answer)[0] >= 1e-3),
        ("The spectral norm of your W, its largest singular value, is not 1. Divide W by it.",
         lambda answer: abs(_sizes(answer)[0] - 1) <= 1e-3),
        ("Your h has Euclidean length 1. Its RMS is then 1/√2: the length should be √2.",
         lambda answer: abs(_sizes(answer)[1] - math.sqrt(0.5)) >= 1e-3),
        ("RMS(h) is not 1: a small h has a small Wh without any fault of W.",
         lambda answer: abs(_sizes(answer)[1] - 1) <= 1e-3),
    ],
    properties=[
        ("RMS(Wh) is above 0.01.", lambda answer: _sizes(answer)[2] <= 0.01),
    ],
    hints=(
        "A spectral norm says what happens to the direction that W stretches most. What of the other one?",
        "Let W have the singular values 1 and 0.",
        "Put h along the direction with singular value 0. RMS(h) = 1 means that its Euclidean length is √2.",
    ),
    mistakes=[
        ("nothing lost", _case((1.0, 0.0, 0.0, 1.0), (1.0, -1.0)),
         "Your W keeps the size of this h: h lies along directions with singular value 1.",
         but(lambda answer: _sizes(answer)[2] > 0.99)),
        ("not enough lost", _case((1.0, 0.0, 0.0, 0.0), (1.0, 1.0)),
         "Norm and RMS are right, but part of h still lies along a direction that W does not send to 0. Give W the singular "
         "value 0, and put h along that direction alone.",
         but()),
    ],
)


_LAYERS = ("first", "change", "moved")


def _is_fixed(layer, power):
    """Whether both lines of the check are flat once the steps of that layer are multiplied by r^power."""
    names = {2: "rate", 3: "out_rate"}
    if layer not in names:
        return False
    powers = {**EXPLODING, names[layer]: EXPLODING[names[layer]] - power}
    return all(abs(slope(SIZES, sizes_by_width(**powers)[name])) < 0.1 for name in _LAYERS)


def _answer(answer):
    return float(answer["layer"]), float(answer["power"])


lesson.flaw(
    "07.4", "Which layer breaks this check?", difficulty=2, minutes=6,
    prompt="All starts of the network in the figure are right. One layer's step size goes with a wrong power of the width. "
    "Give a dictionary with the numbers `layer` (1 for the first, 2 for the hidden, 3 for the readout) and `power`: for all "
    "three lines to be flat, multiply that layer's step size by $r^p$ with $p$ = `power` and $r$ the width over 32. "
    "Powers are multiples of 1/2; the first layer's share in the change flattens the lines behind it a little.",
    answer={"layer": 2, "power": -0.5},
    needs=[
        ("The layers are 1, 2 and 3.", lambda layer: layer in (1, 2, 3)),
        ("A power of 0 changes nothing.", lambda power: power != 0),
        ("That power is beyond any that a layer could need: give one between -3 and 3.", lambda power: abs(power) <= 3),
    ],
    properties=[
        ("The lines are not flat then: their exponents still differ from 0 by more than 0.1.",
         lambda answer: _is_fixed(*_answer(answer))),
    ],
    hints=(
        "Go through the layers from the input on. Which is the first whose line is not flat?",
        "A layer hands its change on to the next. The line behind a wrong layer rises too.",
        "Read its exponent from the figure: by what factor does the line rise while the width rises 16-fold?",
    ),
    mistakes=[
        ("the last one that rises", {"layer": 3, "power": -0.5},
         "The readout's line rises because its input does: look for the first line that is not flat.",
         but(lambda layer: layer == 3)),
        ("the one that is flat", {"layer": 1, "power": -0.5},
         "The first layer's line is flat: its steps are right. Its inputs do not grow with the width.",
         but(lambda layer: layer == 1)),
        ("the other way", {"layer": 2, "power": 0.5},
         "The layer is right, the sign of the power is not: the line rises, so the steps must shrink with the width.",
         but(lambda layer, power: layer == 2 and power > 0)),
        ("the whole rule once more", {"layer": 2, "power": -1.0},
         "The layer is right. With -1 its line would fall: it rises only about fourfold while the width rises 16-fold.",
         but(lambda layer, power: layer == 2 and -1.2 <= power <= -0.8)),
    ],
)


@lesson.exercise(
    "07.5", "Three numbers of a layer at unit scale", difficulty=2, minutes=8,
    prompt="A layer is $y = cWx$ with $W$ of shape `(d_out, d_in)` and entries $N(0, 1)$. Write `unit_scale(d_out, "
    "d_in)`: a float64 tensor of three numbers, the positive $c$ with which inputs of RMS 1 have outputs of RMS 1 on "
    "average at the start; the largest $\\alpha$ for which no step $-\\alpha\\,\\mathrm{sign}(gx^\\top)$ changes the "
    "output of an RMS-1 input by an RMS above 1; and the largest $\\alpha$ for which no step $-\\alpha UV^\\top$ does.",
    draw=inputs(d_out=whole(2, 90), d_in=whole(2, 90)),
    properties=[
        ("All three numbers should be positive: the minus of a step stands before its α already.",
         lambda answer: bool((answer > 0).all())),
        ("With your c the outputs do not have RMS 1 on average at the start.",
         lambda d_in, answer: math.isclose(float(answer[0]) ** 2 * d_in, 1, rel_tol=1e-6)),
        ("The longest sign step should change the output of x by exactly RMS 1, for x with entries ±1.",
         lambda d_in, answer: math.isclose(float(answer[0] * answer[1]) * d_in, 1, rel_tol=1e-6)),
        ("The longest Muon step should have spectral norm √d_out.",
         lambda d_out, answer: math.isclose(float(answer[2]) ** 2, d_out, rel_tol=1e-6)),
    ],
    hints=(
        "An output is c times a sum of d_in terms of variance 1.",
        "RMS(Δy) / RMS(x) is at most c √(d_in/d_out) times the spectral norm of the step. Bound it by 1.",
        "sign(g xᵀ) is a product of two sign vectors: its spectral norm is the product of their lengths. That of U Vᵀ "
        "is 1.",
    ),
    mistakes=[
        ("c upside down", edit("[d_in**-0.5", "[d_in**0.5"),
         "Your c is the root of d_in: the outputs, which have variance d_in without c, get d_in² with it. Divide by "
         "the root."),
        ("sign step upside down", edit(", d_in**-0.5", ", d_in**0.5"),
         "α √(d_in d_out) = √d_out gives α = 1/√d_in, not √d_in: yours is d_in times too long."),
        ("c forgotten in the steps", edit(", d_in**-0.5", ", 1 / d_in", "d_out**0.5", "(d_out / d_in) ** 0.5"),
         "Those are the steps of a layer without c. Here the change of the output is divided by √d_in as well."),
        ("Muon's step of norm 1", edit("d_out**0.5", "1.0"),
         "U Vᵀ has spectral norm 1, and the spectral norm of the step may be up to √d_out."),
        ("Muon's step squared", edit("d_out**0.5", "float(d_out)"),
         "Your Muon step is the square of the longest one: the bound on the spectral norm is √d_out, not d_out."),
        ("shapes swapped", edit("[d_in**-0.5, d_in**-0.5, d_out**0.5]", "[d_out**-0.5, d_out**-0.5, d_in**0.5]"),
         "You took the shape as (d_in, d_out). Rows of W are outputs: d_in terms add up in each."),
        ("steps with the minus", edit(", d_in**-0.5, d_out", ", -(d_in**-0.5), -d_out"),
         "Both α are negative. The minus of the steps stands before α already: with a negative α they would go uphill."),
        ("c over the inputs", edit("[d_in**-0.5", "[1 / d_in"),
         "Your c is 1/d_in. The terms of y have random signs at the start: their sum has size √d_in, so c = 1/√d_in."),
        ("Muon's step from the inputs", edit("d_out**0.5", "d_in**0.5"),
         "The bound on the spectral norm of the step is √d_out: d_in cancels between c and the RMS norm."),
    ],
)
def unit_scale(d_out, d_in):
    """Return c, the sign step's alpha and Muon's alpha for y = c W x with entries of W of size 1."""
    return torch.tensor([d_in**-0.5, d_in**-0.5, d_out**0.5], dtype=torch.float64)


def _norm(matrix):
    return float(torch.linalg.matrix_norm(matrix, 2))


def _orthogonalised(gradient, radius):
    left, _, right = torch.linalg.svd(gradient, full_matrices=False)
    return -radius * len(gradient) ** 0.5 * left @ right


def _normalised(gradient, radius):
    return -radius * len(gradient) ** 0.5 * gradient / torch.linalg.matrix_norm(gradient, 2)


@lesson.exercise(
    "07.6", "The sign step of a batch", difficulty=3, minutes=12,
    prompt="The gradient of a batch is generally not of rank 1, and the step $\\alpha = \\eta/\\sqrt{d_{in}}$ is then "
    "shorter than it could be. Write `batch_sign_step(gradient, radius)` for the layer $y = Wx/\\sqrt{d_{in}}$: the longest "
    "step $-\\alpha\\,\\mathrm{sign}(G)$ with $\\mathrm{RMS}(\\Delta y) \\le \\eta\\,\\mathrm{RMS}(x)$ for every $x$. "
    "`gradient` is $G$, a float64 matrix of shape `(d_out, d_in)` without zeros, `radius` is $\\eta$.",
    draw=inputs(rows=whole(2, 4), columns=whole(2, 4), noise=normal("rows columns"), tenths=whole(1, 9),
                gradient=lambda noise: noise.masked_fill(noise == 0, 0.5), radius=lambda tenths: tenths / 10),
    properties=[
        ("The step should go down: against the signs of G.", lambda gradient, answer: float((gradient * answer).sum()) < 0),
        ("Your step is no multiple of sign(G): all its entries should be alike in size, with the signs of -G.",
         lambda gradient, answer: close(answer, -gradient.sign() * answer.abs().mean())),
        ("Some input has its output changed by more than the radius allows.",
         lambda radius, answer: _norm(answer) <= radius * math.sqrt(len(answer)) * (1 + 1e-8)),
        ("A longer step would still keep to the bound.",
         lambda radius, answer: _norm(answer) >= radius * math.sqrt(len(answer)) * (1 - 1e-8)),
    ],
    hints=(
        "Which norm of the step bounds RMS(Δy) / RMS(x) for every x? Do not forget the factor of the layer.",
        "The spectral norm of the step may be up to η √d_out.",
        "torch.linalg.matrix_norm(S, 2) is the spectral norm of S = sign(G). Which multiple of S reaches the bound?",
    ),
    mistakes=[
        ("uphill", edit("-radius", "radius"), "Your step goes uphill: a minus is missing."),
        ("as for one sample", edit("len(signs) ** 0.5 * signs / torch.linalg.matrix_norm(signs, 2)",
                                    "signs / signs.shape[1] ** 0.5"),
         "That is the step for a gradient of rank 1. Here the spectral norm of sign(G) can be smaller than √(d_in "
         "d_out): compute it."),
        ("Muon's step", _orthogonalised,
         "That is -η√d_out U Vᵀ, Muon's step: it keeps the singular vectors of G. Asked is a multiple of sign(G)."),
        ("the gradient itself", _normalised,
         "You scaled G itself to the right spectral norm. Asked is a multiple of sign(G), whose entries are alike in size."),
        ("layer without its factor", edit("len(signs)", "(len(signs) / signs.shape[1])"),
         "You left out the factor 1/√d_in of the layer: the step may be √d_in times longer."),
        ("spectral norm eta", edit("len(signs) ** 0.5 * ", ""),
         "Your step has the spectral norm η. RMS takes means over d_out and d_in entries: η √d_out is allowed."),
        ("shapes swapped", edit("len(signs)", "signs.shape[1]"),
         "You allowed the spectral norm η√d_in. It is η√d_out: the rows of W are the outputs."),
        ("spectral norm of the gradient", edit("norm(signs, 2)", "norm(gradient, 2)"),
         "You divided by the spectral norm of G. The step is a multiple of sign(G), so the norm of sign(G) counts."),
        ("multiplied for divided", edit("len(signs) ** 0.5 * signs / torch.linalg.matrix_norm(signs, 2)",
                              "signs * signs.shape[1] ** 0.5"),
         "You multiplied the signs by √d_in instead of dividing: the step is far too long."),
    ],
)
def batch_sign_step(gradient, radius):
    """Return the longest multiple of -sign(G) that changes no output of y = W x / sqrt(d_in) by more than eta."""
    signs = gradient.sign()
    return -radius * len(signs) ** 0.5 * signs / torch.linalg.matrix_norm(signs, 2)


EXERCISES = lesson.exercises
