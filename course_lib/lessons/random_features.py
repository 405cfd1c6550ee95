"""Figures, explorer, predictions and exercises of lesson 16, random_features."""

import math
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from course_lib.attention.random_features import (
    attention_error,
    orthogonal_covariance,
    positive_features,
    random_feature_attention,
    trigonometric_features,
)
from course_lib.teaching.exercise import Exercise, Mistake, Property, close
from course_lib.teaching.explorer import Choice, Explorer, Slider
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.style import BLACK, BLUE, GREEN, PURPLE, RED, describe, new_figure, styled

FAMILIES = {"positive": positive_features, "trigonometric": trigonometric_features}


def rng(seed: int) -> torch.Generator:
    """Return a generator with that seed."""
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int) -> Tensor:
    """Return float64 standard normal numbers."""
    return torch.randn(*shape, generator=rng(seed), dtype=torch.float64)


# Figures


def question_weights() -> dict[str, np.ndarray]:
    """Return one query's attention weights on 12 keys: softmax, and two estimates from 32 frequencies."""
    q, k = 0.95 * normal(1, 16, seed=32), 0.95 * normal(12, 16, seed=132)
    weights = {"softmax": (q @ k.mT / 4).softmax(-1)[0]}
    for kind, draw in (("trigonometric", trigonometric_features), ("positive", positive_features)):
        features = draw(16, 32, generator=rng(2), dtype=torch.float64)
        identity = torch.eye(12, dtype=torch.float64)
        weights[kind] = random_feature_attention(q, k, identity, features=features)[0]
    return {name: values.numpy() for name, values in weights.items()}


@styled
def plot_question() -> Figure:
    """Draw the attention weights of one query: exact, by trigonometric and by positive features."""
    weights = question_weights()
    figure = new_figure(7.4, 4.0)
    axes = figure.add_subplot()
    places = np.arange(1, 13)
    axes.axhline(0, color=BLACK, linewidth=0.8, linestyle="-")
    axes.bar(places, weights["softmax"], width=0.8, color="0.85", label="softmax")
    for name, color, marker, shift in (("trigonometric", RED, "s", -0.15), ("positive", BLUE, "o", 0.15)):
        axes.plot(
            places + shift, weights[name], color=color, marker=marker, markersize=6, linestyle="none",
            label=f"{name} features",
        )  # fmt: skip
    axes.set(
        xlabel="key", ylabel="attention weight", xticks=places, ylim=(-0.2, 0.62),
        title="One query, 12 keys: weights without scores",
    )  # fmt: skip
    axes.legend(loc="upper left", fontsize=8)
    lowest = int(weights["trigonometric"].argmin())
    return describe(
        figure,
        "Attention weights of one query on 12 keys. Bars: softmax. Points: estimates from one draw of 32 frequencies. "
        f"Both follow the bars roughly. Positive features give weights of 0 or more; trigonometric ones give a weight of "
        f"{weights['trigonometric'][lowest]:.2f} to key {lowest + 1}, where softmax gives "
        f"{weights['softmax'][lowest]:.2f}.",
    )


@styled
def plot_laws(*, sigma: float = 2.0, m: int = 4000) -> Figure:
    """Draw estimates of the Gaussian kernel against the distance for both laws of the frequencies."""
    figure = new_figure(6.6, 4.0)
    axes = figure.add_subplot()
    distances = np.linspace(0, 6, 200)
    points = torch.linspace(0, 6, 13, dtype=torch.float64)
    w = normal(m, 1, seed=3)
    for law, scale, color, style, marker in (
        ("$N(0, \\sigma^{-2} I)$", 1 / sigma, BLUE, "-", "o"),
        ("$N(0, \\sigma^2 I)$, as printed", sigma, RED, "--", "s"),
    ):
        axes.plot(
            distances,
            np.exp(-((scale * distances) ** 2) / 2),
            color=color,
            linestyle=style,
            label=f"mean of {law}",
        )
        axes.plot(
            points, (scale * w * points).cos().mean(0), color=color, marker=marker, markersize=5, linestyle="none",
            label=f"{m:,} draws",
        )  # fmt: skip
    axes.set(
        xlabel="distance $\\|q - k\\|$", ylabel="mean of $\\cos\\,w^\\top(q - k)$", ylim=(-0.15, 1.2),
        title="The law decides which kernel comes out ($\\sigma$ = 2)",
    )  # fmt: skip
    axes.legend(loc="upper right", fontsize=8)
    return describe(
        figure,
        "Mean of cos w.(q - k) against the distance of q and k, for sigma = 2. Frequencies with variance 1/sigma^2 give "
        "the Gaussian kernel of width 2, which is 0.61 at distance 2. With variance sigma^2 the mean is the kernel of "
        "width 1/2, which is 0.0003 there. Averages of 4,000 draws lie on the two curves.",
    )


