"""mBART's noise: text infilling and sentence permutation, on words of token ids.

A model that must undo this noise has to know which words fit a gap, how many are missing, and in which
order sentences follow each other. Both functions work on words rather than tokens, so that no word is
half visible.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Word = tuple[int, ...]
Document = Sequence[Sequence[Word]]
"""Sentences of words of token ids."""


@dataclass(frozen=True)
class Noised:
    """A noised document: its token ids, the order of its sentences, and the words that were masked.

    `masked` holds pairs (sentence, word), counted in the original document.
    """

    ids: list[int]
    order: list[int]
    masked: frozenset[tuple[int, int]]


def draw_spans(
    n_words: int, *, mask_share: float, span_mean: float, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Draw spans (start, length) that together cover `mask_share` of the words.

    Lengths are Poisson(span_mean); the last is cut so that the covered share is exact, rounded up or
    down at random such that its mean is right for short documents too. A span of length zero covers
    nothing and inserts a mask. All placements of the spans between the kept words are equally likely:
    spans and kept words are shuffled as items of one row, each keeping its order.

    Spans are sorted and do not overlap. Raises ValueError for a share outside [0, 1) or a mean that is
    not positive. Source: Lewis et al. 2020 (BART), section 2.2.
    """
    if not 0 <= mask_share < 1:
        raise ValueError(f"mask_share is {mask_share}; expected a share in [0, 1)")
    if span_mean <= 0:
        raise ValueError(f"span_mean is {span_mean}; expected a positive number of words")
    to_mask = int(mask_share * n_words + rng.random())
    lengths: list[int] = []
    covered = 0
    while covered < to_mask:
        lengths.append(min(int(rng.poisson(span_mean)), to_mask - covered))
        covered += lengths[-1]
    slots = np.sort(rng.choice(n_words - covered + len(lengths), size=len(lengths), replace=False))
    kept_before = slots - np.arange(len(lengths))
    covered_before = np.cumsum([0, *lengths[:-1]]) if lengths else []
    return [(int(k + c), n) for k, c, n in zip(kept_before, covered_before, lengths, strict=True)]


def noise(
    document: Document,
    *,
    mask_id: int,
    separator_id: int,
    mask_share: float,
    span_mean: float,
    rng: np.random.Generator,
) -> Noised:
    """Permute the sentences, then replace each span of words by one mask.

    Every sentence ends with the separator; separators are never masked, so a span may cross them and
    the number of sentences stays visible. The result has no language code yet.
    """
    order = [int(s) for s in rng.permutation(len(document))]
    places = [(s, w) for s in order for w in range(len(document[s]))]
    spans = draw_spans(len(places), mask_share=mask_share, span_mean=span_mean, rng=rng)
    masked = {p for start, length in spans for p in places[start : start + length]}
    masks_before = np.bincount([start for start, _ in spans], minlength=len(places) + 1)

    ids: list[int] = []
    for position, (s, w) in enumerate(places):
        ids += [mask_id] * int(masks_before[position])
        if (s, w) not in masked:
            ids += document[s][w]
        if w == len(document[s]) - 1:
            ids.append(separator_id)
    # A mask inserted after the last word stands before the separator that ends the text.
    ids[-1:-1] = [mask_id] * int(masks_before[-1])
    return Noised(ids, order, frozenset(masked))
