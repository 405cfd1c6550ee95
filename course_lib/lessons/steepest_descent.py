"""Figures, explorer, predictions and exercises of lesson 04, steepest_descent."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.optimization.steepest_descent import (
    constrained_step,
    dual_norm,
    lp_step,
    orthogonal_factor,
    penalized_step,
    primal_norm,
)
from course_lib.teaching.exercise import Exercise, Mistake, Property
from course_lib.teaching.explorer import Explorer, Slider
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.style import BLACK, BLUE, GREEN, PURPLE, RED, describe, new_figure, styled

LABELS = {"l1": "L1", "l2": "L2", "linf": "L∞"}
EXPONENTS = {"l1": 1, "l2": 2, "linf": math.inf}
LOOKS = {"l1": (GREEN, "-."), "l2": (BLUE, "-"), "linf": (RED, "--")}
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


def arrow(
    start: tuple[int, int], end: tuple[float, float] | np.ndarray | Tensor, *, head: float = 0.12
) -> np.ndarray:
    """Return an arrow as one polyline of five points, so that it is a line like any other."""
    start, end = np.asarray(start, dtype=float), np.asarray(end, dtype=float)
    back = (start - end) / np.linalg.norm(end - start) * head
    wings = [end + np.array([[c, -s], [s, c]]) @ back for c, s in ((0.9, 0.45), (0.9, -0.45))]
    return np.stack([start, end, wings[0], end, wings[1]], axis=1)


# Figures


@styled
def plot_question() -> Figure:
    """Draw one gradient, three balls of the same radius, and the lowest point of the linear model on each."""
    gradient, radius = torch.tensor([2.0, 1.0], dtype=torch.float64), 1.0
    figure = new_figure(6.0, 5.4)
    axes = figure.add_subplot()
    x, y = np.meshgrid(np.linspace(-1.9, 1.9, 50), np.linspace(-1.4, 2.1, 50))
    axes.contour(x, y, 2 * x + y, levels=np.arange(-6, 7), colors="0.8", linewidths=0.8, linestyles="-")
    axes.plot(
        *arrow((0, 0), (0.8, 0.4)), color=BLACK, linestyle="-", linewidth=2.6, label="gradient $g$ (scaled)"
    )
    said = []
    for norm in ("l1", "l2", "linf"):
        color, style = LOOKS[norm]
        axes.plot(
            *ball(EXPONENTS[norm], radius),
            color=color,
            linestyle=style,
            linewidth=1.2,
            label=f"{LABELS[norm]} ball",
        )
        step = constrained_step(gradient, norm=norm, radius=radius)
        axes.plot(*arrow((0, 0), step), color=color, linestyle=style, linewidth=2.4)
        said.append(f"on the {LABELS[norm]} ball ({step[0] + 0.0:.2f}, {step[1] + 0.0:.2f})")
    axes.set(xlim=(-1.9, 1.9), ylim=(-1.4, 2.1), xlabel="$\\Delta[1]$", ylabel="$\\Delta[2]$")
    axes.set_title("One gradient, three steepest steps")
    axes.set_aspect("equal")
    axes.legend(loc="upper left", fontsize=8)
    return describe(
        figure,
        "The gradient (2, 1), the level lines of its linear model, and the balls of radius 1 of three norms around "
        "the origin: a diamond, a circle and a square. The lowest point of the linear model lies "
        + ", ".join(said)
        + ".",
    )


@styled
def plot_lengths(gradient: Tensor = EXAMPLE, *, alpha: float = 0.4) -> Figure:
    """Draw the penalised objective along the steepest ray of each norm, against the length, with its minimum."""
    figure = new_figure(6.4, 3.9)
    axes = figure.add_subplot()
    lengths, said = np.linspace(0, 2.6, 200), []
    for norm, marker in (("l1", "^"), ("l2", "o"), ("linf", "s")):
        color, style = LOOKS[norm]
        dual = float(dual_norm(gradient, norm=norm))
        best = alpha / 2 * dual
        axes.plot(
            lengths, -lengths * dual + lengths**2 / alpha, color=color, linestyle=style, label=LABELS[norm]
        )
        axes.plot(
            [best], [-alpha / 4 * dual**2], color=color, marker=marker, markersize=8, linestyle="none",
            label=f"length {best:.2f}",
        )  # fmt: skip
        said.append(f"{LABELS[norm]} at length {best:.2f} with value {-alpha / 4 * dual**2:.2f}")
    axes.set(
        xlabel="length $M$ of the step, in its own norm", ylabel="$-M\\|g\\|_* + M^2/\\alpha$", ylim=(-4.2, 4.2),
        title="The penalty chooses the length: $\\frac{\\alpha}{2}\\|g\\|_*$",
    )  # fmt: skip
    axes.legend(loc="upper left", ncols=3, fontsize=8)
    entries = ", ".join(f"{v:g}" for v in gradient.tolist())
    return describe(
        figure,
        f"The penalised objective along the steepest ray against the length of the step, for the gradient "
        f"({entries}) and alpha = {alpha:g}: three parabolas through zero, lowest for "
        + ", ".join(said)
        + ".",
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


@styled
def plot_widths(widths: Sequence[int] = (16, 32, 64, 128, 256, 512, 1024)) -> Figure:
    """Draw the RMS change of a layer's output after one step of length 0.1 against the layer's input width."""
    figure = new_figure(6.4, 3.9)
    axes = figure.add_subplot()
    looks = {
        "linf": ("L∞: sign step", RED, "--", "s"),
        "spectral": ("spectral: $UV^T$", PURPLE, ":", "D"),
        "rms_to_rms": ("RMS-to-RMS: $\\sqrt{d_{out}/d_{in}}\\,UV^T$", BLUE, "-", "o"),
    }
    changes = width_changes(widths)
    for norm, (label, color, style, marker) in looks.items():
        axes.loglog(
            widths, changes[norm], color=color, linestyle=style, marker=marker, markersize=5, label=label
        )
    axes.set(xlabel="input width $d_{in}$", ylabel="RMS change of the output", ylim=(0.02, 500))
    axes.set_title("The same length 0.1 in three norms ($d_{out}$ = 10)")
    axes.legend(loc="upper left", fontsize=8)
    first, last = ({norm: values[k] for norm, values in changes.items()} for k in (0, -1))
    return describe(
        figure,
        f"RMS change of a layer's output after one step of length 0.1 against its input width, both logarithmic. "
        f"From width {widths[0]} to {widths[-1]} the sign step's change grows from {first['linf']:.1f} to "
        f"{last['linf']:.0f}, that of the spectral step from {first['spectral']:.2f} to {last['spectral']:.1f}, "
        f"and that of the RMS-to-RMS step stays at {last['rms_to_rms']:.1f}.",
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


@styled
def plot_rotation(degrees: float = 35.0) -> Figure:
    """Draw paths on a quadratic, and on its rotated copy turned back, for gradient descent and sign descent."""
    turn = rotation(degrees)
    start = torch.tensor([-1.8, 0.9], dtype=torch.float64)
    figure = new_figure(8.8, 4.0)
    angle = np.linspace(0, 2 * np.pi, 200)
    gaps = {}
    for axes, (norm, name) in zip(
        figure.subplots(1, 2), (("l2", "gradient descent"), ("linf", "sign descent")), strict=True
    ):
        for r in (0.6, 1.4, 2.4):
            axes.plot(
                r * np.cos(angle), r * np.sin(angle) / math.sqrt(6), color="0.75", linewidth=1, linestyle="-"
            )
        plain = quadratic_path(HESSIAN, start, norm=norm)
        # Row vectors: (w Q) is Q^T w, which turns a path of the rotated problem back.
        turned = quadratic_path(turn @ HESSIAN @ turn.T, turn @ start, norm=norm) @ turn
        gaps[name] = float((plain - turned).norm(dim=1).max())
        axes.plot(*plain.T, color=BLUE, linestyle="-", marker="o", markersize=5, label="path")
        axes.plot(
            *turned.T, color=RED, linestyle="--", marker="x", markersize=6, label="rotated, turned back"
        )
        axes.set(
            xlim=(-2.5, 1.2), ylim=(-1.1, 1.5), xlabel="$w[1]$", ylabel="$w[2]$", title=name.capitalize()
        )
        axes.set_aspect("equal")
        axes.legend(loc="upper right", fontsize=8)
    return describe(
        figure,
        f"Paths on a quadratic and on a copy of it rotated by {degrees:g} degrees, the second turned back to be laid "
        f"over the first. Gradient descent: the two coincide. Sign descent: they differ by up to "
        f"{gaps['sign descent']:.2f}.",
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
    return (
        (left * torch.logspace(0, math.log10(smallest), len(values), dtype=torch.float64)) @ right
    ).float()


@styled
def plot_muon() -> Figure:
    """Draw Muon's polynomial after five rounds, and the singular values of one step of torch.optim.Muon."""
    figure = new_figure(9.0, 4.0)
    left, right = figure.subplots(1, 2)
    values = torch.logspace(-4, 0, 600, dtype=torch.float64)
    left.semilogx(values, muon_polynomial(values), color=BLUE, linestyle="-", label="five rounds")
    left.axhline(1, color=BLACK, linewidth=1, linestyle="--", label="exact")
    left.set(
        xlabel="singular value before, with $\\|G\\|_F = 1$", ylabel="singular value after", ylim=(0, 1.4)
    )
    left.set_title("The polynomial")
    left.legend(loc="lower right")
    gaussian = torch.randn(64, 128, generator=torch.Generator().manual_seed(0))
    said = []
    for gradient, label, color, style in (
        (gaussian, "Gaussian gradient", GREEN, "-."),
        (decaying_gradient(64, 128, smallest=1e-4), "decaying to $10^{-4}$", RED, ":"),
    ):
        found = torch.linalg.svdvals(muon_step(gradient))
        right.plot(np.arange(1, 65), found, color=color, linestyle=style, linewidth=2.2, label=label)
        said.append(f"from {found.min():.1f} to {found.max():.1f}")
    right.axhline(1, color=BLACK, linewidth=1, linestyle="--", label="exact step $UV^T$")
    right.set(xlabel="rank of the singular value", ylabel="singular value of the step", ylim=(0, 1.4))
    right.set_title("One step of torch.optim.Muon")
    right.legend(loc="lower left", fontsize=8)
    return describe(
        figure,
        "Left: five rounds of Muon's polynomial lift singular values above about 0.002 into a band around 1, and "
        "smaller ones not that far. Right: singular values of one step of torch.optim.Muon on 64 x 128 matrices: "
        f"for a Gaussian gradient they range {said[0]}, for one with singular values from 1 to 0.0001 {said[1]}; "
        "the exact step has only ones.",
    )


