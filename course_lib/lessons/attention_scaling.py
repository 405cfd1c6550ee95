"""Figures, explorer, predictions and exercises of lesson 13, attention_scaling."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.attention.scaled_dot_product import (
    attention,
    attention_weights,
    entropy,
    qk_norm_attention,
    score_moments,
    softmax_jacobian,
)
from course_lib.teaching.exercise import Exercise, Mistake, Property
from course_lib.teaching.explorer import Explorer, Slider
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.style import BLACK, BLUE, GREEN, RED, describe, new_figure, styled

# The worked example of the notes: one query, four keys with their values.
QUERY = (1.0, 1.0, 2.0)
KEYS = ((1.0, 2.0, 0.0), (0.0, 3.0, 4.0), (5.0, 0.0, 0.0), (0.0, 0.0, 1.0))
VALUES = ((2.0, 0.0, 1.0), (1.0, 4.0, 3.0), (0.0, -1.0, 4.0), (1.0, 0.0, -1.0))

# Experiments


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
    middle = (
        0.6744897501960817 * math.sqrt(2) * spreads
    )  # half of a normal variable lies within 0.674 deviations
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


# Figures


@styled
def plot_question(dims: tuple[int, ...] = (4, 64, 1024), n_keys: int = 12, n_queries: int = 200) -> Figure:
    """Draw the sorted weights, as means over queries, for several dimensions without and with the scale."""
    figure = new_figure(8.4, 3.8)
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(n_queries + n_keys, max(dims), generator=generator, dtype=torch.float64)
    panels = figure.subplots(1, 2, sharey=True)
    tops = {}
    for axes, power, name in zip(panels, (0.0, -0.5), ("softmax(q·k)", "softmax(q·k/√d)"), strict=True):
        for d, marker, color in zip(dims, ("o", "s", "^"), (BLUE, RED, GREEN), strict=True):
            k, q = vectors[:n_keys, :d], vectors[n_keys:, :d]
            weights = attention_weights(q, k, scale=d**power).sort(descending=True).values.mean(0)
            tops[power, d] = float(weights[0])
            axes.plot(
                np.arange(1, n_keys + 1), weights, marker=marker, color=color, markersize=5, label=f"d = {d}"
            )
        axes.set(xlabel="rank of the key", title=name, ylim=(-0.03, 1.05))
        axes.legend(loc="upper right")
        axes.set_ylabel("attention weight")
    shares = "; ".join(f"{tops[0.0, d]:.2f} against {tops[-0.5, d]:.2f} for d = {d}" for d in dims)
    return describe(
        figure,
        f"Sorted weights over {n_keys} random keys with entries of variance 1, as means over {n_queries} random queries. "
        f"The largest weight without and with the factor 1/sqrt(d): {shares}. Without the factor a row turns into a "
        "single choice as d grows; with it the rows look the same for all d.",
    )


@styled
def plot_spread(n_pairs: int = 4000) -> Figure:
    """Draw the measured standard deviation of q.k / sqrt(d) against d for three sigmas, with two predictions."""
    figure = new_figure(7.2, 4.2)
    axes = figure.add_subplot()
    dims = np.array([1, 4, 16, 64, 256])
    generator = torch.Generator().manual_seed(2)
    q, k = torch.randn(2, n_pairs, int(dims[-1]), generator=generator, dtype=torch.float64)
    for sigma, marker, color in ((1.0, "o", BLUE), (2.0, "s", RED), (3.0, "^", GREEN)):
        measured = [float((sigma**2 * (q[:, :d] * k[:, :d]).sum(-1) / d**0.5).std()) for d in dims]
        axes.plot(dims, measured, marker, color=color, markersize=8, label=f"measured, $\\sigma$ = {sigma:g}")
    for i, sigma in enumerate((1.0, 2.0, 3.0)):
        label = ("$\\sigma^2$", "$\\sigma$, as in the notes") if i == 0 else ("_true", "_notes")
        axes.plot(dims, [sigma**2] * len(dims), "-", color=BLACK, linewidth=1.2, label=label[0])
        axes.plot(dims, [sigma] * len(dims), ":", color=BLACK, linewidth=1.6, label=label[1])
    axes.set_xscale("log", base=2)
    axes.set(
        xlabel="dimension d",
        ylabel="standard deviation of $q^\\top k/\\sqrt{d}$",
        ylim=(0, 14),
        title="Dividing by √d removes d and leaves σ²",
    )
    axes.legend(loc="upper left", ncols=2)
    return describe(
        figure,
        f"Standard deviation of q.k / sqrt(d) over {n_pairs} random pairs against d, for entries with standard deviation "
        "1, 2 and 3 and mean 0. The measured points lie on the level lines 1, 4 and 9, the squares; the dotted lines at "
        "1, 2 and 3, which the variance in the notes would give, agree for 1 only.",
    )


@styled
def plot_saturation() -> Figure:
    """Draw the norm of the softmax Jacobian against the scale for eight fixed scores, with its bounds."""
    figure = new_figure(7.2, 4.2)
    axes = figure.add_subplot()
    raw = torch.tensor([1.0, 0.5, 0.4, 0.1, -0.2, -0.6, -1.1, -1.5], dtype=torch.float64)
    scales = torch.logspace(-1, 2, 121, dtype=torch.float64)
    weights = (scales[:, None] * raw).softmax(-1)
    norms = torch.linalg.eigvalsh(softmax_jacobian(weights))[:, -1]
    others = weights.sort(-1).values[:, :-1].sum(-1)  # 1 minus the largest weight, without cancellation
    gap = float(raw[0] - raw[1])
    axes.loglog(scales, norms, color=BLUE, linestyle="-", linewidth=2.4, label="norm of $J$")
    axes.axhline(0.5, color=BLACK, linestyle=":", label="1/2")
    axes.loglog(scales, 2 * others, color=RED, linestyle="--", label="$2(1 - \\alpha_{max})$")
    axes.loglog(
        scales, 14 * torch.exp(-scales * gap), color=GREEN, linestyle="-.", label="$2(n-1)e^{-\\beta\\Delta}$"
    )
    axes.set(
        xlabel="scale $\\beta$",
        ylabel="largest singular value",
        ylim=(1e-10, 30),
        title="Past its peak the derivative is exponentially small",
    )
    axes.legend(loc="lower left")
    return describe(
        figure,
        "The norm of the softmax Jacobian of eight fixed scores against the scale, on logarithmic axes. It starts near "
        f"1/8, reaches {float(norms.max()):.2f} at scale {float(scales[norms.argmax()]):.1f} and then falls exponentially, "
        "below each of three bounds: 1/2, twice the weight that the best key leaves to others, and an exponential in "
        "the scale times the gap of 0.5.",
    )


@styled
def plot_tie() -> Figure:
    """Draw the weight of key 2 against key 3 and its derivative along q = (1, 1, t), for growing scales."""
    figure = new_figure(8.8, 3.8)
    left, right = figure.subplots(1, 2)
    t = torch.linspace(0, 1, 801, dtype=torch.float64)
    for scale, color, style in ((1, BLUE, "-"), (4, RED, "--"), (16, GREEN, "-.")):
        weight = torch.sigmoid(scale * (4 * t - 2))
        left.plot(t, weight, color=color, linestyle=style, label=f"$\\beta$ = {scale}")
        right.plot(
            t, 4 * scale * weight * (1 - weight), color=color, linestyle=style, label=f"$\\beta$ = {scale}"
        )
    left.plot(t, (t > 0.5).double(), color=BLACK, linestyle=":", linewidth=2.2, label="argmax")
    right.plot(t, torch.zeros_like(t), color=BLACK, linestyle=":", linewidth=2.2, label="argmax")
    left.set(xlabel="t in q = (1, 1, t)", ylabel="weight of key 2", title="The weight becomes a step")
    right.set(
        xlabel="t in q = (1, 1, t)",
        ylabel="derivative of the weight by t",
        title="The slope gathers at the tie",
    )
    left.legend(loc="upper left")
    right.legend(loc="upper left")
    return describe(
        figure,
        "Two of the notes' keys, which tie at t = 0.5. Left: the weight of key 2 rises from 0 to 1, more and more steeply "
        "for scales 1, 4 and 16, and as a step for argmax. Right: its derivative is a bump of ever smaller width and "
        "larger height; for argmax it is 0 on both sides of the tie.",
    )


@styled
def plot_mean_and_median() -> Figure:
    """Draw mean and median norm of the two-key Jacobian against the standard deviation of the scores."""
    figure = new_figure(7.2, 4.2)
    axes = figure.add_subplot()
    spreads = torch.logspace(-1, 2, 91, dtype=torch.float64)
    mean, median = two_key_norms(spreads)
    axes.loglog(spreads, mean, color=BLUE, linestyle="-", label="mean over rows")
    axes.loglog(
        spreads,
        1 / (math.sqrt(math.pi) * spreads),
        color=BLACK,
        linestyle=":",
        label="$1/(\\sqrt{\\pi}\\,s)$",
    )
    axes.loglog(spreads, median, color=RED, linestyle="--", label="median row")
    axes.set(
        xlabel="standard deviation s of the scores",
        ylabel="norm of the Jacobian",
        ylim=(1e-8, 3),
        title="Most rows lose their gradient, a few keep it",
    )
    axes.legend(loc="lower left")
    return describe(
        figure,
        "Norm of the softmax Jacobian of two keys against the standard deviation of their scores, on logarithmic axes. "
        "The mean over rows falls along the line 1 over root pi times s; the median row falls exponentially and leaves "
        "the picture near s = 20.",
    )


@styled
def plot_training(table: Mapping[float, Mapping[str, Mapping[float, float]]]) -> Figure:
    """Draw the final loss of the lookup task against Adam's step size, for two sizes of the initial weights."""
    figure = new_figure(8.8, 4.0)
    panels = figure.subplots(1, 2, sharey=True)
    looks = ((RED, "--", "s"), (GREEN, "-.", "^"), (BLUE, "-", "o"))
    for axes, (std, forms) in zip(panels, table.items(), strict=True):
        for (name, losses), (color, style, marker) in zip(forms.items(), looks, strict=True):
            axes.loglog(
                list(losses),
                list(losses.values()),
                color=color,
                linestyle=style,
                marker=marker,
                markersize=5,
                label=name,
            )
        axes.set(
            xlabel="step size of Adam",
            title=f"entries start with $\\sigma$ = {std:g}",
            ylim=(1e-15, 30),
        )
        axes.set_ylabel("loss after 100 steps")
    panels[0].legend(loc="upper left", ncols=3, fontsize=8)
    return describe(
        figure,
        "Loss after 100 steps against Adam's step size, on logarithmic axes, without a scale, with 1/sqrt(d) and with "
        "QK-norm. Entries of standard deviation 1: all three learn at small steps, only QK-norm at large ones too, its last "
        "point below the picture. "
        "Entries of standard deviation 4: without a scale no step size reaches a small loss, with 1/sqrt(d) those around "
        "0.03 do, with QK-norm nearly all do.",
    )


