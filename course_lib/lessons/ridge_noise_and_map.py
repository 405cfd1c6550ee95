"""Figures, explorer, predictions and exercises of lesson 03, ridge_noise_and_map."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.optimization.ridge import (
    mean_factor,
    mean_limit,
    moments,
    noisy_copies,
    noisy_sgd,
    ridge,
    ridge_flops,
    second_moment_factor,
    second_moment_limit,
    shrinkage,
    stationary_moments,
    typical_factor,
)
from course_lib.teaching.exercise import Exercise, Mistake, Property
from course_lib.teaching.explorer import Explorer, Slider
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, RED, describe, new_figure, styled

# Figures


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


@styled
def plot_question(places: Tensor, target: Tensor, grid: Tensor, curves: Mapping[str, Tensor]) -> Figure:
    """Draw the data and the fitted curves, in the order given; the last ones lie on top of each other."""
    figure = new_figure(7.2, 4.0)
    axes = figure.add_subplot()
    looks = (("0.55", "-", 1.4), (ORANGE, "-", 7), (BLUE, "--", 2.6), (BLACK, ":", 2.2))
    for (name, curve), (color, style, width) in zip(curves.items(), looks, strict=False):
        axes.plot(grid, curve, color=color, linestyle=style, linewidth=width, label=name)
    axes.plot(places, target, "o", color=RED, markersize=6, label="data")
    axes.set(xlabel="t", ylabel="y", ylim=(-2.3, 2.9), title="Three recipes, one curve")
    axes.legend(loc="upper right", ncols=2)
    return describe(
        figure,
        f"{len(places)} points and the curves fitted to them. Plain least squares runs through every point and "
        "swings widely between them, beyond the picture near the left end. Least squares on noisy copies of the "
        "inputs, a penalty on the squared weights and the most probable weights under a normal prior give one and "
        "the same calmer curve.",
    )


def question_curves() -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
    """Return places, targets, grid and the four fitted curves of the question."""
    places, matrix, target, grid, grid_matrix = wiggly_data()
    noise = 0.15
    penalty = len(matrix) * noise**2
    generator = torch.Generator().manual_seed(0)
    copies = matrix + noise * torch.randn(2000, *matrix.shape, generator=generator, dtype=torch.float64)
    rows = copies.reshape(-1, matrix.shape[1])
    noisy = torch.linalg.lstsq(rows, target.repeat(len(copies))[:, None]).solution[:, 0]
    weights = {
        "least squares": torch.linalg.pinv(matrix) @ target,
        "noise on the inputs": noisy,
        "penalty": ridge(matrix, target, penalty, system="primal"),
        "prior": ridge(matrix, target, penalty, system="dual"),
    }
    return places, target, grid, {name: grid_matrix @ w for name, w in weights.items()}


@styled
def plot_shrinkage(singular_values: tuple[float, ...] = (3.0, 1.0, 0.3, 0.1)) -> Figure:
    """Draw s^2 / (s^2 + lambda) against lambda for a few singular values."""
    figure = new_figure(6.4, 3.8)
    axes = figure.add_subplot()
    penalties = np.logspace(-4, 3, 300)
    values = torch.tensor(singular_values, dtype=torch.float64)
    curves = torch.stack([shrinkage(values, float(p)) for p in penalties])
    for value, curve in zip(singular_values, curves.T, strict=True):
        axes.semilogx(penalties, curve, label=f"$s_i$ = {value:g}")
    axes.axhline(0.5, color=BLACK, linewidth=0.8, linestyle="-")
    axes.set(
        xlabel="penalty $\\lambda$",
        ylabel="$s_i^2 / (s_i^2 + \\lambda)$",
        ylim=(0, 1.05),
        title="Ridge lets strong directions pass and holds weak ones back",
    )
    axes.legend(loc="lower left")
    listed = ", ".join(f"{v:g}" for v in singular_values)
    return describe(
        figure,
        f"The share of the least-squares solution that ridge keeps, against the penalty on a logarithmic axis, for "
        f"singular values {listed}. Every curve falls from 1 to 0 and passes 1/2 where the penalty equals the squared "
        "singular value.",
    )


@styled
def plot_thresholds(x: float = 1.0, noise: float = 1.0) -> Figure:
    """Draw the factor a step of the mean, of the root mean square and of a typical path against the step."""
    figure = new_figure(7.0, 4.2)
    axes = figure.add_subplot()
    steps = torch.linspace(0.005, 1.3, 260, dtype=torch.float64)
    listed = steps.tolist()
    mean = [abs(mean_factor(x, noise=noise, step_size=s)) for s in listed]
    rms = [math.sqrt(second_moment_factor(x, noise=noise, step_size=s)) for s in listed]
    axes.plot(listed, mean, color=BLUE, linestyle="-", label="mean: $|E\\,a|$")
    axes.plot(listed, rms, color=RED, linestyle="--", label="root mean square: $\\sqrt{E\\,a^2}$")
    axes.plot(
        listed,
        typical_factor(x, noise=noise, step_sizes=steps),
        color=GREEN,
        linestyle="-.",
        label="one path: $\\exp E\\log|a|$",
    )
    axes.axhline(1, color=BLACK, linewidth=0.8, linestyle="-")
    second, first, printed = (
        second_moment_limit(x, noise=noise),
        mean_limit(x, noise=noise),
        1 / (x**2 + noise**2),
    )
    for limit, color in ((second, RED), (first, BLUE)):
        axes.plot([limit], [1], "o", color=color, markersize=8, zorder=5)
    axes.axvline(printed, color=BLACK, linewidth=1.4, linestyle=":", label=f"the notes' limit {printed:g}")
    axes.set(xlabel="step size $\\eta$", ylabel="factor a step", xlim=(0, 1.3), ylim=(0, 2.6))
    axes.set_title(f"Three ways to be stable (x = {x:g}, $\\sigma$ = {noise:g})")
    axes.legend(loc="upper left")
    return describe(
        figure,
        f"Three factors against the step size for x = {x:g} and sigma = {noise:g}. The root mean square passes 1 at "
        f"{second:g}, the mean at {first:g}, a single path later still. The limit {printed:g} of the notes lies between "
        "the first two.",
    )


@styled
def plot_typical(*, step_size: float = 0.45, steps: int = 60, paths: int = 2000) -> Figure:
    """Draw sample paths, their median and the exact root mean square for x = sigma = 1, y = 0, from w_0 = 1."""
    figure = new_figure(7.0, 4.2)
    axes = figure.add_subplot()
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(steps, paths, generator=generator, dtype=torch.float64)
    sizes = noisy_sgd(1.0, 0.0, 1.0, noise, step_size=step_size).abs()
    for i in range(12):
        label = "12 of the paths" if i == 0 else "_path"
        axes.semilogy(sizes[:, i], color="0.7", linewidth=0.8, linestyle="-", label=label)
    t = np.arange(steps + 1)
    factor = float(typical_factor(1.0, noise=1.0, step_sizes=torch.tensor([step_size]).double()))
    second = second_moment_factor(1.0, noise=1.0, step_size=step_size)
    axes.semilogy(sizes.median(dim=1).values, color=GREEN, linestyle="-.", label=f"median of {paths} paths")
    axes.semilogy(factor**t, color=BLACK, linestyle=":", label="$\\exp(t\\,E\\log|a|)$")
    axes.semilogy(second ** (t / 2), color=RED, linestyle="--", label="$\\sqrt{E\\,w_t^2}$, exact")
    axes.set(xlabel="step t", ylabel="$|w_t|$", ylim=(1e-18, 1e12))
    axes.set_title(f"The typical path shrinks, the root mean square grows ($\\eta$ = {step_size:g})")
    axes.legend(loc="upper left", ncols=2)
    return describe(
        figure,
        f"Sizes of the weights against the step on a logarithmic axis, with step size {step_size:g}. The median of "
        f"{paths} paths falls by a factor of about {factor:.2f} a step, as the typical factor says; the exact root "
        f"mean square grows by {math.sqrt(second):.2f} a step, carried by paths so rare that none is among those drawn.",
    )


@styled
def plot_two_systems(rows: int = 200) -> Figure:
    """Draw the operations of the primal and the dual system against the number of columns."""
    figure = new_figure(6.4, 3.8)
    axes = figure.add_subplot()
    columns = np.unique(np.logspace(1, 4, 120).astype(int))
    for system, style, color in (("primal", "-", BLUE), ("dual", "--", RED)):
        size = "d x d" if system == "primal" else "m x m"
        flops = [ridge_flops(rows, int(d), system=system) for d in columns]
        axes.loglog(columns, flops, linestyle=style, color=color, label=f"{system}, {size}")
    axes.axvline(rows, color=BLACK, linestyle=":", linewidth=1.2, label="d = m")
    axes.set(xlabel="columns d", ylabel="operations", title=f"Solve the smaller system (m = {rows} rows)")
    axes.legend(loc="upper left")
    return describe(
        figure,
        f"Operations of the two systems against the number of columns, on logarithmic axes, for {rows} rows. The "
        "primal is cheaper for fewer columns than rows, the dual for more; they cross where the two are equal.",
    )


# Explorer


class NoisyStepExplorer(Explorer):
    """Noisy gradient descent on one sample: factors of mean, second moment and single path, and some paths."""

    title = "Noisy gradient descent on one sample"
    summary = (
        "Left: what one step multiplies the mean, the root mean square and a typical single path by, against the step "
        "size; the vertical line is the step size in use, and below 1 means stable. Right: sample paths of the weight "
        "for y = 2 from 3, their exact mean, a band of one standard deviation round it, and the ridge solution; "
        "its axis is linear between -5 and 5 and logarithmic beyond."
    )
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "step_size": Slider(
            label="step size", symbol="η", default=0.3, minimum=0.01, maximum=1.1, step=0.01,
            tooltip="How far one step goes along the negative gradient of the noisy loss",
        ),
        "x": Slider(
            label="input", symbol="x", default=1.0, minimum=0.2, maximum=2.0, step=0.05,
            tooltip="The clean input; the loss is 1/2 ((x + N) w - y)²",
        ),
        "noise": Slider(
            label="noise on the input", symbol="σ", default=1.0, minimum=0.0, maximum=1.5, step=0.05,
            tooltip="Standard deviation of the fresh normal noise N of every step; at 0 there is none",
        ),
    }  # fmt: skip
    size = (9.6, 4.2)
    steps, paths = 40, 12
    target, start = 2.0, 3.0

    def __init__(self):
        generator = torch.Generator().manual_seed(5)
        self._normal = torch.randn(self.steps, self.paths, generator=generator, dtype=torch.float64)
        self._grid = torch.linspace(0.005, 1.1, 80, dtype=torch.float64)
        super().__init__()

    def compute(self, *, step_size, x, noise):
        """Return the three curves of factors, the paths, their exact mean and deviation, and the limits."""
        grid = self._grid.tolist()
        run = noisy_sgd(x, self.target, self.start, noise * self._normal, step_size=step_size)
        mean, square = moments(x, self.target, self.start, noise=noise, step_size=step_size, steps=self.steps)
        deviation = (square - mean.square()).clamp(min=0).sqrt()
        curves = np.array(
            [
                [abs(mean_factor(x, noise=noise, step_size=s)) for s in grid],
                [math.sqrt(max(0, second_moment_factor(x, noise=noise, step_size=s))) for s in grid],
                typical_factor(x, noise=noise, step_sizes=self._grid).tolist(),
            ]
        )
        here = torch.tensor([step_size], dtype=torch.float64)
        return {
            "curves": curves,
            "paths": run.clamp(-1e6, 1e6).numpy(),
            "mean": mean.clamp(-1e6, 1e6).numpy(),
            "low": (mean - deviation).clamp(-1e6, 1e6).numpy(),
            "high": (mean + deviation).clamp(-1e6, 1e6).numpy(),
            "typical": float(typical_factor(x, noise=noise, step_sizes=here)),
            "step_size": step_size,
            "x": x,
            "noise": noise,
        }

    def draw(self, figure):
        """Draw both axes with fixed limits."""
        factors, run = figure.subplots(1, 2)
        factors.set(
            xlim=(0, 1.1),
            ylim=(0, 2.5),
            xlabel="step size $\\eta$",
            ylabel="factor a step",
            title="Stable below 1",
        )
        factors.axhline(1, color=BLACK, linewidth=0.8, linestyle="-")
        curves = [
            factors.plot([], [], color=color, linestyle=style, label=label)[0]
            for color, style, label in (
                (BLUE, "-", "mean"), (RED, "--", "root mean square"), (GREEN, "-.", "typical path"),
            )
        ]  # fmt: skip
        (here,) = factors.plot([], [], color=BLACK, linestyle=":", linewidth=1.4, label="$\\eta$ in use")
        factors.legend(loc="upper left", fontsize=8)
        run.set(
            xlim=(0, self.steps),
            ylim=(-1000, 1000),
            xlabel="step t",
            ylabel="weight $w_t$",
            title="Paths, mean and spread",
        )
        # Linear between -5 and 5, where stable paths live; logarithmic beyond, so that growth stays in sight.
        run.set_yscale("symlog", linthresh=5, linscale=3)
        run.set_yticks(
            [-1000, -100, -4, -2, 0, 2, 4, 100, 1000],
            labels=["-1000", "-100", "-4", "-2", "0", "2", "4", "100", "1000"],
        )
        run.minorticks_off()
        paths = [
            run.plot([], [], color="0.72", linewidth=0.7, linestyle="-",
                     label="sample paths" if i == 0 else "_path")[0]
            for i in range(self.paths)
        ]  # fmt: skip
        (mean,) = run.plot([], [], color=BLUE, linestyle="-", linewidth=2.2, label="mean")
        (low,) = run.plot([], [], color=RED, linestyle="--", label="mean ± deviation")
        (high,) = run.plot([], [], color=RED, linestyle="--", label="_high")
        (limit,) = run.plot([], [], color=BLACK, linestyle=":", linewidth=1.6, label="ridge solution")
        run.legend(loc="upper right", ncols=2, fontsize=8)
        return {
            "curves": curves,
            "here": here,
            "paths": paths,
            "mean": mean,
            "band": [low, high],
            "limit": limit,
        }

    def update(self, artists, state):
        """Move factors, paths, mean and band."""
        for line, curve in zip(artists["curves"], state["curves"], strict=True):
            line.set_data(self._grid.numpy(), curve)
        artists["here"].set_data([state["step_size"]] * 2, [0, 2.5])
        t = np.arange(self.steps + 1)
        for line, path in zip(artists["paths"], state["paths"].T, strict=True):
            line.set_data(t, path)
        artists["mean"].set_data(t, state["mean"])
        for line, edge in zip(artists["band"], ("low", "high"), strict=True):
            line.set_data(t, state[edge])
        solution = state["x"] * self.target / (state["x"] ** 2 + state["noise"] ** 2)
        artists["limit"].set_data([0, self.steps], [solution, solution])

    def words(self, state):
        """Say which of the three are stable and what the paths do."""
        x, noise, step_size = state["x"], state["noise"], state["step_size"]
        first = mean_factor(x, noise=noise, step_size=step_size)
        second = second_moment_factor(x, noise=noise, step_size=step_size)
        solution = x * self.target / (x**2 + noise**2)
        limits = (
            f"The limits are {second_moment_limit(x, noise=noise):.3f} for the second moment and "
            f"{mean_limit(x, noise=noise):.3f} for the mean."
        )
        factors = f"E a = {first:.2f}, E a² = {second:.2f}"
        typical = state["typical"]
        single = f"a typical path of the error {'shrinks' if typical < 1 else 'grows'} by the factor {typical:.2f} a step"
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


# Predictions


def second_moment_prediction() -> Prediction:
    """Ask what the notes' limit means for the second moment."""
    return Prediction(
        "03.P1",
        "Take $x = \\sigma = 1$, $y = 0$ and $\\eta = 0.45$, below the limit $1/(x^2 + \\sigma^2) = 0.5$ that the notes "
        "give. What does the second moment $E\\,w_t^2$ do?",
        choices={
            "It shrinks": "The mean shrinks, by 1 - 0.45 · 2 = 0.1 a step. The second moment has its own factor, "
            "E a² = 1 - 1.8 + 0.2025 · 10 = 1.225.",
            "It stays constant": "That happens at η = 0.4 exactly, where E a² = 1.",
            "It grows": "The factor is E a² = 1 - 1.8 + 0.2025 · 10 = 1.225, because E(1 + N)⁴ = 10 weighs the rare "
            "large inputs.",
        },
        answer="It grows",
        reveal=plot_thresholds,
    )


