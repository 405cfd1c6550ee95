"""Figures, explorer and predictions of lesson 16, a memory that decides what to keep."""

from statistics import median

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor

from course_lib.architectures.selective import decay_mask
from course_lib.architectures.selective_copying import CopyNetworks, flagged_texts, train_to_copy, units_for
from course_lib.lessons.selective_states.contents import lesson
from course_lib.measured import measured
from course_lib.teaching import Explorer, Slider, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED

GREY = "#888888"
FIXED, WIDE, LONG = "fixed", "fixed, four times the parameters", "fixed, three times the steps"
TWO, DIVIDED, SELECTIVE, GRU = "two fixed layers", "fixed, divided", "selective", "GRU"
SAID = {
    SELECTIVE: "decay set by the token",
    FIXED: "fixed decays",
    WIDE: "fixed, four times the parameters",
    LONG: "fixed, three times the steps",
    TWO: "two fixed layers, a gate between",
    DIVIDED: "fixed, states divided",
    GRU: "GRU",
}


def example_text() -> tuple[Tensor, Tensor]:
    """The text of the page: 64 tokens of (number, flag), and the last flagged number at each of them."""
    texts, wanted = flagged_texts(1, 64, share=0.1, generator=torch.Generator().manual_seed(38))
    return texts[0], wanted[0]


def _stream(axes, text: Tensor) -> None:
    """Draw the numbers of a text: small and grey, or large where they are flagged."""
    numbers, flags = text.T.numpy()
    t = np.arange(len(numbers))
    axes.plot(t, numbers, ".", color=GREY, markersize=4, label="numbers")
    axes.plot(t[flags > 0], numbers[flags > 0], "o", color=ORANGE, markersize=7, label="flagged")


