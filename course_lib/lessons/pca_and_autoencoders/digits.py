"""Digits with few labels: the code of a linear autoencoder as the input of a linear fit, and its rivals.

1,797 images of 8 x 8 pixels are split at random: 500 are the test, and of the others only a few have labels. The code comes
from all others, without labels. Each fit is least squares to ten one-hot targets with an intercept; its penalty is the one
with the least squared error in leave-one-out on the labelled images. Nothing is chosen by the test.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from course_lib import scikit_data
from course_lib.lessons.pca_and_autoencoders.stairs import descend, normal, random_weights
from course_lib.representation.pca import pca

UNITS, TEST = 10, 500
LABELS = (20, 35, 50, 75, 100, 200, 400, 1000)
SPLITS = tuple(range(20))
PENALTIES = tuple(10.0 ** (half / 2) for half in range(-6, 7))
COMPONENTS = (2, 3, 5, 7, 10, 15, 20, 30, 40, 64)
CODE_STEP, CODE_STEPS = 0.25, 800

Predict = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Split:
    """Images of digits without the mean of those that are not in the test, in units of 16 grey levels.

    Shapes: `x` (1,297, 64), `labels` (1,297,), `test` (500, 64), `test_labels` (500,).
    """

    x: Tensor
    labels: Tensor
    test: Tensor
    test_labels: Tensor


@cache
def _digits() -> tuple[Tensor, Tensor]:
    images, labels = scikit_data.digits()
    return torch.tensor(images, dtype=torch.float64) / 16, torch.tensor(labels)


@cache
def split_digits(seed: int) -> Split:
    """Shuffle the digits; the first 500 are the test."""
    x, labels = _digits()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    test, rest = order[:TEST], order[TEST:]
    mean = x[rest].mean(0)
    return Split(x[rest] - mean, labels[rest], x[test] - mean, labels[test])


def train_code(seed: int, *, steps: int = CODE_STEPS, record: bool = False) -> tuple[Tensor, Tensor, list[float]]:
    """Train ten units on the images of a split from weights near zero; return encoder, decoder and losses."""
    x = split_digits(seed).x
    start = random_weights(UNITS, x.shape[1], scale=1e-4, seed=seed)
    return descend(*start, x.T @ x / len(x), step_size=CODE_STEP, steps=steps, record=record)


@cache
def trained_encoder(seed: int) -> Tensor:
    """Return the encoder (10, 64) that `train_code` ends with."""
    return train_code(seed)[0]


@dataclass(frozen=True)
class Fit:
    """A linear fit: its output for rows, its penalty and its squared error in leave-one-out."""

    output: Callable[[Tensor], Tensor]
    penalty: float
    error: float

    def predict(self, rows: Tensor) -> Tensor:
        """Return the class with the largest output."""
        return self.output(rows).argmax(1)


def ridge(inputs: Tensor, targets: Tensor, penalties: Sequence[float] = PENALTIES) -> Fit:
    """Fit targets (n, m) by ridge regression with an intercept; of several penalties, take the best in leave-one-out.

    With centred inputs U diag(s) V^T the fitted values are H y, H = 1/n + U diag(s^2 / (s^2 + penalty)) U^T, and the
    error on row i of the fit without it is the residual over 1 - H_ii. With one penalty, 0 for none, nothing is chosen.
    """
    middle, average = inputs.mean(0), targets.mean(0)
    u, s, vh = torch.linalg.svd(inputs - middle, full_matrices=False)
    rank = int((s > 1e-9 * s[0]).sum())
    u, s, v = u[:, :rank], s[:rank], vh[:rank].T
    turned = u.T @ (targets - average)
    tried = []
    for penalty in penalties:
        kept = s.square() / (s.square() + penalty)
        residual = targets - average - u @ (kept[:, None] * turned)
        left = 1 - 1 / len(inputs) - u.square() @ kept
        tried.append(float((residual / left.clamp(min=1e-9)[:, None]).square().mean()))
    error, penalty = min(zip(tried, penalties, strict=True))
    weight = v @ ((s / (s.square() + penalty))[:, None] * turned)
    return Fit(lambda rows: (rows - middle) @ weight + average, penalty, error)


def linear_fit(inputs: Tensor, labels: Tensor, penalties: Sequence[float] = PENALTIES) -> Fit:
    """Fit one-hot labels by `ridge`."""
    return ridge(inputs, torch.eye(10, dtype=inputs.dtype)[labels], penalties)


def nearest_mean(inputs: Tensor, labels: Tensor) -> Predict:
    """Answer the class whose mean is nearest."""
    seen = labels.unique()
    means = torch.stack([inputs[labels == one].mean(0) for one in seen])
    return lambda rows: seen[torch.cdist(rows, means).argmin(1)]


def nearest_image(inputs: Tensor, labels: Tensor) -> Predict:
    """Answer the label of the nearest labelled row."""
    return lambda rows: labels[torch.cdist(rows, inputs).argmin(1)]


def accuracy(predict: Predict, inputs: Tensor, labels: Tensor) -> float:
    """Return the share of rows with the right answer."""
    return float((predict(inputs) == labels).double().mean())


def inputs_of(seed: int) -> dict[str, Tensor]:
    """Return the maps (64, k) that turn pixels into the inputs to be compared."""
    axes = pca(split_digits(seed).x, 64).components.T
    return {
        "pixels": torch.eye(64, dtype=torch.float64),
        "code": trained_encoder(seed).T,
        "random": torch.linalg.qr(normal(64, UNITS, seed=500 + seed)).Q,
        "axes 11 to 20": axes[:, UNITS : 2 * UNITS],
        "axes": axes,
    }


ARMS = {
    "pixels, no penalty": ("pixels", "free"),
    "pixels, penalty": ("pixels", "ridge"),
    "code, no penalty": ("code", "free"),
    "code, penalty": ("code", "ridge"),
    "best number of axes, no penalty": ("axes", "cut free"),
    "best number of axes, penalty": ("axes", "cut"),
    "ten random directions, penalty": ("random", "ridge"),
    "axes 11 to 20, penalty": ("axes 11 to 20", "ridge"),
    "pixels, nearest class mean": ("pixels", "mean"),
    "code, nearest class mean": ("code", "mean"),
    "pixels, nearest image": ("pixels", "image"),
    "code, nearest image": ("code", "image"),
}


def _answer(readout: str, inputs: Tensor, labels: Tensor) -> Predict:
    if readout == "mean":
        return nearest_mean(inputs, labels)
    if readout == "image":
        return nearest_image(inputs, labels)
    if readout in ("cut", "cut free"):
        # without a penalty k axes and an intercept fit k + 1 rows exactly, and leave-one-out is 0 / 0
        penalties, most = (PENALTIES, 64) if readout == "cut" else ((0.0,), len(inputs) - 2)
        fits = {k: linear_fit(inputs[:, :k], labels, penalties) for k in COMPONENTS if k <= most}
        k = min(fits, key=lambda one: fits[one].error)
        return lambda rows: fits[k].predict(rows[:, :k])
    return linear_fit(inputs, labels, (0.0,) if readout == "free" else PENALTIES).predict


@cache
def accuracies(arm: str, n_labels: int) -> Tensor:
    """Return the test accuracy of an arm with so many labelled images, one number for each of 20 splits."""
    name, readout = ARMS[arm]
    found = []
    for seed in SPLITS:
        split, turn = split_digits(seed), inputs_of(seed)[name]
        predict = _answer(readout, split.x[:n_labels] @ turn, split.labels[:n_labels])
        found.append(accuracy(predict, split.test @ turn, split.test_labels))
    return torch.tensor(found, dtype=torch.float64)
