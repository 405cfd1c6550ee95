"""Exercises of lesson 01, gradient_descent_stability."""

import math

import torch

from course_lib.lessons.gradient_descent_stability.contents import lesson
from course_lib.optimization.gradient_descent import worst_rate
from course_lib.teaching import edit, inputs, normal, one_of, uniform, whole


def _path(step_size=0.2, *, start=0.0, sigma=2.0, target=3.0, steps=5, half=False):
    """The last iterate of gradient descent on (y - sigma w)^2, run one by one."""
    weight = start
    for _ in range(steps):
        weight += (1 if half else 2) * step_size * sigma * (target - sigma * weight)
    return weight


lesson.value(
    "01.1", "The fifth iterate", difficulty=1, minutes=4,
    prompt="Let $\\sigma = 2$, $y = 3$, $\\eta = 0.2$ and $w_0 = 0$. Use (01.1): by which number does a step multiply the "
    "error $w_t - w^*$? What is $w_5$? Give it to four decimals.",
    answer=1.61664,
    properties=[
        ("Five steps, run one by one, end elsewhere.", lambda answer: abs(float(answer) - _path()) <= 1e-3),
    ],
    hints=(
        "The solution is w* = y/σ = 1.5, and the first error is -1.5.",
        "The factor is 1 - 2 · 0.2 · 4. Its sign matters.",
        "Multiply the first error five times by the factor, then add w*.",
    ),
    mistakes=[
        ("one factor for all steps", 2.4,
         "You multiplied the error once. That is w₁; each of the five steps multiplies it again."),
        ("factor without its sign", 1.38336,
         "You took 0.6 for the factor. It is -0.6: the path jumps to the other side of w* at every step, and after five "
         "steps it is above."),
        ("one step too few", 1.30560, "That is w₄: the error is multiplied five times."),
        ("one step too many", 1.430016, "That is w₆: the error is multiplied five times."),
        ("the error itself", 0.11664, "That is the error w₅ - w*. Add w* = 1.5."),
        ("the error of the wrong sign", -0.11664,
         "That is the error with its sign turned. The first error is w₀ - w* = -1.5; and w₅ asks for w* besides."),
        ("factor of the loss with one half", 1.49952,
         "You used 1 - ησ² = 0.2, the factor of ½(y - σw)². Without the ½ the gradient is twice as large."),
        ("solution w* = y", 3.23328,
         "You took w* = y. The equation is σw = y, so w* = y/σ = 1.5."),
    ],
)


def _shrinks(step_size, *, sigma=2.0, steps=400):
    """Whether the error of the loss 1/2 (y - sigma w)^2 has not grown after `steps` steps, run one by one."""
    error = 1.0
    for _ in range(steps):
        error = error - step_size * sigma**2 * error
        if abs(error) > 1e12:
            break
    return abs(error) <= 1


lesson.value(
    "01.2", "The loss with one half", difficulty=1, minutes=3,
    prompt="Redo (01.3) for another loss: many texts write $L(w) = \\frac12 (y - \\sigma w)^2$. Let $\\sigma = 2$. What is "
    "the limit of the step size: the number $\\eta_{max}$ such that gradient descent converges for every "
    "$0 < \\eta < \\eta_{max}$ and for no larger $\\eta$?",
    answer=0.5,
    properties=[
        ("A slightly larger step than your limit still converges.", lambda answer: not _shrinks((1 + 1e-6) * answer)),
        ("A slightly smaller step than your limit does not converge.",
         lambda answer: answer > 0 and _shrinks((1 - 1e-6) * answer)),
    ],
    hints=(
        "Differentiate: what is the gradient of 1/2 (y - σw)², and what is it without the 1/2?",
        "Write one step for the error w - w* and read off the factor it is multiplied by.",
        "The factor is 1 - ησ². For which η is its absolute value below 1?",
    ),
    mistakes=[
        ("limit of the loss without 1/2", 0.25,
         "That is 1/σ², the limit for the loss without the 1/2: halving the loss halves the gradient, so the step may be "
         "twice as long."),
        ("best step instead of limit", 0.125,
         "That is 1/(2σ²), the step that solves the loss without 1/2 at once; the question asks where convergence ends."),
        ("forgot the square", 1.0,
         "You divided by σ instead of σ²: the gradient holds σ once from the residual and once from the chain rule."),
        ("multiplied by the square", 8.0,
         "You multiplied by σ²: a steeper loss needs a shorter step, not a longer one."),
        ("multiplied by sigma", 4.0,
         "You multiplied by σ: a steeper loss needs a shorter step, not a longer one."),
        ("the number alone", 2.0,
         "2 is the limit for the product ησ². Divide by σ² to get the limit for η."),
        ("a step that converges, not the limit", 0.4,
         "Gradient descent converges there, and for longer steps too: the question asks for the largest such bound.",
         lambda answer: 0.25 < answer < 0.5 and answer < 0.4999),
        ("negative step", -0.5,
         "A negative step climbs: 1 - ησ² is then larger than 1.", lambda answer: answer < 0),
    ],
)


