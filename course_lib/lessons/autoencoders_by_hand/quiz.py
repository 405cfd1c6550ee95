"""Sentences of lesson 33, autoencoders_by_hand, each with what decides on it."""

import torch

from course_lib.lessons.autoencoders_by_hand.contents import lesson
from course_lib.sae.by_hand import AUTOENCODER, EXAMPLES, backward, forward, matrix, squared_error, step
from course_lib.teaching import fact


def facts(*rows: str) -> str:
    """Join facts, one a line."""
    return "\n".join(rows)


@lesson.sentence(
    "33.Q1",
    "A unit that is off for an example gets no gradient, so a step leaves its weights as they are.",
    answer="for certain only if it is off for all examples",
    conditions=("for certain only if it is off for all examples", "only if its sum is exactly 0"),
)
def off():
    """A gradient (33.5) is a sum over the examples. Output 3 is off for example 2 and has errors in two others."""
    x, own = EXAMPLES[:, 1:2], []
    for columns in (EXAMPLES, x):
        found = backward(AUTOENCODER, forward(AUTOENCODER, columns), columns)
        own.append(float(found.weights[3][2].abs().sum() + found.biases[3][2].abs()))
    return facts(
        fact(
            "all four examples: the sizes of the four derivatives of output 3 add up to {}", own[0], equals=12, within=0
        ),
        fact("example 2 alone: {}", own[1], equals=0, within=0),
    )


@lesson.sentence("33.Q2", "A unit that is off for all examples can never come on again.", answer=False)
def never():
    """Its own numbers stay, but what it reads changes while other units learn. Only a unit of layer 1 reads nothing that
    changes. Train on example 2 alone, where output 3 is off: the errors of outputs 2 and 4 bring it back."""
    x, layers = EXAMPLES[:, 1:2], AUTOENCODER
    before = float(forward(layers, x).sums[3][2])
    for _ in range(40):
        layers = step(layers, backward(layers, forward(layers, x), x), step_size=0.002)
    return facts(
        fact("its sum before: {}", before, equals=-1, within=0),
        fact("after 40 steps on example 2 alone: {:.1f}", float(forward(layers, x).sums[3][2]), at_least=1),
    )


@lesson.sentence(
    "33.Q3",
    "An autoencoder with a ReLU at its end can be trained to return a negative input.",
    answer=False,
)
def final():
    """An output of 0 or more misses a target of -1 by at least 1, whatever the weights. The worksheet has no negative input,
    and its network learns it."""
    outputs = torch.linspace(-3, 3, 601, dtype=torch.float64).relu()
    layers = AUTOENCODER
    for _ in range(1000):
        layers = step(layers, backward(layers, forward(layers, EXAMPLES), EXAMPLES), step_size=0.002)
    return facts(
        fact("target -1, 601 sums from -3 to 3: least loss {}", (outputs + 1).square().min(), at_least=1),
        fact(
            "the worksheet after 1,000 steps: loss {:.2f}",
            squared_error(forward(layers, EXAMPLES).output, EXAMPLES),
            at_most=0.1,
        ),
    )


@lesson.sentence(
    "33.Q4", "Layer 2 has two units, so it turns the worksheet's 3 x 4 table into a 2 x 3 table.", answer=False
)
def shape():
    """The code has a row for each unit and a column for each example. No layer changes the number of examples: a code with
    three columns would give three outputs for four targets."""
    code = forward(AUTOENCODER[:2], EXAMPLES).output
    three = forward(AUTOENCODER[2:], code[:, :3]).output
    return facts(
        fact("columns of the code: {}", code.shape[1], equals=4, within=0),
        fact("outputs from three of them: {}", three.shape[1], equals=3, within=0),
    )


@lesson.sentence(
    "33.Q5", "The derivative with respect to a bias is the sum of its unit's errors over the examples.", answer=True
)
def bias():
    """A bias is added to the sum of every example, at the rate 1, so (33.5) with values of 1. Autograd agrees."""
    x = matrix([[2, 1, 3], [1, 4, 0]])
    weight, b = matrix([[1, -1], [0, 2]]), matrix([1, -3]).requires_grad_()
    z = weight @ x + b[:, None]
    (slope,) = torch.autograd.grad((z.relu() - x).square().sum(), b)
    errors = (2 * (z.relu() - x) * (z > 0)).detach().sum(1)
    return fact("two units, three examples: they differ by {}", (slope - errors).abs().max(), equals=0, within=0)
