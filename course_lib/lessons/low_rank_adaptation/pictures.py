"""Figures, explorer and predictions of lesson 25, low-rank adaptation."""

from functools import cache
from statistics import mean

import numpy as np
import torch
from IPython.display import Markdown
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.lessons.low_rank_adaptation.contents import lesson
from course_lib.lessons.low_rank_adaptation.measurements import (
    ADAPTER_RATES,
    RANKS,
    RATES,
    SCALES,
    STEP_RANKS,
    WHOLE_RATES,
    language,
)
from course_lib.measured import measured, quote
from course_lib.representation import lora
from course_lib.representation.lora import adapter_scale
from course_lib.teaching import Choice, Explorer, Slider, lines, markdown_table, panels, right
from course_lib.teaching.layout import LOOKS
from course_lib.teaching.style import BLACK, BLUE, ORANGE

GREY, PALE = "0.55", "0.88"


def normal(*shape: int, seed: int) -> Tensor:
    """Return standard normal numbers in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# The stored run: what is learned and what is left


def stored(arm: str, rate: float, kind: str) -> list:
    """Return what `make bench low_rank_adaptation` stored of an arm at a rate, one entry a seed."""
    return measured("low_rank_adaptation", f"{arm}, rate {rate:g}, {kind}")


FAMILIES = {
    "whole model": ("whole, 0 old", WHOLE_RATES),
    "adapter": ("rank 8, 0 old", ADAPTER_RATES),
}


def draw_families(axes) -> None:
    """Draw old loss against steps for both ways of training without old sentences: a point a rate, bars for five seeds."""
    for look, marker, (name, (arm, rates)) in zip(LOOKS, "os", FAMILIES.items(), strict=False):
        steps = [mean(stored(arm, rate, "steps")) for rate in rates]
        old = [stored(arm, rate, "old") for rate in rates]
        middle = np.array([mean(one) for one in old])
        spread = [middle - [min(one) for one in old], [max(one) for one in old] - middle]
        axes.errorbar(steps, middle, yerr=spread, **look, marker=marker, markersize=6, capsize=3, label=name)


@lesson.figure(
    "What a loss of 2 on the fifth language costs the old ones",
    "steps until then",
    "loss among the old four (nats a token)",
    size=(6.8, 3.8),
    legend="upper right",
    xlim=(15, 55),
    ylim=(0, 2.8),
)
def plot_price(axes):
    """Draw the old loss against the steps until the new loss is 2, for adapter and whole model at three rates each."""
    draw_families(axes)
    axes.axhline(measured("low_rank_adaptation", "before")[1], color=BLACK, linestyle=":", label="before")
    return (
        "Loss among the old languages against the number of steps until the loss on the fifth is 2; a point for each of "
        "three rates, the slowest on the right, with the range of five seeds. Slower training costs less. At each number "
        "of steps the adapter of rank 8 costs several times as much as training the whole model."
    )


def protection() -> dict[str, tuple[str, float, str]]:
    """Return what is compared in the end: for each name the arm, its rate and which old loss."""
    thin, all_numbers = ADAPTER_RATES[1], WHOLE_RATES[1]
    return {
        "adapter": ("rank 8, 0 old", thin, "old"),
        "adapter, rank 1": ("rank 1, 0 old", thin, "old"),
        "adapter, half the step size": ("rank 8, 0 old", ADAPTER_RATES[0], "old"),
        "adapter, 1 of 16 sentences old": ("rank 8, 1 old", thin, "old"),
        "adapter, on to 1.4, turned down": ("rank 8, 0 old", thin, "turned down, old"),
        "adapter, 4 of 16 sentences old": ("rank 8, 4 old", thin, "old"),
        "whole model": ("whole, 0 old", all_numbers, "old"),
        "whole model, half the step size": ("whole, 0 old", WHOLE_RATES[0], "old"),
        "whole model, on to 1.4, moved back": ("whole, 0 old", all_numbers, "turned down, old"),
        "whole model, 4 of 16 sentences old": ("whole, 4 old", all_numbers, "old"),
    }


def protection_table() -> Markdown:
    """Return steps and old loss of all that is compared, mean and range of five seeds."""
    rows = []
    for name, (arm, rate, kind) in protection().items():
        old, steps = stored(arm, rate, kind), mean(stored(arm, rate, "steps"))
        taken = f"{steps:.0f}" if kind == "old" else f"{steps:.0f}, and more"
        rows.append((name, taken, f"{mean(old):.2f} ({min(old):.2f} to {max(old):.2f})"))
    return markdown_table(("trained to a loss of 2", "steps", "loss among the old four"), rows)


@lesson.figure(
    "All at a loss of 2 on the fifth language",
    "loss among the old four (nats a token)",
    "trained how",
    size=(7.4, 3.9),
    legend=None,
    xscale="log",
    xlim=(0.08, 4),
)
def plot_protection(axes):
    """Draw the old losses of all that is compared as rows: the five seeds and their mean."""
    rows = {name: stored(*which) for name, which in protection().items()}
    for place, (name, found) in enumerate(rows.items()):
        color, mark = (ORANGE, "s") if name.startswith("adapter") else (BLUE, "o")
        axes.plot(found, [place] * 5, mark, color=color, markersize=5, alpha=0.6, linestyle="none")
        axes.plot([mean(found)] * 2, [place - 0.3, place + 0.3], "-", color=BLACK, linewidth=2)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
    axes.set_xticks([], minor=True)
    axes.invert_yaxis()
    return (
        "Loss among the old languages of ten ways to reach a loss of 2 on the fifth, on a logarithmic axis: a mark for each "
        "of five seeds, a stroke at their mean. Of the adapters, the one trained with four old sentences of 16 is lowest, "
        "then the one that was turned down. The whole model is below the adapter in each of the four pairs."
    )


# The layer and its start


@lesson.figure(size=(8.0, 3.6), bare=True, legend=None, xlim=(0, 16), ylim=(0, 7), aspect="equal")
def plot_layer(axes):
    """Draw W as a square and the adapter as two thin bars beside it."""
    for x, y, w, h, color, name in (
        (3.2, 3.6, 3, 3, PALE, "W\n$d_{out} \\times d_{in}$\nfrozen"),
        (3.2, 1.3, 3, 0.7, BLUE, "A   $r \\times d_{in}$"),
        (9.6, 0.1, 0.7, 3, ORANGE, "B"),
    ):
        axes.add_patch(Rectangle((x, y), w, h, facecolor=color, edgecolor=BLACK))
        white = "white" if color == BLUE else BLACK
        axes.text(x + w / 2, y + h / 2, name, ha="center", va="center", color=white, fontsize=11)
    axes.text(10.55, 1.6, "$d_{out} \\times r$", va="center", fontsize=11)
    for start, end in (((1.2, 3.4), (3.0, 5.1)), ((1.2, 3.2), (3.0, 1.65)), ((6.4, 1.65), (9.4, 1.65)),
                       ((6.4, 5.1), (13.4, 3.6)), ((12.5, 1.9), (13.4, 3.0))):  # fmt: skip
        axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "linewidth": 1.6})
    axes.text(0.7, 3.3, "x", fontsize=14, ha="center", va="center")
    axes.text(7.9, 2.05, "h = A x,  r numbers", fontsize=11, ha="center", va="center")
    axes.text(14.3, 3.3, "y = W x + b + s B h", fontsize=11, ha="center", va="center")
    return (
        "The input x goes two ways: through the large frozen square W, and through the flat bar A to r numbers h and on "
        "through the upright bar B. The output is the sum y = W x + b + s B h."
    )


@lesson.figure(
    "The smallest adapter: loss $(1 - ab)^2/2$", "$a$", "$b$", size=(4.8, 4.4), legend={"loc": "lower left", "fontsize": 9},
    xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), aspect="equal",
)  # fmt: skip
def plot_saddle(axes):
    """Draw the contours of (1 - ab)^2 / 2 with three starts of gradient descent."""
    side = np.linspace(-1.6, 1.6, 161)
    a, b = np.meshgrid(side, side)
    axes.contour(a, b, (1 - a * b) ** 2 / 2, levels=[0.02, 0.1, 0.25, 0.5, 1, 2], colors=GREY, linewidths=0.9)
    axes.grid(False)
    for look, mark, (p, q), name in zip(
        LOOKS, "os", ((0.6, 0.0), (0.2, -0.15)), ("b = 0", "nearly 0, 0"), strict=False
    ):
        start, way = (p, q), []
        for _ in range(90):
            way.append((p, q))
            p, q = p + 0.1 * (1 - p * q) * q, q + 0.1 * (1 - p * q) * p
        axes.plot(*np.array(way).T, **look, label=f"from {name}")
        axes.plot(*start, mark, color=look["color"], markersize=7)
    axes.plot(0, 0, "X", color=BLACK, markersize=10, linestyle="none", label="0, 0")
    return (
        "Contours of (1 - ab)^2 / 2. The origin is a saddle: along a = b the loss falls, along a = -b it rises. A start "
        "with b = 0 alone runs to the valley ab = 1. So does the one drawn near the origin. "
        "The cross at the origin stays; starts on a = -b run into it."
    )


# Which directions of the inputs a step needs


SOURCES = ("random directions", "the weight's directions", "the gradient's directions")
SENTENCES, MOST = 64, 64


@cache
def gradients(seed: int) -> dict[str, Tensor]:
    """Return the gradient of each linear layer's weight on 64 sentences of the fifth language, before any training."""
    from course_lib.mbart.pretraining import fifth_language as fifth

    model, tokenizer, texts, _ = language()
    rng = np.random.default_rng(seed)
    rows = rng.integers(texts.n_meanings, size=SENTENCES).tolist()
    batch = fifth.draw_batch(texts, tokenizer, rows, rng, target=fifth.FIFTH)[0]
    found = lora.weight_gradients(model, lora.ALL_LINEAR, fifth.batch_loss(model, tokenizer, batch))
    return {name.removeprefix("model."): gradient for name, gradient in found.items()}


