"""Figures, explorer and predictions of lesson 18, PCA and autoencoders."""

from functools import cache
from itertools import combinations

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor

from course_lib.lessons.pca_and_autoencoders.contents import lesson
from course_lib.measured import measured, quote
from course_lib.representation.pca import (
    critical_point,
    falling_rates,
    linear_gradients,
    linear_loss,
    pca,
    shrinkage,
)
from course_lib.teaching import Choice, Explorer, Slider, lines, markdown_table, panels
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, RED

GREY, PALE = "0.55", "0.85"
VALUES = torch.tensor([4.0, 2.0, 1.0, 0.3], dtype=torch.float64)  # the spectrum of the lesson's data
PAIRS = tuple(combinations(range(4), 2))


def normal(*shape: int, seed: int) -> Tensor:
    """Return standard normal numbers in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def descend(
    encoder: Tensor, decoder: Tensor, moment: Tensor, *, penalty=0.0, step_size=0.02, steps=1000, record=False
) -> tuple[Tensor, Tensor, list[float]]:
    """Run gradient descent on a linear autoencoder; return its weights and its losses: the last one, or all."""
    losses = []
    for _ in range(steps):
        if record:
            losses.append(float(linear_loss(encoder, decoder, moment, penalty)))
        d_encoder, d_decoder = linear_gradients(encoder, decoder, moment, penalty)
        encoder, decoder = encoder - step_size * d_encoder, decoder - step_size * d_decoder
    return encoder, decoder, [*losses, float(linear_loss(encoder, decoder, moment, penalty))]


def random_weights(units: int, d_model: int, *, scale: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return an encoder and a decoder of independent normal numbers."""
    return scale * normal(units, d_model, seed=seed), scale * normal(d_model, units, seed=1000 + seed)


@lesson.figure("Three units learn four variables", "gradient step", "loss", size=(7.2, 3.8), legend=None, ylim=(0, 7.8))
def plot_question(axes):
    """Draw the loss of a linear autoencoder that starts with weights near zero."""
    *_, losses = descend(*random_weights(3, 4, scale=1e-4, seed=3), torch.diag(VALUES), steps=700, record=True)
    lines(axes, None, {"loss": losses}, linewidth=2.2)
    return (
        "The loss of a linear autoencoder against gradient steps, from weights near zero. It starts at 7.3 and stays "
        "there for about 50 steps, falls within a few steps to about 3.3 and stays there, falls to 1.3 and stays "
        "there, and ends at 0.3: three flat stretches, each followed by a sudden fall."
    )


# What the units are

PLANE = torch.tensor([4.0, 2.0, 0.3], dtype=torch.float64)


@cache
def trained_encoders(penalty: float | tuple[float, ...]) -> list[Tensor]:
    """Return the encoders of two units that descent ends with, from five random starts."""
    each = torch.tensor(penalty, dtype=torch.float64)
    starts = [random_weights(2, 3, scale=0.8, seed=seed) for seed in range(5)]
    steps = 2000 if isinstance(penalty, tuple) and len(set(penalty)) > 1 else 600
    return [descend(*start, torch.diag(PLANE), penalty=each, step_size=0.05, steps=steps)[0] for start in starts]


def _draw_units(axes, encoders: list[Tensor]) -> None:
    for color, encoder in zip((BLUE, ORANGE, GREEN, RED, BLACK), encoders, strict=True):
        for (x, y, _), dash in zip(encoder.tolist(), ("-", "--"), strict=True):
            axes.plot([0, x], [0, y], dash, color=color, linewidth=1.8, label="_unit")
            axes.plot(x, y, "o", color=color, markersize=6, label="_end")
    axes.set(xlim=(-2.3, 2.3), ylim=(-2.3, 2.3), aspect="equal")
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.axvline(0, color=GREY, linewidth=0.8)


_UNITS = ("weight on the first principal axis", "weight on the second")