# Explorer


class BallExplorer(Explorer):
    """The unit ball of a norm, a gradient that can be turned, and the steepest step on the ball."""

    title = "The steepest step on the ball of a norm"
    summary = (
        "Left: the ball of a norm, a gradient of Euclidean length 1, the steepest step and the level line of the "
        "linear model that touches the ball there. Right: the change of the linear model for every point of the "
        "ball's boundary, against its direction, with its lowest point."
    )
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "inverse": Slider(
            label="norm Lp, given as", symbol="1/p", default=0.5, minimum=0.0, maximum=1.0, step=0.05,
            tooltip="How a step is measured: 0 is L∞ (largest entry), 1/2 is L2, 1 is L1 (sum of sizes)",
        ),
        "angle": Slider(
            label="gradient angle", symbol="θ", unit="deg", default=25, minimum=0, maximum=355, step=5,
            tooltip="Direction of the gradient; its Euclidean length is 1",
        ),
        "radius": Slider(
            label="radius of the ball", symbol="η", default=1.0, minimum=0.3, maximum=1.5, step=0.05,
            tooltip="The largest length that a step may have",
        ),
    }  # fmt: skip
    size = (9.0, 4.2)

    def compute(self, *, inverse, angle, radius):
        """Return ball, gradient, step, touching line and the change of the linear model around the boundary."""
        inverse = round(inverse, 2)  # sliders count in steps of 0.05, and floats do not
        p, q = (1 / share if share else math.inf for share in (inverse, 1 - inverse))
        # Rounded, so that the entries at 90 degrees are 0 and those at 45 degrees equal.
        gradient = torch.tensor(
            [round(math.cos(math.radians(angle)), 12), round(math.sin(math.radians(angle)), 12)],
            dtype=torch.float64,
        )
        step, boundary = lp_step(gradient, p=p, radius=radius), ball(p, radius)
        lowest = float(gradient @ step)
        along, foot = np.array([-gradient[1], gradient[0]]), lowest * gradient.numpy()
        sizes = gradient.abs()
        edge = (p == 1 and bool(sizes[0] == sizes[1])) or (p == math.inf and bool((sizes == 0).any()))
        return {
            "p": p, "q": q, "angle": angle, "radius": radius, "gradient": gradient.numpy(), "step": step.numpy(),
            "boundary": boundary, "touching": np.stack([foot - 6 * along, foot + 6 * along], axis=1),
            "changes": gradient.numpy() @ boundary, "lowest": lowest, "edge": edge,
            "direction": math.degrees(math.atan2(step[1], step[0])) % 360,
        }  # fmt: skip

    def draw(self, figure):
        """Draw both axes with fixed limits."""
        plane, around = figure.subplots(1, 2)
        plane.set(
            xlim=(-2.7, 2.7), ylim=(-1.9, 3.0), xlabel="$\\Delta[1]$", ylabel="$\\Delta[2]$", title="Ball and step"
        )  # fmt: skip
        plane.set_aspect("equal")
        lines = {
            "boundary": plane.plot([], [], color=BLUE, linestyle="-", linewidth=1.4, label="ball")[0],
            "touching": plane.plot([], [], color="0.5", linestyle=":", linewidth=1.4, label="level line")[0],
            "gradient": plane.plot([], [], color=BLACK, linestyle="-", linewidth=2.0, label="gradient")[0],
            "step": plane.plot([], [], color=RED, linestyle="--", linewidth=2.6, label="steepest step")[0],
        }
        plane.legend(loc="upper left", fontsize=8, ncols=2)
        around.set(
            xlim=(0, 360), ylim=(-2.3, 2.9), xticks=range(0, 361, 90), xlabel="direction of the step (degrees)",
            ylabel="$\\langle g, \\Delta\\rangle$", title="Change of the linear model",
        )  # fmt: skip
        around.axhline(0, color=BLACK, linewidth=0.8, linestyle="-")
        lines["changes"] = around.plot([], [], color=BLUE, linestyle="-", label="on the boundary")[0]
        lines["lowest"] = around.plot(
            [], [], color=RED, marker="o", markersize=9, linestyle="none", label="steepest step"
        )[0]
        around.legend(loc="upper left", fontsize=8, ncols=2)
        return lines

    def update(self, artists, state):
        """Move the ball, the arrows, the touching line and the curve."""
        artists["boundary"].set_data(*state["boundary"])
        artists["touching"].set_data(*state["touching"])
        artists["gradient"].set_data(*arrow((0, 0), state["gradient"]))
        artists["step"].set_data(*arrow((0, 0), state["step"]))
        artists["changes"].set_data(np.arange(len(state["changes"])), state["changes"])
        artists["lowest"].set_data([state["direction"]], [state["lowest"]])

    def words(self, state):
        """Say which step is steepest, what it gains, and how far it turns from the negative gradient."""
        a, b = (round(float(v), 2) + 0.0 for v in state["step"])
        cosine = -state["lowest"] / float(np.linalg.norm(state["step"]))
        turned = math.degrees(math.acos(min(1.0, max(-1.0, cosine))))
        turning = "along -g" if turned < 0.05 else f"{turned:.0f} degrees away from -g"
        name, dual = ("L∞" if x == math.inf else f"L{x:.3g}" for x in (state["p"], state["q"]))
        only = (
            " It is not the only one: the level line touches the ball in a whole edge."
            if state["edge"]
            else ""
        )
        return (
            f"{name} ball of radius {state['radius']:.2f}, gradient at {state['angle']} degrees: the steepest step is "
            f"({a:.2f}, {b:.2f}), {turning}. It changes the linear model by {state['lowest']:.2f}, -η times the dual "
            f"norm {dual} of g.{only}"
        )


