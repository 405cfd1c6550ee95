"""The quiz of lesson 34, fixed_memory."""

import torch

from course_lib.attention.fixed_memory import recalled, squared_error, write_pairs
from course_lib.lessons.fixed_memory.contents import lesson
from course_lib.lessons.fixed_memory.pictures import pairs
from course_lib.teaching import fact


def _share(keys, memory, values):
    return float(recalled(keys @ memory, values).double().mean())


@lesson.sentence("34.Q1", "Of two memories, the one with the smaller squared error recalls more.", answer=False)
def smaller_error():
    """The error says how far an answer is from its value, recall asks which value is nearest. Multiplying all answers by one
    number changes the error and no choice; the delta rule's error is smaller than that of sums, and it recalls less."""
    keys, values = pairs()
    sums, delta = write_pairs(keys, values), write_pairs(keys, values, rule="delta")
    error = squared_error(keys @ sums, values) - squared_error(keys @ delta, values)
    lost = _share(keys, sums, values) - _share(keys, delta, values)
    return "\n".join(
        (
            fact("the squared error of the delta rule is {:.2f} lower", error, at_least=0.5),
            fact("the share that it recalls is {:.2f} lower, too", lost, at_least=0.3),
        )
    )


@lesson.sentence(
    "34.Q2", "A matrix with d rows can hold at most d pairs.", answer="only if the answers must be exact",
    conditions=("only if the answers must be exact", "only if the pairs are written by addition"),
)  # fmt: skip
def at_most_d():
    """No more than d keys can be linearly independent, so exact answers for random values end at d pairs, whatever the rule.
    To be the nearest among the stored values is less than to be exact, and sums of more than d pairs still give that."""
    keys, values = pairs(64)
    exact = squared_error(keys @ torch.linalg.lstsq(keys, values).solution, values)
    keys, values = pairs(128)
    left = squared_error(keys @ torch.linalg.lstsq(keys, values).solution, values)
    return "\n".join(
        (
            fact("d = 64, 64 pairs: the best matrix errs by {:.0e}", exact, at_most=1e-9),
            fact("128 pairs: the best matrix errs by {:.2f}", left, at_least=0.4),
            fact("128 pairs: plain sums still recall {:.0%}", _share(keys, keys.T @ values, values), at_least=0.95),
        )
    )


@lesson.sentence(
    "34.Q3", "Dividing the answer by the summed similarities is sure to make it a finite average of the values.",
    answer="if all similarities have one strict sign",
    conditions=(
        "if no similarity is negative", "if their sum is not 0", "if all similarities have one strict sign",
    ),
)  # fmt: skip
def denominators():
    """Similarities that may be 0 can all be 0, and the quotient is 0/0. A sum that is not 0 makes the answer finite, but
    with mixed signs it can lie outside of the values. One strict sign, positive or negative, gives both."""
    values = torch.tensor([1.0, 3.0], dtype=torch.float64)
    quotient = lambda *sim: float(torch.tensor(sim, dtype=torch.float64) @ values / sum(sim))  # noqa: E731
    return "\n".join(
        (
            fact("values 1 and 3, similarities 2 and -1: {}, outside", quotient(2.0, -1.0), equals=-1, within=0),
            fact("similarities 0 and 0: the answer is not a number", bool(torch.zeros(2).sum().div(0.0).isnan())),
            fact("similarities -1 and -4: {}, inside", quotient(-1.0, -4.0), equals=2.6, within=1e-12),
        )
    )


@lesson.sentence(
    "34.Q4", "In decoding, a fixed state saves memory only for texts much longer than D² tokens, D the entries of a key.",
    answer=False,
)  # fmt: skip
def saves_memory():
    """The cache of softmax attention holds a key and a value for each token, 2D numbers. The state has C(D + 1), with C
    features and a sum for the denominator. For (q·k + 1)² that is about D³/2 numbers, the cache of D²/4 tokens, and for
    elu + 1 far less."""
    d = 64
    square, elu = ((c * (d + 1)) / (2 * d) for c in ((d + 1) * (d + 2) // 2, d))
    return "\n".join(
        (
            fact("D = 64: the state of the square is a cache of {:,.0f} tokens", square, at_most=d**2 / 3),
            fact("that of elu + 1 is a cache of {:.0f}", elu, at_most=d),
        )
    )


@lesson.sentence(
    "34.Q5", "Writing one pair into the sums costs M multiply-adds, one for each entry of the value.", answer=False
)
def cost():
    """The outer product of a key with C entries and a value with M changes every entry of the matrix: C times M."""
    keys, values = pairs(1)
    return fact(
        "one pair of 64 and 64 entries changes {:,} numbers",
        int((keys.T @ values).count_nonzero()),
        equals=4096,
        within=0,
    )


@lesson.sentence(
    "34.Q6", "With orthonormal keys the delta rule with step size 1 writes the same matrix as plain sums.",
    answer="only if no key is written twice",
    conditions=("only if no key is written twice", "only if there are fewer than d pairs"),
)  # fmt: skip
def orthonormal():
    """At a key that is new and orthogonal to all others the memory answers 0, so that the difference is the value itself.
    At a key that was written before, the delta rule replaces the old value and a sum adds to it."""
    keys, (_, values) = torch.eye(64, dtype=torch.float64), pairs(64)
    gap = lambda k, v: float((write_pairs(k, v, rule="delta") - write_pairs(k, v)).abs().max())  # noqa: E731
    return "\n".join(
        (
            fact("64 keys, once each: the matrices differ by {:.0e}", gap(keys, values), at_most=1e-12),
            fact("two keys, one of them twice: by {:.2f}", gap(keys[[0, 1, 0]], values[:3]), at_least=0.1),
        )
    )
