"""Experiments, figures, explorer and predictions of lesson 27, stacked_autoencoder.

The model, and with it transformers, is loaded where it is needed: the module itself stays light.
"""

import math
from functools import cache

import matplotlib
import numpy as np
import torch
from torch import Tensor

from course_lib.lessons.stacked_autoencoder.contents import lesson
from course_lib.measured import measured
from course_lib.representation.normality import moment_scores
from course_lib.representation.variance import ANGLE_SHARE, components_needed, relu_share, unit_share
from course_lib.sae.metrics import explained_variance, pca_curve
from course_lib.sae.stacked import StackedAutoencoder
from course_lib.teaching import Choice, Explorer, Slider, lines, panels
from course_lib.teaching.style import BLACK, BLUE, RED

WIDTH = 32  # of the code: an eighth of the shipped model's 256 dimensions, as 128 is of 1024


@cache
def sentence_states(n_sentences: int = 3000, *, seed: int = 27, trained: bool = True) -> Tensor:
    """Return one row a sentence: the mean of the shipped model's last encoder states over its tokens, float64.

    The sentences have distinct meanings and take the languages in turn; they are read once a process. Not `trained`:
    the same model with the random weights that transformers starts it from.
    """
    from course_lib.language.corpus import generate
    from course_lib.mbart.activations import Site, extract
    from course_lib.mbart.model import load

    model, tokenizer = load("course-mbart")
    if not trained:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = type(model)(model.config).eval()
    # The output of the stack; stops before the decoder, which `pooled_states` also reads.
    site = Site("encoder")
    sentences = generate(n_sentences, seed=seed)
    return extract(model, tokenizer, sentences, (site,), pool="mean", progress=False)[site].values.double()


def labelled_states(n_sentences: int, *, split: str, side: str = "decoder") -> tuple[Tensor, Tensor]:
    """Return one row a sentence, of the model's decoder or encoder, and the number of each sentence's language."""
    from course_lib.language.corpus import LANGUAGES, generate
    from course_lib.mbart.activations import Site, extract
    from course_lib.mbart.model import load

    site, sentences = Site(side), generate(n_sentences, seed=28, split=split)
    states = extract(*load("course-mbart"), sentences, (site,), pool="mean", progress=False)[site].values
    return states.float(), torch.tensor([LANGUAGES.index(sentence.language) for sentence in sentences])


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


def three_codes(states: Tensor, k: int = WIDTH) -> dict[str, Tensor]:
    """Return the linear code of normal rows, their ReLU code, and the linear code of the states."""
    normal = principal_codes(normal_twin(states), k)
    return {
        "normal rows, linear": normal,
        "normal rows, ReLU": torch.relu(normal),
        "model's states, linear": principal_codes(states, k),
    }


def training_curve(states: Tensor, widths: tuple[int, ...], *, steps: int, every: int, seed: int = 0) -> Tensor:
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


@lesson.figure(
    "An eighth of the directions is not an eighth of the variance",
    "code width k (best directions)",
    "variance kept (%)",
    legend="lower right",
    ylim=(0, 104),
)
def plot_question(axes):
    """Draw the variance that k principal components keep: isotropic, the model's states, untrained ones."""
    curve, untrained = (100 * pca_curve(sentence_states(trained=trained)) for trained in (True, False))
    d = len(curve)
    k = np.arange(1, d + 1)
    lines(
        axes,
        k,
        {
            "sentence states of course-mbart": curve,
            "isotropic: the same in every direction": 100 * k / d,
            "the same sentences, before training": untrained,
        },
    )
    axes.axvline(WIDTH, color=BLACK, linestyle=":", linewidth=1.2, label=f"k = {WIDTH} = d/8")
    axes.plot([WIDTH], [12.5], "o", color=RED, markersize=7, label="the notes' 12.5%")
    axes.set_xlim(0, d)
    return (
        f"The variance that the best k of {d} directions keep, against k. For isotropic data it is a straight line that "
        f"passes 12.5% at k = {WIDTH}. For the sentence states of the shipped model the curve rises steeply and is "
        f"above 60% at k = {WIDTH}. Those of the same model before its training lie between the two."
    )