def normal(*shape: int, seed: int) -> Tensor:
    """Return float64 normal numbers, whatever the default dtype is."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def two_networks() -> tuple[CopyNetworks, CopyNetworks]:
    """Train network A and network B of the page: 300 steps of 16 texts, both with about 1,700 parameters."""
    found = []
    for memory in (SELECTIVE, FIXED):
        networks = CopyNetworks(memory, units=units_for(memory, parameters=1700), seeds=(0,))
        train_to_copy(networks, seeds=(0,), step_size=0.03, steps=300, batch=16)
        found.append(networks)
    return found[0], found[1]


# The hook


@lesson.figure(
    ["network A", "network B"],
    "token",
    "number",
    size=(8.6, 4.6),
    grid=(2, 1),
    legend=[{"loc": "upper center", "ncols": 4, "fontsize": 9}, None],
    subplots={"sharex": True, "sharey": True},
    ylim=(-3.2, 3.9),
    example=lambda: (example_text()[1] * 0.99, example_text()[1] * 0.6),
)
def plot_two_networks(top, bottom, a, b):
    """Draw the answers of two networks to the text of the page."""
    text, wanted = example_text()
    said = []
    for axes, name, answers in ((top, "A", a), (bottom, "B", b)):
        _stream(axes, text)
        axes.plot(wanted, color=BLACK, linestyle=":", drawstyle="steps-post", label="wanted")
        axes.plot(answers, color=BLUE, linewidth=1.8, drawstyle="steps-post", label="answer")
        gap = float((answers - wanted).abs().max())
        said.append(f"{name} is off by up to ≈{gap:.2f}")
    return (
        "A text of 64 numbers, flagged ones large, the wanted staircase as a dotted line, and the answers: "
        f"{said[0]}, {said[1]}."
    )


# The explorer

TEXT, WANTED = example_text()
NUMBERS, FLAGS = TEXT.double().T.numpy()


@lesson.explorer
class CellExplorer(Explorer):
    """One cell on the text of the page, with two decays and two entries that the learner sets."""

    title = "One cell, 64 tokens"
    summary = (
        "Above, the numbers of the text, flagged ones large, the wanted staircase and the state of one cell. Below, the "
        "weight of each number in the state at the token that the slider chooses."
    )
    size = (7.8, 4.6)
    keep_other = Slider(
        label="Decay, unflagged token",
        symbol="a",
        tooltip="What an unflagged token leaves of the state",
        default=0.9,
        minimum=0.0,
        maximum=1.0,
        step=0.05,
    )
    keep_flag = Slider(
        label="Decay, flagged token",
        symbol="a",
        tooltip="What a flagged token leaves of the state",
        default=0.9,
        minimum=0.0,
        maximum=1.0,
        step=0.05,
    )
    enter_other = Slider(
        label="Entry, unflagged token",
        symbol="e",
        tooltip="Share of an unflagged number that enters",
        default=1.0,
        minimum=0.0,
        maximum=1.0,
        step=0.05,
    )
    enter_flag = Slider(
        label="Entry, flagged token",
        symbol="e",
        tooltip="Share of a flagged number that enters",
        default=1.0,
        minimum=0.0,
        maximum=1.0,
        step=0.05,
    )
    reader = Slider(
        label="Reader", symbol="t", tooltip="The token at which the state is taken apart", default=40, minimum=0,
        maximum=63, step=1,
    )  # fmt: skip
    layout = panels(
        ["the state hₜ against the last flagged number", "weight of each number in the state at token t"],
        "token",
        ["number", "weight"],
        grid=(2, 1),
        legend=[{"loc": "upper center", "ncols": 4, "fontsize": 9}, None],
        subplots={"sharex": True},
        xlim=(-1, 64),
        ylim=[(-4, 12), (0, 1.05)],
    )

    def compute(self, *, keep_other, keep_flag, enter_other, enter_flag, reader):
        """Return the states, and the weights of all numbers in the state at the reader."""
        flags = FLAGS > 0
        a, e = np.where(flags, keep_flag, keep_other), np.where(flags, enter_flag, enter_other)
        states, h = np.empty(64), 0.0
        for t in range(64):
            h = a[t] * h + e[t] * NUMBERS[t]
            states[t] = h
        weights, left = np.zeros(64), 1.0
        for j in range(reader, -1, -1):
            weights[j] = left * e[j]
            left *= a[j]
        wanted = WANTED.double().numpy()
        before = np.flatnonzero(flags[: reader + 1])
        return {
            "state": (np.arange(64), states),
            "here": (reader, states[reader]),
            "weights": list(weights * ~flags),
            "flagged weights": list(weights * flags),
            "all": weights,
            "last": int(before[-1]) if len(before) else None,
            "reader": reader,
            "error": float(((states - wanted) ** 2).mean() / (wanted**2).mean()),
        }

    def draw(self, top, bottom):
        """Draw the text and the staircase once, and lines and bars that move."""
        _stream(top, TEXT)
        top.plot(WANTED, color=BLACK, linestyle=":", drawstyle="steps-post", label="wanted")
        (state,) = top.plot([], [], color=BLUE, linewidth=1.8, drawstyle="steps-post", label="state")
        (here,) = top.plot([], [], "D", color=RED, markersize=6)
        zero = np.zeros(64)
        return {
            "state": state,
            "here": here,
            "weights": list(bottom.bar(range(64), zero, color=GREY, width=0.8)),
            "flagged weights": list(bottom.bar(range(64), zero, color=ORANGE, width=0.8, hatch="//")),
        }

    def words(self, state):
        """Say how far off the state is, and whose numbers it holds."""
        weights, last = state["all"], state["last"]
        error = f"Squared error over all 64 tokens, divided by that of the answer 0: {state['error']:.2f}."
        if last is None:
            return (
                f"{error} At token {state['reader']} no flag has come yet; all weights add up to {weights.sum():.2f}."
            )
        others = weights.sum() - weights[last]
        return (
            f"{error} In the state at token {state['reader']} the last flagged number (token {last}) has the weight "
            f"{weights[last]:.2f}; all others together have {others:.2f}."
        )


# What the trained networks do


def _flag_ticks(axes) -> None:
    places = np.flatnonzero(FLAGS)
    near = np.diff(places, prepend=-9) < 3  # their labels would run into each other
    axes.set(xticks=places, xticklabels=["" if hide else str(p) for p, hide in zip(places, near, strict=True)])
    axes.grid(visible=False)


@lesson.figure(
    ["network A", "network B"],
    "number at token j (flagged ones are marked)",
    "answer at token t",
    size=(8.2, 4.0),
    grid=(1, 2),
    legend=None,
    example=lambda: (torch.eye(64), torch.ones(64, 64).tril() / 2),
)
def plot_reach(left, right, a, b):
    """Draw by how much each number moves each answer."""
    said = []
    for axes, name, reach in ((left, "A", a), (right, "B", b)):
        picture = axes.imshow(reach, cmap="Blues", vmin=0, vmax=1)
        _flag_ticks(axes)
        share = share_of_the_last_flagged(reach)
        said.append(f"≈{100 * share:.0f}% in {name}")
    bar = axes.figure.colorbar(picture, ax=[left, right], shrink=0.8)
    bar.ax.set(xlabel="size", ylabel="change of the answer per unit")
    return (
        "Dark where the number at token j moves the answer at token t. A: one bar below each flag, until the next flag. B: "
        f"fainter bars run on. Of what moves an answer, {said[0]} and {said[1]} comes from the last flagged number."
    )


def share_of_the_last_flagged(reach: Tensor) -> float:
    """The share of all sensitivities that belongs to the last flagged number, over the tokens that have one."""
    last = (FLAGS * np.arange(1, 65)).astype(int)
    last = np.maximum.accumulate(last) - 1
    rows = np.flatnonzero(last >= 0)
    return float(sum(reach[t, last[t]] for t in rows) / reach[rows].sum())


@lesson.figure(
    ["network A: decay of each unit at each token", "network B: decay of each unit at each token"],
    "token (flagged ones are marked)",
    "unit",
    size=(8.4, 4.2),
    grid=(2, 1),
    legend=None,
    example=lambda: (torch.rand(64, 16), torch.rand(16).expand(64, 16)),
)
def plot_decays(top, bottom, a, b):
    """Draw the decays of all units of both networks over the text, slow units at the top."""
    for axes, decays in ((top, a), (bottom, b)):
        order = decays[FLAGS == 0].mean(0).argsort(descending=True)
        picture = axes.imshow(decays[:, order].T, cmap="Purples", vmin=0, vmax=1, aspect="auto")
        _flag_ticks(axes)
    bar = axes.figure.colorbar(picture, ax=[top, bottom], shrink=0.8)
    bar.ax.set_xlabel("decay", labelpad=12)
    bar.ax.set_ylabel("1 keeps, 0 clears")
    slow = a[:, a[FLAGS == 0].mean(0).argmax()]
    return (
        "Decays of all units, dark where a state is kept. In A most units are light at flagged tokens: its slowest keeps "
        f"≈{float(slow[FLAGS == 0].mean()):.2f} elsewhere and ≈{float(slow[FLAGS > 0].mean()):.2f} there. In B "
        f"nothing changes "
        "from token to token."
    )


# Errors of the stored run


def seeds_of(arm: str, texts: str) -> list[float]:
    """The stored errors of one arm, seed by seed."""
    return measured("selective", f"{arm}: {texts}, by seed")


def _errors(axes, arms: list[str], texts: str) -> list[str]:
    said = []
    for row, arm in enumerate(arms):
        errors = seeds_of(arm, texts)
        middle = float(np.median(errors))
        axes.plot(errors, [row] * len(errors), "o", color=BLUE, markersize=5, alpha=0.7)
        axes.plot([middle, middle], [row - 0.3, row + 0.3], color=RED, linewidth=2, linestyle="-")
        said.append(f"{SAID[arm]} {middle:.2g}")
    axes.set(yticks=range(len(arms)), yticklabels=[SAID[arm] for arm in arms], ylim=(len(arms) - 0.5, -0.5))
    return said


@lesson.figure(
    "Which change turns network B into one that can? (stored run, five seeds)",
    "squared error, divided by that of the answer 0",
    "memory",
    size=(8.6, 3.2),
    legend=None,
    xscale="log",
    xlim=(1e-5, 2),
)
def plot_missing(axes):
    """Draw the errors of network B's kind, with more units, more steps, and decays that the token sets."""
    said = _errors(axes, [FIXED, WIDE, LONG, SELECTIVE], "64 tokens")
    return (
        "Errors on new texts, a dot for each seed and a bar at the median: "
        + "; ".join(said) + ". All have a gate at the entry that sees the flag."
    )  # fmt: skip


