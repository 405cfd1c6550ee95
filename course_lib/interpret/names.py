"""Names of features: one rule, by which the report of a run, the command and the browser of features call them.

F1 alone is no ground for a name. Who always says yes to a concept that a share p of the sentences hold has a precision of
p and a recall of 1, so an F1 of 2 p / (1 + p): 0.67 where every second sentence holds it. So F1 is counted above that.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course_lib.interpret.concept_report import ConceptReport, ConceptScore

NAMED_FROM = 0.5
"""A feature is named where its held-out F1 is more than this part of the way from always yes to a perfect 1."""


@dataclass(frozen=True)
class FeatureName:
    """The concept that a feature is called by, with its held-out F1, and that of always yes, `chance`."""

    concept: str
    f1: float
    chance: float

    @property
    def above_chance(self) -> float:
        """The part of the way from always yes to a perfect F1."""
        return above_chance(self.f1, self.chance)


def chance_f1(positives: int, rows: int) -> float:
    """F1 of always yes where `positives` of `rows` hold a concept: 2 p / (1 + p) with p = positives / rows."""
    return 2 * positives / (rows + positives)


def above_chance(f1: float, chance: float) -> float:
    """(F1 - chance) / (1 - chance): 0 for always yes, 1 for a perfect detector; 0 where all rows hold the concept."""
    return (f1 - chance) / (1 - chance) if chance < 1 else 0.0


def feature_names(report: "ConceptReport | None") -> dict[int, FeatureName]:
    """Names of the features that have one, by number; none where nothing was scored.

    A feature is tried with one concept, that for which its F1 on training rows lies furthest above chance. It gets the name
    where its F1 on held-out rows lies above chance by more than `NAMED_FROM`, and else none.
    """
    tried = {unit: _name(report, score) for unit, score in tried_concepts(report).items()}
    return {unit: name for unit, name in tried.items() if name.above_chance > NAMED_FROM}


def tried_concepts(report: "ConceptReport | None") -> "dict[int, ConceptScore]":
    """The concept that each feature is tried with, chosen on training rows; none where nothing was scored.

    A report from before features were tried with all concepts has only the best feature of each concept: of several such
    concepts the one furthest above chance in training is taken, and a concept that a feature's silence detects is none.
    """
    if report is None:
        return {}
    if report.named:
        return {score.unit: score for score in report.named}

    def in_training(score: "ConceptScore") -> float:
        return above_chance(score.f1_train, chance_f1(score.positives_train, report.settings["rows_train"]))

    rising = sorted((score for score in report.scores["features"] if score.sign > 0), key=in_training)
    return {score.unit: score for score in rising}


def _name(report: "ConceptReport", score: "ConceptScore") -> FeatureName:
    return FeatureName(score.concept, score.f1, held_out_chance(report, score))


def held_out_chance(report: "ConceptReport", score: "ConceptScore") -> float:
    """F1 of always yes to a concept on the report's held-out rows."""
    return chance_f1(score.positives_held_out, report.settings["rows_held_out"])