@lesson.figure(
    ["A ReLU unit", "A sigmoid unit"],
    ["bias b", "gain g"],
    "share of the variance kept",
    grid=(1, 2),
    legend=["lower right", "lower left"],
    xscale=["linear", "log"],
    ylim=(0, 1.05),
)
def plot_units(left, right):
    """Draw what one ReLU and one sigmoid unit keep of a standard normal number."""
    biases, gains = np.linspace(-2, 3.5, 111).tolist(), np.logspace(-1, 2, 61).tolist()
    lines(left, biases, {"max(u + b, 0)": [relu_share(b) for b in biases]})
    left.plot([0], [relu_share(0.0)], "o", color=RED, markersize=7, label="b = 0: 0.7335")
    shares = [unit_share(lambda u, g=g: torch.sigmoid(g * u)) for g in gains]
    lines(right, gains, {"$1/(1 + e^{-gu})$": shares})
    right.axhline(2 / math.pi, color=BLACK, linestyle=":", linewidth=1.2, label="a step: $2/\\pi$ = 0.637")
    return (
        "Two panels: the share of a standard normal number's variance that an affine decoder recovers from one unit. "
        "A ReLU unit keeps less than 0.2 at bias -2, 0.7335 at bias 0 and nearly everything at bias 3. A sigmoid unit "
        "keeps nearly everything at a small gain, where it is almost linear, and falls towards 0.637, the share of a "
        "step, as the gain grows."
    )


