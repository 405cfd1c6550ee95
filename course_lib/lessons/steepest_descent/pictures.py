"""Figures, explorer and predictions of lesson 04, steepest_descent."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from course_lib.lessons.steepest_descent.contents import lesson
from course_lib.optimization.steepest_descent import constrained_step, dual_norm, lp_step, penalized_step
from course_lib.teaching import Explorer, Slider, lines, panels
from course_lib.teaching.style import BLACK, BLUE, RED

NORMS = {"l2": ("L2", 2), "linf": ("L∞", math.inf), "l1": ("L1", 1)}
EXAMPLE = torch.tensor([3.0, -1.0, 2.0], dtype=torch.float64)
HESSIAN = torch.diag(torch.tensor([1.0, 6.0], dtype=torch.float64))


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
    "One gradient, three steepest steps",
    "$\\Delta[1]$",
    "$\\Delta[2]$",
    size=(6.0, 5.4),
    xlim=(-1.9, 1.9),
    ylim=(-1.4, 2.1),
    aspect="equal",
    legend={"loc": "upper left", "fontsize": 8},
)
def plot_question(axes):
    """Draw one gradient, three balls of the same radius, and the lowest point of the linear model on each."""
    gradient, radius = torch.tensor([2.0, 1.0], dtype=torch.float64), 1.0
    x, y = np.meshgrid(np.linspace(-1.9, 1.9, 50), np.linspace(-1.4, 2.1, 50))
    axes.contour(x, y, 2 * x + y, levels=np.arange(-6, 7), colors="0.8", linewidths=0.8, linestyles="-")
    axes.plot(*arrow((0.8, 0.4)), color=BLACK, linestyle="-", linewidth=2.6, label="gradient $g$ (scaled)")
    steps = {name: constrained_step(gradient, norm=norm, radius=radius) for norm, (name, _) in NORMS.items()}
    lines(axes, None, {f"{name} ball": tuple(ball(p, radius)) for name, p in NORMS.values()}, linewidth=1.2)
    lines(axes, None, {f"_{name}": tuple(arrow(step)) for name, step in steps.items()}, linewidth=2.4)
    said = sorted(f"on the {name} ball ({a + 0.0:.2f}, {b + 0.0:.2f})" for name, (a, b) in steps.items())
    return (
        "The gradient (2, 1), the level lines of its linear model, and the balls of radius 1 of three norms around "
        f"the origin: a diamond, a circle and a square. The lowest point of the linear model lies {', '.join(said)}."
    )


@lesson.figure(
    "The penalty chooses the length: $\\frac{\\alpha}{2}\\|g\\|_*$",
    "length $M$ of the step, in its own norm",
    "$-M\\|g\\|_* + M^2/\\alpha$",
    ylim=(-4.2, 4.2),
    legend={"loc": "upper left", "ncols": 3, "fontsize": 8},
)
def plot_lengths(axes, gradient: Tensor = EXAMPLE, *, alpha: float = 0.4):
    """Draw the penalised objective along the steepest ray of each norm, against the length, with its minimum."""
    lengths, said = np.linspace(0, 2.6, 200), []
    for place, (norm, (name, _)) in enumerate(NORMS.items()):
        dual = float(dual_norm(gradient, norm=norm))
        best, lowest = alpha / 2 * dual, -alpha / 4 * dual**2
        (curve,) = lines(axes, lengths, {name: -lengths * dual + lengths**2 / alpha}, first=place)
        axes.plot([best], [lowest], "os^"[place], color=curve.get_color(), markersize=8, label=f"length {best:.2f}")
        said.append(f"{name} at length {best:.2f} with value {lowest:.2f}")
    entries = ", ".join(f"{v:g}" for v in gradient.tolist())
    return (
        f"The penalised objective along the steepest ray against the length of the step, for the gradient "
        f"({entries}) and alpha = {alpha:g}: three parabolas through zero, lowest for {', '.join(sorted(said))}."
    )


@lesson.figure(
    ["inputs $x$ of length 1", "$G\\,x$: stretched unequally", "$UV^T x$: all of length 1"],
    size=(9.4, 3.4),
    grid=(1, 3),
    bare=True,
    xlim=(-2.3, 2.3),
    ylim=(-2.1, 2.1),
    aspect="equal",
    legend={"loc": "upper right", "fontsize": 8},
)
def plot_ellipse(before, stretched, equal):
    """Draw the unit circle, what a 2 x 2 gradient makes of it, and what its orthogonal factor does."""
    left, right, values = rotation(35.0), rotation(-60.0), torch.tensor([2.0, 0.4], dtype=torch.float64)
    circle = torch.from_numpy(ball(2, 1.0))
    maps = (
        (before, torch.eye(2).to(circle), ("$v_1$", "$v_2$")),
        (stretched, left @ values.diag() @ right.T, ("$s_1 u_1$", "$s_2 u_2$")),
        (equal, left @ right.T, ("$u_1$", "$u_2$")),
    )
    for axes, matrix, names in maps:
        axes.plot(*circle, color="0.6", linestyle=":", linewidth=1.2)
        axes.plot(*(matrix @ circle), color=BLUE, linestyle="-", linewidth=1.4)
        for vector, name, colour, style in zip(right.T, names, (RED, BLACK), ("-", "--"), strict=True):
            axes.plot(*arrow(matrix @ vector), color=colour, linestyle=style, linewidth=2.0, label=name)
    return (
        "Left: the circle of inputs of length 1 with the right singular vectors v1 and v2 of a gradient G. Middle: G "
        f"maps the circle to an ellipse with half axes s1 = {values[0]:g} along u1 and s2 = {values[1]:g} along u2. "
        "Right: U V^T maps v1 to u1 and v2 to u2, so the ellipse becomes a circle."
    )


def width_changes(widths: Sequence[int], *, rows: int = 10, radius: float = 0.1) -> dict[str, list[float]]:
    """Return the RMS change of a layer's output after one step of length eta, per norm and width d_in.

    The gradient is that of one example, g x^T, and the change is measured on the same x, of RMS 1.
    """
    generator = torch.Generator().manual_seed(4)
    changes = {norm: [] for norm in ("linf", "spectral", "rms_to_rms")}
    for width in widths:
        x = torch.randn(width, generator=generator, dtype=torch.float64)
        x = x / x.square().mean().sqrt()
        gradient = torch.outer(torch.randn(rows, generator=generator, dtype=torch.float64), x)
        for norm, values in changes.items():
            step = constrained_step(gradient, norm=norm, radius=radius)
            values.append(float((step @ x).square().mean().sqrt()))
    return changes


@lesson.figure(
    "The same length 0.1 in three norms ($d_{out}$ = 10)",
    "input width $d_{in}$",
    "RMS change of the output",
    xscale="log",
    yscale="log",
    ylim=(0.02, 500),
    legend={"loc": "upper left", "fontsize": 8},
)
def plot_widths(axes, widths: Sequence[int] = (16, 32, 64, 128, 256, 512, 1024)):
    """Draw the RMS change of a layer's output after one step of length 0.1 against the layer's input width."""
    changes = width_changes(widths)
    labels = {
        "RMS-to-RMS: $\\sqrt{d_{out}/d_{in}}\\,UV^T$": "rms_to_rms",
        "L∞: sign step": "linf",
        "spectral: $UV^T$": "spectral",
    }
    curves = lines(axes, widths, {label: changes[norm] for label, norm in labels.items()}, markersize=5)
    for curve, marker in zip(curves, "osD", strict=True):
        curve.set_marker(marker)
    first, last = ({norm: values[k] for norm, values in changes.items()} for k in (0, -1))
    return (
        f"RMS change of a layer's output after one step of length 0.1 against its input width, both logarithmic. "
        f"From width {widths[0]} to {widths[-1]} the sign step's change grows from {first['linf']:.1f} to "
        f"{last['linf']:.0f}, that of the spectral step from {first['spectral']:.2f} to {last['spectral']:.1f}, "
        f"and that of the RMS-to-RMS step stays at {last['rms_to_rms']:.1f}."
    )


def quadratic_path(hessian: Tensor, start: Tensor, *, norm: str, steps: int = 14) -> Tensor:
    """Return the iterates on 1/2 w^T H w: penalised steps for "l2", steps of fixed length for the others."""
    iterates = [start]
    for _ in range(steps):
        gradient = hessian @ iterates[-1]
        move = (
            penalized_step(gradient, norm="l2", alpha=0.5)
            if norm == "l2"
            else constrained_step(gradient, norm=norm, radius=0.15)
        )
        iterates.append(iterates[-1] + move)
    return torch.stack(iterates)


@lesson.figure(
    ["Gradient descent", "Sign descent"],
    "$w[1]$",
    "$w[2]$",
    size=(8.8, 4.0),
    grid=(1, 2),
    xlim=(-2.5, 1.2),
    ylim=(-1.1, 1.5),
    aspect="equal",
    legend={"loc": "upper right", "fontsize": 8},
)
def plot_rotation(left, right, degrees: float = 35.0):
    """Draw paths on a quadratic, and on its rotated copy turned back, for gradient descent and sign descent."""
    turn = rotation(degrees)
    start = torch.tensor([-1.8, 0.9], dtype=torch.float64)
    for axes, norm in ((left, "l2"), (right, "linf")):
        for r in (0.6, 1.4, 2.4):
            axes.plot(*(r * ball(2, 1.0) / [[1], [math.sqrt(6)]]), color="0.75", linewidth=1, linestyle="-")
        plain = quadratic_path(HESSIAN, start, norm=norm)
        # Row vectors: (w Q) is Q^T w, which turns a path of the rotated problem back.
        turned = quadratic_path(turn @ HESSIAN @ turn.T, turn @ start, norm=norm) @ turn
        axes.plot(*plain.T, color=BLUE, linestyle="-", marker="o", markersize=5, label="path")
        axes.plot(*turned.T, color=RED, linestyle="--", marker="x", markersize=6, label="rotated, turned back")
    gap = float((plain - turned).norm(dim=1).max())
    return (
        f"Paths on a quadratic and on a copy of it rotated by {degrees:g} degrees, the second turned back to be laid "
        f"over the first. Gradient descent: the two coincide. Sign descent: they differ by up to {gap:.2f}."
    )


def muon_step(gradient: Tensor, **options) -> Tensor:
    """Return the change that one fresh step of torch.optim.Muon makes to zeros, with lr 1 and no weight decay."""
    weights = torch.zeros_like(gradient, requires_grad=True)
    weights.grad = gradient.clone()
    torch.optim.Muon([weights], lr=1.0, weight_decay=0.0, **options).step()
    return weights.detach()


def muon_polynomial(values: Tensor, *, rounds: int = 5) -> Tensor:
    """Return what `rounds` rounds of Muon's quintic a s + b s^3 + c s^5 make of singular values, in exact numbers."""
    for _ in range(rounds):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return values


