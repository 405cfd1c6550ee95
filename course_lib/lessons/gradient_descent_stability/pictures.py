"""Figures, explorer and predictions of lesson 01, gradient_descent_stability."""

import itertools
import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from course_lib import scikit_data
from course_lib.attention.ridge import conjugate_gradient
from course_lib.lessons.gradient_descent_stability.contents import lesson
from course_lib.optimization.gradient_descent import (
    best_step,
    closed_form,
    contraction_factors,
    excess_left,
    excess_shares,
    gradient_descent,
    heavy_ball_steps_to_share,
    heavy_ball_steps_to_shares,
    least_squares_loss,
    sharpness,
    stability_limit,
    steps_to_share,
    svd_coordinates,
    worst_rate,
)
from course_lib.teaching import Explorer, Slider, Switch, lines, panels, right
from course_lib.teaching.style import BLACK, BLUE, ORANGE, PURPLE, RED

SPECTRUM = torch.tensor([2.0, 1.6, 1.2, 0.8], dtype=torch.float64)


VERSIONS = ("raw", "scaled", "centred", "standardised")
PATIENTS = 442
# Shares of the largest stable step: even ones, and some closer and closer to it.
SWEEP = (*np.linspace(0.02, 0.98, 49).tolist(), *(1 - np.geomspace(1e-4, 0.019, 11)).tolist())
MOMENTA = (1 - np.geomspace(2e-4, 1, 60)).tolist()
MOMENTUM_SWEEP = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
SUBSETS, SUBSET = 5, 350
GOALS = (0.1, 0.03, 0.01, 0.003, 0.001)  # shares of the removable loss that are left


def patients(version: str = "raw", *, subset: int | None = None, keep_mean: bool = False) -> tuple[Tensor, Tensor]:
    """Return the matrix X, a column of ones and ten measurements, and y, the disease a year later less its mean.

    `version` changes the ten columns: scaled, divided by their standard deviation; centred, less their mean;
    standardised, both. `subset` is a seed that draws 350 of the 442 patients; `keep_mean` leaves the mean in y.
    Shapes: (442, 11) and (442,), in float64.

    Raises:
        ValueError: the version is unknown.
    """
    if version not in VERSIONS:
        raise ValueError(f"version must be one of {', '.join(VERSIONS)}, got {version!r}")
    columns, target = map(torch.tensor, scikit_data.diabetes())
    if subset is not None:
        chosen = np.random.default_rng(subset).permutation(PATIENTS)[:SUBSET]
        columns, target = columns[chosen], target[chosen]
    spread, mean = columns.std(0, correction=0), columns.mean(0)
    if version in ("centred", "standardised"):
        columns = columns - mean
    if version in ("scaled", "standardised"):
        columns = columns / spread
    return torch.cat([torch.ones_like(columns[:, :1]), columns], 1), target if keep_mean else target - target.mean()


