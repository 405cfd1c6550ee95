"""Figures, explorer and predictions of lesson 03, ridge_noise_and_map."""

import math
from collections.abc import Mapping

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor

from course_lib.lessons.ridge_noise_and_map.contents import lesson
from course_lib.measured import quote
from course_lib.optimization.ridge import (
    mean_factor,
    mean_limit,
    moments,
    noisy_copies,
    noisy_sgd,
    posterior,
    ridge,
    ridge_flops,
    second_moment_factor,
    second_moment_limit,
    shrinkage,
    stationary_moments,
    typical_factor,
)
from course_lib.teaching import Explorer, Slider, lines, markdown_table, panels
from course_lib.teaching.style import BLACK, BLUE, ORANGE, RED


def wiggly_data(*, rows: int = 12, seed: int = 3) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return places, their features X and targets y, and a grid with its features.

    The features of a place t in [-1, 1] are the Chebyshev polynomials cos(k arccos t) for k = 0, ..., rows - 1: as
    many as places, so that least squares runs through every point.
    """
    generator = torch.Generator().manual_seed(seed)
    degrees = torch.arange(rows, dtype=torch.float64)
    places = torch.linspace(-1, 1, rows, dtype=torch.float64)
    grid = torch.linspace(-1, 1, 401, dtype=torch.float64)
    target = torch.sin(torch.pi * places)
    target = target + 0.3 * torch.randn(rows, generator=generator, dtype=torch.float64)
    features, grid_features = (torch.cos(torch.acos(t)[:, None] * degrees) for t in (places, grid))
    return places, features, target, grid, grid_features


def question_curves() -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
    """Return places, targets, grid and the four fitted curves of the question."""
    places, matrix, target, grid, grid_matrix = wiggly_data()
    noise = 0.15
    penalty = len(matrix) * noise**2
    generator = torch.Generator().manual_seed(0)
    copies = matrix + noise * torch.randn(2000, *matrix.shape, generator=generator, dtype=torch.float64)
    rows = copies.reshape(-1, matrix.shape[1])
    weights = {
        "least squares": torch.linalg.pinv(matrix) @ target,
        "noise on the inputs": torch.linalg.lstsq(rows, target.repeat(len(copies))[:, None]).solution[:, 0],
        "penalty": ridge(matrix, target, penalty, system="primal"),
        "prior": ridge(matrix, target, penalty, system="dual"),
    }
    return places, target, grid, {name: grid_matrix @ w for name, w in weights.items()}


@lesson.figure(
    "Three recipes, one curve",
    "t",
    "y",
    size=(7.2, 4.0),
    ylim=(-2.3, 2.9),
    legend={"loc": "upper right", "ncols": 2},
    example=question_curves,
)
def plot_question(axes, places: Tensor, target: Tensor, grid: Tensor, curves: Mapping[str, Tensor]):
    """Draw the data and the fitted curves, in the order given; the last ones lie on top of each other."""
    looks = (("0.55", "-", 1.4), (ORANGE, "-", 7), (BLUE, "--", 2.6), (BLACK, ":", 2.2))
    for (name, curve), (color, style, width) in zip(curves.items(), looks, strict=False):
        axes.plot(grid, curve, color=color, linestyle=style, linewidth=width, label=name)
    axes.plot(places, target, "o", color=RED, markersize=6, label="data")
    return (
        f"{len(places)} points and the curves fitted to them. Plain least squares runs through every point and "
        "swings widely between them, beyond the picture near the left end. Least squares on noisy copies of the "
        "inputs, a penalty on the squared weights and the most probable weights under a normal prior give one and "
        "the same calmer curve."
    )


@lesson.figure(
    "Ridge lets strong directions pass and holds weak ones back",
    "penalty $\\lambda$",
    "$s_i^2 / (s_i^2 + \\lambda)$",
    xscale="log",
    ylim=(0, 1.05),
    legend="lower left",
)
def plot_shrinkage(axes, singular_values: tuple[float, ...] = (3.0, 1.0, 0.3, 0.1)):
    """Draw s^2 / (s^2 + lambda) against lambda for a few singular values."""
    penalties = np.logspace(-4, 3, 300)
    values = torch.tensor(singular_values, dtype=torch.float64)
    curves = torch.stack([shrinkage(values, float(p)) for p in penalties], dim=1)
    lines(axes, penalties, {f"$s_i$ = {v:g}": curve for v, curve in zip(singular_values, curves, strict=True)})
    axes.axhline(0.5, color=BLACK, linewidth=0.8, linestyle="-")
    listed = ", ".join(f"{v:g}" for v in singular_values)
    return (
        f"The share of the least-squares solution that ridge keeps, against the penalty on a logarithmic axis, for "
        f"singular values {listed}. Every curve falls from 1 to 0 and passes 1/2 where the penalty equals the squared "
        "singular value."
    )


@lesson.figure(
    ["The clean rows and their noisy copies", "The loss they give on average"],
    ["feature 1", "weight w"],
    ["feature 2", "loss"],
    grid=(1, 2),
    aspect=["equal", None],
    legend=[{"loc": "lower left", "fontsize": 8}, "upper center"],
    ylim=[None, (0, 14)],
)
def plot_noise_as_penalty(left, right, *, noise: float = 0.5):
    """Draw two rows with their noisy copies; and, for one feature, the clean loss, the penalty and the average loss."""
    matrix = torch.tensor([[1.0, 2.0], [2.5, 0.5]], dtype=torch.float64)
    copies = noisy_copies(matrix, noise=noise)
    for i, color in enumerate((BLUE, ORANGE)):
        drawn = matrix[i] + noise * torch.randn(60, 2, generator=torch.Generator().manual_seed(i), dtype=torch.float64)
        left.plot(*drawn.T, "o", color=color, markersize=3, alpha=0.4, label="normal noise" if i == 0 else "_")
        left.plot(*copies[:, i].T, "s", color=BLACK, markersize=5, label="the 2d copies" if i == 0 else "_")
        left.plot(*matrix[i], "*", color=RED, markersize=14, label="row" if i == 0 else "_")
    column, target = matrix[:, :1], torch.tensor([1.0, 3.0], dtype=torch.float64)
    weights = torch.linspace(-1, 3, 200, dtype=torch.float64)
    loss = lambda x: (x * weights - target[:, None]).square().sum(-2)  # noqa: E731
    average = loss(noisy_copies(column, noise=noise)).mean(0)
    penalty = len(column) * noise**2 * weights.square()
    lines(right, weights, {"average over copies": average, "clean loss": loss(column), "$m\\sigma^2 w^2$": penalty})
    ends = [float(weights[curve.argmin()]) for curve in (loss(column), average)]
    return (
        "Left, two rows, clouds of noisy copies and the four exact copies of each, which have the same mean and "
        "covariance. Right, for one feature, the average loss over the copies is the clean loss plus a parabola around 0: "
        f"its minimum moves from {ends[0]:.2f} to {ends[1]:.2f}."
    )


def _factors(x: float, *, noise: float, step_sizes: Tensor) -> list[list[float]]:
    """Return what one step multiplies the mean, the root mean square and a typical path by, per step size."""
    listed = step_sizes.tolist()
    return [
        [abs(mean_factor(x, noise=noise, step_size=s)) for s in listed],
        [math.sqrt(max(0, second_moment_factor(x, noise=noise, step_size=s))) for s in listed],
        typical_factor(x, noise=noise, step_sizes=step_sizes).tolist(),
    ]


@lesson.figure(
    x="step size $\\eta$", y="factor a step", size=(7.0, 4.2), xlim=(0, 1.3), ylim=(0, 2.6), legend="upper left"
)
def plot_thresholds(axes, x: float = 1.0, noise: float = 1.0):
    """Draw the factor a step of the mean, of the root mean square and of a typical path against the step."""
    steps = torch.linspace(0.005, 1.3, 260, dtype=torch.float64)
    labels = ("mean: $|E\\,a|$", "root mean square: $\\sqrt{E\\,a^2}$", "one path: $\\exp E\\log|a|$")
    factors = _factors(x, noise=noise, step_sizes=steps)
    mean, square, _ = lines(axes, steps, dict(zip(labels, factors, strict=True)))
    axes.axhline(1, color=BLACK, linewidth=0.8, linestyle="-")
    second, first = second_moment_limit(x, noise=noise), mean_limit(x, noise=noise)
    for limit, curve in ((second, square), (first, mean)):
        axes.plot([limit], [1], "o", color=curve.get_color(), markersize=8, zorder=5)
    printed = 1 / (x**2 + noise**2)
    axes.axvline(printed, color=BLACK, linewidth=1.4, linestyle=":", label=f"the notes' limit {printed:g}")
    axes.set_title(f"Three ways to be stable (x = {x:g}, $\\sigma$ = {noise:g})")
    return (
        f"Three factors against the step size for x = {x:g} and sigma = {noise:g}. The root mean square passes 1 at "
        f"{second:g}, the mean at {first:g}, a single path later still. The limit {printed:g} of the notes lies between "
        "the first two."
    )


@lesson.figure(
    x="step t", y="$|w_t|$", size=(7.0, 4.2), yscale="log", ylim=(1e-18, 1e12), legend={"loc": "upper left", "ncols": 2}
)
def plot_typical(axes, *, step_size: float = 0.45, steps: int = 60, paths: int = 2000):
    """Draw sample paths, their median and the exact root mean square for x = sigma = 1, y = 0, from w_0 = 1."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(steps, paths, generator=generator, dtype=torch.float64)
    sizes = noisy_sgd(1.0, 0.0, 1.0, noise, step_size=step_size).abs()
    shown = ["12 of the paths", *["_path"] * 11]
    axes.plot(sizes[:, :12], color="0.7", linewidth=0.8, linestyle="-", label=shown)
    t = np.arange(steps + 1)
    factor = float(typical_factor(1.0, noise=1.0, step_sizes=torch.tensor([step_size]).double()))
    second = second_moment_factor(1.0, noise=1.0, step_size=step_size)
    median = sizes.median(dim=1).values
    lines(axes, t, {"$\\sqrt{E\\,w_t^2}$, exact": second ** (t / 2), f"median of {paths} paths": median}, first=1)
    axes.plot(factor**t, color=BLACK, linestyle=":", label="$\\exp(t\\,E\\log|a|)$")
    axes.set_title(f"The typical path shrinks, the root mean square grows ($\\eta$ = {step_size:g})")
    return (
        f"Sizes of the weights against the step on a logarithmic axis, with step size {step_size:g}. The median of "
        f"{paths} paths falls by a factor of about {factor:.2f} a step, as the typical factor says; the exact root "
        f"mean square grows by {math.sqrt(second):.2f} a step, carried by paths so rare that none is among those drawn."
    )


