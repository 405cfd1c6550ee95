"""Figures, explorer and predictions of lesson 29, the margin that attention maximises."""

from collections.abc import Sequence
from functools import cache
from statistics import mean, stdev

import numpy as np
import torch
from IPython.display import Markdown
from matplotlib import colormaps
from torch import Tensor

from course_lib.lessons.attention_margin.contents import lesson
from course_lib.lessons.attention_margin.experiment import (
    Problem,
    accuracy,
    by_size,
    chosen_sets,
    cut,
    least_norms,
    problem,
    trained,
    truth,
)
from course_lib.measured import measured
from course_lib.teaching import Choice, Explorer, Slider, markdown_table, panels, right
from course_lib.teaching.layout import LOOKS
from course_lib.teaching.style import BLACK, GREEN
from course_lib.theory.attention_margin import (
    direction_cosine,
    nuclear_norm,
    pull,
)

GREY = "0.55"
SEEDS = tuple(range(10))
LADDER = tuple(np.geomspace(1, 100, 11).tolist())
KINDS = {"KQ": "K and Q", "W": "W"}
LOOK = {kind: look for kind, look in zip(KINDS, LOOKS, strict=False)}
FACTORS, WHOLE = (LOOK[kind]["color"] for kind in KINDS)  # K and Q, or k and q; W, or β itself
RANKS = (1, 2, 3, 5, 10)


# The hook: ten sets of 40 samples, and the two layers that are trained on each


@cache
def hook() -> Problem:
    """Return the ten sets of samples with a W* of rank one."""
    return problem(1, SEEDS)


@cache
def paths(kind: str) -> Tensor:
    """Return W at each of LADDER on each of the ten sets, (11, 10, 10, 10); NaN where it never got there."""
    return trained(hook().training, kind, SEEDS, LADDER).products


def arrived() -> Tensor:
    """Return in which of the ten sets both layers reached margin 100, (10,)."""
    return ~torch.stack([paths(kind)[-1] for kind in KINDS]).isnan().any(0).flatten(1).any(1)


def along(kind: str) -> Tensor:
    """Return `paths` of the sets that arrived."""
    return paths(kind)[:, arrived()]


@cache
def solutions() -> dict[str, Tensor]:
    """Return the separating matrices of least nuclear and least Frobenius norm of the sets that arrived."""
    return least_norms(chosen_sets(hook(), arrived()).training)


def norm(weight: Tensor, which: str) -> Tensor:
    """Return the nuclear or the Frobenius norm of matrices."""
    return nuclear_norm(weight, diagonal=False) if which == "nuclear" else weight.flatten(-2).norm(dim=-1)


@lesson.figure(
    "Same samples, same loss, no mistakes", "margin that both have reached", "angle between the layers (degrees)",
    xscale="log", ylim=(0, 60), legend=None, size=(5.8, 3.0),
)  # fmt: skip
def plot_question(axes):
    """Draw the angle between the two trained layers on each set of samples."""
    cosines = direction_cosine(along("KQ"), along("W"), diagonal=False)
    for one in cosines.T:
        axes.plot(LADDER, np.degrees(np.arccos(one.numpy())), "-", color=GREY, linewidth=1.4)
    return (
        "The angle between the two trained layers, as vectors of 100 numbers, against the margin from 1 to 100. "
        "One line for each set of samples. All lines lie between 30 and 45 degrees."
    )


@lesson.figure(
    "New samples, margin 10", "parameters that are trained", "right on 1,000 new samples (%)",
    xlim=(-0.4, 1.4), ylim=(0, 80), xticks=(0, 1), legend="lower left", size=(5.4, 3.8),
)  # fmt: skip
def plot_new(axes):
    """Draw the accuracy of both layers on new samples, a line for each set."""
    found = {
        kind: 100 * torch.stack([accuracy(hook().test, w.nan_to_num()) for w in paths(kind)[5:6]]) for kind in KINDS
    }
    pairs = torch.cat([found["W"], found["KQ"]])[:, arrived()]
    axes.set_xticklabels(["W", "K and Q"])
    axes.plot([0, 1], pairs.numpy(), "o-", color=GREY, linewidth=1.2, markersize=5)
    axes.lines[0].set_label("one set of samples")
    axes.axhline(25, color=BLACK, linewidth=1, linestyle=":", label="guessing")
    return (
        "Accuracy on new samples at margin 10, a line for each set of samples that both layers have fitted. "
        "Each line rises from W, near 45 percent, to K and Q, near 60 percent. Guessing gets 25."
    )


