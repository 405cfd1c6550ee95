"""Exercises of lesson 28, in-context regression."""

import math

import torch

from course_lib.lessons.in_context_regression.contents import lesson
from course_lib.teaching import close, edit, inputs, near, normal, uniform, whole
from course_lib.theory.in_context_regression import emergence_time


@lesson.exercise(
    "28.1", "What one head averages", difficulty=1, minutes=6,
    prompt="Write `head_average(x, y, query, w)` for one prompt: `x` holds one example in each row, `y` the answers of the "
    "examples, one column for each task, and `w` one weight for each feature, all float64. Return the averages of the "
    "answers, one for each task, with the softmax weights of (28.2).",
    draw=inputs(x=normal("4 3"), y=normal("4 2"), query=normal("3"), w=normal("3")),
    properties=[
        ("An average lies between the smallest and the largest answer of its task.",
         lambda y, answer: bool(((y.amin(0) - 1e-9 <= answer) & (answer <= y.amax(0) + 1e-9)).all())),
    ],
    agrees="The weights of two examples should differ by the factor exp of the difference of their scores, where the "
    "score of an example compares it with the query feature by feature, each feature with its weight in w.",
    hints=(
        "Each example has one score: how does it compare with the query?",
        "The softmax runs over the examples, so that their weights sum to 1.",
        "Multiply the query by w first: then one product with x gives all scores.",
    ),
    mistakes=[
        ("no softmax", edit("scores.softmax(dim=0)", "scores"),
         "You averaged with the scores themselves. Their softmax makes positive weights that sum to 1."),
        ("divided by the sum", edit("scores.softmax(dim=0)", "scores / scores.sum()"),
         "You divided the scores by their sum. Softmax takes exponentials first."),
        ("w left out", edit("(w * query)", "query"), "The weights w of the features are missing in the scores."),
        ("scaled", edit("x @ (w * query)", "x @ (w * query) / len(w) ** 0.5"),
         "You divided the scores by the root of the number of features, as common attention layers do. Here w holds "
         "every scale."),
        ("best example", edit("weights @ y", "y[weights.argmax()]"),
         "You kept the example with the largest score alone. Softmax gives every example a weight above 0."),
        ("plain mean", edit("weights @ y", "y.mean(dim=0)"), "That is the plain mean: the query plays no part."),
        ("summed over tasks", edit("weights @ y", "(weights @ y).sum() * torch.ones(y.shape[1], dtype=y.dtype)"),
         "You added the tasks. Each task has an average of its own."),
    ],
)
def head_average(x, y, query, w):
    """Average the answers with softmax weights."""
    scores = x @ (w * query)
    weights = scores.softmax(dim=0)
    return weights @ y


def _small(w_1, u_1, w_2, u_2):
    return all(0 < value <= 0.2 for value in (w_1, u_1, w_2, u_2))


def _later(w_1, u_1, w_2, u_2):
    first, second = (float(w_1), float(u_1)), (float(w_2), float(u_2))
    return emergence_time(*first, 4) > 1.01 * emergence_time(*second, 4)


