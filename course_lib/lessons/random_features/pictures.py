"""Figures, explorer and predictions of lesson 16, random_features."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from matplotlib.colors import ListedColormap
from matplotlib.patches import Circle
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from course_lib.attention.random_features import (
    attention_error,
    draw_frequencies,
    orthogonal_covariance,
    positive_features,
    random_feature_attention,
    trigonometric_features,
)
from course_lib.lessons.random_features.contents import lesson
from course_lib.teaching import Choice, Explorer, Slider, lines, panels
from course_lib.teaching.layout import LOOKS
from course_lib.teaching.style import BLACK, BLUE, GREEN, RED

FAMILIES = {"positive": positive_features, "trigonometric": trigonometric_features}


def rng(seed: int) -> torch.Generator:
    """Return a generator with that seed."""
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, seed: int) -> Tensor:
    """Return float64 standard normal numbers."""
    return torch.randn(*shape, generator=rng(seed), dtype=torch.float64)


def question_weights() -> dict[str, np.ndarray]:
    """Return one query's attention weights on 12 keys: softmax, and two estimates from 32 frequencies."""
    q, k = 0.95 * randn(1, 16, seed=32), 0.95 * randn(12, 16, seed=132)
    weights = {"softmax": (q @ k.mT / 4).softmax(-1)[0]}
    for kind in ("trigonometric", "positive"):
        features = FAMILIES[kind](16, 32, generator=rng(2), dtype=torch.float64)
        identity = torch.eye(12, dtype=torch.float64)
        weights[kind] = random_feature_attention(q, k, identity, features=features)[0]
    return {name: values.numpy() for name, values in weights.items()}


@lesson.figure(
    "One query, 12 keys: weights without scores",
    "key",
    "attention weight",
    legend={"loc": "upper left", "fontsize": 8},
    xticks=range(1, 13),
    ylim=(-0.2, 0.62),
)
def plot_question(axes):
    """Draw the attention weights of one query: exact, by trigonometric and by positive features."""
    weights, places = question_weights(), np.arange(1, 13)
    axes.axhline(0, color=BLACK, linewidth=0.8, linestyle="-")
    axes.bar(places, weights["softmax"], width=0.8, color="0.85", label="softmax")
    for name, look, color, shift in (("trigonometric", "s", RED, -0.15), ("positive", "o", BLUE, 0.15)):
        axes.plot(places + shift, weights[name], look, color=color, label=f"{name} features")
    lowest = int(weights["trigonometric"].argmin())
    return (
        "Attention weights of one query on 12 keys. Bars: softmax. Points: estimates from one draw of 32 frequencies. "
        f"Both follow the bars roughly. Positive features give weights of 0 or more; trigonometric ones give a weight of "
        f"{weights['trigonometric'][lowest]:.2f} to key {lowest + 1}, where softmax gives "
        f"{weights['softmax'][lowest]:.2f}."
    )


@lesson.figure(
    "The law decides which kernel comes out ($\\sigma$ = 2)",
    "distance $\\|q - k\\|$",
    "mean of $\\cos\\,w^\\top(q - k)$",
    legend={"loc": "upper right", "fontsize": 8},
    ylim=(-0.15, 1.2),
)
def plot_laws(axes, *, sigma: float = 2.0, m: int = 4000):
    """Draw estimates of the Gaussian kernel against the distance for both laws of the frequencies."""
    distances, points = np.linspace(0, 6, 200), torch.linspace(0, 6, 13, dtype=torch.float64)
    w = randn(m, 1, seed=3)
    scales = {"$N(0, \\sigma^{-2} I)$": 1 / sigma, "$N(0, \\sigma^2 I)$, as printed": sigma}
    curves = {f"mean of {law}": np.exp(-((scale * distances) ** 2) / 2) for law, scale in scales.items()}
    for curve, scale, marker in zip(lines(axes, distances, curves), scales.values(), "os", strict=True):
        drawn = (scale * w * points).cos().mean(0)
        axes.plot(points, drawn, marker, color=curve.get_color(), markersize=5, label=f"{m:,} draws")
    return (
        "Mean of cos w.(q - k) against the distance of q and k, for sigma = 2. Frequencies with variance 1/sigma^2 give "
        "the Gaussian kernel of width 2, which is 0.61 at distance 2. With variance sigma^2 the mean is the kernel of "
        "width 1/2, which is 0.0003 there. Averages of 4,000 draws lie on the two curves."
    )


