"""Figures, explorer and predictions of lesson 07, maximal_update_parametrization."""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from IPython.display import Markdown

from course_lib.lessons.maximal_update_parametrization.contents import lesson
from course_lib.lessons.maximal_update_parametrization.networks import (
    BASE,
    EXPONENTS,
    STARTS,
    STEP_SEEDS,
    STEP_WIDTHS,
    STEPS,
    WIDTHS,
    groups_for,
    network,
    one_step,
    slope,
    teacher,
)
from course_lib.measured import measured
from course_lib.teaching import Explorer, Slider, lines, markdown_table, panels, right
from course_lib.teaching.style import BLUE, ORANGE, RED

PARAMETRIZATIONS = {"SP": "Standard parametrization", "muP": "Maximal update parametrization"}
RATIO = max(WIDTHS) // BASE  # 16
LOOKS = {32: (BLUE, "-", "o"), 128: (ORANGE, "--", "^"), 512: (RED, "-.", "s")}

# The stored sweep: every combination of a readout's start and step sizes, three widths, twelve step sizes, five seeds


def stored(start: str, steps: str, width: int) -> np.ndarray:
    """Return the stored test losses: a row for each seed, a column for each exponent; infinite where training blew up."""
    rows = measured("width_transfer", f"start {start}, steps {steps}")[str(width)]
    return np.array([[math.inf if loss is None else loss for loss in row] for row in rows])


def smallest(start: str, steps: str, width: int) -> np.ndarray:
    """Return the loss at the best step size of that width, by seed."""
    return stored(start, steps, width).min(1)


def carried(start: str, steps: str, *, divided_by: int = 1) -> np.ndarray:
    """Return the loss of the widest network at the narrowest one's best step size over a power of two, by seed."""
    narrow, wide = (stored(start, steps, width) for width in (min(WIDTHS), max(WIDTHS)))
    places = narrow.argmin(1) - round(math.log2(divided_by))
    if places.min() < 0:
        raise ValueError(f"the best step size over {divided_by} is smaller than any that was tried")
    return wide[np.arange(len(wide)), places]


def regret(start: str, steps: str, *, divided_by: int = 1) -> np.ndarray:
    """Return that loss over the widest network's own smallest loss, by seed: what not tuning again costs."""
    found = carried(start, steps, divided_by=divided_by)
    return found / smallest(start, steps, max(WIDTHS))


_SWEEP = {"yscale": "log", "xlim": (-12.4, -0.6), "xticks": [range(-12, 0, 2)] * 4, "legend": None}
_RATE = "$\\log_2$ of Adam's step size"
_RELATIVE = "loss / best loss of the small network"


def _relative(start: str, steps: str, width: int) -> np.ndarray:
    """Return the losses of a width over the smallest one that width 32 has on the same seed."""
    return stored(start, steps, width) / smallest("SP", "one", BASE)[:, None]


@lesson.figure(
    "Tuned at width 32, used at width 512",
    _RATE,
    _RELATIVE,
    size=(5.8, 3.3),
    ylim=(0.6, 40),
    **{**_SWEEP, "xticks": range(-12, 0, 2)},
)
def plot_hook(axes):
    """Draw the narrow network's loss against the step size on five seeds, and the wide one's loss at its best step size."""
    curves = _relative("SP", "one", BASE)
    best = np.array(EXPONENTS)[curves.argmin(1)]
    wide = carried("SP", "one") / smallest("SP", "one", BASE)
    axes.plot(EXPONENTS, curves.T, color=BLUE, linestyle="-", linewidth=1.2)
    axes.plot(best, np.ones_like(wide), "*", color=BLUE, markersize=13)
    axes.plot(best, wide, "X", color=RED, markersize=9)
    _plain_losses(axes)
    axes.text(-8.6, 1.2, "width 32, five seeds", color=BLUE, fontsize=10, ha="right", va="center")
    axes.text(
        best.min() - 0.4, wide.max(), "width 512, same step size", color=RED, fontsize=10, ha="right", va="center"
    )
    return (
        "Test loss of the small network at twelve step sizes, on five seeds, with a star at the best. Crosses: the network "
        "16 times wider, trained with the step size of the star."
    )


