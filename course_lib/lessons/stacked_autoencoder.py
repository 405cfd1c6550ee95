"""Figures, explorer, predictions and exercises of lesson 27, stacked_autoencoder.

The model, and with it transformers, is loaded where it is needed: the module itself stays light.
"""

import math
from collections.abc import Callable, Mapping
from functools import cache

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.representation.normality import moment_scores
from course_lib.representation.variance import (
    ANGLE_SHARE,
    components_needed,
    kept_by_code,
    relu_share,
    unit_share,
)
from course_lib.sae.metrics import explained_variance, pca_curve
from course_lib.sae.stacked import StackedAutoencoder
from course_lib.teaching.exercise import Exercise, Mistake, Property
from course_lib.teaching.explorer import Choice, Explorer, Slider
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, RED, describe, new_figure, styled

WIDTH = 32  # of the code: an eighth of the shipped model's 256 dimensions, as 128 is of 1024

# States


@cache
def sentence_states(n_sentences: int = 3000, *, seed: int = 27) -> Tensor:
    """Return one row a sentence: the mean of the shipped model's last encoder states over its tokens, float64.

    The sentences have distinct meanings and take the languages in turn; they are read once a process.
    """
    from course_lib.mbart.activations import Site, extract
    from course_lib.mbart.corpus import generate
    from course_lib.mbart.model import load

    model, tokenizer = load("course-mbart")
    site = Site(
        "encoder"
    )  # the output of the stack; stops before the decoder, which `pooled_states` also reads
    sentences = generate(n_sentences, seed=seed)
    return extract(model, tokenizer, sentences, (site,), pool="mean", progress=False)[site].values.double()


def principal_codes(states: Tensor, k: int) -> Tensor:
    """Return the first k principal components of the rows, each scaled to variance 1."""
    u, _, _ = torch.linalg.svd(states - states.mean(dim=0), full_matrices=False)
    return u[:, :k] * len(states) ** 0.5


def normal_twin(states: Tensor, *, seed: int = 0) -> Tensor:
    """Return as many normal rows, with the mean and the covariance of the given ones."""
    generator = torch.Generator().manual_seed(seed)
    _, s, vt = torch.linalg.svd(states - states.mean(dim=0), full_matrices=False)
    normal = torch.randn(len(states), len(s), generator=generator, dtype=states.dtype)
    return normal @ (s[:, None] * vt) / len(states) ** 0.5 + states.mean(dim=0)


def training_curve(
    states: Tensor, widths: tuple[int, ...], *, steps: int, every: int, seed: int = 0
) -> Tensor:
    """Train a stacked autoencoder; return the variance that it keeps of all rows after every few steps."""
    generator = torch.Generator().manual_seed(seed)
    states = states.float()
    autoencoder = StackedAutoencoder(states.shape[1], widths, generator=generator)
    autoencoder.fit_normalisation(states)
    optimizer = torch.optim.Adam(autoencoder.parameters(), lr=3e-3)
    kept = []
    for step in range(steps + 1):
        if step % every == 0:
            with torch.no_grad():
                kept.append(explained_variance(states, autoencoder(states)))
        batch = states[torch.randint(len(states), (256,), generator=generator)]
        optimizer.zero_grad()
        autoencoder.loss(batch)["total"].backward()
        optimizer.step()
    return torch.tensor(kept)


# Figures


@styled
def plot_question() -> Figure:
    """Draw the variance that k principal components keep, for isotropic data and for the model's states."""
    curve = pca_curve(sentence_states())
    d = len(curve)
    k = np.arange(1, d + 1)
    figure = new_figure(7.0, 4.0)
    axes = figure.add_subplot()
    axes.plot(k, 100 * curve, color=BLUE, linestyle="-", label="sentence states of course-mbart")
    axes.plot(k, 100 * k / d, color=RED, linestyle="--", label="isotropic: the same in every direction")
    axes.axvline(WIDTH, color=BLACK, linestyle=":", linewidth=1.2, label=f"k = {WIDTH} = d/8")
    axes.plot([WIDTH], [12.5], "o", color=RED, markersize=7, label="the notes' 12.5%")
    axes.set(
        xlabel="code width k (best directions)",
        ylabel="variance kept (%)",
        xlim=(0, d),
        ylim=(0, 104),
        title="An eighth of the directions is not an eighth of the variance",
    )
    axes.legend(loc="lower right")
    return describe(
        figure,
        f"The variance that the best k of {d} directions keep, against k. For isotropic data it is a straight line that "
        f"passes 12.5% at k = {WIDTH}. For the sentence states of the shipped model the curve rises steeply and is "
        f"above 60% at k = {WIDTH}.",
    )


