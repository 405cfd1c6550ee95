"""Exercises of lesson 12, dropout."""

from itertools import product

import torch

from course_lib.architectures.normalisation import expected_dropout_loss
from course_lib.lessons.dropout.contents import lesson
from course_lib.teaching import but, close, edit, inputs, near, normal, one_of, uniform, whole


def _four_masks() -> tuple[float, float, float]:
    """Mean and variance of the prediction of row (3, -1), and the mean squared error at the target 2."""
    mean = second = error = 0.0
    for first, other in product((0, 1), repeat=2):
        chance = 0.8 ** (first + other) * 0.2 ** (2 - first - other)
        value = first * 3 * 0.7 + other * -1 * -0.4
        mean, second, error = mean + chance * value, second + chance * value**2, error + chance * (value - 2) ** 2
    return mean, second - mean**2, error


lesson.value(
    "12.1", "One row, two coins", difficulty=1, minutes=5,
    prompt="The row $(3, -1)$ meets the weights $\\tilde w = (0.7, -0.4)$; its target is 2. Each of the two entries is kept "
    "with the probability 0.8, else it is 0. Over the four masks: what is the mean of the prediction, what is its variance, "
    "and what is the mean squared error? Give a dictionary with the numbers `mean`, `variance` and `error`.",
    answer={"mean": 2.0, "variance": 0.7312, "error": 0.7312},
    properties=[
        ("The mean of the prediction over the four masks is another.",
         lambda mean: close(mean, _four_masks()[0], atol=1e-6)),
        ("The variance of the prediction over the four masks is another.",
         lambda variance: close(variance, _four_masks()[1], atol=1e-6)),
        ("The mean squared error over the four masks is another.",
         lambda error: close(error, _four_masks()[2], atol=1e-6)),
    ],
    hints=(
        "Each entry contributes 2.1 or 0, and 0.4 or 0.",
        "The variances of independent contributions add up. What is the variance of a number that is a with probability "
        "0.8, and else 0?",
        "The mean squared error is the squared error of the mean plus the variance.",
    ),
    mistakes=[
        ("no coins in the error", {"mean": 2.0, "variance": 0.7312, "error": 0.0},
         "You took the error of the mean prediction. It is 0, but a single prediction is off, and its square counts."),
        ("not thinned", {"mean": 2.5, "variance": 0.7312, "error": 0.9812},
         "You took the prediction without a mask for the mean. On average only 0.8 of each entry is there."),
        ("standard deviation", {"mean": 2.0, "variance": 0.7312**0.5, "error": 0.7312},
         "Mean and error are right. What you gave as the variance is its root."),
        ("one coin for the row", {"mean": 2.0, "variance": 1.0, "error": 1.0},
         "You let one coin decide for both entries. Each has its own."),
        ("chance of loss", {"mean": 0.5, "variance": 0.7312, "error": 2.9812},
         "You kept each entry with 0.2. That is the probability that it goes."),
        ("second moment", {"mean": 2.0, "variance": 4.7312, "error": 0.7312},
         "What you gave as the variance is the mean of the square. The square of the mean is to be subtracted."),
        ("error twice", {"mean": 2.0, "variance": 0.7312, "error": 1.4624},
         "You counted the variance twice in the error."),
    ],
)


def _slope(matrix, target, keep, answer):
    """Gradient of the mean loss at the answer, from the moments of the masked table: E[M^T M] w - E[M^T] t."""
    gram = keep**2 * matrix.T @ matrix
    gram = gram + torch.diag(keep * matrix.square().sum(0) - gram.diagonal())
    return gram @ answer - keep * matrix.T @ target


