"""Numbers, figures, explorer, predictions and exercises of lesson 25, autoencoders_by_hand."""

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.sae.by_hand import (
    BackwardPass,
    Layer,
    backward,
    forward,
    sparse_backward,
    sparse_loss,
    squared_error,
    step,
)
from course_lib.teaching.exercise import Exercise, Mistake, Property, close
from course_lib.teaching.explorer import Explorer, Slider
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.style import BLACK, BLUE, GREEN, RED, SKY, describe, new_figure, styled

# The numbers of the lesson


def matrix(rows) -> Tensor:
    """Return nested lists of numbers as a float64 tensor."""
    return torch.tensor(rows, dtype=torch.float64)


# Row 3 is row 1 plus row 2, and row 4 is row 3 plus row 1: two numbers describe each example.
EXAMPLES = matrix([[1, 2, 0, 1], [0, 1, 2, 1], [1, 3, 2, 2], [2, 5, 2, 3]])
AUTOENCODER = (
    Layer(matrix([[-1, -1, 1, 1], [0, 1, 0, -1], [0, 1, 0, 0]]), matrix([-1, 1, -1])),
    Layer(matrix([[1, -1, 0], [0, 1, -1]]), matrix([-1, 1])),
    Layer(matrix([[0, 0], [1, -1], [0, 1]]), matrix([1, -1, 0])),
    Layer(matrix([[1, 0, 1], [1, 1, -1], [0, -1, 0], [0, 0, 1]]), matrix([0, 1, 1, 1])),
)
TOKENS = matrix([[1, 2, -1, 0, 1], [2, 0, 1, -1, -2], [-1, 1, 0, 2, 1]])
ENCODER = Layer(
    matrix([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, -1]]),
    matrix([0, 0, 0, -1, 0, 0]),
)
DECODER = Layer(
    matrix([[1, 0, 0, 0, 0, 3], [0, 2, 0, 0, 0, 4], [0, 0, 1, 1, 0, 0]]), matrix([0, 0, 0]), relu=False
)
SPARSE = (ENCODER, DECODER)
# For the explorer: columns of about half the encoder's rows, so that x' lies near x.
GENTLE_DECODER = Layer(
    matrix([[1, 0, 0, 0, 0, 1], [0, 1, 0, 1, 0, 0], [0, 0, 1, 0, 1, -1]]) / 2, matrix([0, 0, 0]), relu=False
)


@cache
def autoencoder_losses(*, step_size: float | int, steps: int) -> list[float]:
    """Return the autoencoder's loss before each of `steps` steps and after the last."""
    layers, losses = AUTOENCODER, []
    for _ in range(steps + 1):
        passed = forward(layers, EXAMPLES)
        losses.append(float(squared_error(passed.output, EXAMPLES)))
        layers = step(layers, backward(layers, passed, EXAMPLES), step_size=step_size)
    return losses


def _plain_backward(layers, passed, *, l1: float | int) -> BackwardPass:
    """Gradients of the reconstruction error plus l1 times the plain sum of the features."""
    found = sparse_backward(layers, passed, TOKENS, l1=0)
    delta = (found.from_reconstruction + l1) * (passed.sums[0] > 0)
    return BackwardPass(
        (delta, found.errors[1]), (delta @ TOKENS.T, found.weights[1]), (delta.sum(1), found.biases[1])
    )


@cache
def sparse_run(*, l1: float | int, steps: int, step_size: float | int = 0.002, weighted: bool = True) -> dict:
    """Train on the five tokens; return loss parts, active features and norms before each step and at the end.

    With `weighted=False` the penalty is l1 times the plain sum of the features, without the columns' norms.
    """
    layers = SPARSE
    run = {name: [] for name in ("reconstruction", "sparsity", "total", "features", "active", "norm")}
    for _ in range(steps + 1):
        passed = forward(layers, TOKENS)
        loss = sparse_loss(layers, passed, TOKENS, l1=l1)
        features = passed.values[1]
        run["reconstruction"].append(float(loss.reconstruction))
        run["sparsity"].append(float(loss.sparsity))
        run["total"].append(float(loss.total))
        run["features"].append(float(features.sum()))
        run["active"].append(int((features > 0).sum()))
        run["norm"].append(float(loss.column_norms.mean()))
        gradients = (
            sparse_backward(layers, passed, TOKENS, l1=l1)
            if weighted
            else _plain_backward(layers, passed, l1=l1)
        )
        layers = step(layers, gradients, step_size=step_size)
    return run


# Figures

CELL = {"width": 1.0, "height": 0.74}


def _number(value: float) -> str:
    return f"{round(value, 2) + 0.0:g}"


def _rows_in_words(table: Tensor) -> str:
    return "; ".join(" ".join(_number(v) for v in row) for row in table.tolist())


def draw_table(
    axes: Axes,
    left: float | int,
    top: float | int,
    table: Tensor,
    *,
    title: str,
    color: str,
    blank: bool = False,
    off: Tensor | None = None,
    last: bool = False,
    fontsize: float | int = 8.5,
) -> None:
    """Draw a matrix as cells under a title, its top left corner at (left, top) with y pointing down.

    `blank` leaves a question mark in each cell, `off` shades cells, `last` sets the last column apart.
    """
    width, height = CELL["width"], CELL["height"]
    rows, columns = table.shape
    axes.text(left, top - 0.14, title, ha="left", va="bottom", fontsize=9, color=color)
    for i in range(rows):
        for j in range(columns):
            shaded = off is not None and bool(off[i, j]) and not blank
            face = "0.82" if shaded else "0.95" if last and j == columns - 1 else "white"
            corner = (left + j * width, top + i * height)
            axes.add_patch(Rectangle(corner, width, height, facecolor=face, edgecolor="0.6", linewidth=0.6))
            axes.text(
                corner[0] + width / 2, corner[1] + height / 2, "?" if blank else _number(float(table[i, j])),
                ha="center", va="center", fontsize=fontsize, color="0.5" if blank else BLACK,
            )  # fmt: skip


def _with_bias(weight: Tensor, bias: Tensor) -> Tensor:
    return torch.cat([weight, bias[:, None]], dim=1)


