"""The slips of lesson 34 at one common distance, and in the decoder alone.

The draws are those of `almost_mbart`: five seeds, 60 test sentences each, `course-mbart`, greedy; a translation is unchanged
where it has the tokens of the unaltered model's. Each difference between altered and usual states of the encoder's output
is multiplied by one number, so that its root mean square is "at 0.25", "at 0.5", ... times that of the usual states; never
above its own size. Rivals: noise (each state moves in a random direction), the states of another sentence, and the states
made shorter. "decoder" is a change in the decoder alone, before the usual states.
"""

import torch

from benchmarks.almost_mbart import SEEDS
from course_lib.mbart.almost import (
    CHANGES,
    MBART,
    Recipe,
    decode,
    draw_task,
    encode,
    gaps,
    shared,
    with_noise,
)
from course_lib.mbart.model import load

SENTENCES = 60
SETTINGS = {"sentences": SENTENCES}
DISTANCES = (0.25, 0.5)
IN_THE_DECODER = (
    "no padding mask",
    "positions off by 2",
    "no positions",
    "attention: equal weights",
    "attention: nothing",
    "attention: itself",
)
AS_LONG = "attention: itself, as long"
ENCODERS = {**CHANGES, AS_LONG: Recipe(attention="itself as long")}
TOLERANCE = 0.1  # a change that stays this share below a distance still counts as having reached it


def one_draw(
    model, tokenizer, seed: int, *, n: int = SENTENCES, changes: dict[str, Recipe] | None = None
) -> dict[str, float]:
    """Return all figures of one draw of sentences."""
    weights, config = model.state_dict(), model.config
    task = draw_task(tokenizer, n, seed=seed)
    clean = encode(weights, task.ids, task.mask, config=config).output

    usual, rows, moved = decode(weights, clean, task.mask, task.codes, config=config), {}, {}
    longest = max(map(len, usual)) + 1  # a text that goes on longer is another one

    def written(memory, recipe: Recipe = MBART) -> list[list[int]]:
        return decode(weights, memory, task.mask, task.codes, recipe, config=config, longest=longest)

    for name, recipe in (ENCODERS if changes is None else changes).items():
        moved[name] = encode(weights, task.ids, task.mask, recipe, config=config).output
        if name in IN_THE_DECODER:
            rows[f"{name}, decoder"] = shared(written(clean, recipe), usual)
    rows[f"{AS_LONG}, unchanged"] = shared(written(moved[AS_LONG]), usual) if AS_LONG in moved else 0.0
    moved["noise"] = with_noise(clean, 2 * clean, task.mask, seed=seed)
    moved["another sentence"] = torch.where(task.mask[:, :, None], clean, 0).roll(1, 0)
    moved["shorter states"] = torch.zeros_like(clean)
    for name, states in moved.items():
        own = gaps(states, clean, task.mask)[1]
        rows[f"{name}, rms"] = own
        for far in DISTANCES:
            # Five draws must have the same rows: the size of a change hardly differs between them.
            if far <= own * (1 + TOLERANCE):
                there = clean + far / own * (states - clean)
                rows[f"{name}, at {far}"] = shared(written(there), usual)
    return rows


def run() -> dict[str, list[float]]:
    """Measure all draws; each row holds one number for each."""
    torch.set_num_threads(1)
    model, tokenizer = load()
    found = [one_draw(model, tokenizer, seed) for seed in SEEDS]
    names = [name for name in found[0] if all(name in one for one in found)]
    return {name: [float(f"{one[name]:.4g}") for one in found] for name in names}
