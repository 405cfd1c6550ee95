"""Figures, explorer, predictions and exercises of lesson 06, newton_schulz_and_muon."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from course_lib.optimization.muon import Muon
from course_lib.optimization.newton_schulz import (
    CUBIC,
    KELLER,
    Quintic,
    minimax_composition,
    minimax_quintic,
    odd_polynomial,
    orthogonalize,
    polar_express,
)
from course_lib.teaching.exercise import Exercise, Mistake, Property
from course_lib.teaching.explorer import Choice, Explorer, Slider
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.style import (
    BLACK,
    BLUE,
    GREEN,
    LINE_STYLES,
    ORANGE,
    PURPLE,
    RED,
    describe,
    new_figure,
    styled,
)

FAMILIES = ("cubic", "Keller", "Polar Express")
LOOKS = {"cubic": (GREEN, "-."), "Keller": (RED, "--"), "Polar Express": (BLUE, "-")}


def schedule(family: str, steps: int) -> tuple[Quintic, ...]:
    """Return one (a, b, c) for each step of the family of that name."""
    if family == "Polar Express":
        return polar_express(steps) if steps else ()
    return ({"cubic": CUBIC, "Keller": KELLER}[family],) * steps


def compose(values: Tensor, quintics: Sequence[Quintic]) -> Tensor:
    """Return p_T(... p_1(s)) for every singular value s."""
    for quintic in quintics:
        values = odd_polynomial(values, quintic)
    return values


def rms_error(values: Tensor) -> float:
    """Return the root mean square of s^2 - 1, which is ||X X^T - I||_F / sqrt(n)."""
    return float((values.square() - 1).square().mean().sqrt())


def with_singular_values(values: Tensor, rows: int, columns: int, *, seed: int = 0) -> Tensor:
    """Return a float64 matrix with these singular values and random singular vectors."""
    generator = torch.Generator().manual_seed(seed)
    left, right = (
        torch.linalg.qr(torch.randn(n, len(values), generator=generator, dtype=torch.float64))[0]
        for n in (rows, columns)
    )
    return left * values @ right.T


def harmonic(count: int) -> Tensor:
    """Return 1, 1/2, ..., 1/count."""
    return 1 / torch.arange(1, count + 1, dtype=torch.float64)


def count_flops(function: Callable[[Tensor], Tensor], rows: int, columns: int) -> int:
    """Return the operations of `function` on a matrix of that size, as torch counts them; nothing is computed."""
    with FlopCounterMode(display=False) as counter:
        function(torch.empty(rows, columns, device="meta"))
    return counter.get_total_flops()


# Figures


@styled
def plot_question(count: int = 64) -> Figure:
    """Draw a decaying spectrum before and after five steps of three polynomials."""
    figure = new_figure(7.2, 4.0)
    axes = figure.add_subplot()
    ranks, values = np.arange(1, count + 1), harmonic(count)
    values = values / values.norm()
    axes.semilogy(
        ranks, values, color="0.5", linestyle=":", linewidth=2.2, label="gradient, scaled to norm 1"
    )
    said = []
    for family in FAMILIES:
        color, style = LOOKS[family]
        after = compose(values, schedule(family, 5))
        axes.semilogy(ranks, after, color=color, linestyle=style, label=f"five steps, {family}")
        said.append(f"{family} between {after.min():.2f} and {after.max():.2f}")
    axes.axhline(1, color=BLACK, linewidth=1, label="exact $UV^T$")
    axes.set(xlabel="rank of the singular value", ylabel="singular value", ylim=(8e-3, 3))
    axes.set_title("Fifteen matrix products instead of a decomposition")
    axes.legend(loc="lower left", fontsize=8)
    return describe(
        figure,
        f"Singular values 1/k, scaled to Frobenius norm 1, before and after five steps, on a logarithmic axis: "
        f"{', '.join(said)}. The exact orthogonal factor has only ones.",
    )


STARTS = (0.05, 0.5, 1.7, 1.75, 2.0, 2.2)


@styled
def plot_orbits(starts: Sequence[float] = STARTS, *, steps: int = 12) -> Figure:
    """Draw orbits of the cubic from inside and outside its region."""
    figure = new_figure(7.2, 4.2)
    axes = figure.add_subplot()
    colors, markers = (BLUE, GREEN, PURPLE, ORANGE, RED, BLACK), "o^sDvx"
    for start, color, marker, style in zip(starts, colors, markers, LINE_STYLES, strict=True):
        orbit = [torch.tensor(start, dtype=torch.float64)]
        for _ in range(steps):
            orbit.append(odd_polynomial(orbit[-1], CUBIC))
        axes.plot(
            range(steps + 1), torch.stack(orbit), color=color, marker=marker, markersize=4, linestyle=style,
            label=f"$s_0$ = {start:g}",
        )  # fmt: skip
    for level in (-math.sqrt(5), -math.sqrt(3), math.sqrt(3), math.sqrt(5)):
        axes.axhline(level, color="0.6", linewidth=0.8, linestyle="-")
    axes.set(xlabel="step $k$", ylabel="$s_k$", ylim=(-2.5, 3.6), xlim=(-0.3, steps + 0.3))
    axes.set_yticks([-math.sqrt(5), -math.sqrt(3), -1, 0, 1, math.sqrt(3), math.sqrt(5)])
    axes.set_yticklabels(["$-\\sqrt{5}$", "$-\\sqrt{3}$", "-1", "0", "1", "$\\sqrt{3}$", "$\\sqrt{5}$"])
    axes.set_title("The cubic goes to 1 from below $\\sqrt{3}$; from above it may go anywhere")
    axes.legend(loc="upper right", ncols=3, fontsize=8)
    return describe(
        figure,
        "Orbits of the cubic (3 s - s^3) / 2 against the step. From 0.05, 0.5 and 1.7, below the root of 3, they end "
        "at 1, the first only after some ten steps. From 1.75 and from 2 they end at -1, and from 2.2 at 1 again after "
        "two changes of sign.",
    )


@styled
def plot_quintic(lower: float = 0.1) -> Figure:
    """Draw the minimax quintic of [lower, 1] with its band, beside Keller's and the cubic."""
    figure = new_figure(7.2, 4.0)
    axes = figure.add_subplot()
    s = torch.linspace(0, 1.1, 400, dtype=torch.float64)
    best, error = minimax_quintic(lower, 1)
    for coefficients, label, (color, style) in (
        (CUBIC, "cubic", LOOKS["cubic"]), (KELLER, "Keller", LOOKS["Keller"]),
        (best, f"best on [{lower:g}, 1]", LOOKS["Polar Express"]),
    ):  # fmt: skip
        axes.plot(s, odd_polynomial(s, coefficients), color=color, linestyle=style, label=label)
    a, b, c = best
    inner = np.sqrt(np.sort(np.roots([5 * c, 3 * b, a]).real))
    points = torch.tensor([lower, *inner, 1.0], dtype=torch.float64)
    axes.plot(
        points,
        odd_polynomial(points, best),
        "o",
        color=BLUE,
        markersize=7,
        label="error $E$, signs alternate",
    )
    for level in (1 - error, 1 + error):
        axes.axhline(level, color=BLUE, linewidth=0.8, linestyle=":")
    axes.axhline(1, color=BLACK, linewidth=0.8, linestyle="-")
    axes.set(xlabel="singular value before", ylabel="singular value after", ylim=(0, 1.9), xlim=(0, 1.1))
    axes.set_title(f"One step: the best quintic errs by {error:.2f} four times")
    axes.legend(loc="upper right", ncols=2, fontsize=8)
    return describe(
        figure,
        f"One step of three polynomials. The best odd quintic on [{lower:g}, 1] swings between 1 - {error:.2f} and "
        f"1 + {error:.2f} and touches these levels four times in turn, at {', '.join(f'{v:.2f}' for v in points)}. "
        "Keller's quintic is less steep at 0 and falls to 0.70 at 1; the cubic rises slowly to 1.",
    )


