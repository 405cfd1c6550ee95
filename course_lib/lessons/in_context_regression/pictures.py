"""Figures, explorer and predictions of lesson 23, in-context regression."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from course_lib.lessons.in_context_regression.contents import lesson
from course_lib.teaching import Explorer, Slider, lines, panels
from course_lib.teaching.style import BLACK, BLUE, ORANGE, RED
from course_lib.theory.in_context_regression import (
    History,
    Prompts,
    Tasks,
    best_head,
    emergence_time,
    gradients,
    mean_squared_error,
    served_error,
    shares,
    start,
    train,
    winners,
    zero_sum_error,
)

GREY = "0.55"
TASKS = Tasks()  # three tasks with four features each, 60 examples, noise 0.2


def seeded(seed: int) -> torch.Generator:
    """Return a generator."""
    return torch.Generator().manual_seed(seed)


def held_out(n: int = 4000, **options) -> Prompts:
    """Return prompts that no training has seen."""
    return TASKS.draw(n, generator=seeded(2300), **options)


def starts(runs: Sequence[tuple[int, float, int]], width: int) -> tuple[Tensor, Tensor]:
    """Return the factors of runs (heads, scale, seed) side by side; absent heads are zeros, and stay zeros."""
    q, v = torch.zeros(len(runs), width, TASKS.d_model), torch.zeros(len(runs), width, TASKS.n_tasks)
    for run, (heads, scale, seed) in enumerate(runs):
        q[run, :heads], v[run, :heads] = start(TASKS, heads, scale=scale, generator=seeded(seed))
    return q, v


def by_block(w: Tensor) -> Tensor:
    """Return the mean weight of each head in each block, (..., heads, tasks)."""
    return w.unflatten(-1, (TASKS.n_tasks, TASKS.block)).mean(dim=-1)


# The film: four scales, one to four heads

SCALES, MOST, STEPS, EVERY = (0.1, 0.2, 0.3, 0.4), 4, 600, 20


@cache
def film() -> History:
    """Train sixteen models at once on the same prompts: every scale with every number of heads."""
    runs = [(heads, scale, 2) for scale in SCALES for heads in range(1, MOST + 1)]
    return train(TASKS, *starts(runs, MOST), steps=STEPS, batch=48, every=EVERY, generator=seeded(23))


def run_of(scale: float, heads: int) -> int:
    """Return the place of a run in the film."""
    return SCALES.index(round(scale, 1)) * MOST + heads - 1


@lesson.figure(
    "Trained on the same prompts", "step of gradient descent", "mean squared error on new prompts", ylim=(0, 14)
)
def plot_question(axes):
    """Draw the errors of one head and of three, from a small start."""
    runs, prompts = [run_of(0.1, heads) for heads in (1, 3)], held_out(1000)
    errors = [mean_squared_error(prompts, w, u) for w, u in zip(film().w[:, runs], film().u[:, runs], strict=True)]
    lines(axes, film().steps, dict(zip(("one head", "three heads"), torch.stack(errors).T.numpy(), strict=True)))
    axes.axhline(12, color=GREY, linestyle=":", linewidth=1.2)
    return (
        "The mean squared error of two attention layers in training. Both stay near 12, the error of the answer 0, which is "
        "dotted, for about 330 steps. Then both fall within some 120 steps: one head to about 4.4, three heads to about "
        "2.5."
    )


# What one head computes


@lesson.figure(
    ["small weight w = 0.5", "large weight w = 2"],
    "feature 1", "feature 2", grid=(1, 2), size=(9.4, 4.9), xlim=(-3, 4), ylim=(-3, 4), aspect="equal",
    legend="lower right",
)  # fmt: skip
def plot_tilt(*both):
    """Draw examples by their softmax weight, and where their average lies."""
    x, query = torch.randn(60, 2, generator=seeded(4)), torch.tensor([1.8, 1.2])
    for axes, w in zip(both, (0.5, 2.0), strict=True):
        weights = (w * x @ query).softmax(dim=0)
        axes.scatter(*x.T.numpy(), s=900 * weights.numpy() + 2, color=BLUE, alpha=0.45)
        points = {
            "query": (query, "X", RED),
            "average": (weights @ x, "s", ORANGE),
            "w × query": (w * query, "+", BLACK),
        }
        for name, (at, marker, color) in points.items():
            axes.plot(*at.tolist(), marker, color=color, markersize=11, markeredgewidth=2, linestyle="none", label=name)
    return (
        "Sixty examples in the plane of two features, each dot as large as its softmax weight, with the query, the "
        "weighted average and w times the query. Left, for w = 0.5, many examples have weight, and the average lies near "
        "w times the query. Right, for w = 2, two or three examples carry it all: the average stays inside the cloud, "
        "far from w times the query, which lies near the edge of the picture."
    )


def error_at(w: float, served: int, prompts: Prompts) -> float:
    """Return the error of heads with weight w on each served feature, with the best u for it."""
    n = TASKS.n_tasks
    table = torch.eye(n) if served == 1 else torch.ones(1, n)
    weights = w * table.repeat_interleave(TASKS.block, dim=1)
    _, _, slope = gradients(prompts, weights, 0 * table)
    unit = mean_squared_error(prompts, weights, table)
    signal, zero = -(slope * table).sum(), prompts.target.square().sum(dim=-1).mean()
    return float(zero - signal**2 / (unit - zero + 2 * signal))


@lesson.figure("The error of a head against its weight", "weight w on each served feature", "mean squared error",
               xlim=(0, 1), ylim=(0, 12.5), legend="lower right")  # fmt: skip
def plot_best_weight(axes):
    """Draw simulated errors for heads of one task and of all, and where (23.5) puts the minima."""
    grid, prompts = np.linspace(0.06, 0.98, 24), held_out(1500)
    curves = {"one head for all three tasks": 3, "a head for each task": 1}
    for place, (name, served) in enumerate(curves.items()):
        (line,) = lines(axes, grid, {name: [error_at(w, served, prompts) for w in grid.tolist()]}, first=place)
        axes.axvline(best_head(TASKS, served)[0], color=line.get_color(), linestyle=":", linewidth=1.2)
    return (
        "The simulated mean squared error against the weight, with the best factor u for each. One head for all three "
        "tasks is best near w = 0.3, with an error of about 4.5; a head for each task near w = 0.5, with about 2.3. "
        "Both rise again for larger weights. Dotted lines mark the theory's minima, 0.29 and 0.5."
    )


# Heat maps


def _heat(axes, values: Tensor, top: float) -> None:
    table = values.numpy()
    axes.imshow(table, vmin=-top, vmax=top, cmap="RdBu_r", aspect="auto")
    for (row, column), value in np.ndenumerate(table):
        axes.text(column, row, f"{value:.1f}".replace("-0.0", "0.0"), ha="center", va="center", fontsize=10,
                  color="white" if abs(value) > 0.7 * top else BLACK)  # fmt: skip
    _ticks(axes, len(table))


def _ticks(axes, heads: int) -> None:
    axes.set(xticks=range(TASKS.n_tasks), xticklabels=range(1, TASKS.n_tasks + 1))
    axes.set(yticks=range(heads), yticklabels=range(1, heads + 1))
    axes.grid(False)


SHOWN = (0, 80, 120, 600)


@lesson.figure([f"step {step}" for step in SHOWN], "task", "head", grid=(1, 4), size=(11.4, 3.2), legend=None)
def plot_allocation(*four):
    """Draw the factors u of three heads at four times."""
    history, run = film(), run_of(0.2, 3)
    for axes, step in zip(four, SHOWN, strict=True):
        _heat(axes, history.u[history.steps.index(step), run, :3], 2.4)
    return (
        "The factor u of three heads for three tasks, as a table at four times. At step 0 all nine are below 0.1. At step "
        "80 several have grown, in more than one head of a task. At step 120 each task has one large entry and remains "
        "of a second. At step 600 each row and each column holds one entry of about 1.6 and zeros elsewhere: a "
        "permutation."
    )


# The plateau


@cache
def plateaus() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return scales, the steps after which a first u exceeds 0.8, and those of (23.9)."""
    scales = (0.1, 0.14, 0.2, 0.28, 0.4)
    q, v = starts([(3, s, 5) for s in scales], 3)
    history = train(TASKS, q, v, steps=480, batch=64, every=5, generator=seeded(6))
    grown = (history.u.amax(dim=(2, 3)) > 0.8).float().argmax(dim=0)
    found = np.array([history.steps[i] for i in grown.tolist()])
    leads = v.square().amax(dim=(1, 2)).tolist()
    wanted = [emergence_time(s * s, u, TASKS.block) / 0.05 for s, u in zip(scales, leads, strict=True)]
    return np.array(scales), found, np.array(wanted)