@lesson.figure("Two units, five random starts, one loss", *_UNITS, size=(5.4, 5.0), legend=None)
def plot_units(axes):
    """Draw both rows of the encoder that unpenalised training ends with, in the principal plane."""
    _draw_units(axes, trained_encoders(0.0))
    return (
        "The two rows of the trained encoder, from five random starts, as arrows in the plane of the two leading "
        "principal axes; one colour for each start, solid and dashed for its two units. The arrows point in many "
        "directions, mostly neither orthogonal nor equally long. The loss is "
        "the same for all."
    )


@lesson.figure(["both units: penalty 0.4", "penalties 0.2 and 1"], *_UNITS, size=(9.4, 4.9), grid=(1, 2), legend=None)
def plot_axes(left, right):
    """Draw the same with a penalty, equal for both units and unequal."""
    _draw_units(left, trained_encoders((0.4, 0.4)))
    _draw_units(right, trained_encoders((0.2, 1.0)))
    return (
        "The two rows of the trained encoder from five random starts, in the principal plane. Left, with one "
        "penalty for both units, the five pairs still point in different directions, though nearly at right angles. "
        "Right, with the penalties 0.2 and 1, every pair lies on the two principal axes: the solid arrow, the unit "
        "with the small penalty, on the first, the dashed one on the second."
    )


@lesson.figure("Which factor is left of each direction", "penalty λ", "factor", legend="upper right", size=(7.0, 4.3))
def plot_shrinkage(axes):
    """Draw the soft threshold for the four directions, and ridge's factor in thin lines."""
    penalty = np.linspace(0, 4.5, 300)
    each = torch.tensor(penalty)
    curves = {f"s = {s:g}": shrinkage(torch.full_like(each, s), each).numpy() for s in VALUES.tolist()}
    drawn = lines(axes, penalty, curves)
    for line, s in zip(drawn, VALUES.tolist(), strict=True):
        axes.plot(penalty, s / (s + penalty), color=line.get_color(), linewidth=0.8, linestyle=":", label="_ridge")
    axes.annotate("dotted: s/(s + λ)", (3.1, 0.6), fontsize=10)
    return (
        "The factor that is left of each direction against the penalty, for the variances 4, 2, 1 and 0.3: straight "
        "lines from 1 down to 0, reached at λ = s, one direction after the other. Dotted beside them the curves "
        "s/(s + λ), which never reach 0."
    )


# Saddles


LEVELS = np.array([0.1, 0.5, 1.2, 2.0, 2.8, 4.5])  # above the minimum


@lesson.figure(
    ["no penalty", "penalty 1.5 on each weight"],
    "weight on axis 1 (s = 4)",
    "weight on axis 2 (s = 2)",
    size=(8.0, 4.0),
    grid=(1, 2),
    legend=None,
    aspect="equal",
)
def plot_surface(*axes):
    """Draw the loss of one unit with W2 = W1^T over its two weights, with all critical points."""
    side = np.linspace(-1.5, 1.5, 121)
    x, y = np.meshgrid(side, side)
    moment = torch.diag(VALUES[:2])
    for one, penalty in zip(axes, (0.0, 1.5), strict=True):
        length = x**2 + y**2
        loss = 6 - 2 * (4 * x**2 + 2 * y**2) + length * (4 * x**2 + 2 * y**2) + 2 * penalty * length
        one.contour(x, y, loss, levels=loss.min() + LEVELS, colors=GREY, linewidths=0.9)
        one.grid(False)
        for subset, color, mark in (((0,), BLUE, "o"), ((1,), RED, "X"), ((), BLACK, "s")):
            place = critical_point(moment, subset, 1, penalty)[0][0].numpy()
            for sign in (1, -1) if subset else (1,):
                one.plot(*(sign * place), mark, color=color, markersize=10, zorder=3, label="_critical")
    return (
        "Contours of the loss over the two weights of one unit whose decoder is its transposed encoder. Blue circles, "
        "the minima, lie on the first axis at plus and minus 1, red crosses, the saddles, on the second "
        "axis at plus and minus 1, and a black square, a saddle too, at the origin. With the penalty 1.5 the same points "
        "moved inwards: the minima to 0.79, the saddles to 0.5."
    )