@lesson.figure(
    ["a coordinate: keeps 1/2", "an angle: keeps $\\pi/4$ = 0.785"],
    "$x_1$",
    "$x_2$",
    grid=(1, 2),
    legend={"loc": "lower left", "fontsize": 8},
    xlim=(-3.4, 3.4),
    ylim=(-3.4, 3.4),
    aspect="equal",
)
def plot_angle(left, right, *, points: int = 250, seed: int = 2):
    """Draw two codes of one number for a plane: a coordinate with a linear decoder, an angle with a circle."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(points, 2, generator=generator, dtype=torch.float64)
    line, circle = x * torch.tensor([1.0, 0.0]), math.sqrt(math.pi / 2) * x / x.norm(dim=1, keepdim=True)
    for axes, decoded in ((left, line), (right, circle)):
        moves = torch.stack([x, decoded])
        axes.plot(*moves.unbind(-1), color="0.75", linewidth=0.7, linestyle="-", label=["_move"] * points)
        axes.plot(*x.T, ".", color=BLUE, markersize=4, label="points")
        axes.plot(*decoded.T, "x", color=RED, markersize=4, label="reconstructions")
    return (
        f"{points} normal points in the plane and their reconstructions from one number. Left, from the first "
        "coordinate: all lie on a line, and a half of the variance is kept. Right, from the angle: all lie on a circle of "
        "radius 1.25, closer to their points, and 0.785 of the variance is kept."
    )


DEPTHS = ((WIDTH,), (128, WIDTH), (128, 64, WIDTH))


@lesson.figure(
    "No depth of the encoder passes PCA while the decoder is affine",
    "training step",
    "share of the variance kept",
    legend="lower right",
    ylim=(-0.2, 1),
)
def plot_depths(axes, *, steps: int = 400, every: int = 25):
    """Draw the training of three stacked autoencoders of one code width, and the bound of PCA."""
    states = sentence_states()
    bound = float(pca_curve(states)[WIDTH - 1])
    axes.axhline(bound, color=BLACK, linestyle="-", linewidth=1.2, label=f"PCA with {WIDTH} components")
    names = ["-".join(str(n) for n in (states.shape[1], *widths)) for widths in DEPTHS]
    kept = [training_curve(states, widths, steps=steps, every=every).clamp(min=-0.2) for widths in DEPTHS]
    curves = {f"encoder {name}": curve for name, curve in zip(names, kept, strict=True)}
    lines(axes, np.arange(0, steps + 1, every), curves)
    axes.set_xlim(0, steps)
    return (
        f"Share of the variance that three stacked autoencoders with {WIDTH} code units keep, while they are trained on the "
        "sentence states of the shipped model. Encoders of one, two and three layers all rise and stay below the "
        f"horizontal line, which is what PCA with {WIDTH} components keeps."
    )


BETAS, GAMMAS = (0, 0.01, 0.1, 0.3, 1, 3), (0, 0.002, 0.02, 0.2)


def aims_sweep() -> dict[str, dict[str, list[float]]]:
    """Return what `make bench stacked` stored, by side of the model.

    Mean activation and explained variance stand over `BETAS` at gamma = 0.02, the reader's share of right languages
    over `GAMMAS` at beta = 1, and the same for a reader of shuffled labels.
    """
    return {
        side: {
            what: [measured("stacked", f"{side}, beta = {b:g}, gamma = {g:g}, 800 steps: {what}") for b, g in settings]
            for what, settings in (
                ("mean activation", [(b, 0.02) for b in BETAS]),
                ("variance explained, %", [(b, 0.02) for b in BETAS]),
                ("reader right, %", [(1, g) for g in GAMMAS]),
            )
        }
        | {"shuffled": [measured("stacked", f"{side}, gamma = 0.02, shuffled labels: right, %")]}
        for side in ("encoder", "decoder")
    }


@lesson.figure(
    ["A quiet code", "What it keeps", "Its reader"],
    ["$\\beta$ ($\\gamma$ = 0.02)", "$\\beta$ ($\\gamma$ = 0.02)", "$\\gamma$ ($\\beta$ = 1)"],
    ["mean activation", "explained variance (%)", "languages right (%)"],
    grid=(1, 3),
    legend=["upper right", None, "upper right"],
    size=(10.5, 3.7),
    example=aims_sweep,
    # The room above 100% is for the legend.
    ylim=[(0, 0.62), (0, 100), (0, 150)],
    yticks=[None, None, range(0, 101, 20)],
)
def plot_aims(quiet, keeps, reader, sweep: dict[str, dict[str, list[float]]]):
    """Draw how near a stacked code comes to its aims over beta and gamma, on held-out states of either side."""
    for axes, what, ticks in (
        (quiet, "mean activation", BETAS),
        (keeps, "variance explained, %", BETAS),
        (reader, "reader right, %", GAMMAS),
    ):
        places = range(len(ticks))
        lines(axes, places, {f"{side}'s states": found[what] for side, found in sweep.items()}, marker="o")
        axes.set_xticks(places, labels=[f"{tick:g}" for tick in ticks])
    dotted = {"color": BLACK, "linestyle": ":", "linewidth": 1.2}
    quiet.axhline(0.05, label="aim: 0.05", **dotted)
    reader.axhline(25, label="chance: 25%", **dotted)
    said = "; ".join(
        f"{side}: mean activation {found['mean activation'][1]:.2f} at beta = 0.01 and {found['mean activation'][4]:.2f} at "
        f"beta = 1, explained variance {found['variance explained, %'][1]:.0f}% and "
        f"{found['variance explained, %'][4]:.0f}%, language right in {found['reader right, %'][0]:.0f}% for gamma = 0, "
        f"{found['reader right, %'][2]:.0f}% for gamma = 0.02, {found['shuffled'][0]:.0f}% with shuffled labels"
        for side, found in sweep.items()
    )
    return f"Held-out sentences, medians of two seeds. Three panels, each over a weight of the combined loss. {said}."


@lesson.figure(
    ["The least normal unit", "All units"],
    ["quantile of N(0, 1)", "skewness (standard errors)"],
    ["quantile of the unit", "excess kurtosis (standard errors)"],
    grid=(1, 2),
    legend=[{"loc": "upper left", "fontsize": 8}, None],
    xlim=[(-3.6, 3.6), None],
    ylim=[(-5, 7), None],
)
def plot_distribution(quantiles, scores):
    """Draw quantiles of one code unit against the normal's, and the scores of all units, for three codes."""
    for place, (name, code) in enumerate(three_codes(sentence_states()).items()):
        skewness, kurtosis = moment_scores(code)
        unit = code[:, int(kurtosis.abs().argmax())]
        ranks = (torch.arange(len(unit), dtype=torch.float64) + 0.5) / len(unit)
        z = (unit - unit.mean()) / unit.std()
        lines(quantiles, torch.special.ndtri(ranks), {name: z.sort().values}, first=place)
        marks = {"marker": "os^"[place], "markersize": 4, "linestyle": "none"}
        lines(scores, skewness, {name: kurtosis}, first=place, **marks)
    dotted = {"color": BLACK, "linestyle": ":", "linewidth": 1.2}
    quantiles.plot([-3.6, 3.6], [-3.6, 3.6], label="normal", **dotted)
    scores.plot([-4, 4, 4, -4, -4], [-4, -4, 4, 4, -4], label="±4 errors", **dotted)
    scores.set_xscale("symlog", linthresh=4)
    scores.set_yscale("symlog", linthresh=4)
    scores.set(xlim=(-1000, 1000), ylim=(-1000, 1000))
    for axis in (scores.xaxis, scores.yaxis):
        axis.set_ticks([-100, -4, 0, 4, 100], labels=["-100", "-4", "0", "4", "100"])
        axis.set_minor_locator(matplotlib.ticker.NullLocator())
    return (
        f"Two panels about three codes of {WIDTH} units. Left, for the unit of each code with the most unusual tails, its "
        "quantiles against those of a normal distribution: the linear code of normal rows follows the diagonal, the "
        "ReLU code of the same rows is flat at its left end, and the linear code of the model's states leaves the "
        "diagonal. Right, skewness and kurtosis of all units in standard errors: those of the first code lie in the "
        "square of ±4, those of the second far outside, and many of the third too."
    )


