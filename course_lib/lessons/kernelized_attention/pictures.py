"""Figures, explorers and predictions of lesson 19, kernelized_attention."""

import math
from collections.abc import Callable
from statistics import mean

import numpy as np
import torch
from IPython.display import Markdown
from matplotlib import colormaps
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.attention.feature_maps import Quadratic, elu_features
from course_lib.attention.kernelized import (
    crossover_length,
    kernel_attention,
    linear_attention,
    linear_multiply_adds,
    softmax_multiply_adds,
)
from course_lib.attention.retrieval import SOFTMAX, SQUARE, elu_form, learn_to_retrieve, unit_tokens
from course_lib.lessons.kernelized_attention.contents import lesson
from course_lib.measured import measured
from course_lib.teaching import Choice, Explorer, Slider, Switch, lines, markdown_table, panels, right
from course_lib.teaching.layout import LOOKS
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED

Similarity = Callable[[Tensor, Tensor], Tensor]

# Each takes queries (N, D) and keys (N, D) and returns the table of their similarities (N, N).
SIMILARITIES: dict[str, Similarity] = {
    "q·k": lambda q, k: q @ k.mT,
    "(q·k + 1)²": lambda q, k: (q @ k.mT + 1) ** 2,
    "(q·k - 1)²": lambda q, k: (q @ k.mT - 1) ** 2,
    "‖q - k‖²": lambda q, k: (q[:, None] - k[None]).square().sum(-1),
    "‖q - k‖": lambda q, k: (q[:, None] - k[None]).norm(dim=-1),
    "max(0, q·k)": lambda q, k: (q @ k.mT).clamp(min=0),
    "exp(q·k/√D)": lambda q, k: (q @ k.mT / math.sqrt(q.shape[-1])).exp(),
    "elu + 1": lambda q, k: elu_features(q) @ elu_features(k).mT,
}
ASKED = ("(q·k - 1)²", "‖q - k‖²", "max(0, q·k)", "‖q - k‖")  # those of prediction 19.P1


def count_features(name: str, d: int) -> int | None:
    """Return C, the least number of features of a similarity for d entries, or None where no number is enough."""
    if name == "max(0, q·k)":
        return 2 if d == 1 else None  # on a line: the product of positive parts, and that of negative parts
    squares = (d + 1) * (d + 2) // 2
    return {"q·k": d, "elu + 1": d, "(q·k + 1)²": squares, "(q·k - 1)²": squares, "‖q - k‖²": d + 2}.get(name)


def queries_and_keys(length: int, d: int, *, seed: int = 15) -> tuple[Tensor, Tensor]:
    """Return `length` random queries and keys of d entries, float64; fewer are the first ones of more."""
    generators = [torch.Generator().manual_seed(seed + side) for side in (0, 1)]
    q, k = (torch.randn(length, d, generator=g, dtype=torch.float64) for g in generators)
    return q, k


# What `make bench attention` stored of `linear_attention` with the quadratic kernel against scaled_dot_product_attention:
# one head, float32, CPU time of one thread. The longest texts were timed at D = 64 only.
MEASURED_LENGTHS = {16: 8192, 32: 8192, 64: 32768}


def measured_ratios(d: int, *, causal: bool) -> dict[int, float]:
    """Return the time of linear attention over that of softmax attention for each length from 256 on."""
    lengths = [2**power for power in range(8, 16) if 2**power <= MEASURED_LENGTHS[d]]
    if d == 64:
        name = f"quadratic kernel / SDPA, {'causal' if causal else 'no mask'}, N={{}}"
    else:
        name = f"linear / SDPA, {'causal, ' if causal else ''}D={d}, N={{}}"
    return {length: measured("attention", name.format(length)) for length in lengths}


def measured_crossing(d: int, *, causal: bool) -> float:
    """Return the length from which on linear attention was faster."""
    if d == 64:
        return measured("attention", f"crossover N measured, quadratic kernel, {'causal' if causal else 'no mask'}")
    return measured("attention", f"crossover N measured, {'causal, ' if causal else ''}D={d}")


