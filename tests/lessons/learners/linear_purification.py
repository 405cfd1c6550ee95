"""What learners of lesson 24 answer, and what gives its predictions away."""

import math
from fractions import Fraction

import torch

from course_lib.teaching import edit

GIVES_AWAY = {
    "24.P1": [r"(?i)class means?\b", r"(?i)one direction (is|suffices)"],
    "24.P2": [r"(?i)blind is not gone", r"(?i)nearest neighbour", r"(?i)ten (linear )?scores"],
    "24.P3": [r"(?i)\blead\b", r"(?i)one translation in a hundred", r"(?i)keep three claims apart"],
}


def by_svd(x, penalty):
    _, s, vh = torch.linalg.svd(x, full_matrices=False)
    return vh.T * (s**2 / (s**2 + penalty)) @ vh


def by_more_rows(x, penalty):
    rows = math.sqrt(penalty) * torch.eye(x.shape[1], dtype=x.dtype)
    return torch.linalg.lstsq(torch.cat([x, rows]), torch.cat([x, 0 * rows])).solution


def eye(x):
    return torch.eye(x.shape[1], dtype=x.dtype)


def covariance(a, b, c):
    return {"a": a, "b": b, "c": c}


def oblique(x, label, new, read, write):
    return new - ((new - x.mean(0)) @ read)[:, None] * write / (read @ write)


def gap_of(x, label):
    return x[label == 1].mean(0) - x[label == 0].mean(0)


def by_gap(x, label, new):
    gap, centred = gap_of(x, label), x - x.mean(0)
    return oblique(x, label, new, torch.linalg.inv(centred.T @ centred) @ gap, gap)


def by_whitening(x, label, new):
    """LEACE as its paper writes it: whiten, project, undo."""
    centred = x - x.mean(0)
    values, axes = torch.linalg.eigh(centred.T @ centred / len(x))
    white = axes / values.sqrt() @ axes.T
    u = white @ gap_of(x, label)
    projection = torch.outer(u, u) / (u @ u)
    return new - (new - x.mean(0)) @ (torch.linalg.inv(white) @ projection @ white).T


def by_within(x, label, new):
    """The probe of linear discriminant analysis has the same direction."""
    within = sum(
        (x[label == k] - x[label == k].mean(0)).T @ (x[label == k] - x[label == k].mean(0)) for k in (0, 1)
    )
    return oblique(x, label, new, torch.linalg.solve(within, gap_of(x, label)), gap_of(x, label))


def probe(x, label):
    centred = x - x.mean(0)
    return torch.linalg.solve(centred.T @ centred, gap_of(x, label))