# Explorer


class ScaleExplorer(Explorer):
    """Scores, weights, entropy and gradient for random queries and keys, against dimension, sigma and scale."""

    title = "What the scale does to random scores"
    summary = (
        "Left: shares of the scores of 32 random queries with 32 random keys in bins of width 0.5, the outermost bins "
        "with all that lies further out, and the shares that a normal law of the predicted variance gives. Middle: the "
        "weights of 8 of the queries, a line each; a weight of 1 nearly reaches the next. Right, against the dimension: "
        "the entropy of a row as a share of log 32, and the size of the softmax Jacobian, both as means over the rows, "
        "with dots at the dimension in use."
    )
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "power": Slider(
            label="power in the scale", symbol="a", default=0.5, minimum=0.0, maximum=1.0, step=0.05,
            tooltip="The scale is β = d^-a: 0 is no scale, 0.5 the usual one, 1 that of muP",
        ),
        "log_dim": Slider(
            label="dimension", symbol="log₂ d", default=8, minimum=0, maximum=10, step=1,
            tooltip="d is 2 to this power: 0 is one entry, 10 is 1,024",
        ),
        "std": Slider(
            label="size of the entries", symbol="σ", default=1.0, minimum=0.25, maximum=3.0, step=0.25,
            tooltip="Standard deviation of the entries of queries and keys, whose mean is 0",
        ),
    }  # fmt: skip
    size = (10.4, 3.9)
    n_rows = n_keys = 32
    n_shown = 8

    def __init__(self):
        generator = torch.Generator().manual_seed(3)
        q, k = torch.randn(2, self.n_rows, 1024, generator=generator, dtype=torch.float64)
        self._dims = 2 ** torch.arange(11)
        self._products = torch.stack([q[:, :d] @ k[:, :d].T for d in self._dims.tolist()])
        self._edges = torch.linspace(-8, 8, 33, dtype=torch.float64)
        super().__init__()

    def compute(self, *, power, log_dim, std):
        """Return shares of the scores, weights, and entropy and Jacobian size for every dimension."""
        d = 2**log_dim
        scales = self._dims.double() ** -power
        scores = std**2 * scales[:, None, None] * self._products
        weights = scores.softmax(-1)
        here = scores[log_dim].clamp(-7.99, 7.99).flatten()
        _, variance = score_moments(torch.zeros(d, dtype=torch.float64), std=std)
        predicted = d**-power * math.sqrt(variance)
        below = torch.special.ndtr(self._edges / predicted)
        below[0], below[-1] = 0.0, 1.0  # the outermost bins hold all that lies further out
        return {
            "d": d,
            "std": std,
            "power": power,
            "log_dim": log_dim,
            "shares": (torch.histogram(here, self._edges).hist / here.numel()).numpy(),
            "expected": below.diff().numpy(),
            "weights": weights[log_dim, : self.n_shown].numpy(),
            "entropy": (entropy(weights) / math.log(self.n_keys)).mean(-1).numpy(),
            "jacobian": jacobian_size(weights).mean(-1).numpy(),
            "largest": float(weights[log_dim].amax(-1).mean()),
            "measured": float(scores[log_dim].std()),
            "predicted": predicted,
        }

    def draw(self, figure):
        """Draw the three axes with fixed limits."""
        scores, rows, curves = figure.subplots(1, 3, width_ratios=(1, 1.05, 1))
        scores.set(xlim=(-8, 8), ylim=(0, 0.72), xlabel="score", ylabel="share of the scores", title="Scores")
        (bars,) = scores.plot(
            [], [], color=BLUE, linestyle="-", drawstyle="steps-mid", linewidth=1.6, label="measured"
        )
        (normal,) = scores.plot([], [], ".", color=RED, markersize=6, label="normal, as predicted")
        scores.legend(loc="upper right", fontsize=8)
        lines = [
            rows.plot([], [], color=BLUE, linestyle="-", drawstyle="steps-mid", linewidth=1.3, label="_row")[
                0
            ]
            for _ in range(self.n_shown)
        ]
        rows.set(
            xlim=(0.5, 32.5), ylim=(0.4, 9.2), xlabel="key", ylabel="query", title="Weights, a line a query"
        )
        rows.set_yticks(range(1, self.n_shown + 1))
        curves.set_xscale("log", base=2)
        curves.set(
            xlim=(0.8, 1300),
            ylim=(0, 1.3),
            xlabel="dimension d",
            ylabel="mean over the rows",
            title="Entropy and gradient",
        )
        (spread,) = curves.plot([], [], color=BLUE, linestyle="-", label="entropy / log 32")
        (slope,) = curves.plot([], [], color=RED, linestyle="--", label="size of the Jacobian")
        (dots,) = curves.plot([], [], "o", color=BLACK, markersize=7, label="_here")
        curves.legend(loc="upper right", fontsize=8)
        return {"bars": bars, "normal": normal, "rows": lines, "curves": [spread, slope], "dots": dots}

    def update(self, artists, state):
        """Move the histogram, the image and the curves."""
        centres = ((self._edges[1:] + self._edges[:-1]) / 2).numpy()
        artists["bars"].set_data(centres, state["shares"])
        artists["normal"].set_data(centres, state["expected"])
        for i, (line, row) in enumerate(zip(artists["rows"], state["weights"], strict=True)):
            line.set_data(np.arange(1, self.n_keys + 1), i + 1 + 0.85 * row)
        for line, name in zip(artists["curves"], ("entropy", "jacobian"), strict=True):
            line.set_data(self._dims.numpy(), state[name])
        i = state["log_dim"]
        artists["dots"].set_data([state["d"]] * 2, [state["entropy"][i], state["jacobian"][i]])

    def words(self, state):
        """Say how wide the scores are and what that leaves of entropy and gradient."""
        i, largest = state["log_dim"], state["largest"]
        share = 100 * float(state["entropy"][i])
        if largest > 0.8:
            verdict = "Saturated: most rows choose one key"
        elif share > 97:
            verdict = "Nearly equal weights: the rows hardly look at the scores"
        else:
            verdict = "Between the extremes: rows prefer some keys and still see others"
        law = "; a sum of so few products is far from normal" if state["d"] <= 4 else ""
        beta = state["d"] ** -state["power"]
        return (
            f"{verdict}. With d = {state['d']} and β = d^-{state['power']:g} = {beta:.3g} the scores have standard "
            f"deviation {state['measured']:.3g}, predicted β √d σ² = {state['predicted']:.3g}{law}. On average the "
            f"largest weight of a row is {largest:.2f}, its entropy {share:.0f}% of log 32, and the size of the Jacobian "
            f"{float(state['jacobian'][i]):.3f}."
        )