def _sheet(width: float | int, height: float | int, columns: float | int, rows: float | int):
    figure = new_figure(width, height)
    axes = figure.add_subplot()
    axes.set(xlim=(-0.15, columns + 0.15), ylim=(rows + 0.1, -0.85))  # matrices are written downwards
    axes.set_axis_off()
    return figure, axes


@styled
def plot_worksheet(*, until: str = "backward") -> Figure:
    """Draw the autoencoder as a worksheet; `until` is "nothing", "forward" or "backward": what is filled in."""
    passed = forward(AUTOENCODER, EXAMPLES)
    found = backward(AUTOENCODER, passed, EXAMPLES)
    both = until == "backward"
    figure, axes = _sheet(9.6 if both else 5.4, 6.2, 21 if both else 10, 16 * CELL["height"] + 4 * 0.85)
    draw_table(axes, 6, 0, EXAMPLES, title="inputs and targets $X$", color=BLACK)
    top = 4 * CELL["height"] + 0.85
    for k, layer in enumerate(AUTOENCODER, start=1):
        value, sums = passed.values[k], passed.sums[k - 1]
        inputs = layer.weight.shape[1]
        name = "output $Y = h_4$" if k == 4 else "code $h_2$" if k == 2 else f"$h_{k}$"
        draw_table(
            axes, 4 - inputs, top, _with_bias(layer.weight, layer.bias),
            title=f"$W_{k}\\;|\\;b_{k}$", color=BLUE, last=True,
        )  # fmt: skip
        draw_table(axes, 6, top, value, title=name, color=BLACK, off=sums <= 0, blank=until == "nothing")
        if both:
            gradient = _with_bias(found.weights[k - 1], found.biases[k - 1])
            draw_table(
                axes, 11, top, found.errors[k - 1], title=f"error $\\delta_{k}$", color=RED, off=sums <= 0
            )
            draw_table(
                axes, 16, top, gradient, title=f"gradient of $W_{k}\\;|\\;b_{k}$", color=GREEN, last=True
            )
        top += value.shape[0] * CELL["height"] + 0.85
    start = (
        "A worksheet of the autoencoder with widths 4, 3, 2, 3, 4: under the inputs X, for each layer, the weights with "
        "the biases in a last column, and a table of the layer's values, one column an example."
    )
    said = {
        "nothing": " All values are still question marks.",
        "forward": " Values of units that the ReLU switched off are shaded. ",
        "backward": " Beside them the errors and the gradients; entries of units that are off are shaded. ",
    }[until]
    if until == "forward":
        said += f"The code has the rows {_rows_in_words(passed.values[2])}; "
        said += f"the output has the rows {_rows_in_words(passed.output)}."
    elif both:
        said += f"The errors at the output have the rows {_rows_in_words(found.errors[3])}; those of layer 1 "
        said += f"{_rows_in_words(found.errors[0])}."
    return describe(figure, start + said)


@styled
def plot_sparse_worksheet(*, l1: float | int = 1) -> Figure:
    """Draw one step of the sparse autoencoder on five tokens: values, norms, errors and gradients."""
    passed = forward(SPARSE, TOKENS)
    loss = sparse_loss(SPARSE, passed, TOKENS, l1=l1)
    found = sparse_backward(SPARSE, passed, TOKENS, l1=l1)
    height, gap = CELL["height"], 0.9
    figure, axes = _sheet(11.2, 5.4, 27, 13 * height + 3 * gap)
    draw_table(axes, 8, 0, TOKENS, title="tokens $X$", color=BLACK)
    second, third = 3 * height + gap, 9 * height + 2 * gap
    draw_table(
        axes, 3, second, _with_bias(ENCODER.weight, ENCODER.bias), title="$W_e\\;|\\;b_e$", color=BLUE, last=True
    )  # fmt: skip
    draw_table(axes, 8, second, passed.values[1], title="features $f$", color=BLACK, off=passed.sums[0] <= 0)
    draw_table(axes, 14, second, found.errors[0], title="error $\\delta$", color=RED, off=passed.sums[0] <= 0)
    draw_table(
        axes, 20, second, _with_bias(found.weights[0], found.biases[0]),
        title="gradient of $W_e\\;|\\;b_e$", color=GREEN, last=True,
    )  # fmt: skip
    draw_table(
        axes, 0, third, _with_bias(DECODER.weight, DECODER.bias), title="$W_d\\;|\\;b_d$", color=BLUE, last=True
    )  # fmt: skip
    draw_table(axes, 0, third + 3 * height + gap, loss.column_norms[None], title="column norms", color=BLUE)
    draw_table(axes, 8, third, passed.output, title="reconstruction $x'$", color=BLACK)
    draw_table(axes, 14, third, found.errors[1], title="error $2(x' - x)$", color=RED)
    draw_table(
        axes, 20, third, _with_bias(found.weights[1], found.biases[1]),
        title="gradient of $W_d\\;|\\;b_d$", color=GREEN, last=True,
    )  # fmt: skip
    return describe(
        figure,
        "A worksheet of the sparse autoencoder on five tokens of three entries: weights with biases, features and "
        f"reconstruction, errors and gradients for lambda = {l1:g}; entries of features that are off are shaded. The "
        f"features have the rows {_rows_in_words(passed.values[1])}; the column norms are "
        f"{_rows_in_words(loss.column_norms[None])}; the errors of the features have the rows "
        f"{_rows_in_words(found.errors[0])}.",
    )


