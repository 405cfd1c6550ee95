"""Figures, explorer and predictions of lesson 24, the margin that attention maximises."""

from functools import cache

import numpy as np
import torch
from torch import Tensor

from course_lib.lessons.attention_margin.contents import lesson
from course_lib.teaching import Choice, Explorer, Slider, lines, panels
from course_lib.teaching.style import BLACK, BLUE, GREEN, RED
from course_lib.theory.attention_margin import (
    Constraints,
    constraints,
    direction_cosine,
    excess,
    frobenius_svm,
    gradient_flow,
    l1_svm,
    loss_gradient,
    nuclear_norm,
    planted_samples,
    stacked,
)

GREY, PALE = "0.55", "0.85"
SEEDS = range(10)
MARGINS = tuple(np.geomspace(1, 1000, 13).tolist())


# The planted samples: ten sets, and what flows on them end with


@cache
def planted() -> Constraints:
    """Return the ten sets of planted samples as constraints on diagonal weights, (10, 20, 4, 40)."""
    sets = [planted_samples(generator=torch.Generator().manual_seed(seed)) for seed in SEEDS]
    return constraints(stacked(sets), diagonal=True)


@cache
def solutions() -> tuple[Tensor, Tensor]:
    """Return the directions of least nuclear and of least Frobenius norm of each set, (10, 40)."""
    given = planted()
    each = [Constraints(given.features[i], given.gaps[i], given.best[i]) for i in SEEDS]
    return torch.stack([l1_svm(one) for one in each]), torch.stack([frobenius_svm(one) for one in each])


@cache
def flows(start: float | None) -> Tensor:
    """Return the products at each of MARGINS per unit margin, (13, 10, 40): of k * q from k = start, q = 0, or of W."""
    zero = torch.zeros_like(solutions()[0])
    begin = [zero] if start is None else [zero + start, zero]
    found = gradient_flow(planted(), begin, parametrisation="W" if start is None else "kq", margins=MARGINS).products
    return found / torch.stack([planted().margin(p) for p in found]).unsqueeze(-1)


def cosines(start: float | None, which: int) -> Tensor:
    """Return the cosines with one of `solutions` at each of MARGINS, (13, 10)."""
    return direction_cosine(flows(start), solutions()[which], diagonal=True)


def excesses(start: float | None) -> Tensor:
    """Return by how much the nuclear norm per unit margin exceeds the optimum at each of MARGINS, (13, 10)."""
    norms = nuclear_norm(flows(start), diagonal=True)
    return excess(norms, torch.ones_like(norms), nuclear_norm(solutions()[0], diagonal=True))


def first_shares() -> Tensor:
    """Return the first force on each coordinate towards its final sign, over the largest one, (10, 40)."""
    force = -loss_gradient(planted(), torch.zeros_like(solutions()[0]))
    return force * solutions()[0].sign() / force.abs().amax(1, keepdim=True)


@lesson.figure(
    "Same samples, same loss: do two trainings agree?", "margin reached", "angle between the two (degrees)",
    xscale="log", ylim=(0, 50), legend=None, size=(7.0, 3.9),
)  # fmt: skip
def plot_question(axes):
    """Draw the angle between the directions of k * q and of W on each set of samples."""
    cos = direction_cosine(flows(1.0), flows(None), diagonal=True)
    for one in cos.T:
        axes.plot(MARGINS, np.degrees(np.arccos(one.numpy())), "-", color=BLUE, linewidth=1.2, alpha=0.7)
    return (
        "The angle between the directions of two trained layers against the margin that both have reached, from 1 to "
        "1000, for ten sets of samples. At margin 1 it is below 10 degrees for all. It grows and levels off between 18 "
        "and 34 degrees."
    )


# The plane of one constraint

ROW = np.array([2.0, 1.0])  # the only feature: 2 beta_1 + beta_2 >= 1
_SINE = np.geomspace(1e-8, 1e8, 4001)  # sinh(2 tau)


def plane_point(start: float, margin) -> np.ndarray:
    """Return beta per unit margin of the flow of k * q from k = (start, start), q = 0 on the constraint (2, 1) (24.8)."""
    reached = start**2 / 2 * _SINE * (4 * np.sqrt(1 + _SINE**2) + 1)  # 2 beta_1 + beta_2
    s = np.exp(np.interp(np.log(margin), np.log(reached), np.log(_SINE)))
    beta = np.stack([2 * s * np.sqrt(1 + s**2), s], axis=-1)
    return beta / (beta @ ROW)[..., None]


