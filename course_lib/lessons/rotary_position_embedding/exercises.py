"""Exercises of lesson 18, rotary_position_embedding."""

import cmath
import math

import torch

from course_lib.attention.rotary import layout_order, rope
from course_lib.lessons.rotary_position_embedding.contents import lesson
from course_lib.teaching import edit, inputs, normal, whole


def _near(wanted):
    return lambda answer: abs(answer - wanted) < 0.005


_SIN, _NO_CONJUGATE = 10 * math.sin(3), 6 * math.cos(7) + 8 * math.sin(7)

lesson.value(
    "18.1", "One score by hand", difficulty=1, minutes=5,
    prompt="A head has two entries and turns by $\\omega = 0.5$ radians a position. The query $x = (3, 1)$ stands at "
    "position 4, the key $y = (1, -3)$ at position 10. What is the score, the inner product of both, turned as in "
    "(18.2)? Give it to 0.001 or better.",
    answer=_SIN,
    properties=[
        ("That is not the product of the two turned vectors.",
         lambda answer: abs(answer - ((3 - 1j) * (1 - 3j) * cmath.exp(3j)).real) <= 0.002),
    ],
    hints=(
        "Only the difference of the positions counts: leave x where it is and turn y.",
        "With z = 3 + j and w = 1 - 3j the score is the real part of conj(z) w times a rotation.",
        "conj(z) w is -10j here; multiply by e to the j times the angle and take the real part.",
    ),
    mistakes=[
        ("turned the other way", -_SIN,
         "The sign is the wrong way round: the key is turned by +(n - m) ω when the query stays.", _near(-_SIN)),
        ("left out the frequency", 10 * math.sin(6),
         "You turned by 6 radians, the number of positions; each position turns by ω = 0.5.", _near(10 * math.sin(6))),
        ("added the positions", 10 * math.sin(7),
         "You turned by (m + n) ω. In the inner product the rotation of the query is undone: the difference counts.",
         _near(10 * math.sin(7))),
        ("no conjugate", _NO_CONJUGATE,
         "That is the real part of z w without the conjugate. The inner product of two vectors in the plane is "
         "Re(conj(z) w).", _near(_NO_CONJUGATE)),
        ("degrees", 10 * math.sin(math.radians(3)), "You took 3 for degrees; ω is in radians.",
         _near(10 * math.sin(math.radians(3)))),
        ("the angle between them left out", 10 * math.cos(3),
         "You multiplied the lengths by the cosine of the turn alone. The angle from x to y adds to it.",
         _near(10 * math.cos(3))),
        ("only the key turned", 10 * math.sin(5),
         "You turned the key by its own position and left the query where it was. The query is turned by 4 ω, too.",
         _near(10 * math.sin(5))),
        ("counted both ends", 10 * math.sin(3.5),
         "You counted 7 positions, both ends included. The difference 10 - 4 counts.", _near(10 * math.sin(3.5))),
        ("divided by the root of d", _SIN / math.sqrt(2),
         "You divided by √d, as attention does later. The question asks for the inner product itself.",
         _near(_SIN / math.sqrt(2))),
        ("lengths left out", math.sin(3),
         "That is the cosine of the angle between the turned vectors. The lengths of x and y belong to it.",
         _near(math.sin(3))),
        ("no rotation", 0.0, "That is the product of x and y without any rotation.", _near(0.0)),
    ],
)


def _fault(x1, x2, y1, y2, m, n):
    """Name what keeps a proposed counterexample from being one."""
    z, w = complex(x1, x2), complex(y1, y2)
    if not (float(m).is_integer() and float(n).is_integer()):
        return "between positions"
    if abs(z) < 1e-9 or abs(w) < 1e-9:
        return "nothing there"
    if m == n:
        return "same position"
    if abs((z.conjugate() * w).imag) <= 1e-6 * abs(z) * abs(w):
        return "one line"
    turn = cmath.exp(1j * (float(n) - float(m)))
    # The product of the turned vectors, and what the repaired line says it is.
    gap = (z.conjugate() * w * turn).real - ((z * turn).conjugate() * w).real
    return "none" if abs(gap) >= 0.01 else "too close"


def _has(fault):
    return lambda answer: _fault(**{name: float(value) for name, value in answer.items()}) == fault