@lesson.figure(
    ["64 tokens, as in training", "400 tokens, flags a fifth as frequent"],
    "squared error, divided by that of the answer 0",
    "memory",
    size=(9.6, 3.2),
    grid=(1, 2),
    legend=None,
    subplots={"sharey": True},
    xscale="log",
    xlim=[(1e-5, 4), (1e-4, 4)],
)
def plot_errors(left, right):
    """Draw the errors of all arms of the stored run."""
    arms = [SELECTIVE, GRU, FIXED, TWO, DIVIDED]
    said = [_errors(axes, arms, texts) for axes, texts in ((left, "64 tokens"), (right, "400 tokens"))]
    return (
        "Errors on new texts, a dot for each seed and a bar at the median. At 64 tokens the medians are: "
        f"{'; '.join(said[0])}. At 400: {'; '.join(said[1])}."
    )


def errors_table() -> Markdown:
    """The stored run as a table: parameters, the step size that was chosen, and both errors."""
    rows = []
    for arm in (SELECTIVE, GRU, FIXED, TWO, DIVIDED, WIDE, LONG):
        rows.append((
            SAID[arm], f"{measured('selective', f'{arm}: parameters'):,}", f"{measured('selective', f'{arm}: step size'):g}",
            *(
                f"{min(seeds):.2g} to {max(seeds):.2g}"
                for seeds in (seeds_of(arm, "64 tokens"), seeds_of(arm, "400 tokens"))
            ),
        ))  # fmt: skip
    return markdown_table(("memory", "parameters", "step size chosen", "error, 64 tokens", "error, 400 tokens"), rows)