@lesson.explorer
class LayerExplorer(Explorer):
    """Look at both layers of one set of samples while their margin grows."""

    title = "Two layers that make no mistake"
    summary = (
        "Left the matrix that decides which token is right. In the middle a trained matrix at the chosen margin. Both are "
        "divided by their largest entry in size. Right the ten singular values of either layer over its "
        "largest one, at the same margin."
    )
    log_margin = Slider("margin", "log₁₀ m", "Training stops when every lead is at least m", 1.0, 0.0, 2.0, 0.2)
    layer = Choice("trained", "The parameters that gradient flow moves", "W", ("W", "K and Q"))
    together = ("log_margin", "layer")
    stills = (
        {"log_margin": 0, "layer": "K and Q"},
        {"log_margin": 1, "layer": "K and Q"},
        {"log_margin": 1, "layer": "W"},
    )
    size = (9.4, 3.3)
    layout = panels(
        ["decides what is right: W*", "trained, its W", "singular values"],
        ["entry of the query", "entry of the query", "place in the order"],
        ["entry of the token", "entry of the token", "over the largest"],
        grid=(1, 3),
        legend=[None, None, "upper right"],
        ylim=[None, None, (0, 1.1)],
        xlim=[None, None, (0.5, 10.5)],
        xticks=[[], [], range(1, 11)],
        yticks=[[], [], [0, 0.5, 1]],
    )

    def compute(self, *, log_margin, layer):
        """Return the trained matrix, its singular values and those of the other layer, and what the words say."""
        place = round(5 * log_margin)  # of LADDER
        kinds = ("W", "KQ") if layer == "W" else ("KQ", "W")
        here, other = (along(kind)[place, 0] for kind in kinds)
        values, others = (torch.linalg.svdvals(w).numpy() for w in (here, other))
        order = np.arange(1, 11)
        return {
            "matrix": (here / here.abs().max()).numpy(),
            "W": (order, values / values[0] if layer == "W" else others / others[0]),
            "KQ": (order, others / others[0] if layer == "W" else values / values[0]),
            "said": (layer, LADDER[place], values / values[0]),
        }

    def draw(self, left, middle, right_axes):
        """Draw W*, and what moves."""
        look = {
            "cmap": colormaps["coolwarm"].resampled(11), "vmin": -1.1, "vmax": 1.1, "interpolation": "nearest"
        }  # fmt: skip
        seed = int(arrived().nonzero()[0])
        w_star = truth(seed, 1)
        left.imshow((w_star / w_star.abs().max()).numpy(), **look)
        matrix = middle.imshow(np.zeros((10, 10)), **look)
        for axes in (left, middle, right_axes):
            axes.grid(False)
        bar = middle.figure.colorbar(matrix, ax=middle, shrink=0.75, ticks=[-1, 0, 1])
        bar.ax.set(xlabel="entry", ylabel="over the largest in size")
        right_axes.axhline(0.5, color=GREY, linewidth=0.8, linestyle=":")
        dots = right_axes.plot([], [], "o-", color=FACTORS, markersize=6, label="K and Q")[0]
        crosses = right_axes.plot([], [], "x--", color=WHOLE, markersize=6, linewidth=1, label="W")[0]
        return {"matrix": matrix, "KQ": dots, "W": crosses}

    def words(self, state):
        """Say which layer is shown, and how its second and third singular values compare."""
        layer, margin, values = state["said"]
        return (
            f"Trained: {layer}, margin {margin:.3g}. The second singular value is {values[1]:.2f} of the largest, "
            f"the third {values[2]:.2f}."
        )


