"""Exercises of lesson 09, gradient_estimators."""

import math

import torch

from course_lib.lessons.gradient_estimators.contents import lesson
from course_lib.optimization.gradient_estimators import cosine_variances, gaussian_expectation
from course_lib.teaching import but, edit, inputs, normal, uniform, whole


def _average_report(p, w_A, w_B):
    """The mean of the report, as the numbers that multiply f_A and f_B."""
    return p * float(w_A), (1 - p) * float(w_B)


def _report(w_A, w_B):
    return {"w_A": w_A, "w_B": w_B}


def _like(a, b):
    return but(lambda w_A, w_B: abs(float(w_A) - a) < 0.01 and abs(float(w_B) - b) < 0.01)


lesson.value(
    "09.1", "Right on average, from one pull", difficulty=1, minutes=6,
    prompt="Arm A is pulled with probability $p = 1/4$, arm B with $1 - p$. They pay $f_A$ and $f_B$, which you are not "
    "told. The average payment is $F = p f_A + (1 - p) f_B$, and you want $dF/dp$ from a single pull: if it was A, you "
    "report $w_A f_A$; if it was B, $w_B f_B$. Which two numbers make the report right on average, whatever the arms pay? "
    "Give a dictionary with `w_A` and `w_B`.",
    answer=_report(4.0, -4 / 3),
    properties=[
        ("On average, f_A should enter your report with the factor 1, as in dF/dp.",
         lambda w_A, w_B: abs(_average_report(0.25, w_A, w_B)[0] - 1) < 0.01),
        ("On average, f_B should enter your report with the factor -1, as in dF/dp.",
         lambda w_A, w_B: abs(_average_report(0.25, w_A, w_B)[1] + 1) < 0.01),
    ],
    hints=(
        "Write down dF/dp first. With which sign does each payment enter it?",
        "A is reported in one pull of four only. What is the average of w_A f_A over many pulls?",
        "A pull that is rare has to count for more: ask for p w_A = 1, and for the same of B with its own sign.",
    ),
    mistakes=[
        ("as if both were seen", _report(1.0, -1.0),
         "These are the factors in dF/dp = f_A - f_B. But only one of the two is seen in a pull: A's payment enters a "
         "quarter of the reports, so that on average it counts 1/4.",
         _like(1.0, -1.0)),
        ("sign of B", _report(4.0, 4 / 3),
         "You divided by the probabilities. But p takes away from B what it gives to A: f_B enters dF/dp with a minus.",
         _like(4.0, 4 / 3)),
        ("both signs turned", _report(-4.0, 4 / 3),
         "Both signs are turned: pulling A more often adds f_A and takes off f_B.",
         _like(-4.0, 4 / 3)),
        ("multiplied by the probabilities", _report(0.25, -0.75),
         "You multiplied by the probabilities. The average does that once more: the report has to divide by them.",
         _like(0.25, -0.75)),
        ("probabilities exchanged", _report(4 / 3, -4.0),
         "You divided each payment by the probability of the other arm.",
         _like(4 / 3, -4.0)),
        ("derivative for the logit", _report(0.75, -0.25),
         "These are the factors for the logit of A, log(p / (1 - p)). Here the derivative is taken with respect to p.",
         _like(0.75, -0.25)),
        ("B divided by p", _report(4.0, -4.0), "You divided both by p. B is pulled with probability 1 - p.",
         _like(4.0, -4.0)),
    ],
)


def _variance_with(baseline):
    """Var[(x^2 - b) z / sigma] for mu = 1, sigma = 2, by quadrature."""
    estimate = lambda z: ((1 + 2 * z) ** 2 - float(baseline)) * z / 2  # noqa: E731
    square_mean = gaussian_expectation(lambda z: estimate(z) ** 2, mean=0, std=1, nodes=8)
    return square_mean - gaussian_expectation(estimate, mean=0, std=1, nodes=8) ** 2


def _lowest_towards(sign):
    return lambda answer: all(
        _variance_with(answer) < _variance_with(float(answer) + sign * shift) for shift in (0.001, 0.01, 0.5))


