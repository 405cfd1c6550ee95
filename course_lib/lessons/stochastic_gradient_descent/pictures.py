"""Figures, explorer and predictions of lesson 02, stochastic_gradient_descent."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from course_lib.lessons.stochastic_gradient_descent.contents import lesson
from course_lib.optimization.stochastic_gradient_descent import (
    constants,
    distance_bound_step,
    distance_factor,
    draw_indices,
    exact_rate,
    expected_losses,
    loss_bound_step,
    loss_constants,
    loss_factor,
    minimum_norm_solution,
    stochastic_gradient_descent,
)
from course_lib.teaching import Explorer, Slider, lines, panels
from course_lib.teaching.style import BLACK, BLUE, RED

GREY = {"color": "0.6", "linewidth": 0.9, "linestyle": "-"}


def _normal(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def example_problem(rows: int = 6, columns: int = 10) -> tuple[Tensor, Tensor]:
    """Return the matrix and the targets that this lesson's figures use: normal numbers, seed 2."""
    generator = torch.Generator().manual_seed(2)
    return _normal(rows, columns, generator=generator), _normal(rows, generator=generator)


def question_runs(columns: Sequence[int] = (24, 3), *, steps: int = 400) -> tuple[dict[str, Tensor], float]:
    """Return the losses of SGD on 6 equations with the same targets and 24 or 3 unknowns; the last one's least loss."""
    generator = torch.Generator().manual_seed(0)
    y = _normal(6, generator=generator)
    losses = {}
    for count in columns:
        matrix = _normal(6, count, generator=generator)
        indices = draw_indices(6, steps=steps, generator=generator)
        start = torch.zeros(count, dtype=torch.float64)
        step_size = 0.5 / float(matrix.square().sum(1).max())
        path = stochastic_gradient_descent(matrix, y, start, indices, step_size=step_size)[0]
        losses[f"{count} unknowns"] = (path @ matrix.T - y).square().sum(-1)
    return losses, float((matrix @ torch.linalg.lstsq(matrix, y[:, None]).solution[:, 0] - y).square().sum())


@lesson.figure(
    "One sample a step, with a fixed step size in each problem",
    "step t",
    "loss $L(w_t)$",
    yscale="log",
    ylim=(1e-8, 1e3),
    example=question_runs,
)
def plot_question(axes, losses: Mapping[str, Tensor], floor: float):
    """Draw one loss curve a problem on a logarithmic axis, and the least loss that the second one has."""
    lines(axes, None, losses, linewidth=1.4)
    axes.axhline(floor, color=BLACK, linewidth=1, linestyle=":", label=f"least loss of the second, {floor:.2f}")
    (many, first), (few, second) = losses.items()
    return (
        f"Loss against step on a logarithmic axis for SGD with one sample a step. With {many} it falls along a straight "
        f"line, from {float(first[0]):.0f} to below {10 ** math.ceil(math.log10(first[-1])):.0e}. With {few} it jumps about "
        f"above the least loss that it can have, {floor:.2f}, and ends at {float(second[-1]):.1f}."
    )


