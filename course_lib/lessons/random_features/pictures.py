"""Figures, explorer and predictions of lesson 21, random_features."""

import math
from collections.abc import Callable
from functools import cache
from statistics import mean, median

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from course_lib.attention.random_features import (
    RandomFeatures,
    positive_features,
    random_feature_attention,
    relative_variance,
    trigonometric_features,
)
from course_lib.attention.trained_through import gradient, learn_to_fetch, through_features, through_softmax
from course_lib.lessons.random_features.contents import lesson
from course_lib.measured import measured
from course_lib.teaching import Choice, Explorer, Slider, Switch, lines, markdown_table, panels, right
from course_lib.teaching.layout import LOOKS
from course_lib.teaching.style import BLACK, BLUE, RED


def rng(seed: int) -> torch.Generator:
    """Return a generator with that seed."""
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, seed: int) -> Tensor:
    """Return float64 standard normal numbers."""
    return torch.randn(*shape, generator=rng(seed), dtype=torch.float64)


def question_weights() -> dict[str, np.ndarray]:
    """Return one query's attention weights on 12 keys: softmax, and an estimate from 32 frequencies."""
    q, k = 0.95 * randn(1, 16, seed=32), 0.95 * randn(12, 16, seed=132)
    features = trigonometric_features(16, 32, generator=rng(2), dtype=torch.float64)
    found = random_feature_attention(q, k, torch.eye(12, dtype=torch.float64), features=features)
    return {"softmax": (q @ k.mT / 4).softmax(-1)[0].numpy(), "estimate": found[0].numpy()}


@lesson.figure(
    "One query, 12 keys",
    "key",
    "attention weight",
    size=(6.4, 3.4),
    legend="upper left",
    xticks=range(1, 13),
    ylim=(-0.15, 0.5),
)
def plot_question(axes):
    """Draw the attention weights of one query: exact, and estimated by cosines."""
    weights, places = question_weights(), np.arange(1, 13)
    axes.axhline(0, color=BLACK, linewidth=0.8, linestyle="-")
    axes.bar(places, weights["softmax"], width=0.8, color="0.85", label="softmax")
    axes.plot(places, weights["estimate"], "s", color=RED, label="from 32 random vectors")
    lowest = int(weights["estimate"].argmin())
    return (
        "Attention weights of one query on 12 keys. Bars: softmax. Squares: an estimate from one draw of 32 random vectors. "
        f"Key {lowest + 1} gets {weights['estimate'][lowest]:.2f}."
    )


def negative_share(*, m: int = 8, distance: float = 3.0, draws: int = 20_000) -> tuple[Tensor, float]:
    """Return averages of m cosines of `distance` times normal numbers, and the share that is negative."""
    estimates = (distance * randn(draws, m, seed=4)).cos().mean(1)
    return estimates, float((estimates < 0).double().mean())


@lesson.figure(
    "Averages of eight cosines",
    "average",
    "share of the draws (%)",
    size=(6.0, 3.2),
    legend="upper left",
    xlim=(-1, 1),
    ylim=(0, 5.6),
)
def plot_negative(axes):
    """Draw the distribution of the average of 8 cosines whose mean is 0.011."""
    estimates, share = negative_share()
    exact = math.exp(-4.5)
    heights, edges = np.histogram(estimates, bins=np.linspace(-1, 1, 81))
    heights = 100 * heights / len(estimates)
    axes.fill_between(edges[:-1], heights, step="post", color="0.85")
    axes.fill_between(edges[:41], heights[:41], step="post", color=RED, alpha=0.5, label="below zero")
    axes.axvline(exact, color=BLUE, linestyle="--", label=f"mean {exact:.3f}")
    axes.axvline(0, color=BLACK, linewidth=0.9, linestyle="-")
    return (
        f"20,000 averages of eight cosines. Their mean is {exact:.3f}, their standard deviation 0.25, and "
        f"{round(100 * share)}% of them are negative."
    )


COSINES = (5, 50, 500)


