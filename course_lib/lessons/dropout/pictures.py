"""Figures, explorer and predictions of lesson 12, dropout."""

from functools import cache, partial
from itertools import product

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor

from course_lib import scikit_data
from course_lib.architectures.normalisation import dropout_ridge, generalised_ridge
from course_lib.lessons.dropout import coins
from course_lib.lessons.dropout.contents import lesson
from course_lib.measured import measured
from course_lib.teaching import Choice, Explorer, Slider, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, compact, small_legend

_compact = partial(compact, labels=8.5)

F64 = {"dtype": torch.float64}
MATRIX, TARGET = torch.tensor([[1.0, 2.0], [3.0, -1.0]], **F64), torch.tensor([1.0, 2.0], **F64)
KEEP, PENALTY = 0.8, 2.5  # of the dropout, and of the ridge regression that it is compared with
UNITS = {"metres": 1.0, "centimetres": 100.0, "kilometres": 0.001}  # what a metre is in each
MOST_COPIES = 64


# Two columns: the object of the page


def table_in(unit: str = "metres", copies: int = 1) -> Tensor:
    """Return the table (2, copies + 1): column 1, in a unit and as often as asked for, then column 2."""
    first = UNITS[unit] * MATRIX[:, :1]
    return torch.cat([first.expand(2, copies), MATRIX[:, 1:]], 1)


def dropout_weights(matrix: Tensor, target: Tensor, keep: float) -> Tensor:
    """Return what dropout trains on average, times `keep`; least squares where nothing is deleted."""
    if keep == 1:
        return torch.linalg.lstsq(matrix, target[:, None], driver="gelsd").solution[:, 0]
    return dropout_ridge(matrix, target, keep=keep)


def ridge_weights(matrix: Tensor, target: Tensor, penalty: float = PENALTY) -> Tensor:
    """Return the weights of plain ridge regression."""
    return generalised_ridge(matrix, target, torch.full_like(matrix[0], penalty))


def _ends() -> Tensor:
    generator = torch.Generator().manual_seed(36)
    weights = torch.zeros(400, 2, **F64)
    for _ in range(300):
        masked = MATRIX * (torch.rand(400, 2, 2, generator=generator, **F64) < KEEP)
        errors = TARGET - torch.einsum("crd,cd->cr", masked, weights)
        weights = weights + 0.04 * torch.einsum("crd,cr->cd", masked, errors)
    return KEEP * weights


@lesson.figure(
    "Where SGD ends",
    "weight $w_1$",
    "weight $w_2$",
    size=(5.6, 3.3),
    legend=small_legend("lower right"),
    xlim=(0.52, 0.76),
    ylim=(-0.15, 0.3),
    example=_ends,
)
def plot_question(axes, ends: Tensor):
    """Draw where runs of SGD with masks are (runs, 2), their mean, and where runs without masks end."""
    axes.plot(
        ends[:400, 0], ends[:400, 1], ".", color="0.6", markersize=4, label="a fifth of the table deleted: one run"
    )
    axes.plot(*ends.mean(0)[:, None].tolist(), "P", color=RED, markersize=10, label="mean of these runs")
    least = torch.linalg.solve(MATRIX, TARGET)
    axes.plot(*least[:, None].tolist(), "s", color=ORANGE, markersize=8, label="nothing deleted: all runs")
    _compact(axes)
    return (
        "The weights after 300 steps. With a fifth of the table deleted at each step the runs scatter around a point of "
        "their own; with nothing deleted all of them end at least squares."
    )


def _predictions(unit: str) -> tuple[list[float], list[float]]:
    table = table_in(unit)
    return tuple((table @ fit).tolist() for fit in (dropout_weights(table, TARGET, KEEP), ridge_weights(table, TARGET)))


