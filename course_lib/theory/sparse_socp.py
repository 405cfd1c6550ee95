"""Second-order cone relaxations of quadratic programmes, and which of their cones are needed (lesson 32).

A quadratically constrained quadratic programme (QCQP) is lifted: X stands for x x^T, so that each quadratic form is linear
in X. What is kept of "X = x x^T" is that every 2 x 2 minor is at least 0, one second-order cone for each pair (i, j). Only
pairs on which some matrix has an entry matter: the other X_ij can be set to 0 afterwards. Problems are numpy and scipy
data on the CPU, which is where the solver is; it is CLARABEL, called without a modelling language in between.

Source of the idea: arXiv:1911.02188 (abstract).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy import sparse
from scipy.optimize import linprog, minimize
from scipy.sparse.csgraph import breadth_first_order

Pairs = Int[np.ndarray, "_ 2"]


# Problems


@dataclass(frozen=True)
class QCQP:
    """min x^T Q_0 x + 2 q_0^T x with x^T Q_p x + 2 q_p^T x <= b_p (32.2); = b_p where `equal`.

    Shapes: `matrices` Q_0 to Q_m, symmetric (n, n), sparse or not, kept sparse; `bounds` (m,); `linear` (m + 1, n) or None;
    `equal` (m,) or None.

    Raises:
        ValueError: a matrix is not square, not symmetric or not finite, or shapes do not fit.
    """

    matrices: Sequence
    bounds: Float[np.ndarray, " m"]
    linear: Float[np.ndarray, "rows n"] | None = None
    equal: Bool[np.ndarray, " k"] | None = None

    def __post_init__(self):
        matrices = tuple(sparse.csr_array(Q, dtype=np.float64) for Q in self.matrices)
        if not matrices:
            raise ValueError("matrices must hold at least that of the objective, got none")
        n, m = matrices[0].shape[0], len(matrices) - 1
        for p, Q in enumerate(matrices):
            if Q.shape != (n, n):
                raise ValueError(f"matrices[{p}] must have shape {(n, n)}, got {Q.shape}")
            if not np.isfinite(Q.data).all():
                raise ValueError(f"matrices[{p}] must be finite, got NaN or infinity")
            if Q.nnz and abs(Q - Q.T).max() > 1e-12 * abs(Q).max():
                raise ValueError(f"matrices[{p}] must be symmetric, entries differ by {abs(Q - Q.T).max():g}")
        for name, wanted in (("bounds", (m,)), ("linear", (m + 1, n)), ("equal", (m,))):
            found = getattr(self, name)
            if found is not None and found.shape != wanted:
                raise ValueError(f"{name} must have shape {wanted}, got {found.shape}")
        object.__setattr__(self, "matrices", matrices)

    @property
    def n(self) -> int:
        """The number of unknowns."""
        return self.matrices[0].shape[0]

    def forms(self, x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " rows"]:
        """The values at x of the objective and of every constraint's left side, (m + 1,)."""
        found = np.array([x @ (Q @ x) for Q in self.matrices])
        return found if self.linear is None else found + 2 * self.linear @ x

    def violation(self, x: Float[np.ndarray, " n"]) -> float:
        """By how much x breaks the constraint that it breaks most; negative with room in all of them."""
        over = self.forms(x)[1:] - self.bounds
        return float(
            np.where(self.equality, np.abs(over), over).max(initial=-np.inf)
        )  # without constraints: -inf

    @property
    def equality(self) -> Bool[np.ndarray, " m"]:
        """Which constraints are equations."""
        return np.zeros(len(self.bounds), dtype=bool) if self.equal is None else self.equal


def with_apex(problem: QCQP) -> QCQP:
    """The same problem without linear terms: one more unknown, last, whose square is 1 (32.11).

    x^T Q x + 2 q^T x = (x, 1)^T [[Q, q], [q^T, 0]] (x, 1). A problem without linear terms is returned as it is.
    """
    if problem.linear is None:
        return problem
    n = problem.n
    lifted = [
        sparse.block_array([[Q, q[:, None]], [q[None], None]], format="csr")
        for Q, q in zip(problem.matrices, problem.linear, strict=True)
    ]
    one = sparse.csr_array(([1.0], ([n], [n])), shape=(n + 1, n + 1))
    return QCQP([*lifted, one], np.append(problem.bounds, 1.0), equal=np.append(problem.equality, True))