def typical_path_prediction() -> Prediction:
    """Ask what a single path does while the second moment grows."""
    return Prediction(
        "03.P2",
        "Same setting: $x = \\sigma = 1$, $y = 0$, $\\eta = 0.45$, and $E\\,w_t^2$ grows by 22.5% a step. You run the "
        "program once, from $w_0 = 1$. What does $|w_t|$ do over 60 steps?",
        choices={
            "It grows, by about √1.225 a step": "That is the root mean square over all paths. Nearly all of it is "
            "carried by very rare paths.",
            "It keeps its size": "Growth and decay do not balance: a single path follows E log|a|, and that is "
            "negative here.",
            "It shrinks": "A single path multiplies its factors, so its logarithm adds them: E log|a| is negative, "
            "and the path shrinks although the average of squares grows.",
        },
        answer="It shrinks",
        reveal=plot_typical,
    )


# Exercises


def _uniform(generator: torch.Generator, low: float, high: float, digits: int = 2) -> float:
    return round(low + (high - low) * float(torch.rand((), generator=generator)), digits)


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64).round(decimals=1)


def _fits_noisy_rows(inputs: Mapping, penalty) -> bool:
    """Whether ridge with that penalty is plain least squares on noisy copies of the rows."""
    if not float(penalty) > 0:
        return False
    matrix, target = inputs["matrix"], inputs["target"]
    copies = noisy_copies(matrix, noise=0.2)
    rows, targets = copies.reshape(-1, matrix.shape[1]), target.repeat(len(copies))
    noisy = torch.linalg.lstsq(rows, targets[:, None]).solution[:, 0]
    return torch.allclose(ridge(matrix, target, float(penalty)), noisy, rtol=1e-6, atol=1e-8)