lesson.value(
    "09.2", "The best constant baseline", difficulty=1, minutes=6,
    prompt="Let $f(x) = x^2$ and $x \\sim N(\\mu, \\sigma^2)$ with $\\mu = 1$ and $\\sigma = 2$. Which constant $b$ makes "
    "the variance of $(f(x) - b)\\,\\frac{x - \\mu}{\\sigma^2}$ smallest? Give the number.",
    answer=13.0,
    properties=[
        ("A slightly larger baseline has a smaller variance than yours.", _lowest_towards(1)),
        ("A slightly smaller baseline has a smaller variance than yours.", _lowest_towards(-1)),
    ],
    hints=(
        "The mean does not depend on b, so only the second moment E[(f - b)² s²] matters, with s the score.",
        "That second moment is a parabola in b: set its derivative to zero.",
        "b is the mean of f weighted by s². With x = μ + σz you need E[z²] = 1, E[z³] = 0 and E[z⁴] = 3.",
    ),
    mistakes=[
        ("the mean of f", 5.0,
         "That is E[f] = μ² + σ². It lowers the variance, and is not the best: samples with a large score count for more, "
         "so f is averaged with the weight s²."),
        ("f at the mean", 1.0, "That is f(μ) = μ². The best baseline averages f over x with the weight s²."),
        ("the gradient", 2.0, "That is the gradient 2μ itself; a baseline is compared with values of f."),
        ("left out sigma", 4.0, "You took μ² + 3: the fourth moment 3 comes with σ², as x = μ + σz."),
        ("sigma for its square", 7.0, "You took μ² + 3σ. The fourth moment of σz is 3σ⁴: divided by σ² it leaves 3σ²."),
        ("without the mean", 12.0, "That is 3σ², right for μ = 0. The square of μ belongs to the weighted mean, too."),
        ("three times the mean of f", 15.0,
         "You took 3 E[f]. Only the part σ²z² of x² grows threefold under the weight z²; μ² does not."),
        ("second moment of f", 73.0, "That is E[f²]. The weights are the squared scores, not f itself."),
        ("the worst sign", -13.0, "The sign is turned: f is positive, and so is the baseline that it is compared with."),
        ("did not divide by E[z^2 / sigma^2]", 3.25,
         "That is E[f s²] alone. Divide by E[s²] = 1/σ², so that the weights have mean 1."),
    ],
)


def _score_wins(frequency, mean, std):
    score, pathwise = cosine_variances(frequency=float(frequency), mean=float(mean), std=float(std))
    return pathwise >= 2 * score > 0


def _is_seen(frequency, mean, std):
    """Whether the true derivative is at least a tenth of the score estimate's standard deviation in size."""
    score, _ = cosine_variances(frequency=float(frequency), mean=float(mean), std=float(std))
    slope = frequency * math.sin(frequency * mean) * math.exp(-((frequency * std) ** 2) / 2)
    return abs(slope) >= 0.1 * math.sqrt(score)


def _case(**changed):
    return {"frequency": 2.0, "mean": 1.0, "std": 1.0, **changed}


