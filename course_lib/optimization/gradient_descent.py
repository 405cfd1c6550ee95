"""Gradient descent on least squares, where every step is known in closed form (lessons 01 and 02).

Written for L(w) = ||y - X w||^2: its gradient is
-2 X^T (y - X w), so the factor that decides stability is 1 - 2 eta sigma^2. With the other common
convention, L(w) = 1/2 ||y - X w||^2, the 2 is gone and every bound on the step size doubles; the
argument `half=True` switches to it. sigma_1 >= ... >= sigma_r are the singular values of X.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice

import torch
from jaxtyping import Float
from torch import Tensor


def _gain(half: bool) -> float:
    """Return the factor in front of the gradient X^T (y - X w): 2, or 1 for the loss with 1/2."""
    return 1.0 if half else 2.0


def least_squares_loss(
    matrix: Float[Tensor, "rows columns"],
    target: Float[Tensor, " rows"],
    weights: Float[Tensor, "*steps columns"],
    *,
    half: bool = False,
) -> Float[Tensor, "*steps"]:
    """L(w) = ||y - X w||^2, or half of it, for one w or for a whole trajectory of them."""
    residual = target - weights @ matrix.T
    return residual.square().sum(-1) * (0.5 if half else 1.0)


def gradient_descent(
    matrix: Float[Tensor, "rows columns"],
    target: Float[Tensor, " rows"],
    start: Float[Tensor, " columns"],
    *,
    step_size: float,
    steps: int,
    half: bool = False,
) -> Float[Tensor, "steps_and_start columns"]:
    """Return w_0, ..., w_T of w_{t+1} = w_t + 2 eta X^T (y - X w_t), run as written.

    Shapes: the result has `steps` + 1 rows, the first is `start`.
    Units: `step_size` is eta, in units of 1 / sigma^2.

    Raises:
        ValueError: `steps` is negative.
    """
    if steps < 0:
        raise ValueError(f"steps must be 0 or more, got {steps}")
    iterates = [start]
    for _ in range(steps):
        w = iterates[-1]
        iterates.append(w + _gain(half) * step_size * matrix.T @ (target - matrix @ w))
    return torch.stack(iterates)


def contraction_factors(
    singular_values: Float[Tensor, " r"], *, step_size: float, half: bool = False
) -> Float[Tensor, " r"]:
    """1 - 2 eta sigma_i^2: what one step multiplies the error along direction i by (01.1)."""
    return 1 - _gain(half) * step_size * singular_values.square()


def closed_form(
    singular_values: Float[Tensor, " r"],
    target: Float[Tensor, " r"],
    start: Float[Tensor, " r"],
    *,
    step_size: float,
    steps: int,
    half: bool = False,
) -> Float[Tensor, "steps_and_start r"]:
    """w_t = w* + (1 - 2 eta sigma^2)^t (w_0 - w*), with w* = y / sigma, for diagonal problems (01.2).

    A direction with sigma = 0 has no w*: its gradient is zero and it stays where it started.
    Shapes: one entry a direction; the result has `steps` + 1 rows.

    Raises:
        ValueError: `steps` is negative.
    """
    if steps < 0:
        raise ValueError(f"steps must be 0 or more, got {steps}")
    moving = singular_values != 0
    limit = torch.where(moving, target / torch.where(moving, singular_values, 1.0), start)
    powers = torch.arange(steps + 1, dtype=singular_values.dtype, device=singular_values.device)[:, None]
    factors = contraction_factors(singular_values, step_size=step_size, half=half)
    return limit + factors**powers * (start - limit)


def _extremes(singular_values: Float[Tensor, " r"]) -> tuple[float, float]:
    """Return the largest and the smallest non-zero singular value.

    Raises:
        ValueError: all of them are zero, or one is negative.
    """
    if (singular_values < 0).any():
        raise ValueError(f"singular_values must be 0 or more, got {singular_values.tolist()}")
    nonzero = singular_values[singular_values > 0]
    if nonzero.numel() == 0:
        raise ValueError("singular_values must contain one above 0, got only zeros: no direction is learned")
    return float(nonzero.max()), float(nonzero.min())


def stability_limit(singular_values: Float[Tensor, " r"], *, half: bool = False) -> float:
    """1 / sigma_max^2 (2 / sigma_max^2 for the loss with 1/2): steps in (0, limit) converge (01.3)."""
    largest, _ = _extremes(singular_values)
    return 2 / (_gain(half) * largest**2)


def worst_rate(singular_values: Float[Tensor, " r"], *, step_size: float, half: bool = False) -> float:
    """max_i |1 - 2 eta sigma_i^2| over the directions that move: the slowest error's factor a step (01.4)."""
    _extremes(singular_values)
    moving = singular_values[singular_values > 0]
    return float(contraction_factors(moving, step_size=step_size, half=half).abs().max())