def negative_share(*, m: int = 8, distance: float = 3.0, draws: int = 20_000) -> tuple[Tensor, float]:
    """Return estimates of the kernel of width 1 at a distance, and the share that is negative."""
    estimates = (distance * normal(draws, m, seed=4)).cos().mean(1)
    return estimates, float((estimates < 0).double().mean())


@styled
def plot_negative() -> Figure:
    """Draw the distribution of the estimate from 8 frequencies at distance 3."""
    estimates, share = negative_share()
    exact = math.exp(-4.5)
    figure = new_figure(6.6, 3.9)
    axes = figure.add_subplot()
    heights, edges = np.histogram(estimates, bins=np.linspace(-1, 1, 81))
    heights = 100 * heights / len(estimates)
    axes.fill_between(edges[:-1], heights, step="post", color="0.85")
    axes.fill_between(edges[:41], heights[:41], step="post", color=RED, alpha=0.5, label="below zero")
    axes.axvline(exact, color=BLUE, linestyle="--", label=f"exact {exact:.3f}")
    axes.axvline(0, color=BLACK, linewidth=0.9, linestyle="-")
    axes.set(
        xlabel="estimate of $K(q, k)$", ylabel="share of draws (%)", xlim=(-1, 1), ylim=(0, 5.6),
        title="8 frequencies, $\\|q - k\\|$ = 3 $\\sigma$",
    )  # fmt: skip
    axes.legend(loc="upper left")
    return describe(
        figure,
        f"Distribution of 20,000 estimates of a kernel value of {exact:.3f} from 8 frequencies each: a bell of standard "
        f"deviation 0.25 around it. About {round(100 * share)} percent of the estimates are negative.",
    )


@styled
def plot_variances(*, length: float = 1.0) -> Figure:
    """Draw the relative error of one frequency against the angle between q and k, predicted and measured."""
    figure = new_figure(6.8, 4.1)
    axes = figure.add_subplot()
    angles = np.linspace(0, 180, 181)
    s2, d2 = ((2 * length * f(np.radians(angles) / 2)) ** 2 for f in (np.cos, np.sin))
    w = normal(200_000, 1, seed=5)
    some = np.arange(15, 180, 15)
    for name, curve, estimate, color, style, marker in (
        ("trigonometric", np.sqrt(2) * np.sinh(d2 / 2), lambda s, d: (d * w).cos() * math.exp(d**2 / 2), RED, "--", "s"),
        ("positive", np.sqrt(np.expm1(s2)), lambda s, d: (s * w - s**2 / 2).exp(), BLUE, "-", "o"),
    ):  # fmt: skip
        axes.plot(angles, curve, color=color, linestyle=style, label=f"{name}, by (16.8)")
        measured = [
            float((estimate(np.sqrt(s2[a]), np.sqrt(d2[a])) - 1).square().mean().sqrt()) for a in some
        ]
        axes.plot(
            some, measured, color=color, marker=marker, markersize=5, linestyle="none", label="200,000 draws"
        )
    axes.set(
        xlabel="angle between $q$ and $k$, both of length $\\sigma$ (degrees)", xlim=(0, 180),
        ylabel="relative error of one frequency",
        ylim=(0, 8.5), xticks=range(0, 181, 30), title="Each kind is poor where the other is good",
    )  # fmt: skip
    axes.legend(loc="upper center", fontsize=8, ncols=2)
    return describe(
        figure,
        "Root mean square relative error of the similarity estimated from one frequency, against the angle between q "
        "and k, both of length sigma. Trigonometric: zero at 0 degrees, rising to 5.1 at 180. Positive: 7.3 at 0 "
        "degrees, falling to zero at 180. Measured points lie on the curves.",
    )


def output_errors(
    length: float | int, counts: tuple[int, ...], *, kind: str = "positive", seed: int = 0, draws: int = 3
) -> tuple[list[float], list[float]]:
    """Return predicted and measured relative error of attention's output, for each number of frequencies.

    128 tokens, head_dim 64, queries and keys of that length in random directions, values N(0, I).
    """
    q, k, v = normal(3, 128, 64, seed=seed)
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


