"""Figures, explorer, predictions and exercises of lesson 05, maximal_update_parametrization."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from course_lib.optimization.mup import (
    layer_outputs,
    param_groups,
    parametrize,
    rounding_loss,
    sign_change_mean_square,
)
from course_lib.teaching.exercise import Exercise, Mistake, Property
from course_lib.teaching.explorer import Explorer, Slider
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.style import BLUE, GREEN, RED, describe, new_figure, styled

WIDTHS, EXPONENTS = (32, 128, 512), tuple(range(-10, -1))
LOOKS = {32: (BLUE, "-", "o"), 128: (GREEN, "-.", "s"), 512: (RED, "--", "^")}
LAYERS = {"0": "first", "2": "hidden", "4": "readout"}
LAYER_LOOKS = {"0": (BLUE, "-", "o"), "2": (RED, "--", "s"), "4": (GREEN, "-.", "^")}
PARAMETRIZATIONS = {"SP": "Standard parametrization", "muP": "Maximal update parametrization"}

# The experiment: a network learns the outputs of another, at three widths and nine step sizes


def network(width: int, *, seed: int = 2) -> nn.Sequential:
    """Eight inputs, two hidden layers of tanh, one output; weights of variance 1 / fan_in, no biases."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((width, 8), (width, width), (1, width))
    first, hidden, readout = (nn.Linear(columns, rows, bias=False) for rows, columns in shapes)
    for layer in (first, hidden, readout):
        nn.init.normal_(layer.weight, std=layer.in_features**-0.5, generator=generator)
    return nn.Sequential(first, nn.Tanh(), hidden, nn.Tanh(), readout)


@cache
def teacher(seed: int = 6) -> nn.Sequential:
    """Return a fixed network of width 32, with 1.5 times the usual weights in its hidden layers."""
    model = network(32, seed=seed).requires_grad_(False)
    model[0].weight *= 1.5
    model[2].weight *= 1.5
    return model


def train(
    model: nn.Module,
    groups: Sequence[Mapping],
    *,
    steps: int = 120,
    target: nn.Module | None = None,
    seed: int = 3,
) -> float:
    """Return the test loss after `steps` steps of Adam on fresh data, its step sizes falling linearly to zero."""
    target = target or teacher()
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = torch.randn(32, 8, generator=generator)
        optimizer.zero_grad()
        (model(x) - target(x)).square().mean().backward()
        optimizer.step()
        schedule.step()
    x = torch.randn(2000, 8, generator=generator)
    with torch.no_grad():
        return float((model(x) - target(x)).square().mean())


def groups_for(
    model: nn.Module, optimizer: type, lr: float, *, mup: bool, base_width: int = 32
) -> list[dict]:
    """One step size for all weights, or muP's, after its rescaling of the weights."""
    if mup:
        return param_groups(parametrize(model, network(base_width)), optimizer, lr)
    return [{"params": list(model.parameters()), "lr": lr}]


@cache
def transfer() -> dict[str, dict[int, list[float]]]:
    """Test losses by parametrization and width, one for each exponent; takes some seconds, once."""
    return {
        name: {
            width: [
                train(model := network(width), groups_for(model, torch.optim.Adam, 2.0**e, mup=name == "muP"))
                for e in EXPONENTS
            ]
            for width in WIDTHS
        }
        for name in PARAMETRIZATIONS
    }


def best_exponent(losses: Sequence[float], exponents: Sequence[int] = EXPONENTS) -> float:
    """The exponent of the best step size: the lowest point of the parabola through the minimum and its neighbours.

    The parabola is laid through the logarithms of the losses. A minimum at an end of the range stays there.
    """
    k = int(np.argmin(losses))
    if k in (0, len(losses) - 1):
        return float(exponents[k])
    left, middle, right = np.log(losses[k - 1 : k + 2])
    return exponents[k] + float((left - right) / (2 * (left - 2 * middle + right)))


def drift_and_regret(
    losses: Mapping[int, Sequence[float]], exponents: Sequence[int] = EXPONENTS
) -> tuple[float, float]:
    """How many octaves the best step size moves from the narrowest to the widest network, and what staying costs.

    The second is the widest network's loss at the narrowest one's best step size, over its own smallest loss.
    """
    narrow, wide = losses[min(losses)], losses[max(losses)]
    drift = best_exponent(wide, exponents) - best_exponent(narrow, exponents)
    return drift, wide[int(np.argmin(narrow))] / min(wide)


# Figures


