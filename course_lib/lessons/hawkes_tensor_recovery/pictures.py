"""Figures, explorer and predictions of lesson 31, Hawkes processes by tensor recovery."""

import math
from dataclasses import dataclass, replace
from functools import cache
from statistics import mean

import numpy as np
import torch
from IPython.display import Markdown
from matplotlib import colormaps
from torch import Tensor

from course_lib.lessons.hawkes_tensor_recovery.closing import (
    PROFILE,
    SIMPLE,
    WINDOW,
    error,
    form_fit,
    norm_fit,
    process,
    rng,
)
from course_lib.lessons.hawkes_tensor_recovery.contents import lesson
from course_lib.lessons.hawkes_tensor_recovery.delays import arrows
from course_lib.measured import measured, quote
from course_lib.teaching import Explorer, Slider, Switch, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, RED
from course_lib.theory.hawkes import (
    Fit,
    delayed_kernel,
    fit_chosen,
    log_likelihood,
    rates,
    scaled_to,
    simulate,
)

SEEDS = range(5)
NAMES = {
    "none": "least squares",
    "ridge": "ridge",
    "unfolding": "unfolding",
    "slices": "time slices",
    "fourier": "Fourier",
    "cosine": "cosine",
}

# The question


def blocks(kernel: Tensor) -> np.ndarray:
    """Return the eight 12 x 12 images of a kernel side by side, an empty column after each."""
    found = np.full((12, 8, 13), np.nan)
    found[..., :12] = kernel.transpose(1, 2).numpy()
    return found.reshape(12, -1)[:, :-1]


def draw_kernel(axes, kernel: Tensor):
    """Draw a kernel lag by lag."""
    # Few colours: stored pictures have a short palette, and rare dark colours would turn grey in it.
    few = colormaps["RdBu_r"].resampled(13)
    image = axes.imshow(blocks(kernel), cmap=few, vmin=-0.13, vmax=0.13, aspect="auto", interpolation="nearest")
    axes.grid(False)
    axes.set(xticks=np.arange(8) * 13 + 5.5, xticklabels=range(1, 9), yticks=[])
    return image


def add_scale(image, axes):
    """Draw the colour bar of kernels, beside one or several axes."""
    first = axes[0] if isinstance(axes, list) else axes
    bar = first.figure.colorbar(image, ax=axes, pad=0.015, extend="both", extendfrac=0.03)
    bar.ax.set_xlabel("entry", labelpad=15)  # below the lower tip
    bar.ax.set_ylabel("posts caused")


@lesson.figure(
    "Least squares from 4,000 hours of counts", "hours later; in each block, the forum $j$ that posts", "forum $i$",
    size=(11.0, 2.9), legend=None,
)  # fmt: skip
def plot_question(axes):
    """Draw what least squares makes of 4,000 bins of the first process."""
    image = draw_kernel(axes, norm_fit("delayed", 0, "none"))
    add_scale(image, axes)
    return (
        "Eight 12 x 12 images, one for each hour after a post. Entries of both signs are in every image, red positive, blue "
        "negative; a few dark red ones stand at 3 to 6 hours."
    )


# The turn

CORNERS = ("A to 1", "A to 2", "B to 1", "B to 2")


@cache
def noise() -> np.ndarray:
    """Return the noise that the switch adds, (4, 8): a third of an entry's height."""
    return 0.33 * np.random.default_rng(3).standard_normal((4, WINDOW))


def angle(z: complex) -> str:
    """Say at which angle an arrow stands, in whole degrees."""
    if abs(z) < 0.02:
        return "no length"
    degrees = round(math.degrees(math.atan2(z.imag, z.real)))
    return f"{degrees if degrees != -180 else 180}°"


