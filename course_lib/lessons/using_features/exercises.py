"""Exercises of lesson 38, using_features."""

import math

import torch

from course_lib.lessons.using_features.contents import lesson
from course_lib.teaching import edit, inputs, normal, uniform, whole


def _feature_off(x, code, decoder, feature, scale):
    """The reconstruction without the feature, plus what the autoencoder does not reconstruct."""
    without = code.clone()
    without[:, feature] = 0
    return scale * without @ decoder.T + (x - scale * code @ decoder.T)


@lesson.exercise(
    "38.1", "Switch one feature off", difficulty=2, minutes=10,
    prompt="Write `switched_off(x, code, decoder, feature, scale)`: the states of all tokens with one feature off and "
    "everything else as it was, also what the autoencoder does not reconstruct. `x` has shape `(tokens, d)`; `code` holds "
    "the activations, shape `(tokens, features)`; `decoder` has shape `(d, features)`; `feature` is a column's number. The "
    "reconstruction of the states, apart from a constant, is `scale * code @ decoder.T`.",
    draw=inputs(
        tokens=whole(3, 4), d=whole(2, 3), features=whole(4, 5), x=normal("tokens d"), chance=normal("tokens features"),
        code=lambda chance: torch.relu(chance), raw=uniform(0.1, 1, "d features"), decoder=lambda raw: raw / raw.norm(dim=0),
        feature=whole(0, 3), scale=uniform(1.5, 3),
    ),
    properties=[
        ("A token at which the feature does not fire should keep its state.",
         lambda x, code, feature, answer: torch.allclose(answer[code[:, feature] == 0], x[code[:, feature] == 0])),
        ("A state should move along the feature's direction only.",
         lambda x, decoder, feature, answer: torch.allclose(
             (answer - x) @ decoder[:, feature, None] * decoder[:, feature], answer - x, atol=1e-9)),
        ("The reconstruction should lose the feature, and what the autoencoder does not reconstruct should stay.",
         lambda x, code, decoder, feature, scale, answer: torch.allclose(
             answer, _feature_off(x, code, decoder, feature, scale), atol=1e-9)),
    ],
    hints=(
        "The new code differs from the old one in one column only. By how much does the reconstruction change?",
        "The direction is a column of the decoder, `decoder[:, feature]`; how much of it a token holds says its code.",
        "Keep a dimension, `code[:, feature, None]`, to multiply each token's activation by the direction.",
    ),
    mistakes=[
        ("the reconstruction", lambda x, code, decoder, feature, scale:
            scale * (code * (torch.arange(code.shape[1]) != feature)) @ decoder.T,
         "You returned the reconstruction without the feature: what the autoencoder does not reconstruct is lost as well."),
        ("projected out", lambda x, code, decoder, feature, scale:
            x - (x @ decoder[:, feature])[:, None] * decoder[:, feature],
         "You removed all that x holds along the direction, also where the feature does not fire and other features use "
         "the direction."),
        ("no scale", edit("scale * ", ""), "The activations are in units of the scaled states: multiply by the scale."),
        ("twice", edit("scale *", "2 * scale *"), "You moved twice as far: that multiplies the feature by -1."),
        ("added", edit("x - scale", "x + scale"), "You added the feature once more: that multiplies it by 2."),
        ("mean activation", edit("code[:, feature, None]", "code[:, feature].mean()"),
         "You subtracted the mean activation from every token. Each token has an activation of its own."),
        ("largest activation", edit("code[:, feature, None]", "code[:, feature].max()"),
         "You subtracted the largest activation from every token. Each token has an activation of its own."),
        ("the feature alone", edit("x - scale", "scale"),
         "You returned what the feature contributes. Subtract it from the states."),
        ("without its activation", edit("code[:, feature, None] * ", ""),
         "You subtracted the direction once from every token, whether the feature fires there or not."),
        ("where it fires", edit("code[:, feature, None]", "(code[:, feature, None] > 0)"),
         "You subtracted the direction where the feature fires, but not as strongly as it fires."),
        ("divided by the scale", edit("scale *", "1 / scale *"),
         "You divided by the scale. The reconstruction multiplies by it."),
        ("all the others", lambda x, code, decoder, feature, scale:
            x - scale * (code * (torch.arange(code.shape[1]) != feature)) @ decoder.T,
         "You switched off all the other features and kept this one."),
        ("unchanged", edit("x - scale * code[:, feature, None] * decoder[:, feature]", "x"),
         "You returned the states as they came: the changed code has to go back through the decoder."),
        ("all features", lambda x, code, decoder, feature, scale: x - scale * code @ decoder.T,
         "You switched off every feature: what is left is what the autoencoder does not reconstruct."),
    ],
)
def switched_off(x, code, decoder, feature, scale):
    """States without one feature, all else as it was."""
    return x - scale * code[:, feature, None] * decoder[:, feature]