@styled
def plot_losses(*, steps: int = 1000) -> Figure:
    """Draw the losses of both networks under gradient descent by hand, against the step."""
    figure = new_figure(9.4, 4.0)
    left, right = figure.subplots(1, 2)
    looks = {0.0005: (GREEN, "-."), 0.002: (BLUE, "-"), 0.02: (RED, "--")}
    said = []
    for step_size, (color, style) in looks.items():
        losses = autoencoder_losses(step_size=step_size, steps=steps)
        left.semilogy(losses, color=color, linestyle=style, label=f"$\\eta$ = {step_size:g}")
        end = (
            "below 0.1"
            if losses[-1] < 0.1
            else f"{losses[-1]:.0f}"
            if losses[-1] > 10
            else "between 0.1 and 10"
        )
        said.append(f"{end} with step size {step_size:g}")
    left.set(
        xlabel="steps", ylabel="$\\|Y - X\\|^2$, summed", title="Autoencoder 4-3-2-3-4", ylim=(1e-3, 1e4)
    )
    left.legend(loc="upper right", ncols=3, fontsize=8)
    run = sparse_run(l1=1, steps=steps)
    parts = {
        "total": ("total, $\\lambda$ = 1", BLACK, "-"),
        "reconstruction": ("reconstruction", BLUE, "--"),
        "sparsity": ("sparsity", RED, ":"),
    }
    for name, (label, color, style) in parts.items():
        right.loglog(np.arange(1, steps + 2), run[name], color=color, linestyle=style, label=label)
    right.set(xlabel="steps plus 1", ylabel="loss, summed", title="Sparse autoencoder 3-6-3", ylim=(1, 1e3))
    right.legend(loc="upper right")
    return describe(
        figure,
        f"Left: the autoencoder's loss over {steps} steps of gradient descent on a logarithmic axis; it starts at 30 "
        f"and ends {said[0]}, {said[1]} and {said[2]}. Right: the sparse autoencoder's total loss falls from "
        f"{run['total'][0]:.0f} to {run['total'][-1]:.0f}, reconstruction error from {run['reconstruction'][0]:.0f} to "
        f"{run['reconstruction'][-1]:.0f} and the sum of weighted features from {run['sparsity'][0]:.0f} to "
        f"{run['sparsity'][-1]:.0f}.",
    )


def unit_path(
    start: float | int, *, relu: bool, steps: int = 40, step_size: float | int = 0.1
) -> list[float]:
    """Return the sum z of one output unit with target 1 under gradient descent on its bias."""
    sums, target, x = [float(start)], matrix([[1]]), matrix([[0]])
    layers = (Layer(matrix([[0]]), matrix([start]), relu),)
    for _ in range(steps):
        layers = step(layers, backward(layers, forward(layers, x), target), step_size=step_size)
        sums.append(float(layers[0].bias))
    return sums


@styled
def plot_dead_unit() -> Figure:
    """Draw the sum of an output unit with target 1 under gradient descent, with and without a final ReLU."""
    figure = new_figure(6.6, 4.0)
    axes = figure.add_subplot()
    axes.axhline(1, color="0.5", linewidth=1, linestyle=(0, (1, 3)))
    for start, relu, label, color, style in (
        (-1, True, "final ReLU, from -1", RED, "-"),
        (0.3, True, "final ReLU, from 0.3", BLUE, "--"),
        (-1, False, "no final ReLU, from -1", GREEN, "-."),
    ):
        axes.plot(unit_path(start, relu=relu), color=color, linestyle=style, label=label)
    axes.set(xlabel="steps", ylabel="sum $z$ of the output unit", ylim=(-1.3, 1.6))
    axes.set_title("The unit that is off hears nothing of its error")
    axes.legend(loc="center right")
    return describe(
        figure,
        "The sum of an output unit with target 1 over 40 steps of gradient descent. With a final ReLU it stays at -1 if "
        "it starts there, and rises to 1 if it starts at 0.3. Without the ReLU it rises from -1 to 1.",
    )


@styled
def plot_loophole(*, l1: float | int = 1, steps: int = 3000) -> Figure:
    """Draw features and decoder norms under the plain and the weighted penalty, against the step."""
    figure = new_figure(9.4, 4.0)
    axes = figure.subplots(1, 3)
    looks = {False: ("plain $\\sum f$", RED, "--"), True: ("weighted $\\sum f\\,\\|W_d\\|$", BLUE, "-")}
    runs = {weighted: sparse_run(l1=l1, steps=steps, weighted=weighted) for weighted in looks}
    panels = (
        ("features", "sum of the features", "Features", (0, 24)),
        ("norm", "mean column norm of $W_d$", "Decoder", (0, 4)),
        ("sparsity", "sum of features times norms", "What they write", (0, 36)),
    )
    for panel, (name, label, title, limits) in zip(axes, panels, strict=True):
        for weighted, (label_of, color, style) in looks.items():
            panel.semilogx(
                np.arange(1, steps + 2), runs[weighted][name], color=color, linestyle=style, label=label_of
            )
        panel.set(xlabel="steps plus 1", ylabel=label, title=title, ylim=limits)
    axes[0].legend(loc="upper right", title="penalty", fontsize=8)
    plain, normed = runs[False], runs[True]
    return describe(
        figure,
        f"Three curves over {steps} steps for two penalties of weight {l1:g}. The sum of the features ends at "
        f"{plain['features'][-1]:.1f} under the plain penalty and {normed['features'][-1]:.1f} under the weighted one; "
        f"the mean column norm of the decoder at {plain['norm'][-1]:.1f} and {normed['norm'][-1]:.1f}; the sum of "
        f"features times norms at {plain['sparsity'][-1]:.1f} and {normed['sparsity'][-1]:.1f}.",
    )


# Explorer


