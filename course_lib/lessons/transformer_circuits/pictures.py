"""Figures, explorer and predictions of lesson 26, transformer circuits."""

import itertools
import math
from collections.abc import Sequence
from functools import cache, lru_cache
from statistics import mean

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor

from course_lib.lessons.transformer_circuits.contents import lesson
from course_lib.measured import measured
from course_lib.representation.attention_only import (
    AttentionOnly,
    planted_induction,
    repeat_loss,
)
from course_lib.representation.head_scores import (
    Recording,
    matching_score,
    offset_score,
    read_heads,
    record,
    replaced,
)
from course_lib.representation.one_place_back import ARMS, loss_on, network, sequences, train
from course_lib.teaching import Choice, Explorer, Slider, Switch, lines, markdown_table, panels, right
from course_lib.teaching.layout import LOOKS
from course_lib.teaching.style import BLACK, BLUE, ORANGE, RED

GREY, PALE = "0.55", "0.88"
PART, LONG = "one_place_back", "one layer, 750 steps"
LONGER = "one_layer_longer"
SEEDS, STEPS, EVERY = range(5), 250, 10
QUESTION = 18  # the seed of the sequence of the first picture
SHOWN = 2  # the random start whose networks the pictures and the explorer show
PREVIOUS, INDUCTION = 1, 5  # heads 0.1 and 1.1 of that network
GUESS = math.log(32)


# The networks of the page


@cache
def test_sequences() -> tuple[Tensor, Tensor]:
    """Return 256 sequences that no training has seen, and which of their tokens can be known."""
    return sequences(256, 2000)


@cache
def trained(arm: str, seed: int = SHOWN) -> AttentionOnly:
    """Train one network for 250 steps at the rate 0.005."""
    return train(arm, seed=seed)


@lru_cache(maxsize=8)  # of the last models alone: a recording takes some 10 MB
def recorded(model: AttentionOnly) -> Recording:
    """Return the patterns and results of all heads on the test sequences."""
    return record(model, read_heads(model), test_sequences()[0][:, :-1])


def look_back(model: AttentionOnly) -> Tensor:
    """Return each head's weight on the previous place (26.3), over the queries at the places 1 to 11."""
    return torch.stack([offset_score(p[:, :12, :12], -1) for p in recorded(model).patterns])


def look_after(model: AttentionOnly) -> Tensor:
    """Return each head's induction score (26.4)."""
    tokens = test_sequences()[0][:, :-1]
    return torch.stack([matching_score(p, tokens, tokens) for p in recorded(model).patterns])


def loss_without(model: AttentionOnly, chosen: list[int] | tuple[int, ...]) -> float:
    """Return the test loss with some heads' results replaced by their means over all test sequences and places."""
    means = {i: recorded(model).results[i].mean((0, 1)) for i in chosen}
    with replaced(model, read_heads(model), means):
        return loss_on(model, *test_sequences())


@cache
def jumping() -> tuple[Tensor, Tensor]:
    """Return 256 sequences whose second round starts at place 1, 2, 3 or 4 of the first, and which tokens can be known.

    The first round has 16 different tokens, so the earlier copy stands 12 to 15 places back, as for some trained periods.
    """
    generator, place = torch.Generator().manual_seed(4000), torch.arange(25)
    first = torch.rand(256, 32, generator=generator).argsort(1)[:, :16]
    start = torch.randint(1, 5, (256, 1), generator=generator)
    tokens = first.gather(1, torch.where(place < 16, place, place - 16 + start))
    return tokens, (place >= 16).expand(256, 25)


def by_distance(model: AttentionOnly, places: range = range(20, 24)) -> Tensor:
    """Return the mean weight that each head's queries at these places give to the key so many places back."""
    rows = []
    for pattern in recorded(model).patterns:
        back = [[pattern[:, t, t - o].mean() for t in places] for o in range(min(places) + 1)]
        rows.append(torch.tensor(back).mean(1))
    return torch.stack(rows)


# The question