@lesson.figure(
    "Predictions before and after",
    "prediction for row 1",
    "prediction for row 2",
    size=(5.6, 3.2),
    legend=small_legend("upper left"),
    xlim=(0.6, 1.05),
    ylim=(1.5, 2.15),
)
def plot_units(axes):
    """Draw the predictions of dropout and of ridge with column 1 in metres and in centimetres."""
    for place, (name, color, look) in enumerate((("dropout", BLUE, "ox"), ("ridge, penalty 2.5", PURPLE, "^v"))):
        before, after = (_predictions(unit)[place] for unit in ("metres", "centimetres"))
        axes.plot(*before, look[0], color=color, markersize=11, fillstyle="none", label=f"{name}, column 1 in metres")
        axes.plot(*after, look[1], color=color, markersize=6, label=f"{name}, in centimetres")
        if np.hypot(*np.subtract(before, after)) > 1e-6:
            axes.annotate(
                "", after, before, arrowprops={"arrowstyle": "->", "color": color, "shrinkA": 7, "shrinkB": 5}
            )
    axes.plot(*TARGET.tolist(), "*", color=BLACK, markersize=11, label="targets")
    _compact(axes)
    return (
        "Open marks: column 1 in metres; the others: in centimetres. Dropout's two marks lie on each other. Those of ridge "
        "regression do not: in centimetres it comes closer to the targets."
    )


# The first explorer


@cache
def _throws() -> tuple[Tensor, Tensor]:
    """Return the uniform numbers behind all masks (300, 2, 65), the last place for column 2, and small shifts (300, 2)."""
    generator = torch.Generator().manual_seed(36)
    uniform = torch.rand(300, 2, MOST_COPIES + 1, generator=generator, **F64)
    return uniform, 0.12 * (torch.rand(300, 2, generator=generator, **F64) - 0.5)


@lesson.explorer
class CoinExplorer(Explorer):
    """Predictions of two rows under many masks, and the weights that dropout and ridge end at."""

    title = "What the coins do to predictions and to weights"
    summary = (
        "Left, the two predictions under 300 masks (moved apart a little, since many are equal), their target and what is "
        "predicted without a mask. Right, the plane of weights: where dropout ends on average, its way as p changes, "
        "ridge regression with the penalty 2.5, and least squares. Copies of column 1 are added up, and its weight is "
        "given per metre."
    )
    keep = Slider("keep probability", "p", "How likely an entry of the table stays", 0.8, 0.4, 1.0, 0.05)
    unit = Choice("unit of column 1", "The column is written in this unit", "metres", tuple(UNITS))
    copies = Slider("copies of column 1", "k", "How often the column stands in the table", 1, 1, MOST_COPIES, 1)
    size = (9.0, 3.5)
    strip_scale = 0.72
    dpi = 100
    layout = panels(
        ["predictions under 300 masks", "weights, times p where masks are met"],
        ["prediction for row 1", "$w_1$ per metre, copies added"],
        ["prediction for row 2", "$w_2$"],
        grid=(1, 2),
        legend=[small_legend("upper left"), small_legend("upper left")],
        xlim=[(-0.6, 1.9), (0.0, 0.8)],
        ylim=[(-1.0, 4.6), (-0.02, 0.3)],
    )

    def compute(self, *, keep, unit, copies):
        """Return masked predictions, those without a mask, and the weights of dropout and ridge."""
        table = table_in(unit, copies)
        w, ridge = dropout_weights(table, TARGET, keep), ridge_weights(table, TARGET)
        uniform, shift = _throws()
        thrown = torch.cat([uniform[:, :, :copies], uniform[:, :, -1:]], 2) < keep
        masked = (thrown * table) @ (w / keep)
        spread = ((1 - keep) / keep * table.square() @ w.square()).sqrt()
        masked = masked + shift
        per_metre = lambda v: (float(v[:-1].sum()) * UNITS[unit], float(v[-1]))  # noqa: E731
        path = [per_metre(dropout_weights(table, TARGET, p)) for p in np.linspace(0.4, 0.99, 25)]
        return {
            "masked": (masked[:, 0].numpy(), masked[:, 1].numpy()),
            "unmasked": tuple((table @ w).tolist()),
            "path": tuple(np.array(path).T),
            "here": per_metre(w),
            "ridge": per_metre(ridge),
            "setting": (keep, unit, copies),
            "spread": spread.tolist(),
            "ridge predicts": (table @ ridge).tolist(),
        }

    def draw(self, left, right_):
        """Draw what stays, and empty marks."""
        _compact(left, right_)
        (masked,) = left.plot([], [], ".", color="0.6", markersize=4, label="under one mask")
        (unmasked,) = left.plot([], [], "o", color=BLUE, markersize=8, label="without a mask")
        left.plot(*TARGET.tolist(), "*", color=BLACK, markersize=11, label="targets")
        least = torch.linalg.solve(MATRIX, TARGET).tolist()
        right_.plot(*least, "s", color=ORANGE, markersize=8, label="least squares")
        (path,) = right_.plot([], [], ":", color=BLUE, label="dropout, p = 0.4 to 0.99")
        (here,) = right_.plot([], [], "o", color=BLUE, markersize=8, label="dropout, this p")
        (ridge,) = right_.plot([], [], "^", color=PURPLE, markersize=8, label="ridge, penalty 2.5")
        return {"masked": masked, "unmasked": unmasked, "path": path, "here": here, "ridge": ridge}

    def words(self, state):
        """Say where both end and how far the masks scatter the predictions."""
        keep, unit, copies = state["setting"]
        pair = lambda v, digits=3: f"({v[0] + 0.0:.{digits}f}, {v[1] + 0.0:.{digits}f})"  # noqa: E731
        many = "once" if copies == 1 else f"{copies} times"
        return (
            f"p = {keep:g}, column 1 in {unit}, {many}: on average dropout ends at weights {pair(state['here'])} and "
            f"predicts {pair(state['unmasked'])} without a mask. Masks scatter the two predictions by "
            f"{pair(state['spread'], 2)} (standard deviation). Ridge predicts {pair(state['ridge predicts'])}."
        )