@styled
def plot_composition(lower: float = 1e-3, steps: int = 5) -> Figure:
    """Draw the composition of best quintics after each step, on [lower, 1]."""
    figure = new_figure(7.2, 4.2)
    axes = figure.add_subplot()
    start = torch.logspace(math.log10(lower), 0, 1200, dtype=torch.float64)
    quintics, _ = minimax_composition(lower, steps)
    said, values, looks = [], start, {1: "-", 2: "--", 3: "-.", 5: ":"}
    for t, quintic in enumerate(quintics, start=1):
        values = odd_polynomial(values, quintic)
        low, high = float(values.min()), float(values.max())
        said.append(f"[{low:.3f}, {high:.3f}]")
        if t in looks:
            label = f"{t} step{'s' * (t > 1)}: {said[-1]}"
            axes.loglog(start, values, linestyle=looks[t], linewidth=1.3, label=label)
    axes.set(xlabel="singular value before", ylabel="singular value after", ylim=(4e-4, 4))
    axes.set_title("Each quintic is made for the interval that the one before leaves")
    axes.legend(loc="lower right", fontsize=8, title="all values lie in")
    return describe(
        figure,
        f"The composition of the first 1, 2, 3 and 5 of the best quintics on [{lower:g}, 1], on logarithmic axes. The "
        f"values after the {steps} steps fill the intervals {', '.join(said)}, which close in on 1, slowly at first and "
        "then fast.",
    )


