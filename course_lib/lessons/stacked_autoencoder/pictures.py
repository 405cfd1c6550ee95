"""Experiments, figures, explorer and predictions of lesson 35, stacked_autoencoder.

The model, and with it transformers, is loaded where it is needed: the module itself stays light.
"""

import math
from functools import cache
from statistics import mean

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor

from course_lib.lessons.stacked_autoencoder.contents import lesson
from course_lib.measured import measured
from course_lib.representation.bottleneck import Bottleneck, fit_bottleneck
from course_lib.representation.pca import pca
from course_lib.sae.metrics import explained_variance
from course_lib.teaching import Choice, Explorer, Slider, lines, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, RED

WIDTH = 32  # of the code: an eighth of the shipped model's 256 dimensions, as 128 is of 1024


@cache
def sentence_states(n_sentences: int = 3000, *, seed: int = 27, trained: bool = True) -> Tensor:
    """Return one row a sentence: the mean of the shipped model's last encoder states over its tokens, float64.

    The sentences have distinct meanings and take the languages in turn; they are read once a process. Not `trained`:
    the same model with the random weights that transformers starts it from.
    """
    from course_lib.language.corpus import generate
    from course_lib.mbart.activations import Site, extract
    from course_lib.mbart.model import load

    model, tokenizer = load("course-mbart")
    if not trained:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = type(model)(model.config).eval()
    # The output of the stack; stops before the decoder, which `pooled_states` also reads.
    site = Site("encoder")
    sentences = generate(n_sentences, seed=seed)
    return extract(model, tokenizer, sentences, (site,), pool="mean", progress=False)[site].values.double()


def principal_codes(states: Tensor, k: int) -> Tensor:
    """Return the first k principal components of the rows, each scaled to variance 1."""
    u, _, _ = torch.linalg.svd(states - states.mean(dim=0), full_matrices=False)
    return u[:, :k] * len(states) ** 0.5


def normal_twin(states: Tensor, *, seed: int = 0) -> Tensor:
    """Return as many normal rows, with the mean and the covariance of the given ones."""
    generator = torch.Generator().manual_seed(seed)
    _, s, vt = torch.linalg.svd(states - states.mean(dim=0), full_matrices=False)
    normal = torch.randn(len(states), len(s), generator=generator, dtype=states.dtype)
    return normal @ (s[:, None] * vt) / len(states) ** 0.5 + states.mean(dim=0)


@lesson.figure(
    ["a coordinate: keeps 1/2", "an angle: keeps $\\pi/4$ = 0.785"],
    "$x_1$",
    "$x_2$",
    grid=(1, 2),
    size=(7.2, 3.5),
    legend={"loc": "lower left", "fontsize": 8},
    xlim=(-3.4, 3.4),
    ylim=(-3.4, 3.4),
    aspect="equal",
)
def plot_angle(left, right_axes, *, points: int = 150, seed: int = 2):
    """Draw two codes of one number for a plane: a coordinate with a linear decoder, an angle with a circle."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(points, 2, generator=generator, dtype=torch.float64)
    line, circle = x * torch.tensor([1.0, 0.0]), math.sqrt(math.pi / 2) * x / x.norm(dim=1, keepdim=True)
    for axes, decoded in ((left, line), (right_axes, circle)):
        moves = torch.stack([x, decoded])
        axes.plot(*moves.unbind(-1), color="0.75", linewidth=0.7, linestyle="-", label=["_move"] * points)
        axes.plot(*x.T, ".", color=BLUE, markersize=4, label="points")
        axes.plot(*decoded.T, "x", color=RED, markersize=4, label="reconstructions")
    return (
        f"{points} normal points in the plane and their reconstructions from one number. Left, from the first "
        "coordinate: all lie on a line, and a half of the variance is kept. Right, from the angle: all lie on a circle of "
        "radius 1.25, closer to their points, and 0.785 of the variance is kept."
    )


# Codes that are read off, and what a decoder gives back


FITTED, MOST = 2000, 128  # rows that decoders are fitted to; numbers in a code
TRAINED, UNTRAINED, NORMAL = "trained model", "untrained model", "normal, all directions alike"
ENTRIES, DIRECTIONS, COMPONENTS = "first entries", "random directions", "principal components"
BACK, FIT = "put back as they are", "fitted"


@cache
def table_of(name: str) -> Tensor:
    """Return 3,000 rows of 256 numbers: states of the trained or the untrained model, or isotropic normal ones."""
    if name == NORMAL:
        return torch.randn(3000, 256, generator=torch.Generator().manual_seed(27), dtype=torch.float64)
    return sentence_states(trained=name == TRAINED)


@cache
def _moments(name: str) -> tuple[Tensor, Tensor, float]:
    """Return covariance of the fitted rows, moments of the others about the fitted mean, and the others' variance."""
    fit, other = table_of(name)[:FITTED], table_of(name)[FITTED:]
    away = other - fit.mean(dim=0)
    spread = (other - other.mean(dim=0)).square().sum(dim=1).mean()
    return torch.cov(fit.T, correction=0), away.T @ away / len(other), float(spread)


