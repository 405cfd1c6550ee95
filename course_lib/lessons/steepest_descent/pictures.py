"""Figures, explorer and predictions of lesson 06, steepest_descent."""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor

from course_lib.lessons.steepest_descent import rotated as closing
from course_lib.lessons.steepest_descent.contents import lesson
from course_lib.measured import measured
from course_lib.optimization.steepest_descent import constrained_step, dual_norm, lp_step
from course_lib.teaching import Explorer, Slider, Switch, lines, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, ORANGE, PURPLE, RED

NORMS = {"l2": ("L2", 2), "linf": ("L∞", math.inf), "l1": ("L1", 1)}
EXAMPLE = torch.tensor([3.0, -1.0, 2.0], dtype=torch.float64)
PLANE = torch.tensor([2.0, 1.0], dtype=torch.float64)  # the gradient of the hook and of the explorer
GRAY = "0.55"


def rotation(degrees: float) -> Tensor:
    """Return the 2 x 2 matrix that turns the plane by that angle, against the clock."""
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


def ball(p: float | int, radius: float, count: int = 361) -> np.ndarray:
    """Return `count` points where the Lp length is `radius`, the k-th in direction k degrees."""
    angle = np.radians(np.linspace(0, 360, count))
    circle = np.stack([np.cos(angle), np.sin(angle)])
    return radius * circle / np.linalg.norm(circle, ord=p, axis=0)


def arrow(end: tuple[float, float] | np.ndarray | Tensor, *, head: float = 0.12) -> np.ndarray:
    """Return an arrow from the origin as one polyline of five points, so that it is a line like any other."""
    end = np.asarray(end, dtype=float)
    back = -end / np.linalg.norm(end) * head
    wings = [end + np.array([[c, -s], [s, c]]) @ back for c, s in ((0.9, 0.45), (0.9, -0.45))]
    return np.stack([0 * end, end, wings[0], end, wings[1]], axis=1)


@lesson.figure(
    "Which step of the square goes down furthest?",
    "step of weight 1",
    "step of weight 2",
    size=(4.6, 3.4),
    xlim=(-1.7, 1.7),
    ylim=(-1.3, 1.3),
    aspect="equal",
    legend=None,
)
def plot_square(axes):
    """Draw the square of allowed steps and the gradient at its centre."""
    axes.plot(*ball(math.inf, 1.0), color=BLUE, linestyle="-", linewidth=1.6)
    axes.fill(*ball(math.inf, 1.0), color=BLUE, alpha=0.07)
    axes.plot(*arrow(0.4 * PLANE), color=BLACK, linestyle="-", linewidth=2.4)
    axes.text(-0.9, 0.62, "gradient (2, 1), scaled", fontsize=10, va="center")
    axes.plot(0, 0, "o", color=BLACK, markersize=4)
    axes.text(0, 1.08, "allowed: each weight by at most 1", color=BLUE, fontsize=10, ha="center")
    return "The square of steps that move each of two weights by at most 1, and the gradient (2, 1)."


def _level(axes, value: float, **style) -> None:
    """Draw the steps of the plane whose linear model has that value."""
    foot = value * PLANE / PLANE.square().sum()
    along = torch.tensor([-PLANE[1], PLANE[0]])
    axes.plot(*torch.stack([foot - 3 * along, foot + 3 * along]).T, **style)