@lesson.figure(
    ["Five cosines", "Their average, and those of more"],
    "distance $\\delta$",
    ["$\\cos\\,w\\delta$", "average"],
    size=(8.6, 3.3),
    grid=(1, 2),
    legend=[None, {"loc": "upper right", "fontsize": 9}],
    xlim=(-5, 5),
    ylim=(-1.1, 1.25),
)
def plot_cosines(left, right_axes):
    """Draw five random cosines, and the averages of 5, 50 and 500 on a bell."""
    at = np.linspace(-5, 5, 401)
    waves = np.cos(np.outer(randn(max(COSINES), seed=4).numpy(), at))
    for wave in waves[: COSINES[0]]:
        left.plot(at, wave, "-", color="0.45", linewidth=1)
    right_axes.plot(at, np.exp(-(at**2) / 2), "-", color=BLACK, linewidth=5, alpha=0.25, label="$e^{-\\delta^2/2}$")
    lines(right_axes, at, {f"average of {count}": waves[:count].mean(0) for count in COSINES})
    return (
        "Left, five cosines with random frequencies; at distance 0 all of them are 1. Right, their average and those of 50 "
        "and of 500, over a grey bell. Far from 0 the waves cancel, the better the more there are."
    )


@lesson.figure(
    "Each kind is poor where the other is good",
    "angle between $q$ and $k$ (degrees)",
    "relative error of one frequency",
    size=(6.4, 3.8),
    legend={"loc": "upper center", "fontsize": 9, "ncols": 2},
    xlim=(0, 180),
    ylim=(0, 9),
    xticks=range(0, 181, 30),
)
def plot_variances(axes, *, length: float = 1.0):
    """Draw the relative error of one frequency against the angle between q and k, predicted and measured."""
    angles, some = np.linspace(0, 180, 181), np.arange(15, 180, 15)
    sums, differences = (2 * length * f(np.radians(angles) / 2) for f in (np.cos, np.sin))
    w = randn(200_000, 1, seed=5)
    curves = {
        "positive, by (21.7)": np.sqrt(np.expm1(sums**2)),
        "trigonometric, by (21.7)": np.sqrt(2) * np.sinh(differences**2 / 2),
    }
    ratios = (  # of the estimate from one frequency and the exact similarity
        lambda s, d: (s * w - s**2 / 2).exp(),
        lambda s, d: (d * w).cos() * math.exp(d**2 / 2),
    )
    for curve, ratio, marker in zip(lines(axes, angles, curves), ratios, "os", strict=True):
        drawn = [float((ratio(sums[a], differences[a]) - 1).square().mean().sqrt()) for a in some]
        axes.plot(some, drawn, marker, color=curve.get_color(), markersize=5, label="200,000 draws")
    return (
        "Error of the similarity estimated from one frequency, relative to its exact value and root mean square, "
        "against the angle between q and k, both of length sigma. Trigonometric: zero at 0 degrees, rising to 5.1 at 180. "
        "Positive: 7.3 at 0 degrees, falling to zero at 180."
    )


NEEDED_LENGTHS = (1, 1.5, 2, 2.5, 3, 3.5, 4)


def measured_need(length: float | int, *, angle: float = 90, draws: int = 400_000, head_dim: int = 64) -> float:
    """Return how many positive features an error of 10% needs, from the variance of so many single ones."""
    s = 2 * length * math.cos(math.radians(angle) / 2) / head_dim**0.25
    ratios = (s * randn(draws, seed=6) - s**2 / 2).exp()
    return float(ratios.var() / 0.1**2)