_PENALTY = Exercise(
    id="03.1",
    title="Noise as a penalty",
    kind="value",
    difficulty=1,
    minutes=3,
    prompt="A data set has $m = 50$ rows. Independent noise with standard deviation $0.2$ is added to every entry of "
    "$X$, afresh each time it is used. On average over the noise, $\\lVert \\tilde Xw - y\\rVert^2$ is then a ridge loss "
    "$\\lVert Xw - y\\rVert^2 + \\lambda\\lVert w\\rVert^2$. Which number is $\\lambda$?",
    draw=lambda generator: {"matrix": _normal(generator, 50, 3), "target": _normal(generator, 50)},
    reference=2.0,
    properties=(
        Property(
            "Ridge with your λ differs from least squares on noisy copies of a random 50 x 3 matrix.", _fits_noisy_rows
        ),
    ),
    hints=(
        "Every row adds its own noise term (Nᵢᵀw)². What is its expectation?",
        "E(Nᵢᵀw)² is the variance of one noise entry times ‖w‖², and it is added once for each row.",
        "λ is the number of rows times the variance; the variance is the square of the standard deviation.",
    ),
    mistakes=(
        Mistake("forgot the rows", 0.04, "That is σ²: it is added once for each of the 50 rows."),
        Mistake("forgot the square", 10.0, "That is mσ. The penalty is a variance times m: square the standard "
                "deviation."),
        Mistake("divided by the rows", 0.0008, "You divided by m. The loss is a sum over rows, so each row adds its "
                "σ²‖w‖²."),
        Mistake("half of it", 1.0, "You halved it: that would belong to the penalty λ/2 beside a loss that has no "
                "1/2. Here both terms are whole."),
    ),
)  # fmt: skip


