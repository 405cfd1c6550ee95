"""Figures, explorer, predictions and exercises of lesson 02, stochastic_gradient_descent."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.optimization.stochastic_gradient_descent import (
    constants,
    distance_bound_step,
    distance_factor,
    draw_indices,
    exact_rate,
    expected_change,
    expected_losses,
    loss_bound_step,
    loss_factor,
    minimum_norm_solution,
    stochastic_gradient_descent,
)
from course_lib.teaching.exercise import Exercise, Mistake, Property
from course_lib.teaching.explorer import Explorer, Slider
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.style import BLACK, BLUE, GREEN, RED, describe, new_figure, styled


def _normal(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def example_problem(rows: int = 6, columns: int = 10) -> tuple[Tensor, Tensor]:
    """Return the matrix and the targets that this lesson's figures use: normal numbers, seed 2."""
    generator = torch.Generator().manual_seed(2)
    return _normal(rows, columns, generator=generator), _normal(rows, generator=generator)


# Figures


@styled
def plot_question(losses: Mapping[str, Tensor]) -> Figure:
    """Draw one loss curve a problem on a logarithmic axis."""
    figure = new_figure(6.4, 3.8)
    axes = figure.add_subplot()
    for name, loss in losses.items():
        axes.semilogy(loss, label=name, linewidth=1.4)
    axes.set(
        xlabel="step t", ylabel="loss $L(w_t)$", ylim=(1e-8, 1e3), title="The same rule, the same fixed step"
    )
    axes.legend(loc="lower left")
    ends = "; ".join(f"{name}: from {float(v[0]):.2g} to {float(v[-1]):.1g}" for name, v in losses.items())
    return describe(
        figure,
        f"Loss against step on a logarithmic axis for SGD with one sample a step. {ends}. The first curve falls "
        "along a straight line, the second one stays at its level and jumps about.",
    )


def question_runs(columns: Sequence[int] = (24, 3), *, steps: int = 400) -> dict[str, Tensor]:
    """Return the losses of SGD on 6 equations with the same targets and 24 or 3 unknowns."""
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
    return losses


@styled
def plot_two_steps(*, steps: int = 200, runs: int = 4) -> Figure:
    """Draw runs, exact expected loss and bounds for eta* = C_1 / (2 C_2) and for 1 / rho^2."""
    figure = new_figure(8.6, 3.9)
    matrix, target = example_problem()
    start = torch.zeros(matrix.shape[1], dtype=torch.float64)
    known, t = constants(matrix), np.arange(steps + 1)
    indices = draw_indices(len(target), runs=runs, steps=steps, generator=torch.Generator().manual_seed(1))
    distance = known.largest * float(minimum_norm_solution(matrix, target).square().sum())
    said = []
    for axes, (name, step_size) in zip(
        figure.subplots(1, 2, sharey=True),
        (
            ("$\\eta^* = C_1/(2C_2)$", loss_bound_step(matrix)),
            ("$\\eta = 1/\\rho^2$", distance_bound_step(matrix)),
        ),
        strict=True,
    ):
        expected = expected_losses(matrix, target, start, step_size=step_size, steps=steps)
        paths = stochastic_gradient_descent(matrix, target, start, indices, step_size=step_size)
        for k, losses in enumerate((paths @ matrix.T - target).square().sum(-1)):
            label = "four runs" if k == 0 else None
            axes.semilogy(t, losses / expected[0], color="0.6", linewidth=0.9, linestyle="-", label=label)
        axes.semilogy(
            t, expected / expected[0], color=BLUE, linestyle="-", linewidth=2.4, label="expected loss"
        )
        bound = loss_factor(matrix, step_size=step_size) ** t
        if bound[-1] < 1:
            axes.semilogy(t, bound, color=RED, linestyle="--", label="bound on the loss")
        bound = distance / float(expected[0]) * distance_factor(matrix, step_size=step_size) ** t
        axes.semilogy(t, bound, color=GREEN, linestyle="-.", label="bound by the distance")
        axes.set(
            xlabel="step t",
            ylabel="$L(w_t)\\,/\\,L(w_0)$",
            title=f"{name} = {step_size:.4f}",
            ylim=(1e-8, 1e2),
        )
        said.append(float(expected[-1] / expected[0]))
        axes.legend(loc="lower left")
    return describe(
        figure,
        f"Relative loss against step, for two step sizes on the same 6 x 10 problem. Left, the step that is best for "
        f"the bound on the loss: after {steps} steps the expected loss is {said[0]:.2g} of the start. Right, the step "
        f"1 / rho squared: it is {said[1]:.1g}, although the bound on the loss promises nothing there; only the bound "
        "by the distance falls.",
    )


