"""Experiments, figures, explorer and predictions of lesson 05, maximal_update_parametrization."""

import math
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.lessons.maximal_update_parametrization.contents import lesson
from course_lib.optimization.mup import layer_outputs, param_groups, parametrize, rounding_loss
from course_lib.teaching import Explorer, Slider, lines, panels
from course_lib.teaching.style import BLUE

WIDTHS, EXPONENTS = (32, 128, 512), tuple(range(-10, -1))
LAYERS = {"0": "first", "2": "hidden", "4": "readout"}
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
    model: nn.Module, groups: Sequence[Mapping], *, steps: int = 120, target: nn.Module | None = None, seed: int = 3
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


def groups_for(model: nn.Module, optimizer: type, lr: float, *, mup: bool, base_width: int = 32) -> list[dict]:
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


def _draw_losses(axes, losses: Mapping[int, Sequence[float]]) -> str:
    """Draw a curve for each width with a star at its minimum; say where the minima are."""
    for place, (marker, (width, values)) in enumerate(zip("o^s", losses.items(), strict=False)):
        look = {"first": place, "marker": marker, "markersize": 5}
        (curve,) = lines(axes, EXPONENTS, {f"width {width}": values}, **look)
        k = int(np.argmin(values))
        axes.plot([EXPONENTS[k]], [values[k]], "*", color=curve.get_color(), markersize=15)
    return ", ".join(f"2^{best_exponent(values):.1f} at width {width}" for width, values in losses.items())


_LOSS_AXES = {"yscale": "log", "ylim": (0.008, 3), "xticks": [EXPONENTS] * 2, "legend": "upper left"}


@lesson.figure(
    "The wider the network, the smaller its best step size",
    "$\\log_2$ of Adam's step size",
    "test loss",
    **_LOSS_AXES,
)
def plot_question(axes, losses: Mapping[int, Sequence[float]] | None = None):
    """Draw the test loss against the step size at three widths, with one step size for all weights."""
    said = _draw_losses(axes, losses or transfer()["SP"])
    return (
        "Test loss of three networks against the logarithm of Adam's step size. Each curve falls to a minimum, marked "
        f"by a star, and rises again. The best step size gets smaller with the width: {said}."
    )


@lesson.figure(
    list(PARAMETRIZATIONS.values()),
    "$\\log_2$ of Adam's step size",
    "test loss",
    grid=(1, 2),
    subplots={"sharey": True},
    **_LOSS_AXES,
)
def plot_transfer(left, right, losses: Mapping[str, Mapping[int, Sequence[float]]] | None = None):
    """Draw the test loss against the step size at three widths, in both parametrizations."""
    said = []
    for one, (name, title) in zip((left, right), PARAMETRIZATIONS.items(), strict=True):
        found = (losses or transfer())[name]
        best = _draw_losses(one, found)
        drift, regret = drift_and_regret(found)
        said.append(
            f"{title}: the best step size is {best}, a drift of {drift:+.1f} octaves; at the narrow network's best "
            f"step size the wide one has {regret:.1f} times its smallest loss."
        )
    return (
        "Test loss against the logarithm of the step size at widths 32, 128 and 512, with a star at each minimum. "
        + " ".join(said)
    )


