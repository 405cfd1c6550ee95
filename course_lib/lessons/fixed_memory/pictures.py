"""Figures, explorer and predictions of lesson 20, fixed_memory."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor
from torch.nn.functional import normalize

from course_lib.attention.feature_maps import elu_features
from course_lib.attention.fixed_memory import (
    expected_recall,
    recalled,
    share_left,
    squared_error,
    unit_vectors,
    write_pairs,
)
from course_lib.attention.recall import TASKS, MemoryDecoders, shares_right, train_side_by_side
from course_lib.lessons.fixed_memory.contents import lesson
from course_lib.measured import measured
from course_lib.teaching import Choice, Explorer, Slider, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, RED, SKY

PAIRS, D, SEED = 128, 64, 7
GRAY = "0.55"


def pairs(count: int = PAIRS, d: int = D, *, overlap: float = 0.0, seed: int = SEED) -> tuple[Tensor, Tensor]:
    """Return `count` random keys and values of length 1, in float64; keys overlap by `overlap` on average."""
    generator = torch.Generator().manual_seed(seed)
    keys = unit_vectors(count, d, overlap=overlap, generator=generator)
    return keys, unit_vectors(count, d, generator=generator)


def centred(keys: Tensor) -> Tensor:
    """Subtract the mean key from each and bring the rest to length 1."""
    return normalize(keys - keys.mean(0), dim=1)


def positive(keys: Tensor) -> Tensor:
    """Return elu + 1 of the keys with entries of size 1, brought to length 1 again: no entry is negative."""
    return normalize(elu_features(keys.shape[1] ** 0.5 * keys), dim=1)


def matches(keys: Tensor, values: Tensor, **write) -> Tensor:
    """Return how each answer matches each stored value: inner products, one row an answer."""
    return keys @ write_pairs(keys, values, **write) @ values.T


def own_and_wrong(table: Tensor) -> tuple[Tensor, Tensor]:
    """Return for each answer its match with its own value, and its largest with any other."""
    wrong = table.clone().fill_diagonal_(-torch.inf)
    return table.diagonal(), wrong.amax(1)


@lesson.figure(
    ["Sums: old and new values win", "Delta rule: mostly new values win"],
    "pair, in the order of writing",
    "match with the answer",
    size=(8.4, 3.6),
    grid=(1, 2),
    subplots={"sharey": True},
    ylim=(-0.25, 1.75),
    legend=[{"loc": "upper left", "ncols": 2, "fontsize": 9}, None],
)
def plot_competition(left, second):
    """Draw for each stored pair the match with its own value and the largest match with another one."""
    keys, values = pairs()
    said = []
    for axes, rule, name in ((left, "sums", "sums"), (second, "delta", "the delta rule")):
        own, wrong = own_and_wrong(matches(keys, values, rule=rule))
        axes.plot(wrong, "x", color=ORANGE, markersize=4, label="best wrong value")
        axes.plot(own, "o", color=BLUE, markersize=4, label="right value")
        share = float((own > wrong).double().mean())
        axes.text(64, -0.2, f"recalled: {share:.0%}", ha="center", va="bottom", fontsize=12, fontweight="bold")
        said.append(f"{name} {share:.0%}")
    return (
        "Inner product of each of 128 answers with the right value (dots) and with the best of 127 wrong ones (crosses). "
        "With sums the dots lie around 1, nearly all above the crosses. With the delta rule they rise with the order of "
        f"writing, and most old ones lie below the crosses. Recalled: {' and '.join(said)}."
    )


READ = 90  # the pair whose answer is taken apart


@lesson.figure(
    ["Which pairs answer: key by key", "What the answer matches: value by value"],
    "pair j, in the order of writing",
    ["inner product with key j", "match with value j"],
    size=(8.8, 3.5),
    grid=(1, 2),
    ylim=(-1.0, 1.4),
    legend=None,
)
def plot_crosstalk(left, second):
    """Draw one answer of the sums taken apart: the weight of each value in it, and its match with each value."""
    keys, values = pairs()
    weights, found = keys @ keys[READ], matches(keys, values)[READ]
    wrong = found.clone()
    wrong[READ] = -torch.inf
    best = int(wrong.argmax())
    for axes, y in ((left, weights), (second, found)):
        axes.vlines(np.arange(PAIRS), 0, y, color=GRAY, linewidth=1.3)
        axes.plot([READ, READ], [0, y[READ]], "-", color=BLUE, linewidth=2.5)
        axes.plot([READ], [y[READ]], "o", color=BLUE)
        axes.axhline(0, color=BLACK, linewidth=0.8)
    left.annotate(
        "its own pair: 1", (READ, 1), (READ - 45, 1.1), color=BLUE, fontsize=10, arrowprops={"arrowstyle": "-"}
    )
    left.text(64, -0.9, "127 others: random signs", color="0.3", ha="center", fontsize=10)
    second.plot([best], [found[best]], "s", color=ORANGE)
    second.text(READ + 3, float(found[READ]) + 0.06, "right value", color=BLUE, fontsize=10)
    second.text(
        best - 3 if best < READ else best + 3,
        float(found[best]) + 0.06,
        f"best wrong value: {float(found[best]):.2f}",
        color="#a05a00",
        ha="right" if best < READ else "left",
        fontsize=10,
    )
    return (
        f"One answer of the sums. Left: the weight of each value in it, 1 for its own and "
        f"{float(np.delete(weights, READ).min()):.2f} "
        f"to {float(np.delete(weights, READ).max()):.2f} for the others. Right: the answer's match with each value, "
        f"{float(found[READ]):.2f} with the right one, at most {float(found[best]):.2f} with a wrong one."
    )


RACE = {16: (8, 16, 24, 32, 48, 64), 32: (16, 32, 64, 96, 128, 192), 64: (64, 128, 192, 256, 384, 512)}


def recall_of_sums(count: int, d: int, draws: int = 5) -> list[float]:
    """Return the share of pairs that sums recall, for several draws of keys and values."""
    shares = []
    for seed in range(draws):
        keys, values = pairs(count, d, seed=seed)
        shares.append(float(recalled(keys @ write_pairs(keys, values), values).double().mean()))
    return shares


@cache
def race_runs() -> dict[int, dict[int, list[float]]]:
    """Return the shares recalled by d and N, five draws each."""
    return {d: {count: recall_of_sums(count, d) for count in counts} for d, counts in RACE.items()}


def half_recalled(d: int) -> float:
    """Return the N at which sums recall half of the pairs, by interpolation of log N between measured means."""
    counts = RACE[d]
    means = [float(np.mean(shares)) for shares in race_runs()[d].values()]
    return float(np.exp(np.interp(-0.5, -np.array(means), np.log(counts))))


@lesson.figure(
    "Twice the entries, about three times the pairs",
    "pairs written, N (logarithmic)",
    "share recalled",
    size=(6.4, 3.6),
    xscale="log",
    xlim=(7, 1100),
    ylim=(-0.03, 1.08),
    legend=None,
)
def plot_race(axes):
    """Draw the share that sums recall against N for three sizes: means and ranges, and the race of random matches."""
    said = []
    for d, color, look in ((16, ORANGE, "s"), (32, GREEN, "^"), (64, BLUE, "o")):
        runs = race_runs()[d]
        means = np.array([np.mean(shares) for shares in runs.values()])
        ends = np.array([[min(s), max(s)] for s in runs.values()]).T
        grid = np.geomspace(RACE[d][0], RACE[d][-1], 25)
        axes.plot(grid, [expected_recall(round(n), d) for n in grid], "-", color=color, linewidth=1.3)
        axes.errorbar(list(runs), means, np.abs(ends - means), fmt=look, color=color, capsize=3, markersize=6)
        half = half_recalled(d)
        axes.annotate(
            f"d = {d}:\nhalf at {half:.0f}",
            (half, 0.5),
            (half * 0.6, 0.06),
            color=color,
            fontsize=10,
            fontweight="bold",
        )
        said.append(f"{half:.0f} for d = {d}")
    axes.axhline(0.5, color=GRAY, linewidth=1, linestyle=":")
    axes.set_xticks([8, 16, 32, 64, 128, 256, 512], [8, 16, 32, 64, 128, 256, 512])
    axes.set_xticks([], minor=True)
    return (
        "Share of N pairs that sums recall: marks are means and ranges of five draws, curves the race of random "
        "matches. Between the marks it is "
        f"one half at N = {', '.join(said)}."
    )


AGES = torch.arange(PAIRS - 1, -1, -1, dtype=torch.float64)
STEP_SIZES = (1.0, 0.5, 0.1)


@cache
def fading(step_size: float, draws: int = 20) -> tuple[Tensor, Tensor]:
    """Return the share of each value in its own answer, and the share recalled by quarter: means over draws."""
    own, quarters = torch.zeros(PAIRS, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    for seed in range(draws):
        keys, values = pairs(seed=seed)
        answers = keys @ write_pairs(keys, values, rule="delta", step_size=step_size)
        own += (answers * values).sum(1) / draws
        quarters += recalled(answers, values).double().view(4, -1).mean(1) / draws
    return own, quarters


@lesson.figure(
    ["Each later write takes a share of what is left", "Which pairs are recalled"],
    ["pairs written since, t", "quarter of the pairs, oldest first"],
    ["match with the right value", "share recalled"],
    size=(8.4, 3.6),
    grid=(1, 2),
    ylim=[(-0.08, 1.15), (0, 1.2)],
    legend=[{"loc": "upper right", "fontsize": 10}, {"loc": "upper center", "ncols": 3, "fontsize": 10}],
)
def plot_fading(left, second):
    """Draw how much of a value the delta rule still answers by age, and what it recalls, for three step sizes."""
    said = []
    for place, (step_size, color, look, style) in enumerate(
        zip(STEP_SIZES, (RED, PURPLE, BLUE), "osD", ("-", "--", "-."), strict=True)
    ):
        own, quarters = fading(step_size)
        left.plot(AGES[::4], own[::4], look, color=color, markersize=4, alpha=0.7)
        left.plot(
            AGES,
            share_left(AGES, D, step_size=step_size),
            style,
            color=color,
            linewidth=1.8,
            label=f"η = {step_size:g}",
        )
        bars = second.bar(
            np.arange(4) + 0.27 * (place - 1), quarters, 0.25, color=color, label=f"η = {step_size:g}",
            hatch=("", "//", "")[place], edgecolor="white",
        )  # fmt: skip
        second.bar_label(bars, [f"{100 * float(q):.0f}" for q in quarters], fontsize=8)
        said.append(f"η = {step_size:g}: {', '.join(f'{float(q):.0%}' for q in quarters)}")
    second.set_xticks(range(4), ["oldest", "2nd", "3rd", "newest"])
    return (
        "Delta rule, 128 pairs, 64 entries, means of 20 draws. Left: match with the right value by age; marks are measured, "
        "curves η(1 - η/d)^t. A long step starts high and fades fast. Right: share recalled by quarter, oldest first. "
        f"{'; '.join(said)}."
    )


GRAM_KEYS = 24
KINDS = {
    "random": lambda: pairs(GRAM_KEYS)[0],
    "overlap 0.3": lambda: pairs(GRAM_KEYS, overlap=0.3)[0],
    "elu + 1 of random keys": lambda: positive(pairs(GRAM_KEYS)[0]),
    "elu + 1, mean subtracted": lambda: centred(positive(pairs(GRAM_KEYS)[0])),
}


def mean_overlap(keys: Tensor) -> float:
    """Return the mean inner product of two different keys."""
    gram = keys @ keys.T
    return float((gram.sum() - gram.trace()) / (len(keys) * (len(keys) - 1)))


@lesson.figure(
    list(KINDS),
    "key j",
    "key i (red 1, white 0, blue below 0)",
    size=(11.0, 3.3),
    grid=(1, 4),
    xticks=(),
    yticks=(),
    legend=None,
)
def plot_grams(*axes):
    """Draw the inner products of 24 keys of four kinds as heat maps with one colour scale."""
    said = []
    for one, (name, make) in zip(axes, KINDS.items(), strict=True):
        keys = make()
        one.imshow(keys @ keys.T, cmap="RdBu_r", vmin=-1, vmax=1)
        one.grid(False)
        mean = round(mean_overlap(keys), 2) + 0.0  # no -0.00
        one.set_xlabel(f"key j; mean inner product: {mean:.2f}")
        one.set_ylabel(one.get_ylabel(), fontsize=8)
        said.append(f"{name} {mean:.2f}")
    return (
        "Inner products of 24 keys with 64 entries, four kinds of keys; elu + 1 is taken of keys with entries of size 1. "
        f"Mean of two different keys: {', '.join(said)}."
    )


WRITES = (0, 1, 2, 0, 1, 0, 2, 1)  # which key is written, in order
DECAY = 0.8


def weights_of_values(rule: str, **options) -> Tensor:
    """Return what the answer at key 0 takes of each of the values written, for orthonormal keys."""
    keys = torch.eye(3, dtype=torch.float64)[list(WRITES)]
    return write_pairs(keys, torch.eye(len(WRITES), dtype=torch.float64), rule=rule, **options)[0]


@lesson.figure(
    ["sums", f"decay, γ = {DECAY}", "delta rule, η = 1"],
    "write",
    "weight in the answer at key A",
    size=(8.6, 3.0),
    grid=(1, 3),
    subplots={"sharey": True},
    ylim=(0, 1.25),
    legend=None,
)
def plot_rewritten(*axes):
    """Draw the weight of each value written in the answer at one key, for the three rules."""
    said = []
    for one, (rule, options) in zip(axes, (("sums", {}), ("decay", {"decay": DECAY}), ("delta", {})), strict=True):
        weights = weights_of_values(rule, **options)
        latest = max(i for i, key in enumerate(WRITES) if key == 0)
        colors = [BLUE if i == latest else ORANGE for i in range(len(WRITES))]
        bars = one.bar(range(len(WRITES)), weights, color=colors)
        for i in range(len(WRITES)):
            bars[i].set_hatch("" if i == latest else "//")
        one.set_xticks(range(len(WRITES)), ["ABC"[key] for key in WRITES])
        one.bar_label(bars, [f"{float(w):.2g}" if w > 0 else "" for w in weights], fontsize=9)
        said.append(f"{rule} {', '.join(f'{float(w):.2g}' for w in weights[[0, 3, 5]])}")
    axes[0].text(5, 1.15, "latest", color=BLUE, ha="center", fontsize=10)
    return (
        "Eight writes to three orthonormal keys. Bars: the weight of each value in the answer at A, for A's three values: "
        f"{'; '.join(said)}."
    )


# The trained layers.

ARMS = {
    "sums": ("sums", "sums, elu + 1"),
    "decay": ("decay", "decay, elu + 1"),
    "delta rule": ("delta", "delta, elu + 1"),
}
BESIDE = {"softmax, all tokens": "softmax", "softmax, last 8": "window", "untrained": "untrained"}


def stored_shares(task: str, arm: str, size: int = 16) -> list[float]:
    """Return the stored shares right on texts of `size`, one a seed, at the arm's best step size."""
    return measured("recall", f"{task}, {arm}")["right"][str(size)]