@lesson.figure(
    "One equation, two unknowns: every step goes along the row",
    "$w[1]$",
    "$w[2]$",
    size=(5.6, 4.2),
    xlim=(-1.2, 3.2),
    ylim=(-1.2, 2.5),
    aspect="equal",
    legend={"loc": "lower left", "fontsize": 8},
)
def plot_row_space(axes, *, steps: int = 12):
    """Draw the solutions of 2 w[1] + w[2] = 4, and SGD from three starts."""
    row, target = torch.tensor([[2.0, 1.0]], dtype=torch.float64), torch.tensor([4.0], dtype=torch.float64)
    indices = torch.zeros(1, steps, 1, dtype=torch.long)
    first = torch.tensor([-1.0, 3.0], dtype=torch.float64)
    axes.plot(first, 4 - 2 * first, color=BLACK, linewidth=1.4, linestyle="-", label="all solutions of $x^T w = y$")
    axes.plot([-2, 4], [-1, 2], color=RED, linewidth=1, linestyle=":", label="row space: multiples of x")
    ends = []
    for start, look in (([0.0, 0.0], "o"), ([-0.4, 1.6], "s"), ([2.6, 1.8], "^")):
        begin = torch.tensor(start, dtype=torch.float64)
        path = stochastic_gradient_descent(row, target, begin, indices, step_size=0.08)[0]
        axes.plot(*path.T, "-" + look, color=BLUE, markersize=4, label=f"from ({start[0]:g}, {start[1]:g})")
        ends.append(f"({float(path[-1, 0]):.2f}, {float(path[-1, 1]):.2f})")
    axes.plot(*minimum_norm_solution(row, target), "*", color=BLACK, markersize=15, label="shortest solution $w^*$")
    return (
        "The solutions of one equation in two unknowns form a line. SGD from three starts moves parallel to the row x, "
        f"at a right angle to that line, and ends at {', '.join(ends)}: only from 0 is this the solution nearest to 0."
    )