@styled
def plot_rates() -> Figure:
    """Draw what one step gains against eta: by either bound, and in truth."""
    figure = new_figure(6.8, 4.0)
    axes = figure.add_subplot()
    matrix, _ = example_problem()
    best = distance_bound_step(matrix)
    grid = np.geomspace(best / 30, 2.4 * best, 120)
    curves = {
        "bound on the loss": (loss_factor, RED, "--"),
        "bound on the distance": (distance_factor, GREEN, "-."),
        "exact, in the long run": (exact_rate, BLUE, "-"),
    }
    for name, (factor, color, style) in curves.items():
        gains = np.array([1 - factor(matrix, step_size=float(s)) for s in grid])
        inside = gains > 1e-7
        axes.loglog(grid[inside], gains[inside], color=color, linestyle=style, label=name)
    for step, factor, marker, name in (
        (loss_bound_step(matrix), loss_factor, "s", "$\\eta^*$"),
        (best, distance_factor, "o", "$1/\\rho^2$"),
    ):
        axes.plot([step], [1 - factor(matrix, step_size=step)], marker, color=BLACK, label=name)
    axes.set(xlabel="step size $\\eta$", ylabel="1 - factor of one step", ylim=(2e-4, 0.3))
    axes.set_title("What a step gains: two guarantees and the truth")
    axes.legend(loc="upper left", fontsize=8)
    ratio = best / loss_bound_step(matrix)
    return describe(
        figure,
        f"One minus the factor of one step against the step size, both logarithmic. The bound on the loss peaks at "
        f"{loss_bound_step(matrix):.4f} and ends at twice that; the bound on the distance peaks at {best:.3f}, "
        f"{ratio:.1f} times further right and as many times higher. The exact gain lies above both and peaks still "
        "further right.",
    )


@styled
def plot_noise_floor(*, runs: int = 4000, steps: int = 60) -> Figure:
    """Draw E(w_t - 1)^2 for w = 0 and w = 2 at once: two fixed steps and eta_t = 1/(t + 1)."""
    figure = new_figure(6.6, 4.0)
    axes = figure.add_subplot()
    labels = torch.tensor([0.0, 2.0], dtype=torch.float64)
    ones, start = torch.ones(2, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    indices = draw_indices(2, runs=runs, steps=steps, generator=torch.Generator().manual_seed(3))
    t = torch.arange(steps, dtype=torch.float64)
    for name, step_size, color, style, marker in (
        ("$\\eta$ = 0.2", torch.full_like(t, 0.2), BLUE, "-", "o"),
        ("$\\eta$ = 0.1", torch.full_like(t, 0.1), RED, "--", "s"),
        ("$\\eta_t = 1/(t+1)$", 1 / (t + 1), GREEN, "-.", "^"),
    ):
        exact = [1.0]
        for eta in step_size.tolist():
            exact.append((1 - eta) ** 2 * exact[-1] + eta**2)
        paths = stochastic_gradient_descent(ones, labels, start, indices, step_size=step_size)[:, :, 0]
        measured = (paths - 1).square().mean(0)
        axes.semilogy(exact, color=color, linestyle=style, label=name)
        axes.plot(np.arange(0, steps + 1, 6), measured[::6], marker, color=color, markersize=4)
    axes.axhline(1 / 9, color=BLACK, linewidth=0.9, linestyle=":", label="1/9")
    axes.axhline(1 / 19, color=BLACK, linewidth=0.9, linestyle=(0, (1, 4)), label="1/19")
    axes.set(
        xlabel="step t", ylabel="mean of $(w_t - 1)^2$", ylim=(8e-3, 1.5), title="The floor of a fixed step"
    )
    axes.legend(loc="lower left", ncols=2)
    return describe(
        figure,
        f"Mean squared distance to the best w = 1 against step, exact curves and means over {runs} runs. With step "
        "0.2 it falls fast and stays at 1/9, with 0.1 it falls slower and stays at 1/19, about half of that; with the "
        "shrinking step 1/(t + 1) it keeps falling as 1/t.",
    )


@styled
def plot_batch(batches: Sequence[int] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)) -> Figure:
    """Draw the best guaranteed step, and steps and rows to a millionth, against the batch size."""
    figure = new_figure(8.6, 3.9)
    left, right = figure.subplots(1, 2)
    matrix, _ = example_problem()
    best = [distance_bound_step(matrix, batch=b) for b in batches]
    needed = [
        math.log(1e-6) / math.log(exact_rate(matrix, step_size=s, batch=b))
        for b, s in zip(batches, best, strict=True)
    ]
    left.loglog(batches, best, "o-", color=BLUE, label="$1/\\rho_b^2$")
    left.loglog(batches, [b * best[0] for b in batches], color=RED, linestyle="--", label="$b/\\rho^2$")
    whole = len(matrix) / constants(matrix).largest
    left.axhline(whole, color=BLACK, linestyle=":", label="$n/\\sigma_{max}^2$")
    left.set(xlabel="batch size b", ylabel="step size", ylim=(0.05, 2), title="The step stops growing")
    left.legend(loc="upper left")
    right.loglog(batches, needed, "o-", color=BLUE, label="steps")
    rows = [b * t for b, t in zip(batches, needed, strict=True)]
    right.loglog(batches, rows, "s--", color=RED, label="rows looked at")
    right.set(xlabel="batch size b", ylabel="to a factor of one millionth", title="Steps saved, rows spent")
    right.legend(loc="upper left")
    return describe(
        figure,
        f"Left: the best step of the distance bound against the batch size grows from {best[0]:.3f} at b = 1 and "
        f"flattens below {whole:.3f}, while the line of linear scaling goes on. Right: the number of steps to a "
        f"millionth falls from {needed[0]:.0f} to {needed[-1]:.0f} between b = 1 and b = {batches[-1]}, and the number "
        f"of rows looked at rises from {rows[0]:.0f} to {rows[-1]:.0f}.",
    )


