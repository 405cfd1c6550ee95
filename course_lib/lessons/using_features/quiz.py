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
    """Detecting and carrying are two things. The model also reads the word's other features, and what the dictionary does
    not reconstruct. So it was with each of three dictionaries."""
    lines = [
        fact(
            "the noun stays in {:.0%} of the sentences, shipped dictionary",
            1 - _share("detector", "changed"),
            at_least=0.2,
        )
    ]
    for seed in (1, 2):
        outcome = Outcome(**measured("exchange", f"dictionary {seed}, off: detector"))
        lines.append(fact(f"{{:.0%}}, dictionary of seed {seed}", 1 - outcome.changed / outcome.n, at_least=0.2))
    return "\n".join(lines)


@lesson.sentence(
    "35.Q2",
    "At a noun's tokens a random step changes no noun. So a step against another active feature, which is none of the "
    "noun's and no longer, changes none either.",
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
    """The scale of (35.2) ends at the mean state, with which the model knows nothing of the sentence. Hundredths of so
    long a scale are large beside a small cross-entropy. These are the numbers of exercise 35.2."""
    clean, spliced, mean = 0.03, 0.04, 3.00
    return "\n".join(
        [
            fact("recovered {:.4f}", (mean - spliced) / (mean - clean), at_least=0.996),
            fact("and the cross-entropy is {} times as large", spliced / clean, equals=4 / 3, within=1e-9),
        ]
    )


@lesson.sentence(
    "35.Q6",
    "An autoencoder has no biases, a ReLU code and a decoder whose columns may have any length. A penalty on the encoder's "
    "weights then makes fewer features fire.",
    answer=False,
)
def weights():
    """Divide the encoder by 10 and multiply the decoder by 10. The same features fire at each token and the output is the
    same, but the penalty is a tenth. So it cannot tell a sparse code from a dense one. What has to be penalised, or counted,
    are the activations; TopK counts them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 6, generator=generator, dtype=torch.float64)
    encoder, decoder = (torch.randn(9, 6, generator=generator, dtype=torch.float64) for _ in range(2))
    small, large = encoder / 10, decoder * 10
    codes = [torch.relu(x @ weights.T) for weights in (encoder, small)]
    gap = (codes[0] @ decoder - codes[1] @ large).abs().max()
    return "\n".join(
        [
            fact("the penalty falls to {} of its value", small.abs().sum() / encoder.abs().sum(), equals=0.1, within=1e-9),
            fact("outputs differ by at most {}", gap, at_most=1e-9),
            fact("activations that start or cease to fire: {}", int(((codes[0] > 0) != (codes[1] > 0)).sum()),
                 equals=0, within=0),
        ]
    )  # fmt: skip


@lesson.sentence(
    "35.Q7",
    "An L1 penalty on the activations switches off features that are not needed, and those that stay keep their strength.",
    answer=False,
)
def shrinks():
    """The penalty shrinks what it keeps. Take a perfect dictionary and one feature of strength 2. The activation that
    minimises (2 - f)² + f is 1.5, and the error rises from 0 to 0.25."""
    f = torch.linspace(0, 4, 4001, dtype=torch.float64)
    error = (2 - f).square()
    kept = int((error + f).argmin())
    return "\n".join(
        [
            fact("without the penalty the activation is {}", float(f[error.argmin()]), equals=2, within=1e-3),
            fact("with it {}", float(f[kept]), equals=1.5, within=1e-3),
            fact("and the error is {}", float(error[kept]), equals=0.25, within=1e-3),
        ]
    )
