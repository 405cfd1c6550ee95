import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.sae.batches import Batches, SomeRows, check_finite, mean_and_scale


class Store:
    """A table on disk in all but the disk: rows by slice or by number, and nothing else."""

    def __init__(self, rows):
        self.rows, self.longest = rows, 0

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, rows):
        found = self.rows[rows]
        self.longest = max(self.longest, len(found))
        return found


def numbered(n, d=2):
    return torch.arange(n, dtype=torch.float32)[:, None].expand(n, d).contiguous()


def batches(source, *, size=4, buffer=16, seed=0, labels=None):
    generator = torch.Generator().manual_seed(seed)
    return Batches(source, labels, batch_size=size, buffer_rows=buffer, generator=generator)


@given(
    n=st.integers(2, 200),
    size=st.integers(1, 40),
    buffer=st.integers(1, 100),
    stored=st.booleans(),
    seed=st.integers(0, 10),
)
def test_an_epoch_gives_every_row_at_most_once_and_leaves_less_than_a_batch(n, size, buffer, stored, seed):
    source = Store(numbered(n)) if stored else numbered(n)
    drawn = batches(source, size=size, buffer=buffer, seed=seed)
    size = min(size, n)
    for _ in range(2):
        epoch = torch.cat([next(drawn)[0][:, 0] for _ in range(n // size)])
        assert len(epoch.unique()) == len(epoch) == n - n % size


def test_a_store_is_read_in_bounded_pieces_and_mixed():
    store = Store(numbered(4096))
    drawn = batches(store, size=32, buffer=512)
    first = next(drawn)[0][:, 0]
    assert store.longest <= 512 // 16
    # From sixteen places of the whole, not from its beginning.
    assert first.min() < 1024
    assert first.max() > 3072
    assert len((first // 32).unique()) > 8


def test_labels_follow_their_rows():
    labels = torch.arange(100) * 3
    for source in (numbered(100), Store(numbered(100))):
        for rows, got in (next(batches(source, labels=labels)) for _ in range(30)):
            assert torch.equal(rows[:, 0].long() * 3, got)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("done", [0, 1, 5, 24, 25, 60])
def test_restored_batches_go_on_as_if_never_stopped(stored, done):
    source = Store(numbered(101)) if stored else numbered(101)
    one = batches(source)
    for _ in range(done):
        next(one)
    state, generator = one.state(), one.generator.get_state()
    expected = [next(one)[0] for _ in range(40)]
    other = batches(source, seed=99)
    other.generator.set_state(generator)
    other.restore(state)
    for rows in expected:
        assert torch.equal(next(other)[0], rows)


def test_mean_and_scale_survive_a_large_mean_and_chunks():
    rows = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 1e6
    mean, scale = mean_and_scale(rows)
    centred = rows - rows.mean(dim=0)
    torch.testing.assert_close(mean, rows.mean(dim=0), rtol=1e-14, atol=0)
    torch.testing.assert_close(scale, centred.square().sum(dim=1).mean().sqrt(), rtol=1e-9, atol=0)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_rows_that_are_not_finite_are_named_by_their_number_in_the_whole(value):
    rows = torch.zeros(20_000, 3)
    rows[17_003, 1] = value
    rows[18_000] = value
    with pytest.raises(ValueError, match="first in row 17003"):
        mean_and_scale(Store(rows))
    opposite = torch.tensor([[float("inf"), -float("inf")]])
    with pytest.raises(ValueError, match="in 1 of 1 rows, first in row 0"):
        check_finite(opposite, first_row=0, n_rows=1)
    check_finite(torch.full((4, 4), 3e38), first_row=0, n_rows=4)  # large is not infinite


def test_some_rows_are_those_with_their_numbers():
    rows = torch.arange(40.0).view(20, 2)
    some = SomeRows(rows, torch.tensor([3, 5, 5, 19]))
    assert len(some) == 4
    assert torch.equal(some[1:3], rows[[5, 5]])
    assert torch.equal(some[torch.tensor([3, 0])], rows[[19, 3]])