class FeatureExplorer(Explorer):
    """One token in a sparse autoencoder: its features, its reconstruction, and the loss as one feature sees it."""

    title = "What the loss tells one feature"
    summary = (
        "Left: the six features of one token, the one looked at in red. Middle: the token and its reconstruction. Right: "
        "the reconstruction error, this feature's penalty and their sum, if the feature had another value and all else "
        "stayed; dots mark the present value, a diamond the lowest point."
    )
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "l1": Slider(
            label="sparsity weight", symbol="λ", default=1.0, minimum=0.0, maximum=4.0, step=0.1,
            tooltip="Weight of the penalty: the sum of features, each times the norm of its decoder column",
        ),
        "first": Slider(
            label="first entry of token", symbol="x₁", default=-1.0, minimum=-3.0, maximum=3.0, step=0.25,
            tooltip="The token is (x₁, 2, -1); x₁ = 1 is the first token of the lesson",
        ),
        "feature": Slider(
            label="feature to look at", symbol="i", default=2, minimum=1, maximum=6, step=1,
            tooltip="Which of the six features is followed on the right",
        ),
    }  # fmt: skip
    size = (9.6, 4.0)
    values = np.linspace(0, 5, 101)

    def compute(self, *, l1, first, feature):
        """Return features, reconstruction, loss parts, and the loss against the value of one feature."""
        layers, x = (ENCODER, GENTLE_DECODER), matrix([[first], [2], [-1]])
        passed = forward(layers, x)
        loss = sparse_loss(layers, passed, x, l1=l1)
        found = sparse_backward(layers, passed, x, l1=l1)
        k = feature - 1
        column, features = GENTLE_DECODER.weight[:, k], passed.values[1].flatten()
        now, norm = float(features[k]), float(loss.column_norms[k])
        # Everything but feature k is left to be explained by it.
        rest = (x - passed.output).flatten() + now * column
        error = ((self.values[:, None] * column.numpy() - rest.numpy()) ** 2).sum(axis=1)
        lowest = max(0.0, (float(column @ rest) - l1 * norm / 2) / norm**2)
        at = lambda t: float((t * column - rest).square().sum()) + l1 * norm * t  # noqa: E731
        return {
            "l1": l1, "feature": feature, "features": features.numpy(), "x": x.flatten().numpy(),
            "output": passed.output.flatten().numpy(), "error": error, "penalty": l1 * norm * self.values,
            "now": (now, at(now)), "lowest": (lowest, at(lowest)), "sum": float(passed.sums[0][k]),
            "parts": (float(found.from_reconstruction[k]), float(found.from_sparsity[k])),
            "loss": (float(loss.reconstruction), float(loss.sparsity), float(loss.total)),
        }  # fmt: skip

    def draw(self, figure):
        """Draw the three axes with fixed limits."""
        left, middle, right = figure.subplots(1, 3, width_ratios=(1, 0.8, 1.4))
        left.set(
            xlim=(0.4, 6.6), ylim=(0, 5), xticks=range(1, 7), xlabel="feature $i$", ylabel="$f_i$", title="Features"
        )  # fmt: skip
        artists = {"bars": list(left.bar(range(1, 7), [0] * 6, width=0.6, color=SKY, edgecolor=BLUE))}
        middle.set(
            xlim=(0.5, 3.5), ylim=(-4, 6), xticks=range(1, 4), xlabel="entry", ylabel="value", title="Token"
        )
        middle.axhline(0, color=BLACK, linewidth=0.8, linestyle="-")
        artists["x"] = middle.plot(
            [], [], color=BLACK, marker="o", markersize=9, markerfacecolor="none", linestyle="none", label="$x$"
        )[0]  # fmt: skip
        artists["output"] = middle.plot(
            [], [], color=RED, marker="x", markersize=8, linestyle="none", label="$x'$"
        )[0]
        middle.legend(loc="upper right", ncols=2, fontsize=8)
        right.set(
            xlim=(-0.15, 5), ylim=(0, 22), xlabel="value of the feature", ylabel="loss", title="If it had another value"
        )  # fmt: skip
        for name, label, color, style in (
            ("error", "reconstruction", BLUE, "--"),
            ("penalty", "its penalty", RED, ":"),
            ("total", "sum", BLACK, "-"),
        ):
            artists[name] = right.plot([], [], color=color, linestyle=style, label=label)[0]
        artists["now"] = right.plot(
            [], [], color=BLACK, marker="o", markersize=8, linestyle="none", label="now"
        )[0]
        artists["lowest"] = right.plot(
            [], [], color=GREEN, marker="D", markersize=8, markerfacecolor="none", linestyle="none", label="lowest"
        )[0]  # fmt: skip
        right.legend(loc="upper left", fontsize=8, ncols=2)
        return artists

    def update(self, artists, state):
        """Set bars, points and curves."""
        for k, bar in enumerate(artists["bars"]):
            bar.set_height(state["features"][k])
            bar.set_facecolor(RED if k + 1 == state["feature"] else SKY)
        artists["x"].set_data([1, 2, 3], state["x"])
        artists["output"].set_data([1, 2, 3], state["output"])
        artists["error"].set_data(self.values, state["error"])
        artists["penalty"].set_data(self.values, state["penalty"])
        artists["total"].set_data(self.values, state["error"] + state["penalty"])
        for name in ("now", "lowest"):
            artists[name].set_data(*[[v] for v in state[name]])

    def words(self, state):
        """Say both parts of the loss and, for one feature, both parts of its gradient and what descent does."""
        error, sparsity, total = state["loss"]
        opening = (
            f"Loss: {error:.2f} for the reconstruction + {state['l1']:g} times {sparsity:.2f} for the features = "
            f"{total:.2f}. "
            f"Feature {state['feature']} is "
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


# Predictions


def dead_unit_prediction() -> Prediction:
    """Ask what descent does to an output unit that the final ReLU has switched off."""
    return Prediction(
        "25.P1",
        "The last layer has a ReLU, and what it reads does not change. For the only example, an output unit has the sum "
        "$z = -1$, so its output is 0, and its target is 1. Gradient descent takes 40 steps. Where is $z$ then?",
        choices={
            "At 1: the error pulls it up": "The error 2(0 - 1) asks for more, but the slope of the ReLU at z = -1 is 0, and "
            "the gradient is their product.",
            "At 0: it stops at the corner": "To reach the corner it would have to move, and its gradient is 0 from the "
            "first step on.",
            "At -1: it has not moved": "The slope of the ReLU at z = -1 is 0. The error is multiplied by it, and nothing "
            "is left.",
        },
        answer="At -1: it has not moved",
        reveal=plot_dead_unit,
    )


def loophole_prediction() -> Prediction:
    """Ask what training does when the penalty does not look at the decoder's norms."""
    return Prediction(
        "25.P2",
        "The sparse autoencoder is trained on the five tokens for 3,000 steps with the plain penalty $\\sum_i f_i$, without "
        "the norms of the decoder's columns, and once more with the norms. What does the plain penalty lead to?",
        choices={
            "Smaller features, the same decoder": "The reconstruction would become too small. Training finds the way "
            "around it: larger columns.",
            "Smaller features, larger decoder columns": "Half the feature with twice the column writes the same and costs "
            "half the penalty, so descent goes that way, for as long as it is trained.",
            "The same as with the norms": "The product of feature and column can be kept while the feature shrinks. The "
            "plain penalty rewards that; the weighted one does not see it.",
        },
        answer="Smaller features, larger decoder columns",
        reveal=plot_loophole,
    )


# Exercises


def _integers(generator: torch.Generator, *shape: int, low: int = -2, high: int = 2) -> Tensor:
    return torch.randint(low, high + 1, shape, generator=generator).double()


def _whole(generator: torch.Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high + 1, (), generator=generator))


