"""Exercises of lesson 35, stacked_autoencoder."""

import math

import torch

from course_lib.lessons.stacked_autoencoder.contents import lesson
from course_lib.representation.variance import kept_by_code, unit_share
from course_lib.teaching import edit, inputs, integers, near, normal, one_of, uniform, whole


@lesson.exercise(
    "35.1", "What a code keeps", difficulty=2, minutes=10,
    prompt="Write `variance_kept(x, code)`: the share $R$ of the variance of the rows of `x` that the *best affine* decoder "
    "$\\hat x = Az + b$ recovers from the rows $z$ of `code`. `x` has shape `(rows, d)` and `code` `(rows, k)`, both "
    "float64; fit and judge on the same rows. Return a number or a tensor without dimensions. "
    "`torch.linalg.lstsq(M, x).solution` gives the $W$ that minimises $\\lVert MW - x\\rVert^2$.",
    draw=inputs(
        k=whole(1, 2), centred=normal("7 k", digits=1), noise=normal("7 3", digits=1), mixing=normal("k 3", digits=1),
        code=lambda centred: centred + 2,
        x=lambda code, mixing, noise: code @ mixing + noise * torch.tensor([0.2, 1.0, 2.0]).double() + 1,
    ),
    properties=[
        ("It should equal the share of the centred rows that the centred code's columns span.",
         lambda x, code, answer: abs(float(answer) - kept_by_code(x, code)) <= 1e-8),
    ],
    hints=(
        "An affine map is a linear one of a code that has one more unit, which is always 1.",
        "Find the reconstruction by least squares, then compare the squared error with the variance.",
        "The denominator sums the squares of x minus its mean over the rows, over all dimensions together.",
    ),
    mistakes=[
        ("no intercept", edit("torch.cat([code, torch.ones_like(code[:, :1])], dim=1)", "code"),
         "Your decoder is linear, not affine: it has no b. Append a column of ones to the code."),
        ("variance about zero", edit("(x - x.mean(dim=0))", "x"),
         "You divided by the sum of squares of x itself. Variance is about the mean: subtract it first, or a large mean "
         "makes any code look good."),
        ("what is missing", edit("1 - (x", "(x"),
         "That is the share that is lost. The share that is kept is 1 minus it."),
        ("mean over dimensions", edit("1 - (x - decoded).square().sum()", "(1 - (x - decoded).square().sum(0)",
                                      "x.mean(dim=0)).square().sum()", "x.mean(dim=0)).square().sum(0)).mean()"),
         "You averaged the shares of the dimensions. Add up errors and variances over the dimensions first: a dimension "
         "with little variance should count little."),
        ("mean over all entries", edit("x.mean(dim=0)", "x.mean()"),
         "You subtracted one mean for all entries. Each dimension has its own mean over the rows."),
        ("mean over the other axis", edit("x.mean(dim=0)", "x.mean(dim=1, keepdim=True)"),
         "You subtracted the mean of each row. The mean is over the rows, one for each dimension: dim 0."),
        ("PCA of the rows", lambda x, code: (lambda s: s[: code.shape[1]].sum() / s.sum())(
            torch.linalg.svdvals(x - x.mean(0)) ** 2),
         "That is what PCA with as many components keeps. This code keeps less."),
        ("root", edit("1 - (x - decoded).square().sum() / (x - x.mean(dim=0)).square().sum()",
                      "1 - (x - decoded).norm() / (x - x.mean(dim=0)).norm()"),
         "You compared lengths. Variance is about their squares."),
        ("intercept for x alone", edit("torch.cat([code, torch.ones_like(code[:, :1])], dim=1)", "code",
                                       "with_ones, x)", "with_ones, x - x.mean(dim=0))",
                                       "(x - decoded)", "(x - x.mean(dim=0) - decoded)"),
         "You centred x and not the code. A code with a mean needs an intercept, too: centre both, or append ones."),
    ],
)
def variance_kept(x, code):
    """Least squares with an intercept, then one minus the share that is missing."""
    with_ones = torch.cat([code, torch.ones_like(code[:, :1])], dim=1)
    decoded = with_ones @ torch.linalg.lstsq(with_ones, x).solution
    return 1 - (x - decoded).square().sum() / (x - x.mean(dim=0)).square().sum()


lesson.value(
    "35.2", "Spend a budget of two", difficulty=1, minutes=4,
    prompt="Four directions have the variances 6, 3, 2 and 1. Give each a weight between 0 and 1; together the weights may "
    "be 2 at most. What share of the total variance 12 can the weighted sum of the variances reach?",
    answer=0.75,
    properties=[
        ("It should be the best of all splits of the budget.", near(0.75, within=0.004)),
    ],
    hints=(
        "A unit of weight on a direction brings its variance. Where does it bring most?",
        "No weight may be larger than 1: the largest direction cannot have the whole budget.",
        "Fill the directions up from the largest. Which are full when 2 is spent?",
    ),
    mistakes=[
        ("equal weights", 0.5,
         "You gave every direction a half. A direction with more variance pays more for the same weight.",
         near(0.5, within=0.004)),
        ("all on the largest", 1.0,
         "You put the weight 2 on the largest direction. No weight may be larger than 1.", near(1, within=0.004)),
        ("the sum", 9.0, "That is the weighted sum of the variances. The share divides it by their total, 12.",
         near(9, within=0.04)),
        ("smallest first", 0.25, "You filled up the two smallest. Start with the largest.", near(0.25, within=0.004)),
        ("what is missing", 3.0, "That is the variance which is left out; asked is the share that is reached.",
         near(3, within=0.04)),
    ],
)


