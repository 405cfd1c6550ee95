"""Figures, explorers and predictions of lesson 15, state space models."""

import math
from functools import partial

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from course_lib.architectures.selective import scan_by_doubling, scan_loop
from course_lib.lessons.state_space_models import experiment
from course_lib.lessons.state_space_models.contents import lesson
from course_lib.measured import measured, quote
from course_lib.teaching import Choice, Explorer, Slider, lines, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, RED, compact, small_legend

_compact = partial(compact, title=9, ticks=7.5, labels=8)
_legend = partial(small_legend, fontsize=7.5)

TOKENS = 64
TURNING = 0.97 * complex(math.cos(0.3), math.sin(0.3))  # the pole of box D


def normal(*shape: int, seed: int) -> Tensor:
    """Return float64 normal numbers, whatever the default dtype is."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def noise() -> np.ndarray:
    """Return the noise of 64 tokens that all boxes and both explorers are fed with."""
    return normal(TOKENS, seed=12).numpy()


# Four boxes: the objects of this lesson

FIXED, TANH, CLOCK = "fixed decay", "tanh in the loop", "decay by the clock"
RULES = (FIXED, TANH, CLOCK)
BOXES = {
    "A: x ← 0.9x + u": (FIXED, 0.9),
    "B: x ← tanh(0.9x + u)": (TANH, 0.9),
    "C: x ← aₜx + u, aₜ = 0.9, 0.5, 0.9, 0.5, …": (CLOCK, 0.9),
    "D: x ← ax + u, a turns by 0.3 rad": (FIXED, TURNING),
}


def decays_of(rule: str, pole: complex, tokens: int = TOKENS) -> np.ndarray:
    """Return the factor of each token: the pole, or, by the clock, 5/9 of it at every second token."""
    decays = np.full(tokens, complex(pole))
    if rule == CLOCK:
        decays[1::2] *= 5 / 9
    return decays


def run_box(u: np.ndarray, rule: str, pole: complex) -> np.ndarray:
    """Run the loop of a box and read the real part of its state; a tanh shrinks the size and keeps the angle."""
    x, outputs = 0j, []
    for a_t, u_t in zip(decays_of(rule, pole, len(u)), u, strict=True):
        x = a_t * x + u_t
        if rule == TANH and x != 0:
            x *= math.tanh(abs(x)) / abs(x)
        outputs.append(x.real)
    return np.array(outputs)


def click_answer(rule: str, pole: complex, size: float = 1.0) -> np.ndarray:
    """Return a box's answer to one click at token 0, over the size of the click."""
    click = np.zeros(TOKENS)
    click[0] = size
    return run_box(click, rule, pole) / size


def shifted_clicks(u: np.ndarray, answer: np.ndarray) -> np.ndarray:
    """Add up the answer to a click, shifted to each token and multiplied by its input."""
    return np.convolve(u, answer)[: len(u)]


@lesson.figure(list(BOXES), "token t", "output yₜ", size=(6.4, 3.1), grid=(2, 2), legend=None, ylim=(-1.1, 1.15))
def plot_boxes(*panels_):
    """Draw what four boxes answer to one click."""
    for axes, (rule, pole) in zip(panels_, BOXES.values(), strict=True):
        axes.vlines(np.arange(40), 0, click_answer(rule, pole)[:40], color=BLUE)
        axes.plot(click_answer(rule, pole)[:40], "o", color=BLUE, markersize=4)
        axes.axhline(0, color=BLACK, linewidth=0.8)
    _compact(*panels_)
    return "Four answers to a single 1 at token 0: A fades evenly from 1, B from 0.76, C in uneven steps; D swings around 0."


