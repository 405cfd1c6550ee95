"""Figures, tables, explorers and predictions of lesson 27, induction heads."""

from collections.abc import Sequence
from functools import cache
from statistics import mean

import numpy as np
import torch
from IPython.display import Markdown
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.lessons.induction_heads.contents import lesson
from course_lib.lessons.induction_heads.measurements import (
    ARMS,
    DELTA,
    HELD,
    RATES,
    SEEDS,
    SIZES,
    STAGES,
    STEPS,
    TOGETHER,
    game,
    held_out,
    last,
    named,
    shares,
    train_arm,
    train_selector,
)
from course_lib.measured import measured
from course_lib.teaching import Explorer, Slider, markdown_table, panels, right
from course_lib.teaching.layout import LOOKS
from course_lib.teaching.style import BLACK, ORANGE
from course_lib.theory.induction_heads import Weights, examples
from course_lib.theory.markov_chains import (
    Chains,
    generalised_head,
    next_table,
    oracle,
)

GREY, PALE, DARK = "0.55", "0.9", "0.3"  # places that match are dark
PLAYER, SHOWN = 182, 24
ON_TOP = {"loc": "upper center", "ncols": 4, "fontsize": 8, "columnspacing": 0.8, "handlelength": 1.4}
LOOK = {lags: LOOKS[place] for place, lags in enumerate(((1,), (1, 2), (2,), ()))}  # one look a set in all pictures


def look(lags: Sequence[int]) -> dict:
    """Return colour and line style of a set of lags."""
    return {**LOOK[tuple(lags)], "label": named(lags)}


# The hook: one player


def player() -> Tensor:
    """Return 24 presses of one held-out player, 0 for A and 1 for B."""
    return held_out()[1][PLAYER, :SHOWN]


def places_that_match(presses: Tensor, lags: Sequence[int]) -> list[int]:
    """Return the places, from the third on, whose presses at all lags equal those of the place to come."""
    n = len(presses)
    return [t for t in range(SIZES.reach, n) if all(presses[t - lag] == presses[n - lag] for lag in lags)]


def _presses(axes, row: float, presses: Tensor, hits: Sequence[int], asked: Sequence[int]) -> None:
    """Draw presses in boxes, those that are asked for and those at places that match."""
    for place, press in enumerate(presses.tolist()):
        color = ORANGE if place in asked else DARK if place in hits else PALE
        axes.add_patch(Rectangle((place + 0.05, row), 0.84, 0.8, facecolor=color, edgecolor=GREY, linewidth=0.6))
        axes.text(place + 0.47, row + 0.4, "AB"[press], ha="center", va="center", fontsize=12,
                  color="white" if place in hits else BLACK)  # fmt: skip
    axes.text(len(presses) + 0.5, row + 0.4, "?", ha="center", va="center", fontsize=14)


@lesson.figure(size=(8.6, 2.4), legend=None, bare=True, xlim=(-4.3, 29.4), ylim=(-0.75, 2.9))
def plot_count(axes):
    """Draw 24 presses of a player twice, with the places that each of two readers counts."""
    presses, said = player(), []
    for row, lags in ((1.5, (1,)), (0.2, (1, 2))):
        hits = places_that_match(presses, lags)
        _presses(axes, row, presses, hits, [SHOWN - lag for lag in lags])
        b = int(presses[hits].sum())
        axes.text(-4.2, row + 0.4, f"reader {named(lags)}", va="center", fontsize=11)
        axes.text(25.5, row + 0.4, f"{b} of {len(hits)} are B", va="center", fontsize=11)
        said.append(f"Reader {named(lags)} finds {len(hits)} places, {b} of them with a B.")
    axes.text(12, -0.55, "orange: what is compared · dark: the places with the same past", ha="center", fontsize=11)
    return "24 presses of one player and a question mark, drawn twice. " + " ".join(said)


# The race


@cache
def early(delta: float = DELTA, steps: int = 40):
    """Return the selector's training with a nearly flat attention, five seeds."""
    return train_selector(0.01, steps=steps, rate=0.2)


@lesson.figure("Only the shares are trained", "step of gradient descent", "share of a set, $p_S$", size=(6.4, 3.6),
               ylim=(-0.03, 1.04), legend="center right")  # fmt: skip