# One row


@lesson.figure(
    "one row, its four masks",
    "prediction",
    "probability",
    size=(5.6, 2.6),
    legend=small_legend("upper left"),
    xlim=(-0.4, 3.0),
    ylim=(0, 0.8),
)
def plot_row(axes):
    """Draw the predictions of row (3, -1) under its four masks, their mean and the target."""
    row, weights = MATRIX[1], torch.tensor([0.7, -0.4], **F64)
    for kept in product((0, 1), repeat=2):
        value = float((torch.tensor(kept, **F64) * row) @ weights)
        chance = KEEP ** sum(kept) * (1 - KEEP) ** (2 - sum(kept))
        axes.plot([value, value], [0, chance], "-", color=BLUE, linewidth=2)
        axes.plot([value], [chance], "o", color=BLUE)
        name = {(0, 0): "none kept", (1, 1): "both kept", (1, 0): "first kept", (0, 1): "second kept"}[kept]
        place = {"xytext": (-24, -3), "ha": "right"} if kept == (1, 0) else {"xytext": (0, 6), "ha": "center"}
        axes.annotate(f"{name}: {value:g}", (value, chance), textcoords="offset points", fontsize=8, **place)
    axes.axvline(2, color=ORANGE, linestyle="--", label="target, and mean of the four")
    _compact(axes)
    return (
        "The row (3, -1) with the weights (0.7, -0.4). The mean of the four predictions, by their probabilities, lies on "
        "the target, and yet no single prediction does."
    )


# Patients: is it good to ignore units?


def _tuned(matrix: Tensor, target: Tensor, split: tuple[Tensor, ...], scaled: bool) -> float:
    """Return the error on the last rows of a split, over their variance, with the penalty that is best on the second.

    `scaled` gives each weight a penalty in proportion to the squared length of its column, as dropout does; else all
    penalties are equal.
    """
    seen, choosing, scored = split
    centre, level = matrix[seen].mean(0), target[seen].mean()
    table, goal = matrix[seen] - centre, target[seen] - level
    squares = table.square().sum(0)
    base = squares if scaled else squares.mean().expand(len(squares))

    def error(w: Tensor, rows: Tensor) -> float:
        return float((target[rows] - level - (matrix[rows] - centre) @ w).square().mean())

    fits = [generalised_ridge(table, goal, factor * base) for factor in 2.0 ** torch.arange(-24, 17, **F64)]
    best = min(fits, key=lambda w: error(w, choosing))
    return error(best, scored) / float(target[scored].var(correction=0))


def _split(rows: int, seed: int) -> tuple[Tensor, ...]:
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    return order.split([40, 100, rows - 140])


@cache
def _patients() -> tuple[Tensor, Tensor]:
    matrix, target = scikit_data.diabetes()
    return torch.tensor(matrix, **F64), torch.tensor(target, **F64)


def forty_patients() -> tuple[Tensor, Tensor]:
    """Return the table (40, 10) and the targets (40,) of the first split, both without their means."""
    matrix, target = _patients()
    seen = _split(len(matrix), 0)[0]
    return matrix[seen] - matrix[seen].mean(0), target[seen] - target[seen].mean()


