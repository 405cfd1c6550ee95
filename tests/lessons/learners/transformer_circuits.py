"""What learners of lesson 26 answer, and what gives its predictions away."""

import math

import torch
from torch.nn import functional

from course_lib.teaching import edit

GIVES_AWAY = {
    "26.P1": [r"11 to 19", r"all nine candidates"],
    "26.P2": [r"(?i)no single head of layer 1 is needed", r"all four together"],
    "26.P3": [r"keys from one place back", r"(?i)values one place ahead"],
}

PAIRS = [(p, t) for p in range(12, 21) for t in range(p, 24)]


def mean_log(base=math.e, last=23):
    """The mean logarithm of the number of periods that a place leaves."""
    pairs = [(p, t) for p in range(12, 21) for t in range(p, last + 1)]
    return sum(math.log(min(20, t) - 11, base) for _, t in pairs) / len(pairs)


def head(x, w_qk, w_ov, pattern):
    return pattern(x @ w_qk @ x.T) @ x @ w_ov


def query_by_query(x, w_qk, w_ov, d_head):
    rows = []
    for t in range(len(x)):
        scores = x[: t + 1] @ (x[t] @ w_qk) / math.sqrt(d_head)
        rows.append(scores.softmax(0) @ x[: t + 1] @ w_ov)
    return torch.stack(rows)


def by_library(x, w_qk, w_ov, d_head):
    return functional.scaled_dot_product_attention(
        (x @ w_qk)[None], x[None], (x @ w_ov)[None], is_causal=True, scale=d_head**-0.5
    )[0]


def library_default(x, w_qk, w_ov, d_head):
    return functional.scaled_dot_product_attention(
        (x @ w_qk)[None], x[None], (x @ w_ov)[None], is_causal=True
    )[0]


def by_mask(pattern, tokens):
    """A table of the right places, one row for each query."""
    earlier = (tokens[:, None] == tokens[None]).tril(-1)
    right = torch.zeros_like(pattern)
    right[:, 1:] = earlier[:, :-1].to(pattern)
    return float((pattern * right).sum() / earlier.any(1).sum())


def with_lists(pattern, tokens):
    tokens = tokens.tolist()
    sums = [
        sum(float(pattern[t, j + 1]) for j, token in enumerate(tokens[:t]) if token == tokens[t])
        for t in range(len(tokens))
        if tokens[t] in tokens[:t]
    ]
    return sum(sums) / len(sums)


def composed(left, right):
    return float((left @ right).norm() / left.norm() / right.norm())


def by_small_matrices(w_v, w_o, w_q, w_k):
    """All norms as traces of products of the heads' small Gram matrices."""
    value, output, query, key = w_v.T @ w_v, w_o @ w_o.T, w_q.T @ w_q, w_k.T @ w_k
    middle = w_o @ w_k
    top = torch.trace(value @ middle @ query @ middle.T)
    return float((top / torch.trace(value @ output) / torch.trace(key @ query)).sqrt())


