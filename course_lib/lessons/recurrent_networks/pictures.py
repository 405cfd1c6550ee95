"""Figures, explorer, predictions and the recall task of lesson 11, recurrent networks."""

import math
from collections.abc import Mapping

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor, nn

from course_lib.architectures.recurrent import gru, power_norms, rnn, spectral_radius
from course_lib.lessons.recurrent_networks.contents import lesson
from course_lib.measured import quote
from course_lib.teaching import Explorer, Slider, lines, markdown_table, panels
from course_lib.teaching.style import BLACK, BLUE, RED

# The recall task: name the first symbol, after distractors

SYMBOLS, DISTRACTORS, UNITS, BATCH = 8, 4, 24, 24
FAR = 40  # how many steps back the symbol lies
KINDS = (
    "tanh",
    "tanh, orthogonal start",
    "LSTM",
    "LSTM, forget bias 4",
    "GRU",
    "GRU, keep bias 4",
    "diagonal linear",
    "attention",
)


def recall_batch(distance: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return sequences (distance + 1, batch, 12), one-hot, and the symbol that each begins with."""
    symbols = torch.randint(SYMBOLS, (BATCH,), generator=generator)
    tokens = SYMBOLS + torch.randint(DISTRACTORS, (distance + 1, BATCH), generator=generator)
    tokens[0] = symbols
    return nn.functional.one_hot(tokens, SYMBOLS + DISTRACTORS).float(), symbols


class Recall(nn.Module):
    """A network of one of eight kinds that reads a sequence and scores the eight symbols at its end."""

    def __init__(self, kind: str, seed: int):
        super().__init__()
        width, name = SYMBOLS + DISTRACTORS, kind.split(",")[0]
        layers = {"tanh": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}
        self.name = name
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # PyTorch's layers draw their weights from the global generator
            self.read = nn.Linear(UNITS, SYMBOLS, dtype=torch.float32)
            if name in layers:
                self.core = layers[name](width, UNITS, dtype=torch.float32)
            else:
                self.key, self.value, self.query = (nn.Linear(width, UNITS, dtype=torch.float32) for _ in range(3))
            if kind.endswith("orthogonal start"):
                nn.init.orthogonal_(self.core.weight_hh_l0)
            if kind.endswith("bias 4"):  # rows of the second gate: forget in the LSTM, keep (z) in the GRU
                self.core.bias_ih_l0.data[UNITS : 2 * UNITS] = 4.0
            if name == "diagonal linear":
                self.logits = nn.Parameter(torch.full((UNITS,), 5.0, dtype=torch.float32))  # lambda = 0.993

    def forward(self, x: Tensor) -> Tensor:
        """Scores (batch, symbols) from inputs (time, batch, width)."""
        if self.name == "attention":  # the last input asks, all inputs answer
            scores = torch.einsum("bh,tbh->tb", self.query(x[-1]), self.key(x)) / UNITS**0.5
            return self.read(torch.einsum("tb,tbh->bh", scores.softmax(0), self.value(x)))
        if self.name == "diagonal linear":  # h_t = lambda * h_(t-1) + W x_t, written out
            distances = torch.arange(len(x) - 1, -1, -1, dtype=x.dtype)
            powers = torch.sigmoid(self.logits) ** distances[:, None]
            return self.read(torch.einsum("th,tbh->bh", powers, self.value(x)))
        if self.name == "LSTM":
            return self.read(self.core(x)[0][-1])
        w_x, w_h, b_x, b_h = self.core.parameters()
        return self.read((rnn(x, w_x, w_h, b_x + b_h) if self.name == "tanh" else gru(x, w_x, w_h, b_x, b_h))[-1])


def input_gradients(net: nn.Module, distance: int = FAR) -> Tensor:
    """Return the mean length of the loss's gradient at the input 0, 1, ..., `distance` steps back."""
    x, symbols = recall_batch(distance, torch.Generator().manual_seed(0))
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(net(x), symbols), x)
    return (gradient.norm(dim=2).mean(1) * BATCH).flip(0)


# Figures


def _question_example() -> dict[str, np.ndarray]:
    steps = np.arange(200)
    return {"symbol 5 steps back": 2.1 * np.exp(-steps / 40), f"symbol {FAR} steps back": 2.08 + 0 * steps}


@lesson.figure(
    "The same network, the same symbol, another distance",
    "training step",
    "cross-entropy (nats)",
    ylim=(0, 2.6),
    legend="center right",
    example=_question_example,
)
def plot_question(axes, losses: Mapping[str, np.ndarray]):
    """Draw the losses of one network on two distances, and the loss of guessing."""
    lines(axes, None, losses)
    axes.axhline(math.log(SYMBOLS), color=BLACK, linewidth=0.8, linestyle=":", label="guessing, log 8")
    ends = ", ".join(
        f"with the {name} it ends {'below 0.5' if np.mean(loss[-20:]) < 0.5 else 'where it began'}"
        for name, loss in losses.items()
    )
    return (
        "Cross-entropy against the training step for a tanh network that has to name the first symbol of a sequence, "
        f"one curve for each distance: {ends}. Guessing gives log 8, about 2.1."
    )


