"""The dictionaries that the course reads features from: TopK sparse autoencoders of its shipped models.

That of `course-mbart` has the words of the generated language, that of `course-mbart-help` words of a software manual.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.files import check_sums
from course_lib.sae.autoencoder import load
from course_lib.sae.sparse import TopKSparseAutoencoder

DIRECTORY = Path(__file__).parent / "course-dictionary"
HELP_DIRECTORY = Path(__file__).parent / "help-dictionary"
MODEL, HELP_MODEL = "course-mbart", "course-mbart-help"


@dataclass(frozen=True)
class NamedDetector:
    """The feature that detects a concept best in training: it calls a sentence where it exceeds `threshold` at a token.

    It is chosen on sentences of all languages; that of a word of `course-mbart-help`, `en:cell`, on English ones alone.
    `f1` is measured on held-out sentences of all languages (None where fewer than 30 hold the concept), and
    `f1_by_language` on those of each language of which at least five hold it.
    """

    concept: str
    feature: int
    threshold: float
    f1_train: float
    f1: float | None
    f1_by_language: dict[str, float]


def _checked(model: str) -> Path:
    known = {MODEL: DIRECTORY, HELP_MODEL: HELP_DIRECTORY}
    if model not in known:
        raise ValueError(f"model is {model!r}; expected {' or '.join(map(repr, known))}")
    check_sums(known[model])
    return known[model]


def course_dictionary(model: str = MODEL) -> TopKSparseAutoencoder:
    """Load the shipped dictionary, in float32, without gradients: 2,048 features of the encoder's end, 8 active a token.

    `model` is "course-mbart" or "course-mbart-help". `course dictionary --out DIR` makes it again, with `--text TABLE` the
    second one; `origin()` says how it was made and what it explains. Raises FileNotFoundError where the package's files are
    incomplete, and ValueError for another model and where a file is not as it was shipped.
    """
    autoencoder = load(_checked(model))
    autoencoder.requires_grad_(False)
    return autoencoder


def origin(model: str = MODEL) -> dict[str, Any]:
    """Return command, seed, versions and training of the shipped dictionary, and its scores on held-out sentences.

    Raises what `course_dictionary` raises.
    """
    return json.loads((_checked(model) / "origin.json").read_text(encoding="utf-8"))


def detectors(model: str = MODEL) -> list[NamedDetector]:
    """Return the best feature of every word, chosen on the dictionary's training sentences.

    Raises what `course_dictionary` raises.
    """
    rows = json.loads((_checked(model) / "detectors.json").read_text(encoding="utf-8"))
    return [NamedDetector(**row) for row in rows]
