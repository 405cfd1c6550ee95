"""Figures, explorer, predictions and exercises of lesson 15, kernelized_attention."""

import math
from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
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
from course_lib.teaching.exercise import Exercise, Mistake, Property
from course_lib.teaching.explorer import Choice, Explorer, Slider
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, describe, new_figure, styled

# Median time of `linear_attention` with the quadratic kernel divided by that of scaled_dot_product_attention, by
# (head dimension, causal), for N = 256, 512, ...: one head, float32, CPU time of one thread, on a 2-core x86-64 machine
# without GPU (`make bench attention`).
MEASURED_LENGTHS = tuple(2**power for power in range(8, 16))
MEASURED: dict[tuple[int, bool], tuple[float, ...]] = {
    (16, False): (6.54, 3.37, 1.69, 0.795, 0.352, 0.157),
    (32, False): (7.76, 4.02, 1.71, 0.846, 0.408, 0.187),
    (64, False): (13.2, 6.32, 3.14, 1.6, 0.755, 0.374, 0.181, 0.0932),
    (16, True): (4.55, 3.17, 2.37, 1.54, 0.764, 0.39),
    (32, True): (3.54, 2.97, 2.59, 1.74, 0.855, 0.469),
    (64, True): (3.07, 3.95, 3.95, 2.42, 1.48, 0.792, 0.419, 0.251),
}

# Figures


def _box(axes: Axes, x: float, y: float, width: float, height: float, label: str, color: str) -> None:
    """Draw a matrix as a rectangle centred at (x, y), its name inside."""
    corner = (x - width / 2, y - height / 2)
    axes.add_patch(
        Rectangle(corner, width, height, facecolor=color, edgecolor=BLACK, linewidth=1.2, alpha=0.45)
    )
    axes.text(x, y, label, ha="center", va="center", fontsize=9)


@styled
def plot_question() -> Figure:
    """Draw both orders of multiplication, matrices as rectangles."""
    figure = new_figure(8.4, 4.6)
    axes = figure.add_subplot()
    long, short, features = 3.2, 1.0, 1.4
    for y, title in (
        (2.3, "Similarities first: N × N numbers"),
        (-2.0, "Keys and values first: C × M numbers"),
    ):
        axes.text(-0.2, y + 2.0, title, fontsize=11, fontweight="bold", va="center")
    _box(axes, 0.3, 2.0, short, long, "Q", BLUE)
    _box(axes, 2.7, 2.0, long, short, "Kᵀ", ORANGE)
    _box(axes, 7.0, 2.0, long, long, "similarities\nN × N", RED)
    _box(axes, 9.5, 2.0, short, long, "V", GREEN)
    _box(axes, 11.4, 2.0, short, long, "output\nN × M", "0.8")
    for x, sign in ((4.85, "→"), (10.45, "→")):
        axes.text(x, 2.0, sign, ha="center", va="center", fontsize=16)
    _box(axes, 1.6, -2.4, long, features, "φ(K)ᵀ", ORANGE)
    _box(axes, 3.8, -2.4, short, long, "V", GREEN)
    _box(axes, 6.0, -2.4, short, features, "U\nC × M", RED)
    _box(axes, 8.2, -2.4, features, long, "φ(Q)", BLUE)
    _box(axes, 9.6, -2.4, short, features, "U", RED)
    _box(axes, 11.4, -2.4, short, long, "output\nN × M", "0.8")
    for x, sign in ((4.9, "→"), (10.5, "→")):
        axes.text(x, -2.4, sign, ha="center", va="center", fontsize=16)
    axes.set(xlim=(-0.4, 12.2), ylim=(-4.2, 4.6))
    axes.set_aspect("equal")
    axes.set_axis_off()
    return describe(
        figure,
        "Two rows of rectangles, matrices drawn to scale. Above, Q times K transposed gives a large square of N by N "
        "similarities, which then meets V. Below, the features of the keys, C by N, times V give a small block U of C "
        "by M, which every query then reads through its own features. Both rows end in the same N by M output.",
    )