@lesson.figure(size=(8.8, 3.9), bare=True, legend=None, xlim=(-0.4, 5.0), ylim=(-0.35, 2.6))
def plot_unrolled(axes):
    """Draw a network of three steps, with a copy of the weight at each of them."""
    box = {"ha": "center", "va": "center", "fontsize": 12}
    arrow = {"arrowstyle": "-|>", "color": BLACK, "shrinkA": 14, "shrinkB": 14}
    back = {**arrow, "color": RED, "linestyle": "--", "connectionstyle": "arc3,rad=-0.45"}
    for t in range(4):
        axes.text(t, 1, f"$h_{t}$", bbox={"boxstyle": "circle", "facecolor": "white", "edgecolor": BLACK}, **box)
        if t:
            axes.annotate("", (t, 1), (t - 1, 1), arrowprops=arrow)
            axes.annotate("", (t - 0.5, 1.06), (t - 0.5, 2.15), arrowprops={**arrow, "shrinkB": 2})
            axes.text(t - 0.5, 2.3, f"$W^{{({t})}}$", color=BLUE, **box)
            axes.annotate("", (t, 1), (t, 0.02), arrowprops=arrow)
            axes.text(t, -0.1, f"$x_{t}$", **box)
    axes.annotate("", (4.2, 1), (3, 1), arrowprops=arrow)
    axes.text(4.2, 1, "$L$", **box)
    for t in range(1, 3):
        axes.annotate("", (t, 0.95), (t + 1, 0.95), arrowprops=back)
    axes.annotate("", (3, 0.95), (4.2, 0.95), arrowprops=back)
    said = "the gradient goes back\nthrough $W^{(3)}$, then $W^{(2)}$"
    axes.text(4.15, 0.2, said, color=RED, fontsize=9, ha="center", va="center")
    return (
        "A recurrent network unrolled over three steps: the states h0 to h3 in a row, each made of the one "
        "before and of an "
        "input, and the loss at the end. At each step stands a copy of the weights, W(1), W(2), W(3). Dashed arrows "
        "carry the gradient back from the loss through the copies W(3) and W(2); each copy collects what reaches its own "
        "step, and the gradient of W is the sum over the copies."
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
        "3.1 and 0.2 after three, five and ten, and then falls like a power of 0.5. It lies between the powers of "
        "the spectral radius 0.5 and those of the singular value 10.02."
    )


def start_weights(units: int, kind: str) -> Tensor:
    """Return recurrent weights as PyTorch draws them, of variance 1/units, or orthogonal."""
    generator = torch.Generator().manual_seed(11)
    if kind == "PyTorch":
        return (2 * torch.rand(units, units, generator=generator, dtype=torch.float64) - 1) / units**0.5
    normal = torch.randn(units, units, generator=generator, dtype=torch.float64)
    return normal / units**0.5 if kind == "variance 1/H" else torch.linalg.qr(normal).Q


@lesson.figure(
    ["PyTorch: uniform ± 1/√H", "variance 1/H", "orthogonal"],
    "real part",
    "imaginary part",
    grid=(1, 3),
    legend=None,
    aspect="equal",
    xlim=(-1.25, 1.25),
    ylim=(-1.25, 1.25),
)
def plot_eigenvalues(*axes):
    """Draw the eigenvalues of three random matrices of 128 units."""
    circle = np.exp(2j * np.pi * np.linspace(0, 1, 200))
    radii = []
    for one, kind in zip(axes, ("PyTorch", "variance 1/H", "orthogonal"), strict=True):
        found = torch.linalg.eigvals(start_weights(128, kind)).numpy()
        one.plot(circle.real, circle.imag, color=BLACK, linewidth=0.8)
        one.plot(found.real, found.imag, ".", color=BLUE, markersize=4)
        radii.append(float(np.abs(found).max()))
    return (
        "Three panels with the unit circle and the 128 eigenvalues of a random recurrent matrix. As PyTorch draws it they "
        f"fill a disc of radius {radii[0]:.2f}; with variance 1/H a disc of radius {radii[1]:.2f}; of an orthogonal "
        "matrix they lie on the unit circle."
    )


def _recall_example() -> tuple[dict, dict]:
    """Real gradients at the start, and accuracies that only show the layout."""
    return {kind: input_gradients(Recall(kind, 0)).numpy() for kind in KINDS}, {k: [0.125, 1.0] for k in KINDS}


