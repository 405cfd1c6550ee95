"""Figures, explorer and predictions of lesson 17, attention_scaling."""

import math
from functools import cache, partial

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor

from course_lib.lessons.attention_scaling import lookup
from course_lib.lessons.attention_scaling.contents import lesson
from course_lib.measured import measured
from course_lib.teaching import Explorer, Slider, Switch, lines, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, GREEN, RED, compact, small_legend

_compact = partial(compact, title=10, ticks=8.5, labels=9.5)
_legend = partial(small_legend, fontsize=8.5)

SHORT, LONG, PAIRS, DRAWN = 64, 1024, 2000, 16


@cache
def walks() -> tuple[Tensor, Tensor]:
    """Return partial sums of q_i k_i over 1,024 entries of variance 1: 2,000 independent pairs, and 2,000 with k = q."""
    generator = torch.Generator().manual_seed(4)
    q, k = torch.randn(2, PAIRS, LONG, generator=generator, dtype=torch.float64)
    return (q * k).cumsum(1), (q * q).cumsum(1)


def _draw_walks(axes, sums: Tensor, length: int, color: str, label: str | None, width: float) -> None:
    every = length // SHORT  # 64 points a walk: more of them cannot be seen
    steps = np.arange(every, length + 1, every)
    for i, walk in enumerate(sums[:DRAWN, every - 1 : length : every].numpy()):
        axes.plot(steps, walk, color=color, linestyle="-", linewidth=width, label=None if i else label)


@lesson.figure(
    "Queries and keys of 64 entries: the sum, term by term",
    "terms added",
    "sum so far",
    size=(5.2, 2.6),
    legend=_legend("upper left"),
    xlim=(1, SHORT),
    ylim=(-40, 125),
    xticks=(1, 16, 32, 48, SHORT),
)
def plot_walks(axes):
    """Draw walks of independent and of matching pairs, up to 64 terms."""
    independent, matching = walks()
    _draw_walks(axes, matching, SHORT, RED, "k = q: a key that matches", 1.2)
    _draw_walks(axes, independent, SHORT, BLUE, "k independent of q", 0.8)
    _compact(axes)
    return f"{DRAWN} sums of each kind, one line for each pair, which ends at its q · k."


@lesson.figure(
    ["independent pairs", "matching pairs, k = q"],
    "terms added",
    "sum so far",
    size=(6.4, 2.5),
    grid=(1, 2),
    legend=_legend("upper left"),
    xlim=(1, LONG),
    ylim=[(-125, 150), (-50, 1450)],
)
def plot_long_walks(left, second):
    """Draw the same walks up to 1,024 terms, with spread and mean at 64 and 1,024."""
    independent, matching = walks()
    _draw_walks(left, independent, LONG, BLUE, None, 0.8)
    _draw_walks(second, matching, LONG, RED, None, 1.2)
    spread, mean = independent.std(0), matching.mean(0)
    steps = np.arange(1, LONG + 1)
    for sign in (1, -1):
        left.plot(steps, sign * spread, color=BLACK, linestyle="--", label="± standard deviation" if sign > 0 else None)
    second.plot(steps, mean, color=BLACK, linestyle="--", label="mean")
    for axes, level in ((left, spread), (second, mean)):
        axes.plot([SHORT, LONG], level[[SHORT - 1, LONG - 1]], "o", color=BLACK, markersize=6, clip_on=False)
        axes.set_xticks([SHORT, 256, 512, LONG])
    _compact(left, second)
    return (
        f"The same pairs up to {LONG:,} terms, {DRAWN} drawn and {PAIRS:,} counted; the axes differ. Standard deviation of "
        f"independent sums after {SHORT} and {LONG:,} terms: {float(spread[SHORT - 1]):.1f} and {float(spread[-1]):.1f}. "
        f"Mean of the matching ones: {float(mean[SHORT - 1]):.0f} and {float(mean[-1]):,.0f}."
    )


# The explorer

KEYS, QUERIES, CLEAR = 12, 200, 0.9


