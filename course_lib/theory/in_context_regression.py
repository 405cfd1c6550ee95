"""Several linear regressions in one prompt, and heads of softmax attention that share them out (lesson 28).

A prompt holds L examples (x, y) and a query. The d features of x fall into I blocks of d_i, and answer number i is
linear in block i alone: y_i = beta_i . x_(i) + noise. The coefficients are new in each prompt, so they can be learned
from its examples only: in context.

The model is the diagonal one of arXiv:2402.19442, as its official code has it. Head h compares query and examples by the
weights w_h, one for each feature, averages the answers of the examples with softmax weights, and adds the averages to
answer i with the factor u_hi. Each weight is a product of two factors that are trained: w = q k, u = o v. Here q = k and
o = v at the start, and then always (`factor_step`), so that w = q^2 and u = v^2.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


def _check_whole(name: str, value: int, least: int = 1) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def _check_positive(name: str, value: float | int) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be a positive finite number, got {value!r}")


# Prompts


@dataclass(frozen=True)
class Prompts:
    """A batch of prompts: examples `x` (batch, L, d) and `y` (batch, L, I), `query` (batch, d), `target` (batch, I).

    The target is the answer at the query without noise.
    """

    x: Float[Tensor, "batch examples d_model"]
    y: Float[Tensor, "batch examples tasks"]
    query: Float[Tensor, "batch d_model"]
    target: Float[Tensor, "batch tasks"]


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """I linear regressions on disjoint blocks of d_i features (28.1).

    Units: x and the coefficients have variance 1, so an answer has variance `block`; `noise` is the standard deviation
    of what is added to the answers of the examples.

    Raises:
        ValueError: a count is not a whole number of at least 1, or `noise` is negative or not finite.
    """

    n_tasks: int = 3
    block: int = 4
    n_examples: int = 60
    noise: float | int = 0.2

    def __post_init__(self) -> None:
        for name in ("n_tasks", "block", "n_examples"):
            _check_whole(name, getattr(self, name))
        if not 0 <= self.noise < math.inf:
            raise ValueError(f"noise must be a finite number of at least 0, got {self.noise!r}")

    @property
    def d_model(self) -> int:
        """Number of features, I d_i."""
        return self.n_tasks * self.block

    @property
    def noise_ratio(self) -> float:
        """c = 1 + noise^2 / d_i: the variance of an example's answer over that of its noiseless part."""
        return 1 + self.noise**2 / self.block

    def draw(
        self,
        batch: int,
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        link: Callable[[Tensor], Tensor] | None = None,
    ) -> Prompts:
        """Draw prompts with new coefficients each; `link` is applied to beta . x where the tasks are not linear.

        Raises:
            ValueError: `batch` is not a whole number of at least 1.
        """
        _check_whole("batch", batch)
        new = lambda *shape: torch.randn(*shape, generator=generator, dtype=dtype, device=device)  # noqa: E731
        n, block, length = self.n_tasks, self.block, self.n_examples
        x, beta = new(batch, length + 1, n, block), new(batch, 1, n, block)
        clean = (x * beta).sum(dim=-1)
        clean = clean if link is None else link(clean)
        y = clean[:, :-1] + self.noise * new(batch, length, n)
        x = x.flatten(start_dim=2)
        return Prompts(x[:, :-1], y, x[:, -1], clean[:, -1])


# The model


def _check_weights(prompts: Prompts, w: Tensor, u: Tensor) -> None:
    d, tasks = prompts.query.shape[-1], prompts.target.shape[-1]
    if w.ndim < 2 or w.shape[-1] != d:
        raise ValueError(f"w must have shape (..., heads, {d}), got {tuple(w.shape)}")
    if tuple(u.shape) != (*w.shape[:-1], tasks):
        wanted = ", ".join(map(str, (*w.shape[:-1], tasks)))
        raise ValueError(f"u must have shape ({wanted}), as many heads as w, got {tuple(u.shape)}")


