"""Figures, explorers and predictions of lesson 11, batch norm."""

import math
from functools import cache, partial

import numpy as np
from IPython.display import Markdown

from course_lib.lessons.batch_norm.contents import lesson
from course_lib.lessons.batch_norm.experiment import (
    FROZEN,
    LOOK,
    NORMED,
    PLAIN,
    cost_of_a_constant,
    train_deep,
    train_small,
)
from course_lib.measured import measured
from course_lib.teaching import Choice, Explorer, Slider, Switch, lines, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, ORANGE, PURPLE, RED, compact

_compact = partial(compact, title=10, ticks=8.5, grid=True)

STEPS, LONG = 300, 4000  # of the small network: in the first figures, and until the angle has settled


# The question: sixteen layers

HOOK_RATES = tuple(4.0**k for k in range(-6, 2))
LEARNED = 1.0  # a test loss below it; the best constant guess costs 1.52
CEILING = 3.0  # where runs that blew up are drawn


@cache
def hook_losses(kind: str, *starts: float) -> np.ndarray:
    """Return the test loss after 300 steps, a row a start, at eight step sizes, one seed; infinite where a run blew up."""
    each = [start for start in starts for _ in HOOK_RATES]
    _, tested = train_deep(kind, seeds=[0] * len(each), starts=each, rates=HOOK_RATES * len(starts))
    return tested.nan_to_num(nan=math.inf, posinf=math.inf).view(len(starts), -1).numpy()


def _draw_hook(axes, curves) -> None:
    """Draw losses at the eight step sizes; a curve is its label, losses, colour, style and marker."""
    axes.axhline(cost_of_a_constant(), color=BLACK, linewidth=1)
    axes.annotate(
        "best constant guess",
        (4.0, cost_of_a_constant()),
        (0, 4),
        textcoords="offset points",
        ha="right",
        fontsize=8.5,
    )
    for label, losses, color, style, marker in curves:
        shown = np.minimum(losses, CEILING)
        axes.plot(HOOK_RATES, shown, linestyle=style, marker=marker, color=color, label=label, markersize=6)
    axes.set_yticks([0, 0.5, 1, 1.5, 2, 2.5, CEILING], ["0", "0.5", "1", "1.5", "2", "2.5", "blew up"])


@lesson.figure(
    None,
    "step size",
    "test loss after 300 steps",
    size=(6.4, 2.9),
    xscale="log",
    ylim=(0, 3.15),
    legend={"loc": "upper left", "fontsize": 9},
)
def plot_question(axes):
    """Draw the test loss of the deep network with batch norm at eight step sizes."""
    _draw_hook(axes, [("with batch norm", hook_losses(NORMED, 0.5)[0], BLUE, "-", "o")])
    _compact(axes)
    return (
        "Test loss of sixteen layers with batch norm after 300 steps, at eight step sizes in factors of 4. At three of them "
        "it lies below 1; the best constant guess costs 1.52. The two largest step sizes blow up."
    )


@lesson.figure(
    None,
    "step size",
    "test loss after 300 steps",
    size=(6.4, 2.9),
    xscale="log",
    ylim=(0, 3.15),
    legend={"loc": "upper left", "fontsize": 9, "bbox_to_anchor": (0, 0.94)},
)
def plot_plain(axes):
    """Draw the same of the plain network, from half of He's weights and from He's."""
    half, whole = hook_losses(PLAIN, 0.5, 1.0)
    _draw_hook(
        axes,
        [
            ("with batch norm, half of He's weights", hook_losses(NORMED, 0.5)[0], BLUE, "-", "o"),
            ("plain, half of He's weights", half, RED, "--", "s"),
            ("plain, He's weights", whole, ORANGE, ":", "^"),
        ],
    )
    _compact(axes)
    return (
        "The same with the plain network. From half of He's weights it costs what a constant guess costs, or it blows up, "
        "at each of the eight step sizes. From He's own weights it learns at one of the eight."
    )


