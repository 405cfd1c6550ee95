"""Concept erasure: take a concept out of states so that no linear probe reads it, and change them as little as possible.

Least-squares concept erasure (LEACE; Belrose et al., arXiv:2306.03819), lesson 24. States are rows of X, (rows, d_model);
the concept is a table Z, (rows, concepts): one-hot labels, or numbers. The erased state is affine in the state,

    x' = x - U R (x - mean),   U (d_model, rank), R (rank, d_model), R U = I,

where the columns of U span those of the cross-covariance of X and Z. Whatever else R is, R U = I makes the
cross-covariance of x' and Z zero; R chosen by whitening makes the change the smallest.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from course_lib.checks import named
from course_lib.representation.pca import RunningMoments, check_table, gram

LEAST_CORRELATION = 1e-7
"""What a linear probe reads below this correlation is rounding, and is not erased."""
FLOOR = 1e-10
"""Added to the variance of standardised features: directions below 1e-5 of a feature's spread are rounding."""
_FLOOR_FLOAT32 = 1e-6  # the same where products were taken in float32
_CHUNK_ROWS, _BLOCK_ROWS, _BLOCK = 2048, 256, 128  # so that what is multiplied stays in the cache
_ROWS_AT_ONCE = 512  # rows that are erased together, for the same reason


def concept_columns(
    z: Shaped[Tensor, " rows"] | Shaped[Tensor, "rows concepts"], *, n_classes: int | None = None
) -> Float[Tensor, "rows concepts"]:
    """The concept as a table in float64: whole labels (rows,) become one-hot, all else stays, a column at least.

    A table of whole numbers (rows, concepts), one-hot or counts, is taken as it is, True as 1.

    Raises:
        ValueError: `z` has neither one nor two dimensions, whole labels are negative or not below `n_classes`, or
            `n_classes` is given for what are no labels.
    """
    if z.ndim not in (1, 2):
        raise ValueError(f"z must have shape (rows,) or (rows, concepts), got {tuple(z.shape)}")
    if z.ndim == 2 and not len(z):
        return z.double()
    labels = z.ndim == 1 and not z.is_floating_point() and z.dtype != torch.bool
    if not labels:
        if n_classes is not None:
            raise ValueError(f"n_classes is for whole labels (rows,), got z {tuple(z.shape)} of {z.dtype}")
        return z.double().reshape(len(z), -1)
    if not len(z) and n_classes is None:
        raise ValueError("z has no labels; expected at least one, or n_classes")
    top = int(z.max()) + 1 if len(z) else 0
    if n_classes is None:
        n_classes = top
    if top > n_classes or (len(z) and int(z.min()) < 0):
        raise ValueError(f"labels in z must lie from 0 to {n_classes - 1}, got {int(z.min())} to {top - 1}")
    return torch.nn.functional.one_hot(z.long(), n_classes).double()


def erase_by_regression(
    x: Float[Tensor, "rows d_model"], z: Float[Tensor, "as_many concepts"]
) -> Float[Tensor, "rows d_model"]:
    """LEACE as in (24.7), to be read: predict Z from X, regress X on that prediction, and keep what is left.

    z_hat = (X - mean) Sigma_xx^+ Sigma_xz,   X' = X - z_hat (z_hat^T z_hat)^+ z_hat^T (X - mean).

    In float64. Raises ValueError where `x` is no table of floating-point numbers or `z` has another number of rows.
    """
    check_table("x", x)
    if len(z) != len(x):
        raise ValueError(f"z must have {len(x)} rows, as x has, got {len(z)}")
    centred = x.double() - x.double().mean(dim=0)
    predicted = centred @ torch.linalg.pinv(centred) @ (z.double() - z.double().mean(dim=0))
    return x.double() - predicted @ torch.linalg.pinv(predicted, rtol=1e-9) @ centred


