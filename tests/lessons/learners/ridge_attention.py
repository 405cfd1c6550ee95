"""Learners of lesson 22."""

import torch

from course_lib.attention.ridge import ridge_attention, ridge_memory
from course_lib.teaching import edit

GIVES_AWAY = {
    "22.P1": [r"61\.3%|about 61%", r"same answers in either order", r"64\.4%"],
    "22.P2": [r"16,?777,?216", r"1\.939", r"nearly double"],
    "22.P3": [r"96\.1%", r"show no clear difference"],
}


def _together(ga, ca, gb, cb, p, q, *, penalties=1.0, cross=None, turned=False):
    """Read the memory of both readers, with the penalty counted so many times."""
    gram = ga + gb + (penalties - 2) * p * torch.eye(len(ga)).to(ga)
    memory = torch.linalg.inv(gram) @ (ca + cb if cross is None else cross)
    return memory @ q if turned else q @ memory


def _pairs_again(ga, ca, gb, cb, p, q):
    """Correct the first reader's memory by the second one's sums."""
    memory = torch.linalg.solve(ga, ca)
    new = gb - p * torch.eye(len(gb)).to(gb)
    return (memory + torch.linalg.solve(ga + new, cb - new @ memory)).T @ q


def _rls(inverse, weights, key, value):
    """The new inverse first, then the gain from it."""
    moved = inverse @ key
    new = inverse - torch.outer(moved, moved) / (1 + key @ moved)
    return weights + torch.outer(new @ key, value - weights.T @ key)


def _by_sums(inverse, weights, key, value):
    gram = torch.linalg.inv(inverse)
    return torch.linalg.inv(gram + key[:, None] * key) @ (gram @ weights + key[:, None] * value)


def _step(direction, error, divider):
    return lambda inverse, weights, key, value: (
        weights + torch.outer(direction(inverse, key), error(weights, key, value)) / divider(inverse, key)
    )


def _moved(inverse, key):
    return inverse @ key


def _error(weights, key, value):
    return value - weights.T @ key


def _whole(inverse, key):
    return 1 + key @ inverse @ key


def _in_turn(inverse, weights, queries, keys, values):
    answers = []
    for query, key, value in zip(queries, keys, values, strict=True):
        weights = _rls(inverse, weights, key, value)
        moved = inverse @ key
        inverse = inverse - torch.outer(moved, moved) / (1 + key @ moved)
        answers.append(query @ weights)
    return torch.stack(answers)


def _prefixes(inverse, weights, queries, keys, values):
    answers = []
    for i in range(1, len(keys) + 1):
        k, v = keys[:i], values[:i]
        middle = torch.eye(i, dtype=keys.dtype) + k @ inverse @ k.T
        answers.append(
            queries[i - 1] @ (weights + inverse @ k.T @ torch.linalg.solve(middle, v - k @ weights))
        )
    return torch.stack(answers)


def _wide(inverse, weights, queries, keys, values, *, mask=torch.tril):
    """Woodbury for the whole chunk, with a mask of choice."""
    middle = torch.eye(len(keys), dtype=keys.dtype) + keys @ inverse @ keys.T
    scores = mask(queries @ inverse @ keys.T @ torch.linalg.inv(middle))
    return queries @ weights + scores @ (values - keys @ weights)


def _four(u1, u2, v1, v2):
    return {"u1": u1, "u2": u2, "v1": v1, "v2": v2}


def _faded(K, V, penalty, g, *, pairs=1.0, first=None, root=0.5):
    """By scaled pairs, as in (22.12)."""
    n = len(K)
    weights = pairs * (g ** torch.arange(n - 1, -1, -1, dtype=K.dtype))[:, None] ** root
    return ridge_memory(weights * K, weights * V, penalty=penalty * g**n if first is None else first)


def _growing(K, V, penalty, g):
    """The scaled pairs that grow: everything divided by the last weight."""
    scale = (g ** -torch.arange(1, len(K) + 1, dtype=K.dtype)).sqrt()[:, None]
    return ridge_memory(scale * K, scale * V, penalty=penalty)


def _by_attention(K, V, penalty, g):
    """What the unit vectors read at the last token."""
    read = [
        ridge_attention(e.expand_as(K), K, V, penalty=penalty, decay=g)[-1]
        for e in torch.eye(K.shape[1]).to(K)
    ]
    return torch.stack(read)


