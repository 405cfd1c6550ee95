"""Figures, explorers and predictions of lesson 14, recurrent networks."""

import math
from collections.abc import Mapping

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor, nn

from course_lib.architectures.recurrent import power_norms
from course_lib.lessons.recurrent_networks.contents import lesson
from course_lib.lessons.recurrent_networks.experiment import (
    BATCH,
    ENOUGH,
    FAR,
    KINDS,
    NEAR,
    SYMBOLS,
    WIDTH,
    Recall,
    recall_batches,
)
from course_lib.measured import measured, quote
from course_lib.teaching import Choice, Explorer, Slider, lines, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, ORANGE, PURPLE, RED

# What the closing experiment has stored, see benchmarks/memory_start.py

RATES = (0.0015, 0.005, 0.015, 0.05)
FACTORS = (1.0, 1.4, 1.73, 2.1, 2.5, 3.5)
STEPS, EARLY = 600, 200
ARMS = {f"tanh, factor {factor:g}": f"tanh, W × {factor:g}" for factor in FACTORS} | {kind: kind for kind in KINDS[1:]}
ARMS["tanh, factor 1"] = "tanh"
UNCHANGED = ("tanh, factor 1", "LSTM", "GRU")
FIVE = (*UNCHANGED, "tanh, factor 1.4", "tanh, orthogonal")


def learned_at(arm: str, rate: float) -> list[int]:
    """Return the step at which each stored run had learned, 0 where it never did."""
    return measured("memory_start", f"{arm}, rate {rate:g}")["learned at"]


def learned(arm: str, rate: float, steps: int = STEPS) -> int:
    """Return how many of the stored runs had learned within so many steps."""
    return sum(0 < step <= steps for step in learned_at(arm, rate))


def best_rate(arm: str) -> float:
    """Return the rate with which the most runs learned; among equals, the one whose runs needed the fewest steps."""
    return max(RATES, key=lambda rate: (learned(arm, rate), -sum(learned_at(arm, rate))))


# Both ways through a network that is not trained yet


def input_gradients(net: Recall, distance: int = FAR) -> Tensor:
    """Return the mean length of the loss's gradient at the input 0, 1, ..., `distance` steps back, first network."""
    x, symbols = _sequences(net, distance)
    x.requires_grad_()
    loss = nn.functional.cross_entropy(net(x).flatten(0, 1), symbols.flatten())
    (gradient,) = torch.autograd.grad(loss, x)
    return (gradient[:, 0].norm(dim=2).mean(1) * BATCH).flip(0)


def traces(net: Recall, distance: int = FAR) -> Tensor:
    """Return how far another first symbol moves the state 0, 1, ..., `distance` steps later: mean length, first network."""
    x, symbols = _sequences(net, distance)
    other = x.clone()
    other[0] = nn.functional.one_hot((symbols + 1) % SYMBOLS, WIDTH)
    with torch.no_grad():
        return (net.states(x) - net.states(other))[:, 0].norm(dim=2).mean(1)


def _sequences(net: Recall, distance: int) -> tuple[Tensor, Tensor]:
    networks = len(net.w_h)
    x, symbols = recall_batches(distance, [torch.Generator().manual_seed(0) for _ in range(networks)])
    return x.to(net.w_h.dtype), symbols


# Figures


def _question_example() -> dict[str, np.ndarray]:
    steps = np.arange(200)
    return {f"{NEAR} steps back": 2.1 * np.exp(-steps / 40), f"{FAR} steps back": 2.08 + 0 * steps}


@lesson.figure(
    "one network, trained on two distances",
    "training step",
    "cross-entropy (nats)",
    size=(5.8, 3.2),
    ylim=(0, 2.6),
    xlim=(0, 200),
    legend=None,
    example=_question_example,
)
def plot_question(axes, losses: Mapping[str, np.ndarray]):
    """Draw the losses of one network on two distances, and the loss of guessing."""
    curves = lines(axes, None, losses)
    for curve, place in zip(curves, ((95, 0.75), (95, 1.75)), strict=True):
        axes.text(*place, curve.get_label(), color=curve.get_color())
    axes.axhline(math.log(SYMBOLS), color=BLACK, linewidth=0.8, linestyle=":")
    axes.text(3, 2.3, "guessing: log 8", fontsize=9)
    ends = ", ".join(
        f"{name} it ends {'below 0.5' if np.mean(loss[-20:]) < 0.5 else 'where it began'}"
        for name, loss in losses.items()
    )
    return f"Loss of a tanh network that has to name the first symbol of a sequence: {ends}, at the loss of guessing."


