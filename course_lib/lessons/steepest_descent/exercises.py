"""Exercises of lesson 06, steepest_descent."""

import math

import torch

from course_lib.lessons.steepest_descent.contents import lesson
from course_lib.optimization.steepest_descent import dual_norm, primal_norm
from course_lib.teaching import but, edit, inputs, integers, uniform, whole


def _matrix(rows, columns, generator):
    """A normal matrix of one decimal that is never zero."""
    gradient = torch.randn(rows, columns, generator=generator, dtype=torch.float64).round(decimals=1)
    gradient[0, 0] += 3
    return gradient


MATRIX_AND_RADIUS = inputs(rows=whole(2, 4), columns=whole(2, 4), gradient=_matrix, radius=uniform(0.1, 0.9, digits=1))


def _in_the_ball(norm):
    return lambda radius, answer: float(primal_norm(answer, norm=norm)) <= radius * (1 + 1e-8)


def _lowest(norm):
    return lambda gradient, radius, answer: (
        float((gradient * answer).sum()) <= -radius * float(dual_norm(gradient, norm=norm)) + 1e-8)


@lesson.exercise(
    "06.1", "The step on the spectral ball", difficulty=2, minutes=8,
    prompt="Write `spectral_step(gradient, radius)`: the matrix $\\Delta$ that makes $\\langle G, \\Delta\\rangle$ as small "
    "as possible among all whose largest singular value is at most $\\eta$. `gradient` is $G$, a float64 matrix of any "
    "shape, `radius` is $\\eta$; return a matrix of the same shape.",
    draw=MATRIX_AND_RADIUS,
    properties=[
        ("The largest singular value of your step is above the radius.", _in_the_ball("spectral")),
        ("A step inside the ball lowers the linear model further than yours.", _lowest("spectral")),
    ],
    hints=(
        "In the singular directions of G, the product with G is a sum of singular values times gains.",
        "Each gain is at most η in size, so each direction should use all of it.",
        "Keep the singular vectors of G and replace each singular value; torch.linalg.svd returns V already transposed.",
    ),
    mistakes=[
        ("went uphill", edit("-radius", "radius"),
         "Your step goes uphill: the product with G should be as small as possible, so a minus is missing."),
        ("gradient over its Frobenius norm", edit("left @ right", "gradient / gradient.norm()"),
         "You scaled the gradient to Frobenius length η. That is the step on the L2 ball; on the spectral ball every "
         "singular value may reach η."),
        ("gradient over its spectral norm", edit("left, _, right", "left, values, right", "left @ right",
                                                 "gradient / values[0]"),
         "Only your largest singular value is η. The others may grow up to η as well, and each gains."),
        ("signs of the entries", edit("left @ right", "gradient.sign()"),
         "You took the signs of the entries, the step of the L∞ ball. Here the singular values become equal, not the "
         "entries."),
        ("full matrices", edit("False", "True"),
         "torch.linalg.svd returns square factors by default, whose product has the wrong shape unless G is square. Ask "
         "for full_matrices=False."),
        ("kept the singular values", edit("left, _, right", "left, values, right", "left @ right",
                                          "left @ (values[:, None] * right)"),
         "You multiplied by the singular values, which gives back the gradient. On the spectral ball each of them becomes "
         "η."),
        ("inverted the singular values", edit("left, _, right", "left, values, right", "left @ right",
                                              "left @ (right / values[:, None])"),
         "You divided by the singular values once too often: U S⁻¹Vᵀ has large values where G has small ones. All should be "
         "η."),
        ("the largest direction only", edit("left @ right", "left[:, :1] @ right[:1]"),
         "You kept the first singular direction only. That is optimal where the *sum* of the singular values is bounded; "
         "here each may reach η."),
        ("forgot the radius", edit("-radius * left", "-left"),
         "Your singular values are 1. The ball has radius η, so each of them should be η."),
        ("transposed twice", edit("left @ right", "left @ right.T"),
         "You transposed V once too often: torch.linalg.svd returns its transpose already."),
    ],
)
def spectral_step(gradient, radius):
    """The minimiser of <G, D> over matrices D whose largest singular value is at most eta."""
    left, _, right = torch.linalg.svd(gradient, full_matrices=False)
    return -radius * left @ right