def _plane(axes) -> None:
    angle = np.linspace(0, 2 * np.pi, 200)
    axes.plot([0.05, 0.65], [0.9, -0.3], "-", color=BLACK, linewidth=1.2, label="margin 1")
    axes.plot(
        0.2**0.5 * np.cos(angle), 0.2**0.5 * np.sin(angle), "--", color=RED, linewidth=1.3, label="Frobenius ball"
    )
    axes.plot([0, 0.5, 0, -0.5, 0], [0.5, 0, -0.5, 0, 0.5], "-.", color=GREEN, linewidth=1.3, label="nuclear ball")


PLANE = ("β₁ per unit margin", "β₂ per unit margin")


@lesson.figure(
    "One constraint, 2β₁ + β₂ ≥ 1", *PLANE, size=(6.2, 4.6), xlim=(-0.1, 0.85), ylim=(-0.15, 0.6), aspect="equal",
    legend="upper right",
)  # fmt: skip
def plot_plane(axes):
    """Draw where both flows end on the line of margin 1, with the balls of both norms."""
    _plane(axes)
    trail = plane_point(1.0, np.geomspace(1e-3, 1e6, 200))
    axes.plot(*trail.T, "-", color=BLUE, linewidth=4, alpha=0.6, label="path of k * q")
    axes.plot(0.4, 0.2, "o", color=RED, markersize=9, zorder=5, label="W: (0.4, 0.2)")
    axes.plot(0.5, 0, "D", color=BLUE, markersize=9, zorder=5, label="k * q ends at (0.5, 0)")
    return (
        "The plane of β per unit margin with the line 2β₁ + β₂ = 1. A circle touches the line at (0.4, 0.2), the end of "
        "training W. A diamond touches it with its corner at (0.5, 0). The path of k * q runs along the line from the "
        "first point to the second."
    )


@lesson.explorer
class PlaneExplorer(Explorer):
    """Train k * q or W on one constraint, and look at the two norms."""

    title = "The norm that training makes small"
    summary = (
        "Left the plane of β per unit margin, with the line of margin 1, the unit ball of the Frobenius norm (circle) and "
        "of the nuclear norm (diamond), each as large as it may be to touch the line; the thick one is that of the chosen "
        "training, the blue dot is the trained β, the open one that of the other training. Right "
        "both norms per unit margin against the margin."
    )
    start = Slider("start scale", "log₁₀ c", "k starts at (c, c) and q at (0, 0)", 0.0, -2.0, 1.0, 0.1)
    margin = Slider("margin", "log₁₀ m", "Training stops when 2β₁ + β₂ reaches m", 2.0, 0.0, 4.0, 0.1)
    trained = Choice("trained", "The parameters that gradient flow moves", "k and q", ("k and q", "W"))
    together = ("start", "margin")
    size = (9.6, 4.2)
    layout = panels(
        ["one constraint, 2β₁ + β₂ ≥ 1", "norms per unit margin"],
        [PLANE[0], "margin m"],
        [PLANE[1], "norm / margin"],
        grid=(1, 2),
        legend=[None, "upper right"],
        xlim=[(-0.6, 0.85), (1, 1e4)],
        ylim=[(-0.58, 0.68), (0.42, 0.68)],
        xscale=["linear", "log"],
    )
    at = np.geomspace(1, 1e4, 121)

    def compute(self, *, start, margin, trained):
        """Return the trained point, its trail and both norms along the way."""
        product = trained == "k and q"
        path = plane_point(10.0**start, self.at) if product else np.tile([0.4, 0.2], (len(self.at), 1))
        ends = [plane_point(10.0**start, 10.0**margin), np.array([0.4, 0.2])]
        here, other = ends if product else reversed(ends)
        nuclear, frobenius = np.abs(path).sum(1), np.linalg.norm(path, axis=1)
        now = (float(np.abs(here).sum()), float(np.linalg.norm(here)))
        ball = np.array([[0, 0.5, 0, -0.5, 0], [0.5, 0, -0.5, 0, 0.5]])
        angle = np.linspace(0, 2 * np.pi, 100)
        circle = 0.2**0.5 * np.stack([np.cos(angle), np.sin(angle)])
        trail = path[self.at <= 10.0**margin * 1.0001]
        return {
            "ball": tuple(ball if product else circle),
            "trail": tuple(trail.T),
            "dot": tuple(here),
            "other": tuple(other),
            "nuclear": nuclear,
            "frobenius": frobenius,
            "marks": ([10.0**margin] * 2, now),
            "said": (trained, here, now),
        }

    def draw(self, left, right):
        """Draw the line, the balls, and what moves."""
        left.set_aspect("equal")
        left.grid(False)
        _plane(left)
        ball = left.plot([], [], "-", color=BLUE, linewidth=4, alpha=0.35, label="_ball")[0]
        trail = left.plot([], [], "-", color=BLUE, linewidth=3, alpha=0.6, label="_trail")[0]
        dot = left.plot([], [], "o", color=BLUE, markersize=10, zorder=6, label="_dot")[0]
        other = left.plot([], [], "o", color=BLUE, markersize=10, markerfacecolor="none", label="_other")[0]
        nuclear, frobenius = lines(right, self.at, ["nuclear, |β₁| + |β₂|", "Frobenius, length of β"])
        for height, color in ((0.5, GREEN), (0.2**0.5, RED)):
            right.axhline(height, color=color, linewidth=1, linestyle=":", label="_smallest")
        marks = right.plot([], [], "o", color=BLUE, markersize=8, zorder=5, linestyle="none", label="_now")[0]
        moving = {"ball": ball, "trail": trail, "dot": dot, "other": other}
        return {**moving, "nuclear": nuclear, "frobenius": frobenius, "marks": marks}

    def words(self, state):
        """Say where training stands and how far each norm is from its smallest value."""
        trained, (x, y), (nuclear, frobenius) = state["said"]
        return (
            f"Training {trained}: β = ({x:.3f}, {y:.3f}) per unit margin. Its nuclear norm {nuclear:.3f} is "
            f"{100 * (nuclear / 0.5 - 1):.1f}% above the smallest, its Frobenius norm {frobenius:.3f} is "
            f"{100 * (frobenius / 0.2**0.5 - 1):.1f}% above."
        )