def _two_sums(K, V, penalty, fade_gram, fade_cross):
    gram, cross = penalty * torch.eye(K.shape[1], dtype=K.dtype), 0
    for k, v in zip(K, V, strict=True):
        gram, cross = fade_gram * gram + k[:, None] * k, fade_cross * cross + k[:, None] * v
    return torch.linalg.inv(gram) @ cross


ANSWERS = {
    "22.1": [
        ("solved", "as a fraction", 26 / 10),
        ("solved", "a tensor", torch.tensor(2.6, dtype=torch.float64)),
        (
            "solved",
            "by the library",
            float(
                2
                * ridge_memory(
                    torch.tensor([[1.0], [2], [2]]).double(),
                    torch.tensor([[3.0], [1], [4]]).double(),
                    penalty=1.0,
                )
            ),
        ),
        ("no penalty", "rounded by Python", 2 * 13 / 9),
        ("linear attention", "a whole number", 26),
        ("the memory itself", "13/10", 13 / 10),
        ("mean of the values", "8/3", (3 + 1 + 4) / 3),
        (
            "the memory without penalty",
            "lstsq",
            float(
                torch.linalg.lstsq(
                    torch.tensor([[1.0], [2], [2]]).double(), torch.tensor([[3.0], [1], [4]]).double()
                ).solution
            ),
        ),
        ("a penalty for each pair", "three times lambda", 2 * 13 / (9 + 3)),
        ("the keys' own values", "mean of 1 and 4", (1 + 4) / 2),
        ("softmax attention", "softmax, two digits", 2.53),
        ("wrong", "W rounded to a whole number", 2),
        ("wrong", "the keys not squared", 2 * 13 / 6),
        ("malformed", "a vector", torch.tensor([2.6])),
    ],
    "22.2": [
        ("solved", "by the inverse", _together),
        ("solved", "one reader corrected by the other", _pairs_again),
        (
            "solved",
            "the penalty taken off both and put back",
            lambda ga, ca, gb, cb, p, q: (
                torch.linalg.solve(
                    (ga - p * torch.eye(2).to(ga)) + (gb - p * torch.eye(2).to(ga)) + p * torch.eye(2).to(ga),
                    ca + cb,
                ).T
                @ q
            ),
        ),
        ("the penalty twice", "sums of what is given", lambda *given: _together(*given, penalties=2)),
        ("no penalty", "taken off both", lambda *given: _together(*given, penalties=0)),
        ("read W q", "the wrong side", lambda *given: _together(*given, turned=True)),
        (
            "memories averaged",
            "the mean of two answers",
            lambda ga, ca, gb, cb, p, q: (
                (torch.linalg.solve(ga, ca).T @ q + torch.linalg.solve(gb, cb).T @ q) / 2
            ),
        ),
        (
            "memories added",
            "the sum of two answers",
            lambda ga, ca, gb, cb, p, q: torch.linalg.solve(ga, ca).T @ q + torch.linalg.solve(gb, cb).T @ q,
        ),
        ("one reader", "the first", lambda ga, ca, gb, cb, p, q: torch.linalg.solve(ga, ca).T @ q),
        ("linear attention", "no inverse", lambda ga, ca, gb, cb, p, q: q @ (ca + cb)),
        (
            "multiplied by the sum",
            "G H",
            edit("torch.linalg.solve(gram, cross_a + cross_b)", "gram.mT @ (cross_a + cross_b)"),
        ),
        ("wrong", "the other reader", lambda ga, ca, gb, cb, p, q: torch.linalg.solve(gb, cb).T @ q),
        ("wrong", "the penalty's half", lambda *given: _together(*given, penalties=0.5)),
        ("malformed", "a row of a matrix", lambda *given: _together(*given)[None]),
    ],
    "22.3": [
        ("solved", "from the new inverse", _rls),
        ("solved", "from the sums", _by_sums),
        ("solved", "columns times rows", _step(lambda p, k: p.T @ k, lambda w, k, v: v - k @ w, _whole)),
        ("the delta rule", "along the key", _step(lambda p, k: k, _error, lambda p, k: 1.0)),
        ("no division", "divider forgotten", _step(_moved, _error, lambda p, k: 1.0)),
        ("division without the one", "exact fit", _step(_moved, _error, lambda p, k: k @ p @ k)),
        ("no error", "the value itself", _step(_moved, lambda w, k, v: v, _whole)),
        ("wrong sign", "W k minus v", _step(_moved, lambda w, k, v: w.T @ k - v, _whole)),
        ("read with W", "W k for the error", _step(_moved, lambda w, k, v: v - w @ k, _whole)),
        ("divided by the key's length", "1 + |k|^2", _step(_moved, _error, lambda p, k: 1 + k.dot(k))),
        ("the new inverse twice", "divided twice", _step(_moved, _error, lambda p, k: _whole(p, k) ** 2)),
        (
            "the new inverse",
            "P after the pair",
            lambda p, w, k, v: torch.linalg.inv(torch.linalg.inv(p) + torch.outer(k, k)),
        ),
        (
            "outer product turned",
            "error first",
            lambda p, w, k, v: w + (torch.outer(v - w.T @ k, p @ k) / (1 + k @ p @ k)),
        ),
        ("wrong", "the whole key normalised", _step(lambda p, k: k, _error, lambda p, k: k @ k)),
        ("malformed", "the error only", lambda p, w, k, v: v - w.T @ k),
        (
            "W for H",
            "P k added to W, then the new P",
            edit(
                "return weights + torch.outer(moved, value - key @ weights) / (1 + key @ moved)",
                "new = inverse - torch.outer(moved, moved) / (1 + key @ moved)\n    "
                "return new @ (weights + torch.outer(key, value))",
            ),
        ),
    ],
    "22.4": [
        ("loop", "updates in turn", _in_turn),
        ("loop", "one solve for each prefix", _prefixes),
        (
            "solved",
            "inverse of the factor",
            edit(
                "torch.linalg.solve_triangular(factor, keys @ inverse, upper=False)",
                "torch.linalg.inv(factor) @ keys @ inverse",
            ),
        ),
        ("no mask", "Woodbury at the end of the chunk", lambda *given: _wide(*given, mask=lambda x: x)),
        (
            "own pair left out",
            "the strict triangle",
            edit("(queries @ moved.T).tril()", "torch.tril(queries @ moved.T, -1)"),
        ),
        ("masked after the inverse", "Woodbury, then the mask", _wide),
        (
            "masked too late",
            "the mask before a full solve",
            lambda p, w, q, k, v: (
                q @ w
                + (
                    (q @ p @ k.T).tril()
                    @ torch.linalg.solve(torch.eye(len(k), dtype=k.dtype) + k @ p @ k.T, v - k @ w)
                )
            ),
        ),
        ("past left out", "the chunk's share alone", lambda p, w, q, k, v: _in_turn(p, w, q, k, v) - q @ w),
        ("values for errors", "V stored", edit("values - keys @ weights", "values + 0 * keys @ weights")),
        (
            "only one triangle solved",
            "the left one",
            edit(
                "error = torch.linalg.solve_triangular(factor, values - keys @ weights, upper=False)",
                "error = values - keys @ weights",
            ),
        ),
        (
            "keys without P",
            "P forgotten in Z_k",
            edit("solve_triangular(factor, keys @ inverse", "solve_triangular(factor, keys"),
        ),
        (
            "linear attention in the chunk",
            "K and V as they are",
            lambda p, w, q, k, v: q @ w + torch.tril(q @ k.T) @ v,
        ),
        (
            "the delta rule in the chunk",
            "no factor",
            lambda p, w, q, k, v: q @ w + torch.tril(q @ p @ k.T) @ (v - k @ w),
        ),
        ("wrong", "the chunk alone", lambda p, w, q, k, v: ridge_attention(q, k, v, penalty=1.0)),
        ("malformed", "the last answer", lambda *given: _in_turn(*given)[-1]),
    ],
    "22.5": [
        ("solved", "the second axis", _four(0, 4, 0, -1)),
        ("solved", "both axes", _four(1, 1, -1, -2)),
        ("solved", "not parallel", _four(4, 0, -0.5, 7)),
        ("solved", "large and small", _four(2000, 0, -0.001, 0)),
        ("a zero vector", "v is zero", _four(1, 2, 0, 0)),
        ("a key twice", "u = v on one axis", _four(3, 0, 3, 0)),
        ("a key twice", "v is half of u", _four(2, -4, 1, -2)),
        ("orthogonal", "across in the inverse", _four(2, 4, 1, -1)),
        ("without the inverse", "v = -u of length 1", _four(0, 1, 0, -1)),
        ("without the inverse", "v = -u, both axes", _four(0.6, 0.8, -0.6, -0.8)),
        ("M for its inverse", "1 + 4 u2 v2", _four(0, 1, 0, -0.25)),
        ("the other sign", "number 2", _four(2, 0, 1, 1)),
        ("wrong", "removing a key", _four(1, 1, -1, -1)),
        ("malformed", "vectors", {"u": [2, 0], "v": [-1, 0]}),
    ],
    "22.6": [
        ("solved", "scaled pairs", _faded),
        ("solved", "scaled pairs that grow", _growing),
        ("solved", "the library's attention", _by_attention),
        ("nothing fades", "the library without decay", lambda K, V, p, g: ridge_memory(K, V, penalty=p)),
        ("only G fades", "one sum", lambda K, V, p, g: _two_sums(K, V, p, g, 1)),
        ("only H fades", "the other sum", lambda K, V, p, g: _two_sums(K, V, p, 1, g)),
        (
            "the penalty stays",
            "scaled pairs, the penalty as it is",
            lambda K, V, p, g: _faded(K, V, p, g, first=p),
        ),
        ("weights squared", "pairs times their weights", lambda K, V, p, g: _two_sums(K, V, p, g**2, g**2)),
        (
            "the new pair fades",
            "faded after adding",
            lambda K, V, p, g: _faded(K, V, p, g, first=p * g ** (len(K) - 1)),
        ),
        ("old pairs count most", "reversed", lambda K, V, p, g: _faded(K.flip(0), V.flip(0), p, g)),
        ("added to the inverse", "not solved", edit("torch.linalg.solve(gram, cross)", "gram.mT @ cross")),
        ("no penalty", "plain least squares", lambda K, V, p, g: _faded(K, V, 1e-12, g)),
        ("wrong", "the root of the decay", lambda K, V, p, g: _two_sums(K, V, p, g**0.5, g**0.5)),
        ("malformed", "transposed, with a row too many", lambda K, V, p, g: torch.cat([V, V]).T),
        (
            "the new pair fades",
            "the first pair does not fade G",
            edit("gram = penalty * ", "gram = penalty / decay * "),
        ),
    ],
}