DEVIATIONS = (1e-2, 1e-4, 1e-6)
ESCAPE_STEP = 0.02


@cache
def escape(subset: tuple[int, ...], delta: float) -> list[float]:
    """Return the losses of descent that starts at distance `delta` from the critical point of a subset."""
    encoder, decoder = critical_point(torch.diag(VALUES), subset, 2)
    encoder, decoder = encoder + delta * normal(2, 4, seed=1), decoder + delta * normal(4, 2, seed=2)
    return descend(encoder, decoder, torch.diag(VALUES), step_size=ESCAPE_STEP, steps=800, record=True)[2]


def escape_step(subset: tuple[int, ...], delta: float) -> int:
    """Return the first step after which the loss is 0.1 below that of the critical point."""
    losses = np.array(escape(subset, delta))
    return int((losses < float(VALUES.sum() - VALUES[list(subset)].sum()) - 0.1).argmax())


@lesson.figure(
    ["leaving the saddle on axes 1 and 3", "steps until it is left"],
    ["gradient step", "deviation at the start"],
    ["loss", "gradient steps"],
    grid=(1, 2),
    xscale=["linear", "log"],
    legend=["lower left", "upper right"],
)
def plot_escape(left, right):
    """Draw the loss that leaves one saddle from three distances, and the steps for three saddles."""
    lines(left, None, {f"deviation {d:g}": escape((0, 2), d) for d in DEVIATIONS})
    left.set_ylim(1, 2.6)
    deltas = np.array(DEVIATIONS)
    for place, subset in enumerate(((0, 2), (0, 3), (2, 3))):
        found = [escape_step(subset, d) for d in deltas.tolist()]
        rate = float(falling_rates(VALUES, subset, 2)[0])
        name = f"axes {subset[0] + 1}, {subset[1] + 1}"
        (line,) = lines(right, deltas, {name: found}, first=place, linestyle="none", marker="osX"[place])
        wanted = found[0] + np.log(deltas[0] / deltas) / np.log1p(ESCAPE_STEP * rate)
        right.plot(deltas, wanted, ":", color=line.get_color(), linewidth=1.4, label="_predicted")
    return (
        "Left the loss near the saddle on axes 1 and 3, whose loss is 2.3: it stays there for several hundred "
        "steps, the longer the closer it started, and falls to 1.3. Right the number of steps against the deviation at "
        "the start, logarithmic, for three saddles: the marks lie on dotted straight lines with the predicted slope."
    )


# The explorer


def _names(points: list[tuple[int, float]]) -> list[tuple[float, float, str]]:
    """Return where the pairs' names stand; points that coincide share one name, that of the first."""
    said: dict[tuple, list[str]] = {}
    for (i, j), (falling, loss) in zip(PAIRS, points, strict=True):
        said.setdefault((falling, round(loss, 2)), []).append(f"{i + 1}{j + 1}")
    there = [(falling + 0.3, loss, ", ".join(names)) for (falling, loss), names in said.items()]
    return there + [(0.0, 0.0, "")] * (len(points) - len(there))


def measured_table() -> Markdown:
    """Return what `make bench pca` stored of times against the peers, and of the variance that each loses."""

    def lost(spectrum: str, name: str) -> str:
        figure = f"variance lost, {spectrum} spectrum: {name}"
        return "below $10^{-13}$" if measured("pca", figure) < 1e-13 else quote("pca", figure, "#.2g", scale=100) + "%"

    peers = {
        "scikit-learn, `auto` (randomised here)": ("scikit-learn auto", "auto"),
        "scikit-learn, `covariance_eigh`": ("scikit-learn covariance_eigh", "covariance_eigh"),
        "`torch.pca_lowrank`": ("torch.pca_lowrank", "pca_lowrank"),
    }
    rows = [
        (
            label,
            *(quote("pca", f"pca / {peer}, torch.{dtype}", ".2f") for dtype in ("float32", "float64")),
            *(lost(spectrum, name) for spectrum in ("flat", "falling")),
        )
        for label, (peer, name) in peers.items()
    ]
    rows.append(("`pca`", 1, 1, lost("flat", "pca"), lost("falling", "pca")))
    return markdown_table(("", "float32", "float64", "lost, flat", "lost, falling"), rows)