# Predictions


def divisor_prediction() -> Prediction:
    """Ask what dividing by the root of d leaves when sigma is not 1."""
    return Prediction(
        "13.P1",
        "Queries and keys have $d = 64$ independent entries with mean 0 and standard deviation $\\sigma = 2$. The scores "
        "are divided by $\\sqrt{64} = 8$. What is the standard deviation of a score then?",
        choices={
            "1": "That is what √d gives for σ = 1. Here each product of two entries has variance σ⁴ = 16.",
            "2": "That is σ, from the variance dσ² that the notes print. A product of two entries has variance σ² · σ².",
            "4": "Var(q·k) = dσ⁴, so dividing by √d leaves σ² = 4.",
            "16": "That is the variance, σ⁴ = 16; the standard deviation is its root.",
        },
        answer="4",
        reveal=plot_spread,
    )


def rare_gradient_prediction() -> Prediction:
    """Ask how the mean of the gradient falls with the spread of the scores."""
    return Prediction(
        "13.P2",
        "Two keys have independent normal scores with standard deviation $s$. The norm of the softmax Jacobian in the "
        "*median* row falls exponentially in $s$. From $s = 10$ to $s = 100$, what does its *mean* over many rows do?",
        choices={
            "It falls exponentially as well": "In a row with a clear winner it does. But a share of about 1/s of the "
            "rows is nearly tied, and those keep a norm near 1/2.",
            "It falls by a factor of about 10": "A row keeps its gradient when the two scores are within about 1 of each "
            "other, and the share of such rows is proportional to 1/s.",
            "It stays as it is": "The nearly tied rows keep theirs, but there are ten times fewer of them.",
        },
        answer="It falls by a factor of about 10",
        reveal=plot_mean_and_median,
    )


