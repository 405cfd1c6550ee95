"""Exercises of lesson 22, ridge_attention."""

import torch

from course_lib.lessons.ridge_attention.contents import lesson
from course_lib.teaching import close, edit, inputs, near, normal, uniform, whole


def _loss_is_smallest(answer):
    """Whether no W beside half of the answer has a smaller ridge loss."""
    keys, values = torch.tensor([1.0, 2, 2]).double(), torch.tensor([3.0, 1, 4]).double()
    loss = lambda w: (keys * w - values).square().sum() + w**2  # noqa: E731
    return all(loss(answer / 2) <= loss(answer / 2 + step) for step in (-0.3, -0.001, 0.001, 0.3))


lesson.value(
    "22.1", "Three pairs of numbers", difficulty=1, minutes=4,
    prompt="Keys and values are numbers: the keys 1, 2, 2 belong to the values 3, 1, 4. The penalty is $\\lambda = 1$. "
    "Which number does the memory of (22.1) answer to the query $q = 2$?",
    answer=2.6,
    properties=[("Half of your answer is the memory W, and another W has a smaller loss.", _loss_is_smallest)],
    hints=(
        "With numbers, the memory is one number W. Which sums of the pairs does it need?",
        "W is the sum of key times value over λ plus the sum of squared keys.",
        "Compute W from these two sums; the answer to a query q is q W.",
    ),
    mistakes=[
        ("no penalty", 26 / 9, "You left out λ: the sum of squared keys is 9, and λ = 1 is added to it."),
        ("linear attention", 26.0, "That is linear attention: the sum of key times value, not divided by anything."),
        ("the memory itself", 1.3, "That is the memory W. The answer to the query is q W with q = 2."),
        ("mean of the values", 8 / 3, "That is the plain mean of the values; keys and query have no part in it."),
        ("the memory without penalty", 13 / 9,
         "That is the memory of least squares without λ. Add λ to the sum of squared keys, and multiply by the query."),
        ("a penalty for each pair", 26 / 12,
         "You added λ once for each pair. It stands once on the diagonal of KᵀK, however many pairs there are."),
        ("the keys' own values", 2.5,
         "That is the mean of the values stored under the key 2. Ridge attention fits one W to all pairs."),
        ("softmax attention", 2.5317, "That is softmax attention: the values weighted by exp(q k). Ridge attention "
         "solves for one W first.", near(2.5317, within=0.006)),
    ],
)


def _of_all_pairs(gram_a, cross_a, gram_b, cross_b, penalty, query):
    """What the memory of all pairs answers, by the inverse of the one sum that counts the penalty once."""
    both = gram_a + gram_b - penalty * torch.eye(len(gram_a), dtype=gram_a.dtype)
    return (cross_a + cross_b).T @ torch.linalg.inv(both) @ query


def _gram(keys, penalty):
    return keys.T @ keys + penalty * torch.eye(2, dtype=keys.dtype)