def best_step(singular_values: Float[Tensor, " r"], *, half: bool = False) -> float:
    """1 / (sigma_max^2 + sigma_min^2), for any number of directions (01.4).

    1 - 2 eta s falls in s, so only its two ends can have the largest absolute value; the step where the
    two ends are equal minimises the worst rate. sigma_min is the smallest singular value that is not zero.
    """
    largest, smallest = _extremes(singular_values)
    return 2 / (_gain(half) * (largest**2 + smallest**2))


def heavy_ball(
    matrix: Float[Tensor, "rows columns"],
    target: Float[Tensor, " rows"],
    start: Float[Tensor, " columns"],
    *,
    step_size: float,
    momentum: float,
    steps: int,
    half: bool = False,
) -> Float[Tensor, "steps_and_start columns"]:
    """Return w_0, ..., w_T of w_{t+1} = w_t - eta grad L(w_t) + beta (w_t - w_{t-1}), with w_{-1} = w_0 (02.1).

    Shapes: the result has `steps` + 1 rows, the first is `start`.
    Units: `step_size` is eta, in units of 1 / sigma^2; `momentum` is beta, and 0 is gradient descent.

    Raises:
        ValueError: `steps` is negative.

    Source: B. T. Polyak, "Some methods of speeding up the convergence of iteration methods", 1964.
    """
    if steps < 0:
        raise ValueError(f"steps must be 0 or more, got {steps}")
    iterates = [start]
    for _ in range(steps):
        w, before = iterates[-1], iterates[-2] if len(iterates) > 1 else start
        descent = _gain(half) * step_size * matrix.T @ (target - matrix @ w)
        iterates.append(w + descent + momentum * (w - before))
    return torch.stack(iterates)


def heavy_ball_rate(
    singular_values: Float[Tensor, " r"], *, step_size: float, momentum: float, half: bool = False
) -> float:
    """max_i of the larger |z| with z^2 - (1 + beta - 2 eta sigma_i^2) z + beta = 0, over what moves (02.5).

    The error along direction i is a sum of powers z^t of the two roots; where they are not real, both have
    size sqrt(beta). Below 1 every such error vanishes.
    Ranges: 0 <= beta < 1.

    Raises:
        ValueError: beta is outside its range; all singular values are zero, or one is negative.
    """
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum must lie in [0, 1), got {momentum}")
    _extremes(singular_values)
    moving = singular_values[singular_values > 0]
    middle = contraction_factors(moving, step_size=step_size, half=half).add(momentum).abs() / 2
    beyond = (middle.square() - momentum).clamp(min=0).sqrt()
    return float((middle + beyond).clamp(min=math.sqrt(momentum)).max())


def best_heavy_ball(singular_values: Float[Tensor, " r"], *, half: bool = False) -> tuple[float, float]:
    """Return eta = 2 / (sigma_max + sigma_min)^2 and beta, with sqrt(beta) = (sqrt k - 1) / (sqrt k + 1) (02.7).

    sqrt(beta) is the rate, k = (sigma_max / sigma_min)^2, and sigma_min the smallest singular value that is
    not zero. The step doubles for the loss with 1/2.

    Raises:
        ValueError: all singular values are zero, or one is negative.
    """
    largest, smallest = _extremes(singular_values)
    return 4 / (_gain(half) * (largest + smallest) ** 2), ((largest - smallest) / (largest + smallest)) ** 2


def steps_to_accuracy(singular_value: float, *, step_size: float, accuracy: float) -> int:
    """Return the first t with |1 - 2 eta sigma^2|^t < epsilon: |w_t - w*| < epsilon |w*| from w_0 = 0.

    t > ln(epsilon) / ln|1 - 2 eta sigma^2|. The absolute value is needed as soon as the iterates overshoot
    (eta > 1 / (2 sigma^2)); without it the logarithm has a negative argument.
    Ranges: 0 < epsilon < 1 and 0 < eta < 1 / sigma^2.

    Raises:
        ValueError: epsilon or eta is outside its range, so that no such t exists or the question is empty;
            or sigma is 0, so that no step moves the weight.
    """
    if not 0 < accuracy < 1:
        raise ValueError(f"accuracy must lie in (0, 1), got {accuracy}")
    if singular_value == 0:
        raise ValueError("singular_value must not be 0: along that direction no step changes the weight")
    factor = abs(1 - 2 * step_size * singular_value**2)
    if not factor < 1:
        raise ValueError(
            f"step_size must lie in (0, {1 / singular_value**2:g}) for singular_value {singular_value:g}, "
            f"got {step_size:g}: |1 - 2 eta sigma^2| = {factor:g} does not shrink the error"
        )
    if factor == 0:
        return 1
    steps = max(1, math.floor(math.log(accuracy) / math.log(factor)))
    # The logarithms are rounded: settle the last step by the powers themselves.
    while factor**steps >= accuracy:
        steps += 1
    return steps


