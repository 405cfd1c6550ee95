"""Principal components of any number of rows, and the linear autoencoder that finds the same subspace (lesson 23).

Two conventions meet here. Data come as everywhere in the library: one example a *row*, (rows, d_model). The theory of the
autoencoder needs the examples only through their second-moment matrix S, (d_model, d_model): the sum or mean of x x^T.
An encoder W1 is (units, d_model), a decoder W2 is (d_model, units), and an example x is returned as W2 W1 x.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import scipy.linalg
import torch
from jaxtyping import Float
from torch import Tensor

from course_lib.checks import check_source, checked, named

CHUNK_ROWS = 4096
_BLOCK = 512  # columns of the Gram matrix that are computed together


@runtime_checkable
class Rows(Protocol):
    """A table that can be read by slices of rows: a tensor, an activation store, or alike."""

    def __len__(self) -> int:
        """Number of rows."""

    def __getitem__(self, rows: slice) -> Tensor:
        """The rows of a slice, as a tensor (rows, d_model)."""


def _check_count(name: str, value: int, most: int, of: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ValueError(f"{name} must be a whole number from 1 to {most} ({of}), got {value!r}")


def check_table(name: str, x: Tensor, d_model: int | None = None) -> None:
    """Check shape and dtype alone, which reads no value."""
    if x.ndim != 2 or (d_model is not None and x.shape[1] != d_model):
        wanted = "d_model" if d_model is None else d_model
        raise ValueError(f"{name} must have shape (rows, {wanted}), got {tuple(x.shape)}")
    if not x.is_floating_point():
        raise ValueError(f"{name} must hold floating-point numbers, got {x.dtype}")


# Principal components


@dataclass(frozen=True)
class PCA:
    """Mean, directions and variances of a table of rows, in float64.

    Shapes: `mean` (d_model,), `components` (k, d_model) with orthonormal rows, `variances` (k,) in decreasing order.
    Units: `variances` and `total_variance` are mean squares (divided by n, not n - 1), in the squared units of the rows.
    The sign of a component is fixed: its largest entry in size is positive.
    """

    mean: Float[Tensor, " d_model"]
    components: Float[Tensor, "k d_model"]
    variances: Float[Tensor, " k"]
    total_variance: Float[Tensor, ""]
    n_rows: int

    def project(self, x: Float[Tensor, "rows d_model"]) -> Float[Tensor, "rows k"]:
        """The code z = C (x - mean), in the dtype of x."""
        check_table("x", x, len(self.mean))
        return (x - self.mean.to(x)) @ self.components.to(x).T

    def reconstruct(self, code: Float[Tensor, "rows k"]) -> Float[Tensor, "rows d_model"]:
        """The rows that a code stands for, mean + C^T z, in the dtype of the code."""
        check_table("code", code, len(self.components))
        return code @ self.components.to(code) + self.mean.to(code)

    def kept(self) -> Float[Tensor, " k"]:
        """Share of the variance of the fitted rows that 1, 2, ..., k components keep."""
        return self.variances.cumsum(dim=0) / self.total_variance


def _with_signs(components: Tensor) -> Tensor:
    """Turn each row so that its largest entry in size is positive: an eigenvector is known up to its sign."""
    largest = components.gather(1, components.abs().argmax(dim=1, keepdim=True))
    return components * torch.where(largest < 0, -1.0, 1.0)


def pca_by_svd(x: Float[Tensor, "rows d_model"], k: int) -> PCA:
    """Principal components as in (23.12), to be read: the SVD of the centred rows, X - 1 mean^T = Q diag(sigma) U^T.

    The components are the first k columns of U, their variances sigma_i^2 / n.

    Raises:
        ValueError: `x` is no table of floating-point numbers, or `k` is not from 1 to min(rows, d_model).
    """
    check_table("x", x)
    _check_count("k", k, min(x.shape), f"the smaller side of x, {tuple(x.shape)}")
    mean = x.double().mean(dim=0)
    _, sigma, v_t = torch.linalg.svd(x.double() - mean, full_matrices=False)
    variances = sigma.square() / len(x)
    return PCA(mean, _with_signs(v_t[:k]), variances[:k], variances.sum(), len(x))


def gram(
    rows: Float[Tensor, "rows d_model"], *, block: int | None = None
) -> Float[Tensor, "d_model d_model"]:
    """X^T X with the symmetry used: block rows right of the diagonal are multiplied, the rest is copied."""
    d, block = rows.shape[1], block or _BLOCK
    product = rows.new_empty(d, d)
    for i in range(0, d, block):
        product[i : i + block, i:] = rows[:, i : i + block].T @ rows[:, i:]
        product[i + block :, i : i + block] = product[i : i + block, i + block :].T
    return product


class RunningMoments:
    """Mean and scatter matrix of rows that come in chunks, in float64 and in memory d_model^2 (23.13).

    Each chunk is centred by its own mean, and chunks are merged by the parallel form of Welford's update: hidden states
    have dimensions whose mean is far larger than their spread, where E[x x^T] - mean mean^T loses all digits. How rows
    are cut into chunks changes rounding only. Source: Chan, Golub and LeVeque (1983).
    """

    def __init__(self, *, products: torch.dtype = torch.float64) -> None:
        """`products` is the dtype in which the products of a chunk's centred rows are taken; sums over chunks are float64.

        float32 takes about half the time and keeps its digits of the *largest* variance: variances of a ten-millionth of
        it are rounding.

        Raises:
            ValueError: `products` is neither torch.float64 nor torch.float32.
        """
        if products not in (torch.float64, torch.float32):
            raise ValueError(f"products must be torch.float64 or torch.float32, got {products}")
        self.products = products
        self.n_rows = 0
        self._mean: Tensor | None = None
        self._scatter: Tensor | None = None

    def update(self, rows: Float[Tensor, "rows d_model"]) -> None:
        """Take in a chunk of rows; one without rows changes nothing.

        Raises:
            ValueError: `rows` is no table of floating-point numbers, or has another width than the chunks before.
        """
        check_table("rows", rows, None if self._mean is None else len(self._mean))
        if not len(rows):
            return
        centred = rows.to(torch.float64, copy=True)
        mean = centred.mean(dim=0)
        self.merge(mean, gram(centred.sub_(mean).to(self.products)).double(), len(rows))

    def merge(
        self, mean: Float[Tensor, " d_model"], scatter: Float[Tensor, "d_model d_model"], n_rows: int
    ) -> None:
        """Take in rows by their own mean, their scatter matrix around it, and their number (23.13), in float64."""
        if self._mean is None or self._scatter is None:
            self._mean, self._scatter, self.n_rows = mean, scatter, n_rows
            return
        total, gap = self.n_rows + n_rows, mean - self._mean
        self._scatter += scatter + torch.outer(gap, gap) * (self.n_rows * n_rows / total)
        self._mean = self._mean + gap * (n_rows / total)
        self.n_rows = total

    def mean(self) -> Float[Tensor, " d_model"]:
        """The mean of all rows so far. Raises ValueError before the first row."""
        self.scatter()
        return self._mean

    def scatter(self) -> Float[Tensor, "d_model d_model"]:
        """The sum of (x - mean)(x - mean)^T over all rows so far. Raises ValueError before the first row."""
        if self._scatter is None:
            raise ValueError("no rows were taken in; call update first")
        return self._scatter

    def pca(self, k: int) -> PCA:
        """The k leading components of all rows so far.

        Raises:
            ValueError: `k` is not from 1 to d_model, there are no rows, or a row was not finite.
        """
        scatter = self.scatter()
        _check_count("k", k, len(scatter), "d_model")
        if not scatter.isfinite().all():
            raise ValueError(
                "rows must hold finite numbers, got NaN or infinity in one of those that were taken in"
            )
        values, vectors = _leading(scatter / self.n_rows, k)
        variances, components = values.flip(0).clamp(min=0), vectors.T.flip(0)
        return PCA(self._mean, _with_signs(components), variances, scatter.trace() / self.n_rows, self.n_rows)


def _leading(symmetric: Float[Tensor, "n n"], k: int) -> tuple[Float[Tensor, " k"], Float[Tensor, "n k"]]:
    """The k largest eigenvalues, rising, and their eigenvectors as columns."""
    n = len(symmetric)
    # LAPACK finds the vectors of a part, which torch does not offer.
    if symmetric.device.type == "cpu" and not symmetric.requires_grad and k <= n // 4:
        values, vectors = scipy.linalg.eigh(symmetric.numpy(), subset_by_index=(n - k, n - 1))
        return torch.from_numpy(values), torch.from_numpy(vectors)
    values, vectors = torch.linalg.eigh(symmetric)
    return values[-k:], vectors[:, -k:]


@named
def pca(rows: Rows, k: int, *, chunk_rows: int = CHUNK_ROWS, products: torch.dtype = torch.float64) -> PCA:
    """The k leading principal components, exact, in one pass and constant memory (23.13).

    Equal to `pca_by_svd` up to rounding, for a tensor of any floating dtype or an activation store on disk. Variances
    below 1e-16 of the largest are rounding: the Gram matrix squares the singular values. With `products` torch.float32,
    which takes about 0.7 of the time, those below 1e-7 of the largest are.

    Raises:
        ValueError: there are no rows, they are no table of finite floating-point numbers, or `k` is not from 1 to
            d_model, or `chunk_rows` is not at least 1, or `products` is another dtype than those two.
    """
    check_source("rows", rows)
    _check_count("chunk_rows", chunk_rows, 2**31, "a chunk must hold a row")
    if len(rows) == 0:
        raise ValueError("rows must hold at least one row, got none")
    moments = RunningMoments(products=products)
    for start in range(0, len(rows), chunk_rows):
        moments.update(rows[start : start + chunk_rows])
    return moments.pca(k)


# The linear autoencoder


# Shapes that have to agree carry other names in the annotations where `_check_maps` says which of them does not.


def _check_maps(encoder: Tensor, decoder: Tensor, second_moment: Tensor) -> None:
    d = second_moment.shape[0]
    if second_moment.ndim != 2 or second_moment.shape[1] != d:
        raise ValueError(
            f"second_moment must be a square matrix (d_model, d_model), got {tuple(second_moment.shape)}"
        )
    if encoder.ndim != 2 or encoder.shape[1] != d:
        raise ValueError(f"encoder must have shape (units, {d}), got {tuple(encoder.shape)}")
    if tuple(decoder.shape) != (d, encoder.shape[0]):
        raise ValueError(
            f"decoder must have shape ({d}, {encoder.shape[0]}), the transposed one of encoder, got {tuple(decoder.shape)}"
        )


def _penalties(penalty: Tensor | float | int, units: int, like: Tensor) -> Tensor:
    """One penalty for each unit, on the device and in the dtype of the weights; values of numbers only are checked."""
    if isinstance(penalty, Tensor):
        if penalty.ndim and tuple(penalty.shape) != (units,):
            raise ValueError(
                f"penalty must be a number or one number for each of the {units} units, got shape {tuple(penalty.shape)}"
            )
        return penalty.to(like).expand(units)
    if not 0 <= penalty < float("inf"):
        raise ValueError(f"penalty must be a finite number of at least 0, got {penalty}")
    return torch.full((units,), float(penalty), dtype=like.dtype, device=like.device)


@checked
def reconstruction_loss(
    encoder: Float[Tensor, "units d_model"],
    decoder: Float[Tensor, "d_model units"],
    x: Float[Tensor, "rows d_model"],
) -> Float[Tensor, ""]:
    """sum_n ||x_n - W2 W1 x_n||^2, the number of rows times (23.1), to be read: row by row."""
    check_table("x", x, encoder.shape[1])
    return (x - x @ encoder.T @ decoder.T).square().sum()


def linear_loss(
    encoder: Float[Tensor, "units d_model"],
    decoder: Float[Tensor, "as_wide as_many"],
    second_moment: Float[Tensor, "side as_long"],
    penalty: Tensor | float | int = 0.0,
) -> Float[Tensor, ""]:
    """tr((I - W2 W1) S (I - W2 W1)^T) + sum_i lambda_i (||row i of W1||^2 + ||column i of W2||^2) (23.1, 23.7).

    With S the sum of x x^T it is `reconstruction_loss`, with the mean it is that over n; its cost does not depend on n.
    `penalty` is one number of at least 0, or one for each unit.

    Raises:
        ValueError: shapes do not fit, or a penalty given as a number is negative or not finite.
    """
    _check_maps(encoder, decoder, second_moment)
    each = _penalties(penalty, len(encoder), encoder)
    rest = torch.eye(len(second_moment), dtype=encoder.dtype, device=encoder.device) - decoder @ encoder
    sizes = encoder.square().sum(dim=1) + decoder.square().sum(dim=0)
    return ((rest @ second_moment) * rest).sum() + each @ sizes


def linear_gradients(
    encoder: Float[Tensor, "units d_model"],
    decoder: Float[Tensor, "as_wide as_many"],
    second_moment: Float[Tensor, "side as_long"],
    penalty: Tensor | float | int = 0.0,
) -> tuple[Float[Tensor, "units d_model"], Float[Tensor, "d_model units"]]:
    """Gradients of `linear_loss` with respect to encoder and decoder (23.2), by hand.

    dW1 = 2 W2^T (W2 W1 - I) S + 2 diag(lambda) W1, dW2 = 2 (W2 W1 - I) S W1^T + 2 W2 diag(lambda).
    S is symmetric. W2 W1 S is multiplied from the right end, which takes 4 d^2 units and no d x d x d product.

    Raises:
        ValueError: as `linear_loss`.
    """
    _check_maps(encoder, decoder, second_moment)
    each = _penalties(penalty, len(encoder), encoder)
    read = encoder @ second_moment  # W1 S
    d_encoder = 2 * ((decoder.T @ decoder) @ read - decoder.T @ second_moment + each[:, None] * encoder)
    d_decoder = 2 * (decoder @ (read @ encoder.T) - read.T + decoder * each)
    return d_encoder, d_decoder


def shrinkage(
    values: Float[Tensor, " directions"], penalty: Tensor | float | int
) -> Float[Tensor, " directions"]:
    """The factor p = (1 - lambda / s)_+ by which the best penalised autoencoder multiplies a direction (23.8).

    `values` are the eigenvalues s of the second moment, at least 0; a direction without variance has the factor 0.

    Raises:
        ValueError: `penalty` is a negative or non-finite number, or a tensor of another shape than `values`.
    """
    each = _penalties(penalty, len(values), values)
    safe = torch.where(values > 0, values, 1)
    return torch.where(values > 0, (1 - each / safe).clamp(min=0), 0)


def _descending_axes(second_moment: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(second_moment)
    return values.flip(0).clamp(min=0), _with_signs(vectors.T.flip(0)).T


def critical_point(
    second_moment: Float[Tensor, "d_model d_model"],
    subset: Sequence[int],
    units: int,
    penalty: Tensor | float | int = 0.0,
) -> tuple[Float[Tensor, "units d_model"], Float[Tensor, "d_model units"]]:
    """Weights with zero gradient: unit i on the eigenvector number subset[i], spare units at 0 (23.3, 23.8).

    W1 = diag(sqrt(p)) U_S^T and W2 = W1^T with p of `shrinkage`. Eigenvectors count from 0 in decreasing order of their
    eigenvalues. Only the leading subset, 0, 1, ..., is a minimum (where the penalties do not fall from unit to unit).

    Raises:
        ValueError: `subset` repeats or names an eigenvector that is not there, or has more entries than units.
    """
    d = len(second_moment)
    chosen = [int(i) for i in subset]
    if len(set(chosen)) != len(chosen) or any(not 0 <= i < d for i in chosen):
        raise ValueError(f"subset must hold different numbers from 0 to {d - 1}, got {chosen}")
    _check_count("units", units, d, "d_model")
    if len(chosen) > units:
        raise ValueError(f"subset must have at most {units} entries, one for each unit, got {len(chosen)}")
    values, axes = _descending_axes(second_moment)
    each = _penalties(penalty, units, second_moment)[: len(chosen)]
    encoder = second_moment.new_zeros(units, d)
    encoder[: len(chosen)] = shrinkage(values[chosen], each).sqrt()[:, None] * axes.T[chosen]
    return encoder, encoder.T.clone()


def falling_rates(
    values: Float[Tensor, " directions"], subset: Sequence[int], units: int, penalty: float | int = 0.0
) -> Float[Tensor, " falling"]:
    """Rates at which gradient flow leaves a critical point, largest first; empty at a minimum (23.10, 23.11).

    With D = diag(s), the second-order change of the loss splits into pairs of a unit on axis i and an axis j that is
    not taken: by the matrix [[s_j p_i + lambda, -s_j], [-s_j, s_i p_i + lambda]], p = (1 - lambda / s)_+. It has a
    negative eigenvalue mu exactly if s_j > s_i (for a spare unit, or one with s_i <= lambda: if s_j > lambda). A small
    deviation along it grows like e^(rate t) with the rate -2 mu; in gradient descent by 1 + step_size * rate a step.

    Raises:
        ValueError: `subset` or `penalty` is not as `critical_point` takes it.
    """
    chosen = [int(i) for i in subset]
    if len(set(chosen)) != len(chosen) or any(not 0 <= i < len(values) for i in chosen):
        raise ValueError(f"subset must hold different numbers from 0 to {len(values) - 1}, got {chosen}")
    if len(chosen) > units:
        raise ValueError(f"subset must have at most {units} entries, one for each unit, got {len(chosen)}")
    factors = shrinkage(values, penalty)
    alive = [i for i in chosen if factors[i] > 0]
    free = torch.tensor([j for j in range(len(values)) if j not in alive], dtype=torch.long)
    s_j, found = values[free], []
    for i in [*alive, *[None] * (units - len(alive))]:
        s_i, p = (values[i], factors[i]) if i is not None else (0 * penalty, 0.0)
        a, b = s_j * p + penalty, s_i * p + penalty
        found.append((a + b) / 2 - (((a - b) / 2).square() + s_j.square()).sqrt())
    rates = -2 * torch.cat(found)
    return rates[rates > 1e-12 * values.max()].sort(descending=True).values