def _factor(singular_value, step_size):
    return 1 - 2 * step_size * singular_value**2


def _off_ties(singular_value, share, accuracy):
    """A step size near `share` of its limit for which no power of the factor meets the accuracy.

    The powers of 1 - 0.9 meet 0.1, 0.01, ... in exact arithmetic, and rounding decides which side of them a float is on.
    """
    step_size = round(share / singular_value**2, 3)
    while 0 < (factor := _factor(singular_value, step_size)) < 1:
        powers = math.log(accuracy) / math.log(factor)
        if abs(powers - round(powers)) > 1e-6:
            break
        step_size = round(step_size + 0.001, 3)
    return step_size


@lesson.exercise(
    "01.3", "How many steps", difficulty=2, minutes=8,
    prompt="Write `first_step_below(singular_value, step_size, accuracy)`: from $w_0 = 0$ on the loss $(y - \\sigma w)^2$, "
    "by (01.2), the first whole number $t$ with $|w_t - w^*| < \\varepsilon |w^*|$. You may assume "
    "$0 < \\eta < 1/\\sigma^2$ and $0 < \\varepsilon < 1$; any such numbers may be tested.",
    # Both sides of 1 / (2 sigma^2): below it the iterates approach from one side, above it they overshoot.
    draw=inputs(
        singular_value=uniform(0.5, 2.0, digits=1), share=uniform(0.08, 0.92), goal=one_of(0.5, 0.1, 0.01, 0.001),
        step_size=lambda singular_value, share, goal: _off_ties(singular_value, share, goal), accuracy=lambda goal: goal,
    ).sometimes(0.4,  # where a wrong rounding or a missing case shows: powers that meet epsilon, and a factor of 0
        {"singular_value": 1.0, "step_size": 0.25, "accuracy": 0.25},
        {"singular_value": 1.0, "step_size": 0.75, "accuracy": 0.125},
        {"singular_value": 1.0, "step_size": 0.5, "accuracy": 0.1},
        {"singular_value": 2.0, "step_size": 0.125, "accuracy": 0.01},
    ),
    properties=[
        ("The number of steps is a whole number, 1 or more.", lambda answer: answer >= 1 and float(answer).is_integer()),
        ("After your number of steps the error is not yet below the accuracy.",
         lambda singular_value, step_size, accuracy, answer:
         abs(_factor(singular_value, step_size)) ** float(answer) < accuracy),
        ("One step earlier the error is below the accuracy already.",
         lambda singular_value, step_size, accuracy, answer:
         abs(_factor(singular_value, step_size)) ** (float(answer) - 1) >= accuracy),
    ],
    hints=(
        "From w_0 = 0 the relative error after t steps is |1 - 2ησ²| to the power t.",
        "Take logarithms, and remember that dividing by a negative number turns the inequality round.",
        "t is the smallest whole number above ln ε / ln |1 - 2ησ²|; what if the factor is exactly 0?",
    ),
    mistakes=[
        ("left out the absolute value", edit("abs", ""),
         "You left out the absolute value: above η = 1/(2σ²) the factor 1 - 2ησ² is negative and has no "
         "logarithm."),
        ("no case for a factor of 0", edit("1 if factor == 0 else ", ""),
         "Right but for one case: at η = 1/(2σ²) the factor is exactly 0, and 0 has no logarithm. One step is enough "
         "there."),
        ("rounded up", edit("floor", "ceil", ") + 1", ")"),
         "You rounded up, which is right unless the bound is a whole number: there the error equals ε and is not below it. "
         "Take the next whole number."),
        ("rounded up, no case for a factor of 0", edit("1 if factor == 0 else ", "", "floor", "ceil", ") + 1", ")"),
         "Two cases are left: at η = 1/(2σ²) the factor is 0 and has no logarithm, and where the bound is a whole number "
         "the error equals ε and is not below it."),
        ("rounded down", edit("math.floor(", "max(1, math.floor(", " + 1", ")"),
         "You rounded down: at that step the error is not below ε yet."),
        ("rounded down, no case for a factor of 0", edit("1 if factor == 0 else ", "", " + 1", ""),
         "You rounded down: at that step the error is not below ε yet. And at η = 1/(2σ²) the factor is 0, which has no "
         "logarithm."),
        ("forgot the square", edit("singular_value**2", "singular_value"),
         "Your factor has σ where σ² belongs: the gradient holds σ twice."),
        ("did not round", edit("1 if", "0.0 if", "math.floor", "", " + 1", ""),
         "You returned the bound itself. Steps are whole: the answer is the next whole number above it."),
        ("forgot the 2", edit("2 * ", ""),
         "Your factor is 1 - ησ²: that belongs to the loss with 1/2. Here it is 1 - 2ησ²."),
        ("turned the fraction over", edit("math.log(accuracy) / math.log(factor)", "math.log(factor) / math.log(accuracy)"),
         "Your fraction is upside down: ln ε belongs on top, since a smaller ε needs more steps."),
        ("one step too many", edit("1 if factor == 0", "2 if factor == 0", ") + 1", ") + 2"),
         "One step too many: the error is below ε already one step earlier. Is your count that of the loop, or of the "
         "iterates?"),
        ("one step too many, but for a factor of 0", edit(") + 1", ") + 2"),
         "One step too many: the error is below ε already one step earlier."),
    ],
)
def first_step_below(singular_value, step_size, accuracy):
    """The error after t steps is |1 - 2 eta sigma^2|^t of the first: take logarithms; a factor of 0 needs one step."""
    factor = abs(1 - 2 * step_size * singular_value**2)
    return 1 if factor == 0 else math.floor(math.log(accuracy) / math.log(factor)) + 1


