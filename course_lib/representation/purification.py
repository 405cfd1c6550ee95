"""Linear purification: the map that returns its input under a penalty, and so shrinks every direction (lesson 24).

Data come as everywhere in the library: one example a *row* of X, (rows, d_model), and a row x is purified to x W. The
notes put examples in columns, X^T here; W is symmetric, so it is the same matrix. Rows are not centred: the map goes
through the origin, and its directions are those of X^T X.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.representation.pca import CHUNK_ROWS, Rows, RunningMoments, check_table


def _check_penalty(penalty: float | int, *, least: str = "at least 0") -> None:
    if not 0 <= penalty < float("inf") or (least == "above 0" and penalty == 0):
        raise ValueError(f"penalty must be a finite number {least}, got {penalty}")


# Shapes that have to agree carry other names in the annotations where `_check_weight` says which of them does not.


def _check_weight(weight: Tensor, x: Tensor) -> None:
    check_table("x", x)
    if tuple(weight.shape) != (x.shape[1], x.shape[1]):
        raise ValueError(
            f"weight must have shape ({x.shape[1]}, {x.shape[1]}) for x {tuple(x.shape)}, got {tuple(weight.shape)}"
        )


def purification_loss(
    weight: Float[Tensor, "side as_long"], x: Float[Tensor, "rows d_model"], penalty: float | int
) -> Float[Tensor, ""]:
    """L(W) = ||X - X W||_F^2 + lambda ||W||_F^2 (24.1).

    Raises:
        ValueError: `weight` does not fit `x`, or `penalty` is negative or not finite.
    """
    _check_weight(weight, x)
    _check_penalty(penalty)
    return (x - x @ weight).square().sum() + penalty * weight.square().sum()


def purification_gradient(
    weight: Float[Tensor, "side as_long"], x: Float[Tensor, "rows d_model"], penalty: float | int
) -> Float[Tensor, "d_model d_model"]:
    """dL/dW = 2 X^T (X W - X) + 2 lambda W (24.8), by hand. Raises as `purification_loss`."""
    _check_weight(weight, x)
    _check_penalty(penalty)
    return 2 * x.T @ (x @ weight - x) + 2 * penalty * weight


def purifying_matrix(
    x: Float[Tensor, "rows d_model"], penalty: float | int
) -> Float[Tensor, "d_model d_model"]:
    """W = (X^T X + lambda I)^-1 X^T X (24.2), to be read: d_model ridge regressions of X on itself.

    Raises:
        ValueError: `x` is no table of floating-point numbers, or `penalty` is not above 0 (without a penalty W is the
            identity on the span of the rows, and not unique beyond it).
    """
    check_table("x", x)
    _check_penalty(penalty, least="above 0")
    gram = x.T @ x
    return torch.linalg.solve(gram + penalty * torch.eye(len(gram), dtype=x.dtype, device=x.device), gram)


def shrink_factors(
    singular_values: Float[Tensor, " directions"], penalty: Tensor | float | int
) -> Float[Tensor, "*penalties directions"]:
    """What purification leaves of each direction, sigma^2 / (sigma^2 + lambda) (24.2).

    A direction without data, sigma = 0, has the factor 0, for lambda = 0 too. `penalty` is a number, or a tensor of any
    shape, whose shape then stands before that of `singular_values`.

    Raises:
        ValueError: a penalty given as a number is negative or not finite.
    """
    if not isinstance(penalty, Tensor):
        _check_penalty(penalty)
    square = singular_values.square()
    total = square + torch.as_tensor(penalty, dtype=square.dtype, device=square.device)[..., None]
    return (square / torch.where(square > 0, total, 1)).reshape(*total.shape)


def penalty_for(singular_value: Float[Tensor, "*any"] | float | int, factor: float | int):
    """The penalty that leaves `factor` of a direction, lambda = sigma^2 (1 - f) / f (24.10): shape of `singular_value`.

    Up to it the direction keeps at least `factor`, from it on at most.

    Raises:
        ValueError: `factor` is not above 0 and at most 1.
    """
    if not 0 < factor <= 1:
        raise ValueError(f"factor must lie above 0 and be at most 1, got {factor}")
    return singular_value**2 * (1 - factor) / factor


@dataclass(frozen=True)
class Purifier:
    """The purifying maps of one table for all penalties, in float64.

    Shapes: `singular_values` (d_model,) of X in decreasing order, `axes` (d_model, d_model), one direction in each column.
    """

    singular_values: Float[Tensor, " d_model"]
    axes: Float[Tensor, "d_model d_model"]

    @classmethod
    def fit(cls, rows: Rows, *, chunk_rows: int = CHUNK_ROWS) -> "Purifier":
        """Take X^T X in one pass and constant memory, and its eigenvectors once, from a tensor or a store.

        Singular values below 1e-8 of the largest are rounding: X^T X squares them.

        Raises:
            ValueError: there are no rows, or they are no table of finite floating-point numbers, or `chunk_rows` is not
                at least 1.
        """
        if len(rows) == 0 or chunk_rows < 1:
            raise ValueError(
                f"at least one row and chunk_rows of 1 are needed, got {len(rows)} and {chunk_rows}"
            )
        moments = RunningMoments()
        for start in range(0, len(rows), chunk_rows):
            moments.update(rows[start : start + chunk_rows])
        mean = moments.mean()
        gram = moments.scatter() + len(rows) * torch.outer(mean, mean)
        if not gram.isfinite().all():
            raise ValueError("rows must hold finite numbers, got NaN or infinity in one of them")
        values, axes = torch.linalg.eigh(gram)
        return cls(values.flip(0).clamp(min=0).sqrt(), axes.flip(1))

    def matrix(self, penalty: float | int) -> Float[Tensor, "d_model d_model"]:
        """W = V diag(sigma^2 / (sigma^2 + lambda)) V^T (24.2), in float64. Raises as `shrink_factors`."""
        return (self.axes * shrink_factors(self.singular_values, penalty)) @ self.axes.T

    def purify(self, x: Float[Tensor, "rows d_model"], penalty: float | int) -> Float[Tensor, "rows d_model"]:
        """The purified rows x W, in the dtype of x. Raises ValueError for rows of another width, or as `matrix`."""
        check_table("x", x, len(self.axes))
        return x @ self.matrix(penalty).to(x)

    def least_loss(self, penalty: Tensor | float | int) -> Float[Tensor, "*penalties"]:
        """min L = lambda tr W (24.9), one number for each penalty. Raises as `shrink_factors`."""
        return penalty * shrink_factors(self.singular_values, penalty).sum(dim=-1)
