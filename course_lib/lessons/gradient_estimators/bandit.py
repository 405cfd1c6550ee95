"""The bandit of lesson 09: one hundred learners in front of five arms, and what a constant added to every payment does."""

from functools import lru_cache

import torch
from torch import Tensor

PAY = (0.0, 0.25, 0.5, 0.75, 1.5)  # what the arms pay on average, with noise of standard deviation 1
LEARNERS, PULLS, STEP_SIZE = 100, 1000, 0.1
NO_BASELINE, RUNNING_MEAN = "nothing", "the mean so far"


def play(
    added: float | int = 0.0,
    *,
    baseline: bool = False,
    step_size: float | int = STEP_SIZE,
    pulls: int = PULLS,
    learners: int = LEARNERS,
    seed: int = 0,
) -> Tensor:
    """Let all learners pull side by side; return their probabilities before each pull and at the end.

    Each pull moves a learner's logits by step size times payment times grad log p of the arm drawn (09.1); with `baseline`
    the mean of the payments so far is taken off the payment.
    Shapes: (pulls + 1, learners, 5).
    """
    generator = torch.Generator().manual_seed(seed)
    pay = torch.tensor(PAY, dtype=torch.float64) + added
    logits = torch.zeros(learners, len(PAY), dtype=torch.float64)
    running, arms, history = torch.zeros(learners, dtype=torch.float64), torch.eye(len(PAY), dtype=torch.float64), []
    for t in range(pulls):
        p = logits.softmax(1)
        history.append(p)
        arm = torch.multinomial(p, 1, generator=generator)[:, 0]
        reward = pay[arm] + torch.randn(learners, generator=generator, dtype=torch.float64)
        compared = reward - running if baseline else reward
        logits = logits + step_size * compared[:, None] * (arms[arm] - p)
        running = running + (reward - running) / (t + 1)
    return torch.stack([*history, logits.softmax(1)])


def failed(final: Tensor) -> int:
    """Count the learners that pull some arm other than the best more often than not."""
    return int((final[:, :-1] > 0.5).any(1).sum())


def found(final: Tensor) -> int:
    """Count the learners that pull the best arm more often than not."""
    return int((final[:, -1] > 0.5).sum())


@lru_cache(maxsize=24)  # 24 MB at 6,000 pulls
def remembered(added: float, baseline: bool, step_size: float, pulls: int = PULLS) -> Tensor:
    """Return what `play` returns, at the same settings only once."""
    return play(added, baseline=baseline, step_size=step_size, pulls=pulls)