@styled
def plot_errors() -> Figure:
    """Draw the error of attention's output against the number of positive features for four lengths of q and k."""
    figure = new_figure(6.8, 4.4)
    axes = figure.add_subplot()
    counts, said = (16, 64, 256, 1024), []
    looks = {1: (BLUE, "-", "o"), 2: (GREEN, "-.", "^"), 4: (PURPLE, ":", "D"), 8: (RED, "--", "s")}
    for length, (color, style, marker) in looks.items():
        predicted, measured = output_errors(length, counts)
        if length < 8:  # far outside the first order at 8: the prediction is in the thousands
            axes.loglog(counts, predicted, color=color, linestyle=style, label="to first order")
        axes.loglog(
            counts, measured, color=color, marker=marker, markersize=6, linestyle="none",
            label=f"$\\|q\\| = \\|k\\|$ = {length}",
        )  # fmt: skip
        said.append(f"length {length} from {measured[0]:.2g} to {measured[-1]:.2g}")
    axes.axhline(1, color=BLACK, linewidth=0.9, linestyle="-")
    axes.set(
        xlabel="number of features $m$", ylabel="relative error of the output", ylim=(0.004, 40),
        title="Useful only for short queries and keys (head_dim 64)",
    )  # fmt: skip
    axes.legend(loc="upper center", fontsize=8, ncols=4, columnspacing=1)
    return describe(
        figure,
        "Relative error of the attention output against the number of positive features from 16 to 1,024, both "
        f"logarithmic: {'; '.join(said)}. Up to length 2 the points lie on lines of slope -1/2, the first-order "
        "prediction; at length 8 more features hardly help.",
    )


# Training


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
        features = positive_features(
            q.shape[-1], m, orthogonal=True, generator=rng(1000 + step), dtype=q.dtype
        )
        return random_feature_attention(q, k, v, features=features)

    return attend


@cache
def retrieval_runs() -> dict[str, tuple[list[float], list[float], float]]:
    """Return the runs that the lesson compares, by name."""
    return {
        "softmax": train_retrieval(through_softmax),
        "256 features": train_retrieval(through_features(256)),
        "64 features": train_retrieval(through_features(64)),
    }


@styled
def plot_training() -> Figure:
    """Draw loss and size of queries and keys over training, through softmax and through positive features."""
    figure = new_figure(9.0, 3.9)
    left, right = figure.subplots(1, 2)
    runs = retrieval_runs()
    looks = {"softmax": (BLACK, "-"), "256 features": (BLUE, "--"), "64 features": (RED, "-.")}
    for name, (losses, sizes, final) in runs.items():
        color, style = looks[name]
        left.semilogy(losses, color=color, linestyle=style, label=name)
        right.plot(sizes, color=color, linestyle=style, label=name)
        if name != "softmax":
            left.plot(
                [len(losses) + 2], [final], color=color, marker="*" if name[0] == "2" else "P", markersize=9,
                linestyle="none", label=f"{name}, then softmax",
            )  # fmt: skip
    left.set(xlabel="step", ylabel="mean squared error", ylim=(5e-4, 2), xlim=(-2, 88), title="Loss")
    left.legend(loc="lower left", fontsize=8)
    right.axhline(1, color="0.5", linewidth=1, linestyle=":", label="where estimates are good")
    right.set(
        xlabel="step",
        ylabel="mean of $\\|q\\|\\,\\|k\\| / \\sqrt{D}$",
        ylim=(0, 16),
        xlim=(-2, 88),
        title="Size",
    )
    right.legend(loc="upper left", fontsize=8)
    return describe(
        figure,
        f"Retrieval trained through softmax and through positive features. Left: the loss falls to "
        f"{runs['softmax'][0][-1]:.3f} through softmax, stops near {runs['256 features'][0][-1]:.1f} with 256 features "
        f"and near {runs['64 features'][0][-1]:.1f} with 64. The same trained weights evaluated with exact softmax reach "
        f"{runs['256 features'][2]:.3f} and {runs['64 features'][2]:.3f}. Right: in every run the size of queries and keys "
        "grows from 0.25 to between 7 and 13, far above 1.",
    )


# Explorer


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


