"""Shuffled batches from a tensor or from an activation store on disk, in bounded memory."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.checks import all_finite
from course_lib.sae import memory

BLOCKS_PER_BUFFER = 16
CHUNK = 8192


@runtime_checkable
class RowSource(Protocol):
    """A table of hidden states that can be read by parts: a tensor, an `ActivationStore`, or alike."""

    def __len__(self) -> int:
        """Number of rows."""

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        """Rows of a slice or of a tensor of row numbers, as a tensor (rows, d_model)."""


class SomeRows:
    """Some rows of a table: a `RowSource` of the rows with these numbers, in this order, read as they are asked for."""

    def __init__(self, source: RowSource, numbers: Int[Tensor, " rows"]) -> None:
        self.source, self.numbers = source, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        return self.source[self.numbers[rows]]


class Batches:
    """Batches of random rows, epoch after epoch without end; each row at most once an epoch.

    A tensor is shuffled as a whole. Anything else is read in buffers of `buffer_rows` rows: an epoch cuts the
    rows into blocks of buffer_rows / 16 neighbours, puts the blocks in random order, reads 16 at a time in
    long stretches, and shuffles each buffer as a whole. So a batch is a uniformly random subset of 16 places of the
    data, not of all data: rows of one block come within one buffer of each other, and anything that holds for
    long stretches of the data (a language, a document's topic) is mixed from 16 of them. Memory is two
    buffers. Rows that do not fill a batch join the next buffer; those left at the end of an epoch are left out
    of it, because a small batch would make the batch means of the KL penalty noisy.

    `state` says where in all this the next batch is; `restore` continues there. Row numbers are drawn from
    `generator`: same state, same batches.
    """

    def __init__(
        self,
        activations: RowSource,
        labels: Tensor | None = None,
        *,
        batch_size: int,
        buffer_rows: int,
        generator: torch.Generator,
    ) -> None:
        self.activations, self.labels = activations, labels
        self.n_rows = len(activations)
        self.batch_size = min(batch_size, self.n_rows)
        self.buffer_rows = max(buffer_rows, 2 * self.batch_size)
        self.generator = generator
        self._carried = torch.empty(0, dtype=torch.int64)
        self._epoch, self._group, self._taken = 0, 0, 0
        self._groups: list[Tensor] = []

    def state(self) -> dict[str, int | list[int]]:
        """Where the next batch is, in numbers that JSON holds."""
        return {
            "epoch_seed": self._epoch,
            "group": self._group,
            "taken": self._taken,
            "carried": self._carried.tolist(),
        }

    def restore(self, state: dict[str, int | list[int]]) -> None:
        """Continue where `state` was taken."""
        self._epoch, self._group, self._taken = state["epoch_seed"], state["group"], state["taken"]
        self._carried = torch.tensor(state["carried"], dtype=torch.int64)
        if self._epoch:
            self._groups = self._draw_groups()
            self._read()

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        return self

    def __next__(self) -> tuple[Float[Tensor, "batch d_model"] | Int[Tensor, " batch"], Tensor | None]:
        """The next batch's rows and their labels. (Of a table of numbers of examples, those numbers.)"""
        while not self._groups or self._taken + self.batch_size > len(self._order):
            self._next_group()
        chosen = self._order[self._taken : self._taken + self.batch_size]
        self._taken += self.batch_size
        rows = memory.empty(len(chosen), *self._source.shape[1:], like=self._source)
        torch.index_select(self._source, 0, chosen.to(self._source.device), out=rows)
        if self.labels is None:
            return rows, None
        return rows, self.labels[self._numbers[chosen].to(self.labels.device)]

    def _next_group(self) -> None:
        if self._groups:
            self._carried = self._numbers[self._order[self._taken :]]
            self._group += 1
        if self._group == len(self._groups):
            self._epoch = int(torch.randint(1, 2**62, (1,), generator=self.generator))
            self._group, self._carried = 0, self._carried[:0]
            self._groups = self._draw_groups()
        self._taken = 0
        self._read()

    def _draw_groups(self) -> list[Tensor]:
        """The epoch's blocks (first and last row) in random order, in groups that fill a buffer."""
        if isinstance(self.activations, Tensor):
            return [torch.tensor([[0, self.n_rows]])]
        length = max(self.buffer_rows // BLOCKS_PER_BUFFER, 1)
        starts = torch.arange(0, self.n_rows, length)
        blocks = torch.stack([starts, (starts + length).clamp(max=self.n_rows)], dim=1)
        order = torch.randperm(len(blocks), generator=self._seeded(0))
        return list(blocks[order].split(BLOCKS_PER_BUFFER))

    def _read(self) -> None:
        """Make the current group's buffer: its rows, their numbers, and the order in which they are given."""
        blocks = self._groups[self._group].tolist()
        numbers = [torch.arange(first, last) for first, last in blocks]
        if isinstance(self.activations, Tensor):
            self._source, self._numbers = self.activations, numbers[0]
        else:
            parts = [self.activations[first:last] for first, last in blocks]
            if len(self._carried):
                parts.insert(0, self.activations[self._carried])
            self._source = torch.cat(parts)
            self._numbers = torch.cat([self._carried, *numbers])
        self._order = torch.randperm(len(self._numbers), generator=self._seeded(1 + self._group))

    def _seeded(self, part: int) -> torch.Generator:
        return torch.Generator().manual_seed(self._epoch + part)


def mean_and_scale(activations: RowSource) -> tuple[Float[Tensor, " d_model"], Float[Tensor, ""]]:
    """Mean of the rows and the root of their mean squared distance from it, in float64, reading by chunks.

    Sums are taken about the first chunk's mean, so that hidden states whose mean is far larger than their
    spread keep their digits.

    Raises ValueError for rows with NaN or infinite values, naming the first.
    """
    shift, total, squared, n = None, 0.0, 0.0, len(activations)
    for first in range(0, n, CHUNK):
        chunk = activations[first : first + CHUNK]
        check_finite(chunk, first_row=first, n_rows=n)
        chunk = chunk.to(torch.float64)
        shift = chunk.mean(dim=0) if shift is None else shift
        chunk = chunk - shift
        total, squared = total + chunk.sum(dim=0), squared + chunk.square().sum()
    offset = total / n
    return shift + offset, (squared / n - offset.square().sum()).clamp(min=0).sqrt()


def check_finite(
    rows: Float[Tensor, "rows d_model"], *, first_row: int, n_rows: int, name: str = "activations"
) -> None:
    """Raise ValueError where a row has a NaN or an infinite value; `first_row` is the number of the first."""
    if all_finite(rows):
        return
    bad = ~rows.isfinite().all(dim=1)
    raise ValueError(
        f"{name} has NaN or infinite values in {int(bad.sum())} of {len(bad)} rows"
        f"{'' if len(bad) == n_rows else f' from row {first_row} on'}, first in row "
        f"{first_row + int(bad.nonzero()[0])}; find where they come from (often half precision) or drop these rows"
    )