@dataclass(frozen=True)
class Eraser:
    """x' = x - U R (x - mean), in float64 until it is used (24.11).

    Shapes: `mean` (d_model,), `write` U (d_model, rank), `read` R (rank, d_model) with R U = I.
    """

    mean: Float[Tensor, " d_model"]
    write: Float[Tensor, "d_model rank"]
    read: Float[Tensor, "rank d_model"]

    @property
    def rank(self) -> int:
        """Number of directions that are lost."""
        return len(self.read)

    def matrix(self) -> Float[Tensor, "d_model d_model"]:
        """The oblique projection P = I - U R that is applied to centred states."""
        return (
            torch.eye(len(self.mean), dtype=self.mean.dtype, device=self.mean.device) - self.write @ self.read
        )

    def erase(self, x: Float[Tensor, "rows d_model"]) -> Float[Tensor, "rows d_model"]:
        """The erased states, in the dtype of x. Raises ValueError for rows of another width.

        In x's dtype, with U in two parts of that dtype whose sum is U to about twice its digits, made to fit the
        rounded R: a rounded U alone would leave the same small share of the concept in every row. States are centred
        first: a mean may be far larger than the spread around it. Without gradients, by blocks of rows.
        """
        check_table("x", x, len(self.mean))
        mean, read = self.mean.to(x), self.read.to(x)
        write = self.write @ torch.linalg.inv(read.to(self.write) @ self.write)
        high = write.to(x)
        both = torch.cat([high, (write - high.to(write)).to(x)], dim=1).T

        def removed(rows: Tensor) -> tuple[Tensor, Tensor]:
            code = (rows - mean) @ read.T
            return torch.cat([code, code], dim=1), both

        if torch.is_grad_enabled() and x.requires_grad:
            return torch.addmm(x, *removed(x), alpha=-1)
        erased = torch.empty_like(x)
        for rows, out in zip(x.split(_ROWS_AT_ONCE), erased.split(_ROWS_AT_ONCE), strict=True):
            torch.addmm(rows, *removed(rows), alpha=-1, out=out)
        return erased


class ErasureMoments:
    """What erasure needs of rows that come in batches: means, covariances and cross-covariance, in constant memory.

    Sums are float64. Products of float32 states among each other are float32 within a chunk: Sigma_xx only decides how
    small the change is. Those of states and concept, on which the guarantee rests, are float64.
    """

    def __init__(self, *, product_dtype: torch.dtype | None = None) -> None:
        self.product_dtype = product_dtype
        self._x, self._z = RunningMoments(), RunningMoments()
        self._cross: Tensor | None = None

    def update(
        self,
        x: Float[Tensor, "rows d_model"],
        z: Shaped[Tensor, " as_many"] | Shaped[Tensor, "as_many concepts"],
        *,
        n_classes: int | None = None,
    ) -> None:
        """Take in a batch. Whole labels need `n_classes` where a batch may lack the last class.

        Raises:
            ValueError: `x` and `z` differ in rows, or in columns from the batches before, or `z` is as
                `concept_columns` refuses it.
        """
        check_table("x", x, None if self._cross is None else len(self._cross))
        table = concept_columns(z, n_classes=n_classes)
        if len(table) != len(x):
            raise ValueError(f"z must have {len(x)} rows, as x has, got {len(table)}")
        if self._cross is not None and table.shape[1] != self._cross.shape[1]:
            raise ValueError(f"z must have {self._cross.shape[1]} columns, as before, got {table.shape[1]}")
        if self.product_dtype is None:
            self.product_dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        if self._cross is None:
            self._cross = torch.zeros(x.shape[1], table.shape[1], dtype=torch.float64, device=x.device)
        for rows, concepts in zip(x.split(_CHUNK_ROWS), table.split(_CHUNK_ROWS), strict=True):
            if len(rows):
                self._take(rows, concepts)

    def _take(self, x: Tensor, z: Tensor) -> None:
        n, mean_z = len(x), z.mean(dim=0)
        z = z - mean_z
        # Columns of mean 0 let the mean of x fall out of the cross-covariance; a column of ones finds that mean.
        left = torch.cat([z, torch.ones_like(z[:, :1])], dim=1)
        sums = sum(
            a.T @ b.double() for a, b in zip(left.split(_BLOCK_ROWS), x.split(_BLOCK_ROWS), strict=True)
        )
        mean_x = sums[-1] / n
        self._cross += sums[:-1].T
        if before := self._x.n_rows:
            weight = before * n / (before + n)
            self._cross += weight * torch.outer(mean_x - self._x.mean(), mean_z - self._z.mean())
        centred = x.to(self.product_dtype) - mean_x.to(self.product_dtype)
        self._x.merge(mean_x, gram(centred, block=_BLOCK).double(), n)
        self._z.merge(mean_z, gram(z), n)

    def eraser(self) -> Eraser:
        """The smallest change after which no linear probe reads the concept (24.11).

        With D the spreads of the features and C their correlations, C = L L^T by Cholesky. The left singular vectors A
        of T = L^-1 D^-1 Sigma_xz D_z^-1, those whose correlation is above `LEAST_CORRELATION`, give U = D L A and
        R = A^T L^-1 D^-1. Correlations have no units: neither the scale of a feature nor a rare concept matters.

        Raises:
            ValueError: fewer than two rows were taken in, or a number was not finite.
        """
        spread, factor, whitened = self._whitened()
        vectors, correlations, _ = torch.linalg.svd(whitened, full_matrices=False)
        return _oblique(self._x.mean(), spread, factor, vectors[:, correlations > LEAST_CORRELATION])

    def random_eraser(self, rank: int, *, generator: torch.Generator | None = None) -> Eraser:
        """The control: as `eraser`, for `rank` random directions of the whitened states.

        Raises:
            ValueError: as `eraser`, or `rank` is not from 0 to d_model.
        """
        spread, factor, _ = self._whitened()
        if not 0 <= rank <= len(spread):
            raise ValueError(f"rank must be a whole number from 0 to {len(spread)} (d_model), got {rank}")
        noise = torch.randn(len(spread), rank, generator=generator, dtype=torch.float64)
        return _oblique(self._x.mean(), spread, factor, torch.linalg.qr(noise.to(spread.device)).Q)

    def probe_r2(self) -> Float[Tensor, " concepts"]:
        """The share of each concept column's variance that a least-squares probe reads; 0 for a constant column.

        With V diag(v) V^T the correlations of the features, |v^-1/2 V^T D^-1 Sigma_xz D_z^-1|^2, for all v above
        `FLOOR`: in directions below it float32 leaves noise. Raises as `eraser`.
        """
        _, correlations, cross = self._correlations()
        values, axes = torch.linalg.eigh(correlations)
        kept = values > (FLOOR if self.product_dtype == torch.float64 else _FLOOR_FLOAT32)
        return ((axes[:, kept].T @ cross).square() / values[kept][:, None]).sum(dim=0)

    def _whitened(self) -> tuple[Tensor, Tensor, Tensor]:
        """Spreads D of the features, the Cholesky factor L of their correlations, and T."""
        spread, correlations, cross = self._correlations()
        floor, failed = FLOOR if self.product_dtype == torch.float64 else _FLOOR_FLOAT32, True
        while failed:  # with fewer rows than features, rounding may leave an eigenvalue below -floor
            correlations.diagonal().fill_(1 + floor)
            factor, info = torch.linalg.cholesky_ex(correlations)
            failed, floor = bool(info), 10 * floor
        return spread, factor, torch.linalg.solve_triangular(factor, cross, upper=False)

    def _correlations(self) -> tuple[Tensor, Tensor, Tensor]:
        """Spreads, correlations of the features, and those of features and concepts; 0 for what is constant."""
        if self._x.n_rows < 2:
            raise ValueError(f"at least two rows are needed, got {self._x.n_rows}")
        scatter = self._x.scatter()
        if not (scatter.isfinite().all() and self._cross.isfinite().all()):
            raise ValueError("x and z must hold finite numbers, got NaN or infinity in one of the rows")
        spread, spread_z = _spread(self._x), _spread(self._z)
        return spread, scatter / spread / spread[:, None], self._cross / spread[:, None] / spread_z