@styled
def plot_units() -> Figure:
    """Draw what one ReLU and one sigmoid unit keep of a standard normal number."""
    figure = new_figure(7.6, 3.8)
    left, right = figure.subplots(1, 2)
    biases = np.linspace(-2, 3.5, 111)
    left.plot(
        biases, [relu_share(float(b)) for b in biases], color=BLUE, linestyle="-", label="max(u + b, 0)"
    )
    left.plot([0], [relu_share(0.0)], "o", color=RED, markersize=7, label="b = 0: 0.7335")
    left.set(xlabel="bias b", ylabel="share of the variance kept", title="A ReLU unit")
    gains = np.logspace(-1, 2, 61)
    shares = [unit_share(lambda u, g=g: torch.sigmoid(g * u)) for g in gains.tolist()]
    right.semilogx(gains, shares, color=BLUE, linestyle="-", label="$1/(1 + e^{-gu})$")
    right.axhline(2 / math.pi, color=BLACK, linestyle=":", linewidth=1.2, label="a step: $2/\\pi$ = 0.637")
    right.set(xlabel="gain g", ylabel="share of the variance kept", title="A sigmoid unit")
    for axes, place in ((left, "lower right"), (right, "lower left")):
        axes.set_ylim(0, 1.05)
        axes.legend(loc=place)
    return describe(
        figure,
        "Two panels: the share of a standard normal number's variance that an affine decoder recovers from one unit. "
        "A ReLU unit keeps less than 0.2 at bias -2, 0.7335 at bias 0 and nearly everything at bias 3. A sigmoid unit "
        "keeps nearly everything at a small gain, where it is almost linear, and falls towards 0.637, the share of a "
        "step, as the gain grows.",
    )


