"""Exercises of lesson 21, transformer circuits."""

import torch

from course_lib.lessons.transformer_circuits.contents import lesson
from course_lib.teaching import close, edit, inputs, normal, whole

lesson.value(
    "21.1", "How many numbers a head has", difficulty=1, minutes=6,
    prompt="A head without biases has $d_\\text{model} = 6$ and $d_\\text{head} = 2$, so its four matrices hold 48 "
    "numbers. By "
    "(21.5), some changes of these numbers are seen by nothing outside the head. In how many independent directions can "
    "the pair $(W_{QK}, W_{OV})$ "
    "be changed by changing the weights?",
    answer=40,
    properties=[
        ("Each circuit is a 6 x 6 matrix of rank 2, made of two factors, of which a basis of 2 dimensions is free.",
         lambda answer: close(answer, 2 * (2 * 6 * 2 - 2 * 2))),
    ],
    hints=(
        "Take one circuit first. How many numbers do its two factors hold?",
        "How many numbers describe an invertible matrix that changes the basis inside the head?",
        "Matrices of n x n and rank r form a surface of r (2n - r) dimensions.",
    ),
    mistakes=[
        ("all weights", 48, "That is the number of weights. Changes of basis inside the head change weights and no "
         "circuit."),
        ("full matrices", 72, "Two 6 x 6 matrices hold that many numbers, but those of a head have rank 2 only."),
        ("one circuit", 20, "That is one of the two circuits."),
        ("one basis", 44, "Queries with keys have a basis of their own, and values with outputs another one: subtract "
         "both."),
        ("rotations only", 46, "You counted rotations, one number for each basis. Any invertible matrix leaves the "
         "circuits as they "
         "are, not only a rotation."),
        ("the dimension of the subspace", 4, "That counts the dimensions that the circuits can reach, not the ways to "
         "choose them."),
    ],
)


def _small(a, b, c, d):
    return max(abs(v) for v in (a, b, c, d)) < 1e6


def _symmetric(a, b, c, d):
    """The eigenvalues' product and sum of the symmetric part of (a, b)^T (c, d)."""
    return a * c * b * d - ((a * d + b * c) / 2) ** 2, a * c + b * d


def _rises(a, b, c, d):
    scale = (a * a + b * b) * (c * c + d * d)
    product, total = _symmetric(a, b, c, d)
    return product >= -1e-9 * scale and total > 1e-9 * scale**0.5


lesson.flaw(
    "21.2", "Negative weights", difficulty=1, minutes=8,
    prompt="\"Where $W_K$ has negative entries, a head avoids tokens that are like its own.\" Give a counterexample with "
    "$d_\\text{model} = 2$ and $d_\\text{head} = 1$: $W_Q = (a, b)^\\top$ and $W_K = (c, d)^\\top$, where $c$ or $d$ is "
    "negative, but *no* token $x$, whichever it is, has a negative score $x\\,W_{QK}\\,x^\\top$ with itself, and some "
    "have a positive one. The answer is a "
    "dictionary with the numbers `a`, `b`, `c`, `d`.",
    answer={"a": -1, "b": 2, "c": -1, "d": 2},
    properties=[
        ("The numbers should be smaller than a million.", _small),
        ("Neither c nor d is negative.", lambda c, d: c < 0 or d < 0),
        ("Some token has a negative score with itself, or none has a positive one.", _rises),
    ],
    hints=(
        "With one dimension inside the head, the score of x with itself is a product of two numbers. Which?",
        "When is the product (x·u)(x·v) negative for no x at all?",
        "Look at the token that is orthogonal to W_K, turned a little to each side: x·W_K changes its sign there. So must "
        "x·W_Q.",
    ),
    mistakes=[
        ("no negative entry", {"a": 1, "b": 2, "c": 1, "d": 2}, "Right for the scores, but the statement is about a W_K "
         "with a "
         "negative entry, and yours has none.",
         lambda a, b, c, d: _small(a, b, c, d) and _rises(a, b, c, d) and c >= 0 and d >= 0),
        ("opposite", {"a": 1, "b": -2, "c": -1, "d": 2}, "W_Q and W_K point in opposite directions here: every score of a "
         "token with itself is negative or 0. The signs of both together count.",
         lambda a, b, c, d: _small(a, b, c, d) and (c < 0 or d < 0) and _rises(-a, -b, c, d)),
        ("different directions", {"a": 1, "b": 1, "c": -1, "d": 2}, "W_Q and W_K point in different directions. Then "
         "there is a "
         "token with a positive product with one and a negative one with the other: its score is negative.",
         lambda a, b, c, d: _small(a, b, c, d) and (c < 0 or d < 0)
         and _symmetric(a, b, c, d)[0] < -1e-6 * (a * a + b * b) * (c * c + d * d)),
        ("zero", {"a": 0, "b": 0, "c": -1, "d": 2}, "With W_Q = 0 all scores are 0, and none is positive.",
         lambda a, b, c, d: _small(c, d, c, d) and a == 0 and b == 0 and (c < 0 or d < 0)),
    ],
)


@lesson.exercise(
    "21.3", "What a head adds", difficulty=2, minutes=10,
    prompt="Write `head_output(x, w_qk, w_ov, d_head)`: `x` holds one token in each row, float64, and `w_qk`, `w_ov` are "
    "the two "
    "circuits of a causal head. Return what the head adds to the stream, in the shape of `x`: (21.3), softmax, (21.4).",
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


def _pattern(n, generator):
    scores = torch.randn(n, n, generator=generator, dtype=torch.float64)
    later = torch.ones(n, n, dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(-1)


def _tokens(n, generator):
    tokens = torch.randint(0, 3, (n,), generator=generator)
    tokens[-1] = tokens[0]
    return tokens


@lesson.exercise(
    "21.4", "The induction score", difficulty=2, minutes=12,
    prompt="Write `induction_score(pattern, tokens)`: `pattern` is a causal pattern, queries by keys, float64, and "
    "`tokens` a row of whole numbers. "
    "For each place $t$ whose token stood earlier in the sequence, add up the weights on the places *right after* its "
    "earlier occurrences. Return the mean of these "
    "sums over those places $t$.",
    draw=inputs(n=whole(5, 7), pattern=_pattern, tokens=_tokens),
    properties=[("A score is a share of attention, from 0 to 1.", lambda answer: -1e-9 <= answer <= 1 + 1e-9)],
    agrees="It should be the mean of (21.12) over the places whose token came before.",
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
    "21.5", "K-composition", difficulty=3, minutes=14,
    prompt="Write `k_composition(w_v, w_o, w_q, w_k)`: `w_v`, `w_o` belong to a head of an earlier layer, `w_q`, `w_k` to "
    "a head of a later one; "
    "`w_o` is (heads' dimensions, stream), the three others (stream, heads' dimensions), float64. Return the composition "
    "score (21.8) of what the earlier head writes "
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
