"""What learners of lesson 15 answer, and what gives its predictions away."""

from fractions import Fraction

import numpy as np
import torch
from torch.nn import functional

from course_lib.teaching import edit

GIVES_AWAY = {
    "15.P1": [r"(?i)(do|does) the same at every token", r"(?i)\bA and D\b", r"(?i)B is not"],
    "15.P2": [r"fall on the start", r"(?i)zeros behind", r"(?i)circle of 64"],
    "15.P3": [r"16\.5", r"(?i)more work"],
    "15.P4": [r"(?i)about where the plain loop ends", r"Two causes mix"],
}

NEIGHBOURS = {
    "15.2": ("kernel[lag] * u[t - lag] for", "kernel[lag] * u[t - lag - 1] for"),
    "15.3": ("torch.stack([2 * c.real, -2 * c.imag], 1)", "torch.stack([2 * c.real, 2 * c.imag], 1)"),
    "15.4": ("torch.fft.rfft(u, 128) * torch.fft.rfft(kernel, 128), 128)",
             "torch.fft.rfft(u, 126) * torch.fft.rfft(kernel, 126), 126)"),
    "15.5": ("later[0] * earlier[1] + later[1]", "earlier[0] * earlier[1] + later[1]"),
    "15.6": ("diagonal_state(u[:, :90], a)", "diagonal_state(u[:, 1:90], a)"),
    "15.e1": ('worst["convolution"] / rival', 'worst["convolution, poles from the disc"] / rival'),
    "15.e2": ("rate=0.01, updates=10)", "rate=0.02 if form == 'scan' else 0.01, updates=10)"),
}  # fmt: skip


def impulse_response(a, b, c, length):
    state, taps = b.clone(), []
    for _ in range(length):
        taps.append(state @ c)
        state = a * state
    return torch.stack(taps)


def by_matrix_powers(a, b, c, length):
    return torch.stack([c @ torch.linalg.matrix_power(torch.diag(a), lag) @ b for lag in range(length)])


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


def through_both(later, earlier):
    """What happens to 0 and to 1 decides on the joined step."""
    ends = [later[0] * (earlier[0] * h + earlier[1]) + later[1] for h in (0.0, 1.0)]
    return torch.stack([ends[1] - ends[0], ends[0]])


def as_matrices(later, earlier):
    """A step is a matrix (a w; 0 1), and joining is their product."""
    matrix = lambda step: torch.stack([step, torch.tensor([0.0, 1.0], dtype=step.dtype)])  # noqa: E731
    return (matrix(later) @ matrix(earlier))[0]


def round_by_columns(steps, distance):
    columns = list(steps.T)
    joined = [
        through_both(column, columns[t - distance]) if t >= distance else column
        for t, column in enumerate(columns)
    ]
    return torch.stack(joined, 1)


def round_with_padding(steps, distance):
    """Partners of the first tokens are steps that change nothing: decay 1, input 0."""
    nothing = torch.tensor([[1.0], [0.0]], dtype=steps.dtype).expand(2, distance)
    partner = torch.cat([nothing, steps], 1)[:, : steps.shape[1]]
    return torch.stack([steps[0] * partner[0], steps[0] * partner[1] + steps[1]])


def round_in_place(steps, distance):
    """Decays are overwritten before the inputs read them."""
    a, w = steps.clone()
    a[distance:] = a[distance:] * a[:-distance].clone()
    w[distance:] = a[distance:] * w[:-distance].clone() + w[distance:]
    return torch.stack([a, w])