# Predictions


def rotation_prediction() -> Prediction:
    """Ask which of two methods does not care about a rotation of its coordinates."""
    return Prediction(
        "04.P1",
        "A quadratic loss and its start are rotated by 35 degrees, gradient descent and sign descent are run on both, "
        "and the paths on the rotated loss are turned back. Whose path is the same as before?",
        choices={
            "Both": "Sign descent moves along the diagonals of its coordinates, and those do not turn with the loss.",
            "That of gradient descent only": "A rotation keeps L2 lengths, so the L2 ball turns into itself; the "
            "square ball of sign descent does not.",
            "That of sign descent only": "Sign descent looks at the signs of the entries, and a rotation changes them.",
            "Neither": "A rotation keeps L2 lengths, so the L2-steepest step turns with the loss.",
        },
        answer="That of gradient descent only",
        reveal=plot_rotation,
    )


def muon_prediction() -> Prediction:
    """Ask how close the singular values of a real Muon step are to 1."""
    return Prediction(
        "04.P2",
        "One step of `torch.optim.Muon` with `lr=1` is taken on a Gaussian gradient of shape 64 x 128. The exact "
        "orthogonalised step has 64 singular values equal to 1. What are those of Muon's step?",
        choices={
            "1, to about three digits": "That is the accuracy of the number format; the polynomial is far coarser.",
            "Spread between about 0.7 and 1.1": "The five rounds are tuned to lift small values fast, not to end at 1.",
            "Those of the gradient, scaled": "Scaling is what gradient descent does; Muon's polynomial brings large "
            "and small singular values together.",
        },
        answer="Spread between about 0.7 and 1.1",
        reveal=plot_muon,
    )