# Explorer


class SgdExplorer(Explorer):
    """Runs of SGD and their exact mean beside the two bounds, with and without a common solution."""

    title = "Stochastic gradient descent on n equations with d unknowns"
    summary = (
        "Left: the loss relative to its start for six runs, their exact mean, and the two bounds where they hold. "
        "Right: what one step is guaranteed to gain, against the step size."
    )
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "step_size": Slider(
            label="step size", symbol="η", default=0.6, minimum=0.05, maximum=2.5, step=0.05,
            tooltip="How far one step goes along the batch's mean of x (y - xᵀw), so c = 1",
        ),
        "rows": Slider(
            label="equations", symbol="n", default=8, minimum=2, maximum=16, step=1,
            tooltip="How many samples there are: rows of X",
        ),
        "columns": Slider(
            label="unknowns", symbol="d", default=20, minimum=2, maximum=32, step=1,
            tooltip="How many weights there are: columns of X. Below n there is no common solution of noisy labels",
        ),
        "batch": Slider(
            label="batch size", symbol="b", default=1, minimum=1, maximum=16, step=1,
            tooltip="How many rows one step looks at, drawn with replacement",
        ),
        "noise": Slider(
            label="label noise", symbol="s", default=0.5, minimum=0.0, maximum=1.0, step=0.05,
            tooltip="Standard deviation of what is added to the labels of a linear teacher",
        ),
    }  # fmt: skip
    size = (9.6, 4.0)
    steps = 150
    runs = 6

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
        known = constants(matrix, batch=batch)
        common = floor < 1e-20
        t, grid = np.arange(self.steps + 1), np.geomspace(0.01, 3, 90)
        by_loss = (1 - 2 * known.smallest / known.rows * step_size
                   + known.largest * known.rho / known.rows * step_size**2)  # fmt: skip
        bracket = 2 * step_size - step_size**2 * known.rho
        by_distance = 1 - bracket * known.smallest / known.rows
        first = known.largest * float(solution.square().sum() / expected[0])
        return {
            "losses": ((paths @ matrix.T - target).square().sum(-1) / expected[0]).clamp(1e-12, 1e6).numpy(),
            "expected": (expected / expected[0]).clamp(1e-12, 1e6).numpy(),
            "loss_bound": np.clip(by_loss**t, 1e-12, 1e6) if common else None,
            "distance_bound": np.clip(first * by_distance**t, 1e-12, 1e6)
            if common and bracket >= 0
            else None,
            "gains": {
                "loss": self._positive(
                    grid, (2 * known.smallest * grid - known.largest * known.rho * grid**2) / known.rows
                ),
                "distance": self._positive(
                    grid, (2 * grid - known.rho * grid**2) * known.smallest / known.rows
                ),
            },
            "floor": floor,
            "common": common,
            "known": known,
            "step_size": step_size,
            "noise": noise,
            "shape": (rows, columns, batch),
        }

    def _positive(self, grid, gains):
        keep = gains > 1e-6
        return grid[keep], gains[keep]

    def draw(self, figure):
        """Draw both axes with fixed limits."""
        decay, gains = figure.subplots(1, 2, width_ratios=(1.25, 1))
        decay.set(
            xlim=(0, self.steps), ylim=(1e-8, 1e3), yscale="log", xlabel="step t",
            ylabel="$L(w_t)\\,/\\,L(w_0)$", title="Loss of six runs, and what is guaranteed",
        )  # fmt: skip
        runs = [decay.plot([], [], color="0.6", linewidth=0.9, linestyle="-")[0] for _ in range(self.runs)]
        runs[0].set_label("six runs")
        (mean,) = decay.plot([], [], color=BLUE, linewidth=2.6, linestyle="-", label="exact mean")
        (loss,) = decay.plot([], [], color=RED, linestyle="--", label="bound on the loss")
        (distance,) = decay.plot([], [], color=GREEN, linestyle="-.", label="bound by the distance")
        (floor,) = decay.plot([], [], color=BLACK, linestyle=":", label="smallest loss")
        decay.legend(loc="lower left", fontsize=8)
        gains.set(
            xlim=(0.01, 3), ylim=(1e-5, 1), xscale="log", yscale="log", xlabel="step size $\\eta$",
            ylabel="guaranteed gain of a step", title="1 - factor, by each bound",
        )  # fmt: skip
        (by_loss,) = gains.plot([], [], color=RED, linestyle="--", label="loss")
        (by_distance,) = gains.plot([], [], color=GREEN, linestyle="-.", label="distance")
        (here,) = gains.plot([], [], color=BLACK, linestyle=":", linewidth=1.2, label="$\\eta$ now")
        gains.legend(loc="upper left", fontsize=8)
        return {
            "runs": runs, "mean": mean, "loss": loss, "distance": distance, "floor": floor,
            "by_loss": by_loss, "by_distance": by_distance, "here": here,
        }  # fmt: skip

    def update(self, artists, state):
        """Move all curves; a bound that does not hold is left out."""
        t = np.arange(self.steps + 1)
        for line, losses in zip(artists["runs"], state["losses"], strict=True):
            line.set_data(t, losses)
        artists["mean"].set_data(t, state["expected"])
        for name in ("loss", "distance"):
            bound = state[f"{name}_bound"]
            artists[name].set_data(([], []) if bound is None else (t, bound))
            artists[f"by_{name}"].set_data(*(state["gains"][name] if state["common"] else ([], [])))
        no_floor = state["common"]
        artists["floor"].set_data(
            ([], []) if no_floor else ((0, self.steps), (state["floor"], state["floor"]))
        )
        artists["here"].set_data((state["step_size"], state["step_size"]), (1e-5, 1))

    def words(self, state):
        """Say whether a common solution exists, where the mean ends, and what the bounds promise."""
        rows, columns, batch = state["shape"]
        known, step_size, end = state["known"], state["step_size"], state["expected"][-1]
        about = (
            f"η = {step_size:.2f}, n = {rows}, d = {columns}, b = {batch}, label noise {state['noise']:.2f}: "
        )
        share = f"{end:.3g}" if end > 1e-12 else "less than 1e-12"
        ends = f"after {self.steps} steps the mean loss is {share} of its start"
        if end > 1:
            return f"{about}this step is too long, {ends if end < 1e5 else 'the mean loss explodes'}."
        if not state["common"]:
            return (
                f"{about}no common solution, so a fixed step keeps a floor: {ends}, and the smallest possible loss "
                f"is {state['floor']:.3g} of it. The bounds do not apply."
            )
        limit = 2 * known.smallest / (known.largest * known.rho)
        promise = "promises a fall" if step_size < limit else "promises nothing"
        return (
            f"{about}a common solution exists, {ends}. The bound on the loss {promise} (its limit is {limit:.3g}); the "
            f"bound by the distance is best at {1 / known.rho:.3g} and holds to {2 / known.rho:.3g}."
        )


