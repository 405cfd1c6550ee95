"""Figures, explorer and predictions of lesson 22, induction heads."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
import torch
from matplotlib.patches import Rectangle
from torch import Tensor

from course_lib.lessons.induction_heads.contents import lesson
from course_lib.representation.attention_only import AttentionOnly
from course_lib.representation.head_scores import offset_score, read_heads, record, replaced
from course_lib.teaching import Choice, Explorer, Slider, lines, panels
from course_lib.teaching.style import BLACK, BLUE, ORANGE, RED
from course_lib.theory.induction_heads import (
    Examples,
    History,
    Sizes,
    Weights,
    examples,
    growth_rates,
    matched_weight,
    predict,
    predicted_rates,
    start,
    train,
)
from course_lib.theory.markov_chains import (
    Chains,
    chi_square,
    criterion,
    cross_entropy,
    draw_tokens,
    generalised_head,
    next_table,
    oracle,
    random_chains,
)

GREY, PALE = "0.55", "0.88"
SETS = tuple(lags for size in (1, 2, 3) for lags in combinations((1, 2, 3), size))


def seeded(seed: int) -> torch.Generator:
    """Return a generator."""
    return torch.Generator().manual_seed(seed)


def named(lags: Sequence[int]) -> str:
    """Return a set of lags as it is written: {1, 2}."""
    return "{" + ", ".join(map(str, lags)) + "}"


def sequences(
    parents: Sequence[int], seed: int, count: int, length: int = 101, alpha: float = 0.1
) -> tuple[Chains, Tensor]:
    """Return chains with three tokens, and one sequence of each."""
    generator = seeded(seed)
    chains = random_chains(count, parents=parents, alpha=alpha, generator=generator)
    return chains, draw_tokens(chains, length, generator=generator)


# The model in three parts


@dataclass(frozen=True)
class Study:
    """One training for each of several seeds: the examples, the chains behind them, and what became of the weights."""

    sizes: Sizes
    parents: tuple[int, ...]
    data: Examples
    chains: list[Chains]
    history: History

    @property
    def end(self) -> Weights:
        """The weights after the last step, of all seeds."""
        return Weights(*(getattr(self.history.weights, name)[-1] for name in "wca"))

    def values(self, form=criterion) -> Tensor:
        """I(S), or another form, of every set of each seed: means over its chains."""
        tables = [next_table(chains, self.sizes.reach) for chains in self.chains]
        return torch.stack([torch.stack([form(t, lags).mean() for lags in self.sizes.sets]) for t in tables])


@cache
def study(
    parents: tuple[int, ...], seeds: int, *, reach: int = 3, degree: int = 3, count: int = 1600,
    steps: tuple[int, int, int] = (100, 100, 150),
) -> Study:  # fmt: skip
    """Train on `count` sequences of 100 tokens for each seed: so many steps on c, on w, on a."""
    sizes = Sizes(n_heads=reach, reach=reach, degree=degree)
    drawn = [sequences(parents, seed, count) for seed in range(seeds)]
    data = examples(torch.stack([tokens for _, tokens in drawn]), sizes)
    history = train(data, sizes, start(sizes), steps=steps, step_sizes=(1, 1e4, 1))
    return Study(sizes, parents, data, [chains for chains, _ in drawn], history)


def held_out(parents: Sequence[int], length: int = 100, count: int = 1000) -> tuple[Chains, Tensor]:
    """Return chains that no training has seen, with `length` tokens to read and one to predict."""
    return sequences(parents, 2200, count, length + 1)


def one(weights: Weights, run: int) -> Weights:
    """Return the weights of one run."""
    return Weights(weights.w[run], weights.c[run], weights.a[run])


def losses(parents: tuple[int, ...], length: int, weights: Weights, sizes: Sizes) -> dict[str, float]:
    """Return held-out losses of the model and of what it is compared with."""
    chains, tokens = held_out(parents, length)
    seen, target = tokens[:, :-1], tokens[:, -1]
    answers = {
        "trained model": predict(examples(tokens, sizes), sizes, weights),
        f"generalised head {named(parents)}": generalised_head(seen, parents, 3),
        "unigram": generalised_head(seen, (), 3),
        "knows the chain": oracle(chains, seen),
    }
    return {name: float(cross_entropy(answer, target)) for name, answer in answers.items()}


EXAMPLE = (0, 2, 1, 0, 1, 1, 0, 2, 0, 0, 1, 2, 0, 2, 2, 0, 1, 0, 0, 1)


@lesson.figure(size=(9.0, 3.6), legend=None, bare=True, xlim=(-3.4, 21.2), ylim=(-0.6, 3.9))
def plot_matches(axes):
    """Draw a sequence, and which places match the place to come for three sets of lags."""
    for row, lags in enumerate(((1, 2, 3), (1, 2), (1,))):
        axes.text(-3.3, row + 0.4, f"S = {named(lags)}", va="center", fontsize=11)
        found = [t for t in range(3, 20) if all(EXAMPLE[t - lag] == EXAMPLE[20 - lag] for lag in lags)]
        for place, token in enumerate(EXAMPLE):
            asked, hit = 20 - place in lags, place in found
            color = ORANGE if asked else BLUE if hit else PALE
            box = Rectangle((place + 0.02, row + 0.02), 0.78, 0.78, facecolor=color, edgecolor=GREY, linewidth=0.6)
            axes.add_patch(box)
            axes.text(place + 0.4, row + 0.4, "ABC"[token], ha="center", va="center", fontsize=11,
                      color="white" if hit else BLACK)  # fmt: skip
        axes.text(20.4, row + 0.4, "?", ha="center", va="center", fontsize=13)
    axes.text(10, 3.4, "orange: what is compared · blue: places that match, whose tokens are averaged", ha="center")
    return (
        "A sequence of 20 tokens A, B, C three times, with a question mark after it. For the set {1} the last token B is "
        "compared, and five places follow a B. For {1, 2} the last two, A B: three places follow A B. For {1, 2, 3} the "
        "last three, A A B: one place follows them. More lags leave fewer places to average."
    )


def _shares(axes, run: Study, shown: Sequence[tuple[int, ...]]) -> None:
    p, sets = run.history.weights.selection()[:26, 0], run.sizes.sets
    rest = [i for i, lags in enumerate(sets) if lags not in shown]
    curves = {named(lags): p[:, sets.index(lags)] for lags in shown} | {"all others": p[:, rest].sum(dim=1)}
    lines(axes, range(26), {name: curve.numpy() for name, curve in curves.items()})


@cache
def single() -> Study:
    """Train on chains whose only parent is the token before: smaller, and shorter."""
    return study((1,), 3, count=400, steps=(40, 60, 100))


@lesson.figure(["the token before is the only parent", "parents 1 and 2"], "step of gradient descent on c",
               "share of a set, $p_S$", grid=(1, 2), ylim=(-0.02, 1.04), legend="center right")  # fmt: skip
def plot_selection(left, right):
    """Draw the shares of the sets for two kinds of chains."""
    _shares(left, single(), ((1,), (1, 2), (1, 3), (1, 2, 3)))
    _shares(right, study((1, 2), 3), ((1, 2), (1, 2, 3), (2,), (2, 3)))
    return (
        "The shares of sets of lags in the comparison against steps of gradient descent. Left, for chains whose "
        "only parent is the token before: all eight shares start at one eighth, and within 25 steps {1} has everything; "
        "{1, 2}, {1, 3} and {1, 2, 3}, which hold the parent too, rise a little at most and fall to 0. Right, for the "
        "parents 1 and 2: {1, 2} takes all, and {1, 2, 3} falls last."
    )


@lesson.figure(["selector", "copier", "classifier"], "step of gradient descent",
               ["share of {1, 2}", "attention to the own lag", "scale a"], grid=(1, 3), legend=[None, "center right", None],
               ylim=[(-0.03, 1.05), (0.9, 1.003), (-0.1, 6)])  # fmt: skip
def plot_stages(selector, copier, classifier):
    """Draw what is trained in each of the three stages, for three seeds."""
    run = study((1, 2), 3)
    weights, (first, second, _) = run.history.weights, run.history.stages
    best = run.sizes.sets.index((1, 2))
    for seed in range(3):
        look = {"linewidth": 1 + 0.5 * seed, "alpha": 0.8}
        selector.plot(weights.selection()[: first + 1, seed, best].numpy(), color=BLUE, **look)
        own = weights.own_lag()[first : first + second + 1, seed].numpy()
        for head, (color, style) in enumerate(((BLUE, "-"), (RED, "--"), (BLACK, ":"))):
            label = f"head {head + 1}" if seed == 0 else f"_{seed}"
            copier.plot(own[:, head], color=color, linestyle=style, label=label, **look)
        classifier.plot(weights.a[first + second :, seed].numpy(), color=BLUE, **look)
    return (
        "Three panels for three seeds, which nearly coincide. Left the share of the set {1, 2} rises from one eighth to 1 "
        "within some forty steps. In the middle the attention of heads 1 and 2 to their own lags rises from 0.91 to above "
        "0.99, while head 3, which is in no selected set, stays at 0.91. Right the scale a rises fast to about 4 and then "
        "slowly to about 5."
    )


def rates(run: Study, form, *, own: float = 3.0) -> tuple[Tensor, Tensor]:
    """Return growth rates of log c at the start, predicted by a form in the place of I and measured, (seeds, sets)."""
    begin = start(run.sizes, own=own)
    return predicted_rates(run.values(form), begin), growth_rates(run.data, run.sizes, begin)


@lesson.figure(["criterion I(S)", "plain chi-square in its place"], "predicted rate", "measured rate of log $c_S$",
               grid=(1, 2), size=(8.8, 4.0), legend="upper left")  # fmt: skip
def plot_rates(*both):
    """Draw measured growth rates against those that two criteria predict, for two kinds of chains."""
    for axes, form in zip(both, (criterion, chi_square), strict=True):
        for run, marker, color in ((single(), "o", BLUE), (study((1, 2), 3), "^", RED)):
            x, y = (rate.flatten().numpy() for rate in rates(run, form, own=30.0))
            axes.plot(x, y, marker, color=color, linestyle="none", markersize=6, label=f"parents {named(run.parents)}")
        axes.plot([-4, 3], [-4, 3], color=GREY, linestyle=":", label="equal")
    return (
        "Measured growth rates of log c against predicted ones, for eight sets, three seeds and two kinds of chains, with "
        "copiers that see one lag each. Left with the criterion I(S): the points lie along the dotted line of equality. "
        "Right with plain chi-square in its place: the predictions are several times too large, and sets that tie in them "
        "differ in the measurement."
    )


LENGTHS = (10, 20, 40, 100, 200, 400)


@lesson.figure("Trained on 100 tokens, read at other lengths", "tokens that are read", "held-out loss (nats)",
               xscale="log", ylim=(0, 1.3), legend="upper right")  # fmt: skip
def plot_lengths(axes):
    """Draw held-out losses against the length of the context."""
    run = study((1, 2), 3)
    found = [losses((1, 2), length, one(run.end, 0), run.sizes) for length in LENGTHS]
    lines(axes, LENGTHS, {name: [row[name] for row in found] for name in found[0]})
    axes.axvline(100, color=GREY, linewidth=1, linestyle=":")
    axes.set_xticks(LENGTHS, [str(length) for length in LENGTHS])
    axes.minorticks_off()
    return (
        "The loss on new chains against the number of tokens that are read, from 10 to 400, for the model that was "
        "trained on 100. Its loss falls from about 0.6 at 10 tokens to 0.2 at 100 and stays there up to 400, together with "
        "the generalised head. The unigram shares stay between 0.65 and 0.95. A reader that knows the chain has about 0.18 "
        "throughout."
    )


# A real transformer on the same chains

CONTEXT, STEPS, EVERY, BATCH = 40, 480, 20, 20


def new_transformer(seed: int) -> AttentionOnly:
    """Return two layers of four heads with learned positions, whose first prediction is nearly uniform."""
    model = AttentionOnly(vocabulary=3, max_tokens=CONTEXT, d_model=48, generator=seeded(seed))
    model.unembedding.data.mul_(0.1)
    return model


@cache
def test_tokens() -> Tensor:
    """Return 256 sequences of new chains with the parents 1 and 2."""
    return held_out((1, 2), CONTEXT, 256)[1]


def late_loss(model: torch.nn.Module, count: int = 256) -> float:
    """Return the mean loss of the predictions with at least 20 tokens to read."""
    tokens = test_tokens()[:count]
    with torch.no_grad():
        logits = model(tokens[:, :-1])[:, CONTEXT // 2 - 1 :]
        return float(torch.nn.functional.cross_entropy(logits.mT, tokens[:, CONTEXT // 2 :]))


@cache
def baselines() -> dict[str, float]:
    """Return the losses of shares among matching places, over the same predictions."""
    kinds = {"uniform": None, "unigram": (), "bigram": (1,), "generalised head {1, 2}": (1, 2)}
    tokens, found = test_tokens(), {}
    for name, lags in kinds.items():
        guesses = [
            torch.full((256, 3), 1 / 3) if lags is None else generalised_head(tokens[:, :t], lags, 3)
            for t in range(CONTEXT // 2, CONTEXT + 1)
        ]
        found[name] = float(cross_entropy(torch.stack(guesses), tokens[:, CONTEXT // 2 :].T).mean())
    return found


@cache
def transformer(seed: int) -> tuple[AttentionOnly, np.ndarray]:
    """Train by Adam on fresh chains; return the model, and (step, held-out loss) every 20 steps."""
    model, curve = new_transformer(seed), []
    tokens = sequences((1, 2), 300 + seed, STEPS * BATCH, CONTEXT + 1)[1].split(BATCH)
    adam = torch.optim.Adam(model.parameters(), lr=8e-3, betas=(0.9, 0.99))
    slower = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: min(1.0, 3 * (1 - step / STEPS)))  # to 0 in the end
    for step in range(STEPS + 1):
        if step % EVERY == 0:
            curve.append((step, late_loss(model, 64)))
        if step < STEPS:
            adam.zero_grad()
            torch.nn.functional.cross_entropy(model(tokens[step][:, :-1]).mT, tokens[step][:, 1:]).backward()
            adam.step()
            slower.step()
    return model.requires_grad_(False), np.array(curve)


@lesson.figure("A two-layer transformer learns to read chains", "training step of Adam", "held-out loss (nats)",
               size=(7.2, 4.0), ylim=(0.2, 1.2), legend="upper right")  # fmt: skip
def plot_question(axes):
    """Draw the losses of two seeds, and the levels of simple predictors."""
    lines(axes, None, {f"seed {seed}": tuple(transformer(seed)[1].T) for seed in (1, 2)})
    for name, level in baselines().items():
        axes.axhline(level, color=GREY, linestyle=":", linewidth=1.2)
        axes.text(4, level + 0.012, name, fontsize=9, color="0.3")
    return (
        "The held-out loss of two small transformers against training steps, with four dotted levels: uniform 1.1, unigram "
        "0.73, bigram 0.54, generalised head 0.32. Both start at the uniform level, fall below the unigram level within 20 "
        "steps, pass the bigram level near step 180, and come close to the level of the generalised head by step 480."
    )


def scores(model: torch.nn.Module) -> dict[str, Tensor]:
    """Return, for each head: weight on the token 1 and 2 back from its own place, and on places that match."""
    tokens = test_tokens()[:, :-1]
    patterns = record(model, read_heads(model), tokens).patterns
    return {
        "lag 1": torch.stack([offset_score(p, -1) for p in patterns]),
        "lag 2": torch.stack([offset_score(p, -2) for p in patterns]),
        "matches {1, 2}": torch.stack([matched_weight(p, tokens, (1, 2)) for p in patterns]),
    }


@cache
def _means(model: AttentionOnly) -> list[Tensor]:
    return [r.mean((0, 1)) for r in record(model, read_heads(model), test_tokens()[:, :-1]).results]


def loss_without(model: AttentionOnly, chosen: Sequence[int]) -> float:
    """Return the loss with the results of some heads replaced by their means."""
    with replaced(model, read_heads(model), {i: _means(model)[i] for i in chosen}):
        return late_loss(model)


@lesson.figure(["before training", "after training", "one head replaced by its mean"], "head",
               ["share of attention", "share of attention", "held-out loss (nats)"], grid=(1, 3), size=(12, 3.9),
               ylim=[(0, 1.19), (0, 1.19), (0, 1.19)], legend=["upper left", None, None])  # fmt: skip
def plot_heads(before, after, ablated):
    """Draw the scores of all heads before and after training, and the loss without each."""
    model = transformer(1)[0]
    names = [f"{i // 4}.{i % 4}" for i in range(8)]
    for axes, found in ((before, scores(new_transformer(1))), (after, scores(model))):
        for k, ((name, values), color) in enumerate(zip(found.items(), (BLUE, ORANGE, BLACK), strict=True)):
            axes.bar(
                np.arange(8) + 0.27 * (k - 1), values.numpy(), 0.27, color=color, label=name, hatch=("", "//", "")[k]
            )
    ablated.bar(range(8), [loss_without(model, [i]) for i in range(8)], color=[BLUE] * 4 + [RED] * 4)
    ablated.axhline(late_loss(model), color=BLACK, linestyle=":", linewidth=1.4)
    for axes in (before, after, ablated):
        axes.set_xticks(range(8), names)
    return (
        "For the eight heads of seed 1, the share of attention one token back, two tokens back, and on places whose last "
        "two tokens match. Before training no head gives more than 0.1 to a lag. After training head 0.3 gives about 0.9 to "
        "the token one back, 0.2 and 0.1 give 0.5 and 0.4 to the token two back, and all heads of layer 1 give most of "
        "their attention to matching places. Right the loss without each head: it rises from 0.34 to about 0.8 without the "
        "head that looks one back, and to between 0.4 and 0.5 without 0.0, which no score names, 0.2, 1.1 or 1.2."
    )


# The explorer


@cache
def _tables(parents: tuple[int, ...], exponent: float, tokens: int) -> Tensor:
    return next_table(random_chains(150, parents=parents, tokens=tokens, alpha=10**exponent, generator=seeded(1)), 3)


@lesson.explorer
class CriterionExplorer(Explorer):
    """Choose parents and the spread of the laws, and see which set of lags is worth most."""

    title = "What a set of lags is worth"
    summary = (
        "Two bar charts over the seven sets of the lags 1, 2, 3, each relative to its largest bar. Left the criterion that "
        "training maximises; a cross marks the largest bar, a ring the parents. Right the plain chi-square information."
    )
    parents = Choice(
        "parents", "Lags on which the next token depends", "1, 2", tuple(", ".join(map(str, s)) for s in SETS)
    )
    spread = Slider("spread of laws", "log₁₀ α", "Small: nearly certain laws", -1.0, -1.5, 1.5, 0.25)
    tokens = Slider("tokens", "V", "Number of different tokens", 3, 2, 3, 1)
    size = (10.6, 3.6)
    dpi = 100
    layout = panels(
        ["criterion I(S)", "plain chi-square"], "set of lags S", "share of the largest", grid=(1, 2), legend=None,
        ylim=(0, 1.19), xlim=(-0.6, 6.6),
    )  # fmt: skip

    def compute(self, *, parents, spread, tokens):
        """Average both over 150 chains."""
        lags = tuple(map(int, parents.split(", ")))
        table = _tables(lags, spread, tokens)
        value, plain = (np.array([float(form(table, s).mean()) for s in SETS]) for form in (criterion, chi_square))
        best = int(value.argmax())
        return {"value": value / value.max(), "plain": plain / plain.max(), "best": ([best], [1.07]),
                "parents": ([SETS.index(lags)], [1.07]), "size": value[best], "set": lags, "order": value}  # fmt: skip

    def draw(self, left, right):
        """Draw two bar charts."""
        for axes in (left, right):
            axes.set_xticks(range(7), [named(s) for s in SETS], fontsize=8)
        bars = [list(axes.bar(range(7), [0.0] * 7, color=color)) for axes, color in ((left, BLUE), (right, GREY))]
        ring = left.plot([0], [1.07], "o", color=BLACK, markerfacecolor="none", markersize=13)[0]
        best = left.plot([0], [1.07], "x", color=RED, markersize=9, markeredgewidth=2.5)[0]
        return {"value": bars[0], "plain": bars[1], "best": best, "parents": ring}

    def words(self, state):
        """Name the winner, its lead, and the ties under plain chi-square."""
        second = int(np.argsort(state["order"])[-2])
        ties = [named(s) for s, v in zip(SETS, state["plain"], strict=True) if v > 1 - 1e-6]
        winner = SETS[state["best"][0][0]]
        return (
            f"Parents {named(state['set'])}: I is largest for {named(winner)}, {state['size']:.3f}; next is "
            f"{named(SETS[second])} with {100 * state['value'][second]:.0f}% of it. Plain chi-square is largest for "
            f"{' and '.join(ties)}."
        )


# Predictions

selection_prediction = lesson.prediction(
    "22.P1",
    "The next token depends on the token before it and on nothing else. A model may compare any set of the lags 1, 2, 3. "
    "Several sets hold the parent: {1}, {1, 2}, {1, 3} and {1, 2, 3} carry the same information about the next "
    "token. Which of them does gradient descent select?",
    {
        "{1, 2, 3}: it sees the most": "It sees no more about the next token than {1}, and it finds far fewer places that "
        "match.",
        "They share, since they carry the same information": "Their information ties, their growth does not: a set that "
        "matches more places moves the prediction more.",
        "{1}, and nothing else": "Each further lag thins out the places that match, which lowers the rate of growth. The "
        "fastest term takes everything.",
    },
    answer="{1}, and nothing else",
    reveal=plot_selection,
)

length_prediction = lesson.prediction(
    "22.P2",
    "The model was trained on sequences of 100 tokens only. It now reads 20 tokens, or 400. What happens to its loss?",
    {
        "It is worse at both": "Nothing in the model knows the length: it averages over the places that match, "
        "however many there are.",
        "Worse at 20, and as good at 400 as at 100": "At 20 tokens too few places match, for the counting rule as for the "
        "model. At 400 there are more to average, and what is left is the chance in the chain itself.",
        "The same at all lengths": "With 20 tokens a pair has been seen twice on average: too few to know what follows.",
    },
    answer="Worse at 20, and as good at 400 as at 100",
    reveal=plot_lengths,
)

heads_prediction = lesson.prediction(
    "22.P3",
    "A real transformer with two layers of four heads is trained on chains with the parents 1 and 2. What do its "
    "four heads of layer 0 do after training?",
    {
        "All four look one token back": "One such head is enough for lag 1, and lag 2 has to come from somewhere.",
        "One looks one token back, another one two tokens back": "These are the copiers of the theory. Layer 1 then "
        "looks for places where both fit.",
        "Each spreads its attention over lags 1 and 2": "A mix of two tokens does not say which of them came first.",
    },
    answer="One looks one token back, another one two tokens back",
    reveal=plot_heads,
)

FIGURES = lesson.figures