@lesson.exercise(
    "12.2", "Where dropout ends", difficulty=3, minutes=10,
    prompt="Write `trained_weights(matrix, target, keep)`: the weights $\\tilde w$ at which (12.2) is smallest, without a "
    "loop over masks. `matrix` is $X$, of shape $(n, d)$, `target` is $t$, of shape $(n,)$, and `keep` is $p$; return "
    "shape $(d,)$.",
    draw=inputs(n=whole(3, 5), d=whole(2, 3), matrix=uniform(0.5, 3, "n d"), target=normal("n"),
                keep=one_of(0.3, 0.6, 0.8)),
    properties=[
        ("At your weights the mean loss still has a slope.",
         lambda matrix, target, keep, answer: bool(
             _slope(matrix, target, keep, answer).abs().max() <= 1e-6 * (1 + target.abs().max()))),
    ],
    same=lambda a, b: close(a, b, atol=1e-6),
    hints=(
        "The loss is quadratic in the weights: set its gradient to zero.",
        "The gradient of the penalty p(1 - p) ‖X_j‖² w̃_j² is a diagonal matrix times the weights.",
        "Solve (p² XᵀX + p(1 - p) diag(‖X_j‖²)) w̃ = p Xᵀt.",
    ),
    mistakes=[
        ("not thinned", edit("keep * matrix.T @ target)", "matrix.T @ target)"),
         "Your right side lacks the factor p: masked inputs meet the target with 0.8 of their size, if p is 0.8."),
        ("for inputs without a mask", edit("keep * matrix.T @ target)", "keep * matrix.T @ target) * keep"),
         "Those are p times the weights, which fit inputs without a mask. Asked are the weights that meet masked ones."),
        ("drop for keep", edit("keep * (1 - keep) * torch", "keep**2 * keep / (1 - keep) * torch"),
         "You exchanged p and 1 - p in the penalty: `keep` is the probability that an entry stays."),
        ("plain ridge", edit("torch.diag(squares)", "torch.eye(len(squares), dtype=matrix.dtype)"),
         "Your penalty is the same for all weights. Each has the squared length of its column as a factor."),
        ("lengths for squares", edit("square().sum(0)", "square().sum(0).sqrt()"),
         "Your penalty has the lengths of the columns. The variance of a masked entry has its square."),
        ("no penalty", edit(" + keep * (1 - keep) * torch.diag(squares)", ""),
         "You solved for the mean of the inputs. The variance of the masks adds a penalty."),
        ("mean for sum", edit("square().sum(0)", "square().mean(0)"),
         "Your penalty has the mean square of a column. The loss adds over the rows, and so does the variance."),
        ("rows for columns", edit("torch.diag(squares)", "matrix.square().sum() / len(squares) * "
                                  "torch.eye(len(squares), dtype=matrix.dtype)"),
         "You charge all weights alike, with the mean of the squared lengths. Each weight pays for its own column."),
    ],
)
def trained_weights(matrix, target, keep):
    """Set the gradient of fit plus penalty to zero."""
    squares = matrix.square().sum(0)
    gram = keep**2 * matrix.T @ matrix + keep * (1 - keep) * torch.diag(squares)
    return torch.linalg.solve(gram, keep * matrix.T @ target)


def _torch_penalty() -> float:
    """The penalty of nn.Dropout(p=0.8) on one weight 1 of one column 1: its mean loss at target 1, where the fit is 0."""
    one = torch.ones(1, dtype=torch.float64)
    return float(expected_dropout_loss(one[:, None], one, one / (1 - 0.8), keep=1 - 0.8))


lesson.value(
    "12.3", "Which p?", difficulty=2, minutes=4,
    prompt="`torch.nn.Dropout(p=0.8)` *drops* an entry with the probability 0.8, and divides what it keeps by 0.2. Least "
    "squares is trained through it. On average over the masks this is ridge regression "
    "$\\lVert t - Xw\\rVert^2 + \\lambda\\sum_j\\lVert X_j\\rVert^2 w_j^2$. What is $\\lambda$?",
    answer=4.0,
    properties=[("The mean loss of torch's layer has another penalty.", lambda answer: close(_torch_penalty(), answer))],
    hints=(
        "Which probability stands in (12.3): that of an entry that stays, or of one that goes?",
        "A kept entry is divided by 0.2, so that w̃ = w/0.2 meets entries that are not divided.",
        "(1 - p)/p in (12.3) has the probability to keep. Here it is 0.2.",
    ),
    mistakes=[
        ("keep for drop", 0.25, "That is right for a keep probability of 0.8. Here 0.8 is the probability to drop.",
         near(0.25, within=1e-6)),
        ("not rescaled", 0.16, "That is p(1 - p), for weights that meet entries which are not divided.",
         near(0.16, within=1e-6)),
        ("the root", 2.0, "That is the root of the factor.", near(2.0, within=1e-6)),
        ("over keep squared", 20.0, "You divided the variance factor (1 - q) by q²; q(1 - q)/q² is (1 - q)/q.",
         near(20.0, within=1e-4)),
        ("p itself", 0.8, "That is p. The penalty is the variance of a masked and divided entry, over its square.",
         near(0.8, within=1e-6)),
        ("second moment", 5.0, "That is the mean square of a divided coin. Its variance is smaller by 1, the square of its "
         "mean.", near(5.0, within=1e-6)),
    ],
)

FACTORS = 2.0 ** torch.arange(-24, 25, dtype=torch.float64)
LENGTHS = torch.tensor([10.0, 1.0], dtype=torch.float64)


def _least_risks(w1, w2):
    """The smallest mean squared error of ridge and of dropout's average, over all penalties tried.

    Two columns at right angles, of lengths 10 and 1, and noise 1 on the targets: a weight is shrunk by a factor c, which
    leaves the bias (1 - c) times its effect and the variance c squared.
    """
    effects = LENGTHS * torch.tensor([float(w1), float(w2)], dtype=torch.float64)
    risks = []
    for penalties in (FACTORS[:, None].expand(-1, 2), FACTORS[:, None] * LENGTHS**2):
        shrunk = LENGTHS**2 / (LENGTHS**2 + penalties)
        risks.append(float((((1 - shrunk) * effects) ** 2 + shrunk**2).sum(1).min()))
    return risks


def _bounded(w1, w2):
    return abs(w1) <= 1000 and abs(w2) <= 1000