@lesson.figure(["A sequence that starts again", "The loss where the token can be known"], ["", "training step"],
               ["", "test loss (nats)"], grid=(1, 2), size=(9.0, 3.0),
               legend=[None, {"loc": "lower right", "bbox_to_anchor": (1, 0.08), "fontsize": 9}],
               ylim=[(-2.6, 1.4), (0, 5)], xlim=[(-0.6, 12.6), (0, 250)],
               subplots={"width_ratios": [1.15, 1]})  # fmt: skip
def plot_question(left, axes):
    """Draw one sequence as two rows of letters, and the losses of one layer and of two, five starts each."""
    tokens = sequences(1, QUESTION)[0][:, :-1]  # the last one is to be predicted
    letters = [chr(ord("A") + i) if i < 26 else chr(ord("a") + i - 26) for i in tokens[0].tolist()]
    period = letters.index(letters[0], 1) if letters[0] in letters[1:] else len(letters)
    left.axis("off")
    for t, letter in enumerate(letters):
        again = t >= period
        place = (t - period if again else t, -1.6 if again else 0)
        left.text(*place, letter, ha="center", va="center", fontsize=11, color=RED if again else BLACK,
                  bbox={"boxstyle": "circle,pad=0.25", "facecolor": PALE, "edgecolor": "none"})  # fmt: skip
    left.text(-0.4, 0.75, "first round: random", fontsize=9.5)
    left.text(-0.4, -0.85, "second round: the same letters again", fontsize=9.5, color=RED)
    left.text(len(letters) - period, -1.6, "?", ha="center", va="center", fontsize=14, color=RED)
    at = np.arange(0, STEPS + 1, EVERY)
    for look, arm in zip(LOOKS, ("one layer", "two layers"), strict=False):
        curves = np.array(measured(PART, f"{arm}, curves"))
        axes.plot(at, curves.mean(0), **look, label=f"{arm} of attention")
        axes.fill_between(at, curves.min(0), curves.max(0), color=look["color"], alpha=0.2)
    axes.axhline(GUESS, color=GREY, linewidth=1, linestyle=":", label="a guess among 32")
    return (
        "Left, letters in two rows: a random first round, then the same letters up to a question mark. Right, test "
        "loss over 250 steps, mean and range of five starts: two layers fall to almost 0, one layer ends above 2.3."
    )


# Where one layer looks


@lesson.figure(["Where the four heads look", "Head 0.0 on one sequence"], ["places back", "key: place $j$"],
               ["mean weight", "query: place $t$"], grid=(1, 2), size=(8.2, 3.5),
               legend=["upper left", {"loc": "upper right", "fontsize": 9}], xlim=[(-0.5, 20.5), None],
               ylim=[(0, 0.2), None])  # fmt: skip
def plot_candidates(left, axes):
    """Draw the trained one-layer network's weights by distance, and one pattern with the right places marked."""
    model = trained("one layer")
    rows = by_distance(model)
    left.axvspan(10.5, 19.5, color=PALE)
    left.set_xticks(range(0, 21, 5))
    lines(
        left,
        np.arange(rows.shape[1]),
        {f"head 0.{i}": row.numpy() for i, row in enumerate(rows)},
        marker="o",
        markersize=3,
    )
    _pattern(axes, recorded(model).patterns[0][0], 0)
    for back in (10.5, 19.5):
        axes.plot([0, 23 - back], [back, 23], ":", color=BLACK, linewidth=1)
    return (
        "Left, mean weight by distance, for queries at the places 20 to 23; shaded, 11 to 19 places back. Right, one head "
        "on one sequence: stripes between the dotted lines, 11 and 19 places back."
    )


def _wanted(tokens: Tensor) -> tuple[list[int], list[int]]:
    """Return queries t and keys j + 1 with an equal token at an earlier place j."""
    pairs = [(j + 1, t) for t in range(len(tokens)) for j in range(t) if tokens[j] == tokens[t]]
    return [k for k, _ in pairs], [t for _, t in pairs]