@styled
def plot_kernels(offset: float | int = 1.0) -> Figure:
    """Draw three similarities against the scaled product of query and key."""
    figure = new_figure(6.8, 4.0)
    axes = figure.add_subplot()
    s, curves = _similarities(offset)
    looks = {"exp": (BLUE, "-"), "quadratic": (RED, "--"), "elu": (GREEN, "-.")}
    names = {
        "exp": "softmax: $e^s$",
        "quadratic": f"quadratic: $(s + {offset:g})^2$",
        "elu": "elu + 1, for D = 1, q = 1",
    }
    for key, curve in curves.items():
        axes.plot(s, curve, color=looks[key][0], linestyle=looks[key][1], label=names[key])
    axes.plot([-offset], [0], "o", color=RED, markersize=7, label="_zero")
    axes.set(xlabel="$s$ = scaled q·k", ylabel="similarity", xlim=(-4, 3), ylim=(-0.4, 10))
    axes.set_title("The square weighs opposite keys as heavily as aligned ones")
    axes.legend(loc="upper center")
    return describe(
        figure,
        f"Three similarities against the scaled product s of query and key. The exponential grows from nearly 0 on the "
        f"left; the quadratic one is a parabola that is 0 at s = -{offset:g} and grows on both sides of it, so that a key "
        f"at s = -4 gets {(-4 + offset) ** 2:g}; elu + 1 never reaches 0 and grows along a line on the right.",
    )


def _similarities(offset: float | int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return s and the three similarities; for elu + 1 those of D = 1 with the query 1."""
    s = np.linspace(-4, 3, 141)
    elu = (elu_features(torch.ones(1, dtype=torch.float64)) * elu_features(torch.from_numpy(s))).numpy()
    return s, {"exp": np.exp(s), "quadratic": (s + offset) ** 2, "elu": elu}


@styled
def plot_costs(d: int = 64) -> Figure:
    """Draw multiply-adds of softmax attention and of two linear forms against the length, D = M."""
    figure = new_figure(7.2, 4.2)
    axes = figure.add_subplot()
    lengths = 2 ** np.arange(6, 17)
    features = Quadratic().n_features(d)
    softmax = [softmax_multiply_adds(int(n), d, d) for n in lengths]
    masked = [softmax_multiply_adds(int(n), d, d, causal=True) for n in lengths]
    quadratic = [linear_multiply_adds(int(n), d, n_features=features) for n in lengths]
    elu = [linear_multiply_adds(int(n), d, n_features=d) for n in lengths]
    axes.loglog(lengths, softmax, color=BLUE, linestyle="-", label="softmax")
    axes.loglog(lengths, masked, color=BLUE, linestyle=":", label="softmax, causal")
    axes.loglog(lengths, quadratic, color=RED, linestyle="--", label=f"quadratic kernel, C = {features:,}")
    axes.loglog(lengths, elu, color=GREEN, linestyle="-.", label=f"elu + 1, C = {d}")
    for causal in (False, True):
        n = crossover_length(d, d, n_features=features, causal=causal)
        (point,) = axes.loglog([n], [2 * n * features * (d + 1)], "o", color=BLACK, markersize=7)
        point.set_label("_crossover")
        axes.annotate(f"N = {math.ceil(n):,}", (n, 2 * n * features * (d + 1)), xytext=(8, -14) if causal else (-58, 8),
                      textcoords="offset points", fontsize=9)  # fmt: skip
    axes.set(xlabel="sequence length N", ylabel="multiply-adds", title=f"Where the lines cross (D = M = {d})")
    axes.legend(loc="upper left")
    first = math.ceil(crossover_length(d, d, n_features=features))
    second = math.ceil(crossover_length(d, d, n_features=features, causal=True))
    return describe(
        figure,
        f"Multiply-adds against the length of the sequence, both logarithmic, for D = M = {d}. The two lines of softmax "
        f"attention have slope 2, those of the linear forms slope 1. The quadratic kernel crosses softmax at N = {first:,} "
        f"and causal softmax at {second:,}; elu + 1 lies below both from the left end on or shortly after.",
    )


@styled
def plot_memory(d: int = 64, chunk: int = 256) -> Figure:
    """Draw what has to be kept beside inputs and output, in numbers, against the length."""
    figure = new_figure(7.2, 4.0)
    axes = figure.add_subplot()
    lengths = 2.0 ** np.arange(6, 17)
    features = Quadratic().n_features(d)
    state = features * (d + 1)
    axes.loglog(lengths, lengths**2, color=BLUE, linestyle="-", label="stored similarities, $N^2$")
    axes.loglog(lengths, 2 * lengths * features, color=PURPLE, linestyle=":", label="stored features, $2NC$")
    axes.loglog(lengths, np.full(11, state), color=RED, linestyle="--", label="U and z, $C(M + 1)$")
    axes.loglog(
        lengths,
        np.full(11, state + 2 * chunk * features),
        color=GREEN,
        linestyle="-.",
        label=f"U, z and the features of {chunk} tokens",
    )
    crossing = memory_crossover_length(d, n_features=features)
    (point,) = axes.loglog([crossing], [state], "o", color=BLACK, markersize=7)
    point.set_label("_crossover")
    axes.annotate(
        f"N = {math.ceil(crossing)}", (crossing, state), xytext=(6, -14), textcoords="offset points"
    )
    axes.set(xlabel="sequence length N", ylabel="numbers in memory", ylim=(1e3, 1e11))
    axes.set_title(f"Linear memory needs features that are not kept (D = M = {d})")
    axes.legend(loc="upper left")
    return describe(
        figure,
        f"Numbers in memory against the length, both logarithmic. Stored similarities grow as the square and pass the state "
        f"of {state:,} numbers at N = {math.ceil(crossing)}. Stored features grow in proportion to N and lie far above the "
        f"state; with the features of {chunk} tokens at a time the need is constant.",
    )


@styled
def plot_measured() -> Figure:
    """Draw the measured ratio of times against the length, for three head dimensions."""
    figure = new_figure(8.6, 4.0)
    looks = {16: (GREEN, "-.", "^"), 32: (RED, "--", "s"), 64: (BLUE, "-", "o")}
    for axes, causal in zip(figure.subplots(1, 2, sharey=True), (False, True), strict=True):
        for d, (color, style, marker) in looks.items():
            ratios = MEASURED[d, causal]
            axes.loglog(MEASURED_LENGTHS[: len(ratios)], ratios, color=color, linestyle=style, marker=marker,
                        markersize=5, label=f"D = {d}")  # fmt: skip
        axes.axhline(1, color=BLACK, linewidth=1.0, linestyle="-")
        axes.set(xlabel="sequence length N", title="causal" if causal else "without a mask")
        axes.set(ylabel="time / time of softmax", ylim=(0.05, 20))
        axes.legend(loc="lower left")
    ends = " and ".join(f"{MEASURED[64, causal][-1]:.2f}" for causal in (False, True))
    return describe(
        figure,
        "Measured time of the quadratic kernel in linear time divided by that of PyTorch's softmax attention, against the "
        "length, both logarithmic, without a mask on the left and causal on the right, for D = 16, 32 and 64. All lines "
        f"fall below 1; for D = 64 they end at {ends} for N = 32,768.",
    )


def cancellation(*, signed: bool, length: int = 256, d: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return for each query the sum of the similarities' sizes over the size of their sum, and float32's error.

    `signed` takes the features x themselves, whose products have both signs; else elu(x) + 1. The error is
    ||V'_32 - V'_64|| / ||V'_64||, with both computed from the same float32 inputs.
    """
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(length, d, generator=generator, dtype=torch.float32) for _ in range(3))
    features = (lambda x: x) if signed else elu_features
    weights = features(q.double()) @ features(k.double()).mT
    exact = kernel_attention(
        q.double(), k.double(), v.double(), similarity=lambda a, b: features(a) @ features(b).mT
    )
    error = (linear_attention(q, k, v, feature_map=features) - exact).norm(dim=-1) / exact.norm(dim=-1)
    return weights.abs().sum(-1) / weights.sum(-1).abs(), error


