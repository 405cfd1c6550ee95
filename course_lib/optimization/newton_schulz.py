"""Newton-Schulz iteration: all singular values of a matrix pushed to 1 by matrix products alone (lesson 08).

An odd polynomial of a matrix, p(X) = a X + b (X X^T) X + c (X X^T)^2 X, leaves the singular vectors alone and
turns every singular value s into p(s) = a s + b s^3 + c s^5. If repeated polynomials take all of (0, 1] to 1, the
matrix goes to U V^T, the orthogonal factor of X = U S V^T, without a singular value decomposition. Three choices
of coefficients (a, b, c) have names here:

- "cubic", (3 s - s^3) / 2 at every step: converges to 1 for every s in (0, sqrt(3)), slowly where s is small;
- "jordan", one quintic at every step, steep at 0 and never quite at 1 (Keller Jordan et al., 2024);
- "polar_express", a quintic of its own for every step, each the best for what the steps before it leave
  (Amsel, Persson, Musco and Gower, 2025, arXiv:2505.16932).
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

Quintic = tuple[float, float, float]

CUBIC: Quintic = (1.5, -0.5, 0.0)
JORDAN: Quintic = (3.4445, -4.7750, 2.0315)
# The flattest quintic at 1: p(1) = 1, p'(1) = p''(1) = 0. Minimax quintics tend to it as their interval shrinks.
FLAT: Quintic = (15 / 8, -10 / 8, 3 / 8)

# What Polar Express was published with: the smallest singular value it is made for, and the cushion.
LOWER, CUSHION = 1e-3, 0.02407327424182761
# Matrices at least this many times longer than high are iterated on their Gram matrix.
GRAM_ASPECT = 2.5
# The largest growth of a rounding error in the Gram matrix before it is computed anew.
GRAM_GROWTH = 0.25

# Polynomials of numbers, and the best of them


def odd_polynomial(values: Float[Tensor, "*shape"], coefficients: Quintic) -> Float[Tensor, "*shape"]:
    """p(s) = a s + b s^3 + c s^5, entry by entry: what one step does to each singular value (08.1)."""
    a, b, c = coefficients
    square = values * values
    return values * (a + square * (b + square * c))


def minimax_quintic(lower: float | int, upper: float | int) -> tuple[Quintic, float]:
    """Return the odd quintic closest to 1 on [lower, upper], and its largest error there (08.5).

    The best one errs by the same E, with alternating signs, at four points l < q < r < u, of which q and r are
    extrema of p. Remez' exchange guesses q and r, solves the four linear equations p(x_i) = 1 -+ E for a, b, c
    and E, moves q and r to the extrema of that p, and repeats; E rises to its limit.

    Raises:
        ValueError: not 0 < lower <= upper < infinity.
    """
    if not 0 < lower <= upper < math.inf:
        raise ValueError(f"lower and upper must satisfy 0 < lower <= upper, got {lower} and {upper}")
    if lower > upper * (1 - 5e-6):  # the four points merge; E is below 1e-17
        return tuple(k / upper**power for k, power in zip(FLAT, (1, 3, 5), strict=True)), 0.0
    inner, error = [(3 * lower + upper) / 4, (lower + 3 * upper) / 4], -math.inf
    while True:
        # In numpy: torch under a mode of its own (fake tensors, a default device) would not give numbers.
        points = np.array([lower, *inner, upper])
        system = np.stack([points, points**3, points**5, [1, -1, 1, -1]], axis=1)
        a, b, c, level = np.linalg.solve(system, np.ones(4)).tolist()
        if level <= error + 1e-15:
            return (a, b, c), level
        # The extrema: p'(s) = a + 3 b s^2 + 5 c s^4 = 0, a quadratic equation for s^2.
        error, root = level, math.sqrt(9 * b * b - 20 * a * c)
        inner = [math.sqrt((-3 * b - root) / (10 * c)), math.sqrt((-3 * b + root) / (10 * c))]


def minimax_composition(
    lower: float | int, steps: int, *, cushion: float | int = 0.0
) -> tuple[tuple[Quintic, ...], float]:
    """Return the quintics p_1, ..., p_T whose composition is closest to 1 on [lower, 1], and its error (08.6).

    Greedy is optimal: p_1 is the minimax quintic of [l, 1] and maps it onto [1 - E, 1 + E], p_2 is that of the
    new interval, and so on. `cushion` departs from it for the sake of rounding: where l is below cushion times
    u, the quintic is made for [cushion u, u], scaled so that the image of [l, u] has 1 in its middle. Otherwise
    the first steps would press large singular values down to l before they lift them again.

    Raises:
        ValueError: not 0 < lower <= 1 or 0 <= cushion <= 1, or `steps` is below 1.
    """
    if not 0 < lower <= 1 or not 0 <= cushion <= 1 or steps < 1:
        raise ValueError(
            "lower must lie in (0, 1], cushion in [0, 1] and steps be 1 or more, got "
            f"{lower}, {cushion} and {steps}"
        )
    upper, quintics = 1.0, []
    for _ in range(steps):
        (a, b, c), error = minimax_quintic(max(lower, cushion * upper), upper)
        lowest = lower * (a + lower**2 * (b + lower**2 * c))
        scale = 2 / (lowest + 1 + error)
        quintics.append((scale * a, scale * b, scale * c))
        lower = min(scale * lowest, 1.0)  # rounding may pass 1 once the interval has closed
        upper = 2 - lower
    return tuple(quintics), 1 - lower


@lru_cache
def polar_express(steps: int, *, safety: float | int = 1.01) -> tuple[Quintic, ...]:
    """Return the quintics of Polar Express for [0.001, 1], each but the last applied to s / safety.

    Rounding may push a singular value above the interval that the next quintic is made for, where that grows
    without bound; the safety factor leaves room. Source: arXiv:2505.16932, whose printed table these reproduce.
    """
    *first, last = minimax_composition(LOWER, steps, cushion=CUSHION)[0]
    return (*((a / safety, b / safety**3, c / safety**5) for a, b, c in first), last)


# Matrices


def newton_schulz_step(
    matrix: Float[Tensor, "*batch rows columns"], coefficients: Quintic
) -> Float[Tensor, "*batch rows columns"]:
    """One step as it is written, p(X) = a X + b (X X^T) X + c (X X^T)^2 X (08.1): to read, not for speed."""
    a, b, c = coefficients
    gram = matrix @ matrix.mT
    return a * matrix + (b * gram + c * gram @ gram) @ matrix


def orthogonality_error(matrix: Float[Tensor, "*batch rows columns"]) -> Float[Tensor, "*batch"]:
    """||X X^T - I||_F / sqrt(n), with n the shorter side of X: the root mean square of s_i^2 - 1 (08.2)."""
    short = matrix.mT if matrix.shape[-2] > matrix.shape[-1] else matrix
    values = torch.linalg.svdvals(short.to(torch.promote_types(matrix.dtype, torch.float32)))
    return (values.square() - 1).square().mean(dim=-1).sqrt()


def orthogonalize(
    matrix: Float[Tensor, "*batch rows columns"],
    steps: int = 5,
    *,
    coefficients: Literal["polar_express", "jordan", "cubic"] | Sequence[Quintic] = "polar_express",
    norm: Literal["gram", "frobenius"] = "gram",
    compute_dtype: torch.dtype | None = None,
    form: Literal["auto", "plain", "gram"] = "auto",
) -> Float[Tensor, "*batch rows columns"]:
    """Return p_T(... p_1(X)) with X = matrix / norm: near U V^T, by matrix products only (08.2).

    The norm is at least the largest singular value, so that all start in [0, 1]:
    "frobenius" is ||M||_F; "gram" is ||M M^T||_F^(1/2), which is never larger, leaves small singular values larger,
    and costs nothing since M M^T is needed anyway (08.9). "jordan" was tuned for "frobenius".
    Named coefficients fit any number of steps; of a sequence of (a, b, c) the last is repeated when it is
    shorter than `steps`.

    A long matrix can be iterated on its small Gram matrix, "gram", instead of on itself, "plain"; "auto" does
    so where the longer side is at least 2.5 times the shorter (08.10).

    Shapes: any leading dimensions, rows and columns in any order; the shorter side is iterated. The result has
    the dtype of `matrix` and shares no memory with it. `compute_dtype` is that of the products; bfloat16 makes
    them fast and, in five steps, hardly less exact.
    Ranges: the scale of `matrix` does not matter, and zeros give zeros. NaN and infinity give NaN.

    Raises:
        ValueError: fewer than two dimensions, numbers that are not real and floating-point, `steps` not a whole
            number of 1 or more, or an unknown name.
    """
    dtype = compute_dtype or matrix.dtype
    _check(matrix, dtype, steps)
    for name, value, known in (("norm", norm, ("gram", "frobenius")), ("form", form, ("auto", *_FORMS))):
        if value not in known:
            raise ValueError(f"{name} must be one of {list(known)}, got {value!r}")
    if matrix.numel() == 0:
        return matrix.clone()
    short, long = sorted(matrix.shape[-2:])
    if form == "auto":
        form = "gram" if long >= GRAM_ASPECT * short else "plain"
    # The Gram form accumulates rounding errors over some steps: it needs more room above the interval.
    safety = 1.05 if form == "gram" and torch.finfo(dtype).eps > 1e-4 else 1.01
    schedule = _schedule(coefficients, steps, safety=safety)
    X = _scaled(matrix.flatten(0, -3) if matrix.ndim > 3 else matrix, dtype)
    if norm == "frobenius":
        X = _frobenius_normalized(X)
    X = _FORMS[form](X, schedule, gram_norm=norm == "gram")
    return X.reshape(matrix.shape).to(matrix.dtype)


def _check(matrix: Tensor, dtype: torch.dtype, steps: object) -> None:
    if matrix.ndim < 2:
        raise ValueError(f"matrix must have two dimensions or more, got shape {tuple(matrix.shape)}")
    for name, kind in (("matrix", matrix.dtype), ("compute_dtype", dtype)):
        if not kind.is_floating_point:
            raise ValueError(f"{name} must be of real floating-point numbers, got {kind}")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(f"steps must be a whole number, 1 or more, got {steps!r}")


def _schedule(coefficients: str | Sequence, steps: int, *, safety: float | int) -> tuple[Quintic, ...]:
    """Return one (a, b, c) for each step."""
    if coefficients == "polar_express":
        return polar_express(steps, safety=safety)
    named = {"jordan": (JORDAN,), "cubic": (CUBIC,)}
    if isinstance(coefficients, str):
        if coefficients not in named:
            raise ValueError(
                f"coefficients must be (a, b, c) for each step or one of {['polar_express', *named]}, got "
                f"{coefficients!r}"
            )
        coefficients = named[coefficients]
    given = tuple(tuple(quintic) for quintic in coefficients)
    if not given or any(len(quintic) != 3 for quintic in given):
        raise ValueError(f"coefficients must be a sequence of triples (a, b, c), got {coefficients!r}")
    return given[:steps] + given[-1:] * (steps - len(given))


def _scaled(X: Tensor, dtype: torch.dtype) -> Tensor:
    """Divide by a power of two that leaves entries of at most 2 / sqrt(longer side), then round to `dtype`.

    Squares and fourth powers of 1e-30 would vanish. A power of two changes no digit, so that the result does
    not depend on the scale at all; the root of the longer side keeps X X^T small enough for float16.
    """
    largest = X.abs().amax(dim=(-2, -1), keepdim=True).to(torch.promote_types(X.dtype, torch.float32))
    exponent = (torch.log2(largest + (largest == 0)) + 0.5 * math.log2(max(X.shape[-2:]))).floor()
    return (X / torch.exp2(exponent)).to(dtype)


def _frobenius_normalized(X: Tensor) -> Tensor:
    size = torch.linalg.vector_norm(X, dim=(-2, -1), keepdim=True)
    return X / (size + (size == 0))


def _gram_normalized(X: Tensor, gram: Tensor) -> tuple[Tensor, Tensor]:
    """Divide X by ||X X^T||_F^(1/2), and X X^T by its square."""
    wide = torch.promote_types(X.dtype, torch.float32)
    size = torch.linalg.vector_norm(gram, dim=(-2, -1), keepdim=True, dtype=wide)
    scale = (size + (size == 0)).rsqrt().to(X.dtype)
    return X * scale, gram * scale * scale


def _is_tall(X: Tensor) -> bool:
    return X.shape[-2] > X.shape[-1]


def _gram_matrix(X: Tensor) -> Tensor:
    """X X^T, or X^T X where that is smaller (08.8)."""
    return X.mT @ X if _is_tall(X) else X @ X.mT


def _multiply_add(start: Tensor, left: Tensor, right: Tensor, *, beta: float, alpha: float = 1.0) -> Tensor:
    """Beta times start plus alpha times left @ right in one pass, for matrices or batches of them."""
    product = torch.addmm if start.ndim == 2 else torch.baddbmm
    return product(start, left, right, beta=beta, alpha=alpha)


def _plain_form(X: Tensor, schedule: Sequence[Quintic], *, gram_norm: bool) -> Tensor:
    """Iterate on X itself, three products a step."""
    for k, (a, b, c) in enumerate(schedule):
        gram = _gram_matrix(X)
        if k == 0 and gram_norm:
            X, gram = _gram_normalized(X, gram)
        factor = _multiply_add(gram, gram, gram, beta=b, alpha=c)
        X = _multiply_add(X, *((X, factor) if _is_tall(X) else (factor, X)), beta=a)
    return X


def _gram_form(X: Tensor, schedule: Sequence[Quintic], *, gram_norm: bool) -> Tensor:
    """Iterate on A = X X^T: with Q = a I + b A + c A^2, X becomes Q X and A becomes Q A Q (08.10).

    Only the product P of the factors Q meets the long X. But the Gram matrix of small singular values is lost
    in the rounding of A, and a step multiplies what it takes for one by up to a^2. So before such an error can
    have grown to a quarter, P is applied and A computed anew: never in float32 with five steps, twice in bfloat16.
    """
    gram, applied = _half_multiplied_gram(X), None
    if gram_norm:
        X, gram = _gram_normalized(X, gram)
    rounding = growth = torch.finfo(X.dtype).eps
    for k, (a, b, c) in enumerate(schedule):
        factor = _multiply_add(gram, gram, gram, beta=b, alpha=c)
        factor.diagonal(dim1=-2, dim2=-1).add_(a)
        applied = factor if applied is None else factor @ applied
        growth *= a * a
        last = k == len(schedule) - 1
        if last or growth > GRAM_GROWTH:
            X = X @ applied.mT if _is_tall(X) else applied @ X
            if not last:
                gram, applied, growth = _half_multiplied_gram(X), None, rounding
        else:
            gram = gram @ factor @ factor
    return X


_FORMS = {"plain": _plain_form, "gram": _gram_form}


def _half_multiplied_gram(X: Tensor, *, panels: int = 4) -> Tensor:
    """Return the Gram matrix; on a CPU, if large, only what lies on and right of its diagonal blocks is multiplied."""
    size = min(X.shape[-2:])
    if X.device.type != "cpu" or size < 256:
        return _gram_matrix(X)
    left = X.mT if _is_tall(X) else X
    gram, height = X.new_empty(*X.shape[:-2], size, size), -(-size // panels)
    for top in range(0, size, height):
        bottom = top + height
        gram[..., top:bottom, top:] = left[..., top:bottom, :] @ left[..., top:, :].mT
        gram[..., bottom:, top:bottom] = gram[..., top:bottom, bottom:].mT
    return gram


def polar_factor(
    matrix: Float[Tensor, "*batch rows columns"],
    *,
    method: Literal["auto", "svd", "iteration"] = "auto",
    tolerance: float | int = 1e-5,
) -> Float[Tensor, "*batch rows columns"]:
    """Return U V^T itself: by a singular value decomposition on a CPU, by iteration elsewhere.

    On a CPU the decomposition is faster than any iteration to this accuracy; on a GPU products are far cheaper.
    "svd" keeps directions at zero whose singular value is below the dtype's epsilon times the largest.
    "iteration" takes eight steps of Polar Express, then the flat quintic until `orthogonality_error` is at most
    `tolerance`, 30 steps at most; it is meant for matrices of full rank, and directions that are lost in rounding
    end anywhere between 0 and 1.

    Shapes, dtype and memory as for `orthogonalize`; computed in float32 or float64.

    Raises:
        ValueError: as for `orthogonalize`; `method` is unknown.
    """
    if method not in ("auto", "svd", "iteration"):
        raise ValueError(f"method must be 'auto', 'svd' or 'iteration', got {method!r}")
    _check(matrix, matrix.dtype, 1)
    X = matrix.to(torch.promote_types(matrix.dtype, torch.float32))
    if method == "auto":
        method = "svd" if matrix.device.type == "cpu" else "iteration"
    if method == "svd" or matrix.numel() == 0:
        left, values, right = torch.linalg.svd(X, full_matrices=False)
        kept = values > torch.finfo(X.dtype).eps * values[..., :1]
        return (left @ (kept[..., None] * right)).to(matrix.dtype)
    tall = matrix.shape[-2] > matrix.shape[-1]
    X = orthogonalize(X.mT if tall else X, 8)
    a, b, c = FLAT
    for _ in range(30):
        gram = X @ X.mT
        residual = gram.clone()
        residual.diagonal(dim1=-2, dim2=-1).sub_(1)
        error = torch.linalg.vector_norm(residual, dim=(-2, -1)).max() / math.sqrt(X.shape[-2])
        if error <= tolerance:
            break
        X = a * X + (b * gram + c * gram @ gram) @ X
    return (X.mT if tall else X).to(matrix.dtype)
