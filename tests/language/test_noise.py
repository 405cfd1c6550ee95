"""The noise of mBART: how much it masks, in what spans, and what it leaves alone."""

import numpy as np
import pytest

from course_lib.language.noise import draw_spans, noise

MASK, SEPARATOR = -1, -2


def document(*sizes):
    """Sentences of words of one to three token ids, all different."""
    token = iter(range(10_000))
    return [[tuple(next(token) for _ in range(1 + w % 3)) for w in range(size)] for size in sizes]


def noised(doc, seed, *, mask_share=0.35, span_mean=3.0):
    rng = np.random.default_rng(seed)
    return noise(
        doc, mask_id=MASK, separator_id=SEPARATOR, mask_share=mask_share, span_mean=span_mean, rng=rng
    )


@pytest.mark.parametrize("n_words", [1, 3, 7, 20, 1000])
def test_the_share_of_masked_words_is_that_asked_for(n_words):
    rng = np.random.default_rng(0)
    draws = [draw_spans(n_words, mask_share=0.35, span_mean=3.0, rng=rng) for _ in range(1000)]
    share = np.mean([sum(n for _, n in spans) for spans in draws]) / n_words
    # Rounding to whole words has a standard deviation of at most half a word a draw.
    assert share == pytest.approx(0.35, abs=4 * 0.5 / n_words / np.sqrt(1000))


@pytest.mark.parametrize("span_mean", [3.0, 3.5])
def test_span_lengths_are_poisson(span_mean):
    rng = np.random.default_rng(1)
    spans = draw_spans(200_000, mask_share=0.35, span_mean=span_mean, rng=rng)
    lengths = np.array([n for _, n in spans])
    # About 20,000 spans: the mean has a standard error near 0.012; mean and variance agree.
    assert lengths.mean() == pytest.approx(span_mean, abs=0.06)
    assert lengths.var() == pytest.approx(span_mean, rel=0.06)
    assert (lengths == 0).mean() == pytest.approx(np.exp(-span_mean), abs=0.007)


def test_spans_are_sorted_apart_and_anywhere():
    rng = np.random.default_rng(2)
    covered = np.zeros(12)
    for _ in range(4000):
        spans = draw_spans(12, mask_share=0.35, span_mean=3.0, rng=rng)
        ends = [start + n for start, n in spans]
        assert all(end <= start for end, (start, _) in zip(ends, spans[1:], strict=False))
        assert not spans or (spans[0][0] >= 0 and ends[-1] <= 12)
        for start, n in spans:
            covered[start : start + n] += 1
    assert covered.min() > 0.15 * 4000  # no word is out of reach


@pytest.mark.parametrize("seed", range(30))
def test_unmasked_words_keep_their_order_within_their_sentence(seed):
    doc = document(6, 1, 9)
    result = noised(doc, seed)
    rest = [t for t in result.ids if t != MASK]
    expected = [
        t
        for s in result.order
        for word in (*(word for w, word in enumerate(doc[s]) if (s, w) not in result.masked), (SEPARATOR,))
        for t in word
    ]
    assert rest == expected
    assert result.ids[-1] == SEPARATOR


def test_each_span_leaves_one_mask():
    doc = document(5, 8)
    for seed in range(50):
        order_rng = np.random.default_rng(seed)
        order_rng.permutation(2)  # the draw that `noise` makes first
        spans = draw_spans(13, mask_share=0.35, span_mean=3.0, rng=order_rng)
        result = noised(doc, seed)
        assert result.ids.count(MASK) == len(spans)
        assert len(result.masked) == sum(n for _, n in spans)


def test_without_masks_noise_only_permutes():
    doc = document(4, 2, 7)
    orders = set()
    for seed in range(60):
        result = noised(doc, seed, mask_share=0.0)
        assert result.ids == [t for s in result.order for word in (*doc[s], (SEPARATOR,)) for t in word]
        assert not result.masked
        orders.add(tuple(result.order))
    assert len(orders) == 6  # every order of three sentences


def test_a_span_of_length_zero_inserts_a_mask():
    inserted = 0
    for seed in range(300):
        doc = document(10)
        result = noised(doc, seed, span_mean=0.5)
        runs = result.ids.count(MASK)
        inserted += runs > len(result.masked)
    assert inserted > 30


@pytest.mark.parametrize(("share", "mean"), [(1.0, 3.0), (-0.1, 3.0), (0.35, 0.0)])
def test_rates_out_of_range_are_refused(share, mean):
    with pytest.raises(ValueError, match=str(share) if mean else r"span_mean is 0\.0"):
        draw_spans(5, mask_share=share, span_mean=mean, rng=np.random.default_rng(0))