@styled
def plot_angle(*, points: int = 250, seed: int = 2) -> Figure:
    """Draw two codes of one number for a plane: a coordinate with a linear decoder, an angle with a circle."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(points, 2, generator=generator, dtype=torch.float64)
    line = x * torch.tensor([1.0, 0.0], dtype=torch.float64)
    circle = math.sqrt(math.pi / 2) * x / x.norm(dim=1, keepdim=True)
    figure = new_figure(7.6, 4.0)
    for axes, decoded, title in zip(
        figure.subplots(1, 2),
        (line, circle),
        ("a coordinate: keeps 1/2", "an angle: keeps $\\pi/4$ = 0.785"),
        strict=True,
    ):
        for start, end in zip(x.tolist(), decoded.tolist(), strict=True):
            axes.plot(
                *zip(start, end, strict=True), color="0.75", linewidth=0.7, linestyle="-", label="_move"
            )
        axes.plot(*x.T, ".", color=BLUE, markersize=4, label="points")
        axes.plot(*decoded.T, "x", color=RED, markersize=4, label="reconstructions")
        axes.set(
            xlim=(-3.4, 3.4), ylim=(-3.4, 3.4), xlabel="$x_1$", ylabel="$x_2$", title=title, aspect="equal"
        )
        axes.legend(loc="lower left", fontsize=8)
    return describe(
        figure,
        f"{points} normal points in the plane and their reconstructions from one number. Left, from the first "
        "coordinate: all lie on a line, and a half of the variance is kept. Right, from the angle: all lie on a circle of "
        "radius 1.25, closer to their points, and 0.785 of the variance is kept.",
    )


DEPTHS = ((WIDTH,), (128, WIDTH), (128, 64, WIDTH))


@styled
def plot_depths(*, steps: int = 400, every: int = 25) -> Figure:
    """Draw the training of three stacked autoencoders of one code width, and the bound of PCA."""
    states = sentence_states()
    bound = float(pca_curve(states)[WIDTH - 1])
    figure = new_figure(7.0, 4.0)
    axes = figure.add_subplot()
    axes.axhline(bound, color=BLACK, linestyle="-", linewidth=1.2, label=f"PCA with {WIDTH} components")
    at = np.arange(0, steps + 1, every)
    for widths, color, style in zip(DEPTHS, (BLUE, RED, GREEN), ("-", "--", "-."), strict=True):
        name = "-".join(str(n) for n in (states.shape[1], *widths))
        kept = training_curve(states, widths, steps=steps, every=every)
        axes.plot(
            at,
            kept.clamp(min=-0.2),
            color=color,
            linestyle=style,
            label=f"encoder {name}",
        )
    axes.set(xlabel="training step", ylabel="share of the variance kept", xlim=(0, steps), ylim=(-0.2, 1))
    axes.set_title("No depth of the encoder passes PCA while the decoder is affine")
    axes.legend(loc="lower right")
    return describe(
        figure,
        f"Share of the variance that three stacked autoencoders with {WIDTH} code units keep, while they are trained on the "
        "sentence states of the shipped model. Encoders of one, two and three layers all rise and stay below the "
        f"horizontal line, which is what PCA with {WIDTH} components keeps.",
    )


@styled
def plot_distribution() -> Figure:
    """Draw quantiles of one code unit against the normal's, and the scores of all units, for three codes."""
    codes = three_codes(sentence_states())
    figure = new_figure(8.2, 4.0)
    quantiles, scores = figure.subplots(1, 2)
    looks = ((BLUE, "-", "o"), (ORANGE, "--", "s"), (RED, "-.", "^"))
    for (name, code), (color, style, marker) in zip(codes.items(), looks, strict=True):
        skewness, kurtosis = moment_scores(code)
        unit = int(kurtosis.abs().argmax())
        z = (code[:, unit] - code[:, unit].mean()) / code[:, unit].std()
        ranks = (torch.arange(len(z), dtype=torch.float64) + 0.5) / len(z)
        quantiles.plot(torch.special.ndtri(ranks), z.sort().values, color=color, linestyle=style, label=name)
        scores.plot(skewness, kurtosis, marker, color=color, markersize=4, linestyle="none", label=name)
    quantiles.plot([-3.6, 3.6], [-3.6, 3.6], color=BLACK, linestyle=":", linewidth=1.2, label="normal")
    quantiles.set(xlabel="quantile of N(0, 1)", ylabel="quantile of the unit", title="The least normal unit")
    quantiles.set(xlim=(-3.6, 3.6), ylim=(-5, 7))
    quantiles.legend(loc="upper left", fontsize=8)
    scores.plot(
        [-4, 4, 4, -4, -4], [-4, -4, 4, 4, -4], color=BLACK, linestyle=":", linewidth=1.4, label="±4 errors"
    )
    for axis in ("x", "y"):
        getattr(scores, f"set_{axis}scale")("symlog", linthresh=4)
        getattr(scores, f"set_{axis}lim")(-1000, 1000)
        getattr(scores, f"set_{axis}ticks")([-100, -4, 0, 4, 100], labels=["-100", "-4", "0", "4", "100"])
        getattr(scores, f"{axis}axis").set_minor_locator(matplotlib.ticker.NullLocator())
    scores.set(
        xlabel="skewness (standard errors)", ylabel="excess kurtosis (standard errors)", title="All units"
    )
    return describe(
        figure,
        f"Two panels about three codes of {WIDTH} units. Left, for the unit of each code with the most unusual tails, its "
        "quantiles against those of a normal distribution: the linear code of normal rows follows the diagonal, the "
        "ReLU code of the same rows is flat at its left end, and the linear code of the model's states leaves the "
        "diagonal. Right, skewness and kurtosis of all units in standard errors: those of the first code lie in the "
        "square of ±4, those of the second far outside, and many of the third too.",
    )


def three_codes(states: Tensor, k: int = WIDTH) -> dict[str, Tensor]:
    """Return the linear code of normal rows, their ReLU code, and the linear code of the states."""
    normal = principal_codes(normal_twin(states), k)
    return {
        "normal rows, linear": normal,
        "normal rows, ReLU": torch.relu(normal),
        "model's states, linear": principal_codes(states, k),
    }


# Explorer

ANGLE, LINEAR, RELU, SIGMOID = "angle, circle decoder", "linear", "ReLU", "sigmoid"