@lesson.exercise(
    "22.2", "Two readers, one memory", difficulty=2, minutes=8,
    prompt="Two readers share a stream of pairs. Each keeps the two sums of (22.4) over its own pairs: a matrix "
    "$\\lambda I + K^\\top K$, given as `gram_a` and `gram_b`, and $K^\\top V$, given as `cross_a` and `cross_b`, all of "
    "shape `(d, d)`. Write `answer_together(gram_a, cross_a, gram_b, cross_b, penalty, query)`: what ridge attention with "
    "the memory of *all* pairs answers to `query`, of shape `(d,)`. Return a float64 tensor of shape `(d,)`.",
    draw=inputs(
        n=whole(2, 4), first_keys=normal("n 2"), first_values=normal("n 2"), other_keys=normal("3 2"),
        other_values=normal("3 2"), penalty=uniform(0.4, 2.0), query=normal("2"),
        gram_a=lambda first_keys, penalty: _gram(first_keys, penalty),
        cross_a=lambda first_keys, first_values: first_keys.T @ first_values,
        gram_b=lambda other_keys, penalty: _gram(other_keys, penalty),
        cross_b=lambda other_keys, other_values: other_keys.T @ other_values,
    ),
    properties=[
        ("It should be what a memory of all pairs answers, with the penalty once.",
         lambda gram_a, cross_a, gram_b, cross_b, penalty, query, answer: close(
             answer, _of_all_pairs(gram_a, cross_a, gram_b, cross_b, penalty, query))),
    ],
    hints=(
        "Which two sums would a single reader of all pairs hold? Compare them with what you are given.",
        "Sums over all pairs are sums of sums. But each of the two matrices holds the penalty already.",
        "Solve one system for W. K W is close to V: what does a key, as a column, read from W?",
    ),
    mistakes=[
        ("the penalty twice", edit(" - penalty * torch.eye(len(gram_a), dtype=gram_a.dtype)", ""),
         "You counted the penalty twice: both matrices hold λI, and the memory of all pairs has it once."),
        ("no penalty", edit("- penalty", "- 2 * penalty"),
         "You took the penalty away from both matrices. The memory of all pairs still has it, once."),
        ("read W q", edit("memory.T @ query", "memory @ query"),
         "You read W q. The rows of W belong to entries of keys: the answer is Wᵀq."),
        ("memories averaged", lambda gram_a, cross_a, gram_b, cross_b, penalty, query:
         (torch.linalg.solve(gram_a, cross_a) + torch.linalg.solve(gram_b, cross_b)).T @ query / 2,
         "You averaged the two memories. The matrix that fits all pairs is not the mean of two that fit a part: add the "
         "sums, then solve."),
        ("memories added", lambda gram_a, cross_a, gram_b, cross_b, penalty, query:
         (torch.linalg.solve(gram_a, cross_a) + torch.linalg.solve(gram_b, cross_b)).T @ query,
         "You added the two memories. What adds up are the sums over pairs; the memory comes from them by one solve."),
        ("one reader", edit("gram_a + gram_b - penalty * torch.eye(len(gram_a), dtype=gram_a.dtype)", "gram_a",
                            "cross_a + cross_b", "cross_a"),
         "That is the first reader alone."),
        ("linear attention", lambda gram_a, cross_a, gram_b, cross_b, penalty, query: (cross_a + cross_b).T @ query,
         "That is linear attention: the sums of k vᵀ alone. The other sum has to be inverted."),
        ("multiplied by the sum", edit("torch.linalg.solve(gram, cross_a + cross_b)", "gram @ (cross_a + cross_b)"),
         "You multiplied by the first sum. The memory is its inverse times the second."),
    ],
)
def answer_together(gram_a, cross_a, gram_b, cross_b, penalty, query):
    """Return the answer of the memory of both readers' pairs."""
    gram = gram_a + gram_b - penalty * torch.eye(len(gram_a), dtype=gram_a.dtype)
    memory = torch.linalg.solve(gram, cross_a + cross_b)
    return memory.T @ query


def _inverse(first_keys, penalty):
    return torch.linalg.inv(first_keys.T @ first_keys + penalty * torch.eye(2, dtype=torch.float64))


def _solved_with_one_more(inverse, weights, key, value):
    gram = torch.linalg.inv(inverse)
    return torch.linalg.solve(gram + torch.outer(key, key), gram @ weights + torch.outer(key, value))


