"""Experiments, figures, explorer and predictions of lesson 06, newton_schulz_and_muon."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from course_lib.figures import BLACK, BLUE
from course_lib.lessons.newton_schulz_and_muon.contents import lesson
from course_lib.measured import figures
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
from course_lib.teaching import Choice, Explorer, Slider, lines, markdown_table, panels

FAMILIES = ("cubic", "Keller", "Polar Express")
LOOKED_AT = FAMILIES[::-1]  # the best first: it gets the first colour of every figure


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


@lesson.figure(
    "Five steps of matrix products instead of a decomposition",
    "rank of the singular value",
    "singular value",
    size=(6.0, 3.6),
    yscale="log",
    ylim=(8e-4, 3),
    legend={"loc": "lower left", "fontsize": 8},
)
def plot_question(axes, count: int = 64):
    """Draw a decaying spectrum before and after five steps of three polynomials."""
    ranks, values = np.arange(1, count + 1), harmonic(count)
    values = values / values.norm()
    axes.plot(ranks, values, color="0.5", linestyle=":", linewidth=2.2, label="gradient, scaled to norm 1")
    after = {family: compose(values, schedule(family, 5)) for family in LOOKED_AT}
    lines(axes, ranks, {f"five steps, {family}": found for family, found in after.items()})
    axes.axhline(1, color=BLACK, linewidth=1, linestyle="-", label="exact $UV^T$")
    said = [f"{family} between {after[family].min():.2f} and {after[family].max():.2f}" for family in FAMILIES]
    return (
        f"Singular values 1/k, scaled to Frobenius norm 1, before and after five steps, on a logarithmic axis: "
        f"{', '.join(said)}. The exact orthogonal factor has only ones."
    )


STARTS = (0.05, 0.5, 1.7, 1.75, 2.0, 2.2)
_LEVELS = {
    "$-\\sqrt{5}$": -math.sqrt(5),
    "$-\\sqrt{3}$": -math.sqrt(3),
    "-1": -1,
    "0": 0,
    "1": 1,
    "$\\sqrt{3}$": math.sqrt(3),
    "$\\sqrt{5}$": math.sqrt(5),
}


@lesson.figure(
    "The cubic goes to 1 from below $\\sqrt{3}$; from above it may go anywhere",
    "step $k$",
    "$s_k$",
    size=(6.4, 3.8),
    ylim=(-2.5, 3.6),
    yticks=[list(_LEVELS.values())],
    yticklabels=[list(_LEVELS)],
    legend={"loc": "upper right", "ncols": 3, "fontsize": 8},
)
def plot_orbits(axes, starts: Sequence[float] = STARTS, *, steps: int = 12):
    """Draw orbits of the cubic from inside and outside its region."""
    for place, (start, marker) in enumerate(zip(starts, "o^sDvx", strict=True)):
        orbit = [torch.tensor(start, dtype=torch.float64)]
        for _ in range(steps):
            orbit.append(odd_polynomial(orbit[-1], CUBIC))
        lines(axes, None, {f"$s_0$ = {start:g}": torch.stack(orbit)}, first=place, marker=marker, markersize=4)
    for level in (-math.sqrt(5), -math.sqrt(3), math.sqrt(3), math.sqrt(5)):
        axes.axhline(level, color="0.6", linewidth=0.8, linestyle="-")
    axes.set_xlim(-0.3, steps + 0.3)
    return (
        "Orbits of the cubic (3 s - s^3) / 2 against the step. From 0.05, 0.5 and 1.7, below the root of 3, they end "
        "at 1, the first only after some ten steps. From 1.75 and from 2 they end at -1, and from 2.2 at 1 again after "
        "two changes of sign."
    )


@lesson.figure(
    [f"{steps} steps" for steps in (0, 2, 4, 8)],
    size=(8.4, 2.4),
    grid=(1, 4),
    bare=True,
    xlim=(-1.15, 1.15),
    ylim=(-1.15, 1.15),
    aspect="equal",
)
def plot_ellipses(*all_axes):
    """Draw what a 2 x 2 matrix makes of the unit circle, after some steps of the cubic."""
    turn = torch.tensor([[0.8, -0.6], [0.6, 0.8]], dtype=torch.float64)
    X = turn @ torch.tensor([0.99, 0.14], dtype=torch.float64).diag()
    angle = torch.linspace(0, 2 * math.pi, 361, dtype=torch.float64)
    circle, said = torch.stack([angle.cos(), angle.sin()]), []
    for axes, steps in zip(all_axes, (0, 2, 4, 8), strict=True):
        now = X
        for _ in range(steps):
            now = 1.5 * now - 0.5 * now @ now.T @ now
        axes.plot(*circle, color="0.6", linestyle=":", linewidth=1.2)
        axes.plot(*(now @ circle), color=BLUE, linestyle="-", linewidth=1.8)
        for column in now.T:
            axes.plot([0, column[0]], [0, column[1]], color=BLACK, linestyle="-", linewidth=1.4)
        said.append(f"{torch.linalg.svdvals(now)[1]:.2f} after {steps}")
    return (
        "The ellipse that a 2 x 2 matrix makes of the circle of inputs of length 1 (dotted: a circle), with its half axes, "
        "after 0, 2, 4 and 8 steps of the cubic. The axes keep their directions. The long one stays near 1, the short one "
        f"grows: {', '.join(said)} steps. The ellipse becomes a circle."
    )


@lesson.figure(
    None,
    "singular value before",
    "singular value after",
    size=(6.0, 3.6),
    ylim=(0, 1.9),
    xlim=(0, 1.1),
    legend={"loc": "upper right", "ncols": 2, "fontsize": 8},
)
def plot_quintic(axes, lower: float = 0.1):
    """Draw the minimax quintic of [lower, 1] with its band, beside Keller's and the cubic."""
    s = torch.linspace(0, 1.1, 400, dtype=torch.float64)
    best, error = minimax_quintic(lower, 1)
    compared = {f"best on [{lower:g}, 1]": best, "Keller": KELLER, "cubic": CUBIC}
    lines(axes, s, {label: odd_polynomial(s, coefficients) for label, coefficients in compared.items()})
    a, b, c = best
    inner = np.sqrt(np.sort(np.roots([5 * c, 3 * b, a]).real))
    points = torch.tensor([lower, *inner, 1.0], dtype=torch.float64)
    touched = odd_polynomial(points, best)
    axes.plot(points, touched, "o", color=BLUE, markersize=7, label="error $E$, signs alternate")
    for level in (1 - error, 1 + error):
        axes.axhline(level, color=BLUE, linewidth=0.8, linestyle=":")
    axes.axhline(1, color=BLACK, linewidth=0.8, linestyle="-")
    axes.set_title(f"One step: the best quintic errs by {error:.2f} four times")
    return (
        f"One step of three polynomials. The best odd quintic on [{lower:g}, 1] swings between 1 - {error:.2f} and "
        f"1 + {error:.2f} and touches these levels four times in turn, at {', '.join(f'{v:.2f}' for v in points)}. "
        "Keller's quintic is less steep at 0 and falls to 0.70 at 1; the cubic rises slowly to 1."
    )