def stored_table() -> Markdown:
    """Return the stored shares right of 16: median, lowest and highest of five seeds."""

    def cell(task: str, arm: str) -> str:
        shares = stored_shares(task, arm)
        return f"{np.median(shares):.2f} ({min(shares):.2f}–{max(shares):.2f})"

    rows = [
        (f"{name}, {kind}", cell("copying", arm), cell("rewritten", arm))
        for place, kind in enumerate(("signed keys", "elu + 1"))
        for name, arm in ((name, arms[place]) for name, arms in ARMS.items())
    ]
    rows += [(name, cell("copying", arm), cell("rewritten", arm)) for name, arm in BESIDE.items()]
    return markdown_table(("median (range)", "copying", "keys written again"), rows)


@lesson.figure(
    ["Copying: the keys decide", "Keys written again: the rule decides"],
    "share right of 16",
    "memory",
    size=(8.6, 4.0),
    grid=(1, 2),
    subplots={"sharey": True},
    xlim=(-0.03, 1.05),
    legend=[{"loc": "upper center", "ncols": 2, "fontsize": 9}, None],
)
def plot_trained(left, second):
    """Draw the stored shares right of each arm, one mark a seed, with a bar at the median."""
    names = [*ARMS, *BESIDE]
    for axes, task in ((left, "copying"), (second, "rewritten")):
        for row, name in enumerate(names):
            if name in BESIDE:
                shown = [(BESIDE[name], None, GRAY, "D", 0)]
            else:
                looks = (("signed keys", "elu + 1"), (BLUE, ORANGE), "os", (-0.17, 0.17))
                shown = zip(ARMS[name], *looks, strict=True)
            for arm, label, color, look, shift in shown:
                shares = stored_shares(task, arm)
                y = len(names) - 1 - row - shift
                axes.plot(
                    shares,
                    [y] * len(shares),
                    look,
                    color=color,
                    markersize=5,
                    alpha=0.75,
                    label=label if not row else None,
                )
                axes.plot([np.median(shares)] * 2, [y - 0.15, y + 0.15], "-", color=color, linewidth=2.5)
        axes.set_ylim(-0.6, len(names) + 0.3)
        axes.set_yticks(range(len(names)), names[::-1])
    return (
        "Share right of 16 on new texts: five seeds as marks, medians as bars, each arm at its best rate. "
        "The table below holds the numbers."
    )