def decaying_gradient(rows: int, columns: int, *, smallest: float, seed: int = 0) -> Tensor:
    """Return a random float32 matrix whose singular values fall geometrically from 1 to `smallest`."""
    drawn = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    left, values, right = torch.linalg.svd(drawn, full_matrices=False)
    wanted = torch.logspace(0, math.log10(smallest), len(values), dtype=torch.float64)
    return ((left * wanted) @ right).float()


@lesson.figure(
    ["The polynomial", "One step of torch.optim.Muon"],
    ["singular value before, with $\\|G\\|_F = 1$", "rank of the singular value"],
    ["singular value after", "singular value of the step"],
    size=(9.0, 4.0),
    grid=(1, 2),
    xscale=["log", "linear"],
    ylim=(0, 1.4),
    legend=["lower right", {"loc": "lower left", "fontsize": 8}],
)
def plot_muon(left, right):
    """Draw Muon's polynomial after five rounds, and the singular values of one step of torch.optim.Muon."""
    values = torch.logspace(-4, 0, 600, dtype=torch.float64)
    lines(left, values, {"five rounds": muon_polynomial(values)})
    left.axhline(1, color=BLACK, linewidth=1, linestyle="--", label="exact")
    gradients = {
        "Gaussian gradient": torch.randn(64, 128, generator=torch.Generator().manual_seed(0)),
        "decaying to $10^{-4}$": decaying_gradient(64, 128, smallest=1e-4),
    }
    found = {label: torch.linalg.svdvals(muon_step(gradient)) for label, gradient in gradients.items()}
    lines(right, np.arange(1, 65), found, linewidth=2.2)
    right.axhline(1, color=BLACK, linewidth=1, linestyle="--", label="exact step $UV^T$")
    said = [f"from {values.min():.1f} to {values.max():.1f}" for values in found.values()]
    return (
        "Left: five rounds of Muon's polynomial lift singular values above about 0.002 into a band around 1, and "
        "smaller ones not that far. Right: singular values of one step of torch.optim.Muon on 64 x 128 matrices: "
        f"for a Gaussian gradient they range {said[0]}, for one with singular values from 1 to 0.0001 {said[1]}; "
        "the exact step has only ones."
    )