# Many constraints


@lesson.figure(
    ["cosine with the least nuclear norm", "nuclear norm above the optimum"],
    "margin",
    ["cosine", "excess"],
    grid=(1, 2),
    xscale="log",
    yscale=["linear", "log"],
    legend=["lower left", "lower left"],
    ylim=[(0.5, 1.02), (5e-3, 2)],
)
def plot_planted(left, right):
    """Draw both parametrisations on the ten planted sets: mean, smallest and largest."""
    for place, (name, start) in enumerate((("k and q", 1.0), ("W", None))):
        for axes, found in ((left, cosines(start, 0)), (right, excesses(start))):
            (line,) = lines(axes, MARGINS, {name: found.mean(1)}, first=place)
            axes.fill_between(MARGINS, found.amin(1), found.amax(1), color=line.get_color(), alpha=0.15)
    return (
        "Against the margin, mean and range over ten sets of samples. Left the cosine with the direction of least nuclear "
        "norm: for k and q it rises to 0.99, for W it falls to 0.88. Right the excess of the nuclear norm, logarithmic: "
        "for k and q it falls to 2%, for W it stays near 80%."
    )


@lesson.figure(
    ["trained k and q", "trained W"],
    "coordinate",
    "β per unit margin",
    size=(8.8, 3.6),
    grid=(1, 2),
    legend="upper right",
    ylim=(-0.25, 1.2),
)
def plot_stems(*axes):
    """Draw the coordinates of both trained directions of the first set beside the solutions."""
    for one, start, which, name in ((axes[0], 1.0, 0, "least nuclear"), (axes[1], None, 1, "least Frobenius")):
        one.vlines(range(40), 0, flows(start)[-1, 0].numpy(), color=BLUE, linewidth=2.5, label="trained")
        one.plot(solutions()[which][0].numpy(), "o", color=RED, markersize=4, markerfacecolor="none", label=name)
    return (
        "The 40 coordinates of β per unit margin at margin 1000, first set of samples. Left k and q: the planted two "
        "carry nearly everything, close to the red circles of the least nuclear norm, which uses two more "
        "a little. Right W: the planted two are the largest, and all "
        "others are used too, on the circles of the least Frobenius norm."
    )


STARTS = (0.01, 1.0, 10.0)


