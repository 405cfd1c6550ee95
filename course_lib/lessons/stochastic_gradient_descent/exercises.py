"""Exercises of lesson 03, stochastic_gradient_descent."""

import math

import torch

from course_lib.lessons.stochastic_gradient_descent.contents import lesson
from course_lib.optimization.stochastic_gradient_descent import distance_factor, expected_change, loss_bound_step
from course_lib.teaching import but, edit, inputs, near, normal, one_of, uniform, whole


def _wide(rows, columns, generator):
    """A normal matrix whose rows are far from dependent.

    It is not rounded: columns that are exactly proportional make the default driver of `torch.linalg.lstsq`, a right
    answer, miss the solution.
    """
    while True:
        matrix = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
        if float(torch.linalg.svdvals(matrix)[-1]) > 0.4:
            return matrix


def _first_columns(matrix, target):
    chosen = torch.linalg.lstsq(matrix[:, : len(target)], target[:, None]).solution[:, 0]
    return torch.cat([chosen, target.new_zeros(matrix.shape[1] - len(target))])


lesson.value(
    "03.1", "Straight to the line", difficulty=1, minutes=5,
    prompt="One equation is $3\\,w[1] + 4\\,w[2] = 10$, so its row is $x = (3, 4)$ and $y = 10$. From $w = (0, 0)$ a step "
    "moves to $w + \\eta\\,x\\,(y - x^\\top w)$. Which $\\eta$ ends at the nearest point of the line? (03.1) below is this "
    "step, for an equation that is drawn.",
    answer=0.04,
    properties=[
        ("Where your step ends, 3 w[1] + 4 w[2] is not 10.",
         lambda answer: abs(3 * 30 * answer + 4 * 40 * answer - 10) < 1e-6),
    ],
    hints=(
        "From (0, 0) the bracket is 10, so the step ends at η (30, 40). It goes along the row, at a right angle "
        "to the line.",
        "Put the point η (30, 40) into the equation. For which η is the left side 10?",
        "3 · 30 η + 4 · 40 η = 250 η.",
    ),
    mistakes=[
        ("length not squared", 0.2,
         "You divided by the length 5 of the row. The row enters twice: it gives the direction, and xᵀx shows "
         "up when the end is "
         "put into the equation."),
        ("full gradient of the square", 0.02,
         "That is half of it: right for a step that follows the gradient of the square without 1/2, which is "
         "twice as long. The "
         "step here has no factor 2."),
        ("whole step", 1.0, "With η = 1 the step ends at (30, 40), far behind the line. That would be right for "
        "a row of length 1."),
        ("how far the point is", 2.0, "That is the distance of the line from (0, 0), 10/5. The exercise asks for η."),
        ("sum of the entries", 1 / 7, "You divided by 3 + 4. Put η (30, 40) into the equation: squares of the "
        "entries appear.",
         near(1 / 7, within=0.003)),
    ],
)