def _turned_back(gradient_1, gradient_2, degrees):
    """Return the turned gradient g Q^T, and how far each weight then moves along its own entry of the gradient.

    The sign step of length 1 on turned inputs, -sign(g Q^T), is -sign(g Q^T) Q on the inputs' own axes.
    """
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    turned = (c * gradient_1 - s * gradient_2, s * gradient_1 + c * gradient_2)
    up, down = (math.copysign(1, x) if abs(x) > 1e-9 else 0.0 for x in turned)
    step = (-(c * up + s * down), -(c * down - s * up))
    return turned, (gradient_1 * step[0], gradient_2 * step[1])


def _why_not(gradient_1, gradient_2, degrees):
    """Name what keeps a proposed case from being a counterexample."""
    turned, along = _turned_back(gradient_1, gradient_2, degrees)
    if max(along) >= 0.01:
        return "none"
    if abs((degrees + 45) % 90 - 45) < 1e-6:
        return "quarter turns"
    if gradient_1 == 0 or gradient_2 == 0:
        return "no entry"
    if max(along) > 1e-9:
        return "too little"
    if abs(abs(gradient_1) - abs(gradient_2)) < 1e-9:
        return "equal entries"
    if min(abs(x) for x in turned) <= 1e-9:
        return "on the border"
    return "downhill"


def _blocks(name):
    return lambda answer: _why_not(**{key: float(value) for key, value in answer.items()}) == name


def _turn(gradient_1, gradient_2, degrees):
    return {"gradient_1": gradient_1, "gradient_2": gradient_2, "degrees": degrees}


lesson.flaw(
    "06.2", "Against its own gradient", difficulty=2, minutes=6,
    prompt="A layer has two inputs and one output, so its gradient is a row $g = (g_1, g_2)$. The inputs are turned by "
    "$\\varphi$ degrees, $Q = \\begin{pmatrix} \\cos\\varphi & -\\sin\\varphi \\\\ \\sin\\varphi & \\cos\\varphi "
    "\\end{pmatrix}$, and the gradient becomes $gQ^\\top$. Someone claims: *the sign step moves each weight downhill. So "
    "does $-\\mathrm{sign}(gQ^\\top)$ on the turned inputs, and turned back, as $-\\mathrm{sign}(gQ^\\top)\\,Q$, it still "
    "moves each weight against its own entry of $g$.* Give a counterexample: a dictionary with the numbers `gradient_1`, "
    "`gradient_2` and `degrees`, such that for one weight the entry of this step times its entry of $g$ is 0.01 or more.",
    answer=_turn(3.0, 0.1, 60.0),
    properties=[
        ("Turned back, neither weight moves uphill by 0.01 or more.", _blocks("none")),
    ],
    hints=(
        "Take one entry of g much larger than the other. Which of them decides the signs of the turned gradient?",
        "For g = (3, 0.1) and angles between 0 and 90 degrees both turned signs are mostly those of the entry 3.",
        "The step turned back is then -(cos + sin, cos - sin). When does its second entry change its sign?",
    ),
    mistakes=[
        ("quarter turns", _turn(3.0, 0.1, 90.0),
         "A turn by a multiple of 90 degrees swaps the inputs and flips signs; the sign step then turns with the gradient. "
         "Take another angle.", _blocks("quarter turns")),
        ("no entry", _turn(3.0, 0.0, 30.0),
         "An entry of your gradient is 0, so that weight has neither uphill nor downhill. Take two entries that are not 0.",
         _blocks("no entry")),
        ("equal entries", _turn(1.0, 1.0, 60.0),
         "Your entries have the same size, so neither outvotes the other, at any angle. Take one much larger.",
         _blocks("equal entries")),
        ("too little", _turn(3.0, 0.001, 60.0),
         "The right idea, but the product is below 0.01. Make the smaller entry a little larger.", _blocks("too little")),
        ("on the border", _turn(1.0, math.sqrt(3), 30.0),
         "At your angle an entry of the turned gradient is 0, so only one weight of the turned inputs moves. Turn further.",
         _blocks("on the border")),
        ("both downhill", _turn(3.0, 0.1, 30.0),
         "Turned back, both weights still move downhill. Look for an angle at which the larger entry decides both signs and "
         "the smaller one is carried along the wrong way.", _blocks("downhill")),
    ],
)