FIFTH = matrix([[1], [2], [3], [4]])
_SHEET_KEYS = ("code_1", "code_2", "y_1", "y_2", "y_3", "y_4")


def _filled(layers: tuple[Layer, ...], *, share: float = 1.0) -> dict[str, float]:
    """Fill the fifth column of the worksheet for these layers."""
    passed = forward(layers, FIFTH)
    numbers = [*passed.values[2].flatten().tolist(), *passed.output.flatten().tolist()]
    filled = dict(zip(_SHEET_KEYS, numbers, strict=True))
    return {**filled, "loss": float(squared_error(passed.output, FIFTH)) * share}


def _changed(change: Callable[[int, Layer], Layer]) -> tuple[Layer, ...]:
    return tuple(change(k, layer) for k, layer in enumerate(AUTOENCODER))


def _column(answer: Mapping, *keys: str) -> Tensor:
    return matrix([[float(answer[key])] for key in keys])


_FORWARD = Exercise(
    id="25.1",
    title="Fill in the forward pass",
    kind="value",
    difficulty=1,
    minutes=8,
    prompt="Take the autoencoder's weights from the worksheet at the top and a fifth example, $x = (1, 2, 3, 4)$. Fill in, "
    "on paper, its column: all four layers with ReLU. Answer with a dictionary of seven numbers: `code_1` and `code_2` "
    "(the entries of $h_2$), `y_1` to `y_4` (the output) and `loss` (the sum of squared differences from $x$).",
    draw=lambda generator: {"seed": _whole(generator, 0, 999)},
    reference={"code_1": 2, "code_2": 0, "y_1": 1, "y_2": 3, "y_3": 0, "y_4": 1, "loss": 19},
    properties=(
        Property(
            "Your code is not what the two encoder layers make of x.",
            lambda i, c: close(forward(AUTOENCODER[:2], FIFTH).output, _column(c, "code_1", "code_2")),
        ),
        Property(
            "Your output is not what the two decoder layers make of the code.",
            lambda i, c: close(
                forward(AUTOENCODER[2:], _column(c, "code_1", "code_2")).output, _column(c, *_SHEET_KEYS[2:])
            ),
        ),
        Property(
            "Your loss is not the sum of the squared differences between your output and x.",
            lambda i, c: close(squared_error(_column(c, *_SHEET_KEYS[2:]), FIFTH), matrix(float(c["loss"]))),
        ),
    ),
    hints=(
        "One layer at a time: rows of W times the column, plus the bias, then replace negative numbers by 0.",
        "The first layer has the sums 3, -1 and 1.",
        "The second layer has the sums 2 and 0, and the code goes through the decoder in the same way.",
    ),
    mistakes=(
        Mistake("no ReLU", _filled(_changed(lambda k, y: Layer(y.weight, y.bias, relu=False))),
                "You left out the ReLU: negative sums become 0 before they go on to the next layer."),
        Mistake("no bias", _filled(_changed(lambda k, y: Layer(y.weight, 0 * y.bias))),
                "You left out the biases, the last column beside each weight matrix."),
        Mistake("no ReLU in the encoder", _filled(_changed(lambda k, y: Layer(y.weight, y.bias, relu=k > 1))),
                "The encoder's layers have a ReLU, too: the second sum of layer 1 is negative and becomes 0."),
        Mistake("mean for sum", _filled(AUTOENCODER, share=1 / 4),
                "Your loss is the mean over the four entries. The question asks for their sum."),
        Mistake("half the loss", _filled(AUTOENCODER, share=1 / 2),
                "Your loss carries a factor 1/2, which some texts put there. Here it is the plain sum of squares."),
    ),
)  # fmt: skip


def output_error(z, target):
    """Return the derivatives of the summed squared error in the sums z of a last layer with ReLU."""
    return 2 * (z.clamp(min=0) - target) * (z > 0)


def _draw_output(generator: torch.Generator) -> dict:
    rows, columns = _whole(generator, 2, 3), _whole(generator, 2, 3)
    sums = _integers(generator, rows, columns, low=-4, high=4)
    return {"z": sums + 0.5, "target": _integers(generator, rows, columns, low=0, high=4)}


def _slope(loss: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """Return the gradient of `loss` by autograd."""
    leaf = at.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(leaf), leaf)
    return found


_ERROR = Exercise(
    id="25.2",
    title="Where backpropagation starts",
    kind="function",
    difficulty=1,
    minutes=6,
    prompt="Write `output_error(z, target)`: the derivatives of the loss $\\sum (Y - Y')^2$ in the sums $z$ of a last layer "
    "with ReLU, $Y = \\max(0, z)$. `z` and `target` ($Y'$) are float64 tensors of one shape, columns are examples; return a "
    "tensor of that shape.",
    draw=_draw_output,
    reference=output_error,
    properties=(
        Property(
            "A unit that is off passes nothing on: there your entry should be 0.",
            lambda i, d: bool((d[i["z"] < 0] == 0).all()),
        ),
        Property(
            "Your numbers are not the slopes of the loss.",
            lambda i, d: close(d, _slope(lambda z: (z.relu() - i["target"]).square().sum(), i["z"])),
        ),
    ),
    hints=(
        "The chain rule has two factors here: the slope of the loss in Y, and the slope of Y in z.",
        "The first factor is twice a difference. Which way round?",
        "The second factor is 1 where z is positive and 0 elsewhere.",
    ),
    mistakes=(
        Mistake("no mask", lambda z, t: 2 * (z.clamp(min=0) - t),
                "You stopped at 2(Y - Y'), as the notes do. That is the slope in Y; in z it is multiplied by the slope of "
                "the ReLU, which is 0 where z is negative."),
        Mistake("mean for sum", lambda z, t: output_error(z, t) / z.numel(),
                "You divided by the number of entries. That belongs to the mean of the squares; the loss here is their "
                "sum."),
        Mistake("the other way round", lambda z, t: -output_error(z, t),
                "Your sign is that of the step, not of the gradient: the slope is positive where the output is too high."),
        Mistake("forgot the two", lambda z, t: output_error(z, t) / 2,
                "The factor 2 from the square is missing."),
        Mistake("sums for outputs", lambda z, t: 2 * (z - t),
                "You compared the sums z with the targets. The loss sees Y, which is 0 where z is negative."),
    ),
)  # fmt: skip