def plot_race(axes):
    """Draw the shares of the four sets against steps, five seeds."""
    history = early()
    for lags in LOOK:
        for seed in SEEDS:
            looks = look(lags) | ({} if seed == 0 else {"label": "_"})
            axes.plot(shares(history, lags)[:, seed].numpy(), linewidth=1.3, **looks)
    return (
        "Shares of the four sets against steps, five seeds. From one quarter each, {1} rises above 0.99 within ten steps; "
        "the others fall to 0."
    )


def chances(chains, seen: Tensor) -> dict[tuple[int, ...], float]:
    """Return the expected loss of each counting reader, over the true law of the next press."""
    law = oracle(chains, seen)
    return {
        lags: float(-(law * (generalised_head(seen, lags, 2) + 1e-3).log()).sum(dim=1).mean())
        for lags in ((1,), (2,), (1, 2))
    }


@cache
def _played(delta: float, length: int):
    chains, presses = game(800, delta, seed=0, length=length)
    return chances(chains, presses[:, :-1]), examples(presses[None], SIZES)


@lesson.explorer
class RaceExplorer(Explorer):
    """The race of the sets at a nearly flat attention, beside the losses of the readers."""

    title = "Who wins the race, and who reads best?"
    summary = (
        "Left: loss of the counting readers {1}, {2} and {1, 2} on 800 players; lower is better. Right: shares of the four "
        "sets while gradient descent trains them on these players, with the attention nearly flat."
    )
    delta = Slider(
        "chance of the opposite", "δ", "How often a player opposes her press before last", 0.3, 0.0, 0.9, 0.02
    )
    length = Slider("length of the game", "n", "How many presses are read", 100, 40, 300, 20)
    stills = ({}, {"delta": 0.1}, {"delta": 0.6})
    size = (8.0, 3.3)
    dpi = 90
    strip_scale = 0.77
    together = ("delta", "length")
    layout = panels(
        ["Readers", "The race"], ["reader", "step"], ["loss (nats)", "share $p_S$"], grid=(1, 2),
        ylim=[(0.15, 0.8), (-0.03, 1.22)], xlim=[(-0.6, 2.6), (0, 60)], legend=[None, ON_TOP],
    )  # fmt: skip

    def compute(self, *, delta, length):
        """Count for the readers, and train the shares for 60 steps."""
        losses, data = _played(round(delta, 2), length)
        history = train_selector(0.01, steps=60, data=data, rate=0.2)
        steps = np.arange(61)
        curves = {named(lags): (steps, shares(history, lags)[:, 0].numpy()) for lags in LOOK}
        dots = {"loss " + named(s): ([place], [loss]) for place, (s, loss) in enumerate(losses.items())}
        return {"losses": losses, "delta": delta, "length": length, **dots, **curves}

    def draw(self, left, right_axes):
        """Draw three dots and four curves."""
        order = ((1,), (2,), (1, 2))
        left.set_xticks(range(3), [named(s) for s in order])
        dots = {
            "loss " + named(s): left.plot([place], [0.7], mark, color=LOOK[s]["color"], markersize=11)[0]
            for place, (s, mark) in enumerate(zip(order, "osD", strict=True))
        }
        curves = {named(s): right_axes.plot([0], [0.25], linewidth=2, **look(s))[0] for s in LOOK}
        return {**dots, **curves}

    def words(self, state):
        """Say which set leads the race, and which reader has the lowest loss."""
        ends = {name: float(state[name][1][-1]) for name in map(named, LOOK)}
        leader = max(ends, key=ends.get)
        best = min(state["losses"], key=state["losses"].get)
        losses = ", ".join(f"{named(s)} {loss:.3f}" for s, loss in state["losses"].items())
        return (
            f"δ = {state['delta']:.2f}, {state['length']} presses: after 60 steps {leader} has the largest share, "
            f"{ends[leader]:.2f}. The reader with the lowest loss is {named(best)}: {losses}."
        )


# Copy, compare, average


