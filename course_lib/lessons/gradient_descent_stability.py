"""Figures, explorer, predictions and exercises of lesson 01, gradient_descent_stability."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.optimization.gradient_descent import (
    best_step,
    closed_form,
    contraction_factors,
    gradient_descent,
    least_squares_loss,
    sharpness,
    stability_limit,
    worst_rate,
)
from course_lib.teaching.exercise import Exercise, Mistake, Property
from course_lib.teaching.explorer import Explorer, Slider
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, RED, describe, new_figure, styled

# Figures


@styled
def plot_question(losses: Mapping[float, Tensor]) -> Figure:
    """Draw loss against step for one run a step size, in the order given."""
    figure = new_figure(6.4, 3.8)
    axes = figure.add_subplot()
    for step_size, loss in losses.items():
        axes.semilogy(loss, label=f"$\\eta$ = {step_size:g}")
    axes.set(xlabel="step t", ylabel="loss $L(w_t)$", ylim=(1e-8, 1e4), title="One problem, four step sizes")
    axes.legend(loc="upper right")
    fates = [f"{s:g} {'grows' if loss[-1] > loss[0] else 'falls'}" for s, loss in losses.items()]
    return describe(
        figure,
        "Loss against step on a logarithmic axis, one curve a step size: " + ", ".join(fates) + ".",
    )


def question_runs(step_sizes: Sequence[float] = (0.01, 0.1, 0.24, 0.26)) -> dict[float, Tensor]:
    """Return the losses of gradient descent on a 2 x 2 problem with singular values 2 and 1, per step size."""
    matrix = torch.diag(torch.tensor([2.0, 1.0], dtype=torch.float64))
    target = torch.tensor([2.0, 1.0], dtype=torch.float64)
    start = torch.zeros(2, dtype=torch.float64)
    return {
        step_size: least_squares_loss(
            matrix, target, gradient_descent(matrix, target, start, step_size=step_size, steps=60)
        )
        for step_size in step_sizes
    }


@styled
def plot_signed_errors(step_sizes: Sequence[float] = (0.2, 0.5, 0.8, 1.05), *, steps: int = 12) -> Figure:
    """Draw the error w_t - w* of the scalar problem with sigma = 1, from an error of 1."""
    figure = new_figure(6.4, 3.8)
    axes = figure.add_subplot()
    one = torch.ones(1, dtype=torch.float64)
    for step_size, marker in zip(step_sizes, "osD^", strict=False):
        errors = closed_form(one, 0 * one, one, step_size=step_size, steps=steps)[:, 0]
        axes.plot(
            errors,
            marker=marker,
            markersize=4,
            label=f"$\\eta$ = {step_size:g}, factor {1 - 2 * step_size:.2g}",
        )
    axes.axhline(0, color=BLACK, linewidth=0.8, linestyle="-")
    axes.set(
        xlabel="step t",
        ylabel="error $w_t - w^*$",
        ylim=(-4, 4),
        title="Four fates of an error ($\\sigma$ = 1)",
    )
    axes.legend(loc="lower left", ncols=2)
    return describe(
        figure,
        "The error against the step for sigma = 1: with step size 0.2 it shrinks on one side of zero, with 0.5 it "
        "is zero after one step, with 0.8 it changes sign at every step and shrinks, with 1.05 it changes sign "
        "and grows.",
    )


@styled
def plot_worst_rate(singular_values: Tensor) -> Figure:
    """Draw |1 - 2 eta sigma_i^2| against eta for every direction, with the largest of them and its minimum."""
    figure = new_figure(6.4, 4.0)
    axes = figure.add_subplot()
    limit, best = stability_limit(singular_values), best_step(singular_values)
    steps = np.linspace(0, 1.15 * limit, 400)
    curves = np.abs(1 - 2 * steps[:, None] * singular_values.square().numpy())
    for sigma, curve in zip(singular_values.tolist(), curves.T, strict=True):
        axes.plot(steps, curve, linewidth=1.2, label=f"$\\sigma_i$ = {sigma:g}")
    axes.plot(
        steps,
        curves.max(axis=1),
        color=BLACK,
        linestyle="-",
        linewidth=3,
        alpha=0.55,
        label="largest of them",
    )
    axes.axvline(limit, color=RED, linestyle=":", label="limit $1/\\sigma_{max}^2$")
    rate = worst_rate(singular_values, step_size=best)
    axes.plot([best], [rate], "o", color=BLACK, markersize=8, label=f"best step {best:.4f}")
    axes.axhline(1, color=BLACK, linewidth=0.8, linestyle="--")
    axes.set(
        xlabel="step size $\\eta$", ylabel="$|1 - 2\\eta\\sigma_i^2|$", xlim=(0, steps[-1]), ylim=(0, 1.35)
    )
    axes.set_title("Only the two extreme directions decide")
    axes.legend(loc="upper center", ncols=3, fontsize=8)
    return describe(
        figure,
        f"The factor of every direction against the step size for {len(singular_values)} singular values. Their "
        f"maximum is V-shaped: the smallest singular value is its left arm, the largest its right arm, and they "
        f"cross at the best step {best:.4f}, with rate {rate:.3f}; at the limit {limit:.4f} the maximum reaches 1.",
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
    sizes = [1, width, width, 1]
    shapes = [shape for a, b in pairwise(sizes) for shape in ((a, b), (b,))]
    counts = [math.prod(shape) for shape in shapes]
    weights = torch.cat(
        [
            torch.randn(count, generator=generator, dtype=torch.float64) / math.sqrt(shape[0])
            if len(shape) == 2
            else torch.zeros(count, dtype=torch.float64)
            for shape, count in zip(shapes, counts, strict=True)
        ]
    )

    def loss(flat: Tensor) -> Tensor:
        w1, b1, w2, b2, w3, b3 = (p.reshape(s) for p, s in zip(flat.split(counts), shapes, strict=True))
        hidden = torch.tanh(torch.tanh(x @ w1 + b1) @ w2 + b2)
        return 0.5 * (hidden @ w3 + b3 - y).square().mean()

    return weights, loss


@styled
def plot_edge_of_stability(
    runs: Mapping[float, tuple[Sequence[float], Sequence[float]]], *, every: int
) -> Figure:
    """Draw loss and sharpness of full-batch training, one (losses, sharpnesses) pair a step size."""
    figure = new_figure(8.6, 3.8)
    left, right = figure.subplots(1, 2)
    said = []
    for (step_size, (losses, sharpnesses)), color, style in zip(
        runs.items(), (BLUE, RED, GREEN, ORANGE), ("-", "--", "-.", ":"), strict=False
    ):
        steps = every * np.arange(len(sharpnesses))
        left.semilogy(steps, losses, color=color, linestyle=style, label=f"$\\eta$ = {step_size:g}")
        right.plot(steps, sharpnesses, color=color, linestyle=style, label=f"$\\eta$ = {step_size:g}")
        right.axhline(2 / step_size, color=color, linewidth=1, linestyle=":")
        settled = float(np.mean(sharpnesses[-len(sharpnesses) // 3 :]))
        said.append(f"step size {step_size:g} settles near {settled:.0f} (2 / eta = {2 / step_size:.0f})")
    left.set(xlabel="step t", ylabel="training loss", title="The loss still falls")
    right.set(
        xlabel="step t",
        ylabel="largest Hessian eigenvalue",
        title="Sharpness climbs to $2/\\eta$",
        ylim=(0, None),
    )
    left.legend(loc="upper right")
    right.legend(loc="lower right")
    return describe(
        figure,
        "Full-batch training of a small tanh network. Left: the loss falls, with spikes. Right: the largest "
        "Hessian eigenvalue goes to 2 / eta (dotted), swings around it and settles: " + "; ".join(said) + ".",
    )


# Explorer


class TrajectoryExplorer(Explorer):
    """Iterates of gradient descent on a two-dimensional problem, over the contours of its loss."""

    title = "Gradient descent on two singular values"
    summary = (
        "Left: the path of the iterates over the contours of the loss, from the start to the solution w* = (1, 0.5). "
        "Right: the error along each of the two directions against the step, on a logarithmic axis."
    )
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "step_size": Slider(
            label="step size", symbol="η", default=0.2, minimum=0.01, maximum=0.6, step=0.005,
            tooltip="How far one step goes along the negative gradient",
        ),
        "sigma_1": Slider(
            label="singular value", symbol="σ₁", default=1.5, minimum=0.2, maximum=3.0, step=0.05,
            tooltip="Curvature of the loss along the first direction is 2σ₁²",
        ),
        "sigma_2": Slider(
            label="singular value", symbol="σ₂", default=0.6, minimum=0.0, maximum=3.0, step=0.05,
            tooltip="Curvature of the loss along the second direction is 2σ₂²; at 0 that direction never moves",
        ),
        "start_1": Slider(
            label="start, first entry", symbol="w₀[1]", default=-1.5, minimum=-2.5, maximum=2.5, step=0.1,
            tooltip="Where the iterates start, along the first direction",
        ),
        "start_2": Slider(
            label="start, second entry", symbol="w₀[2]", default=-1.5, minimum=-2.5, maximum=2.5, step=0.1,
            tooltip="Where the iterates start, along the second direction",
        ),
    }  # fmt: skip
    size = (9.0, 4.0)
    steps = 40
    solution = torch.tensor([1.0, 0.5], dtype=torch.float64)
    contour_radii = (0.4, 1.0, 1.8, 3.0, 4.5, 6.5)

    def compute(self, *, step_size, sigma_1, sigma_2, start_1, start_2):
        """Return the iterates, their errors, the contours and the two factors."""
        sigma = torch.tensor([sigma_1, sigma_2], dtype=torch.float64)
        start = torch.tensor([start_1, start_2], dtype=torch.float64)
        iterates = gradient_descent(
            torch.diag(sigma), sigma * self.solution, start, step_size=step_size, steps=self.steps
        )
        angle = np.linspace(0, 2 * np.pi, 160)
        # The level set L = r^2 is an ellipse with half-axes r / sigma; at sigma = 0 it is a pair of lines.
        axes = np.maximum(sigma.numpy(), 1e-3)
        circle = np.stack([np.cos(angle), np.sin(angle)]) / axes[:, None]
        return {
            "iterates": iterates.clamp(-1e6, 1e6).numpy(),
            "errors": (iterates - self.solution).abs().clamp(1e-9, 1e9).numpy(),
            "contours": [self.solution.numpy()[:, None] + r * circle for r in self.contour_radii],
            "factors": contraction_factors(sigma, step_size=step_size).tolist(),
            "sigma": sigma,
            "step_size": step_size,
        }

    def draw(self, figure):
        """Draw both axes with fixed limits."""
        plane, decay = figure.subplots(1, 2)
        plane.set(
            xlim=(-3, 3),
            ylim=(-3, 3),
            xlabel="$w[1]$",
            ylabel="$w[2]$",
            title="Path over the contours of the loss",
        )
        plane.set_aspect("equal")
        plane.plot(*self.solution, marker="*", color=BLACK, markersize=12, linestyle="none", label="$w^*$")
        contours = [
            plane.plot([], [], color="0.65", linewidth=1, linestyle="-")[0] for _ in self.contour_radii
        ]
        (path,) = plane.plot(
            [], [], color=BLUE, marker="o", markersize=4, linewidth=1.4, linestyle="-", label="$w_t$"
        )
        plane.legend(loc="upper left")
        decay.set(
            xlim=(0, self.steps), ylim=(1e-6, 1e4), yscale="log", xlabel="step t", ylabel="error $|w_t[i] - w^*[i]|$",
            title="Error along each direction",
        )  # fmt: skip
        first, second = (
            decay.plot([], [], color=color, linestyle=style, label=f"direction {i}")[0]
            for i, color, style in ((1, BLUE, "-"), (2, RED, "--"))
        )
        decay.legend(loc="upper right")
        return {"contours": contours, "path": path, "first": first, "second": second}

    def update(self, artists, state):
        """Move contours, path and error curves."""
        for line, (x, y) in zip(artists["contours"], state["contours"], strict=True):
            line.set_data(x, y)
        artists["path"].set_data(state["iterates"][:, 0], state["iterates"][:, 1])
        steps = np.arange(self.steps + 1)
        artists["first"].set_data(steps, state["errors"][:, 0])
        artists["second"].set_data(steps, state["errors"][:, 1])

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


# Predictions


def overshoot_prediction() -> Prediction:
    """Ask what the error does between the best step and the limit."""
    return Prediction(
        "01.P1",
        "The problem is scalar with $\\sigma = 1$, so the limit is $\\eta = 1$. With $\\eta = 0.8$, what does the "
        "error $w_t - w^*$ do?",
        choices={
            "It shrinks and keeps its sign": "That needs 1 - 2η > 0, a step below 0.5.",
            "It shrinks and changes sign at every step": "The factor is 1 - 2 · 0.8 = -0.6: smaller than 1 in size, "
            "and negative.",
            "It grows": "The factor is 1 - 2 · 0.8 = -0.6, whose absolute value is below 1.",
        },
        answer="It shrinks and changes sign at every step",
        reveal=plot_signed_errors,
    )


def edge_prediction(runs, *, every: int) -> Prediction:
    """Ask what happens when the sharpness of a network reaches 2 / eta."""
    return Prediction(
        "01.P2",
        "In a network the largest Hessian eigenvalue $\\lambda_{max}$ grows during training. What happens when it "
        "reaches $2/\\eta$, where the quadratic theory says that gradient descent becomes unstable?",
        choices={
            "Training diverges": "On a fixed quadratic it would. Here the growing oscillation moves the weights to "
            "where the loss is flatter.",
            "λ stops there and the loss still falls": "The instability itself pushes the weights towards flatter "
            "places, and growth and push-back balance near 2/η.",
            "λ keeps growing, training does not care": "Above 2/η the iterates oscillate along the sharpest "
            "direction with growing size; they cannot ignore it for long.",
        },
        answer="λ stops there and the loss still falls",
        reveal=lambda: plot_edge_of_stability(runs, every=every),
    )


# Exercises


def _uniform(generator: torch.Generator, low: float, high: float, digits: int = 2) -> float:
    return round(low + (high - low) * float(torch.rand((), generator=generator)), digits)


def _values(generator: torch.Generator, count: int) -> Tensor:
    drawn = 0.3 + 2.7 * torch.rand(count, generator=generator, dtype=torch.float64)
    return drawn.mul(10).round().div(10).sort(descending=True).values


def _scalar_run(step_size: float, start: float, *, sigma: float, steps: int = 400) -> float:
    """Return |w_T - w*| / |w_0 - w*| for the loss 1/2 (y - sigma w)^2, run step by step."""
    error = start
    for _ in range(steps):
        error = error - step_size * sigma**2 * error
        if abs(error) > 1e12 * abs(start):
            break
    return abs(error / start)


_LIMIT = Exercise(
    id="01.1",
    title="The loss with one half",
    kind="value",
    difficulty=1,
    minutes=3,
    prompt="Many texts write the loss as $L(w) = \\frac12 (y - \\sigma w)^2$. Let $\\sigma = 2$. What is the limit of "
    "the step size: the number $\\eta_{max}$ such that gradient descent converges for every $0 < \\eta < \\eta_{max}$ "
    "and for no larger $\\eta$?",
    draw=lambda generator: {"start": _uniform(generator, 0.5, 3.0)},
    reference=0.5,
    properties=(
        Property(
            "A slightly larger step than your limit still converges.",
            lambda inputs, limit: _scalar_run((1 + 1e-6) * limit, inputs["start"], sigma=2.0) > 1,
        ),
        Property(
            "A slightly smaller step than your limit does not converge.",
            lambda inputs, limit: limit > 0 and _scalar_run((1 - 1e-6) * limit, inputs["start"], sigma=2.0) < 1,
        ),
    ),
    hints=(
        "Differentiate: what is the gradient of 1/2 (y - σw)², and what is it without the 1/2?",
        "Write one step for the error w - w* and read off the factor it is multiplied by.",
        "The factor is 1 - ησ². For which η is its absolute value below 1?",
    ),
    mistakes=(
        Mistake("limit of the loss without 1/2", 0.25, "That is 1/σ², the limit for the loss without the 1/2: halving "
                "the loss halves the gradient, so the step may be twice as long."),
        Mistake("best step instead of limit", 0.125, "That is 1/(2σ²), the step that solves the loss without 1/2 at "
                "once; the question asks where convergence ends."),
        Mistake("forgot the square", 1.0, "You divided by σ instead of σ²: the gradient holds σ once from the "
                "residual and once from the chain rule."),
        Mistake("multiplied by the square", 8.0, "You multiplied by σ²: a steeper loss needs a shorter step, not a "
                "longer one."),
    ),
)  # fmt: skip


def gradient_step(matrix, target, weights, step_size):
    """One step of gradient descent on ||y - X w||^2."""
    return weights + 2 * step_size * matrix.T @ (target - matrix @ weights)


def _draw_step(generator: torch.Generator) -> dict:
    rows = int(torch.randint(2, 5, (), generator=generator))
    draw = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64).round(decimals=1)  # noqa: E731
    return {
        "matrix": draw(rows, 2),
        "target": draw(rows),
        "weights": draw(2),
        "step_size": _uniform(generator, 0.01, 0.3),
    }


def _by_autograd(inputs: Mapping) -> Tensor:
    weights = inputs["weights"].clone().requires_grad_()
    loss = (inputs["target"] - inputs["matrix"] @ weights).square().sum()
    return (weights - inputs["step_size"] * torch.autograd.grad(loss, weights)[0]).detach()


_STEP = Exercise(
    id="01.2",
    title="One step for a matrix",
    kind="function",
    difficulty=1,
    minutes=5,
    prompt="Write `gradient_step(matrix, target, weights, step_size)`: one step of gradient descent on "
    "$L(w) = \\lVert y - Xw\\rVert^2$. `matrix` is $X$ with shape `(rows, columns)`, `target` is $y$, "
    "`weights` is $w$; return the new weights, a float64 tensor of shape `(columns,)`.",
    draw=_draw_step,
    reference=gradient_step,
    properties=(
        Property(
            "A step should be weights minus step_size times the gradient of the loss.",
            lambda inputs, output: torch.allclose(output, _by_autograd(inputs), atol=1e-9),
        ),
    ),
    hints=(
        "The loss is a sum of squares: its gradient is -2 times something times the residual y - Xw.",
        "That something must turn a vector with `rows` entries into one with `columns` entries.",
        "w_new = w + 2η Xᵀ (y - Xw).",
    ),
    mistakes=(
        Mistake("went uphill", lambda x, y, w, s: w - 2 * s * x.T @ (y - x @ w),
                "Your step goes uphill: with the residual y - Xw the gradient is -2Xᵀ(y - Xw), and minus its minus "
                "is a plus."),
        Mistake("dropped the 2", lambda x, y, w, s: w + s * x.T @ (y - x @ w),
                "The factor 2 is missing: it comes from differentiating the square, and only the loss with 1/2 "
                "cancels it."),
        Mistake("averaged over rows", lambda x, y, w, s: w + 2 * s * x.T @ (y - x @ w) / len(y),
                "You divided by the number of rows: that is the gradient of the mean squared error, this loss is "
                "the sum."),
        Mistake("returned the change", lambda x, y, w, s: 2 * s * x.T @ (y - x @ w),
                "You returned the change alone; the new weights are the old ones plus that change."),
    ),
)  # fmt: skip


def first_step_below(singular_value, step_size, accuracy):
    """Multiply the relative error by |1 - 2 eta sigma^2| until it is below epsilon, and count."""
    factor = abs(1 - 2 * step_size * singular_value**2)
    error, steps = factor, 1
    while error >= accuracy:
        error, steps = error * factor, steps + 1
    return steps


# Where a wrong rounding or a missing case shows: powers that meet epsilon exactly, and a factor of exactly 0.
_EDGES = (
    {"singular_value": 1.0, "step_size": 0.25, "accuracy": 0.25},
    {"singular_value": 1.0, "step_size": 0.75, "accuracy": 0.125},
    {"singular_value": 1.0, "step_size": 0.5, "accuracy": 0.1},
    {"singular_value": 2.0, "step_size": 0.125, "accuracy": 0.01},
)


def _draw_accuracy(generator: torch.Generator) -> dict:
    if float(torch.rand((), generator=generator)) < 0.4:
        return dict(_EDGES[int(torch.randint(len(_EDGES), (), generator=generator))])
    sigma = _uniform(generator, 0.5, 2.0, 1)
    # Both sides of 1 / (2 sigma^2): below it the iterates approach from one side, above it they overshoot.
    return {
        "singular_value": sigma,
        "step_size": round(_uniform(generator, 0.08, 0.92) / sigma**2, 3),
        "accuracy": (0.5, 0.1, 0.01, 0.001)[int(torch.randint(4, (), generator=generator))],
    }


def _factor(inputs: Mapping) -> float:
    return abs(1 - 2 * inputs["step_size"] * inputs["singular_value"] ** 2)


def _log_ratio(sigma: float, step_size: float, accuracy: float, *, gain: float = 2.0) -> float:
    factor = abs(1 - gain * step_size * sigma**2)
    return math.log(accuracy) / math.log(factor) if factor > 0 else 0.0


_ACCURACY = Exercise(
    id="01.3",
    title="How many steps",
    kind="function",
    difficulty=2,
    minutes=10,
    prompt="Write `first_step_below(singular_value, step_size, accuracy)`: from $w_0 = 0$ on the loss "
    "$(y - \\sigma w)^2$, the first whole number $t$ with $|w_t - w^*| < \\varepsilon |w^*|$. You may assume "
    "$0 < \\eta < 1/\\sigma^2$ and $0 < \\varepsilon < 1$. Both $\\eta$ below and above $1/(2\\sigma^2)$ will be tried.",
    draw=_draw_accuracy,
    reference=first_step_below,
    properties=(
        Property("The number of steps is a whole number, 1 or more.", lambda i, t: t >= 1 and float(t).is_integer()),
        Property(
            "After your number of steps the error is not yet below the accuracy.",
            lambda i, t: _factor(i) ** float(t) < i["accuracy"],
        ),
        Property(
            "One step earlier the error is below the accuracy already.",
            lambda i, t: _factor(i) ** (float(t) - 1) >= i["accuracy"],
        ),
    ),
    hints=(
        "From w_0 = 0 the relative error after t steps is |1 - 2ησ²| to the power t.",
        "Take logarithms, and remember that dividing by a negative number turns the inequality round.",
        "t is the smallest whole number above ln ε / ln |1 - 2ησ²|; what if the factor is exactly 0?",
    ),
    mistakes=(
        Mistake("left out the absolute value",
                lambda s, e, a: math.floor(math.log(a) / math.log(1 - 2 * e * s**2)) + 1,
                "You left out the absolute value, as the notes do: above η = 1/(2σ²) the factor 1 - 2ησ² is negative "
                "and has no logarithm."),
        Mistake("no case for a factor of 0",
                lambda s, e, a: math.floor(math.log(a) / math.log(abs(1 - 2 * e * s**2))) + 1,
                "Right but for one case: at η = 1/(2σ²) the factor is exactly 0, and 0 has no logarithm. One step is "
                "enough there."),
        Mistake("rounded up", lambda s, e, a: max(1, math.ceil(_log_ratio(s, e, a))),
                "You rounded up, which is right unless the bound is a whole number: there the error equals ε and is "
                "not below it. Take the next whole number."),
        Mistake("rounded up, no case for a factor of 0",
                lambda s, e, a: math.ceil(math.log(a) / math.log(abs(1 - 2 * e * s**2))),
                "Two cases are left: at η = 1/(2σ²) the factor is 0 and has no logarithm, and where the bound is a "
                "whole number the error equals ε and is not below it."),
        Mistake("rounded down", lambda s, e, a: max(1, math.floor(_log_ratio(s, e, a))),
                "You rounded down: at that step the error is not below ε yet."),
        Mistake("rounded down, no case for a factor of 0",
                lambda s, e, a: math.floor(math.log(a) / math.log(abs(1 - 2 * e * s**2))),
                "You rounded down: at that step the error is not below ε yet. And at η = 1/(2σ²) the factor is 0, "
                "which has no logarithm."),
        Mistake("forgot the square", lambda s, e, a: math.floor(_log_ratio(math.sqrt(s), e, a)) + 1,
                "Your factor has σ where σ² belongs: the gradient holds σ twice."),
        Mistake("did not round", lambda s, e, a: _log_ratio(s, e, a),
                "You returned the bound itself. Steps are whole: the answer is the next whole number above it."),
        Mistake("forgot the 2", lambda s, e, a: math.floor(_log_ratio(s, e, a, gain=1.0)) + 1,
                "Your factor is 1 - ησ²: that belongs to the loss with 1/2. Here it is 1 - 2ησ²."),
        Mistake("turned the fraction over",
                lambda s, e, a: math.floor(1 / _log_ratio(s, e, a)) + 1 if _log_ratio(s, e, a) else 1,
                "Your fraction is upside down: ln ε belongs on top, since a smaller ε needs more steps."),
    ),
)  # fmt: skip


def _true_iterate(c: Mapping) -> float:
    w = float(c["start"])
    for _ in range(int(c["steps"])):
        w += 2 * c["step_size"] * c["singular_value"] * (c["target"] - c["singular_value"] * w)
    return w


def _printed_iterate(c: Mapping) -> float:
    solution = c["target"] / c["singular_value"]
    return solution + (1 - 2 * c["step_size"] * c["singular_value"] ** 2) * (c["start"] - solution)


def _admissible(c: Mapping) -> bool:
    return (
        float(c["steps"]).is_integer()
        and 0 <= c["steps"] <= 10_000
        and c["singular_value"] > 0
        and 0 < c["step_size"] < 1 / c["singular_value"] ** 2
    )


def _same_counterexample(c: Mapping) -> bool:
    scale = abs(c["start"] - c["target"] / c["singular_value"])
    return abs(_true_iterate(c) - _printed_iterate(c)) <= 0.05 * scale


_COUNTEREXAMPLE = Exercise(
    id="01.4",
    title="Catch the printed formula",
    kind="flaw",
    difficulty=2,
    minutes=8,
    prompt="The notes print $w_t = \\frac y\\sigma + (1 - 2\\eta\\sigma^2)\\,(w_0 - \\frac y\\sigma)$ for the iterate "
    "after $t$ steps. Give a counterexample: a dictionary with the numbers `singular_value` ($\\sigma > 0$), `target` "
    "($y$), `start` ($w_0$), `step_size` (a stable one, $0 < \\eta < 1/\\sigma^2$) and `steps` ($t$) for which the true "
    "iterate and the printed one differ by more than 5% of the error at the start, $|w_0 - y/\\sigma|$.",
    draw=lambda generator: {"seed": int(torch.randint(1000, (), generator=generator))},
    reference={"singular_value": 2.0, "target": 3.0, "start": 0.0, "step_size": 0.1, "steps": 5},
    properties=(
        Property(
            "Take σ > 0, a whole number of steps up to 10,000 and a stable step size, 0 < η < 1/σ².",
            lambda inputs, c: _admissible(c),
        ),
        Property(
            "The printed formula and the true iterate agree for your numbers to 5%.",
            lambda inputs, c: _admissible(c) and not _same_counterexample(c),
        ),
    ),
    hints=(
        "Compare the printed formula with (01.3). What was lost?",
        "For which number of steps does the lost piece make no difference? Avoid that one.",
        "Take the factor 1 - 2ησ² well away from 0 and 1, say 1/5, and a few steps.",
    ),
    mistakes=(
        Mistake("one step", {"singular_value": 2.0, "target": 3.0, "start": 0.0, "step_size": 0.1, "steps": 1},
                "With one step the printed formula is right: what it lost is the exponent t, and x¹ = x.",
                lambda i, c: _admissible(c) and c["steps"] == 1),
        Mistake("start at the solution",
                {"singular_value": 2.0, "target": 3.0, "start": 1.5, "step_size": 0.1, "steps": 5},
                "You start at the solution, where every formula stays: choose w₀ different from y/σ.",
                lambda i, c: _admissible(c) and c["start"] == c["target"] / c["singular_value"]),
        Mistake("solved in one step",
                {"singular_value": 2.0, "target": 3.0, "start": 0.0, "step_size": 0.125, "steps": 5},
                "Your factor 1 - 2ησ² is (nearly) 0: after one step the error is gone, and any power of 0 is 0.",
                lambda i, c: _admissible(c) and c["steps"] > 1
                and abs(1 - 2 * c["step_size"] * c["singular_value"] ** 2) < 0.05),
        Mistake("barely moving",
                {"singular_value": 1.0, "target": 3.0, "start": 0.0, "step_size": 0.001, "steps": 3},
                "Your factor 1 - 2ησ² is nearly 1 and the steps are few: both formulas hardly move. Take a larger "
                "step size or more steps.",
                lambda i, c: _admissible(c) and c["steps"] > 1 and _same_counterexample(c)
                and 0.95 < 1 - 2 * c["step_size"] * c["singular_value"] ** 2 < 1),
        Mistake("an unstable step",
                {"singular_value": 2.0, "target": 3.0, "start": 0.0, "step_size": 0.3, "steps": 5},
                "Your step is unstable, η ≥ 1/σ²: choose one for which gradient descent converges.",
                lambda i, c: c["singular_value"] > 0 and c["step_size"] >= 1 / c["singular_value"] ** 2),
    ),
)  # fmt: skip


def best_step_size(singular_values):
    """Return the step size with the smallest worst-case factor."""
    nonzero = singular_values[singular_values > 0]
    return 1 / (nonzero.max() ** 2 + nonzero.min() ** 2)


def _draw_spectrum(generator: torch.Generator) -> dict:
    count = int(torch.randint(2, 6, (), generator=generator))
    values = _values(generator, count)
    if float(torch.rand((), generator=generator)) < 0.4:
        values = torch.cat([values, torch.zeros(1, dtype=torch.float64)])
    return {"singular_values": values[torch.randperm(len(values), generator=generator)]}


def _beats_neighbours(inputs: Mapping, step) -> bool:
    values = inputs["singular_values"]
    rate = lambda eta: worst_rate(values, step_size=float(eta))  # noqa: E731
    return rate(step) < 1 and all(
        rate(step) <= rate(step * scale) + 1e-12 for scale in (0.5, 0.9, 0.99, 0.999, 1.001, 1.01, 1.1, 1.5)
    )


_BEST = Exercise(
    id="01.5",
    title="The best step for any spectrum",
    kind="function",
    difficulty=3,
    minutes=15,
    prompt="Write `best_step_size(singular_values)`: the step size $\\eta$ that makes the slowest direction as fast as "
    "possible, $\\min_\\eta \\max_i |1 - 2\\eta\\sigma_i^2|$, over the directions that move at all. `singular_values` is a "
    "float64 tensor of two to six entries in any order, one of which may be zero; return a number.",
    draw=_draw_spectrum,
    reference=best_step_size,
    properties=(
        Property("The step must be positive.", lambda i, step: float(step) > 0),
        Property("A nearby step has a smaller worst-case factor than yours.", lambda i, s: _beats_neighbours(i, s)),
    ),
    hints=(
        "Draw |1 - 2ησ²| against η for three values of σ. Which of the curves are ever the highest?",
        "1 - 2ησ² falls as σ² grows, so only the largest and the smallest σ can have the largest absolute value.",
        "Set 1 - 2ησ_min² equal to 2ησ_max² - 1, and leave out σ = 0: such a direction has no error that moves.",
    ),
    mistakes=(
        Mistake("kept the zero", lambda s: 1 / (s.max() ** 2 + s.min() ** 2),
                "You let σ = 0 count as the smallest value. A direction with σ = 0 never moves, whatever the step; "
                "take the smallest σ that is not zero."),
        Mistake("first and last entry", lambda s: 1 / (s[0] ** 2 + s[-1] ** 2),
                "You took the first and the last entry. The values come in any order: look for the largest and the "
                "smallest that is not zero."),
        Mistake("forgot the squares", lambda s: 1 / (s[s > 0].max() + s[s > 0].min()),
                "You added the singular values themselves: curvature goes with σ²."),
        Mistake("factor 2 of the other loss", lambda s: 2 / (s[s > 0].max() ** 2 + s[s > 0].min() ** 2),
                "That is the best step for the loss with 1/2, twice the one asked for here: it lies above the limit."),
        Mistake("average of all curvatures", lambda s: 1 / (2 * s[s > 0].square().mean()),
                "You used the average of all σ². Only the two extremes matter: the directions between them are "
                "never the slowest."),
        Mistake("solved the steepest direction", lambda s: 1 / (2 * s.max() ** 2),
                "That step finishes the steepest direction at once and is too short for the flattest one: balance "
                "the two."),
        Mistake("the limit itself", lambda s: 1 / s.max() ** 2,
                "That is the stability limit: there the steepest direction keeps its error for ever."),
    ),
)  # fmt: skip

EXERCISES = {e.id: e for e in (_LIMIT, _STEP, _ACCURACY, _COUNTEREXAMPLE, _BEST)}


def edge_of_stability_runs(
    step_sizes: Sequence[float] = (0.2, 0.1), *, steps: int = 3000, every: int = 25
) -> dict[float, tuple[list[float], list[float]]]:
    """Train the small network by full-batch gradient descent; return (losses, sharpnesses) per step size."""
    runs = {}
    for step_size in step_sizes:
        weights, loss = small_network()
        gradient = torch.func.grad(loss)
        generator = torch.Generator().manual_seed(1)
        losses, sharpnesses = [], []
        for step in range(steps):
            if step % every == 0:
                losses.append(float(loss(weights)))
                sharpnesses.append(sharpness(loss, weights, generator=generator))
            weights = weights - step_size * gradient(weights)
        runs[step_size] = losses, sharpnesses
    return runs


SPECTRUM = torch.tensor([2.0, 1.7, 1.4, 1.1, 0.8], dtype=torch.float64)

FIGURES = {
    "question": lambda: plot_question(question_runs()),
    "signed_errors": plot_signed_errors,
    "worst_rate": lambda: plot_worst_rate(SPECTRUM),
    "explorer": lambda: TrajectoryExplorer().strip(),
    "edge_of_stability": lambda: plot_edge_of_stability(edge_of_stability_runs(), every=25),
}
