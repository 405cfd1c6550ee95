"""Sentences of lesson 25, low-rank adaptation, each with what decides on it."""

import numpy as np
import torch
from torch import nn

from course_lib.lessons.low_rank_adaptation.contents import lesson
from course_lib.lessons.low_rank_adaptation.measurements import (
    language,
    last_states,
    loss_on,
    one_batch,
    one_step,
    teach,
)
from course_lib.lessons.low_rank_adaptation.pictures import SOURCES, all_shares, normal, small_runs
from course_lib.representation import lora
from course_lib.teaching import fact


def _gap(model: nn.Module) -> float:
    """By how much a model's last states differ from those of the model alone, over their own size."""
    batch = one_batch(0)
    alone = last_states(language()[0], batch)
    return float((last_states(model, batch) - alone).norm() / alone.norm())


@lesson.sentence(
    "25.Q1",
    "Every old weight is frozen, so what the model knew is safe.",
    answer="only once the adapter is taken off",
    conditions=("only once the adapter is taken off", "only if the rank is 1"),
)
def frozen():
    """The adapter acts on every sentence. Taken off, it leaves the old model, bit for bit. Below, trained for 12 steps."""
    taught = teach(1, rate=6e-3, seed=0, steps=12, every=12)
    on = loss_on(taught.model, None)
    lora.unload(taught.model)
    return "\n".join(
        [
            fact("rank 1, on: the old loss {:.2f}", on, at_least=0.05),
            fact("taken off: the states differ by {:.0f}", _gap(taught.model), equals=0, within=0),
        ]
    )


@lesson.sentence(
    "25.Q2", "If both factors start at random, the features of the pretrained model are no longer used.", answer=False
)
def both_random():
    """W still acts: the output is disturbed, not replaced. Below, Xavier's variance for both, one layer."""
    layer = lora.find_linears(language()[0], lora.ALL_LINEAR)["model.encoder.layers.0.fc1"]
    x, weight = normal(200, 256, seed=20).float(), layer.weight.detach()
    low, up = torch.empty(8, 256), torch.empty(1024, 8)
    for factor in (low, up):
        nn.init.xavier_normal_(factor, generator=torch.Generator().manual_seed(1))
    out, alone = x @ (weight + up @ low).T, x @ weight.T
    cosine = float(torch.cosine_similarity(out.flatten(), alone.flatten(), dim=0))
    return "\n".join(
        [
            fact("the output changes by {:.0%} of its size", (out - alone).norm() / alone.norm(), at_least=0.05),
            fact("its cosine with W x is {:.2f}", cosine, at_least=0.8),
        ]
    )


@lesson.sentence("25.Q3", "With both factors at zero, an adapter starts slowly and then catches up.", answer=False)
def both_zero():
    """Both gradients are zero at every step, (25.4). A start that is only nearly zero does get away."""
    runs = small_runs("both_zero", "alpha/r")[3, 12]
    started = small_runs("zero_b", "alpha/r")[3, 12]
    return "\n".join(
        [
            fact("both zero: after 60 steps {:.2f} of the loss is left", runs[-1], equals=1, within=0),
            fact("one random, one zero: {:.3f}", started[-1], at_most=0.1),
        ]
    )


@lesson.sentence(
    "25.Q4",
    "The leading singular vectors of the weight W hold most of the first step that the task asks for.",
    answer=False,
)
def singular():
    """Those of the gradient do, (25.5). The weight's hold more than random directions, and far less."""
    weight, random, own = (np.median(all_shares(source)[:, 7]) for source in (SOURCES[1], SOURCES[0], SOURCES[2]))
    return "\n".join(
        [
            fact("eight directions, median of 48 layers: the weight's hold {:.2f}", weight, at_most=0.3),
            fact("random directions {:.3f}", random, at_most=0.06),
            fact("the gradient's {:.2f}", own, at_least=0.8),
        ]
    )


@lesson.sentence(
    "25.Q5",
    "If a fully trained adapter underfits, raise its rank.",
    answer="only if the best change has a higher rank",
    conditions=("only if the best change has a higher rank", "only if the step size is raised with it"),
)
def underfits():
    """The rank bounds what can be reached, by the singular values that are left out. Below, a change of rank 4, fitted."""
    wanted = normal(20, 4, seed=1) @ normal(4, 20, seed=2)
    left = {}
    for rank in (2, 4, 8):
        low, up = 0.1 * normal(rank, 20, seed=3), torch.zeros(20, rank).double()
        for _ in range(1500):
            gap = up @ low - wanted
            low, up = low - 0.01 * up.T @ gap, up - 0.01 * gap @ low.T
        left[rank] = float((up @ low - wanted).square().sum() / wanted.square().sum())
    best = float(torch.linalg.svdvals(wanted)[2:].square().sum() / wanted.square().sum())
    return "\n".join(
        [
            fact("rank 2 leaves {:.3f} of the squared change", left[2], equals=best, within=1e-3),
            fact("ranks 4 and 8 leave {:.4f}", [left[4], left[8]], at_most=1e-3),
        ]
    )


@lesson.sentence("25.Q6", "The scale s = α/r makes the first step independent of the rank.",
                 answer="only for Adam, where the examples agree",
                 conditions=("only for Adam, where the examples agree", "only for plain gradient descent"))  # fmt: skip
def rule():
    """On course-mbart's gradients: Adam's step has s once, that of gradient descent twice, (25.7), (25.8)."""
    moved = {
        name: one_step(64, rule="alpha/r", optimiser=kind, seed=7) / one_step(4, rule="alpha/r", optimiser=kind, seed=7)
        for name, kind in (("Adam", torch.optim.Adam), ("SGD", torch.optim.SGD))
    }
    return "\n".join(
        [
            fact("Adam, rank 64 over rank 4: {:.2f}", moved["Adam"], equals=1, within=0.3),
            fact("gradient descent: {:.3f}", moved["SGD"], equals=1 / 16, within=0.02),
        ]
    )