# Exercises


def _uniform(generator: torch.Generator, low: float, high: float, digits: int = 2) -> float:
    return round(low + (high - low) * float(torch.rand((), generator=generator)), digits)


def _length_objective(length: float) -> float:
    """-M ||g||_1 + M^2 / alpha for the exercise's g = (2, -3, 1) and alpha = 0.5."""
    return -6 * length + length**2 / 0.5


_LENGTH = Exercise(
    id="04.1",
    title="How long is the penalised sign step",
    kind="value",
    difficulty=1,
    minutes=4,
    prompt="Let $g = (2, -3, 1)$ and $\\alpha = 0.5$. The minimiser of "
    "$\\langle g, \\Delta\\rangle + \\frac1\\alpha\\lVert\\Delta\\rVert_\\infty^2$ moves every weight by the same amount "
    "$M$, up or down. What is $M$?",
    draw=lambda generator: {"change": _uniform(generator, 0.002, 0.02, 4)},
    reference=1.5,
    properties=(
        Property("The length of a step is positive.", lambda i, m: m > 0),
        Property(
            "A slightly longer step has a lower objective than yours.",
            lambda i, m: _length_objective(float(m)) <= _length_objective(float(m) * (1 + i["change"])),
        ),
        Property(
            "A slightly shorter step has a lower objective than yours.",
            lambda i, m: _length_objective(float(m)) <= _length_objective(float(m) * (1 - i["change"])),
        ),
    ),
    hints=(
        "Write the objective for a step that moves every weight by M against the sign of its gradient.",
        "The inner product of that step with g is -M times the sum of the absolute entries of g.",
        "Minimise -M‖g‖₁ + M²/α over M: set its derivative to zero.",
    ),
    mistakes=(
        Mistake("forgot the one half", 3.0, "You lost the factor 1/2: the derivative of M²/α is 2M/α, so M = "
                "(α/2)‖g‖₁.", lambda i, m: abs(m - 3.0) < 0.01),
        Mistake("largest entry", 0.75, "You used the largest entry of g. That is the norm of the step; the gradient is "
                "measured in the dual norm, the sum of its absolute entries.", lambda i, m: abs(m - 0.75) < 0.01),
        Mistake("Euclidean length", math.sqrt(14) / 4, "You used the Euclidean length of g, which belongs to the L2 "
                "penalty; here the dual norm is the sum of the absolute entries.",
                lambda i, m: abs(m - math.sqrt(14) / 4) < 0.01),
        Mistake("minimum value", -4.5, "That is the smallest value of the objective, -(α/4)‖g‖₁², and the question "
                "asks where it is reached.", lambda i, m: abs(m + 4.5) < 0.01),
        Mistake("left out the step size", 6.0, "That is ‖g‖₁ alone: multiply it by α/2.",
                lambda i, m: abs(m - 6.0) < 0.01),
    ),
)  # fmt: skip