@lesson.figure(
    list(BOXES),
    "token t",
    "output yₜ",
    size=(6.6, 3.2),
    grid=(2, 2),
    legend=[None, _legend("upper right"), None, None],
    ylim=(-7, 9),
)
def plot_noise(*panels_):
    """Draw outputs for noise beside the sum of shifted clicks."""
    u, gaps = noise(), []
    for axes, (rule, pole) in zip(panels_, BOXES.values(), strict=True):
        loop, added = run_box(u, rule, pole), shifted_clicks(u, click_answer(rule, pole))
        lines(axes, np.arange(TOKENS), {"the box itself": loop})
        axes.plot(added, "o", color=ORANGE, markersize=2.5, label="clicks, shifted and added")
        gaps.append(float(np.abs(loop - added).max()))
    _compact(*panels_)
    return (
        "Outputs for the same noise as lines, and what is built from clicks as dots. In A and D the dots lie on the line; "
        f"in B they are off by up to {gaps[1]:.1f}, in C by up to {gaps[2]:.1f}."
    )


@lesson.figure(
    ["three inputs, and what each leaves behind", "all of them added"],
    "token t",
    "output yₜ",
    size=(6.8, 2.5),
    grid=(1, 2),
    legend=_legend("upper right"),
    ylim=(-1.6, 3.6),
)
def plot_added(left, right_):
    """Draw three shifted answers of box D, and the loop's output as their sum."""
    u = np.zeros(40)
    u[[0, 6, 15]] = 1.0, -0.5, 1.5
    answer = click_answer(FIXED, TURNING)
    pieces = {f"u = {u[t]:g} at token {t}": (np.arange(t, 40), u[t] * answer[: 40 - t]) for t in (0, 6, 15)}
    lines(left, None, pieces, linewidth=1.4)
    total = np.zeros(40)
    for place, piece in pieces.values():
        total[place] += piece
    lines(right_, np.arange(40), {"the loop of box D": run_box(u, FIXED, TURNING)})
    right_.plot(total, "o", color=ORANGE, markersize=2.5, label="sum of the three")
    _compact(left, right_)
    return (
        "Left, what inputs of 1, -0.5 and 1.5 start at tokens 0, 6 and 15: the click's answer, shifted and multiplied. "
        "Right, the loop's output as a line, and the sum of the three as dots on it."
    )


@lesson.figure(
    "powers of the pole of box D",
    "real part: the kernel",
    "imaginary part",
    size=(3.6, 3.4),
    legend=None,
    xlim=(-1.15, 1.15),
    ylim=(-1.15, 1.15),
)
def plot_spiral(axes):
    """Draw how the powers of a complex pole wind inwards."""
    angle = np.linspace(0, 2 * np.pi, 181)
    axes.plot(np.cos(angle), np.sin(angle), color=BLACK, linewidth=1)
    powers = TURNING ** np.arange(42)
    axes.plot(powers.real, powers.imag, "-o", color=BLUE, markersize=2.2, linewidth=0.8)
    axes.set_aspect("equal")
    for lag in (0, 5, 10, 21):
        place = (powers[lag].real, powers[lag].imag)
        axes.plot(*place, "o", color=RED, markersize=5)
        axes.annotate(str(lag), place, (4, 4), textcoords="offset points", fontsize=8)
    _compact(axes)
    return (
        "The powers of the pole wind towards 0; their real parts are the swinging answer of box D. Powers 0, 5, 10 and 21 "
        "are marked."
    )


# The first explorer