def _case(**changed):
    return {"x1": 1.0, "x2": 0.0, "y1": 0.0, "y2": 1.0, "m": 0.0, "n": 1.0, **changed}


lesson.flaw(
    "18.2", "A line repaired the wrong way", difficulty=2, minutes=7,
    prompt="A reader remembers (18.3) as $R_{m\\omega}x\\cdot R_{n\\omega}y = R_{(n-m)\\omega}x\\cdot y$: it depends on "
    "$n - m$ only, as it should. Still it is wrong. Give a counterexample with $\\omega = 1$: a dictionary with the numbers "
    "`x1`, `x2`, `y1`, `y2` (the entries of $x$ and $y$) and whole numbers `m`, `n`, for which the two sides differ by 0.01 "
    "or more.",
    answer=_case(),
    properties=[("Your case is not one that was asked for, or both sides agree.", _has("none"))],
    hints=(
        "Write both sides with complex numbers: each is the real part of a product with one rotation.",
        "The two rotations are each other's conjugates: by which angle do they differ?",
        "The cosine part is the same on both sides. Choose x and y so that the sine part counts.",
    ),
    mistakes=[
        ("the same position", _case(m=2.0, n=2.0),
         "With m = n nothing is turned on either side. Take two different positions.", _has("same position")),
        ("vectors on one line", _case(x2=2.0, y1=1.0, y2=2.0),
         "Your x and y lie on one line. Then the score is a multiple of cos(n - m), and a cosine does not tell n - m "
         "from m - n. Take vectors that are not parallel.", _has("one line")),
        ("a zero vector", _case(x1=0.0), "One of your vectors is zero, so both sides are zero.", _has("nothing there")),
        ("not a position", _case(n=0.5), "Positions are whole numbers: choose m and n so.", _has("between positions")),
        ("too small to see", _case(x1=0.01, y2=0.01),
         "Both sides differ, but by less than 0.01: take longer vectors, or another distance (355 is nearly a multiple "
         "of a half turn).", _has("too close")),
    ],
)


def _angles(x, positions, base):
    return positions[:, None] * base ** (-torch.arange(0, x.shape[1], 2, dtype=x.dtype) / x.shape[1])


def _with_half_angles(x, positions, base):
    """Turn neighbours by angles that are listed for the half layout."""
    angles = _angles(x, positions, base).repeat(1, 2)
    every_two = torch.stack([-x[:, 1::2], x[:, ::2]], -1).flatten(1)
    return x * angles.cos() + every_two * angles.sin()


def _no_minus(x, positions, base):
    """Turn neighbours, with a plus where the minus belongs."""
    angles, a, b = _angles(x, positions, base), x[:, ::2], x[:, 1::2]
    c, s = angles.cos(), angles.sin()
    return torch.stack([a * c + b * s, a * s + b * c], -1).flatten(1)


