"""Figures, explorer and predictions of lesson 15, kernelized_attention."""

import math
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import torch
from IPython.display import Markdown
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.attention.kernelized import (
    Quadratic,
    crossover_length,
    elu_features,
    kernel_attention,
    linear_attention,
    linear_multiply_adds,
    memory_crossover_length,
    softmax_multiply_adds,
)
from course_lib.attention.recall import TASKS, recall_accuracy, recall_decoder, train_to_recall
from course_lib.lessons.kernelized_attention.contents import lesson
from course_lib.measured import measured
from course_lib.teaching import Choice, Explorer, Slider, lines, markdown_table, panels
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, RED

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


LENGTHS = [2**power for power in range(6, 17)]


@lesson.figure(size=(8.4, 4.6), bare=True, xlim=(-0.4, 12.2), ylim=(-4.2, 4.6), aspect="equal")
def plot_question(axes):
    """Draw both orders of multiplication, matrices as rectangles."""
    n, d, c = 3.2, 1.0, 1.4  # how long N tokens, D or M entries and C features are drawn
    boxes = {
        "Q": (d, n, BLUE),
        "Kᵀ": (n, d, ORANGE),
        "similarities\nN × N": (n, n, RED),
        "V": (d, n, GREEN),
        "φ(K)ᵀ": (n, c, ORANGE),
        "U\nC × M": (d, c, RED),
        "φ(Q)": (c, n, BLUE),
        "U": (d, c, RED),
        "output\nN × M": (d, n, "0.8"),
    }
    similarities_first = ["Q", "Kᵀ", "→", "similarities\nN × N", "V", "→", "output\nN × M"]
    values_first = ["φ(K)ᵀ", "V", "→", "U\nC × M", " ", "φ(Q)", "U", "→", "output\nN × M"]
    for title, row, y in (
        ("Similarities first: N × N numbers", similarities_first, 2.0),
        ("Keys and values first: C × M numbers", values_first, -2.4),
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
        "Two rows of rectangles, matrices drawn to scale. Above, Q times K transposed gives a large square of N by N "
        "similarities, which then meets V. Below, the features of the keys, C by N, times V give a small block U of C "
        "by M, which every query then reads through its own features. Both rows end in the same N by M output."
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
        "A table of all products of two entries of (1, x) for D = 4. The diagonal holds 1 and the squares, the first row "
        "the single entries, and the rest the products of two different entries, the largest group. What stands below "
        "the diagonal, drawn pale, repeats what stands above: those products come twice and become one feature with the "
        "factor root 2."
    )


@lesson.figure(size=(7.4, 4.2), bare=True, xlim=(-1.2, 20.5), ylim=(-0.8, 12.9), aspect="equal")
def plot_chunks(axes, tokens: int = 12, chunk: int = 4):
    """Draw which similarities a causal form in chunks computes, and what its state stands for."""
    for query in range(tokens):
        for key in range(query + 1):
            near = query // chunk == key // chunk
            place = (key, tokens - 1 - query)
            look = {"facecolor": RED if near else "0.85", "alpha": 0.55 if near else 1.0}
            axes.add_patch(Rectangle(place, 1, 1, edgecolor="white", linewidth=0.8, **look))
    for start in range(chunk, tokens, chunk):
        place = (0, tokens - start - chunk)
        axes.add_patch(Rectangle(place, start, chunk, facecolor="none", edgecolor=BLUE, linewidth=2.2))
        axes.text(start / 2, place[1] + chunk / 2, "read from\nU and z", ha="center", va="center", color=BLUE)
    axes.text(tokens / 2, tokens + 0.3, "keys", ha="center")
    axes.text(-0.3, tokens / 2, "queries", rotation=90, ha="right", va="center")
    for y, face, edge, meaning in (
        (9.4, RED, "white", "inside a chunk:\nsimilarities with a mask"),
        (6.4, "0.85", BLUE, "before the chunk:\nall keys in one state"),
        (3.4, "white", BLACK, "later keys: not seen"),
    ):
        look = {"facecolor": face, "edgecolor": edge, "alpha": 0.55 if face == RED else 1.0}
        axes.add_patch(Rectangle((13.2, y), 0.9, 0.9, **look))
        axes.text(14.6, y + 0.45, meaning, va="center", fontsize=9.5)
    return (
        f"The table of {tokens} queries by {tokens} keys under a causal mask, cut into chunks of {chunk}. Small triangles "
        "along the diagonal are similarities inside a chunk and are computed one by one. The blocks to their left are "
        "not computed: each is read from the state U, z that holds all keys before the chunk."
    )


