"""Figures, explorer and predictions of lesson 12, state space models."""

import math

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from course_lib.architectures.selective import decay_mask, scan_by_doubling, scan_loop
from course_lib.architectures.state_space import (
    diagonal_kernel,
    diagonal_loop,
    discretize,
    hippo_reconstruct,
    hippo_state,
)
from course_lib.lessons.state_space_models.contents import lesson
from course_lib.measured import quote
from course_lib.teaching import Choice, Explorer, Slider, lines, markdown_table, panels
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, RED


def normal(*shape: int, seed: int) -> Tensor:
    """Return float64 normal numbers, whatever the default dtype is."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@lesson.figure(
    ["input u", "kernel K: what one unit of input leaves", "output y"],
    ["token t", "tokens later l", "token t"],
    ["uₜ", "Kₗ", "yₜ"],
    size=(11.4, 3.8),
    grid=(1, 3),
    legend=[None, None, "lower right"],
)
def plot_question(left, middle, right):
    """Draw one layer run in two ways: carried along as a state, and as one convolution."""
    u = torch.zeros(1, 64, 1, dtype=torch.float64)
    u[0, 4], u[0, 20:40] = 1.0, 0.25
    a = torch.polar(torch.tensor([[0.93]]).double(), torch.tensor([[0.35]]).double())
    c = torch.tensor([[0.5 - 0.1j]], dtype=torch.complex128)
    kernel = diagonal_kernel(a, c, 64)[0]
    left.plot(u[0, :, 0], drawstyle="steps-mid")
    middle.plot(kernel)
    lines(right, np.arange(64), {"loop, one complex number": diagonal_loop(u, a, c)[0, :, 0]})
    found = np.convolve(u[0, :, 0], kernel)[:64]
    right.plot(found, "o", markersize=3, color=ORANGE, label="convolution with K")
    right.set(ylim=(-2.0, 1.6))
    return (
        "Left, an input of 64 tokens: a single 1 at token 4 and a block of height 0.25 from token 20 to 39. "
        "Middle, the "
        "kernel: a wave that dies away within 60 tokens. Right, the output of a loop that carries one complex number "
        "as a line, and the output of one convolution of the input with the kernel as dots: the dots lie on the line."
    )


# The explorer

END = 8.0
RULES = {"Euler": "euler", "zero-order hold": "zero-order hold", "bilinear": "bilinear"}


def measured_table() -> Markdown:
    """Return what `make bench state_space` stored of the fast forms against the plain ones."""
    powers = ("two tables of powers and FFT (12.5)", "all $N\\times L$ powers by exponentials, and FFT")
    loop = "loop over tokens, autograd"
    forms = {
        powers: ("diagonal / full table of powers", ("N = 16", "N = 32", "N = 64")),
        ("selective scan in chunks (12.12)", loop): ("selective / loop over unbind", ("N = 16", "N = 64")),
        ("mambapy's scan", "the same loop"): ("mambapy / loop over unbind", ("N = 16", "N = 64")),
        ("decay in chunks (12.14)", loop): ("decay in chunks / loop", ("16 x 64", "64 x 64")),
    }
    sizes = {"16 x 64": "$d\\times d_v = 16\\times64$", "64 x 64": "$d\\times d_v = 64\\times64$"}
    rows = [
        (
            *(label if n == 0 else ("", "")),
            sizes.get(size, f"${size}$"),
            quote("state_space", f"{name}, {size}", quartiles=True),
        )
        for label, (name, measured_at) in forms.items()
        for n, size in enumerate(measured_at)
    ]
    return markdown_table(("fast form", "against", "size of the state", "time / time"), rows)


@lesson.explorer
class PoleExplorer(Explorer):
    """Turn a pole in continuous time into a step, and see where it lands and what it does."""

    title = "One pole, from continuous time to steps"
    summary = (
        "Left the unit disc: the ring marks where the pole of an exact step lies, the dot where this rule puts "
        "it. Middle "
        "the response to a short impulse, right the response to an input that is switched on at time 0: dots for "
        "the steps, a line for continuous time."
    )
    rule = Choice("rule", "How the equation in continuous time becomes a step", "zero-order hold", tuple(RULES))
    decay = Slider("decay", "α", "How fast the state fades: e^(-αs)", 0.3, 0.0, 2.0, 0.05, "1/time")
    frequency = Slider("frequency", "ω", "How fast the state turns", 2.5, 0.0, 6.0, 0.1, "rad/time")
    step = Slider("step", "Δ", "Time from one token to the next", 0.5, 0.05, 1.0, 0.05, "time")
    together = ("decay", "step")
    size = (10.4, 3.9)
    layout = panels(
        ["the step's pole a", "impulse response Kₗ/Δ", "response to a switch"],
        ["real part", "time", "time"],
        ["imaginary part", "output", "output"],
        grid=(1, 3),
        legend=[None, None, None],
        xlim=[(-1.6, 1.6), (0, END), (0, END)],
        ylim=[(-1.6, 1.6), (-1.6, 1.6), (-1.2, 2.0)],
    )

    def compute(self, *, rule, decay, frequency, step):
        """Return where the pole lies, both responses and those of continuous time."""
        pole = torch.tensor(complex(-decay, frequency), dtype=torch.complex128)
        a, b = (complex(v) for v in discretize(pole, step, method=RULES[rule]))
        count = int(END / step + 1e-9)
        powers = a ** np.arange(count + 1)
        place = step * np.arange(count)
        s = np.linspace(0, END, 201)
        exact = np.exp(complex(pole) * s)
        switched = np.concatenate([[0], np.cumsum(np.exp(complex(pole) * (s[1:] + s[:-1]) / 2) * np.diff(s))]).real
        found = np.clip((b * np.cumsum(powers[:-1])).real, -50, 50)
        at_steps = np.interp(place + step, s, switched)
        return {
            "pole": (a.real, a.imag),
            "ring": (
                math.exp(-decay * step) * math.cos(frequency * step),
                math.exp(-decay * step) * math.sin(frequency * step),
            ),
            "impulse": (place + step / 2, np.clip((b * powers[:-1]).real / step, -50, 50)),
            "impulse, exact": (s, exact.real),
            "switch": (place + step, found),
            "switch, exact": (s, switched),
            "a": a,
            "exact size": math.exp(-decay * step),
            "error": float(np.abs(found - at_steps).max()),
            "setting": (rule, decay, frequency, step),
        }

    def draw(self, left, middle, right):
        """Draw the unit circle, and lines and dots that move."""
        angle = np.linspace(0, 2 * np.pi, 121)
        left.plot(np.cos(angle), np.sin(angle), color=BLACK, linewidth=1)
        left.set_aspect("equal")
        exact = {"color": BLUE, "linewidth": 1.5}
        dots = {"marker": "o", "linestyle": "none", "markersize": 3.5, "color": RED}
        return {
            "impulse, exact": middle.plot([], [], **exact)[0],
            "switch, exact": right.plot([], [], **exact)[0],
            "ring": left.plot([], [], "o", markersize=11, fillstyle="none", color=BLUE)[0],
            "pole": left.plot([], [], "o", markersize=6, color=RED)[0],
            "impulse": middle.plot([], [], **dots)[0],
            "switch": right.plot([], [], **dots)[0],
        }

    def words(self, state):
        """Say where the pole lies and how far off the steps are."""
        a, (rule, decay, frequency, step) = state["a"], state["setting"]
        size = abs(a)
        fate = "grows" if size > 1 + 1e-9 else "keeps its size" if size > 1 - 1e-9 else "fades"
        error = state["error"]
        off = f"off by up to {error:.2f}" if error >= 0.005 else "on the line"
        return (
            f"{rule} with Δ = {step:g}, pole {0.0 - decay:g} + {frequency:g}i: a = {a.real:.3f} + "
            f"{a.imag:.3f}i, |a| = {size:.3f} "
            f"(exact {state['exact size']:.3f}): the state {fate}, and the response to a switch is "
            f"{off if error < 10 else 'far off'}."
        )


# The transform that wraps round


@lesson.figure(
    "64 tokens, 64 taps, transforms of size 64 and 128",
    "token t",
    "output yₜ",
    size=(7.6, 4.0),
    legend="lower left",
)
def plot_wrap(axes):
    """Draw the output of a product of spectra with and without zeros behind the signal."""
    u = normal(64, seed=3).numpy()
    kernel = 0.97 ** np.arange(64)
    full = np.convolve(u, kernel)[:64]
    short = np.fft.irfft(np.fft.rfft(u) * np.fft.rfft(kernel), 64)
    lines(axes, np.arange(64), {"loop, and size 128": full, "size 64": short})
    axes.plot([63], [full[63]], "o", color=GREEN, markersize=8, label="the one output that agrees")
    gap = np.abs(short - full)
    return (
        "Outputs of a slowly fading kernel of 64 taps. The transform of size 128 gives the loop's outputs. That "
        "of size "
        f"64 is off by {gap[0]:.1f} at token 0 and by {gap[:63].max():.1f} at most; the gap closes towards the "
        f"end, and "
        "only the last output agrees."
    )


# Depth and work, counted while the code runs


class Meter(TorchDispatchMode):
    """Count multiplications and additions, and the longest chain of them in which each waits for the one before.

    A product of complex numbers counts as one. A product of matrices with inner size n is n multiplications and n - 1
    additions an entry, in depth 1 + log2 n. Views, copies and joining cost nothing.
    """

    def __init__(self):
        super().__init__()
        self.work, self.depth, self._depths = 0, 0, WeakIdKeyDictionary()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run one operation and add what it costs."""
        out, name = func(*args, **(kwargs or {})), func.__name__.split(".")[0]
        tensors = [t for t in tree_leaves(args) if isinstance(t, Tensor)]
        if any(not isinstance(t, Tensor) or t.dtype == torch.bool for t in tree_leaves(out)):
            return out  # a look at the input, no arithmetic
        depth = max((self._depths.get(t, 0) for t in tensors), default=0)
        if name in ("mul", "add", "sub"):
            depth, self.work = depth + 1, self.work + out.numel()
        elif name in ("mm", "mv", "bmm", "dot"):
            n = tensors[0].shape[-1]
            depth, self.work = depth + 1 + math.ceil(math.log2(n)), self.work + out.numel() * (2 * n - 1)
        for t in tree_leaves(out):
            self._depths[t] = depth
        self.depth = max(self.depth, depth)
        return out


