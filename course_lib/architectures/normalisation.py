"""Batch norm with its gradients by hand, and dropout in least squares as ridge regression (lessons 11, 12).

A batch x has shape (batch, channels, *space). Every statistic of batch norm belongs to one channel and runs over the
n = batch * space values of it; a table (batch, channels) is the case without space. In training the variance that
divides is the biased one, over n; the one that is stored for later is the unbiased one, over n - 1, as in PyTorch.

Dropout is described by the probability `keep` with which an entry stays. PyTorch's `p` is 1 - keep.
"""

import math
from itertools import product

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

# Batch norm, as its equations stand


def _check_batch(x: Tensor, **per_channel: Tensor | None) -> None:
    if x.ndim < 2:
        raise ValueError(f"x must have shape (batch, channels, ...), got {tuple(x.shape)}")
    for name, value in per_channel.items():
        if value is not None and value.shape != x.shape[1:2]:
            raise ValueError(
                f"{name} must have one entry for each of the {x.shape[1]} channels of x, got shape {tuple(value.shape)}"
            )


def _check_eps(eps: float) -> None:
    if not (eps >= 0 and math.isfinite(eps)):
        raise ValueError(f"eps must be a finite number, 0 or more, got {eps}")


def _check_several_values(x: Tensor) -> None:
    if x.shape[1] and x.numel() // x.shape[1] < 2:
        raise ValueError(
            f"x must hold at least 2 values of each channel to have a variance, got shape {tuple(x.shape)}; "
            "with a batch of one, use the running statistics (`training=False`, or `eval()`)"
        )


def _but_channels(x: Tensor) -> list[int]:
    return [d for d in range(x.ndim) if d != 1]


def _along(x: Tensor, per_channel: Tensor) -> Tensor:
    """Give a vector of channels the shape (1, channels, 1, ...), to meet x."""
    return per_channel.view(1, -1, *(1 for _ in range(x.ndim - 2)))


def mean_only_batch_norm(
    x: Float[Tensor, "batch channels *space"],
    weight: Float[Tensor, " channels"] | None = None,
    bias: Float[Tensor, " channels"] | None = None,
) -> Float[Tensor, "batch channels *space"]:
    """y_i = gamma (x_i - mean) + beta, for each channel (11.1).

    `weight` is gamma, 1 by default; `bias` is beta, 0 by default.

    Raises:
        ValueError: x has no channels, or `weight` or `bias` has not one entry for each.

    Source: Salimans and Kingma, Weight Normalization, arXiv:1602.07868, section 4.
    """
    _check_batch(x, weight=weight, bias=bias)
    centred = x - x.mean(_but_channels(x), keepdim=True)
    scaled = centred if weight is None else centred * _along(x, weight)
    return scaled if bias is None else scaled + _along(x, bias)


def mean_only_backward(
    grad: Float[Tensor, "batch channels *space"], weight: Float[Tensor, " channels"] | None = None
) -> Float[Tensor, "batch channels *space"]:
    """dL/dx_i = gamma (g_i - mean of g), for each channel: neither x nor beta is needed (11.3).

    `grad` is g = dL/dy, in the shape of the batch.

    Raises:
        ValueError: `grad` has no channels, or `weight` has not one entry for each.
    """
    return mean_only_batch_norm(grad, weight)


def naive_batch_norm(
    x: Float[Tensor, "batch channels *space"],
    weight: Float[Tensor, " channels"] | None = None,
    bias: Float[Tensor, " channels"] | None = None,
    *,
    eps: float = 1e-5,
) -> Float[Tensor, "batch channels *space"]:
    """y = gamma x-hat + beta with x-hat = (x - mean) / sqrt(variance + eps), statistics of the batch (11.4).

    The variance is the biased one, divided by n. Gradients are those of autograd.

    Raises:
        ValueError: shapes do not fit, a channel has one value only, or `eps` is negative.

    Source: Ioffe and Szegedy, Batch Normalization, arXiv:1502.03167, algorithm 1.
    """
    _check_batch(x, weight=weight, bias=bias)
    _check_several_values(x)
    _check_eps(eps)
    centred = x - x.mean(_but_channels(x), keepdim=True)
    variance = centred.square().mean(_but_channels(x), keepdim=True)
    normal = centred / torch.sqrt(variance + eps)
    scaled = normal if weight is None else normal * _along(x, weight)
    return scaled if bias is None else scaled + _along(x, bias)