@cache
def spectrum(version: str, subset: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the singular values of the patients' X and the shares of the excess loss along them, from w = 0."""
    matrix, target = patients(version, subset=subset)
    return excess_shares(matrix, target, matrix.new_zeros(matrix.shape[1]))


def fewest_steps(version: str, *, subset: int | None = None, share: float = 0.01) -> tuple[int, float]:
    """Return the fewest steps of 60 step sizes until `share` of the excess is left, and that step over the limit."""
    sigmas, shares = spectrum(version, subset)
    limit = stability_limit(sigmas)
    return min((steps_to_share(sigmas, shares, step_size=s * limit, share=share), s) for s in SWEEP)


def momentum_pairs(limit: float) -> dict[str, Tensor]:
    """Return the 900 pairs of step size and momentum: with momentum beta the border is 1 + beta times `limit`."""
    pairs = torch.cartesian_prod(
        torch.tensor(MOMENTUM_SWEEP, dtype=torch.float64), torch.tensor(MOMENTA, dtype=torch.float64)
    )
    return {"step_sizes": pairs[:, 0] * (1 + pairs[:, 1]) * limit, "momenta": pairs[:, 1]}


def fewest_with_momentum(version: str, *, subset: int | None = None, share: float = 0.01) -> tuple[int, float]:
    """Return the fewest steps of 900 pairs of step size and momentum, and that momentum."""
    sigmas, shares = spectrum(version, subset)
    pairs = momentum_pairs(stability_limit(sigmas))
    steps, place = heavy_ball_steps_to_share(sigmas, shares, **pairs, share=share)
    return steps, float(pairs["momenta"][place])


def conjugate_left(version: str, *, subset: int | None = None, steps: int = 30) -> np.ndarray:
    """Run conjugate gradients on X^T X w = X^T y from w = 0; return the share of the excess left after each step."""
    matrix, target = patients(version, subset=subset)
    left = torch.linalg.svd(matrix, full_matrices=False)[0]
    gram, right_side = matrix.T @ matrix, (matrix.T @ target)[:, None]
    # u_i^T (y - X w): what is left of y along the directions that X reaches
    runs = [left.T @ (target - matrix @ conjugate_gradient(gram, right_side, steps=t)[:, 0]) for t in range(steps + 1)]
    excess = torch.stack(runs).square().sum(1)
    return (excess / excess[0]).numpy()


def whitened_steps(share: float = 0.001) -> int:
    """Return the steps that gradient descent needs on Q of X = QR, whose columns are orthonormal."""
    matrix, target = patients()
    sigmas, shares = excess_shares(torch.linalg.qr(matrix).Q, target, matrix.new_zeros(11))
    return steps_to_share(sigmas, shares, step_size=best_step(sigmas), share=share)


def best_of_sweep(version: str = "raw") -> float:
    """Return the step size of the 60 that first leaves 1% of the excess."""
    return fewest_steps(version)[1] * stability_limit(spectrum(version)[0])


def run_of_patients(step_size: float, *, steps: int = 10_000) -> np.ndarray:
    """Run gradient descent on the raw measurements; return the share of the excess that is left after each step."""
    matrix, target = patients()
    weights = torch.zeros(matrix.shape[1], dtype=torch.float64)
    fit = torch.linalg.lstsq(matrix, target[:, None], driver="gelsd").solution[:, 0]
    # With d = w - w_fit the excess is d^T X^T X d, and a step is d - 2 eta X^T X d: 11 x 11 numbers in place of 442 x 11.
    gram, away, left = matrix.T @ matrix, weights - fit, []
    for _ in range(steps + 1):
        pull = gram @ away
        left.append(float(away @ pull))
        away = away - 2 * step_size * pull
    return np.array(left) / left[0]


@lesson.figure(
    "Half a percent more, and the best step size explodes",
    "step t",
    "removable loss left",
    size=(5.4, 2.4),
    xscale="log",
    yscale="log",
    xlim=(1, 10_000),
    ylim=(0.05, 20),
    legend=None,
)
def plot_hook(axes):
    """Draw what is left of the removable loss of the raw measurements for three step sizes, run step by step."""
    best = best_of_sweep()
    limit = stability_limit(spectrum("raw")[0])
    steps, said = np.arange(1, 10_001), []
    for share, name, color, style, place in (
        (0.02, "a fiftieth of it", ORANGE, "--", (1100, 1.15)),
        (best / limit, "the best of 60", BLUE, "-", (700, 0.12)),
        (1.005, "half a percent more", RED, "-.", (14, 6.0)),
    ):
        left = run_of_patients(share * limit)[1:]
        axes.plot(steps, np.clip(left, 0, 1e6), style, color=color, label=name)
        axes.text(*place, name, color=color, fontsize=11)
        said.append(f"{name}: {left[-1]:.2f}" if left[-1] < 1 else f"{name}: it explodes")
    axes.axhline(1, color="0.55", linewidth=0.8)
    return f"Share of the removable loss left against the step, on logarithmic axes. After 10,000 steps: {'; '.join(said)}."


@lesson.figure(
    "The same best step size, carried on",
    "step t",
    "removable loss left",
    size=(5.2, 2.3),
    xscale="log",
    yscale="log",
    xlim=(1, 1e8),
    ylim=(0.004, 1.6),
    legend=None,
)
def plot_wait(axes):
    """Draw what is left of the removable loss up to the step where it is 1%, in closed form."""
    sigmas, shares = spectrum("raw")
    best, (steps, _) = best_of_sweep(), fewest_steps("raw")
    times = np.geomspace(1, 1e8, 400)
    left = [excess_left(sigmas, shares, step_size=best, steps=float(round(t))) for t in times]
    axes.plot(times, left, "-", color=BLUE)
    axes.axhline(0.01, color="0.55", linewidth=0.9, linestyle=":")
    axes.axvline(10_000, color="0.55", linewidth=0.9, linestyle="--")
    axes.text(9000, 0.006, "10,000", ha="right", color="0.35", fontsize=11)
    axes.plot([steps], [0.01], "o", color=RED)
    axes.text(
        steps * 0.8,
        0.0062,
        f"1% after {steps / 1e6:.0f} million",
        ha="right",
        color=RED,
        fontsize=12,
        fontweight="bold",
    )
    return f"The same run in closed form: 1% of the removable loss is left after {steps / 1e6:.1f} million steps."


@lesson.figure(
    "Eleven directions: how steep each is, and what it holds",
    "$\\sigma_i^2 / \\sigma_{max}^2$ (steep on the right)",
    "share $c_i$ of the loss",
    size=(5.2, 2.3),
    xscale="log",
    xlim=(5e-9, 5),
    ylim=(0, 0.48),
    legend=None,
)
def plot_directions(axes):
    """Draw each direction of the raw measurements as a stem: its curvature, and its share of the removable loss."""
    sigmas, shares = spectrum("raw")
    flat = (sigmas / sigmas[0]).square().numpy()
    axes.vlines(flat, 0, shares, color=BLUE, linewidth=2.2)
    axes.plot(flat, shares, "o", color=BLUE, markersize=6)
    for i, name in ((0, "steepest"), (10, "flattest")):
        said = f"{name}\n{float(shares[i]):.1%}" if shares[i] < 0.01 else f"{name}\n{float(shares[i]):.0%}"
        axes.text(flat[i], float(shares[i]) + 0.025, said, ha="center", fontsize=11, color="0.25")
    return (
        "Directions of the raw measurements and their shares of the removable loss: "
        f"{float(shares[0]):.1%} in the steepest, {float(shares[-1]):.0%} in the flattest, "
        f"{float(shares[flat < 1e-5].sum()):.0%} left of 1e-5."
    )


@lesson.figure(
    "The same loss, direction by direction",
    "step t",
    "removable loss left",
    size=(5.4, 2.4),
    xscale="log",
    xlim=(1, 3e8),
    ylim=(0, 1),
    legend=None,
)
def plot_terms(axes):
    """Stack the eleven terms of (01.6), from the flattest direction up: their sum is the curve of the hook."""
    sigmas, shares = spectrum("raw")
    times = np.geomspace(1, 3e8, 500)
    factors = contraction_factors(sigmas, step_size=best_of_sweep()).square()
    terms = (shares[:, None] * factors[:, None] ** torch.tensor(times)).flip(0).numpy()
    colors = [(BLUE, 0.55), (ORANGE, 0.55), (PURPLE, 0.5), (RED, 0.45)]
    below = np.zeros_like(times)
    for i, term in enumerate(terms):
        color, alpha = colors[i % 4]
        axes.fill_between(times, below, below + term, color=color, alpha=alpha, linewidth=0)
        below = below + term
    axes.plot(times, below, color=BLACK, linewidth=1.6)
    for i, place in ((10, 3e5), (7, 400), (5, 12), (2, 12)):
        bottom = float(shares[i + 1 :].sum())
        axes.text(
            place, bottom + float(shares[i]) / 2, f"{float(shares[i]):.0%}", va="center", ha="center", fontsize=11
        )
    return (
        "The eleven terms of the formula, stacked, the flattest direction at the bottom. Their sum, black, is the curve of "
        "the first run."
    )


LOOKS = {"raw": (RED, "-."), "scaled": (ORANGE, "--"), "centred": (PURPLE, ":"), "standardised": (BLUE, "-")}


def waited_for(version: str, goal: float) -> float:
    """Return sigma_i^2 / sigma_max^2 of the flattest direction that must shrink: the flatter ones hold less than `goal`."""
    sigmas, shares = spectrum(version)
    held = shares.flip(0).cumsum(0)
    return float((sigmas / sigmas[0]).square().flip(0)[(held > goal).int().argmax()])


@lesson.figure(
    "How much do the flattest directions hold together?",
    "$\\sigma_i^2 / \\sigma_{max}^2$",
    "share held",
    size=(5.8, 2.6),
    xscale="log",
    yscale="log",
    xlim=(8e-9, 2),
    ylim=(4e-4, 1.5),
    legend=None,
)
def plot_versions(axes):
    """Draw the share of the removable loss that directions of at most each curvature hold, for four versions."""
    said = []
    for version, (color, style) in LOOKS.items():
        sigmas, shares = spectrum(version)
        flat = (sigmas / sigmas[0]).square().flip(0).numpy()
        held = shares.flip(0).cumsum(0).numpy()
        axes.plot(
            np.concatenate([flat[:1], np.repeat(flat, 2)[1:]]),
            np.concatenate([[1e-5], np.repeat(held, 2)[:-1]]),
            style,
            color=color,
            linewidth=2,
            label=version,
        )
        axes.plot([waited_for(version, 0.01)], [0.01], "o", color=color, markersize=7)
        place, side = (0.7, "right") if version == "scaled" else (1.4, "left")
        axes.text(place * flat[0], 0.0022, version, color=color, fontsize=11, ha=side, va="center")
        said.append(f"{version} {waited_for(version, 0.01):.1e}")
    for goal in (0.1, 0.01, 0.001):
        axes.axhline(goal, color="0.5", linewidth=0.8, linestyle=":")
    axes.set_yticks([0.001, 0.01, 0.1, 1], ["0.1%", "1%", "10%", "100%"])
    return (
        "What each direction and all flatter ones hold together. Dots: the flattest direction that 1% waits for, "
        f"{', '.join(said)}."
    )


@cache
def step_counts() -> dict[str, dict[str, np.ndarray]]:
    """Return the fewest steps by version and method, one row for all patients and each of five random subsets.

    A column is one of GOALS, with the best of its own settings for each entry. With momentum: all patients only.
    """
    who = (None, *range(SUBSETS))
    counts = {}
    for version in VERSIONS:
        spectra = [spectrum(version, one) for one in who]
        runs = [conjugate_left(version, subset=one) for one in who]
        counts[version] = {
            "gradient descent": [[fewest_steps(version, subset=one, share=g)[0] for g in GOALS] for one in who],
            "with momentum": [
                heavy_ball_steps_to_shares(*one, **momentum_pairs(stability_limit(one[0])), goals=GOALS)
                for one in spectra[:1]  # minutes for all of them
            ],
            "conjugate gradients": [[int((run <= g).argmax()) for g in GOALS] for run in runs],
        }
    return {v: {m: np.array(found) for m, found in methods.items()} for v, methods in counts.items()}


def rounded(count: float) -> str:
    """Write a count with three digits, which rounding on another machine does not change."""
    return f"{float(f'{count:.3g}'):,.0f}"


@lesson.figure(
    ["Gradient descent", "Other methods"],
    "removable loss left",
    "steps",
    size=(6.6, 2.7),
    grid=(1, 2),
    subplots={"sharey": True},
    xscale="log",
    yscale="log",
    xlim=(0.13, 0.0008),
    ylim=(0.3, 4e8),
    legend=None,
)
def plot_steps(left, second):
    """Draw the fewest steps to each share, of four versions by gradient descent, and of its rivals."""
    counts = step_counts()

    def draw(axes, version, method, look, place, name):
        color, style = look
        found = counts[version][method]
        axes.plot(GOALS, found[0], style, color=color, linewidth=2)
        axes.fill_between(GOALS, found.min(0), found.max(0), color=color, alpha=0.2, linewidth=0)
        axes.text(*place, name, color=color, fontsize=10, va="center", ha="right")

    for (version, look), place in zip(
        LOOKS.items(), ((0.0011, 1.3e7), (0.0011, 8e5), (0.0011, 1.7e4), (0.0011, 900)), strict=True
    ):
        draw(left, version, "gradient descent", look, place, version)
    for version, place in (("raw", (0.0011, 4e4)), ("standardised", (0.0011, 0.75))):
        name = f"momentum, {version}"
        draw(second, version, "with momentum", LOOKS[version], place, name)
    draw(second, "raw", "conjugate gradients", (BLACK, "-"), (0.0011, 90), "conjugate gradients, raw")
    for axes in (left, second):
        axes.set_xticks([0.1, 0.01, 0.001], ["10%", "1%", "0.1%"])
        axes.set_xticks([], minor=True)
    return "Fewest steps to each share, with the best setting for it. Bands: five random subsets of 350 patients."


OVERSHOOT = (0.1, 0.2)


@lesson.figure(
    ["Run A, η = 0.1", "Run B, η = 0.2", "Loss of both"],
    "step t",
    ["error $w_t[i] - w^*[i]$", "error", "loss"],
    size=(6.8, 2.2),
    grid=(1, 3),
    xlim=[(-0.5, 16.5), (-0.5, 16.5), (0, 34)],
    ylim=[(-1.15, 1.15), (-1.15, 1.15), (1e-8, 10)],
    yscale=["linear", "linear", "log"],
    legend=[None, "upper right", None],
)
def plot_overshoot(*axes):
    """Draw the signed errors of both directions of sigma = (2, 1) for two step sizes, and the loss of both runs."""
    sigmas, said = torch.tensor([2.0, 1.0], dtype=torch.float64), []
    *runs, third = axes
    for one, step_size, letter, look in zip(runs, OVERSHOOT, "AB", ((RED, "--"), (BLACK, "-")), strict=True):
        errors = closed_form(sigmas, 0 * sigmas, -torch.ones_like(sigmas), step_size=step_size, steps=34).T
        for error, name, mark, color in zip(errors, ("1", "2"), ("-o", "--s"), (BLUE, ORANGE), strict=True):
            one.plot(error[:17], mark, color=color, markersize=4, label=f"direction {name}")
        one.axhline(0, color=BLACK, linewidth=0.8)
        losses = (sigmas[:, None] * errors).square().sum(0)
        third.plot(losses, look[1], color=look[0])
        first = int((losses < 1e-6).int().argmax())
        third.plot([first], [losses[first]], "o", color=look[0], markersize=6)
        third.text(
            first - 1 - 6 * (letter == "B"), 3e-6 * (1 + 30 * (letter == "A")), letter, color=look[0], fontsize=12
        )
        factors = ", ".join(f"{f:.1f}" for f in contraction_factors(sigmas, step_size=step_size).tolist())
        said.append(f"run {letter} has factors {factors} and comes below 1e-6 after {first} steps")
    third.axhline(1e-6, color="0.5", linewidth=0.9, linestyle=":")
    return f"Signed errors, both from -1 on, and the loss: {'; '.join(said)}."


@lesson.figure(
    "Only the two extreme directions decide",
    "step size $\\eta$",
    "$|1 - 2\\eta\\sigma_i^2|$",
    size=(5.2, 2.5),
    ylim=(0, 1.75),
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
    axes.plot([best], [rate], "o", color=BLACK, markersize=8, label=f"best {best:.4f}")
    axes.axhline(1, color=BLACK, linewidth=0.8, linestyle="--")
    axes.set_xlim(0, steps[-1])
    return (
        f"The size of {len(singular_values)} factors against the step size. The largest is a V: its left arm is "
        f"the flattest direction, its right arm the steepest. Best step size {best:.4f}, rate {rate:.3f}; limit {limit:.4f}."
    )


@lesson.figure(
    "Tilted ellipses have axes, too",
    "$w[1]$",
    "$w[2]$",
    size=(3.2, 2.8),
    xlim=(-2.4, 2.4),
    ylim=(-2.4, 2.4),
    aspect="equal",
    legend=None,
)
def plot_rotated(axes, *, angle: float = 0.6, steps: int = 12):
    """Draw one run on a problem whose ellipses are tilted, and the axes that its SVD finds."""
    turn = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]], dtype=torch.float64)
    matrix = torch.diag(torch.tensor([2.0, 0.8], dtype=torch.float64)) @ turn
    target, start = torch.zeros(2, dtype=torch.float64), torch.tensor([-0.5, 2.0], dtype=torch.float64)
    path = gradient_descent(matrix, target, start, step_size=0.22, steps=steps)
    _, _, columns, _ = svd_coordinates(matrix, target)
    grid = torch.cartesian_prod(*[torch.linspace(-2.4, 2.4, 81, dtype=torch.float64)] * 2)
    loss = least_squares_loss(matrix, target, grid).reshape(81, 81).T
    ticks = grid[::81, 0]
    axes.contour(ticks, ticks, loss, levels=[0.2, 1.2, 3.2], colors=BLACK, linewidths=0.6, alpha=0.5)
    axes.plot(*path.T, "-o", color=BLUE, markersize=4, linewidth=1.4)
    for column, color in enumerate((RED, PURPLE)):
        vector = columns[:, column] * (1 if columns[0, column] >= 0 else -1)
        look = {"arrowstyle": "-|>", "color": color, "lw": 2.2, "ls": ("-", "--")[column]}
        axes.annotate("", 1.8 * vector, (0, 0), arrowprops=look)
        axes.text(*(2.05 * vector), f"$v_{column + 1}$", color=color, fontsize=13, ha="center", va="center")
    return (
        "A loss with tilted ellipses, and a run that jumps to and fro along their short axis v1 and slides along the long "
        "axis v2."
    )


