"""Exercises of lesson 21, random_features."""

import math

import torch

from course_lib.attention.random_features import relative_variance
from course_lib.lessons.random_features.contents import lesson
from course_lib.teaching import close, edit, inputs, near, normal, one_of, uniform, whole

lesson.value(
    "21.1", "The width inside softmax", difficulty=1, minutes=4,
    prompt="Queries and keys have $D = 64$ entries. For which $\\sigma$ is $\\exp(q^\\top k/\\sqrt D)$ equal to "
    "$e^{\\lVert q\\rVert^2/2\\sigma^2}\\,K_\\sigma(q, k)\\,e^{\\lVert k\\rVert^2/2\\sigma^2}$ for all $q$ and $k$, with "
    "the Gaussian kernel $K_\\sigma$? Three digits are enough.",
    answer=64**0.25,
    properties=[
        ("A width is positive.", lambda answer: answer > 0),
        ("With your width the two sides differ.", near(64**0.25, within=0.007)),
    ],
    hints=(
        "Put all three exponents on one fraction line: what is left of the norms?",
        "The product is an exponential of q.k over something. Over what?",
        "Compare that denominator with the one of softmax attention, and solve for the width.",
    ),
    mistakes=[
        ("variance instead of width", 8.0,
         "You gave σ², which is √D = 8. The width is its root.", near(8, within=0.02)),
        ("as many as entries", 64.0,
         "You gave D itself. The scores are divided by √D, and that is σ².", near(64, within=0.02)),
        ("width one", 1.0,
         "With σ = 1 the product is exp(q.k), softmax without its scale.", near(1, within=0.02)),
        ("two left over", 2.0,
         "You have σ² = √D/2: the 2 in the exponents of the kernel is used up by the cross term 2 q.k.",
         near(2, within=0.02)),
        ("one over the width", 64**-0.25,
         "That is 1/σ, by which queries and keys are multiplied.", near(64**-0.25, within=0.005)),
        ("the root of D twice over", 16.0,
         "You have σ² = 4 √D or σ = 2 √D. Nothing is doubled: the 2 of 2 q·k cancels the 2 of 2σ².", near(16, within=0.02)),
        ("the root left over", 4.0,
         "You have σ² = 2 √D. The cross term 2 q·k over 2σ² is q·k/σ²: the two factors cancel.", near(4, within=0.02)),
    ],
)


def _law_flaw(sigma, distance):
    """Name what keeps a proposed counterexample from being one."""
    if not (sigma <= 1000 and distance <= 1000):
        return "too large"
    if sigma <= 0:
        return "no width"
    if distance <= 0:
        return "same point"
    kernel, printed = math.exp(-(distance**2) / (2 * sigma**2)), math.exp(-(distance**2) * sigma**2 / 2)
    if abs(kernel - printed) >= 0.2:
        return "none"
    if max(kernel, printed) < 0.2:
        return "too far"
    return "too near" if min(kernel, printed) > 0.8 else "width near one"


def _fails_by(name):
    return lambda sigma, distance: _law_flaw(sigma, distance) == name