def spectra(count: int = 256) -> dict[str, Tensor]:
    """Return the singular values of a Gaussian count x count matrix, and 1, 1/2, ..., 1/count."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(count, count, generator=generator, dtype=torch.float64)
    return {"Gaussian matrix": torch.linalg.svdvals(drawn), "singular values 1/k": harmonic(count)}


CURVES = {
    "cubic": ("cubic", "frobenius", GREEN, "-.", "^"),
    "Keller": ("Keller", "frobenius", RED, "--", "s"),
    "Polar Express, Frobenius norm": ("Polar Express", "frobenius", PURPLE, ":", "D"),
    "Polar Express, Gram norm": ("Polar Express", "gram", BLUE, "-", "o"),
}


def error_curves(values: Tensor, *, steps: int = 10) -> dict[str, list[float]]:
    """Return the error after 1, ..., steps steps of each method, in exact numbers."""
    curves = {}
    for label, (family, norm, *_) in CURVES.items():
        size = values.norm() if norm == "frobenius" else values.square().norm().sqrt()
        curves[label] = [rms_error(compose(values / size, schedule(family, t))) for t in range(1, steps + 1)]
    return curves


@styled
def plot_errors(*, steps: int = 10) -> Figure:
    """Draw the error against the number of steps for the methods, on two spectra."""
    figure = new_figure(9.4, 4.2)
    said = []
    for axes, (name, values) in zip(figure.subplots(1, 2), spectra().items(), strict=True):
        for label, curve in error_curves(values, steps=steps).items():
            *_, color, style, marker = CURVES[label]
            axes.semilogy(
                range(1, steps + 1), np.maximum(curve, 1e-8), color=color, linestyle=style, marker=marker,
                markersize=5, label=label,
            )  # fmt: skip
            last = "less than 1e-8" if curve[-1] < 1e-8 else f"{curve[-1]:.2f}"
            said.append(f"{label}, {name}: {curve[4]:.2f} after 5 and {last} after {steps}")
        axes.set(xlabel="steps", ylabel="error $\\|XX^T - I\\|_F/\\sqrt{n}$", ylim=(1e-8, 3), title=name)
        axes.legend(loc="lower left", fontsize=8)
    return describe(
        figure,
        "The error against the number of steps for two 256 x 256 spectra, on a logarithmic axis (cut off at 1e-8). "
        + "; ".join(said)
        + ".",
    )


def gram_once(X: Tensor, quintics: Sequence[Quintic]) -> Tensor:
    """Return the Gram form without ever computing the Gram matrix anew: for the picture of what goes wrong."""
    gram, applied = X @ X.mT, torch.eye(len(X), dtype=X.dtype)
    eye = applied
    for a, b, c in quintics:
        factor = a * eye + b * gram + c * gram @ gram
        applied, gram = factor @ applied, gram @ factor @ factor
    return applied @ X


def gram_growth(*, rows: int = 128, columns: int = 512) -> dict[str, list[float]]:
    """Return the largest singular value after 0, ..., 5 bfloat16 steps of three forms, from singular values 1/k."""
    values = harmonic(rows)
    X = with_singular_values(values / values.square().norm().sqrt(), rows, columns)
    quintics = polar_express(5, safety=1.05)
    curves = {"plain form": [1.0], "Gram form, once and for all": [1.0], "Gram form, computed anew": [1.0]}
    for t in range(1, 6):
        half = {"coefficients": list(quintics[:t]), "compute_dtype": torch.bfloat16}
        results = (
            orthogonalize(X, t, form="plain", **half),
            gram_once(X.bfloat16(), quintics[:t]).double(),
            orthogonalize(X, t, form="gram", **half),
        )
        for curve, result in zip(curves.values(), results, strict=True):
            curve.append(float(torch.linalg.matrix_norm(result, ord=2)))
    return curves


@styled
def plot_gram() -> Figure:
    """Draw the largest singular value against the step for the three forms in bfloat16."""
    figure = new_figure(7.2, 4.0)
    axes = figure.add_subplot()
    looks = ((BLUE, "-", "o"), (RED, "--", "s"), (GREEN, "-.", "^"))
    for (label, curve), (color, style, marker) in zip(gram_growth().items(), looks, strict=True):
        axes.semilogy(range(6), curve, color=color, linestyle=style, marker=marker, label=label)
    axes.axhline(1, color=BLACK, linewidth=0.8, linestyle="-")
    axes.set(xlabel="steps", ylabel="largest singular value", ylim=(0.3, 1e10), xlim=(-0.1, 5.1))
    axes.set_title("A rounding error in the Gram matrix grows by $a^2$ a step")
    axes.legend(loc="upper left", fontsize=8)
    return describe(
        figure,
        "The largest singular value of a 128 x 512 matrix with singular values 1/k after each of five bfloat16 steps, on "
        "a logarithmic axis. The plain form and the Gram form that computes its Gram matrix anew stay between 1 and 2; "
        "the Gram form that computes it only once leaves them after three steps and exceeds a million after five.",
    )


# A memory of facts: the training run of the lesson

FACTS, RUN_STEPS = 64, 20
OPTIMIZERS: dict[str, Callable[[list[Tensor], float], torch.optim.Optimizer]] = {
    "gradient descent": lambda p, lr: torch.optim.SGD(p, lr=lr),
    "with momentum": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9),
    "Adam": lambda p, lr: torch.optim.Adam(p, lr=lr, betas=(0.9, 0.95)),
    "Muon": lambda p, lr: Muon(p, lr=lr, weight_decay=0.0),
}
RATES = {
    "gradient descent": (2.0, 4.0, 8.0, 64.0),
    "with momentum": (1.0, 2.0, 4.0, 8.0),
    "Adam": (0.01, 0.03, 0.06, 0.1),
    "Muon": (0.05, 0.1, 0.2, 0.3),
}


def frequencies(*, skewed: bool) -> Tensor:
    """Return how often each of the 64 facts is seen: in proportion to k^-1.5, or all alike."""
    seen = torch.arange(1, FACTS + 1) ** -1.5 if skewed else torch.ones(FACTS)
    return seen / seen.sum()


def misses(name: str, lr: float, seen: Tensor, *, steps: int = RUN_STEPS) -> Tensor:
    """Train W to map 64 orthonormal keys to 64 orthonormal values; return ||W x_k - v_k||^2 for every fact.

    The loss is 1/2 sum_k f_k ||W x_k - v_k||^2 with frequencies f; the rate falls linearly to 0.
    """
    generator = torch.Generator().manual_seed(0)
    keys, values = (torch.linalg.qr(torch.randn(FACTS, FACTS, generator=generator))[0] for _ in range(2))
    W = torch.zeros(FACTS, FACTS, requires_grad=True)
    optimizer = OPTIMIZERS[name]([W], lr)
    for t in range(steps):
        optimizer.param_groups[0]["lr"] = lr * (1 - t / steps)
        loss = 0.5 * (seen * (W @ keys - values).square().sum(0)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (W.detach() @ keys - values).square().sum(0)


def best_misses(name: str, seen: Tensor) -> Tensor:
    """Return the misses at that of the optimiser's four rates whose final loss is lowest."""
    runs = [misses(name, lr, seen) for lr in RATES[name]]
    losses = torch.stack([(seen * run).sum() for run in runs]).nan_to_num(nan=math.inf)
    return runs[int(losses.argmin())]