ANSWERS = {
    "15.1": [
        ("solved", "a fraction", Fraction(31, 2)),
        ("solved", "by the kernel, turned round", float(np.dot([1, 0, 2], [6 / 4, 6 / 2, 6 + 1]))),
        ("solved", "a tensor", torch.tensor(15.5)),
        ("read before writing", "output from the state before", 3 * 1 + 2),
        ("no direct path", "three times the state", 13.5),
        ("no decay", "a sum of the inputs", 3 * 6 + 2),
        ("state, not output", "the last state", 4.5),
        ("state, not output", "the same as a tensor", torch.tensor(4.5)),
        ("one step of decay", "u_0 halved once", 3 * (1 + 4) + 2),
        ("input not doubled", "left out the 2 in front of the input", 3 * (0.25 + 2) + 2),
        ("kernel not turned", "the kernel as it comes", 19.25),
        ("wrong", "counted the tokens from 1", 3.0),
        ("wrong", "the sum of all outputs", 7 + 3 + 15.5),
        ("malformed", "all outputs", [7, 3, 15.5]),
    ],
    "15.2": [
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
    "15.3": [
        ("solved", "a loop over tokens and lags", causal_loop),
        ("solved", "room up to a power of 2", on_a_power_of_two),
        ("solved", "the complex transform, its real part", by_complex_transform),
        ("solved", "NumPy", lambda u, taps: torch.from_numpy(np.convolve(u, taps)[: len(u)])),
        ("no room", "the longer length",
         edit("size = len(u) + len(taps)", "size = max(len(u), len(taps))")),
        ("the input's circle", "a circle as long as u", on_the_inputs_circle),
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
    "15.4": [
        ("solved", "0 and 1 run through both", through_both),
        ("solved", "a product of matrices", as_matrices),
        ("solved", "entry by entry", lambda later, earlier: torch.tensor(
            [float(later[0] * earlier[0]), float(later[0] * earlier[1] + later[1])], dtype=later.dtype)),
        ("other order", "the arguments exchanged", lambda later, earlier: through_both(earlier, later)),
        ("nothing fades", "inputs added", lambda later, earlier: torch.stack(
            [later[0] * earlier[0], later[1] + earlier[1]])),
        ("decays added", "a sum of decays", lambda later, earlier: torch.stack(
            [later[0] + earlier[0], later[0] * earlier[1] + later[1]])),
        ("first input lost", "only the last input", lambda later, earlier: torch.stack([later[0] * earlier[0], later[1]])),
        ("both faded", "the sum multiplied", lambda later, earlier: torch.stack(
            [later[0] * earlier[0], later[0] * (earlier[1] + later[1])])),
        ("two decays on the first input", "both decays", lambda later, earlier: torch.stack(
            [later[0] * earlier[0], later[0] * earlier[0] * earlier[1] + later[1]])),
        ("second input lost", "only the first input", lambda later, earlier: torch.stack(
            [later[0] * earlier[0], later[0] * earlier[1]])),
        ("wrong", "entries added", lambda later, earlier: later + earlier),
        ("wrong", "entries multiplied", lambda later, earlier: later * earlier),
        ("wrong", "input first in the result", lambda later, earlier: through_both(later, earlier).flip(0)),
        ("malformed", "a tuple", lambda later, earlier: (later[0] * earlier[0], later[0] * earlier[1] + later[1])),
    ],
    "15.5": [
        ("solved", "column by column", round_by_columns),
        ("solved", "steps that change nothing in front", round_with_padding),
        ("wraps round", "roll", lambda steps, distance: torch.stack([
            steps[0] * steps[0].roll(distance), steps[0] * steps[1].roll(distance) + steps[1]])),
        ("decays first", "in place, decays first", round_in_place),
        ("only the neighbour", "distance 1", lambda steps, distance: round_by_columns(steps, 1)),
        ("decays kept", "inputs only", lambda steps, distance: torch.stack(
            [steps[0], round_by_columns(steps, distance)[1]])),
        ("start emptied", "zeros in front", lambda steps, distance: torch.cat(
            [torch.zeros_like(steps[:, :distance]), round_by_columns(steps, distance)[:, distance:]], 1)),
        ("inputs added", "nothing fades", lambda steps, distance: torch.stack([
            round_by_columns(steps, distance)[0],
            torch.cat([steps[1, :distance], steps[1, distance:] + steps[1, :-distance]])])),
        ("wrong", "all earlier tokens at once", lambda steps, distance: torch.stack(
            [steps[0].cumprod(0), steps[1].cumsum(0)])),
        ("wrong", "the partner to the right", lambda steps, distance: round_by_columns(steps.flip(1), distance).flip(1)),
        ("malformed", "first tokens dropped", lambda steps, distance: round_by_columns(steps, distance)[:, distance:]),
    ],
}  # fmt: skip