@lesson.exercise(
    "22.3", "One more pair", difficulty=2, minutes=10,
    prompt="Write `rank_one_step(inverse, weights, key, value)`: the ridge memory after one more pair. `inverse` is "
    "$P = (\\lambda I + K^\\top K)^{-1}$ and `weights` is $W$, both for the pairs before it, of shape `(d, d)`. Use "
    "products with $P$ and a division by a number, no solve. Return a float64 tensor of shape `(d, d)`.",
    draw=inputs(
        first_keys=normal("3 2"), first_values=normal("3 2"), penalty=uniform(0.5, 2.0), inverse=_inverse,
        weights=lambda inverse, first_keys, first_values: inverse @ first_keys.T @ first_values,
        key=normal("2"), value=normal("2"),
    ),
    properties=[
        ("It should be what solving with all pairs gives.",
         lambda inverse, weights, key, value, answer: close(answer, _solved_with_one_more(inverse, weights, key, value))),
    ],
    hints=(
        "The memory moves by a rank-one matrix: a direction in key space times the error on the new value.",
        "The error is the value minus what the old memory answers to the key; the direction is P times the key.",
        "Sherman-Morrison divides by a number that has the old P and the key twice, and a 1.",
    ),
    mistakes=[
        ("the delta rule", edit("torch.outer(moved", "torch.outer(key", " / (1 + key @ moved)", ""),
         "That is the delta rule with step 1: it moves along the key itself and disturbs older pairs. Ridge moves along "
         "P k."),
        ("no division", edit(" / (1 + key @ moved)", ""),
         "You left out the division by 1 + kᵀPk: the step goes too far, since the new pair enters the inverse too."),
        ("division without the one", edit("1 + ", ""),
         "You divided by kᵀPk. Then the new pair is fitted exactly; with the penalty it is fitted in part, by 1 + kᵀPk."),
        ("no error", edit("value - key @ weights", "value"),
         "You added the value itself. The step is driven by the error v - Wᵀk: what the old memory does not know already."),
        ("wrong sign", edit("value - key @ weights", "key @ weights - value"),
         "The sign of the error is turned: the memory moves away from the new value."),
        ("read with W", edit("key @ weights", "weights @ key"),
         "Your error is v - Wk. The old memory answers Wᵀk: the rows of W belong to keys."),
        ("outer product turned",
         edit("torch.outer(moved, value - key @ weights)", "torch.outer(value - key @ weights, moved)"),
         "Your outer product is transposed: rows of W belong to keys, so P k comes first."),
        ("divided by the key's length", edit("(1 + key @ moved)", "(1 + key @ key)"),
         "You divided by 1 + kᵀk. Sherman-Morrison divides by 1 + kᵀPk."),
        ("the new inverse", lambda inverse, weights, key, value:
         inverse - torch.outer(inverse @ key, inverse @ key) / (1 + key @ inverse @ key),
         "That is the new inverse P. The memory W after the new pair is asked for."),
        ("W for H", lambda inverse, weights, key, value:
         (inverse - torch.outer(inverse @ key, inverse @ key) / (1 + key @ inverse @ key))
         @ (weights + torch.outer(key, value)),
         "You applied the new P to W + k vᵀ. It belongs to H + k vᵀ, where H = P⁻¹W: W holds a P already."),
        ("the new inverse twice", edit("(1 + key @ moved)", "(1 + key @ moved) ** 2"),
            "You used the new P k and divided as well. The new P k is P k / (1 + kᵀPk) already: divide once."),
    ],
)
def rank_one_step(inverse, weights, key, value):
    """Return the memory after one more pair."""
    moved = inverse @ key
    return weights + torch.outer(moved, value - key @ weights) / (1 + key @ moved)


def _token_by_token(inverse, weights, queries, keys, values):
    gram = torch.linalg.inv(inverse)
    cross, answers = gram @ weights, []
    for query, key, value in zip(queries, keys, values, strict=True):
        gram, cross = gram + torch.outer(key, key), cross + torch.outer(key, value)
        answers.append(torch.linalg.solve(gram, cross).T @ query)
    return torch.stack(answers)


