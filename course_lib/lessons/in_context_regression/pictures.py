"""Figures, explorer, tables and predictions of lesson 28, in-context regression."""

import itertools
import math
from functools import cache
from statistics import mean

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor

from course_lib.lessons.in_context_regression.contents import lesson
from course_lib.lessons.in_context_regression.measurements import (
    ETA,
    TASKS,
    Factors,
    first_below,
    followed,
    held_out,
    parted,
    products,
    seeded,
    starts,
)
from course_lib.measured import measured
from course_lib.teaching import Explorer, Slider, lines, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, ORANGE, RED
from course_lib.theory.in_context_regression import (
    Prompts,
    best_head,
    gradients,
    mean_squared_error,
    one_head_each,
    ridge_answers,
    train,
    zero_sum_heads,
)

GREY = "0.55"
EVERY, EARLY, LATE = 20, 1400, 4000


# The layer of the page: three heads, scale 0.1; beside it a twin with equal factors


@cache
def layer() -> tuple[Tensor, list[Factors]]:
    """Train the layer of the page and its twin with exactly equal factors, side by side, and follow both."""
    both = [parted(3, share, [2], scale=0.1) for share in (0.02, 0)]
    factors = tuple(map(torch.cat, zip(*both, strict=True)))
    return followed(factors, steps=LATE, seed=25, batch=32, every=EVERY, prompts=500)