# Predictions


def step_prediction() -> Prediction:
    """Ask which of two step sizes is faster, the optimum of the loss bound or 1 / rho^2."""
    return Prediction(
        "02.P1",
        "On the 6 x 10 problem from above, $\\eta^* = C_1/(2C_2)$ makes the bound (02.9) on the loss as small as "
        "possible. The step $1/\\rho^2$ is 9.7 times longer, and there the same bound is above 1. After 200 steps, "
        "which has the smaller expected loss?",
        choices={
            "η*, since its bound is the smallest": "The smallest bound is not the smallest loss: the bound pairs the "
            "worst direction for A with the worst one for B, which no error can be at once.",
            "1/ρ², by orders of magnitude": "The bound on the loss cannot see it, the bound on the distance can.",
            "Neither: at 1/ρ² the loss grows": "A bound above 1 does not say that the loss grows. It says nothing.",
        },
        answer="1/ρ², by orders of magnitude",
        reveal=plot_two_steps,
    )


def floor_prediction() -> Prediction:
    """Ask what halving the step does to the noise floor."""
    return Prediction(
        "02.P2",
        "Two equations that contradict each other, $w = 0$ and $w = 2$. With $\\eta = 0.2$ the iterates end up with "
        "variance 1/9 around the best $w = 1$. What does halving the step to 0.1 do to that variance?",
        choices={
            "It stays the same, only slower": "The step scales every kick that a sample gives, so a shorter step is "
            "kicked about less.",
            "It is about halved": "η/(2 - η) is nearly proportional to η: 1/19 instead of 1/9.",
            "It is about a quarter": "A single kick has a quarter of the variance, but it is forgotten half as fast, "
            "so twice as many add up.",
        },
        answer="It is about halved",
        reveal=plot_noise_floor,
    )


# Exercises


def _uniform(generator: torch.Generator, low: float, high: float, digits: int = 2) -> float:
    return round(low + (high - low) * float(torch.rand((), generator=generator)), digits)