class CodeExplorer(Explorer):
    """Normal states with a spectrum between isotropic and the model's, and what codes of k units keep of them."""

    title = "What a code of k units keeps"
    summary = (
        "Normal states with 256 dimensions, whose variances are the t-th powers of those of the model's sentence states: "
        "t = 0 is isotropic, t = 1 has the model's own. Left: the variance of each principal component, as a share "
        "of the total, and the width of the code. Right: the variance kept against the code width, by "
        "PCA, by units of the chosen kind on the same directions, and k/d; the grey lines are 12.5% and d/8."
    )
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "power": Slider(
            label="spectrum's power", symbol="t", default=1.0, minimum=0.0, maximum=1.5, step=0.05,
            tooltip="0 gives every direction the same variance, 1 the variances of the model's states",
        ),
        "k": Slider(
            label="code width", symbol="k", default=32, minimum=1, maximum=128, step=1,
            tooltip="Number of code units, of 256 dimensions",
        ),
        "unit": Choice(
            label="unit", default=RELU, options=(LINEAR, RELU, SIGMOID, ANGLE),
            tooltip="What a code unit computes of its direction; an angle takes two directions",
        ),
        "bias": Slider(
            label="bias", symbol="b", default=0.0, minimum=-2.0, maximum=3.0, step=0.1,
            tooltip="Added to a direction of variance 1 before the ReLU, or before the sigmoid of gain 4",
        ),
    }  # fmt: skip
    size = (9.4, 4.0)
    widest = 128

    def __init__(self):
        states = sentence_states()
        self._variances = torch.linalg.eigvalsh(torch.cov(states.T)).flip(0).clamp(min=0)
        super().__init__()

    def compute(self, *, power, k, unit, bias):
        """Return the spectrum, the two curves and the share that a unit keeps of its directions."""
        spectrum = (self._variances / self._variances.sum()) ** power
        spectrum = spectrum / spectrum.sum()
        pca = spectrum.cumsum(dim=0)
        share = {
            LINEAR: lambda: 1.0,
            RELU: lambda: relu_share(bias),
            SIGMOID: lambda: unit_share(lambda u: torch.sigmoid(4 * (u + bias))),
            ANGLE: lambda: ANGLE_SHARE,
        }[unit]()
        covered = pca[1::2] if unit == ANGLE else pca[: self.widest]
        return {
            "spectrum": spectrum,
            "pca": pca[: self.widest].numpy(),
            "units": (share * covered).numpy(),
            "share": share,
            "needed": components_needed(spectrum, 0.9),
            "power": power,
            "k": k,
            "unit": unit,
            "bias": bias,
        }

    def draw(self, figure):
        """Draw both axes with fixed limits."""
        left, right = figure.subplots(1, 2)
        d = len(self._variances)
        left.set_yscale("log")
        left.set(xlim=(1, d), ylim=(1e-6, 1), xlabel="component i", ylabel="share of the variance")
        left.set_title("Spectrum")
        (spectrum,) = left.plot([], [], color=BLUE, linestyle="-", label="$\\lambda_i^t$, scaled to sum 1")
        (cut,) = left.plot([], [], color=BLACK, linestyle=":", linewidth=1.4, label="code width k")
        left.legend(loc="upper right", fontsize=8)
        # The room above 100% is for the legend: below it, some setting has a curve everywhere.
        right.set(xlim=(0, self.widest), ylim=(0, 150), xlabel="code width k", ylabel="variance kept (%)")
        right.set_yticks(range(0, 101, 20))
        right.set_title("What a code keeps of normal states")
        right.axhline(12.5, color="0.6", linestyle="-", linewidth=0.8, label="_12.5%")
        right.axvline(d / 8, color="0.6", linestyle="-", linewidth=0.8, label="_d/8")
        right.plot(
            [0, self.widest],
            [0, 100 * self.widest / d],
            color=BLACK,
            linestyle=":",
            linewidth=1.4,
            label="k/d",
        )
        (pca,) = right.plot([], [], color=BLUE, linestyle="-", label="PCA: the bound for affine decoders")
        (units,) = right.plot([], [], color=RED, linestyle="--", label="units of the chosen kind")
        (dots,) = right.plot([], [], "o", color=BLACK, markersize=6, label="_here")
        right.legend(loc="upper left", fontsize=8)
        return {"spectrum": spectrum, "cut": cut, "pca": pca, "units": units, "dots": dots}

    def update(self, artists, state):
        """Move the spectrum, the curves and the dots."""
        k, widths = state["k"], np.arange(1, self.widest + 1)
        artists["spectrum"].set_data(
            np.arange(1, len(state["spectrum"]) + 1), state["spectrum"].clamp(min=1e-7)
        )
        artists["cut"].set_data([k, k], [1e-6, 1])
        artists["pca"].set_data(widths, 100 * state["pca"])
        artists["units"].set_data(widths, 100 * state["units"])
        artists["dots"].set_data([k, k], [100 * state["pca"][k - 1], 100 * state["units"][k - 1]])

    def words(self, state):
        """Say what both codes keep and why."""
        k, unit, d = state["k"], state["unit"], len(state["spectrum"])
        pca, kept = state["pca"][k - 1], state["units"][k - 1]
        best, units, keep = ("direction keeps", "1 unit", "keeps")
        if k > 1:
            best, units, keep = f"{k} directions keep", f"{k} units", "keep"
        if state["power"] == 0:
            first = f"Isotropic: any {best} k/d = {pca:.1%}"
        else:
            first = f"The best {best} {pca:.1%}, where k/d is {k / d:.1%}"
        if unit == LINEAR:
            second = f"{units} (linear) {keep} exactly that"
        elif unit == ANGLE:
            of = "the angle of 2 directions" if k == 1 else f"the angles of {2 * k} directions"
            bound = (
                "more than any affine decoder can"
                if kept > pca
                else "less, since here pairs are not worth it"
            )
            second = f"{units} with {of} {keep} {kept:.1%}, {bound}"
        else:
            second = (
                f"{units} ({unit}, bias {state['bias']:g}) {keep} {state['share']:.1%} of that, {kept:.1%}"
            )
        return f"{first}; {second}. To keep 90% takes {state['needed']} of {d} components."


