"""Tied unit-norm directions whose biases are adapted to target frequencies."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib import parallel
from course_lib.checks import named
from course_lib.sae import kernels
from course_lib.sae.sparse.base import SparseAutoencoder, remove_radial_


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
    main_part = ("reconstruction", 0.5)

    @named
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

    @property
    def b_enc(self) -> Float[Tensor, " features"]:
        """Zeros: the bias is a threshold, z > -b, and adds nothing."""
        return torch.zeros_like(self.encoder_bias)

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
        return torch.where(pre <= -self.encoder_bias, 0, pre)  # NaN stays NaN

    def _observe(
        self, pre: Float[Tensor, "batch features"], features: Float[Tensor, "batch features"]
    ) -> None:
        """Take a batch into the statistics that decide the next adaptation."""
        super()._observe(pre, features)
        counts = kernels.active_counts(features)
        largest = pre.amax(dim=0) + self.encoder_bias
        parallel.sum_over_ranks(counts)
        parallel.max_over_ranks(largest)
        self.fired_rows += counts
        torch.maximum(self.largest, largest, out=self.largest)
        self.rows_seen += len(pre) * parallel.world_size()

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
