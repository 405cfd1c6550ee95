"""Steepest descent in a norm: one gradient, as many steps as there are ways to measure a step (lesson 06).

The gradient g of a loss says how the loss changes to first order: L(w + D) is about L(w) + <g, D>, with
<g, D> the sum of the products of the entries. Which step D is steepest depends on how long a step is said
to be. Five norms are offered, by name:

- "l1", "l2" and "linf" of the entries, for a tensor of any shape ("l2" of a matrix is its Frobenius norm);
- "spectral", the largest singular value of a matrix;
- "rms_to_rms" of a matrix W with d_out rows and d_in columns that maps x to W x: the largest ratio of the
  root mean square of W x to that of x, which is sqrt(d_in / d_out) times the spectral norm.
"""

import math
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

NORMS = ("l1", "l2", "linf", "spectral", "rms_to_rms")
MOST_COORDINATES = 16


def _check(tensor: Tensor, norm: str) -> None:
    if norm not in NORMS:
        raise ValueError(f"norm must be one of {list(NORMS)}, got {norm!r}")
    if norm in ("spectral", "rms_to_rms") and tensor.ndim != 2:
        raise ValueError(
            f"norm {norm!r} needs a matrix, got a tensor of shape {tuple(tensor.shape)}: reshape it to two "
            'dimensions or use "l1", "l2" or "linf"'
        )


def _width_ratio(matrix: Tensor) -> float:
    """sqrt(d_out / d_in): what the RMS-to-RMS norm of a matrix has to be multiplied by to be its spectral norm."""
    rows, columns = matrix.shape
    return math.sqrt(rows / columns)


def primal_norm(step: Float[Tensor, "*shape"], *, norm: str) -> Float[Tensor, ""]:
    """The length of a step, ||D||, in the norm of that name.

    Raises:
        ValueError: the norm is unknown, or needs a matrix and `step` is none.
    """
    _check(step, norm)
    if norm == "l1":
        return step.abs().sum()
    if norm == "l2":
        return torch.linalg.vector_norm(step)
    if norm == "linf":
        return step.abs().max()
    largest = torch.linalg.svdvals(step)[0]
    return largest if norm == "spectral" else largest / _width_ratio(step)


def dual_norm(gradient: Float[Tensor, "*shape"], *, norm: str) -> Float[Tensor, ""]:
    """||g||_* = max of <g, D> over ||D|| <= 1: the fastest decrease that a unit step can have (06.2).

    It is the largest of the entries in size for "l1", the sum of their sizes for "linf", "l2" for "l2", the sum of the
    singular values (nuclear norm) for "spectral", and sqrt(d_out / d_in) times that for "rms_to_rms".

    Raises:
        ValueError: the norm is unknown, or needs a matrix and `gradient` is none.
    """
    _check(gradient, norm)
    if norm == "l1":
        return gradient.abs().max()
    if norm == "l2":
        return torch.linalg.vector_norm(gradient)
    if norm == "linf":
        return gradient.abs().sum()
    total = torch.linalg.svdvals(gradient).sum()
    return total if norm == "spectral" else total * _width_ratio(gradient)