def negative_share(*, m: int = 8, distance: float = 3.0, draws: int = 20_000) -> tuple[Tensor, float]:
    """Return estimates of the kernel of width 1 at a distance, and the share that is negative."""
    estimates = (distance * randn(draws, m, seed=4)).cos().mean(1)
    return estimates, float((estimates < 0).double().mean())


@lesson.figure(
    "8 frequencies, $\\|q - k\\|$ = 3 $\\sigma$",
    "estimate of $K(q, k)$",
    "share of draws (%)",
    legend="upper left",
    xlim=(-1, 1),
    ylim=(0, 5.6),
)
def plot_negative(axes):
    """Draw the distribution of the estimate from 8 frequencies at distance 3."""
    estimates, share = negative_share()
    exact = math.exp(-4.5)
    heights, edges = np.histogram(estimates, bins=np.linspace(-1, 1, 81))
    heights = 100 * heights / len(estimates)
    axes.fill_between(edges[:-1], heights, step="post", color="0.85")
    axes.fill_between(edges[:41], heights[:41], step="post", color=RED, alpha=0.5, label="below zero")
    axes.axvline(exact, color=BLUE, linestyle="--", label=f"exact {exact:.3f}")
    axes.axvline(0, color=BLACK, linewidth=0.9, linestyle="-")
    return (
        f"Distribution of 20,000 estimates of a kernel value of {exact:.3f} from 8 frequencies each: a bell of standard "
        f"deviation 0.25 around it. About {round(100 * share)} percent of the estimates are negative."
    )


@lesson.figure(
    "Each kind is poor where the other is good",
    "angle between $q$ and $k$, both of length $\\sigma$ (degrees)",
    "relative error of one frequency",
    legend={"loc": "upper center", "fontsize": 8, "ncols": 2},
    xlim=(0, 180),
    ylim=(0, 8.5),
    xticks=range(0, 181, 30),
)
def plot_variances(axes, *, length: float = 1.0):
    """Draw the relative error of one frequency against the angle between q and k, predicted and measured."""
    angles, some = np.linspace(0, 180, 181), np.arange(15, 180, 15)
    sums, differences = (2 * length * f(np.radians(angles) / 2) for f in (np.cos, np.sin))
    w = randn(200_000, 1, seed=5)
    curves = {
        "positive, by (16.8)": np.sqrt(np.expm1(sums**2)),
        "trigonometric, by (16.8)": np.sqrt(2) * np.sinh(differences**2 / 2),
    }
    ratios = (  # of the estimate from one frequency and the exact similarity
        lambda s, d: (s * w - s**2 / 2).exp(),
        lambda s, d: (d * w).cos() * math.exp(d**2 / 2),
    )
    for curve, ratio, marker in zip(lines(axes, angles, curves), ratios, "os", strict=True):
        drawn = [float((ratio(sums[a], differences[a]) - 1).square().mean().sqrt()) for a in some]
        axes.plot(some, drawn, marker, color=curve.get_color(), markersize=5, label="200,000 draws")
    return (
        "Root mean square relative error of the similarity estimated from one frequency, against the angle between q "
        "and k, both of length sigma. Trigonometric: zero at 0 degrees, rising to 5.1 at 180. Positive: 7.3 at 0 "
        "degrees, falling to zero at 180. Measured points lie on the curves."
    )