# Predictions


def relu_prediction() -> Prediction:
    """Ask what a ReLU in the code does to the 12.5%."""
    return Prediction(
        "27.P1",
        "An isotropic normal vector of 1024 dimensions goes into 128 units, ReLU of projections on orthonormal "
        "directions, with biases 0. The best affine decoder reads the code. Without the ReLU it keeps 12.5% of the "
        "variance. What does it keep now?",
        choices={
            "12.5%, as before": "A ReLU forgets how far below zero its input was, and no decoder can restore that.",
            "about 9%": "Each unit keeps corr(u, max(u, 0))² = (1/4) / (1/2 - 1/(2π)) = 0.7335 of its direction: 9.17% in "
            "all. Above zero the unit tells everything, below it only the sign.",
            "6.25%": "Half of the inputs become 0, and half of the variance lies there. But the decoder knows "
            "that a silent unit means a negative number and puts a negative constant in its place: 9.17% is kept.",
        },
        answer="about 9%",
        reveal=plot_units,
    )


def depth_prediction() -> Prediction:
    """Ask whether a deeper encoder can keep more than PCA."""
    return Prediction(
        "27.P2",
        f"Three autoencoders with a code of {WIDTH} units are trained on the model's sentence states: encoders with one, "
        "two and three sigmoid layers, each with one affine decoder layer. PCA with as many components is computed on the "
        "same rows. Which keep more of their variance than PCA?",
        choices={
            "The two deep ones": "A deep encoder can bend, but its decoder still writes on a flat subspace with "
            f"{WIDTH} dimensions, and PCA has the best of those.",
            "Only the deepest one": "More layers change which points of the decoder's subspace are reached, not the "
            "subspace's dimension. PCA is the best one for these rows.",
            "None of them": f"Reconstructions lie in an affine subspace with {WIDTH} dimensions whatever the encoder is, "
            "and no such subspace is closer to the rows than that of PCA.",
        },
        answer="None of them",
        reveal=plot_depths,
    )


# Exercises


def _uniform(generator: torch.Generator, low: float, high: float, digits: int = 2) -> float:
    return round(low + (high - low) * float(torch.rand((), generator=generator)), digits)


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64).round(decimals=1)


def _parameters(inputs: Mapping, answer) -> bool:
    sizes = ((1024, 512), (512, 128), (128, 1024))
    layers = [torch.nn.Linear(a, b, device="meta") for a, b in sizes]
    return float(answer) == sum(p.numel() for layer in layers for p in layer.parameters())


_PARAMETERS = Exercise(
    id="27.1",
    title="How large is the stack",
    kind="value",
    difficulty=1,
    minutes=4,
    prompt="A stacked autoencoder has two encoder layers, $1024 \\to 512 \\to 128$, and one affine decoder layer from the "
    "code straight back to 1024. Every layer has a weight matrix and a bias. How many parameters are there in all?",
    draw=lambda generator: {"seed": int(torch.randint(1000, (), generator=generator))},
    reference=722560,
    properties=(Property("A network 1024-512-128-1024 built layer by layer has another number of them.", _parameters),),
    hints=(
        "A layer from n to m numbers has a matrix with m rows and n columns, and one bias for each output.",
        "There are three layers: 1024 to 512, 512 to 128, and 128 to 1024.",
        "A layer from n to m has nm + m parameters. Add the three.",
    ),
    mistakes=(
        Mistake("one layer", 263296, "That is the pair 1024-128-1024 of the notes, which has one encoder layer and is no "
                "stack. Here a layer of 512 units stands between."),
        Mistake("no biases", 720896, "You counted the matrices only. Every layer also has one bias for each output."),
        Mistake("mirrored decoder", 1181824, "You gave the decoder two layers, 128 to 512 to 1024. Here it has one, from "
                "128 straight to 1024."),
        Mistake("tied decoder", 591488, "You let the decoder use the encoder's matrices and counted only its bias. Here it "
                "has a matrix of its own."),
    ),
)  # fmt: skip


