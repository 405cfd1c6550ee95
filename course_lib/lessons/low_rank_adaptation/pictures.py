"""Figures, explorer and predictions of lesson 20, low-rank adaptation."""

from functools import cache

import matplotlib
import numpy as np
import torch
from IPython.display import Markdown
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.lessons.low_rank_adaptation.contents import lesson
from course_lib.lessons.low_rank_adaptation.measurements import GRID, RANKS, plan
from course_lib.measured import measured, quote
from course_lib.representation.lora import adapter_scale
from course_lib.teaching import Choice, Explorer, Slider, lines, markdown_table, panels
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, RED

GREY, PALE = "0.55", "0.88"
FULL, PER_RANK = 6_602_240, 33_792  # numbers that train: all of course-mbart, an adapter for each unit of its rank
D, ALPHA, STEPS = 12, 4, 60
SPECTRUM = torch.tensor([4.0, 3.0, 2.0, 1.0] + [0.2] * 8, dtype=torch.float64)
INITS = {"zero B": "zero_b", "gradient SVD": "gradient_svd", "both zero": "both_zero"}
LOG_STEPS = np.round(np.arange(-3.0, 0.01, 0.125), 3)


def normal(*shape: int, seed: int) -> Tensor:
    """Return standard normal numbers in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def target() -> Tensor:
    """Return the change of a weight that the small problem asks for: 4 leading directions and a tail."""
    u, v = (torch.linalg.qr(normal(D, D, seed=seed)).Q for seed in (1, 2))
    return (u * SPECTRUM) @ v.T


def floor(rank: int) -> float:
    """Return the smallest relative loss of that rank: what the left-out directions hold."""
    return float(SPECTRUM[rank:].square().sum() / SPECTRUM.square().sum())


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


# The question


def stored_runs() -> dict[str, dict[str, float]]:
    """Return what `make bench low_rank_adaptation` stored of each run: its losses, by what, where and with which step."""
    names = [f"{trained} {part} {step:g}" for trained, part, step in plan()]
    return {name: measured("low_rank_adaptation", name) for name in names}


def before_training() -> dict[str, float]:
    """Return what the model scored before any of these runs."""
    return measured("low_rank_adaptation", "before training")


def best_runs(part: str = "all") -> dict[str, tuple[float, dict]]:
    """Return for everything that was trained its best step size of the grid and what was scored there."""
    found: dict[str, tuple[float, dict]] = {}
    for name, scores in stored_runs().items():
        trained, layers, step = name.split()
        if layers == part and scores["fifth_loss"] < found.get(trained, (0.0, {"fifth_loss": 99.0}))[1]["fifth_loss"]:
            found[trained] = (float(step), scores)
    return found


@lesson.figure("Teaching a model a fifth language in 120 steps", "numbers that train", "loss (nats a token)",
               size=(7.2, 4.0), xscale="log", ylim=(0, 2))  # fmt: skip
def plot_question(axes):
    """Draw the loss on a new language against the number of parameters that train."""
    best = best_runs()
    sizes = [PER_RANK * rank for rank in RANKS]
    lines(axes, sizes, {"adapters of rank 1 to 32": [best[str(r)][1]["fifth_loss"] for r in RANKS]}, marker="o")
    axes.plot(FULL, best["full"][1]["fifth_loss"], "*", color=ORANGE, markersize=15, label="the whole model")
    return (
        "The loss on held-out sentences of a language that the model was never trained on, after 120 steps, against the "
        "number of parameters that train. The model alone has 11.1. Training all of its 6.6 million parameters brings "
        f"it to {best['full'][1]['fifth_loss']:.2f}. Adapters of rank 1 to 32, with 34 thousand to 1.1 million, reach "
        f"{best['1'][1]['fifth_loss']:.2f} to {min(best[str(r)][1]['fifth_loss'] for r in RANKS):.2f}."
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
    axes.text(14.4, 3.3, "y = W x + s B h", fontsize=11, ha="center", va="center")
    return (
        "The input x goes two ways: through the large frozen square W, and through the flat bar A to r numbers h and on "
        "through the upright bar B. The output is the sum y = W x + s B h."
    )


@lesson.figure(
    ["a small problem, rank 4", "$L = (1 - ab)^2/2$"], ["gradient step", "a"], ["loss / loss at the start", "b"],
    grid=(1, 2), legend=["upper right", None], ylim=[(0, 1.4), (-1.6, 1.6)], xlim=[(0, 60), (-1.6, 1.6)],
)  # fmt: skip
def plot_starts(left, right):
    """Draw the losses from three starts, and the saddle of one weight a and one weight b."""
    place = int(np.argmin(abs(LOG_STEPS + 1.5)))
    lines(left, None, {name: small_runs(init, "alpha/r")[3, place] for name, init in INITS.items()})
    side = np.linspace(-1.6, 1.6, 161)
    a, b = np.meshgrid(side, side)
    right.contour(a, b, (1 - a * b) ** 2 / 2, levels=[0.02, 0.1, 0.25, 0.5, 1, 2], colors=GREY, linewidths=0.9)
    right.grid(False)
    p, q, path = 0.6, 0.0, []
    for _ in range(60):
        path.append((p, q))
        p, q = p + 0.1 * (1 - p * q) * q, q + 0.1 * (1 - p * q) * p
    right.plot(*np.array(path).T, color=BLUE, linewidth=2, label="_path")
    right.plot(0.6, 0, "o", color=BLUE, markersize=8, label="_zero b")
    right.plot(0, 0, "X", color=RED, markersize=10, label="_both zero")
    return (
        "Left the loss of the small problem against gradient steps: with B = 0 and A random it falls, with A from the "
        "gradient's singular vectors it falls faster, and with both factors 0 it stays at 1 for ever. Right the contours "
        "of (1 - ab)^2 / 2: the red cross at the origin is a saddle, the blue path from a = 0.6, b = 0 leads to "
        "the valley ab = 1."
    )


# One step


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


@lesson.figure(
    ["gradient descent", "Adam: the first step is a sign"], "rank r", "change of the outputs / that of rank 1",
    grid=(1, 2), xscale="log", yscale="log", ylim=(0.002, 200), legend={"loc": "upper left", "fontsize": 9},
)  # fmt: skip
def plot_changes(*panels):
    """Draw the change of the outputs in one step against the rank, for both scales, one example or 32."""
    for axes, optimiser in zip(panels, ("SGD", "Adam"), strict=True):
        for place, (scaling, rows) in enumerate((s, n) for s in ("alpha/r", "alpha/sqrt(r)") for n in (1, 32)):
            name = f"s = {'α/r' if scaling == 'alpha/r' else 'α/√r'}, {rows} example{'s' * (rows > 1)}"
            curve = {name: changes(optimiser, scaling, rows)}
            lines(axes, CHANGE_RANKS, curve, first=place, marker="os^D"[place], markersize=4)
    return (
        "The change of a layer's outputs in the first step against the rank, both logarithmic. Left, for gradient descent "
        "on one example, alpha/r falls like 1/r and alpha/sqrt(r) stays at 1; on 32 unrelated examples both fall faster. "
        "Right, for Adam on one example, alpha/r stays at 1 and alpha/sqrt(r) grows like the root of r; on 32 unrelated "
        "examples alpha/r falls and alpha/sqrt(r) stays near 1."
    )


# course-mbart


@lesson.figure("Loss on the fifth language after 120 steps", "step size", "loss (nats a token)", size=(7.2, 4.4),
               xscale="log", yscale="log", xlim=(2.5e-4, 0.16), legend="center right")  # fmt: skip
def plot_step_sizes(axes):
    """Draw the loss against the step size, for adapters and for full training."""
    runs = stored_runs()
    curves = {}
    for name in ("full", "1", "2", "4", "8", "32"):
        steps = sorted(GRID["full" if name == "full" else "adapter"])
        label = "the whole model" if name == "full" else f"rank {name}"
        curves[label] = (steps, [runs[f"{name} all {step:g}"]["fifth_loss"] for step in steps])
    for line, mark in zip(lines(axes, None, curves), "*osD^v", strict=True):
        line.set(marker=mark, markersize=6)
    return (
        "The loss on the fifth language against the step size, both logarithmic, for full training and five ranks from 1 to "
        "32, one run each. Full training is best at 0.003, with 0.18. Ranks 1 and 2 are as good at 0.003 as at 0.01, near "
        "0.91 and 0.68; the others are best at 0.01, with 0.46 at rank 4 and near 0.38 at ranks 8 and 32. At 0.03 all "
        "adapters fail."
    )


@lesson.figure("What is learned and what is forgotten", "loss on the fifth language (nats a token)",
               "loss among the four (nats a token)", size=(7.2, 4.4), legend="upper right",
               ylim=(0, 9), xlim=(0, 2))  # fmt: skip
def plot_forgetting(axes):
    """Draw every run: its loss on the new language against its loss on the old ones."""
    runs = stored_runs()
    for label, mark, color, chosen in (
        ("the whole model", "*", ORANGE, lambda t: t == "full"), ("ranks 1, 2", "o", BLUE, lambda t: t in "12"),
        ("ranks 4, 8", "s", GREEN, lambda t: t in "48"), ("ranks 16, 32", "D", RED, lambda t: t in ("16", "32")),
    ):  # fmt: skip
        found = [s for n, s in runs.items() if chosen(n.split()[0]) and n.split()[1] == "all"]
        axes.plot([s["fifth_loss"] for s in found], [s["four_loss"] for s in found], mark, color=color, linestyle="none",
                  markersize=11 if mark == "*" else 6, label=label)  # fmt: skip
    before = before_training()["four_loss"]
    axes.axhline(before, color=GREY, linestyle=":", label="before (0.01)")
    return (
        "The loss among the four old languages against the loss on the fifth, a mark for each run below 2 (those at "
        "step size 0.03 failed). All lie far above the dotted line at 0.01, the old languages before training. Those that "
        "learn more mostly forget more. Full training at a step size of 0.001 has 0.35 on the fifth and 1.4 on the old "
        "ones; adapters that learn as much have 5 to 6."
    )


# The explorer


def measured_table() -> Markdown:
    """Return what `make bench lora` stored of a layer's time against PEFT's."""
    layers = {
        "the frozen layer alone": "floor (frozen W)",
        "`LoRALinear`": "LoRALinear",
        "the formed weight, (20.1)": "merged",
        "`LoRALinear`, DoRA": "DoRA",
        "PEFT, DoRA": "PEFT's DoRA",
    }
    settings = [f"{dtype}, {rows} rows" for dtype in ("fp32", "bf16") for rows in (512, 4096)]
    rows = [
        (label, *(quote("lora", f"{setting}: {name} / PEFT", ".2f") for setting in settings))
        for label, name in layers.items()
    ]
    return markdown_table(("", "float32, 512 rows", "4,096 rows", "bfloat16, 512 rows", "4,096 rows"), rows)


@lesson.explorer
class AdapterExplorer(Explorer):
    """Rank, step size, scale and start of an adapter: a map of the final loss and the curve at one point."""

    title = "Rank, step size and start of an adapter"
    summary = (
        "Left a map of the loss after 60 gradient steps, relative to the start, over step size and rank: dark is low, "
        "white is no progress, pink has grown. The red ring is the chosen setting. Right its loss against steps, and "
        "dotted the smallest loss that its rank allows."
    )
    init = Choice("start", "What A and B hold before the first step", "gradient SVD", tuple(INITS))
    rank = Slider("rank", "r", "Rows of A and columns of B", 4, 1, D, 1)
    log_step = Slider("log10 step size", "log η", "Power of ten of the step size", -1.5, -3.0, 0.0, 0.125)
    scaling = Choice("scale", "Factor s in front of B A, with α = 4", "α/r", ("α/r", "α/√r"))
    together = ("rank", "log_step")
    size = (9.4, 3.7)
    layout = panels(
        ["loss after 60 steps", "the chosen run"], ["log10 of the step size", "gradient step"], ["rank r", "loss / start"],
        grid=(1, 2), legend=[None, "upper right"], xlim=[(-3.0625, 0.0625), (0, 60)], ylim=[(0.5, D + 0.5), (1e-3, 40)],
        yscale=["linear", "log"],
    )  # fmt: skip

    def compute(self, *, init, rank, log_step, scaling):
        """Return the map, the chosen curve and the floor of its rank."""
        runs = small_runs(INITS[init], {"α/r": "alpha/r", "α/√r": "alpha/sqrt(r)"}[scaling])
        place = int(np.argmin(abs(LOG_STEPS - log_step)))
        curve, last = runs[rank - 1, place], runs[rank - 1, :, -1]
        best = int(np.argmin(last))
        return {
            "map": np.clip(np.log10(np.maximum(runs[..., -1], 1e-3)), -3, 0.01),
            "ring": ([LOG_STEPS[place]], [rank]),
            "curve": (np.arange(STEPS + 1), np.clip(curve, 1e-3, 100)),
            "floor": ([0, STEPS], [max(floor(rank), 1e-3)] * 2),
            "said": (
                init,
                rank,
                log_step,
                scaling,
                float(curve[-1]),
                floor(rank),
                float(LOG_STEPS[best]),
                float(last[best]),
            ),
        }

    def draw(self, left, right):
        """Draw an empty map, a ring, a curve and a floor."""
        colors = matplotlib.colormaps["Blues_r"].with_extremes(over="#f4b6c2")
        extent = (-3.0625, 0.0625, 0.5, D + 0.5)
        image = left.imshow(
            np.zeros((D, len(LOG_STEPS))), origin="lower", aspect="auto", extent=extent, cmap=colors, vmin=-3, vmax=0
        )
        left.grid(False)
        left.set_yticks(range(1, D + 1))
        look = {"markersize": 14, "markerfacecolor": "none", "markeredgecolor": RED, "markeredgewidth": 2}
        ring = left.plot([], [], "o", **look)[0]
        curve = lines(right, [], ["loss"], linewidth=2.2)[0]
        dotted = right.plot([], [], ":", color=BLACK, label="smallest loss of this rank")[0]
        return {"map": image, "ring": ring, "curve": curve, "floor": dotted}

    def words(self, state):
        """Say what this run reached, what its rank allows, and which step was best."""
        init, rank, log_step, scaling, reached, least, best, lowest = state["said"]
        start = f"Start: {init}, s = {scaling}, rank {rank}, log η = {log_step:.3f}. "
        if init == "both zero":
            return start + "Both gradients are 0: nothing moves, whatever the step size."
        verdict = "The loss has grown" if reached > 1 else f"After 60 steps {reached:.3f} of the loss is left"
        return (
            start
            + f"{verdict}; rank {rank} allows {least:.3f}. Best step of the map: log η = {best:.3f}, loss {lowest:.3f}."
        )


# Predictions

starts_prediction = lesson.prediction(
    "20.P1",
    "An adapter should change nothing before training: $BA = 0$. Somebody sets *both* factors to 0. What does gradient "
    "descent make of it?",
    {
        "It trains like any other start": "Each factor's gradient has the other one as a factor. With both at 0 both "
        "gradients are 0.",
        "It is slow at first and then catches up": "Noise would be needed to get away. Both gradients are exactly 0, "
        "and the next step starts where this one did.",
        "It never moves": "Each factor's gradient has the other one as a factor: both are exactly 0, at every step. One "
        "factor at 0 is enough to change nothing at first.",
    },
    answer="It never moves",
    reveal=plot_starts,
)

steps_prediction = lesson.prediction(
    "20.P2",
    "The fifth language again: 120 steps of Adam, adapters with s = 32/r, each rank with its own best step size. How does "
    "this step size compare with the best one for training the whole model?",
    {
        "Ten times smaller or less": "Adapters need no smaller steps. With Adam and s = α/r one step moves the model "
        "equally far at every rank, and in few directions only.",
        "At most three times as large or as small, for every rank": "0.003 for the whole model, 0.003 or 0.01 for the "
        "adapters: the scale α/r has made the ranks alike. A factor of ten, which others report, is not seen here.",
        "Ten times as large or more, for every rank": "Others report this factor for larger models and longer training. "
        "Here adapters fail at 0.03, ten times the best step of the whole model.",
        "It grows in proportion to the rank": "That would be so for plain gradient descent with s = α/r, (20.6). Adam's "
        "step does not know the size of the gradient, and the best step hardly depends on the rank.",
    },
    answer="At most three times as large or as small, for every rank",
    reveal=plot_step_sizes,
)

forgetting_prediction = lesson.prediction(
    "20.P3",
    "An adapter of rank 1 trains half a percent of the numbers, and the model itself stays frozen. Before, the loss of "
    "translations among the four old languages is 0.007. What is it with the trained adapter switched on?",
    {
        "The same: the frozen weights keep what they know": "What is frozen is W, not the function. The adapter acts on "
        "every input, also where nobody asks for the fifth language. Switched off, it leaves the model as it was.",
        "Somewhat worse, up to 0.05": "It is far more. The adapter acts on every input and was trained on no old sentence.",
        "Over a hundred times as large": "The adapter acts on every input and was trained on no old sentence. That only few "
        "numbers train protects nothing; that it can be switched off does.",
    },
    answer="Over a hundred times as large",
    reveal=plot_forgetting,
)

FIGURES = lesson.figures
