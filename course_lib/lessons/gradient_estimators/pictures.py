"""Experiments, figures, explorer and predictions of lesson 07, gradient_estimators."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from course_lib.figures import BLACK, BLUE, GREEN, RED
from course_lib.lessons.gradient_estimators.contents import lesson
from course_lib.optimization.gradient_estimators import (
    cosine_variances,
    gumbel_softmax,
    leave_one_out,
    pathwise_gradients,
    quadratic_score_variance,
    score_gradients,
)
from course_lib.teaching import Choice, Explorer, Slider, lines, panels


def square(x: Tensor) -> Tensor:
    """f(x) = ||x||^2 for samples x k."""
    return x.square().sum(dim=1)


def step(x: Tensor) -> Tensor:
    """f(x) = 1 where x is above 0, else 0, for samples x 1."""
    return (x[:, 0] > 0).to(x.dtype)


def wave(x: Tensor, *, frequency: float | int = 5.0) -> Tensor:
    """f(x) = cos(frequency x), for samples x 1."""
    return torch.cos(frequency * x[:, 0])


def doublings(x: Tensor, *, times: int) -> Tensor:
    """Start at y = cos x and apply y -> 2 y^2 - 1, which doubles the angle: cos(2^times x), a chaotic iteration."""
    y = torch.cos(x[:, 0])
    for _ in range(times):
        y = 2 * y.square() - 1
    return y


def step_gradient(mean: float | int, std: float | int) -> float:
    """d/dmu P(x > 0) = phi(mu / sigma) / sigma."""
    return math.exp(-((mean / std) ** 2) / 2) / (math.sqrt(2 * math.pi) * std)


def wave_gradient(mean: float | int, std: float | int, *, frequency: float | int = 5.0) -> float:
    """d/dmu E[cos(a x)] = -a sin(a mu) exp(-a^2 sigma^2 / 2)."""
    return -frequency * math.sin(frequency * mean) * math.exp(-((frequency * std) ** 2) / 2)


FUNCTIONS: Mapping[str, tuple[Callable[[Tensor], Tensor], Callable[[float, float], float]]] = {
    "x²": (square, lambda mean, std: 2 * mean),
    "1[x > 0]": (step, step_gradient),
    "cos(5x)": (wave, wave_gradient),
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


@lesson.figure(
    ["$f(x) = x^2$", "$f(x) = 1[x > 0]$"],
    "samples",
    "mean of the estimates",
    grid=(1, 2),
    ylim=[(0, 4), (-0.1, 0.6)],
    xscale="log",
    legend="upper right",
)
def plot_question(*axes, samples: int = 5000):
    """Draw the running means of both estimators for the square and for the step at mu = sigma = 1."""
    for one, name in zip(axes, ("x²", "1[x > 0]"), strict=True):
        score, pathwise = estimates(name, mean=1.0, std=1.0, samples=samples)
        means = {"reparameterised": running_mean(pathwise), "score function": running_mean(score)}
        lines(one, np.arange(1, samples + 1), means)
        exact = FUNCTIONS[name][1](1.0, 1.0)
        one.axhline(exact, color=BLACK, linewidth=1, linestyle=":", label=f"exact, {exact:.4g}")
        one.set_xlim(10, samples)
    return (
        "Mean of the estimates against the number of samples, for two functions at mu = sigma = 1. For the square "
        "both estimators approach 2, the score function with much wider swings. For the step the score function "
        f"approaches {step_gradient(1, 1):.4f} and the reparameterised gradient is 0 for every sample."
    )


@lesson.figure(
    ["Score function: the density changes", "Reparameterisation: the samples move"],
    "x",
    ["density", "f(x)"],
    grid=(1, 2),
    legend=["upper right", "upper left"],
    xlim=(-2.2, 4.6),
    ylim=[(0, 0.62), (-0.5, 14)],
)
def plot_two_ways(left, right, *, shift: float = 0.5):
    """Draw what a shift of mu does to the density at fixed x, and to samples on the curve of f = x^2."""
    x = np.linspace(-2.2, 4.6, 400)
    before, after = (np.exp(-((x - mu) ** 2) / 2) / math.sqrt(2 * math.pi) for mu in (1.0, 1.0 + shift))
    lines(left, x, {"$\\mu$ = 1": before, f"$\\mu$ = {1 + shift:g}": after})
    for where, color, label in ((after > before, GREEN, "more likely"), (after < before, RED, "less likely")):
        left.fill_between(x, before, after, where=where, color=color, alpha=0.35, label=label)
    lines(right, x, {"$f(x) = x^2$": x**2})
    starts = np.array([-0.4, 0.3, 1.0, 1.7, 2.6])
    right.plot(starts, starts**2, "o", color=BLACK, markersize=6, label="samples, $\\mu$ = 1")
    for start in starts:
        right.annotate("", (start + shift, (start + shift) ** 2), (start, start**2),
                       arrowprops={"arrowstyle": "->", "color": RED, "linewidth": 2})  # fmt: skip
    return (
        f"What a shift of mu from 1 to {1 + shift:g} does. Left: at a fixed x the density changes; x on the left get less "
        "likely, x on the right more likely, and the values of f stay. Right: five samples on the curve of x squared move "
        "to the right by the same amount, and f changes by its derivative times the shift."
    )


@lesson.figure(
    "A baseline changes the variance, not the mean",
    "baseline $b$",
    "variance of one estimate",
    xlim=(-2, 10),
    ylim=(0, 55),
)
def plot_baseline(axes):
    """Draw the variance of the score estimate of x^2 against a constant baseline, at mu = sigma = 1."""
    variance = lambda b: quadratic_score_variance(mean=1, std=1, baseline=b)  # noqa: E731
    baselines = np.linspace(-2, 10, 121)
    axes.axhline(4, color=BLUE, linestyle="-", label="reparameterised: 4")
    lines(axes, baselines, {"score function": [variance(b) for b in baselines]}, first=1)
    for b, marker, name in ((0.0, "o", "no baseline"), (2.0, "s", "$b = E[f]$"), (4.0, "D", "best constant")):
        axes.plot([b], [variance(b)], marker, color=BLACK, markersize=8, label=f"{name}: {variance(b):.0f}")
    return (
        "Variance of the score estimate for f = x squared, mu = sigma = 1, against the baseline: a parabola through 30 "
        "at b = 0 and 18 at b = 2, the mean of f, with its lowest point 14 at b = 4. The reparameterised estimate "
        "has variance 4 and no baseline."
    )


@lesson.figure(
    "Noise of the score function grows with the dimension",
    "dimension $k$",
    "variance of one coordinate",
    xscale="log",
    yscale="log",
    ylim=(2, 3e5),
    legend={"loc": "upper left", "fontsize": 8},
)
def plot_dimension(axes, dimensions: Sequence[int] = (1, 2, 4, 8, 16, 32, 64), *, samples: int = 4000):
    """Draw the variance of one coordinate against the dimension for f = ||x||^2, all means and sigma 1."""
    generator = torch.Generator().manual_seed(0)
    measured: dict[str, list[float]] = {"path": [], "none": [], "best": []}
    for k in dimensions:
        noise = torch.randn(samples, k, generator=generator, dtype=torch.float64)
        mean = torch.ones(k, dtype=torch.float64)
        for name, baseline in (("none", 0.0), ("best", 2.0 * k + 2)):
            found = score_gradients(square, mean, std=1, noise=noise, baseline=baseline)
            measured[name].append(float(found.var(dim=0).mean()))
        measured["path"].append(float(pathwise_gradients(square, mean, std=1, noise=noise).var(dim=0).mean()))
    k = np.array(dimensions, dtype=float)
    rows = (
        ("path", 0 * k + 4, BLUE, "D", "reparameterised"),
        ("none", 30 + 22 * (k - 1) + 4 * (k - 1) ** 2, RED, "o", "score, no baseline"),
        ("best", 14 + 6 * (k - 1), GREEN, "s", "score, best constant baseline"),
    )
    for place, (name, exact, color, marker, label) in enumerate(rows):
        lines(axes, k, {f"{label}, exact": exact}, first=place)
        hollow = {"color": color, "markersize": 6, "fillstyle": "none"}
        axes.plot(k, measured[name], marker, label=f"{label}, measured", **hollow)
    return (
        "Variance of one coordinate of the gradient against the dimension k, both axes logarithmic, measured points on "
        "exact curves: the score function grows like 4 k squared, with the best constant baseline like 6 k, and the "
        "reparameterised gradient stays at 4."
    )


@lesson.figure(
    "The same gradient, 2, from $f(x) = x^2 + c$",
    "constant $c$ added to $f$",
    "variance of one estimate",
    yscale="log",
    xlim=(0, 100),
    ylim=(1, 1e5),
    legend="center right",
)
def plot_added_constant(axes):
    """Draw both variances for f = x^2 + c against c, at mu = sigma = 1."""
    constants = np.linspace(0, 100, 101)
    score = [quadratic_score_variance(mean=1, std=1, baseline=-c) for c in constants]
    lines(axes, constants, {"reparameterised": 0 * constants + 4, "score function": score})
    return (
        f"Variance against the constant c in f = x squared + c: the score function's goes from {score[0]:.0f} at "
        f"c = 0 to {score[-1]:.0f} at c = 100, the reparameterised one stays at 4."
    )


@lesson.figure(
    "A shift carries some samples across the jump",
    "x",
    "density, and f(x) / 4",
    size=(7.2, 4.0),
    legend="upper left",
    xlim=(-2.2, 4.6),
    ylim=(-0.02, 0.72),
)
def plot_jump(axes, *, shift: float = 0.3, jump: float = 0.5):
    """Draw a step at `jump` with the density of x before and after a shift of mu, and the probability that crosses."""
    x = np.linspace(-2.2, 4.6, 681)
    law = lambda mu: np.exp(-((x - mu) ** 2) / 2) / math.sqrt(2 * math.pi)  # noqa: E731
    lines(axes, x, {"$\\mu$ = 1": law(1.0), f"$\\mu$ = {1 + shift:g}": law(1.0 + shift)})
    axes.plot([-2.2, jump, jump, 4.6], [0, 0, 0.25, 0.25], color=BLACK, linewidth=1.4, linestyle=":",
              label="$1[x > 1/2]$, a quarter as high")  # fmt: skip
    crossing = (x >= jump - shift) & (x <= jump)
    axes.fill_between(x, 0, law(1.0), where=crossing, color=RED, alpha=0.5, label="crosses the jump")
    density = math.exp(-((jump - 1) ** 2) / 2) / math.sqrt(2 * math.pi)
    return (
        f"The density of x for mu = 1 and for mu = {1 + shift:g}, and a step at {jump:g}. A shift of the samples carries "
        "those in a narrow strip left of the step across it: a share of about the shift times the density at the step, "
        f"which is {density:.3f}. The derivative of the step is 0 at every sample, so it misses this share."
    )


@lesson.figure(
    ["Bias grows with $\\tau$", "Spread grows towards $\\tau$ = 0"],
    "temperature $\\tau$",
    ["mean of the gradient", "standard deviation"],
    grid=(1, 2),
    xscale="log",
    legend=["lower left", "upper right"],
)
def plot_temperature(
    left, right, temperatures: Sequence[float] = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0), *, samples: int = 20_000
):
    """Draw mean and standard deviation of the Gumbel-softmax gradient against the temperature."""
    logits = torch.tensor([1.0, 0.0], dtype=torch.float64)
    # The difference of two Gumbel variables is logistic: its quantiles stand in for random draws.
    u = (torch.arange(samples, dtype=torch.float64) + 0.5) / samples
    noise = torch.stack([u.logit(), torch.zeros_like(u)], dim=1)
    for place, (bump, marker) in enumerate(((0.0, "o"), (8.0, "s"))):
        means, spreads = [], []
        for temperature in temperatures:
            y = gumbel_softmax(logits, noise, temperature=temperature)[:, 0]
            slope = (1 + bump * (1 - 2 * y)) * y * (1 - y) / temperature
            means.append(float(slope.mean()))
            spreads.append(float(slope.std()))
        for axes, curve in ((left, means), (right, spreads)):
            lines(axes, temperatures, {f"$c$ = {bump:g}": curve}, first=place, marker=marker)
    p = float(logits.softmax(0)[0])
    exact = p * (1 - p)
    left.axhline(exact, color=BLACK, linewidth=1, linestyle=":", label=f"exact for both, {exact:.4f}")
    return (
        "Gumbel-softmax gradient for f(y) = y + c y (1 - y) against the temperature. Left: near temperature 0 the mean "
        f"is close to the exact {exact:.4f}; it moves away as the temperature grows, and for c = 8 it becomes "
        "negative. Right: the standard deviation grows towards temperature 0."
    )


@lesson.figure(
    "Derivatives through chaos",
    "doublings $T$",
    "variance of one estimate",
    yscale="log",
    ylim=(1e-2, 1e7),
    legend="upper left",
)
def plot_chaos(axes, *, mean: float | int = 1.0, std: float | int = 0.5, most: int = 10, samples: int = 4000):
    """Draw both variances against the number of angle doublings, measured and exact."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(samples, 1, generator=generator, dtype=torch.float64)
    center = torch.tensor([mean], dtype=torch.float64)
    times = np.arange(most + 1)
    exact = np.array([cosine_variances(frequency=2.0**t, mean=mean, std=std) for t in times])
    measured = []
    for t in times:
        f = lambda x, t=int(t): doublings(x, times=t)  # noqa: E731
        found = [estimate(f, center, std=std, noise=noise) for estimate in (score_gradients, pathwise_gradients)]
        measured.append([float(values.var()) for values in found])
    looks = (("score function", 1, RED, "o"), ("reparameterised", 0, BLUE, "D"))
    for column, (name, place, color, marker) in enumerate(looks):
        lines(axes, times, {f"{name}, exact": exact[:, column]}, first=place)
        points = np.array(measured)[:, column]
        axes.plot(times, points, marker, color=color, fillstyle="none", label=f"{name}, measured")
    return (
        f"Variance against the number T of angle doublings, logarithmic: the score function's stays near "
        f"{exact[-1, 0]:.0f}, the reparameterised one starts below it, crosses it at T = 1 to 2 and then grows "
        f"fourfold with every doubling, to {exact[-1, 1]:.0f} at T = {most}."
    )


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