def output_errors(
    length: float | int, counts: tuple[int, ...], *, kind: str = "positive", seed: int = 0, draws: int = 3
) -> tuple[list[float], list[float]]:
    """Return predicted and measured relative error of attention's output, for each number of frequencies.

    128 tokens, head_dim 64, queries and keys of that length in random directions, values N(0, I).
    """
    q, k, v = randn(3, 128, 64, seed=seed)
    q, k = (length * x / x.norm(dim=-1, keepdim=True) for x in (q, k))
    exact = scaled_dot_product_attention(q, k, v)
    size = float(exact.square().sum(-1).mean().sqrt())
    generator, predicted, measured = rng(seed + 1), [], []
    for m in counts:
        errors = attention_error(q[:16], k, v, kind=kind, n_frequencies=m)
        predicted.append(float(errors.square().mean().sqrt()) / size)
        squares = []
        for _ in range(draws):
            features = FAMILIES[kind](64, m, generator=generator, dtype=torch.float64)
            found = random_feature_attention(q, k, v, features=features)
            squares.append(float((found - exact).square().sum(-1).mean()))
        measured.append(math.sqrt(sum(squares) / len(squares)) / size)
    return predicted, measured


@lesson.figure(
    "Useful only for short queries and keys (head_dim 64)",
    "number of features $m$",
    "relative error of the output",
    size=(6.8, 4.4),
    legend={"loc": "upper center", "fontsize": 8, "ncols": 4, "columnspacing": 1},
    xscale="log",
    yscale="log",
    ylim=(0.004, 40),
)
def plot_errors(axes):
    """Draw the error of attention's output against the number of positive features for four lengths of q and k."""
    counts, said = (16, 64, 256, 1024), []
    for look, length, marker in zip(LOOKS, (1, 2, 4, 8), "o^Ds", strict=False):
        predicted, measured = output_errors(length, counts)
        if length < 8:  # far outside the first order at 8: the prediction is in the thousands
            axes.plot(counts, predicted, **look, label="to first order")
        axes.plot(counts, measured, marker, color=look["color"], label=f"$\\|q\\| = \\|k\\|$ = {length}")
        said.append(f"length {length} from {measured[0]:.2g} to {measured[-1]:.2g}")
    axes.axhline(1, color=BLACK, linewidth=0.9, linestyle="-")
    return (
        "Relative error of the attention output against the number of positive features from 16 to 1,024, both "
        f"logarithmic: {'; '.join(said)}. Up to length 2 the points lie on lines of slope -1/2, the first-order "
        "prediction; at length 8 more features hardly help."
    )


def train_retrieval(
    attend: Callable[[Tensor, Tensor, Tensor, int], Tensor], *, steps: int = 80, seed: int = 0
) -> tuple[list[float], list[float], float]:
    """Train two 16 x 16 matrices so that every token retrieves its own value from 16 tokens.

    `attend(q, k, v, step)` is the attention to train through. Returns the loss of each step, the mean of
    |q||k| / sqrt(16) at each step, and the loss of the final matrices under exact softmax attention.
    """
    generator = rng(seed)
    w_q, w_k = (torch.eye(16, dtype=torch.float64).requires_grad_() for _ in range(2))
    optimizer = torch.optim.Adam([w_q, w_k], lr=0.05)
    losses, sizes = [], []
    for step in range(steps + 1):
        x = torch.randn(16, 16, 16, generator=generator, dtype=torch.float64)
        x = x / x.norm(dim=-1, keepdim=True)
        values = torch.randn(16, 16, 4, generator=generator, dtype=torch.float64)
        q, k = x @ w_q, x @ w_k
        if step == steps:
            exact = scaled_dot_product_attention(q, k, values)
            return losses, sizes, float((exact - values).square().mean().detach())
        loss = (attend(q, k, values, step) - values).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        sizes.append(float((q.norm(dim=-1) * k.norm(dim=-1)).mean().detach()) / 4)
    raise AssertionError("the loop returns")


def through_softmax(q: Tensor, k: Tensor, v: Tensor, step: int) -> Tensor:
    """Attend exactly."""
    return scaled_dot_product_attention(q, k, v)


def through_features(m: int) -> Callable[[Tensor, Tensor, Tensor, int], Tensor]:
    """Return attention through m positive orthogonal features that are drawn anew at each step."""

    def attend(q: Tensor, k: Tensor, v: Tensor, step: int) -> Tensor:
        features = positive_features(q.shape[-1], m, orthogonal=True, generator=rng(1000 + step), dtype=q.dtype)
        return random_feature_attention(q, k, v, features=features)

    return attend