@lesson.figure(
    ["Prior", "Likelihood of the data", "Posterior: their product"],
    "$w[1]$",
    "$w[2]$",
    size=(8.8, 3.2),
    grid=(1, 3),
    xlim=(-2.2, 4.4),
    ylim=(-3.3, 3.3),
    aspect="equal",
    legend=[None, None, {"loc": "lower left", "fontsize": 7}],
)
def plot_prior_times_likelihood(prior, likelihood, product, *, noise_variance: float = 0.5):
    """Draw contours of prior, likelihood and posterior for two weights, with the ridge solution on the last."""
    matrix = torch.tensor([[1.0, 0.4], [0.6, 0.8]], dtype=torch.float64)
    target = torch.tensor([1.9, 1.1], dtype=torch.float64)
    ticks = [torch.linspace(low, high, 121, dtype=torch.float64) for low, high in (prior.get_xlim(), prior.get_ylim())]
    grid = torch.cartesian_prod(*ticks)
    log_prior = -grid.square().sum(1) / 2
    log_likelihood = -(grid @ matrix.T - target).square().sum(1) / (2 * noise_variance)
    for axes, log_density in (
        (prior, log_prior),
        (likelihood, log_likelihood),
        (product, log_prior + log_likelihood),
    ):
        height = (log_density - log_density.max()).reshape(121, 121).T
        # A normal density at 2 standard deviations from its top, and at 1.
        levels = [-2, -0.5]
        axes.contour(*ticks, height, levels=levels, colors=BLUE, linewidths=1.1, linestyles="-")
    plain = torch.linalg.solve(matrix, target)
    weights = ridge(matrix, target, noise_variance)
    prior.plot(0, 0, "+", color=BLACK, markersize=10)
    likelihood.plot(*plain, "^", color=BLACK, markersize=8)
    product.plot(0, 0, "+", color=BLACK, markersize=10, label="top of the prior")
    product.plot(*plain, "^", color=BLACK, markersize=8, label="least squares")
    mean, _ = posterior(matrix, target, noise_variance=noise_variance)
    product.plot(*weights, "*", color=RED, markersize=14, label="ridge")
    product.plot(*mean, ".", color=BLACK, markersize=5, label="posterior mean")
    return (
        "Contours for two weights, one and two standard deviations from the top. The prior is round about 0; the "
        "likelihood of two observations is a long tilted ellipse "
        f"about the least-squares solution ({plain[0]:.2f}, {plain[1]:.2f}); their product is a smaller ellipse between, "
        f"with its top at the ridge solution ({weights[0]:.2f}, {weights[1]:.2f})."
    )