def _pattern(axes, pattern: Tensor, which: int, *, label: str = "place after the earlier copy") -> None:
    axes.imshow(pattern.numpy(), cmap="Greys", vmin=0, vmax=1 if pattern[12:].max() > 0.4 else 0.4,
                interpolation="nearest")  # fmt: skip
    axes.plot(*_wanted(test_sequences()[0][which, :-1]), "o", fillstyle="none", color=RED, markersize=6, label=label)
    axes.grid(False)


@lesson.figure(["0.1 before training", "1.1 before training", "0.1 after", "1.1 after"], "key: place $j$",
               "query: place $t$", grid=(1, 4), size=(11.6, 3.5), legend=None)  # fmt: skip
def plot_patterns(*axes):
    """Draw the patterns of two heads of the two-layer network on one sequence, before and after training."""
    models = (network("two layers", SHOWN).requires_grad_(False), trained("two layers"))
    shown = [recorded(model).patterns[head][0] for model in models for head in (PREVIOUS, INDUCTION)]
    for one, pattern in zip(axes, shown, strict=True):
        _pattern(one, pattern, 0, label="_wanted")
    return (
        "Four patterns of one sequence; circles mark the place after the earlier copy of the query's token. After training, "
        "0.1 looks one place back in the first round, and 1.1 at the circles in the second."
    )


def _places(axes) -> None:
    """Draw the tokens A, B, ..., A and the question what comes next."""
    for place, word in ((1.0, "A"), (2.4, "B"), (4.2, "..."), (6.0, "A")):
        axes.text(place, 0, word, ha="center", va="center", fontsize=14, bbox={"boxstyle": "circle", "facecolor": PALE})
    axes.text(7.2, 0, "?", ha="center", va="center", fontsize=14)


def _arrow(axes, start: float, end: float, color: str, bend: float) -> None:
    axes.annotate("", (end, 0.42), (start, 0.42), arrowprops={"arrowstyle": "-|>", "color": color, "linewidth": 2,
                  "connectionstyle": f"arc3,rad={bend}"})  # fmt: skip


def _say(axes, x: float, y: float, words: str, color: str) -> None:
    axes.text(x, y, words, color=color, ha="center", va="center", fontsize=10)


@lesson.figure(size=(7.6, 2.9), legend=None, bare=True, xlim=(-0.6, 7.8), ylim=(-1.5, 2.2))
def plot_pair(axes):
    """Draw which place each of the two heads reads, in a sequence in which A B comes back."""
    _places(axes)
    _arrow(axes, 1.1, 2.3, BLUE, -0.7)
    _say(axes, 1.0, 1.5, "layer 0: the place of B\nstores “A before me”", BLUE)
    _arrow(axes, 2.6, 5.9, RED, -0.45)
    _say(axes, 5.0, 1.75, "layer 1: looks for “A before me”,\nand brings B", RED)
    _say(axes, 2.4, -0.95, "key: A before me\nvalue: B", RED)
    _say(axes, 6.0, -0.95, "query: A", RED)
    return (
        "Layer 0 brings A to the place of B, whose key is then “A before me”. In layer 1 the second A meets that key and "
        "brings the value B."
    )


@lesson.figure(["Keys from one place back", "Values from one place ahead"], "", "", grid=(1, 2), size=(8.8, 2.4),
               legend=None, bare=True, xlim=(-0.4, 7.8), ylim=(-1.7, 1.9))  # fmt: skip
def plot_shifts(left, right):
    """Draw query, key and value of one layer with a shift: in the keys, and in the values."""
    for axes in (left, right):
        _places(axes)
        _say(axes, 6.0, -1.1, "query: A", RED)
    _arrow(left, 1.1, 2.3, BLUE, -0.7)
    _say(left, 1.6, 1.35, "its key moves", BLUE)
    _say(left, 2.4, -1.1, "key: A\nvalue: B", RED)
    _arrow(left, 2.6, 5.9, RED, -0.45)
    _arrow(right, 2.3, 1.1, BLUE, 0.7)
    _say(right, 1.6, 1.35, "its value moves", BLUE)
    _say(right, 1.0, -1.1, "key: A\nvalue: B", RED)
    _arrow(right, 1.1, 5.9, RED, -0.35)
    return (
        "Left, the key of the first A has moved to the place of B. Right, the value of B has moved to the place of A. Both "
        "times the second A brings B."
    )


