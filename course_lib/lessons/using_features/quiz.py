"""Sentences of lesson 38 to be judged. Shares of sentences are those of the stored runs, cross-entropies are computed."""

from course_lib.interpret.outcomes import Outcome
from course_lib.lessons.using_features.contents import lesson
from course_lib.lessons.using_features.measurements import cross_entropies
from course_lib.measured import measured
from course_lib.teaching import fact


def _share(arm: str, what: str = "changed", part: str = "exchange") -> float:
    outcome = Outcome(**measured(part, arm))
    return getattr(outcome, what) / outcome.n


@lesson.sentence(
    "38.Q1",
    "A feature detects its word with an F1 near 1. So, with the feature off, the model no longer writes the word.",
    answer=False,
)
def detector_off():
    """Detecting and carrying are two things. The word has other features, and the model reads them, too. Only turned to its
    opposite does the detector remove nearly every noun. So it was with each of three dictionaries."""
    lines = [
        fact("the noun stays in {:.0%} of the sentences, shipped dictionary", 1 - _share("off: detector"), at_least=0.2)
    ]
    for seed in (1, 2):
        stays = 1 - _share(f"dictionary {seed}, off: detector")
        lines.append(fact(f"in {{:.0%}}, dictionary of seed {seed}", stays, at_least=0.2))
    lines.append(fact("detector times -1: in {:.0%}", 1 - _share("off: detector times -1"), at_most=0.1))
    return "\n".join(lines)


@lesson.sentence(
    "38.Q2",
    "At a noun's tokens a random step changes no noun. So no noun changes either under a step of equal length "
    "against an active feature that does not belong to the noun.",
    answer=False,
)
def any_push():
    """A random direction of 256 dimensions is nearly orthogonal to most of what the model reads. A direction that the
    dictionary learned is not: pushed against, a feature that is none of the noun's does change nouns."""
    random, other = (_share(f"pushed 1: {arm}", part="steering") for arm in ("random", "another feature"))
    return "\n".join(
        [
            fact("random direction: the noun changes in {:.0%}", random, at_most=0.03),
            fact("another active feature, as far: in {:.0%}", other, at_least=0.1),
        ]
    )


@lesson.sentence(
    "38.Q3",
    "With all features of a noun off, at the noun's tokens only, every other word of the sentence stays.",
    answer=False,
)
def other_words():
    """The states of the other tokens are as they were. But the model's decoder reads all states for each word that it
    writes, and a feature may serve more than one word."""
    return fact("another word changes in {:.0%}", _share("off: features", "elsewhere"), at_least=0.02)


@lesson.sentence(
    "38.Q4",
    "With the detector at half its strength every noun stays. A push of that length against another active feature does "
    "change some nouns.",
    answer=True,
)
def half_off():
    """Half of the detector, with the noun's other features, is enough here. Why the other direction does more at this
    length, the run does not tell: which direction acts more depends on the length."""
    detector, other = (_share(f"pushed 0.5: {arm}", part="steering") for arm in ("detector", "another feature"))
    return "\n".join(
        [
            fact("against the detector: nouns change in {:.0%}", detector, at_most=0.01),
            fact("against another active feature: in {:.0%}", other, at_least=0.03),
        ]
    )


@lesson.sentence(
    "38.Q5",
    "From the reconstructions, the loss recovered is 0.997. So their cross-entropy is within one percent of that from the "
    "model's own states.",
    answer=False,
)
def recovered():
    """The scale of (38.2) ends at the mean state, with which the model knows nothing of the sentence. Thousandths of so
    long a scale are large beside a small cross-entropy."""
    loss = cross_entropies()
    share = (loss.mean_ablated - loss.spliced) / (loss.mean_ablated - loss.clean)
    return "\n".join(
        [
            fact("recovered {:.3f}", share, equals=0.997, within=1e-3),
            fact("and the cross-entropy is {:.2f} times as large", loss.spliced / loss.clean, at_least=1.1),
        ]
    )
