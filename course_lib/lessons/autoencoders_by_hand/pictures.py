"""Experiments, figures, explorer and predictions of lesson 25, autoencoders_by_hand."""

from functools import cache

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.lessons.autoencoders_by_hand.contents import lesson
from course_lib.sae.by_hand import (
    AUTOENCODER,
    DECODER,
    ENCODER,
    EXAMPLES,
    SPARSE,
    TOKENS,
    BackwardPass,
    Layer,
    backward,
    forward,
    matrix,
    sparse_backward,
    sparse_loss,
    squared_error,
    step,
)
from course_lib.teaching import Explorer, Slider, lines, panels
from course_lib.teaching.style import BLACK, BLUE, GREEN, RED, SKY


@cache
def autoencoder_losses(*, step_size: float | int, steps: int) -> list[float]:
    """Return the autoencoder's loss before each of `steps` steps and after the last."""
    layers, losses = AUTOENCODER, []
    for _ in range(steps + 1):
        passed = forward(layers, EXAMPLES)
        losses.append(float(squared_error(passed.output, EXAMPLES)))
        layers = step(layers, backward(layers, passed, EXAMPLES), step_size=step_size)
    return losses


def _plain_backward(layers, passed, x: Tensor, *, l1: float | int) -> BackwardPass:
    """Gradients of the reconstruction error plus l1 times the plain sum of the features."""
    found = sparse_backward(layers, passed, x, l1=0)
    delta = (found.from_reconstruction + l1) * (passed.sums[0] > 0)
    return BackwardPass((delta, found.errors[1]), (delta @ x.T, found.weights[1]), (delta.sum(1), found.biases[1]))


@cache
def sparse_run(*, l1: float | int, steps: int, step_size: float | int = 0.002, weighted: bool = True) -> dict:
    """Train on the five tokens; return loss parts, active features and norms before each step and at the end.

    With `weighted=False` the penalty is l1 times the plain sum of the features, without the columns' norms.
    """
    layers, rows = SPARSE, []
    for _ in range(steps + 1):
        passed = forward(layers, TOKENS)
        loss, features = sparse_loss(layers, passed, TOKENS, l1=l1), passed.values[1]
        parts = {name: float(getattr(loss, name)) for name in ("reconstruction", "sparsity", "total")}
        counts = {"features": float(features.sum()), "active": int((features > 0).sum())}
        rows.append({**parts, **counts, "norm": float(loss.column_norms.mean())})
        gradients = (sparse_backward if weighted else _plain_backward)(layers, passed, TOKENS, l1=l1)
        layers = step(layers, gradients, step_size=step_size)
    return {name: [row[name] for row in rows] for name in rows[0]}


CELL = 0.74  # height of a cell, in widths


def _number(value: float) -> str:
    return f"{round(value, 2) + 0.0:g}"


def _rows_in_words(table: Tensor) -> str:
    return "; ".join(" ".join(_number(v) for v in row) for row in table.tolist())


def draw_table(
    axes: Axes,
    left: float | int,
    top: float | int,
    title: str,
    color: str,
    table: Tensor,
    bias: Tensor | None = None,
    *,
    off: Tensor | bool = False,
    blank: bool = False,
) -> float:
    """Draw a matrix as cells under a title, its top left corner at (left, top) with y pointing down; return its end.

    `bias` is one more column, set apart; `off` shades cells; `blank` leaves a question mark in each.
    """
    faces = np.where(off & ~torch.full_like(table, blank, dtype=bool), "0.82", "white")
    if bias is not None:
        table = torch.cat([table, bias[:, None]], dim=1)
        faces = np.column_stack([faces, ["0.95"] * len(table)])
    axes.text(left, top - 0.14, title, ha="left", va="bottom", fontsize=9, color=color)
    look = {"ha": "center", "va": "center", "fontsize": 8.5, "color": "0.5" if blank else BLACK}
    for (i, j), face in np.ndenumerate(faces):
        x, y = left + j, top + i * CELL
        axes.add_patch(Rectangle((x, y), 1, CELL, facecolor=face, edgecolor="0.6", linewidth=0.6))
        axes.text(x + 0.5, y + CELL / 2, "?" if blank else _number(float(table[i, j])), **look)
    return top + len(table) * CELL


