"""Exercises of lesson 37, mbart_to_sparse_features."""

import math

import torch

from course_lib.lessons.mbart_to_sparse_features.contents import lesson
from course_lib.teaching import edit, inputs, integers, normal, whole


def _activations(x, encoder, encoder_bias, decoder_bias):
    return torch.relu((x - decoder_bias) @ encoder.T + encoder_bias)


def _by_absolute_value(x, encoder, encoder_bias, decoder_bias, k):
    before = (x - decoder_bias) @ encoder.T + encoder_bias
    units = before.abs().topk(k, dim=1).indices
    return torch.zeros_like(before).scatter(1, units, torch.relu(before.gather(1, units)))


def _over_the_batch(x, encoder, encoder_bias, decoder_bias, k):
    activations = _activations(x, encoder, encoder_bias, decoder_bias)
    kept = activations.flatten().topk(k * len(x))
    return torch.zeros_like(activations).flatten().scatter(0, kept.indices, kept.values).view_as(activations)


def _over_the_tokens(x, encoder, encoder_bias, decoder_bias, k):
    activations = _activations(x, encoder, encoder_bias, decoder_bias)
    kept = activations.topk(k, dim=0)
    return torch.zeros_like(activations).scatter(0, kept.indices, kept.values)


@lesson.exercise(
    "37.1", "A TopK code", difficulty=1, minutes=8,
    prompt="How would you write a state with at most `k` of many features? Write `topk_code(x, encoder, encoder_bias, "
    "decoder_bias, k)`. `x` holds states, shape `(tokens, d)`. Subtract `decoder_bias`, shape `(d,)`; multiply by the rows "
    "of `encoder`, shape `(features, d)`; add `encoder_bias`, shape `(features,)`; set what is negative to 0: these are the "
    "activations. Of each token's activations the `k` largest stay, all others become 0. Return shape `(tokens, features)`.",
    draw=inputs(
        tokens=whole(2, 3), d=whole(2, 3), features=whole(4, 5), x=normal("tokens d"), encoder=normal("features d"),
        # Thousandths that differ from feature to feature: no two activations are equal, so that the k strongest are.
        rounded=normal("features"), encoder_bias=lambda rounded: rounded + torch.arange(len(rounded)) / 1000,
        decoder_bias=normal("d"), k=whole(1, 3),
    ),
    properties=[
        ("No activation may be negative.", lambda answer: bool((answer >= 0).all())),
        ("No token may have more than k active features.", lambda k, answer: int((answer != 0).sum(dim=1).max()) <= k),
    ],
    agrees="The k largest activations of each token stay, and nothing else does.",
    hints=(
        "What happens to x before it is multiplied by the encoder?",
        "`values.topk(k, dim=1)` returns values and the columns in which they stood.",
        "Start from zeros of shape (tokens, features); `scatter(1, columns, values)` writes each value at its column.",
    ),
    mistakes=[
        ("no ReLU", edit("torch.relu(before)", "before"),
         "You left out the ReLU: a token with fewer than k positive features keeps negative ones."),
        ("not centred", edit("(x - decoder_bias)", "x"),
         "You did not subtract the decoder's bias from x before the encoder."),
        ("bias of the encoder", edit(" + encoder_bias", ""), "You left out the encoder's bias."),
        ("absolute value", _by_absolute_value,
         "You ranked by absolute value: a strongly negative feature takes a place and ends as 0."),
        ("over the batch", _over_the_batch,
         "You kept the k · tokens strongest of the whole batch. That is BatchTopK: here each token keeps k of its own."),
        ("over the tokens", _over_the_tokens,
         "Your topk runs along dimension 0: it keeps k tokens of each feature, not k features of each token."),
        ("ReLU alone", edit(".topk(k,", ".topk(before.shape[1],"), "You kept every positive feature: where is k?"),
        ("ones", edit("kept.values)", "torch.ones_like(kept.values))"),
         "You marked the features that are kept with 1. They keep their activation.",
         lambda answer: bool(((answer == 0) | (answer == 1)).all())),
        ("bias added", edit("x - decoder_bias", "x + decoder_bias"),
         "You added the decoder's bias before the encoder. The decoder adds it; here it is subtracted."),
        ("one too many", edit(".topk(k,", ".topk(k + 1,"), "You kept k + 1 features of each token."),
        ("one too few", lambda x, encoder, encoder_bias, decoder_bias, k:
            topk_code(x, encoder, encoder_bias, decoder_bias, k - 1),
         "You kept k - 1 features of each token: the k-th strongest one belongs to the code as well."),
        ("k columns", edit("torch.zeros_like(before).scatter(1, kept.indices, kept.values)", "kept.values"),
         "You returned the k values without their places: nobody can tell which features they belong to."),
        ("the weakest", edit("dim=1)", "dim=1, largest=False)"), "You kept the k weakest features."),
    ],
)
def topk_code(x, encoder, encoder_bias, decoder_bias, k):
    """The k strongest features of each token, all others 0."""
    before = (x - decoder_bias) @ encoder.T + encoder_bias
    kept = torch.relu(before).topk(k, dim=1)
    return torch.zeros_like(before).scatter(1, kept.indices, kept.values)