@lesson.explorer
class BoxExplorer(Explorer):
    """One box, seen as a pole in the disc, as a kernel laid under the input, and as two outputs."""

    title = "One box: loop, and clicks shifted and added"
    summary = (
        "Left the pole a in the unit disc with its powers. Middle the input as bars, and over each token the weight that "
        "a shifted click gives it in the chosen output. Right the loop's outputs as a line, and shifted clicks added up "
        "as dots; the ring marks the chosen token. All outputs are divided by the size of the input."
    )
    radius = Slider("size of the pole", "|a|", "How much of the state is left after one token", 0.7, 0.5, 1.0, 0.01)
    turn = Slider("its turn", "arg a", "The angle by which the state turns in each token", 0.3, 0.0, 1.5, 0.1, "rad")
    rule = Choice("rule", "What happens to the state in each step", FIXED, RULES)
    loudness = Slider(
        "size of the input", "s", "All inputs, and the click, are multiplied by it", 0.02, 0.02, 3.0, 0.02
    )
    token = Slider("chosen token", "t", "The output whose weights are shown in the middle", 30, 0, TOKENS - 1, 1)
    together = ("rule", "loudness")
    size = (9.0, 2.75)
    strip_scale = 0.64
    dpi = 100
    layout = panels(
        ["pole and powers", "input uₛ, weights over it", "outputs"],
        ["real part", "token s", "token t"],
        ["imaginary part", "input and weight", "yₜ / s"],
        grid=(1, 3),
        legend=[None, _legend("lower right"), _legend("upper left")],
        subplots={"width_ratios": [1, 1.5, 1.6]},
        xlim=[(-1.1, 1.1), (-1, TOKENS), (-1, TOKENS)],
        ylim=[(-1.1, 1.1), (-2.8, 3.6), (-16, 16)],
    )

    def compute(self, *, radius, turn, rule, loudness, token):
        """Return powers, weights and both outputs; 64 tokens, divided by the size of the input."""
        pole = radius * complex(math.cos(turn), math.sin(turn))
        answer = click_answer(rule, pole, loudness)
        loop, added = run_box(loudness * noise(), rule, pole) / loudness, shifted_clicks(noise(), answer)
        powers = np.cumprod(np.concatenate([[1], decays_of(rule, pole)[1:]]))
        place = np.arange(token + 1)
        return {
            "powers": (powers.real, powers.imag),
            "pole": (pole.real, pole.imag),
            "weights": (place, answer[token - place]),
            "loop": (np.arange(TOKENS), loop),
            "added": (np.arange(TOKENS), added),
            "ring": (token, float(loop[token])),
            "scale": f"s = {loudness:g}",
            "at token": (loop[token], added[token]),
            "gap": float(np.abs(loop - added).max() / np.abs(loop).max()),
            "setting": (radius, turn, rule, loudness, token),
        }

    def draw(self, left, middle, right_):
        """Draw the circle and the input, and lines and dots that move."""
        _compact(left, middle, right_)
        angle = np.linspace(0, 2 * np.pi, 121)
        left.plot(np.cos(angle), np.sin(angle), color=BLACK, linewidth=1)
        left.set_aspect("equal")
        middle.bar(np.arange(TOKENS), noise(), color="#BBBBBB", width=1.0, label="input")
        return {
            "powers": left.plot([], [], "-o", color=BLUE, markersize=2.5, linewidth=0.7)[0],
            "pole": left.plot([], [], "o", color=RED, markersize=7)[0],
            "weights": middle.plot([], [], color=BLUE, linewidth=1.4, label="weight")[0],
            "loop": right_.plot([], [], color=BLUE, label="loop")[0],
            "added": right_.plot([], [], "o", color=ORANGE, markersize=3.5, label="clicks, shifted and added")[0],
            "ring": right_.plot([], [], "o", color=RED, markersize=10, fillstyle="none")[0],
            "scale": right_.text(0.03, 0.04, "", transform=right_.transAxes, fontsize=8),
        }

    def words(self, state):
        """Say how long a click lasts and how far the two outputs differ."""
        radius, _, rule, loudness, token = state["setting"]
        loop, added = state["at token"]
        kept = (
            "for ever" if radius == 1 else f"for {int(math.log(0.01) / math.log(radius) + 1e-9)} tokens after the click"
        )
        lasts = f"The powers of |a| = {radius:.2f} stay at 1% or more {kept}. " if rule == FIXED else ""
        if state["gap"] < 1e-9:
            judged = "clicks, shifted and added, give every output of the loop"
        else:
            judged = (
                f"clicks, shifted and added, miss the loop's outputs by up to {100 * state['gap']:.1f}% of the largest"
            )
        return (
            f"{rule[0].upper()}{rule[1:]}, inputs times {loudness:g}: {judged}. {lasts}At token {token} the loop gives "
            f"{loop:.3f}, the sum {added:.3f}."
        )


# The transform that wraps round

WRAPPED = ("64 outputs that are wanted", "63 that run past the end")


def box_d_kernel() -> np.ndarray:
    """Return the first 64 taps of box D."""
    return click_answer(FIXED, TURNING)