@styled
def plot_cancellation() -> Figure:
    """Draw float32's error against the cancellation in the denominator, for signed and positive features."""
    figure = new_figure(6.8, 4.2)
    axes = figure.add_subplot()
    for signed, marker, color, name in (
        (True, "o", RED, "φ(x) = x"),
        (False, "s", BLUE, "φ(x) = elu(x) + 1"),
    ):
        factor, error = cancellation(signed=signed)
        axes.loglog(
            factor, error.clamp(min=1e-9), marker, color=color, markersize=4, linestyle="none", label=name
        )
    reach = np.array([1, 1e4])
    axes.loglog(reach, 2**-24 * reach, color=BLACK, linestyle=":", label="$2^{-24}$ times the factor")
    axes.set(
        xlabel="Σ|sim| / |Σ sim|",
        ylabel="relative error in float32",
        title="Similarities that cancel cost digits",
    )
    axes.legend(loc="upper left")
    return describe(
        figure,
        "Relative error of the output in float32, one point a query, against the sum of the similarities' sizes divided by "
        "the size of their sum, both logarithmic. With features of both signs the factor ranges from about 10 to more "
        "than 10,000 and the error grows with it. With elu + 1 the factor is 1 for every query and the error stays "
        "near the rounding of float32.",
    )


# Explorer

_MAPS = ("quadratic", "elu + 1", "256 random")


def _in_words(count: float | int) -> str:
    """Say a large count with two digits and a word."""
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if count >= size:
            return f"{count / size:.3g} {word}"
    return f"{count:,.0f}"