@lesson.figure(
    ["Each quintic, on the interval that it is made for", "The intervals close in on 1"],
    ["singular value before the step", "steps taken"],
    ["singular value after the step", "interval of the singular values"],
    size=(7.8, 3.4),
    grid=(1, 2),
    xscale=["log", "linear"],
    yscale=["linear", "log"],
    ylim=[(0, 2.9), (5e-4, 4)],
    legend={"loc": "upper center", "ncols": 3, "fontsize": 8},
)
def plot_composition(left, right, lower: float = 1e-3, steps: int = 5):
    """Draw each of the best quintics on the interval that the ones before leave, and these intervals."""
    quintics, _ = minimax_composition(lower, steps)
    ends = [(lower, 1.0)]
    for place, quintic in enumerate(quintics):
        s = torch.logspace(math.log10(ends[-1][0]), math.log10(ends[-1][1]), 1200, dtype=torch.float64)
        after = odd_polynomial(s, quintic)
        lines(left, s, {f"step {place + 1}": after}, first=place, linewidth=1.6)
        ends.append((float(after.min()), float(after.max())))
    for taken, (low, high) in enumerate(ends):
        right.plot([taken, taken], [low, high], color=BLUE, linestyle="-", linewidth=7, solid_capstyle="butt")
        right.text(taken + 0.12, low, f"{low:.3f}", fontsize=8, va="top")
    right.axhline(1, color=BLACK, linewidth=0.8, linestyle="-")
    right.set_xlim(-0.4, steps + 0.8)
    return (
        f"Left: the {steps} best quintics on [{lower:g}, 1], each on the interval that the ones before leave, which gets "
        f"shorter from step to step. Right: these intervals, {', '.join(f'[{a:.3f}, {b:.3f}]' for a, b in ends)}; they "
        "close in on 1, slowly at first and then fast."
    )


