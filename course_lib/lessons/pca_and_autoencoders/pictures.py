"""Figures, explorers and predictions of lesson 23, PCA and autoencoders."""

from functools import cache
from itertools import combinations

import numpy as np
import torch
from IPython.display import Markdown
from matplotlib.axes import Axes
from torch import Tensor

from course_lib.lessons.pca_and_autoencoders.contents import lesson
from course_lib.lessons.pca_and_autoencoders.digits import LABELS, accuracies, train_code
from course_lib.lessons.pca_and_autoencoders.stairs import STEP, VALUES, descend, normal, random_weights, train
from course_lib.measured import measured, quote
from course_lib.representation.pca import critical_point, shrinkage
from course_lib.teaching import Explorer, Slider, Switch, lines, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, RED

GREY = "0.55"
PAIRS = tuple(combinations(range(4), 2))
SEEDS = (0, 1, 2, 3, 4)

# The staircase


@lesson.figure(
    "Three units learn four variables",
    "gradient step",
    "loss",
    size=(5.6, 2.8),
    legend=None,
    xlim=(0, 400),
    ylim=(0, 7.8),
)
def plot_question(axes):
    """Draw the loss of a linear autoencoder that starts with weights near zero."""
    lines(axes, None, {"loss": train().losses[:401]}, linewidth=2.2)
    return (
        "The loss against gradient steps, from weights near zero: three flat stretches, at 7.3, about 3.3 and about 1.3, "
        "each followed by a fall, the last to 0.3."
    )


@lesson.figure(
    "The same start, and one 100 times smaller",
    "gradient step",
    "loss",
    size=(5.6, 2.8),
    xlim=(0, 400),
    ylim=(0, 8.4),
    legend="upper right",
)
def plot_smaller(axes):
    """Draw the losses from both starts, with the delay of each fall."""
    runs = {"weights of size 1e-4": train(), "the same, 100 times smaller": train(scale=1e-6)}
    lines(axes, None, {name: run.losses[:401] for name, run in runs.items()}, linewidth=2)
    first, second = runs.values()
    delays = []
    for before, after in zip(first.falls(), second.falls(), strict=True):
        height = float(first.losses[before])
        axes.annotate("", (after, height), (before, height), arrowprops={"arrowstyle": "->", "color": BLACK})
        delays.append(after - before)
        last = height < 1
        x, y = ((before + after) / 2, 1.75) if last else (after + 7, height + 0.25)
        axes.text(x, y, f"{after - before} steps", ha="center" if last else "left", va="center", fontsize=10)
    return "The losses from both starts. From the smaller one the falls come {}, {} and {} steps later.".format(*delays)


STYLES = ("-", "--", "-.", ":")


@lesson.figure(
    ["Under the staircase", "size of the weights, 3 units", "size of the weights, 4 units"],
    "gradient step",
    ["loss", "size", "size"],
    size=(6.0, 5.6),
    grid=(3, 1),
    subplots={"sharex": True},
    legend=["upper right", None, {"loc": "lower right", "fontsize": 9, "ncols": 2}],
    xlim=(0, 1100),
    yscale=["linear", "log", "log"],
    ylim=[(0, 7.8), (1e-7, 4), (1e-7, 4)],
)
def plot_growth(upper, *lower):
    """Draw the loss of three and of four units, and under it the size of the weights on each axis on a log scale."""
    runs = [train(steps=1100, units=units) for units in (3, 4)]
    lines(upper, None, {"3 units": runs[0].losses, "4 units": runs[1].losses}, linewidth=2)
    for axes, run in zip(lower, runs, strict=True):
        sizes = {f"axis {i + 1}, variance {s:g}": run.sizes[:, i] for i, s in enumerate(VALUES.tolist())}
        for line, style in zip(lines(axes, None, sizes), STYLES, strict=True):
            line.set_linestyle(style)
        for step in run.falls():
            axes.axvline(step, color=GREY, linewidth=0.9, linestyle="-", zorder=0)
    return (
        "Above the loss, below the size of each axis's weights on a log scale, with thin lines at the falls. Rising lines "
        "are straight, and one arrives at each fall. Axis 4 turns down with three units and arrives with four."
    )