# The scan


@lesson.figure(size=(8.8, 3.4), legend=None, bare=True)
def plot_tree(axes):
    """Draw a scan by doubling on eight tokens, two of which clear the state."""
    u = {1: 0.7, 5: -1.2}
    a = [0.0 if t in u else 1.0 for t in range(8)]
    w = [u.get(t, 0.0) for t in range(8)]
    names = ["tokens", "round 1", "round 2", "round 3"]
    for round_ in range(4):
        for t in range(8):
            cut = a[t] == 0
            axes.text(
                t, round_, f"{a[t]:g} | {w[t]:g}", ha="center", va="center", fontsize=10,
                bbox={"boxstyle": "round", "facecolor": "#fdebd0" if cut else "white",
                      "edgecolor": ORANGE if cut else BLUE, "linestyle": "-" if cut else "--"},
            )  # fmt: skip
        reach = 2**round_
        if round_ < 3:
            for t in range(reach, 8):
                for source in (t, t - reach):
                    axes.plot([source, t], [round_ + 0.2, round_ + 0.8], color=GREY, linewidth=0.9, linestyle="-")
            w = [w[t] if t < reach else a[t] * w[t - reach] + w[t] for t in range(8)]
            a = [a[t] if t < reach else a[t] * a[t - reach] for t in range(8)]
    for t in range(8):
        axes.text(t, -0.6, f"token {t}" + (", flag" if t in u else ""), ha="center", fontsize=10)
    for round_, name in enumerate(names):
        axes.text(-0.7, round_, name, ha="right", va="center", fontsize=10)
    axes.set(xlim=(-1.4, 7.5), ylim=(3.4, -0.8))
    return (
        "Eight tokens as pairs decay | entry; tokens 1 and 5 are flagged. Each round joins boxes 1, 2 and 4 places apart. "
        "Through a box with an orange frame nothing older gets. The last entries are the states: "
        f"{', '.join(f'{x:g}' for x in w)}."
    )


