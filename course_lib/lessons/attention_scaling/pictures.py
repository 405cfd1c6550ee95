"""Figures, explorer and predictions of lesson 13, attention_scaling."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from course_lib.attention.scaled_dot_product import (
    attention,
    attention_weights,
    entropy,
    qk_norm_attention,
    score_moments,
    softmax_jacobian,
)
from course_lib.lessons.attention_scaling.contents import lesson
from course_lib.teaching import Explorer, Slider, lines, panels
from course_lib.teaching.style import BLACK, BLUE, GREEN, RED


def jacobian_size(weights: Tensor) -> Tensor:
    """Return the root of the sum of squares of diag(p) - p p^T for each row p, without forming the matrix."""
    square = weights.square().sum(-1)
    # Rounding can leave the sum just below 0 where one weight is nearly 1.
    return (square - 2 * weights.pow(3).sum(-1) + square**2).clamp(min=0).sqrt()


def two_key_norms(spreads: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and median of the softmax Jacobian's norm for two keys with N(0, s^2) scores, for each s.

    The difference x of the scores is N(0, 2 s^2), and the norm is 2 p (1 - p) = 1 / (2 cosh^2(x / 2)). The mean is
    the integral over x by the trapezoidal rule; the median is the norm at the median of |x|.
    """
    x = torch.linspace(-80, 80, 16001, dtype=torch.float64)
    norm = 0.5 / torch.cosh(x / 2).square()
    deviation = math.sqrt(2) * spreads[:, None]
    density = torch.exp(-0.5 * (x / deviation).square()) / (deviation * math.sqrt(2 * math.pi))
    # Half of a normal variable lies within 0.674 deviations.
    middle = 0.6744897501960817 * math.sqrt(2) * spreads
    return torch.trapezoid(norm * density, x), 0.5 / torch.cosh(middle / 2).square()


FORMS = {
    "no scale": lambda q, k, v, g: attention(q, k, v, scale=1.0),
    "$1/\\sqrt{d}$": lambda q, k, v, g: attention(q, k, v),
    "QK-norm": lambda q, k, v, g: qk_norm_attention(q, k, v, scale=g),
}