@lesson.exercise(
    "03.2", "What one step leaves", difficulty=2, minutes=8,
    prompt="Write `mean_left(matrix, error, step_size)`: the share of the squared distance $\\lVert e\\rVert^2$ "
    "that one step "
    "(03.2) leaves, averaged over the $n$ equally likely draws. `matrix` is $X$, with rows of "
    "different lengths, "
    "and `error` is $e$. Return a number. Do not sample.",
    draw=inputs(rows=whole(2, 4), matrix=lambda rows, generator: _wide(rows, rows + 1, generator),
                error=lambda matrix, generator: torch.randn(matrix.shape[1], generator=generator, dtype=torch.float64),
                step_size=uniform(0.05, 0.6)),
    properties=[],
    agrees="Your number is not the average share.",
    hints=(
        "There are only n possible steps. Compute the error after each of them, then average.",
        "`(matrix @ error)[:, None] * matrix` has in row i the vector xᵢ (xᵢᵀe).",
        "Square the length of each of the n new errors first, and average then; divide by the old squared length.",
    ),
    mistakes=[
        ("averaged before squaring", edit("after.square().sum(1).mean()", "after.mean(0).square().sum()"),
         "You averaged the n new errors and squared the length of that average. That is the step of gradient "
         "descent: it leaves out "
         "how the draws scatter."),
        ("sum for the mean", edit(".sum(1).mean()", ".sum()"),
         "You added the n cases. They are equally likely: divide by n."),
        ("not a share", edit(" / error.square().sum()", ""),
         "That is the squared distance itself. The share is relative to the squared distance before the step."),
        ("gradient of the square", edit("- step_size", "- 2 * step_size"), "Your step is twice as long: that is c = 2."),
        ("lengths not squared", edit("after.square().sum(1).mean() / error.square().sum()",
              "after.norm(dim=1).mean() / error.norm()"),
         "You averaged lengths. The exercise asks for squared lengths."),
        ("the loss", edit("after.square()", "(after @ matrix.T).square()", "error.square()", "(matrix @ error).square()"),
         "That is what is left of the loss ‖Xe‖². The exercise asks for the distance ‖e‖²."),
        ("rows brought to length 1", edit("* matrix\n", "* matrix / matrix.square().sum(1, keepdim=True)\n"),
         "You divided each step by the squared length of its row. The step here is η x (xᵀe), whatever the row's length."),
        ("uphill", edit("error - step_size", "error + step_size"), "Your step goes away from the line: the "
        "error is reduced, so subtract."),
    ],
)
def mean_left(matrix, error, step_size):
    """The mean share of the squared distance after one step, over all draws."""
    after = error - step_size * (matrix @ error)[:, None] * matrix
    return after.square().sum(1).mean() / error.square().sum()


@lesson.exercise(
    "03.3", "The shortest solution", difficulty=1, minutes=6,
    prompt="Write `minimum_norm(matrix, target)`: of all $w$ with $Xw = y$ the one with the smallest norm. `matrix` is "
    "$X$ with shape `(rows, columns)`, more columns than rows and independent rows; `target` is $y$. Return a float64 "
    "tensor of shape `(columns,)`.",
    draw=inputs(rows=whole(2, 3), matrix=lambda rows, generator: _wide(rows, rows + 2, generator), target=normal("rows")),
    properties=[
        ("Your w does not solve Xw = y.",
         lambda matrix, target, answer: torch.allclose(matrix @ answer, target, atol=1e-7)),
    ],
    agrees="Your w solves Xw = y, and a shorter one does too: yours has a part that no row sees.",
    hints=(
        "The shortest solution is a combination of the rows: w = Xᵀ v for some v with one entry for each row.",
        "Put w = Xᵀ v into Xw = y. Which square system is left for v?",
        "Solve (X Xᵀ) v = y with torch.linalg.solve, then multiply by the transpose of X.",
    ),
    mistakes=[
        ("left out the inverse", edit("torch.linalg.solve(matrix @ matrix.T, target)", "target"),
         "You left out the inverse of X Xᵀ: the combination Xᵀ y points into the row space but does not solve."),
        ("treated rows as orthogonal",
         edit("torch.linalg.solve(matrix @ matrix.T, target)", "(target / matrix.square().sum(1))"),
         "You divided each equation by its own squared norm only: that solves it when the rows are orthogonal to each "
         "other, here they are not."),
        ("used the first columns only", _first_columns,
         "You solved for as many weights as there are rows and set the rest to 0: a solution, not the shortest.",
         lambda matrix, target, answer: bool((answer[len(target):] == 0).all())
         and torch.allclose(matrix @ answer, target, atol=1e-7)),
        ("zeros", lambda matrix, target: target.new_zeros(matrix.shape[1]),
         "w = 0 is the shortest vector of all, but it does not solve Xw = y: first solve, then be short.",
         lambda answer: bool((answer == 0).all())),
        ("start of the shifted problem", edit("return ", "return -"),
         "You returned -w*, the start of the shifted problem w' = w - w*. The exercise asks for w* itself."),
        ("ridge", edit("matrix @ matrix.T", "matrix @ matrix.T + torch.eye(len(target), dtype=target.dtype)"),
         "You added the identity to X Xᵀ: that is ridge regression, which does not solve Xw = y exactly."),
        ("normal equations", lambda matrix, target: torch.linalg.inv(matrix.T @ matrix) @ matrix.T @ target,
         "You used (XᵀX)⁻¹Xᵀy, the formula for more rows than columns. Here the d x d matrix XᵀX has no inverse, and what "
         "comes out is an error or rounding; the n x n matrix XXᵀ has one."),
        ("normal equations, solved", lambda matrix, target: torch.linalg.solve(matrix.T @ matrix, matrix.T @ target),
         "You solved XᵀXw = Xᵀy, the system for more rows than columns. Here the d x d matrix XᵀX is singular, and what "
         "comes out is an error or rounding; the n x n matrix XXᵀ is not."),
        ("shape of a column", lambda matrix, target: (torch.linalg.pinv(matrix) @ target[:, None]),
         "You returned a matrix with one column. Take its only column, for instance with [:, 0]."),
    ],
)
def minimum_norm(matrix, target):
    """The solution of X w = y with the smallest norm."""
    return matrix.T @ torch.linalg.solve(matrix @ matrix.T, target)


