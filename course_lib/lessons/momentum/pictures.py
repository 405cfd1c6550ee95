"""Figures, explorer, experiments and predictions of lesson 02, momentum."""

from collections.abc import Sequence
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from course_lib.lessons.gradient_descent_stability.pictures import small_network
from course_lib.lessons.momentum.contents import lesson
from course_lib.optimization.gradient_descent import best_heavy_ball, best_step, heavy_ball, heavy_ball_rate
from course_lib.teaching import Explorer, Slider, Switch, panels, right
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, compact, small_legend

_compact = partial(compact, labels=9)

F64 = {"dtype": torch.float64}
CURVATURES = torch.tensor([1.0, 0.01], **F64)  # of the canyon, along w[1] and w[2]
START = torch.tensor([0.2, 1.0], **F64)
_PAIR = best_heavy_ball(CURVATURES.sqrt(), half=True)
SETTINGS = {  # the fastest guaranteed rates
    "gradient descent": {"step_size": best_step(CURVATURES.sqrt(), half=True), "momentum": 0.0},
    "with momentum": {"step_size": _PAIR[0], "momentum": _PAIR[1]},
}


def canyon_run(step_size: float, momentum: float, steps: int = 1000) -> Tensor:
    """Return the weights (steps + 1, 2) of a run in the canyon from (0.2, 1)."""
    matrix = torch.diag(CURVATURES.sqrt())
    return heavy_ball(matrix, 0 * START, START, step_size=step_size, momentum=momentum, steps=steps, half=True)


def roots(step_times_curvature: float, momentum: float) -> np.ndarray:
    """Return both roots of z^2 - (1 + beta - eta lambda) z + beta."""
    return np.roots([1.0, -(1 + momentum - step_times_curvature), momentum]).astype(complex)


def rate(step_times_curvature: float, momentum: float) -> float:
    """Return the size of the larger root, for one direction."""
    return heavy_ball_rate(torch.ones(1, **F64), step_size=step_times_curvature, momentum=momentum, half=True)


def _contours(axes):
    angle = np.linspace(0, 2 * np.pi, 200)
    for level in (0.005, 0.02, 0.08, 0.32):
        axes.plot(
            np.sqrt(2 * level / 0.01) * np.cos(angle), np.sqrt(2 * level) * np.sin(angle), color="0.8", linewidth=0.8
        )


# The canyon


@lesson.figure(
    ["the first 60 steps", "how far from the minimum"],
    ["$w[2]$, the flat direction", "step"],
    ["$w[1]$, the steep direction", "length of $w_t$"],
    size=(7.4, 3.1),
    grid=(1, 2),
    legend=[None, small_legend("upper right")],
    xlim=[(-0.6, 1.1), (0, 800)],
    ylim=[(-1.2, 1.2), (1e-7, 10)],
    yscale=["linear", "log"],
)
def plot_canyon(left, second):
    """Draw the path and the error of the best descent and of the best heavy ball in the canyon."""
    _contours(left)
    for (name, pair), color, style in zip(SETTINGS.items(), (ORANGE, BLUE), ("-", "--"), strict=True):
        path = canyon_run(**pair, steps=800)
        left.plot(path[:61, 1], path[:61, 0], style, color=color, linewidth=1, marker="o", markersize=2.5)
        second.plot(path.norm(dim=1), style, color=color, label=name)
    left.plot(0, 0, "*", color=BLACK, markersize=11)
    second.axhline(1e-6, color="0.5", linewidth=0.8, linestyle=":")
    _compact(left, second)
    return "Grey: lines of equal loss. The star is the minimum, the dotted line a distance of 1e-6."


def border_of(momentum: float, curvature: float = 1.0, steps: int = 4000) -> float:
    """Return by bisection the largest step size after which 4,000 steps have not made an error of 1 grow."""
    low, high = 0.0, 8.0 / curvature
    while high - low > 1e-4 / curvature:
        middle = (low + high) / 2
        error = before = 1.0
        for _ in range(steps):
            error, before = error - middle * curvature * error + momentum * (error - before), error
            if abs(error) > 1e3:
                break
        low, high = (low, middle) if abs(error) > 1 else (middle, high)
    return low