def _is_smallest(variances, share, answer):
    if not float(answer).is_integer():
        return False
    values, k = sorted(variances.tolist(), reverse=True), int(answer)
    return 1 <= k <= len(values) and sum(values[:k]) >= share * sum(values) > sum(values[: k - 1])


def _reached_exactly(share, *variances):
    return {"variances": torch.tensor(variances, dtype=torch.float64), "share": share}


@lesson.exercise(
    "35.3", "How many components keep a share", difficulty=1, minutes=7,
    prompt="Write `components_for(variances, share)`: the smallest number of principal components that together keep at "
    "least the share `share` of the total variance. `variances` is a float64 tensor of their variances in no particular "
    "order, `share` lies between 0 and 1; return a whole number.",
    # These shares times a whole number below 1000 are never whole: no ties but those that are meant, without rounding.
    draw=inputs(n=whole(3, 6), variances=integers("n", 1, 40), share=one_of(0.373, 0.531, 0.617, 0.733, 0.829, 0.911))
    .sometimes(0.5, _reached_exactly(0.5, 8.0, 4.0, 2.0, 2.0), _reached_exactly(0.75, 2.0, 8.0, 2.0, 4.0),
               _reached_exactly(0.5, 4.0, 2.0, 8.0, 2.0), _reached_exactly(0.75, 2.0, 2.0, 4.0, 8.0)),
    properties=[
        ("The number of components should be a whole number, 1 or more.",
         lambda answer: answer >= 1 and float(answer).is_integer()),
        ("That many of the largest variances should reach the share, and one fewer should not.", _is_smallest),
    ],
    hints=(
        "Which components would you keep first, and does the order of the tensor say so?",
        "Sort in decreasing order and take the partial sums with cumsum.",
        "Count the partial sums that are still below share times the total. The next one is the first that is not.",
    ),
    mistakes=[
        ("unsorted", edit(".sort(descending=True).values", ""),
         "You took the variances in the order given. The largest have to come first, or "
         "a large one at the end is missed."),
        ("smallest first", edit("descending=True", ""),
         "You sorted in increasing order: that keeps the weakest directions first."),
        ("more than the share", edit("<", "<="),
         "You asked for more than the share. At least the share means that reaching it exactly is enough."),
        ("one too few", edit(" + 1", ""),
         "That is the largest number that falls short of the share. One component more is needed."),
        ("isotropic rule", lambda variances, share: math.ceil(share * len(variances)),
         "You used k = ceil(share · D), which is right when all variances are equal. These are not."),
        ("standard deviations", edit("variances.sort", "variances.sqrt().sort"),
         "You added square roots. Variances add up over orthogonal directions, standard deviations do not."),
        ("squares", edit("variances.sort", "variances.square().sort"),
         "You squared the variances. They are squares already: singular values would have to be squared."),
        ("always one", edit("share * kept[-1]", "share"),
         "Your answer is 1 for every input. Compare the partial sums (cumsum) of the sorted variances with the share times "
         "their total.", lambda answer: answer == 1),
        ("always zero", edit("share * kept[-1]", "share", " + 1", ""),
         "Your answer is 0 for every input, and no component keeps nothing. Count the partial sums that are below the share "
         "times their total, then add 1.", lambda answer: answer == 0),
        ("all of them", edit("int((kept < share * kept[-1]).sum()) + 1", "int((kept > share).sum())"),
         "Your answer is the number of all components for every input. Fewer reach the share as a rule: compare the partial "
         "sums (cumsum) of the sorted variances with the share times their total.",
         lambda variances, answer: answer == len(variances)),
        ("a share of components", edit("int((kept < share * kept[-1]).sum()) + 1",
                                       "(kept < share * kept[-1]).sum() + share"),
         "Your answer is not a whole number. Components are kept or left out: count them.",
         lambda answer: not float(answer).is_integer()),
    ],
)
def components_for(variances, share):
    """Sort, add up, and count how many partial sums fall short."""
    kept = variances.sort(descending=True).values.cumsum(dim=0)
    return int((kept < share * kept[-1]).sum()) + 1


