"""Figures, explorers and predictions of lesson 09, batch_norm_and_dropout."""

from collections.abc import Callable, Mapping
from functools import cache
from itertools import product

import numpy as np
import torch
from torch import Tensor

from course_lib.architectures.normalisation import (
    dropout_ridge,
    expected_dropout_loss,
    generalised_ridge,
    naive_batch_norm,
)
from course_lib.lessons.batch_norm_and_dropout.contents import lesson
from course_lib.teaching import Choice, Explorer, Slider, lines, panels
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED

F64 = {"dtype": torch.float64}
GRADIENT = torch.tensor([1.0, 2.0, 3.0, 6.0], **F64)
VALUES = torch.tensor([-2.0, -1.0, 1.0, 2.0], **F64)  # one channel of a batch of four
MATRIX, TARGET = torch.tensor([[1.0, 2.0], [3.0, -1.0]], **F64), torch.tensor([1.0, 2.0], **F64)
STEPS = 200


# The scale of weights


def network_parts() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return inputs (64, 10), targets (64,), first weights (10, 16) and fixed second weights (16,) of a small network."""
    generator = torch.Generator().manual_seed(9)
    x, first, second = (torch.randn(*shape, generator=generator, **F64) for shape in ((64, 10), (10, 16), (16,)))
    return x, torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2], first / 10**0.5, second / 4


def two_layers() -> tuple[Callable[..., Tensor], Tensor]:
    """Return the loss of that network in the weights of its first layer, and weights (10, 16) to start from.

    Inputs pass the weights, batch norm where `normalise` (without eps), ReLU, and the second layer; the loss is the
    mean squared error. Only the first layer is trained.
    """
    x, target, start, second = network_parts()

    def loss(weights: Tensor, *, normalise: bool = True) -> Tensor:
        hidden = x @ weights
        hidden = naive_batch_norm(hidden, eps=0.0) if normalise else hidden
        return (torch.relu(hidden) @ second - target).square().mean()

    return loss, start


@cache
def _losses(times: float | int, step_size: float | int) -> list[float]:
    loss, weights = two_layers()
    weights, found = times * weights, []
    for _ in range(STEPS):
        gradient, value = torch.func.grad_and_value(loss)(weights)
        found.append(float(value))
        weights = weights - step_size * gradient
    return found


def _question_curves() -> dict[str, list[float]]:
    return {"weights as drawn": _losses(1, 0.3), "the same weights times 10": _losses(10, 0.3)}


@lesson.figure(
    "One network, one step size, one start up to scale",
    "step",
    "loss",
    ylim=(0, 2.5),
    legend="lower left",
    example=_question_curves,
)
def plot_question(axes, curves: Mapping[str, list[float]]):
    """Draw the losses of two starts that differ by a factor."""
    lines(axes, None, curves)
    return (
        "Loss against the step of gradient descent for a network with batch norm. Both curves start at 2.26. From the "
        f"weights as drawn the loss falls to {curves['weights as drawn'][-1]:.2f} in 200 steps; from the same weights times "
        f"10 it only reaches {curves['the same weights times 10'][-1]:.2f}."
    )


@lesson.figure("Weights times 10 need 100 times the step", "step", "loss", ylim=(0, 2.5), legend="lower left")
def plot_rescaled(axes):
    """Draw the loss from weights times 10 with three step sizes, over that from the weights as drawn."""
    curves = {
        "as drawn, $\\eta$ = 0.3": _losses(1, 0.3),
        "times 10, $\\eta$ = 0.3": _losses(10, 0.3),
        "times 10, $\\eta$ = 3": _losses(10, 3),
    }
    lines(axes, None, curves)
    many = _losses(10, 30)
    axes.plot(range(0, STEPS, 8), many[::8], "o", color=BLACK, markersize=4, label="times 10, $\\eta$ = 30")
    return (
        "Loss against the step. The curve of the weights as drawn with step size 0.3 and that of weights times 10 with step "
        "size 30 lie on each other; weights times 10 with 0.3 fall slowly and with 3 faster, but neither follows."
    )


def _large_step() -> dict[str, tuple[list[float], list[float]]]:
    loss, start = two_layers()
    runs = {}
    for name, normalise in (("with batch norm", True), ("without", False)):
        weights, losses, norms = start, [], []
        for _ in range(60):
            gradient, value = torch.func.grad_and_value(loss)(weights, normalise=normalise)
            losses.append(float(value))
            norms.append(float(weights.norm()))
            if value > 1e12:
                break
            weights = weights - 30 * gradient
        runs[name] = (losses, norms)
    return runs


@lesson.figure(
    ["The loss at $\\eta$ = 30", "The length of the weights"],
    "step",
    ["loss", "$\\Vert W \\Vert$"],
    grid=(1, 2),
    legend=["upper right", None],
    yscale="log",
    ylim=[(0.3, 1e5), (1, 1e5)],
    example=_large_step,
)
def plot_large_step(loss, norm, runs: Mapping[str, tuple[list[float], list[float]]]):
    """Draw loss and length of the weights of runs (losses, lengths) with a step size far too large."""
    for axes, part in ((loss, 0), (norm, 1)):
        for place, (name, run) in enumerate(runs.items()):
            lines(axes, np.arange(len(run[part])), {name: run[part]}, first=place)
    return (
        "Two panels against the step, logarithmic. Without batch norm the loss and the length of the weights grow without "
        "end within a few steps. With batch norm the length of the weights jumps to about 40 in the first steps and "
        "then hardly changes, and the loss falls below 1."
    )


# The gradient that passes


def parts(gradient: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Split a gradient (n,) into the mean, the part along the normalised values, and the rest."""
    normal = naive_batch_norm(values[:, None], eps=0.0)[:, 0]
    mean, along = gradient.mean().expand(len(gradient)), (gradient * normal).mean() * normal
    return mean, along, gradient - mean - along


