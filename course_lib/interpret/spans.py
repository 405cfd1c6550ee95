"""Where a unit fires: units as detectors of the tokens of a concept's words, and not of sentences that hold it.

A sentence's value of a unit is its largest over the tokens, wherever that is: a unit that fires at the full stop of each
sentence with a dog is a perfect detector of sentences. Here every token is a row, and holds a concept where it is
part of the concept's word. Unit, sign and threshold are those with the largest F1 on training tokens.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.interpret.concepts import f1_scores
from course_lib.interpret.detectors import REACHED, best_detectors


@dataclass(frozen=True)
class SpanScore:
    """The detector of a concept's tokens: chosen on training tokens, judged on held-out ones.

    sign * s > threshold is the call. `precision` is the share of calls at tokens of the concept's words (0 without a
    call), `recall` the share of these tokens that are called, `words` that of the words with a call at some token.
    """

    concept: str
    category: str
    tokens_train: int
    tokens_held_out: int
    unit: int
    sign: int
    threshold: float
    f1_train: float
    precision: float
    recall: float
    f1: float
    words: float


def span_scores(
    train: Float[Tensor, "tokens units"],
    held_out: Float[Tensor, "others units"],
    labels: Bool[Tensor, "tokens concepts"],
    truth: Bool[Tensor, "judged concepts"],
    *,
    sentences: Int[Tensor, " judged"],
    concepts: Sequence[str],
    categories: Mapping[str, str],
    signed: bool = False,
) -> list[SpanScore]:
    """Return for each concept the detector of its tokens; with `signed` a unit's negative is one, too.

    `labels` and `truth` say which training and which held-out tokens are part of a word of each concept, `sentences`
    the sentence of each held-out token. Tables are dense, or sparse (COO) and not negative. Raises ValueError for
    tables that do not fit, and for a concept without a training token.
    """
    if len(held_out) != len(truth):
        raise ValueError(f"held_out has {len(held_out)} rows, truth {len(truth)}; expected as many")
    units = train.shape[1]
    if signed:
        train, held_out = (torch.cat([table, -table], dim=1) for table in (train, held_out))
    found = best_detectors(train, labels)
    calls = found.calls(held_out)
    hits = (calls & truth).sum(dim=0).double()
    columns = (
        labels.sum(dim=0),
        truth.sum(dim=0),
        found.unit % units,
        1 - 2 * (found.unit // units),
        found.threshold,
        found.f1,
        hits / calls.sum(dim=0).clamp(min=1),
        hits / truth.sum(dim=0).clamp(min=1),
        f1_scores(calls, truth),
        _words_called(calls, truth, sentences),
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [SpanScore(c, categories[c], *row) for c, row in zip(concepts, rows, strict=True)]


def _words_called(calls: Tensor, truth: Tensor, sentences: Tensor) -> Float[Tensor, " concepts"]:
    """The share of each concept's words that are called: a word is neighbouring tokens of it in one sentence."""
    concept, token = truth.T.nonzero().T
    new = torch.ones_like(token, dtype=torch.bool)
    new[1:] = (concept.diff() != 0) | (token.diff() != 1) | (sentences[token].diff() != 0)
    word = new.cumsum(0) - 1
    fires = calls[token, concept].float()
    called = fires.new_zeros(int(new.sum())).scatter_reduce(0, word, fires, "amax")
    of_word, empty = concept[new], torch.zeros(truth.shape[1], dtype=torch.float64)
    return empty.index_add(0, of_word, called.double()) / of_word.bincount(minlength=len(empty)).clamp(min=1)


def span_summary(scores: Sequence[SpanScore]) -> dict[str, float | int]:
    """Return the number of concepts, the share with a held-out F1 of at least `REACHED`, and medians."""
    medians = {
        name: statistics.median(getattr(score, name) for score in scores)
        for name in ("precision", "recall", "f1", "words")
    }
    return {"n": len(scores), "reached": sum(s.f1 >= REACHED for s in scores) / len(scores)} | medians
