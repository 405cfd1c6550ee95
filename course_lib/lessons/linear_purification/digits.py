"""The digits of lesson 24, odd or even: probes, and ways to take out one direction after another."""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from course_lib import scikit_data
from course_lib.representation.erasure import concept_columns, fit_eraser

FITTED = 900  # images that probes and erasers are fitted to; the other 897 are new
LEAST_VARIANCE = 0.01  # of a pixel that counts as one that varies
MOST = 25


@dataclass(frozen=True)
class Digits:
    """Images as rows (1797, pixels), shuffled, with pixels from 0 to 1; `pixels` are the places that are kept."""

    x: Tensor
    digit: Tensor
    pixels: Tensor

    @property
    def odd(self) -> Tensor:
        """Return 1 for an odd digit, 0 for an even one."""
        return self.digit % 2

    def image(self, row: Tensor) -> Tensor:
        """Return a row as an 8 x 8 image, with 0 at the pixels left out."""
        full = torch.zeros(64, dtype=row.dtype)
        full[self.pixels] = row
        return full.reshape(8, 8)


@cache
def digits(*, seed: int = 0, all_pixels: bool = False) -> Digits:
    """Return the digits in an order of that seed, with the 47 pixels that vary, or all 61 that are not constant."""
    images, labels = scikit_data.digits()
    x = torch.tensor(images, dtype=torch.float64) / 16
    pixels = (x.var(0) > (0 if all_pixels else LEAST_VARIANCE)).nonzero()[:, 0]
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    return Digits(x[order][:, pixels], torch.tensor(labels)[order], pixels)


def probe(x: Tensor, z: Tensor, *, ridge: float = 0.0) -> tuple[Tensor, Tensor]:
    """Fit a linear probe by least squares, with a ridge penalty if one is given; return weights and bias."""
    mean, level = x.mean(0), z.mean(0)
    values, axes = torch.linalg.eigh((x - mean).T @ (x - mean))
    # Directions with less than a millionth of the largest spread are rounding.
    inverse = torch.where(values > 1e-12 * values[-1], 1 / (values + ridge), 0)
    weight = axes @ (inverse[:, None] * (axes.T @ ((x - mean).T @ (z - level))))
    return weight, level - mean @ weight


def probe_accuracy(x: Tensor, label: Tensor, *, seen: int = FITTED, ridge: float = 0.0) -> float:
    """Return the share of new rows whose class a probe finds that was fitted to the first `seen` rows."""
    n = int(label.max()) + 1
    weight, bias = probe(x[:seen].double(), concept_columns(label[:seen], n_classes=n), ridge=ridge)
    said = (x[seen:].double() @ weight + bias).round(decimals=7)  # a blind probe's weights are rounding
    return float((said.argmax(1) == label[seen:]).double().mean())


def nearest_accuracy(x: Tensor, label: Tensor, *, seen: int = FITTED) -> float:
    """Return the share of new rows that have the class of the nearest of the first `seen` rows: no linear probe."""
    nearest = torch.cdist(x[seen:], x[:seen]).argmin(1)
    return float((label[nearest] == label[seen:]).double().mean())


def without(x: Tensor, direction: Tensor, *, seen: int = FITTED) -> Tensor:
    """Project rows at right angles to a direction, around the mean of the first `seen`."""
    unit = direction / direction.norm()
    return x - torch.outer((x - x[:seen].mean(0)) @ unit, unit)


PROBE, RIDGE, MEANS, RANDOM, LEACE = (
    "latest probe",
    "latest probe, with a ridge penalty",
    "difference of class means",
    "random",
    "smallest change",
)
WAYS = (PROBE, RIDGE, MEANS, RANDOM, LEACE)
PENALTY = 10.0


@dataclass(frozen=True)
class Removed:
    """What 0, 1, ..., 25 removals leave.

    `accuracy` and `moved` have one number for each count; `directions` (25, pixels) are what is projected out, zero where
    nothing is left to take; `gaps` (26, pixels) are the differences of the class means that are left.
    """

    accuracy: list[float]
    moved: list[float]
    directions: Tensor
    gaps: Tensor


def gap(x: Tensor, odd: Tensor) -> Tensor:
    """Return the mean of the odd less that of the even rows."""
    return x[odd == 1].mean(0) - x[odd == 0].mean(0)


def next_direction(way: str, x: Tensor, odd: Tensor, generator: torch.Generator) -> Tensor:
    """Return the direction that a way takes out next, fitted to the rows given."""
    if way == MEANS:
        return gap(x, odd)
    if way == RANDOM:
        return torch.randn(x.shape[1], generator=generator, dtype=x.dtype)
    return probe(x, odd[:, None].double(), ridge=PENALTY if way == RIDGE else 0.0)[0][:, 0]


@cache
def removed(way: str, *, seed: int = 0, all_pixels: bool = False, most: int = MOST) -> Removed:
    """Take out one direction after the other, and fit a new probe each time."""
    data = digits(seed=seed, all_pixels=all_pixels)
    x, odd, generator = data.x, data.odd, torch.Generator().manual_seed(seed)
    total = (x - x.mean(0)).square().sum()
    now, accuracy, moved, directions, gaps = x, [], [], [], []
    eraser = fit_eraser(x[:FITTED], odd[:FITTED])
    for count in range(most + 1):
        accuracy.append(probe_accuracy(now, odd))
        moved.append(float((now - x).square().sum() / total))
        gaps.append(gap(now[:FITTED], odd[:FITTED]))
        if count == most:
            break
        if way == LEACE:
            direction, now = eraser.write[:, 0], eraser.erase(x)
        else:
            direction = next_direction(way, now[:FITTED], odd[:FITTED], generator)
            blind = direction.norm() < 1e-9 * x.norm()
            direction, now = (0 * direction, now) if blind else (direction, without(now, direction))
        directions.append(direction)
    return Removed(accuracy, moved, torch.stack(directions), torch.stack(gaps))
