"""Learners of lesson 19."""

import math

import numpy as np
import torch

from course_lib.attention.kernelized import Quadratic, linear_attention
from course_lib.teaching import edit

GIVES_AWAY = {
    "19.P1": [r"stops at 15", r"(?i)different maps", r"(q - k|q-k).{0,40}\b6\b"],
    "19.P2": [r"2,?17[89]", r"4,?357"],
    "19.P3": [r"0\.56", r"(?i)on the floor"],
}


ROOT = math.sqrt(2)


def _ones(x):
    return torch.ones(len(x), 1, dtype=x.dtype)


def _by_table(x):
    """The upper triangle of the table of products, each weighted by how often it comes."""
    long = torch.cat([_ones(x), x], 1)
    first, second = torch.triu_indices(long.shape[1], long.shape[1])
    weights = 1 + (ROOT - 1) * (first != second).to(x.dtype)
    return weights * long[:, first] * long[:, second]


def _features(x, *, pairs="all", cross=ROOT, entry=ROOT, one=1.0, square=1.0):
    columns = range(x.shape[1])
    chosen = [(i, j) for i in columns for j in columns if i < j and (pairs == "all" or j == i + 1)]
    products = torch.stack([x[:, i] * x[:, j] for i, j in chosen], 1)
    return torch.cat([one * _ones(x), entry * x, square * x**2, cross * products], 1)


def _rotated(x):
    """Any rotation of right features is right."""
    features = Quadratic()(x)
    noise = torch.randn(features.shape[1], features.shape[1], generator=torch.Generator().manual_seed(3))
    return features @ torch.linalg.qr(noise.to(x.dtype)).Q


def _in_place(x):
    """Scales the entries where they stand, then squares them."""
    first, second = torch.triu_indices(x.shape[1], x.shape[1], offset=1)
    x *= math.sqrt(2)
    return torch.cat([_ones(x), x, x**2, math.sqrt(2) * x[:, first] * x[:, second]], 1)


def _example(q, a, b):
    return dict(zip(("q1", "q2", "a1", "a2", "b1", "b2"), (*q, *a, *b), strict=True))


def _cumulative(phi_q, phi_k, v):
    u = torch.einsum("nc,nm->ncm", phi_k, v).cumsum(0)
    return torch.einsum("nc,ncm->nm", phi_q, u) / (phi_q * phi_k.cumsum(0)).sum(1, keepdim=True)


def _with_zeros(phi_q, phi_k, v):
    u, z = torch.zeros(phi_k.shape[1], v.shape[1], dtype=v.dtype), torch.zeros_like(phi_k[0])
    out = torch.empty_like(v)
    for i in range(len(v)):
        u += phi_k[i, :, None] * v[i]
        z += phi_k[i]
        out[i] = phi_q[i] @ u / phi_q[i].dot(z)
    return out


def _weighted(weights, v):
    return weights @ v / weights.sum(1, keepdim=True)


def _library(phi_q, phi_k, v):
    return linear_attention(phi_q, phi_k, v, feature_map=lambda x: x, causal=True)


def _token_by_token(phi_q, phi_k, v, u, z):
    out = []
    for i in range(len(v)):
        u, z = u + torch.outer(phi_k[i], v[i]), z + phi_k[i]
        out.append((phi_q[i] @ u) / (phi_q[i] @ z))
    return torch.stack(out)


def _past_and_chunk(phi_q, phi_k, v, u, z):
    n = len(v)
    weights = torch.cat([phi_q, torch.tril(torch.einsum("ic,jc->ij", phi_q, phi_k))], 1)
    top, bottom = torch.cat([u, v]), torch.cat([z, z.new_ones(n)])
    return (weights @ top) / (weights @ bottom).unsqueeze(1)


def _summed_in_place(phi_q, phi_k, v, u, z):
    near = (phi_q @ phi_k.T).tril()
    out = (phi_q @ u + near @ v) / (phi_q @ z + near.sum(1))[:, None]
    u += phi_k.T @ v
    z += phi_k.sum(0)
    return out