lesson.flaw(
    "21.2", "A law that is off", difficulty=2, minutes=6,
    prompt="Somebody draws $w \\sim N(0, \\sigma^2 I)$ for a kernel of width $\\sigma$, and expects that "
    "$\\cos w^\\top(q - k)$ has the mean $K_\\sigma(q, k)$. Give a counterexample: a dictionary with the numbers `sigma` "
    "($\\sigma > 0$) and `distance` ($\\lVert q - k\\rVert > 0$), both at most 1,000, such that the mean and "
    "$K_\\sigma(q, k)$ differ by 0.2 or more.",
    answer={"sigma": 2.0, "distance": 2.0},
    properties=[
        ("Take numbers of at most 1,000.", lambda sigma, distance: sigma <= 1000 and distance <= 1000),
        ("Take σ > 0 and a distance above 0.", lambda sigma, distance: sigma > 0 and distance > 0),
        ("For your numbers the two do not differ by 0.2.", _fails_by("none")),
    ],
    hints=(
        "w.(q - k) is a normal number. What is its variance under this law, and which one would give the kernel?",
        "For a normal number of variance t the mean of the cosine is exp(-t/2). Compare with the kernel.",
        "The two variances are d²σ² and d²/σ². Choose σ far from 1, and d so that one exponent is small, the other large.",
    ),
    mistakes=[
        ("width one", {"sigma": 1.0, "distance": 1.0},
         "At σ = 1 this law is right, and close to it nearly so. Take another width.",
         _fails_by("width near one")),
        ("the same point", {"sigma": 2.0, "distance": 0.0},
         "At distance 0 the cosine is 1 whatever the law. Move q and k apart.", _fails_by("same point")),
        ("too far apart", {"sigma": 2.0, "distance": 9.0},
         "So far apart both numbers are nearly 0. Bring q and k closer.", _fails_by("too far")),
        ("too near", {"sigma": 2.0, "distance": 0.1},
         "So near to each other both numbers are nearly 1. Move q and k apart.", _fails_by("too near")),
        ("no width", {"sigma": -2.0, "distance": 2.0}, "A width is above 0.", _fails_by("no width")),
    ],
)


@lesson.exercise(
    "21.3", "Softmax from cosines", difficulty=1, minutes=8,
    prompt="Write `estimate(q, k, frequencies)`: the estimate of $\\exp(q^\\top k/\\sqrt D)$ by an average of $m$ "
    "cosines, from (21.1) and (21.3). `q` and `k` are float64 vectors with $D$ entries, `frequencies` holds $m$ rows "
    "drawn from $N(0, I)$, which you have to scale; return a number (a tensor without dimensions).",
    draw=inputs(d=whole(2, 4), m=whole(2, 4), q=normal("d"), k=normal("d"), frequencies=normal("m d")),
    properties=[
        ("An average of cosines is at most 1 in size, so the estimate is at most the product of both norms' factors.",
         lambda q, k, answer: abs(answer) <= math.exp((q @ q + k @ k) / (2 * math.sqrt(len(q)))) * (1 + 1e-9)),
    ],
    agrees="These frequencies give another estimate.",
    hints=(
        "Each row of `frequencies` gives one cosine; the estimate of the kernel is their mean.",
        "The kernel's width follows from D, and the frequencies must have variance 1/σ².",
        "The kernel alone is not yet softmax: two factors that depend on the lengths are missing.",
    ),
    mistakes=[
        ("the printed law", edit("(q - k) / sigma", "(q - k) * sigma"),
         "You multiplied the frequencies by σ. A wide kernel needs low frequencies: divide."),
        ("unscaled frequencies", edit("(q - k) / sigma", "(q - k)"),
         "Your frequencies have variance 1, which belongs to the kernel of width 1. Here the width is D^(1/4)."),
        ("kernel only", edit("((q @ q + k @ k) / (2 * sigma**2)).exp() * ", ""),
         "That estimates the Gaussian kernel. Softmax has the norms of q and k as factors besides."),
        ("norms without the half", edit("(2 * sigma**2)", "sigma**2"),
         "The factors are exp(|q|²/2σ²) and exp(|k|²/2σ²); yours lack the 2."),
        ("norms of width one", edit("(2 * sigma**2)", "2"),
         "Your factors are exp(|q|²/2) and exp(|k|²/2). They have the width of the kernel: divide both "
         "exponents by σ²."),
        ("sum instead of mean", edit("mean", "sum"),
         "You added the frequencies' cosines up. The features carry 1/√m each, which makes it an average."),
        ("divided by the square of the width", edit("(q - k) / sigma", "(q - k) / sigma**2"),
         "You divided by σ². That is what divides the variance of the frequencies; they themselves are divided by σ."),
        ("cosines of a sum", edit("(q - k) / sigma", "(q + k) / sigma"),
         "You took the cosine of w·(q + k). sin a sin b + cos a cos b is the cosine of the difference."),
        ("sines forgotten", edit("(frequencies @ (q - k) / sigma).cos()",
                                 "((frequencies @ q / sigma).cos() * (frequencies @ k / sigma).cos())"),
         "You multiplied cosines only. The products of the sines belong to the estimate as well."),
        ("divided by all features", edit("mean()", "mean() / 2"),
         "You divided by the 2m features. The sum of the m pairs is divided by m."),
        ("width of the whole score", edit("len(q) ** 0.25", "len(q) ** 0.5"),
         "You took σ = √D. In softmax attention σ² is √D."),
    ],
)
def estimate(q, k, frequencies):
    """Return the trigonometric estimate of exp(q.k / sqrt(D))."""
    sigma = len(q) ** 0.25
    kernel = (frequencies @ (q - k) / sigma).cos().mean()
    return ((q @ q + k @ k) / (2 * sigma**2)).exp() * kernel