@cache
def directions_of(name: str, code: str) -> Tensor:
    """Return the orthonormal directions, as columns, that a code reads."""
    if code == ENTRIES:
        return torch.eye(256, dtype=torch.float64)[:, :MOST]
    if code == COMPONENTS:
        return pca(table_of(name)[:FITTED], MOST).components.T
    generator = torch.Generator().manual_seed(1)
    return torch.linalg.qr(torch.randn(256, MOST, generator=generator, dtype=torch.float64)).Q


def decoder_of(name: str, code: str, decoder: str, k: int) -> Tensor:
    """Return the map (k, 256) from a centred code of k numbers to centred rows, found on 2,000 rows."""
    directions = directions_of(name, code)[:, :k]
    if decoder == BACK:
        return directions.T
    covariance = _moments(name)[0]
    return torch.linalg.solve(directions.T @ covariance @ directions, directions.T @ covariance)


@cache
def kept_of_others(name: str, code: str, decoder: str, k: int) -> float:
    """Return the share of the variance of the 1,000 rows that were not fitted to."""
    _, away, spread = _moments(name)
    whole = directions_of(name, code)[:, :k] @ decoder_of(name, code, decoder, k)
    error = away.trace() - 2 * (whole.T @ away).trace() + (whole.T @ away @ whole).trace()
    return float(1 - error / spread)


SENTENCE = 2500  # of the 1,000 that no decoder was fitted to


@lesson.figure(
    "One sentence, read by the model",
    "entry",
    "value, less its mean",
    size=(8.6, 3.0),
    legend={"loc": "upper right", "fontsize": 9, "ncols": 2},
    xlim=(0, 257),
)
def plot_state(axes):
    """Draw one sentence's state, the 32 entries that are sent and the others."""
    states = sentence_states()
    state = (states[SENTENCE] - states[:FITTED].mean(dim=0)).numpy()
    at = np.arange(1, 257)
    axes.bar(at[WIDTH:], state[WIDTH:], width=0.9, color="0.75", label="224 entries, thrown away")
    axes.bar(at[:WIDTH], state[:WIDTH], width=0.9, color=BLUE, label="32 entries, sent")
    axes.set_ylim(-1.05 * np.abs(state).max(), 1.5 * np.abs(state).max())
    return (
        "The 256 entries of one sentence's state as bars above and below 0. The first 32 are sent; the other 224 are "
        "thrown away."
    )


KEPT_AT = (1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 64, 80, 96, 112, 128)


