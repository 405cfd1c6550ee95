"""Ridge regression from three sides: noise on the features, a penalty on the weights, a normal prior (lesson 04).

Steps with fresh noise belong to lesson 05.

The ridge solution minimises ||X w - y||^2 + lambda ||w||^2 for a matrix X with m rows (samples) and d columns.
The same vector minimises the expected loss under input noise of variance lambda / m, and it is the mean of
w given y when w ~ N(0, I) and y = X w + sqrt(lambda) N(0, I).

Stochastic gradient descent with fresh input noise is written for the loss 1/2 ((x + N) w - y)^2, whose
gradient carries no factor 2; sigma is the standard deviation of N, called `noise` in the signatures.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

# Ridge regression


def _check_penalty(penalty: float) -> None:
    if not (penalty > 0 and math.isfinite(penalty)):
        raise ValueError(f"penalty must be a finite number above 0, got {penalty}")


def _check_noise(noise: float) -> None:
    if not (noise >= 0 and math.isfinite(noise)):
        raise ValueError(
            f"noise must be a finite standard deviation, 0 or more, got {noise}: it enters as noise^2"
        )


def _smaller(rows: int, columns: int, system: str) -> str:
    """Resolve "auto" to the system with the fewer unknowns."""
    if system not in ("auto", "primal", "dual"):
        raise ValueError(f"system must be 'auto', 'primal' or 'dual', got {system!r}")
    if system == "auto":
        return "primal" if columns <= rows else "dual"
    return system


def _solve_shifted(gram: Tensor, right: Tensor, penalty: float) -> Tensor:
    """Solve (gram + penalty I) z = right by Cholesky: the matrix is symmetric and positive definite."""
    shifted = gram + penalty * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    try:
        factor = torch.linalg.cholesky(shifted)
    except torch.linalg.LinAlgError:
        raise RuntimeError(
            f"penalty {penalty:g} is too small for {gram.dtype}: the shifted Gram matrix is not positive "
            "definite after rounding; use a larger penalty, float64, or the other system"
        ) from None
    return torch.cholesky_solve(right[:, None], factor)[:, 0]


def ridge(
    matrix: Float[Tensor, "rows columns"],
    target: Float[Tensor, " rows"],
    penalty: float,
    *,
    system: Literal["auto", "primal", "dual"] = "auto",
) -> Float[Tensor, " columns"]:
    """Return (X^T X + lambda I)^-1 X^T y = X^T (X X^T + lambda I)^-1 y (04.2, 04.9).

    The two sides are equal for every lambda > 0. The left one ("primal") solves for d unknowns, the right one
    ("dual") for m; "auto" takes the smaller system, which is cheaper and never worse conditioned.
    Ranges: `penalty` is lambda > 0.

    Raises:
        ValueError: `penalty` is not a finite number above 0, or `system` is unknown.
        RuntimeError: `penalty` is so small that rounding makes the chosen system singular.
    """
    _check_penalty(penalty)
    if _smaller(*matrix.shape, system) == "primal":
        return _solve_shifted(matrix.T @ matrix, matrix.T @ target, penalty)
    return matrix.T @ _solve_shifted(matrix @ matrix.T, target, penalty)


def ridge_flops(rows: int, columns: int, *, system: Literal["auto", "primal", "dual"] = "auto") -> float:
    """Count the leading operations: 2 m d k for the Gram matrix and k^3 / 3 for its Cholesky factor.

    k is the number of unknowns: d in the primal, m in the dual system. An addition and a multiplication count
    as two. Terms of second order (triangular solves, products with a vector) are left out.

    Raises:
        ValueError: `system` is unknown.
    """
    unknowns = columns if _smaller(rows, columns, system) == "primal" else rows
    return 2 * rows * columns * unknowns + unknowns**3 / 3


def shrinkage(singular_values: Float[Tensor, " r"], penalty: float) -> Float[Tensor, " r"]:
    """s_i^2 / (s_i^2 + lambda): what ridge leaves of the least-squares solution along direction i (04.3).

    Raises:
        ValueError: `penalty` is not a finite number above 0.
    """
    _check_penalty(penalty)
    return singular_values.square() / (singular_values.square() + penalty)


def augmented_system(
    matrix: Float[Tensor, "rows columns"], target: Float[Tensor, " rows"], penalty: float
) -> tuple[Float[Tensor, "more_rows columns"], Float[Tensor, " more_rows"]]:
    """Return [X; sqrt(lambda) I] and [y; 0], whose plain least-squares solution is the ridge solution.

    No Gram matrix is formed, so the condition number is not squared.

    Raises:
        ValueError: `penalty` is not a finite number above 0.
    """
    _check_penalty(penalty)
    columns = matrix.shape[1]
    extra = math.sqrt(penalty) * torch.eye(columns, dtype=matrix.dtype, device=matrix.device)
    return torch.cat([matrix, extra]), torch.cat([target, target.new_zeros(columns)])


# Noise with exact moments


def noisy_copies(
    matrix: Float[Tensor, "rows columns"], *, noise: float
) -> Float[Tensor, "copies rows columns"]:
    """Return 2d copies of X whose added noise has, over the copies, exactly mean 0 and covariance sigma^2 I.

    Copy j adds sigma sqrt(d) to column j, copy d + j subtracts it. A loss that is quadratic in the noise has
    the same average over these copies as its expectation under N(0, sigma^2 I): nothing is left to chance.

    Raises:
        ValueError: `noise` is negative or not finite.
    """
    _check_noise(noise)
    columns = matrix.shape[1]
    shift = noise * math.sqrt(columns) * torch.eye(columns, dtype=matrix.dtype, device=matrix.device)
    return matrix + torch.cat([shift, -shift])[:, None, :]


def three_point_noise(
    steps: int, *, noise: float, dtype: torch.dtype = torch.float64
) -> tuple[Float[Tensor, "steps paths"], Float[Tensor, " paths"]]:
    """Return all 3^T paths of T independent draws of a three-sided coin, and their probabilities.

    The coin shows -sqrt(3) sigma, 0, sqrt(3) sigma with probabilities 1/6, 2/3, 1/6. Its moments of order 0 to 5
    are those of N(0, sigma^2) (Gauss-Hermite quadrature with three nodes), so that averages of anything of
    degree at most 5 in each draw are exactly the normal expectations.

    Raises:
        ValueError: `steps` is not between 1 and 12, or `noise` is negative or not finite.
    """
    _check_noise(noise)
    if not 1 <= steps <= 12:
        raise ValueError(f"steps must lie in [1, 12], got {steps}: there are 3^steps paths")
    sides = torch.tensor([-math.sqrt(3) * noise, 0.0, math.sqrt(3) * noise], dtype=dtype)
    chances = torch.tensor([1 / 6, 2 / 3, 1 / 6], dtype=dtype)
    shown = torch.cartesian_prod(*[torch.arange(3)] * steps).reshape(-1, steps)
    return sides[shown].T, chances[shown].prod(dim=1)


# The same weights from other codes, which know nothing of the penalty


def fit_noisy_rows(
    matrix: Float[Tensor, "rows columns"],
    target: Float[Tensor, " rows"],
    *,
    noise: float | int,
    copies: int,
    generator: torch.Generator,
) -> Float[Tensor, " columns"]:
    """Return plain least squares on many copies of X, each with fresh noise N(0, sigma^2) on every entry.

    For ever more copies it goes to the minimiser of (04.1), which is ridge with lambda = m sigma^2.

    Raises:
        ValueError: `noise` is negative or not finite, or `copies` is below 1.
    """
    _check_noise(noise)
    if copies < 1:
        raise ValueError(f"copies must be 1 or more, got {copies}")
    drawn = torch.randn(
        (copies, *matrix.shape), generator=generator, dtype=matrix.dtype, device=matrix.device
    )
    noisy_rows = (matrix + noise * drawn).reshape(-1, matrix.shape[1])
    return torch.linalg.lstsq(noisy_rows, target.repeat(copies)[:, None]).solution[:, 0]


def most_probable(
    matrix: Float[Tensor, "rows columns"],
    target: Float[Tensor, " rows"],
    *,
    noise_variance: float | int,
    prior_variance: float | int,
) -> Float[Tensor, " columns"]:
    """Return the top of the density of w given y, for w ~ N(0, p I) and y = X w + N(0, v I) (04.4).

    The density is that of `torch.distributions`, its slope and curvature come from autograd; the logarithm is
    quadratic, so that one step of Newton's method from 0 ends at the top.

    Raises:
        ValueError: a variance is not above 0 (from `torch.distributions`).
    """

    def log_density(w: Tensor) -> Tensor:
        prior = torch.distributions.Normal(0.0, math.sqrt(prior_variance))
        likelihood = torch.distributions.Normal(matrix @ w, math.sqrt(noise_variance))
        return prior.log_prob(w).sum() + likelihood.log_prob(target).sum()

    start = matrix.new_zeros(matrix.shape[1], requires_grad=True)
    (slope,) = torch.autograd.grad(log_density(start), start)
    curvature = torch.autograd.functional.hessian(log_density, start)
    return -torch.linalg.solve(curvature, slope).detach()


def matching_penalty(
    matrix: Float[Tensor, "rows columns"],
    target: Float[Tensor, " rows"],
    weights: Float[Tensor, " columns"],
    *,
    low: float | int = 1e-3,
    high: float | int = 1e3,
) -> float:
    """Return the lambda in [low, high] for which the ridge solution is nearest to `weights`, by search.

    The distance is taken on ever finer logarithmic grids around the best point of the last one.

    Raises:
        ValueError: not 0 < `low` < `high`.
    """
    if not 0 < low < high:
        raise ValueError(f"low and high must satisfy 0 < low < high, got {low} and {high}")
    left, s, right = torch.linalg.svd(matrix, full_matrices=False)
    along = left.T @ target
    first, last = math.log(low), math.log(high)
    for _ in range(6):
        grid = torch.linspace(first, last, 61, dtype=torch.float64).tolist()
        fits = [right.T @ (s / (s.square() + math.exp(t)) * along) for t in grid]
        best = grid[int(torch.stack([(fit - weights).norm() for fit in fits]).argmin())]
        step = (last - first) / 60
        first, last = max(best - step, math.log(low)), min(best + step, math.log(high))
    return math.exp(best)


# Noisy stochastic gradient descent on one sample


def noisy_sgd(
    x: float, y: float, start: float, noise: Float[Tensor, "steps paths"], *, step_size: float
) -> Float[Tensor, "steps_and_start paths"]:
    """Return w_0, ..., w_T of w_{t+1} = w_t - eta ((x + N_t) w_t - y)(x + N_t), run as written (05.1).

    Shapes: `noise` holds N_t, one row a step and one column a path; the result has one row more.
    """
    iterates = [torch.full_like(noise[0], start)]
    for drawn in noise:
        seen, w = x + drawn, iterates[-1]
        iterates.append(w - step_size * (seen * w - y) * seen)
    return torch.stack(iterates)


def mean_factor(x: float, *, noise: float, step_size: float) -> float:
    """E a = 1 - eta (x^2 + sigma^2), for the random factor a = 1 - eta (x + N)^2 (05.2)."""
    return 1 - step_size * (x**2 + noise**2)


def second_moment_factor(x: float, *, noise: float, step_size: float) -> float:
    """E a^2 = 1 - 2 eta (x^2 + sigma^2) + eta^2 (x^4 + 6 x^2 sigma^2 + 3 sigma^4) (05.4)."""
    fourth = x**4 + 6 * x**2 * noise**2 + 3 * noise**4
    return 1 - 2 * step_size * (x**2 + noise**2) + step_size**2 * fourth


def _check_input(x: float, noise: float) -> None:
    _check_noise(noise)
    if x == 0 and noise == 0:
        raise ValueError(
            "x and noise must not both be 0: then no step moves the weight and no step size is too long"
        )


def mean_limit(x: float, *, noise: float) -> float:
    """2 / (x^2 + sigma^2): E w_t converges exactly for steps in (0, limit) (05.3).

    Raises:
        ValueError: `noise` is negative or not finite, or x and `noise` are both 0.
    """
    _check_input(x, noise)
    return 2 / (x**2 + noise**2)


def second_moment_limit(x: float, *, noise: float) -> float:
    """2 (x^2 + sigma^2) / (x^4 + 6 x^2 sigma^2 + 3 sigma^4): E w_t^2 stays bounded below it (05.4).

    Never above `mean_limit`, since (E a)^2 <= E a^2; equal to it only without noise.

    Raises:
        ValueError: `noise` is negative or not finite, or x and `noise` are both 0.
    """
    _check_input(x, noise)
    return 2 * (x**2 + noise**2) / (x**4 + 6 * x**2 * noise**2 + 3 * noise**4)


def moments(
    x: float, y: float, start: float, *, noise: float, step_size: float, steps: int
) -> tuple[Float[Tensor, " steps_and_start"], Float[Tensor, " steps_and_start"]]:
    """Return E w_t and E w_t^2 for t = 0, ..., T, by their exact recursions.

    With u = x + N and a = 1 - eta u^2:  E w' = E a E w + eta y x  and
    E w'^2 = E a^2 E w^2 + 2 eta y E[a u] E w + eta^2 y^2 E u^2, where E[a u] = x - eta (x^3 + 3 x sigma^2).

    Raises:
        ValueError: `noise` is negative or not finite, or `steps` is negative.
    """
    _check_noise(noise)
    if steps < 0:
        raise ValueError(f"steps must be 0 or more, got {steps}")
    first = mean_factor(x, noise=noise, step_size=step_size)
    second = second_moment_factor(x, noise=noise, step_size=step_size)
    cross = 2 * step_size * y * (x - step_size * (x**3 + 3 * x * noise**2))
    constant = step_size**2 * y**2 * (x**2 + noise**2)
    means, squares = [start], [start**2]
    for _ in range(steps):
        squares.append(second * squares[-1] + cross * means[-1] + constant)
        means.append(first * means[-1] + step_size * y * x)
    return torch.tensor(means, dtype=torch.float64), torch.tensor(squares, dtype=torch.float64)


def stationary_moments(x: float, y: float, *, noise: float, step_size: float) -> tuple[float, float]:
    """Return the limits of E w_t, which is the ridge solution x y / (x^2 + sigma^2), and of Var w_t (05.3, 05.5).

    Ranges: 0 < eta < `second_moment_limit`.

    Raises:
        ValueError: the step size is outside that range, so that there is no limit.
    """
    limit = second_moment_limit(x, noise=noise)
    if not 0 < step_size < limit:
        raise ValueError(
            f"step_size must lie in (0, {limit:g}), where the second moment is bounded, got {step_size:g}"
        )
    mean = x * y / (x**2 + noise**2)
    second = second_moment_factor(x, noise=noise, step_size=step_size)
    # The deviation from the mean obeys e' = a e + eta u (y - u m): only the last term feeds the variance.
    # Its mean is 0 and its variance eta^2 E[u^2 (y - u m)^2], with E u^2, E u^3, E u^4 of N(x, sigma^2).
    moment2 = x**2 + noise**2
    moment3 = x**3 + 3 * x * noise**2
    moment4 = x**4 + 6 * x**2 * noise**2 + 3 * noise**4
    fed = step_size**2 * (y**2 * moment2 - 2 * y * mean * moment3 + mean**2 * moment4)
    return mean, fed / (1 - second)


def typical_factor(
    x: float, *, noise: float, step_sizes: Float[Tensor, " step_sizes"]
) -> Float[Tensor, " step_sizes"]:
    """exp(E log|1 - eta (x + N)^2|): the factor a step of almost every single path with y = 0 (05.2).

    With N = sigma Z and the roots b of 1 - eta (x + sigma b)^2, the logarithm is a sum of two terms log|Z - b|.
    They are singular on the real line, so the integral over z is moved to z + i, where the integrand is smooth
    and the trapezoidal rule converges to rounding error; the real part of log(z - b) is log|z - b|.
    Ranges: every step size is above 0.

    Raises:
        ValueError: `noise` is negative or not finite, or a step size is not above 0.
    """
    _check_noise(noise)
    if not (step_sizes > 0).all():
        raise ValueError(f"step_sizes must be above 0, got {step_sizes.tolist()}")
    if noise == 0:
        return (1 - step_sizes * x**2).abs()
    z = torch.linspace(-10, 10, 401, dtype=step_sizes.dtype, device=step_sizes.device)
    weight = torch.exp((1 - z**2) / 2 - 1j * z) * 0.05 / math.sqrt(2 * math.pi)
    ends = torch.stack([step_sizes**-0.5, -(step_sizes**-0.5)])
    logs = torch.log(z + 1j - ((ends - x) / noise)[..., None])
    return torch.exp((logs * weight).sum(-1).real.sum(0)) * step_sizes * noise**2


# Noisy stochastic gradient descent on the rows of a matrix


def mean_step_limit(matrix: Float[Tensor, "rows columns"], *, noise: float) -> float:
    """2 / (lambda_max(X^T X / m) + sigma^2): E w_t converges for steps in (0, limit).

    Each step takes one row, drawn uniformly, with fresh noise N(0, sigma^2 I).

    Raises:
        ValueError: `noise` is negative or not finite, or X and `noise` are both 0.
    """
    _check_noise(noise)
    curvature = float(torch.linalg.svdvals(matrix)[0]) ** 2 / len(matrix) + noise**2
    if curvature == 0:
        raise ValueError("matrix and noise must not both be 0: then no step moves the weights")
    return 2 / curvature


def second_moment_step_limit(
    matrix: Float[Tensor, "rows columns"], *, noise: float, rows_a_step: int = 1
) -> float:
    """1 / rho(K^-1 Q): E w_t w_t^T stays bounded for steps in (0, limit).

    One step maps M = E w w^T to M - eta K(M) + eta^2 Q(M), with K(M) = C M + M C, C = E u u^T and
    Q(M) = E u u^T M u u^T for the noisy row u. A step with the mean gradient of b independent rows has
    Q / b + (1 - 1/b) C M C in the place of Q (05.8). K^-1 and Q keep positive semidefinite matrices so, and then the
    map's spectral radius is below 1 exactly when eta rho(K^-1 Q) < 1. The fourth moments of u ~ N(x, sigma^2 I)
    follow from S = x x^T + sigma^2 I: E u_i u_j u_k u_l = S_ij S_kl + S_ik S_jl + S_il S_jk - 2 x_i x_j x_k x_l.
    Units: takes O(columns^6) operations; meant for a few columns.

    Raises:
        ValueError: `noise` is not a finite number above 0 (K has no inverse for a singular C), or `rows_a_step`
            is below 1.
    """
    if not (noise > 0 and math.isfinite(noise)):
        raise ValueError(f"noise must be a finite standard deviation above 0, got {noise}")
    if rows_a_step < 1:
        raise ValueError(f"rows_a_step must be 1 or more, got {rows_a_step}")
    columns = matrix.shape[1]
    eye = torch.eye(columns, dtype=matrix.dtype, device=matrix.device)
    outer = matrix[:, :, None] * matrix[:, None, :]
    spread = outer + noise**2 * eye
    correlation = spread.mean(0)
    linear = torch.kron(correlation, eye) + torch.kron(eye, correlation)
    # Q as a matrix from M_jk to (i, l): E u_i u_j M_jk u_k u_l.
    fourth = (
        torch.einsum("nij,nkl->niljk", spread, spread)
        + torch.einsum("nik,njl->niljk", spread, spread)
        + torch.einsum("nil,njk->niljk", spread, spread)
        - 2 * torch.einsum("nij,nkl->niljk", outer, outer)
    ).mean(0)
    quadratic = fourth.reshape(columns**2, columns**2) / rows_a_step
    quadratic = quadratic + (1 - 1 / rows_a_step) * torch.kron(correlation, correlation)
    radius = torch.linalg.eigvals(torch.linalg.solve(linear, quadratic)).abs().max()
    return float(1 / radius)


# Ridge as a conditional mean


def conditional_normal(
    mean_w: Float[Tensor, " d"],
    mean_y: Float[Tensor, " m"],
    cov_ww: Float[Tensor, "d d"],
    cov_wy: Float[Tensor, "d m"],
    cov_yy: Float[Tensor, "m m"],
    y: Float[Tensor, " m"],
) -> tuple[Float[Tensor, " d"], Float[Tensor, "d d"]]:
    """Return mean and covariance of W given Y = y, for (W, Y) jointly normal (04.7).

    E[W | Y = y] = mu_W + A (y - mu_Y) with A = Cov(W, Y) Cov(Y)^-1, and Cov(W | Y = y) = Cov(W) - A Cov(Y, W):
    W - A Y is uncorrelated with Y, hence, under joint normality, independent of it.

    Raises:
        torch.linalg.LinAlgError: `cov_yy` is singular.
    """
    gain = torch.linalg.solve(cov_yy, cov_wy.T).T
    return mean_w + gain @ (y - mean_y), cov_ww - gain @ cov_wy.T


def posterior(
    matrix: Float[Tensor, "rows columns"],
    target: Float[Tensor, " rows"],
    *,
    noise_variance: float,
    prior_variance: float = 1.0,
) -> tuple[Float[Tensor, " columns"], Float[Tensor, "columns columns"]]:
    """Return mean and covariance of w given y, for w ~ N(0, p I) and y = X w + N(0, v I) (04.4, 04.8).

    The mean, which is also the mode, is the ridge solution with lambda = v / p; the covariance is
    v (X^T X + lambda I)^-1.

    Raises:
        ValueError: a variance is not a finite number above 0.
    """
    for name, value in (("noise_variance", noise_variance), ("prior_variance", prior_variance)):
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be a finite number above 0, got {value}")
    rows, columns = matrix.shape
    eye = torch.eye(columns, dtype=matrix.dtype, device=matrix.device)
    noise = noise_variance * torch.eye(rows, dtype=matrix.dtype, device=matrix.device)
    return conditional_normal(
        matrix.new_zeros(columns),
        matrix.new_zeros(rows),
        prior_variance * eye,
        prior_variance * matrix.T,
        prior_variance * matrix @ matrix.T + noise,
        target,
    )