def comparisons(presses: Tensor, share: Tensor) -> Tensor:
    """Return, for {1}, {2}, {1, 2}, the similarity of each place from the third on with the place to come."""
    one_hot = torch.nn.functional.one_hot(presses, 2).double()
    past = torch.stack([one_hot[1:], one_hot[:-1]])
    copied = torch.einsum("hm,mtx->htx", share, past)
    copied = copied / copied.norm(dim=-1, keepdim=True)
    alike = (copied[:, :-1] * copied[:, -1:]).sum(-1)
    return torch.stack([alike[0], alike[1], alike[0] * alike[1]])


@lesson.figure("What the copiers bring to each place", size=(8.6, 2.0), legend=None, bare=True, xlim=(-2.6, SHOWN + 1),
               ylim=(-0.1, 3.1))  # fmt: skip
def plot_copies(axes):
    """Draw the presses and, below each place, those at lags 1 and 2."""
    text = ["AB"[press] for press in player().tolist()]
    for row, (name, lag) in enumerate((("press", 0), ("copier 1", 1), ("copier 2", 2))):
        axes.text(-2.5, 2.45 - row, name, va="center", fontsize=11)
        for place in range(lag if lag else 0, SHOWN + 1):
            letter = "?" if place - lag == SHOWN else text[place - lag]
            color = ORANGE if place == SHOWN and lag else PALE if lag == 0 else "white"
            axes.add_patch(
                Rectangle((place + 0.05, 2.05 - row), 0.86, 0.8, facecolor=color, edgecolor=GREY, linewidth=0.6)
            )
            axes.text(place + 0.48, 2.45 - row, letter, ha="center", va="center", fontsize=11)
    return (
        "The 24 presses and the place to come. Copier 1 brings each place the press before it, copier 2 the one "
        "before that. "
        "Orange: the past of the place to come."
    )


@lesson.figure("How alike is each place to the place to come?", "place", "set", size=(8.6, 2.4), legend=None,
               xlim=(1.4, SHOWN - 0.5), ylim=(-0.55, 2.55))  # fmt: skip
def plot_compare(axes):
    """Draw the similarities that the copiers allow, for three sets, along the player's presses."""
    begun = train_arm(TOGETHER, steps=0).weights.w[0, 0].softmax(-1)
    found = comparisons(player(), begun)
    for row, values in enumerate(found):
        for t, value in enumerate(values.tolist(), start=2):
            shade = max(0.0, min(1.0, value))
            axes.add_patch(Rectangle((t - 0.46, 1.58 - row), 0.92, 0.84, facecolor=DARK, alpha=shade, edgecolor="none"))
            axes.text(t, 2 - row, "AB"[player()[t]], ha="center", va="center", fontsize=10,
                      color="white" if value > 0.5 else BLACK)  # fmt: skip
    axes.set_yticks([2, 1, 0], [named(s) for s in ((1,), (2,), (1, 2))])
    axes.set_xticks(range(2, SHOWN, 3))
    axes.tick_params(length=0)
    axes.grid(False)
    return "Similarity of each place with the place to come, for {1}, {2} and {1, 2}: dark is near 1, white near 0."


# What a set is worth


def typical(delta: float = DELTA, slip: float = 0.125):
    """Return the table of a player who repeats and slips with probability 1/8 after either press."""
    press_b = (1 - delta) * torch.tensor([slip, 1 - slip]).double() + delta * torch.tensor([[1.0], [0.0]]).double()
    return next_table(Chains(torch.stack([1 - press_b, press_b], -1)[None], (1, 2)), 2)


def blocks(lags: Sequence[int]) -> list[tuple[str, float, float]]:
    """Return context, frequency and chi-square of each context of a set, for the typical player."""
    table = typical()[0]
    joint = {(1,): table.sum(0), (1, 2): table.flatten(0, 1)}[tuple(lags)]
    names = {(1,): ("A", "B"), (1, 2): ("AA", "AB", "BA", "BB")}[tuple(lags)]
    following = joint.sum(0)
    mu = joint.sum(1)
    chi = ((joint / mu[:, None]).square() / following).sum(1) - 1
    return [(name, float(m), float(x)) for name, m, x in zip(names, mu, chi, strict=True)]


@lesson.figure(["{1}: two contexts", "{1, 2}: four contexts"], "context of a place", "context of the question", grid=(1, 2),
               size=(7.8, 3.8), legend=None, xlim=(0, 1), ylim=(0, 1), aspect="equal")  # fmt: skip
