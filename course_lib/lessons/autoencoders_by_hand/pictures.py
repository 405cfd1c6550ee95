"""Figures, explorer and predictions of lesson 33, autoencoders_by_hand."""

import itertools
from functools import cache

import numpy as np
import torch
from IPython.display import Markdown
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.lessons.autoencoders_by_hand.contents import lesson
from course_lib.lessons.autoencoders_by_hand.exercises import stuck_loss
from course_lib.lessons.autoencoders_by_hand.experiment import SOLVED
from course_lib.measured import measured
from course_lib.sae.by_hand import (
    AUTOENCODER,
    EXAMPLES,
    SPARSE,
    TOKENS,
    BackwardPass,
    Layer,
    backward,
    forward,
    sparse_backward,
    sparse_loss,
    squared_error,
    step,
)
from course_lib.teaching import Choice, Explorer, Slider, Switch, lines, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, GREEN, RED, SKY


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
    red: tuple[int, int] | None = None,
) -> float:
    """Draw a matrix as cells under a title, its top left corner at (left, top) with y pointing down; return its end.

    `bias` is one more column, set apart; `off` shades cells; `red` is the row and the column of a cell to look at.
    """
    faces = np.where(off & torch.ones_like(table, dtype=bool), "0.82", "white")
    if bias is not None:
        table = torch.cat([table, bias[:, None]], dim=1)
        faces = np.column_stack([faces, ["0.95"] * len(table)])
    axes.text(left, top - 0.14, title, ha="left", va="bottom", fontsize=9, color=color)
    look = {"ha": "center", "va": "center", "fontsize": 8.5, "color": BLACK}
    for (i, j), face in np.ndenumerate(faces):
        x, y = left + j, top + i * CELL
        axes.add_patch(Rectangle((x, y), 1, CELL, facecolor=face, edgecolor="0.6", linewidth=0.6))
        axes.text(x + 0.5, y + CELL / 2, _number(float(table[i, j])), **look)
    if red is not None:
        corner = (left + red[1], top + red[0] * CELL)
        axes.add_patch(Rectangle(corner, 1, CELL, facecolor="none", edgecolor=RED, linewidth=2.4, zorder=3))
    return top + len(table) * CELL


@lesson.figure(
    bare=True,
    size=(6.6, 4.6),
    xlim=(-0.15, 21.15),
    ylim=(16 * CELL + 3.5, -0.85),  # matrices are written downwards
    variants={"question": {"until": "forward"}, "backward": {}},
)
def plot_worksheet(axes, *, until: str = "backward"):
    """Draw the autoencoder as a worksheet; `until` is "forward" or "backward": what is filled in."""
    passed = forward(AUTOENCODER, EXAMPLES)
    found = backward(AUTOENCODER, passed, EXAMPLES)
    if until == "forward":
        axes.figure.set_figwidth(4.8)
        axes.set_xlim(-0.15, 10.15)
    top = 0.85 + draw_table(axes, 6, 0, "inputs and targets $X$", BLACK, EXAMPLES)
    names = ("$h_1$", "code $h_2$", "$h_3$", "output $Y = h_4$")
    for k, (layer, name, sums, values) in enumerate(
        zip(AUTOENCODER, names, passed.sums, passed.values[1:], strict=True), start=1
    ):
        off = sums <= 0
        draw_table(axes, 4 - layer.weight.shape[1], top, f"$W_{k}\\;|\\;b_{k}$", BLUE, layer.weight, layer.bias)
        red = (2, 1) if k == 4 else None
        end = draw_table(axes, 6, top, name, BLACK, values, off=off, red=red)
        if until == "backward":
            draw_table(axes, 11, top, f"error $\\delta_{k}$", RED, found.errors[k - 1], off=off)
            gradient = found.weights[k - 1], found.biases[k - 1]
            draw_table(axes, 16, top, f"gradient of $W_{k}\\;|\\;b_{k}$", GREEN, *gradient)
        top = end + 0.85
    filled = {
        "forward": "Values of units that are off are shaded. An orange frame marks output 3 of example 2, which is 0 and "
        f"should be 3. The output has the rows {_rows_in_words(passed.output)}.",
        "backward": "Beside them the errors and the gradients; entries of units that are off are shaded. The errors at the "
        f"output have the rows {_rows_in_words(found.errors[3])}; those of layer 1 {_rows_in_words(found.errors[0])}.",
    }
    return (
        "A worksheet of the autoencoder with widths 4, 3, 2, 3, 4: under the inputs X, for each layer, the weights with "
        f"the biases in a last column, and a table of the layer's values, one column an example. {filled[until]}"
    )