@lesson.explorer
class PenaltyExplorer(Explorer):
    """Turn the penalty up, and look at every critical point of two units on four directions."""

    title = "Two units, four directions, one penalty"
    summary = (
        "Left the variance s of each of four directions as outlined bars, and in blue s times the factor that the chosen "
        "weights leave of it. In the middle the factor of each direction against the penalty. Right a map of the critical "
        "points, one for each pair of axes (13: the units on axes 1 and 3): the loss against the number of directions in "
        "which it falls. The red ring is the chosen pair."
    )
    penalty = Slider("penalty", "λ", "Weight of the squared entries of both matrices in the loss", 0.5, 0.0, 4.5, 0.05)
    pair = Choice(
        "units on axes", "The two principal axes that the two units stand on", "1 and 2",
        tuple(f"{i + 1} and {j + 1}" for i, j in PAIRS),
    )  # fmt: skip
    together = ("penalty", "pair")
    size = (11.6, 3.9)
    layout = panels(
        ["variance s, and s × factor in blue", "factor of a chosen axis", "map of critical points"],
        ["axis", "penalty λ", "falling directions"],
        ["variance s", "factor", "loss with penalty"],
        grid=(1, 3),
        legend=[None, "upper right", None],
        xlim=[(0.4, 4.6), (0, 4.5), (-0.5, 4.9)],
        ylim=[(0, 4.4), (0, 1.1), (0, 9)],
        xticks=[range(1, 5), range(5), range(5)],
    )

    def compute(self, *, penalty, pair):
        """Return bars, factors and the loss of every pair of axes."""
        chosen = PAIRS[self.controls["pair"].options.index(pair)]
        factors = shrinkage(VALUES, float(penalty))
        points = []
        for subset in PAIRS:
            encoder, decoder = critical_point(torch.diag(VALUES), subset, 2, float(penalty))
            loss = float(linear_loss(encoder, decoder, torch.diag(VALUES), float(penalty)))
            points.append((len(falling_rates(VALUES, subset, 2, float(penalty))), loss))
        kept = [float(factors[i] * VALUES[i]) if i in chosen else 0.0 for i in range(4)]
        here = points[PAIRS.index(chosen)]
        return {
            "bars": kept,
            "at": ([penalty] * 2, [0, 1.1]),
            "dots": ([penalty] * 2, [float(factors[i]) for i in chosen]),
            "points": tuple(np.array(points).T),
            "names": _names(points),
            "ring": ([here[0]], [here[1]]),
            "said": (float(penalty), chosen, [float(factors[i]) for i in chosen], here),
        }

    def draw(self, left, middle, right):
        """Draw outlines, curves, and what moves."""
        left.bar(range(1, 5), VALUES.tolist(), width=0.7, fill=False, edgecolor=BLACK)
        bars = list(left.bar(range(1, 5), [0] * 4, width=0.7, color=BLUE))
        grid = np.linspace(0, 4.5, 200)
        curves = {f"s = {s:g}": np.maximum(0, 1 - grid / s) for s in VALUES.tolist()}
        lines(middle, grid, curves)
        at = middle.plot([], [], ":", color=GREY, label="_at")[0]
        dots = middle.plot([], [], "o", color=RED, markersize=8, zorder=5, label="_chosen")[0]
        right.axvspan(-0.5, 0.5, color=PALE, zorder=0)
        right.text(0, 8.5, "minimum", ha="center", va="center", fontsize=8)
        points = right.plot([], [], "o", color=BLUE, markersize=7, zorder=3)[0]
        ring = right.plot([], [], "o", markersize=15, markerfacecolor="none", markeredgecolor=RED, markeredgewidth=2)[0]
        names = [right.text(0, 0, "", fontsize=8, va="center") for _ in PAIRS]
        return {"bars": bars, "at": at, "dots": dots, "points": points, "ring": ring, "names": names}

    def words(self, state):
        """Say what is left of the chosen pair, and whether it is a minimum."""
        penalty, (i, j), (p, q), (falling, loss) = state["said"]
        kind = "a minimum" if not falling else f"a saddle: it falls in {falling} direction{'s' * (falling != 1)}"
        alive = sum(f > 0 for f in (p, q))
        left = "both units are at 0" if not alive else f"factors {p:.3f} on axis {i + 1} and {q:.3f} on axis {j + 1}"
        return f"λ = {penalty:.2f}: {left}. Loss {loss:.3f}, {kind}."


