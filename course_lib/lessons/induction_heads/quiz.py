"""Sentences of lesson 27, induction heads, each with what decides on it."""

import torch

from course_lib.lessons.induction_heads.contents import lesson
from course_lib.lessons.induction_heads.measurements import (
    SIZES,
    TOGETHER,
    begin,
    held_out,
    loss_on,
    players,
    shares,
    train_arm,
    train_selector,
    training,
)
from course_lib.teaching import fact
from course_lib.theory.induction_heads import Weights, predicted_rates, train
from course_lib.theory.markov_chains import chi_square, cross_entropy, generalised_head, next_table


@lesson.sentence(
    "27.Q1",
    "Trained together for 400 steps, the model (27.4) becomes the counting rule (27.1) of {1, 2}.",
    answer=False,
)
def limit():
    """It compares mostly by {1, 2}, but at a scale near 4, where other places keep some weight. That smooths the counts, and
    the loss is lower than that of the rule."""
    history, (_, presses) = train_arm(TOGETHER), held_out()
    rule = float(cross_entropy(generalised_head(presses[:, :-1], (1, 2), 2), presses[:, -1]))
    return "\n".join(
        [
            fact("five seeds: the scale a {:.1f}", history.weights.a[-1], at_most=6.0),
            fact("the loss of the rule less that of the model, nats: {:.3f}",
                 [rule - loss for loss in loss_on((None, presses), history)], at_least=0.005),
        ]
    )  # fmt: skip


@lesson.sentence(
    "27.Q2",
    "At the start training prefers the set of lags with the most information about the next press.",
    answer=False,
)
def information():
    """At δ = 0.3 both lags together have more information than lag 1, and lag 1 alone gets everything."""
    table = next_table(players(2000, 0.3, seed=3), 2)
    more = chi_square(table, (1, 2)).mean() - chi_square(table, (1,)).mean()
    end = shares(train_selector(0.01), (1,))[-1]
    return "\n".join(
        [
            fact("2,000 players: both lags have more information, by {:.2f}", more, at_least=0.05),
            fact("five seeds: share of the set of lag 1 alone {:.3f}", end, at_least=0.99),
        ]
    )


@lesson.sentence(
    "27.Q3", "The second layer tells pasts apart by itself: the copiers may bring both lags alike.", answer=False
)
def alone():
    """It compares what was copied to each place, (27.2). If the copiers bring both lags alike, pasts that differ in their
    order look the same, and training shares and scale cannot repair that. The pair of layers is often called an induction
    circuit."""
    end, begun = train_arm(TOGETHER), begin(0.01)
    blind = Weights(torch.zeros_like(begun.w), begun.c, begun.a)
    trained = train(training(), SIZES, blind, steps=(400, 0, 0), step_sizes=(1.0, 0.0, 1.0), together=True)
    return "\n".join(
        [
            fact("trained together, five seeds: a loss of {:.2f}", loss_on(held_out(), end), at_most=0.58),
            fact("the same with copiers that average both lags, trained: {:.2f}", loss_on(held_out(), trained),
                 at_least=0.6),
        ]
    )  # fmt: skip


@lesson.sentence("27.Q4", "If I({1}) is a hundredth larger than I({1, 2}), then by (27.8) {1} still gets nearly everything.",
                 answer=True)  # fmt: skip
def narrow():
    """The ratio of two numbers c grows at a fixed rate, so a small lead only takes longer."""
    weights, values = begin(0.01), torch.tensor([0.0, 0.0808, 0.0, 0.08]).double()
    for _ in range(4000):  # (27.8) in steps of 0.05
        c = weights.c * (0.05 * predicted_rates(values, weights)).exp()
        weights = Weights(weights.w, c, weights.a)
    return fact("I of 0.0808 and 0.08: share of {} at the time 200".format("lag 1 alone") + " {:.3f}",
                weights.selection()[1], at_least=0.99)  # fmt: skip


@lesson.sentence(
    "27.Q5", "Longer games turn the early race to {1, 2}, whose reader gains most from more presses.", answer=False
)
def longer():
    """I(S) holds frequencies, which do not depend on the length. The reader does gain; the race does not ask for readers."""
    end = shares(train_selector(0.01, data=training(length=400)), (1,))[-1]
    return fact("400 presses, δ = 0.3, five seeds: share of the set of lag 1 alone {:.3f}", end, at_least=0.99)


@lesson.sentence(
    "27.Q6",
    "At δ = 0, where lag 2 tells nothing new, no set with lag 2 led at any scale tried, 0.01 to 15.",
    answer=True,
)
def superfluous():
    """At the scales tried {1} stays ahead of {2} and of {1, 2}. The proof (27.7) is for small a only."""
    ends = []
    for a in (0.01, 1.0, 3.0, 6.0, 10.0, 15.0):
        history = train_selector(a, data=training(0.0))
        with_it = shares(history, (2,))[-1].maximum(shares(history, (1, 2))[-1])
        ends.append(float((shares(history, (1,))[-1] - with_it).min()))
    return fact(
        "a = 0.01, 1, 3, 6, 10, 15: lag 1 alone is ahead of every set with lag 2 by at least {:.2f}",
        ends,
        at_least=0.2,
    )