@lesson.figure(
    ["cosine with the least nuclear norm", "nuclear norm above the optimum"],
    "margin",
    ["cosine, mean of ten sets", "excess, mean of ten sets"],
    grid=(1, 2),
    xscale="log",
    yscale=["linear", "log"],
    legend=["lower right", "lower left"],
    ylim=[(0.8, 1.01), (1e-2, 2)],
)
def plot_starts(left, right):
    """Draw cosine and excess against the margin for three scales of the start."""
    lines(left, MARGINS, {f"k starts at {s:g}": cosines(s, 0).mean(1) for s in STARTS}, marker="o", markersize=3)
    lines(right, MARGINS, {f"k starts at {s:g}": excesses(s).mean(1) for s in STARTS}, marker="o", markersize=3)
    return (
        "Mean over ten sets of samples against the margin, k starting at 0.01, 1 and 10. Left the cosine with the least "
        "nuclear norm: start 1 leads throughout and ends at 0.99; 0.01 rises to 0.975 at margin 100 and stays there; "
        "start 10 dips to 0.90 and ends at 0.96. Right the excess: 0.01 leads up to margin 300, at 1000 it and start 1 "
        "are both near 2%, start 10 is at 32%."
    )


@lesson.figure(
    ["k starts at 0.01", "k starts at 1"], "first force towards the final sign / largest", "trained / solution",
    size=(8.8, 3.7), grid=(1, 2), legend=None, xlim=(-0.3, 1.1), ylim=(-0.1, 2.1),
)  # fmt: skip
def plot_lag(*axes):
    """Draw how much of each coordinate that the solution needs is there at margin 1000, against its first force."""
    needed = solutions()[0].abs() > 1e-6
    for one, start in zip(axes, (0.01, 1.0), strict=True):
        ratio = (flows(start)[-1] / solutions()[0])[needed]
        one.plot(first_shares()[needed], ratio, "o", color=BLUE, alpha=0.7)
        one.axvline(0, color=GREY, linewidth=1)
        one.axhline(1, color=GREY, linewidth=1, linestyle=":")
    return (
        "One dot for each of the 32 coordinates that the solutions use: its trained size over the needed one against its "
        "first force, over the largest force of its set. From 0.01, eight coordinates whose first force is wrong or weak "
        "lie at 0. From 1 none is missing, and most lie near 1."
    )


# Predictions

plane_prediction = lesson.prediction(
    "24.P1",
    "One sample with two tokens and diagonal weights leaves a single condition, $2\\beta_1 + \\beta_2 \\ge 1$ per unit "
    "margin. Gradient flow trains $k$ and $q$ with $\\beta = (k_1q_1, k_2q_2)$, from $k = (1, 1)$ and $q = (0, 0)$, until "
    "the margin is very large. Where is $\\beta$ divided by the margin?",
    {
        "(0.4, 0.2): the gradient's direction, and the shortest β": "That is where training β itself ends. A product grows "
        "in proportion to its own size: the coordinate that is ahead runs away.",
        "(1/3, 1/3): both coordinates share": "Only a norm that counts the largest entry would ask for equal shares.",
        "(0.5, 0): all of it on the first coordinate": "Each product grows in proportion to its own size, so the coordinate "
        "with the larger weight runs away. The nuclear norm of (0.5, 0) is 0.5; that of (0.4, 0.2) is 0.6.",
        "It depends on the start, even in the limit": "The start decides how late the limit comes, not where it is.",
    },
    answer="(0.5, 0): all of it on the first coordinate",
    reveal=plot_plane,
)

start_prediction = lesson.prediction(
    "24.P2",
    "Now 20 samples with five tokens each, 80 conditions on 40 coordinates; ten such sets. $k$ starts at $c$ in every "
    "coordinate, $q$ at 0. The usual advice is to start small. Which start has the largest cosine with the limit's "
    "direction when the margin is 1000?",
    {
        "c = 0.01": "Its norm is the smallest at first, but its cosine stands still from margin 100 on: coordinates that "
        "are pushed weakly or wrongly at first fall behind by a factor that is larger the smaller the start.",
        "c = 1": "From 0.01, coordinates that are first pushed weakly or the wrong way fall behind by a large factor and "
        "are still missing; from 10, the products hardly notice that they are products.",
        "c = 10": "From so large a start k hardly changes, and k * q moves as β itself would: towards the other norm.",
        "All the same": "They may share a limit. At margin 1000 they are not there.",
    },
    answer="c = 1",
    reveal=plot_starts,
)

FIGURES = lesson.figures