@lesson.figure(
    "The largest stable step size, found by running",
    "momentum β",
    "border of η, for λ = 1",
    size=(5.2, 2.8),
    legend=small_legend("upper left"),
    xlim=(-0.03, 1.03),
    ylim=(0, 5),
)
def plot_borders(axes):
    """Draw the borders that runs show for four momenta, and what they would be if steps only added up."""
    momenta = (0.0, 0.5, 0.9, 0.99)
    line = np.linspace(0, 1, 50)
    axes.plot(momenta, [border_of(m) for m in momenta], "o", color=BLUE, label="found by running")
    axes.plot(line, 2 * (1 - line), "--", color=ORANGE, label="if steps only added up: 2(1 - β)")
    _compact(axes)
    return "Each dot is the largest step size from which runs still shrink. It rises with the momentum."


@lesson.figure(
    ["gradients 1, 1, 1, ...", "gradients 1, -1, 1, ..."],
    "step",
    "velocity, β = 0.9",
    size=(6.8, 2.5),
    grid=(1, 2),
    legend=None,
    xlim=(0, 41),
    ylim=(-1.5, 11),
)
def plot_sums(left, second):
    """Draw what the velocity becomes under a steady and under an alternating gradient."""
    for axes, sign, color in ((left, 1, BLUE), (second, -1, ORANGE)):
        velocity, seen = 0.0, []
        for step in range(40):
            velocity = 0.9 * velocity + sign**step
            seen.append(velocity)
        axes.axhline(0, color="0.6", linewidth=0.8)
        axes.plot(range(1, 41), seen, "o-", color=color, markersize=3, linewidth=1)
    _compact(left, second)
    return "The same 40 gradients of size 1: left they all agree, right each contradicts the one before."


# Roots


@lesson.figure(
    "The two roots, β = 0.64, as ηλ grows",
    "real part",
    "imaginary part",
    size=(6.0, 4.0),
    legend=small_legend("upper right"),
    xlim=(-1.6, 2.6),
    ylim=(-1.25, 1.25),
    aspect="equal",
)
def plot_roots(axes):
    """Draw the way of both roots in the complex plane as eta lambda grows, and where they are for four values."""
    angle = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(angle), np.sin(angle), color="0.6", linewidth=0.9, label="size 1")
    way = [roots(x, 0.64) for x in np.linspace(0.0, 3.4, 1500)]
    axes.plot(np.real(way).ravel(), np.imag(way).ravel(), ".", color="0.75", markersize=1.5, label="way of the roots")
    looks = ((0.02, "s", ORANGE), (0.1, "o", BLUE), (3.0, "^", GREEN), (3.26, "D", RED))
    for x, marker, color in looks:
        found = roots(x, 0.64)
        axes.plot(found.real, found.imag, marker, color=color, markersize=7, linestyle="none", label=f"ηλ = {x:g}")
    _compact(axes)
    return (
        "For a small ηλ both roots are real. They meet, travel around a circle as a conjugate pair, meet again on the "
        "left, and one of them leaves through -1."
    )


@lesson.figure(
    "The rate along one direction",
    "ηλ",
    "size of the larger root",
    size=(5.8, 3.0),
    ylim=(0, 1.4),
    xlim=(0, 4.4),
    legend=None,
)
def plot_rates(axes):
    """Draw the rate along one direction against eta lambda for three momenta, and the two directions of the question."""
    xs = np.linspace(0.001, 4.4, 500)
    for beta, color, style, place in (
        (0.0, ORANGE, ":", (1.3, 0.05)),
        (0.25, PURPLE, "--", (0.78, 0.53)),
        (0.64, BLUE, "-", (1.02, 0.85)),
    ):
        axes.plot(xs, [rate(float(x), beta) for x in xs], style, color=color, linewidth=1.8)
        axes.text(*place, f"β = {beta:g}", color=color, fontsize=10)
    axes.plot([0.1, 3.0], [rate(0.1, 0.64), rate(3.0, 0.64)], "o", color=BLACK, markersize=6)
    axes.axhline(1, color=BLACK, linewidth=0.8)
    _compact(axes)
    return "Dots: the two directions of the question. Above the line at 1 errors grow."


