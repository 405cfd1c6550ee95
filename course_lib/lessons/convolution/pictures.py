"""Figures, explorer and predictions of lesson 08, convolution."""

import math

import numpy as np
import torch
from IPython.display import Markdown
from matplotlib.colors import hsv_to_rgb
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.architectures.convolution import (
    correlate,
    correlated_images,
    effective_width,
    output_size,
    receptive_field,
    weight_gradient_std,
)
from course_lib.lessons.convolution.contents import lesson
from course_lib.measured import quote
from course_lib.teaching import Choice, Explorer, Slider, lines, markdown_table, panels
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, RED

EDGES = torch.tensor([[-1.0, -1.0, -1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
LETTERS = "abcdefghi"
CELL = 6  # how many points of the picture a pixel of the explorer's image is wide
COLORS = [hsv_to_rgb((n / 9, 0.55 if n % 2 else 0.35, 0.95)) for n in range(9)]
GREY, PALE, WHITE = (0.82,) * 3, (0.94,) * 3, (1.0,) * 3


def ring(size: int = 16) -> Tensor:
    """Return an image of a ring, 1 on it and 0 elsewhere."""
    place = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
    distance = (place[:, None] ** 2 + place**2).sqrt()
    return ((distance > 0.22 * size) & (distance < 0.4 * size)).double()


@lesson.figure(
    ["input X", "nine shifted copies, each times its weight", "output Y: their sum"],
    size=(11.4, 4.4),
    grid=(1, 3),
    legend=None,
    subplots={"width_ratios": [1, 2.2, 1]},
    bare=True,
)
def plot_question(left, middle, right):
    """Draw a convolution as a sum of nine shifted images."""
    image = ring()
    rows, cols = (n - 2 for n in image.shape)
    tiles = np.full((3 * rows + 6, 3 * cols + 6), np.nan)
    for h in range(3):
        for l in range(3):  # noqa: E741
            shifted = EDGES[h, l] * image[h : h + rows, l : l + cols]
            top, start = h * (rows + 3), l * (cols + 3)
            tiles[top : top + rows, start : start + cols] = shifted
            name = f"× {EDGES[h, l]:+g}" if EDGES[h, l] else "× 0"
            middle.text(start + cols / 2, top - 1.4, name, ha="center", va="center", fontsize=9)
    look = {"cmap": "RdBu_r", "vmin": -3, "vmax": 3, "interpolation": "nearest"}
    left.imshow(image.numpy(), **look)
    middle.imshow(tiles, **look)
    middle.set(ylim=(3 * rows + 5.5, -3))
    right.imshow(correlate(image, EDGES).numpy(), **look)
    return (
        "Left, an image of a ring. Middle, nine copies of it in a square of three by three, each shifted by "
        "0, 1 or 2 rows and columns and multiplied by its weight: -1 in the first row, 0 in the second, 1 "
        "in the third. Right, their sum: positive where the image gets brighter from top to bottom, "
        "negative where it gets darker, 0 along upright edges."
    )


# The explorer


def _paint(cells: np.ndarray) -> np.ndarray:
    """Enlarge an image of colours and draw white lines between its cells."""
    picture = cells.repeat(CELL, 0).repeat(CELL, 1)
    picture[::CELL], picture[:, ::CELL] = 1.0, 1.0
    return picture


def measured_table() -> Markdown:
    """Return what `make bench convolution` stored of depthwise products by FFT."""
    sizes = (3, 5, 7, 9, 11, 15, 31)
    times = [quote("convolution", f"depthwise by FFT / conv2d, depthwise, K = {k}") for k in sizes]
    return markdown_table(("$K$", *sizes), [("time / time of conv2d", *times)])


@lesson.explorer
class StencilExplorer(Explorer):
    """Point at an output, a weight or an input pixel, and see with what it is connected."""

    title = "What belongs together in a convolution"
    summary = (
        "Left the input of 8 by 8 pixels with its padding, in the middle the kernel of 3 by 3 weights with "
        "the letters a to i, right the output. What is pointed at is black; what is connected with it has "
        "the colour and letter of the weight between the two."
    )
    target = Choice(
        "point at",
        "An output shows what it reads, an input pixel by whom it is read, a weight where it is used",
        "an output",
        ("an input pixel", "an output", "a weight"),
    )
    row = Slider("row", "i", "Row that is pointed at, from 1; the last row where there are fewer", 4, 1, 8, 1)
    col = Slider("column", "j", "Column that is pointed at, from 1; the last one where there are fewer", 3, 1, 8, 1)
    stride = Slider("stride", "S", "Input pixels from one output to the next", 1, 1, 3, 1, "pixels")
    padding = Slider("padding", "P", "Zeros on every side of the input", 1, 0, 2, 1, "pixels")
    dilation = Slider("dilation", "D", "Input pixels from one weight to the next", 1, 1, 2, 1, "pixels")
    together = ("row", "col")
    size = (9.6, 4.0)
    layout = panels(
        ["input, pale: padding", "kernel", "output"],
        ["column j", "column l", "column j"],
        ["row i", "row h", "row i"],
        grid=(1, 3),
        legend=None,
        subplots={"width_ratios": [12, 4, 10]},
        aspect="equal",
        xlim=[(-1.5, 10.5), (0.5, 3.5), (0.5, 10.5)],
        ylim=[(10.5, -1.5), (3.5, 0.5), (10.5, 0.5)],
        xticks=[range(1, 9), range(1, 4), range(1, 11)],
        yticks=[range(1, 9), range(1, 4), range(1, 11)],
    )

    def compute(self, *, target, row, col, stride, padding, dilation):
        """Return the three pictures, the letters on them and what is connected."""
        m = output_size(8, kernel=3, stride=stride, padding=padding, dilation=dilation)
        most = {"an input pixel": 8, "an output": m, "a weight": 3}[target]
        here = (min(row, most) - 1, min(col, most) - 1)
        image, kernel, output = (np.ones((n, n, 3)) for n in (12, 3, 10))
        image[2 - padding : 10 + padding, 2 - padding : 10 + padding] = PALE
        image[2:10, 2:10], output[:m, :m], kernel[:] = GREY, GREY, GREY
        meetings = []  # weight, output and input pixel that belong to what is pointed at
        for n in range(9 * m * m):
            weight, i, j = n // m**2, n // m % m, n % m
            pixel = (stride * i + dilation * (weight // 3) - padding, stride * j + dilation * (weight % 3) - padding)
            if {"an input pixel": pixel, "an output": (i, j), "a weight": divmod(weight, 3)}[target] == here:
                meetings.append((weight, (i, j), pixel))
        letters = []
        for weight, (i, j), (y, x) in meetings:
            kernel[divmod(weight, 3)] = COLORS[weight]
            output[i, j] = COLORS[weight] if target != "an output" else (0, 0, 0)
            image[y + 2, x + 2] = COLORS[weight] if target != "an input pixel" else (0, 0, 0)
            letters.append((j + 1, i + 1) if target == "an input pixel" else (x + 1, y + 1))
        if target == "an input pixel":
            image[here[0] + 2, here[1] + 2] = 0
        names = [LETTERS[weight] for weight, _, _ in meetings] if target != "a weight" else []
        placed = [(*place, name) for place, name in zip(letters, names, strict=False)]
        empty = [(1, 1, "")] * 9
        outside = sum(not (0 <= y < 8 and 0 <= x < 8) for _, _, (y, x) in meetings)
        return {
            "image": _paint(image),
            "kernel": _paint(kernel),
            "output": _paint(output),
            "on input": (placed + empty)[:9] if target == "an output" else empty,
            "on output": (placed + empty)[:9] if target == "an input pixel" else empty,
            "target": target,
            "here": (here[0] + 1, here[1] + 1),
            "names": names,
            "count": len(meetings),
            "outside": outside,
            "options": (padding, dilation, stride, m),
        }

    def draw(self, left, middle, right):
        """Draw three empty pictures, the letters of the kernel, and letters that move."""
        artists = {}
        for name, axes, cells, start in (
            ("image", left, 12, -1.5),
            ("kernel", middle, 3, 0.5),
            ("output", right, 10, 0.5),
        ):
            extent = (start, start + cells, start + cells, start)
            artists[name] = axes.imshow(_paint(np.ones((cells, cells, 3))), extent=extent, interpolation="nearest")
        look = {"ha": "center", "va": "center", "fontsize": 9}
        for n, letter in enumerate(LETTERS):
            middle.text(n % 3 + 1, n // 3 + 1, letter, zorder=5, **look)
        # The kernel's letters stay; what is animated is drawn over them, so they move along.
        artists["letters"] = list(middle.texts)
        artists["on input"] = [left.text(1, 1, "", **look) for _ in range(9)]
        artists["on output"] = [right.text(1, 1, "", **look) for _ in range(9)]
        return artists

    def update(self, artists, state):
        """Set pictures and letters."""
        letters = [(n % 3 + 1, n // 3 + 1, letter) for n, letter in enumerate(LETTERS)]
        super().update(artists, {**state, "letters": letters})

    def words(self, state):
        """Say what is connected, and the size of the output."""
        (i, j), count, outside, names = state["here"], state["count"], state["outside"], state["names"]
        p, d, s, m = state["options"]
        if state["target"] == "an output":
            said = f"Output ({i}, {j}) is the sum of 9 products, {outside} of them with zeros of the padding."
        elif state["target"] == "a weight":
            said = (
                f"Weight {LETTERS[3 * i + j - 4]} is used by all {count} outputs, {outside} times on padding: its "
                f"gradient is a sum of "
                f"{count - outside} products of a pixel and dy."
            )
        elif count:
            ordered = ", ".join(reversed(names))
            said = (
                f"Input pixel ({i}, {j}) is read by {count} output{'s' * (count > 1)}, row by row through {ordered}"
                f"{': the kernel backwards' if count == 9 else ''}."
            )
        else:
            said = f"No output reads the input pixel ({i}, {j}): its gradient is 0."
        return f"{said} Output size: floor((8 + 2·{p} - {2 * d + 1})/{s}) + 1 = {m}."


# Gradients of random images


def measured_std(rho_x: float | int, rho_y: float | int, *, n: int = 32, k: int = 3, count: int = 2000) -> float:
    """Return the standard deviation of the entries of dW = X * dY over random images, means 0 and variances 1."""
    x = correlated_images(count, n, correlation=rho_x, generator=torch.Generator().manual_seed(1))
    m = n - k + 1
    dy = correlated_images(count, m, correlation=rho_y, generator=torch.Generator().manual_seed(2))
    dw = torch.stack([(x[:, h : h + m, l : l + m] * dy).sum((1, 2)) for h in range(k) for l in range(k)])  # noqa: E741
    return float(dw.square().mean().sqrt())


@lesson.figure(
    "Spread of a weight's gradient, images of 32 × 32",
    "correlation of neighbouring pixels",
    "Std(dw) / (σx σy)",
    size=(7.2, 4.2),
    legend="upper left",
    yscale="log",
    ylim=(15, 2000),
)
def plot_spread(axes):
    """Draw Std(dw) against the correlation, for one and for both images, with measured points."""
    rho = np.linspace(0, 1, 101)
    both = [weight_gradient_std(30, correlation=float(r) ** 2) for r in rho]
    one = [weight_gradient_std(30) for _ in rho]
    lines(axes, rho, {"X and dY correlated": both, "only X correlated": one})
    tried = (0.0, 0.5, 0.8, 0.95)
    axes.plot(tried, [measured_std(r, r) for r in tried], "o", color=BLUE, label="measured, both")
    axes.plot(tried, [measured_std(r, 0) for r in tried], "s", color=ORANGE, label="measured, only X")
    for y, name in ((30, "m = 30"), (900, "m² = 900")):
        axes.axhline(y, color=BLACK, linewidth=0.8, linestyle=":")
        axes.annotate(name, (0.5, y), (0, -13), textcoords="offset points", fontsize=9)
    return (
        "Standard deviation of one entry of the kernel's gradient against the correlation of neighbouring "
        "pixels, logarithmic. "
        f"With X and dY both correlated it rises from m = 30 at 0 over {both[50]:.0f} at 0.5 and {both[95]:.0f} at "
        f"0.95 to m squared = 900 at 1. "
        "With X correlated and dY independent it stays at 30. Measured points lie on both curves."
    )


def gradient_energy(depth: int, *, relu: bool = True, width: int = 12, nets: int = 6, seed: int = 0) -> Tensor:
    """Return the mean squared gradient of one output pixel with respect to the input, (2L + 1) x (2L + 1), sum 1.

    The networks have L random layers of 3 x 3 kernels without padding, with weights of variance 2/(9 channels).
    """
    generator, total = torch.Generator().manual_seed(seed), 0
    size = receptive_field([3] * depth)
    for _ in range(nets):
        x = torch.randn(1, width, size, size, generator=generator, dtype=torch.float32).requires_grad_()
        y = x
        for _ in range(depth):
            weight = (
                torch.randn(width, width, 3, 3, generator=generator, dtype=torch.float32) * (2 / (9 * width)) ** 0.5
            )
            y = torch.nn.functional.conv2d(y.relu() if relu and y is not x else y, weight)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        energy = gradient.double().square().sum((0, 1))
        total = total + energy / energy.sum()
    return total / nets


def width_of(energy: Tensor) -> float:
    """Return the standard deviation of the energy along one axis, in pixels, the mean of both axes."""
    place = torch.arange(len(energy), dtype=torch.float64) - (len(energy) - 1) / 2
    return float(((energy.sum(0) + energy.sum(1)) / 2 @ place.square()) ** 0.5)


def share_within(energy: Tensor, half: int) -> float:
    """Return the share of the energy in the square of 2 half + 1 pixels round the middle."""
    middle = len(energy) // 2
    return float(energy[middle - half : middle + half + 1, middle - half : middle + half + 1].sum())


@lesson.figure(
    ["5 layers: 11 × 11 can be reached", "20 layers: 41 × 41 can be reached", "width against depth"],
    ["column", "column", "layers L"],
    ["row", "row", "pixels"],
    size=(11.4, 4.0),
    grid=(1, 3),
    legend=[None, None, "upper left"],
)
def plot_fields(first, second, third):
    """Draw where the gradient of one output lies, and how its width grows with depth."""
    for axes, depth in ((first, 5), (second, 20)):
        energy = gradient_energy(depth)
        axes.imshow(energy.numpy(), cmap="Blues", extent=(-depth - 0.5, depth + 0.5, depth + 0.5, -depth - 0.5))
        axes.add_patch(
            Rectangle(
                (-depth - 0.5, -depth - 0.5), 2 * depth + 1, 2 * depth + 1, fill=False, edgecolor=RED, linewidth=2
            )
        )
        axes.set(xlim=(-22, 22), ylim=(22, -22))
    depths = np.arange(1, 31)
    curves = {
        "reach to each side, L": depths,
        "standard deviation, √(2L/3)": [effective_width([3] * int(d)) for d in depths],
    }
    lines(third, depths, curves)
    tried = (2, 5, 10, 20)
    third.plot(tried, [width_of(gradient_energy(d)) for d in tried], "o", color=GREEN, label="measured")
    return (
        "Left and middle, the mean squared gradient of one output with respect to the input of random "
        "networks with ReLU, with 5 and 20 layers of 3 by 3 kernels. A red square marks the pixels that can "
        "be reached: 11 by 11 and 41 by 41. The gradient is a round spot in its middle that fills the small "
        "square and a small part of the large one. Right, against the number of layers: the reach grows in "
        f"proportion to it, to 30; the standard deviation as its root, to {math.sqrt(20):.1f}; measured points lie "
        f"on the root."
    )


# Predictions

turned_prediction = lesson.prediction(
    "08.P1",
    "A kernel of $3 \\times 3$ weights, row by row a b c d e f g h i, slides over an image. One pixel in "
    "the middle of the image is read by nine outputs, which form a square. Through which weights do they "
    "read it, row by row of that square?",
    {
        "a b c d e f g h i": "That is how one output reads nine pixels. Turned round, the output to the upper left "
        "of a pixel sees it at its own lower right: through i.",
        "a d g b e h c f i": "Rows and columns keep their places: nothing is transposed. The output in the upper "
        "right corner sees the pixel at its lower left, through g.",
        "i h g f e d c b a": "The output to the upper left sees the pixel at its own lower right, through i, and so "
        "on: the kernel turned by 180 degrees.",
        "e nine times": "Only the output right at the pixel reads it through e. Its neighbours read it through other "
        "weights.",
    },
    answer="i h g f e d c b a",
    reveal=lambda: StencilExplorer().strip(),
)

spread_prediction = lesson.prediction(
    "08.P2",
    "An image of $32 \\times 32$ pixels and a kernel of $3 \\times 3$. All $x_{ij}$ and $dy_{ij}$ are "
    "independent, and $dw$ has the standard deviation $s$. Now the image becomes smooth: neighbouring "
    "pixels have the correlation 0.95. The $dy_{ij}$ stay independent. What is the new standard deviation "
    "of $dw$?",
    {
        "About s": "The products x dy at two places stay uncorrelated as long as the dy are: smoothness of the image "
        "alone changes nothing. The upper curve needs both.",
        "About 13 s": "That happens if the incoming gradients are smooth as well, with the same correlation. With "
        "independent dy, the products at two places stay uncorrelated.",
        "About 30 s": "That is m s, the limit where image and incoming gradient are both constant.",
    },
    answer="About s",
    reveal=plot_spread,
)

field_prediction = lesson.prediction(
    "08.P3",
    "A random network has 20 layers of $3 \\times 3$ kernels with ReLU. One output depends on $41 \\times "
    "41$ pixels. How wide is the square in the middle that holds nine tenths of the squared gradient?",
    {
        "about 39 pixels": "So it would be if the gradient were spread evenly over the 41 × 41 pixels. It is not.",
        "about 15 pixels": "The gradient is a bell of standard deviation √(2·20/3) = 3.7 pixels; about two of them "
        "on each side hold nine tenths.",
        "3 pixels": "That is the field of one layer. Every layer widens the spot, but only as the root of the depth.",
    },
    answer="about 15 pixels",
    reveal=plot_fields,
)

FIGURES = lesson.figures
