"""The sentences of lesson 02, each with what decides on it."""

import math

import torch

from course_lib.lessons.momentum.contents import lesson
from course_lib.lessons.momentum.pictures import EXACT, F64, canyon_run, stream
from course_lib.optimization.gradient_descent import best_heavy_ball, heavy_ball_rate
from course_lib.teaching import fact

SLOPES = torch.tensor([1.0, 0.1], **F64)  # square roots of curvatures 1 and 0.01


def best_rate(momentum: float, slopes: torch.Tensor = SLOPES) -> float:
    """Return the lowest rate of a momentum over 4,000 step sizes."""
    border = 2 * (1 + momentum) / float(slopes.max()) ** 2
    sizes = torch.linspace(0, border, 4001, dtype=torch.float64)[1:-1].tolist()
    return min(heavy_ball_rate(slopes, step_size=size, momentum=momentum, half=True) for size in sizes)


def scatter(momentum: float, effective: float = 0.1, steps: int = 4000) -> float:
    """Return the variance of one weight, of curvature 1, whose gradients have noise of variance 1, after many steps."""
    size = effective * (1 - momentum)
    # (error, velocity) after a step is linear in both and in the noise.
    step = torch.tensor([[1 - size, -size * momentum], [1.0, momentum]], **F64)
    noise = torch.tensor([-size, 1.0], **F64)
    covariance = torch.zeros(2, 2, **F64)
    for _ in range(steps):
        covariance = step @ covariance @ step.T + torch.outer(noise, noise)
    return float(covariance[0, 0])


@lesson.sentence(
    "02.Q1", "In the canyon, momentum 0.95 with its best step size is faster than 0.67 with its own.", answer=False
)
def more_is_slower():
    """No step size brings a rate below the root of the momentum: the two roots have that product."""
    return "\n".join(
        [
            fact("best rate with momentum 0.67: {:.3f}", best_rate(0.67), equals=0.8185, within=2e-3),
            fact("with 0.95: {:.3f}", best_rate(0.95), equals=0.9747, within=2e-3),
        ]
    )


@lesson.sentence(
    "02.Q2",
    "On least squares no other momentum guarantees a faster rate than 0.9, each with its best step size.",
    answer="only if κ is near 1,440",
    conditions=("only if κ is near 1,440", "only if κ is above 100"),
)
def when_nine_tenths():
    """(02.7) gives one momentum for each condition number. For κ = 100 it is 0.67, for 10,000 it is 0.96."""
    found = {k: best_heavy_ball(torch.tensor([1.0, k**-0.5], **F64), half=True)[1] for k in (100, 1440, 10_000)}
    return "\n".join(
        fact(f"condition number {k:,}: best momentum {{:.3f}}", found[k], equals=value, within=1e-3)
        for k, value in ((100, 0.669), (1440, 0.9), (10_000, 0.961))
    )


@lesson.sentence(
    "02.Q3",
    "A velocity averages noise: at the same effective step size a noisy run scatters less than half as much with momentum "
    "0.9 as without.",
    answer="only near the border without momentum",
    conditions=("only near the border without momentum", "only far below the border without momentum"),
)
def not_averaged():
    """One weight, curvature 1. Each gradient moves the weights as far in the end, only later. Near its border of 2, descent
    itself swings."""
    return "\n".join(
        [
            fact("effective step 0.1, variance without momentum: {:.4f}", scatter(0.0), equals=0.0526, within=1e-4),
            fact("with 0.9: {:.4f}", scatter(0.9), equals=0.0501, within=1e-4),
            fact(
                "effective step 1.5, with 0.9 over without: {:.2f}", scatter(0.9, 1.5) / scatter(0.0, 1.5), at_most=0.5
            ),
        ]
    )


@lesson.sentence(
    "02.Q4",
    "On the exact stream momentum 0.8 leaves less than half of the excess of no momentum at the latter's best effective "
    "step size, too.",
    answer=False,
)
def two_limits():
    """At the best effective step size of no momentum the two hardly differ. The gain is in the longer ones."""
    excess = {momentum: found.mean(1) for momentum, found in stream(*EXACT).items()}
    same = int(excess[0.0].argmin())
    return "\n".join(
        [
            fact(
                "at the best effective step of no momentum, 0.8 over none: {:.2f}",
                excess[0.8][same] / excess[0.0][same],
                at_least=0.5,
            ),
            fact("each at its own: {}", excess[0.8].min() / excess[0.0].min(), at_most=1e-3),
        ]
    )


@lesson.sentence("02.Q5", "Below the border of (02.3) no step raises the loss of the canyon.", answer=False)
def it_may_rise():
    """A velocity that leads up the other side of the canyon raises the loss. Without momentum no step does."""
    curvatures = torch.tensor([1.0, 0.01], **F64)
    rises = {}
    for momentum in (0.0, 0.9):
        path = canyon_run(1.0, momentum, 300)
        losses = (0.5 * curvatures * path.square()).sum(1)
        rises[momentum] = int((losses[1:] > losses[:-1] * (1 + 1e-9)).sum())
    return "\n".join(
        [
            fact("step size 1, no momentum: {} of 300 steps raise the loss", rises[0.0], equals=0, within=0),
            fact("momentum 0.9: {} steps", rises[0.9], at_least=20),
        ]
    )


@lesson.sentence("02.Q6", "There are runs whose rate stays the same when the step size is halved.", answer=True)
def flat_part():
    """Where all directions lie in the range of (02.6) before and after, the rate is the root of the momentum."""
    rates = [heavy_ball_rate(SLOPES, step_size=size, momentum=0.9, half=True) for size in (3.0, 1.5)]
    return "\n".join(
        fact(f"canyon, momentum 0.9, step size {size}: rate {{:.4f}}", found, equals=math.sqrt(0.9), within=1e-6)
        for size, found in zip((3.0, 1.5), rates, strict=True)
    )