def _joined(phi_q, phi_k, v, u, z):
    near = (phi_q @ phi_k.T) * torch.ones(len(v), len(v), dtype=v.dtype).tril()
    both = torch.cat([u, z[:, None]], 1)
    out = phi_q @ both + near @ torch.cat([v, torch.ones_like(v[:, :1])], 1)
    return out[:, :-1] / out[:, -1:]


def _partners(k, *, first=1.0, middle=-2.0, last=1.0):
    return torch.stack(
        [torch.cat([row.new_tensor([first]), middle * row, last * row.dot(row)[None]]) for row in k]
    )


ANSWERS = {
    "19.1": [
        ("solved", "row by row", _partners),
        (
            "solved",
            "by a difference",
            lambda k: torch.cat([_ones(k), -k - k, torch.einsum("nd,nd->n", k, k)[:, None]], 1),
        ),
        (
            "the queries' map",
            "one map for both",
            lambda k: torch.cat([(k * k).sum(1)[:, None], k, _ones(k)], 1),
        ),
        (
            "both ends exchanged",
            "reversed",
            lambda k: torch.cat([(k * k).sum(1)[:, None], -2 * k, _ones(k)], 1),
        ),
        ("the factor missing", "-k", lambda k: _partners(k, middle=-1)),
        ("the sign missing", "2k", lambda k: _partners(k, middle=2)),
        ("neither factor nor sign", "k as it is", lambda k: _partners(k, middle=1)),
        ("a root for two", "root 2 for both", lambda k: _partners(k, middle=-ROOT)),
        ("the length itself", "the norm", lambda k: torch.cat([_ones(k), -2 * k, k.norm(dim=1)[:, None]], 1)),
        (
            "the mean of the squares",
            "over the entries",
            lambda k: torch.cat([_ones(k), -2 * k, (k * k).mean(1)[:, None]], 1),
        ),
        ("malformed", "squares entry by entry", lambda k: torch.cat([_ones(k), -2 * k, k * k], 1)),
        ("malformed", "features along columns", lambda k: _partners(k).T.contiguous()),
        ("wrong", "the square subtracted", lambda k: _partners(k, last=-1)),
        ("wrong", "a constant of 2", lambda k: _partners(k, first=2)),
    ],
    "19.2": [
        ("solved", "as a float", 10.0),
        ("solved", "by the binomial coefficient", math.comb(5, 2)),
        ("solved", "NumPy's integer", np.int64(10)),
        ("solved", "a tensor without dimensions", torch.tensor(10)),
        ("without cross terms", "2D + 1 as a float", 7.0),
        ("both orders", "each cross term in both orders", torch.tensor(13)),
        ("homogeneous", "squares and products only", np.float64(6.0)),
        ("no constant", "the constant forgotten", 9.0),
        ("all ordered products", "(D + 1)^2", (3 + 1) ** 2),
        ("before the square", "D + 1", 3 + 1),
        ("another dimension", "the picture's", (4 + 1) * (4 + 2) / 2),
        ("wrong", "the cubic kernel's", math.comb(6, 3)),
        ("wrong", "D alone", 3),
        ("malformed", "a list of the groups", [1, 3, 3, 3]),
    ],
    "19.3": [
        ("solved", "the weighted table of products", _by_table),
        ("solved", "the library's map", lambda x: Quadratic()(x)),
        ("solved", "the constant -1", lambda x: _features(x, one=-1)),
        ("solved", "features in the reverse order", lambda x: _features(x).flip(1)),
        ("solved", "features rotated", _rotated),
        ("no cross terms", "entries and squares only", lambda x: _features(x)[:, : 1 + 2 * x.shape[1]]),
        ("cross terms once", "weight 1 for pairs", lambda x: _features(x, cross=-1)),
        ("entries once", "weight 1 for entries", lambda x: _features(x, entry=1)),
        ("factor 2", "2 in the place of the root", lambda x: _features(x, cross=2, entry=2)),
        ("squares with the root", "root 2 for the squares", lambda x: _features(x, square=math.sqrt(2))),
        ("root inside the products", "entries scaled in place first", _in_place),
        (
            "all ordered products",
            "the Kronecker map by einsum",
            lambda x: (lambda a: torch.einsum("ni,nj->nij", a, a).flatten(1))(torch.cat([_ones(x), x], 1)),
        ),
        ("no constant", "the constant 0", lambda x: _features(x, one=0)),
        ("malformed", "neighbouring pairs only", lambda x: _features(x, pairs="neighbours")),
        ("malformed", "features along rows", lambda x: Quadratic()(x).T.contiguous()),
        ("wrong", "the constant 2", lambda x: _features(x, one=2)),
        (
            "no root at all",
            "all products without weights",
            lambda x: (lambda y, ij: y[:, ij[0]] * y[:, ij[1]])(
                torch.cat([_ones(x), x], 1), torch.triu_indices(x.shape[1] + 1, x.shape[1] + 1)
            ),
        ),
    ],
    "19.4": [
        ("solved", "a line through (-1/2, 0) and (0, -1)", _example((2, 1), (-0.5, 0), (0, -1))),
        ("solved", "fractions that round", _example((3, 0), (-1 / 3, 0), (-1 / 3, 7))),
        ("solved", "the second entry asks", _example((0, -2), (5, 0.5), (0, 0.5))),
        ("solved", "a small query, long keys", _example((0.01, 0), (-100, 0), (-100, 1))),
        ("only one vanishes", "the second key is 0", _example((1, 1), (-1, 0), (0, 0))),
        ("only one vanishes", "its mirror image", _example((1, 2), (-1, 0), (1, 0))),
        ("a query of zeros", "everything 0 but the keys", _example((0, 0), (-1, 0), (0, -1))),
        ("keys across the query", "two orthogonal keys", _example((1, 1), (1, -1), (-2, 2))),
        ("one key twice", "the same key twice", _example((0.5, 0), (-2, 1), (-2, 1))),
        ("the wrong sign", "both products are 1", _example((1, 0), (1, 0), (1, 5))),
        ("cancelled before the square", "products 0 and -2", _example((1, 0), (0, 3), (-2, 0))),
        ("cancelled before the square", "products 3 and -5", _example((1, 1), (3, 0), (-5, 0))),
        ("wrong", "opposite keys", _example((2, 0), (2, 0), (-2, 0))),
        ("malformed", "vectors in the place of numbers", {"q": [1, 0], "a": [-1, 0], "b": [-1, 1]}),
    ],
    "19.5": [
        ("solved", "cumulative sums", _cumulative),
        ("solved", "a state of zeros, changed in place", _with_zeros),
        ("solved", "the library with features as they are", _library),
        ("solved", "a masked table", lambda a, b, v: _weighted((a @ b.T).tril(), v)),
        ("read before writing", "the strict past", lambda a, b, v: _weighted((a @ b.T).tril(-1), v)),
        ("saw the future", "no mask", lambda a, b, v: _weighted(a @ b.T, v)),
        ("not normalised", "sums only", lambda a, b, v: (a @ b.T).tril() @ v),
        (
            "divided by the count",
            "the mean over tokens seen",
            lambda a, b, v: (a @ b.T).tril() @ v / torch.arange(1, len(v) + 1)[:, None],
        ),
        (
            "the denominator of all",
            "the mask in the numerator only",
            lambda a, b, v: (a @ b.T).tril() @ v / (a @ b.T).sum(1, keepdim=True),
        ),
        ("state replaced", "the last token only", lambda a, b, v: v.clone()),
        (
            "the other triangle",
            "sums from the end",
            lambda a, b, v: _cumulative(a.flip(0), b.flip(0), v.flip(0)).flip(0),
        ),
        ("keys ask", "queries and keys exchanged", lambda a, b, v: _cumulative(b, a, v)),
        ("wrong", "one token too many", lambda a, b, v: _weighted((a @ b.T).tril(1), v)),
        ("wrong", "a constant in the denominator", edit("(query @ z)", "(query @ z + 0.1)")),
        ("malformed", "the last row only", lambda a, b, v: _cumulative(a, b, v)[-1]),
        ("malformed", "no return", lambda phi_q, phi_k, v: print(end="")),
        (
            "columns summed",
            "sum over the wrong axis",
            lambda phi_q, phi_k, v: (lambda a: a @ v / a.sum(0, keepdim=True).T)((phi_q @ phi_k.T).tril()),
        ),
        (
            "wrong",
            "values alone, without weights",
            lambda phi_q, phi_k, v: v.cumsum(0) / torch.arange(1, len(v) + 1)[:, None],
        ),
    ],
    "19.6": [
        ("solved", "past and chunk as one table", _past_and_chunk),
        ("loop", "token by token", _token_by_token),
        ("overwritten inputs", "sums changed in place", _summed_in_place),
        ("solved", "ones appended to the values", _joined),
        ("forgot the state", "linear attention of the chunk", lambda a, b, v, u, z: _cumulative(a, b, v)),
        ("forgot the chunk", "the state alone", lambda a, b, v, u, z: a @ u / (a @ z).unsqueeze(1)),
        (
            "no mask within the chunk",
            "the state of past and chunk",
            lambda a, b, v, u, z: a @ (u + b.T @ v) / (a @ (z + b.sum(0)))[:, None],
        ),
        (
            "without the diagonal",
            "strict past",
            edit("torch.tril(phi_q @ phi_k.T)", "(phi_q @ phi_k.T).tril(-1)"),
        ),
        ("not divided", "both numerators", lambda a, b, v, u, z: a @ u + (a @ b.T).tril() @ v),
        (
            "chunk missing above",
            "values of the past only",
            edit("top = phi_q @ u + near @ v", "top = phi_q @ u"),
        ),
        ("chunk missing below", "divided by the past", edit("(phi_q @ z + near.sum(1))", "(phi_q @ z)")),
        ("past missing below", "divided by the chunk", edit("(phi_q @ z + near.sum(1))", "near.sum(1)")),
        (
            "past missing above",
            "values of the chunk only",
            edit("top = phi_q @ u + near @ v", "top = near @ v"),
        ),
        (
            "the upper triangle",
            "the mask transposed",
            edit("torch.tril(phi_q @ phi_k.T)", "torch.tril(phi_k @ phi_q.T).T"),
        ),
        ("columns summed", "the wrong axis", edit("near.sum(1)", "near.T.sum(1)")),
        ("malformed", "keepdim forgotten", edit("[:, None]", "")),
        (
            "wrong",
            "a softmax within the chunk",
            edit("torch.tril(phi_q @ phi_k.T)", "(phi_q @ phi_k.T).softmax(1).tril()"),
        ),
        (
            "similarities transposed",
            "keys as rows",
            edit("torch.tril(phi_q @ phi_k.T)", "torch.tril(phi_k @ phi_q.T)"),
        ),
        (
            "no mask within the chunk",
            "the state updated first",
            lambda phi_q, phi_k, v, u, z: phi_q @ (u + phi_k.T @ v) / (phi_q @ (z + phi_k.sum(0)))[:, None],
        ),
    ],
}


NEIGHBOURS = {
    "19.2": ("torch.outer(-2 * at, at)", "torch.outer(2 * at, at)"),
    "19.3": ("sim(refs_q[:count], k))", "sim(refs_k[:count], k))"),
    "19.4": ("+ 2 * cross\n", "+ cross\n"),
    "19.6": (
        "rank = torch.linalg.matrix_rank((q @ k.T + 1) ** 2)",
        "rank = torch.linalg.matrix_rank((q @ k.T) ** 2)",
    ),
    "19.7": ("equals=1024**2 * (64 + 64)", "equals=1024**2 * 64"),
    "19.10": ("torch.cat([v, torch.ones_like(v[:, :1])], 1)  # U, and z", "v  # U, and z"),
    "19.8": ("sums = phi_k.T @", "sums = phi_q.T @"),
    "19.12": ("z + phi_k.sum(0)", "z"),
    "19.13": ("(q_c, k_c).tril()", "(q_c, k_c).tril(-1)"),
    "19.14": ("elu_form(8)", "elu_form(16)"),
    "19.e1": ('"square, C = 45": SQUARE', '"square, C = 45": elu_form(45)'),
}
