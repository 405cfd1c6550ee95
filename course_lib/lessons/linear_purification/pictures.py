"""Figures, explorer, predictions and tables of lesson 24, linear purification."""

import warnings
from collections.abc import Callable
from functools import cache
from statistics import mean
from typing import Any

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor

from course_lib.lessons.linear_purification.contents import lesson
from course_lib.lessons.linear_purification.digits import (
    FITTED,
    MEANS,
    MOST,
    PENALTY,
    PROBE,
    RANDOM,
    RIDGE,
    digits,
    gap,
    nearest_accuracy,
    probe,
    probe_accuracy,
    removed,
    without,
)
from course_lib.lessons.linear_purification.erased import moments_of, race, states
from course_lib.measured import measured as stored
from course_lib.measured import quote
from course_lib.representation.erasure import concept_columns, fit_eraser
from course_lib.representation.purification import Purifier
from course_lib.teaching import Choice, Explorer, Slider, Switch, markdown_table, panels, right
from course_lib.teaching.layout import LOOKS
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, RED

GREY = "0.55"
SPLITS = (0, 1, 2, 3, 4)
IMAGE = {"cmap": "RdBu_r", "interpolation": "nearest"}


def normal(*shape: int, seed: int) -> Tensor:
    """Return standard normal numbers in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# The hook, and what one removal does


@lesson.figure(
    ["Even above, odd below", "The latest probe's direction out"],
    ["pixel", "directions taken out"],
    ["pixel", "new images right (%)"],
    size=(8.6, 3.3),
    grid=(1, 2),
    legend=[None, "upper right"],
    xlim=[None, (-0.7, MOST + 0.7)],
    ylim=[None, (40, 100)],
    subplots={"width_ratios": [1, 1.25]},
)
def plot_question(left, axes):
    """Draw digits, and the accuracy of a new probe after 0 to 25 directions were projected out, five splits."""
    data = digits()
    wall = torch.zeros(20, 49, dtype=torch.float64)
    for d in range(10):
        row, column = 10 * (d % 2) + 1, 10 * (d // 2)
        wall[row : row + 8, column : column + 8] = data.image(data.x[data.digit == d][0])
    left.imshow(wall.numpy(), cmap="Greys", interpolation="nearest")
    left.set_axis_off()
    curves = 100 * np.array([removed(PROBE, seed=s).accuracy for s in SPLITS])
    axes.plot(range(MOST + 1), curves.mean(0), **LOOKS[0], marker="o", markersize=4, label="fresh linear probe")
    axes.fill_between(range(MOST + 1), curves.min(0), curves.max(0), color=LOOKS[0]["color"], alpha=0.2)
    axes.axhline(50, color=GREY, linestyle=":", label="chance")
    return (
        "Right, the share of new images whose parity a fresh linear probe finds after 0 to 25 directions were "
        "projected out, "
        "mean and range of five splits: it falls slowly from about 91% and reaches chance at about 20."
    )


@cache
def one_removal() -> dict[str, list[float]]:
    """Return the accuracy of a fresh probe after one removal: five splits, and 20 random directions for each."""
    found = {name: [removed(name, seed=s).accuracy[1] for s in SPLITS] for name in (PROBE, RIDGE, MEANS)}
    found["random directions"] = [
        probe_accuracy(without(digits(seed=s).x, normal(47, seed=100 * s + n)), digits(seed=s).odd)
        for s in SPLITS
        for n in range(20)
    ]
    widest = [torch.linalg.svd(digits(seed=s).x[:FITTED] - digits(seed=s).x[:FITTED].mean(0))[2][0] for s in SPLITS]
    found["direction of most variance"] = [
        probe_accuracy(without(digits(seed=s).x, one), digits(seed=s).odd)
        for s, one in zip(SPLITS, widest, strict=True)
    ]
    return found


@lesson.figure(
    ["One direction taken out", "Difference of class means"],
    ["new images right (%)", "pixel"],
    ["what was taken out", "pixel"],
    size=(8.4, 3.2),
    grid=(1, 2),
    legend=[None, None],
    xlim=[(40, 100), None],
    ylim=[(-0.6, 4.6), None],
    subplots={"width_ratios": [2, 1]},
)
def plot_one(axes, image):
    """Draw the accuracy of a fresh probe after one removal, for five ways to choose the direction."""
    found = one_removal()
    names = ["random directions", "direction of most variance", PROBE, RIDGE, MEANS][::-1]
    for place, name in enumerate(names):
        shares = 100 * np.array(found[name])
        axes.plot(
            shares,
            [place] * len(shares),
            "D" if name == MEANS else "o",
            color=RED if name == MEANS else BLUE,
            alpha=0.5,
        )
    axes.axvline(50, color=GREY, linestyle=":")
    axes.set_yticks(range(5), [name.replace(", with a", ",\nwith a") for name in names])
    data = digits()
    shown = data.image(gap(data.x[:FITTED], data.odd[:FITTED]))
    image.imshow(shown.numpy(), vmin=-0.5, vmax=0.5, **IMAGE)
    image.set_axis_off()
    return (
        "New images right after one direction was taken out, five splits: about 91% for random directions, 88% for "
        "the probe's, "
        "less for two others, and about 50% for the difference of the class means. Right, that difference: red "
        "where odd digits "
        "are darker."
    )


# Shrinking


@cache
def shrunk_rows(penalty: float) -> tuple[Tensor, Tensor]:
    """Return the digits purified under a penalty, and the factors of their directions."""
    x = digits().x
    purifier = Purifier.fit(x)
    sigma = purifier.singular_values
    return purifier.purify(x, penalty), sigma**2 / (sigma**2 + penalty)


SHRINK = 1e6


@lesson.figure(
    "Shrinking and erasing, and who still reads",
    "what was done to the images",
    "new images right (%)",
    size=(6.2, 3.1),
    legend={"loc": "upper right", "fontsize": 9},
    ylim=(0, 135),
)
def plot_shrunk(axes):
    """Draw what a probe and a penalised probe find in the images, in shrunk ones, and with one direction erased."""
    data = digits()
    tables = {
        "as they are": data.x,
        "all factors\nbelow 3%": shrunk_rows(SHRINK)[0],
        "one factor 0": without(data.x, gap(data.x[:FITTED], data.odd[:FITTED])),
    }
    for offset, color, hatch, name, ridge in (
        (-0.19, BLUE, None, "least-squares probe", 0.0),
        (0.19, ORANGE, "///", f"probe with a penalty of {PENALTY:g}", PENALTY),
    ):
        shares = [100 * probe_accuracy(t, data.odd, ridge=ridge) for t in tables.values()]
        axes.bar(np.arange(3) + offset, shares, width=0.36, color=color, hatch=hatch, edgecolor=BLACK, label=name)
        for place, share in enumerate(shares):
            axes.text(place + offset, share + 2, f"{share:.0f}", ha="center", fontsize=10)
    axes.axhline(50, color=GREY, linestyle=":")
    axes.set_xticks(range(3), tables)
    axes.set_yticks(range(0, 101, 25))
    return (
        "New images right. Shrinking all directions to below 3% nearly blinds the penalised probe, and not the "
        "least-squares probe; "
        "multiplying one direction by 0, the difference of the class means, blinds both."
    )


# Two features, to see what is read and what is moved


@cache
def plane() -> tuple[Tensor, Tensor]:
    """Return 400 rows of two correlated features, centred, and their class, 0 or 1."""
    label = torch.arange(400) % 2
    spread = torch.tensor([[1.0, 0.0], [1.1, 0.5]], dtype=torch.float64)
    x = normal(400, 2, seed=7) @ spread.T + (2.0 * label[:, None] - 1) * torch.tensor([0.9, 0.2], dtype=torch.float64)
    return x - x.mean(0), label


@cache
def plane_ways() -> dict[str, Tensor]:
    """Return the centred rows of the plane, erased in three ways."""
    x, label = plane()
    return {
        PROBE: without(x, probe(x, label[:, None].double())[0][:, 0], seen=len(x)),
        MEANS: without(x, gap(x, label), seen=len(x)),
        "LEACE": fit_eraser(x, label).erase(x),
    }


PLANE = {"xlim": (-3.2, 3.2), "ylim": (-3.2, 3.2), "aspect": "equal"}


def _classes(axes, x: Tensor, label: Tensor, **look) -> None:
    for value, color, mark in ((0, BLUE, "o"), (1, ORANGE, "^")):
        axes.plot(*x[label == value][:40].T, mark, color=color, markersize=4, label=f"class {value}", **look)


def _means(axes, x: Tensor, label: Tensor) -> None:
    for value, color, mark in ((0, BLUE, "o"), (1, ORANGE, "^")):
        axes.plot(
            *x[label == value].mean(0), mark, color=color, markersize=12, markeredgecolor=BLACK, label="_mean", zorder=5
        )


def _arrow(axes, end: Tensor, color: str, name: str, place: tuple[float, float]) -> None:
    axes.annotate("", end.tolist(), (0, 0), arrowprops={"arrowstyle": "-|>", "color": color, "linewidth": 2.4})
    axes.text(*place, name, color=color, fontsize=13, fontweight="bold")


@lesson.figure(
    ["What the probe reads", "$w$ taken out", "$\\Sigma_{xz}$ taken out"],
    "feature 1",
    "feature 2",
    grid=(1, 3),
    legend=[{"loc": "upper left", "fontsize": 9}, None, None],
    size=(8.6, 3.2),
    **PLANE,
)
def plot_plane(first, second, third):
    """Draw the ellipse of two features with the probe's direction and the covariances, and both taken out."""
    x, label = plane()
    w, s = probe(x, label[:, None].double())[0][:, 0], gap(x, label)
    _classes(first, x, label, alpha=0.3)
    values, axes_ = torch.linalg.eigh(x.T @ x / len(x))
    circle = torch.linspace(0, 2 * torch.pi, 101, dtype=torch.float64)
    ring = 2 * axes_ @ (values.sqrt()[:, None] * torch.stack([circle.cos(), circle.sin()]))
    first.plot(*ring, "-", color=BLACK, linewidth=1.2, label="_ring")
    _arrow(first, 2.4 * w / w.norm(), RED, "$w$", (1.75, -2.1))
    _arrow(first, 2.4 * s / s.norm(), GREEN, "$\\Sigma_{xz}$", (2.15, 1.35))
    for one, way in ((second, PROBE), (third, MEANS)):
        moved = plane_ways()[way]
        _classes(one, moved, label, alpha=0.6)
        _means(one, moved, label)
    return (
        "Two correlated features. Left, the ellipse of their covariance; the covariances with the class point from "
        "one class "
        "mean to the other, w elsewhere. Middle, w taken out: the class means, large marks, stay apart. Right, the "
        "covariances' "
        "direction taken out: they meet."
    )