def _spread(moments: RunningMoments) -> Tensor:
    """Roots of the sums of squares around the mean; infinite for a column that varies by less than rounding."""
    spread = moments.scatter().diagonal().sqrt()
    varies = spread > 1e-12 * moments.n_rows**0.5 * moments.mean().abs()
    return torch.where(varies, spread, torch.inf)


def _oblique(mean: Tensor, spread: Tensor, factor: Tensor, vectors: Tensor) -> Eraser:
    """U = D L A, R = A^T L^-1 D^-1 for orthonormal A."""
    read = torch.linalg.solve_triangular(factor.T, vectors, upper=True).T / spread
    write = torch.where(spread.isinf(), 0, spread)[:, None] * (factor @ vectors)
    return Eraser(mean, write, read)


@named
def fit_eraser(
    x: Float[Tensor, "rows d_model"],
    z: Shaped[Tensor, " as_many"] | Shaped[Tensor, "as_many concepts"],
    *,
    n_classes: int | None = None,
) -> Eraser:
    """Fit an eraser of the concept Z to states X; equal to `erase_by_regression` on the rows it was fitted to (24.11).

    `z` are whole labels (rows,), or a table of numbers (rows, concepts). For rows in batches, see `ErasureMoments`.

    Raises:
        ValueError: as `ErasureMoments.update` and `ErasureMoments.eraser`.
    """
    moments = ErasureMoments()
    moments.update(x, z, n_classes=n_classes)
    return moments.eraser()


def probe_r2(
    x: Float[Tensor, "rows d_model"],
    z: Shaped[Tensor, " as_many"] | Shaped[Tensor, "as_many concepts"],
    *,
    n_classes: int | None = None,
) -> Float[Tensor, " concepts"]:
    """The share of each concept column's variance that a least-squares probe reads from X (24.3), in float64.

    Raises:
        ValueError: as `fit_eraser`.
    """
    moments = ErasureMoments(product_dtype=torch.float64)
    moments.update(x, z, n_classes=n_classes)
    return moments.probe_r2()