# Steps


@lesson.figure(
    "Who pulls at W", "lead of the pair above the least lead", "pull / largest pull",
    yscale="log", ylim=(1e-6, 3), xlim=(-0.3, 12), legend="upper right", size=(5.8, 3.1),
)  # fmt: skip
def plot_pull(axes):
    """Draw the pull of each pair on W against its lead, at margins 1 and 10."""
    given = hook().training
    marks = {0: ("o", GREEN), 5: ("x", BLACK)}
    for place, (mark, color) in marks.items():
        margins = given.margins(paths("W")[place].nan_to_num())
        i = int(arrived().nonzero()[0])
        leads = margins[i] - margins[i].min()
        pulls = pull(margins[i : i + 1], given.gaps[i : i + 1], given.best[i : i + 1])[0]
        axes.plot(
            leads.flatten(), pulls.flatten(), mark, color=color, markersize=5, label=f"margin {LADDER[place]:.0f}"
        )
    at = np.linspace(0, 12, 50)
    axes.plot(at, np.exp(-at), "--", color=GREY, linewidth=1.2, label=r"$e^{-\mathrm{lead}}$")
    return (
        "One set, W trained: the pull of each pair of a right and a wrong token over the largest pull, against the pair's "
        "lead above the least one, up to 12, on a logarithmic axis. The marks, of margins 1 and 10, lie along a falling "
        "exponential."
    )


ROW = np.array([2.0, 1.0])  # the only feature: 2 beta_1 + beta_2
_SINE = np.geomspace(1e-8, 1e8, 4001)  # sinh(2 tau)


def plane_point(start: float, margin) -> np.ndarray:
    """Return beta per unit margin of the flow of k * q from k = (start, start), q = 0 on the condition (2, 1) (29.7)."""
    reached = start**2 / 2 * _SINE * (4 * np.sqrt(1 + _SINE**2) + 1)  # 2 beta_1 + beta_2
    s = np.exp(np.interp(np.log(margin), np.log(reached), np.log(_SINE)))
    beta = np.stack([2 * s * np.sqrt(1 + s**2), s], axis=-1)
    return beta / (beta @ ROW)[..., None]


@lesson.figure(
    ["Both entries grow", "The second over the first"], "rescaled time τ", ["size of the entry", "β₂ / β₁"],
    grid=(1, 2), size=(8.2, 3.3), xlim=(0, 2.5), yscale=["log", "linear"], ylim=[(0.02, 1e6), (0, 0.65)],
    legend=[{"loc": "upper left", "fontsize": 8.5}, "upper right"],
)  # fmt: skip
def plot_race(left, right_axes):
    """Draw both coordinates against rescaled time, for a diagonal that is trained itself and for a product."""
    tau = np.linspace(0.005, 2.5, 300)
    made, alone = (np.sinh(4 * tau) / 2, np.sinh(2 * tau) / 2), (2 * tau, tau)
    for name, color, width, (fast, slow) in (("k and q", FACTORS, 2.8, made), ("β itself", WHOLE, 1.4, alone)):
        left.plot(tau, fast, "-", color=color, linewidth=width, label=f"{name}: β₁, pulled by 2")
        left.plot(tau, slow, "--", color=color, linewidth=width, label=f"{name}: β₂, pulled by 1")
    right_axes.plot(tau, made[1] / made[0], "-.", color=FACTORS, linewidth=2, label="k and q trained")
    right_axes.plot(tau, alone[1] / alone[0], ":", color=WHOLE, linewidth=2.5, label="β trained directly")
    return (
        "Two entries against rescaled time, pulled by 2 and by 1; k starts at c = 1. Left, logarithmic axis: trained as "
        "products, both become straight lines, the first twice as steep; trained directly, both flatten. Right the second "
        "entry over the first: one half for the direct training, falling towards 0 for the product."
    )


