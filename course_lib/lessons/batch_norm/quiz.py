"""The quiz of lesson 11, batch norm."""

import torch

from course_lib.architectures.normalisation import BatchNorm, mean_only_batch_norm, naive_batch_norm
from course_lib.lessons.batch_norm.contents import lesson
from course_lib.lessons.batch_norm.experiment import small_network, train_small
from course_lib.teaching import fact


@lesson.sentence(
    "11.Q1", "Scale the weights in front of batch norm (ε = 0) by a number c ≠ 0: the outputs stay as they were.",
    answer="only if c > 0",
    conditions=("only if c > 0", "only if γ = 1"),
)  # fmt: skip
def any_factor():
    """A positive factor cancels against the standard deviation, for any γ. A negative one leaves its sign: x̂ is mirrored."""
    x, _, weights, _ = small_network()
    gamma = torch.full((16,), 3.0, dtype=torch.float64)
    out = lambda c: naive_batch_norm(c * x @ weights, gamma, eps=0.0)  # noqa: E731
    return "\n".join(
        (
            fact("c = 10: the outputs move by {:.0e}", (out(10.0) - out(1.0)).abs().max(), at_most=1e-9),
            fact("c = -1: by {:.2f}", (out(-1.0) - out(1.0)).abs().max(), at_least=1),
        )
    )


@lesson.sentence(
    "11.Q2", "In evaluation, too, a gradient that is equal for all examples does not reach the inputs.", answer=False
)
def evaluation_passes():
    """In training the gradient loses its mean, (11.2) and (11.3). In evaluation mean and variance are stored constants: no
    input moves them, so nothing is removed."""
    found = []
    for training in (True, False):
        layer = BatchNorm(1, affine=False, eps=0.0, dtype=torch.float64).train(training)
        x = torch.tensor([[10.0], [11.0], [12.0]], dtype=torch.float64, requires_grad=True)
        found.append(torch.autograd.grad(layer(x).sum(), x)[0].abs().max())
    return "\n".join(
        (
            fact("training: {:.0e} of a gradient of ones arrives", found[0], at_most=1e-12),
            fact("evaluation, stored variance 1: {:.0f}", found[1], equals=1, within=1e-12),
        )
    )


@lesson.sentence(
    "11.Q3", "The variance by which training divides is the one that is stored for evaluation.", answer=False
)
def two_variances():
    """Training divides by the variance over n. What is stored is that over n - 1, an unbiased guess of what is to come.
    Below, one batch, with the momentum 1, so that nothing older is mixed in."""
    layer = BatchNorm(1, affine=False, eps=0.0, momentum=1.0, dtype=torch.float64)
    column = torch.tensor([[10.0], [11.0], [12.0]], dtype=torch.float64)
    trained = layer(column)
    return "\n".join(
        (
            fact("(10, 11, 12) in training: the last becomes {:.4f}", trained[2, 0], equals=1.5**0.5, within=1e-9),
            fact("in evaluation, after this one batch: {:.4f}", layer.eval()(column)[2, 0], equals=1, within=1e-12),
        )
    )


@lesson.sentence(
    "11.Q4", "A decay of 0.1 instead of 0.01, with a tenth of the step size, makes the fit much worse.",
    answer="only if no batch norm follows",
    conditions=("only if no batch norm follows", "only if the start is large"),
)  # fmt: skip
def decay_is_no_ridge():
    """Without batch norm ten times the decay is ten times the ridge penalty. In front of batch norm only the product of
    both counts in the end, and that is the same. Loss after 4,000 steps of the small network, from the weights as drawn."""
    ratio = [
        train_small(0.03, decay=0.1, steps=4000, normalise=normalise).losses[-1]
        / train_small(0.3, decay=0.01, steps=4000, normalise=normalise).losses[-1]
        for normalise in (True, False)
    ]
    return "\n".join(
        (
            fact("with batch norm: {:.2f} times the loss", ratio[0], equals=1, within=0.1),
            fact("without: {:.1f} times", ratio[1], at_least=1.5),
        )
    )


@lesson.sentence("11.Q5", "Where both learn, a network ends lower with batch norm than without.", answer=False)
def it_may_cost():
    """A unit without it may also use the size of its weights. Here both run at one step size, 0.3, for 1,500 steps,
    without γ and β."""
    normed, plain = (train_small(0.3, normalise=normalise).losses[-1] for normalise in (True, False))
    return "\n".join(
        (
            fact("small network with batch norm: a loss of {:.2f}", normed, at_least=0.4),
            fact("without: {:.2f} of that", plain / normed, at_most=0.5),
        )
    )


@lesson.sentence(
    "11.Q6",
    "In a convolutional network the mean is taken over the batch, one for each channel and pixel.",
    answer=False,
)
def one_for_each_channel():
    """A channel's mean runs over batch, height and width, so n = B · H · W. A number added to a single pixel in all images
    would vanish if each pixel had a mean of its own; it does not."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64)
    out = mean_only_batch_norm(images)
    lifted = images.clone()
    lifted[:, :, 0, 0] += 1
    return "\n".join(
        (
            fact("means over batch, height and width: {:.0e}", out.mean((0, 2, 3)).abs().max(), at_most=1e-12),
            fact("1 added to one pixel of all images: the outputs move by {:.2f}",
                 (mean_only_batch_norm(lifted) - out).abs().max(), equals=0.95, within=1e-9),
        )
    )  # fmt: skip