@lesson.explorer
class CanyonExplorer(Explorer):
    """A run in the canyon: its path, and the error along each direction."""

    title = "A run in the canyon"
    summary = (
        "Left, the first 60 steps from (0.2, 1) over lines of equal loss; the flat direction is horizontal. Right, the size "
        "of the error along each direction against the step, on a logarithmic axis."
    )
    momentum = Slider("momentum", "β", "The share of the velocity that is kept", 0.0, 0.0, 0.98, 0.01)
    step_size = Slider("step size", "η", "How far a step goes along the velocity", 1.98, 0.02, 4.0, 0.02)
    reveal = Switch("Show the rates", "Give the factor per step of each direction in the long run, and draw it")
    stills = ({"momentum": 0.0}, {"momentum": 0.5}, {"momentum": 0.95})
    size = (8.4, 3.5)
    strip_scale = 0.72
    dpi = 100
    steps = 60
    together = ("momentum", "step_size")
    layout = panels(
        ["first 60 steps", "error along each direction"],
        ["$w[2]$, the flat direction", "step"],
        ["$w[1]$, the steep direction", "size of the error"],
        grid=(1, 2),
        legend=[None, small_legend("upper right")],
        xlim=[(-1.1, 1.1), (0, steps)],
        ylim=[(-1.6, 1.6), (1e-6, 1e3)],
        yscale=["linear", "log"],
    )

    def compute(self, *, momentum, step_size, reveal):
        """Return the path, both errors, the rates of both directions, and the settings in words."""
        path = canyon_run(step_size, momentum, self.steps).clamp(-1e6, 1e6).numpy()
        rates = [rate(step_size * c, momentum) for c in CURVATURES.tolist()]
        steps = np.arange(self.steps + 1)
        promised = [(steps, np.clip(r**steps, 1e-9, 1e6)) if reveal else ([], []) for r in rates]
        return {
            "path": (path[:, 1], path[:, 0]),
            "errors": [np.abs(path[:, i]).clip(1e-9, 1e6) for i in (0, 1)],
            "promised": promised,
            "rates": rates,
            "settings": f"β = {momentum:g}, η = {step_size:g}",
            "reveal": reveal,
        }

    def draw(self, left, second):
        """Draw what stays, and empty lines."""
        _compact(left, second)
        _contours(left)
        left.set_xticks((-1, -0.5, 0, 0.5, 1))
        left.plot(0, 0, "*", color=BLACK, markersize=11)
        (path,) = left.plot([], [], "o-", color=BLUE, markersize=3, linewidth=1)
        steps, nothing = range(self.steps + 1), np.ones(self.steps + 1)
        looks = (("steep, λ = 1", BLUE, "-"), ("flat, λ = 0.01", ORANGE, "--"))
        errors = [second.plot(steps, nothing, style, color=color, label=name)[0] for name, color, style in looks]
        promised = [second.plot([], [], ":", color=color, linewidth=1.2)[0] for _, color, _ in looks]
        return {"path": path, "errors": errors, "promised": promised}

    def words(self, state):
        """Say where the run is after 60 steps, and on request the rates."""
        ends = [float(one[-1]) for one in state["errors"]]
        said = ", ".join("beyond 100" if e > 100 else "below 1e-6" if e < 1e-6 else f"{e:.2g}" for e in ends)
        text = f"{state['settings']}: after {self.steps} steps the errors (steep, flat) have the sizes ({said})."
        if not state["reveal"]:
            return text
        steep, flat = state["rates"]
        return f"{text} Rates: steep {steep:.3f}, flat {flat:.3f}."


# A network


NETWORK_SETTINGS = ((0.1, 0.0), (0.1, 0.5), (0.2, 0.0), (0.1, 0.9))  # step size and momentum
NETWORKS, EVERY = 3, 100


