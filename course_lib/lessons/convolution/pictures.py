"""Figures, explorers and predictions of lesson 10, convolution."""

from functools import lru_cache

import numpy as np
import torch
from IPython.display import Markdown
from matplotlib.colors import hsv_to_rgb
from matplotlib.patches import Rectangle
from torch import Tensor, nn
from torch.nn import functional

from course_lib.architectures.convolution import correlate, output_size, receptive_field
from course_lib.lessons.convolution.contents import lesson
from course_lib.lessons.convolution.corners import (
    BOX,
    CONV,
    DENSE,
    JOINED,
    MAX,
    MEAN,
    NETWORKS,
    OWN,
    PLACES,
    SIZE,
    corner,
    trained,
)
from course_lib.measured import figures, measured, quote
from course_lib.teaching import Choice, Explorer, Slider, Switch, markdown_table, panels
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, RED, compact, small_legend

EDGES = torch.tensor([[-1.0, -1.0, -1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
LETTERS = "abcdefghi"
CELL = 6  # how many points of the picture a pixel of the explorer's image is wide
COLORS = [hsv_to_rgb((n / 9, 0.55 if n % 2 else 0.35, 0.95)) for n in range(9)]
GREY, PALE, WHITE = (0.82,) * 3, (0.94,) * 3, (1.0,) * 3
OPENS = ("opens to the lower right", "opens to the upper left")


# The corners


def network(name: str, seed: int = 0):
    """Return a network of the course, trained on this machine at the step size that the stored run chose."""
    return trained(name, measured("corners", name)["step size"], seed)


def stored(arm: str, half: str) -> np.ndarray:
    """Return the accuracies of an arm on the held-out images of a half, five seeds, from the stored run."""
    return np.array(found_of(arm)[half])


def found_of(arm: str) -> dict:
    """Return what was stored of an arm, in one of the two long runs."""
    return measured("corners" if arm in figures("corners") else "shifted_corners", arm)


@lesson.figure(
    ["class 0", "class 1", "trained on", "trained on", "asked about, too", "asked about, too"],
    size=(7.6, 1.75),
    grid=(1, 6),
    legend=None,
    bare=True,
)
def plot_corners(*panels_):
    """Draw the two shapes, and noisy images with one of them in the left and in the right half."""
    look = {"cmap": "Greys", "vmin": -2, "vmax": 4, "interpolation": "nearest"}
    for label in (0, 1):
        box = torch.zeros(SIZE, SIZE, dtype=torch.float32)
        box[5 : 5 + BOX, 5 : 5 + BOX] = corner(label)
        panels_[label].imshow(box.numpy(), **look)
    generator = torch.Generator().manual_seed(2)
    for axes, label, row, column in zip(panels_[2:], (0, 1, 0, 1), (8, 3, 2, 9), (2, 1, 9, 11), strict=True):
        image = torch.randn(SIZE, SIZE, generator=generator, dtype=torch.float32)
        image[row : row + BOX, column : column + BOX] += corner(label)
        axes.imshow(image.numpy(), **look)
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), BOX, BOX, fill=False, edgecolor=RED, linewidth=1.2))
        axes.axvline(SIZE / 2 - 0.5, color=BLUE, linewidth=1.2, linestyle="--")
    compact(*panels_)
    return (
        "The two shapes without noise, and four noisy images, one of each class with the corner, framed here only, in "
        "the left half and in the right. The dashed line separates the halves."
    )


def _dots(axes, arms: dict[str, str]) -> None:
    """Draw accuracies of five seeds for each arm, left and right, one row an arm."""
    for row, arm in enumerate(arms):
        for half, color, marker, shift in (("left", BLUE, "o", 0.16), ("right", RED, "D", -0.16)):
            values = stored(arm, half)
            place = len(arms) - 1 - row + shift
            axes.plot(values, np.full(len(values), place), marker, color=color, markersize=4.5, alpha=0.75, linestyle="",
                      label=f"{half} half" if row == 0 else "_")  # fmt: skip
    axes.axvline(0.5, color=BLACK, linewidth=0.9, linestyle=":", label="guessing")
    axes.set_yticks(range(len(arms)), list(arms.values())[::-1])
    compact(axes)