def _similarities(offset: float | int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return s and the three similarities; for elu + 1 those of D = 1 with the query 1."""
    s = np.linspace(-4, 3, 141)
    elu = (elu_features(torch.ones(1, dtype=torch.float64)) * elu_features(torch.from_numpy(s))).numpy()
    return s, {"exp": np.exp(s), "quadratic": (s + offset) ** 2, "elu": elu}


@lesson.figure(
    "The square weighs opposite keys as heavily as aligned ones",
    "$s$ = scaled q·k",
    "similarity",
    legend="upper center",
    xlim=(-4, 3),
    ylim=(-0.4, 10),
)
def plot_kernels(axes, offset: float | int = 1.0):
    """Draw three similarities against the scaled product of query and key."""
    s, curves = _similarities(offset)
    names = ["softmax: $e^s$", f"quadratic: $(s + {offset:g})^2$", "elu + 1, for D = 1, q = 1"]
    lines(axes, s, dict(zip(names, curves.values(), strict=True)))
    axes.plot([-offset], [0], "o", color=RED, markersize=7)
    return (
        f"Three similarities against the scaled product s of query and key. The exponential grows from nearly 0 on the "
        f"left; the quadratic one is a parabola that is 0 at s = -{offset:g} and grows on both sides of it, so that a key "
        f"at s = -4 gets {(-4 + offset) ** 2:g}; elu + 1 never reaches 0 and grows along a line on the right."
    )


@lesson.figure(
    None, "sequence length N", "multiply-adds", size=(7.2, 4.2), legend="upper left", xscale="log", yscale="log"
)
def plot_costs(axes, d: int = 64):
    """Draw multiply-adds of softmax attention and of two linear forms against the length, D = M."""
    features = Quadratic().n_features(d)
    linear = {f"quadratic kernel, C = {features:,}": features, f"elu + 1, C = {d}": d}
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
        f"Multiply-adds against the length of the sequence, both logarithmic, for D = M = {d}. The two lines of softmax "
        f"attention have slope 2, those of the linear forms slope 1. The quadratic kernel crosses softmax at N = "
        f"{math.ceil(first):,} and causal softmax at {math.ceil(second):,}; elu + 1 lies below both from the left end on "
        "or shortly after."
    )


@lesson.figure(
    None,
    "sequence length N",
    "numbers in memory",
    size=(7.2, 4.0),
    legend="upper left",
    xscale="log",
    yscale="log",
    ylim=(1e3, 1e11),
)
def plot_memory(axes, d: int = 64, chunk: int = 256):
    """Draw what has to be kept beside inputs and output, in numbers, against the length."""
    features = Quadratic().n_features(d)
    state, lengths = features * (d + 1), np.array(LENGTHS, dtype=float)
    curves = {
        "stored similarities, $N^2$": lengths**2,
        "U and z, $C(M + 1)$": 0 * lengths + state,
        f"U, z and the features of {chunk} tokens": 0 * lengths + state + 2 * chunk * features,
        "stored features, $2NC$": 2 * lengths * features,
    }
    lines(axes, lengths, curves)
    crossing = memory_crossover_length(d, n_features=features)
    axes.plot([crossing], [state], "o", color=BLACK, markersize=7)
    axes.annotate(f"N = {math.ceil(crossing)}", (crossing, state), (6, -14), textcoords="offset points")
    axes.set_title(f"Linear memory needs features that are not kept (D = M = {d})")
    return (
        f"Numbers in memory against the length, both logarithmic. Stored similarities grow as the square and pass the state "
        f"of {state:,} numbers at N = {math.ceil(crossing)}. Stored features grow in proportion to N and lie far above the "
        f"state; with the features of {chunk} tokens at a time the need is constant."
    )


@lesson.figure(
    ["without a mask", "causal"],
    "sequence length N",
    "time / time of softmax",
    size=(8.6, 4.0),
    grid=(1, 2),
    legend="lower left",
    subplots={"sharey": True},
    xscale="log",
    yscale="log",
    ylim=(0.05, 20),
)
def plot_measured(left, right):
    """Draw the measured ratio of times against the length, for three head dimensions."""
    for axes, causal in ((left, False), (right, True)):
        ratios = {d: measured_ratios(d, causal=causal) for d in MEASURED_LENGTHS}
        curves = {f"D = {d}": (list(ratio), list(ratio.values())) for d, ratio in ratios.items()}
        lines(axes, None, curves, marker="o", markersize=5)
        axes.axhline(1, color=BLACK, linewidth=1.0, linestyle="-")
    ends = " and ".join(f"{measured_ratios(64, causal=causal)[32768]:.2f}" for causal in (False, True))
    return (
        "Measured time of the quadratic kernel in linear time divided by that of PyTorch's softmax attention, against the "
        "length, both logarithmic, without a mask on the left and causal on the right, for D = 16, 32 and 64. All lines "
        f"fall below 1; for D = 64 they end at {ends} for N = 32,768."
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


@lesson.figure(
    "Similarities that cancel cost digits",
    "Σ|sim| / |Σ sim|",
    "relative error in float32",
    legend="upper left",
    xscale="log",
    yscale="log",
)
def plot_cancellation(axes):
    """Draw float32's error against the cancellation in the denominator, for signed and positive features."""
    for signed, look, name in ((True, "o", "φ(x) = x"), (False, "s", "φ(x) = elu(x) + 1")):
        factor, error = cancellation(signed=signed)
        color = RED if signed else BLUE
        axes.plot(factor, error.clamp(min=1e-9), look, color=color, markersize=4, label=name)
    reach = np.array([1, 1e4])
    axes.plot(reach, 2**-24 * reach, ":", color=BLACK, label="$2^{-24}$ times the factor")
    return (
        "Relative error of the output in float32, one point a query, against the sum of the similarities' sizes divided by "
        "the size of their sum, both logarithmic. With features of both signs the factor ranges from about 10 to more "
        "than 10,000 and the error grows with it. With elu + 1 the factor is 1 for every query and the error stays "
        "near the rounding of float32."
    )


RECALL_SIZES = (4, 8, 16)
MEMORIES = {
    "softmax, positions": "softmax, all tokens",
    "delta": "delta rule",
    "decay": "sums with decay",
    "linear": "sums",
    "softmax, window": "softmax, last 8 tokens",
    "untrained": "untrained",
}
Runs = Mapping[str, Mapping[str, Sequence[Mapping[int, float]]]]


def trained_to_recall(task: str, form: str, *, seed: int, steps: int = 200) -> dict[int, float]:
    """Return the share of right answers on new texts of each size; the form "untrained" is softmax before any step."""
    draw, vocab_size = TASKS[task]
    name = "softmax, positions" if form == "untrained" else form
    model = recall_decoder(name, vocab_size=vocab_size, seed=seed).float()
    if form != "untrained":
        train_to_recall(model, draw, RECALL_SIZES, steps=steps, step_size=4e-2, seed=seed)
    return {size: recall_accuracy(model, draw, size, seed=seed + 10_000) for size in RECALL_SIZES}


@cache
def recall_runs() -> Runs:
    """Return what the page measures: both tasks, every memory, two seeds."""
    return {
        task: {form: [trained_to_recall(task, form, seed=seed) for seed in (0, 1)] for form in MEMORIES}
        for task in ("copying", "rewritten")
    }


@lesson.figure(
    ["Copying a text of different tokens", "Looking up keys that were written again"],
    ["tokens to copy", "pairs written"],
    "share of right answers",
    size=(9.6, 4.4),
    grid=(1, 2),
    xscale="log",
    xlim=(3.6, 17.8),
    ylim=(-0.05, 1.5),
    legend=[{"loc": "upper center", "ncols": 2, "fontsize": 8}, None],
    example=recall_runs,
)
def plot_recall(left, right, runs: Runs):
    """Draw right answers against the size of the text, for each memory; lines are means over seeds, marks single seeds."""
    for axes, task in ((left, "copying"), (right, "rewritten")):
        mean = lambda form, size: sum(run[size] for run in runs[task][form]) / len(runs[task][form])  # noqa: B023, E731
        curves = {name: [mean(form, size) for size in RECALL_SIZES] for form, name in MEMORIES.items()}
        for line, form in zip(lines(axes, RECALL_SIZES, curves), MEMORIES, strict=True):
            for run in runs[task][form]:
                axes.plot(list(run), list(run.values()), ".", color=line.get_color(), markersize=5, label="_seed")
        axes.set_xticks(RECALL_SIZES, RECALL_SIZES)
        axes.set_xticks([], minor=True)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    return (
        "Share of right answers on new texts of 4, 8 and 16 tokens or pairs, for six memories; lines are means over seeds. "
        "Copying: softmax attention to all tokens stays near 1; of the memories of a fixed size the delta rule gets most of "
        "16 tokens right, both kinds of sums fewer, and the window, which copies 8, none. Looking up keys that were written "
        "again: softmax attention, the delta rule and sums with decay stay well above plain sums, and those above the "
        "window. The untrained decoder is near 0 throughout."
    )


def _in_words(count: float | int) -> str:
    """Say a large count with two digits and a word."""
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if count >= size:
            return f"{count / size:.3g} {word}"
    return f"{count:,.0f}"


@lesson.explorer
class CostExplorer(Explorer):
    """Predicted time and memory of softmax and linear attention, and the shape of the similarity."""

    title = "When linear attention pays"
    summary = (
        "Left: multiply-adds of softmax attention and of the linear form against the length N, with the point where they "
        "cross and the length in use. Middle: what has to be stored beside inputs and output, N squared similarities or the "
        "state of the linear form. Right: three similarities against the scaled product s of query and key."
    )
    d = Slider("head dimension", "D = M", "Entries of one query, key or value", 64, 8, 128, 8)
    power = Slider(
        "sequence length", "log₂ N", "The number of tokens is 2 to this power: 12 stands for 4,096", 12, 6, 16, 1
    )
    offset = Slider(
        "offset of the square",
        "c",
        "The quadratic kernel is (s + c)²; with c = 0 it needs fewer features",
        1.0,
        0.0,
        3.0,
        0.1,
    )
    features = Choice(
        "feature map",
        "Which features the linear form uses; the random ones are those of lesson 16",
        "quadratic",
        ("quadratic", "elu + 1", "256 random"),
    )
    causal = Choice(
        "causal mask",
        "Whether a token sees itself and the past only, which halves the pairs of softmax attention",
        "no",
        ("no", "yes"),
    )
    together = ("d", "power")
    size = (11.4, 4.0)
    layout = panels(
        ["Time", "Memory", "Similarity"],
        ["sequence length N", "sequence length N", "scaled product s"],
        ["multiply-adds", "stored numbers", "similarity"],
        grid=(1, 3),
        legend=[*2 * [{"loc": "upper left", "ncols": 2, "fontsize": 8}], {"loc": "upper center", "fontsize": 8}],
        xscale=["log", "log", "linear"],
        yscale=["log", "log", "linear"],
        xlim=[(50, 84000), (50, 84000), (-4, 3)],
        ylim=[(1e3, 1e15), (10, 1e12), (-0.5, 14)],
    )

    def compute(self, *, power, d, offset, features, causal):
        """Return both curves of cost and of memory, where they cross, and the quadratic similarity."""
        length, masked = 2**power, causal == "yes"
        count = {"quadratic": Quadratic(offset=offset).n_features(d), "elu + 1": d, "256 random": 256}[features]
        softmax = {n: softmax_multiply_adds(n, d, d, causal=masked) for n in LENGTHS}
        linear = {n: linear_multiply_adds(n, d, n_features=count) for n in LENGTHS}
        state = count * (d + 1)
        crossover = crossover_length(d, d, n_features=count, causal=masked)
        memory_crossover = memory_crossover_length(d, n_features=count)
        inside = lambda n, y: (n, y) if LENGTHS[0] <= n <= LENGTHS[-1] else ([], [])  # noqa: E731
        return {
            "time softmax": (LENGTHS, list(softmax.values())),
            "time linear": (LENGTHS, list(linear.values())),
            "time here": ([length, length], [1e3, 1e13]),
            "time crossing": inside(crossover, crossover * linear[length] / length),
            "memory softmax": (LENGTHS, [n**2 for n in LENGTHS]),
            "memory linear": (LENGTHS, [state for _ in LENGTHS]),
            "memory here": ([length, length], [10, 2e10]),
            "memory crossing": inside(memory_crossover, state),
            "square": _similarities(offset)[1]["quadratic"],
            "zero": (-offset, 0),
            "costs": (softmax[length], linear[length]),
            "crossovers": (math.ceil(crossover), math.ceil(memory_crossover)),
            "state": state,
            "length": length,
            "count": count,
            "causal": masked,
        }

    def draw(self, time, memory, shape):
        """Draw the two similarities that stay, and empty curves and marks."""
        artists = {}
        for name, axes in (("time", time), ("memory", memory)):
            curves = lines(axes, [], ["softmax", "linear"])
            curves += axes.plot([], [], ":", color="0.4", linewidth=2.0, label="N in use")
            curves += axes.plot([], [], "o", color=BLACK, markersize=7, label="crossover")
            parts = ("softmax", "linear", "here", "crossing")
            artists |= {f"{name} {part}": curve for part, curve in zip(parts, curves, strict=True)}
        s, curves = _similarities(1.0)
        names = ["$e^s$", "$(s + c)^2$", "elu + 1, q = 1"]
        _, artists["square"], _ = lines(shape, s, dict(zip(names, curves.values(), strict=True)))
        (artists["zero"],) = shape.plot([], [], "o", color=RED, markersize=7)
        return artists

    def words(self, state):
        """Say what the length in use costs either way and where the lines cross."""
        softmax, linear = state["costs"]
        time, memory = state["crossovers"]
        return (
            f"N = {state['length']:,} with C = {state['count']:,} features: {'causal ' if state['causal'] else ''}softmax "
            f"attention needs {_in_words(softmax)} multiply-adds, the linear form {_in_words(linear)}, "
            f"{'fewer' if linear < softmax else 'more'} by the factor {linear / softmax:.3g}. Fewer from N = {time:,} on; "
            f"its state of {state['state']:,} numbers is smaller than N² from N = {memory:,} on. "
            f"The square vanishes at s = {state['zero'][0] or 0:g}."
        )


crossover_prediction = lesson.prediction(
    "15.P1",
    "Queries, keys and values have 64 entries each ($D = M = 64$), the similarity is $(q^\\top k + 1)^2$, and every "
    "token sees all others. From which sequence length on does the lower order of the picture need fewer multiply-adds "
    "than softmax attention does in the upper one?",
    {
        "From about N = 64 on": "That is D. It would be right for a map with about D features, such as elu + 1.",
        "From about N = 400 on": "That is where N² stored similarities outgrow the state of C(M + 1) numbers: memory "
        "crosses long before time.",
        "From about N = 2,200 on": "2C(M + 1)/(D + M) = 2,178.5 with C = 2,145, close to C, which is about D²/2.",
        "From about N = 260,000 on": "That is D³. It compares the cost of one token, about D³, with one similarity, and "
        "softmax attention computes N of them a token.",
    },
    answer="From about N = 2,200 on",
    reveal=plot_costs,
)

opposite_prediction = lesson.prediction(
    "15.P2",
    "The similarity is $(q \\cdot k + 1)^2$. One key has $q \\cdot k = 2$; another points away from the query, with "
    "$q \\cdot k = -4$. Which of the two gets more weight?",
    {
        "The first one": "So it would be with the exponential: e² against e⁻⁴. The square gives (2 + 1)² = 9 and "
        "(-4 + 1)² = 9.",
        "The second one": "Nearly: beyond q·k = -4 the opposite key would win. Here both get 9.",
        "Both get the same": "(2 + 1)² = (-4 + 1)² = 9: the square is even round q·k = -1, and only there is it zero.",
    },
    answer="Both get the same",
    reveal=plot_kernels,
)

recall_prediction = lesson.prediction(
    "15.P3",
    "Four memories of about 256 numbers, trained alike, read a text of 16 different tokens and then write it again, token "
    "by token. Which of them gets the most tokens right?",
    {
        "Softmax attention to the last 8 tokens": "It is exact for what it holds. But the token to be written next stands "
        "15 tokens back, outside of the window.",
        "Sums of all pairs (linear attention)": "The pairs lie on top of each other: every answer is mixed with the other "
        "values.",
        "Sums that fade": "Fading helps where old pairs are out of date. Here the old ones are asked for first.",
        "A memory that is corrected at each token": "It writes only what it does not answer yet, which takes out much of "
        "what pairs have in common. Softmax attention, which keeps all tokens, still copies better.",
        "They are about equally good, since they are equally large": "The size bounds what a memory can hold. How it is "
        "written decides how much of that is used.",
    },
    answer="A memory that is corrected at each token",
    reveal=plot_recall,
)

FIGURES = lesson.figures
