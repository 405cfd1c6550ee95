"""The sentences of lesson 10, each with what decides on it."""

import torch
from torch.nn import functional

from course_lib.lessons.convolution.contents import lesson
from course_lib.lessons.convolution.corners import (
    CONV,
    JOINED_MAX,
    MAX,
    NETWORKS,
    OWN,
    PLACES,
    accuracy,
    corner,
    data,
    train,
)
from course_lib.lessons.convolution.pictures import network
from course_lib.teaching import fact


@lesson.sentence(
    "10.Q1", "A trained convolutional layer does not care where in the image a shape stands.", answer=False
)
def it_moves_along():
    """Its maps, (10.1), move along with the shape, (10.2), away from the border. The largest value of a map is what does
    not care."""
    images = torch.zeros(2, 1, 16, 16, dtype=torch.float32)
    images[0, 0, 4:9, 4:9] = corner(0)
    images[1, 0, 4:9, 7:12] = corner(0)
    with torch.no_grad():
        maps = network(CONV)[0](images)
        moved = (maps[0] - maps[1]).abs().max()
        largest = (maps[0].amax((1, 2)) - maps[1].amax((1, 2))).abs().max()
        answers = network(MAX)(images)
    return "\n".join(
        [
            fact("a corner 3 columns further: a value of the maps changes by {:.1f}", moved, at_least=0.5),
            fact("the largest value of a map changes by {}", largest, at_most=1e-5),
            fact("what the network with the largest values says changes by {}", (answers[0] - answers[1]).abs().max(),
                 at_most=1e-4),
        ]
    )  # fmt: skip


@lesson.sentence(
    "10.Q2",
    "One channel, stride 1, a 3 x 3 kernel that looks the same after half a turn, and one row of zeros around the image, so "
    "that the output is as large: then the matrix M of the layer equals its own transpose.",
    answer=True,
)
def a_symmetric_layer():
    """The way back is the same layer then. A blur is such a kernel; that of the ring is not."""
    size, gaps = 5, []
    for kernel in ([[1, 2, 1], [2, 4, 2], [1, 2, 1]], [[-1, -1, -1], [0, 0, 0], [1, 1, 1]]):
        w = torch.tensor(kernel, dtype=torch.float64)[None, None]
        each = torch.eye(size * size, dtype=torch.float64).view(-1, 1, size, size)
        matrix = functional.conv2d(each, w, padding=1).flatten(1).T
        gaps.append((matrix - matrix.T).abs().max())
    return "\n".join(
        [
            fact("blur on 5 x 5 pixels: M and its transpose differ by {}", gaps[0], equals=0, within=0),
            fact("edges: by {}", gaps[1], equals=2, within=0),
        ]
    )


@lesson.sentence(
    "10.Q3",
    "A filter slides at stride 2 without padding, and only the largest value of its map is read. Without noise, and with "
    "the shape away from the border, this value stays the same when the shape moves.",
    answer="only if it moves by even numbers of rows and columns",
    conditions=(
        "only if it moves by even numbers of rows and columns",
        "only if it moves by as many rows as columns",
    ),
)
def every_second_place():
    """Half of the places are gone along each axis. One step brings the shape between two of those that are left."""
    images = torch.zeros(3, 1, 16, 16, dtype=torch.float32)
    for image, (row, column) in zip(images[:, 0], ((4, 4), (6, 10), (5, 5)), strict=True):
        image[row : row + 5, column : column + 5] = corner(0)
    with torch.no_grad():
        filters = network(MAX)[0]
        largest = functional.conv2d(images, filters.weight, filters.bias, stride=2).amax((2, 3))
    return "\n".join(
        [
            fact("2 rows down, 6 columns on: the largest values change by {}",
                 (largest[0] - largest[1]).abs().max(), at_most=1e-4),
            fact("1 row down, 1 column on: by {:.1f}", (largest[0] - largest[2]).abs().max(), at_least=0.5),
        ]
    )  # fmt: skip


@lesson.sentence(
    "10.Q4",
    "Filters of their own at each place, and the largest value of each map: as long as no corner lies in the right half, "
    "the filters there get no gradient.",
    answer=False,
)
def noise_wins_too():
    """Where their values on noise are the largest, they win, and what wins gets a gradient. It teaches them noise."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        fresh = NETWORKS[OWN]()
    images, labels = data(0)["train"]
    loss = functional.cross_entropy(fresh(images), labels)
    (gradient,) = torch.autograd.grad(loss, fresh[0].weight)
    by_column = gradient.square().sum((0, 1)).view(PLACES, PLACES).sum(0)
    return fact(
        "before the first step, share of the squared gradient at places that read the right half alone: {:.2f}",
        by_column[8:].sum() / by_column.sum(), at_least=0.02,
    )  # fmt: skip


@lesson.sentence(
    "10.Q5",
    "A convolution with 5 × 5 filters, of which only the largest value of each map is read, cannot learn to say in which "
    "half a corner lies.",
    answer="only if the edges of the image are joined",
    conditions=(
        "only if the edges of the image are joined",
        "only if it is trained on corners in both halves",
    ),
)
def the_border_tells():
    """The last column of a filter never reads the first columns of an image: a border tells where a corner is."""
    halves = [data(0)[half][0] for half in ("left", "right")]
    label = torch.arange(2).repeat_interleave(500)
    right = {}
    for name in (MAX, JOINED_MAX):
        asked = train(name, torch.cat([half[:500] for half in halves]), label, rate=0.01, seed=0)
        right[name] = accuracy(asked, torch.cat([half[500:1000] for half in halves]), label)
    return "\n".join(
        [
            fact("trained on the half in place of the shape, no padding: {:.2f} are right", right[MAX], at_least=0.8),
            fact("joined edges: {:.2f}", right[JOINED_MAX], equals=0.5, within=0.08),
        ]
    )