@lesson.figure(
    ["At the start: random signs", "A sign step: all signs agree"],
    "number of terms added",
    "sum so far",
    grid=(1, 2),
    subplots={"sharey": True},
    ylim=(-60, 220),
    legend="upper left",
)
def plot_sums(start, step, terms: int = 256):
    """Draw how the terms W_ij x_j of one output add up, for random weights and for the sign step of one sample."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(terms, generator=generator, dtype=torch.float64)
    count = np.arange(1, terms + 1)
    random = (torch.randn(4, terms, generator=generator, dtype=torch.float64) * x).cumsum(1)
    aligned = (x.sign() * x).cumsum(0)
    for axes, sums in ((start, random), (step, aligned[None])):
        axes.plot(count, sums.T, color=BLUE, linestyle="-", linewidth=1.2)
        lines(axes, count, {"$\\pm\\sqrt{d}$": np.sqrt(count), "$0.8\\,d$": math.sqrt(2 / math.pi) * count}, first=1)
        axes.plot(count, -np.sqrt(count), color=axes.lines[-2].get_color(), linestyle=axes.lines[-2].get_linestyle())
    return (
        f"Sums of {terms} terms, added one by one. Left: four outputs of random weights; their sums stay near the curves "
        f"of plus and minus the root of the number of terms and end within {float(random[:, -1].abs().max()):.0f}. Right: "
        "one output of the sign step that belongs to the same input; its sum follows the straight line 0.8 d and ends at "
        f"{float(aligned[-1]):.0f}."
    )


@cache
def sign_norms(width: int, *, steps: int = 120, every: int = 10) -> dict:
    """The spectral norm of sign(G) over its upper end (05.8), for the hidden layer of a network of that width.

    "training" holds the values at every tenth step of Adam under muP, "unrelated" that of a sum over as many samples
    whose gradients and inputs are independent and normal.
    """
    share = lambda G: float(torch.linalg.matrix_norm(G.sign(), 2)) / math.sqrt(G.numel())  # noqa: E731
    model = network(width)
    optimizer = torch.optim.Adam(groups_for(model, torch.optim.Adam, 2**-5, mup=True), betas=(0.9, 0.95))
    generator, found = torch.Generator().manual_seed(3), []
    for step in range(steps):
        x = torch.randn(32, 8, generator=generator)
        optimizer.zero_grad()
        (model(x) - teacher()(x)).square().mean().backward()
        if step % every == 0:
            found.append(share(model[2].weight.grad))
        optimizer.step()
    g, h = (torch.randn(32, width, generator=generator) for _ in range(2))
    return {"training": found, "unrelated": share(g.T @ h)}


@lesson.figure(
    "How near do sign steps of a batch come to the upper end?",
    "training step",
    "$\\|\\mathrm{sign}(G)\\|_2\\,/\\,\\sqrt{d_{in}d_{out}}$",
    ylim=(0, 1.05),
    legend={"loc": "center right", "fontsize": 8},
)
def plot_sign_norms(axes, widths: Sequence[int] = (64, 256)):
    """Draw the spectral norm of the sign of the hidden layer's gradient while the network trains, over its upper end."""
    said = []
    for place, width in enumerate(widths):
        found = sign_norms(width)
        curve = {f"width {width}, in training": found["training"]}
        (line,) = lines(axes, 10 * np.arange(len(found["training"])), curve, first=place, marker="os"[place])
        look = {"color": line.get_color(), "linewidth": 1.0 + place}
        axes.axhline(found["unrelated"], linestyle="--", label=f"width {width}, unrelated samples", **look)
        axes.axhline(width**-0.5, linestyle=":", label=f"width {width}, lower end", **look)
        said.append(
            f"width {width}: {min(found['training']):.1f} to {max(found['training']):.1f} in training, "
            f"{found['unrelated']:.1f} for unrelated samples, lower end {width**-0.5:.2f}"
        )
    return (
        "Spectral norm of the sign matrix of the hidden layer's gradient, for batches of 32, as a share of the upper end, "
        f"against the training step. {'; '.join(said)}."
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


@lesson.figure(
    list(PARAMETRIZATIONS.values()),
    "width",
    "RMS change of the output",
    grid=(1, 2),
    subplots={"sharey": True},
    xscale="log",
    yscale="log",
    ylim=(0.02, 60),
    legend="upper left",
)
def plot_coordinates(*axes):
    """Draw the coordinate check: the change of each layer's output after six steps of Adam, against the width."""
    said = []
    for one, (name, title) in zip(axes, PARAMETRIZATIONS.items(), strict=True):
        fitted = {layer: slope(COORDINATE_WIDTHS, sizes) for layer, sizes in coordinates()[name].items()}
        for place, (marker, (layer, exponent)) in enumerate(zip("os^", fitted.items(), strict=True)):
            curve = {f"{LAYERS[layer]}: exponent {exponent:+.2f}": coordinates()[name][layer]}
            lines(one, COORDINATE_WIDTHS, curve, first=place, marker=marker, markersize=5)
        one.set_xticks(COORDINATE_WIDTHS, COORDINATE_WIDTHS)
        one.minorticks_off()
        exponents = [f"{LAYERS[layer]} {round(exponent, 1) + 0.0:+.1f}" for layer, exponent in fitted.items()]
        said.append(f"{title}: {', '.join(exponents)}.")
    return (
        "RMS change of the outputs of three layers after six steps of Adam, against the width from 64 to 1024, both "
        "logarithmic, with the exponents of the fitted power laws. " + " ".join(said)
    )


def normal_grid(count: int = 40_001) -> Float[Tensor, " count"]:
    """Return `count` numbers that are distributed as N(0, 1), without chance: equally spaced quantiles."""
    shares = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    return math.sqrt(2) * torch.erfinv(2 * shares - 1)


FORMATS = {"bf16": torch.bfloat16, "fp8 e4m3": torch.float8_e4m3fn, "fp8 e5m2": torch.float8_e5m2}


@lesson.figure(
    ["Rounding", "Lost to zero"],
    "$d$, with weights $N(0, 1/d)$",
    ["relative error (%)", "weights that become 0 (%)"],
    grid=(1, 2),
    yscale=["log", "linear"],
    legend="upper left",
)
def plot_rounding(left, right):
    """Draw what weights N(0, 1/d) lose in three formats, against d: the relative error, and the share of zeros."""
    dims, said = 2.0 ** np.arange(0, 19, 2), []
    for place, (marker, (name, dtype)) in enumerate(zip("os^", FORMATS.items(), strict=True)):
        losses = [rounding_loss(normal_grid() / math.sqrt(d), dtype) for d in dims]
        errors, zeros = (100 * np.array(values) for values in zip(*losses, strict=True))
        for axes, values in ((left, errors), (right, zeros)):
            lines(axes, dims, {name: values}, first=place, marker=marker, markersize=5)
        said.append(
            f"{name} loses {errors[0]:.2g}% at d = 1 and {errors[-1]:.2g}% at d = {dims[-1]:,.0f}, where "
            f"{zeros[-1]:.2g}% become zero"
        )
    left.set_ylim(0.1, 100)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(dims[::3])
    return (
        "What normal weights of variance 1/d lose when they are stored in three number formats, against d. Left the "
        "relative error, right the share of weights that become zero: " + "; ".join(said) + "."
    )


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


@lesson.explorer
class SizesExplorer(Explorer):
    """Sizes in a three-layer linear network against its width, for any exponents of its parametrization."""

    title = "What grows with the width"
    summary = (
        "A network of three matrices takes one sign step. Left: the size of the hidden activations at the start and of "
        "their change. Right: the same for the output. All against the width, both axes logarithmic."
    )
    rate = Slider(
        "hidden step exponent",
        "c",
        "Entries of the hidden matrix move by an amount in proportion to width^-c; 1 under muP",
        default=1.0,
        minimum=0.0,
        maximum=2.0,
        step=0.05,
    )
    init = Slider(
        "hidden start exponent",
        "b",
        "Entries of the hidden matrix start in proportion to width^-b; 1/2 under muP",
        default=0.5,
        minimum=0.0,
        maximum=1.0,
        step=0.05,
    )
    out_rate = Slider(
        "readout step exponent",
        "c'",
        "Entries of the readout move by an amount in proportion to width^-c'; 1 under muP",
        default=1.0,
        minimum=0.0,
        maximum=2.0,
        step=0.05,
    )
    out_init = Slider(
        "readout start exponent",
        "b'",
        "Entries of the readout start in proportion to width^-b'; 1 under muP",
        default=1.0,
        minimum=0.0,
        maximum=1.5,
        step=0.05,
    )
    together = ("rate", "init")
    size = (9.0, 4.2)
    layout = panels(
        ["Hidden activations (RMS)", "Output"],
        "width",
        "size",
        grid=(1, 2),
        xscale="log",
        yscale="log",
        xlim=(55, 2400),
        ylim=(1e-3, 1e5),
        legend="upper left",
    )

    def compute(self, *, rate, init, out_rate, out_init):
        """Return the four sizes at every width and their exponents."""
        found = [one_step(n, init=init, rate=rate, out_init=out_init, out_rate=out_rate) for n in SIZES]
        sizes = {name: np.array([f[name] for f in found]) for name in found[0]}
        exponents = {name: round(slope(SIZES, values), 2) + 0.0 for name, values in sizes.items()}
        curves = {name: (SIZES, values) for name, values in sizes.items()}
        settings = {"rate": rate, "init": init, "out_rate": out_rate, "out_init": out_init}
        return {**curves, "exponents": exponents, **settings}

    def draw(self, *both):
        """Draw a size at the start and its change on both axes, to be moved."""
        artists = {}
        for axes, names in zip(both, (("hidden", "change"), ("output", "moved")), strict=True):
            axes.set_xticks(SIZES, SIZES)
            axes.minorticks_off()
            curves = lines(axes, [], ["at the start", "change by one step"], marker="o", markersize=5)
            curves[1].set_marker("s")
            artists |= dict(zip(names, curves, strict=True))
        return artists

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


coordinate_prediction = lesson.prediction(
    "05.P1",
    "Networks with three weight matrices take six steps of Adam, with one step size for all weights, 1/64, at all "
    "widths. From width 64 to 1024, by what factor does the change of the hidden layer's output grow?",
    {
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

transfer_prediction = lesson.prediction(
    "05.P2",
    "In the opening picture the best step size at width 512 was more than eight times smaller than at width 32. "
    "Now the same networks are parametrized with width 32 as the base. What becomes of the widest one?",
    {
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

FIGURES = lesson.figures