class CostExplorer(Explorer):
    """Predicted time and memory of softmax and linear attention, and the shape of the similarity."""

    title = "When linear attention pays"
    summary = (
        "Left: multiply-adds of softmax attention and of the linear form against the length N, with the point where they "
        "cross and the length in use. Middle: what has to be stored beside inputs and output, N squared similarities or the "
        "state of the linear form. Right: three similarities against the scaled product s of query and key."
    )
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "power": Slider(
            label="sequence length", symbol="log₂ N", default=12, minimum=6, maximum=16, step=1,
            tooltip="The number of tokens is 2 to this power: 12 stands for 4,096",
        ),
        "d": Slider(
            label="head dimension", symbol="D = M", default=64, minimum=8, maximum=128, step=8,
            tooltip="Entries of one query, key or value",
        ),
        "offset": Slider(
            label="offset of the square", symbol="c", default=1.0, minimum=0.0, maximum=3.0, step=0.1,
            tooltip="The quadratic kernel is (s + c)²; with c = 0 it needs fewer features",
        ),
        "features": Choice(
            label="feature map", default="quadratic", options=_MAPS,
            tooltip="Which features the linear form uses; the random ones are those of lesson 16",
        ),
        "causal": Choice(
            label="causal mask", default="no", options=("no", "yes"),
            tooltip="Whether a token sees itself and the past only, which halves the pairs of softmax attention",
        ),
    }  # fmt: skip
    size = (11.4, 4.0)
    lengths = 2 ** np.arange(6, 17)

    def compute(self, *, power, d, offset, features, causal):
        """Return both curves of cost and of memory, where they cross, and the quadratic similarity."""
        masked = causal == "yes"
        count = {"quadratic": Quadratic(offset=offset).n_features(d), "elu + 1": d, "256 random": 256}[
            features
        ]
        listed = [int(n) for n in self.lengths]
        return {
            "softmax": np.array([softmax_multiply_adds(n, d, d, causal=masked) for n in listed], dtype=float),
            "linear": np.array([linear_multiply_adds(n, d, n_features=count) for n in listed], dtype=float),
            "state": count * (d + 1),
            "crossover": crossover_length(d, d, n_features=count, causal=masked),
            "memory_crossover": memory_crossover_length(d, n_features=count),
            "similarity": _similarities(offset)[1]["quadratic"],
            "offset": offset,
            "length": 2**power,
            "count": count,
            "causal": masked,
        }

    def draw(self, figure):
        """Draw three axes with fixed limits."""
        time, memory, shape = figure.subplots(1, 3)
        artists = {}
        for name, axes, low, high in (("time", time, 1e3, 1e15), ("memory", memory, 10, 1e12)):
            axes.set(
                xscale="log", yscale="log", xlim=(50, 84000), ylim=(low, high), xlabel="sequence length N"
            )
            (artists[f"{name} softmax"],) = axes.plot([], [], color=BLUE, linestyle="-", label="softmax")
            (artists[f"{name} linear"],) = axes.plot([], [], color=RED, linestyle="--", label="linear")
            (artists[f"{name} here"],) = axes.plot(
                [], [], color="0.4", linestyle=":", linewidth=2.0, label="N in use"
            )
            (artists[f"{name} crossing"],) = axes.plot(
                [], [], "o", color=BLACK, markersize=7, label="crossover"
            )
            axes.legend(loc="upper left", ncols=2, fontsize=8)
        time.set(ylabel="multiply-adds", title="Time")
        memory.set(ylabel="stored numbers", title="Memory")
        s, curves = _similarities(1.0)
        shape.plot(s, curves["exp"], color=BLUE, linestyle="-", label="$e^s$")
        (artists["square"],) = shape.plot([], [], color=RED, linestyle="--", label="$(s + c)^2$")
        shape.plot(s, curves["elu"], color=GREEN, linestyle="-.", label="elu + 1, q = 1")
        (artists["zero"],) = shape.plot([], [], "o", color=RED, markersize=7, label="_zero")
        shape.set(
            xlim=(-4, 3), ylim=(-0.5, 14), xlabel="scaled product s", ylabel="similarity", title="Similarity"
        )
        shape.legend(loc="upper center", fontsize=8)
        return artists

    def update(self, artists, state):
        """Move the curves, the crossovers and the length in use."""
        inside = lambda n, y: ([n], [y]) if self.lengths[0] <= n <= self.lengths[-1] else ([], [])  # noqa: E731
        artists["time softmax"].set_data(self.lengths, state["softmax"])
        artists["time linear"].set_data(self.lengths, state["linear"])
        at = state["crossover"]
        artists["time crossing"].set_data(*inside(at, at * state["linear"][0] / self.lengths[0]))
        artists["memory softmax"].set_data(self.lengths, self.lengths.astype(float) ** 2)
        artists["memory linear"].set_data(self.lengths, np.full(len(self.lengths), float(state["state"])))
        artists["memory crossing"].set_data(*inside(state["memory_crossover"], state["state"]))
        artists["time here"].set_data([state["length"]] * 2, [1e3, 1e13])
        artists["memory here"].set_data([state["length"]] * 2, [10, 2e10])
        artists["square"].set_data(_similarities(0)[0], state["similarity"])
        artists["zero"].set_data([-state["offset"]], [0])

    def words(self, state):
        """Say what the length in use costs either way and where the lines cross."""
        place = int(np.searchsorted(self.lengths, state["length"]))
        softmax, linear = state["softmax"][place], state["linear"][place]
        verdict = "fewer" if linear < softmax else "more"
        ratio = linear / softmax
        return (
            f"N = {state['length']:,} with C = {state['count']:,} features: {'causal ' if state['causal'] else ''}softmax "
            f"attention needs {_in_words(softmax)} multiply-adds, the linear form {_in_words(linear)}, {verdict} by the "
            f"factor {ratio:.3g}. Fewer from N = {math.ceil(state['crossover']):,} on; its state of "
            f"{state['state']:,} numbers is smaller than N² from N = {math.ceil(state['memory_crossover']):,} on. "
            f"The square vanishes at s = {-state['offset'] or 0:g}."
        )


