"""Exercises of lesson 09, batch_norm_and_dropout."""

import torch

from course_lib.architectures.normalisation import expected_dropout_loss
from course_lib.lessons.batch_norm_and_dropout.contents import lesson
from course_lib.teaching import but, close, edit, inputs, near, normal, one_of, uniform, whole


def _gradient_by_autograd(g1, g2):
    """What reaches x1 and x2 when the loss is 5 y1, by autograd."""
    x = torch.tensor([0.3, -1.0, 2.0, 0.4, 1.1], dtype=torch.float64, requires_grad=True)
    (right,) = torch.autograd.grad(5 * (2 * (x - x.mean()))[0], x)
    return close(torch.tensor([float(g1), float(g2)], dtype=torch.float64), right[:2])


lesson.value(
    "09.1", "One example pulls, four are pushed", difficulty=1, minutes=4,
    prompt="Five examples pass $y_i = 2(x_i - \\bar x)$. The loss depends on $y_1$ alone: $g = (5, 0, 0, 0, 0)$. Which "
    "gradient reaches $x_1$, and which one $x_2$? Give a dictionary with the numbers `first` and `second`.",
    answer={"first": 8.0, "second": -2.0},
    properties=[
        ("The five gradients should add up to 0: a number added to all five examples changes no output.",
         lambda first, second: abs(first + 4 * second) < 1e-6),
        ("The rate at which 5 y₁ grows with x₁ alone, or with x₂ alone, is not yours.",
         lambda first, second: _gradient_by_autograd(first, second)),
    ],
    hints=(
        "How does y₁ change when x₂ grows? x₂ is a part of the mean.",
        "Equation (09.3): subtract the mean of g from each entry, then multiply.",
        "The mean of g is 1. It is subtracted from 5 at the first example, and from 0 at the second.",
    ),
    mistakes=[
        ("mean is a constant", {"first": 10.0, "second": 0.0},
         "You held the mean constant. It moves with every input: x₂ changes y₁ through it."),
        ("no weight", {"first": 4.0, "second": -1.0},
         "The mean is removed rightly; the factor 2 of the layer multiplies what is left."),
        ("the others only", {"first": 10.0, "second": -2.0},
         "x₁ is a part of the mean too: its own gradient loses a fifth."),
        ("sum for mean", {"first": 0.0, "second": -10.0},
         "You subtracted the sum of g. The mean of the batch divides it by 5."),
        ("n - 1", {"first": 7.5, "second": -2.5},
         "You divided by n - 1 = 4. The mean of five values divides by 5."),
        ("sign", {"first": 8.0, "second": 2.0},
         "When x₂ grows, the mean grows and y₁ falls: the gradient at x₂ is negative."),
        ("exchanged", {"first": -2.0, "second": 8.0},
         "Your two numbers are exchanged: the loss depends on y₁, and x₁ moves it most."),
    ],
)


def _through_autograd(x, g, gamma):
    x = x.clone().requires_grad_()
    y = gamma * (x - x.mean()) / (x - x.mean()).square().mean().sqrt()
    return torch.autograd.grad(y @ g, x)[0]