ANGLE, LINEAR, RELU, SIGMOID = "angle, circle decoder", "linear", "ReLU", "sigmoid"


@lesson.explorer
class CodeExplorer(Explorer):
    """Normal states with a spectrum between isotropic and the model's, and what codes of k units keep of them."""

    title = "What a code of k units keeps"
    summary = (
        "Normal states with 256 dimensions, whose variances are the t-th powers of those of the model's sentence states: "
        "t = 0 is isotropic, t = 1 has the model's own. Left: the variance of each principal component, as a share "
        "of the total, and the width of the code. Right: the variance kept against the code width, by "
        "PCA, by units of the chosen kind on the same directions, and k/d; the grey lines are 12.5% and d/8."
    )
    power = Slider(
        "spectrum's power",
        "t",
        "0 gives every direction the same variance, 1 the variances of the model's states",
        1.0,
        0.0,
        1.5,
        0.05,
    )
    k = Slider("code width", "k", "Number of code units, of 256 dimensions", 32, 1, 128, 1)
    unit = Choice(
        "unit",
        "What a code unit computes of its direction; an angle takes two directions",
        RELU,
        (LINEAR, RELU, SIGMOID, ANGLE),
    )
    bias = Slider(
        "bias",
        "b",
        "Added to a direction of variance 1 before the ReLU, or before the sigmoid of gain 4",
        0.0,
        -2.0,
        3.0,
        0.1,
    )
    together = ("power", "k")
    size = (9.4, 4.0)
    widest = 128
    layout = panels(
        ["Spectrum", "What a code keeps of normal states"],
        ["component i", "code width k"],
        ["share of the variance", "variance kept (%)"],
        grid=(1, 2),
        legend=[{"loc": "upper right", "fontsize": 8}, {"loc": "upper left", "fontsize": 8}],
        xlim=[None, (0, widest)],
        # The room above 100% is for the legend: below it, some setting has a curve everywhere.
        ylim=[(1e-6, 1), (0, 150)],
        yscale=["log", "linear"],
        yticks=[None, range(0, 101, 20)],
    )

    def __init__(self):
        states = sentence_states()
        self._variances = torch.linalg.eigvalsh(torch.cov(states.T)).flip(0).clamp(min=0)
        super().__init__()

    def compute(self, *, power, k, unit, bias):
        """Return the spectrum, the two curves in percent and the share that a unit keeps of its directions."""
        spectrum = (self._variances / self._variances.sum()) ** power
        spectrum = spectrum / spectrum.sum()
        kept = 100 * spectrum.cumsum(dim=0)
        share = {
            LINEAR: lambda: 1.0,
            RELU: lambda: relu_share(bias),
            SIGMOID: lambda: unit_share(lambda u: torch.sigmoid(4 * (u + bias))),
            ANGLE: lambda: ANGLE_SHARE,
        }[unit]()
        pca = kept[: self.widest]
        units = share * (kept[1::2] if unit == ANGLE else pca)
        return {
            "spectrum": spectrum,
            "cut": ([k, k], [1e-6, 1]),
            "pca": pca,
            "units": units,
            "dots": ([k, k], [pca[k - 1], units[k - 1]]),
            "share": share,
            "needed": components_needed(spectrum, 0.9),
            "power": power,
            "k": k,
            "unit": unit,
            "bias": bias,
        }

    def draw(self, left, right):
        """Draw the spectrum with the width of the code, and what the codes keep."""
        d = len(self._variances)
        left.set_xlim(1, d)
        (spectrum,) = lines(left, np.arange(1, d + 1), ["$\\lambda_i^t$, scaled to sum 1"])
        dotted = {"color": BLACK, "linestyle": ":", "linewidth": 1.4}
        (cut,) = left.plot([], [], label="code width k", **dotted)
        grey = {"color": "0.6", "linestyle": "-", "linewidth": 0.8}
        right.axhline(12.5, label="_12.5%", **grey)
        right.axvline(d / 8, label="_d/8", **grey)
        right.plot([0, self.widest], [0, 100 * self.widest / d], label="k/d", **dotted)
        names = ["PCA: the bound for affine decoders", "units of the chosen kind"]
        pca, units = lines(right, np.arange(1, self.widest + 1), names)
        (dots,) = right.plot([], [], "o", color=BLACK, markersize=6, label="_here")
        return {"spectrum": spectrum, "cut": cut, "pca": pca, "units": units, "dots": dots}

    def words(self, state):
        """Say what both codes keep and why."""
        k, unit, d = state["k"], state["unit"], len(state["spectrum"])
        pca, kept = state["pca"][k - 1], state["units"][k - 1]
        best, units, keep = ("direction keeps", "1 unit", "keeps")
        if k > 1:
            best, units, keep = f"{k} directions keep", f"{k} units", "keep"
        if state["power"] == 0:
            first = f"Isotropic: any {best} k/d = {pca:.1f}%"
        else:
            first = f"The best {best} {pca:.1f}%, where k/d is {k / d:.1%}"
        if unit == LINEAR:
            second = f"{units} (linear) {keep} exactly that"
        elif unit == ANGLE:
            of = "the angle of 2 directions" if k == 1 else f"the angles of {2 * k} directions"
            bound = "more than any affine decoder can" if kept > pca else "less than PCA keeps"
            second = f"{units} with {of} {keep} {kept:.1f}%, {bound}"
        else:
            second = f"{units} ({unit}, bias {state['bias']:g}) {keep} {state['share']:.1%} of that, {kept:.1f}%"
        return f"{first}; {second}. To keep 90% takes {state['needed']} of {d} components."


relu_prediction = lesson.prediction(
    "27.P1",
    "An isotropic normal vector of 1024 dimensions goes into 128 units, ReLU of projections on orthonormal "
    "directions, with biases 0. The best affine decoder reads the code. Without the ReLU it keeps 12.5% of the "
    "variance. What does it keep now?",
    {
        "12.5%, as before": "A ReLU forgets how far below zero its input was, and no decoder can restore that.",
        "about 9%": "Each unit keeps corr(u, max(u, 0))² = (1/4) / (1/2 - 1/(2π)) = 0.7335 of its direction: 9.17% in "
        "all. Above zero the unit tells everything, below it only the sign.",
        "6.25%": "Half of the inputs become 0, and half of the variance lies there. But the decoder knows that a silent "
        "unit means a negative number and puts a negative constant in its place: 9.17% is kept.",
    },
    answer="about 9%",
    reveal=plot_units,
)

depth_prediction = lesson.prediction(
    "27.P2",
    f"Three autoencoders with a code of {WIDTH} units are trained on the model's sentence states: encoders with one, "
    "two and three sigmoid layers, each with one affine decoder layer. PCA with as many components is computed on the "
    "same rows. Which keep more of their variance than PCA?",
    {
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

FIGURES = lesson.figures