# Without a head


@cache
def ablations(seed: int) -> dict[str, float | list[float]]:
    """Return test losses of a two-layer network: with all heads, without single ones, without groups of four."""
    model = trained("two layers", seed)
    singles = [loss_without(model, [i]) for i in range(8)]
    best = 4 + int(look_after(model)[4:].argmax())
    first = int(look_back(model)[:4].argmax())
    chosen = torch.Generator().manual_seed(seed)
    groups = [c for c in itertools.combinations(range(8), 4) if c not in ((0, 1, 2, 3), (4, 5, 6, 7))]
    some = [groups[i] for i in torch.randperm(len(groups), generator=chosen)[:20]]
    return {
        "all heads": loss_without(model, []),
        "best of layer 1": singles[best],
        "single heads of layer 1": singles[4:],
        "all but the best of layer 1": loss_without(model, [i for i in range(4, 8) if i != best]),
        "others of layer 1": [singles[i] for i in range(4, 8) if i != best],
        "best of layer 0": singles[first],
        "others of layer 0": [singles[i] for i in range(4) if i != first],
        "all of layer 0": loss_without(model, [0, 1, 2, 3]),
        "all of layer 1": loss_without(model, [4, 5, 6, 7]),
        "random fours": [loss_without(model, c) for c in some],
    }


COLUMNS = {
    "all heads": "no head", "best of layer 1": "best of\nlayer 1", "others of layer 1": "another\nof layer 1",
    "best of layer 0": "best of\nlayer 0", "others of layer 0": "another\nof layer 0",
    "all of layer 1": "all four\nof layer 1", "all of layer 0": "all four\nof layer 0",
    "random fours": "four random\nheads",
}  # fmt: skip


@lesson.figure("The loss without some heads", "replaced by their means", "test loss (nats)", size=(8.2, 3.4),
               legend=None, yscale="log", ylim=(3e-3, 9), xlim=(-0.6, 7.6))  # fmt: skip
def plot_ablation(axes):
    """Draw the losses without heads, one mark for each of the five starts."""
    for place, name in enumerate(COLUMNS):
        for seed in SEEDS:
            found = np.atleast_1d(ablations(seed)[name])
            x = place + 0.13 * (seed - 2) + np.zeros(len(found))
            several = len(found) > 1
            axes.plot(x, found, "osD^v"[seed], color=GREY if not place else BLUE if several else RED, markersize=5,
                      fillstyle="none" if several else "full")  # fmt: skip
    axes.axhline(GUESS, color=GREY, linewidth=1, linestyle=":")
    axes.text(-0.5, GUESS * 1.1, "a guess among 32", fontsize=9, color="0.35")
    axes.set_xticks(range(8), COLUMNS.values(), fontsize=9)
    return (
        "Test loss with heads replaced by their means, five starts. Without any one head of layer 1 it stays below 0.3; "
        "without the best of layer 0 it lies above 1 in two starts; without all four of a layer, above a guess."
    )


# Circuits


def token_tables(model: AttentionOnly, head: int, writers: Sequence[int] = range(4)) -> dict[str, Tensor]:
    """Return three tables of 32 by 32 tokens, from the weights of a head of layer 1 alone.

    What it asks (rows) against the token that stands at a place (columns); against the token that the writers of layer 0
    wrote there; and from the token at a place (rows) to the scores that reading it gives (columns).
    """
    heads, embedding = read_heads(model), model.embedding.detach()
    qk, ov = heads.qk().matrix()[head], heads.ov().matrix()
    written = embedding @ ov[list(writers)].sum(0)
    return {
        "own": embedding @ qk @ embedding.T,
        "written": embedding @ qk @ written.T,
        "copied": embedding @ ov[head] @ model.unembedding.detach(),
    }