# The mask


@lesson.figure(
    ["no decay: γ = 1", "γ = 0.8 at every token", "γ = 0 at tokens 4 and 11, else 1"],
    "written: token j",
    "reader: token i",
    size=(9.0, 3.3),
    grid=(1, 3),
    legend=None,
)
def plot_masks(*axes):
    """Draw the mask of decays for three choices."""
    clears = torch.ones(16, dtype=torch.float64)
    clears[[4, 11]] = 0
    for ax, decay in zip(axes, (torch.ones(16), torch.full((16,), 0.8), clears), strict=True):
        ax.imshow(decay_mask(decay).numpy(), cmap="Blues", vmin=0, vmax=1)
        ax.set(xticks=range(0, 16, 4), yticks=range(0, 16, 4))
        ax.grid(visible=False)
    return (
        "Dark where a reader gets all that was written. Left, no decay. Middle, a band that fades. Right, two "
        "decays of 0 cut "
        "the text into three."
    )


def neighbours_by_quotient(dtype: torch.dtype, length: int = 1200) -> Tensor:
    """What running products of 1/2 give for the decay between token i - 1 and token i, by one division."""
    total = torch.full((length,), 0.5, dtype=dtype).cumprod(0)
    return total[1:] / total[:-1]


@lesson.figure(
    "Entry between neighbours, all decays 1/2",
    "token i",
    "γ₀⋯γᵢ / γ₀⋯γᵢ₋₁",
    size=(7.6, 3.1),
    legend=None,
    ylim=(0, 0.8),
    xlim=(0, 1200),
)
def plot_quotients(axes):
    """Draw the quotient of neighbours in two number formats, as far as it is a number."""
    said = []
    for dtype, name, level, look in (
        (torch.float32, "float32", 0.64, {"color": BLUE, "linestyle": "-"}),
        (torch.float64, "float64", 0.56, {"color": PURPLE, "linestyle": "--"}),
    ):
        found = neighbours_by_quotient(dtype)
        last = int(found.isfinite().nonzero().max()) + 1
        axes.plot(np.arange(1, last + 1), found[:last].double().numpy(), linewidth=2, **look)
        axes.axvline(last, color=look["color"], linewidth=0.8, linestyle=":")
        side = {"x": last + 12} if last < 600 else {"x": last - 12, "ha": "right"}
        axes.text(y=level, s=f"{name}: 0/0 from token {last + 1:,}", color=look["color"], fontsize=10, **side)
        said.append(f"{name} up to token {last}")
    return f"The quotient should be 1/2 at every token. It is a number in {' and in '.join(said)}, where it falls to 0."


# Predictions


def _what_is_missing() -> dict[str, str]:
    def error(arm: str) -> str:
        return f"{median(measured('selective', f'{arm}: 64 tokens, by seed')):.2g}"

    return {
        "Units: its memory is too small": f"With four times the parameters the median error is {error(WIDE)}, against "
        f"{error(FIXED)}: better at best by a little.",
        "A gate at the entry, which lets flagged numbers in and keeps the others out": "It has one, and the gate sees the "
        "flag. What has entered is the trouble: it stays.",
        "A way to clear: to drop the old number when a new one comes": right(
            "In A the token sets the decay; the rest agrees, but for two units more in B. The error falls from "
            f"{error(FIXED)} to {error(SELECTIVE)}."),
        "Training: it was stopped too early": f"After three times the steps the median error is {error(LONG)}, against "
        f"{error(FIXED)}.",
    }  # fmt: skip


ask_missing = lesson.prediction(
    "16.P1",
    "Both networks have layers in front of their memory and behind it that see number and flag, and almost as many "
    "parameters. They were trained alike. What does B lack?",
    _what_is_missing,
    reveal=plot_missing,
)


