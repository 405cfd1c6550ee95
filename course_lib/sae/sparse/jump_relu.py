"""A learned threshold for each feature, under an L0 penalty."""

import math
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib.checks import named
from course_lib.sae import losses
from course_lib.sae.sparse.base import SparseAutoencoder


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

    @named
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
        return torch.where(pre <= threshold, 0, pre)  # NaN stays NaN

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        pre, threshold = ctx.saved_tensors
        near = ((pre - threshold).abs() < ctx.bandwidth / 2).to(pre.dtype)
        by_threshold = -(gradient * near).sum(dim=0, dtype=threshold.dtype) * threshold / ctx.bandwidth
        return torch.where(pre <= threshold, 0, gradient), by_threshold, None
