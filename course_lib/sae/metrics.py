"""How good a code is: explained variance and its PCA bound, and how sparse the features are."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class ExplainedVariance:
    """Fraction of variance explained, gathered over chunks of rows.

    1 - sum_n ||x_n - x_hat_n||^2 / sum_n ||x_n - mean||^2, the mean taken per dimension over all rows.

    Squares are taken after the mean is removed, chunk by chunk, and chunks are merged by the parallel
    form of Welford's update in float64: hidden states have dimensions whose mean is far larger than
    their spread, where E[x^2] - E[x]^2 loses all digits. Source: Chan, Golub and LeVeque (1983).
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self._mean: Tensor | None = None
        self._spread = 0.0
        self._residual = 0.0

    def update(self, x: Float[Tensor, "rows d_model"], x_hat: Float[Tensor, "rows d_model"]) -> None:
        """Take in a chunk of rows and their reconstructions."""
        if not len(x):
            return
        x, x_hat = x.double(), x_hat.double()
        mean = x.mean(dim=0)
        self._spread += (x - mean).square().sum().item()
        self._residual += (x - x_hat).square().sum().item()
        if self._mean is None:
            self._mean, self.n_rows = mean, len(x)
            return
        total = self.n_rows + len(x)
        gap = mean - self._mean
        self._spread += gap.square().sum().item() * self.n_rows * len(x) / total
        self._mean = self._mean + gap * (len(x) / total)
        self.n_rows = total

    def value(self) -> float:
        """The explained variance of all rows so far; at most 1, negative for worse than the mean.

        Raises ValueError where the rows have no variance.
        """
        if self._spread == 0:
            raise ValueError(f"{self.n_rows} rows have no variance; expected at least 2 different rows")
        return 1 - self._residual / self._spread


def explained_variance(x: Float[Tensor, "rows d_model"], x_hat: Float[Tensor, "rows d_model"]) -> float:
    """Fraction of the variance of `x` that the reconstruction `x_hat` explains, see `ExplainedVariance`."""
    gathered = ExplainedVariance()
    gathered.update(x, x_hat)
    return gathered.value()


def pca_curve(x: Float[Tensor, "rows d_model"]) -> Float[Tensor, " components"]:
    """Explained variance of PCA on these rows with 1, 2, ..., min(rows, d_model) components.

    sum_{i <= k} sigma_i^2 / sum_j sigma_j^2 with the singular values of the centred rows in decreasing
    order, in float64. By the Eckart-Young theorem no reconstruction of these rows from an affine subspace
    of dimension k explains more, so it bounds every k-unit code with an affine decoder.

    The singular values come from the triangular factor of a QR decomposition, which has the same ones:
    as accurate as the SVD of the whole table and much faster for many rows.

    Raises ValueError where the rows have no variance.
    """
    centred = x.double() - x.double().mean(dim=0)
    variances = torch.linalg.svdvals(torch.linalg.qr(centred, mode="r").R).square()
    if variances.sum() == 0:
        raise ValueError(f"{len(x)} rows have no variance; expected at least 2 different rows")
    return variances.cumsum(dim=0) / variances.sum()


def pca_bound(x: Float[Tensor, "rows d_model"], k: int) -> float:
    """Largest explained variance that a k-unit code with an affine decoder can have on these rows."""
    if k < 1:
        raise ValueError(f"k is {k}; expected at least 1")
    curve = pca_curve(x)
    return curve[min(k, len(curve)) - 1].item()


def pca_transfer(
    fitted_on: Float[Tensor, "rows d_model"], applied_to: Float[Tensor, "other d_model"], k: int
) -> float:
    """Explained variance on other rows of the k principal components (and the mean) of `fitted_on`.

    A fair comparison for held-out rows: like the autoencoder it has not seen them. It is no bound.
    """
    mean = fitted_on.double().mean(dim=0)
    r = torch.linalg.qr(fitted_on.double() - mean, mode="r").R
    directions = torch.linalg.svd(r, full_matrices=False).Vh[:k]
    centred = applied_to.double() - mean
    return explained_variance(applied_to.double(), centred @ directions.T @ directions + mean)


def l0(features: Float[Tensor, "rows features"]) -> float:
    """Mean number of active features (f > 0) in a row."""
    return (features > 0).sum(dim=1).double().mean().item()


def firing_rates(features: Float[Tensor, "rows features"]) -> Float[Tensor, " features"]:
    """Share of the rows in which each feature is active (f > 0)."""
    return (features > 0).double().mean(dim=0)


def dead_units(features: Float[Tensor, "rows features"]) -> Bool[Tensor, " features"]:
    """Features that are active in none of these rows. The rows given are the window: state them."""
    return ~(features > 0).any(dim=0)


def top_rows(
    features: Float[Tensor, "rows features"], n: int
) -> tuple[Float[Tensor, "features top"], Int[Tensor, "features top"]]:
    """The `n` rows that excite each feature most: activations in decreasing order, and row indices."""
    values, rows = features.topk(min(n, len(features)), dim=0)
    return values.T, rows.T