# The scale of weights: the small network


@lesson.figure(
    "One network, one step size, one start up to scale",
    "step",
    "loss",
    ylim=(0, 2.2),
    size=(6.4, 2.8),
    legend="lower left",
)
def plot_two_starts(axes):
    """Draw the losses of two starts that differ by a factor of 10."""
    runs = {
        "weights as drawn": train_small(0.3, steps=STEPS),
        "the same weights times 10": train_small(0.3, times=10, steps=STEPS),
    }
    lines(axes, np.arange(0, STEPS + 1, LOOK), {name: run.losses for name, run in runs.items()})
    _compact(axes)
    first, drawn, larger = (
        float(v) for v in (runs["weights as drawn"].losses[0], *(r.losses[-1] for r in runs.values()))
    )
    return (
        f"Loss of the small network against the step, with batch norm. Both curves start at {first:.2f}. From the weights "
        f"as drawn the loss falls to {drawn:.2f} in 300 steps; from the same weights times 10, with the same step size, to "
        f"{larger:.2f}."
    )


@lesson.figure(
    "Weights times 10, with three step sizes",
    "step",
    "loss",
    ylim=(0, 2.8),
    size=(6.4, 2.9),
    legend={"loc": "upper right", "ncols": 2, "fontsize": 9},
)
def plot_rescaled(axes):
    """Draw the loss from weights times 10 with three step sizes, over that from the weights as drawn."""
    place = np.arange(0, STEPS + 1, LOOK)
    curves = {
        "as drawn, $\\eta$ = 0.3": train_small(0.3, steps=STEPS).losses,
        "times 10, $\\eta$ = 0.3": train_small(0.3, times=10, steps=STEPS).losses,
        "times 10, $\\eta$ = 3": train_small(3, times=10, steps=STEPS).losses,
    }
    lines(axes, place, curves)
    many = train_small(30, times=10, steps=STEPS).losses
    axes.plot(place, many, "o", color=BLACK, markersize=4, label="times 10, $\\eta$ = 30")
    _compact(axes)
    return (
        "Loss against the step. The curve of the weights as drawn with step size 0.3 and that of weights times 10 with step "
        "size 30 lie on each other; weights times 10 with 0.3 fall slowly and with 3 faster, but neither follows."
    )


STEP_SIZES, DECAYS = (
    ("0.03", "0.1", "0.3", "1", "3", "10", "30"),
    ("0", "0.0025", "0.01", "0.04"),
)
WINDOW, EXPLORED = 20, 1500