def _signed(values: Tensor) -> str:
    return "(" + ", ".join(f"{float(v) + 0.0:.3g}" for v in values.round(decimals=6)) + ")"


@lesson.figure(
    ["Arrives at the outputs: $g$", "Reaches the inputs: 2 ($g$ - mean)"],
    "example",
    "gradient",
    grid=(1, 2),
    legend="upper left",
    xticks=(1, 2, 3, 4),
    ylim=(-5, 8),
)
def plot_mean_removed(before, after):
    """Draw the worked gradient before and after mean-only batch norm."""
    for axes, values in ((before, GRADIENT), (after, 2 * (GRADIENT - 3))):
        axes.bar(range(1, 5), values.tolist(), color=BLUE, width=0.6)
        axes.axhline(float(values.mean()), color=RED, linestyle="--", label=f"mean {float(values.mean()):g}")
        for place, value in enumerate(values.tolist(), start=1):
            axes.annotate(
                f"{value:g}", (place, value), (0, 4 if value >= 0 else -12), textcoords="offset points", ha="center"
            )
    return (
        "Two bar charts over four examples. The gradient at the outputs is 1, 2, 3, 6 with the mean 3. The gradient at the "
        "inputs is -4, -2, 0, 6 with the mean 0."
    )


@lesson.figure(size=(6.6, 4.6), bare=True, aspect="equal", xlim=(-3.1, 4.2), ylim=(-1.9, 3.9))
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


