"""The guessing game of lesson 27: its players, readers that predict them, and how the small model is trained on them.

`make bench head_race` measures here what the page reads; the page runs parts of it live.
"""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from course_lib.theory.induction_heads import (
    Examples,
    History,
    Sizes,
    Weights,
    comparison_terms,
    examples,
    predict,
    start,
    train,
)
from course_lib.theory.markov_chains import Chains, cross_entropy, draw_tokens

SEEDS = (0, 1, 2, 3, 4)
COUNT, LENGTH, DELTA, STEPS = 800, 100, 0.3, 400
SLIPS = (0.05, 0.2)
SIZES = Sizes(tokens=2, n_heads=2, reach=2)
SETS = SIZES.sets  # (), (1,), (2,), (1, 2)


def seeded(seed: int) -> torch.Generator:
    """Return a generator."""
    return torch.Generator().manual_seed(seed)


def named(lags: Sequence[int]) -> str:
    """Return a set of lags as it is written: {1, 2}, and ∅ for no lags."""
    return "{" + ", ".join(map(str, lags)) + "}" if lags else "∅"


def players(count: int, delta: float | int, *, seed: int) -> Chains:
    """Draw players: half repeat the last press, half change it, with slips of their own; with delta they oppose lag 2."""
    generator = seeded(seed)
    slips = SLIPS[0] + (SLIPS[1] - SLIPS[0]) * torch.rand(count, 2, generator=generator, dtype=torch.float64)
    repeats = torch.stack([slips[:, 0], 1 - slips[:, 1]], dim=1)  # the probability of a B after A, and after B
    changes = torch.rand(count, 1, generator=generator, dtype=torch.float32) < 0.5
    habit = torch.where(changes, 1 - repeats, repeats)
    opposite = torch.tensor([1.0, 0.0], dtype=torch.float64)[:, None]  # a B if the older press was A
    press_b = (1 - delta) * habit[:, None] + delta * opposite
    return Chains(torch.stack([1 - press_b, press_b], dim=-1), (1, 2))


def game(count: int, delta: float | int, *, seed: int, length: int = LENGTH) -> tuple[Chains, Tensor]:
    """Return players, and `length` presses of each with one more to predict: (count, length + 1), 0 for A and 1 for B."""
    drawn = players(count, delta, seed=seed)
    return drawn, draw_tokens(drawn, length + 1, generator=seeded(10_000 + seed))


@cache
def held_out(delta: float | int = DELTA) -> tuple[Chains, Tensor]:
    """Return 8,000 players of whom no training and no choice of a setting has seen any."""
    return game(8000, delta, seed=2200)


@cache
def validation(delta: float | int = DELTA) -> tuple[Chains, Tensor]:
    """Return 8,000 players on whom settings are chosen."""
    return game(8000, delta, seed=2300)


@cache
def training(delta: float | int = DELTA, *, length: int = LENGTH) -> Examples:
    """Return 800 players for each of the five seeds, as examples."""
    return examples(torch.stack([game(COUNT, delta, seed=seed, length=length)[1] for seed in SEEDS]), SIZES)


# Readers to compare with


def smoothed_reader(presses: Tensor, lags: Sequence[int], extra: float | int) -> Tensor:
    """Return the counts of each press at the places that match, with `extra` added to each, as shares."""
    length, reach = presses.shape[1], SIZES.reach
    matches = torch.ones(len(presses), length - reach, dtype=torch.float64)
    for lag in lags:
        matches = matches * (presses[:, reach - lag : length - lag] == presses[:, length - lag, None])
    counts = (matches[:, None] @ torch.nn.functional.one_hot(presses[:, reach:], 2).double())[:, 0] + extra
    return counts / counts.sum(dim=1, keepdim=True)


def fixed_table(presses: Tensor, known: Tensor) -> Tensor:
    """Return the prediction of one table for all players: how often each press followed each pair in `known`."""
    rows = torch.zeros(2, 2, 2, dtype=torch.float64)
    older, newer, following = known[:, :-2], known[:, 1:-1], known[:, 2:]
    rows.index_put_((older.flatten(), newer.flatten(), following.flatten()), torch.ones(1).double(), accumulate=True)
    return (rows / rows.sum(dim=-1, keepdim=True))[presses[:, -2], presses[:, -1]]


def best_reader(presses: Tensor, delta: float | int, *, points: int = 31) -> Tensor:
    """Return the Bayes prediction of a reader that knows how players are drawn, and delta, but no player.

    The two slips are integrated on a grid of midpoints; given the habit they are independent of each other.
    """
    slips = SLIPS[0] + (SLIPS[1] - SLIPS[0]) * (torch.arange(points, dtype=torch.float64) + 0.5) / points
    older, newer, following = presses[:, :-2], presses[:, 1:-1], presses[:, 2:]
    asked = presses[:, -2], presses[:, -1]
    evidence, answers = [], []
    for changes in (False, True):
        total, answer = 0.0, torch.zeros(len(presses), dtype=torch.float64)
        for new in (0, 1):
            habit = slips if new == 0 else 1 - slips
            habit = 1 - habit if changes else habit
            fit = torch.zeros(len(presses), points, dtype=torch.float64)
            laws = [(1 - delta) * habit + delta * (old == 0) for old in (0, 1)]
            for old, press_b in enumerate(laws):
                here = (older == old) & (newer == new)
                for press, law in ((0, 1 - press_b), (1, press_b)):
                    fit = fit + (here & (following == press)).sum(dim=1)[:, None] * law.log()
            total = total + fit.logsumexp(dim=1)
            for old, press_b in enumerate(laws):
                answer = torch.where((asked[0] == old) & (asked[1] == new), fit.softmax(dim=1) @ press_b, answer)
        evidence.append(total)
        answers.append(answer)
    press_b = (torch.stack(evidence).softmax(dim=0) * torch.stack(answers)).sum(dim=0)
    return torch.stack([1 - press_b, press_b], dim=1)


