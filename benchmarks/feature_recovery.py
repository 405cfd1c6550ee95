"""Lesson 28's long run: which planted atoms each trainer finds, over its own knob; about 3 minutes of one CPU thread."""

import torch
from tqdm.auto import tqdm

from course_lib.lessons.feature_recovery import measurements as lesson

SEEDS = lesson.SEEDS
SETTINGS = lesson.settings()


def run() -> dict[str, list]:
    """Return a list over the seeds under each name, but for the explorer's frames, which have one."""
    torch.set_num_threads(1)
    points = [(name, knob) for name, knobs in lesson.KNOBS.items() for knob in knobs]
    found = {}
    for name, knob in tqdm(points, desc="trainers"):
        found[f"curve: {name}, {knob}"] = [lesson.measure_point(name, knob, seed) for seed in SEEDS]
    found["frequencies"] = [lesson.measure_frequencies(seed) for seed in tqdm(SEEDS, desc="frequencies")]
    for d_model, active in tqdm(lesson.RESONANCE, desc="resonance"):
        shares = [lesson.measure_resonance(d_model, active, seed) for seed in SEEDS]
        found[f"resonance: {d_model}, {active}"] = shares
    return found | {f"explorer: {name}": shares for name, shares in lesson.measure_explorer().items()}
