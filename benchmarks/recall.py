"""What one layer with a fixed memory recalls after training: how it is written, against which keys it sees.

Copying a text of different tokens, and looking up the latest value of keys that are written again. One layer, one head of
16, 800 steps of 16 texts with 4, 8 and 16 tokens or pairs; five seeds. The rules of `MemoryDecoders` see unit keys, with
both signs or behind elu + 1, and differ in nothing else. Every arm is trained with every step size; the one with the
highest mean share on texts of a validation set is kept, and the shares are those of other texts.
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
SETTINGS = {"steps": STEPS, "step sizes": list(STEP_SIZES), "texts a step": 16, "sizes": list(SIZES)}
ARMS = {rule: (rule, False) for rule in RULES} | {
    f"{rule}, elu + 1": (rule, True) for rule in ("sums", "decay", "delta")
}


def by_step_size(task: str, arm: str) -> tuple[dict[str, list[float]], dict[int, list[list[float]]]]:
    """Return the validation shares of each step size, and the test shares of each size, [step size][seed]."""
    draw, vocab_size = TASKS[task]
    rule, positive = ARMS[arm]
    runs = [(seed, step_size) for step_size in STEP_SIZES for seed in SEEDS]
    models = MemoryDecoders(rule, vocab_size=vocab_size, seeds=[seed for seed, _ in runs], positive=positive)
    train_side_by_side(models, draw, SIZES, steps=STEPS, step_sizes=[size for _, size in runs])

    def table(size: int, first_seed: int) -> list[list[float]]:
        shares = shares_right(models, draw, size, first_seed=first_seed)
        return shares.double().view(len(STEP_SIZES), len(SEEDS)).tolist()

    validation = table(max(SIZES), 20_000)
    return (
        {f"{size:g}": shares for size, shares in zip(STEP_SIZES, validation, strict=True)},
        {size: table(size, 10_000) for size in SIZES},
    )


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
            sweep, right = by_step_size(task, arm)
            means = {size: sum(shares) / len(shares) for size, shares in sweep.items()}
            best = max(means, key=means.get)
            place = list(means).index(best)
            found[f"{task}, {arm}"] = {
                "best step size": float(best),
                "right": {str(size): rounded(shares[place]) for size, shares in right.items()},
                "mean share by step size": {size: round(mean, 4) for size, mean in means.items()},
            }
    return found


def rounded(shares: list[float]) -> list[float]:
    """Round to what is stored."""
    return [round(share, 4) for share in shares]