def components_for(variances, share):
    """Sort, add up, and count how many partial sums fall short."""
    kept = variances.sort(descending=True).values.cumsum(dim=0)
    return int((kept < share * kept[-1]).sum()) + 1


_SHARES = (0.373, 0.531, 0.617, 0.733, 0.829, 0.911)  # times a whole number below 1000 never whole: no ties


def _draw_spectrum(generator: torch.Generator) -> dict:
    if torch.rand((), generator=generator) < 0.5:  # reached exactly, in numbers without rounding
        variances = torch.tensor([8.0, 4.0, 2.0, 2.0], dtype=torch.float64)
        order = torch.randperm(4, generator=generator)
        return {"variances": variances[order], "share": (0.5, 0.75)[int(order[0]) % 2]}
    n = int(torch.randint(3, 7, (), generator=generator))
    return {
        "variances": torch.randint(1, 41, (n,), generator=generator).double(),
        "share": _SHARES[int(torch.randint(len(_SHARES), (), generator=generator))],
    }


def _is_smallest(inputs: Mapping, k) -> bool:
    values = sorted(inputs["variances"].tolist(), reverse=True)
    k, wanted = int(k), inputs["share"] * sum(values)
    return 1 <= k <= len(values) and sum(values[:k]) >= wanted > sum(values[: k - 1])


def _count(values: Tensor, share: float) -> int:
    kept = values.cumsum(dim=0)
    return int((kept < share * kept[-1]).sum()) + 1


_THRESHOLD = Exercise(
    id="27.2",
    title="How many components keep a share",
    kind="function",
    difficulty=1,
    minutes=8,
    prompt="Write `components_for(variances, share)`: the smallest number of principal components that together keep at "
    "least the share `share` of the total variance. `variances` is a float64 tensor of their variances in no particular "
    "order, `share` lies between 0 and 1; return a whole number.",
    draw=_draw_spectrum,
    reference=components_for,
    properties=(
        Property("That many of the largest variances should reach the share, and one fewer should not.", _is_smallest),
    ),
    hints=(
        "Which components would you keep first, and does the order of the tensor say so?",
        "Sort in decreasing order and take the partial sums with cumsum.",
        "Count the partial sums that are still below share times the total. The next one is the first that is not.",
    ),
    mistakes=(
        Mistake("unsorted", _count, "You took the variances in the order given. The inequality of the notes needs them "
                "sorted in decreasing order, or a large one at the end is missed."),
        Mistake("smallest first", lambda v, s: _count(v.sort().values, s),
                "You sorted in increasing order: that keeps the weakest directions first."),
        Mistake("more than the share", lambda v, s: components_for(v, s * (1 + 1e-9)),
                "You asked for more than the share. At least the share means that reaching it exactly is enough."),
        Mistake("one too few", lambda v, s: components_for(v, s) - 1,
                "That is the largest number that falls short of the share. One component more is needed."),
        Mistake("isotropic rule", lambda v, s: math.ceil(s * len(v)),
                "You used k = ceil(share · D), which is right when all variances are equal. These are not."),
        Mistake("standard deviations", lambda v, s: _count(v.sqrt().sort(descending=True).values, s),
                "You added square roots. Variances add up over orthogonal directions, standard deviations do not."),
    ),
)  # fmt: skip


def variance_kept(x, code):
    """Least squares with an intercept, then one minus the share that is missing."""
    with_ones = torch.cat([code, torch.ones_like(code[:, :1])], dim=1)
    decoded = with_ones @ torch.linalg.lstsq(with_ones, x).solution
    return 1 - (x - decoded).square().sum() / (x - x.mean(dim=0)).square().sum()


def _draw_rows(generator: torch.Generator) -> dict:
    k = int(torch.randint(1, 3, (), generator=generator))
    code = _normal(generator, 9, k) + 2
    noise = _normal(generator, 9, 3) * torch.tensor([0.2, 1.0, 2.0], dtype=torch.float64)
    return {"x": code @ _normal(generator, k, 3) + noise + 1, "code": code}


def _residual(x: Tensor, code: Tensor) -> Tensor:
    return x - code @ torch.linalg.lstsq(code, x).solution