@lesson.figure(
    "five stored runs each, 200 steps",
    "accuracy",
    "network",
    size=(6.2, 2.9),
    legend=None,
    xlim=(-0.03, 1.05),
    ylim=(4.6, -0.6),
)
def plot_who(axes):
    """Draw the accuracy of every stored run of five networks after 200 steps at the rate of the page."""
    said = []
    for place, arm in enumerate(FIVE):
        values = measured("memory_start", f"{arm}, rate 0.005")["accuracy at 200"]
        jitter = np.linspace(-0.16, 0.16, len(values))
        axes.plot(values, place + jitter, "o", color=BLUE, alpha=0.7, markersize=6)
        said.append(f"{learned(arm, 0.005, EARLY)} of {ARMS[arm]}")
    axes.set_yticks(range(len(FIVE)), [ARMS[arm] for arm in FIVE])
    axes.axvline(1 / SYMBOLS, color=BLACK, linewidth=0.8, linestyle=":")
    axes.axvline(ENOUGH, color=BLACK, linewidth=0.8, linestyle="--")
    axes.text(1 / SYMBOLS + 0.01, 2.62, "guessing", fontsize=9)
    return (
        f"One dot for each run. The number of the five runs that named 90% of the symbols (dashed): {'; '.join(said)}."
    )


@lesson.figure(size=(8.2, 3.7), bare=True, legend=None, xlim=(-0.4, 4.7), ylim=(-0.45, 2.6))
def plot_unrolled(axes):
    """Draw a network of three steps, with a copy of the weight at each of them."""
    box = {"ha": "center", "va": "center", "fontsize": 13}
    arrow = {"arrowstyle": "-|>", "color": BLACK, "shrinkA": 15, "shrinkB": 15}
    back = {"arrowstyle": "-|>", "color": RED, "linestyle": "--", "shrinkA": 3, "shrinkB": 3}
    for t in range(4):
        axes.text(t, 1, f"$h_{t}$", bbox={"boxstyle": "circle", "facecolor": "white", "edgecolor": BLACK}, **box)
        if t:
            axes.annotate("", (t, 1), (t - 1, 1), arrowprops=arrow)
            axes.annotate("", (t, 1), (t, 0.02), arrowprops=arrow)
            axes.text(t, -0.12, f"$x_{t}$", **box)
            # The copy of this step: the gradient turns off into it.
            axes.text(t - 0.5, 2.3, f"$W^{{({t})}}$", color=BLUE, **box)
            axes.plot([t - 0.5, t - 0.5], [1.0, 2.08], "-", color=BLUE, linewidth=1)
            axes.annotate("", (t - 0.42, 2.08), (t - 0.12, 1.3), arrowprops=back)
    axes.annotate("", (4.2, 1), (3, 1), arrowprops=arrow)
    axes.text(4.2, 1, "$L$", **box)
    for t in range(1, 4):
        curve = {**back, "connectionstyle": "arc3,rad=-0.35", "shrinkA": 14, "shrinkB": 14}
        axes.annotate("", (t, 0.92), (t + (1.2 if t == 3 else 1), 0.92), arrowprops=curve)
    axes.text(4.1, 1.75, "dashed: the gradient, back\nand into each copy", color=RED, fontsize=10, ha="center")
    return (
        "Three steps, each with a copy of the weight, W(1), W(2), W(3). Dashed, the gradient: back from the loss through "
        "the states, and at each state into the copy that made it. Each path is taken once; in the sum 3w the path "
        "through h1 is counted twice."
    )


@lesson.figure(
    "untrained tanh networks, W times a factor",
    "distance k (steps)",
    "length",
    size=(6.6, 3.9),
    yscale="log",
    xlim=(-1, FAR + 7),
    ylim=(1e-13, 1e4),
    legend=None,
)
def plot_both_ways(axes):
    """Draw gradient back and trace forward by distance for four factors."""
    k, ends = np.arange(FAR + 1), []
    for factor, color in ((1.0, RED), (1.4, ORANGE), (2.1, BLUE), (3.5, PURPLE)):
        net = Recall("tanh", factor=factor).double()
        back, forward = input_gradients(net).numpy(), traces(net).numpy()
        axes.plot(k, back, "-", color=color)
        axes.plot(k, forward, "--", color=color)
        axes.text(FAR + 0.8, math.sqrt(back[-1] * forward[-1]), f"× {factor:g}", color=color, va="center")
        ends.append(f"{factor:g}: {back[-1]:.0e}, {forward[-1]:.0e}")
    axes.text(0, 2e-11, "solid: gradient, k steps back\ndashed: trace, k steps later", fontsize=9.5)
    return (
        "Gradient and trace fall together for the smaller factors. "
        f"At distance {FAR}, by factor, gradient and trace: {'; '.join(ends)}."
    )


