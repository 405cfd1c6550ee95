"""Cone relaxations of quadratic programmes: which cones are needed, and when the bound is the minimum."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.theory import sparse_socp as ss
from course_lib.theory.sparse_socp import QCQP

rng = lambda seed: torch.Generator().manual_seed(seed)  # noqa: E731
PAIR = np.array([[0, 1]])


def signed(k, *positive):
    """A cycle of k unknowns; the edges with these numbers are positive."""
    return ss.signed_graph(k, ss.cycle_edges(k), np.where(np.isin(np.arange(k), positive), 1.0, -1.0))


# The record


def test_forms_and_violation_by_hand():
    problem = QCQP(
        [[[1, 2], [2, 0]], np.eye(2), [[0, 1], [1, 0]]],
        np.array([4.0, 3.0]),
        linear=np.array([[1.0, 0], [0, 0], [0, 1]]),
        equal=np.array([False, True]),
    )
    x = np.array([1.0, 3.0])
    assert problem.forms(x).tolist() == [1 + 12 + 2, 10, 6 + 6]
    assert problem.violation(x) == 9.0  # the equation, 12 against 3
    assert problem.violation(np.array([0.5, 1.5 / 1.5])) == pytest.approx(0, abs=1e-12)
    assert QCQP([np.eye(2)], np.zeros(0)).violation(x) == -np.inf


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: QCQP([], np.zeros(0)), "matrices must hold at least"),
        (lambda: QCQP([np.ones((2, 3))], np.zeros(0)), r"matrices\[0\] must have shape \(2, 2\), got \(2, 3\)"),
        (lambda: QCQP([np.eye(2), np.eye(3)], np.zeros(1)), r"matrices\[1\] must have shape \(2, 2\)"),
        (lambda: QCQP([np.triu(np.ones((2, 2)))], np.zeros(0)), "must be symmetric, entries differ by 1"),
        (lambda: QCQP([np.diag([1, np.nan])], np.zeros(0)), "must be finite"),
        (lambda: QCQP([np.eye(2)], np.zeros(1)), r"bounds must have shape \(0,\), got \(1,\)"),
        (lambda: QCQP([np.eye(2)], np.zeros(0), np.zeros((2, 2))), r"linear must have shape \(1, 2\)"),
        (lambda: QCQP([np.eye(2)], np.zeros(0), None, np.ones(1, bool)), r"equal must have shape \(0,\)"),
        (lambda: ss.wrong_signs(3, PAIR, 1.5, generator=rng(0)), r"share must lie in \[0, 1\], got 1.5"),
        (lambda: ss.symmetric(2, PAIR, np.zeros(2), np.zeros(3)), "2 and 1 numbers, got 2 and 3"),
        (lambda: ss.socp(signed(3), np.array([[0, 3]])), "pairs must hold two different vertices"),
        (lambda: ss.least_by_signs(ss.lattice(5, generator=rng(0))), "at most 20 unknowns"),
    ],
)  # fmt: skip
def test_bad_input_is_named(made, said):
    with pytest.raises(ValueError, match=said):
        made()


# Graphs


@pytest.mark.parametrize("k", [2, 3, 10])
def test_lattice_counts(k):
    found = ss.lattice_edges(k)
    assert len(found) == len({tuple(sorted(e)) for e in found.tolist()}) == 2 * k * (k - 1)
    row, column = np.divmod(found, k)
    assert (abs(np.diff(row)) + abs(np.diff(column)) == 1).all()
    assert len(ss.all_pairs(k * k)) / len(found) == pytest.approx(k * (k + 1) / 4)


def test_edges_are_the_union_and_survive_cancelling():
    one, two = np.zeros((4, 4)), np.zeros((4, 4))
    one[0, 1] = one[1, 0] = 2
    two[0, 1] = two[1, 0] = -2
    two[2, 3] = two[3, 2] = 1
    problem = QCQP([one, two, np.eye(4)], np.zeros(2))
    assert ss.edges(problem).tolist() == [[0, 1], [2, 3]]
    assert ss.edges_by_loops(problem) == {(0, 1), (2, 3)}
    for seed in range(3):
        random = ss.lattice(4, generator=rng(seed))
        assert set(map(tuple, ss.edges(random).tolist())) == ss.edges_by_loops(random)


def test_chordal_fill_of_a_cycle_is_a_triangulation():
    assert len(ss.chordal_fill(7, ss.cycle_edges(7))) == 4
    assert len(ss.chordal_fill(7, ss.cycle_edges(7)[:-1])) == 0  # a path is chordal
    # After filling, nothing is left to fill.
    lattice = ss.lattice_edges(4)
    filled = np.concatenate([lattice, ss.chordal_fill(16, lattice)])
    assert len(filled) > len(lattice)
    assert len(ss.chordal_fill(16, filled)) == 0


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**12 - 1))
def test_switching_finds_signs_exactly_when_no_square_is_frustrated(number):
    pairs = ss.lattice_edges(3)
    signs = 2.0 * np.array([number >> b & 1 for b in range(12)]) - 1
    sign = {tuple(p): s for p, s in zip(pairs.tolist(), signs, strict=True)}
    squares = [((a, a + 1), (a + 3, a + 4), (a, a + 3), (a + 1, a + 4)) for a in (0, 1, 3, 4)]
    frustrated = any(np.prod([sign[p] for p in square]) < 0 for square in squares)
    found = ss.switching(9, pairs, signs)
    assert (found is None) == frustrated
    if found is not None:
        assert (found[pairs[:, 0]] * found[pairs[:, 1]] * signs == -1).all()


def test_switching_of_several_parts_and_signs_that_disagree():
    pairs = np.array([[0, 1], [2, 3]])
    assert ss.switching(5, pairs, np.array([1.0, -1.0])).tolist() == [1, -1, 1, 1, 1]
    problem = QCQP([[[0, 1], [1, 0]], [[1, -1], [-1, 1]]], np.ones(1))
    assert ss.edge_signs(problem).tolist() == [0]
    assert ss.edge_signs(ss.lattice(3, wrong=1, generator=rng(0))).tolist() == [1] * 12


# Relaxations


def test_one_pair_by_hand():
    """min -2 x1 x2 with x1^2 <= 1 and x2^2 <= 4: X12 = 2."""
    problem = QCQP([[[0, -1], [-1, 0]], np.diag([1.0, 0]), np.diag([0, 1.0])], np.array([1.0, 4.0]))
    for solve in (ss.socp, ss.socp_by_cuts, ss.sdp):
        found = solve(problem)
        assert found.value == pytest.approx(-4, abs=1e-5)
        np.testing.assert_allclose(found.point(), [1, 2], atol=1e-4)
    # 4 X12 <= X11 X22, the cone without the factor 2, would give -8, and X12 <= (X11 + X22) / 2 gives -5.


@pytest.mark.parametrize("wrong", [0.0, 0.5])
def test_sparse_dense_and_cuts_have_one_value(wrong):
    for seed in range(3):
        problem = ss.lattice(4, wrong=wrong, generator=rng(seed))
        sparse, dense = ss.socp(problem), ss.socp(problem, ss.all_pairs(16))
        assert (sparse.cones, dense.cones) == (24, 120)
        assert sparse.value == pytest.approx(dense.value, rel=1e-6)
        assert ss.socp_by_cuts(problem).value == pytest.approx(sparse.value, rel=1e-5)
        X = sparse.completed()
        assert ss.least_minor(X) >= -1e-6
        assert np.linalg.eigvalsh(X)[0] < -0.05 * X.max()
        forms = [(Q.toarray() * X).sum() for Q in problem.matrices]
        assert forms[0] == pytest.approx(sparse.value, abs=1e-7)
        assert (np.array(forms[1:]) <= problem.bounds + 1e-6).all()


def test_good_signs_are_solved_and_mixed_ones_leave_a_gap():
    for seed in range(3):
        good = ss.lattice(4, generator=rng(seed))
        found = ss.socp(good)
        x = found.point()
        assert good.violation(x) <= 1e-6
        assert good.forms(x)[0] == pytest.approx(found.value, abs=1e-5)
        assert ss.sdp(good).value == pytest.approx(found.value, abs=1e-5)
        mixed = ss.lattice(4, wrong=0.5, generator=rng(seed))
        assert ss.socp(mixed).value == pytest.approx(found.value, abs=1e-6)  # cones see no signs
        assert ss.sdp(mixed).value - found.value >= 1e-2
        local = ss.local_minimum(mixed, np.full(16, 0.1))
        assert mixed.forms(local)[0] >= ss.sdp(mixed).value - 1e-5


@pytest.mark.parametrize("k", [3, 4, 7])
def test_cycles_by_their_formulas(k):
    turned, even = signed(k, 0), signed(k, 0, 1)
    assert ss.socp(turned).value == pytest.approx(-2 * k, abs=1e-5)
    assert ss.sdp(turned).value == pytest.approx(-2 * k * np.cos(np.pi / k), abs=1e-5)
    assert ss.least_by_signs(turned) == -2 * (k - 2)
    assert ss.least_by_signs(even) == -2 * k
    assert ss.sdp(even).value == pytest.approx(-2 * k, abs=1e-5)


def test_a_missing_cone_lowers_the_bound_or_takes_it_away():
    base = ss.lattice(4, generator=rng(1))
    far = base.matrices[1].tolil()
    far[0, 15] = far[15, 0] = -0.1
    problem = QCQP([base.matrices[0], far, *base.matrices[2:]], base.bounds)
    assert ss.socp(problem).value - ss.socp(problem, ss.lattice_edges(4)).value > 0.01
    for solve in (ss.socp, ss.socp_by_cuts):
        with pytest.raises(ValueError, match=r"unbounded|no solution"):
            solve(base, ss.lattice_edges(4)[1:])


def test_a_vertex_without_an_edge_has_no_negative_square():
    """min x3^2 - 2 x1 x2: without X33 >= 0 there would be no minimum."""
    Q = np.zeros((3, 3))
    Q[0, 1] = Q[1, 0] = -1
    Q[2, 2] = 1
    for solve in (ss.socp, ss.socp_by_cuts):
        assert solve(QCQP([Q, np.diag([1.0, 1, 0])], np.ones(1))).value == pytest.approx(-1, abs=1e-5)


def test_infeasible_is_said():
    problem = QCQP([np.eye(2), -np.eye(2), np.eye(2)], np.array([-3.0, 1.0]))
    with pytest.raises(ValueError, match="infeasible"):
        ss.socp(problem)
    with pytest.raises(ValueError, match="no solution"):
        ss.socp_by_cuts(problem)


def test_linear_terms_by_hand():
    """min x^2 - 2 x with x^2 <= 4 has its minimum -1 at x = 1."""
    problem = QCQP([np.eye(1), np.eye(1)], np.array([4.0]), linear=np.array([[-1.0], [0.0]]))
    lifted = ss.with_apex(problem)
    x = np.array([0.7])
    assert lifted.forms(np.append(x, 1))[:2] == pytest.approx(problem.forms(x))
    assert lifted.equality.tolist() == [False, True]
    assert ss.with_apex(lifted) is lifted
    for solve in (ss.socp, ss.socp_by_cuts, ss.sdp):
        found = solve(problem)
        assert found.value == pytest.approx(-1, abs=1e-5)
        np.testing.assert_allclose(found.point(), [1, 1], atol=1e-3)
    np.testing.assert_allclose(ss.local_minimum(problem, np.array([-0.5])), [1], atol=1e-5)


def test_cuts_that_run_out_of_rounds_say_so():
    with pytest.raises(RuntimeError, match=r"smallest eigenvalue is .* after 2 rounds"):
        ss.socp_by_cuts(ss.lattice(3, generator=rng(0)), rounds=2)


def test_no_feasible_point_is_said():
    problem = QCQP([np.eye(2), -np.eye(2), np.eye(2)], np.array([-3.0, 1.0]))
    with pytest.raises(RuntimeError, match="no feasible point"):
        ss.local_minimum(problem, np.ones(2))


def test_generators():
    pairs = ss.bipartite_edges(2, 3)
    assert pairs.tolist() == [[0, 2], [0, 3], [0, 4], [1, 2], [1, 3], [1, 4]]
    assert (ss.wrong_signs(9, ss.lattice_edges(3), 0.25, generator=rng(0)) > 0).sum() == 3
    one, other = (ss.lattice(3, wrong=w, generator=rng(4)) for w in (0.0, 0.5))
    for Q, P in zip(one.matrices, other.matrices, strict=True):
        np.testing.assert_array_equal(abs(Q).toarray(), abs(P).toarray())  # kinds differ in signs only
    crowded = ss.random_problem(33, ss.bipartite_edges(3, 30), generator=rng(0))
    for Q in crowded.matrices[1:]:
        assert np.linalg.eigvalsh(Q.toarray())[0] > 0  # so the feasible set is bounded