@lesson.exercise(
    "09.2", "The gradient of batch norm", difficulty=2, minutes=10,
    prompt="Write `backward(x, g, gamma)`: `x` holds the $n$ values of one channel, `g` the gradient at the outputs of "
    "$y_i = \\gamma\\hat x_i + \\beta$ with $\\hat x_i = (x_i - \\bar x)/s$, where $s^2$ is the mean of $(x_i - \\bar x)^2$ "
    "(no eps). Return the gradient at `x`, shape `(n,)`, without autograd.",
    draw=inputs(n=whole(3, 6), x=uniform(-3, 3, "n"), g=normal("n"), gamma=uniform(0.5, 3)),
    properties=[
        ("The gradient should add up to 0: a number added to all x changes no output.",
         lambda answer: abs(float(answer.sum())) < 1e-6),
        ("The gradient should be orthogonal to x - x̄: spreading x about its mean changes no output.",
         lambda x, answer: abs(float((x - x.mean()) @ answer)) < 1e-6),
        ("Entry i should be the rate at which the sum of g · y grows with x_i alone, through the mean and s as well.",
         lambda x, g, gamma, answer: close(answer, _through_autograd(x, g, gamma), atol=1e-7)),
    ],
    forbids=("autograd",),
    hints=(
        "A change of x moves each output three times: directly, through the mean, and through s.",
        "What arrives at x has the sum 0 and the product 0 with x̂: two parts of g must go.",
        "The part of g along x̂ is x̂ times the mean of the products of g and x̂.",
    ),
    mistakes=[
        ("constants", edit("(g - g.mean() - normal * (g * normal).mean())", "g"),
         "You treated mean and s as constants. That is what evaluation does; in training both depend on x."),
        ("mean only", edit(" - normal * (g * normal).mean()", ""),
         "You removed the mean of g, which is all in the mean-only layer. s depends on x too: the part along x̂ must go."),
        ("mean forgotten", edit(" - g.mean()", ""),
         "You removed the part along x̂ and forgot the mean of g."),
        ("sum along", edit("(g * normal).mean()", "(g * normal).sum()"),
         "You multiplied x̂ by the sum of g x̂. x̂ has the squared length n, so that the projection takes the mean."),
        ("no 1/s", edit("gamma / s * ", "gamma * "),
         "What is left is right up to a factor: the layer divides by s, and so does its gradient."),
        ("divided by the variance", edit("gamma / s * ", "gamma / s**2 * "),
         "You divided by s². The layer divides by s, and so does its gradient."),
        ("unbiased", edit("square().mean().sqrt()", "square().sum().div(len(x) - 1).sqrt()"),
         "You used n - 1 in s. Training divides by n; n - 1 is for the running statistics only."),
        ("no weight", edit("gamma / s", "1 / s"),
         "You left out gamma."),
    ],
)
def backward(x, g, gamma):
    """Remove the mean and the part along x-hat."""
    s = (x - x.mean()).square().mean().sqrt()
    normal = (x - x.mean()) / s
    return gamma / s * (g - g.mean() - normal * (g * normal).mean())


X = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)


def _passes(g1, g2, g3):
    """How much of g reaches x = (-1, 0, 1), by autograd, per unit of g."""
    g = torch.tensor([float(v) for v in (g1, g2, g3)], dtype=torch.float64)
    size = float(g.abs().max())
    return float(_through_autograd(X, g / size, 1.0).abs().max()) if 0 < size < 1e100 else 0.0


def _largest(g1, g2, g3):
    return max(abs(g1), abs(g2), abs(g3))


lesson.flaw(
    "09.3", "Only equal gradients vanish?", difficulty=2, minutes=6,
    prompt="\"In training, full batch norm blocks a gradient only when it is the same for all examples.\" Give a "
    "counterexample for the inputs $x = (-1, 0, 1)$: a gradient $g$ at the outputs, not all of it equal, of which nothing "
    "reaches $x$. A dictionary with the numbers `g1`, `g2`, `g3`.",
    answer={"g1": -1.0, "g2": 0.0, "g3": 1.0},
    needs=[
        ("Take numbers below 1e100 in size.", lambda g1, g2, g3: _largest(g1, g2, g3) < 1e100),
        ("A gradient of zeros is blocked by every layer; and its entries are equal.",
         lambda g1, g2, g3: _largest(g1, g2, g3) > 0),
        ("That is blocked, but it is the case that the sentence names: its entries are equal.",
         lambda g1, g2, g3: max(g1, g2, g3) - min(g1, g2, g3) > 1e-6 * _largest(g1, g2, g3)),
    ],
    properties=[("Something of your g reaches x.", lambda g1, g2, g3: _passes(g1, g2, g3) < 1e-9)],
    hints=(
        "Equation (09.6) removes two directions. The vector of ones is one of them.",
        "The other direction is made of the inputs: what is x̂ here?",
        "Rescaling x does not change y. So a gradient along x̂ has nothing to change.",
    ),
    mistakes=[
        ("across both", {"g1": 1.0, "g2": -2.0, "g3": 1.0},
         "That is at right angles to the ones and to x̂: it passes whole. Look for the opposite.",
         but(lambda g1, g2, g3: max(abs(g1 + g2 + g3), abs(g3 - g1)) <= 1e-6 * _largest(g1, g2, g3))),
        ("a single example", {"g1": 0.0, "g2": 0.0, "g3": 1.0},
         "A gradient at one example is partly blocked: it has a mean, a part along x̂, and a rest, which passes.",
         but(lambda g1, g2, g3: [g1, g2, g3].count(0) == 2)),
    ],
)