@lesson.figure(
    ["At right angles", "Along a slant (LEACE)"],
    "feature 1",
    "feature 2",
    grid=(1, 2),
    legend=[{"loc": "lower right", "fontsize": 9}, None],
    size=(6.8, 3.8),
    **PLANE,
)
def plot_oblique(*axes):
    """Draw where two erasers that hide the class move the points."""
    x, label = plane()
    said = []
    for one, way in zip(axes, (MEANS, "LEACE"), strict=True):
        moved = plane_ways()[way]
        _classes(one, x, label, alpha=0.3)
        for value, color in ((0, BLUE), (1, ORANGE)):
            for start, end in zip(x[label == value][:16], moved[label == value][:16], strict=True):
                one.plot(*torch.stack([start, end]).T, color=color, linestyle="-", linewidth=0.9, label="_way")
            one.plot(*moved[label == value][:16].T, ".", color=color, markersize=5, label="_end")
        _means(one, moved, label)
        cost = float((moved - x).square().sum(1).mean())
        one.set_title(f"{one.get_title()}\nmean squared change {cost:.2f}")
        said.append(f"{cost:.2f}")
    return (
        "Thin lines go to where points are moved; the class means, large marks, meet. Left, the difference of the "
        "means taken "
        f"out at right angles: mean squared change {said[0]}. Right, LEACE: {said[1]}."
    )


