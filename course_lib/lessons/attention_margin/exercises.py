"""Exercises of lesson 29, the margin that attention maximises."""

import torch

from course_lib.lessons.attention_margin.contents import lesson
from course_lib.teaching import close, edit, inputs, near, normal


@lesson.exercise(
    "29.1", "What training sees of a sample", difficulty=1, minutes=7,
    prompt="Write `features(tokens, query, right)`: `tokens` holds the $T$ tokens $x_t$ in its rows, `query` is $z$, and "
    "`right` is the row of the right token. For each wrong token $t$, in the order of the rows, return the matrix $\\phi_t$ "
    "for which $\\sum_{jk}\\phi_{t,jk}W_{jk}$ is the right token's logit less that of token $t$, for every $W$: an "
    "array of shape $(T - 1) \\times d \\times d$.",
    draw=inputs(tokens=normal("4 3"), query=normal("3"), right=lambda generator: _row(generator)),
    properties=[
        ("With a random W, the sums should be the right token's logit less those of the others.",
         lambda tokens, query, right, answer: _leads(tokens, query, right, answer)),
    ],
    hints=(
        "Write the logit $x_t^\\top Wz$ as a sum over $j$ and $k$. What stands beside $W_{jk}$?",
        "It is $x_{tj}z_k$. Now subtract two such logits: only the token changes.",
        "Rows first: the right one less each, without the row of zeros. Then the outer product of each row with the query.",
    ),
    mistakes=[
        ("transposed", edit("apart[keep][:, :, None] * query", "query[:, None] * apart[keep][:, None, :]"),
         "Your matrices are transposed: the token multiplies W from the left, the query from the right."),
        ("sign", edit("tokens[right] - tokens", "tokens - tokens[right]"),
         "The sign is turned: the right token's logit comes first in the difference."),
        ("the first is right", edit("tokens[right] - tokens", "tokens[0] - tokens"),
         "You subtracted from the first row. Which row is right is given."),
        ("token alone", edit("tokens[right] - tokens", "tokens"),
         "That gives the logit of token t itself. A difference of two logits is asked for."),
        ("query left out", edit("* query", "* torch.ones_like(query)"), "The query is missing."),
        ("all rows", edit("apart[keep][", "apart["),
         "The right token has no condition against itself: leave out its matrix of zeros."),
    ],
)
def features(tokens, query, right):
    """Subtract every row from the right one, and take outer products with the query."""
    apart = tokens[right] - tokens
    keep = torch.arange(len(tokens)) != right
    return apart[keep][:, :, None] * query


def _row(generator):
    return int(torch.randint(0, 4, (1,), generator=generator))


def _leads(tokens, query, right, answer):
    weight = torch.linspace(-1, 2, 9, dtype=tokens.dtype).reshape(3, 3).cos()
    logits = tokens @ weight @ query
    wanted = (logits[right] - logits)[torch.arange(4) != right]
    return close((answer * weight).sum((-2, -1)), wanted, rtol=1e-6, atol=1e-8)


@lesson.exercise(
    "29.2", "How K Qᵀ moves", difficulty=3, minutes=9,
    prompt="Write `velocity(K, Q, force)`: `force` is $G = -\\partial L/\\partial W$ at $W = KQ^\\top$, $d \\times d$; $K$ "
    "and $Q$ are $d \\times r$. Return $\\dot W$ when gradient flow trains $K$ and $Q$; the page goes on with it as (29.4).",
    draw=inputs(K=normal("3 2"), Q=normal("3 2"), force=normal("3 3")),
    properties=[
        ("It should be the change of K Qᵀ when K and Q move a little along minus their gradients.",
         lambda K, Q, force, answer: _moves(K, Q, force, answer)),
    ],
    hints=(
        "How do $K$ and $Q$ move? Minus the gradient of $L$ with respect to $K$ is $GQ$.",
        "Product rule: $\\dot W = \\dot KQ^\\top + K\\dot Q^\\top$.",
        "Minus the gradient with respect to $Q$ is $G^\\top K$. Each of the two terms holds $G$ once and one matrix twice.",
    ),
    mistakes=[
        ("only K moves", edit(" + K @ (force.T @ K).T", ""), "Q moves as well: the product rule has two terms."),
        ("only Q moves", edit("force @ Q @ Q.T + ", ""), "K moves as well: the product rule has two terms."),
        ("W itself", edit("force @ Q @ Q.T + K @ (force.T @ K).T", "force"),
         "That is how W moves when W itself is trained."),
        ("G not transposed", edit("(force.T @ K).T", "(force @ K).T"),
         "Minus the gradient with respect to Q is GᵀK: you took G K."),
        ("sides exchanged", edit("force @ Q @ Q.T + K @ (force.T @ K).T", "Q @ Q.T @ force + force @ K @ K.T"),
         "The matrices stand on the wrong sides of G: Q Qᵀ belongs to its right, K Kᵀ to its left."),
        ("sign", edit("return force", "return -force", "+ K @", "- K @"),
         "The sign is turned: `force` is minus the gradient, and the flow moves along it."),
    ],
)
def velocity(K, Q, force):
    """The product rule on dK = G Q and dQ = G^T K."""
    return force @ Q @ Q.T + K @ (force.T @ K).T


