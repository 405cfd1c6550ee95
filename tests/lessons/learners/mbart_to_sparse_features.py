"""Lesson 37, mbart_to_sparse_features."""

import torch

from course_lib.teaching import edit
from tests.lessons.learners import Answers

GIVES_AWAY = {
    "37.P1": [
        r"random layers", r"a single piece is enough", r"nearly as many",
    ],
    "37.P2": [
        r"come within", r"stay behind", r"in another language is", r"elsewhere ≈",
    ],
}  # fmt: skip
NEIGHBOURS = {
    "37.1": ("(x - dictionary.decoder_bias) @", "x @"),
    "37.e1": ("dictionary.decode(held_out.code))\nclaim", "dictionary.decode(0.5 * held_out.code))\nclaim"),
    "37.2": ("codes /= held_out.sentence.bincount()[:, None]", "codes /= held_out.sentence.bincount().max()"),
    "37.3": (
        "area = exercises[\"37.2\"].reference(values[:, 0], apple[:, 0])",
        "area = f1_scores(values > threshold, apple)[0]",
    ),
    "37.4": ("values > threshold, apple)[0]", "values > threshold, values > threshold)[0]"),
    "37.e2": ("{score}%\")", "%\")"),
    "37.e4": ("on_others[best], equals", "on_few[best], equals"),
    "37.5": ("scores[\"LDA\", \"en_XX\"]", "scores[\"LDA\", \"fr_XX\"]"),
    "37.e5": ("max(scores[\"LDA\", code]", "max(scores[\"one feature\", code]"),
    "37.e6": ("min(scores[\"one feature\", code]", "min(scores[\"one word piece\", code]"),
    "37.e3": ("refitted_shares(material)", "refitted_shares(material, shrinkage=0.01)"),
    "37.e7": ("features = elsewhere(lesson.STRONGEST)", "features = elsewhere(\"dictionary\")"),
}  # fmt: skip


def _pre(x, encoder, encoder_bias, decoder_bias):
    return torch.relu((x - decoder_bias) @ encoder.T + encoder_bias)


def _by_threshold(x, encoder, encoder_bias, decoder_bias, k):
    values = _pre(x, encoder, encoder_bias, decoder_bias)
    return torch.where(values < values.topk(k, dim=1).values[:, -1:], 0, values)


def _by_sorting(x, encoder, encoder_bias, decoder_bias, k):
    values = _pre(x, encoder, encoder_bias, decoder_bias)
    ranks = values.argsort(dim=1, descending=True).argsort(dim=1)
    return values * (ranks < k)


def _ranks_once(x, encoder, encoder_bias, decoder_bias, k):
    values = _pre(x, encoder, encoder_bias, decoder_bias)
    return values * (values.argsort(dim=1, descending=True) < k)


def _relu_last(x, encoder, encoder_bias, decoder_bias, k):
    before = torch.nn.functional.linear(x - decoder_bias, encoder, encoder_bias)
    kept = before.topk(k, dim=1)
    return torch.zeros_like(before).scatter(1, kept.indices, kept.values).clamp(min=0)


def _one_more(x, encoder, encoder_bias, decoder_bias, k):
    return _by_sorting(x, encoder, encoder_bias, decoder_bias, k + 1)


def _threshold_left_out(x, encoder, encoder_bias, decoder_bias, k):
    values = _pre(x, encoder, encoder_bias, decoder_bias)
    return torch.where(values > values.topk(k, dim=1).values[:, -1:], values, 0)


def _list_of_units(x, encoder, encoder_bias, decoder_bias, k):
    return _pre(x, encoder, encoder_bias, decoder_bias).topk(k, dim=1).indices


def _marked(x, encoder, encoder_bias, decoder_bias, k):
    return (_by_sorting(x, encoder, encoder_bias, decoder_bias, k) != 0).to(x.dtype)


def _loop(scores, labels):
    won = [1.0 if p > n else 0.5 if p == n else 0.0 for p in scores[labels] for n in scores[~labels]]
    return sum(won) / len(won)


def _by_ranks(scores, labels):
    below = (scores[:, None] > scores).double().sum(1)
    equal = (scores[:, None] == scores).double().sum(1)
    ranks = below + (equal + 1) / 2
    n, p = (~labels).sum(), labels.sum()
    return (ranks[labels].sum() - p * (p + 1) / 2) / (n * p)


def _ranks_not_shifted(scores, labels):
    ranks = scores.argsort(stable=True).argsort()
    positive = labels.sum()
    return (ranks[labels].sum() - positive * (positive - 1) / 2) / (positive * (~labels).sum())


def _argsort_for_ranks(scores, labels):
    order = scores.argsort(stable=True) + 1.0
    positive = labels.sum()
    return (order[labels].sum() - positive * (positive + 1) / 2) / (positive * (~labels).sum())


def _at_one_half(scores, labels):
    called = scores > 0.5
    return (called == labels).double().mean()


def _rows(**changed):
    return {"hits": 10, "misses": 0, "alarms": 100, "silent": 1900, **changed}


def _report(leak, mend="other sentences"):
    return {"leak": leak, "mend": mend}