def batch_norm_backward(
    grad: Float[Tensor, "batch channels *space"],
    x: Float[Tensor, "batch channels *space"],
    weight: Float[Tensor, " channels"] | None = None,
    *,
    eps: float = 1e-5,
) -> tuple[Float[Tensor, "batch channels *space"], Float[Tensor, " channels"], Float[Tensor, " channels"]]:
    """Return dL/dx = gamma/s (g - mean g - x-hat mean(g x-hat)), dL/dgamma and dL/dbeta (11.5, 11.12).

    `grad` is g = dL/dy; s = sqrt(variance + eps).

    Raises:
        ValueError: shapes do not fit, a channel has one value only, or `eps` is negative.
    """
    _check_batch(x, weight=weight)
    _check_several_values(x)
    _check_eps(eps)
    if grad.shape != x.shape:
        raise ValueError(f"grad must have the shape of x, {tuple(x.shape)}, got {tuple(grad.shape)}")
    over = _but_channels(x)
    variance, mean = torch.var_mean(x, over, correction=0, keepdim=True)
    one_over_s = torch.rsqrt(variance + eps)
    normal = (x - mean) * one_over_s
    along = (grad * normal).mean(over, keepdim=True)
    to_x = one_over_s * (grad - grad.mean(over, keepdim=True) - normal * along)
    to_x = to_x if weight is None else to_x * _along(x, weight)
    return to_x, (grad * normal).sum(over), grad.sum(over)


# Batch norm, as it is used


class _BatchNorm(torch.autograd.Function):
    """Normalise by the batch; keep x alone for the backward pass, which computes x-hat again.

    The backward pass consists of differentiable operations on what was given, so it has a gradient as well.
    """

    @staticmethod
    def forward(x, weight, bias, eps):
        variance, mean = torch.var_mean(x, _but_channels(x), correction=0)
        scale = torch.rsqrt(variance + eps) if weight is None else weight * torch.rsqrt(variance + eps)
        # (x - mean) first: in float32 x * scale + shift would lose the digits that a large mean takes.
        out = (x - _along(x, mean)) * _along(x, scale)
        out = out if bias is None else out + _along(x, bias)
        return out, mean, variance

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias, ctx.eps = inputs
        ctx.save_for_backward(x, weight)
        ctx.with_bias = bias is not None
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx, grad, *_):
        x, weight = ctx.saved_tensors
        to_x, to_weight, to_bias = batch_norm_backward(grad, x, weight, eps=ctx.eps)
        return to_x, None if weight is None else to_weight, to_bias if ctx.with_bias else None, None