@lesson.explorer
class TurnExplorer(Explorer):
    """Delay a forum by hand and see the arrows of one frequency."""

    title = "Four pairs of forums, as answers and as arrows"
    summary = (
        "Left the answers of forums 1 and 2 to a post in forum A, and to a post in forum B, hour by hour. Right the same "
        "four rows, each as one arrow at the chosen frequency."
    )
    d = Slider("delay of forum 2", "d₂", "How many hours later forum 2 reads than forum 1", 2, 0, 4, 1, "h")
    e = Slider("delay of forum B", "e", "How many hours later posts of forum B arrive than those of A", 1, 0, 2, 1, "h")
    f = Slider(
        "frequency", "f", "At frequency f the entry of each hour stands f times 45 degrees after the last", 1, 0, 4, 1
    )
    noisy = Switch("Add noise", "Add the same noise to all entries at every setting")
    together = ("d", "e")
    stills = ({}, {"d": 3}, {"d": 3, "e": 2})
    size = (9.6, 4.2)
    layout = panels(
        ["Answers, hour by hour", "The same four, as arrows"], ["hours later", "real part"],
        ["posts caused, for each pair", "imaginary part"], grid=(1, 2), legend=[None, {"loc": "upper right", "fontsize": 9}],
        xticks=[range(1, 9), [-0.6, -0.3, 0, 0.3, 0.6]], xlim=[(0.4, 8.6), (-0.72, 0.72)],
        ylim=[(-0.9, 5.9), (-0.7, 0.7)],
        yticks=[[4.2, 2.8, 1.4, 0], None], yticklabels=[list(CORNERS), None], aspect=["auto", "equal"],
    )  # fmt: skip

    def compute(self, *, d, e, f, noisy):
        """Return the four rows and their arrows."""
        kernel = delayed_kernel(torch.tensor([1.0, 0.7]), torch.tensor([1.0, 0.8]), torch.tensor(PROFILE),
                                torch.tensor([0, d]), torch.tensor([0, e]), p=WINDOW)  # fmt: skip
        rows = kernel.transpose(0, 1).flatten(0, 1).double().numpy() + noisy * noise()
        found = np.fft.fft(rows, norm="ortho")[:, f]
        return {
            "rows": [np.repeat(1.4 * (3 - k) + 0.8 * row, 2) for k, row in enumerate(rows)],
            "arrows": [([0, z.real], [0, z.imag]) for z in found],
            "said": (f, [angle(z) for z in found]),
        }

    def draw(self, left, right_axes):
        """Draw four rows and four arrows."""
        hours = np.repeat(np.arange(0.5, 9), 2)[1:-1]
        looks = [(BLUE, "-", "o"), (BLUE, "--", "s"), (ORANGE, "-", "D"), (ORANGE, "--", "^")]
        rows, found = [], []
        for k, (color, style, marker) in enumerate(looks):
            left.axhline(1.4 * (3 - k), color="0.8", linewidth=0.8)
            rows += left.plot(hours, 0 * hours, style, color=color, linewidth=2)
            found += right_axes.plot(
                [0, 0], [0, 0], style, color=color, linewidth=2, marker=marker, markevery=[1], label=CORNERS[k]
            )
        right_axes.axhline(0, color="0.8", linewidth=0.8)
        right_axes.axvline(0, color="0.8", linewidth=0.8)
        return {"rows": rows, "arrows": found}

    def words(self, state):
        """Say where the arrows point."""
        f, angles = state["said"]
        told = ", ".join(f"{name}: {one}" for name, one in zip(CORNERS, angles, strict=True))
        return f"Angles of the arrows at f = {f}, counterclockwise from the right. {told}."


# Reading