def sign_step(gradient, alpha):
    """Return the minimiser of <g, D> + max_i |D_i|^2 / alpha."""
    return -0.5 * alpha * gradient.abs().sum() * gradient.sign()


def _draw_gradient(generator: torch.Generator) -> dict:
    count = int(torch.randint(2, 5, (), generator=generator))
    magnitudes = (0.2 + 2.8 * torch.rand(count, generator=generator, dtype=torch.float64)).round(decimals=1)
    signs = torch.randint(2, (count,), generator=generator, dtype=torch.float64) * 2 - 1
    return {"gradient": magnitudes * signs, "alpha": _uniform(generator, 0.2, 1.8, 1)}


_SIGN = Exercise(
    id="04.2",
    title="Sign descent from a penalty",
    kind="function",
    difficulty=1,
    minutes=6,
    prompt="Write `sign_step(gradient, alpha)`: the minimiser of "
    "$\\langle g, \\Delta\\rangle + \\frac1\\alpha\\lVert\\Delta\\rVert_\\infty^2$. `gradient` is $g$, a float64 tensor of "
    "two to four entries, none of them zero, and `alpha` is $\\alpha > 0$; return a tensor of the same shape.",
    draw=_draw_gradient,
    reference=sign_step,
    properties=(
        Property("The step should lower the linear model.", lambda i, d: float(i["gradient"] @ d) < 0),
        Property(
            "The objective at your step is not the smallest possible.",
            lambda i, d: float(i["gradient"] @ d + d.abs().max() ** 2 / i["alpha"])
            <= -i["alpha"] / 4 * float(i["gradient"].abs().sum()) ** 2 + 1e-9,
        ),
    ),
    hints=(
        "All entries of the step may be as large as the largest one without a further penalty.",
        "So every entry has the same size M; only its sign depends on the entry of g.",
        "M is α/2 times the norm of g that is dual to the largest entry.",
    ),
    mistakes=(
        Mistake("went uphill", lambda g, a: 0.5 * a * g.abs().sum() * g.sign(),
                "Your step goes uphill: each weight moves against the sign of its gradient."),
        Mistake("left out the dual norm", lambda g, a: -0.5 * a * g.sign(),
                "Your step is as long for a small gradient as for a large one. That is a constrained step; the penalty "
                "makes the length α/2 times ‖g‖₁."),
        Mistake("forgot the one half", lambda g, a: -a * g.abs().sum() * g.sign(),
                "Your step is twice too long: the derivative of M²/α is 2M/α."),
        Mistake("largest entry", lambda g, a: -0.5 * a * g.abs().max() * g.sign(),
                "You measured the gradient by its largest entry. The dual of the largest entry is the sum."),
        Mistake("gradient descent", lambda g, a: -0.5 * a * g,
                "That is the step for the squared L2 penalty, gradient descent."),
    ),
)  # fmt: skip