def _draw_losses(axes: Axes, losses: Mapping[int, Sequence[float]]) -> str:
    for width, values in losses.items():
        color, style, marker = LOOKS[width]
        axes.semilogy(EXPONENTS, values, color=color, linestyle=style, marker=marker, markersize=5,
                      label=f"width {width}")  # fmt: skip
        k = int(np.argmin(values))
        axes.semilogy([EXPONENTS[k]], [values[k]], color=color, marker="*", markersize=15, linestyle="none")
    axes.set(xlabel="$\\log_2$ of Adam's step size", ylabel="test loss", xticks=EXPONENTS)
    return ", ".join(f"2^{best_exponent(values):.1f} at width {width}" for width, values in losses.items())


@styled
def plot_question(losses: Mapping[int, Sequence[float]] | None = None) -> Figure:
    """Draw the test loss against the step size at three widths, with one step size for all weights."""
    figure = new_figure(6.8, 4.0)
    axes = figure.add_subplot()
    said = _draw_losses(axes, losses or transfer()["SP"])
    axes.set(title="The wider the network, the smaller its best step size", ylim=(0.008, 3))
    axes.legend(loc="upper left")
    return describe(
        figure,
        "Test loss of three networks against the logarithm of Adam's step size. Each curve falls to a minimum, marked "
        f"by a star, and rises again. The best step size gets smaller with the width: {said}.",
    )


@styled
def plot_transfer(losses: Mapping[str, Mapping[int, Sequence[float]]] | None = None) -> Figure:
    """Draw the test loss against the step size at three widths, in both parametrizations."""
    figure = new_figure(9.6, 4.0)
    said = []
    for axes, (name, title) in zip(figure.subplots(1, 2, sharey=True), PARAMETRIZATIONS.items(), strict=True):
        found = (losses or transfer())[name]
        best = _draw_losses(axes, found)
        drift, regret = drift_and_regret(found)
        axes.set(title=title, ylim=(0.008, 3))
        axes.legend(loc="upper left")
        said.append(
            f"{title}: the best step size is {best}, a drift of {drift:+.1f} octaves; at the narrow network's best "
            f"step size the wide one has {regret:.1f} times its smallest loss."
        )
    return describe(
        figure,
        "Test loss against the logarithm of the step size at widths 32, 128 and 512, with a star at each minimum. "
        + " ".join(said),
    )


COORDINATE_WIDTHS = (64, 128, 256, 512, 1024)


@cache
def coordinates(optimizer: type = torch.optim.Adam, lr: float = 2**-6, *, steps: int = 6) -> dict:
    """RMS change of each layer's output after six steps, by parametrization, layer and width."""
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(6))
    changes = {name: {layer: [] for layer in LAYERS} for name in PARAMETRIZATIONS}
    for name in PARAMETRIZATIONS:
        for width in COORDINATE_WIDTHS:
            model = network(width)
            stepper = optimizer(groups_for(model, optimizer, lr, mup=name == "muP", base_width=64))
            before = layer_outputs(model, x)
            for _ in range(steps):
                stepper.zero_grad()
                (model(x) - teacher()(x)).square().mean().backward()
                stepper.step()
            for layer, after in layer_outputs(model, x).items():
                changes[name][layer].append(float((after - before[layer]).square().mean().sqrt()))
    return changes


def slope(widths: Sequence[int], sizes: Sequence[float] | np.ndarray) -> float:
    """The exponent p of the power law width^p that fits the sizes best."""
    return float(np.polyfit(np.log(widths), np.log(sizes), 1)[0])


@styled
def plot_coordinates() -> Figure:
    """Draw the coordinate check: the change of each layer's output after six steps of Adam, against the width."""
    figure = new_figure(9.6, 4.0)
    said = []
    for axes, (name, title) in zip(figure.subplots(1, 2, sharey=True), PARAMETRIZATIONS.items(), strict=True):
        exponents = []
        for layer, sizes in coordinates()[name].items():
            color, style, marker = LAYER_LOOKS[layer]
            exponent = slope(COORDINATE_WIDTHS, sizes)
            axes.loglog(COORDINATE_WIDTHS, sizes, color=color, linestyle=style, marker=marker, markersize=5,
                        label=f"{LAYERS[layer]}: exponent {exponent:+.2f}")  # fmt: skip
            exponents.append(f"{LAYERS[layer]} {round(exponent, 1) + 0.0:+.1f}")
        axes.set(xlabel="width", ylabel="RMS change of the output", title=title, ylim=(0.02, 60))
        axes.set_xticks(COORDINATE_WIDTHS, COORDINATE_WIDTHS)
        axes.minorticks_off()
        axes.legend(loc="upper left")
        said.append(f"{title}: {', '.join(exponents)}.")
    return describe(
        figure,
        "RMS change of the outputs of three layers after six steps of Adam, against the width from 64 to 1024, both "
        "logarithmic, with the exponents of the fitted power laws. " + " ".join(said),
    )