def fft_by_halves(x: Tensor, sign: int = -1) -> Tensor:
    """The Fourier transform by even and odd halves, for a power of 2; not scaled."""
    if x.shape[-1] == 1:
        return x
    half = x.shape[-1] // 2
    even, odd = fft_by_halves(x.unflatten(-1, (half, 2)).mT, sign).unbind(-2)
    angle = torch.linspace(0, sign * math.pi * (1 - 1 / half), half, dtype=torch.float64)
    turned = torch.polar(torch.ones_like(angle), angle) * odd
    return torch.cat([even + turned, even - turned], -1)


def convolve_by_halves(u: Tensor, kernel: Tensor) -> Tensor:
    """A causal convolution through `fft_by_halves`, with zeros behind both."""
    u, kernel = (torch.cat([t, torch.zeros_like(t)]).to(torch.complex128) for t in (u, kernel))
    product = fft_by_halves(u) * fft_by_halves(kernel)
    return (fft_by_halves(product, 1) * (1 / len(u))).real[: len(u) // 2]


def counts(length: int) -> dict[str, tuple[int, int]]:
    """Return depth and work of the loop, the scan by doubling and the convolution, for one pole of 0.9."""
    u, decays = normal(length, seed=1), torch.full((length,), 0.9, dtype=torch.float64)
    kernel = 0.9 ** torch.arange(length, dtype=torch.float64)
    found = {}
    for name, run, inputs in (
        ("loop", scan_loop, (decays, u)),
        ("scan by doubling", scan_by_doubling, (decays, u)),
        ("convolution by FFT", convolve_by_halves, (u, kernel)),
    ):
        with Meter() as meter:
            run(*inputs)
        found[name] = meter.depth, meter.work
    return found


@lesson.figure(
    ["depth: the longest chain that has to wait", "work: all multiplications and additions"],
    "tokens L",
    "operations",
    size=(9.6, 4.0),
    grid=(1, 2),
    legend="upper left",
    xscale="log",
    yscale="log",
)
def plot_counts(left, right):
    """Draw depth and work against the length, counted while the code runs."""
    lengths = [4, 16, 64, 256, 1024, 4096]
    found = [counts(length) for length in lengths]
    for place, axes in enumerate((left, right)):
        lines(axes, lengths, {name: [f[name][place] for f in found] for name in found[0]}, marker="o", markersize=4)
    last = found[-1]
    return (
        "Left, the depth against the number of tokens, both logarithmic: the loop rises in proportion to it, to "
        f"{last['loop'][0]:,} for 4,096 tokens; the scan by doubling needs {last['scan by doubling'][0]} and the "
        f"convolution {last['convolution by FFT'][0]}. Right, the work: here the loop is the lowest with "
        f"{last['loop'][1]:,} operations, the scan needs {last['scan by doubling'][1]:,} and the convolution "
        f"{last['convolution by FFT'][1]:,}."
    )


@lesson.figure("Scan by doubling: what each entry stands for", "token t", "after round", size=(8.4, 3.6), legend=None)
def plot_scan(axes):
    """Draw which entries are put together in each round."""
    for t in range(8):
        for round_ in range(4):
            reach = min(t + 1, 2**round_)
            axes.text(
                t, round_, f"{t - reach + 1}…{t}" if reach > 1 else f"{t}", ha="center", va="center", fontsize=9,
                bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": GREEN if t - reach < 0 else BLUE},
            )  # fmt: skip
            if round_ and t >= 2 ** (round_ - 1):
                for source in (t, t - 2 ** (round_ - 1)):
                    axes.plot([source, t], [round_ - 0.82, round_ - 0.2], color=BLUE, linewidth=0.9, linestyle="-")
    axes.set(xlim=(-0.6, 7.6), ylim=(3.5, -0.5), xticks=range(8), yticks=range(4))
    axes.grid(visible=False)
    return (
        "Eight tokens in a row, and below them three rounds. In round 1 each entry is joined with its left "
        "neighbour, in "
        "round 2 with the entry two places to the left, in round 3 with that four places to the left. After them "
        "each entry stands for all tokens from 0 up to its own. Entries that do so already have a green frame."
    )


# Decay as a mask


@lesson.figure(
    ["no decay: γ = 1", "γ = 0.8 at every token", "γ = 0.9, but 0 at token 8"],
    "read: token j",
    "reader: token i",
    size=(10.4, 3.7),
    grid=(1, 3),
    legend=None,
)
def plot_masks(*axes):
    """Draw the mask of decays for three choices."""
    forgets = torch.full((16,), 0.9, dtype=torch.float64)
    forgets[8] = 0
    for ax, decay in zip(axes, (torch.ones(16), torch.full((16,), 0.8), forgets), strict=True):
        ax.imshow(decay_mask(decay).numpy(), cmap="Blues", vmin=0, vmax=1)
        ax.set(xticks=range(0, 16, 4), yticks=range(0, 16, 4))
        ax.grid(visible=False)
    return (
        "Three masks of 16 by 16, dark where a token is read with weight 1. Left, without decay: all of the lower "
        "triangle. Middle, decay 0.8: a band along the diagonal that fades. Right, decay 0 at token 8: two triangles, "
        "since nothing after it reads anything before it."
    )


# A state that remembers


def smooth_signals(count: int, *, seed: int, length: int = 1000) -> Tensor:
    """Return signals (length, count) of standard deviation 1: ten waves with random sizes and phases each."""
    generator, time = torch.Generator().manual_seed(seed), torch.arange(length, dtype=torch.float64) / length
    waves = torch.arange(1, 11, dtype=torch.float64)
    size = torch.randn(10, count, generator=generator, dtype=torch.float64) / waves.sqrt()[:, None]
    phase = 2 * math.pi * torch.rand(10, count, generator=generator, dtype=torch.float64)
    signals = (size * torch.sin(2 * math.pi * waves[:, None] * time[:, None, None] + phase)).sum(1)
    return signals / signals.std(0)


@lesson.figure(
    ["32 numbers at token 400", "the same 32 at token 1,000"],
    "token",
    "signal",
    size=(10.4, 3.9),
    grid=(1, 2),
    legend="upper left",
    xlim=(0, 1000),
    ylim=(-2.8, 4.0),
)
def plot_memory(*panels):
    """Draw a signal and what a HiPPO state of 32 numbers remembers of it, at two times."""
    signal = smooth_signals(1, seed=1)[:, 0]
    for axes, now in zip(panels, (400, 1000), strict=True):
        state = hippo_state(signal[:now], 32)
        back = hippo_reconstruct(state, (torch.arange(now, dtype=torch.float64) + 0.5) / now)
        lines(axes, None, {"signal": (np.arange(1000), signal), "read from the state": (np.arange(now), back)})
        axes.axvline(now, color=BLACK, linewidth=0.8)
    return (
        "A wavy signal of 1,000 tokens, twice. Left, what 32 numbers that were updated token by token up to "
        "token 400 say "
        "about the past: a curve that lies on the signal from token 0 to 400. Right, the same 32 numbers at "
        "token 1,000: "
        "the curve now covers all 1,000 tokens and lies on the signal but for small ripples at its start."
    )


# Predictions

euler_prediction = lesson.prediction(
    "12.P1",
    "A point circles the origin and comes closer: its speed is $dx/ds = (-0.3 + 2.5i)\\,x$, so that its "
    "distance shrinks like "
    "$e^{-0.3s}$. A program walks along that speed in steps of $\\Delta = 0.5$: $x \\leftarrow x + "
    "\\Delta\\cdot dx/ds$. "
    "What happens to the distance in the program?",
    {
        "It shrinks, a little too slowly": "The error of a step is not small here: each step leaves the circle along a "
        "straight line, and gains more distance than the decay takes away.",
        "It stays the same": "Only by chance could gain and loss cancel. Each step multiplies x by 0.85 + "
        "1.25i, of size 1.51.",
        "It grows without bound": "Each step multiplies x by 1 + 0.5(-0.3 + 2.5i) = 0.85 + 1.25i, of size 1.51: "
        "outside of the "
        "unit circle. The other two rules stay inside.",
    },
    answer="It grows without bound",
    reveal=lambda: PoleExplorer().strip(),
)

wrap_prediction = lesson.prediction(
    "12.P2",
    "An input of 64 tokens meets a kernel of 64 taps that fades slowly. A program multiplies their Fourier "
    "transforms of size "
    "64 and transforms back. How many of its 64 outputs are those of the loop?",
    {
        "All of them": "A transform of size 64 lives on a circle of 64 tokens: what runs out at the end comes "
        "in again at the "
        "start.",
        "All but the first one": "It is the other way round. The first output should know one token, and on the "
        "circle it hears "
        "all the others.",
        "Only the last one": "On a circle of 64 tokens, output t also hears the tokens after t, from one turn "
        "before. Only the "
        "last output has nothing after it.",
    },
    answer="Only the last one",
    reveal=plot_wrap,
)

work_prediction = lesson.prediction(
    "12.P3",
    "Each of 4,096 tokens multiplies a state by its own decay and adds something. The loop needs 4,096 "
    "multiplications, one after the other. The scan by doubling finishes in 12 rounds. How many multiplications "
    "does it take in all?",
    {
        "about 4,096": "Each round works on nearly all tokens, and there are 12 of them.",
        "about 12 times as many": "Each round multiplies twice for each token: the inputs, and the decays themselves.",
        "about 22 times as many": "In each of 12 rounds the inputs and the decays are multiplied, for nearly "
        "all tokens: 90,114 "
        "multiplications. On one processor it loses.",
    },
    answer="about 22 times as many",
    reveal=plot_counts,
)

FIGURES = lesson.figures
