"""Figures, explorer and predictions of lesson 04, ridge_noise_and_map."""

import math
from collections.abc import Mapping
from functools import cache

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor

from course_lib.lessons.ridge_noise_and_map.contents import lesson
from course_lib.optimization.ridge import (
    fit_noisy_rows,
    matching_penalty,
    most_probable,
    noisy_copies,
    posterior,
    ridge,
    shrinkage,
)
from course_lib.teaching import Explorer, Slider, lines, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY

NOISE, PENALTY = 0.15, 0.27


def wiggly_data(
    points: int = 12, *, features: int = 12, seed: int = 29
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return places, their features X and targets y, and a grid with its features.

    The features of a place t in [-1, 1] are the Chebyshev polynomials cos(k arccos t) for k = 0, ..., features - 1.
    With as many of them as points, least squares runs through every point.
    """
    generator = torch.Generator().manual_seed(seed)
    degrees = torch.arange(features, dtype=torch.float64)
    places = torch.linspace(-1, 1, points, dtype=torch.float64)
    grid = torch.linspace(-1, 1, 401, dtype=torch.float64)
    target = torch.sin(torch.pi * places)
    target = target + 0.3 * torch.randn(points, generator=generator, dtype=torch.float64)
    matrix, grid_matrix = (torch.cos(torch.acos(t)[:, None] * degrees) for t in (places, grid))
    return places, matrix, target, grid, grid_matrix


def question_curves() -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
    """Return places, targets, grid and the four fitted curves of the question."""
    places, matrix, target, grid, grid_matrix = wiggly_data()
    generator = torch.Generator().manual_seed(0)
    weights = {
        "least squares": torch.linalg.pinv(matrix) @ target,
        "noise on the features": fit_noisy_rows(matrix, target, noise=NOISE, copies=2000, generator=generator),
        "penalty": ridge(matrix, target, PENALTY),
        "prior": most_probable(matrix, target, noise_variance=PENALTY, prior_variance=1.0),
    }
    return places, target, grid, {name: grid_matrix @ w for name, w in weights.items()}


@lesson.figure(
    "Twelve points, four fits",
    "t",
    "y",
    size=(6.4, 3.6),
    ylim=(-4.8, 2.6),
    legend={"loc": "lower center", "ncols": 2, "fontsize": 9},
    example=question_curves,
)
def plot_question(axes, places: Tensor, target: Tensor, grid: Tensor, curves: Mapping[str, Tensor]):
    """Draw the data and the fitted curves, in the order given; the last ones lie on top of each other."""
    looks = (("0.55", "-", 1.4), (ORANGE, "-", 7), (BLUE, "--", 2.6), (BLACK, ":", 2.2))
    for (name, curve), (color, style, width) in zip(curves.items(), looks, strict=False):
        axes.plot(grid, curve, color=color, linestyle=style, linewidth=width, label=name)
    axes.plot(places, target, "o", color=RED, markersize=6, label="data")
    wild = curves["least squares"]
    return (
        f"{len(places)} points and four curves. Least squares passes through every point and ranges from "
        f"{float(wild.min()):.1f} to {float(wild.max()):.1f}. The other three lie on each other."
    )


@cache
def matched_penalties() -> dict[int, tuple[float, float]]:
    """Return for 12, 24 and 48 points the lambda whose ridge curve is nearest to the noisy fit, and to the prior's."""
    found = {}
    for points in (12, 24, 48):
        _, matrix, target, *_ = wiggly_data(points)
        generator = torch.Generator().manual_seed(1)
        noisy = fit_noisy_rows(matrix, target, noise=NOISE, copies=10_000, generator=generator)
        likely = most_probable(matrix, target, noise_variance=PENALTY, prior_variance=1.0)
        found[points] = (matching_penalty(matrix, target, noisy), matching_penalty(matrix, target, likely))
    return found


@lesson.figure(
    "Which penalty gives the same weights?",
    "points m",
    "matching $\\lambda$",
    size=(5.0, 3.0),
    xlim=(8, 62),
    ylim=(0, 1.25),
    legend=None,
)
def plot_matching(axes):
    """Draw the lambda that matches the noisy fit and the prior's, for 12, 24 and 48 points."""
    found = matched_penalties()
    points = list(found)
    said = []
    for place, (name, color, look, style) in enumerate((("noise", ORANGE, "o", "-"), ("prior", BLACK, "s", ":"))):
        values = [found[m][place] for m in points]
        axes.plot(points, values, linestyle=style, marker=look, color=color, markersize=8, linewidth=2)
        axes.text(50, values[-1], name, color=color, fontsize=11, va="center")
        said.append(f"{name} {', '.join(f'{v:.2f}' for v in values)}")
    axes.set_xticks(points)
    return f"The λ whose ridge weights are nearest, for {points[0]}, {points[1]} and {points[2]} points: {'; '.join(said)}."


@lesson.figure(
    ["Two rows, copies with noise σ = 0.8", "Feature 1 alone: average loss"],
    ["feature 1", "weight w"],
    ["feature 2", "loss"],
    grid=(1, 2),
    size=(7.6, 3.2),
    aspect=["equal", None],
    legend=[{"loc": "lower left", "fontsize": 8}, {"loc": "upper center", "fontsize": 9}],
    ylim=[(-2.6, 4.6), (0, 22)],
)
def plot_noise_as_penalty(left, right, *, noise: float = 0.8):
    """Draw two rows with their noisy copies; and, for one feature, the clean loss, the penalty and the average loss."""
    matrix = torch.tensor([[1.0, 2.0], [2.5, 0.5]], dtype=torch.float64)
    for i, (color, look) in enumerate(((BLUE, "o"), (ORANGE, "^"))):
        drawn = matrix[i] + noise * torch.randn(60, 2, generator=torch.Generator().manual_seed(i), dtype=torch.float64)
        left.plot(*drawn.T, look, color=color, markersize=3, alpha=0.5, label=f"copies of row {i + 1}")
        left.plot(*matrix[i], "*", color=RED, markersize=14, label="row" if i == 0 else "_")
    column, target = matrix[:, :1], torch.tensor([1.0, 3.0], dtype=torch.float64)
    weights = torch.linspace(-1, 3, 401, dtype=torch.float64)
    loss = lambda x: (x * weights - target[:, None]).square().sum(-2)  # noqa: E731
    average = loss(noisy_copies(column, noise=noise)).mean(0)
    penalty = len(column) * noise**2 * weights.square()
    drawn = lines(right, weights, {"noisy rows, average": average, "clean rows": loss(column), "difference": penalty})
    ends = []
    for curve, values in zip(drawn, (average, loss(column), penalty), strict=True):
        place = int(values.argmin())
        right.plot([weights[place]], [values[place]], "o", color=curve.get_color(), markersize=7, zorder=5)
        ends.append(float(weights[place]))
    return (
        "Left, two rows and clouds of noisy copies. Right, for feature 1 alone, loss with clean and with noisy "
        f"rows; dots are minima. The average has its minimum at {ends[0]:.2f}, the clean loss at {ends[1]:.2f}."
    )


def along_directions(penalty: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return s_i and, on the grid, the least-squares curve, its two weakest directions, and what ridge keeps of both."""
    _, matrix, target, _, grid_matrix = wiggly_data()
    left, s, right = torch.linalg.svd(matrix)
    coefficients = (left.T @ target) / s
    curves = grid_matrix @ (coefficients[:, None] * right).T
    kept = shrinkage(s, penalty)
    return s, curves.sum(1), curves[:, -2:], curves[:, -2:] @ kept[-2:]


@lesson.figure(
    ["What ridge keeps, λ = 0.27", "The two weakest directions"],
    ["direction i, with its $s_i$", "t"],
    ["share kept", "y"],
    grid=(1, 2),
    size=(8.6, 3.2),
    ylim=[(0, 1.1), (-5.5, 3.4)],
    legend=[None, {"loc": "lower center", "fontsize": 9}],
)
def plot_directions(bars, curves):
    """Draw the share that ridge keeps of each direction, and the curve of the two weakest before and after."""
    s, whole, weak, left_over = along_directions(PENALTY)
    kept = shrinkage(s, PENALTY)
    bars.bar(range(1, 13), kept, color=[BLUE] * 10 + [ORANGE] * 2, width=0.7)
    bars.axhline(0.5, color=BLACK, linewidth=0.8, linestyle="-")
    bars.set_xticks(
        range(1, 13), [f"{float(v):.1f}" if v > 1 else f"{float(v):.2f}" for v in s], fontsize=8, rotation=90
    )
    grid = wiggly_data()[3]
    curves.plot(grid, whole, color="0.55", linestyle="-", linewidth=1.4, label="least squares")
    for one, look, value in zip(weak.T, ("-", "--"), s[-2:], strict=True):
        curves.plot(
            grid, one, color=ORANGE, linestyle=look, linewidth=1.8, label=f"its direction with $s$ = {value:.2f}"
        )
    curves.plot(grid, left_over, color=BLACK, linestyle=":", linewidth=2, label="what ridge keeps of both")
    return (
        f"Left, the share kept of each direction: the two weakest keep {float(kept[-2]):.2f} and {float(kept[-1]):.2f}. "
        "Right, what each of the two draws, and what is left of both. At the left end they pull in opposite directions, "
        "at the right end in the same."
    )


TWO_ROWS = torch.tensor([[1.0, 0.4], [0.6, 0.8]], dtype=torch.float64), torch.tensor([1.9, 1.1], dtype=torch.float64)
VARIANCE_OF_TWO = 0.5
LIMITS_OF_TWO = {"xlim": (-2.2, 4.4), "ylim": (-3.6, 3.3), "aspect": "equal"}


def _contours(axes, *, prior: bool, likelihood: bool) -> None:
    """Draw the contours of a normal density of two weights, one and two standard deviations from its top."""
    matrix, target = TWO_ROWS
    ticks = [torch.linspace(low, high, 121, dtype=torch.float64) for low, high in (axes.get_xlim(), axes.get_ylim())]
    grid = torch.cartesian_prod(*ticks)
    errors = (grid @ matrix.T - target).square().sum(1) / VARIANCE_OF_TWO
    log_density = -(prior * grid.square().sum(1) + likelihood * errors) / 2
    height = (log_density - log_density.max()).reshape(121, 121).T
    axes.contour(*ticks, height, levels=[-2, -0.5], colors=BLUE, linewidths=1.1, linestyles="-")


def _long_axis(axes) -> None:
    """Draw the direction that the two rows hardly fix, through the weights of least squares."""
    matrix, target = TWO_ROWS
    plain, weak = torch.linalg.solve(matrix, target), torch.linalg.svd(matrix)[2][1]
    ends = plain + torch.tensor([[-9.0], [9.0]], dtype=torch.float64) * weak
    axes.plot(*ends.T, color="0.6", linestyle="--", linewidth=1.2, scalex=False, scaley=False, label="badly fixed")


@lesson.figure(
    ["Prior", "Likelihood of two rows"], "$w[1]$", "$w[2]$", size=(6.2, 3.2), grid=(1, 2), legend=None, **LIMITS_OF_TWO
)
def plot_prior_and_likelihood(prior, likelihood):
    """Draw contours of prior and likelihood for two weights."""
    _contours(prior, prior=True, likelihood=False)
    _contours(likelihood, prior=False, likelihood=True)
    plain = torch.linalg.solve(*TWO_ROWS)
    prior.plot(0, 0, "+", color=BLACK, markersize=10)
    likelihood.plot(*plain, "^", color=BLACK, markersize=8)
    return (
        "Contours for two weights, one and two standard deviations from the top: the prior, circular about 0, and the "
        f"likelihood, a tilted ellipse about the weights of least squares, ({plain[0]:.2f}, {plain[1]:.2f})."
    )


@lesson.figure(
    "Posterior: their product",
    "$w[1]$",
    "$w[2]$",
    size=(4.2, 3.4),
    legend={"loc": "lower left", "fontsize": 8},
    **LIMITS_OF_TWO,
)
def plot_posterior(axes):
    """Draw the posterior for two weights, with least squares, ridge and the direction between them."""
    matrix, target = TWO_ROWS
    _contours(axes, prior=True, likelihood=True)
    _long_axis(axes)
    plain = torch.linalg.solve(matrix, target)
    weights = ridge(matrix, target, VARIANCE_OF_TWO)
    mean, _ = posterior(matrix, target, noise_variance=VARIANCE_OF_TWO)
    axes.plot(0, 0, "+", color=BLACK, markersize=10, label="top of the prior")
    axes.plot(*plain, "^", color=BLACK, markersize=8, label="least squares")
    axes.plot(*weights, "*", color=RED, markersize=14, label="ridge, $\\lambda$ = 0.5")
    axes.plot(*mean, ".", color=BLACK, markersize=5, label="posterior's mean")
    return (
        f"The product has its top at ({weights[0]:.2f}, {weights[1]:.2f}). From least squares the way there is "
        "mostly along the dashed direction, the long axis of the likelihood."
    )


# The closing experiment

FEATURES, SIGMA_SQUARED, ROWS = 12, 1 / 12, (12, 24, 48, 96, 192, 384, 768, 1536)
SCALES = torch.logspace(0, float(np.log10(0.03)), FEATURES, dtype=torch.float64)


def drawn_problems(rows: int, *, problems: int = 200, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return X (one matrix a problem), y and the true weights: 12 normal features, weights N(0, I), errors N(0, 1)."""
    normal = lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)  # noqa: E731
    generator = torch.Generator().manual_seed(seed)
    truth = normal(problems, FEATURES)  # the same for each number of rows
    generator = torch.Generator().manual_seed(1000 * (seed + 1) + rows)
    matrix = normal(problems, rows, FEATURES) * SCALES
    return matrix, (matrix @ truth[:, :, None])[:, :, 0] + normal(problems, rows), truth


def ridge_all(matrix: Tensor, target: Tensor, penalty: float) -> Tensor:
    """Return the ridge weights of every problem; at penalty 0, those of least squares."""
    shifted = matrix.mT @ matrix + penalty * torch.eye(FEATURES, dtype=torch.float64)
    return torch.linalg.solve(shifted, (matrix.mT @ target[:, :, None])[:, :, 0])


def risk(weights: Tensor, truth: Tensor, *, noise_squared: float = 0.0) -> Tensor:
    """Return the mean squared error of x^T w on new rows x, exactly, with noise of this variance on the features in use."""
    return ((weights - truth) * SCALES).square().sum(-1) + noise_squared * weights.square().sum(-1)


def leave_one_out(matrix: Tensor, target: Tensor, penalties: Tensor) -> Tensor:
    """Return for every problem the ridge weights whose penalty has the least squared error on rows left out, one by one."""
    left, s, right_ = torch.linalg.svd(matrix, full_matrices=False)
    along = (left.mT @ target[:, :, None])[:, :, 0]
    errors, weights = [], []
    for penalty in penalties.tolist():
        kept = s.square() / (s.square() + penalty)
        fitted = (left @ (kept * along)[:, :, None])[:, :, 0]
        own = (left.square() @ kept[:, :, None])[:, :, 0]  # the share of each fitted value that is its own target
        errors.append(((target - fitted) / (1 - own)).square().mean(1))
        weights.append((right_.mT @ (s / (s.square() + penalty) * along)[:, :, None])[:, :, 0])
    best = torch.stack(errors).argmin(0)
    return torch.stack(weights)[best, torch.arange(len(best))]


ARMS = {
    "noise, σ kept": (ORANGE, "-", "o"),
    "prior": (BLACK, ":", "s"),
    "least squares": (GREEN, "--", "^"),
    "λ by leave-one-out": (PURPLE, "-.", "v"),
}


@cache
def risks() -> dict[str, dict[int, Tensor]]:
    """Return the risk of each arm by number of rows, one entry for each of 200 problems."""
    found: dict[str, dict[int, Tensor]] = {arm: {} for arm in ARMS}
    for rows in ROWS:
        matrix, target, truth = drawn_problems(rows)
        fits = (
            ridge_all(matrix, target, rows * SIGMA_SQUARED),
            ridge_all(matrix, target, 1.0),
            ridge_all(matrix, target, 0.0),
            leave_one_out(matrix, target, torch.logspace(-3, 4, 36, dtype=torch.float64)),
        )
        for arm, weights in zip(ARMS, fits, strict=True):
            found[arm][rows] = risk(weights, truth)
    return found


def limits(truth: Tensor) -> Tensor:
    """Return for each problem the risk at which its noisy fit ends with ever more rows (04.6)."""
    return risk(truth * SCALES.square() / (SCALES.square() + SIGMA_SQUARED), truth)


def median_limit() -> float:
    """Return the median limit of the problems, whose true weights are the same for each number of rows."""
    return float(limits(drawn_problems(ROWS[0])[2]).quantile(0.5))


@lesson.figure(
    "More rows, the same σ, p and v",
    "rows m",
    "risk, median of 200 problems",
    size=(6.2, 3.8),
    xscale="log",
    yscale="log",
    xlim=(10, 2000),
    ylim=(3e-3, 60),
    legend={"loc": "upper right", "fontsize": 9},
)
def plot_closing(axes):
    """Draw the median risk of each arm against the rows, with the middle half of the problems, and the limit."""
    said = []
    for arm, (color, style, look) in ARMS.items():
        quarters = np.array([np.quantile(risks()[arm][m], (0.25, 0.5, 0.75)) for m in ROWS])
        axes.fill_between(ROWS, quarters[:, 0], quarters[:, 2], color=color, alpha=0.12, linewidth=0)
        axes.plot(
            ROWS, quarters[:, 1], linestyle=style, marker=look, color=color, markersize=5, linewidth=1.8, label=arm
        )
        said.append(f"{arm} {quarters[-1, 1]:.4f}")
    axes.axhline(median_limit(), color=ORANGE, linewidth=1, linestyle=":")
    axes.set_xticks(ROWS, [f"{m:,}" for m in ROWS], fontsize=9)
    axes.minorticks_off()
    return (
        f"Lines are medians, bands the middle half. At {ROWS[-1]:,} rows: {'; '.join(said)}. "
        f"The thin dotted line is the median of the limits (04.6), {median_limit():.3f}."
    )


@cache
def patient_errors(rows: int, *, splits: int = 200) -> tuple[Tensor, dict[float, Tensor]]:
    """Return errors on 122 patients of scikit-learn's diabetes data after training on `rows` others, one a random split.

    First that of least squares, then that of the noisy fit by the variance of its noise: squared errors relative to the
    variance of the target. Features and target are standardised.
    """
    from sklearn.datasets import load_diabetes  # costs a second, and only the patients need it

    matrix, target = (torch.tensor(part) for part in load_diabetes(return_X_y=True))
    matrix, target = ((part - part.mean(0)) / part.std(0) for part in (matrix, target))
    variances = torch.logspace(-3, 1, 21, dtype=torch.float64)
    generator, plain, noisy = torch.Generator().manual_seed(0), [], []
    for _ in range(splits):
        order = torch.randperm(len(target), generator=generator)
        seen, held_out = order[:rows], order[320:]
        fits = (ridge(matrix[seen], target[seen], rows * float(variance)) for variance in variances)
        weights = torch.stack([torch.linalg.pinv(matrix[seen]) @ target[seen], *fits])
        errors = (weights @ matrix[held_out].T - target[held_out]).square().mean(1)
        plain.append(errors[0])
        noisy.append(errors[1:])
    return torch.stack(plain), dict(zip(variances.tolist(), torch.stack(noisy).T, strict=True))


def closing_table() -> Markdown:
    """Return the median risk of each arm at some numbers of rows."""
    shown = (12, 96, 384, 1536)
    rows = [(arm, *(f"{np.median(risks()[arm][m]):.3g}" for m in shown)) for arm in ARMS]
    return markdown_table(("median risk", *(f"{m:,} rows" for m in shown)), rows)


@lesson.explorer
class PenaltyExplorer(Explorer):
    """One penalty that moves the curve and the share that is kept of each direction."""

    title = "One penalty, a curve and twelve directions"
    summary = (
        "Left, the twelve points (ringed where they stand more than once), the curve of ridge and, dotted, that of the "
        "opening, ridge with λ = 0.27 on single points. Right, the share that ridge keeps of each of the twelve "
        "directions of least squares, the strongest one first."
    )
    penalty = Slider("penalty", "λ", "Weight of the squared length of w; 0 is least squares", 0.02, 0.0, 2.0, 0.01)
    times = Slider("copies of each point", "k", "How often each point stands in the data", 1, 1, 4, 1)
    together = ("penalty", "times")
    size = (8.2, 3.2)
    dpi = 110
    strip_scale = 0.75
    data = wiggly_data()
    layout = panels(
        ["The curve", "Share kept of each direction"],
        ["t", "direction, with its $s$"],
        ["y", "share"],
        grid=(1, 2),
        ylim=[(-4.8, 2.4), (0, 1.1)],
        legend=[{"loc": "lower center", "fontsize": 8}, None],
    )

    def compute(self, *, penalty, times):
        """Return the ridge curve, the shares, and how far the curve is from the one of the three remedies."""
        _, matrix, target, grid, grid_matrix = self.data
        matrix, target = matrix.repeat(times, 1), target.repeat(times)
        left, s, right_ = torch.linalg.svd(matrix, full_matrices=False)
        kept = s.square() / (s.square() + penalty)
        curve = grid_matrix @ (right_.T @ (kept / s * (left.T @ target)))
        return {
            "curve": (grid, curve.clamp(-10, 10)),
            "bars": kept.tolist(),
            "sizes": s.tolist(),
            "rings": (self.data[0], self.data[2]) if times > 1 else ([], []),
            "away": float((curve - self.reference).abs().max()),
            "settings": (penalty, times),
        }

    @property
    def reference(self) -> Tensor:
        """The curve of ridge at 0.27 on single points."""
        _, matrix, target, _, grid_matrix = self.data
        return grid_matrix @ ridge(matrix, target, PENALTY)

    def draw(self, axes, shares):
        """Draw the points and the reference curve, a curve and bars to be moved."""
        places, _, target, grid, _ = self.data
        axes.plot(
            grid, self.reference, color=BLACK, linestyle=":", linewidth=2.4, label="ridge, λ = 0.27, single points"
        )
        axes.plot(places, target, "o", color=RED, markersize=5, label="data")
        (curve,) = axes.plot([], [], color=BLUE, linestyle="-", linewidth=2, label="ridge")
        (rings,) = axes.plot([], [], "o", markerfacecolor="none", markeredgecolor=RED, markersize=10, label="_copies")
        bars = shares.bar(range(1, 13), [1.0] * 12, width=0.7, color=SKY, edgecolor=BLUE)
        shares.axhline(0.5, color=BLACK, linewidth=0.8, linestyle="-")
        return {"curve": curve, "rings": rings, "bars": list(bars)}

    def update(self, artists, state):
        """Move the curve and the bars, and ring points that stand more than once."""
        artists["curve"].set_data(*state["curve"])
        artists["rings"].set_data(*state["rings"])
        for bar, share in zip(artists["bars"], state["bars"], strict=True):
            bar.set_height(share)
        names = [f"{s:.1f}" if s > 1 else f"{s:.2f}" for s in state["sizes"]]
        artists["bars"][0].axes.set_xticks(range(1, 13), names, fontsize=8, rotation=90)

    def words(self, state):
        """Say what is kept of the weakest directions and how far the curve is from the dotted one."""
        penalty, times = state["settings"]
        weak, others = state["bars"][-2:], math.floor(100 * min(state["bars"][:-2]) + 1e-9) / 100
        how_often = ("once", "twice", "three times", "four times")[times - 1]
        return (
            f"λ = {penalty:.2f}, each point {how_often}: the two weakest directions keep {weak[0]:.2f} and {weak[1]:.2f}, "
            f"the other ten at least {others:.2f}. The curve is at most {state['away']:.2f} from the dotted one."
        )


rows_prediction = lesson.prediction(
    "04.P1",
    "You measure 24 points instead of 12. The noise on the features keeps its standard deviation, the prior its variance, "
    "and the targets the variance of their errors. Which λ makes ridge draw the noisy curve, which the prior's?",
    {
        "0.54 for both": "The prior is stated once, however many points there are. Only noise comes with every point.",
        "0.27 for both": "Nothing changed in the prior, and its λ stays. But new points bring noise of their own.",
        "0.54 for the noise, 0.27 for the prior": right(
            "Each row brings its own noise and so its own share of the penalty. The prior speaks once."
        ),
        "0.27 for the noise, 0.54 for the prior": "It is the other way round: each row brings noise, and the prior is "
        "stated once.",
    },
    reveal=plot_matching,
)

shrinking_prediction = lesson.prediction(
    "04.P2",
    "Two observations, two weights: least squares fits both exactly, with (1.93, -0.07). Multiply the two densities of "
    "the picture. Where does the second weight, -0.07, move?",
    {
        "Nearer to 0": "Shorter is the whole vector. A single weight is not a direction of (04.3).",
        "To 0, exactly": "A circular prior singles no weight out, and nothing in (04.4) stops at 0.",
        "Further below 0": "It does move away from 0, to the other side.",
        "Above 0, far beyond 0.07": right(
            "The data fix the sum of the weights well and their difference badly. What is kept is the sum: it is shared out."
        ),
    },
    reveal=plot_posterior,
)

closing_prediction = lesson.prediction(
    "04.P3",
    "With 12 rows, noise on the features and the prior have the same risk, far below that of least squares. Now there are "
    "1,536 rows, and the noise in training keeps its standard deviation. How does the risk of the noisy fit compare with "
    "that of least squares?",
    {
        "It is smaller": "With few rows least squares suffers from the errors in the targets. With many they "
        "average out, and the noise that was put on the features does not.",
        "It is larger, by less than a half": "That is so at some number of rows on the way, soon after the lines cross.",
        "It is 1.5 to 5 times as large": "It is larger, and by more: one line falls on, the other levels off.",
        "It is more than 5 times as large": right(
            "The noisy fit solves another problem, in which features are uncertain, and more rows solve that problem better."
        ),
    },
    reveal=plot_closing,
)

FIGURES = lesson.figures
