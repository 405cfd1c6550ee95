"""Figures, explorer and predictions of lesson 05, multiplicative_noise."""

import math
from collections.abc import Sequence
from functools import cache, partial

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor

from course_lib.lessons.multiplicative_noise import bursts
from course_lib.lessons.multiplicative_noise.contents import lesson
from course_lib.measured import measured
from course_lib.optimization.multiplicative_noise import (
    carrying_noise,
    gaussian_run_limit,
    gaussian_spread_limit,
    tail_exponent,
)
from course_lib.optimization.ridge import (
    mean_factor,
    moments,
    noisy_sgd,
    second_moment_factor,
    second_moment_step_limit,
    typical_factor,
)
from course_lib.teaching import Explorer, Slider, lines, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, compact, small_legend

_compact = partial(compact, labels=8.5)

F64 = {"dtype": torch.float64}
STEP, STEPS, RUNS = 0.45, 60, 100_000  # of the question


# The question


def one_run(steps: int = 2000, *, seed: int = 2) -> Tensor:
    """Return w_1, ..., w_T of one run with x = sigma = 1, y = 2 and the step 0.45, from 0."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(steps, generator=generator, **F64)
    return noisy_sgd(1.0, 2.0, 0.0, noise[:, None], step_size=STEP)[1:, 0]


@lesson.figure("One run", "step $t$", "weight $w_t$", size=(6.6, 2.7), legend=None, example=one_run)
def plot_question(axes, weights: Sequence[float]):
    """Draw the weights of one run."""
    axes.plot(np.arange(1, len(weights) + 1), weights, color=BLUE, linewidth=0.8)
    _compact(axes)
    return (
        "The weight at each of 2,000 steps. It mostly stays within a few units of 1. Now and then it jumps far away, and is "
        "back a few steps later."
    )


@cache
def mean_squares(trials: int = 4) -> Tensor:
    """Return the mean of w_t^2 over 100,000 runs with y = 0, (trials, steps + 1), from w_0 = 1."""
    found = []
    for seed in range(trials):
        generator = torch.Generator().manual_seed(seed)
        w = torch.ones(RUNS, **F64)
        squares = [1.0]
        for _ in range(STEPS):
            w = w * (1 - STEP * (1 + torch.randn(RUNS, generator=generator, **F64)) ** 2)
            squares.append(float(w.square().mean()))
        found.append(squares)
    return torch.tensor(found, **F64)


@lesson.figure(
    "What the runs say",
    "step $t$",
    "mean of $w_t^2$",
    size=(6.0, 3.2),
    yscale="log",
    ylim=(1e-9, 1e6),
    legend=small_legend("lower left"),
)
def plot_mean_squares(axes):
    """Draw the exact mean of w_t^2 and its means over 100,000 runs, four times."""
    t = np.arange(STEPS + 1)
    factor = second_moment_factor(1.0, noise=1.0, step_size=STEP)
    axes.plot(t, factor**t, color=BLACK, linestyle="--", label="exact mean")
    for place, trial in enumerate(mean_squares()):
        axes.plot(
            t, trial, color=BLUE, linewidth=0.9, linestyle="-", label="_more" if place else "100,000 runs, four trials"
        )
    _compact(axes)
    return (
        "The exact mean of the squared weight grows, on a logarithmic axis, along a straight line. The mean over 100,000 "
        "runs follows it for the first few steps, then falls behind and shrinks, in each of four trials."
    )


# The explorer


@lesson.explorer
class RunsExplorer(Explorer):
    """Eight runs of noisy descent on one sample, their exact mean and their exact spread."""

    title = "Eight runs, their mean and their spread"
    summary = (
        "Left, the weights of eight runs from 3, with x = 1, cut off at -6 and 10. Right, on a logarithmic axis, how far "
        "each is from the weight at which the mean would settle, how far the exact mean is, and the root of the exact "
        "mean square of this distance, the spread."
    )
    step_size = Slider("step size", "η", "How far a step goes along the negative gradient", 0.45, 0.02, 1.6, 0.01)
    noise = Slider(
        "noise", "σ", "Standard deviation of the fresh noise on the input; at 0 there is none", 1.0, 0.0, 1.5, 0.05
    )
    target = Slider("target", "y", "What the weight times the input should be", 2.0, 0.0, 2.5, 0.1)
    stills = ({"step_size": 0.2}, {"step_size": 0.45}, {"step_size": 1.1})
    size = (9.0, 3.5)
    strip_scale = 0.72
    dpi = 100
    steps, paths, start = 60, 8, 3.0
    drawn = torch.randn(60, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    together = ("step_size", "target")
    layout = panels(
        ["weights of eight runs", "distance: mean dashed, spread thick"],
        ["step $t$", "step $t$"],
        ["weight $w_t$", "distance"],
        grid=(1, 2),
        legend=None,
        xlim=[(0, 60), (0, 60)],
        ylim=[(-6, 10), (1e-6, 1e6)],
        yscale=["linear", "log"],
    )

    def compute(self, *, step_size, noise, target):
        """Return the runs, their distances, and the exact mean and spread."""
        runs = noisy_sgd(1.0, target, self.start, noise * self.drawn, step_size=step_size)
        settles = target / (1 + noise**2)
        # The distance e = w - w* obeys the same update with y = 0 where y = 0; its moments follow from those of w.
        mean, square = moments(1.0, target, self.start, noise=noise, step_size=step_size, steps=self.steps)
        # By (05.3), without the rounding of a difference.
        shrinks = abs(1 - step_size * (1 + noise**2)) ** torch.arange(self.steps + 1, **F64)
        away = abs(self.start - settles) * shrinks
        spread = (square - 2 * settles * mean + settles**2).clamp(min=0).sqrt()
        spread = torch.maximum(spread, away)
        shown = lambda v: v.clamp(1e-9, 1e9).numpy()  # noqa: E731
        distances = (runs - settles).abs()
        return {
            "runs": list(runs.clamp(-1e4, 1e4).T.numpy()),
            "distances": list(shown(distances.T)),
            "mean": shown(away),
            "spread": shown(spread),
            # The smallest, the middle and the largest run, mean and spread.
            "ends": tuple(
                map(float, (*distances[-1].quantile(torch.tensor([0, 0.5, 1.0], **F64)), away[-1], spread[-1]))
            ),
            "setting": (step_size, noise, target, settles),
        }

    def draw(self, left, right_):
        """Draw empty curves."""
        _compact(left, right_)
        t = np.arange(self.steps + 1)
        zeros = np.zeros((self.steps + 1, self.paths))
        runs = left.plot(t, zeros, color="0.45", linewidth=0.8, linestyle="-")
        distances = right_.plot(t, zeros + 1, color="0.6", linewidth=0.7, linestyle="-")
        (mean,) = right_.plot(t, zeros[:, 0] + 1, color=BLUE, linewidth=1.8, linestyle="--")
        (spread,) = right_.plot(t, zeros[:, 0] + 1, color=RED, linewidth=2.6, linestyle="-")
        return {"runs": runs, "distances": distances, "mean": mean, "spread": spread}

    def words(self, state):
        """Say where the runs, their mean and their spread are after the last step."""
        step_size, noise, target, settles = state["setting"]
        least, _, most, away, spread = (f"{value:.2g}" for value in state["ends"])
        return (
            f"η = {step_size:.2f}, σ = {noise:g}, y = {target:g}. After 60 steps, distances from {settles:.2f}: the mean "
            f"{away}, the spread {spread}, the eight runs between {least} and {most}."
        )


# Three averages of a product


@lesson.figure(
    "What a step multiplies by",
    "step size $\\eta$",
    "factor of a step",
    size=(6.0, 3.1),
    xlim=(0, 1.4),
    ylim=(0, 2.2),
    legend=small_legend("upper left"),
)
def plot_factors(axes):
    """Draw the factors of the mean, of the root mean square and of a single run for x = sigma = 1."""
    eta = torch.linspace(0.005, 1.4, 280, **F64)
    curves = {
        "mean, $|E\\,a|$": [abs(mean_factor(1.0, noise=1.0, step_size=s)) for s in eta.tolist()],
        "spread, $\\sqrt{E\\,a^2}$": [
            math.sqrt(second_moment_factor(1.0, noise=1.0, step_size=s)) for s in eta.tolist()
        ],
        "one run, $e^{E\\ln|a|}$": typical_factor(1.0, noise=1.0, step_sizes=eta),
    }
    lines(axes, eta, curves)
    axes.axhline(1, color=BLACK, linewidth=0.8)
    _compact(axes)
    return (
        "x = σ = 1. Below the line at 1 a step shrinks. The spread passes it first, at 0.4, then the mean at 1; single runs "
        "shrink up to about 1.18."
    )


@cache
def logarithms(step: int) -> tuple[Tensor, Tensor]:
    """Return log10 |w_t| of 100,000 runs with y = 0, and of as many that carry E w_t^2, drawn by their share of it."""
    generator = torch.Generator().manual_seed(38)
    shape = (step, RUNS)
    normal = torch.randn(shape, generator=generator, **F64)
    carrying = carrying_noise(1.0, noise=1.0, step_size=STEP, shape=shape, generator=generator)
    return tuple(noisy_sgd(1.0, 0.0, 1.0, noise, step_size=STEP)[-1].abs().log10() for noise in (normal, carrying))


@lesson.figure(
    ["after 5 steps", "after 60 steps"],
    "$\\log_{10}|w_t|$",
    "share of the runs",
    size=(7.0, 2.8),
    grid=(1, 2),
    legend=[small_legend("upper left"), None],
    xlim=[(-6, 6), (-30, 30)],
    ylim=[(0, 0.16), (0, 0.16)],
)
def plot_carriers(early, late):
    """Draw where runs are, and where the mean of their squares comes from."""
    for axes, step, edges in ((early, 5, np.linspace(-6, 6, 61)), (late, 60, np.linspace(-30, 30, 61))):
        for values, color, look, name in zip(
            logarithms(step), (BLUE, RED), ("-", "--"), ("all runs", "drawn by their share"), strict=True
        ):
            counted, _ = np.histogram(values.numpy(), bins=edges)
            axes.stairs(counted / len(values), edges, color=color, linestyle=look, linewidth=1.5, label=name)
    _compact(early, late)
    return (
        "Solid, 100,000 runs by the logarithm of their size; dashed, as many runs, drawn by their share in the exact mean "
        "square. After 5 steps both overlap. After 60 steps they lie on both sides of 0 and nothing is in common."
    )


# Tails

TAIL_STEPS = (0.3, 0.4, 0.6)


@cache
def long_run(step_size: float, *, runs: int = 4000, warm: int = 400, kept: int = 60, apart: int = 10) -> Tensor:
    """Return sorted distances |w - 1| from the mean with x = sigma = 1, y = 2: every tenth step of runs after 400 steps."""
    generator = torch.Generator().manual_seed(1)
    w, found = torch.ones(runs, **F64), []
    for step in range(warm + kept * apart):
        seen = 1 + torch.randn(runs, generator=generator, **F64)
        w = w - step_size * (seen * w - 2) * seen
        if step >= warm and (step - warm) % apart == 0:
            found.append((w - 1).abs())
    return torch.cat(found).sort().values


def tail_slope(distances: Tensor, *, outer: float = 1e-4, inner: float = 1e-2) -> float:
    """Return minus the slope of the share beyond r against r, on logarithmic axes, between two shares."""
    near, far = (float(distances[int(len(distances) * (1 - share)) - 1]) for share in (inner, outer))
    return math.log(inner / outer) / math.log(far / near)


@lesson.figure(
    "How often a run is how far away",
    "distance $r$ from $w^*$",
    "share of steps farther away",
    size=(6.0, 3.2),
    xscale="log",
    yscale="log",
    xlim=(1, 1e4),
    ylim=(3e-5, 1),
    legend=small_legend("upper right"),
)
def plot_tails(axes):
    """Draw the tails of long runs and the slopes that the exponent says."""
    colors = (GREEN, BLUE, RED)
    for step_size, color, look in zip(TAIL_STEPS, colors, ("-", "--", "-."), strict=True):
        distances = long_run(step_size)
        shares = np.geomspace(0.6, 3e-5, 80)
        places = [float(distances[int(len(distances) * (1 - share)) - 1]) for share in shares]
        axes.plot(places, shares, color=color, linestyle=look, label=f"$\\eta$ = {step_size:g}")
        alpha = tail_exponent(1.0, noise=1.0, step_size=step_size)
        at = float(distances[int(len(distances) * 0.999) - 1])
        line = np.array([at / 4, at * 12])
        axes.plot(line, 2e-3 * (line / at) ** -alpha, color=BLACK, linewidth=0.8, linestyle=":", label="_slope")
    _compact(axes)
    return (
        "Logarithmic axes, x = σ = 1, y = 2. Far out each curve is close to a straight line, and the flatter the larger the "
        "step is. The thin dotted lines have the slopes of (05.6)."
    )


# More weights

COUNTS = (1, 2, 3, 4, 6, 8, 12, 24)


@lesson.figure(
    "Where spread and single runs stop settling",
    "number of weights $d$",
    "step size $\\eta$",
    size=(6.0, 3.1),
    xscale="log",
    yscale="log",
    ylim=(0.05, 4),
    legend=small_legend("lower left"),
)
def plot_gap(axes):
    """Draw the limits of the mean, of the spread and of a single run against the number of weights."""
    curves = {
        "mean": [2.0] * len(COUNTS),
        "spread": [gaussian_spread_limit(d) for d in COUNTS],
        "one run": [_run_limit(d) for d in COUNTS],
    }
    for (name, values), color, look in zip(curves.items(), (BLUE, RED, GREEN), ("s--", "o-", "^-."), strict=True):
        axes.plot(COUNTS, values, look, color=color, markersize=5, label=name)
    axes.set_xticks(COUNTS, [str(d) for d in COUNTS])
    axes.set_yticks(ticks := [0.1, 0.2, 0.5, 1, 2], [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    _compact(axes)
    return (
        "Inputs are d independent standard normal numbers, fresh at each step. The limit of the mean stays at 2. That of "
        "the spread falls, and that of a single run falls faster: from 4 weights to 24 it comes ever closer."
    )


@cache
def _run_limit(columns: int) -> float:
    return gaussian_run_limit(columns)


def growth(columns: int, relative_step: float, *, runs: int = 2000, steps: int = 400) -> float:
    """Return the median over runs of ln(|w_T| / |w_0|) / T, normal inputs, y = 0, the step over the limit of the spread.

    The weights are brought back to length 1 at each step, and the logarithms are added up.
    """
    generator = torch.Generator().manual_seed(38)
    eta = relative_step * gaussian_spread_limit(columns)
    w = torch.ones(runs, columns, **F64) / math.sqrt(columns)
    total = torch.zeros(runs, **F64)
    for _ in range(steps):
        seen = torch.randn(runs, columns, generator=generator, **F64)
        w = w - eta * (seen * w).sum(1, keepdim=True) * seen
        length = w.norm(dim=1)
        total += length.log()
        w = w / length[:, None]
    return float((total / steps).median())


# Twelve weights, trained

SHOWN = {
    bursts.ONE: (BLUE, "o-"),
    bursts.CLIPPED[2]: (PURPLE, "v--"),
    bursts.CLIPPED[0]: (ORANGE, "^--"),
    bursts.SIXTEEN: (GREEN, "s-."),
}


def spread_limit(rows_a_step: int) -> float:
    """Return the limit of the spread for the twelve points with noise 0.5 and as many noisy rows a step."""
    return second_moment_step_limit(bursts.problem(29).matrix, noise=bursts.NOISE, rows_a_step=rows_a_step)


def by_step(arm: str) -> dict[float, float]:
    """Return the stored excess of an arm by step size, the geometric mean over the five problems."""
    stored = measured("bursts", arm)["excess by step size"]
    return {float(s): float(np.exp(np.mean(np.log(values)))) for s, values in stored.items()}


@lesson.figure(
    "4,000 noisy rows of twelve points",
    "step size $\\eta$",
    "excess",
    size=(6.6, 3.5),
    xscale="log",
    yscale="log",
    xlim=(9e-4, 2),
    ylim=(1e-4, 3),
    legend=small_legend("lower left", ncols=2),
)
def plot_closing(axes):
    """Draw the excess of four arms against the step size, and the limits of the spread."""
    for arm, (color, look) in SHOWN.items():
        found = by_step(arm)
        axes.plot(list(found), np.minimum(list(found.values()), 1e3), look, color=color, markersize=4, label=arm)
    for rows, color in ((1, BLUE), (16, GREEN)):
        axes.axvline(spread_limit(rows), color=color, linestyle=":", linewidth=1.4)
    _compact(axes)
    return (
        "Five problems, the median of 40 runs each, and the geometric mean of the five. Dotted lines: the limits of the "
        "spread for 1 row and for 16 rows a step. Unclipped curves leave the picture at their lines or soon after; clipped "
        "ones rise slowly."
    )


def closing_table() -> Markdown:
    """Return the best step size of each arm, its excess in the five problems, and the excess at 0.145."""
    rows = []
    for arm in bursts.ARMS:
        found = measured("bursts", arm)
        low, high = min(found["excess"]), max(found["excess"])
        rows.append((arm, f"{found['best step size']:g}", f"{low:.2g} to {high:.2g}", f"{by_step(arm)[0.145]:.2g}"))
    return markdown_table(("arm", "best step size", "excess there, five problems", "excess at 0.145"), rows)


# Predictions

mean_prediction = lesson.prediction(
    "05.P1",
    "Take $y = 0$, so that the best weight is 0. With the same $x$, $\\sigma$ and $\\eta$ a step multiplies $w$ by "
    "$1 - 0.45\\,(1 + N)^2$. From $w_0 = 1$, the exact mean of $w_{60}^2$ is 194,162. You start 100,000 runs and take "
    "the mean of their $w_{60}^2$. What do you get?",
    {
        "Within 10% of 194,162": "So it would be if no single run had a large share in the mean. Here almost all of it "
        "belongs to runs that are too rare to be among 100,000.",
        "About a half of it": "The mean of a sample is not off by a factor like 2: what is missing is nearly everything.",
        "Around 1, the start": "The runs do not stand still. Nearly all of them shrink, by about 0.6 a step.",
        "Less than a thousandth": right(
            "Nearly all runs shrink, by about 0.6 a step. The exact mean is that of runs that you will never meet."
        ),
    },
    reveal=plot_mean_squares,
)

gap_prediction = lesson.prediction(
    "05.P2",
    "Now $d$ weights, and inputs of $d$ independent standard normal numbers, fresh at each step; all targets are 0. With "
    "one weight, single runs settle up to a step 3.6 times as long as the one at which the spread begins to grow. What "
    "happens to this ratio with more weights?",
    {
        "It grows": "With more weights there is more that can go wrong, but the noise of a step averages out within it: "
        "each run is closer to the average.",
        "It stays near 3.6": "That would be so if each weight lived on its own. One step moves all of them.",
        "It falls towards 1": right(
            "The squared length is multiplied by an average over many inputs, which varies less: a single run does what "
            "the average does."
        ),
    },
    reveal=plot_gap,
)

clip_prediction = lesson.prediction(
    "05.P3",
    "One noisy row a step, 4,000 rows in all, each arm at its own best step size. A run without clipping is compared with "
    "clipped runs, their threshold tuned, too. How does the excess of the clipped ones compare?",
    {
        "Less than half": "So it would be if jumps were what costs at the best step. That step is so short that they hardly "
        "occur.",
        "About the same, within a tenth": right(
            "At the best step size a loose threshold changes little, and a tight one moves the mean of the weights."
        ),
        "More than twice": "That is true of strong clipping. The threshold is tuned here, and a loose one changes little.",
    },
    reveal=plot_closing,
)

FIGURES = lesson.figures