@lesson.exercise(
    "09.4", "What evaluation divides by", difficulty=2, minutes=8,
    prompt="Write `running_variance(batches, momentum)`: `batches` has shape `(steps, n, channels)`. Start from ones; let "
    "each batch in turn move the running variance as PyTorch's layer does, with `momentum` the share of the new batch. "
    "Return it, shape `(channels,)`.",
    draw=inputs(steps=whole(2, 4), n=whole(2, 4), c=whole(1, 2), batches=uniform(-3, 3, "steps n c"),
                momentum=one_of(0.1, 0.2, 0.3)),
    properties=[
        ("torch.nn.BatchNorm1d stores another variance.",
         lambda batches, momentum, answer: close(answer, _stored(batches, momentum))),
    ],
    hints=(
        "Each channel has a variance of its own, over the n examples of a batch.",
        "What is stored stands for data not seen yet, and PyTorch takes the unbiased estimate for it.",
        "The new value is (1 - momentum) times the old one plus momentum times the variance of the batch.",
    ),
    mistakes=[
        ("biased", edit("batch.var(0)", "batch.var(0, correction=0)"),
         "You stored the variance that normalises, over n. PyTorch stores the one over n - 1."),
        ("momentum the other way", edit("(1 - momentum) * running + momentum", "momentum * running + (1 - momentum)"),
         "You kept the share momentum of the old value, as optimisers do. Here it is the share of the new batch."),
        ("deviation", edit("batch.var(0)", "batch.std(0)"),
         "You averaged standard deviations. The variance is stored; the root is taken when it is used."),
        ("from zero", edit("torch.ones_like", "torch.zeros_like"),
         "You started from zeros. The running variance starts at 1, and a trace of it stays."),
        ("last batch", edit("(1 - momentum) * running + momentum * ", ""),
         "You kept the last batch only."),
        ("one variance", edit("batch.var(0)", "batch.var().expand(batch.shape[1])"),
         "You took one variance over examples and channels. Each channel has its own."),
        ("mean over the batches", edit("torch.ones_like", "torch.zeros_like",
                                       "(1 - momentum) * running + momentum * batch.var(0)",
                                       "running + batch.var(0) / len(batches)"),
         "You averaged the batches evenly, as PyTorch does for momentum=None. Here each batch moves what is stored by the "
         "share momentum."),
    ],
)
def running_variance(batches, momentum):
    """Follow the layer from batch to batch."""
    running = torch.ones_like(batches[0, 0])
    for batch in batches:
        running = (1 - momentum) * running + momentum * batch.var(0)
    return running


def _stored(batches, momentum):
    layer = torch.nn.BatchNorm1d(batches.shape[2], momentum=momentum, dtype=torch.float64)
    for batch in batches:
        layer(batch)
    return layer.running_var


lesson.value(
    "09.5", "Which p?", difficulty=2, minutes=4,
    prompt="Least squares is trained through `torch.nn.Dropout(p=0.8)`. In the mean this is ridge regression "
    "$\\lVert t - Xw\\rVert^2 + \\lambda\\sum_j\\lVert X_j\\rVert^2 w_j^2$. What is $\\lambda$?",
    answer=4.0,
    properties=[
        ("The expected loss of torch's layer has another penalty: compare the loss for w with the fit alone.",
         lambda answer: close(
             float(expected_dropout_loss(torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64),
                                         torch.full((1,), 1 / (1 - 0.8), dtype=torch.float64), keep=1 - 0.8)) - 1,
             answer)),
    ],
    hints=(
        "What does PyTorch's p stand for: an entry that stays, or one that goes?",
        "The formula of (09.14) has the keep probability; here it is 1 - 0.8.",
        "A masked entry, divided by the keep probability q, has the mean x and the variance x²(1 - q)/q.",
    ),
    mistakes=[
        ("keep for drop", 0.25, "That is right for a keep probability of 0.8. PyTorch's p is the probability to drop.",
         near(0.25, within=1e-6)),
        ("not rescaled", 0.16, "That is p(1 - p), for weights that meet unscaled masked inputs. PyTorch divides by the "
         "keep probability, and w is meant for inputs without a mask.", near(0.16, within=1e-6)),
        ("the root", 2.0, "That is the factor of Γ. The penalty is the square ‖Γw‖², so λ is its square.",
         near(2.0, within=1e-6)),
        ("over keep squared", 20.0, "You divided the variance factor (1 - q) by q²; q(1 - q)/q² is (1 - q)/q.",
         near(20.0, within=1e-4)),
        ("p itself", 0.8, "That is p. The penalty is the variance of a masked and rescaled entry, over x².",
         near(0.8, within=1e-6)),
        ("second moment", 5.0, "That is 1/(1 - p), the mean square of a rescaled mask. Its variance is smaller by 1, the "
         "square of its mean.", near(5.0, within=1e-6)),
    ],
)