@lesson.exercise(
    "22.4", "A chunk at once", difficulty=3, minutes=15,
    prompt="Write `chunk_outputs(inverse, weights, queries, keys, values)`: the answers to a chunk of $C$ tokens, where "
    "query $i$ reads the pairs before the chunk and those of the chunk up to $i$. `inverse` is $P$ and `weights` is $W$ "
    "before the chunk; the other three have shape `(C, d)`. Use the triangle of (22.9) and no loop. Return a "
    "float64 tensor of shape `(C, d)`.",
    draw=inputs(
        first_keys=normal("2 2"), first_values=normal("2 2"), penalty=1.0, inverse=_inverse,
        weights=lambda inverse, first_keys, first_values: inverse @ first_keys.T @ first_values,
        n=whole(2, 4), queries=normal("n 2"), keys=normal("n 2"), values=normal("n 2"),
    ),
    properties=[
        ("Each answer should be that of the memory solved for the pairs up to its token.",
         lambda inverse, weights, queries, keys, values, answer: close(
             answer, _token_by_token(inverse, weights, queries, keys, values))),
    ],
    forbids=("loop",),
    hints=(
        "For the last token it is Q W plus Q P Kᵀ (I + K P Kᵀ)⁻¹ (V - K W). What must change for earlier ones?",
        "Factor I + K P Kᵀ = L Lᵀ. The top left block of L belongs to the first tokens alone, as do the top rows of L⁻¹B.",
        "Give one L⁻¹ to K P and one to V - K W; keep the lower triangle, with the diagonal, of Q times the first.",
    ),
    mistakes=[
        ("no mask", edit(".tril()", ""), "Every query reads the whole chunk: the lower triangle is missing."),
        ("own pair left out", edit(".tril()", ".tril(-1)"),
         "Your triangle leaves out the diagonal: a query should read its own pair, too."),
        ("masked too late", edit("(queries @ moved.T).tril() @ error",
                                 "(queries @ inverse @ keys.T).tril() @ torch.linalg.solve(factor.T, error)"),
         "You masked Q P Kᵀ and solved with the whole I + K P Kᵀ: its inverse mixes later tokens into earlier ones. Split "
         "it into two triangles first."),
        ("past left out", edit("queries @ weights + ", ""),
         "Q W is missing: what the queries read from before the chunk."),
        ("values for errors", edit("values - keys @ weights", "values"),
         "You stored V instead of V - K W: the memory adds what it does not know yet, not the value itself."),
        ("only one triangle solved", edit("torch.linalg.solve_triangular(factor, values - keys @ weights, upper=False)",
                                          "values - keys @ weights"),
         "You gave L⁻¹ to K P only. The inverse of I + K P Kᵀ is two triangles: the other one belongs to V - K W."),
        ("keys without P", edit("factor, keys @ inverse, upper", "factor, keys, upper"),
         "You solved with K instead of K P: the old pairs do not weigh in on the direction of the step."),
        ("linear attention in the chunk", lambda inverse, weights, queries, keys, values:
         queries @ weights + (queries @ keys.T).tril() @ values,
         "That adds causal linear attention of the chunk. Ridge attention takes L⁻¹ K P for K and L⁻¹(V - K W) for V."),
        ("the delta rule in the chunk", lambda inverse, weights, queries, keys, values:
         queries @ weights + (queries @ inverse @ keys.T).tril() @ (values - keys @ weights),
         "You left out the Cholesky factor: the pairs of a chunk overlap, and L⁻¹ on both sides takes that into account."),
        ("masked after the inverse", edit(
            "(queries @ moved.T).tril() @ error",
            "(queries @ inverse @ keys.T @ torch.cholesky_inverse(factor)).tril() @ (values - keys @ weights)"),
         "You masked Q P Kᵀ (I + K P Kᵀ)⁻¹. The whole inverse has mixed later tokens in before the mask: give each side one "
         "triangle of it."),
    ],
)
def chunk_outputs(inverse, weights, queries, keys, values):
    """Return the answers to a chunk of queries, each reading the pairs up to its own."""
    eye = torch.eye(len(keys), dtype=keys.dtype)
    factor = torch.linalg.cholesky(eye + keys @ inverse @ keys.T)
    moved = torch.linalg.solve_triangular(factor, keys @ inverse, upper=False)
    error = torch.linalg.solve_triangular(factor, values - keys @ weights, upper=False)
    return queries @ weights + (queries @ moved.T).tril() @ error


