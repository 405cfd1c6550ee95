"""Exercises of lesson 03, ridge_noise_and_map."""

import math

import torch

from course_lib.lessons.ridge_noise_and_map.contents import lesson
from course_lib.optimization.ridge import noisy_copies, ridge
from course_lib.teaching import but, edit, inputs, normal, one_of, uniform, whole


def _fits_noisy_rows(answer):
    """Whether ridge with that penalty is plain least squares on noisy copies of the rows."""
    if not float(answer) > 0:
        return False
    drawn = torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrix, target = drawn[:, :3], drawn[:, 3]
    copies = noisy_copies(matrix, noise=0.2)
    noisy = torch.linalg.lstsq(copies.reshape(-1, 3), target.repeat(len(copies))[:, None]).solution[:, 0]
    return torch.allclose(ridge(matrix, target, float(answer)), noisy, rtol=1e-6, atol=1e-8)


lesson.value(
    "03.1", "Noise as a penalty", difficulty=1, minutes=3,
    prompt="A data set has $m = 50$ rows. Independent noise with standard deviation $0.2$ is added to every entry of "
    "$X$, afresh each time it is used. On average over the noise, $\\lVert \\tilde Xw - y\\rVert^2$ is then a ridge loss "
    "$\\lVert Xw - y\\rVert^2 + \\lambda\\lVert w\\rVert^2$. Which number is $\\lambda$?",
    answer=2.0,
    properties=[
        ("Ridge with your λ differs from least squares on noisy copies of a random 50 x 3 matrix.", _fits_noisy_rows),
    ],
    hints=(
        "Every row adds its own noise term (Nᵢᵀw)². What is its expectation?",
        "E(Nᵢᵀw)² is the variance of one noise entry times ‖w‖², and it is added once for each row.",
        "λ is the number of rows times the variance; the variance is the square of the standard deviation.",
    ),
    mistakes=[
        ("forgot the rows", 0.04, "That is σ²: it is added once for each of the 50 rows."),
        ("forgot the square", 10.0, "That is mσ. The penalty is a variance times m: square the standard deviation."),
        ("divided by the rows", 0.0008, "You divided by m. The loss is a sum over rows, so each row adds its σ²‖w‖²."),
        ("half of it", 1.0, "You halved it: that would belong to the penalty λ/2 beside a loss that has no 1/2. Here both "
         "terms are whole."),
        ("twice of it", 4.0, "You doubled it: the cross term 2(xᵀw - y)(Nᵀw) has expectation 0 and adds nothing."),
        ("the deviation alone", 0.2, "That is σ itself. The penalty is the variance σ², once for each of the m rows."),
        ("the number of rows", 50.0, "That is m. Each row adds its σ²‖w‖²: multiply by the variance."),
        ("rows squared", 100.0, "That is (mσ)². The noise of different rows is independent: variances add, mσ²."),
        ("minus", -2.0, "The penalty is positive: noise can only add to the average of a square.",
         lambda answer: answer < 0),
    ],
)


def _mean_square_factor(x, sigma, step_size):
    """E (1 - eta (x + N)^2)^2 by a three-sided coin that has the normal's moments up to order 5."""
    sides = ((-math.sqrt(3), 1 / 6), (0.0, 2 / 3), (math.sqrt(3), 1 / 6))
    return sum(chance * (1 - step_size * (x + sigma * side) ** 2) ** 2 for side, chance in sides)