@cache
def patient_errors(splits: int = 20) -> dict[str, list[float]]:
    """Return errors on 302 patients after training on 40 others, over the variance of the target, one a random split.

    Scikit-learn's diabetes data in their own units; each penalty is the one that is best on 100 further patients.
    """
    matrix, target = _patients()
    return {
        name: [_tuned(matrix, target, _split(len(matrix), seed), name == "dropout") for seed in range(splits)]
        for name in ("dropout", "ridge")
    }


def made_up_errors(splits: int = 20) -> dict[str, list[float]]:
    """Return the same for data in which raw weights are alike: 20 columns of sizes 0.1 to 10, noise of their variance."""
    found = {"dropout": [], "ridge": []}
    for seed in range(splits):
        generator = torch.Generator().manual_seed(100 + seed)
        normal = lambda *shape, g=generator: torch.randn(*shape, generator=g, **F64)  # noqa: E731
        sizes = 10 ** (2 * torch.rand(20, generator=generator, **F64) - 1)
        matrix = normal(540, 20) * sizes
        clean = matrix @ normal(20)
        target = clean / clean.std() + normal(540)
        for name, errors in found.items():
            errors.append(_tuned(matrix, target, _split(540, seed), name == "dropout"))
    return found


@lesson.figure(
    "302 patients, after training on 40",
    "error of ridge regression",
    "error of dropout's average",
    size=(4.6, 3.7),
    legend=small_legend("upper left"),
    xlim=(0.5, 0.85),
    ylim=(0.5, 0.85),
    aspect="equal",
)
def plot_patients(axes):
    """Draw one dot a split: the error of dropout's average over that of ridge."""
    errors = patient_errors()
    axes.plot([0.5, 0.85], [0.5, 0.85], color=BLACK, linewidth=0.8, label="equal errors")
    axes.plot(errors["ridge"], errors["dropout"], "o", color=BLUE, markersize=5, label="one split")
    _compact(axes)
    below = sum(d < r for d, r in zip(errors["dropout"], errors["ridge"], strict=True))
    return (
        "Squared error over the variance of the target, one dot for each split. Below the line dropout's average is better: "
        f"{below} of {len(errors['ridge'])} dots."
    )


# Behind the coins: linear or not


@cache
def averages() -> dict[str, tuple[Tensor, Tensor]]:
    """Return ten scores of six images without masks, and their means over 4,000 masks, by what the coins fall on."""
    net, data = coins.Network([0]), coins.problem([0])
    generator, x = torch.Generator().manual_seed(36), data.scored[:, :6]
    with torch.no_grad():
        plain = net.read(net.hidden(x))[0]
        many, hidden = x.expand(4000, -1, -1), net.hidden(x).expand(4000, -1, -1)
        on_inputs = torch.relu(coins.thrown(many, 0.5, generator) @ net.w[0] + net.b[0]) @ net.v[0] + net.c[0]
        on_hidden = coins.thrown(hidden, 0.5, generator) @ net.v[0] + net.c[0]
    return {"hidden units": (plain, on_hidden.mean(0)), "inputs": (plain, on_inputs.mean(0))}


@lesson.figure(
    ["coins on hidden units", "coins on inputs, in front of the ReLU"],
    "score without coins",
    "mean score over 4,000 masks",
    size=(6.8, 3.2),
    grid=(1, 2),
    legend=small_legend("upper left"),
    xlim=(-1.5, 1.5),
    ylim=(-1.5, 1.5),
)
def plot_averages(left, right_):
    """Draw mean scores under masks over the scores without."""
    gaps = []
    for axes, (plain, mean) in zip((left, right_), averages().values(), strict=True):
        axes.plot([-1.5, 1.5], [-1.5, 1.5], color=BLACK, linewidth=0.8, label="equal")
        axes.plot(plain.flatten(), mean.flatten(), "o", color=BLUE, markersize=3.5, label="one score of one image")
        gaps.append(float((mean - plain).abs().mean()))
    _compact(left, right_)
    return (
        "An untrained network, six images, ten scores each, half of the units or pixels deleted. Left, the mean over masks "
        f"is off by {gaps[0]:.2f} on average, because the masks are few; right, by {gaps[1]:.2f}."
    )


# Coins, their mean, or weight decay

LABELS = {
    coins.NOTHING: "nothing",
    coins.COINS: "coins on hidden units",
    coins.MEAN: "their mean, no coins",
    coins.INPUTS_TOO: "coins on inputs too",
    coins.DECAY: "weight decay",
    coins.BOTH: "weight decay and coins",
}


