"""Figures, explorer and predictions of lesson 03, stochastic_gradient_descent."""

from functools import cache

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor

from course_lib.lessons.stochastic_gradient_descent.contents import lesson
from course_lib.measured import measured
from course_lib.optimization.stochastic_gradient_descent import (
    constants,
    distance_bound_step,
    distance_factor,
    draw_indices,
    exact_rate,
    loss_bound_step,
    loss_factor,
    minimum_norm_solution,
    noisy_equations,
    stochastic_gradient_descent,
)
from course_lib.teaching import Explorer, Slider, Switch, lines, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED

GREY = {"color": "0.6", "linewidth": 0.9, "linestyle": "-"}
MEETING, APART = (0.0, 0.0, 0.0, 0.0), (0.5, -0.4, 0.4, -0.5)  # how far each line is moved from one common point
SIDES = {"left": MEETING, "right": APART}
START = (-1.7, 1.6)


def _normal(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def example_problem(rows: int = 6, columns: int = 10) -> tuple[Tensor, Tensor]:
    """Return the 6 x 10 problem of the two bounds: normal numbers, rows of different lengths, seed 2."""
    generator = torch.Generator().manual_seed(2)
    return _normal(rows, columns, generator=generator), _normal(rows, generator=generator)


def four_lines(side: str) -> tuple[Tensor, Tensor]:
    """Return the four equations of the hook, rows of length 1: those of the "left" picture meet in one point."""
    angles = torch.tensor([0.35, 1.1, 1.9, 2.6], dtype=torch.float64)
    matrix = torch.stack([angles.cos(), angles.sin()], dim=1)
    meeting = matrix @ torch.tensor([0.4, 0.3], dtype=torch.float64)
    return matrix, meeting + torch.tensor(SIDES[side], dtype=torch.float64)


def walk(side: str, *, steps: int, runs: int = 1, step_size: float = 1.0, seed: int = 6) -> Tensor:
    """Return the iterates of SGD on the four lines from the start of the hook, one run a row."""
    matrix, target = four_lines(side)
    indices = draw_indices(4, runs=runs, steps=steps, generator=torch.Generator().manual_seed(seed))
    start = torch.tensor(START, dtype=torch.float64)
    return stochastic_gradient_descent(matrix, target, start, indices, step_size=step_size)


def jumps(side: str, *, steps: int = 30, runs: int = 2000) -> Tensor:
    """Return the length of each jump on the four lines, the mean over many runs."""
    path = walk(side, steps=steps, runs=runs)
    return (path[:, 1:] - path[:, :-1]).norm(dim=2).mean(0)


def _draw_lines(axes, side: str) -> None:
    matrix, target = four_lines(side)
    for row, value in zip(matrix, target, strict=True):
        along = torch.stack([-row[1], row[0]])
        ends = torch.stack([value * row - 4 * along, value * row + 4 * along])
        axes.plot(*ends.T, color="0.6", linewidth=1.3, linestyle="-")


def _draw_start(axes) -> None:
    axes.plot(*START, "o", color=RED, markersize=8)
    axes.text(START[0] + 0.15, START[1] + 0.08, "start", color=RED, fontsize=10)


PLANE = {"xlim": (-2, 2), "ylim": (-2, 2), "aspect": "equal"}


@lesson.figure(
    ["Four lines that meet", "Four lines that do not"],
    "$w[1]$",
    "$w[2]$",
    grid=(1, 2),
    size=(5.4, 2.9),
    legend=None,
    **PLANE,
)
def plot_lines(left, second):
    """Draw the four equations of either side as lines, and the start."""
    for axes, side in ((left, "left"), (second, "right")):
        _draw_lines(axes, side)
        _draw_start(axes)
    return "Four lines in the plane and a start: left, lines that meet in one point, right, lines that do not."


@lesson.figure(
    ["Lines that meet", "Lines that do not", "Length of the jumps"],
    ["$w[1]$", "$w[1]$", "step t"],
    ["$w[2]$", "$w[2]$", "mean of 2,000 runs"],
    grid=(1, 3),
    size=(7.8, 2.9),
    xlim=[(-2, 2), (-2, 2), (0, 31)],
    ylim=[(-2, 2), (-2, 2), (1e-7, 10)],
    yscale=["linear", "linear", "log"],
    aspect=["equal", "equal", "auto"],
    legend=None,
)
def plot_projections(left, second, third):
    """Draw one path on either side, and the mean length of its jumps over many runs."""
    said = []
    for axes, side, color, style in ((left, "left", BLUE, "-"), (second, "right", ORANGE, "--")):
        _draw_lines(axes, side)
        axes.plot(*walk(side, steps=14)[0].T, "-o", color=color, markersize=4, linewidth=1.3)
        _draw_start(axes)
        mean = jumps(side)
        third.plot(np.arange(1, 31), mean, linestyle=style, color=color, linewidth=2)
        said.append(float(mean[29]))
    third.text(15, 0.8, "do not meet", color="#a05a00", fontsize=10)
    third.text(8, 1e-4, "meet", color=BLUE, fontsize=10)
    return (
        f"One path of 14 jumps on either side, and the mean length of the jumps. Step 30: {said[0]:.0e} where the lines "
        f"meet, {said[1]:.2f} where they do not."
    )


@lesson.figure(
    ["Common point: no pull is left", "Best compromise: four pulls"],
    "$w[1]$",
    "$w[2]$",
    grid=(1, 2),
    size=(6.4, 3.3),
    legend=None,
    xlim=(-0.9, 1.6),
    ylim=(-0.7, 1.4),
    aspect="equal",
)
def plot_pulls(left, second):
    """Draw where each of the four equations pulls from some point, and at the best point."""
    said = []
    for axes, side, color in ((left, "left", BLUE), (second, "right", ORANGE)):
        matrix, target = four_lines(side)
        _draw_lines(axes, side)
        best = torch.linalg.pinv(matrix) @ target
        away = torch.tensor([-0.71, 0.84], dtype=torch.float64)
        for share, look in ((1, "0.35"), (0, color)):
            point = best + share * away
            for pull in (target - matrix @ point)[:, None] * matrix:
                if float(pull.norm()) > 1e-9:
                    axes.annotate(
                        "", tuple((point + pull).tolist()), tuple(point.tolist()),
                        arrowprops={"arrowstyle": "-|>", "color": look, "linewidth": 1.5},
                    )  # fmt: skip
            axes.plot(*point, "o", color=BLACK if share else RED, markersize=5 if share else 7)
        axes.annotate(
            "best point", tuple(best.tolist()), (0.6, -0.6), color=RED, arrowprops={"arrowstyle": "-", "color": RED}
        )
        said.append(float((target - matrix @ best).abs().mean()))
    return (
        "From two points, arrows to the nearest points of the four lines. At the best point their mean length is "
        f"{said[0]:.2f} on the left, {said[1]:.2f} on the right."
    )


@lesson.figure(
    "One jump: a right angle",
    "$w[1]$",
    "$w[2]$",
    size=(4.6, 3.4),
    xlim=(-2, 1.2),
    ylim=(-0.6, 1.8),
    aspect="equal",
    legend=None,
)
def plot_pythagoras(axes):
    """Draw one jump of the hook with the distances to the common point before and after it."""
    matrix, target = four_lines("left")
    best = torch.linalg.pinv(matrix) @ target
    path = walk("left", steps=1)[0]
    _draw_lines(axes, "left")
    for a, b, color, style, name, place in (
        (path[0], path[1], BLUE, "-", "jump", (-1.9, 0.5)),
        (path[1], best, GREEN, "-", "new distance", (-0.5, -0.3)),
        (path[0], best, RED, "--", "old distance", (-0.55, 1.3)),
    ):
        axes.plot([a[0], b[0]], [a[1], b[1]], linestyle=style, color=color, linewidth=2.4)
        axes.text(*place, name, color=color, fontsize=10, fontweight="bold")
    axes.plot(*path[0], "o", color=RED, markersize=8)
    axes.plot(*best, "*", color=BLACK, markersize=14)
    lengths = [float(v.norm()) for v in (path[1] - path[0], path[1] - best, path[0] - best)]
    return (
        f"One jump, {lengths[0]:.2f} long, is a short side of a triangle; the new distance, {lengths[1]:.2f}, is the "
        f"other, and the old one, {lengths[2]:.2f}, the long side."
    )


def mean_squared_distances(steps: int, *, step_size: float = 1.0) -> Tensor:
    """Return E||w_t - w*||^2 on the lines that meet, relative to its start, averaged over all draws exactly."""
    matrix, target = four_lines("left")
    error = torch.tensor(START, dtype=torch.float64) - torch.linalg.pinv(matrix) @ target
    second, found = torch.outer(error, error), []
    kept = torch.eye(2, dtype=torch.float64) - step_size * torch.einsum("ni,nj->nij", matrix, matrix)
    for _ in range(steps + 1):
        found.append(second.trace())
        second = (kept @ second @ kept).mean(0)
    return torch.stack(found) / found[0]


@lesson.figure(
    "Two guarantees for one step, and the truth in the long run",
    "step size $\\eta$",
    "1 - factor per step",
    size=(5.6, 3.3),
    xscale="log",
    yscale="log",
    ylim=(2e-4, 0.3),
    legend={"loc": "upper left", "fontsize": 9},
)
def plot_rates(axes):
    """Draw what one step gains against eta: by either bound, and in truth."""
    matrix, _ = example_problem()
    short, best = loss_bound_step(matrix), distance_bound_step(matrix)
    grid = np.geomspace(best / 30, 2.4 * best, 120)
    curves = {}
    for name, factor in (
        ("exact, in the long run", exact_rate),
        ("guaranteed for the distance, (03.3)", distance_factor),
        ("guaranteed for the loss", loss_factor),
    ):
        gains = np.array([1 - factor(matrix, step_size=float(s)) for s in grid])
        curves[name] = grid[gains > 1e-7], gains[gains > 1e-7]
    drawn = lines(axes, grid, curves)
    for (x, y), curve, look in zip(curves.values(), drawn, "^os", strict=True):
        axes.plot([x[y.argmax()]], [y.max()], look, color=curve.get_color(), markersize=8)
    return (
        f"What a step takes away: the guarantee for the loss peaks at {short:.4f}, that for the distance at {best:.3f}, "
        f"{best / short:.1f} times further right. The exact gain in the long run peaks still further right."
    )


TWO_ROWS = torch.tensor([[0.94, 0.34, 0.0], [0.26, 0.97, 0.0]], dtype=torch.float64)
TWO_LABELS = TWO_ROWS @ torch.tensor([1.8, 1.3, 0.0], dtype=torch.float64)
STARTS = ((0.0, 0.0, 0.0), (-0.4, 1.5, 2.6))


def _from_the_side(points: Tensor) -> Tensor:
    """Return where points of the space are drawn: w[2] goes to the back, w[3] up."""
    return torch.stack([points[..., 0] + 0.3 * points[..., 1], 0.6 * points[..., 1] + points[..., 2]], dim=-1)


def zigzags(start: tuple[float, float, float], *, steps: int = 60) -> Tensor:
    """Return two runs on two equations with three unknowns from one start, with different draws."""
    draws = draw_indices(2, runs=2, steps=steps, generator=torch.Generator().manual_seed(1))
    begin = torch.tensor(start, dtype=torch.float64)
    return stochastic_gradient_descent(TWO_ROWS, TWO_LABELS, begin, draws, step_size=0.7)


@lesson.figure(
    "Two equations, three unknowns: no step leaves its plane",
    "",
    "",
    size=(4.8, 4.4),
    xlim=(-1.2, 3.6),
    ylim=(-0.8, 4.4),
    aspect="equal",
    legend=None,
)
def plot_row_space(axes):
    """Draw the line of solutions of two equations in space, and two runs from each of two starts."""
    axes.axis("off")
    corners = torch.tensor([[-0.7, -0.5], [2.7, -0.5], [2.7, 2.5], [-0.7, 2.5]], dtype=torch.float64)
    solution = minimum_norm_solution(TWO_ROWS, TWO_LABELS)
    ends = []
    for start in STARTS:
        height = start[2]
        plane = _from_the_side(torch.cat([corners, torch.full((4, 1), height, dtype=torch.float64)], dim=1))
        axes.fill(*plane.T, color="0.6", alpha=0.18, linewidth=0)
        paths = zigzags(start)
        for path, color, style, look in zip(paths, (BLUE, ORANGE), ("-", "--"), "os", strict=True):
            axes.plot(*_from_the_side(path).T, linestyle=style, marker=look, color=color, markersize=4, linewidth=1.4)
        begin = _from_the_side(paths[0, 0])
        axes.plot(*begin, "o", color=RED, markersize=8)
        axes.text(begin[0] - 0.1, begin[1] + 0.12, "start" if height else "0", color=RED, fontsize=11, ha="right")
        ends.append(", ".join(f"{float(v):.2f}" for v in paths[0, -1]))
    along = torch.tensor([[0, 0, h] for h in (-1.0, 3.4)], dtype=torch.float64)
    axes.plot(*_from_the_side(solution + along).T, color=BLACK, linewidth=1.6, linestyle="-")
    low, high = (_from_the_side(solution + torch.tensor([0, 0, h], dtype=torch.float64)) for _, _, h in STARTS)
    axes.plot(*low, "*", color=BLACK, markersize=14)
    axes.text(low[0] + 0.13, low[1] - 0.25, "shortest", fontsize=10)
    axes.text(high[0] + 0.1, high[1] + 0.7, "all solutions", fontsize=10)
    return (
        "Two runs from each of two starts, with different draws. Their steps stay in the plane through their start that "
        f"the rows span; the line of solutions cuts it in one point: ({ends[0]}) from 0, ({ends[1]}) from the other start."
    )


@lesson.figure(
    "A shorter step has a lower floor and gets there later",
    "step t",
    "mean of $(w_t - 1)^2$",
    size=(6.4, 3.6),
    yscale="log",
    xlim=(0, 60),
    ylim=(2.5e-2, 1.5),
    legend=None,
)
def plot_noise_floor(axes, *, runs: int = 4000, steps: int = 60):
    """Draw E(w_t - 1)^2 for w = 0 and w = 2 at once, with two fixed steps: exact, and means over runs."""
    labels = torch.tensor([0.0, 2.0], dtype=torch.float64)
    ones, start = torch.ones(2, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    indices = draw_indices(2, runs=runs, steps=steps, generator=torch.Generator().manual_seed(3))
    for step_size, color, style, look, floor in ((0.2, BLUE, "-", "o", "1/9"), (0.1, ORANGE, "--", "s", "1/19")):
        exact = [1.0]
        for _ in range(steps):
            exact.append((1 - step_size) ** 2 * exact[-1] + step_size**2)
        axes.plot(exact, linestyle=style, color=color, linewidth=2)
        paths = stochastic_gradient_descent(ones, labels, start, indices, step_size=step_size)[:, :, 0]
        axes.plot(range(0, steps + 1, 6), (paths - 1).square().mean(0)[::6], look, color=color, markersize=5)
        axes.text(59, exact[-1] * 1.1, f"step {step_size:g}, floor {floor}", color=color, ha="right", fontsize=11)
    return f"Mean squared distance to the best w = 1: exact curves, and marks for the means of {runs} runs."


@lesson.figure(
    "1,500 late iterates with full steps, and their mean",
    "$w[1]$",
    "$w[2]$",
    size=(4.2, 3.6),
    legend={"loc": "lower right", "fontsize": 9},
    **PLANE,
)
def plot_cloud(axes, *, steps: int = 3000):
    """Draw the last half of a run on the lines that do not meet, the mean of it, and the best point."""
    matrix, target = four_lines("right")
    path = walk("right", steps=steps)[0, -steps // 2 :]
    best, mean = torch.linalg.pinv(matrix) @ target, path.mean(0)
    _draw_lines(axes, "right")
    axes.lines[0].set_label("_")
    axes.plot(*path.T, ".", color=ORANGE, markersize=3, label=f"last {steps // 2:,} iterates")
    axes.plot(*best, "o", markerfacecolor="none", markeredgecolor=BLACK, markersize=14, label="best point")
    axes.plot(*mean, "x", color=BLUE, markersize=9, markeredgewidth=2.5, label="mean of the iterates")
    spread = float((path - best).norm(dim=1).mean())
    return (
        f"The iterates lie on average {spread:.2f} from the best point. Their mean misses it by "
        f"{float((mean - best).norm()):.3f}."
    )


ARMS = {
    "fixed, last iterate": ("last iterate, fixed step", RED, "-", "o"),
    "falling to 0 on a line": ("step falls to 0 on a line", GREEN, "--", "s"),
    "fixed, mean of the last half": ("mean of the last half", BLUE, "-.", "^"),
    "fixed, mean of the last 90%": ("mean of the last 90%", PURPLE, ":", "v"),
    "rows in a new order each pass, falling to 0 on a line": ("new order each pass, step falls", BLACK, "-", "D"),
}
RIVALS = {
    "falling to 0 on a line, mean of the last 90%": "step falls on a line, mean of the last 90%",
    "falling like 1/(1 + t/10)": "step falls like 1/(1 + t/10)",
    "all 60 rows a step, 50 steps": "gradient descent, 50 steps of 60 rows",
}
KNOWN = "falling like 1/t, curvature known"


@cache
def stored(arm: str) -> dict[float, list[float]]:
    """Return the stored excess losses of an arm by step size, one for each problem."""
    return {float(s): values for s, values in measured("averaging", arm)["excess by step size"].items()}


def tuned(arm: str) -> list[float]:
    """Return the stored excess losses of an arm at its best step size, one for each problem."""
    return measured("averaging", arm)["excess"]


@lesson.figure(
    "3,000 steps on equations that contradict each other",
    "first step $\\eta$",
    "excess loss",
    size=(5.8, 4.0),
    xscale="log",
    yscale="log",
    xlim=(7e-4, 1.4),
    ylim=(1e-6, 300),
    legend={"loc": "upper left", "fontsize": 9, "ncols": 2},
)
def plot_closing(axes):
    """Draw the stored excess loss of each arm against its first step: median and range of five problems."""
    said = []
    for arm, (name, color, style, look) in ARMS.items():
        found = dict(sorted(stored(arm).items()))
        values = np.sort(np.array(list(found.values())), axis=1)
        axes.fill_between(list(found), values[:, 0], values[:, -1], color=color, alpha=0.12, linewidth=0)
        axes.plot(list(found), values[:, 2], linestyle=style, marker=look, color=color, markersize=5, label=name)
        said.append(f"{name} {values[-1, 2]:.4f}")
    best = np.median(tuned(KNOWN))
    axes.axhline(best, color="0.4", linewidth=1, linestyle=":")
    axes.text(8e-4, best * 0.85, "1/t, curvature known", color="0.3", fontsize=9, va="top")
    return f"Stored run: median and range of five problems. At step 1: {'; '.join(said)}."


def closing_table() -> Markdown:
    """Return the stored figures of each arm: at step 1, and at its best step."""
    number = lambda value: f"{value:.4f}" if value > 1e-4 else f"{value:.0e}"  # noqa: E731
    show = lambda values: f"{number(sorted(values)[2])} ({number(min(values))}–{number(max(values))})"  # noqa: E731
    rows = []
    for arm, name in ({arm: name for arm, (name, *_) in ARMS.items()} | RIVALS).items():
        best = measured("averaging", arm)
        size = 1 / best["best step size"]
        rows.append((name, show(stored(arm)[1.0]), show(best["excess"]), f"1/{size:.0f}" if size > 1 else "1"))
    rows.append(("step falls like 1/t, curvature known", "–", show(tuned(KNOWN)), "–"))
    return markdown_table(("what is reported", "first step 1", "best first step", "which"), rows)


EQUATIONS, SEED = 12, 16


def twelve_equations(columns: int, *, noise: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return the 12 equations of the explorer, rows of length 1, for one number of unknowns."""
    return noisy_equations(EQUATIONS, columns, noise=noise, seed=SEED)


def relative_losses(
    matrix: Tensor, target: Tensor, *, step_size: float, steps: int, runs: int, seed: int = 1
) -> np.ndarray:
    """Return L(w_t) / L(w_0) of several runs from 0, one a row, with one and the same draws for every problem."""
    rows = np.asarray(matrix)
    labels = np.asarray(target)
    generator = torch.Generator().manual_seed(seed)
    drawn = draw_indices(len(rows), runs=runs, steps=steps, generator=generator)[..., 0].numpy().T
    weights, path = np.zeros((runs, rows.shape[1])), np.empty((steps + 1, runs, rows.shape[1]))
    path[0] = weights
    for t, which in enumerate(drawn):
        seen = rows[which]
        weights = weights + step_size * (labels[which] - (seen * weights).sum(1))[:, None] * seen
        path[t + 1] = weights
    losses = np.square(path @ rows.T - labels).sum(-1)
    return (losses / losses[0]).T


@lesson.explorer
class SgdExplorer(Explorer):
    """Six runs of SGD on 12 equations, with and without a common solution."""

    title = "Twelve equations, one of them drawn at each step"
    summary = (
        "The loss relative to its start for six runs from 0, their median, the least loss that any weights have, and, if "
        "asked for, what is guaranteed for the mean."
    )
    columns = Slider("unknowns", "d", "How many weights there are", 3, 2, 24, 1)
    step_size = Slider(
        "step size", "η", "1 goes straight to the nearest point of the drawn equation", 1.0, 0.1, 2.2, 0.1
    )
    noise = Slider(
        "label noise", "s", "Standard deviation of what is added to labels of a linear teacher", 1.0, 0, 1, 0.1
    )
    guarantee = Switch("Reveal the guarantee", "Draw what (03.3) guarantees for the mean loss, where it applies")
    together = ("columns", "noise")
    size = (7.6, 3.0)
    dpi = 100
    strip_scale = 0.55
    steps = 600
    runs = 6
    layout = panels(
        "Six runs and their median",
        "step t",
        "$L(w_t)\\,/\\,L(w_0)$",
        legend={"loc": "upper left", "fontsize": 8, "ncols": 3},
        xlim=(0, steps),
        ylim=(1e-12, 1e6),
        yscale="log",
    )

    def compute(self, *, columns, step_size, noise, guarantee):
        """Return the relative losses of the runs, their median, the least loss, and the guarantee."""
        matrix, target = twelve_equations(columns, noise=noise)
        losses = relative_losses(matrix, target, step_size=step_size, steps=self.steps, runs=self.runs)
        best = torch.linalg.pinv(matrix) @ target
        start = float(target.square().sum())
        least = float((matrix @ best - target).square().sum()) / start
        known, t = constants(matrix), np.arange(self.steps + 1)
        promised, common = ([], []), least < 1e-20
        if guarantee and common and step_size <= 2:
            scale = known.largest * float(best.square().sum()) / start
            promised = (t, np.clip(scale * distance_factor(matrix, step_size=step_size) ** t, 1e-12, 1e3))
        kept = np.clip(losses, 1e-12, 1e3)
        return {
            "runs": [(t, run) for run in kept],
            "median": (t, np.median(kept, axis=0)),
            "least": ([0, self.steps], [least, least] if not common else [1e-13, 1e-13]),
            "promised": promised,
            "none": "" if not guarantee else "guaranteed for the mean" if len(promised[0]) else "nothing is guaranteed",
            "end": float(np.median(losses[:, -1])),
            "common": common,
            "least_share": least,
            "smallest": known.smallest,
            "guarantee": guarantee,
            "settings": (columns, step_size, noise),
        }

    def draw(self, axes):
        """Draw empty curves, to be moved."""
        runs = [axes.plot([], [], **GREY, label="_run" if i else "six runs")[0] for i in range(self.runs)]
        (median,) = axes.plot([], [], color=BLUE, linewidth=2.4, linestyle="-", label="median")
        (least,) = axes.plot([], [], color=BLACK, linestyle=":", label="least loss")
        (promised,) = axes.plot([], [], color=RED, linewidth=2, linestyle="--")
        none = axes.text(0.02, 0.05, "", transform=axes.transAxes, color=RED)
        return {"runs": runs, "median": median, "least": least, "promised": promised, "none": none}

    def words(self, state):
        """Say where the runs end and what the least loss is."""
        columns, step_size, noise = state["settings"]
        end = (
            f"{state['end']:.2g}" if 1e-12 < state["end"] < 1e3 else "under 1e-12" if state["end"] < 1 else "over 1,000"
        )
        least = "0" if state["common"] else f"{state['least_share']:.2g}"
        said = (
            f"d = {columns}, η = {step_size:.1f}, noise {noise:.1f}: after {self.steps} steps the median loss "
            f"is {end} of the "
            f"start. The least that any weights have is {least}."
        )
        if not state["guarantee"]:
            return said
        if not state["common"]:
            return f"{said} No weights solve all 12 equations: nothing is guaranteed."
        if step_size > 2:
            return f"{said} For η above 2 nothing is guaranteed."
        return f"{said} σ_min² = {state['smallest']:.2g}."


jump_prediction = lesson.prediction(
    "03.P1",
    "Each step draws one of the four lines at random and goes straight to its nearest point. Steps are never "
    "shortened. Do the "
    "jumps die out?",
    {
        "On neither side": "On both sides the draws stay random, and each step goes all the way to a line. But "
        "where all lines "
        "meet, the way to the next line becomes short.",
        "Only on the left, like 1/t": "They die out on the left only, and much faster: a jump takes away a share of the "
        "distance that is left.",
        "Only on the left, exponentially": right(
            "Each jump takes away a share of the distance to the common point, and the next jump cannot be longer than that "
            "distance. On the right there is no such point."
        ),
        "On both sides": "On the right, wherever the last step ended, the other lines pass at a distance.",
    },
    reveal=plot_projections,
)

solution_prediction = lesson.prediction(
    "03.P2",
    "Twelve equations with 24 unknowns have many solutions. Two runs leave the same random point, which is not "
    "0, draw different "
    "equations, and both solve all twelve. Where do they end?",
    {
        "At two different solutions": "The draws change the way, and not the end: every step is a multiple of a "
        "row, and only "
        "one solution can be reached by such steps.",
        "Both at the shortest solution": "That is where runs from 0 end. What this start has outside the rows' "
        "span is never "
        "touched, and stays.",
        "Both at the solution nearest to the start": right(
            "The steps add up to a combination of rows, at a right angle to all differences of solutions."
        ),
    },
    reveal=plot_row_space,
)

floor_prediction = lesson.prediction(
    "03.P3",
    "Sixty equations with 3 unknowns contradict each other. You have 3,000 steps, the first of length η = 1, "
    "and no time to try "
    "another. Which weights have the smallest excess loss?",
    {
        "The last ones, if η is halved to 0.5 from the start": "Half the step brings the excess from 0.99 to "
        "0.31. The two others gain much more.",
        "The last ones, if η falls to 0 on a line": "The jumps become short only near the end, and what earlier "
        "ones left is not "
        "yet forgotten. It ends several times above the mean of full steps.",
        "The mean of the last 1,500, all steps of full length": right(
            "Full steps forget quickly, so that 1,500 iterates are many nearly independent looks at the same centre."
        ),
        "The last two come out within a factor of two": "They differ by more: the mean of full steps is several "
        "times lower.",
    },
    reveal=plot_closing,
)

FIGURES = lesson.figures