@lesson.figure(
    ["all 127 outputs", "on a circle of 64"],
    "token t",
    "output yₜ",
    size=(6.6, 2.5),
    grid=(1, 2),
    legend=_legend("upper right"),
    subplots={"width_ratios": [1.7, 1], "sharey": True},
    ylim=(-7, 13),
)
def plot_wrap(left, right_):
    """Draw the whole output of a convolution, and what a circle of 64 tokens makes of it."""
    u, kernel = noise(), box_d_kernel()
    full = np.convolve(u, kernel)
    short = np.fft.irfft(np.fft.rfft(u) * np.fft.rfft(kernel), TOKENS)
    left.plot(np.arange(TOKENS), full[:TOKENS], color=BLUE, label=WRAPPED[0])
    left.plot(np.arange(TOKENS, 127), full[TOKENS:], color=RED, linestyle="--", label=WRAPPED[1])
    left.axvline(TOKENS - 0.5, color=BLACK, linewidth=0.8)
    right_.plot(np.arange(TOKENS), full[:TOKENS], color=BLUE, label="wanted")
    right_.plot(np.arange(63), full[TOKENS:], color=RED, linestyle="--", label="the red part")
    right_.plot(np.arange(TOKENS), short, "o", color=ORANGE, markersize=2.5, label="circle of 64")
    _compact(left, right_)
    agree = int((np.abs(short - full[:TOKENS]) < 1e-9).sum())
    return (
        "Left, all 127 outputs; the last 63 are red. Right, the red part moved to token 0: with size 64 (dots) the outputs "
        f"are the sum of blue and red, and {agree} of the 64 lies on blue, the last."
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
    ["depth: operations in a row", "work: all operations"],
    "tokens L",
    "operations",
    size=(6.6, 2.5),
    grid=(1, 2),
    legend=[_legend("upper left"), None],
    xscale="log",
    yscale="log",
)
def plot_counts(left, right):
    """Draw depth and work against the length, counted while the code runs."""
    lengths = [4, 16, 64, 256, 1024, 4096]
    found = [counts(length) for length in lengths]
    for place, axes in enumerate((left, right)):
        lines(axes, lengths, {name: [f[name][place] for f in found] for name in found[0]}, marker="o", markersize=4)
    _compact(left, right)
    last = found[-1]
    return (
        f"Left, operations in a row, for 4,096 tokens: loop {last['loop'][0]:,}, scan {last['scan by doubling'][0]}, "
        f"convolution {last['convolution by FFT'][0]}. Right, all operations: {last['loop'][1]:,}, "
        f"{last['scan by doubling'][1]:,} and {last['convolution by FFT'][1]:,}. The convolution needs one fixed decay, "
        "has its kernel given, and counts an operation of complex numbers as one."
    )


@lesson.figure("Scan by doubling: what each entry stands for", "token t", "after round", size=(6.0, 2.4), legend=None)
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
        "Eight tokens and three rounds: each entry is joined with the one 1, then 2, then 4 places to its left. Entries "
        "that stand for all tokens up to their own have a green frame."
    )


# A prompt at once, then steps