def rows_on_diagonal(table: Tensor) -> int:
    """Return in how many rows the largest entry stands on the diagonal."""
    return int((table.argmax(1) == torch.arange(len(table))).sum())


def rows_by_writer(model: AttentionOnly) -> list[float]:
    """Return for each head of layer 0 alone: rows of its "written" table with the largest entry on the diagonal.

    A mean over the four heads of layer 1 that read.
    """
    return [
        mean(rows_on_diagonal(token_tables(model, reader, (writer,))["written"]) for reader in range(4, 8))
        for writer in range(4)
    ]


@lesson.figure(["asks, against the token there", "asks, against what layer 0 wrote", "reads, and raises"],
               ["token at the place", "token written there", "token raised"],
               ["query's token", "query's token", "token read"], grid=(1, 3), size=(9.0, 3.2),
               legend=None)  # fmt: skip
def plot_tables(*axes):
    """Draw the three tables of head 1.1 after training, each in units of its largest entry."""
    for one, table in zip(axes, token_tables(trained("two layers"), INDUCTION).values(), strict=True):
        image = one.imshow(
            (table / table.abs().max()).numpy(), cmap="coolwarm", vmin=-1, vmax=1, interpolation="nearest"
        )
        one.grid(False)
    bar = one.figure.colorbar(image, ax=list(axes), shrink=0.8, ticks=(-1, 0, 1)).ax
    bar.set_xlabel("entry", labelpad=14)
    bar.set_ylabel("of the largest entry")
    return (
        "Three tables of the trained head 1.1. Against the tokens at the places: a blue, negative diagonal. Against what "
        "layer 0 wrote: a red one. From the token read to the tokens raised: a red one."
    )


@cache
def planted(hidden: bool = False) -> AttentionOnly:
    """Return a pair, 0.1 and 1.2, planted among random heads; where it is `hidden`, a random rotation mixes the stream."""
    return planted_induction(generator=torch.Generator().manual_seed(5), hidden=hidden)


# One layer, mixed


def stored(arm: str) -> list[float]:
    """Return the stored test losses of an arm at its best rate, one for each seed."""
    return measured(PART, f"{arm}, loss")


MIXED = ("queries, one place back", "keys, one place back", "values, one place back", "values, one place ahead")


SOLVED = ("keys, one place back", "values, one place ahead", "keys all one place back, no new number", "two layers")
UNSOLVED = tuple(arm for arm in (*ARMS, LONG) if arm not in SOLVED)


def best_rate(arm: str) -> float:
    """Return the step size that was best for an arm."""
    return measured(PART, f"{arm}, best rate")


def shares_table() -> Markdown:
    """Return the four trained numbers m of the keys, one row for each start."""
    rows = [
        (seed, *(f"{m:.2f}" for m in row)) for seed, row in enumerate(measured(PART, "keys, one place back, shares"))
    ]
    return markdown_table(("start (stored)", *(f"head 0.{i}" for i in range(4))), rows)


@lesson.figure("250 steps, five starts", "network", "test loss (nats)", size=(7.4, 3.4), legend=None, yscale="log",
               xlim=(-0.6, 5.6), ylim=(1e-5, 8))  # fmt: skip
def plot_mixed(axes):
    """Draw the stored losses of mixed layers and of the plain ones, a mark for each start."""
    arms = ("one layer", *MIXED, "two layers")
    for place, arm in enumerate(arms):
        losses = np.maximum(stored(arm), 2e-5)
        axes.plot(place + np.linspace(-0.2, 0.2, 5), losses, "o" if place in (0, 5) else "D",
                  color=GREY if place in (0, 5) else BLUE, markersize=6)  # fmt: skip
    axes.axhline(0.1, color=BLACK, linewidth=1, linestyle="--")
    axes.text(-0.5, 0.115, "solved: below 0.1", fontsize=9)
    axes.set_xticks(range(6), ["one layer,\nplain", "queries,\none back", "keys,\none back", "values,\none back",
                               "values,\none ahead", "two layers"])  # fmt: skip
    return (
        "Stored test losses of five starts. Plain, and with queries or values one place back, one layer stays above "
        "2. With keys one place back or values one place ahead it lies below two layers."
    )