@lesson.figure(
    "Features for a relative error of 10% ($D$ = 64)",
    "length of $q$ and of $k$",
    "positive features needed",
    size=(6.2, 3.7),
    legend={"loc": "upper left", "fontsize": 9},
    yscale="log",
    xlim=(0.8, 8.6),
    ylim=(1, 1e12),
)
def plot_needed(axes):
    """Draw how many positive features a relative error of 10% needs against the length, at a right angle."""
    lengths = np.linspace(1, 8, 141)
    one = torch.eye(64, dtype=torch.float64)[:2]
    need = [float(relative_variance(r * one[:1], r * one[1:], kind="positive")) / 0.1**2 for r in lengths]
    lines(axes, lengths, {"predicted, right angle": need})
    measured_ones = [measured_need(r) for r in NEEDED_LENGTHS]
    axes.plot(NEEDED_LENGTHS, measured_ones, "o", color=BLACK, markersize=5, label="measured")
    for r, place in ((2, (12, -16)), (8, (-74, 6))):
        count = need[int(np.abs(lengths - r).argmin())]
        text = f"{round(count):,}" if count < 1e6 else f"{count / 1e6:,.0f} million"
        axes.plot([r], [count], "D", color=RED, markersize=7, fillstyle="none", label="_asked")
        axes.annotate(text, (r, count), place, textcoords="offset points", fontsize=9.5)
    return (
        "Positive features needed for a relative error of 10% against the length of query and key at a right angle, on a "
        "logarithmic axis: 172 at length 2, and 889 million at length 8."
    )


# What the output of attention pays


LENGTHS = (1, 2, 4, 8)


OUTPUT_DRAWS = 20


