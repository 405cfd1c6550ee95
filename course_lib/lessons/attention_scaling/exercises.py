"""Exercises of lesson 13, attention_scaling."""

import math
from itertools import pairwise

import torch

from course_lib.lessons.attention_scaling.contents import lesson
from course_lib.teaching import close, edit, inputs, normal, uniform, whole

# The worked example of the notes: one query, four keys with their values.
QUERY = (1.0, 1.0, 2.0)
KEYS = ((1.0, 2.0, 0.0), (0.0, 3.0, 4.0), (5.0, 0.0, 0.0), (0.0, 0.0, 1.0))
VALUES = ((2.0, 0.0, 1.0), (1.0, 4.0, 3.0), (0.0, -1.0, 4.0), (1.0, 0.0, -1.0))


def _has_unit_variance(answer):
    """Whether the scores of all pairs have variance 1 when divided.

    Queries and keys are plus and minus the rows of 12 times a rotation: mean 0 and covariance 9 I, exactly.
    """
    generator = torch.Generator().manual_seed(0)
    rotations = torch.linalg.qr(torch.randn(2, 16, 16, generator=generator, dtype=torch.float64)).Q
    queries, keys = 12 * torch.cat([rotations, -rotations], 1)
    return close((queries @ keys.T / answer).var(correction=0), 1.0)


lesson.value(
    "13.1", "The divisor", difficulty=1, minutes=3,
    prompt="Queries and keys are independent; their $d = 16$ entries are uncorrelated, with mean 0 and standard deviation "
    "$\\sigma = 3$. By which number must $q^\\top k$ be divided to have variance 1?",
    answer=36.0,
    properties=[
        ("Divided by your number, the scores of a set of queries and keys with mean 0 and covariance 9 I do not have "
         "variance 1.",
         _has_unit_variance),
    ],
    hints=(
        "The variance of a sum of 16 uncorrelated products is 16 times the variance of one of them.",
        "A product of two independent variables with mean 0 has the product of their variances: σ² times σ².",
        "Dividing by s divides the variance by s². So s is the root of dσ⁴.",
    ),
    mistakes=[
        ("root of d alone", 4.0, "That is √d, right for σ = 1 only: each product of entries has variance σ⁴."),
        ("sigma once", 12.0,
         "That is √d σ, from the variance dσ² that the notes print. A product of two entries has variance σ² · σ²."),
        ("the variance itself", 1296.0,
         "That is the variance. Dividing by s divides the variance by s²: take the root."),
        ("d sigma squared", 144.0,
         "That is dσ², which the notes print as the variance. It is neither the variance nor its root."),
        ("one product", 9.0, "That is σ², right for d = 1. The score is a sum of 16 products: where did d go?"),
        ("variance of one product", 81.0,
         "That is σ⁴, the variance of one product. The score sums 16 of them, and the divisor is a root."),
        ("sigma to the fourth outside of the root", 324.0,
         "That is √d σ⁴. The root of the variance dσ⁴ takes the root of both factors."),
        ("root twice", 6.0, "That is the root of the right answer. Var(x/s) = Var(x)/s², so one root is enough."),
        ("factor for divisor", 1 / 36,
         "That is the factor to multiply with. The question asks for the number to divide by."),
    ],
)


def _variance_over_signs(mean, std, correction=0):
    """The variance of q.k where all entries are mean plus or minus std with equal chances: all cases."""
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * len(mean))
    vectors = mean + std * signs
    return (vectors @ vectors.T).var(correction=correction)


