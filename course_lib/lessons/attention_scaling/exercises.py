"""Exercises of lesson 17, attention_scaling."""

from itertools import pairwise

import torch

from course_lib.lessons.attention_scaling.contents import lesson
from course_lib.teaching import close, edit, inputs, normal, uniform, whole

# One query, four keys with their values.
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
    "17.1", "The divisor", difficulty=1, minutes=3,
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
         "That is √d σ, from a variance of dσ². But a product of two entries has variance σ² · σ²."),
        ("the variance itself", 1296.0,
         "That is the variance. Dividing by s divides the variance by s²: take the root."),
        ("d sigma squared", 144.0,
         "That is dσ². It is neither the variance, dσ⁴, nor its root."),
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
    "17.2", "The variance of a score", difficulty=1, minutes=7,
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
        ("one sigma squared", edit("std**4 + 2 * std**2 * mean @ mean", "std**2"),
         "That is dσ², right for μ = 0 and σ = 1 only: a product of two entries has variance σ² · σ²."),
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
         "You summed the entries of μ. ‖μ‖² is the sum of their squares."),
        ("length not squared", edit("mean @ mean", "mean.norm()"),
         "The second term needs ‖μ‖², you took ‖μ‖."),
        ("mean of the squares", edit("mean @ mean", "mean.square().mean()"),
         "You took the mean of the μᵢ². The score sums over the entries, so their sum belongs there."),
        ("sigma squared with the mean", edit("std**4 +", "std**2 +"),
         "Your first term is dσ². A product of two entries has variance σ² · σ²."),
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
    "17.3", "Back through the softmax", difficulty=2, minutes=7,
    prompt="Write `score_gradient(weights, upstream)`: the gradient of a loss with respect to the scores of one row. "
    "`weights` is $\\alpha = \\mathrm{softmax}(z)$ and `upstream` is $\\partial L/\\partial\\alpha$, float64 tensors of "
    "shape `(n,)`. Return a tensor of that shape. An $n \\times n$ matrix, as in (17.5) below, is not needed.",
    draw=inputs(n=whole(2, 4), scores=normal("n"), weights=lambda scores: scores.softmax(-1), upstream=normal("n")),
    properties=[
        ("The gradient should add up to 0: a number added to all scores changes no weight.",
         lambda answer: abs(float(answer.sum())) < 1e-6),
        ("Entry i should be the rate at which the sum of upstream · α grows with score i alone, which moves all weights.",
         lambda weights, upstream, answer: close(answer, _by_autograd(weights, upstream))),
    ],
    hints=(
        "Raise score j alone: its own weight grows at the rate αⱼ(1 - αⱼ), and each other weight αᵢ falls at the rate αᵢαⱼ.",
        "Call the upstream gradient u. Add up uᵢ times the rate of αᵢ over all i, and take the common factor αⱼ out.",
        "In the bracket uⱼ is compared with one number, the mean of u under the weights.",
    ),
    mistakes=[
        ("no competition", edit("(upstream - weights @ upstream)", "upstream"),
         "You left out the competition: raising one score lowers all other weights."),
        ("diagonal only", edit("(upstream - weights @ upstream)", "(1 - weights) * upstream"),
         "That counts each score for its own weight only. It lowers the other weights, too, at the rates αᵢαⱼ."),
        ("plain mean", edit("weights @ upstream", "upstream.mean()"),
         "You compared with the plain mean of u, the upstream gradient. It is the mean under the weights, α·u."),
        ("wrong sign", edit("upstream - weights @ upstream", "weights @ upstream - upstream"),
         "The sign is turned: a score whose weight raises the loss has a positive gradient."),
        ("centred only", edit("weights * ", ""),
         "You forgot the factor α in front: a key with weight 0 gets no gradient."),
        ("sum for mean", edit("weights @ upstream", "upstream.sum()"),
         "You compared with the sum of u, the upstream gradient. It is the mean under the weights, α·u."),
        ("second factor alpha missing", edit("weights * (upstream - weights @ upstream)",
                                             "weights * upstream - weights @ upstream"),
         "The second part is α (α·u), a multiple of α, with u for `upstream`. You took the number α·u off every entry."),
        ("gradient of the logarithm", edit("weights * (upstream - weights @ upstream)",
                                           "upstream - weights * upstream.sum()"),
         "That is the gradient through log softmax. Here `upstream` is the gradient at the weights themselves."),
        ("softmax again", edit("return weights", "weights = weights.softmax(-1)\n    return weights"),
         "You applied the softmax again. `weights` are the weights already."),
        ("off the diagonal alone", edit("(upstream - weights @ upstream)", "-(weights @ upstream)"),
         "You used -ααᵀ alone. A score raises its own weight at the rate αᵢ - αᵢ²."),
        ("plus for minus", edit("upstream - weights @ upstream", "upstream + weights @ upstream"),
         "The second part has a minus: the weights sum to 1, so what one gains others lose."),
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
    "17.4", "A tiny change that changes the winner", difficulty=2, minutes=6,
    prompt="Argmax attention returns the value of the key with the largest score. \"A tiny change of the query does not "
    "change the winner.\" Give a counterexample for the keys $(1,2,0)$, $(0,3,4)$, $(5,0,0)$ and $(0,0,1)$: a dictionary "
    "with the numbers `q1`, `q2` and `q3`, a query for which a change of 0.001 in one of its entries makes another key win.",
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
         "Here the best key is well ahead of the next: the sentence is right about such a query. Look where the two best "
         "scores are equal.", _fails_by("a clear winner")),
        ("losers tie", {"q1": 1.0, "q2": 1.0, "q3": 3.0},
         "Two keys do tie here, but another one beats both of them: a tie matters at the top only.",
         _fails_by("losers tie")),
        ("not close enough", {"q1": 1.0, "q2": 1.0, "q3": 0.55},
         "The two best scores are near each other, yet a change of 0.001 in one entry moves a score by 0.005 at most. "
         "Bring them closer.", _fails_by("not close enough")),
    ],
)