lesson.flaw(
    "28.2", "Who emerges first", difficulty=2, minutes=7,
    prompt="\"Of two heads, the one that starts with the larger product $uw$ emerges first.\" Give a "
    "counterexample for $d = 4$: the first head has the larger $uw$, and takes at least 1% more time "
    "by (28.5) than the second. (Where $dw = u$, the time is $1/(2u)$.) The answer is a dictionary with the "
    "numbers `w_1`, `u_1`, `w_2`, `u_2`, all positive and at most 0.2.",
    answer={"w_1": 0.01, "u_1": 0.04, "w_2": 0.05, "u_2": 0.005},
    properties=[
        ("All four numbers should be positive and at most 0.2.", _small),
        ("The first head should start with the larger product uw.", lambda w_1, u_1, w_2, u_2: w_1 * u_1 > w_2 * u_2),
        ("The first head does not take 1% more time than the second.",
         lambda w_1, u_1, w_2, u_2: _small(w_1, u_1, w_2, u_2) and _later(w_1, u_1, w_2, u_2)),
    ],
    hints=(
        "Keep the product, and change d w over u. Which time is longest?",
        "At a given product the wait is longest where d w = u. Start the first head there.",
        "Give the second head a slightly smaller product, with w far larger than u.",
    ),
    mistakes=[
        ("equal w", {"w_1": 0.01, "u_1": 0.04, "w_2": 0.01, "u_2": 0.03},
         "With equal weights w the larger product is the larger u, and that head does emerge first. Let w differ.",
         lambda w_1, u_1, w_2, u_2: _small(w_1, u_1, w_2, u_2) and u_1 > u_2 and w_1 == w_2),
        ("smaller product", {"w_1": 0.01, "u_1": 0.04, "w_2": 0.04, "u_2": 0.03},
         "The second head has the larger product here: the sentence agrees with that.",
         lambda w_1, u_1, w_2, u_2: _small(w_1, u_1, w_2, u_2) and w_1 * u_1 < w_2 * u_2 and _later(w_1, u_1, w_2, u_2)),
        ("larger in both", {"w_1": 0.04, "u_1": 0.04, "w_2": 0.01, "u_2": 0.03},
         "The first head is ahead in both numbers, so it emerges first. Turn one of them round.",
         lambda w_1, u_1, w_2, u_2: _small(w_1, u_1, w_2, u_2) and u_1 > u_2 and w_1 > w_2),
    ],
)


lesson.value(
    "28.3", "The best weight", difficulty=1, minutes=5,
    prompt="By (28.1) prompts hold 12 features in 3 tasks with 4 each. Each of three heads serves one task. For which "
    "weight $w$ on the features of its task is the noise over the signal in (28.6) least?",
    answer=0.5,
    properties=[("The head compares four features: the noise counts their squares.",
                 lambda answer: close(answer, 4**-0.5, rtol=5e-3))],
    hints=(
        "Which features does the head compare, and how many are they?",
        "The noise over the signal is proportional to exp(n w²)/w² for n compared features.",
        "Set the derivative of n w² - log w² with respect to w² to zero.",
    ),
    mistakes=[
        ("all features", 12**-0.5, "That is the best weight of a single head that serves all tasks: you counted all 12 "
         "features.", near(12**-0.5, within=2e-3)),
        ("the square", 0.25, "That is w². The weight itself is its root."),
        ("the gain u", 2, "That is 1/w, the gain u with many examples."),
        ("number of tasks", 3**-0.5, "You counted tasks. The noise grows with the features that are compared.",
         near(3**-0.5, within=3e-3)),
        ("the square for all", 1 / 12, "That is w² of a head that serves all tasks.", near(1 / 12, within=1e-3)),
    ],
)