def projections(labels: Sequence[float], *, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return four unit rows of two columns, the targets, and the path of steps 1/||x||^2 from a far start."""
    angles = torch.tensor([0.35, 1.1, 1.9, 2.6], dtype=torch.float64)
    matrix = torch.stack([angles.cos(), angles.sin()], dim=1)
    target = matrix @ torch.tensor([0.4, 0.3], dtype=torch.float64) + torch.tensor(labels, dtype=torch.float64)
    start = torch.tensor([-1.7, 1.6], dtype=torch.float64)
    indices = draw_indices(4, steps=steps, generator=torch.Generator().manual_seed(6))
    return matrix, target, stochastic_gradient_descent(matrix, target, start, indices, step_size=1.0)[0]


@lesson.figure(
    ["A common solution", "No common solution"],
    "$w[1]$",
    "$w[2]$",
    grid=(1, 2),
    size=(8.8, 4.2),
    xlim=(-2, 2),
    ylim=(-2, 2),
    aspect="equal",
    legend=["lower right", None],
)
def plot_projections(left, right, *, steps: int = 14):
    """Draw four equations as lines and the path that goes to the nearest point of the line drawn at each step."""
    last = []
    for axes, labels in ((left, (0.0,) * 4), (right, (0.5, -0.4, 0.4, -0.5))):
        matrix, target, path = projections(labels, steps=steps)
        for i, (row, value) in enumerate(zip(matrix, target, strict=True)):
            along = torch.stack([-row[1], row[0]])
            ends = torch.stack([value * row - 4 * along, value * row + 4 * along])
            axes.plot(
                *ends.T, color="0.6", linewidth=1.2, linestyle="-", label="_" if i else "one line for each equation"
            )
        axes.plot(*path.T, "-o", color=BLUE, markersize=4, linewidth=1.3, label="iterates")
        axes.plot(*path[0], "o", color=RED, markersize=8, label="start")
        last.append(float((path[1:] - path[:-1])[-5:].norm(dim=1).mean()))
    return (
        "Four equations in two unknowns as lines; each step goes straight to the nearest point of the line that was "
        f"drawn. Left, the lines meet in one point and the last five steps are {last[0]:.2f} long on average. Right, they "
        f"do not meet, and the last five steps still have a mean length of {last[1]:.2f}."
    )


@lesson.figure(
    x="step t",
    y="$L(w_t)\\,/\\,L(w_0)$",
    size=(8.6, 3.9),
    grid=(1, 2),
    subplots={"sharey": True},
    yscale="log",
    ylim=(1e-8, 1e2),
    legend="lower left",
)
def plot_two_steps(left, right, *, steps: int = 200, runs: int = 4):
    """Draw runs, exact expected loss and bounds for eta* = C_1 / (2 C_2) and for 1 / rho^2."""
    matrix, target = example_problem()
    start = torch.zeros(matrix.shape[1], dtype=torch.float64)
    indices = draw_indices(len(target), runs=runs, steps=steps, generator=torch.Generator().manual_seed(1))
    distance = constants(matrix).largest * float(minimum_norm_solution(matrix, target).square().sum())
    t, said = np.arange(steps + 1), []
    for axes, name, step_size in (
        (left, "$\\eta^* = C_1/(2C_2)$", loss_bound_step(matrix)),
        (right, "$\\eta = 1/\\rho^2$", distance_bound_step(matrix)),
    ):
        expected = expected_losses(matrix, target, start, step_size=step_size, steps=steps)
        paths = stochastic_gradient_descent(matrix, target, start, indices, step_size=step_size)
        losses = (paths @ matrix.T - target).square().sum(-1)
        axes.plot(t, losses.T / expected[0], **GREY, label=["four runs", *["_run"] * (runs - 1)])
        lines(axes, t, {"expected loss": expected / expected[0]}, linewidth=2.4)
        if (factor := loss_factor(matrix, step_size=step_size)) < 1:
            lines(axes, t, {"bound on the loss": factor**t}, first=1)
        bound = distance / float(expected[0]) * distance_factor(matrix, step_size=step_size) ** t
        lines(axes, t, {"bound by the distance": bound}, first=2)
        axes.set_title(f"{name} = {step_size:.4f}")
        said.append(float(expected[-1] / expected[0]))
    return (
        f"Relative loss against step, for two step sizes on the same 6 x 10 problem. Left, the step that is best for "
        f"the bound on the loss: after {steps} steps the expected loss is {said[0]:.2g} of the start. Right, the step "
        f"1 / rho squared: it is {said[1]:.1g}, although the bound on the loss promises nothing there; only the bound "
        "by the distance falls."
    )


@lesson.figure(
    "What a step gains: two guarantees and the truth",
    "step size $\\eta$",
    "1 - factor of one step",
    xscale="log",
    yscale="log",
    ylim=(2e-4, 0.3),
    legend={"loc": "upper left", "fontsize": 8},
)
def plot_rates(axes):
    """Draw what one step gains against eta: by either bound, and in truth."""
    matrix, _ = example_problem()
    short, best = loss_bound_step(matrix), distance_bound_step(matrix)
    grid = np.geomspace(best / 30, 2.4 * best, 120)
    curves = {}
    for name, factor in (
        ("exact, in the long run", exact_rate),
        ("bound on the loss", loss_factor),
        ("bound on the distance", distance_factor),
    ):
        gains = np.array([1 - factor(matrix, step_size=float(s)) for s in grid])
        curves[name] = grid[gains > 1e-7], gains[gains > 1e-7]
    lines(axes, grid, curves)
    axes.plot([short], [1 - loss_factor(matrix, step_size=short)], "s", color=BLACK, label="$\\eta^*$")
    axes.plot([best], [1 - distance_factor(matrix, step_size=best)], "o", color=BLACK, label="$1/\\rho^2$")
    return (
        f"One minus the factor of one step against the step size, both logarithmic. The bound on the loss peaks at "
        f"{short:.4f} and ends at twice that; the bound on the distance peaks at {best:.3f}, {best / short:.1f} times "
        "further right and as many times higher. The exact gain lies above both and peaks still further right."
    )


@lesson.figure(
    "The floor of a fixed step",
    "step t",
    "mean of $(w_t - 1)^2$",
    yscale="log",
    ylim=(8e-3, 1.5),
    legend={"loc": "lower left", "ncols": 2},
)
def plot_noise_floor(axes, *, runs: int = 4000, steps: int = 60):
    """Draw E(w_t - 1)^2 for w = 0 and w = 2 at once: two fixed steps and eta_t = 1/(t + 1)."""
    labels = torch.tensor([0.0, 2.0], dtype=torch.float64)
    ones, start = torch.ones(2, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    indices = draw_indices(2, runs=runs, steps=steps, generator=torch.Generator().manual_seed(3))
    t = torch.arange(steps, dtype=torch.float64)
    curves, measured = {}, []
    for name, step_size in (
        ("0.2", torch.full_like(t, 0.2)),
        ("0.1", torch.full_like(t, 0.1)),
        ("1/(t+1)", 1 / (t + 1)),
    ):
        exact = [1.0]
        for eta in step_size.tolist():
            exact.append((1 - eta) ** 2 * exact[-1] + eta**2)
        curves[name] = exact
        paths = stochastic_gradient_descent(ones, labels, start, indices, step_size=step_size)[:, :, 0]
        measured.append((paths - 1).square().mean(0)[::6])
    for curve, means, marker in zip(lines(axes, None, curves), measured, "os^", strict=True):
        axes.plot(range(0, steps + 1, 6), means, marker, color=curve.get_color(), markersize=4)
    axes.axhline(1 / 9, color=BLACK, linewidth=0.9, linestyle=":", label="1/9")
    axes.axhline(1 / 19, color=BLACK, linewidth=0.9, linestyle=(0, (1, 4)), label="1/19")
    return (
        f"Mean squared distance to the best w = 1 against step, exact curves and means over {runs} runs. With step "
        "0.2 it falls fast and stays at 1/9, with 0.1 it falls slower and stays at 1/19, about half of that; with the "
        "shrinking step 1/(t + 1) it keeps falling as 1/t."
    )


@lesson.figure(
    ["The step stops growing", "Steps saved, rows spent"],
    "batch size b",
    ["step size", "to a factor of one millionth"],
    size=(8.6, 3.9),
    grid=(1, 2),
    xscale="log",
    yscale="log",
    ylim=[(0.05, 2), None],
    legend="upper left",
)
def plot_batch(left, right, batches: Sequence[int] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)):
    """Draw the best guaranteed step, and steps and rows to a millionth, against the batch size."""
    matrix, _ = example_problem()
    best = [distance_bound_step(matrix, batch=b) for b in batches]
    rates = [exact_rate(matrix, step_size=s, batch=b) for b, s in zip(batches, best, strict=True)]
    needed = [math.log(1e-6) / math.log(rate) for rate in rates]
    rows = [b * t for b, t in zip(batches, needed, strict=True)]
    whole = len(matrix) / constants(matrix).largest
    lines(left, batches, {"$1/\\rho_b^2$": best}, marker="o")
    lines(left, batches, {"$b/\\rho^2$": [b * best[0] for b in batches]}, first=1)
    left.axhline(whole, color=BLACK, linestyle=":", label="$n/\\sigma_{max}^2$")
    lines(right, batches, {"steps": needed, "rows looked at": rows}, marker="o")
    return (
        f"Left: the best step of the distance bound against the batch size grows from {best[0]:.3f} at b = 1 and "
        f"flattens below {whole:.3f}, while the line of linear scaling goes on. Right: the number of steps to a "
        f"millionth falls from {needed[0]:.0f} to {needed[-1]:.0f} between b = 1 and b = {batches[-1]}, and the number "
        f"of rows looked at rises from {rows[0]:.0f} to {rows[-1]:.0f}."
    )


def _curve(losses):
    """Losses from step 0 on, kept within what a logarithmic axis can show."""
    return np.arange(len(losses)), np.clip(np.asarray(losses), 1e-12, 1e6)


@lesson.explorer
class SgdExplorer(Explorer):
    """Runs of SGD and their exact mean beside the two bounds, with and without a common solution."""

    title = "Stochastic gradient descent on n equations with d unknowns"
    summary = (
        "Left: the loss relative to its start for six runs, their exact mean, and the two bounds where they hold. "
        "Right: what one step is guaranteed to gain, against the step size."
    )
    step_size = Slider(
        "step size", "η", "How far one step goes along the batch's mean of x (y - xᵀw), so c = 1", 0.6, 0.05, 2.5, 0.05
    )
    rows = Slider("equations", "n", "How many samples there are: rows of X", 8, 2, 16, 1)
    columns = Slider(
        "unknowns",
        "d",
        "How many weights there are: columns of X. Below n there is no common solution of noisy labels",
        20,
        2,
        32,
        1,
    )
    batch = Slider("batch size", "b", "How many rows one step looks at, drawn with replacement", 1, 1, 16, 1)
    noise = Slider(
        "label noise", "s", "Standard deviation of what is added to the labels of a linear teacher", 0.5, 0.0, 1.0, 0.05
    )
    together = ("rows", "columns")
    size = (9.6, 4.0)
    steps = 150
    runs = 6
    layout = panels(
        ["Loss of six runs, and what is guaranteed", "1 - factor, by each bound"],
        ["step t", "step size $\\eta$"],
        ["$L(w_t)\\,/\\,L(w_0)$", "guaranteed gain of a step"],
        grid=(1, 2),
        subplots={"width_ratios": (1.25, 1)},
        legend=[{"loc": "lower left", "fontsize": 8}, {"loc": "upper left", "fontsize": 8}],
        xlim=[(0, steps), (0.01, 3)],
        ylim=[(1e-8, 1e3), (1e-5, 1)],
        xscale=["linear", "log"],
        yscale="log",
    )

    def compute(self, *, step_size, rows, columns, batch, noise):
        """Return relative losses of the runs, of their exact mean and of the bounds, and the guaranteed gains."""
        generator = torch.Generator().manual_seed(5)
        numbers = _normal(16, 32, generator=generator)
        teacher, errors = _normal(32, generator=generator), _normal(16, generator=generator)
        chances = torch.rand(self.runs, self.steps, 16, generator=generator)
        matrix = numbers[:rows, :columns] / math.sqrt(columns)
        target = matrix @ teacher[:columns] + noise * errors[:rows]
        start = torch.zeros(columns, dtype=torch.float64)
        indices = (chances[:, :, :batch] * rows).long()
        paths = stochastic_gradient_descent(matrix, target, start, indices, step_size=step_size)
        expected = expected_losses(matrix, target, start, step_size=step_size, steps=self.steps, batch=batch)
        solution = torch.linalg.pinv(matrix) @ target
        floor = float((target - matrix @ solution).square().sum() / expected[0])
        common = floor < 1e-20
        known, (linear, quadratic) = constants(matrix, batch=batch), loss_constants(matrix, batch=batch)

        def gains(eta):
            """What one step is guaranteed to gain, by the bound on the loss and by that on the distance."""
            return linear * eta - quadratic * eta**2, (2 * eta - known.rho * eta**2) * known.smallest / known.rows

        by_loss, by_distance = gains(step_size)
        first = known.largest * float(solution.square().sum() / expected[0])
        t, grid, nothing = np.arange(self.steps + 1), np.geomspace(0.01, 3, 90), ([], [])
        return {
            "runs": [_curve(run) for run in (paths @ matrix.T - target).square().sum(-1) / expected[0]],
            "mean": _curve(expected / expected[0]),
            # A bound that does not hold is left out.
            "by_loss": _curve((1 - by_loss) ** t) if common else nothing,
            "by_distance": _curve(first * (1 - by_distance) ** t) if common and by_distance >= 0 else nothing,
            "gains": [(grid[gain > 1e-6], gain[gain > 1e-6]) if common else nothing for gain in gains(grid)],
            "floor": nothing if common else ((0, self.steps), (floor, floor)),
            "no_bound": "" if common else "no common solution:\nneither bound holds",
            "here": ((step_size, step_size), (1e-5, 1)),
            "smallest_loss": floor,
            "common": common,
            "known": known,
            "settings": (step_size, rows, columns, batch, noise),
        }

    def draw(self, decay, gains):
        """Draw empty curves, to be moved."""
        runs = [decay.plot([], [], **GREY, label="_run" if i else "six runs")[0] for i in range(self.runs)]
        mean, loss, distance = lines(decay, [], ["exact mean", "bound on the loss", "bound by the distance"])
        mean.set_linewidth(2.6)
        (floor,) = decay.plot([], [], color=BLACK, linestyle=":", label="smallest loss")
        curves = lines(gains, [], ["loss", "distance"], first=1)
        (here,) = gains.plot([], [], color=BLACK, linestyle=":", linewidth=1.2, label="$\\eta$ now")
        no_bound = gains.text(0.5, 0.5, "", transform=gains.transAxes, ha="center", va="center")
        bounds = {"by_loss": loss, "by_distance": distance, "gains": curves, "no_bound": no_bound}
        return {"runs": runs, "mean": mean, "floor": floor, "here": here, **bounds}

    def words(self, state):
        """Say whether a common solution exists, where the mean ends, and what the bounds promise."""
        step_size, rows, columns, batch, noise = state["settings"]
        known, end = state["known"], state["mean"][1][-1]
        about = f"η = {step_size:.2f}, n = {rows}, d = {columns}, b = {batch}, label noise {noise:.2f}: "
        share = f"{end:.3g}" if end > 1e-12 else "less than 1e-12"
        ends = f"after {self.steps} steps the mean loss is {share} of its start"
        if end > 1:
            return f"{about}this step is too long, {ends if end < 1e5 else 'the mean loss explodes'}."
        if not state["common"]:
            return (
                f"{about}no common solution, so a fixed step keeps a floor: {ends}, and the smallest possible loss "
                f"is {state['smallest_loss']:.3g} of it. The bounds do not apply."
            )
        limit = 2 * known.smallest / (known.largest * known.rho)
        promise = "promises a fall" if step_size < limit else "promises nothing"
        return (
            f"{about}a common solution exists, {ends}. The bound on the loss {promise} (its limit is {limit:.3g}); the "
            f"bound by the distance is best at {1 / known.rho:.3g} and holds to {2 / known.rho:.3g}."
        )


step_prediction = lesson.prediction(
    "02.P1",
    "For 6 equations with 10 unknowns one can prove: a step of size $\\eta$ multiplies the expected loss by at most "
    "$1 - C_1\\eta + C_2\\eta^2$, with two positive numbers $C_1, C_2$ that the equations determine. This bound is smallest "
    "at $\\eta^* = C_1/(2C_2) = 0.0083$. At $\\eta = 1/\\rho^2 = 0.0809$, where $\\rho$ is the length of the longest "
    "row, the bound is above 1. After 200 steps, which of the two has the smaller expected loss?",
    {
        "η*, since its bound is the smallest": "The smallest bound is not the smallest loss: the bound pairs the "
        "worst error for what a step gains with the worst one for what it costs, and no error is both at once.",
        "1/ρ², by orders of magnitude": "The bound on the loss cannot see it, the bound on the distance can.",
        "Neither: at 1/ρ² the loss grows": "A bound above 1 does not say that the loss grows. It says nothing.",
    },
    answer="1/ρ², by orders of magnitude",
    reveal=plot_two_steps,
)

floor_prediction = lesson.prediction(
    "02.P2",
    "Two equations that contradict each other, $w = 0$ and $w = 2$. With $\\eta = 0.2$ the iterates end up with "
    "variance 1/9 around the best $w = 1$. What does halving the step to 0.1 do to that variance?",
    {
        "It stays the same, only slower": "The step scales every kick that a sample gives, so a shorter step is "
        "kicked about less.",
        "It is about halved": "η/(2 - η) is nearly proportional to η: 1/19 instead of 1/9.",
        "It is about a quarter": "A single kick has a quarter of the variance, but it is forgotten half as fast, "
        "so twice as many add up.",
    },
    answer="It is about halved",
    reveal=plot_noise_floor,
)

FIGURES = lesson.figures