def _moves(K, Q, force, answer):
    made = lambda t: (K + t * force @ Q) @ (Q + t * force.T @ K).T  # noqa: E731
    return close((made(0.5) - made(-0.5)), answer, rtol=1e-6, atol=1e-8)


lesson.value(
    "29.3", "What k and q keep", difficulty=2, minutes=5,
    prompt="In one coordinate $k$ starts at 2 and $q$ at 0. Gradient flow, on whatever samples, has taken $q$ to 1.5. How "
    "large is the product $\\beta = kq$?",
    answer=3.75,
    properties=[("k² - q² should be what it was at the start.", lambda answer: close(answer, 1.5 * (4 + 1.5**2) ** 0.5))],
    hints=(
        "Which combination of $k$ and $q$ does the flow not change?",
        "$k^2 - q^2$ is 4 at the start.",
        "Solve for $k$ when $q = 1.5$; $k$ has kept its sign.",
    ),
    mistakes=[
        ("k fixed", 3, "You kept k at 2. Both move: k grows by q times the force."),
        ("sum of squares", 1.5 * 1.75**0.5, "You kept k² + q². The flow keeps the difference.", near(1.984, within=0.006)),
        ("balanced", 2.25, "You set k = q. They only come close as both grow: k² - q² stays 4."),
        ("difference kept", 5.25, "You kept k - q = 2. It falls; the difference of the *squares* is kept."),
        ("k alone", 2.5, "That is k. The product is asked for."),
    ],
)


lesson.value(
    "29.4", "The end of one condition", difficulty=2, minutes=6,
    prompt="One sample leaves the single condition $3\\beta_1 - 4\\beta_2 > 0$, and its margin is "
    "$m = 3\\beta_1 - 4\\beta_2$. Gradient flow trains $k$ and $q$, from $k = (1, 1)$ and $q = (0, 0)$. What does "
    "$\\beta/m$ tend to as $m$ grows? The answer is a dictionary with the "
    "numbers `first` and `second`.",
    answer={"first": 0, "second": -0.25},
    properties=[
        ("The margin of your answer should be 1.", lambda first, second: close(3 * first - 4 * second, 1, rtol=1e-3)),
        ("Another point of margin 1 has a smaller |β₁| + |β₂|.",
         lambda first, second: abs(first) + abs(second) < 0.2505),
    ],
    hints=(
        "In rescaled time each product grows like a hyperbolic sine. Of what?",
        "The coordinate with the larger coefficient *in size* runs away. Its sign is that of the coefficient.",
        "All of $\\beta$ lies on that coordinate; choose its size so that the margin is 1.",
    ),
    mistakes=[
        ("as β by itself", {"first": 0.12, "second": -0.16},
         "That is where β trained by itself ends. In a product one coordinate outgrows the other."),
        ("sign", {"first": 0, "second": 0.25}, "The margin of this answer is -1: the coefficient is -4."),
        ("largest with its sign", {"first": 1 / 3, "second": 0},
         "You chose the larger coefficient with its sign. What counts is its size: -4 beats 3.",
         lambda first, second: abs(first - 1 / 3) < 2e-3 and second == 0),
        ("margin not 1", {"first": 0, "second": -1}, "That is the direction. Divide by its margin, which is 4."),
        ("equal shares", {"first": 1 / 7, "second": -1 / 7},
         "The coordinates do not grow alike: one outgrows the other.",
         lambda first, second: abs(first - 1 / 7) < 2e-3 and abs(second + 1 / 7) < 2e-3),
    ],
)


EXERCISES = lesson.exercises
