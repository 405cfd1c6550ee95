"""Lesson 38, using_features."""

import torch

from tests.lessons.learners import Answers

GIVES_AWAY = {
    "38.P1": [r"six nouns of ten", r"detector off: ≈0\.", r"its detector off \d+%"],
    "38.P2": [r"exchanges nouns as well", r"by \(\d\d\.4\) and by \(\d\d\.5\)", r"features: \d+%"],
    "38.P3": [r"features less neighbours", r"level with", r"chosen without labels \d+%"],
}

NEIGHBOURS = {
    # What stands in the place of the experiment: a near and wrong one.
    "38.1": ("step = (replaced - x)[silent]", "step = (moved - x)[silent]"),
    "38.2": ("(loss.mean_ablated - loss.spliced) /", "(loss.mean_ablated - 2 * loss.spliced) /"),
    "38.3": ("part >= part.median()", "part <= part.median()"),
    "38.m1": ("share = {arm: found.changed / found.n", "share = {arm: found.exact / found.n"),
    "38.m2": ('share["pushed as far as detector off"]', 'share["off"]'),
    "38.5": ("arrow = lesson.by_means(cases, table)", "arrow = lesson.by_means(cases, table, strength=0.5)"),
    "38.m3": ("chosen, strength=1.5)", "chosen, strength=0.5)"),
    "38.m4": ("often & (share >= part)", "often & (share >= part + 0.2)"),
}  # fmt: skip


def _splice(x, code, decoder, feature, scale):
    code = code.clone()
    code[:, feature] = 0.0
    return scale * code @ decoder.T


def _difference(x, code, decoder, feature, scale):
    changed = code.clone()
    changed[:, feature] = 0
    return x + scale * (changed - code) @ decoder.T


def _einsum(x, code, decoder, feature, scale):
    return x - scale * torch.einsum("t,d->td", code[:, feature], decoder[:, feature])


def _in_place(x, code, decoder, feature, scale):
    x -= scale * torch.outer(code[:, feature], decoder[:, feature])
    return x


def _token_loop(x, code, decoder, feature, scale):
    return torch.stack(
        [row - scale * f[feature] * decoder[:, feature] for row, f in zip(x, code, strict=True)]
    )


def _projected(x, code, decoder, feature, scale):
    direction = decoder[:, feature]
    return x - torch.outer(x @ direction, direction)


def _pushed_by_loop(x, edited, direction):
    unit = direction / torch.linalg.vector_norm(direction)
    return torch.stack([a - (b - a).square().sum().sqrt() * unit for a, b in zip(x, edited, strict=True)])


def _by_sum(x, states, words, own, aim):
    def middle(word):
        chosen = states[words == word]
        return chosen.sum(dim=0) / len(chosen)

    return x - middle(own) + middle(aim)