def _beats_neighbours(singular_values, answer):
    rate = lambda scale: worst_rate(singular_values, step_size=float(answer) * scale)  # noqa: E731
    neighbours = (0.5, 0.9, 0.99, 0.999, 1.001, 1.01, 1.1, 1.5)
    return rate(1) < 1 and all(rate(1) <= rate(scale) + 1e-12 for scale in neighbours)


@lesson.exercise(
    "01.4", "The best step for any spectrum", difficulty=3, minutes=10,
    prompt="Write `best_step_size(singular_values)`: the step size $\\eta$ that makes the slowest direction as fast as "
    "possible, $\\min_\\eta \\max_i |1 - 2\\eta\\sigma_i^2|$, over the directions that move at all. `singular_values` is a "
    "float64 tensor of two to six entries in any order, one of which may be zero; return a number.",
    draw=inputs(
        n=whole(2, 5), values=uniform(0.3, 3.0, "n", digits=1), zeros=one_of(0, 0, 0, 1, 1),
        singular_values=lambda values, zeros, generator: torch.cat([values, values.new_zeros(zeros)])[
            torch.randperm(len(values) + zeros, generator=generator)],
    ),
    properties=[
        ("The step must be positive.", lambda answer: float(answer) > 0),
        ("A nearby step has a smaller worst-case factor than yours.", _beats_neighbours),
    ],
    hints=(
        "Draw |1 - 2ησ²| against η for three values of σ. Which of the curves are ever the highest?",
        "1 - 2ησ² falls as σ² grows, so only the largest and the smallest σ can have the largest absolute value.",
        "Set 1 - 2ησ_min² equal to 2ησ_max² - 1, and leave out σ = 0: such a direction has no error that moves.",
    ),
    mistakes=[
        ("kept the zero", edit("[singular_values > 0]", ""),
         "You let σ = 0 count as the smallest value. A direction with σ = 0 never moves, whatever the step; take the "
         "smallest σ that is not zero."),
        ("first and last entry", lambda s: 1 / (s[0] ** 2 + s[-1] ** 2),
         "You took the first and the last entry. The values come in any order: look for the largest and the smallest that "
         "is not zero."),
        ("forgot the squares", edit("max() ** 2", "max()", "min() ** 2", "min()"),
         "You added the singular values themselves: curvature goes with σ²."),
        ("factor 2 of the other loss", edit("1 / ", "2 / "),
         "That is the best step for the loss with 1/2, twice the one asked for here: it lies above the limit."),
        ("average of all curvatures", lambda s: 1 / (2 * s[s > 0].square().mean()),
         "You used the average of all σ². Only the two extremes matter: the directions between them are never the "
         "slowest."),
        ("solved the steepest direction", edit("min", "max"),
         "That step finishes the steepest direction at once and is too short for the flattest one: balance the two."),
        ("the limit itself", edit(" + nonzero.min() ** 2", ""),
         "That is the stability limit: there the steepest direction keeps its error for ever."),
        ("the step of the flattest direction", edit("max()", "min()"),
         "That step solves the flattest direction at once and is too long for the steepest one: balance the two."),
        ("middle of the two steps", lambda s: (1 / (2 * s.max() ** 2) + 1 / (2 * s[s > 0].min() ** 2)) / 2,
         "You took the middle of the steps that solve the two extreme directions. Balance their factors: "
         "1 - 2ησ_min² = 2ησ_max² - 1."),
        ("half of it", edit("1 / ", "0.5 / "),
         "That is half the best step: the steepest direction could overshoot, and the flattest would gain."),
        ("sum of all curvatures", lambda s: 1 / s.square().sum(),
         "You added the σ² of all directions. Only the largest and the smallest decide; with two directions the two agree."),
        ("difference of the extremes", edit(" + nonzero", " - nonzero"),
         "You took the difference of the two extreme σ²: setting 1 - 2ησ_min² = 2ησ_max² - 1 gives their sum."),
        ("largest over smallest", lambda s: 1 / (s.max() / s[s > 0].min()) ** 2,
         "You used the condition number κ alone: it sets the rate, and the step has the units of 1/σ²."),
    ],
)
def best_step_size(singular_values):
    """Return the step size with the smallest worst-case factor."""
    nonzero = singular_values[singular_values > 0]
    return 1 / (nonzero.max() ** 2 + nonzero.min() ** 2)