def _plain_losses(axes) -> None:
    """Write the ticks of a logarithmic axis of losses as plain numbers."""
    axes.set_yticks([0.3, 1, 3, 10, 30], ["0.3", "1", "3", "10", "30"])
    axes.set_yticks([], minor=True)


def _draw_widths(axes, start: str, steps: str) -> None:
    """Draw the losses of three widths: a band from the lowest to the highest seed, and the median with a star."""
    for width in WIDTHS:
        color, style, _ = LOOKS[width]
        curves = _relative(start, steps, width)
        axes.fill_between(
            EXPONENTS, curves.min(0), np.minimum(curves.max(0), 1e3), color=color, alpha=0.13, linewidth=0
        )
        middle = np.median(curves, 0)
        axes.plot(EXPONENTS, middle, color=color, linestyle=style, linewidth=2.2, label=f"width {width}")
        k = int(middle.argmin())
        axes.plot(EXPONENTS[k], middle[k], "*", color=color, markersize=13)
    _plain_losses(axes)


@lesson.figure(
    "One step size for all layers, three widths",
    _RATE,
    _RELATIVE,
    size=(5.4, 3.2),
    ylim=(0.3, 40),
    **{**_SWEEP, "xticks": range(-12, 0, 2), "legend": {"loc": "lower right", "fontsize": 10}},
)
def plot_question(axes):
    """Draw the loss against the step size at three widths, with one step size for all layers."""
    _draw_widths(axes, "SP", "one")
    return (
        "Test loss at three widths and twelve step sizes: the median of five seeds with a star at its minimum, and a "
        "band from the lowest to the highest."
    )


@lesson.figure(
    ["usual start, one step size", "usual start, steps of (07.6)", "start of (07.6), one step size", "both: muP"],
    _RATE,
    "loss / best at width 32",
    size=(6.1, 3.8),
    grid=(2, 2),
    subplots={"sharey": True, "sharex": True},
    ylim=(0.1, 40),
    **{
        **_SWEEP,
        "legend": [None, None, None, {"loc": "upper center", "fontsize": 8, "labelspacing": 0.2, "borderpad": 0.2}],
    },
)
def plot_halves(*four):
    """Draw the loss against the step size at three widths for each combination of readout's start and step sizes."""
    for axes, (start, steps) in zip(four, ((a, b) for a in STARTS for b in STEPS), strict=True):
        _draw_widths(axes, start, steps)
    return (
        "Test loss against the step size at three widths, for each start of the readout (rows) and each rule for step sizes "
        "(columns): median, star and band of five seeds as in the figure before."
    )


# What a row of the closing picture is called: the readout's start, the step sizes, and by what the one step size is divided
ARMS = {
    "one step size": ("SP", "one", 1),
    "one step size, over 4": ("SP", "one", 4),
    "one step size, over 16": ("SP", "one", RATIO),
    "steps of (07.6)": ("SP", "muP", 1),
    "start of (07.6), one step size": ("muP", "one", 1),
    "start of (07.6), one step size, over 16": ("muP", "one", RATIO),
    "both: muP": ("muP", "muP", 1),
}


@lesson.figure(
    ["the cost of keeping the step size", "best loss at width 512"],
    ["loss / best loss of the same row", "loss / best loss of the first row"],
    "set-up",
    size=(7.8, 3.4),
    grid=(1, 2),
    subplots={"sharey": True},
    xscale=["log", "linear"],
    xlim=[(0.85, 40), (0.4, 1.1)],
    legend=None,
)
def plot_arms(costs, losses):
    """Draw what each rule for carrying a step size costs, and the loss that its set-up can reach, on five seeds."""
    reference = smallest("SP", "one", max(WIDTHS))
    for place, (start, steps, divided_by) in enumerate(reversed(ARMS.values())):
        cost = regret(start, steps, divided_by=divided_by)
        reached = smallest(start, steps, max(WIDTHS)) / reference
        color = RED if (start, steps) == ("muP", "muP") else BLUE
        for axes, values in ((costs, cost), (losses, reached)):
            if axes is losses and divided_by != 1:
                continue  # the same sweep as in the row without division
            axes.plot([values.min(), values.max()], [place] * 2, "-", color=color, linewidth=1)
            axes.plot(values, [place] * len(values), "o", color=color, markersize=5)
    costs.set_yticks(range(len(ARMS)), [name.replace(", ", ",\n", 1) for name in reversed(ARMS)], fontsize=9)
    costs.set_xticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    costs.set_xticks([], minor=True)
    return (
        "Width 512, five seeds. Left: the loss at the step size found at width 32 (divided as named), over the smallest "
        "loss of the same set-up. Right: that smallest loss over that of the first row, once for rows that share a sweep."
    )