@lesson.figure("How long the start lasts", "scale of the start s", "steps until a head emerges", xscale="log", yscale="log",
               xticks=(0.1, 0.2, 0.4), legend="lower left")  # fmt: skip
def plot_plateau(axes):
    """Draw the measured length of the plateau against the scale, and the formula."""
    scales, found, wanted = plateaus()
    lines(axes, scales, {"measured": found}, linestyle="none", marker="o", markersize=8)
    lines(axes, scales, {"(23.9)": wanted, "1/s, for comparison": found[0] * scales[0] / scales},
          first=1)  # fmt: skip
    axes.set_xticks([0.1, 0.2, 0.4], ["0.1", "0.2", "0.4"])
    axes.set_yticks([20, 50, 100, 200, 400], ["20", "50", "100", "200", "400"])
    axes.minorticks_off()
    return (
        "Steps until the first factor u exceeds 0.8 against the scale of the start, both logarithmic. The measured points "
        "fall from about 400 steps at 0.1 to about 25 at 0.4, along the straight line of (23.9) with the slope -2: "
        "twice the scale takes a quarter of the steps. A line for 1/s beside it falls half as steeply."
    )


# Fewer heads, and signs


@lesson.figure("The error after training, by number of heads", "number of heads", "mean squared error", xticks=range(1, 5),
               ylim=(0, 5.4), legend="upper right")  # fmt: skip