def plot_worth(*both):
    """Draw matches as squares on a diagonal, as dark as their context says something."""
    said = []
    for axes, lags in zip(both, ((1,), (1, 2)), strict=True):
        at, ticks, total, area = 0.0, [], 0.0, 0.0
        for name, mu, chi in blocks(lags):
            axes.add_patch(Rectangle((at, at), mu, mu, facecolor=DARK, alpha=min(1.0, chi / 0.7), edgecolor=BLACK))
            axes.text(at + mu / 2, at + mu / 2, f"{chi:.2f}", ha="center", va="center", fontsize=11,
                      color="white" if chi > 0.4 else BLACK)  # fmt: skip
            ticks.append((at + mu / 2, name))
            at, total, area = at + mu, total + mu**2 * chi, area + mu**2
        axes.set_xticks(*zip(*ticks, strict=True))
        axes.set_yticks(*zip(*ticks, strict=True))
        axes.tick_params(length=0)
        axes.grid(False)
        axes.text(0.97, 0.06, f"squares cover {area:.2f}\n$I$ = {total:.3f}", ha="right", fontsize=11)
        said.append(f"{named(lags)}: squares cover {area:.2f} of the area, I = {total:.3f}.")
    return "Context of the question upwards, that of a place to the right, each as long as it is frequent. " + " ".join(
        said
    )


# All parts together


@lesson.figure(["Begun with all $c_S$ = 1", "Begun with all $c_S$ = 0.01"], "step of gradient descent",
               ["share $p_S$", "share $p_S$ (log axis)"], grid=(1, 2), size=(7.4, 2.9),
               legend=["upper right", None])  # fmt: skip
def plot_together(from_one, small):
    """Draw shares while all parts are trained together, five seeds, from two starts."""
    histories = (train_arm(TOGETHER, c=1.0), train_arm(TOGETHER))
    for axes, history, sets in zip((from_one, small), histories, (((1,), (1, 2), ()),) * 2, strict=True):
        for lags in sets:
            for seed in SEEDS:
                looks = look(lags) | ({} if seed == 0 else {"label": "_"})
                axes.plot(shares(history, lags)[:, seed].clamp(min=1e-60).numpy(), linewidth=1.1, **looks)
    from_one.set_ylim(-0.03, 1.4)
    from_one.set_yticks([0, 0.25, 0.5, 0.75, 1])
    small.set_yscale("log")
    small.set_ylim(1e-45, 30)
    return (
        "Five seeds. Left: the shares move slowly; {1} leads at first, and {1, 2} overtakes it without a fall. "
        "Right: {1} holds nearly everything for 60 to 112 steps, while {1, 2} falls far below a millionth; then {1, 2} "
        "takes its place, in one seed only in part. The steps are large there: the early bump of ∅ comes from numbers "
        "whose sign flips."
    )


def one_set_losses(scales: Sequence[float], lags: Sequence[int], played=None) -> list[float]:
    """Return the expected loss of comparing one set with sharp copiers, by (27.5), for each scale."""
    chains, presses = held_out() if played is None else played
    seen, reach = presses[:, :-1], SIZES.reach
    law, n = oracle(chains, seen), seen.shape[1]
    matches = torch.ones(len(seen), n - reach, dtype=torch.float64)
    for lag in lags:
        matches = matches * (seen[:, reach - lag : n - lag] == seen[:, n - lag, None])
    one_hot = torch.nn.functional.one_hot(seen[:, reach:], 2).double()
    at_matches, everywhere = (matches[:, None] @ one_hot)[:, 0], one_hot.sum(1)
    found = []
    for a in scales:
        y = everywhere + float(np.expm1(a)) * at_matches
        y = y / y.sum(1, keepdim=True)
        found.append(float(-(law * (y + 1e-3).log()).sum(1).mean()))
    return found


SCALES = np.linspace(0, 6, 61)


@cache
def crossing() -> float:
    """Return the scale from which on comparing {1, 2} alone has a lower loss than {1} alone."""
    at = np.linspace(0.5, 4, 351)
    gap = np.subtract(one_set_losses(at, (1,)), one_set_losses(at, (1, 2)))
    return float(at[np.argmax(gap > 0)])


