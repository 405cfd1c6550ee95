"""Figures, explorer and predictions of lesson 01, gradient_descent_stability."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from course_lib.lessons.gradient_descent_stability.contents import lesson
from course_lib.optimization.gradient_descent import (
    best_heavy_ball,
    best_step,
    closed_form,
    contraction_factors,
    gradient_descent,
    heavy_ball,
    heavy_ball_rate,
    least_squares_loss,
    sharpness,
    stability_limit,
    svd_coordinates,
    worst_rate,
)
from course_lib.teaching import Explorer, Slider, lines, panels
from course_lib.teaching.style import BLACK, RED

SPECTRUM = torch.tensor([2.0, 1.7, 1.4, 1.1, 0.8], dtype=torch.float64)


def question_runs(step_sizes: Sequence[float] = (0.01, 0.1, 0.24, 0.26)) -> dict[float, Tensor]:
    """Return the losses of gradient descent on a 2 x 2 problem with singular values 2 and 1, per step size."""
    matrix = torch.diag(torch.tensor([2.0, 1.0], dtype=torch.float64))
    target = torch.tensor([2.0, 1.0], dtype=torch.float64)
    start = torch.zeros(2, dtype=torch.float64)
    run = lambda eta: gradient_descent(matrix, target, start, step_size=eta, steps=60)  # noqa: E731
    return {eta: least_squares_loss(matrix, target, run(eta)) for eta in step_sizes}


@lesson.figure(
    "One problem, four step sizes", "step t", "loss $L(w_t)$", yscale="log", ylim=(1e-8, 1e4), example=question_runs
)
def plot_question(axes, losses: Mapping[float, Tensor]):
    """Draw loss against step for one run a step size, in the order given."""
    lines(axes, None, {f"$\\eta$ = {step_size:g}": loss for step_size, loss in losses.items()})
    fates = [f"{s:g} {'grows' if loss[-1] > loss[0] else 'falls'}" for s, loss in losses.items()]
    return f"Loss against step on a logarithmic axis, one curve for each step size: {', '.join(fates)}."


@lesson.figure(
    "Four fates of an error ($\\sigma$ = 1)",
    "step t",
    "error $w_t - w^*$",
    ylim=(-4, 4),
    legend={"loc": "lower left", "ncols": 2},
)
def plot_signed_errors(axes, step_sizes: Sequence[float] = (0.2, 0.5, 0.8, 1.05), *, steps: int = 12):
    """Draw the error w_t - w* of the scalar problem with sigma = 1, from an error of 1."""
    one = torch.ones(1, dtype=torch.float64)
    for step_size, marker in zip(step_sizes, "osD^", strict=False):
        errors = closed_form(one, 0 * one, one, step_size=step_size, steps=steps)[:, 0]
        label = f"$\\eta$ = {step_size:g}, factor {1 - 2 * step_size:.2g}"
        axes.plot(errors, marker=marker, markersize=4, label=label)
    axes.axhline(0, color=BLACK, linewidth=0.8, linestyle="-")
    return (
        "The error against the step for sigma = 1: with step size 0.2 it shrinks on one side of zero, with 0.5 it is "
        "zero after one step, with 0.8 it changes sign at every step and shrinks, with 1.05 it changes sign and grows."
    )


@lesson.figure(
    "Only the two extreme directions decide",
    "step size $\\eta$",
    "$|1 - 2\\eta\\sigma_i^2|$",
    ylim=(0, 1.35),
    legend={"loc": "upper center", "ncols": 3, "fontsize": 8},
    example=lambda: SPECTRUM,
)
def plot_worst_rate(axes, singular_values: Tensor):
    """Draw |1 - 2 eta sigma_i^2| against eta for every direction, with the largest of them and its minimum."""
    limit, best = stability_limit(singular_values), best_step(singular_values)
    rate = worst_rate(singular_values, step_size=best)
    steps = np.linspace(0, 1.15 * limit, 400)
    curves = np.abs(1 - 2 * steps[:, None] * singular_values.square().numpy())
    labels = [f"$\\sigma_i$ = {sigma:g}" for sigma in singular_values.tolist()]
    lines(axes, steps, dict(zip(labels, curves.T, strict=True)), linewidth=1.2)
    axes.plot(steps, curves.max(axis=1), "-", color=BLACK, linewidth=3, alpha=0.55, label="largest of them")
    axes.axvline(limit, color=RED, linestyle=":", label="limit $1/\\sigma_{max}^2$")
    axes.plot([best], [rate], "o", color=BLACK, markersize=8, label=f"best step {best:.4f}")
    axes.axhline(1, color=BLACK, linewidth=0.8, linestyle="--")
    axes.set_xlim(0, steps[-1])
    return (
        f"The factor of every direction against the step size for {len(singular_values)} singular values. Their "
        f"maximum is V-shaped: the smallest singular value is its left arm, the largest its right arm, and they cross "
        f"at the best step {best:.4f}, with rate {rate:.3f}; at the limit {limit:.4f} the maximum reaches 1."
    )


@lesson.figure(
    ["The problem as given", "The same problem in rotated coordinates"],
    ["$w[1]$", "$\\hat w[1]$"],
    ["$w[2]$", "$\\hat w[2]$"],
    grid=(1, 2),
    xlim=(-2.4, 2.4),
    ylim=(-2.4, 2.4),
    aspect="equal",
    legend=["lower left", None],
)
def plot_rotated(left, right, *, angle: float = 0.6, steps: int = 12):
    """Draw one run on a problem whose axes are turned, and the same run in the coordinates of its SVD."""
    turn = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]], dtype=torch.float64)
    matrix = torch.diag(torch.tensor([2.0, 0.8], dtype=torch.float64)) @ turn
    target, start = torch.zeros(2, dtype=torch.float64), torch.tensor([-0.5, 2.0], dtype=torch.float64)
    path = gradient_descent(matrix, target, start, step_size=0.22, steps=steps)
    sigmas, _, axes, _ = svd_coordinates(matrix, target)
    grid = torch.cartesian_prod(*[torch.linspace(-2.4, 2.4, 81, dtype=torch.float64)] * 2)
    for place, problem, walked in ((left, matrix, path), (right, torch.diag(sigmas), path @ axes)):
        loss = least_squares_loss(problem, target, grid).reshape(81, 81).T
        ticks = grid[::81, 0]
        place.contour(ticks, ticks, loss, levels=[0.1, 0.6, 1.6, 3.2, 5.6], colors=BLACK, linewidths=0.6, alpha=0.5)
        place.plot(*walked.T, "-o", markersize=4, linewidth=1.4, label="iterates")
    for column in range(2):
        vector = axes[:, column] * (1 if axes[0, column] >= 0 else -1)
        left.plot(
            *torch.stack([-2.2 * vector, 2.2 * vector]).T, ":-"[column], color=RED, label=f"column {column + 1} of V"
        )
        (right.axhline if column == 0 else right.axvline)(0, color=RED, linestyle=":-"[column])
    return (
        "Left, the contours of a loss of two unknowns are tilted ellipses; the two columns of V are their axes, and the "
        "iterates jump to and fro along the short axis. Right, the same run seen in coordinates along those columns: the "
        "ellipses lie along the axes, and each coordinate shrinks by its own factor."
    )


@lesson.figure(
    ["Rate along one direction", "Both at their best, $\\kappa$ = 100"],
    ["$2\\eta\\sigma^2$", "step t"],
    ["largest $|z|$", "distance to the solution"],
    grid=(1, 2),
    ylim=[(0, 1.6), (1e-8, 10)],
    yscale=["linear", "log"],
    legend=["lower right", "upper right"],
)
def plot_momentum(left, right, *, sigmas: Sequence[float] = (1.0, 0.7, 0.4, 0.1), steps: int = 200):
    """Draw the rate along one direction for three momenta, and the best runs with and without momentum."""
    curvatures = np.linspace(0.001, 4.4, 300)
    rate = lambda x, beta: heavy_ball_rate(torch.ones(1), step_size=x / 2, momentum=beta)  # noqa: E731
    lines(left, curvatures, {f"$\\beta$ = {b:g}": [rate(float(x), b) for x in curvatures] for b in (0.0, 0.25, 0.64)})
    left.axhline(1, color=BLACK, linewidth=0.8)
    spectrum = torch.tensor(sigmas, dtype=torch.float64)
    still = torch.zeros_like(spectrum)
    step_size, momentum = best_heavy_ball(spectrum)
    runs = {
        "without momentum": {"step_size": best_step(spectrum), "momentum": 0.0},
        f"with momentum {momentum:.3f}": {"step_size": step_size, "momentum": momentum},
    }
    walks = {name: heavy_ball(torch.diag(spectrum), still, still + 1, steps=steps, **run) for name, run in runs.items()}
    lines(right, None, {name: walk.norm(dim=1).clamp(min=1e-12) for name, walk in walks.items()})
    left_at = {name: float(walk[-1].norm()) for name, walk in walks.items()}
    return (
        "Left, the size of the larger root against 2 eta sigma squared: without momentum it falls to 0 and rises to 1 at "
        "2; with momentum 0.25 it is flat at 0.5 from 0.25 to 2.25, with 0.64 flat at 0.8 from 0.04 to 3.24. Right, the "
        f"distance to the solution for condition number 100: after {steps} steps gradient descent at its best step is "
        f"{left_at['without momentum']:.1g} away, with the best momentum it is below 1e-8 after about a hundred."
    )


def small_network(
    *, width: int = 40, points: int = 24, degree: int = 4, seed: int = 0
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return flat weights and the loss, 1/2 mean squared error, of a tanh network with two hidden layers.

    It fits the Chebyshev polynomial cos(degree * arccos x) at `points` equidistant x in [-1, 1]; weights are
    N(0, 1 / fan_in), biases 0, in float64.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.linspace(-1, 1, points, dtype=torch.float64)[:, None]
    y = torch.cos(degree * torch.acos(x))
    shapes = [shape for a, b in pairwise([1, width, width, 1]) for shape in ((a, b), (b,))]
    counts = [math.prod(shape) for shape in shapes]
    parts = [
        torch.randn(count, generator=generator, dtype=torch.float64) / math.sqrt(shape[0])
        if len(shape) == 2
        else torch.zeros(count, dtype=torch.float64)
        for shape, count in zip(shapes, counts, strict=True)
    ]

    def loss(flat: Tensor) -> Tensor:
        w1, b1, w2, b2, w3, b3 = (p.reshape(s) for p, s in zip(flat.split(counts), shapes, strict=True))
        hidden = torch.tanh(torch.tanh(x @ w1 + b1) @ w2 + b2)
        return 0.5 * (hidden @ w3 + b3 - y).square().mean()

    return torch.cat(parts), loss


def edge_of_stability_runs(
    step_sizes: Sequence[float] = (0.2, 0.1), *, steps: int = 3000, every: int = 25
) -> dict[float, tuple[list[float], list[float]]]:
    """Train the small network by full-batch gradient descent; return (losses, sharpnesses) per step size."""
    runs = {}
    for step_size in step_sizes:
        weights, loss = small_network()
        generator = torch.Generator().manual_seed(1)
        losses, sharpnesses = [], []
        for step in range(steps):
            if step % every == 0:
                losses.append(float(loss(weights)))
                sharpnesses.append(sharpness(loss, weights, generator=generator))
            weights.requires_grad_()
            (gradient,) = torch.autograd.grad(loss(weights), weights)
            weights = weights.detach() - step_size * gradient
        runs[step_size] = losses, sharpnesses
    return runs


@lesson.figure(
    ["The loss still falls", "Sharpness climbs to $2/\\eta$"],
    "step t",
    ["training loss", "largest Hessian eigenvalue"],
    size=(8.6, 3.8),
    grid=(1, 2),
    yscale=["log", "linear"],
    example=edge_of_stability_runs,
)
def plot_edge_of_stability(
    left, right, runs: Mapping[float, tuple[Sequence[float], Sequence[float]]], *, every: int = 25
):
    """Draw loss and sharpness of full-batch training, one (losses, sharpnesses) pair a step size."""
    labels = [f"$\\eta$ = {step_size:g}" for step_size in runs]
    losses, sharpnesses = zip(*runs.values(), strict=True)
    steps = every * np.arange(len(losses[0]))
    lines(left, steps, dict(zip(labels, losses, strict=True)))
    curves = lines(right, steps, dict(zip(labels, sharpnesses, strict=True)))
    for step_size, curve in zip(runs, curves, strict=True):
        right.axhline(2 / step_size, color=curve.get_color(), linewidth=1, linestyle=":")
    right.set_ylim(0, None)
    settled = [float(np.mean(values[-len(values) // 3 :])) for values in sharpnesses]
    said = [f"step size {s:g} settles near {v:.0f} (2 / eta = {2 / s:.0f})" for s, v in zip(runs, settled, strict=True)]
    return (
        "Full-batch training of a small tanh network. Left: the loss falls, with spikes. Right: the largest Hessian "
        f"eigenvalue goes to 2 / eta (dotted), swings around it and settles: {'; '.join(said)}."
    )


@lesson.explorer
class TrajectoryExplorer(Explorer):
    """Iterates of gradient descent on a two-dimensional problem, over the contours of its loss."""

    title = "Gradient descent on two singular values"
    summary = (
        "Left: the path of the iterates over the contours of the loss, from the start to the solution w* = (1, 0.5). "
        "Right: the error along each of the two directions against the step, on a logarithmic axis."
    )
    step_size = Slider("step size", "η", "How far one step goes along the negative gradient", 0.2, 0.01, 0.6, 0.005)
    sigma_1 = Slider(
        "singular value", "σ₁", "Curvature of the loss along the first direction is 2σ₁²", 1.5, 0.2, 3.0, 0.05
    )
    sigma_2 = Slider(
        "singular value",
        "σ₂",
        "Curvature of the loss along the second direction is 2σ₂²; at 0 that direction never moves",
        0.6,
        0.0,
        3.0,
        0.05,
    )
    start_1 = Slider(
        "start, first entry", "w₀[1]", "Where the iterates start, along the first direction", -1.5, -2.5, 2.5, 0.1
    )
    start_2 = Slider(
        "start, second entry", "w₀[2]", "Where the iterates start, along the second direction", -1.5, -2.5, 2.5, 0.1
    )
    together = ("step_size", "sigma_1")
    size = (9.0, 4.0)
    steps = 40
    solution = torch.tensor([1.0, 0.5], dtype=torch.float64)
    contour_radii = (0.4, 1.0, 1.8, 3.0, 4.5, 6.5)
    layout = panels(
        ["Path over the contours of the loss", "Error along each direction"],
        ["$w[1]$", "step t"],
        ["$w[2]$", "error $|w_t[i] - w^*[i]|$"],
        grid=(1, 2),
        legend=["upper left", "upper right"],
        xlim=[(-3, 3), (0, steps)],
        ylim=[(-3, 3), (1e-6, 1e4)],
        aspect=["equal", None],
        yscale=["linear", "log"],
    )

    def compute(self, *, step_size, sigma_1, sigma_2, start_1, start_2):
        """Return what is drawn, and for the words the two factors, the singular values and the iterates."""
        sigma = torch.tensor([sigma_1, sigma_2], dtype=torch.float64)
        start = torch.tensor([start_1, start_2], dtype=torch.float64)
        iterates = gradient_descent(
            torch.diag(sigma), sigma * self.solution, start, step_size=step_size, steps=self.steps
        )
        errors = (iterates - self.solution).abs().clamp(1e-9, 1e9).numpy()
        path = iterates.clamp(-1e6, 1e6).numpy()
        angle = np.linspace(0, 2 * np.pi, 160)
        # The level set L = r^2 is an ellipse with half-axes r / sigma; at sigma = 0 it is a pair of lines.
        circle = np.stack([np.cos(angle), np.sin(angle)]) / np.maximum(sigma.numpy(), 1e-3)[:, None]
        return {
            "contours": [tuple(self.solution.numpy()[:, None] + r * circle) for r in self.contour_radii],
            "path": tuple(path.T),
            "errors": list(errors.T),
            "iterates": path,
            "factors": contraction_factors(sigma, step_size=step_size).tolist(),
            "sigma": sigma,
        }

    def draw(self, plane, decay):
        """Draw the solution, and contours, path and errors to be moved."""
        plane.plot(*self.solution, marker="*", color=BLACK, markersize=12, linestyle="none", label="$w^*$")
        grey = {"color": "0.65", "linewidth": 1, "linestyle": "-"}
        contours = [plane.plot([], [], **grey)[0] for _ in self.contour_radii]
        (path,) = lines(plane, [], ["$w_t$"], marker="o", markersize=4, linewidth=1.4)
        nothing = np.zeros(self.steps + 1)
        errors = lines(decay, None, {"direction 1": nothing, "direction 2": nothing})
        return {"contours": contours, "path": path, "errors": errors}

    def words(self, state):
        """Say which direction decides, how far the best step is, and where the path leads."""
        factors = [abs(f) for f in state["factors"]]
        values = " and ".join(f"|1 - 2ησ{n}²| = {f:.2f}" for n, f in zip("₁₂", factors, strict=True))
        best = best_step(state["sigma"])
        start, end = state["iterates"][0], state["iterates"][-1]
        # A direction with sigma = 0 has no error: every value of its entry solves the problem.
        moving = (state["sigma"] > 0).numpy()
        distance = float(np.linalg.norm((end - self.solution.numpy())[moving]))
        goal = "w*" if moving.all() else "the line of solutions"
        advice = (
            f"The best step here is {best:.3f}, the limit {stability_limit(state['sigma']):.3f}. From "
            f"({start[0]:g}, {start[1]:g}), {self.steps} steps end "
            f"{'more than 100,000' if distance > 1e5 else f'{distance:.2g}'} away from {goal}."
        )
        growing = [i for i, f in enumerate(factors) if f > 1 + 1e-9]
        if growing:
            worst = max(growing, key=lambda i: factors[i])
            return f"Diverges along direction {worst + 1}: |1 - 2ησ{'₁₂'[worst]}²| = {factors[worst]:.2f}. {advice}"
        if float(state["sigma"][1]) == 0:
            return f"Direction 2 has σ₂ = 0 and never moves; direction 1 has |1 - 2ησ₁²| = {factors[0]:.2f}. {advice}"
        if max(factors) > 1 - 1e-9:
            return f"At the limit: {values}; the error along one direction keeps its size. {advice}"
        if abs(factors[0] - factors[1]) < 1e-9:
            return f"Converges: {values}; both directions are equally fast. {advice}"
        slower = 1 + int(factors[1] > factors[0])
        return f"Converges: {values}; direction {slower} is the slower one. {advice}"


long_step_prediction = lesson.prediction(
    "01.P1",
    "One unknown $w$, loss $L(w) = (y - w)^2$, solution $w^* = y$. With $\\eta = 0.5$ a single step lands exactly on the "
    "solution. With $\\eta = 0.8$, what does the error $w_t - w^*$ do?",
    {
        "It shrinks and keeps its sign": "For that a step must stop short of the solution: η below 0.5.",
        "It shrinks and changes sign at every step": "The factor is 1 - 2 · 0.8 = -0.6: smaller than 1 in size, and "
        "negative.",
        "It grows": "The factor is 1 - 2 · 0.8 = -0.6, whose absolute value is below 1.",
    },
    answer="It shrinks and changes sign at every step",
    reveal=plot_signed_errors,
)

border_prediction = lesson.prediction(
    "01.P2",
    "In a network the largest Hessian eigenvalue $\\lambda_{max}$ grows during training. What happens when it reaches "
    "$2/\\eta$, where the quadratic theory says that gradient descent becomes unstable?",
    {
        "Training diverges": "On a fixed quadratic it would. Here the growing oscillation moves the weights to where "
        "the loss is flatter.",
        "λ stops there and the loss still falls": "The instability itself pushes the weights towards flatter places, "
        "and growth and push-back balance near 2/η.",
        "λ keeps growing, training does not care": "Above 2/η the iterates oscillate along the sharpest direction with "
        "growing size; they cannot ignore it for long.",
    },
    answer="λ stops there and the loss still falls",
    reveal=plot_edge_of_stability,
)

FIGURES = lesson.figures
