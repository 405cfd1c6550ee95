"""Exercises of lesson 04, ridge_noise_and_map."""

import torch

from course_lib.lessons.ridge_noise_and_map.contents import lesson
from course_lib.optimization.ridge import noisy_copies, ridge
from course_lib.teaching import edit, inputs, near, normal, one_of, uniform, whole


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
    "04.1", "Noise as a penalty", difficulty=1, minutes=3,
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


def _slope_by_differences(weights, matrix, target, noise_variance, prior_variance):
    """The slope of the log density by central differences, which are exact for a quadratic up to rounding."""
    def log_density(w):
        prior = torch.distributions.Normal(0.0, prior_variance**0.5).log_prob(w).sum()
        errors = torch.distributions.Normal(matrix @ w, noise_variance**0.5)
        return prior + errors.log_prob(target).sum()

    sides = torch.eye(len(weights), dtype=torch.float64) * 1e-3
    return torch.stack([(log_density(weights + h) - log_density(weights - h)) / 2e-3 for h in sides])


@lesson.exercise(
    "04.2", "The slope of the log density", difficulty=2, minutes=8,
    prompt="Before the data are seen, the weights are $w \\sim N(0, pI)$; the targets are $y = Xw + n$ with errors "
    "$n \\sim N(0, vI)$. The density of $w$ given $y$ is prior times likelihood, up to a constant factor. Write "
    "`slope(weights, matrix, target, noise_variance, prior_variance)`: the gradient of its *logarithm* with respect to $w$. "
    "`matrix` is $X$ with shape `(m, d)`, `noise_variance` is $v$, `prior_variance` is $p$; return a float64 tensor of "
    "shape `(d,)`.",
    draw=inputs(m=whole(2, 4), matrix=normal("m 2"), target=normal("m"), weights=normal("2"),
                noise_variance=uniform(0.3, 2.5), prior_variance=uniform(0.3, 3.0)),
    properties=[
        ("It should be the slope of the log density, measured with differences of torch.distributions.",
         lambda weights, matrix, target, noise_variance, prior_variance, answer: torch.allclose(
             answer, _slope_by_differences(weights, matrix, target, noise_variance, prior_variance),
             rtol=1e-6, atol=1e-6)),
    ],
    hints=(
        "The logarithm of a product is a sum: ln prior + ln likelihood. Take each gradient by itself.",
        "Up to constants ln prior is -‖w‖²/(2p) and ln likelihood is -‖y - Xw‖²/(2v).",
        "The gradient of -‖y - Xw‖²/(2v) is Xᵀ(y - Xw)/v. What is that of -‖w‖²/(2p)?",
    ),
    mistakes=[
        ("the other sign", edit("matrix.T @ (target", "-(matrix.T @ (target", ") / noise_variance", ")) / noise_variance",
                                "- weights", "+ weights"),
         "That is the slope of minus the logarithm, of the loss. The density's logarithm rises the other way."),
        ("the sign of the prior", edit("- weights", "+ weights"),
         "The prior's part has the wrong sign: ln prior is -‖w‖²/(2p), and pulls towards 0."),
        ("the sign of the likelihood", edit("target - matrix @ weights", "matrix @ weights - target"),
         "The likelihood's part has the wrong sign: it pulls Xw towards y."),
        ("twice", edit("return matrix", "return 2 * matrix", "- weights", "- 2 * weights"),
         "You left out the 1/2 in the exponents of the normal densities."),
        ("a half", edit("return matrix", "return 0.5 * matrix", "- weights", "- 0.5 * weights"),
         "You kept the 1/2. The gradient of a square has a factor 2, which cancels it."),
        ("without the variances", edit(" / noise_variance", "", " / prior_variance", ""),
         "You left out both variances, as if v = p = 1."),
        ("errors of variance one", edit(" / noise_variance", ""), "You left out v, as if the errors had variance 1."),
        ("prior of variance one", edit(" / prior_variance", ""), "You left out p, as if the prior had variance 1."),
        ("times the variances", edit("/ noise", "* noise", "/ prior", "* prior"),
         "You multiplied by the variances. A small variance pulls hard: divide."),
        ("roots of the variances", edit("/ noise_variance", "/ noise_variance**0.5", "/ prior_variance",
                                        "/ prior_variance**0.5"),
         "You divided by standard deviations. The exponent of a normal density has the variance."),
        ("exchanged", edit("/ noise_variance", "/ swap", "/ prior_variance", "/ noise_variance", "/ swap",
                           "/ prior_variance"),
         "You exchanged v and p: v belongs to the errors, p to the weights."),
        ("without the prior", edit(" - weights / prior_variance", ""),
         "That is the slope of the likelihood alone, and ends at least squares. The prior adds -w/p."),
    ],
)
def slope(weights, matrix, target, noise_variance, prior_variance):
    """The gradient of ln prior + ln likelihood."""
    return matrix.T @ (target - matrix @ weights) / noise_variance - weights / prior_variance