@styled
def plot_memory() -> Figure:
    """Draw the miss of every fact after the run, for each optimiser at its best rate."""
    figure = new_figure(7.2, 4.0)
    axes = figure.add_subplot()
    ranks, seen = np.arange(1, FACTS + 1), frequencies(skewed=True)
    looks = (("0.5", ":", "o"), (ORANGE, "-.", "^"), (RED, "--", "s"), (BLUE, "-", "D"))
    for name, (color, style, marker) in zip(OPTIMIZERS, looks, strict=True):
        found = best_misses(name, seen)
        axes.plot(
            ranks, found, color=color, linestyle=style, marker=marker, markersize=3.5, markevery=4, label=name
        )
    axes.axhline(0.5, color=BLACK, linewidth=0.8, linestyle="-")
    axes.set(
        xlabel="fact $k$, seen in proportion to $k^{-1.5}$", ylabel="$\\|Wx_k - v_k\\|^2$", ylim=(-0.05, 1.55)
    )
    axes.set_title(f"What is known after {RUN_STEPS} steps")
    axes.legend(loc="upper left", ncols=2, fontsize=8)
    return describe(
        figure,
        f"How far each of {FACTS} facts is missed after {RUN_STEPS} steps, against its rank by frequency, for each "
        "optimiser at the best of four rates. Gradient descent, with or without momentum, and Adam miss rare facts "
        "more than frequent ones, up to 0.7 and more of the largest possible; Muon misses all alike and little.",
    )


# Explorer


