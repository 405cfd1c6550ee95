"""Figures, explorer and predictions of lesson 14, rotary_position_embedding."""

import cmath
import math

import numpy as np
import torch
from torch import Tensor

from course_lib.attention.rotary import (
    apply_rotary,
    interpolated_frequencies,
    mean_score,
    ntk_aware_base,
    rope,
    rope_frequencies,
    rotary_table,
)
from course_lib.teaching import Choice, Explorer, Slider, contents, lines, panels
from course_lib.teaching.style import BLACK, RED

lesson = contents(__name__)
EULER_GAMMA = 0.5772156649015329
SENTENCE = ("the", "dog", "bit", "the", "man")
EXTENSIONS = ("none", "interpolation, 4 times", "NTK-aware base, 4 times")
TABLES = ("float64 angles", "float32 angles", "bfloat16 table", "bfloat16 angles")


def log_law(distances: Tensor, *, base: float | int, dim: int) -> Tensor:
    """Return 1 - (log s + gamma) / log(base) - 1/d, what the mean score follows between 1 and the base (14.13)."""
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
    draw = lambda: torch.randn(32, generator=generator, dtype=torch.float64) / math.sqrt(32)  # noqa: E731
    drawn = {word: draw() for word in dict.fromkeys(SENTENCE)}
    return torch.stack([drawn[word] for word in SENTENCE])


