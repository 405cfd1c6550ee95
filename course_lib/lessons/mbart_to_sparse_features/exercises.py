"""Exercises of lesson 29, mbart_to_sparse_features."""

import math

import torch

from course_lib.teaching import contents, edit, inputs, integers, normal, uniform, whole

lesson = contents(__name__)

lesson.value(
    "29.1", "How many directions", difficulty=1, minutes=3,
    prompt="States of width $d = 256$ are isotropic: every direction has the same variance. How many principal "
    "components are needed to keep at least 90% of the variance?",
    answer=231,
    same=lambda one, other: abs(one - other) < 0.05,
    properties=[
        ("Count whole components, 1 to 256.", lambda answer: float(answer).is_integer() and 1 <= answer <= 256),
        ("With that many components less than 90% is kept.", lambda answer: answer / 256 >= 0.9),
        ("One component fewer keeps 90% already.", lambda answer: (answer - 1) / 256 < 0.9),
    ],
    hints=(
        "Each of the 256 components keeps the same share of the variance. Which?",
        "k components keep k / 256. Solve k / 256 >= 0.9.",
        "0.9 times 256 is 230.4, and k is whole.",
    ),
    mistakes=[
        ("rounded down", 230, "230 of 256 components keep 89.8%: just short. Round up."),
        ("the share that is lost", 26, "That many components keep about 10%: you solved for what may be lost."),
        ("an eighth", 32, "d/8 = 32 components keep 12.5% of isotropic states, and 90% is asked for."),
        ("did not round", 230.4, "0.9 · 256 = 230.4 is right so far; components are whole: round up."),
    ],
)


def _mean_by_loop(states, mask):
    rows = [[state for state, counts in zip(*row, strict=True) if counts] for row in zip(states, mask, strict=True)]
    return torch.stack([torch.stack(row).mean(dim=0) for row in rows])


@lesson.exercise(
    "29.2", "A mean that does not see the padding", difficulty=2, minutes=8,
    prompt="Write `mean_over_tokens(states, mask)`. `states` has shape `(sentences, tokens, d_model)`, `mask` is a bool "
    "tensor of shape `(sentences, tokens)`, True where a token counts; return the mean over those tokens, shape "
    "`(sentences, d_model)`. Every sentence has at least one.",
    # The language code stands first and does not count; of the others at least one does.
    draw=inputs(
        others=whole(2, 4), tokens=lambda others: others + 1, states=normal("2 tokens 2"), chance=uniform(0, 1, "2 others"),
        mask=lambda chance: torch.cat([chance[:, :1] < 0, (chance > 0.5) | (chance == chance.amax(1, keepdim=True))], dim=1),
    ),
    properties=[
        ("Each row should be the mean over that sentence's counted tokens alone.",
         lambda states, mask, answer: torch.allclose(answer, _mean_by_loop(states, mask), atol=1e-9)),
    ],
    hints=(
        "Turn the mask into numbers: what is the sum of states times mask?",
        "The mask needs a last dimension of 1 to multiply the states.",
        "Divide by how many tokens count in each sentence, not by how many there are.",
    ),
    mistakes=[
        ("plain mean", edit("mask.to(states.dtype)", "torch.ones_like(mask, dtype=states.dtype)"),
         "You averaged over all positions, pads included, as the notes do: the result depends on how long the longest "
         "sentence of the batch is."),
        ("divided by all tokens", edit("weights.sum(dim=1, keepdim=True)", "mask.shape[1]"),
         "You left the pads out of the sum, but divided by the number of all positions."),
        ("summed all tokens", edit(" * weights[..., None]", ""),
         "You divided by the number of counted tokens, but summed all positions."),
        ("the first ones", lambda states, mask: torch.stack(
            [row[: int(counts.sum())].mean(dim=0) for row, counts in zip(states, mask, strict=True)]),
         "You averaged as many tokens as count, but the first ones. The mask says which: the language code in front does "
         "not count."),
        ("did not divide", edit(" / weights.sum(dim=1, keepdim=True)", ""),
         "You returned the sum: longer sentences get longer vectors. Divide by the number of counted tokens."),
        ("turned the mask over", edit("mask.to", "(~mask).to"),
         "You averaged exactly the tokens that do not count: the mask is True where a token counts."),
        ("one mean for all sentences", lambda states, mask: states[mask].mean(dim=0).expand(len(states), -1).clone(),
         "`states[mask]` puts the tokens of all sentences into one heap: every sentence gets the same mean."),
        ("kept no dimension", edit("dim=1, keepdim=True", "dim=1"),
         "Your counts have shape (sentences,) and divide the columns of the sums. Keep a dimension of 1 at the end."),
        ("divided by all counted tokens", edit("weights.sum(dim=1, keepdim=True)", "weights.sum()"),
         "You divided by the counted tokens of the whole batch. Each sentence has its own number."),
    ],
)
def mean_over_tokens(states, mask):
    """Mean over the tokens whose mask is True, one row a sentence."""
    weights = mask.to(states.dtype)
    return (states * weights[..., None]).sum(dim=1) / weights.sum(dim=1, keepdim=True)


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
    "29.3", "How well a feature tells a concept", difficulty=2, minutes=10,
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
    ],
)
def area_under_roc(scores, labels):
    """Probability that a positive row scores above a negative one, ties counted half."""
    above = scores[labels][:, None] - scores[~labels]
    return ((above > 0).double() + (above == 0).double() / 2).mean()


def _relu_mean(first, second):
    return (max(0.0, float(first)) + max(0.0, float(second))) / 2


lesson.flaw(
    "29.4", "Break the KL penalty", difficulty=3, minutes=6,
    prompt="The notes put the penalty $\\mathrm{KL}(\\rho \\Vert \\hat\\rho)$ on ReLU units, where $\\hat\\rho$ is the "
    "unit's mean activation over the batch. Give pre-activations of one unit for a batch of two, a dictionary "
    "`{\"first\": ..., \"second\": ...}`, for which the penalty has no value, although the unit is alive (its ReLU is "
    "positive for at least one of the two).",
    answer={"first": 3.0, "second": -1.0},
    properties=[
        ("The unit should be alive: one of the two must be positive.", lambda first, second: _relu_mean(first, second) > 0),
        ("For your numbers the penalty has a value.", lambda first, second: _relu_mean(first, second) >= 1),
    ],
    hints=(
        "Write the second term of KL: which logarithm can fail?",
        "The mean activation of a ReLU unit has no upper limit. What is 1 - rho_hat above 1?",
        "Choose the numbers so that the mean of the two ReLU outputs is 1 or more.",
    ),
    mistakes=[
        ("a dead unit", {"first": -1.0, "second": -2.0},
         "There the penalty is infinite, but the unit is dead: both outputs are 0. Find a living one.",
         lambda first, second: _relu_mean(first, second) == 0),
        ("a mean below 1", {"first": 0.4, "second": 0.2},
         "The mean of the two outputs lies between 0 and 1, where the penalty is defined.",
         lambda first, second: 0 < max(first, second) < 1),
        ("forgot the batch mean", {"first": 1.5, "second": -3.0},
         "One output is 1 or more, but the penalty looks at the mean over the batch, and that is below 1. (Negative numbers "
         "count as 0 in it.)",
         lambda first, second: max(first, second) >= 1 and _relu_mean(first, second) < 1),
    ],
)

EXERCISES = lesson.exercises
