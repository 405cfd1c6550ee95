"""ReLU features under an L1 penalty."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.checks import named
from course_lib.sae import kernels, losses
from course_lib.sae.sparse.base import SparseAutoencoder


class ReluSparseAutoencoder(SparseAutoencoder):
    """ReLU features under an L1 penalty that weighs each by the norm of its decoder column.

    f = ReLU(W_e (x - b_d) + b_e), x' = W_d f + b_d, with the training loss
    ||x - x'||^2 + l1 sum_i f_i ||W_d[:, i]||_2. ReLU alone silences about half of the features; the
    penalty makes it sparse. The decoder columns' norms are part of it, so that shrinking f and growing
    W_d gains nothing. It also shrinks the features that should be active.

    Range: l1 >= 0, in the units of states of mean squared norm 1. Raises ValueError otherwise.
    """

    kind = "relu"

    @named
    def __init__(
        self,
        d_model: int,
        n_features: int | None = None,
        *,
        l1: float | int = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(d_model, n_features, generator=generator)
        losses.check_weight("l1", l1)
        self.l1 = l1

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().config() | {"l1": self.l1}

    def _activate(self, pre: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        return torch.relu(pre)

    def _penalties(
        self, pre: Float[Tensor, "batch features"], features: Float[Tensor, "batch features"]
    ) -> dict[str, tuple[float | int, Float[Tensor, ""]]]:
        return {"l1": (self.l1, losses.decoder_weighted_l1(features, self.decoder_weight))}

    def _training_parts(
        self, x: Float[Tensor, "batch d_model"], sparsity_scale: float | int, dtype: torch.dtype
    ) -> dict[str, Float[Tensor, ""]]:
        reconstruction, l1, sums = kernels.relu_l1(
            x - self.decoder_bias.detach(),
            **self._weights(),
            compute_dtype=dtype,
        )
        self._note_active(sums > 0, n_rows=len(x))
        return self._summed(reconstruction, {"l1": (self.l1, l1)}, sparsity_scale)
