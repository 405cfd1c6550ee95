"""Lesson 20's long run: course-mbart learns a fifth language in 120 steps, in full and by adapters of each rank.

One run for each setting of `plan()`, 15 to 30 minutes of one CPU thread in all. Losses are in nats a token: on the
fifth language and among the four old ones, held out, and the mean of the last 20 steps of training.
"""

import torch
from tqdm.auto import tqdm

from course_lib.language.corpus import draw_meanings
from course_lib.lessons.low_rank_adaptation.measurements import SETTINGS, adapted_copy, plan
from course_lib.mbart.model import load
from course_lib.mbart.pretraining import fifth_language as fifth

SEEDS = (20,)


def _rounded(scores: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in scores.items()}


def run(runs: list[tuple[str, str, float]] | None = None) -> dict[str, dict[str, float]]:
    """Return the scores before training and after each run."""
    torch.set_num_threads(1)
    (seed,) = SEEDS
    model, tokenizer = load()
    texts = fifth.parallel_texts(draw_meanings(SETTINGS["meanings"], seed=seed), tokenizer)
    test = fifth.parallel_texts(draw_meanings(SETTINGS["scored"], seed=seed + 1, split="test"), tokenizer)
    found = {}
    for trained, part, lr in tqdm(plan() if runs is None else runs, desc="runs"):
        copied, groups = adapted_copy(model, trained, part, lr)
        losses = fifth.adapt_to_fifth(
            copied, tokenizer, texts, groups, steps=SETTINGS["steps"], batch_size=SETTINGS["batch_size"], seed=seed
        )  # fmt: skip
        scores = fifth.fifth_scores(copied, tokenizer, test, n=SETTINGS["scored"], exact=False)
        found[f"{trained} {part} {lr:g}"] = _rounded({**scores, "training_loss": sum(losses[-20:]) / 20})
    found["before training"] = _rounded(fifth.fifth_scores(model, tokenizer, test, n=SETTINGS["scored"]))
    return found
