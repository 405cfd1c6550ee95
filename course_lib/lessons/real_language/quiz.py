"""Sentences of lesson 39 to be judged. Counts in the manual are those of the stored runs; the last one is computed."""

import numpy as np
import torch

from course_lib.lessons.real_language.contents import lesson
from course_lib.lessons.real_language.material import (
    at_ceiling,
    ceilings,
    feature_f1,
    median_f1,
    own_text,
)
from course_lib.measured import spread
from course_lib.teaching import fact


@lesson.sentence(
    "39.Q1",
    "A tenth of the paragraphs, drawn at random, is a fair test: none of them was read in training.",
    answer=False,
)
def random_rows():
    """A manual repeats itself. Held out paragraph by paragraph, a good part of the test nearly doubles what was trained on;
    whole pages and no repeats are held out here."""
    found = spread("real_words", "split by row: held-out rows that nearly double another, %")
    return fact("{:.0f}% of them nearly double a training paragraph", found.median, at_least=10)


@lesson.sentence(
    "39.Q2",
    "A feature named on English paragraphs that hold “document” also finds the French ones. So it has learned a meaning.",
    answer=False,
)
def same_spelling():
    """French writes *document*, too. Even features of a model with random weights find words in languages that spell them
    alike, and none of the others."""
    alike = feature_of_random_weights(True)
    others = feature_of_random_weights(False)
    return "\n".join(
        [
            fact("features of random weights, French, spelled alike somewhere: median F1 {:.2f}", alike, at_least=0.3),
            fact("not spelled alike: {:.2f}", others, at_most=0.1),
        ]
    )


def feature_of_random_weights(alike: bool) -> float:
    """The median F1 in French of the untrained model's features, named in English."""
    return float(np.median(median_f1("features of the untrained model", "fr_XX", translated=not alike)))


@lesson.sentence(
    "39.Q3",
    "You have labels in all four languages. Even then, features find more words in all of them than any direction that can "
    "be made from the labels.",
    answer=False,
)
def told_directions():
    """Plain LDA and means do not beat features; LDA fitted again on the tokens that it found strongest does. A feature's
    advantage is another: it is there before anyone asks."""
    features, refitted = (
        float(np.median(at_ceiling(arm, label="named in all languages"))) for arm in ("features", "LDA refitted")
    )
    return fact("LDA refitted less features: {:.0f} points", refitted - features, at_least=8)


@lesson.sentence(
    "39.Q4",
    "A feature named in English can find a word in German better than a probe that was told the labels of the German "
    "paragraphs and reads their words.",
    answer=True,
)
def above_the_ceiling():
    """The ceiling is one for bags of words, told the labels of training paragraphs. The model reads pieces of words and
    their order: in *Zellbereich* it meets the piece *Zell*."""
    above = sum(f1 > ceilings("de_DE")[word] for word, f1 in feature_f1("de_DE").items())
    return fact("in German {} of the 87 words have a feature above the probe", above, at_least=10)


@lesson.sentence(
    "39.Q5",
    "A code of an eighth of the width keeps an eighth of the variance.",
    answer=False,
)
def an_eighth():
    """It would if the states varied equally in all directions. They do not: here are the page's own sentences, 32 of 256
    principal directions."""
    states = own_text().states.double()
    values = torch.linalg.svdvals(states - states.mean(dim=0)).square()
    return fact("32 of 256 directions keep {:.2f} of the variance", values[:32].sum() / values.sum(), at_least=0.5)