@lesson.figure(
    bare=True,
    size=(9.6, 6.2),
    xlim=(-0.15, 21.15),
    ylim=(16 * CELL + 3.5, -0.85),  # matrices are written downwards
    variants={"question": {"until": "nothing"}, "forward": {"until": "forward"}, "backward": {}},
)
def plot_worksheet(axes, *, until: str = "backward"):
    """Draw the autoencoder as a worksheet; `until` is "nothing", "forward" or "backward": what is filled in."""
    passed = forward(AUTOENCODER, EXAMPLES)
    found = backward(AUTOENCODER, passed, EXAMPLES)
    if until != "backward":
        axes.figure.set_figwidth(5.4)
        axes.set_xlim(-0.15, 10.15)
    top = 0.85 + draw_table(axes, 6, 0, "inputs and targets $X$", BLACK, EXAMPLES)
    names = ("$h_1$", "code $h_2$", "$h_3$", "output $Y = h_4$")
    for k, (layer, name, sums, values) in enumerate(
        zip(AUTOENCODER, names, passed.sums, passed.values[1:], strict=True), start=1
    ):
        off = sums <= 0
        draw_table(axes, 4 - layer.weight.shape[1], top, f"$W_{k}\\;|\\;b_{k}$", BLUE, layer.weight, layer.bias)
        end = draw_table(axes, 6, top, name, BLACK, values, off=off, blank=until == "nothing")
        if until == "backward":
            draw_table(axes, 11, top, f"error $\\delta_{k}$", RED, found.errors[k - 1], off=off)
            gradient = found.weights[k - 1], found.biases[k - 1]
            draw_table(axes, 16, top, f"gradient of $W_{k}\\;|\\;b_{k}$", GREEN, *gradient)
        top = end + 0.85
    filled = {
        "nothing": "All values are still question marks.",
        "forward": "Values of units that the ReLU switched off are shaded. The code has the rows "
        f"{_rows_in_words(passed.values[2])}; the output has the rows {_rows_in_words(passed.output)}.",
        "backward": "Beside them the errors and the gradients; entries of units that are off are shaded. The errors at the "
        f"output have the rows {_rows_in_words(found.errors[3])}; those of layer 1 {_rows_in_words(found.errors[0])}.",
    }
    return (
        "A worksheet of the autoencoder with widths 4, 3, 2, 3, 4: under the inputs X, for each layer, the weights with "
        f"the biases in a last column, and a table of the layer's values, one column an example. {filled[until]}"
    )


@lesson.figure(bare=True, variants={"sparse": {}}, size=(11.2, 5.4), xlim=(-0.15, 27.15), ylim=(13 * CELL + 2.8, -0.85))
def plot_sparse_worksheet(axes, *, l1: float | int = 1):
    """Draw one step of the sparse autoencoder on five tokens: values, norms, errors and gradients."""
    passed = forward(SPARSE, TOKENS)
    loss = sparse_loss(SPARSE, passed, TOKENS, l1=l1)
    found = sparse_backward(SPARSE, passed, TOKENS, l1=l1)
    off = passed.sums[0] <= 0
    top = 0.9 + draw_table(axes, 8, 0, "tokens $X$", BLACK, TOKENS)
    draw_table(axes, 3, top, "$W_e\\;|\\;b_e$", BLUE, ENCODER.weight, ENCODER.bias)
    draw_table(axes, 8, top, "features $f$", BLACK, passed.values[1], off=off)
    draw_table(axes, 14, top, "error $\\delta$", RED, found.errors[0], off=off)
    top = 0.9 + draw_table(axes, 20, top, "gradient of $W_e\\;|\\;b_e$", GREEN, found.weights[0], found.biases[0])
    end = draw_table(axes, 0, top, "$W_d\\;|\\;b_d$", BLUE, DECODER.weight, DECODER.bias)
    draw_table(axes, 0, end + 0.9, "column norms", BLUE, loss.column_norms[None])
    draw_table(axes, 8, top, "reconstruction $x'$", BLACK, passed.output)
    draw_table(axes, 14, top, "error $2(x' - x)$", RED, found.errors[1])
    draw_table(axes, 20, top, "gradient of $W_d\\;|\\;b_d$", GREEN, found.weights[1], found.biases[1])
    return (
        "A worksheet of the sparse autoencoder on five tokens of three entries: weights with biases, features and "
        f"reconstruction, errors and gradients for lambda = {l1:g}; entries of features that are off are shaded. The "
        f"features have the rows {_rows_in_words(passed.values[1])}; the column norms are "
        f"{_rows_in_words(loss.column_norms[None])}; the errors of the features have the rows "
        f"{_rows_in_words(found.errors[0])}."
    )