def factors_at(step: int, run: int = 0) -> Factors:
    """Return q, k, o, v of the layer after so many steps, or of its twin (run 1)."""
    return tuple(t[run] for t in layer()[1][step // EVERY])


@lesson.figure(
    "An attention layer in training", "step of gradient descent", "mean squared error on new prompts",
    size=(6.0, 3.0), ylim=(0, 13.5), xlim=(0, EARLY), legend=None,
)  # fmt: skip
def plot_question(axes):
    """Draw the layer's error over the first steps."""
    errors = layer()[0][: EARLY // EVERY + 1, 0]
    axes.plot(np.arange(len(errors)) * EVERY, errors.numpy(), "-", color=BLUE, linewidth=2)
    return (
        "Mean squared error of an attention layer: near 12 for over 300 steps, then down to about 2.4 within some 200, and "
        "flat again."
    )


# The first wait


SIZES, SEEDS = (0.2, 0.1, 0.05), (0, 1, 2, 3, 4)


@cache
def waits() -> dict[str, dict[float, tuple[list[float], np.ndarray]]]:
    """Return for each scale the waits of five starts and the first one's errors: with factors, and without.

    A wait is the first recorded step with an error below 6, on prompts that no training has seen.
    """
    found = {"factors": {}, "direct": {}}
    for size in SIZES:
        q, v = starts(3, SEEDS, scale=size)
        steps = max(2000, round(22 / size**2))  # to the end of the picture, and past the wait
        for name, parameters, length, every in (
            ("factors", (q, q, v, v), steps - steps % 10, 10),
            ("direct", (q**2, v**2), 200, 5),
        ):
            errors, _ = followed(parameters, steps=length, seed=6, batch=32, every=every, prompts=300)
            found[name][size] = (first_below(errors, 6, every=every), errors[:, 0].numpy())
    return found


@lesson.figure(
    ["The error, three sizes of the start", "How long it stands still"],
    ["step", "scale of the start $s$"], ["mean squared error", "steps until the error is below 6"],
    grid=(1, 2), size=(7.8, 3.1), xscale=["linear", "log"], yscale=["linear", "log"],
    legend=["upper right", "upper right"], ylim=[(0, 17), (12, 4000)], xlim=[(0, 2000), (0.044, 0.24)],
)  # fmt: skip
def plot_waits(left, right_axes):
    """Draw errors for three scales, and the waits with factors and without."""
    lines(left, None, {f"$s$ = {size:g}": (np.arange(len(e)) * 10, e)
                       for size, (_, e) in waits()["factors"].items()})  # fmt: skip
    for name, label, style in (("factors", "factors trained", "o-"), ("direct", "$w$, $u$ trained", "s--")):
        means = [mean(waits()[name][size][0]) for size in SIZES]
        color = BLUE if name == "factors" else RED
        right_axes.plot(SIZES, means, style, color=color, label=label, markersize=6)
    right_axes.set_xticks(SIZES, [f"{size:g}" for size in SIZES])
    right_axes.set_yticks([20, 50, 100, 400, 1600], ["20", "50", "100", "400", "1,600"])
    right_axes.minorticks_off()
    return (
        "Left, starts of scale 0.2, 0.1 and 0.05 fall after about 100, 400 and 1,500 steps. Right, waits on logarithmic "
        "axes, means of five starts: steep with trained factors, far flatter where w and u are trained."
    )


# What one head computes


@lesson.figure(
    ["small weight w = 0.5", "large weight w = 2"],
    "feature 1", "feature 2", grid=(1, 2), size=(6.4, 3.5), xlim=(-3, 4), ylim=(-3, 4), aspect="equal",
    legend="lower right",
)  # fmt: skip
def plot_tilt(*both):
    """Draw examples by their softmax weight, and where their average lies."""
    x, query = torch.randn(60, 2, generator=seeded(4)), torch.tensor([1.8, 1.2])
    for axes, w in zip(both, (0.5, 2.0), strict=True):
        weights = (w * x @ query).softmax(dim=0)
        axes.scatter(*x.T.numpy(), s=900 * weights.numpy() + 2, color=BLUE, alpha=0.45)
        points = {
            "query": (query, "X", RED),
            "average": (weights @ x, "s", ORANGE),
            "w × query": (w * query, "+", BLACK),
        }
        for name, (at, marker, color) in points.items():
            axes.plot(*at.tolist(), marker, color=color, markersize=11, markeredgewidth=2, linestyle="none", label=name)
    return (
        "Sixty examples, each as large as its vote, the query, the weighted average and w times the query. Left, many "
        "vote, and the average lies near w times the query. Right, four decide, and it falls far short."
    )


def error_at(w: float, served: int, prompts: Prompts) -> float:
    """Return the error of heads with weight w on each served feature, with the best u for it."""
    n = TASKS.n_tasks
    table = torch.eye(n) if served == 1 else torch.ones(1, n)
    weights = w * table.repeat_interleave(TASKS.block, dim=1)
    _, _, slope = gradients(prompts, weights, 0 * table)
    unit = mean_squared_error(prompts, weights, table)
    signal, zero = -(slope * table).sum(), prompts.target.square().sum(dim=-1).mean()
    return float(zero - signal**2 / (unit - zero + 2 * signal))


@lesson.figure("The error of a head against its weight", "weight $w$ on each served feature", "mean squared error",
               size=(5.8, 3.1), xlim=(0, 1), ylim=(0, 12.5), legend="upper right")  # fmt: skip
def plot_best_weight(axes):
    """Draw simulated errors for heads of one task and of all, and where (28.6) puts the minima."""
    grid, prompts = np.linspace(0.06, 0.98, 24), held_out(2000)
    curves = {"one head for all three tasks": 3, "a head for each task": 1}
    for place, (name, served) in enumerate(curves.items()):
        (line,) = lines(axes, grid, {name: [error_at(w, served, prompts) for w in grid.tolist()]}, first=place)
        axes.axvline(best_head(TASKS, served)[0], color=line.get_color(), linestyle=":", linewidth=1.2)
    return (
        "Error against the weight, at the best gain. One head for all tasks: about 4.5 near w = 0.3. A head each: about "
        "2.3 near 0.5. Dotted: the theory's 0.29 and 0.5."
    )


# Who gets what


def _heat(axes, values: Tensor, top: float, digits: int = 1) -> None:
    table = values.numpy()
    axes.imshow(table, vmin=-top, vmax=top, cmap="RdBu_r", aspect="auto")
    for (row, column), value in np.ndenumerate(table):
        text = f"{round(float(value), digits) + 0.0:.{digits}f}"
        axes.text(column, row, text, ha="center", va="center", fontsize=10,
                  color="white" if abs(value) > 0.7 * top else BLACK)  # fmt: skip
    tasks = TASKS.n_tasks
    axes.set(xticks=range(tasks), xticklabels=range(1, tasks + 1))
    axes.set(yticks=range(len(table)), yticklabels=range(1, len(table) + 1))
    axes.grid(False)


SCALES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)


def allocated(scale: float, kind: str, rate: float = ETA):
    """Return what the 24 stored starts of a scale ended with."""
    return measured("flat_stretches", f"allocation, scale {scale}, rate {rate}, {kind}")


@cache
def small_start() -> Tensor:
    """Return u of three heads after 2,600 steps from one start of scale 0.05."""
    q, v = starts(3, [IDLE], scale=0.05)
    return train(TASKS, q, v, steps=2600, batch=32, every=2600, generator=seeded(10)).u[-1, 0]


IDLE = 3


def leaders_differ() -> int:
    """Return in how many of the 24 starts, at any scale, three different heads lead in u."""
    return int(one_head_each(starts(3, range(24))[1]).sum())


@lesson.figure(
    ["24 starts for each scale", "$u$ from one start, $s$ = 0.05"],
    ["scale of the start $s$", "task"], ["starts with three busy heads", "head"],
    grid=(1, 2), size=(8.2, 3.1), legend=["lower right", None], ylim=[(0, 25.5), None],
    subplots={"width_ratios": [1.6, 1]},
)  # fmt: skip
def plot_allocation(left, table):
    """Draw in how many starts the tasks end with three different heads, and one start where they do not."""
    for rate, marker, place in ((0.05, "o", 0), (0.1, "s", 1)):
        counts = [allocated(scale, "permutations", rate) for scale in SCALES]
        lines(left, SCALES, {f"step size {rate:g}": counts}, first=place, marker=marker)
    left.axhline(leaders_differ(), color=GREY, linestyle=":", linewidth=1.4, label="leaders differ at the start")
    _heat(table, small_start(), 2.6)
    few, all_ = allocated(0.05, "permutations"), allocated(0.25, "permutations")
    return (
        f"Left, of 24 starts for each scale, how many end with three busy heads: {few} at 0.05, {all_} at 0.25, with step "
        "size 0.05. Right, one start at 0.05: one head holds all tasks."
    )


# Left again


WOKEN, WOKEN_STEPS = 1, 4400


@cache
def woken() -> Tensor:
    """Train a start of scale 0.05 that leaves heads idle: factors off by 2%, and equal ones; return both errors."""
    both = [parted(3, share, [WOKEN], scale=0.05) for share in (0.02, 0)]
    factors = tuple(map(torch.cat, zip(*both, strict=True)))
    return followed(factors, steps=WOKEN_STEPS, seed=5050, batch=32, every=EVERY, prompts=300)[0]


@lesson.figure(
    ["Your run", "A start of $s$ = 0.05"], "step", "mean squared error", grid=(1, 2), size=(7.6, 2.7),
    legend=["upper right", "upper right"], ylim=(0, 13.5), xlim=[(0, LATE), (0, WOKEN_STEPS)],
)  # fmt: skip
def plot_left(*both):
    """Draw the layer's error to the end, and that of a small start, each beside a twin with equal factors."""
    for axes, errors, name in zip(both, (layer()[0], woken()), ("the layer", "factors off by 2%"), strict=True):
        at, shown = 2 * EVERY * np.arange(len(errors[::2])), errors[::2].numpy()
        lines(axes, at, {name: shown[:, 0], "equal factors": shown[:, 1]})
    return (
        "Left, the layer's error leaves 2.4 after about 1,700 steps; that of its twin with equal factors stays. Right, a "
        "start with idle heads stands still above 4 before it leaves."
    )


@lesson.figure(
    [f"{name}, step {step:,}" for name in ("gains $u$", "weights $w$") for step in (EARLY, LATE)],
    "task", "head", grid=(2, 2), size=(4.9, 3.6), legend=None,
)  # fmt: skip
def plot_inside(*all_axes):
    """Draw u, and the mean w of each block, at two times, with the sums of the columns."""
    for axes, step in zip(all_axes, (EARLY, LATE, EARLY, LATE), strict=True):
        w, u = products(factors_at(step))
        gains = axes in all_axes[:2]
        values = u if gains else w.unflatten(-1, (TASKS.n_tasks, TASKS.block)).mean(-1)
        _heat(axes, torch.cat([values, values.sum(0, keepdim=True)]), 5 if gains else 0.6, 1 if gains else 2)
        axes.set_yticklabels([*map(str, range(1, TASKS.n_tasks + 1)), "sum"])
    return (
        "u and the mean w on the features of each task. Before: one large entry in each row and column. After: negative "
        "entries, and columns of u that sum to about 0."
    )


def losing_pair() -> tuple[int, int]:
    """Return the head and the task whose u is lowest at the end."""
    u = products(factors_at(LATE))[1]
    return divmod(int(u.argmin()), TASKS.n_tasks)


def crossing() -> int:
    """Return the first recorded step at which the lowest u of the end is below 0."""
    head, task = losing_pair()
    return EVERY * next(at for at, (_, _, o, v) in enumerate(layer()[1]) if o[0, head, task] * v[0, head, task] < 0)


@lesson.figure(
    ["Two factors of an idle gain", "The layer's error"], "step", ["size, logarithmic", "mean squared error"],
    grid=(1, 2), size=(7.6, 2.9), yscale=["log", "linear"], legend=["upper left", None], xlim=(0, 3000),
    ylim=[(1e-4, 300), (0, 13.5)],
)  # fmt: skip
def plot_crossing(left, right_axes):
    """Draw how the sum of two factors shrinks and their difference grows, under the error of the layer."""
    head, task = losing_pair()
    pairs = np.array([(float(o[0, head, task]), float(v[0, head, task])) for _, _, o, v in layer()[1]])
    at = np.arange(len(pairs)) * EVERY
    lines(left, at, {"$|o + v|$": abs(pairs.sum(1)), "$|o - v|$": abs(pairs[:, 0] - pairs[:, 1])})
    right_axes.plot(at, layer()[0][:, 0].numpy(), "-", color=BLUE, linewidth=2)
    for axes in (left, right_axes):
        axes.axvline(crossing(), color=GREY, linestyle=":", linewidth=1.6)
    return (
        "Left: after the first wait |o + v| falls and |o - v| rises as steeply. Dotted: they cross. Right: the error falls "
        "only some 500 steps later."
    )


SHARES = (0.2, 0.02, 0.002, 0.0002)


def stays(share: float, rate: float = ETA) -> list[float]:
    """Return the steps of the five stored starts until the error is below 1.9."""
    return measured("flat_stretches", f"share {share}, rate {rate}, steps")


def tenfold(rate: float = ETA) -> float:
    """Return how many more steps a ten times smaller share takes, on average from 0.2 to 0.0002."""
    return (mean(stays(SHARES[-1], rate)) - mean(stays(SHARES[0], rate))) / 3


def gaps(rate: float = ETA) -> list[int]:
    """Return how many more steps each ten times smaller share takes, means of five starts."""
    found = [mean(stays(share, rate)) for share in SHARES]
    return [round(after - before) for before, after in itertools.pairwise(found)]


@lesson.figure(
    "How long one head for each task lasts",
    "share $\\delta$ by which factors are off, falling", "steps until the error is below 1.9",
    size=(5.9, 3.2), xscale="log", ylim=(0, 3300), legend="upper left",
)  # fmt: skip
def plot_stays(axes):
    """Draw the steps until the error falls below 1.9 against the share, and the slope of (28.8)."""
    for rate, marker, color in ((0.05, "o", BLUE), (0.1, "s", RED)):
        found = np.array([stays(share, rate) for share in SHARES])
        axes.plot(SHARES, found.mean(1), marker, linestyle="none", color=color, markersize=7,
                  label=f"step size {rate:g}")  # fmt: skip
        axes.vlines(SHARES, found.min(1), found.max(1), color=color, linewidth=2)
        slope = math.log(10) / (rate * growth())
        centre, middle = found.mean(), np.log10(SHARES).mean()
        law = [centre + slope * (middle - math.log10(share)) for share in SHARES]
        style = "-" if rate == ETA else "--"
        axes.plot(SHARES, law, style, color=color, linewidth=1.2, label=f"slope of (28.8), {rate:g}")
    axes.invert_xaxis()
    return (
        "Steps until the error is below 1.9, by the share of the difference; mean and range of five starts. About 400 "
        "steps more for each factor of ten at step size 0.05. Lines: the slope of (28.8), "
        "heights fitted."
    )


def growth(u: float | None = None) -> float:
    """Return the rate of (28.8), with the u of the best head unless another is given."""
    variance = TASKS.block + TASKS.noise**2
    return (best_head(TASKS)[1] if u is None else u) * variance / TASKS.n_examples


# The closing table


def _range(values, digits: int = 2) -> str:
    return f"{mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def _steps(values) -> str:
    return "not in 6,000" if None in values else f"{round(mean(values)):,} ({min(values):,} to {max(values):,})"


def _time(values, rate: float | None) -> str:
    return "-" if None in values or rate is None else f"{rate * mean(values):.0f}"


ADAM = (0.001, 0.003, 0.01, 0.03, 0.1)


def _adam(kind: str) -> float:
    return min(
        ADAM, key=lambda rate: mean(x or math.inf for x in measured("flat_stretches", f"Adam, rate {rate}, {kind}"))
    )


def best_adam() -> float:
    """Return the rate of Adam whose mean error at the end is least."""
    return _adam("error")


def fastest_adam() -> float:
    """Return the rate of Adam with which the error is below 1.9 first."""
    return _adam("steps")


def closing_table() -> Markdown:
    """Return all arms: steps until the error is below 1.9, the same times the step size, and the error at the end."""
    flat, idle = "flat_stretches", "idle_heads"
    arms = [(f"$\\delta$ = {share:g}", flat, f"share {share}, rate {ETA}", ETA) for share in SHARES]
    arms += [
        ("only $q$, $k$ differ", idle, "only q and k differ", ETA),
        ("only $o$, $v$ differ", idle, "only o and v differ", ETA),
        ("equal factors", flat, f"share 0, rate {ETA}", ETA),
        ("normal factors, scale 0.25", idle, "normal factors", ETA),
        ("$w$ and $u$ trained", flat, f"direct, rate {ETA}", ETA),
        ("the same, $\\eta$ = 0.0125", flat, "direct, rate 0.0125", 0.0125),
    ]
    arms += [
        (f"$\\delta$ = 0.02, Adam, rate {rate:g}: {name}", flat, f"Adam, rate {rate}", None)
        for name, rate in (("least error", best_adam()), ("fastest", fastest_adam()))
    ]
    arms += [
        ("four heads, $\\delta$ = 0.02", flat, f"4 heads, share 0.02, rate {ETA}", ETA),
    ]
    rows = []
    for name, part_name, arm, rate in arms:
        steps, errors = (measured(part_name, f"{arm}, {kind}") for kind in ("steps", "error"))
        rows.append((name, _steps(steps), _time(steps, rate), _range(errors)))
    prompts = held_out(dtype=torch.float64)
    by_hand = float(mean_squared_error(prompts, *zero_sum_heads(TASKS, 0.1)))
    told, all_features = (
        float((ridge_answers(prompts, TASKS, blocks_known=known) - prompts.target).square().sum(1).mean())
        for known in (True, False)
    )
    rows += [
        ("four heads by hand (appendix)", "no training", "-", f"≈{by_hand:.2f}"),
        ("ridge, all twelve features", "no training", "-", f"≈{all_features:.3f}"),
        ("ridge, told each task's four", "no training", "-", f"≈{told:.4f}"),
    ]
    return markdown_table(("", "steps until below 1.9", "steps × $\\eta$", "error at the end"), rows)


# The explorer: the race (28.4)


@lesson.explorer
class RaceExplorer(Explorer):
    """Two heads race for one task, by (28.4)."""

    title = "Two heads, one task"
    summary = (
        "Left: the gains u of the two heads over 800 steps, and an exponential that starts like head 1. Right: the error "
        "that is left, in units of the error of the answer 0."
    )
    u_1 = Slider("start of head 1", "u₁", "Gain of head 1 at the start", 0.06, 0.02, 0.12, 0.01)
    u_2 = Slider("start of head 2", "u₂", "Gain of head 2 at the start", 0.05, 0.02, 0.12, 0.01)
    w_2 = Slider(
        "start of head 2", "w₂", "Weight of head 2 at the start; that of head 1 is 0.04", 0.04, 0.02, 0.12, 0.01
    )
    factor = Slider("size of all factors", "f", "q, k, o and v at the start are multiplied by this", 1.0, 0.5, 1.0, 0.1)
    together = ("u_2", "w_2")
    stills = ({}, {"u_2": 0.06}, {"u_2": 0.04, "w_2": 0.12})
    dpi, strip_dpi = 100, 84
    steps = np.arange(801)
    layout = panels(
        ["gains $u$", "error that is left"], "step", ["$u$", "share of the error of 0"], grid=(1, 2),
        legend=[{"loc": "upper right", "fontsize": 8}, None], xlim=(0, 800), ylim=[(0, 3.3), (0, 1.05)],
    )  # fmt: skip

    def compute(self, *, u_1, u_2, w_2, factor):
        """Follow the race for 800 steps of size 0.05."""
        square = factor**2
        u, w, path, left = [square * u_1, square * u_2], [square * 0.04, square * w_2], [], []
        with np.errstate(over="ignore"):
            grown = u[0] * np.exp(2 * TASKS.block * w[0] * ETA * self.steps)
        for _ in self.steps:
            rest = 1 - u[0] * w[0] - u[1] * w[1]
            path.append(tuple(u))
            left.append(rest**2)
            for h in (0, 1):
                both = 2 * ETA * u[h] * w[h] * rest
                u[h], w[h] = u[h] + TASKS.block * both, w[h] + both
        parts = [a * b for a, b in zip(u, w, strict=True)]
        one, two = np.array(path).T
        return {
            "one": one, "two": two, "exponential": np.minimum(grown, 4), "left": np.array(left),
            "half": next((step for step, value in enumerate(left) if value < 0.5), None),
            "parts": [part / sum(parts) for part in parts], "starts": (square * u_1, square * u_2),
        }  # fmt: skip

    def draw(self, left, right_axes):
        """Draw the curves to be moved."""
        one, two, grown = lines(left, self.steps, ["head 1", "head 2", "exponential"])
        (rest,) = right_axes.plot(self.steps, 0 * self.steps, "-", color=BLACK, linewidth=2)
        return {"one": one, "two": two, "exponential": grown, "left": rest}

    def words(self, state):
        """Say when half of the error is gone, and who carries the answer."""
        first, second = state["starts"]
        begin = f"Starts: u₁ = {first:.3g}, u₂ = {second:.3g}."
        if state["half"] is None:
            return f"{begin} After 800 steps more than half of the error is left."
        one, two = (100 * part for part in state["parts"])
        return (
            f"{begin} Half of the error is gone after {state['half']} steps. After 800 steps head 1 carries {one:.0f}% of "
            f"the answer, head 2 {two:.0f}%."
        )


# Predictions


ask_wait = lesson.prediction(
    "28.P1",
    "All factors are half as large at the start. How much longer does the error stand still near 12?",
    {
        "By a fixed number of steps": "That happens where something grows at a fixed rate. Here rates grow, too.",
        "Twice as long": "Each weight is a product of two factors, and half of each is a quarter.",
        "Four times as long": right("A quarter of each weight, a quarter of each rate: the same race in slow motion."),
        "Eight times as long": "Rates are a quarter, and it is they alone that set the time.",
    },
    reveal=plot_waits,
)

ask_allocation = lesson.prediction(
    "28.P2",
    "Three heads learn the three tasks from 24 starts of scale $s = 0.25$, with equal factors. After 2,600 steps all heads "
    "are busy on 23 of them, each with one task. Repeat with $s = 0.05$; a thousand steps remain after the wait. "
    "On how many of 24 is each head busy then? A hint: at either scale, three different heads lead in $u$ for the "
    "three tasks at the start in 8 of the 24.",
    {
        "On nearly all": "The race takes longer, and it often ends in another way.",
        "On about 18": "Fewer still: most tasks stay with the head that led.",
        "On about 10": right(
            "Most tasks stay with the head that led, and one head often leads in two tasks, or all three."
        ),
        "On none": "Where different heads lead in the three tasks at the start, each of them gets one.",
    },
    reveal=plot_allocation,
)

ask_over = lesson.prediction(
    "28.P3",
    "Training goes on, and after 1,700 steps the error falls once more: to 1.4 at step 4,000. What have the heads changed?",
    {
        "Each has a better $w$ and $u$ for its task": "They were nearly best at step 1,400 already; (28.6) allows no less.",
        "Two heads share a task, both with $u > 0$": "Equal averages of the same answers have the same noise.",
        "A head has $u < 0$ on another head's task": right("It takes noise away that both averages hold."),
        "One head serves all three tasks": "That has more noise in each, and an error of about 4.5.",
    },
    reveal=plot_inside,
)

ask_share = lesson.prediction(
    "28.P4",
    "With $s = 0.25$ and factors off by up to 2% at the start, the error needs some 1,470 steps to fall below 1.9, on "
    "average. How many with 0.2%?",
    {
        "About as many": "The difference is what grows, so its first size counts, though little.",
        "About 1,900": right("Some 400 more. What grows here grows at a fixed rate, unlike at the start."),
        "About 4,500": "That would be a factor of three. The wait grows by a sum.",
        "About 15,000": "So it would be where rates are proportional to what grows.",
    },
    reveal=plot_stays,
)

FIGURES = lesson.figures