@lesson.figure(
    ["square: L∞", "circle: L2", "diamond: L1"],
    "step of weight 1",
    "step of weight 2",
    size=(7.8, 2.7),
    grid=(1, 3),
    xlim=(-1.7, 1.3),
    ylim=(-1.5, 1.5),
    aspect="equal",
    legend=None,
)
def plot_touching(*panels_):
    """Draw in each ball the lowest point, and the last level line of the linear model that touches it there."""
    said = []
    for axes, norm, name in zip(panels_, ("linf", "l2", "l1"), ("square", "circle", "diamond"), strict=True):
        step = constrained_step(PLANE, norm=norm, radius=1.0)
        lowest = float(PLANE @ step)
        for value in (-4, -2, 0, 2, 4):
            _level(axes, float(value), color="0.85", linestyle="-", linewidth=0.8)
        _level(axes, lowest, color=GRAY, linestyle=":", linewidth=2.0)
        axes.plot(*ball(NORMS[norm][1], 1.0), color=BLUE, linestyle="-", linewidth=1.6)
        axes.plot(*arrow(0.4 * PLANE), color=BLACK, linestyle="-", linewidth=2.0)
        axes.text(0.55, 0.5, "$g$", fontsize=12)
        axes.plot(*arrow(step), color=RED, linestyle="-", linewidth=2.4)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        words = {"color": RED, "fontsize": 10, "fontweight": "bold", "ha": "right", "bbox": box}
        axes.text(1.25, 1.2, f"change: {lowest:.2f}", **words)
        a, b = (round(float(x), 2) + 0.0 for x in step)
        said.append(f"{name} ({a:.2f}, {b:.2f}), change {lowest:.2f}")
    return f"Level lines of the change 2a + b; dotted the lowest one that touches the ball: {'; '.join(said)}."


@lesson.figure(
    ["L1", "L2", "L∞"],
    "length $M$ of the step",
    "$-M\\|g\\|_* + M^2/\\alpha$",
    size=(7.6, 2.5),
    grid=(1, 3),
    ylim=(-4.2, 4.6),
    legend={"loc": "upper left", "fontsize": 9},
)
def plot_lengths(*panels_, gradient: Tensor = EXAMPLE, alpha: float = 0.4):
    """Draw the penalised objective along the steepest ray of each norm, against the length, with its minimum."""
    lengths, said = np.linspace(0, 2.4, 200), []
    for axes, name in zip(panels_, ("L1", "L2", "L∞"), strict=True):
        dual = float(dual_norm(gradient, norm={label: norm for norm, (label, _) in NORMS.items()}[name]))
        best, lowest = alpha / 2 * dual, -alpha / 4 * dual**2
        axes.plot(lengths, -lengths * dual + lengths**2 / alpha, color=BLUE, linestyle="-", linewidth=2)
        axes.plot([best], [lowest], "o", color=RED, markersize=8, label=f"length {best:.2f}")
        said.append(f"{name} at length {best:.2f} with value {lowest:.2f}")
    entries = ", ".join(f"{v:g}" for v in gradient.tolist())
    return (
        f"The objective along the steepest direction, for the gradient ({entries}) and α = {alpha:g}: lowest for "
        f"{', '.join(said)}. Each norm has a unit of its own, so depths do not compare across panels."
    )


@lesson.figure(
    ["inputs $x$ of length 1", "$G\\,x$: lengths 2, 0.4 and between", "$UV^T x$: all of length 1"],
    size=(8.2, 2.6),
    grid=(1, 3),
    bare=True,
    xlim=(-1.9, 1.9),
    ylim=(-1.45, 1.45),
    aspect="equal",
    legend=None,
)
def plot_ellipse(before, stretched, equal):
    """Draw the unit circle and three inputs, what a 2 x 2 gradient makes of them, and what UV^T does."""
    left, turn, values = rotation(35.0), rotation(-60.0), torch.tensor([2.0, 0.4], dtype=torch.float64)
    circle = torch.from_numpy(ball(2, 1.0))
    third = turn @ torch.tensor([math.cos(0.9), math.sin(0.9)], dtype=torch.float64)
    inputs = [*turn.T, third]
    maps = (
        (before, torch.eye(2).to(circle), ("$v_1$", "$v_2$", "$x$")),
        (stretched, left @ values.diag() @ turn.T, ("$s_1u_1$", "$s_2u_2$", "$Gx$")),
        (equal, left @ turn.T, ("$u_1$", "$u_2$", "$UV^Tx$")),
    )
    for axes, matrix, names in maps:
        axes.plot(*circle, color="0.6", linestyle=":", linewidth=1.2)
        axes.plot(*(matrix @ circle), color=BLUE, linestyle="-", linewidth=1.4)
        for vector, name, colour, style in zip(inputs, names, (RED, BLACK, PURPLE), ("-", "--", "-."), strict=True):
            end = matrix @ vector
            axes.plot(*arrow(end), color=colour, linestyle=style, linewidth=2.0)
            axes.text(
                *((1 + 0.22 / float(end.norm())) * end), name, color=colour, fontsize=11, ha="center", va="center"
            )
    return (
        f"A gradient G maps the circle of inputs to an ellipse with half axes {values[0]:g} and {values[1]:g}, U V^T to a "
        "circle. The step is -η times U V^T."
    )


