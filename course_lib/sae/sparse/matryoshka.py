"""Nested dictionaries: every prefix of the features reconstructs the states on its own."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.checks import named
from course_lib.sae import kernels, losses
from course_lib.sae.sparse.batch_topk import BatchTopKSparseAutoencoder
from course_lib.sae.sparse.topk import TopKSparseAutoencoder


class MatryoshkaTopKSparseAutoencoder(TopKSparseAutoencoder):
    """TopK features whose first m reconstruct the states as well as they can, for every m in `prefixes`.

    Features are those of TopK. With f_{<m} the code in which all from the m-th on are 0, the loss is the mean
    over the prefixes m_1 < ... < m_P = n_features of

        ||x - W_d f_{<m} - b_d||^2.

    In one large dictionary a general feature pays for being silent where a special one is active, since the
    special one can write its direction, too (absorption). Features of a short prefix have no special ones to
    leave it to: what is general moves to the front. "reconstruction" is the part of the whole dictionary, "nested"
    the mean that is trained on. One departure from the paper, which sums: the mean keeps the size of the loss.

    `prefixes` defaults to n/16, n/8, n/4, n/2 and n for n features, those that are at least 1. `aux_k`,
    `aux_weight` and `dead_after` as for TopK, on what the whole dictionary leaves.

    Range: `prefixes` rise strictly from at least 1 to n_features. Raises ValueError otherwise.
    Source: Bussmann et al. (2025), arXiv:2503.17547.
    """

    kind = "matryoshka_topk"
    main_part = ("nested", 1.0)

    @named
    def __init__(
        self,
        d_model: int,
        n_features: int | None = None,
        *,
        prefixes: Sequence[int] | None = None,
        k: int = 32,
        aux_k: int = 0,
        aux_weight: float | int = 1 / 32,
        dead_after: int = 100_000,
        generator: torch.Generator | None = None,
    ) -> None:
        aux = {"aux_k": aux_k, "aux_weight": aux_weight, "dead_after": dead_after}
        super().__init__(d_model, n_features, k=k, **aux, generator=generator)
        self.prefixes = _checked(prefixes, self.n_features)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().config() | {"prefixes": list(self.prefixes)}

    def prefix_losses(
        self, x: Float[Tensor, "batch d_model"], features: Float[Tensor, "batch features"]
    ) -> Float[Tensor, " prefixes"]:
        """Squared error, for each prefix, of centred and scaled states that its features alone reconstruct."""
        found = []
        for m in self.prefixes:
            written = features[:, :m] @ self.decoder_weight[:, :m].to(features.dtype).T + self.decoder_bias
            found.append(losses.reconstruction(written, x))
        return torch.stack(found)

    def _reconstruction_parts(
        self, x: Float[Tensor, "batch d_model"], features: Float[Tensor, "batch features"]
    ) -> dict[str, Float[Tensor, ""]]:
        return _parts(self.prefix_losses(x, features))

    def _sparse_reconstruction_parts(
        self, centred: Float[Tensor, "batch d_model"], code: kernels.SparseCode, dtype: torch.dtype
    ) -> tuple[dict[str, Float[Tensor, ""]], Float[Tensor, "batch d_model"]]:
        found, error = kernels.nested_reconstruction(
            centred, code, prefixes=self.prefixes, **self._weights(), compute_dtype=dtype
        )
        return _parts(found), error


class MatryoshkaBatchTopKSparseAutoencoder(MatryoshkaTopKSparseAutoencoder, BatchTopKSparseAutoencoder):
    """The nested loss of `MatryoshkaTopKSparseAutoencoder` on the features of `BatchTopKSparseAutoencoder`.

    This is the form of the paper. Ranges and errors are those of the two.
    Source: Bussmann et al. (2025), arXiv:2503.17547.
    """

    kind = "matryoshka_batch_topk"


def _parts(found: Float[Tensor, " prefixes"]) -> dict[str, Float[Tensor, ""]]:
    return {"reconstruction": found[-1], "nested": found.mean()}


def _checked(prefixes: Sequence[int] | None, n_features: int) -> tuple[int, ...]:
    if prefixes is None:
        return tuple(sorted({n_features >> shift for shift in range(5)} - {0}))
    prefixes = tuple(prefixes)
    rising = all(a < b for a, b in pairwise(prefixes))
    if not prefixes or prefixes[0] < 1 or not rising or prefixes[-1] != n_features:
        raise ValueError(
            f"prefixes is {prefixes}; expected whole numbers that rise strictly from at least 1 to n_features, "
            f"{n_features}"
        )
    return prefixes
