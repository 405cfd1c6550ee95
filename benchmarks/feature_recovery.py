"""The neurons of lesson 28's appendix: what they find, and how often those fire that found an atom; about a minute."""

import torch
from tqdm.auto import tqdm

from course_lib.lessons.feature_recovery import measurements as lesson

SEEDS = (0, 1, 2)
SETTINGS = lesson.settings()


def run() -> dict[str, list]:
    """Return a list over the seeds under each name."""
    torch.set_num_threads(1)
    found = {}
    found["frequencies"] = [lesson.measure_frequencies(seed) for seed in tqdm(SEEDS, desc="frequencies")]
    for d_model, active in tqdm(lesson.RESONANCE, desc="resonance"):
        shares = [lesson.measure_resonance(d_model, active, seed) for seed in SEEDS]
        found[f"resonance: {d_model}, {active}"] = shares
    return found