def normal_grid(count: int = 40_001) -> Float[Tensor, " count"]:
    """Return `count` numbers that are distributed as N(0, 1), without chance: equally spaced quantiles."""
    shares = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    return math.sqrt(2) * torch.erfinv(2 * shares - 1)


FORMATS = {
    "fp8 e4m3": (torch.float8_e4m3fn, RED, "--", "s"),
    "fp8 e5m2": (torch.float8_e5m2, GREEN, "-.", "^"),
    "bf16": (torch.bfloat16, BLUE, "-", "o"),
}


@styled
def plot_rounding() -> Figure:
    """Draw what weights N(0, 1/d) lose in three formats, against d: the relative error, and the share of zeros."""
    figure = new_figure(9.6, 3.8)
    left, right = figure.subplots(1, 2)
    dims, said = 2.0 ** np.arange(0, 19, 2), []
    for name, (dtype, color, style, marker) in FORMATS.items():
        losses = [rounding_loss(normal_grid() / math.sqrt(d), dtype) for d in dims]
        errors, zeros = (100 * np.array(values) for values in zip(*losses, strict=True))
        look = {"color": color, "linestyle": style, "marker": marker, "markersize": 5, "label": name}
        left.loglog(dims, errors, base=2, **look)
        right.semilogx(dims, zeros, base=2, **look)
        said.append(f"{name} loses {errors[0]:.2g}% at d = 1 and {errors[-1]:.2g}% at d = {dims[-1]:,.0f}, where "
                    f"{zeros[-1]:.2g}% become zero")  # fmt: skip
    left.set(
        xlabel="$d$, with weights $N(0, 1/d)$", ylabel="relative error (%)", title="Rounding", ylim=(0.1, 100)
    )
    left.set_yscale("log")
    right.set(
        xlabel="$d$, with weights $N(0, 1/d)$", ylabel="weights that become 0 (%)", title="Lost to zero"
    )
    for axes in (left, right):
        axes.set_xticks(dims[::3])
        axes.legend(loc="upper left")
    return describe(
        figure,
        "What normal weights of variance 1/d lose when they are stored in three number formats, against d. Left the "
        "relative error, right the share of weights that become zero: " + "; ".join(said) + ".",
    )


# Explorer


SIZES = (64, 128, 256, 512, 1024, 2048)
BASE, STEP_SIZE = 64, 1 / 64


@cache
def _draws(width: int) -> dict:
    """What one sign step needs of a linear network of that width, drawn once with unit scales."""
    generator = np.random.default_rng(width)
    x = generator.standard_normal(8)
    x /= np.sqrt(np.mean(x**2))
    h = generator.standard_normal((width, 8)) @ x / math.sqrt(8)
    h /= np.sqrt(np.mean(h**2))
    Z, z = generator.standard_normal((width, width), dtype=np.float32), generator.standard_normal(width)
    back = np.sign(Z.T @ z)  # signs of the gradient with respect to the first hidden layer
    return {"x": np.abs(x).sum(), "h": h, "Zh": Z @ h, "back": back, "Zback": Z @ back, "z": z}


def one_step(
    width: int, *, init: float | int, rate: float | int, out_init: float | int, out_rate: float | int
) -> dict[str, float]:
    """Sizes in a linear network x -> h = Ux -> k = Wh -> f = v^T k, before and after one sign step down f.

    With r = width / 64, W has entries of size r^-init / 8 and steps r^-rate / 64, v r^-out_init / 8 and
    r^-out_rate / 64. U has RMS-1 outputs and steps of 1/64 at every width.
    """
    r, d = width / BASE, _draws(width)
    std, step = r**-init / 8, STEP_SIZE * r**-rate
    out_std, out_step = r**-out_init / 8, STEP_SIZE * r**-out_rate
    k, dh = std * d["Zh"], -STEP_SIZE * d["x"] * d["back"]
    spread = np.sign(d["h"]) @ (d["h"] + dh)
    dk = -std * STEP_SIZE * d["x"] * d["Zback"] - step * np.sign(d["z"]) * spread
    df = out_std * d["z"] @ dk - out_step * np.sign(k) @ (k + dk)
    rms = lambda values: float(np.sqrt(np.mean(values**2)))  # noqa: E731
    # Over draws of v the output f at the start is normal with this standard deviation.
    return {
        "hidden": rms(k),
        "change": rms(dk),
        "output": out_std * float(np.linalg.norm(k)),
        "moved": abs(float(df)),
    }