def dual_ridge(matrix, target, penalty):
    """Ridge by the system with one unknown for each row."""
    gram = matrix @ matrix.T
    shifted = gram + penalty * torch.eye(len(gram), dtype=gram.dtype)
    return matrix.T @ torch.linalg.solve(shifted, target)


def _draw_ridge(generator: torch.Generator) -> dict:
    rows = int(torch.randint(2, 4, (), generator=generator))
    return {
        "matrix": _normal(generator, rows, rows + 2),
        "target": _normal(generator, rows),
        "penalty": _uniform(generator, 0.2, 2.5),
    }


def _is_stationary(inputs: Mapping, weights: Tensor) -> bool:
    residual = inputs["matrix"] @ weights - inputs["target"]
    gradient = inputs["matrix"].T @ residual + inputs["penalty"] * weights
    return bool(gradient.norm() <= 1e-8 * (1 + (inputs["matrix"].T @ inputs["target"]).norm()))


def _dual_with(shift) -> Callable:
    """Return the dual solution with another matrix added to X X^T."""
    return lambda X, y, p: X.T @ torch.linalg.solve(X @ X.T + shift(p, len(X)), y)


_DUAL = Exercise(
    id="03.2",
    title="One unknown for each row",
    kind="function",
    difficulty=1,
    minutes=8,
    prompt="Write `dual_ridge(matrix, target, penalty)`: the minimiser of "
    "$\\lVert Xw - y\\rVert^2 + \\lambda\\lVert w\\rVert^2$ by solving one $m \\times m$ system, never a $d \\times d$ one. "
    "`matrix` is $X$ with shape `(m, d)`, `target` is $y$, `penalty` is $\\lambda > 0$; return a float64 tensor of "
    "shape `(d,)`.",
    draw=_draw_ridge,
    reference=dual_ridge,
    properties=(
        Property("The gradient Xᵀ(Xw - y) + λw should vanish at your weights.", _is_stationary),
    ),
    hints=(
        "The solution lies in the span of the rows: w = Xᵀα for some α with m entries.",
        "Push Xᵀ through the inverse: the λ stays on the diagonal, the Gram matrix becomes XXᵀ.",
        "Solve (XXᵀ + λI) α = y with torch.linalg.solve and torch.eye, then map α back by Xᵀ.",
    ),
    mistakes=(
        Mistake("left out the penalty", _dual_with(lambda p, m: torch.zeros(m, m, dtype=torch.float64)),
                "Without λ this is the minimum-norm solution of Xw = y, not ridge."),
        Mistake("added the penalty everywhere", _dual_with(lambda p, m: p),
                "`gram + penalty` adds λ to every entry of the matrix. Only the diagonal gets it: λ times the "
                "identity."),
        Mistake("squared the penalty", _dual_with(lambda p, m: p**2 * torch.eye(m, dtype=torch.float64)),
                "You added λ² to the diagonal. λ is the penalty itself, already a variance."),
        Mistake("penalty times rows", _dual_with(lambda p, m: p * m * torch.eye(m, dtype=torch.float64)),
                "You multiplied λ by the number of rows: that is right for a mean over the rows, this loss is a sum."),
        Mistake("unit noise", _dual_with(lambda p, m: torch.eye(m, dtype=torch.float64)),
                "You put 1 in the place of λ. That is what a likelihood of variance 1 gives, as in the notes."),
    ),
)  # fmt: skip