def plot_heads(axes):
    """Draw the error of one to four heads beside the formula for the best split."""
    runs = [run_of(0.3, heads) for heads in range(1, 5)]
    found = mean_squared_error(held_out(), film().w[-1, runs], film().u[-1, runs]).numpy()
    formula = [served_error(TASKS, split) for split in ([3], [2, 1], [1, 1, 1], [1, 1, 1])]
    curves = {"trained from a small start": found, "first-order theory": formula}
    for place, (name, y) in enumerate(curves.items()):
        lines(axes, range(1, 5), {name: y}, first=place, marker="os"[place])
    axes.plot(
        [4], [zero_sum_error(TASKS)], "*", color=RED, markersize=14, linestyle="none", label="four heads with signs"
    )
    return (
        "The mean squared error for one to four heads, trained: it falls from about 4.5 over 3.2 to 2.3, and four heads "
        "gain nothing over three. The first-order theory lies about 0.4 below, with the same steps. A star far below, at "
        "0.93, marks what four heads with signs can reach."
    )


def free_signs(w: Tensor, u: Tensor, *, steps: int = 600) -> History:
    """Train w and u themselves by Adam, free to change sign; record every 50 steps, and after the last."""
    w, u = w.clone().requires_grad_(), u.clone().requires_grad_()
    adam, generator, kept = torch.optim.Adam([w, u], lr=0.01), seeded(7), []
    for step in range(steps + 1):
        mse, w.grad, u.grad = gradients(TASKS.draw(80, generator=generator), w.detach(), u.detach())
        if step % 50 == 0:
            kept.append((step, w.detach().clone(), u.detach().clone(), mse))
        adam.step()
    times, *rest = zip(*kept, strict=True)
    return History(times, *(torch.stack(part) for part in rest))


@cache
def released() -> History:
    """Return what Adam makes of the allocation at the end of the film."""
    run = run_of(0.3, 3)
    return free_signs(film().w[-1, run, :3], film().u[-1, run, :3])


@lesson.figure(["u, the allocation", "u, after 600 steps of Adam", "error on new prompts"],
               ["task", "task", "step of Adam"], ["head", "head", "mean squared error"],
               grid=(1, 3), size=(11.4, 3.6), legend=[None, None, "upper right"], ylim=[None, None, (0, 2.6)])  # fmt: skip
def plot_released(before, after, right):
    """Draw u before and after, and the error on the way."""
    history = released()
    _heat(before, history.u[0], 2.6)
    _heat(after, history.u[-1], 2.6)
    prompts = held_out(1000)
    error = [float(mean_squared_error(prompts, w, u)) for w, u in zip(history.w, history.u, strict=True)]
    lines(right, history.steps, {"free signs": error})
    right.axhline(error[0], color=GREY, linestyle=":", linewidth=1.4)
    return (
        "Left the factor u of the trained allocation: one entry of about 1.6 in each row and column. In the middle after "
        "600 steps of Adam that may change signs: the same entries are larger, about 2.3, and the other entries of each "
        "column are about -1.3, so that a column sums to about zero. Right the error: it falls from 2.4 to about 1.5."
    )


# The explorer