def excess_shares(
    matrix: Float[Tensor, "rows columns"], target: Float[Tensor, " rows"], start: Float[Tensor, " columns"]
) -> tuple[Float[Tensor, " r"], Float[Tensor, " r"]]:
    """Return the singular values, and the share of the excess loss L(w_0) - L(w*) that lies along each direction.

    Along direction i the excess is sigma_i^2 times the squared error, that is (u_i^T (y - X w_0))^2.
    Shapes: r = min(rows, columns); the shares add up to 1.

    Raises:
        ValueError: `start` is a solution already, so that there is no excess to share.
    """
    left, singular_values, _ = torch.linalg.svd(matrix, full_matrices=False)
    excess = (left.T @ (target - matrix @ start)).square()
    if not float(excess.sum()) > 0:
        raise ValueError("start must not be a solution: its loss has no excess that training could remove")
    return singular_values, excess / excess.sum()


def excess_left(
    singular_values: Float[Tensor, " r"], shares: Float[Tensor, " r"], *, step_size: float, steps: int | float
) -> float:
    """(L(w_t) - L*) / (L(w_0) - L*) = sum_i c_i (1 - 2 eta sigma_i^2)^(2 t), in closed form (01.6).

    Shapes: `shares` c_i is what `excess_shares` returns. `steps` is t; it may be millions at no cost.
    """
    factors = contraction_factors(singular_values, step_size=step_size).square()
    return float((shares * factors**steps).sum())


def steps_to_share(
    singular_values: Float[Tensor, " r"], shares: Float[Tensor, " r"], *, step_size: float, share: float
) -> int:
    """Return the first t with at most `share` of the excess loss left, by bisection: a stable step never raises it.

    Ranges: 0 < share < 1 and 0 < step_size < 1 / sigma_max^2.

    Raises:
        ValueError: share or step_size is outside its range.
    """
    if not 0 < share < 1:
        raise ValueError(f"share must lie in (0, 1), got {share}")
    limit = stability_limit(singular_values)
    if not 0 < step_size < limit:
        raise ValueError(f"step_size must lie in (0, {limit:g}), got {step_size:g}")
    left = lambda steps: excess_left(singular_values, shares, step_size=step_size, steps=steps)  # noqa: E731
    below, above = 0, 1
    while left(above) > share:
        below, above = above, 2 * above
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if left(middle) <= share else (middle, above)
    return above


def _heavy_ball_left(
    singular_values: Float[Tensor, " r"],
    shares: Float[Tensor, " r"],
    step_sizes: Float[Tensor, " pairs"],
    momenta: Float[Tensor, " pairs"],
) -> Iterator[Float[Tensor, " pairs"]]:
    """Yield the share of the excess left after 1, 2, ... steps, for all pairs (eta, beta) side by side.

    One number a direction: e_{t+1} = (1 + beta - 2 eta sigma^2) e_t - beta e_{t-1}.
    """
    decay = momenta[:, None]
    middle = 1 + decay - 2 * step_sizes[:, None] * singular_values.square()
    errors = torch.ones_like(middle)
    before = errors
    for step in count():
        errors, before = middle * errors - decay * before, errors
        if step % 64 == 0:  # numbers below 1e-308 would make each product a hundred times slower
            errors, before = (torch.where(e.abs() < 1e-150, 0.0, e) for e in (errors, before))
        yield errors.square() @ shares


def heavy_ball_steps_to_share(
    singular_values: Float[Tensor, " r"],
    shares: Float[Tensor, " r"],
    *,
    step_sizes: Float[Tensor, " pairs"],
    momenta: Float[Tensor, " pairs"],
    share: float,
    most: int = 100_000,
) -> tuple[int, int]:
    """Return the first t at which one of the pairs (eta, beta) has at most `share` of the excess left, and its place.

    Raises:
        RuntimeError: no pair comes so far within `most` steps.
    """
    for step, left in enumerate(
        islice(_heavy_ball_left(singular_values, shares, step_sizes, momenta), most), 1
    ):
        if bool((left <= share).any()):
            return step, int(left.nan_to_num(torch.inf).argmin())
    raise RuntimeError(f"no pair left at most {share} of the excess within {most} steps")