@lesson.explorer
class BallExplorer(Explorer):
    """The unit ball of a norm, a gradient that can be turned, and the steepest step on the ball."""

    title = "The steepest step on the ball of a norm"
    summary = (
        "Left: the ball of a norm, a gradient of Euclidean length 1, the steepest step and the level line of the "
        "linear model that touches the ball there. Right: the change of the linear model for every point of the "
        "ball's boundary, against its direction, with its lowest point."
    )
    inverse = Slider(
        "norm Lp, given as",
        "1/p",
        "How a step is measured: 0 is L∞ (largest entry), 1/2 is L2, 1 is L1 (sum of sizes)",
        0.5,
        0.0,
        1.0,
        0.05,
    )
    angle = Slider("gradient angle", "θ", "Direction of the gradient; its Euclidean length is 1", 25, 0, 355, 5, "deg")
    radius = Slider("radius of the ball", "η", "The largest length that a step may have", 1.0, 0.3, 1.5, 0.05)
    together = ("inverse", "angle")
    size = (9.0, 4.2)
    layout = panels(
        ["Ball and step", "Change of the linear model"],
        ["$\\Delta[1]$", "direction of the step (degrees)"],
        ["$\\Delta[2]$", "$\\langle g, \\Delta\\rangle$"],
        grid=(1, 2),
        legend={"loc": "upper left", "fontsize": 8, "ncols": 2},
        xlim=[(-2.7, 2.7), (0, 360)],
        ylim=[(-1.9, 3.0), (-2.3, 2.9)],
        aspect=["equal", None],
        xticks=[None, range(0, 361, 90)],
    )

    def compute(self, *, inverse, angle, radius):
        """Return ball, gradient, step, touching line and the change of the linear model around the boundary."""
        inverse = round(inverse, 2)  # sliders count in steps of 0.05, and floats do not
        p, q = (1 / share if share else math.inf for share in (inverse, 1 - inverse))
        # Rounded, so that the entries at 90 degrees are 0 and those at 45 degrees equal.
        entries = [round(f(math.radians(angle)), 12) for f in (math.cos, math.sin)]
        gradient = torch.tensor(entries, dtype=torch.float64)
        step, boundary = lp_step(gradient, p=p, radius=radius), ball(p, radius)
        pointed = arrow(step)
        lowest = float(gradient @ step)
        along, foot = np.array([-gradient[1], gradient[0]]), lowest * gradient.numpy()
        sizes = gradient.abs()
        return {
            "boundary": tuple(boundary),
            "touching": tuple(np.stack([foot - 6 * along, foot + 6 * along], axis=1)),
            "gradient": tuple(arrow(gradient)),
            "step": [tuple(pointed[:, :2]), tuple(pointed[:, 1:])],  # a dashed shaft, a head without gaps
            "changes": gradient.numpy() @ boundary,
            "lowest": (math.degrees(math.atan2(step[1], step[0])) % 360, lowest),
            "edge": (p == 1 and bool(sizes[0] == sizes[1])) or (p == math.inf and bool((sizes == 0).any())),
            "entries": step.tolist(),
            "settings": (p, q, angle, radius),
        }

    def draw(self, plane, around):
        """Draw the level 0, and ball, arrows, touching line, curve and lowest point to be moved."""
        around.axhline(0, color=BLACK, linewidth=0.8, linestyle="-")
        on_the_boundary, steepest = {"color": BLUE, "linestyle": "-"}, {"color": RED, "linewidth": 2.6}
        artists = {
            "boundary": plane.plot([], [], **on_the_boundary, linewidth=1.4, label="ball"),
            "touching": plane.plot([], [], color="0.5", linestyle=":", linewidth=1.4, label="level line"),
            "gradient": plane.plot([], [], color=BLACK, linestyle="-", linewidth=2.0, label="gradient"),
            "step": plane.plot([], [], **steepest, linestyle="--", label="steepest step"),
            "head": plane.plot([], [], **steepest, linestyle="-"),
            "changes": around.plot(np.zeros(361), **on_the_boundary, label="on the boundary"),
            "lowest": around.plot([], [], color=RED, marker="o", markersize=9, linestyle="none", label="steepest step"),
        }
        moving = {name: line for name, (line,) in artists.items()}
        shaft, head = moving.pop("step"), moving.pop("head")
        return {**moving, "step": [shaft, head]}

    def words(self, state):
        """Say which step is steepest, what it gains, and how far it turns from the negative gradient."""
        (p, q, angle, radius), (_, lowest) = state["settings"], state["lowest"]
        a, b = (round(entry, 2) + 0.0 for entry in state["entries"])
        cosine = -lowest / math.hypot(*state["entries"])
        turned = math.degrees(math.acos(min(1.0, max(-1.0, cosine))))
        turning = "along -g" if turned < 0.05 else f"{turned:.0f} degrees away from -g"
        name, dual = ("L∞" if x == math.inf else f"L{x:.3g}" for x in (p, q))
        only = " It is not the only one: the level line touches the ball in a whole edge." if state["edge"] else ""
        return (
            f"{name} ball of radius {radius:.2f}, gradient at {angle} degrees: the steepest step is "
            f"({a:.2f}, {b:.2f}), {turning}. It changes the linear model by {lowest:.2f}, -η times the dual "
            f"norm {dual} of g.{only}"
        )