# Exercises


def _uniform(generator: torch.Generator, low: float, high: float, digits: int = 2) -> float:
    return round(low + (high - low) * float(torch.rand((), generator=generator)), digits)


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64).round(decimals=1)


def _rotation(generator: torch.Generator, n: int) -> Tensor:
    return torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64)).Q


def _has_unit_variance(inputs: Mapping, divisor) -> bool:
    """Whether the scores of all pairs, which have mean 0, have mean square 1 when divided."""
    scores = inputs["queries"] @ inputs["keys"].T / float(divisor)
    return math.isclose(float(scores.square().mean()), 1.0, rel_tol=1e-6)


_DIVISOR = Exercise(
    id="13.1",
    title="The divisor",
    kind="value",
    difficulty=1,
    minutes=3,
    prompt="Queries and keys are independent; their $d = 16$ entries are uncorrelated, with mean 0 and standard deviation "
    "$\\sigma = 3$. By which number must $q^\\top k$ be divided to have variance 1?",
    # Plus and minus the rows of 12 times a rotation: mean 0 and covariance 9 I, exactly.
    draw=lambda generator: {
        name: 12 * torch.cat([rows, -rows])
        for name in ("queries", "keys")
        for rows in [_rotation(generator, 16)]
    },
    reference=36.0,
    properties=(
        Property(
            "Divided by your number, the scores of a set of queries and keys with mean 0 and covariance 9 I do not "
            "have variance 1.",
            _has_unit_variance,
        ),
    ),
    hints=(
        "The variance of a sum of 16 uncorrelated products is 16 times the variance of one of them.",
        "A product of two independent variables with mean 0 has the product of their variances: σ² times σ².",
        "Dividing by s divides the variance by s². So s is the root of dσ⁴.",
    ),
    mistakes=(
        Mistake("root of d alone", 4.0, "That is √d, right for σ = 1 only: each product of entries has variance σ⁴."),
        Mistake("sigma once", 12.0, "That is √d σ, from the variance dσ² that the notes print. A product of two entries "
                "has variance σ² · σ²."),
        Mistake("the variance itself", 1296.0, "That is the variance. Dividing by s divides the variance by s²: take "
                "the root."),
        Mistake("d sigma squared", 144.0, "That is dσ², which the notes print as the variance. It is neither the variance "
                "nor its root."),
    ),
)  # fmt: skip


