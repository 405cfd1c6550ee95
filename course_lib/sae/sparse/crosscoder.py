"""One code for several sites: an encoder and a decoder for each, and what the decoders' norms say of a feature."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.checks import named
from course_lib.sae import kernels, losses, screening
from course_lib.sae.autoencoder import check_width
from course_lib.sae.batches import RowSource, mean_and_scale
from course_lib.sae.sparse.base import SparseAutoencoder
from course_lib.sae.sparse.topk import check_k, largest_of_rows

SHARED = -1


class CrosscoderSparseAutoencoder(SparseAutoencoder):
    """One code for the states of several sites: layers, encoder and decoder, or a sentence in two languages.

    A row is the states of all sites side by side, x = (x_1, ..., x_S), of widths `sites`. The encoders are summed up,
    and each site has a decoder:

        p = sum_s W_e^s (x_s - b_d^s) + b_e,    x'_s = W_d^s f + b_d^s,    loss sum_s ||x_s - x'_s||^2 / S + penalty.

    With `k` the features are the k of each row whose p_i n_i is largest, where positive, n_i = sum_s ||W_d^s[:, i]||
    (what a feature writes at all sites together); f_i = p_i there. Without, f = ReLU(p) under the penalty
    l1 sum_i f_i n_i. Sites are scaled one by one, to mean squared norm 1 / S: none counts for more because its
    states are longer, and the loss is the mean of the shares of variance that are missing.

    `shares` says at which sites a feature writes, and `exclusive_site` calls it shared or one site's own. The L1
    silences the weaker site of a shared feature, so that some only look exclusive; TopK has no such term.

    `sites` has at least two widths, with sum d_model. Ranges: 1 <= k <= n_features, or l1 >= 0. Raises ValueError
    otherwise. Sources: Lindsey et al. (2024), Sparse crosscoders; Minder et al. (2025), arXiv:2504.02922, for TopK.
    """

    kind = "crosscoder"

    @named
    def __init__(
        self,
        d_model: int,
        n_features: int | None = None,
        *,
        sites: Sequence[int],
        k: int | None = None,
        l1: float | int = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(d_model, n_features, generator=generator)
        self.sites = tuple(sites)
        for width in self.sites:
            check_width("sites", width)
        if len(self.sites) < 2 or sum(self.sites) != d_model:
            raise ValueError(
                f"sites is {self.sites}; expected the widths of at least two sites, with sum d_model {d_model}"
            )
        losses.check_weight("l1", l1)
        if k is not None:
            check_k(k, self.n_features)
            if l1:
                raise ValueError(f"k is {k} and l1 {l1}; expected one of the two: k sets what l1 negotiates")
            self.revived_size = 1.0  # as for TopK: a smaller one would not be among the k largest
        self.k, self.l1 = k, l1
        self.register_buffer("input_scale", torch.ones(d_model))

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().config() | {"sites": list(self.sites), "k": self.k, "l1": self.l1}

    def fit_normalisation(self, activations: RowSource) -> None:
        """Store the mean of `activations`, and for each site sqrt(S) times the root mean squared distance from it.

        Raises ValueError where a row is not finite, or a site has no variance.
        """
        means, scales, first = [], [], 0
        for width in self.sites:
            mean, scale = mean_and_scale(_Columns(activations, first, first + width))
            if scale <= 1e-12 * (1 + mean.norm()):
                raise ValueError(
                    f"activations have no variance in columns {first} to {first + width - 1}, those of one site; "
                    "expected varying hidden states at every site"
                )
            means.append(mean)
            scales.append((scale * len(self.sites) ** 0.5).expand(width))
            first += width
        with torch.no_grad():
            self.input_mean.copy_(torch.cat(means))
            self.input_scale.copy_(torch.cat(scales))

    def set_normalisation(self, mean: Float[Tensor, " d_model"], scale: Float[Tensor, ""]) -> None:
        """Refused: one scale for all sites would let the site of the longest states count for most.

        Raises RuntimeError.
        """
        raise RuntimeError("a crosscoder scales its sites one by one; use fit_normalisation with its rows")

    def site_norms(self) -> Float[Tensor, "sites features"]:
        """Length of what each feature writes at each site, ||W_d^s[:, i]||, in units of the scaled states."""
        return kernels.site_norms(self.decoder_weight, self.sites)

    def shares(self) -> Float[Tensor, "sites features"]:
        """Share of each site in a feature's decoder norms: in [0, 1], with sum 1 over sites.

        ||W_d^s[:, i]|| / sum_t ||W_d^t[:, i]||; 1 / S for a feature that writes nothing.
        """
        norms = self.site_norms()
        total = norms.sum(dim=0)
        return torch.where(
            total > 0, norms / total.clamp(min=torch.finfo(norms.dtype).tiny), 1 / len(self.sites)
        )

    def _choose(self, pre: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        """Pre-activations at the k largest p_i n_i of each row, and 0 elsewhere."""
        weighted = pre * self.site_norms().sum(dim=0).to(pre.dtype)
        return torch.where(largest_of_rows(weighted.detach(), self.k) == 0, 0, pre)  # NaN stays NaN

    def _activate(self, pre: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        return pre.relu() if self.k is None else self._choose(pre)

    def _penalties(
        self, pre: Float[Tensor, "batch features"], features: Float[Tensor, "batch features"]
    ) -> dict[str, tuple[float | int, Float[Tensor, ""]]]:
        if self.k is not None:
            return {}
        return {"l1": (self.l1, (features * self.site_norms().sum(dim=0)).sum(dim=-1).mean())}

    def _training_parts(
        self, x: Float[Tensor, "batch d_model"], sparsity_scale: float | int, dtype: torch.dtype
    ) -> dict[str, Float[Tensor, ""]]:
        centred = x - self.decoder_bias.detach()
        if self.k is None:
            reconstruction, l1, sums = kernels.relu_l1(
                centred, **self._weights(), compute_dtype=dtype, sites=self.sites
            )
            if self._watched:
                self._note_active(sums > 0, n_rows=len(x))
            return self._summed(reconstruction, {"l1": (self.l1, l1)}, sparsity_scale)
        with torch.no_grad():
            # The k largest p_i n_i are those of an encoder with rows n_i W_e[i] and biases n_i b_i.
            norms = self.site_norms().sum(dim=0)
            code = screening.topk_code(
                centred,
                self.encoder_weight * norms[:, None],
                self.encoder_bias * norms,
                k=self.k,
                compute_dtype=dtype,
            )
            tiny = torch.finfo(norms.dtype).tiny
            code = code._replace(values=code.values / norms[code.columns].clamp(min=tiny))
        self._observe_code(code, n_rows=len(x))
        reconstruction = kernels.sparse_reconstruction(centred, code, **self._weights(), compute_dtype=dtype)
        return self._summed(reconstruction, {}, sparsity_scale)


def exclusive_site(
    shares: Float[Tensor, "sites features"], *, threshold: float | int
) -> Int[Tensor, " features"]:
    """The site whose share of a feature's decoder norms is at least `threshold`; `SHARED` (-1) where none is.

    Range: 0.5 < threshold <= 1: at 0.5 and below two sites could both reach it. Raises ValueError otherwise.
    """
    if not 0.5 < threshold <= 1:
        raise ValueError(
            f"threshold is {threshold}; expected above 0.5, so that one site alone reaches it, to 1"
        )
    largest, site = shares.max(dim=0)
    return torch.where(largest >= threshold, site, SHARED)


class _Columns:
    """Some columns of a source of rows."""

    def __init__(self, source: RowSource, first: int, last: int) -> None:
        self.source, self.columns = source, slice(first, last)

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        return self.source[rows][:, self.columns]