@lesson.exercise(
    "03.2", "The longest step for the second moment", difficulty=2, minutes=12,
    prompt="Write `longest_step(x, sigma)` for noisy gradient descent on $\\frac12((x + N)w - y)^2$ with "
    "$N \\sim N(0, \\sigma^2)$: the number below which every step size keeps $E\\,w_t^2$ bounded and above which none "
    "does. `x` and `sigma` are positive numbers; return a number.",
    draw=inputs(x=uniform(0.3, 2.0), sigma=uniform(0.3, 1.5)),
    properties=[
        ("A step just below yours makes the second moment grow.",
         lambda x, sigma, answer:
         float(answer) > 0 and _mean_square_factor(x, sigma, (1 - 1e-6) * float(answer)) < 1),
        ("A step just above yours keeps the second moment bounded.",
         lambda x, sigma, answer: _mean_square_factor(x, sigma, (1 + 1e-6) * float(answer)) > 1),
    ],
    hints=(
        "Square the random factor 1 - η(x + N)² and take the expectation term by term.",
        "You need E(x + N)² and E(x + N)⁴; the moments of the noise are E N² = σ² and E N⁴ = 3σ⁴.",
        "1 - 2ηP + η²Q < 1 says 0 < η < 2P/Q. What are P and Q?",
    ),
    mistakes=[
        ("the notes' limit", edit("2 * square / fourth", "1 / square"),
         "That is the limit printed in the notes: neither the limit of the mean, which is twice as large, nor that of the "
         "second moment."),
        ("limit of the mean", edit("2 * square / fourth", "2 / square"),
         "That keeps the mean stable. The second moment needs E(x + N)⁴, which is more than the square of E(x + N)²."),
        ("fourth moment without the 3", edit("3 * sigma**4", "sigma**4"),
         "You took E N⁴ = σ⁴. For a normal variable it is 3σ⁴."),
        ("forgot the cross terms", edit(" + 6 * x**2 * sigma**2", ""),
         "You left out 6x²σ²: the middle term of the binomial (x + N)⁴ does not average out, since N² does not."),
        ("half the limit", edit("2 * square", "square"),
         "That is half the limit. There E a² is smallest (and for the loss without 1/2 it would be the limit). The limit "
         "is where E a² is 1 again."),
        ("four in the middle", edit("6 * ", "4 * "),
         "You took 4x²σ². The binomial coefficients of (x + N)⁴ are 1, 4, 6, 4, 1, and the middle one belongs to x²N²."),
        ("three in the middle", edit("6 * ", "3 * "),
         "You took 3x²σ². The middle binomial coefficient of (x + N)⁴ is 6; the 3 belongs to E N⁴ = 3σ⁴."),
        ("squared mean of the square", edit("6 * ", "2 * "),
         "You took 2x²σ², the middle term of (x² + σ²)². The expectation of the fourth power has 6x²σ²."),
        ("without noise", edit("2 * square / fourth", "2 / x**2"),
         "That is the limit without noise. With noise E(x + N)² and E(x + N)⁴ are larger."),
        ("deviation for the variance", lambda x, sigma: longest_step(x, math.sqrt(sigma)),
         "You put σ where σ² belongs: sigma is the standard deviation."),
    ],
)
def longest_step(x, sigma):
    """The limit of the step size for the second moment."""
    square = x**2 + sigma**2
    fourth = x**4 + 6 * x**2 * sigma**2 + 3 * sigma**4
    return 2 * square / fourth


lesson.flaw(
    "03.3", "Catch the printed limit", difficulty=2, minutes=8,
    prompt="The notes say that noisy gradient descent on $\\frac12((x + N)w - y)^2$ is stable for "
    "$0 < \\eta < 1/(x^2 + \\sigma^2)$. Give a counterexample: a dictionary with the numbers `x` $> 0$, `sigma` "
    "$\\ge 0$ and `step_size`, within the printed limit, for which $E\\,w_t^2$ (with $y = 0$) grows by more than 1% a step.",
    answer={"x": 1.0, "sigma": 1.0, "step_size": 0.45},
    needs=[
        ("Take an input x > 0.", lambda x: x > 0),
        ("A standard deviation is 0 or more.", lambda sigma: sigma >= 0),
        ("The printed condition has η > 0: take a positive step.", lambda step_size: step_size > 0),
        ("Your step is beyond the printed limit, so the notes do not call it stable.",
         lambda x, sigma, step_size: step_size < 1 / (x**2 + sigma**2)),
    ],
    properties=[
        ("For your numbers the second moment does not grow by more than 1% a step.",
         lambda x, sigma, step_size: _mean_square_factor(x, sigma, step_size) > 1.01),
    ],
    hints=(
        "The printed condition is about the mean. Which condition does the second moment add?",
        "Compare 1/(x² + σ²) with 2(x² + σ²)/(x⁴ + 6x²σ² + 3σ⁴): for which ratio σ/x is the second one smaller?",
        "Noise as large as the input is enough. Then take a step between the two limits, nearer to the larger one.",
    ),
    mistakes=[
        ("no noise", {"x": 1.0, "sigma": 0.0, "step_size": 0.9},
         "Without noise the second moment is the square of the mean, and the printed limit is safe.",
         but(lambda sigma: sigma == 0)),
        ("too little noise", {"x": 2.0, "sigma": 0.5, "step_size": 0.22},
         "With x² ≥ (1 + √2)σ² the printed limit happens to be safe: take more noise.",
         but(lambda x, sigma: x**2 >= (1 + math.sqrt(2)) * sigma**2)),
        ("too short a step", {"x": 1.0, "sigma": 1.0, "step_size": 0.3},
         "Your noise is large enough, but this step is below the limit of the second moment, or hardly above it: take a "
         "longer one.",
         but()),
    ],
)