def spectra(count: int = 256) -> dict[str, Tensor]:
    """Return the singular values of a Gaussian count x count matrix, and 1, 1/2, ..., 1/count."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(count, count, generator=generator, dtype=torch.float64)
    return {"Gaussian matrix": torch.linalg.svdvals(drawn), "singular values 1/k": harmonic(count)}


CURVES = {
    "Polar Express, Gram norm": ("Polar Express", "gram"),
    "Keller": ("Keller", "frobenius"),
    "cubic": ("cubic", "frobenius"),
    "Polar Express, Frobenius norm": ("Polar Express", "frobenius"),
}


def error_curves(values: Tensor, *, steps: int = 10) -> dict[str, list[float]]:
    """Return the error after 1, ..., steps steps of each method, in exact numbers."""
    curves = {}
    for label, (family, norm) in CURVES.items():
        size = values.norm() if norm == "frobenius" else values.square().norm().sqrt()
        curves[label] = [rms_error(compose(values / size, schedule(family, t))) for t in range(1, steps + 1)]
    return curves


@lesson.figure(
    list(spectra(2)),
    "steps",
    "error $\\|XX^T - I\\|_F/\\sqrt{n}$",
    size=(8.2, 3.4),
    grid=(1, 2),
    yscale="log",
    ylim=(1e-8, 3),
    legend=[{"loc": "lower left", "fontsize": 7}, None],
)
def plot_errors(*axes, steps: int = 10):
    """Draw the error against the number of steps for the methods, on two spectra."""
    said = []
    for one, (name, values) in zip(axes, spectra().items(), strict=True):
        curves = error_curves(values, steps=steps)
        for place, (marker, (label, curve)) in enumerate(zip("os^D", curves.items(), strict=True)):
            drawn = {label: np.maximum(curve, 1e-8)}
            lines(one, range(1, steps + 1), drawn, first=place, marker=marker, markersize=5)
        ends = {label: "below 1e-8" if curve[-1] < 1e-8 else f"{curve[-1]:.2f}" for label, curve in curves.items()}
        said.append(
            f"{name}: "
            + ", ".join(f"{label.split(',')[0]} {curves[label][4]:.2f} and {ends[label]}" for label in list(CURVES)[:3])
        )
    return (
        "The error against the number of steps for two 256 x 256 spectra, on a logarithmic axis (cut off at 1e-8). "
        f"After 5 and {steps} steps: {'; '.join(said)}. On the Gaussian matrix Polar Express is later with the Frobenius "
        "norm than with the Gram norm."
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


@lesson.figure(
    "A rounding error in the Gram matrix grows by $a^2$ a step",
    "steps",
    "largest singular value",
    yscale="log",
    ylim=(0.3, 1e10),
    xlim=(-0.1, 5.1),
    legend={"loc": "upper left", "fontsize": 8},
)
def plot_gram(axes):
    """Draw the largest singular value against the step for the three forms in bfloat16."""
    for place, (marker, (label, curve)) in enumerate(zip("os^", gram_growth().items(), strict=True)):
        lines(axes, None, {label: curve}, first=place, marker=marker)
    axes.axhline(1, color=BLACK, linewidth=0.8, linestyle="-")
    return (
        "The largest singular value of a 128 x 512 matrix with singular values 1/k after each of five bfloat16 steps, on "
        "a logarithmic axis. The plain form and the Gram form that computes its Gram matrix anew stay between 1 and 2; "
        "the Gram form that computes it only once leaves them after three steps and exceeds a million after five."
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


@lesson.figure(
    f"What is known after {RUN_STEPS} steps",
    "fact $k$, seen in proportion to $k^{-1.5}$",
    "$\\|Wx_k - v_k\\|^2$",
    size=(6.0, 3.6),
    ylim=(-0.05, 1.55),
    legend={"loc": "upper left", "ncols": 2, "fontsize": 8},
)
def plot_memory(axes):
    """Draw the miss of every fact after the run, for each optimiser at its best rate."""
    ranks, seen = np.arange(1, FACTS + 1), frequencies(skewed=True)
    for place, (marker, name) in enumerate(zip("D^so", list(OPTIMIZERS)[::-1], strict=True)):
        lines(axes, ranks, {name: best_misses(name, seen)}, first=place, marker=marker, markersize=3.5, markevery=4)
    axes.axhline(1, color=BLACK, linewidth=0.8, linestyle="-")
    axes.text(64.5, 1.02, "before training", fontsize=8, ha="right", va="bottom")
    return (
        f"How far each of {FACTS} facts is missed after {RUN_STEPS} steps, against its rank by frequency, for each "
        "optimiser at the best of four rates. Gradient descent, with or without momentum, and Adam miss rare facts "
        "more than frequent ones, up to 0.7 and more of where all start, at 1; Muon misses all alike and little."
    )


# What `make bench newton_schulz` stored, and how the table calls it: time by that of a singular value decomposition in
# float32 for three shapes, then ||XX^T - I||_F / sqrt(n) at 1024 x 1024 for two spectra.
METHODS = {
    "singular value decomposition, float32": None,
    "torch.optim.Muon's, bfloat16": "torch.optim.Muon's",
    "Polar Express, 5 steps, bfloat16": "Polar Express 5, bfloat16",
    "Keller, 5 steps, float32": "Keller 5, float32",
    "Polar Express, 5 steps, float32": "Polar Express 5, float32",
    "cubic, 5 steps, float32": "cubic 5, float32",
    "Polar Express and flat quintics to 1e-5": "polar_factor, iteration",
    "cubic to 1e-5, float32": "cubic to 1e-5, float32",
}


def stored_row(method: str | None) -> list[float | None]:
    """Return a method's three times and two errors as they are stored; what was not measured is None."""
    stored = figures("newton_schulz")
    if method is None:  # the decomposition itself, which `polar_factor` takes
        times, method = [1, 1, 1], "polar_factor"
    else:
        times = [stored.get(f"{shape}: {method} / SVD") for shape in ("256x256", "1024x1024", "4096x1024")]

    def error(spectrum: str) -> float | None:
        small = stored.get(f"1e6 x error on {spectrum} 1024x1024, {method}")
        return stored.get(f"error on {spectrum} 1024x1024, {method}") if small is None else small / 1e6

    return [*times, error("gaussian"), error("1/k")]