OUTPUT, EXAMPLE = 2, 1  # output 3 of example 2, counted from 0


def own_row_path(start: float | int, *, relu: bool = True, steps: int = 40, step_size: float = 0.02) -> list[float]:
    """Return the sum of output 3 on example 2 where its own weights and bias are all that is trained, on that example.

    `start` is the sum at the start, set by the bias: what the unit reads stays as it is.
    """
    reads = forward(AUTOENCODER, EXAMPLES).values[3][:, EXAMPLE : EXAMPLE + 1]
    weight = AUTOENCODER[3].weight[OUTPUT : OUTPUT + 1]
    layers = (Layer(weight, start - (weight @ reads).flatten(), relu),)
    target, sums = EXAMPLES[OUTPUT : OUTPUT + 1, EXAMPLE : EXAMPLE + 1], [float(start)]
    for _ in range(steps):
        layers = step(layers, backward(layers, forward(layers, reads), target), step_size=step_size)
        sums.append(float(forward(layers, reads).sums[0]))
    return sums


@lesson.figure(
    "Output 3 alone, on example 2",
    "steps",
    "its sum $z$",
    size=(5.6, 3.2),
    legend={"loc": "center right", "fontsize": 9},
    ylim=(-1.6, 3.6),
)
def plot_own_row(axes):
    """Draw the sum of output 3 under gradient descent on its own four numbers, with and without its gate."""
    axes.axhline(3, color="0.5", linewidth=1, linestyle=(0, (1, 3)))
    axes.text(40, 3.1, "target 3", ha="right", va="bottom", fontsize=9, color="0.3")
    paths = {
        "as on the sheet, from -1": own_row_path(-1),
        "the same from 0.3": own_row_path(0.3),
        "from -1, without the gate": own_row_path(-1, relu=False),
    }
    lines(axes, None, paths)
    return (
        "The sum of output 3 on example 2 over 40 steps of gradient descent on its own three weights and its bias. As on "
        "the sheet it starts at -1 and stays there. From 0.3 it rises to its target 3. From -1 without the gate it "
        "rises, too."
    )


@cache
def trained(steps: int, step_size: float = 0.002) -> tuple[Layer, ...]:
    """Return the network after that many steps of gradient descent on all four examples."""
    layers = AUTOENCODER
    for _ in range(steps):
        layers = step(layers, backward(layers, forward(layers, EXAMPLES), EXAMPLES), step_size=step_size)
    return layers


# The network as a graph: where each unit of each column stands

PLACES = [
    [(column, 0.5 * (4 - height) + row) for row in range(height)] for column, height in enumerate((4, 3, 2, 3, 4))
]


def draw_edges(axes: Axes) -> None:
    """Draw every weight that is not 0 on the worksheet as a thin grey line between two columns of units."""
    for k, layer in enumerate(AUTOENCODER):
        for i, j in np.ndindex(*layer.weight.shape):
            (x0, y0), (x1, y1) = PLACES[k][j], PLACES[k + 1][i]
            axes.plot([x0, x1], [y0, y1], "-", color="0.85", linewidth=0.9, zorder=1)


COLUMNS = ("$x$", "$h_1$", "code $h_2$", "$h_3$", "output $Y$")