def _autograd_step(matrix, target, weights, step_size):
    leaf = weights.clone().requires_grad_()
    (gradient,) = torch.autograd.grad((target - matrix @ leaf).square().sum(), leaf)
    return weights - step_size * gradient


@lesson.exercise(
    "01.5", "One step for a matrix", difficulty=1, minutes=5,
    prompt="Write `gradient_step(matrix, target, weights, step_size)`: one step of gradient descent on "
    "$L(w) = \\lVert y - Xw\\rVert^2$. `matrix` is $X$ with shape `(rows, columns)`, `target` is $y$, `weights` is $w$; "
    "return the new weights, a float64 tensor of shape `(columns,)`.",
    draw=inputs(rows=whole(2, 4), matrix=normal("rows 2"), target=normal("rows"), weights=normal("2"),
                step_size=uniform(0.01, 0.3)),
    properties=[
        ("A step should be weights minus step_size times the gradient of the loss.",
         lambda matrix, target, weights, step_size, answer: torch.allclose(
             answer, _autograd_step(matrix, target, weights, step_size), atol=1e-9)),
    ],
    hints=(
        "The loss is a sum of squares: its gradient is -2 times something times the residual y - Xw.",
        "That something must turn a vector with `rows` entries into one with `columns` entries.",
        "w_new = w + 2η Xᵀ (y - Xw).",
    ),
    mistakes=[
        ("went uphill", edit("weights + 2", "weights - 2"),
         "Your step goes uphill: with the residual y - Xw the gradient is -2Xᵀ(y - Xw), and minus its minus is a plus."),
        ("dropped the 2", edit("2 * ", ""),
         "The factor 2 is missing: it comes from differentiating the square, and only the loss with 1/2 cancels it."),
        ("averaged over rows", edit("2 * ", "2 / len(target) * "),
         "You divided by the number of rows: that is the gradient of the mean squared error, this loss is the sum."),
        ("returned the change", edit("weights + ", ""),
         "You returned the change alone; the new weights are the old ones plus that change."),
        ("missing transpose", edit("matrix.T", "matrix"),
         "The gradient holds Xᵀ, and you multiplied the residual by X: with as many rows as columns the numbers are wrong, "
         "else the shapes do not fit."),
        ("uphill, without the 2", edit("weights + 2 *", "weights -"),
         "Two slips: the step goes uphill, and the factor 2 of the square is missing."),
        ("no step size", edit("step_size * ", ""),
         "The step size is missing: you subtracted the whole gradient."),
        ("gradient of the target alone", edit("(target - matrix @ weights)", "target"),
         "You used the target instead of the residual y - Xw: what the weights already explain must be subtracted."),
    ],
)
def gradient_step(matrix, target, weights, step_size):
    """One step of gradient descent on ||y - X w||^2."""
    return weights + 2 * step_size * matrix.T @ (target - matrix @ weights)


EXERCISES = lesson.exercises