def longest_step(x, sigma):
    """Return the limit of the step size for the second moment."""
    square = x**2 + sigma**2
    fourth = x**4 + 6 * x**2 * sigma**2 + 3 * sigma**4
    return 2 * square / fourth


def _mean_square_factor(x, sigma, step_size):
    """E (1 - eta (x + N)^2)^2 by a three-sided coin that has the normal's moments up to order 5."""
    sides = ((-math.sqrt(3), 1 / 6), (0.0, 2 / 3), (math.sqrt(3), 1 / 6))
    return sum(chance * (1 - step_size * (x + sigma * side) ** 2) ** 2 for side, chance in sides)


_SECOND = Exercise(
    id="03.3",
    title="The longest step for the second moment",
    kind="function",
    difficulty=2,
    minutes=12,
    prompt="Write `longest_step(x, sigma)` for noisy gradient descent on $\\frac12((x + N)w - y)^2$ with "
    "$N \\sim N(0, \\sigma^2)$: the number below which every step size keeps $E\\,w_t^2$ bounded and above which none "
    "does. `x` and `sigma` are positive numbers; return a number.",
    draw=lambda generator: {"x": _uniform(generator, 0.3, 2.0), "sigma": _uniform(generator, 0.3, 1.5)},
    reference=longest_step,
    properties=(
        Property(
            "A step just below yours makes the second moment grow.",
            lambda i, step: float(step) > 0 and _mean_square_factor(i["x"], i["sigma"], (1 - 1e-6) * float(step)) < 1,
        ),
        Property(
            "A step just above yours keeps the second moment bounded.",
            lambda i, step: _mean_square_factor(i["x"], i["sigma"], (1 + 1e-6) * float(step)) > 1,
        ),
    ),
    hints=(
        "Square the random factor 1 - η(x + N)² and take the expectation term by term.",
        "You need E(x + N)² and E(x + N)⁴; the moments of the noise are E N² = σ² and E N⁴ = 3σ⁴.",
        "1 - 2ηP + η²Q < 1 says 0 < η < 2P/Q. What are P and Q?",
    ),
    mistakes=(
        Mistake("the notes' limit", lambda x, s: 1 / (x**2 + s**2),
                "That is the limit printed in the notes: neither the limit of the mean, which is twice as large, nor "
                "that of the second moment."),
        Mistake("limit of the mean", lambda x, s: 2 / (x**2 + s**2),
                "That keeps the mean stable. The second moment needs E(x + N)⁴, which is more than the square of "
                "E(x + N)²."),
        Mistake("fourth moment without the 3", lambda x, s: 2 * (x**2 + s**2) / (x**4 + 6 * x**2 * s**2 + s**4),
                "You took E N⁴ = σ⁴. For a normal variable it is 3σ⁴."),
        Mistake("forgot the cross terms", lambda x, s: 2 * (x**2 + s**2) / (x**4 + 3 * s**4),
                "You left out 6x²σ²: the middle term of the binomial (x + N)⁴ does not average out, since N² does not."),
        Mistake("factor 2 of the other loss", lambda x, s: (x**2 + s**2) / (x**4 + 6 * x**2 * s**2 + 3 * s**4),
                "That is the limit for the loss without 1/2, whose gradient is twice as large."),
    ),
)  # fmt: skip