lesson.flaw(
    "09.3", "The smaller variance", difficulty=3, minutes=10,
    prompt="It is often said that the reparameterised gradient, where it exists, has the smaller variance. Refute it with a "
    "smooth function, $f(x) = \\cos(ax)$ and $x \\sim N(\\mu, \\sigma^2)$, without any baseline: give a dictionary with the "
    "numbers `frequency` ($a$), `mean` ($\\mu$) and `std` ($\\sigma \\ge 0.001$), all at most 10,000 in size, for which the "
    "reparameterised estimate has at least twice the variance of the score estimate. And both should estimate something: "
    "the true derivative by the mean, $-a\\, e^{-a^2\\sigma^2/2} \\sin(a\\mu)$, should be at least a tenth of the score "
    "estimate's standard deviation in size.",
    answer=_case(),
    needs=[
        ("σ is a standard deviation: take it positive, 0.001 or more.", lambda std: std >= 1e-3),
        ("Take all three numbers at most 10,000 in size.", lambda answer: max(map(abs, answer.values())) <= 1e4),
    ],
    properties=[
        ("For your numbers the reparameterised variance is below twice the score function's.", _score_wins),
        ("The true derivative is below a tenth of the score estimate's standard deviation: noise hides it.", _is_seen),
    ],
    hints=(
        "The reparameterised estimate is -a sin(ax). How large is its mean square when a is large?",
        "The score estimate is cos(ax) z/σ, and the cosine is at most 1 in size.",
        "Compare a²/2 with 1/(2σ²): aσ must be above 1. But the derivative falls as exp(-a²σ²/2): which values are left? "
        "Choose μ for a sine of about 1.",
    ),
    mistakes=[
        ("a constant function", _case(frequency=0.0),
         "With a = 0 the function is constant: the reparameterised gradient is exactly 0, without any variance.",
         but(lambda frequency: frequency == 0)),
        ("a slow wave", _case(frequency=0.5),
         "Your wave is slow: |a|σ is below 1, so x stays within a fraction of a period, and there the derivative is small. "
         "Take a larger frequency.",
         but(lambda frequency, std: 0 < abs(frequency) * std < 1 and std >= 0.1)),
        ("hardly any noise", _case(std=0.01),
         "Your σ is so small that the score z/σ is huge: the score function loses when the distribution is narrow. Raise "
         "σ.",
         but(lambda frequency, std: 0 < abs(frequency) * std < 1 and std < 0.1)),
        ("nothing left to estimate", _case(frequency=8.0, std=0.5),
         "The variances are as asked, but the wave turns so often within σ that it averages out: the factor "
         "exp(-a²σ²/2) leaves almost no derivative. Make |a|σ smaller, still above 1.",
         but(lambda frequency, mean, std: abs(frequency) * std > 2.7 and _score_wins(frequency, mean, std))),
        ("mean at a crest", _case(mean=0.0),
         "The variances are as asked, but your μ lies at or near a crest or a trough of the wave, where sin(aμ) is "
         "small, and the true derivative with it. Move μ towards a quarter of a wave.",
         but(lambda frequency, mean, std: abs(frequency) * std <= 2.7
             and abs(math.sin(frequency * mean)) < 0.5 and _score_wins(frequency, mean, std))),
        ("close to the border", _case(frequency=1.2),
         "You are near the border |a|σ = 1, where the two are about equal. Go further beyond it.",
         but(lambda frequency, mean, std: 1 <= abs(frequency) * std <= 1.5 and not _score_wins(frequency, mean, std))),
    ],
)

def _border(answer):
    return abs(float(answer) / 241 - 1) <= 0.1


def _about(value):
    return but(lambda answer: abs(float(answer) / value - 1) < 0.05)


lesson.value(
    "09.4", "The border", difficulty=2, minutes=8,
    prompt="The mean of the samples has reached the goal: $x_j = 3 + z_j/2$ in each of $k$ coordinates, and "
    "$f(x) = \\sum_{j=1}^k \\big[\\frac12(x_j - 3)^2 + \\cos(32\\,x_j)\\big]$, so that $T = 5$. Where $k$ is large, "
    "the value of $f$ depends little on a single $z_j$, and the score estimate of one coordinate, with $E[f]$ as its "
    "baseline, has about the variance $\\operatorname{Var}[f]/\\sigma^2$. The path estimate of that coordinate is "
    "$\\partial f/\\partial x_j$. At which $k$ are the two equally noisy? An answer within 10% counts.",
    answer=241.0,
    properties=[("At your k the two variances differ by more than 10%.", _border)],
    hints=(
        "Over so many waves the squares of sine and cosine are 1/2 on average, and sine and cosine 0.",
        "The derivative is (x_j - 3) - 32 sin(32 x_j): add the variances of its two parts.",
        "The k coordinates are independent: Var[f] is k times about 1/2 + 1/32. Divide it by σ² = 1/4.",
    ),
    mistakes=[
        ("forgot sigma", 964.2,
         "You compared with Var[f]. The score z/σ brings a factor 1/σ² = 4 into the score's variance.",
         _about(964.2)),
        ("twice too many", 482.0,
         "Twice too many. The square of a sine is 1/2 on average, so that the path's variance is about 32²/2; and the "
         "score's is Var[f] over σ², not over σ.", _about(482.0)),
        ("wave of variance one", 124.2,
         "The square of a cosine is 1/2 on average, not 1: one coordinate's wave adds 1/2 to Var[f].", _about(124.2)),
        ("forgot the slope of the wave", 0.35,
         "The derivative of cos(32 x) is 32 times as large as the wave: the path's variance is far above that of f.",
         but(lambda answer: 0 < answer < 1)),
        ("slope not squared", 7.65, "You took 32 for the factor of the mean square of 32 sin: it has to be squared, too.",
         _about(7.65)),
        ("root for the square", 10.65, "You compared a standard deviation with a variance.", _about(10.65)),
    ],
)


