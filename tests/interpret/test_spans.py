"""Detectors of tokens: against a loop, and on words that are planted where only some of their tokens are written."""

import pytest
import torch

from course_lib.interpret.concepts import LabelledRows, best_thresholds
from course_lib.interpret.spans import span_scores, span_summary

NAMES = ["animal:dog", "food:bread"]
KINDS = {"animal:dog": "animal", "food:bread": "food"}
SENTENCE, TOKENS = 6, 300


def planted(seed, *, n=TOKENS):
    """Sentences of six tokens, some with a dog of two tokens and some with bread, of one."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.zeros(n, SENTENCE, 2, dtype=torch.bool)
    dog, bread = torch.rand(2, n, generator=g) < 0.4
    at = torch.randint(0, SENTENCE - 2, (n,), generator=g)
    rows = torch.arange(n)
    labels[rows[dog], at[dog], 0] = True
    labels[rows[dog], at[dog] + 1, 0] = True
    labels[rows[bread], at[bread] + 2, 1] = True
    return labels, dog, torch.arange(n).repeat_interleave(SENTENCE)


def scored(tables, sides, *, signed=False):
    (train, held_out), ((labels, _, _), (truth, _, sentences)) = tables, sides
    options = {"sentences": sentences, "concepts": NAMES, "categories": KINDS, "signed": signed}
    return span_scores(train, held_out, labels.flatten(0, 1), truth.flatten(0, 1), **options)


def test_scores_are_those_of_a_plain_loop():
    sides = planted(0), planted(1)
    g = torch.Generator().manual_seed(2)
    tables = [
        torch.randn(len(labels) * SENTENCE, 5, generator=g)
        + 1.5 * labels.flatten(0, 1).float() @ torch.eye(2, 5)
        for labels, _, _ in sides
    ]
    for signed in (False, True):
        found = scored(tables, sides, signed=signed)
        for column, score in enumerate(found):
            label, truth = (side[0].flatten(0, 1)[:, column] for side in sides)
            best = (-1.0,)
            for unit in range(5):
                for sign in (1, -1) if signed else (1,):
                    values = sign * tables[0][:, unit]
                    cut = float(best_thresholds(values[:, None], label[:, None]))
                    called = values > cut
                    f1 = 2 * int((called & label).sum()) / (int(called.sum()) + int(label.sum()))
                    best = max(best, (f1, unit, sign, cut))
            f1_train, unit, sign, cut = best
            assert (score.unit, score.sign) == (unit, sign)
            assert score.f1_train == pytest.approx(f1_train, abs=1e-12)
            calls = [sign * value > cut for value in tables[1][:, unit].tolist()]
            right = sum(c and t for c, t in zip(calls, truth.tolist(), strict=True))
            assert score.precision == pytest.approx(right / sum(calls))
            assert score.recall == pytest.approx(right / int(truth.sum()))
            assert score.f1 == pytest.approx(2 * right / (sum(calls) + int(truth.sum())))
            assert (score.tokens_train, score.tokens_held_out) == (int(label.sum()), int(truth.sum()))
            words, hit = 0, 0
            for i in range(TOKENS):  # a word is a run of tokens in one sentence
                run = [j for j in range(i * SENTENCE, (i + 1) * SENTENCE) if truth[j]]
                words += bool(run)
                hit += any(calls[j] for j in run)
            assert score.words == pytest.approx(hit / words)


def test_words_of_neighbouring_sentences_are_two():
    truth = torch.tensor([[True], [True], [False], [True], [False], [False], [False]])
    table = torch.tensor([[1.0], [0.0], [0.0], [1.0], [0.0], [0.0], [0.0]])
    (score,) = span_scores(
        table,
        table,
        truth,
        truth,
        sentences=torch.tensor([0, 1, 1, 1, 2, 2, 2]),
        concepts=["a:b"],
        categories={"a:b": "a"},
    )
    assert (score.precision, score.recall, score.words) == (1, pytest.approx(2 / 3), pytest.approx(2 / 3))


@pytest.mark.parametrize("sparse", [False, True])
def test_a_unit_at_another_token_detects_sentences_and_no_tokens(sparse):
    """Unit 0 fires at the last token of each sentence with a dog, unit 1 at the dog's first token alone."""
    tables, sides = [], (planted(3), planted(4))
    for labels, dog, _ in sides:
        table = torch.zeros(len(labels), SENTENCE, 2)
        table[:, -1, 0] = dog.float()
        first = labels[:, :, 0] & ~torch.cat(
            [torch.zeros(len(labels), 1, dtype=torch.bool), labels[:, :-1, 0]], 1
        )
        table[:, :, 1] = first.float()
        tables.append(table.flatten(0, 1))
    for table, (labels, dog, sentences) in zip(tables, sides, strict=True):
        rows = LabelledRows(table, labels.any(dim=1), groups=sentences)
        assert torch.equal(rows.largest(table)[:, 0] > 0, dog)  # by sentence both units are perfect
        assert torch.equal(rows.largest(table)[:, 1] > 0, dog)
    given = [table.to_sparse_coo() for table in tables] if sparse else tables
    dog = scored(given, sides)[0]
    assert (dog.unit, dog.precision, dog.recall, dog.words) == (1, 1, 0.5, 1)
    (other,) = span_scores(
        *(table.index_select(1, torch.tensor([0])) for table in given),
        *(labels.flatten(0, 1)[:, :1] for labels, _, _ in sides),
        sentences=sides[1][2],
        concepts=NAMES[:1],
        categories=KINDS,
    )
    assert other.f1 < 0.3


def test_held_out_tokens_decide_nothing():
    sides = planted(5), planted(6)
    g = torch.Generator().manual_seed(7)
    tables = [torch.randn(TOKENS * SENTENCE, 30, generator=g) for _ in sides]
    found = scored(tables, sides, signed=True)
    turned = scored([tables[0], -tables[1]], sides, signed=True)
    chosen = [[(s.unit, s.sign, s.threshold, s.f1_train) for s in scores] for scores in (found, turned)]
    assert chosen[0] == chosen[1]
    assert [s.f1 for s in found] != [s.f1 for s in turned]


def test_the_summary_and_what_does_not_fit():
    sides = planted(8), planted(9)
    tables = [labels.flatten(0, 1).float() for labels, _, _ in sides]
    tables[1][:, 1] = 0  # the bread is found in training and never again
    summary = span_summary(scored(tables, sides))
    assert summary == {"n": 2, "reached": 0.5, "precision": 0.5, "recall": 0.5, "f1": 0.5, "words": 0.5}
    with pytest.raises(ValueError, match="held_out has 1799 rows, truth 1800"):
        scored([tables[0], tables[1][1:]], sides)
    every_one = torch.zeros(4, 2, dtype=torch.bool)
    with pytest.raises(
        ValueError, match=r"part_labels has shape \(4, 2\); expected one row for each of 4 .* groups"
    ):
        LabelledRows(
            torch.zeros(4, 1), every_one, part_labels=every_one
        )  # nobody says which tokens are one sentence's