@lesson.exercise(
    "06.3", "A price on the largest entry", difficulty=1, minutes=6,
    prompt="Write `priced_step(gradient, alpha)`: the minimiser of "
    "$\\langle g, \\Delta\\rangle + \\frac1\\alpha\\lVert\\Delta\\rVert_\\infty^2$. `gradient` is $g$, a float64 tensor of "
    "two to four entries, none of them zero, and `alpha` is $\\alpha > 0$; return a tensor of the same shape.",
    draw=inputs(
        n=whole(2, 4), sizes=uniform(0.2, 3.0, "n", digits=1), ups=integers("n", 0, 1),
        gradient=lambda sizes, ups: sizes * (2 * ups - 1), alpha=uniform(0.2, 1.8, digits=1),
    ),
    properties=[
        ("The step should lower the linear model.", lambda gradient, answer: float(gradient @ answer) < 0),
        ("The objective at your step is not the smallest possible.",
         lambda gradient, alpha, answer: float(gradient @ answer + answer.abs().max() ** 2 / alpha)
         <= -alpha / 4 * float(gradient.abs().sum()) ** 2 + 1e-9),
    ],
    hints=(
        "All entries of the step may be as large as the largest one without a further penalty.",
        "So every entry has the same size M; only its sign depends on the entry of g.",
        "M is α/2 times the norm of g that is dual to the largest entry.",
    ),
    mistakes=[
        ("went uphill", edit("-0.5", "0.5"),
         "Your step goes uphill: each weight moves against the sign of its gradient."),
        ("left out the dual norm", edit(" * gradient.abs().sum()", ""),
         "Your step is as long for a small gradient as for a large one. That is a constrained step; the penalty makes the "
         "length α/2 times ‖g‖₁."),
        ("forgot the one half", edit("-0.5 * ", "-"), "Your step is twice too long: the derivative of M²/α is 2M/α."),
        ("largest entry", edit("sum", "max"),
         "You measured the gradient by its largest entry. The dual of the largest entry is the sum."),
        ("gradient descent", edit("gradient.abs().sum() * gradient.sign()", "gradient"),
         "That is the step for the squared L2 penalty, gradient descent."),
        ("mean for sum", edit("sum()", "mean()"),
         "You took the mean of the absolute entries. The dual norm is their sum: every weight adds its own gain."),
        ("summed with signs", edit("gradient.abs().sum()", "gradient.sum()"),
         "You added the entries with their signs, and they cancel. ‖g‖₁ is the sum of their absolute values."),
        ("Euclidean length", edit("gradient.abs().sum()", "gradient.norm()"),
         "You measured the gradient by its Euclidean length. For the largest entry as penalty the dual norm is the sum of "
         "the absolute entries."),
        ("divided by the step size", edit("* alpha", "/ alpha"),
         "You divided by α. A larger α makes long steps cheaper, so the step grows with it: M = (α/2)‖g‖₁."),
        ("moved one weight", edit("gradient.sign()", "gradient.sign() * torch.eye(len(gradient))[gradient.abs().argmax()]"),
         "You moved only the weight with the largest gradient. Under this penalty all the others may move as far at no "
         "further cost.", lambda answer: int((answer != 0).sum()) == 1),
    ],
)
def priced_step(gradient, alpha):
    """The minimiser of <g, D> + max_i |D_i|^2 / alpha."""
    return -0.5 * alpha * gradient.abs().sum() * gradient.sign()


