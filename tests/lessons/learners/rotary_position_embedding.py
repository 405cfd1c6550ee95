"""Lesson 18: what learners answer, and what tells them too early."""

import cmath
import math

import torch

from course_lib.attention.rotary import llama3_frequencies, rope
from course_lib.teaching import edit

GIVES_AWAY = {
    "18.P1": [
        r"(?i)answer only about half",
        r"(?i)scores nearly as high",
        r"(?i)answered about half",
    ],
    "18.P2": [r"(?i)every second step", r"(?i)nearly half of all", r"(?i)the logarithm of"],
    "18.P3": [r"(?i)repairs most of it", r"63\.98", r"(?i)every combination", r"(?i)capping the fast pairs"],
}

NEIGHBOURS = {
    "18.1": ("A(X[:, order]) - A(X)[:, order]", "A(X[:, order]) - A(X)[:, order.flip(0)]"),
    "18.c1": ("others = [4, 2, 3, 1, 0, 5]", "others = [5, 2, 3, 1, 0, 4]"),
    "18.3": ("score(x, y, start + 9, start)", "score(x, y, 2 * start + 9, start)"),
    "18.4": ("hands = z * w.conj()", "hands = z * w"),
    "18.6": ("law = 1 - (s.log() + 0.5772)", "law = 1 - s.log()"),
    "18.c2": ("omega).diff() > 0", "omega).diff() > 0.05"),
    "18.e1": ("mean(same(lesson.FAST_CAPPED))", "mean(same(lesson.LLAMA))"),
    "18.e2": ("mean(same(lesson.SLOW_CAPPED))", "mean(same(lesson.FAST_CAPPED))"),
    "18.e3": ("mean(same(lesson.CAPPED))", "mean(same(lesson.LLAMA))"),
    "18.7": ("[five, twenty]", "[twenty, five]"),
    "18.9": ("new = rope_frequencies(64), ntk_frequencies(64, scale=16)",
             "new = rope_frequencies(64), rope_frequencies(64) / 16"),
    "18.e4": ("mean(far(lesson.LLAMA)) - ", "mean(far(lesson.NTK)) - "),
}  # fmt: skip


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


def case(x1, x2, y1, y2, m, n):
    return {"x1": x1, "x2": x2, "y1": y1, "y2": y2, "m": m, "n": n}


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
    "18.1": [
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
    "18.2": [
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
    "18.3": [
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
    "18.4": [
        ("solved", "five times four", 5 * 4),
        ("solved", "a float", 20.0),
        ("solved", "a tensor", torch.tensor(20)),
        ("not moved", "distances count", 5),
        ("the wrong way", "five quarters", 5 / 4),
        ("added", "five and four", 5 + 4),
        ("subtracted", "five less four", torch.tensor(1.0)),
        ("by 16", "sixteen times", 5 * 16),
        ("from the end", "a position", 256 - 20),
        ("wrong", "one before", 19),
        ("malformed", "in words", "twenty"),
    ],
    "18.5": [
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
