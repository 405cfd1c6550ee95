"""The dictionary that the course reads features from: a TopK sparse autoencoder of `course-mbart`, shipped."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.files import check_sums
from course_lib.sae.io import load
from course_lib.sae.sparse import TopKSparseAutoencoder

DIRECTORY = Path(__file__).parent / "course-dictionary"


@dataclass(frozen=True)
class NamedDetector:
    """The feature that detects a concept best in training: it calls a sentence where it exceeds `threshold` at a token.

    `f1` is measured on held-out sentences of all languages (None where fewer than 30 hold the concept), and
    `f1_by_language` on those of each language of which at least five hold it.
    """

    concept: str
    feature: int
    threshold: float
    f1_train: float
    f1: float | None
    f1_by_language: dict[str, float]


def course_dictionary() -> TopKSparseAutoencoder:
    """Load the shipped dictionary, in float32, without gradients: 2,048 features of the encoder's end, 8 active a token.

    `python -m course_lib dictionary --out DIR` makes it again, `origin()` says how it was made and what it explains.
    Raises FileNotFoundError where the package's files are incomplete, and ValueError where one is not as it was shipped.
    """
    check_sums(DIRECTORY)
    autoencoder = load(DIRECTORY)
    autoencoder.requires_grad_(False)
    return autoencoder


def origin() -> dict[str, Any]:
    """Return command, seed, versions and training of the shipped dictionary, and its scores on held-out sentences.

    Raises what `course_dictionary` raises.
    """
    check_sums(DIRECTORY)
    return json.loads((DIRECTORY / "origin.json").read_text(encoding="utf-8"))


def detectors() -> list[NamedDetector]:
    """Return the best feature of every lexical concept, chosen on the dictionary's training sentences.

    Raises what `course_dictionary` raises.
    """
    check_sums(DIRECTORY)
    rows = json.loads((DIRECTORY / "detectors.json").read_text(encoding="utf-8"))
    return [NamedDetector(**row) for row in rows]
