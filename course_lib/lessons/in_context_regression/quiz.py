"""Sentences of lesson 28, in-context regression, each with what decides on it."""

from functools import cache
from statistics import mean

import torch

from course_lib.lessons.in_context_regression.contents import lesson
from course_lib.lessons.in_context_regression.measurements import (
    ETA,
    TASKS,
    first_below,
    followed,
    held_out,
    seeded,
    starts,
)
from course_lib.lessons.in_context_regression.pictures import allocated, stays
from course_lib.measured import measured
from course_lib.teaching import fact
from course_lib.theory.in_context_regression import (
    History,
    attention,
    mean_squared_error,
    ridge_answers,
    shares,
    train,
)


@lesson.sentence("28.Q1", "The head that starts with the largest gain $u$ for a task ends up serving it.", answer=False)
def leader():
    """From small starts the sentence is nearly right. From larger ones a head that leads in two tasks gets noise from
    both, and often loses one."""
    return "\n".join(
        [
            fact("stored runs, s = 0.25: of 72 tasks the leader keeps {}", allocated(0.25, "kept"), at_most=60),
            fact("s = 0.05: {}", allocated(0.05, "kept"), at_least=64),
        ]
    )


@cache
def two_heads() -> History:
    """Train two heads on the three tasks from eight starts, for 4,800 steps."""
    return train(TASKS, *starts(2, range(8)), steps=4800, batch=48, every=1200, generator=seeded(10))


def smaller_share(step: int) -> torch.Tensor:
    """Return for each start the largest share that a second head has in any task."""
    history = two_heads()
    return shares(history.u[history.steps.index(step)]).amin(dim=1).amax(dim=1)


@lesson.sentence(
    "28.Q2",
    "Two heads with equal factors, three tasks. After 1,200 steps the error has long been flat, and two heads share a task. "
    "So they will go on sharing it.",
    answer=False,
)
def shared():
    """The shares go on moving while the error hardly does. In the end one head has the task to itself."""
    history, prompts = two_heads(), held_out(2000)
    run = int(smaller_share(1200).argmax())
    early, late = (
        float(mean_squared_error(prompts, history.w[at, run], history.u[at, run])) for at in (1, len(history.steps) - 1)
    )
    return "\n".join(
        [
            fact("the largest share of a second head after 1,200 steps, of 8 starts: {:.2f}", smaller_share(1200).max(),
                 at_least=0.3),
            fact("after 4,800 steps: {:.3f}", smaller_share(4800).max(), at_most=0.05),
            fact("the error of that start changes by {:.2f}", abs(late - early), at_most=0.25),
        ]
    )  # fmt: skip


@lesson.sentence(
    "28.Q3",
    "Two heads with the same weights $w$ serve one task together with less noise than one of them alone.",
    answer=False,
)
def together():
    """Equal weights make equal averages: there is nothing to average out. Noise falls where heads differ."""
    prompts = held_out(500, dtype=torch.float64)
    w = torch.cat([torch.full((1, 4), 0.5), torch.zeros(1, 8)], dim=1).double()
    u = torch.tensor([[1.69, 0.0, 0.0]], dtype=torch.float64)
    gap = attention(prompts, w, u) - attention(prompts, w.repeat(2, 1), u.repeat(2, 1) / 2)
    return fact("one head, or two with half the u each: the answers differ by {:.0e}", gap.abs().max(), at_most=1e-12)


@lesson.sentence(
    "28.Q4",
    "Twice the step size halves the number of steps of the first wait.",
    answer="only if it is gradient descent with small steps",
    conditions=("only if it is gradient descent with small steps", "only if the start is scaled, too"),
)
def rate():
    """Small steps follow one flow, whose time is the number of steps times the step size."""
    q, v = starts(3, [0], scale=0.2)
    waits = []
    for step_size, every in ((0.025, 4), (0.05, 2)):
        errors, _ = followed((q, q, v, v), steps=300, seed=6, step_size=step_size, batch=32, every=every, prompts=300)
        waits += first_below(errors, 6, every=every)
    return fact("s = 0.2: steps at 0.025 over steps at 0.05 {:.2f}", waits[0] / waits[1], equals=2, within=0.12)


@lesson.sentence(
    "28.Q5",
    "Gradient descent that has reached one head for each task stays there.",
    answer="only if the factors o and v of each gain are equal",
    conditions=("only if the factors o and v of each gain are equal", "only if the step size is small"),
)
def stay():
    """Any difference of o and v grows, by (28.7); one of q and k alone ended nothing in the stored runs. Half the step size
    doubles the steps, and no more."""
    return "\n".join(
        [
            fact("stored runs, factors off by 0.02%: steps until the error is below 1.9, five starts, {}",
                 mean(stays(0.0002)), at_most=6000),
            fact("equal factors: of five starts {} stay above 2.2 for 6,000 steps",
                 sum(error > 2.2 for error in _ends()), equals=5, within=0),
            fact("only q and k differ: {} of five", sum(error > 2.2 for error in measured("idle_heads", _QK)),
                 equals=5, within=0),
        ]
    )  # fmt: skip


_QK = "only q and k differ, error"


def _ends() -> list[float]:
    return measured("flat_stretches", f"share 0, rate {ETA}, error")


@lesson.sentence(
    "28.Q6",
    "Heads that answer regressions in context do so about as well as ridge regression in each prompt.",
    answer=False,
)
def solver():
    """A softmax average is a smoother, not a solver: no training here came near ridge regression."""
    prompts = held_out(dtype=torch.float64)
    told, all_features = (
        float((ridge_answers(prompts, TASKS, blocks_known=known) - prompts.target).square().sum(1).mean())
        for known in (True, False)
    )
    best = min(_four())
    return "\n".join(
        [
            fact("the least stored error of four heads, over that of ridge with all features: {:.0f}", best / all_features,
                 at_least=20),
            fact("over that of ridge that is told the four features: {:.0f}", best / told, at_least=50),
        ]
    )  # fmt: skip


def _four() -> list[float]:
    return measured("flat_stretches", f"4 heads, share 0.02, rate {ETA}, error")