def score_variance(mean, std):
    """Return the variance of q.k for independent q and k with this mean and covariance std^2 I."""
    return float(len(mean) * std**4 + 2 * std**2 * mean @ mean)


def _variance_over_signs(inputs: Mapping) -> float:
    """Return the variance of q.k where all entries are mean plus or minus std with equal chances: all cases."""
    mean, std = inputs["mean"], inputs["std"]
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * len(mean))
    vectors = mean + std * signs
    return float((vectors @ vectors.T).var(correction=0))


_VARIANCE = Exercise(
    id="13.2",
    title="The variance of a score",
    kind="function",
    difficulty=1,
    minutes=8,
    prompt="Write `score_variance(mean, std)`: the variance of $q^\\top k$ for independent $q$ and $k$, each with mean "
    "$\\mu$ and covariance $\\sigma^2 I$. `mean` is $\\mu$, a float64 tensor of shape `(d,)`; `std` is $\\sigma$. Return "
    "a number.",
    draw=lambda generator: {
        "mean": _normal(generator, int(torch.randint(2, 5, (), generator=generator))),
        "std": _uniform(generator, 0.3, 2.0),
    },
    reference=score_variance,
    properties=(
        Property(
            "It should be the variance over all queries and keys whose entries are μᵢ ± σ.",
            lambda inputs, output: math.isclose(
                float(output), _variance_over_signs(inputs), rel_tol=1e-8, abs_tol=1e-9
            ),
        ),
    ),
    hints=(
        "Write q = μ + σa and k = μ + σb with a and b of mean 0 and covariance I, and multiply out.",
        "Of the four terms one is a constant. The other three are uncorrelated: μ·a, μ·b and a·b.",
        "Var(μ·a) = ‖μ‖² and Var(a·b) = d. What are the factors of σ in front of them?",
    ),
    mistakes=(
        Mistake("the notes' variance", lambda m, s: float(len(m) * s**2),
                "That is dσ², as printed in the notes: right for μ = 0 and σ = 1 only."),
        Mistake("without the mean", lambda m, s: float(len(m) * s**4),
                "That is right for μ = 0. With a mean, σ μ·a and σ μ·b vary too."),
        Mistake("one side only", lambda m, s: float(len(m) * s**4 + s**2 * m @ m),
                "You counted ‖μ‖² once. That is what varies within a row, where q is fixed; over both, q and k each "
                "contribute it."),
        Mistake("second moment", lambda m, s: float(len(m) * s**4 + 2 * s**2 * m @ m + (m @ m) ** 2),
                "That is E(q·k)². The variance needs the square of the mean, ‖μ‖⁴, taken off."),
        Mistake("no cross terms", lambda m, s: float(((m**2 + s**2) ** 2).sum() - (m @ m) ** 2),
                "You took E(q·k)² = Σ E qᵢ² E kᵢ². That leaves out the products of different entries, 2 Σ μᵢ²μⱼ² over "
                "i < j."),
    ),
)  # fmt: skip