@lesson.exercise(
    "28.4", "A product under a steady gradient", difficulty=2, minutes=8,
    prompt="Let the gradient $g$ of the loss with respect to the product $u = ov$ stay the same. Then the flow of the two "
    "factors is $do/dt = -g\\,v$, $dv/dt = -g\\,o$. Write `product(o, v, g, t)`: the product at time $t$ from the factors "
    "`o` and `v` at time 0. All four are numbers; return a number.",
    draw=inputs(o=uniform(-1.5, 1.5), v=uniform(0.5, 1.5), g=uniform(0.2, 1.0), t=uniform(0.5, 2.0)),
    agrees="The product at that time is another.",
    hints=(
        "Add the two equations, and subtract them. Which two combinations of o and v change alone?",
        "o + v shrinks by an exponential. What does o - v do?",
        "(o + v)² - (o - v)² is four times the product.",
    ),
    mistakes=[
        ("equal factors", edit("(sum_now**2 - difference_now**2) / 4", "o * v * math.exp(-2 * g * t)"),
         "You let the product shrink by exp(-2gt). That holds for equal factors only: their difference is 0, and "
         "any other difference grows."),
        ("signs swapped", lambda o, v, g, t: (((o + v) * math.exp(g * t)) ** 2 - ((o - v) * math.exp(-g * t)) ** 2) / 4,
         "You let the sum grow and the difference shrink. Descent goes against g: add the two equations."),
        ("difference kept", edit("(o - v) * math.exp(g * t)", "(o - v)"),
         "You left the difference of the factors as it was. It grows."),
        ("no quarter", edit(" / 4", ""), "Yours is four times the product: (o + v)² - (o - v)² = 4 ov."),
        ("not squared", edit("sum_now**2 - difference_now**2", "sum_now - difference_now"),
         "You subtracted the difference from the sum. The product is a difference of their squares."),
        ("one step", edit("(sum_now**2 - difference_now**2) / 4", "(o - g * t * v) * (v - g * t * o)"),
         "That is a single step of descent of size t. The flow takes infinitely many small ones."),
        ("a straight line", edit("(sum_now**2 - difference_now**2) / 4", "o * v - g * t"),
         "You let the product itself follow its gradient. Descent acts on the factors."),
    ],
)
def product(o, v, g, t):
    """Let sum and difference of the factors go their ways."""
    sum_now = (o + v) * math.exp(-g * t)
    difference_now = (o - v) * math.exp(g * t)
    return (sum_now**2 - difference_now**2) / 4


@lesson.exercise(
    "28.5", "One head more than tasks", difficulty=3, minutes=12,
    prompt="Write `mixing(n_tasks)`: return a float64 matrix $A$ with $I + 1$ rows, one for each head, and $I$ columns, one "
    "for each task, as (28.10) needs it: $A^\\top A$ is the identity, and each column sums to 0. Any such matrix counts.",
    draw=inputs(n_tasks=whole(1, 6)),
    properties=[
        ("The shape should be one row more than columns.",
         lambda n_tasks, answer: tuple(answer.shape) == (n_tasks + 1, n_tasks)),
        ("Each column should sum to 0.", lambda answer: close(answer.sum(0), 0 * answer[0], atol=1e-6)),
        ("AᵀA should be the identity.",
         lambda answer: close(answer.T @ answer, torch.eye(answer.shape[1], dtype=answer.dtype), atol=1e-6)),
    ],
    hints=(
        "The columns are at right angles to the vector of ones. How many such directions are there?",
        "Subtract from I independent columns their means, and make the rest orthonormal.",
        "`torch.linalg.qr` returns orthonormal columns that span what it was given.",
    ),
    mistakes=[
        ("not centred", edit("eye - eye.mean(dim=0)", "eye"), "The columns are orthonormal, and do not sum to 0: what all "
         "heads see, the mean of y, would not cancel."),
        ("not orthonormal", edit("torch.linalg.qr(centred[:, :-1]).Q", "centred[:, :-1]"),
         "The columns sum to 0, and are not orthonormal: one task would leak into another."),
        ("transposed", edit("torch.linalg.qr(centred[:, :-1]).Q", "torch.linalg.qr(centred[:, :-1]).Q.T"),
         "The matrix is transposed: heads are rows, tasks are columns."),
        ("one task too many", edit("centred[:, :-1]", "centred"), "You returned as many columns as heads. Only I directions "
         "sum to 0: the last column of Q is arbitrary."),
        ("scaled", edit(".Q", ".Q * 2**0.5"), "The columns are too long by √2: AᵀA has 2 on its diagonal."),
        ("pairs", lambda n_tasks: torch.stack([torch.eye(n_tasks), -torch.eye(n_tasks)], 1).flatten(0, 1).double() / 2**0.5,
         "You took two heads of opposite sign for each task. That works, with 2 I heads. I + 1 are enough."),
    ],
)
def mixing(n_tasks):
    """Centre unit vectors, and make them orthonormal."""
    eye = torch.eye(n_tasks + 1, dtype=torch.float64)
    centred = eye - eye.mean(dim=0)
    return torch.linalg.qr(centred[:, :-1]).Q


EXERCISES = lesson.exercises
