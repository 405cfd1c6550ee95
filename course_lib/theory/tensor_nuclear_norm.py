"""Nuclear norms of an N x N x p tensor of kernels and their proximal maps (lesson 31).

A[i, j, tau] is how strongly place j acts on place i after a lag. Its rank can be counted in three ways: of each time slice
A[:, :, tau]; of each slice of the discrete Fourier transform along tau; of the N x Np unfolding. Each gives a nuclear norm,
a sum of singular values, and a map that shrinks them. The transform is orthonormal here, so that it keeps lengths; with
the unnormalised one the Fourier norm is sqrt(p) times as large, with its mean over slices 1/sqrt(p) times.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

LowRank = Literal["fourier", "slices", "unfolding"]
LOW_RANK = ("fourier", "slices", "unfolding")


def _checked(tensor: Tensor, kind: str) -> None:
    if kind not in LOW_RANK:
        raise ValueError(f"kind must be one of {list(LOW_RANK)}, got {kind!r}")
    if tensor.ndim < 3:
        raise ValueError(f"tensor must have shape (..., N, M, p), got {tuple(tensor.shape)}")


# Slices


def matrices(tensor: Float[Tensor, "*sets N M p"], kind: str) -> Tensor:
    """Return the matrices whose singular values a norm adds up, (..., how many, rows, columns).

    All p DFT slices ("fourier", complex), the p time slices ("slices"), or the one unfolding (N, M p) ("unfolding").

    Raises:
        ValueError: the kind is unknown, or the tensor has less than three dimensions.
    """
    _checked(tensor, kind)
    if kind == "unfolding":
        return tensor.flatten(-2).unsqueeze(-3)
    slices = torch.fft.fft(tensor, norm="ortho") if kind == "fourier" else tensor
    return slices.movedim(-1, -3)


def low_rank_norm(tensor: Float[Tensor, "*sets N M p"], kind: str) -> Float[Tensor, "*sets"]:
    """Sum of the singular values of all `matrices` (31.6): the tensor nuclear norm where `kind` is "fourier"."""
    return torch.linalg.svdvals(matrices(tensor, kind)).sum(dim=(-1, -2))


def numerical_ranks(tensor: Float[Tensor, "*sets N M p"], kind: str, *, share: float | int) -> Tensor:
    """Return for each of the `matrices` how many singular values hold `share` of the tensor's squared length together.

    Counted over the tensor as a whole: a singular value counts where it is among the largest ones that add up to that
    share. Slices of hardly any weight then have rank 0.

    Shapes: (..., how many), whole numbers. Raises: ValueError where the share is outside (0, 1).
    """
    if not 0 < share < 1:
        raise ValueError(f"share must lie in (0, 1), got {share!r}")
    power = torch.linalg.svdvals(matrices(tensor, kind)).square()
    flat = power.flatten(-2)
    order = flat.sort(dim=-1, descending=True)
    before = order.values.cumsum(-1) - order.values
    counted = before < share * flat.sum(-1, keepdim=True)
    return torch.zeros_like(counted).scatter(-1, order.indices, counted).reshape(power.shape).sum(-1)


# Proximal maps


def shrink_by_svd(matrix: Tensor, threshold: float | int | Tensor) -> Tensor:
    """U (s - t)_+ V^H (31.7): the minimiser of 1/2 ||X - M||^2 + t ||X||_*, to be read."""
    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    return (u * (s - threshold).clamp(min=0).unsqueeze(-2)) @ vh


def shrink(matrix: Tensor, threshold: float | int | Tensor) -> Tensor:
    """The same map by M V (1 - t/s)_+ V^H with s^2, V from the Gram matrix M^H M, the smaller of the two.

    Eigenvalues of a Gram matrix are right to eps s_1^2 only, eps being the precision, so singular values below
    sqrt(eps) s_1 are noise. It does no harm as long as the threshold is above them: what lies below t becomes 0
    whichever its value, and what lies above is off by at most about eps s_1^2 / t. In float64 that is 1e-13 s_1 at
    t = s_1 / 1000, in float32 1e-4 s_1; with a threshold below sqrt(eps) s_1, use `shrink_by_svd`.

    Shapes: (..., n, m), real or complex, `threshold` a number or (...,). The bound is our own.
    """
    if matrix.shape[-2] < matrix.shape[-1]:
        return shrink(matrix.mH, threshold).mH
    matrix = matrix.contiguous()
    # Conjugates are written out: small products of lazily conjugated matrices take several times as long.
    values, v = torch.linalg.eigh(matrix.mH.resolve_conj() @ matrix)
    s = values.clamp(min=torch.finfo(values.dtype).tiny).sqrt()
    if isinstance(threshold, Tensor):
        threshold = threshold.unsqueeze(-1)
    kept = (1 - threshold / s).clamp(min=0)
    return (matrix @ (v * kept.unsqueeze(-2))) @ v.mH.resolve_conj()


def prox_by_slices(
    tensor: Float[Tensor, "*sets N M p"], threshold: float | int | Tensor, kind: str
) -> Float[Tensor, "*sets N M p"]:
    """argmin 1/2 ||X - A||^2 + t norm(X) (31.7): shrink every one of the `matrices`, to be read.

    Raises: as `matrices`.
    """
    thresholds = torch.as_tensor(threshold, dtype=tensor.dtype, device=tensor.device)[..., None, None, None]
    shrunk = shrink_by_svd(matrices(tensor, kind), thresholds.squeeze(-1))
    if kind == "unfolding":
        return shrunk.reshape(tensor.shape)
    slices = shrunk.movedim(-3, -1)
    return torch.fft.ifft(slices, norm="ortho").real if kind == "fourier" else slices.contiguous()


def prox(
    tensor: Float[Tensor, "*sets N M p"], threshold: float | int | Tensor, kind: str
) -> Float[Tensor, "*sets N M p"]:
    """The same, on half the DFT slices: those of a real tensor come in conjugate pairs, and the map keeps the pairs.

    Shapes: `threshold` is a number or one for each tensor, (...,), at least 0.

    Raises:
        ValueError: the kind is unknown, or the tensor has less than three dimensions.
    """
    _checked(tensor, kind)
    if kind == "unfolding":
        return shrink(tensor.flatten(-2), threshold).reshape(tensor.shape)
    if isinstance(threshold, Tensor):
        threshold = threshold.unsqueeze(-1)
    if kind == "slices":
        return shrink(tensor.movedim(-1, -3), threshold).movedim(-3, -1)
    half = torch.fft.rfft(tensor, norm="ortho").movedim(-1, -3)
    return torch.fft.irfft(shrink(half, threshold).movedim(-3, -1), n=tensor.shape[-1], norm="ortho")
