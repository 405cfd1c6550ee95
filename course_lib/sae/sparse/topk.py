"""The k largest features of each row."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.sae import kernels
from course_lib.sae.sparse.base import SparseAutoencoder


class TopKSparseAutoencoder(SparseAutoencoder):
    """Of each row's pre-activations the k largest, where positive; all others are 0.

    f = ReLU(TopK(W_e (x - b_d) + b_e)). The number of active features is set and not negotiated with the
    loss, which is the squared error alone: nothing shrinks the active ones.

    Range: 1 <= k <= n_features. Raises ValueError otherwise. Source: Gao et al. (2024), arXiv:2406.04093.
    """

    kind = "topk"
    revived_size = 1.0  # a smaller one would not be among the k largest

    def __init__(
        self,
        d_model: int,
        n_features: int | None = None,
        *,
        k: int = 32,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(d_model, n_features, generator=generator)
        _check_k(k, self.n_features)
        self.k = k

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().config() | {"k": self.k}

    def _activate(self, pre: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        values, indices = pre.topk(self.k, dim=-1)
        return torch.zeros_like(pre).scatter(-1, indices, values.relu())

    def _training_parts(
        self, x: Float[Tensor, "batch d_model"], sparsity_scale: float | int, dtype: torch.dtype
    ) -> dict[str, Float[Tensor, ""]]:
        with torch.no_grad():
            centred = x - self.decoder_bias
            code = kernels.topk_code(
                centred, self.encoder_weight, self.encoder_bias, k=self.k, compute_dtype=dtype
            )
        return self._sparse_training_parts(centred, code, dtype)


def _check_k(k: int, n_features: int) -> None:
    if not 1 <= k <= n_features:
        raise ValueError(f"k is {k}; expected 1 to n_features, {n_features}")