def trained(rule: str, *, elu: bool, step_size: float, seeds: Sequence[int] = (0, 1), steps: int = 300) -> list[float]:
    """Train small decoders to copy 4, 8 and 16 tokens; return the share right of 16, one a seed."""
    draw, vocab_size = TASKS["copying"]
    models = MemoryDecoders(rule, vocab_size=vocab_size, seeds=seeds, positive=elu)
    train_side_by_side(models, draw, (4, 8, 16), steps=steps, step_sizes=[step_size] * len(seeds))
    return shares_right(models, draw, 16).tolist()


@lesson.explorer
class MemoryExplorer(Explorer):
    """Write N pairs, read one: the match of its answer with every stored value, and what is recalled by age."""

    title = "Write N pairs, read one"
    summary = (
        "Left: the inner product of the answer to one stored key with every stored value, the right value "
        "marked by a dot and "
        "the best wrong one by a square. Right: the share of pairs recalled in each quarter, the oldest first."
    )
    count = Slider("pairs written", "N", "How many pairs of a key and a value are written", 128, 16, 512, 16)
    d = Slider("entries", "d", "Entries of a key and of a value; the memory has d times d numbers", 64, 16, 64, 16)
    rule = Choice("rule", "How a pair is written", "delta rule", ("sums", "delta rule"))
    step_size = Slider("step size", "η", "Share of the difference that the delta rule writes", 1.0, 0.05, 1.0, 0.05)
    overlap = Slider("overlap of keys", "", "Mean inner product of two different keys", 0.0, 0.0, 0.6, 0.1)
    keys = Choice(
        "keys", "Whether the mean of all keys is subtracted before writing and reading", "as they are",
        ("as they are", "mean subtracted"),
    )  # fmt: skip
    read = Slider("pair read", "at", "Which pair is asked: 0 is the oldest, 100 the newest", 30, 0, 100, 5, unit="%")
    together = ("count", "rule")
    size = (9.6, 3.2)
    dpi = 100
    strip_scale = 0.64
    layout = panels(
        ["Match of one answer with each value", "Recalled, by age"],
        ["pair, in the order of writing", "quarter of the pairs"],
        ["inner product", "share recalled"],
        grid=(1, 2),
        legend=[{"loc": "upper right", "ncols": 2, "fontsize": 9}, None],
        subplots={"width_ratios": [1.7, 1]},
        xlim=[(-0.02, 1.02), (-0.6, 3.6)],
        ylim=[(-1.3, 2.6), (0, 1.05)],
        xticks=[[0, 1], [0, 1, 2, 3]],
        xticklabels=[["oldest", "newest"], ["oldest", "2nd", "3rd", "newest"]],
    )

    def compute(self, *, count, d, rule, step_size, overlap, keys, read):
        """Return the matches of one answer, the error of all, and the shares recalled by quarter."""
        k, v = pairs(count, d, overlap=overlap)
        if keys == "mean subtracted":
            k = centred(k)
        write = {"rule": "sums"} if rule == "sums" else {"rule": "delta", "step_size": step_size}
        answers = k @ write_pairs(k, v, **write)
        asked = round(read / 100 * (count - 1))
        found, hit = answers[asked] @ v.T, recalled(answers, v)
        wrong = found.clone()
        wrong[asked] = -torch.inf
        best, place = int(wrong.argmax()), torch.linspace(0, 1, count, dtype=torch.float64)
        # One line, which returns to the axis between two bars.
        x = torch.stack([place, place, place], 1).flatten()
        y = torch.stack([0 * found, found, 0 * found], 1).flatten()
        quarters = hit.double().view(4, -1).mean(1)
        shown = lambda number: min(max(float(number), -1.25), 2.55)  # noqa: E731
        return {
            "bars": (x, y),
            "right": (float(place[asked]), shown(found[asked])),
            "wrong": (float(place[best]), shown(found[best])),
            "quarters": [float(q) for q in quarters],
            "error": squared_error(answers, v),
            "recalled": float(hit.double().mean()),
            "own": float(found[asked]),
            "best": float(found[best]),
            "hit": bool(hit[asked]),
            "asked": asked + 1,
            "count": count,
            "how": "Sums" if rule == "sums" else f"Delta rule, step size {step_size:g}",
        }

    def draw(self, left, second):
        """Draw the axis, empty bars and marks."""
        left.axhline(0, color=BLACK, linewidth=0.8)
        (bars,) = left.plot([], [], "-", color=GRAY, linewidth=1.0)
        (own,) = left.plot([], [], "o", color=BLUE, markersize=8, label="right value")
        (wrong,) = left.plot([], [], "s", color=ORANGE, markersize=7, label="best wrong value")
        shares = list(second.bar(range(4), [0.0] * 4, color=SKY, edgecolor=BLUE))
        return {"bars": bars, "right": own, "wrong": wrong, "quarters": shares}

    def words(self, state):
        """Say what the pair read matches, and error and recall of all pairs."""
        verdict = "recalled" if state["hit"] else "not recalled"
        return (
            f"{state['how']}: pair {state['asked']} of {state['count']} is {verdict}. Its answer matches the right value by "
            f"{state['own']:.2f}, the best wrong one by {state['best']:.2f}. Over all pairs the squared error is "
            f"{state['error']:.2f}, and {state['recalled']:.0%} are recalled."
        )


