"""How good a code is: explained variance and its PCA bound, and how sparse the features are.

Each figure is there for a table of rows and as an accumulator for rows that come in chunks, such as those
of a store; `evaluate` takes an autoencoder and goes over all rows once.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from course_lib.representation.pca import RunningMoments, pca
from course_lib.sae.autoencoder import Autoencoder, check_rows
from course_lib.sae.batches import RowSource

DENSE_SHARE = 0.1  # a feature that is active in more of the rows than this counts as dense


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


def fvu(x: Float[Tensor, "rows d_model"], x_hat: Float[Tensor, "rows d_model"]) -> float:
    """Fraction of variance unexplained: 1 - explained variance."""
    return 1 - explained_variance(x, x_hat)


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
    More components than rows or dimensions count as the smaller of the two. Raises ValueError for k below 1.
    """
    found = pca(fitted_on, min(k, *fitted_on.shape))
    other = applied_to.double()
    return explained_variance(other, found.reconstruct(found.project(other)))


class PrincipalVariance:
    """The curve and bound of PCA, gathered over chunks of rows: `pca_curve` in memory d_model^2.

    The scatter matrix S = sum_n (x_n - mean)(x_n - mean)^T is gathered by `RunningMoments`; its eigenvalues are the
    squared singular values of the centred rows.
    """

    def __init__(self) -> None:
        self._moments = RunningMoments()

    @property
    def n_rows(self) -> int:
        """Number of rows taken in so far."""
        return self._moments.n_rows

    def update(self, x: Float[Tensor, "rows d_model"]) -> None:
        """Take in a chunk of rows."""
        self._moments.update(x)

    def curve(self) -> Float[Tensor, " components"]:
        """Explained variance with 1, 2, ..., d_model components. Raises ValueError without variance."""
        scatter = self._moments.scatter() if self.n_rows else None
        if scatter is None or not scatter.diagonal().sum() > 0:
            raise ValueError(f"{self.n_rows} rows have no variance; expected at least 2 different rows")
        variances = torch.linalg.eigvalsh(scatter).flip(0).clamp(min=0)
        return variances.cumsum(dim=0) / variances.sum()

    def bound(self, k: int) -> float:
        """Largest explained variance that a k-unit code with an affine decoder can have on these rows."""
        if k < 1:
            raise ValueError(f"k is {k}; expected at least 1")
        curve = self.curve()
        return curve[min(k, len(curve)) - 1].item()


def l0(features: Float[Tensor, "rows features"]) -> float:
    """Mean number of active features (f > 0) in a row. Raises ValueError where there is no row."""
    check_rows(features)
    return (features > 0).sum(dim=1).double().mean().item()


def firing_rates(features: Float[Tensor, "rows features"]) -> Float[Tensor, " features"]:
    """Share of the rows in which each feature is active (f > 0). Raises ValueError where there is no row."""
    check_rows(features)
    return (features > 0).double().mean(dim=0)


class UnitActivity:
    """L0, firing rates, dead and dense units, gathered over chunks of rows in their order.

    A unit is active where it exceeds `active_above`: 0 for ReLU, TopK and JumpReLU features. A sigmoid unit
    is always above 0, so that a threshold must be chosen for it.
    """

    def __init__(self, *, active_above: float | int = 0.0) -> None:
        self.n_rows = 0
        self._active_above = active_above
        self._count: Tensor | None = None
        self._last: Tensor | None = None  # the number of the last row in which a unit was active, from 1

    def update(self, features: Float[Tensor, "rows features"]) -> None:
        """Take in the next chunk of rows."""
        if not len(features):
            return
        active = features > self._active_above
        if self._count is None:
            self._count = torch.zeros(features.shape[1], dtype=torch.long, device=features.device)
            self._last = torch.zeros_like(self._count)
        self._count += active.sum(dim=0)
        # Of equal maxima argmax gives the first, in the reversed order the last.
        latest = len(features) - active.flip(0).to(torch.uint8).argmax(dim=0)
        self._last = torch.where(active.any(dim=0), self.n_rows + latest, self._last)
        self.n_rows += len(features)

    def l0(self) -> float:
        """Mean number of active units in a row."""
        return self.firing_rates().sum().item()

    def firing_rates(self) -> Float[Tensor, " features"]:
        """Share of the rows in which each unit is active. Raises ValueError before the first row."""
        if self._count is None:
            raise ValueError("no rows were taken in; call update first")
        return self._count.double() / self.n_rows

    def dead(self, *, window: int | None = None) -> Bool[Tensor, " features"]:
        """Units that are active in none of the last `window` rows (all rows by default).

        Raises ValueError for a window that is not 1 to the number of rows taken in.
        """
        window = self.n_rows if window is None else window
        if not 1 <= window <= self.n_rows:
            raise ValueError(f"window is {window}; expected 1 to the {self.n_rows} rows taken in")
        return self._last <= self.n_rows - window

    def dense(self, *, share: float | int = DENSE_SHARE) -> Bool[Tensor, " features"]:
        """Units that are active in more than `share` of the rows."""
        return self.firing_rates() > share


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` measured. `pca_bound` is that of equal width, None where the code is no bottleneck.

    `n_dead` units were active in none of the last `window` rows, `n_dense` in more than `DENSE_SHARE` of all. `mse` is
    the mean over rows and dimensions of (x - x')^2, `cosine` the mean over rows of the cosine between x and x', both
    of the states as they are, without centring.
    """

    n_rows: int
    explained_variance: float
    fvu: float
    pca_bound: float | None
    l0: float
    code_width: int
    n_dead: int
    window: int
    n_dense: int
    mse: float
    cosine: float


@torch.no_grad()
def evaluate(
    autoencoder: Autoencoder,
    activations: RowSource,
    *,
    batch_size: int = 4096,
    window: int | None = None,
    active_above: float | int = 0.0,
) -> Evaluation:
    """Reconstruction and sparsity of an autoencoder on all rows of a table or store, in one pass.

    Rows are read `batch_size` at a time and go to the autoencoder's device and dtype; memory does not
    depend on how many there are. See `UnitActivity` for `window` and `active_above`.

    Raises ValueError for rows without variance, for rows that are not finite, and for a window longer than
    the table.
    """
    explained, activity, principal = ExplainedVariance(), UnitActivity(active_above=active_above), None
    squares = cosines = 0.0
    if autoencoder.code_width < autoencoder.d_model:
        principal = PrincipalVariance()
    for batch in _batches(activations, batch_size):
        x = batch.to(autoencoder.input_mean)
        if not x.isfinite().all():
            raise ValueError("activations hold NaN or infinite values; expected finite hidden states")
        code = autoencoder.encode(x)
        x_hat = autoencoder.decode(code)
        explained.update(x, x_hat)
        activity.update(code)
        squares += (x - x_hat).double().square().sum().item()
        cosines += torch.cosine_similarity(x, x_hat, dim=1).double().sum().item()
        if principal is not None:
            principal.update(x)
    value = explained.value()
    return Evaluation(
        n_rows=activity.n_rows,
        explained_variance=value,
        fvu=1 - value,
        pca_bound=None if principal is None else principal.bound(autoencoder.code_width),
        l0=activity.l0(),
        code_width=autoencoder.code_width,
        n_dead=int(activity.dead(window=window).sum()),
        window=activity.n_rows if window is None else window,
        n_dense=int(activity.dense().sum()),
        mse=squares / (activity.n_rows * autoencoder.d_model),
        cosine=cosines / activity.n_rows,
    )


def _batches(activations: RowSource, size: int) -> Iterator[Tensor]:
    for start in range(0, len(activations), size):
        yield activations[start : start + size]
