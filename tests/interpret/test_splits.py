"""What divides a detector's hits from its misses, and what its false calls hold."""

import pytest
import torch

from course_lib.interpret.splits import MARGIN, shortfalls

NAMES, LABELS = ["verb:lose", "tool:violin", "tool:shovel", "food:bread"], ["past", "question", "rare"]


def planted(seed: int = 0, n: int = 4000):
    """Sentences with concepts and grammar by chance; no detector has made its calls yet."""
    generator = torch.Generator().manual_seed(seed)
    holds = torch.rand(n, 4, generator=generator) < 0.1
    labels = torch.rand(n, 3, generator=generator) < torch.tensor([0.4, 0.5, 0.001])
    return holds, labels, generator


def asked(calls, holds, labels, **changes):
    options = {"concepts": NAMES, "labels": labels, "names": LABELS, "least": 10}
    return shortfalls(calls, holds, **(options | {"generator": torch.Generator().manual_seed(1)} | changes))


def test_a_split_and_a_merger_are_found_and_chance_is_not():
    holds, labels, generator = planted()
    calls = holds.clone()
    calls[:, 0] &= ~labels[:, 0]  # silent in the past
    calls[:, 1] |= holds[:, 2]  # one unit for violin and shovel
    calls[:, 3] &= torch.rand(len(holds), generator=generator) < 0.5  # misses and false calls fall anywhere
    calls[:, 3] |= torch.rand(len(holds), generator=generator) < 0.05
    verb, violin, shovel, bread = asked(calls, holds, labels)
    assert (verb.divided_by, verb.recall_with, verb.recall_without, verb.gap) == ("past", 0, 1, 1)
    assert verb.split
    assert not verb.merger
    assert (violin.mistaken_for, violin.mistaken, violin.recall) == ("tool:shovel", 1, 1)
    assert violin.merger
    assert not violin.split
    own, other = holds[:, 1].double(), holds[:, 2].double()
    assert violin.precision == pytest.approx((own.sum() / ((own + other) > 0).sum()).item())
    assert not (shovel.split)
    assert not (shovel.merger)
    assert not (bread.split)
    assert not (bread.merger)
    assert bread.gap == pytest.approx(bread.gap_shuffled, abs=0.1)
    assert bread.mistaken == pytest.approx(bread.mistaken_by_chance, abs=0.1)


def test_what_chance_gives_is_that_of_shuffled_hits():
    """Few rows give large gaps by chance, many small ones: a gap means nothing without it."""
    gaps = []
    for n in (400, 40_000):
        holds, labels, generator = planted(n=n)
        calls = holds & (torch.rand(n, 1, generator=generator) < 0.5)
        gaps.append(asked(calls, holds, labels, which=["verb:lose"])[0].gap_shuffled)
    assert gaps[0] > 5 * gaps[1]


def test_too_few_rows_say_nothing():
    holds, labels, _ = planted()
    (found,) = asked(holds & False, holds, labels[:, 2:], names=["rare"], which=["food:bread"])
    assert (found.precision, found.recall, found.divided_by, found.gap) == (None, 0, None, None)
    assert (found.mistaken_for, found.mistaken) == (None, None)
    assert not (found.split)
    assert not (found.merger)


def test_a_split_begins_at_the_margin():
    holds, labels, generator = planted(n=40_000)
    late = torch.rand(len(holds), generator=generator)
    for share, is_split in ((MARGIN - 0.1, False), (MARGIN + 0.15, True)):
        calls = holds & ~(labels[:, :1] & (late < share)[:, None])
        assert asked(calls, holds, labels, which=NAMES[:1])[0].split == is_split


def test_tables_that_do_not_fit_are_refused():
    holds, labels, _ = planted()
    with pytest.raises(ValueError, match="a column a name"):
        asked(holds, holds, labels, names=LABELS[:2])
    with pytest.raises(ValueError, match="least and draws must be 1 or more, got 0 and 20"):
        asked(holds, holds, labels, least=0)
