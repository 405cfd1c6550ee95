"""Exercises of lesson 19, kernelized_attention."""

import math

import torch

from course_lib.lessons.kernelized_attention.contents import lesson
from course_lib.teaching import close, edit, inputs, normal, uniform, whole

POINTS = torch.randn(30, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _query_features(q):
    """The queries' side of the squared distance: (|q|^2, q, 1)."""
    return torch.cat([(q**2).sum(1, keepdim=True), q, torch.ones_like(q[:, :1])], 1)


def _distances(k, answer):
    """Whether the products of both sides are squared distances, for queries of as many entries."""
    q = torch.randn(12, k.shape[1], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return close(_query_features(q) @ answer.T, (q[:, None] - k[None]).square().sum(-1))


@lesson.exercise(
    "19.1", "Two sides of a distance", difficulty=1, minutes=5,
    prompt="$\\lVert q - k\\rVert^2$ is a sum of products, if queries and keys may have different maps. Take "
    "$\\phi(q) = (\\lVert q\\rVert^2,\\ q_1, \\dots, q_D,\\ 1)$ for the queries, in this order. Write `key_features(k)`, "
    "the map of the keys: for `k` of shape `(n, D)` return shape `(n, D + 2)`, such that $\\phi(q)$ times a row is "
    "$\\lVert q - k\\rVert^2$ for every $q$.",
    draw=inputs(d=whole(2, 4), k=normal("3 d")),
    properties=[("The products of φ(q) with your rows should be the squared distances of q from the keys.", _distances)],
    hints=(
        "Expand the squared distance: a part with q alone, a part with both, a part with k alone.",
        "Each entry of φ(q) is waiting for its partner: what does ‖q‖² have to be multiplied by?",
        "The partner of ‖q‖² is 1. Everything that stands before q·k belongs to the partners of the entries of q.",
    ),
    mistakes=[
        ("the queries' map", edit("[ones, -2 * k, squares]", "[squares, k, ones]"),
         "You gave the keys the map of the queries: the first product is then ‖q‖²‖k‖². The partner of ‖q‖² is 1."),
        ("both ends exchanged", edit("[ones, -2 * k, squares]", "[squares, -2 * k, ones]"),
         "Your ends are exchanged: ‖q‖² meets ‖k‖², and 1 meets 1. ‖q‖² stands alone in the sum, so its partner is 1."),
        ("the factor missing", edit("-2 * k", "-k"),
         "The middle term of the expansion is -2 q·k, yours gives -q·k."),
        ("the sign missing", edit("-2 * k", "2 * k"),
         "These are the partners for ‖q + k‖²: the middle term of ‖q - k‖² is negative."),
        ("neither factor nor sign", edit("-2 * k", "k"),
         "The middle term of the expansion is -2 q·k, yours gives q·k."),
        ("a root for two", edit("-2 * k", "-math.sqrt(2) * k"),
         "A root on each side is the way when both sides share one map. Here φ holds q itself, so all of -2 is left for k."),
        ("the length itself", edit("(k**2).sum(1, keepdim=True)", "k.norm(dim=1, keepdim=True)"),
         "Your last entry is ‖k‖. The expansion has its square."),
        ("the mean of the squares", edit(".sum(1", ".mean(1"),
         "You took the mean of the squared entries. ‖k‖² is their sum."),
    ],
)
def key_features(k):
    """Return the partners of (|q|^2, q, 1) in the squared distance."""
    ones, squares = torch.ones_like(k[:, :1]), (k**2).sum(1, keepdim=True)
    return torch.cat([ones, -2 * k, squares], 1)


lesson.value(
    "19.2", "Count the features", difficulty=1, minutes=3,
    prompt="How many features does $\\phi$ need, so that $\\phi(q)^\\top\\phi(k) = (q^\\top k + 1)^2$ for all $q$ and $k$ "
    "with $D = 3$ entries? Give the smallest number.",
    answer=10,
    properties=[
        ("The table of the similarities of 30 random points has another rank than your number of features.",
         lambda answer: int(torch.linalg.matrix_rank((POINTS @ POINTS.T + 1) ** 2)) == answer),
    ],
    hints=(
        "Expand (q₁k₁ + q₂k₂ + q₃k₃ + 1)² and collect equal products.",
        "There is a constant, there are single entries, squares, and products of two different entries.",
        "How many pairs i < j are there among three entries? Add the constant, three entries and three squares.",
    ),
    mistakes=[
        ("without cross terms", 7,
         "That is 1 + 3 + 3. The products of two different entries are missing."),
        ("both orders", 13,
         "That is 1 + 3 + 9: you counted xᵢxⱼ and xⱼxᵢ apart. They are one feature with the weight √2."),
        ("homogeneous", 6,
         "That is right for (qᵀk)². The 1 in (qᵀk + 1)² brings the single entries and a constant."),
        ("no constant", 9,
         "That counts three entries, three squares and three products: the constant 1 is a feature too."),
        ("all ordered products", 16,
         "That is 4², all products of two entries of (1, x) in both orders. Too many: a product and its reverse are one "
         "feature with the weight √2."),
        ("before the square", 4,
         "Four features, 1 and the three entries, are enough for qᵀk + 1. The square brings products of two of them."),
        ("another dimension", 15, "That is right for D = 4. Here D is 3."),
    ],
)


@lesson.exercise(
    "19.3", "The features of a square", difficulty=1, minutes=7,
    prompt="Write `quadratic_features(x)`: for `x` of shape `(n, D)`, $D \\ge 2$, return features of shape `(n, C)` such "
    "that $\\phi(x)^\\top\\phi(y) = (x^\\top y + 1)^2$ for every two rows, with the smallest $C$ that is enough for all $x$ "
    "and $y$. "
    "Any order and any signs are right.",
    draw=inputs(d=whole(2, 4), x=normal("3 d")),
    properties=[
        ("The dot products of your features should be (xᵀy + 1)² for all pairs of rows.",
         lambda x, answer: close(answer @ answer.T, (x @ x.T + 1) ** 2)),
    ],
    # Features may come in any order and with any sign: only their products count.
    same=lambda a, b: close(a @ a.T, b @ b.T),
    hints=(
        "Expand the square: a constant, single entries, squares of entries, products of two different entries.",
        "A term with the factor 2 in the expansion needs the factor √2 in each of the two feature vectors.",
        "torch.triu_indices(D, D, offset=1) lists the pairs i < j; torch.cat along dimension 1 puts the parts together.",
    ),
    mistakes=[
        ("no cross terms", edit(", cross]", "]"),
         "You left out the cross terms √2 xᵢxⱼ: (1, 1) with itself then gives 7 instead of 9."),
        ("cross terms once", edit("cross = math.sqrt(2) * ", "cross = "),
         "The product of two different entries comes twice in the square: its feature needs the factor √2."),
        ("entries once", edit(", math.sqrt(2) * x", ", x"),
         "2 xᵀy is the middle term of the square: each single entry needs the factor √2."),
        ("no root at all", edit("cross = math.sqrt(2) * ", "cross = ", ", math.sqrt(2) * x", ", x"),
         "Your products are right but come without weights. Single entries and cross terms come twice in the square: √2."),
        ("factor 2", edit("cross = math.sqrt(2)", "cross = 2", ", math.sqrt(2)", ", 2"),
         "You put the factor 2 into both vectors, so that the product has 4. The root belongs in each."),
        ("no constant", edit("ones_like", "zeros_like"),
         "Your constant feature is 0: the last term of the square, 1, is missing."),
        ("squares with the root", edit("offset=1", "offset=0", ", x**2", ""),
         "You gave √2 to the squares too. xᵢ² yᵢ² comes once in the square, only products of two different entries twice."),
        ("root inside the products", edit("offset=1)", "offset=1)\n    x = math.sqrt(2) * x", ", math.sqrt(2) * x", ", x"),
         "You took squares and products of √2 x, so that their terms come out 4 times too large. Multiply single entries "
         "and cross terms by √2 after forming them."),
        ("all ordered products", lambda x: torch.stack([torch.kron(row, row) for row in
                                                        torch.cat([torch.ones_like(x[:, :1]), x], 1)]),
         "These are all (D + 1)² products of (1, x), each cross term and each entry twice. The dot products are right; "
         "merge each pair into one feature with the factor √2 to get (D + 1)(D + 2)/2."),
    ],
)
def quadratic_features(x):
    """Return features whose dot products are (x.y + 1)^2."""
    first, second = torch.triu_indices(x.shape[1], x.shape[1], offset=1)
    cross = math.sqrt(2) * x[:, first] * x[:, second]
    return torch.cat([torch.ones_like(x[:, :1]), math.sqrt(2) * x, x**2, cross], 1)


def _products(q1, q2, a1, a2, b1, b2):
    return q1 * a1 + q2 * a2, q1 * b1 + q2 * b2


def _zeros(answer):
    """How many of the two similarities vanish."""
    return sum(abs(product + 1) < 1e-9 for product in _products(**answer))


def _keys_differ(a1, a2, b1, b2):
    return max(abs(a1 - b1), abs(a2 - b2)) > 1e-6


def _case(**changed):
    return {"q1": 1.0, "q2": 0.0, "a1": -1.0, "a2": 0.0, "b1": -1.0, "b2": 2.0, **changed}


lesson.flaw(
    "19.4", "Never negative is not enough", difficulty=2, minutes=4,
    prompt="\"$(q^\\top k + 1)^2$ is never negative, so attention with it always has a finite output.\" Give a "
    "counterexample with one query $q = (q_1, q_2)$ and two *different* keys $a$ and $b$: a dictionary with the numbers "
    "`q1`, `q2`, `a1`, `a2`, `b1`, `b2` for which the denominator of (19.1) is 0.",
    answer=_case(),
    properties=[
        ("The two keys should differ.", _keys_differ),
        ("The sum of the two similarities of your example is not 0.", lambda answer: _zeros(answer) == 2),
    ],
    hints=(
        "A sum of two numbers that are not negative is 0 only if both are.",
        "For which value of q·k is (q·k + 1)² zero? It is not 0.",
        "All keys with q·k = -1 lie on a line across q. Take two of its points.",
    ),
    mistakes=[
        ("one key twice", _case(b2=0.0),
         "The denominator is 0, but a and b are the same key: two different ones are asked for.",
         lambda a1, a2, b1, b2, answer: _zeros(answer) == 2 and not _keys_differ(a1, a2, b1, b2)),
        ("a query of zeros", _case(q1=0.0),
         "A query of zeros has q·k = 0 with every key, and the similarity is (0 + 1)² = 1.",
         lambda q1, q2: q1 == 0 and q2 == 0),
        ("only one vanishes", _case(b1=1.0),
         "One of the two similarities is 0, the other one carries the denominator.",
         lambda answer: _zeros(answer) == 1),
        ("keys across the query", _case(a1=0.0, a2=1.0, b1=0.0, b2=-1.0),
         "Keys with q·k = 0 have the similarity 1: the square vanishes where q·k is -1.",
         lambda q1, q2, answer: (q1 != 0 or q2 != 0) and max(map(abs, _products(**answer))) < 1e-9),
        ("the wrong sign", _case(a1=1.0, b1=1.0),
         "q·k = 1 gives (1 + 1)² = 4, the largest of q·k = -1, 0, 1. The square vanishes at q·k = -1.",
         lambda answer: max(abs(product - 1) for product in _products(**answer)) < 1e-9),
        ("cancelled before the square", _case(a1=-3.0, b1=1.0),
         "q·a + 1 and q·b + 1 cancel, but each is squared before the sum: neither similarity is 0.",
         lambda answer: abs(sum(_products(**answer)) + 2) < 1e-9 and _zeros(answer) == 0),
    ],
)


def _by_definition(phi_q, phi_k, v):
    """All similarities at once, those of later keys put to 0."""
    weights = (phi_q @ phi_k.T).tril()
    return weights @ v / weights.sum(1, keepdim=True)


@lesson.exercise(
    "19.5", "A recurrence for the past", difficulty=2, minutes=8,
    prompt="Write `causal_attention(phi_q, phi_k, v)`: causal linear attention, where token $i$ sees the tokens "
    "$1, \\dots, i$, itself included. `phi_q` and `phi_k` hold features, `(n, C)`; `v` has shape `(n, M)`; return `(n, M)`. "
    "Carry two sums from token to token. (A masked $n \\times n$ table gives the same numbers and passes, but it is what we "
    "want to get rid of.)",
    draw=inputs(n=whole(3, 5), c=whole(2, 3), phi_q=uniform(0.1, 2.5, "n c"), phi_k=uniform(0.1, 2.5, "n c"),
                v=normal("n 2")),
    properties=[
        ("Row i should be the average of v₁, ..., vᵢ with the weights φ(qᵢ)·φ(kⱼ).",
         lambda phi_q, phi_k, v, answer: close(answer, _by_definition(phi_q, phi_k, v))),
    ],
    hints=(
        "Two sums are enough: one of φ(k)vᵀ, a matrix, and one of φ(k), a vector.",
        "At each token first add its key and value to the sums, then let its query read them.",
        "torch.outer(key, value) is the summand; the output divides query @ matrix by query @ vector.",
    ),
    mistakes=[
        ("read before writing", edit("query @ u", "query @ (u - torch.outer(key, value))", "query @ z", "query @ (z - key)"),
         "You let the query read before its own key was added: the first token then divides 0 by 0."),
        ("saw the future", edit("u + torch.outer(key, value), z + key", "phi_k.T @ v, phi_k.sum(0)"),
         "Every token of yours sees the whole sequence: that is the form without a mask."),
        ("not normalised", edit(" / (query @ z)", ""),
         "You left out the denominator, so that the weights of a token do not add up to 1."),
        ("divided by the count", edit("(query @ z)", "(len(outputs) + 1)"),
         "You divided by the number of tokens seen. The denominator is the sum of their similarities."),
        ("the denominator of all", edit("query @ z", "query @ phi_k.sum(0)"),
         "Your denominator sums over all keys, while the numerator stops at the token: z must grow along."),
        ("state replaced", edit("u + torch.outer(key, value), z + key", "torch.outer(key, value), key"),
         "Your state holds the last token only, so each output is its own value: add to the sums, do not replace them."),
        ("the other triangle", lambda phi_q, phi_k, v: (phi_q @ phi_k.T).triu() @ v
         / (phi_q @ phi_k.T).triu().sum(1, keepdim=True),
         "Your token i sees the tokens i, ..., n, the future. It should see 1, ..., i."),
        ("columns summed", lambda phi_q, phi_k, v: (phi_q @ phi_k.T).tril() @ v / (phi_q @ phi_k.T).tril().sum(0)[:, None],
         "You summed the similarities of each key over the queries. The denominator of a query is a sum over its keys."),
        ("keys ask", edit("zip(phi_q, phi_k, v", "zip(phi_k, phi_q, v"),
         "You let keys read and queries write: φ(k) belongs in the sums, φ(q) reads them."),
        ("softmax of the products", lambda phi_q, phi_k, v: (phi_q @ phi_k.T).masked_fill(
            torch.ones(len(v), len(v)).triu(1) > 0, -math.inf).softmax(-1) @ v,
         "You took a softmax of φ(q)·φ(k). These products are the similarities already: no exponential."),
    ],
)
def causal_attention(phi_q, phi_k, v):
    """Walk through the sequence with a state of two sums."""
    u, z, outputs = 0, 0, []
    for query, key, value in zip(phi_q, phi_k, v, strict=True):
        u, z = u + torch.outer(key, value), z + key
        outputs.append(query @ u / (query @ z))
    return torch.stack(outputs)


def _continued(phi_q, phi_k, v, u, z):
    """The recurrence, going on from the state u, z."""
    outputs = []
    for query, key, value in zip(phi_q, phi_k, v, strict=True):
        u, z = u + torch.outer(key, value), z + key
        outputs.append(query @ u / (query @ z))
    return torch.stack(outputs)


@lesson.exercise(
    "19.6", "One chunk at a time", difficulty=3, minutes=9,
    prompt="Write `chunk_outputs(phi_q, phi_k, v, u, z)`: the causal outputs of one chunk of $n$ tokens. "
    "`phi_q`, `phi_k` $(n, C)$ and `v` $(n, M)$ belong to the chunk; the state `u` $(C, M)$ and `z` $(C,)$ holds the "
    "sums over all tokens *before* it. Return `(n, M)`, use no loop over the tokens, and "
    "leave `u` and `z` as they are.",
    forbids=("loop", "overwritten inputs"),
    draw=inputs(
        n=whole(2, 5), c=2, phi_q=uniform(0.1, 2.5, "n c"), phi_k=uniform(0.1, 2.5, "n c"), v=normal("n 2"),
        past_keys=uniform(0.1, 2.5, "4 c"), past_values=normal("4 2"),
        u=lambda past_keys, past_values: past_keys.T @ past_values, z=lambda past_keys: past_keys.sum(0),
    ),
    properties=[
        ("It should be what the recurrence gives when it goes on from the state u, z.",
         lambda phi_q, phi_k, v, u, z, answer: close(answer, _continued(phi_q, phi_k, v, u, z))),
    ],
    hints=(
        "A query sees two groups of keys: all those in the state, and those of its own chunk up to itself.",
        "The sums of both groups are added before anything is divided.",
        "Within the chunk, an n × n matrix of similarities is cheap: keep its lower triangle, with the diagonal.",
    ),
    mistakes=[
        ("forgot the state", edit("phi_q @ u + ", "", "phi_q @ z + ", ""),
         "You used the chunk alone: what came before it is in u and z."),
        ("forgot the chunk", edit(" + near @ v", "", " + near.sum(1)", ""),
         "You used the state alone: a token also sees its own chunk up to itself."),
        ("no mask within the chunk", edit("torch.tril", ""),
         "Within the chunk your tokens see later ones: keep the lower triangle only."),
        ("without the diagonal", edit("phi_k.T", "phi_k.T, -1"),
         "Your triangle leaves out the diagonal: a token sees itself."),
        ("two averages", edit("top / (phi_q @ z + near.sum(1))[:, None]",
                              "(phi_q @ u / (phi_q @ z)[:, None] + near @ v / near.sum(1)[:, None]) / 2"),
         "You divided past and chunk apart and took the mean. Add both numerators and both denominators first."),
        ("not divided", edit("top / (phi_q @ z + near.sum(1))[:, None]", "top"),
         "These are the numerators. Divide each row by what its similarities add up to, past and chunk together."),
        ("chunk missing above", edit(" + near @ v", ""),
         "Your denominator counts the chunk, your numerator does not: add the values of the chunk as well."),
        ("chunk missing below", edit(" + near.sum(1)", ""),
         "Your numerator counts the chunk, your denominator does not: add the chunk's similarities to φ(q)·z."),
        ("past missing above", edit("phi_q @ u + ", ""),
         "Your denominator counts the past, your numerator does not: add φ(q) U."),
        ("past missing below", edit("phi_q @ z + ", ""),
         "Your numerator counts the past, your denominator does not: add φ(q)·z."),
        ("the upper triangle", edit("torch.tril", "torch.triu"),
         "You kept the upper triangle, where tokens see later ones. Row i of the lower one sees the tokens up to i."),
        ("similarities transposed", edit("phi_q @ phi_k.T", "phi_k @ phi_q.T"),
         "Within the chunk your keys ask and your queries answer: φ(Q)φ(K)ᵀ has one row for each query."),
        ("columns summed", edit("near.sum(1)", "near.sum(0)"),
         "You summed the similarities of each key over the queries. The denominator of a query is a sum along its row."),
    ],
)
def chunk_outputs(phi_q, phi_k, v, u, z):
    """Attend to the past in the state and to the chunk itself."""
    near = torch.tril(phi_q @ phi_k.T)
    top = phi_q @ u + near @ v
    return top / (phi_q @ z + near.sum(1))[:, None]


EXERCISES = lesson.exercises
