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

    A feature that is the best one of several concepts is tried with the concept for which its F1 on training rows lies
    furthest above chance. It gets the name where its F1 on held-out rows lies above chance by more than `NAMED_FROM`, and
    else none. A concept that a feature's silence detects is no name.
    """
    if report is None:
        return {}
    tried: dict[int, tuple[float, ConceptScore]] = {}
    for score in report.scores["features"]:
        chance = chance_f1(score.positives_train, report.settings["rows_train"])
        found = above_chance(score.f1_train, chance)
        if score.sign > 0 and (score.unit not in tried or found > tried[score.unit][0]):
            tried[score.unit] = (found, score)
    names = {
        unit: FeatureName(score.concept, score.f1, held_out_chance(report, score))
        for unit, (_, score) in tried.items()
    }
    return {unit: name for unit, name in names.items() if name.above_chance > NAMED_FROM}


def held_out_chance(report: "ConceptReport", score: "ConceptScore") -> float:
    """F1 of always yes to a concept on the report's held-out rows."""
    return chance_f1(score.positives_held_out, report.settings["rows_held_out"])
