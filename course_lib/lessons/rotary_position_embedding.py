"""Figures, explorer, predictions and exercises of lesson 14, rotary_position_embedding."""

import cmath
import math
from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.attention.rotary import (
    apply_rotary,
    interpolated_frequencies,
    layout_order,
    mean_score,
    ntk_aware_base,
    rope,
    rope_frequencies,
    rotary_table,
)
from course_lib.teaching.exercise import Exercise, Mistake, Property
from course_lib.teaching.explorer import Choice, Explorer, Slider
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, describe, new_figure, styled

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


# Figures


def word_vectors() -> Tensor:
    """Return one vector of 32 entries for each word of the sentence; the two "the" share theirs."""
    generator = torch.Generator().manual_seed(3)
    drawn = {
        word: torch.randn(32, generator=generator, dtype=torch.float64) / math.sqrt(32)
        for word in dict.fromkeys(SENTENCE)
    }
    return torch.stack([drawn[word] for word in SENTENCE])


@styled
def plot_question() -> Figure:
    """Draw the scores of a sentence's words with each other, without positions and with RoPE."""
    x = word_vectors()
    turned = rope(x, torch.arange(5))
    figure = new_figure(8.4, 4.2)
    panels = (("Without positions", x @ x.T), ("With rotary positions", turned @ turned.T))
    for axes, (title, scores) in zip(figure.subplots(1, 2), panels, strict=True):
        axes.imshow(scores.numpy(), cmap="RdBu_r", vmin=-1.6, vmax=1.6)
        for m in range(5):
            for n in range(5):
                value = round(float(scores[m, n]), 2) + 0.0
                axes.text(n, m, f"{value:.2f}", ha="center", va="center", fontsize=9,
                          color="white" if abs(value) > 1.1 else "black")  # fmt: skip
        axes.set(xticks=range(5), yticks=range(5), xticklabels=SENTENCE, yticklabels=SENTENCE, title=title)
        axes.set(xlabel="key", ylabel="query")
        axes.grid(visible=False)
    a, b = (f"{float((turned @ turned.T)[1, n]):.2f}" for n in (0, 3))
    return describe(
        figure,
        "Two tables of scores between the words of “the dog bit the man”. Without positions the columns of the first and "
        "the second “the” are equal, and exchanging dog and man only exchanges rows and columns. With rotary positions "
        f"the scores fall apart by distance: “dog” scores {a} with the “the” before it and {b} with the other one.",
    )


def _arrow(z: complex) -> np.ndarray:
    """Return an arrow from the origin to z as one polyline."""
    wings = [z - 0.14 * z / abs(z) * cmath.exp(1j * a) for a in (0.45, -0.45)]
    points = [0, z, wings[0], z, wings[1]]
    return np.array([[complex(p).real for p in points], [complex(p).imag for p in points]])


@styled
def plot_shift() -> Figure:
    """Draw a query and a key at positions (1, 3) and (4, 6): both turn, the angle between them stays."""
    z, w, omega = 1.0 + 0.3j, 0.9 + 0.5j, 0.4
    figure = new_figure(8.4, 4.2)
    for axes, (m, n) in zip(figure.subplots(1, 2), ((1, 3), (4, 6)), strict=True):
        q, k = cmath.exp(1j * m * omega) * z, cmath.exp(1j * n * omega) * w
        arc = np.linspace(cmath.phase(q), cmath.phase(q) + cmath.phase(k / q), 40)
        axes.plot(*_arrow(q), color=BLUE, linestyle="-", linewidth=2.6, label=f"query at position {m}")
        axes.plot(*_arrow(k), color=RED, linestyle="--", linewidth=2.2, label=f"key at position {n}")
        axes.plot(0.4 * np.cos(arc), 0.4 * np.sin(arc), color=BLACK, linestyle="-", linewidth=1.2)
        score = (q.conjugate() * k).real
        axes.set(xlim=(-1.35, 1.35), ylim=(-1.1, 1.7), xlabel="first entry", ylabel="second entry")
        axes.set_title(f"positions {m} and {n}: score {score:.3f}")
        axes.set_aspect("equal")
        axes.legend(loc="upper center", ncols=2, fontsize=8)
    return describe(
        figure,
        "A query and a key in the plane, turned by 0.4 radians a position. At positions 4 and 6 both arrows have turned "
        f"further than at 1 and 3, by the same angle, and their score is {score:.3f} in both pictures.",
    )


