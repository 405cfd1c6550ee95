"""What lesson 12 trains: a network with one hidden layer that reads digits, some of its labels being wrong.

The same network is trained in several ways: as it is, with coins (dropout) on its hidden units, with the mean penalty of
these coins and no coin, and with weight decay. Several seeds run side by side, each with a split of the data, wrong labels
and first weights of its own. Everything is float32, whatever the default is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from course_lib import scikit_data

CLASSES, PIXELS, WIDTH = 10, 64, 128
TRAINED, CHOOSING = 200, 300  # images to train on, and to choose settings and the moment to stop by; the rest is scored
REDRAWN = 0.3  # share of the training labels that are drawn anew
STEPS, LOOK = 400, 25
NOTHING, COINS, MEAN, DECAY = "nothing", "coins", "their mean", "weight decay"
INPUTS_TOO, BOTH = "coins, inputs too", "coins and weight decay"
ARMS = (NOTHING, COINS, MEAN, DECAY, INPUTS_TOO, BOTH)
INPUT_KEEP, BOTH_KEEP = 0.8, 0.5


@cache
def _digits() -> tuple[Tensor, Tensor]:
    images, labels = scikit_data.digits()
    return torch.tensor(images, dtype=torch.float32) / 8, torch.tensor(labels)


@dataclass(frozen=True)
class Problem:
    """Splits of the digits side by side: images (seeds, n, 64) without the mean of the training images, and labels.

    `targets` (seeds, n, 10) are what the network is trained on: 0.9 in the place of the label, wrong ones included, and
    -0.1 elsewhere.
    """

    train: Tensor
    targets: Tensor
    choosing: Tensor
    choosing_labels: Tensor
    scored: Tensor
    scored_labels: Tensor


def problem(seeds: Sequence[int], *, redrawn: float = REDRAWN) -> Problem:
    """Return one split for each seed, with the share `redrawn` of its training labels drawn anew."""
    images, labels = _digits()
    rows = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(images), generator=generator)
        train, choosing, scored = order.split([TRAINED, CHOOSING, len(images) - TRAINED - CHOOSING])
        given = labels[train]
        wrong = torch.rand(TRAINED, generator=generator, dtype=torch.float32) < redrawn
        given = torch.where(wrong, torch.randint(CLASSES, (TRAINED,), generator=generator), given)
        centre = images[train].mean(0)
        one_hot = torch.eye(CLASSES, dtype=torch.float32)[given] - 1 / CLASSES
        rows.append(
            (
                images[train] - centre,
                one_hot,
                images[choosing] - centre,
                labels[choosing],
                images[scored] - centre,
                labels[scored],
            )
        )
    return Problem(*(torch.stack(part) for part in zip(*rows, strict=True)))


@dataclass(frozen=True)
class Run:
    """Shares of wrong answers (looks, seeds): on the images to choose by, and on those that are scored."""

    choosing: Tensor
    scored: Tensor

    def stopped(self) -> tuple[Tensor, Tensor]:
        """Return both shares (seeds,) at the look where each seed has the lowest on the images to choose by."""
        best = self.choosing.argmin(0, keepdim=True)
        return self.choosing.gather(0, best)[0], self.scored.gather(0, best)[0]


class Network:
    """Networks side by side, one for each seed: scores = relu(x W + b) V + c."""

    def __init__(self, seeds: Sequence[int]):
        drawn = []
        for seed in seeds:
            generator = torch.Generator().manual_seed(1000 + seed)
            options = {"generator": generator, "dtype": torch.float32}
            w, v = torch.randn(PIXELS, WIDTH, **options), torch.randn(WIDTH, CLASSES, **options)
            drawn.append((w * (2 / PIXELS) ** 0.5, v / WIDTH**0.5))
        first, second = (torch.stack(part) for part in zip(*drawn, strict=True))
        self.w, self.v = first.requires_grad_(), second.requires_grad_()
        self.b = first.new_zeros(len(seeds), 1, WIDTH).requires_grad_()
        self.c = first.new_zeros(len(seeds), 1, CLASSES).requires_grad_()
        self.parameters = (self.w, self.b, self.v, self.c)

    def hidden(self, x: Tensor) -> Tensor:
        """The hidden units, (seeds, n, 128)."""
        return torch.relu(torch.baddbmm(self.b, x, self.w))

    def read(self, hidden: Tensor) -> Tensor:
        """The ten scores of each image, (seeds, n, 10)."""
        return torch.baddbmm(self.c, hidden, self.v)

    def wrong(self, x: Tensor, labels: Tensor) -> Tensor:
        """The share of wrong answers of each seed, without coins."""
        with torch.no_grad():
            return (self.read(self.hidden(x)).argmax(-1) != labels).float().mean(1)


def thrown(x: Tensor, keep: float, generator: torch.Generator) -> Tensor:
    """Throw a coin for each entry: keep it with probability `keep` and divide it by `keep`, or put it to 0."""
    coins = torch.rand(x.shape, generator=generator, dtype=x.dtype) < keep
    return x * coins / keep


def mean_penalty(hidden: Tensor, readout: Tensor, keep: float) -> Tensor:
    """What coins on `hidden` add to a squared error in the mean (12.5): (1 - keep)/keep times sum_j mean h_j^2 |V_j|^2."""
    return (1 - keep) / keep * (hidden.square().mean(-2) * readout.square().sum(-1)).sum(-1)


def train(arm: str, setting: float, rate: float, seeds: Sequence[int], *, redrawn: float = REDRAWN) -> Run:
    """Train one network for each seed by Adam on all training images, and look every 25 steps.

    `setting` is what the arm is about: the keep probability of hidden units where there are coins or their mean, the
    factor of the squared weights where there is decay. With coins on the inputs these are kept with 0.8; beside weight
    decay hidden units are kept with 0.5.

    Raises:
        ValueError: there is no such arm.
    """
    if arm not in ARMS:
        raise ValueError(f"arm must be one of {', '.join(ARMS)}, got {arm!r}")
    data, net = problem(seeds, redrawn=redrawn), Network(seeds)
    coins = torch.Generator().manual_seed(sum(seeds) + 2000)
    keep = BOTH_KEEP if arm == BOTH else setting
    optimizer = torch.optim.Adam(net.parameters, lr=rate)
    looks = []
    for step in range(STEPS + 1):
        if step % LOOK == 0:
            looks.append((net.wrong(data.choosing, data.choosing_labels), net.wrong(data.scored, data.scored_labels)))
        x = thrown(data.train, INPUT_KEEP, coins) if arm == INPUTS_TOO else data.train
        hidden = net.hidden(x)
        met = thrown(hidden, keep, coins) if arm in (COINS, INPUTS_TOO, BOTH) else hidden
        loss = (data.targets - net.read(met)).square().sum(-1).mean(-1)
        if arm == MEAN:
            loss = loss + mean_penalty(hidden, net.v, keep)
        if arm in (DECAY, BOTH):
            loss = loss + setting * (net.w.square().sum((1, 2)) + net.v.square().sum((1, 2)))
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()
    return Run(*(torch.stack(part) for part in zip(*looks, strict=True)))