@lesson.exercise(
    "21.4", "How far one cosine strays", difficulty=2, minutes=5,
    prompt="Let $\\kappa = K_\\sigma(q, k)$, the mean of $\\cos w^\\top(q - k)$ by (21.3). Write `cosine_variance(kappa)`: "
    "the variance of one such cosine, for a float64 tensor `kappa` with values between 0 and 1; return the same shape.",
    draw=inputs(n=whole(2, 4), kappa=uniform(0.05, 0.95, "n")),
    agrees="With your numbers some variance differs.",
    hints=(
        "A variance is the mean of the square, less the square of the mean.",
        "cos² u = (1 + cos 2u)/2. If q - k is doubled, u is doubled.",
        "Twice the distance raises the kernel to the fourth power. That is the mean of cos 2u.",
    ),
    mistakes=[
        ("the mean not subtracted", edit(" - kappa**2", ""),
         "That is the mean of the square. A variance subtracts the square of the mean, κ²."),
        ("the mean not squared", edit("- kappa**2", "- kappa"),
         "You subtracted the mean. A variance subtracts its square."),
        ("doubled once", edit("kappa**4", "kappa**2"),
         "You took κ² for the mean of cos 2u. Twice the distance has four times its square in the exponent."),
        ("not doubled", edit("kappa**4", "kappa"),
         "You took κ for the mean of cos 2u. That is the mean of cos u."),
        ("mean doubled", edit("kappa**4", "2 * kappa"),
         "You doubled the mean. Doubled is the distance inside the kernel's exponent, where it counts as its square."),
        ("the half missing", edit("(1 + kappa**4) / 2 - kappa**2", "(1 - kappa**2) ** 2"),
         "Yours is twice the variance: cos² u = (1 + cos 2u)/2."),
        ("the standard deviation", edit("(1 + kappa**4) / 2 - kappa**2", "(1 - kappa**2) / math.sqrt(2)"),
         "That is the standard deviation; asked is its square."),
        ("the sine", edit("(1 + kappa**4) / 2 - kappa**2", "(1 - kappa**4) / 2"),
         "That is the variance of the sine: sin² u = (1 - cos 2u)/2, with mean 0."),
        ("a square of one", edit("(1 + kappa**4) / 2", "1"),
         "You took 1 for the mean of cos² u. That holds only where the cosine is 1 or -1."),
        ("far away", edit("(1 + kappa**4) / 2 - kappa**2", "0 * kappa + 0.5"),
         "One half is the variance at a great distance. Nearer by the cosines stray less: at distance 0 all are 1."),
    ],
)
def cosine_variance(kappa):
    """Return the variance of cos w.(q - k) where its mean is kappa."""
    return (1 + kappa**4) / 2 - kappa**2