def orthogonal_factor(matrix: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    """U V^T of the singular value decomposition U S V^T: every singular value becomes 1 (06.4).

    Directions whose singular value is zero up to rounding (max(rows, columns) times the dtype's epsilon times
    the largest) have no singular vectors of their own; they stay at zero.

    Shapes: `rows` and `columns` in any order; the zero matrix gives the zero matrix.
    """
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    threshold = max(matrix.shape) * torch.finfo(matrix.dtype).eps * values[0]
    return left @ ((values > threshold).to(matrix.dtype)[:, None] * right)


def unit_direction(gradient: Float[Tensor, "*shape"], *, norm: str) -> Float[Tensor, "*shape"]:
    """Return a D of length 1 with <g, D> = ||g||_*: the direction of steepest ascent in that norm (06.2).

    Where the direction is not unique one is chosen: entries with g_i = 0 do not move under "linf", the first
    of several largest entries moves under "l1", and singular values that are zero stay zero. Where g = 0 no
    direction is steeper than another, and zeros are returned.

    Raises:
        ValueError: the norm is unknown, or needs a matrix and `gradient` is none.
    """
    _check(gradient, norm)
    if norm == "linf":
        return gradient.sign()
    if norm == "l2":
        # Divided by the largest entry first: squares of tiny entries would vanish. Zeros are divided by 1.
        largest = gradient.abs().max()
        scaled = gradient / torch.where(largest > 0, largest, 1)
        return scaled / torch.where(largest > 0, torch.linalg.vector_norm(scaled), 1)
    if norm == "l1":
        flat = gradient.flatten()
        largest = torch.zeros_like(flat).scatter(0, flat.abs().argmax(dim=0, keepdim=True), 1)
        return (largest * flat.sign()).reshape(gradient.shape)
    factor = orthogonal_factor(gradient)
    return factor if norm == "spectral" else factor * _width_ratio(gradient)


def constrained_step(
    gradient: Float[Tensor, "*shape"], *, norm: str, radius: float | int
) -> Float[Tensor, "*shape"]:
    """Return a minimiser of <g, D> over the ball ||D|| <= eta (06.3): length eta, whatever the size of g.

    Units: `radius` is eta, in units of the step.

    Raises:
        ValueError: `radius` is negative or not finite; the norm is unknown, or needs a matrix and gets none.
    """
    if not (radius >= 0 and math.isfinite(radius)):
        raise ValueError(f"radius must be a finite number, 0 or more, got {radius}")
    return -radius * unit_direction(gradient, norm=norm)


def lp_step(gradient: Float[Tensor, " n"], *, p: float | int, radius: float | int) -> Float[Tensor, " n"]:
    """Return a minimiser of <g, D> over the ball (sum |D_i|^p)^(1/p) <= eta, for any p from 1 to infinity.

    Hoelder's inequality is an equality where |D_i|^p is proportional to |g_i|^q with 1/p + 1/q = 1, so D is
    -eta sign(g) |g|^(q - 1), scaled to length eta. p = 1, 2 and infinity are "l1", "l2" and "linf" above.

    Raises:
        ValueError: p is below 1, or `radius` is negative or not finite.
    """
    if not p >= 1:
        raise ValueError(f"p must be 1 or more (math.inf for the largest entry), got {p}")
    if p == 1 or math.isinf(p):
        return constrained_step(gradient, norm="l1" if p == 1 else "linf", radius=radius)
    # Divided by the largest entry first, so that high powers neither overflow nor all vanish. Zeros are divided by 1.
    largest = gradient.abs().max()
    powers = gradient.sign() * (gradient.abs() / torch.where(largest > 0, largest, 1)) ** (1 / (p - 1))
    length = torch.where(largest > 0, torch.linalg.vector_norm(powers, ord=p), 1)
    return constrained_step(powers, norm="l2", radius=radius) * (torch.linalg.vector_norm(powers) / length)


def penalized_step(
    gradient: Float[Tensor, "*shape"], *, norm: str, alpha: float | int
) -> Float[Tensor, "*shape"]:
    """Return a minimiser of <g, D> + ||D||^2 / alpha (06.8): length alpha/2 times the dual norm of g.

    Units: `alpha` is the step size; the larger, the cheaper a long step.

    Raises:
        ValueError: `alpha` is not a finite number above 0; the norm is unknown, or needs a matrix and gets none.
    """
    if not (alpha > 0 and math.isfinite(alpha)):
        raise ValueError(f"alpha must be a finite number above 0, got {alpha}")
    return -0.5 * alpha * dual_norm(gradient, norm=norm) * unit_direction(gradient, norm=norm)


def penalized_objective(
    gradient: Float[Tensor, "*shape"], step: Float[Tensor, "*shape"], *, norm: str, alpha: float | int
) -> Float[Tensor, ""]:
    """<g, D> + ||D||^2 / alpha, which `penalized_step` minimises; its minimum is -alpha/4 ||g||_*^2 (06.8).

    Raises:
        ValueError: the norm is unknown, or needs a matrix and `step` is none.
    """
    return (gradient * step).sum() + primal_norm(step, norm=norm).square() / alpha


def smoothness(hessian: Float[Tensor, "n n"], *, norm: str) -> Float[Tensor, ""]:
    """max of D^T H D over ||D|| <= 1, the curvature that a norm sees in a convex quadratic.

    A convex function is largest at a corner of a polytope: for "l1" the corners are the signed unit vectors,
    for "linf" the 2^n sign vectors, which are tried one by one.

    Shapes: H is symmetric and positive semi-definite; at most 16 rows for "linf".

    Raises:
        ValueError: the norm is not one of the three, H is not symmetric positive semi-definite, or "linf" is
            asked for more than 16 coordinates.
    """
    if norm not in ("l1", "l2", "linf"):
        raise ValueError(f'norm must be "l1", "l2" or "linf", got {norm!r}')
    values = torch.linalg.eigvalsh(hessian)
    rounding = 1e3 * torch.finfo(hessian.dtype).eps * float(hessian.abs().max())
    if not torch.allclose(hessian, hessian.T, atol=rounding) or values[0] < -rounding:
        raise ValueError(
            "hessian must be symmetric positive semi-definite: the bound is for convex quadratics"
        )
    if norm == "l2":
        return values[-1]
    if norm == "l1":
        return hessian.diagonal().max()
    if len(hessian) > MOST_COORDINATES:
        raise ValueError(
            f'hessian has {len(hessian)} rows, and "linf" tries 2^n corners: at most {MOST_COORDINATES} are allowed'
        )
    # D and -D give the same value: the first sign may stay +1.
    corners = torch.tensor([(1, *signs) for signs in product((1, -1), repeat=len(hessian) - 1)]).to(hessian)
    return ((corners @ hessian) * corners).sum(1).max()