def heavy_ball_steps_to_shares(
    singular_values: Float[Tensor, " r"],
    shares: Float[Tensor, " r"],
    *,
    step_sizes: Float[Tensor, " pairs"],
    momenta: Float[Tensor, " pairs"],
    goals: Sequence[float],
    most: int = 100_000,
) -> list[int]:
    """Return for each goal what `heavy_ball_steps_to_share` counts for that share, from one run of all pairs.

    Ranges: the goals fall.

    Raises:
        ValueError: the goals do not fall.
        RuntimeError: no pair comes to the last goal within `most` steps.
    """
    if list(goals) != sorted(goals, reverse=True):
        raise ValueError(f"goals must fall, got {list(goals)}")
    found: list[int] = []
    for step, left in enumerate(
        islice(_heavy_ball_left(singular_values, shares, step_sizes, momenta), most), 1
    ):
        least = float(left.nan_to_num(torch.inf).min())
        while len(found) < len(goals) and least <= goals[len(found)]:
            found.append(step)
        if len(found) == len(goals):
            return found
    raise RuntimeError(f"no pair left at most {goals[-1]} of the excess within {most} steps")


def svd_coordinates(
    matrix: Float[Tensor, "rows columns"], target: Float[Tensor, " rows"]
) -> tuple[Float[Tensor, " r"], Float[Tensor, " r"], Float[Tensor, "columns columns"], float]:
    """Turn X w = y into the diagonal problem Sigma w_hat = y_hat by X = U Sigma V^T (01.5).

    w_hat = V^T w and y_hat = U^T y; U and V are orthogonal, so losses and distances stay the same and
    gradient descent commutes with the change of coordinates. A tall X cannot reach the part of y outside
    its columns: that part is a constant in the loss, returned last.
    Shapes: r = columns; where rows < columns, the missing singular values and targets are zeros.
    """
    rows, columns = matrix.shape
    left, values, right = torch.linalg.svd(matrix, full_matrices=True)
    rotated = left.T @ target
    rank = min(rows, columns)
    singular_values, reduced = matrix.new_zeros(columns), matrix.new_zeros(columns)
    singular_values[:rank], reduced[:rank] = values, rotated[:rank]
    return singular_values, reduced, right.T, float(rotated[rank:].square().sum())


def sharpness(
    loss: Callable[[Tensor], Tensor],
    weights: Float[Tensor, " n"],
    *,
    generator: torch.Generator,
    tolerance: float = 1e-4,
    most_products: int = 200,
) -> float:
    """Return the largest eigenvalue of the Hessian of `loss` at `weights` (01.7).

    For a quadratic loss the Hessian is constant (2 X^T X for ||y - X w||^2) and gradient descent is stable
    while eta lambda_max < 2. For a network it changes with the weights; it is never formed here. Each round
    multiplies a vector by it, H v = grad (grad L . v), at the cost of about two gradients, and the Lanczos
    recursion reads the extreme eigenvalue off a small tridiagonal matrix (Golub and Van Loan, "Matrix
    Computations", 10.1). Every new vector is made orthogonal to all earlier ones, since rounding would bring
    them back.
    Shapes: `weights` is one flat vector; `loss` maps it to a scalar.
    Units: `tolerance` is relative; at most `most_products` Hessian-vector products are formed.

    Raises:
        RuntimeError: the weights have diverged, so that the product is not finite.
    """
    weights = weights.detach().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(loss(weights), weights, create_graph=True)
    if not gradient.requires_grad:  # a linear loss
        return 0.0

    vector = torch.randn(weights.shape, generator=generator, dtype=weights.dtype).to(weights.device)
    basis = [vector / vector.norm()]
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    found, largest = math.nan, 0.0
    for _ in range(min(most_products, weights.numel())):
        (product,) = torch.autograd.grad(gradient, weights, basis[-1], retain_graph=True)
        if not torch.isfinite(product).all():
            raise RuntimeError("the Hessian-vector product is not finite: the weights have diverged")
        largest = max(largest, float(product.norm()))
        diagonal.append(float(product @ basis[-1]))
        tridiagonal = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
        if off_diagonal:
            beside = torch.tensor(off_diagonal, dtype=torch.float64)
            tridiagonal += torch.diag(beside, 1) + torch.diag(beside, -1)
        previous, found = found, float(torch.linalg.eigvalsh(tridiagonal)[-1])
        known = torch.stack(basis)
        product = product - known.T @ (known @ product)
        product = product - known.T @ (known @ product)
        length = float(product.norm())
        if abs(found - previous) <= tolerance * abs(found) or length <= 1e-12 * largest:
            break
        basis.append(product / length)
        off_diagonal.append(length)
    return found