@lesson.exercise(
    "21.5", "How many features", difficulty=2, minutes=8,
    prompt="Write `needed_features(q, k, error)`: how many independent positive features make the root mean square error of "
    "the estimated $\\exp(q^\\top k/\\sqrt D)$ equal to `error` times its exact value. `q` and `k` are float64 vectors with "
    "$D$ entries; return the number without rounding (a tensor without dimensions).",
    # The sum is drawn first: q and k are never opposite, where no feature is needed.
    draw=inputs(d=whole(2, 4), total=uniform(0.3, 1.5, "d"), q=normal("d"), k=lambda total, q: total - q,
                error=uniform(0.05, 0.5)),
    properties=[
        ("A number of features is positive.", lambda answer: answer > 0),
        ("With your number the variance of the mean is not the square of the error.",
         lambda q, k, error, answer: close(
             relative_variance(q[None], k[None], kind="positive")[0, 0] / answer, error**2)),
    ],
    hints=(
        "The variance of a mean of m independent estimates is that of one, divided by m.",
        "Over the exact value, one feature gives r = exp(w·s - |s|²/2), s = (q + k)/σ, of mean 1. What is the mean of r²?",
        "r² is exp(w·2s - |s|²), and E exp(w·2s) = exp(2|s|²). Set variance over m equal to the square of the error.",
    ),
    mistakes=[
        ("error not squared", edit("error**2", "error"),
         "You divided by the error. It is the square of the error that falls like 1/m."),
        ("difference instead of sum", edit("q + k", "q - k"),
         "You took |q - k|. That governs trigonometric features; positive ones have |q + k|."),
        ("no width", edit(" / math.sqrt(len(q))", ""),
         "The squared length is to be divided by σ², which is √D for softmax attention."),
        ("second moment", edit(" - 1", ""),
         "You used the second moment. The variance subtracts the square of the mean, which is 1 here."),
        ("half the exponent", edit("math.sqrt(len(q))", "math.sqrt(len(q)) / 2"),
         "Your exponent is half of what it should be: squaring the feature doubles w, and the mean of exp(2 w.s) is "
         "exp(2|s|²), of which the squared mean takes one half away."),
        ("lengths apart", edit("(q + k).square().sum()", "(q.square().sum() + k.square().sum())"),
         "You added the squared lengths. |q + k|² has 2 q·k besides: aligned vectors are the hard ones."),
        ("scaled by D", edit("math.sqrt(len(q))", "len(q)"),
         "You divided by D. σ² is √D for softmax attention."),
        ("trigonometric features", edit("(q + k)", "(q - k)", "squared_length.exp() - 1",
                                        "2 * (squared_length / 2).sinh() ** 2"),
         "That is the number for trigonometric features. Positive ones have exp(|q + k|²/σ²) - 1."),
        ("variance inverted", edit("(squared_length.exp() - 1) / error**2", "error**2 / (squared_length.exp() - 1)"),
         "Your fraction is upside down: a smaller error needs more features."),
    ],
)
def needed_features(q, k, error):
    """Return how many positive features give that relative error."""
    squared_length = (q + k).square().sum() / math.sqrt(len(q))
    return (squared_length.exp() - 1) / error**2


def _by_logarithms(q, keys, frequencies):
    """The same weights from logarithms of the sums, pair by pair."""
    exponents = keys @ frequencies.mT - keys.square().sum(1, keepdim=True) / 2 + frequencies @ q
    return exponents.logsumexp(1).softmax(0)


def _keys(length, direction, q, rows):
    """Keys as long as the query; the longest point away from it and differ across it, so that features cancel in it."""
    if length < 1000:
        return length * (rows + 0.05)
    across = rows - torch.outer(rows @ direction, direction) / direction.square().sum().clamp(min=0.01)
    return across - q


