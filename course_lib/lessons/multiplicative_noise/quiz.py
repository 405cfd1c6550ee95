"""The sentences of lesson 05, each with what decides on it."""

import torch
from torch import Tensor

from course_lib.lessons.multiplicative_noise.contents import lesson
from course_lib.optimization.multiplicative_noise import tail_exponent
from course_lib.optimization.ridge import noisy_sgd, second_moment_factor, second_moment_limit, stationary_moments
from course_lib.teaching import fact


def _noise(steps: int, runs: int) -> Tensor:
    return torch.randn(steps, runs, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@lesson.sentence(
    "05.Q1",
    "With y = 0, each step below 1/(x² + σ²) lets the mean of w and the mean of w² shrink.",
    answer="only if x² is at least (1 + √2) σ²",
    conditions=("only if x² is at least (1 + √2) σ²", "only if σ is below 1"),
)
def tempting_limit():
    """The mean shrinks. The mean square is safe only where 1/(x² + σ²) does not exceed (05.4). The noise alone does not
    decide: its size beside the input does."""
    return "\n".join(
        [
            fact("x = σ = 1, step 0.45 of at most 0.5: the mean square is multiplied by {:.3f}",
                 second_moment_factor(1.0, noise=1.0, step_size=0.45), at_least=1.1),
            fact("x = σ = 0.5, step 1.8 of at most 2: by {:.3f}",
                 second_moment_factor(0.5, noise=0.5, step_size=1.8), at_least=1.1),
            fact("x² = 2.5, σ = 1: the limit (05.4) over 1/(x² + σ²) is {:.3f}",
                 second_moment_limit(2.5**0.5, noise=1.0) * 3.5, at_least=1),
        ]
    )  # fmt: skip


@lesson.sentence(
    "05.Q2",
    "With y = 2 and a short step, the mean of the weights ends at y/x, where the error without noise is 0.",
    answer="only if σ = 0",
    conditions=("only if σ = 0", "only if y = x"),
)
def where_the_mean_ends():
    """It ends at the ridge solution (05.3), however short the step is."""
    return "\n".join(
        [
            fact("x = σ = 1, y = 2, step 0.001: the mean ends at {:.2f}",
                 stationary_moments(1.0, 2.0, noise=1.0, step_size=0.001)[0], equals=1, within=1e-9),
            fact("x = y = σ = 1: at {:.2f}, not at 1",
                 stationary_moments(1.0, 1.0, noise=1.0, step_size=0.001)[0], equals=0.5, within=1e-9),
        ]
    )  # fmt: skip


@lesson.sentence(
    "05.Q3",
    "If noisy single runs shrink to 0 with y = 0, then they come to rest with y = 2 and the same step.",
    answer=False,
)
def no_rest():
    """With y = 0 there is nothing left to multiply. With y = 2 each step adds fresh noise, and single runs keep moving."""
    noise = _noise(400, 2000)
    median = {y: noisy_sgd(1.0, y, 3.0, noise, step_size=0.45)[-1].sub(y / 2).abs().median() for y in (0.0, 2.0)}
    return "\n".join(
        [
            fact("y = 0, step 0.45: after 400 steps the median distance of 2,000 runs from 0 is {:.0e}", median[0.0],
                 at_most=1e-20),
            fact("y = 2: that from 1 is {:.1f}", median[2.0], at_least=0.3),
        ]
    )  # fmt: skip


@lesson.sentence(
    "05.Q4",
    "With y = 2 and σ = 1, halve a step below the limit (05.4): the variance (05.5) of the weights falls to less than half.",
    answer=True,
)
def floor():
    """(05.5) is η times a constant over 2P - ηQ, and with a shorter step this denominator is larger. Near the limit the
    gain is large."""
    variance = {eta: stationary_moments(1.0, 2.0, noise=1.0, step_size=eta)[1] for eta in (0.05, 0.1, 0.19, 0.38)}
    return "\n".join(
        [
            fact(
                "from 0.1 to 0.05 the variance is multiplied by {:.3f}", variance[0.05] / variance[0.1], at_most=0.499
            ),
            fact("from 0.38 to 0.19 by {:.3f}", variance[0.19] / variance[0.38], at_most=0.1),
        ]
    )


@lesson.sentence(
    "05.Q5",
    "If the variance of the weights has a limit, the mean of (w - w*)² over n weights drawn from their distribution in the "
    "long run has an error that falls like 1/√n.",
    answer="only if α is above 4",
    conditions=("only if α is above 4", "only if y = 0"),
)
def fourth_moment():
    """The error of a mean falls like 1/√n if what is averaged has a finite variance. For a square that is the fourth
    moment, and by (05.6) it is finite only if α is above 4."""
    return "\n".join(
        [
            fact("x = σ = 1, step 0.2: α is {:.1f}", tail_exponent(1.0, noise=1.0, step_size=0.2), at_least=4),
            fact("step 0.3, below the limit 0.4: α is {:.1f}", tail_exponent(1.0, noise=1.0, step_size=0.3), at_most=4),
        ]
    )


@lesson.sentence("05.Q6", "Clipping shortens the jumps and leaves the mean of the weights where it was.", answer=False)
def clipping_moves_the_mean():
    """The long gradients are not symmetric: those of large noisy inputs pull towards 0. Cut them, and the mean moves
    away from 0."""
    noise, mean = _noise(600, 4000), {}
    for threshold in (2.0, float("inf")):
        w, late = torch.ones(4000, dtype=torch.float64), 0.0
        for step, drawn in enumerate(noise):
            seen = 1 + drawn
            w = w - 0.2 * ((seen * w - 2) * seen).clamp(-threshold, threshold)
            late += float(w.mean()) / 400 if step >= 200 else 0.0
        mean[threshold] = late
    return "\n".join(
        [
            fact("step 0.2, not clipped: the mean of 4,000 runs is {:.2f}", mean[float("inf")], equals=1, within=0.02),
            fact("clipped at 2: it is {:.2f}", mean[2.0], at_least=1.05),
        ]
    )