# Downstream

FEW = (8, 15, 25, 40, 80, 200, 2000)


def label_errors(n_labels: int, *, seed: int, ridge: float = 0.0, aligned: bool = True) -> tuple[float, float]:
    """Return the test errors of a linear fit on 40 raw inputs and on a code of 5 units, relative to answering 0.

    Inputs are 5 latent variables in 40 dimensions and noise. The code is PCA of 2,000 rows without labels. The target
    is linear in the latent variables, or, where it is not `aligned`, in a direction of the noise.
    """
    basis = torch.linalg.qr(normal(40, 40, seed=seed)).Q
    latent, noise = normal(4000 + n_labels, 5, seed=seed + 1), 0.3 * normal(4000 + n_labels, 40, seed=seed + 2)
    x = 2 * latent @ basis[:5] + noise
    y = (latent.sum(1) if aligned else x @ basis[20]) + 0.1 * normal(len(x), seed=seed + 3)
    code = pca(x[:2000], 5).project(x)

    def error(table: Tensor) -> float:
        seen, held_out = table[4000:], table[2000:4000]
        gram = seen.T @ seen + ridge * torch.eye(table.shape[1])
        weight = torch.linalg.pinv(gram, rtol=1e-10) @ (seen.T @ y[4000:])
        return float((held_out @ weight - y[2000:4000]).square().mean() / y[2000:4000].square().mean())

    return error(x), error(code)


@cache
def label_curves(*, ridge: float = 0.0, aligned: bool = True) -> np.ndarray:
    """Return the median errors on raw inputs and on codes over 7 draws, (numbers of labels, 2)."""
    runs = [[label_errors(n, seed=10 * r, ridge=ridge, aligned=aligned) for r in range(7)] for n in FEW]
    return np.median(np.array(runs), axis=1)


@lesson.figure(
    ["the target is in the leading directions", "the target is in a small direction"],
    "labelled examples",
    "test error / answering 0",
    grid=(1, 2),
    xscale="log",
    yscale="log",
    legend="best",
    ylim=(1e-2, 60),
)
def plot_labels(left, right):
    """Draw test errors of raw inputs and codes against the number of labels."""
    for axes, aligned in ((left, True), (right, False)):
        plain, ridge = label_curves(aligned=aligned), label_curves(ridge=1.0, aligned=aligned)
        curves = {"40 raw inputs": plain[:, 0], "raw inputs, ridge": ridge[:, 0], "code of 5": plain[:, 1]}
        lines(axes, FEW, curves, marker="o", markersize=4)
    return (
        "Test errors against the number of labelled examples, both logarithmic. Left the target depends on the leading "
        "directions: the code is best from 15 labels on; raw inputs without a penalty have a peak at 40 labels, as many "
        "as inputs, and come near the code at 2000; with a ridge penalty the peak is gone. Right the target lies in a "
        "direction of small variance: the code stays near 1 however many labels there are, and raw inputs win."
    )


