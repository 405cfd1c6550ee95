"""Which norm a trained attention layer minimises: one softmax head on separable samples (lesson 29).

A sample is T tokens x_t, a query z and a label y = +-1. The head answers f = v . sum_t p_t x_t with p = softmax(x_t . W z)
and a fixed v. The token with the largest score y v . x_t is the optimal one. Everything that training sees of a sample are
its features phi_t = (x_opt - x_t) z^T, one for each other token, and the gaps between the scores; <phi_t, W> is by how much
the optimal token's logit exceeds token t's. For a diagonal W = diag(beta) a feature is the vector (x_opt - x_t) * z.

Gradient flow is followed in rescaled time: its path, with steps that are bounded in the logits, and with the softmax's tail
as logarithms. In plain float64 the loss stops to change at a margin of about 36; here the margin may be in the thousands.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy import sparse
from scipy.optimize import linprog, nnls
from torch import Tensor
from torch.nn.functional import softplus

Parametrisation = Literal["W", "kq", "KQ"]
PARAMETERS = {"W": 1, "kq": 2, "KQ": 2}


@dataclass(frozen=True)
class Samples:
    """Sets of labelled samples; further dimensions in front, alike in all four, hold further sets.

    Shapes: `tokens` (..., n, T, d), `queries` (..., n, d), `labels` (..., n) of -1 and 1, `value` (..., d): the vector v.

    Raises:
        ValueError: shapes do not fit, or there are fewer than two tokens.
    """

    tokens: Float[Tensor, "*sets n T d"]
    queries: Float[Tensor, "*others m width"]
    labels: Float[Tensor, "*more k"]
    value: Float[Tensor, "*rest side"]

    def __post_init__(self):
        *sets, n, t, d = self.tokens.shape
        if t < 2:
            raise ValueError(
                f"tokens must hold at least two for each sample, got shape {tuple(self.tokens.shape)}"
            )
        for name, wanted in (("queries", (*sets, n, d)), ("labels", (*sets, n)), ("value", (*sets, d))):
            if (found := tuple(getattr(self, name).shape)) != wanted:
                raise ValueError(
                    f"{name} must have shape {wanted} for tokens of {tuple(self.tokens.shape)}, got {found}"
                )


@dataclass(frozen=True)
class Constraints:
    """What training sees of samples (29.2), with s = T - 1 other tokens each.

    Shapes: `features` (..., n, s, d) for diagonal weights, (..., n, s, d, d) for full ones; `gaps` (..., n, s), by how
    much the optimal token's score exceeds each other one's, at least 0; `best` (..., n), that score.
    """

    features: Float[Tensor, "..."]
    gaps: Float[Tensor, "*sets n s"]
    best: Float[Tensor, "*sets n"]

    def margins(self, weight: Float[Tensor, "..."]) -> Float[Tensor, "*sets n s"]:
        """<phi, W> for every feature: by how much the optimal token's logit exceeds each other one's."""
        *lead, n, s = self.gaps.shape
        rows = self.features.reshape(*lead, n * s, -1)
        return (rows @ weight.reshape(*lead, -1, 1)).reshape(*lead, n, s)

    def margin(self, weight: Float[Tensor, "..."]) -> Float[Tensor, "*sets"]:
        """The smallest of them in each set of samples."""
        return self.margins(weight).amin(dim=(-1, -2))

    def table(self) -> np.ndarray:
        """The features of one set of samples as a table, one in each row, for a solver."""
        if self.gaps.ndim != 2:
            raise ValueError(
                f"a solver takes one set of samples, gaps of shape (n, s), got {tuple(self.gaps.shape)}"
            )
        return self.features.detach().cpu().double().reshape(self.gaps.numel(), -1).numpy()


# Samples


def planted_samples(
    n: int = 20,
    n_tokens: int = 5,
    d: int = 40,
    *,
    planted: int = 2,
    noise: float | int = 0.2,
    generator: torch.Generator,
) -> Samples:
    """Samples whose optimal token agrees with the query in the first `planted` coordinates, all else noise.

    Queries hold signs. The last coordinate carries the score: y for the optimal token, between 0 and -y for others.
    """
    signs = lambda *shape: torch.randint(0, 2, shape, generator=generator).double() * 2 - 1  # noqa: E731
    tokens = noise * torch.randn(n, n_tokens, d, generator=generator, dtype=torch.float64)
    queries, labels, rows = signs(n, d), signs(n), torch.arange(n)
    optimal = torch.randint(0, n_tokens, (n,), generator=generator)
    tokens[rows, optimal, :planted] += queries[:, :planted]
    tokens[..., -1] = -labels[:, None] * torch.rand(n, n_tokens, generator=generator, dtype=torch.float64)
    tokens[rows, optimal, -1] = labels
    return Samples(tokens, queries, labels, torch.eye(d, dtype=torch.float64)[-1])


def random_samples(n: int, n_tokens: int, d: int, *, generator: torch.Generator) -> Samples:
    """Samples of independent normal numbers, with a random v of length 1 and random labels."""
    tokens, queries, value = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((n, n_tokens, d), (n, d), (d,))
    )
    labels = torch.randint(0, 2, (n,), generator=generator).double() * 2 - 1
    return Samples(tokens, queries, labels, value / value.norm())


def stacked(samples: Sequence[Samples]) -> Samples:
    """Several sets of samples of one size as one, with a dimension in front."""
    return Samples(
        *(
            torch.stack([getattr(s, name) for s in samples])
            for name in ("tokens", "queries", "labels", "value")
        )
    )


# Loss and gradient


def attention_output(samples: Samples, weight: Float[Tensor, "*sets d d"]) -> Float[Tensor, "*sets n"]:
    """f = v . X^T softmax(X W z) for every sample (29.1), to be read."""
    logits = samples.tokens @ (weight @ samples.queries.mT).mT.unsqueeze(-1)
    read = (logits.softmax(dim=-2) * samples.tokens).sum(dim=-2)
    return (read @ samples.value.unsqueeze(-1)).squeeze(-1)


def exponential_loss(samples: Samples, weight: Float[Tensor, "*sets d d"]) -> Float[Tensor, "*sets"]:
    """L = sum_i exp(-y_i f_i) (29.1), to be read."""
    return (-samples.labels * attention_output(samples, weight)).exp().sum(dim=-1)


def constraints(samples: Samples, *, diagonal: bool) -> Constraints:
    """Return features, gaps and best scores of samples (29.2); for diagonal weights or for full ones."""
    tokens, queries = samples.tokens, samples.queries
    scores = samples.labels.unsqueeze(-1) * (tokens @ samples.value[..., None, :, None]).squeeze(-1)
    order = scores.argsort(dim=-1, descending=True, stable=True)
    scores = scores.gather(-1, order)
    tokens = tokens.gather(-2, order.unsqueeze(-1).expand_as(tokens))
    apart = tokens[..., :1, :] - tokens[..., 1:, :]
    z = queries.unsqueeze(-2)
    features = apart * z if diagonal else apart.unsqueeze(-1) * z.unsqueeze(-2)
    return Constraints(features, scores[..., :1] - scores[..., 1:], scores[..., 0])


def _logits(margins: Tensor, gaps: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithms of the softmax's weights on the other tokens, and the loss of score that they cause."""
    log_p = -margins - softplus(torch.logsumexp(-margins, dim=-1, keepdim=True))
    return log_p, (log_p.exp() * gaps).sum(dim=-1, keepdim=True)