def learn_to_balance(seed: int, *, updates: int = 60) -> list[float]:
    """REINFORCE with returns to go and leave-one-out baselines; mean episode length before each update."""
    generator = torch.Generator().manual_seed(seed)
    gains = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([gains], lr=0.3, maximize=True)
    lengths = []
    for _ in range(updates):
        alive, scores = balance(gains.detach(), *episode_noise(generator))
        to_go = alive.flip(0).cumsum(0).flip(0)
        advantage = torch.stack([row - leave_one_out(row) for row in to_go])
        gains.grad = (advantage[:, None] * scores).sum(0).mean(1)
        optimizer.step()
        lengths.append(float(alive.sum(0).mean()))
    return lengths


@lesson.figure(
    "A pendulum learns to stand",
    "update",
    "steps before the fall",
    ylim=(0, 65),
    legend={"loc": "lower right", "ncols": 2},
    example=lambda: {seed: learn_to_balance(seed) for seed in range(4)},
)
def plot_balance(axes, lengths: Mapping[int, Sequence[float]]):
    """Draw the mean episode length against the update, one curve a seed."""
    lines(axes, None, {f"seed {seed}": curve for seed, curve in lengths.items()})
    axes.axhline(60, color=BLACK, linewidth=1, linestyle=":")
    first, last = ([curve[i] for curve in lengths.values()] for i in (0, -1))
    return (
        f"Mean episode length against the update for {len(lengths)} seeds: all curves rise from about "
        f"{np.mean(first):.0f} steps to {np.mean(last):.0f} of 60 and stay there."
    )


