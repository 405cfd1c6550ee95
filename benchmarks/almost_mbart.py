"""What translations survive when one thing in a trained mBART is done differently (lesson 34).

Five draws of 120 test sentences of the built-in corpus, each with a random pair of languages; `course-mbart`, greedy. A
translation is unchanged where it has the tokens of the unaltered model's. The changes are those of
`course_lib.mbart.almost.CHANGES`, in the encoder alone ("unchanged") and in encoder and decoder ("both").
"noise": instead, each state of the encoder's output moves as far in a random direction. "handed on": by the change of
another token. "largest" and "rms" say how far the states at the tokens are off, over the largest entry and over the root
mean square.
"""

import torch

from course_lib.mbart.almost import (
    CHANGES,
    MBART,
    Recipe,
    Task,
    decode,
    draw_task,
    encode,
    gaps,
    handed_on,
    shared,
    with_noise,
)
from course_lib.mbart.model import load

SEEDS = (0, 1, 2, 3, 4)
SENTENCES = 120
SETTINGS = {"sentences": SENTENCES}
ONE_LAYER = {
    f"{name}, layer {layer}": Recipe(attention=kind, layers=(layer,))
    for kind, name in (
        ("even", "attention: equal weights"),
        ("none", "attention: nothing"),
        ("itself", "attention: itself"),
    )
    for layer in (1, 2, 3)
}


def one_draw(
    model, tokenizer, seed: int, *, n: int = SENTENCES, changes: dict[str, Recipe] | None = None
) -> dict[str, float]:
    """Return all figures of one draw of sentences."""
    weights, config = model.state_dict(), model.config
    task: Task = draw_task(tokenizer, n, seed=seed)
    clean = encode(weights, task.ids, task.mask, config=config).output

    def written(memory, recipe: Recipe = MBART, cross: str = "softmax") -> list[list[int]]:
        return decode(weights, memory, task.mask, task.codes, recipe, config=config, cross=cross)

    usual = written(clean)
    rows = {"mBART, right": shared(usual, task.references)}
    rows["cross-attention: equal weights, unchanged"] = shared(written(clean, cross="even"), usual)
    other = torch.where(task.mask[:, :, None], clean, 0).roll(1, 0)
    rows["another sentence's states, largest"], rows["another sentence's states, rms"] = gaps(
        other, clean, task.mask
    )
    for name, recipe in {**CHANGES, **ONE_LAYER}.items() if changes is None else changes.items():
        states = encode(weights, task.ids, task.mask, recipe, config=config).output
        rows[f"{name}, largest"], rows[f"{name}, rms"] = gaps(states, clean, task.mask)
        rows[f"{name}, unchanged"] = shared(written(states), usual)
        if recipe.layers is None:
            rows[f"{name}, noise"] = shared(written(with_noise(clean, states, task.mask, seed=seed)), usual)
            rows[f"{name}, handed on"] = shared(
                written(handed_on(clean, states, task.mask, seed=seed)), usual
            )
            if recipe.attention != "shuffled":
                rows[f"{name}, both"] = shared(written(states, recipe), usual)
    return rows


def run() -> dict[str, list[float]]:
    """Measure all draws; each row holds one number for each."""
    torch.set_num_threads(1)
    model, tokenizer = load()
    found = [one_draw(model, tokenizer, seed) for seed in SEEDS]
    return {name: [float(f"{one[name]:.4g}") for one in found] for name in found[0]}