def _unsquared(c: Mapping, d1: float, d2: float) -> float:
    """<g, D> + ||D||_2 / alpha, the objective as the notes print it."""
    return c["gradient_1"] * d1 + c["gradient_2"] * d2 + math.hypot(d1, d2) / c["alpha"]


def _printed_step(c: Mapping) -> tuple[float, float]:
    return -c["alpha"] / 2 * c["gradient_1"], -c["alpha"] / 2 * c["gradient_2"]


def _is_lower(c: Mapping) -> bool:
    c = {name: float(value) for name, value in c.items()}
    return _unsquared(c, c["step_1"], c["step_2"]) <= _unsquared(c, *_printed_step(c)) - 0.01


def _flaw(c: Mapping) -> str:
    """Name what keeps a proposed counterexample from being one."""
    c = {name: float(value) for name, value in c.items()}
    if c["alpha"] <= 0:
        return "no penalty"
    if _is_lower(c):
        return "none"
    printed, step = _printed_step(c), (c["step_1"], c["step_2"])
    slope = c["alpha"] * math.hypot(c["gradient_1"], c["gradient_2"])
    if abs(slope - 1) < 1e-3:
        return "border"
    if math.dist(step, printed) <= 1e-3 * math.hypot(*printed):
        return "same"
    if c["gradient_1"] * step[0] + c["gradient_2"] * step[1] > 0:
        return "uphill"
    if slope > 1:
        return "too short" if math.hypot(*step) < math.hypot(*printed) else "other"
    return "too long" if math.hypot(*step) > math.hypot(*printed) else "other"


def _flaw_case(g1: float, g2: float, alpha: float, d1: float, d2: float) -> dict:
    return {"gradient_1": g1, "gradient_2": g2, "alpha": alpha, "step_1": d1, "step_2": d2}