NEIGHBOURS = {
    "22.h1": ('shares_right("delta", "sorted"), shares', 'shares_right("delta", "mixed"), shares'),
    "22.h2": (
        'lesson.read_once(seed, rule="ridge", order=o)',
        'lesson.read_once(seed, rule="delta", order=o)',
    ),
    "22.2": (
        "return (keys @ W - values).square().sum() + W",
        "return (keys @ W - values).square().sum() + 2 * W",
    ),
    "22.3": ("torch.eye(1000) + keys", "2 * torch.eye(1000) + keys"),
    "22.c1": ("k, v = randn(128, 64), randn(128, 64)", "k, v = randn(112, 64), randn(112, 64)"),
    "22.5": ("gain = moved / (1 + k @ moved)", "gain = moved / (k @ moved)"),
    "22.7": ("along_Pk = P @ k / (k @ P @ k)", "along_Pk = G @ k / (k @ G @ k)"),
    "22.8": ("updated - moved @ gain.T", "updated - moved * gain.T"),
    "22.10": ("(Q @ Z_k.T).tril()", "(Q @ Z_k.T).tril(-1)"),
    "22.e2": ('gain = (found["delta rule", "sorted"]', 'gain = (found["ridge", "sorted"]'),
    "22.e3": (
        'lead = found[waves, "mixed"] - found["ridge", "mixed"]',
        'lead = found[waves, "sorted"] - found["ridge", "sorted"]',
    ),
    "22.e4": (
        'lead = found[waves, "sorted"] - found["ridge", "sorted"]',
        'lead = found["delta rule on waves", "sorted"] - found["ridge", "sorted"]',
    ),
}