def stored_table() -> Markdown:
    """Return the stored figures of the closing picture: median, lowest and highest of five seeds."""

    def cell(values: np.ndarray, digits: int) -> str:
        return f"{np.median(values):.{digits}f} ({values.min():.{digits}f}–{values.max():.{digits}f})"

    rows = []
    for name, (start, steps, divided_by) in ARMS.items():
        rows.append(
            (
                name,
                cell(regret(start, steps, divided_by=divided_by), 2),
                cell(smallest(start, steps, max(WIDTHS)), 3),
            )
        )
    return markdown_table(
        ("median (range)", "loss at the carried step size over the best", "best loss at width 512"), rows
    )


@lesson.figure(
    ["At the start: random signs", "A sign step: all signs agree"],
    "number of terms added",
    "sum so far",
    size=(6.0, 2.4),
    grid=(1, 2),
    xlim=(0, 260),
    ylim=[(-40, 40), (0, 240)],
    legend="upper left",
)
def plot_sums(start, step, terms: int = 256, inputs: int = 16):
    """Draw how the terms W_ij x_j of one output add up, for random weights and for the sign step of one sample."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(inputs, terms, generator=generator, dtype=torch.float64)
    count = np.arange(1, terms + 1)
    random = (torch.randn(inputs, terms, generator=generator, dtype=torch.float64) * x).cumsum(1)
    aligned = (x[:6].sign() * x[:6]).cumsum(1)
    for axes, sums in ((start, random), (step, aligned)):
        axes.set_ylim(-30, 225)
        from_zero = np.pad(sums.numpy(), ((0, 0), (1, 0)))[:, ::8]
        axes.plot(np.arange(0, terms + 1, 8), from_zero.T, color=BLUE, linestyle="-", linewidth=0.7)
    (root,) = lines(start, count, {"$\\pm\\sqrt{d}$": np.sqrt(count)}, first=1)
    start.plot(count, -np.sqrt(count), color=root.get_color(), linestyle=root.get_linestyle())
    lines(step, count, {"$0.8\\,d$": math.sqrt(2 / math.pi) * count}, first=2)
    inside = int((random[:, -1].abs() < math.sqrt(terms)).sum())
    return (
        f"Sums of {terms} terms, added one by one, on one scale. Left: an output of random weights for each of "
        f"{inputs} inputs; {inside} of the {inputs} sums end between the curves. Right: the change by the sign step for six "
        f"of the inputs; the sums end between {float(aligned[:, -1].min()):.0f} and {float(aligned[:, -1].max()):.0f}."
    )


@cache
def sign_norms(width: int, *, steps: int = 120, every: int = 10) -> dict:
    """The spectral norm of sign(G) over its upper end (07.8), for the hidden layer of a network of that width.

    "training" holds the values at every tenth step of Adam under muP, "unrelated" that of a sum over as many samples
    whose gradients and inputs are independent and normal.
    """
    share = lambda G: float(torch.linalg.matrix_norm(G.sign(), 2)) / math.sqrt(G.numel())  # noqa: E731
    model = network(width)
    optimizer = torch.optim.Adam(groups_for(model, torch.optim.Adam, 2**-5, mup=True), betas=(0.9, 0.95))
    generator, found = torch.Generator().manual_seed(3), []
    for step in range(steps):
        x = torch.randn(32, 8, generator=generator)
        optimizer.zero_grad()
        (model(x) - teacher()(x)).square().mean().backward()
        if step % every == 0:
            found.append(share(model[2].weight.grad))
        optimizer.step()
    g, h = (torch.randn(32, width, generator=generator) for _ in range(2))
    return {"training": found, "unrelated": share(g.T @ h)}


@lesson.figure(
    "How near do sign steps of a batch come to the upper end?",
    "training step",
    "$\\|\\mathrm{sign}(G)\\|_2\\,/\\,\\sqrt{d_{in}d_{out}}$",
    size=(5.4, 3.3),
    ylim=(0, 1.05),
    legend={"loc": "center left", "fontsize": 9},
)
def plot_sign_norms(axes, widths: Sequence[int] = (64, 256)):
    """Draw the spectral norm of the sign of the hidden layer's gradient while the network trains, over its upper end."""
    for place, width in enumerate(widths):
        found = sign_norms(width)
        curve = {f"width {width}, in training": found["training"]}
        (line,) = lines(
            axes, 10 * np.arange(len(found["training"])), curve, first=place, marker="os"[place], linestyle="-"
        )
        look = {"color": line.get_color(), "linewidth": 1.0 + place}
        for height, style, name in ((found["unrelated"], "--", "unrelated samples"), (width**-0.5, ":", "lower end")):
            axes.axhline(height, linestyle=style, **look)
            axes.text(112, height + 0.012, f"width {width}, {name}", color=line.get_color(), fontsize=9, ha="right")
    return (
        "Spectral norm of the sign matrix of the hidden layer's gradient, for batches of 32, as a share of the upper end, "
        "against the training step; dashed the same for unrelated samples, dotted the lower end."
    )