def train_lookup(
    form: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
    *,
    step_size: float,
    std: float = 1.0,
    steps: int = 100,
    head_dim: int = 64,
) -> list[float]:
    """Train W_Q and W_K to find one item among 16 by its content; return the loss of every step.

    An item has 32 normal entries and a value of 8; the query is the content of the first item, the target its value,
    the loss the mean squared error. The weights start normal, such that queries and keys have entries of standard
    deviation `std`. `form(q, k, v, g)` is the attention in use, g a learned scale that starts at 8; Adam trains all.
    """
    generator = torch.Generator().manual_seed(0)
    normal = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float32)  # noqa: E731
    w_q, w_k = ((std / math.sqrt(32) * normal(32, head_dim)).requires_grad_() for _ in range(2))
    log_scale = torch.tensor(math.log(8.0), dtype=torch.float32, requires_grad=True)
    optimizer = torch.optim.Adam([w_q, w_k, log_scale], lr=step_size, fused=True)
    losses = []
    for _ in range(steps):
        items, v = normal(32, 16, 32), normal(32, 16, 8)
        output = form(items[:, :1] @ w_q, items @ w_k, v, log_scale.exp())
        loss = (output - v[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def training_table(
    forms: Mapping[str, Callable] = FORMS,
    *,
    stds: tuple[float, ...] = (1.0, 4.0),
    step_sizes: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1, 0.3),
) -> dict[float, dict[str, dict[float, float]]]:
    """Return the mean loss of the last 20 steps for each size of the entries, form and step size."""
    return {
        std: {
            name: {eta: sum(train_lookup(form, step_size=eta, std=std)[-20:]) / 20 for eta in step_sizes}
            for name, form in forms.items()
        }
        for std in stds
    }


@lesson.figure(
    ["softmax(q·k)", "softmax(q·k/√d)"],
    "rank of the key",
    "attention weight",
    size=(8.4, 3.8),
    grid=(1, 2),
    legend="upper right",
    subplots={"sharey": True},
    ylim=(-0.03, 1.05),
)
def plot_question(left, right, dims: tuple[int, ...] = (4, 64, 1024), n_keys: int = 12, n_queries: int = 200):
    """Draw the sorted weights, as means over queries, for several dimensions without and with the scale."""
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(n_queries + n_keys, max(dims), generator=generator, dtype=torch.float64)
    k, q = vectors[:n_keys], vectors[n_keys:]
    tops = []
    for axes, power in ((left, 0.0), (right, -0.5)):
        rows = {d: attention_weights(q[:, :d], k[:, :d], scale=d**power).sort(descending=True) for d in dims}
        means = {f"d = {d}": row.values.mean(0) for d, row in rows.items()}
        lines(axes, np.arange(1, n_keys + 1), means, marker="o", markersize=5)
        tops.append([float(mean[0]) for mean in means.values()])
    shares = "; ".join(f"{a:.2f} against {b:.2f} for d = {d}" for d, a, b in zip(dims, *tops, strict=True))
    return (
        f"Sorted weights over {n_keys} random keys with entries of variance 1, as means over {n_queries} random queries. "
        f"The largest weight without and with the factor 1/sqrt(d): {shares}. Without the factor a row turns into a "
        "single choice as d grows; with it the rows look the same for all d."
    )


@lesson.figure(
    "Dividing by √d removes d and leaves σ²",
    "dimension d",
    "standard deviation of $q^\\top k/\\sqrt{d}$",
    legend={"loc": "upper left", "ncols": 2},
    ylim=(0, 14),
)
def plot_spread(axes, n_pairs: int = 4000):
    """Draw the measured standard deviation of q.k / sqrt(d) against d for three sigmas, with two predictions."""
    axes.set_xscale("log", base=2)
    dims = np.array([1, 4, 16, 64, 256])
    q, k = torch.randn(2, n_pairs, 256, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for sigma, marker, color in ((1, "o", BLUE), (2, "s", RED), (3, "^", GREEN)):
        measured = [float((sigma**2 * (q[:, :d] * k[:, :d]).sum(-1) / d**0.5).std()) for d in dims]
        axes.plot(dims, measured, marker, color=color, markersize=8, label=f"measured, $\\sigma$ = {sigma}")
    for sigma in (1, 2, 3):
        true, printed = ("$\\sigma^2$", "$\\sigma$, as in the notes") if sigma == 1 else ("_true", "_notes")
        axes.plot(dims, [sigma**2] * len(dims), "-", color=BLACK, linewidth=1.2, label=true)
        axes.plot(dims, [sigma] * len(dims), ":", color=BLACK, linewidth=1.6, label=printed)
    return (
        f"Standard deviation of q.k / sqrt(d) over {n_pairs} random pairs against d, for entries with standard deviation "
        "1, 2 and 3 and mean 0. The measured points lie on the level lines 1, 4 and 9, the squares; the dotted lines at "
        "1, 2 and 3, which the variance in the notes would give, agree for 1 only."
    )


@lesson.figure(
    "Past its peak the derivative is exponentially small",
    "scale $\\beta$",
    "largest singular value",
    legend="lower left",
    xscale="log",
    yscale="log",
    ylim=(1e-10, 30),
)
def plot_saturation(axes):
    """Draw the norm of the softmax Jacobian against the scale for eight fixed scores, with its bounds."""
    raw = torch.tensor([1.0, 0.5, 0.4, 0.1, -0.2, -0.6, -1.1, -1.5], dtype=torch.float64)
    scales = torch.logspace(-1, 2, 121, dtype=torch.float64)
    weights = (scales[:, None] * raw).softmax(-1)
    norms = torch.linalg.eigvalsh(softmax_jacobian(weights))[:, -1]
    others = weights.sort(-1).values[:, :-1].sum(-1)  # 1 minus the largest weight, without cancellation
    curves = {
        "norm of $J$": norms,
        "$2(1 - \\alpha_{max})$": 2 * others,
        "$2(n-1)e^{-\\beta\\Delta}$": 14 * torch.exp(-scales * (raw[0] - raw[1])),
    }
    lines(axes, scales, curves)
    axes.axhline(0.5, color=BLACK, linestyle=":", label="1/2")
    return (
        "The norm of the softmax Jacobian of eight fixed scores against the scale, on logarithmic axes. It starts near "
        f"1/8, reaches {float(norms.max()):.2f} at scale {float(scales[norms.argmax()]):.1f} and then falls exponentially, "
        "below each of three bounds: 1/2, twice the weight that the best key leaves to others, and an exponential in "
        "the scale times the gap of 0.5."
    )


@lesson.figure(
    ["The weight becomes a step", "The slope gathers at the tie"],
    "t in q = (1, 1, t)",
    ["weight of key 2", "derivative of the weight by t"],
    size=(8.8, 3.8),
    grid=(1, 2),
    legend="upper left",
)
def plot_tie(left, right):
    """Draw the weight of key 2 against key 3 and its derivative along q = (1, 1, t), for growing scales."""
    t = torch.linspace(0, 1, 801, dtype=torch.float64)
    weights = {scale: torch.sigmoid(scale * (4 * t - 2)) for scale in (1, 4, 16)}
    slopes = {scale: 4 * scale * weight * (1 - weight) for scale, weight in weights.items()}
    for axes, curves, argmax in ((left, weights, (t > 0.5).double()), (right, slopes, 0 * t)):
        lines(axes, t, {**{f"$\\beta$ = {scale}": curve for scale, curve in curves.items()}, "argmax": argmax})
    return (
        "Two of the notes' keys, which tie at t = 0.5. Left: the weight of key 2 rises from 0 to 1, more and more steeply "
        "for scales 1, 4 and 16, and as a step for argmax. Right: its derivative is a bump of ever smaller width and "
        "larger height; for argmax it is 0 on both sides of the tie."
    )


@lesson.figure(
    "Most rows lose their gradient, a few keep it",
    "standard deviation s of the scores",
    "norm of the Jacobian",
    legend="lower left",
    xscale="log",
    yscale="log",
    ylim=(1e-8, 3),
)
def plot_mean_and_median(axes):
    """Draw mean and median norm of the two-key Jacobian against the standard deviation of the scores."""
    spreads = torch.logspace(-1, 2, 91, dtype=torch.float64)
    mean, median = two_key_norms(spreads)
    lines(axes, spreads, {"mean over rows": mean, "median row": median})
    axes.plot(spreads, 1 / (math.sqrt(math.pi) * spreads), ":", color=BLACK, label="$1/(\\sqrt{\\pi}\\,s)$")
    return (
        "Norm of the softmax Jacobian of two keys against the standard deviation of their scores, on logarithmic axes. "
        "The mean over rows falls along the line 1 over root pi times s; the median row falls exponentially and leaves "
        "the picture near s = 20."
    )


@lesson.figure(
    "A matching pair outgrows the square root",
    "dimension d",
    "$q^\\top k/\\sqrt{d}$",
    legend="upper left",
    ylim=(-4, 36),
)
def plot_matched(axes, n_pairs: int = 2000):
    """Draw mean and spread of q.k / sqrt(d) against d, for independent pairs and for k = q."""
    axes.set_xscale("log", base=2)
    dims = [1, 4, 16, 64, 256, 1024]
    q, k = torch.randn(2, n_pairs, 1024, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    means = []
    for other, marker, color, label in ((k, "s", BLUE, "independent"), (q, "o", RED, "matching, k = q")):
        scores = torch.stack([(q[:, :d] * other[:, :d]).sum(1) / d**0.5 for d in dims])
        means.append(scores.mean(1))
        axes.errorbar(dims, means[-1], scores.std(1), marker=marker, color=color, linestyle="", capsize=4, label=label)
    axes.plot(dims, np.sqrt(dims), "--", color=BLACK, linewidth=1.2, label="$\\sqrt{d}$")
    return (
        f"Mean and standard deviation of q.k / sqrt(d) over {n_pairs} random pairs with entries of variance 1, against d. "
        f"Independent pairs stay around 0 with a standard deviation of 1; for k = q the mean follows sqrt(d), from "
        f"{float(means[1][0]):.1f} for d = 1 to {float(means[1][-1]):.1f} for d = 1024, with a spread that stays small."
    )


@lesson.figure(
    "The wider the density, the less of it is under the bump",
    "difference $x$ of the two scores",
    "norm of $J$, or density of $x$",
    legend="upper right",
    xlim=(-20, 20),
    ylim=(0, 0.55),
)
def plot_rare(axes, spreads: tuple[float, ...] = (1, 4, 16)):
    """Draw the two-key Jacobian's norm against the difference of the scores, with densities of that difference."""
    x = torch.linspace(-20, 20, 801, dtype=torch.float64)
    norm = 0.5 / torch.cosh(x / 2).square()
    axes.fill_between(x, norm, color="0.85", label="norm of $J$")
    laws = {s: torch.exp(-((x / (2 * s)) ** 2)) / (2 * s * math.sqrt(math.pi)) for s in spreads}
    lines(axes, x, {f"density, s = {s:g}": law for s, law in laws.items()})
    shares = ", ".join(f"{math.erf(1 / s):.0%} for s = {s:g}" for s in spreads)
    return (
        "A bump, the norm of the softmax Jacobian of two keys against the difference x of their scores, 0.5 high and a few "
        f"units wide; over it the normal densities of x, which get lower and wider as s grows. Share of the rows with x "
        f"between -2 and 2: {shares}."
    )


@lesson.figure(
    ["How much one key can get", "How even a row stays at least"],
    "learned scale g",
    ["largest possible weight", "bound on the entropy / log n"],
    grid=(1, 2),
    legend=["lower right", "upper right"],
    ylim=(-0.03, 1.05),
)
def plot_qk_norm(left, right, sizes: tuple[int, ...] = (4, 64, 1024, 16384)):
    """Draw the bounds of QK-norm on the largest weight and on the entropy against g, for several numbers of keys."""
    g = torch.linspace(0, 9, 181, dtype=torch.float64)
    others = {f"n = {n:,}": (n - 1) * torch.exp(-2 * g) for n in sizes}
    lines(left, g, {label: 1 / (1 + rest) for label, rest in others.items()})
    lines(right, g, {
        label: torch.log1p(rest) / math.log(n) for n, (label, rest) in zip(sizes, others.items(), strict=True)
    })  # fmt: skip
    halves = [0.5 * math.log(n - 1) for n in sizes]
    left.plot(halves, [0.5] * len(sizes), "o", color=BLACK, markersize=6)
    said = ", ".join(f"{half:.1f} for n = {n}" for n, half in zip(sizes, halves, strict=True))
    return (
        "Left, the largest weight that one of n keys can get under QK-norm, against the learned scale g: curves that rise "
        f"from 1/n to 1; dots where they reach one half, at g = {said}. Right, the least entropy that the bound allows, "
        "as a share of log n: curves that fall from 1 to 0, later for more keys."
    )


@lesson.figure(
    None,
    "step size of Adam",
    "loss after 100 steps",
    size=(8.8, 4.2),
    grid=(1, 2),
    legend=["upper left", None],
    subplots={"sharey": True},
    xscale="log",
    yscale="log",
    ylim=(6e-4, 12),
    example=training_table,
)
def plot_training(left, right, table: Mapping[float, Mapping[str, Mapping[float, float]]], floor: float = 1e-3):
    """Draw the final loss of the lookup task against Adam's step size, for two sizes of the initial weights."""
    for axes, (std, forms) in zip((left, right), table.items(), strict=True):
        curves = {
            name: (list(losses), [max(loss, floor) for loss in losses.values()]) for name, losses in forms.items()
        }
        lines(axes, None, curves, marker="o", markersize=5)
        axes.axhline(0.1, color=BLACK, linewidth=0.8, linestyle=":")
        axes.annotate("below: learned", (1, 0.1), (-4, -12), xycoords=axes.get_yaxis_transform(),
                      textcoords="offset points", fontsize=9, ha="right")  # fmt: skip
        axes.set_title(f"entries start with $\\sigma$ = {std:g}")
    return (
        "Loss after 100 steps against Adam's step size, on logarithmic axes, without a scale, with 1/sqrt(d) and with "
        f"QK-norm; losses below {floor:g} are drawn there. Entries that start with standard deviation 1: all three learn at "
        "small steps, only QK-norm at large ones too. With standard deviation 4: without a scale no step size reaches a "
        "small loss, with 1/sqrt(d) those around 0.03 do, with QK-norm nearly all do."
    )


@lesson.explorer
class ScaleExplorer(Explorer):
    """Scores, weights, entropy and gradient for random queries and keys, against dimension, sigma and scale."""

    title = "What the scale does to random scores"
    summary = (
        "Left: shares of the scores of 32 random queries with 32 random keys in bins of width 0.5, the outermost bins "
        "with all that lies further out, and the shares that a normal law of the predicted variance gives. Middle: the "
        "weights of 8 of the queries, one row for each; a weight of 1 nearly reaches the next row. Right, against the "
        "dimension: the entropy of a row as a share of log 32, and the size of the softmax Jacobian, the root of the sum "
        "of its squared entries, both as means over the rows, with dots at the dimension in use."
    )
    power = Slider(
        "power in the scale",
        "a",
        "The scale is β = d^-a: 0 is no scale, 0.5 the usual one, 1 that of muP",
        0.5,
        0.0,
        1.0,
        0.05,
    )
    log_dim = Slider("dimension", "log₂ d", "d is 2 to this power: 0 is one entry, 10 is 1,024", 8, 0, 10, 1)
    std = Slider(
        "size of the entries",
        "σ",
        "Standard deviation of the entries of queries and keys, whose mean is 0",
        1.0,
        0.25,
        3.0,
        0.25,
    )
    together = ("power", "log_dim")
    size = (10.4, 3.9)
    n_rows = n_keys = 32
    n_shown = 8
    dims = 2 ** torch.arange(11)
    edges = torch.linspace(-8, 8, 33, dtype=torch.float64)
    layout = panels(
        ["Scores", "Weights, one row for each query", "Entropy and gradient"],
        ["score", "key", "dimension d"],
        ["share of the scores", "query", "mean over the rows"],
        grid=(1, 3),
        legend={"loc": "upper right", "fontsize": 8},
        subplots={"width_ratios": (1, 1.05, 1)},
        xlim=[(-8, 8), (0.5, 32.5), (0.8, 1300)],
        ylim=[(0, 0.72), (0.4, 9.2), (0, 1.3)],
        yticks=[None, range(1, n_shown + 1), None],
    )

    def __init__(self):
        generator = torch.Generator().manual_seed(3)
        q, k = torch.randn(2, self.n_rows, 1024, generator=generator, dtype=torch.float64)
        self.products = torch.stack([q[:, :d] @ k[:, :d].T for d in self.dims.tolist()])
        super().__init__()

    def compute(self, *, power, log_dim, std):
        """Return shares of the scores, weights, and entropy and Jacobian size for every dimension."""
        d = 2**log_dim
        scores = std**2 * (self.dims.double() ** -power)[:, None, None] * self.products
        weights = scores.softmax(-1)
        here = scores[log_dim].clamp(-7.99, 7.99).flatten()
        _, variance = score_moments(torch.zeros(d, dtype=torch.float64), std=std)
        predicted = d**-power * math.sqrt(variance)
        below = torch.special.ndtr(self.edges / predicted)
        below[0], below[-1] = 0.0, 1.0  # the outermost bins hold all that lies further out
        shown = weights[log_dim, : self.n_shown].numpy()
        share = (entropy(weights) / math.log(self.n_keys)).mean(-1).numpy()
        jacobian = jacobian_size(weights).mean(-1).numpy()
        return {
            "shares": (torch.histogram(here, self.edges).hist / here.numel()).numpy(),
            "expected": below.diff().numpy(),
            "rows": [i + 0.85 * row for i, row in enumerate(shown, start=1)],
            "entropy": share,
            "jacobian": jacobian,
            "dots": ([d, d], [share[log_dim], jacobian[log_dim]]),
            "weights": shown,
            "largest": float(weights[log_dim].amax(-1).mean()),
            "measured": float(scores[log_dim].std()),
            "predicted": predicted,
            "d": d,
            "power": power,
        }

    def draw(self, scores, rows, curves):
        """Draw level lines, to be moved."""
        curves.set_xscale("log", base=2)
        centres, keys = (self.edges[1:] + self.edges[:-1]) / 2, np.arange(1, self.n_keys + 1)
        steps = {"color": BLUE, "linestyle": "-", "drawstyle": "steps-mid"}
        (shares,) = scores.plot(centres, 0 * centres, **steps, linewidth=1.6, label="measured")
        (expected,) = scores.plot(centres, 0 * centres, ".", color=RED, label="normal, as predicted")
        level = torch.zeros(len(self.dims))
        spread, slope = lines(curves, self.dims, {"entropy / log 32": level, "size of the Jacobian": level})
        return {
            "shares": shares,
            "expected": expected,
            "rows": [rows.plot(keys, 0 * keys, **steps, linewidth=1.3)[0] for _ in range(self.n_shown)],
            "entropy": spread,
            "jacobian": slope,
            "dots": curves.plot([], [], "o", color=BLACK, markersize=7)[0],
        }

    def words(self, state):
        """Say how wide the scores are and what that leaves of entropy and gradient."""
        d, largest = state["d"], state["largest"]
        spread, slope = state["dots"][1]
        if largest > 0.8:
            verdict = "Saturated: most rows choose one key"
        elif spread > 0.97:
            verdict = "Nearly equal weights: the rows hardly look at the scores"
        else:
            verdict = "Between the extremes: rows prefer some keys and still see others"
        law = "; a sum of so few products is far from normal" if d <= 4 else ""
        return (
            f"{verdict}. With d = {d} and β = d^-{state['power']:g} = {d ** -state['power']:.3g} the scores have standard "
            f"deviation {state['measured']:.3g}, predicted β √d σ² = {state['predicted']:.3g}{law}. On average the "
            f"largest weight of a row is {largest:.2f}, its entropy {spread:.0%} of log 32, and the size of the Jacobian "
            f"{slope:.3f}."
        )


divisor_prediction = lesson.prediction(
    "13.P1",
    "Queries and keys have $d = 64$ independent entries with mean 0 and standard deviation $\\sigma = 2$. The scores "
    "are divided by $\\sqrt{64} = 8$. What is the standard deviation of a score then?",
    {
        "1": "That is what √d gives for σ = 1. Here each product of two entries has variance σ⁴ = 16.",
        "2": "That is σ, from the variance dσ² that the notes print. A product of two entries has variance σ² · σ².",
        "4": "Var(q·k) = dσ⁴, so dividing by √d leaves σ² = 4.",
        "16": "That is the variance, σ⁴ = 16; the standard deviation is its root.",
    },
    answer="4",
    reveal=plot_spread,
)

rare_gradient_prediction = lesson.prediction(
    "13.P2",
    "Two keys have independent normal scores with standard deviation $s$. The norm of the softmax Jacobian in the "
    "*median* row falls exponentially in $s$. From $s = 10$ to $s = 100$, what does its *mean* over many rows do?",
    {
        "It falls exponentially as well": "In a row with a clear winner it does. But a share of about 1/s of the "
        "rows is nearly tied, and those keep a norm near 1/2.",
        "It falls by a factor of about 10": "A row keeps its gradient when the two scores are within about 1 of each "
        "other, and the share of such rows is proportional to 1/s.",
        "It stays as it is": "The nearly tied rows keep theirs, but there are ten times fewer of them.",
    },
    answer="It falls by a factor of about 10",
    reveal=plot_mean_and_median,
)

FIGURES = lesson.figures