class EstimateExplorer(Explorer):
    """The distribution of the estimated similarity, for a number of frequencies, a length, an angle and a kind."""

    title = "What random features make of one similarity"
    summary = (
        "Left: distribution of the estimate divided by the exact similarity, over 1,500 draws of the frequencies, "
        "scaled to its tallest bin; the vertical lines mark 0 and the exact value 1. Right: root mean square relative "
        "error against the number of frequencies, predicted and measured, with the current number marked."
    )
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "m": Slider(
            label="number of frequencies", symbol="m", default=32, minimum=4, maximum=256, step=4,
            tooltip="How many random frequencies are averaged; features cost time in proportion",
        ),
        "length": Slider(
            label="length", symbol="r", unit="sigma", default=1.0, minimum=0.25, maximum=2.0, step=0.05,
            tooltip="Both vectors have this length, in units of the kernel's width",
        ),
        "angle": Slider(
            label="angle", symbol="θ", unit="deg", default=60, minimum=0, maximum=180, step=10,
            tooltip="0 is a query on its own key, 180 the opposite direction",
        ),
        "kind": Choice(
            label="kind of features", default="trigonometric", options=KINDS,
            tooltip="sin and cos, exp, or exp with orthogonal frequencies in blocks of 16 (head_dim 16)",
        ),
    }  # fmt: skip
    size = (9.0, 4.1)
    counts = 2 ** np.arange(2, 9)
    edges = np.linspace(-2, 4, 31)

    def compute(self, *, m, length, angle, kind):
        """Return histogram, shares, and errors over the number of frequencies."""
        half = math.radians(angle) / 2
        # Rounded, so that opposite vectors have no sum at all.
        s, d = (2 * length * round(f(half), 12) for f in (math.cos, math.sin))
        z = projections(kind.endswith("orthogonal"))
        if kind == "trigonometric":
            values, variance = np.cos(d * z) * math.exp(d**2 / 2), 2 * math.sinh(d**2 / 2) ** 2
        else:
            values, variance = np.exp(s * z - s**2 / 2), math.expm1(s**2)
        pair = 0.0
        if kind.endswith("orthogonal"):
            pair = float(orthogonal_covariance(torch.tensor(s**2, dtype=torch.float64), head_dim=BLOCK))

        def predicted(count):
            blocks, rest = divmod(count, BLOCK)
            pairs = blocks * BLOCK * (BLOCK - 1) + rest * (rest - 1)
            return math.sqrt(max(0.0, count * variance + pairs * pair)) / count

        sums = values.cumsum(1)
        ratios = sums[:, m - 1] / m
        measured = [float(np.sqrt(np.square(sums[:, c - 1] / c - 1).mean())) for c in self.counts]
        heights, _ = np.histogram(ratios, bins=self.edges)
        return {
            "m": m, "length": length, "angle": angle, "kind": kind,
            "exact": math.exp(length**2 * math.cos(2 * half)), "heights": heights / max(1, heights.max()),
            "negative": float((ratios < 0).mean()), "far": float((np.abs(ratios - 1) > 0.5).mean()),
            "error": float(np.sqrt(np.square(ratios - 1).mean())), "expected": predicted(m),
            "predicted": np.array([predicted(int(c)) for c in self.counts]), "measured": np.array(measured),
        }  # fmt: skip

    def draw(self, figure):
        """Draw both axes with fixed limits."""
        left, right = figure.subplots(1, 2)
        left.set(
            xlim=(-2, 4), ylim=(0, 1.3), xlabel="estimate / exact similarity", ylabel="draws (tallest bin = 1)",
            title="Distribution of the estimate",
        )  # fmt: skip
        left.axvline(0, color=BLACK, linewidth=0.9, linestyle="-")
        left.axvline(1, color=BLUE, linewidth=1.4, linestyle="--", label="exact")
        bars = left.plot([], [], color=RED, linestyle="-", linewidth=1.8, label="1,500 draws")[0]
        left.legend(loc="upper left", fontsize=8, ncols=2)
        right.set(
            xlim=(3, 340), ylim=(1e-3, 3e3), xscale="log", yscale="log", xlabel="number of frequencies $m$",
            ylabel="relative error", title="Error against number",
        )  # fmt: skip
        lines = {
            "predicted": right.plot([], [], color=BLUE, linestyle="--", label="predicted")[0],
            "measured": right.plot(
                [], [], color=RED, marker="o", markersize=5, linestyle="none", label="measured"
            )[0],
            "current": right.plot(
                [], [], color=BLACK, marker="D", markersize=9, fillstyle="none", linestyle="none", label="this $m$"
            )[0],
        }  # fmt: skip
        right.legend(loc="upper right", fontsize=8, ncols=3)
        return {"bars": bars, **lines}

    def update(self, artists, state):
        """Move the histogram, the line and the points; what is too small for the axis lies on its edge."""
        artists["bars"].set_data(np.repeat(self.edges, 2)[1:-1], np.repeat(state["heights"], 2))
        clip = lambda values: np.clip(values, 1.2e-3, 2.5e3)  # noqa: E731
        artists["predicted"].set_data(self.counts, clip(state["predicted"]))
        artists["measured"].set_data(self.counts, clip(state["measured"]))
        artists["current"].set_data([state["m"]], [clip(state["error"])])

    def words(self, state):
        """Say what share of the draws is negative or far off, and what was predicted."""
        percent = lambda share: f"{100 * share:.1f}%"  # noqa: E731
        rare = (
            " The missing part is carried by draws too rare to be among 1,500."
            if state["error"] < 0.7 * state["expected"]
            else ""
        )
        return (
            f"{state['kind'].capitalize()} features with m = {state['m']}, vectors of length {state['length']:.2f} at "
            f"{state['angle']} degrees: the exact similarity is {state['exact']:.3g}. Of 1,500 estimates "
            f"{percent(state['negative'])} are negative and {percent(state['far'])} miss by more than half of it. "
            f"Relative error: {state['error']:.2g} measured, {state['expected']:.2g} predicted.{rare}"
        )


