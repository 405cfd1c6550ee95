"""The k N largest features of N rows together."""

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib import parallel
from course_lib.checks import named
from course_lib.sae import kernels
from course_lib.sae.sparse.topk import TopKSparseAutoencoder


class BatchTopKSparseAutoencoder(TopKSparseAutoencoder):
    """The k N largest pre-activations of N rows together: k features a row on average, more where needed.

    In training f = ReLU(TopK(p)) with the k N largest of the whole batch's pre-activations (of several equal to
    the last some may be left out). `encode` must not depend on what else is in the batch: it uses the buffer
    `threshold`, a running mean of the last one's value t that training leaves behind (0 before: a ReLU), and
    f = p where p >= threshold and p > 0.

    `aux_k`, `aux_weight` and `dead_after` as for TopK: the dead features of each row, not of the batch.

    Range: 1 <= k <= n_features. Raises ValueError otherwise. Source: Bussmann et al. (2024), arXiv:2412.06410.
    """

    kind = "batch_topk"
    threshold_rate = 0.01

    @named
    def __init__(
        self,
        d_model: int,
        n_features: int | None = None,
        *,
        k: int = 32,
        aux_k: int = 0,
        aux_weight: float | int = 1 / 32,
        dead_after: int = 100_000,
        generator: torch.Generator | None = None,
    ) -> None:
        aux = {"aux_k": aux_k, "aux_weight": aux_weight, "dead_after": dead_after}
        super().__init__(d_model, n_features, k=k, **aux, generator=generator)
        self.register_buffer("threshold", torch.zeros(()))

    def _activate(self, pre: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        return torch.where((pre < self.threshold) | (pre <= 0), 0, pre)  # NaN stays NaN

    def _activate_batch(self, pre: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        places, _ = parallel.largest(pre.detach(), self.k * len(pre))
        flat = pre.flatten()
        return torch.zeros_like(flat).scatter(0, places, flat[places].relu()).view_as(pre)

    def _training_parts(
        self, x: Float[Tensor, "batch d_model"], sparsity_scale: float | int, dtype: torch.dtype
    ) -> dict[str, Float[Tensor, ""]]:
        with torch.no_grad():
            pre = self._preactivations(x, dtype)
            places, last = parallel.largest(pre, self.k * len(pre))
            self._follow(last)
            code = kernels.code_at(pre, places, dtype=x.dtype)
        return self._sparse_training_parts(x - self.decoder_bias.detach(), code, dtype)

    def _observe(
        self, pre: Float[Tensor, "batch features"], features: Float[Tensor, "batch features"]
    ) -> None:
        super()._observe(pre, features)
        self._follow(parallel.largest(pre, self.k * len(pre))[1])

    def _follow(self, last: Float[Tensor, ""]) -> None:
        """Move the threshold towards the last value that a batch kept."""
        rate = torch.where(self.threshold > 0, self.threshold_rate, 1.0)
        self.threshold.lerp_(last.relu().to(self.threshold.dtype), rate.to(self.threshold.dtype))
