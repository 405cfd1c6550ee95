"""Where SGD ends on equations that contradict each other: the last iterate, decaying steps, or the mean of the iterates.

Five problems of 60 equations with 3 unknowns, rows of length 1, labels of a linear teacher with noise 1; 3,000 steps of
one row each. All arms see the same rows, except for two: one goes through all rows, pass after pass, each time in a new
order, and full gradient descent looks at 3,000 rows in 50 steps. Every arm is tried with each of its step sizes; the one
that is best on 100 runs is kept, and what is stored is the mean excess loss of 200 other runs, one figure a problem.
"""

import torch

from course_lib.optimization.stochastic_gradient_descent import (
    constants,
    draw_indices,
    excess_loss,
    noisy_equations,
    stochastic_gradient_descent,
)

SEEDS = (0, 1, 2, 3, 4)
ROWS, COLUMNS, NOISE, STEPS = 60, 3, 1.0, 3000
CHOOSING, SCORED = 100, 200
STEP_SIZES = tuple(2.0**-k for k in range(11))
DECAYS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
SETTINGS = {
    "equations": ROWS,
    "unknowns": COLUMNS,
    "noise": NOISE,
    "steps": STEPS,
    "runs": SCORED,
    "step sizes": [STEP_SIZES[-1], STEP_SIZES[0]],
}


def excess_by_arm(seed: int) -> dict[str, dict[float, torch.Tensor]]:
    """Return the excess loss of every run of one problem, by arm and step size."""
    matrix, target = noisy_equations(ROWS, COLUMNS, noise=NOISE, seed=seed)
    generator = torch.Generator().manual_seed(1000 + seed)
    indices = draw_indices(ROWS, runs=CHOOSING + SCORED, steps=STEPS, generator=generator)
    start, t = matrix.new_zeros(COLUMNS), torch.arange(STEPS, dtype=torch.float64)
    smallest = constants(matrix).smallest / ROWS
    orders = torch.rand(CHOOSING + SCORED, STEPS // ROWS, ROWS, generator=generator).argsort(dim=2)
    passes = orders.reshape(CHOOSING + SCORED, STEPS, 1)
    all_rows = torch.arange(ROWS).expand(1, STEPS // ROWS, ROWS)
    found: dict[str, dict[float, torch.Tensor]] = {}

    def keep(arm, step_size, weights):
        found.setdefault(arm, {})[step_size] = excess_loss(matrix, target, weights)

    for step_size in STEP_SIZES:
        path = stochastic_gradient_descent(matrix, target, start, indices, step_size=step_size)
        keep("fixed, last iterate", step_size, path[:, -1])
        keep("fixed, mean of the last half", step_size, path[:, -STEPS // 2 :].mean(1))
        keep("fixed, mean of the last 90%", step_size, path[:, -STEPS * 9 // 10 :].mean(1))
        falling = step_size * (1 - t / STEPS)
        path = stochastic_gradient_descent(matrix, target, start, indices, step_size=falling)
        keep("falling to 0 on a line", step_size, path[:, -1])
        keep("falling to 0 on a line, mean of the last half", step_size, path[:, -STEPS // 2 :].mean(1))
        keep("falling to 0 on a line, mean of the last 90%", step_size, path[:, -STEPS * 9 // 10 :].mean(1))
        path = stochastic_gradient_descent(matrix, target, start, passes, step_size=falling)
        keep("rows in a new order each pass, falling to 0 on a line", step_size, path[:, -1])
        path = stochastic_gradient_descent(matrix, target, start, indices, step_size=step_size / (1 + t / 10))
        keep("falling like 1/(1 + t/10)", step_size, path[:, -1])
        path = stochastic_gradient_descent(matrix, target, start, all_rows, step_size=step_size)
        keep("all 60 rows a step, 50 steps", step_size, path[:, -1].expand(CHOOSING + SCORED, -1))
    for factor in DECAYS:
        falling = (factor / (smallest * (t + 1))).clamp(max=1.0)
        path = stochastic_gradient_descent(matrix, target, start, indices, step_size=falling)
        keep("falling like 1/t, curvature known", factor, path[:, -1])
    return found


def _kept(excess: torch.Tensor) -> float:
    """Return an excess loss to six decimals, or, where that would be 0, to two digits."""
    return round(float(excess), 6) or float(f"{float(excess):.1e}")


def run() -> dict:
    """Return for each arm the excess loss by step size and problem, and the best step size with its figures."""
    torch.set_num_threads(1)
    by_problem = [excess_by_arm(seed) for seed in SEEDS]
    figures = {}
    for arm, sizes in by_problem[0].items():
        chosen = {s: sum(float(p[arm][s][:CHOOSING].mean()) for p in by_problem) for s in sizes}
        best = min(chosen, key=chosen.get)
        scored = {s: [_kept(p[arm][s][CHOOSING:].mean()) for p in by_problem] for s in sizes}
        figures[arm] = {
            "best step size": best,
            "excess": scored[best],
            "excess by step size": {f"{s:g}": values for s, values in scored.items()},
        }
    return figures
