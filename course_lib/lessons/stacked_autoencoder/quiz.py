"""Sentences of lesson 35, stacked_autoencoder, each with what decides on it."""

import math

import torch

from course_lib.lessons.stacked_autoencoder.contents import lesson
from course_lib.lessons.stacked_autoencoder.pictures import (
    COMPONENTS,
    FIT,
    NORMAL,
    TRAINED,
    arc,
    arc_network,
    kept_of_others,
    sentence_states,
)
from course_lib.representation.bottleneck import cluster_code
from course_lib.representation.variance import kept_by_code
from course_lib.sae.metrics import explained_variance, pca_bound, pca_transfer
from course_lib.teaching import fact


@lesson.sentence(
    "35.Q1",
    "32 numbers, read linearly from 256 and decoded linearly, give back at most an eighth of the variance.",
    answer="only if all directions have the same variance",
    conditions=("only if all directions have the same variance", "only if the rows are normal"),
)
def an_eighth():
    """With equal variances (35.3) is k/D, for normal rows or others. The model's states have very unequal ones."""
    alike, states = (kept_of_others(name, COMPONENTS, FIT, 32) for name in (NORMAL, TRAINED))
    return "\n".join(
        [
            fact("32 components of normal rows, all directions alike: {:.3f}", alike, equals=1 / 8, within=0.01),
            fact("of the model's states: {:.2f}", states, at_least=0.8),
        ]
    )


@lesson.sentence(
    "35.Q2",
    "A deep enough encoder with an affine decoder gives back more of its training rows than PCA with as many numbers.",
    answer=False,
)
def deep_encoder():
    """By (35.2) only the piece of space on which the decoder writes counts, and PCA has the best one."""
    points = arc(600, seed=0)
    with torch.no_grad():
        gain = explained_variance(points, arc_network("bent encoder")(points)) - pca_bound(points, 1)
    return fact("the arc, bent encoder from random weights, less PCA: {:.4f}", gain, at_most=1e-6)


@lesson.sentence(
    "35.Q3",
    "No affine decoder gives back more of new rows than the principal components of the training rows.",
    answer=False,
)
def held_out():
    """The bound (35.3) belongs to the rows on which R is computed. Other directions can be better for new rows."""
    states = sentence_states()
    few, own = pca_transfer(states[:100], states[2000:], 32), pca_bound(states[2000:], 32)
    return "\n".join(
        [
            fact("components of 100 sentences, on 1,000 others: {:.3f}", few, at_most=0.85),
            fact("components of those 1,000 themselves: {:.3f}", own, at_least=0.88),
        ]
    )


@lesson.sentence(
    "35.Q4",
    "Of all codes of one number, with any decoder, the angle gives back most of a standard normal plane.",
    answer=False,
)
def spiral():
    """Send the place of the nearest point on a narrow spiral instead. One real number can hold as much as one likes."""
    points = torch.randn(4000, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    turn = torch.linspace(0, 40, 6000, dtype=torch.float64).sqrt() * math.sqrt(40)
    curve = 0.1 * turn[:, None] * torch.stack([turn.cos(), turn.sin()], dim=1)
    nearest = [torch.cdist(some, curve).argmin(dim=1) for some in points.split(500)]
    restored = curve[torch.cat(nearest)]
    return fact("4,000 points, a spiral: {:.3f}", explained_variance(points, restored), at_least=0.95)


@lesson.sentence("35.Q5", "Multiply the code by ten and fit the affine decoder anew: $R$ stays as it was.", answer=True)
def scale():
    """The decoder divides by ten. The code's own variance is irrelevant: (35.1) compares states."""
    states = sentence_states()[:500]
    code = torch.tanh(states[:, :4])
    gap = abs(kept_by_code(states, 10 * code) - kept_by_code(states, code))
    return fact("500 states, four bent numbers: R changes by {:.0e}", gap, at_most=1e-9)


@lesson.sentence(
    "35.Q6",
    "On the states a bent code beats PCA, so it takes a trained network to get there.",
    answer=False,
)
def by_hand():
    """The number of the nearest cluster, and one direction fewer, is a bent code too, without any gradient step.

    The live run on the page judges the same clusters on the last 500 of these 1,000 states and prints a little less.
    """
    states = sentence_states()
    fit, new = states[:2000], states[2000:]
    gain = explained_variance(new, cluster_code(fit, 8, 64)(new)) - pca_transfer(fit, new, 8)
    return fact("8 numbers, 64 clusters, 1,000 new states: more than PCA by {:.3f}", gain, at_least=0.03)