def score_gradient(weights, upstream):
    """Return the gradient at the scores, from the weights and the gradient at the weights."""
    return weights * (upstream - weights @ upstream)


def _by_autograd(inputs: Mapping) -> Tensor:
    scores = inputs["weights"].log().requires_grad_()
    (gradient,) = torch.autograd.grad(scores.softmax(-1) @ inputs["upstream"], scores)
    return gradient


def _draw_gradient(generator: torch.Generator) -> dict:
    n = int(torch.randint(2, 5, (), generator=generator))
    return {"weights": _normal(generator, n).softmax(-1), "upstream": _normal(generator, n)}


_GRADIENT = Exercise(
    id="13.3",
    title="Back through the softmax",
    kind="function",
    difficulty=2,
    minutes=8,
    prompt="Write `score_gradient(weights, upstream)`: the gradient of a loss with respect to the scores of one row. "
    "`weights` is $\\alpha = \\mathrm{softmax}(s)$ and `upstream` is $\\partial L/\\partial\\alpha$, float64 tensors of "
    "shape `(n,)`. Return a tensor of that shape, without forming an $n \\times n$ matrix.",
    draw=_draw_gradient,
    reference=score_gradient,
    properties=(
        Property(
            "It should equal the gradient that autograd finds.",
            lambda inputs, output: torch.allclose(output, _by_autograd(inputs), rtol=1e-8, atol=1e-12),
        ),
    ),
    hints=(
        "The Jacobian is symmetric, so the gradient is J times the upstream gradient. Multiply (13.7) out.",
        "The first part, diag(α) g, multiplies entry by entry. The second is α times one number.",
        "That number is α·g, the mean of g under the weights. Every entry is compared with it.",
    ),
    mistakes=(
        Mistake("no competition", lambda p, g: p * g,
                "You left out the second part of the Jacobian: raising one score lowers all other weights."),
        Mistake("diagonal only", lambda p, g: p * (1 - p) * g,
                "That is the diagonal of the Jacobian. The other entries, -αᵢαⱼ, are missing."),
        Mistake("plain mean", lambda p, g: p * (g - g.mean()),
                "You compared with the plain mean of g. It is the mean under the weights, α·g."),
        Mistake("wrong sign", lambda p, g: p * (p @ g - g),
                "The sign is turned: a score whose weight raises the loss has a positive gradient."),
        Mistake("centred only", lambda p, g: g - p @ g,
                "You forgot the factor α in front: a key with weight 0 gets no gradient."),
    ),
)  # fmt: skip