@lesson.figure(
    ["before training: gradient by distance", "after training"],
    ["distance k (steps back)", "accuracy"],
    ["length of the gradient at the input", "network"],
    size=(11.4, 5.4),
    yscale=["log", "linear"],
    ylim=[(1e-17, 3), (7.6, -0.6)],
    xlim=[(-1, FAR + 1), (-0.03, 1.05)],
    legend=[{"loc": "lower left", "fontsize": 8}, None],
    subplots={"width_ratios": [1.25, 1]},
    grid=(1, 2),
    example=_recall_example,
)
def plot_recall(left, right, gradients: Mapping[str, np.ndarray], accuracies: Mapping[str, list[float]]):
    """Draw gradients at the start by distance, and the accuracy of every run."""
    lines(left, None, dict(list(gradients.items())[:6]))
    lines(left, None, dict(list(gradients.items())[6:]), first=0, marker="o", markersize=4, markevery=5)
    for place, values in enumerate(accuracies.values()):
        right.plot(values, [place] * len(values), "o", color=BLUE, alpha=0.6, markersize=8)
    right.axvline(1 / SYMBOLS, color=BLACK, linewidth=0.8, linestyle=":")
    right.set_yticks(range(len(accuracies)), list(accuracies))
    # No measured digits: the caption is compared, and training differs from one processor to the next.
    learned = ", ".join(kind for kind, runs in accuracies.items() if min(runs) > 0.5)
    short = ", ".join(kind for kind in gradients if gradients[kind][-1] < 1e-6)
    return (
        "Left, before training, the length of the loss's gradient at the input against the distance, logarithmic, one "
        f"curve for each of eight networks. At distance {FAR} it is below one millionth for {short}; the other curves "
        "stay above a thousandth. Right, the accuracy after training, one dot for each run; a dotted line marks guessing, "
        f"1/8. All runs name more than half of the symbols for: {learned}."
    )


# The explorer


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


@lesson.explorer
class HumpExplorer(Explorer):
    """Send a gradient back through a 2 x 2 recurrent matrix and watch its length."""

    title = "A gradient on its way back"
    summary = (
        "A network with two units. Left, one step back: the unit circle, what the step makes of it, and one "
        "gradient before "
        "and after. Right, the length of this gradient against the distance, with the largest possible length and the "
        "powers of spectral radius and singular value."
    )
    eigenvalue = Slider("eigenvalue", "λ", "Both diagonal entries of W", 0.5, 0.2, 1.1, 0.05)
    coupling = Slider("coupling", "a", "The entry of W above the diagonal", 6.0, 0.0, 10.0, 0.5)
    angle = Slider("direction", "θ", "Angle of the gradient at the last state", 60, 0, 180, 5, "degrees")
    slope = Slider(
        "slope", "s", "Slope of the nonlinearity, the same at all steps; 1 is a linear network", 1.0, 0.1, 1.0, 0.05
    )
    together = ("eigenvalue", "coupling")
    size = (9.6, 4.2)
    layout = panels(
        ["one step back", "many steps back"],
        ["first unit", "distance k (steps back)"],
        ["second unit", "length"],
        grid=(1, 2),
        legend=[{"loc": "lower right", "fontsize": 7, "handlelength": 1.2}, {"loc": "upper right", "fontsize": 8}],
        subplots={"width_ratios": [1, 1.5]},
        xlim=[(-11, 11), (0, 25)],
        ylim=[(-11, 11), (1e-6, 1e7)],
        yscale=["linear", "log"],
    )

    def compute(self, *, eigenvalue, coupling, angle, slope):
        """Return the lengths by distance, the two bounds, and one step as a picture."""
        step = slope * np.array([[eigenvalue, coupling], [0.0, eigenvalue]])
        path = [np.array([math.cos(math.radians(angle)), math.sin(math.radians(angle))])]
        for _ in range(25):
            path.append(step.T @ path[-1])
        turn = np.linspace(0, 2 * np.pi, 121)
        circle = np.stack([np.cos(turn), np.sin(turn)])
        most = power_norms(torch.from_numpy(step), 25).numpy()
        return {
            "lengths": np.linalg.norm(path, axis=1),
            "most": most,
            "radius": float(spectral_radius(torch.from_numpy(step))),
            "singular": float(most[1]),
            "ellipse": step.T @ circle,
            "vectors": path[:2],
            "angle": angle,
        }

    def draw(self, left, right):
        """Draw the circle, and curves to be filled."""
        turn = np.linspace(0, 2 * np.pi, 121)
        left.plot(np.cos(turn), np.sin(turn), color=BLACK, linewidth=0.8, label="unit circle")
        right.axhline(1, color=BLACK, linewidth=0.8, linestyle=":")
        k = np.arange(26)
        return {
            "ellipse": left.plot([], [], color=BLUE, linestyle="--", label="the circle after it")[0],
            "before": left.plot([], [], color=BLACK, linewidth=2.5, label="gradient")[0],
            "after": left.plot([], [], color=RED, linewidth=2.5, label="gradient after it")[0],
            "curves": lines(
                right, k, ["this gradient", "largest possible", "spectral radius ^ k", "singular value ^ k"]
            ),
        }

    def update(self, artists, state):
        """Set the curves; what is below the picture stays at its edge."""
        k = np.arange(26)
        curves = (state["lengths"], state["most"], state["radius"] ** k, state["singular"] ** k)
        (x, y), (u, v) = state["vectors"]
        super().update(
            artists,
            {
                "ellipse": tuple(state["ellipse"]),
                "before": ([0, x], [0, y]),
                "after": ([0, u], [0, v]),
                "curves": [np.clip(c, 1e-12, 1e30) for c in curves],
            },
        )

    def words(self, state):
        """Say how long the gradient is, and where it is longest."""
        lengths, peak = state["lengths"], int(state["lengths"].argmax())
        course = (
            f"it is longest at distance {peak}: {lengths[peak]:.3g}"
            if 0 < peak < 25
            else ("it grows up to the end of the picture" if peak else "it is never longer than at the start")
        )
        return (
            f"Spectral radius {state['radius']:.3g}, singular value {state['singular']:.3g}. A gradient at "
            f"{state['angle']} "
            f"degrees has the length {lengths[1]:.3g} one step back, {lengths[5]:.3g} after 5 and "
            f"{lengths[20]:.2g} after 20; "
            f"{course}."
        )


