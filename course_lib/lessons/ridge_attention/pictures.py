"""Figures, explorer and predictions of lesson 22, ridge_attention."""

from functools import cache, lru_cache
from statistics import mean

import numpy as np
import torch
from IPython.display import Markdown
from matplotlib.patches import Rectangle
from torch import Tensor
from torch.nn.functional import normalize

from course_lib.attention.ridge import operations, ridge_attention, ridge_memory, sherman_morrison
from course_lib.lessons.ridge_attention.contents import lesson
from course_lib.lessons.ridge_attention.experiment import (
    ORDERS,
    SEEDS,
    STEPS,
    closing,
    digits,
    in_order,
    swept,
    values_of,
)
from course_lib.measured import quote
from course_lib.teaching import Choice, Explorer, Slider, lines, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, GREEN, PURPLE, RED


def by_correction(keys: Tensor, values: Tensor, *, rule: str, step_size: float | int = 0.1, penalty: float | int = 1.0):
    """Return the memory after all pairs, each read once: ask first, then correct by a multiple of the error.

    The delta rule moves along the key, ridge attention along P k, where P is updated after each key (22.5, 22.6).
    """
    memory = keys.new_zeros(keys.shape[1], values.shape[1])
    inverse = torch.eye(keys.shape[1], dtype=keys.dtype) / penalty
    for key, value in zip(keys, values, strict=True):
        error = value - key @ memory
        if rule == "delta":
            memory = memory + torch.outer(step_size * key, error)
        else:
            moved = inverse @ key
            gain = moved / (1 + key @ moved)
            memory, inverse = memory + torch.outer(gain, error), inverse - torch.outer(gain, moved)
    return memory


@cache
def read_once(seed: int, *, rule: str, order: str) -> Tensor:
    """Return the memory after the 1,000 stored digits of a split: delta rule with step 0.1, ridge with penalty 1."""
    keys, labels = digits(seed)[0]
    place = in_order(labels, order)
    return by_correction(keys[place], values_of(labels[place]), rule=rule)


def _shown(keys: Tensor) -> np.ndarray:
    """Return images of 8 x 8 side by side, with white lines between them, in an array of 8 rows."""
    images = keys.reshape(-1, 8, 8).numpy()
    images = images / np.abs(images).max((1, 2), keepdims=True)
    return np.concatenate([np.pad(image, ((0, 0), (0, 1)), constant_values=np.nan) for image in images], 1)[:, :-1]


def _label(axes, labels) -> None:
    """Write a class below each image of a row."""
    for place, label in enumerate(labels):
        axes.text(9 * place + 3.5, 8.2, str(int(label)), ha="center", va="top", fontsize=9)


@lesson.figure(
    ["As they come", "Sorted: all zeros, then all ones, ... (every fiftieth)"],
    size=(7.2, 2.1),
    grid=(2, 1),
    bare=True,
)
def plot_streams(mixed, by_class):
    """Draw twenty keys of either stream as images."""
    keys, labels = digits()[0]
    for axes, place in ((mixed, torch.arange(20)), (by_class, in_order(labels, "sorted")[::50])):
        axes.imshow(_shown(keys[place]), cmap="gray", vmin=-1, vmax=1)
        _label(axes, labels[place])
    return (
        "Twenty keys as images, with their classes below. Upper row: as they come. Lower row: sorted, every fiftieth."
    )


@cache
def by_class(rule: str, order: str) -> np.ndarray:
    """Return the share of new digits right in each class, one row a split."""
    rows = []
    for seed in SEEDS:
        keys, labels = digits(seed)[2]
        hit = (keys @ read_once(seed, rule=rule, order=order)).argmax(1) == labels
        rows.append([float(hit[labels == digit].double().mean()) for digit in range(10)])
    return np.array(rows)


