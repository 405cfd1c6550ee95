"""Gradients of an expectation whose distribution is what we tune (lesson 09).

F(theta) = E[f(x)] with x ~ p_theta. Two unbiased estimators of its gradient from samples: the score
function weighs f(x) with grad log p_theta(x) and needs values of f only; the reparameterised (pathwise)
one writes x = g(z, theta) and needs the gradient of f. Every function here returns one estimate a sample,
since the spread of the estimates is what the lesson is about; their mean is the estimator that one uses.
For a Gaussian, x = mean + std * noise with standard normal noise, and theta is the mean.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


def _require_positive(name: str, value: float | int) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be above 0, got {value:g}")


# Gaussian


def score_gradients(
    f: Callable[[Tensor], Tensor],
    mean: Float[Tensor, " k"],
    *,
    std: float | int,
    noise: Float[Tensor, "samples k"],
    baseline: float | int | Float[Tensor, " samples"] = 0.0,
) -> Float[Tensor, "samples k"]:
    """(f(x) - b) (x - mu) / sigma^2 for each sample x = mu + sigma z (09.2, 09.6).

    Shapes: `f` maps samples x k to samples values; `baseline` is one number, or one a sample that does
    not depend on that sample.
    Ranges: `std` above 0. `f` may be any function, also a discontinuous one.

    Raises:
        ValueError: `std` is not positive.
    """
    _require_positive("std", std)
    return (f(mean + std * noise) - baseline)[:, None] * noise / std


def pathwise_gradients(
    f: Callable[[Tensor], Tensor],
    mean: Float[Tensor, " k"],
    *,
    std: float | int,
    noise: Float[Tensor, "samples k"],
) -> Float[Tensor, "samples k"]:
    """grad f(mu + sigma z) for each sample: the reparameterised gradient with respect to mu (09.3).

    It is unbiased for a continuous f that is differentiable but for kinks. Where f jumps, the derivative
    that autograd sees knows nothing of the jump; an f that autograd cannot see through at all, such as
    a comparison, is constant wherever it has a derivative, and its estimates are 0.
    Shapes: `f` maps samples x k to samples values.

    Raises:
        ValueError: `std` is not positive.
    """
    _require_positive("std", std)
    x = (mean + std * noise).detach().requires_grad_()
    values = f(x)
    if not values.requires_grad:
        return torch.zeros_like(x)
    return torch.autograd.grad(values.sum(), x)[0]


def gaussian_expectation(
    function: Callable[[Tensor], Tensor], *, mean: float | int, std: float | int, nodes: int = 64
) -> float:
    """E[function(x)] for x ~ N(mean, std^2) by Gauss-Hermite quadrature, without sampling.

    Exact up to rounding for polynomials of degree up to 2 nodes - 1, and accurate for smooth functions
    that a polynomial of that degree fits well; not meant for functions that jump.
    Shapes: `function` maps a float64 tensor of nodes to one of the same shape.
    Ranges: `nodes` from 1 to 180, beyond which the weights underflow.

    Raises:
        ValueError: `std` is negative or `nodes` is out of range.
    """
    if std < 0:
        raise ValueError(f"std must be 0 or more, got {std:g}")
    if not 1 <= nodes <= 180:
        raise ValueError(f"nodes must lie in 1 to 180, got {nodes}")
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    values = function(mean + std * torch.from_numpy(points))
    return float(values @ torch.from_numpy(weights)) / float(weights.sum())


def quadratic_score_variance(
    *, mean: float | int, std: float | int, dimension: int = 1, baseline: float | int = 0.0
) -> float:
    """Variance of one coordinate of the score estimate for f(x) = ||x||^2, every mean equal (09.5, 09.9).

    With v the rest of f, the sum of the other k - 1 squares less the baseline,
    E[g^2] = (E[z^2 x^4] + 2 E[z^2 x^2] E[v] + E[v^2]) / sigma^2 and E[g] = 2 mu; for k = 1 and b = 0 this is
    mu^4 / sigma^2 + 14 mu^2 + 15 sigma^2.

    Raises:
        ValueError: `std` is not positive or `dimension` is below 1.
    """
    _require_positive("std", std)
    if dimension < 1:
        raise ValueError(f"dimension must be 1 or more, got {dimension}")
    m2, s2 = mean**2, std**2
    rest = (dimension - 1) * (m2 + s2) - baseline
    rest_squared = rest**2 + (dimension - 1) * (4 * m2 * s2 + 2 * s2**2)
    own_fourth, own_second = m2**2 + 18 * m2 * s2 + 15 * s2**2, m2 + 3 * s2
    return (own_fourth + 2 * own_second * rest + rest_squared) / s2 - 4 * m2


def cosine_variances(*, frequency: float | int, mean: float | int, std: float | int) -> tuple[float, float]:
    """Variances of the score and of the reparameterised estimate for f(x) = cos(frequency x).

    From E[cos(a x)] = cos(a mu) exp(-a^2 sigma^2 / 2). The first stays below 1 / sigma^2; the second grows
    as frequency^2 / 2.

    Raises:
        ValueError: `std` is not positive.
    """
    _require_positive("std", std)
    spread = (frequency * std) ** 2
    gradient = -frequency * np.sin(frequency * mean) * np.exp(-spread / 2)
    double = np.cos(2 * frequency * mean) * np.exp(-2 * spread)
    score = (1 + double * (1 - 4 * spread)) / (2 * std**2) - gradient**2
    pathwise = frequency**2 * (1 - double) / 2 - gradient**2
    return float(score), float(pathwise)


# Baselines


def best_baseline(values: Float[Tensor, " samples"], scores: Float[Tensor, "samples k"]) -> float:
    """E[f ||s||^2] / E[||s||^2]: the constant that makes the total variance smallest (09.7).

    Estimated from samples of f and of the score s = grad log p. A baseline fitted to the samples that it
    is then used on is not independent of them: use separate samples, or `leave_one_out`.

    Raises:
        ValueError: all scores are zero.
    """
    weight = scores.square().sum(dim=1)
    if not weight.sum() > 0:
        raise ValueError("scores must not all be 0: then every baseline is as good as any other")
    return float((weight * values).sum() / weight.sum())


def leave_one_out(values: Float[Tensor, " samples"]) -> Float[Tensor, " samples"]:
    """For each sample the mean of f over the others: a baseline that keeps the estimate unbiased (09.8).

    Raises:
        ValueError: there are fewer than two samples.
    """
    if len(values) < 2:
        raise ValueError(f"values must hold at least 2 samples, got {len(values)}")
    return (values.sum() - values) / (len(values) - 1)


# Categorical


def categorical_gradient(logits: Float[Tensor, " n"], values: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """p_i (f_i - E[f]): the exact gradient of E[f(x)], x ~ softmax(logits), for the logits (09.10)."""
    probabilities = logits.softmax(dim=0)
    return probabilities * (values - probabilities @ values)


def categorical_score_gradients(
    logits: Float[Tensor, " n"],
    values: Float[Tensor, " samples"],
    *,
    drawn: Int[Tensor, " samples"],
    baseline: float | int | Float[Tensor, " samples"] = 0.0,
) -> Float[Tensor, "samples n"]:
    """(f(x) - b) (e_x - p): the score estimates for the logits of softmax(logits) (09.10).

    Shapes: `drawn` holds the category of each sample and `values` its f.
    """
    one_hot = torch.nn.functional.one_hot(drawn, len(logits)).to(logits.dtype)
    return (values - baseline)[:, None] * (one_hot - logits.softmax(dim=0))


def gumbel_noise(
    *shape: int, generator: torch.Generator, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "..."]:
    """-log(-log u) with u uniform on (0, 1): argmax(logits + noise) is a sample of softmax(logits) (09.11)."""
    u = torch.rand(shape, generator=generator, dtype=dtype, device=generator.device)
    return -torch.log(-torch.log(u.clamp_min(torch.finfo(dtype).tiny)))


def gumbel_softmax(
    logits: Float[Tensor, " n"], noise: Float[Tensor, "samples n"], *, temperature: float | int
) -> Float[Tensor, "samples n"]:
    """softmax((logits + noise) / temperature): a differentiable stand-in for the one-hot sample (09.12).

    Its gradient is that of another objective: f is evaluated between the categories, where the original
    problem never looks.
    Ranges: `temperature` above 0; towards 0 the bias vanishes and the variance grows as its inverse.
    Source: Jang, Gu and Poole, arXiv:1611.01144; Maddison, Mnih and Teh, arXiv:1611.00712.

    Raises:
        ValueError: `temperature` is not positive.
    """
    _require_positive("temperature", temperature)
    return ((logits + noise) / temperature).softmax(dim=1)
