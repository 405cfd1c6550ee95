"""Exercises of lesson 26, transformer circuits."""

import math

import torch

from course_lib.lessons.transformer_circuits.contents import lesson
from course_lib.teaching import close, edit, inputs, normal, whole


def _pairs(end: int) -> float:
    logs = [math.log(min(20, t) - 11) for p in range(12, 21) for t in range(p, end)]
    return sum(logs) / len(logs)


def _places(end: int) -> float:
    return sum(math.log(min(20, t) - 11) for t in range(12, end)) / (end - 12)


def _number() -> float:
    counts = [min(20, t) - 11 for p in range(12, 21) for t in range(p, 24)]
    return sum(counts) / len(counts)


def _near(expected: float):
    """A recogniser for two digits behind the point."""
    return lambda answer: abs(answer - expected) <= 0.006


lesson.value(
    "26.1", "An even guess", difficulty=2, minutes=7,
    prompt="A reader knows the range of periods *and nothing else*. At place $t$ of the second round, counted from 0, the "
    "token can be known if the period is at most $t$. So the possible periods are $12, 13, \\dots, \\min(20, t)$, one as "
    "likely as the other. The reader guesses evenly among the tokens that they point to: its loss at that place is the "
    "natural logarithm of their number. What is its mean loss? Average over all pairs of a period $p$ from 12 to 20 and a "
    "place $t$ from $p$ to 23. A short loop will do; two decimals are enough.",
    answer=_pairs(24),
    properties=[
        ("The mean of log(number of possible periods) over all pairs is another number.", _near(_pairs(24))),
    ],
    hints=(
        "How many periods are possible at place 12? And at place 20?",
        "For how many of the nine periods can the token at place 12 be known? So often this place counts.",
        "Two nested loops, over p and over t from p to 23, add up the logarithms of min(20, t) - 11 and count the pairs.",
    ),
    mistakes=[
        ("nine everywhere", math.log(9), "That is a guess among nine at every place. At place 12 only one period is "
         "possible, at place 13 two.", _near(math.log(9))),
        ("all tokens", math.log(32), "That is a guess among all 32 tokens. The periods leave at most nine.",
         _near(math.log(32))),
        ("each place once", _places(24), "You counted each place once. At place 20 the token can be known for all nine "
         "periods, at place 12 for one only: count pairs.", _near(_places(24))),
        ("one place more", _pairs(25), "You included place 24. A sequence has 25 tokens, and at place 24 nothing is left "
         "to be predicted.", _near(_pairs(25))),
        ("mean of the numbers", math.log(_number()), "You took the logarithm of the mean number. The loss is the mean of "
         "the logarithms.", _near(math.log(_number()))),
        ("in bits", _pairs(24) / math.log(2), "That is in bits. Losses here are in nats: take the natural logarithm.",
         _near(_pairs(24) / math.log(2))),
    ],
)