def attention_by_heads(
    prompts: Prompts, w: Float[Tensor, "heads d_model"], u: Float[Tensor, "as_many tasks"]
) -> Float[Tensor, "batch tasks"]:
    """y_i = sum_h u_hi sum_l softmax_l(sum_j w_hj x_qj x_lj) y_li (28.2), to be read: one head after the other.

    Raises:
        ValueError: `w` and `u` do not fit the prompts or each other.
    """
    _check_weights(prompts, w, u)
    answer = torch.zeros_like(prompts.target)
    for w_h, u_h in zip(w, u, strict=True):
        scores = (prompts.x * (w_h * prompts.query)[:, None]).sum(dim=-1)  # (batch, L)
        average = (scores.softmax(dim=-1)[..., None] * prompts.y).sum(dim=1)  # (batch, I)
        answer = answer + u_h * average
    return answer


def _averages(prompts: Prompts, w: Tensor) -> tuple[Tensor, Tensor]:
    """Attention weights (batch, heads, L) and averaged answers (batch, heads, I) of any number of heads."""
    weights = ((prompts.query[:, None] * w) @ prompts.x.mT).softmax(dim=-1)
    return weights, weights @ prompts.y


def attention(
    prompts: Prompts, w: Float[Tensor, "*runs heads d_model"], u: Float[Tensor, "*as_many tasks"]
) -> Float[Tensor, "*runs batch tasks"]:
    """The answers of (28.2), fast, and of many models at once: leading dimensions of `w` and `u` are runs.

    Equal to `attention_by_heads` run by run. All runs see the same prompts, so their heads are those of one wide model
    until the last sum.

    Raises:
        ValueError: as `attention_by_heads`.
    """
    _check_weights(prompts, w, u)
    _, averages = _averages(prompts, w.flatten(end_dim=-2))
    averages = averages.movedim(0, -2).unflatten(0, w.shape[:-1])  # (*runs, heads, batch, I)
    return (u.unsqueeze(-2) * averages).sum(dim=-3)


def mean_squared_error(
    prompts: Prompts, w: Float[Tensor, "*runs heads d_model"], u: Float[Tensor, "*as_many tasks"]
) -> Float[Tensor, "*runs"]:
    """Mean over prompts of the squared error, summed over tasks (28.2). It is I d_i for the answer 0."""
    return (attention(prompts, w, u) - prompts.target).square().sum(dim=-1).mean(dim=-1)


def gradients(
    prompts: Prompts, w: Float[Tensor, "*runs heads d_model"], u: Float[Tensor, "*as_many tasks"]
) -> tuple[Float[Tensor, "*runs"], Float[Tensor, "*runs heads d_model"], Float[Tensor, "*as_many tasks"]]:
    """Mean squared error, and the gradients of its half with respect to w and u (28.9), by hand.

    With the error r_i, the averages m_hi and the weights a_hl of a prompt:
    dL/du_hi = E[r_i m_hi], dL/dw_hj = E[x_qj sum_l a_hl (g_hl - g_h) x_lj],
    g_hl = sum_i r_i u_hi y_li, g_h = sum_l a_hl g_hl.

    Raises:
        ValueError: as `attention_by_heads`.
    """
    _check_weights(prompts, w, u)
    runs, heads = w.shape[:-2], w.shape[-2]
    wide_w, wide_u = w.flatten(end_dim=-2), u.flatten(end_dim=-2)
    weights, averages = _averages(prompts, wide_w)
    answers = (wide_u * averages).unflatten(1, (-1, heads)).sum(dim=2)  # (batch, runs, I)
    errors = answers - prompts.target[:, None]
    each = errors.repeat_interleave(heads, dim=1)  # one row for each head of a run
    pull = each * wide_u
    centre = (pull * averages).sum(dim=-1, keepdim=True)
    d_scores = weights * (pull @ prompts.y.mT - centre)
    d_w = ((d_scores @ prompts.x) * prompts.query[:, None]).mean(dim=0)
    d_u = (each * averages).mean(dim=0)
    mse = errors.square().sum(dim=-1).mean(dim=0)
    return mse.reshape(runs), d_w.reshape(w.shape), d_u.reshape(u.shape)


# Training


@dataclass(frozen=True)
class History:
    """What a training passed through: `steps` (times,), `w` and `u` (times, *runs, heads, .), `mse` (times, *runs).

    An entry of `mse` is that of the batch at its step.
    """

    steps: tuple[int, ...]
    w: Tensor
    u: Tensor
    mse: Tensor