@lesson.exercise(
    "18.3", "All pairs at their frequencies", difficulty=2, minutes=10,
    prompt="Write `rope_rows(x, positions, base)`: each row of `x`, a float64 tensor of shape `(seq, d)` with even "
    "$d$, turned by its position. `positions` is an integer tensor of shape `(seq,)`, `base` the number that is 10,000 "
    "in (18.5). Neighbours form a pair: the first two entries turn by $\\omega_1$.",
    draw=inputs(seq=whole(2, 3), pairs=whole(2, 4), d=lambda pairs: 2 * pairs, noise=normal("seq d"),
                x=lambda noise: noise + 2,
                positions=lambda seq, generator: torch.randint(1, 30, (seq,), generator=generator),
                whole_base=whole(10, 200), base=lambda whole_base: float(whole_base)),
    properties=[
        ("The length of every row should stay.",
         lambda x, answer: torch.allclose(answer.norm(dim=-1), x.norm(dim=-1), rtol=1e-9)),
        ("The rows are not turned as (18.4) and (18.5) say.",
         lambda x, positions, base, answer: torch.allclose(answer, rope(x, positions, base=base), rtol=1e-7, atol=1e-7)),
    ],
    hints=(
        "Begin with the tensor of angles, one row a position and one column a pair.",
        "The first pair turns by one radian a position, whatever the base: its exponent is zero.",
        "Reshape the last dimension to (d/2, 2), view it as complex, multiply, and go back.",
    ),
    mistakes=[
        ("one pair too late", edit("arange(0, d, 2", "arange(2, d + 2, 2"),
         "Your exponents start at 2/d. For i = 1 the exponent 2(i - 1)/d is 0: the first pair turns by one radian a "
         "position."),
        ("half the exponents", edit(" / d)", " / (2 * d))"),
         "The 2 in the exponent is missing: your slowest pair turns like the root of the base, not like the base."),
        ("last pair at one over the base", edit(" / d)", " / (d - 2))"),
         "You divided by d - 2, so that the last frequency is 1/base. The exponent of the last pair, 2(i - 1)/d, "
         "is below 1."),
        ("first entries, then second ones", lambda x, positions, base:
         rope(x, positions, base=base)[:, layout_order(x.shape[1], source="interleaved", target="half")],
         "You turned the right pairs and returned all first entries, then all second ones. Each pair goes back to its "
         "place."),
        ("one frequency for all", edit(" / d)", " * 0)"),
         "All your pairs turn at one frequency. Pair i has its own, smaller with every i."),
        ("halves for neighbours", lambda x, positions, base: rope(x, positions, layout="half", base=base),
         "You paired the halves, x_i with x_{i+d/2}. That is another layout, which transformers uses for Llama; here "
         "neighbours are pairs."),
        ("with the clock", edit("angles = positions", "angles = -positions"),
         "You turned with the clock: the sign of the angle is wrong."),
        ("positions from 1", edit("positions[:, None]", "(positions[:, None] + 1)"),
         "You added 1 to the positions. They come as they are: position 0 is not turned."),
        ("angles of the halves", lambda x, positions, base: _with_half_angles(x, positions, base),
         "You made neighbours into pairs but listed the angles as for halves, all frequencies once and then again. Each "
         "frequency must stand twice in a row: `repeat_interleave`, not `repeat` or `cat`."),
        ("rows for positions", edit("positions[:, None]", "torch.arange(len(positions))[:, None]"),
         "You turned row t by t. The positions come in `positions`, and need not start at 0 or be consecutive."),
        ("base built in", edit("base **", "10_000.0 **"),
         "You used 10,000. The base comes as an argument."),
        ("frequencies that grow", edit("(-torch", "(torch"),
         "Your frequencies grow with i. The exponent is negative: the first pair is the fastest."),
        ("no minus", lambda x, positions, base: _no_minus(x, positions, base),
         "Your lengths change: in each pair the sine in the first entry comes with a minus."),
    ],
)
def rope_rows(x, positions, base):
    """Turn each row of x by its position, interleaved layout."""
    d = x.shape[-1]
    frequencies = base ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
    angles = positions[:, None] * frequencies
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)


def _is(value):
    return lambda answer: abs(answer - value) < 1e-6


lesson.value(
    "18.4", "Where does it look now?", difficulty=1, minutes=4,
    prompt="A trained head scores the key five back highest. For texts four times as long, all its frequencies are divided "
    "by 4, as in (18.7), and nothing is trained. At about which distance does a key score highest now?",
    answer=20,
    properties=[("At that distance the hands do not stand as they did five back.", _is(20))],
    hints=(
        "Where did each hand stand, at the distance that the head has learned?",
        "A hand has turned by distance times frequency. Which distance gives the old angle at the new frequency?",
        "s times ω/4 must be 5 times ω, for all pairs at once.",
    ),
    mistakes=[
        ("not moved", 5, "At distance 5 each hand has turned by a quarter of what it had turned by in training.", _is(5)),
        ("the wrong way", 1.25, "You divided by 4. The hands are slower, so they need more positions for their old angles.",
         _is(1.25)),
        ("added", 9, "You added 4 to 5. The frequencies are divided, not shifted.", _is(9)),
        ("subtracted", 1, "You took 4 from 5. The frequencies are divided, not shifted.", _is(1)),
        ("by 16", 80, "That is where it looks when the frequencies are divided by 16.", _is(80)),
        ("from the end", 236, "You counted from the start of 256 letters. The distance is counted back from the query.",
         _is(236)),
    ],
)  # fmt: skip


def _turns(frequencies, length):
    return length * frequencies / (2 * math.pi)