_UNSQUARED = Exercise(
    id="04.3",
    title="The square that was lost",
    kind="flaw",
    difficulty=2,
    minutes=8,
    prompt="The notes say that $\\langle g, \\Delta\\rangle + \\frac1\\alpha\\lVert\\Delta\\rVert_2$, with the norm and not "
    "its square, is smallest at $\\Delta = -\\frac\\alpha2 g$. Give a counterexample in the plane: a dictionary with the "
    "numbers `gradient_1`, `gradient_2`, `alpha` ($\\alpha > 0$), `step_1` and `step_2`, such that this objective is "
    "lower at your step than at $-\\frac\\alpha2 g$, by 0.01 or more.",
    draw=lambda generator: {"seed": int(torch.randint(1000, (), generator=generator))},
    reference=_flaw_case(3.0, 4.0, 0.4, -6.0, -8.0),
    properties=(
        Property("Take α > 0.", lambda i, c: c["alpha"] > 0),
        Property(
            "At your step the objective is not lower than at the notes' minimiser.",
            lambda i, c: c["alpha"] > 0 and _is_lower(c),
        ),
    ),
    hints=(
        "Look at steps along -g only: how does the objective depend on their length?",
        "Along -g both terms are proportional to the length, so the objective is a straight line.",
        "If ‖g‖₂ > 1/α the line falls for ever; if ‖g‖₂ < 1/α it rises from 0. Choose your step accordingly.",
    ),
    mistakes=(
        Mistake("a penalty below zero", _flaw_case(3.0, 4.0, -0.4, -6.0, -8.0),
                "With α of 0 or below the second term is no penalty. Take α > 0.",
                lambda i, c: _flaw(c) == "no penalty"),
        Mistake("the same step", _flaw_case(3.0, 4.0, 0.4, -0.6, -0.8),
                "Your step is the notes' own, -(α/2)g: give another one that is better.",
                lambda i, c: _flaw(c) == "same"),
        Mistake("uphill", _flaw_case(3.0, 4.0, 0.4, 0.6, 0.8),
                "Your step goes uphill: its product with g is positive, and the penalty is paid on top.",
                lambda i, c: _flaw(c) == "uphill"),
        Mistake("on the border", _flaw_case(3.0, 4.0, 0.2, -6.0, -8.0),
                "You chose ‖g‖₂ = 1/α (nearly): there both terms cancel along -g, and no step is below 0.",
                lambda i, c: _flaw(c) == "border"),
        Mistake("shorter where longer is better", _flaw_case(3.0, 4.0, 0.4, -0.3, -0.4),
                "Here ‖g‖₂ > 1/α, so the objective falls along -g without end: take a longer step, not a shorter one.",
                lambda i, c: _flaw(c) == "too short"),
        Mistake("longer where shorter is better", _flaw_case(0.3, 0.4, 0.4, -0.3, -0.4),
                "Here ‖g‖₂ < 1/α, so the penalty outweighs every gain: take a shorter step, or none.",
                lambda i, c: _flaw(c) == "too long"),
    ),
)  # fmt: skip


def spectral_step(gradient, radius):
    """Return the minimiser of <G, D> over matrices D whose largest singular value is at most eta."""
    left, _, right = torch.linalg.svd(gradient, full_matrices=False)
    return -radius * left @ right


def _draw_matrix(generator: torch.Generator) -> dict:
    rows, columns = (int(torch.randint(2, 5, (), generator=generator)) for _ in range(2))
    gradient = torch.randn(rows, columns, generator=generator, dtype=torch.float64).round(decimals=1)
    gradient[0, 0] += 3  # never the zero matrix
    return {"gradient": gradient, "radius": _uniform(generator, 0.1, 0.9, 1)}


def _lowest(i: Mapping, step: Tensor, *, norm: str) -> bool:
    reached = float((i["gradient"] * step).sum())
    return reached <= -i["radius"] * float(dual_norm(i["gradient"], norm=norm)) + 1e-8


_SPECTRAL = Exercise(
    id="04.4",
    title="The step on the spectral ball",
    kind="function",
    difficulty=2,
    minutes=8,
    prompt="Write `spectral_step(gradient, radius)`: the matrix $\\Delta$ that makes $\\langle G, \\Delta\\rangle$ as small "
    "as possible among all whose largest singular value is at most $\\eta$. `gradient` is $G$, a float64 matrix of any "
    "shape, `radius` is $\\eta$; return a matrix of the same shape.",
    draw=_draw_matrix,
    reference=spectral_step,
    properties=(
        Property(
            "The largest singular value of your step is above the radius.",
            lambda i, d: float(primal_norm(d, norm="spectral")) <= i["radius"] * (1 + 1e-8),
        ),
        Property(
            "A step inside the ball lowers the linear model further than yours.",
            lambda i, d: _lowest(i, d, norm="spectral"),
        ),
    ),
    hints=(
        "In the singular directions of G, the product with G is a sum of singular values times gains.",
        "Each gain is at most η in size, so each direction should use all of it.",
        "Keep the singular vectors of G and replace each singular value; torch.linalg.svd returns V already transposed.",
    ),
    mistakes=(
        Mistake("went uphill", lambda g, r: r * orthogonal_factor(g),
                "Your step goes uphill: the product with G should be as small as possible, so a minus is missing."),
        Mistake("gradient over its Frobenius norm", lambda g, r: -r * g / g.norm(),
                "You scaled the gradient to Frobenius length η. That is the step on the L2 ball; on the spectral ball "
                "every singular value may reach η."),
        Mistake("gradient over its spectral norm", lambda g, r: -r * g / torch.linalg.svdvals(g)[0],
                "Only your largest singular value is η. The others may grow up to η as well, and each gains."),
        Mistake("signs of the entries", lambda g, r: -r * g.sign(),
                "You took the signs of the entries, the step of the L∞ ball. Here the singular values become equal, "
                "not the entries."),
        Mistake("transposed twice", lambda g, r: -r * (lambda u, _, v: u @ v.T)(*torch.linalg.svd(g, False)),
                "You transposed V once too often: torch.linalg.svd returns its transpose already."),
    ),
)  # fmt: skip