def width_changes(
    widths: Sequence[int], *, rows: int = 10, batch: int = 32, radius: float = 0.1
) -> dict[str, list[float]]:
    """Return the largest RMS change of a layer's outputs after one step of length eta, per norm and width d_in.

    The gradient is that of a batch, sum_b g_b x_b^T, and the change is measured on the same inputs, each of RMS 1.
    """
    generator = torch.Generator().manual_seed(4)
    changes = {norm: [] for norm in ("linf", "spectral", "rms_to_rms")}
    for width in widths:
        x = torch.randn(batch, width, generator=generator, dtype=torch.float64)
        x = x / x.square().mean(1, keepdim=True).sqrt()
        gradient = torch.randn(batch, rows, generator=generator, dtype=torch.float64).T @ x
        for norm, values in changes.items():
            step = constrained_step(gradient, norm=norm, radius=radius)
            values.append(float((x @ step.T).square().mean(1).sqrt().max()))
    return changes


def muon_step(gradient: Tensor, **options) -> Tensor:
    """Return the change that one fresh step of torch.optim.Muon makes to zeros, with lr 1 and no weight decay."""
    weights = torch.zeros_like(gradient, requires_grad=True)
    weights.grad = gradient.clone()
    torch.optim.Muon([weights], lr=1.0, weight_decay=0.0, **options).step()
    return weights.detach()


def decaying_gradient(rows: int, columns: int, *, smallest: float, seed: int = 0) -> Tensor:
    """Return a random float32 matrix whose singular values fall geometrically from 1 to `smallest`."""
    drawn = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    left, values, right = torch.linalg.svd(drawn, full_matrices=False)
    wanted = torch.logspace(0, math.log10(smallest), len(values), dtype=torch.float64)
    return ((left * wanted) @ right).float()


@lesson.figure(
    "One step of torch.optim.Muon, 64 × 128",
    "index of the singular value",
    "singular value of the step",
    size=(4.8, 2.7),
    ylim=(0, 1.4),
    legend={"loc": "lower left", "fontsize": 8},
)
def plot_muon(axes):
    """Draw the singular values of one step of torch.optim.Muon for two gradients."""
    gradients = {
        "normal numbers": torch.randn(64, 128, generator=torch.Generator().manual_seed(0)),
        "decaying to $10^{-4}$": decaying_gradient(64, 128, smallest=1e-4),
    }
    found = {label: torch.linalg.svdvals(muon_step(gradient)) for label, gradient in gradients.items()}
    lines(axes, np.arange(1, 65), found, linewidth=2.2)
    axes.axhline(1, color=BLACK, linewidth=1, linestyle="--", label="exact step $UV^T$")
    said = [f"from {values.min():.1f} to {values.max():.1f}" for values in found.values()]
    return (
        f"Singular values of one step of torch.optim.Muon: for a gradient of normal numbers {said[0]}, for one with "
        f"singular values from 1 to 0.0001 {said[1]}; the exact step has only ones."
    )


# The closing experiment.

LIVE = {"L2 step": ("l2", 1.0), "sign step": ("sign", 0.125), "spectral step": ("spectral", 0.5)}
LOOKS = {"L2 step": (BLACK, ":"), "sign step": (ORANGE, "--"), "spectral step": (BLUE, "-")}


def problem(seed: int = 0) -> closing.Problems:
    """Return the closing experiment's problem of that seed."""
    return closing.problems((seed,))


@cache
def live_losses(seed: int = 0) -> dict[str, tuple[Tensor, Tensor]]:
    """Return the loss over 200 steps for three kinds of steps, on the inputs' axes and rotated: one length each."""
    drawn = problem(seed)
    return {
        name: tuple(closing.train(one, method, [length])[:, 0, 0] for one in (drawn, closing.rotated(drawn)))
        for name, (method, length) in LIVE.items()
    }


