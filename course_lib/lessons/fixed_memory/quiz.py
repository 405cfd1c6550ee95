"""The quiz of lesson 20, fixed_memory."""

import torch

from course_lib.attention.fixed_memory import recalled, squared_error, write_pairs
from course_lib.lessons.fixed_memory.contents import lesson
from course_lib.lessons.fixed_memory.pictures import pairs
from course_lib.teaching import fact


def _share(keys, memory, values):
    return float(recalled(keys @ memory, values).double().mean())


@lesson.sentence("20.Q1", "Of two memories, the one with the smaller squared error recalls more.", answer=False)
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
    "20.Q2", "A matrix with d rows can hold at most d pairs.", answer="only if the answers must be exact",
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


@lesson.sentence("20.Q3", "Of random pairs that are written once, no matrix recalls more than sums do.", answer=False)
def least_squares():
    """The matrix with the least squared error recalls more. But it has to see all keys together: its inverse weighs each
    key by how it lies to all others. Lesson 22 shows how it can be carried along."""
    keys, values = pairs(256)
    best = torch.linalg.lstsq(keys, values).solution
    return "\n".join(
        (
            fact("256 pairs: the matrix of least squares recalls {:.0%}", _share(keys, best, values), at_least=0.84),
            fact("sums recall {:.0%}", _share(keys, keys.T @ values, values), at_most=0.8),
        )
    )


@lesson.sentence(
    "20.Q4", "With orthonormal keys the delta rule with step size 1 writes the same matrix as plain sums.",
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