def _is_singular(u1, u2, v1, v2):
    return abs(1 + v1 * u1 / 2 + v2 * u2 / 4) < 1e-9


def _a_zero_vector(u1, u2, v1, v2):
    return u1 == u2 == 0 or v1 == v2 == 0


lesson.flaw(
    "22.5", "When the formula fails", difficulty=2, minutes=8,
    prompt="The formula (22.11) for $(M + uv^\\top)^{-1}$ has a condition. Take "
    "$M = \\mathrm{diag}(2, 4)$, which has an inverse. Give a counterexample: a dictionary with the numbers `u1`, `u2`, "
    "`v1`, `v2` for which $M + uv^\\top$ has none.",
    answer={"u1": 2.0, "u2": 0.0, "v1": -1.0, "v2": 0.0},
    properties=[("For your numbers M + uvᵀ has an inverse: its determinant is not 0.", _is_singular)],
    hints=(
        "The formula divides by a number. Which one?",
        "1 + vᵀM⁻¹u has to be 0, and M⁻¹ is diag(1/2, 1/4).",
        "Keep to the first axis: with u = (u1, 0) and v = (v1, 0) only u1 v1 matters. M's first entry is 2.",
    ),
    mistakes=[
        ("a zero vector", {"u1": 0.0, "u2": 0.0, "v1": 1.0, "v2": 1.0},
         "With a zero vector nothing is added, and M has an inverse.", _a_zero_vector),
        ("a key twice", {"u1": 1.0, "u2": 2.0, "v1": 1.0, "v2": 2.0},
         "With v a positive multiple of u the number 1 + vᵀM⁻¹u is above 1: that is why ridge attention, which adds k kᵀ, "
         "never fails here.",
         lambda u1, u2, v1, v2: abs(u1 * v2 - u2 * v1) < 1e-12 and u1 * v1 + u2 * v2 > 0),
        ("orthogonal", {"u1": 1.0, "u2": 0.0, "v1": 0.0, "v2": 1.0},
         "Here vᵀM⁻¹u = 0, so that the formula divides by 1.",
         lambda u1, u2, v1, v2: not _a_zero_vector(u1, u2, v1, v2) and abs(v1 * u1 / 2 + v2 * u2 / 4) < 1e-12),
        ("without the inverse", {"u1": 1.0, "u2": 0.0, "v1": -1.0, "v2": 0.0},
         "You made 1 + vᵀu zero. That is the number for M = I; here M⁻¹ stands between v and u.",
         lambda u1, u2, v1, v2: abs(1 + v1 * u1 + v2 * u2) < 1e-9 and not _is_singular(u1, u2, v1, v2)),
        ("M for its inverse", {"u1": 1.0, "u2": 0.0, "v1": -0.5, "v2": 0.0},
         "You made 1 + vᵀMu zero. The formula has M⁻¹ = diag(1/2, 1/4) there, not M.",
         lambda u1, u2, v1, v2: abs(1 + 2 * v1 * u1 + 4 * v2 * u2) < 1e-9),
        ("the other sign", {"u1": 2.0, "u2": 0.0, "v1": 1.0, "v2": 5.0},
         "Your vᵀM⁻¹u is 1, so the formula divides by 2. It has to be -1.",
         lambda u1, u2, v1, v2: abs(v1 * u1 / 2 + v2 * u2 / 4 - 1) < 1e-9 and abs(u1 * v2 - u2 * v1) > 1e-9),
    ],
)


