"""Experiments, figures, explorer and predictions of lesson 14, rotary_position_embedding."""

import cmath
import math

import numpy as np
import torch
from torch import Tensor

from course_lib.attention.rotary import (
    apply_rotary,
    interpolated_frequencies,
    llama3_frequencies,
    mean_score,
    ntk_aware_base,
    ntk_frequencies,
    rope,
    rope_frequencies,
    rotary_table,
    yarn_frequencies,
)
from course_lib.figures import BLACK, BLUE, RED
from course_lib.lessons.rotary_position_embedding.contents import lesson
from course_lib.teaching import Choice, Explorer, Slider, lines, panels

EULER_GAMMA = 0.5772156649015329
SENTENCE = ("the", "dog", "bit", "the", "man")
EXTENSIONS = ("none", "interpolation, 4 times", "NTK-aware base, 4 times")
TABLES = ("float64 angles", "float32 angles", "bfloat16 table", "bfloat16 angles")


def log_law(distances: Tensor, *, base: float | int, dim: int) -> Tensor:
    """Return 1 - (log s + gamma) / log(base) - 1/d, what the mean score follows between 1 and the base (14.14)."""
    return 1 - (distances.double().log() + EULER_GAMMA) / math.log(base) - 1 / dim


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
    q, k = (torch.randn(64, 1, dim, generator=generator) for _ in range(2))
    frequencies = rope_frequencies(dim)

    def turned(x, positions):
        table = low_precision_table(positions, frequencies, kind=kind)
        return apply_rotary(x.expand(-1, len(positions), -1), table, layout="interleaved").double()

    def scores(positions):
        return (turned(q, positions) * turned(k, positions + offset)).sum(-1)

    sizes = (q.norm(dim=-1) * k.norm(dim=-1)).double()
    return ((scores(starts) - scores(torch.zeros(1, dtype=torch.long))).abs() / sizes).amax(0)


def word_vectors() -> Tensor:
    """Return one vector of 32 entries for each word of the sentence; the two "the" share theirs."""
    generator = torch.Generator().manual_seed(3)
    drawn = {
        word: torch.randn(32, generator=generator, dtype=torch.float64) / math.sqrt(32)
        for word in dict.fromkeys(SENTENCE)
    }
    return torch.stack([drawn[word] for word in SENTENCE])


def _table(axes, values, words, *, limit: float, ticks, light: float) -> None:
    """Draw a square of numbers as colours, with a word in each cell where `words` has one."""
    axes.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit)
    for (row, column), word in words.items():
        color = "white" if abs(float(values[row, column])) > light else "black"
        axes.text(column, row, word, ha="center", va="center", fontsize=8, color=color)
    axes.set(xticks=range(len(ticks)), yticks=range(len(ticks)), xticklabels=ticks, yticklabels=ticks)
    axes.grid(visible=False)


@lesson.figure(["Without positions", "With rotary positions"], "key", "query", size=(8.4, 4.2), grid=(1, 2))
def plot_question(*axes):
    """Draw the scores of a sentence's words with each other, without positions and with RoPE."""
    x = word_vectors()
    turned = rope(x, torch.arange(5))
    for one, scores in zip(axes, (x @ x.T, turned @ turned.T), strict=True):
        words = {(m, n): f"{round(float(scores[m, n]), 2) + 0.0:.2f}" for m in range(5) for n in range(5)}
        _table(one, scores.numpy(), words, limit=1.6, ticks=SENTENCE, light=1.1)
    a, b = (f"{float((turned @ turned.T)[1, n]):.2f}" for n in (0, 3))
    return (
        "Two tables of scores between the words of “the dog bit the man”. Without positions the columns of the first and "
        "the second “the” are equal, and exchanging dog and man only exchanges rows and columns. With rotary positions "
        f"the scores differ with the distance: “dog” scores {a} with the “the” before it and {b} with the other one."
    )


def _arrow(z: complex) -> np.ndarray:
    """Return an arrow from the origin to z as one polyline."""
    wings = [z - 0.14 * z / abs(z) * cmath.exp(1j * a) for a in (0.45, -0.45)]
    points = [0, z, wings[0], z, wings[1]]
    return np.array([[complex(p).real for p in points], [complex(p).imag for p in points]])


