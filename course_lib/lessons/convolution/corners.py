"""Two corner shapes in noise, and the networks of lesson 10 that tell them apart.

An image has 16 x 16 pixels: standard normal noise, and nine pixels of a box of 5 x 5 that are brighter by 2. In class 0 they
are the first row and column of the box, in class 1 the last ones. In training the box lies in the left half of the
image; the
networks are then asked about both halves.
"""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional

SIZE, BOX, BRIGHT = 16, 5, 2.0
PLACES = SIZE - BOX + 1  # of a filter along one axis
FILTERS, HIDDEN = 8, 64
IMAGES, BATCH, EPOCHS = 1000, 50, 15
WHOLE = SIZE // 2 + 1  # shifts by 0 to 8 columns: no corner of the left half is cut


def corner(label: int) -> Tensor:
    """Return the 5 x 5 box of a class."""
    box = torch.zeros(BOX, BOX, dtype=torch.float32)
    edge = 0 if label == 0 else BOX - 1
    box[edge], box[:, edge] = BRIGHT, BRIGHT
    return box


def draw_images(count: int, *, half: str, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw noisy images with a corner anywhere in one half; shapes (count, 1, 16, 16) and (count,).

    Raises:
        ValueError: `half` is neither "left" nor "right".
    """
    if half not in ("left", "right"):
        raise ValueError(f'half must be "left" or "right", got {half!r}')
    images = torch.randn(count, 1, SIZE, SIZE, generator=generator, dtype=torch.float32)
    labels = torch.randint(2, (count,), generator=generator)
    rows = torch.randint(PLACES, (count,), generator=generator)
    columns = torch.randint(SIZE // 2 - BOX + 1, (count,), generator=generator)
    columns = columns + (SIZE // 2 if half == "right" else 0)
    shapes = torch.stack([corner(0), corner(1)])
    for image, label, row, column in zip(images[:, 0], labels, rows, columns, strict=True):
        image[row : row + BOX, column : column + BOX] += shapes[label]
    return images, labels


class OwnFilters(nn.Module):
    """Eight filters of 5 x 5 at each place, as a convolution has, but each of the 144 places has weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        bound = 1 / BOX  # as torch's layer starts: uniform within 1 / sqrt(weights of a filter)
        weight = torch.empty(FILTERS, BOX**2, PLACES**2, dtype=torch.float32)
        bias = torch.empty(FILTERS, PLACES**2, dtype=torch.float32)
        self.weight = nn.Parameter(weight.uniform_(-bound, bound))
        self.bias = nn.Parameter(bias.uniform_(-bound, bound))

    def forward(self, images: Tensor) -> Tensor:
        """Return the maps, (images, 8, 12, 12)."""
        patches = functional.unfold(images, BOX)  # (images, 25, places)
        maps = torch.einsum("nkp,fkp->nfp", patches, self.weight) + self.bias
        return maps.unflatten(2, (PLACES, PLACES))


class OverPlaces(nn.Module):
    """The largest or the mean value of each map."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, maps: Tensor) -> Tensor:
        """Return one number for each map, (images, 8)."""
        return maps.amax((2, 3)) if self.kind == "max" else maps.mean((2, 3))


def _filters() -> nn.Module:
    return nn.Conv2d(1, FILTERS, BOX, dtype=torch.float32)


def _readout(inputs: int) -> nn.Module:
    return nn.Linear(inputs, 2, dtype=torch.float32)


def _dense() -> nn.Sequential:
    hidden = nn.Linear(SIZE**2, HIDDEN, dtype=torch.float32)
    return nn.Sequential(nn.Flatten(), hidden, nn.ReLU(), _readout(HIDDEN))


def _over_maps(filters: Callable[[], nn.Module], kind: str) -> nn.Sequential:
    if kind == "all":
        return nn.Sequential(filters(), nn.ReLU(), nn.Flatten(), _readout(FILTERS * PLACES**2))
    return nn.Sequential(filters(), nn.ReLU(), OverPlaces(kind), _readout(FILTERS))


def _joined_filters() -> nn.Module:
    return nn.Conv2d(1, FILTERS, BOX, padding=BOX // 2, padding_mode="circular", dtype=torch.float32)


DENSE, CONV, MAX = "dense", "convolution, dense readout", "convolution, max over places"
MEAN, OWN = "convolution, mean over places", "own filters at each place, max over places"
JOINED = "convolution of an image with joined edges, mean over places"
JOINED_MAX = "convolution of an image with joined edges, max over places"
NETWORKS: dict[str, Callable[[], nn.Sequential]] = {
    DENSE: _dense,
    CONV: lambda: _over_maps(_filters, "all"),
    MAX: lambda: _over_maps(_filters, "max"),
    MEAN: lambda: _over_maps(_filters, "mean"),
    OWN: lambda: _over_maps(OwnFilters, "max"),
    JOINED: lambda: _over_maps(_joined_filters, "mean"),
    JOINED_MAX: lambda: _over_maps(_joined_filters, "max"),
}


def shift_columns(images: Tensor, steps: Tensor) -> Tensor:
    """Shift each image to the right by its own number of columns; what leaves it on the right comes back on the left."""
    columns = (torch.arange(SIZE) - steps[:, None]) % SIZE
    return images.gather(3, columns[:, None, None, :].expand_as(images))


@torch.enable_grad()  # an explorer trains where gradients are off
def train(
    name: str, images: Tensor, labels: Tensor, *, rate: float, seed: int, epochs: int = EPOCHS, shifts: int = 0
) -> nn.Sequential:
    """Train a network by Adam on the cross-entropy of batches of 50.

    `shifts`: in each batch each image is shifted by a random number of columns below it.

    Raises:
        ValueError: `name` is not among NETWORKS.
    """
    if name not in NETWORKS:
        raise ValueError(f"name must be one of {', '.join(NETWORKS)}, got {name!r}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = NETWORKS[name]()
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    for _ in range(epochs):
        for batch in torch.randperm(len(images), generator=generator).split(BATCH):
            x = images[batch]
            if shifts:
                x = shift_columns(x, torch.randint(shifts, (len(x),), generator=generator))
            loss = functional.cross_entropy(network(x), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network


@torch.no_grad()
def accuracy(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the share of images whose class the network names."""
    return float((network(images).argmax(1) == labels).double().mean())


def weights(name: str) -> int:
    """Return the number of weights and biases of a network."""
    return sum(p.numel() for p in NETWORKS[name]().parameters())


@lru_cache
def data(seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Draw 1,000 images for training, 1,000 for choosing a rate (both left), and 2,000 held out of each half."""
    generator = torch.Generator().manual_seed(seed)
    sizes = {"train": (IMAGES, "left"), "choose": (IMAGES, "left"), "left": (2000, "left"), "right": (2000, "right")}
    return {name: draw_images(count, half=half, generator=generator) for name, (count, half) in sizes.items()}


@lru_cache
def trained(name: str, rate: float, seed: int = 0) -> nn.Sequential:
    """Train a network on the left half with one seed, once in a session."""
    return train(name, *data(seed)["train"], rate=rate, seed=seed)