def _is_stationary(matrix, target, penalty, answer):
    gradient = matrix.T @ (matrix @ answer - target) + penalty * answer
    return gradient.norm() <= 1e-8 * (1 + (matrix.T @ target).norm())


def _in_the_row_space(matrix, answer):
    inside = torch.linalg.lstsq(matrix.T, answer[:, None]).solution
    return (matrix.T @ inside - answer[:, None]).norm() <= 1e-8 * (1 + answer.norm())


def _primal_ridge(matrix, target, penalty):
    shifted = matrix.T @ matrix + penalty * torch.eye(matrix.shape[1], dtype=matrix.dtype)
    return torch.linalg.solve(shifted, matrix.T @ target)


@lesson.exercise(
    "03.4", "One unknown for each row", difficulty=2, minutes=8,
    prompt="Write `dual_ridge(matrix, target, penalty)`: the minimiser of "
    "$\\lVert Xw - y\\rVert^2 + \\lambda\\lVert w\\rVert^2$ by solving one $m \\times m$ system, never a $d \\times d$ one. "
    "`matrix` is $X$ with shape `(m, d)`, `target` is $y$, `penalty` is $\\lambda > 0$; return a float64 tensor of "
    "shape `(d,)`.",
    draw=inputs(m=whole(2, 3), d=lambda m: m + 2, matrix=normal("m d"), target=normal("m"),
                usual=uniform(0.2, 2.5), share=one_of(1.0, 1e-12), penalty=lambda usual, share: usual * share),
    properties=[
        ("The gradient Xᵀ(Xw - y) + λw should vanish at your weights.", _is_stationary),
        ("For a tiny λ your weights leave the span of the rows: the d x d system is nearly singular, and rounding is blown "
         "up. The m x m system has no such directions.", _in_the_row_space),
    ],
    hints=(
        "The solution lies in the span of the rows: w = Xᵀα for some α with m entries.",
        "Push Xᵀ through the inverse: the λ stays on the diagonal, the Gram matrix becomes XXᵀ.",
        "Solve (XXᵀ + λI) α = y with torch.linalg.solve and torch.eye, then map α back by Xᵀ.",
    ),
    mistakes=[
        ("the d x d system", _primal_ridge,
         "You solved the d x d system. It has the same solution, but with a tiny λ it is nearly singular, and rounding "
         "takes the weights away from it. The exercise asks for the m x m system.",
         # By solve, inverse or factor: right where rounding is not blown up.
         lambda matrix, target, penalty, answer: penalty < 1e-6 or _is_stationary(matrix, target, penalty, answer)),
        ("left out the penalty", edit(" + penalty * torch.eye(len(gram), dtype=gram.dtype)", ""),
         "Without λ this is the minimum-norm solution of Xw = y, not ridge."),
        ("added the penalty everywhere", edit(" * torch.eye(len(gram), dtype=gram.dtype)", ""),
         "`gram + penalty` adds λ to every entry of the matrix. Only the diagonal gets it: λ times the identity."),
        ("squared the penalty", edit("penalty * ", "penalty**2 * "),
         "You added λ² to the diagonal. λ is the penalty itself, already a variance."),
        ("penalty times rows", edit("penalty * ", "penalty * len(gram) * "),
         "You multiplied λ by the number of rows: that is right for a mean over the rows, this loss is a sum."),
        ("unit noise", edit("penalty * ", ""),
         "You put 1 in the place of λ. That is what a likelihood of variance 1 gives, as in the notes."),
        ("penalty over rows", edit("penalty * ", "penalty / len(gram) * "),
         "You divided λ by the number of rows. Both terms of this loss are sums: λ goes onto the diagonal as it is."),
        ("twice the penalty", edit("penalty * ", "2 * penalty * "),
         "You doubled λ. The gradient has 2Xᵀ(Xw - y) + 2λw: the factor 2 is in both terms and cancels."),
        ("root of the penalty", edit("penalty * ", "penalty**0.5 * "),
         "You put √λ on the diagonal of XXᵀ. √λ belongs into the augmented system, where the matrix is not squared."),
        ("minus the penalty", edit("+ penalty", "- penalty"),
         "You subtracted λ. The penalty adds to the squared singular values, which keeps them away from 0."),
        ("the unknowns of the rows", edit("matrix.T @ torch", "torch"),
         "You returned the m unknowns α of the small system. Map them back to the weights: w = Xᵀα."),
    ],
)
def dual_ridge(matrix, target, penalty):
    """Ridge by the system with one unknown for each row."""
    gram = matrix @ matrix.T
    shifted = gram + penalty * torch.eye(len(gram), dtype=gram.dtype)
    return matrix.T @ torch.linalg.solve(shifted, target)