def _draw_matrix(generator: torch.Generator, rows: int, columns: int) -> Tensor:
    """Draw entries with one decimal whose rows are far from dependent."""
    while True:
        matrix = _normal(rows, columns, generator=generator).round(decimals=1)
        if float(torch.linalg.svdvals(matrix)[-1]) > 0.4:
            return matrix


def minimum_norm(matrix, target):
    """Return the solution of X w = y with the smallest norm."""
    return matrix.T @ torch.linalg.solve(matrix @ matrix.T, target)


def _draw_wide(generator: torch.Generator) -> dict:
    rows = int(torch.randint(2, 4, (), generator=generator))
    return {
        "matrix": _draw_matrix(generator, rows, rows + 2),
        "target": _normal(rows, generator=generator).round(decimals=1),
    }


def _first_columns(matrix: Tensor, target: Tensor) -> Tensor:
    rows, columns = matrix.shape
    chosen = torch.linalg.lstsq(matrix[:, :rows], target[:, None]).solution[:, 0]
    return torch.cat([chosen, target.new_zeros(columns - rows)])


_MINIMUM_NORM = Exercise(
    id="02.1",
    title="The shortest solution",
    kind="function",
    difficulty=1,
    minutes=6,
    prompt="Write `minimum_norm(matrix, target)`: of all $w$ with $Xw = y$ the one with the smallest norm. `matrix` is "
    "$X$ with shape `(rows, columns)`, more columns than rows and independent rows; `target` is $y$. Return a float64 "
    "tensor of shape `(columns,)`.",
    draw=_draw_wide,
    reference=minimum_norm,
    properties=(
        Property(
            "Your w does not solve Xw = y.", lambda i, w: torch.allclose(i["matrix"] @ w, i["target"], atol=1e-7)
        ),
        Property(
            "Your w solves Xw = y, and a shorter one does too: yours has a part that no row sees.",
            lambda i, w: float(w.norm()) <= (1 + 1e-9) * float(minimum_norm_solution(*i.values()).norm()) + 1e-9,
        ),
    ),
    hints=(
        "The shortest solution is a combination of the rows: w = Xᵀ v for some v with one entry a row.",
        "Put w = Xᵀ v into Xw = y. Which square system is left for v?",
        "Solve (X Xᵀ) v = y with torch.linalg.solve, then multiply by the transpose of X.",
    ),
    mistakes=(
        Mistake("left out the inverse", lambda x, y: x.T @ y,
                "You left out the inverse of X Xᵀ: the combination Xᵀ y points into the row space but does not solve."),
        Mistake("treated rows as orthogonal", lambda x, y: x.T @ (y / x.square().sum(1)),
                "You divided each equation by its own squared norm only: that solves it when the rows are orthogonal "
                "to each other, here they are not."),
        Mistake("used the first columns only", _first_columns,
                "You solved for as many weights as there are rows and set the rest to 0: a solution, not the shortest."),
        Mistake("start of the shifted problem", lambda x, y: -minimum_norm(x, y),
                "You returned -w*, the start of the shifted problem w' = w - w*; asked is w* itself."),
        Mistake("ridge",
                lambda x, y: x.T @ torch.linalg.solve(x @ x.T + torch.eye(len(y), dtype=x.dtype), y),
                "You added the identity to X Xᵀ: that is ridge regression, which does not solve Xw = y exactly."),
    ),
)  # fmt: skip


def _one_more_step(variance: float) -> float:
    """Return the variance after a step of 1/2 to 0 or 6, from two equally likely places around 3."""
    places = [3 - math.sqrt(variance), 3 + math.sqrt(variance)]
    after = [w + (y - w) / 2 for w in places for y in (0, 6)]
    centre = sum(after) / len(after)
    return sum((w - centre) ** 2 for w in after) / len(after)


def _settled_from(variance: float, *, steps: int = 60) -> float:
    for _ in range(steps):
        variance = _one_more_step(variance)
    return variance


_FLOOR = Exercise(
    id="02.2",
    title="A floor by hand",
    kind="value",
    difficulty=1,
    minutes=5,
    prompt="Two equations contradict each other: $w = 0$ and $w = 6$. SGD takes one of them at random and steps to "
    "$w + \\eta\\,(y_I - w)$ with $\\eta = 1/2$, for ever. What variance of $w_t$ does it settle at?",
    draw=lambda generator: {"start": _uniform(generator, 0.5, 20.0)},
    reference=3.0,
    properties=(
        Property("A variance is 0 or more.", lambda inputs, v: v >= 0),
        Property(
            "One more step changes the variance that you give, so it has not settled.",
            lambda inputs, v: abs(_one_more_step(float(v)) - v) < 1e-6 * max(1, abs(v)),
        ),
        Property(
            "From another variance, 60 steps do not lead to yours.",
            lambda inputs, v: abs(_settled_from(inputs["start"]) - v) < 1e-6,
        ),
    ),
    hints=(
        "Write v for the variance now. The old w and the drawn label are independent: how does the variance of "
        "their weighted sum follow from v?",
        "After one step the variance is (1 - η)² v plus η² times the variance of the labels.",
        "Settled means that both sides are equal: solve v = v/4 + (1/4) Var(y), where Var(y) divides by 2.",
    ),
    mistakes=(
        Mistake("sample variance", 6.0, "You divided by n - 1: the two labels are all there is to draw from, so "
                "Var(y) divides by n."),
        Mistake("one step only", 2.25, "That is η² Var(y), what a single step adds. Earlier kicks are still there, "
                "shrunk by (1 - η)² a step."),
        Mistake("factor not squared", 4.5, "You let the old variance shrink by 1 - η. Distances shrink by 1 - η, "
                "variances by its square."),
        Mistake("variance of the labels", 9.0, "That is the variance of the labels. It would need a step that forgets "
                "everything but the last label, η = 1."),
        Mistake("standard deviation", math.sqrt(3.0), "That is the standard deviation; asked is the variance."),
    ),
)  # fmt: skip


