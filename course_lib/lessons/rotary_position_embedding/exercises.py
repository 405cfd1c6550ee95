"""Exercises of lesson 14, rotary_position_embedding."""

import cmath
import math

import torch

from course_lib.attention.rotary import layout_order, rope
from course_lib.lessons.rotary_position_embedding.contents import lesson
from course_lib.teaching import edit, inputs, normal, uniform, whole


def _near(wanted):
    return lambda answer: abs(answer - wanted) < 0.005


_SIN, _NO_CONJUGATE = 10 * math.sin(3), 6 * math.cos(7) + 8 * math.sin(7)

lesson.value(
    "14.1", "One score by hand", difficulty=1, minutes=5,
    prompt="A head has two entries and turns by $\\omega = 0.5$ radians a position. The query $x = (3, 1)$ stands at "
    "position 4, the key $y = (1, -3)$ at position 10. What is $\\mathrm{RoPE}(x, 4)^\\top\\mathrm{RoPE}(y, 10)$? Give "
    "it to 0.001 or better.",
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
         "You multiplied the lengths by the cosine of the turn alone. The angle φ from x to y adds to it, as (14.6) says.",
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


def _is_turned(pair, position, frequency, answer):
    wanted = complex(pair[0], pair[1]) * cmath.exp(1j * position * frequency)
    return abs(complex(answer[0], answer[1]) - wanted) < 1e-9 * (1 + float(pair.norm()))


def _overwritten(pair, angle):
    """Turn a pair in place, the second entry from the new first one."""
    first = math.cos(angle) * pair[0] - math.sin(angle) * pair[1]
    return torch.stack([first, math.sin(angle) * first + math.cos(angle) * pair[1]])


@lesson.exercise(
    "14.2", "Turn one pair", difficulty=1, minutes=6,
    prompt="Write `rotate_pair(pair, position, frequency)`: the pair $(x^{(1)}, x^{(2)})$ turned against the clock by "
    "$t\\omega$. `pair` is a float64 tensor of two entries, `position` is the whole number $t$ and `frequency` is "
    "$\\omega$ in radians a position; return a tensor of two entries. Complex numbers are welcome.",
    draw=inputs(noise=normal("2"), pair=lambda noise: noise + torch.tensor([2.0, 0.5], dtype=torch.float64),
                position=whole(2, 40), frequency=uniform(0.1, 1.4)),
    properties=[
        ("The length of the pair should not change.",
         lambda pair, answer: abs(float(answer.norm() - pair.norm())) < 1e-9 * (1 + float(pair.norm()))),
        ("The pair should be turned by position times frequency.", _is_turned),
    ],
    hints=(
        "Write down where (1, 0) and (0, 1) go; the rest follows since turning is linear.",
        "One of the four products has a minus sign: (0, 1) turned a little has a negative first entry.",
        "In complex numbers: torch.view_as_complex, one multiplication by torch.exp of an imaginary number, and back.",
    ),
    mistakes=[
        ("with the clock", edit("position * frequency", "-position * frequency"),
         "You turned with the clock. Scores would still see n - m alone, but they would be those of m - n: a model's "
         "weights know only the convention of (14.2)."),
        ("a reflection", edit("c * pair[0] - s", "c * pair[0] + s", "c * pair[1]])", "-c * pair[1]])"),
         "Both minus signs went astray: your map is a reflection, which keeps lengths too, but two of them do not "
         "depend on n - m in the right way. Exactly one product with a sine is subtracted, in the first entry."),
        ("left out the position", edit("position * frequency", "frequency"),
         "You turned by ω whatever the position. The angle is t ω."),
        ("degrees", edit("position * frequency", "math.radians(position * frequency)"),
         "You took the angle for degrees; it is in radians."),
        ("added instead of multiplied", lambda pair, position, frequency: pair + torch.view_as_real(
            torch.exp(1j * torch.tensor(position * frequency, dtype=torch.float64))),
         "You added cosine and sine to the pair, as the sinusoidal embedding does. RoPE multiplies."),
        ("no minus", edit("c * pair[0] - s", "c * pair[0] + s"),
         "Your lengths change: the sine in the first entry comes with a minus."),
        ("first entry overwritten", lambda pair, position, frequency: _overwritten(pair, position * frequency),
         "Your second entry was made from the new first one. Both need the old pair: compute them before you store them."),
        ("entries exchanged", edit("[c * pair[0] - s * pair[1], s * pair[0] + c * pair[1]]",
                                   "[s * pair[0] + c * pair[1], c * pair[0] - s * pair[1]]"),
         "Both entries are right, and they have changed places."),
        ("turns for radians", edit("position * frequency", "2 * math.pi * position * frequency"),
         "You took ω for whole turns. It is in radians per position."),
        ("positions from 1", edit("position * frequency", "(position + 1) * frequency"),
         "You turned by one position too many: position 0 is not turned."),
    ],
)
def rotate_pair(pair, position, frequency):
    """Turn a pair against the clock by the angle t omega."""
    angle = position * frequency
    c, s = math.cos(angle), math.sin(angle)
    return torch.stack([c * pair[0] - s * pair[1], s * pair[0] + c * pair[1]])


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
    "14.3", "All pairs at their frequencies", difficulty=2, minutes=12,
    prompt="Write `rope_rows(x, positions, base)`: each row of `x`, a float64 tensor of shape `(seq, d)` with even "
    "$d$, turned by its position. `positions` is an integer tensor of shape `(seq,)`, `base` the number that is 10,000 "
    "in (14.8). Use the interleaved layout: neighbours form a pair.",
    draw=inputs(seq=whole(2, 3), pairs=whole(2, 4), d=lambda pairs: 2 * pairs, noise=normal("seq d"),
                x=lambda noise: noise + 2,
                positions=lambda seq, generator: torch.randint(1, 30, (seq,), generator=generator),
                whole_base=whole(10, 200), base=lambda whole_base: float(whole_base)),
    properties=[
        ("The length of every row should stay.",
         lambda x, answer: torch.allclose(answer.norm(dim=-1), x.norm(dim=-1), rtol=1e-9)),
        ("The rows are not turned as (14.7) and (14.8) say.",
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
         "You paired the halves, x_i with x_{i+d/2}. That is the other layout, used by Llama; here neighbours are "
         "pairs."),
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


def _reorder(weight, head_dim, *, source, target):
    order = layout_order(head_dim, source=source, target=target)
    return weight.unflatten(0, (-1, head_dim))[:, order].flatten(0, 1)


def _same_scores(n_heads, head_dim, answer):
    """Whether rows in this order score in the interleaved layout as they did in the half layout."""
    if answer.sort().values.tolist() != list(range(n_heads * head_dim)):
        return False
    generator = torch.Generator().manual_seed(0)
    hidden, w_q, w_k = (
        torch.randn(size, 5, generator=generator, dtype=torch.float64) for size in (3, len(answer), len(answer))
    )

    def scores(w_q, w_k, layout):
        q, k = (
            rope((hidden @ w.T).unflatten(-1, (-1, head_dim)).transpose(0, 1), torch.arange(3), layout=layout)
            for w in (w_q, w_k)
        )
        return q @ k.mT

    expected = scores(w_q, w_k, "half")
    found = scores(w_q[answer], _reorder(w_k, head_dim, source="half", target="interleaved"), "interleaved")
    return torch.allclose(found, expected, rtol=1e-8, atol=1e-8 * float(expected.abs().max()))


@lesson.exercise(
    "14.4", "A Llama matrix for an interleaved kernel", difficulty=2, minutes=10,
    prompt="A checkpoint was trained in the half layout; your kernel turns neighbours. The query weights have shape "
    "`(n_heads * head_dim, d_model)`, and the rows of one head stand together. Write `half_to_interleaved(n_heads, "
    "head_dim)`: the `order` of the rows, an integer tensor of `n_heads * head_dim` indices from 0, for which "
    "`weight[order]` gives the same scores in the interleaved layout, if the keys are reordered likewise.",
    draw=inputs(pairs=whole(3, 4), n_heads=whole(2, 3), head_dim=lambda pairs: 2 * pairs),
    properties=[("The scores are not those of the half layout.", _same_scores)],
    hints=(
        "Where must row d/2 of a head go, counted from 0, so that it becomes the neighbour of row 0?",
        "Within a head, write the rows as a table with two rows of d/2; the new order reads it column by column.",
        "Number all rows, split the numbers into heads, two halves and head_dim/2, exchange two of these, and flatten.",
    ),
    mistakes=[
        ("the way back", edit("(n_heads, 2, head_dim // 2)", "(n_heads, head_dim // 2, 2)"),
         "That is the reordering from interleaved to half. Yours goes the other way: rows that are d/2 apart must "
         "become neighbours."),
        ("all heads as one", edit("(n_heads, 2, head_dim // 2)", "(1, 2, -1)"),
         "You reordered all rows as if they were one head, so rows wander from head to head. Reorder within each "
         "head."),
        ("nothing done", edit(".transpose(1, 2)", ""),
         "The rows stay as they were: neighbours are still different pairs."),
        ("second before first", edit(".transpose(1, 2)", ".transpose(1, 2).flip(2)"),
         "In each pair the second entry comes before the first. The pair would be turned with the clock."),
        ("heads as the fast index", edit("(n_heads, 2, head_dim // 2)", "(2, head_dim // 2, n_heads)",
                                         "transpose(1, 2)", "transpose(0, 1)"),
         "You split the rows as if the heads took turns. The rows of one head stand together: the head is the slowest "
         "index."),
        ("halves exchanged", edit(".transpose(1, 2)", ".flip(1)"),
         "You exchanged the two halves of each head. Row i and row i + d/2 must become neighbours."),
        ("every head from row 0", edit("flatten()", "flatten()[:head_dim].repeat(n_heads)"),
         "All your heads take the rows of the first one. Head h begins at row h times head_dim."),
        ("counted from 1", edit("rows.transpose(1, 2).flatten()", "rows.transpose(1, 2).flatten() + 1"),
         "You counted the rows from 1. Indices start at 0."),
    ],
)
def half_to_interleaved(n_heads, head_dim):
    """Return the order of the rows that makes the halves of each head into neighbours."""
    rows = torch.arange(n_heads * head_dim).view(n_heads, 2, head_dim // 2)
    return rows.transpose(1, 2).flatten()


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
    "14.5", "A line repaired the wrong way", difficulty=2, minutes=8,
    prompt="In the notes one side of $\\mathrm{RoPE}(x, m)^\\top\\mathrm{RoPE}(y, n) = \\dots$ is lost. A reader "
    "repairs it as $\\mathrm{RoPE}(x, n - m)^\\top\\mathrm{RoPE}(y, 0)$: it depends on $n - m$ only, as it should. Still it "
    "is wrong. Give a counterexample with one pair and $\\omega = 1$: a dictionary with the numbers `x1`, `x2`, `y1`, "
    "`y2` (the entries of $x$ and $y$) and whole numbers `m`, `n`, for which the two sides differ by 0.01 or more.",
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


@lesson.exercise(
    "14.6", "A new base for a longer context", difficulty=3, minutes=12,
    prompt="A model was trained with $\\omega_i = b^{-2(i-1)/d}$, $i = 1..d/2$, and is to read a context $s$ times as "
    "long. Write `ntk_frequencies(dim, base, scale)`: the frequencies $b'^{-2(i-1)/d}$ of a new base $b'$, chosen such "
    "that the slowest pair becomes exactly $s$ times slower. `dim` is $d \\ge 6$, `base` is $b$, `scale` is $s > 1$; "
    "return a float64 tensor of $d/2$ entries.",
    draw=inputs(pairs=whole(3, 6), dim=lambda pairs: 2 * pairs, b=whole(50, 10_000), base=lambda b: float(b),
                s=whole(2, 8), scale=lambda s: float(s)),
    properties=[
        ("The fastest pair should turn as before.", lambda answer: abs(float(answer[0]) - 1) < 1e-9),
        ("The slowest pair should be exactly s times slower than before.",
         lambda dim, base, scale, answer: math.isclose(float(answer[-1]), base ** (2 / dim - 1) / scale, rel_tol=1e-7)),
        ("The frequencies should be powers of one number.",
         lambda answer: torch.allclose(answer[1:] / answer[:-1], answer[1] / answer[0], rtol=1e-7, atol=0)),
    ],
    hints=(
        "Write the condition for the last pair only: what is its exponent?",
        "The last pair has i = d/2, so its exponent is -(d - 2)/d.",
        "Take the condition to the power -d/(d - 2) and solve it for the new base.",
    ),
    mistakes=[
        ("all pairs alike", edit(" * scale ** (dim / (dim - 2))", "", "/ dim)", "/ dim) / scale"),
         "You slowed all pairs down alike. That is position interpolation: it squeezes neighbours together for the "
         "fast pairs, too. Here the first pair keeps its frequency."),
        ("base times scale", edit("scale ** (dim / (dim - 2))", "scale"),
         "You multiplied the base by s. The last pair's exponent is (d - 2)/d, not 1, so it is slowed down by less "
         "than s."),
        ("exponent upside down", edit("dim / (dim - 2)", "(dim - 2) / dim"),
         "The exponent of s is upside down: solving for the base takes the inverse of (d - 2)/d."),
        ("faster instead of slower", edit("dim / (dim - 2)", "-dim / (dim - 2)"),
         "Your pairs turn faster than before. A larger base makes them slower."),
        ("one pair too late", edit("arange(0, dim, 2", "arange(2, dim + 2, 2"),
         "Your exponents start at 2/d. For i = 1 the exponent 2(i - 1)/d is 0."),
        ("the old frequencies", edit(" * scale ** (dim / (dim - 2))", ""),
         "These are the frequencies of the old base; s plays no part in them."),
        ("2 in the exponent missing", edit("/ dim)", "/ (2 * dim))"),
         "The 2 in the exponent 2(i - 1)/d is missing: your slowest pair turns like the root of the base."),
        ("power of s too large", edit("scale ** (dim / (dim - 2))", "scale ** dim"),
         "You raised s to the power d. Solve b'^(-(d-2)/d) = b^(-(d-2)/d)/s for b'."),
        ("only the last pair", lambda dim, base, scale: torch.cat([
            (old := base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim))[:-1], old[-1:] / scale]),
         "You changed the last pair alone. The new frequencies should come from one new base, which changes all but "
         "the first."),
    ],
)
def ntk_frequencies(dim, base, scale):
    """Return the frequencies of a new base that slows the slowest pair by `scale` and the fastest not at all."""
    new_base = base * scale ** (dim / (dim - 2))
    return new_base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)

def _turns(frequencies, length):
    return length * frequencies / (2 * math.pi)


@lesson.exercise(
    "14.7", "Slow only the slow pairs", difficulty=3, minutes=10,
    prompt="Write `by_turns(frequencies, scale, length, slow, fast)`, the scaling of Llama 3 (14.12). `frequencies` holds "
    "$\\omega_i$, a float64 tensor; `length` is the trained length $L$, `scale` is $s > 1$, and $0 <$ `slow` $<$ `fast` "
    "count turns. Pairs with `fast` turns or more over $L$ positions keep $\\omega_i$, those with `slow` or less get "
    "$\\omega_i/s$; between them the share of $\\omega_i/s$ falls linearly in the turns. Return the new frequencies.",
    draw=inputs(pairs=whole(8, 10), base=whole(200, 400), slow=whole(1, 2), more=whole(3, 6), scale=whole(2, 8),
                length=whole(100, 400), fast=lambda slow, more: slow + more,
                frequencies=lambda pairs, base: float(base) ** (-torch.arange(pairs, dtype=torch.float64) / pairs)),
    properties=[
        ("Pairs with `fast` turns or more should keep their frequency.",
         lambda frequencies, length, fast, answer: torch.allclose(
             answer[(kept := _turns(frequencies, length) >= fast)], frequencies[kept], rtol=1e-9, atol=0)),
        ("Pairs with `slow` turns or fewer should be divided by s.",
         lambda frequencies, scale, length, slow, answer: torch.allclose(
             answer[(rest := _turns(frequencies, length) <= slow)], frequencies[rest] / scale, rtol=1e-9, atol=0)),
        ("Between `slow` and `fast` the two are mixed, with a share that is linear in the turns.",
         lambda frequencies, scale, length, slow, fast, answer: torch.allclose(
             answer, by_turns(frequencies, scale, length, slow, fast), rtol=1e-7, atol=0)),
    ],
    hints=(
        "Count first how many turns each pair makes over the trained length: an angle divided by a full turn.",
        "The share of the slowed frequency is 0 at `fast` turns and 1 at `slow` turns, and stays there beyond.",
        "A difference divided by (fast - slow), clamped to 0 and 1, then a weighted mean of ω and ω/s.",
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
         "You mixed the wavelengths. The frequencies are mixed: (1 - g) ω + g ω/s."),
        ("multiplied", edit("frequencies / scale", "frequencies * scale"),
         "You made the slow pairs faster. For a longer context they are divided by s."),
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
