"""Lesson 36's long run: which setting would one choose without the planted atoms? About nine minutes of one CPU thread.

Each figure is a list over five dictionaries; for each of them two autoencoders were trained on the same rows from different
starts (`describe_pair` says what is kept): TopK on three kinds of rows, with the constant trained and with the constant kept
at 0, and ReLU with L1 and group bias adaptation on the first kind. Dictionary 0, on which the settings were looked for, is
not among them: of its autoencoders the page shows the portraits.
"""

from typing import Any

import torch
from tqdm.auto import tqdm

from course_lib.lessons.feature_recovery import measurements as lesson

SEEDS = lesson.DICTIONARIES
SETTINGS = lesson.settings()


def run() -> dict[str, Any]:
    """Return a list over the dictionaries under the name of rows, trainer and setting, and what the page's own show."""
    torch.set_num_threads(1)
    points = [
        (kind, name, k) for kind in lesson.ROWS for name in ("TopK", lesson.BARE) for k in lesson.KNOBS[name]
    ]
    first = next(iter(lesson.ROWS))
    points += [(first, trainer, knob) for trainer in ("L1", "GBA") for knob in lesson.KNOBS[trainer]]
    found: dict[str, Any] = {f"page, {k}": lesson.measure_page(k) for k in lesson.KNOBS["TopK"]}
    for kind in lesson.ROWS:
        found[f"{kind}, baselines"] = [lesson.measure_baselines(kind, number) for number in SEEDS]
    for kind, trainer, knob in tqdm(points, desc="settings"):
        name = f"{kind}, {trainer}, {knob}"
        found[name] = [lesson.measure_choice(kind, trainer, knob, number) for number in SEEDS]
    return found