def rms_step(gradient, radius):
    """Return the minimiser of <G, D> over matrices D with RMS-to-RMS norm at most eta."""
    left, _, right = torch.linalg.svd(gradient, full_matrices=False)
    rows, columns = gradient.shape
    return -radius * math.sqrt(rows / columns) * left @ right


def _scaled_factor(gradient: Tensor, radius: float, scale: float) -> Tensor:
    return -radius * scale * orthogonal_factor(gradient)


_RMS = Exercise(
    id="04.5",
    title="The step that widths do not change",
    kind="function",
    difficulty=3,
    minutes=12,
    prompt="Write `rms_step(gradient, radius)`: the matrix $\\Delta$ that makes $\\langle G, \\Delta\\rangle$ as small as "
    "possible while no input $x$ has its output changed by more than $\\eta$ times its own root mean square: "
    "$\\mathrm{RMS}(\\Delta x) \\le \\eta\\,\\mathrm{RMS}(x)$ for all $x$. `gradient` is $G$, a float64 matrix of shape "
    "`(d_out, d_in)`, `radius` is $\\eta$.",
    draw=_draw_matrix,
    reference=rms_step,
    properties=(
        Property(
            "Some input has its output changed by more than the radius allows.",
            lambda i, d: float(primal_norm(d, norm="rms_to_rms")) <= i["radius"] * (1 + 1e-8),
        ),
        Property(
            "A step that keeps to the bound lowers the linear model further than yours.",
            lambda i, d: _lowest(i, d, norm="rms_to_rms"),
        ),
    ),
    hints=(
        "Write RMS(Δx) and RMS(x) by Euclidean lengths: which power of d_out and of d_in appears?",
        "The condition is a bound on the spectral norm of Δ. Which one?",
        "The spectral norm may be up to η times the root of a ratio of the two widths; then it is exercise 04.4.",
    ),
    mistakes=(
        Mistake("left out the widths", lambda g, r: _scaled_factor(g, r, 1),
                "That is the step of the spectral ball. RMS divides by the number of entries, which differs between "
                "input and output: a ratio of widths is missing."),
        Mistake("ratio upside down", lambda g, r: _scaled_factor(g, r, math.sqrt(g.shape[1] / g.shape[0])),
                "Your ratio is upside down. A wide output has a small RMS for the same length, so it allows a longer "
                "step: d_out belongs on top."),
        Mistake("no square root", lambda g, r: _scaled_factor(g, r, g.shape[0] / g.shape[1]),
                "The square root is missing: RMS divides the Euclidean length by the root of the number of entries."),
        Mistake("never below one", lambda g, r: _scaled_factor(g, r, math.sqrt(max(1, g.shape[0] / g.shape[1]))),
                "You used max(1, d_out/d_in), as torch.optim.Muon does by default. For wide inputs the exact factor is "
                "below 1, and your step changes some output by more than η."),
        Mistake("one over the input width", lambda g, r: _scaled_factor(g, r, 1 / g.shape[1]),
                "You divided by the input width. That is the usual factor for a sign step; here the singular values "
                "are bounded, and the factor is a root of d_out/d_in."),
    ),
)  # fmt: skip

EXERCISES = {e.id: e for e in (_LENGTH, _SIGN, _UNSQUARED, _SPECTRAL, _RMS)}

FIGURES = {
    "question": plot_question,
    "lengths": plot_lengths,
    "widths": plot_widths,
    "rotation": plot_rotation,
    "explorer": lambda: BallExplorer().strip(),
    "muon": plot_muon,
}