@lesson.figure(
    "After reading the digits sorted by class",
    "class of the new digit",
    "share right",
    size=(6.4, 3.0),
    legend={"loc": "upper center", "ncols": 2, "fontsize": 9},
    xticks=range(10),
    ylim=(0, 1.25),
)
def plot_sorted(axes):
    """Draw what both memories get right of each class after the sorted stream."""
    for shift, (rule, name, color, hatch) in zip(
        (-0.2, 0.2), (("delta", "delta rule", RED, "//"), ("ridge", "ridge attention", GREEN, None)), strict=True
    ):
        shares = by_class(rule, "sorted")
        low, high = shares.mean(0) - shares.min(0), shares.max(0) - shares.mean(0)
        look = {"color": color, "hatch": hatch, "edgecolor": "white", "ecolor": BLACK, "capsize": 2}
        axes.bar(np.arange(10) + shift, shares.mean(0), 0.38, yerr=[low, high], label=name, **look)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1])
    delta, ridge = by_class("delta", "sorted").mean(0), by_class("ridge", "sorted").mean(0)
    return (
        "Share of new digits right in each class: means and ranges of five splits. "
        f"Delta rule: {delta.min():.0%} for the class {delta.argmin()}, {delta[9]:.0%} for the nines that came last. Ridge "
        f"attention: {ridge.min():.0%} to {ridge.max():.0%}."
    )


def two_of_each() -> tuple[Tensor, Tensor]:
    """Return the keys and labels of the first two stored digits of each class."""
    keys, labels = digits()[0]
    place = torch.cat([torch.nonzero(labels == digit)[:2, 0] for digit in range(10)])
    return keys[place], labels[place]


def answers_at_stored_keys(*, penalty: float | int = 0.01, scale: float | int = 20) -> dict[str, Tensor]:
    """Return what twenty stored keys read, two of each class: by sums, by ridge attention and by softmax attention."""
    keys, labels = two_of_each()
    values = values_of(labels)
    return {
        "sums": keys @ (keys.T @ values),
        "ridge": keys @ ridge_memory(keys, values, penalty=penalty),
        "softmax": torch.softmax(scale * keys @ keys.T, 1) @ values,
    }


@lesson.figure(
    ["keys $K$", "values $V$", "sums", "ridge", "softmax"],
    ["entry"] * 5,
    "pair",
    size=(9.0, 3.9),
    grid=(1, 5),
    subplots={"width_ratios": [2.1, 1, 1, 1, 1], "sharey": True},
    legend=None,
)
def plot_answers(*axes):
    """Draw twenty pairs as heat maps, and what three kinds of attention answer at the stored keys."""
    keys, labels = two_of_each()
    tables = [3 * keys, values_of(labels), *answers_at_stored_keys().values()]
    for place, (one, table) in enumerate(zip(axes, tables, strict=True)):
        picture = one.imshow(table.numpy(), cmap="RdBu_r", vmin=-1.5, vmax=1.5, aspect="auto")
        one.set_xticks([0, 63] if place == 0 else [0, 9])
        one.grid(visible=False)
    axes[0].set_yticks([0, 19])
    bar = axes[0].figure.colorbar(picture, ax=list(axes), shrink=0.8, extend="both", label="entry (keys: 3 × entry)")
    bar.ax.set_xlabel("colours", labelpad=14)
    return (
        "Twenty pairs, two of each class, and what three kinds of attention answer at the stored keys. The values form "
        "a staircase. Answers of the sums: the staircase, and much else of either sign. Of ridge and softmax attention: "
        "nearly the staircase alone. Entries beyond 1.5 on either side have the last colour."
    )


@cache
def two_memories() -> dict[str, Tensor]:
    """Return the memories of all 1,000 digits, by sums and by ridge attention with penalty 1."""
    keys, labels = digits()[0]
    values = values_of(labels)
    return {"sums": keys.T @ values, "ridge": ridge_memory(keys, values, penalty=1.0)}


@lesson.figure(
    ["Sums: ten average images", "Ridge attention: what sets a class apart"],
    size=(7.0, 2.7),
    grid=(2, 1),
    bare=True,
)
def plot_memories(of_sums, of_ridge):
    """Draw the ten columns of both memories as images."""
    for axes, memory in zip((of_sums, of_ridge), two_memories().values(), strict=True):
        axes.imshow(_shown(memory.T), cmap="RdBu_r", vmin=-1, vmax=1)
        _label(axes, range(10))
    return (
        "The ten columns of the memory as images, for the classes 0 to 9: red above, blue below zero, each image scaled by "
        "its largest entry. Upper row, the sums: smooth, blurred digits. Lower row, ridge attention: finer patterns."
    )


