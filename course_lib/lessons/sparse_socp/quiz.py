"""Sentences of lesson 32, guests in two rooms, each with what decides on it."""

from dataclasses import replace

import numpy as np
from scipy import sparse

from course_lib.lessons.sparse_socp.contents import lesson
from course_lib.lessons.sparse_socp.pictures import found_bounds, nine, rng
from course_lib.teaching import fact
from course_lib.theory.frustration import (
    bound_by_rules,
    complete,
    every_cycle,
    every_square,
    fewest_unhappy,
    grid,
    odd_squares_only,
    semidefinite_bound,
)
from course_lib.theory.sparse_socp import QCQP, lattice, lattice_edges, random_problem, sdp, socp


@lesson.sentence(
    "32.Q1",
    "Fewer conditions, weaker bound: dropping the condition of a pair lowers the bound of (32.3).",
    answer="only if a matrix has an entry there",
    conditions=("only if a matrix has an entry there", "only if that entry is positive"),
)
def fewer():
    """It can then; without any entry there, (32.4) shows that nothing changes. Below, a pair with an entry in one constraint
    only, of either sign: without its condition the bound falls."""
    problem = lattice(4, generator=rng(1))
    falls = []
    for entry in (-0.1, 0.1):
        far = problem.matrices[1].tolil()
        far[0, 15] = far[15, 0] = entry
        changed = QCQP([problem.matrices[0], far, *problem.matrices[2:]], problem.bounds)
        falls.append(socp(changed).value - socp(changed, lattice_edges(4)).value)
    return fact("an entry of -0.1 or 0.1: the bound falls by {:.2f}", falls, at_least=0.01)


@lesson.sentence("32.Q2", "The more pairs quarrel, the more pairs stay unhappy.", answer=False)
def more():
    """Parity counts: an even number of quarrels round every square costs nothing."""
    least = [fewest_unhappy(nine(np.where(np.arange(12) < k, 1.0, -1.0))) for k in (1, 12)]
    return fact("nine guests, 1 quarrel and 12 quarrels: unhappy {:.0f}", least, equals=[1, 0], within=0)


@lesson.sentence(
    "32.Q3",
    "On lattices the bound by cones equals the semidefinite bound.",
    answer="guaranteed only if the signs can be switched away",
    conditions=("guaranteed only if the signs can be switched away", "guaranteed only if all weights are 1"),
)
def equal():
    """If they can, both are the minimum, by (32.5) and (32.6). If a square is odd they may differ: below, three random
    problems on 4 x 4 unknowns with one positive pair. They need not: with 10 added to the diagonal of Q_0, both are 0."""
    one = np.where(np.arange(24) == 4, 1.0, -1.0)
    problems = [random_problem(16, lattice_edges(4), signs=one, generator=rng(seed)) for seed in range(3)]
    gaps = [sdp(problem).value - socp(problem).value for problem in problems]
    with_ten = []
    for problem in problems:
        heavy = QCQP([problem.matrices[0] + 10 * sparse.identity(16), *problem.matrices[1:]], np.abs(problem.bounds))
        with_ten += [abs(sdp(heavy).value), abs(socp(heavy).value)]
    return "\n".join(
        [
            fact("semidefinite less cones: {:.4f}", gaps, at_least=1e-3),
            fact("10 added to the diagonal: both bounds {:.0e}", with_ten, at_most=1e-4),
        ]
    )


@lesson.sentence("32.Q4", "The rules of all cycles always give a better bound than a semidefinite X.", answer=False)
def always():
    """Seven guests who all quarrel: the fewest unhappy are what a maximum cut of the complete graph leaves. The semidefinite
    bound, rounded up, is even exact. On a torus the rules of all cycles can miss, too, before
    rounding."""
    guests = complete(7)
    torus = grid(4, 4, share=0.5, wrap=True, generator=rng(5))
    return "\n".join(
        [
            fact("fewest unhappy {:.0f}", fewest_unhappy(guests), equals=9, within=0),
            fact("semidefinite {:.2f}", semidefinite_bound(guests), equals=8.75, within=1e-3),
            fact("all cycles {:.2f}", every_cycle(guests)[0], equals=7, within=1e-6),
            fact("a torus of 4 x 4: fewest unhappy {:.0f}", fewest_unhappy(torus), equals=6, within=0),
            fact("all cycles {:.2f}", every_cycle(torus)[0], equals=16 / 3, within=1e-6),
        ]
    )


@lesson.sentence(
    "32.Q5",
    "If all weights are 1, one rule for each odd square gives the fewest unhappy pairs on a plane lattice.",
    answer=False,
)
def alone():
    """It did on thirty small ones; larger draws often fail. The smallest reason: only the middle square of 4 x 4 guests is
    odd. An unhappy pair there lies on another square, too, so its other square needs a second unhappy pair."""
    guests = grid(4, 4, generator=rng(0))
    pairs = guests.pairs.tolist()
    signs = np.where([pair in ([5, 9], [4, 8]) for pair in pairs], 1.0, -1.0)
    planted = replace(guests, signs=signs)
    large = found_bounds("plane 10 × 10", True)
    missed = [found_bounds(f"plane {size}", True) for size in ("4 × 4", "4 × 5")]
    return "\n".join(
        [
            fact("thirty drawn lattices: largest gap {:.0e}",
                 [np.abs(one["odd squares"] - one["truth"]).max() for one in missed], at_most=1e-6),
            fact("10 x 10: of 15 drawn, one rule for each odd square misses the truth on {:.0f}",
                 int((large["odd squares"] < large["truth"] - 1e-6).sum()), at_least=5),
            fact("only the middle square odd: fewest unhappy {:.0f}", fewest_unhappy(planted), equals=2, within=0),
            fact("one rule for each odd square: {:.0f}", bound_by_rules(planted, odd_squares_only(planted)),
                 equals=1, within=1e-6),
            fact("all rules of every square: {:.0f}", bound_by_rules(planted, every_square(planted)), equals=2,
                 within=1e-6),
        ]
    )  # fmt: skip


@lesson.sentence(
    "32.Q6",
    "Friends may become enemies and enemies friends, and nothing changes, if all pairs of one guest turn.",
    answer=True,
)
def switched():
    """Put this guest into the other room: every seating has a partner with the same unhappy pairs, (32.6)."""
    guests = grid(4, 4, share=0.25, equal=False, generator=rng(3))
    turned = replace(guests, signs=np.where((guests.pairs == 5).any(1), -1, 1) * guests.signs)
    gaps = [abs(fewest_unhappy(guests) - fewest_unhappy(turned)),
            abs(semidefinite_bound(guests) - semidefinite_bound(turned)),
            abs(bound_by_rules(guests, every_square(guests)) - bound_by_rules(turned, every_square(turned)))]  # fmt: skip
    return fact("4 x 4, truth and two bounds: they change by at most {:.0e}", gaps, at_most=1e-5)