def small_network(
    *, width: int = 40, points: int = 24, degree: int = 4, seed: int = 0
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return flat weights and the loss, 1/2 mean squared error, of a tanh network with two hidden layers.

    It fits the Chebyshev polynomial cos(degree * arccos x) at `points` equidistant x in [-1, 1]; weights are
    N(0, 1 / fan_in), biases 0, in float64. The loss takes several weights at once, too: one row and one loss each.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.linspace(-1, 1, points, dtype=torch.float64)[:, None]
    y = torch.cos(degree * torch.acos(x))
    shapes = [shape for a, b in pairwise([1, width, width, 1]) for shape in ((a, b), (1, b))]
    counts = [math.prod(shape) for shape in shapes]
    parts = [
        torch.randn(count, generator=generator, dtype=torch.float64) / math.sqrt(shape[0])
        if place % 2 == 0
        else torch.zeros(count, dtype=torch.float64)
        for place, (shape, count) in enumerate(zip(shapes, counts, strict=True))
    ]

    def loss(flat: Tensor) -> Tensor:
        parts = zip(flat.split(counts, dim=-1), shapes, strict=True)
        w1, b1, w2, b2, w3, b3 = (part.reshape(*flat.shape[:-1], *shape) for part, shape in parts)
        hidden = torch.tanh(torch.tanh(x @ w1 + b1) @ w2 + b2)
        return 0.5 * (hidden @ w3 + b3 - y).square().mean((-2, -1))

    return torch.cat(parts), loss


EDGE_STEPS = (0.1, 0.05)


@cache
def train_network(step_size: float, *, steps: int = 4000, every: int = 100) -> tuple[list[float], list[float]]:
    """Train the small network by full-batch gradient descent; return losses and sharpnesses, one every `every` steps."""
    weights, loss = small_network()
    gradient = torch.func.grad(loss)
    generator = torch.Generator().manual_seed(1)
    losses, sharpnesses = [], []
    for step in range(steps + 1):
        if step % every == 0:
            losses.append(float(loss(weights)))
            sharpnesses.append(sharpness(loss, weights, generator=generator))
        weights = weights - step_size * gradient(weights)
    return losses, sharpnesses


@lesson.figure(
    "The sharpness, with each step's border",
    "step t",
    "$\\lambda_{max}$",
    size=(5.2, 2.4),
    ylim=(0, 44),
    legend=None,
)
def plot_edge_of_stability(axes, *, every: int = 100):
    """Draw the sharpness of the small network for two step sizes, and the border of each."""
    said = []
    for step_size, color, style in zip(EDGE_STEPS, (BLUE, ORANGE), ("-", "--"), strict=True):
        _, sharpnesses = train_network(step_size, every=every)
        steps = every * np.arange(len(sharpnesses))
        axes.plot(steps, sharpnesses, style, color=color, label=f"$\\eta$ = {step_size:g}")
        border = 2 / step_size
        axes.axhline(border, color=color, linewidth=1, linestyle=":")
        axes.text(4000, border + 0.7, f"border 2/η = {border:.0f}", color=color, ha="right", fontsize=11)
        axes.text(4000, 28.5 if step_size == 0.05 else 16, f"η = {step_size:g}", color=color, ha="right", fontsize=12)
        said.append(f"step size {step_size:g}: {sharpnesses[0]:.1f} at the start, {sharpnesses[-1]:.0f} at the end")
    return f"The sharpness against the step, and 2 / eta (dotted); {'; '.join(said)}."


@cache
def past_the_border(*, start: int = 1100, steps: int = 80, step_size: float = 0.1) -> dict[str, list[float]]:
    """Follow the network, and its second-order Taylor polynomial at step `start`, from there with the same step.

    Returns the jump of each step along the sharpest direction of that point, both ways, and the network's sharpness.
    """
    weights, loss = small_network()
    gradient = torch.func.grad(loss)
    for _ in range(start):
        weights = weights - step_size * gradient(weights)
    hessian, slope = torch.func.hessian(loss)(weights), gradient(weights)
    sharpest = torch.linalg.eigh(hessian).eigenvectors[:, -1]
    generator = torch.Generator().manual_seed(1)
    moved, frozen = weights.clone(), torch.zeros_like(weights)
    found = {"network": [], "frozen": [], "sharpness": []}
    for _ in range(steps):
        found["sharpness"].append(sharpness(loss, moved, generator=generator, tolerance=1e-3))
        pulls = gradient(moved), slope + hessian @ frozen
        moved, frozen = moved - step_size * pulls[0], frozen - step_size * pulls[1]
        for name, pull in zip(("network", "frozen"), pulls, strict=True):
            found[name].append(abs(float(step_size * pull @ sharpest)))
    return found


NETWORKS = 5


@cache
def past_crossing(*, step_size: float = 0.1, steps: int = 400, every: int = 20) -> dict[str, list[list[float]]]:
    """Follow five networks past their border, as they are and without their moves along the sharpest direction.

    Each starts at the first multiple of 100 steps at which its sharpness exceeds 2 / eta. Returns the sharpness of each
    network, one every `every` steps: `with` the moves, and `without` them, where each update loses its component along
    the eigenvector of the largest eigenvalue of the Hessian at its point.
    """
    _, loss = small_network()
    generator = torch.Generator().manual_seed(1)
    sharp = lambda one: sharpness(loss, one, generator=generator, tolerance=1e-3)  # noqa: E731
    now = torch.stack([small_network(seed=seed)[0] for seed in range(NETWORKS)])
    crossed: dict[int, Tensor] = {}
    gradient = torch.func.grad(lambda rows: loss(rows).sum())
    for step in itertools.count():
        if step % 100 == 0:
            crossed |= {i: now[i] for i in range(NETWORKS) if i not in crossed and sharp(now[i]) > 2 / step_size}
            if len(crossed) == NETWORKS:
                break
        now = now - step_size * gradient(now)
    start = torch.stack([crossed[i] for i in range(NETWORKS)])

    found = {}
    for name in ("with", "without"):
        weights = start
        vectors = torch.randn(start.shape, generator=generator, dtype=start.dtype)
        found[name] = []
        for step in range(steps + 1):
            if step % every == 0:
                found[name].append([sharp(one) for one in weights])
            if name == "with":
                weights = weights - step_size * gradient(weights)
                continue
            weights = weights.detach().requires_grad_()
            (pull,) = torch.autograd.grad(loss(weights).sum(), weights, create_graph=True)
            # Power iteration, which goes on from the vectors of the step before.
            for _ in range(2 if step else 100):
                (product,) = torch.autograd.grad(pull, weights, vectors, retain_graph=True)
                vectors = product / product.norm(dim=1, keepdim=True)
            pull = pull.detach()
            along = (pull * vectors).sum(1, keepdim=True) * vectors
            weights = weights.detach() - step_size * (pull - along)
    return {name: [list(one) for one in zip(*rows, strict=True)] for name, rows in found.items()}


@lesson.figure(
    ["Jumps of one network", "Sharpness of five networks"],
    ["steps after step 1,100", "steps after passing 20"],
    ["size of one jump", "$\\lambda_{max}$"],
    size=(6.6, 2.4),
    grid=(1, 2),
    yscale=["log", "linear"],
    ylim=[(1e-5, 1e4), (13, 34)],
    legend=None,
)
def plot_frozen(left, second):
    """Draw the jumps of the network and of its frozen quadratic, and five sharpnesses with and without such jumps."""
    found, five = past_the_border(), past_crossing()
    left.plot(found["frozen"], "--", color=ORANGE)
    left.plot(found["network"], "-", color=BLUE)
    left.text(30, 600, "frozen quadratic", color=ORANGE, fontsize=12, ha="center")
    left.text(57, 0.2, "network", color=BLUE, fontsize=12)
    for name, color, style in (("with", BLUE, "-"), ("without", RED, "--")):
        for one in five[name]:
            second.plot(np.linspace(0, 400, len(one)), one, style, color=color, linewidth=1.3)
    second.axhline(20, color="0.4", linestyle=":")
    second.text(140, 30.5, "without these jumps", color=RED, fontsize=12, ha="center")
    second.text(300, 15, "with them", color=BLUE, fontsize=12, ha="center")
    lowest = max(min(one) for one in five["with"])
    return (
        "Left: the jumps on the frozen quadratic grow all along, in the network at first, "
        f"then they die out. Right: with jumps, each sharpness falls to "
        f"{math.ceil(lowest)} or less; "
        f"without them, all end above {math.floor(min(one[-1] for one in five['without']))}."
    )


@lesson.explorer
class TrajectoryExplorer(Explorer):
    """Iterates of gradient descent on a two-dimensional problem, over the contours of its loss."""

    title = "Gradient descent on two singular values"
    summary = (
        "Left: the path of the iterates over the contours of the loss, from the start to the solution w* = (1, 0.5). "
        "Right: the error along each of the two directions against the step, on a logarithmic axis."
    )
    step_size = Slider("step size", "η", "How far one step goes along the negative gradient", 0.4, 0.02, 1.2, 0.005)
    sigma_1 = Slider("singular value", "σ₁", "How steep the loss is along the first direction", 1.5, 0.2, 3.0, 0.05)
    sigma_2 = Slider(
        "singular value",
        "σ₂",
        "How steep the loss is along the second direction",
        0.6,
        0.0,
        3.0,
        0.05,
    )
    start_1 = Slider(
        "start, first entry", "w₀[1]", "Where the iterates start, along the first direction", -1.5, -2.5, 2.5, 0.1
    )
    start_2 = Slider(
        "start, second entry", "w₀[2]", "Where the iterates start, along the second direction", -1.4, -2.5, 2.5, 0.1
    )
    reveal = Switch(
        "Show factors and border", "Show what a step multiplies each error by, the border and the best step"
    )
    together = ("step_size", "sigma_1")
    strip_scale = 0.7
    size = (7.2, 3.3)
    steps = 40
    solution = torch.tensor([1.0, 0.5], dtype=torch.float64)
    contour_radii = (0.7, 2.0, 4.0)
    layout = panels(
        ["Path over the contours of the loss", "Error along each direction"],
        ["$w[1]$", "step t"],
        ["$w[2]$", "error $|w_t[i] - w^*[i]|$"],
        grid=(1, 2),
        legend=[None, "upper right"],
        xlim=[(-3, 3), (0, steps)],
        ylim=[(-3, 3), (1e-6, 1e4)],
        aspect=["equal", None],
        yscale=["linear", "log"],
    )

    def compute(self, *, step_size, sigma_1, sigma_2, start_1, start_2, reveal):
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
            "note": f"border {stability_limit(sigma):.3f}, best {best_step(sigma):.3f}" if reveal else "",
            "factors": contraction_factors(sigma, step_size=step_size).tolist(),
            "sigma": sigma,
            "reveal": reveal,
        }

    def draw(self, plane, decay):
        """Draw the solution, and contours, path and errors to be moved."""
        plane.plot(*self.solution, marker="*", color=BLACK, markersize=12, linestyle="none", label="$w^*$")
        grey = {"color": "0.65", "linewidth": 1, "linestyle": "-"}
        contours = [plane.plot([], [], **grey)[0] for _ in self.contour_radii]
        (path,) = lines(plane, [], ["$w_t$"], marker="o", markersize=4, linewidth=1.4)
        nothing = np.zeros(self.steps + 1)
        errors = lines(decay, None, {"direction 1": nothing, "direction 2": nothing})
        note = plane.text(-2.85, -2.85, "", fontsize=10)
        return {"contours": contours, "path": path, "errors": errors, "note": note}

    def words(self, state):
        """Say what 40 steps do to the error along each direction, and on request the factors, border and best step."""
        sigma, said = state["sigma"], []
        for i, name in enumerate("₁₂"):
            errors = (float(state["iterates"][k, i]) - float(self.solution[i]) for k in (0, 1, -1))
            first, second, last = (
                "size over 100,000" if abs(e) > 1e5 else "size below 1e-6" if abs(e) < 1e-6 else f"{e:.3g}"
                for e in errors
            )
            stays = f" and stays, since σ{name} = 0" if float(sigma[i]) == 0 else ""
            said.append(f"direction {i + 1}: {first}, {second}, {last}{stays}")
        text = f"Error at the start, after 1 and after {self.steps} steps. In {'; in '.join(said)}."
        if not state["reveal"]:
            return text
        factors = " and ".join(f"{f:.2f}" for f in state["factors"])
        curvatures = " and ".join(f"{1 - f:.2f}" for f in state["factors"])
        return (
            f"{text} 2ησ² is {curvatures}: one step multiplies the errors by {factors}. "
            f"Border: {stability_limit(sigma):.3f}; best step size: {best_step(sigma):.3f}."
        )