def arms_table() -> Markdown:
    """Return every arm: trained numbers, best rate, mean and range of the stored test losses."""
    rows = []
    for arm in (*ARMS, LONG):
        losses = stored(arm)
        said = [f"{loss:.4f}" if loss < 0.1 else f"{loss:.2f}" for loss in (mean(losses), min(losses), max(losses))]
        rows.append((arm, f"{measured(PART, f'{arm}, weights'):,}", f"{measured(PART, f'{arm}, best rate'):g}",
                     f"{said[0]} ({said[1]} to {said[2]})"))  # fmt: skip
    return markdown_table(("arm", "trained numbers", "best rate", "test loss: mean (range)"), rows)


def longer_table() -> Markdown:
    """Return what one layer reaches with more heads, width and steps: mean and range of the stored test losses."""
    rows = []
    for arm, steps in (("twice the width", (250, 750, 3000)), ("16 heads, four times the width", (250, 750))):
        for n in steps:
            losses = measured(LONGER, f"{arm}, {n} steps, loss")
            rows.append((arm, f"{measured(LONGER, f'{arm}, weights'):,}", f"{n:,}",
                         f"{measured(LONGER, f'{arm}, {n} steps, best rate'):g}",
                         f"{mean(losses):.2f} ({min(losses):.2f} to {max(losses):.2f})"))  # fmt: skip
    heads = ("one layer (stored)", "trained numbers", "steps", "best rate", "test loss: mean (range)")
    return markdown_table(heads, rows)


# The explorer


@cache
def checkpoints() -> dict[int, AttentionOnly]:
    """Return the two-layer network of the page before training and after each ten steps of it."""
    found = {}

    def keep(step: int, model: AttentionOnly) -> None:
        found[step] = network("two layers", SHOWN)
        found[step].load_state_dict(model.state_dict())
        found[step].requires_grad_(False)

    train("two layers", seed=SHOWN, every=EVERY, see=keep)
    return found


@cache
def _frame(step: int) -> tuple[list[Tensor], float]:
    tokens, known = (part[:64] for part in test_sequences())
    model = checkpoints()[step]
    seen = record(model, read_heads(model), tokens[:, :-1])
    return seen.patterns, float(repeat_loss(seen.output, tokens, known))


NAMES = tuple(f"{i // 4}.{i % 4}" for i in range(8))