@lesson.figure(x="columns d", y="operations", xscale="log", yscale="log", legend="upper left")
def plot_two_systems(axes, rows: int = 200):
    """Draw the operations of the primal and the dual system against the number of columns."""
    columns = np.unique(np.logspace(1, 4, 120).astype(int))
    flops = {
        f"{system}, {size}": [ridge_flops(rows, int(d), system=system) for d in columns]
        for system, size in (("primal", "d x d"), ("dual", "m x m"))
    }
    lines(axes, columns, flops)
    axes.axvline(rows, color=BLACK, linestyle=":", linewidth=1.2, label="d = m")
    axes.set_title(f"Solve the smaller system (m = {rows} rows)")
    return (
        f"Operations of the two systems against the number of columns, on logarithmic axes, for {rows} rows. The "
        "primal is cheaper for fewer columns than rows, the dual for more; they cross where the two are equal."
    )


def measured_table() -> Markdown:
    """Return what `make bench ridge` stored of the primal system's time over the dual one's, beside the operations'."""
    columns = (100, 200, 400, 800, 1600)
    counted = [ridge_flops(400, d, system="primal") / ridge_flops(400, d, system="dual") for d in columns]
    rows = [
        ("measured", *(quote("ridge", f"400 x {d}: d x d / m x m system") for d in columns)),
        ("by (03.14)", *(f"{ratio:.2g}" for ratio in counted)),
    ]
    return markdown_table(("columns $d$", *columns), rows)