@lesson.figure("One set alone, at a scale that is held", "scale $a$", "loss (nats)", size=(6.4, 3.7), legend="lower left",
               xlim=(0, 6))  # fmt: skip
def plot_scale(axes):
    """Draw the loss of each set alone against the scale."""
    for lags in ((1,), (1, 2), (2,)):
        axes.plot(SCALES, one_set_losses(SCALES, lags), linewidth=2, **look(lags))
    at = crossing()
    axes.axvline(at, color=GREY, linestyle=":", linewidth=1.2)
    axes.annotate(f"$a$ = {at:.1f}", (at, 0.575), (6, 0), textcoords="offset points", fontsize=10)
    return (
        f"Expected loss on the 8,000 players of one set only, against the scale a. Up to a = {at:.1f} that of {{1}} is the "
        "lowest, from there on that of {1, 2}, which is least near a = 4."
    )


WINDOW = (0.1, 0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 15.0)


@cache
def ends_at(a: float) -> Tensor:
    """Return the shares after 400 steps with the scale held at a, (seeds, sets)."""
    return train_selector(a).weights.selection()[-1]


@lesson.figure("The shares alone are trained, 400 steps", "scale $a$, held", "share $p_S$", size=(6.0, 3.1),
               legend="upper right", xlim=(0, 15), ylim=(-0.03, 1.04))  # fmt: skip
def plot_window(axes):
    """Draw what training the shares alone ends with, against the scale that is held."""
    ends = torch.stack([ends_at(a) for a in WINDOW]).numpy()
    for lags in LOOK:
        found, looks = ends[:, :, SIZES.sets.index(lags)], look(lags)
        axes.plot(WINDOW, found.mean(1), linewidth=1.8, **looks)
        axes.fill_between(WINDOW, found.min(1), found.max(1), color=looks["color"], alpha=0.12, linewidth=0)
    return (
        "Shares against the scale that is held: mean (line) and range (area) of five seeds. {1} has all up to about 1, "
        "{1, 2} leads in every seed from 2 to 4; beyond, the shares spread over {1}, {1, 2}, ∅ and {2}."
    )


def attention_on_player(weights: Weights) -> Tensor:
    """Return the attention of a trained model to each place of the player's presses from the third on."""
    found = comparisons(player(), weights.w.softmax(-1))
    p = weights.selection()
    score = p[0] + (p[1:, None] * found).sum(0)
    return (weights.a * score).softmax(0)


@lesson.figure(["before training", "in stages", "together"], "place", "attention", grid=(1, 3),
               size=(8.2, 2.6), legend=None, xlim=(1, SHOWN), ylim=(0, 0.32))  # fmt: skip
def plot_attention(*three):
    """Draw the attention of three models to the presses of the first picture."""
    histories = (train_arm(TOGETHER, steps=0), train_arm(STAGES), train_arm(TOGETHER))
    models = [last(history, 0) for history in histories]
    said = []
    presses = player()
    for axes, name, weights in zip(three, ("before training", "in stages", "together"), models, strict=True):
        attention = attention_on_player(weights)
        hits = places_that_match(presses, (1, 2))
        for t, weight in enumerate(attention.tolist(), start=2):
            axes.bar([t], [weight], 0.8, color=DARK if t in hits else PALE, edgecolor=GREY, linewidth=0.5)
            axes.text(t, weight + 0.004, "AB"[presses[t]], ha="center", fontsize=7.5)
        b = float(attention @ presses[2:].double())
        axes.text(12.5, 0.29, f"says B with {b:.2f}", ha="center", fontsize=10.5)
        after = float(attention[[t - 2 for t in hits]].sum())
        said.append(f"{name}: B with {b:.2f}, weight {after:.2f} after AB")
    return "First of five seeds: attention to the player's presses, dark after AB. " + "; ".join(said) + "."


def _range(values: Sequence[float], digits: int) -> str:
    low, high = (f"{f(values):.{digits}f}" for f in (min, max))
    return low if low == high else f"{low} to {high}"


def stored(arm: tuple[str, float], what: str, steps: int = STEPS) -> list[float]:
    """Return a stored figure of a way to train, one number for each seed."""
    return measured("head_race", f"{arm[0]}, a from {arm[1]:g}, {steps} steps, {what}")