def _is_lower(gradient_1, gradient_2, alpha, step_1, step_2):
    """Whether <g, D> + ||D||_2 / alpha, without the square, is lower at the step than at -(alpha/2) g."""
    objective = lambda d1, d2: gradient_1 * d1 + gradient_2 * d2 + math.hypot(d1, d2) / alpha  # noqa: E731
    return objective(step_1, step_2) <= objective(-alpha / 2 * gradient_1, -alpha / 2 * gradient_2) - 0.01


def _diagnosis(gradient_1, gradient_2, alpha, step_1, step_2):
    """Name what keeps a proposed counterexample from being one."""
    if _is_lower(gradient_1, gradient_2, alpha, step_1, step_2):
        return "none"
    printed, step = (-alpha / 2 * gradient_1, -alpha / 2 * gradient_2), (step_1, step_2)
    slope = alpha * math.hypot(gradient_1, gradient_2)
    if abs(slope - 1) < 1e-3:
        return "border"
    if math.dist(step, printed) <= 1e-3 * math.hypot(*printed):
        return "same"
    if gradient_1 * step_1 + gradient_2 * step_2 > 0:
        return "uphill"
    if slope > 1:
        return "too short" if math.hypot(*step) < math.hypot(*printed) else "other"
    return "too long" if math.hypot(*step) > math.hypot(*printed) else "other"


def _is(name):
    return lambda answer: _diagnosis(**{key: float(value) for key, value in answer.items()}) == name


def _case(gradient_1, gradient_2, alpha, step_1, step_2):
    return {"gradient_1": gradient_1, "gradient_2": gradient_2, "alpha": alpha, "step_1": step_1, "step_2": step_2}


lesson.flaw(
    "06.4", "The price without the square", difficulty=2, minutes=8,
    prompt="Someone forgets the square in the price and claims: $\\langle g, \\Delta\\rangle + "
    "\\frac1\\alpha\\lVert\\Delta\\rVert_2$ is smallest at $\\Delta = -\\frac\\alpha2 g$. Give a counterexample in the "
    "plane: a dictionary with the numbers `gradient_1`, `gradient_2`, `alpha` ($\\alpha > 0$), `step_1` and `step_2`, such "
    "that this objective is lower at your step than at $-\\frac\\alpha2 g$, by 0.01 or more.",
    answer=_case(3.0, 4.0, 0.4, -6.0, -8.0),
    needs=[
        ("With α of 0 or below the second term is no penalty. Take α > 0.", lambda alpha: alpha > 0),
    ],
    properties=[
        ("At your step the objective is not lower than at the claimed minimiser.", _is("none")),
    ],
    hints=(
        "Look at steps along -g only: how does the objective depend on their length?",
        "Along -g both terms are proportional to the length, so the objective is a straight line.",
        "If ‖g‖₂ > 1/α the line falls for ever; if ‖g‖₂ < 1/α it rises from 0. Choose your step accordingly.",
    ),
    mistakes=[
        ("no gradient", _case(0.0, 0.0, 0.4, -0.3, -0.4),
         "With g = 0 the best step is 0, and so is the claimed one. Take a gradient that is not 0.",
         but(lambda gradient_1, gradient_2: gradient_1 == gradient_2 == 0)),
        ("the same step", _case(3.0, 4.0, 0.4, -0.6, -0.8),
         "Your step is the claimed one, -(α/2)g: give another one that is better.", _is("same")),
        ("uphill", _case(3.0, 4.0, 0.4, 0.6, 0.8),
         "Your step goes uphill: its product with g is positive, and the penalty is paid on top.", _is("uphill")),
        ("on the border", _case(3.0, 4.0, 0.2, -6.0, -8.0),
         "You chose ‖g‖₂ = 1/α (nearly): there both terms cancel along -g, and no step is below 0.", _is("border")),
        ("shorter where longer is better", _case(3.0, 4.0, 0.4, -0.3, -0.4),
         "Here ‖g‖₂ > 1/α, so the objective falls along -g without end: take a longer step, not a shorter one.",
         _is("too short")),
        ("longer where shorter is better", _case(0.3, 0.4, 0.4, -0.3, -0.4),
         "Here ‖g‖₂ < 1/α, so the penalty outweighs every gain: take a shorter step, or none.", _is("too long")),
    ],
)