@cache
def sharpness_runs(*, steps: int = 2500) -> np.ndarray:
    """Train three networks of lesson 01 under four settings; return their sharpness (settings, networks, looks).

    All runs go side by side. The largest eigenvalue of the Hessian comes from power iteration, which starts at each
    look, one every 100 steps, from the vectors of the look before.
    """
    _, loss = small_network()
    weights = torch.stack([small_network(seed=seed)[0] for _ in NETWORK_SETTINGS for seed in range(NETWORKS)])
    step_sizes, momenta = (
        torch.tensor(NETWORK_SETTINGS, dtype=weights.dtype)[:, i].repeat_interleave(NETWORKS)[:, None] for i in (0, 1)
    )
    generator = torch.Generator().manual_seed(1)
    vectors = torch.randn(weights.shape, generator=generator, dtype=weights.dtype)
    velocity, found = torch.zeros_like(weights), []
    for step in range(steps + 1):
        leaf = weights.detach().requires_grad_()
        look = step % EVERY == 0
        (gradient,) = torch.autograd.grad(loss(leaf).sum(), leaf, create_graph=look)
        if look:
            for _ in range(30 if step else 200):
                vectors = vectors / vectors.norm(dim=1, keepdim=True)
                (product,) = torch.autograd.grad(gradient, leaf, vectors, retain_graph=True)
                sizes, vectors = (product * vectors).sum(1), product
            found.append(sizes)
        velocity = momenta * velocity + gradient.detach()
        weights = weights - step_sizes * velocity
    return torch.stack(found, 1).view(len(NETWORK_SETTINGS), NETWORKS, -1).numpy()


@lesson.figure(
    ["three settings", "β = 0.9, η = 0.1"],
    "step",
    "sharpness",
    size=(7.4, 3.0),
    grid=(1, 2),
    legend=None,
    xlim=(0, 2500),
    ylim=(0, 45),
)
def plot_network(left, second):
    """Draw the sharpness of three networks under each setting, and its border."""
    looks = ((left, BLUE, "-"), (left, RED, "-"), (left, ORANGE, "-"), (second, PURPLE, "-"))
    for (step_size, momentum), runs, (axes, color, style) in zip(
        NETWORK_SETTINGS, sharpness_runs(), looks, strict=True
    ):
        for one in runs:
            axes.plot(EVERY * np.arange(len(one)), one, style, color=color, linewidth=1.1)
        border = 2 * (1 + momentum) / step_size
        axes.axhline(border, color=color, linewidth=1, linestyle=":")
        if axes is left:
            place = {10: 2.5, 20: 14.3, 30: 36.5}[round(border)]
            axes.text(2450, place, f"β = {momentum:g}, η = {step_size:g}", color=color, ha="right", fontsize=10)
        else:
            axes.text(2450, 39, "border 38", color=color, ha="right", fontsize=10)
    _compact(left, second)
    return "Three networks for each setting; dotted lines: the borders 2(1 + β)/η of a fixed Hessian."


# A stream of data

MOMENTA = (0.0, 0.5, 0.8, 0.9, 0.95)
EFFECTIVE = 2.0 ** (torch.arange(-16, 11, **F64) / 2)
STREAM_SEEDS, STREAM_STEPS = 20, 100


@cache
def stream(
    batch: int, noise: float, *, falling: bool = False, momenta: Sequence[float] = MOMENTA
) -> dict[float, Tensor]:
    """Train linear regression on fresh rows; return the excess (effective steps, seeds) for each momentum.

    Ten inputs whose variances fall from 1 to 0.01; targets of true weights plus noise of the size `noise`; 100 steps on
    `batch` fresh rows each, the same for all momenta and step sizes. The step size is 1 - beta times an effective one,
    and falls in a straight line to 0 if `falling`. The excess is the expected squared error on clean targets.
    """
    variances = torch.logspace(0, -2, 10, **F64)
    generator = torch.Generator().manual_seed(37)
    normal = lambda *shape: torch.randn(*shape, generator=generator, **F64)  # noqa: E731
    truth = normal(STREAM_SEEDS, 10)
    data = [
        (normal(STREAM_SEEDS, batch, 10) * variances.sqrt(), noise * normal(STREAM_SEEDS, 1, batch))
        for _ in range(STREAM_STEPS)
    ]
    found = {}
    for beta in momenta:
        errors = -truth[:, None] + torch.zeros(STREAM_SEEDS, len(EFFECTIVE), 10, **F64)  # weights less the true ones
        velocity = torch.zeros_like(errors)
        for step, (rows, labels) in enumerate(data):
            gradient = (errors @ rows.mT - labels) @ rows / batch
            velocity = beta * velocity + gradient
            size = (1 - beta) * EFFECTIVE[:, None] * (1 - step / STREAM_STEPS if falling else 1)
            errors = errors - size * velocity
        excess = (errors.square() * variances).sum(-1).T
        found[beta] = excess.nan_to_num(1e30, posinf=1e30).clamp(max=1e30)
    return found