@lesson.explorer
class GradientExplorer(Explorer):
    """Which part of a gradient passes batch norm."""

    title = "What batch norm removes from a gradient"
    summary = (
        "Three panels over four examples of one channel: the gradient g at the outputs with its mean and the inputs x, the "
        "two parts of g that batch norm may remove, and the gradient that reaches the inputs x."
    )
    mode = Choice(
        "kind of batch norm",
        "Which statistics of the batch the layer computes: none in evaluation, the mean, or mean and variance",
        "mean only",
        ("evaluation", "mean only", "full"),
    )
    first = Slider("gradient at x₁", "g₁", "The slope of the loss in the first output", 1.0, -6.0, 6.0, 0.5)
    second = Slider("gradient at x₂", "g₂", "The slope of the loss in the second output", 2.0, -6.0, 6.0, 0.5)
    third = Slider("gradient at x₃", "g₃", "The slope of the loss in the third output", 3.0, -6.0, 6.0, 0.5)
    fourth = Slider("gradient at x₄", "g₄", "The slope of the loss in the fourth output", 6.0, -6.0, 6.0, 0.5)
    gamma = Slider("weight", "γ", "What the normalised values are multiplied by", 2.0, 0.5, 2.0, 0.1)
    spread = Slider("spread of x", "s", "The standard deviation of the four inputs", 2.0, 1.0, 4.0, 0.1)
    size = (11.4, 3.9)
    layout = panels(
        ["Arrives: $g$", "Parts that can be removed", "Reaches $x$"],
        "example",
        ["gradient, or input", "gradient", "gradient"],
        grid=(1, 3),
        legend=[{"loc": "lower right", "fontsize": 8}] * 2 + [None],
        xticks=(1, 2, 3, 4),
        xlim=(0.3, 4.7),
        ylim=[(-9, 9), (-9, 9), (-19, 19)],
    )

    def compute(self, *, mode, first, second, third, fourth, gamma, spread):
        """Return g, its mean, its part along x-hat, and what reaches the inputs."""
        g = torch.tensor([first, second, third, fourth], **F64)
        mean, along, rest = parts(g, VALUES)
        normal = naive_batch_norm(VALUES[:, None], eps=0.0)[:, 0]
        removed = {"evaluation": 0 * g, "mean only": mean, "full": mean + along}[mode]
        factor = gamma if mode == "mean only" else gamma / spread
        passed = factor * (rest if mode == "full" else g - removed)
        return {
            "arrives": g.tolist(),
            "level": mean.numpy()[:2],
            "inputs": (spread * normal).numpy(),
            "mean": mean.numpy(),
            "along": along.numpy(),
            "reaches": passed.tolist(),
            "values": [
                (place, value + (1.2 if value >= 0 else -1.2), f"{value + 0.0:.3g}")
                for place, value in enumerate(passed.round(decimals=6).tolist(), 1)
            ],
            "said": (mode, float(mean[0]), float(along[3] / normal[3]), factor, gamma, spread, passed),
        }

    def draw(self, arrives, removed, reaches):
        """Draw bars, the mean and the two parts."""
        for axes in (arrives, removed, reaches):
            axes.axhline(0, color=BLACK, linewidth=0.8)
        places = [1, 2, 3, 4]
        (level,) = arrives.plot([0.3, 4.7], [0, 0], "--", color=RED, label="mean of g")
        (given,) = arrives.plot(places, [0] * 4, "D", color=BLACK, markersize=5, label="inputs x")
        mean, along = lines(removed, places, ["mean of g", "part along x̂"], first=1, marker="o")
        return {
            "arrives": list(arrives.bar(places, 0, width=0.6, color=BLUE)),
            "level": level,
            "inputs": given,
            "mean": mean,
            "along": along,
            "reaches": list(reaches.bar(places, 0, width=0.6, color=GREEN)),
            "values": [reaches.text(0, 0, "", ha="center", va="center", fontsize=9) for _ in places],
        }

    def words(self, state):
        """Say what is removed and what is left."""
        mode, mean, along, factor, gamma, spread, passed = state["said"]
        arrives = f"g = {_signed(torch.tensor(state['arrives'], **F64))}, γ = {gamma:g}, s = {spread:g}: "
        removed = {
            "evaluation": "the statistics are constants, nothing is removed",
            "mean only": f"the mean {mean:.3g} is removed",
            "full": f"the mean {mean:.3g} and {along:.3g} times x̂ are removed",
        }[mode]
        total = float(passed.sum()) + 0.0
        return (
            f"{arrives}{removed}, the rest is multiplied by {factor:.3g}, and {_signed(passed)} reaches x, with the sum "
            f"{0.0 if abs(total) < 1e-9 else total:.3g}."
        )


