"""The sentences of lesson 15, each with what decides on it."""

from math import comb

import numpy as np
import torch

from course_lib.architectures.selective import scan_by_doubling
from course_lib.architectures.state_space import matrix_powers, rank_one_power, ssm_kernel, state_space_loop
from course_lib.lessons.state_space_models.contents import lesson
from course_lib.lessons.state_space_models.pictures import (
    TOKENS,
    Meter,
    box_d_kernel,
    noise,
    normal,
)
from course_lib.teaching import fact


@lesson.sentence(
    "15.Q1",
    "With taps K₀ to K_T, each output is the sum of K_(t-i) u_i over all tokens i = 0, ..., T (15.2).",
    answer="only if taps of negative index count as 0",
    conditions=("only if taps of negative index count as 0", "only if D = 0"),
)
def sum_to_the_end():
    """An output cannot hear later tokens, so the sum ends at t. In Python, K[-1] is the last tap: the sum wraps round."""
    one = lambda *values: torch.tensor(values, dtype=torch.float64)  # noqa: E731
    u = one(1, 0, 2, -1, 4)
    kernel = ssm_kernel(one(0.5)[:, None], one(2), one(3), length=5)
    loop = state_space_loop(u, one(0.5)[:, None], one(2), one(3))
    printed = torch.stack([sum(kernel[t - i] * u[i] for i in range(5)) for t in range(5)])
    padded = torch.cat([kernel, torch.zeros(5, dtype=torch.float64)])  # K[-1], ..., K[-5] are 0 now
    mended = torch.stack([sum(padded[t - i] * u[i] for i in range(5)) for t in range(5)])
    right = lambda found: int(((found - loop).abs() < 1e-9).sum())  # noqa: E731
    return "\n".join(
        [
            fact("run as it stands, {} of 5 outputs is right", right(printed), equals=1, within=0),
            fact("with zeros at negative indices, {} of 5 are", right(mended), equals=5, within=0),
        ]
    )


@lesson.sentence(
    "15.Q2", "64 inputs, 64 taps: a Fourier transform of size 127 gives all 64 outputs of the loop.", answer=True
)
def just_enough_room():
    """The whole convolution has 64 + 64 - 1 = 127 outputs, so that on a circle of 127 nothing meets."""
    u, kernel = noise(), box_d_kernel()
    wanted = np.convolve(u, kernel)[:TOKENS]
    found = {n: np.fft.irfft(np.fft.rfft(u, n) * np.fft.rfft(kernel, n), n)[:TOKENS] for n in (126, 127)}
    wrong = int((np.abs(found[126] - wanted) > 1e-9).sum())
    return "\n".join(
        [
            fact("size 127: the largest gap is {}", np.abs(found[127] - wanted).max(), at_most=1e-12),
            fact("size 126: {} output is wrong, the first", wrong, equals=1, within=0),
        ]
    )


@lesson.sentence(
    "15.Q3",
    "For a vector p, (I + ppᵀ)ᴸ = I + ppᵀ (C(L,1) + C(L,2) L + C(L,3) L² + ...), where C(L,l) are binomial coefficients.",
    answer=False,
)
def two_letters():
    """Under the sum stand powers of |p|², not of L: one letter was used for two numbers. L = 3 and |p|² = 5 differ."""
    p, power = torch.tensor([1.0, 2.0], dtype=torch.float64), 3
    corner = lambda s: 1 + p[0] ** 2 * sum(comb(power, k) * s ** (k - 1) for k in range(1, power + 1))  # noqa: E731
    true = torch.linalg.matrix_power(torch.eye(2, dtype=p.dtype) + torch.outer(p, p), power)[0, 0]
    return "\n".join(
        [
            fact("p = (1, 2), third power: the corner of the product is {}", true, equals=44, within=0),
            fact("with |p|² = 5 under the sum: {}", corner(5.0), equals=44, within=0),
            fact("with the power 3 under the sum: {}", corner(3.0), equals=22, within=0),
        ]
    )


@lesson.sentence(
    "15.Q4",
    "Powers of A = I + ppᵀ are cheap, by divide and conquer or in closed form, so it is a good matrix for the state.",
    answer=False,
)
def cheap_and_unstable():
    """Cheap they are. But p is an eigenvector with eigenvalue 1 + |p|² above 1: what lies along p grows at every token."""
    p = normal(4, seed=5) / 4
    A, s = torch.eye(4, dtype=p.dtype) + torch.outer(p, p), float(p @ p)
    halved = matrix_powers(A, 128)[100]
    click = ssm_kernel(A, p, p, length=101)
    return "\n".join(
        [
            fact("100th power, closed form against doubling: relative gap {}",
                 (rank_one_power(p, 100) - halved).abs().max() / halved.abs().max(), at_most=1e-12),
            fact("|p|² = {}", s, at_least=0.01),
            fact("after 100 tokens a click is louder by the factor {}", click[100] / click[0], at_least=10),
            fact("over (1 + |p|²)¹⁰⁰ that is {}", click[100] / click[0] / (1 + s) ** 100, equals=1, within=1e-9),
        ]
    )  # fmt: skip


@lesson.sentence("15.Q5", "With a tanh in the loop, no way leads to the outputs but token by token.", answer=False)
def newton_over_scans():
    """No single scan is exact. But guess all states, replace the tanh by its tangents there, and solve by a scan: these
    are Newton's steps. Here a few rounds of them reach the loop, to rounding."""
    u = torch.from_numpy(noise())
    x, states = torch.zeros((), dtype=u.dtype), []
    for u_t in u:
        x = torch.tanh(0.9 * x + u_t)
        states.append(x)
    loop, guess, gaps = torch.stack(states), torch.zeros_like(u), []
    for _ in range(8):
        before = torch.cat([guess[:1] * 0, guess[:-1]])
        value = torch.tanh(0.9 * before + u)
        slope = 0.9 * (1 - value**2)
        guess = scan_by_doubling(slope, value - slope * before)
        gaps.append(float((guess - loop).abs().max()))
    return "\n".join(
        [
            fact("after 1 scan the states are off by {}", gaps[0], at_least=0.01),
            fact("after 8 scans by {}", gaps[-1], at_most=1e-12),
        ]
    )


@lesson.sentence(
    "15.Q6", "To write text token by token, the convolution is the cheapest of the three forms.", answer=False
)
def the_next_token():
    """A new output by the kernel needs all earlier inputs. The loop needs its state: the same work at every token."""
    with Meter() as step:
        x = normal(1, seed=1) * 0.9 + normal(1, seed=2)
    with Meter() as taps:
        normal(4096, seed=1) @ normal(4096, seed=2)
    assert x.shape == (1,)
    return "\n".join(
        [
            fact("output 4,096 of one real pole, by the loop: {} operations", step.work, equals=2, within=0),
            fact("by the kernel: {}", taps.work, equals=8191, within=0),
        ]
    )