def _pattern(n, generator):
    scores = torch.randn(n, n, generator=generator, dtype=torch.float64)
    later = torch.ones(n, n, dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(-1)


def _tokens(n, generator):
    tokens = torch.randint(0, 3, (n,), generator=generator)
    tokens[-1] = tokens[0]
    return tokens


@lesson.exercise(
    "26.2", "The induction score", difficulty=2, minutes=8,
    prompt="Write `induction_score(pattern, tokens)`: `pattern` is a causal pattern, queries by keys, float64, and "
    "`tokens` a row of whole numbers. "
    "For each place $t$ whose token stood earlier in the sequence, add up the weights on the places *right after* its "
    "earlier occurrences. Return the mean of these "
    "sums over those places $t$.",
    draw=inputs(n=whole(5, 7), pattern=_pattern, tokens=_tokens),
    properties=[("A score is a share of attention, from 0 to 1.", lambda answer: -1e-9 <= answer <= 1 + 1e-9)],
    agrees="It should be the mean of (26.4) over the places whose token came before.",
    hints=(
        "For a place t, which j < t have the token of t? Which keys do you then look at?",
        "A token that repeats at once, j = t - 1, is followed by t itself: that place counts, too.",
        "Which places t have no earlier occurrence? They are in neither the sum nor the count.",
    ),
    mistakes=[
        ("the token itself", edit("pattern[t, j + 1]", "pattern[t, j]"),
         "You added the weights on the earlier occurrences. That is the score of a duplicate-token head; induction looks "
         "at the place after."),
        ("the place before", edit("pattern[t, j + 1]", "pattern[t, j - 1]"), "You looked at the place before the earlier "
         "occurrence, not after it."),
        ("transposed", edit("pattern[t, j + 1]", "pattern[j + 1, t]"), "Rows of the pattern are queries: t is the row."),
        ("all places", edit("/ len(sums)", "/ len(tokens)"), "You divided by the number of all places. A token seen for "
         "the first time has nowhere to look."),
        ("sum", edit(" / len(sums)", ""), "You returned the sum. Asked is the mean over the places whose token came "
         "before."),
        ("mean over occurrences", edit("sums.append(sum(found))", "sums.append(sum(found) / len(found))"),
         "You took the mean over several earlier occurrences: weight spread over all of them is right, too, so add it up."),
        ("last occurrence", edit("sums.append(sum(found))", "sums.append(found[-1])"), "You counted the last earlier "
         "occurrence only: all count."),
        ("largest", edit("sums.append(sum(found))", "sums.append(max(found))"), "You took the largest weight. Weights on "
         "several right places add up."),
    ],
)
def induction_score(pattern, tokens):
    """Add up the weights after each earlier occurrence; the mean over the places that have one."""
    sums = []
    for t in range(len(tokens)):
        found = [float(pattern[t, j + 1]) for j in range(t) if tokens[j] == tokens[t]]
        if found:
            sums.append(sum(found))
    return sum(sums) / len(sums)


@lesson.exercise(
    "26.3", "What a head adds", difficulty=2, minutes=8,
    prompt="Write `head_output(x, w_qk, w_ov, d_head)`: `x` holds one token in each row, float64, and `w_qk`, `w_ov` are "
    "the two "
    "circuits of a causal head. Return what the head adds to the stream, in the shape of `x`: (26.5), softmax, (26.6).",
    draw=inputs(n=whole(3, 4), x=normal("n 3"), w_qk=normal("3 3"), w_ov=normal("3 3"), d_head=whole(1, 2)),
    properties=[
        ("The first token sees itself alone: its row should be x[0] W_OV.",
         lambda x, w_ov, answer: close(answer[0], x[0] @ w_ov)),
    ],
    agrees="Each row should be the mean of the rows so far, weighted by the pattern, times W_OV.",
    hints=(
        "Tokens are rows: which side of W_QK belongs to the query?",
        "Scores to the right of the diagonal have to vanish in the softmax, so before it they are -inf.",
        "The scale is that of keys and queries, whose inner products have $d_\\text{head}$ terms.",
    ),
    mistakes=[
        ("no scale", edit(" / d_head**0.5", ""), "The factor 1/√d_head is missing: circuits are stated before it."),
        ("scale of the stream", edit("d_head**0.5", "x.shape[1] ** 0.5"), "You divided by √d_model. The scale is √d_head."),
        ("not a root", edit("d_head**0.5", "d_head"), "You divided by d_head. The scale is its root."),
        ("sides exchanged", edit("x @ w_qk @ x.T", "x @ w_qk.T @ x.T"),
         "Query and key have changed places: this is the notes' W_QK for tokens in columns, transposed here."),
        ("no mask", edit("scores.masked_fill(later, -torch.inf)", "scores"), "A token sees later ones. The head is "
         "causal."),
        ("mask of zeros", edit("-torch.inf", "0.0"), "A score of 0 still gets weight: the softmax needs -inf."),
        ("mask afterwards", edit("scores.masked_fill(later, "
         "-torch.inf).softmax(-1)", "scores.softmax(-1).masked_fill(later, 0.0)"),
         "You masked after the softmax: the rows no longer sum to 1."),
        ("itself masked", edit("triu(1)", "triu(0)"), "You also masked the diagonal. A token may look at itself."),
        ("over queries", edit("softmax(-1)", "softmax(0)"), "The softmax runs over the queries. Each query spreads a "
         "weight of 1 over the keys."),
        ("W_V lost", edit("pattern @ x @ w_ov", "pattern @ x"), "That is the weighted mean of the tokens. What is moved "
         "has to pass through W_OV."),
        ("stream added", edit("return pattern", "return x + pattern"), "You added the stream. Asked is what the head adds "
         "to it."),
    ],
)
def head_output(x, w_qk, w_ov, d_head):
    """Score, mask, normalise, and move."""
    scores = x @ w_qk @ x.T / d_head**0.5
    later = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
    pattern = scores.masked_fill(later, -torch.inf).softmax(-1)
    return pattern @ x @ w_ov


@lesson.exercise(
    "26.4", "K-composition", difficulty=3, minutes=8,
    prompt="Write `k_composition(w_v, w_o, w_q, w_k)`: `w_v`, `w_o` belong to a head of an earlier layer, `w_q`, `w_k` to "
    "a head of a later one; "
    "`w_o` is (heads' dimensions, stream), the three others (stream, heads' dimensions), float64. Return the composition "
    "score (26.8) of what the earlier head writes "
    "and the later head's *keys*.",
    draw=inputs(w_v=normal("5 2"), w_o=normal("2 5"), w_q=normal("5 2"), w_k=normal("5 2")),
    properties=[
        ("Twice the weights should have the same score.", lambda answer: 0 < answer <= 1 + 1e-9),
    ],
    agrees="It should be the norm of the product over the product of the norms.",
    hints=(
        "What the earlier head writes is a row times $W_VW_O$. Which matrix meets it first in the later head's key?",
        "Reading $W_{QK}$ from the side of the keys is $W_KW_Q^\\top$.",
        "All three norms are Frobenius norms, of matrices as large as the stream.",
    ),
    mistakes=[
        ("Q-composition", edit("w_k @ w_q.T", "w_q @ w_k.T"), "That is Q-composition: the earlier output meets the "
         "queries. Read W_QK from its other side."),
        ("not normalised", edit(" / (written.norm() * read.norm())", ""), "The product of both norms is missing: the "
         "score must not depend on the size of the weights."),
        ("squares", edit("(written @ read).norm() / (written.norm() * read.norm())",
                         "(written @ read).square().sum() / (written.square().sum() * read.square().sum())"),
         "That is the square of the score."),
        ("largest singular value", edit("(written @ read).norm() / (written.norm() * read.norm())",
                                        "torch.linalg.matrix_norm(written @ read, 2) / (torch.linalg.matrix_norm(written, "
                                        "2) * torch.linalg.matrix_norm(read, 2))"),
         "You took spectral norms. The score takes Frobenius norms."),
        ("notes' order", edit("written @ read", "read @ written"), "The product is the other way round: rows are written "
         "first, then read. This order is for tokens in columns."),
        ("W_V left out", edit("w_v @ w_o", "w_o"), "You left out W_V: what is written depends on both, W_VW_O."),
        ("W_Q left out", edit("w_k @ w_q.T", "w_k"), "You left out W_Q: with W_K alone, the size of what is asked for is "
         "not in it."),
        ("sum for product", edit("(written.norm() * read.norm())", "(written.norm() + read.norm())"), "Divide by the "
         "product of both norms, not by the sum."),
    ],
)
def k_composition(w_v, w_o, w_q, w_k):
    """Compare the norm of the product with the product of the norms."""
    written, read = w_v @ w_o, w_k @ w_q.T
    return float((written @ read).norm() / (written.norm() * read.norm()))


EXERCISES = lesson.exercises
