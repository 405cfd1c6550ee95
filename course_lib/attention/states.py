"""What attention in linear time keeps of the past: states that are given to the next call and returned by it.

A state is a frozen set of tensors whose last two dimensions are its own and whose leading ones are those of the keys,
usually batch and heads. It is float32, or float64 where asked for, whatever the dtype of the tokens: a sum over a long
text does not fit into the digits of half precision. Nothing in it is changed in place, so that a state may be kept and
gone on from many times.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class AttentionState:
    """What all states have in common; their tensors are their fields."""

    def _map(self, change) -> "AttentionState":
        held = vars(self).values()
        return type(self)(*(change(x) if isinstance(x, Tensor) else x for x in held))

    def detach(self) -> "AttentionState":
        """Return the same state, through which no gradient flows: for training on a text piece by piece."""
        return self._map(torch.Tensor.detach)

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> "AttentionState":
        """Return the state on another device, or with its sums in float64 or float32.

        Raises:
            ValueError: `dtype` is neither float32 nor float64.
        """
        if dtype not in (None, torch.float32, torch.float64):
            raise ValueError(f"dtype of a state must be float32 or float64, got {dtype}")
        return self._map(lambda t: t.to(device=device, dtype=dtype if t.is_floating_point() else None))

    def index_select(self, dim: int, index: Tensor) -> "AttentionState":
        """Return the entries `index` of leading dimension `dim`, in that order: the beams that go on, say.

        Shapes: `index` is (n,), whole numbers. Ranges: `dim` counts leading dimensions, 0 for the batch.

        Raises:
            ValueError: `dim` is no leading dimension of the state.
        """
        first = getattr(self, fields(self)[0].name)
        if not 0 <= dim < first.ndim - 2:
            raise ValueError(f"dim must be one of the {first.ndim - 2} leading dimensions, got {dim}")
        return self._map(lambda t: t.index_select(dim, index))

    @property
    def nbytes(self) -> int:
        """How many bytes the tensors of the state hold."""
        return sum(t.nbytes for f in fields(self) if isinstance(t := getattr(self, f.name), Tensor))

    def merged(self) -> "AttentionState":
        """Return the state with one leading dimension, (batch, ., .)."""
        return self._map(lambda t: t.reshape(t.shape[:-2].numel(), *t.shape[-2:]))

    def unmerged(self, lead: tuple[int, ...]) -> "AttentionState":
        """Return the state with the leading dimensions `lead` in place of one."""
        return self._map(lambda t: t.reshape(*lead, *t.shape[-2:]))
