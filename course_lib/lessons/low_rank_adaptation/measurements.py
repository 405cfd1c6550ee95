"""What the figures of lesson 20 on course-mbart draw, measured once.

Some 30 training runs take 15 to 30 minutes of one CPU thread: `python -m course_lib.lessons.low_rank_adaptation` writes
what it found to measurements.json beside this file, after each run, and goes on where it was stopped.
"""

import copy
import json
from functools import cache
from pathlib import Path

import torch
from tqdm.auto import tqdm

from course_lib import files
from course_lib.representation import lora

MEASURED = Path(__file__).with_suffix(".json")
RANKS = (1, 2, 4, 8, 16, 32)
SETTINGS = {"alpha": 32, "steps": 120, "batch_size": 16, "meanings": 4000, "scored": 200}
GRID = {"full": (3e-4, 1e-3, 3e-3, 1e-2), "adapter": (3e-3, 1e-2, 3e-2, 1e-3), "parts": (3e-3, 1e-2)}
PARTS = {"all": "all-linear", "attention": ["q_proj", "k_proj", "v_proj", "out_proj"], "mlp": ["fc1", "fc2"]}


def plan() -> list[tuple[str, str, float]]:
    """Return all runs: what is trained ("full" or a rank), in which layers, with which step size."""
    runs = [("full", "all", lr) for lr in GRID["full"]]
    runs += [(str(rank), "all", lr) for lr in GRID["adapter"] for rank in RANKS]
    return runs + [("8", part, lr) for part in ("attention", "mlp") for lr in GRID["parts"]]


def adapted_copy(model, trained: str, part: str, step_size: float) -> tuple:
    """Return a copy of the model, with an adapter unless it is trained in full, and the groups for the optimiser."""
    model = copy.deepcopy(model)
    if trained == "full":
        return model, [{"params": list(model.parameters()), "lr": step_size}]
    generator = torch.Generator().manual_seed(20)
    lora.inject(model, rank=int(trained), alpha=SETTINGS["alpha"], targets=PARTS[part], generator=generator)
    return model, lora.param_groups(model, step_size)


def shuffled(model) -> None:
    """Put random numbers in the place of every B, of the size that it has: the control of a trained adapter."""
    generator = torch.Generator().manual_seed(21)
    with torch.no_grad():
        for layer in lora.adapters(model).values():
            noise = torch.randn(layer.lora_B.shape, generator=generator)
            layer.lora_B.copy_(noise * layer.lora_B.norm() / noise.norm())


def measure() -> None:
    """Run what is not yet in the file, and write it after each run."""
    from course_lib.language.corpus import draw_meanings
    from course_lib.mbart.model import load
    from course_lib.mbart.pretraining import fifth_language as fifth

    torch.set_num_threads(1)
    model, tokenizer = load()
    texts = fifth.parallel_texts(draw_meanings(SETTINGS["meanings"], seed=20), tokenizer)
    test = fifth.parallel_texts(draw_meanings(SETTINGS["scored"], seed=21, split="test"), tokenizer)
    found = json.loads(MEASURED.read_text()) if MEASURED.exists() else {"settings": SETTINGS, "runs": {}}
    rounded = lambda scores: {name: round(value, 4) for name, value in scores.items()}  # noqa: E731
    if "none" not in found:
        found["none"] = rounded(fifth.fifth_scores(model, tokenizer, test, n=SETTINGS["scored"]))
    for trained, part, lr in tqdm(plan(), desc="runs"):
        name = f"{trained} {part} {lr:g}"
        if name in found["runs"]:
            continue
        copied, groups = adapted_copy(model, trained, part, lr)
        losses = fifth.adapt_to_fifth(
            copied, tokenizer, texts, groups, steps=SETTINGS["steps"], batch_size=SETTINGS["batch_size"], seed=20
        )
        scores = fifth.fifth_scores(copied, tokenizer, test, n=SETTINGS["scored"], exact=False)
        found["runs"][name] = rounded({**scores, "training_loss": sum(losses[-20:]) / 20})
        with files.replacing(MEASURED) as file:
            file.write(json.dumps(found, indent=1).encode() + b"\n")


@cache
def measured() -> dict:
    """Return what was measured, as stored."""
    return json.loads(MEASURED.read_text())
