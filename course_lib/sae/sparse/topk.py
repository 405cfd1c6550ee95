"""The k largest features of each row, and the loss that wakes dead ones."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib import parallel
from course_lib.checks import named
from course_lib.sae import kernels, losses, screening
from course_lib.sae.sparse.base import SparseAutoencoder


class TopKSparseAutoencoder(SparseAutoencoder):
    """Of each row's pre-activations the k largest, where positive; all others are 0.

    f = ReLU(TopK(W_e (x - b_d) + b_e)). The number of active features is set and not negotiated with the
    loss, which is the squared error alone: nothing shrinks the active ones.

    A feature that is never among the k largest gets no gradient and stays dead. With `aux_k` > 0 the loss has
    a second part, "aux" (AuxK): the dead features reconstruct what the others leave,

        aux_weight ||e - W_d f_dead||^2,   e = x - x' without gradient,

    f_dead the aux_k largest pre-activations of the dead features, where positive. Dead is what was active in none
    of the last `dead_after` rows of training; while there are none, the part is 0.

    Ranges: 1 <= k <= n_features, 0 <= aux_k <= n_features, aux_weight >= 0, dead_after >= 1 row. Raises
    ValueError otherwise. Source: Gao et al. (2024), arXiv:2406.04093.
    """

    kind = "topk"
    revived_size = 1.0  # a smaller one would not be among the k largest

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
        super().__init__(d_model, n_features, generator=generator)
        check_k(k, self.n_features)
        if not 0 <= aux_k <= self.n_features:
            raise ValueError(f"aux_k is {aux_k}; expected 0 (no such loss) to n_features, {self.n_features}")
        losses.check_weight("aux_weight", aux_weight)
        if dead_after < 1:
            raise ValueError(f"dead_after is {dead_after}; expected at least 1 row")
        self.k, self.aux_k, self.aux_weight, self.dead_after = k, aux_k, aux_weight, dead_after
        if aux_k:
            self.register_buffer("quiet_rows", torch.zeros(self.n_features, dtype=torch.int64))

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        names = ("k", "aux_k", "aux_weight", "dead_after") if self.aux_k else ("k",)
        return super().config() | {name: getattr(self, name) for name in names}

    @property
    def dead(self) -> Bool[Tensor, " features"]:
        """Features that were active in none of the last `dead_after` rows of training (with `aux_k` > 0)."""
        return self.quiet_rows >= self.dead_after

    def _activate(self, pre: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        return largest_of_rows(pre, self.k)

    def _reconstruction_parts(
        self, x: Float[Tensor, "batch d_model"], features: Float[Tensor, "batch features"]
    ) -> dict[str, Float[Tensor, ""]]:
        """Parts of the loss that compare the reconstruction with the states; the last one is trained on."""
        return {"reconstruction": losses.reconstruction(self._decode(features), x)}

    def _parts_of(
        self,
        x: Float[Tensor, "batch d_model"],
        pre: Float[Tensor, "batch features"],
        features: Float[Tensor, "batch features"],
        sparsity_scale: float | int,
    ) -> dict[str, Float[Tensor, ""]]:
        parts = self._reconstruction_parts(x, features)
        if not self.aux_k:
            return self._total(parts, None)
        dead = self.dead
        code = largest_of_rows(torch.where(dead, pre, -torch.inf), self.aux_k)
        missing = (x - self._decode(features)).detach()
        written = code @ self.decoder_weight.to(code.dtype).T
        return self._total(parts, losses.reconstruction(written, missing) * dead.any())

    def _total(
        self, parts: dict[str, Float[Tensor, ""]], aux: Float[Tensor, ""] | None
    ) -> dict[str, Float[Tensor, ""]]:
        total = list(parts.values())[-1]
        if aux is None:
            return {**parts, "total": total}
        return {**parts, "aux": aux, "total": total + self.aux_weight * aux}

    def _training_parts(
        self, x: Float[Tensor, "batch d_model"], sparsity_scale: float | int, dtype: torch.dtype
    ) -> dict[str, Float[Tensor, ""]]:
        with torch.no_grad():
            centred = x.sub_(self.decoder_bias)
            code = screening.topk_code(
                centred, self.encoder_weight, self.encoder_bias, k=self.k, compute_dtype=dtype
            )
        return self._sparse_training_parts(centred, code, dtype)

    def _sparse_training_parts(
        self, centred: Float[Tensor, "batch d_model"], code: kernels.SparseCode, dtype: torch.dtype
    ) -> dict[str, Float[Tensor, ""]]:
        parts, error = self._sparse_reconstruction_parts(centred, code, dtype)
        aux = None
        if self.aux_k:
            with torch.no_grad():
                dead = self.dead
                bias = torch.where(dead, self.encoder_bias, -torch.inf)
                of_dead = kernels.topk_code(
                    centred, self.encoder_weight, bias, k=self.aux_k, compute_dtype=dtype
                )
            aux = kernels.residual_reconstruction(
                centred, -error, of_dead, **self._weights(), compute_dtype=dtype
            )
            aux = aux * dead.any()
        self._observe_code(code, n_rows=len(centred))
        return self._total(parts, aux)

    def _sparse_reconstruction_parts(
        self, centred: Float[Tensor, "batch d_model"], code: kernels.SparseCode, dtype: torch.dtype
    ) -> tuple[dict[str, Float[Tensor, ""]], Float[Tensor, "batch d_model"]]:
        """`_reconstruction_parts` of a sparse code, and its error x' - x."""
        found, error = kernels.nested_reconstruction(
            centred, code, prefixes=(self.n_features,), **self._weights(), compute_dtype=dtype
        )
        return {"reconstruction": found[0]}, error

    @property
    def _watched(self) -> bool:
        return super()._watched or self.aux_k > 0

    def _note_active(self, active: Bool[Tensor, " features"], *, n_rows: int) -> None:
        super()._note_active(active, n_rows=n_rows)
        if self.aux_k:
            parallel.any_over_ranks(active)
            quiet = self.quiet_rows + n_rows * parallel.world_size()
            self.quiet_rows.copy_(torch.where(active, 0, quiet))


def largest_of_rows(pre: Float[Tensor, "batch features"], k: int) -> Float[Tensor, "batch features"]:
    """The k largest entries of each row, negative ones and all others as 0."""
    values, indices = pre.topk(k, dim=-1)
    return torch.zeros_like(pre).scatter(-1, indices, values.relu())


def check_k(k: int, n_features: int) -> None:
    """Raise ValueError unless k is 1 to n_features."""
    if not 1 <= k <= n_features:
        raise ValueError(f"k is {k}; expected 1 to n_features, {n_features}")