def retrieval_runs() -> dict[str, tuple[list[float], list[float], float]]:
    """Return the runs that the lesson compares, by name."""
    return {
        "softmax": train_retrieval(through_softmax),
        "256 features": train_retrieval(through_features(256)),
        "64 features": train_retrieval(through_features(64)),
    }


@lesson.figure(
    ["Loss", "Size"],
    "step",
    ["mean squared error", "mean of $\\|q\\|\\,\\|k\\| / \\sqrt{D}$"],
    size=(9.0, 3.9),
    grid=(1, 2),
    legend=[{"loc": "lower left", "fontsize": 8}, {"loc": "upper left", "fontsize": 8}],
    yscale=["log", "linear"],
    xlim=(-2, 88),
    ylim=[(5e-4, 2), (0, 16)],
)
def plot_training(left, right):
    """Draw loss and size of queries and keys over training, through softmax and through positive features."""
    runs = retrieval_runs()
    curves = lines(left, None, {name: losses for name, (losses, _, _) in runs.items()})
    lines(right, None, {name: sizes for name, (_, sizes, _) in runs.items()})
    right.axhline(1, color="0.5", linewidth=1, linestyle=":", label="where estimates are good")
    for name, curve, marker in zip(list(runs)[1:], curves[1:], "*P", strict=True):
        losses, _, final = runs[name]
        label = f"{name}, then softmax"
        left.plot([len(losses) + 2], [final], marker, color=curve.get_color(), markersize=9, label=label)
    return (
        f"Retrieval trained through softmax and through positive features. Left: the loss falls to "
        f"{runs['softmax'][0][-1]:.3f} through softmax, stops near {runs['256 features'][0][-1]:.1f} with 256 features "
        f"and near {runs['64 features'][0][-1]:.1f} with 64. The same trained weights evaluated with exact softmax reach "
        f"{runs['256 features'][2]:.3f} and {runs['64 features'][2]:.3f}. Right: in every run the size of queries and keys "
        "grows from 0.25 to between 7 and 13, far above 1."
    )