# Predictions


def negative_prediction() -> Prediction:
    """Ask how often an unbiased estimate of a positive number is negative."""
    return Prediction(
        "16.P1",
        "A query and a key are $3\\sigma$ apart, so that the Gaussian kernel is $e^{-4.5} \\approx 0.011$. It is estimated "
        "from 8 frequencies. The estimate is right on average. In what share of the draws is it negative?",
        choices={
            "Almost none": "A positive mean does not keep the values positive: each one is an average of 8 cosines.",
            "About one in twenty": "That would be so if the mean were 1.6 standard deviations above zero. The standard "
            "deviation is 0.25, the mean 0.011.",
            "Nearly half": "The standard deviation, 0.25, is more than twenty times the mean, so the sign is nearly a "
            "coin's.",
        },
        answer="Nearly half",
        reveal=plot_negative,
    )


def length_prediction() -> Prediction:
    """Ask how many more features longer queries and keys need."""
    return Prediction(
        "16.P2",
        "Head dimension 64, positive features, $q$ and $k$ at a right angle. Their lengths grow from 2 to 8, which is what "
        "entries of variance 1 have. How many times as many features does the same relative error of the similarity need?",
        choices={
            "16 times": "The exponent grows 16-fold, and the variance is the exponential of it.",
            "256 times": "That would be a power of the length; the variance is an exponential of its square.",
            "About 5 million times": "The exponent |q + k|²/√D goes from 1 to 16, and (e¹⁶ - 1)/(e - 1) is 5.2 million.",
        },
        answer="About 5 million times",
        reveal=plot_errors,
    )


# Exercises


def _uniform(generator: torch.Generator, low: float, high: float, digits: int = 2) -> float:
    return round(low + (high - low) * float(torch.rand((), generator=generator)), digits)


_WIDTH = Exercise(
    id="16.1",
    title="The width inside softmax",
    kind="value",
    difficulty=1,
    minutes=4,
    prompt="Queries and keys have $D = 64$ entries. For which $\\sigma$ is $\\exp(q^\\top k/\\sqrt D)$ equal to "
    "$e^{\\lVert q\\rVert^2/2\\sigma^2}\\,K_\\sigma(q, k)\\,e^{\\lVert k\\rVert^2/2\\sigma^2}$ for all $q$ and $k$, with "
    "the Gaussian kernel $K_\\sigma$? Three digits are enough.",
    draw=lambda generator: {"score": _uniform(generator, 0.5, 4.0)},
    reference=64**0.25,
    properties=(
        Property("A width is positive.", lambda i, sigma: sigma > 0),
        Property(
            "With your width the two sides differ.",
            lambda i, sigma: abs(i["score"] / float(sigma) ** 2 - i["score"] / 8) <= 5e-3 * i["score"] / 8,
        ),
    ),
    hints=(
        "Put all three exponents on one fraction line: what is left of the norms?",
        "The product is an exponential of q.k over something. Over what?",
        "Compare that denominator with the one of softmax attention, and solve for the width.",
    ),
    mistakes=(
        Mistake("variance instead of width", 8.0, "You gave σ², which is √D = 8. The width is its root.",
                lambda i, a: abs(a - 8) < 0.02),
        Mistake("as many as entries", 64.0, "You gave D itself. The scores are divided by √D, and that is σ².",
                lambda i, a: abs(a - 64) < 0.02),
        Mistake("width one", 1.0, "With σ = 1 the product is exp(q.k), softmax without its scale.",
                lambda i, a: abs(a - 1) < 0.02),
        Mistake("two left over", 2.0, "You have σ² = √D/2: the 2 in the exponents of the kernel is used up by the cross "
                "term 2 q.k.", lambda i, a: abs(a - 2) < 0.02),
        Mistake("one over the width", 64**-0.25, "That is 1/σ, by which queries and keys are multiplied.",
                lambda i, a: abs(a - 64**-0.25) < 0.005),
    ),
)  # fmt: skip


def estimate(q, k, frequencies):
    """Return the trigonometric estimate of exp(q.k / sqrt(D))."""
    sigma = len(q) ** 0.25
    kernel = (frequencies @ (q - k) / sigma).cos().mean()
    return ((q @ q + k @ k) / (2 * sigma**2)).exp() * kernel


def _draw_pair(generator: torch.Generator) -> dict:
    d = int(torch.randint(2, 5, (), generator=generator))
    m = int(torch.randint(2, 5, (), generator=generator))
    drawn = [torch.randn(d, generator=generator, dtype=torch.float64).round(decimals=1) for _ in range(2)]
    drawn[0][0] += 1.5  # q and k never equal, q never zero
    w = torch.randn(m, d, generator=generator, dtype=torch.float64).round(decimals=1)
    return {"q": drawn[0], "k": drawn[1], "frequencies": w}