def start(
    tasks: Tasks,
    n_heads: int,
    *,
    scale: float | int = 0.25,
    lean: float | int = 0.5,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> tuple[Float[Tensor, "heads d_model"], Float[Tensor, "heads tasks"]]:
    """Factors (q, v) to start with: q = scale for every feature, v = scale (1 + lean r), r uniform on [0, 1] (28.4).

    Without `lean` all heads are equal, and no gradient makes them differ.

    Raises:
        ValueError: `n_heads` is not a whole number of at least 1, `scale` is not positive, or `lean` is negative.
    """
    _check_whole("n_heads", n_heads)
    _check_positive("scale", scale)
    if not 0 <= lean < math.inf:
        raise ValueError(f"lean must be a finite number of at least 0, got {lean!r}")
    q = torch.full((n_heads, tasks.d_model), float(scale), dtype=dtype, device=device)
    random = torch.rand(n_heads, tasks.n_tasks, generator=generator, dtype=dtype, device=device)
    return q, scale * (1 + lean * random)


def factor_step(
    prompts: Prompts,
    q: Float[Tensor, "*runs heads d_model"],
    v: Float[Tensor, "*as_many tasks"],
    step_size: float | int,
) -> tuple[Float[Tensor, "*runs"], Float[Tensor, "*runs heads d_model"], Float[Tensor, "*as_many tasks"]]:
    """One step of gradient descent on the factors of w = q k, u = o v where k = q and o = v (28.4).

    The gradient with respect to q is k dL/dw = q dL/dw, and the same with respect to k: equal factors stay equal.
    Returns the mean squared error before the step, and the new factors. A head of zeros stays one.

    Raises:
        ValueError: as `attention_by_heads`.
    """
    mse, d_w, d_u = gradients(prompts, q.square(), v.square())
    return mse, q - step_size * q * d_w, v - step_size * v * d_u


def train(
    tasks: Tasks,
    q: Float[Tensor, "*runs heads d_model"],
    v: Float[Tensor, "*as_many tasks"],
    *,
    steps: int = 600,
    batch: int = 256,
    step_size: float | int = 0.05,
    every: int = 20,
    generator: torch.Generator | None = None,
    link: Callable[[Tensor], Tensor] | None = None,
) -> History:
    """Train by `factor_step` on fresh prompts at each step, the same for all runs; record every `every` steps.

    The last entry of the history is the state after all steps, with the error on one more batch.

    Raises:
        ValueError: `steps`, `batch` or `every` is not a whole number of at least 1, `step_size` is not positive, or
            the factors do not fit.
    """
    _check_whole("steps", steps)
    _check_whole("every", every)
    _check_positive("step_size", step_size)
    draw = lambda: tasks.draw(batch, generator=generator, dtype=q.dtype, device=q.device, link=link)  # noqa: E731
    times, kept = [], []
    for step in range(steps + 1):
        mse, new_q, new_v = factor_step(draw(), q, v, step_size)
        if step % every == 0 or step == steps:
            times.append(step)
            kept.append((q.square(), v.square(), mse))
        q, v = new_q, new_v
    w, u, mses = (torch.stack(parts) for parts in zip(*kept, strict=True))
    return History(tuple(times), w, u, mses)


# What a long training is compared with


def _noise(tasks: Tasks, n_served: int) -> float:
    """kappa = e m d_i c / L (28.6): the noise of an average over its signal, for a head that serves m tasks."""
    return math.e * n_served * tasks.block * tasks.noise_ratio / tasks.n_examples


def best_head(tasks: Tasks, n_served: int = 1) -> tuple[float, float]:
    """The best weights (w, u) of a head that serves `n_served` tasks alone, for many features and examples (28.6).

    w = 1 / sqrt(m d_i) on each feature of its tasks, u = 1 / (w (1 + kappa)), kappa = e m d_i c / L.

    Raises:
        ValueError: `n_served` is not from 1 to the number of tasks.
    """
    _check_whole("n_served", n_served)
    if n_served > tasks.n_tasks:
        raise ValueError(f"n_served must be at most the number of tasks, {tasks.n_tasks}, got {n_served}")
    w = 1 / math.sqrt(n_served * tasks.block)
    return w, 1 / (w * (1 + _noise(tasks, n_served)))


def served_error(tasks: Tasks, served: Sequence[int]) -> float:
    """Mean squared error of heads that serve `served[h]` tasks each, to the same order as `best_head` (28.11).

    d_i (I - sum_h m_h / (1 + m_h kappa_1)): a task that no head serves costs its whole variance d_i.

    Raises:
        ValueError: a number of tasks is negative, or they are more than there are.
    """
    if any(m < 0 for m in served) or sum(served) > tasks.n_tasks:
        raise ValueError(
            f"served must hold counts of at least 0 with the sum {tasks.n_tasks} at most, got {list(served)}"
        )
    return float(tasks.block) * (tasks.n_tasks - sum(m / (1 + _noise(tasks, m)) for m in served if m))


def emergence_time(w: float | int, u: float | int, block: int) -> float:
    """Time in which a head leaves small weights w, the same on a block, and u, by gradient flow alone (28.5).

    T = log(d_i w / u) / (2 (d_i w - u)), or 1 / (2 u) where d_i w = u. Divide by the step size for steps.

    Raises:
        ValueError: a weight is not positive, or `block` is not a whole number of at least 1.
    """
    _check_positive("w", w)
    _check_positive("u", u)
    _check_whole("block", block)
    gap = (block * w - u) / u
    return (math.log1p(gap) / gap if gap else 1.0) / (2 * u)


def zero_sum_heads(tasks: Tasks, size: float | int = 0.1) -> tuple[Tensor, Tensor]:
    """Weights (w, u) of I + 1 heads that share all tasks, with signs, in float64 (28.10).

    A is (I + 1) x I with orthonormal columns that sum to 0; w_hj = size A_hi for j in block i, and u_hi = s A_hi / size
    with s = 1 / (1 + kappa), kappa = (c d_i + 1) / L. For small `size` they return s times one step of gradient
    descent from 0 on the centred examples.

    Raises:
        ValueError: `size` is not positive.
    """
    _check_positive("size", size)
    heads = tasks.n_tasks + 1
    centre = torch.eye(heads, dtype=torch.float64) - 1 / heads
    mixing = torch.linalg.qr(centre[:, :-1]).Q
    return size * mixing.repeat_interleave(tasks.block, dim=1), mixing / (size * (1 + _zero_sum_noise(tasks)))


def _zero_sum_noise(tasks: Tasks) -> float:
    return (tasks.noise_ratio * tasks.block + 1) / tasks.n_examples


def zero_sum_error(tasks: Tasks) -> float:
    """Mean squared error of `zero_sum_heads` as their size goes to 0: I d_i kappa / (1 + kappa) (28.10)."""
    kappa = _zero_sum_noise(tasks)
    return tasks.d_model * kappa / (1 + kappa)


def winners(u: Float[Tensor, "*runs heads tasks"]) -> Int[Tensor, "*runs tasks"]:
    """The head with the largest u of each task, a whole number."""
    return u.argmax(dim=-2)


def one_head_each(u: Float[Tensor, "*runs heads tasks"]) -> Tensor:
    """Whether the winners of the tasks are different heads, for each run: the allocation is a permutation."""
    ordered = winners(u).sort(dim=-1).values
    return (ordered.diff(dim=-1) > 0).all(dim=-1)


def shares(u: Float[Tensor, "*runs heads tasks"]) -> Float[Tensor, "*runs heads tasks"]:
    """Share of each head in the sum of |u| of a task."""
    return u.abs() / u.abs().sum(dim=-2, keepdim=True)


def ridge_answers(
    prompts: Prompts, tasks: Tasks, *, blocks_known: bool = True
) -> Float[Tensor, "batch tasks"]:
    """The best possible answers where the noise is known: ridge regression in each prompt, with penalty noise^2.

    With `blocks_known` each task is fitted on its own block, otherwise on all features.

    Raises:
        ValueError: the prompts have other sizes than the tasks.
    """
    n, block = tasks.n_tasks, tasks.block
    if prompts.x.shape[-1] != tasks.d_model or prompts.target.shape[-1] != n:
        raise ValueError(
            f"prompts must have {tasks.d_model} features and {n} tasks, "
            f"got {prompts.x.shape[-1]} and {prompts.target.shape[-1]}"
        )
    x = prompts.x.unflatten(-1, (n, block)).movedim(2, 1) if blocks_known else prompts.x[:, None]
    query = prompts.query.unflatten(-1, (n, block)) if blocks_known else prompts.query[:, None]
    y = prompts.y.mT[..., None]  # (batch, I, L, 1)
    gram = x.mT @ x + tasks.noise**2 * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    return (query * torch.linalg.solve(gram, x.mT @ y)[..., 0]).sum(dim=-1)