def own_part(seed: int) -> Tensor:
    """Return for axes 1 to 3 the size of the start along the direction, among the units, that ends on the axis."""
    encoder, decoder = random_weights(3, 4, scale=1e-4, seed=seed)
    ends = descend(encoder, decoder, torch.diag(VALUES))[0]
    return (ends * (encoder + decoder.T) / 2).sum(0)[:3].abs()


# What the units are


@cache
def trained_encoders(penalty: float | tuple[float, ...] = 0.0, *, scale: float = 1e-4) -> tuple[Tensor, ...]:
    """Return the encoders (3, 4) of three units that descent ends with, from five random starts."""
    unequal = isinstance(penalty, tuple)
    each = torch.tensor(penalty, dtype=torch.float64)
    steps, step_size = (3000, 0.05) if unequal else (900, STEP)
    starts = [random_weights(3, 4, scale=scale, seed=seed) for seed in SEEDS]
    return tuple(
        descend(*start, torch.diag(VALUES), penalty=each, step_size=step_size, steps=steps)[0] for start in starts
    )


def largest_shares(encoder: Tensor) -> Tensor:
    """Return for each unit the largest share of its squared length that lies on one axis."""
    return encoder.square().amax(1) / encoder.square().sum(1)


def _draw_encoders(axes: list[Axes], encoders: tuple[Tensor, ...]) -> None:
    for one, encoder in zip(axes, encoders, strict=True):
        one.imshow(encoder.numpy(), cmap="RdBu_r", vmin=-1.4, vmax=1.4, aspect="auto")
        one.grid(False)
        for (row, column), weight in np.ndenumerate(encoder.numpy()):
            color = "white" if abs(weight) > 0.9 else BLACK
            one.text(
                column,
                row,
                f"{weight:.1f}".replace("-0.0", "0").replace("0.0", "0").replace("0.", "."),
                ha="center",
                va="center",
                fontsize=8.5,
                color=color,
            )


_TICKS = {"xticks": range(4), "yticks": range(3), "xticklabels": range(1, 5), "yticklabels": range(1, 4)}


@lesson.figure(
    [f"start {seed + 1}" for seed in SEEDS],
    "axis",
    "unit",
    size=(7.2, 2.1),
    grid=(1, 5),
    legend=None,
    **_TICKS,
)
def plot_units(*axes):
    """Draw the encoders that training from weights near zero ends with."""
    _draw_encoders(axes, trained_encoders())
    return (
        "Trained encoders from five starts near zero, a row for each unit, a column for each axis. Most units mix axes 1 to "
        "3, differently for each start; the weights on axis 4 are zero."
    )


@lesson.figure(
    [
        *(f"all λ = 0.5, start {seed + 1}" for seed in SEEDS[:2]),
        *(f"0.2, 0.5, 0.8, start {seed + 1}" for seed in SEEDS[:2]),
    ],
    "axis",
    "unit",
    size=(5.2, 3.8),
    grid=(2, 2),
    legend=None,
    **_TICKS,
)
def plot_axes(*axes):
    """Draw the encoders with equal penalties, and with unequal ones."""
    for one in axes:
        one.title.set_fontsize(10)
    _draw_encoders(axes[:2], trained_encoders(0.5)[:2])
    _draw_encoders(axes[2:], trained_encoders((0.2, 0.5, 0.8))[:2])
    return (
        "Trained encoders from two starts. Above, with equal penalties, units mix the axes. Below, with unequal ones, "
        "unit 1 stands on axis 1, unit 2 on axis 2 and unit 3 on axis 3 each time."
    )


@lesson.figure(
    "What is left of each direction", "penalty λ", "share that is returned", legend="upper right", size=(5.2, 3.0)
)
def plot_shrinkage(axes):
    """Draw the soft threshold for the four directions, and ridge's factor in thin lines."""
    penalty = np.linspace(0, 4.5, 300)
    each = torch.tensor(penalty)
    curves = {f"s = {s:g}": shrinkage(torch.full_like(each, s), each).numpy() for s in VALUES.tolist()}
    drawn = lines(axes, penalty, curves)
    for line, s in zip(drawn, VALUES.tolist(), strict=True):
        axes.plot(penalty, s / (s + penalty), color=line.get_color(), linewidth=0.7, linestyle="-", label="_ridge")
    axes.annotate("thin: s/(s + λ)", (1.0, 0.92), fontsize=10)
    return (
        "The share that is returned against the penalty: straight lines from 1 down to 0, reached at λ = s. Thin the "
        "curves s/(s + λ), which never reach 0."
    )