@lesson.figure(None, "tokens $n$", "multiplications", legend="upper left", xscale="log", yscale="log", size=(5.2, 3.4))
def plot_costs(axes, *, width: int = 64):
    """Draw the multiplications for the inverse against the number of tokens."""
    tokens = np.unique(np.logspace(0, 4, 60).astype(int))
    methods = {
        "one inversion in all, $n d^2 + d^3$": "single",
        "one inversion a token, $n d^3$": "resolve",
        "one rank-one update a token, $2 n d^2$": "rank_one",
    }
    counts = {label: [operations(int(n), width, method=method) for n in tokens] for label, method in methods.items()}
    lines(axes, tokens, counts)
    axes.axvline(width, color=BLACK, linewidth=1, linestyle=":", label="$n = d$")
    axes.grid(visible=False)
    axes.set_title(f"Multiplications for the inverse (d = {width})")
    return (
        f"Multiplications for the inverse against the number of tokens, width {width}. Inverting anew at every token costs "
        f"{width // 2} times as much as updating. A single inversion after the last token costs half as much as all updates "
        "once there are many more tokens than dimensions, and more where there are fewer."
    )


@lesson.figure(size=(8.2, 3.6), bare=True, xlim=(-1.6, 17.4), ylim=(-1.0, 6.9), aspect="equal")
def plot_prefixes(axes, tokens: int = 6, seen: int = 3, width: int = 4):
    """Draw that the first rows of L and of B alone decide the first rows of Z, where L Z = B."""
    parts = ((0, tokens, "L"), (tokens + 1, width, "Z"), (tokens + width + 3, width, "B"))
    for left, columns, name in parts:
        for row in range(tokens):
            for column in range(columns):
                shaded, zero = row < seen, name == "L" and column > row
                color = "white" if zero else BLUE if shaded else "0.88"
                place = (left + column * 5 / tokens if name == "L" else left + column, tokens - 1 - row)
                look = {"facecolor": color, "alpha": 0.55 if shaded and not zero else 1.0, "edgecolor": "0.6"}
                axes.add_patch(Rectangle(place, 5 / tokens if name == "L" else 1, 1, **look))
        middle = left + (2.5 if name == "L" else columns / 2)
        axes.text(middle, tokens + 0.25, f"${name}$", ha="center", fontsize=14)
    axes.text(tokens + width + 2, tokens / 2, "=", ha="center", va="center", fontsize=18)
    axes.text(-0.2, tokens - seen / 2, f"first {seen}\ntokens", ha="right", va="center", fontsize=9)
    axes.text(2.5, -0.75, "lower triangle", ha="center", fontsize=9)
    return (
        f"L, a lower triangle of {tokens} rows, times Z equals B. In the first {seen} rows, shaded, L has entries in the "
        f"first {seen} columns only: the first {seen} rows of Z follow from those of B, and later tokens cannot change them."
    )