def _below_printed(c: Mapping) -> bool:
    x, sigma, step = c["x"], c["sigma"], c["step_size"]
    return sigma >= 0 and x > 0 and 0 < step < 1 / (x**2 + sigma**2)


def _grows(c: Mapping) -> bool:
    return _mean_square_factor(c["x"], c["sigma"], c["step_size"]) > 1.01


def _printed_is_safe(c: Mapping) -> bool:
    return c["x"] ** 2 >= (1 + math.sqrt(2)) * c["sigma"] ** 2


_FLAW = Exercise(
    id="03.4",
    title="Catch the printed limit",
    kind="flaw",
    difficulty=2,
    minutes=8,
    prompt="The notes say that noisy gradient descent on $\\frac12((x + N)w - y)^2$ is stable for "
    "$0 < \\eta < 1/(x^2 + \\sigma^2)$. Give a counterexample: a dictionary with the numbers `x` $> 0$, `sigma` "
    "$\\ge 0$ and `step_size`, within the printed limit, for which $E\\,w_t^2$ (with $y = 0$) grows by more than 1% a step.",
    draw=lambda generator: {"seed": int(torch.randint(1000, (), generator=generator))},
    reference={"x": 1.0, "sigma": 1.0, "step_size": 0.45},
    properties=(
        Property(
            "Take x > 0, sigma of 0 or more and a step size within the printed limit.",
            lambda inputs, c: _below_printed(c),
        ),
        Property(
            "For your numbers the second moment does not grow by more than 1% a step.",
            lambda inputs, c: _below_printed(c) and _grows(c),
        ),
    ),
    hints=(
        "The printed condition is about the mean. Which condition does the second moment add?",
        "Compare 1/(x² + σ²) with 2(x² + σ²)/(x⁴ + 6x²σ² + 3σ⁴): for which ratio σ/x is the second one smaller?",
        "Noise as large as the input is enough. Then take a step between the two limits, nearer to the larger one.",
    ),
    mistakes=(
        Mistake("no noise", {"x": 1.0, "sigma": 0.0, "step_size": 0.9},
                "Without noise the second moment is the square of the mean, and the printed limit is safe.",
                lambda i, c: _below_printed(c) and c["sigma"] == 0),
        Mistake("too little noise", {"x": 2.0, "sigma": 0.5, "step_size": 0.22},
                "With x² ≥ (1 + √2)σ² the printed limit happens to be safe: take more noise.",
                lambda i, c: _below_printed(c) and c["sigma"] > 0 and _printed_is_safe(c)),
        Mistake("too short a step", {"x": 1.0, "sigma": 1.0, "step_size": 0.3},
                "Your noise is large enough, but this step is below the limit of the second moment, or hardly above "
                "it: take a longer one.",
                lambda i, c: _below_printed(c) and not _printed_is_safe(c) and not _grows(c)),
        Mistake("beyond the printed limit", {"x": 1.0, "sigma": 1.0, "step_size": 0.6},
                "Your step is beyond the printed limit, so the notes do not call it stable.",
                lambda i, c: c["x"] > 0 and c["sigma"] >= 0 and c["step_size"] >= 1 / (c["x"] ** 2 + c["sigma"] ** 2)),
    ),
)  # fmt: skip


