"""The quiz of lesson 03, stochastic_gradient_descent."""

import torch

from course_lib.lessons.stochastic_gradient_descent.contents import lesson
from course_lib.lessons.stochastic_gradient_descent.pictures import example_problem, four_lines, twelve_equations
from course_lib.optimization.stochastic_gradient_descent import (
    distance_bound_step,
    draw_indices,
    expected_losses,
    loss_bound_step,
    minimum_norm_solution,
    stochastic_gradient_descent,
)
from course_lib.teaching import fact


def _left(step_size, *, steps=200):
    """Return the share of the expected loss that is left after some steps on the 6 x 10 problem."""
    matrix, target = example_problem()
    losses = expected_losses(matrix, target, matrix.new_zeros(10), step_size=step_size, steps=steps)
    return float(losses[-1] / losses[0])


@lesson.sentence("03.Q1", "The step for which a proven bound is smallest is the fastest step.", answer=False)
def best_for_a_bound():
    """Smallest bound and fastest step are two things. On 6 equations with 10 unknowns the step that is best for the
    bound on the loss, (03.7), is far too short, and the one that is best for the bound on the distance, (03.3), is too
    short as well."""
    matrix, _ = example_problem()
    best = distance_bound_step(matrix)
    return "\n".join(
        (
            fact(
                "best for the bound on the loss: {:.1%} is left after 200 steps",
                _left(loss_bound_step(matrix)),
                at_least=0.05,
            ),
            fact("best for the bound on the distance: {:.0e} is left", _left(best), at_most=1e-4),
            fact("1.5 times as long: {:.0e} is left", _left(1.5 * best), at_most=1e-6),
        )
    )


@lesson.sentence(
    "03.Q2", r"If the rows are independent, the expected loss is at most "
    r"$1 - \frac{4\eta}{n}\sigma_{\min}^2 + \frac{4\eta^2}{n}\sigma_{\max}^2\rho^2$ of what it was before one step of SGD.",
    answer="only if a sample's loss has no ½",
    conditions=("only if a sample's loss has no ½", "only if a sample's loss has the ½"),
)  # fmt: skip
def constants_of_c_2():
    """Without the ½ a step is 2η x_I(y_I - x_Iᵀw), and then (03.7) proves it, with c = 2. With the ½ the step is (03.1),
    half as long: what it gains is half as much and what it costs a quarter, so the two 4s are a 2 and a 1. For one
    equation, w[1] = 1, and η = 1/2 the sentence promises that nothing is left."""
    row, label = torch.tensor([[1.0, 0.0]], dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    left = {c: expected_losses(row, label, row.new_zeros(2), step_size=0.5, steps=1, gain=c) for c in (1.0, 2.0)}
    return "\n".join(
        (
            fact(
                "with the ½: {} of the loss is left, where 0 is promised",
                float(left[1.0][1] / left[1.0][0]),
                equals=0.25,
                within=0,
            ),
            fact("without: {} is left", float(left[2.0][1] / left[2.0][0]), equals=0, within=0),
        )
    )


@lesson.sentence(
    "03.Q3", "SGD with a fixed, short enough step converges.",
    answer="only if all equations have a common solution",
    conditions=("only if all equations have a common solution", "only if every equation is drawn equally often"),
)  # fmt: skip
def common_solution():
    """At a common solution all samples agree that nothing has to change. Without one, each new sample pulls
    away from wherever the iterate is; a short step makes the floor low, not zero."""
    ends = {}
    for side in ("left", "right"):
        matrix, target = four_lines(side)
        losses = expected_losses(matrix, target, matrix.new_zeros(2), step_size=0.05, steps=3000)
        best = torch.linalg.pinv(matrix) @ target
        ends[side] = float(losses[-1] - (matrix @ best - target).square().sum())
    return "\n".join(
        (
            fact(
                "four lines that meet, η = 0.05: excess loss {:.0e} after 3,000 steps", abs(ends["left"]), at_most=1e-12
            ),
            fact("four lines that do not: {:.3f}", ends["right"], at_least=0.005),
        )
    )


@lesson.sentence(
    "03.Q4", "Of many solutions, training finds the shortest.",
    answer=False,
)  # fmt: skip
def shortest():
    """From 0, SGD and gradient descent do: their steps are combinations of rows. So they also keep whatever another start
    has outside the span of the rows. Adam scales each entry on its own and leaves the span, even from 0."""
    matrix, target = twelve_equations(24)
    best, generator = minimum_norm_solution(matrix, target), torch.Generator().manual_seed(4)
    indices = draw_indices(12, steps=3000, generator=generator)
    away = {}
    for name, start in (("zero", torch.zeros(24)), ("random", torch.randn(24, generator=generator))):
        path = stochastic_gradient_descent(matrix, target, start.to(torch.float64), indices, step_size=1.0)
        away[name] = float((path[0, -1] - best).norm() / best.norm())
    full = torch.zeros(24, dtype=torch.float64)
    for _ in range(3000):
        full = full + matrix.T @ (target - matrix @ full) / torch.linalg.matrix_norm(matrix, 2) ** 2
    weights = torch.zeros(24, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([weights], lr=0.01)
    for i in indices[0, :, 0].tolist():
        adam.zero_grad()
        (0.5 * (matrix[i] @ weights - target[i]).square()).backward()
        adam.step()
    seen = torch.linalg.pinv(matrix) @ matrix
    outside = float((weights.detach() - seen @ weights.detach()).norm() / best.norm())
    return "\n".join(
        (
            fact("12 equations, 24 unknowns, SGD from 0 ends {:.0e} of its length off", away["zero"], at_most=1e-8),
            fact("gradient descent from 0: {:.0e}", float((full - best).norm() / best.norm()), at_most=1e-8),
            fact("SGD from a random start: {:.2f} of its length off", away["random"], at_least=0.3),
            fact("Adam from 0 has a part of {:.2f} of it outside the span of the rows", outside, at_least=0.05),
        )
    )


@lesson.sentence(
    "03.Q5",
    "With a fixed, short enough step, the mean of more and more late iterates comes as close to the best weights as one "
    "likes, whatever the loss is.",
    answer=False,
)  # fmt: skip
def mean_of_the_iterates():
    """For a quadratic loss it does: the mean step is linear, (03.6), so the iterates scatter around the best weights. For
    another loss it may fail. With the losses exp(w) - y w for the labels 0 and 2 it is exp(w) that has the right mean, 1;
    the mean of w itself stays below log 1 = 0."""
    generator = torch.Generator().manual_seed(3)
    w, curved = torch.zeros(2000, dtype=torch.float64), []
    labels = 2.0 * torch.randint(2, (600, 2000), generator=generator)
    for t in range(600):
        w = w + 0.2 * (labels[t] - w.exp())
        if t >= 300:
            curved.append(w.mean())
    matrix, target = torch.ones(2, 1, dtype=torch.float64), torch.tensor([0.0, 2.0], dtype=torch.float64)
    indices = draw_indices(2, runs=2000, steps=600, generator=generator)
    flat = stochastic_gradient_descent(matrix, target, torch.zeros(1, dtype=torch.float64), indices, step_size=0.2)
    return "\n".join(
        (
            fact("squares, η = 0.2: the mean of 600,000 late iterates misses the best by {:.3f}",
                 float((flat[:, 301:].mean() - 1).abs()), at_most=0.01),
            fact("exp(w) - y w, the same step: it misses by {:.3f}", float(torch.stack(curved).mean().abs()), at_least=0.03),
        )
    )  # fmt: skip