@lesson.figure(
    "What the first k entries tell about all 256",
    "entries sent, k",
    "variance given back (%)",
    legend={"loc": "upper left", "fontsize": 9},
    xlim=(0, MOST),
    ylim=(-2, 135),
    yticks=range(0, 101, 20),
)
def plot_entries(axes):
    """Draw what a fitted linear formula gives back from the first k entries, for three tables of rows."""
    names = {TRAINED: "states of the trained model", UNTRAINED: "of the untrained model", NORMAL: "normal rows"}
    curves = {label: [100 * kept_of_others(name, ENTRIES, FIT, k) for k in KEPT_AT] for name, label in names.items()}
    lines(axes, KEPT_AT, curves)
    axes.plot([0, MOST], [0, 50], color=BLACK, linestyle=":", linewidth=1.2, label="k / 256")
    at = [kept_of_others(name, ENTRIES, FIT, WIDTH) for name in names]
    axes.plot([WIDTH] * 3, [100 * one for one in at], "o", color=BLACK, markersize=6, fillstyle="none", label="k = 32")
    return (
        f"Share of the variance of 1,000 held-out rows, given back from their first k entries. At k = 32: "
        f"{at[0]:.0%} for states of the trained model, {at[1]:.0%} for the untrained one, {at[2]:.0%} for normal rows "
        "whose directions are all alike, a little below k/256: that is the cost of fitting to 2,000 rows."
    )


# One number for a point in space


ARC_CODES = {
    "both flat": (),
    "bent encoder": ("encoder",),
    "bent decoder": ("decoder",),
    "both bent": ("encoder", "decoder"),
}


def arc(rows: int, *, seed: int) -> Tensor:
    """Return points along a bent arc in three dimensions, with a little noise, float32."""
    generator = torch.Generator().manual_seed(seed)
    t = 2.8 * (2 * torch.rand(rows, generator=generator) - 1)
    return torch.stack([t.cos(), t.sin(), 0.2 * t], dim=1) + 0.08 * torch.randn(rows, 3, generator=generator)


@cache
def arc_network(name: str, seed: int = 0) -> Bottleneck:
    """Return a code of one number for the arc, trained on 600 points and chosen on 300 others.

    A bent encoder alone starts from random weights: from PCA its gradient is exactly zero.
    """
    random = name == "bent encoder"
    return fit_bottleneck(
        arc(600, seed=0),
        arc(300, seed=1),
        1,
        bent=ARC_CODES[name],
        step_size=0.03 if random else 0.02,
        steps=1000 if random else 500,
        batch=128,
        hidden=32,
        random=random,
        seed=seed,
    )


def _seen(points: Tensor) -> np.ndarray:
    """Return where a viewer sees points of space: across and up."""
    x, y, z = points.double().numpy().T
    turn = math.radians(-50)
    across, away = math.cos(turn) * x - math.sin(turn) * y, math.sin(turn) * x + math.cos(turn) * y
    return np.stack([across, 0.9 * z + 0.5 * away])


@lesson.figure(
    list(ARC_CODES),
    grid=(1, 4),
    bare=True,
    size=(10.2, 3.0),
    legend=[{"loc": "lower center", "fontsize": 8, "ncols": 2}, None, None, None],
    xlim=(-1.75, 1.75),
    ylim=(-1.6, 1.7),
)
def plot_arc(*axes):
    """Draw points in space and their reconstructions from one number, by four codes."""
    every, shares = arc(600, seed=0), []
    points = every[:160]
    for one, name in zip(axes, ARC_CODES, strict=True):
        with torch.no_grad():
            restored = arc_network(name)(points)
            share = explained_variance(every, arc_network(name)(every))
        shares.append(f"{name} {share:.0%}")
        here, there = _seen(points), _seen(restored)
        one.plot(
            *np.stack([here, there], axis=1), color="0.8", linewidth=0.6, linestyle="-", label=["_move"] * len(points)
        )
        one.plot(*here, ".", color=BLUE, markersize=4, label="points")
        one.plot(*there, "x", color=RED, markersize=4, label="given back")
        one.text(0, 1.5, f"{share:.0%} kept", ha="center", fontsize=10)
        for axis, label in zip(0.55 * torch.eye(3), ("$x_1$", "$x_2$", "$x_3$"), strict=True):
            tip = _seen(torch.stack([torch.zeros(3), axis])) + np.array([[1.2], [-0.75]])
            one.plot(*tip, color=BLACK, linewidth=0.9, linestyle="-", label="_axis")
            one.annotate(label, tip[:, 1], (2, 1), textcoords="offset points", fontsize=8)
    return (
        "160 of 600 points along a bent arc in space, and what four codes of one number give back of all: "
        + ", ".join(shares)
        + ". With a "
        "flat decoder all reconstructions lie on a straight line, also those of the bent encoder. With a bent decoder they "
        "lie on a curve."
    )