def posterior_covariance(matrix, noise_variance, prior_variance):
    """Return the covariance of w given y for w ~ N(0, p I) and y = X w + N(0, v I)."""
    eye = torch.eye(matrix.shape[1], dtype=matrix.dtype)
    precision = matrix.T @ matrix / noise_variance + eye / prior_variance
    return torch.linalg.inv(precision)


def _draw_posterior(generator: torch.Generator) -> dict:
    rows = int(torch.randint(2, 5, (), generator=generator))
    return {
        "matrix": _normal(generator, rows, 2),
        "noise_variance": _uniform(generator, 0.3, 2.0),
        "prior_variance": _uniform(generator, 0.3, 3.0),
    }


def _conditional_covariance(inputs: Mapping) -> Tensor:
    """Cov(W) - Cov(W, Y) Cov(Y)^-1 Cov(Y, W), from the joint covariance."""
    matrix, noise, prior = inputs["matrix"], inputs["noise_variance"], inputs["prior_variance"]
    rows, columns = matrix.shape
    both = prior * matrix
    spread = prior * matrix @ matrix.T + noise * torch.eye(rows, dtype=matrix.dtype)
    return prior * torch.eye(columns, dtype=matrix.dtype) - both.T @ torch.linalg.solve(spread, both)


def _inverse_with(shift, scale) -> Callable:
    """Return scale * (X^T X + shift I)^-1, with both computed from the two variances."""
    return lambda X, v, p: (
        scale(v, p) * torch.linalg.inv(X.T @ X + shift(v, p) * torch.eye(X.shape[1], dtype=X.dtype))
    )


