"""What lesson 17 trains: two matrices that find one of 16 items by its content.

An item has a content of 32 normal entries and a value of 8. The query is the content of the first item, the target its
value, the loss the mean squared error. W_Q and W_K map contents to d entries, which start with standard deviation sigma;
Adam trains them for 100 steps of 32 new examples. Many seeds and rates run side by side. The score of two contents x and
y is x W_Q W_K^T y, and the product of the two matrices is taken first: its size does not depend on d.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

ITEMS, CONTENT, VALUE, BATCH = 16, 32, 8, 32
STEPS, LAST, SOLVED = 100, 20, 0.05
NONE, ROOT, ROOT_STD, PLAIN_D = "no division", "by √d", "by √d σ²", "by d"
QK_NORM, SMALL = "QK-norm", "no division, smaller start"
ARMS = (NONE, ROOT, ROOT_STD, PLAIN_D, QK_NORM, SMALL)
SETTINGS = ((1.0, 64), (1.0, 1024), (4.0, 64))  # sigma and d
RATES = tuple(2.0**k for k in range(-12, 1))
SEEDS = tuple(range(10))


def scale_of(arm: str, std: float, d: int) -> float:
    """Return beta, by which an arm multiplies q.k; 1 for QK-norm, whose scale is learned."""
    return {ROOT: d**-0.5, ROOT_STD: d**-0.5 / std**2, PLAIN_D: 1 / d}.get(arm, 1.0)


def shrink_of(arm: str, std: float, d: int) -> float:
    """Return the factor on the first weights: 1, or the root of 1/(sqrt(d) sigma^2) for the smaller start."""
    return scale_of(ROOT_STD, std, d) ** 0.5 if arm == SMALL else 1.0


def rates_of(arm: str, std: float, d: int) -> tuple[float, ...]:
    """Return the rates that an arm is tried with: smaller weights take steps that are smaller by the same factor."""
    return tuple(shrink_of(arm, std, d) * rate for rate in RATES)


def scores_of(w_q: Tensor, w_k: Tensor, items: Tensor, *, scale: float | Tensor, normed: bool) -> Tensor:
    """Return the scores (..., examples, items) of the first item's content with all contents.

    Shapes: weights (..., content, d), items (..., examples, items, content); a tensor as scale broadcasts to the scores.
    `normed` divides queries and keys by their lengths (17.10).
    """
    asked = (items[..., 0, :] @ (w_q @ w_k.mT))[..., None]
    scores = (items @ asked)[..., 0]
    if normed:
        square = lambda x, w: ((x @ (w @ w.mT)) * x).sum(-1)  # noqa: E731
        of_keys = square(items.flatten(-3, -2), w_k).unflatten(-1, items.shape[-3:-1])
        scores = scores / (square(items[..., 0, :], w_q)[..., None] * of_keys).sqrt()
    return scale * scores


def train(
    arm: str,
    *,
    std: float,
    d: int,
    rates: Sequence[float] | None = None,
    seeds: Sequence[int] = SEEDS,
    steps: int = STEPS,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return the loss of every step, (seeds, rates, steps), each on examples that are not yet trained on.

    All arms see the same examples and, but for the factor of the smaller start, the same first weights. The scale of
    QK-norm is learned, from 8 on. `rates` are those of `rates_of` unless they are given.
    """
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def normal(*shape: int) -> Tensor:
        # One entry for each seed, and one place for the rates.
        drawn = [torch.randn(*shape, generator=g, dtype=torch.float64) for g in generators]
        return torch.stack(drawn)[:, None].to(dtype)

    rate = torch.tensor(rates_of(arm, std, d) if rates is None else rates, dtype=dtype)
    first = shrink_of(arm, std, d) * std / math.sqrt(CONTENT) * normal(2, CONTENT, d)
    weights = [first.expand(-1, len(rate), -1, -1, -1).clone()]
    if arm == QK_NORM:
        weights.append(torch.full((len(seeds), len(rate)), math.log(8.0), dtype=dtype))
    means, squares = ([torch.zeros_like(w) for w in weights] for _ in range(2))
    losses = []
    for step in range(1, steps + 1):
        items, values = normal(BATCH, ITEMS, CONTENT), normal(BATCH, ITEMS, VALUE)
        leaves = [w.requires_grad_() for w in weights]
        scale = leaves[1].exp()[..., None, None] if arm == QK_NORM else scale_of(arm, std, d)
        w_q, w_k = leaves[0].unbind(2)
        alpha = scores_of(w_q, w_k, items, scale=scale, normed=arm == QK_NORM).softmax(-1)
        output = (alpha[..., None, :] @ values)[..., 0, :]
        loss = (output - values[..., 0, :]).square().mean((-1, -2))
        gradients = torch.autograd.grad(loss.sum(), leaves)
        losses.append(loss.detach())
        weights = [w.detach() for w in leaves]
        for w, m, v, g in zip(weights, means, squares, gradients, strict=True):  # Adam
            m.lerp_(g, 0.1)
            v.lerp_(g.square(), 0.001)
            size = rate.view(-1, *[1] * (w.ndim - 2)) / (1 - 0.9**step)
            w.sub_(size * m / ((v / (1 - 0.999**step)).sqrt() + 1e-12))
    return torch.stack(losses, -1)


def end(losses: Tensor) -> Tensor:
    """Return the mean loss of the last 20 steps; the task counts as solved where it is below 0.05."""
    return losses[..., -LAST:].mean(-1)
