"""Figures, explorer and predictions of lesson 01, gradient_descent_stability."""

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from course_lib.lessons.gradient_descent_stability.contents import lesson
from course_lib.optimization.gradient_descent import (
    best_step,
    closed_form,
    contraction_factors,
    excess_left,
    excess_shares,
    gradient_descent,
    heavy_ball_rate,
    heavy_ball_steps_to_share,
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


def patients(version: str = "raw", *, subset: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the matrix X, a column of ones and ten measurements, and y, the disease a year later less its mean.

    `version` changes the ten columns: scaled, divided by their standard deviation; centred, less their mean;
    standardised, both. `subset` is a seed that draws 350 of the 442 patients.
    Shapes: (442, 11) and (442,), in float64.

    Raises:
        ValueError: the version is unknown.
    """
    from sklearn.datasets import load_diabetes  # costs a second, and only the patients need it

    if version not in VERSIONS:
        raise ValueError(f"version must be one of {', '.join(VERSIONS)}, got {version!r}")
    data = load_diabetes(scaled=False)
    columns, target = torch.tensor(data.data), torch.tensor(data.target)
    if subset is not None:
        chosen = np.random.default_rng(subset).permutation(PATIENTS)[:SUBSET]
        columns, target = columns[chosen], target[chosen]
    spread, mean = columns.std(0, correction=0), columns.mean(0)
    if version in ("centred", "standardised"):
        columns = columns - mean
    if version in ("scaled", "standardised"):
        columns = columns / spread
    return torch.cat([torch.ones_like(columns[:, :1]), columns], 1), target - target.mean()


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


@cache
def fewest_with_momentum(version: str, *, subset: int | None = None, share: float = 0.01) -> tuple[int, float]:
    """Return the fewest steps of 900 pairs of step size and momentum, and that momentum."""
    sigmas, shares = spectrum(version, subset)
    pairs = torch.cartesian_prod(
        torch.tensor(MOMENTUM_SWEEP, dtype=torch.float64), torch.tensor(MOMENTA, dtype=torch.float64)
    )
    sizes = pairs[:, 0] * (1 + pairs[:, 1]) * stability_limit(sigmas)  # the border with momentum is 1 + beta times it
    steps, place = heavy_ball_steps_to_share(sigmas, shares, step_sizes=sizes, momenta=pairs[:, 1], share=share)
    return steps, float(pairs[place, 1])


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
    "Half a percent longer, and the best step explodes",
    "step t",
    "share of the removable loss left",
    size=(6.0, 3.0),
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
        (0.02, "a fiftieth of it", ORANGE, "--", (1500, 1.15)),
        (best / limit, "the best of 60 steps", BLUE, "-", (700, 0.12)),
        (1.005, "half a percent longer", RED, "-.", (30, 6.0)),
    ):
        left = run_of_patients(share * limit)[1:]
        axes.plot(steps, np.clip(left, 0, 1e6), style, color=color, label=name)
        axes.text(*place, name, color=color, fontsize=11)
        said.append(f"{name}: {left[-1]:.2f}" if left[-1] < 1 else f"{name}: it explodes")
    axes.axhline(1, color="0.55", linewidth=0.8)
    return f"Share of the removable loss left against the step, on logarithmic axes. After 10,000 steps: {'; '.join(said)}."


@lesson.figure(
    "The same best step, carried on",
    "step t",
    "share of the removable loss left",
    size=(6.0, 3.0),
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


def draw_directions(axes, version: str):
    """Draw each direction of one version of the patients as a stem: its curvature, and its share of the excess loss."""
    sigmas, shares = spectrum(version)
    flat = (sigmas / sigmas[0]).square().numpy()
    axes.vlines(flat, 0, shares, color=BLUE, linewidth=2.2)
    axes.plot(flat, shares, "o", color=BLUE, markersize=6)
    return flat, shares


@lesson.figure(
    "Eleven directions: the flat ones hold much of the loss",
    "$\\sigma_i^2 / \\sigma_{max}^2$ (steep on the right)",
    "share of the removable loss",
    size=(6.2, 3.0),
    xscale="log",
    xlim=(5e-9, 3),
    ylim=(0, 0.5),
    legend=None,
)
def plot_directions(axes):
    """Draw the directions of the raw measurements, and how many steps each needs to lose 99% of its share."""
    flat, shares = draw_directions(axes, "raw")
    best = best_of_sweep() / stability_limit(spectrum("raw")[0])
    for x, y in zip(flat[[2, 5, 7, 10]], shares[[2, 5, 7, 10]], strict=True):
        steps = math.log(0.01) / (2 * math.log(abs(1 - 2 * best * x)))
        said = f"{steps / 1e6:.0f} million" if steps >= 1e6 else f"{float(f'{steps:.2g}'):,.0f}"
        axes.text(x, float(y) + 0.025, f"{said} steps", ha="center", fontsize=11, color="0.25")
    return (
        "Eleven directions of the raw measurements, steep ones on the right, with their shares of the removable loss, "
        f"{float(shares[-1]):.0%} in the flattest and {float(shares[0]):.1%} in the steepest. Numbers: steps that leave a "
        "hundredth of a share."
    )


@lesson.figure(
    list(VERSIONS[1:]),
    "$\\sigma_i^2 / \\sigma_{max}^2$",
    "share of the removable loss",
    size=(7.4, 2.6),
    grid=(1, 3),
    subplots={"sharey": True},
    xscale="log",
    xlim=(2e-6, 4),
    ylim=(0, 0.68),
    legend=None,
)
def plot_versions(*axes):
    """Draw the directions of three versions of the patients' measurements with one scale."""
    said = []
    for one, version in zip(axes, VERSIONS[1:], strict=True):
        flat, shares = draw_directions(one, version)
        late = float(shares[flat < 1e-3].sum())
        one.axvline(1e-3, color="0.55", linewidth=0.9, linestyle=":")
        one.text(6e-4, 0.6, f"{late:.0%}", ha="right", color="0.3", fontsize=13, fontweight="bold")
        one.text(1.4e-3, 0.6, f"{1 - late:.0%}", ha="left", color="0.3", fontsize=13, fontweight="bold")
        one.set_xticks([1e-6, 1e-4, 1e-2, 1])
        said.append(f"{version} {late:.0%}")
    return (
        "The directions of the other versions. Share of the removable loss left of the dotted line, below a thousandth of "
        f"the steepest: {', '.join(said)}."
    )


@cache
def step_counts() -> dict[str, dict[str, list[int]]]:
    """Return the fewest steps to 1%, by version and method: of all patients, then of five random subsets."""
    who = (None, *range(SUBSETS))
    return {
        version: {
            "gradient descent": [fewest_steps(version, subset=one)[0] for one in who],
            "with momentum": [fewest_with_momentum(version, subset=one)[0] for one in who],
        }
        for version in VERSIONS
    }


def rounded(count: int) -> str:
    """Write a count with three digits, which rounding on another machine does not change."""
    return f"{float(f'{count:.3g}'):,.0f}"


@lesson.figure(
    "Steps until 1% is left, each at its best setting",
    "steps (logarithmic)",
    "measurements",
    size=(6.8, 3.0),
    xscale="log",
    xlim=(1, 3e11),
    ylim=(-0.6, 3.6),
    legend=None,
)
def plot_steps(axes):
    """Draw the fewest steps of each version without and with momentum: all patients, and the range of five subsets."""
    said = []
    for row, (version, methods) in enumerate(step_counts().items()):
        for (method, (whole, *parts)), color, mark, shift in zip(
            methods.items(), (BLUE, ORANGE), "os", (-0.16, 0.16), strict=True
        ):
            y = 3 - row - shift
            axes.plot([min(parts), max(parts)], [y, y], "-", color=color, linewidth=5, alpha=0.35)
            axes.plot([whole], [y], mark, color=color, markersize=7)
            axes.text(
                1.7 * max(whole, *parts),
                y,
                f"{rounded(whole)} {method}" if row == 0 else rounded(whole),
                va="center",
                fontsize=10,
                color=color,
            )
            counts = f"{rounded(whole)} ({rounded(min(parts))} to {rounded(max(parts))})"
            said.append(f"{version} {counts}" if method == "gradient descent" else f"with momentum {counts}")
    axes.set_yticks(range(4), VERSIONS[::-1])
    return f"Fewest steps until 1% is left, and the range of five subsets: {'; '.join(said)}."


OVERSHOOT = (0.1, 0.2)


@lesson.figure(
    [f"η = {step_size}" for step_size in OVERSHOOT],
    "step t",
    "error $w_t[i] - w^*[i]$",
    size=(6.8, 2.7),
    grid=(1, 2),
    subplots={"sharey": True},
    xlim=(-0.5, 16.5),
    ylim=(-1.15, 1.15),
    legend=["upper right", "upper right"],
)
def plot_overshoot(*axes):
    """Draw the signed errors of both directions of sigma = (2, 1) for a step that undershoots and one that overshoots."""
    sigmas, said = torch.tensor([2.0, 1.0], dtype=torch.float64), []
    for one, step_size in zip(axes, OVERSHOOT, strict=True):
        errors = closed_form(sigmas, 0 * sigmas, -torch.ones_like(sigmas), step_size=step_size, steps=16).T
        for error, name, look, color in zip(errors, ("1", "2"), ("-o", "--s"), (BLUE, ORANGE), strict=True):
            one.plot(error, look, color=color, markersize=5, label=f"direction {name}")
        one.axhline(0, color=BLACK, linewidth=0.8)
        factors = ", ".join(f"{f:.1f}" for f in contraction_factors(sigmas, step_size=step_size).tolist())
        said.append(f"step size {step_size}: factors {factors}")
    return f"Signed errors of two directions against the step, both from -1 on. {'; '.join(said)}."


@lesson.figure(
    "Only the two extreme directions decide",
    "step size $\\eta$",
    "$|1 - 2\\eta\\sigma_i^2|$",
    size=(6.0, 3.2),
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
        f"The size of {len(singular_values)} factors against the step size. The largest is a V: its left arm is "
        f"the flattest direction, its right arm the steepest. Best step {best:.4f}, rate {rate:.3f}; limit {limit:.4f}."
    )


@lesson.figure(
    "Tilted ellipses have axes, too",
    "$w[1]$",
    "$w[2]$",
    size=(4.6, 3.8),
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
        "A loss with tilted ellipses, and a run that jumps to and fro along their short axis v1 and creeps along the long "
        "axis v2."
    )


@lesson.figure(
    "Rate along one direction",
    "$2\\eta\\sigma^2$",
    "largest $|z|$",
    size=(5.6, 3.2),
    ylim=(0, 1.6),
    legend="lower right",
)
def plot_momentum(axes):
    """Draw the rate along one direction against its curvature for three momenta."""
    curvatures = np.linspace(0.001, 4.4, 300)
    rate = lambda x, beta: heavy_ball_rate(torch.ones(1), step_size=x / 2, momentum=beta)  # noqa: E731
    lines(axes, curvatures, {f"$\\beta$ = {b:g}": [rate(float(x), b) for x in curvatures] for b in (0.0, 0.25, 0.64)})
    axes.axhline(1, color=BLACK, linewidth=0.8)
    return (
        "The size of the larger root against 2 eta sigma squared: without momentum it falls to 0 and rises to 1 at "
        "2; with momentum 0.25 it is flat at 0.5 from 0.25 to 2.25, with 0.64 flat at 0.8 from 0.04 to 3.24."
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
    size=(6.0, 3.0),
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
        said.append(f"step size {step_size:g}: {sharpnesses[0]:.1f} at the start, {sharpnesses[-1]:.1f} at the end")
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


@lesson.figure(
    ["Jumps along the sharpest direction", "Sharpness"],
    "steps after step 1,100",
    ["size of one jump", "$\\lambda_{max}$"],
    size=(7.0, 3.0),
    grid=(1, 2),
    yscale=["log", "linear"],
    ylim=[(1e-5, 1e4), (14, 26)],
    legend=None,
)
def plot_frozen(left, second):
    """Draw what happens past the border in the network, and in the quadratic with its curvature at step 1,100."""
    found = past_the_border()
    left.plot(found["frozen"], "--", color=ORANGE)
    left.plot(found["network"], "-", color=BLUE)
    left.text(30, 600, "frozen quadratic", color=ORANGE, fontsize=12, ha="center")
    left.text(57, 0.2, "network", color=BLUE, fontsize=12)
    second.plot(found["sharpness"], "-", color=BLUE)
    second.axhline(found["sharpness"][0], color=ORANGE, linestyle="--")
    second.axhline(20, color="0.4", linestyle=":")
    second.text(79, 20.25, "2/η = 20", color="0.3", fontsize=11, ha="right")
    second.text(78, found["sharpness"][0] + 0.3, "frozen", color=ORANGE, fontsize=12, ha="right")
    return (
        "Left: jumps along the sharpest direction grow on the frozen quadratic to "
        f"{found['frozen'][-1]:.0e}, in the network to {max(found['network']):.2f}, where they shrink again. Right: its "
        f"sharpness falls from {max(found['sharpness']):.1f} to {min(found['sharpness']):.1f}, below the border."
    )


@lesson.explorer
class TrajectoryExplorer(Explorer):
    """Iterates of gradient descent on a two-dimensional problem, over the contours of its loss."""

    title = "Gradient descent on two singular values"
    summary = (
        "Left: the path of the iterates over the contours of the loss, from the start to the solution w* = (1, 0.5). "
        "Right: the error along each of the two directions against the step, on a logarithmic axis."
    )
    step_size = Slider("step size", "η", "How far one step goes along the negative gradient", 0.2, 0.005, 1.2, 0.005)
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
        "start, second entry", "w₀[2]", "Where the iterates start, along the second direction", -1.5, -2.5, 2.5, 0.1
    )
    reveal = Switch(
        "Show factors and border", "Show what a step multiplies each error by, the border and the best step"
    )
    together = ("step_size", "sigma_1")
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
            sizes = (abs(float(state["iterates"][k, i]) - float(self.solution[i])) for k in (0, 1, -1))
            first, second, last = (
                "more than 100,000" if size > 1e5 else "below 1e-6" if size < 1e-6 else f"{size:.3g}" for size in sizes
            )
            stays = f" and stays, since σ{name} = 0" if float(sigma[i]) == 0 else ""
            said.append(f"direction {i + 1}: {first}, {second}, {last}{stays}")
        text = f"Size of the error at the start, after 1 and after {self.steps} steps. In {'; in '.join(said)}."
        if not state["reveal"]:
            return text
        factors = " and ".join(f"{f:.2f}" for f in state["factors"])
        return (
            f"{text} One step multiplies the errors by {factors}. Border: {stability_limit(sigma):.3f}; "
            f"best step: {best_step(sigma):.3f}."
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
        "Run B": right("The longer step helps direction 2, which held run A up, by more than direction 1 loses."),
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
            "Past 20 jumps grow, and jumps lower the sharpness. Growth and push-back balance."
        ),
        "It keeps growing, and training does not care": "So it does with the shorter step, below its own border of "
        "40. Past its border a run cannot ignore the sharpest direction for long.",
        "It falls back to about 10, again and again": "It does fall when jumps are large, from 24 to 16, "
        "but then grows back, and later swings are small.",
    },
    reveal=plot_edge_of_stability,
)

FIGURES = lesson.figures