@lesson.explorer
class AllocationExplorer(Explorer):
    """Run the film: who answers what, at every step of sixteen trainings."""

    title = "Heads and tasks, step by step"
    summary = (
        "Left, for each head (row) and task (column), the factor u with which the head answers the task. In the middle "
        "the mean weight w of the head on the task's features. Absent heads are dashes. Right the mean squared error of the "
        "training, on each step's batch, with a dot at the chosen step; the answer 0 has 12 on average."
    )
    step = Slider("step", "t", "Steps of gradient descent that were taken", 120, 0, STEPS, EVERY)
    scale = Slider("scale of the start", "s", "Size of all factors before the first step", 0.2, 0.1, 0.4, 0.1)
    heads = Slider("heads", "H", "Number of attention heads; there are three tasks", 3, 1, MOST, 1)
    together = ("step", "scale")
    size = (10.6, 3.4)
    dpi = 100
    layout = panels(
        ["factor u", "mean weight w", "training"], ["task", "task", "step"], ["head", "head", "mean squared error"],
        grid=(1, 3), legend=None, xlim=[(-0.5, 2.5), (-0.5, 2.5), (-20, STEPS + 20)],
        ylim=[(MOST - 0.5, -0.5), (MOST - 0.5, -0.5), (0, 15)],
    )  # fmt: skip

    def compute(self, *, step, scale, heads):
        """Look the run up in the film."""
        history, run, at = film(), run_of(scale, heads), step // EVERY
        u, w, mse = history.u[at, run], by_block(history.w[at, run]), history.mse[:, run]
        said = [f"{value:.2f}" if head < heads else "–" for t in (u, w) for head in range(MOST) for value in t[head]]
        return {
            "u": u.numpy(), "w": w.numpy(), "said": said, "curve": mse.numpy(), "dot": ([step], [float(mse[at])]),
            "at": (step, scale, heads), "shares": shares(u[:heads]).amax(0).tolist(), "winners": winners(u).tolist(),
        }  # fmt: skip

    def draw(self, left, middle, right):
        """Draw two tables and a curve."""
        table = np.zeros((MOST, TASKS.n_tasks))
        images = [axes.imshow(table, vmin=0, vmax=top, cmap="Blues", aspect="auto")
                  for axes, top in ((left, 3.2), (middle, 0.9))]  # fmt: skip
        numbers = []
        for axes in (left, middle):
            _ticks(axes, MOST)
            numbers += [axes.text(j, i, "", ha="center", va="center", fontsize=10) for i, j in np.ndindex(table.shape)]
        curve = right.plot(film().steps, [0] * len(film().steps), color=BLUE, linewidth=2)[0]
        dot = right.plot([0], [0], "o", color=RED, markersize=9)[0]
        return {"u": images[0], "w": images[1], "said": numbers, "curve": curve, "dot": dot}

    def words(self, state):
        """Say which head answers which task, or that none does yet."""
        step, scale, heads = state["at"]
        start = f"s = {scale:.1f}, {heads} head{'s' * (heads > 1)}, step {step}: batch error {state['dot'][1][0]:.1f}."
        pairs = enumerate(zip(state["winners"], state["shares"], strict=True), start=1)
        if state["u"].max() < 0.5:
            return f"{start} No head answers yet."
        return start + " " + "; ".join(f"task {i}: head {h + 1} ({100 * s:.0f}%)" for i, (h, s) in pairs) + "."


# Predictions

allocation_prediction = lesson.prediction(
    "23.P1",
    "Three heads learn three tasks, from weights near zero that differ by chance. All heads see all tasks. Who answers "
    "what after 600 steps?",
    {
        "Each head answers a third of each task": "Equal heads would do that. A small lead of one head grows, and the "
        "others find the task answered.",
        "The strongest head answers all three tasks": "It may lead in all three at the start. But a head that compares more "
        "features averages more noisily, and another head takes over.",
        "Each head answers one task": "A small lead of one head grows, and whoever answers one task has a reason to leave "
        "the others alone: more features bring more noise.",
    },
    answer="Each head answers one task",
    reveal=plot_allocation,
)

plateau_prediction = lesson.prediction(
    "23.P2",
    "All factors are half as large at the start. The error stays at its first value for longer. How much longer?",
    {
        "A fixed number of steps more, as near a saddle with one rate": "That is the law of lesson 18, where the rate of "
        "growth is fixed. Here it falls with the weights themselves.",
        "Twice as long": "Two products of two factors each have to grow, and each one's rate is the other.",
        "Four times as long": "A weight is a product of two factors: half of each is a quarter, and so is its rate.",
    },
    answer="Four times as long",
    reveal=plot_plateau,
)

signs_prediction = lesson.prediction(
    "23.P3",
    "Training goes on from the finished allocation, now by Adam on w and u themselves, which may become negative. What "
    "happens?",
    {
        "Nothing: the allocation is the minimum": "It is stationary for factors that start equal, since they cannot change "
        "sign. In w and u the gradient is not zero there.",
        "The weights shift a little, and each task keeps its one head": "The shift goes on until every head answers every "
        "task, two of them with a minus.",
        "Heads share tasks again, and the error falls by a third": "Differences of heads cancel noise that one head cannot. "
        "The allocation was an outcome of the start, not the best that these heads can do.",
    },
    answer="Heads share tasks again, and the error falls by a third",
    reveal=plot_released,
)

FIGURES = lesson.figures