@lesson.figure(
    ["Autoencoder 4-3-2-3-4", "Sparse autoencoder 3-6-3"],
    ["steps", "steps plus 1"],
    ["$\\|Y - X\\|^2$, summed", "loss, summed"],
    grid=(1, 2),
    legend=[{"loc": "upper right", "ncols": 3, "fontsize": 8}, "upper right"],
    ylim=[(1e-3, 1e4), (1, 1e3)],
    xscale=["linear", "log"],
    yscale="log",
)
def plot_losses(left, right, *, steps: int = 1000):
    """Draw the losses of both networks under gradient descent by hand, against the step."""
    runs = {eta: autoencoder_losses(step_size=eta, steps=steps) for eta in (0.0005, 0.002, 0.02)}
    lines(left, None, {f"$\\eta$ = {eta:g}": losses for eta, losses in runs.items()})
    run = sparse_run(l1=1, steps=steps)
    labels = {"total": "total, $\\lambda$ = 1", "reconstruction": "reconstruction", "sparsity": "sparsity"}
    lines(right, np.arange(1, steps + 2), {label: run[name] for name, label in labels.items()})

    def end(last):
        return "below 0.1" if last < 0.1 else f"{last:.0f}" if last > 10 else "between 0.1 and 10"

    said = [f"{end(losses[-1])} with step size {eta:g}" for eta, losses in runs.items()]
    return (
        f"Left: the autoencoder's loss over {steps} steps of gradient descent on a logarithmic axis; it starts at 30 "
        f"and ends {said[0]}, {said[1]} and {said[2]}. Right: the sparse autoencoder's total loss falls from "
        f"{run['total'][0]:.0f} to {run['total'][-1]:.0f}, reconstruction error from {run['reconstruction'][0]:.0f} to "
        f"{run['reconstruction'][-1]:.0f} and the sum of weighted features from {run['sparsity'][0]:.0f} to "
        f"{run['sparsity'][-1]:.0f}."
    )


def nudged_loss(change: float | int) -> float:
    """Return the autoencoder's loss with the weight in row 2, column 1 of W_2 changed."""
    weight = AUTOENCODER[1].weight.clone()
    weight[1, 0] += change
    layers = (AUTOENCODER[0], Layer(weight, AUTOENCODER[1].bias), *AUTOENCODER[2:])
    return float(squared_error(forward(layers, EXAMPLES).output, EXAMPLES))


@lesson.figure(
    "A loss with a corner",
    "change of one weight of $W_2$",
    "loss",
    legend="upper right",
    xlim=(-0.08, 0.08),
    ylim=(25, 35),
)
def plot_corner(axes):
    """Draw the loss against the change of one weight, with the slope on each side of the corner at 0."""
    changes = np.linspace(-0.08, 0.08, 81)
    left, right = ((nudged_loss(h) - nudged_loss(0)) / h for h in (-1e-6, 1e-6))
    curves = {
        "loss": [nudged_loss(change) for change in changes],
        f"slope {left:.0f}": 30 + left * changes,
        f"slope {right:.0f}": 30 + right * changes,
    }
    lines(axes, changes, curves)
    return (
        "The loss against the change of one weight, with a corner at 30 where the weight is not changed. To the left of "
        f"it the curve follows a line of slope {left:.0f}, to the right a steeper one of slope {right:.0f}."
    )


def unit_path(start: float | int, *, relu: bool, steps: int = 40, step_size: float | int = 0.1) -> list[float]:
    """Return the sum z of one output unit with target 1 under gradient descent on its bias."""
    sums, target, x = [float(start)], matrix([[1]]), matrix([[0]])
    layers = (Layer(matrix([[0]]), matrix([start]), relu),)
    for _ in range(steps):
        layers = step(layers, backward(layers, forward(layers, x), target), step_size=step_size)
        sums.append(float(layers[0].bias))
    return sums


@lesson.figure(
    "The unit that is off gets no gradient",
    "steps",
    "sum $z$ of the output unit",
    legend="center right",
    ylim=(-1.3, 1.6),
)
def plot_dead_unit(axes):
    """Draw the sum of an output unit with target 1 under gradient descent, with and without a final ReLU."""
    axes.axhline(1, color="0.5", linewidth=1, linestyle=(0, (1, 3)))
    paths = {
        "final ReLU, from -1": unit_path(-1, relu=True),
        "final ReLU, from 0.3": unit_path(0.3, relu=True),
        "no final ReLU, from -1": unit_path(-1, relu=False),
    }
    lines(axes, None, paths)
    return (
        "The sum of an output unit with target 1 over 40 steps of gradient descent. With a final ReLU it stays at -1 if "
        "it starts there, and rises to 1 if it starts at 0.3. Without the ReLU it rises from -1 to 1."
    )