def batch_norm(
    x: Float[Tensor, "batch channels *space"],
    running_mean: Float[Tensor, " channels"] | None = None,
    running_var: Float[Tensor, " channels"] | None = None,
    weight: Float[Tensor, " channels"] | None = None,
    bias: Float[Tensor, " channels"] | None = None,
    *,
    training: bool,
    momentum: float | Float[Tensor, ""] = 0.1,
    eps: float = 1e-5,
) -> Float[Tensor, "batch channels *space"]:
    """Batch norm with a backward pass by hand, in the order of arguments of `torch.nn.functional.batch_norm`.

    With `training` the statistics of the batch normalise (11.4), and the running ones, where given, move in place:
    running <- (1 - momentum) running + momentum batch, with the unbiased variance n/(n - 1) (11.13). Without it the
    running statistics normalise, as constants. `momentum` is the share of the new batch, in [0, 1].

    Raises:
        ValueError: shapes do not fit, only one of the running statistics is given, none is without `training`, a
            channel has one value only with it, or `eps` or `momentum` is out of range.

    Source: Ioffe and Szegedy, Batch Normalization, arXiv:1502.03167, algorithms 1 and 2.
    """
    _check_batch(x, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    _check_eps(eps)
    if (running_mean is None) != (running_var is None):
        missing = "running_mean" if running_mean is None else "running_var"
        raise ValueError(f"running_mean and running_var come together, and {missing} is missing")
    if not isinstance(momentum, Tensor) and not 0 <= momentum <= 1:
        raise ValueError(f"momentum must be the share of the new batch, from 0 to 1, got {momentum}")
    if not training:
        if running_mean is None:
            raise ValueError("running_mean and running_var must be given where training=False, got None")
        scale = torch.rsqrt(running_var + eps) if weight is None else weight * torch.rsqrt(running_var + eps)
        out = (x - _along(x, running_mean)) * _along(x, scale)
        return out if bias is None else out + _along(x, bias)
    _check_several_values(x)
    out, mean, variance = _BatchNorm.apply(x, weight, bias, eps)
    if running_mean is not None:
        n = x.numel() // x.shape[1]
        with torch.no_grad():
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
            running_var.lerp_(variance.to(running_var.dtype) * (n / (n - 1)), momentum)
    return out


class BatchNorm(nn.Module):
    """Batch norm for (batch, channels, ...) with any number of dimensions of space, also none.

    Options, parameters, buffers and their names are those of `torch.nn.BatchNorm1d`, so that a state_dict of one
    loads into the other. With `momentum=None` the running statistics are the plain average over all batches so far;
    the count stays on the device, where PyTorch reads it back to the host in every step.

    Raises:
        ValueError: `num_features` is below 1, or `eps` or `momentum` is out of range.
    """

    num_batches_tracked: Int[Tensor, ""] | None

    def __init__(
        self,
        num_features: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        if num_features < 1:
            raise ValueError(f"num_features must be at least 1, got {num_features}")
        _check_eps(eps)
        if momentum is not None and not 0 <= momentum <= 1:
            raise ValueError(
                f"momentum must be None or the share of the new batch, from 0 to 1, got {momentum}"
            )
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        like = {"device": device, "dtype": dtype}
        self.register_parameter("weight", nn.Parameter(torch.ones(num_features, **like)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.zeros(num_features, **like)) if affine else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", torch.zeros(num_features, **like) if tracked else None)
        self.register_buffer("running_var", torch.ones(num_features, **like) if tracked else None)
        count = torch.zeros((), dtype=torch.int64, device=device) if tracked else None
        self.register_buffer("num_batches_tracked", count)

    def forward(self, x: Float[Tensor, "batch channels *space"]) -> Float[Tensor, "batch channels *space"]:
        """Normalise by the batch in training, or where no statistics are tracked; else by the running ones."""
        momentum = self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if momentum is None:
                momentum = 1 / self.num_batches_tracked.to(self.running_mean.dtype)
        return batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=self.training or not self.track_running_stats,
            momentum=0.0 if momentum is None else momentum,
            eps=self.eps,
        )

    def extra_repr(self) -> str:
        """Say the options, as PyTorch's layer does."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


# Dropout


def _check_keep(keep: float, *, below: str = "at most") -> None:
    if not (0 < keep <= 1) or (below == "below" and keep == 1):
        raise ValueError(
            f"keep must be a probability above 0 and {below} 1, got {keep}; PyTorch's p is 1 - keep"
        )


def _check_system(matrix: Tensor, target: Tensor, weights: Tensor | None = None) -> None:
    if len(target) != len(matrix):
        raise ValueError(
            f"target must have one entry for each row of matrix, got {len(target)} for {len(matrix)}"
        )
    if weights is not None and len(weights) != matrix.shape[1]:
        raise ValueError(
            f"weights must have one entry for each column of matrix, got {len(weights)} for {matrix.shape[1]}"
        )


def dropout(
    x: Float[Tensor, "*shape"],
    *,
    keep: float,
    rescale: bool = True,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*shape"]:
    """Keep each entry with probability `keep`, else put it to 0; divide by `keep` where `rescale` (12.1).

    With `rescale` ("inverted dropout", PyTorch's) the mean of an entry is the entry; without it, keep times it.

    Raises:
        ValueError: `keep` is not above 0 and at most 1.

    Source: Srivastava et al., Dropout, JMLR 15 (2014), sections 4 and 10.
    """
    _check_keep(keep)
    mask = torch.rand(x.shape, generator=generator, device=x.device) < keep
    return x * mask / keep if rescale else x * mask


def enumerated_dropout_loss(
    matrix: Float[Tensor, "rows columns"],
    target: Float[Tensor, " rows"],
    weights: Float[Tensor, " columns"],
    *,
    keep: float,
) -> Float[Tensor, ""]:
    """E ||t - (R * X) w||^2 by definition: the sum over all 2^(rows columns) masks R, each with its probability (12.1).

    Raises:
        ValueError: shapes do not fit, `keep` is no probability above 0, or X has more than 16 entries.
    """
    _check_system(matrix, target, weights)
    _check_keep(keep)
    if matrix.numel() > 16:
        raise ValueError(
            f"matrix must have at most 16 entries, since each doubles the number of masks, got {matrix.numel()}"
        )
    total = matrix.new_zeros(())
    for kept in product((0.0, 1.0), repeat=matrix.numel()):
        mask = torch.tensor(kept, dtype=matrix.dtype, device=matrix.device).view(matrix.shape)
        chance = keep ** sum(kept) * (1 - keep) ** (matrix.numel() - sum(kept))
        total = total + chance * (target - (mask * matrix) @ weights).square().sum()
    return total


def expected_dropout_loss(
    matrix: Float[Tensor, "rows columns"],
    target: Float[Tensor, " rows"],
    weights: Float[Tensor, " columns"],
    *,
    keep: float,
) -> Float[Tensor, ""]:
    """||t - p X w||^2 + p (1 - p) sum_j ||X_j||^2 w_j^2, with p = keep and X_j column j (12.2).

    Raises:
        ValueError: shapes do not fit, or `keep` is no probability above 0.

    Source: Srivastava et al., Dropout, JMLR 15 (2014), section 9.1.
    """
    _check_system(matrix, target, weights)
    _check_keep(keep)
    fit = (target - keep * matrix @ weights).square().sum()
    return fit + keep * (1 - keep) * (matrix.square().sum(0) * weights.square()).sum()


def generalised_ridge(
    matrix: Float[Tensor, "rows columns"],
    target: Float[Tensor, " rows"],
    penalties: Float[Tensor, " columns"],
) -> Float[Tensor, " columns"]:
    """Return the minimiser of ||t - X w||^2 + sum_j penalty_j w_j^2: (X^T X + diag(penalties)) w = X^T t (12.3).

    Raises:
        ValueError: shapes do not fit.
    """
    _check_system(matrix, target, penalties)
    return torch.linalg.solve(matrix.T @ matrix + torch.diag(penalties), matrix.T @ target)


def dropout_ridge(
    matrix: Float[Tensor, "rows columns"], target: Float[Tensor, " rows"], *, keep: float
) -> Float[Tensor, " columns"]:
    """Return what least squares with dropout minimises in the mean: w = p w-tilde, by columns of length 1 (12.3, 12.4).

    The weights that dropout trains, which meet masked inputs, are w / keep; w itself is for inputs without a mask. A
    column of zeros gets the weight 0.

    Raises:
        ValueError: shapes do not fit, or `keep` is not strictly between 0 and 1.
    """
    _check_system(matrix, target)
    _check_keep(keep, below="below")
    lengths = matrix.square().sum(0).sqrt()
    lengths = torch.where(lengths > 0, lengths, 1)
    unit = matrix / lengths
    return generalised_ridge(unit, target, torch.full_like(lengths, (1 - keep) / keep)) / lengths