class SingularValueExplorer(Explorer):
    """Singular values through the steps of a chosen polynomial."""

    title = "Singular values on their way to 1"
    summary = (
        "Left: what the chosen number of steps makes of every singular value in [0.0001, 1], on a logarithmic axis; "
        "the dotted line marks the smallest one. Right: seven singular values, spaced evenly on a logarithmic axis "
        "from the smallest to 1, after each step."
    )
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "smallest": Slider(
            label="smallest value", symbol="log10 s", default=-2.0, minimum=-4.0, maximum=-0.5,
            step=0.1, tooltip="As a power of ten; the largest singular value is 1",
        ),
        "steps": Slider(
            label="steps", symbol="T", default=5, minimum=0, maximum=12, step=1,
            tooltip="How many times a polynomial is applied",
        ),
        "family": Choice(
            label="polynomial", default="Polar Express", options=FAMILIES,
            tooltip="The cubic and Keller's quintic repeat one polynomial; Polar Express has one for each step",
        ),
    }  # fmt: skip
    size = (9.4, 4.2)

    def __init__(self):
        self._grid = torch.logspace(-4, 0, 500, dtype=torch.float64)
        super().__init__()

    def compute(self, *, smallest, steps, family):
        """Return the composed polynomial, seven orbits, and the range and error of 300 values."""
        quintics = schedule(family, steps)
        values = torch.logspace(smallest, 0, 300, dtype=torch.float64)
        orbits = [torch.logspace(smallest, 0, 7, dtype=torch.float64)]
        for quintic in quintics:
            orbits.append(odd_polynomial(orbits[-1], quintic))
        after = compose(values, quintics)
        return {
            "curve": compose(self._grid, quintics).numpy(),
            "orbits": torch.stack(orbits, dim=1).numpy(),
            "smallest": 10**smallest,
            "reached": float(after[0]),
            "low": float(after.min()),
            "high": float(after.max()),
            "error": rms_error(after),
            "steps": steps,
            "family": family,
        }

    def draw(self, figure):
        """Draw both axes with fixed limits."""
        left, right = figure.subplots(1, 2)
        left.set_xscale("log")
        left.set(
            xlim=(1e-4, 1), ylim=(0, 2.1), xlabel="singular value before", ylabel="singular value after",
            title="After all steps",
        )  # fmt: skip
        left.axhline(1, color=BLACK, linewidth=0.8, linestyle="-")
        (curve,) = left.plot([], [], color=BLUE, linestyle="-", label="all steps together")
        (mark,) = left.plot([], [], color=RED, linestyle=":", linewidth=1.6, label="smallest")
        left.legend(loc="upper left", fontsize=8)
        right.set(xlim=(0, 12), ylim=(0, 2.1), xlabel="step", ylabel="singular value", title="Step by step")
        right.axhline(1, color=BLACK, linewidth=0.8, linestyle="-")
        orbits = [
            right.plot([], [], color=color, linestyle=style, marker=marker, markersize=3.5, linewidth=width,
                       label=label)[0]
            for color, style, marker, width, label in (
                (RED, "-", "s", 2.0, "smallest"), *(("0.55", "-", ".", 1.0, f"_{i}") for i in range(5)),
                (BLUE, "--", "o", 2.0, "largest"),
            )
        ]  # fmt: skip
        right.legend(loc="upper right", fontsize=8, ncols=2)
        return {"curve": curve, "mark": mark, "orbits": orbits}

    def update(self, artists, state):
        """Move curve, mark and orbits."""
        artists["curve"].set_data(self._grid.numpy(), state["curve"])
        artists["mark"].set_data([state["smallest"]] * 2, [0, 2.1])
        for line, orbit in zip(artists["orbits"], state["orbits"], strict=True):
            line.set_data(np.arange(len(orbit)), orbit)

    def words(self, state):
        """Say where the singular values ended."""
        steps, family = state["steps"], state["family"]
        if steps == 0:
            return f"No step yet, polynomial {family}: the singular values reach from {state['smallest']:.2g} to 1."
        times = f"After {steps} step{'s' * (steps > 1)} of {family}"
        smallest = f"the smallest, {state['smallest']:.2g}, has become {state['reached']:.3g}"
        if max(1 - state["low"], state["high"] - 1) < 0.005:
            ending = "all lie within 0.005 of 1"
        else:
            ending = f"all lie between {state['low']:.3g} and {state['high']:.3g}"
        error = f"{state['error']:.2g}" if state["error"] > 1e-9 else "below 1e-9"
        return f"{times} {smallest}; {ending}. The error, the root mean square of s² - 1, is {error}."


# Predictions


def orbit_prediction() -> Prediction:
    """Ask where the cubic takes a singular value of 2."""
    return Prediction(
        "06.P1",
        "The cubic $p(s) = \\frac12(3s - s^3)$ is repeated from $s_0 = 2$, for a gradient that somebody forgot to "
        "normalise. Where does it end?",
        choices={
            "At 1": "That holds from everywhere below √3. But p(2) = (6 - 8)/2 = -1, and p(-1) = -1.",
            "At -1": "p(2) = (6 - 8)/2 = -1 at once, and -1 is a fixed point: the step would go uphill in that "
            "direction, at full length.",
            "It grows without bound": "That happens above √5 only. Between √3 and √5 the sign changes and the size "
            "falls below √3 sooner or later.",
        },
        answer="At -1",
        reveal=plot_orbits,
    )


def gram_prediction() -> Prediction:
    """Ask what bfloat16 does to an iteration on the Gram matrix alone."""
    return Prediction(
        "06.P2",
        "A 128 x 512 matrix has the singular values $1, 1/2, \\dots, 1/128$. Its Gram matrix is computed once, in "
        "bfloat16 (8 significant bits), and the five steps of Polar Express are taken on it. What becomes of the "
        "largest singular value?",
        choices={
            "It stays near 1, as in the plain form": "The plain form computes a new Gram matrix at every step, so its "
            "errors stay small. Here the first error is kept and amplified.",
            "It is off by a few per cent": "The rounding error starts that small. But what it takes for a small "
            "eigenvalue of the Gram matrix is multiplied by up to a² = 67 in the first step alone.",
            "It grows beyond 1,000": "An eigenvalue below the rounding error may come out negative. A step multiplies it by "
            "about a² and makes the next factor larger still: it runs away.",
        },
        answer="It grows beyond 1,000",
        reveal=plot_gram,
    )


# Exercises


_FLOPS_ROWS, _FLOPS_COLUMNS = 3072, 768


def _counted(operations: float) -> bool:
    W_first = lambda W: 1.5 * W - 0.5 * W @ (W.mT @ W)  # noqa: E731
    return abs(operations - count_flops(W_first, _FLOPS_ROWS, _FLOPS_COLUMNS)) < 0.5