_COLUMNS = ("256 x 256", "1024 x 1024", "4096 x 1024", "error, Gaussian", "error, $1/k$")


def measured_table() -> Markdown:
    """Return the measured times and errors as a table; a method faster than the decomposition has its time in bold."""

    is_time = (True, True, True, False, False)

    def cell(value: float | int | None, is_time: bool) -> str:
        text = "" if value is None else f"{value:.2g}"
        return f"**{text}**" if is_time and value is not None and value < 0.95 else text

    rows = [(name, *map(cell, stored_row(method), is_time)) for name, method in METHODS.items()]
    return markdown_table(("method", *_COLUMNS), rows)


@lesson.explorer
class SingularValueExplorer(Explorer):
    """Singular values through the steps of a chosen polynomial."""

    title = "Singular values on their way to 1"
    summary = (
        "Left: what the chosen number of steps makes of every singular value in [0.0001, 1], on a logarithmic axis, as the "
        "highest and the lowest value within a tenth of a decade; the dotted line marks the smallest one. Right: seven "
        "singular values, spaced evenly on a logarithmic axis from the smallest to 1, after each step."
    )
    steps = Slider("steps", "T", "How many times a polynomial is applied", 5, 0, 12, 1)
    smallest = Slider(
        "smallest value", "log10 s", "As a power of ten; the largest singular value is 1", -2.0, -4.0, -0.5, 0.1
    )
    family = Choice(
        "polynomial",
        "The cubic and Keller's quintic repeat one polynomial; Polar Express has one for each step",
        "Polar Express",
        FAMILIES,
    )
    together = ("steps", "smallest")
    size = (8.8, 3.9)
    layout = panels(
        ["After all steps", "Step by step"],
        ["singular value before", "step"],
        ["singular value after", "singular value"],
        grid=(1, 2),
        xscale=["log", "linear"],
        xlim=[(1e-4, 1), (0, 12)],
        ylim=(0, 2.1),
        legend=[{"loc": "upper left", "fontsize": 8}, {"loc": "upper right", "fontsize": 8, "ncols": 2}],
    )

    def compute(self, *, smallest, steps, family):
        """Return the band of the composed polynomial, seven orbits, and the range and error of 300 values."""
        quintics = schedule(family, steps)
        values, grid = (
            torch.logspace(low, 0, count, dtype=torch.float64) for low, count in ((smallest, 300), (-4, 12_000))
        )
        # A composition swings too fast near 1 to be drawn: its lowest and highest value within a tenth of a decade are.
        places, bands = grid.unfold(0, 301, 60)[:, 150].numpy(), compose(grid, quintics).unfold(0, 301, 60)
        orbits = [torch.logspace(smallest, 0, 7, dtype=torch.float64)]
        for quintic in quintics:
            orbits.append(odd_polynomial(orbits[-1], quintic))
        after = compose(values, quintics)
        return {
            "highest": (places, bands.amax(1).numpy()),
            "lowest": (places, bands.amin(1).numpy()),
            "mark": ([10**smallest] * 2, [0, 2.1]),
            "orbits": [(np.arange(steps + 1), orbit) for orbit in torch.stack(orbits, dim=1).numpy()],
            "smallest": 10**smallest,
            "reached": float(after[0]),
            "low": float(after.min()),
            "high": float(after.max()),
            "error": rms_error(after),
            "steps": steps,
            "family": family,
        }

    def draw(self, left, right):
        """Draw the level 1, and the band, the smallest value and seven orbits, to be moved."""
        for axes in (left, right):
            axes.axhline(1, color=BLACK, linewidth=0.8, linestyle="-")
        highest, lowest = lines(left, [], ["highest nearby", "lowest nearby"])
        (mark,) = lines(left, [], ["smallest"], first=3, linewidth=1.6)
        (smallest,) = lines(right, [], ["smallest"], first=1, marker="s", markersize=3.5, linestyle="-")
        grey = {"color": "0.55", "linestyle": "-", "marker": ".", "markersize": 3.5, "linewidth": 1.0}
        between = [right.plot([], [], label=f"_{i}", **grey)[0] for i in range(5)]
        (largest,) = lines(right, [], ["largest"], marker="o", markersize=3.5, linestyle="--")
        return {"highest": highest, "lowest": lowest, "mark": mark, "orbits": [smallest, *between, largest]}

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


orbit_prediction = lesson.prediction(
    "06.P1",
    "The cubic $p(s) = \\frac12(3s - s^3)$ is repeated from $s_0 = 2$, for a gradient that somebody forgot to "
    "normalise. Where does it end?",
    {
        "At 1": "That holds from everywhere below √3. But p(2) = (6 - 8)/2 = -1, and p(-1) = -1.",
        "At -1": "p(2) = (6 - 8)/2 = -1 at once, and -1 is a fixed point: the step would go uphill in that "
        "direction, at full length.",
        "It grows without bound": "That happens above √5 only. Between √3 and √5 the sign changes and the size "
        "falls below √3 sooner or later.",
    },
    answer="At -1",
    reveal=plot_orbits,
)

gram_prediction = lesson.prediction(
    "06.P2",
    "A 128 x 512 matrix has the singular values $1, 1/2, \\dots, 1/128$. Its Gram matrix is computed once, in "
    "bfloat16 (8 significant bits), and the five steps of Polar Express are taken on it. What becomes of the "
    "largest singular value?",
    {
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

FIGURES = lesson.figures