@lesson.exercise(
    "21.6", "Weights that do not overflow", difficulty=3, minutes=15,
    prompt="Write `positive_weights(q, keys, frequencies)`: the attention weights that positive features of width "
    "$\\sigma = 1$ give to the keys. `q` has $d$ entries, `keys` is $n \\times d$, `frequencies` $m \\times d$, in float64; "
    "return $n$ weights that add up to 1. Vectors may be long: exponents reach thousands, where `exp` overflows or gives 0.",
    draw=inputs(
        n=whole(2, 4), m=whole(2, 4), d=whole(2, 4), length=one_of(1.0, 40.0, 1000.0), direction=normal("d"),
        rows=normal("n d"), q=lambda length, direction: length * direction, keys=_keys,
        frequencies=normal("m d"),
    ),
    properties=[
        ("The weights add up to 1.", lambda answer: abs(answer.sum() - 1) < 1e-9),
        ("Two weights should be to each other as the keys' sums of exp(ωᵀq + ωᵀk - |k|²/2) over all frequencies ω.",
         lambda q, keys, frequencies, answer: close(answer, _by_logarithms(q, keys, frequencies))),
    ],
    hints=(
        "Write the exponents of the keys, an n x m table, and those of the query before any exponential is taken.",
        "For each feature, what is subtracted from the keys may be added to the query.",
        "Subtract each feature's largest key exponent, add it to the query's, then subtract the query's largest.",
    ),
    mistakes=[
        ("not stabilised", edit("key_exponents.amax(0)", "0", " - query_exponents.amax()", ""),
         "For long vectors your exponentials overflow or all vanish, and 0/0 is left. Take large factors out of them first, "
         "such as cancel in the ratio."),
        ("one maximum for all", edit("key_exponents.amax(0)", "key_exponents.max()"),
         "You subtract one maximum from all features. Features whose keys all lie far below it vanish, although the query "
         "may bring them back: take each feature's own maximum."),
        ("each key's own maximum", edit("amax(0)", "amax(1, keepdim=True)", " + top", ""),
         "You subtract each key's own largest exponent. That factor differs from key to key, so it does not cancel in the "
         "ratio: it changes the weights."),
        ("no norm of the keys", edit(" - keys.square().sum(1, keepdim=True) / 2", ""),
         "The factor exp(-|k|²/2) is missing. For a query such a factor cancels, for a key it does not."),
        ("norm without the half", edit("keepdim=True) / 2", "keepdim=True)"),
         "Your factor is exp(-|k|²). The half is missing: positive features have exp(-|k|²/2)."),
        ("not normalised", edit(" / weights.sum()", ""), "These are the numerators. Divide by their sum."),
        ("one feature for each key", lambda q, keys, frequencies: (
            frequencies @ (q + keys).mT - keys.square().sum(1) / 2).amax(0).softmax(0),
         "You kept only each key's largest exponent. The other features add to the sum: take the logarithm of the "
         "whole sum."),
        ("equal weights", lambda q, keys, frequencies: torch.full_like(keys[:, 0], 1 / len(keys)),
         "All your weights are equal: neither the query nor the keys play a part.",
         lambda answer: bool((answer - answer.mean()).abs().amax() < 1e-9)),
        ("softmax attention", lambda q, keys, frequencies: (keys @ q).softmax(0),
         "That is exact softmax attention. The weights that these frequencies give are asked for."),
        ("the query alone", edit("frequencies @ q + top", "frequencies @ q"),
         "You subtracted each feature's maximum from the keys and did not add it to the query: the features are then "
         "weighted anew."),
        ("the norm kept for each feature", edit("(key_exponents - top).exp()", "(key_exponents - top).softmax(0)"),
         "You normalised each feature over the keys first. Only the final weights are divided by their sum."),
    ],
)
def positive_weights(q, keys, frequencies):
    """Return the weights that positive features of width 1 give to the keys, for vectors of any length."""
    key_exponents = keys @ frequencies.mT - keys.square().sum(1, keepdim=True) / 2
    top = key_exponents.amax(0)
    query_exponents = frequencies @ q + top
    weights = (key_exponents - top).exp() @ (query_exponents - query_exponents.amax()).exp()
    return weights / weights.sum()


EXERCISES = lesson.exercises