def _draw_matrix(axes, matrix: Tensor, texts: dict, *, limit: float, fontsize: float | int):
    """Draw a matrix in colours from -limit to limit, with texts in its cells, by (row, column)."""
    axes.imshow(matrix, cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes.grid(visible=False)
    for (row, column), text in texts.items():
        color = "white" if abs(matrix[row, column]) > 0.7 * limit else "black"
        axes.text(column, row, text, ha="center", va="center", fontsize=fontsize, color=color)


@lesson.figure(
    ["Without positions", "With rotary positions"],
    "key",
    "query",
    size=(8.4, 4.2),
    grid=(1, 2),
    xticks=range(5),
    yticks=range(5),
    xticklabels=SENTENCE,
    yticklabels=SENTENCE,
)
def plot_question(left, right):
    """Draw the scores of a sentence's words with each other, without positions and with RoPE."""
    x = word_vectors()
    turned = rope(x, torch.arange(5))
    for axes, scores in ((left, x @ x.T), (right, turned @ turned.T)):
        values = {place: f"{round(score, 2) + 0.0:.2f}" for place, score in np.ndenumerate(scores)}
        _draw_matrix(axes, scores, values, limit=1.6, fontsize=9)
    return (
        "Two tables of scores between the words of “the dog bit the man”. Without positions the columns of the first and "
        "the second “the” are equal, and exchanging dog and man only exchanges rows and columns. With rotary positions "
        f"the scores fall apart by distance: “dog” scores {scores[1, 0]:.2f} with the “the” before it and "
        f"{scores[1, 3]:.2f} with the other one."
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
    legend={"loc": "upper center", "ncols": 2, "fontsize": 8},
    xlim=(-1.35, 1.35),
    ylim=(-1.1, 1.7),
    aspect="equal",
)
def plot_shift(left, right):
    """Draw a query and a key at positions (1, 3) and (4, 6): both turn, the angle between them stays."""
    z, w, omega = 1.0 + 0.3j, 0.9 + 0.5j, 0.4
    for axes, (m, n) in ((left, (1, 3)), (right, (4, 6))):
        q, k = cmath.exp(1j * m * omega) * z, cmath.exp(1j * n * omega) * w
        arrows = {f"query at position {m}": tuple(_arrow(q)), f"key at position {n}": tuple(_arrow(k))}
        lines(axes, None, arrows, linewidth=2.4)
        arc = np.linspace(cmath.phase(q), cmath.phase(q) + cmath.phase(k / q), 40)
        axes.plot(0.4 * np.cos(arc), 0.4 * np.sin(arc), color=BLACK, linestyle="-", linewidth=1.2)
        score = (q.conjugate() * k).real
        axes.set_title(f"positions {m} and {n}: score {score:.3f}")
    return (
        "A query and a key in the plane, turned by 0.4 radians a position. At positions 4 and 6 both arrows have turned "
        f"further than at 1 and 3, by the same angle, and their score is {score:.3f} in both pictures."
    )


@lesson.figure(
    None, "pair $i$", "positions for one turn, $2\\pi/\\omega_i$", legend="upper left", yscale="log", ylim=(3, 1e7)
)
def plot_wavelengths(axes, *, dim: int = 128, context: int = 4096):
    """Draw how many positions each pair needs for a whole turn, for two bases, and a context length."""
    periods = {base: 2 * math.pi / rope_frequencies(dim, base=base) for base in (10_000, 500_000)}
    index = np.arange(1, dim // 2 + 1)
    lines(axes, index, {f"base {base:,}": period for base, period in periods.items()})
    axes.axhline(context, color=BLACK, linestyle=":", linewidth=1.4, label=f"context of {context:,} positions")
    axes.set_title(f"From 6 positions to tens of thousands ($d$ = {dim})")
    said = [
        f"with base {base:,} the last pair needs {float(period[-1]):,.0f} positions for a turn, and "
        f"{int((period > context).sum())} of {dim // 2} pairs do not complete one within {context:,}"
        for base, period in periods.items()
    ]
    return (
        f"Positions that pair i needs for a whole turn against i, on a logarithmic scale, for heads of {dim} entries: "
        f"straight lines that start at 6.3. {'; '.join(said).capitalize()}."
    )


@lesson.figure(
    ["interleaved: neighbours", "half: $x_i$ with $x_{i+d/2}$"],
    "entry that goes in",
    "entry that comes out",
    size=(8.4, 4.2),
    grid=(1, 2),
    xticks=range(8),
    yticks=range(8),
    xticklabels=range(1, 9),
    yticklabels=range(1, 9),
)
def plot_layouts(left, right, *, position: int = 1):
    """Draw the rotation matrix of one position in both layouts."""
    dim = 8
    pairs = {"interleaved": torch.arange(dim) // 2, "half": torch.arange(dim) % (dim // 2)}
    for axes, (layout, pair_of) in zip((left, right), pairs.items(), strict=True):
        unit_vectors = torch.eye(dim, dtype=torch.float64)
        # Column k: where e_k goes.
        matrix = rope(unit_vectors, torch.full((dim,), position), layout=layout, base=16).T
        names = {
            (row, column): ("cos" if row == column else "sin" if value > 0 else "-sin") + f" {pair_of[row] + 1}"
            for (row, column), value in np.ndenumerate(matrix)
            if pair_of[row] == pair_of[column]
        }
        _draw_matrix(axes, matrix, names, limit=1.0, fontsize=7.5)
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
    legend=[{"loc": "lower left", "fontsize": 8}, {"loc": "upper center", "fontsize": 8, "ncols": 2}],
    xscale=["log", "linear"],
    ylim=[(-0.6, 1.1), (-1.15, 1.75)],
)
def plot_decay(left, right, *, dim: int = 64, base: int = 10_000):
    """Draw the mean score against distance with the logarithmic law, and the scores of three particular keys."""
    frequencies = rope_frequencies(dim, base=base)
    distances, ends = torch.arange(1, 4 * base), torch.tensor([2.0, base / 4])
    scores = mean_score(distances, frequencies)
    lines(left, distances, {"mean score (14.12)": scores}, linewidth=0.9)
    lines(left, ends, {"logarithmic law (14.13)": log_law(ends, base=base, dim=dim)}, first=1, linewidth=2.4)
    near = torch.arange(0, 301)
    same = mean_score(near, frequencies)
    back = mean_score(near - 200, frequencies)
    lines(right, near, {"key = query": same, "query turned back by 200": back, "key = -query": -same})
    rising = float((scores[:1000].diff() > 0).double().mean())
    return (
        f"Left: the mean score against the distance, logarithmic, for d = {dim} and base {base:,}. It follows the straight "
        f"line of the logarithmic law from 0.85 down to about 0 near distance {base:,}, with swings around it: "
        f"{rising:.0%} of the first 1,000 steps go up, and beyond distance 2,000 it still reaches "
        f"{float(scores[2000:].max()):.2f}. Right: "
        "scores of three keys up to distance 300. The query itself scores most at distance 0, a turned copy of it at "
        "distance 200, and its negative rises with the distance from -1."
    )


@lesson.figure(None, "pair $i$, fast to slow", "slowed down by the factor", legend={"loc": "upper left", "ncols": 2})
def plot_extension(axes, *, dim: int = 64, scale: int = 4):
    """Draw by how much two methods of extending the context slow each pair down."""
    old = rope_frequencies(dim)
    new = {
        "position interpolation": interpolated_frequencies(old, scale=scale),
        "NTK-aware base": rope_frequencies(dim, base=ntk_aware_base(10_000, scale=scale, rotary_dim=dim)),
    }
    lines(axes, np.arange(1, dim // 2 + 1), {name: old / frequencies for name, frequencies in new.items()})
    axes.set(title=f"Making room for {scale} times the context ($d$ = {dim})", ylim=(0, scale + 1.4))
    return (
        f"By what factor each of {dim // 2} pairs is slowed down for {scale} times the context. Position interpolation: "
        f"{scale} for all. NTK-aware base: from 1 for the first pair, growing ever faster, to {scale} for the last."
    )


@lesson.figure(
    "Shifting both should change nothing",
    "start of the pair (position)",
    "change of the score / $|q|\\,|k|$",
    size=(7.2, 4.4),
    legend={"loc": "upper left", "ncols": 2, "fontsize": 8},
    xscale="log",
    yscale="log",
    ylim=(1e-9, 1e3),
)
def plot_precision(axes):
    """Draw how much a score changes when query and key are shifted together, for four ways to form the angles."""
    starts = torch.tensor([2**k for k in range(4, 18)])
    errors = {kind: shift_errors(starts, kind=kind) for kind in TABLES}
    lines(axes, starts, errors, marker="o", markersize=5)
    said = ", ".join(f"{kind} {float(error[-1]):.0e}" for kind, error in errors.items())
    return (
        "The largest change of a score, relative to the lengths, when a query and a key 100 positions apart are moved from "
        f"0 to a start position up to 131,072; both axes logarithmic. At the far end: {said}. "
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
        24,
        0,
        400,
        1,
    )
    exponent = Slider(
        "base",
        "log10 b",
        "The base b of the frequencies: 4 is 10,000; a larger one slows all pairs but the first",
        4.0,
        2.0,
        6.0,
        0.25,
    )
    dim = Choice(
        "entries of a head d", "How many entries a query has; half as many pairs turn", "64", ("16", "64", "128")
    )
    extension = Choice(
        "context extension", "How the frequencies are changed to make room for 4 times the context", "none", EXTENSIONS
    )
    size = (9.6, 4.2)
    reach = 400
    centres = tuple((place % 4, -1.35 * (place // 4)) for place in range(8))
    layout = panels(
        ["Query (thin) and key (thick)", "The score of a vector with itself"],
        ["pairs, from the fastest to the slowest", "distance $n - m$ (positions)"],
        ["direction of a pair", "score / score at distance 0"],
        grid=(1, 2),
        legend={"loc": "upper right", "fontsize": 8, "ncols": 2},
        subplots={"width_ratios": (1.15, 1)},
        xlim=[(-0.6, 3.6), (0, reach)],
        ylim=[(-2.2, 0.62), (-0.75, 1.35)],
        xticks=[(), None],
        yticks=[(), None],
        aspect=["equal", None],
    )

    def compute(self, *, distance, exponent, dim, extension):
        """Return the angles of the clocks, the scores at all distances and the turns of fastest and slowest pair."""
        d, base = int(dim), 10.0**exponent
        if extension == EXTENSIONS[2]:
            base = ntk_aware_base(base, scale=4, rotary_dim=d)
        frequencies = rope_frequencies(d, base=base)
        if extension == EXTENSIONS[1]:
            frequencies = interpolated_frequencies(frequencies, scale=4)
        scores = mean_score(torch.arange(self.reach + 2), frequencies).numpy()
        pairs = np.linspace(1, d // 2, 8).round().astype(int)
        angles = distance * frequencies.numpy()
        shown = angles[pairs - 1]
        return {
            "hands": [
                ([x, x + 0.4 * math.cos(angle)], [y, y + 0.4 * math.sin(angle)])
                for (x, y), angle in zip(self.centres, shown, strict=True)
            ],
            "names": [f"pair {pair}" for pair in pairs],
            "curve": scores[:-1],
            "here": (distance, scores[distance]),
            "pairs": pairs,
            "angles": shown,
            "scores": scores,
            "turns": (angles[0] / (2 * math.pi), angles[-1] / (2 * math.pi)),
            "distance": distance,
            "exponent": exponent,
            "dim": d,
            "extension": extension,
        }

    def draw(self, clocks, curve):
        """Draw the clock faces, and the hands, names and scores to be moved."""
        circle = 0.42 * np.exp(1j * np.linspace(0, 2 * np.pi, 80))
        for x, y in self.centres:
            clocks.plot(x + circle.real, y + circle.imag, "-", color="0.7", linewidth=1)
            clocks.plot([x, x + 0.42], [y, y], "-", color=BLACK, linewidth=0.9)
        curve.axhline(0, color=BLACK, linewidth=0.8, linestyle="-")
        reach = np.arange(self.reach + 1)
        (scores,) = lines(curve, reach, {"mean over all pairs": 0 * reach}, linewidth=1.4)
        (here,) = curve.plot([], [], "o", color=RED, markersize=9, label="this distance")
        centred = {"ha": "center", "va": "center", "fontsize": 9}
        return {
            "hands": [clocks.plot([], [], "-", color=RED, linewidth=2.6)[0] for _ in self.centres],
            "names": [clocks.text(x, y - 0.62, "", **centred) for x, y in self.centres],
            "curve": scores,
            "here": here,
        }

    def words(self, state):
        """Say how far the fastest and slowest pair have turned, and what the score is and does next."""
        now, then = (round(float(v), 3) + 0.0 for v in state["scores"][state["distance"] :][:2])
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
    "A query and a key are the same vector of 64 entries whose 32 pairs all have the same length; the base is 10,000. "
    "The key is moved away from the query, position by position, up to distance 2,000. How does the score go?",
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
    "14.P2",
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

FIGURES = lesson.figures