mean_prediction = lesson.prediction(
    "09.P1",
    "A layer subtracts the mean of four examples and multiplies by 2: $y_i = 2(x_i - \\bar x)$. At its outputs the "
    "gradient of the loss is $g = (1, 2, 3, 6)$. Which gradient reaches the inputs $x$?",
    {
        "(2, 4, 6, 12)": "So it would be if the mean were a constant. It is made of the inputs: each of them moves all four "
        "outputs.",
        "(-2, -1, 0, 3)": "The mean 3 is gone, as it must be; but the factor 2 of the layer multiplies what passes.",
        "(-4, -2, 0, 6)": "The mean of g is removed and the rest multiplied by 2. A shift of all four inputs changes no "
        "output, so their gradients add up to 0.",
        "(0, 0, 0, 0)": "Only a gradient that is equal for all examples would vanish. The differences between them pass.",
    },
    answer="(-4, -2, 0, 6)",
    reveal=plot_mean_removed,
)

scale_prediction = lesson.prediction(
    "09.P2",
    "All weights in front of batch norm start 10 times as large, and the outputs of the layer are the same as before. "
    "Which step size gives the same loss curve as the step size 0.3 gave with the weights as drawn?",
    {
        "0.003": "The other way round: larger weights are turned less by the same step, and need a larger one.",
        "0.3": "The question's figure shows that it does not.",
        "3": "That keeps the ratio of step size and weights. But the gradient is 10 times smaller as well.",
        "30": "The gradient is 10 times smaller and the weights 10 times larger: 100 times the step makes up for both.",
    },
    answer="30",
    reveal=plot_rescaled,
)


# Dropout


def _ellipse(matrix: Tensor, centre: Tensor, level: float | int) -> tuple[np.ndarray, np.ndarray]:
    """Points w with (w - centre)^T matrix (w - centre) = level."""
    turn = torch.linspace(0, 2 * torch.pi, 121, **F64)
    circle = torch.stack([turn.cos(), turn.sin()])
    points = centre[:, None] + max(level, 0.0) ** 0.5 * torch.linalg.solve(torch.linalg.cholesky(matrix).T, circle)
    return points[0].numpy(), points[1].numpy()


def _quadratic(keep: float) -> tuple[Tensor, Tensor]:
    """Matrix and minimiser of the expected dropout loss in the weights that are trained."""
    lengths = torch.diag(MATRIX.square().sum(0))
    return keep**2 * MATRIX.T @ MATRIX + keep * (1 - keep) * lengths, dropout_ridge(MATRIX, TARGET, keep=keep) / keep