def tokens(length: float | int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries and keys of that length in random directions, and values N(0, I): 256 tokens, head_dim 64."""
    q, k, v = randn(3, 256, 64, seed=seed)
    q, k = (length * x / x.norm(dim=-1, keepdim=True) for x in (q, k))
    return q, k, v


@cache
def error_of_the_mean(length: float | int) -> float:
    """Return the error of answering every query with the mean of all values, in units of attention's output.

    Median of 20 draws of the tokens.
    """
    errors = []
    for seed in range(OUTPUT_DRAWS):
        q, k, v = tokens(length, seed)
        exact = scaled_dot_product_attention(q, k, v)
        errors.append(float((v.mean(0) - exact).norm() / exact.norm()))
    return median(errors)


@cache
def output_errors(
    length: float | int,
    *,
    m: int = 256,
    draws: int = OUTPUT_DRAWS,
    draw: Callable[..., RandomFeatures] = positive_features,
    orthogonal: bool = False,
) -> float:
    """Return the error of attention's output in units of the output, the median of draws.

    Each draw has tokens and features of its own. Rare features are huge: a mean over draws would be that of the worst one.
    """
    generator, errors = rng(1), []
    for seed in range(draws):
        q, k, v = tokens(length, seed)
        exact = scaled_dot_product_attention(q, k, v)
        features = draw(64, m, orthogonal=orthogonal, generator=generator, dtype=torch.float64)
        found = random_feature_attention(q, k, v, features=features)
        errors.append(float((found - exact).norm() / exact.norm()))
    return median(errors)


def error_table() -> Markdown:
    """Return the errors for four lengths of queries and keys, each way with 256 features."""
    header = (
        "length of $q$, $k$",
        "largest possible score",
        "256 positive features",
        "the same, orthogonal",
        "128 cosines (256 features)",
        "plain mean of the values",
    )
    rows = []
    for length in LENGTHS:
        found = (
            output_errors(length),
            output_errors(length, orthogonal=True),
            output_errors(length, m=128, draw=trigonometric_features),
            error_of_the_mean(length),
        )
        rows.append((length, f"{length**2 / 8:g}", *(f"≈{error:,.1%}" for error in found)))
    return markdown_table(header, rows)


# The closing experiment: what `make bench through_features` stored


FEATURES, STEPS, EVERY = (16, 64, 256), 320, 20


def stored(arm: str, kind: str) -> list[float]:
    """Return the errors of an arm after 320 steps, one a seed: `own`, `exact` or `rescaled`."""
    found = measured("through_features", f"{arm}, {STEPS} steps, {kind}")
    return found if kind == "rescaled" else [curve[-1] for curve in found]


def training_table() -> Markdown:
    """Return mean and range over the seeds for each number of features, redrawn and kept, and for softmax."""

    def cell(arm: str, kind: str) -> str:
        found = stored(arm, kind)
        return f"{mean(found):.4f} ({min(found):.4f} to {max(found):.4f})"

    rows = [
        (f"{m} features, {kind}", cell(f"{m} {kind}", "own"), cell(f"{m} {kind}", "exact"))
        for m in FEATURES
        for kind in ("redrawn", "kept")
    ]
    rows.append(("softmax", cell("softmax", "own"), cell("softmax", "exact")))
    return markdown_table(("trained through", "loss through it", "loss with softmax"), rows)


def rescaled_table() -> Markdown:
    """Return what matrices of kept draws leave with softmax, as they are and with queries multiplied by the best number."""
    rows = [
        (f"{m} features, kept", *(f"{mean(stored(f'{m} kept', kind)):.4f}" for kind in ("exact", "rescaled")))
        for m in FEATURES
    ]
    return markdown_table(("trained through", "loss with softmax", "after the best factor"), rows)


@lesson.figure(
    ["Through the 16 features", "The same matrices, with softmax"],
    "step",
    "mean squared error",
    size=(9.2, 3.6),
    grid=(1, 2),
    legend=[{"loc": "lower left", "fontsize": 9}, {"loc": "lower left", "fontsize": 9}],
    yscale="log",
    xlim=(0, STEPS + 5),
    ylim=(1e-3, 1.5),
)
def plot_training(left, right_axes):
    """Draw both losses over training, through 16 features redrawn at each step and through one draw, five seeds each."""
    at = np.arange(0, STEPS + 1, EVERY)
    for axes, kind in ((left, "own"), (right_axes, "exact")):
        for look, arm in zip(LOOKS, ("redrawn", "kept"), strict=False):
            curves = np.array(measured("through_features", f"16 {arm}, {STEPS} steps, {kind}"))
            name = {"redrawn": "redrawn at each step", "kept": "one draw, kept"}[arm]
            axes.plot(at, curves.mean(0), **look, label=name)
            axes.fill_between(at, curves.min(0), curves.max(0), color=look["color"], alpha=0.2)
    return (
        "Loss on fresh texts over 320 steps, mean and range of five seeds. Left, through the 16 features: it stays above "
        "0.5, lower for the draw that is kept. Right, with softmax and the same matrices: for the draw that is kept it "
        "stops falling early; for features redrawn at each step it goes on to below a hundredth."
    )


AVERAGED, SCALES, MOST_DRAWS = (1, 2, 5, 10, 20, 50, 100, 200), (1, 2, 3, 4), 200
TRAINED = "after 80 steps"


@cache
def gradient_cosines(m: int = 16) -> dict[int | str, list[float]]:
    """Return the cosine of the exact gradient with averages of 1 to 200 noisy ones.

    The matrices are 1, 2, 3 and 4 times the identity, and those of 80 steps through redrawn features. Each cosine is the
    mean over all the groups of that size among 200 draws, none of which was trained through.
    """
    attend, found = through_features(m, redrawn=True), {}
    run = learn_to_fetch(attend, step_size=0.2, seed=0, steps=80)
    for name, at in {**{scale: scale for scale in SCALES}, TRAINED: torch.stack([run.w_q, run.w_k])}.items():
        exact = gradient(at, through_softmax)
        noisy = torch.stack([gradient(at, attend, step=10_000 + step) for step in range(MOST_DRAWS)])
        cosines = []
        for count in AVERAGED:
            groups = noisy.unflatten(0, (-1, count)).mean(1)
            inner = (groups * exact).flatten(1).sum(1)
            cosines.append(float((inner / groups.flatten(1).norm(dim=1) / exact.norm()).mean()))
        found[name] = cosines
    return found


@lesson.figure(
    "Gradients through 16 features, averaged",
    "draws averaged",
    "cosine with the exact gradient",
    size=(6.2, 3.5),
    legend={"loc": "lower center", "fontsize": 9, "ncol": 3},
    xscale="log",
    xlim=(0.9, 230),
    ylim=(-0.55, 1.04),
)
def plot_gradients(axes):
    """Draw how well averages of noisy gradients point along the exact one, for sizes of the matrices and a training."""
    cosines = gradient_cosines()
    curves = {f"matrices {scale} $I$" if scale > 1 else "matrices $I$": cosines[scale] for scale in SCALES}
    lines(axes, AVERAGED, curves | {TRAINED: cosines[TRAINED]}, marker="o", markersize=4)
    axes.axhline(0, color=BLACK, linewidth=0.8)
    axes.set_xticks(AVERAGED, AVERAGED)
    axes.set_xticks([], minor=True)
    return (
        "Cosine of the exact gradient with averages of gradients through 16 features, against the number of draws that "
        "are averaged, for both matrices of four sizes and for those of 80 steps of training. At I and 2 I the curves come "
        "near 1, at 3 I and after training they rise and stay lower, at 4 I the curve falls below 0."
    )


DRAWS, MOST = 1500, 256
KINDS = ("trigonometric", "positive")


@cache
def projections() -> np.ndarray:
    """Return the component of 256 frequencies along one direction, for 1,500 draws."""
    return np.random.default_rng(16).standard_normal((DRAWS, MOST))


@lesson.explorer
class EstimateExplorer(Explorer):
    """The distribution of the estimated similarity, for a number of frequencies, a length, an angle and a kind."""

    title = "One similarity, estimated 1,500 times"
    summary = (
        "Left: distribution of the estimate divided by the exact similarity, over 1,500 draws of the frequencies, "
        "scaled to its tallest bin; the vertical lines mark 0 and the exact value 1. Right: root mean square relative "
        "error of the 1,500 estimates against the number of frequencies, with the current number marked."
    )
    m = Slider(
        "number of frequencies",
        "m",
        "How many random frequencies are averaged; features cost time in proportion",
        32,
        4,
        256,
        4,
    )
    length = Slider(
        "length", "ℓ", "Both vectors have this length; the exact value is exp(ℓ² cos θ)", 1.5, 0.25, 2.0, 0.05
    )
    angle = Slider("angle", "θ", "0 is a query on its own key, 180 the opposite direction", 60, 0, 180, 10, "deg")
    kind = Choice("kind of features", "Average cosines, or average exponentials", "trigonometric", KINDS)
    law = Switch("Show the law", "Draw the error that (21.7) predicts")
    together = ("m", "length")
    stills = ({}, {"kind": "positive"}, {"kind": "positive", "m": 256})
    size = (9.0, 4.1)
    counts = 2 ** np.arange(2, 9)
    edges = np.linspace(-2, 4, 31)
    layout = panels(
        ["Distribution of the estimate", "Error against number"],
        ["estimate / exact similarity", "number of frequencies $m$"],
        ["draws (tallest bin = 1)", "relative error"],
        grid=(1, 2),
        legend=[{"loc": "upper left", "fontsize": 9, "ncols": 2}, {"loc": "upper right", "fontsize": 8, "ncols": 3}],
        xscale=["linear", "log"],
        yscale=["linear", "log"],
        xlim=[(-2, 4), (3, 340)],
        ylim=[(0, 1.3), (1e-3, 3e3)],
    )

    def compute(self, *, m, length, angle, kind, law):
        """Return histogram, shares, and errors over the number of frequencies."""
        half = math.radians(angle) / 2
        # Rounded, so that opposite vectors have no sum at all.
        s, d = (2 * length * round(f(half), 12) for f in (math.cos, math.sin))
        z = projections()
        if kind == "trigonometric":
            values, variance = np.cos(d * z) * math.exp(d**2 / 2), 2 * math.sinh(d**2 / 2) ** 2
        else:
            values, variance = np.exp(s * z - s**2 / 2), math.expm1(s**2)
        sums = values.cumsum(1)
        ratios = sums[:, m - 1] / m
        heights, _ = np.histogram(ratios, bins=self.edges)
        error = float(np.sqrt(np.square(ratios - 1).mean()))
        # What is too small for the axis lies on its edge.
        seen = lambda errors: np.clip(errors, 1.2e-3, 2.5e3)  # noqa: E731
        return {
            "bars": np.repeat(heights / max(1, heights.max()), 2),
            "predicted": (self.counts, seen(np.sqrt(variance / self.counts))) if law else ([], []),
            "measured": seen([np.sqrt(np.square(sums[:, c - 1] / c - 1).mean()) for c in self.counts]),
            "current": (m, seen(error)),
            "error": error,
            "expected": math.sqrt(variance / m),
            "negative": int((ratios < 0).sum()),
            "middle": float(np.median(ratios)),
            "exact": math.exp(length**2 * math.cos(2 * half)),
            "law": law,
            "settings": f"{kind.capitalize()} features with m = {m}, vectors of length {length:.2f} at {angle} degrees",
        }

    def draw(self, left, right_axes):
        """Draw the marks that stay, and the curves and points to be moved."""
        left.axvline(0, color=BLACK, linewidth=0.9, linestyle="-")
        left.axvline(1, color=BLUE, linewidth=1.4, linestyle="--", label="exact")
        places = np.repeat(self.edges, 2)[1:-1]
        (bars,) = left.plot(places, 0 * places, "-", color=RED, label="1,500 draws")
        (predicted,) = right_axes.plot([], [], "--", color=BLUE, label="law")
        (measured_ones,) = right_axes.plot(self.counts, self.counts, "o", color=RED, markersize=5, label="measured")
        (current,) = right_axes.plot([], [], "D", color=BLACK, markersize=9, fillstyle="none", label="this $m$")
        return {"bars": bars, "predicted": predicted, "measured": measured_ones, "current": current}

    def words(self, state):
        """Say how many draws are negative, where the middle one is and how far off all are."""
        said = (
            f"{state['settings']}: the exact similarity is {state['exact']:.3g}. Of 1,500 estimates {state['negative']} are "
            f"negative; the median is {state['middle']:.2g} times the exact value. Relative error of these draws: "
            f"{state['error']:.2g}"
        )
        law = f", {state['expected']:.2g} predicted." if state["law"] else "."
        rare = " Draws too rare to be among 1,500 make the true error larger."
        return said + law + rare * (state["error"] < 0.7 * state["expected"])


ask_negative = lesson.prediction(
    "21.P1",
    "Over all standard normal numbers $u$, the cosine of $3u$ has the mean 0.011. You draw eight numbers $u$ and average "
    "their cosines. On average that is right. In what share of such draws is the result negative?",
    {
        "Almost never": "A positive mean does not keep single draws positive: each cosine lies anywhere between -1 and 1.",
        "About one in 20": "That would need a standard deviation of 0.6 times the mean. It is 0.25, over twenty times it.",
        "About one in 5": "That would need a standard deviation about as large as the mean. It is over twenty times it.",
        "Nearly half": right(
            "The average of eight has a standard deviation of 0.25, over twenty times its mean of 0.011: its sign is "
            "almost that of a tossed coin."
        ),
    },
    reveal=plot_negative,
)

ask_length = lesson.prediction(
    "21.P2",
    "$D = 64$, positive features, $q$ and $k$ of equal length at a right angle. Their length grows from 2 to 8, the length "
    "of vectors with entries of variance 1. How many times as many features does the same relative error of the estimate "
    "need?",
    {
        "4 times": "So it would be if the variance of one feature grew like the length.",
        "16 times": "The exponent grows 16-fold, and the variance is an exponential of it.",
        "4,096 times": "That is a power of the length. The variance is an exponential of its square.",
        "About 5 million times": right(
            "From 172 features for an error of 10% to 889 million: a factor of 5.2 million."
        ),
    },
    reveal=plot_needed,
)

ask_training = lesson.prediction(
    "21.P3",
    "Two matrices are trained for 320 steps through 16 positive features, drawn anew at each step. At the end the loss on "
    "fresh texts, through features drawn anew, is 0.72; answers of 0 would have 1. Now the same two matrices are used with "
    "exact softmax. What is the loss?",
    {
        "Above 1": "The matrices were trained through noise, but the noise differs from step to step: what it pushes "
        "them into cancels over 320 steps.",
        "About 0.7": "The features are an estimate of softmax, so the same loss seems fair. Most of it belongs to the noise "
        "of the estimate, and that is gone.",
        "About 0.3": "That is about what a single draw leaves that is kept for all the steps.",
        "Below 0.02": right("The matrices are good. It is the estimate through them that fails."),
    },
    reveal=plot_training,
)

FIGURES = lesson.figures