patience_prediction = lesson.prediction(
    "01.P1",
    "The same step size goes on beyond step 10,000. After how many steps is 1% of the removable loss left?",
    {
        "About 30 thousand": "That is what a curve that keeps its speed would need. This one is carried by slower and "
        "slower directions.",
        "About 300 thousand": "By then most directions are done, but the flattest has hardly started.",
        "About 3 million": "About 9% are left then, in the flattest direction alone.",
        "About 30 million": right("Each step takes 76 billionths off what the flattest direction holds of the loss."),
    },
    reveal=plot_wait,
)

overshoot_prediction = lesson.prediction(
    "01.P2",
    "Two directions with σ = (2, 1), $w^* = (1, 1)$, start at 0. Run A has step size 0.1, run B has 0.2. In B direction 1 "
    "overshoots the solution at every step. Which run first brings the loss below 1e-6?",
    {
        "Run A": "Overshooting costs nothing by itself: only the size of what is left counts, and A's slower direction is "
        "direction 2.",
        "Both at the same step": "They would if both runs had the same slowest direction with the same size of error.",
        "Run B": right("The larger step size helps direction 2, which held run A up, by more than direction 1 loses."),
        "Run A, since B diverges": "An overshoot grows only if it is longer than the error before it. Here it is shorter.",
    },
    reveal=plot_overshoot,
)

border_prediction = lesson.prediction(
    "01.P3",
    "Step size 0.1, border 20. The sharpness starts at 10.5 and grows. What happens when it comes to 20?",
    {
        "Training diverges": "On a fixed quadratic it would. Here the jumps themselves move the weights to where the loss "
        "is less sharp.",
        "It stays near 20, and the loss still falls": right(
            "Past 20 jumps grow, and jumps lower the sharpness: without them it goes on rising."
        ),
        "It keeps growing, and training does not care": "So it does with the smaller step size, below its own border of "
        "40. Past its border a run cannot ignore the sharpest direction for long.",
        "It falls back to about 10, again and again": "It does fall when jumps are large, from 24 to 16, "
        "but then grows back, and later swings are small.",
    },
    reveal=plot_edge_of_stability,
)

FIGURES = lesson.figures