@lesson.figure(
    ["What dropout charges", "Where the mean loss is smallest"],
    ["weight", "$\\tilde w_1$"],
    ["penalty", "$\\tilde w_2$"],
    grid=(1, 2),
    legend=["upper center", {"loc": "lower right", "fontsize": 8}],
    xlim=[(-1, 1), (0.3, 1.2)],
    xticks=[(-1, -0.5, 0, 0.5, 1), (0.4, 0.6, 0.8, 1.0, 1.2)],
    ylim=[(0, 2.2), (-0.4, 0.55)],
)
def plot_penalties(charge, plane):
    """Draw the two penalties and, in the plane of the weights, the minima with and without them."""
    weight = np.linspace(-1, 1, 101)
    lines(charge, weight, {"first weight: 1.6 $w^2$": 1.6 * weight**2, "second weight: 0.8 $w^2$": 0.8 * weight**2})
    least, (matrix, best) = torch.linalg.solve(MATRIX, TARGET), _quadratic(0.8)
    equal = generalised_ridge(MATRIX, TARGET, torch.full((2,), 0.25 * 7.5, **F64)) / 0.8
    for level in (0.05, 0.2, 0.5):
        plane.plot(*_ellipse(matrix, best, level), "-", color="0.6", linewidth=1.0)
    for name, point, look in (
        ("no masks: least squares / p", least / 0.8, "s"),
        ("equal penalties, same sum", equal, "^"),
        ("mean over all masks", best, "o"),
    ):
        color = {"s": ORANGE, "^": PURPLE, "o": BLUE}[look]
        plane.plot([float(point[0])], [float(point[1])], look, color=color, markersize=8, label=name)
    return (
        "Left, two parabolas: the penalty of the first weight, 1.6 w squared, is twice that of the second. Right, the plane "
        "of the two weights with ellipses of equal mean loss round its minimum at (0.709, 0.113). Least squares, divided "
        "by p, lies at (0.893, 0.179), and ridge with equal penalties at "
        f"({float(equal[0]):.3f}, {float(equal[1]):.3f})."
    )


def _ends() -> Tensor:
    generator = torch.Generator().manual_seed(9)
    weights = torch.zeros(400, 2, **F64)
    for _ in range(300):
        masked = MATRIX * (torch.rand(400, 2, 2, generator=generator) < 0.8)
        errors = TARGET - torch.einsum("crd,cd->cr", masked, weights)
        weights = weights + 0.04 * torch.einsum("crd,cr->cd", masked, errors)
    return weights


@lesson.figure(
    "SGD with masks: 400 of the runs",
    "$\\tilde w_1$",
    "$\\tilde w_2$",
    legend="lower left",
    xlim=(0.55, 1.0),
    ylim=(-0.3, 0.4),
    example=_ends,
)
def plot_cloud(axes, ends: Tensor):
    """Draw where runs of SGD with masks are (runs, 2), their mean, and what the derivation says."""
    axes.plot(ends[:400, 0], ends[:400, 1], ".", color="0.6", markersize=3, label="one run")
    (x, y), (best_x, best_y) = ends.mean(0).tolist(), (875 / 1234, 70 / 617)
    axes.plot([x], [y], "P", color=RED, markersize=11, label="mean of all runs")
    axes.plot([best_x], [best_y], "o", color=BLACK, markersize=5, label="(875/1234, 70/617)")
    least = (torch.linalg.solve(MATRIX, TARGET) / 0.8).tolist()
    axes.plot([least[0]], [least[1]], "s", color=ORANGE, markersize=7, label="least squares / p")
    return (
        "The plane of two weights with one grey point for each of 400 runs of stochastic gradient descent under random "
        f"masks. They scatter; the mean of all runs ({x:.2f}, {y:.2f}) lies on the predicted point (0.71, 0.11), away from "
        "the least-squares point (0.89, 0.18)."
    )


