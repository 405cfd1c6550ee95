"""Learners of lesson 21."""

import math

import torch

from course_lib.attention.random_features import relative_variance
from course_lib.teaching import edit

GIVES_AWAY = {
    "21.P1": [r"0\.48|48%", r"standard deviation of 0\.25|standard deviation 0\.25"],
    "21.P2": [r"889 million", r"e\^\{16\}|e\^\{2\\sqrt D\}"],
    "21.P3": [r"below a hundredth", r"(?i)redrawn at each step"],
}


def _paired(q, k, frequencies, *, width=None, half=2, scale=None, sine=1):
    """Features of query and key, sines before cosines."""
    width = len(q) ** 0.25 if width is None else width
    scale = 1 / len(frequencies) ** 0.5 if scale is None else scale
    phi = [
        scale * torch.cat([sine * (frequencies @ x / width).sin(), (frequencies @ x / width).cos()])
        for x in (q, k)
    ]
    return ((q @ q + k @ k) / (half * width**2)).exp() * (phi[0] @ phi[1])


def _looped(q, k, frequencies):
    total = 0.0
    for w in frequencies:
        total = total + torch.cos(torch.dot(w, q - k) / len(q) ** 0.25)
    return torch.exp((q.norm() ** 2 + k.norm() ** 2) / (2 * math.sqrt(len(q)))) * total / len(frequencies)


def _law(sigma, distance):
    return {"sigma": sigma, "distance": distance}


def _needed(q, k, error, *, width=None, exponent=None, less=1.0):
    width = math.sqrt(len(q)) if width is None else width
    exponent = ((q + k) @ (q + k)) / width if exponent is None else exponent
    return (exponent.exp() - less) / error**2


def _logs(q, keys, frequencies, *, norm=0.5):
    table = frequencies @ (q[:, None] + keys.T) - norm * (keys**2).sum(1)
    return torch.logsumexp(table, 0).softmax(0)


def _plain(q, keys, frequencies):
    phi = lambda x: (x @ frequencies.mT - x.square().sum(-1, keepdim=True) / 2).exp()  # noqa: E731
    scores = phi(keys) @ phi(q[None])[0]
    return scores / scores.sum()