class SizesExplorer(Explorer):
    """Sizes in a three-layer linear network against its width, for any exponents of its parametrization."""

    title = "What grows with the width"
    summary = (
        "A network of three matrices takes one sign step. Left: the size of the hidden activations at the start and of "
        "their change. Right: the same for the output. All against the width, both axes logarithmic."
    )
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "rate": Slider(
            label="hidden step exponent", symbol="c", default=1.0, minimum=0.0, maximum=2.0, step=0.05,
            tooltip="Entries of the hidden matrix move by an amount in proportion to width^-c; 1 under muP",
        ),
        "init": Slider(
            label="hidden start exponent", symbol="b", default=0.5, minimum=0.0, maximum=1.0, step=0.05,
            tooltip="Entries of the hidden matrix start in proportion to width^-b; 1/2 under muP",
        ),
        "out_rate": Slider(
            label="readout step exponent", symbol="c'", default=1.0, minimum=0.0, maximum=2.0, step=0.05,
            tooltip="Entries of the readout move by an amount in proportion to width^-c'; 1 under muP",
        ),
        "out_init": Slider(
            label="readout start exponent", symbol="b'", default=1.0, minimum=0.0, maximum=1.5, step=0.05,
            tooltip="Entries of the readout start in proportion to width^-b'; 1 under muP",
        ),
    }  # fmt: skip
    size = (9.0, 4.2)

    def compute(self, *, rate, init, out_rate, out_init):
        """Return the four sizes at every width and their exponents."""
        found = [one_step(n, init=init, rate=rate, out_init=out_init, out_rate=out_rate) for n in SIZES]
        sizes = {name: np.array([f[name] for f in found]) for name in found[0]}
        exponents = {name: round(slope(SIZES, values), 2) + 0.0 for name, values in sizes.items()}
        settings = {"rate": rate, "init": init, "out_rate": out_rate, "out_init": out_init}
        return {"sizes": sizes, "exponents": exponents, **settings}

    def draw(self, figure):
        """Draw both axes with fixed limits."""
        left, right = figure.subplots(1, 2)
        lines = {}
        for axes, title, first, second in (
            (left, "Hidden activations (RMS)", "hidden", "change"),
            (right, "Output", "output", "moved"),
        ):
            axes.set(xscale="log", yscale="log", xlim=(55, 2400), ylim=(1e-3, 1e5), xlabel="width", ylabel="size",
                     title=title)  # fmt: skip
            axes.set_xticks(SIZES, SIZES)
            axes.minorticks_off()
            lines[first] = axes.plot(
                [], [], color=BLUE, linestyle="-", marker="o", markersize=6, label="at the start"
            )[0]
            lines[second] = axes.plot(
                [], [], color=RED, linestyle="--", marker="s", markersize=5, label="change by one step"
            )[0]
            axes.legend(loc="upper left")
        return lines

    def update(self, artists, state):
        """Move the four curves."""
        for name, line in artists.items():
            line.set_data(SIZES, state["sizes"][name])

    def words(self, state):
        """Say which sizes grow or vanish with the width, and with which exponent."""
        e = state["exponents"]
        names = {"hidden": "hidden activations", "change": "their change", "output": "output at the start",
                 "moved": "change of the output"}  # fmt: skip
        # An output that is small at the start does no harm: it is there to be learnt.
        apart = {
            "Explodes": [said for name, said in names.items() if e[name] > 0.1],
            "Vanishes": [said for name, said in names.items() if e[name] < -0.1 and name != "output"],
        }
        verdict = " ".join(f"{verb}: {', '.join(found)}." for verb, found in apart.items() if found)
        return (
            f"With c = {state['rate']:.2f}, b = {state['init']:.2f}, c' = {state['out_rate']:.2f} and b' = "
            f"{state['out_init']:.2f}, sizes go with these powers of the width: "
            + ", ".join(f"{said} {e[name]:.2f}" for name, said in names.items())
            + f". {verdict or 'All that should keep its size keeps it, as under muP.'}"
        )


# Predictions


def coordinate_prediction() -> Prediction:
    """Ask how much more the hidden layer's output moves in a network that is 16 times wider."""
    return Prediction(
        "05.P1",
        "Networks with three weight matrices take six steps of Adam, with one step size for all weights, 1/64, at all "
        "widths. From width 64 to 1024, by what factor does the change of the hidden layer's output grow?",
        choices={
            "Not at all": "Adam moves every weight by about the same amount whatever the width, and a wider layer adds up "
            "more of these moves.",
            "About 4 times": "That would be the root of 16: moves of random sign. These have the signs of the inputs that "
            "they meet, and add up.",
            "More than 10 times": "The moves of all weights into one unit add up: the change of one step is in "
            "proportion to the width, and in six steps the layers drive each other on.",
        },
        answer="More than 10 times",
        reveal=plot_coordinates,
    )