def smoothed(angles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the middles of windows of 20 steps, counted from 1, and the root mean square of the angles in each."""
    count = len(angles) // WINDOW
    squares = (angles[: count * WINDOW] ** 2).reshape(count, WINDOW).mean(1)
    return np.arange(count) * WINDOW + (WINDOW + 1) / 2, np.sqrt(squares)


@lesson.explorer
class ScaleExplorer(Explorer):
    """What start, step size and decay do to the small network, with batch norm and without."""

    title = "Who sees the size of the weights"
    summary = (
        "Three panels against the step: the loss of the small network, the length of its trained weights, and the angle by "
        "which a step turns the weights of a unit. Grey: batch norm, weights as drawn, step size 0.3, no decay."
    )
    start = Slider("start", "times", "What the weights as drawn are multiplied by before training", 10, 1, 10, 1)
    step = Choice("step size η", "What the gradient is multiplied by in each step", "0.3", STEP_SIZES)
    decay = Choice("weight decay λ", "Each step also shrinks the weights by the share ηλ", "0", DECAYS)
    normalise = Switch("batch norm", "Whether each unit is normalised by the batch", True)
    law = Switch(
        "show the derived angle", "Draw the angle that two formulas further down foretell, with batch norm", False
    )
    stills = ({"start": 10}, {"start": 1, "step": "30"}, {"start": 10, "decay": "0.0025"})
    size = (10.2, 3.3)
    continuous = False
    together = ("step", "decay")
    layout = panels(
        ["Loss", "Length of the weights", "Angle of a step (radians)"],
        "step",
        ["loss", "length", "angle"],
        grid=(1, 3),
        legend=[
            {"loc": "upper right", "fontsize": 8},
            {"loc": "upper right", "fontsize": 8},
            {"loc": "upper right", "fontsize": 8},
        ],
        xscale=["linear", "linear", "log"],
        yscale=["linear", "log", "log"],
        xlim=[(-30, EXPLORED + 30), (-30, EXPLORED + 30), (8, 2000)],
        ylim=[(0, 2.2), (0.3, 1000), (5e-5, 4)],
    )

    def compute(self, *, start, step, decay, normalise, law):
        """Return the three curves, those of comparison, and the foretold angle."""
        times, eta, shrink = float(start), float(step), float(decay)
        run = train_small(eta, times=times, decay=shrink, steps=EXPLORED, normalise=normalise)
        k = np.array([1.0, EXPLORED])
        foretold = np.sqrt(2 * eta * shrink) + 0 * k if shrink else 1 / np.sqrt(2 * k)
        shown = law and normalise
        return {
            "loss": (np.arange(len(run.losses)) * LOOK, run.losses),
            "length": (np.arange(len(run.lengths)), run.lengths),
            "angle": smoothed(run.angles),
            "law": (k, foretold) if shown else ([], []),
            "said": (times, eta, shrink, normalise, foretold[-1] if shown else None),
        }

    def draw(self, loss, length, angle):
        """Draw the curves of comparison in grey, and empty ones."""
        run = train_small(0.3, steps=EXPLORED)
        grey = {"color": "0.6", "linestyle": "-", "linewidth": 1.2, "label": "times 1, η = 0.3"}
        loss.plot(np.arange(len(run.losses)) * LOOK, run.losses, **grey)
        length.plot(np.arange(len(run.lengths)), run.lengths, **grey)
        angle.plot(*smoothed(run.angles), **grey)
        looks = {"color": BLUE, "linestyle": "--", "label": "this setting"}
        moving = {
            name: axes.plot([], [], **looks)[0] for name, axes in (("loss", loss), ("length", length), ("angle", angle))
        }
        (law,) = angle.plot([], [], color=RED, linestyle=":", label="foretold")
        return moving | {"law": law}

    def words(self, state):
        """Say where loss, length and angle begin and end."""
        times, eta, shrink, normalise, foretold = state["said"]
        (_, losses), (_, lengths), (_, angles) = state["loss"], state["length"], state["angle"]
        setting = (
            f"{'Batch norm' if normalise else 'No batch norm'}, weights times {times:g}, η = {eta:g}, λ = {shrink:g}: "
        )
        if len(lengths) <= EXPLORED:
            return f"{setting}the loss passes a million within {len(lengths)} steps."
        law = "" if foretold is None else f" Foretold: {foretold:.3g}."
        return (
            f"{setting}the loss goes from {losses[0]:.2f} to {losses[-1]:.2f}, the length from {lengths[0]:.3g} to "
            f"{lengths[-1]:.3g} (after one step {lengths[1]:.3g}). The angle of a step is {angles[0]:.2g} in the first "
            f"{WINDOW} steps and {angles[-1]:.2g} in the last.{law}"
        )


# The gradient that passes


@lesson.figure(
    None,
    "across the sketch",
    "up the sketch",
    size=(5.8, 3.9),
    bare=True,
    aspect="equal",
    xlim=(-3.1, 4.2),
    ylim=(-1.9, 3.9),
)
def plot_geometry(axes):
    """Sketch, for three examples, the parts of a gradient and the line that is left."""
    corner = np.array([[-0.85, -0.55], [1.0, 0.0], [0.0, 1.0]])  # where three orthogonal directions point on the page
    amount = np.array([1.5, 2.2, 2.3])
    plane = np.array([corner[0] * a + corner[1] * b for a, b in ((-0.7, -0.7), (2.6, -0.7), (2.6, 3.2), (-0.7, 3.2))])
    axes.fill(*plane.T, color="0.9", zorder=0)
    axes.text(1.1, 0.2, "removed: the plane of 1 and x̂", fontsize=8, color="0.3")
    for name, direction, length in (
        ("1 = (1, ..., 1)", corner[0], 2.6),
        ("x̂", corner[1], 3.4),
        ("what is left", corner[2], 3.2),
    ):
        axes.annotate("", direction * length, (0, 0), arrowprops={"arrowstyle": "-", "color": "0.55"})
        side = {"ha": "right", "va": "top"} if length == 2.6 else {"ha": "left", "va": "center"}
        axes.annotate(name, direction * length, (4, 0), textcoords="offset points", fontsize=10, **side)
    foot = amount[0] * corner[0] + amount[1] * corner[1]
    tip = foot + amount[2] * corner[2]
    for end, start, color, width in ((tip, 0 * tip, BLACK, 2.2), (amount[2] * corner[2], 0 * tip, BLUE, 3.0)):
        axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": color, "linewidth": width})
    axes.plot(*np.array([0 * tip, foot]).T, color=RED, linestyle="--")
    axes.plot(*np.array([foot, tip]).T, color="0.5", linestyle=":")
    axes.plot(*np.array([amount[2] * corner[2], tip]).T, color="0.5", linestyle=":")
    axes.annotate("g", tip, (6, 2), textcoords="offset points", fontsize=13)
    axes.annotate(
        "mean of g, and the\npart of g along x̂", foot, (6, -20), textcoords="offset points", fontsize=9, color=RED
    )
    axes.annotate(
        "passes, times γ/s",
        amount[2] * corner[2],
        (-6, 0),
        textcoords="offset points",
        fontsize=10,
        color=BLUE,
        ha="right",
    )
    return (
        "A sketch in three dimensions. Two directions span a grey plane: the vector of ones, and x-hat. The gradient g "
        "points out of the plane. Its shadow in the plane is removed; only its part at right angles to the plane "
        "passes, times gamma over s."
    )


# Longer weights, and shorter ones


def _arrow(axes, end, start, color, width=2.2) -> None:
    axes.annotate(
        "", end, start, arrowprops={"arrowstyle": "-|>", "color": color, "linewidth": width, "shrinkA": 0, "shrinkB": 0}
    )


@lesson.figure(
    ["without decay: each step makes $w$ longer", "with decay: shrink, then step"],
    "along w",
    "across w",
    size=(6.8, 2.7),
    grid=(1, 2),
    bare=True,
    aspect="equal",
    xlim=[(-0.35, 2.0), (-0.35, 2.0)],
    ylim=[(-0.25, 1.75), (-0.25, 1.75)],
)
def plot_triangle(grows, rests):
    """Sketch one step without decay and one with it, at the length where both changes cancel."""
    turn = np.linspace(-0.1, 1.2, 100)
    for axes in (grows, rests):
        axes.plot(1.5 * np.cos(turn), 1.5 * np.sin(turn), color="0.75", linewidth=1)
        axes.plot(0, 0, "o", color=BLACK, markersize=4)
    old, step = np.array([1.5, 0.0]), np.array([0.0, 0.9])
    _arrow(grows, old, (0, 0), BLACK)
    _arrow(grows, old + step, old, RED)
    _arrow(grows, old + step, (0, 0), BLUE)
    grows.plot([1.36, 1.36, 1.5], [0, 0.14, 0.14], color="0.4", linewidth=1)
    grows.text(0.7, -0.16, "$w_k$", fontsize=11)
    grows.text(1.56, 0.4, "$-\\eta\\nabla L$", fontsize=11, color=RED)
    grows.text(0.52, 0.55, "$w_{k+1}$", fontsize=11, color=BLUE)
    grows.text(0.28, 0.04, "$\\theta_k$", fontsize=11)
    short = np.array([1.2, 0.0])
    _arrow(rests, old, (0, 0), "0.6")
    _arrow(rests, short, (0, 0), BLACK)
    _arrow(rests, short + step, short, RED)
    _arrow(rests, short + step, (0, 0), BLUE)
    rests.plot([1.06, 1.06, 1.2], [0, 0.14, 0.14], color="0.4", linewidth=1)
    rests.text(0.35, -0.17, "$(1 - \\eta\\lambda)\\,w_k$", fontsize=11)
    rests.text(1.53, 0.05, "$w_k$", fontsize=11, color="0.4")
    rests.text(1.26, 0.4, "$-\\eta\\nabla L$", fontsize=11, color=RED)
    rests.text(0.3, 0.5, "$w_{k+1}$", fontsize=11, color=BLUE)
    rests.text(0.26, 0.04, "$\\theta_k$", fontsize=11)
    return (
        "Two sketches. Left: the step is perpendicular to w, so the new w ends outside the circle of the old length. "
        "Right: decay first shortens w, then the step, perpendicular to it, ends on the circle again."
    )


GROWTH = (1, 3, 10, 30)


@lesson.figure(
    ["Length of the weights", "Angle of a step"],
    "step",
    ["length", "angle (radians)"],
    size=(7.0, 2.9),
    grid=(1, 2),
    xscale="log",
    yscale="log",
    xlim=(1, 5000),
    ylim=[(3, 300), (0.008, 1.2)],
    legend=[{"loc": "upper left", "fontsize": 8.5, "ncols": 2}, {"loc": "lower left", "fontsize": 8.5}],
)
def plot_growth(length, angle):
    """Draw length and angle over 4,000 steps for four step sizes, without decay."""
    for place, eta in enumerate(GROWTH):
        run = train_small(eta, steps=LONG)
        lines(length, np.arange(1, LONG + 1), {f"$\\eta$ = {eta:g}": run.lengths[1:]}, first=place)
        lines(angle, None, {f"$\\eta$ = {eta:g}": smoothed(run.angles)}, first=place)
    k = np.array([1.0, LONG])
    angle.plot(k, 1 / np.sqrt(2 * k), color="0.6", linestyle="-", linewidth=1, label="$1/\\sqrt{2k}$")
    _compact(length, angle)
    return (
        "Four step sizes, 1 to 30, no decay, logarithmic axes. Left, the lengths grow, the more the larger the step size. "
        "Right, the angles start apart and come together on one falling line, on which each angle is one over the root of "
        "twice the number of the step."
    )


PAIRS = ((0.3, 0.01), (0.1, 0.03), (0.03, 0.1))


@lesson.figure(
    ["Angle of a step", "Length of the weights"],
    "step",
    ["angle (radians)", "length"],
    size=(7.0, 3.0),
    grid=(1, 2),
    yscale="log",
    xlim=(-50, LONG + 50),
    ylim=[(5e-5, 1), (0.4, 200)],
    legend=[{"loc": "lower right", "fontsize": 8.5}, {"loc": "upper right", "fontsize": 8.5}],
)
def plot_settled(angle, length):
    """Draw angle and length for three pairs of step size and decay with one product, from two starts each."""
    for place, (eta, decay) in enumerate(PAIRS):
        for times in (1, 10):
            run = train_small(eta, times=times, decay=decay, steps=LONG)
            label = f"$\\eta$ = {eta:g}, $\\lambda$ = {decay:g}" if times == 1 else None
            lines(angle, None, {label: smoothed(run.angles)}, first=place, linewidth=1.2)
            lines(length, np.arange(0, LONG + 1, WINDOW), {label: run.lengths[::WINDOW]}, first=place, linewidth=1.2)
    angle.axhline(math.sqrt(2 * 0.3 * 0.01), color=BLACK, linewidth=1)
    angle.annotate("$\\sqrt{2\\eta\\lambda}$", (LONG, math.sqrt(0.006)), (0, 6), textcoords="offset points", ha="right")
    _compact(angle, length)
    return (
        "Three pairs of step size and decay with the product 0.003, each from the weights as drawn and from 10 times these. "
        "Left, all six angles settle on one level, the root of twice the product. Right, the lengths settle on three "
        "levels, one for each pair, from both starts."
    )


# The closing experiment

LONGER = "plain, twice the steps"
ARM_LOOKS = {PLAIN: (RED, "--", "s"), LONGER: (ORANGE, ":", "^"), FROZEN: (PURPLE, "-.", "D"), NORMED: (BLUE, "-", "o")}
NAMES = {
    PLAIN: "plain",
    LONGER: "plain, twice the steps",
    FROZEN: "first batch's statistics, kept",
    NORMED: "batch norm",
}
STARTS = (0.25, 0.3536, 0.5, 0.7071, 1.0, 1.4142, 2.0)
CLOSE = (0.8409, 1.1892)  # further starts of the plain network


def closing(arm: str, start: float) -> list[float]:
    """Return the stored test losses of an arm from a start at its best step size, one a seed; infinite where it blew up."""
    stored = measured("deep_norm", f"{arm}, start {start:g}")["test loss"]
    return [math.inf if loss is None else loss for loss in stored]


def starts_of(arm: str) -> list[float]:
    """Return the starts of an arm, in order."""
    if arm == LONGER:
        return sorted([1.0, *CLOSE])
    return sorted([*STARTS, *(CLOSE if arm == PLAIN else ())])


def median(arm: str, start: float) -> float:
    """Return the median over the five seeds."""
    return float(np.median(closing(arm, start)))


def best_start(arm: str) -> float:
    """Return the start with the smallest median."""
    return min(starts_of(arm), key=lambda start: median(arm, start))


@lesson.figure(
    None,
    "start, times He's weights",
    "test loss",
    size=(6.8, 3.6),
    xscale="log",
    xticks=(0.25, 0.5, 1, 2),
    ylim=(0, 3.15),
    legend={"loc": "upper left", "fontsize": 8.5, "bbox_to_anchor": (0, 0.92)},
)
def plot_closing(axes):
    """Draw the stored losses of every arm against the start, five seeds and their median."""
    axes.axhline(cost_of_a_constant(), color=BLACK, linewidth=1)
    axes.annotate(
        "best constant guess", (0.24, cost_of_a_constant()), (0, -11), textcoords="offset points", fontsize=8.5
    )
    for place, (arm, (color, style, marker)) in enumerate(ARM_LOOKS.items()):
        aside = 2 ** (0.05 * (place - 1.5))
        starts = np.array(starts_of(arm))
        medians = np.minimum([median(arm, start) for start in starts], CEILING)
        axes.plot(starts * aside, medians, linestyle=style, color=color, label=NAMES[arm])
        for start in starts:
            losses = np.minimum(closing(arm, start), CEILING)
            axes.plot([start * aside] * len(losses), losses, linestyle="", marker=marker, color=color, markersize=3.5)
    axes.set_xticks([0.25, 0.5, 1, 2], ["1/4", "1/2", "1", "2"])
    axes.minorticks_off()
    axes.set_yticks([0, 0.5, 1, 1.5, 2, 2.5, CEILING], ["0", "0.5", "1", "1.5", "2", "2.5", "blew up"])
    _compact(axes)
    return (
        "Test loss against the size of the first weights, each arm at its best step size, as stored: five seeds as marks, "
        "their median as a line."
    )


def ended(arm: str, start: float) -> tuple[int, int]:
    """Return how many runs of an arm from a start did not blow up, over all step sizes, and how many there were."""
    by_step = measured("deep_norm", f"{arm}, start {start:g}")["test loss by step size"].values()
    return sum(loss is not None for losses in by_step for loss in losses), sum(map(len, by_step))


def closing_table() -> Markdown:
    """Return the stored run as a table: each arm at its best start, and from the smallest and largest weights."""
    rows = []
    for arm in ARM_LOOKS:
        best = best_start(arm)
        step = measured("deep_norm", f"{arm}, start {best:g}")["best step size"]
        cells = [_said(closing(arm, start)) for start in (best, *((0.25, 2.0) if arm != LONGER else ()))]
        rows.append((NAMES[arm], f"{best:.3g}", f"{step:.2g}", *cells, *([""] * (3 - len(cells)))))
    return markdown_table(("arm", "best start", "step size there", "test loss there", "from 1/4", "from 2"), rows)


def _said(losses: list[float]) -> str:
    ended = sorted(loss for loss in losses if math.isfinite(loss))
    if not ended:
        return "all blew up"
    lost = f", {len(losses) - len(ended)} of {len(losses)} blew up" if len(ended) < len(losses) else ""
    middle = float(np.median(losses))
    return f"{f'{middle:.2f} ' if math.isfinite(middle) else ''}[{ended[0]:.2f}, {ended[-1]:.2f}]{lost}"


# Predictions

hook_prediction = lesson.prediction(
    "11.P1",
    "The same sixteen layers, the same half of He's weights and the same eight step sizes, without batch norm. At how many "
    "of the eight does the plain network get below a test loss of 1 in 300 steps?",
    {
        "Five or more": "It would have to be more forgiving than with batch norm, which gets there at three.",
        "Three": "So it would be if batch norm helped by the step size alone.",
        "One": "From He's own weights it is one. Half of them is half of that in each of sixteen layers.",
        "None": right(
            "Each layer halves what passes, and sixteen layers leave 1/65,536 of it: too little to learn from at any of "
            "these step sizes. With batch norm each layer is divided by its own spread, and halved weights are not seen."
        ),
    },
    reveal=plot_plain,
)

scale_prediction = lesson.prediction(
    "11.P2",
    "All weights in front of batch norm start 10 times as large, and the outputs of the layer are the same as before. "
    "Which step size gives the same loss curve as the step size 0.3 gave with the weights as drawn?",
    {
        "0.003": "The other way round: larger weights are turned less by the same step, and need a larger one.",
        "0.3": "The figure above shows that it does not.",
        "3": "That keeps the ratio of step size and weights. But the gradient is 10 times smaller as well.",
        "30": right(
            "The gradient is 10 times smaller and the weights 10 times larger: 100 times the step makes up for both."
        ),
    },
    reveal=plot_rescaled,
)

growth_prediction = lesson.prediction(
    "11.P3",
    "Two runs of the small network, no decay, step sizes 1 and 30. The first step of the second turns the weights by "
    "several times the angle of the first's. And after 4,000 steps, by how many times the angle?",
    {
        "About 30 times": "That would need weights of one length. But large steps have made the second run's weights long.",
        "About 5 times": "That is about where they begin. The ratio goes on falling.",
        "About once": right(
            "Both have forgotten their step size. A larger step makes the weights longer, until it turns them no more than "
            "the small step does."
        ),
        "A thirtieth": "Longer weights make up for the larger step; they do not overshoot.",
    },
    reveal=plot_growth,
)

frozen_prediction = lesson.prediction(
    "11.P4",
    "A rival: mean and spread of each unit are taken from the very first batch and kept for ever. It begins as batch norm "
    "does, and later it is free to use the size of its weights. From a quarter of He's weights, each at its best step size: "
    "where does it end?",
    {
        "As low as batch norm": "So it would be if a good start were all that batch norm gives.",
        "Between batch norm and the plain network's best": "So one would hope: the start is as good as that of batch norm. "
        "But the weights change, the spreads with them, and nothing brings them back.",
        "Not below the plain network's best": right(
            "The start is repaired, and the rest is not: as soon as weights grow, the spreads do, through sixteen layers. "
            "Two of five runs blow up, and the median ends above that of the plain network from its best start."
        ),
        "At a constant guess": "Its signals do reach the readout, so it learns something.",
    },
    reveal=plot_closing,
)

FIGURES = lesson.figures