def _estimate_with(scale: Callable[[float], float], norm: Callable[[float], float]) -> Callable:
    """Return an estimate whose angles are scaled and whose norms are weighed otherwise."""

    def wrong(q, k, frequencies):
        sigma = len(q) ** 0.25
        kernel = (frequencies @ (q - k) * scale(sigma)).cos().mean()
        return ((q @ q + k @ k) * norm(sigma)).exp() * kernel

    return wrong


_ESTIMATE = Exercise(
    id="16.2",
    title="Softmax by sine and cosine",
    kind="function",
    difficulty=1,
    minutes=8,
    prompt="Write `estimate(q, k, frequencies)`: the estimate of $\\exp(q^\\top k/\\sqrt D)$ by trigonometric features. `q` "
    "and `k` are float64 vectors with $D$ entries, `frequencies` holds $m$ rows drawn from $N(0, I)$, which you have to "
    "scale; return a number (a tensor without dimensions).",
    draw=_draw_pair,
    reference=estimate,
    properties=(
        Property(
            "An average of cosines is at most 1 in size, so the estimate is at most the product of both norms' factors.",
            lambda i, a: abs(float(a))
            <= math.exp(float(i["q"] @ i["q"] + i["k"] @ i["k"]) / (2 * math.sqrt(len(i["q"])))) * (1 + 1e-9),
        ),
        Property(
            "These frequencies give another estimate.",
            lambda i, a: close(a, estimate(i["q"], i["k"], i["frequencies"])),
        ),
    ),
    hints=(
        "sin a sin b + cos a cos b is the cosine of a difference.",
        "The kernel's width follows from D, and the frequencies must have variance 1/σ².",
        "The kernel alone is not yet softmax: two factors that depend on the lengths are missing.",
    ),
    mistakes=(
        Mistake("the printed law", _estimate_with(lambda s: s, lambda s: 1 / (2 * s**2)),
                "You multiplied the frequencies by σ, the law that the notes print. A wide kernel needs low frequencies: "
                "divide."),
        Mistake("unscaled frequencies", _estimate_with(lambda s: 1.0, lambda s: 1 / (2 * s**2)),
                "Your frequencies have variance 1, which belongs to the kernel of width 1. Here the width is D^(1/4)."),
        Mistake("kernel only", _estimate_with(lambda s: 1 / s, lambda s: 0.0),
                "That estimates the Gaussian kernel. Softmax has the norms of q and k as factors besides."),
        Mistake("norms without the half", _estimate_with(lambda s: 1 / s, lambda s: 1 / s**2),
                "The factors are exp(|q|²/2σ²) and exp(|k|²/2σ²); yours lack the 2."),
        Mistake("sum instead of mean", lambda q, k, w: len(w) * estimate(q, k, w),
                "You added the frequencies' cosines up. The features carry 1/√m each, which makes it an average."),
    ),
)  # fmt: skip


def _kernels(c: Mapping) -> tuple[float, float]:
    """Return the kernel, and the mean under the notes' law."""
    sigma, distance = float(c["sigma"]), float(c["distance"])
    return math.exp(-(distance**2) / (2 * sigma**2)), math.exp(-(distance**2) * sigma**2 / 2)


def _law_flaw(c: Mapping) -> str:
    """Name what keeps a proposed counterexample from being one."""
    if float(c["sigma"]) <= 0:
        return "no width"
    if float(c["distance"]) <= 0:
        return "same point"
    kernel, printed = _kernels(c)
    if abs(kernel - printed) >= 0.2:
        return "none"
    if max(kernel, printed) < 0.2:
        return "too far"
    return "too near" if min(kernel, printed) > 0.8 else "width near one"


