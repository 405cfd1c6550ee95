"""Figures, explorer and predictions of lesson 08, newton_schulz_and_muon."""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache
from statistics import mean

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from course_lib.lessons.newton_schulz_and_muon import facts
from course_lib.lessons.newton_schulz_and_muon.contents import lesson
from course_lib.measured import figures, measured
from course_lib.optimization.newton_schulz import (
    CUBIC,
    JORDAN,
    Quintic,
    minimax_composition,
    minimax_quintic,
    odd_polynomial,
    polar_express,
)
from course_lib.teaching import Explorer, Slider, lines, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, ORANGE, PURPLE, RED

CHANGING = "a new quintic each step"
PLANNED = polar_express(6)  # the six quintics of the second recipe, 18 products


def compose(values: Tensor, quintics: Sequence[Quintic]) -> Tensor:
    """Return p_T(... p_1(s)) for every singular value s."""
    for quintic in quintics:
        values = odd_polynomial(values, quintic)
    return values


def rms_error(values: Tensor) -> float:
    """Return the root mean square of s^2 - 1, which is ||X X^T - I||_F / sqrt(n)."""
    return float((values.square() - 1).square().mean().sqrt())


def memory_spectrum() -> Tensor:
    """Return the 64 singular values of the memory's first gradient over their Frobenius norm, the largest first."""
    values = facts.frequencies()
    return values / values.norm()


def memory_gradient(seed: int = 0) -> Tensor:
    """Return the memory's gradient at W = 0 over all facts, -sum_k f_k v_k x_k^T, over its Frobenius norm."""
    keys, values = facts.keys_and_values(seed)
    return -(values * memory_spectrum()) @ keys.T


def errors_after(recipe: Sequence[Quintic]) -> list[float]:
    """Return the error of the memory's gradient before the first and after each step of the recipe."""
    return [rms_error(compose(memory_spectrum(), recipe[:t])) for t in range(len(recipe) + 1)]


def with_singular_values(values: Tensor, rows: int, columns: int, *, seed: int = 0) -> Tensor:
    """Return a float64 matrix with these singular values and random singular vectors."""
    generator = torch.Generator().manual_seed(seed)
    left, right = (
        torch.linalg.qr(torch.randn(n, len(values), generator=generator, dtype=torch.float64))[0]
        for n in (rows, columns)
    )
    return left * values @ right.T


def harmonic(count: int) -> Tensor:
    """Return 1, 1/2, ..., 1/count."""
    return 1 / torch.arange(1, count + 1, dtype=torch.float64)


def count_flops(function: Callable[[Tensor], Tensor], rows: int, columns: int) -> int:
    """Return the operations of `function` on a matrix of that size, as torch counts them; nothing is computed."""
    with FlopCounterMode(display=False) as counter:
        function(torch.empty(rows, columns, device="meta"))
    return counter.get_total_flops()


RANKS = np.arange(1, facts.FACTS + 1)


@lesson.figure(
    "Three steps of two recipes",
    "fact, from the most to the least frequent",
    "singular value",
    size=(5.8, 3.0),
    yscale="log",
    ylim=(1e-3, 12),
    legend={"loc": "upper right", "fontsize": 9, "ncols": 3},
)
def plot_three_steps(axes):
    """Draw the singular values of the memory's gradient before and after three steps of two recipes."""
    start = memory_spectrum()
    axes.axhline(1, color=BLACK, linewidth=0.8, linestyle="-")
    axes.plot(RANKS, start, color="0.5", linestyle=":", linewidth=2.2, label="before")
    axes.plot(RANKS, compose(start, [CUBIC] * 3), color=ORANGE, linestyle="--", label="one cubic, 3 times")
    axes.plot(RANKS, compose(start, PLANNED[:3]), color=BLUE, linestyle="-", label="changing, 3 steps")
    return (
        "Singular values of the gradient before and after three steps of the cubic and of the changing recipe. The aim is "
        "the line at 1."
    )