@lesson.explorer
class EstimatorExplorer(Explorer):
    """Histograms and running means of score and reparameterised estimates from the same samples."""

    title = "Two estimators of one gradient"
    summary = (
        "Left: share of the single-sample estimates in each bin of width 1, on a logarithmic axis; the first and last "
        "bin collect everything beyond. Right: mean of the first n estimates against n, and the exact gradient."
    )
    std = Slider("standard deviation", "σ", "Spread of x around the mean", 1.0, 0.2, 2.0, 0.05)
    mean = Slider("mean", "μ", "The gradient is taken with respect to this parameter", 1.0, -2.0, 2.0, 0.1)
    baseline = Slider(
        "baseline",
        "b",
        "Constant subtracted from f(x) in the score estimate; the other estimate has none",
        default=0.0,
        minimum=-5.0,
        maximum=15.0,
        step=0.5,
    )
    samples = Slider("number of samples", "n", "How many estimates are drawn", 500, 20, 2000, 20)
    function = Choice("function f", "What is averaged: smooth, a jump at 0, or a fast wave", "x²", tuple(FUNCTIONS))
    together = ("mean", "baseline")
    size = (9.0, 4.0)
    edges = np.arange(-20.0, 21.0)
    least, most_drawn = 2e-4, 8.0
    layout = panels(
        ["Distribution of the estimates", "Running mean, same lines"],
        ["estimate from one sample", "samples averaged"],
        ["share of samples", "mean of the estimates"],
        grid=(1, 2),
        xlim=[(-20, 20), (1, 2000)],
        ylim=[(least, 60), (-most_drawn, most_drawn)],
        xscale=["linear", "log"],
        yscale=["log", "linear"],
        legend=[{"loc": "upper left", "fontsize": 8}, None],
    )

    def compute(self, *, mean, std, baseline, samples, function):
        """Return histograms, running means, spreads and the exact gradient."""
        found = estimates(function, mean=mean, std=std, baseline=baseline, samples=samples)
        exact = FUNCTIONS[function][1](mean, std)
        heights = [np.histogram(v.clamp(-20, 20 - 1e-9).numpy(), bins=self.edges)[0] / samples for v in found]
        outline = [np.repeat(np.maximum(height, self.least), 2) for height in heights]
        means = [running_mean(values) for values in found]
        drawn = [np.clip(curve, -self.most_drawn, self.most_drawn) for curve in means]
        settings = {"mean": mean, "std": std, "baseline": baseline, "samples": samples, "function": function}
        return settings | {
            "histograms": [(np.repeat(self.edges, 2)[1:-1], height) for height in outline],
            "means": [(np.arange(1, samples + 1), curve) for curve in drawn],
            "exact": [([exact, exact], [self.least, 60]), ([1, 2000], [exact, exact])],
            "gradient": exact,
            "ends": [float(curve[-1]) for curve in means],
            "spreads": [float(values.std()) for values in found],
        }

    def draw(self, left, right):
        """Draw the score function's and the reparameterised estimate's lines, and the exact gradient, to be moved."""
        left.set_yticks([1e-3, 1e-2, 1e-1, 1])  # the room above 1 is the legend's
        dotted = {"color": BLACK, "linewidth": 1.2, "linestyle": ":", "label": "exact gradient"}
        names = ["reparameterised", "score function"]
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
            f"score function {ends[0]:z.3f} (spread {score:.2f}), reparameterised {ends[1]:z.3f} (spread {pathwise:.2f})."
        )
        if state["function"] == "1[x > 0]":
            return f"{opening} The reparameterised estimate is 0 for every sample: it cannot see the jump."
        ratio = (score / pathwise) ** 2
        if ratio >= 1:
            return f"{opening} For equal accuracy the score function needs {ratio:.1f} times as many samples here."
        more = f"{1 / ratio:.1f} times as many samples here."
        return f"{opening} For equal accuracy the reparameterised estimate needs {more}"