def _conditional_covariance(matrix, noise_variance, prior_variance):
    """Cov(W) - Cov(W, Y) Cov(Y)^-1 Cov(Y, W), from the joint covariance."""
    rows, columns = matrix.shape
    both = prior_variance * matrix
    spread = both @ matrix.T + noise_variance * torch.eye(rows, dtype=matrix.dtype)
    return prior_variance * torch.eye(columns, dtype=matrix.dtype) - both.T @ torch.linalg.solve(spread, both)


@lesson.exercise(
    "03.5", "How sure the posterior is", difficulty=3, minutes=15,
    prompt="The prior is $w \\sim N(0, p I)$ and the data are $y = Xw + n$ with $n \\sim N(0, v I)$. Write "
    "`posterior_covariance(matrix, noise_variance, prior_variance)`: the covariance of $w$ given $y$. `matrix` is $X$ "
    "with shape `(m, d)`, `noise_variance` is $v$, `prior_variance` is $p$; return a float64 tensor of shape `(d, d)`.",
    draw=inputs(m=whole(2, 4), matrix=normal("m 2"), noise_variance=uniform(0.3, 2.0), prior_variance=uniform(0.3, 3.0)),
    properties=[
        ("It should equal Cov(W) - Cov(W, Y) Cov(Y)⁻¹ Cov(Y, W) of the joint normal distribution.",
         lambda matrix, noise_variance, prior_variance, answer: torch.allclose(
             answer, _conditional_covariance(matrix, noise_variance, prior_variance), rtol=1e-8, atol=1e-10)),
    ],
    hints=(
        "Write the logarithm of the posterior density. It is a quadratic in w; where is its inverse covariance?",
        "Prior and likelihood add their precisions: the prior's is I/p, and each row adds xᵢxᵢᵀ divided by something.",
        "Invert XᵀX/v + I/p, or equivalently scale (XᵀX + λI)⁻¹ by v with λ = v/p.",
    ),
    mistakes=[
        ("without the noise in front", edit("(precision)", "(precision * noise_variance)"),
         "You returned (XᵀX + λI)⁻¹. It gives the mean when it meets Xᵀy; as a covariance it needs the factor v in front."),
        ("ratio upside down", edit("eye / prior_variance", "eye * prior_variance / noise_variance**2"),
         "Your λ is p/v. More noise means less trust in the data: λ = v/p."),
        ("prior of variance one", edit("eye / prior_variance", "eye"),
         "That is right for p = 1 only: the prior's precision is I/p."),
        ("noise of variance one", edit(" / noise_variance", ""),
         "You left out v: a likelihood of variance 1, as in the notes. Each row's precision is xᵢxᵢᵀ/v."),
        ("returned the precision", edit("torch.linalg.inv(precision)", "precision"),
         "That is the precision. The covariance is its inverse."),
        ("deviations for variances", edit("/ noise_variance", "/ noise_variance**2", "/ prior_variance",
                                           "/ prior_variance**2"),
         "You squared v and p. They are variances already."),
        ("roots of the variances", edit("/ noise_variance", "/ noise_variance**0.5", "/ prior_variance",
                                        "/ prior_variance**0.5"),
         "You took the roots of v and p. A precision is one over a variance, not over a standard deviation."),
        ("the prior alone", edit("torch.linalg.inv(precision)", "prior_variance * eye"),
         "That is the covariance before any data. Each row of X adds to the precision and makes it smaller."),
        ("no prior", edit(" + eye / prior_variance", ""),
         "You left out the prior: v(XᵀX)⁻¹ is the covariance of plain least squares. The prior adds I/p to the precision."),
        ("p in front instead of v", edit("(precision)", "(precision) * prior_variance / noise_variance"),
         "You put p in front of (XᵀX + λI)⁻¹. The factor there is v, the variance of the noise."),
        ("variances only", edit("torch.linalg.inv(precision)", "torch.linalg.inv(precision).diagonal()"),
         "You returned the variances alone. The whole d x d covariance is needed: weights are correlated given the data."),
        ("covariance of the data", lambda matrix, noise_variance, prior_variance:
         prior_variance * matrix @ matrix.T + noise_variance * torch.eye(len(matrix), dtype=matrix.dtype),
         "That is the covariance of y, m x m. The exercise asks for that of w given y."),
    ],
)
def posterior_covariance(matrix, noise_variance, prior_variance):
    """The covariance of w given y for w ~ N(0, p I) and y = X w + N(0, v I)."""
    eye = torch.eye(matrix.shape[1], dtype=matrix.dtype)
    precision = matrix.T @ matrix / noise_variance + eye / prior_variance
    return torch.linalg.inv(precision)


EXERCISES = lesson.exercises
