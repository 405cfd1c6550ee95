"""Stochastic gradient descent on least squares: when a fixed step converges, and how fast (lesson 03).

The loss is L(w) = ||y - X w||^2 with rows x_1, ..., x_n. A step draws b rows I_1, ..., I_b uniformly, with
replacement, and moves to

    w_{t+1} = w_t + (c eta / b) sum_k x_{I_k} (y_{I_k} - x_{I_k}^T w_t).

`gain` is c: 1 where the gradient of 1/2 (y_i - x_i^T w)^2 is followed, 2 where that of (y_i - x_i^T w)^2 is.
Only the product c eta moves the weights; every constant below carries its c, so that the two conventions
cannot be mixed. sigma_min is the smallest singular value of X that is not zero, sigma_max the largest one,
rho the largest norm of a row.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


def _singular_values(matrix: Tensor) -> tuple[Tensor, int]:
    """Return the singular values and how many of them are above rounding."""
    values = torch.linalg.svdvals(matrix)
    tolerance = max(matrix.shape) * torch.finfo(matrix.dtype).eps * values[0]
    return values, int((values > tolerance).sum())


def _check_wide(matrix: Tensor) -> None:
    rows, columns = matrix.shape
    _, rank = _singular_values(matrix)
    if rank < rows:
        raise ValueError(
            f"matrix must have independent rows, got rank {rank} for shape ({rows}, {columns}): "
            "X w = y then has no solution for some y"
        )


def minimum_norm_solution(
    matrix: Float[Tensor, "rows columns"], target: Float[Tensor, " rows"]
) -> Float[Tensor, " columns"]:
    """w* = X^T (X X^T)^{-1} y: of all solutions of X w = y the one with the smallest norm (03.4).

    X X^T is invertible because the rows are independent, and X w* = y at once. Any other solution differs
    from w* by a vector orthogonal to all rows, thus to w*, and is longer by Pythagoras.

    Raises:
        ValueError: the rows are dependent (always so where rows > columns).
    """
    _check_wide(matrix)
    return matrix.T @ torch.linalg.solve(matrix @ matrix.T, target)


def reduced_problem(
    matrix: Float[Tensor, "rows columns"], target: Float[Tensor, " rows"]
) -> tuple[Float[Tensor, "rows rows"], Float[Tensor, " rows"], Float[Tensor, "columns columns"]]:
    """Return X~ = U Sigma_1, w~_0 = -Sigma_1^{-1} U^T y and V, from X = U [Sigma_1, 0] V^T (03.9).

    In the coordinates V^T (w - w*) the last columns - rows entries never move when w_0 = 0, and the first
    ones follow SGD on the square system X~ w~ = 0 from w~_0. The rows of X~ have the norms of those of X.

    Raises:
        ValueError: the rows are dependent.
    """
    _check_wide(matrix)
    rows = matrix.shape[0]
    left, values, right = torch.linalg.svd(matrix, full_matrices=True)
    return left * values[:rows], -(left.T @ target) / values[:rows], right.T


def draw_indices(
    rows: int, *, runs: int = 1, steps: int, batch: int = 1, generator: torch.Generator
) -> Int[Tensor, "runs steps batch"]:
    """Return the rows that each step of each run looks at: uniform, independent, with replacement.

    Raises:
        ValueError: `rows`, `runs` or `batch` is below 1, or `steps` is negative.
    """
    if min(rows, runs, batch) < 1 or steps < 0:
        raise ValueError(
            f"rows, runs and batch must be 1 or more and steps 0 or more, "
            f"got {rows}, {runs}, {batch} and {steps}"
        )
    return torch.randint(rows, (runs, steps, batch), generator=generator, device=generator.device)


def stochastic_gradient_descent(
    matrix: Float[Tensor, "rows columns"],
    target: Float[Tensor, " rows"],
    start: Float[Tensor, " columns"],
    indices: Int[Tensor, "runs steps batch"],
    *,
    step_size: float | Float[Tensor, " steps"],
    gain: float = 1.0,
) -> Float[Tensor, "runs steps_and_start columns"]:
    """Run w_{t+1} = w_t + (c eta / b) sum_k x_{I_k} (y_{I_k} - x_{I_k}^T w_t) as written (03.1).

    The rows that are looked at come from outside (`draw_indices`), so that a run can be repeated, and
    compared with another step size or another library on the same rows.
    Shapes: all runs begin at `start`, which is the first of the steps + 1 iterates of each.
    Units: `step_size` is eta, one number or one a step.

    Raises:
        ValueError: an index is not a row of the matrix. (On a GPU it is torch's indexing that refuses it.)
    """
    # Elsewhere than on a CPU a look at the indices would wait for the device.
    if (
        indices.device.type == "cpu"
        and indices.numel()
        and not 0 <= int(indices.min()) <= int(indices.max()) < len(target)
    ):
        raise ValueError(
            f"indices must lie in [0, {len(target) - 1}], got {int(indices.min())} to {int(indices.max())}"
        )
    runs, steps, _ = indices.shape
    scale = gain * torch.as_tensor(step_size, dtype=matrix.dtype, device=matrix.device).expand(steps)
    weights = start.expand(runs, -1)
    iterates = [weights]
    for t in range(steps):
        seen = matrix[indices[:, t]]
        residual = target[indices[:, t]] - torch.einsum("rbd,rd->rb", seen, weights)
        weights = weights + scale[t] * torch.einsum("rb,rbd->rd", residual, seen) / indices.shape[2]
        iterates.append(weights)
    return torch.stack(iterates, dim=1)


def noisy_equations(
    rows: int, columns: int, *, noise: float | int, seed: int
) -> tuple[Float[Tensor, "rows columns"], Float[Tensor, " rows"]]:
    """Return random rows of length 1, and the labels of a linear teacher with noise of a given standard deviation.

    The teacher's weights and the noise are standard normal; matrix, teacher and noise follow from `seed`.
    Shapes: (rows, columns) and (rows,), in float64.

    Raises:
        ValueError: `rows` or `columns` is below 1, or `noise` is negative.
    """
    if min(rows, columns) < 1 or noise < 0:
        raise ValueError(
            f"rows and columns must be 1 or more and noise 0 or more, got {rows}, {columns}, {noise}"
        )
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    matrix = matrix / matrix.norm(dim=1, keepdim=True)
    teacher = torch.randn(columns, generator=generator, dtype=torch.float64)
    return matrix, matrix @ teacher + noise * torch.randn(rows, generator=generator, dtype=torch.float64)


def excess_loss(
    matrix: Float[Tensor, "rows columns"],
    target: Float[Tensor, " rows"],
    weights: Float[Tensor, "*points columns"],
) -> Float[Tensor, "*points"]:
    """(L(w) - L(w^)) / n: by how much weights miss the least loss of any, on average over the equations.

    For a least-squares solution w^ the difference is ||X (w - w^)||^2, without the cancellation of two losses.
    """
    best = torch.linalg.pinv(matrix) @ target
    return ((weights - best) @ matrix.T).square().mean(-1)


def expected_losses(
    matrix: Float[Tensor, "rows columns"],
    target: Float[Tensor, " rows"],
    start: Float[Tensor, " columns"],
    *,
    step_size: float,
    steps: int,
    batch: int = 1,
    gain: float = 1.0,
) -> Float[Tensor, " steps_and_start"]:
    """Return E L(w_0), ..., E L(w_T) exactly, averaged over all choices of rows; no run is drawn.

    Let e = w - w^ be the distance from a least-squares solution w^ and r = y - X w^ what it leaves over; measured
    from there, small losses do not drown in rounding. A step is linear in z = (e, 1):
    z' = z - (c eta / b) sum_k p_{I_k} q_{I_k}^T z with p_i = (x_i, 0) and q_i = (x_i, -r_i), and
    L = sum_i (q_i^T z)^2. Hence S = E[z z^T] obeys a linear recursion. With
    K = (1/n) sum_i p_i q_i^T,

        S' = S - c eta (K S + S K^T)
             + (c eta)^2 [ 1/(b n) sum_i p_i (q_i^T S q_i) p_i^T + (1 - 1/b) K S K^T ]:

    of the b^2 pairs of draws in a batch, b are a draw with itself, and the others are independent.
    It needs no solution of X w = y: with label noise it shows the floor.

    Raises:
        ValueError: `steps` is negative or `batch` below 1.
    """
    if steps < 0 or batch < 1:
        raise ValueError(f"steps must be 0 or more and batch 1 or more, got {steps} and {batch}")
    rows, scale = len(target), gain * step_size
    p = torch.cat([matrix, torch.zeros_like(target)[:, None]], dim=1)
    solution = torch.linalg.pinv(matrix) @ target
    q = torch.cat([matrix, (matrix @ solution - target)[:, None]], dim=1)
    mean_step = p.T @ q / rows
    z = torch.cat([start - solution, start.new_ones(1)])
    second = torch.outer(z, z)
    losses = []
    for t in range(steps + 1):
        by_row = ((q @ second) * q).sum(1)
        losses.append(by_row.sum())
        if t < steps:
            drift = mean_step @ second
            kick = (p.T * by_row) @ p / (batch * rows) + (1 - 1 / batch) * drift @ mean_step.T
            second = second - scale * (drift + drift.T) + scale**2 * kick
            # Rounding leaves a skew part, which this recursion would amplify.
            second = (second + second.T) / 2
    return torch.stack(losses)


def expected_change(
    matrix: Float[Tensor, "rows columns"],
    error: Float[Tensor, " columns"],
    *,
    step_size: float,
    gain: float = 1.0,
) -> tuple[float, float]:
    """Return E[A] and E[B] of L(e + D) = L(e) + A + B for one step D = -c eta x_I x_I^T e (03.7).

    A = 2 e^T X^T X D and B = D^T X^T X D, averaged over the n rows one by one. `error` is e = w - w*, so the
    loss is ||X e||^2: there is a common solution.
    """
    steps = -gain * step_size * (matrix @ error)[:, None] * matrix
    images = steps @ matrix.T
    first = 2 * (images @ (matrix @ error)).mean()
    return float(first), float(images.square().sum(1).mean())


@dataclass(frozen=True)
class Constants:
    """What the bounds know of a matrix: n, sigma_min^2, sigma_max^2, and rho^2 of the batch.

    For one row a step rho^2 is the largest squared norm of a row. For batches it is
    rho_b^2 = rho^2 / b + (1 - 1/b) sigma_max^2 / n (03.8).
    """

    rows: int
    smallest: float
    largest: float
    rho: float

    @property
    def condition(self) -> float:
        """kappa = sigma_max^2 / sigma_min^2."""
        return self.largest / self.smallest


def constants(matrix: Float[Tensor, "rows columns"], *, batch: int = 1) -> Constants:
    """Measure n, sigma_min^2, sigma_max^2 and rho_b^2.

    Raises:
        ValueError: all entries are zero, or `batch` is below 1.
    """
    if batch < 1:
        raise ValueError(f"batch must be 1 or more, got {batch}")
    values, rank = _singular_values(matrix)
    if rank == 0:
        raise ValueError("matrix must have an entry that is not zero, got only zeros: no step moves")
    rows, largest = len(matrix), float(values[0]) ** 2
    row = float(matrix.square().sum(1).max())
    rho = row / batch + (1 - 1 / batch) * largest / rows
    return Constants(rows=rows, smallest=float(values[rank - 1]) ** 2, largest=largest, rho=rho)


def loss_constants(
    matrix: Float[Tensor, "rows columns"], *, batch: int = 1, gain: float = 1.0
) -> tuple[float, float]:
    """C_1 = 2 c sigma_min^2 / n and C_2 = c^2 sigma_max^2 rho_b^2 / n (03.7, 03.8)."""
    known = constants(matrix, batch=batch)
    linear = 2 * gain * known.smallest / known.rows
    return linear, gain**2 * known.largest * known.rho / known.rows


def loss_factor(
    matrix: Float[Tensor, "rows columns"], *, step_size: float, batch: int = 1, gain: float = 1.0
) -> float:
    """1 - C_1 eta + C_2 eta^2: E[L(w_{t+1}) | w_t] is at most this times L(w_t) (03.7).

    Needs a common solution of all equations; below 1 exactly for 0 < eta < C_1 / C_2.
    """
    linear, quadratic = loss_constants(matrix, batch=batch, gain=gain)
    return 1 - linear * step_size + quadratic * step_size**2


def loss_bound_step(matrix: Float[Tensor, "rows columns"], *, batch: int = 1, gain: float = 1.0) -> float:
    """eta* = C_1 / (2 C_2): the step for which the bound on the loss is smallest, not the loss itself (03.7)."""
    linear, quadratic = loss_constants(matrix, batch=batch, gain=gain)
    return linear / (2 * quadratic)


def distance_factor(
    matrix: Float[Tensor, "rows columns"], *, step_size: float, batch: int = 1, gain: float = 1.0
) -> float:
    """1 - (2 c eta - c^2 eta^2 rho_b^2) sigma_min^2 / n: the bound for E||w_{t+1} - w*||^2 (03.3).

    Needs a common solution, and 0 <= c eta <= 2 / rho_b^2: beyond that the bracket is negative, and the
    weights can grow along sigma_max rather than sigma_min; the factor is then taken with sigma_max^2.
    """
    known = constants(matrix, batch=batch)
    bracket = 2 * gain * step_size - (gain * step_size) ** 2 * known.rho
    return 1 - bracket * (known.smallest if bracket >= 0 else known.largest) / known.rows


def distance_bound_step(matrix: Float[Tensor, "rows columns"], *, batch: int = 1, gain: float = 1.0) -> float:
    """1 / (c rho_b^2): the step for which the bound on the distance is smallest (03.3, 03.8)."""
    return 1 / (gain * constants(matrix, batch=batch).rho)


def exact_rate(
    matrix: Float[Tensor, "rows columns"], *, step_size: float, batch: int = 1, gain: float = 1.0
) -> float:
    """Return the factor a step by which E||w_t - w*||^2 and E L shrink in the long run, with no bound between.

    M -> E[(I - c eta H) M (I - c eta H)], with H the batch's mean of x_i x_i^T, is a symmetric linear map on
    symmetric matrices; the rate is its largest eigenvalue in absolute value, on the span of the rows.
    Shapes: the map is a matrix with rank^2 rows, so this is for small problems.

    Raises:
        ValueError: all entries of `matrix` are zero, or `batch` is below 1.
    """
    constants(matrix, batch=batch)
    _, rank = _singular_values(matrix)
    rows, scale = len(matrix), gain * step_size
    seen = matrix @ torch.linalg.svd(matrix, full_matrices=False).Vh[:rank].T
    eye, mean = torch.eye(rank, dtype=matrix.dtype, device=matrix.device), seen.T @ seen / rows
    pairs = torch.einsum("ni,nj->nij", seen, seen).reshape(rows, rank**2)
    kick = pairs.T @ pairs / (batch * rows) + (1 - 1 / batch) * torch.kron(mean, mean)
    step = torch.kron(eye, eye) - scale * (torch.kron(mean, eye) + torch.kron(eye, mean))
    return float(torch.linalg.eigvalsh(step + scale**2 * kick).abs().max())


def stationary_variance(
    labels: Float[Tensor, " rows"], *, step_size: float, batch: int = 1, gain: float = 1.0
) -> float:
    """c eta / (2 - c eta) Var(y) / b: the variance that SGD on w = y_1, ..., w = y_n keeps for ever (03.5).

    Var(y) divides by n: the labels are the whole population that is drawn from.

    Raises:
        ValueError: c eta is outside (0, 2), where the iterates do not settle, or `batch` is below 1.
    """
    scale = gain * step_size
    if not 0 < scale < 2:
        raise ValueError(f"gain * step_size must lie in (0, 2), got {scale:g}: the iterates do not settle")
    if batch < 1:
        raise ValueError(f"batch must be 1 or more, got {batch}")
    return scale / (2 - scale) * float(labels.var(correction=0)) / batch