@lesson.figure(
    "Trained in the left half: five seeds",
    "share of held-out images that are right",
    "network",
    size=(6.2, 1.9),
    legend=small_legend("upper right"),
    xlim=(0.42, 1.02),
    ylim=(-0.6, 1.6),
)
def plot_halves(axes):
    """Draw what the dense network and the convolution with a dense readout reach in both halves."""
    _dots(axes, {DENSE: "dense network", CONV: "convolution,\ndense readout"})
    return "Accuracy of five seeds in both halves. In the right half both networks guess."


ARMS = {
    MAX: "convolution, max over places",
    OWN: "own filters at each place, max",
    MEAN: "convolution, mean over places",
    CONV: "convolution, dense readout",
    DENSE: "dense",
    JOINED: "mean over places, joined edges",
    f"{MEAN}, shifted by 0 to 8": "mean over places, shifted images",
    f"{MEAN}, shifted by 0 to 8, five times as long": "mean over places, shifted images,\n5 times as long",
    f"{CONV}, shifted by 0 to 8": "dense readout, shifted images",
    f"{CONV}, shifted by 0 to 8, five times as long": "dense readout, shifted images,\n5 times as long",
}


@lesson.figure(
    "Trained in the left half: five seeds",
    "share of held-out images that are right",
    "network",
    size=(7.0, 4.5),
    legend=small_legend("lower left"),  # no accuracy lies there
    xlim=(0.42, 1.02),
    ylim=(-0.6, len(ARMS) - 0.4),
)
def plot_closing(axes):
    """Draw the accuracies of ten arms in both halves."""
    _dots(axes, ARMS)
    axes.axhline(4.5, color=BLACK, linewidth=0.7, linestyle="-")
    return (
        "Accuracy of five seeds in both halves, one row for each network. Below the line the networks that get more than "
        "the others: images without a border, or shifted ones."
    )


def edges_joined(seed: int = 0) -> nn.Module:
    """Return the trained network of the mean over places, asked about images whose edges meet, without new training."""
    filters, *rest = network(MEAN, seed)
    with torch.random.fork_rng(devices=[]):
        joined = NETWORKS[JOINED]()[0]
    joined.load_state_dict(filters.state_dict())
    return nn.Sequential(joined, *rest)


def pulled_pixels(name: str, images: Tensor, seed: int = 0) -> Tensor:
    """Return the squared gradient of the difference of both class scores, with respect to each pixel."""
    x = images.clone().requires_grad_()
    scores = network(name, seed)(x)
    (gradient,) = torch.autograd.grad((scores[:, 0] - scores[:, 1]).sum(), x)
    return gradient[:, 0].square()


def share_on_corner(name: str, images: Tensor, boxes: Tensor, seed: int = 0) -> float:
    """Return the mean share of the squared gradient that lies on the 25 pixels of the corner's box.

    Shapes: `boxes` holds the row and column where each box begins, (images, 2).
    """
    pulled = pulled_pixels(name, images, seed)
    shares = [
        one[row : row + BOX, column : column + BOX].sum() / one.sum().clamp(min=1e-30)
        for one, (row, column) in zip(pulled, boxes.tolist(), strict=True)
    ]
    return float(torch.stack(shares).mean())