def area_by_steps(scores, labels):
    """Area under the curve itself, threshold by threshold."""
    area, hits, alarms = 0.0, 0.0, 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        called = scores >= threshold
        hits_now = int((called & labels).sum()) / int(labels.sum())
        alarms_now = int((called & ~labels).sum()) / int((~labels).sum())
        area += (alarms_now - alarms) * (hits + hits_now) / 2
        hits, alarms = hits_now, alarms_now
    return area


def _ranks_without_ties(scores, labels):
    ranks = scores.argsort(stable=True).argsort() + 1.0
    positive = int(labels.sum())
    return (ranks[labels].sum() - positive * (positive + 1) / 2) / (positive * (len(labels) - positive))


@lesson.exercise(
    "37.2", "How well a feature detects a concept", difficulty=2, minutes=10,
    prompt="Write `area_under_roc(scores, labels)`: the AUROC of one unit as a detector of one concept. `scores` has shape "
    "`(rows,)`; `labels` is boolean of shape `(rows,)`, True where the row holds the concept (at least one does, one does "
    "not). Equal scores are frequent, since a sparse feature is 0 almost everywhere. Return one number.",
    # A code has many zeros, and so do the scores: ties are the rule.
    draw=inputs(
        halves=integers("7", 0, 3), scores=lambda halves: halves / 2, positives=whole(2, 4),
        labels=lambda positives, generator: torch.randperm(7, generator=generator) < positives,
    ),
    properties=[
        ("It should be the area under the curve of hits against false alarms.",
         lambda scores, labels, answer: math.isclose(answer, area_by_steps(scores, labels), abs_tol=1e-9)),
    ],
    hints=(
        "Compare every row that holds the concept with every row that does not: how many pairs are there?",
        "`scores[labels][:, None] - scores[~labels]` is a table with one entry a pair.",
        "An entry above 0 counts as 1, an entry of 0 as a half; then take the mean.",
    ),
    mistakes=[
        ("ties lost", edit(" + (above == 0).double() / 2", ""),
         "You count a tie as a defeat. A unit that never fires would get 0 instead of 1/2."),
        ("ties won", edit(" / 2", ""),
         "You count a tie as a victory. A unit that never fires would be perfect."),
        ("sides exchanged", edit("above > 0", "above < 0"),
         "You count the pairs in which the row without the concept scores higher: that is 1 minus the AUROC."),
        ("not divided", edit(".mean()", ".sum()"),
         "You counted the pairs that are won; divide by the number of pairs."),
        ("compared with the mean", lambda scores, labels: (scores[labels] > scores[~labels].mean()).double().mean(),
         "You compare with the mean of the rows without the concept. AUROC compares with each of them."),
        ("ranks of equal scores", _ranks_without_ties,
         "You ranked by sorting alone, so that equal scores get different ranks by chance. They share the mean of theirs."),
        ("argsort for ranks", lambda scores, labels: (
            (scores.argsort(stable=True) + 1.0)[labels].sum() - labels.sum() * (labels.sum() + 1) / 2
        ) / (labels.sum() * (~labels).sum()),
         "`argsort` returns which row comes first, second and so on. Ranks say at which place each row comes."),
        ("a threshold", lambda scores, labels: ((scores > 0.5) == labels).double().mean(),
         "You chose a threshold and counted right calls. AUROC needs no threshold: it compares pairs of rows."),
        ("difference of means", lambda scores, labels: scores[labels].mean() - scores[~labels].mean(),
         "The difference of two means depends on the scores' unit. AUROC counts pairs, whatever the unit is."),
    ],
)
def area_under_roc(scores, labels):
    """Probability that a positive row scores above a negative one, ties counted half."""
    above = scores[labels][:, None] - scores[~labels]
    return ((above > 0).double() + (above == 0).double() / 2).mean()


def _f1(hits, misses, alarms, silent):
    return 2 * hits / (2 * hits + alarms + misses)


def _auroc(hits, misses, alarms, silent):
    """The area for a score with two values: half the hit rate plus half the share of correct silences."""
    return (hits / (hits + misses) + silent / (alarms + silent)) / 2


def _counts(hits, misses, alarms, silent):
    """Whether the four are whole numbers, none below 0, with rows of both kinds."""
    whole_numbers = all(float(n).is_integer() and n >= 0 for n in (hits, misses, alarms, silent))
    return whole_numbers and hits + misses > 0 and alarms + silent > 0


def _case(hits, misses, alarms, silent):
    return {"hits": hits, "misses": misses, "alarms": alarms, "silent": silent}