def turned_to_truth(end: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the arrows of one end at f = 1, as a whole turned as they fit the true delays best, and these delays."""
    given = process("delayed", seed)
    found = arrows(norm_fit("delayed", seed, "none"), (1,))[end][0]
    delays = given.delays[end]
    back = torch.exp(2j * torch.pi / WINDOW * delays)
    common = (found * back).sum()
    return (found * common.conj() / common.abs()).numpy(), delays.numpy()


@lesson.figure(
    ["Singular values at $f$ = 1", "Twelve arrows: reading", "Twelve arrows: travelling"],
    ["number", "real part", "real part"], ["singular value", "imaginary part", "imaginary part"],
    size=(11.2, 4.0), grid=(1, 3), aspect=["auto", "equal", "equal"],
    legend=[{"loc": "upper right", "fontsize": 9}, {"loc": "upper left", "fontsize": 9}, None],
    xlim=[(0.5, 12.5), (-0.16, 0.16), (-0.16, 0.16)],
    ylim=[(0, 0.4), (-0.19, 0.13), (-0.19, 0.13)],
)  # fmt: skip
def plot_arrows(left, middle, last):
    """Draw singular values of the slice f = 1 of least squares, and its two leading singular vectors as arrows."""
    given, plain = process("delayed", 0), norm_fit("delayed", 0, "none")
    values = [torch.linalg.svdvals(torch.fft.fft(k, norm="ortho")[..., 1]).numpy() for k in (plain, given.kernel)]
    left.plot(range(1, 13), values[0], "o", color=BLUE, label="least squares")
    left.plot(range(1, 13), values[1], "x", color=RED, label="truth")
    left.set_xticks(range(1, 13, 2))
    for end, axes in enumerate((middle, last)):
        found, delays = turned_to_truth(end)
        for delay in range(4):
            ray = 0.2 * np.exp(-2j * np.pi * delay / WINDOW)
            axes.plot([0, ray.real], [0, ray.imag], ":", color="0.6", linewidth=1)
            color, marker = (BLUE, ORANGE, GREEN, RED)[delay], "osD^"[delay]
            some = found[delays == delay]
            axes.plot(some.real, some.imag, marker, color=color, markersize=7, label=f"true delay {delay}")
    return (
        "Left, one singular value of least squares stands out; the truth has one. Middle and right, the tips of twelve "
        "arrows at f = 1, read from least squares, and the rays of the four delays. Most lie near their ray. The triangle "
        "farthest left is nearly half-way to the next; on the right a square lies among the circles."
    )


# Norms, and the circle

WITHOUT = {"delayed": "delays 0 to 3", "short": "no delays, the same profile"}


@cache
def errors(kind: str, name: str) -> list[float]:
    """Return the relative errors of a norm's fit, one for each of five processes."""
    return [error(norm_fit(kind, seed, name), process(kind, seed).kernel) for seed in SEEDS]


@lesson.figure(
    "Error of the kernel, five processes each", "delays of the processes", "relative error", size=(8.6, 3.6),
    ylim=(0.1, 0.85), legend={"loc": "upper center", "ncols": 3, "fontsize": 9},
)  # fmt: skip
def plot_penalties(axes):
    """Draw the errors of three penalties on processes with and without delays, a point for each seed."""
    looks = {"ridge": ("0.45", "D"), "slices": (ORANGE, "s"), "fourier": (BLUE, "o")}
    kinds = ("delayed", "short")
    for place, (name, (color, marker)) in enumerate(looks.items()):
        for at, kind in enumerate(kinds):
            x = at + 0.2 * (place - 1)
            axes.plot([x - 0.07, x + 0.07], [mean(errors(kind, name))] * 2, "-", color=color, linewidth=2)
            axes.plot(np.linspace(x - 0.05, x + 0.05, 5), errors(kind, name), marker, color=color, markersize=5,
                      label=NAMES[name] if not at else None)  # fmt: skip
    axes.set_xticks(range(len(kinds)), [WITHOUT[kind] for kind in kinds])
    axes.set_xlim(-0.5, 1.5)
    return (
        "Errors of three penalties, five processes each, and their mean. With delays 0 to 3 Fourier is lowest, without "
        "delays time slices."
    )


@cache
def profiles(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return what a fit makes of the profile without delays, and the squared error by lag, means over five processes.

    The profile is the part of each lag's matrix along a_i b_j, in units of the truth's first; errors are in units of the
    truth's squared length.
    """
    found, off = [], []
    for seed in SEEDS:
        truth = process("short", seed).kernel
        kernel = norm_fit("short", seed, name)
        first = truth[..., 0]
        found.append(torch.einsum("ij,ijt->t", first, kernel) / first.square().sum())
        off.append((kernel - truth).square().sum((0, 1)) / truth.square().sum())
    return torch.stack(found).mean(0).numpy(), torch.stack(off).mean(0).numpy()


@lesson.figure(
    ["The profile, no delays", "Where the error lies"], "lag (hours)", ["entry over the true first entry", "squared error"],
    size=(9.4, 3.7), grid=(1, 2), legend=[{"loc": "upper right", "fontsize": 9}, {"loc": "upper right", "fontsize": 9}],
    xticks=range(1, 9),
)  # fmt: skip
def plot_by_lag(left, right_axes):
    """Draw the recovered profile and the error by lag of three penalties, without delays."""
    lag = np.arange(1, 9)
    left.plot(lag, [*PROFILE, *[0] * 6], "-", color=BLACK, linewidth=5, alpha=0.25, label="truth")
    for k, axes in ((0, left), (1, right_axes)):
        looks = {"fourier": (BLUE, "-", "o"), "slices": (ORANGE, "--", "s"), "cosine": (GREEN, "-.", "^")}
        for name, (color, style, marker) in looks.items():
            axes.plot(lag, profiles(name)[k], style, color=color, marker=marker, markersize=4, label=NAMES[name])
    return (
        "No delays, means over five processes. Left, the profile along the true pattern, in units of its true first entry. "
        "Right, the squared error in units of the truth's squared length, by lag."
    )


# The closing experiment: what `make bench hawkes_delays` stored


def stored(kind: str, arm: str) -> list[float]:
    """Return the errors of an arm, one for each of twenty processes."""
    return measured("hawkes_delays", f"{kind}, {arm}")


ROWS = {
    "none": "least squares",
    "none, at least 0": "least squares, at least 0",
    "ridge": "ridge",
    "slices": "time slices",
    "fourier": "Fourier",
    "fourier, at least 0": "Fourier, at least 0",
    "cosine": "cosine",
    "rank 1": "rank 1 at each frequency",
    "rank 1, at least 0": "rank 1, at least 0",
    "peaks": "peak lags",
    "peaks, corrected": "peak lags, corrected",
    "read": "read turns",
    "read, corrected": "read turns, corrected",
    "peaks of Fourier, corrected": "Fourier's peak lags, corrected",
    "totals, corrected": "turns of totals, corrected",
    "10 starts": "10 random starts, corrected",
    "40 starts": "40 random starts, corrected",
    "no delays": "all delays 0",
    "true": "true delays",
    "chosen": "chosen on held-out hours",
}


SHOWN = ("none", "rank 1, at least 0", "slices", "fourier", "read, corrected", "40 starts", "no delays", "chosen")


def closing_table() -> Markdown:
    """Return mean and range over the processes of each arm and kind of truth."""

    def cell(kind: str, arm: str) -> str:
        found = stored(kind, arm)
        return f"{mean(found):.2f} ({min(found):.2f} to {max(found):.2f})"

    kinds = ("delayed", "separable", "random")
    rows = [(label, *(cell(kind, arm) for kind in kinds)) for arm, label in ROWS.items()]
    return markdown_table(("kernel from", "delays 0 to 3", "no delays, long profile", "no structure"), rows)


@lesson.figure(
    ["delays 0 to 3", "no delays, long profile", "no structure"], "error of the kernel", "kernel from", size=(11.0, 3.4),
    grid=(1, 3), legend=None,
    subplots={"sharey": True}, xlim=(0, 1.62),
)  # fmt: skip
def plot_closing(*axes):
    """Draw mean and range over twenty processes of eight arms, for three kinds of truths."""
    for one, kind in zip(axes, ("delayed", "separable", "random"), strict=True):
        for place, arm in enumerate(SHOWN):
            found = stored(kind, arm)
            norm = arm in NAMES or arm in SIMPLE
            color, marker = (BLUE, "o") if norm else (BLACK, "D") if arm == "chosen" else (ORANGE, "s")
            one.plot([min(found), max(found)], [place] * 2, "-", color=color, linewidth=2)
            one.plot([mean(found)], [place], marker, color=color, markersize=6)
        one.axvline(1, color="0.5", linewidth=1, linestyle="--")
        one.set_ylim(len(SHOWN) - 0.5, -0.6)
    axes[0].set_yticks(range(len(SHOWN)), [ROWS[arm] for arm in SHOWN], fontsize=10)
    axes[0].text(1.03, 0.1, "answer 0", fontsize=9)
    return (
        "Mean and range of the error, twenty processes each. Circles: without the form; squares: the form (31.3), by where "
        "its delays come from; diamond: chosen on held-out hours; dashed: answering 0."
    )


def chosen_table() -> Markdown:
    """Return how often held-out hours chose each of six arms."""
    kinds = ("delayed", "separable", "random")
    found = {kind: measured("hawkes_delays", f"{kind}, chosen, arms") for kind in kinds}
    rows = [(ROWS[arm], *(found[kind][arm] for kind in kinds)) for arm in found["delayed"]]
    return markdown_table(
        ("chosen, of 20 processes (stored)", "delays 0 to 3", "no delays, long profile", "no structure"), rows
    )


def length_table() -> Markdown:
    """Return mean errors by the length of the record, delays 0 to 3."""
    rows = []
    for arm, label in (("none", "least squares"), ("fourier", "Fourier"), ("read, corrected", "read turns, corrected"),
                       ("10 starts", "10 random starts, corrected"), ("true", "true delays")):  # fmt: skip
        found = [measured("hawkes_delays", f"{bins} bins, {arm}") for bins in (1000, 2000)]
        found += [stored("delayed", arm), measured("hawkes_delays", f"16000 bins, {arm}")]
        rows.append((label, *(f"{mean(one):.2f} ({min(one):.2f} to {max(one):.2f})" for one in found)))
    return markdown_table(("hours", "1,000", "2,000", "4,000", "16,000"), rows)


@lesson.figure(
    ["Least squares", "Delays read and corrected, 32 numbers fitted", "Truth"],
    "hours later; in each block, the forum $j$ that posts", "forum $i$",
    size=(10.6, 6.3), grid=(3, 1), legend=None,
)  # fmt: skip
def plot_recovered(*axes):
    """Draw the kernel of the first process as two estimates and in truth."""
    kernels = (
        norm_fit("delayed", 0, "none"),
        form_fit("delayed", 0, "read, corrected")[0],
        process("delayed", 0).kernel,
    )
    for one, kernel in zip(axes, kernels, strict=True):
        image = draw_kernel(one, kernel)
    add_scale(image, list(axes))
    return (
        "Three rows of images. Least squares: noise of both signs. Read delays and 32 numbers: nearly the truth of the last "
        "row. Entries beyond the ends of the scale have its end colours."
    )


# A map of forums


PLACES, MAP_LAGS, MAP_BINS = 40, 24, 40_000


@dataclass(frozen=True)
class Maps:
    """Places (40, 2) in the unit square and processes on them: base (2, 40), kernel (2, 40, 40, 24),
    counts, held-out counts."""

    places: Tensor
    base: Tensor
    kernel: Tensor
    counts: Tensor
    test: Tensor


def _map() -> tuple[Tensor, Tensor, Tensor]:
    """Return places, base rates and both kernels: through the centre (0), and straight, fading with distance (1)."""
    g, profile = rng(0), torch.tensor(PROFILE, dtype=torch.float64)
    draw = lambda *shape: torch.rand(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    places, gain_from, gain_to = draw(PLACES, 2), draw(PLACES) + 0.1, draw(PLACES) + 0.1
    delay = ((places - 0.5).norm(dim=1) * 15).round().long()
    hub = delayed_kernel(gain_to, gain_from, profile, delay, delay, p=MAP_LAGS)
    apart = torch.cdist(places, places)
    at = torch.arange(MAP_LAGS) - (16 * apart).round().long()[..., None]
    wave = (-apart / 0.3).exp()[..., None] * gain_from[:, None] * profile[at.clamp(0, 1)] * ((at >= 0) & (at < 2))
    base, kernel = (0.1 + 0.2 * draw(PLACES)).expand(2, -1), scaled_to(torch.stack([hub, wave]), 0.8)
    return places, base, kernel


def map_kernels() -> Tensor:
    """Return the kernels of both maps, (2, 40, 40, 24)."""
    return _map()[2]


@cache
def maps() -> Maps:
    """Return both maps with their counts."""
    places, base, kernel = _map()
    counts, test = (simulate(base, kernel, k, generator=rng(k)) for k in (MAP_BINS, 4000))
    return Maps(places, base, kernel, counts, test)


MAP_SHARES = {"ridge": (4, 2, 1), "fourier": (0.07, 0.035, 0.02), "slices": (0.2, 0.1, 0.05)}


@cache
def map_fit(penalty: str) -> Fit:
    """Return the fits to both maps."""
    options = {} if penalty == "ridge" else {"max_steps": 40, "tolerance": 3e-3}
    # Single precision halves the time, and is exact to more digits than the data are.
    found = fit_chosen(maps().counts.float(), MAP_LAGS, penalty, shares=MAP_SHARES[penalty], **options)
    return replace(found, kernel=found.kernel.double(), base=found.base.double())


def map_scores(penalty: str) -> tuple[Tensor, Tensor]:
    """Return for both maps the relative error and the share of the truth's gain in held-out likelihood, (2,) each."""
    given, found = maps(), map_fit(penalty)
    score = lambda base, kernel: log_likelihood(given.test[:, MAP_LAGS:], rates(given.test, base, kernel))  # noqa: E731
    low = score(given.counts.mean(1), 0 * given.kernel)
    share = (score(found.base, found.kernel) - low) / (score(given.base, given.kernel) - low)
    off = (found.kernel - given.kernel).flatten(-3).norm(dim=-1) / given.kernel.flatten(-3).norm(dim=-1)
    return off, share


def measured_table() -> Markdown:
    """Return what `make bench hawkes_maps` stored of the fits to both maps."""
    columns = [(name, what) for name in ("hub", "straight") for what in ("error", "share of gain")]
    rows = [
        (label, *(quote("hawkes_maps", f"{penalty}: {name}, {what}", ".2f") for name, what in columns))
        for label, penalty in (("ridge", "ridge"), ("Fourier", "fourier"), ("time slices", "slices"))
    ]
    return markdown_table(("", *(f"{name}: {what}" for name, what in columns)), rows)


# Predictions

ask_read = lesson.prediction(
    "31.P1",
    "Reading each row and column by its darkest hour gets 9 to 16 of the 24 delays right, in five such processes. Another "
    "way turns the eight hours of a row into a few *arrows*, as below. How many does it get?",
    {
        "8 or fewer": "Noise of all hours is in an arrow. But guessing alone gets about 7, up to a common shift of a side.",
        "9 to 16, too": "No new counts were made. But the darkest hour uses one number of each total, an arrow all of them.",
        "17 to 21": "That is near to what fitting the lags of the largest entries by sums d + e gets: 17 to 23.",
        "22 or more": right("They leave a trace that stands out of the noise of a thousand entries."),
    },
    reveal=plot_arrows,
)

ask_norm = lesson.prediction(
    "31.P2",
    "Now no forum has a delay, and the profile is the same. Every slice has rank 1, in frequency and now in time as well. "
    "Which of the two norms has the smaller error?",
    {
        "Fourier, by as much as before": "What it had over time slices before was delays. There are none.",
        "Fourier, by half as much": "Half of its lead would need another reason than delays. There is none in its favour.",
        "Neither: they are within 5%": "Both see rank 1, so a tie seems fair. But a norm charges for more than ranks.",
        "Time slices": right("What the time slices charge the truth falls to a third; Fourier's price stays."),
    },
    reveal=plot_penalties,
)

FIGURES = lesson.figures
