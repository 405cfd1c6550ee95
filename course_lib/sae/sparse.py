"""Sparse autoencoders: overcomplete dictionaries, one small class for each way to keep few features active.

All compute pre-activations p = W_e (x - b_d) + b_e, turn them into features f >= 0 of which most are 0,
and write back x' = W_d f + b_d. They differ in the step from p to f and in the penalty:

    ReLU + L1   f = max(p, 0)                           lambda sum_i f_i ||W_d[:, i]||
    KL          f = sigmoid(p)                          beta sum_i KL(rho || mean f_i)
    TopK        f = max(p, 0) at the k largest p        none
    BatchTopK   the k N largest p of N rows together    none
    JumpReLU    f = p where p > theta_i, learned        lambda sum_i 1[p_i > theta_i], or its tanh form
    GBA         f = p - b where p > 0, b adapted        none

Here is the readable, dense form of each. What `train` runs computes the same by the kernels of
`kernels`; tests hold the two together.
"""

import math
from abc import abstractmethod
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.sae import distributed, kernels, losses
from course_lib.sae.autoencoder import Autoencoder, Labels, check_width


class SparseAutoencoder(Autoencoder):
    """What sparse autoencoders share: weights, their start, and the loss ||x - x'||^2 + penalties.

    `n_features` defaults to 4 d_model. Shapes: `encoder_weight` (n_features, d_model), `encoder_bias`
    (n_features), `decoder_weight` (d_model, n_features), `decoder_bias` (d_model).
    """

    revived_size: ClassVar[float] = 0.2

    def __init__(
        self, d_model: int, n_features: int | None = None, *, generator: torch.Generator | None = None
    ) -> None:
        super().__init__(d_model)
        self.n_features = 4 * d_model if n_features is None else n_features
        check_width("n_features", self.n_features)
        self._make_weights(_random_rows(self.n_features, d_model, generator))
        # Features seen to fire in training, for whoever looks after dead ones; None: nobody asks.
        self.fired: Bool[Tensor, " features"] | None = None

    def _make_weights(self, rows: Float[Tensor, "features d_model"]) -> None:
        """Encoder rows and decoder columns start at the same random directions."""
        self.encoder_weight = nn.Parameter(rows.clone())
        self.encoder_bias = nn.Parameter(torch.zeros(self.n_features))
        # A feature's column lies together in memory: a sparse code reads and writes whole columns.
        self.decoder_weight = nn.Parameter(rows.clone().T)
        self.decoder_bias = nn.Parameter(torch.zeros(self.d_model))

    @property
    def code_width(self) -> int:
        """Number of features."""
        return self.n_features

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"d_model": self.d_model, "n_features": self.n_features}

    @abstractmethod
    def _activate(self, pre: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        """Features of pre-activations."""

    def _activate_batch(self, pre: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        """Features in training, where they may depend on the other rows of the batch."""
        return self._activate(pre)

    def _penalties(
        self, pre: Float[Tensor, "batch features"], features: Float[Tensor, "batch features"]
    ) -> dict[str, tuple[float | int, Float[Tensor, ""]]]:
        """Weight and value of each sparsity penalty, by name."""
        return {}

    def _preactivations(
        self, x: Float[Tensor, "batch d_model"], dtype: torch.dtype | None = None
    ) -> Float[Tensor, "batch features"]:
        dtype = dtype or x.dtype
        weight, bias = self.encoder_weight.to(dtype), self.encoder_bias.to(dtype)
        return torch.addmm(bias, (x - self.decoder_bias).to(dtype), weight.T)

    def _encode(self, x: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch code"]:
        return self._activate(self._preactivations(x))

    def _decode(self, code: Float[Tensor, "batch code"]) -> Float[Tensor, "batch d_model"]:
        return code @ self.decoder_weight.to(code.dtype).T + self.decoder_bias

    def strengths(self, features: Float[Tensor, "batch features"]) -> Float[Tensor, " features"]:
        """Root mean square length of what each feature writes: ||W_d[:, i]|| sqrt(mean_n f_i(x_n)^2).

        Unlike f_i alone it does not depend on how the product f_i W_d[:, i] is split between the two.
        """
        return features.square().mean(dim=0).sqrt() * self.decoder_weight.norm(dim=0)

    def _parts(
        self, x: Float[Tensor, "batch d_model"], *, labels: Labels, sparsity_scale: float | int
    ) -> dict[str, Float[Tensor, ""]]:
        pre = self._preactivations(x)
        return self._parts_of(x, pre, self._activate_batch(pre), sparsity_scale)

    def _parts_of(
        self,
        x: Float[Tensor, "batch d_model"],
        pre: Float[Tensor, "batch features"],
        features: Float[Tensor, "batch features"],
        sparsity_scale: float | int,
    ) -> dict[str, Float[Tensor, ""]]:
        reconstruction = losses.reconstruction(self._decode(features), x)
        return self._summed(reconstruction, self._penalties(pre, features), sparsity_scale)

    def _summed(
        self,
        reconstruction: Float[Tensor, ""],
        penalties: dict[str, tuple[float | int, Float[Tensor, ""]]],
        sparsity_scale: float | int,
    ) -> dict[str, Float[Tensor, ""]]:
        total = reconstruction
        for weight, value in penalties.values():
            total = total + weight * sparsity_scale * value
        named = {name: value for name, (_, value) in penalties.items()}
        return {"reconstruction": reconstruction, **named, "total": total}

    def training_loss(
        self,
        batch: Float[Tensor, "batch d_model"],
        *,
        labels: Labels = None,
        sparsity_scale: float | int = 1.0,
        compute_dtype: torch.dtype | None = None,
    ) -> dict[str, Float[Tensor, ""]]:
        """`loss` as `train` computes it, see `Autoencoder.training_loss`."""
        x = self.normalise(batch)
        return self._training_parts(x, sparsity_scale, compute_dtype or x.dtype)

    def _training_parts(
        self, x: Float[Tensor, "batch d_model"], sparsity_scale: float | int, dtype: torch.dtype
    ) -> dict[str, Float[Tensor, ""]]:
        pre = self._preactivations(x, dtype)
        features = self._activate_batch(pre)
        with torch.no_grad():
            self._observe(pre, features)
        return self._parts_of(x, pre, features, sparsity_scale)

    def _observe(
        self, pre: Float[Tensor, "batch features"], features: Float[Tensor, "batch features"]
    ) -> None:
        """Gather what training wants to know of a batch."""
        if self.fired is not None:
            self.fired |= features.amax(dim=0) > 0

    @torch.no_grad()
    def restart(
        self,
        dead: Int[Tensor, " dead"],
        batch: Float[Tensor, "batch d_model"],
        *,
        generator: torch.Generator,
    ) -> list[tuple[nn.Parameter, Any]]:
        """Point features, given by their numbers, at what the reconstruction of badly explained rows lacks.

        Rows are drawn in proportion to their squared loss ||x - x'||^4; a feature's encoder row and decoder
        column take the direction of x - x', with the mean norms of the other features (encoder rows `revived_size`
        times that, not to disturb what works) and bias 0. Returns the parameters and the entries that were set.
        Source: Bricken et al. (2023), Towards Monosemanticity, which takes the direction of x instead.
        """
        x = self.normalise(batch)
        residual = x - self._decode(self._activate_batch(self._preactivations(x)))
        residual = distributed.gathered(residual)
        badness = residual.square().sum(dim=1).double().square().cpu()
        rows = torch.multinomial(badness + 1e-300, len(dead), replacement=True, generator=generator)
        directions = nn.functional.normalize(residual[rows.to(residual.device)], dim=1)
        others = torch.ones_like(self.encoder_bias, dtype=torch.bool)
        others[dead] = len(dead) == self.n_features
        encoder_norm = self.encoder_weight[others].norm(dim=1).mean()
        decoder_norm = self.decoder_weight.T[others].norm(dim=1).mean()
        self.encoder_weight[dead] = self.revived_size * encoder_norm * directions
        self.encoder_bias[dead] = 0
        self.decoder_weight[:, dead] = decoder_norm * directions.T
        return [
            (self.encoder_weight, dead),
            (self.encoder_bias, dead),
            (self.decoder_weight, (slice(None), dead)),
        ]

    def _sparse_training_parts(
        self, centred: Float[Tensor, "batch d_model"], code: kernels.SparseCode, dtype: torch.dtype
    ) -> dict[str, Float[Tensor, ""]]:
        """Loss parts of a code without penalty, of which only the active entries are known."""
        if self.fired is not None:
            # A mask of active entries would be read back for its size.
            sums = torch.zeros_like(self.fired, dtype=code.values.dtype)
            self.fired |= sums.index_add_(0, code.columns, code.values) > 0
        reconstruction = kernels.sparse_reconstruction(
            centred,
            code,
            encoder_weight=self.encoder_weight,
            encoder_bias=self.encoder_bias,
            decoder_weight=self.decoder_weight,
            decoder_bias=self.decoder_bias,
            compute_dtype=dtype,
        )
        return {"reconstruction": reconstruction, "total": reconstruction}


class ReluSparseAutoencoder(SparseAutoencoder):
    """ReLU features under an L1 penalty that weighs each by the norm of its decoder column.

    f = ReLU(W_e (x - b_d) + b_e), x' = W_d f + b_d, with the training loss
    ||x - x'||^2 + l1 sum_i f_i ||W_d[:, i]||_2. ReLU alone silences about half of the features; the
    penalty makes it sparse. The decoder columns' norms are part of it, so that shrinking f and growing
    W_d gains nothing. It also shrinks the features that should be active.

    Range: l1 >= 0, in the units of states of mean squared norm 1. Raises ValueError otherwise.
    """

    kind = "relu"

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
            encoder_weight=self.encoder_weight,
            encoder_bias=self.encoder_bias,
            decoder_weight=self.decoder_weight,
            decoder_bias=self.decoder_bias,
            compute_dtype=dtype,
        )
        if self.fired is not None:
            self.fired |= sums > 0
        return self._summed(reconstruction, {"l1": (self.l1, l1)}, sparsity_scale)


class KLSparseAutoencoder(SparseAutoencoder):
    """Sigmoid features whose mean activation a KL penalty holds at rho.

    f = sigmoid(sqrt(d_model) W_e (x - b_d) + b_e), with the training loss
    ||x - x'||^2 + beta sum_i KL(rho || rho_hat_i), rho_hat_i the batch mean of f_i. No sigmoid is ever
    exactly 0: features are weak rather than absent. The factor sqrt(d_model) undoes the scaling of
    the inputs, whose entries would be too small to move a sigmoid.

    Ranges: beta >= 0, rho in (0, 1). Raises ValueError otherwise. Source: Ng (2011), Sparse autoencoder.
    """

    kind = "kl"

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


class BatchTopKSparseAutoencoder(TopKSparseAutoencoder):
    """The k N largest pre-activations of N rows together: k features a row on average, more where needed.

    In training f = ReLU(TopK(p)) with the k N largest of the whole batch's pre-activations (of several equal to
    the last some may be left out). `encode` must not depend on what else is in the batch: it uses the buffer
    `threshold`, a running mean of the last one's value t that training leaves behind (0 before: a ReLU), and
    f = p where p >= threshold and p > 0.

    Range: 1 <= k <= n_features. Raises ValueError otherwise. Source: Bussmann et al. (2024), arXiv:2412.06410.
    """

    kind = "batch_topk"
    threshold_rate = 0.01

    def __init__(
        self,
        d_model: int,
        n_features: int | None = None,
        *,
        k: int = 32,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(d_model, n_features, k=k, generator=generator)
        self.register_buffer("threshold", torch.zeros(()))

    def _activate(self, pre: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        return torch.where((pre >= self.threshold) & (pre > 0), pre, 0)

    def _activate_batch(self, pre: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        places, _ = distributed.largest(pre.detach(), self.k * len(pre))
        flat = pre.flatten()
        return torch.zeros_like(flat).scatter(0, places, flat[places].relu()).view_as(pre)

    def _training_parts(
        self, x: Float[Tensor, "batch d_model"], sparsity_scale: float | int, dtype: torch.dtype
    ) -> dict[str, Float[Tensor, ""]]:
        with torch.no_grad():
            pre = self._preactivations(x, dtype)
            places, last = distributed.largest(pre, self.k * len(pre))
            rate = torch.where(self.threshold > 0, self.threshold_rate, 1.0)
            self.threshold.lerp_(last.relu().to(self.threshold.dtype), rate.to(self.threshold.dtype))
            code = kernels.code_at(pre, places, dtype=x.dtype)
        return self._sparse_training_parts(x - self.decoder_bias.detach(), code, dtype)


class JumpReluSparseAutoencoder(SparseAutoencoder):
    """A learned threshold for each feature, under an L0 penalty: f_i = p_i where p_i > theta_i, else 0.

    The loss is ||x - x'||^2 + l0 sum_i 1[p_i > theta_i]. Jumps have no useful derivative in theta; in its place
    stands that of their mean over a window of width `bandwidth` (rectangle kernel K(u) = 1[|u| < 1/2]):

        d f_i / d theta_i = -(theta_i / bandwidth) K((p_i - theta_i) / bandwidth)
        d 1[p_i > theta_i] / d theta_i = -(1 / bandwidth) K((p_i - theta_i) / bandwidth)

    `penalty="tanh"` replaces the count by sum_i tanh(steepness f_i ||W_d[:, i]||), which is smooth in f: it
    moves encoders too, where the count moves thresholds alone.

    Units: pre-activations of states of mean squared norm 1. Ranges: l0 >= 0; bandwidth, threshold, steepness > 0.
    Raises ValueError otherwise. Source: Rajamanoharan et al. (2024), arXiv:2407.14435.
    """

    kind = "jump_relu"

    def __init__(
        self,
        d_model: int,
        n_features: int | None = None,
        *,
        l0: float | int = 1e-3,
        penalty: Literal["l0", "tanh"] = "l0",
        threshold: float | int = 0.03,
        bandwidth: float | int = 0.03,
        steepness: float | int = 4.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(d_model, n_features, generator=generator)
        losses.check_weight("l0", l0)
        if penalty not in ("l0", "tanh"):
            raise ValueError(f"penalty is {penalty!r}; expected 'l0' or 'tanh'")
        for name, value in (("threshold", threshold), ("bandwidth", bandwidth), ("steepness", steepness)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}; expected a positive number")
        self.l0, self.penalty = l0, penalty
        self.initial_threshold, self.bandwidth, self.steepness = threshold, bandwidth, steepness
        self.log_threshold = nn.Parameter(torch.full((self.n_features,), math.log(threshold)))

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().config() | {
            "l0": self.l0,
            "penalty": self.penalty,
            "threshold": self.initial_threshold,
            "bandwidth": self.bandwidth,
            "steepness": self.steepness,
        }

    @property
    def threshold(self) -> Float[Tensor, " features"]:
        """Where each feature starts, theta > 0."""
        return self.log_threshold.exp()

    @torch.no_grad()
    def restart(
        self,
        dead: Int[Tensor, " dead"],
        batch: Float[Tensor, "batch d_model"],
        *,
        generator: torch.Generator,
    ) -> list[tuple[nn.Parameter, Any]]:
        """As for all, and the threshold as at the start."""
        changed = super().restart(dead, batch, generator=generator)
        self.log_threshold[dead] = math.log(self.initial_threshold)
        return [*changed, (self.log_threshold, dead)]

    def _activate(self, pre: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        return _JumpRelu.apply(pre, self.threshold, self.bandwidth)

    def _penalties(
        self, pre: Float[Tensor, "batch features"], features: Float[Tensor, "batch features"]
    ) -> dict[str, tuple[float | int, Float[Tensor, ""]]]:
        if self.penalty == "l0":
            active = _Step.apply(pre, self.threshold, self.bandwidth)
            return {"l0": (self.l0, active.sum(dim=-1).mean())}
        lengths = features * self.decoder_weight.norm(dim=0)
        return {"tanh": (self.l0, torch.tanh(self.steepness * lengths).sum(dim=-1).mean())}


class GroupBiasAdaptedAutoencoder(SparseAutoencoder):
    """Tied unit-norm directions whose biases are adapted so that each group fires at its target frequency (GBA).

    x' = b_d + sum_m a_m w_m phi_m, phi_m = w_m.(x - b_d) where w_m.(x - b_d) + b_m > 0, else 0; ||w_m|| = 1. The
    loss is ||x - x'||^2 / 2 without penalty. It trains w, a and b_d; no gradient reaches b. The features
    are split into `groups` of equal size whose target frequencies p_k run geometrically from `highest`
    to `lowest` (one group: `highest` alone, which is plain bias adaptation). Every `every` steps, with q_m the share of
    rows since the last time in which m fired, r_m its largest positive w_m.(x - b_d) + b_m, and r_bar the
    mean of the r_m > 0 in its group:

        q_m > p_k:  b_m <- max(b_m - gamma r_m, -1)
        q_m = 0:    b_m <- min(b_m + gamma r_bar, 0)

    The jump keeps the value w_m.(x - b_d) free of the bias: with a ReLU the bias would shrink every active feature.
    One published page prints the second clamp as a maximum, which would reset every dead unit to 0 or above
    at once. Published settings are gamma = 0.01 every 50 steps for long runs. What decides is the number
    of adaptations, so that the defaults here suit a few thousand steps.

    Ranges: groups from 1 to n_features; 1 > highest >= lowest > 0; gamma > 0; every >= 1. Raises ValueError
    otherwise. Source: Chen et al. (2025), arXiv:2506.14002.
    """

    kind = "gba"

    def __init__(
        self,
        d_model: int,
        n_features: int | None = None,
        *,
        groups: int = 10,
        highest: float | int = 0.1,
        lowest: float | int = 0.001,
        gamma: float | int = 0.02,
        every: int = 10,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(d_model, n_features, generator=generator)
        if not 1 <= groups <= self.n_features:
            raise ValueError(f"groups is {groups}; expected 1 to n_features, {self.n_features}")
        if not 0 < lowest <= highest < 1:
            raise ValueError(
                f"lowest and highest are {lowest} and {highest}; expected 0 < lowest <= highest < 1"
            )
        if not 0 < gamma < math.inf:
            raise ValueError(f"gamma is {gamma}; expected a positive number")
        if every < 1:
            raise ValueError(f"every is {every}; expected at least 1 step")
        self.groups, self.highest, self.lowest = groups, highest, lowest
        self.gamma, self.every = gamma, every
        group = torch.arange(self.n_features) * groups // self.n_features
        targets = highest * (lowest / highest) ** (group / max(groups - 1, 1))
        self.register_buffer("group", group, persistent=False)
        self.register_buffer("target_frequency", targets, persistent=False)
        self.register_buffer("encoder_bias", torch.zeros(self.n_features))
        # The streaming statistics since the last adaptation.
        self.register_buffer("fired_rows", torch.zeros(self.n_features, dtype=torch.int64))
        self.register_buffer("largest", torch.zeros(self.n_features))
        self.register_buffer("rows_seen", torch.zeros((), dtype=torch.int64))

    def _make_weights(self, rows: Float[Tensor, "features d_model"]) -> None:
        norms = rows.norm(dim=1)
        self.encoder_weight = nn.Parameter(rows / norms[:, None])
        self.amplitude = nn.Parameter(norms.square())
        self.decoder_bias = nn.Parameter(torch.zeros(self.d_model))

    @property
    def decoder_weight(self) -> Float[Tensor, "d_model features"]:
        """The directions a_m w_m that features write, as columns."""
        return (self.amplitude[:, None] * self.encoder_weight).T

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return super().config() | {
            "groups": self.groups,
            "highest": self.highest,
            "lowest": self.lowest,
            "gamma": self.gamma,
            "every": self.every,
        }

    def _preactivations(
        self, x: Float[Tensor, "batch d_model"], dtype: torch.dtype | None = None
    ) -> Float[Tensor, "batch features"]:
        """w_m.(x - b_d), without the bias: the jump passes on this value."""
        dtype = dtype or x.dtype
        return (x - self.decoder_bias).to(dtype) @ self.encoder_weight.to(dtype).T

    def _activate(self, pre: Float[Tensor, "batch features"]) -> Float[Tensor, "batch features"]:
        return torch.where(pre > -self.encoder_bias, pre, 0)

    def _observe(
        self, pre: Float[Tensor, "batch features"], features: Float[Tensor, "batch features"]
    ) -> None:
        """Take a batch into the statistics that decide the next adaptation."""
        super()._observe(pre, features)
        counts = kernels.active_counts(features)
        largest = pre.amax(dim=0) + self.encoder_bias
        distributed.sum_over_ranks(counts)
        distributed.max_over_ranks(largest)
        self.fired_rows += counts
        torch.maximum(self.largest, largest, out=self.largest)
        self.rows_seen += len(pre) * distributed.world_size()

    @torch.no_grad()
    def adapt(self) -> None:
        """Adapt the biases by the statistics gathered since the last time, and start new ones."""
        adapted = adapted_bias(
            self.encoder_bias,
            frequency=self.fired_rows / self.rows_seen.clamp(min=1),
            target=self.target_frequency,
            largest=self.largest,
            group=self.group,
            gamma=self.gamma,
        )
        self.encoder_bias.copy_(adapted)
        for statistic in (self.fired_rows, self.rows_seen, self.largest):
            statistic.zero_()

    @torch.no_grad()
    def before_step(self) -> None:
        """Keep the gradient of each direction tangent to the sphere it lives on."""
        remove_radial_(self.encoder_weight.grad, self.encoder_weight)

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        """Put directions back on the sphere; adapt the biases every `every` steps."""
        self.encoder_weight.div_(self.encoder_weight.norm(dim=1, keepdim=True))
        if (step + 1) % self.every == 0:
            self.adapt()

    def _summed(
        self,
        reconstruction: Float[Tensor, ""],
        penalties: dict[str, tuple[float | int, Float[Tensor, ""]]],
        sparsity_scale: float | int,
    ) -> dict[str, Float[Tensor, ""]]:
        return {"reconstruction": reconstruction, "total": reconstruction / 2}


@torch.no_grad()
def adapted_bias(
    bias: Float[Tensor, " features"],
    *,
    frequency: Float[Tensor, " features"],
    target: Float[Tensor, " features"],
    largest: Float[Tensor, " features"],
    group: Tensor,
    gamma: float | int,
) -> Float[Tensor, " features"]:
    """One adaptation of the biases, as `GroupBiasAdaptedAutoencoder` describes it.

    `frequency` is q, `target` p of each feature's group, `largest` r (0 where the feature never fired),
    `group` the number of each feature's group.
    """
    alive = (largest > 0).to(largest.dtype)
    # There are at most as many groups as features; how many would have to be read back.
    sums = torch.zeros_like(largest).index_add(0, group, largest * alive)
    counts = torch.zeros_like(largest).index_add(0, group, alive)
    group_mean = (sums / counts.clamp(min=1))[group]
    lowered = (bias - gamma * largest).clamp(min=-1)
    raised = (bias + gamma * group_mean).clamp(max=0)
    return torch.where(frequency > target, lowered, torch.where(frequency == 0, raised, bias))


class _Step(torch.autograd.Function):
    """1[p > theta] with the rectangle kernel's derivative in theta, and none in p."""

    @staticmethod
    def forward(ctx, pre: Tensor, threshold: Tensor, bandwidth: float) -> Tensor:
        ctx.save_for_backward(pre, threshold)
        ctx.bandwidth = bandwidth
        return (pre > threshold).to(threshold.dtype)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[None, Tensor, None]:
        pre, threshold = ctx.saved_tensors
        near = ((pre - threshold).abs() < ctx.bandwidth / 2).to(pre.dtype)
        return None, -(gradient * near).sum(dim=0, dtype=threshold.dtype) / ctx.bandwidth, None


class _JumpRelu(torch.autograd.Function):
    """p 1[p > theta], with -(theta / bandwidth) K as its derivative in theta and 1[p > theta] in p."""

    @staticmethod
    def forward(ctx, pre: Tensor, threshold: Tensor, bandwidth: float) -> Tensor:
        ctx.save_for_backward(pre, threshold)
        ctx.bandwidth = bandwidth
        return torch.where(pre > threshold, pre, 0)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        pre, threshold = ctx.saved_tensors
        near = ((pre - threshold).abs() < ctx.bandwidth / 2).to(pre.dtype)
        by_threshold = -(gradient * near).sum(dim=0, dtype=threshold.dtype) * threshold / ctx.bandwidth
        return torch.where(pre > threshold, gradient, 0), by_threshold, None


@torch.no_grad()
def remove_radial_(gradient: Float[Tensor, "rows d"], rows: Float[Tensor, "rows d"]) -> None:
    """Take from each row of `gradient`, in place, its part along the row of `rows`, which has norm 1."""
    gradient.sub_((gradient * rows).sum(dim=1, keepdim=True) * rows)


def _check_k(k: int, n_features: int) -> None:
    if not 1 <= k <= n_features:
        raise ValueError(f"k is {k}; expected 1 to n_features, {n_features}")


def _random_rows(
    n_features: int, d_model: int, generator: torch.Generator | None
) -> Float[Tensor, "features d_model"]:
    """Random directions of the norm at which W_d ReLU(W_d^T x) equals x in expectation.

    Each of n_features rows of norm c passes half of x's share 1 / d_model along it, times c^2.
    """
    columns = torch.randn(d_model, n_features, generator=generator)
    columns *= (2 * d_model / n_features) ** 0.5 / columns.norm(dim=0)
    return columns.T.contiguous()