@lesson.figure(
    ["Independent", "Orthogonal in blocks"],
    size=(7.4, 3.6),
    grid=(1, 2),
    bare=True,
    xlim=(-2.6, 2.6),
    ylim=(-2.6, 2.6),
    aspect="equal",
)
def plot_frequencies(left, right):
    """Draw six frequencies in two dimensions: independent, and in three blocks of two orthogonal ones."""
    for axes, orthogonal in ((left, False), (right, True)):
        drawn = draw_frequencies(2, 6, orthogonal=orthogonal, generator=rng(43), dtype=torch.float64).numpy()
        axes.add_patch(Circle((0, 0), math.sqrt(2), fill=False, color="0.6", linestyle=":"))
        for number, arrow in enumerate(drawn):
            color = (BLUE, RED, GREEN)[number // 2] if orthogonal else BLACK
            axes.annotate("", arrow, (0, 0), arrowprops={"arrowstyle": "-|>", "color": color, "linewidth": 1.8})
    return (
        "Two pictures of six random arrows from one point, in two dimensions. Left, independent: some point the same way, "
        "others leave directions empty. Right, three pairs, each of one colour: within a pair the arrows are at right "
        "angles, and their lengths differ as those of independent arrows do."
    )


@lesson.figure(
    ["as computed", "one maximum for all", "one maximum for each feature"],
    size=(9.0, 2.9),
    grid=(1, 3),
    bare=True,
    xlim=(-0.5, 5.5),
    ylim=(3.9, -0.5),
    aspect="equal",
)
def plot_maxima(*axes):
    """Draw the exponents of four keys and six features, and what two ways to shift them leave."""
    exponents = np.array([[60, -150, 20, -90, 0, -130], [40, -170, 110, -60, 30, -190],
                          [20, -120, 90, -100, -10, -160], [50, -140, 60, -80, 10, -150]])  # fmt: skip
    tables = (exponents, exponents - exponents.max(), exponents - exponents.max(axis=0))
    for one, table in zip(axes, tables, strict=True):
        lost = (table > 88) | (table < -87)
        one.imshow(np.where(lost, 1.0, 0.0), cmap=ListedColormap(["#dce9f5", "#f3c9ae"]), vmin=0, vmax=1)
        for (key, feature), value in np.ndenumerate(table):
            one.text(feature, key, f"{value}", ha="center", va="center", fontsize=8)
        one.text(2.5, 3.75, "columns: features, rows: keys", ha="center", fontsize=8)
    return (
        "Three tables of exponents, keys as rows and features as columns. Shaded entries overflow or vanish in float32. As "
        "computed, one entry overflows and two whole columns vanish. After subtracting one maximum from all, three columns "
        "vanish. After subtracting each column's own maximum, every column has an entry 0."
    )


DRAWS, MOST, BLOCK = 1500, 256, 16
KINDS = ("trigonometric", "positive", "positive, orthogonal")


@cache
def projections(orthogonal: bool) -> np.ndarray:
    """Return the component of 256 frequencies along one direction, for 1,500 draws.

    In an orthogonal block of 16 rows these components are a uniform unit vector times independent lengths.
    """
    generator = np.random.default_rng(16)
    z = generator.standard_normal((DRAWS, MOST))
    if not orthogonal:
        return z
    blocks = z.reshape(DRAWS, -1, BLOCK)
    unit = blocks / np.linalg.norm(blocks, axis=-1, keepdims=True)
    lengths = np.sqrt(generator.chisquare(BLOCK, size=blocks.shape))
    return (unit * lengths).reshape(DRAWS, MOST)


@lesson.explorer
class EstimateExplorer(Explorer):
    """The distribution of the estimated similarity, for a number of frequencies, a length, an angle and a kind."""

    title = "What random features make of one similarity"
    summary = (
        "Left: distribution of the estimate divided by the exact similarity, over 1,500 draws of the frequencies, "
        "scaled to its tallest bin; the vertical lines mark 0 and the exact value 1. Right: root mean square relative "
        "error against the number of frequencies, predicted and measured, with the current number marked."
    )
    m = Slider(
        "number of frequencies",
        "m",
        "How many random frequencies are averaged; features cost time in proportion",
        32,
        4,
        256,
        4,
    )
    length = Slider(
        "length", "r", "Both vectors have this length, in units of the kernel's width", 1.5, 0.25, 2.0, 0.05, "sigma"
    )
    angle = Slider("angle", "θ", "0 is a query on its own key, 180 the opposite direction", 60, 0, 180, 10, "deg")
    kind = Choice(
        "kind of features",
        "sin and cos, exp, or exp with orthogonal frequencies in blocks of 16 (head_dim 16)",
        "trigonometric",
        KINDS,
    )
    together = ("m", "length")
    size = (9.0, 4.1)
    counts = 2 ** np.arange(2, 9)
    edges = np.linspace(-2, 4, 31)
    layout = panels(
        ["Distribution of the estimate", "Error against number"],
        ["estimate / exact similarity", "number of frequencies $m$"],
        ["draws (tallest bin = 1)", "relative error"],
        grid=(1, 2),
        legend=[{"loc": "upper left", "fontsize": 8, "ncols": 2}, {"loc": "upper right", "fontsize": 8, "ncols": 3}],
        xscale=["linear", "log"],
        yscale=["linear", "log"],
        xlim=[(-2, 4), (3, 340)],
        ylim=[(0, 1.3), (1e-3, 3e3)],
    )

    def compute(self, *, m, length, angle, kind):
        """Return histogram, shares, and errors over the number of frequencies."""
        half = math.radians(angle) / 2
        # Rounded, so that opposite vectors have no sum at all.
        s, d = (2 * length * round(f(half), 12) for f in (math.cos, math.sin))
        orthogonal = kind.endswith("orthogonal")
        z, pair = projections(orthogonal), 0.0
        if kind == "trigonometric":
            values, variance = np.cos(d * z) * math.exp(d**2 / 2), 2 * math.sinh(d**2 / 2) ** 2
        else:
            values, variance = np.exp(s * z - s**2 / 2), math.expm1(s**2)
        if orthogonal:
            pair = float(orthogonal_covariance(torch.tensor(s**2, dtype=torch.float64), head_dim=BLOCK))

        def predicted(count):
            blocks, rest = divmod(count, BLOCK)
            pairs = blocks * BLOCK * (BLOCK - 1) + rest * (rest - 1)
            return math.sqrt(max(0.0, count * variance + pairs * pair)) / count

        sums = values.cumsum(1)
        ratios = sums[:, m - 1] / m
        heights, _ = np.histogram(ratios, bins=self.edges)
        error = float(np.sqrt(np.square(ratios - 1).mean()))
        # What is too small for the axis lies on its edge.
        seen = lambda errors: np.clip(errors, 1.2e-3, 2.5e3)  # noqa: E731
        return {
            "bars": np.repeat(heights / max(1, heights.max()), 2),
            "predicted": seen([predicted(int(c)) for c in self.counts]),
            "measured": seen([np.sqrt(np.square(sums[:, c - 1] / c - 1).mean()) for c in self.counts]),
            "current": (m, seen(error)),
            "error": error,
            "expected": predicted(m),
            "negative": float((ratios < 0).mean()),
            "far": float((np.abs(ratios - 1) > 0.5).mean()),
            "exact": math.exp(length**2 * math.cos(2 * half)),
            "settings": f"{kind.capitalize()} features with m = {m}, vectors of length {length:.2f} at {angle} degrees",
        }

    def draw(self, left, right):
        """Draw the marks that stay, and the curves and points to be moved."""
        left.axvline(0, color=BLACK, linewidth=0.9, linestyle="-")
        left.axvline(1, color=BLUE, linewidth=1.4, linestyle="--", label="exact")
        places = np.repeat(self.edges, 2)[1:-1]
        (bars,) = left.plot(places, 0 * places, "-", color=RED, label="1,500 draws")
        (predicted,) = right.plot(self.counts, self.counts, "--", color=BLUE, label="predicted")
        (measured,) = right.plot(self.counts, self.counts, "o", color=RED, markersize=5, label="measured")
        (current,) = right.plot([], [], "D", color=BLACK, markersize=9, fillstyle="none", label="this $m$")
        return {"bars": bars, "predicted": predicted, "measured": measured, "current": current}

    def words(self, state):
        """Say what share of the draws is negative or far off, and what was predicted."""
        rare = " The missing part is carried by draws too rare to be among 1,500."
        return (
            f"{state['settings']}: the exact similarity is {state['exact']:.3g}. Of 1,500 estimates "
            f"{state['negative']:.1%} are negative and {state['far']:.1%} miss by more than half of it. "
            f"Relative error: {state['error']:.2g} measured, {state['expected']:.2g} predicted."
            + (rare if state["error"] < 0.7 * state["expected"] else "")
        )


negative_prediction = lesson.prediction(
    "16.P1",
    "A query and a key are $3\\sigma$ apart, so that the Gaussian kernel is $e^{-4.5} \\approx 0.011$. It is estimated "
    "from 8 frequencies. The estimate is right on average. In what share of the draws is it negative?",
    {
        "Almost none": "A positive mean does not keep the values positive: each one is an average of 8 cosines.",
        "About one in twenty": "That would be so if the mean were 1.6 standard deviations above zero. The standard "
        "deviation is 0.25, the mean 0.011.",
        "Nearly half": "The standard deviation, 0.25, is more than twenty times the mean, so the sign is nearly a "
        "coin's.",
    },
    answer="Nearly half",
    reveal=plot_negative,
)

length_prediction = lesson.prediction(
    "16.P2",
    "Head dimension 64, positive features, $q$ and $k$ at a right angle. Their lengths grow from 2 to 8, which is what "
    "entries of variance 1 have. How many times as many features does the same relative error of the similarity need?",
    {
        "16 times": "The exponent grows 16-fold, and the variance is the exponential of it.",
        "256 times": "That would be a power of the length; the variance is an exponential of its square.",
        "About 5 million times": "The exponent |q + k|²/√D goes from 1 to 16, and (e¹⁶ - 1)/(e - 1) is 5.2 million.",
    },
    answer="About 5 million times",
    reveal=plot_errors,
)

FIGURES = lesson.figures