rotation_prediction = lesson.prediction(
    "04.P1",
    "A quadratic loss and its start are rotated by 35 degrees, gradient descent and sign descent are run on both, "
    "and the paths on the rotated loss are turned back. Whose path is the same as before?",
    {
        "Both": "Sign descent moves along the diagonals of its coordinates, and those do not turn with the loss.",
        "That of gradient descent only": "A rotation keeps L2 lengths, so the L2 ball turns into itself; the "
        "square ball of sign descent does not.",
        "That of sign descent only": "Sign descent looks at the signs of the entries, and a rotation changes them.",
        "Neither": "A rotation keeps L2 lengths, so the L2-steepest step turns with the loss.",
    },
    answer="That of gradient descent only",
    reveal=plot_rotation,
)

muon_prediction = lesson.prediction(
    "04.P2",
    "One step of `torch.optim.Muon` with `lr=1` is taken on a Gaussian gradient of shape 64 x 128. The exact "
    "orthogonalised step has 64 singular values equal to 1. What are those of Muon's step?",
    {
        "1, to about three digits": "That is the accuracy of the number format; the polynomial is far coarser.",
        "Spread between about 0.7 and 1.1": "The five rounds are tuned to lift small values fast, not to end at 1.",
        "Those of the gradient, scaled": "Scaling is what gradient descent does; Muon's polynomial brings large "
        "and small singular values together.",
    },
    answer="Spread between about 0.7 and 1.1",
    reveal=plot_muon,
)

FIGURES = lesson.figures