def _weights_case(a1: float, a2: float, b1: float, b2: float) -> dict:
    return {"a_1": a1, "a_2": a2, "b_1": b1, "b_2": b2}


def _weights_flaw(case: Mapping) -> str:
    """Name what keeps two encoders from being a counterexample."""
    c = {name: float(value) for name, value in case.items()}
    active_a, active_b = (sum(c[f"{e}_{k}"] > 0 for k in (1, 2)) for e in "ab")
    sum_a, sum_b = (abs(c[f"{e}_1"]) + abs(c[f"{e}_2"]) for e in "ab")
    if sum_a >= sum_b:
        return "larger sum"
    if active_a > active_b:
        return "none"
    if active_a == active_b == 0:
        return "nothing fires"
    return "as many" if active_a == active_b else "fewer"


_WEIGHTS = Exercise(
    id="25.3",
    title="Small weights, many features",
    kind="flaw",
    difficulty=2,
    minutes=6,
    prompt="The notes say that a penalty $\\lambda\\sum|w|$ on the weights makes few features fire. If so, of two encoders "
    "the one with the smaller $\\sum|w|$ would never have more active features. Refute it for the input $x = 1$ and two "
    "features $f_i = \\max(0, w_i x)$ without bias: a dictionary with the weights `a_1`, `a_2` of an encoder $A$ and `b_1`, "
    "`b_2` of an encoder $B$, where $A$ has the smaller sum $|w_1| + |w_2|$ and more active features.",
    draw=lambda generator: {"seed": _whole(generator, 0, 999)},
    reference=_weights_case(0.01, 0.01, 5.0, 0.0),
    properties=(
        Property("This is no counterexample yet.", lambda i, c: _weights_flaw(c) == "none"),
    ),
    hints=(
        "Whether a feature is active depends on the sign of its weight. On what does the sum depend?",
        "Give A two weights with which both of its features fire, and make them small.",
        "Then B needs one feature at most, and a large weight somewhere.",
    ),
    mistakes=(
        Mistake("sum not smaller", _weights_case(1.0, 1.0, 1.0, 0.0),
                "The weights of your A have a sum of sizes that is not smaller than B's. Make A's weights tiny: a tiny "
                "positive weight still makes its feature fire.",
                lambda i, c: _weights_flaw(c) == "larger sum"),
        Mistake("nothing fires", _weights_case(-0.1, -0.1, -5.0, 0.0),
                "No feature fires in either encoder: x = 1, so a feature is active where its weight is positive.",
                lambda i, c: _weights_flaw(c) == "nothing fires"),
        Mistake("as many", _weights_case(0.1, 0.0, 5.0, 0.0),
                "Both encoders have one number of active features. A should have more.",
                lambda i, c: _weights_flaw(c) == "as many"),
        Mistake("what the notes expect", _weights_case(0.1, 0.0, 5.0, 5.0),
                "Here the smaller weights do go with fewer features, as the notes expect. Look for the opposite.",
                lambda i, c: _weights_flaw(c) == "fewer"),
    ),
)  # fmt: skip


def penalty_gradient(features, decoder_weight, l1):
    """Return the derivatives of l1 times the sum of features weighted by their decoder columns' norms."""
    return l1 * decoder_weight.norm(dim=0)[:, None] * (features > 0)


def _draw_features(generator: torch.Generator) -> dict:
    inputs, count, examples = _whole(generator, 2, 3), _whole(generator, 3, 4), _whole(generator, 2, 3)
    return {
        "features": _integers(generator, count, examples, low=-2, high=4).clamp(min=0),
        "decoder_weight": _integers(generator, inputs, count, low=-3, high=3),
        "l1": _whole(generator, 1, 20) / 10,
    }


_PENALTY = Exercise(
    id="25.4",
    title="The gradient of sparsity",
    kind="function",
    difficulty=2,
    minutes=8,
    prompt="Write `penalty_gradient(features, decoder_weight, l1)`: the derivatives of "
    "$\\lambda\\sum_n\\sum_i f_{i,n}\\lVert W_{d,:,i}\\rVert_2$ in the features, with 0 where a feature is 0. `features` "
    "is a float64 tensor of shape `(n_features, examples)` with no negative entries, `decoder_weight` has shape "
    "`(d, n_features)`, `l1` is $\\lambda$; return a tensor of the features' shape.",
    draw=_draw_features,
    reference=penalty_gradient,
    properties=(
        Property(
            "Where a feature is 0, your entry should be 0.",
            lambda i, g: bool((g[i["features"] == 0] == 0).all()),
        ),
        Property(
            "A small step against your gradient should never make an active feature larger.",
            lambda i, g: bool((g[i["features"] > 0] >= 0).all()),
        ),
        Property(
            "Your numbers are not the slopes of the penalty.",
            lambda i, g: close(
                g,
                _slope(
                    lambda f: i["l1"] * (f.relu() * i["decoder_weight"].norm(dim=0)[:, None]).sum(),
                    i["features"],
                ),
            ),
        ),
    ),
    hints=(
        "The penalty is linear in each active feature: its slope is a constant of that feature.",
        "One norm for each column of the decoder's matrix, so one for each feature; it is the same for all examples.",
        "Give the norms a second dimension before multiplying, and switch inactive entries off at the end.",
    ),
    mistakes=(
        Mistake("minus", lambda f, w, c: -penalty_gradient(f, w, c),
                "Your sign is minus, as the notes print it. That is the direction of the step: the slope of an active "
                "feature's penalty is positive. Subtracting your gradient would make features grow."),
        Mistake("no norms", lambda f, w, c: c * (f > 0).double(),
                "You left out the norms of the decoder's columns. Then a feature can shrink for free while its column "
                "grows."),
        Mistake("inactive, too", lambda f, w, c: c * w.norm(dim=0)[:, None].expand_as(f),
                "Features that are 0 get a slope, too. The ReLU passes nothing on there: their entries are 0."),
        Mistake("one norm for all", lambda f, w, c: c * w.norm() * (f > 0),
                "You used the norm of the whole matrix. Each feature has its own column, with its own norm."),
        Mistake("no lambda", lambda f, w, c: penalty_gradient(f, w, 1.0),
                "You left out lambda: every slope is proportional to the weight of the penalty."),
        Mistake("value for slope", lambda f, w, c: c * w.norm(dim=0)[:, None] * f,
                "Those are the terms of the penalty, not their slopes: the derivative of c f in f is c."),
    ),
)  # fmt: skip