def _factor(new, old):
    """Return the number by which one matrix is multiplied to give the other, or None."""
    factor = float((new * old).sum() / old.square().sum())
    return factor if close(new, factor * old) else None


def _shared_evenly(w_q, w_k, answer):
    one, other = _factor(answer[0], w_q), _factor(answer[1], w_k)
    return one is not None and other is not None and close(abs(one), abs(other))


@lesson.exercise(
    "17.5", "The same function without a scale", difficulty=2, minutes=5,
    prompt="Attention (17.1) with the scale $\\beta$ has the scores $\\beta\\,(x W_Q)\\cdot(y W_K)$ for contents $x$ "
    "and $y$. Write `without_scale(w_q, w_k, scale)`: return two new matrices, stacked as one tensor of shape "
    "`(2, m, d)`, whose scores *without* any scale are the same for all contents. Both matrices are to be multiplied by the "
    "same number. `w_q` and `w_k` are float64 tensors of shape `(m, d)`, `scale` is a positive number.",
    draw=inputs(m=whole(2, 4), d=whole(2, 6), w_q=normal("m d"), w_k=normal("m d"), scale=uniform(0.05, 0.8)),
    properties=[
        ("Without a scale, your matrices should give β times the scores of the old ones.",
         lambda w_q, w_k, scale, answer: close(answer[0] @ answer[1].T, scale * w_q @ w_k.T)),
        ("Both matrices should be multiplied by the same number.", _shared_evenly),
    ],
    hints=(
        "Multiply W_Q by a number c and W_K by the same number. What happens to every score?",
        "A score is a product of one factor from each matrix, so it is multiplied by c².",
        "Choose c so that c² equals the scale.",
    ),
    mistakes=[
        ("the whole scale on both", edit("scale**0.5", "scale"),
         "You multiplied both by β. A score has a factor from each matrix, so yours is β² times the old one."),
        ("the whole scale on queries", edit("root * w_q, root * w_k", "scale * w_q, w_k"),
         "The scores are right, but one matrix carries the whole scale. Here both are to be multiplied by the same number."),
        ("the whole scale on keys", edit("root * w_q, root * w_k", "w_q, scale * w_k"),
         "The scores are right, but W_K carries the whole scale. Here both are to be multiplied by the same number."),
        ("divided", edit("scale**0.5", "scale**-0.5"),
         "You divided. The scores are to be β times the old ones, and β is a factor, not a divisor."),
        ("half the scale", edit("scale**0.5", "scale / 2"),
         "You gave each matrix half of β. The two factors are multiplied, not added."),
        ("one of them only", edit("root * w_k", "w_k"),
         "Only W_Q is smaller, by the root of β. The other root belongs to W_K."),
        ("unchanged", edit("scale**0.5", "1.0"),
         "These are the old matrices. Without a scale their scores are 1/β times too large."),
        ("width for scale", edit("scale**0.5", "w_q.shape[1] ** -0.25"),
         "That is right for the scale 1/√d. Here the scale is given as a number of its own."),
    ],
)
def without_scale(w_q, w_k, scale):
    """Return the two matrices whose scores without a scale are those of w_q and w_k with it."""
    root = scale**0.5
    return torch.stack([root * w_q, root * w_k])


EXERCISES = lesson.exercises