ANSWERS = {
    "26.1": [
        ("solved", "by pairs", mean_log()),
        ("solved", "two digits", 1.92),
        ("solved", "a tensor", torch.tensor([min(20, t) - 11 for _, t in PAIRS]).double().log().mean()),
        ("nine everywhere", "a guess among nine", 2.2),
        ("all tokens", "a guess among 32", math.log(32)),
        ("each place once", "a mean over the places", sum(math.log(min(20, t) - 11) for t in range(12, 24)) / 12),
        ("one place more", "up to place 24", mean_log(last=24)),
        ("mean of the numbers", "the mean first", math.log(sum(min(20, t) - 11 for _, t in PAIRS) / len(PAIRS))),
        ("in bits", "base 2", mean_log(base=2)),
        ("wrong", "the middle period", math.log(5)),
        ("malformed", "a list", [1.92]),
    ],
    "26.2": [
        ("solved", "a table of right places", by_mask),
        ("solved", "lists", with_lists),
        ("the token itself", "duplicate tokens", lambda pattern, tokens: by_mask(pattern.roll(1, 1), tokens)),
        ("transposed", "keys as rows", lambda pattern, tokens: by_mask(pattern.T, tokens)),
        ("all places", "mean over all places", lambda pattern, tokens: float(
            (pattern[:, 1:] * (tokens[:, None] == tokens).tril(-1)[:, :-1]).sum() / len(tokens))),
        ("sum", "not divided", lambda pattern, tokens: float(
            (pattern[:, 1:] * (tokens[:, None] == tokens).tril(-1)[:, :-1]).sum())),
        ("mean over occurrences", "divided by the number of pairs of each place",
         edit("sum(found))", "sum(found) / len(found))")),
        ("last occurrence", "the latest one", edit("sum(found))", "found[-1])")),
        ("wrong", "the first occurrence", edit("sum(found))", "found[0])")),
        ("malformed", "a sum for each place", lambda pattern, tokens: pattern.sum(1)),
    ],
    "26.3": [
        ("solved", "query by query", query_by_query),
        ("solved", "PyTorch's attention with its scale", by_library),
        ("no scale", "d_head of 1", lambda x, w_qk, w_ov, d_head: query_by_query(x, w_qk, w_ov, 1)),
        ("scale of the stream", "PyTorch's default scale", library_default),
        ("not a root", "divided by d_head", lambda x, w_qk, w_ov, d_head: query_by_query(x, w_qk, w_ov, d_head**2)),
        ("sides exchanged", "keys from the left", lambda x, w_qk, w_ov, d_head: query_by_query(x, w_qk.T, w_ov, d_head)),
        ("no mask", "all tokens seen", lambda x, w_qk, w_ov, d_head: head(
            x, w_qk, w_ov, lambda s: (s / d_head**0.5).softmax(1))),
        ("mask of zeros", "tril of the scores", lambda x, w_qk, w_ov, d_head: head(
            x, w_qk, w_ov, lambda s: (s / d_head**0.5).tril().softmax(1))),
        ("mask afterwards", "tril of the pattern", lambda x, w_qk, w_ov, d_head: head(
            x, w_qk, w_ov, lambda s: (s / d_head**0.5).softmax(1).tril())),
        ("over queries", "softmax over the first axis", edit("softmax(-1)", "softmax(0)")),
        ("stream added", "a residual connection", lambda x, w_qk, w_ov, d_head: x + by_library(x, w_qk, w_ov, d_head)),
        ("wrong", "W_OV transposed", lambda x, w_qk, w_ov, d_head: by_library(x, w_qk, w_ov.T, d_head)),
        ("malformed", "the pattern", lambda x, w_qk, w_ov, d_head: (x @ w_qk @ x.T).softmax(1)[:, :1]),
    ],
    "26.4": [
        ("solved", "divided one after the other", lambda w_v, w_o, w_q, w_k: composed(w_v @ w_o, w_k @ w_q.T)),
        ("solved", "small matrices", by_small_matrices),
        ("solved", "a tensor", lambda w_v, w_o, w_q, w_k: torch.tensor(by_small_matrices(w_v, w_o, w_q, w_k))),
        ("Q-composition", "the queries' side", lambda w_v, w_o, w_q, w_k: composed(w_v @ w_o, w_q @ w_k.T)),
        ("not normalised", "the norm of the product", lambda w_v, w_o, w_q, w_k: float((w_v @ w_o @ w_k @ w_q.T).norm())),
        ("squares", "sums of squares", lambda w_v, w_o, w_q, w_k: by_small_matrices(w_v, w_o, w_q, w_k) ** 2),
        ("notes' order", "tokens as columns", lambda w_v, w_o, w_q, w_k: composed(w_k @ w_q.T, w_v @ w_o)),
        ("W_V left out", "W_O alone", lambda w_v, w_o, w_q, w_k: composed(w_o, w_k @ w_q.T)),
        ("W_Q left out", "W_K alone", lambda w_v, w_o, w_q, w_k: composed(w_v @ w_o, w_k)),
        ("wrong", "W_Q for the keys", lambda w_v, w_o, w_q, w_k: composed(w_v @ w_o, w_q)),
        ("malformed", "the product", lambda w_v, w_o, w_q, w_k: w_v @ w_o @ w_k @ w_q.T),
    ],
}  # fmt: skip

# Each claim's nearest wrong neighbour.
NEIGHBOURS = {
    "26.e1": ("[:, :, 11:20]", "[:, :, 9:18]"),
    "26.2": ("change[1, :, 8], at_least", "change[0, :, 8], at_least"),
    "26.3": ("lesson.look_back(model)[:4].max()", "lesson.look_back(model)[4:].max()"),
    "26.4": ("[lesson.look_after(model)[4:].max() for", "[lesson.look_after(model)[:4].max() for"),
    "26.e2": (
        '[one["single heads of layer 1"] for one in found]',
        '[one["best of layer 0"] for one in found]',
    ),
    "26.e3": ('if name == "written":', 'if name == "own":'),
    "26.8": ("lesson.planted(hidden=True)", 'network("two layers", 0)'),
    "26.9": ('live["keys, one place back"]', 'live["queries, one place back"]'),
    "26.e4": ('live["values, one place ahead"]', 'live["values, one place back"]'),
    "26.e5": ("3.3e6 * seen - 1e10 * recent", "3.3e6 * seen - 1e8 * recent"),
    "26.e6": ("for model in (*twos, *shifted)]", "for model in (*ones, *shifted)]"),
}