SIZES = tuple(width for width in STEP_WIDTHS if width <= 512)
EXPLODING = {"init": 0.5, "rate": 0.5, "out_init": 1.0, "out_rate": 1.0}  # a wrong power in one place


@cache
def sizes_by_width(*, init: float, rate: float, out_init: float, out_rate: float) -> dict[str, np.ndarray]:
    """Return the sizes before and after one step at each width, the mean of three seeds."""
    found = [
        [one_step(n, init=init, rate=rate, out_init=out_init, out_rate=out_rate, seed=seed) for seed in STEP_SEEDS]
        for n in SIZES
    ]
    return {name: np.array([np.mean([run[name] for run in runs]) for runs in found]) for name in found[0][0]}


_LOG_WIDTHS = {"xscale": "log", "yscale": "log", "xlim": (28, 600)}


@lesson.figure(
    "How far one step moves the output of each layer",
    "width",
    "RMS change",
    size=(6.2, 3.6),
    ylim=(0.015, 2),
    **{**_LOG_WIDTHS, "xlim": (28, 1100), "legend": None},
)
def plot_check(axes):
    """Draw the coordinate check of a network with one wrong power in its step sizes."""
    found = sizes_by_width(**EXPLODING)
    names = {"first": "first layer", "change": "hidden layer", "moved": "readout"}
    for (name, label), color, mark in zip(names.items(), (BLUE, ORANGE, RED), "o^s", strict=True):
        axes.plot(SIZES, found[name], color=color, linestyle="-", marker=mark, markersize=6)
        axes.text(SIZES[-1] * 1.1, found[name][-1], label, color=color, fontsize=10.5, va="center")
    axes.set_xticks(SIZES, SIZES)
    axes.set_yticks([0.03, 0.1, 0.3, 1], ["0.03", "0.1", "0.3", "1"])
    axes.minorticks_off()
    return (
        "RMS change of the outputs of the three layers in one sign step, against the width, both axes logarithmic. One "
        "power of the width is wrong."
    )


class StepPower(Slider):
    """The slider of the hidden matrix's steps; without a kernel it is shown too small, and too large."""

    def values(self) -> tuple[float, float, float]:
        """Return three powers."""
        return (0.0, 0.25, 2.0)


BENT = 0.3  # by how much the exponents of the two halves of a curve may differ for one to describe it


def _power(sizes: np.ndarray) -> float | None:
    """Return the power of the width that the sizes go with, to one digit; None where no straight line fits them."""
    middle = len(SIZES) // 2
    halves = [slope(SIZES[part], sizes[part]) for part in (slice(middle + 1), slice(middle, None))]
    return None if abs(halves[0] - halves[1]) > BENT else round(slope(SIZES, sizes), 1) + 0.0


def _said(power: float | None) -> str:
    return "no straight line" if power is None else f"{power:.1f}"