def guaranteed_factor(matrix, step_size, gain):
    """1 - C1 eta + C2 eta^2 with the constants of the step c = gain."""
    curvatures = torch.linalg.svdvals(matrix) ** 2
    row = matrix.square().sum(1).max()
    scale = gain * step_size
    return 1 - (2 * scale * curvatures.min() - scale**2 * curvatures.max() * row) / len(matrix)


def _draw_contraction(generator: torch.Generator) -> dict:
    rows = int(torch.randint(2, 4, (), generator=generator))
    matrix = _draw_matrix(generator, rows, rows + 1)
    gain = 1.0 + int(torch.randint(2, (), generator=generator))
    return {"matrix": matrix, "step_size": _uniform(generator, 0.01, 0.4), "gain": gain}


def _is_never_exceeded(inputs: Mapping, factor) -> bool:
    """Try the errors along all singular directions and twenty others: none may grow by more than the factor."""
    matrix = inputs["matrix"]
    generator = torch.Generator().manual_seed(0)
    directions = torch.linalg.svd(matrix, full_matrices=False).Vh
    errors = [*directions, *(_normal(20, len(directions), generator=generator) @ directions)]
    for error in errors:
        change = sum(expected_change(matrix, error, step_size=inputs["step_size"], gain=inputs["gain"]))
        if 1 + change / float((matrix @ error).square().sum()) > float(factor) + 1e-9:
            return False
    return True


def _by_eigenvalues(inputs: Mapping) -> float:
    gram = inputs["matrix"] @ inputs["matrix"].T
    values, eta, c = torch.linalg.eigvalsh(gram), inputs["step_size"], inputs["gain"]
    slope, curve = 2 * c * values[0], c**2 * values[-1] * gram.diagonal().max()
    return float(1 - (slope * eta - curve * eta**2) / len(gram))


def _contraction_with(
    x: Tensor, eta: float, *, first: float, second: float, smallest=None, row=None
) -> Tensor:
    values, rows = torch.linalg.svdvals(x) ** 2, x.square().sum(1)
    smallest = values.min() if smallest is None else smallest
    return 1 - (
        first * eta * smallest - second * eta**2 * values.max() * (rows.max() if row is None else row)
    ) / len(x)


_CONTRACTION = Exercise(
    id="02.3",
    title="What one step guarantees",
    kind="function",
    difficulty=2,
    minutes=12,
    prompt="Write `guaranteed_factor(matrix, step_size, gain)`: the number $1 - C_1\\eta + C_2\\eta^2$ of (02.9) for "
    "the step $w + c\\eta\\, x_I(y_I - x_I^\\top w)$ with $c$ = `gain`, which is 1 or 2. `matrix` is $X$, with more columns "
    "than rows and independent rows; return a number.",
    draw=_draw_contraction,
    reference=guaranteed_factor,
    properties=(
        Property(
            "The expected loss after one step can exceed your factor times the loss before it.", _is_never_exceeded
        ),
        Property(
            "Your number is a bound, and not the one of (02.9).",
            lambda i, factor: math.isclose(float(factor), _by_eigenvalues(i), rel_tol=1e-6, abs_tol=1e-7),
        ),
    ),
    hints=(
        "You need three numbers of the matrix: its smallest and largest singular value and its longest row.",
        "A is linear in the step and B quadratic: how often does c enter each of the two constants?",
        "C₁ = 2cσ_min²/n and C₂ = c²σ_max²ρ²/n, with ρ the largest norm of a row.",
    ),
    mistakes=(
        Mistake("the constants of the notes", lambda x, e, c: _contraction_with(x, e, first=4.0, second=4.0),
                "Your constants have 4/n for both steps, as the notes print. They belong to c = 2; for c = 1 the first "
                "is 2/n and the second 1/n."),
        Mistake("c once in both", lambda x, e, c: _contraction_with(x, e, first=2 * c, second=c),
                "B is quadratic in the step, so c enters C₂ squared."),
        Mistake("c in the second only", lambda x, e, c: _contraction_with(x, e, first=2.0, second=c**2),
                "A is linear in the step: C₁ has one factor c."),
        Mistake("singular values not squared",
                lambda x, e, c: 1 - (2 * c * e * torch.linalg.svdvals(x).min()
                                     - c**2 * e**2 * torch.linalg.svdvals(x).max() * x.square().sum(1).max()) / len(x),
                "You took the singular values themselves: A and B hold the eigenvalues of X Xᵀ, their squares."),
        Mistake("mean row instead of longest",
                lambda x, e, c: _contraction_with(x, e, first=2 * c, second=c**2, row=x.square().sum(1).mean()),
                "You used the mean squared norm of the rows. The bound must hold whichever row is large: ρ is the "
                "largest norm."),
        Mistake("smallest eigenvalue of the d x d matrix",
                lambda x, e, c: _contraction_with(x, e, first=2 * c, second=c**2, smallest=0.0),
                "You took the smallest eigenvalue of Xᵀ X, which is 0 as d > n. The error never leaves the row space, "
                "where the smallest one is σ_min² > 0."),
    ),
)  # fmt: skip