def _one_more_step(variance):
    """The variance after a step of 1/2 to 0 or 6, from two equally likely places around 3."""
    places = [3 - math.sqrt(variance), 3 + math.sqrt(variance)]
    after = [w + (y - w) / 2 for w in places for y in (0, 6)]
    centre = sum(after) / len(after)
    return sum((w - centre) ** 2 for w in after) / len(after)


def _settled(variance, *, steps=60):
    for _ in range(steps):
        variance = _one_more_step(variance)
    return variance


lesson.value(
    "03.4", "A floor by hand", difficulty=1, minutes=5,
    prompt="Two equations contradict each other: $w = 0$ and $w = 6$. SGD takes one of them at random and steps to "
    "$w + \\eta\\,(y_I - w)$ with $\\eta = 1/2$, for ever. What variance of $w_t$ does it settle at?",
    answer=3.0,
    properties=[
        ("A variance is 0 or more.", lambda answer: answer >= 0),
        ("One more step changes the variance that you give, so it has not settled.",
         lambda answer: abs(_one_more_step(float(answer)) - answer) < 1e-6 * max(1, abs(answer))),
        ("From another variance, 60 steps do not lead to yours.", lambda answer: abs(_settled(20.0) - answer) < 1e-6),
    ],
    hints=(
        "Write v for the variance now. The old w and the drawn label are independent: how does the variance of "
        "their weighted sum follow from v?",
        "After one step the variance is (1 - η)² v plus η² times the variance of the labels.",
        "Settled means that both sides are equal: solve v = v/4 + (1/4) Var(y), where Var(y) divides by 2.",
    ),
    mistakes=[
        ("sample variance", 6.0,
         "You divided by n - 1: the two labels are all there is to draw from, so Var(y) divides by n."),
        ("one step only", 2.25,
         "That is η² Var(y), what a single step adds. Earlier kicks are still there, shrunk by (1 - η)² a step."),
        ("factor not squared", 4.5,
         "You let the old variance shrink by 1 - η. Distances shrink by 1 - η, variances by its square."),
        ("variance of the labels", 9.0,
         "That is the variance of the labels. It would need a step that forgets everything but the last label, η = 1."),
        ("standard deviation", math.sqrt(3.0), "That is the standard deviation. The exercise asks for the variance.",
         near(math.sqrt(3.0), within=0.006)),
        ("the range for the variance", 12.0,
         "You took 36, the square of the distance of the labels, for their variance: it is 9, as both are 3 from the mean."),
        ("no noise", 0.0,
         "The mean converges, to 3. The iterate does not: each step goes half of the way to 0 or to 6."),
    ],
)


def _catches(sigma_1, sigma_2, step_size, weight_1, weight_2):
    """Whether the true E[A] of the problem with rows (sigma_1, 0) and (0, sigma_2) is above the tempting bound."""
    matrix = torch.diag(torch.tensor([sigma_1, sigma_2], dtype=torch.float64))
    error = torch.tensor([weight_1, weight_2], dtype=torch.float64)
    true, _ = expected_change(matrix, error, step_size=float(step_size))
    printed = -4 * step_size / 2 * min(sigma_1, sigma_2) ** 2 * float((matrix @ error).square().sum())
    return true > printed + 0.01 * abs(printed)