HUMP = torch.tensor([[0.5, 10.0], [0.0, 0.5]], dtype=torch.float64)


@lesson.figure(
    "W with rows (0.5, 10) and (0, 0.5)",
    "distance k (steps back)",
    "factor on the gradient",
    yscale="log",
    ylim=(1e-7, 1e5),
    legend="lower left",
    xticks=range(0, 21, 5),
    size=(5.8, 3.6),
)
def plot_hump(axes):
    """Draw the norm of the powers of the example, and the powers of its eigenvalue and of its singular value."""
    norms = power_norms(HUMP, 20).numpy()
    k = np.arange(21)
    curves = {
        "largest factor, ‖Wᵏ‖": norms,
        "spectral radius, 0.5ᵏ": 0.5**k,
        "singular value, 10.02ᵏ": norms[1] ** k,
    }
    lines(axes, k, curves)
    axes.axhline(1, color=BLACK, linewidth=0.8, linestyle=":")
    return (
        "Largest factor on a gradient against the distance, logarithmic. It jumps to 10 after one and two steps, is 7.5, "
        "3.1 and 0.2 after three, five and ten, and then falls like k times a power of 0.5. It lies between the powers of "
        "the spectral radius 0.5 and those of the singular value 10.02."
    )


def start_weights(units: int, kind: str) -> Tensor:
    """Return recurrent weights as PyTorch draws them, those times the square root of 3, or orthogonal ones."""
    generator = torch.Generator().manual_seed(11)
    if kind == "orthogonal":
        return torch.linalg.qr(torch.randn(units, units, generator=generator, dtype=torch.float64)).Q
    drawn = (2 * torch.rand(units, units, generator=generator, dtype=torch.float64) - 1) / units**0.5
    return drawn * 3**0.5 if kind == "times 1.73" else drawn


@lesson.figure(
    ["as PyTorch draws it", "the same, times 1.73", "orthogonal"],
    "real part",
    "imaginary part",
    grid=(1, 3),
    size=(8.6, 3.2),
    legend=None,
    aspect="equal",
    xlim=(-1.25, 1.25),
    ylim=(-1.25, 1.25),
)
def plot_eigenvalues(*axes):
    """Draw the eigenvalues of three random matrices of 128 units."""
    circle = np.exp(2j * np.pi * np.linspace(0, 1, 200))
    radii = []
    for one, kind in zip(axes, ("PyTorch", "times 1.73", "orthogonal"), strict=True):
        found = torch.linalg.eigvals(start_weights(128, kind)).numpy()
        one.plot(circle.real, circle.imag, color=BLACK, linewidth=0.8)
        one.plot(found.real, found.imag, ".", color=BLUE, markersize=4)
        radii.append(float(np.abs(found).max()))
    return (
        f"The eigenvalues of three matrices for 128 units, and the unit circle. Their radii are {radii[0]:.2f} (for "
        f"many units 0.577), {radii[1]:.2f} and {radii[2]:.2f}."
    )


@lesson.figure(
    "when each of five runs had learned, at the best of four rates",
    "training step",
    "network",
    size=(7.4, 4.6),
    legend=None,
    xlim=(0, 720),
    ylim=(10.6, -0.6),
)
def plot_learned(axes):
    """Draw for each arm the step at which each run had learned, at the rate with which the most runs did."""
    never = 675
    for place, arm in enumerate(ARMS):
        steps = np.array(sorted(learned_at(arm, best_rate(arm))))
        steps = np.where(steps == 0, never, steps)
        rows = place + np.linspace(-0.22, 0.22, len(steps))
        color = RED if arm in UNCHANGED else BLUE
        axes.plot(steps, rows, "x" if arm in UNCHANGED else "o", color=color, markersize=5, alpha=0.8)
    axes.axvline(640, color=BLACK, linewidth=0.8)
    axes.axvline(EARLY, color=BLACK, linewidth=0.8, linestyle=":")
    axes.set_xticks([0, 200, 400, 600, never], ["0", "200", "400", "600", "never"])
    axes.set_yticks(range(len(ARMS)), list(ARMS.values()))
    counts = "; ".join(f"{learned(arm, best_rate(arm))} of {ARMS[arm]}" for arm in ARMS)
    return f"Crosses: starts as PyTorch draws them. Of five runs, so many learned within 600 steps: {counts}."