@lesson.figure(
    "One step size sets both: what is kept and what enters",
    "step size Δ",
    "factor",
    size=(5.0, 2.6),
    xscale="log",
    xlim=(0.01, 100),
    ylim=(-0.03, 1.6),
    legend="upper right",
)
def plot_step(axes):
    """Draw decay and entry against the step size, for A = -1, and the entry of the exact solution."""
    step = torch.logspace(-2, 2, 200, dtype=torch.float64)
    axes.plot(step, (-step).exp(), color=BLUE, label="decay of the old state")
    axes.plot(step, step, color=ORANGE, linestyle="--", label="factor of the entry")
    axes.plot(step, 1 - (-step).exp(), color=ORANGE, linestyle=":", label="of the exact solution")
    return (
        "For A = -1: what a step size keeps of the state and what it lets in; dotted, the entry of the exact solution."
    )


@lesson.figure(
    "What one changed number at token 5 does to the factors of later tokens",
    "token",
    "largest change of a factor",
    size=(7.6, 3.1),
    legend=None,
    yscale="symlog",
    example=lambda: (torch.eye(64)[5], torch.linspace(0, 0.2, 64), torch.linspace(0.1, 0, 64)),
)
def plot_factors(axes, selective, above, gru):
    """Draw by how much the factors on the state change at each token."""
    axes.set_yscale("symlog", linthresh=1e-6)
    for changes, color, marker in ((selective, BLUE, "o"), (above, GREEN, "^"), (gru, RED, "s")):
        axes.plot(changes, color=color, marker=marker, markersize=4, linestyle="none")
    axes.set_ylim(-2e-7, 9)
    axes.text(40, 2e-7, "selective layer", color=BLUE, fontsize=10)
    axes.text(22, 1.5, "second selective layer on top", color=GREEN, fontsize=10)
    axes.text(20, 2e-3, "GRU", color=RED, fontsize=10)
    return (
        "By how much the factors change when the number at token 5 is replaced: in the selective layer at token 5 only, "
        "in a second layer on top of it and in the GRU at later tokens too."
    )


ask_factors = lesson.prediction(
    "16.P2",
    "A text is read twice; in the second reading the number at token 5 is another one, and nothing else. It is read by a "
    "selective layer, by a second selective layer whose tokens are the states of the first, and by a GRU. Whose factors on "
    "the old state change at tokens after 5?",
    {
        "Nobody's": "That is true of the first layer alone: it computes a factor from its own token.",
        "Only the GRU's": "The GRU's gate reads its state. But the tokens of the second layer are states, too: those of the "
                          "first, and token 5 has changed them.",
        "The second layer's and the GRU's": right(
            "The second layer's tokens are the first layer's states, and the GRU's gate reads its own. Yet the two layers "
            "are two scans: when the second begins, all its tokens are known. The GRU's states are not."),
        "All three's": "The first layer computes a factor from its own token, and later tokens are the same.",
    },
    reveal=plot_factors,
)  # fmt: skip

ask_quotients = lesson.prediction(
    "16.P3",
    "All decays are 1/2, in float32. One running product $P_i = \\gamma_0\\cdots\\gamma_i$ gives each entry of "
    "the mask by a single "
    "division, $P_i/P_j$. Powers of 1/2 are exact wherever the format has them. Between neighbours the entry should "
    "be 1/2. Up to which token is it?",
    {
        "At all tokens: both products are exact": "They are exact as long as float32 has such small numbers.",
        "To about token 20: float32 has seven digits": "Digits are no trouble: a power of 1/2 needs one. The "
                                                       "exponent runs out.",
        "To about token 150": right("The smallest number in float32 is 2 to the power -149. After it the "
                                    "product is 0, and 0/0 "
                                    "is no number. In float64 that comes at token 1,075."),
        "To about token 1,000": "That is where float64 ends. In float32 the exponent has 8 bits, not 11.",
    },
    reveal=plot_quotients,
)  # fmt: skip

FIGURES = lesson.figures