def _case(**changed):
    return {"sigma_1": 2.0, "sigma_2": 1.0, "step_size": 0.1, "weight_1": 0.0, "weight_2": 1.0, **changed}


lesson.flaw(
    "03.5", "Catch the tempting bound", difficulty=2, minutes=8,
    prompt="A tempting bound for the step with $c = 1$ is $\\mathrm E[A] \\le "
    "-\\frac{4\\eta}{n}\\sigma_{\\min}^2 L$, with $A$ the "
    "part of the change of the loss that is linear in the step. Take $n = 2$ and $X = \\mathrm{diag}(\\sigma_1, "
    "\\sigma_2)$. "
    "Give a counterexample: a dictionary with the numbers `sigma_1`, `sigma_2`, `step_size` (all three "
    "positive), `weight_1` "
    "and `weight_2` (the entries of the error $e$, not both 0) for which $\\mathrm E[A]$ is above this bound by "
    "more than 1% of it.",
    answer=_case(),
    needs=[
        ("Your error is 0: nothing moves there, and both sides are 0.",
         lambda weight_1, weight_2: weight_1 != 0 or weight_2 != 0),
        ("Your step is zero or goes uphill: the bound is meant for η > 0.", lambda step_size: step_size > 0),
        ("Singular values are not negative: take σ₁ > 0 and σ₂ > 0.", lambda sigma_1, sigma_2: min(sigma_1, sigma_2) >= 0),
        ("One of your σ is 0, so the rows are dependent; the bound is meant for independent rows.",
         lambda sigma_1, sigma_2: min(sigma_1, sigma_2) > 0),
        # Numbers of a size that floats square without loss.
        ("Take σ₁, σ₂ and η from 0.000001 to 1,000,000, and weights up to 1,000,000 in size.",
         lambda sigma_1, sigma_2, step_size, weight_1, weight_2:
         all(1e-6 <= v <= 1e6 for v in (sigma_1, sigma_2, step_size, max(abs(weight_1), abs(weight_2))))),
    ],
    properties=[
        ("For your numbers the tempting bound holds, or is missed by 1% at most.", lambda answer: _catches(**answer)),
    ],
    hints=(
        "For this step (03.7) has 2/n instead of 4/n. For which errors is its first part an equality?",
        "Write E[A] out for the diagonal matrix: both directions enter with the fourth power of their σ.",
        "Put the error along the direction of the smaller singular value, or at least mostly.",
    ),
    mistakes=[
        ("error along the larger direction alone", _case(weight_1=1.0, weight_2=0.0),
         "Your error has no part along the smaller singular value: A is then so negative that even the tempting bound "
         "holds.",
         but(lambda sigma_1, sigma_2, weight_1, weight_2: (weight_2 if sigma_1 > sigma_2 else weight_1) == 0)),
        ("error along the larger direction", _case(weight_1=1.0),
         "Your error lies mostly along the larger singular value, where A is so negative that even the tempting bound "
         "holds.",
         but()),
    ],
)