_COST = Exercise(
    id="06.1",
    title="What a step costs",
    kind="value",
    difficulty=1,
    minutes=3,
    prompt="A $3072 \\times 768$ matrix $W$ takes one step of the cubic, $\\frac12(3W - \\dots)$. A product of a "
    "$p \\times m$ and an $m \\times n$ matrix counts $2pmn$ operations; sums of matrices are not counted. How many "
    "operations does the step take at least, if you may choose the side on which the Gram matrix is formed?",
    draw=lambda generator: {"seed": int(torch.randint(10**6, (), generator=generator))},
    reference=4 * 768**2 * 3072,
    properties=(Property("torch counts another number of operations.", lambda i, n: _counted(float(n))),),
    hints=(
        "There are two products: the Gram matrix, and the Gram matrix times W.",
        "The Gram matrix on one side has 3072 rows, on the other side 768.",
        "Take the smaller one. Each of the two products then costs twice the square of the shorter side times the "
        "longer one.",
    ),
    mistakes=(
        Mistake("the larger Gram matrix", 4 * 3072**2 * 768, "You formed WWᵀ, which has 3072 rows. WᵀW has 768, and the "
                "step is four times cheaper."),
        Mistake("one product", 2 * 768**2 * 3072, "That is one product. Forming the Gram matrix and multiplying by it "
                "are two, of equal cost."),
        Mistake("as the notes count", 4 * 3072 * 768, "That is the notes' count: twice the number of entries for each "
                "product. Every entry of the result is itself a sum of many products."),
        Mistake("square of the Gram matrix", 4 * 768**3, "You counted products of two 768 x 768 matrices. One factor is "
                "W itself, with 3072 rows."),
    ),
)  # fmt: skip


def cubic_orthogonalize(matrix, steps):
    """Divide by the Frobenius norm, then take `steps` steps of the cubic."""
    X = matrix / matrix.norm()
    for _ in range(steps):
        X = 1.5 * X - 0.5 * X @ X.T @ X
    return X


def _cubic_variant(
    start: Callable[[Tensor], Tensor], step: Callable[[Tensor], Tensor], extra: int = 0
) -> Callable:
    def variant(matrix: Tensor, steps: int) -> Tensor:
        X = start(matrix)
        for _ in range(steps + extra):
            X = step(X)
        return X

    return variant


def _frobenius(matrix: Tensor) -> Tensor:
    return matrix / matrix.norm()


def _cubic(X: Tensor) -> Tensor:
    return 1.5 * X - 0.5 * X @ X.T @ X


def _draw_matrix(generator: torch.Generator) -> dict:
    rows, columns = (int(torch.randint(2, 5, (), generator=generator)) for _ in range(2))
    matrix = torch.randn(rows, columns, generator=generator, dtype=torch.float64).round(decimals=1)
    matrix[0, 0] += 3  # never the zero matrix
    return {"matrix": matrix, "steps": int(torch.randint(1, 5, (), generator=generator))}


def _moved_values_only(inputs: Mapping, found: Tensor) -> bool:
    left, values, right = torch.linalg.svd(inputs["matrix"], full_matrices=False)
    after = compose(values / values.norm(), [CUBIC] * inputs["steps"])
    return torch.allclose(found, left * after @ right, atol=1e-8)


_CUBIC = Exercise(
    id="06.2",
    title="Newton-Schulz in four lines",
    kind="function",
    difficulty=1,
    minutes=8,
    prompt="Write `cubic_orthogonalize(matrix, steps)`: divide by the Frobenius norm, then apply "
    "$X \\leftarrow \\frac12(3X - XX^\\top X)$ `steps` times. `matrix` is a float64 matrix of any shape, not zero; return "
    "a matrix of that shape.",
    draw=_draw_matrix,
    reference=cubic_orthogonalize,
    properties=(
        Property(
            "Each singular value s of the normalised matrix should become p(...p(s)), with the singular vectors kept.",
            _moved_values_only,
        ),
    ),
    hints=(
        "The Frobenius norm is the root of the sum of all squared entries: `matrix.norm()`.",
        "In the loop, X Xᵀ X has the shape of X, whatever its shape.",
        "Three halves of X, minus one half of that product; return X after the loop.",
    ),
    mistakes=(
        Mistake("not normalised", _cubic_variant(lambda m: m, _cubic), "You did not normalise. Singular values above √3 "
                "do not go to 1: divide by the Frobenius norm first."),
        Mistake("normalised by the largest entry", _cubic_variant(lambda m: m / m.abs().max(), _cubic), "You divided by "
                "the largest entry, which can be smaller than the largest singular value."),
        Mistake("normalised by the spectral norm",
                _cubic_variant(lambda m: m / torch.linalg.matrix_norm(m, ord=2), _cubic),
                "You divided by the largest singular value. That works, but it is not asked for, and finding it is "
                "what the iteration is meant to avoid: the Frobenius norm is a bound that costs nothing."),
        Mistake("the half left out", _cubic_variant(_frobenius, lambda X: 3 * X - X @ X.T @ X), "The factor 1/2 is "
                "missing: with 3s - s³ the value 1 goes to 2."),
        Mistake("one step too many", _cubic_variant(_frobenius, _cubic, extra=1), "You took one step more than asked."),
        Mistake("a plus sign", _cubic_variant(_frobenius, lambda X: 1.5 * X + 0.5 * X @ X.T @ X), "You added XXᵀX. It "
                "is subtracted: the cubic term holds large values back."),
    ),
)  # fmt: skip