@lesson.exercise(
    "06.5", "A step whose effect ignores the width", difficulty=3, minutes=12,
    prompt="Write `rms_step(gradient, radius)`: the matrix $\\Delta$ that makes $\\langle G, \\Delta\\rangle$ as small as "
    "possible while no input $x$ has its output changed by more than $\\eta$ times its own root mean square: "
    "$\\mathrm{RMS}(\\Delta x) \\le \\eta\\,\\mathrm{RMS}(x)$ for all $x$. `gradient` is $G$, a float64 matrix of shape "
    "`(d_out, d_in)`, `radius` is $\\eta$.",
    draw=MATRIX_AND_RADIUS,
    properties=[
        ("Some input has its output changed by more than the radius allows.", _in_the_ball("rms_to_rms")),
        ("A step that keeps to the bound lowers the linear model further than yours.", _lowest("rms_to_rms")),
    ],
    hints=(
        "Write RMS(Δx) and RMS(x) by Euclidean lengths: which power of d_out and of d_in appears?",
        "The condition is a bound on the spectral norm of Δ. Which one?",
        "The spectral norm may be up to η times the root of a ratio of the two widths; then it is exercise 06.1.",
    ),
    mistakes=[
        ("left out the widths", edit(" * math.sqrt(rows / columns)", ""),
         "That is the step of the spectral ball. RMS divides by the number of entries, which differs between input and "
         "output: a ratio of widths is missing."),
        ("ratio upside down", edit("rows / columns", "columns / rows"),
         "Your ratio is upside down. A wide output has a small RMS for the same length, so it allows a longer step: d_out "
         "belongs on top."),
        ("no square root", edit("math.sqrt", ""),
         "The square root is missing: RMS divides the Euclidean length by the root of the number of entries."),
        ("never below one", edit("(rows / columns)", "(max(1, rows / columns))"),
         "You used max(1, d_out/d_in), as torch.optim.Muon does by default. For wide inputs the exact factor is below 1, "
         "and your step changes some output by more than η."),
        ("one over the input width", edit("math.sqrt(rows / columns)", "(1 / columns)"),
         "You divided by the input width. That is the usual factor for a sign step; here the singular values are bounded, "
         "and the factor is a root of d_out/d_in."),
        ("one over the root of the input width", edit("math.sqrt(rows / columns)", "math.sqrt(1 / columns)"),
         "Your factor has the input width only. RMS divides the output's length by its own width too, so √d_out belongs "
         "on top."),
        ("root of both widths", edit("rows / columns", "rows * columns"),
         "You multiplied the widths. RMS(Δx) ≤ η RMS(x) divides one root by the other: √(d_out/d_in)."),
        ("went uphill", edit("-radius", "radius"),
         "Your step goes uphill: the product with G should be as small as possible, so a minus is missing."),
        ("signs of the entries", edit("left @ right", "gradient.sign()"),
         "You took the signs of the entries. The bound is on what the matrix does to a whole input, so its singular values "
         "should be equal, not its entries."),
        ("scaled the gradient to the bound", edit("left, _, right", "left, values, right", "left @ right",
                                                   "gradient / values[0]"),
         "Your step keeps to the bound, but only its largest singular value reaches it. The others may grow as far, and "
         "each gains."),
    ],
)
def rms_step(gradient, radius):
    """The minimiser of <G, D> over matrices D with RMS-to-RMS norm at most eta."""
    left, _, right = torch.linalg.svd(gradient, full_matrices=False)
    rows, columns = gradient.shape
    return -radius * math.sqrt(rows / columns) * left @ right


EXERCISES = lesson.exercises
