"""Figures, explorer and predictions of lesson 17, ridge_attention."""

import math
from functools import cache

import numpy as np
import torch
from IPython.display import Markdown
from matplotlib.patches import Rectangle
from torch import Tensor
from torch.nn.functional import normalize

from course_lib.attention.ridge import (
    cholesky_update,
    conjugate_gradient,
    operations,
    ridge_attention,
    ridge_memory,
    sherman_morrison,
)
from course_lib.lessons.ridge_attention.contents import lesson
from course_lib.measured import quote
from course_lib.teaching import Explorer, Slider, lines, markdown_table, panels
from course_lib.teaching.style import BLACK, BLUE, RED

METHODS = ("softmax attention", "linear attention", "delta rule", "ridge attention")


def random_pairs(
    count: int, width: int, *, generator: torch.Generator, correlation: float | int = 0.0
) -> tuple[Tensor, Tensor]:
    """Return `count` random keys and values of length 1; two keys have cosine `correlation` on average."""
    shared = normalize(torch.randn(width, generator=generator, dtype=torch.float64), dim=0)
    own = normalize(torch.randn(count, width, generator=generator, dtype=torch.float64), dim=1)
    keys = normalize(math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * own, dim=1)
    return keys, normalize(torch.randn(count, width, generator=generator, dtype=torch.float64), dim=1)


def delta_memory(keys: Tensor, values: Tensor, *, step_size: float | int = 1.0) -> Tensor:
    """Return the memory of the delta rule after all pairs."""
    memory = keys.new_zeros(keys.shape[1], values.shape[1])
    for key, value in zip(keys, values, strict=True):
        memory = memory + step_size * torch.outer(key, value - key @ memory)
    return memory


def recall_errors(keys: Tensor, values: Tensor, *, penalty: float | int) -> dict[str, float]:
    """Ask for every stored value by its key: mean squared error over the mean square of the values.

    Softmax attention scores with 8 q.k, which is what vectors of length 8, the length of random ones in 64
    dimensions, have after the division by sqrt(64).
    """
    answers = {
        "softmax attention": torch.softmax(8 * keys @ keys.T, dim=1) @ values,
        "linear attention": keys @ (keys.T @ values),
        "delta rule": keys @ delta_memory(keys, values),
        "ridge attention": keys @ ridge_memory(keys, values, penalty=penalty),
    }
    power = values.square().sum()
    return {name: float((answer - values).square().sum() / power) for name, answer in answers.items()}


@lesson.figure(
    None,
    "stored pairs $n$",
    "relative squared error",
    size=(7.2, 4.2),
    legend="lower right",
    yscale="log",
    ylim=(1e-6, 10),
)
def plot_question(axes, *, width: int = 64, penalty: float = 0.01):
    """Draw the recall error of four memories against the number of stored pairs."""
    counts = (2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 128, 160, 192)
    keys, values = random_pairs(counts[-1], width, generator=torch.Generator().manual_seed(17))
    errors = [recall_errors(keys[:n], values[:n], penalty=penalty) for n in counts]
    lines(axes, counts, {name: [e[name] for e in errors] for name in METHODS[::-1]}, marker="o", markersize=4)
    axes.axvline(width, color=BLACK, linewidth=1, linestyle=(0, (1, 3)), label="as many pairs as dimensions")
    axes.set_title(f"Who remembers? Recall by a matrix of {width} x {width}, and by keeping everything")
    return (
        f"Relative squared error of recall against the number of stored pairs, keys of {width} dimensions. Linear "
        "attention and the delta rule err by more than a tenth from about 16 pairs on. Ridge attention errs by less than a "
        f"hundredth up to 48 pairs and rises steeply near {width}; beyond, no {width} x {width} matrix can hold all pairs. "
        "Softmax attention, which keeps every pair, errs little throughout."
    )


