"""What learners of lesson 29 answer, and what gives its predictions away."""

import math

import torch

GIVES_AWAY = {
    "29.P1": [r"(?i)nuclear", r"≈61%", r"(?i)more of the property"],
    "29.P2": [
        r"(?i)points above \$W\$",
        r"margin 1 less margin 100",
        r"size 4 less sizes",
        r"less the least nuclear norm",
    ],
    "29.P3": [r"(?i)between 3 and 5", r"(?i)help where few"],
}


def one_by_one(tokens, query, right, *, turned=False):
    outer = [torch.outer(tokens[right] - tokens[t], query) for t in range(len(tokens)) if t != right]
    return torch.stack([one.T if turned else one for one in outer])


def by_deleting(tokens, query, right):
    others = torch.cat([tokens[:right], tokens[right + 1 :]])
    return torch.einsum("tj,k->tjk", tokens[right] - others, query)


def by_product_rule(K, Q, force):
    dK, dQ = force @ Q, force.mT @ K
    return dK @ Q.mT + K @ dQ.mT


def by_autograd_of_factors(K, Q, force):
    k, q = K.clone().requires_grad_(), Q.clone().requires_grad_()
    (force * (k @ q.T)).sum().backward()
    return k.grad @ Q.T + K @ q.grad.T


def point(first, second):
    return {"first": first, "second": second}


ANSWERS = {
    "29.1": [
        ("solved", "one by one", one_by_one),
        ("solved", "the right row deleted", by_deleting),
        ("transposed", "query first", lambda tokens, query, right: one_by_one(tokens, query, right, turned=True)),
        ("sign", "token minus right token", lambda tokens, query, right: -one_by_one(tokens, query, right)),
        ("the first is right", "row 0 less the others",
         lambda tokens, query, right: ((tokens[0] - tokens)[torch.arange(4) != right])[:, :, None] * query),
        ("token alone", "outer products of tokens",
         lambda tokens, query, right: tokens[torch.arange(4) != right][:, :, None] * query),
        ("query left out", "a query of ones",
         lambda tokens, query, right: one_by_one(tokens, torch.ones_like(query), right)),
        ("wrong", "in the reverse order", lambda tokens, query, right: one_by_one(tokens, query, right).flip(0)),
        ("malformed", "vectors, entry by entry", lambda tokens, query, right: (tokens[right] - tokens)[:3] * query),
        ("all rows", "with the matrix of zeros",
         lambda tokens, query, right: (tokens[right] - tokens)[:, :, None] * query),
    ],
    "29.2": [
        ("solved", "the product rule", by_product_rule),
        ("solved", "autograd for both factors", by_autograd_of_factors),
        ("only K moves", "Q held fixed", lambda K, Q, force: force @ Q @ Q.T),
        ("only Q moves", "K held fixed", lambda K, Q, force: K @ K.T @ force),
        ("W itself", "the force", lambda K, Q, force: force.clone()),
        ("G not transposed", "G K", lambda K, Q, force: force @ Q @ Q.T + K @ (force @ K).T),
        ("sides exchanged", "Gram matrices on the wrong sides", lambda K, Q, force: Q @ Q.T @ force + force @ K @ K.T),
        ("sign", "along the gradient", lambda K, Q, force: by_product_rule(K, Q, -force)),
        ("wrong", "the product of both changes", lambda K, Q, force: force @ Q @ (force.T @ K).T),
        ("malformed", "the change of K", lambda K, Q, force: force @ Q),
    ],
    "29.3": [
        ("solved", "2.5 times 1.5", 2.5 * 1.5),
        ("solved", "the root written out", 1.5 * math.sqrt(2**2 + 1.5**2)),
        ("k fixed", "2 times 1.5", 3.0),
        ("sum of squares", "a circle", 1.5 * math.sqrt(2**2 - 1.5**2)),
        ("balanced", "1.5 squared", 1.5**2),
        ("difference kept", "3.5 times 1.5", 3.5 * 1.5),
        ("k alone", "the root", 2.5),
        ("malformed", "both factors", (2.5, 1.5)),
    ],
    "29.4": [
        ("solved", "minus a quarter", point(0.0, -1 / 4)),
        ("solved", "tensors", point(torch.tensor(0.0), torch.tensor(-0.25))),
        ("as β by itself", "along the gradient", point(3 / 25, -4 / 25)),
        ("sign", "plus a quarter", point(0, 0.25)),
        ("largest with its sign", "the first coordinate", point(1 / 3, 0)),
        ("margin not 1", "the direction", point(0, -1)),
        ("equal shares", "sevenths", point(1 / 7, -1 / 7)),
        ("wrong", "half of each", point(1 / 6, -1 / 8)),
        ("malformed", "a vector", torch.tensor([0.0, -0.25])),
    ],
}  # fmt: skip

NEIGHBOURS = {
    "29.e1": ("flow.products[1])[arrived]", "flow.products[1] * 0 + flows['KQ'].products[1])[arrived]"),
    "29.3": ("pulls = 2 * ((-f).exp() * weights[:, 0])", "pulls = 2 * (-f.exp() * weights[:, 0])"),
    "29.7": ('parametrisation="kq", margins=[1e6]', 'parametrisation="kq", margins=[1e2]'),
    "29.e2": ('sets {:.0f}%", table["KQ", "nuclear"]', 'sets {:.0f}%", table["W", "nuclear"]'),
    "29.e3": ('excess {:.1f}%", table["W", "Frobenius"]', 'excess {:.1f}%", table["KQ", "Frobenius"]'),
    "29.e5": ("ten = problem(rank=10, seeds=seeds)", "ten = problem(rank=3, seeds=seeds)"),
    "29.e6": (
        '(points["KQ, margin 1"] - points["KQ, margin 100"]).mean()',
        '(points["KQ, margin 10"] - points["KQ, margin 100"]).mean()',
    ),
    "29.e8": (
        '(points["KQ, margin 10"] - points["least nuclear norm"]).mean()',
        '(points["KQ, margin 10"] - points["KQ, margin 100"]).mean()',
    ),
    "29.e7": ('penalised(at.training, 0.2, "nuclear")', 'penalised(at.training, 0, "nuclear")'),
    "29.9": ('direction_cosine(path["KQ"][0]', 'direction_cosine(path["KQ"][2]'),
    "29.e9": ('peak - whole["KQ", s].mean()', 'whole["W", 4].mean() - whole["W", s].mean()'),
    "29.e10": ('(alone["KQ", s] - whole["KQ", s])', '(alone["W", s] - whole["W", s])'),
}  # fmt: skip