def _change_of(c: Mapping) -> tuple[float, float]:
    """Return the true E[A] and the printed bound for the reduced 2 x 2 problem with rows (sigma_i, 0)."""
    matrix = torch.diag(torch.tensor([float(c["sigma_1"]), float(c["sigma_2"])], dtype=torch.float64))
    error = torch.tensor([float(c["weight_1"]), float(c["weight_2"])], dtype=torch.float64)
    true, _ = expected_change(matrix, error, step_size=float(c["step_size"]))
    smallest = min(c["sigma_1"], c["sigma_2"]) ** 2
    return true, -4 * c["step_size"] / 2 * smallest * float((matrix @ error).square().sum())


def _allowed(c: Mapping) -> bool:
    """Numbers of a size that floats square without loss, and a problem as the notes assume it."""
    return (
        all(1e-6 <= c[k] <= 1e6 for k in ("sigma_1", "sigma_2", "step_size"))
        and all(abs(c[k]) <= 1e6 for k in ("weight_1", "weight_2"))
        and max(abs(c["weight_1"]), abs(c["weight_2"])) >= 1e-6
    )


def _catches(c: Mapping) -> bool:
    true, printed = _change_of(c)
    return true > printed + 0.01 * abs(printed)


_FLAW = Exercise(
    id="02.4",
    title="Catch the printed bound",
    kind="flaw",
    difficulty=2,
    minutes=8,
    prompt="For the step $\\tilde w - \\eta\\,\\tilde x_I \\tilde x_I^\\top \\tilde w$ the notes print "
    "$E[A \\mid \\tilde w] \\le -\\frac{4\\eta}{n}\\sigma_{min}^2 L(\\tilde w)$. Take $n = 2$ and "
    "$\\tilde X = \\mathrm{diag}(\\sigma_1, \\sigma_2)$. Give a counterexample: a dictionary with the numbers `sigma_1`, "
    "`sigma_2`, `step_size` (all three positive), `weight_1` and `weight_2` (the entries of $\\tilde w$, not both 0) for "
    "which $E[A]$ is above the printed bound by more than 1% of it.",
    draw=lambda generator: {"seed": int(torch.randint(1000, (), generator=generator))},
    reference={"sigma_1": 2.0, "sigma_2": 1.0, "step_size": 0.1, "weight_1": 0.0, "weight_2": 1.0},
    properties=(
        Property(
            "Take σ₁, σ₂ and η from 0.000001 to 1,000,000, weights up to 1,000,000 in size and not both 0.",
            lambda inputs, c: _allowed(c),
        ),
        Property(
            "For your numbers the printed bound holds, or is missed by 1% at most.",
            lambda inputs, c: _allowed(c) and _catches(c),
        ),
    ),
    hints=(
        "For this step (02.7) has 2/n where the notes print 4/n. For which errors is (02.7) an equality?",
        "Write E[A] out for the diagonal matrix: both directions enter with the fourth power of their σ.",
        "Put the error along the direction of the smaller singular value, or at least mostly.",
    ),
    mistakes=(
        Mistake("error along the larger direction",
                {"sigma_1": 2.0, "sigma_2": 1.0, "step_size": 0.1, "weight_1": 1.0, "weight_2": 0.0},
                "Your error lies mostly along the larger singular value, where A is so negative that even the printed "
                "bound holds.",
                lambda i, c: _allowed(c) and not _catches(c)),
        Mistake("at the solution",
                {"sigma_1": 2.0, "sigma_2": 1.0, "step_size": 0.1, "weight_1": 0.0, "weight_2": 0.0},
                "Your error is 0: nothing moves there, and both sides are 0.",
                lambda i, c: c["weight_1"] == 0 and c["weight_2"] == 0),
        Mistake("no step",
                {"sigma_1": 2.0, "sigma_2": 1.0, "step_size": -0.1, "weight_1": 0.0, "weight_2": 1.0},
                "Your step is zero or goes uphill: the bound is meant for η > 0.",
                lambda i, c: c["step_size"] <= 0 and (c["weight_1"] != 0 or c["weight_2"] != 0)),
        Mistake("dependent rows",
                {"sigma_1": 2.0, "sigma_2": 0.0, "step_size": 0.1, "weight_1": 0.0, "weight_2": 1.0},
                "One of your σ is 0, so the rows are dependent; the notes assume full rank.",
                lambda i, c: min(c["sigma_1"], c["sigma_2"]) == 0 and c["step_size"] > 0
                and (c["weight_1"] != 0 or c["weight_2"] != 0)),
    ),
)  # fmt: skip