# Ways to train

STAGES, TOGETHER, SCALE_FIRST = "in stages", "together", "scale first"
ARMS = ((STAGES, 0.01), (STAGES, 3.0), (TOGETHER, 0.01), (TOGETHER, 3.0), (SCALE_FIRST, 0.01))
RATES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
HELD = (0.01, 0.3, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 10.0, 15.0)


def begin(a: float | int, c: float | int = 0.01) -> Weights:
    """Return the start of training, with the scale a and all numbers of the sets at c."""
    begun = start(SIZES)
    return Weights(begun.w, torch.full_like(begun.c, c), torch.tensor(float(a), dtype=torch.float64))


def train_arm(
    way: str,
    a: float | int = 0.01,
    *,
    rate: float | int = 1.0,
    data: Examples | None = None,
    steps: int = STEPS,
    c: float | int = 0.01,
) -> History:
    """Train selector, copiers and scale for `steps` steps, all seeds at once.

    In stages: the selector for a quarter, the copiers for a quarter, the scale for the rest. Scale first: the scale for a
    half, then the selector and the copiers. Slopes of c and w grow with a, so their steps are divided by it.
    """
    data, quarter, small = training() if data is None else data, steps // 4, rate * 0.01
    if way == TOGETHER:
        return train(data, SIZES, begin(a, c), steps=(steps, 0, 0), step_sizes=(small / a, rate, rate), together=True)
    if way == STAGES:
        sizes = (small / a, 1e4 * small / a, rate)
        return train(data, SIZES, begin(a, c), steps=(quarter, quarter, 2 * quarter), step_sizes=sizes)
    first = train(data, SIZES, begin(a, c), steps=(0, 0, 2 * quarter), step_sizes=(0, 0, rate))
    then = train(data, SIZES, last(first), steps=(quarter, quarter, 0), step_sizes=(small / 3, 100 * small, 0))
    joined = {name: torch.cat([getattr(first.weights, name), getattr(then.weights, name)[1:]]) for name in "wca"}
    return History(Weights(**joined), torch.cat([first.loss[:-1], then.loss]), (quarter, quarter, 2 * quarter))


def train_selector(
    a: float | int, *, steps: int = STEPS, data: Examples | None = None, rate: float | int = 1.0
) -> History:
    """Train the selector alone, with the scale held at a."""
    data = training() if data is None else data
    return train(data, SIZES, begin(a), steps=(steps, 0, 0), step_sizes=(0.01 * rate / a, 0, 0))


def last(history: History, seed: int | None = None) -> Weights:
    """Return the weights after the last step, of all seeds or of one."""
    parts = [getattr(history.weights, name)[-1] for name in "wca"]
    return Weights(*(parts if seed is None else [part[seed] for part in parts]))


def shares(history: History, lags: Sequence[int]) -> Tensor:
    """Return the share of a set after every step, (steps + 1, seeds)."""
    return history.weights.selection()[..., SETS.index(tuple(lags))]


def loss_on(played: tuple[Chains, Tensor], history: History) -> list[float]:
    """Return the loss of each seed's model on the last press of other players, in nats."""
    presses = played[1]
    data = examples(presses, SIZES)
    return [
        float(cross_entropy(predict(data, SIZES, last(history, seed)), presses[:, -1]))
        for seed in range(history.weights.a.shape[-1])
    ]


def matched_attention(history: History) -> Tensor:
    """Return each seed's mean attention, on held-out players, to the places after the same two presses."""
    data, found = examples(held_out()[1], SIZES), []
    for seed in range(history.weights.a.shape[-1]):
        weights = last(history, seed)
        table = (weights.selection()[:, None, None] * comparison_terms(SIZES, weights.w)).sum(0)
        attention = (weights.a * table[data.window]).exp() * data.places
        attention = attention / attention.sum(-1, keepdim=True)
        found.append(attention.gather(-1, data.window[:, None]).mean())
    return torch.stack(found)


def loss_without(history: History, head: int) -> list[float]:
    """Return the held-out loss of each seed's model when the copier `head`, 1 or 2, averages the lags."""
    presses = held_out()[1]
    data, found = examples(presses, SIZES), []
    for seed in range(history.weights.a.shape[-1]):
        weights = last(history, seed)
        w = weights.w.clone()
        w[head - 1] = 0.0
        found.append(float(cross_entropy(predict(data, SIZES, Weights(w, weights.c, weights.a)), presses[:, -1])))
    return found