ANSWERS = {
    "24.1": [
        ("solved", "SVD", by_svd),
        ("solved", "rows below the data", by_more_rows),
        ("solved", "identity minus an inverse",
         lambda x, penalty: eye(x) - penalty * torch.linalg.inv(x.T @ x + penalty * eye(x))),
        ("Gram of the rows", "examples compared", edit("x.T @ x", "x @ x.T")),
        ("penalty everywhere", "a number added to a matrix",
         lambda x, penalty: torch.linalg.solve(x.T @ x + penalty, x.T @ x)),
        ("penalty squared", "lambda^2", lambda x, penalty: by_svd(x, penalty**2)),
        ("divided by the rows", "a mean over rows", lambda x, penalty: by_svd(x, penalty * len(x))),
        ("centred", "centred first", lambda x, penalty: by_svd(x - x.mean(0), penalty)),
        ("no penalty", "the identity", lambda x, penalty: eye(x)),
        ("only the inverse", "forgot the right-hand side",
         lambda x, penalty: torch.linalg.inv(x.T @ x + penalty * eye(x))),
        ("wrong", "singular values not squared", lambda x, penalty: (s := torch.linalg.svd(x, full_matrices=False)).Vh.T
         * (s.S / (s.S + penalty)) @ s.Vh),
        ("malformed", "the purified rows", lambda x, penalty: x @ by_svd(x, penalty)),
    ],
    "24.2": [
        ("solved", "a negative covariance", covariance(1, 1, -0.5)),
        ("solved", "unequal variances", covariance(4.0, 1.0, 1.5)),
        ("uncorrelated", "the identity", covariance(1.0, 1.0, 0.0)),
        ("unequal, uncorrelated", "a diagonal matrix", covariance(4, 1, 0)),
        ("no covariance matrix", "too large a covariance", covariance(1, 1, 1.5)),
        ("one feature twice", "all ones", covariance(1, 1, 1)),
        ("negative variance", "a negative variance", covariance(-1, 2, 0.5)),
        ("malformed", "the matrix", torch.tensor([[1.0, 0.5], [0.5, 1.0]])),
    ],
    "24.3": [
        ("solved", "by the eigenvector", 3 - 1),
        ("solved", "a fraction", Fraction(4, 2)),
        ("the eigenvalue", "lambda for b", 3),
        ("no inverse", "determinant 0", 0.5),
        ("the probe uses one feature", "all ones", 1.0),
        ("uncorrelated", "b left out", 0),
        ("wrong", "too large", 4),
        ("wrong", "no covariance matrix", -2),
        ("malformed", "the matrix", [[2, 1], [1, 2]]),
    ],
    "24.4": [
        ("solved", "the gap of the means", by_gap),
        ("solved", "whitened, projected, undone", by_whitening),
        ("solved", "scatter within the classes", by_within),
        ("probe's direction, at right angles", "projects the probe out", lambda x, label, new: oblique(
            x, label, new, probe(x, label), probe(x, label))),
        ("difference of means, at right angles", "projects the gap out", lambda x, label, new: oblique(
            x, label, new, gap_of(x, label), gap_of(x, label))),
        ("new not centred", "no mean", lambda x, label, new: new - torch.outer(new @ probe(x, label), gap_of(x, label))
         / (probe(x, label) @ gap_of(x, label))),
        ("own mean of new", "fitted to new", lambda x, label, new: by_gap(x, label, new - new.mean(0) + x.mean(0))
         + new.mean(0) - x.mean(0)),
        ("mean left out", "centred rows returned", lambda x, label, new: by_gap(x, label, new) - x.mean(0)),
        ("not a projection", "no division", edit(" / (read @ write)", "")),
        ("wrong", "nothing erased", lambda x, label, new: new.clone()),
        ("malformed", "x erased", lambda x, label, new: by_gap(x, label, x)),
    ],
    "24.5": [
        ("solved", "9 / 3", 9 / 3),
        ("solved", "a fraction of the square", Fraction(9, 4) / Fraction(3, 4)),
        ("not squared", "3 / (3 + lambda)", 1),
        ("upside down", "a quarter left", 27),
        ("soft threshold", "lesson 23's factor", 9 / 4),
        ("the largest direction", "sigma 6", 36 / 3),
        ("the smallest direction", "sigma 1", 1 / 3),
        ("wrong", "the square root", math.sqrt(3)),
        ("malformed", "one for each direction", [12, 3, 1 / 3]),
    ],
}  # fmt: skip

NEIGHBOURS = {
    "24.e1": ("once[lesson.MEANS]", "once[lesson.RIDGE]"),
    "24.3": ("probe_r2(shrunk[:900], z)", "probe_r2(lesson.without(x, lesson.gap(x, odd)), z)"),
    "24.5": ("lesson.gap(lesson.without(x, w), odd)", "lesson.gap(lesson.without(x, gap), odd)"),
    "24.4": (
        "lesson.without(x, lesson.gap(x, odd)), z)",
        "lesson.without(x, lesson.probe(x, z)[0][:, 0]), z)",
    ),
    "24.6": ("residual = z - x @ w - bias", "residual = z - x @ w / 2 - bias"),
    "24.7": ("blind.append(probe_r2(erased, z).max())", "blind.append(probe_r2((erased + x) / 2, z).max())"),
    "24.e2": ("ratios.append((erased - x)", "ratios.append((by_gap - x)"),
    "24.e3": ("near.append(lesson.nearest_accuracy(erased", "near.append(lesson.probe_accuracy(erased"),
    "24.e4": ('share["language"],', 'share["determiner"],'),
    "24.e5": ('share["determiner"], at_most', 'share["language"], at_most'),
}