def best_batch_step(matrix, batch, gain):
    """Return the step for which the bound on the distance is smallest, for batches of b rows."""
    row, largest = matrix.square().sum(1).max(), torch.linalg.svdvals(matrix).max() ** 2
    return 1 / (gain * (row / batch + (1 - 1 / batch) * largest / len(matrix)))


def _draw_batch(generator: torch.Generator) -> dict:
    rows = int(torch.randint(2, 5, (), generator=generator))
    matrix = _draw_matrix(generator, rows, rows + 2)
    batch = (1, 2, 4, 8)[int(torch.randint(4, (), generator=generator))]
    gain = 1.0 + int(torch.randint(2, (), generator=generator))
    return {"matrix": matrix, "batch": batch, "gain": gain}


def _is_best_for_the_bound(inputs: Mapping, step) -> bool:
    """Compare the guaranteed gains, one minus the factor: a tiny step has a tiny one, not a rounded 0."""

    def gained(eta: float) -> float:
        return 1 - distance_factor(
            inputs["matrix"], step_size=eta, batch=inputs["batch"], gain=inputs["gain"]
        )

    mine = gained(float(step))
    return mine > 0 and all(mine >= gained(float(step) * s) for s in (0.5, 0.9, 0.99, 1.01, 1.1, 2))


_BATCH = Exercise(
    id="02.5",
    title="The best step for a batch",
    kind="function",
    difficulty=3,
    minutes=12,
    prompt="Write `best_batch_step(matrix, batch, gain)`: the step size $\\eta$ for which the bound on the distance is "
    "smallest when a step averages over `batch` rows, drawn with replacement, with $c$ = `gain`. Return a number.",
    draw=_draw_batch,
    reference=best_batch_step,
    properties=(
        Property("The step must be positive.", lambda i, step: float(step) > 0),
        Property("A nearby step has a smaller bound than yours.", _is_best_for_the_bound),
    ),
    hints=(
        "For one row a step the bracket 2cη - c²η²ρ² is largest at 1/(cρ²). What replaces ρ² for a batch?",
        "The mean of b matrices x xᵀ has a second moment with two parts: a draw with itself, and two different draws.",
        "ρ_b² = ρ²/b + (1 - 1/b) σ_max²/n.",
    ),
    mistakes=(
        Mistake("no batch", lambda x, b, c: 1 / (c * x.square().sum(1).max()),
                "Your step ignores the batch: an average over b rows is less noisy and allows a longer step."),
        Mistake("linear scaling", lambda x, b, c: b / (c * x.square().sum(1).max()),
                "You multiplied the step by b. That is too long: averaging removes the noise, not the curvature of "
                "the mean, and the step stops growing."),
        Mistake("full batch", lambda x, b, c: len(x) / (c * torch.linalg.svdvals(x).max() ** 2),
                "That is the limit for b to infinity, n/(cσ_max²): a batch of b rows still has noise."),
        Mistake("forgot c", lambda x, b, c: best_batch_step(x, b, 1.0),
                "You left out c: a gradient that is twice as long needs half the step."),
        Mistake("forgot 1/n", lambda x, b, c: 1 / (c * (x.square().sum(1).max() / b
                                                        + (1 - 1 / b) * torch.linalg.svdvals(x).max() ** 2)),
                "The mean of all x xᵀ is Xᵀ X divided by n: its largest eigenvalue is σ_max²/n."),
        Mistake("best for the loss bound", lambda x, b, c: loss_bound_step(x, batch=b, gain=c),
                "That step makes the bound on the loss smallest; asked is the bound on the distance."),
    ),
)  # fmt: skip

EXERCISES = {e.id: e for e in (_MINIMUM_NORM, _FLOOR, _CONTRACTION, _FLAW, _BATCH)}

FIGURES = {
    "question": lambda: plot_question(question_runs()),
    "two_steps": plot_two_steps,
    "rates": plot_rates,
    "noise_floor": plot_noise_floor,
    "batch": plot_batch,
    "explorer": lambda: SgdExplorer().strip(),
}