def _uniform(low: float | int, high: float | int, *shape: int, generator: torch.Generator) -> np.ndarray:
    return low + (high - low) * torch.rand(*shape, generator=generator, dtype=torch.float64).numpy()


def symmetric(
    n: int, pairs: Pairs, diagonal: Float[np.ndarray, " n"], entries: Float[np.ndarray, " E"]
) -> sparse.csr_array:
    """The symmetric matrix with this diagonal and these entries above and below it, 0 elsewhere.

    Raises:
        ValueError: there is not one entry for each pair, or not one on the diagonal for each of the n.
    """
    if (len(entries), len(diagonal)) != (len(pairs), n):
        raise ValueError(
            f"diagonal and entries must have {n} and {len(pairs)} numbers, got {len(diagonal)} and {len(entries)}"
        )
    i, j = pairs.T
    all_of = np.concatenate
    place = (all_of([np.arange(n), i, j]), all_of([np.arange(n), j, i]))
    return sparse.csr_array((all_of([diagonal, entries, entries]), place), shape=(n, n))


def random_problem(
    n: int,
    pairs: Pairs,
    *,
    signs: Float[np.ndarray, " E"] | None = None,
    n_constraints: int = 5,
    generator: torch.Generator,
) -> QCQP:
    """A bounded problem on the given pairs: every Q_p has entries of the sign `signs` there, by default -1.

    Diagonals of Q_0 are uniform in (-1, 1), its other entries in size in (0, 1); those of the constraints in (.5, 1.5) and
    (0, .1), with b in (1, 2). Scaled to a bounded problem also where a vertex has more than four neighbours.
    """
    signs = -np.ones(len(pairs)) if signs is None else signs
    draw = lambda low, high, *shape: _uniform(low, high, *shape, generator=generator)  # noqa: E731
    crowd = max(1.0, np.bincount(pairs.ravel(), minlength=n).max(initial=0) / 4)
    matrices = [symmetric(n, pairs, draw(-1, 1, n), signs * draw(0, 1, len(pairs)))]
    for _ in range(n_constraints):
        matrices.append(symmetric(n, pairs, draw(0.5, 1.5, n), signs * draw(0, 0.1 / crowd, len(pairs))))
    return QCQP(matrices, draw(1, 2, n_constraints))


def lattice_edges(k: int) -> Pairs:
    """The 2 k (k - 1) edges of the k x k lattice, vertices counted row by row."""
    at = np.arange(k * k).reshape(k, k)
    across, down = np.stack([at[:, :-1], at[:, 1:]], -1), np.stack([at[:-1], at[1:]], -1)
    return np.concatenate([across.reshape(-1, 2), down.reshape(-1, 2)])


def wrong_signs(
    n: int, pairs: Pairs, share: float | int, *, generator: torch.Generator
) -> Float[np.ndarray, " E"]:
    """-1 on all edges but a random share of them, which get +1."""
    if not 0 <= share <= 1:
        raise ValueError(f"share must lie in [0, 1], got {share}")
    signs = -np.ones(len(pairs))
    signs[torch.randperm(len(pairs), generator=generator).numpy()[: round(share * len(pairs))]] = 1
    return signs


def lattice(k: int, *, wrong: float | int = 0.0, generator: torch.Generator) -> QCQP:
    """`random_problem` on the k x k lattice; a share `wrong` of its edges has the sign +."""
    pairs = lattice_edges(k)
    return random_problem(
        k * k, pairs, signs=wrong_signs(k * k, pairs, wrong, generator=generator), generator=generator
    )


def bipartite_edges(a: int, b: int) -> Pairs:
    """All pairs of one of the first a and one of the next b vertices."""
    return np.stack(np.meshgrid(np.arange(a), a + np.arange(b), indexing="ij"), -1).reshape(-1, 2)