ANSWERS: Answers = {
    "38.1": [
        ("solved", "the difference of two codes", _difference),
        ("solved", "outer product", _einsum),
        ("solved", "token by token", _token_loop),
        ("solved", "in place", _in_place),
        ("the reconstruction", "zero the entry and decode", _splice),
        ("projected out", "remove the direction", _projected),
        ("no scale", "activation times column", lambda x, f, w, i, r: x - torch.outer(f[:, i], w[:, i])),
        ("twice", "factor -1", lambda x, f, w, i, r: x - 2 * r * torch.outer(f[:, i], w[:, i])),
        ("added", "plus", lambda x, f, w, i, r: x + r * torch.outer(f[:, i], w[:, i])),
        ("all features", "the error alone", lambda x, f, w, i, r: x - r * f @ w.T),
        (
            "where it fires",
            "a step per firing",
            lambda x, f, w, i, r: x - r * torch.outer(f[:, i].sign(), w[:, i]),
        ),
        ("the feature alone", "what it adds", lambda x, f, w, i, r: r * torch.outer(f[:, i], w[:, i])),
        ("unchanged", "the code changed, the states not", lambda x, f, w, i, r: x),
        ("wrong", "x in the code's units", lambda x, f, w, i, r: x / r - torch.outer(f[:, i], w[:, i])),
        ("malformed", "the decoder's row", lambda x, f, w, i, r: x - r * f[:, i, None] * w[i][:, None]),
    ],
    "38.2": [
        ("solved", "a fraction", 2.96 / 2.97),
        ("solved", "rounded to the third digit", 0.997),
        ("solved", "a tensor of one number", torch.tensor(0.9966)),
        ("solved", "one minus what is lost", 1 - 0.01 / 2.97),
        ("from zero", "three digits", 0.987),
        ("what is lost", "a third of a percent", 0.00337),
        ("the ratio", "0.04 / 0.03", 0.04 / 0.03),
        ("clean over spliced", "three quarters", 0.75),
        ("in percent", "99.7", 99.7),
        ("the difference", "3.00 - 0.04", 3.00 - 0.04),
        ("upside down", "rounded", 1.0034),
        ("the rise", "0.04 - 0.03", 0.01),
        ("from zero", "1 - 0.04 / 3.00", 1 - 0.04 / 3.00),
        ("wrong", "nothing is lost", 1.0),
        ("wrong", "the clean loss", 0.03),
        ("malformed", "a text", "99.7%"),
    ],
    "38.3": [
        ("solved", "token by token", _pushed_by_loop),
        ("solved", "a unit vector and a column of lengths",
         lambda x, e, d: x + (e - x).norm(dim=-1)[:, None] * (-d / d.norm())),
        ("not of length 1", "the direction as it is", lambda x, e, d: x - (e - x).norm(dim=1)[:, None] * d),
        ("along it", "plus", lambda x, e, d: x + (e - x).norm(dim=1)[:, None] * d / d.norm()),
        ("from the edited states", "on top of the edit", lambda x, e, d: e - (e - x).norm(dim=1)[:, None] * d / d.norm()),
        ("one length for all", "the norm of the table", lambda x, e, d: x - (e - x).norm() * d / d.norm()),
        ("mean length", "the mean of the lengths", lambda x, e, d: x - (e - x).norm(dim=1).mean() * d / d.norm()),
        ("squared", "no root", lambda x, e, d: x - ((e - x) ** 2).sum(1)[:, None] * d / d.norm()),
        ("projected", "the part of the edit along it",
         lambda x, e, d: x + torch.outer((e - x) @ d, d) / (d @ d)),
        ("the step alone", "not added", lambda x, e, d: -(e - x).norm(dim=1)[:, None] * d / d.norm()),
        ("the edit itself", "edited", lambda x, e, d: e),
        ("once", "a step of 1", lambda x, e, d: x - d / d.norm()),
        ("wrong", "the states", lambda x, e, d: x),
        ("malformed", "the lengths", lambda x, e, d: (e - x).norm(dim=1)),
    ],
    "38.4": [
        ("solved", "sums divided by counts", _by_sum),
        ("solved", "the arrow first", lambda x, s, w, a, b: x + (s[w == b].mean(0) - s[w == a].mean(0))),
        ("backwards", "from the aim", lambda x, s, w, a, b: x + (s[w == a].mean(0) - s[w == b].mean(0))),
        ("the mean itself", "the other noun's mean", lambda x, s, w, a, b: s[w == b].mean(0).repeat(len(x), 1)),
        ("added only", "the first one stays", lambda x, s, w, a, b: x + s[w == b].mean(0)),
        ("taken away only", "no other noun", lambda x, s, w, a, b: x - s[w == a].mean(0)),
        ("mean of all", "centred on everything", lambda x, s, w, a, b: x + s[w == b].mean(0) - s.mean(0)),
        ("mean of x", "centred on the tokens", lambda x, s, w, a, b: x - x.mean(0) + s[w == b].mean(0)),
        ("sums", "no division", lambda x, s, w, a, b: x + s[w == b].sum(0) - s[w == a].sum(0)),
        ("one number", "mean without a dimension", lambda x, s, w, a, b: x + s[w == b].mean() - s[w == a].mean()),
        ("unchanged", "x", lambda x, s, w, a, b: x),
        ("malformed", "the arrow", lambda x, s, w, a, b: s[w == b].mean(0) - s[w == a].mean(0)),
    ],
}  # fmt: skip