@lesson.figure(
    "The same number of products",
    "matrix products",
    "error: root mean square of $s^2 - 1$",
    size=(5.4, 3.1),
    yscale="log",
    ylim=(7e-4, 3),
    xlim=(-1.2, 18.6),
    legend={"loc": "lower left", "fontsize": 10},
)
def plot_race(axes):
    """Draw the error of both recipes against the number of matrix products, up to 18."""
    runs = {CHANGING: (PLANNED, 3, BLUE, "o", "-"), "the cubic, again and again": ([CUBIC] * 9, 2, ORANGE, "s", "--")}
    for name, (recipe, products, color, mark, style) in runs.items():
        found = errors_after(recipe)
        places = products * np.arange(len(found))
        axes.plot(places, found, color=color, linestyle=style, marker=mark, markersize=5, label=name)
        if recipe is PLANNED:
            for place, error in zip(places, found, strict=True):
                above = error > 0.9
                axes.text(
                    place if above else place - 0.3,
                    error * (1.3 if above else 0.8),
                    f"{error:.2g}" if error < 0.1 else f"{error:.2f}",
                    color=color,
                    fontsize=9,
                    ha="center" if above else "right",
                    va="bottom" if above else "top",
                )
    axes.set_xticks(range(0, 19, 3))
    return (
        "The error against the number of products, on a logarithmic axis: the cubic falls slowly, the changing recipe "
        "(with numbers) rises first, and its last step divides the error by about a hundred."
    )


def _fronts(axes, recipe: Sequence[Quintic], shown: Sequence[int]) -> None:
    """Draw the 64 singular values by rank after each of the steps shown, from light to dark, with the step as a label."""
    ends, apart = [], 0.55  # natural logarithms between labels that would touch
    for place, steps in enumerate(shown):
        shade = 0.78 - 0.78 * place / (len(shown) - 1)
        values = compose(memory_spectrum(), recipe[:steps])
        axes.plot(RANKS, values, color=str(round(shade, 2)), linestyle="-", linewidth=1.8)
        ends.append([math.log(float(values[-1])), str(steps)])
    ends.sort()
    for _ in range(100):  # until each label has a place of its own
        for lower, upper in itertools.pairwise(ends):
            push = max(0, apart - (upper[0] - lower[0])) / 2
            lower[0], upper[0] = lower[0] - push, upper[0] + push
    for height, name in ends:
        axes.text(65.5, math.exp(height), name, fontsize=9, va="center")
    axes.axhline(1, color=BLACK, linewidth=0.6, linestyle=":")
    axes.set_xlim(0, 72)


@lesson.figure(
    "The cubic, after 0, 3, 6, ... 18 steps",
    "fact, from the most to the least frequent",
    "singular value",
    size=(5.6, 3.0),
    yscale="log",
    ylim=(1e-3, 2.5),
    legend=None,
)
def plot_climb(axes):
    """Draw the singular values of the memory's gradient after 0, 3, ..., 18 steps of the cubic."""
    _fronts(axes, [CUBIC] * 18, range(0, 19, 3))
    return (
        "The 64 singular values after every third step, from light to dark; the number of steps "
        "is at the right. What is far below 1 rises by the same factor, and the flat part grows from the left."
    )


def cobweb(start: float, quintic: Quintic, steps: int) -> np.ndarray:
    """Return the corners of the path (s, p(s)), (p(s), p(s)), ... from (start, 0), as two rows."""
    s, corners = start, [(start, 0.0)]
    for _ in range(steps):
        a, b, c = quintic
        after = float(np.clip(s * (a + s * s * (b + s * s * c)), -50, 50))
        corners += [(s, after), (after, after)]
        s = after
    return np.array(corners).T