def _ends_like_weight_decay(answer):
    """Whether ridge with that penalty stands still under the gradient of the mean loss with weight decay 0.01."""
    if not float(answer) > 0:
        return False
    drawn = torch.randn(200, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrix, target = drawn[:, :3], drawn[:, 3]
    weights = ridge(matrix, target, float(answer)).requires_grad_()
    optimizer = torch.optim.SGD([weights], lr=1.0, weight_decay=0.01)
    before = weights.detach().clone()
    torch.nn.functional.mse_loss(matrix @ weights, target).backward()
    optimizer.step()
    return bool((weights.detach() - before).norm() < 1e-8)


lesson.value(
    "04.3", "The penalty of a weight decay", difficulty=2, minutes=5,
    prompt="A linear layer without bias is trained on $m = 200$ rows with `MSELoss`, the *mean* of the squared errors, by "
    "`torch.optim.SGD` with `weight_decay=0.01` on all rows at once. PyTorch adds `weight_decay` times $w$ to the gradient. "
    "Training ends at the ridge weights for the sum, $\\lVert Xw - y\\rVert^2 + \\lambda\\lVert w\\rVert^2$. Which number "
    "is $\\lambda$?",
    answer=1.0,
    properties=[
        ("Ridge with your λ moves under the next update of this optimizer.", _ends_like_weight_decay),
    ],
    hints=(
        "Where training ends, the gradient of the mean loss plus 0.01 w is 0. Write that gradient down.",
        "The mean loss has the gradient (2/m) Xᵀ(Xw - y), ridge has 2Xᵀ(Xw - y) + 2λw.",
        "Multiply (2/m) Xᵀ(Xw - y) + 0.01 w = 0 by m/2 and compare with Xᵀ(Xw - y) + λw = 0.",
    ),
    mistakes=[
        ("the decay itself", 0.01,
         "That is the weight decay. It stands beside the gradient of a mean, ridge beside that of a sum."),
        ("half of the decay", 0.005, "You have the factor 2 of the square. The mean over the rows is still missing."),
        ("forgot the two", 2.0, "That is m times the weight decay. The gradient of the square has a factor 2, which "
         "the term 0.01 w has not."),
        ("twice the wrong way", 4.0, "You multiplied by the 2 of the square. Divide by it: 2λ/m is the weight decay."),
        ("divided by the rows", 0.01 / 100, "You divided by m/2. Multiply (2/m) Xᵀ(Xw - y) + 0.01 w = 0 by m/2.",
         near(0.01 / 100, within=1e-7)),
        ("over the rows", 0.01 / 200, "You divided by m. Multiply (2/m) Xᵀ(Xw - y) + 0.01 w = 0 by m/2.",
         near(0.01 / 200, within=1e-7)),
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
    "04.4", "One unknown for each row", difficulty=2, minutes=8,
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
         "You put 1 in place of λ. That is what errors of variance 1 give."),
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
    "04.5", "How sure the posterior is", difficulty=3, minutes=15,
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
         "You left out v, as if the errors had variance 1. Each row's precision is xᵢxᵢᵀ/v."),
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
