"""Figures, explorer and predictions of lesson 18, rotary_position_embedding."""

import cmath
import math
from functools import partial

import numpy as np
import torch
from torch import Tensor

from course_lib.attention.rotary import (
    apply_rotary,
    mean_score,
    rope,
    rope_frequencies,
    rotary_table,
)
from course_lib.lessons.rotary_position_embedding import experiment as of
from course_lib.lessons.rotary_position_embedding.contents import lesson
from course_lib.measured import measured
from course_lib.teaching import Choice, Explorer, Slider, lines, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, RED, compact, small_legend

_compact = partial(compact, title=10, ticks=8.5, labels=9.5)
_legend = partial(small_legend, fontsize=8.5)

EULER_GAMMA = 0.5772156649015329
SENTENCES = ("the dog bit the man", "the man bit the dog")
PAIRS = of.HEAD // 2
LONG = 1024  # letters of the long text
TABLES = ("float64 angles", "float32 angles", "bfloat16 table", "bfloat16 angles")


# Two sentences: what stands where


def word_vector(word: str) -> Tensor:
    """Return the query and key of a word: 64 normal numbers, float64."""
    drawn = torch.randn(2, of.HEAD, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return drawn[("dog", "bit").index(word)]


def word_score(query: int, key: int) -> float:
    """Return the score of the query "bit" at one position with the key "dog" at another, both turned."""
    x = rope(torch.stack([word_vector("bit"), word_vector("dog")]), torch.tensor([query, key]))
    return float(x[0] @ x[1])


def sentence_scores() -> dict[str, tuple[float, float]]:
    """Return the score of "bit" and "dog", bare and turned, in both sentences and in the first moved by 100."""
    bare = float(word_vector("bit") @ word_vector("dog"))
    found = {}
    for sentence in SENTENCES:
        places = [sentence.split().index(word) for word in ("bit", "dog")]
        found[sentence] = (bare, word_score(*places))
    found[f"{SENTENCES[0]}, 100 positions on"] = (bare, word_score(102, 101))
    return found


@lesson.figure(
    ["without positions", "turned by the position"],
    "score of “bit” and “dog”",
    "sentence",
    size=(6.6, 2.0),
    grid=(1, 2),
    legend=None,
    subplots={"sharey": True},
    xlim=(0, 9),
)
def plot_sentences(*axes):
    """Draw one score in two sentences, and in the first one moved by 100, without and with rotation."""
    scores = sentence_scores()
    names = ["the dog bit\nthe man", "the man bit\nthe dog", "the first, 100\npositions on"]
    for place, (one, color, text) in enumerate(zip(axes, (BLUE, ORANGE), ("white", "black"), strict=True)):
        values = [pair[place] for pair in scores.values()]
        one.barh(range(3), values, color=color, height=0.6)
        for row, value in enumerate(values):
            one.text(value - 0.15, row, f"{value:.2f}", ha="right", va="center", fontsize=9.5, color=text)
        one.set(yticks=range(3), yticklabels=names, ylim=(2.5, -0.5))
    _compact(*axes)
    (bare, first), (_, second), (_, moved) = scores.values()
    return (
        f"Without positions the score is {bare:.2f} in all three. Turned, it is {first:.2f} when the dog bites, "
        f"{second:.2f} when it is bitten, and {moved:.2f} again 100 positions on."
    )


# A trained head on longer texts: the object of this lesson


def row(name: str, length: int) -> list[float]:
    """Return the stored accuracies of five heads, by arm or rule, on texts of a length."""
    return measured("longer_texts", name)["accuracy"][str(length)]


def shown_seed() -> int:
    """Return which of the five stored heads is shown: the middle one by its accuracy on long texts."""
    accuracies = row(of.AS_TRAINED, LONG)
    return sorted(range(5), key=accuracies.__getitem__)[2]


def head_hands() -> np.ndarray:
    """Return the 32 hands of the shown head's mean query and key, as complex numbers."""
    stored = np.array(measured("longer_texts", "hands")[shown_seed()])
    return stored[:, 0] + 1j * stored[:, 1]


def added(hands, distances, frequencies) -> np.ndarray:
    """Return the score (18.4) at each distance: the real parts of the turned hands, added up."""
    turned = np.exp(1j * np.outer(np.asarray(distances, dtype=float), np.asarray(frequencies)))
    return (turned @ np.asarray(hands)).real


def _dots(axes, place: float, values, color) -> None:
    """Draw the five heads as dots and their mean as a bar; dots at one height stand side by side."""
    axes.plot([place - 0.3, place + 0.3], [np.mean(values)] * 2, color=color, linewidth=2.6, linestyle="-")
    axes.plot(place + np.linspace(-0.2, 0.2, 5), values, "o", color=color, markersize=5)


@lesson.figure(
    None,
    "the text that is read",
    "share of right answers",
    size=(5.6, 2.4),
    legend=_legend("lower left"),
    ylim=(0, 1.08),
)
def plot_lengths(axes):
    """Draw how often the trained heads are right at the end of short and of long texts."""
    texts = {
        "64 letters": row(of.AS_TRAINED, 64),
        "64, from\nposition 1,000": measured("longer_texts", "64 letters from position 1,000"),
        "256 letters": row(of.AS_TRAINED, 256),
        "1,024 letters": row(of.AS_TRAINED, LONG),
    }
    for place, values in enumerate(texts.values()):
        _dots(axes, place, values, RED if place == 3 else BLUE)
    axes.axhline(1 / of.LETTERS, color=BLACK, linestyle=":", linewidth=1.2, label="guessing")
    axes.set(xticks=range(4), xticklabels=list(texts), xlim=(-0.5, 3.5))
    _compact(axes)
    values = list(texts.values())
    return (
        "Right answers at the end of a text, five heads as dots and a bar at their mean: "
        f"{np.mean(values[0]):.2f} for 64 letters, {np.mean(values[1]):.2f} for 64 from position 1,000, "
        f"{np.mean(values[2]):.2f} for 256, {np.mean(values[3]):.2f} for 1,024 letters."
    )


# One pair, many pairs


def _arrow(z: complex) -> np.ndarray:
    """Return an arrow from the origin to z as one polyline."""
    wings = [z - 0.14 * z / abs(z) * cmath.exp(1j * a) for a in (0.45, -0.45)]
    points = [0, z, wings[0], z, wings[1]]
    return np.array([[complex(p).real for p in points], [complex(p).imag for p in points]])


@lesson.figure(
    None,
    "first entry",
    "second entry",
    size=(5.6, 2.7),
    grid=(1, 2),
    xlim=(-1.35, 1.35),
    ylim=(-1.1, 1.7),
    aspect="equal",
    legend=_legend("upper center", ncols=2),
)
def plot_shift(*axes):
    """Draw a key and a query at positions (1, 3) and (4, 6): both turn, the angle between them stays."""
    w, z, omega = 1.0 + 0.3j, 0.9 + 0.5j, 0.4
    for one, (n, m) in zip(axes, ((1, 3), (4, 6)), strict=True):
        k, q = cmath.exp(1j * n * omega) * w, cmath.exp(1j * m * omega) * z
        lines(one, None, {f"key at {n}": tuple(_arrow(k)), f"query at {m}": tuple(_arrow(q))}, linewidth=2.4)
        arc = np.linspace(cmath.phase(k), cmath.phase(k) + cmath.phase(q / k), 40)
        one.plot(0.4 * np.cos(arc), 0.4 * np.sin(arc), color=BLACK, linestyle="-", linewidth=1.2)
        score = (q.conjugate() * k).real
        one.set_title(f"positions {n} and {m}: score {score:.3f}")
    _compact(*axes, grid=True)
    return (
        "A key and a query, turned by 0.4 radians a position. Three positions on, both have turned further by the same "
        f"angle, and their score is {score:.3f} again."
    )


CHAINED = (1, 10, 100, 1000)


@lesson.figure(
    [f"$s$ = {s:,}" for s in CHAINED],
    "first entries, added up",
    "second entries",
    size=(7.2, 2.1),
    grid=(1, 4),
    legend=None,
    subplots={"sharey": True},
    xlim=(-6, 34),
    ylim=(-4, 22),
)
def plot_chain(*axes):
    """Draw the score of a vector with itself as 32 hands laid head to tail, at four distances."""
    ends = []
    for one, s in zip(axes, CHAINED, strict=True):
        points = np.cumsum(np.concatenate([[0], np.exp(1j * s * rope_frequencies(of.HEAD).numpy()[::-1])]))
        one.plot(points.real, points.imag, "-", color=BLUE, linewidth=1.4, marker="o", markersize=2.2)
        one.plot([points[-1].real] * 2, [-4, points[-1].imag], color=RED, linestyle=":", linewidth=1.4)
        one.plot(points[-1].real, points[-1].imag, "o", color=RED, markersize=7)
        ends.append(points[-1].real)
    _compact(*axes)
    said = ", ".join(f"{end:.2f} at s = {s:,}" for s, end in zip(CHAINED, ends, strict=True))
    return (
        f"32 hands of length 1, head to tail, the slowest first. They end at {said}. The slow hands still point right; the "
        "fast ones curl up."
    )


def log_law(distances: Tensor, *, base: float | int, dim: int) -> Tensor:
    """Return 1 - (log s + gamma) / log(base) - 1/d, what the mean score follows between 1 and the base (18.6)."""
    return 1 - (distances.double().log() + EULER_GAMMA) / math.log(base) - 1 / dim


@lesson.figure(
    ["a key that is the query", "three keys for one query"],
    "distance $s$ (positions)",
    ["score / score at distance 0", "score / $|q|\\,|k|$"],
    size=(7.0, 2.4),
    grid=(1, 2),
    xscale=["log", "linear"],
    ylim=[(-0.45, 1.1), (-1.15, 2.0)],
    legend=[_legend("lower left"), small_legend("upper center", fontsize=7.5, ncols=2)],
)
def plot_decay(left, right_):
    """Draw the mean score against distance with the logarithmic law, and the scores of three particular keys."""
    frequencies = rope_frequencies(of.HEAD)
    distances = torch.arange(1, 1001)
    scores = mean_score(distances, frequencies)
    lines(left, distances, {"mean score": scores}, linewidth=0.9)
    law_range = torch.tensor([2.0, 1000.0])
    lines(left, law_range, {"$1 - (\\ln s + \\gamma)/\\ln b - 1/d$": log_law(law_range, base=10_000, dim=of.HEAD)},
          first=1, linewidth=2.2)  # fmt: skip
    near = torch.arange(0, 301)
    own, preferring = mean_score(near, frequencies), mean_score(near - 200, frequencies)
    lines(right_, near, {"the query": own, "turned on by 200": preferring, "its negative": -own})
    _compact(left, right_, grid=True)
    rising = float((scores.diff() > 0).double().mean())
    return (
        f"Left: the mean score swings around a falling line; {rising:.0%} of the single steps up to distance 1,000 go up. "
        "Right: the score of three keys. One that is the query, turned on by 200 positions, is highest at distance 200; the "
        "query's negative is lowest at 0."
    )


# What a longer text shows for the first time

DIALS = (1, 5, 9, 13, 17, 21, 25, 32)


@lesson.figure(
    [f"pair {i}" for i in DIALS], size=(8.2, 1.4), grid=(1, 8), legend=None, bare=True, aspect="equal",
    xlim=(-1.2, 1.2), ylim=(-1.2, 1.2),
)  # fmt: skip
def plot_arcs(*axes):
    """Draw the dials of eight pairs: the arc that distances up to 63 show, and what 1,023 adds."""
    frequencies, new = rope_frequencies(of.HEAD), []
    for one, i in zip(axes, DIALS, strict=True):
        reach = [min(s * float(frequencies[i - 1]), 2 * math.pi) for s in (LONG - 1, of.TRAINED - 1)]
        for end, color in zip(reach, (ORANGE, BLUE), strict=True):
            arc = np.exp(1j * np.linspace(0, end, 200))
            one.fill(np.append(arc.real, 0), np.append(arc.imag, 0), color=color, linewidth=0)
        rim = np.exp(1j * np.linspace(0, 2 * math.pi, 120))
        one.plot(rim.real, rim.imag, color=BLACK, linewidth=1, linestyle="-")
        new.append((reach[0] - reach[1]) / (2 * math.pi))
        one.set_title(f"pair {i}", fontsize=9.5)
    fresh = [i for i, share in zip(DIALS, new, strict=True) if share > 0]
    return (
        "Angles between query and key, for eight of the 32 pairs. Blue: distances up to 63. Orange: what distances up to "
        f"1,023 add, in the shown pairs {', '.join(map(str, fresh[:-1]))} and {fresh[-1]}."
    )


RETURN = 407  # where the shown head has a high hill: 402 positions further, the fastest clock has made 64.0 turns


@lesson.figure(
    ["distances in training", "64 distances far out"],
    "distance $s$ (positions)",
    "mean score",
    size=(7.4, 2.4),
    grid=(1, 2),
    legend=None,
    subplots={"sharey": True},
)
def plot_hills(left, right_):
    """Draw the mean score of the shown head against the distance, in training and around the distance 407."""
    scores = added(head_hands(), np.arange(LONG), rope_frequencies(of.HEAD))
    far = np.arange(RETURN - of.BACK - 18, RETURN - of.BACK + of.TRAINED - 18)
    left.plot(np.arange(of.TRAINED), scores[: of.TRAINED], color=BLUE)
    right_.plot(far, scores[far], color=ORANGE, linestyle="-")
    for axes, s in ((left, of.BACK), (right_, RETURN)):
        axes.plot(s, scores[s], "o", color=RED, markersize=7)
        axes.annotate(f"s = {s}", (s, scores[s]), xytext=(9, -11), textcoords="offset points", fontsize=9)
        axes.axhline(scores[of.BACK], color=BLACK, linestyle=":", linewidth=1.1)
    left.set_ylim(float(scores.min()) - 2, float(scores.max()) + 4)
    _compact(left, right_, grid=True)
    others, beyond = np.delete(scores[: of.TRAINED], of.BACK), scores[of.TRAINED :]
    return (
        f"The mean score of one head; dotted, its height five back, {scores[of.BACK]:.1f}. In training the next highest is "
        f"{others.max():.1f}. Beyond 63 the highest is {beyond.max():.1f}, at {of.TRAINED + int(beyond.argmax())}."
    )


BLAMED = {
    of.AS_TRAINED: "nothing",
    of.SLOW_CAPPED: "the 23 slow pairs",
    of.FAST_CAPPED: "the 9 fast pairs",
    of.CAPPED: "all 32 pairs",
}


def _rows_of_dots(axes, rows, found, *, below: int) -> None:
    """Draw a row of five dots and a bar at their mean for each name; rows from `below` on are other heads."""
    for place, values in enumerate(found):
        color = BLUE if place < below else GREEN
        axes.plot(values, place + np.linspace(-0.2, 0.2, 5), "o", color=color, markersize=4.5)
        axes.plot([np.mean(values)] * 2, [place - 0.34, place + 0.34], color=color, linewidth=2.4, linestyle="-")
    axes.axvline(1 / of.LETTERS, color=BLACK, linestyle=":", linewidth=1.2)
    axes.set(yticks=range(len(rows)), yticklabels=list(rows.values()), ylim=(len(rows) - 0.5, -0.5))


def same_heads(rule: str) -> list[float]:
    """Return the stored accuracies on 1,024 letters of the five heads of the page, read by a rule."""
    return measured("longer_texts", f"{rule}, the same heads")


@lesson.figure(
    ["the five heads", "heads of other rates, means"],
    ["share of right answers", "learning rate"],
    ["capped at 63", "share of right answers"],
    size=(7.2, 2.5),
    grid=(1, 2),
    legend=[None, small_legend("upper center", fontsize=7.5, ncols=2)],
    xlim=[(-0.03, 1.04), (0.0016, 0.075)],
    ylim=[(3.5, -0.5), (0, 1.42)],
    xscale=["linear", "log"],
)
def plot_blame(left, right_):
    """Draw how often heads are right on 1,024 letters when far distances are capped in some pairs."""
    found = {rule: same_heads(rule) for rule in BLAMED}
    _rows_of_dots(left, BLAMED, found.values(), below=4)
    rates = ["0.002", "0.006", "0.02", "0.06"]
    means = {BLAMED[rule]: [measured("longer_texts", rule)["mean by rate"][rate] for rate in rates] for rule in BLAMED}
    for place, (marker, (name, values)) in enumerate(zip("os^D", means.items(), strict=True)):
        lines(right_, [float(rate) for rate in rates], {name: values}, first=place, marker=marker, markersize=5)
    right_.set_xticks([float(rate) for rate in rates], rates)
    right_.minorticks_off()
    _compact(left, right_, grid=True)
    said = "; ".join(f"{shown} {np.mean(found[rule]):.2f}" for rule, shown in BLAMED.items())
    return (
        f"Right answers at the end of 1,024 letters. Left, the five heads; means: {said}. Dotted, guessing. Right, means of "
        "heads that were trained at other rates."
    )


@lesson.figure(
    [f"pair {i}" for i in range(1, 10)], size=(8.4, 1.5), grid=(1, 9), legend=None, bare=True, aspect="equal",
    xlim=(-1.25, 1.25), ylim=(-1.25, 1.25),
)  # fmt: skip
def plot_return(*axes):
    """Draw the nine fast clocks at the distances 5 and 407, each hand as long as its share in the head."""
    frequencies, hands = rope_frequencies(of.HEAD).numpy(), head_hands()
    off = []
    for i, one in enumerate(axes, start=1):
        rim = np.exp(1j * np.linspace(0, 2 * math.pi, 120))
        one.plot(rim.real, rim.imag, color=BLACK, linewidth=0.8, linestyle="-")
        ends = [np.exp(1j * s * frequencies[i - 1]) for s in (of.BACK, RETURN)]
        one.plot([0, ends[0].real], [0, ends[0].imag], color=BLUE, linewidth=4.5, linestyle="-", solid_capstyle="butt")
        one.plot([0, ends[1].real], [0, ends[1].imag], color=ORANGE, linewidth=2.0, linestyle="-")
        size = abs(hands[i - 1])
        one.set_title(f"pair {i}\nlength {size:.1f}", fontsize=8.5)
        off.append(abs(math.degrees(np.angle(ends[1] / ends[0]))))
    return (
        f"The dials of the nine fast pairs at distance {of.BACK} (thick, blue) and {RETURN} (thin, orange), and how long "
        f"the shown head's hands are. The first four are at most {math.ceil(max(off[:4]))} degrees apart."
    )


def _rows() -> dict[str, str]:
    """Return the rows of the closing picture: the name that is stored, and the one that is shown."""
    return {
        of.AS_TRAINED: "read as in training",
        of.INTERPOLATED: "all pairs slowed alike (18.7)",
        of.NTK: "new base (18.9)",
        of.LLAMA: "by turns (18.8)",
        of.CAPPED: "distances capped at 63",
        of.NEVER: "slow pairs never turned",
        of.LEARNED: "learned positions",
        of.SINES: "sinusoids",
        of.NONE: "no positions",
    }


@lesson.figure(
    ["256 letters", "1,024 letters"],
    "share of right answers",
    "how positions are told",
    size=(7.0, 2.9),
    grid=(1, 2),
    legend=None,
    subplots={"sharey": True},
    xlim=(-0.03, 1.04),
)
def plot_rules(*axes):
    """Draw how often five heads of each kind are right at the end of texts that are 4 and 16 times as long."""
    rows = _rows()
    for one, length in zip(axes, (256, LONG), strict=True):
        _rows_of_dots(one, rows, [row(name, length) for name in rows], below=5)
        one.axhline(4.5, color=BLACK, linewidth=0.8, linestyle="-")
    _compact(*axes, grid=True)
    said = "; ".join(f"{shown} {np.mean(row(name, LONG)):.2f}" for name, shown in rows.items())
    return (
        "Right answers, five heads a row as dots and a bar at their mean; dotted, guessing. Above the line heads of one "
        f"kind, read by five rules; below it heads trained otherwise. Means for 1,024 letters: {said}."
    )


def rates_table():
    """Return as a table, for each row of the closing picture, the mean of five heads at each learning rate."""
    rows = {**_rows(), of.SLOW_CAPPED: "slow pairs capped at 63", of.FAST_CAPPED: "fast pairs capped at 63"}
    found = {shown: measured("longer_texts", name)["mean by rate"] for name, shown in rows.items()}
    rates = list(next(iter(found.values())))
    return markdown_table(
        ("1,024 letters, mean of five; rate", *rates),
        [(shown, *(f"{means[rate]:.2f}" for rate in rates)) for shown, means in found.items()],
    )


# Number formats


def low_precision_table(positions: Tensor, frequencies: Tensor, *, kind: str) -> Tensor:
    """Return the table e^{j t omega} as it comes out when angles or cosines are rounded on the way.

    "float64 angles" is `rotary_table`; "float32 angles" rounds frequency and product to float32; "bfloat16 table" rounds
    their cosines and sines to bfloat16 besides; "bfloat16 angles" rounds position, frequency and product to bfloat16.
    """
    if kind == "float64 angles":
        return rotary_table(positions, frequencies)
    dtype = torch.bfloat16 if kind == "bfloat16 angles" else torch.float32
    angles = (positions.to(dtype)[:, None] * frequencies.to(dtype)).float()
    cos, sin = angles.cos(), angles.sin()
    if kind == "bfloat16 table":
        cos, sin = cos.bfloat16().float(), sin.bfloat16().float()
    return torch.complex(cos, sin)


def shift_errors(starts: Tensor, *, kind: str, offset: int = 100, dim: int = 64) -> Tensor:
    """Return for each start m the largest change of a score, |s(m, m + offset) - s(0, offset)| / (|q| |k|).

    Exact rotations give 0. The largest is taken over 64 pairs of normal float32 vectors.
    """
    generator = torch.Generator().manual_seed(14)
    q, k = (torch.randn(64, 1, dim, generator=generator, dtype=torch.float32) for _ in range(2))
    frequencies = rope_frequencies(dim)

    def turned(x, positions):
        table = low_precision_table(positions, frequencies, kind=kind)
        return apply_rotary(x.expand(-1, len(positions), -1), table, layout="interleaved").double()

    def scores(positions):
        return (turned(q, positions) * turned(k, positions + offset)).sum(-1)

    sizes = (q.norm(dim=-1) * k.norm(dim=-1)).double()
    return ((scores(starts) - scores(torch.zeros(1, dtype=torch.long))).abs() / sizes).amax(0)


@lesson.figure(
    None,
    "start of the pair (position)",
    "change of the score / $|q|\\,|k|$",
    size=(5.2, 2.3),
    xscale="log",
    yscale="log",
    ylim=(1e-8, 1e3),
    legend=_legend("upper left", ncols=2),
)
def plot_precision(axes):
    """Draw how much a score changes when query and key are shifted together, for four ways to form the angles."""
    starts = torch.tensor([2**k for k in range(4, 18)])
    errors = {kind: shift_errors(starts, kind=kind) for kind in TABLES}
    for place, (marker, (kind, found)) in enumerate(zip("os^D", errors.items(), strict=True)):
        lines(axes, starts, {kind: found}, first=place, marker=marker, markersize=5)
    _compact(axes, grid=True)
    return (
        "The largest change of a score, relative to the lengths, when a query and a key 100 positions apart are moved from "
        "0 to a start up to position 131,072. With float64 angles it stays at the rounding of float32; with float32 "
        "angles it grows with the position; with bfloat16 angles it is above a tenth of the lengths far out."
    )


# The explorer

ITSELF, ANOTHER, TRAINED_HEAD = KEYS = ("the query itself", "another key", "the trained head's")


@lesson.explorer
class ChainExplorer(Explorer):
    """The score as 32 hands laid head to tail, and as a curve over the distance."""

    title = "One score, 32 hands"
    summary = (
        "Left: 32 hands laid head to tail from the origin, the slowest first. Each has turned by the distance times its "
        "frequency; the chain ends at the red dot, and how far right it ends is the score. Right: the score against the "
        "distance; the red dot is the present distance."
    )
    # No further than the page asks for: each pixel of the slider is three positions.
    distance = Slider(
        "distance", "s", "How many positions before the query the key stands", 0, 0, 1000, 1,
    )  # fmt: skip
    exponent = Slider(
        "base", "log10 b", "The frequencies fall from 1 to nearly 1/b, in equal ratios", 4.0, 2.0, 6.0, 0.25
    )
    key = Choice("key", "Which vector the key is", ITSELF, KEYS)
    together = ("distance", "exponent")
    stills = ({"distance": 0}, {"distance": 10}, {"distance": 1000})
    size = (9.2, 3.3)
    strip_scale = 0.655
    reach = 1000
    layout = panels(
        ["32 hands, head to tail", "how far right they end"],
        ["first entries, added up", "distance $s$ (positions)"],
        ["second entries, added up", "score"],
        grid=(1, 2),
        subplots={"width_ratios": [1, 1.25]},
        xlim=[(-36, 36), (-20, reach + 20)],
        ylim=[(-34, 34), (-36, 40)],
        legend=None,
    )

    def compute(self, *, distance, exponent, key):
        """Return the points of the chain, the scores at all distances, and where both end."""
        frequencies = rope_frequencies(of.HEAD, base=10.0**exponent).numpy()
        hands = head_hands() if key == TRAINED_HEAD else np.ones(PAIRS, dtype=complex)
        if key == ANOTHER:
            hands = hands * np.exp(-200j * rope_frequencies(of.HEAD).numpy())
        turned = (hands * np.exp(1j * distance * frequencies))[::-1]
        points = np.concatenate([[0], np.cumsum(turned)])
        scores = added(hands, np.arange(self.reach + 1), frequencies)
        return {
            "chain": (points.real, points.imag),
            "end": (points[-1].real, points[-1].imag),
            "scores": (np.arange(self.reach + 1), scores),
            "here": (distance, scores[distance]),
            "straight": float((np.abs(np.angle(turned / np.abs(turned))) < math.pi / 2).sum()),
            "score": float(scores[distance]),
            "setting": (distance, exponent, key),
        }

    def draw(self, chain, curve):
        """Draw the axes of both pictures, and chain, curve and dots to be moved."""
        _compact(chain, curve, grid=True)
        curve.axhline(0, color=BLACK, linewidth=0.8, linestyle="-")
        return {
            "chain": chain.plot([], [], "-o", color=BLUE, linewidth=1.4, markersize=2.5)[0],
            "end": chain.plot([], [], "o", color=RED, markersize=9)[0],
            "scores": curve.plot([], [], color=BLUE, linestyle="-", linewidth=0.9)[0],
            "here": curve.plot([], [], "o", color=RED, markersize=9)[0],
        }

    def words(self, state):
        """Say where the chain ends, and how many hands point right."""
        distance, exponent, key = state["setting"]
        return (
            f"Key: {key}; base {10**exponent:,.0f}. At distance {distance} the chain ends {state['score']:.2f} to the "
            f"right; {state['straight']:.0f} of its 32 hands point to the right."
        )


# Predictions

length_prediction = lesson.prediction(
    "18.P1",
    "The heads were trained on texts of 64 letters. Now each reads 1,024 letters and is asked at the "
    "last 16 places what stood five back. Positions enter a score through distances alone, "
    "and five is a distance that it knows well. What is the mean share of right answers of the five heads?",
    {
        "1.00, as on 64 letters": "The key five back scores as before. But the softmax compares it with keys at distances "
        "from 64 on, which no text in training had.",
        "About 0.9": "That is nearer to what they reach on 256 letters.",
        "About 0.5": right("The key five back scores as it did. Some keys further back than 63 score as high."),
        "About 0.06, as by guessing": "Two of the five are near that, but the others are not.",
    },
    reveal=plot_lengths,
)

decay_prediction = lesson.prediction(
    "18.P2",
    "The key is the query itself, with all pairs of one length, at base 10,000. It is moved back from distance 1 to 1,000, "
    "one position at a time. In how many of these steps does the score rise?",
    {
        "In none": "That would be a law of decay. But a hand that has made half a turn swings back, and the fastest does "
        "so within four positions.",
        "In about one in ten": "Only the fast hands move much in one step, and they swing back as often as they swing "
        "away.",
        "In nearly half": right(
            "The fast hands move most in a step, and go up about as often as down. The slow ones make the trend."
        ),
        "In most": "The score ends lower than it starts; but a trend of a few thousandths a step leaves both signs.",
    },
    reveal=plot_decay,
)

blame_prediction = lesson.prediction(
    "18.P3",
    "A trial, with no further training: some of the pairs are capped, so that they count every distance above 63 as 63. "
    "All other pairs turn on. Which of these sets is the smallest that brings the five heads to more than nine "
    "right answers in ten, on average, at the end of 1,024 letters?",
    {
        "The 23 slow ones, whose angles are new": "That takes every new angle away, and the mean rises by about a tenth.",
        "The 9 fast ones, whose angles are old": right(
            "Each of their angles is old. What is new is that they come back together, at distances that training did "
            "not reach."
        ),
        "Neither alone: both have to be capped": "One of the two is enough.",
        "Not even for all: too many keys share the softmax": "With all pairs capped there are as many keys, and more than "
        "nine answers in ten are right.",
    },
    reveal=plot_blame,
)

FIGURES = lesson.figures