ANSWERS: Answers = {
    "37.1": [
        ("solved", "kept by the size of the k-th", _by_threshold),
        ("solved", "ranks by sorting twice", _by_sorting),
        ("solved", "topk first, ReLU after", _relu_last),
        ("ReLU alone", "no topk", lambda x, w, b, c, k: _pre(x, w, b, c)),
        ("no ReLU", "linear units", edit("torch.relu(before)", "before")),
        ("not centred", "the layer alone", edit("(x - decoder_bias)", "x")),
        (
            "not centred",
            "torch's linear on x",
            lambda x, w, b, c, k: _relu_last(x, w, b, torch.zeros_like(c), k),
        ),
        (
            "bias of the encoder",
            "matrix product only",
            lambda x, w, b, c, k: _relu_last(x, w, torch.zeros_like(b), c, k),
        ),
        ("bias added", "the bias added back", edit("(x - decoder_bias)", "(x + decoder_bias)")),
        ("ones", "a mask of what is active", _marked),
        ("wrong", "argsort taken for ranks", _ranks_once),
        ("one too many", "k + 1 kept", _one_more),
        ("one too few", "strictly above the k-th", _threshold_left_out),
        (
            "over the tokens",
            "topk along the tokens",
            edit("topk(k, dim=1)", "topk(k, 0)", "scatter(1,", "scatter(0,"),
        ),
        ("malformed", "the numbers of the features", _list_of_units),
        ("k columns", "values without places", lambda x, w, b, c, k: _pre(x, w, b, c).topk(k, 1).values),
    ],
    "37.2": [
        ("solved", "a double loop", _loop),
        ("solved", "ranks with shared ties", _by_ranks),
        ("solved", "a float", lambda s, y: float(_loop(s, y))),
        ("solved", "half of 1 plus the sign", lambda s, y: ((s[y][:, None] - s[~y]).sign().mean() + 1) / 2),
        ("ties lost", "greater only", lambda s, y: (s[y][:, None] > s[~y]).double().mean()),
        ("ties won", "greater or equal", lambda s, y: (s[y][:, None] >= s[~y]).double().mean()),
        ("sides exchanged", "one minus it", lambda s, y: 1 - _loop(s, y)),
        ("not divided", "Mann and Whitney's U", lambda s, y: _loop(s, y) * int(y.sum()) * int((~y).sum())),
        ("ranks of equal scores", "ranks from 0", _ranks_not_shifted),
        ("argsort for ranks", "argsort once", _argsort_for_ranks),
        ("a threshold", "accuracy at 1/2", _at_one_half),
        (
            "wrong",
            "every row with every row",
            lambda s, y: _loop(s, y) * (y.sum() * (~y).sum()) / len(y) ** 2,
        ),
        (
            "difference of means",
            "how far the means are apart",
            lambda s, y: s[y].mean() - s[~y].mean(),
        ),
        ("malformed", "a table of pairs", lambda s, y: (s[y][:, None] > s[~y]).double()),
    ],
    "37.3": [
        ("solved", "rarer still", _rows(hits=1, alarms=40, silent=2000)),
        ("solved", "with a miss", {"hits": 99, "misses": 1, "alarms": 8000, "silent": 92000}),
        ("solved", "whole numbers as floats", _rows(silent=1900.0)),
        ("solved", "at both bounds", {"hits": 10, "misses": 0, "alarms": 80, "silent": 720}),
        ("a common concept", "balanced rows", _rows(hits=100, alarms=10, silent=90)),
        ("a common concept", "half as rare", _rows(hits=50)),
        ("a common concept", "a perfect feature", _rows(alarms=0)),
        ("a common concept", "a few alarms", _rows(alarms=20)),
        ("misses too many", "silent on nearly all", _rows(hits=1, misses=9, alarms=0)),
        ("misses too many", "never fires", _rows(hits=0, misses=10, alarms=0)),
        ("alarms everywhere", "always fires", _rows(alarms=2000, silent=0)),
        ("alarms everywhere", "half of the rows", _rows(alarms=1000, silent=1000)),
        ("alarms everywhere", "just below 0.95", _rows(alarms=202, silent=1798)),
        ("not rows", "shares", {"hits": 0.95, "misses": 0.05, "alarms": 0.05, "silent": 0.95}),
        ("a kind is missing", "no row without the concept", _rows(alarms=0, silent=0)),
        ("wrong", "a negative count", _rows(silent=-1)),
        ("malformed", "a tuple", (10, 0, 100, 1900)),
    ],
    "37.4": [
        ("solved", "the step as a float", _report(4.0)),
        ("solved", "in the other order", {"mend": "other sentences", "leak": 4}),
        ("the training", "the dictionary saw the text", _report(1)),
        ("the training", "labelling", _report(2)),
        ("the choice itself", "choosing", _report(3)),
        ("more features", "a larger dictionary", _report(4, "more features")),
        ("more training", "a larger text", _report(4, "larger text")),
        ("more training", "labels in training", _report(4, "train on labels")),
        ("wrong", "a step that is not there", _report(6)),
        ("wrong", "a repair that is not offered", _report(4, "cross-validation")),
        ("malformed", "the step alone", 4),
        ("malformed", "a number for the repair", _report(4, 1)),
        ("malformed", "a word for the step", _report("four")),
    ],
}