@cache
def rows_of(name: str, source: str) -> Tensor:
    """Return orthonormal rows for a layer's A, the best first: random, or right singular vectors of W or of G."""
    linears = lora.find_linears(language()[0], lora.ALL_LINEAR)
    if source == SOURCES[0]:
        d_in = linears[f"model.{name}"].in_features
        return torch.linalg.qr(normal(d_in, MOST, seed=20)).Q.T.float()
    matrix = linears[f"model.{name}"].weight.detach() if source == SOURCES[1] else gradients(0)[name]
    return torch.linalg.svd(matrix, full_matrices=False).Vh[:MOST]


@cache
def shares(name: str, source: str, seed: int) -> np.ndarray:
    """Return for ranks 1 to 64 the share of ||G||^2 that lies in the first rows, G from the sentences of that seed."""
    gradient = gradients(seed)[name]
    held = (gradient @ rows_of(name, source).T).square().sum(0).cumsum(0)
    return (held / gradient.square().sum()).double().numpy()


def all_shares(source: str, seed: int = 0) -> np.ndarray:
    """Return these shares for all 48 layers, one in each row."""
    return np.array([shares(name, source, seed) for name in gradients(0)])


@lesson.figure(
    "How much of a step fits into $r$ directions",
    "rank $r$",
    "share of $\\Vert G\\Vert^2$, median of 48 layers",
    size=(7.0, 4.4),
    legend={"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "fontsize": 9, "ncols": 2},
    xscale="log",
    ylim=(0, 1.03),
    xlim=(0.95, 68),
)
def plot_shares(axes):
    """Draw the share of the gradient against the rank: its own directions, on other sentences, weight and random."""
    at = np.arange(1, MOST + 1)
    curves = {
        SOURCES[2]: all_shares(SOURCES[2]),
        "the same, on 64 other sentences": all_shares(SOURCES[2], 1),
        SOURCES[1]: all_shares(SOURCES[1]),
        SOURCES[0]: all_shares(SOURCES[0]),
    }
    for look, (name, found) in zip(LOOKS, curves.items(), strict=False):
        axes.plot(at, np.median(found, axis=0), **look, label=name)
        if name in (SOURCES[2], SOURCES[1]):
            low, high = np.quantile(found, (0.1, 0.9), axis=0)
            axes.fill_between(at, low, high, color=look["color"], alpha=0.12)
    axes.set_xticks([1, 2, 4, 8, 16, 32, 64], [1, 2, 4, 8, 16, 32, 64])
    axes.set_xticks([], minor=True)
    return (
        "Median over 48 layers of the share of the squared gradient that lies in r directions, against the rank; the bands "
        "hold eight layers of ten. Eight of the gradient's own leading right singular vectors hold most of it, on other "
        "sentences a little less. The weight's hold far less, and random directions least."
    )


LAYERS = (
    "encoder.layers.0.self_attn.q_proj",
    "encoder.layers.0.fc1",
    "encoder.layers.2.fc2",
    "decoder.layers.0.self_attn.v_proj",
    "decoder.layers.1.encoder_attn.q_proj",
    "decoder.layers.2.fc1",
)


@lesson.explorer
class RowsExplorer(Explorer):
    """The gradient of one layer of course-mbart, and the share of it that the rows of an adapter can use."""

    title = "How much of a step fits into r directions?"
    summary = (
        "Left: singular values of the gradient of one layer on 64 sentences of the fifth language, relative to the first. "
        "Right: share of the squared gradient that lies in the first r directions, against r, with the chosen r marked; for "
        "the 64 sentences and for 64 others."
    )
    rank = Slider("directions r", "r", "How many orthonormal rows A has", 8, 1, MOST, 1)
    source = Choice("directions", "Random, or leading right singular vectors of W or G", SOURCES[0], SOURCES)
    layer = Choice("layer", "One of the 48 linear layers", LAYERS[4], LAYERS)
    stills = ({}, {"source": SOURCES[1]}, {"source": SOURCES[2]})
    size = (9.0, 3.8)
    together = ("rank", "source")
    layout = panels(
        ["Singular values of $G$", "Share of $\\Vert G\\Vert^2$ in these directions"],
        ["number", "directions $r$"],
        ["relative to the first", "share"],
        grid=(1, 2),
        legend=[None, {"loc": "upper left", "fontsize": 9}],
        yscale=["log", "linear"],
        xlim=[(0, 65), (0, 65)],
        ylim=[(2e-3, 1.5), (0, 1.6)],
        yticks=[None, [0, 0.2, 0.4, 0.6, 0.8, 1]],
    )

    def compute(self, *, rank, source, layer):
        """Return the singular values and the shares on both sets of sentences."""
        sigma = _spectrum(layer)
        own, other = (shares(layer, source, seed) for seed in (0, 1))
        at = np.arange(1, MOST + 1)
        return {
            "sigma": (at, np.clip(sigma / sigma[0], 1e-6, None)),
            "own": (at, own),
            "other": (at, other),
            "chosen": ([rank, rank], [own[rank - 1], other[rank - 1]]),
            "said": (layer, source, rank, float(own[rank - 1]), float(other[rank - 1])),
        }

    def draw(self, left, right_axes):
        """Draw empty curves."""
        (sigma,) = left.plot([], [], ".", color=BLACK, markersize=5)
        own, other = lines(right_axes, [], ["these 64 sentences", "64 other sentences"])
        (chosen,) = right_axes.plot([], [], "D", color=BLACK, fillstyle="none", markersize=9, label="chosen r")
        return {"sigma": sigma, "own": own, "other": other, "chosen": chosen}

    def words(self, state):
        """Say the shares at the chosen rank."""
        layer, source, rank, own, other = state["said"]
        return (
            f"{layer}: {source}, r = {rank}, hold {own:.1%} of the squared gradient on these 64 sentences and "
            f"{other:.1%} on 64 others."
        )


@cache
def _spectrum(name: str) -> np.ndarray:
    return torch.linalg.svdvals(gradients(0)[name])[:MOST].double().numpy()


# One step, and some


def first_change(rank: int, scaling: str, optimiser: str, *, rows: int, seed: int = 0, d: int = 256) -> float:
    """Return the root mean square change of the outputs of some rows after one step on them of size 0.01 from B = 0."""
    low = (2 * torch.rand(rank, d, generator=torch.Generator().manual_seed(seed)).double() - 1) / d**0.5
    x, grad = normal(rows, d, seed=seed + 1), normal(rows, d, seed=seed + 2)
    scale = adapter_scale(16, rank, scaling)
    d_up = scale * grad.T @ (x @ low.T) / rows
    up = -0.01 * (d_up if optimiser == "SGD" else d_up.sign())
    return float((scale * x @ low.T @ up.T).square().mean().sqrt())


CHANGE_RANKS = (1, 2, 4, 8, 16, 32, 64)


@cache
def changes(optimiser: str, scaling: str, rows: int) -> np.ndarray:
    """Return the change after one step for each of CHANGE_RANKS, the mean of 12 draws, over that of rank 1."""
    runs = [[first_change(r, scaling, optimiser, rows=rows, seed=100 * s) for r in CHANGE_RANKS] for s in range(12)]
    mean = np.mean(runs, axis=0)
    return mean / mean[0]


NAMES = {"alpha/r": "$s = \\alpha/r$", "alpha/sqrt(r)": "$s = \\alpha/\\sqrt{r}$"}


def moved(optimiser: str, rule: str) -> np.ndarray:
    """Return the stored change after one step, a row for each seed and a column for each of STEP_RANKS."""
    return np.array([measured("adapter_scale", f"one step, {optimiser}, {rule}, rank {r}") for r in STEP_RANKS]).T


@lesson.figure(
    ["gradient descent", "Adam"],
    "rank $r$",
    "change / change at rank 4",
    size=(8.8, 3.6),
    grid=(1, 2),
    xscale="log",
    yscale="log",
    xlim=(3.4, 76),
    ylim=(0.04, 12),
    legend="upper left",
)
def plot_steps(*both):
    """Draw by how much one step moves the last states of course-mbart against the rank, five seeds."""
    for axes, optimiser in zip(both, ("SGD", "Adam"), strict=True):
        for look, mark, (rule, name) in zip(LOOKS, "os", NAMES.items(), strict=False):
            found = moved(optimiser, rule)
            found = found / found[:, [STEP_RANKS.index(4)]]
            axes.plot(STEP_RANKS, found.mean(0), **look, marker=mark, label=name)
            axes.fill_between(STEP_RANKS, found.min(0), found.max(0), color=look["color"], alpha=0.2)
        axes.set_xticks(STEP_RANKS, STEP_RANKS)
        axes.set_xticks([], minor=True)
    return (
        "By how much one step moves the last states of the model, relative to rank 4, against the rank; mean and range of "
        "five seeds, both axes logarithmic. Gradient descent: alpha/sqrt(r) is level on average and alpha/r falls like 1/r. "
        "Adam: alpha/r is nearly level and alpha/sqrt(r) rises like the root of r."
    )


def trained(rule: str, rank: int) -> np.ndarray:
    """Return the stored losses after 16 steps, a row for each seed and a column for each rate."""
    return np.array([measured("adapter_scale", f"{rule}, rank {rank}, rate {rate:g}") for rate in RATES]).T


@lesson.figure(
    ["$s = \\alpha/r$", "$s = \\alpha/\\sqrt{r}$"],
    "step size of Adam",
    "loss on the fifth language",
    size=(8.8, 3.6),
    grid=(1, 2),
    xscale="log",
    legend="upper right",
    xlim=(0.0025, 0.012),
    ylim=(0, 6),
)
def plot_rates(*both):
    """Draw the loss after 16 steps against Adam's step size, ranks 2 and 32 under both rules, five seeds."""
    for axes, rule in zip(both, SCALES, strict=True):
        for look, mark, rank in zip(LOOKS, "os", RANKS, strict=False):
            found = trained(rule, rank)
            axes.plot(RATES, found.mean(0), **look, marker=mark, label=f"rank {rank}")
            axes.fill_between(RATES, found.min(0), found.max(0), color=look["color"], alpha=0.2)
        axes.set_xticks(RATES, [f"{rate:g}" for rate in RATES])
        axes.set_xticks([], minor=True)
    return (
        "Loss on the fifth language after 16 steps of Adam against the step size, for ranks 2 and 32; mean and range of "
        "five seeds. Left, with alpha/r. Right, with alpha/sqrt(r)."
    )


# For the appendix and the quiz: a small problem


D, ALPHA, STEPS = 12, 4, 60
SPECTRUM = torch.tensor([4.0, 3.0, 2.0, 1.0] + [0.2] * 8, dtype=torch.float64)
INITS = {"zero B": "zero_b", "gradient SVD": "gradient_svd", "both zero": "both_zero"}
LOG_STEPS = np.round(np.arange(-3.0, 0.01, 0.125), 3)


def target() -> Tensor:
    """Return the change of a weight that the small problem asks for: 4 leading directions and a tail."""
    u, v = (torch.linalg.qr(normal(D, D, seed=seed)).Q for seed in (1, 2))
    return (u * SPECTRUM) @ v.T


@cache
def small_runs(init: str, scaling: str) -> np.ndarray:
    """Return relative losses of gradient descent on ||s B A - T||^2 / 2, (ranks 1 to D, step sizes, steps + 1)."""
    wanted = target()
    each = [adapter_scale(ALPHA, r, scaling) for r in range(1, D + 1)]
    scale = torch.tensor(each, dtype=torch.float64)[:, None, None, None]
    used = (torch.arange(D) < torch.arange(1, D + 1)[:, None]).double()[:, None, :, None]  # (ranks, 1, rank, 1)
    rows = {
        "zero_b": (2 * torch.rand(D, D, generator=torch.Generator().manual_seed(3)).double() - 1) / D**0.5,
        "gradient_svd": torch.linalg.svd(wanted).Vh / 3**0.5,
        "both_zero": torch.zeros(D, D).double(),
    }[init]
    low = (rows * used).expand(D, len(LOG_STEPS), D, D).clone()
    up, step = torch.zeros_like(low), torch.from_numpy(10.0**LOG_STEPS)[:, None, None]
    losses = []
    for _ in range(STEPS + 1):
        gap = scale * up @ low - wanted
        losses.append(gap.square().sum(dim=(-1, -2)))
        d_low, d_up = scale * up.mT @ gap, scale * gap @ low.mT
        low, up = low - step * d_low.clamp(-1e3, 1e3), up - step * d_up.clamp(-1e3, 1e3)
    return np.clip(np.nan_to_num((torch.stack(losses, dim=-1) / wanted.square().sum()).numpy(), nan=1e6), 0, 1e6)


def measured_table() -> Markdown:
    """Return what `make bench lora` stored of a layer's time against PEFT's."""
    layers = {
        "the frozen layer alone": "floor (frozen W)",
        "`LoRALinear`": "LoRALinear",
        "the formed weight, (25.1)": "merged",
        "`LoRALinear`, DoRA": "DoRA",
        "PEFT, DoRA": "PEFT's DoRA",
    }
    settings = [f"{dtype}, {rows} rows" for dtype in ("fp32", "bf16") for rows in (512, 4096)]
    rows = [
        (label, *(quote("lora", f"{setting}: {name} / PEFT", ".2f") for setting in settings))
        for label, name in layers.items()
    ]
    return markdown_table(("", "float32, 512 rows", "4,096 rows", "bfloat16, 512 rows", "4,096 rows"), rows)


# Predictions

ask_old = lesson.prediction(
    "25.P1",
    "Before, the old languages had a loss of 0.004. As a comparison the *whole* model was trained instead, all 6.6 million "
    "numbers, at a rate that takes as many steps to the same loss of 2 on the fifth language. Its loss among the old "
    "languages rises to about 0.4. The adapter has changed no old number. What is the old loss while the adapter is on?",
    {
        "0.004, as before": "What is frozen is W. The adapter's output is added for every sentence, old ones included.",
        "About 0.03": "Fair to expect, since only 4% as many numbers train. But they act on every sentence.",
        "About 0.4": "It is more, in all five seeds.",
        "More than 0.6": right("Frozen is W, not the function: the adapter's output is added for every sentence."),
    },
    reveal=plot_price,
)

ask_step = lesson.prediction(
    "25.P2",
    "The rank goes from 4 to 64, with $s = \\alpha/r$ and the same step size. $B$ starts at zero. How far does the *first* "
    "step move the model's outputs, compared with rank 4? Answer for plain gradient descent, and for Adam, whose first step "
    "is the step size times the sign of the gradient.",
    {
        "A sixteenth, and a sixteenth": "Right for gradient descent. In Adam's step only the sign of the gradient counts, "
        "so a small s in it changes nothing.",
        "A sixteenth, and the same": right(
            "Gradient descent has s twice, in the gradient and in the output, and 16 times as many rows: 16/16². Adam has "
            "s once."
        ),
        "The same, and a sixteenth": "It is the other way round: Adam's step does not feel the scale inside the gradient.",
        "A quarter, and the same": "A quarter would need s once and the root of r. Gradient descent has s twice, and the "
        "rows add up.",
    },
    reveal=plot_steps,
)

ask_protection = lesson.prediction(
    "25.P3",
    "The adapter of rank 8 again, trained to the same loss of 2 on the fifth language. Which change lowers the loss among "
    "the old languages most?",
    {
        "Rank 1 instead of 8": "It is worse, 1.9 instead of 1.4, and takes more steps.",
        "Half the step size": "It needs 1.5 times as many steps, and lowers the old loss from 1.4 to 1.1 only.",
        "One of the 16 sentences in each step is an old one": "It helps, from 1.4 to 0.9. Four of 16 help far more.",
        "Train on to 1.4, then turn the scale s down until the loss is 2 again": right(
            "From 1.4 to 0.5, without any old sentence."
        ),
    },
    reveal=plot_protection,
)

FIGURES = lesson.figures