def _plane(axes) -> None:
    angle = np.linspace(0, 2 * np.pi, 200)
    axes.plot([0.05, 0.65], [0.9, -0.3], "-", color=BLACK, linewidth=1.2, label="margin 1")
    axes.plot(
        0.2**0.5 * np.cos(angle), 0.2**0.5 * np.sin(angle), "--", color=WHOLE, linewidth=1.3, label="Frobenius ball"
    )
    axes.plot([0, 0.5, 0, -0.5, 0], [0.5, 0, -0.5, 0, 0.5], "-.", color=FACTORS, linewidth=1.3, label="nuclear ball")


PLANE = ("β₁ per unit margin", "β₂ per unit margin")


@lesson.figure(
    "One condition: 2β₁ + β₂", *PLANE, size=(5.4, 4.0), xlim=(-0.12, 0.95), ylim=(-0.15, 0.65), aspect="equal",
    legend="upper right",
)  # fmt: skip
def plot_plane(axes):
    """Draw where both flows end on the line of margin 1, with the balls of both norms."""
    _plane(axes)
    trail = plane_point(1.0, np.geomspace(1e-3, 1e6, 200))
    axes.plot(*trail.T, "-", color=FACTORS, linewidth=4, alpha=0.6, label="path of k * q")
    axes.plot(0.4, 0.2, "o", color=WHOLE, markersize=9, zorder=5, label="W: (0.4, 0.2)")
    axes.plot(0.5, 0, "D", color=FACTORS, markersize=9, zorder=5, label="k * q ends at (0.5, 0)")
    return (
        "The plane of β per unit margin with the line 2β₁ + β₂ = 1. A circle touches the line at (0.4, 0.2), the end of "
        "training W. A diamond touches it with its corner at (0.5, 0). The path of k * q, from c = 1, runs along the "
        "line from the first point to the second."
    )


@lesson.figure(
    "The condition β₁ + 0.98 β₂ ≥ 1", "β₁", "β₂", size=(4.8, 3.6), xlim=(-0.3, 1.95), ylim=(-0.3, 1.35), aspect="equal",
    legend="upper right",
)  # fmt: skip
def plot_faces(axes):
    """Draw two points at a right angle whose nuclear norms are nearly the same."""
    axes.plot([-0.3, 1.5], [1.3 / 0.98, -0.5 / 0.98], "-", color=BLACK, linewidth=1.2, label="margin 1")
    axes.plot([0, 1, 0, -1, 0], [1, 0, -1, 0, 1], "-.", color=FACTORS, linewidth=1.3, label="nuclear ball")
    for point, mark in (((1, 0), "D"), ((0, 1 / 0.98), "s")):
        axes.annotate("", point, (0, 0), arrowprops={"arrowstyle": "-", "color": GREY, "linestyle": ":"})
        axes.plot(*point, mark, color=FACTORS, markersize=9, zorder=5)
    axes.annotate("nuclear norm 1", (1, 0), (1.07, 0.04))
    axes.annotate("nuclear norm 1.02", (0, 1.02), (0.1, 1.05))
    return (
        "The plane with the line of margin 1 and the diamond of nuclear norm 1, whose side nearly lies on the line. The "
        "corner (1, 0) touches it. The point (0, 1.02) lies on the line too, at a right angle to the corner seen from the "
        "origin, and its nuclear norm is only 2 percent larger."
    )


SIZES = tuple(np.geomspace(0.1, 100, 31).tolist())


@cache
def grown(kind: str) -> tuple[Tensor, Tensor]:
    """Return `by_size` on the hook's ten sets, those that arrived: W at each of SIZES, and the size when all were right."""
    weights, came_right = by_size(kind, hook().training, SEEDS, SIZES)
    return weights[:, arrived()], came_right[arrived()]