@lesson.figure(
    "Read at once, then go on token by token",
    "token t",
    "output yₜ",
    size=(6.2, 2.2),
    legend=_legend("upper left"),
    ylim=(-7, 14),
)
def plot_prompt(axes):
    """Draw a prompt that is read by convolution and what follows by steps from the state that is handed over."""
    u = noise()
    whole = run_box(u, FIXED, TURNING)
    axes.axvspan(-0.5, 47.5, color="#DDEBF5")
    axes.plot(np.arange(48), shifted_clicks(u, box_d_kernel())[:48], color=BLUE, label="48 outputs by one convolution")
    x, steps = complex((TURNING ** np.arange(47, -1, -1) * u[:48]).sum()), []
    for u_t in u[48:]:
        x = TURNING * x + u_t
        steps.append(x.real)
    axes.plot(np.arange(48, 64), steps, "o", color=ORANGE, markersize=3.5, label="16 outputs by steps, from one state")
    fresh = run_box(u[48:], FIXED, TURNING)
    axes.plot(np.arange(48, 64), fresh, color=RED, linestyle="--", label="the same steps from an empty state")
    _compact(axes)
    gap, lost = (float(np.abs(np.array(found) - whole[48:]).max()) for found in (steps, fresh))
    return (
        "On blue, 48 outputs of box D by one convolution; then 16 by steps from the state that it leaves (dots), "
        f"{'the same as' if gap < 1e-12 else 'other than'} the loop's. Dashed, the same steps from an empty state: off by "
        f"up to {lost:.1f}."
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


# The closing experiment

ARM_LOOKS = {
    "convolution": (BLUE, "-"),
    "scan": (GREEN, "-."),
    "loop": (RED, "--"),
    "loop, cut every 64": (ORANGE, ":"),
}


def _curves(arm: str, key: str, grid: np.ndarray) -> np.ndarray:
    """Return errors of all seeds on a grid of seconds or updates; before the end of a run, and NaN behind it."""
    rows = []
    for run in measured("hidden_system", f"{arm}, curves"):
        x, errors = np.array(run[key]), np.array(run["errors"])
        rows.append(np.where(grid <= x[-1], np.interp(grid, x, errors), np.nan))
    return np.array(rows)


@lesson.figure(
    ["the same CPU time", "the same number of updates"],
    ["CPU seconds of one thread", "updates"],
    "error on held-out records",
    size=(7.0, 2.7),
    grid=(1, 2),
    legend=None,
    subplots={"sharey": True},
    yscale="log",
    xscale=["linear", "log"],
    ylim=(0.01, 2.2),
)
def plot_race(left, right_):
    """Draw the stored run: error against time and against updates, median and range of five seeds."""
    said, ends = [], {}
    for arm, (color, style) in ARM_LOOKS.items():
        for axes, key in ((left, "seconds"), (right_, "updates")):
            runs = measured("hidden_system", f"{arm}, curves")
            last = min(run[key][-1] for run in runs)
            grid = np.linspace(0, last, 200) if key == "seconds" else np.geomspace(1, last, 200)
            errors = _curves(arm, key, grid)
            axes.plot(grid, np.median(errors, 0), color=color, linestyle=style, label=arm)
            axes.fill_between(grid, errors.min(0), errors.max(0), color=color, alpha=0.15, linewidth=0)
        last = measured("hidden_system", f"{arm}, best")
        said.append(f"{arm} {np.median(last['errors']):.2g}")
        ends[arm] = float(np.median(last["errors"]))
    # Labels at the ends of the curves, each at least a little above the one below.
    height = 0.0
    for arm in sorted(ends, key=ends.get):
        height = max(ends[arm], 1.35 * height)
        left.annotate(
            arm, (3.0, height), (5, 0), textcoords="offset points", color=ARM_LOOKS[arm][0], va="center", fontsize=8
        )
    taps = min(rivals(), key=lambda row: np.median(row[2]))
    level = float(np.median(taps[2]))
    for axes in (left, right_):
        axes.axhline(level, color=BLACK, linewidth=1, linestyle=(0, (5, 1, 1, 1, 1, 1)))
    left.annotate("best free taps", (3.0, level), (5, 3), textcoords="offset points", fontsize=8)
    left.set_xlim(0, 4.4)
    _compact(left, right_)
    return (
        "Held-out error, median and range of five seeds, each arm at its best rate. Medians after 3 CPU "
        f"seconds: {'; '.join(said)}. The line is that of the best free taps, {level:.2g}. "
        "Right, the curves of scan and convolution differ by their rates alone."
    )


def rivals() -> list[tuple[int, str, list[float]]]:
    """Return number, penalty and errors of the free taps of the stored run."""
    return [
        (taps, kind, measured("hidden_system", f"{taps} free taps, {kind} penalty")["errors"])
        for taps in (16, 64, 256, 1024, 2048)
        for kind in ("flat", "growing")
    ]


def race_table() -> Markdown:
    """Return the stored run as a table."""

    def spread(errors):
        return f"{np.median(errors):.3f}", f"{min(errors):.3f} to {max(errors):.3f}"

    rows = []
    for arm in experiment.ARMS:
        best = measured("hidden_system", f"{arm}, best")
        rows.append((arm, f"{np.median(best['updates']):,.0f}", f"{best['rate']:g}", *spread(best["errors"])))
    for taps in (256, 1024, 2048):
        kind, errors = min(
            ((kind, errors) for count, kind, errors in rivals() if count == taps), key=lambda row: np.median(row[1])
        )
        rows.append((f"{taps:,} free taps, {kind} penalty", "", "", *spread(errors)))
    return markdown_table(("arm", "updates, median", "rate", "error, median", "five seeds"), rows)


def measured_table() -> Markdown:
    """Return what `make bench state_space` stored of the fast form of the diagonal layer against the plain one."""
    rows = [
        (f"${size}$", quote("state_space", f"diagonal / full table of powers, {size}", quartiles=True))
        for size in ("N = 16", "N = 32", "N = 64")
    ]
    return markdown_table(("poles", "two tables of powers, over all $N\\times L$ powers by exponentials"), rows)


# Predictions

box_prediction = lesson.prediction(
    "15.P1",
    "Each box above answered one click. Now the input is noise: 64 numbers, all different. For which boxes can you write "
    "down every output from the click's answer alone, by shifting it to each token, multiplying it by the input there, "
    "and adding up?",
    {
        "All four": "A tanh bends large inputs more than small ones, and a decay that depends on the clock answers a "
        "click at token 1 in another way than a click at token 0.",
        "All but B": "C is linear: twice the input gives twice the output. But a click at token 1 meets the decays in "
        "another order, 0.9 first, so that its answer is not the shifted one.",
        "A and D": right(
            "Both boxes do the same at every token, and nothing in them bends. B bends its state; C does something else "
            "at every second token."
        ),
        "Only A": "D turns and swings, but it does the same at every token, and twice the input gives twice the output.",
    },
    reveal=plot_noise,
)

wrap_prediction = lesson.prediction(
    "15.P2",
    "64 inputs meet the first 64 taps of box D. A program multiplies their two Fourier transforms of size 64, entry by "
    "entry, and transforms back. How many of its 64 outputs are those of the loop?",
    {
        "All 64": "A transform of size 64 lives on a circle of 64 tokens: what runs past the end comes in again at the "
        "start.",
        "All but the first": "It is the other way round. The first output should know one token, and on the circle it "
        "hears all the others.",
        "About half": "The later half is less disturbed, but box D fades slowly: every output but one still hears "
        "tokens from one turn before.",
        "One": right(
            "On a circle of 64 tokens, output t also hears the tokens after t, from one turn before. Only the last "
            "output has nothing after it."
        ),
    },
    reveal=plot_wrap,
)

work_prediction = lesson.prediction(
    "15.P3",
    "4,096 tokens, each with its own decay. The loop makes 8,192 multiplications and additions, one after the other. The "
    "scan is done after 12 rounds. How many multiplications and additions does the scan make in all?",
    {
        "Fewer than the loop": "The rounds are few, but each of them works on nearly all tokens.",
        "About as many": "Each of the 12 rounds makes three operations for nearly every token.",
        "About 3 times as many": "Three operations a join would be right for one round; there are 12.",
        "About 16 times as many": right(
            "Each join takes two multiplications and one addition, for nearly all 4,096 tokens in each of 12 rounds. "
            "One processor loses with it; thousands of them win."
        ),
    },
    reveal=plot_counts,
)

race_prediction = lesson.prediction(
    "15.P4",
    "In its 3 CPU seconds the plain loop makes some 20 updates. The loop that is cut every 64 tokens makes some 500, and "
    "the convolution some 630. Where does the error of the cut loop end?",
    {
        "Near the convolution's": "It makes nearly as many updates. But the pole of size 0.998 keeps 1% of a click for "
        "more than 2,000 tokens, and gradients that end after 64 tell little about it.",
        "Well between the loop's and the convolution's": "So one would hope from 25 times as many updates. But the fast "
        "pole is learned soon, and of the slow one the cut gradients tell little.",
        "About at the loop's": right(
            "25 times as many updates, and no clear gain: the fast pole is learned soon, and of the slow one, which keeps "
            "1% of a click for more than 2,000 tokens, gradients that end after 64 tell little."
        ),
        "At 1 or above: it never settles": "Its gradients are wrong about the slow pole, but good enough for the fast "
        "one: it ends well below silence.",
    },
    reveal=plot_race,
)

FIGURES = lesson.figures