@lesson.figure(
    "One new pair: which way the memory moves",
    "first entry of $W$",
    "second entry of $W$",
    size=(4.8, 3.8),
    legend={"loc": "upper right", "fontsize": 7.5},
    xlim=(-0.2, 2.4),
    ylim=(-0.5, 2.0),
    aspect="equal",
)
def plot_directions(axes):
    """Draw the step of ridge attention and that of the delta rule, for two keys with two entries."""
    keys = torch.tensor([[1.0, 0.0], [0.8, 0.6]], dtype=torch.float64)
    values = torch.tensor([[0.6], [1.1]], dtype=torch.float64)
    before, after = (ridge_memory(keys[:n], values[:n], penalty=0.05)[:, 0].numpy() for n in (1, 2))
    key, value = keys[1].numpy(), float(values[1])
    delta = before + key * (key @ (after - before)) / (key @ key)  # the same answer to the new key
    gram = np.diag([1.05, 0.05])
    angle = np.linspace(0, 2 * np.pi, 200)
    for end, color, style in ((after, GREEN, "-"), (delta, RED, "-.")):
        size = np.sqrt((end - before) @ gram @ (end - before) / np.diag(gram))
        around = before[:, None] + size[:, None] * np.stack([np.cos(angle), np.sin(angle)])
        axes.plot(*around, color=color, linestyle=style, linewidth=1, alpha=0.6)
    axes.axvline(float(values[0]), color=BLACK, linestyle="--", label="answers the old pair exactly")
    x = np.array([-0.2, 2.4])
    axes.plot(x, (value - key[0] * x) / key[1], color="0.45", linestyle=":", label="answers the new pair exactly")
    for end, color, name, offset in ((after, GREEN, "ridge", (8, 6)), (delta, RED, "delta rule", (8, 2))):
        arrow = {"arrowstyle": "-|>", "color": color, "linewidth": 2.2, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", end, before, arrowprops=arrow)
        axes.annotate(name, end, offset, textcoords="offset points", color=color)
    axes.plot(*before, "o", color=BLACK, label="memory before the new pair")
    return (
        "Memories W with two entries, penalty 0.05. The old pair is answered on the dashed line, the new one on the dotted "
        "line. Both steps leave the new pair the same error; the delta rule ends on the larger ellipse of equal (22.1)."
    )


INVERSE_MARKS = tuple(int(n) for n in np.unique(np.logspace(0, 4, 33).astype(int)))


@cache
def inverse_errors(penalty: float, *, tokens: int = 10_000, refresh: int | None = None) -> dict[int, float]:
    """Return the relative error of an inverse updated in float32, in 16 dimensions, after some numbers of tokens."""
    generator = torch.Generator().manual_seed(0)
    keys = normalize(torch.randn(tokens, 16, generator=generator, dtype=torch.float64), dim=1)
    inverse = torch.eye(16, dtype=torch.float32) / penalty
    gram, errors = penalty * torch.eye(16, dtype=torch.float64), {}
    for t, key in enumerate(keys, 1):
        gram = gram + torch.outer(key, key)
        inverse = sherman_morrison(inverse, key.float(), key.float())
        inverse = torch.linalg.inv(gram.float()) if t == refresh else inverse
        if t in INVERSE_MARKS:
            exact = torch.linalg.inv(gram)
            errors[t] = float((inverse.double() - exact).norm() / exact.norm())
    return errors


@lesson.figure(
    "Where an updated inverse loses its digits (float32)",
    "tokens $n$",
    "relative error of $P_n$",
    size=(7.0, 3.8),
    legend="upper right",
    xscale="log",
    yscale="log",
    ylim=(1e-8, 1e-1),
    example=lambda: (inverse_errors(1e-4), inverse_errors(1e-2), inverse_errors(1e-4, refresh=100)),
)
def plot_digits(axes, plain: dict[int, float], larger: dict[int, float], fresh: dict[int, float]):
    """Draw measured errors of the inverse after each number of tokens: a small penalty, a larger one, one inversion."""
    curves = {"$\\lambda = 10^{-4}$": plain, "$\\lambda = 10^{-2}$": larger, "computed anew once, at 100": fresh}
    lines(axes, None, {name: (list(errors), list(errors.values())) for name, errors in curves.items()})
    axes.axvline(16, color=BLACK, linewidth=1, linestyle=":", label="as many tokens as dimensions")
    return (
        "Relative error of the updated inverse against the number of tokens, both logarithmic. With lambda = 0.0001 it "
        "peaks soon after 16 tokens and falls from there; with the larger penalty the peak is much lower; computed anew "
        "once after 100 tokens it falls to a millionth or less at that point."
    )


def changing_pairs(
    *, runs: int = 20, tokens: int = 400, width: int = 8, noise: float = 0.1, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Return normal keys, and values M k + noise, (runs, tokens, width); at half of the tokens another map M takes over."""
    generator = torch.Generator().manual_seed(seed)
    randn = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    keys, maps = randn(runs, tokens, width), (randn(runs, width, width), randn(runs, width, width))
    values = torch.cat([k @ m for k, m in zip(keys.chunk(2, 1), maps, strict=True)], 1)
    return keys, values + noise * randn(runs, tokens, width)


def window_answers(queries: Tensor, keys: Tensor, values: Tensor, *, window: int, penalty: float | int) -> Tensor:
    """Return what each query reads from the ridge memory of the latest `window` pairs."""
    answers = []
    for end in range(1, keys.shape[1] + 1):
        start = max(0, end - window)
        memory = ridge_memory(keys[:, start:end], values[:, start:end], penalty=penalty)
        answers.append(queries[:, end - 1 : end] @ memory)
    return torch.cat(answers, 1)


def tracking_errors(*, decay: float | int = 1.0, window: int | None = None, penalty: float | int = 0.01) -> Tensor:
    """Return for each token of `changing_pairs` how wrong the next value is predicted: squared error over squared size."""
    keys, values = changing_pairs()
    ahead, stored = keys[:, 1:], (keys[:, :-1], values[:, :-1])
    if window is None:
        answers = ridge_attention(ahead, *stored, penalty=penalty, decay=decay)
    else:
        answers = window_answers(ahead, *stored, window=window, penalty=penalty)
    return (answers - values[:, 1:]).square().sum((0, 2)) / values[:, 1:].square().sum((0, 2))


@cache
def tracked() -> dict[str, Tensor]:
    """Return the errors of memories that never forget, that fade, and that keep a window of 39 pairs."""
    fading = {"decay 0.95": tracking_errors(decay=0.95), "window of 39 pairs": tracking_errors(window=39)}
    return {"no forgetting": tracking_errors(), **fading}


@lesson.figure(
    "The map changes at token 200",
    "tokens read",
    "relative squared error of the next value",
    size=(5.4, 3.2),
    legend={"loc": "upper left", "fontsize": 9},
    yscale="log",
    ylim=(5e-4, 60),
    example=tracked,
)
def plot_forgetting(axes, errors: dict[str, Tensor]):
    """Draw how wrong the next value is predicted, for memories that forget differently."""
    blocks = {name: error[9:].view(-1, 10).mean(1) for name, error in errors.items()}  # none holds both maps
    lines(axes, np.arange(14.5, 400, 10), blocks, linewidth=1.6)
    axes.axvline(200, color=BLACK, linewidth=0.8, linestyle=":")
    axes.grid(visible=False)
    said = [f"{name} {float(error[-100:].mean()):.2g}" for name, error in errors.items()]
    return (
        "Relative squared error of the next value against the number of tokens read, means over ten tokens and 20 texts. "
        "After a few tokens all memories are at the noise. At token 200 the map from keys to values changes and all errors "
        "jump above 1. Without forgetting the error falls slowly; with a decay or a window it is back at the noise "
        "within 100 tokens. Mean over the last 100 tokens: " + ", ".join(said) + "."
    )


def measured_table() -> Markdown:
    """Return what `make bench attention` stored of the chunk form against the token loop."""
    shapes = ("1 x 512", "16 x 512", "1 x 4096", "16 x 2048")
    times = [quote("attention", f"{shape}: chunk / Sherman-Morrison loop", ".2f") for shape in shapes]
    return markdown_table(("heads x tokens", *shapes), [("chunk form / token loop", *times)])


NUMBERS = {
    "sums": "640",
    "delta rule": "640",
    "delta rule, shrinking step": "640",
    "delta rule on waves": "2,720",
    "delta rule on waves, shrinking step": "2,720",
    "softmax over 41 pairs": "2,665",
    "ridge": "2,720",
    "ridge on 64 waves": "2,720",
    "ridge on waves": "39,848",
    "softmax over all pairs": "65,000",
}


@lesson.figure(
    ["Sorted: delta rule on pixels", "All memories, settings chosen for each order"],
    ["step size", "share of new digits right"],
    ["share of new digits right", "memory, and numbers it keeps"],
    size=(8.6, 4.2),
    grid=(1, 2),
    subplots={"width_ratios": [1, 1.35]},
    legend=[{"loc": "lower left", "fontsize": 9}, {"loc": "lower left", "fontsize": 9}],
    xscale=["log", "linear"],
    xlim=[(8e-5, 1.2), (0.65, 1.0)],
    ylim=[(0.2, 1.0), None],
)
def plot_closing(by_step, all_of_them):
    """Draw the share right against the step size in sorted order, and that of all memories in both orders."""
    shares = np.stack([swept(seed, "sorted")["delta rule"][1].numpy() for seed in SEEDS])
    by_step.grid(visible=False)
    by_step.plot(STEPS, shares.mean(0), "--", color=RED, label="delta rule")
    by_step.fill_between(STEPS, shares.min(0), shares.max(0), color=RED, alpha=0.15)
    by_step.axhline(mean(closing()["ridge", "sorted"]), color=GREEN, linewidth=1.8, linestyle="-.", label="ridge")
    by_step.axhline(mean(closing()["sums", "sorted"]), color=BLUE, linewidth=1.5, linestyle="-", label="sums")
    rows = np.arange(len(NUMBERS))[::-1]
    for order, shift, look in (
        ("mixed", 0.14, {"color": BLACK, "marker": "o"}),
        ("sorted", -0.14, {"color": PURPLE, "marker": "s", "markerfacecolor": "white"}),
    ):
        found = np.array([closing()[name, order] for name in NUMBERS])
        low, high = found.mean(1) - found.min(1), found.max(1) - found.mean(1)
        all_of_them.errorbar(
            found.mean(1),
            rows + shift,
            xerr=[low, high],
            linestyle="none",
            markersize=6,
            elinewidth=1.4,
            label=order,
            **look,
        )
    all_of_them.set_yticks(rows, [f"{name}\n{kept} numbers" for name, kept in NUMBERS.items()], fontsize=8)
    tell = {order: {name: f"{mean(closing()[name, order]):.1%}" for name in NUMBERS} for order in ORDERS}
    waves = "delta rule on waves, shrinking step"
    return (
        "Share of new digits right, means and ranges of five splits. Left: in sorted order the delta rule on pixels starts "
        "at the level of the sums and falls for larger ones. Right: "
        f"mixed and sorted, ridge {tell['mixed']['ridge']} and {tell['sorted']['ridge']}; delta rule on waves with a "
        f"shrinking step {tell['mixed'][waves]} and {tell['sorted'][waves]}."
    )


def closing_table() -> Markdown:
    """Return what each memory gets right in both orders: means and ranges of five splits."""
    rows = []
    for name, kept in NUMBERS.items():
        cells = []
        for order in ORDERS:
            shares = closing()[name, order]
            cells.append(f"≈{mean(shares):.1%} (≈{min(shares):.1%} to ≈{max(shares):.1%})")
        rows.append((name, kept, *cells))
    return markdown_table(("memory", "numbers kept", "mixed", "sorted"), rows)


MARKS = (16, 32, 48, 64, 80, 96, 128, 192, 256, 384, 512, 768, 1000)


@cache
def _parts() -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    return tuple((keys.numpy(), labels.numpy()) for keys, labels in digits())


@cache
def _sums(count: int) -> tuple[np.ndarray, ...]:
    """Return eigenvalues and eigenvectors of K^T K, and K^T V, for the first digits: their order does not matter."""
    keys, labels = (x[:count] for x in _parts()[0])
    return *np.linalg.eigh(keys.T @ keys), keys.T @ np.eye(10)[labels]


@lru_cache(maxsize=32)
def _delta(counts: tuple[int, ...], log_step: float, order: str) -> np.ndarray:
    """Return the memories of the delta rule after so many of the first digits, each in its order, side by side."""
    stored, labels = _parts()[0]
    keys, values = np.zeros((max(counts), len(counts), 1, 64)), np.zeros((max(counts), len(counts), 1, 10))
    for place, count in enumerate(counts):
        at = in_order(digits()[0][1][:count], order).numpy()
        keys[:count, place, 0], values[:count, place, 0] = 10.0 ** (log_step / 2) * stored[at], np.eye(10)[labels[at]]
    memory, values = np.zeros((len(counts), 64, 10)), 10.0 ** (log_step / 2) * values
    for key, value in zip(keys, values, strict=True):  # a key of zeros moves nothing
        memory += key.mT * (value - key @ memory)
    return memory


def _memories(counts: tuple[int, ...], log_penalty: float, log_step: float, order: str) -> np.ndarray:
    """Return sums, delta rule and ridge attention after so many digits: memories, numbers of digits, 64 x 10."""
    sums = [_sums(count) for count in counts]
    ridge = [u @ ((u.T @ cross) / (e + 10.0**log_penalty)[:, None]) for e, u, cross in sums]
    return np.stack([np.stack([cross for *_, cross in sums]), _delta(counts, log_step, order), np.stack(ridge)])


@lesson.explorer
class DigitExplorer(Explorer):
    """Three memories that read digits once: how much they get right, and of which class."""

    title = "One matrix reads digits"
    summary = (
        "Left: share of digits right against the number of stored digits, for sums, the delta rule and ridge attention; "
        "the vertical line is the number in use. Right: the same in each class, for that number. Sorted: the first n digits "
        "are taken, then sorted by class."
    )
    log_step = Slider("delta rule step", "log10 η", "Power of ten of the delta rule's step size", -1.0, -3.5, 0.0, 0.5)
    pairs = Slider("stored digits", "n", "How many digits the memories read, each once", 1000, 16, 1000, 8)
    log_penalty = Slider("ridge penalty", "log10 λ", "Power of ten of ridge attention's penalty", 0.0, -3.0, 2.0, 0.5)
    order = Choice("order", "The stored digits as they come, or sorted by class", "mixed", ("mixed", "sorted"))
    asked = Choice(
        "asked for", "Digits never seen, or those that were stored", "new digits", ("new digits", "stored digits")
    )
    stills = ({}, {"pairs": 128}, {"pairs": 64, "log_penalty": -3.0})
    size = (8.0, 3.4)
    names = ("sums", "delta rule", "ridge attention")
    together = ("pairs", "log_penalty")
    layout = panels(
        ["All classes", "Each class"],
        ["stored digits $n$", "class"],
        "share right",
        grid=(1, 2),
        legend=[{"loc": "lower right", "fontsize": 9}, None],
        xscale=["log", "linear"],
        xlim=[(14, 1150), (-0.5, 9.5)],
        ylim=[(0, 1.05), (0, 1.05)],
        xticks=[None, range(10)],
    )

    def compute(self, *, log_step, pairs, log_penalty, order, asked):
        """Return the share right against the number of stored digits, and in each class."""
        keys, labels = _parts()[2 if asked == "new digits" else 0]
        counts = (*MARKS, pairs)
        memories = np.concatenate([_memories(c, log_penalty, log_step, order) for c in (MARKS, (pairs,))], 1)
        answers = keys @ memories.transpose(2, 0, 1, 3).reshape(64, -1)
        hits = answers.reshape(len(keys), 3, len(counts), 10).argmax(3) == labels[:, None, None]
        shown = [len(keys) if asked == "new digits" else count for count in counts]
        shares = np.array([hits[:many, :, place].mean(0) for place, many in enumerate(shown)]).T[:, :-1]
        hit, of = hits[: shown[-1], :, -1], labels[: shown[-1]]
        each = [hit[of == digit].mean(0) if (of == digit).any() else np.full(3, np.nan) for digit in range(10)]
        return {
            "curves": [(MARKS, share) for share in shares],
            "classes": [
                (np.arange(10) + shift, row) for shift, row in zip((-0.2, 0, 0.2), np.array(each).T, strict=True)
            ],
            "line": ([pairs, pairs], [0, 1.05]),
            "here": hit.mean(0),
            "settings": f"{pairs} digits stored, {'sorted by class' if order == 'sorted' else 'in mixed order'}, step size "
            f"{10.0**log_step:.2g}, penalty {10.0**log_penalty:.2g}",
            "asked": asked,
        }

    def draw(self, left, right_axes):
        """Draw the curves of all classes, and marks for each class."""
        curves = lines(left, MARKS, self.names, marker="o", markersize=4)
        classes = [
            right_axes.plot(range(10), [0] * 10, linestyle="none", marker=mark, color=curve.get_color(), markersize=7)[
                0
            ]
            for curve, mark in zip(curves, "osD", strict=True)
        ]
        for curve, mark in zip(curves, "osD", strict=True):
            curve.set_marker(mark)
        left.set_xticks([16, 64, 256, 1000], [16, 64, 256, 1000])
        left.set_xticks([], minor=True)
        (line,) = left.plot([], [], color=BLACK, linewidth=1.2, linestyle=(0, (1, 2)))
        return {"curves": curves, "classes": classes, "line": line}

    def words(self, state):
        """Say how much each memory gets right."""
        sums, delta, ridge = (f"{share:.1%}" for share in state["here"])
        return (
            f"{state['settings']}. Of the {state['asked']} the sums get {sums} right, the delta rule {delta} and ridge "
            f"attention {ridge}."
        )


ask_sorted = lesson.prediction(
    "22.P1",
    "The same digits are now read sorted by class: all zeros first, all nines last. Nothing else changes. "
    "Which of the two memories gets clearly fewer new digits right than before?",
    {
        "Both": "Both correct themselves as they read, so a change of order seems to change both. One of them ends at "
        "the same matrix all the same.",
        "Only the delta rule": right(
            "It falls to about 61%. Ridge attention gives the same answers in either order, up to rounding."
        ),
        "Only ridge attention": "Its second matrix depends on the keys that came before. What it makes of them depends on "
        "their sum only.",
        "Neither": "The delta rule meets no zero after the first hundred digits, and each later key moves what it "
        "answers to a zero.",
    },
    reveal=plot_sorted,
)

ask_cost = lesson.prediction(
    "22.P2",
    "The $n = 2048$ keys have $d = 64$ entries each. All queries come after the last key, so one inverse is enough. The "
    "first way adds up $\\lambda I + K^\\top K$ and inverts it once. The second way updates an inverse key by key, 2048 "
    "times. How do the multiplications of the second way compare?",
    {
        "It falls by a factor of about 32": "That is the saving against an inversion after every key. Here only one is "
        "needed: n d² + d³ = 8,650,752 against 2 n d² = 16,777,216.",
        "It nearly doubles": "One inversion costs n d² + d³ = 8,650,752, nearly all of it for the sum K^T K. An update "
        "takes a product P k and an outer product, d² each, together 2 n d² = 16,777,216.",
        "It stays about the same": "The sum K^T K takes one outer product a key, d². An update takes a product P k as "
        "well: 2 n d² = 16,777,216 against n d² + d³ = 8,650,752.",
        "It falls by a factor of about 2048": "An inversion costs d³ once, not once a key: n d² + d³ = 8,650,752 "
        "against 2 n d² = 16,777,216.",
    },
    answer="It nearly doubles",
    reveal=plot_costs,
)

ask_waves = lesson.prediction(
    "22.P3",
    "Give the delta rule as many numbers as ridge attention: 272 random waves of the pixels for each key, and a matrix of "
    "272 x 10. Its step may shrink while it reads. Step and shrinking are chosen anew for each order, on digits set aside. "
    "Which of the two gets more new digits right, by at least a point on average of five splits?",
    {
        "Ridge attention, in both orders": "It fits the 64 pixels best. But 272 waves say more about a digit than "
        "64 pixels do.",
        "The delta rule on waves, in both orders": "More features help, in sorted order as well. But there the delta "
        "rule loses about as much by forgetting.",
        "The delta rule if mixed, ridge attention if sorted": "So it is for a step that stays the same, 92% against 94%. "
        "One that shrinks writes less over the old classes.",
        "The delta rule if mixed, neither if sorted": right(
            "Mixed, the richer key decides: about 96% against 94%. Sorted, gain and loss nearly cancel, and five splits "
            "show no clear difference."
        ),
    },
    reveal=plot_closing,
)

FIGURES = lesson.figures