@lesson.figure(
    "Which part of the path was best?", "size of the matrix (Frobenius norm)", "right on new samples (%)",
    xscale="log", xlim=(0.09, 110), ylim=(20, 80), legend={"loc": "lower left", "ncols": 2, "fontsize": 8.5},
    size=(6.4, 3.8),
)  # fmt: skip
def plot_growth(axes):
    """Draw accuracy of both layers and of their first singular pairs against their size: means of the sets."""
    some = chosen_sets(hook(), arrived()).test
    for kind, name, whole_style, first_style in (("KQ", "K Qᵀ", "-", "-."), ("W", "W", "--", ":")):
        weights, came_right = grown(kind)
        color = LOOK[kind]["color"]
        whole, first = (
            100 * torch.stack([accuracy(some, one).mean() for one in part]) for part in (weights, cut(weights, 1))
        )
        axes.plot(SIZES, first, first_style, color=color, linewidth=2, label=f"{name}, first pair only")
        axes.plot(SIZES, whole, whole_style, color=color, linewidth=2, label=f"{name}, whole")
        at = float(came_right.log().mean().exp())
        for line in (first, whole):
            label = "all training samples right" if kind == "KQ" and line is whole else None
            height = float(np.interp(np.log(at), np.log(SIZES), line.numpy()))
            axes.plot(at, height, "D", color=color, markersize=7, label=label, linestyle="none")
    axes.axhline(25, color=BLACK, linewidth=1, linestyle=":", label="guessing")
    return (
        "Accuracy on new samples against the size of the matrix, from 0.1 to 100: means of the sets, for both whole layers "
        "and for their first singular pairs. Diamonds: where the last training sample came right (geometric mean of "
        "the sets). The whole K Qᵀ rises until about there and falls afterwards; its first pair rises further and then "
        "hardly falls. The whole W stays below; its first pair rises and falls."
    )


# The closing experiment, from the store


def stored(rank: int, kind: str, what: str) -> list[float | None]:
    """Return an accuracy of the twenty sets: None where the layer never got to the margin."""
    part = "margin_cuts" if what in CUTS else "margin_rivals"
    return measured(part, f"rank {rank}, {kind}{what}")


def pairs(rank: int, one: tuple[str, str], other: tuple[str, str]) -> list[tuple[float, float]]:
    """Return the accuracies of two arms, set by set, where both have one."""
    both = zip(stored(rank, *one), stored(rank, *other), strict=True)
    return [(a, b) for a, b in both if a is not None and b is not None]


def leads(rank: int, margin: int = 10) -> list[float]:
    """Return the accuracy of K and Q less that of W, in percentage points, in each set where both reached the margin."""
    at = f", margin {margin}"
    return [100 * (one - other) for one, other in pairs(rank, ("KQ", at), ("W", at))]


@lesson.figure(
    "Margin 10, new samples", "equal singular values of W*", "K and Q less W (percentage points)",
    xticks=range(len(RANKS)), ylim=(-20, 30), legend="upper right", size=(6.4, 3.8),
)  # fmt: skip
def plot_ranks(axes):
    """Draw the lead of K and Q over W for each rank of W*: sets as dots, means as bars."""
    axes.set_xticklabels(RANKS)
    axes.axhline(0, color=BLACK, linewidth=1)
    for place, rank in enumerate(RANKS):
        found = leads(rank)
        spread = np.linspace(-0.12, 0.12, len(found))
        axes.plot(place + spread, found, "o", color=GREY, markersize=4, label="one set" if not place else None)
        label = "mean" if not place else None
        axes.plot([place - 0.25, place + 0.25], [mean(found)] * 2, "-", color=BLACK, linewidth=2.5, label=label)
    return (
        "How many percentage points K and Q are ahead of W on new samples, for a W* with 1, 2, 3, 5 and 10 equal singular "
        "values; a dot for each set of samples where both reached margin 10. The mean is far above 0 for 1, lower for 2 "
        "and for 3, below 0 for 5 and lowest for 10."
    )