@styled
def plot_wavelengths(*, dim: int = 128, context: int = 4096) -> Figure:
    """Draw how many positions each pair needs for a whole turn, for two bases, and a context length."""
    figure = new_figure(6.8, 4.0)
    axes = figure.add_subplot()
    said, index = [], np.arange(1, dim // 2 + 1)
    for base, color, style in ((10_000, BLUE, "-"), (500_000, RED, "--")):
        periods = 2 * math.pi / rope_frequencies(dim, base=base)
        axes.semilogy(index, periods, color=color, linestyle=style, label=f"base {base:,}")
        said.append(
            f"with base {base:,} the last pair needs {float(periods[-1]):,.0f} positions for a turn, and "
            f"{int((periods > context).sum())} of {dim // 2} pairs do not complete one within {context:,}"
        )
    axes.axhline(
        context, color=BLACK, linestyle=":", linewidth=1.4, label=f"context of {context:,} positions"
    )
    axes.set(xlabel="pair $i$", ylabel="positions for one turn, $2\\pi/\\omega_i$", ylim=(3, 1e7))
    axes.set_title(f"From 6 positions to tens of thousands ($d$ = {dim})")
    axes.legend(loc="upper left")
    return describe(
        figure,
        f"Positions that pair i needs for a whole turn against i, on a logarithmic scale, for heads of {dim} entries: "
        "straight lines that start at 6.3. " + "; ".join(said).capitalize() + ".",
    )


@styled
def plot_layouts(*, dim: int = 8, position: int = 1) -> Figure:
    """Draw the rotation matrix of one position in both layouts."""
    figure = new_figure(8.4, 4.2)
    titles = {"interleaved": "interleaved: neighbours", "half": "half: $x_i$ with $x_{i+d/2}$"}
    for axes, (layout, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        unit_vectors = torch.eye(dim, dtype=torch.float64)
        matrix = rope(
            unit_vectors, torch.full((dim,), position), layout=layout, base=16
        ).T  # column k: where e_k goes
        axes.imshow(matrix.numpy(), cmap="RdBu_r", vmin=-1, vmax=1)
        pair_of = torch.arange(dim) // 2 if layout == "interleaved" else torch.arange(dim) % (dim // 2)
        for row in range(dim):
            for column in range(dim):
                if pair_of[row] == pair_of[column]:
                    kind = "cos" if row == column else ("sin" if matrix[row, column] > 0 else "-sin")
                    axes.text(column, row, f"{kind} {int(pair_of[row]) + 1}", ha="center", va="center",
                              fontsize=7.5, color="white" if abs(matrix[row, column]) > 0.7 else "black")  # fmt: skip
        axes.set(xticks=range(dim), yticks=range(dim), title=title)
        axes.set(xticklabels=range(1, dim + 1), yticklabels=range(1, dim + 1))
        axes.set(xlabel="entry that goes in", ylabel="entry that comes out")
        axes.grid(visible=False)
    return describe(
        figure,
        f"The matrix that turns a head of {dim} entries, in both layouts; cos 2 stands for the cosine of pair 2. "
        "Interleaved: 2 x 2 blocks along the diagonal. Half: cosines on the diagonal, sines on two diagonals four "
        "entries away.",
    )


@styled
def plot_decay(*, dim: int = 64, base: int = 10_000) -> Figure:
    """Draw the mean score against distance with the logarithmic law, and the scores of three particular keys."""
    figure = new_figure(10.0, 4.2)
    left, right = figure.subplots(1, 2)
    frequencies = rope_frequencies(dim, base=base)
    distances = torch.arange(1, 4 * base)
    scores = mean_score(distances, frequencies)
    left.semilogx(distances, scores, color=BLUE, linestyle="-", linewidth=0.9, label="mean score (14.12)")
    law_range = torch.tensor([2.0, base / 4])
    left.semilogx(
        law_range, log_law(law_range, base=base, dim=dim), color=RED, linestyle="--", linewidth=2.4,
        label="logarithmic law (14.13)",
    )  # fmt: skip
    left.set(xlabel="distance $s$ (positions)", ylabel="score / score at distance 0", ylim=(-0.6, 1.1))
    left.set_title("Falls by the logarithm, with rises")
    left.legend(loc="lower left", fontsize=8)

    near = torch.arange(0, 301)
    preferring = mean_score(near - 200, frequencies)
    right.plot(near, mean_score(near, frequencies), color=BLUE, linestyle="-", label="key = query")
    right.plot(near, preferring, color=GREEN, linestyle="-.", label="query turned back by 200")
    right.plot(
        near, -mean_score(near, frequencies), color=PURPLE, linestyle=":", linewidth=2.2, label="key = -query"
    )
    right.set(xlabel="distance $s$ (positions)", ylabel="score / $|q|\\,|k|$", ylim=(-1.15, 1.75))
    right.set_title("Three keys for one query")
    right.legend(loc="upper center", fontsize=8, ncols=2)
    rising = float((scores[:1000].diff() > 0).double().mean())
    later = float(scores[2000:].max())
    return describe(
        figure,
        f"Left: the mean score against the distance, logarithmic, for d = {dim} and base {base:,}. It follows the straight "
        f"line of the logarithmic law from 0.85 down to about 0 near distance {base:,}, with swings around it: "
        f"{rising:.0%} of the first 1,000 steps go up, and beyond distance 2,000 it still reaches {later:.2f}. Right: "
        "scores of three keys up to distance 300. The query itself scores most at distance 0, a turned copy of it at "
        "distance 200, and its negative rises with the distance from -1.",
    )


@styled
def plot_extension(*, dim: int = 64, scale: int = 4) -> Figure:
    """Draw by how much two methods of extending the context slow each pair down."""
    figure = new_figure(6.8, 3.8)
    axes = figure.add_subplot()
    index, old = np.arange(1, dim // 2 + 1), rope_frequencies(dim)
    ntk = rope_frequencies(dim, base=ntk_aware_base(10_000, scale=scale, rotary_dim=dim))
    axes.plot(index, old / interpolated_frequencies(old, scale=scale), color=BLUE, linestyle="-",
              label="position interpolation")  # fmt: skip
    axes.plot(index, old / ntk, color=RED, linestyle="--", marker="o", markersize=4, label="NTK-aware base")
    axes.set(xlabel="pair $i$, fast to slow", ylabel="slowed down by the factor", ylim=(0, scale + 1.4))
    axes.set_title(f"Making room for {scale} times the context ($d$ = {dim})")
    axes.legend(loc="upper left", ncols=2)
    return describe(
        figure,
        f"By what factor each of {dim // 2} pairs is slowed down for {scale} times the context. Position interpolation: "
        f"{scale} for all. NTK-aware base: from 1 for the first pair, growing ever faster, to {scale} for the last.",
    )


@styled
def plot_precision() -> Figure:
    """Draw how much a score changes when query and key are shifted together, for four ways to form the angles."""
    figure = new_figure(7.2, 4.4)
    axes = figure.add_subplot()
    starts = torch.tensor([2**k for k in range(4, 18)])
    looks = ((BLUE, "-", "o"), (GREEN, "-.", "s"), (ORANGE, ":", "^"), (RED, "--", "D"))
    said = []
    for kind, (color, style, marker) in zip(TABLES, looks, strict=True):
        errors = shift_errors(starts, kind=kind)
        axes.loglog(starts, errors, color=color, linestyle=style, marker=marker, markersize=5, label=kind)
        said.append(f"{kind} {float(errors[-1]):.0e}")
    axes.set(
        xlabel="start of the pair (position)", ylabel="change of the score / $|q|\\,|k|$", ylim=(1e-9, 1e3)
    )
    axes.set_title("Shifting both should change nothing")
    axes.legend(loc="upper left", ncols=2, fontsize=8)
    return describe(
        figure,
        "The largest change of a score, relative to the lengths, when a query and a key 100 positions apart are moved from "
        "0 to a start position up to 131,072; both axes logarithmic. At the far end: "
        + ", ".join(said)
        + ". "
        "Only the float64 angles stay flat; float32 angles get worse in proportion to the position.",
    )


# Explorer


class ClockExplorer(Explorer):
    """Eight pairs as clocks at a distance, and the score that their hands add up to."""

    title = "Clocks and the score they add up to"
    summary = (
        "Left: eight of the pairs as clocks, the fastest first; the thin hand is the query, the thick one the same vector "
        "as a key that many positions later. Right: the mean of the thick hands' horizontal parts over all pairs, which "
        "is the score, against the distance; the dot is the present distance."
    )
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "distance": Slider(
            label="distance", symbol="n - m", default=24, minimum=0, maximum=400, step=1,
            tooltip="How many positions after the query the key stands; only this difference counts",
        ),
        "exponent": Slider(
            label="base", symbol="log10 b", default=4.0, minimum=2.0, maximum=6.0, step=0.25,
            tooltip="The base b of the frequencies: 4 is 10,000; a larger one slows all pairs but the first",
        ),
        "dim": Choice(
            label="entries of a head d", default="64", options=("16", "64", "128"),
            tooltip="How many entries a query has; half as many pairs turn",
        ),
        "extension": Choice(
            label="context extension", default="none", options=EXTENSIONS,
            tooltip="How the frequencies are changed to make room for 4 times the context",
        ),
    }  # fmt: skip
    size = (9.6, 4.2)
    reach = 400

    def compute(self, *, distance, exponent, dim, extension):
        """Return the angles of the clocks, the scores at all distances and the turns of fastest and slowest pair."""
        d, base = int(dim), 10.0**exponent
        if extension == EXTENSIONS[2]:
            base = ntk_aware_base(base, scale=4, rotary_dim=d)
        frequencies = rope_frequencies(d, base=base)
        if extension == EXTENSIONS[1]:
            frequencies = interpolated_frequencies(frequencies, scale=4)
        scores = mean_score(torch.arange(self.reach + 2), frequencies).numpy()
        shown = np.linspace(0, d // 2 - 1, 8).round().astype(int)
        angles = distance * frequencies.numpy()
        return {
            "distance": distance, "exponent": exponent, "dim": d, "extension": extension, "pairs": shown + 1,
            "angles": angles[shown], "scores": scores,
            "turns": (angles[0] / (2 * math.pi), angles[-1] / (2 * math.pi)),
        }  # fmt: skip

    def draw(self, figure):
        """Draw the clock faces and the axes of the scores."""
        clocks, curve = figure.subplots(1, 2, width_ratios=[1.15, 1])
        circle = np.exp(1j * np.linspace(0, 2 * np.pi, 80))
        hands, names = [], []
        for place in range(8):
            x, y = place % 4, -1.35 * (place // 4)
            clocks.plot(
                x + 0.42 * circle.real, y + 0.42 * circle.imag, color="0.7", linewidth=1, linestyle="-"
            )
            clocks.plot([x, x + 0.42], [y, y], color=BLACK, linewidth=0.9, linestyle="-")
            hands.append(clocks.plot([], [], color=RED, linewidth=2.6, linestyle="-")[0])
            names.append(clocks.text(x, y - 0.62, "", ha="center", va="center", fontsize=9))
        clocks.set(
            xlim=(-0.6, 3.6), ylim=(-2.2, 0.62), xticks=[], yticks=[], title="Query (thin) and key (thick)"
        )
        clocks.set(xlabel="pairs, from the fastest to the slowest", ylabel="direction of a pair")
        clocks.set_aspect("equal")
        curve.set(
            xlim=(0, self.reach), ylim=(-0.75, 1.35), xlabel="distance $n - m$ (positions)",
            ylabel="score / score at distance 0", title="The score of a vector with itself",
        )  # fmt: skip
        curve.axhline(0, color=BLACK, linewidth=0.8, linestyle="-")
        scores = curve.plot([], [], color=BLUE, linestyle="-", linewidth=1.4, label="mean over all pairs")[0]
        here = curve.plot(
            [], [], color=RED, marker="o", markersize=9, linestyle="none", label="this distance"
        )[0]
        curve.legend(loc="upper right", fontsize=8, ncols=2)
        return {"hands": hands, "names": names, "scores": scores, "here": here}

    def update(self, artists, state):
        """Turn the hands, name the clocks, move curve and dot."""
        for place, (hand, name) in enumerate(zip(artists["hands"], artists["names"], strict=True)):
            x, y, angle = place % 4, -1.35 * (place // 4), state["angles"][place]
            hand.set_data([x, x + 0.4 * math.cos(angle)], [y, y + 0.4 * math.sin(angle)])
            name.set_text(f"pair {state['pairs'][place]}")
        artists["scores"].set_data(np.arange(self.reach + 1), state["scores"][: self.reach + 1])
        artists["here"].set_data([state["distance"]], [state["scores"][state["distance"]]])

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


# Predictions


def decay_prediction() -> Prediction:
    """Ask how the score of a vector with itself goes with the distance."""
    return Prediction(
        "14.P1",
        "A query and a key are the same vector of 64 entries whose 32 pairs all have the same length; the base is 10,000. "
        "The key is moved away from the query, position by position, up to distance 2,000. How does the score go?",
        choices={
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


def precision_prediction() -> Prediction:
    """Ask what angles in bfloat16 do to a score far from the start."""
    return Prediction(
        "14.P2",
        "A query and a key stand 100 positions apart. Both are moved to positions around 100,000, which should leave the "
        "score as it is. The angles (position times frequency) are formed in bfloat16. By how much does the score change, "
        "relative to the product of the lengths?",
        choices={
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


# Exercises


def _uniform(generator: torch.Generator, low: float, high: float, digits: int = 2) -> float:
    return round(low + (high - low) * float(torch.rand((), generator=generator)), digits)


def _whole(generator: torch.Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high + 1, (), generator=generator))


def _numbers(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64).round(decimals=1)


def _near(wanted: float):
    return lambda i, v: abs(v - wanted) < 0.005


_SCORE = Exercise(
    id="14.1",
    title="One score by hand",
    kind="value",
    difficulty=1,
    minutes=5,
    prompt="A head has two entries and turns by $\\omega = 0.5$ radians a position. The query $x = (3, 1)$ stands at "
    "position 4, the key $y = (1, -3)$ at position 10. What is $\\mathrm{RoPE}(x, 4)^\\top\\mathrm{RoPE}(y, 10)$? Give it "
    "to 0.001 or better.",
    draw=lambda generator: {"shift": _whole(generator, -50, 50)},
    reference=10 * math.sin(3),
    properties=(
        Property(
            "That is not the product of the two turned vectors.",
            lambda i, v: abs(v - ((3 - 1j) * (1 - 3j) * cmath.exp(3j)).real) <= 0.002,
        ),
    ),
    hints=(
        "Only the difference of the positions counts: leave x where it is and turn y.",
        "With z = 3 + j and w = 1 - 3j the score is the real part of conj(z) w times a rotation.",
        "conj(z) w is -10j here; multiply by e to the j times the angle and take the real part.",
    ),
    mistakes=(
        Mistake("turned the other way", -10 * math.sin(3), "The sign is the wrong way round: the key is turned by "
                "+(n - m) ω when the query stays.", _near(-10 * math.sin(3))),
        Mistake("left out the frequency", 10 * math.sin(6), "You turned by 6 radians, the number of positions; each "
                "position turns by ω = 0.5.", _near(10 * math.sin(6))),
        Mistake("added the positions", 10 * math.sin(7), "You turned by (m + n) ω. In the inner product the rotation of the "
                "query is undone: the difference counts.", _near(10 * math.sin(7))),
        Mistake("no conjugate", 6 * math.cos(7) + 8 * math.sin(7), "That is the real part of z w without the conjugate. The "
                "inner product of two vectors in the plane is Re(conj(z) w).",
                _near(6 * math.cos(7) + 8 * math.sin(7))),
        Mistake("degrees", 10 * math.sin(math.radians(3)), "You took 3 for degrees; ω is in radians.",
                _near(10 * math.sin(math.radians(3)))),
        Mistake("no rotation", 0.0, "That is the product of x and y without any rotation.", _near(0.0)),
    ),
)  # fmt: skip


def rotate_pair(pair, position, frequency):
    """Turn a pair against the clock by position times frequency."""
    c, s = math.cos(position * frequency), math.sin(position * frequency)
    return torch.stack([c * pair[0] - s * pair[1], s * pair[0] + c * pair[1]])


_PAIR = Exercise(
    id="14.2",
    title="Turn one pair",
    kind="function",
    difficulty=1,
    minutes=6,
    prompt="Write `rotate_pair(pair, position, frequency)`: the pair $(x^{(1)}, x^{(2)})$ turned against the clock by "
    "$t\\omega$. `pair` is a float64 tensor of two entries, `position` is the whole number $t$ and `frequency` is $\\omega$ "
    "in radians a position; return a tensor of two entries. Complex numbers are welcome.",
    draw=lambda generator: {
        "pair": _numbers(generator, 2) + torch.tensor([2.0, 0.5], dtype=torch.float64),
        "position": _whole(generator, 2, 40),
        "frequency": _uniform(generator, 0.1, 1.4),
    },
    reference=rotate_pair,
    properties=(
        Property(
            "The length of the pair should not change.",
            lambda i, p: abs(float(p.norm() - i["pair"].norm())) < 1e-9 * (1 + float(i["pair"].norm())),
        ),
        Property(
            "The pair should be turned by position times frequency.",
            lambda i, p: abs(
                complex(p[0], p[1]) - complex(i["pair"][0], i["pair"][1]) * cmath.exp(1j * i["position"] * i["frequency"])
            )
            < 1e-9 * (1 + float(i["pair"].norm())),
        ),
    ),
    hints=(
        "Write down where (1, 0) and (0, 1) go; the rest follows since turning is linear.",
        "One of the four products has a minus sign: (0, 1) turned a little has a negative first entry.",
        "In complex numbers: torch.view_as_complex, one multiplication by torch.exp of an imaginary number, and back.",
    ),
    mistakes=(
        Mistake("with the clock", lambda p, t, w: rotate_pair(p, -t, w),
                "You turned with the clock. Scores of a query and a key would be the same if both were, but the convention "
                "of (14.2) is against it, and a model's weights know only one."),
        Mistake("a reflection", lambda p, t, w: rotate_pair(torch.stack([p[0], -p[1]]), t, w),
                "Both minus signs went astray: your map is a reflection, which keeps lengths too, but two of them do not "
                "depend on n - m in the right way. Exactly one product with a sine is subtracted, in the first entry."),
        Mistake("left out the position", lambda p, t, w: rotate_pair(p, 1, w),
                "You turned by ω whatever the position. The angle is t ω."),
        Mistake("degrees", lambda p, t, w: rotate_pair(p, t, math.radians(w)),
                "You took the angle for degrees; it is in radians."),
        Mistake("added instead of multiplied",
                lambda p, t, w: p + torch.tensor([math.cos(t * w), math.sin(t * w)], dtype=p.dtype),
                "You added cosine and sine to the pair, as the sinusoidal embedding does. RoPE multiplies."),
    ),
)  # fmt: skip


def rope_rows(x, positions, base):
    """Turn each row of x by its position, interleaved layout."""
    d = x.shape[-1]
    frequencies = base ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
    angles = positions[:, None] * frequencies
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


def _rows_with(x: Tensor, positions: Tensor, exponents: Tensor, base: float) -> Tensor:
    angles = positions[:, None] * base**-exponents
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * torch.polar(
        torch.ones_like(angles), angles
    )
    return torch.view_as_real(turned).flatten(-2)


def _exponents(d: int, *, first: int = 0) -> Tensor:
    """2 (i - 1) / d for i = 1 .. d/2, or 2 i / d with first = 1."""
    return 2 * (torch.arange(d // 2, dtype=torch.float64) + first) / d


def _draw_rows(generator: torch.Generator) -> dict:
    seq, d = _whole(generator, 2, 3), 2 * _whole(generator, 2, 4)
    return {
        "x": _numbers(generator, seq, d) + 2,
        "positions": torch.randint(1, 30, (seq,), generator=generator),
        "base": float(_whole(generator, 10, 200)),
    }


_ROWS = Exercise(
    id="14.3",
    title="All pairs at their frequencies",
    kind="function",
    difficulty=2,
    minutes=12,
    prompt="Write `rope_rows(x, positions, base)`: each row of `x`, a float64 tensor of shape `(seq, d)` with even $d$, "
    "turned by its position. `positions` is an integer tensor of shape `(seq,)`, `base` the number that is 10,000 in "
    "(14.8). Use the interleaved layout: neighbours form a pair.",
    draw=_draw_rows,
    reference=rope_rows,
    properties=(
        Property(
            "The length of every row should stay.",
            lambda i, y: bool(torch.allclose(y.norm(dim=-1), i["x"].norm(dim=-1), rtol=1e-9)),
        ),
        Property(
            "The rows are not turned as (14.7) and (14.8) say.",
            lambda i, y: bool(
                torch.allclose(y, rope(i["x"], i["positions"], base=i["base"]), rtol=1e-7, atol=1e-7)
            ),
        ),
    ),
    hints=(
        "Begin with the tensor of angles, one row a position and one column a pair.",
        "The first pair turns by one radian a position, whatever the base: its exponent is zero.",
        "Reshape the last dimension to (d/2, 2), view it as complex, multiply, and go back.",
    ),
    mistakes=(
        Mistake("one pair too late", lambda x, t, b: _rows_with(x, t, _exponents(x.shape[-1], first=1), b),
                "Your exponents start at 2/d. For i = 1 the exponent 2(i - 1)/d is 0: the first pair turns by one radian a "
                "position."),
        Mistake("half the exponents", lambda x, t, b: _rows_with(x, t, _exponents(x.shape[-1]) / 2, b),
                "The 2 in the exponent is missing: your slowest pair turns like the root of the base, not like the base."),
        Mistake("one frequency for all", lambda x, t, b: _rows_with(x, t, 0 * _exponents(x.shape[-1]), b),
                "All your pairs turn at one frequency. Pair i has its own, smaller with every i."),
        Mistake("halves for neighbours", lambda x, t, b: rope(x, t, layout="half", base=b),
                "You paired the halves, x_i with x_{i+d/2}. That is the other layout, used by Llama; here neighbours are "
                "pairs."),
        Mistake("with the clock", lambda x, t, b: rope(x, -t, base=b),
                "You turned with the clock: the sign of the angle is wrong."),
    ),
)  # fmt: skip


def half_to_interleaved(weight, head_dim):
    """Reorder the rows of each head so that the interleaved layout gives the scores of the half layout."""
    heads = weight.unflatten(0, (-1, 2, head_dim // 2))
    return heads.transpose(1, 2).flatten(0, 2)


def _reorder(weight: Tensor, head_dim: int, *, source: str, target: str) -> Tensor:
    order = layout_order(head_dim, source=source, target=target)
    return weight.unflatten(0, (-1, head_dim))[:, order].flatten(0, 1)


def _draw_weight(generator: torch.Generator) -> dict:
    head_dim, n_heads = 2 * _whole(generator, 3, 4), _whole(generator, 2, 3)
    rows = head_dim * n_heads
    return {
        "weight": torch.randn(rows, rows, generator=generator, dtype=torch.float64),
        "head_dim": head_dim,
    }


def _same_scores(i: Mapping, converted: Tensor) -> bool:
    """Whether queries from the converted weights score with converted keys as half-layout ones do with each other."""
    weight, head_dim = i["weight"], i["head_dim"]
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(3, weight.shape[1], generator=generator, dtype=torch.float64)
    keys = torch.randn(weight.shape[0], weight.shape[1], generator=generator, dtype=torch.float64)

    def scores(w_q, w_k, layout):
        q, k = (
            rope((hidden @ w.T).unflatten(-1, (-1, head_dim)).transpose(0, 1), torch.arange(3), layout=layout)
            for w in (w_q, w_k)
        )
        return q @ k.mT

    expected = scores(weight, keys, "half")
    found = scores(converted, _reorder(keys, head_dim, source="half", target="interleaved"), "interleaved")
    return bool(torch.allclose(found, expected, rtol=1e-8, atol=1e-8 * float(expected.abs().max())))


_LAYOUT = Exercise(
    id="14.4",
    title="A Llama matrix for an interleaved kernel",
    kind="function",
    difficulty=2,
    minutes=10,
    prompt="A checkpoint was trained in the half layout; your kernel turns neighbours. Write "
    "`half_to_interleaved(weight, head_dim)`: the same query weights with their rows reordered so that the interleaved "
    "layout gives the same scores, if the keys are reordered likewise. `weight` is a float64 tensor of shape "
    "`(n_heads * head_dim, d_model)`; the rows of one head stand together.",
    draw=_draw_weight,
    reference=half_to_interleaved,
    properties=(Property("The scores are not those of the half layout.", _same_scores),),
    hints=(
        "Where must row 1 + d/2 of a head go, counted from 1, so that it becomes the neighbour of row 1?",
        "Within a head, write the rows as a table with two rows of d/2; the new order reads it column by column.",
        "Split the first dimension into heads, two halves and head_dim/2, exchange two of these, and flatten.",
    ),
    mistakes=(
        Mistake("the way back", lambda w, d: _reorder(w, d, source="interleaved", target="half"),
                "That is the reordering from interleaved to half. Yours goes the other way: rows that are d/2 apart must "
                "become neighbours."),
        Mistake("all heads as one", lambda w, d: _reorder(w, w.shape[0], source="half", target="interleaved"),
                "You reordered the whole matrix as if it were one head, so rows wander from head to head. Reorder within "
                "each head."),
        Mistake("columns instead of rows",
                lambda w, d: _reorder(w.T, d, source="half", target="interleaved").T,
                "You reordered columns. Columns belong to the input; a head's entries come out of the rows."),
        Mistake("nothing done", lambda w, d: w.clone(),
                "The weights came back as they were: neighbours are still different pairs."),
        Mistake("second before first",
                lambda w, d: _reorder(w, d, source="half", target="interleaved").unflatten(0, (-1, 2)).flip(1).flatten(0, 1),
                "In each pair the second entry comes before the first. The pair would be turned with the clock."),
    ),
)  # fmt: skip


def _sides(c: Mapping) -> tuple[float, float]:
    """Return the product of the turned vectors, and what the mended line says it is."""
    z, w, s = complex(c["x1"], c["x2"]), complex(c["y1"], c["y2"]), cmath.exp(1j * (c["n"] - c["m"]))
    return (z.conjugate() * w * s).real, ((z * s).conjugate() * w).real


def _flaw(c: Mapping) -> str:
    """Name what keeps a proposed counterexample from being one."""
    c = {name: float(value) for name, value in c.items()}
    z, w = complex(c["x1"], c["x2"]), complex(c["y1"], c["y2"])
    if not (c["m"].is_integer() and c["n"].is_integer()):
        return "between positions"
    if abs(z) < 1e-9 or abs(w) < 1e-9:
        return "nothing there"
    if c["m"] == c["n"]:
        return "same position"
    if abs((z.conjugate() * w).imag) <= 1e-6 * abs(z) * abs(w):
        return "one line"
    true, claimed = _sides(c)
    return "none" if abs(true - claimed) >= 0.01 else "too close"


def _flaw_case(x1: float, x2: float, y1: float, y2: float, m: float, n: float) -> dict:
    return {"x1": x1, "x2": x2, "y1": y1, "y2": y2, "m": m, "n": n}


_MENDED = Exercise(
    id="14.5",
    title="A line mended the wrong way",
    kind="flaw",
    difficulty=2,
    minutes=8,
    prompt="In the notes one side of $\\mathrm{RoPE}(x, m)^\\top\\mathrm{RoPE}(y, n) = \\dots$ is lost. A reader mends it "
    "to $\\mathrm{RoPE}(x, n - m)^\\top\\mathrm{RoPE}(y, 0)$: it depends on $n - m$ only, as it should. Still it is wrong. "
    "Give a counterexample with one pair and $\\omega = 1$: a dictionary with the numbers `x1`, `x2`, `y1`, `y2` "
    "(the entries of $x$ and $y$) and whole numbers `m`, `n`, for which the two sides differ by 0.01 or more.",
    draw=lambda generator: {"seed": _whole(generator, 0, 999)},
    reference=_flaw_case(1.0, 0.0, 0.0, 1.0, 0.0, 1.0),
    properties=(
        Property("Your case is not one that was asked for, or both sides agree.", lambda i, c: _flaw(c) == "none"),
    ),
    hints=(
        "Write both sides with complex numbers: each is the real part of a product with one rotation.",
        "The two rotations are each other's conjugates: by which angle do they differ?",
        "The cosine part is the same on both sides. Choose x and y so that the sine part counts.",
    ),
    mistakes=(
        Mistake("the same position", _flaw_case(1.0, 0.0, 0.0, 1.0, 2.0, 2.0),
                "With m = n nothing is turned on either side. Take two different positions.",
                lambda i, c: _flaw(c) == "same position"),
        Mistake("vectors on one line", _flaw_case(1.0, 2.0, 1.0, 2.0, 0.0, 1.0),
                "Your x and y lie on one line. Then the score is a multiple of cos(n - m), and a cosine does not tell n - m "
                "from m - n. Take vectors that are not parallel.",
                lambda i, c: _flaw(c) == "one line"),
        Mistake("a zero vector", _flaw_case(0.0, 0.0, 0.0, 1.0, 0.0, 1.0),
                "One of your vectors is zero, so both sides are zero.",
                lambda i, c: _flaw(c) == "nothing there"),
        Mistake("not a position", _flaw_case(1.0, 0.0, 0.0, 1.0, 0.0, 0.5),
                "Positions are whole numbers: choose m and n so.",
                lambda i, c: _flaw(c) == "between positions"),
        Mistake("too small to see", _flaw_case(0.01, 0.0, 0.0, 0.01, 0.0, 1.0),
                "Both sides differ, but by less than 0.01: take longer vectors, or another distance (355 is nearly a "
                "multiple of a half turn).",
                lambda i, c: _flaw(c) == "too close"),
    ),
)  # fmt: skip


def ntk_frequencies(dim, base, scale):
    """Return the frequencies of a new base that slows the slowest pair by `scale` and the fastest not at all."""
    new_base = base * scale ** (dim / (dim - 2))
    return new_base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def _with_base(dim: int, base: float) -> Tensor:
    return base ** -_exponents(dim)


_NTK = Exercise(
    id="14.6",
    title="A new base for a longer context",
    kind="function",
    difficulty=3,
    minutes=12,
    prompt="A model was trained with $\\omega_i = b^{-2(i-1)/d}$, $i = 1..d/2$, and is to read a context $s$ times as long. "
    "Write `ntk_frequencies(dim, base, scale)`: the frequencies $b'^{-2(i-1)/d}$ of a new base $b'$, chosen such that the "
    "slowest pair becomes exactly $s$ times slower. `dim` is $d \\ge 6$, `base` is $b$, `scale` is $s > 1$; return a "
    "float64 tensor of $d/2$ entries.",
    draw=lambda generator: {
        "dim": 2 * _whole(generator, 3, 6),
        "base": float(_whole(generator, 50, 10_000)),
        "scale": float(_whole(generator, 2, 8)),
    },
    reference=ntk_frequencies,
    properties=(
        Property("The fastest pair should turn as before.", lambda i, f: abs(float(f[0]) - 1) < 1e-9),
        Property(
            "The slowest pair should be exactly s times slower than before.",
            lambda i, f: math.isclose(
                float(f[-1]), float(_with_base(i["dim"], i["base"])[-1]) / i["scale"], rel_tol=1e-7
            ),
        ),
        Property(
            "The frequencies should be powers of one number.",
            lambda i, f: bool(torch.allclose(f[1:] / f[:-1], (f[1] / f[0]).expand(len(f) - 1), rtol=1e-7, atol=0)),
        ),
    ),
    hints=(
        "Write the condition for the last pair only: what is its exponent?",
        "The last pair has i = d/2, so its exponent is -(d - 2)/d.",
        "Take the condition to the power -d/(d - 2) and solve it for the new base.",
    ),
    mistakes=(
        Mistake("all pairs alike", lambda d, b, s: _with_base(d, b) / s,
                "You slowed all pairs down alike. That is position interpolation: it squeezes neighbours together for the "
                "fast pairs, too. Here the first pair keeps its frequency."),
        Mistake("base times scale", lambda d, b, s: _with_base(d, b * s),
                "You multiplied the base by s. The last pair's exponent is (d - 2)/d, not 1, so it is slowed down by less "
                "than s."),
        Mistake("exponent upside down", lambda d, b, s: _with_base(d, b * s ** ((d - 2) / d)),
                "The exponent of s is upside down: solving for the base takes the inverse of (d - 2)/d."),
        Mistake("faster instead of slower", lambda d, b, s: _with_base(d, b * s ** (-d / (d - 2))),
                "Your pairs turn faster than before. A larger base makes them slower."),
        Mistake("only the last pair", lambda d, b, s: torch.cat([_with_base(d, b)[:-1], _with_base(d, b)[-1:] / s]),
                "You changed the last pair alone. The new frequencies should come from one new base, which changes all but "
                "the first."),
    ),
)  # fmt: skip

EXERCISES = {e.id: e for e in (_SCORE, _PAIR, _ROWS, _LAYOUT, _MENDED, _NTK)}

FIGURES = {
    "question": plot_question,
    "shift": plot_shift,
    "wavelengths": plot_wavelengths,
    "layouts": plot_layouts,
    "decay": plot_decay,
    "extension": plot_extension,
    "explorer": lambda: ClockExplorer().strip(),
    "precision": plot_precision,
}