lesson.value(
    "38.2", "What was recovered", difficulty=1, minutes=4,
    prompt="On held-out translations the decoder's cross-entropy is 0.03 nats a token. With the encoder's states replaced "
    "by their reconstructions it is 0.04, with every state replaced by the mean state 3.00. Call the model's own states 1 "
    "and the mean state 0, on a straight scale of cross-entropy: where do the reconstructions stand? Give three digits.",
    answer=2.96 / 2.97,
    properties=[
        ("The model's own states should stand at 1, the mean state at 0, and yours on the line between.",
         lambda answer: math.isclose(3.00 + answer * (0.03 - 3.00), 0.04, abs_tol=1.6e-3)),
    ],
    same=lambda one, other: abs(one - other) < 5e-4 * max(1, abs(other)),  # also for an answer in percent
    hints=(
        "Which of the three cross-entropies is the best one, which is the stand-in for no information?",
        "The mean state costs 2.97 nats more than the model's own states. That is the whole scale.",
        "How much of these 2.97 nats do the reconstructions win back from 3.00?",
    ),
    mistakes=[
        ("from zero", (3.00 - 0.04) / 3.00,
         "You divided by 3.00. The best that can be reached is 0.03, not 0: the scale is 3.00 - 0.03."),
        ("what is lost", 0.01 / 2.97, "That is the share that is lost: (0.04 - 0.03) / 2.97. Recovered is the rest."),
        ("the ratio", 4 / 3,
         "The cross-entropy does rise by a third, which this scale hides. Asked is the place on the scale."),
        ("clean over spliced", 0.75, "You divided 0.03 by 0.04. The mean state's 3.00 has to come in as the zero point."),
        ("in percent", 100 * 2.96 / 2.97, "Right, in percent: give a share, between 0 and 1."),
        ("the difference", 2.96, "That is what is won back, in nats. Divide by all that there was to win."),
        ("the rise", 0.01, "That is by how much the cross-entropy rises, in nats. Compare it with the whole scale, then ask "
         "for the rest."),
        ("upside down", 2.97 / 2.96, "You divided the other way round: a share of what there was to win is at most 1."),
    ],
)


@lesson.exercise(
    "38.3", "A control for “any push would do”", difficulty=2, minutes=8,
    prompt="An edit has turned the states `x` into `edited`, both of shape `(tokens, d)`. Someone objects: \"any push "
    "of that length would have changed the word\". Write `pushed_as_far(x, edited, direction)`: each token's state, moved "
    "exactly as far as the edit moved that token, straight *against* another feature's "
    "`direction`, shape `(d,)`, of any length but 0. "
    "Return shape `(tokens, d)`.",
    draw=inputs(
        tokens=whole(2, 4), d=whole(2, 4), x=normal("tokens d"), step=normal("tokens d"),
        still=whole(0, 1), edited=lambda x, step, still: x + step * (torch.arange(len(x)) != still)[:, None],
        direction=uniform(0.2, 2, "d"),
    ),
    properties=[
        ("Each token should move as far as the edit moved it.",
         lambda x, edited, answer: torch.allclose((answer - x).norm(dim=1), (edited - x).norm(dim=1), atol=1e-9)),
        ("Each token should move straight against the direction.",
         lambda x, edited, direction, answer: torch.allclose(
             (answer - x) @ direction, -(edited - x).norm(dim=1) * direction.norm(), atol=1e-9)),
    ],
    hints=(
        "How far did the edit move each token? That is one number a token.",
        "`(edited - x).norm(dim=1, keepdim=True)` has shape (tokens, 1).",
        "Only the direction's way is wanted, not its length: divide it by its norm. Against it means a minus.",
    ),
    mistakes=[
        ("not of length 1", edit(" / direction.norm()", ""),
         "Your steps are too long or too short by the length of the direction: divide it by its norm."),
        ("along it", edit("x - ", "x + "),
         "You pushed along the direction. Switching a feature off moves against it, and so must the control."),
        ("from the edited states", edit("return x -", "return edited -"),
         "You pushed the edited states. The control takes the place of the edit: start at x."),
        ("one length for all", edit("(edited - x).norm(dim=1, keepdim=True)", "(edited - x).norm()"),
         "You moved every token by the norm of the whole table. Each token has a length of its own."),
        ("mean length", edit("(edited - x).norm(dim=1, keepdim=True)", "(edited - x).norm(dim=1).mean()"),
         "You moved every token by the mean length. Each token has a length of its own, and it may be 0."),
        ("squared", edit("(edited - x).norm(dim=1, keepdim=True)", "(edited - x).square().sum(dim=1, keepdim=True)"),
         "You used the squared length: take the root."),
        ("sum of sizes", edit("(edited - x).norm(dim=1, keepdim=True)", "(edited - x).abs().sum(dim=1, keepdim=True)"),
         "You added the sizes of the coordinates. The length of a step is the root of the sum of their squares."),
        ("projected", lambda x, edited, direction:
            x + ((edited - x) @ direction)[:, None] * direction / direction.square().sum(),
         "You kept the part of the edit along the direction. The control moves as far as the whole edit."),
        ("length of the state", edit("(edited - x).norm(dim=1, keepdim=True)", "edited.norm(dim=1, keepdim=True)"),
         "You took the length of the edited state. How far did it move?"),
        ("the step alone", edit("return x -", "return -"), "You returned the step. Add it to the states."),
        ("the edit itself", lambda x, edited, direction: edited,
         "You returned the edited states: that is the experiment, not its control."),
        ("once", edit("(edited - x).norm(dim=1, keepdim=True) * ", ""),
         "Every token moved by 1. How far did the edit move each of them?"),
    ],
)
def pushed_as_far(x, edited, direction):
    """States moved as far as an edit did, against another direction."""
    return x - (edited - x).norm(dim=1, keepdim=True) * direction / direction.norm()