_LAW = Exercise(
    id="16.3",
    title="The law of the frequencies",
    kind="flaw",
    difficulty=2,
    minutes=6,
    prompt="The notes draw $w \\sim N(0, \\sigma^2 I)$ and say that the features' product has the expectation "
    "$K_\\sigma(q, k)$. Give a counterexample: a dictionary with the numbers `sigma` ($\\sigma > 0$) and `distance` "
    "($\\lVert q - k\\rVert > 0$), such that the expectation under the notes' law and $K_\\sigma(q, k)$ differ by 0.2 or "
    "more.",
    draw=lambda generator: {"seed": int(torch.randint(1000, (), generator=generator))},
    reference={"sigma": 2.0, "distance": 2.0},
    properties=(
        Property("Take σ > 0 and a distance above 0.", lambda i, c: c["sigma"] > 0 and c["distance"] > 0),
        Property(
            "For your numbers the two do not differ by 0.2.",
            lambda i, c: c["sigma"] > 0 and c["distance"] > 0 and _law_flaw(c) == "none",
        ),
    ),
    hints=(
        "w.(q - k) is a normal variable. What is its variance under each law?",
        "For a normal variable of variance t the mean of the cosine is exp(-t/2).",
        "The two variances are d²σ² and d²/σ². Choose σ far from 1, and d so that one exponent is small, the other large.",
    ),
    mistakes=(
        Mistake("width one", {"sigma": 1.0, "distance": 1.0},
                "At σ = 1 the two laws are the same, and close to it nearly so. Take another width.",
                lambda i, c: _law_flaw(c) == "width near one"),
        Mistake("the same point", {"sigma": 2.0, "distance": 0.0},
                "At distance 0 the cosine is 1 whatever the law. Move q and k apart.",
                lambda i, c: _law_flaw(c) == "same point"),
        Mistake("too far apart", {"sigma": 2.0, "distance": 9.0},
                "So far apart both numbers are nearly 0. Bring q and k closer.", lambda i, c: _law_flaw(c) == "too far"),
        Mistake("too near", {"sigma": 2.0, "distance": 0.1},
                "So near to each other both numbers are nearly 1. Move q and k apart.",
                lambda i, c: _law_flaw(c) == "too near"),
        Mistake("no width", {"sigma": -2.0, "distance": 2.0}, "A width is above 0.",
                lambda i, c: _law_flaw(c) == "no width"),
    ),
)  # fmt: skip


def needed_features(q, k, error):
    """Return how many positive features give that relative error."""
    squared_length = (q + k).square().sum() / math.sqrt(len(q))
    return (squared_length.exp() - 1) / error**2


def _draw_needed(generator: torch.Generator) -> dict:
    d = int(torch.randint(2, 5, (), generator=generator))
    q, k = (
        (0.8 * torch.randn(d, generator=generator, dtype=torch.float64)).round(decimals=1) for _ in range(2)
    )
    q[0], k[0] = q[0].abs() + 0.5, k[0].abs() + 0.3  # never opposite, never at a right angle for sure
    return {"q": q, "k": k, "error": _uniform(generator, 0.05, 0.5)}


_NEEDED = Exercise(
    id="16.4",
    title="How many features",
    kind="function",
    difficulty=2,
    minutes=8,
    prompt="Write `needed_features(q, k, error)`: how many independent positive features make the root mean square error of "
    "the estimated $\\exp(q^\\top k/\\sqrt D)$ equal to `error` times its exact value. `q` and `k` are float64 vectors with "
    "$D$ entries; return the number without rounding (a tensor without dimensions).",
    draw=_draw_needed,
    reference=needed_features,
    properties=(
        Property("A number of features is positive.", lambda i, n: n > 0),
        Property(
            "With your number the variance of the mean is not the square of the error.",
            lambda i, n: close(
                (math.exp(float((i["q"] + i["k"]).square().sum()) / math.sqrt(len(i["q"]))) - 1) / float(n),
                i["error"] ** 2,
            ),
        ),
    ),
    hints=(
        "The variance of a mean of m independent estimates is that of one, divided by m.",
        "Take the relative variance of one positive feature from (16.8), with the width of softmax attention.",
        "Set variance over m equal to the square of the error.",
    ),
    mistakes=(
        Mistake("error not squared", lambda q, k, e: ((q + k).square().sum() / math.sqrt(len(q))).expm1() / e,
                "You divided by the error. It is the square of the error that falls like 1/m."),
        Mistake("difference instead of sum", lambda q, k, e: ((q - k).square().sum() / math.sqrt(len(q))).expm1() / e**2,
                "You took |q - k|. That governs trigonometric features; positive ones have |q + k|."),
        Mistake("no width", lambda q, k, e: (q + k).square().sum().expm1() / e**2,
                "The squared length is to be divided by σ², which is √D for softmax attention."),
        Mistake("second moment", lambda q, k, e: ((q + k).square().sum() / math.sqrt(len(q))).exp() / e**2,
                "You used the second moment. The variance subtracts the square of the mean, which is 1 here."),
        Mistake("half the exponent", lambda q, k, e: ((q + k).square().sum() / (2 * math.sqrt(len(q)))).expm1() / e**2,
                "Your exponent is half of what it should be: squaring the feature doubles w, and the mean of exp(2 w.s) is "
                "exp(2|s|²), of which the squared mean takes one half away."),
    ),
)  # fmt: skip


def positive_weights(q, keys, frequencies):
    """Return the weights that positive features of width 1 give to the keys, for vectors of any length."""
    key_exponents = keys @ frequencies.mT - keys.square().sum(1, keepdim=True) / 2
    top = key_exponents.amax(0)
    query_exponents = frequencies @ q + top
    weights = (key_exponents - top).exp() @ (query_exponents - query_exponents.amax()).exp()
    return weights / weights.sum()