def arm_table() -> Markdown:
    """Return what each way to train ends with: ranges over five seeds."""
    rows = []
    for way, a in ARMS:
        rows.append((
            way, f"{a:g}", *(_range(stored((way, a), f"share of {s}"), 2) for s in ("{1}", "{1, 2}")),
            f"{mean(stored((way, a), 'loss')):.3f}",
        ))  # fmt: skip
    heads = ("trained", "$a$ at first", "{1}", "{1, 2}", "mean loss")
    return markdown_table(heads, rows)


def yardsticks() -> Markdown:
    """Return the stored losses of what the trained models are compared with."""
    names = [("one table for all players", "one table"), ("counts, {1}, smoothed", "smoothed (1,)"),
             ("counts, {1, 2}", "reader (1, 2)"), ("counts, {1, 2}, smoothed", "smoothed (1, 2)"),
             ("best possible for a stranger", "best"), ("knows the player", "knows the player")]  # fmt: skip
    return markdown_table(("reader", "loss"), [(n, f"{measured('head_race', key):.3f}") for n, key in names])


def held_table() -> Markdown:
    """Return the share of {1, 2} after the selector alone was trained, for each scale that was held."""
    rows = [(f"{a:g}", _range(measured("head_race", f"selector at a = {a:g}, share of {{1}}"), 2),
             _range(measured("head_race", f"selector at a = {a:g}, share of {{1, 2}}"), 2)) for a in HELD]  # fmt: skip
    return markdown_table(("$a$ held", "share of {1}", "share of {1, 2}"), rows)


def rate_table() -> Markdown:
    """Return, for training together, how far the scale came and which set led, for each rate."""
    rows = []
    for rate in RATES:
        key = f"{TOGETHER}, a from 0.01, rate {rate:g}, "
        rows.append((f"{rate:g}", _range(measured("head_race", key + "a"), 1),
                     _range(measured("head_race", key + "share of {1, 2}"), 2),
                     f"{mean(measured('head_race', key + 'validation')):.4f}"))  # fmt: skip
    return markdown_table(("rate", "$a$ at the end", "share of {1, 2}", "validation loss"), rows)


def long_table() -> Markdown:
    """Return what each way ends with after 1,600 steps."""
    rows = [(way, f"{a:g}", *(_range(stored((way, a), f"share of {s}", 1600), 2) for s in ("{1}", "{1, 2}")),
             f"{mean(stored((way, a), 'loss', 1600)):.3f}") for way, a in ARMS]  # fmt: skip
    return markdown_table(("trained, 1,600 steps", "$a$ at first", "share of {1}", "share of {1, 2}", "loss"), rows)


# Predictions

ask_race = lesson.prediction(
    "27.P1",
    "The model can compare any of the four sets ∅, {1}, {2} and {1, 2}, and all have the same share. Its attention is still "
    "nearly flat. Gradient descent on the loss of 800 players now trains the shares, and nothing else. What "
    "happens to them?",
    {
        "{1, 2}: its reader predicts best": "Its reader does predict best, and all the same its share falls to 0.",
        "{1}": right(
            "The set whose counting reader has the higher loss of the two takes everything, in all five seeds."
        ),
        "{2}": "Its reader is hardly better than counting all presses, and its share falls to 0.",
        "None: {1} and {1, 2} go on sharing": "Equal shares do not last: one of the two grows faster throughout.",
    },
    reveal=plot_race,
)

ask_together = lesson.prediction(
    "27.P2",
    "Now shares, copiers and the scale a are trained together for 400 steps, from two starts: all numbers c at 1, where the "
    "shares move slowly, and at 0.01 as before. From 0.01 all other sets together hold less than a millionth of a millionth "
    "at step 40, in all five seeds. Which set has the largest share at the end?",
    {
        "{1} from both starts": "That is what happens if the parts are trained one after the other. Here {1} leads "
        "only for a while.",
        "{1, 2} from 1, and {1} from 0.01": "From 1 it does. From 0.01 it had next to nothing, but not nothing, and came "
        "back at the step size used here.",
        "{1, 2} from both starts": right("From each start, in each of five seeds, it ends above one half."),
        "∅ or {2} from at least one start": "Both end near 0.",
    },
    reveal=plot_together,
)

FIGURES = lesson.figures
