"""Lesson 14: what learners answer, and what tells them too early."""

import cmath
import math

import torch

from course_lib.attention.rotary import (
    convert_layout,
    llama3_frequencies,
    ntk_aware_base,
    rope,
    rope_frequencies,
)
from course_lib.teaching import edit

GIVES_AWAY = {
    "14.P1": [
        r"(?i)rather than far, on average",
        r"(?i)nearly half the time",
        r"(?i)45% and 55%",
        r"(?i)in proportion to \$?\\ln s",
        r"(?i)logarithmic law|\\ln s \+ \\gamma",
    ],
    "14.P3": [
        r"(?i)a tenth",
        r"190 turns",
        r"(?i)point the opposite way",
        r"0\.018 radians",
        r"(?i)angles in float64",
    ],
    "14.P2": [r"17 slow pairs", r"YaRN"],
}


def polar(pair, position, frequency):
    z = torch.complex(pair[0], pair[1])
    return torch.view_as_real(torch.polar(z.abs(), z.angle() + position * frequency))


def matrix(pair, position, frequency, sign=1):
    a = sign * position * frequency
    R = torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]], dtype=pair.dtype)
    return R @ pair


def step_by_step(pair, position, frequency):
    for _ in range(position):
        pair = matrix(pair, 1, frequency)
    return pair


def turned_in_place(pair, position, frequency):
    a = torch.tensor(position * frequency, dtype=pair.dtype)
    pair[0] = pair[0] * a.cos() - pair[1] * a.sin()
    pair[1] = pair[0] * a.sin() + pair[1] * a.cos()
    return pair