@cache
def retuned_sign_losses(seed: int = 0) -> Tensor:
    """Return the loss of sign steps on rotated inputs, at the size that is best on rotated inputs."""
    size = measured("rotated", "sign step, rotated")["best step size"]
    return closing.train(closing.rotated(problem(seed)), "sign", [size])[:, 0, 0]


@lesson.figure(
    list(LIVE),
    "step",
    "training loss",
    size=(8.6, 3.0),
    grid=(1, 3),
    subplots={"sharey": True},
    yscale="log",
    ylim=(0.08, 9),
    legend={"loc": "upper right", "fontsize": 9},
)
def plot_curves(*panels_):
    """Draw the loss of three kinds of steps, on the inputs' own axes and on rotated inputs."""
    steps = np.arange(0, closing.STEPS + 1, 4)
    for axes, (name, (plain, turned)) in zip(panels_, live_losses().items(), strict=True):
        axes.plot(steps, plain[steps], color=BLUE, linestyle="-", linewidth=3.0, alpha=0.6, label="own axes")
        axes.plot(steps, turned[steps], color=RED, linestyle="--", linewidth=1.5, label="rotated")
        if name == "sign step":
            axes.plot(steps, retuned_sign_losses()[steps], color=BLACK, linestyle=":", label="rotated, best size")
    return (
        "Loss at every fourth of 200 steps, seed 0, own axes and rotated, one step size for each kind of step. Dotted: "
        "signs with the size that is best for them on rotated inputs."
    )


@cache
def descent_by_input(method: str, *, rotate: bool) -> Tensor:
    """Return how far the first step moves each input's weights against their gradient, shape (seeds, inputs).

    That is the step's component along minus the gradient of these weights, divided by the largest of the 16. On rotated
    inputs step and gradient are turned back, so that their columns belong to the same inputs as before.
    """
    drawn = closing.problems(range(5))
    one = closing.rotated(drawn) if rotate else drawn
    _, gradient, _ = closing.gradients(one.x, one.y, one.first, one.second)
    step = closing.DIRECTIONS[method](gradient)
    if rotate:
        step, gradient = step @ one.turn, gradient @ one.turn
    along = (step * gradient).sum(1) / gradient.norm(dim=1)
    return along / along.abs().amax(1, keepdim=True)


@lesson.figure(
    ["own axes", "rotated"],
    "standard deviation of the input",
    "progress against the gradient",
    size=(8.2, 3.3),
    grid=(1, 2),
    subplots={"sharey": True},
    xscale="log",
    xlim=(1.3, 0.0075),
    ylim=(-0.25, 1.55),
    legend=[{"loc": "upper center", "ncols": 3, "fontsize": 9}, None],
)
def plot_descent(*panels_):
    """Draw how far the first step moves each input's weights against their gradient, by the input's scale."""
    said = []
    for axes, rotate in zip(panels_, (False, True), strict=True):
        axes.axhline(0, color=BLACK, linewidth=0.8)
        for (name, (method, _)), mark in zip(LIVE.items(), "sDo", strict=True):
            along, (color, style) = descent_by_input(method, rotate=rotate).mean(0), LOOKS[name]
            axes.plot(closing.SCALES, along, color=color, linestyle=style, marker=mark, markersize=4, label=name)
            if name == "sign step":
                said.append(f"{'rotated' if rotate else 'own axes'} {float(along[8:].mean()):.2f}")
    return (
        "The first step's progress in each input's weights against their gradient, divided by the largest of the 16; mean "
        f"of five seeds. Signs, mean over the eight smallest inputs: {', '.join(said)}."
    )


ROWS = (
    "gradient descent",
    "L2 step",
    "sign step",
    "spectral step",
    "Adam",
    "L2 step, inputs standardised",
    "L2 step, inputs whitened",
    "spectral step, inputs whitened",
    "sign step, principal axes",
    "sign step, inputs whitened",
)
EACH_LAYER = {  # arms with a size for each layer, and the kinds of inputs on which they ran
    "L2 step": ("axes", "rotated", "raw teacher"),
    "sign step": ("axes", "rotated", "raw teacher"),
    "spectral step": ("axes", "rotated", "mixed", "raw teacher"),
    "sign step, principal axes": ("rotated", "raw teacher"),
    "L2 step, inputs whitened": ("rotated", "raw teacher"),
    "spectral step, inputs whitened": ("rotated",),
}
KINDS = {
    "axes": "own axes",
    "rotated": "rotated",
    "mixed": "all 512 weights rotated",
    "raw teacher": "rotated, teacher on raw inputs",
}
MIXED = ("L2 step", "sign step", "spectral step")  # with all first-layer weights rotated too, without momentum