def _tie_scores(c: Mapping) -> Tensor:
    return torch.tensor(KEYS, dtype=torch.float64) @ torch.tensor(
        [float(c["q1"]), float(c["q2"]), float(c["q3"])], dtype=torch.float64
    )


def _winner_can_change(c: Mapping, change: float = 1e-3) -> bool:
    winner = int(_tie_scores(c).argmax())
    moved = [{**c, name: c[name] + sign * change} for name in ("q1", "q2", "q3") for sign in (-1, 1)]
    return any(int(_tie_scores(other).argmax()) != winner for other in moved)


def _margin(c: Mapping) -> float:
    best = _tie_scores(c).sort(descending=True).values
    return float(best[0] - best[1])


def _losers_tie(c: Mapping) -> bool:
    losers = _tie_scores(c).sort(descending=True).values[1:]
    return bool((losers.diff().abs() < 1e-6).any())


_TIE = Exercise(
    id="13.4",
    title="A tiny change that changes the winner",
    kind="flaw",
    difficulty=2,
    minutes=8,
    prompt="The notes say of argmax attention that tiny perturbations of the query do not change the winner. The keys are "
    "$(1,2,0)$, $(0,3,4)$, $(5,0,0)$ and $(0,0,1)$. Give a counterexample: a dictionary with the numbers `q1`, `q2` and "
    "`q3`, a query for which a change of 0.001 in one of its entries makes another key win.",
    draw=lambda generator: {"seed": int(torch.randint(1000, (), generator=generator))},
    reference={"q1": 1.0, "q2": 1.0, "q3": 0.5},
    properties=(
        Property(
            "No change of 0.001 in one entry of your query makes another key win.",
            lambda inputs, c: _winner_can_change(c),
        ),
    ),
    hints=(
        "Where could a tiny change matter? Look for a query for which two scores are equal.",
        "The two equal scores must be the largest ones. Keys 2 and 3 are good candidates.",
        "Keys 2 and 3 tie where 3q₂ + 4q₃ = 5q₁. Choose two entries and solve for the third; check that keys 1 and 4 "
        "score less.",
    ),
    mistakes=(
        Mistake("a clear winner", {"q1": 1.0, "q2": 1.0, "q3": 2.0},
                "Here the best key is well ahead of the next: the notes are right about such a query. Look where the "
                "two best scores are equal.",
                lambda i, c: not _winner_can_change(c) and not _losers_tie(c) and _margin(c) > 0.5),
        Mistake("losers tie", {"q1": 1.0, "q2": 1.0, "q3": 3.0},
                "Two keys do tie here, but another one beats both of them: a tie matters at the top only.",
                lambda i, c: not _winner_can_change(c) and _losers_tie(c)),
        Mistake("not close enough", {"q1": 1.0, "q2": 1.0, "q3": 0.55},
                "The two best scores are near each other, yet a change of 0.001 in one entry moves a score by 0.005 at "
                "most. Bring them closer.",
                lambda i, c: not _winner_can_change(c) and not _losers_tie(c) and _margin(c) <= 0.5),
    ),
)  # fmt: skip