def _with_ones(code: Tensor) -> Tensor:
    return torch.cat([code, torch.ones_like(code[:, :1])], dim=1)


def _spread(x: Tensor) -> Tensor:
    return (x - x.mean(dim=0)).square()


_KEPT = Exercise(
    id="27.3",
    title="What a code keeps",
    kind="function",
    difficulty=2,
    minutes=12,
    prompt="Write `variance_kept(x, code)`: the share $R$ of the variance of the rows of `x` that the *best affine* decoder "
    "$\\hat x = Az + b$ recovers from the rows $z$ of `code`. `x` has shape `(rows, d)` and `code` `(rows, k)`, both "
    "float64; return a number or a tensor without dimensions. `torch.linalg.lstsq(M, x).solution` gives the $W$ that "
    "minimises $\\lVert MW - x\\rVert^2$.",
    draw=_draw_rows,
    reference=variance_kept,
    properties=(
        Property(
            "It should equal the share of the centred rows that the centred code's columns span.",
            lambda inputs, share: abs(float(share) - kept_by_code(**inputs)) <= 1e-8,
        ),
    ),
    hints=(
        "An affine map is a linear one of a code that has one more unit, which is always 1.",
        "Find the reconstruction by least squares, then compare the squared error with the variance.",
        "The denominator sums the squares of x minus its mean over the rows, over all dimensions together.",
    ),
    mistakes=(
        Mistake("no intercept", lambda x, z: 1 - _residual(x, z).square().sum() / _spread(x).sum(),
                "Your decoder is linear, not affine: it has no b. Append a column of ones to the code."),
        Mistake("variance about zero", lambda x, z: 1 - _residual(x, _with_ones(z)).square().sum() / x.square().sum(),
                "You divided by the sum of squares of x itself. Variance is about the mean: subtract it first, or a "
                "large mean makes any code look good."),
        Mistake("what is missing", lambda x, z: _residual(x, _with_ones(z)).square().sum() / _spread(x).sum(),
                "That is the share that is lost. The share that is kept is 1 minus it."),
        Mistake("mean over dimensions",
                lambda x, z: (1 - _residual(x, _with_ones(z)).square().sum(0) / _spread(x).sum(0)).mean(),
                "You averaged the shares of the dimensions. Add up errors and variances over the dimensions first: a "
                "dimension with little variance should count little."),
    ),
)  # fmt: skip


def _valid(c: Mapping) -> bool:
    return 0 < c["rho"] < 1 and 0 < c["epsilon"] < 1 and 0 <= c["rho_hat"] <= 1


def _in_band(c: Mapping) -> bool:
    return abs(c["rho_hat"] - c["rho"]) <= c["epsilon"] + 1e-9


def _below(c: Mapping) -> bool:
    return c["rho_hat"] <= c["rho"]


_STRICTER = Exercise(
    id="27.4",
    title="More strictly?",
    kind="flaw",
    difficulty=2,
    minutes=5,
    prompt="The notes ask for $|\\hat\\rho - \\rho| \\le \\epsilon$ \"or more strictly\" $\\hat\\rho \\le \\rho$. If the "
    "second were stricter, it would imply the first. Give a counterexample: a dictionary with the numbers `rho` and "
    "`epsilon`, both strictly between 0 and 1, and `rho_hat`, from 0 to 1, for which the second holds and the "
    "first does not.",
    draw=lambda generator: {"seed": int(torch.randint(1000, (), generator=generator))},
    reference={"rho": 0.3, "epsilon": 0.1, "rho_hat": 0.05},
    properties=(
        Property("Take rho and epsilon strictly between 0 and 1, and rho_hat from 0 to 1.", lambda i, c: _valid(c)),
        Property(
            "For your numbers the second inequality does not hold alone.",
            lambda i, c: _valid(c) and _below(c) and not _in_band(c),
        ),
    ),
    hints=(
        "The first inequality bounds the mean activation on two sides, the second on one.",
        "On which side of the target does the second inequality allow everything?",
        "Think of a unit that is almost never active, and of a target that is further away from it than epsilon.",
    ),
    mistakes=(
        Mistake("both hold", {"rho": 0.3, "epsilon": 0.1, "rho_hat": 0.25},
                "Here both inequalities hold, so this does not tell them apart. Go further below the target.",
                lambda i, c: _valid(c) and _below(c) and _in_band(c)),
        Mistake("the other way", {"rho": 0.3, "epsilon": 0.1, "rho_hat": 0.35},
                "Here the first holds and the second does not. That is what a stricter second condition would look like; "
                "find the opposite.",
                lambda i, c: _valid(c) and not _below(c) and _in_band(c)),
        Mistake("neither holds", {"rho": 0.3, "epsilon": 0.1, "rho_hat": 0.9},
                "Here neither inequality holds: the unit is too active for both.",
                lambda i, c: _valid(c) and not _below(c) and not _in_band(c)),
        Mistake("outside the range", {"rho": 0.3, "epsilon": 0.1, "rho_hat": -0.5},
                "One of your numbers lies outside its range: rho and epsilon strictly between 0 and 1, rho_hat from 0 to 1.",
                lambda i, c: not _valid(c)),
    ),
)  # fmt: skip


