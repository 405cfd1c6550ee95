"""Products of random factors: where rare runs carry an average, and how heavy the tail of noisy descent is (lesson 05).

Noisy descent on one sample multiplies the weight by a = 1 - eta (x + N)^2, N ~ N(0, sigma^2), at each step. Its step
and the limits of its moments stand in `course_lib.optimization.ridge`; here is what the moments do not tell.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor


def _normal_grid(points: int = 40_001) -> tuple[Tensor, Tensor]:
    """Return places z in [-12, 12] and the mass of N(0, 1) at each."""
    z = torch.linspace(-12, 12, points, dtype=torch.float64)
    mass = torch.exp(-z.square() / 2)
    return z, mass / mass.sum()


def _factors(x: float, noise: float, step_size: float) -> tuple[Tensor, Tensor]:
    """Return the factors a on a grid of noise, and the mass of each."""
    if not (noise > 0 and math.isfinite(noise)):
        raise ValueError(f"noise must be a finite standard deviation above 0, got {noise}")
    if not (step_size > 0 and math.isfinite(step_size)):
        raise ValueError(f"step_size must be a finite number above 0, got {step_size}")
    z, mass = _normal_grid()
    return 1 - step_size * (x + noise * z).square(), mass


def tail_exponent(x: float, *, noise: float, step_size: float) -> float:
    """Return the alpha > 0 with E|a|^alpha = 1: P(|w_t| > r) falls like r^-alpha in the long run, if y is not 0 (05.6).

    E|a|^alpha is convex in alpha and 1 at 0, so that another solution exists where it falls at first, E ln|a| < 0,
    and factors above 1 occur. It is found by bisection on a sum over the normal density.

    Raises:
        ValueError: `noise` or `step_size` is not a finite number above 0, or no run settles, E ln|a| >= 0.

    Source: Kesten (1973), Acta Mathematica 131, 207-248.
    """
    a, mass = _factors(x, noise, step_size)
    logs = a.abs().clamp(min=1e-300).log()
    if float(mass @ logs) >= 0:
        raise ValueError(f"step_size {step_size:g} is so large that single runs grow: there is no exponent")
    low, high = 0.0, 1.0
    while float(mass @ (high * logs).exp()) < 1:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        below = float(mass @ (middle * logs).exp()) < 1
        low, high = (middle, high) if below else (low, middle)
    return (low + high) / 2


def carrying_noise(
    x: float, *, noise: float, step_size: float, shape: tuple[int, ...], generator: torch.Generator
) -> Float[Tensor, "*shape"]:
    """Draw the noise of the runs that carry E w_t^2 (y = 0): N(0, sigma^2), weighted by a^2.

    w_t^2 is a product of factors a^2, so E[w_t^2 f(noise)] / E w_t^2 is the mean of f over noise that is drawn with the
    density of N times a^2 / E a^2, independently at each step: the share that runs with such noise have in E w_t^2.

    Raises:
        ValueError: `noise` or `step_size` is not a finite number above 0.
    """
    a, mass = _factors(x, noise, step_size)
    cumulative = (mass * a.square()).cumsum(0)
    drawn = torch.rand(shape, generator=generator, dtype=torch.float64, device=generator.device)
    places = torch.searchsorted(cumulative / cumulative[-1], drawn.cpu())
    z, _ = _normal_grid()
    return (noise * z[places.clamp(max=len(z) - 1)]).to(drawn.device)


def gaussian_spread_limit(columns: int, *, rows_a_step: int = 1) -> float:
    """Return 2 b / (b + d + 1): E|w_t|^2 stays bounded below it, for b fresh rows N(0, I) a step and y = 0 (05.7, 05.8).

    The mean of b matrices u u^T has the square I (1 + (d + 1) / b) on average.

    Raises:
        ValueError: a count is below 1.
    """
    if columns < 1 or rows_a_step < 1:
        raise ValueError(f"columns and rows_a_step must be 1 or more, got {columns} and {rows_a_step}")
    return 2 * rows_a_step / (rows_a_step + columns + 1)


def gaussian_run_limit(columns: int, *, points: int = 4_000) -> float:
    """Return the step above which a single run grows: w <- w - eta (u^T w) u, u ~ N(0, I) fresh at each step (05.7).

    For a w of length 1 the next one has the squared length 1 - 2 eta z^2 + eta^2 z^2 (z^2 + c) with z = u^T w ~ N(0, 1) and
    c, the squared rest of u, chi-squared with d - 1 degrees of freedom. That does not depend on the direction of w, so
    the mean of half its logarithm is the rate of almost every run. It is summed over `points` quantiles of z and of c,
    paired by a lattice, and its zero found by bisection: three digits.

    Raises:
        ValueError: `columns` is below 1.
    """
    if columns < 1:
        raise ValueError(f"columns must be 1 or more, got {columns}")
    from scipy.stats import chi2

    k = torch.arange(points, dtype=torch.float64)
    # A lattice of the golden ratio in the unit square: each place of z meets places of c from everywhere.
    first = (torch.arange(points * 50, dtype=torch.float64) + 0.5) / (points * 50)
    z2 = torch.special.ndtri(0.5 + first / 2).square()
    rest = torch.zeros_like(z2)
    if columns > 1:
        table = torch.from_numpy(chi2(columns - 1).ppf(((k + 0.5) / points).numpy()))
        golden = (5**0.5 - 1) / 2
        rest = table[((torch.arange(len(z2), dtype=torch.float64) * golden % 1) * points).long()]

    def grows(step_size: float) -> bool:
        squared = 1 - 2 * step_size * z2 + step_size**2 * z2 * (z2 + rest)
        return float(squared.clamp(min=1e-300).log().mean()) > 0

    low, high = 0.0, 4.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if grows(middle) else (middle, high)
    return (low + high) / 2