# The closing experiment: what `make bench bent_codes` stored


CASES = (("states", 2), ("states", 8), ("states", 32), ("twin", 8))
ARMS = {
    "PCA": "flat encoder, flat decoder: PCA",
    "PCA, quadratic": "PCA's code, quadratic decoder (ridge)",
    "PCA, bumps": "PCA's code, 500 bumps (ridge)",
    "PCA, neighbours": "PCA's code, nearest neighbours",
    "bent decoder": "flat encoder, bent decoder (trained)",
    "both bent": "both bent (trained)",
    "clusters": "number of a cluster, k - 1 directions",
}


def stored(name: str, k: int, arm: str) -> list[float]:
    """Return the shares of five splits, in percent."""
    return [100 * share for share in measured("bent_codes", f"{name}, {k}, {arm}")]


def gains(name: str, k: int, arm: str) -> list[float]:
    """Return how much more an arm keeps than PCA on the same split, in points, for the five splits."""
    return [a - b for a, b in zip(stored(name, k, arm), stored(name, k, "PCA"), strict=True)]


def as_components(k: int, arm: str) -> str:
    """Return the least number of principal components that give back at least as much of new states, to 0.1 points."""
    curves = 100 * np.array(measured("bent_codes", f"states, {k}, components"))
    least = mean(stored("states", k, arm)) - 0.05
    if least < curves.mean(axis=0)[0] - 0.1:
        return f"below {k}"
    return str(k + int((curves.mean(axis=0) < least).sum()))


def codes_table() -> Markdown:
    """Return what each arm keeps of held-out states, with the range of five splits and the components needed for it."""

    def cell(k: int, arm: str) -> str:
        found = stored("states", k, arm)
        return f"{mean(found):.1f} ({min(found):.1f} to {max(found):.1f}), {as_components(k, arm)}"

    rows = [(name, *(cell(k, arm) for k in (2, 8, 32))) for arm, name in ARMS.items()]
    what = "share in % (range), components needed for at least as much"
    return markdown_table((f"code and decoder: {what}", "k = 2", "k = 8", "k = 32"), rows)


def _dots(axes, name: str, k: int, arms: list[str], *, look: dict, shift: float = 0.0) -> None:
    for place, arm in enumerate(reversed(arms)):
        found, at = gains(name, k, arm), place + shift
        axes.plot([min(found), max(found)], [at, at], "-", color=look["color"], linewidth=2, label=f"_range {arm}")
        axes.plot(
            [mean(found)],
            [at],
            look["marker"],
            color=look["color"],
            markersize=6,
            label=f"_{name} {arm}" if place else {"states": "the model's states", "twin": "the normal twin"}[name],
        )


