"""Exercises of lesson 24, the margin that attention maximises."""

import torch

from course_lib.lessons.attention_margin.contents import lesson
from course_lib.teaching import close, edit, inputs, integers, near, normal, uniform


@lesson.exercise(
    "24.1", "What training sees of a sample", difficulty=1, minutes=8,
    prompt="Write `conditions(tokens, query, scores)` for diagonal weights: `tokens` holds $x_t$ in its rows, `query` "
    "is $z$ and `scores` holds $y\\,v\\cdot x_t$. Return the feature $\\phi_t$ of every token but the optimal one, in the "
    "order of the tokens, one in each row.",
    draw=inputs(tokens=normal("4 3"), query=integers("3", -2, 2), scores=lambda generator: _scores(generator)),
    agrees="Each row should be (x_opt - x_t) times z, entry by entry.",
    hints=(
        "The logit of token $t$ is $\\sum_j x_{tj}\\beta_jz_j$. By how much does the optimal token's exceed it?",
        "That difference is linear in $\\beta$: read off its coefficients.",
        "Which row has the largest score? Subtract every row from it, drop the row of zeros, and do not forget the query.",
    ),
    mistakes=[
        ("query left out", edit(" * query", ""), "The query is missing: the logit is the sum of x_j β_j z_j."),
        ("sign", edit("tokens[best] - tokens", "tokens - tokens[best]"),
         "The sign is turned: a condition asks that the optimal token's logit is the larger one."),
        ("the first is optimal", edit("scores.argmax()", "0 * scores.argmax()"),
         "You took the first token for the optimal one. It is the one with the largest score."),
        ("the worst", edit("argmax", "argmin"), "You took the token with the smallest score for the optimal one."),
        ("all rows", edit("return apart[keep]", "return apart"),
         "The optimal token has no condition against itself: leave out its row of zeros."),
        ("times the gap", edit("return apart[keep]", "return (apart * (scores[best] - scores)[:, None])[keep]"),
         "Gaps between scores do not enter a feature: they weigh it in the gradient."),
    ],
)
def conditions(tokens, query, scores):
    """Subtract every token from the optimal one, times the query."""
    best = scores.argmax()
    apart = (tokens[best] - tokens) * query
    keep = torch.arange(len(tokens)) != best
    return apart[keep]


def _scores(generator):
    return torch.randperm(4, generator=generator).double() - 1.5


@lesson.exercise(
    "24.2", "How the answer depends on a logit", difficulty=2, minutes=10,
    prompt="Write `slopes(margins, gaps)` for one sample: `margins` holds $m_t = \\langle\\phi_t, W\\rangle$ and `gaps` the "
    "$\\Delta_t$ of the tokens that are not optimal. Return the derivatives of $y f$ with respect to every $m_t$, without "
    "autograd.",
    draw=inputs(margins=normal("3"), gaps=uniform(0.1, 3.0, "3")),
    properties=[
        ("A small change of one margin should change y f at this rate.",
         lambda margins, gaps, answer: _rates(margins, gaps, answer)),
    ],
    forbids=("autograd",),
    hints=(
        "Write $yf$ as the best score minus what the other tokens cost, as in (24.3).",
        "For a softmax, $\\partial p_u/\\partial m_t = -p_u([u = t] - p_t)$. Multiply by $-\\Delta_u$ and add up.",
        "The result has the form $p_t$ times (one gap minus an average of gaps). The optimal token is in the softmax too.",
    ),
    mistakes=[
        ("optimal token forgotten", edit("1 + torch.exp(-margins).sum()", "torch.exp(-margins).sum()"),
         "The optimal token takes part in the softmax: its own margin is 0, and it adds 1 to the denominator."),
        ("average left out", edit("gaps - (p * gaps).sum()", "gaps"),
         "You held the other weights fixed. What the optimal token gains, all others lose: subtract the average."),
        ("sign", edit("return p", "return -p"), "The sign is turned: a larger margin of a bad token raises the answer."),
        ("tokens one by one", edit("torch.exp(-margins) / (1 + torch.exp(-margins).sum())", "torch.sigmoid(-margins)"),
         "You took a sigmoid for each token. The weights share one softmax."),
        ("sign of the margins", edit("p = torch.exp(-margins) / (1 + torch.exp(-margins).sum())",
                                     "p = torch.exp(margins) / (1 + torch.exp(margins).sum())"),
         "A token with a large margin has little weight: its logit lies *below* the optimal one."),
    ],
)
def slopes(margins, gaps):
    """p_t times the gap less the average gap."""
    p = torch.exp(-margins) / (1 + torch.exp(-margins).sum())
    return p * (gaps - (p * gaps).sum())


def _rates(margins, gaps, answer):
    lost = lambda m: (torch.cat([m, m.new_zeros(1)]).neg().softmax(0)[:-1] * gaps).sum()  # noqa: E731
    steps = 1e-5 * torch.eye(3, dtype=margins.dtype)
    return close(torch.stack([(lost(margins - s) - lost(margins + s)) / 2e-5 for s in steps]), answer, rtol=1e-5, atol=1e-7)