# Who still reads


def trained_readers() -> dict[str, Callable[[Tensor, Tensor], Callable[[Tensor], Tensor]]]:
    """Return scikit-learn's readers of the class: each is fitted to rows and classes, and then says the class of rows."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    def trained(make: Callable[[], Any]) -> Callable[[Tensor, Tensor], Callable[[Tensor], Tensor]]:
        def fit(x: Tensor, odd: Tensor) -> Callable[[Tensor], Tensor]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a hundred rounds are meant
                model = make().fit(x.numpy(), odd.numpy())
            return lambda rows: torch.from_numpy(model.predict(rows.numpy()))

        return fit

    return {
        "logistic regression": trained(lambda: LogisticRegression(C=10, max_iter=500)),
        "small neural network": trained(
            lambda: MLPClassifier(
                (32,), max_iter=100, learning_rate_init=0.01, tol=0, n_iter_no_change=100, random_state=0
            )
        ),
    }


def by_ten(x: Tensor, digit: Tensor) -> float:
    """Return how often the digit that ten linear scores name is odd or even as the image is."""
    weight, bias = probe(x[:FITTED], concept_columns(digit[:FITTED], n_classes=10))
    return float((((x[FITTED:] @ weight + bias).argmax(1) - digit[FITTED:]) % 2 == 0).double().mean())


@cache
def readers(*, seed: int = 0) -> dict[str, tuple[float, float]]:
    """Return how often each reader is right about odd or even on new images, before and after LEACE."""
    data = digits(seed=seed)
    x, odd = data.x, data.odd
    tables = (x, fit_eraser(x[:FITTED], odd[:FITTED]).erase(x))
    found = {"linear probe": [probe_accuracy(t, odd) for t in tables]}
    for name, fit in trained_readers().items():
        found[name] = [
            float((fit(t[:FITTED], odd[:FITTED])(t[FITTED:]) == odd[FITTED:]).double().mean()) for t in tables
        ]
    found["ten scores for ten digits"] = [by_ten(t, data.digit) for t in tables]
    found["nearest neighbour"] = [nearest_accuracy(t, odd) for t in tables]
    return {name: tuple(both) for name, both in found.items()}


@lesson.figure(
    "Odd or even, before and after erasing",
    "new images right (%)",
    "reader",
    size=(6.8, 3.4),
    legend={"loc": "center", "fontsize": 9},
    xlim=(40, 102),
    ylim=(-0.6, 4.6),
)
def plot_blind(axes):
    """Draw what five readers find before and after LEACE, five splits each."""
    every = [readers(seed=s) for s in SPLITS]
    names = list(every[0])[::-1]
    for when, (color, mark, shift) in enumerate((("0.35", "o", 0.14), (RED, "D", -0.14))):
        for place, name in enumerate(names):
            shares = [100 * one[name][when] for one in every]
            label = ("before", "after")[when] if place == 0 else f"_{name}"
            axes.plot(shares, [place + shift] * len(shares), mark, color=color, alpha=0.6, markersize=6, label=label)
    axes.axvline(50, color=GREY, linestyle=":", label="_chance")
    axes.set_yticks(range(len(names)), names)
    return (
        "New images right about odd or even, before and after LEACE, five splits. Linear probe and logistic regression fall "
        "to one half; the other three stay above nine in ten."
    )


# The translation model


SITE_NAMES = {
    "decoder.final": "end of the decoder",
    "encoder.final": "end of the encoder",
    "encoder.0": "before the encoder's layers",
}
ROWS = (
    ("language", "language", 3),
    ("determiner", "determiner", 9),
    ("3 random", "random", 3),
    ("9 random", "random", 9),
)


def shares(name: str) -> list[float]:
    """Return what the long run stored, one number for each seed."""
    return stored("erased_states", name)


@lesson.figure(
    ["End of the decoder", "End of the encoder", "Before the encoder's layers"],
    "exact translations (%)",
    "taken out",
    grid=(1, 3),
    legend=[None, None, None],
    size=(9.4, 3.0),
    xlim=(30, 104),
    ylim=(-0.6, 4.6),
    subplots={"sharey": True},
)
def plot_translations(*axes):
    """Draw the share of exact translations for each thing that was taken out, five seeds each."""
    names = [
        "nothing",
        "language (3 directions)",
        "3 random directions",
        "determiner (9 directions)",
        "9 random directions",
    ][::-1]
    for one, site in zip(axes, SITE_NAMES, strict=True):
        arms = [f"{site}: {arm}" for arm in ("9 random", "determiner", "3 random", "language")] + ["as the model is"]
        for row, arm in enumerate(arms):
            color = RED if "language" in arm else ORANGE if "determiner" in arm else GREY
            found = [100 * share for share in shares(arm)]
            one.plot(
                found,
                [row] * len(found),
                "D" if color == RED else "s" if color == ORANGE else "o",
                color=color,
                alpha=0.6,
            )
        one.set_yticks(range(5), names)
    return (
        "Exact translations after something was taken out at three sites, five seeds. Nothing, the language, random "
        "directions: above 90%. The determiner: about two thirds at the end of the decoder, about half at the other sites."
    )


def translation_table() -> Markdown:
    """Return R^2, what is moved and the exact translations of the long run, mean and range of five seeds."""

    def percent(name: str) -> str:
        found = [100 * share for share in shares(name)]
        return f"{mean(found):.1f}% ({min(found):.1f} to {max(found):.1f})"

    rows = [("all", "nothing", "", "", percent("as the model is"))]
    for site, where in SITE_NAMES.items():
        for arm, name, rank in ROWS:
            r2 = ""
            if arm == name:
                least, largest = (mean(shares(f"{site}: {arm}, {which} R^2")) for which in ("least", "largest"))
                r2 = f"{least:.2f} to {largest:.2f}"
            moves = f"{100 * mean(shares(f'{site}: {arm}, moved')):.1f}%"
            rows.append((where, f"{name}, {rank} directions", r2, moves, percent(f"{site}: {arm}")))
    rows.append(("input", "wrong code of the source language", "", "", percent("wrong code")))
    return markdown_table(
        ("site", "taken out", "$R^2$ of its classes before", "variance moved", "exact translations"), rows
    )


def reader_table() -> Markdown:
    """Return what a linear probe and the nearest neighbour find of the language before and after it was erased."""

    def both(site: str, who: str) -> list[str]:
        return [f"{100 * mean(shares(f'{site}: {who} {when}')):.1f}%" for when in ("before", "after")]

    rows = [(where, *both(site, "linear probe"), *both(site, "nearest")) for site, where in SITE_NAMES.items()]
    rows.append(("commonest language", f"{100 * mean(shares('commonest language')):.1f}%", "", "", ""))
    header = ("language of new tokens, site", "linear probe", "after erasing", "nearest neighbour", "after erasing")
    return markdown_table(header, rows)


@lesson.figure(
    ["Right language ahead of the others", "Right determiner ahead of the others"],
    "lead of the right piece (score)",
    "share of the states (%)",
    grid=(1, 2),
    legend=[{"loc": "upper right", "fontsize": 9}, {"loc": "upper right", "fontsize": 9}],
    size=(7.6, 3.0),
    xlim=(-8, 24),
    ylim=(0, 22),
)
def plot_margins(*axes):
    """Draw the lead of the right piece over pieces of other languages, and over other determiners, before and after."""
    found, bins = states("decoder.final"), np.linspace(-8, 22, 31)
    for one, concept in zip(axes, ("language", "determiner"), strict=True):
        eraser = moments_of(found, concept).eraser()
        for look, when, change in ((LOOKS[0], "before", None), (LOOKS[1], f"{concept} erased", eraser.erase)):
            heights, edges = np.histogram(race(concept).margins(change).numpy(), bins=bins)
            one.stairs(
                100 * heights / heights.sum(),
                edges,
                color=look["color"],
                linestyle=look["linestyle"],
                linewidth=2,
                label=when,
            )
        one.axvline(0, color=BLACK, linewidth=1, linestyle="-")
    return (
        "By how much the right piece leads at the end of the decoder. Left, over the best piece of another "
        "language: erasing "
        "the language takes some two units, and nearly all of it stays above 0. Right, over the best other "
        "determiner: erasing "
        "the determiner takes most of the lead."
    )


# The appendix


def measured_table() -> Markdown:
    """Return what `make bench erasure` stored of the time against concept-erasure, and of what a probe still finds."""

    def left(case: str, who: str) -> str:
        found = stored("erasure", f"R^2, {case}: {who}")
        if found < 1e-14:
            return "below $10^{-14}$"
        if found > 0.01:
            return f"{found:.2g}"
        return "${}\\cdot10^{{{}}}$".format(*(int(part) for part in f"{found:.0e}".split("e")))

    cases = {"ten classes": "balanced", "23 positives": "23 positives", "scales 1 to $10^4$": "scales 1 to 1e4"}
    rows = [("fit and erase, ten classes", quote("erasure", "fit and erase / concept-erasure"), 1)]
    for label, case in cases.items():
        before = quote("erasure", f"R^2, {case}: before")
        rows.append((f"$R^2$, {label} ({before} before)", left(case, "ours"), left(case, "concept-erasure")))
    return markdown_table(("", "`fit_eraser`, `erase`", "concept-erasure"), rows)


# The explorer


@lesson.explorer
class RemovalExplorer(Explorer):
    """Take out one direction after the other, chosen in four ways, and fit a new probe each time."""

    title = "One direction after the other"
    summary = (
        "Left, the direction taken out last, as an image. Middle, if it is asked for, the difference of the class "
        "means that is "
        "left, as an image: red where odd digits are darker. Right, the share of new images for which a fresh linear probe "
        "tells odd from even, against the number of directions taken out, with the current number marked."
    )
    k = Slider("directions taken out", "k", "How many directions are taken out, one after the other", 1, 0, MOST, 1)
    way = Choice("direction", "How the next direction is chosen", PROBE, (PROBE, RIDGE, RANDOM, MEANS))
    faint = Switch("Almost constant pixels", "Use all 61 pixels that are not constant, instead of 47")
    left_over = Switch("Show difference of means", "Show the difference of the class means that is left")
    stills = ({}, {"k": 10, "left_over": True}, {"k": 10, "faint": True})
    size = (8.4, 3.3)
    together = ("k", "way")
    layout = panels(
        ["Taken out last", "Difference of the means", "What a fresh probe finds"],
        ["pixel", "pixel", "directions taken out $k$"],
        ["pixel", "pixel", "new images right (%)"],
        grid=(1, 3),
        legend=[None, None, "upper right"],
        subplots={"width_ratios": [1, 1, 1.6]},
        xlim=[None, None, (-0.7, MOST + 0.7)],
        ylim=[None, None, (40, 124)],
    )

    def compute(self, *, k, way, faint, left_over):
        """Return two images, the curve and the current point."""
        found, data = removed(way, all_pixels=faint), digits(all_pixels=faint)
        last = found.directions[k - 1] if k else torch.zeros(len(data.pixels), dtype=torch.float64)
        size = last.abs().max()
        return {
            "direction": data.image(last / size if size > 0 else last).numpy(),
            "gap": data.image(found.gaps[k] if left_over else 0 * found.gaps[k]).numpy(),
            "hidden": "" if left_over else "not shown",
            "curve": (range(MOST + 1), [100 * share for share in found.accuracy]),
            "current": ([k], [100 * found.accuracy[k]]),
            "said": (way, k, len(data.pixels), found, bool(size > 0), left_over),
        }

    def draw(self, left, middle, right_axes):
        """Draw the frames of both images, and the curve."""
        artists = {}
        for name, axes, scale in (("direction", left, 1.0), ("gap", middle, 0.5)):
            artists[name] = axes.imshow(np.zeros((8, 8)), vmin=-scale, vmax=scale, **IMAGE)
            axes.set_axis_off()
        artists["hidden"] = middle.text(3.5, 3.5, "", ha="center", va="center", color=GREY)
        right_axes.axhline(50, color=GREY, linestyle=":", label="chance")
        (artists["curve"],) = right_axes.plot([], [], **LOOKS[0], marker="o", markersize=3, label="fresh linear probe")
        (artists["current"],) = right_axes.plot([], [], "D", color=RED, markersize=9, fillstyle="none", label="now")
        return artists

    def words(self, state):
        """Say what a fresh probe finds, and how much was moved."""
        way, k, pixels, found, anything, shown = state["said"]
        done = f"{k} direction{'s' * (k != 1)} taken out ({way})" if k else "nothing taken out"
        kept = float(found.gaps[k].norm() / found.gaps[0].norm())
        means = f" The difference of the class means keeps {kept:.0%} of its length." if shown else ""
        nothing = "" if anything or not k else " The last one found nothing left to take."
        return (
            f"{pixels} pixels, {done}: a fresh probe is right for {found.accuracy[k]:.1%} of 897 new images. The removals "
            f"moved {found.moved[k]:.1%} of the variance.{means}{nothing}"
        )


# Predictions

count_prediction = lesson.prediction(
    "24.P1",
    "In the picture each removal takes out the direction of the latest probe, at right angles, and about 20 are "
    "needed until "
    "a fresh linear probe is at chance. Now choose the directions as well as you can, again at right angles. How few "
    "suffice?",
    {
        "1": right(
            "It is the difference of the class means: the mean odd image less the mean even one. Take it out, and a fresh "
            "probe guesses. Each probe's own direction missed it."
        ),
        "About 5": "That is what one would expect if parity were spread over five directions. A linear probe needs "
        "less to live on.",
        "About 10": "After about ten removals a probe with a ridge penalty is near chance. There is a better choice.",
        "All 20": "The probes' directions are far from the best choice.",
    },
    reveal=plot_one,
)

blind_prediction = lesson.prediction(
    "24.P2",
    "LEACE has made odd and even indistinguishable for a linear probe: 50%. Now the nearest neighbour reads the erased "
    "images: a new image gets the label of the nearest of the 900 old ones. Before, it was right for about 99%. And now?",
    {
        "About 50%": "That would need the images of a 3 and of an 8 to lie mixed. They were only shifted.",
        "About 70%": "The change moves less than a tenth of the variance, along one direction out of 47.",
        "About 85%": "Images move along one direction only. In the 46 others their distances stay.",
        "About 98%": right(
            "Images keep nearly all their distances. A 3 still has 3s around it, and whoever knows the digit knows "
            "its parity."
        ),
    },
    reveal=plot_blind,
)

translation_prediction = lesson.prediction(
    "24.P3",
    "At the end of the decoder, where one more linear map gives the scores of all pieces, a linear probe knows the "
    "language of "
    "nearly every new token, and the language has an $R^2$ of 0.91. It is erased there from all states. Before, "
    "nearly 99% of the "
    "translations were exact. And now?",
    {
        "Almost none": "Then the scores would have to depend on the part that the probe reads. They have much more to "
        "go by.",
        "About half": "That happens when another concept is erased, though a linear probe reads it less well.",
        "About 80%": "The right word's lead over words of other languages shrinks by a fifth, and remains a lead.",
        "About 98%, as before": right(
            "A word wins by the largest of thousands of scores. Its lead over the words of other languages shrinks by some "
            "two units of eleven; it remains a lead."
        ),
    },
    reveal=plot_translations,
)

FIGURES = lesson.figures
