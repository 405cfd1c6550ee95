"""Figures, explorers and predictions of lesson 09, gradient_estimators."""

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor

from course_lib.lessons.gradient_estimators.bandit import (
    LEARNERS,
    NO_BASELINE,
    PAY,
    PULLS,
    RUNNING_MEAN,
    STEP_SIZE,
    failed,
    found,
    remembered,
)
from course_lib.lessons.gradient_estimators.contents import lesson
from course_lib.lessons.gradient_estimators.waves import GOAL, STD, bowl, bowl_slope, walk
from course_lib.measured import measured
from course_lib.optimization.gradient_estimators import (
    pathwise_gradients,
    quadratic_score_variance,
    score_gradients,
)
from course_lib.teaching import Choice, Explorer, Slider, lines, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, GREEN, RED, compact, small_legend


def square(x: Tensor) -> Tensor:
    """f(x) = ||x||^2 for samples x k."""
    return x.square().sum(dim=1)


def step(x: Tensor) -> Tensor:
    """f(x) = 1 where x is above 0, else 0, for samples x 1."""
    return (x[:, 0] > 0).to(x.dtype)


def _wavy(x: Tensor, *, doublings: int) -> Tensor:
    return bowl(x[:, 0], doublings=doublings)


def step_gradient(mean: float | int, std: float | int) -> float:
    """d/dmu P(x > 0) = phi(mu / sigma) / sigma."""
    return math.exp(-((mean / std) ** 2) / 2) / (math.sqrt(2 * math.pi) * std)


def bowl_gradient(mean: float | int, std: float | int, *, doublings: int | None = None) -> float:
    """d/dmu of the expected bowl: mu - 3, and what the waves leave, -a sin(a mu) exp(-a^2 sigma^2 / 2), a = 2^T."""
    if doublings is None:
        return mean - GOAL
    a = 2.0**doublings
    return mean - GOAL - a * math.sin(a * mean) * math.exp(-((a * std) ** 2) / 2)


FUNCTIONS: Mapping[str, tuple[Callable[[Tensor], Tensor], Callable[[float, float], float]]] = {
    "x²": (square, lambda mean, std: 2 * mean),
    "1[x > 0]": (step, step_gradient),
    "bowl": (lambda x: (x[:, 0] - GOAL).square() / 2, bowl_gradient),
    **{
        f"bowl with waves, T = {t}": (partial(_wavy, doublings=t), partial(bowl_gradient, doublings=t))
        for t in (3, 5, 6, 8)
    },
}


