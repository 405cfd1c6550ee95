"""Associative recall, keys that are written again, and copying: the accuracy of each form of attention on new texts.

One layer, one head of 16, 400 steps of 32 texts with 4, 8, 16 and 32 pairs (or tokens); three seeds,
each of which repeats itself to the rounding of the processor.
"""

import torch

from benchmarks.timing import Spread
from course_lib.attention.recall import FORMS, TASKS, recall_accuracy, recall_decoder, train_to_recall

SEEDS = (0, 1, 2)
SIZES = (4, 8, 16, 32)


def accuracies(task: str, *, seed: int, steps: int = 400) -> dict[str, dict[int, float]]:
    """Train one decoder of each form on a task; its accuracy at each size. "untrained" is softmax before its first step."""
    draw, vocab_size = TASKS[task]
    models = {"untrained": recall_decoder("softmax", vocab_size=vocab_size, seed=seed)}
    for form in FORMS:
        models[form] = recall_decoder(form, vocab_size=vocab_size, seed=seed)
        train_to_recall(models[form], draw, SIZES, steps=steps, seed=seed)
    return {
        name: {size: recall_accuracy(model, draw, size, seed=seed + 10_000) for size in SIZES}
        for name, model in models.items()
    }


def run(seeds: tuple[int, ...] = SEEDS) -> dict[str, Spread]:
    """Return shares of right answers."""
    torch.set_num_threads(1)
    rows: dict[str, Spread] = {}
    for task in TASKS:
        found = [accuracies(task, seed=seed) for seed in seeds]
        for form in ("untrained", *FORMS):
            for size in found[0][form]:
                shares = [by_form[form][size] for by_form in found]
                rows[f"{task}, {size} pairs, {form}"] = Spread.of(shares)
    return rows