@lesson.explorer
class MaskExplorer(Explorer):
    """The 16 masks of a 2 x 2 table and the ellipse of their mean loss."""

    title = "Sixteen masks and one ellipse"
    summary = (
        "Left: the loss of each of the 16 masks, times its probability, ordered by the number of entries kept; the bars add "
        "up to the expected loss of the weights w/p. Right: the plane of the weights w with the line of equal expected loss "
        "through the weights in use, its minimum, and the path of that minimum over the keep probabilities."
    )
    keep = Slider("keep probability", "p", "How likely an entry of the table stays", 0.8, 0.4, 0.95, 0.05)
    first = Slider("first weight", "w₁", "Belongs to the column (1, 3), of length √10", 0.56, 0.0, 1.0, 0.02)
    second = Slider("second weight", "w₂", "Belongs to the column (2, -1), of length √5", -0.32, -0.5, 0.5, 0.02)
    together = ("first", "second")
    size = (9.6, 4.2)
    layout = panels(
        ["Probability × loss of each mask", "The plane of w = p w̃"],
        ["mask, by the number of entries kept", "$w_1$"],
        ["contribution to the mean", "$w_2$"],
        grid=(1, 2),
        legend=[None, {"loc": "upper right", "fontsize": 8}],
        xlim=[(-0.8, 15.8), (-0.6, 1.8)],
        ylim=[(0, 5.5), (-1.0, 1.3)],
    )
    masks = sorted(product((0.0, 1.0), repeat=4), key=sum)

    def compute(self, *, keep, first, second):
        """Return the bars, the ellipse, its centre and the two terms of the mean loss."""
        w = torch.tensor([first, second], **F64)
        weights = w / keep  # those that meet the masks
        kept = torch.tensor(self.masks, **F64)
        errors = TARGET - (kept.view(16, 2, 2) * MATRIX) @ weights
        chance = keep ** kept.sum(1) * (1 - keep) ** (4 - kept.sum(1))
        matrix, best = _quadratic(keep)
        fit = float((TARGET - keep * MATRIX @ weights).square().sum())
        total = float(expected_dropout_loss(MATRIX, TARGET, weights, keep=keep))
        away = weights - best  # the ellipse is drawn in w, p times as large
        return {
            "bars": (chance * errors.square().sum(1)).tolist(),
            "ellipse": tuple(keep * part for part in _ellipse(matrix, best, float(away @ matrix @ away))),
            "here": (first, second),
            "minimum": tuple((keep * best).tolist()),
            "terms": (keep, fit, total - fit),
        }

    def draw(self, bars, plane):
        """Draw empty bars, the path of the minima and the marks."""
        bars.set_xticks([0, 2.5, 7.5, 12.5, 15], ["0", "1", "2", "3", "4"])
        path = torch.stack([dropout_ridge(MATRIX, TARGET, keep=keep) for keep in np.linspace(0.4, 0.95, 23)])
        plane.plot(path[:, 0], path[:, 1], ":", color="0.4", label="minima, p = 0.4 to 0.95")
        (ellipse,) = plane.plot([], [], color=BLUE, label="equal expected loss")
        (here,) = plane.plot([], [], "D", color=RED, markersize=6, label="weights in use")
        (minimum,) = plane.plot([], [], "o", color=BLACK, markersize=6, label="minimum")
        return {
            "bars": list(bars.bar(range(16), 0, width=0.75, color=BLUE)),
            "ellipse": ellipse,
            "here": here,
            "minimum": minimum,
        }

    def words(self, state):
        """Say that the mean is fit plus penalty, and where the minimum is."""
        keep, fit, penalty = state["terms"]
        (x, y), (first, second) = state["minimum"], state["here"]
        return (
            f"p = {keep:g}, w = ({first:g}, {second:g}), masked inputs meet w/p: the 16 bars add up to "
            f"{sum(state['bars']):.4f} = {fit:.4f} for the fit + {penalty:.4f} for the penalty. The least mean loss is at "
            f"w = ({x:.3f}, {y:.3f})."
        )


penalty_prediction = lesson.prediction(
    "09.P3",
    "Least squares with two columns of inputs, of lengths $\\sqrt{10}$ and $\\sqrt5$. Before each step every entry of the "
    "table is kept with probability 0.8 and put to 0 otherwise. In the mean over the masks, what do the weights feel?",
    {
        "No penalty, only noise": "The noise is random, but its square has a mean above 0, which grows with the weights.",
        "The same penalty on both weights": "That would be ridge as in lesson 03. A masked entry of a long column disturbs "
        "more than one of a short column.",
        "Twice the penalty on the first weight": "The penalty of a weight is p(1 - p) times the squared length of its "
        "column: 0.16 · 10 and 0.16 · 5.",
        "Twice the penalty on the second weight": "The other way round: the longer the column, the more its masked entries "
        "disturb.",
    },
    answer="Twice the penalty on the first weight",
    reveal=plot_penalties,
)

FIGURES = lesson.figures