_COVARIANCE = Exercise(
    id="03.5",
    title="How sure the posterior is",
    kind="function",
    difficulty=3,
    minutes=15,
    prompt="The prior is $w \\sim N(0, p I)$ and the data are $y = Xw + n$ with $n \\sim N(0, v I)$. Write "
    "`posterior_covariance(matrix, noise_variance, prior_variance)`: the covariance of $w$ given $y$. `matrix` is $X$ "
    "with shape `(m, d)`, `noise_variance` is $v$, `prior_variance` is $p$; return a float64 tensor of shape `(d, d)`.",
    draw=_draw_posterior,
    reference=posterior_covariance,
    properties=(
        Property(
            "It should equal Cov(W) - Cov(W, Y) Cov(Y)⁻¹ Cov(Y, W) of the joint normal distribution.",
            lambda inputs, output: torch.allclose(output, _conditional_covariance(inputs), rtol=1e-8, atol=1e-10),
        ),
    ),
    hints=(
        "Write the logarithm of the posterior density. It is a quadratic in w; where is its inverse covariance?",
        "Prior and likelihood add their precisions: the prior's is I/p, and each row adds xᵢxᵢᵀ divided by something.",
        "Invert XᵀX/v + I/p, or equivalently scale (XᵀX + λI)⁻¹ by v with λ = v/p.",
    ),
    mistakes=(
        Mistake("without the noise in front", _inverse_with(lambda v, p: v / p, lambda v, p: 1.0),
                "You returned (XᵀX + λI)⁻¹. It gives the mean when it meets Xᵀy; as a covariance it needs the "
                "factor v in front."),
        Mistake("ratio upside down", _inverse_with(lambda v, p: p / v, lambda v, p: v),
                "Your λ is p/v. More noise means less trust in the data: λ = v/p."),
        Mistake("prior of variance one", _inverse_with(lambda v, p: v, lambda v, p: v),
                "That is right for p = 1 only: the prior's precision is I/p."),
        Mistake("noise of variance one", _inverse_with(lambda v, p: 1 / p, lambda v, p: 1.0),
                "You left out v: a likelihood of variance 1, as in the notes. Each row's precision is xᵢxᵢᵀ/v."),
        Mistake("returned the precision",
                lambda X, v, p: X.T @ X / v + torch.eye(X.shape[1], dtype=X.dtype) / p,
                "That is the precision. The covariance is its inverse."),
    ),
)  # fmt: skip

EXERCISES = {e.id: e for e in (_PENALTY, _DUAL, _SECOND, _FLAW, _COVARIANCE)}

FIGURES = {
    "question": lambda: plot_question(*question_curves()),
    "shrinkage": plot_shrinkage,
    "thresholds": plot_thresholds,
    "typical": plot_typical,
    "two_systems": plot_two_systems,
    "explorer": lambda: NoisyStepExplorer().strip(),
}