# Predictions


def crossover_prediction() -> Prediction:
    """Ask from which length on the linear form is cheaper."""
    return Prediction(
        "15.P1",
        "Head dimension $D = M = 64$, quadratic kernel, no mask. From which sequence length on does the linear form "
        "need fewer multiply-adds than softmax attention?",
        choices={
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


def opposite_prediction() -> Prediction:
    """Ask what a quadratic kernel does with a key that points away from the query."""
    return Prediction(
        "15.P2",
        "The similarity is $(q \\cdot k + 1)^2$. One key has $q \\cdot k = 2$; another points away from the query, with "
        "$q \\cdot k = -4$. Which of the two gets more weight?",
        choices={
            "The first one": "So it would be with the exponential: e² against e⁻⁴. The square gives (2 + 1)² = 9 and "
            "(-4 + 1)² = 9.",
            "The second one": "Nearly: beyond q·k = -4 the opposite key would win. Here both get 9.",
            "Both get the same": "(2 + 1)² = (-4 + 1)² = 9: the square is even round q·k = -1, and only there is it zero.",
        },
        answer="Both get the same",
        reveal=plot_kernels,
    )


# Exercises


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64).round(decimals=1)


def _whole(generator: torch.Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high + 1, (), generator=generator))


_COUNT = Exercise(
    id="15.1",
    title="Count the features",
    kind="value",
    difficulty=1,
    minutes=3,
    prompt="How many features does $\\phi$ need, so that $\\phi(q)^\\top\\phi(k) = (q^\\top k + 1)^2$ for all $q$ and $k$ "
    "with $D = 3$ entries? Give the smallest number.",
    draw=lambda generator: {"points": torch.randn(30, 3, generator=generator, dtype=torch.float64)},
    reference=10,
    properties=(
        Property(
            "The kernel matrix of 30 random points has another rank than your number of features allows or needs.",
            lambda inputs, count: int(torch.linalg.matrix_rank((inputs["points"] @ inputs["points"].T + 1) ** 2)) == count,
        ),
    ),
    hints=(
        "Expand (q₁k₁ + q₂k₂ + q₃k₃ + 1)² and collect equal products.",
        "There is a constant, there are single entries, squares, and products of two different entries.",
        "How many pairs i < j are there among three entries? Add the constant, three entries and three squares.",
    ),
    mistakes=(
        Mistake("without cross terms", 7, "That is 1 + 3 + 3: the map printed in the notes. The products of two "
                "different entries are missing."),
        Mistake("both orders", 13, "That is 1 + 3 + 9: you counted xᵢxⱼ and xⱼxᵢ apart. They are one feature with the "
                "weight √2."),
        Mistake("homogeneous", 6, "That is right for (qᵀk)². The 1 in (qᵀk + 1)² brings the single entries and a constant."),
        Mistake("no constant", 9, "That counts three entries, three squares and three products: the constant 1 is "
                "a feature too."),
    ),
)  # fmt: skip