@lesson.exercise(
    "13.2", "The variance of a score", difficulty=1, minutes=8,
    prompt="Write `score_variance(mean, std)`: the variance of $q^\\top k$ for independent $q$ and $k$, each with mean "
    "$\\mu$ and covariance $\\sigma^2 I$. `mean` is $\\mu$, a float64 tensor of shape `(d,)`; `std` is $\\sigma$. Return "
    "a number.",
    draw=inputs(d=whole(2, 4), mean=normal("d"), std=uniform(0.3, 2.0)),
    properties=[
        ("It should be the variance over all queries and keys whose entries are μᵢ ± σ.",
         lambda mean, std, answer: close(answer, _variance_over_signs(mean, std))),
    ],
    hints=(
        "Write q = μ + σa and k = μ + σb with a and b of mean 0 and covariance I, and multiply out.",
        "Of the four terms one is a constant. The other three are uncorrelated: μ·a, μ·b and a·b.",
        "Var(μ·a) = ‖μ‖² and Var(a·b) = d. What are the factors of σ in front of them?",
    ),
    mistakes=[
        ("the notes' variance", edit("std**4 + 2 * std**2 * mean @ mean", "std**2"),
         "That is dσ², as printed in the notes: right for μ = 0 and σ = 1 only."),
        ("without the mean", edit(" + 2 * std**2 * mean @ mean", ""),
         "That is right for μ = 0. With a mean, σ μ·a and σ μ·b vary too."),
        ("one side only", edit("2 * std**2", "std**2"),
         "You counted ‖μ‖² once. That is what varies within a row, where q is fixed; over both, q and k each contribute "
         "it."),
        ("second moment", edit("mean @ mean", "mean @ mean + (mean @ mean) ** 2"),
         "That is E(q·k)². The variance needs the square of the mean, ‖μ‖⁴, taken off."),
        ("no cross terms", lambda mean, std: float(((mean**2 + std**2) ** 2).sum() - (mean @ mean) ** 2),
         "You took E(q·k)² = Σ E qᵢ² E kᵢ². That leaves out the products of different entries, 2 Σ μᵢ²μⱼ² over i < j."),
        ("variance for standard deviation", edit("std**4 + 2 * std**2", "std**2 + 2 * std"),
         "You took σ for σ²: `std` is the standard deviation, and the covariance is σ²I."),
        ("d forgotten", edit("len(mean) * ", ""),
         "Var(a·b) is a sum over d entries: the first term is dσ⁴."),
        ("square of the sum", edit("mean @ mean", "mean.sum() ** 2"),
         "You squared the sum of the entries of μ. ‖μ‖² is the sum of their squares."),
        ("sum of the entries", edit("mean @ mean", "mean.sum()"),
         "You summed the entries of μ. ‖μ‖² is the sum of their squares; the notes lost the square there, too."),
        ("length not squared", edit("mean @ mean", "mean.norm()"),
         "The second term needs ‖μ‖², you took ‖μ‖."),
        ("mean of the squares", edit("mean @ mean", "mean.square().mean()"),
         "You took the mean of the μᵢ². The score sums over the entries, so their sum belongs there."),
        ("notes' variance with the mean", edit("std**4 +", "std**2 +"),
         "Your first term is dσ², as printed in the notes. A product of two entries has variance σ² · σ²."),
        ("standard deviation", lambda mean, std: float(len(mean) * std**4 + 2 * std**2 * mean @ mean) ** 0.5,
         "That is the standard deviation. The variance is its square."),
        ("sample variance", lambda mean, std: _variance_over_signs(mean, std, correction=1),
         "You listed all cases and called `var` with its default, which divides by one less than their number. All cases "
         "are there: pass `correction=0`."),
    ],
)
def score_variance(mean, std):
    """Return the variance of q.k for independent q and k with this mean and covariance std^2 I."""
    return float(len(mean) * std**4 + 2 * std**2 * mean @ mean)


def _by_autograd(weights, upstream):
    scores = weights.log().requires_grad_()
    (gradient,) = torch.autograd.grad(scores.softmax(-1) @ upstream, scores)
    return gradient