def norms(rank: int, arm: str, what: str) -> list[float]:
    """Return accuracy, excess or second (s2/s1) of a layer or a matrix of least norm, in the sets that arrived."""
    return measured("margin_norms", f"rank {rank}, {arm}, {what}")


@lesson.figure(
    "W* of rank 1", "second singular value / first", "right on new samples (%)",
    xlim=(0, 1.02), ylim=(20, 80), legend={"loc": "upper right", "fontsize": 8.5}, size=(5.8, 3.6),
)  # fmt: skip
def plot_margins(one):
    """Draw accuracy against s2/s1: each layer at margins 1, 10 and 100, and the matrix of least nuclear norm."""
    rank = RANKS[0]
    for kind, name in KINDS.items():
        places = [
            np.array([norms(rank, f"{kind}, margin {m}", what) for m in (1, 10, 100)])
            for what in ("second", "accuracy")
        ]  # fmt: skip
        color = LOOK[kind]["color"]
        one.plot(places[0], 100 * places[1], "-", color=color, linewidth=0.6, alpha=0.35)
        x, y = (part.mean(1) for part in places)
        one.plot(x, 100 * y, "-" if kind == "KQ" else "--", color=color, linewidth=2.2, label=f"{name} trained")
        for mark, m, a, b in zip("os^", (1, 10, 100), x, y, strict=True):
            label = f"margin {m}" if kind == "KQ" else None
            one.plot(a, 100 * b, mark, color=color, markersize=7, label=label, zorder=5, linestyle="none")
    best = [mean(norms(rank, "least nuclear norm", what)) for what in ("second", "accuracy")]
    one.plot(
        best[0], 100 * best[1], "*", color=BLACK, markersize=12, label="least nuclear norm", zorder=6, linestyle="none"
    )  # fmt: skip
    one.axhline(25, color=BLACK, linewidth=1, linestyle=":", label="guessing")
    return (
        "Accuracy on new samples against the second singular value over the first, at three margins: thin lines for sets, "
        "thick ones for means. The star is the mean of the matrices of least nuclear norm. From margin 1 to 100, K and Q "
        "move down and to the right, towards the star; W lies lower."
    )


ARMS = {
    "K and Q, margin 10": ("KQ", ", margin 10"),
    "W, margin 10": ("W", ", margin 10"),
    "K and Q, stopped early": ("KQ", " stopped"),
    "W, stopped early": ("W", " stopped"),
    "W, margin 10, first r singular pairs": ("W", " cut"),
    "K Qᵀ, margin 10, first r singular pairs": ("KQ", " cut"),
    "W with a penalty on the nuclear norm": ("W", ", nuclear penalty"),
    "W with such a penalty, first r singular pairs": ("W", ", nuclear penalty, cut"),
    "K and Q with r columns each, margin 10": ("KQ", ", few columns"),
    "W with a penalty on the Frobenius norm": ("W", ", frobenius penalty"),
    "sum of all features (one step of W)": ("one step", ""),
    "sum of all features, first r singular pairs": ("one step", " cut"),
}
SHOWN = (1, 3, 10)
MAIN = (0, 1, 4, 5, 6, 7, 8)  # the rows of the main line; the others stand in the appendix
CUTS = (", nuclear penalty, cut", ", few columns")  # stored in a part of their own, `margin_cuts`
LEARNT = (*CUTS, " cut", ", nuclear penalty", ", margin 10")  # arms whose training accuracy is stored, too


def both_arrived(rank: int) -> list[bool]:
    """Return in which of the twenty sets both layers reached margin 10."""
    rows = zip(*(stored(rank, kind, ", margin 10") for kind in KINDS), strict=True)
    return [None not in row for row in rows]


