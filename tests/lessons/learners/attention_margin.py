"""What learners of lesson 24 answer, and what gives its predictions away."""

import math

import torch

from course_lib.teaching import edit

GIVES_AWAY = {
    "24.P1": [r"(?i)nuclear", r"0\.5, ?0"],
    "24.P2": [r"c = 1\b", r"(?i)start small|smaller start|small start"],
}


def one_by_one(tokens, query, scores):
    best = int(scores.argmax())
    return torch.stack([(tokens[best] - tokens[t]) * query for t in range(len(tokens)) if t != best])


def by_masking(tokens, query, scores):
    return ((tokens[scores.argmax()] - tokens) * query)[scores < scores.max()]


def best_first(tokens, query, scores):
    order = scores.argsort(descending=True)
    return (tokens[order[0]] - tokens[order[1:]]) * query


def by_autograd(margins, gaps):
    m = margins.clone().requires_grad_()
    weights = torch.cat([m.new_zeros(1), -m]).softmax(0)[1:]
    return torch.autograd.grad(-(weights * gaps).sum(), m)[0]


def by_jacobian(margins, gaps):
    p = torch.cat([margins.new_zeros(1), -margins]).softmax(0)[1:]
    return (torch.diag(p) - torch.outer(p, p)) @ gaps


def others_only(margins, gaps):
    p = (-margins).softmax(0)
    return p * (gaps - p @ gaps)


def by_product_rule(K, Q, force):
    dK, dQ = force @ Q, force.mT @ K
    return dK @ Q.mT + K @ dQ.mT


def by_autograd_of_factors(K, Q, force):
    k, q = K.clone().requires_grad_(), Q.clone().requires_grad_()
    (force * (k @ q.T)).sum().backward()
    return k.grad @ Q.T + K @ q.grad.T


def point(first, second):
    return {"first": first, "second": second}


def constraint(a, b):
    return {"a": a, "b": b}


ANSWERS = {
    "24.1": [
        ("solved", "one by one", one_by_one),
        ("solved", "a mask of smaller scores", by_masking),
        ("query left out", "differences alone",
         lambda tokens, query, scores: one_by_one(tokens, torch.ones_like(query), scores)),
        ("sign", "token minus optimal token", lambda tokens, query, scores: -one_by_one(tokens, query, scores)),
        ("the first is optimal", "token 0", lambda tokens, query, scores: (tokens[:1] - tokens[1:]) * query),
        ("the worst", "argmin", lambda tokens, query, scores: one_by_one(tokens, query, -scores)),
        ("all rows", "with the row of zeros", lambda tokens, query, scores: (tokens[scores.argmax()] - tokens) * query),
        ("wrong", "sorted by score", best_first),
        ("malformed", "the sums", lambda tokens, query, scores: one_by_one(tokens, query, scores).sum(1)),
    ],
    "24.2": [
        ("autograd", "autograd", by_autograd),
        ("solved", "the softmax's Jacobian", by_jacobian),
        ("optimal token forgotten", "a softmax of three", others_only),
        ("average left out", "p times the gap", edit("gaps - (p * gaps).sum()", "gaps")),
        ("sign", "the cost's derivative", lambda margins, gaps: -by_autograd(margins, gaps)),
        ("tokens one by one", "sigmoids", lambda margins, gaps: (p := torch.sigmoid(-margins)) * (gaps - p @ gaps)),
        ("sign of the margins", "exp of the margin", lambda margins, gaps: by_jacobian(-margins, gaps)),
        ("wrong", "the plain mean of the gaps", edit("(p * gaps).sum()", "gaps.mean()")),
        ("malformed", "y f itself", lambda margins, gaps: -(torch.exp(-margins) * gaps).sum()),
    ],
    "24.3": [
        ("solved", "2.5 times 1.5", 2.5 * 1.5),
        ("solved", "the root written out", 1.5 * math.sqrt(2**2 + 1.5**2)),
        ("k fixed", "2 times 1.5", 3.0),
        ("sum of squares", "a circle", 1.5 * math.sqrt(2**2 - 1.5**2)),
        ("balanced", "1.5 squared", 1.5**2),
        ("difference kept", "3.5 times 1.5", 3.5 * 1.5),
        ("k alone", "the root", 2.5),
        ("malformed", "both factors", (2.5, 1.5)),
    ],
    "24.4": [
        ("solved", "minus a quarter", point(0.0, -1 / 4)),
        ("solved", "tensors", point(torch.tensor(0.0), torch.tensor(-0.25))),
        ("Frobenius", "along the gradient", point(3 / 25, -4 / 25)),
        ("sign", "plus a quarter", point(0, 0.25)),
        ("largest with its sign", "the first coordinate", point(1 / 3, 0)),
        ("margin not 1", "the direction", point(0, -1)),
        ("equal shares", "sevenths", point(1 / 7, -1 / 7)),
        ("wrong", "half of each", point(1 / 6, -1 / 8)),
        ("malformed", "a vector", torch.tensor([0.0, -0.25])),
    ],
    "24.5": [
        ("solved", "the best ratio, 0.41", constraint(1, 2**0.5 - 1)),
        ("solved", "the second larger", constraint(0.4, 1.0)),
        ("solved", "signs do not matter", constraint(-5, 2)),
        ("the page's constraint", "twice it", constraint(4, 2)),
        ("one third", "one to three", constraint(-1, 3)),
        ("equal sizes", "opposite signs", constraint(1, -1)),
        ("one coordinate", "the second alone", constraint(0, 3)),
        ("too lopsided", "a hundred to one", constraint(100, 1)),
        ("wrong", "nearly equal", constraint(3, 2)),
        ("malformed", "a list", [12, 5]),
    ],
    "24.6": [
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
}  # fmt: skip