added_constant_prediction = lesson.prediction(
    "07.P1",
    "With $\\mu = \\sigma = 1$ and $f(x) = x^2$ the score function estimate has variance 30 and the reparameterised one 4. "
    "Now take $f(x) = x^2 + 100$: the same gradient, 2. What happens to the two variances?",
    {
        "Neither changes": "True for the reparameterised gradient, which sees f' alone. The score estimate multiplies "
        "the 100 by z/σ before it averages out.",
        "The score function's explodes, the other stays": "The score estimate holds 100 · z/σ, which has mean 0 and "
        "variance 10,000. The derivative of a constant is 0.",
        "Both explode": "The reparameterised gradient sees f' alone, and a constant has none.",
    },
    answer="The score function's explodes, the other stays",
    reveal=plot_added_constant,
)

chaos_prediction = lesson.prediction(
    "07.P2",
    "$f$ starts at $y = \\cos x$ and applies $y \\to 2y^2 - 1$ eight times. It is smooth, and autograd gives its "
    "exact derivative. With $\\mu = 1$, $\\sigma = 0.5$, which estimator has the smaller variance?",
    {
        "Reparameterised": "Its estimates are unbiased, and huge: the derivative doubles, typically, with each of the "
        "eight steps, while f stays between -1 and 1.",
        "Score function": "f stays between -1 and 1, so the score estimate is at most |z|/σ. The derivative doubles, "
        "typically, with each of the eight steps.",
        "About the same": "The derivative of cos(256 x) has size 256; the values of f have size 1.",
    },
    answer="Score function",
    reveal=plot_chaos,
)

FIGURES = lesson.figures
