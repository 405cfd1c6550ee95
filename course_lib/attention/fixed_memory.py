"""What a matrix of fixed size recalls: pairs written into it, what it answers, and which value is nearest (lesson 20).

A memory U of shape (d, M) is all that a linear attention layer keeps of the past. A pair of a key k and a value v is
written by addition, after the past has faded, or by the delta rule, which writes what the memory does not answer yet; a
query q reads U^T q. The answer to a stored key is its value plus crosstalk from all others. Whether it can still be
recognised among the stored values is another question than how far off it is.
"""

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import normalize

from course_lib.attention.ridge import delta_rule

Rule = Literal["sums", "decay", "delta"]


def unit_vectors(
    count: int,
    d: int,
    *,
    overlap: float | int = 0.0,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float64,
) -> Float[Tensor, "count d"]:
    """Draw random vectors of length 1; two of them have the inner product `overlap` on average.

    Each is sqrt(overlap) c + sqrt(1 - overlap) w, with one direction c for all, and w random across it; without overlap,
    directions are uniform.

    Ranges: `overlap` from 0 up to, not including, 1.

    Raises:
        ValueError: a size is below 1 (with an overlap, d below 2), or `overlap` is outside its range.
    """
    if count < 1 or d < 1 + bool(overlap) or not 0 <= overlap < 1:
        raise ValueError(f"count and d must be 1 or more, overlap in [0, 1), got {count}, {d} and {overlap}")
    options = {"generator": generator, "dtype": dtype, "device": generator.device if generator else None}
    drawn = torch.randn(count, d, **options)
    if not overlap:
        return normalize(drawn, dim=1)
    common = normalize(torch.randn(d, **options), dim=0)
    across = normalize(drawn - torch.outer(drawn @ common, common), dim=1)
    return math.sqrt(overlap) * common + math.sqrt(1 - overlap) * across


def write_pairs(
    keys: Float[Tensor, "pairs d"],
    values: Float[Tensor, "pairs d_v"],
    *,
    rule: Rule = "sums",
    step_size: float | int = 1.0,
    decay: float | int = 1.0,
) -> Float[Tensor, "d d_v"]:
    """Return the memory after all pairs were written in order.

    - "sums": U += k v^T, one product for all pairs;
    - "decay": U = gamma U + k v^T (20.6), with `decay` gamma;
    - "delta": U += eta k (v - U^T k)^T (20.4), with `step_size` eta; keys have length 1.

    Raises:
        ValueError: the rule is unknown.
    """
    if rule == "sums":
        return keys.mT @ values
    if rule == "decay":
        age = torch.arange(len(keys) - 1, -1, -1, dtype=keys.dtype, device=keys.device)
        return (decay ** age[:, None] * keys).mT @ values
    if rule == "delta":
        pair = (x[None] for x in (keys, keys, values))
        _, state = delta_rule(*pair, step_size=step_size, return_state=True)
        return state.weights[0]
    raise ValueError(f"rule must be 'sums', 'decay' or 'delta', got {rule!r}")


def squared_error(answers: Float[Tensor, "pairs d_v"], values: Float[Tensor, "pairs d_v"]) -> float:
    """Return the mean squared distance of the answers from their values, in units of the values' mean squared length."""
    return float((answers - values).square().sum() / values.square().sum())


def recalled(
    answers: Float[Tensor, "pairs d_v"], values: Float[Tensor, "pairs d_v"]
) -> Bool[Tensor, " pairs"]:
    """Return for each answer whether its own value is the nearest of all stored ones.

    Among values of one length the nearest is the one with the largest inner product, whatever the length of the answer.
    """
    nearest = torch.cdist(answers, values, compute_mode="donot_use_mm_for_euclid_dist").argmin(1)
    return nearest == torch.arange(len(values), device=values.device)


def crosstalk_size(pairs: int, d: int) -> float:
    """Return (N - 1)/d, the mean squared length of the crosstalk among random unit keys and unit values (20.2)."""
    return (pairs - 1) / d


def expected_recall(pairs: int, d: int) -> float:
    """Return the share of N random pairs that sums should recall, as a race of random matches (20.3).

    The answer's match with its own value is 1 + e. A wrong value with x = k_i.k_j and y = v_i.v_j, both of variance 1/d, is
    matched by y (1 + e - x) + x + sqrt(1 - y^2) z: so it loses where z < sqrt((1 - y)/(1 + y)) (1 - x + e). The crosstalk
    gives e and z the variance (N - 2)/d^2. Here all of them are independent normal numbers, and the share is the chance that
    all N - 1 lose.
    """
    noise = math.sqrt(max(pairs - 2, 0)) / d + 1e-12
    t = torch.linspace(-6, 6, 121, dtype=torch.float64)
    weight = torch.exp(-(t**2) / 2)
    weight = weight / weight.sum()
    small = (t / math.sqrt(d)).clamp(-0.95, 0.95)
    x, y, own = small[:, None, None], small[:, None], noise * t
    margin = ((1 - y) / (1 + y)).sqrt() * (1 - x + own)
    loses = torch.einsum("x, y, xye -> e", weight, weight, torch.special.ndtr(margin / noise))
    return float(weight @ loses ** (pairs - 1))


def share_left(
    age: Float[Tensor, "*ages"], d: int, *, step_size: float | int = 1.0
) -> Float[Tensor, "*ages"]:
    """Return eta (1 - eta/d)^t, how much of a value the delta rule still answers after t later random keys (20.5)."""
    return step_size * (1 - step_size / d) ** age