# Predictions

hump_prediction = lesson.prediction(
    "11.P1",
    "A linear recurrent network has two units and the recurrent matrix with rows $(0.5, 10)$ and $(0, 0.5)$. Both "
    "eigenvalues are 0.5. A gradient of length 1 at the last state goes back through the matrix, step by step. "
    "How does the "
    "largest length that it can have depend on the number of steps?",
    {
        "it halves with each step": "That holds for a matrix with orthogonal eigenvectors. Here it is 10 after one and two "
        "steps and falls below 1 only after eight: the eigenvalues rule the far end alone.",
        "it rises tenfold, then falls to 0": "After one and two steps it is 10, after five 3.1, after twenty 0.0004. The "
        "eigenvalue 0.5 wins, but only in the end.",
        "it grows by 10 with each step": "The largest singular value is 10.02, but what one step enlarges the "
        "next one does "
        "not: after two steps the length is 10, not 100.",
    },
    answer="it rises tenfold, then falls to 0",
    reveal=plot_hump,
)

chain_prediction = lesson.prediction(
    "11.P2",
    "Two steps with one weight: $h_1 = w$, $h_2 = w h_1$, and the loss is $L = h_2$. Someone adds up "
    "$\\frac{\\partial L}{\\partial h_t}\\cdot\\frac{dh_t}{dw}$ over $t = 1, 2$ with the *full* derivatives of "
    "$h_1 = w$ and "
    "$h_2 = w^2$. What is the result?",
    {
        "2w, the right gradient": "The gradient of w² is 2w, but this sum is another: 1 · 2w for t = 2 holds "
        "the path through "
        "h₁ already, and w · 1 for t = 1 adds it again.",
        "3w": "For t = 2: 1 · 2w. For t = 1: w · 1. The path through h₁ is counted twice; the gradient of w² is 2w.",
        "w": "That is one of the two paths. Each step has a copy of the weight, and the full derivative 2w of "
        "h₂ holds both.",
    },
    answer="3w",
    reveal=plot_unrolled,
)

recall_prediction = lesson.prediction(
    "11.P3",
    f"Eight networks with 24 units learn to name a symbol that lies {FAR} steps back, all with the same 200 steps of Adam. "
    "The layers begin as PyTorch draws them, unless the name says otherwise. Which ones learn it?",
    {
        "all that have gates, and attention": "LSTM and GRU as PyTorch draws them forget half of their state at each step: "
        "their gates start at 1/2. What counts is how the network starts, not that it has gates.",
        "those whose gradient starts long at that distance, gated or not": "The right panel follows the left one. An "
        "orthogonal tanh network, gates that start open, a linear network with λ near 1 and attention learn; "
        "tanh, LSTM and "
        "GRU with PyTorch's start do not within 200 steps.",
        "only attention": "Attention learns it, since it looks at all inputs directly. So do recurrent networks that carry "
        "their state on at the start.",
    },
    answer="those whose gradient starts long at that distance, gated or not",
    reveal=plot_recall,
)

FIGURES = lesson.figures