@lesson.figure(bare=True, size=(6.0, 3.4), xlim=(-0.4, 5.2), ylim=(3.7, -0.85))
def plot_network(axes, *, example: int = 2):
    """Draw one example as a graph: values in the units, errors under them, and the error that a closed gate stops."""
    passed = forward(AUTOENCODER, EXAMPLES)
    found = backward(AUTOENCODER, passed, EXAMPLES)
    n = example - 1
    draw_edges(axes)
    slope = 2 * (passed.output - EXAMPLES)[:, n]
    for column, (places, values) in enumerate(zip(PLACES, passed.values, strict=True)):
        axes.text(column, -0.62, COLUMNS[column], ha="center", va="bottom", fontsize=11)
        for row, (x, y) in enumerate(places):
            off = column > 0 and bool(passed.sums[column - 1][row, n] <= 0)
            face = "0.75" if off else "white"
            axes.plot([x], [y], "o", markersize=21, color=BLACK, markerfacecolor=face, markeredgewidth=1, zorder=2)
            axes.text(x, y, _number(float(values[row, n])), ha="center", va="center", fontsize=11, zorder=3)
            if column:
                error = float(found.errors[column - 1][row, n])
                axes.text(x, y + 0.3, _number(error), ha="center", va="top", fontsize=11, color=RED)
    for row, (x, y) in enumerate(PLACES[4]):
        closed = bool(passed.sums[3][row, n] <= 0)
        said = f"slope {_number(float(slope[row]))}" + ("\nstopped here" if closed else "")
        axes.text(x + 0.22, y, said, ha="left", va="center", fontsize=10, color=RED)
    errors = "; ".join(" ".join(_number(v) for v in e[:, n].tolist()) for e in reversed(found.errors))
    return (
        f"Example {example} in the network, drawn as a graph with columns of 4, 3, 2, 3 and 4 units: values in the "
        "circles, grey where a unit is off; errors in orange under them; at the right the slopes of the loss at the output. "
        f"The slope -6 at output 3 is stopped, since that unit is off. The errors from the output back to layer 1 are "
        f"{errors}."
    )


def nudged_loss(change: float | int) -> float:
    """Return the autoencoder's loss with the weight in row 3, column 4 of W_1 changed."""
    weight = AUTOENCODER[0].weight.clone()
    weight[2, 3] += change
    layers = (Layer(weight, AUTOENCODER[0].bias), *AUTOENCODER[1:])
    return float(squared_error(forward(layers, EXAMPLES).output, EXAMPLES))


@lesson.figure(
    "One weight moved, all else kept",
    "change of the weight in row 3, column 4 of $W_1$",
    "loss",
    size=(4.9, 3.0),
    legend={"loc": "upper left", "fontsize": 9},
    xlim=(-0.08, 0.08),
    ylim=(27, 35),
)
def plot_corner(axes):
    """Draw the loss against the change of one weight, with the slope on each side of the corner at 0."""
    changes = np.linspace(-0.08, 0.08, 81)
    left, right_slope = ((nudged_loss(h) - nudged_loss(0)) / h for h in (-1e-6, 1e-6))
    curves = {
        "loss": [nudged_loss(change) for change in changes],
        f"slope {left:.0f}, autograd's": 30 + left * changes,
        f"slope {right_slope:.0f}": 30 + right_slope * changes,
    }
    lines(axes, changes, curves)
    return (
        "The loss against the change of one weight. It has a corner at 30, where the weight is not changed: to the left the "
        f"curve follows a line of slope {left:.0f}, to the right one of slope {right_slope:.0f}."
    )


OPENERS = {
    "nothing": {},
    "all but own 4": {"rows": "own"},
    "own 4": {"rows": "others"},
    "2 muted": {"muted": (1,)},
    "4 muted": {"muted": (3,)},
}


@cache
def _sums(
    rows: str, muted: tuple[int, ...], steps: int, step_size: float, only_down: tuple[int, ...] = ()
) -> tuple[list[float], list[float], list[float]]:
    layers, sums, hidden, output_2 = AUTOENCODER, [], [], []
    own = torch.arange(4) == OUTPUT
    trains = {"all": torch.ones(4), "own": own.double(), "others": (~own).double()}[rows]
    before = 0.0 if rows == "own" else 1.0
    for _ in range(steps + 1):
        passed = forward(layers, EXAMPLES)
        sums.append(float(passed.sums[3][OUTPUT, EXAMPLE]))
        hidden.append(float(passed.sums[2][1, EXAMPLE]))
        output_2.append(float(passed.output[1, EXAMPLE]))
        target = EXAMPLES.clone()
        target[list(muted), EXAMPLE] = passed.output[list(muted), EXAMPLE]  # nothing to correct there
        lower = torch.minimum(target, passed.output)
        target[list(only_down), EXAMPLE] = lower[list(only_down), EXAMPLE]
        found = backward(layers, passed, target)
        weights = (*(before * w for w in found.weights[:3]), trains[:, None] * found.weights[3])
        biases = (*(before * b for b in found.biases[:3]), trains * found.biases[3])
        layers = step(layers, BackwardPass(found.errors, weights, biases), step_size=step_size)
    return sums, hidden, output_2