@lesson.figure(
    None,
    "first entry",
    "second entry",
    size=(8.4, 4.2),
    grid=(1, 2),
    xlim=(-1.35, 1.35),
    ylim=(-1.1, 1.7),
    aspect="equal",
    legend={"loc": "upper center", "ncols": 2, "fontsize": 8},
)
def plot_shift(*axes):
    """Draw a query and a key at positions (1, 3) and (4, 6): both turn, the angle between them stays."""
    z, w, omega = 1.0 + 0.3j, 0.9 + 0.5j, 0.4
    for one, (m, n) in zip(axes, ((1, 3), (4, 6)), strict=True):
        q, k = cmath.exp(1j * m * omega) * z, cmath.exp(1j * n * omega) * w
        arrows = {f"query at position {m}": tuple(_arrow(q)), f"key at position {n}": tuple(_arrow(k))}
        lines(one, None, arrows, linewidth=2.4)
        arc = np.linspace(cmath.phase(q), cmath.phase(q) + cmath.phase(k / q), 40)
        one.plot(0.4 * np.cos(arc), 0.4 * np.sin(arc), color=BLACK, linestyle="-", linewidth=1.2)
        score = (q.conjugate() * k).real
        one.set_title(f"positions {m} and {n}: score {score:.3f}")
    return (
        "A query and a key in the plane, turned by 0.4 radians a position. At positions 4 and 6 both arrows have turned "
        f"further than at 1 and 3, by the same angle, and their score is {score:.3f} in both pictures."
    )


@lesson.figure(
    "From 6 positions to tens of thousands ($d$ = 128)",
    "pair $i$",
    "positions for one turn, $2\\pi/\\omega_i$",
    yscale="log",
    ylim=(3, 1e7),
    legend="upper left",
)
def plot_wavelengths(axes, *, context: int = 4096):
    """Draw how many positions each pair of 128 entries needs for a whole turn, for two bases, and a context length."""
    said, index = [], np.arange(1, 65)
    for place, base in enumerate((10_000, 500_000)):
        periods = 2 * math.pi / rope_frequencies(128, base=base)
        lines(axes, index, {f"base {base:,}": periods}, first=place)
        said.append(
            f"with base {base:,} the last pair needs {float(periods[-1]):,.0f} positions for a turn, and "
            f"{int((periods > context).sum())} of 64 pairs do not complete one within {context:,}"
        )
    axes.axhline(context, color=BLACK, linestyle=":", linewidth=1.4, label=f"context of {context:,} positions")
    return (
        "Positions that pair i needs for a whole turn against i, on a logarithmic scale, for heads of 128 entries: "
        "straight lines that start at 6.3. " + "; ".join(said).capitalize() + "."
    )


@lesson.figure(
    ["interleaved: neighbours", "half: $x_i$ with $x_{i+d/2}$"],
    "entry that goes in",
    "entry that comes out",
    size=(8.4, 4.2),
    grid=(1, 2),
)
def plot_layouts(*axes, dim: int = 8, position: int = 1):
    """Draw the rotation matrix of one position in both layouts."""
    for one, layout in zip(axes, ("interleaved", "half"), strict=True):
        unit_vectors = torch.eye(dim, dtype=torch.float64)
        # Column k says where e_k goes.
        matrix = rope(unit_vectors, torch.full((dim,), position), layout=layout, base=16).T
        pair_of = torch.arange(dim) // 2 if layout == "interleaved" else torch.arange(dim) % (dim // 2)
        words = {}
        for row, column in (pair_of[:, None] == pair_of).nonzero().tolist():
            kind = "cos" if row == column else ("sin" if matrix[row, column] > 0 else "-sin")
            words[row, column] = f"{kind} {int(pair_of[row]) + 1}"
        _table(one, matrix.numpy(), words, limit=1.0, ticks=range(1, dim + 1), light=0.7)
    return (
        f"The matrix that turns a head of {dim} entries, in both layouts; cos 2 stands for the cosine of pair 2. "
        "Interleaved: 2 x 2 blocks along the diagonal. Half: cosines on the diagonal, sines on two diagonals four "
        "entries away."
    )