def _is_minimal(keys, values, penalty, decay, memory):
    """Whether the gradient of the fading loss (22.12) vanishes."""
    weights = decay ** torch.arange(len(keys) - 1, -1, -1, dtype=keys.dtype)
    pull = (weights[:, None] * keys).T @ (keys @ memory - values) + decay ** len(keys) * penalty * memory
    return float(pull.abs().max()) < 1e-8 * (1 + float(memory.abs().max()))


@lesson.exercise(
    "22.6", "A memory that fades", difficulty=3, minutes=10,
    prompt="Write `fading_memory(keys, values, penalty, decay)`: the memory $W$ of (22.12) after the last of $n$ tokens, by "
    "the sums (22.13). `keys` is `(n, d)`, `values` `(n, m)`, `penalty` is $\\lambda$, `decay` is $\\gamma$, above 0 and "
    "below 1. Return a tensor of shape `(d, m)`.",
    draw=inputs(n=whole(4, 6), d=whole(2, 3), keys=normal("n d"), values=normal("n 2"), penalty=uniform(0.5, 2),
                decay=uniform(0.5, 0.85)),
    properties=[
        ("The gradient of the fading loss should vanish at your memory.",
         lambda keys, values, penalty, decay, answer: _is_minimal(keys, values, penalty, decay, answer)),
    ],
    hints=(
        "Two sums, G and H, as in (22.4). Which start does G have?",
        "At each token first let both sums fade, then add the new pair, which counts in full.",
        "In the end solve G W = H, with torch.linalg.solve.",
    ),
    mistakes=[
        ("nothing fades", edit("decay * gram", "gram", "decay * cross", "cross"),
         "Nothing fades in your sums: that is the memory with decay 1."),
        ("only G fades", edit("decay * cross", "cross"),
         "Only G fades. Both sums hold the old pairs, so both must."),
        ("only H fades", edit("decay * gram", "gram"),
         "Only H fades. Both sums hold the old pairs, so both must."),
        ("the new pair fades", edit("decay * gram + torch.outer(key, key)", "decay * (gram + torch.outer(key, key))",
                                    "decay * cross + torch.outer(key, value)", "decay * (cross + torch.outer(key, value))"),
         "Against the penalty your pairs count once too little, as if the new one had faded with the old ones. Fade both "
         "sums first, from the first token on, then add the pair in full."),
        ("the penalty stays", edit("return torch.linalg.solve(gram", "return torch.linalg.solve(gram + (1 - decay ** "
                                   "len(keys)) * penalty * torch.eye(keys.shape[1], dtype=keys.dtype)"),
         "Your penalty does not fade. In (22.12) it counts with the decay to the power n, like what came before the first "
         "token."),
        ("weights squared", edit("decay * gram", "decay**2 * gram", "decay * cross", "decay**2 * cross"),
         "Each pair counts with the square of its weight: you scaled keys and values by the full weight. Scale by its root, "
         "or let the sums fade by the decay itself."),
        ("old pairs count most", edit("zip(keys, values, strict", "zip(keys.flip(0), values.flip(0), strict"),
         "Your oldest pair counts most. Pair i has the weight of the decay to the power n - i."),
        ("no penalty", edit("penalty * torch", "1e-12 * torch"),
         "The penalty is missing: G starts at λ I."),
        ("added to the inverse", edit("torch.linalg.solve(gram, cross)", "gram @ cross"),
         "You multiplied by G. The memory is its inverse times H."),
    ],
)
def fading_memory(keys, values, penalty, decay):
    """Let both sums fade at each token, add its pair, and solve."""
    gram = penalty * torch.eye(keys.shape[1], dtype=keys.dtype)
    cross = torch.zeros(keys.shape[1], values.shape[1], dtype=keys.dtype)
    for key, value in zip(keys, values, strict=True):
        gram = decay * gram + torch.outer(key, key)
        cross = decay * cross + torch.outer(key, value)
    return torch.linalg.solve(gram, cross)


EXERCISES = lesson.exercises