@lesson.figure(
    ["Features", "Decoder", "What they write"],
    "steps plus 1",
    ["sum of the features", "mean column norm of $W_d$", "sum of features times norms"],
    grid=(1, 3),
    legend=[{"loc": "upper right", "title": "penalty", "fontsize": 8}, None, None],
    xscale="log",
    ylim=[(0, 24), (0, 4), (0, 36)],
)
def plot_loophole(*axes, l1: float | int = 1, steps: int = 3000):
    """Draw features and decoder norms under the plain and the weighted penalty, against the step."""
    plain, normed = (sparse_run(l1=l1, steps=steps, weighted=weighted) for weighted in (False, True))
    for panel, name in zip(axes, ("features", "norm", "sparsity"), strict=True):
        curves = {"plain $\\sum f$": plain[name], "weighted $\\sum f\\,\\|W_d\\|$": normed[name]}
        lines(panel, np.arange(1, steps + 2), curves)
    return (
        f"Three curves over {steps} steps for two penalties of weight {l1:g}. The sum of the features ends at "
        f"{plain['features'][-1]:.1f} under the plain penalty and {normed['features'][-1]:.1f} under the weighted one; "
        f"the mean column norm of the decoder at {plain['norm'][-1]:.1f} and {normed['norm'][-1]:.1f}; the sum of "
        f"features times norms at {plain['sparsity'][-1]:.1f} and {normed['sparsity'][-1]:.1f}."
    )


# For the explorer: columns of about half the encoder's rows, so that x' lies near x.
GENTLE_DECODER = Layer(
    matrix([[1, 0, 0, 0, 0, 1], [0, 1, 0, 1, 0, 0], [0, 0, 1, 0, 1, -1]]) / 2, matrix([0, 0, 0]), relu=False
)