lesson.flaw(
    "12.4", "A penalty that knows no units", difficulty=2, minutes=6,
    prompt="“A penalty that ignores units is never worse than one that does not.” Two columns are perpendicular and "
    "have the lengths 10 and 1; noise of size 1 is added to the targets $Xw$. Give true weights $w$, each between -1,000 "
    "and 1,000, for which ridge regression with its best penalty has an expected squared error of $Xw$ at least 5% below "
    "that of dropout's average with its best $p$: a dictionary with the numbers `w1` and `w2`.",
    answer={"w1": 1.0, "w2": 1.0},
    needs=[("Take numbers between -1,000 and 1,000.", _bounded)],
    properties=[
        ("For your weights ridge is not 5% better: compare what each shrinks with what is there.",
         lambda w1, w2: _bounded(w1, w2) and _least_risks(w1, w2)[0] <= 0.95 * _least_risks(w1, w2)[1]),
    ],
    hints=(
        "Columns at right angles are shrunk one by one. Dropout shrinks both effects by the same factor, ridge does not.",
        "Ridge shrinks the effect of the short column more. When is that right?",
        "Where the effect of the long column is large and that of the short one small, beside a noise of 1.",
    ),
    mistakes=[
        ("equal effects", {"w1": 0.1, "w2": 1.0},
         "Here both columns have the same effect on the targets, and the same shrinking suits both: dropout's case.",
         but(lambda w1, w2: _bounded(w1, w2) and abs(abs(10 * w1) - abs(w2)) <= 1e-6 * abs(w2) and w2 != 0)),
        ("the short column matters", {"w1": 0.0, "w2": 5.0},
         "Only the short column matters here, and ridge shrinks it more than the long one. Look for the opposite.",
         but(lambda w1, w2: _bounded(w1, w2) and abs(10 * w1) < abs(w2) - 1e-6 * abs(w2))),
        ("no effect", {"w1": 0.0, "w2": 0.0},
         "Without any effect the best penalty of both is as large as it can be, and both predict 0.",
         but(lambda w1, w2: w1 == 0 and w2 == 0)),
    ],
)


def _thinned(hidden, readout, target, keep):
    """The mean squared error over all masks of the hidden units, one by one, less the error without a mask."""
    total = 0.0
    for kept in product((0.0, 1.0), repeat=hidden.shape[1]):
        chance = keep ** sum(kept) * (1 - keep) ** (len(kept) - sum(kept))
        scores = (hidden * torch.tensor(kept, dtype=hidden.dtype) / keep) @ readout
        total = total + chance * (scores - target).square().sum(1).mean()
    return total - (hidden @ readout - target).square().sum(1).mean()


@lesson.exercise(
    "12.5", "What coins on hidden units charge", difficulty=2, minutes=8,
    prompt="A network reads hidden units $h$ of shape (images, units) by $V$ of shape (units, scores). Its loss is the "
    "squared error, added over the scores, its mean over the images. Each unit of each image is kept with the probability "
    "`keep`, then divided by `keep`. Write `penalty(hidden, readout, keep)`: by how much the mean loss over all masks is "
    "larger than the loss without a mask. No loop over masks.",
    draw=inputs(n=whole(2, 4), units=whole(2, 4), scores=whole(2, 3), hidden=uniform(0, 3, "n units"),
                readout=normal("units scores"), keep=one_of(0.3, 0.5, 0.8)),
    properties=[
        ("The mean over all masks, one by one, is larger by another amount.",
         lambda hidden, readout, keep, answer: close(
             answer, _thinned(hidden, readout, hidden @ readout + 1.0, keep), atol=1e-6)),
    ],
    hints=(
        "For one image and one score this is one row of least squares: the hidden units are its entries.",
        "The variance of a kept and divided unit h is h² (1 - keep)/keep.",
        "Add h_j² V_jk² over units and scores, and take the mean over the images.",
    ),
    mistakes=[
        ("not divided", edit("(1 - keep) / keep", "keep * (1 - keep)"),
         "You have keep (1 - keep), for units that are not divided by `keep`."),
        ("drop for keep", edit("(1 - keep) / keep", "keep / (1 - keep)"),
         "You exchanged the probabilities: `keep` is that of a unit that stays."),
        ("sum over images", edit(".mean(0)", ".sum(0)"),
         "You added over the images. The loss takes their mean."),
        ("mean over scores", edit("square().sum(1)", "square().mean(1)"),
         "You took the mean over the scores. The loss adds them."),
        ("weights only", edit("hidden.square().mean(0)", "torch.ones_like(hidden[0])"),
         "That is weight decay on V. A unit is charged by its own size as well."),
        ("square of the mean", edit("hidden.square().mean(0)", "hidden.mean(0).square()"),
         "You squared the mean of a unit over the images. Each image has a variance of its own."),
        ("not squared", edit("hidden.square().mean(0)", "hidden.mean(0)"),
         "You left out a square: the variance goes with h²."),
    ],
)
def penalty(hidden, readout, keep):
    """The variance that coins on the hidden units add to the scores."""
    charged = hidden.square().mean(0) * readout.square().sum(1)
    return (1 - keep) / keep * charged.sum()


EXERCISES = lesson.exercises