def signed_graph(n: int, pairs: Pairs, signs: Float[np.ndarray, " E"]) -> QCQP:
    """min 2 sum of sign_ij x_i x_j over the edges, with x_i^2 <= 1."""
    units = [sparse.csr_array(([1.0], ([i], [i])), shape=(n, n)) for i in range(n)]
    return QCQP([symmetric(n, pairs, np.zeros(n), signs), *units], np.ones(n))


def cycle_edges(k: int) -> Pairs:
    """The edges of the cycle of k vertices."""
    return np.stack([np.arange(k), (np.arange(k) + 1) % k], -1)


# Which cones


def edges_by_loops(problem: QCQP) -> set[tuple[int, int]]:
    """E = {(i, j): i < j, some Q_p has an entry at (i, j)} (32.4), to be read."""
    n = problem.n
    return {(i, j) for i in range(n) for j in range(i + 1, n) if any(Q[i, j] != 0 for Q in problem.matrices)}


def edges(problem: QCQP) -> Pairs:
    """The aggregate edges (32.4), (E, 2), first index first. Entries that cancel in a sum of matrices count."""
    pattern = sum(abs(Q) for Q in problem.matrices)
    i, j = sparse.triu(pattern, 1).nonzero()
    return np.stack([i, j], -1)[np.lexsort((j, i))].astype(np.int64)


def all_pairs(n: int) -> Pairs:
    """All n (n - 1) / 2 pairs i < j."""
    return np.stack(np.triu_indices(n, 1), -1)


def chordal_fill(n: int, pairs: Pairs) -> Pairs:
    """The pairs that a chordal extension adds: the vertex of least degree goes first, its neighbours become a clique."""
    near = [set() for _ in range(n)]
    for i, j in pairs.tolist():
        near[i].add(j)
        near[j].add(i)
    left, added = set(range(n)), []
    while left:
        v = min(left, key=lambda u: (len(near[u]), u))
        left.remove(v)
        for i in near[v]:
            new = {j for j in near[v] if j > i and j not in near[i]}
            added += [(i, j) for j in new]
            near[i] |= new
            for j in new:
                near[j].add(i)
        for i in near[v]:
            near[i].remove(v)
    return np.array(sorted(added), dtype=np.int64).reshape(-1, 2)


def switching(n: int, pairs: Pairs, signs: Float[np.ndarray, " E"]) -> Float[np.ndarray, " n"] | None:
    """Signs s with s_i s_j sign_ij = -1 on every edge (32.6), or None: some cycle is frustrated.

    Along a spanning tree every s is forced; the other edges, one for each independent cycle, then hold or do not.
    """
    i, j = pairs.T
    graph = sparse.csr_array((np.ones(len(pairs)), (i, j)), shape=(n, n))
    signed = symmetric(n, pairs, np.zeros(n), signs).tolil()
    s = np.zeros(n)
    for root in range(n):
        if s[root] == 0:
            order, before = breadth_first_order(graph, root, directed=False)
            s[root] = 1.0
            for v in order[1:]:
                s[v] = -s[before[v]] * signed[v, before[v]]
    return s if (s[i] * s[j] * signs == -1).all() else None


def edge_signs(problem: QCQP) -> Float[np.ndarray, " E"]:
    """The sign that all matrices have on each edge, 0 where they disagree (a problem with linear terms: see `with_apex`)."""
    i, j = edges(problem).T
    found = np.stack([np.sign(np.asarray(Q[i, j]).ravel()) for Q in problem.matrices])
    return found.max(0) * (found.min(0) >= 0) + found.min(0) * (found.max(0) <= 0)


# The relaxations


@dataclass(frozen=True)
class Relaxation:
    """A solved relaxation: the bound `value`, X on the diagonal (n,) and on `pairs` (v, 2), and the number of `cones`.

    A problem with linear terms has its apex as the last vertex.
    """

    value: float
    diagonal: Float[np.ndarray, " n"]
    pairs: Pairs
    entries: Float[np.ndarray, " v"]
    cones: int

    def completed(self) -> Float[np.ndarray, "n n"]:
        """X with 0 on all other pairs (32.4)."""
        return symmetric(len(self.diagonal), self.pairs, self.diagonal, self.entries).toarray()

    def point(self) -> Float[np.ndarray, " n"]:
        """x_i = sqrt X_ii (32.5): a solution of the QCQP where no off-diagonal entry is positive."""
        return np.sqrt(np.maximum(self.diagonal, 0))