ANSWERS = {
    "21.1": [
        ("solved", "the root of 8", math.sqrt(8)),
        ("solved", "three digits", 2.83),
        ("solved", "a tensor", torch.tensor(64.0) ** 0.25),
        ("variance instead of width", "the root of 64", math.sqrt(64)),
        ("as many as entries", "D", 64),
        ("width one", "one", 1),
        ("two left over", "8/4 as the root of 4", math.sqrt(math.sqrt(64) / 2)),
        ("one over the width", "three digits of 1/sigma", 0.354),
        ("the root left over", "the root of 16", math.sqrt(2 * math.sqrt(64))),
        ("the root of D twice over", "2 times 8", 2 * math.sqrt(64)),
        ("wrong", "1/8", 1 / 8),
        ("wrong", "the negative root", -math.sqrt(8)),
        ("malformed", "a formula", "64 ** 0.25"),
    ],
    "21.2": [
        ("solved", "a narrow kernel", _law(0.5, 1.0)),
        ("solved", "a wide kernel", _law(10, 5)),
        ("solved", "whole numbers", _law(3, 1)),
        ("solved", "far for one law only", _law(100.0, 10.0)),
        ("width one", "a little wider", _law(1.05, 1.0)),
        ("width one", "a little narrower", _law(0.95, 1.5)),
        ("the same point", "no distance", _law(3.0, 0)),
        ("the same point", "a negative distance", _law(2.0, -1.0)),
        ("too far apart", "ten widths", _law(2, 20)),
        ("too far apart", "a narrow kernel, far", _law(0.4, 8)),
        ("too near", "a tenth of the inverse", _law(3, 0.02)),
        ("wrong", "wider than allowed", _law(5000.0, 1.0)),
        ("malformed", "a number without bounds", _law(10**400, 1.0)),
        ("no width", "width zero", _law(0, 1)),
        ("no width", "a negative width", _law(-0.5, 1)),
        ("malformed", "other names", {"s": 2.0, "d": 2.0}),
    ],
    "21.3": [
        ("solved", "features of both, then a product", _paired),
        ("solved", "a loop over frequencies", _looped),
        (
            "solved",
            "queries and keys scaled first",
            lambda q, k, w: (
                ((q @ q + k @ k) / (2 * len(q) ** 0.5)).exp()
                * (w @ (q / len(q) ** 0.25 - k / len(q) ** 0.25)).cos().mean()
            ),
        ),
        ("the printed law", "times sigma", edit("(q - k) / sigma", "(len(q) ** 0.25 * (q - k))")),
        (
            "unscaled frequencies",
            "width one in the cosine",
            edit("frequencies @ (q - k) / sigma", "frequencies @ (q - k)"),
        ),
        ("kernel only", "the cosines alone", lambda q, k, w: (w @ (q - k) / len(q) ** 0.25).cos().mean()),
        ("norms without the half", "norms over sigma squared", lambda q, k, w: _paired(q, k, w, half=1)),
        ("sum instead of mean", "no 1/m", lambda q, k, w: _paired(q, k, w, scale=1.0)),
        (
            "divided by all features",
            "1/2m",
            lambda q, k, w: _paired(q, k, w, scale=1 / math.sqrt(2 * len(w))),
        ),
        (
            "divided by the square of the width",
            "divided by sqrt D",
            edit("(q - k) / sigma", "(q - k) / len(q) ** 0.5"),
        ),
        (
            "cosines of a sum",
            "the sign of the sines turned",
            lambda q, k, w: (
                ((q @ q + k @ k) / (2 * len(q) ** 0.5)).exp() * (w @ (q + k) / len(q) ** 0.25).cos().mean()
            ),
        ),
        ("sines forgotten", "cosines only", lambda q, k, w: _paired(q, k, w, sine=0)),
        ("width of the whole score", "sigma = sqrt D", lambda q, k, w: _paired(q, k, w, width=len(q) ** 0.5)),
        ("wrong", "exact similarity", lambda q, k, w: (q @ k / len(q) ** 0.5).exp()),
        ("wrong", "1/m for each feature", lambda q, k, w: _paired(q, k, w, scale=1 / len(w))),
        ("malformed", "one estimate for each frequency", lambda q, k, w: (w @ (q - k)).cos()),
        ("norms of width one", "exp(|q|^2 / 2)", edit("(2 * sigma**2)", "2.0")),
        (
            "cosines of a sum",
            "minus the sines",
            edit(
                "kernel = (frequencies @ (q - k) / sigma).cos().mean()",
                "a, b = frequencies @ q / sigma, frequencies @ k / sigma\n    "
                "kernel = (a.cos() * b.cos() - a.sin() * b.sin()).mean()",
            ),
        ),
    ],
    "21.4": [
        ("solved", "a perfect square", lambda kappa: (1 - kappa**2).square() / 2),
        ("solved", "from half the squared distance", lambda kappa: (-torch.expm1(2 * kappa.log())) ** 2 / 2),
        ("solved", "a loop", lambda kappa: torch.stack([0.5 + x**4 / 2 - x * x for x in kappa])),
        ("the mean not subtracted", "mean of the square", lambda kappa: 0.5 + 0.5 * kappa**4),
        ("the mean not squared", "less the mean", lambda kappa: 0.5 + 0.5 * kappa**4 - kappa),
        ("doubled once", "half of 1 - k^2", lambda kappa: (1 - kappa**2) / 2),
        ("not doubled", "half of 1 + k, less k^2", lambda kappa: (1 + kappa) / 2 - kappa**2),
        ("mean doubled", "half of 1 + 2k, less k^2", lambda kappa: 0.5 + kappa - kappa.square()),
        ("the half missing", "the square alone", lambda kappa: (1 - kappa * kappa) ** 2),
        ("the standard deviation", "its root", lambda kappa: ((1 - kappa**2) ** 2 / 2).sqrt()),
        ("the sine", "of the sine", lambda kappa: 0.5 - kappa**4 / 2),
        ("a square of one", "1 - k^2", lambda kappa: 1 - kappa * kappa),
        ("far away", "one half", lambda kappa: torch.full_like(kappa, 0.5)),
        ("wrong", "no spread", lambda kappa: torch.zeros_like(kappa)),
        ("malformed", "the mean over all", lambda kappa: ((1 - kappa**2) ** 2 / 2).mean()),
    ],
    "21.5": [
        (
            "solved",
            "by expm1",
            lambda q, k, error: torch.expm1((q + k).norm() ** 2 / len(q) ** 0.5) / error**2,
        ),
        (
            "solved",
            "by the library",
            lambda q, k, error: relative_variance(q[None], k[None], kind="positive")[0, 0] / error**2,
        ),
        (
            "solved",
            "scaled by the width",
            lambda q, k, error: (((q + k) / len(q) ** 0.25).square().sum().exp() - 1) * error**-2,
        ),
        ("error not squared", "divided by the error", lambda q, k, error: _needed(q, k, error**0.5)),
        ("difference instead of sum", "|q - k|", lambda q, k, error: _needed(q, -k, error)),
        ("no width", "sigma = 1", lambda q, k, error: _needed(q, k, error, width=1.0)),
        ("second moment", "the 1 forgotten", lambda q, k, error: _needed(q, k, error, less=0.0)),
        (
            "wrong",
            "2 in the numerator",
            lambda q, k, error: _needed(q, k, error, width=len(q) ** 0.5 / 2),
        ),
        (
            "lengths apart",
            "norms added",
            lambda q, k, error: _needed(q, k, error, exponent=(q @ q + k @ k) / len(q) ** 0.5),
        ),
        ("scaled by D", "over D", lambda q, k, error: _needed(q, k, error, width=float(len(q)))),
        (
            "trigonometric features",
            "cosh minus one, doubled",
            lambda q, k, error: (((q - k) @ (q - k) / len(q) ** 0.5).cosh() - 1) / error**2,
        ),
        ("variance inverted", "upside down", lambda q, k, error: 1 / _needed(q, k, error)),
        (
            "half the exponent",
            "half of the exponent",
            lambda q, k, error: _needed(q, k, error, width=2 * len(q) ** 0.5),
        ),
        ("wrong", "rounded up", lambda q, k, error: _needed(q, k, error).ceil()),
        ("malformed", "one for each entry", lambda q, k, error: ((q + k) ** 2).exp() / error**2),
        ("wrong", "root of the variance over the error", lambda q, k, error: _needed(q, k, error).sqrt()),
    ],
    "21.6": [
        ("solved", "logarithms of sums", _logs),
        (
            "solved",
            "two softmaxes",
            lambda q, keys, w: (
                (lambda a: (a - a.amax(0)).exp() @ (w @ q + a.amax(0)).softmax(0))(
                    keys @ w.T - (keys**2).sum(1, keepdim=True) / 2
                )
                / (
                    (lambda a: (a - a.amax(0)).exp() @ (w @ q + a.amax(0)).softmax(0))(
                        keys @ w.T - (keys**2).sum(1, keepdim=True) / 2
                    )
                ).sum()
            ),
        ),
        (
            "solved",
            "one maximum over pairs",
            lambda q, keys, w: (lambda a: (a.logsumexp(1) - a.logsumexp((0, 1))).exp())(
                w @ q + keys @ w.T - (keys**2).sum(1, keepdim=True) / 2
            ),
        ),
        (
            "not stabilised",
            "no maximum at all",
            lambda q, keys, w: (lambda a: a / a.sum())(
                (keys @ w.T - (keys**2).sum(1, keepdim=True) / 2).exp() @ (w @ q).exp()
            ),
        ),
        ("malformed", "features as they are", _plain),
        (
            "one maximum for all",
            "max over the table",
            edit("top = key_exponents.amax(0)", "top = key_exponents.amax()"),
        ),
        (
            "each key's own maximum",
            "rows shifted",
            edit(
                "top = key_exponents.amax(0)",
                "top = key_exponents.amax(1)[:, None]",
                "query_exponents = frequencies @ q + top",
                "query_exponents = frequencies @ q",
            ),
        ),
        ("no norm of the keys", "norms cancelled by mistake", lambda q, keys, w: _logs(q, keys, w, norm=0.0)),
        ("norm without the half", "exp(-|k|^2)", lambda q, keys, w: _logs(q, keys, w, norm=1.0)),
        ("not normalised", "numerators", edit("return weights / weights.sum()", "return 1.0 * weights")),
        ("softmax attention", "exact attention", lambda q, keys, w: torch.softmax(keys @ q, dim=0)),
        (
            "the query alone",
            "the shift not given back",
            edit("query_exponents = frequencies @ q + top", "query_exponents = frequencies @ q + 0 * top"),
        ),
        (
            "the norm kept for each feature",
            "softmax for each feature",
            edit("(key_exponents - top).exp() @", "torch.softmax(key_exponents, 0) @"),
        ),
        (
            "wrong",
            "features averaged before the product",
            lambda q, keys, w: (keys @ w.mean(0) + (w @ q).mean() - (keys**2).sum(1) / 2).softmax(0),
        ),
        (
            "equal weights",
            "uniform weights",
            lambda q, keys, w: torch.full((len(keys),), 1 / len(keys), dtype=q.dtype),
        ),
        ("malformed", "one row for each feature", lambda q, keys, w: (keys @ w.T).softmax(0)),
        (
            "solved",
            "with the norm of the query, which cancels",
            lambda q, keys, w: (
                (keys @ w.T - (keys**2).sum(1, keepdim=True) / 2 + w @ q - q @ q / 2).logsumexp(1).softmax(0)
            ),
        ),
        (
            "one feature for each key",
            "largest feature alone",
            lambda q, keys, w: (w @ (q[:, None] + keys.T) - (keys**2).sum(1) / 2).amax(0).softmax(0),
        ),
    ],
}

