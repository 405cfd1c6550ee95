"""Records, figures, explorer and predictions of lesson 31, Hawkes processes by tensor recovery."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor

from course_lib.lessons.hawkes_tensor_recovery.contents import lesson
from course_lib.measured import figures, quote
from course_lib.teaching import Choice, Explorer, Slider, lines, markdown_table, panels
from course_lib.teaching.style import BLUE, GREEN, ORANGE, RED
from course_lib.theory.hawkes import (
    PENALTIES,
    Fit,
    delayed_kernel,
    fit_chosen,
    log_likelihood,
    rates,
    scaled_to,
    simulate,
)  # fmt: skip
from course_lib.theory.tensor_nuclear_norm import LOW_RANK, low_rank_norm, matrices, numerical_ranks

SEEDS = range(3)
LENGTHS = (1000, 4000, 16000)
SHARES = {
    "none": (1,),
    "ridge": (4, 2, 1, 0.5, 0.25),
    "fourier": (0.2, 0.1, 0.07, 0.05, 0.035, 0.025),
    **dict.fromkeys(("slices", "unfolding"), (0.4, 0.2, 0.14, 0.1, 0.07, 0.05)),
}
NAMES = {
    "none": "none",
    "ridge": "ridge",
    "fourier": "Fourier (TNN)",
    "slices": "time slices",
    "unfolding": "unfolding",
}
PROFILE = (1.0, 0.5)
KINDS = {"delayed": "delays 0 to 3", "short": "delays 0 to 2", "separable": "separable", "random": "random places"}


def rng(seed: int) -> torch.Generator:
    """Return a fresh generator."""
    return torch.Generator().manual_seed(seed)


def tick_errors() -> dict[str, float]:
    """Return relative errors of the matrix B by tick's fits of the delayed process, as they were stored once."""
    return figures("tick")


# Records of twelve places


@dataclass(frozen=True)
class Records:
    """Three processes and what they did: base (3, 12), kernel (3, 12, 12, 8), counts (3, K, 12), held-out
    (3, 4000, 12)."""

    base: Tensor
    kernel: Tensor
    counts: Tensor
    test: Tensor