def all_gradients(x, w1, b1, w2, b2):
    """Return the gradients of a two-layer ReLU autoencoder's loss in W1, b1, W2, b2, flattened and joined."""
    z1 = w1 @ x + b1[:, None]
    h1 = z1.clamp(min=0)
    z2 = w2 @ h1 + b2[:, None]
    delta2 = 2 * (z2.clamp(min=0) - x) * (z2 > 0)
    delta1 = (w2.T @ delta2) * (z1 > 0)
    parts = (delta1 @ x.T, delta1.sum(1), delta2 @ h1.T, delta2.sum(1))
    return torch.cat([part.flatten() for part in parts])


def _gradients(
    x, w1, b1, w2, b2, *, twice=2.0, masks=(True, True), bias=True, before=None, order=(0, 1, 2, 3)
) -> Tensor:
    """`all_gradients` with something changed; `before` replaces what the second weights are multiplied by."""
    z1 = w1 @ x + b1[:, None] * bias
    h1 = z1.clamp(min=0)
    z2 = w2 @ h1 + b2[:, None] * bias
    delta2 = twice * (z2.clamp(min=0) - x) * ((z2 > 0) if masks[1] else 1)
    delta1 = (w2.T @ delta2) * ((z1 > 0) if masks[0] else 1)
    second = delta2 @ (h1 if before is None else before(z1)).T
    parts = (delta1 @ x.T, delta1.sum(1), second, delta2.sum(1))
    return torch.cat([parts[k].flatten() for k in order])


def _draw_small(generator: torch.Generator) -> dict:
    inputs, code, examples = _whole(generator, 3, 4), _whole(generator, 2, 3), _whole(generator, 2, 3)
    return {
        "x": _integers(generator, inputs, examples, low=0, high=3),
        "w1": _integers(generator, code, inputs),
        "b1": _integers(generator, code) + 0.5,
        "w2": _integers(generator, inputs, code),
        "b2": _integers(generator, inputs) + 0.25,
    }


def _true_gradients(i: Mapping) -> Tensor:
    """The four gradients by autograd, flattened and joined."""
    leaves = [i[name].clone().requires_grad_() for name in ("w1", "b1", "w2", "b2")]
    w1, b1, w2, b2 = leaves
    output = (w2 @ (w1 @ i["x"] + b1[:, None]).relu() + b2[:, None]).relu()
    return torch.cat([g.flatten() for g in torch.autograd.grad((output - i["x"]).square().sum(), leaves)])


def _first(i: Mapping) -> int:
    """How many of the joined gradients belong to the first layer."""
    return i["w1"].numel() + i["b1"].numel()


_BACKWARD = Exercise(
    id="25.5",
    title="Write the backward pass",
    kind="function",
    difficulty=3,
    minutes=20,
    prompt="Write `all_gradients(x, w1, b1, w2, b2)` without autograd: the gradients of $\\sum(Y - X)^2$ for the "
    "autoencoder $h = \\max(0, W_1X + b_1)$, $Y = \\max(0, W_2h + b_2)$. `x` has shape `(d, examples)`, `w1` `(k, d)`, "
    "`b1` `(k,)`, `w2` `(d, k)`, `b2` `(d,)`, all float64. Return one vector: the gradients of $W_1, b_1, W_2, b_2$ in this "
    "order, each flattened row by row, joined by `torch.cat`.",
    draw=_draw_small,
    reference=all_gradients,
    properties=(
        Property(
            "The gradients of the second layer are not the slopes of the loss.",
            lambda i, g: close(g[_first(i) :], _true_gradients(i)[_first(i) :]),
        ),
        Property(
            "The gradients of the first layer are not the slopes of the loss.",
            lambda i, g: close(g[: _first(i)], _true_gradients(i)[: _first(i)]),
        ),
    ),
    hints=(
        "First a forward pass that keeps both sums and the hidden values: the backward pass needs them all.",
        "The error of layer 2 is exercise 25.2; times the values that layer 2 read, transposed, it is that layer's "
        "gradient.",
        "Carry the error back with the transpose of the second weights, then apply the first layer's own mask.",
    ),
    mistakes=(
        Mistake("no mask at the output", lambda *i: _gradients(*i, masks=(True, False)),
                "The mask of the last ReLU is missing: output units that are off pass nothing back."),
        Mistake("no mask at the code", lambda *i: _gradients(*i, masks=(False, True)),
                "The mask of the hidden ReLU is missing: after W2 transposed, the error is set to 0 where the first "
                "layer's sum was negative."),
        Mistake("the other sign", lambda *i: _gradients(*i, twice=-2.0),
                "All signs are turned round: the difference is output minus target. The minus of descent comes later, in "
                "the update."),
        Mistake("weights first", lambda *i: _gradients(*i, order=(0, 2, 1, 3)),
                "Your gradients are right and in another order, weights first. Join those of W1, b1, W2, b2 as they "
                "come."),
        Mistake("from back to front", lambda *i: _gradients(*i, order=(2, 3, 0, 1)),
                "Your gradients are right and in the order in which they are found, layer 2 first. Join those of W1, b1, "
                "W2, b2."),
        Mistake("forgot the two", lambda *i: _gradients(*i, twice=1.0),
                "All of it is half as large as it should be: the factor 2 from the square is missing."),
        Mistake("mean for sum", lambda *i: _gradients(*i, twice=2.0 / i[0].numel()),
                "You differentiated the mean of the squares. The loss here is their sum."),
        Mistake("sums for values", lambda *i: _gradients(*i, before=lambda z1: z1),
                "The second weights' gradient is built from the sums of layer 1. They were multiplied by its values, "
                "after the ReLU."),
        Mistake("no bias in the forward pass", lambda *i: _gradients(*i, bias=False),
                "Your forward pass leaves out the biases, so the masks and errors belong to another network."),
    ),
)  # fmt: skip


