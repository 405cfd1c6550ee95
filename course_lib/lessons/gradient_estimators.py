"""Figures, explorer, predictions and exercises of lesson 07, gradient_estimators."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.optimization.gradient_estimators import (
    cosine_variances,
    gaussian_expectation,
    gumbel_softmax,
    leave_one_out,
    pathwise_gradients,
    quadratic_score_variance,
    score_gradients,
)
from course_lib.teaching.exercise import Exercise, Mistake, Property
from course_lib.teaching.explorer import Choice, Explorer, Slider
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.style import BLACK, BLUE, GREEN, RED, describe, new_figure, styled

# What is averaged


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
    name: str,
    *,
    mean: float | int,
    std: float | int,
    samples: int,
    baseline: float | int = 0.0,
    seed: int = 0,
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


# Figures


@styled
def plot_question(samples: int = 5000) -> Figure:
    """Draw the running means of both estimators for the square and for the step at mu = sigma = 1."""
    figure = new_figure(8.6, 3.8)
    count = np.arange(1, samples + 1)
    panels = (("x²", "$f(x) = x^2$", (0, 4)), ("1[x > 0]", "$f(x) = 1[x > 0]$", (-0.1, 0.6)))
    for axes, (name, title, limits) in zip(figure.subplots(1, 2), panels, strict=True):
        score, pathwise = estimates(name, mean=1.0, std=1.0, samples=samples)
        exact = FUNCTIONS[name][1](1.0, 1.0)
        axes.semilogx(count, running_mean(score), color=RED, linestyle="--", label="score function")
        axes.semilogx(count, running_mean(pathwise), color=BLUE, linestyle="-", label="reparameterised")
        axes.axhline(exact, color=BLACK, linewidth=1, linestyle=":", label=f"exact, {exact:.4g}")
        axes.set(
            xlim=(10, samples), ylim=limits, xlabel="samples", ylabel="mean of the estimates", title=title
        )
        axes.legend(loc="upper right")
    return describe(
        figure,
        "Mean of the estimates against the number of samples, for two functions at mu = sigma = 1. For the square "
        "both estimators approach 2, the score function with much wider swings. For the step the score function "
        f"approaches {step_gradient(1, 1):.4f} and the reparameterised gradient is 0 for every sample.",
    )


@styled
def plot_baseline() -> Figure:
    """Draw the variance of the score estimate of x^2 against a constant baseline, at mu = sigma = 1."""
    figure = new_figure(6.4, 3.8)
    axes = figure.add_subplot()
    baselines = np.linspace(-2, 10, 121)
    axes.plot(
        baselines,
        [quadratic_score_variance(mean=1, std=1, baseline=b) for b in baselines],
        color=RED,
        linestyle="--",
        label="score function",
    )
    marked = ((0.0, "o", "no baseline"), (2.0, "s", "$b = E[f]$"), (4.0, "D", "best constant"))
    for b, marker, name in marked:
        variance = quadratic_score_variance(mean=1, std=1, baseline=b)
        axes.plot([b], [variance], marker, color=BLACK, markersize=8, label=f"{name}: {variance:.0f}")
    axes.axhline(4, color=BLUE, linestyle="-", label="reparameterised: 4")
    axes.set(xlabel="baseline $b$", ylabel="variance of one estimate", xlim=(-2, 10), ylim=(0, 55))
    axes.set_title("A baseline moves the variance, not the mean")
    axes.legend(loc="upper right")
    return describe(
        figure,
        "Variance of the score estimate for f = x squared, mu = sigma = 1, against the baseline: a parabola through 30 "
        "at b = 0 and 18 at b = 2, the mean of f, with its lowest point 14 at b = 4. The reparameterised estimate "
        "has variance 4 and no baseline.",
    )


@styled
def plot_dimension(dimensions: Sequence[int] = (1, 2, 4, 8, 16, 32, 64), *, samples: int = 4000) -> Figure:
    """Draw the variance of one coordinate against the dimension for f = ||x||^2, all means and sigma 1."""
    figure = new_figure(6.4, 4.0)
    axes = figure.add_subplot()
    generator = torch.Generator().manual_seed(0)
    measured: dict[str, list[float]] = {"none": [], "best": [], "path": []}
    for k in dimensions:
        noise = torch.randn(samples, k, generator=generator, dtype=torch.float64)
        mean = torch.ones(k, dtype=torch.float64)
        for name, baseline in (("none", 0.0), ("best", 2.0 * k + 2)):
            found = score_gradients(square, mean, std=1, noise=noise, baseline=baseline)
            measured[name].append(float(found.var(dim=0).mean()))
        measured["path"].append(float(pathwise_gradients(square, mean, std=1, noise=noise).var(dim=0).mean()))
    k = np.array(dimensions, dtype=float)
    rows = (
        ("none", 30 + 22 * (k - 1) + 4 * (k - 1) ** 2, RED, "--", "o", "score, no baseline"),
        ("best", 14 + 6 * (k - 1), GREEN, "-.", "s", "score, best constant baseline"),
        ("path", 0 * k + 4, BLUE, "-", "D", "reparameterised"),
    )
    for name, exact, color, style, marker, label in rows:
        axes.loglog(k, exact, color=color, linestyle=style, label=f"{label}, exact")
        axes.loglog(
            k, measured[name], marker, color=color, markersize=6, fillstyle="none", label=f"{label}, measured"
        )
    axes.set(xlabel="dimension $k$", ylabel="variance of one coordinate", ylim=(2, 3e5))
    axes.set_title("Noise of the score function grows with the dimension")
    axes.legend(loc="upper left", fontsize=8)
    return describe(
        figure,
        "Variance of one coordinate of the gradient against the dimension k, both axes logarithmic, measured points on "
        "exact curves: the score function grows like 4 k squared, with the best constant baseline like 6 k, and the "
        "reparameterised gradient stays at 4.",
    )


@styled
def plot_added_constant() -> Figure:
    """Draw both variances for f = x^2 + c against c, at mu = sigma = 1."""
    figure = new_figure(6.4, 3.6)
    axes = figure.add_subplot()
    constants = np.linspace(0, 100, 101)
    score = [quadratic_score_variance(mean=1, std=1, baseline=-c) for c in constants]
    axes.semilogy(constants, score, color=RED, linestyle="--", label="score function")
    axes.axhline(4, color=BLUE, linestyle="-", label="reparameterised")
    axes.set(
        xlabel="constant $c$ added to $f$", ylabel="variance of one estimate", xlim=(0, 100), ylim=(1, 1e5)
    )
    axes.set_title("The same gradient, 2, from $f(x) = x^2 + c$")
    axes.legend(loc="center right")
    return describe(
        figure,
        f"Variance against the constant c in f = x squared + c: the score function's goes from {score[0]:.0f} at "
        f"c = 0 to {score[-1]:.0f} at c = 100, the reparameterised one stays at 4.",
    )


@styled
def plot_temperature(
    temperatures: Sequence[float] = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0), *, samples: int = 20_000
) -> Figure:
    """Draw mean and standard deviation of the Gumbel-softmax gradient against the temperature."""
    figure = new_figure(8.6, 3.8)
    left, right = figure.subplots(1, 2)
    logits = torch.tensor([1.0, 0.0], dtype=torch.float64)
    # The difference of two Gumbel variables is logistic: its quantiles stand in for random draws.
    u = (torch.arange(samples, dtype=torch.float64) + 0.5) / samples
    noise = torch.stack([u.logit(), torch.zeros_like(u)], dim=1)
    for bump, color, style, marker in ((0.0, BLUE, "-", "o"), (8.0, RED, "--", "s")):
        means, spreads = [], []
        for temperature in temperatures:
            y = gumbel_softmax(logits, noise, temperature=temperature)[:, 0]
            slope = (1 + bump * (1 - 2 * y)) * y * (1 - y) / temperature
            means.append(float(slope.mean()))
            spreads.append(float(slope.std()))
        label = f"$c$ = {bump:g}"
        for axes, curve in ((left, means), (right, spreads)):
            axes.semilogx(temperatures, curve, color=color, linestyle=style, marker=marker, label=label)
    p = float(logits.softmax(0)[0])
    left.axhline(
        p * (1 - p), color=BLACK, linewidth=1, linestyle=":", label=f"exact for both, {p * (1 - p):.4f}"
    )
    left.set(xlabel="temperature $\\tau$", ylabel="mean of the gradient", title="Bias grows with $\\tau$")
    right.set(
        xlabel="temperature $\\tau$", ylabel="standard deviation", title="Spread grows towards $\\tau$ = 0"
    )
    left.legend(loc="lower left")
    right.legend(loc="upper right")
    return describe(
        figure,
        "Gumbel-softmax gradient for f(y) = y + c y (1 - y) against the temperature. Left: near temperature 0 the mean "
        f"is close to the exact {p * (1 - p):.4f}; it moves away as the temperature grows, and for c = 8 it becomes "
        "negative. Right: the standard deviation grows towards temperature 0.",
    )


@styled
def plot_chaos(
    *, mean: float | int = 1.0, std: float | int = 0.5, most: int = 10, samples: int = 4000
) -> Figure:
    """Draw both variances against the number of angle doublings, measured and exact."""
    figure = new_figure(6.4, 4.0)
    axes = figure.add_subplot()
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(samples, 1, generator=generator, dtype=torch.float64)
    center = torch.tensor([mean], dtype=torch.float64)
    times = np.arange(most + 1)
    exact = np.array([cosine_variances(frequency=2.0**t, mean=mean, std=std) for t in times])
    measured = []
    for t in times:
        f = lambda x, t=int(t): doublings(x, times=t)  # noqa: E731
        both = (
            score_gradients(f, center, std=std, noise=noise),
            pathwise_gradients(f, center, std=std, noise=noise),
        )
        measured.append([float(found.var()) for found in both])
    for i, (name, color, style, marker) in enumerate(
        (("score function", RED, "--", "o"), ("reparameterised", BLUE, "-", "D"))
    ):
        axes.semilogy(times, exact[:, i], color=color, linestyle=style, label=f"{name}, exact")
        axes.semilogy(
            times, np.array(measured)[:, i], marker, color=color, fillstyle="none", label=f"{name}, measured"
        )
    axes.set(xlabel="doublings $T$", ylabel="variance of one estimate", ylim=(1e-2, 1e7))
    axes.set_title("Derivatives through chaos")
    axes.legend(loc="upper left")
    return describe(
        figure,
        f"Variance against the number T of angle doublings, logarithmic: the score function's stays near "
        f"{exact[-1, 0]:.0f}, the reparameterised one starts below it, crosses it at T = 1 to 2 and then grows "
        f"fourfold with every doubling, to {exact[-1, 1]:.0f} at T = {most}.",
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


def episode_noise(
    generator: torch.Generator, *, steps: int = 60, episodes: int = 64
) -> tuple[Tensor, Tensor]:
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


@styled
def plot_balance(lengths: Mapping[int, Sequence[float]]) -> Figure:
    """Draw the mean episode length against the update, one curve a seed."""
    figure = new_figure(6.4, 3.8)
    axes = figure.add_subplot()
    for seed, curve in lengths.items():
        axes.plot(curve, label=f"seed {seed}")
    axes.axhline(60, color=BLACK, linewidth=1, linestyle=":")
    axes.set(
        xlabel="update", ylabel="steps before the fall", ylim=(0, 65), title="A pendulum learns to stand"
    )
    axes.legend(loc="lower right", ncols=2)
    first, last = ([curve[i] for curve in lengths.values()] for i in (0, -1))
    return describe(
        figure,
        f"Mean episode length against the update for {len(lengths)} seeds: all curves rise from about "
        f"{np.mean(first):.0f} steps to {np.mean(last):.0f} of 60 and stay there.",
    )


# Explorer


class EstimatorExplorer(Explorer):
    """Histograms and running means of score and reparameterised estimates from the same samples."""

    title = "Two estimators of one gradient"
    summary = (
        "Left: share of the single-sample estimates in each bin of width 1, on a logarithmic axis; the first and last "
        "bin collect everything beyond. Right: mean of the first n estimates against n, and the exact gradient."
    )
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "mean": Slider(
            label="mean", symbol="μ", default=1.0, minimum=-2.0, maximum=2.0, step=0.1,
            tooltip="The parameter that the gradient is taken for",
        ),
        "std": Slider(
            label="standard deviation", symbol="σ", default=1.0, minimum=0.2, maximum=2.0, step=0.05,
            tooltip="Spread of x around the mean",
        ),
        "baseline": Slider(
            label="baseline", symbol="b", default=0.0, minimum=-5.0, maximum=15.0, step=0.5,
            tooltip="Constant subtracted from f(x) in the score estimate; the other estimate has none",
        ),
        "samples": Slider(
            label="number of samples", symbol="n", default=500, minimum=20, maximum=2000, step=20,
            tooltip="How many estimates are drawn",
        ),
        "function": Choice(
            label="function f", default="x²", options=tuple(FUNCTIONS),
            tooltip="What is averaged: smooth, a jump at 0, or a fast wave",
        ),
    }  # fmt: skip
    size = (9.0, 4.0)
    edges = np.arange(-20.0, 21.0)
    least, most_drawn = 2e-4, 8.0

    def compute(self, *, mean, std, baseline, samples, function):
        """Return histograms, running means, spreads and the exact gradient."""
        score, pathwise = estimates(function, mean=mean, std=std, baseline=baseline, samples=samples)
        state = {
            "exact": FUNCTIONS[function][1](mean, std),
            "samples": samples,
            "function": function,
            "mean": mean,
            "std": std,
            "baseline": baseline,
        }
        for name, found in (("score", score), ("pathwise", pathwise)):
            inside = found.clamp(self.edges[0], self.edges[-1] - 1e-9).numpy()
            state[name] = np.histogram(inside, bins=self.edges)[0] / samples
            state[f"{name}_running"] = running_mean(found)
            state[f"{name}_spread"] = float(found.std())
        return state

    def draw(self, figure):
        """Draw both axes with fixed limits."""
        left, right = figure.subplots(1, 2)
        left.set(
            xlim=(-20, 20), ylim=(self.least, 60), yscale="log", xlabel="estimate from one sample",
            ylabel="share of samples", title="Distribution of the estimates",
        )  # fmt: skip
        right.set(
            xlim=(1, 2000), ylim=(-self.most_drawn, self.most_drawn), xscale="log", xlabel="samples averaged",
            ylabel="mean of the estimates", title="Running mean, same lines",
        )  # fmt: skip
        artists = {}
        for name, label, color, style in (
            ("score", "score function", RED, "--"),
            ("pathwise", "reparameterised", BLUE, "-"),
        ):
            (artists[name],) = left.plot([], [], color=color, linestyle=style, label=label)
            (artists[f"{name}_running"],) = right.plot([], [], color=color, linestyle=style, label=label)
        for place, axes in (("left", left), ("right", right)):
            (artists[f"exact_{place}"],) = axes.plot(
                [], [], color=BLACK, linewidth=1.2, linestyle=":", label="exact gradient"
            )
        left.set_yticks([1e-3, 1e-2, 1e-1, 1])  # the room above 1 is the legend's
        left.legend(loc="upper left", fontsize=8)
        return artists

    def update(self, artists, state):
        """Set histograms, running means and exact lines."""
        count = np.arange(1, state["samples"] + 1)
        for name in ("score", "pathwise"):
            heights = np.maximum(state[name], self.least)
            artists[name].set_data(np.repeat(self.edges, 2)[1:-1], np.repeat(heights, 2))
            drawn = np.clip(state[f"{name}_running"], -self.most_drawn, self.most_drawn)
            artists[f"{name}_running"].set_data(count, drawn)
        artists["exact_left"].set_data([state["exact"]] * 2, [self.least, 60])
        artists["exact_right"].set_data([1, 2000], [state["exact"]] * 2)

    def words(self, state):
        """Say both means beside the exact gradient, and which estimator needs fewer samples."""
        score, pathwise = state["score_spread"], state["pathwise_spread"]
        opening = (
            f"f = {state['function']}, μ = {state['mean']:g}, σ = {state['std']:g}, baseline "
            f"{state['baseline']:g}: the exact gradient is {state['exact']:z.3f}. Means of {state['samples']} samples: "
            f"score function {state['score_running'][-1]:z.3f} (spread {score:.2f}), reparameterised "
            f"{state['pathwise_running'][-1]:z.3f} (spread {pathwise:.2f})."
        )
        if state["function"] == "1[x > 0]":
            return f"{opening} The reparameterised estimate is 0 for every sample: it cannot see the jump."
        ratio = (score / pathwise) ** 2
        if ratio >= 1:
            return f"{opening} For equal accuracy the score function needs {ratio:.1f} times as many samples here."
        return (
            f"{opening} For equal accuracy the reparameterised estimate needs {1 / ratio:.1f} times as many "
            "samples here."
        )


# Predictions


def added_constant_prediction() -> Prediction:
    """Ask what a constant added to f does to the two variances."""
    return Prediction(
        "07.P1",
        "With $\\mu = \\sigma = 1$ and $f(x) = x^2$ the variances are 30 and 4. Now take $f(x) = x^2 + 100$: the same "
        "gradient, 2. What happens to the two variances?",
        choices={
            "Neither changes": "True for the reparameterised gradient, which sees f' alone. The score estimate "
            "multiplies the 100 by z/σ before it averages out.",
            "The score function's explodes, the other stays": "The score estimate holds 100 · z/σ, which has mean 0 and "
            "variance 10,000. The derivative of a constant is 0.",
            "Both explode": "The reparameterised gradient sees f' alone, and a constant has none.",
        },
        answer="The score function's explodes, the other stays",
        reveal=plot_added_constant,
    )


def chaos_prediction() -> Prediction:
    """Ask which estimator to take through a chaotic iteration."""
    return Prediction(
        "07.P2",
        "$f$ starts at $y = \\cos x$ and applies $y \\to 2y^2 - 1$ eight times. It is smooth, and autograd gives its "
        "exact derivative. With $\\mu = 1$, $\\sigma = 0.5$, which estimator has the smaller variance?",
        choices={
            "Reparameterised": "Its estimates are unbiased, and huge: the derivative doubles, typically, with "
            "each of the eight steps, while f stays between -1 and 1.",
            "Score function": "f stays between -1 and 1, so the score estimate is at most |z|/σ. The derivative "
            "doubles, typically, with each of the eight steps.",
            "About the same": "The derivative of cos(256 x) has size 256; the values of f have size 1.",
        },
        answer="Score function",
        reveal=plot_chaos,
    )


# Exercises


def _uniform(generator: torch.Generator, low: float, high: float, digits: int = 2) -> float:
    return round(low + (high - low) * float(torch.rand((), generator=generator)), digits)


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64).round(decimals=2)


def _variance_with(baseline: float | int) -> float:
    """Var[(x^2 - b) z / sigma] for mu = 1, sigma = 2, by quadrature."""
    estimate = lambda z: ((1 + 2 * z) ** 2 - baseline) * z / 2  # noqa: E731
    square_mean = gaussian_expectation(lambda z: estimate(z) ** 2, mean=0, std=1, nodes=8)
    return square_mean - gaussian_expectation(estimate, mean=0, std=1, nodes=8) ** 2


_BASELINE = Exercise(
    id="07.1",
    title="The best constant baseline",
    kind="value",
    difficulty=1,
    minutes=6,
    prompt="Let $f(x) = x^2$ and $x \\sim N(\\mu, \\sigma^2)$ with $\\mu = 1$ and $\\sigma = 2$. Which constant "
    "$b$ makes the variance of $(f(x) - b)\\,\\frac{x - \\mu}{\\sigma^2}$ smallest? Give the number.",
    draw=lambda generator: {"shift": _uniform(generator, 0.001, 0.5, 3)},
    reference=13.0,
    properties=(
        Property(
            "A slightly larger baseline has a smaller variance than yours.",
            lambda i, b: _variance_with(float(b)) < _variance_with(float(b) + i["shift"]),
        ),
        Property(
            "A slightly smaller baseline has a smaller variance than yours.",
            lambda i, b: _variance_with(float(b)) < _variance_with(float(b) - i["shift"]),
        ),
    ),
    hints=(
        "The mean does not depend on b, so only the second moment E[(f - b)² s²] matters, with s the score.",
        "That second moment is a parabola in b: set its derivative to zero.",
        "b is the mean of f weighted by s². With x = μ + σz you need E[z²] = 1, E[z³] = 0 and E[z⁴] = 3.",
    ),
    mistakes=(
        Mistake("the mean of f", 5.0, "That is E[f] = μ² + σ². It lowers the variance, and is not the best: samples with "
                "a large score count for more, so f is averaged with the weight s²."),
        Mistake("f at the mean", 1.0, "That is f(μ) = μ². The best baseline averages f over x with the weight s²."),
        Mistake("the gradient", 2.0, "That is the gradient 2μ itself; a baseline is compared with values of f."),
        Mistake("left out sigma", 4.0, "You took μ² + 3: the fourth moment 3 comes with σ², as x = μ + σz."),
        Mistake("did not divide by E[z^2 / sigma^2]", 3.25, "That is E[f s²] alone. Divide by E[s²] = 1/σ², so "
                "that the weights have mean 1."),
    ),
)  # fmt: skip


def score_estimate(samples, values, mean, std, baseline):
    """Average (f(x) - b) (x - mu) / sigma^2 over the samples."""
    return ((values - baseline) * (samples - mean) / std**2).mean()


def _draw_estimate(generator: torch.Generator) -> dict:
    count = int(torch.randint(3, 7, (), generator=generator))
    mean = _uniform(generator, -2.0, 2.0)
    std = _uniform(generator, 1.3, 2.5)
    return {
        "samples": mean + _normal(generator, count),
        "values": _normal(generator, count),
        "mean": mean,
        "std": std,
        "baseline": _uniform(generator, 0.5, 3.0),
    }


def _surrogate_gradient(inputs: Mapping) -> Tensor:
    mean = torch.tensor(inputs["mean"], dtype=torch.float64, requires_grad=True)
    log_prob = torch.distributions.Normal(mean, inputs["std"]).log_prob(inputs["samples"])
    surrogate = ((inputs["values"] - inputs["baseline"]) * log_prob).mean()
    return torch.autograd.grad(surrogate, mean)[0]


_SCORE = Exercise(
    id="07.2",
    title="The score-function estimate",
    kind="function",
    difficulty=1,
    minutes=6,
    prompt="Write `score_estimate(samples, values, mean, std, baseline)`: the score-function estimate of "
    "$\\frac{d}{d\\mu} E[f(x)]$ for $x \\sim N(\\mu, \\sigma^2)$ with a constant baseline. `samples` holds the "
    "$x_i$ and `values` the $f(x_i)$, float64 tensors of one shape; return one number, the mean over the samples.",
    draw=_draw_estimate,
    reference=score_estimate,
    properties=(
        Property(
            "Your estimate should be the derivative of the mean of (f - b) log p(x) for the mean μ.",
            lambda i, out: abs(float(out) - float(_surrogate_gradient(i))) < 1e-9,
        ),
    ),
    hints=(
        "log p(x) = -(x - μ)²/(2σ²) and a constant. What is its derivative for μ?",
        "Subtract the baseline from each value before you weigh it with the score.",
        "Each sample gives (f - b) times (x - μ)/σ²; then take the mean.",
    ),
    mistakes=(
        Mistake("divided by sigma once", lambda x, f, m, s, b: ((f - b) * (x - m) / s).mean(),
                "You divided by σ once. The derivative of (x - μ)²/(2σ²) keeps σ². (With z = (x - μ)/σ it is z/σ: one "
                "σ is hidden in z.)"),
        Mistake("left out sigma", lambda x, f, m, s, b: ((f - b) * (x - m)).mean(),
                "σ² is missing: the derivative of (x - μ)²/(2σ²) for μ keeps it in the denominator."),
        Mistake("turned the sign", lambda x, f, m, s, b: ((f - b) * (m - x) / s**2).mean(),
                "The sign is turned: raising μ makes samples above μ more likely, so their score is positive."),
        Mistake("summed", lambda x, f, m, s, b: ((f - b) * (x - m) / s**2).sum(),
                "You summed over the samples; an expectation is estimated by the mean."),
        Mistake("subtracted the baseline at the end", lambda x, f, m, s, b: (f * (x - m) / s**2).mean() - b,
                "You subtracted the baseline from the gradient: that shifts its mean. It belongs next to f, "
                "where the score multiplies it and its expectation is 0."),
        Mistake("left out the baseline", lambda x, f, m, s, b: (f * (x - m) / s**2).mean(),
                "You left out the baseline. The mean is the same, the variance is not."),
    ),
)  # fmt: skip


def softmax_gradient(logits, values):
    """p_i (f_i - sum_j p_j f_j)."""
    probabilities = logits.softmax(dim=0)
    return probabilities * (values - probabilities @ values)


def _draw_logits(generator: torch.Generator) -> dict:
    count = int(torch.randint(3, 6, (), generator=generator))
    return {"logits": _normal(generator, count), "values": 1 + _normal(generator, count)}


def _softmax_by_autograd(inputs: Mapping) -> Tensor:
    logits = inputs["logits"].clone().requires_grad_()
    return torch.autograd.grad(logits.softmax(0) @ inputs["values"], logits)[0]


_CATEGORICAL = Exercise(
    id="07.3",
    title="The exact gradient of a categorical choice",
    kind="function",
    difficulty=2,
    minutes=10,
    prompt="Write `softmax_gradient(logits, values)`: the exact gradient of $\\sum_i p_i f_i$ with $p$ the softmax of "
    "the logits, for the logits, without sampling. `values` holds the $f_i$; return a "
    "float64 tensor with one entry a logit.",
    draw=_draw_logits,
    reference=softmax_gradient,
    properties=(
        Property(
            "The entries should sum to 0: adding one constant to all logits changes no probability.",
            lambda i, out: abs(float(out.sum())) < 1e-9,
        ),
        Property(
            "The gradient should be the derivative of the expectation for the logits.",
            lambda i, out: torch.allclose(out, _softmax_by_autograd(i), atol=1e-9),
        ),
    ),
    hints=(
        "The score of category x is its one-hot vector minus p. Average f times the score over the categories.",
        "Entry i gets p_i f_i from the one-hot part. What does the part with -p give, summed over all categories?",
        "Every value is compared with the expectation, and the difference is weighed by the probability.",
    ),
    mistakes=(
        Mistake("kept the values alone", lambda t, f: t.softmax(0) * f,
                "You took p_i f_i, the one-hot part of the score. The part -p adds -p_i E[f]."),
        Mistake("gradient for the probabilities", lambda t, f: f.clone(),
                "That is the gradient for the probabilities. The chain rule through the softmax is missing."),
        Mistake("compared with the plain mean", lambda t, f: t.softmax(0) * (f - f.mean()),
                "You compared with the plain mean of the values; it must be the expectation under p."),
        Mistake("treated the entries as independent", lambda t, f: t.softmax(0) * (1 - t.softmax(0)) * f,
                "You kept the diagonal of the softmax's Jacobian, p_i (1 - p_i). Raising one logit also lowers all the "
                "other probabilities: -p_i p_j."),
        Mistake("turned the sign", lambda t, f: t.softmax(0) * (t.softmax(0) @ f - f),
                "The sign is turned: a category that is better than the average should become more likely."),
    ),
)  # fmt: skip


def _wave_variances(c: Mapping) -> tuple[float, float]:
    return cosine_variances(frequency=float(c["frequency"]), mean=float(c["mean"]), std=float(c["std"]))


def _fair(c: Mapping) -> bool:
    return all(abs(c[key]) <= 1e4 for key in ("frequency", "mean", "std")) and c["std"] >= 1e-3


def _score_wins(c: Mapping) -> bool:
    score, pathwise = _wave_variances(c)
    return pathwise >= 2 * score > 0


_LOSES = Exercise(
    id="07.4",
    title="The smaller variance",
    kind="flaw",
    difficulty=3,
    minutes=12,
    prompt="It is often said that the reparameterised gradient, where it exists, has the smaller variance. Refute it "
    "with a smooth function, $f(x) = \\cos(ax)$ and $x \\sim N(\\mu, \\sigma^2)$, without any baseline: give a "
    "dictionary with the numbers `frequency` ($a$), `mean` ($\\mu$) and `std` ($\\sigma \\ge 0.001$), all at most "
    "10,000 in size, for which the reparameterised estimate has at least twice the variance of the score estimate.",
    draw=lambda generator: {"seed": int(torch.randint(1000, (), generator=generator))},
    reference={"frequency": 8.0, "mean": 1.0, "std": 0.5},
    properties=(
        Property(
            "Take σ of at least 0.001, and all three numbers at most 10,000 in size.",
            lambda i, c: _fair(c),
        ),
        Property(
            "For your numbers the reparameterised variance is below twice the score function's.",
            lambda i, c: _fair(c) and _score_wins(c),
        ),
    ),
    hints=(
        "The reparameterised estimate is -a sin(ax). How large is its mean square when a is large?",
        "The score estimate is cos(ax) z/σ, and the cosine is at most 1 in size.",
        "Compare a²/2 with 1/(2σ²): what must the product aσ be?",
    ),
    mistakes=(
        Mistake("a constant function", {"frequency": 0.0, "mean": 1.0, "std": 0.5},
                "With a = 0 the function is constant: the reparameterised gradient is exactly 0, without any variance.",
                lambda i, c: _fair(c) and c["frequency"] == 0),
        Mistake("a slow wave", {"frequency": 1.0, "mean": 1.0, "std": 0.5},
                "Your wave is slow: |a|σ is below 1, so x stays within a fraction of a period, and there the "
                "derivative is small. Take a larger frequency.",
                lambda i, c: _fair(c) and 0 < abs(c["frequency"]) * c["std"] < 1 and c["std"] >= 0.1),
        Mistake("hardly any noise", {"frequency": 8.0, "mean": 1.0, "std": 0.01},
                "Your σ is so small that the score z/σ is huge: the score function loses when the distribution is "
                "narrow. Raise σ.",
                lambda i, c: _fair(c) and 0 < abs(c["frequency"]) * c["std"] < 1 and c["std"] < 0.1),
        Mistake("not a standard deviation", {"frequency": 8.0, "mean": 1.0, "std": -0.5},
                "σ is a standard deviation: take it positive, 0.001 or more.",
                lambda i, c: c["std"] < 1e-3),
        Mistake("close to the border", {"frequency": 2.2, "mean": 1.0, "std": 0.5},
                "You are near the border |a|σ = 1, where the two are about equal. Go well beyond it.",
                lambda i, c: _fair(c) and 1 <= abs(c["frequency"]) * c["std"] <= 1.5 and not _score_wins(c)),
    ),
)  # fmt: skip

EXERCISES = {e.id: e for e in (_BASELINE, _SCORE, _CATEGORICAL, _LOSES)}

FIGURES = {
    "question": plot_question,
    "baseline": plot_baseline,
    "dimension": plot_dimension,
    "added_constant": plot_added_constant,
    "explorer": lambda: EstimatorExplorer().strip(),
    "temperature": plot_temperature,
    "chaos": plot_chaos,
    "balance": lambda: plot_balance({seed: learn_to_balance(seed) for seed in range(4)}),
}