def planted(kind: str, seed: int, *, n: int = 12, p: int = 8) -> tuple[Tensor, Tensor]:
    """Return base rates and a kernel of spectral radius 0.8 of one of KINDS."""
    g = rng(seed)
    draw = lambda *shape: torch.rand(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    gain_to, gain_from = draw(n) + 0.1, draw(n) + 0.1
    most = {"delayed": 4, "short": 3}.get(kind, 1)  # every delay below it equally often
    delay_to, delay_from = (torch.randperm(n, generator=g) % most for _ in range(2))
    profile = torch.tensor(PROFILE if most > 1 else [0.7**k for k in range(p)], dtype=torch.float64)
    kernel = delayed_kernel(gain_to, gain_from, profile, delay_to, delay_from, p=p)
    if kind == "random":  # at each lag every place answers one other place
        kernel = torch.stack([torch.diag(draw(n) + 0.5)[torch.randperm(n, generator=g)] for _ in range(p)], dim=-1)
    return 0.1 + 0.2 * draw(n), scaled_to(kernel, 0.8)


@cache
def records(kind: str) -> Records:
    """Draw the three processes of a kind and their records."""
    base, kernel = map(torch.stack, zip(*[planted(kind, seed) for seed in SEEDS], strict=True))
    lengths = (LENGTHS[-1] if kind == "delayed" else 4000, 4000)
    counts, test = (simulate(base, kernel, k, generator=rng(s)) for s, k in enumerate(lengths))
    return Records(base, kernel, counts, test)


@cache
def fitted(kind: str, length: int, penalty: str) -> Fit:
    """Return the fits to the first `length` bins of the three records."""
    options = {"max_steps": 300, "tolerance": 5e-4} if penalty in LOW_RANK else {}
    return fit_chosen(records(kind).counts[:, :length], 8, penalty, shares=SHARES[penalty], **options)


def relative(found: Tensor, truth: Tensor) -> Tensor:
    """Return the length of the error over that of the truth, over the last three dimensions."""
    return (found - truth).flatten(-3).norm(dim=-1) / truth.flatten(-3).norm(dim=-1)


@cache
def errors(kind: str, length: int) -> dict[str, Tensor]:
    """Return the relative error of the kernel by penalty, (3,)."""
    return {name: relative(fitted(kind, length, name).kernel, records(kind).kernel) for name in PENALTIES}


@cache
def gains(kind: str, length: int) -> dict[str, Tensor]:
    """Return held-out log-likelihood above constant rates, as a share of the truth's, by penalty, (3,)."""
    given = records(kind)
    score = lambda base, kernel: log_likelihood(given.test[:, 8:], rates(given.test, base, kernel))  # noqa: E731
    constant = score(given.counts[:, :length].mean(1), 0 * given.kernel)
    most = score(given.base, given.kernel) - constant
    fits = {name: fitted(kind, length, name) for name in PENALTIES}
    return {name: (score(one.base, one.kernel) - constant) / most for name, one in fits.items()}


# The question


@lesson.figure(
    ["true kernel", "least squares from 4,000 bins"], "lag; within each block, the place j that acts", "place i",
    grid=(2, 1), size=(11.4, 4.2), legend=None,
)  # fmt: skip
def plot_question(*axes):
    """Draw the kernel of the first process lag by lag, and what least squares makes of 4,000 bins."""
    for one, kernel in zip(axes, (records("delayed"), fitted("delayed", 4000, "none")), strict=True):
        blocks = np.full((12, 8, 13), np.nan)  # a white column after each lag
        blocks[..., :12] = kernel.kernel[0].transpose(1, 2).numpy()
        one.imshow(blocks.reshape(12, -1)[:, :-1], cmap="RdBu_r", vmin=-0.15, vmax=0.15, aspect="auto")
        one.grid(False)
        one.set(xticks=np.arange(8) * 13 + 5.5, xticklabels=range(1, 9), yticks=[])
    return (
        "Two rows of eight 12 x 12 images, one for each lag; red is positive, blue negative. Above the true kernel: "
        "scattered stripes of positive entries, different at every lag, none negative. Below least squares from 4,000 "
        "bins: noise of both signs covers every image."
    )


# Delays and ranks

WINDOW = 18


def spread_kernel(spread: int, p: int = WINDOW, kind: str = "d + e") -> Tensor:
    """Return a 12 x 12 x p kernel: delays up to `spread` at both ends ("d + e"), by distance, or random numbers."""
    g = rng(3)
    draw = lambda *shape: torch.rand(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    to, away, gain_to, gain_from = draw(12), draw(12), draw(12) + 0.2, draw(12) + 0.2
    places = torch.stack([to, away], dim=1)
    profile = torch.tensor(PROFILE, dtype=torch.float64)
    if kind == "random numbers":
        return draw(12, 12, WINDOW)[..., :p]
    if kind == "distance":
        apart = torch.cdist(places, places)
        delay = (2 * spread * apart / apart.max()).round().long()
        at = torch.arange(p) - delay[..., None]
        inside = (at >= 0) & (at < 2)
        return gain_to[:, None, None] * gain_from[:, None] * profile[at.clamp(0, 1)] * inside
    stretch = lambda x: ((x - x.min()) / (x.max() - x.min()) * spread).round().long()  # noqa: E731
    return delayed_kernel(gain_to, gain_from, profile, stretch(to), stretch(away), p=p)


def held(kernel: Tensor, kind: str) -> np.ndarray:
    """Return the share of the tensor's squared length in the first k singular values of each slice, k = 1 ... 12."""
    power = torch.linalg.svdvals(matrices(kernel, kind)).square().sum(0)
    return (power.cumsum(0) / power.sum()).numpy()


@lesson.figure(
    ["largest rank of a slice", "norm"], "largest delay at each end (bins)", ["rank", "norm of the kernel"],
    grid=(1, 2), ylim=[(0, 8), (0, 42)], legend=["upper left", "lower right"],
)  # fmt: skip
def plot_spread(left, right):
    """Draw ranks and norms of the kernel against the spread of its delays."""
    spreads, kernels = range(9), [spread_kernel(s) for s in range(9)]
    for axes, number in ((left, lambda a, k: int(numerical_ranks(a, k, share=0.999).max())), (right, low_rank_norm)):
        curves = {NAMES[k]: [float(number(a, k)) for a in kernels] for k in ("fourier", "slices")}
        lines(axes, spreads, curves, marker="o")
    return (
        "Against the largest delay at each end, 0 to 8 bins, for a kernel with delays d + e. Left the largest rank: 1 "
        "throughout for Fourier slices; from 1 to 5 for time slices, 5 from delay 4 on. Right the norms: the Fourier norm "
        "is constant; that of the time slices is a third of it at 0, overtakes it between 3 and 4 and rises up to 7."
    )


@lesson.figure(
    ["three places answer place 1 and place 2", "DFT slice f = 1"], ["lag (bins)", "real part"],
    ["kernel entry, one row for each pair", "imaginary part"], grid=(1, 2), legend=["upper right", "upper right"],
    size=(9.6, 4.2),
)  # fmt: skip
def plot_phase(left, right):
    """Draw delayed entries in time, and as arrows in one DFT slice."""
    delay_to, delay_from, gains_ = torch.tensor([0, 1, 5]), torch.tensor([0, 2]), torch.tensor([1.0, 0.8, 0.6])
    kernel = torch.stack(
        [delayed_kernel(gains_, torch.ones(3), torch.tensor(PROFILE), delay_to, e + 0 * delay_to, p=12)[:, 0]
         for e in delay_from]
    )  # fmt: skip
    slice_one = torch.fft.rfft(kernel, norm="ortho")[..., 1].numpy()
    for j, (color, style) in enumerate(((BLUE, "-"), (ORANGE, "--"))):
        for i in range(3):
            height = 5 - (3 * j + i) + kernel[j, i].numpy() * 0.8
            left.step(
                range(1, 13),
                height,
                where="mid",
                color=color,
                linestyle=style,
                label=f"from place {j + 1}" if i == 0 else None,
            )
            z = slice_one[j, i]
            right.plot(
                [0, z.real],
                [0, z.imag],
                style,
                color=color,
                linewidth=2,
                label=f"from place {j + 1}" if i == 0 else None,
            )
            right.text(1.12 * z.real, 1.12 * z.imag, f"i={i + 1}", ha="center", va="center", fontsize=10)
    left.set_yticks([5, 4, 3, 2, 1, 0], [f"i={i}" for i in (1, 2, 3)] * 2)
    left.set_ylim(-0.3, 6.4)
    right.set_aspect("equal")
    right.set(xlim=(-0.6, 0.6), ylim=(-0.6, 0.4))
    return (
        "Left six kernel entries against the lag: the answers of three places to place 1, at delays 0, 1 "
        "and 5, and below "
        "those to place 2, the same two bins later. Right the same six numbers in the DFT slice f = 1, as arrows: the "
        "three arrows of place 2 are those of place 1, all turned clockwise by the same 60 degrees."
    )


def measured_table() -> Markdown:
    """Return what `make bench hawkes_maps` stored of the fits to both maps."""
    columns = [(name, what) for name in ("hub", "straight") for what in ("error", "share of gain")]
    rows = [
        (label, *(quote("hawkes_maps", f"{penalty}: {name}, {what}", ".2f") for name, what in columns))
        for label, penalty in (("ridge", "ridge"), ("Fourier", "fourier"), ("time slices", "slices"))
    ]
    return markdown_table(("", *(f"{name}: {what}" for name, what in columns)), rows)


@lesson.explorer
class DelayExplorer(Explorer):
    """Spread delays and look at ranks in time and in frequency."""

    title = "Ranks in time and in frequency"
    summary = (
        "Left how strongly place 1 acts on each of 12 places at each lag, darker is stronger. Right which share of the "
        "kernel's squared length lies in the first k singular values of its slices, for slices in time and "
        "in frequency."
    )
    spread = Slider("largest delay", "D", "At each end: the largest of the d, and of the e", 4, 0, 8, 1, "bins")
    window = Slider("window", "p", "Lags that the kernel keeps; what comes later is cut off", 18, 3, 18, 1, "bins")
    delays = Choice(
        "delay from j to i", "How the delay of a pair comes about", "d + e", ("d + e", "distance", "random numbers")
    )
    together = ("spread", "window")
    size = (9.6, 4.0)
    dpi = 100
    layout = panels(
        ["place 1 acts on place i", "share held by k singular values"], ["lag (bins)", "k"], ["place i", "share"],
        grid=(1, 2), legend=[None, "lower right"], xlim=[(0.5, 18.5), (0.5, 12.5)], ylim=[(12.5, 0.5), (0, 1.05)],
    )  # fmt: skip

    def compute(self, *, spread, window, delays):
        """Return the picture of one source, both curves, the ranks and the norms."""
        kernel = spread_kernel(spread, window, delays)
        seen = np.zeros((12, WINDOW))
        seen[:, :window] = kernel[:, 0].numpy()
        said = {k: (int(numerical_ranks(kernel, k, share=0.99).max()), float(low_rank_norm(kernel, k)))
                for k in ("slices", "fourier")}  # fmt: skip
        return {
            "image": seen / max(float(seen.max()), 1e-9),
            "edge": ([window + 0.5] * 2, [0.5, 12.5]),
            "time": held(kernel, "slices"),
            "frequency": held(kernel, "fourier"),
            "said": (said, 2 * spread + len(PROFILE), window, delays),
        }

    def draw(self, left, right):
        """Draw the image, the end of the window and two curves."""
        left.grid(False)
        image = left.imshow(
            np.zeros((12, WINDOW)), cmap="Greys", vmin=0, vmax=1, extent=(0.5, 18.5, 12.5, 0.5), aspect="auto"
        )
        edge = left.plot([], [], "--", color=RED, linewidth=2)[0]
        time, frequency = lines(right, range(1, 13), ["time slices", "DFT slices"], marker="o")
        return {"image": image, "edge": edge, "time": time, "frequency": frequency}

    def words(self, state):
        """Say ranks, norms, and whether the delays fit into the window."""
        said, needed, window, delays = state["said"]
        fits = "" if delays == "random numbers" else (
            f" The latest effect comes at lag {needed}: it fits into p = {window}." if needed <= window
            else f" The latest effect would come at lag {needed}: it is cut off at p = {window}."
        )  # fmt: skip
        (rank_t, norm_t), (rank_f, norm_f) = said["slices"], said["fourier"]
        return (
            f"99% of the squared length needs rank {rank_t} in time and {rank_f} in frequency; all singular "
            f"values add up to {norm_t:.1f} in time and to {norm_f:.1f} in frequency.{fits}"
        )


# What the fits are worth


@lesson.figure(
    ["error of the kernel", "held-out likelihood"], "time bins K", ["relative error", "share of the truth's gain"],
    grid=(1, 2), legend=["lower left", "lower right"], xscale="log", yscale=["log", "linear"], ylim=[(0.15, 3), (-1, 1.05)],
)  # fmt: skip
def plot_errors(left, right):
    """Draw error and held-out likelihood of the five fits against the length of the record."""
    for axes, table in ((left, errors), (right, gains)):
        found = [table("delayed", k) for k in LENGTHS]
        lines(axes, LENGTHS, {NAMES[n]: [float(f[n].mean()) for f in found] for n in PENALTIES}, marker="o")
        axes.set_xticks(LENGTHS, [f"{k:,}" for k in LENGTHS])
        axes.minorticks_off()
    left.set_yticks([0.2, 0.5, 1, 2], ["0.2", "0.5", "1", "2"])
    right.axhline(0, color="0.5", linewidth=1)
    return (
        "Means over three processes with delays, at 1,000, 4,000 and 16,000 bins. Left the relative error of the kernel: "
        "the Fourier norm is lowest at each length, then time slices and unfolding, then ridge; none is far above at 1,000 "
        "and close to ridge at 16,000. Right the share of the truth's gain in held-out likelihood over constant rates: "
        "none is far below 0 at 1,000; all are near 0.9 or above at 16,000."
    )


@lesson.figure(
    "Error of the kernel at K = 4,000", "kind of kernel", "relative error", size=(8.8, 3.8), ylim=(0, 1.9),
    legend={"loc": "upper left", "ncols": 5, "fontsize": 9},
)  # fmt: skip
def plot_controls(axes):
    """Draw the errors of the five fits on four kinds of kernels."""
    colors, hatches = ("0.75", "0.5", BLUE, ORANGE, GREEN), ("", "", "", "//", "..")
    for place, name in enumerate(PENALTIES):
        height = [float(errors(kind, 4000)[name].mean()) for kind in KINDS]
        axes.bar(np.arange(4) + 0.16 * (place - 2), height, 0.15, color=colors[place], hatch=hatches[place],
                 edgecolor="white", label=NAMES[name])  # fmt: skip
    axes.set_xticks(range(4), list(KINDS.values()))
    return (
        "Bars of the relative error for four kinds of kernels and five penalties, means over three processes. Delays 0 to "
        "3: the Fourier norm is lowest. Delays 0 to 2: Fourier and time slices are equal. Separable: time slices are "
        "lowest, then unfolding, then Fourier. Random places: ridge and unfolding are lowest, and all five lie close."
    )


# A map of events

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


@cache
def maps() -> Maps:
    """Return a map whose events travel through its centre (0), and one where they go straight and fade
    with distance (1)."""
    g, profile = rng(0), torch.tensor(PROFILE, dtype=torch.float64)
    draw = lambda *shape: torch.rand(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    places, gain_from, gain_to = draw(PLACES, 2), draw(PLACES) + 0.1, draw(PLACES) + 0.1
    delay = ((places - 0.5).norm(dim=1) * 15).round().long()
    hub = delayed_kernel(gain_to, gain_from, profile, delay, delay, p=MAP_LAGS)
    apart = torch.cdist(places, places)
    at = torch.arange(MAP_LAGS) - (16 * apart).round().long()[..., None]
    wave = (-apart / 0.3).exp()[..., None] * gain_from[:, None] * profile[at.clamp(0, 1)] * ((at >= 0) & (at < 2))
    base, kernel = (0.1 + 0.2 * draw(PLACES)).expand(2, -1), scaled_to(torch.stack([hub, wave]), 0.8)
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
    return relative(found.kernel, given.kernel), share


@lesson.figure(
    ["true kernel", "Fourier (TNN)", "time slices", "ridge"], "lag (bins)",
    ["place, by distance from the hub", "place", "place", "place"], grid=(1, 4), size=(11.4, 3.6), legend=None,
)  # fmt: skip
def plot_map(*axes):
    """Draw what events at one place do at all others, through the hub: the truth and three fits."""
    given = maps()
    order = (given.places - 0.5).norm(dim=1).argsort()
    source = int(given.kernel[0].sum((0, 2)).argmax())
    kernels = [given.kernel, *(map_fit(name).kernel for name in ("fourier", "slices", "ridge"))]
    for one, kernel in zip(axes, kernels, strict=True):
        one.imshow(kernel[0, order, source], cmap="RdBu_r", vmin=-0.03, vmax=0.03, aspect="auto",
                   interpolation="nearest", extent=(0.5, MAP_LAGS + 0.5, PLACES, 0))  # fmt: skip
        one.grid(False)
    return (
        "Four images of how one place acts on 40 places (rows, nearest to the hub on top) at lags 1 to 24. The true kernel "
        "is a slanted band: places further from the hub answer later. Fourier and time slices show the band over faint "
        "noise, Fourier with fewer gaps; ridge shows it paler."
    )


# Predictions

rank_prediction = lesson.prediction(
    "31.P1",
    "Place $i$ answers an event at place $j$ after $d_i + e_j$ bins: the same answer, earlier or later. "
    "Delays differ from place "
    "to place, so most of the 12 x 12 matrices at a fixed lag have a rank of 2 to 6. Take the discrete Fourier "
    "transform along the lags. Which rank has the matrix at a fixed frequency?",
    {
        "12: the transform mixes all lags, and ranks add up": "Ranks add up at most. Here what is added "
        "fits together: each delay "
        "only turns a phase, and the phases of d and e multiply.",
        "2 to 6, as in time": "The transform is a rotation of the lags, but slices are not kept: each new "
        "slice is a sum of all "
        "old ones.",
        "1": "A delay multiplies a Fourier coefficient by a phase. The phase of d + e is a product: one factor belongs "
        "to the row, the other to the column.",
        "1 at frequency 0, larger elsewhere": "At frequency 0 a delay does nothing at all. At other "
        "frequencies it turns phases, "
        "which changes no rank.",
    },
    answer="1",
    reveal=plot_spread,
)

penalty_prediction = lesson.prediction(
    "31.P2",
    "Least squares with a penalty on one of the three norms of (31.5), sums of singular values: of the DFT slices "
    "(Fourier), of the time slices, or of the unfolding. On kernels with delays 0 to 3 the Fourier norm gives the "
    "smallest error. Now every kernel is separable, $a_ib_jg(\\tau)$: no delays, and each slice has rank 1 in time and "
    "in frequency. Again K = 4,000. Which norm gives the smallest error?",
    {
        "Fourier, by more than before": "The rank in frequency is 1 as before. But now the rank in time is "
        "1 as well: there "
        "is nothing left that only the Fourier norm sees.",
        "Fourier, by about as much as before": "Its advantage came from delays, which raise ranks in time. "
        "There are none.",
        "Not Fourier: the other two are better": "Time slices and the unfolding see rank 1 as well, and here they make "
        "more of it. Low rank helps, the Fourier transform does not.",
        "Ridge: low rank stops helping": "Low rank is still true, and ridge knows nothing of it.",
    },
    answer="Not Fourier: the other two are better",
    reveal=plot_controls,
)

FIGURES = lesson.figures