@lesson.figure(
    ["keep the first input", "keep the second input"],
    ["code: input 1", "code: input 2"],
    "share of the examples",
    grid=(1, 2),
    legend=["upper right", "upper center"],
)
def plot_codes(left, right):
    """Draw the histograms of two codes of one unit, split by label."""
    x, label = labelled_rows()
    for axes, column, bins in ((left, 0, np.linspace(-32, 32, 33)), (right, 1, np.linspace(-1.5, 1.5, 31))):
        for value, color, style in ((-1, BLUE, "-"), (1, ORANGE, "--")):
            part = x[label == value, column].numpy()
            heights, edges = np.histogram(part, bins)
            axes.stairs(heights / len(part), edges, color=color, linestyle=style, linewidth=2, label=f"label {value}")
    return (
        "Left the code that keeps the first input, 10 times a normal number: the histograms of both labels lie on each "
        "other. Right the code that keeps the second input, which is the label: two separate bars at -1 and 1."
    )


def labelled_rows(n: int = 2000) -> tuple[Tensor, Tensor]:
    """Return rows (10 times a normal number, label) and the labels, -1 or 1 in turn."""
    label = torch.tensor([-1.0, 1.0], dtype=torch.float64).repeat(n // 2)
    return torch.stack([10 * normal(n, seed=18), label], dim=1), label


# Predictions

units_prediction = lesson.prediction(
    "18.P1",
    "A linear autoencoder with two units is trained on data in three dimensions until its gradient is zero, five times from "
    "random weights of size 0.8. Its loss is each time that of two principal components. What are the two rows of its "
    "encoder?",
    {
        "The two leading components, up to sign": "The loss depends on the product W2 W1 only. Any other two vectors that "
        "span the same plane, with a decoder to match, have the same loss.",
        "Two orthogonal vectors in the plane of the components": "Nothing in the loss asks for right angles: a decoder "
        "undoes any invertible mixing.",
        "Two vectors in that plane, with any angle and lengths": "The loss depends on the product W2 W1 only, and a "
        "decoder undoes any invertible mixing of the units. The plane is found, the axes are not.",
        "Two vectors in another plane each time": "An equal loss needs the same plane: any other plane loses more here.",
    },
    answer="Two vectors in that plane, with any angle and lengths",
    reveal=plot_units,
)

penalty_prediction = lesson.prediction(
    "18.P2",
    "Now the squares of all weights are added to the mean loss, times λ. Data have the variances $s = 4, 2, 1, 0.3$ along "
    "their principal axes, and there is a unit for each. What does the output keep of each direction as λ grows?",
    {
        "All directions shrink by the same factor": "A direction with a large variance has more to lose by shrinking: it "
        "shrinks less.",
        "Each shrinks like s/(s + λ), as in ridge regression, and none reaches 0": "That is the penalty on W2 W1 as one "
        "matrix (the dotted curves). Here both factors are penalised, and a weight near 0 gains too little to grow.",
        "One after the other reaches 0 exactly, the smallest variance first": "Each factor is a straight line, 1 - λ/s, "
        "and is 0 from λ = s on. The dotted curves are ridge's, which never reach 0.",
    },
    answer="One after the other reaches 0 exactly, the smallest variance first",
    reveal=plot_shrinkage,
)

codes_prediction = lesson.prediction(
    "18.P3",
    "Each example has two inputs: 10 times a normal number, and its label, -1 or 1. Two autoencoders with one unit are "
    "compared. A has the mean loss 1.0, B about 100. A classifier sees the code only. What do you expect?",
    {
        "A classifies better": "A keeps the large input, which knows nothing of the label: half of its answers are wrong. "
        "The loss counts variance, not use.",
        "Both classify equally well": "A keeps the large input and B the label: the codes could hardly differ more.",
        "B classifies without a mistake, A no better than chance": "A keeps the large input and B the label. The loss "
        "counts variance, not use.",
    },
    answer="B classifies without a mistake, A no better than chance",
    reveal=plot_codes,
)

FIGURES = lesson.figures