def sums_of_output_3(
    *,
    rows: str = "all",
    muted: tuple[int, ...] = (),
    only_down: tuple[int, ...] = (),
    steps: int = 40,
    step_size: float = 0.002,
) -> list[float]:
    """Return the sum of output 3 on example 2 during training.

    `rows` says which numbers are trained: "all", output 3's "own" four, or the "others". The errors of outputs `muted`,
    counted from 0, are set to 0 on example 2 before they go back, those of outputs `only_down` where they are negative.
    """
    return _sums(rows, muted, steps, step_size, only_down)[0]


def sums_of_unit_2(*, steps: int = 40, step_size: float = 0.002) -> list[float]:
    """Return the sum of unit 2 of layer 3 on example 2, while all is trained but output 3's own four numbers."""
    return _sums("others", (), steps, step_size)[1]


@lesson.figure(
    ["Output 3 on example 2", "Unit 2 of layer 3 on example 2"],
    "steps",
    ["its sum $z$", "its sum $z$"],
    grid=(1, 2),
    size=(7.4, 3.4),
    legend=[{"loc": "upper left", "fontsize": 7.5, "title": "switched off", "title_fontsize": 8}, None],
    ylim=[(-2, 6.2), (-2.6, 1.4)],
)
def plot_opened(*axes):
    """Draw two sums on example 2 while different parts of the training are switched off."""
    for panel in axes:
        panel.axhline(0, color="0.5", linewidth=1, linestyle=(0, (1, 3)))
    axes[1].text(40, 0.06, "off below this line", ha="right", va="bottom", fontsize=9, color="0.3")
    paths = {
        name: _sums(given.get("rows", "all"), given.get("muted", ()), 40, 0.002) for name, given in OPENERS.items()
    }
    for panel, which in zip(axes, (0, 1), strict=True):
        lines(panel, None, {name: path[which] for name, path in paths.items()})
    ends = "; ".join(f"{name}: {path[0][-1]:.2f} and {path[1][-1]:.2f}" for name, path in paths.items())
    return (
        "The sums of output 3 (from -1) and of unit 2 of layer 3 (from 1) on example 2 over 40 steps of gradient descent. "
        f"After 40 steps, by what is switched off: {ends}."
    )


SIZES = (0.0005, 0.0007, 0.002)
UNTIL = 0.02  # training time


@lesson.figure(
    ["Output 3 on example 2", "Output 2 on example 2"],
    "training time: steps times step size",
    ["its sum $z$", "its value $y$"],
    grid=(1, 2),
    size=(7.2, 2.9),
    legend=[{"loc": "upper left", "fontsize": 8, "title": "step size", "title_fontsize": 8}, None],
    xlim=(0, UNTIL),
    ylim=[(-1.5, 2.6), (0, 2.1)],
)
def plot_times(*axes):
    """Draw the sum of output 3 and the value of output 2 on example 2 against the training time for three step sizes."""
    for panel, level, words in zip(axes, (0, 1), ("on above this line", "its target"), strict=True):
        panel.axhline(level, color="0.5", linewidth=1, linestyle=(0, (1, 3)))
        panel.text(UNTIL, level + 0.03, words, ha="right", va="bottom", fontsize=9, color="0.3")
    found = {size: _sums("all", (), round(UNTIL / size), size) for size in SIZES}
    for panel, which in zip(axes, (0, 2), strict=True):
        lines(
            panel,
            None,
            {f"{size:g}": (size * np.arange(len(path[which])), path[which]) for size, path in found.items()},
        )
    said = "; ".join(f"{size:g}: {path[0][-1]:.2f} and {path[2][-1]:.2f}" for size, path in found.items())
    return f"The sum of output 3, from -1, and the value of output 2, from 2, on example 2. Last by step size: {said}."


# The closing experiment: what `make bench random_starts` stored

ARMS = (
    "as on the worksheet", "Adam", "slope 0.1 backward only", "slope 0.1 backward only, Adam", "slope 0.1 below 0",
    "slope 0.1 below 0, Adam", "no gates", "He's starts", "starts half as large", "64 units in layers 1 and 3",
    "no gate at the output", "output biases start at 1", "all biases start at 1", "slope 0.01 below 0", "slope 0.3 below 0",
)  # fmt: skip