# Saddles


def ways_down(pair: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the pairs that are reached by turning one unit to a free axis with more variance."""
    return [
        tuple(sorted((set(pair) - {taken}) | {free}))
        for taken in pair
        for free in range(4)
        if free not in pair and VALUES[free] > VALUES[taken]
    ]


_PLACES = {(0, 1): 0.0, (0, 2): -0.9, (0, 3): 1.8, (1, 2): -1.2, (1, 3): 1.2, (2, 3): 0.0}


@lesson.figure(
    "Six pairs of axes, and every way down",
    "pairs of axes",
    "loss",
    size=(4.8, 3.2),
    legend=None,
    xlim=(-2.9, 3.3),
    ylim=(0.7, 6.7),
    xticks=(),
)
def plot_ways(axes):
    """Draw the six pairs of axes by their loss, with an arrow for each way down."""
    at = {pair: (x, float(VALUES.sum() - VALUES[list(pair)].sum())) for pair, x in _PLACES.items()}
    axes.grid(False)
    look = {"arrowstyle": "->", "color": "0.4", "linewidth": 1.2, "shrinkA": 13, "shrinkB": 13}
    for pair, place in at.items():
        for lower in ways_down(pair):
            axes.annotate("", at[lower], place, arrowprops=look)
    for (i, j), (x, loss) in at.items():
        count = len(ways_down((i, j)))
        axes.plot(x, loss, "o" if count else "s", color=RED if count else BLUE, markersize=24, zorder=3)
        axes.text(x, loss, f"{i + 1}, {j + 1}", color="white", ha="center", va="center", fontsize=10, zorder=4)
        side = -1 if x < 0 else 1
        said = f"{count} way{'s' * (count != 1)} down" if count else "no way down"
        axes.text(x + 0.3 * side, loss, said, ha="left" if x >= 0 else "right", va="center", fontsize=10, zorder=4)
    return (
        "The six pairs by their loss. Arrows exchange one axis for one of more variance: none from 1, 2; one from 1, 3; two "
        "each from 1, 4 and 2, 3; three from 2, 4; four from 3, 4."
    )


@cache
def escape(subset: tuple[int, ...], delta: float) -> list[float]:
    """Return the losses of descent that starts at distance `delta` from the critical point of a subset."""
    encoder, decoder = critical_point(torch.diag(VALUES), subset, 2)
    encoder, decoder = encoder + delta * normal(2, 4, seed=1), decoder + delta * normal(4, 2, seed=2)
    return descend(encoder, decoder, torch.diag(VALUES), step_size=STEP, steps=800, record=True)[2]


def escape_step(subset: tuple[int, ...], delta: float) -> int:
    """Return the first step after which the loss is 0.1 below that of the critical point."""
    losses = np.array(escape(subset, delta))
    return int((losses < float(VALUES.sum() - VALUES[list(subset)].sum()) - 0.1).argmax())


# The explorer


@lesson.explorer
class StairsExplorer(Explorer):
    """The loss of three units against the gradient step: size of the start, step size and variances."""

    title = "Three units, four variances"
    summary = (
        "Left the loss against the gradient step, cut off at 10, with a dot at each fall. Right, if switched on, "
        "the share of each direction that the network returns."
    )
    exponent = Slider(
        "log₁₀ of the start", "ρ", "All weights start as random numbers of this size", -4.0, -6.0, -0.1, 0.1
    )
    step_size = Slider("step size", "η", "Step size of gradient descent", 0.02, 0.01, 0.04, 0.005)
    first = Slider("variance of axis 1", "s₁", "Variance of the inputs along axis 1", 4.0, 0.1, 4.0, 0.1)
    second = Slider("variance of axis 2", "s₂", "Variance of the inputs along axis 2", 2.0, 0.1, 4.0, 0.1)
    third = Slider("variance of axis 3", "s₃", "Variance of the inputs along axis 3", 1.0, 0.1, 4.0, 0.1)
    fourth = Slider("variance of axis 4", "s₄", "Variance of the inputs along axis 4", 0.3, 0.1, 4.0, 0.1)
    reveal = Switch("Show what is learned", "Draw the share of each direction that the network returns")
    together = ("exponent", "step_size")
    stills = ({}, {"third": 2.0, "reveal": True}, {"exponent": -0.1})
    strip_scale = 0.78
    size = (7.8, 2.9)
    layout = panels(
        ["what training lowers", "what is learned"],
        "gradient step",
        ["loss", "share returned"],
        grid=(1, 2),
        legend=[None, {"loc": "upper left", "fontsize": 9, "ncols": 2}],
        subplots={"width_ratios": (3, 2)},
        xlim=(0, 600),
        ylim=[(0, 10), (-0.1, 1.6)],
    )

    def compute(self, *, exponent, step_size, first, second, third, fourth, reveal):
        """Return the loss, the steps of its falls and the share of each direction."""
        values = tuple(float(v) for v in (first, second, third, fourth))
        run = train(scale=10.0 ** float(exponent), step_size=float(step_size), values=values)
        falls, at = run.falls(), np.arange(len(run.losses))
        return {
            "loss": (at, np.minimum(run.losses, 9.95)),
            "marks": (falls, np.minimum(run.losses[falls], 9.95)),
            "shares": [(at, np.clip(share, -0.1, 1.6)) if reveal else ([], []) for share in run.factors.T],
            "hint": (300, 0.6, "" if reveal else "off"),
            "falls": falls,
            "reveal": reveal,
            "returned": [float(share) + 0.0 for share in run.factors[-1].round(6)],
            "ends": (float(run.losses[0]), float(run.losses[-1])),
        }

    def draw(self, left, right_axes):
        """Draw empty curves."""
        loss = lines(left, [], ["loss"], linewidth=2)[0]
        marks = left.plot([], [], "o", color=RED, markersize=7)[0]
        shares = lines(right_axes, [], [f"axis {i}" for i in range(1, 5)])
        hint = right_axes.text(300, 0.6, "", ha="center", color="0.4", fontsize=10)
        return {"loss": loss, "marks": marks, "shares": shares, "hint": hint}

    def words(self, state):
        """Say when the loss falls fastest between flatter stretches, and where it starts and ends."""
        start, end = state["ends"]
        falls = [str(step) for step in state["falls"]]
        said = {0: "No fall between two flatter stretches.", 1: f"One fall, at step {falls[0] if falls else ''}."}.get(
            len(falls), f"Falls at steps {', '.join(falls[:-1])} and {falls[-1] if falls else ''}."
        )
        said += f" The loss is {start:.1f} at the start and {end:.2f} after 600 steps."
        returned = ", ".join(f"{share:.2f}" for share in state["returned"])
        return said + f" Shares that are returned of axes 1 to 4: {returned}." * state["reveal"]


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


# The code of digits

DRAWN = (
    "pixels, penalty",
    "code, penalty",
    "code, no penalty",
    "pixels, no penalty",
    "best number of axes, no penalty",
)


@lesson.figure(
    ["Ten units learn 64 pixels", "Linear fits on pixels and on the code"],
    ["gradient step", "labelled images"],
    ["loss", "accuracy on the test (%)"],
    size=(7.8, 3.3),
    grid=(1, 2),
    xscale=["linear", "log"],
    legend=[None, {"loc": "lower right", "fontsize": 8}],
    ylim=[(0, 5), (10, 100)],
)
def plot_code(left, right_axes):
    """Draw the loss on digits, and the accuracy of linear fits on pixels and on the code against the number of labels."""
    lines(left, None, {"loss": train_code(0, steps=400, record=True)[2]}, linewidth=2)
    for place, arm in enumerate(DRAWN):
        found = torch.stack([accuracies(arm, n) for n in LABELS], dim=1)
        (line,) = lines(
            right_axes, LABELS, {arm: 100 * found.mean(0)}, first=place, marker="osD^v"[place], markersize=5
        )
        if arm.endswith(", penalty"):
            low, high = (100 * (found.mean(0) + sign * found.std(0)) for sign in (-1, 1))
            right_axes.fill_between(LABELS, low, high, color=line.get_color(), alpha=0.12)
    right_axes.set_xticks(LABELS, [str(n) for n in LABELS], fontsize=8)
    right_axes.minorticks_off()
    return (
        "Left the loss on digits: steps that run into each other. Right the test accuracy, mean of 20 splits, with bands of "
        "one standard deviation for the two fits with a penalty. Pixels with a penalty are highest. Without one they fall "
        "from 20 labels to 50, then rise above the code at 200."
    )


TABLE_LABELS = (20, 50, 100, 1000)


def readout_table() -> Markdown:
    """Return mean and standard deviation of the accuracies of all rivals over 20 splits."""
    arms = (
        "best number of axes, no penalty",
        "best number of axes, penalty",
        "ten random directions, penalty",
        "axes 11 to 20, penalty",
        "pixels, nearest class mean",
        "code, nearest class mean",
        "pixels, nearest image",
        "code, nearest image",
    )
    rows = []
    for arm in ("pixels, penalty", "code, penalty", *arms):
        found = [100 * accuracies(arm, n) for n in TABLE_LABELS]
        rows.append((arm, *(f"≈{float(one.mean()):.0f} ± ≈{float(one.std()):.0f}" for one in found)))
    return markdown_table(("accuracy in %, 20 splits", *(f"{n:,} labels" for n in TABLE_LABELS)), rows)


# Predictions

ask_smaller = lesson.prediction(
    "23.P1",
    "All weights start 100 times smaller: the same random numbers, times 0.01. Nothing else changes. What happens to the "
    "three falls?",
    {
        "They come 100 times later": "Small weights do not grow by a fixed amount in each step.",
        "All three come later by the same number of steps": "Each fall has a delay of its own.",
        "Each comes later by its own number of steps, the first the most": "It is the other way round.",
        "Each comes later by its own number of steps, the last the most": right("And none of the delays is long."),
        "The loss stays at its first level for good": "It leaves the first level a little later than before.",
    },
    reveal=plot_smaller,
)

ask_units = lesson.prediction(
    "23.P2",
    "Three units are trained five times, from five random starts of size 1e-4. Each time the loss ends at 0.3. What are the "
    "three rows of the encoder?",
    {
        "Unit vectors along axes 1, 2 and 3": "Axis by axis is how the loss falls. Yet most units mix the three axes.",
        "Unit vectors at right angles, but turned, differently each time": right(
            "The three axes are found together, as a space. The start decides how the units are turned in it."
        ),
        "Vectors of any lengths and at any angles, differently each time": "Weights of any size can end so. From weights "
        "near zero lengths and angles are fixed.",
        "The same three vectors each time, mixtures of the axes": "Nothing prefers one mixture: each start has its own.",
    },
    reveal=plot_units,
)

ask_penalty = lesson.prediction(
    "23.P3",
    "The weights are trained to the minimum of the penalised loss, with a unit for each of the four directions. What does "
    "the network return of each direction as λ grows?",
    {
        "All of it: the penalty only makes the rows of the encoder unit vectors at right angles": "Slightly shorter rows "
        "cost less, although the output misses a little.",
        "The same share of all directions": "A direction with a large variance has more to lose: it shrinks less.",
        "Less of the small ones, but never nothing": "So it is in ridge regression (thin), which penalises one matrix.",
        "Less of the small ones, and from some λ on exactly nothing of them": right(
            "Each share is a straight line in λ that ends at 0. The thin curves of ridge regression never do."
        ),
    },
    reveal=plot_shrinkage,
)

ask_code = lesson.prediction(
    "23.P4",
    "With 20 labelled digits, least squares gets about 59% of the test right on the 64 pixels and about 57% on the code of "
    "ten numbers. With 50 labelled digits it gets about 73% on the code. And on the pixels?",
    {
        "About 30%, half as many as with 20": right(
            "At 50 labels the fit still meets every label, and for that it follows chance differences of the images."
        ),
        "About 59%, as many as with 20": "The 30 new labels do not leave the fit as it was: they make it worse.",
        "About 73%, as on the code": "On the code 30 more labels help. On the pixels they do not, at first.",
        "About 80%, more than on the code": "That takes more labels: without a penalty, pixels are ahead from 200 on.",
    },
    reveal=plot_code,
)

FIGURES = lesson.figures
