"""What learners of lesson 21 answer, and what gives its predictions away."""

import math

import torch
from torch.nn import functional

from course_lib.teaching import edit

GIVES_AWAY = {
    "21.P1": [r"(?i)change of basis", r"W_Q ?W_K", r"(?i)no meaning"],
    "21.P2": [r"spread over several heads", r"(?i)all four"],
    "21.P3": [r"the translation loss changes"],
}


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


def weights(a, b, c, d):
    return {"a": a, "b": b, "c": c, "d": d}


ANSWERS = {
    "21.1": [
        ("solved", "weights less two bases", 48 - 2 * 2**2),
        ("solved", "two surfaces of rank 2", 2 * 2 * (2 * 6 - 2)),
        ("all weights", "nothing is free", 4 * 12),
        ("full matrices", "two 6 x 6", 72),
        ("one circuit", "the first one", 20),
        ("one basis", "the head's basis", 44),
        ("rotations only", "an angle for each basis", 46),
        ("the dimension of the subspace", "rank times 2", 4),
        ("malformed", "both circuits", (20, 20)),
    ],
    "21.2": [
        ("solved", "both along minus the first axis", weights(-1, 0, -1, 0)),
        ("solved", "a multiple", weights(0.5, -1.0, 2.0, -4.0)),
        ("no negative entry", "both positive", weights(1, 1, 1, 1)),
        ("opposite", "turned round", weights(1, 2, -1, -2)),
        ("different directions", "only the sign of c turned", weights(1, 2, -1, 2)),
        ("different directions", "at right angles", weights(1, 0, 0, -1)),
        ("zero", "no queries", weights(0, 0, -1, 1)),
        ("wrong", "no keys", weights(-1, 2, 0, 0)),
        ("malformed", "two vectors", {"W_Q": (-1, 2), "W_K": (-1, 2)}),
    ],
    "21.3": [
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
    "21.4": [
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
    "21.5": [
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
