"""What one layer with a fixed memory recalls after training: how it is written, against which keys it sees.

Copying a text of different tokens, and looking up the latest value of keys that are written again. One layer, one head of
16, 800 steps of 16 texts with 4, 8 and 16 tokens or pairs; five seeds. The rules of `MemoryDecoders` see unit keys, with
both signs or behind elu + 1, and differ in nothing else. Every arm is trained with every step size, and with larger or
smaller ones as long as the best lies at the edge. The one with the highest mean share on texts of a validation set is kept,
and the shares are those of other texts.
"""

import torch

from course_lib.attention.recall import (
    RULES,
    TASKS,
    MemoryDecoders,
    shares_right,
    train_side_by_side,
)

SEEDS = (0, 1, 2, 3, 4)
SIZES = (4, 8, 16)
STEPS = 800
STEP_SIZES = (0.003, 0.01, 0.03, 0.1)
SMALLER, LARGER = (0.001, 0.0003), (0.3, 1.0)  # tried where the best lies at the edge
SETTINGS = {"steps": STEPS, "step sizes": list(STEP_SIZES), "texts a step": 16, "sizes": list(SIZES)}
ARMS = {rule: (rule, False) for rule in RULES} | {
    f"{rule}, elu + 1": (rule, True) for rule in ("sums", "decay", "delta")
}


def by_step_size(task: str, arm: str, step_sizes: tuple[float, ...]) -> dict[float, dict[str, list[float]]]:
    """Train an arm with some step sizes; return for each the shares right by seed: on validation texts, and by size."""
    draw, vocab_size = TASKS[task]
    rule, positive = ARMS[arm]
    runs = [(seed, step_size) for step_size in step_sizes for seed in SEEDS]
    models = MemoryDecoders(rule, vocab_size=vocab_size, seeds=[seed for seed, _ in runs], positive=positive)
    train_side_by_side(models, draw, SIZES, steps=STEPS, step_sizes=[size for _, size in runs])
    found: dict[float, dict[str, list[float]]] = {step_size: {} for step_size in step_sizes}
    for name, size, first_seed in (("validation", max(SIZES), 20_000), *((str(n), n, 10_000) for n in SIZES)):
        shares = shares_right(models, draw, size, first_seed=first_seed).view(len(step_sizes), len(SEEDS))
        for step_size, row in zip(step_sizes, shares.tolist(), strict=True):
            found[step_size][name] = row
    return found


def mean(shares: list[float]) -> float:
    """Return the mean, to the digits that are stored."""
    return round(sum(shares) / len(shares), 4)


def swept(task: str, arm: str) -> dict[float, dict[str, list[float]]]:
    """Return what `by_step_size` finds, with further step sizes as long as the best lies at the edge of those tried."""
    found = by_step_size(task, arm, STEP_SIZES)
    smaller, larger = list(SMALLER), list(LARGER)
    while True:
        best = max(sorted(found), key=lambda step_size: mean(found[step_size]["validation"]))
        beyond = smaller if best == min(found) else larger if best == max(found) else []
        if not beyond:
            return found
        found |= by_step_size(task, arm, (beyond.pop(0),))


def run() -> dict:
    """Return for each task and arm: the best step size, shares right by size and seed, and the sweep."""
    torch.set_num_threads(1)
    found = {}
    for task in ("copying", "rewritten"):
        draw, vocab_size = TASKS[task]
        untrained = MemoryDecoders("softmax", vocab_size=vocab_size, seeds=SEEDS)
        found[f"{task}, untrained"] = {
            "right": {str(size): rounded(shares_right(untrained, draw, size).tolist()) for size in SIZES}
        }
        for arm in ARMS:
            sweep = swept(task, arm)
            means = {step_size: mean(sweep[step_size]["validation"]) for step_size in sorted(sweep)}
            best = max(means, key=means.get)
            found[f"{task}, {arm}"] = {
                "best step size": best,
                "right": {str(size): rounded(sweep[best][str(size)]) for size in SIZES},
                "mean share by step size": {f"{step_size:g}": share for step_size, share in means.items()},
            }
    return found


def rounded(shares: list[float]) -> list[float]:
    """Round to what is stored."""
    return [round(share, 4) for share in shares]
