"""Sentences of lesson 35 to be judged. Shares of sentences are those of the stored run, the rest is computed here."""

import torch

from course_lib.interpret.outcomes import Outcome
from course_lib.lessons.using_features.contents import lesson
from course_lib.measured import measured
from course_lib.teaching import fact


def _share(arm: str, what: str) -> float:
    outcome = Outcome(**measured("exchange", f"off: {arm}"))
    return getattr(outcome, what) / outcome.n


@lesson.sentence(
    "35.Q1",
    "A feature detects its word with an F1 near 1. So, with the feature off, the model no longer writes the word.",
    answer=False,
)
def detector_off():
    """Detecting and carrying are two things. The word has other features, and the model reads them, too: with all of them
    off, nearly every noun goes. So it was with each of three dictionaries."""
    lines = [
        fact(
            "the noun stays in {:.0%} of the sentences, shipped dictionary",
            1 - _share("detector", "changed"),
            at_least=0.2,
        ),
        fact("with all the noun's features off, in {:.0%}", 1 - _share("features", "changed"), at_most=0.1),
    ]
    for seed in (1, 2):
        outcome = Outcome(**measured("exchange", f"dictionary {seed}, off: detector"))
        lines.append(fact(f"{{:.0%}}, dictionary of seed {seed}", 1 - outcome.changed / outcome.n, at_least=0.2))
    return "\n".join(lines)


@lesson.sentence(
    "35.Q2",
    "At a noun's tokens a random step changes no noun. So no noun changes either under a step of equal length "
    "against an active feature that does not belong to the noun.",
    answer=False,
)
def any_push():
    """A random direction of 256 dimensions is nearly orthogonal to most of what the model reads. A direction that the
    dictionary learned is not: pushed against, a feature that is none of the noun's does change nouns."""
    return "\n".join(
        [
            fact(
                "random direction: the noun changes in {:.0%}",
                _share("random, as far as features", "changed"),
                at_most=0.03,
            ),
            fact(
                "another active feature, as far: in {:.0%}", _share("another feature, as far", "changed"), at_least=0.1
            ),
        ]
    )


@lesson.sentence(
    "35.Q3",
    "With all features of a noun off, at the noun's tokens only, every other word of the sentence stays.",
    answer=False,
)
def other_words():
    """States are read by attention, and a feature may serve more than one word. Erasing the direction between two means
    does no better."""
    return "\n".join(
        [
            fact("features off: another word changes in {:.0%}", _share("features", "elsewhere"), at_least=0.02),
            fact("direction of the means erased: in {:.0%}", _share("means, erased", "elsewhere"), at_least=0.02),
        ]
    )


@lesson.sentence(
    "35.Q4", "A feature that is silent at a token can be switched off there without any effect.", answer=True
)
def silent():
    """Its activation is 0, so 0 times its direction is taken away, whatever the decoder's column is. This is (35.1)."""
    generator = torch.Generator().manual_seed(0)
    x, decoder = torch.randn(4, 6, generator=generator), torch.randn(6, 9, generator=generator)
    code = torch.relu(torch.randn(4, 9, generator=generator))
    code[:, 2] = 0
    changed = code.clone()
    changed[:, 2] *= 0
    moved = x + (changed - code) @ decoder.T
    return fact("no state moves: the largest change is {}", float((moved - x).abs().max()), equals=0, within=0)


@lesson.sentence(
    "35.Q5",
    "A loss recovered of 0.996 means that the model translates from the reconstructions as well as from its own states.",
    answer=False,
)
def recovered():
    """The scale of (35.2) ends at the mean state, with which the model knows nothing of the sentence. Thousandths of so
    long a scale are large beside a small cross-entropy. These are the numbers of exercise 35.2."""
    clean, spliced, mean = 0.03, 0.04, 3.00
    return "\n".join(
        [
            fact("recovered {:.4f}", (mean - spliced) / (mean - clean), at_least=0.996),
            fact("and the cross-entropy is {} times as large", spliced / clean, equals=4 / 3, within=1e-9),
        ]
    )