EXACT, NOISY = (64, 0.0), (4, 1.0)


def best_excess(batch: int, noise: float, **settings) -> dict[float, float]:
    """Return for each momentum the mean excess over the seeds at its best effective step."""
    return {beta: float(excess.mean(1).min()) for beta, excess in stream(batch, noise, **settings).items()}


@lesson.figure(
    ["64 rows a step, exact labels", "4 rows a step, noisy labels"],
    "effective step η/(1 - β)",
    "excess after 100 steps",
    size=(7.6, 3.3),
    grid=(1, 2),
    legend=[small_legend("lower left"), None],
    xscale="log",
    yscale="log",
    xlim=[(0.02, 16), (0.01, 2)],
    ylim=[(1e-9, 3), (0.03, 10)],
)
def plot_streams(left, second):
    """Draw the mean excess against the effective step for each momentum, without and with noise."""
    looks = zip(
        MOMENTA, (BLACK, ORANGE, BLUE, GREEN, PURPLE), ("-", "--", "-", "-.", ":"), (1, 1.8, 2.6, 1.8, 1.8), strict=True
    )
    for beta, color, style, width in looks:
        for axes, task in ((left, EXACT), (second, NOISY)):
            mean = stream(*task)[beta].mean(1)
            axes.plot(EFFECTIVE, mean, style, color=color, linewidth=width, label=f"β = {beta:g}")
            best = int(mean.argmin())
            axes.plot(EFFECTIVE[best], mean[best], "o", color=color, markersize=5)
    _compact(left, second)
    return "Mean of 20 runs; dots: each momentum at its best effective step."


# Predictions

border_prediction = lesson.prediction(
    "02.P1",
    "Gradient descent in this canyon explodes above the step size 2. Now set the momentum to 0.9. What happens to that "
    "border?",
    {
        "It shrinks tenfold, since steps add up": "They do add up along the flat direction. At the border the steep one "
        "jumps from side to side, and such steps cancel.",
        "It stays": "The velocity does change what a jump from side to side does: most of it cancels.",
        "It nearly doubles": right(
            "At the border the gradient changes sign at each step, so what is remembered works against the next jump."
        ),
        "It grows tenfold": "Ten times is what a steady gradient gains. What limits the step size is not steady.",
    },
    reveal=plot_borders,
)

shared_prediction = lesson.prediction(
    "02.P2",
    "Momentum 0.64. One direction has ηλ = 0.1, another 3.0, thirty times as much. Along which one does the error shrink "
    "faster in the long run?",
    {
        "Along the flat one, 0.1": "The other one swings from side to side, but it loses as much in each swing.",
        "Along the steep one, 3.0": "It has the larger gradient, but also the larger overshoot.",
        "Both alike": right("Both pairs of roots are conjugate, and their product is β: each root has the size 0.8."),
    },
    reveal=plot_rates,
)

network_prediction = lesson.prediction(
    "02.P3",
    "Three of these networks are trained with the step size 0.1 and the momentum 0.5. Around which value does the "
    "sharpness stay in the end?",
    {
        "10, as with a step twice as long": "So it does with that step and no momentum. With momentum the jumps cancel in "
        "part.",
        "20, as without momentum": "The border of a fixed Hessian moves with the momentum, and the networks follow.",
        "30": right("At the border jumps alternate, and momentum divides such steps by 1.5."),
        "None: it falls again": "So it looks with momentum 0.9 in the right picture, but not with 0.5.",
    },
    reveal=plot_network,
)

stream_prediction = lesson.prediction(
    "02.P4",
    "Each momentum takes its best effective step size. The rival is momentum 0, which may thus take a longer step. Where "
    "does momentum 0.8 leave clearly less excess than the rival, two thirds of it or less?",
    {
        "On both streams": "On the noisy one nothing is gained in these runs.",
        "On the exact one only": right("There the curvatures limit the step. With noise the noise does."),
        "On the noisy one only": "A velocity averages gradients, but then it is multiplied by a step as long as their sum.",
        "On neither": "On exact labels the border limits the step size, and momentum moves it.",
    },
    reveal=plot_streams,
)

FIGURES = lesson.figures