def transfer_prediction() -> Prediction:
    """Ask where the best step size of the widest network lies under muP, and what loss it reaches there."""
    return Prediction(
        "05.P2",
        "In the opening picture the best step size at width 512 was more than eight times smaller than at width 32. "
        "Now the same networks are parametrized with width 32 as the base. What becomes of the widest one?",
        choices={
            "The same best step size, and a lower loss": "All layers take part in learning at every width, and more "
            "units learn more.",
            "The same best step size, and the same loss": "The step size stays, but the loss gets better: with one step "
            "size for all, the largest that the hidden layer bears is too small for the first layer.",
            "A best step size between the two": "The rules remove the whole drift: they were derived for every layer, "
            "up to factors that do not depend on the width.",
        },
        answer="The same best step size, and a lower loss",
        reveal=plot_transfer,
    )


# Exercises


def _integer(generator: torch.Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high + 1, (), generator=generator))


def _near(value: float) -> Callable[[Mapping, float], bool]:
    return lambda i, answer: abs(float(answer) - value) < 0.02


def _agrees_with_draws(seed: int, answer: float) -> bool:
    """Whether 5,000 draws of ||x||_1^2 have that mean, up to eight standard errors."""
    draws = torch.randn(5_000, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    squares = draws.abs().sum(1).square()
    return abs(float(squares.mean()) - answer) <= 8 * float(squares.std()) / math.sqrt(len(squares))


_LAW = Exercise(
    id="05.1",
    title="How far a sign update moves the output",
    kind="value",
    difficulty=1,
    minutes=6,
    prompt="$x$ has 4 independent entries $N(0, 1)$ and $g$ has no entry 0. What is the expected value of "
    "$\\mathrm{RMS}(\\mathrm{sign}(gx^\\top)\\,x)^2$? Give it to two decimals.",
    draw=lambda generator: {"seed": _integer(generator, 0, 10**6)},
    reference=sign_change_mean_square(4, step_size=1),
    properties=(
        Property("5,000 draws of x have another mean.", lambda i, a: _agrees_with_draws(i["seed"], float(a))),
        Property(
            "Close, but not to two decimals.",
            lambda i, a: abs(float(a) - 2 / math.pi * 16 - (1 - 2 / math.pi) * 4) < 0.01,
        ),
    ),
    hints=(
        "Each entry of the output is the sum of all |x_i|, up to its sign.",
        "Square the sum: there are 4 terms x_i², and 12 products of two different sizes.",
        "For a standard normal number, E x² = 1 and E|x| = √(2/π).",
    ),
    mistakes=(
        Mistake("each size taken as 1", 16.0, "You took every |x_i| as 1, as if x had entries ±1. Their mean is "
                "√(2/π), about 0.8.", _near(16.0)),
        Mistake("square of the mean", 32 / math.pi, "That is the square of the expected sum. The expected square is "
                "larger, by the variance of the sum.", _near(32 / math.pi)),
        Mistake("random signs", 4.0, "You added the squares only, as if the terms had random signs. The sign of the "
                "update meets the sign of its own input: all products are positive.", _near(4.0)),
        Mistake("the root", math.sqrt(sign_change_mean_square(4, step_size=1)), "That is the root of it: the question "
                "asks for the expected square.", _near(math.sqrt(sign_change_mean_square(4, step_size=1)))),
        Mistake("sum of the outputs", 4 * sign_change_mean_square(4, step_size=1), "RMS takes the mean over the "
                "outputs, not their sum, and each output has the same square.",
                _near(4 * sign_change_mean_square(4, step_size=1))),
    ),
)  # fmt: skip


def adam_rate(fan_out, fan_in, base_fan_out, base_fan_in, lr):
    """Return the step size of a weight matrix under muP."""
    return lr * base_fan_in / fan_in


def _draw_fans(generator: torch.Generator) -> dict:
    base_out, base_in = (2 ** _integer(generator, 2, 5) for _ in range(2))
    more_out, more_in = (2 ** _integer(generator, 0, 4) for _ in range(2))
    return {
        "fan_out": base_out * more_out, "fan_in": base_in * more_in, "base_fan_out": base_out, "base_fan_in": base_in,
        "lr": _integer(generator, 1, 9) / 1000,
    }  # fmt: skip


_RATE = Exercise(
    id="05.2",
    title="Adam's step size for one matrix",
    kind="function",
    difficulty=1,
    minutes=6,
    prompt="Write `adam_rate(fan_out, fan_in, base_fan_out, base_fan_in, lr)`: the step size that a weight matrix of "
    "shape `(fan_out, fan_in)` gets from Adam under muP, when `lr` was found with a base model in which it has shape "
    "`(base_fan_out, base_fan_in)`. The matrix may be of any kind: input, hidden or readout.",
    draw=_draw_fans,
    reference=adam_rate,
    properties=(
        Property(
            "The change that one step makes to an output should be that of the base: it adds up fan_in moves.",
            lambda i, a: math.isclose(float(a) * i["fan_in"], i["lr"] * i["base_fan_in"], rel_tol=1e-9),
        ),
    ),
    hints=(
        "Adam moves each entry by about its step size, in the direction of the sign of its gradient.",
        "How many such moves add up in one output? Does it matter how many outputs there are?",
        "An output changes by the step size times fan_in, and this should be the same as in the base.",
    ),
    mistakes=(
        Mistake("the same for all", lambda fo, fi, bo, bi, lr: lr, "You left the step size as it was. Wider inputs then "
                "change the output by more."),
        Mistake("the wrong fan", lambda fo, fi, bo, bi, lr: lr * bo / fo, "You divided by the growth of the outputs. "
                "What adds up in one output are the moves of its inputs."),
        Mistake("the root", lambda fo, fi, bo, bi, lr: lr * math.sqrt(bi / fi), "You divided by the root. That is for "
                "weights at the start, whose signs are random; signs of a step agree with those of its inputs."),
        Mistake("the rule of SGD", lambda fo, fi, bo, bi, lr: lr * fo / bo * bi / fi, "That is the rule of SGD, whose "
                "steps are in proportion to the gradient. Adam's are not."),
        Mistake("upside down", lambda fo, fi, bo, bi, lr: lr * fi / bi, "Upside down: more inputs need a smaller step."),
    ),
)  # fmt: skip


def _case(W: Sequence[float], h: Sequence[float]) -> dict:
    return dict(zip(("w_11", "w_12", "w_21", "w_22", "h_1", "h_2"), (*W, *h), strict=True))


def _sizes(c: Mapping) -> tuple[float, float, float]:
    """Spectral norm of W, RMS of h and RMS of W h."""
    a, b, d, e, *h = (float(c[name]) for name in ("w_11", "w_12", "w_21", "w_22", "h_1", "h_2"))
    W, h = np.array([[a, b], [d, e]]), np.array(h)
    if not (np.isfinite(W).all() and np.isfinite(h).all() and max(np.abs(W).max(), np.abs(h).max()) < 1e6):
        return math.inf, math.inf, math.inf
    rms = lambda v: float(np.sqrt(np.mean(v**2)))  # noqa: E731
    return float(np.linalg.norm(W, 2)), rms(h), rms(W @ h)


def _what_is_off(c: Mapping) -> str:
    norm, size, after = _sizes(c)
    if norm < 1e-3:
        return "zero matrix"
    if abs(norm - 1) > 1e-3:
        return "norm"
    if abs(size - 1) > 1e-3:
        return "length" if abs(size - math.sqrt(0.5)) < 1e-3 else "size"
    return "none" if after <= 0.01 else "kept" if after > 0.99 else "smaller"


_THETA = Exercise(
    id="05.3",
    title="Bounded, but not of that size",
    kind="flaw",
    difficulty=2,
    minutes=8,
    prompt="The notes say: if $\\lVert W\\rVert_2 = \\sqrt{n_l/n_{l-1}}$ and the entries of $h$ have size 1, then those of "
    "$Wh$ have size 1 too. Give a counterexample for $n_l = n_{l-1} = 2$: a dictionary with the numbers `w_11`, `w_12`, "
    "`w_21`, `w_22`, `h_1`, `h_2` such that $\\lVert W\\rVert_2 = 1$ and $\\mathrm{RMS}(h) = 1$ (each to 0.001), and "
    "$\\mathrm{RMS}(Wh) \\le 0.01$.",
    draw=lambda generator: {"seed": _integer(generator, 0, 1000)},
    reference=_case((1.0, 0.0, 0.0, 0.0), (0.0, math.sqrt(2))),
    properties=(
        Property("The spectral norm of W should be 1.", lambda i, c: abs(_sizes(c)[0] - 1) <= 1e-3),
        Property("RMS(h) should be 1.", lambda i, c: abs(_sizes(c)[1] - 1) <= 1e-3),
        Property("RMS(Wh) is above 0.01.", lambda i, c: _sizes(c)[2] <= 0.01),
    ),
    hints=(
        "A spectral norm says what happens to the direction that W stretches most. What of the other one?",
        "Let W have the singular values 1 and 0.",
        "Put h along the direction with singular value 0. RMS(h) = 1 means that its Euclidean length is √2.",
    ),
    mistakes=(
        Mistake("the zero matrix", _case((0.0,) * 4, (1.0, 1.0)), "Your W is zero, and so is its spectral norm. It should "
                "be 1.", lambda i, c: _what_is_off(c) == "zero matrix"),
        Mistake("another spectral norm", _case((1.0, -1.0, -1.0, 1.0), (1.0, 1.0)), "The spectral norm of your W, its "
                "largest singular value, is not 1. Divide W by it.", lambda i, c: _what_is_off(c) == "norm"),
        Mistake("Euclidean length 1", _case((1.0, 0.0, 0.0, 0.0), (0.0, 1.0)), "Your h has Euclidean length 1. Its RMS is "
                "then 1/√2: the length should be √2.", lambda i, c: _what_is_off(c) == "length"),
        Mistake("another size of h", _case((1.0, 0.0, 0.0, 0.0), (0.0, 0.001)), "RMS(h) is not 1: a small h has a small "
                "Wh without any fault of W.", lambda i, c: _what_is_off(c) == "size"),
        Mistake("nothing lost", _case((1.0, 0.0, 0.0, 1.0), (1.0, -1.0)), "Your W keeps the size of this h: h lies along "
                "directions with singular value 1.", lambda i, c: _what_is_off(c) == "kept"),
    ),
)  # fmt: skip


def unit_scale(d_out, d_in):
    """Return c, the sign step's alpha and Muon's alpha for y = c W x with entries of W of size 1."""
    return torch.tensor([d_in**-0.5, d_in**-0.5, d_out**0.5], dtype=torch.float64)


def _scales(c: float, sign: float, muon: float) -> Tensor:
    return torch.tensor([c, sign, muon], dtype=torch.float64)


def _draw_layer(generator: torch.Generator) -> dict:
    return {"d_out": _integer(generator, 2, 90), "d_in": _integer(generator, 2, 90)}


_UNIT = Exercise(
    id="05.4",
    title="Three numbers of a layer at unit scale",
    kind="function",
    difficulty=2,
    minutes=8,
    prompt="A layer is $y = cWx$ with $W$ of shape `(d_out, d_in)` and entries $N(0, 1)$. Write "
    "`unit_scale(d_out, d_in)`: a float64 tensor of three numbers, the $c$ with which inputs of RMS 1 have outputs of RMS "
    "1 on average at the start; the largest $\\alpha$ for which no step $-\\alpha\\,\\mathrm{sign}(gx^\\top)$ changes the "
    "output of an RMS-1 input by an RMS above 1; and the largest $\\alpha$ for which no step $-\\alpha UV^\\top$ does.",
    draw=_draw_layer,
    reference=unit_scale,
    properties=(
        Property(
            "With your c the outputs do not have RMS 1 on average at the start.",
            lambda i, a: math.isclose(float(a[0]) ** 2 * i["d_in"], 1, rel_tol=1e-6),
        ),
        Property(
            "The longest sign step should change the output of x by exactly RMS 1, for x with entries ±1.",
            lambda i, a: math.isclose(float(a[0] * a[1]) * i["d_in"], 1, rel_tol=1e-6),
        ),
        Property(
            "The longest Muon step should have spectral norm √d_out.",
            lambda i, a: math.isclose(float(a[2]) ** 2, i["d_out"], rel_tol=1e-6),
        ),
    ),
    hints=(
        "An output is c times a sum of d_in terms of variance 1.",
        "RMS(Δy) / RMS(x) is at most c √(d_in/d_out) times the spectral norm of the step. Bound it by 1.",
        "sign(g xᵀ) is a product of two sign vectors: its spectral norm is the product of their lengths. That of U Vᵀ "
        "is 1.",
    ),
    mistakes=(
        Mistake("c upside down", lambda o, i: _scales(i**0.5, i**-0.5, o**0.5), "Your c is the root of d_in: the outputs, "
                "which have variance d_in without c, get d_in² with it. Divide by the root."),
        Mistake("sign step upside down", lambda o, i: _scales(i**-0.5, i**0.5, o**0.5), "α √(d_in d_out) = √d_out gives "
                "α = 1/√d_in, not √d_in: yours is d_in times too long."),
        Mistake("c forgotten in the steps", lambda o, i: _scales(i**-0.5, 1 / i, (o / i) ** 0.5), "Those are the steps of "
                "a layer without c. Here the change of the output is divided by √d_in as well."),
        Mistake("Muon's step of norm 1", lambda o, i: _scales(i**-0.5, i**-0.5, 1.0), "U Vᵀ has spectral norm 1, and the "
                "spectral norm of the step may be up to √d_out."),
        Mistake("Muon's step from the inputs", lambda o, i: _scales(i**-0.5, i**-0.5, i**0.5), "The bound on the spectral "
                "norm of the step is √d_out: d_in cancels between c and the RMS norm."),
    ),
)  # fmt: skip


def batch_sign_step(gradient, radius):
    """Return the longest multiple of -sign(G) that changes no output of y = W x / sqrt(d_in) by more than eta."""
    signs = gradient.sign()
    return -radius * math.sqrt(len(signs)) * signs / torch.linalg.matrix_norm(signs, 2)


def _draw_batch(generator: torch.Generator) -> dict:
    rows, columns = _integer(generator, 2, 4), _integer(generator, 2, 4)
    gradient = torch.randn(rows, columns, generator=generator, dtype=torch.float64).round(decimals=1)
    gradient[gradient == 0] = 0.5
    return {"gradient": gradient, "radius": _integer(generator, 1, 9) / 10}


def _times_signs(factor: Callable[[int, int], float]) -> Callable[[Tensor, float], Tensor]:
    return lambda g, r: -r * factor(*g.shape) * g.sign()


_BATCH = Exercise(
    id="05.5",
    title="The sign step of a batch",
    kind="function",
    difficulty=3,
    minutes=12,
    prompt="The gradient of a batch has no rank 1, and the step $\\alpha = \\eta/\\sqrt{d_{in}}$ is then shorter than it "
    "could be. Write `batch_sign_step(gradient, radius)` for the layer $y = Wx/\\sqrt{d_{in}}$: the longest step "
    "$-\\alpha\\,\\mathrm{sign}(G)$ with $\\mathrm{RMS}(\\Delta y) \\le \\eta\\,\\mathrm{RMS}(x)$ for every $x$. "
    "`gradient` is $G$, a float64 matrix of shape `(d_out, d_in)` without zeros, `radius` is $\\eta$.",
    draw=_draw_batch,
    reference=batch_sign_step,
    properties=(
        Property("The step should go down: against the signs of G.", lambda i, d: float((i["gradient"] * d).sum()) < 0),
        Property(
            "Some input has its output changed by more than the radius allows.",
            lambda i, d: float(torch.linalg.matrix_norm(d, 2)) <= i["radius"] * math.sqrt(len(d)) * (1 + 1e-8),
        ),
        Property(
            "A longer step would still keep to the bound.",
            lambda i, d: float(torch.linalg.matrix_norm(d, 2)) >= i["radius"] * math.sqrt(len(d)) * (1 - 1e-8),
        ),
    ),
    hints=(
        "Which norm of the step bounds RMS(Δy) / RMS(x) for every x? Do not forget the factor of the layer.",
        "The spectral norm of the step may be up to η √d_out.",
        "torch.linalg.matrix_norm(S, 2) is the spectral norm of S = sign(G). Which multiple of S reaches the bound?",
    ),
    mistakes=(
        Mistake("uphill", lambda g, r: -batch_sign_step(g, r), "Your step goes uphill: a minus is missing."),
        Mistake("as for one sample", _times_signs(lambda rows, columns: columns**-0.5), "That is the step for a gradient "
                "of rank 1. Here the spectral norm of sign(G) can be smaller than √(d_in d_out): compute it."),
        Mistake("layer without its factor", lambda g, r: batch_sign_step(g, r) / math.sqrt(g.shape[1]), "You left out "
                "the factor 1/√d_in of the layer: the step may be √d_in times longer."),
        Mistake("spectral norm eta", lambda g, r: batch_sign_step(g, r) / math.sqrt(g.shape[0]), "Your step has the "
                "spectral norm η. RMS takes means over d_out and d_in entries: η √d_out is allowed."),
        Mistake("the notes' length", _times_signs(lambda rows, columns: columns**0.5), "You multiplied the signs by √d_in "
                "instead of dividing: the step is far too long."),
    ),
)  # fmt: skip

EXERCISES = {e.id: e for e in (_LAW, _RATE, _THETA, _UNIT, _BATCH)}

FIGURES = {
    "question": plot_question,
    "coordinates": plot_coordinates,
    "rounding": plot_rounding,
    "explorer": lambda: SizesExplorer().strip(),
    "transfer": plot_transfer,
}