def placed_corners(count: int, *, seed: int = 5) -> tuple[Tensor, Tensor]:
    """Return noisy images with a corner of class 0 anywhere in the right half, and where its box begins."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 1, SIZE, SIZE, generator=generator, dtype=torch.float32)
    rows = torch.randint(PLACES, (count,), generator=generator)
    columns = SIZE // 2 + torch.randint(SIZE // 2 - BOX + 1, (count,), generator=generator)
    for image, row, column in zip(images[:, 0], rows, columns, strict=True):
        image[row : row + BOX, column : column + BOX] += corner(0)
    return images, torch.stack([rows, columns], 1)


@lesson.figure(
    ["one image", "shared filters, max", "own filters, max", "shared filters, mean"],
    size=(7.2, 2.1),
    grid=(1, 4),
    legend=None,
    bare=True,
)
def plot_pulled(first, *others):
    """Draw which pixels of one image the answer of three trained networks depends on."""
    images, boxes = placed_corners(4)
    row, column = boxes[0].tolist()
    first.imshow(images[0, 0].numpy(), cmap="Greys", vmin=-2, vmax=4, interpolation="nearest")
    for axes, name in zip(others, (MAX, OWN, MEAN), strict=True):
        pulled = pulled_pixels(name, images)[0]
        axes.imshow((pulled / pulled.max()).sqrt().numpy(), cmap="Blues", interpolation="nearest")
    for axes in (first, *others):
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), BOX, BOX, fill=False, edgecolor=RED, linewidth=1.8))
    compact(first, *others)
    return (
        "An image with a corner, framed, in the right half, and the size of the gradient of three networks' answers at each "
        "of its pixels, each over its largest. In the second picture a filter of the other class won on noise, upper left."
    )


@lru_cache
def _still(seed: int = 5) -> Tensor:
    """The noise of the explorer, which stays where it is when the corner moves."""
    return torch.randn(1, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


@lru_cache
@torch.no_grad()
def named_in(half: str, *, noise: bool) -> dict[str, int]:
    """Return how many of the 96 corners of a half, two shapes at 48 places each, three networks name rightly."""
    columns = range(SIZE // 2 - BOX + 1) if half == "left" else range(SIZE // 2, PLACES)
    found = dict.fromkeys((DENSE, CONV, MAX), 0)
    for label in (0, 1):
        images = []
        for row in range(PLACES):
            for column in columns:
                image = _still().clone() if noise else torch.zeros(1, 1, SIZE, SIZE, dtype=torch.float32)
                image[0, 0, row : row + BOX, column : column + BOX] += corner(label)
                images.append(image)
        for name in found:
            found[name] += int((network(name)(torch.cat(images)).argmax(1) == label).sum())
    return found


def _sure(scores: Tensor) -> str:
    share = scores.softmax(-1)[0]
    return f"{OPENS[int(share.argmax())]} ({float(share.max()):.0%})"


@lesson.explorer
class CornerExplorer(Explorer):
    """Move a corner, and see a map of the trained convolution and the units of the dense network."""

    title = "A corner that moves"
    summary = (
        "Left the image. Middle one of the eight maps of the trained convolution with a dense readout, after ReLU: that "
        "of the filter which answers most to the shape. Right the 64 hidden units of the trained dense network, drawn as "
        "a square in no particular order. Dark is large."
    )
    column = Slider(
        "column", "j", "First column of the corner's box; from 9 on it lies in the right half", 3, 1, PLACES, 1
    )
    shape = Choice("corner", "Which of the two shapes is drawn", OPENS[1], OPENS)
    row = Slider("row", "i", "First row of the corner's box", 3, 1, PLACES, 1)
    stride = Slider(
        "stride",
        "S",
        "Pixels from one place of the filter to the next in the map; the networks answer at stride 1",
        1, 1, 2, 1, "pixels",
    )  # fmt: skip
    noise = Switch("noise", "Adds the noise that the networks were trained with", default=False)
    largest = Switch(
        "largest value", "Rings it, and asks a third network, which sees the largest value of each map", default=False
    )
    together = ("row", "column")
    size = (8.0, 3.0)
    strip_scale = 0.6
    dpi = 100
    layout = panels(
        ["image", "one map", "64 dense units"],
        ["column j", "column", "unit"],
        ["row i", "row", "unit"],
        grid=(1, 3),
        legend=None,
        aspect="equal",
        xlim=[(0.5, 16.5), (0.5, 12.5), (0.5, 8.5)],
        ylim=[(16.5, 0.5), (12.5, 0.5), (8.5, 0.5)],
        xticks=[[1, 8, 16], [1, 6, 12], []],
        yticks=[[1, 8, 16], [1, 6, 12], []],
    )

    @staticmethod
    @torch.no_grad()
    def maps(image: Tensor, stride: int = 1) -> Tensor:
        """Return the eight maps of the trained convolution, (8, places, places)."""
        filters = network(CONV)[0]
        return functional.conv2d(image, filters.weight, filters.bias, stride=stride).relu()[0]

    @torch.no_grad()
    def compute(self, *, shape, row, column, stride, noise, largest):
        """Return image, map and units as pictures, and what the networks answer."""
        drawn = corner(OPENS.index(shape))
        image = _still().clone() if noise else torch.zeros(1, 1, SIZE, SIZE, dtype=torch.float32)
        image[0, 0, row - 1 : row - 1 + BOX, column - 1 : column - 1 + BOX] += drawn
        shown = int(network(CONV)[0].weight.mul(drawn).sum((1, 2, 3)).argmax())  # answers most to the shape
        found = self.maps(image, stride)[shown]
        half = "right" if column > SIZE // 2 else "left" if column <= SIZE // 2 - BOX + 1 else ""
        units = network(DENSE)[:3](image)[0]
        place = divmod(int(found.argmax()), found.shape[1])
        return {
            "image": image[0, 0].numpy(),
            "map": (found / 5).numpy().repeat(stride, 0).repeat(stride, 1),
            "units": (units / 4).numpy().reshape(8, 8),
            "peak": (float(found.max()), place[0] + 1, place[1] + 1),
            "answers": [_sure(network(name)(image)) for name in (DENSE, CONV)],
            "largest": _sure(network(MAX)(image)) if largest else "",
            "ring": tuple([stride * (at + 0.5) + 0.5] for at in place[::-1]) if largest else ([], []),
            "setting": (row, column, stride),
            "half": half,
            "named": named_in(half, noise=noise) if half else {},
        }

    def draw(self, left, middle, right_):
        """Draw three empty pictures, and the line between the halves."""
        compact(left, middle, right_)
        start = lambda n: (0.5, n + 0.5, n + 0.5, 0.5)  # noqa: E731
        look = {"cmap": "Greys", "interpolation": "nearest"}
        left.axvline(8.5, color=BLUE, linewidth=1.2, linestyle="--", zorder=3)
        return {
            "image": left.imshow(np.zeros((16, 16)), extent=start(16), vmin=-2, vmax=4, **look),
            "map": middle.imshow(np.zeros((12, 12)), extent=start(12), vmin=0, vmax=1, **look),
            "units": right_.imshow(np.zeros((8, 8)), extent=start(8), vmin=0, vmax=1, **look),
            "ring": middle.plot([], [], "o", markersize=9, markerfacecolor="none", markeredgecolor=RED)[0],
        }

    def words(self, state):
        """Say where the map is largest, and what the networks answer."""
        row, column, stride = state["setting"]
        value, i, j = state["peak"]
        dense, convolution = state["answers"]
        third = f" With the largest value of each map: {state['largest']}." if state["largest"] else ""
        answers = "Networks at stride 1: dense" if stride > 1 else "Dense network"
        named = state["named"]
        if named:
            count = f"{named[DENSE]} and {named[CONV]}" + (f", and the third {named[MAX]}" if state["largest"] else "")
            third += f" Of the 96 corners of the {state['half']} half the two name {count} rightly."
        return (
            f"Corner at row {row}, column {column}, stride {stride}: the map is largest, {value:.1f}, at its "
            f"row {i}, column "
            f"{j}. {answers}: {dense}. Convolution, dense readout: {convolution}.{third}"
        )


# The layer and its matrix


def ring(size: int = 12) -> Tensor:
    """Return an image of a ring, 1 on it and 0 elsewhere."""
    place = torch.arange(size, dtype=torch.float64) - (size - 1) / 2
    distance = (place[:, None] ** 2 + place**2).sqrt()
    return ((distance > 0.22 * size) & (distance < 0.4 * size)).double()


@lesson.figure(
    ["image X", "nine shifted copies, each times its weight", "their sum, Y"],
    size=(6.4, 3.8),
    grid=(1, 3),
    legend=None,
    subplots={"width_ratios": [12, 36, 10]},
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
    compact(left, middle, right)
    return (
        "Left, an image of a ring. Middle, nine copies of it in a square of three by three, each shifted by "
        "0, 1 or 2 rows and columns and multiplied by its weight: -1 in the first row, 0 in the second, 1 "
        "in the third. Right, their sum: positive where the value rises from top to bottom, "
        "negative where it falls, 0 along upright edges."
    )


def _banded(axes, *, turned: bool) -> None:
    """Draw the matrix of a layer of the weights a, b, c along one axis, or its transpose."""
    pixels, taps = 9, 3
    outputs = pixels - taps + 1
    rows, columns = (pixels, outputs) if turned else (outputs, pixels)
    picture = np.ones((rows, columns, 3))
    for i in range(outputs):
        for h in range(taps):
            place = (i + h, i) if turned else (i, i + h)
            picture[place] = COLORS[h]
            axes.text(place[1] + 1, place[0] + 1, LETTERS[h], ha="center", va="center", fontsize=9)
    axes.imshow(picture, extent=(0.5, columns + 0.5, rows + 0.5, 0.5), interpolation="nearest", aspect="equal")
    axes.set_xticks(range(1, columns + 1))
    axes.set_yticks(range(1, rows + 1))
    compact(axes)


@lesson.figure(
    ["three weights along one axis", "3 × 3 weights, 6 × 6 pixels"],
    "pixel that is read",
    "output",
    size=(9.0, 2.9),
    grid=(1, 2),
    legend=None,
    subplots={"width_ratios": [9, 26]},
)
def plot_matrix(left, right_):
    """Draw the matrix of a layer of three weights along one axis, and of one of nine weights over two axes."""
    _banded(left, turned=False)
    side, taps = 6, 3
    m = side - taps + 1
    picture = np.ones((m * m, side * side, 3))
    for output in range(m * m):
        for n, letter in enumerate(LETTERS):
            pixel = (output // m + n // taps) * side + output % m + n % taps
            picture[output, pixel] = COLORS[n]
            right_.text(pixel + 1, output + 1, letter, ha="center", va="center", fontsize=6.5)
    right_.imshow(picture, extent=(0.5, side**2 + 0.5, m * m + 0.5, 0.5), interpolation="nearest", aspect="equal")
    right_.set_xticks([1, *range(6, 37, 6)])
    right_.set_yticks([1, *range(4, 17, 4)])
    compact(right_)
    return (
        "Matrices of two layers. Left, weights a, b, c along one axis of nine pixels: each row holds the same letters, one "
        "place further to the right. Right, a kernel with the rows a b c, d e f, g h i on an image of 6 by 6 pixels, "
        "counted row by row, as the 16 outputs are: each row holds the same nine letters."
    )


@lesson.figure("its transpose", "output that gives back", "pixel that receives", size=(3.0, 2.8), legend=None)
def plot_transpose(axes):
    """Draw the transpose of the matrix of a layer of three weights along one axis."""
    _banded(axes, turned=True)
    return "The transpose of that matrix: a row in its middle holds c, b, a, the kernel backwards."


@lesson.figure(
    ["gradient of weight f: dY lies on X", "gradient of a pixel: turned w lies on padded dY"],
    size=(6.6, 3.1),
    grid=(1, 2),
    legend=None,
    bare=True,
)
def plot_back(left, right_):
    """Draw dY on the image for one weight, and the turned kernel on the padded dY for one pixel."""
    image = np.ones((7, 7, 3)) * GREY[0]
    image[1:6, 2:7] = COLORS[5]
    left.imshow(image, interpolation="nearest")
    for i in range(5):
        for j in range(5):
            left.text(j + 2, i + 1, f"dy$_{{{i + 1}{j + 1}}}$", ha="center", va="center", fontsize=7.5)
    padded = np.ones((9, 9, 3)) * PALE[0]
    padded[2:7, 2:7] = GREY
    for n in range(9):
        row, column = 3 + n // 3, 1 + n % 3
        padded[row, column] = COLORS[8 - n]
        right_.text(column, row, LETTERS[8 - n], ha="center", va="center", fontsize=10)
    right_.imshow(padded, interpolation="nearest")
    right_.add_patch(Rectangle((1.5, 1.5), 5, 5, fill=False, edgecolor=BLACK, linewidth=1.5))
    left.add_patch(Rectangle((1.5, 0.5), 5, 5, fill=False, edgecolor=BLACK, linewidth=1.5))
    for axes, cells in ((left, 7), (right_, 9)):
        for k in range(cells + 1):
            axes.axhline(k - 0.5, color="white", linewidth=0.8, linestyle="-")
            axes.axvline(k - 0.5, color="white", linewidth=0.8, linestyle="-")
    compact(left, right_)
    return (
        "An image of 7 by 7, a kernel of 3 by 3, so dY is 5 by 5, framed. Left: for weight f, second row and "
        "third column, dY "
        "lies one row down and two columns to the right on the image. Right: dY with two zeros around it, and "
        "on it the kernel "
        "of one pixel, row by row i h g, f e d, c b a."
    )


def reads(depth: int, *, kernel: int = 3, stride: int = 2, outputs: int = 8) -> Tensor:
    """Return how many ways lead from the outputs to each pixel along one axis, through `depth` layers."""
    ways = torch.ones(1, 1, outputs, dtype=torch.float64)
    ones = torch.ones(1, 1, kernel, dtype=torch.float64)
    for _ in range(depth):
        ways = functional.conv_transpose1d(ways, ones, stride=stride)
    return ways[0, 0]


def one_period(depth: int, *, kernel: int = 3, stride: int = 2) -> Tensor:
    """Return the counts of `reads` over one period of stride^depth pixels, far from both ends."""
    period, margin = stride**depth, 2 * kernel
    ways = reads(depth, kernel=kernel, stride=stride, outputs=2 * margin)
    start = margin * period // 2 // period * period
    return ways[start : start + period]


def squared_gradients(depth: int, *, kernel: int = 3, nets: int = 40, relu: bool = True, seed: int = 0) -> Tensor:
    """Return mean squared gradients over one period of 2^depth x 2^depth pixels, for random networks of stride 2.

    Networks have 12 channels, weights of variance 2 / (9 * 12), and independent standard normal dY; only whole periods
    that are two or more periods away from the border are averaged. The smallest of the period is 1.
    """
    generator, total, width, outputs = torch.Generator().manual_seed(seed), 0, 12, 8
    size = len(reads(depth, kernel=kernel, outputs=outputs))
    for _ in range(nets):
        x = torch.randn(1, width, size, size, generator=generator, dtype=torch.float32).requires_grad_()
        y = x
        for _ in range(depth):
            weight = torch.randn(width, width, kernel, kernel, generator=generator, dtype=torch.float32)
            y = functional.conv2d(y.relu() if relu and y is not x else y, weight / (9 * width / 2) ** 0.5, stride=2)
        dy = torch.randn(y.shape, generator=generator, dtype=torch.float32)
        total = total + torch.autograd.grad(y, x, dy)[0].double().square().sum((0, 1))
    period = 2**depth
    whole = (size - 4 * period) // period
    inner = total[2 * period :, 2 * period :][: whole * period, : whole * period]
    mean = inner.reshape(whole, period, whole, period).mean((0, 2))
    return mean / mean.min()


@lesson.figure(
    ["K = 3, S = 2: who reads whom", "ways to each pixel, three layers", "root of the mean\nsquared gradient"],
    ["pixel", "pixel of one period", "column"],
    ["input and output", "ways", "row"],
    size=(8.4, 2.8),
    grid=(1, 3),
    legend=None,
    subplots={"width_ratios": [1.3, 1.1, 1.1]},
)
def plot_favourites(left, middle, right_):
    """Draw windows of three at stride 2, the number of ways through three layers, and measured squared gradients."""
    for i in range(4):
        for h in range(3):
            left.plot([2 * i + h + 1, 2 * i + 2], [0, 1], color=BLUE, linewidth=1.2, linestyle="-")
    ways = [1, 1, 2, 1, 2, 1, 2, 1, 1]
    for pixel, count in enumerate(ways, 1):
        inside = 2 < pixel < 8
        color = (RED if count == 2 else GREEN) if inside else "#999999"
        left.plot([pixel], [0], "s", color=color, markersize=9)
        if inside:
            left.text(pixel, -0.22, str(count), ha="center", va="center", fontsize=9)
    left.plot([2, 4, 6, 8], [1] * 4, "o", color=BLACK, markersize=6)
    left.text(5, 1.2, "outputs", ha="center", fontsize=9)
    left.set(ylim=(-0.4, 1.45), xlim=(0.3, 9.7), yticks=[])
    counts = one_period(3)
    middle.bar(range(1, 9), counts.numpy(), color=[RED if v == counts.max() else BLUE for v in counts], width=0.7)
    middle.set_xticks(range(1, 9))
    roots = right_.imshow(squared_gradients(3).sqrt().numpy(), cmap="Blues", extent=(0.5, 8.5, 8.5, 0.5), vmin=0)
    bar = right_.figure.colorbar(roots, ax=right_, shrink=0.8, ticks=range(6)).ax
    bar.tick_params(labelsize=8)
    bar.set(xlabel="root", ylabel="of the mean squared gradient")
    right_.set_xticks([1, 8])
    right_.set_yticks([1, 8])
    compact(left, middle, right_)
    said = ", ".join(f"{count:.0f}" for count in counts)
    return (
        "Left, windows of three pixels at stride 2: away from the ends, pixels are read once and twice in turn. Middle, "
        f"ways from the outputs to each of the eight pixels of a period through three such layers: {said}. Right, the "
        "root of the mean squared gradient that random ReLU networks of three layers send back to the 8 by 8 pixels of "
        "such a period, over its smallest: about the roots of the products of these counts."
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
        "the letters a to i, right the output. An output or input pixel that is pointed at is black; what is connected "
        "with it has the colour and letter of the weight between the two. A weight has its colour wherever it is used."
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


# How far one output sees


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
    ["1 layer, 2, 5 and 20: boxes on boxes", "5 layers", "20 layers"],
    ["pixels from the middle", "column", "column"],
    ["share of all ways", "row", "row"],
    size=(8.0, 2.8),
    grid=(1, 3),
    legend=[small_legend("upper right"), None, None],
    subplots={"width_ratios": [1.4, 1, 1]},
)
def plot_fields(left, *fields):
    """Draw a box that meets itself, and where the gradient of one output lies for random networks."""
    for depth, color, style in ((1, BLUE, "-"), (2, ORANGE, "--"), (5, GREEN, "-."), (20, RED, ":")):
        ways = reads(depth, stride=1, outputs=1)
        place = np.arange(len(ways)) - depth
        left.plot(place, (ways / ways.sum()).numpy(), color=color, linestyle=style, linewidth=1.6, label=f"L = {depth}")
    left.set_xlim(-21, 21)
    for axes, depth in zip(fields, (5, 20), strict=True):
        energy = gradient_energy(depth)
        reach = (-depth - 0.5, depth + 0.5, depth + 0.5, -depth - 0.5)
        axes.imshow(energy.numpy(), cmap="Blues", extent=reach)
        axes.add_patch(
            Rectangle((reach[0], reach[0]), 2 * depth + 1, 2 * depth + 1, fill=False, edgecolor=RED, linewidth=2)
        )
        axes.set(xlim=(-22, 22), ylim=(22, -22), xticks=[-20, 0, 20], yticks=[-20, 0, 20])
    compact(left, *fields)
    return (
        "Left, the number of ways from one output to each pixel at stride 1, over their sum: one layer is a box "
        "of three, and "
        "each further layer smooths it. Middle and right, the mean squared gradient of one output in random "
        "ReLU networks; the "
        "frame is what can be reached, 11 by 11 and 41 by 41 pixels."
    )


# Predictions

half_prediction = lesson.prediction(
    "10.P1",
    "Now eight filters of $5 \\times 5$ slide over the image, one kernel of weights for all places. ReLU follows, and one "
    "dense layer that reads all values of all maps. Trained on the same images, it is right on "
    "more than 85% of new ones in the left half. And in the right half?",
    {
        "About 90%": "The filters find the corner there as well. But the dense layer has a weight of its own "
        "for each place, "
        "and those for the right half were never trained on a corner.",
        "About 75%": "Half of the network carries over: the filters. That gains nothing as long as what follows "
        "does not know "
        "what their values mean over there.",
        "About 50%": "The filters find the corner on the right, too. But the dense layer has weights of its own "
        "for each place, "
        "and those for the right half have seen nothing but noise.",
    },
    answer="About 50%",
    reveal=plot_halves,
)

turned_prediction = lesson.prediction(
    "10.P2",
    "A kernel of $3 \\times 3$ weights, row by row a b c d e f g h i, slides over an image. One pixel in the "
    "middle of the image "
    "is read by nine outputs, which form a square. Through which weights do they read it, row by row of that square?",
    {
        "a b c d e f g h i": "That is how one output reads nine pixels. The output to the upper left of a pixel "
        "sees it at its "
        "own lower right: through i.",
        "a d g b e h c f i": "Rows and columns keep their places: nothing is transposed. The output in the "
        "upper right corner "
        "sees the pixel at its lower left, through g.",
        "i h g f e d c b a": "The output to the upper left sees the pixel at its own lower right, through i, and so on: the "
        "kernel turned by 180 degrees.",
        "e nine times": "Only the output right at the pixel reads it through e. Its neighbours read it through "
        "other weights.",
    },
    answer="i h g f e d c b a",
    reveal=plot_back,
)

both_prediction = lesson.prediction(
    "10.P3",
    "One network is right in the right half, too: a convolution without padding, of which only the largest value of "
    "each map over all places is read. Take one thing from it. Either each place gets filters of its own, and the "
    "largest value stays; or the filters stay shared, and the mean takes the place of the largest value. Which is still "
    "right on more than 70% of the right half?",
    {
        "Both": "Each of the two alone fails.",
        "Own filters, largest value": "Filters on the right side never met a corner, so the largest value finds "
        "only noise there.",
        "Shared filters, mean value": "Its filters answer to a corner on the right as well. But the left border "
        "is no mirror of the right one, and gives the mean a hint that is wrong on the right.",
        "Neither": "Filters of the right half that never met a corner find none; and the mean has learned "
        "a hint of the left border.",
    },
    answer="Neither",
    reveal=plot_closing,
)

stride_prediction = lesson.prediction(
    "10.P4",
    "Three layers with kernels of $3 \\times 3$ at stride 2, with random weights, and a random gradient for "
    "each output. Take the "
    "mean squared gradient of each pixel, far from the border. What is the ratio of the largest to the smallest?",
    {
        "About 4": "That is one layer: some pixels are read by four outputs, some by one. The next layers "
        "favour pixels, too.",
        "About 8": "Favourites add up to more: ways multiply along both axes.",
        "About 25": "Along one axis, one, two, three layers lead over up to 2, 3, 5 ways to a pixel, and over 1 "
        "to some others. "
        "Over two axes that is 5 times 5.",
        "About 64": "So it would be if the favourites of one layer were those of the next: 4 times 4 times 4. "
        "Only 5 of the 8 "
        "ways along each axis meet.",
    },
    answer="About 25",
    reveal=plot_favourites,
)


def arms_table() -> Markdown:
    """Return all arms of the stored run."""
    rows = []
    for arm in (*figures("corners"), *figures("shifted_corners")):
        found = found_of(arm)
        row = [arm, f"{found['weights']:,}", f"{found['step size']:g}"]
        for half in ("left", "right"):
            values = stored(arm, half)
            row.append(f"{values.mean():.2f} ({values.min():.2f} to {values.max():.2f})")
        rows.append(row)
    return markdown_table(("network", "weights", "step size", "left", "right"), rows)


FIGURES = lesson.figures