def rivals_table(rows: Sequence[int] = MAIN) -> Markdown:
    """Return mean and standard error of each arm's accuracy on the sets where both layers arrived, for three W*.

    The last column is the mean accuracy on the training samples, for W* of rank one, where it is stored.
    """

    def taken(found: list[float | None], rank: int) -> list[float]:
        return [100 * one for one, kept in zip(found, both_arrived(rank), strict=True) if kept]

    def cell(rank: int, arm: tuple[str, str]) -> str:
        found = taken(stored(rank, *arm), rank)
        return f"{mean(found):.1f} ± {stdev(found) / len(found) ** 0.5:.1f}"

    def learnt(kind: str, what: str) -> str:
        known = what in LEARNT and kind in KINDS
        return f"{mean(taken(measured('margin_cuts', f'rank 1, {kind}{what}, training'), 1)):.0f}" if known else ""

    arms = list(ARMS.items())
    shown = [(arms[i][0], *(cell(rank, arms[i][1]) for rank in SHOWN), learnt(*arms[i][1])) for i in rows]
    heads = (f"W* of rank {rank} ({sum(both_arrived(rank))} sets)" for rank in SHOWN)
    return markdown_table(("layer", *heads, "training, rank 1"), shown)


def settings_table() -> Markdown:
    """Return what each rival chose on held-out samples: a rank, the weight of a penalty, both, or a number of columns."""

    def choice(rank: int, kind: str, what: str) -> str:
        if what in CUTS and rank not in SHOWN:
            return ""
        found = measured("margin_cuts" if what in CUTS else "margin_rivals", f"rank {rank}, {kind}{what}, setting")
        return " and ".join(f"{one:g}" for one in found) if isinstance(found, list) else f"{found:g}"

    rows = [
        (name, *(choice(rank, kind, what) for rank in RANKS))
        for name, (kind, what) in ARMS.items()
        if "cut" in what or "penalty" in what or "columns" in what
    ]
    return markdown_table(("layer", *(f"W* of rank {rank}" for rank in RANKS)), rows)


# Predictions

ask_new = lesson.prediction(
    "29.P1",
    "Both layers answer all 40 training samples correctly, at margin 10. Now they get 1,000 new samples, whose right token "
    "is decided by the same $W^*$. A guess is right in 25%. What do you expect, on average over the sets?",
    {
        "Both stay near 25%": "The samples do say something: 120 comparisons for 100 numbers.",
        "Both the same, up to 3 points": "So it would be if training chose the same matrix. They are far apart.",
        "W is ahead by 10 points or more": "The other way round.",
        "K and Q are ahead by 10 points or more": right(
            "About 61% against about 45%, although K Qᵀ can be any matrix that W can be."
        ),
    },
    reveal=plot_new,
)

ask_margins = lesson.prediction(
    "29.P2",
    "A convex programme finds the matrix of margin 1 whose nuclear norm is *exactly* the least. Per unit of margin, the "
    "norm of $KQ^\\top$ at margin 10 is on average a fifth to a quarter larger. How many new samples does that exact matrix "
    "answer correctly, on average over the sets?",
    {
        "More than K and Q, by 3 points or more": "So it would be if the small norm were what helped.",
        "As many as K and Q, up to 3 points": "Then the norm would explain the lead. But it is lower.",
        "Between K and Q and W, 3 points or more from both": right(
            "About 53%, with about 60% for K and Q and 44% for W in the stored run."
        ),
        "As many as W, up to 3 points, or fewer": "It is about 9 points above W.",
    },
    reveal=plot_margins,
)

ask_ranks = lesson.prediction(
    "29.P3",
    "So far one property decided: $W^*$ had one singular value. Now it has 2, 3, 5 or all 10, of equal size. "
    "For which of them is the layer with $K$ and $Q$ ahead of $W$ on new samples, at margin 10?",
    {
        "For none": "With a little more than one property, few directions still help.",
        "For 2 and 3": right(
            "The lead shrinks from 8 points to 4. With 5 it is gone, and with 10 W is 7 points ahead."
        ),
        "For 2, 3 and 5": "With 5 of 10 directions W is ahead already, by about 3 points.",
        "For all of them": "With all 10 W is ahead, by about 7 points, in each set.",
    },
    reveal=plot_ranks,
)

FIGURES = lesson.figures