def stored_losses(arm: str, kind: str, *, momentum: bool = False, each_layer: bool = False) -> list[float]:
    """Return the stored final losses of an arm at its best step size, by seed; `kind` is a name of KINDS.

    With `each_layer`, each of the two layers had a step size of its own.
    """
    part = "rotated_layers" if each_layer else "rotated"
    return measured(part, f"{arm}{', momentum' if momentum else ''}, {kind}")["losses"]


def _rows(momentum: bool) -> tuple[str, ...]:
    """Return the arms without or with momentum. Adam averages its gradients, so it stands beside those with momentum."""
    return tuple(arm for arm in ROWS if momentum or arm != "Adam")


def _cell(arm: str, kind: str, momentum: bool) -> list[float]:
    return stored_losses(arm, kind, momentum=momentum and arm != "Adam")


def _said(losses: list[float]) -> str:
    return f"{np.median(losses):.3f} ({min(losses):.3f}–{max(losses):.3f})"


def layer_table() -> Markdown:
    """Return the stored final losses with a size for each layer: median, lowest and highest of five seeds."""

    def cell(arm: str, kind: str) -> str:
        return _said(stored_losses(arm, kind, each_layer=True)) if kind in EACH_LAYER[arm] else ""

    rows = [(arm, *(cell(arm, kind) for kind in KINDS)) for arm in EACH_LAYER]
    return markdown_table(("a size for each layer: median (range)", *KINDS.values()), rows)


def stored_table() -> Markdown:
    """Return the stored final losses with one size for both layers: median, lowest and highest of five seeds."""

    def cell(arm: str, kind: str, momentum: bool) -> str:
        if arm not in (MIXED if kind == "mixed" else _rows(momentum)):
            return ""
        return _said(_cell(arm, kind, momentum))

    columns = [("axes", False), ("rotated", False), ("mixed", False), ("axes", True), ("rotated", True)]
    heads = [f"{KINDS[kind]}{', momentum' if momentum else ''}" for kind, momentum in columns]
    return markdown_table(
        ("one size for both layers: median (range)", *heads),
        [(arm, *(cell(arm, *column) for column in columns)) for arm in ROWS],
    )


def _strip(axes, arms: Sequence[str], marks: dict[str, tuple[float, str, str]]) -> None:
    """Draw five losses for each arm and kind of inputs, with their range; `marks` gives shift, colour and mark by kind."""
    for place, arm in enumerate(reversed(arms)):
        for kind, (shift, color, mark) in marks.items():
            if kind not in EACH_LAYER[arm]:
                continue
            losses = stored_losses(arm, kind, each_layer=True)
            axes.plot([min(losses), max(losses)], [place + shift] * 2, "-", color=color, linewidth=1)
            label = KINDS[kind] if place == 0 else None  # the last arm has all kinds
            axes.plot(losses, [place + shift] * len(losses), mark, color=color, markersize=5, label=label)
    axes.set_ylim(-0.6, len(arms) - 0.4)
    axes.set_yticks(range(len(arms)), [arm.replace(", ", ",\n") for arm in reversed(arms)])
    ticks = [x for x in (0.003, 0.01, 0.03, 0.1, 0.3) if x > axes.get_xlim()[0]]
    axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
    axes.set_xticks([], minor=True)


@lesson.figure(
    "",
    "training loss after 200 steps",
    "step",
    size=(7.2, 2.7),
    xscale="log",
    xlim=(0.024, 0.6),
    legend={"loc": "upper left", "fontsize": 9},
)
def plot_stored(axes):
    """Draw the stored final losses of three kinds of steps: own axes, rotated inputs, all first-layer weights rotated."""
    marks = {"axes": (0.2, BLUE, "o"), "rotated": (0.0, RED, "D"), "mixed": (-0.2, BLACK, "^")}
    _strip(axes, list(EACH_LAYER)[:3], marks)
    return (
        "Training loss at the best pair of step sizes, five seeds: own axes (dots), rotated inputs (diamonds), all 512 "
        "first-layer weights rotated (triangles)."
    )