def estimates(
    name: str, *, mean: float | int, std: float | int, samples: int, baseline: float | int = 0.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Return the score and the reparameterised estimates of d/dmu E[f(x)] from the same samples."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(samples, 1, generator=generator, dtype=torch.float64)
    center = torch.tensor([mean], dtype=torch.float64)
    f, _ = FUNCTIONS[name]
    score = score_gradients(f, center, std=std, noise=noise, baseline=baseline)
    return score[:, 0], pathwise_gradients(f, center, std=std, noise=noise)[:, 0]


def running_mean(values: Tensor) -> np.ndarray:
    """Return the means of the first 1, 2, ... values."""
    return (values.cumsum(0) / torch.arange(1, len(values) + 1)).numpy()


# The bandit


def _learners(axes, history: Tensor, shown: int = 20) -> None:
    """Draw the probability of the best arm for some learners, in orange for those that end on another one."""
    for curve in history[::20, :shown, -1].T.numpy():
        color = BLUE if curve[-1] > 0.5 else RED
        axes.plot(20 * np.arange(len(curve)), curve, color=color, linewidth=0.9, linestyle="-", label="_")


_OF_LEARNERS = {
    "x": "pull",
    "y": "probability of the best arm",
    "size": (5.2, 2.1),
    "legend": None,
    "xlim": (0, PULLS),
    "ylim": (-0.03, 1.03),
}


@lesson.figure("The first 20 of 100 learners", **_OF_LEARNERS)
def plot_learners(axes):
    """Draw all learners of the bandit."""
    _learners(axes, remembered(0.0, False, STEP_SIZE))
    compact(axes)
    return (
        "Probability of the best arm against the pulls, one curve for each of 20 learners: all rise from 0.2 to nearly "
        "1."
    )


@lesson.figure("The same 20 learners, 10 added to every payment", **_OF_LEARNERS)
def plot_added(axes):
    """Draw all learners of the bandit with 10 added to every payment."""
    _learners(axes, remembered(10.0, False, STEP_SIZE))
    compact(axes)
    return (
        "The same with 10 added to every payment: within the first pulls most curves drop to nearly 0; some jump up or down "
        "later. Those that end on a worse arm are orange."
    )


@lesson.figure(
    ["payments as they are", "10 added to every payment"],
    "arm that is drawn",
    "change of logit 5",
    size=(6.6, 2.4),
    grid=(1, 2),
    legend=small_legend("upper left"),
    ylim=(-0.5, 1.4),
)
def plot_pulls(*axes):
    """Draw what a first pull of each arm does to the logit of the best arm, on average over the payment's noise."""
    pay, count = np.array(PAY), len(PAY)
    for one, added in zip(axes, (0.0, 10.0), strict=True):
        score = np.where(np.arange(count) == count - 1, 1 - 1 / count, -1 / count)  # of the best arm's logit
        change = STEP_SIZE * (pay + added) * score
        one.bar(np.arange(1, count + 1), change, color=[RED] * (count - 1) + [BLUE], width=0.6)
        one.axhline(0, color=BLACK, linewidth=0.8)
        one.axhline(change.mean(), color=BLACK, linewidth=1.6, linestyle="--", label="mean over the five")
        for arm, height in enumerate(change, start=1):
            one.annotate(f"{height:z.3f}", (arm, max(height, 0.0)), (0, 4), textcoords="offset points", ha="center",
                         fontsize=8)  # fmt: skip
        one.set_xticks(range(1, count + 1))
    compact(*axes)
    return (
        "What a first pull of each arm does to the logit of the best arm, 5, if the arm pays its mean: only its own draw "
        f"raises it. The mean over the five draws is {change.mean():.3f} on both sides; with 10 added, on the same scale, "
        "the single changes are far larger."
    )


# Two ways to a gradient


@lesson.figure(
    ["score: the density changes", "path: the samples move"],
    "x",
    ["density", "f(x)"],
    size=(6.0, 2.5),
    grid=(1, 2),
    legend=[small_legend("upper left"), small_legend("upper left")],
    xlim=(-2.4, 5.0),
    ylim=[(0, 0.96), (-0.5, 16)],
)
def plot_two_ways(left, right_, *, shift: float = 0.5):
    """Draw what a shift of mu does to the density at fixed x, and to samples on the curve of f = x^2."""
    x = np.linspace(-2.4, 5.0, 400)
    before, after = (np.exp(-((x - mu) ** 2) / 2) / math.sqrt(2 * math.pi) for mu in (1.0, 1.0 + shift))
    lines(left, x, {"$\\mu$ = 1": before, f"$\\mu$ = {1 + shift:g}": after})
    left.plot(x, x**2 / 25, color=BLACK, linewidth=1.2, linestyle=":", label="f(x) = x², a 25th as high")
    for where, color, label in ((after > before, GREEN, "more likely"), (after < before, RED, "less likely")):
        left.fill_between(x, before, after, where=where, color=color, alpha=0.35, label=label)
    lines(right_, x, {"f(x) = x²": x**2})
    starts = np.array([-0.4, 0.3, 1.0, 1.7, 2.6])
    right_.plot(starts, starts**2, "o", color=BLACK, markersize=4.5, label="samples, $\\mu$ = 1")
    for start in starts:
        right_.annotate("", (start + shift, (start + shift) ** 2), (start, start**2),
                        arrowprops={"arrowstyle": "->", "color": RED, "linewidth": 1.6})  # fmt: skip
    compact(left, right_)
    return (
        f"A shift of mu from 1 to {1 + shift:g}. Left, the values of f stay, and their weights change: x on the left get "
        "less likely, x on the right more likely. Right, five samples on the curve of f move to the right by the same "
        "amount."
    )


@lesson.figure(
    "The baseline changes the variance",
    "baseline $b$",
    "variance of one estimate",
    size=(5.0, 2.5),
    legend=small_legend("upper center"),
    xlim=(-2, 10),
    ylim=(0, 62),
)
def plot_baseline(axes):
    """Draw the variance of the score estimate of x^2 against a constant baseline, at mu = sigma = 1."""
    variance = lambda b: quadratic_score_variance(mean=1, std=1, baseline=b)  # noqa: E731
    baselines = np.linspace(-2, 10, 121)
    lines(axes, baselines, {"score estimate": [variance(b) for b in baselines]}, first=1)
    for b, marker, name in ((0.0, "o", "no baseline"), (2.0, "s", "$b = E[f]$"), (4.0, "D", "best constant")):
        axes.plot([b], [variance(b)], marker, color=BLACK, markersize=6, label=f"{name}: {variance(b):.0f}")
    compact(axes)
    return (
        "Variance of one score estimate for f = x squared, mu = sigma = 1, against the baseline: 30 at b = 0, 18 at the "
        "mean of f, 2, and 14 at the lowest point, b = 4."
    )


@lesson.figure(
    "A shift carries some samples across the jump",
    "x",
    "density, and f(x) / 4",
    size=(5.4, 2.5),
    legend=small_legend("upper right"),
    xlim=(-2.4, 4.8),
    ylim=(-0.02, 0.62),
)
def plot_jump(axes, *, shift: float = 0.3):
    """Draw a step at 0 with the density of x before and after a shift of mu, and the probability that crosses."""
    x = np.linspace(-2.4, 4.8, 721)
    law = lambda mu: np.exp(-((x - mu) ** 2) / 2) / math.sqrt(2 * math.pi)  # noqa: E731
    lines(axes, x, {"$\\mu$ = 1": law(1.0), f"$\\mu$ = {1 + shift:g}": law(1.0 + shift)})
    axes.plot([-2.4, 0, 0, 4.8], [0, 0, 0.25, 0.25], color=BLACK, linewidth=1.4, linestyle=":",
              label="f, a quarter as high")  # fmt: skip
    axes.fill_between(x, 0, law(1.0), where=(x >= -shift) & (x <= 0), color=RED, alpha=0.5, label="crosses the jump")
    compact(axes)
    return (
        f"The density of x for mu = 1 and for mu = {1 + shift:g}, and a step at 0. A shift of the samples carries those in "
        "a strip left of the step across it, a share of about the shift times the density at the step."
    )


# A bowl with waves


def bowl_moments(doublings: int | None, *, mean: float = 1.0, std: float = STD) -> dict[str, float]:
    """Return gradient and variances of both estimates for the bowl in one dimension, by a fine grid.

    "path" and "score" are variances of one estimate, the second with the best constant baseline; no waves where `doublings`
    is None.
    """
    x = mean + std * torch.linspace(-9, 9, 200_001, dtype=torch.float64)
    z = (x - mean) / std
    weights = torch.exp(-z.square() / 2)
    expected = lambda values: float((weights * values).sum() / weights.sum())  # noqa: E731
    f, slope = (x - GOAL).square() / 2, x - GOAL
    if doublings is not None:
        f, slope = bowl(x, doublings=doublings), bowl_slope(x, doublings=doublings)
    gradient, baseline = expected(slope), expected(f * z.square())
    return {
        "gradient": gradient,
        "path": expected(slope.square()) - gradient**2,
        "score": expected(((f - baseline) * z / std).square()) - gradient**2,
    }


@lesson.figure(
    "A bowl with waves, T = 4",
    "x, and $\\mu$",
    "f(x), and its mean $F(\\mu)$",
    size=(5.0, 2.2),
    legend=small_legend("upper right"),
    xlim=(-1, 5),
    ylim=(-1.6, 9.6),
)
def plot_bowl(axes):
    """Draw f for T = 4, its mean over the samples, and the samples' density at mu = 1."""
    x = np.linspace(-1, 5, 3001)
    f = bowl(torch.from_numpy(x), doublings=4).numpy()
    lines(axes, x, {"f": f}, linewidth=0.9)
    smooth = (x - GOAL) ** 2 / 2 + STD**2 / 2
    axes.plot(x, smooth, color=BLACK, linewidth=1.8, linestyle="--", label="F, its mean at $\\sigma$ = 1/2")
    density = np.exp(-(((x - 1) / STD) ** 2) / 2)
    axes.fill_between(x, -1.6, -1.6 + 1.4 * density, color=GREEN, alpha=0.4, label="where samples fall, $\\mu$ = 1")
    compact(axes)
    return (
        "f is a bowl with its lowest point near 3 and fast waves of height 1 on it. Its mean over samples around mu, "
        "dashed, is the bowl alone, a little higher."
    )


@lesson.figure(
    "Samples for an error of 10%",
    "doublings T",
    "samples",
    size=(5.6, 2.8),
    legend=small_legend("upper left"),
    yscale="log",
    ylim=(1, 1e8),
)
def plot_samples(axes):
    """Draw how many samples bring the standard error to a tenth of the gradient."""
    times = (None, *range(3, 9))
    found, needed = [bowl_moments(t) for t in times], {}
    for name, color, marker, style in (("path", BLUE, "D", "-"), ("score", RED, "o", "--")):
        needed[name] = [one[name] / (0.1 * one["gradient"]) ** 2 for one in found]
        axes.plot(range(3, 9), needed[name][1:], color=color, marker=marker, linestyle=style, markersize=5,
                  label=name if name == "path" else "score, best constant baseline")  # fmt: skip
        axes.plot([2], needed[name][:1], color=color, marker=marker, linestyle="", markersize=5, label="_")
    axes.set_xticks(range(2, 9), ["none", *map(str, range(3, 9))])
    compact(axes)
    return (
        "Samples after which the standard error is a tenth of the gradient, logarithmic: without waves "
        f"about {needed['path'][0]:.0f} for the path and {needed['score'][0]:.0f} for the score; with them the score "
        f"needs at most {max(needed['score']):.0f}, and the path's number grows fourfold with each T, to "
        f"{needed['path'][-1]:,.0f} at 8."
    )


# The closing experiment

MAP_K, MAP_T = (1, 4, 16, 64, 256), (3, 4, 5, 6, 7, 8)


def stored_distances(arm: str, dimension: int, doublings: int) -> list[float]:
    """Return the stored distances of an arm at its best step size, twenty seeds."""
    return measured("walks", f"{arm}, k = {dimension}, T = {doublings}")["distances"]


def distance_ratios() -> np.ndarray:
    """Return the mean distance of the path over that of the score function, T by row and k by column."""
    mean = lambda arm, k, t: np.mean(stored_distances(arm, k, t))  # noqa: E731
    return np.array([[mean("path", k, t) / mean("score", k, t) for k in MAP_K] for t in MAP_T])


def border(doublings: int) -> float:
    """Return the dimension at which both arms end equally far, from the stored run, log-linear between its dimensions.

    Raises:
        ValueError: one arm leads at all dimensions of the stored run.
    """
    logs = np.log(distance_ratios()[MAP_T.index(doublings)])
    place = next((i for i in range(len(MAP_K) - 1) if logs[i] > 0 >= logs[i + 1]), None)
    if place is None:
        raise ValueError(f"at T = {doublings} one arm leads at all dimensions of the stored run")
    share = logs[place] / (logs[place] - logs[place + 1])
    return float(np.exp(np.log(MAP_K[place]) * (1 - share) + np.log(MAP_K[place + 1]) * share))


@lesson.figure(
    ["how many times nearer: score (red) or path (blue)", "k = 64 coordinates"],
    ["coordinates k", "doublings T"],
    ["doublings T", "mean distance from the goal"],
    size=(7.6, 3.2),
    grid=(1, 2),
    legend=[None, small_legend("upper left")],
    yscale=["linear", "log"],
    ylim=[None, (0.1, 6)],
    subplots={"width_ratios": [1.15, 1]},
)
def plot_map(left, right_):
    """Draw the stored run: the ratio of distances over dimension and waves, and the distances at k = 64."""
    ratios = distance_ratios()
    left.imshow(-np.log2(ratios), cmap="RdBu", vmin=-5, vmax=5, origin="lower", aspect="auto")
    for row, of_t in enumerate(ratios):
        for column, ratio in enumerate(of_t):
            left.text(column, row, f"{max(ratio, 1 / ratio):.1f}", ha="center", va="center", fontsize=8.5,
                      color="white" if abs(math.log2(ratio)) > 3 else BLACK)  # fmt: skip
            if row and (ratio > 1) != (ratios[row - 1, column] > 1):
                left.plot(
                    [column - 0.5, column + 0.5], [row - 0.5] * 2, color=BLACK, linewidth=2.5, linestyle="-", label="_"
                )
            if column and (ratio > 1) != (of_t[column - 1] > 1):
                left.plot(
                    [column - 0.5] * 2, [row - 0.5, row + 0.5], color=BLACK, linewidth=2.5, linestyle="-", label="_"
                )
    left.set_xticks(range(len(MAP_K)), map(str, MAP_K))
    left.set_yticks(range(len(MAP_T)), map(str, MAP_T))
    right_.set_yticks([0.1, 0.2, 0.5, 1, 2, 5], ["0.1", "0.2", "0.5", "1", "2", "5"])
    right_.minorticks_off()
    looks = (("path", BLUE, "-", "D"), ("score", RED, "--", "o"), ("mix", BLACK, ":", "s"))
    for name, color, style, marker in looks:
        ends = np.array([stored_distances(name, 64, t) for t in MAP_T])
        right_.plot(MAP_T, ends.mean(1), color=color, linestyle=style, marker=marker, markersize=4, label=name)
        right_.fill_between(MAP_T, ends.min(1), ends.max(1), color=color, alpha=0.15, linewidth=0)
    compact(left, right_)
    return (
        "Left, the larger of the two mean distances over the smaller: red where the score ends nearer, blue where the path "
        "does; the black line separates them. Right, mean and range of twenty seeds at k = 64, with the mix of both."
    )


def live_walk(arm: str, dimension: int, doublings: int, *, seed: int = 100) -> np.ndarray:
    """Walk once more, at the stored step size and with a seed that the stored run did not use; return all distances."""
    size = measured("walks", f"{arm}, k = {dimension}, T = {doublings}")["step size"]
    return walk(arm, dimension=dimension, doublings=doublings, step_sizes=[size], seed=seed)[:, 0].numpy()


def rival_table() -> Markdown:
    """Return all methods of the stored run at its three places."""
    names = ("path", "path, falling", "path, derivatives clipped", "path, mean clipped", "score", "score, falling",
             "score, antithetic pairs", "score, no baseline", "mix")  # fmt: skip
    places = ((1, 8), (64, 4), (256, 3))
    rows = []
    for name in names:
        row = []
        for k, t in places:
            ends = stored_distances(name, k, t)
            row.append(f"{np.mean(ends):.2f} ({min(ends):.2f} to {max(ends):.2f})")
        rows.append((name, *row))
    return markdown_table(("method", *(f"k = {k}, T = {t}" for k, t in places)), rows)


# The pendulum of "In practice"


def balance(
    gains: Tensor, noise: Tensor, start: Tensor, *, std: float | int = 1.0, fall: float = 0.3
) -> tuple[Tensor, Tensor]:
    """Run many episodes of a pendulum upside down, pushed by u = -gains . (angle, speed) + std * noise.

    One step is 0.05 s of angle'' = 9.81 sin(angle) + u. An episode ends when |angle| reaches `fall`.
    Shapes: `noise` is steps x episodes, `start` (first angles) episodes. Returns `alive`, steps x episodes,
    1 while the pendulum stands, and `scores`, steps x 2 x episodes, grad log p(u) for the gains.
    Units: angles in radians, gains in 1/s^2 and 1/s.
    """
    angle, speed, alive = start, torch.zeros_like(start), torch.ones_like(start)
    standing, scores = [], []
    for z in noise:
        state = torch.stack([angle, speed])
        scores.append(-alive * state * z / std)
        push = -(gains @ state) + std * z
        speed = speed + 0.05 * (9.81 * torch.sin(angle) + push)
        angle = angle + 0.05 * speed
        alive = alive * (angle.abs() < fall)
        standing.append(alive)
    return torch.stack(standing), torch.stack(scores)


def episode_noise(generator: torch.Generator, *, steps: int = 60, episodes: int = 64) -> tuple[Tensor, Tensor]:
    """Draw the pushes' noise, steps x episodes, and first angles with standard deviation 0.05."""
    noise = torch.randn(steps, episodes, generator=generator, dtype=torch.float64)
    return noise, 0.05 * torch.randn(episodes, generator=generator, dtype=torch.float64)


# Explorers


def _rounded(times: float) -> str:
    """Say a ratio of two measured variances to two digits: samples give no more."""
    return f"{float(f'{times:.2g}'):,.0f}" if times >= 10 else f"{times:.1f}"


@lesson.explorer
class BanditExplorer(Explorer):
    """Learners of the bandit: a constant, a step size, and what is taken off the payment."""

    title = "One hundred learners in front of five arms"
    summary = (
        "Probability of the best arm from the first pull to the last, for the first 20 of 100 learners: blue where the "
        "learner ends on the best arm, orange where it does not. The bars count all 100."
    )
    added = Slider("added constant", "c", "Added to every payment, of every arm", 0, -10, 10, 1)
    step_size = Slider("step size", "η", "How far one pull moves the logits", 0.1, 0.003, 0.3, 0.001)
    pulls = Slider("pulls", "", "How often each learner pulls", 1000, 200, 6000, 200)
    baseline = Choice(
        "subtract", "What is taken off each payment before it teaches", NO_BASELINE, (NO_BASELINE, RUNNING_MEAN)
    )
    together = ("added", "step_size")
    size = (8.0, 3.2)
    strip_scale = 0.5
    dpi = 100
    continuous = False
    shown = 20
    layout = panels(
        ["20 learners", "all 100"],
        ["share of the pulls", "most pulls"],
        ["probability of the best arm", "learners"],
        grid=(1, 2),
        legend=None,
        subplots={"width_ratios": [1, 1]},
        xlim=[(0, 1), (-0.6, 2.6)],
        ylim=[(-0.03, 1.03), (0, 112)],
        xticks=[None, [0, 1, 2]],
    )

    def compute(self, *, step_size, added, pulls, baseline):
        """Return 20 curves, drawn in the colour of their end, and three counts."""
        history = remembered(float(added), baseline == RUNNING_MEAN, round(step_size, 3), pulls)
        final, curves = history[-1], history[::20, : self.shown, -1].T.numpy()
        time, nothing = np.linspace(0, 1, curves.shape[1]), ([], [])
        best, worse = found(final), failed(final)
        return {
            "right": [(time, curve) if curve[-1] > 0.5 else nothing for curve in curves],
            "wrong": [nothing if curve[-1] > 0.5 else (time, curve) for curve in curves],
            "bars": [([place] * 2, [0, height]) for place, height in enumerate((best, worse, LEARNERS - best - worse))],
            "counts": (best, worse),
            "settings": (step_size, added, pulls, baseline),
        }

    def draw(self, left, right_):
        """Draw the lines that move, and three bars."""
        compact(left, right_)
        right_.set_xticks([0, 1, 2], ["best", "worse", "none"])
        plain = {"linewidth": 0.9, "linestyle": "-"}
        return {
            "right": [left.plot([], [], color=BLUE, **plain)[0] for _ in range(self.shown)],
            "wrong": [left.plot([], [], color=RED, **plain)[0] for _ in range(self.shown)],
            "bars": [
                right_.plot([], [], color=color, linewidth=22, linestyle="-", solid_capstyle="butt")[0]
                for color in (BLUE, RED, "#999999")
            ],
        }

    def words(self, state):
        """Count the learners at the end."""
        step_size, added, pulls, baseline = state["settings"]
        best, worse = state["counts"]
        return (
            f"Step size {step_size:g}, {added} added to every payment, {baseline} subtracted: after {pulls:,} pulls "
            f"{best} of 100 learners pull the best arm more often than not, {worse} a worse arm, {LEARNERS - best - worse} "
            f"none of them."
        )


@lesson.explorer
class EstimatorExplorer(Explorer):
    """Histograms and running means of score and path estimates from the same samples."""

    title = "Two estimators of one gradient"
    summary = (
        "Left: share of the single-sample estimates in each bin, on a logarithmic axis, in units of the larger of the two "
        "spreads; the first and last bin collect everything beyond. Right: mean of the first n estimates against n, and "
        "the exact gradient."
    )
    std = Slider("standard deviation", "σ", "Spread of x around the mean", 0.5, 0.1, 2.0, 0.05)
    mean = Slider("mean", "μ", "The gradient is taken with respect to this parameter", 1.0, -2.0, 2.0, 0.1)
    baseline = Slider(
        "baseline",
        "b",
        "Constant subtracted from f(x) in the score estimate; the path has none",
        default=0.0,
        minimum=-5.0,
        maximum=15.0,
        step=0.5,
    )
    samples = Slider("number of samples", "n", "How many estimates are drawn", 500, 20, 2000, 20)
    function = Choice("function f", "What is averaged: smooth, a jump at 0, or waves", "bowl", tuple(FUNCTIONS))
    together = ("mean", "baseline")
    size = (8.0, 3.2)
    strip_scale = 0.5
    dpi = 100
    edges = np.linspace(-4.0, 4.0, 41)  # in units of the larger spread
    least, most_drawn = 2e-4, 8.0
    layout = panels(
        ["single estimates", "running means"],
        ["one estimate / larger spread", "samples averaged"],
        ["share of samples", "mean of the estimates"],
        grid=(1, 2),
        xlim=[(-4, 4), (1, 2000)],
        ylim=[(least, 60), (-most_drawn, most_drawn)],
        xscale=["linear", "log"],
        yscale=["log", "linear"],
        legend=[small_legend("upper left", fontsize=6.5, labelspacing=0.15, borderpad=0.25, handlelength=1.4), None],
    )

    def compute(self, *, mean, std, baseline, samples, function):
        """Return histograms, running means, spreads and the exact gradient."""
        found = estimates(function, mean=mean, std=std, baseline=baseline, samples=samples)
        exact = FUNCTIONS[function][1](mean, std)
        spreads = [float(values.std()) for values in found]
        unit = max(spreads) or 1.0  # no spread: the jump, where no sample reaches it
        inside = [(values / unit).clamp(-4, 4 - 1e-9).numpy() for values in found]
        heights = [np.histogram(values, bins=self.edges)[0] / samples for values in inside]
        outline = [np.repeat(np.maximum(height, self.least), 2) for height in heights]
        means = [running_mean(values) for values in found]
        drawn = [np.clip(curve, -self.most_drawn, self.most_drawn) for curve in means]
        settings = {"mean": mean, "std": std, "baseline": baseline, "samples": samples, "function": function}
        return settings | {
            "histograms": [(np.repeat(self.edges, 2)[1:-1], height) for height in outline],
            "means": [(np.arange(1, samples + 1), curve) for curve in drawn],
            "exact": [([exact / unit] * 2, [self.least, 60]), ([1, 2000], [exact, exact])],
            "gradient": exact,
            "ends": [float(curve[-1]) for curve in means],
            "spreads": spreads,
        }

    def draw(self, left, right):
        """Draw the lines of score and path, and the exact gradient, to be moved."""
        compact(left, right)
        left.set_yticks([1e-3, 1e-2, 1e-1, 1])  # the room above 1 is the legend's
        left.minorticks_off()
        dotted = {"color": BLACK, "linewidth": 1.2, "linestyle": ":", "label": "exact gradient"}
        names = ["path", "score"]
        return {
            "histograms": lines(left, [], names)[::-1],
            "means": lines(right, [], names)[::-1],
            "exact": [axes.plot([], [], **dotted)[0] for axes in (left, right)],
        }

    def words(self, state):
        """Say both means beside the exact gradient, and which estimator needs fewer samples."""
        score, pathwise = state["spreads"]
        ends = state["ends"]
        opening = (
            f"f = {state['function']}, μ = {state['mean']:g}, σ = {state['std']:g}, baseline "
            f"{state['baseline']:g}: the exact gradient is {state['gradient']:z.3f}. Means of {state['samples']} samples: "
            f"score {ends[0]:z.3f} (spread {score:.2f}), path {ends[1]:z.3f} (spread {pathwise:.2f})."
        )
        if state["function"] == "1[x > 0]":
            misses = f"{opening} The path estimate is 0 at every sample: it cannot see the jump."
            away = abs(state["mean"]) / state["std"]
            if away >= 3:
                return f"{misses} But the jump is {away:.1f} σ away: there is almost nothing to miss."
            return misses
        ratio = (score / pathwise) ** 2
        if ratio >= 1:
            return (
                f"{opening} Going by these spreads, the score needs about {_rounded(ratio)} times as many samples as "
                "the path."
            )
        return (
            f"{opening} Going by these spreads, the path needs about {_rounded(1 / ratio)} times as many samples as the "
            "score."
        )


added_prediction = lesson.prediction(
    "09.P1",
    "Now 10 is added to every payment: the same best arm, by the same lead, the same noise. How many of the 100 learners "
    "end on a worse arm?",
    {
        "None": "The average of what a pull teaches is the same. But a single pull now says: more of this arm, whatever it "
        "was.",
        "About 10": "So it would be with between 2 and 3 added. With 10, each of the first pulls is paid about as well as "
        "the best arm's, and learners repeat what they happened to draw.",
        "About 70": right(
            "Every payment is near 10, so whichever arm is drawn becomes much more likely. Most learners soon draw hardly "
            "anything else, before they have met the best arm often."
        ),
        "All 100": "The best arm still pays 0.75 more than any other, and about 30 learners end on it.",
    },
    reveal=plot_added,
)

wave_prediction = lesson.prediction(
    "09.P2",
    "On the bowl without waves, about 6 samples of the path estimate bring its standard error to a tenth of the gradient; "
    "the score estimate, with its best constant baseline, needs 209. Now the waves come, with T = 6: $\\cos(64x)$. The "
    "gradient of $F$ is still -2.00. How many samples does each need?",
    {
        "Path 6, score 209: the waves average out": "In $F$ they do. A single sample sees the full slope of a wave, or its "
        "full height.",
        "Path about 260, score about 50,000": "It is the other way round: the wave's slope is 64 times as large as its "
        "height, and the score estimate never looks at slopes.",
        "Path about 50,000, score about 260": right(
            "The wave adds 64²/2 to the variance of the derivative, and only a few units to that of the score estimate: it "
            "reads heights, and the wave is 1 high."
        ),
        "Both about 50,000": "The path does. But the score estimate reads values of f, and the wave is only 1 high.",
    },
    reveal=plot_samples,
)

map_prediction = lesson.prediction(
    "09.P3",
    "256 coordinates, waves with T = 8. Each method walks 200 steps with 16 samples a step, at its best step size. Whose "
    "mean distance from the goal is smaller at the end?",
    {
        "The path's: less than half of the score's": "With T = 3 it is. But the path pays for the slope of the waves, "
        "and with T = 8 that is 32 times as steep.",
        "The score's: less than half of the path's": right(
            "One value of f has to serve all 256 coordinates, and yet waves of this slope disturb the path more."
        ),
        "They differ by less than a third": "With T = 5 they do: there 256 coordinates disturb the score estimate about as "
        "much as the waves disturb the path.",
        "Neither moves": "Noise slows both, but 16 samples a step and 200 steps bring the score most of the way.",
    },
    reveal=plot_map,
)

FIGURES = lesson.figures