def least_minor(X: Float[np.ndarray, "n n"]) -> float:
    """The smallest X_ii X_jj - X_ij^2 over all pairs."""
    i, j = np.triu_indices(len(X), 1)
    return float((X[i, i] * X[j, j] - X[i, j] ** 2).min())


def conic_solve(
    cost: Float[np.ndarray, " v"], rows: sparse.spmatrix | sparse.sparray, right: Float[np.ndarray, " r"],
    cones: Sequence[tuple], *, tolerance: float = 1e-8,
) -> Float[np.ndarray, " v"]:  # fmt: skip
    """min cost . z with right - rows z in a product of cones, by CLARABEL.

    `cones` are (kind, size) or (kind, size, how many): zero, nonnegative, second-order (first entry at least the length
    of the others), psd (size is the side; entries of the upper triangle by columns, those off the diagonal times sqrt 2).
    `tolerance` bounds the gap between primal and dual value and all residuals, relative to the numbers of the problem.

    Raises:
        ValueError: the problem is infeasible or unbounded.
        RuntimeError: the solver gave up.
    """
    import clarabel

    kinds = {
        "zero": clarabel.ZeroConeT,
        "nonnegative": clarabel.NonnegativeConeT,
        "second-order": clarabel.SecondOrderConeT,
        "psd": clarabel.PSDTriangleConeT,
    }
    made = [cone for kind, size, *count in cones if size for cone in [kinds[kind](size)] * (count or [1])[0]]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    size = len(cost)
    found = clarabel.DefaultSolver(
        sparse.csc_matrix((size, size)), cost, sparse.csc_matrix(rows), right, made, settings
    ).solve()
    status = str(found.status)
    if "PrimalInfeasible" in status:
        raise ValueError("the relaxation is infeasible, and so is the problem")
    if "DualInfeasible" in status:
        raise ValueError("the relaxation is unbounded: a cone on a needed edge or a constraint is missing")
    if status != "Solved":
        raise RuntimeError(f"the solver stopped with {status}: scale the problem's numbers to about 1")
    return np.asarray(found.x)