def _by_logarithms(q: Tensor, keys: Tensor, frequencies: Tensor) -> Tensor:
    """Return the same weights from logarithms of the sums, pair by pair."""
    exponents = keys @ frequencies.mT - keys.square().sum(1, keepdim=True) / 2 + frequencies @ q
    return exponents.logsumexp(1).softmax(0)


def _draw_keys(generator: torch.Generator) -> dict:
    n, m, d = (int(torch.randint(2, 5, (), generator=generator)) for _ in range(3))
    scale = 1.0 if torch.rand((), generator=generator) < 0.5 else 40.0
    q, keys, w = (torch.randn(s, generator=generator, dtype=torch.float64).round(decimals=1)
                  for s in ((d,), (n, d), (m, d)))  # fmt: skip
    return {"q": scale * q, "keys": scale * (keys + 0.05), "frequencies": w}


def _plain_weights(q: Tensor, keys: Tensor, frequencies: Tensor) -> Tensor:
    weights = (keys @ frequencies.mT - keys.square().sum(1, keepdim=True) / 2).exp() @ (frequencies @ q).exp()
    return weights / weights.sum()


def _by_own_top(q: Tensor, keys: Tensor, frequencies: Tensor) -> Tensor:
    exponents = keys @ frequencies.mT - keys.square().sum(1, keepdim=True) / 2
    query_exponents = frequencies @ q
    top = exponents.amax(1, keepdim=True)
    weights = (exponents - top).exp() @ (query_exponents - query_exponents.amax()).exp()
    return weights / weights.sum()


def _with_norm(factor: float) -> Callable:
    """Return the weights with another multiple of |k|^2 in the exponent."""

    def wrong(q, keys, frequencies):
        exponents = keys @ frequencies.mT - factor * keys.square().sum(1, keepdim=True) + frequencies @ q
        return exponents.logsumexp(1).softmax(0)

    return wrong


def _unnormalised(q: Tensor, keys: Tensor, frequencies: Tensor) -> Tensor:
    exponents = keys @ frequencies.mT - keys.square().sum(1, keepdim=True) / 2
    top = exponents.amax(0)
    query_exponents = frequencies @ q + top
    return (exponents - top).exp() @ (query_exponents - query_exponents.amax()).exp()


_STABLE = Exercise(
    id="16.5",
    title="Weights that do not overflow",
    kind="function",
    difficulty=3,
    minutes=15,
    prompt="Write `positive_weights(q, keys, frequencies)`: the attention weights that positive features of width "
    "$\\sigma = 1$ give to the keys. `q` has $d$ entries, `keys` is $n \\times d$, `frequencies` $m \\times d$, in float64; "
    "return $n$ weights that add up to 1. Vectors may be long: exponents reach thousands, where `exp` overflows or gives 0.",
    draw=_draw_keys,
    reference=positive_weights,
    properties=(
        Property("The weights add up to 1.", lambda i, a: abs(float(a.sum()) - 1) < 1e-9),
        Property(
            "Sums of exponentials, taken by their logarithms, give other weights.",
            lambda i, a: close(a, _by_logarithms(**i), rtol=1e-6, atol=1e-9),
        ),
    ),
    hints=(
        "Write the exponents of the keys, an n x m table, and those of the query before any exponential is taken.",
        "For each feature, what is subtracted from the keys may be added to the query.",
        "Subtract each feature's largest key exponent, add it to the query's, then subtract the query's largest.",
    ),
    mistakes=(
        Mistake("not stabilised", _plain_weights,
                "For long vectors your exponentials overflow or all vanish, and 0/0 is left. Take large factors out of "
                "them first, such as cancel in the ratio."),
        Mistake("each key's own maximum", _by_own_top,
                "You subtract each key's own largest exponent. That factor differs from key to key, so it does not cancel "
                "in the ratio: it changes the weights."),
        Mistake("no norm of the keys", _with_norm(0.0),
                "The factor exp(-|k|²/2) is missing. For a query such a factor cancels, for a key it does not."),
        Mistake("norm without the half", _with_norm(1.0),
                "Your factor is exp(-|k|²). The half is missing: positive features have exp(-|k|²/2)."),
        Mistake("not normalised", _unnormalised, "These are the numerators. Divide by their sum."),
    ),
)  # fmt: skip

EXERCISES = {e.id: e for e in (_WIDTH, _ESTIMATE, _LAW, _NEEDED, _STABLE)}

FIGURES = {
    "question": plot_question,
    "laws": plot_laws,
    "negative": plot_negative,
    "variances": plot_variances,
    "errors": plot_errors,
    "explorer": lambda: EstimateExplorer().strip(),
    "training": plot_training,
}