def _slope(matrix, target, keep, answer):
    """Gradient of the expected loss at the answer, for every mask at once: 2 (E[M^T M] w - E[M^T] t)."""
    gram = keep**2 * matrix.T @ matrix
    gram = gram + torch.diag(keep * matrix.square().sum(0) - gram.diagonal())
    return gram @ answer - keep * matrix.T @ target


@lesson.exercise(
    "09.6", "Where dropout ends", difficulty=3, minutes=12,
    prompt="Write `trained_weights(matrix, target, keep)`: the weights $\\tilde w$ with the smallest expected loss "
    "$\\mathbb E\\lVert t - (R \\odot X)\\tilde w\\rVert^2$, every entry of $R$ independently 1 with probability `keep` and "
    "0 otherwise, no rescaling of the inputs. `matrix` is $X$ $(n, d)$, `target` is $t$ $(n,)$; return $(d,)$.",
    draw=inputs(n=whole(3, 5), d=whole(2, 3), matrix=uniform(0.5, 3, "n d"), target=normal("n"),
                keep=one_of(0.3, 0.6, 0.8)),
    properties=[
        ("At your weights the expected loss still has a slope.",
         lambda matrix, target, keep, answer: bool(
             _slope(matrix, target, keep, answer).abs().max() <= 1e-6 * (1 + target.abs().max()))),
    ],
    same=lambda a, b: close(a, b, atol=1e-6),
    hints=(
        "Write the expected loss as a fit plus a penalty, (09.13), and set its gradient to zero.",
        "(09.14) is ridge regression in w = p w̃; its penalty has a factor for each column.",
        "Solve (XᵀX + (1 - p)/p diag(‖X_j‖²)) w = Xᵀt, and go back from w to w̃.",
    ),
    mistakes=[
        ("not rescaled", edit("matrix.T @ target) / keep", "matrix.T @ target)"),
         "That is w, for inputs without a mask. The weights that meet masked inputs are w̃ = w/p."),
        ("drop for keep", edit("(1 - keep) / keep * ", "keep / (1 - keep) * "),
         "You put in p/(1 - p): `keep` is the probability that an entry stays."),
        ("plain ridge", edit("torch.diag(lengths)", "torch.eye(len(lengths), dtype=matrix.dtype)"),
         "Your penalty is the same for all weights. Each has the squared length of its column as a factor."),
        ("lengths for squares", edit("square().sum(0)", "square().sum(0).sqrt()"),
         "Your penalty has the lengths of the columns. The variance of a masked entry has its square."),
        ("no penalty", edit(" + (1 - keep) / keep * torch.diag(lengths)", ""),
         "You solved for the mean of the inputs. The variance of the masks adds a penalty."),
        ("mean for sum", edit("square().sum(0)", "square().mean(0)"),
         "Your penalty has the mean square of a column. The loss adds over the rows, and so does the variance."),
        ("dropout not seen", edit(" + (1 - keep) / keep * torch.diag(lengths)", "", " / keep", ""),
         "That is least squares without dropout: no penalty, and weights for inputs without a mask."),
    ],
)
def trained_weights(matrix, target, keep):
    """Solve the ridge problem and undo the rescaling."""
    lengths = matrix.square().sum(0)
    gram = matrix.T @ matrix + (1 - keep) / keep * torch.diag(lengths)
    return torch.linalg.solve(gram, matrix.T @ target) / keep


EXERCISES = lesson.exercises