@lesson.figure(
    ["2 numbers", "8 numbers", "32 numbers"],
    "points more than PCA keeps",
    grid=(1, 3),
    size=(10.2, 3.4),
    legend=None,
    subplots={"sharey": True},
)
def plot_gains(*axes):
    """Draw what each arm gains over PCA on the states, with 2, 8 and 32 numbers."""
    arms, said = [arm for arm in ARMS if arm != "PCA"], []
    for one, k in zip(axes, (2, 8, 32), strict=True):
        one.axvline(0, color=BLACK, linewidth=1, linestyle=":")
        _dots(one, "states", k, arms, look={"color": BLUE, "marker": "o"})
        one.set_ylabel(f"codes of {k} numbers")
        said.append(f"{k} numbers: " + ", ".join(f"{ARMS[a]} {mean(gains('states', k, a)):.1f}" for a in arms))
    axes[0].set_yticks(range(len(arms)), labels=[ARMS[arm] for arm in reversed(arms)], fontsize=8.5)
    axes[0].set_ylim(-0.6, len(arms) - 0.4)
    return "Points of variance more than PCA keeps of held-out states (dotted line: PCA). " + "; ".join(said) + "."


@lesson.figure(
    "8 numbers",
    "points more than PCA keeps",
    size=(7.6, 3.6),
    legend={"loc": "center right", "fontsize": 8.5},
)
def plot_twin(axes):
    """Draw what each arm gains over PCA with 8 numbers, on states and on their normal twin."""
    arms = [arm for arm in ARMS if arm != "PCA"]
    axes.axvline(0, color=BLACK, linewidth=1, linestyle=":")
    _dots(axes, "states", 8, arms, look={"color": BLUE, "marker": "o"}, shift=0.14)
    _dots(axes, "twin", 8, arms, look={"color": RED, "marker": "s"}, shift=-0.14)
    axes.set_ylabel("codes of 8 numbers")
    axes.set_yticks(range(len(arms)), labels=[ARMS[arm] for arm in reversed(arms)], fontsize=8.5)
    axes.set_ylim(-0.6, len(arms) - 0.4)
    said = "; ".join(
        f"{ARMS[arm]} {mean(gains('states', 8, arm)):.1f} and {mean(gains('twin', 8, arm)):.1f}" for arm in arms
    )
    return f"Points of variance more than PCA keeps with 8 numbers (dotted line), on held-out states and twin rows: {said}."


# Explorer


@lesson.explorer
class CodeExplorer(Explorer):
    """Codes that are read off 256 numbers, and what a decoder gives back of rows that it was not fitted to."""

    title = "Send k of 256 numbers"
    summary = (
        "Left: 40 of the 256 entries of one held-out row, and what the decoder gives back. Right: share of the "
        "variance of 1,000 held-out rows that is given back, against k; the dotted line is k/256."
    )
    k = Slider("numbers sent", "k", "How many numbers of 256 are sent", WIDTH, 1, MOST, 1)
    rows = Choice("rows", "Whose rows of 256 numbers are sent", TRAINED, (TRAINED, UNTRAINED, NORMAL))
    code = Choice("numbers", "Which k numbers are sent", ENTRIES, (ENTRIES, DIRECTIONS, COMPONENTS))
    decoder = Choice(
        "decoder",
        "Put the numbers back where they were read, or use the best affine map for 2,000 other rows",
        BACK,
        (BACK, FIT),
    )
    stills = ({"decoder": FIT}, {"code": DIRECTIONS, "decoder": FIT}, {"code": COMPONENTS, "k": 33})
    size = (8.6, 3.3)
    shown = np.arange(161, 201)
    together = ("k", "code")
    layout = panels(
        ["Entries 161 to 200 of one row", "What is given back"],
        ["entry", "numbers sent, k"],
        ["standard deviations from the mean", "variance given back (%)"],
        grid=(1, 2),
        legend=[{"loc": "upper left", "fontsize": 8, "ncols": 2}, {"loc": "upper left", "fontsize": 8}],
        xlim=[(160, 201), (0, MOST)],
        # The room above is for the legends.
        ylim=[(-4, 5), (-5, 155)],
        yticks=[range(-4, 5, 2), range(0, 101, 20)],
    )

    def compute(self, *, k, rows, code, decoder):
        """Return one row with its reconstruction, and the shares that are given back over k."""
        table = table_of(rows)
        middle, size = table[:FITTED].mean(dim=0), table[:FITTED].std(dim=0)
        row = table[SENTENCE] - middle
        restored = row @ directions_of(rows, code)[:, :k] @ decoder_of(rows, code, decoder, k)
        some = self.shown - 1
        kept = 100 * kept_of_others(rows, code, decoder, k)
        return {
            "row": np.clip((row / size)[some].numpy(), -3.9, 3.9),
            "restored": np.clip((restored / size)[some].numpy(), -3.9, 3.9),
            "curve": [100 * kept_of_others(rows, code, decoder, j) for j in KEPT_AT],
            "here": ([k], [kept]),
            "kept": kept,
            "k": k,
            "settings": (rows, code, decoder),
        }

    def draw(self, left, right_axes):
        """Draw one row and its reconstruction, and the curve over k."""
        left.axhline(0, color="0.8", linewidth=0.8, linestyle="-")
        row, restored = lines(left, self.shown, ["the row", "given back"])
        right_axes.plot([0, MOST], [0, 50], color=BLACK, linestyle=":", linewidth=1.2, label="k / 256")
        (curve,) = lines(right_axes, KEPT_AT, ["these numbers, this decoder"])
        (here,) = right_axes.plot([], [], "o", color=RED, markersize=7, label="this k")
        return {"row": row, "restored": restored, "curve": curve, "here": here}

    def words(self, state):
        """Say what is sent, how it is decoded and how much comes back."""
        rows, code, decoder = state["settings"]
        k, kept = state["k"], state["kept"]
        worse = ", which is worse than answering the mean" if kept < 0 else ""
        return (
            f"Rows: {rows}. Sent: {k} of 256 numbers, {code}. Decoder: {decoder}. It gives back {kept:.1f}% of the variance "
            f"of 1,000 held-out rows{worse}; k/256 is {k / 256:.1%}."
        )