def table(x, positions, base, power=-2.0):
    i = torch.arange(x.shape[1] // 2, dtype=x.dtype)
    return torch.outer(positions.to(x.dtype), base ** (power * i / x.shape[1]))


def by_slices(x, positions, base, angles=None, sign=1):
    angles = table(x, positions, base) if angles is None else angles
    out, c, s = torch.empty_like(x), angles.cos(), sign * angles.sin()
    out[:, ::2] = x[:, ::2] * c - x[:, 1::2] * s
    out[:, 1::2] = x[:, ::2] * s + x[:, 1::2] * c
    return out


def every_two(x, positions, base, spread):
    angles = spread(table(x, positions, base))
    rotated = torch.stack((-x[:, 1::2], x[:, ::2]), dim=-1).reshape(x.shape)
    return x * angles.cos() + rotated * angles.sin()


def rotate_half(x, positions, base):
    angles = torch.cat([table(x, positions, base)] * 2, dim=1)
    first, second = x.chunk(2, dim=1)
    return x * angles.cos() + torch.cat([-second, first], dim=1) * angles.sin()


def heads(n, d):
    return torch.arange(n * d).view(n, d)


def in_each_head(n, order):
    return heads(n, len(order))[:, order].flatten()


def by_place(n, d):
    head, row = heads(n, d) // d, heads(n, d) % d
    return (d * head + 2 * (row % (d // 2)) + row // (d // 2)).flatten().argsort()


def by_library(n, d):
    weight = torch.arange(n * d, dtype=torch.float64)
    return convert_layout(weight, head_dim=d, source="half", target="interleaved").long()


def column_by_column(head_dim):
    return [i // 2 + head_dim // 2 * (i % 2) for i in range(head_dim)]


def case(x1, x2, y1, y2, m, n):
    return {"x1": x1, "x2": x2, "y1": y1, "y2": y2, "m": m, "n": n}


def new_base(dim, base, scale, power):
    return (base * scale**power) ** (-torch.arange(dim // 2, dtype=torch.float64) * 2 / dim)


def scaled(w, s, L, slow, fast, *, turn=2 * math.pi, mix=torch.lerp):
    share = torch.clip((fast - w * L / turn) / (fast - slow), 0, 1)
    return mix(w, w / s, share)


def pair_by_pair(w, s, L, slow, fast):
    new = w.clone()
    for i, frequency in enumerate(w):
        wavelength = 2 * math.pi / frequency
        if wavelength >= L / slow:
            new[i] = frequency / s
        elif wavelength > L / fast:
            smooth = (L / wavelength - slow) / (fast - slow)
            new[i] = (1 - smooth) * frequency / s + smooth * frequency
    return new


ANSWERS = {
    "14.1": [
        ("solved", "real part of a product", (-10j * cmath.exp(3j)).real),
        ("solved", "three decimals", 1.411),
        ("solved", "as a tensor", torch.tensor(10.0, dtype=torch.float64) * math.sin(3)),
        ("turned the other way", "m - n", 10 * math.sin(-3)),
        ("left out the frequency", "six radians", -2.794),
        ("added the positions", "4 + 10", 10 * math.sin(0.5 * 14)),
        ("no conjugate", "product of both", ((3 + 1j) * (1 - 3j) * cmath.exp(7j)).real),
        ("degrees", "three degrees", 10 * math.sin(3 * math.pi / 180)),
        ("no rotation", "inner product of x and y", 3 * 1 + 1 * -3),
        ("the angle between them left out", "lengths times cosine", 10 * math.cos(0.5 * 6)),
        ("only the key turned", "ten times omega", 10 * math.sin(0.5 * 10)),
        ("counted both ends", "seven positions", 10 * math.sin(0.5 * 7)),
        ("divided by the root of d", "scaled", 10 * math.sin(3) / 2**0.5),
        ("lengths left out", "cosine of the angle", 0.1411),
        ("wrong", "one decimal", 1.4),
        ("malformed", "complex", -10j * cmath.exp(3j)),
    ],
    "14.2": [
        ("solved", "angle added in polar form", polar),
        ("solved", "matrix product", matrix),
        (
            "solved",
            "complex number of Python",
            lambda pair, t, w: torch.view_as_real(torch.view_as_complex(pair) * cmath.exp(1j * t * w)),
        ),
        ("solved", "one step at a time", step_by_step),
        ("first entry overwritten", "in place", turned_in_place),
        ("with the clock", "transposed matrix", lambda pair, t, w: matrix(pair, t, w, sign=-1)),
        (
            "entries exchanged",
            "imaginary part first",
            lambda pair, t, w: polar(pair, t, w).flip(0),
        ),
        ("turns for radians", "frequency in turns", lambda pair, t, w: matrix(pair, t, 2 * torch.pi * w)),
        ("positions from 1", "t + 1", lambda pair, t, w: matrix(pair, t + 1, w)),
        ("left out the position", "angle omega", lambda pair, t, w: matrix(pair, 1, w)),
        ("degrees", "deg2rad", lambda pair, t, w: matrix(pair, t, math.pi / 180 * w)),
        (
            "added instead of multiplied",
            "sinusoidal",
            lambda pair, t, w: pair + pair.new_tensor([math.cos(t * w), math.sin(t * w)]),
        ),
        (
            "no minus",
            "plus twice",
            lambda pair, t, w: pair * math.cos(t * w) + pair.flip(0) * math.sin(t * w),
        ),
        ("wrong", "frequency to the power of the position", lambda pair, t, w: matrix(pair, 1, w**t)),
        ("malformed", "left complex", lambda pair, t, w: torch.view_as_complex(pair) * cmath.exp(1j * t * w)),
        ("malformed", "a list", lambda pair, t, w: polar(pair, t, w).tolist()),
        (
            "with the clock",
            "the pair as a row before the matrix",
            lambda x, t, w: (
                x
                @ torch.tensor(
                    [[math.cos(t * w), -math.sin(t * w)], [math.sin(t * w), math.cos(t * w)]], dtype=x.dtype
                )
            ),
        ),
    ],
    "14.3": [
        ("solved", "with slices", by_slices),
        (
            "solved",
            "repeated angles, neighbours rotated",
            lambda x, t, b: every_two(x, t, b, lambda a: a.repeat_interleave(2, dim=1)),
        ),
        ("solved", "the library", lambda x, positions, base: rope(x, positions, base=base)),
        (
            "angles of the halves",
            "cat for repeat_interleave",
            lambda x, t, b: every_two(x, t, b, lambda a: torch.cat([a, a], dim=1)),
        ),
        ("halves for neighbours", "rotate_half", rotate_half),
        ("with the clock", "sine negated", lambda x, t, b: by_slices(x, t, b, sign=-1)),
        ("positions from 1", "t + 1", lambda x, t, b: by_slices(x, t + 1, b)),
        ("rows for positions", "arange", lambda x, t, b: by_slices(x, torch.arange(len(x)), b)),
        ("base built in", "10,000", lambda x, t, b: by_slices(x, t, 10_000.0)),
        (
            "frequencies that grow",
            "wavelengths for frequencies",
            lambda x, t, b: by_slices(x, t, b, table(x, t, b, power=2.0)),
        ),
        (
            "half the exponents",
            "(i - 1)/d",
            lambda x, t, b: by_slices(x, t, b, table(x, t, b, power=-1.0)),
        ),
        (
            "one pair too late",
            "i from 1",
            lambda x, t, b: by_slices(x, t, b, table(x, t, b) * b ** (-2 / x.shape[1])),
        ),
        (
            "one frequency for all",
            "angle t",
            lambda x, t, b: by_slices(x, t, b, table(x, t, 1.0)),
        ),
        (
            "no minus",
            "plus twice",
            lambda x, t, b: (
                x * table(x, t, b).cos().repeat_interleave(2, 1)
                + x.view(len(x), -1, 2).flip(2).flatten(1) * table(x, t, b).sin().repeat_interleave(2, 1)
            ),
        ),
        (
            "wrong",
            "exponents over d/2 - 1, as linspace gives them",
            lambda x, t, b: by_slices(
                x, t, b, torch.outer(t.double(), b ** -torch.linspace(0, 1, x.shape[1] // 2))
            ),
        ),
        (
            "malformed",
            "pairs left apart",
            lambda x, t, b: by_slices(x, t, b).unflatten(1, (-1, 2)),
        ),
        ("last pair at one over the base", "d - 2 below", edit(" / d)", " / (d - 2.0))")),
        (
            "first entries, then second ones",
            "cat for stack",
            lambda x, p, b: rope(x, p, base=b).unflatten(1, (-1, 2)).mT.flatten(1),
        ),
        ("half the exponents", "arange(d/2) over d", edit("arange(0, d, 2", "arange(0, d // 2")),
    ],
    "14.4": [
        ("solved", "a list of rows", lambda n, d: in_each_head(n, column_by_column(d))),
        ("solved", "stacked halves", lambda n, d: torch.stack(heads(n, d).chunk(2, 1), 2).flatten()),
        ("solved", "sorted by place in the half", lambda n, d: by_place(n, d)),
        ("solved", "the library", lambda n, d: by_library(n, d)),
        (
            "the way back",
            "even rows, then odd",
            lambda n, d: in_each_head(n, [*range(0, d, 2), *range(1, d, 2)]),
        ),
        ("the way back", "inverse permutation", lambda n, d: in_each_head(n, column_by_column(d)).argsort()),
        ("all heads as one", "one table for all rows", lambda n, d: torch.tensor(column_by_column(n * d))),
        ("nothing done", "split and put together", lambda n, d: heads(n, d).view(n, 2, d // 2).reshape(-1)),
        (
            "second before first",
            "the second half first",
            lambda n, d: torch.stack(heads(n, d).chunk(2, 1)[::-1], 2).flatten(),
        ),
        (
            "heads as the fast index",
            "heads last",
            lambda n, d: torch.arange(n * d).view(2, d // 2, n).permute(1, 0, 2).flatten(),
        ),
        ("halves exchanged", "rolled by a half", lambda n, d: heads(n, d).roll(d // 2, 1).flatten()),
        (
            "every head from row 0",
            "the same rows for each head",
            lambda n, d: torch.tensor(column_by_column(d) * n),
        ),
        ("counted from 1", "i + 1", lambda n, d: in_each_head(n, column_by_column(d)) + 1),
        ("wrong", "reversed in each head", lambda n, d: heads(n, d).flip(1).flatten()),
        ("malformed", "one head only", lambda n, d: torch.tensor(column_by_column(d))),
        ("malformed", "a list", lambda n, d: in_each_head(n, column_by_column(d)).tolist()),
        (
            "the way back",
            "even rows, then odd ones, head by head",
            lambda n_heads, head_dim: (
                torch.arange(n_heads * head_dim).view(n_heads, -1, 2).transpose(1, 2).flatten()
            ),
        ),
    ],
    "14.5": [
        ("solved", "a quarter turn", case(0, 2, 1, 0, 0, 3)),
        ("solved", "negative positions", case(1, 2, 2, -1, -1, 4)),
        ("solved", "the page's example", case(1.0, 2.0, 2.0, -1.0, 3, 5)),
        ("solved", "nearly parallel, but long", case(10, 10, 10, 11, 1, 2)),
        ("the same position", "both at 3", case(1, 2, 2, -1, 3, 3)),
        ("the same position", "both at the start", case(1, 0, 0, 1, 0, 0)),
        ("vectors on one line", "the same vector", case(1, 2, 1, 2, 0, 1)),
        ("vectors on one line", "opposite vectors", case(1, 2, -1, -2, 0, 1)),
        ("a zero vector", "key zero", case(1, 2, 0, 0, 1, 2)),
        ("not a position", "half a position", case(1, 0, 0, 1, 0.5, 2)),
        ("too small to see", "a half turn", case(0.1, 0, 0, 0.1, 0, 355)),
        ("too small to see", "short vectors", case(0.05, 0, 0, 0.05, 0, 1)),
        ("malformed", "a tuple", (1, 0, 0, 1, 0, 1)),
        ("malformed", "positions missing", {"x1": 1, "x2": 0, "y1": 0, "y2": 1}),
    ],
    "14.6": [
        (
            "solved",
            "the library",
            lambda d, b, s: rope_frequencies(d, base=ntk_aware_base(b, scale=s, rotary_dim=d)),
        ),
        ("solved", "counted in pairs", lambda d, b, s: new_base(d, b, s, (d / 2) / (d / 2 - 1))),
        (
            "solved",
            "old frequencies slowed by powers of s",
            lambda d, b, s: new_base(d, b, 1, 1) * s ** -torch.linspace(0, 1, d // 2, dtype=torch.float64),
        ),
        ("all pairs alike", "interpolation", lambda d, b, s: new_base(d, b, 1, 1) / s),
        ("base times scale", "b s", lambda d, b, s: new_base(d, b * s, 1, 1)),
        ("exponent upside down", "(d - 2)/d", lambda d, b, s: new_base(d, b, s, 1 - 2 / d)),
        ("faster instead of slower", "divided", lambda d, b, s: new_base(d, b, 1 / s, d / (d - 2))),
        (
            "only the last pair",
            "last entry divided",
            lambda d, b, s: torch.cat([new_base(d, b, 1, 1)[:-1], new_base(d, b, 1, 1)[-1:] / s]),
        ),
        (
            "one pair too late",
            "i from 1 in 2i/d",
            lambda d, b, s: (
                (b * s ** (d / (d - 2))) ** (-torch.arange(1, d // 2 + 1, dtype=torch.float64) * 2 / d)
            ),
        ),
        ("the old frequencies", "no s", lambda d, b, s: b ** -(torch.arange(0, d, 2).double() / d)),
        (
            "2 in the exponent missing",
            "(i - 1)/d",
            lambda d, b, s: new_base(d, b, s, d / (d - 2)).sqrt(),
        ),
        ("power of s too large", "s to the d", lambda d, b, s: new_base(d, b, s, d)),
        ("wrong", "d/(d - 1)", lambda d, b, s: new_base(d, b, s, d / (d - 1))),
        ("malformed", "float32", lambda d, b, s: new_base(d, b, s, d / (d - 2)).float()),
        ("malformed", "the base alone", lambda d, b, s: b * s ** (d / (d - 2))),
        (
            "solved",
            "pair by pair, by a power of s",
            lambda dim, base, scale: (lambda i: base ** (-2 * i / dim) * scale ** (-i / (dim / 2 - 1)))(
                torch.arange(dim // 2, dtype=torch.float64)
            ),
        ),
        (
            "base times scale",
            "by a power of s, one pair short",
            lambda dim, base, scale: (lambda i: base ** (-2 * i / dim) * scale ** (-i / (dim / 2)))(
                torch.arange(dim // 2, dtype=torch.float64)
            ),
        ),
    ],
    "14.7": [
        ("solved", "with lerp", scaled),
        ("solved", "by wavelengths, pair by pair", pair_by_pair),
        (
            "solved",
            "the library",
            lambda w, s, L, slow, fast: llama3_frequencies(
                w, scale=s, trained_length=L, slow_turns=slow, fast_turns=fast
            ),
        ),
        ("all pairs alike", "interpolation", lambda w, s, L, slow, fast: w / s),
        (
            "ramp the wrong way",
            "weights exchanged",
            lambda w, s, L, a, b: scaled(w, s, L, a, b, mix=lambda x, y, g: y.lerp(x, g)),
        ),
        ("2 pi missing", "in radians", lambda w, s, L, a, b: scaled(w, s, L, a, b, turn=1)),
        ("the new length", "s times L", lambda w, s, L, a, b: scaled(w, s, s * L, a, b)),
        ("a step", "where", lambda w, s, L, a, b: torch.where(w * L / (2 * math.pi) < b, w / s, w)),
        (
            "a step at slow",
            "where, from the slow end",
            lambda w, s, L, a, b: torch.where(w * L / (2 * math.pi) <= a, w / s, w),
        ),
        (
            "wavelengths mixed",
            "a harmonic mean",
            lambda w, s, L, a, b: scaled(w, s, L, a, b, mix=lambda x, y, g: 1 / (1 / x).lerp(1 / y, g)),
        ),
        (
            "no clamp",
            "a ramp that goes on",
            lambda w, s, L, a, b: w.lerp(w / s, (b - w * L / (2 * math.pi)) / (b - a)),
        ),
        (
            "divided by fast",
            "1 - r / fast",
            lambda w, s, L, a, b: w.lerp(w / s, (1 - w * L / (2 * math.pi) / b).clamp(min=0)),
        ),
        ("multiplied", "s above", lambda w, s, L, a, b: scaled(w, 1 / s, L, a, b)),
        (
            "wrong",
            "the geometric mean",
            lambda w, s, L, a, b: scaled(w, s, L, a, b, mix=lambda x, y, g: x * (y / x) ** g),
        ),
        ("malformed", "the factors", lambda w, s, L, a, b: scaled(w, s, L, a, b).sum()),
        (
            "wrong",
            "powers of the scale",
            lambda f, scale, length, slow, fast: (
                f * scale ** -((fast - length * f / math.tau) / (fast - slow)).clamp(0, 1)
            ),
        ),
    ],
}