def _is_surrogate_gradient(samples, values, mean, std, baseline, answer):
    center = torch.tensor(mean, dtype=torch.float64, requires_grad=True)
    surrogate = ((values - baseline) * torch.distributions.Normal(center, std).log_prob(samples)).mean()
    return abs(float(answer) - float(torch.autograd.grad(surrogate, center)[0])) < 1e-9


@lesson.exercise(
    "09.5", "The score-function estimate", difficulty=1, minutes=6,
    prompt="Write `score_estimate(samples, values, mean, std, baseline)`: the score-function estimate of "
    "$\\frac{d}{d\\mu} E[f(x)]$ for $x \\sim N(\\mu, \\sigma^2)$ with a constant baseline. `samples` holds the $x_i$ and "
    "`values` the $f(x_i)$, float64 tensors of one shape; return one number, the mean over the samples.",
    draw=inputs(n=whole(3, 6), noise=normal("n", digits=2), mean=uniform(-2.0, 2.0), std=uniform(1.3, 2.5),
                samples=lambda mean, noise: mean + noise, values=normal("n", digits=2), baseline=uniform(0.5, 3.0)),
    properties=[("Your estimate should be the derivative of the mean of (f - b) log p(x) with respect to μ.",
                 _is_surrogate_gradient)],
    hints=(
        "log p(x) = -(x - μ)²/(2σ²) and a constant. What is its derivative with respect to μ?",
        "Subtract the baseline from each value before you multiply it by the score.",
        "Each sample gives (f - b) times (x - μ)/σ²; then take the mean.",
    ),
    mistakes=[
        ("divided by sigma once", edit("std**2", "std"),
         "You divided by σ once. The derivative of (x - μ)²/(2σ²) keeps σ². (With z = (x - μ)/σ it is z/σ: one σ is hidden "
         "in z.)"),
        ("left out sigma", edit(" / std**2", ""),
         "σ² is missing: the derivative of (x - μ)²/(2σ²) with respect to μ keeps it in the denominator."),
        ("turned the sign", edit("(samples - mean)", "(mean - samples)"),
         "The sign is turned: raising μ makes samples above μ more likely, so their score is positive."),
        ("summed", edit(".mean()", ".sum()"), "You summed over the samples; an expectation is estimated by the mean."),
        ("subtracted the baseline at the end", edit("(values - baseline)", "values", ".mean()", ".mean() - baseline"),
         "You subtracted the baseline from the gradient: that shifts its mean. It belongs next to f, where the score "
         "multiplies it and its expectation is 0."),
        ("added the baseline", edit("(values - baseline)", "(values + baseline)"),
         "You added the baseline. The mean is the same, but each value should be compared with it: f - b."),
        ("product of means", edit("((values - baseline) * (samples - mean) / std**2).mean()",
                                  "(values - baseline).mean() * (samples - mean).mean() / std**2"),
         "You multiplied two means. Each sample's value belongs to its own score: multiply first, then average."),
        ("derivative for sigma", edit("(samples - mean) / std**2", "((samples - mean) ** 2 / std**2 - 1) / std"),
         "That is the score of σ. The gradient with respect to μ is asked for."),
        ("baseline on the score alone", edit("(values - baseline) * (samples - mean)",
                                             "(values * (samples - mean) - baseline)"),
         "You subtracted the baseline after the multiplication. It belongs next to f, inside of the product."),
        ("divided by n - 1", edit(".mean()", ".sum() / (len(samples) - 1)"),
         "You divided by n - 1. That belongs to a variance; a mean of n estimates divides by n."),
        ("left out the baseline", edit("(values - baseline)", "values"),
         "You left out the baseline. The mean is the same, the variance is not."),
    ],
)
def score_estimate(samples, values, mean, std, baseline):
    """Average (f(x) - b) (x - mu) / sigma^2 over the samples."""
    return ((values - baseline) * (samples - mean) / std**2).mean()


