"""What learners of lesson 12 answer, and what gives its predictions away."""

from fractions import Fraction
from math import comb

import numpy as np
import torch
from torch.nn import functional

from course_lib.teaching import edit

GIVES_AWAY = {
    "12.P1": [r"1\.51", r"(?i)outside of the unit", r"(?i)Euler.{0,60}(grow|unstable|out)"],
    "12.P2": [r"(?i)wraps? round", r"(?i)only the last", r"zeros behind"],
    "12.P3": [r"(?i)times (that of the loop|the work)", r"16 times"],
}


def impulse_response(a, b, c, length):
    state, taps = b.clone(), []
    for _ in range(length):
        taps.append(state @ c)
        state = a * state
    return torch.stack(taps)


def by_matrix_powers(a, b, c, length):
    return torch.stack([c @ torch.linalg.matrix_power(torch.diag(a), lag) @ b for lag in range(length)])


def by_outer_products(p, power):
    result = torch.eye(len(p), dtype=p.dtype)
    for _ in range(power):
        result = result + torch.outer(p, p @ result)
    return result


def by_binomials(p, power):
    s = p @ p
    factor = sum(comb(power, k) * s ** (k - 1) for k in range(1, power + 1))
    return torch.eye(len(p), dtype=p.dtype) + factor * torch.outer(p, p)


def system(decay, frequency, step):
    return {"decay": decay, "frequency": frequency, "step": step}


def causal_loop(u, taps):
    return torch.stack(
        [sum(taps[lag] * u[t - lag] for lag in range(min(t + 1, len(taps)))) for t in range(len(u))]
    )


def on_a_power_of_two(u, taps):
    size = 2 ** (len(u) + len(taps) - 1).bit_length()
    return torch.fft.irfft(torch.fft.rfft(u, size) * torch.fft.rfft(taps, size), size)[: len(u)]


def by_complex_transform(u, taps):
    size = len(u) + len(taps) - 1
    return torch.fft.ifft(torch.fft.fft(u, size) * torch.fft.fft(taps, size)).real[: len(u)]


def on_the_inputs_circle(u, taps):
    return torch.fft.irfft(torch.fft.rfft(u) * torch.fft.rfft(taps, len(u)), len(u))


def centred(u, taps):
    full = torch.from_numpy(np.convolve(u, taps))
    start = (len(taps) - 1) // 2
    return full[start : start + len(u)]


def not_flipped(u, taps):
    return functional.conv1d(functional.pad(u, (len(taps) - 1, 0))[None, None], taps[None, None])[0, 0]


def token_by_token(state, k, v, decay):
    for key, value in zip(k, v, strict=True):
        state = decay * state + key[:, None] * value
    return state


def by_running_product(state, k, v, decay):
    """The ages' weights as products of ones and decays."""
    steps = torch.full((len(k),), float(decay), dtype=k.dtype)
    steps[0] = 1.0
    weights = steps.cumprod(0).flip(0)
    return float(decay) ** len(k) * state + torch.einsum("t,td,te->de", weights, k, v)


def divided_by_powers(state, k, v, decay):
    ages = decay ** torch.arange(len(k), dtype=k.dtype)
    return decay ** len(k) * state + ages[-1] * (k / ages[:, None]).T @ v


