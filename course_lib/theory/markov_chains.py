"""Markov chains whose next token depends on a few parents, and what a set of lags is worth to an attention head (lesson 27).

A chain of order k has S tokens and a set of parent lags, the largest of which is k. For each configuration of its parents
it holds a law of the next token, drawn from a symmetric Dirichlet law. Tables over the last m tokens have m + 1 axes or
fewer: the newest token is the last axis before that of the next token.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib import torch_private

_SQUARINGS = 20


def check_lags(name: str, lags: Sequence[int], most: int | None = None) -> tuple[int, ...]:
    """The lags as a tuple. Raises ValueError unless they are different, in rising order, from 1 to `most`."""
    found = tuple(lags)
    whole = all(isinstance(lag, int) and not isinstance(lag, bool) and lag >= 1 for lag in found)
    if not whole or list(found) != sorted(set(found)) or (most is not None and found and found[-1] > most):
        bound = "" if most is None else f" and at most {most}"
        raise ValueError(f"{name} must be different lags of at least 1{bound}, in rising order, got {found}")
    return found


@dataclass(frozen=True)
class Chains:
    """Laws pi(e | x_parents) of many chains: `law` (chains, S, ..., S, S), one axis for each parent.

    The axis of the nearest parent is the last before that of the next token.

    Raises:
        ValueError: `parents` are not lags in rising order, or `law` does not have their axes.
    """

    law: Tensor
    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        parents = check_lags("parents", self.parents)
        tokens = self.law.shape[-1]
        if not parents or tuple(self.law.shape[1:]) != (tokens,) * (len(parents) + 1):
            raise ValueError(
                f"law must have shape (chains, {', '.join(['S'] * (len(parents) + 1))}) for the parents {parents}, got "
                f"{tuple(self.law.shape)}"
            )

    @property
    def order(self) -> int:
        """The largest parent lag."""
        return self.parents[-1]

    @property
    def tokens(self) -> int:
        """Number of tokens S."""
        return self.law.shape[-1]

    def next_law(self, length: int) -> Tensor:
        """Law of the next token given the last `length` tokens: (chains, S, ..., S, S), a view with repeated axes.

        Raises:
            ValueError: `length` is below the order.
        """
        if length < self.order:
            raise ValueError(f"length must be at least the order, {self.order}, got {length}")
        shape = [self.tokens if lag in self.parents else 1 for lag in range(length, 0, -1)]
        return self.law.reshape(-1, *shape, self.tokens).expand(-1, *(self.tokens,) * (length + 1))


def random_chains(
    count: int,
    *,
    parents: Sequence[int],
    tokens: int = 3,
    alpha: float | int = 0.1,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> Chains:
    """Draw chains: for each configuration of the parents a law from Dirichlet(alpha, ..., alpha).

    Small `alpha` gives laws with nearly all mass on one token, large `alpha` laws near the uniform one.

    Raises:
        ValueError: `count` or `tokens` is too small, `alpha` is not positive, or `parents` are no lags in rising order.
    """
    parents = check_lags("parents", parents)
    if count < 1 or tokens < 2:
        raise ValueError(f"count must be at least 1 and tokens at least 2, got {count} and {tokens}")
    if not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be a positive finite number, got {alpha!r}")
    shape = (count, *(tokens,) * (len(parents) + 1))
    concentration = torch.full(shape, float(alpha), dtype=dtype, device=device)
    gammas = torch_private.draw_gamma(concentration, generator=generator) + torch.finfo(dtype).tiny
    return Chains(gammas / gammas.sum(dim=-1, keepdim=True), parents)


def draw_tokens(
    chains: Chains, length: int, *, generator: torch.Generator | None = None
) -> Int[Tensor, "chains length"]:
    """Draw one sequence from each chain. The first tokens, as many as the order, are uniform.

    Raises:
        ValueError: `length` is below the order.
    """
    if length < chains.order:
        raise ValueError(f"length must be at least the order, {chains.order}, got {length}")
    law, n = chains.law, len(chains.law)
    steps = law.flatten(1, -2).cumsum(dim=-1)  # (chains, configurations, S)
    new = {"generator": generator, "device": law.device}
    found = list(torch.randint(chains.tokens, (chains.order, n), **new))
    rows = torch.arange(n, device=law.device)
    for _ in range(length - chains.order):
        at = torch.zeros_like(rows)
        for lag in reversed(chains.parents):
            at = at * chains.tokens + found[-lag]
        heights = torch.rand(n, 1, dtype=law.dtype, **new)
        found.append((heights > steps[rows, at, :-1]).sum(dim=-1))
    return torch.stack(found, dim=1)


# The law of a chain that runs on its own


def window_law(chains: Chains, length: int) -> Tensor:
    """Long-run law of the last `length` tokens, (chains, S, ..., S), of a chain whose first tokens are uniform.

    The chain on windows of k tokens is made lazy, (1 + T) / 2, so that it settles even where T is periodic, and its matrix
    is squared 20 times: the law after a million steps. Longer windows follow by the law of the next token.

    Raises:
        ValueError: `length` is below 1.
    """
    if length < 1:
        raise ValueError(f"length must be at least 1, got {length}")
    order, s, n = chains.order, chains.tokens, len(chains.law)
    step = torch.eye(s**order, dtype=chains.law.dtype, device=chains.law.device).reshape(
        s, s ** (order - 1), s**order
    )
    # A window (oldest, rest) goes on to (rest, e) with the probability of e.
    nexts = chains.next_law(order).reshape(n, s, s ** (order - 1), 1, s)
    rest = torch.eye(s ** (order - 1), dtype=step.dtype, device=step.device)[None, None, :, :, None]
    lazy = (step + (nexts * rest).flatten(-2)).reshape(n, s**order, s**order) / 2
    for _ in range(_SQUARINGS):
        lazy = lazy @ lazy
        lazy = lazy / lazy.sum(dim=-1, keepdim=True)
    law = lazy.mean(dim=1).reshape(n, *(s,) * order)
    for _ in range(length - order):
        law = law[..., None] * _last(chains, law)
    return law.flatten(1 + length).sum(dim=-1) if length < order else law


def _last(chains: Chains, law: Tensor) -> Tensor:
    """The law of the next token given all tokens of the windows of `law`."""
    return chains.next_law(law.ndim - 1)


def next_table(chains: Chains, length: int) -> Tensor:
    """Long-run law of the last `length` tokens and the next one, (chains, S, ..., S, S).

    Raises:
        ValueError: `length` is below the order.
    """
    return window_law(chains, max(length, 1))[..., None] * chains.next_law(length)


def _pairs(table: Tensor, lags: Sequence[int]) -> Tensor:
    """mu(x_S, e) as (chains, configurations of S, tokens) from the table of all lags and the next token."""
    length = table.ndim - 2
    kept = check_lags("lags", lags, length)
    gone = [length + 1 - lag for lag in range(1, length + 1) if lag not in kept]
    small = table.sum(dim=gone) if gone else table
    return small.reshape(len(table), -1, table.shape[-1])


# What a set of lags is worth


def criterion_by_sums(table: Tensor, lags: Sequence[int]) -> float:
    """I(S) = sum_x mu(x_S)^2 (sum_e mu(e | x_S)^2 / mu(e) - 1) (27.6) of one chain, to be read.

    `table` is mu(x_m, ..., x_1, e), one axis for each lag, as `next_table(...)[i]`.
    """
    length, s = table.ndim - 1, table.shape[-1]
    next_token = table.reshape(-1, s).sum(dim=0)
    total = 0.0
    for tokens in product(range(s), repeat=len(lags)):
        at = [slice(None)] * length
        for lag, token in zip(lags, tokens, strict=True):
            at[length - lag] = token
        joint = table[tuple(at)].reshape(-1, s).sum(dim=0)  # mu(x_S, e)
        mass = joint.sum()
        if mass > 0:
            total += float(mass**2 * (((joint / mass) ** 2 / next_token).sum() - 1))
    return total


def criterion(table: Tensor, lags: Sequence[int]) -> Float[Tensor, " chains"]:
    """I(S) of many chains (27.6), from `next_table`: sum_x (sum_e mu(x_S, e)^2 / mu(e) - mu(x_S)^2).

    Units: none. At least 0, and at most S - 1 for S tokens.

    Raises:
        ValueError: `lags` are not in rising order, or longer than the table.
    """
    joint = _pairs(table, lags)
    next_token = joint.sum(dim=1, keepdim=True)
    ratio = joint.square() / next_token.clamp(min=torch.finfo(table.dtype).tiny)
    return ratio.sum(dim=(1, 2)) - joint.sum(dim=-1).square().sum(dim=-1)


def chi_square(table: Tensor, lags: Sequence[int]) -> Float[Tensor, " chains"]:
    """sum_x mu(x_S) (sum_e mu(e | x_S)^2 / mu(e) - 1): plain chi^2 information, which no further lag can lower (27.7).

    Raises:
        ValueError: as `criterion`.
    """
    joint, tiny = _pairs(table, lags), torch.finfo(table.dtype).tiny
    mass, next_token = joint.sum(dim=-1, keepdim=True), joint.sum(dim=1, keepdim=True)
    return (joint.square() / (mass.clamp(min=tiny) * next_token).clamp(min=tiny)).sum(dim=(1, 2)) - 1


# Predictors to compare with


def generalised_head(
    tokens: Int[Tensor, "sequences length"], lags: Sequence[int], vocabulary: int
) -> Float[Tensor, "sequences vocabulary"]:
    """Shares of each token among the places whose `lags` match those of the place to come (27.1), in float64.

    Where no place matches, and for no lags, these are the shares among all places that have such lags: the unigram
    baseline. Lags (1,) are the bigram baseline. The place to come follows the last token.

    Raises:
        ValueError: `lags` are not in rising order, or the sequences are not longer than the largest.
    """
    lags = check_lags("lags", lags, tokens.shape[1] - 1)
    reach, length = max(lags, default=0), tokens.shape[1]
    matches = torch.ones(len(tokens), length - reach, dtype=torch.float64, device=tokens.device)
    for lag in lags:
        matches = matches * (tokens[:, reach - lag : length - lag] == tokens[:, length - lag, None])
    seen = matches.sum(dim=1, keepdim=True)
    weights = torch.where(seen > 0, matches / seen.clamp(min=1), 1 / (length - reach))
    one_hot = torch.nn.functional.one_hot(tokens[:, reach:], vocabulary).double()
    return (weights[:, None] @ one_hot)[:, 0]


def oracle(chains: Chains, tokens: Int[Tensor, "chains length"]) -> Float[Tensor, "chains tokens"]:
    """The law of the token that follows each sequence, for a reader that knows the chain.

    Raises:
        ValueError: the sequences are shorter than the order, or not one for each chain.
    """
    if tokens.shape[0] != len(chains.law) or tokens.shape[1] < chains.order:
        raise ValueError(
            f"tokens must hold {len(chains.law)} sequences of at least {chains.order} tokens, got {tuple(tokens.shape)}"
        )
    at = [tokens[:, -lag] for lag in reversed(chains.parents)]
    return chains.law[torch.arange(len(tokens), device=tokens.device), *at]


def cross_entropy(
    prediction: Float[Tensor, "*sequences vocabulary"],
    target: Int[Tensor, "*as_many"],
    eps: float | int = 1e-3,
) -> Float[Tensor, "*runs"]:
    """Mean of -log(prediction of the target + eps) over the last axis of `target`, in nats.

    A share can be exactly 0: `eps` bounds what such a miss costs.
    """
    chosen = prediction.gather(-1, target[..., None])[..., 0]
    return -(chosen + eps).log().mean(dim=-1)
