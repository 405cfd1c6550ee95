"""Features with two paths: one decides whether they are active, the other how strongly."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.checks import named
from course_lib.sae import kernels, losses
from course_lib.sae.sparse.base import SparseAutoencoder


class GatedSparseAutoencoder(SparseAutoencoder):
    """Features whose gate is under an L1 penalty and whose magnitude is not, so that nothing shrinks them.

    With u = W_e (x - b_d), the gate's pre-activations are p = u + b_e, the magnitudes m = exp(r) u + b_m, and

        f = 1[p > 0] max(m, 0).

    The loss is ||x - x'||^2 + l1 sum_i g_i ||W_d[:, i]|| + ||x - x'_gate||^2 with g = max(p, 0). The step 1[p > 0] has
    no gradient. What trains the gate is the last part, "gate": the reconstruction x'_gate = W_d g + b_d through
    the decoder as it is, which gets no gradient from it.

    The paper keeps decoder columns at length 1 (`unit_norm_decoder` in training) and has the plain L1 of g, which
    is the same then.

    Shapes: `log_scale` (n_features) is r, `magnitude_bias` (n_features) is b_m. Range: l1 >= 0, in the units of
    states of mean squared norm 1. Raises ValueError otherwise.
    Source: Rajamanoharan et al. (2024), arXiv:2404.16014.
    """

    kind = "gated"

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
        self.log_scale = nn.Parameter(torch.zeros(self.n_features))
        self.magnitude_bias = nn.Parameter(torch.zeros(self.n_features))

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().config() | {"l1": self.l1}

    def _activate(self, pre: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        magnitude = self.log_scale.exp() * (pre - self.encoder_bias) + self.magnitude_bias
        return torch.where(pre <= 0, 0, magnitude.relu())  # NaN stays NaN

    def _parts_of(
        self,
        x: Float[Tensor, "batch d_model"],
        pre: Float[Tensor, "batch features"],
        features: Float[Tensor, "batch features"],
        sparsity_scale: float | int,
    ) -> dict[str, Float[Tensor, ""]]:
        gate = pre.relu()
        by_gate = gate @ self.decoder_weight.detach().to(gate.dtype).T + self.decoder_bias.detach()
        return self._weighted(
            losses.reconstruction(self._decode(features), x),
            losses.decoder_weighted_l1(gate, self.decoder_weight),
            losses.reconstruction(by_gate, x),
            sparsity_scale,
        )

    def _weighted(
        self,
        reconstruction: Float[Tensor, ""],
        l1: Float[Tensor, ""],
        gate: Float[Tensor, ""],
        sparsity_scale: float | int,
    ) -> dict[str, Float[Tensor, ""]]:
        total = reconstruction + self.l1 * sparsity_scale * l1 + gate
        return {"reconstruction": reconstruction, "l1": l1, "gate": gate, "total": total}

    def _training_parts(
        self, x: Float[Tensor, "batch d_model"], sparsity_scale: float | int, dtype: torch.dtype
    ) -> dict[str, Float[Tensor, ""]]:
        reconstruction, l1, gate, sums = kernels.gated(
            x - self.decoder_bias.detach(),
            **self._weights(),
            log_scale=self.log_scale,
            magnitude_bias=self.magnitude_bias,
            compute_dtype=dtype,
        )
        if self._watched:
            self._note_active(sums > 0, n_rows=len(x))
        return self._weighted(reconstruction, l1, gate, sparsity_scale)

    @torch.no_grad()
    def restart(
        self,
        dead: Int[Tensor, " dead"],
        batch: Float[Tensor, "batch d_model"],
        *,
        generator: torch.Generator,
    ) -> list[tuple[nn.Parameter, Any]]:
        """As for all, and magnitudes as at the start."""
        changed = super().restart(dead, batch, generator=generator)
        self.log_scale[dead] = 0
        self.magnitude_bias[dead] = 0
        return [*changed, (self.log_scale, dead), (self.magnitude_bias, dead)]

    @torch.no_grad()
    def move_norms_to_encoder(self) -> None:
        """As for all, for both paths."""
        self.magnitude_bias.mul_(self.decoder_weight.norm(dim=0))
        super().move_norms_to_encoder()