def _is_never_exceeded(matrix, step_size, gain, answer):
    """Try the errors along all singular directions and twenty others: none may grow by more than the factor."""
    directions = torch.linalg.svd(matrix, full_matrices=False).Vh
    mixed = torch.randn(20, len(directions), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for error in [*directions, *(mixed @ directions)]:
        change = sum(expected_change(matrix, error, step_size=step_size, gain=gain))
        if 1 + change / float((matrix @ error).square().sum()) > float(answer) + 1e-9:
            return False
    return True


@lesson.exercise(
    "03.6", "What one step guarantees", difficulty=2, minutes=12,
    prompt="Write `guaranteed_factor(matrix, step_size, gain)`: the number $1 - C_1\\eta + C_2\\eta^2$ of (03.7) for "
    "the step $w + c\\eta\\, x_I(y_I - x_I^\\top w)$ with $c$ = `gain`, which is 1 or 2. `matrix` is $X$, with more columns "
    "than rows and independent rows; return a number.",
    draw=inputs(rows=whole(2, 3), matrix=lambda rows, generator: _wide(rows, rows + 1, generator),
                step_size=uniform(0.01, 0.4), gain=one_of(1.0, 2.0)),
    properties=[
        ("The expected loss after one step can exceed your factor times the loss before it.", _is_never_exceeded),
    ],
    agrees="Your number is a bound, and not the one of (03.7).",
    hints=(
        "You need three numbers of the matrix: its smallest and largest singular value and its longest row.",
        "A is linear in the step and B quadratic: how often does c enter each of the two constants?",
        "C₁ = 2cσ_min²/n and C₂ = c²σ_max²ρ²/n, with ρ the largest norm of a row.",
    ),
    mistakes=[
        ("the constants of c = 2", edit("2 * gain", "4", "gain**2", "4"),
         "Your constants have 4/n for both steps. They belong to c = 2; for c = 1 the first is 2/n and "
         "the second 1/n."),
        ("c once in both", edit("gain**2", "gain"), "B is quadratic in the step, so c enters C₂ squared."),
        ("c in the second only", edit("2 * gain", "2"), "A is linear in the step: C₁ has one factor c."),
        ("singular values not squared", edit("svdvals(matrix) ** 2", "svdvals(matrix)"),
         "You took the singular values themselves: A and B hold the eigenvalues of X Xᵀ, their squares."),
        ("mean row instead of longest", edit("squared_norms.max()", "squared_norms.mean()"),
         "You used the mean squared norm of the rows. The bound must hold whichever row is large: ρ is the largest norm."),
        ("smallest eigenvalue of the d x d matrix", edit("curvatures.min()", "0"),
         "You took the smallest eigenvalue of Xᵀ X, which is 0 as d > n. The error never leaves the row space, where the "
         "smallest one is σ_min² > 0."),
        ("forgot 1/n", edit("curvatures.min() / len(matrix)", "curvatures.min()", "squared_norms.max() / len(matrix)",
                            "squared_norms.max()"),
         "You left out 1/n. The row is drawn among n, and the expectation is a mean over them."),
        ("longest row not squared", edit("squared_norms.max()", "squared_norms.max().sqrt()"),
         "You took the length of the longest row. ρ² is its square: B holds |x|² beside (xᵀe)²."),
        ("no c at all", edit("2 * gain", "2", "gain**2 * ", ""),
         "Your constants do not depend on c: right for c = 1. In general c enters C₁ once and C₂ squared."),
        ("divided by the columns", edit("min() / len(matrix)", "min() / matrix.shape[1]",
                                        "squared_norms.max() / len(matrix)", "squared_norms.max() / matrix.shape[1]"),
         "You divided by the number of columns. The row is drawn among n rows: `len(matrix)`, or `matrix.shape[0]`."),
        ("largest curvature in the gain", edit("curvatures.min()", "curvatures.max()"),
         "You put σ_max into the gain. What is guaranteed is the gain of the slowest direction: σ_min²."),
        ("sign of the price", edit("+ quadratic", "- quadratic"),
         "You subtracted the price. B is never negative: it adds to the loss."),
        ("columns for rows", edit("matrix.square().sum(1)", "matrix.square().sum(0)"),
         "You took the longest column. A sample is a row of X: sum the squares along dim=1."),
        ("the change, not the factor", edit("return 1 -", "return -"),
         "That is the change of the loss in units of the loss. The factor is 1 plus it."),
    ],
)
def guaranteed_factor(matrix, step_size, gain):
    """1 - C1 eta + C2 eta^2 with the constants of the step c = gain."""
    curvatures, squared_norms = torch.linalg.svdvals(matrix) ** 2, matrix.square().sum(1)
    linear = 2 * gain * curvatures.min() / len(matrix)
    quadratic = gain**2 * curvatures.max() * squared_norms.max() / len(matrix)
    return 1 - linear * step_size + quadratic * step_size**2


def _is_best_for_the_bound(matrix, batch, gain, answer):
    """Compare the guaranteed gains, one minus the factor: a tiny step has a tiny one, not a rounded 0."""
    gained = lambda scale: 1 - distance_factor(matrix, step_size=scale * float(answer), batch=batch, gain=gain)  # noqa: E731
    return gained(1) > 0 and all(gained(1) >= gained(scale) for scale in (0.5, 0.9, 0.99, 1.01, 1.1, 2))


@lesson.exercise(
    "03.7", "The best step for a batch", difficulty=3, minutes=12,
    prompt="Write `best_batch_step(matrix, batch, gain)`: the step size $\\eta$ for which the bound on the distance is "
    "smallest when a step averages over `batch` rows, drawn with replacement, with $c$ = `gain`. Return a number.",
    draw=inputs(rows=whole(2, 4), matrix=lambda rows, generator: _wide(rows, rows + 2, generator),
                batch=one_of(1, 2, 4, 8), gain=one_of(1.0, 2.0)),
    properties=[
        ("The step must be positive.", lambda answer: float(answer) > 0),
        ("A nearby step has a smaller bound than yours.", _is_best_for_the_bound),
    ],
    hints=(
        "For one row a step the bracket 2cη - c²η²ρ² is largest at 1/(cρ²). What replaces ρ² for a batch?",
        "The mean of b matrices x xᵀ has a second moment with two parts: a draw with itself, and two different draws.",
        "ρ_b² = ρ²/b + (1 - 1/b) σ_max²/n.",
    ),
    mistakes=[
        ("no batch", edit(" / batch + (1 - 1 / batch) * largest / len(matrix)", ""),
         "Your step ignores the batch: an average over b rows is less noisy and allows a longer step."),
        ("linear scaling", edit(" / batch + (1 - 1 / batch) * largest / len(matrix)", "", "1 / (gain", "batch / (gain"),
         "You multiplied the step by b. That is too long: averaging removes the noise, not the curvature of the mean, and "
         "the step stops growing."),
        ("full batch", edit("row / batch + (1 - 1 / batch) * ", ""),
         "That is the limit for b to infinity, n/(cσ_max²): a batch of b rows still has noise."),
        ("forgot c", edit("gain * ", ""), "You left out c: a gradient that is twice as long needs half the step."),
        ("forgot 1/n", edit(" / len(matrix)", ""),
         "The mean of all x xᵀ is Xᵀ X divided by n: its largest eigenvalue is σ_max²/n."),
        ("best for the loss bound", lambda matrix, batch, gain: loss_bound_step(matrix, batch=batch, gain=gain),
         "That step makes the bound on the loss smallest. The exercise asks for the bound on the distance."),
        ("longest row not squared", edit("sum(1).max()", "sum(1).max().sqrt()"),
         "You took the length of the longest row. ρ² is its square."),
        ("mean row instead of longest", edit("sum(1).max()", "sum(1).mean()"),
         "You used the mean squared norm of the rows. The bound holds for every row only with the largest one."),
        ("root of the batch", edit("row / batch", "row / batch**0.5"),
         "You divided by √b. The variance of a mean falls like 1/b; it is the standard deviation that falls like 1/√b."),
        ("scaled by the root of b", lambda matrix, batch, gain: batch**0.5 / (gain * matrix.square().sum(1).max()),
         "You multiplied the step of one row by √b. That rule is for another purpose; here 1/(cρ_b²) is asked."),
        ("c squared", edit("gain * ", "gain**2 * "),
         "You squared c. The bracket is 2cη - c²η²ρ_b²; its largest value is at cη = 1/ρ_b², with c once."),
        ("twice the step", edit("return 1 /", "return 2 /"),
         "At your step the bound is 1 again: that is where it stops to guarantee anything. It is smallest in the middle."),
        ("largest singular value not squared", edit(".max() ** 2", ".max()"),
         "You took σ_max itself. The largest eigenvalue of XᵀX is σ_max²."),
    ],
)
def best_batch_step(matrix, batch, gain):
    """The step for which the bound on the distance is smallest, for batches of b rows."""
    row, largest = matrix.square().sum(1).max(), torch.linalg.svdvals(matrix).max() ** 2
    return 1 / (gain * (row / batch + (1 - 1 / batch) * largest / len(matrix)))


EXERCISES = lesson.exercises