recall_prediction = lesson.prediction(
    "20.P1",
    "The memory is used like this: a stored key is read, and whichever of the 128 stored values is nearest to the answer is "
    "taken. Which of the two memories gives back more of the 128 values?",
    {
        "The delta rule: its error is about half as large": "Its error is smaller, but that says how far an answer is from "
        "its value, not which value is nearest. It recalls about half of the pairs, and sums nearly all.",
        "Both give back few: answering 0 would have the error 1": "An answer of 0 has the error 1 and no direction. The "
        "answers of the sums are far off and still point at the right value.",
        "Both give back about the same": "They do not: sums recall nearly all, the delta rule about half.",
        "The sums, although their error is larger": right(
            "What is added to a value by all others points nowhere in particular. It makes the answer wrong, and no "
            "other value near."
        ),
    },
    reveal=plot_competition,
)

growth_prediction = lesson.prediction(
    "20.P2",
    "Call N½ the number of random pairs at which sums recall one half. The entries $d$ of keys and values are "
    "doubled, from 32 "
    "to 64. What happens to N½?",
    {
        "It stays the same": "Crosstalk shrinks as d grows: there is more room.",
        "It doubles": "That would be a limit by dimension, one pair for so many directions. It limits exact answers; "
        "here the right value only has to be the nearest.",
        "It about triples": right(
            "It follows the d² numbers of the matrix, less a logarithm: among more values the luckiest wrong one "
            "matches better."
        ),
        "It grows sixteenfold": "The matrix has four times as many numbers. It cannot hold sixteen times as much.",
    },
    reveal=plot_race,
)

training_prediction = lesson.prediction(
    "20.P3",
    "Training may choose the keys. A small layer has plain sums, and keys that went through elu + 1, so that no entry is "
    "negative. You may change one thing: take the delta rule for the sums, or take the keys as they are, with both signs. "
    "Which change helps more in copying 16 different tokens, and which in finding the latest values of keys written again?",
    {
        "The rule, in both": "It helps where keys are written again. In copying, the delta rule hardly gets further than "
        "sums as long as keys are positive.",
        "The keys, in both": "They help copying. Where keys are written again, sums find half of the latest values with "
        "either kind of keys.",
        "Copying: the keys. Written again: the rule": right(
            "With signed keys all three rules copy far more than any of them does with elu + 1. But a sum keeps the old "
            "value of a key however the keys are chosen; delta rule and decay do not."
        ),
        "Copying: the rule. Written again: the keys": "It is the other way round: training cannot make positive keys "
        "orthogonal unless they have no entry in common, and no choice of keys removes an old value from a sum.",
    },
    reveal=plot_trained,
)

FIGURES = lesson.figures