lesson.flaw(
    "37.3", "An AUROC of 0.95 is enough", difficulty=2, minutes=8,
    prompt="\"A feature with an AUROC of 0.95 detects its concept well.\" Give a counterexample: a feature whose activation "
    "is either 0 or 1, with an AUROC of at least 0.95 and an F1 of at most 0.2. Return the number of rows of each kind, a "
    "dictionary `{\"hits\": ..., \"misses\": ..., \"alarms\": ..., \"silent\": ...}`: rows with the concept on which the "
    "feature fires and does not fire, then rows without the concept on which it fires and does not fire.",
    answer=_case(10, 0, 100, 1900),
    properties=[
        ("Each number is a count: whole, not negative, with at least one row of either kind.", _counts),
        ("The AUROC of your feature is below 0.95.",
         lambda hits, misses, alarms, silent: _auroc(hits, misses, alarms, silent) >= 0.95 - 1e-12),
        ("The F1 of your feature is above 0.2.",
         lambda hits, misses, alarms, silent: _f1(hits, misses, alarms, silent) <= 0.2 + 1e-12),
    ],
    hints=(
        "For a feature with two values AUROC is (share of hits + share of correct silences) / 2.",
        "F1 sets the false alarms against the hits, AUROC against all rows without the concept. Which of the two notices "
        "that a concept is rare?",
        "Let the feature miss nothing. Then choose how rare the concept must be for alarms on 5% of the other rows to "
        "outnumber the hits ten to one.",
    ),
    mistakes=[
        ("not rows", _case(0.9, 0.1, 0.05, 0.95),
         "These are shares. Give numbers of rows: how many rows there are of each kind decides.",
         lambda hits, misses, alarms, silent: any(0 < n < 1 for n in (hits, misses, alarms, silent))),
        ("a kind is missing", _case(10, 0, 0, 0),
         "There must be rows with the concept and rows without it: otherwise AUROC has no pair to compare.",
         lambda hits, misses, alarms, silent: min(hits, misses, alarms, silent) >= 0
         and (hits + misses == 0 or alarms + silent == 0)),
        ("a common concept", _case(100, 0, 5, 95),
         "With this AUROC and a concept that is not rare, F1 is high as well: the alarms are few beside the hits.",
         lambda hits, misses, alarms, silent: _counts(hits, misses, alarms, silent)
         and _auroc(hits, misses, alarms, silent) >= 0.95 and _f1(hits, misses, alarms, silent) > 0.2),
        ("misses too many", _case(1, 9, 0, 1000),
         "F1 is low because the feature misses most rows with the concept; AUROC sees that too and falls below 0.95.",
         lambda hits, misses, alarms, silent: _counts(hits, misses, alarms, silent) and misses > hits),
        ("alarms everywhere", _case(10, 0, 900, 100),
         "F1 is low because the feature fires on far too many rows without the concept; AUROC sees that as well. Make "
         "the concept rarer, not the feature worse.",
         lambda hits, misses, alarms, silent: _counts(hits, misses, alarms, silent) and misses <= hits
         and _auroc(hits, misses, alarms, silent) < 0.95),
    ],
)


lesson.flaw(
    "37.4", "Find the leak", difficulty=2, minutes=6,
    prompt="A report says: *F1 0.97 for \"apple\": the best of 2,048 features.* Its method, step by step:\n\n"
    "1. 24,000 sentences are drawn; the dictionary is trained on the states of their tokens, without labels.\n"
    "2. 2,000 further sentences with new meanings are drawn and labelled.\n"
    "3. On the 2,000 the feature with the largest F1 is chosen, with its best threshold.\n"
    "4. F1 of this feature and threshold is computed on the same 2,000.\n\n"
    "Return a dictionary `{\"leak\": ..., \"mend\": ...}`: the number of the step whose score cannot be believed because "
    "of what an earlier step chose, and the one change that repairs it: `\"other sentences\"` (score on labelled sentences "
    "that chose nothing), `\"more features\"`, `\"train on labels\"`, or `\"larger text\"` (train the dictionary on more "
    "sentences).",
    answer={"leak": 4, "mend": "other sentences"},
    properties=[
        ("The leak is a step from 1 to 4, and the repair one of the four names.",
         lambda leak, mend: leak in (1, 2, 3, 4) and mend in MENDS),
        ("With this answer the reported number still profits from the choice.",
         lambda leak, mend: leak == 4 and mend == "other sentences"),
    ],
    hints=(
        "Which numbers were looked at before the score was computed?",
        "Units of pure noise have a best one too. On which rows does it look good?",
        "Training without labels cannot leak a label. Choosing with labels can.",
    ),
    mistakes=[
        ("the training", {"leak": 1, "mend": "larger text"},
         "The dictionary saw no labels, and its sentences are others than those that are scored: nothing leaks there.",
         lambda leak, mend: leak in (1, 2)),
        ("the choice itself", {"leak": 3, "mend": "other sentences"},
         "Choosing on labelled sentences is what they are for. The score that is reported afterwards is the fault.",
         lambda leak, mend: leak == 3),
        ("more features", {"leak": 4, "mend": "more features"},
         "With more features to choose from, the luckiest one looks better still: the score would be believed even less.",
         lambda leak, mend: leak == 4 and mend == "more features"),
        ("more training", {"leak": 4, "mend": "larger text"},
         "A better dictionary does not repair a score that is computed on the rows which chose the feature.",
         lambda leak, mend: leak == 4 and mend in ("larger text", "train on labels")),
    ],
)

MENDS = ("other sentences", "more features", "train on labels", "larger text")


EXERCISES = lesson.exercises