@lesson.explorer
class PatternExplorer(Explorer):
    """The patterns of all heads of the two-layer network, at each stage of its training."""

    title = "Eight heads, 250 steps"
    summary = (
        "Left the pattern of one head on one test sequence, darker for more weight; at the dotted line the second round "
        "begins. Right the mean weight on the key so many places back, over 64 test sequences."
    )
    step = Slider("training step", "s", "How long the network was trained", 0, 0, STEPS, EVERY)
    head = Choice("head", "Layer and number of the head", "0.0", NAMES)
    sequence = Slider("sequence", "i", "Which of eight test sequences is shown", 0, 0, 7, 1)
    mark = Switch("Circle the place after", "Circle the place after the earlier copy of the query's token")
    stills = tuple({"step": step, "head": "1.1"} for step in (60, 100, 250))
    size = (9.6, 4.3)
    strip_scale = 0.61
    together = ("step", "head")
    layout = panels(
        ["pattern on one sequence", "by distance, 64 sequences"],
        ["key: place $j$", "places back"],
        ["query: place $t$", "mean weight"],
        grid=(1, 2),
        legend=None,
        xlim=[(-0.5, 23.5), (-0.5, 23.5)],
        ylim=[(23.5, -0.5), (0, 0.8)],
    )

    def compute(self, *, step, head, sequence, mark):
        """Return the pattern, the weights by distance, and the loss."""
        patterns, loss = _frame(step)
        pattern = patterns[NAMES.index(head)]
        weights = [float(pattern.diagonal(-o, 1, 2).mean()) for o in range(24)]
        tokens, known = test_sequences()
        start = int(known[sequence].int().argmax())
        keys, queries = _wanted(tokens[sequence, :-1])
        return {
            "pattern": pattern[sequence].numpy(),
            "weights": (np.arange(24), weights),
            "start": ([-0.5, 23.5], [start - 0.5] * 2),
            "marks": (keys, queries) if mark else ([], []),
            "said": (step, head, loss, start, float(pattern[sequence][queries, keys].mean()) if mark else None),
        }

    def draw(self, left, axes):
        """Draw an empty pattern, the line, the marks and the weights."""
        pattern = left.imshow(np.zeros((24, 24)), cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
        left.grid(False)
        (start,) = left.plot([], [], ":", color=RED, linewidth=1.2)
        (marks,) = left.plot([], [], "o", fillstyle="none", color=ORANGE, markersize=7)
        (weights,) = axes.plot([], [], "o-", color=BLUE, markersize=4)
        return {"pattern": pattern, "weights": weights, "start": start, "marks": marks}

    def words(self, state):
        """Say the loss, which is the network's, and the weight on the circles."""
        step, head, loss, start, circled = state["said"]
        marked = "" if circled is None else f" A circled place has a mean weight of {circled:.2f}."
        return (
            f"Step {step}, head {head}. The network's loss on 64 test sequences: {loss:.2f} nats; a guess among 32 "
            f"tokens: {GUESS:.2f}. The second round of this sequence begins at place {start}.{marked}"
        )


# Predictions

ask_candidates = lesson.prediction(
    "26.P1",
    "A network with *one* layer was trained on these sequences and ended at a loss of 2.4. In the second round, where do "
    "its four heads look when they predict the next token?",
    {
        "At the last copy of the present token": "They could find it: the query knows its token, and so does the key. "
        "But the token that stands there is the one just seen, not the next one.",
        "At the place right after that copy": "That would be the right place, and the loss would be near 0.",
        "At the previous place": "It holds the token before the present one, which says nothing about the next.",
        "At several places, about evenly": right(
            "At all nine places that hold the next token for one of the nine possible periods. A head that averages nine "
            "tokens leaves a guess among nine."
        ),
    },
    reveal=plot_candidates,
)

ask_ablation = lesson.prediction(
    "26.P2",
    "In the network with two layers, whose loss is below 0.02, the best head of layer 1 puts more than 0.95 of its weight "
    "on the right place, in each of five starts. Its result is replaced by its mean. What is the loss then?",
    {
        "About 3.5, that of a guess": "That happens when all four heads of layer 1 are replaced. The other three still "
        "bring the token.",
        "About 2.4, that of one layer": "The other three heads of layer 1 still bring the token.",
        "Near 0.9, a quarter of the way": "Scores add up before the softmax: three heads still put the right token far "
        "ahead of the others.",
        "Below 0.3": right(
            "The other three heads still bring the token. That a head is not missed does not show that it does nothing: "
            "without all four the loss is above that of a guess."
        ),
    },
    reveal=plot_ablation,
)

ask_mixed = lesson.prediction(
    "26.P3",
    "Four networks of *one* layer. In the first the queries are mixed with those of one place back, by one trained number "
    "for each head; in the second the keys, in the third the values. In the fourth the values are mixed with those of one "
    "place *ahead*. Which reach a loss below 0.1 in 250 steps?",
    {
        "None: a shift is no second layer": "Two of them do what took the network two layers.",
        "The keys' only": "They do. But another one reaches the same, from the other side.",
        "Keys' and queries': a comparison has two sides": "The query's own token is what the match has to be made with. "
        "Mixed queries know the token before it, and that does not say which token is next.",
        "The keys', and that with values from ahead": right(
            "What is compared and what is read have to stand one place apart. Either the key comes from one place back, "
            "or the value from one place ahead."
        ),
        "All four": "Mixed queries, and values from one place back, remain above 2.",
    },
    reveal=plot_mixed,
)

FIGURES = lesson.figures