@lesson.figure(
    ["the teacher sees all inputs at scale 1", "the teacher sees the raw inputs"],
    "training loss after 200 steps",
    "step",
    size=(8.0, 3.2),
    grid=(1, 2),
    subplots={"sharey": True},
    xscale="log",
    xlim=(0.002, 0.6),
    legend=None,
)
def plot_rivals(*panels_):
    """Draw the stored final losses of five arms on rotated inputs, for both teachers."""
    for axes, kind in zip(panels_, ("rotated", "raw teacher"), strict=True):
        _strip(axes, list(EACH_LAYER)[:5], {kind: (0.0, RED, "D")})
    return "Training loss on rotated inputs at the best pair of step sizes, five seeds, for two teachers and five arms."


class Direction(Slider):
    """The slider of the step's direction; without a kernel three steps are shown, two corners and an edge's middle."""

    def values(self) -> tuple[int, int, int]:
        """Return three directions in degrees."""
        return (180, 225, 270)


@lesson.explorer
class BallExplorer(Explorer):
    """A ball of allowed steps, a gradient, and a step that the learner turns, with the lowest one on request."""

    title = "Find the lowest step"
    summary = (
        "Left: a ball of allowed steps, the gradient scaled to length 0.9, and your step, with the level line of the linear "
        "model through its end. Right: the change of the linear model at your step, against its direction. The switch adds "
        "all other directions (blue) and the lowest step (red)."
    )
    direction = Direction("your step", "", "Direction of your step, to the boundary of the ball", 225, 0, 359, 1, "deg")
    inverse = Slider("ball: Lp norm,", "1/p", "0 is the square, 1/2 the circle, 1 the diamond", 1.0, 0.0, 1.0, 0.05)
    first = Slider("gradient 1", "", "First entry of the gradient", 1.0, -2.0, 2.0, 0.25)
    second = Slider("gradient 2", "", "Second entry of the gradient", 0.5, -2.0, 2.0, 0.25)
    reveal = Switch(
        "Reveal the lowest step", "Show the change in all directions (blue), and the lowest step (red)", False
    )
    together = ("direction", "inverse")
    size = (8.0, 3.8)
    dpi = 100
    strip_scale = 0.76
    layout = panels(
        ["Ball and step", "Change of the linear model"],
        ["step of weight 1", "direction of the step (degrees)"],
        ["step of weight 2", "change at the boundary"],
        grid=(1, 2),
        legend={"loc": "upper left", "fontsize": 8, "ncols": 2},
        xlim=[(-1.9, 1.9), (0, 360)],
        ylim=[(-1.5, 2.4), (-4.6, 5.6)],
        aspect=["equal", None],
        xticks=[None, range(0, 361, 90)],
    )

    def compute(self, *, direction, inverse, first, second, reveal):
        """Return ball, gradient, the learner's step with its level line, and where revealed the lowest step."""
        inverse = round(inverse, 2)  # sliders count in steps of 0.05, and floats do not
        p = 1 / inverse if inverse else math.inf
        gradient = torch.tensor([first, second], dtype=torch.float64)
        boundary, step = ball(p, 1.0), lp_step(gradient, p=p, radius=1.0)
        own, zero = boundary[:, direction], not bool(gradient.any())
        value, lowest = float(gradient.numpy() @ own), float(gradient @ step)
        length = 1 if zero else float(gradient.norm())
        along = np.array([-second, first]) / length
        sizes, nothing = gradient.abs(), ([], [])
        shown = reveal and not zero
        degrees = math.degrees(math.atan2(step[1], step[0])) % 360
        return {
            "boundary": tuple(boundary),
            "gradient": ([0], [0]) if zero else tuple(arrow(0.9 / length * gradient)),
            "own": tuple(arrow(own)),
            "level": ([0], [0]) if zero else tuple(np.stack([own - along, own + along], axis=1)),
            "point": ([direction], [value]),
            "changes": (np.arange(361), gradient.numpy() @ boundary) if reveal else nothing,
            "lowest": ([degrees], [lowest]) if shown else nothing,
            "steepest": tuple(arrow(step)) if shown else nothing,
            "zero": zero,
            "revealed": reveal,
            "values": (value, lowest),
            "edge": (p == 1 and bool(sizes[0] == sizes[1])) or (p == math.inf and bool((sizes == 0).any())),
            "steps": (own.tolist(), step.tolist()),
            "settings": (p, first, second),
        }

    def draw(self, plane, around):
        """Draw the level 0, and everything that moves."""
        around.axhline(0, color=BLACK, linewidth=0.8, linestyle="-")
        dashed = {"color": RED, "linewidth": 2.4, "linestyle": "--"}
        artists = {
            "boundary": plane.plot([], [], color=BLUE, linestyle="-", linewidth=1.4, label="ball"),
            "level": plane.plot([], [], color="0.5", linestyle=":", linewidth=1.4, label="level line"),
            "gradient": plane.plot([], [], color=BLACK, linestyle="-", linewidth=2.0, label="gradient, scaled"),
            "own": plane.plot([], [], color=PURPLE, linestyle="-", linewidth=2.4, label="your step"),
            "steepest": plane.plot([], [], **dashed),
            "changes": around.plot([], [], color=BLUE, linestyle="-"),
            "point": around.plot([], [], color=PURPLE, marker="s", markersize=8, linestyle="none", label="your step"),
            "lowest": around.plot([], [], color=RED, marker="o", markersize=9, linestyle="none"),
        }
        return {name: line for name, (line,) in artists.items()}

    def words(self, state):
        """Say what the learner's step changes, and where revealed which step is lowest."""
        (p, first, second), (value, lowest) = state["settings"], state["values"]
        (a, b), (c, d) = ([round(x, 2) + 0.0 for x in step] for step in state["steps"])
        name = "L∞" if p == math.inf else f"L{p:.3g}"
        text = (
            f"{name} ball, gradient ({first:.2f}, {second:.2f}): your step ({a:.2f}, {b:.2f}) changes the linear model by "
            f"{round(value, 2) + 0.0:.2f}."
        )
        if state["zero"]:
            return f"{text} The gradient is zero: no step changes it."
        if not state["revealed"]:
            return text
        other = " Others are as low: the level line touches the ball in a whole edge." if state["edge"] else ""
        return f"{text} The lowest step is ({c:.2f}, {d:.2f}), with {lowest:.2f}.{other}"