# Where the name of each point stands, as an offset in points and its side
REACH_NAMES = {
    "tanh, factor 1": (8, 0, "left"), "tanh, factor 1.4": (-2, 8, "center"), "tanh, factor 1.73": (4, -14, "center"),
    "tanh, factor 2.1": (-8, -3, "right"), "tanh, factor 2.5": (0, 8, "center"), "tanh, factor 3.5": (0, -14, "center"),
    "tanh, orthogonal": (-2, 8, "center"), "LSTM": (8, -3, "left"), "LSTM, forget bias 4": (8, -3, "left"),
    "GRU": (8, -3, "left"), "GRU, keep bias 4": (4, -16, "center"),
}  # fmt: skip


@lesson.figure(
    "five stored runs each, 600 steps, best of four rates",
    "reach before training: gradient 40 steps back / 0 steps back",
    "runs that learned",
    xscale="log",
    size=(7.4, 3.8),
    legend=None,
    xlim=(3e-12, 3e4),
    ylim=(-0.4, 5.7),
)
def plot_reach(axes):
    """Draw how many runs of each arm learned against how far its gradient reaches before training."""
    found = {}
    for arm, (x, y, side) in REACH_NAMES.items():
        kind, _, factor = arm.partition(", factor ")
        back = input_gradients(Recall(kind, factor=float(factor or 1)).double())
        found[arm] = float(back[FAR] / back[0]), learned(arm, best_rate(arm))
        unchanged = arm in UNCHANGED
        axes.plot(*found[arm], "x" if unchanged else "o", color=RED if unchanged else BLUE, markersize=7)
        axes.annotate(ARMS[arm], found[arm], xytext=(x, y), textcoords="offset points", ha=side, fontsize=9.5)
    axes.set_yticks(range(6))
    return (
        "Each point is one start; crosses: as PyTorch draws it. The GRU learns in 5 of 5 runs from a reach near 1e-8, "
        "and the LSTM, near it, in none; the three tanh networks with a reach above 0.1 learn in 3 of 5."
    )


# The explorer


@lesson.explorer
class BothWaysExplorer(Explorer):
    """An untrained network: the gradient back, and the trace of the first symbol forward."""

    title = "A network before training"
    summary = (
        "An untrained network of the kind chosen. Solid, how long the gradient of the loss is at the input k "
        "steps back. Dashed, how far another first symbol moves the state k steps later. Both are means over 24 sequences."
    )
    kind = Choice("network", "Which network is drawn; the factor acts on tanh alone", "tanh", ("tanh", "LSTM", "GRU"))
    factor = Slider(
        "factor on W", "f", "All recurrent weights of the tanh network are multiplied by it", 1.0, 0.5, 3.5, 0.1
    )
    seed = Slider("draw", "seed", "Another draw of all weights", 0, 0, 4, 1)
    together = ("kind", "factor")
    stills = ({"kind": "tanh", "factor": 1.0}, {"kind": "tanh", "factor": 2.1}, {"kind": "GRU"})
    size = (7.0, 3.6)
    strip_scale = 0.64
    dpi = 100
    layout = panels(
        "before training",
        "distance k (steps)",
        "length",
        yscale="log",
        xlim=(-1, FAR + 1),
        ylim=(1e-13, 1e3),
        legend={"loc": "lower left", "fontsize": 9},
    )

    def compute(self, *, kind, factor, seed):
        """Return both curves in float64."""
        net = Recall(kind, [seed], factor=factor if kind == "tanh" else 1.0).double()
        return {
            "back": input_gradients(net).numpy(),
            "forward": traces(net).numpy(),
            "name": f"tanh, W × {factor:g}" if kind == "tanh" else kind,
        }

    def draw(self, axes):
        """Draw two curves to be filled."""
        return {"curves": lines(axes, np.arange(FAR + 1), ["gradient, k steps back", "trace, k steps later"])}

    def update(self, artists, state):
        """Set the curves; what is below the picture stays at its edge."""
        super().update(artists, {"curves": [np.clip(state[name], 1e-20, None) for name in ("back", "forward")]})

    def words(self, state):
        """Say both lengths at three distances."""
        said = "; ".join(
            f"at {k} the gradient is {state['back'][k]:.1e}, the trace {state['forward'][k]:.1e}" for k in (0, 10, FAR)
        )
        return f"{state['name']}: {said}."


def search_table() -> Markdown:
    """Return how many of the five stored runs learned, for every arm and rate."""
    rows = [(ARMS[arm], *(str(learned(arm, rate)) for rate in RATES), f"{best_rate(arm):g}") for arm in ARMS]
    return markdown_table(("runs that learned", *(f"rate {rate:g}" for rate in RATES), "chosen"), rows)