@lesson.figure(
    ["Jordan's quintic near 1", "Error of the memory's gradient"],
    ["s before a step", "matrix products"],
    ["s after the step", "root mean square of $s^2 - 1$"],
    size=(7.2, 3.0),
    grid=(1, 2),
    xlim=[(0.5, 1.4), (-1, 41)],
    ylim=[(0.45, 1.35), (1e-3, 3)],
    yscale=["linear", "log"],
    aspect=["equal", None],
    legend=[{"loc": "lower right", "fontsize": 9}, {"loc": "lower left", "fontsize": 10}],
)
def plot_restless(near, error):
    """Draw the cobweb of Jordan's quintic near 1, and the error of cubic and quintic over 40 products."""
    s = torch.linspace(0.5, 1.4, 300, dtype=torch.float64)
    near.plot(s, s, color=BLACK, linewidth=0.8, linestyle="-")
    near.plot(s, odd_polynomial(s, JORDAN), color=BLUE, linestyle="-", linewidth=2, label="Jordan's $p(s)$")
    path = cobweb(0.9, JORDAN, 40)
    near.plot(*path[:, 1:], color=PURPLE, linestyle="-", linewidth=1.0, label="40 steps from 0.9")
    for name, quintic, products, color, mark, style in (
        ("cubic", CUBIC, 2, ORANGE, "s", "--"),
        ("Jordan's quintic", JORDAN, 3, BLUE, "o", "-"),
    ):
        found = errors_after([quintic] * (40 // products))
        places = products * np.arange(len(found))
        error.plot(places, found, color=color, marker=mark, markersize=4, linestyle=style, label=name)
    error.set_xticks(range(0, 41, 10))
    return (
        "Left, the path of 40 steps from 0.9: the curve crosses the diagonal too steeply, and the path ends in a cycle. "
        "Right, the error against the products: Jordan's falls sooner but stalls between 0.3 and 0.4; "
        "the cubic's falls late, to 0."
    )


@lesson.figure(
    None,
    "singular value before",
    "singular value after",
    size=(5.4, 3.2),
    ylim=(0, 2.1),
    xlim=(0, 1.1),
    legend={"loc": "upper right", "ncols": 3, "fontsize": 9},
)
def plot_quintic(axes, lower: float = 0.1):
    """Draw the minimax quintic of [lower, 1] with its band, beside Jordan's."""
    s = torch.linspace(0, 1.1, 400, dtype=torch.float64)
    best, error = minimax_quintic(lower, 1)
    lines(axes, s, {"best quintic": odd_polynomial(s, best), "Jordan's": odd_polynomial(s, JORDAN)})
    a, b, c = best
    inner = np.sqrt(np.sort(np.roots([5 * c, 3 * b, a]).real))
    points = torch.tensor([lower, *inner, 1.0], dtype=torch.float64)
    axes.plot(points, odd_polynomial(points, best), "o", color=BLUE, markersize=8, label="four points")
    for level in (1 - error, 1 + error):
        axes.axhline(level, color=BLUE, linewidth=0.9, linestyle=":")
    axes.axhline(1, color=BLACK, linewidth=0.8, linestyle="-")
    for place, name in zip(points, ("l", "q", "r", "1"), strict=True):
        axes.text(float(place), 0.06, f"${name}$", fontsize=12, ha="center")
        axes.plot([place, place], [0.18, float(odd_polynomial(place, best))], color="0.7", linestyle=":", linewidth=1)
    axes.set_title(f"The best odd quintic on [{lower:g}, 1] errs by {error:.2f} four times")
    return (
        f"The best odd quintic on [{lower:g}, 1] touches 1 - {error:.2f} and 1 + {error:.2f} in turn at four points, "
        "l, q, r and 1. Jordan's quintic is less steep at 0."
    )


@lesson.figure(
    ["The memory's gradient, step by step", "The interval that is left"],
    ["fact, from the most to the least frequent", "steps taken"],
    ["singular value", "from smallest to largest"],
    size=(7.0, 2.8),
    grid=(1, 2),
    yscale="log",
    ylim=(3.5e-4, 4),
    legend=None,
)
def plot_composition(left, right, lower: float = 1e-3, steps: int = 6):
    """Draw what each of the best quintics in turn makes of the memory's gradient, and of the whole interval."""
    quintics, _ = minimax_composition(lower, steps)
    _fronts(left, quintics, range(steps + 1))
    low, high = lower, 1.0
    ends = [(low, high)]
    for quintic in quintics:
        s = torch.logspace(math.log10(low), math.log10(high), 1200, dtype=torch.float64)
        after = odd_polynomial(s, quintic)
        low, high = float(after.min()), float(after.max())
        ends.append((low, high))
    for taken, (low, high) in enumerate(ends):
        right.plot([taken, taken], [low, high], color=BLUE, linestyle="-", linewidth=8, solid_capstyle="butt",
                   marker="_", markersize=11, markeredgewidth=2)  # fmt: skip
        right.text(taken, low * 0.82, f"{low:.3f}", fontsize=8, va="top", ha="center")
    right.axhline(1, color=BLACK, linewidth=0.8, linestyle=":")
    right.set_xlim(-0.6, steps + 0.6)
    return (
        f"Left, the 64 singular values after 0 to {steps} steps, from light to dark. Right, the interval of all singular "
        f"values after each step, from [{lower:g}, 1], with its lower end as a number. "
        "Both follow (08.6), without the precautions."
    )


# The closing experiment.

SHOWN = {"16": (RED, "o", "-"), "64": (PURPLE, "s", "--"), "256": (BLUE, "^", "-.")}  # batches in the picture
PLACES = {arm: place for place, arm in enumerate(facts.ARMS[: len(facts.CUBIC_STEPS) + 1])}
FRESH = range(10, 30)  # the seeds that are reported


def stored_losses(arm: str, batch: int | str) -> list[float]:
    """Return the stored losses of an arm at its best momentum and rate, for the 20 seeds that did not choose them."""
    return measured("flat_step", f"{arm}, batch {batch}")["losses"]


@cache
def never_drawn(batch: int) -> float:
    """Return the mean share of the loss in facts that the 50 batches never hold: nothing can learn them."""
    drawn = facts.shares(FRESH, batch).sum(1) > 0
    return float((facts.frequencies() * ~drawn).sum(1).mean())


@lesson.figure(
    ["a batch of 16 facts", "a batch of 64 facts", "a batch of 256 facts"],
    "fact $k$",
    "singular value",
    size=(6.0, 2.1),
    grid=(1, 3),
    subplots={"sharey": True},
    yscale="log",
    ylim=(5e-4, 2),
    xlim=(0, 66),
    legend=[{"loc": "upper right", "fontsize": 9}, None, None],
)
def plot_batches(*each):
    """Draw the singular values of the first gradient from a batch of each size, beside the frequencies."""
    said = []
    for axes, batch in zip(each, (16, 64, 256), strict=True):
        drawn = facts.shares([FRESH[0]], batch)[0, 0]
        there = drawn > 0
        axes.plot(RANKS, facts.frequencies(), color="0.5", linestyle=":", linewidth=2, label="all facts: $f_k$")
        axes.plot(RANKS[there.numpy()], drawn[there], "o", color=RED, markersize=4, label="this batch")
        height = 0.02 if batch == 16 else 0.1  # below the legend
        axes.text(64, height, f"{int((~there).sum())} of 64 are 0", fontsize=10, ha="right")
        said.append(int(there.sum()))
    return (
        "Singular values of the gradient at the start, from one batch (dots) and from all facts (line). "
        f"Batches of 16, 64 and 256 contain {said[0]}, {said[1]} and {said[2]} of the 64 facts."
    )


@lesson.figure(
    "How flat should the step be?",
    "cubic steps before the step is taken",
    "loss at the end (start: 1)",
    size=(6.6, 3.9),
    yscale="log",
    ylim=(7e-7, 0.12),
    xlim=(-0.5, 9.7),
    legend=None,
)
def plot_flatness(axes):
    """Draw the stored losses by number of cubic steps for three batch sizes: 20 seeds as dots and their mean as a line."""
    for batch, (color, mark, style) in SHOWN.items():
        means = []
        for arm, place in PLACES.items():
            found = stored_losses(arm, batch)
            axes.plot(place + np.linspace(-0.12, 0.12, len(found)), found, ".", color=color, markersize=3, alpha=0.5)
            means.append(mean(stored_losses(arm, batch)))
        axes.plot(range(len(means)), means, color=color, linestyle=style, marker=mark, markersize=7, linewidth=1.8)
        quintics = mean(stored_losses(facts.QUINTICS, batch))
        axes.plot(len(means), quintics, "*", color=color, markersize=11)
        axes.text(8.35, quintics, f"batch {batch}", color=color, fontsize=11, va="center")
        if (lost := never_drawn(int(batch))) > 1e-6:
            axes.axhline(lost, color=color, linestyle=":", linewidth=1.4)
            axes.text(9.65, lost * 0.86, "never drawn", color=color, fontsize=9, va="top", ha="right")
    names = [str(n) for n in facts.CUBIC_STEPS]
    ends = ("exactly\nflat", "Jordan's\nfive")
    axes.set_xticks(range(len(PLACES) + 1), [f"{names[0]}\nunflattened", *names[1:], *ends])
    return (
        "The loss after 50 steps against the number of cubic steps, for batches of 16, 64 and 256: "
        "20 seeds (dots) and their mean (line); stars, the mean with Jordan's five quintics; dotted, the mean loss in facts "
        "never drawn, 0 for 256. Each line is lowest at a partly flattened step."
    )


def stored_table() -> Markdown:
    """Return the stored mean losses, the lowest of each batch size in bold, with the chosen momentum and rate."""
    batches = ("16", "64", "256", "1024", "all")
    lowest = {batch: min(mean(stored_losses(arm, batch)) for arm in facts.ARMS) for batch in batches}

    def cell(arm: str, batch: str) -> str:
        found = measured("flat_step", f"{arm}, batch {batch}")
        loss = mean(found["losses"])
        text = f"{loss:.2g}" if loss >= 1e-8 else "< 1e-8"  # losses are stored to eight decimals
        return f"{f'**{text}**' if loss == lowest[batch] else text} ({found['momentum']:g}, {found['rate']:.2g})"

    rows = [(arm, *(cell(arm, batch) for batch in batches)) for arm in facts.ARMS]
    return markdown_table(("mean loss (momentum, rate)", *(f"batch {b}" for b in batches)), rows)


def gram_once(X: Tensor, quintics: Sequence[Quintic]) -> Tensor:
    """Return the Gram form without ever computing the Gram matrix anew: for the picture of what goes wrong."""
    gram, applied = X @ X.mT, torch.eye(len(X), dtype=X.dtype)
    eye = applied
    for a, b, c in quintics:
        factor = a * eye + b * gram + c * gram @ gram
        applied, gram = factor @ applied, gram @ factor @ factor
    return applied @ X


# What `make bench newton_schulz` stored, and how the table calls it: time by that of a singular value decomposition in
# float32 for three shapes, then ||XX^T - I||_F / sqrt(n) at 1024 x 1024 for two spectra.
METHODS = {
    "singular value decomposition, float32": None,
    "torch.optim.Muon's, bfloat16": "torch.optim.Muon's",
    "Polar Express, 5 steps, bfloat16": "Polar Express 5, bfloat16",
    "Jordan's quintic, 5 steps, float32": "Jordan 5, float32",
    "Polar Express, 5 steps, float32": "Polar Express 5, float32",
    "cubic, 5 steps, float32": "cubic 5, float32",
    "Polar Express and flat quintics to 1e-5": "polar_factor, iteration",
    "cubic to 1e-5, float32": "cubic to 1e-5, float32",
}


def stored_row(method: str | None) -> list[float | None]:
    """Return a method's three times and two errors as they are stored; what was not measured is None."""
    stored = figures("newton_schulz")
    if method is None:  # the decomposition itself, which `polar_factor` takes
        times, method = [1, 1, 1], "polar_factor"
    else:
        times = [stored.get(f"{shape}: {method} / SVD") for shape in ("256x256", "1024x1024", "4096x1024")]

    def error(spectrum: str) -> float | None:
        small = stored.get(f"1e6 x error on {spectrum} 1024x1024, {method}")
        return stored.get(f"error on {spectrum} 1024x1024, {method}") if small is None else small / 1e6

    return [*times, error("gaussian"), error("1/k")]


_COLUMNS = ("256 x 256", "1024 x 1024", "4096 x 1024", "error, Gaussian", "error, $1/k$")


def measured_table() -> Markdown:
    """Return the measured times and errors as a table; a method faster than the decomposition has its time in bold."""

    is_time = (True, True, True, False, False)

    def cell(value: float | int | None, is_time: bool) -> str:
        text = "" if value is None else f"{value:.2g}"
        return f"**{text}**" if is_time and value is not None and value < 0.95 else text

    rows = [(name, *map(cell, stored_row(method), is_time)) for name, method in METHODS.items()]
    return markdown_table(("method", *_COLUMNS), rows)


@lesson.explorer
class CobwebExplorer(Explorer):
    """One odd quintic, repeated: the path of one number, and the 64 singular values of the memory's gradient."""

    title = "One polynomial, again and again"
    summary = (
        "Left: the polynomial, the diagonal, and the path of one number: up or down to the curve, then across to the "
        "diagonal. Right: the 64 singular values of the memory's gradient after the same steps, on a logarithmic axis."
    )
    steps = Slider("steps", "n", "How many times the polynomial is applied", 5, 0, 20, 1)
    start = Slider("start", "s", "Where the path begins", 0.2, 0.01, 2.3, 0.01)
    a = Slider("coefficient of s", "a", "The slope at 0", 1.5, 1.0, 4.0, 0.05)
    b = Slider("coefficient of s³", "b", "Negative: it holds large values back", -0.5, -6.0, 0.0, 0.05)
    c = Slider("coefficient of s⁵", "c", "0 for a cubic", 0.0, 0.0, 3.0, 0.05)
    together = ("steps", "start")
    size = (8.4, 3.9)
    dpi = 100
    strip_scale = 0.62
    layout = panels(
        ["Path of one number", "The 64 singular values"],
        ["s before a step", "fact, by frequency"],
        ["s after the step", "singular value"],
        grid=(1, 2),
        xlim=[(-2.4, 2.4), (0, 65)],
        ylim=[(-2.4, 2.4), (1e-3, 60)],
        yscale=["linear", "log"],
        aspect=["equal", None],
        legend=[{"loc": "lower left", "fontsize": 7}, {"loc": "upper right", "fontsize": 9}],
    )

    def compute(self, *, steps, start, a, b, c):
        """Return curve, path, the singular values after the steps and their range."""
        quintic = (round(a, 2), round(b, 2), round(c, 2))
        s = torch.linspace(-2.4, 2.4, 400, dtype=torch.float64)
        values = memory_spectrum()
        for _ in range(steps):
            values = odd_polynomial(values, quintic).clamp(-50, 50)
        path = cobweb(start, quintic, steps)
        return {
            "curve": (s, odd_polynomial(s, quintic)),
            "path": tuple(path[:, 1:] if steps else path),
            "begin": ([start], [0]),
            "now": (RANKS, values.abs().clamp(1e-6, 50)),
            "end": float(path[0, -1]),
            "range": (float(values.min()), float(values.max())),
            "settings": (steps, start),
        }

    def draw(self, plane, spectrum):
        """Draw diagonal, aim and start, and the curves that move."""
        plane.plot([-3, 3], [-3, 3], color="0.5", linewidth=0.9, linestyle="-")
        plane.axhline(0, color="0.8", linewidth=0.8)
        spectrum.axhline(1, color=BLACK, linewidth=0.8, linestyle="-")
        spectrum.plot(RANKS, memory_spectrum(), color="0.5", linestyle=":", linewidth=2, label="before")
        (curve,) = plane.plot([], [], color=BLUE, linestyle="-", linewidth=1.5, label="polynomial")
        (path,) = plane.plot([], [], color=RED, linestyle="-", linewidth=2, label="path")
        (begin,) = plane.plot([], [], "o", color=RED, markersize=6, label="start")
        (now,) = spectrum.plot([], [], color=BLUE, linestyle="-", label="after n steps")
        return {"curve": curve, "path": path, "begin": begin, "now": now}

    def words(self, state):
        """Say where the path and the singular values end."""
        steps, start = state["settings"]
        low, high = state["range"]
        if steps == 0:
            return f"No step yet: the path starts at {start:.2f}; the singular values lie between {low:.2g} and {high:.2g}."
        end = f"ends at {state['end']:.3f}" if abs(state["end"]) < 50 else "has left the picture"
        times = "1 step" if steps == 1 else f"{steps} steps"
        if max(abs(low), abs(high)) >= 50:
            within = "have left the picture in part"
        elif max(abs(low - 1), abs(high - 1)) < 0.01:
            within = "lie within 0.01 of 1"
        else:
            within = f"lie between {low:.2g} and {high:.2g}"
        return f"After {times} the path from {start:.2f} {end}; the 64 singular values {within}."


race_prediction = lesson.prediction(
    "08.P1",
    "Both recipes go on until they have used 18 matrix products: nine steps of the cubic, six of the recipe that changes. "
    "Whose error is smaller, and by what factor?",
    {
        "The cubic's, by ten times or more": "It has lost nothing so far, but it gains slowly: what is small grows by half "
        "of itself a step.",
        "About equal": "Their plans differ: the changing recipe gives up error now for the steps that follow.",
        "The changing recipe's, by two to ten times": "It is ahead by more than that: near 1 each step cubes its error.",
        "The changing recipe's, by a hundred times or more": right(
            "Its first steps are made for what the last ones need. The cubic's last three steps still leave most singular "
            "values far below 1."
        ),
    },
    reveal=plot_race,
)

batch_prediction = lesson.prediction(
    "08.P2",
    "Batches hold 16 facts. Three steps compete, each at its best momentum and rate: unflattened, flattened by six cubic "
    "steps, and exactly flat. Which ends with the lowest and which with the highest mean loss?",
    {
        "Lowest exactly flat, highest unflattened": "Exactly flat would beat unflattened if neither had momentum. But "
        "momentum helps unflattened and harms exactly flat.",
        "Lowest six cubic steps": "That is what happens with batches of 64 and 256. With 16, their mean loss is a little "
        "above that of unflattened.",
        "Lowest unflattened, highest exactly flat": right(
            "Momentum decides: an unflattened step moves a fact by how much of it was missing, a flat one moves every fact "
            "that momentum still remembers by the same amount."
        ),
        "Within a tenth of each other": "The means differ by more than that.",
    },
    reveal=plot_flatness,
)

FIGURES = lesson.figures