def relu_kept(bias):
    """Squared correlation of a standard normal u with max(u + bias, 0)."""
    cdf = math.erfc(-bias / math.sqrt(2)) / 2
    density = math.exp(-(bias**2) / 2) / math.sqrt(2 * math.pi)
    mean = bias * cdf + density
    second = (1 + bias**2) * cdf + bias * density
    return cdf**2 / (second - mean**2)


def _relu_wrong(combine: Callable) -> Callable:
    """Return a wrong share, as a function of Phi(b), E r, E r^2 and b."""

    def share(bias):
        cdf = math.erfc(-bias / math.sqrt(2)) / 2
        density = math.exp(-(bias**2) / 2) / math.sqrt(2 * math.pi)
        return combine(cdf, bias * cdf + density, (1 + bias**2) * cdf + bias * density, bias)

    return share


_RELU = Exercise(
    id="27.5",
    title="A ReLU unit with a bias",
    kind="function",
    difficulty=3,
    minutes=18,
    prompt="Write `relu_kept(bias)`: the share of the variance of $u \\sim N(0, 1)$ that the best affine decoder recovers "
    "from the unit $r = \\max(u + b, 0)$. With $\\Phi$ and $\\varphi$ the distribution function and the density of "
    "$N(0, 1)$, $E\\,r = b\\,\\Phi(b) + \\varphi(b)$ and $E\\,r^2 = (1 + b^2)\\,\\Phi(b) + b\\,\\varphi(b)$. `bias` is a "
    "number between -2 and 3; return a number. `math.erfc(-b / math.sqrt(2)) / 2` is $\\Phi(b)$.",
    draw=lambda generator: {"bias": _uniform(generator, -2.0, 3.0)},
    reference=relu_kept,
    properties=(
        Property(
            "It should equal the squared correlation of u and r, integrated numerically.",
            lambda inputs, share: abs(
                float(share) - unit_share(lambda u: torch.relu(u + inputs["bias"]))
            ) <= 1e-5,
        ),
    ),
    hints=(
        "The best affine decoder of one number from another keeps the squared correlation of the two.",
        "You need Cov(u, r) and Var r. For the covariance, E u f(u) = E f′(u) for a standard normal u.",
        "The derivative of max(u + b, 0) is 1 where u > -b and 0 elsewhere. Its expectation is a probability.",
    ),
    mistakes=(
        Mistake("second moment", _relu_wrong(lambda cdf, mean, second, b: cdf**2 / second),
                "You divided by E r². The variance is E r² minus the square of the mean: the decoder has an intercept."),
        Mistake("covariance not squared", _relu_wrong(lambda cdf, mean, second, b: cdf / (second - mean**2)),
                "You divided Cov by Var r, which is the decoder's slope. The share kept is Cov² / Var r."),
        Mistake("correlation not squared", lambda b: relu_kept(b) ** 0.5,
                "That is the correlation of u and r. The share of the variance is its square."),
        Mistake("bias with the wrong sign", lambda b: relu_kept(-b),
                "That is the share at the opposite bias. A larger bias makes the unit more linear, so it keeps more."),
        Mistake("without the bias", lambda b: 0.25 / (0.5 - 0.5 / math.pi),
                "You gave the share at bias 0. With another bias another part of the inputs is cut off."),
        Mistake("how often it fires", _relu_wrong(lambda cdf, mean, second, b: cdf),
                "That is how often the unit is active. A silent unit still says that u is below -b, and the decoder uses "
                "that."),
    ),
)  # fmt: skip

EXERCISES = {e.id: e for e in (_PARAMETERS, _THRESHOLD, _KEPT, _STRICTER, _RELU)}

FIGURES = {
    "question": plot_question,
    "units": plot_units,
    "angle": plot_angle,
    "depths": plot_depths,
    "distribution": plot_distribution,
    "explorer": lambda: CodeExplorer().strip(),
}