def quadratic_features(x):
    """Return features whose dot products are (x.y + 1)^2."""
    first, second = torch.triu_indices(x.shape[1], x.shape[1], offset=1)
    cross = math.sqrt(2) * x[:, first] * x[:, second]
    return torch.cat([torch.ones_like(x[:, :1]), math.sqrt(2) * x, x**2, cross], 1)


def _features_with(linear, cross, constant: float = 1.0):
    """Return a feature map with other weights of the entries, of the cross terms and of the constant."""

    def features(x):
        first, second = torch.triu_indices(x.shape[1], x.shape[1], offset=1)
        return torch.cat(
            [constant * torch.ones_like(x[:, :1]), linear * x, x**2, cross * x[:, first] * x[:, second]], 1
        )

    return features


def _same_gram(a: Tensor, b: Tensor) -> bool:
    """Features may come in any order and with any sign: only their products count."""
    return torch.allclose(a @ a.T, b @ b.T, rtol=1e-9, atol=1e-9)


_FEATURES = Exercise(
    id="15.2",
    title="The features of a square",
    kind="function",
    difficulty=1,
    minutes=8,
    prompt="Write `quadratic_features(x)`: for `x` of shape `(n, D)`, $D \\ge 2$, return features of shape "
    "`(n, (D + 1)(D + 2)/2)` such that $\\phi(x)^\\top\\phi(y) = (x^\\top y + 1)^2$ for every two rows. Their order is "
    "yours to choose.",
    draw=lambda generator: {"x": _normal(generator, 3, _whole(generator, 2, 4))},
    reference=quadratic_features,
    properties=(
        Property(
            "The dot products of your features should be (xᵀy + 1)² for all pairs of rows.",
            lambda inputs, out: torch.allclose(
                out @ out.T, (inputs["x"] @ inputs["x"].T + 1) ** 2, rtol=1e-9, atol=1e-9
            ),
        ),
    ),
    hints=(
        "Expand the square: a constant, single entries, squares of entries, products of two different entries.",
        "A term with the factor 2 in the expansion needs the factor √2 in each of the two feature vectors.",
        "torch.triu_indices(D, D, offset=1) lists the pairs i < j; torch.cat along dimension 1 puts the parts together.",
    ),
    mistakes=(
        Mistake("the notes' map",
                lambda x: torch.cat([torch.ones_like(x[:, :1]), math.sqrt(2) * x, x**2], 1),
                "You left out the cross terms √2 xᵢxⱼ, as the notes do: (1, 1) with itself gives 7 in the place of 9."),
        Mistake("cross terms once", _features_with(math.sqrt(2), 1.0),
                "The product of two different entries comes twice in the square: its feature needs the factor √2."),
        Mistake("entries once", _features_with(1.0, math.sqrt(2)),
                "2 xᵀy is the middle term of the square: each single entry needs the factor √2."),
        Mistake("factor 2", _features_with(2.0, 2.0),
                "You put the factor 2 into both vectors, so that the product has 4. The root belongs in each."),
        Mistake("no constant", _features_with(math.sqrt(2), math.sqrt(2), constant=0.0),
                "Your constant feature is 0: the last term of the square, 1, is missing."),
    ),
    same=_same_gram,
)  # fmt: skip


def _products(c: Mapping) -> tuple[float, float]:
    """q.a and q.b of a counterexample."""
    return c["q1"] * c["a1"] + c["q2"] * c["a2"], c["q1"] * c["b1"] + c["q2"] * c["b2"]


def _zeros(c: Mapping) -> tuple[bool, bool]:
    first, second = _products(c)
    return abs(first + 1) < 1e-9, abs(second + 1) < 1e-9


def _keys_differ(c: Mapping) -> bool:
    return max(abs(c["a1"] - c["b1"]), abs(c["a2"] - c["b2"])) > 1e-6