@lesson.figure(None, "tokens $n$", "multiplications", legend="upper left", xscale="log", yscale="log")
def plot_costs(axes, *, width: int = 64):
    """Draw the multiplications for the inverse against the number of tokens."""
    tokens = np.unique(np.logspace(0, 4, 60).astype(int))
    methods = {
        "one inversion in all, $n d^2 + d^3$": "single",
        "one inversion a token, $n d^3$": "resolve",
        "one rank-one update a token, $2 n d^2$": "rank_one",
    }
    counts = {label: [operations(int(n), width, method=method) for n in tokens] for label, method in methods.items()}
    lines(axes, tokens, counts)
    axes.axvline(width, color=BLACK, linewidth=1, linestyle=":", label="$n = d$")
    axes.set_title(f"What the rank-one update saves, and where it costs (d = {width})")
    return (
        f"Multiplications for the inverse against the number of tokens, on logarithmic axes, for width {width}. Inverting "
        f"anew at every token costs {width // 2} times as much as updating at every token. A single inversion "
        f"after the last token costs half as much as all updates together once there are many more tokens than {width}; "
        f"with fewer tokens than {width} it costs more."
    )


@lesson.figure(size=(8.2, 3.6), bare=True, xlim=(-1.6, 17.4), ylim=(-1.0, 6.9), aspect="equal")
def plot_prefixes(axes, tokens: int = 6, seen: int = 3, width: int = 4):
    """Draw that the first rows of L and of B alone decide the first rows of Z, where L Z = B."""
    parts = ((0, tokens, "L"), (tokens + 1, width, "Z"), (tokens + width + 3, width, "B"))
    for left, columns, name in parts:
        for row in range(tokens):
            for column in range(columns):
                shaded, zero = row < seen, name == "L" and column > row
                color = "white" if zero else BLUE if shaded else "0.88"
                place = (left + column * 5 / tokens if name == "L" else left + column, tokens - 1 - row)
                look = {"facecolor": color, "alpha": 0.55 if shaded and not zero else 1.0, "edgecolor": "0.6"}
                axes.add_patch(Rectangle(place, 5 / tokens if name == "L" else 1, 1, **look))
        middle = left + (2.5 if name == "L" else columns / 2)
        axes.text(middle, tokens + 0.25, f"${name}$", ha="center", fontsize=14)
    axes.text(tokens + width + 2, tokens / 2, "=", ha="center", va="center", fontsize=18)
    axes.text(-0.2, tokens - seen / 2, f"first {seen}\ntokens", ha="right", va="center", fontsize=9)
    axes.text(2.5, -0.75, "lower triangle", ha="center", fontsize=9)
    return (
        f"Three tables side by side: L, a lower triangle of {tokens} rows, times Z equals B. Their first {seen} rows are "
        f"shaded. In L they have entries in the first {seen} columns only, so the first {seen} rows of Z follow from the "
        f"first {seen} rows of B and the upper left block of L, and later tokens cannot change them."
    )