@lesson.exercise(
    "35.4", "The best circle", difficulty=2, minutes=6,
    prompt="The code of a point $x$ in the plane is its angle $\\theta$. The decoder puts $\\hat x$ on a circle of radius "
    "$\\varrho$ around 0, at that angle. Write `best_radius(x)`: the $\\varrho$ with the least mean square error "
    "$\\lVert x - \\hat x\\rVert^2$ over the rows of `x`, float64 of shape `(rows, 2)`. Return a number or a tensor "
    "without dimensions.",
    draw=inputs(n=whole(3, 6), x=normal("n 2", digits=1)),
    properties=[
        ("A little more or less should not lower the error.",
         lambda x, answer: abs(float(answer) - float(x.norm(dim=1).mean())) <= 1e-8),
    ],
    hints=(
        "Point and reconstruction lie on one ray from 0. How far apart are they?",
        "The square error of a point is (r - radius)², with r its length.",
        "Which constant has the least mean square distance to some numbers?",
    ),
    mistakes=[
        ("root mean square", edit("x.norm(dim=1).mean()", "x.square().sum(dim=1).mean().sqrt()"),
         "That circle has the right mean square length. Least squares asks for the mean of the lengths."),
        ("median", edit(".mean()", ".quantile(0.5)"),
         "The median has the least mean distance. The least mean *square* distance belongs to the mean."),
        ("length of the mean", edit("x.norm(dim=1).mean()", "x.mean(dim=0).norm()"),
         "You took the length of the mean point. Opposite points cancel there: take lengths first."),
        ("normal rows", lambda x: math.sqrt(math.pi / 2),
         "That is the mean length of standard normal points. These rows have a mean length of their own."),
        ("mean square", edit("x.norm(dim=1)", "x.square().sum(dim=1)"),
         "You averaged squared lengths. A radius is a length."),
        ("over all entries", edit("x.norm(dim=1).mean()", "x.abs().mean()"),
         "You averaged the sizes of the entries. A point's length takes both of them together."),
        ("largest", edit(".mean()", ".max()"), "That circle encloses all points. It is far from most of them."),
    ],
)
def best_radius(x):
    """The mean length: the constant with the least mean square distance to the lengths."""
    return x.norm(dim=1).mean()


@lesson.exercise(
    "35.5", "A ReLU unit with a bias", difficulty=3, minutes=18,
    prompt="Write `relu_kept(bias)`: the share of the variance of $u \\sim N(0, 1)$ that the best affine decoder recovers "
    "from the unit $r = \\max(u + b, 0)$. With $\\Phi$ and $\\varphi$ the distribution function and the density of "
    "$N(0, 1)$, $E\\,r = b\\,\\Phi(b) + \\varphi(b)$ and $E\\,r^2 = (1 + b^2)\\,\\Phi(b) + b\\,\\varphi(b)$. `bias` is a "
    "number between -2 and 3; return a number. `math.erfc(-b / math.sqrt(2)) / 2` is $\\Phi(b)$.",
    draw=inputs(bias=uniform(-2.0, 3.0)),
    properties=[
        ("It should equal the squared correlation of u and r, integrated numerically.",
         lambda bias, answer: abs(float(answer) - unit_share(lambda u: torch.relu(u + bias))) <= 1e-5),
    ],
    hints=(
        "The best affine decoder of one number from another keeps the squared correlation of the two.",
        "You need Cov(u, r) and Var r. For the covariance, E u f(u) = E f′(u) for a standard normal u.",
        "The derivative of max(u + b, 0) is 1 where u > -b and 0 elsewhere. Its expectation is a probability.",
    ),
    mistakes=[
        ("second moment", edit(" - mean**2", ""),
         "You divided by E r². The variance is E r² minus the square of the mean: the decoder has an intercept."),
        ("covariance not squared", edit("cdf**2", "cdf"),
         "You divided Cov by Var r, which is the decoder's slope. The share kept is Cov² / Var r."),
        ("correlation not squared", lambda bias: relu_kept(bias) ** 0.5,
         "That is the correlation of u and r. The share of the variance is its square."),
        ("bias with the wrong sign", lambda bias: relu_kept(-bias),
         "That is the share at the opposite bias. A larger bias makes the unit more linear, so it keeps more."),
        ("without the bias", lambda bias: relu_kept(0.0),
         "You gave the share at bias 0. With another bias another part of the inputs is cut off."),
        ("how often it fires", edit("cdf**2 / (second - mean**2)", "cdf"),
         "That is how often the unit is active. A silent unit still says that u is below -b, and the decoder uses that."),
        ("variance of the unit", edit("cdf**2 / (second - mean**2)", "second - mean**2"),
         "That is the variance of r. The share of u's variance is Cov(u, r)² / Var r."),
        ("tail for the distribution", edit("erfc(-bias", "erfc(bias"),
         "Your Φ is the upper tail, 1 - Φ(b): `math.erfc` takes -b / √2."),
        ("density without its factor", edit(" / math.sqrt(2 * math.pi)", ""),
         "Your density lacks its factor 1/√(2π)."),
    ],
)
def relu_kept(bias):
    """Squared correlation of a standard normal u with max(u + bias, 0)."""
    cdf = math.erfc(-bias / math.sqrt(2)) / 2
    density = math.exp(-(bias**2) / 2) / math.sqrt(2 * math.pi)
    mean = bias * cdf + density
    second = (1 + bias**2) * cdf + bias * density
    return cdf**2 / (second - mean**2)


EXERCISES = lesson.exercises