_FLAW = Exercise(
    id="15.3",
    title="Never negative is not enough",
    kind="flaw",
    difficulty=2,
    minutes=6,
    prompt="\"$(q^\\top k + 1)^2$ is never negative, so attention with it always has a finite output.\" Give a "
    "counterexample with one query $q = (q_1, q_2)$ and two *different* keys $a$ and $b$: a dictionary with the numbers "
    "`q1`, `q2`, `a1`, `a2`, `b1`, `b2` for which the denominator is 0.",
    draw=lambda generator: {"seed": _whole(generator, 0, 999)},
    reference={"q1": 1.0, "q2": 0.0, "a1": -1.0, "a2": 0.0, "b1": -1.0, "b2": 2.0},
    properties=(
        Property("The two keys should differ.", lambda inputs, c: _keys_differ(c)),
        Property(
            "The sum of the two similarities of your example is not 0.",
            lambda inputs, c: _keys_differ(c) and all(_zeros(c)),
        ),
    ),
    hints=(
        "A sum of two numbers that are not negative is 0 only if both are.",
        "For which value of q·k is (q·k + 1)² zero? It is not 0.",
        "All keys with q·k = -1 lie on a line across q. Take two of its points.",
    ),
    mistakes=(
        Mistake("one key twice", {"q1": 1.0, "q2": 0.0, "a1": -1.0, "a2": 0.0, "b1": -1.0, "b2": 0.0},
                "The denominator is 0, but a and b are the same key: two different ones are asked for.",
                lambda i, c: all(_zeros(c)) and not _keys_differ(c)),
        Mistake("a query of zeros", {"q1": 0.0, "q2": 0.0, "a1": 1.0, "a2": 0.0, "b1": 0.0, "b2": 1.0},
                "A query of zeros has q·k = 0 with every key, and the similarity is (0 + 1)² = 1.",
                lambda i, c: c["q1"] == 0 and c["q2"] == 0),
        Mistake("only one vanishes", {"q1": 1.0, "q2": 0.0, "a1": -1.0, "a2": 0.0, "b1": 1.0, "b2": 0.0},
                "One of the two similarities is 0, the other one carries the denominator.",
                lambda i, c: sum(_zeros(c)) == 1),
        Mistake("keys across the query", {"q1": 1.0, "q2": 0.0, "a1": 0.0, "a2": 1.0, "b1": 0.0, "b2": -1.0},
                "Keys with q·k = 0 have the similarity 1: the square vanishes where q·k is -1.",
                lambda i, c: (c["q1"] != 0 or c["q2"] != 0) and max(map(abs, _products(c))) < 1e-9),
    ),
)  # fmt: skip


def causal_attention(phi_q, phi_k, v):
    """Walk through the sequence with a state of two sums."""
    u, z, outputs = 0, 0, []
    for query, key, value in zip(phi_q, phi_k, v, strict=True):
        u, z = u + torch.outer(key, value), z + key
        outputs.append(query @ u / (query @ z))
    return torch.stack(outputs)


def _draw_causal(generator: torch.Generator) -> dict:
    length, features = _whole(generator, 3, 5), _whole(generator, 2, 3)
    positive = lambda *shape: _normal(generator, *shape).abs() + 0.1  # noqa: E731
    return {
        "phi_q": positive(length, features),
        "phi_k": positive(length, features),
        "v": _normal(generator, length, 2),
    }


def _by_definition(phi_q: Tensor, phi_k: Tensor, v: Tensor) -> Tensor:
    weights = (phi_q @ phi_k.T).tril()
    return weights @ v / weights.sum(1, keepdim=True)


_CAUSAL = Exercise(
    id="15.4",
    title="A recurrence for the past",
    kind="function",
    difficulty=2,
    minutes=10,
    prompt="Write `causal_attention(phi_q, phi_k, v)`: causal linear attention, where token $i$ sees the tokens "
    "$1, \\dots, i$, itself included. `phi_q` and `phi_k` hold features, `(n, C)`; `v` has shape `(n, M)`; return `(n, M)`. "
    "Form no $n \\times n$ matrix: carry a state from token to token.",
    draw=_draw_causal,
    reference=causal_attention,
    properties=(
        Property(
            "Row i should be the average of v₁, ..., vᵢ with the weights φ(qᵢ)·φ(kⱼ).",
            lambda inputs, out: torch.allclose(out, _by_definition(**inputs), rtol=1e-9, atol=1e-9),
        ),
    ),
    hints=(
        "Two sums are enough: one of φ(k)vᵀ, a matrix, and one of φ(k), a vector.",
        "At each token first add its key and value to the sums, then let its query read them.",
        "torch.outer(key, value) is the summand; the output divides query @ matrix by query @ vector.",
    ),
    mistakes=(
        Mistake("read before writing",
                lambda q, k, v: torch.stack([
                    (q[i] @ (k[:i].T @ v[:i])) / (q[i] @ k[:i].sum(0)) for i in range(len(q))
                ]),
                "You let the query read before its own key was added: the first token then divides 0 by 0."),
        Mistake("saw the future",
                lambda q, k, v: (q @ (k.T @ v)) / (q @ k.sum(0))[:, None],
                "Every token of yours sees the whole sequence: that is the form without a mask."),
        Mistake("not normalised",
                lambda q, k, v: (q @ k.T).tril() @ v,
                "You left out the denominator, so that the weights of a token do not add up to 1."),
        Mistake("divided by the count",
                lambda q, k, v: ((q @ k.T).tril() @ v) / torch.arange(1, len(q) + 1, dtype=v.dtype)[:, None],
                "You divided by the number of tokens seen. The denominator is the sum of their similarities."),
        Mistake("the denominator of all",
                lambda q, k, v: ((q @ k.T).tril() @ v) / (q @ k.sum(0))[:, None],
                "Your denominator sums over all keys, while the numerator stops at the token: z must grow along."),
    ),
)  # fmt: skip