@lesson.explorer
class FeatureExplorer(Explorer):
    """One token in a sparse autoencoder: its features, its reconstruction, and the loss as one feature sees it."""

    title = "What the loss tells one feature"
    summary = (
        "Left: the six features of one token, the one looked at in red. Middle: the token and its reconstruction. Right: "
        "the reconstruction error, this feature's penalty and their sum, if the feature had another value and all else "
        "stayed; dots mark the present value, a diamond the lowest point."
    )
    l1 = Slider(
        "sparsity weight",
        "λ",
        "Weight of the penalty: the sum of features, each times the norm of its decoder column",
        1.0,
        0.0,
        4.0,
        0.1,
    )
    first = Slider(
        "first entry of token",
        "x₁",
        "The token is (x₁, 2, -1); x₁ = 1 is the first token of the lesson",
        -1.0,
        -3.0,
        3.0,
        0.25,
    )
    feature = Slider("feature to look at", "i", "Which of the six features is followed on the right", 2, 1, 6, 1)
    together = ("l1", "first")
    size = (9.6, 4.0)
    layout = panels(
        ["Features", "Token", "If it had another value"],
        ["feature $i$", "entry", "value of the feature"],
        ["$f_i$", "value", "loss"],
        grid=(1, 3),
        subplots={"width_ratios": (1, 0.8, 1.4)},
        legend=[
            None,
            {"loc": "upper right", "ncols": 2, "fontsize": 8},
            {"loc": "upper left", "ncols": 2, "fontsize": 8},
        ],
        xlim=[(0.4, 6.6), (0.5, 3.5), (-0.15, 5)],
        ylim=[(0, 5), (-4, 6), (0, 22)],
        xticks=[range(1, 7), range(1, 4), None],
    )
    values = np.linspace(0, 5, 101)

    def compute(self, *, l1, first, feature):
        """Return features, reconstruction, the loss against the value of one feature, and for the words its parts."""
        layers, x = (ENCODER, GENTLE_DECODER), matrix([[first], [2], [-1]])
        passed = forward(layers, x)
        loss = sparse_loss(layers, passed, x, l1=l1)
        found = sparse_backward(layers, passed, x, l1=l1)
        k = feature - 1
        column, features = GENTLE_DECODER.weight[:, k], passed.values[1].flatten()
        now, norm = float(features[k]), float(loss.column_norms[k])
        # Everything but feature k is left to be explained by it.
        rest = (x - passed.output).flatten() + now * column
        lowest = max(0.0, (float(column @ rest) - l1 * norm / 2) / norm**2)

        def error(value):
            return ((np.multiply.outer(value, column) - rest.numpy()) ** 2).sum(axis=-1)

        def penalty(value):
            return l1 * norm * value

        return {
            "bars": features,
            "followed": features * torch.eye(6)[k],
            "x": x.flatten(),
            "output": passed.output.flatten(),
            "error": error(self.values),
            "penalty": penalty(self.values),
            "total": error(self.values) + penalty(self.values),
            "now": (now, error(now) + penalty(now)),
            "lowest": (lowest, error(lowest) + penalty(lowest)),
            "l1": l1,
            "feature": feature,
            "sum": float(passed.sums[0][k]),
            "parts": (float(found.from_reconstruction[k]), float(found.from_sparsity[k])),
            "loss": (float(loss.reconstruction), float(loss.sparsity), float(loss.total)),
        }

    def draw(self, left, middle, right):
        """Draw the features, the token and its reconstruction, and the loss as one feature sees it."""
        middle.axhline(0, color=BLACK, linewidth=0.8, linestyle="-")
        point = {"linestyle": "none", "color": BLACK, "markerfacecolor": "none"}
        error, penalty, total = lines(right, self.values, ["reconstruction", "its penalty", "sum"])
        return {
            "bars": list(left.bar(range(1, 7), [0] * 6, width=0.6, color=SKY, edgecolor=BLUE)),
            "followed": list(left.bar(range(1, 7), [0] * 6, width=0.6, color=RED)),
            "x": middle.plot([1, 2, 3], [0] * 3, marker="o", markersize=9, label="$x$", **point)[0],
            "output": middle.plot([1, 2, 3], [0] * 3, "x", color=RED, markersize=8, label="$x'$")[0],
            "error": error,
            "penalty": penalty,
            "total": total,
            "now": right.plot([], [], "o", color=BLACK, markersize=8, label="now")[0],
            "lowest": right.plot([], [], marker="D", markersize=8, label="lowest", **{**point, "color": GREEN})[0],
        }

    def words(self, state):
        """Say both parts of the loss and, for one feature, both parts of its gradient and what descent does."""
        error, sparsity, total = state["loss"]
        opening = (
            f"Loss: {error:.2f} for the reconstruction + {state['l1']:g} times {sparsity:.2f} for the features = "
            f"{total:.2f}. Feature {state['feature']} is "
        )
        if state["sum"] <= 0:
            return f"{opening}off (its sum is {state['sum'] + 0.0:.2f}): the ReLU passes no gradient on, from neither part."
        first, second = state["parts"]
        total = first + second
        end = "raises it" if total < -1e-9 else "lowers it" if total > 1e-9 else "leaves it"
        return (
            f"{opening}{state['now'][0]:.2f}: gradient {first + 0.0:+.2f} from the reconstruction, {second:+.2f} from the "
            f"penalty, together {total + 0.0:+.2f}, so descent {end}. Lowest at {state['lowest'][0]:.2f}."
        )


dead_unit_prediction = lesson.prediction(
    "25.P1",
    "A unit at the end of a network adds up what it reads and a bias to a sum $z$, and puts out $\\max(0, z)$, a ReLU. What "
    "it reads does not change. For the only example its sum is $z = -1$, so its output is 0, and its target is 1. Gradient "
    "descent takes 40 steps. Where is $z$ then?",
    {
        "At 1: the error pulls it up": "The error 2(0 - 1) asks for more, but the slope of the ReLU at z = -1 is 0, and the "
        "gradient is their product.",
        "At 0: it stops at the corner": "To reach the corner it would have to move, and its gradient is 0 from the first "
        "step on.",
        "At -1: it has not moved": "The slope of the ReLU at z = -1 is 0. The error is multiplied by it, and nothing is "
        "left.",
    },
    answer="At -1: it has not moved",
    reveal=plot_dead_unit,
)

loophole_prediction = lesson.prediction(
    "25.P2",
    "The sparse autoencoder is trained on the five tokens for 3,000 steps with the plain penalty $\\sum_i f_i$, without "
    "the norms of the decoder's columns, and once more with the norms. What does the plain penalty lead to?",
    {
        "Smaller features, the same decoder": "The reconstruction would become too small. Training finds the way around "
        "it: larger columns.",
        "Smaller features, larger decoder columns": "Half the feature with twice the column writes the same and costs half "
        "the penalty, so descent goes that way, for as long as it is trained.",
        "The same as with the norms": "The product of feature and column can be kept while the feature shrinks. The plain "
        "penalty rewards that; the weighted one does not see it.",
    },
    answer="Smaller features, larger decoder columns",
    reveal=plot_loophole,
)

FIGURES = lesson.figures