def _after_many(s: float) -> float:
    """The cubic repeated 200 times; infinity once it has left the interval of length sqrt(5) for good."""
    for _ in range(200):
        if not abs(s) < 3:
            return math.inf
        s = (3 * s - s * s * s) / 2
    return s


def _escapes(s: float) -> bool:
    return not abs(_after_many(s) - 1) < 0.1


_REGION = Exercise(
    id="06.3",
    title="Not every matrix",
    kind="flaw",
    difficulty=2,
    minutes=6,
    prompt="The notes say that the cubic, repeated on a gradient $G = U\\Sigma V^\\top$, gives $UV^\\top$; they do not "
    "normalise $G$. Give a counterexample: a singular value $s_0 > 0$ (a number) that 200 repetitions of "
    "$s \\leftarrow \\frac12(3s - s^3)$ do not bring within 0.1 of 1.",
    draw=lambda generator: {"seed": int(torch.randint(10**6, (), generator=generator))},
    reference=2.0,
    properties=(
        Property("A singular value that has a direction in $UV^\\top$ is above 0.", lambda i, s: float(s) > 0),
        Property("From your number the cubic arrives at 1.", lambda i, s: _escapes(float(s))),
    ),
    hints=(
        "Where is p(s) = 0? Beyond that point the sign changes.",
        "A value that lands on -1 stays there, since p(-1) = -1.",
        "Solve p(s) = -1, or take a number so large that the cube outweighs everything.",
    ),
    mistakes=(
        Mistake("the fixed point", 1.0, "1 is where the cubic stays: a matrix with that singular value is already "
                "orthogonal.", lambda i, s: abs(float(s) - 1) < 1e-9),
        Mistake("inside the region", 0.5, "Your number lies between 0 and √3, where the cubic always arrives at 1.",
                lambda i, s: 0 < float(s) < math.sqrt(3) - 1e-6 and abs(float(s) - 1) >= 1e-9),
        Mistake("zero", 0.0, "0 stays 0, but then UVᵀ (the factor that keeps zero directions at zero) has 0 there as "
                "well. Take a number above 0.", lambda i, s: float(s) == 0),
        Mistake("negative", -2.0, "Singular values are never negative: the sign belongs to the singular vectors.",
                lambda i, s: float(s) < 0),
        Mistake("comes back", 2.2, "Your number is outside the region, but this one comes back: it changes its sign an "
                "even number of times on the way and arrives at 1.",
                lambda i, s: float(s) >= math.sqrt(3) and not _escapes(float(s))),
    ),
)  # fmt: skip


def best_cubic(lower):
    """Return (a, b) of the odd cubic a s + b s^3 that is closest to 1 on [lower, 1]."""
    total = 1 + lower + lower**2
    middle = math.sqrt(total / 3)
    size = 2 / (lower + lower**2 + 2 / 3 * total * middle)
    return torch.tensor([size * total, -size], dtype=torch.float64)


def _cubic_error(lower: float, pair: Tensor) -> float:
    s = torch.linspace(lower, 1, 2001, dtype=torch.float64)
    return float((odd_polynomial(s, (float(pair[0]), float(pair[1]), 0.0)) - 1).abs().max())


def _interpolating(lower: float) -> Tensor:
    total = 1 + lower + lower**2
    return torch.tensor([total, -1.0], dtype=torch.float64) / (lower + lower**2)


def _never_above_one(lower: float) -> Tensor:
    total = 1 + lower + lower**2
    return torch.tensor([total, -1.0], dtype=torch.float64) / (2 / 3 * total * math.sqrt(total / 3))


def _equal_at_ends_of_step(lower: float) -> Tensor:
    """1 - E at the lower end and 1 + E at 1, with the smallest E that has no extremum inside: p'(1) = 0."""
    b = -1 / (1.5 * lower - 0.5 * lower**3 + 1) * 1.0
    return torch.tensor([-3 * b, b], dtype=torch.float64)