@lesson.figure(
    ["Falls by the logarithm, with rises", "Three keys for one query"],
    "distance $s$ (positions)",
    ["score / score at distance 0", "score / $|q|\\,|k|$"],
    size=(10.0, 4.2),
    grid=(1, 2),
    xscale=["log", "linear"],
    ylim=[(-0.6, 1.1), (-1.15, 1.75)],
    legend=[{"loc": "lower left", "fontsize": 8}, {"loc": "upper center", "fontsize": 8, "ncols": 2}],
)
def plot_decay(left, right, *, dim: int = 64, base: int = 10_000):
    """Draw the mean score against distance with the logarithmic law, and the scores of three particular keys."""
    frequencies = rope_frequencies(dim, base=base)
    distances = torch.arange(1, 4 * base)
    scores = mean_score(distances, frequencies)
    lines(left, distances, {"mean score (14.13)": scores}, linewidth=0.9)
    law_range = torch.tensor([2.0, base / 4])
    law = log_law(law_range, base=base, dim=dim)
    lines(left, law_range, {"logarithmic law (14.14)": law}, first=1, linewidth=2.4)
    near = torch.arange(0, 301)
    own, preferring = mean_score(near, frequencies), mean_score(near - 200, frequencies)
    lines(right, near, {"key = query": own, "query turned back by 200": preferring, "key = -query": -own})
    rising = float((scores[:1000].diff() > 0).double().mean())
    later = float(scores[2000:].max())
    return (
        f"Left: the mean score against the distance, logarithmic, for d = {dim} and base {base:,}. It follows the straight "
        f"line of the logarithmic law from 0.85 down to about 0 near distance {base:,}, with swings around it: "
        f"{rising:.0%} of the first 1,000 steps go up, and beyond distance 2,000 it still reaches {later:.2f}. Right: "
        "scores of three keys up to distance 300. The query itself scores most at distance 0, a turned copy of it at "
        "distance 200, and its negative rises with the distance from -1."
    )


@lesson.figure(
    "$\\cos(s\\,\\omega_i)$: red is 1, blue is -1; below the line pairs still agree",
    "distance $s$ (positions)",
    "frequency $\\omega_i$ of the pair",
    size=(7.2, 4.2),
    legend="upper right",
    xscale="log",
    yscale="log",
)
def plot_frontier(axes, *, dim: int = 64, base: int = 10_000):
    """Draw cos(s omega_i) as a colour for every pair and distance, with the line on which s omega_i is 1."""
    frequencies = rope_frequencies(dim, base=base)
    distances = torch.logspace(0, 4, 400, dtype=torch.float64)
    terms = torch.cos(torch.outer(frequencies, distances))
    axes.pcolormesh(
        distances.numpy(), frequencies.numpy(), terms.numpy(), cmap="RdBu_r", vmin=-1, vmax=1, shading="nearest"
    )
    axes.plot(distances, 1 / distances, color=BLACK, linewidth=2, label="$s\\,\\omega_i = 1$")
    axes.set(ylim=(float(frequencies[-1]), 1.0))
    axes.grid(visible=False)
    still = ", ".join(f"{int((s * frequencies < 1).sum())} at distance {s}" for s in (10, 100, 1000))
    return (
        f"The cosine of the distance times the frequency for {dim // 2} pairs, as a colour, over distance and frequency, "
        "both logarithmic. Below a slanted line, where distance times frequency is less than 1, it is near 1; above the "
        f"line it changes sign in ever narrower stripes. Pairs below the line: {still}."
    )