def needed_scale(n_keys, weight):
    """Return the scale at which one key of cosine 1 among others of cosine -1 gets that weight."""
    return 0.5 * math.log((n_keys - 1) * weight / (1 - weight))


def _reaches(inputs: Mapping, scale) -> bool:
    cosines = -torch.ones(inputs["n_keys"], dtype=torch.float64)
    cosines[0] = 1
    return math.isclose(float((float(scale) * cosines).softmax(-1)[0]), inputs["weight"], rel_tol=1e-9)


_NEEDED = Exercise(
    id="13.5",
    title="How large a scale QK-norm needs",
    kind="function",
    difficulty=3,
    minutes=12,
    prompt="With QK-norm the scores are $g\\cos(q, k_j)$. Write `needed_scale(n_keys, weight)`: the smallest $g$ with which "
    "some query can give the weight `weight` to one of `n_keys` keys, however the keys lie. `n_keys` is 2 or more, "
    "`weight` lies between 0.5 and 1; return a number.",
    draw=lambda generator: {
        "n_keys": int(torch.randint(3, 60, (), generator=generator)),
        "weight": _uniform(generator, 0.55, 0.98),
    },
    reference=needed_scale,
    properties=(
        Property(
            "With your scale, one key of cosine 1 among others of cosine -1 should get exactly that weight.",
            _reaches,
        ),
    ),
    hints=(
        "Which cosines help most? The largest possible for the one key, the smallest possible for all others.",
        "The weight is then 1/(1 + (n - 1)e^(-2g)). Set it equal to w and solve for g.",
        "The odds w/(1 - w) equal e^(2g)/(n - 1). Take logarithms.",
    ),
    mistakes=(
        Mistake("cosine zero", lambda n, w: math.log((n - 1) * w / (1 - w)),
                "That lets the other keys have cosine 0. They can have -1, which needs half of your scale."),
        Mistake("counted the key itself", lambda n, w: 0.5 * math.log(n * w / (1 - w)),
                "There are n - 1 other keys, not n."),
        Mistake("odds upside down", lambda n, w: 0.5 * math.log((n - 1) * (1 - w) / w),
                "The odds are turned: a larger weight needs a larger scale."),
        Mistake("weight for odds", lambda n, w: 0.5 * math.log((n - 1) * w),
                "You used w where the odds w/(1 - w) belong: the weights of the others sum to 1 - w."),
        Mistake("logarithm to base 2", lambda n, w: 0.5 * math.log2((n - 1) * w / (1 - w)),
                "That is the logarithm to base 2. The softmax uses e."),
    ),
)  # fmt: skip

EXERCISES = {e.id: e for e in (_DIVISOR, _VARIANCE, _GRADIENT, _TIE, _NEEDED)}

FIGURES = {
    "question": plot_question,
    "spread": plot_spread,
    "saturation": plot_saturation,
    "tie": plot_tie,
    "mean_and_median": plot_mean_and_median,
    "training": lambda: plot_training(training_table()),
    "explorer": lambda: ScaleExplorer().strip(),
}