def _union(n: int, *sets: Pairs) -> Pairs:
    keys = np.unique(np.concatenate([np.sort(p, axis=1) @ [n, 1] for p in sets]))
    return np.stack([keys // n, keys % n], -1)


def _coefficients(problem: QCQP, pairs: Pairs) -> sparse.csr_array:
    """The forms as linear functions of (diagonal, entries on pairs), which are sorted: (m + 1, n + v)."""
    n, keys = problem.n, pairs @ [problem.n, 1]
    rows, columns, values = [], [], []
    for p, Q in enumerate(problem.matrices):
        Q = sparse.triu(Q).tocoo()
        i, j = Q.coords
        rows.append(np.full(len(i), p))
        columns.append(np.where(i == j, i, n + np.searchsorted(keys, i * n + j)))
        values.append(np.where(i == j, 1, 2) * Q.data)
    place = (np.concatenate(rows), np.concatenate(columns))
    return sparse.csr_array((np.concatenate(values), place), shape=(len(problem.matrices), n + len(pairs)))


def _checked_pairs(n: int, pairs: Pairs) -> Pairs:
    if len(pairs) and (pairs.min() < 0 or pairs.max() >= n or (pairs[:, 0] == pairs[:, 1]).any()):
        raise ValueError(f"pairs must hold two different vertices from 0 to {n - 1}, got {pairs.tolist()}")
    return _union(n, pairs)


def _linear_rows(problem: QCQP, forms: sparse.csr_array) -> tuple[sparse.csr_array, np.ndarray, list]:
    order = np.argsort(~problem.equality, kind="stable")
    equations = int(problem.equality.sum())
    cones = [("zero", equations), ("nonnegative", len(order) - equations)]
    return forms[1:][order], problem.bounds[order], cones


def socp(problem: QCQP, pairs: Pairs | None = None) -> Relaxation:
    """min <Q_0, X> with <Q_p, X> <= b_p and X_ij^2 <= X_ii X_jj on `pairs` (32.3), by default the aggregate edges.

    Each cone is |(X_ii - X_jj, 2 X_ij)| <= X_ii + X_jj. `all_pairs(n)` gives the dense relaxation. A pair that is left
    out although a matrix has an entry there keeps its X_ij, free of any cone.

    Raises:
        ImportError, ValueError, RuntimeError: see `conic_solve`; pairs are not pairs of vertices.
    """
    problem = with_apex(problem)
    n, aggregate = problem.n, edges(problem)
    coned = aggregate if pairs is None else _checked_pairs(n, pairs)
    kept = _union(n, aggregate, coned)
    forms = _coefficients(problem, kept)
    rows, right, cones = _linear_rows(problem, forms)
    (i, j), count = coned.T, len(coned)
    own = n + np.searchsorted(kept @ [n, 1], coned @ [n, 1])
    alone = np.setdiff1d(np.arange(n), coned)  # in no cone: X_ii >= 0 has to be asked for
    at = 3 * np.arange(count)
    place = (
        np.concatenate([at, at, at + 1, at + 1, at + 2]),
        np.concatenate([i, j, i, j, own]),
    )
    minus = np.repeat([-1.0, -1.0, -1.0, 1.0, -2.0], count)
    width = n + len(kept)
    cone_rows = sparse.csr_array((minus, place), shape=(3 * count, width))
    z = conic_solve(
        forms[[0]].toarray()[0],
        sparse.vstack([rows, -sparse.eye_array(width, format="csr")[alone], cone_rows]),
        np.concatenate([right, np.zeros(len(alone) + 3 * count)]),
        [*cones, ("nonnegative", len(alone)), ("second-order", 3, count)],
    )
    return Relaxation(float((forms[[0]] @ z)[0]), z[:n], kept, z[n:], count)


def socp_by_cuts(
    problem: QCQP, pairs: Pairs | None = None, *, rounds: int = 60, tolerance: float = 1e-7
) -> Relaxation:
    """The same relaxation by linear programmes, to be read, and for a machine without CLARABEL.

    A 2 x 2 matrix is positive semidefinite if u^2 X_ii + 2 u v X_ij + v^2 X_jj >= 0 for all (u, v). Four directions to
    begin with; then, in every round, the eigenvector of each matrix whose smaller eigenvalue is negative.

    Raises:
        ValueError: a linear programme is infeasible or unbounded.
        RuntimeError: an eigenvalue is still below -`tolerance` after the last round.
    """
    problem = with_apex(problem)
    n, aggregate = problem.n, edges(problem)
    coned = aggregate if pairs is None else _checked_pairs(n, pairs)
    kept = _union(n, aggregate, coned)
    forms = _coefficients(problem, kept)
    own = n + np.searchsorted(kept @ [n, 1], coned @ [n, 1])
    everyone, equal = np.arange(len(coned)), problem.equality

    def cut(which, u, v):
        i, j = coned[which].T
        at = np.arange(len(which))
        place = (np.tile(at, 3), np.concatenate([i, own[which], j]))
        return -sparse.csr_array(
            (np.concatenate([u * u, 2 * u * v, v * v]), place), shape=(len(which), n + len(kept))
        )

    unit = np.ones(len(coned))
    cuts = [cut(everyone, a * unit, b * unit) for a, b in ((1, 0), (0, 1), (1, 1), (1, -1))]
    for _ in range(rounds):
        stacked = sparse.vstack([forms[1:][~equal], *cuts])
        right = np.concatenate([problem.bounds[~equal], np.zeros(stacked.shape[0] - (~equal).sum())])
        equations = (forms[1:][equal], problem.bounds[equal]) if equal.any() else (None, None)
        limits = [(0, None)] * n + [(None, None)] * len(kept)
        found = linprog(
            forms[[0]].toarray()[0], A_ub=stacked, b_ub=right, A_eq=equations[0], b_eq=equations[1],
            bounds=limits, method="highs", options={"primal_feasibility_tolerance": 1e-10},
        )  # fmt: skip
        if found.x is None:
            raise ValueError(f"the linear programme has no solution: {found.message}")
        z = found.x
        blocks = np.empty((len(coned), 2, 2))
        blocks[:, 0, 0], blocks[:, 1, 1] = z[coned[:, 0]], z[coned[:, 1]]
        blocks[:, 0, 1] = blocks[:, 1, 0] = z[own]
        values, vectors = np.linalg.eigh(blocks)
        broken = np.flatnonzero(values[:, 0] < -tolerance)
        if not len(broken):
            return Relaxation(float(found.fun), z[:n], kept, z[n:], len(coned))
        cuts.append(cut(broken, vectors[broken, 0, 0], vectors[broken, 1, 0]))
    raise RuntimeError(f"the smallest eigenvalue is {values[:, 0].min():g} after {rounds} rounds")


def sdp(problem: QCQP) -> Relaxation:
    """The semidefinite relaxation: the whole X positive semidefinite in the place of its 2 x 2 minors.

    Raises:
        ImportError, ValueError, RuntimeError: see `conic_solve`.
    """
    problem = with_apex(problem)
    n = problem.n
    pairs = all_pairs(n)
    forms = _coefficients(problem, pairs)
    rows, right, cones = _linear_rows(problem, forms)
    i, j = pairs.T
    diagonal = np.arange(n)
    triangle = n * (n + 1) // 2  # entry (i, j), i <= j, has the place j (j + 1) / 2 + i
    place = (
        np.concatenate([diagonal * (diagonal + 3) // 2, j * (j + 1) // 2 + i]),
        np.arange(triangle),
    )
    scale = np.concatenate([np.ones(n), np.full(len(pairs), 2**0.5)])
    z = conic_solve(
        forms[[0]].toarray()[0],
        sparse.vstack([rows, -sparse.csr_array((scale, place), shape=(triangle, triangle))]),
        np.concatenate([right, np.zeros(triangle)]),
        [*cones, ("psd", n)],
        tolerance=1e-7,
    )
    return Relaxation(float((forms[[0]] @ z)[0]), z[:n], pairs, z[n:], 1)


# Bounds from above


def local_minimum(problem: QCQP, start: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """A local solution of the QCQP itself, by scipy's SLSQP from `start`; its value bounds the optimum from above.

    Raises:
        RuntimeError: no feasible point was found.
    """
    matrices = np.stack([Q.toarray() for Q in problem.matrices])
    linear = np.zeros((len(matrices), problem.n)) if problem.linear is None else problem.linear
    slopes = lambda x: 2 * (matrices @ x + linear)  # noqa: E731
    forms = lambda x: (matrices @ x + 2 * linear) @ x  # noqa: E731
    parts = [("eq", problem.equality), ("ineq", ~problem.equality)]
    found = minimize(
        lambda x: forms(x)[0],
        start,
        jac=lambda x: slopes(x)[0],
        constraints=[
            {
                "type": kind,
                "fun": lambda x, which=which: (problem.bounds - forms(x)[1:])[which],
                "jac": lambda x, which=which: -slopes(x)[1:][which],
            }
            for kind, which in parts
            if which.any()
        ],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-10},
    ).x
    if problem.violation(found) > 1e-6:
        raise RuntimeError(f"SLSQP found no feasible point: one is broken by {problem.violation(found):g}")
    return found


def least_by_signs(problem: QCQP) -> float:
    """The smallest x^T Q_0 x over all x of signs -1 and 1, by trying all with x_1 = 1: the optimum of `signed_graph`.

    Raises:
        ValueError: there are more than 20 unknowns.
    """
    if (n := problem.n) > 20:
        raise ValueError(f"the problem must have at most 20 unknowns to try all signs, got {n}")
    x = 1 - 2.0 * ((np.arange(2 ** (n - 1))[:, None] >> np.arange(n)) & 1)[:, ::-1]
    return float(((x @ problem.matrices[0].toarray()) * x).sum(1).min())