@lesson.explorer
class ScaleExplorer(Explorer):
    """One query and twelve keys: their scores as walks, and the weights that a softmax makes of them."""

    title = "Twelve keys: scores as walks, and their weights"
    summary = (
        "Left, the sums of q_i k_i for one query and 12 keys, term by term, multiplied by the scale; the height of the "
        "window follows the walks, and its ends are written at its corners. Right, the weights of the 12 keys. Key 1 has a "
        "colour of its own."
    )
    log_dim = Slider("entries", "log₂ d", "d is 2 to this power: 6 is 64 entries, 10 is 1,024", 6, 0, 10, 1)
    power = Slider("power of the divisor", "a", "All scores are divided by d to this power", 0.0, 0.0, 1.0, 0.05)
    std = Slider("size of the entries", "σ", "Standard deviation of all entries; their mean is 0", 1.0, 0.5, 4.0, 0.5)
    match = Switch("key 1 matches", "Key 1 is made equal to the query: k = q", False)
    law = Switch("show the laws", "Draw what this page derives below over the walks: spread and mean", False)
    together = ("log_dim", "power")
    stills = ({"log_dim": 10}, {"log_dim": 10, "power": 0.5}, {"power": 0.5, "match": True})
    size = (8.6, 3.5)
    strip_scale = 0.7
    layout = panels(
        ["scores, term by term", "weights of this query"],
        ["terms added", "key"],
        ["sum so far, times the scale", "weight"],
        grid=(1, 2),
        legend=None,
        subplots={"width_ratios": (1.5, 1)},
        xlim=[(0, 1), (0.4, KEYS + 0.6)],
        ylim=[(-1, 1), (0, 1.04)],
        xticks=[(0, 0.5, 1), (1, 4, 8, 12)],
        yticks=[(-1, -0.5, 0, 0.5, 1), None],
    )

    def __init__(self):
        generator = torch.Generator().manual_seed(3)
        q = torch.randn(QUERIES, 1, LONG, generator=generator, dtype=torch.float64)
        k = torch.randn(QUERIES, KEYS, LONG, generator=generator, dtype=torch.float64)
        sums, squares = (q * k).cumsum(-1), (q[:, 0] * q[:, 0]).cumsum(-1)
        self.first, self.first_match = sums[0].numpy(), squares[0].numpy()
        ends = [2**i - 1 for i in range(11)]
        self.scores, self.matches = sums[..., ends].clone(), squares[:, ends].clone()
        super().__init__()

    def compute(self, *, log_dim, power, std, match, law):
        """Return walks, window and weights of the first query, and what 200 queries have in common."""
        d = 2**log_dim
        factor = std**2 * d**-power
        walks_, scores = self.first[:, :d].copy(), self.scores[..., log_dim].clone()
        if match:
            walks_[0], scores[:, 0] = self.first_match[:d], self.matches[:, log_dim]
        walks_, scores = factor * walks_, factor * scores
        window = 2.0 ** math.ceil(math.log2(np.abs(walks_).max()))
        x = np.arange(d + 1) / d
        seen = slice(None, None, max(d // 64, 1))  # 64 points a walk: more of them cannot be seen
        weights = scores.softmax(-1)
        others = scores[:, 1:] if match else scores
        spread = factor * np.sqrt(np.arange(d + 1)) / window
        line = factor * np.arange(d + 1) / window
        nothing = ([], [])
        return {
            "walks": [(x[seen], np.concatenate([[0.0], walk])[seen] / window) for walk in walks_],
            "laws": [(x, spread), (x, -spread), (x, line)] if law else [nothing] * 3,
            "bars": weights[0].tolist(),
            "top": f"top: {window:,.4g}",
            "bottom": f"bottom: -{window:,.4g}",
            "end": f"d = {d:,}",
            "spread": float(others.std()),
            "matching": float(scores[:, 0].mean()) if match else None,
            "clear": int((weights.amax(-1) > CLEAR).sum()),
            "shown": walks_[:, -1],
            "law": law,
            "setting": (d, power, std),
        }

    def draw(self, left, second):
        """Draw lines and bars, to be moved."""
        _compact(left, second)
        left.set_xticklabels(["0", "d/2", "d"])
        left.set_yticklabels([])
        left.axhline(0, color=BLACK, linewidth=0.8, linestyle="-")
        colors = [RED] + [BLUE] * (KEYS - 1)
        walks_ = [left.plot([], [], color=c, linestyle="-", linewidth=1.1, zorder=3 - (c == BLUE))[0] for c in colors]
        bars = second.bar(range(1, KEYS + 1), [0.0] * KEYS, color=colors)
        place = {"transform": left.transAxes, "fontsize": 9}
        return {
            "walks": walks_,
            "laws": [left.plot([], [], color=BLACK, linestyle="--", linewidth=1.2)[0] for _ in range(3)],
            "bars": list(bars),
            "top": left.text(0.02, 0.92, "", **place),
            "bottom": left.text(0.02, 0.03, "", **place),
            "end": left.text(0.98, 0.03, "", ha="right", **place),
        }

    def words(self, state):
        """Say what 200 queries measure at this setting."""
        d, power, std = state["setting"]
        largest = max(state["bars"])
        law = " Dashed: one standard deviation (17.2) and the mean of a match (17.3)." if state["law"] else ""
        matching = (
            "" if state["matching"] is None else f"; that of a matching key is {state['matching']:.3g} on average"
        )
        return (
            f"d = {d:,}, σ = {std:g}, scores divided by d^{power:g}. The query in the picture gives its largest weight, "
            f"{largest:.3f}, to key {state['bars'].index(largest) + 1}, whose score is "
            f"{state['shown'][state['bars'].index(largest)]:.3g}. Over {QUERIES} queries, the score of an independent key "
            f"has standard deviation {state['spread']:.3g}{matching}, and {state['clear']} have a weight above "
            f"{CLEAR:g}.{law}"
        )


# What a softmax sees

SHIFTED_MEAN, ROWS = 1.5, 6


@cache
def rows_of_scores() -> Tensor:
    """Return q.k of 6 queries and 12 keys with 4 entries, all with mean 1.5 and standard deviation 1."""
    generator = torch.Generator().manual_seed(5)
    q = SHIFTED_MEAN + torch.randn(ROWS, 4, generator=generator, dtype=torch.float64)
    k = SHIFTED_MEAN + torch.randn(12, 4, generator=generator, dtype=torch.float64)
    return q @ k.T


@lesson.figure(
    ["scores of six queries", "the same, less the mean of each row"],
    ["score q · k", "score less mean"],
    "query",
    size=(7.2, 2.7),
    grid=(1, 2),
    legend=[_legend("lower right"), None],
    yticks=range(1, ROWS + 1),
    ylim=(-0.7, ROWS + 0.6),
    subplots={"sharey": True},
)
def plot_rows(left, second):
    """Draw the scores of a few queries, row by row, as they are and without the mean of each row."""
    scores = rows_of_scores()
    for axes, shown in ((left, scores), (second, scores - scores.mean(1, keepdim=True))):
        for i, row in enumerate(shown.tolist(), start=1):
            axes.plot(row, [i] * len(row), "o", color=BLUE, markersize=5, label=None if i > 1 else "one key")
            mean = sum(row) / len(row)
            axes.plot(
                [mean, mean], [i - 0.3, i + 0.3], "-", color=RED, linewidth=2.5, label=None if i > 1 else "row mean"
            )
    _compact(left, second)
    return (
        "Scores of six queries with the same twelve keys, whose entries have mean 1.5. Left, the rows differ in their means "
        "and in how far they are spread. Right, without the means: both pictures give the same weights."
    )


# Rows that are drawn

ROW_COUNT = 400_000


def two_key_norms(r: float, *, count: int = ROW_COUNT, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Draw rows of two scores with standard deviation r; return their differences x and the norms of J.

    For two keys J has the norm 2 p (1 - p) = 1/(2 cosh^2(x/2)).
    """
    generator = torch.Generator().manual_seed(seed)
    x = (r * torch.randn(count, 2, generator=generator, dtype=torch.float64)).diff(dim=-1)[:, 0]
    return x, 0.5 / torch.cosh(x / 2).square()


def share_of_rows(norms: Tensor, part: float = 0.9) -> float:
    """Return the smallest share of the rows that holds `part` of the sum of all norms."""
    held = norms.sort(descending=True).values.cumsum(0)
    return float((held < part * held[-1]).sum() + 1) / len(norms)


@lesson.figure(
    ["200 rows, r = 1", "200 rows, r = 10", "mean and median"],
    ["difference of the two scores", "difference of the two scores", "spread r of the scores"],
    "norm of J",
    size=(8.2, 2.8),
    grid=(1, 3),
    legend=[None, None, _legend("lower left")],
    xlim=[(-40, 40), (-40, 40), (0.8, 130)],
    ylim=[(-0.02, 0.55), (-0.02, 0.55), (1e-9, 3)],
    xscale=["linear", "linear", "log"],
    yscale=["linear", "linear", "log"],
)
def plot_rare(left, middle, last):
    """Draw rows of two keys by the difference of their scores and the norm of J; then mean and median against r."""
    said = []
    bump = np.linspace(-40, 40, 801)
    for axes, r in ((left, 1.0), (middle, 10.0)):
        x, norms = two_key_norms(r, count=200, seed=1)
        axes.plot(bump, 0.5 / np.cosh(bump / 2) ** 2, color="0.6", linestyle="-", linewidth=1)
        axes.plot(x, norms, "o", color=BLUE, markersize=3)
        said.append(int((norms > 0.05).sum()))
    spreads = np.geomspace(1, 100, 9)
    drawn = [two_key_norms(r, count=100_000)[1] for r in spreads]
    last.plot(spreads, [float(norms.mean()) for norms in drawn], "o-", color=BLUE, markersize=5, label="mean")
    medians = [max(float(norms.median()), 1e-12) for norms in drawn]
    last.plot(spreads, medians, "s--", color=RED, markersize=5, label="median")
    _compact(left, middle, last)
    return (
        "Each dot is a row of two keys with normal scores; the grey curve is the norm of J. A norm above 0.05 "
        f"remains in {said[0]} of the 200 rows for r = 1, and in {said[1]} for r = 10. Right, over 100,000 rows: the mean "
        "falls like 1/r, the median leaves the picture."
    )


# The tie

TIE_KEYS = ((0.0, 3.0, 4.0), (5.0, 0.0, 0.0))
SCALES = (1, 4, 16)


@lesson.figure(
    ["The weight becomes a step", "The slope gathers at the tie"],
    "t in q = (1, 1, t)",
    ["weight of the key (0, 3, 4)", "slope of the weight"],
    size=(6.6, 2.5),
    grid=(1, 2),
    legend=[_legend("upper left"), None],
)
def plot_tie(left, second):
    """Draw the weight of one of two keys, and its derivative, along q = (1, 1, t), for growing scales."""
    t = torch.linspace(0, 1, 801, dtype=torch.float64)
    weights = {f"$\\beta$ = {scale}": torch.sigmoid(scale * (4 * t - 2)) for scale in SCALES}
    slopes = [4 * scale * w * (1 - w) for scale, w in zip(SCALES, weights.values(), strict=True)]
    lines(left, t, {**weights, "argmax": (t > 0.5).double()})
    lines(second, t, {**dict(zip(weights, slopes, strict=True)), "argmax": 0 * t})
    _compact(left, second)
    return (
        "Two keys that tie at t = 0.5. Left, the weight of one of them rises from 0 to 1, ever more steeply for scales 1, 4 "
        "and 16, and as a step for argmax. Right, its slope is a bump that gets narrower and higher; for argmax it is 0 on "
        "both sides of the tie."
    )


# The closing experiment

NAMES = {
    lookup.NONE: "no division",
    lookup.ROOT: "divided by √d",
    lookup.ROOT_STD: "divided by √d σ²",
    lookup.PLAIN_D: "divided by d",
    lookup.QK_NORM: "QK-norm",
    lookup.SMALL: "no division, smaller start",
}
CURVES = {
    lookup.NONE: (RED, "-"),
    lookup.ROOT: (BLUE, "--"),
    lookup.ROOT_STD: (GREEN, ":"),
    lookup.SMALL: (BLACK, "-."),
}


def stored(arm: str, std: float, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rates of a stored arm, and the loss of each seed at each of them."""
    found = measured("lookup", f"{arm}, sigma {std:g}, d {d}")
    return np.array(found["rates"]), np.array(found["losses"])


def solved(arm: str, std: float, d: int) -> np.ndarray:
    """Return how many of the seeds solve the task at each of the arm's rates."""
    return (stored(arm, std, d)[1] < lookup.SOLVED).sum(0)


@lesson.figure(
    [f"σ = {std:g}, d = {d:,}: r = {d**0.5 * std**2:g} undivided" for std, d in lookup.SETTINGS],
    "rate of Adam",
    "loss, last 20 of 100 steps",
    size=(8.2, 3.1),
    grid=(1, 3),
    legend=None,
    subplots={"sharey": True},
    xscale="log",
    yscale="log",
    ylim=(2e-4, 4),
)
def plot_training(*panels_):
    """Draw the stored losses against the rate: median and range of ten seeds, for three sizes of the first scores."""
    said = []
    for axes, (std, d) in zip(panels_, lookup.SETTINGS, strict=True):
        for arm, (color, style) in CURVES.items():
            if arm == lookup.ROOT_STD and std == 1:
                continue  # the same as the root of d
            rates, losses = stored(arm, std, d)
            axes.plot(rates, np.median(losses, 0), color=color, linestyle=style, linewidth=1.8, label=NAMES[arm])
            axes.fill_between(rates, losses.min(0), losses.max(0), color=color, alpha=0.12, linewidth=0)
        axes.axhline(lookup.SOLVED, color=BLACK, linewidth=0.9, linestyle=":")
        counts = ", ".join(
            f"{NAMES[arm]} {solved(arm, std, d).max()}" for arm in CURVES if not (arm == lookup.ROOT_STD and std == 1)
        )
        said.append(f"σ = {std:g}, d = {d:,}: {counts}")
    _compact(*panels_)
    handles, labels = panels_[-1].get_legend_handles_labels()
    panels_[0].figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8.5)
    return (
        "Medians of ten seeds with their ranges; the task is solved below the dotted line at 0.05. "
        "Seeds that solve it, of "
        f"10, at the rate where most do: {'; '.join(said)}."
    )


def training_table() -> Markdown:
    """Return all arms of the stored run: the most seeds that solve the task at one rate, and at how many rates nine do."""
    rows = []
    for arm in lookup.ARMS:
        counts = [solved(arm, std, d) for std, d in lookup.SETTINGS]
        rows.append((NAMES[arm], *(f"{found.max()}, {(found >= 9).sum()}" for found in counts)))
    return markdown_table(("arm", *(f"σ = {std:g}, d = {d:,}" for std, d in lookup.SETTINGS)), rows)


# Predictions

walk_prediction = lesson.prediction(
    "17.P1",
    "Go on from 64 terms to 1,024, sixteen times as many. By which factors do the standard deviation of the independent "
    "sums and the mean of the matching ones grow?",
    {
        "both by 16": "Independent terms have both signs: most of them cancel, and the sum grows more slowly than "
        "their number.",
        "both by 4": "That is right for independent pairs. Matching terms are squares: none is negative, nothing cancels.",
        "independent by 4, matching by 16": right(
            "Variances of independent terms add, so the spread grows like the root. Squares have a mean, and means add."
        ),
        "independent by 16, matching by 4": "It is the other way round: what has both signs cancels, what has one "
        "sign adds up.",
    },
    reveal=plot_long_walks,
)

rare_gradient_prediction = lesson.prediction(
    "17.P2",
    "Two keys have independent normal scores with standard deviation $r$, anew in each row. In the *median* row the norm of "
    "$J$ falls exponentially in $r$. From $r = 10$ to $r = 100$, what does its *mean* over many rows do?",
    {
        "It falls exponentially as well": "In a row with a clear winner it does. But a share of about 1/r of the rows is "
        "nearly tied, and those keep a norm near 1/2.",
        "It falls by a factor of about 10": right(
            "A row keeps its gradient where the two scores are within a few units of each other, and the share of such "
            "rows is proportional to 1/r."
        ),
        "It stays as it is": "The nearly tied rows keep theirs, but there are ten times fewer of them.",
    },
    reveal=plot_rare,
)

start_prediction = lesson.prediction(
    "17.P3",
    "Take the last case, $\\sigma = 4$ and $d = 64$. Divided by $\\sqrt d\\,\\sigma^2 = 128$, all ten seeds solve the task "
    "at the best rate. The last arm never divides. It starts with $W_Q$ and $W_K$ times $1/\\sqrt{128}$, so that "
    "its first scores are the same. How does it do?",
    {
        "No seed solves it": "At the same rate undivided scores do grow faster in training. A smaller rate makes up for it.",
        "Some seeds do, at the best rate": "All ten do. The first function is the same, and steps that are smaller by the "
        "same factor keep it the same.",
        "All ten, at the rates of the divided arm": "All ten do, but the weights are 11 times smaller, and at the same rate "
        "a step is 11 times larger against them.",
        "All ten, at smaller rates": right(
            "The weights are 11 times smaller, so a step of the same effect is 11 times smaller, too. Then it is the same "
            "run, in other units."
        ),
    },
    reveal=plot_training,
)

FIGURES = lesson.figures
