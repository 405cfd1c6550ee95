"""Which of these sentences are true? Sentences of lesson 37, each with what decides."""

import torch

from course_lib.interpret.concepts import f1_scores, random_features
from course_lib.interpret.detectors import REACHED, best_detectors
from course_lib.lessons.mbart_to_sparse_features.contents import lesson
from course_lib.lessons.mbart_to_sparse_features.material import read_material
from course_lib.teaching import fact


@lesson.sentence("37.Q1", "A penalty on the sum of the absolute weights makes features sparse.", answer=False)
def weights():
    """Small weights fire as often as large ones: without a bias, whether a feature is above 0 depends on signs, not
    on sizes. To have few active features, the activations are limited, by a penalty on them or by TopK."""
    x = torch.full((3, 1), 5.0)
    small, large = torch.full((6, 3), 0.01), torch.zeros(6, 3)
    large[0, 0] = 100.0
    firing = [int((torch.relu(w @ x) > 0).sum()) for w in (small, large)]
    return "\n".join(
        (
            fact("weights that sum to {:.2f}", float(small.sum()), equals=0.18, within=1e-4),
            fact("fire {} of 6 features", firing[0], equals=6, within=0),
            fact("weights that sum to {:.0f}", float(large.sum()), equals=100, within=0),
            fact("fire {} of 6 features", firing[1], equals=1, within=0),
        )
    )


@lesson.sentence(
    "37.Q2",
    "For an active feature the gradient of an L1 penalty on the activations is $-1$, so that descent makes it smaller.",
    answer=False,
)
def gradient():
    """The gradient is +1, and descent steps against it: that is why the activation shrinks. With a gradient of -1 the
    same step would make it larger."""
    f = torch.tensor([2.0, 0.5], requires_grad=True)
    f.abs().sum().backward()
    value = f.detach()
    return "\n".join(
        (
            fact("autograd's gradient at f = (2, 0.5): {}", f.grad.tolist(), equals=[1, 1], within=0),
            fact("a step of 0.1 with gradient -1 takes 2 to {}", float(value[0]) + 0.1, equals=2.1, within=1e-6),
        )
    )


@lesson.sentence(
    "37.Q3", "A dictionary that is told nothing can find a word that no single word piece finds.", answer=True
)
def pieces():
    """One piece is one spelling, and the four languages mostly spell a word differently. Features read states, in which the
    model has brought translations together."""
    material = read_material()
    english, held_out = material.english, material.held_out
    concepts = material.scored
    found = best_detectors(english.scores.to_sparse_coo(), english.labels[:, concepts])
    calls = found.calls(held_out.scores)
    french = held_out.language == 1
    hits = (calls[french] & held_out.labels[french][:, concepts]).sum(dim=0)
    recall = hits / held_out.labels[french][:, concepts].sum(dim=0)
    return fact(
        "of the words, the feature chosen in English calls at least four in five of the French sentences: {:.2f}",
        float((recall >= 0.8).double().mean()),
        at_least=0.6,
    )


@lesson.sentence(
    "37.Q4",
    "A unit with a name can be trusted as a detector of it.",
    answer="only if the name holds where it was not chosen",
    conditions=("only if the name holds where it was not chosen", "only if its AUROC is above 0.95"),
)
def named():
    """Every unit has a word that it fits best, also one that was never trained. AUROC above 0.95 does not help: with a
    rare word most calls may still be wrong, exercise 37.3. And a name that holds states what the unit detects;
    what the model does with it is the next lesson's question."""
    material = read_material()
    english, held_out = material.english, material.held_out
    own = held_out.language == 0
    tables = random_features(
        english.states, english.states, held_out.states, n_features=2048, active=8,
        generator=torch.Generator().manual_seed(0),
    )[-2:]  # fmt: skip
    known, other = (text.largest(table) for text, table in zip((english, held_out), tables, strict=True))
    labels, truth = english.labels[:, material.scored], held_out.labels[own][:, material.scored]
    found = best_detectors(known.to_sparse_coo(), labels)
    f1 = f1_scores(found.calls(other[own]), truth)
    return "\n".join(
        (
            fact("random features are named {} words", len(found.unit), at_least=100),
            fact("the median name's F1 on new English sentences is {}", float(f1.median()), at_most=0.7),
        )
    )


@lesson.sentence(
    "37.Q5",
    "The formulas of encoder, decoder and loss rigorously support that the features of a good reconstruction are concepts.",
    answer=False,
)
def support():
    """They prove nothing about meaning. The neurons and their negatives are 512 features with a perfect reconstruction,
    if not a sparse one, and hardly one of them detects a word. What supports a name is a measurement with rivals."""
    material = read_material()
    english, held_out = material.english, material.held_out
    own = held_out.language == 0
    codes = [torch.cat([text.states.relu(), (-text.states).relu()], dim=1) for text in (english, held_out)]
    back = codes[1][:, :256] - codes[1][:, 256:]
    known, other = (text.largest(code) for text, code in zip((english, held_out), codes, strict=True))
    labels, truth = english.labels[:, material.scored], held_out.labels[own][:, material.scored]
    f1 = f1_scores(best_detectors(known, labels).calls(other[own]), truth)
    return "\n".join(
        (
            fact("the error of this code is {}", float((back - held_out.states).abs().max()), at_most=1e-6),
            fact("of the words it finds, in English: {:.1%}", float((f1 >= REACHED).double().mean()), at_most=0.1),
        )
    )


@lesson.sentence("37.Q6", "The stacked and the sparse autoencoder are two names for one thing, SAE.", answer=False)
def names():
    """The stacked one of lesson 35 narrows a sentence's state to fewer numbers, all in use. The sparse one widens a
    token's state to more features, nearly all of them 0. Only the abbreviation is shared."""
    material = read_material()
    fired = material.held_out.table.coalesce().values() > 0
    active = int(fired.sum()) / len(material.held_out.states)
    return "\n".join(
        (
            fact("the sparse code has {} times as many numbers as the state", material.dictionary.n_features / 256,
                 equals=8, within=0),
            fact("of which {:.1f} are above 0 at a token", active, at_most=8),
        )
    )  # fmt: skip