@lesson.exercise(
    "13.3", "Back through the softmax", difficulty=2, minutes=8,
    prompt="Write `score_gradient(weights, upstream)`: the gradient of a loss with respect to the scores of one row. "
    "`weights` is $\\alpha = \\mathrm{softmax}(s)$ and `upstream` is $\\partial L/\\partial\\alpha$, float64 tensors of "
    "shape `(n,)`. Return a tensor of that shape. It can be done without an $n \\times n$ matrix.",
    draw=inputs(n=whole(2, 4), scores=normal("n"), weights=lambda scores: scores.softmax(-1), upstream=normal("n")),
    properties=[
        ("The gradient should add up to 0: a number added to all scores changes no weight.",
         lambda answer: abs(float(answer.sum())) < 1e-6),
        ("Entry i should be the rate at which the sum of upstream · α grows with score i alone, which moves all weights.",
         lambda weights, upstream, answer: close(answer, _by_autograd(weights, upstream))),
    ],
    hints=(
        "The Jacobian is symmetric, so the gradient is J times the upstream gradient. Multiply (13.7) out.",
        "The first part, diag(α) g, multiplies entry by entry. The second is α times one number.",
        "That number is α·g, the mean of g under the weights. Every entry is compared with it.",
    ),
    mistakes=[
        ("no competition", edit("(upstream - weights @ upstream)", "upstream"),
         "You left out the second part of the Jacobian: raising one score lowers all other weights."),
        ("diagonal only", edit("(upstream - weights @ upstream)", "(1 - weights) * upstream"),
         "That is the diagonal of the Jacobian. The other entries, -αᵢαⱼ, are missing."),
        ("plain mean", edit("weights @ upstream", "upstream.mean()"),
         "You compared with the plain mean of g. It is the mean under the weights, α·g."),
        ("wrong sign", edit("upstream - weights @ upstream", "weights @ upstream - upstream"),
         "The sign is turned: a score whose weight raises the loss has a positive gradient."),
        ("centred only", edit("weights * ", ""),
         "You forgot the factor α in front: a key with weight 0 gets no gradient."),
        ("sum for mean", edit("weights @ upstream", "upstream.sum()"),
         "You compared with the sum of g. It is the mean under the weights, α·g."),
        ("second factor alpha missing", edit("weights * (upstream - weights @ upstream)",
                                             "weights * upstream - weights @ upstream"),
         "The second part of Jg is α (α·g), a multiple of α. You took the number α·g off every entry."),
        ("gradient of the logarithm", edit("weights * (upstream - weights @ upstream)",
                                           "upstream - weights * upstream.sum()"),
         "That is the gradient through log softmax. Here `upstream` is the gradient at the weights themselves."),
        ("softmax again", edit("return weights", "weights = weights.softmax(-1)\n    return weights"),
         "You applied the softmax again. `weights` are the weights already."),
        ("off the diagonal alone", edit("(upstream - weights @ upstream)", "-(weights @ upstream)"),
         "You used -ααᵀ alone. The diagonal of the Jacobian has αᵢ - αᵢ²."),
        ("plus for minus", edit("upstream - weights @ upstream", "upstream + weights @ upstream"),
         "The Jacobian is diag(α) minus ααᵀ: the weights sum to 1, so what one gains others lose."),
    ],
)
def score_gradient(weights, upstream):
    """Return the gradient at the scores, from the weights and the gradient at the weights."""
    return weights * (upstream - weights @ upstream)


