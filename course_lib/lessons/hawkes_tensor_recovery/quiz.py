"""Sentences of lesson 31, Hawkes processes by tensor recovery, each with what decides on it."""

import torch

from course_lib.lessons.hawkes_tensor_recovery.closing import (
    chosen,
    error,
    form_fit,
    norm_fit,
    process,
    rng,
)
from course_lib.lessons.hawkes_tensor_recovery.contents import lesson
from course_lib.lessons.hawkes_tensor_recovery.pictures import SEEDS, errors
from course_lib.teaching import fact
from course_lib.theory.hawkes import delayed_kernel, rates


@lesson.sentence(
    "31.Q1",
    "In a window of 8 lags the arrow of one frequency, without noise, tells all delays from 0 to 7 apart.",
    answer="only if the frequency is odd",
    conditions=("only if the frequency is odd", "only if the frequency is 1"),
)
def one_frequency():
    """At f = 2 a delay of 4 is a full turn and looks like 0; 1, 3, 5 and 7 share no factor with 8."""

    def distinct(f: int) -> int:
        return len({f * delay % 8 for delay in range(8)})

    return "\n".join(
        [
            fact("f = 1 and 3: {} different angles", [distinct(1), distinct(3)], equals=8, within=0),
            fact("f = 2: {}", distinct(2), equals=4, within=0),
        ]
    )


@lesson.sentence(
    "31.Q2",
    "All reading delays one hour longer and all travelling delays one hour shorter: the kernel (31.3) stays the same.",
    answer=True,
)
def shift():
    """Only the sums d + e are in (31.3). No count can tell such a shift, so delays are right up to it."""
    a, b = torch.rand(2, 5, generator=rng(0), dtype=torch.float64)
    d, e = torch.tensor([0, 1, 2, 0, 1]), torch.tensor([1, 2, 3, 1, 2])
    h = torch.tensor([1.0, 0.5], dtype=torch.float64)
    kernels = [delayed_kernel(a, b, h, d + s, e - s, p=8) for s in (0, 1)]
    counts = torch.poisson(torch.ones(50, 5, dtype=torch.float64), generator=rng(1))
    before, after = (rates(counts, a, kernel) for kernel in kernels)
    return fact("largest change of a rate: {:.1f}", float((before - after).abs().max()), equals=0, within=0)


@lesson.sentence(
    "31.Q3",
    "A delay that is the distance of two forums on a map, in whole hours, gives slices of rank 1 as well.",
    answer=False,
)
def distance():
    """A distance is no sum of a row's and a column's number: its turn is no product, and (31.4) does not follow."""
    places = torch.rand(12, 2, generator=rng(0), dtype=torch.float64)
    delay = (4 * torch.cdist(places, places)).round().long()
    kernel = torch.zeros(12, 12, 8, dtype=torch.float64).scatter(2, delay[..., None], 1.0)
    values = torch.linalg.svdvals(torch.fft.fft(kernel)[..., 1])
    return fact("second over first singular value at f = 1: {:.2f}", float(values[1] / values[0]), at_least=0.1)


@lesson.sentence(
    "31.Q4",
    "The cosine transform in the place of the Fourier transform in (31.6) lowers the error.",
    answer="it depends on how far the delays spread",
    conditions=("it depends on how far the delays spread", "only if the weight is chosen on held-out hours"),
)
def other_transform():
    """Its waves do not join the last hour to the first, but for them a delay is no longer a turn: ranks rise."""

    def ratios(kind: str) -> list[float]:
        return [one / other for one, other in zip(errors(kind, "cosine"), errors(kind, "fourier"), strict=True)]

    return "\n".join(
        [
            fact("cosine over Fourier, no delays, five processes: largest {:.2f}", max(ratios("short")), at_most=0.95),
            fact("delays 0 to 3: smallest {:.2f}", min(ratios("delayed")), at_least=1.05),
        ]
    )


@lesson.sentence(
    "31.Q5",
    "Where nothing of (31.3) is true, least squares has a smaller error than this form with its 32 numbers.",
    answer="only if there are enough hours",
    conditions=("only if there are enough hours", "only if the delays of the form are wrong"),
)
def fewer_numbers():
    """Few numbers hold little noise, however wrong the form. Least squares has only noise, and more hours lower it."""

    def ratios(bins: int) -> list[float]:
        truths = [process("random", seed, bins).kernel for seed in SEEDS]
        form = [error(form_fit("random", s, "read, corrected", bins)[0], truths[s]) for s in SEEDS]
        plain = [error(norm_fit("random", s, "none", bins), truths[s]) for s in SEEDS]
        return [one / other for one, other in zip(plain, form, strict=True)]

    return "\n".join(
        [
            fact("least squares over the form, 1,000 hours, smallest {:.2f}", min(ratios(1000)), at_least=1.05),
            fact("4,000 hours, largest {:.2f}", max(ratios(4000)), at_most=0.65),
        ]
    )


@lesson.sentence(
    "31.Q6",
    "If held-out hours choose the form (31.3), then all pairs of forums follow it.",
    answer=False,
)
def held_out():
    """They choose what errs least. With a tenth of the pairs an hour late that was still the form."""

    def forms(kind: str) -> int:
        return sum(chosen(kind, seed) in ("read, corrected", "no delays") for seed in SEEDS)

    ratios = [
        error(form_fit("late", s, "read, corrected")[0], process("late", s).kernel) / errors("late", "fourier")[s]
        for s in SEEDS
    ]
    return "\n".join(
        [
            fact("a tenth an hour late: {} of 5 processes choose the form", forms("late"), equals=5, within=0),
            fact("its error over Fourier's, the largest {:.2f}", max(ratios), at_most=0.85),
            fact("no structure: {} of 5", forms("random"), equals=0, within=0),
        ]
    )