@lesson.explorer
class NoisyStepExplorer(Explorer):
    """Noisy gradient descent on one sample: factors of mean, second moment and single path, and some paths."""

    title = "Noisy gradient descent on one sample"
    summary = (
        "Left: what one step multiplies the mean, the root mean square and a typical single path by, against the step "
        "size; the vertical line is the step size in use, and below 1 means stable. Right: sample paths of the weight "
        "for y = 2 from 3, their exact mean, a band of one standard deviation round it, and the ridge solution; "
        "its axis is linear between -5 and 5 and logarithmic beyond."
    )
    step_size = Slider(
        "step size", "η", "How far one step goes along the negative gradient of the noisy loss", 0.3, 0.01, 1.1, 0.01
    )
    x = Slider("input", "x", "The clean input; the loss is 1/2 ((x + N) w - y)²", 1.0, 0.2, 2.0, 0.05)
    noise = Slider(
        "noise on the input",
        "σ",
        "Standard deviation of the fresh normal noise N of every step; at 0 there is none",
        1.0,
        0.0,
        1.5,
        0.05,
    )
    together = ("step_size", "noise")
    size = (9.6, 4.2)
    steps, paths = 40, 8
    target, start = 2.0, 3.0
    drawn = torch.randn(steps, paths, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    grid = torch.linspace(0.005, 1.1, 80, dtype=torch.float64)
    layout = panels(
        ["Stable below 1", "Paths, mean and spread"],
        ["step size $\\eta$", "step t"],
        ["factor a step", "weight $w_t$"],
        grid=(1, 2),
        legend=[{"loc": "upper left", "fontsize": 8}, {"loc": "upper right", "ncols": 2, "fontsize": 8}],
        xlim=[(0, 1.1), (0, steps)],
        ylim=[(0, 2.5), (-1000, 1000)],
    )

    def compute(self, *, step_size, x, noise):
        """Return the three curves of factors, the paths, their exact mean and deviation, and the limits."""
        run = noisy_sgd(x, self.target, self.start, noise * self.drawn, step_size=step_size)
        mean, square = moments(x, self.target, self.start, noise=noise, step_size=step_size, steps=self.steps)
        deviation = (square - mean.square()).clamp(min=0).sqrt()
        solution = x * self.target / (x**2 + noise**2)
        here = torch.tensor([step_size], dtype=torch.float64)
        return {
            "factors": _factors(x, noise=noise, step_sizes=self.grid),
            "here": ((step_size, step_size), (0, 2.5)),
            "paths": list(run.clamp(-1e6, 1e6).T.numpy()),
            "mean": mean.clamp(-1e6, 1e6).numpy(),
            "band": [(mean + sign * deviation).clamp(-1e6, 1e6).numpy() for sign in (-1, 1)],
            "limit": [solution, solution],
            "typical": float(typical_factor(x, noise=noise, step_sizes=here)),
            "settings": (step_size, x, noise, solution),
        }

    def draw(self, factors, run):
        """Draw the level 1, and curves to be moved."""
        factors.axhline(1, color=BLACK, linewidth=0.8, linestyle="-")
        labels = ("mean", "root mean square", "typical path")
        curves = lines(factors, self.grid, dict.fromkeys(labels, 0 * self.grid))
        (here,) = factors.plot([], [], color=BLACK, linestyle=":", linewidth=1.4, label="$\\eta$ in use")
        # Linear between -5 and 5, where stable paths live; logarithmic beyond, so that growth stays in sight.
        run.set_yscale("symlog", linthresh=5, linscale=3)
        run.set_yticks(ticks := [-1000, -100, -4, -2, 0, 2, 4, 100, 1000], labels=[str(tick) for tick in ticks])
        run.minorticks_off()
        shown = ["sample paths", *["_path"] * (self.paths - 1)]
        nothing = np.zeros(self.steps + 1)
        paths = run.plot(
            np.zeros((self.steps + 1, self.paths)), color="0.72", linewidth=0.7, linestyle="-", label=shown
        )
        (mean,) = lines(run, None, {"mean": nothing}, linewidth=2.2)
        band = [lines(run, None, {label: nothing}, first=1)[0] for label in ("mean ± deviation", "_high")]
        (limit,) = run.plot((0, self.steps), (0, 0), color=BLACK, linestyle=":", linewidth=1.6, label="ridge solution")
        return {"factors": curves, "here": here, "paths": paths, "mean": mean, "band": band, "limit": limit}

    def words(self, state):
        """Say which of the three are stable and what the paths do."""
        step_size, x, noise, solution = state["settings"]
        first = mean_factor(x, noise=noise, step_size=step_size)
        second = second_moment_factor(x, noise=noise, step_size=step_size)
        limits = (
            f"The limits are {second_moment_limit(x, noise=noise):.3f} for the second moment and "
            f"{mean_limit(x, noise=noise):.3f} for the mean."
        )
        factors = f"E a = {first:.2f}, E a² = {second:.2f}"
        typical = state["typical"]
        single = (
            f"a typical path of the error {'shrinks' if typical < 1 else 'grows'} by the factor {typical:.2f} a step"
        )
        if abs(second - 1) < 1e-9 or abs(abs(first) - 1) < 1e-9:
            which = "mean" if abs(abs(first) - 1) < 1e-9 else "second moment"
            return f"At the limit of the {which}: {factors}. {limits}"
        if second < 1:
            mean, variance = stationary_moments(x, self.target, noise=noise, step_size=step_size)
            scatter = (
                f"w_t scatters round {mean:.2f} with standard deviation {math.sqrt(variance):.2f}"
                if noise
                else f"without noise w_t converges to {mean:.2f}"
            )
            return f"Mean and second moment are stable: {factors}; {scatter}. {limits}"
        if abs(first) < 1:
            return f"The mean settles at {solution:.2f} but the second moment grows: {factors}; {single}. {limits}"
        return f"Mean and second moment grow: {factors}; {single}. {limits}"


second_moment_prediction = lesson.prediction(
    "03.P1",
    "One sample with input $x = 1$ and target $y = 0$. A step of size $\\eta = 0.45$ replaces $w$ by "
    "$w(1 - \\eta (x + N)^2)$, with fresh noise $N \\sim N(0, 1)$ on the input. On average $(x + N)^2$ is 2, so the mean "
    "of $w_t$ is multiplied by 0.1. What does the second moment $E\\,w_t^2$ do, the average of the square over all "
    "possible runs?",
    {
        "It shrinks": "The mean shrinks, by 1 - 0.45 · 2 = 0.1 a step. The second moment has its own factor, "
        "E a² = 1 - 1.8 + 0.2025 · 10 = 1.225.",
        "It stays constant": "That happens at η = 0.4 exactly, where E a² = 1.",
        "It grows": "The factor is E a² = 1 - 1.8 + 0.2025 · 10 = 1.225, because E(1 + N)⁴ = 10 weighs the rare "
        "large inputs.",
    },
    answer="It grows",
    reveal=plot_thresholds,
)

typical_path_prediction = lesson.prediction(
    "03.P2",
    "The same setting: $w$ becomes $w(1 - 0.45\\,(1 + N)^2)$ at each step. You run the program once, from $w_0 = 1$. What "
    "does $|w_t|$ of this single run most probably do over 60 steps?",
    {
        "It grows": "The root mean square over all paths does, by √1.225 a step. Nearly all of it is "
        "carried by very rare paths.",
        "It keeps its size": "Growth and decay do not balance: a single path follows E log|a|, and that is "
        "negative here.",
        "It shrinks": "A single path multiplies its factors, so its logarithm adds them: E log|a| is negative, "
        "and the path shrinks although the average of squares grows.",
    },
    answer="It shrinks",
    reveal=plot_typical,
)

FIGURES = lesson.figures