corner_prediction = lesson.prediction(
    "06.P1",
    "Two weights may move by at most 1 each, in either direction. The gradient is (2, 1), and a step $(a, b)$ changes the "
    "loss by about $2a + b$. Which allowed step goes down furthest?",
    {
        "(-0.89, -0.45), against the gradient, of length 1": "That is the lowest step in the circle. The square reaches "
        "further out.",
        "(-1, -0.5), against the gradient, to the edge": "It changes the loss by -2.5. From here the second weight may "
        "still move, at no cost to the first.",
        "(-1, -1), the corner": right(
            "Each weight has a limit of its own, so each goes all the way, however small its entry of the gradient: -3."
        ),
        "(-1, 0), the weight with the larger gradient": "It changes the loss by -2. The second weight may move too.",
    },
    reveal=plot_touching,
)

rotation_prediction = lesson.prediction(
    "06.P2",
    "The inputs $x$ are rotated, $Qx$ with an orthogonal $Q$, and the start of the first layer is rotated with them, so "
    "that the network computes the same. Then it is trained with normalised gradients, with signs, or with $UV^\\top$. "
    "Which method's loss curve changes?",
    {
        "None: the network can undo a rotation": "It can represent the same functions. But the signs of the rotated "
        "gradient are not the rotated signs.",
        "Only that of the signs": right(
            "Lengths and singular values do not change under a rotation of the inputs; the entries and their signs do."
        ),
        "Those of the signs and of $UV^\\top$": "A rotation of the inputs turns the right singular vectors only, and the "
        "step turns with them.",
        "All three": "A rotated gradient has the same length and the same singular values.",
    },
    reveal=plot_curves,
)

FIGURES = lesson.figures