ANSWERS = {
    "12.1": [
        ("solved", "a fraction", Fraction(31, 2)),
        ("solved", "by the kernel, turned round", float(np.dot([1, 0, 2], [6 / 4, 6 / 2, 6 + 1]))),
        ("solved", "a tensor", torch.tensor(15.5)),
        ("read before writing", "output from the state before", 3 * 1 + 2),
        ("no direct path", "three times the state", 13.5),
        ("no decay", "a sum of the inputs", 3 * 6 + 2),
        ("state, not output", "the last state", 4.5),
        ("one step of decay", "u_0 halved once", 3 * (1 + 4) + 2),
        ("input not doubled", "left out the 2 in front of the input", 3 * (0.25 + 2) + 2),
        ("wrong", "counted the tokens from 1", 3.0),
        ("wrong", "the sum of all outputs", 7 + 3 + 15.5),
        ("malformed", "all outputs", [7, 3, 15.5]),
    ],
    "12.2": [
        ("solved", "an impulse through the loop", impulse_response),
        ("solved", "powers of a diagonal matrix", by_matrix_powers),
        ("solved", "a product with the Vandermonde matrix",
         lambda a, b, c, length: (b * c) @ torch.vander(a, length).flip(1)),
        ("one tap late", "powers from 1", lambda a, b, c, length: impulse_response(a, a * b, c, length)),
        ("first tap 0", "the loop reads, then writes",
         lambda a, b, c, length: torch.cat([torch.zeros(1).to(a), impulse_response(a, b, c, length - 1)])),
        ("without b", "c and powers only", lambda a, b, c, length: impulse_response(a, torch.ones_like(b), c, length)),
        ("without c", "b and powers only", lambda a, b, c, length: impulse_response(a, b, torch.ones_like(c), length)),
        ("mean for the sum", "mean over poles", lambda a, b, c, length: impulse_response(a, b, c / len(c), length)),
        ("turned round", "torch.vander as it comes", lambda a, b, c, length: (b * c) @ torch.vander(a, length)),
        ("response to a switch", "the loop for an input of ones",
         lambda a, b, c, length: impulse_response(a, b, c, length).cumsum(0)),
        ("wrong", "a power that is a product",
         lambda a, b, c, length: torch.stack([(c * b * a * t).sum() for t in range(length)])),
        ("malformed", "summed over the taps", edit(".sum(-1)", ".sum(0)")),
        ("malformed", "a list", lambda a, b, c, length: impulse_response(a, b, c, length).tolist()),
    ],
    "12.3": [
        ("solved", "one outer product a factor", by_outer_products),
        ("solved", "the binomial sum with the right letter", by_binomials),
        ("solved", "expm1 and log1p", edit("((1 + s) ** power - 1) / s", "torch.expm1(power * torch.log1p(s)) / s")),
        ("the power's letter", "the notes' sum", lambda p, power: torch.eye(len(p)).to(p)
         + sum(comb(power, k) * power ** (k - 1) for k in range(1, power + 1)) * torch.outer(p, p)),
        ("length for its square", "norm of p", edit("p @ p", "p.norm()")),
        ("no identity", "the sum alone", lambda p, power: by_binomials(p, power) - torch.eye(len(p)).to(p)),
        ("only the first order", "I + L p p^T", lambda p, power: torch.eye(len(p)).to(p) + power * torch.outer(p, p)),
        ("one power of s too many", "did not divide by s", edit(" / s", "")),
        ("only the highest order", "I plus the power of p p^T",
         lambda p, power: torch.eye(len(p)).to(p) + (p @ p) ** (power - 1) * torch.outer(p, p)),
        ("entry by entry", "** on a matrix", lambda p, power: (torch.eye(len(p)).to(p) + torch.outer(p, p)) ** power),
        ("wrong", "kept the 1 of the bracket", edit(" - 1) / s", ") / s")),
        ("wrong", "one factor too few", lambda p, power: by_outer_products(p, power - 1)),
        ("malformed", "a number for p p^T", lambda p, power: 1 + (p @ p) ** power),
    ],
    "12.4": [
        ("solved", "fast rotation", system(0.1, 10.0, 0.5)),
        ("solved", "just outside", system(1.0, 1.01, 1.0)),
        ("solved", "turns the other way", system(1, -2, 1)),
        ("solved", "slow system, long step", system(Fraction(1, 100), 1, 10)),
        ("on the real axis", "no rotation", system(1.5, 0.0, 1.0)),
        ("decay too fast", "breaks the condition instead", system(5.0, 1.0, 1.0)),
        ("decay too fast", "at the border of the condition", system(2.0, 1.0, 1.0)),
        ("no decay", "alpha 0", system(0.0, 2.0, 1.0)),
        ("no decay", "a growing system", system(-1.0, 2.0, 1.0)),
        ("turns too slowly", "on the circle", system(1.0, 1.0, 1.0)),
        ("turns too slowly", "a short step", system(1.0, 2.0, 0.1)),
        ("wrong", "a step back", system(1.0, 2.0, -1.0)),
        ("malformed", "a complex pole", {"pole": -1 + 2j, "step": 1.0}),
    ],
    "12.5": [
        ("solved", "a loop over tokens and lags", causal_loop),
        ("solved", "room up to a power of 2", on_a_power_of_two),
        ("solved", "the complex transform, its real part", by_complex_transform),
        ("solved", "NumPy", lambda u, taps: torch.from_numpy(np.convolve(u, taps)[: len(u)])),
        ("no room", "the longer length",
         edit("size = len(u) + len(taps)", "size = max(len(u), len(taps))")),
        ("wrong", "a circle as long as u", on_the_inputs_circle),
        ("cut at the wrong end", "the last outputs", lambda u, taps: on_a_power_of_two(
            functional.pad(u, (0, len(taps))), taps)[-len(u) :]),
        ("conjugate", "correlation theorem", edit("* torch.fft.rfft(taps, size)", "* torch.fft.rfft(taps, size).conj()")),
        ("odd size lost", "irfft without a size", lambda u, taps: torch.fft.irfft(
            torch.fft.rfft(u, n := len(u) + len(taps) - 1) * torch.fft.rfft(taps, n))[: len(u)]),
        ("not cut", "the whole circle", edit("[: len(u)]", "")),
        ("not flipped", "conv1d, which does not flip", not_flipped),
        ("wrong", "centred, as 'same' does", centred),
        ("malformed", "complex output", lambda u, taps: by_complex_transform(u, taps).to(torch.complex128)),
    ],
    "12.6": [
        ("solved", "token by token", token_by_token),
        ("solved", "a running product of decays", by_running_product),
        ("solved", "weights at the values", lambda state, k, v, decay: float(decay) ** len(k) * state
         + k.T @ (v * torch.tensor([float(decay) ** (len(k) - 1 - t) for t in range(len(k))], dtype=k.dtype)[:, None])),
        ("weights in the wrong order", "oldest first", edit(".flip(0)", "")),
        ("one decay too many", "decays in its own step",
         lambda state, k, v, decay: token_by_token(state, decay * k, v, decay)),
        ("state kept", "the new tokens added to the state", lambda state, k, v, decay: state
         + token_by_token(torch.zeros_like(state), k, v, decay)),
        ("state decayed once", "one chunk as one step", lambda state, k, v, decay: decay * state
         + token_by_token(torch.zeros_like(state), k, v, decay)),
        ("no decay inside", "k^T v", lambda state, k, v, decay: decay ** len(k) * state + k.T @ v),
        ("transposed", "values as rows", lambda state, k, v, decay: decay ** len(k) * state
         + token_by_token(torch.zeros_like(state), v, k, decay)),
        ("no old state", "the chunk alone",
         lambda state, k, v, decay: token_by_token(torch.zeros_like(state), k, v, decay)),
        ("wrong", "decay to the power m - 1", edit("decay ** len(k)", "decay ** (len(k) - 1)")),
        ("malformed", "powers divided", divided_by_powers),
        ("wrong", "the last token alone", lambda state, k, v, decay: decay * state + torch.outer(k[-1], v[-1])),
    ],
}  # fmt: skip