def encoder_step(x, w_e, b_e, w_d, b_d, l1, step_size):
    """Return the encoder's weights after one step of gradient descent on the sparse autoencoder's loss."""
    z = w_e @ x + b_e[:, None]
    f = z.clamp(min=0)
    error = 2 * (w_d @ f + b_d[:, None] - x)
    delta = (w_d.T @ error + l1 * w_d.norm(dim=0)[:, None]) * (z > 0)
    return w_e - step_size * delta @ x.T


def _encoder_step(x, w_e, b_e, w_d, b_d, l1, step_size, *, penalty=1.0, norms=True, mask=True, error=1.0):
    """`encoder_step` with something changed."""
    z = w_e @ x + b_e[:, None]
    difference = 2 * error * (w_d @ z.clamp(min=0) + b_d[:, None] - x)
    sizes = w_d.norm(dim=0)[:, None] if norms else torch.ones(len(w_e), 1, dtype=x.dtype)
    delta = (w_d.T @ difference + penalty * l1 * sizes) * ((z > 0) if mask else 1)
    return w_e - step_size * delta @ x.T


def _draw_sparse(generator: torch.Generator) -> dict:
    inputs, count, examples = _whole(generator, 2, 3), _whole(generator, 3, 4), _whole(generator, 2, 3)
    return {
        "x": _integers(generator, inputs, examples),
        "w_e": _integers(generator, count, inputs),
        "b_e": _integers(generator, count, low=-1, high=1) + 0.5,
        "w_d": _integers(generator, inputs, count),
        "b_d": _integers(generator, inputs, low=-1, high=1),
        "l1": _whole(generator, 5, 20) / 10,
        "step_size": _whole(generator, 1, 9) / 100,
    }


def _sparse_total(i: Mapping, w_e: Tensor) -> Tensor:
    features = (w_e @ i["x"] + i["b_e"][:, None]).relu()
    difference = i["w_d"] @ features + i["b_d"][:, None] - i["x"]
    return difference.square().sum() + i["l1"] * (features * i["w_d"].norm(dim=0)[:, None]).sum()


_STEP = Exercise(
    id="25.6",
    title="Where the notes stop",
    kind="function",
    difficulty=3,
    minutes=15,
    prompt="The notes end at the gradient of the penalty. Finish the step: write "
    "`encoder_step(x, w_e, b_e, w_d, b_d, l1, step_size)`, the new encoder weights after one step of gradient descent on "
    "(25.10), without autograd. `x` has shape `(d, examples)`, `w_e` `(n, d)`, `b_e` `(n,)`, `w_d` `(d, n)`, `b_d` `(d,)`, "
    "all float64; `l1` is $\\lambda$, `step_size` is $\\eta$.",
    draw=_draw_sparse,
    reference=encoder_step,
    properties=(
        Property(
            "A row whose feature is off for every token should stay as it was.",
            lambda i, w: (
                bool(
                    torch.equal(
                        w[(off := ((i["w_e"] @ i["x"] + i["b_e"][:, None]) <= 0).all(1))], i["w_e"][off]
                    )
                )
            ),
        ),
        Property(
            "Your step is not minus the step size times the slopes of the loss.",
            lambda i, w: close(
                w, i["w_e"] - i["step_size"] * _slope(lambda leaf: _sparse_total(i, leaf), i["w_e"])
            ),
        ),
    ),
    hints=(
        "Two gradients meet at the features: one comes back through the decoder, one is that of the penalty.",
        "Add the two, then let the ReLU's mask decide which entries go on to the encoder.",
        "What goes on, times the transposed tokens, is the gradient of the encoder's weights. Then take the step.",
    ),
    mistakes=(
        Mistake("minus one", lambda *i: _encoder_step(*i, penalty=-1.0),
                "Your penalty has the sign of the notes: it is subtracted from the reconstruction's gradient, so the step "
                "makes active features larger."),
        Mistake("uphill", lambda *i: _encoder_step(*i[:-1], -i[-1]),
                "You added the gradient. Descent goes against it: the weights minus the step size times the gradient."),
        Mistake("no mask", lambda *i: _encoder_step(*i, mask=False),
                "Features that are off learn in your step. The ReLU's mask sets their error to 0, for both parts."),
        Mistake("no norms", lambda *i: _encoder_step(*i, norms=False),
                "Your penalty counts each feature once. In (25.10) each is weighted by the norm of its decoder column."),
        Mistake("penalty only", lambda *i: _encoder_step(*i, error=0.0),
                "Only the penalty is in your step. The reconstruction's gradient, carried back through the decoder, "
                "is missing."),
        Mistake("reconstruction only", lambda *i: _encoder_step(*i, penalty=0.0),
                "The penalty is missing in your step: only the reconstruction's gradient is there."),
        Mistake("forgot the two", lambda *i: _encoder_step(*i, error=0.5),
                "The factor 2 from the square of the reconstruction error is missing."),
    ),
)  # fmt: skip

EXERCISES = {e.id: e for e in (_FORWARD, _ERROR, _WEIGHTS, _PENALTY, _BACKWARD, _STEP)}

FIGURES = {
    "question": lambda: plot_worksheet(until="nothing"),
    "forward": lambda: plot_worksheet(until="forward"),
    "backward": plot_worksheet,
    "sparse": plot_sparse_worksheet,
    "losses": plot_losses,
    "dead_unit": plot_dead_unit,
    "loophole": plot_loophole,
    "explorer": lambda: FeatureExplorer().strip(),
}
