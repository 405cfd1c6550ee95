"""Lesson 39, real_language."""

import torch

from tests.lessons.learners import Answers

GIVES_AWAY = {
    "39.P1": [r"only three of four have the word", r"have Zelle or Zellen as a word", r"zell 98%"],
    "39.P2": [r"ceiling of 0\.9 or more: ≈?\d", r"11 of 87 at 0\.9"],
    "39.P3": [r"of the 87 words, median of five", r"For 43% of the words", r"features 43%"],
}

NEIGHBOURS = {
    # What stands in the place of the experiment: a near and wrong one.
    "39.1": ('("zelle or zellen", "the letters zell")', '("the letters zell", "the letters zell")'),
    "39.m1": ("german >= 0.9", "german >= 0.8"),
    "39.m2": ("doubled,", "doubled / 2,"),
    "39.m3": ("for word in lesson.OWN_WORDS", "for word in lesson.OWN_WORDS[:6]"),
    "39.3": ('median("features"),', 'median("difference of means"),'),
    "39.m4": ('"word pieces", "features of the untrained model"', '"word pieces", "features"'),
    "39.m5": (
        'median("features") - median("LDA refitted"), equals',
        'median("difference of means") - median("LDA refitted"), equals',
    ),
    "39.m6": ('every = "named in all languages"', 'every = "named in English"'),
}


def _loop_labels(english, row, word):
    return torch.tensor([float(word in english[r].tolist()) for r in row], dtype=torch.float64)


def _looked_up_first(english, row, word):
    return (english[row] == word).sum(dim=1).clamp(max=1).double()


def _sets(page, texts, held):
    training = [i for i in range(len(page)) if not held[page[i]]]
    known = [{int(texts[i, j]) for i in training} for j in range(texts.shape[1])]
    judged = torch.zeros(len(page), dtype=torch.float64)
    for i in range(len(page)):
        if held[page[i]] and not any(int(t) in known[j] for j, t in enumerate(texts[i])):
            judged[i] = 1
    return judged


def _pooled(page, texts, held):
    out = held[page]
    return (out & ~torch.isin(texts, texts[~out]).any(dim=1)).double()


def _pairs(page, texts, held):
    out = held[page]
    same = (texts[:, None] == texts[None]).any(dim=2)
    return torch.where(out & ~same[:, ~out].any(dim=1), 1.0, 0.0).double()


def _loop_share(f1, ceiling, alike):
    good = [bool((a >= 0.9 * c).all()) for a, c, same in zip(f1, ceiling, alike, strict=True) if not same]
    return sum(good) / len(good)


def _ratio(f1, ceiling, alike):
    return ((f1 / ceiling).min(dim=1).values[~alike] >= 0.9).double().mean()


ANSWERS: Answers = {
    "39.1": [
        ("solved", "a loop", _loop_labels),
        ("solved", "the paragraphs looked up first", _looked_up_first),
        ("solved", "index of the rows", lambda e, r, w: torch.isin(r, (e == w).nonzero()[:, 0]).double()),
        ("not looked up", "one label a paragraph", lambda e, r, w: (e == w).any(1)),
        ("all words", "all", lambda e, r, w: (e == w).all(1)[r]),
        ("counted", "how often", lambda e, r, w: (e == w).sum(1)[r]),
        ("first word", "column 0", lambda e, r, w: e[r, 0] == w),
        ("last word", "column -1", lambda e, r, w: e[r, -1] == w),
        ("any paragraph", "the whole table", lambda e, r, w: torch.full_like(r, bool((e == w).any())).bool()),
        ("without the word", "not", lambda e, r, w: ~(e == w).any(1)[r]),
        ("some other word", "differs", lambda e, r, w: (e != w).any(1)[r]),
        ("more than once", "twice", lambda e, r, w: (e == w).sum(1)[r] > 1),
        ("wrong", "always yes", lambda e, r, w: torch.ones_like(r).double()),
        ("malformed", "true and false", lambda e, r, w: (e == w).any(1)[r]),
        ("malformed", "one bool", lambda e, r, w: bool((e == w).any())),
    ],
    "39.2": [
        ("solved", "a half", 0.5),
        ("solved", "a tensor", torch.tensor(0.5)),
        ("solved", "computed", (0.7 - 0.4) / (1 - 0.4)),
        ("the F1 of yes", "2p / (1 + p)", 2 * 0.25 / 1.25),
        ("the difference", "0.7 - 0.4", 0.7 - 0.4),
        ("from the share", "from 0.25", (0.7 - 0.25) / 0.75),
        ("the F1 itself", "0.7", 0.7),
        ("ratio", "0.7 / 0.4", 1.75),
        ("ratio upside down", "0.4 / 0.7", 0.4 / 0.7),
        ("mean for F1", "arithmetic mean", 0.2),
        ("wrong", "one", 1.0),
        ("malformed", "a text", "0.5"),
    ],
    "39.3": [
        ("solved", "sets", _sets),
        ("solved", "all languages at once", _pooled),
        ("solved", "pairs of rows", _pairs),
        ("pages only", "held out by page", lambda p, t, h: h[p]),
        ("first language", "one column", lambda p, t, h: h[p] & ~torch.isin(t[:, 0], t[~h[p], 0])),
        ("all versions", "every version leaks", lambda p, t, h: h[p] & ~torch.stack(
            [torch.isin(t[:, i], t[~h[p], i]) for i in range(t.shape[1])]).all(0)),
        ("against itself", "all rows", lambda p, t, h: h[p] & ~torch.isin(t, t).any(1)),
        ("training pages", "not held", lambda p, t, h: ~h[p]),
        ("the leaks", "those that leak", lambda p, t, h: h[p] & torch.isin(t, t[~h[p]]).any(1)),
        ("wrong", "all", lambda p, t, h: torch.ones_like(p).double()),
        ("malformed", "pages", lambda p, t, h: h.double()),
    ],
    "39.4": [
        ("solved", "a loop", _loop_share),
        ("solved", "the smallest ratio", _ratio),
        ("any language", "any", lambda f, c, a: float((f >= 0.9 * c).any(1)[~a].double().mean())),
        ("each entry", "entries", lambda f, c, a: float((f >= 0.9 * c)[~a].double().mean())),
        ("alike too", "all words", lambda f, c, a: float((f >= 0.9 * c).all(1).double().mean())),
        ("only alike", "the others", lambda f, c, a: float((f >= 0.9 * c).all(1)[a].double().mean())),
        ("absolute", "0.9", lambda f, c, a: float((f >= 0.9).all(1)[~a].double().mean())),
        ("the ceiling itself", "1", lambda f, c, a: float((f >= c).all(1)[~a].double().mean())),
        ("minus a tenth", "0.1 below", lambda f, c, a: float((f >= c - 0.1).all(1)[~a].double().mean())),
        ("of all words", "divided by all", lambda f, c, a: float((f >= 0.9 * c).all(1)[~a].sum() / len(f))),
        ("a count", "a sum", lambda f, c, a: float((f >= 0.9 * c).all(1)[~a].sum())),
        ("mean over languages", "means", lambda f, c, a: float((f.mean(1) >= 0.9 * c.mean(1))[~a].double().mean())),
        ("in percent", "times 100", lambda f, c, a: 100 * _loop_share(f, c, a)),
        ("below", "less", lambda f, c, a: float((f < 0.9 * c).all(1)[~a].double().mean())),
        ("malformed", "one bool a word", lambda f, c, a: (f >= 0.9 * c).all(1)),
    ],
}  # fmt: skip
