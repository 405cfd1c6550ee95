"""Memory that a training step fills again and again.

A fresh table of 16 MB has to be mapped page by page when it is first written, which takes longer than a pass over it.
A step of training makes the same tables every time, so `train` keeps them: inside `reused` each call of `empty`
hands out the memory of the same call a step before. Outside, and on a GPU, whose allocator does this itself, it is
`torch.empty`.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor


class Memory:
    """The tables of one kind of step, by shape and dtype. None is handed out twice in a step."""

    def __init__(self) -> None:
        self._tables: dict[tuple, list[Tensor]] = {}
        self._taken: Counter[tuple] = Counter()

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A table of its own for this step, with what the step before left in it."""
        tables, taken = self._tables.setdefault((shape, dtype), []), self._taken[shape, dtype]
        self._taken[shape, dtype] += 1
        if taken == len(tables):
            tables.append(torch.empty(shape, dtype=dtype))
        # A tensor of its own: autograd keeps a gradient to which nothing else refers, and copies others.
        return tables[taken].detach()

    @contextmanager
    def reused(self) -> Iterator[None]:
        """One step. What `empty` hands out inside is overwritten in the next one."""
        self._taken.clear()
        token = _memory.set(self)
        try:
            yield
        finally:
            _memory.reset(token)


_memory: ContextVar[Memory | None] = ContextVar("memory", default=None)


def empty(*shape: int, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A table to be filled, on the device of `like` and in its dtype unless another is given."""
    memory, dtype = _memory.get(), dtype or like.dtype
    if memory is None or like.device.type != "cpu":
        return torch.empty(shape, dtype=dtype, device=like.device)
    return memory.empty(shape, dtype)


def converted(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """`tensor.to(dtype)`, without its gradient."""
    tensor = tensor.detach()
    return tensor if tensor.dtype == dtype else empty(*tensor.shape, like=tensor, dtype=dtype).copy_(tensor)