def _judged(q1, q2, q3):
    """Name what keeps a proposed counterexample from being one."""
    query, eye = torch.tensor([q1, q2, q3], dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    moves = 1e-3 * torch.cat([0 * eye, eye, -eye])
    scores = (query + moves) @ torch.tensor(KEYS, dtype=torch.float64).T
    if len(scores.argmax(1).unique()) > 1:
        return "none"
    best, *losers = scores[0].sort(descending=True).values.tolist()
    if any(a - b < 1e-6 for a, b in pairwise(losers)):
        return "losers tie"
    return "a clear winner" if best - losers[0] > 0.5 else "not close enough"


def _fails_by(name):
    return lambda q1, q2, q3: _judged(q1, q2, q3) == name


lesson.flaw(
    "13.4", "A tiny change that changes the winner", difficulty=2, minutes=8,
    prompt="The notes say of argmax attention that tiny perturbations of the query do not change the winner. The keys are "
    "$(1,2,0)$, $(0,3,4)$, $(5,0,0)$ and $(0,0,1)$. Give a counterexample: a dictionary with the numbers `q1`, `q2` and "
    "`q3`, a query for which a change of 0.001 in one of its entries makes another key win.",
    answer={"q1": 1.0, "q2": 1.0, "q3": 0.5},
    properties=[("No change of 0.001 in one entry of your query makes another key win.", _fails_by("none"))],
    hints=(
        "Where could a tiny change matter? Look for a query for which two scores are equal.",
        "The two equal scores must be the largest ones. Keys 2 and 3 are good candidates.",
        "Keys 2 and 3 tie where 3q₂ + 4q₃ = 5q₁. Choose two entries and solve for the third; check that keys 1 and 4 "
        "score less.",
    ),
    mistakes=[
        ("a clear winner", {"q1": 1.0, "q2": 1.0, "q3": 2.0},
         "Here the best key is well ahead of the next: the notes are right about such a query. Look where the two best "
         "scores are equal.", _fails_by("a clear winner")),
        ("losers tie", {"q1": 1.0, "q2": 1.0, "q3": 3.0},
         "Two keys do tie here, but another one beats both of them: a tie matters at the top only.",
         _fails_by("losers tie")),
        ("not close enough", {"q1": 1.0, "q2": 1.0, "q3": 0.55},
         "The two best scores are near each other, yet a change of 0.001 in one entry moves a score by 0.005 at most. "
         "Bring them closer.", _fails_by("not close enough")),
    ],
)


def _weight_reached(n_keys, scale):
    """The weight of a key of cosine 1 among others of cosine -1."""
    cosines = -torch.ones(n_keys, dtype=torch.float64)
    cosines[0] = 1
    return (scale * cosines).softmax(-1)[0]


@lesson.exercise(
    "13.5", "How large a scale QK-norm needs", difficulty=3, minutes=12,
    prompt="With QK-norm the scores are $g\\cos(q, k_j)$. Write `needed_scale(n_keys, weight)`: the smallest $g$ with which "
    "some query can give the weight `weight` to one of `n_keys` keys when the keys lie as favourably as possible for it. "
    "`n_keys` is 2 or more, `weight` lies between 0.5 and 1; return a number.",
    draw=inputs(n_keys=whole(3, 59), weight=uniform(0.55, 0.98)),
    properties=[
        ("With your scale, one key of cosine 1 among others of cosine -1 should get exactly that weight.",
         lambda n_keys, weight, answer: close(_weight_reached(n_keys, answer), weight)),
    ],
    hints=(
        "Which cosines help most? The largest possible for the one key, the smallest possible for all others.",
        "The weight is then 1/(1 + (n - 1)e^(-2g)). Set it equal to w and solve for g.",
        "The odds w/(1 - w) equal e^(2g)/(n - 1). Take logarithms.",
    ),
    mistakes=[
        ("cosine zero", edit("0.5 * ", ""),
         "That lets the other keys have cosine 0. They can have -1, which needs half of your scale."),
        ("counted the key itself", edit("(n_keys - 1)", "n_keys"), "There are n - 1 other keys, not n."),
        ("odds upside down", edit("weight / (1 - weight)", "(1 - weight) / weight"),
         "The odds are turned: a larger weight needs a larger scale."),
        ("weight for odds", edit(" / (1 - weight)", ""),
         "You used w where the odds w/(1 - w) belong: the weights of the others sum to 1 - w."),
        ("logarithm to another base", edit("math.log", "math.log2"),
         "That is the logarithm to base 2 or 10. The softmax uses e.",
         lambda n_keys, weight, answer: close(answer, needed_scale(n_keys, weight) / math.log(2))
         or close(answer, needed_scale(n_keys, weight) / math.log(10))),
        ("keys on the other side", edit("(n_keys - 1) * weight / (1 - weight)", "weight / ((1 - weight) * (n_keys - 1))"),
         "You divided by n - 1: more keys need a larger scale, not a smaller one."),
        ("one other key", edit("(n_keys - 1) * ", ""),
         "That is right for two keys. Every other key adds its e^(-g) to the sum."),
        ("weight one half", edit(" * weight / (1 - weight)", ""),
         "That is the scale for the weight 1/2; the wanted weight plays no part in it."),
        ("times two", edit("0.5 * ", "2 * "),
         "You multiplied by 2. The cosines differ by 2, so e^(2g) equals the odds times n - 1, and g is half of the log."),
        ("no logarithm", edit("math.log", ""), "That is half of e^(2g). The logarithm is missing."),
    ],
)
def needed_scale(n_keys, weight):
    """Return the scale at which one key of cosine 1 among others of cosine -1 gets that weight."""
    return 0.5 * math.log((n_keys - 1) * weight / (1 - weight))


EXERCISES = lesson.exercises