@lesson.exercise(
    "38.4", "One noun for another, without a dictionary", difficulty=2, minutes=8,
    prompt="Write `exchanged(x, states, words, own, aim)`. `states` are labelled examples, shape `(examples, d)`; `words`, "
    "shape `(examples,)`, numbers the word of each. Move the states `x`, shape `(tokens, d)`, of tokens that belong to the "
    "word `own`, so that they are as much `aim` as they were `own`: a state that stands at the mean of `own` must arrive at "
    "the mean of `aim`, and whatever else distinguishes one token from another must stay. Return shape `(tokens, d)`. "
    "This becomes (38.4).",
    draw=inputs(
        tokens=whole(2, 3), d=whole(2, 3), x=normal("tokens d"), states=normal("8 d"),
        words=lambda generator: torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])[torch.randperm(8, generator=generator)],
        own=whole(0, 1), aim=lambda own: own + 1,
    ),
    properties=[
        ("Two tokens should differ afterwards as they differed before.",
         lambda x, answer: torch.allclose(answer - answer[:1], x - x[:1], atol=1e-9)),
        ("A state at the mean of `own` should arrive at the mean of `aim`.",
         lambda x, states, words, own, aim, answer: torch.allclose(
             answer - x, (states[words == aim].mean(0) - states[words == own].mean(0)).expand_as(x), atol=1e-9)),
    ],
    hints=(
        "What do all examples of one word have in common, and what averages out?",
        "`states[words == own].mean(dim=0)` is one point, shape (d,). You need two of them.",
        "The same arrow is added to every state: where does it start and where does it end?",
    ),
    mistakes=[
        ("backwards", edit("x + there - here", "x + here - there"),
         "Your arrow points from the other word to this one: exchange the signs."),
        ("the mean itself", edit("x + there - here", "(there + 0 * x)"),
         "Every token becomes the mean of the other word: what distinguished the tokens, such as their number, is lost."),
        ("added only", edit("x + there - here", "x + there"),
         "You added the other word and left the first one in: subtract its mean."),
        ("taken away only", edit("x + there - here", "x - here"),
         "You took the first word away. Add the mean of the other one."),
        ("mean of all", edit("states[words == own].mean(dim=0)", "states.mean(dim=0)"),
         "You subtracted the mean of all examples. What has to go is the mean of `own`."),
        ("mean of the rest", edit("states[words == own].mean(dim=0)", "states[words != aim].mean(dim=0)"),
         "You subtracted the mean of every word but `aim`. What has to go is the mean of `own`."),
        ("sums", edit("states[words == own].mean(dim=0)", "states[words == own].sum(dim=0)",
                      "states[words == aim].mean(dim=0)", "states[words == aim].sum(dim=0)"),
         "You took sums: the arrow then grows with the number of examples. Take means."),
        ("mean of x", edit("states[words == own].mean(dim=0)", "x.mean(dim=0)"),
         "You subtracted the mean of the tokens that are to be changed. The examples say where `own` lies."),
        ("of length 1", edit("x + there - here", "x + (there - here) / (there - here).norm()"),
         "You made the arrow 1 long. Its length says how far apart the words are: keep it."),
        ("halfway", edit("x + there - here", "x + (there - here) / 2"), "You stop halfway between the two words."),
        ("one number", edit("own].mean(dim=0)", "own].mean()", "aim].mean(dim=0)", "aim].mean()"),
         "You averaged over the coordinates too. A mean state has one number for each coordinate."),
        ("median", edit("own].mean(dim=0)", "own].median(dim=0).values", "aim].mean(dim=0)", "aim].median(dim=0).values"),
         "You took medians, coordinate by coordinate. Asked are the means."),
        ("unchanged", edit("x + there - here", "x"), "You returned the states as they came."),
    ],
)
def exchanged(x, states, words, own, aim):
    """States of one word moved to another by the difference of their means."""
    here = states[words == own].mean(dim=0)
    there = states[words == aim].mean(dim=0)
    return x + there - here


EXERCISES = lesson.exercises