@lesson.figure(
    "The bound falls and never helps",
    "distance $s$ (positions)",
    "size",
    size=(7.2, 4.2),
    legend={"loc": "upper center", "ncols": 3, "fontsize": 9},
    xscale="log",
    yscale="log",
    ylim=(1, 3e4),
)
def plot_bound(axes, *, dim: int = 64):
    """Draw the size of a random pair's complex score against the distance, with the paper's bound and a trivial one."""
    generator = torch.Generator().manual_seed(14)
    z, w = torch.randn(2, dim // 2, generator=generator, dtype=torch.complex128)
    products, distances = z.conj() * w, torch.arange(1, 2001)
    rotations = torch.exp(1j * torch.outer(distances.double(), rope_frequencies(dim)))
    jumps = torch.cat([products, torch.zeros(1, dtype=products.dtype)]).diff().abs().amax()
    bound, trivial = jumps * rotations.cumsum(1).abs().sum(1), products.abs().sum()
    curves = {"bound (14.15)": bound, "$\\Sigma_i |h_i|$": trivial.expand(len(distances))}
    lines(axes, distances, {**curves, "score (14.15)": (rotations @ products).abs()}, linewidth=1.2)
    return (
        "Size of the complex score of two random vectors against their distance, both logarithmic, with two bounds. The "
        f"bound (14.15) falls from {float(bound[0]):.0f} to {float(bound[-1]):.0f}, and its smallest value, "
        f"{float(bound.min()):.0f}, is above the level line at {float(trivial):.0f}, the sum of the sizes. The score "
        "itself stays below that line and does not fall."
    )


def extended(*, dim: int = 128, scale: int = 4, trained_length: int = 4096) -> dict[str, Tensor]:
    """Return the frequencies that four methods give a head for `scale` times the context of training."""
    plain = rope_frequencies(dim)
    return {
        "interpolation": interpolated_frequencies(plain, scale=scale),
        "NTK-aware base": ntk_frequencies(dim, scale=scale),
        "YaRN": yarn_frequencies(dim, scale=scale, trained_length=trained_length),
        "Llama 3": llama3_frequencies(plain, scale=scale, trained_length=trained_length),
    }


@lesson.figure(
    None,
    "positions for a turn, before the change",
    "slowed down by the factor",
    size=(7.6, 4.4),
    xscale="log",
    ylim=(0.6, 5.6),
    legend={"loc": "upper left", "ncols": 2},
)
def plot_extension(axes, *, dim: int = 128, scale: int = 4, trained_length: int = 4096):
    """Draw by how much four methods of extending the context slow each pair down, against its wavelength."""
    plain = rope_frequencies(dim)
    turn = 2 * math.pi / plain
    slowed = {name: plain / new for name, new in extended(dim=dim, scale=scale, trained_length=trained_length).items()}
    for place, (marker, (name, factor)) in enumerate(zip("os^D", slowed.items(), strict=True)):
        lines(axes, turn, {name: factor}, first=place, marker=marker, markersize=4)
    axes.axvspan(trained_length, float(turn[-1]), color="0.9", zorder=0)
    axes.text(math.sqrt(trained_length * float(turn[-1])), 0.72, "less than a turn\nin training", ha="center", va="bottom",
              fontsize=9)  # fmt: skip
    axes.set_title(f"Making room for {scale} times {trained_length:,} positions ($d$ = {dim})")
    kept = {name: int((factor < 1 + 1e-9).sum()) for name, factor in slowed.items()}
    short = {name: int(((factor < scale - 1e-9) & (turn > trained_length)).sum()) for name, factor in slowed.items()}
    return (
        f"By what factor each of {dim // 2} pairs is slowed down for {scale} times {trained_length:,} positions, against "
        "the positions that it needed for a turn. Interpolation: a level line. NTK-aware base: a curve that bends upwards "
        f"from 1 at the fastest pair to {scale} at the slowest. YaRN and Llama 3: 1 for fast pairs, {scale} for those with "
        "less than a turn in training, and a ramp between. Pairs that are left alone: "
        + ", ".join(f"{name} {count}" for name, count in kept.items())
        + f". Pairs with less than a turn in training that are slowed by less than {scale}: "
        + ", ".join(f"{name} {count}" for name, count in short.items())
        + "."
    )


@lesson.figure(
    "Shifting both should change nothing",
    "start of the pair (position)",
    "change of the score / $|q|\\,|k|$",
    size=(7.2, 4.4),
    xscale="log",
    yscale="log",
    ylim=(1e-9, 1e3),
    legend={"loc": "upper left", "ncols": 2, "fontsize": 8},
)
def plot_precision(axes):
    """Draw how much a score changes when query and key are shifted together, for four ways to form the angles."""
    starts = torch.tensor([2**k for k in range(4, 18)])
    errors = {kind: shift_errors(starts, kind=kind) for kind in TABLES}
    for place, (marker, (kind, found)) in enumerate(zip("os^D", errors.items(), strict=True)):
        lines(axes, starts, {kind: found}, first=place, marker=marker, markersize=5)
    said = [f"{kind} {float(found[-1]):.0e}" for kind, found in errors.items()]
    return (
        "The largest change of a score, relative to the lengths, when a query and a key 100 positions apart are moved from "
        "0 to a start position up to 131,072; both axes logarithmic. At the far end: " + ", ".join(said) + ". "
        "Only the float64 angles stay flat; float32 angles get worse in proportion to the position."
    )


@lesson.explorer
class ClockExplorer(Explorer):
    """Eight pairs as clocks at a distance, and the score that their hands add up to."""

    title = "Clocks and the score they add up to"
    summary = (
        "Left: eight of the pairs as clocks, the fastest first; the thin hand is the query, the thick one the same vector "
        "as a key that many positions later. Right: the mean of the thick hands' horizontal parts over all pairs, which "
        "is the score, against the distance; the dot is the present distance."
    )
    distance = Slider(
        "distance",
        "n - m",
        "How many positions after the query the key stands; only this difference counts",
        default=24,
        minimum=0,
        maximum=400,
        step=1,
    )
    exponent = Slider(
        "base",
        "log10 b",
        "The base b of the frequencies: 4 is 10,000; a larger one slows all pairs but the first",
        default=4.0,
        minimum=2.0,
        maximum=6.0,
        step=0.25,
    )
    dim = Choice(
        "entries of a head d", "How many entries a query has; half as many pairs turn", "64", ("16", "64", "128")
    )
    extension = Choice(
        "context extension",
        "How the frequencies are changed to make room for 4 times the context",
        "none",
        EXTENSIONS,
    )
    together = ("distance", "exponent")
    size = (9.6, 4.2)
    reach = 400
    layout = panels(
        ["Query (thin) and key (thick)", "The score of a vector with itself"],
        ["pairs, from the fastest to the slowest", "distance $n - m$ (positions)"],
        ["direction of a pair", "score / score at distance 0"],
        grid=(1, 2),
        subplots={"width_ratios": [1.15, 1]},
        xlim=[(-0.6, 3.6), (0, reach)],
        ylim=[(-2.2, 0.62), (-0.75, 1.35)],
        aspect=["equal", None],
        legend={"loc": "upper right", "fontsize": 8, "ncols": 2},
    )
    places = tuple((place % 4, -1.35 * (place // 4)) for place in range(8))

    def compute(self, *, distance, exponent, dim, extension):
        """Return hands and names of the clocks, the scores at all distances and the turns of the two extreme pairs."""
        d, base = int(dim), 10.0**exponent
        if extension == EXTENSIONS[2]:
            base = ntk_aware_base(base, scale=4, rotary_dim=d)
        frequencies = rope_frequencies(d, base=base)
        if extension == EXTENSIONS[1]:
            frequencies = interpolated_frequencies(frequencies, scale=4)
        scores = mean_score(torch.arange(self.reach + 2), frequencies).numpy()
        shown = np.linspace(0, d // 2 - 1, 8).round().astype(int)
        angles = distance * frequencies.numpy()
        ends = [(0.4 * math.cos(angle), 0.4 * math.sin(angle)) for angle in angles[shown]]
        return {
            "hands": [([x, x + dx], [y, y + dy]) for (x, y), (dx, dy) in zip(self.places, ends, strict=True)],
            "names": [f"pair {pair + 1}" for pair in shown],
            "scores": (np.arange(self.reach + 1), scores[:-1]),
            "here": (distance, scores[distance]),
            "next": scores[distance + 1],
            "distance": distance,
            "exponent": exponent,
            "dim": d,
            "extension": extension,
            "angles": angles[shown],
            "turns": (angles[0] / (2 * math.pi), angles[-1] / (2 * math.pi)),
        }

    def draw(self, clocks, curve):
        """Draw the clock faces, and hands, names, curve and dot to be moved."""
        circle = np.exp(1j * np.linspace(0, 2 * np.pi, 80))
        hands, names = [], []
        clocks.set(xticks=[], yticks=[])
        for x, y in self.places:
            clocks.plot(x + 0.42 * circle.real, y + 0.42 * circle.imag, color="0.7", linewidth=1, linestyle="-")
            clocks.plot([x, x + 0.42], [y, y], color=BLACK, linewidth=0.9, linestyle="-")
            hands.append(clocks.plot([], [], color=RED, linewidth=2.6, linestyle="-")[0])
            names.append(clocks.text(x, y - 0.62, "", ha="center", va="center", fontsize=9))
        curve.axhline(0, color=BLACK, linewidth=0.8, linestyle="-")
        (scores,) = curve.plot([], [], color=BLUE, linestyle="-", linewidth=1.4, label="mean over all pairs")
        (here,) = curve.plot([], [], "o", color=RED, markersize=9, label="this distance")
        return {"hands": hands, "names": names, "scores": scores, "here": here}

    def words(self, state):
        """Say how far the fastest and slowest pair have turned, and what the score is and does next."""
        now, then = (round(float(v), 3) + 0.0 for v in (state["here"][1], state["next"]))
        change = "rises to" if then > now else "falls to" if then < now else "stays at"
        extended = "" if state["extension"] == "none" else f", extended by {state['extension']}"
        fast, slow = state["turns"]
        slowest = f"{slow:.4f}" if slow >= 5e-5 or slow == 0 else "less than 0.0001"
        return (
            f"Base {10 ** state['exponent']:,.0f}, {state['dim']} entries{extended}: at distance {state['distance']} the "
            f"fastest pair has made {fast:.2f} turns, the slowest {slowest}. The score is {now:.3f} of its value at "
            f"distance 0; one position further it {change} {then:.3f}."
        )


decay_prediction = lesson.prediction(
    "14.P1",
    "A query and a key are the same vector of 64 entries, and its 32 pairs all have the same length; the base is 10,000. "
    "The key is moved away from the query, position by position, up to distance 2,000. What does the score do?",
    {
        "It falls at every step": "Each pair swings back after half a turn, the fastest within 4 positions, so almost "
        "half of the steps go up.",
        "It falls on average, with rises on the way": "The average falls like a logarithm, since with each factor of "
        "distance a few more pairs start to turn; the pairs that turn already make it swing.",
        "It comes back to its first value again and again": "Every single pair does. But their periods have no common "
        "multiple in reach, so they are never all back together.",
    },
    answer="It falls on average, with rises on the way",
    reveal=plot_decay,
)

precision_prediction = lesson.prediction(
    "14.P3",
    "A query and a key stand 100 positions apart. Both are moved to positions around 100,000, which should leave the "
    "score as it is. The angles (position times frequency) are formed in bfloat16. By how much does the score change, "
    "relative to the product of the lengths?",
    {
        "By less than one percent, the rounding of bfloat16": "That is the error of a cosine rounded to bfloat16. Here "
        "the angle is rounded, and one percent of an angle of 100,000 radians is 160 turns.",
        "By more than a tenth": "Near 100,000 the numbers of bfloat16 are 512 apart: many whole turns. What is left of "
        "the angles of the fast pairs is arbitrary.",
        "Not at all: both are rounded alike": "Their angles differ, so they are rounded differently, and the difference "
        "of the two is what the score sees.",
    },
    answer="By more than a tenth",
    reveal=plot_precision,
)

extension_prediction = lesson.prediction(
    "14.P2",
    "A head of 128 entries with base 10,000 was trained on 4,096 positions. Its 18 slowest pairs made less than a turn "
    "there. The NTK-aware base makes room for 4 times the context, and slows the last pair by exactly 4. How many of the 18 "
    "come, within 16,384 positions, to angles that training has not shown?",
    {
        "None": "So it would be if all 18 were slowed by 4, as interpolation does. The new base reaches 4 at the last pair "
        "only.",
        "1": "It is the other way round: one of them, the last, is slowed enough.",
        "17": "All but the last are slowed by less than 4, so they run past the angle that they had reached in training.",
        "All 18": "Nearly: the last pair is slowed by exactly 4, and ends where it ended in training.",
    },
    answer="17",
    reveal=plot_extension,
)

FIGURES = lesson.figures
