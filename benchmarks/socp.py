"""Cone relaxations of lattices: our assembly and CLARABEL against the same problem through CVXPY, and dense against sparse.

Wall time of one thread, from the matrices to the solution, every candidate once a round: building the cones and, for CVXPY,
canonicalisation are part of it. Less than 1 means faster than what is named after the stroke. The optima's differences are
relative to the value.
"""

import time

import numpy as np
import torch

from benchmarks.timing import Spread, interleave
from course_lib.theory.sparse_socp import QCQP, all_pairs, edges, lattice, socp

ROUNDS = 9


def by_cvxpy(problem: QCQP) -> float:
    """Solve the sparse relaxation as one would write it in CVXPY: one vectorised second-order cone."""
    import cvxpy as cp

    pairs = edges(problem)
    i, j = pairs.T
    diagonal, entries = cp.Variable(problem.n), cp.Variable(len(pairs))
    forms = [Q.diagonal() @ diagonal + 2 * np.asarray(Q[i, j]).ravel() @ entries for Q in problem.matrices]
    cones = cp.SOC(diagonal[i] + diagonal[j], cp.vstack([diagonal[i] - diagonal[j], 2 * entries]), axis=0)
    limits = [form <= bound for form, bound in zip(forms[1:], problem.bounds, strict=True)]
    return cp.Problem(cp.Minimize(forms[0]), [cones, *limits]).solve(solver=cp.CLARABEL)


def _exactly(value: float) -> Spread:
    return Spread(value, value, value)


def run() -> dict[str, Spread]:
    """Return ratios of time, seconds, numbers of cones and differences of the optima."""
    torch.set_num_threads(1)
    figures = {}
    for k in (10, 18):
        problem = lattice(k, generator=torch.Generator().manual_seed(0))
        candidates = {"direct": lambda _, p=problem: socp(p), "cvxpy": lambda _, p=problem: by_cvxpy(p)}
        if k == 10:
            candidates["dense"] = lambda _, p=problem: socp(p, all_pairs(p.n))
        seconds = interleave(candidates, rounds=ROUNDS, clock=time.perf_counter, warm_up=1)
        direct = np.array(seconds["direct"])
        figures[f"k = {k}: direct / through CVXPY"] = Spread.of(direct / np.array(seconds["cvxpy"]))
        found = socp(problem)
        figures[f"k = {k}: cones, sparse"] = _exactly(found.cones)
        figures[f"k = {k}: |direct - CVXPY| / |value|"] = _exactly(abs(1 - by_cvxpy(problem) / found.value))
        if k == 10:
            figures["k = 10: dense / sparse"] = Spread.of(np.array(seconds["dense"]) / direct)
            dense = socp(problem, all_pairs(problem.n))
            figures["k = 10: cones, dense"] = _exactly(dense.cones)
            figures["k = 10: |dense - sparse| / |value|"] = _exactly(abs(1 - dense.value / found.value))
    problem = lattice(60, generator=torch.Generator().manual_seed(0))
    seconds = interleave({"k = 60": lambda _: socp(problem)}, rounds=3, clock=time.perf_counter, warm_up=1)
    figures["k = 60: seconds, sparse"] = Spread.of(seconds["k = 60"])
    figures["k = 60: cones, sparse"] = _exactly(socp(problem).cones)
    return figures
