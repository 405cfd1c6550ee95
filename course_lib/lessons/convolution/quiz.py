"""The sentences of lesson 08, each with what decides on it."""

import torch
from torch.nn import functional

from course_lib.lessons.convolution.contents import lesson
from course_lib.lessons.convolution.corners import CONV, MAX, corner
from course_lib.lessons.convolution.pictures import network
from course_lib.teaching import fact


@lesson.sentence(
    "08.Q1", "A trained convolutional layer does not care where in the image a shape stands.", answer=False
)
def it_moves_along():
    """Its maps move along with the shape (08.1), away from the border. The largest value of a map is what does not care."""
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
    "08.Q2",
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
    "08.Q3",
    "Behind a max pooling, each output has the gradient 1. Then surely no pixel gets more than 1.",
    answer="only if the windows do not overlap",
    conditions=("only if the windows do not overlap", "only if all pixels differ"),
)
def a_pixel_that_wins_twice():
    """A pixel collects from each window in which it is the largest (08.7)."""
    found = []
    for stride in (1, 2):
        row = torch.tensor([1.0, 5.0, 2.0, 0.0], dtype=torch.float64, requires_grad=True)
        functional.max_pool1d(row[None], 2, stride).sum().backward()
        found.append(row.grad)
    return "\n".join(
        [
            fact("pixels 1, 5, 2, 0, windows of 2, stride 1: gradients {}", found[0], equals=[0, 2, 1, 0], within=0),
            fact("stride 2: {}", found[1], equals=[0, 1, 1, 0], within=0),
        ]
    )


@lesson.sentence(
    "08.Q4",
    "Windows of K pixels at stride S have (W - K)/S + 1 places in a row of W pixels.",
    answer="only if S divides W - K",
    conditions=("only if S divides W - K", "only if K is at most S"),
)
def rounded_down():
    """A last window that does not fit is left out: round down."""
    places = [
        functional.max_pool1d(torch.zeros(1, 1, 8, dtype=torch.float64), 3, stride).shape[-1] for stride in (2, 5)
    ]
    return "\n".join(
        [
            fact("W = 8, K = 3, S = 2, where the formula says 3.5: {} places", places[0], equals=3, within=0),
            fact("S = 5, where it says 2: {}", places[1], equals=2, within=0),
        ]
    )


@lesson.sentence(
    "08.Q5",
    "X and the m x m gradients dY are random and independent of each other, with means 0 and variances s and t "
    "in each entry. "
    "Then each entry of dW has the variance m² s t.",
    answer="only if the correlations of products x dy at different places add up to 0",
    conditions=(
        "only if the correlations of products x dy at different places add up to 0",
        "only if X and dY are normally distributed",
    ),
)
def one_constant():
    """Two images of one constant each, independent of each other, give m⁴ s t. Coins give m² s t without being normal."""
    m, draws = 6, 40_000
    generator = torch.Generator().manual_seed(4)
    coins = torch.randint(2, (2, draws, m, m), generator=generator).double() * 2 - 1  # mean 0, variance 1
    constant = coins[:, :, :1, :1].expand(2, draws, m, m)
    ratio = lambda pair: (pair[0] * pair[1]).sum((1, 2)).var() / m**2  # noqa: E731
    return "\n".join(
        [
            fact("m = 6, independent coins: variance over m² s t {:.2f}", ratio(coins), equals=1, within=0.06),
            fact("one coin for each whole image: {:.1f}", ratio(constant), equals=36, within=0.6),
        ]
    )