_BEST = Exercise(
    id="06.4",
    title="The best cubic",
    kind="function",
    difficulty=3,
    minutes=20,
    prompt="Write `best_cubic(lower)`: the pair $(a, b)$, as a float64 tensor of two entries, for which "
    "$p(s) = as + bs^3$ is closest to 1 on $[l, 1]$, in the sense that the largest $|p(s) - 1|$ there is smallest. "
    "`lower` is $l$, between 0 and 1. As for the quintic, the error of the best one is reached with alternating signs, "
    "here at three points: $l$, the maximum of $p$, and 1.",
    draw=lambda generator: {"lower": round(0.05 + 0.8 * float(torch.rand((), generator=generator)), 2)},
    reference=best_cubic,
    properties=(
        Property(
            "Another cubic is closer to 1 on the interval.",
            lambda i, pair: _cubic_error(i["lower"], pair)
            <= _cubic_error(i["lower"], best_cubic(i["lower"])) * (1 + 1e-6),
        ),
    ),
    hints=(
        "p(l) = p(1), since both are 1 - E. That gives a as a multiple of -b.",
        "p'(m) = 0 gives the place m of the maximum, and there p(m) = 2am/3.",
        "What is left is the size: p(1) + p(m) = 2, because one is 1 - E and the other 1 + E.",
    ),
    mistakes=(
        Mistake("Newton-Schulz", lambda lower: torch.tensor([1.5, -0.5], dtype=torch.float64),
                "That is the cubic of Newton-Schulz, the limit of the best ones as l goes to 1. For a smaller l a steeper "
                "one is better."),
        Mistake("right at both ends", _interpolating, "You made p(l) = p(1) = 1. Then the whole error sits at the maximum "
                "in between: lower the polynomial until both sides err alike."),
        Mistake("never above 1", _never_above_one, "Your maximum is 1, so that all the error lies below. Allowed to "
                "rise above 1 by as much as it stays below, the polynomial errs half as much."),
        Mistake("maximum at 1", _equal_at_ends_of_step, "Your polynomial rises up to s = 1. A steeper one, with its "
                "maximum inside the interval, has a third point to err at, and errs less."),
    ),
)  # fmt: skip

EXERCISES = {e.id: e for e in (_COST, _CUBIC, _REGION, _BEST)}

# Medians of `make bench newton_schulz` on a 2-core x86-64 machine without GPU, torch 2.13, one thread: time by that of a
# singular value decomposition in float32 for three shapes, then ||XX^T - I||_F / sqrt(n) at 1024 x 1024 for two spectra.
MEASURED = {
    "singular value decomposition, float32": (1, 1, 1, 6e-7, 6e-7),
    "torch.optim.Muon's, bfloat16": (0.43, 0.42, 0.59, 0.35, 0.58),
    "Polar Express, 5 steps, bfloat16": (0.47, 0.42, 0.39, 0.18, 0.18),
    "Keller, 5 steps, float32": (0.75, 0.94, 0.69, 0.35, 0.58),
    "Polar Express, 5 steps, float32": (0.74, 0.94, 0.69, 0.18, 0.18),
    "cubic, 5 steps, float32": (0.54, 0.67, 0.56, 0.59, 0.99),
    "Polar Express and flat quintics to 1e-5": (None, 2.2, None, 6e-7, None),
    "cubic to 1e-5, float32": (None, 3.8, None, 6e-6, None),
}
_COLUMNS = ("256 x 256", "1024 x 1024", "4096 x 1024", "error, Gaussian", "error, $1/k$")


def _cell(value: float | int | None, *, is_time: bool) -> tuple[str, str]:
    """Return text and colour of a cell: blue where a method is faster than the decomposition, orange where slower."""
    if value is None:
        return "", "white"
    faster_or_slower = "#d4e6f4" if value < 0.95 else "#fbe3c8" if value > 1.05 else "white"
    return f"{value:.2g}", faster_or_slower if is_time else "white"


@styled
def plot_table() -> Figure:
    """Draw the measured times and errors as a table."""
    figure = new_figure(9.2, 3.6)
    axes = figure.add_subplot()
    axes.axis("off")
    cells = [[_cell(v, is_time=i < 3) for i, v in enumerate(row)] for row in MEASURED.values()]
    table = axes.table(
        cellText=[[text for text, _ in row] for row in cells],
        cellColours=[[colour for _, colour in row] for row in cells],
        rowLabels=list(MEASURED),
        colLabels=_COLUMNS,
        cellLoc="center",
        loc="center",
    )
    table.auto_set_font_size(False)
    table.set_fontsize(9.5)
    table.scale(1, 1.45)
    axes.set_title("Time, as a multiple of the singular value decomposition's, and error")
    rows = "; ".join(
        f"{name}: " + ", ".join(f"{v:.2g}" if v is not None else "not measured" for v in row)
        for name, row in MEASURED.items()
    )
    return describe(
        figure,
        "A table of methods. Columns: time relative to a singular value decomposition in float32 for 256 x 256, "
        "1024 x 1024 and 4096 x 1024 matrices, and the error at 1024 x 1024 on a Gaussian matrix and on singular values "
        f"1/k. {rows}.",
    )


FIGURES = {
    "question": plot_question,
    "orbits": plot_orbits,
    "quintic": plot_quintic,
    "composition": plot_composition,
    "errors": plot_errors,
    "gram": plot_gram,
    "table": plot_table,
    "memory": plot_memory,
    "explorer": lambda: SingularValueExplorer().strip(),
}