def measured_table() -> Markdown:
    """Return what `make bench recurrent` stored of the layers against PyTorch's."""
    sizes = ("256 x 32 x 128", "1024 x 16 x 64", "1024 x 1 x 64")
    layers = {
        "`rnn` / nn.RNN": "our RNN / nn.RNN",
        "`gru` / nn.GRU": "our GRU / nn.GRU",
        "`gru`, reset before / nn.GRU": "our GRU, reset before / nn.GRU",
        "`min_gru` / nn.RNN": "minGRU / nn.RNN",
    }
    rows = [(label, *(quote("recurrent", f"{name}, {size}") for size in sizes)) for label, name in layers.items()]
    return markdown_table(("steps × batch × units", *(size.replace("x", "×") for size in sizes)), rows)


# Predictions

start_prediction = lesson.prediction(
    "14.P1",
    f"Five networks with 24 units get {EARLY} steps of Adam at the rate 0.005 on distance {FAR}, five runs each. Three "
    "start as PyTorch draws them: tanh, LSTM and GRU. Two are tanh networks whose recurrent matrix is changed before "
    "training: all entries times 1.4, or replaced by a random orthogonal matrix. Which of them name 90% of the symbols in "
    "at least three of their runs?",
    {
        "LSTM and GRU, whose gates were made for this": "Not from this start, and not in 200 steps: none of their runs "
        "does better than the plain tanh network.",
        "all but the plain tanh network": "The two gated networks stay where guessing is; the changed starts help.",
        "only the two changed tanh networks": right(
            "The start decides here: in 200 steps at this rate, the gates of LSTM and GRU do not open by themselves."
        ),
        "none": "The plain networks do not. Change the start of the tanh network, and most of its runs do.",
    },
    reveal=plot_who,
)

chain_prediction = lesson.prediction(
    "14.P2",
    "Two steps with one weight: $h_1 = w$, $h_2 = w h_1$, and the loss is $L = h_2$. Someone adds up "
    "$\\frac{\\partial L}{\\partial h_t}\\cdot\\frac{dh_t}{dw}$ over $t = 1, 2$ with the *full* derivatives of "
    "$h_1 = w$ and $h_2 = w^2$. What is the result?",
    {
        "2w, the right gradient": "The gradient of w² is 2w, but this sum is another: 1 · 2w for t = 2 holds the path "
        "through h₁ already, and w · 1 for t = 1 adds it again.",
        "3w": right("For t = 2: 1 · 2w. For t = 1: w · 1. The path through h₁ is counted twice; the gradient is 2w."),
        "w": "That is one of the two paths. Each step has a copy of the weight, and the full derivative 2w of h₂ holds "
        "both.",
    },
    reveal=plot_unrolled,
)

hump_prediction = lesson.prediction(
    "14.P3",
    "A linear network has two units and the recurrent matrix with rows $(0.5, 10)$ and $(0, 0.5)$. Both eigenvalues are "
    "0.5. A gradient of length 1 at the last state goes back step by step. How does the largest length that it can have "
    "depend on the number of steps?",
    {
        "it halves with each step": "That holds for a matrix with orthogonal eigenvectors. Here it is 10 after one and two "
        "steps and falls below 1 only after eight: the eigenvalues rule the far end alone.",
        "it rises tenfold, then falls to 0": right(
            "After one and two steps it is 10, after five 3.1, after twenty 0.0004. The eigenvalue 0.5 wins, but only in "
            "the end."
        ),
        "it grows by 10 with each step": "The largest singular value is 10.02, but what one step enlarges the next one "
        "does not: after two steps the length is 10, not 100.",
    },
    reveal=plot_hump,
)

patience_prediction = lesson.prediction(
    "14.P4",
    f"Leave the three starts of PyTorch as they are. Give them {STEPS:,} steps and, for each network, the best of four "
    f"rates, {RATES[0]:g} to {RATES[-1]:g}. Which of them name 90% of the symbols in at least three of five runs?",
    {
        "none of them": "So it looked at the rate 0.005. But at 0.05 all five runs of the GRU learn, within 200 steps.",
        "LSTM and GRU": "The GRU does, at the largest of the rates. The LSTM stays where guessing is at all four.",
        "the GRU alone": right(
            "At the rate 0.05 all five of its runs learn, within 200 steps. The LSTM learns at no rate, the tanh network "
            "in two runs of five."
        ),
        "all three": "The GRU does. The tanh network learns in two runs of five, the LSTM in none.",
    },
    reveal=plot_learned,
)

FIGURES = lesson.figures