@lesson.explorer
class SizesExplorer(Explorer):
    """Sizes in the lesson's network before and after one step, against its width, for any powers of its set-up."""

    title = "What grows with the width?"
    summary = (
        "The network takes one step that moves all weights of a layer by the same amount, against the signs of their "
        "gradients. Left: the size of what the hidden matrix puts out at the start, and its change. Right: the same for "
        "the output. All against the width."
    )
    rate = StepPower(
        "hidden step power", "", "Steps of the hidden matrix go with 1 / width to this power", 0.0, 0.0, 2.0, 0.25
    )
    init = Slider("hidden start power", "", "Its initial weights go with 1 / width to this power", 0.5, 0.0, 1.0, 0.25)
    out_rate = Slider(
        "readout step power", "", "Steps of the readout go with 1 / width to this power", 0.0, 0.0, 2.0, 0.25
    )
    out_init = Slider(
        "readout start power", "", "Its initial weights go with 1 / width to this power", 0.5, 0.0, 1.5, 0.25
    )
    together = ("rate", "out_init")
    stills = ({}, {"rate": 1.0}, {"rate": 1.0, "out_init": 1.0})
    size = (8.4, 3.7)
    dpi = 100
    strip_scale = 0.72
    layout = panels(
        ["What the hidden matrix puts out", "Output of the network"],
        "width",
        "size (RMS)",
        grid=(1, 2),
        ylim=[(3e-3, 300), (1e-3, 300)],
        **{**_LOG_WIDTHS, "legend": {"loc": "upper left", "fontsize": 9}},
    )

    def compute(self, *, rate, init, out_rate, out_init):
        """Return the four sizes at every width and their exponents."""
        found = sizes_by_width(init=init, rate=rate, out_init=out_init, out_rate=out_rate)
        shown = {name: (SIZES, found[name]) for name in ("hidden", "change", "output", "moved")}
        exponents = {name: _power(sizes) for name, (_, sizes) in shown.items()}
        return {**shown, "exponents": exponents, "powers": (rate, init, out_rate, out_init)}

    def draw(self, *both):
        """Draw a size at the start and its change on both axes, to be moved."""
        artists = {}
        for axes, names in zip(both, (("hidden", "change"), ("output", "moved")), strict=True):
            axes.set_xticks(SIZES, SIZES)
            axes.minorticks_off()
            curves = lines(axes, [], ["at the start", "change by one step"], marker="o", markersize=5)
            curves[1].set_marker("s")
            artists |= dict(zip(names, curves, strict=True))
        return artists

    def words(self, state):
        """Say with which power of the width each size goes."""
        rate, init, out_rate, out_init = state["powers"]
        e = {name: _said(power) for name, power in state["exponents"].items()}
        return (
            f"Powers of 1/width: hidden step {rate:.2f} and start {init:.2f}, readout step {out_rate:.2f} and start "
            f"{out_init:.2f}. Straight lines through the curves go with these powers of the width: hidden at the "
            f"start {e['hidden']}, its change {e['change']}; output at the start {e['output']}, its change {e['moved']}."
        )


carrying_prediction = lesson.prediction(
    "07.P1",
    "The wide network has 16 times the width. By about what should the small network's best step size have been divided?",
    {
        "By 1: the wide network only needs more steps": "At a smaller step size it ends far lower in the same "
        "number of steps.",
        "By 4, the root of 16": "That is the rule for sums of random signs. Over 4, the wide network still ends "
        "above its best loss, in each seed.",
        "By 16 or a little more": right(
            "On this grid of powers of two the best step sizes of the two widths lie a factor of 16 or 32 apart, in "
            "each seed."
        ),
        "By about 250, the ratio of the numbers of weights": "The hidden matrix has 256 times the weights, but "
        "a factor of more than 32 is not seen in any seed.",
    },
    reveal=plot_question,
)

halves_prediction = lesson.prediction(
    "07.P2",
    "One half of the rules is used alone: only the smaller start of the readout, or only the step sizes of the layers. "
    "Which half lets the step size of width 32 serve width 512, and which lowers the best loss there?",
    {
        "The start carries the step size, the step sizes lower the loss": "With the start alone the stars lie "
        "nearly as far apart as before.",
        "The step sizes carry it, the start lowers the loss": right(
            "Right column: the stars come close. Lower row: the wide network's curve reaches lower."
        ),
        "Each half does some of both": "The step sizes alone leave the best loss nearly as it was, and the "
        "start alone leaves the stars far apart.",
        "Neither does anything without the other": "The step sizes alone bring the stars close, without the smaller start.",
    },
    reveal=plot_halves,
)

FIGURES = lesson.figures
