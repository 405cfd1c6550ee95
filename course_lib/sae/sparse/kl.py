"""Sigmoid features whose means a KL penalty holds at a target."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.checks import named
from course_lib.sae import losses
from course_lib.sae.sparse.base import SparseAutoencoder


class KLSparseAutoencoder(SparseAutoencoder):
    """Sigmoid features whose mean activation a KL penalty holds at rho.

    f = sigmoid(sqrt(d_model) W_e (x - b_d) + b_e), with the training loss
    ||x - x'||^2 + beta sum_i KL(rho || rho_hat_i), rho_hat_i the batch mean of f_i. No sigmoid is ever
    exactly 0: features are weak rather than absent. The factor sqrt(d_model) undoes the scaling of
    the inputs, whose entries would be too small to move a sigmoid.

    Ranges: beta >= 0, rho in (0, 1). Raises ValueError otherwise. Source: Ng (2011), Sparse autoencoder.
    """

    kind = "kl"

    @named
    def __init__(
        self,
        d_model: int,
        n_features: int | None = None,
        *,
        beta: float | int = 1e-3,
        rho: float | int = 0.05,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(d_model, n_features, generator=generator)
        losses.check_weight("beta", beta)
        losses.check_probability("rho", rho)
        self.beta, self.rho = beta, rho
        with torch.no_grad():
            self.encoder_bias.fill_(math.log(rho / (1 - rho)))

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().config() | {"beta": self.beta, "rho": self.rho}

    @property
    def W_enc(self) -> Float[Tensor, "d_model features"]:  # noqa: N802
        """Encoder weights for raw states, sqrt(d_model) W_e^T / s."""
        return super().W_enc * self.d_model**0.5

    def _preactivations(
        self, x: Float[Tensor, "batch d_model"], dtype: torch.dtype | None = None
    ) -> Float[Tensor, "batch features"]:
        dtype = dtype or x.dtype
        weight, bias = self.encoder_weight.to(dtype), self.encoder_bias.to(dtype)
        return torch.addmm(bias, (self.d_model**0.5 * (x - self.decoder_bias)).to(dtype), weight.T)

    def _activate(self, pre: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        return torch.sigmoid(pre)

    def _penalties(
        self, pre: Float[Tensor, "batch features"], features: Float[Tensor, "batch features"]
    ) -> dict[str, tuple[float | int, Float[Tensor, ""]]]:
        return {"kl": (self.beta, losses.kl_sparsity(features, rho=self.rho))}