def pull(
    margins: Float[Tensor, "*sets n s"], gaps: Float[Tensor, "*others m t"], best: Float[Tensor, "*more k"]
) -> Float[Tensor, "*sets n s"]:
    """a_t = exp(-y f) p_t (y f - score_t) (29.3), divided by the largest in size of the set.

    The pull of each feature on W: minus the gradient is the sum of a_t phi_t. A difference of logarithms, so that nothing
    underflows at any margin: with p_t = 1e-400 everywhere the quotients are still right.

    Raises:
        ValueError: shapes do not fit.
    """
    if margins.shape != gaps.shape or best.shape != gaps.shape[:-1]:
        raise ValueError(
            f"margins and gaps must have one shape, and best that without its last dimension, got {tuple(margins.shape)}, "
            f"{tuple(gaps.shape)} and {tuple(best.shape)}"
        )
    log_p, lost = _logits(margins, gaps)
    excess = gaps - lost  # y f - score_t
    log_a = log_p + lost - best.unsqueeze(-1) + excess.abs().log()
    return excess.sign() * (log_a - log_a.amax(dim=(-1, -2), keepdim=True)).exp()


def loss_gradient(given: Constraints, weight: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """dL/dW = -sum_i sum_t a_it phi_it (29.3), by hand, not rescaled; in the shape of W (or beta)."""
    log_p, lost = _logits(given.margins(weight), given.gaps)
    a = (log_p + lost - given.best.unsqueeze(-1)).exp() * (given.gaps - lost)
    spare = given.features.ndim - a.ndim
    return -(a[(...,) + (None,) * spare] * given.features).sum(dim=(a.ndim - 2, a.ndim - 1))


# Gradient flow


def product(parameters: Sequence[Tensor], parametrisation: str) -> Tensor:
    """The matrix W that parameters stand for: themselves, diag(k * q) as the vector k * q, or K Q^T.

    Raises:
        ValueError: the parametrisation is unknown, or has another number of parameters.
    """
    if parametrisation not in PARAMETERS:
        raise ValueError(f"parametrisation must be one of {list(PARAMETERS)}, got {parametrisation!r}")
    if len(parameters) != PARAMETERS[parametrisation]:
        raise ValueError(
            f"{parametrisation} has {PARAMETERS[parametrisation]} parameters, got {len(parameters)}"
        )
    if parametrisation == "W":
        return parameters[0]
    first, second = parameters
    return first * second if parametrisation == "kq" else first @ second.mT


def _velocity(parameters: Sequence[Tensor], force: Tensor, parametrisation: str) -> Tensor:
    """How the product moves where the parameters move along minus their gradients (29.4)."""
    if parametrisation == "W":
        return force
    first, second = parameters
    if parametrisation == "kq":
        return force * (first.square() + second.square())
    return force @ (second @ second.mT) + (first @ first.mT) @ force


def flow_by_euler(
    samples: Samples, start: Sequence[Tensor], *, diagonal: bool, step: float, steps: int
) -> list[Tensor]:
    """Gradient descent on one set of samples with small steps, by autograd, to be read: the flow in its own time.

    One parameter is W (beta where diagonal), two are K and Q (k and q where diagonal).
    """
    parameters = [p.clone().requires_grad_() for p in start]
    for _ in range(steps):
        with torch.enable_grad():
            made = parameters[0] if len(parameters) == 1 else product(parameters, "kq" if diagonal else "KQ")
            loss = exponential_loss(samples, torch.diag(made) if diagonal else made)
        for parameter, slope in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.data -= step * slope
    return [p.detach() for p in parameters]


def flow_step(
    parameters: Sequence[Tensor],
    given: Constraints,
    *,
    parametrisation: str,
    logit_step: float | int = 1.0,
    growth: float | int = 0.2,
) -> list[Tensor]:
    """One step along the path of gradient flow, in every set of samples by its own time.

    In the time of the step no logit difference moves more than about `logit_step` (those that are far ahead of the smallest
    one: a quarter of their lead more), and no parameter is multiplied by more than about e^growth.
    While the force G = sum a phi is held, k + q grows like e^(Gt) and k - q falls like e^(-Gt), which is exact;
    K and Q move by two terms of the same series. Reads nothing back.

    Raises:
        ValueError: the parametrisation is unknown, or has another number of parameters.
    """
    here = product(parameters, parametrisation)
    *lead, n, s = given.gaps.shape
    rows = given.features.reshape(*lead, n * s, -1)
    margins = given.margins(here)
    a = pull(margins, given.gaps, given.best).reshape(*lead, 1, n * s)
    force = (a @ rows).reshape(here.shape)
    slack = (
        1 + (margins - margins.amin(dim=(-1, -2), keepdim=True)) / 4
    )  # far ahead of the smallest: no matter how fast
    moved = (given.margins(_velocity(parameters, force, parametrisation)).abs() / slack).amax(dim=(-1, -2))
    time = logit_step / moved
    if parametrisation != "W":
        time = torch.minimum(time, growth / force.flatten(len(lead)).abs().amax(dim=-1))
    force = time[(...,) + (None,) * (here.ndim - len(lead))] * force
    if parametrisation == "W":
        return [here + force]
    first, second = parameters
    if parametrisation == "kq":
        up, down = (first + second) * force.exp(), (first - second) * (-force).exp()
        return [(up + down) / 2, (up - down) / 2]
    push_first, push_second = force @ second, force.mT @ first
    return [first + push_first + force @ push_second / 2, second + push_second + force.mT @ push_first / 2]


@dataclass(frozen=True)
class Flow:
    """Products along a flow.

    Shapes: `products` (margins, ..., d) or (margins, ..., d, d), the first product whose margin reached each of the
    margins asked for; NaN in sets of samples that never did. `reached` (...) tells whether a set reached the last one.
    """

    products: Float[Tensor, "..."]
    reached: Bool[Tensor, "..."]
    parameters: list[Tensor]


def gradient_flow(
    given: Constraints,
    start: Sequence[Tensor],
    *,
    parametrisation: str,
    margins: Sequence[float | int] = (1000.0,),
    logit_step: float | int = 1.0,
    max_steps: int = 20_000,
) -> Flow:
    """Follow gradient flow on the loss until the margin is reached in every set of samples, in rescaled time (29.6).

    `start` is [W], [k, q] or [K, Q] with the dimensions of the sets in front. A flow need not reach the margin: a sample
    may settle on a wrong token. After `max_steps` such sets are given up.

    Raises:
        ValueError: `margins` do not increase, or the parameters do not fit.
    """
    goals = list(margins)
    if not goals or any(b <= a for a, b in pairwise(goals)):
        raise ValueError(f"margins must be increasing numbers, got {goals}")
    parameters = list(start)
    here = product(parameters, parametrisation)
    spare = (...,) + (None,) * (here.ndim - given.gaps.ndim + 2)
    found = torch.stack([torch.full_like(here, torch.nan)] * len(goals))
    goal = torch.tensor(goals, dtype=here.dtype, device=here.device)
    goal = goal.reshape(-1, *(1,) * (given.gaps.ndim - 2))
    for step in range(max_steps):
        first = (given.margin(here) >= goal)[spare] & found.isnan()
        found = torch.where(first, here, found)
        if step % 50 == 0 and not found[-1].isnan().any():  # the only value read back
            break
        parameters = flow_step(parameters, given, parametrisation=parametrisation, logit_step=logit_step)
        here = product(parameters, parametrisation)
    return Flow(found, ~found[-1].isnan().flatten(given.gaps.ndim - 2).any(dim=-1), parameters)


# The three separating problems: the smallest norm with every <phi, W> >= 1 (29.8)


def _solved(found: np.ndarray | None, given: Constraints) -> Tensor:
    if found is None or not np.isfinite(found).all():
        raise ValueError("the samples are not separable: no W has <phi, W> >= 1 for every feature")
    shape = given.features.shape[2:]
    return torch.as_tensor(np.ascontiguousarray(found)).reshape(shape).to(given.features)


def frobenius_svm(given: Constraints) -> Tensor:
    """argmin ||W||_F with <phi, W> >= 1 for every feature, in the shape of W (or beta).

    Least distance programming: non-negative least squares on the features and a row of ones gives W from its residual.
    Source: Lawson and Hanson (1974), chapter 23.

    Raises:
        ValueError: no W satisfies the constraints, or there are several sets of samples.
    """
    rows = given.table()
    system = np.vstack([rows.T, np.ones(len(rows))])
    target = np.eye(len(system))[-1]
    multipliers, distance = nnls(system, target, maxiter=30 * len(rows))
    residual = system @ multipliers - target
    return _solved(None if distance < 1e-9 else -residual[:-1] / residual[-1], given)


def l1_svm(given: Constraints) -> Float[Tensor, " d"]:
    """argmin ||beta||_1 with <phi, beta> >= 1: the nuclear norm's problem for diagonal weights, a linear programme.

    Raises:
        ValueError: the features are not those of diagonal weights, no beta satisfies the constraints, or there are
            several sets of samples.
    """
    rows = given.table()
    if given.features.ndim != 3:
        raise ValueError(
            f"features must have shape (n, s, d), got {tuple(given.features.shape)}; see nuclear_svm"
        )
    found = linprog(
        np.ones(2 * rows.shape[1]), A_ub=np.hstack([-rows, rows]), b_ub=-np.ones(len(rows)), method="highs"
    )
    return _solved(None if found.x is None else np.subtract(*np.split(found.x, 2)), given)


def nuclear_svm(given: Constraints) -> Float[Tensor, "d d"]:
    """argmin ||W||_* with <phi, W> >= 1, by a semidefinite programme of CLARABEL.

    ||W||_* is half the smallest tr A + tr B for which [[A, W], [W^T, B]] is positive semidefinite.

    Raises:
        ValueError: the features are not those of full weights, no W satisfies the constraints, or there are several sets.
    """
    import clarabel

    rows = given.table()
    if given.features.ndim != 4:
        raise ValueError(
            f"features must have shape (n, s, d, d), got {tuple(given.features.shape)}; see l1_svm"
        )
    d = given.features.shape[-1]
    side = 2 * d
    # The upper triangle, column by column, entries off the diagonal times sqrt 2: (i, j) has the place j (j + 1) / 2 + i.
    size = side * (side + 1) // 2
    j, i = np.tril_indices(side)
    cost = (i == j) / 2.0
    above = np.zeros((len(rows), size))
    above[:, (i < d) & (j >= d)] = (
        rows.reshape(-1, d, d)[:, i[(i < d) & (j >= d)], j[(i < d) & (j >= d)] - d] / 2**0.5
    )
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    found = clarabel.DefaultSolver(
        sparse.csc_matrix((size, size)),
        cost,
        sparse.csc_matrix(np.vstack([-above, -np.eye(size)])),
        np.concatenate([-np.ones(len(rows)), np.zeros(size)]),
        [clarabel.NonnegativeConeT(len(rows)), clarabel.PSDTriangleConeT(side)],
        settings,
    ).solve()
    lifted = np.zeros((side, side))
    lifted[i, j] = np.asarray(found.x) / np.where(i == j, 1, 2**0.5)
    solved = str(found.status) in ("Solved", "AlmostSolved")  # the latter: to about 1e-8
    return _solved(lifted[:d, d:] if solved else None, given)


# What is measured


def nuclear_norm(weight: Float[Tensor, "..."], *, diagonal: bool) -> Float[Tensor, "..."]:
    """The sum of the singular values of W; of diag(beta), given as beta, the sum of the sizes of its entries."""
    return weight.abs().sum(dim=-1) if diagonal else torch.linalg.svdvals(weight).sum(dim=-1)


def direction_cosine(
    a: Float[Tensor, "..."], b: Float[Tensor, "..."], *, diagonal: bool
) -> Float[Tensor, "..."]:
    """<A, B> / (||A||_F ||B||_F) over the last dimension (diagonal) or the last two."""
    dims = (-1,) if diagonal else (-2, -1)
    norms = (a.square().sum(dim=dims) * b.square().sum(dim=dims)).sqrt()
    return (a * b).sum(dim=dims) / norms


def excess(norm: Tensor, margin: Tensor, optimum: Tensor) -> Tensor:
    """(||W|| / margin) / (norm of the solution, whose margin is 1) - 1: 0 at the optimum, never below it."""
    return norm / margin / optimum - 1