lesson.value(
    "24.3", "What k and q keep", difficulty=2, minutes=5,
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


def _within(a, b):
    return max(abs(a), abs(b)) < 1e6 and max(abs(a), abs(b)) > 1e-6


lesson.value(
    "24.4", "The end of one constraint", difficulty=2, minutes=6,
    prompt="One sample leaves the single constraint $3\\beta_1 - 4\\beta_2 \\ge 1$. Gradient flow trains $k$ and $q$, from "
    "$k = (1, 1)$ and $q = (0, 0)$. What does $\\beta$ divided by the margin tend to? The answer is a dictionary with the "
    "numbers `first` and `second`.",
    answer={"first": 0, "second": -0.25},
    properties=[
        ("The margin of your answer should be 1.", lambda first, second: close(3 * first - 4 * second, 1, rtol=1e-3)),
        ("Another point of margin 1 has a smaller nuclear norm.",
         lambda first, second: abs(first) + abs(second) < 0.2505),
    ],
    hints=(
        "In rescaled time each product grows like a hyperbolic sine. Of what?",
        "The coordinate with the larger coefficient *in size* runs away. Its sign is that of the coefficient.",
        "All of $\\beta$ lies on that coordinate; choose its size so that the margin is 1.",
    ),
    mistakes=[
        ("Frobenius", {"first": 0.12, "second": -0.16},
         "That is where β trained by itself ends: the shortest β. A product ends with the least nuclear norm."),
        ("sign", {"first": 0, "second": 0.25}, "The margin of this answer is -1: the coefficient is -4."),
        ("largest with its sign", {"first": 1 / 3, "second": 0},
         "You chose the larger coefficient with its sign. What counts is its size: -4 beats 3.",
         lambda first, second: abs(first - 1 / 3) < 2e-3 and second == 0),
        ("margin not 1", {"first": 0, "second": -1}, "That is the direction. Divide by its margin, which is 4."),
        ("equal shares", {"first": 1 / 7, "second": -1 / 7},
         "Equal sizes have the least largest entry, which is another norm: the coordinates do not grow alike.",
         lambda first, second: abs(first - 1 / 7) < 2e-3 and abs(second + 1 / 7) < 2e-3),
    ],
)


lesson.flaw(
    "24.5", "Hardly a difference", difficulty=2, minutes=8,
    prompt="\"In the plane the two problems hardly differ: the $\\beta$ of least Frobenius norm on a constraint "
    "$a\\beta_1 + b\\beta_2 \\ge 1$ has a nuclear norm at most one fifth above the least.\" Give a counterexample: a "
    "dictionary with the numbers `a` and `b`, smaller than a million.",
    answer={"a": 12, "b": 5},
    properties=[
        ("Both numbers should be smaller than a million, and one of them not 0.", _within),
        ("The nuclear norm is not more than one fifth above the least here.",
         lambda a, b: (abs(a) + abs(b)) * max(abs(a), abs(b)) > (1.2 + 1e-9) * (a * a + b * b)),
    ],
    hints=(
        "The shortest $\\beta$ is $(a, b)/(a^2 + b^2)$. What is its nuclear norm, and what is the least?",
        "Only the ratio $t = b/a$ counts. At $t = 0$ and at $t = 1$ the two norms agree.",
        "$(1 + t)/(1 + t^2)$ is 1.2 at $t = 1/2$. On which side of it does it grow?",
    ),
    mistakes=[
        ("the page's constraint", {"a": 2, "b": 1},
         "With this ratio the excess is exactly one fifth: 0.6 against 0.5. A little more is asked for.",
         lambda a, b: _within(a, b) and close(min(abs(a), abs(b)), max(abs(a), abs(b)) / 2)),
        ("one third", {"a": 3, "b": 1}, "With this ratio too the excess is exactly one fifth: 0.4 against 1/3. Go between.",
         lambda a, b: _within(a, b) and close(min(abs(a), abs(b)), max(abs(a), abs(b)) / 3)),
        ("equal sizes", {"a": 1, "b": 1}, "With |a| = |b| every point of the segment between the two ends has the same "
         "nuclear norm, the middle too: the excess is 0.",
         lambda a, b: _within(a, b) and close(abs(a), abs(b))),
        ("one coordinate", {"a": 1, "b": 0}, "Both solutions lie on the only coordinate that counts: they are the same.",
         lambda a, b: _within(a, b) and (a == 0) != (b == 0)),
        ("too lopsided", {"a": 10, "b": 1}, "So lopsided, both solutions lie almost on the first coordinate. Bring a and b "
         "closer.", lambda a, b: _within(a, b) and 0 < 3.01 * min(abs(a), abs(b)) < max(abs(a), abs(b))),
    ],
)


@lesson.exercise(
    "24.6", "How K Qᵀ moves", difficulty=3, minutes=10,
    prompt="Write `velocity(K, Q, force)`: `force` is $G = -\\partial L/\\partial W$ at $W = KQ^\\top$, $d \\times d$; $K$ "
    "and $Q$ are $d \\times r$. Return $\\dot W$ when gradient flow trains $K$ and $Q$.",
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


EXERCISES = lesson.exercises