def stuck_levels() -> list[float]:
    """Return the losses (33.7) that are left where some outputs are 0 and the others are their best constants, in order."""
    choices = itertools.product((False, True), repeat=len(EXAMPLES))
    return sorted({float(stuck_loss(EXAMPLES, torch.tensor(dead))) for dead in choices})


def levels_of_one_direction() -> list[float]:
    """Return the losses that are left where some outputs are 0 and the others follow one number an example, in order.

    That is a constant for each output and one direction: the sum of all but the largest squared singular value is left.
    """
    found, centred = set(), EXAMPLES - EXAMPLES.mean(1, keepdim=True)
    for dead in itertools.product((False, True), repeat=len(EXAMPLES)):
        off = torch.tensor(dead)
        left = torch.linalg.svdvals(centred[~off])[1:].square().sum() if not all(dead) else torch.zeros(())
        found.add(round(float(EXAMPLES[off].square().sum() + left), 6))
    return sorted(found)


def learned(arm: str) -> list[int]:
    """Return how many of 100 starts learned the worksheet, for each of five draws of the starts."""
    return measured("random_starts", f"{arm}, learned")


@lesson.figure(
    "500 random starts after training",
    "share of the starts (%)",
    "loss at the end",
    size=(6.4, 3.5),
    legend=None,
    xlim=(0, 100),
    ylim=(-2, 80),
)
def plot_starts(axes):
    """Draw the sorted losses of all starts of the worksheet's network, and the levels where they get stuck."""
    losses = np.array(measured("random_starts", "as on the worksheet, losses"))
    for level in stuck_levels():
        axes.axhline(level, color="0.6", linewidth=0.8, linestyle="--")
    for level in set(levels_of_one_direction()) - set(stuck_levels()):
        axes.axhline(level, color=RED, linewidth=0.9, linestyle=":")
    axes.plot(100 * (np.arange(len(losses)) + 0.5) / len(losses), losses, "-", color=BLUE, linewidth=2.4)
    for x, level, said in ((2, 72, "72: every output is 0"), (30, 9.5, "12: every output is its best constant")):
        axes.text(
            x,
            level + 0.8,
            said,
            ha="left",
            va="bottom" if level > 50 else "top",
            fontsize=9,
            color="0.25",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
    share = float((losses < SOLVED).mean())
    return (
        "The losses of 500 networks from random starts after training, sorted. "
        f"{100 * share:.1f}% are below {SOLVED} and the median is {np.median(losses):.0f}. The curve is a staircase. Dashed "
        "lines mark the losses of networks of which some outputs are 0 and the others their best constants, from 12 to 72; "
        "dotted lines those where the others follow one number of the code."
    )


def starts_table(*, main: bool = True) -> Markdown:
    """Return how many of 100 starts learned the worksheet: mean and range of five draws, for seven arms or the others."""
    rows = [
        [arm, f"{np.mean(found):.1f}", f"{min(found)} to {max(found)}",
         f"{np.median(measured('random_starts', f'{arm}, median loss')):.2g}",
         f"{measured('random_starts', f'{arm}, best rate'):g}"]
        for arm in (ARMS[:7] if main else ARMS[7:]) for found in [learned(arm)]
    ]  # fmt: skip
    return markdown_table(["what is changed", "learned, of 100", "range of five", "median loss", "step size"], rows)


def longer_table() -> Markdown:
    """Return how many of 100 starts of the worksheet's network learned, in 4,000 and in 20,000 steps."""
    arm = ARMS[0]
    rows = [
        [f"{steps:,}", *map(str, measured("random_starts", f"{arm}, {name}"))]
        for steps, name in ((4000, "learned"), (20_000, "learned in 20000 steps"))
    ]
    return markdown_table(["steps", *(f"starts {k} to {k + 99}" for k in range(1, 500, 100))], rows)


STEPS = ("0", "1", "2", "3", "5", "10", "20", "40", "100", "1000", "4000")
EDGE = 45  # no product of an error and a value of this network is larger


@lesson.explorer
class NetworkExplorer(Explorer):
    """The worksheet's network for one example, at one step of its training; one weight, and what its gradient adds up."""

    title = "Every number of the worksheet"
    summary = (
        "Left: the network for one example, with the value of each unit in its circle, grey where the unit is off, and its "
        "error in orange below if errors are shown; the chosen weight is the thick line. Right: for each example the error "
        "of the unit at the weight's end times the value at its start."
    )
    example = Slider("example", "n", "Which of the four columns of the worksheet is drawn", 2, 1, 4, 1)
    layer = Slider(
        "layer of the weight", "l", "Between which two columns of units the chosen weight stands", 4, 1, 4, 1
    )
    row = Slider("row of the weight", "i", "The unit at its right end, which reads", 3, 1, 4, 1)
    column = Slider("column of the weight", "j", "The unit at its left end, which is read", 1, 1, 4, 1)
    errors = Switch("Show errors", "Write the slope of the loss in each sum under its unit, and draw the products")
    steps = Choice("Steps of training", "Steps of gradient descent on all four examples, step size 0.002", "0", STEPS)
    together = ("example", "steps")
    stills = ({}, {"example": 3, "errors": True}, {"example": 3, "layer": 3, "errors": True})
    size = (8.6, 4.1)
    strip_scale = 1.0
    strip_dpi = 64
    dpi = 110
    layout = panels(
        ["One example", "Parts of the gradient"],
        ["layer", "example"],
        ["unit", "error times value"],
        grid=(1, 2),
        subplots={"width_ratios": (2.6, 1)},
        legend=None,
        xlim=[(-0.4, 4.95), (0.4, 4.6)],
        ylim=[(3.7, -0.55), (-EDGE, EDGE)],
        xticks=[range(5), range(1, 5)],
        yticks=[[], (-40, -20, 0, 20, 40)],
    )

    def compute(self, *, example, layer, row, column, errors, steps):
        """Return the values and errors of one example, and the parts of one weight's gradient."""
        layers = trained(int(steps))
        passed = forward(layers, EXAMPLES)
        found = backward(layers, passed, EXAMPLES)
        n, k = example - 1, layer - 1
        weight = layers[k].weight
        i, j = min(row, weight.shape[0]) - 1, min(column, weight.shape[1]) - 1
        values = [float(v) for table in passed.values for v in table[:, n]]
        slopes = [float(v) for table in found.errors for v in table[:, n]]
        off = [bool(v <= 0) for table in passed.sums for v in table[:, n]]
        units = [place for column_of in PLACES[1:] for place in column_of]
        grey = [place for place, shut in zip(units, off, strict=True) if shut]
        parts = found.errors[k][i] * passed.values[k][j]
        (x0, y0), (x1, y1) = PLACES[k][j], PLACES[k + 1][i]
        return {
            "edge": ([x0, x1], [y0, y1]),
            "off": ([x for x, _ in grey], [y for _, y in grey]),
            "values": [_number(v) for v in values],
            "errors": [_number(v) if errors else "" for v in slopes],
            "targets": [f"target {_number(float(v))}" for v in EXAMPLES[:, n]],
            "parts": [(place + 0.7, 0.0, 0.6, float(v) * errors) for place, v in enumerate(parts)],
            "where": (example, int(steps), layer, i + 1, j + 1, row, column, tuple(weight.shape)),
            "weight": float(weight[i, j]),
            "sum": float(passed.sums[3][OUTPUT, n]),
            "products": [float(v) for v in parts],
            "gradient": float(found.weights[k][i, j]),
            "loss": float(squared_error(passed.output, EXAMPLES)),
            "shown": bool(errors),
        }

    def draw(self, left, right_axes):
        """Draw the units with their numbers, and a bar for each example."""
        draw_edges(left)
        left.set_xticks(range(5), ["input", "1", "2 (code)", "3", "4 (output)"])
        right_axes.axhline(0, color=BLACK, linewidth=0.8, linestyle="-")
        units = [place for column in PLACES for place in column]
        left.plot(*zip(*units, strict=True), "o", markersize=21, color=BLACK, markerfacecolor="white", zorder=2)
        look = {"ha": "center", "fontsize": 9.5, "zorder": 5}
        circle = {"markersize": 21, "color": BLACK, "markerfacecolor": "0.75", "zorder": 4}
        return {
            "edge": left.plot([], [], "-", color=SKY, linewidth=4, zorder=1.5)[0],
            "off": left.plot([], [], "o", **circle)[0],
            "values": [left.text(x, y, "", va="center", **look) for x, y in units],
            "errors": [left.text(x, y + 0.29, "", va="top", color=RED, **look) for x, y in units[4:]],
            "targets": [left.text(x + 0.2, y, "", va="center", **{**look, "ha": "left"}) for x, y in PLACES[4]],
            "parts": list(right_axes.bar(range(1, 5), [0] * 4, width=0.6, color=RED)),
        }

    def update(self, artists, state):
        """Set the moving artists; what the words need is not drawn."""
        for name, artist in artists.items():
            if name == "parts":
                for bar, bounds in zip(artist, state[name], strict=True):
                    bar.set_bounds(*bounds)
            elif name == "off" or name == "edge":
                artist.set_data(*state[name])
            else:
                for text, said in zip(artist, state[name], strict=True):
                    text.set_text(said)

    def words(self, state):
        """Say which weight is chosen, and with the errors shown how its gradient adds up."""
        example, steps, layer, i, j, row, column, (rows, columns) = state["where"]
        when = f"{steps} step{'' if steps == 1 else 's'}"
        said = f"Example {example} after {when}; the loss of all four is {state['loss']:.2f}. "
        if row > rows or column > columns:
            said += f"You asked for row {row}, column {column}; W{layer} has {rows} rows and {columns} columns. "
        said += f"W{layer}, row {i}, column {j} is {_number(state['weight'])}. "
        said += f"Output 3 has the sum {_number(state['sum'])}. "
        if not state["shown"]:
            return said + "Errors are hidden."
        total = " + ".join(f"({_number(v)})" for v in state["products"])
        return said + f"The gradient of the weight adds up over the examples: {total} = {_number(state['gradient'])}."


own_row_prediction = lesson.prediction(
    "33.P1",
    "Output 3 of example 2 has the sum $-1$, so it puts out 0; its target is 3. Gradient descent now trains only its own "
    "four numbers (three weights and the bias), on example 2 alone, for 40 steps. Where is the sum then?",
    {
        "Near 3: the error pulls it up": "The error asks for more, but raising the sum a little leaves the output at 0, so "
        "the loss does not change and its slope is 0.",
        "Near 0: it stops at the gate": "To reach 0 it would have to move, and its slope is 0 from the first step on.",
        "Still at -1": right(
            "A little more or a little less than -1 gives the output 0, and the same loss. The slope is 0, and so is "
            "each step."
        ),
        "Below -1": "Nothing pushes it down either: a little less than -1 gives the output 0, and the same loss.",
    },
    reveal=plot_own_row,
)

corner_prediction = lesson.prediction(
    "33.P2",
    "Autograd says: the derivative of the loss in the weight of $W_1$, row 3, column 4, is $-12$. Raise that weight by a "
    "very small $h$ and compute the loss again. What has the loss done?",
    {
        "Fallen by about 12 h": "That is the slope on the other side: lower the weight by h, and the loss rises by 12 h.",
        "Not changed: the unit is off": "For example 3 the unit is on. And on example 2 its sum is exactly 0, so any rise "
        "turns it on.",
        "Risen by about 38 h": right(
            "On example 2 the sum of that unit is exactly 0. Any rise turns it on, and that adds 50 h to the -12 h."
        ),
        "Risen by about 12 h": "A derivative of -12 would be a fall. The loss does rise, but by another amount.",
    },
    reveal=plot_corner,
)

size_prediction = lesson.prediction(
    "33.P3",
    "With the step size 0.002 output 3 is on for example 2 after two steps. Now take steps four times smaller, 0.0005, as "
    "many as you like. When does its gate open?",
    {
        "Sooner: after one step": "A smaller step moves every number less, so the first one brings the sum less far.",
        "Later: after about eight steps": "So it would be if the slopes stayed what they are. They change on the way.",
        "Later: after about a hundred": "The push from the neighbours does not last so long.",
        "Never": right(
            "The slopes at the start raise the sum, but they turn round before it reaches 0. A long step is past 0 by then."
        ),
    },
    reveal=plot_times,
)

FIGURES = lesson.figures