def _is_derivative(logits, values, answer):
    leaf = logits.clone().requires_grad_()
    return torch.allclose(answer, torch.autograd.grad(leaf.softmax(0) @ values, leaf)[0], atol=1e-9)


@lesson.exercise(
    "09.6", "The exact gradient of a categorical choice", difficulty=2, minutes=10,
    prompt="Write `softmax_gradient(logits, values)`: the exact gradient of $\\sum_i p_i f_i$ with $p$ the softmax of the "
    "logits, with respect to the logits, without sampling. `values` holds the $f_i$; return a float64 tensor with one entry "
    "for each logit.",
    draw=inputs(n=whole(3, 5), logits=normal("n", digits=2), around_0=normal("n", digits=2),
                values=lambda around_0: 1 + around_0),
    properties=[
        ("The entries should sum to 0: adding one constant to all logits changes no probability.",
         lambda answer: abs(float(answer.sum())) < 1e-9),
        ("The gradient should be the derivative of the expectation with respect to the logits.", _is_derivative),
    ],
    hints=(
        "The score of category x is its one-hot vector minus p. Average f times the score over the categories.",
        "Entry i gets p_i f_i from the one-hot part. What does the part with -p give, summed over all categories?",
        "Every value is compared with the expectation, and the difference is weighted by the probability.",
    ),
    mistakes=[
        ("kept the values alone", edit("(values - p @ values)", "values"),
         "You took p_i f_i, the one-hot part of the score. The part -p adds -p_i E[f]."),
        ("gradient for the probabilities", edit("p * (values - p @ values)", "values.clone()"),
         "That is the gradient with respect to the probabilities. The chain rule through the softmax is missing."),
        ("compared with the plain mean", edit("p @ values", "values.mean()"),
         "You compared with the plain mean of the values; it must be the expectation under p."),
        ("treated the entries as independent", edit("(values - p @ values)", "(1 - p) * values"),
         "You kept the diagonal of the softmax's Jacobian, p_i (1 - p_i). Raising one logit also lowers all the other "
         "probabilities: -p_i p_j."),
        ("turned the sign", edit("(values - p @ values)", "(p @ values - values)"),
         "The sign is turned: a category that is better than the average should become more likely."),
        ("logits for probabilities", edit("logits.softmax(dim=0)", "logits.clone()"),
         "You used the logits instead of the probabilities: apply the softmax first."),
        ("softmax of the values", edit("logits.softmax(dim=0)", "values.softmax(dim=0)"),
         "You took the softmax of the values. The probabilities come from the logits."),
        ("divided by p", edit("p * (values", "(values", "@ values)", "@ values) / p"),
         "You divided by p. The score is e_x - p, and averaging over x multiplies by p."),
        ("the score of one category", edit("p * (values - p @ values)", "values * (1 - p)"),
         "You took f_i (1 - p_i), one entry of one category's score. Average over all categories, with weights p."),
        ("off the sum", edit("p @ values", "values.sum()"),
         "You compared with the sum of the values; it must be the expectation under p."),
        ("second p missing", edit("p * (values - p @ values)", "p * values - p @ values"),
         "The second part of the score is -p, a vector: it adds -p_i E[f] to entry i, you took E[f] off each entry."),
        ("not weighed by p", edit("p * (values - p @ values)", "values - p @ values"),
         "The difference from the expectation is right, and it has to be weighted: category i comes with probability p_i."),
    ],
)
def softmax_gradient(logits, values):
    """p_i (f_i - sum_j p_j f_j)."""
    p = logits.softmax(dim=0)
    return p * (values - p @ values)


EXERCISES = lesson.exercises