def chunk_outputs(phi_q, phi_k, v, u, z):
    """Attend to the past in the state and to the chunk itself."""
    near = torch.tril(phi_q @ phi_k.T)
    top = phi_q @ u + near @ v
    return top / (phi_q @ z + near.sum(1))[:, None]


def _draw_chunk(generator: torch.Generator) -> dict:
    inputs = _draw_causal(generator)
    before = _draw_causal(generator)
    keys = before["phi_k"][:, :1].expand(-1, inputs["phi_k"].shape[1]).contiguous() + 0.2
    return {**inputs, "u": keys.T @ before["v"], "z": keys.sum(0)}


def _chunk_with(combine):
    """Return a wrong answer from the four parts: past and near, top and bottom."""

    def chunk(phi_q, phi_k, v, u, z):
        full = phi_q @ phi_k.T
        return combine(phi_q @ u, (phi_q @ z)[:, None], full, v)

    return chunk


_CHUNK = Exercise(
    id="15.5",
    title="One chunk at a time",
    kind="function",
    difficulty=3,
    minutes=12,
    prompt="Write `chunk_outputs(phi_q, phi_k, v, u, z)`: the causal outputs of one chunk of $n$ tokens, without a "
    "loop. `phi_q`, `phi_k` $(n, C)$ and `v` $(n, M)$ belong to the chunk; the state `u` $(C, M)$ and `z` $(C,)$ holds the "
    "sums over all tokens *before* it. Return `(n, M)`.",
    draw=_draw_chunk,
    reference=chunk_outputs,
    properties=(
        Property(
            "It should be what the recurrence gives when it goes on from the state u, z.",
            lambda i, out: torch.allclose(out, _continued(**i), rtol=1e-9, atol=1e-9),
        ),
    ),
    hints=(
        "A query sees two groups of keys: all those in the state, and those of its own chunk up to itself.",
        "The sums of both groups are added before anything is divided.",
        "Within the chunk, an n × n matrix of similarities is cheap: keep its lower triangle, with the diagonal.",
    ),
    mistakes=(
        Mistake("forgot the state",
                _chunk_with(lambda top, bottom, full, v: full.tril() @ v / full.tril().sum(1, keepdim=True)),
                "You used the chunk alone: what came before it is in u and z."),
        Mistake("forgot the chunk",
                _chunk_with(lambda top, bottom, full, v: top / bottom),
                "You used the state alone: a token also sees its own chunk up to itself."),
        Mistake("no mask within the chunk",
                _chunk_with(lambda top, bottom, full, v: (top + full @ v) / (bottom + full.sum(1, keepdim=True))),
                "Within the chunk your tokens see later ones: keep the lower triangle only."),
        Mistake("without the diagonal",
                _chunk_with(lambda top, bottom, full, v: (top + full.tril(-1) @ v)
                            / (bottom + full.tril(-1).sum(1, keepdim=True))),
                "Your triangle leaves out the diagonal: a token sees itself."),
        Mistake("two averages",
                _chunk_with(lambda top, bottom, full, v: (top / bottom
                            + full.tril() @ v / full.tril().sum(1, keepdim=True)) / 2),
                "You divided past and chunk apart and took the mean. Add both numerators and both denominators first."),
    ),
)  # fmt: skip


def _continued(phi_q: Tensor, phi_k: Tensor, v: Tensor, u: Tensor, z: Tensor) -> Tensor:
    outputs = []
    for query, key, value in zip(phi_q, phi_k, v, strict=True):
        u, z = u + torch.outer(key, value), z + key
        outputs.append(query @ u / (query @ z))
    return torch.stack(outputs)


EXERCISES = {e.id: e for e in (_COUNT, _FEATURES, _FLAW, _CAUSAL, _CHUNK)}

FIGURES = {
    "question": plot_question,
    "kernels": plot_kernels,
    "costs": plot_costs,
    "memory": plot_memory,
    "measured": plot_measured,
    "cancellation": plot_cancellation,
    "explorer": lambda: CostExplorer().strip(),
}