# Predictions


ask_entries = lesson.prediction(
    "35.P1",
    "32 of the 256 entries of each state are sent. A linear formula, fitted to 2,000 other sentences, fills in the 224 that "
    "were thrown away. 100% is every state exact, 0% is the average state each time. "
    "What share of the variance of 1,000 new states, all 256 entries counted, does it give back?",
    {
        "About 12%, an eighth": "So it would be if the entries told nothing about each other, as in the lowest curve.",
        "About 30%": "That is about what it gives for the same model before its training.",
        "About 50%": "More: in the trained model the entries tell even more about each other.",
        "About 70%": right("Much of what was thrown away can be predicted from what was kept."),
    },
    reveal=plot_entries,
)

ask_bends = lesson.prediction(
    "35.P2",
    "Points lie along a bent arc in space, nearly a full turn. A code of *one* number is trained for them. Flat encoder and "
    "flat decoder, which is PCA, keep under 60% of the variance. Now networks that can bend are added: to the encoder, to "
    "the decoder, or to both. Which of the three codes keep clearly more than PCA?",
    {
        "All three": "The bent encoder alone gains nothing: look where its reconstructions lie.",
        "The two with a bent encoder": "The bent encoder alone gains nothing, and the bent decoder alone gains a lot.",
        "The two with a bent decoder": right(
            "The decoder decides where reconstructions can lie: on a line, or on a curve."
        ),
        "Only the one where both bend": "With a bent decoder alone, one flat number already keeps much more.",
    },
    reveal=plot_arc,
)

ask_twin = lesson.prediction(
    "35.P3",
    "Now the same on *normal* rows with the mean and the covariance of the states, so that PCA keeps as much of them. Eight "
    "numbers, both parts bent and trained anew. On the states that gained more than 6 points over PCA. How much does "
    "it gain on the normal rows?",
    {
        "About as much": "The trained pair finds none of it there.",
        "About half of it": "The trained pair finds less still.",
        "Less than one point": right("The trained pair finds none of its gain there."),
    },
    reveal=plot_twin,
)

FIGURES = lesson.figures