NEIGHBOURS = {
    "21.e1": ("averages = (3 * u).cos()", "averages = u.cos()"),
    "21.2": ('is off by {:.2f}", (weights(bell) -', 'is off by {:.2f}", (weights(bell * lengths) -'),
    "21.3": (
        "cosines = (distance * randn(200_000) / sigma)",
        "cosines = (distance * randn(200_000) * sigma)",
    ),
    "21.5": ("((1 - kappa**2) ** 2 / (2 * 8))", "((1 - kappa**2) / (2 * 8))"),
    "21.6": ("features(k).T / (q @ k.T / 4).exp()", "features(k).T / gaussian_kernel(q, k)"),
    "21.7": ("(a + b)[0], (a - b)[0]", "(a - b)[0], (a + b)[0]"),
    "21.8": ("exponents = (q + k).square().sum(-1) / 8", "exponents = (q + k).square().sum(-1) / 64"),
    "21.e4": ("over[1], over[4], over[8]]", "over[1], over[2], over[8]]"),
    "21.e5": ('"length 2: {:.2f}", over[2]', '"length 2: {:.2f}", over[4]'),
    "21.e2": ('redrawn=name == "redrawn"', "redrawn=True"),
    "21.e3": ("attend = through_features(16, redrawn=True)", "attend = through_features(16, redrawn=False)"),
}
