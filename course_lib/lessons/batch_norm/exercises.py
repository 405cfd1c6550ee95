"""Exercises of lesson 11, batch_norm."""

import math

import torch

from course_lib.lessons.batch_norm.contents import lesson
from course_lib.teaching import but, close, edit, inputs, normal, one_of, uniform, whole


def _gradient_by_autograd(g1, g2):
    """What reaches x1 and x2 when the loss is 5 y1, by autograd."""
    if not max(abs(g1), abs(g2)) < 1e6:
        return False
    x = torch.tensor([0.3, -1.0, 2.0, 0.4, 1.1], dtype=torch.float64, requires_grad=True)
    (right,) = torch.autograd.grad(5 * (2 * (x - x.mean()))[0], x)
    return close(torch.tensor([float(g1), float(g2)], dtype=torch.float64), right[:2])


lesson.value(
    "11.1", "One example pulls, four are pushed", difficulty=1, minutes=4,
    prompt="Five examples pass $y_i = 2(x_i - \\bar x)$, an example of (11.1). The loss "
    "depends on $y_1$ alone: $g = (5, 0, 0, 0, 0)$. Which "
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
        "Subtract the mean of g from each entry, then multiply by the weight.",
        "The mean of g is 1. It is subtracted from 5 at the first example, and from 0 at the second.",
    ),
    mistakes=[
        ("mean is a constant", {"first": 10.0, "second": 0.0},
         "You held the mean constant. It moves with every input: x₂ changes y₁ through it."),
        ("no weight", {"first": 4.0, "second": -1.0},
         "The mean is removed correctly; the factor 2 of the layer multiplies what is left."),
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


X = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)


def _passes(g1, g2, g3):
    """How much of g reaches x = (-1, 0, 1), by autograd, per unit of g."""
    g = torch.tensor([float(v) for v in (g1, g2, g3)], dtype=torch.float64)
    size = float(g.abs().max())
    return float(_through_autograd(X, g / size, 1.0).abs().max()) if 0 < size < 1e100 else 0.0


def _largest(g1, g2, g3):
    return max(abs(g1), abs(g2), abs(g3))


lesson.flaw(
    "11.2", "Only equal gradients vanish?", difficulty=2, minutes=6,
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
        "The layer does not notice two kinds of change. A shift of all inputs is one of them.",
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
    "11.3", "The gradient of batch norm", difficulty=2, minutes=10,
    prompt="Write `backward(x, g, gamma)`: `x` holds the $n$ values of one channel, `g` the gradient at the outputs "
    "of (11.4), $y_i = \\gamma\\hat x_i + \\beta$ with $\\hat x_i = (x_i - \\bar x)/s$, "
    "where $s^2$ is the mean of $(x_i - \\bar x)^2$ "
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


@lesson.exercise(
    "11.4", "The step that keeps the length", difficulty=2, minutes=6,
    prompt="A step with weight decay first shrinks $w$ to $(1 - \\eta\\lambda)w$, then adds $-\\eta\\nabla L$, which is "
    "perpendicular to $w$, as in (11.9). After many steps the length of $w$ no longer changes. Write "
    "`settled_angle(step_size, decay)`: the angle between $w$ before and after such a step, in radians, exactly; "
    "$0 < \\eta\\lambda < 1$.",
    draw=inputs(step_size=uniform(0.2, 1.5), decay=uniform(0.1, 0.6)),
    properties=[
        ("With your angle the new w is longer or shorter than the old one.",
         lambda step_size, decay, answer: bool(abs(math.cos(float(answer)) - (1 - step_size * decay)) < 1e-7)
         and bool(0 < float(answer) < math.pi / 2)),
    ],
    hints=(
        "Draw it: the old w, the shorter w, and the step perpendicular to that.",
        "The shortened w and the step are the legs of a right triangle. How long is its third side?",
        "The third side is as long as the old w. The cosine of the angle is leg over third side.",
    ),
    mistakes=[
        ("for small steps", edit("math.acos(1 - step_size * decay)", "math.sqrt(2 * step_size * decay)"),
         "That is what the angle tends to when ηλ is small, and the formula that follows. Here it is asked exactly."),
        ("the share itself", edit("math.acos(1 - step_size * decay)", "step_size * decay"),
         "ηλ is the share by which w shrinks, along w. The step that makes up for it is perpendicular to w, so that a "
         "small share needs a much larger turn."),
        ("sine", edit("math.acos(1 - step_size * decay)", "math.asin(1 - step_size * decay)"),
         "The shortened w lies next to the angle, and the step opposite: (1 - ηλ) is its cosine."),
        ("tangent", edit("math.acos(1 - step_size * decay)", "math.atan(step_size * decay)"),
         "You took ηλ|w| for the length of the step. That is what decay takes away; the step that restores the length is "
         "longer."),
        ("degrees", edit("math.acos(1 - step_size * decay)", "math.degrees(math.acos(1 - step_size * decay))"),
         "That is the angle in degrees."),
        ("the cosine", edit("math.acos(1 - step_size * decay)", "1 - step_size * decay"),
         "That is the cosine of the angle."),
    ],
)
def settled_angle(step_size, decay):
    """Old and new w have one length, so the cosine is what decay leaves."""
    return math.acos(1 - step_size * decay)


@lesson.exercise(
    "11.5", "What evaluation divides by", difficulty=2, minutes=8,
    prompt="Write `running_variance(batches, momentum)`: `batches` has shape `(steps, n, channels)`. Start from ones; let "
    "each batch in turn move the running variance as PyTorch's layer does, (11.13), with `momentum` the share of the new "
    "batch. Return it, shape `(channels,)`.",
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


EXERCISES = lesson.exercises