@lesson.figure(
    "One new pair: which way the memory moves",
    "first entry of $W$",
    "second entry of $W$",
    size=(5.8, 4.8),
    legend={"loc": "upper right", "fontsize": 8},
    xlim=(-0.2, 2.4),
    ylim=(-0.5, 2.0),
    aspect="equal",
)
def plot_directions(axes):
    """Draw the step of ridge attention and that of the delta rule, for two keys with two entries."""
    keys = torch.tensor([[1.0, 0.0], [0.8, 0.6]], dtype=torch.float64)
    values = torch.tensor([[0.6], [1.1]], dtype=torch.float64)
    before, after = (ridge_memory(keys[:n], values[:n], penalty=1e-3)[:, 0].numpy() for n in (1, 2))
    key, value = keys[1].numpy(), float(values[1])
    delta = before + key * (value - key @ before) / (key @ key)
    axes.axvline(float(values[0]), color=BLUE, linestyle="--", label="answers the old pair exactly")
    x = np.array([-0.2, 2.4])
    axes.plot(x, (value - key[0] * x) / key[1], color=RED, linestyle=":", label="answers the new pair exactly")
    for end, color, name, offset in ((after, BLUE, "ridge", (8, 6)), (delta, RED, "delta rule", (8, 2))):
        arrow = {"arrowstyle": "-|>", "color": color, "linewidth": 2.2, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", end, before, arrowprops=arrow)
        axes.annotate(name, end, offset, textcoords="offset points", color=color)
    axes.plot(*before, "o", color=BLACK, label="memory before the new pair")
    return (
        "The plane of memories W with two entries. One line holds those that answer the old pair, another those that answer "
        "the new one. The memory starts on the first line. The delta rule goes straight to the second line and leaves the "
        "first; ridge attention goes along the first line to where both cross, so that the old pair stays answered."
    )


MARKS = tuple(int(n) for n in np.unique(np.logspace(0, 4, 33).astype(int)))


@cache
def drift(penalty: float = 1e-4, width: int = 16) -> dict[str, list[float]]:
    """Return relative errors of the float32 inverse after 1 to 10,000 tokens, for three ways to keep it."""
    generator = torch.Generator().manual_seed(0)
    keys = normalize(torch.randn(MARKS[-1], width, generator=generator, dtype=torch.float32), dim=1)
    # By name: a notebook may have made float64 the default.
    eye = torch.eye(width, dtype=torch.float32)
    gram, exact = penalty * eye, penalty * eye.double()
    plain, resolved, factor = eye / penalty, eye / penalty, gram.sqrt()
    errors = {name: [] for name in ("updated", "updated, computed anew every 100", "Cholesky factor")}
    for t, key in enumerate(keys, start=1):
        gram, exact = gram + torch.outer(key, key), exact + torch.outer(key.double(), key.double())
        plain, factor = sherman_morrison(plain, key, key), cholesky_update(factor, key)
        resolved = sherman_morrison(resolved, key, key) if t % 100 else torch.linalg.inv(gram)
        if t in MARKS:
            true = torch.linalg.inv(exact)
            for name, inverse in zip(errors, (plain, resolved, torch.cholesky_inverse(factor)), strict=True):
                errors[name].append(float((inverse.double() - true).norm() / true.norm()))
    return errors


@lesson.figure(
    "The error comes with the first $d$ tokens, then fades (float32, $\\lambda = 10^{-4}$)",
    "tokens $n$",
    "relative error of $P_n$",
    size=(7.2, 4.2),
    legend="upper right",
    xscale="log",
    yscale="log",
    ylim=(1e-8, 1e-1),
)
def plot_drift(axes):
    """Draw the error of the inverse over 10,000 rank-one updates."""
    lines(axes, MARKS, drift())
    axes.axvline(16, color=BLACK, linewidth=1, linestyle=":", label="as many tokens as dimensions")
    return (
        "Relative error of the inverse in float32 against the number of tokens, on logarithmic axes, for keys of 16 "
        "dimensions and lambda = 0.0001. Updated by Sherman-Morrison, it jumps by a factor of hundreds round token 16, then "
        "falls slowly. Computed anew every 100 tokens it drops below a millionth at token 100. Inverted from an updated "
        "Cholesky factor it reaches a few millionths at token 16 and creeps up with the number of updates, to more than "
        "the other two at the end."
    )


def _measured() -> tuple[dict[int, float], ...]:
    return tuple(dict(zip(MARKS, errors, strict=True)) for errors in list(drift().values())[:2])


@lesson.figure(
    "Where an updated inverse loses its digits (float32)",
    "tokens $n$",
    "relative error of $P_n$",
    size=(7.0, 3.8),
    legend="upper right",
    xscale="log",
    yscale="log",
    ylim=(1e-8, 1e-1),
    example=lambda: (_measured()[0], _measured()[0], _measured()[1]),
)
def plot_digits(axes, plain: dict[int, float], larger: dict[int, float], fresh: dict[int, float]):
    """Draw measured errors of the inverse after each number of tokens: a small penalty, a larger one, one inversion."""
    curves = {"$\\lambda = 10^{-4}$": plain, "$\\lambda = 10^{-2}$": larger, "computed anew once, at 100": fresh}
    lines(axes, None, {name: (list(errors), list(errors.values())) for name, errors in curves.items()})
    axes.axvline(16, color=BLACK, linewidth=1, linestyle=":", label="as many tokens as dimensions")
    return (
        "Relative error of the updated inverse against the number of tokens, both logarithmic. With lambda = 0.0001 it "
        "peaks soon after 16 tokens and falls from there; with the larger penalty the peak is much lower; computed anew "
        "once after 100 tokens it falls to a millionth or less at that point."
    )


def changing_pairs(
    *, runs: int = 20, tokens: int = 400, width: int = 8, noise: float = 0.1, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Return normal keys, and values M k + noise, (runs, tokens, width); at half of the tokens another map M takes over."""
    generator = torch.Generator().manual_seed(seed)
    randn = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    keys, maps = randn(runs, tokens, width), (randn(runs, width, width), randn(runs, width, width))
    values = torch.cat([k @ m for k, m in zip(keys.chunk(2, 1), maps, strict=True)], 1)
    return keys, values + noise * randn(runs, tokens, width)


def window_answers(queries: Tensor, keys: Tensor, values: Tensor, *, window: int, penalty: float | int) -> Tensor:
    """Return what each query reads from the ridge memory of the latest `window` pairs."""
    answers = []
    for end in range(1, keys.shape[1] + 1):
        start = max(0, end - window)
        memory = ridge_memory(keys[:, start:end], values[:, start:end], penalty=penalty)
        answers.append(queries[:, end - 1 : end] @ memory)
    return torch.cat(answers, 1)


def tracking_errors(*, decay: float | int = 1.0, window: int | None = None, penalty: float | int = 0.01) -> Tensor:
    """Return for each token of `changing_pairs` how wrong the next value is predicted: squared error over squared size."""
    keys, values = changing_pairs()
    ahead, stored = keys[:, 1:], (keys[:, :-1], values[:, :-1])
    if window is None:
        answers = ridge_attention(ahead, *stored, penalty=penalty, decay=decay)
    else:
        answers = window_answers(ahead, *stored, window=window, penalty=penalty)
    return (answers - values[:, 1:]).square().sum((0, 2)) / values[:, 1:].square().sum((0, 2))


def _tracked() -> dict[str, Tensor]:
    return {
        "no forgetting": tracking_errors(),
        "decay 0.95": tracking_errors(decay=0.95),
        "window of 20 pairs": tracking_errors(window=20),
    }


@lesson.figure(
    "The map changes at token 200",
    "tokens read",
    "relative squared error of the next value",
    size=(7.4, 4.4),
    legend={"loc": "upper center", "ncols": 3, "fontsize": 9},
    yscale="log",
    ylim=(5e-4, 60),
    example=_tracked,
)
def plot_forgetting(axes, errors: dict[str, Tensor]):
    """Draw how wrong the next value is predicted, for memories that forget differently."""
    lines(axes, np.arange(1, 400), errors, linewidth=1.4)
    axes.axvline(200, color=BLACK, linewidth=0.8, linestyle=":")
    said = [f"{name} {float(error[-100:].mean()):.2g}" for name, error in errors.items()]
    return (
        "Relative squared error of the next value against the number of tokens read, logarithmic, mean over 20 sequences. "
        "Up to token 200 all three memories fall to the noise. There the map from keys to values changes and all errors "
        "jump above 1. Without forgetting the error falls slowly; with a decay or a window it is back at the noise "
        "within 100 tokens. Mean over the last 100 tokens: " + ", ".join(said) + "."
    )


def _cg_errors(penalty: float, steps: tuple[int, ...], *, width: int = 64) -> np.ndarray:
    keys, values = random_pairs(width, width, generator=torch.Generator().manual_seed(0))
    gram = keys.T @ keys + penalty * torch.eye(width, dtype=torch.float64)
    exact = ridge_memory(keys, values, penalty=penalty)
    found = [conjugate_gradient(gram, keys.T @ values, steps=s) for s in steps]
    return np.array([max(1e-13, float((f - exact).norm() / exact.norm())) for f in found])


@lesson.figure(
    "Thirty steps of conjugate gradients: enough for a large penalty only",
    "steps",
    "relative error of $W$",
    size=(7.0, 4.0),
    legend={"loc": "upper right", "ncols": 3},
    yscale="log",
    ylim=(1e-13, 1e4),
)
def plot_conjugate_gradient(axes):
    """Draw the error of the memory against the steps of conjugate gradients for several penalties."""
    steps = tuple(range(0, 81, 2))
    lines(axes, steps, {f"$\\lambda$ = {penalty:g}": _cg_errors(penalty, steps) for penalty in (1.0, 0.1, 1e-2, 1e-4)})
    axes.axvline(30, color=BLACK, linewidth=1, linestyle=(0, (1, 3)), label="30 steps")
    return (
        "Relative error of the memory of 64 pairs in 64 dimensions against the steps of conjugate gradients, in float64. "
        "After 30 steps it is at rounding level for lambda = 1 and about 0.00001 for 0.1, but a few percent for 0.01 and "
        "more than half for 0.0001."
    )


def measured_table() -> Markdown:
    """Return what `make bench attention` stored of the chunk form against the token loop."""
    shapes = ("1 x 512", "16 x 512", "1 x 4096", "16 x 2048")
    times = [quote("attention", f"{shape}: chunk / Sherman-Morrison loop", ".2f") for shape in shapes]
    return markdown_table(("heads x tokens", *shapes), [("chunk form / token loop", *times)])


@lesson.explorer
class RecallExplorer(Explorer):
    """Recall by linear attention, the delta rule and ridge attention, and the spectrum that decides."""

    title = "Recall from a matrix"
    summary = (
        "Left: relative squared error when every stored value is asked for by its key, against the number of stored "
        "pairs, in 32 dimensions; the vertical line is the number in use. At 1 an answer is as far off as no answer. "
        "Right: the singular values of K^T K + lambda I for that number, largest first, and lambda itself as a level line."
    )
    pairs = Slider(
        "stored pairs",
        "n",
        "How many random pairs of a key and a value are stored; there are 32 dimensions",
        20,
        1,
        96,
        1,
    )
    log_penalty = Slider(
        "penalty", "log10 λ", "Power of ten of the penalty on the squared memory", -2.0, -6.0, 2.0, 0.25
    )
    correlation = Slider("key correlation", "ρ", "Average cosine of the angle between two keys", 0.0, 0.0, 0.95, 0.05)
    noise = Slider(
        "query noise", "s", "Length of the random vector added to a key when it is used as a query", 0.0, 0.0, 1.0, 0.05
    )
    together = ("log_penalty", "noise")
    size = (9.6, 4.2)
    width = 32
    names = METHODS[1:]
    marks = np.array([1, 2, 3, *range(4, 97, 4)])
    layout = panels(
        ["Recall of all stored pairs", "Spectrum of $K^\\top K + \\lambda I$"],
        ["stored pairs $n$", "index"],
        ["relative squared error", "singular value"],
        grid=(1, 2),
        legend=[{"loc": "upper left", "fontsize": 8, "ncols": 2}, {"loc": "upper right", "fontsize": 8}],
        yscale="log",
        xlim=[(0, 97), (0, width + 1)],
        ylim=[(1e-7, 1e7), (1e-7, 1e4)],
    )

    def compute(self, *, pairs, log_penalty, correlation, noise):
        """Return the three curves of errors, the errors at the number in use and the singular values."""
        generator, most = torch.Generator().manual_seed(2), int(self.marks[-1])
        keys, values = random_pairs(most, self.width, generator=generator, correlation=correlation)
        shift = normalize(torch.randn(most, self.width, generator=generator, dtype=torch.float64), dim=1)
        queries, penalty = keys + noise * shift, 10.0**log_penalty
        counts = np.union1d(self.marks, [pairs])
        memory, delta, wanted = keys.new_zeros(self.width, self.width), [], set(counts.tolist())
        for i in range(most):
            memory = memory + torch.outer(keys[i], values[i] - keys[i] @ memory)
            if i + 1 in wanted:
                delta.append(memory)
        stored = (torch.arange(most) < torch.as_tensor(counts)[:, None]).to(keys)[..., None]
        kept = stored * keys
        linear = kept.mT @ values
        gram = kept.mT @ kept + penalty * torch.eye(self.width, dtype=torch.float64)
        memories = torch.stack([linear, torch.stack(delta), torch.linalg.solve(gram, linear)])
        misses = (stored * (queries @ memories - values)).square().sum((-1, -2)) / torch.as_tensor(counts)
        place = int(np.searchsorted(counts, pairs))
        here = misses[:, place].tolist()
        return {
            "curves": [(counts, errors) for errors in misses.clamp(1e-12, 1e6).numpy()],
            "dots": [(pairs, error) for error in here],
            "line": ([pairs, pairs], [1e-7, 1e7]),
            "values": torch.linalg.eigvalsh(gram[place]).flip(0).clamp(min=penalty).numpy(),
            "level": [penalty, penalty],
            "here": here,
            "pairs": pairs,
            "shrunk": float((kept[place] @ memories[2, place] - stored[place] * values).square().sum() / pairs),
        }

    def draw(self, recall, spectrum):
        """Draw the number of dimensions, and all else to be moved."""
        recall.axvline(self.width, color=BLACK, linewidth=1, linestyle=":", label="$n = d$")
        curves = lines(recall, [], self.names[::-1])[::-1]  # colours as in the first figure
        dots = [recall.plot([], [], "o", color=curve.get_color())[0] for curve in curves]
        (line,) = recall.plot([], [], color=BLACK, linewidth=1.2, linestyle=(0, (6, 2)), label="$n$ in use")
        index = np.arange(1, self.width + 1)
        (values,) = lines(spectrum, index, {"singular values": index}, marker="o", markersize=4)
        (level,) = lines(spectrum, [0, self.width + 1], {"$\\lambda$": [1, 1]}, first=1)
        return {"curves": curves, "dots": dots, "line": line, "values": values, "level": level}

    def words(self, state):
        """Say the three errors and the condition number, and what limits recall."""
        linear, delta, ridge = (max(error, 1e-9) for error in state["here"])  # below there is nothing but rounding
        condition = state["values"][0] / state["values"][-1]
        count = state["pairs"]
        opening = (
            f"With {count} pair{'s' if count > 1 else ''} the error is {linear:.2g} for linear attention, {delta:.2g} for "
            f"the delta rule and {ridge:.2g} for ridge attention. The condition number is {condition:.2g}."
        )
        if count > self.width:
            return f"{opening} There are more pairs than dimensions: no 32 x 32 matrix answers all of them."
        if ridge <= 1e-3:
            return f"{opening} Ridge attention tells all pairs apart."
        if state["shrunk"] < ridge / 2:
            return f"{opening} Most of the last comes from the noise of the queries, which the memory passes on."
        return f"{opening} The penalty shrinks the answers."


cost_prediction = lesson.prediction(
    "17.P1",
    "The $n = 2048$ keys have $d = 64$ entries each. All queries come after the last key, so one inverse is enough. The "
    "first way adds up $\\lambda I + K^\\top K$ and inverts it once. The second way updates an inverse key by key, 2048 "
    "times. What becomes of the number of multiplications with the second way?",
    {
        "It falls by a factor of about 32": "That is the saving against an inversion after every key. Here only one is "
        "needed: n d² + d³ = 8,650,752 against 2 n d² = 16,777,216.",
        "It nearly doubles": "One inversion costs n d² + d³ = 8,650,752, nearly all of it for the sum K^T K. An update "
        "takes a product P k and an outer product, d² each, together 2 n d² = 16,777,216.",
        "It stays about the same": "The sum K^T K takes one outer product a key, d². An update takes a product P k as "
        "well: 2 n d² = 16,777,216 against n d² + d³ = 8,650,752.",
        "It falls by a factor of about 2048": "An inversion costs d³ once, not once a key: n d² + d³ = 8,650,752 "
        "against 2 n d² = 16,777,216.",
    },
    answer="It nearly doubles",
    reveal=plot_costs,
)

drift_prediction = lesson.prediction(
    "17.P2",
    "An inverse in float32 is updated by Sherman-Morrison for 10,000 keys in 16 dimensions, from $I/\\lambda$ with "
    "$\\lambda = 10^{-4}$. When is its relative error largest?",
    {
        "At the end: it grows with every update": "Later updates add little, and P itself is shrinking. What hurts is "
        "the subtraction from 1/λ, in the first tokens.",
        "Soon after 16 tokens": "While the first 16 keys come in, P falls from 10,000 to about 1 in every direction: "
        "the digits lost in that subtraction are lost for good. Then nothing of the kind happens again.",
        "It is about the same all the time": "It jumps by a factor of hundreds while the first 16 keys come in, then "
        "fades.",
    },
    answer="Soon after 16 tokens",
    reveal=plot_drift,
)

forgetting_prediction = lesson.prediction(
    "17.P3",
    "Values are a matrix times the key, with a little noise. At token 200 another matrix takes over, and 200 more tokens "
    "follow. The memory adds every pair to its sums and never forgets. What does it answer at token 400?",
    {
        "What the new matrix gives: new pairs correct old ones": "Each new pair moves the memory, but by less and less: the "
        "gain falls like one over the number of pairs.",
        "Roughly the mean of what both matrices give": "Least squares gives each of the 400 pairs the same weight, and half "
        "of them belong to the old matrix.",
        "Still what the old matrix gives": "New pairs do move it. After as many new pairs as old ones it is half way.",
    },
    answer="Roughly the mean of what both matrices give",
    reveal=plot_forgetting,
)

FIGURES = lesson.figures