def wrong(arm: str) -> list[float]:
    """Return the stored shares of wrong answers of an arm at its best setting, one a split."""
    return measured("coins", arm)["wrong"]


@lesson.figure(
    None,
    "share of wrong answers on 1,297 digits",
    size=(6.2, 2.9),
    legend=None,
    xlim=(0.08, 0.27),
)
def plot_arms(axes):
    """Draw one dot for each split and arm, and the means."""
    for place, arm in enumerate(LABELS):
        values = wrong(arm)
        color = GREEN if arm in (coins.DECAY, coins.BOTH) else BLUE
        axes.plot(values, [place] * len(values), "o", color=color, markersize=5, fillstyle="none")
        axes.plot([np.mean(values)] * 2, [place - 0.3, place + 0.3], "-", color=BLACK, linewidth=2)
    axes.set_yticks(range(len(LABELS)), list(LABELS.values()))
    axes.invert_yaxis()
    axes.set_ylabel("training with")
    _compact(axes)
    said = "; ".join(f"{name} {np.mean(wrong(arm)):.3f}" for arm, name in LABELS.items())
    return f"One circle for each of five splits, each arm at its best setting and rate; bars are means: {said}."


def arms_table() -> Markdown:
    """Return the stored run as a table."""
    rows = []
    for arm, name in LABELS.items():
        found = measured("coins", arm)
        setting = "" if arm == coins.NOTHING else f"{found['setting']:g}"
        last = found["wrong after the last step"]
        rows.append((name, setting, f"{found['rate']:g}", f"{np.mean(found['wrong']):.3f}", f"{np.mean(last):.3f}"))
    return markdown_table(("added", "setting", "rate", "wrong", "wrong, not stopped"), rows)


# Predictions

unit_prediction = lesson.prediction(
    "12.P1",
    "Column 1 is a length in metres. Write it in centimetres, so that its numbers are 100 times as large, and retrain "
    "to the end: with masks, and without masks by ridge regression, which adds 2.5 times the sum of the squared weights "
    "to the loss. Whose predictions for the two rows change, on average over the masks?",
    {
        "Those of both": "A weight that is a hundredth of the old one repairs the unit. Ridge charges less for it, and "
        "moves. A coin deletes an entry, whatever its unit.",
        "Ridge's only": right(
            "In centimetres a hundredth of the weight does the same work, and ridge charges a ten-thousandth for it. "
            "A coin deletes an entry, and with it its unit."
        ),
        "Dropout's only": "It is the other way round: ridge charges for the size of a weight, which depends on the unit.",
        "Neither": "So it would be for least squares. Ridge charges for the size of a weight, which depends on the unit.",
    },
    reveal=plot_units,
)

patient_prediction = lesson.prediction(
    "12.P2",
    "The 442 patients of lesson 01, ten columns in units of their own: age in years, blood pressure, values of blood. In "
    "each of 20 random splits two penalties are fitted to 40 patients, each times the factor that is best on 100 further "
    "ones: equal penalties (ridge), and penalties in proportion to the squared lengths of the columns (dropout's average). "
    "Which one predicts the other 302 patients better?",
    {
        "Equal penalties, in at least 15 splits": "Equal penalties charge a column that is written in small numbers "
        "more for the same effect. Nothing says that these columns matter less.",
        "About even": "So one might think, since both are tuned. But one factor cannot repair ten units.",
        "Dropout's, in at least 15 splits": right(
            "Here the unit of a column says nothing about its effect, and penalties that ignore it fit better."
        ),
    },
    reveal=plot_patients,
)

arms_prediction = lesson.prediction(
    "12.P3",
    "Besides a network that is left as it is, three are trained, each at its best setting and rate: with coins on the "
    "hidden units, with their mean penalty (12.5) and no coins, and with weight decay, a penalty on all squared weights. "
    "Which order do their shares of wrong answers have, on average over five splits?",
    {
        "Coins are best, then their mean, then weight decay": "So it would be if the noise itself helped, beyond its mean.",
        "Coins and their mean are alike, and better than weight decay": "They are alike. But weight decay, which charges "
        "the first layer directly too, ends lower here.",
        "Weight decay is best, then coins and their mean, alike": right(
            "In these runs most of what hidden coins do is their mean penalty, and weight decay is a better penalty."
        ),
        "All three are alike": "They are all better than nothing, but not to the same degree.",
    },
    reveal=plot_arms,
)

FIGURES = lesson.figures