@lesson.exercise(
    "18.5", "Slow by turns", difficulty=3, minutes=9,
    prompt="Write `by_turns(frequencies, scale, length, slow, fast)`, which becomes (18.8). `frequencies` holds "
    "$\\omega_i$, a float64 tensor; `length` is the trained length $L$, `scale` is $f > 1$, and $0 <$ `slow` $<$ `fast` "
    "count turns. Pairs with `fast` turns or more over $L$ positions keep $\\omega_i$, those with `slow` or less get "
    "$\\omega_i/f$; between them the share of $\\omega_i/f$ falls linearly in the turns. Return the new frequencies.",
    draw=inputs(pairs=whole(8, 10), base=whole(200, 400), slow=whole(1, 2), more=whole(3, 6), scale=whole(2, 8),
                length=whole(100, 400), fast=lambda slow, more: slow + more,
                frequencies=lambda pairs, base: float(base) ** (-torch.arange(pairs, dtype=torch.float64) / pairs)),
    properties=[
        ("Pairs with `fast` turns or more should keep their frequency.",
         lambda frequencies, length, fast, answer: torch.allclose(
             answer[(kept := _turns(frequencies, length) >= fast)], frequencies[kept], rtol=1e-9, atol=0)),
        ("Pairs with `slow` turns or fewer should be divided by f.",
         lambda frequencies, scale, length, slow, answer: torch.allclose(
             answer[(rest := _turns(frequencies, length) <= slow)], frequencies[rest] / scale, rtol=1e-9, atol=0)),
        ("Between `slow` and `fast` the two are mixed, with a share that is linear in the turns.",
         lambda frequencies, scale, length, slow, fast, answer: torch.allclose(
             answer, by_turns(frequencies, scale, length, slow, fast), rtol=1e-7, atol=0)),
    ],
    hints=(
        "Count first how many turns each pair makes over the trained length: an angle divided by a full turn.",
        "The share of the slowed frequency is 0 at `fast` turns and 1 at `slow` turns, and stays there beyond.",
        "A difference divided by (fast - slow), clamped to 0 and 1, then a weighted mean of ω and ω/f.",
    ),
    mistakes=[
        ("ramp the wrong way", edit("(fast - turns)", "(turns - slow)"),
         "Your ramp runs the wrong way: you slow the fast pairs and leave the slow ones alone."),
        ("no clamp", edit(".clamp(0, 1)", ""),
         "Your share leaves 0 to 1 outside of the ramp. Keep it within them."),
        ("2 pi missing", edit(" / (2 * math.pi)", ""),
         "You counted radians for turns. A turn is 2π radians."),
        ("the new length", edit("length * frequencies", "scale * length * frequencies"),
         "You counted turns over the new context. What training has shown is set by the trained length."),
        ("all pairs alike", edit("(1 - share) * frequencies + share * frequencies / scale", "frequencies / scale"),
         "You slowed all pairs down alike: that is interpolation."),
        ("a step", edit("((fast - turns) / (fast - slow)).clamp(0, 1)", "(turns < fast).double()"),
         "You have a step, not a ramp: every pair below `fast` turns gets the full factor."),
        ("a step at slow", edit("((fast - turns) / (fast - slow)).clamp(0, 1)", "(turns <= slow).double()"),
         "You have a step, not a ramp: pairs between `slow` and `fast` turns are not slowed at all."),
        ("wavelengths mixed", edit("(1 - share) * frequencies + share * frequencies / scale",
                                   "frequencies / (1 - share + share * scale)"),
         "You mixed the wavelengths. The frequencies are mixed: (1 - g) ω + g ω/f."),
        ("multiplied", edit("frequencies / scale", "frequencies * scale"),
         "You made the slow pairs faster. For a longer context they are divided by f."),
        ("divided by fast", edit("(fast - slow)", "fast"),
         "Your ramp is divided by `fast`, so it does not reach 1 at `slow` turns. Divide by fast - slow."),
    ],
)
def by_turns(frequencies, scale, length, slow, fast):
    """Keep fast pairs, slow the slow ones by the scale, and mix the two between them."""
    turns = length * frequencies / (2 * math.pi)
    share = ((fast - turns) / (fast - slow)).clamp(0, 1)
    return (1 - share) * frequencies + share * frequencies / scale


EXERCISES = lesson.exercises