def measured_table() -> Markdown:
    """Return the lengths from which on linear attention was faster, and beside them those that the count says."""

    def cell(d: int, *, causal: bool) -> str:
        counted = crossover_length(d, d, n_features=(d + 1) * (d + 2) // 2, causal=causal)
        return f"{round(measured_crossing(d, causal=causal), -1):,.0f} ({math.ceil(counted):,})"

    header = ("$D = M$", "crosses, no mask (by the count)", "crosses, causal (by the count)")
    return markdown_table(header, [(d, cell(d, causal=False), cell(d, causal=True)) for d in (64, 32, 16)])


ON_A_GPU = "gpu/quadratic_on_gpu"  # what `make bench quadratic_on_gpu` stored


def gpu_table() -> Markdown:
    """Return times of the square on a GPU over those of softmax attention, and beside them the ratios of the counts."""
    heads = (64, 16)
    header = ["$N$", *(f"$D = M = {d}$ (by the count)" for d in heads)]
    rows = []
    for length in (2**power for power in range(11, 17)):
        cells = []
        for d in heads:
            timed = measured(ON_A_GPU, f"linear / SDPA, no mask, D={d}, forward and backward, N={length}")
            counted = crossover_length(d, d, n_features=Quadratic().n_features(d)) / length
            cells.append(f"{timed:.2f} ({counted:.2g})")
        rows.append((f"{length:,}", *cells))
    return markdown_table(header, rows)


LENGTHS = [2**power for power in range(6, 17)]


@lesson.figure(size=(8.4, 4.6), bare=True, xlim=(-0.4, 12.2), ylim=(-4.2, 4.6), aspect="equal")
def plot_question(axes):
    """Draw both orders of multiplication, matrices as rectangles."""
    n, d = 3.2, 1.0  # how long N tokens and D entries are drawn
    boxes = {
        "Q": (d, n, BLUE),
        "Kᵀ": (n, d, ORANGE),
        "N × N": (n, n, RED),
        "V": (d, n, GREEN),
        "D × D": (d, d, RED),
        "output": (d, n, "0.8"),
    }
    for title, row, y in (
        ("(Q Kᵀ) V: queries meet keys first", ["Q", "Kᵀ", "→", "N × N", "V", "→", "output"], 2.0),
        ("Q (Kᵀ V): keys meet values first", ["Kᵀ", "V", "→", "D × D", " ", "Q", "D × D", "→", "output"], -2.4),
    ):
        x = -0.2
        axes.text(x, y + 2.35, title, fontsize=11, fontweight="bold", va="center")
        for name in row:
            width, height, color = boxes.get(name, (0.4, 0, None))
            if color:
                place = (x, y - height / 2)
                axes.add_patch(Rectangle(place, width, height, facecolor=color, edgecolor=BLACK, alpha=0.45))
            axes.text(x + width / 2, y, name, ha="center", va="center", fontsize=9 if color else 16)
            x += width + 0.3
    return (
        "Two rows of matrices; N is in truth far longer beside D. Above, Q times K transposed is a large square of N by N "
        "numbers, which then meets V. Below, K transposed times V is a small square, which then meets Q."
    )


@lesson.figure(
    ["(qk - 1)²", "q² · k²", "(-2q) · k", "1 · 1"],
    "key k",
    "query q",
    size=(11.4, 3.3),
    grid=(1, 4),
    xticks=[[-1.5, 0, 1.5]] * 4,
    yticks=[[-1.5, 0, 1.5]] * 4,
)
def plot_layers(*axes):
    """Draw the table of (qk - 1)^2 for one entry and the three layers of rank one that add up to it."""
    at = torch.linspace(-1.5, 1.5, 13, dtype=torch.float64)
    layers = [torch.outer(at**2, at**2), torch.outer(-2 * at, at), torch.ones(13, 13, dtype=torch.float64)]
    for one, table, sign in zip(axes, [sum(layers), *layers], ("=", "+", "+", ""), strict=True):
        one.imshow(
            table.numpy(), cmap=colormaps["RdBu_r"].resampled(17), vmin=-11, vmax=11, extent=(-1.6, 1.6, 1.6, -1.6)
        )
        one.text(1.14, 0.5, sign, transform=one.transAxes, fontsize=20, ha="center", va="center")
    return (
        "Four tables of 13 queries by 13 keys, red for positive and blue for negative numbers. The last is 1 everywhere, "
        "and the first is the sum of the other three, each of which is a column times a row."
    )


@lesson.figure(
    "A table of N tokens: how many columns does it need?",
    "tokens N",
    "rank of the N × N table",
    size=(6.0, 3.6),
    legend=None,
    xlim=(0, 310),
    ylim=(0, 320),
)
def plot_ranks(axes, d: int = 4):
    """Draw the rank of four tables of similarities against the number of tokens."""
    q, k = queries_and_keys(300, d)
    lengths = [5, 10, 15, 20, 30, 60, 100, 150, 200, 250, 300]
    ranks = {name: [int(torch.linalg.matrix_rank(SIMILARITIES[name](q[:n], k[:n]))) for n in lengths] for name in ASKED}
    for line, name in zip(lines(axes, lengths, ranks, marker="o", markersize=4), ASKED, strict=True):
        last = ranks[name][-1]
        place = {"max(0, q·k)": (150, 215), "‖q - k‖": (220, 150), "(q·k - 1)²": (235, 32)}.get(name, (110, 32))
        axes.text(*place, f"{name}: {last} at N = 300", color=line.get_color(), fontsize=10, ha="center")
    return (
        f"Rank of the table against the number of random tokens, D = {d}. (q·k - 1)² stops at {ranks['(q·k - 1)²'][-1]} and "
        f"‖q - k‖² at {ranks['‖q - k‖²'][-1]}; the other two grow along with N, up to 300."
    )


@lesson.figure(size=(6.4, 4.0), bare=True, xlim=(-1.4, 8.6), ylim=(-0.4, 5.9), aspect="equal")
def plot_features(axes):
    """Draw every product of two entries of (1, x), and which of them become one feature."""
    names = ["1", "x₁", "x₂", "x₃", "x₄"]
    groups = {
        "constant": ("0.85", "1: once"),
        "entry": (BLUE, "xᵢ: twice, so the factor √2"),
        "square": (GREEN, "xᵢ²: once"),
        "cross": (RED, "xᵢxⱼ: twice, so the factor √2"),
    }
    for row, a in enumerate(names):
        axes.text(-0.3, 4.5 - row, a, ha="right", va="center", fontsize=12)
        axes.text(row + 0.5, 5.2, a, ha="center", va="bottom", fontsize=12)
        for column, b in enumerate(names):
            kind = (
                ("constant" if column == 0 else "square") if row == column else "cross" if row and column else "entry"
            )
            again = column < row  # the product stands above the diagonal already
            box = Rectangle((column, 4 - row), 1, 1, facecolor=groups[kind][0], edgecolor=BLACK, linewidth=0.8)
            box.set(alpha=0.12 if again else 0.5, linestyle=":" if again else "-")
            axes.add_patch(box)
            product = a + "²" if row == column > 0 else (a + b if row < column else b + a).replace("1", "") or "1"
            axes.text(column + 0.5, 4.5 - row, product, ha="center", va="center", color="0.55" if again else BLACK)
    for place, (color, meaning) in enumerate(groups.values()):
        axes.add_patch(Rectangle((5.5, 4.2 - 0.8 * place), 0.5, 0.5, facecolor=color, edgecolor=BLACK, alpha=0.5))
        axes.text(6.15, 4.45 - 0.8 * place, meaning, va="center", fontsize=9)
    return (
        "All products of two entries of (1, x), for D = 4. The entries below the diagonal, drawn pale, repeat those "
        "above: these products come twice and become one feature with the factor √2."
    )


@lesson.figure(
    ["chunks of 1: the recurrence", "chunks of 4", "one chunk: the whole table"],
    size=(9.6, 4.2),
    bare=True,
    grid=(1, 3),
    xlim=(-1.2, 12.7),
    ylim=(-2.9, 13.2),
    aspect="equal",
)
def plot_chunks(ones, fours, whole, tokens: int = 12):
    """Draw which similarities a causal form in chunks computes, and what its state stands for, for three sizes."""
    for axes, chunk in ((ones, 1), (fours, 4), (whole, tokens)):
        for query in range(tokens):
            for key in range(query + 1):
                near = query // chunk == key // chunk
                look = {"facecolor": RED if near else "0.87", "alpha": 0.55 if near else 1.0}
                place = (key, tokens - 1 - query)
                axes.add_patch(Rectangle(place, 1, 1, edgecolor="white", linewidth=0.8, **look))
        for start in range(chunk, tokens, chunk):
            place = (0, tokens - start - chunk)
            axes.add_patch(Rectangle(place, start, chunk, facecolor="none", edgecolor=BLUE, linewidth=1.6))
        axes.text(-0.2, tokens / 2, "queries", rotation=90, ha="right", va="center", fontsize=9)
        computed, reads = tokens // chunk * chunk * (chunk + 1) // 2, tokens // chunk - 1
        said = f"{computed} similarities computed,\nstate read {reads} times"
        axes.text(tokens / 2, -0.4, said, ha="center", va="top", fontsize=10)
    return (
        f"Tables of {tokens} queries by {tokens} keys under a causal mask. Orange cells are similarities that are computed; "
        "grey ones, framed in blue, are keys that queries read from the state. "
        "Larger chunks compute more, and read less often."
    )


@lesson.figure(
    None, "sequence length N", "multiply-adds", size=(6.0, 3.6), legend="upper left", xscale="log", yscale="log"
)
def plot_costs(axes, d: int = 64):
    """Draw multiply-adds of softmax attention and of two regrouped forms against the length, D = M."""
    features = Quadratic().n_features(d)
    linear = {f"square, C = {features:,}": features, f"elu + 1, C = {d}": d}
    curves = {name: [linear_multiply_adds(n, d, n_features=count) for n in LENGTHS] for name, count in linear.items()}
    lines(axes, LENGTHS, {"softmax": [softmax_multiply_adds(n, d, d) for n in LENGTHS], **curves})
    masked = [softmax_multiply_adds(n, d, d, causal=True) for n in LENGTHS]
    axes.plot(LENGTHS, masked, ":", color=BLUE, label="softmax, causal")
    first, second = (crossover_length(d, d, n_features=features, causal=causal) for causal in (False, True))
    for n, offset in ((first, (-58, 8)), (second, (8, -14))):
        cost = 2 * n * features * (d + 1)
        axes.plot([n], [cost], "o", color=BLACK, markersize=7, label="_crossover")
        axes.annotate(f"N = {math.ceil(n):,}", (n, cost), offset, textcoords="offset points", fontsize=9)
    axes.set_title(f"Where the lines cross (D = M = {d})")
    return (
        "Multiply-adds against the length, both logarithmic. The lines of softmax attention have slope 2, those of the "
        f"regrouped forms slope 1. The square meets softmax at N = {math.ceil(first):,}, and causal softmax at "
        f"{math.ceil(second):,}."
    )


def cancellation(*, signed: bool, length: int = 256, d: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return for each query the sum of the similarities' sizes over the size of their sum, and float32's error.

    `signed` takes the features x themselves, whose products have both signs; else elu(x) + 1. The error is
    ||V'_32 - V'_64|| / ||V'_64||, with both computed from the same float32 inputs.
    """
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(length, d, generator=generator, dtype=torch.float32) for _ in range(3))
    features = (lambda x: x) if signed else elu_features
    similarity = lambda a, b: features(a) @ features(b).mT  # noqa: E731
    weights = similarity(q.double(), k.double())
    exact = kernel_attention(q.double(), k.double(), v.double(), similarity=similarity)
    error = (linear_attention(q, k, v, feature_map=features) - exact).norm(dim=-1) / exact.norm(dim=-1)
    return weights.abs().sum(-1) / weights.sum(-1).abs(), error


# The closing experiment: what `make bench rank_price` stored, and the tables of weights of one run.

ARMS = ("softmax", "square, C = 45", "elu + 1, C = 8", "elu + 1, C = 45")
FORMS = {name: form for name, form in zip(ARMS, (SOFTMAX, SQUARE, elu_form(8), elu_form(45)), strict=True)}
PRICE_LENGTHS, PRICE_FEATURES = (8, 16, 32, 64), (2, 4, 8, 16, 24, 32, 45, 64)


def price(name: str, *, length: int = 32) -> list[float]:
    """Return what an arm missed after training at its best rate, one number a seed, as stored."""
    return measured("rank_price", f"N = {length}, {name}")


def price_table() -> Markdown:
    """Return what each arm missed on 32 tokens: mean, least and greatest of the seeds, and the best rate."""
    rows = []
    for name in ARMS:
        found = price(name)
        rate = measured("rank_price", f"N = 32, {name}, best rate")
        rows.append((name, f"{mean(found):.3f}", f"{min(found):.3f} to {max(found):.3f}", f"{rate:g}"))
    return markdown_table(("32 tokens", "missed, mean", "five seeds", "best rate"), rows)


def _spread(axes, x, found: list[list[float]], *, place: int, label: str, **look) -> None:
    """Draw means over seeds as a line, and the range of the seeds as bars."""
    centre = np.array([mean(one) for one in found])
    reach = [centre - [min(one) for one in found], [max(one) for one in found] - centre]
    (line,) = lines(axes, x, {label: centre}, first=place, marker="o", markersize=5, **look)
    axes.errorbar(x, centre, yerr=reach, fmt="none", ecolor=line.get_color(), capsize=3)


@lesson.figure(
    ["32 tokens: on the floor, then above it", "More tokens: features miss more"],
    ["number of features C", "number of tokens N"],
    "part of the values missed",
    size=(7.2, 3.2),
    grid=(1, 2),
    xlim=[(0, 67), (6.5, 80)],
    ylim=(-0.03, 1.02),
    xscale=["linear", "log"],
    legend=["upper right", {"loc": "upper left", "fontsize": 8}],
)
def plot_price(left, right_axes):
    """Draw what is missed against features and against tokens, means and ranges over five seeds, as stored."""
    counts = np.linspace(0, 67, 200)
    left.plot(counts, np.clip(1 - counts / 32, 0, None), "-", color=BLACK, linewidth=1.2, label="floor 1 - C/N")
    found = [price(f"elu + 1, C = {count}") for count in PRICE_FEATURES]
    _spread(left, PRICE_FEATURES, found, place=2, label="elu + 1, learned columns", linestyle="none")
    square = price("square, C = 45")
    left.plot([45], [mean(square)], "s", color=LOOKS[1]["color"], markersize=8, label="square, C = 45")
    left.axhline(mean(price("softmax")), color=BLUE, linestyle="--", linewidth=1.5, label="softmax")
    for place, name in enumerate(ARMS):
        _spread(right_axes, PRICE_LENGTHS, [price(name, length=n) for n in PRICE_LENGTHS], place=place, label=name)
    more = np.linspace(9, 80, 200)
    floor = (1 - 9 / more) ** 2 * more / (more - 1)
    right_axes.plot(more, floor, "-", color=BLACK, linewidth=1.2, label="floor of the square")
    right_axes.set_xticks(PRICE_LENGTHS, PRICE_LENGTHS)
    right_axes.set_xticks([], minor=True)
    learned = price("elu + 1, C = 45")
    return (
        "Part of the values missed after training, mean and range of five seeds. Left, 32 tokens: elu + 1 of learned "
        f"columns lies on the floor up to C = 16 and above it from C = 24 on, with {mean(learned):.2f} at C = 45, "
        f"where the square misses {mean(square):.2f}. Right: the square follows a floor of its own, the line, "
        "which no training gets below."
    )


def trained_tables(seed: int = 0) -> dict[str, Tensor]:
    """Train the four arms once on 32 tokens and return their weights, (32, 32) each."""
    tables = {}
    for name, form in FORMS.items():
        layer, _ = learn_to_retrieve(form, length=32, step_size=0.1, seed=seed)
        tables[name] = layer(unit_tokens(32, 8, seed=seed)).detach()
    return tables


def _grouped(weights: Tensor) -> Tensor:
    """Return an order of the tokens in which those that attend to the same ones stand together."""
    first = (weights > 0.1).double().argmax(-1)
    return first.argsort(stable=True)


@lesson.figure(
    ["softmax", "elu + 1, C = 8", "elu + 1, C = 45", "square, C = 45"],
    "token that is read",
    "token that reads",
    size=(11.4, 3.5),
    grid=(1, 4),
    xticks=[[]] * 4,
    yticks=[[]] * 4,
    example=trained_tables,
)
def plot_weights(first, second, third, fourth, tables: dict[str, Tensor]):
    """Draw the four tables of weights, tokens sorted into the groups that read alike."""
    for one in (first, second, third, fourth):
        weights = tables[one.get_title()]
        order = _grouped(weights)
        one.imshow(weights[order][:, order].numpy(), cmap="Blues", vmin=0, vmax=1)
        off = (weights - torch.eye(len(weights), dtype=weights.dtype)).square().sum() / len(weights)
        one.set_title(f"{one.get_title()}: misses {float(off):.2f}", fontsize=11)
    return (
        "The weights with which 32 tokens read each other after training, dark for 1, sorted alike. Softmax: each token "
        "reads itself. elu + 1 with 8 features: blocks of tokens that read the mean of their block. With 45: each token "
        "reads itself, but for one block of three. The square: a pale diagonal over weights on other tokens."
    )


def _in_words(count: float | int) -> str:
    """Say a large count with three digits and a word."""
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if count >= size:
            return f"{count / size:.3g} {word}"
    return f"{count:,.0f}"


ROUNDING = 1e-12  # of the largest singular value: what lies below is rounding
MOST = 60  # tokens of the largest table


@lesson.explorer
class RankExplorer(Explorer):
    """The table of similarities of N tokens, and how many singular values it has."""

    title = "How much is in a table of similarities?"
    summary = (
        "Left: the table of similarities of N random queries and keys, red for positive and blue for negative numbers. "
        "Right: its singular values, divided by the largest, on a logarithmic axis; what lies below the dotted line is "
        "rounding."
    )
    length = Slider("tokens", "N", "Number of queries and of keys", 20, 4, MOST, 4)
    similarity = Choice("similarity", "How a query and a key are compared", "(q·k + 1)²", tuple(SIMILARITIES))
    d = Slider("head dimension", "D", "Entries of a query and of a key", 4, 1, 8, 1)
    counted = Switch("Show C", "Say how many features are enough for every N")
    size = (10.4, 4.4)
    dpi = 100
    strip_scale = 0.52
    together = ("length", "similarity")
    layout = panels(
        ["Table of similarities", "Singular values"],
        ["keys", "number of the singular value"],
        ["queries", "size, over the largest"],
        grid=(1, 2),
        legend=[None, "center right"],
        xlim=[(0, MOST), (0, MOST + 2)],
        ylim=[(MOST, 0), (1e-18, 10)],
        yscale=["linear", "log"],
    )

    def compute(self, *, length, similarity, d, counted):
        """Return the table, as large as its number of tokens, and its singular values."""
        q, k = queries_and_keys(MOST, d)
        table = SIMILARITIES[similarity](q[:length], k[:length])
        sizes = torch.linalg.svdvals(table)
        sizes = (sizes / sizes[0]).numpy()
        picture = np.ma.array(np.zeros((MOST, MOST)), mask=True)
        strong = (
            table.abs().flatten().quantile(0.95)
        )  # the strongest twentieth in full colour: a few would hide the rest
        picture[:length, :length] = (table / strong).clamp(-1, 1).numpy()
        return {
            "table": picture,
            "sizes": (np.arange(1, length + 1), np.clip(sizes, 1e-17, None)),
            "above": int((sizes > ROUNDING).sum()),
            "length": length,
            "similarity": similarity,
            "d": d,
            "features": count_features(similarity, d),
            "counted": counted,
            "mark": ""
            if not counted
            else "no C is enough"
            if count_features(similarity, d) is None
            else f"C = {count_features(similarity, d)}",
        }

    def draw(self, table, values):
        """Draw the empty table, the line of rounding and the singular values."""
        image = table.imshow(
            np.ma.array(np.zeros((MOST, MOST)), mask=True),
            cmap=colormaps["RdBu_r"].resampled(9),
            vmin=-1,
            vmax=1,
            extent=(0, MOST, MOST, 0),
            aspect="auto",
        )
        values.axhline(ROUNDING, linestyle=":", color="0.3", linewidth=1.5, label="below: rounding")
        (sizes,) = values.plot([], [], "o", color=BLUE, markersize=4)
        return {"table": image, "sizes": sizes, "mark": values.text(36, 1e-3, "", fontsize=13, color=PURPLE)}

    def words(self, state):
        """Say how many singular values stand out, and on request how many features are enough."""
        said = (
            f"{state['similarity']}, D = {state['d']}: of {state['length']} singular values {state['above']} stand above "
            "rounding."
        )
        if state["counted"]:
            c = state["features"]
            said += (
                " No number of features is enough for every N."
                if c is None
                else f" {c} features are enough for every N."
            )
        return said


@lesson.explorer
class CostExplorer(Explorer):
    """Counted work of softmax attention and of the regrouped form."""

    title = "What does each order cost?"
    summary = (
        "Multiply-adds of softmax attention and of the regrouped form against the length N, both logarithmic. The "
        "dotted line is the length in use."
    )
    d = Slider("head dimension", "D = M", "Entries of one query, key or value", 64, 8, 128, 8)
    power = Slider("length", "log₂ N", "The number of tokens is 2 to this power: 12 stands for 4,096", 8, 6, 16, 1)
    features = Choice("feature map", "Which features the regrouped form uses", "square", ("square", "elu + 1"))
    causal = Switch("Causal mask", "A token sees itself and the past only, which halves the pairs of softmax attention")
    marked = Switch("Show the crossing", "Mark the length from which on the regrouped form needs less work")
    dpi = 100
    strip_scale = 0.62
    together = ("d", "power")
    layout = panels(
        None,
        "sequence length N",
        "multiply-adds",
        legend="upper left",
        xscale="log",
        yscale="log",
        xlim=(50, 84000),
        ylim=(1e3, 1e14),
    )

    def compute(self, *, power, d, features, causal, marked):
        """Return both curves and where they cross."""
        length = 2**power
        count = Quadratic().n_features(d) if features == "square" else d
        crossing = crossover_length(d, d, n_features=count, causal=causal)
        seen = marked and LENGTHS[0] <= crossing <= LENGTHS[-1]
        return {
            "softmax": (LENGTHS, [softmax_multiply_adds(n, d, d, causal=causal) for n in LENGTHS]),
            "regrouped": (LENGTHS, [linear_multiply_adds(n, d, n_features=count) for n in LENGTHS]),
            "here": ([length, length], [1e3, 1e12]),
            "crossing": (crossing, crossing * 2 * count * (d + 1)) if seen else ([], []),
            "costs": (
                softmax_multiply_adds(length, d, d, causal=causal),
                linear_multiply_adds(length, d, n_features=count),
            ),
            "from": math.ceil(crossing) if marked else None,
            "length": length,
            "count": count,
            "causal": causal,
        }

    def draw(self, axes):
        """Draw empty curves and marks."""
        softmax, regrouped = lines(axes, [], ["softmax", "regrouped"])
        (here,) = axes.plot([], [], ":", color="0.4", linewidth=2.0, label="N in use")
        (crossing,) = axes.plot([], [], "o", color=BLACK, markersize=7)
        return {"softmax": softmax, "regrouped": regrouped, "here": here, "crossing": crossing}

    def words(self, state):
        """Say what the length in use costs either way, and on request where the lines cross."""
        softmax, linear = state["costs"]
        said = (
            f"N = {state['length']:,}, C = {state['count']:,}: {'causal ' if state['causal'] else ''}softmax attention "
            f"needs {_in_words(softmax)} multiply-adds, the regrouped form {_in_words(linear)}, "
            f"{linear / softmax:.3g} times as many."
        )
        return said + (f" Fewer from N = {state['from']:,} on." if state["from"] else "")


ask_which = lesson.prediction(
    "19.P1",
    r"Put a similarity in the place of $q\cdot k$, for queries and keys of four entries: $(q\cdot k - 1)^2$, "
    r"$\lVert q - k\rVert^2$, $\max(0, q\cdot k)$ or $\lVert q - k\rVert$. Which of the four still let the bracket move: "
    r"for which is the $N \times N$ table a product of an $N \times C$ and a $C \times N$ matrix, with the same $C$ for "
    r"every $N$?",
    {
        "None of them": "A similarity need not be a dot product of one map with itself: queries and keys may have maps "
        "of their own. The first two then split, into 15 and into 6 products.",
        "Only max(0, q·k)": "It looks closest to q·k, but the corner at 0 spoils it: 300 tokens give a table of rank 300.",
        "The first two": right(
            "Both are sums of products of a number of q and a number of k: 15 and 6 of them. The corner of max and the "
            "root of the distance have no such sum, and their ranks grow with N."
        ),
        "All four": "All four come from sums over the entries, but a corner or a root after the sum does not split: the "
        "ranks of the last two grow with N.",
    },
    reveal=plot_ranks,
)

ask_crossing = lesson.prediction(
    "19.P2",
    r"Queries, keys and values have 64 entries each, the similarity is $(q\cdot k + 1)^2$, and every token sees all "
    "others. From which length on does the regrouped form need fewer multiply-adds than softmax attention?",
    {
        "From about N = 64 on": "That is D. It is right for a map with D features, such as elu + 1.",
        "From about N = 400 on": "There N² stored similarities outgrow the sums U and z: memory crosses long before work.",
        "From about N = 2,200 on": right("2C(M + 1)/(D + M) is 2,178.5 for C = 2,145: about C, which is about D²/2."),
        "From about N = 260,000 on": "That is D³. It compares the work for one token, about D³, with a single "
        "similarity, and softmax attention computes N of them for each token.",
    },
    reveal=plot_costs,
)

ask_price = lesson.prediction(
    "19.P3",
    "32 random tokens of eight entries; queries and keys are trained so that each token reads its own value. Softmax "
    r"learns it. Two similarities have 45 features, more than there are tokens: the square $(q\cdot k + 1)^2$, and elu + 1 "
    "of 45 learned columns. After training, what part of the values does each miss (1: no better than reading nothing)?",
    {
        "Both less than a tenth or so, since 45 is more than 32": "Enough features make it possible, no more. The square's "
        "45 features are products of nine numbers, those of q·k + 1, and training can only choose the nine.",
        "The square little, elu + 1 more than half": "It is the other way round: learned columns can fall to nearly 0 for "
        "all tokens but a few.",
        "elu + 1 little, the square more than half": right(
            "elu + 1 of learned columns misses less than a tenth on average, the square more than half. The number of "
            "features sets a floor; which features they are can set a higher one."
        ),
        "Both more than half": "The square does. Learned columns of elu + 1 can fall to nearly 0 for most tokens, and with "
        "45 of them less than a tenth is missed on average.",
    },
    reveal=plot_price,
)

FIGURES = lesson.figures
