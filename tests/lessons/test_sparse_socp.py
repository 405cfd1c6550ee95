"""What the curves of lesson 32 are, what its explorer says, and answers that its checkers must tell apart."""

import numpy as np
import pytest
import torch

from course_lib.lessons import sparse_socp as lesson
from course_lib.theory.sparse_socp import sdp, signed_graph
from tests.drawing import line_labelled

EXERCISES = lesson.EXERCISES


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


def state_of(**settings):
    defaults = {name: control.default for name, control in lesson.SignExplorer.controls.items()}
    return lesson.SignExplorer().compute(**{**defaults, **settings})


def test_stored_semidefinite_values_are_those_of_the_solver():
    seen = set()
    for flips in ([], [0], [8], [0, 4], [0, 9], [0, 2, 4, 6]):
        signs = np.where(np.isin(np.arange(12), flips), 1.0, -1.0)
        name = lesson.face_class(lesson.frustrated_faces(signs))
        seen.add(name)
        assert sdp(signed_graph(9, lesson.EDGES, signs)).value == pytest.approx(
            lesson.SDP_VALUES[name], abs=1e-4
        )
    assert seen == set(lesson.SDP_VALUES)


def test_the_explorer_opens_gaps_on_frustrated_squares_only():
    assert state_of(first=0)["said"] == (0, 0, (-24.0, -24.0, -24.0))
    assert state_of(first=1)["said"] == (1, 1, (-24.0, lesson.SDP_VALUES["1"], -20.0))
    assert state_of(first=12)["said"][:2] == (1, 2)  # an inner edge belongs to two squares
    assert state_of(first=1, second=8)["said"] == (2, 0, (-24.0, -24.0, -24.0))  # both at one corner
    assert state_of(first=1, second=5)["said"][2][2] == -16.0
    assert state_of(first=4, second=4)["said"][0] == 0  # turned twice


@pytest.mark.parametrize("vertex", range(1, 10))
def test_switching_a_vertex_changes_signs_and_no_value(vertex):
    before, after = state_of(), state_of(vertex=vertex)
    assert after["said"][1:] == before["said"][1:]
    assert [len(x) for x, _ in after["wrong"]] != [len(x) for x, _ in before["wrong"]]


def test_the_best_signs_fail_as_many_edges_as_they_cost():
    for settings in ({}, {"first": 12}, {"first": 1, "second": 5, "vertex": 5}):
        state = state_of(**settings)
        assert state["dots"][2] == -24 + 4 * len(state["failed"][0])


def test_words():
    assert lesson.SignExplorer().frame(first=3)[1] == (
        "Turned: edge 3. 1 of 12 signs are positive and 1 of 4 squares frustrated. Bound by cones -24.00, by the "
        "semidefinite matrix -21.27; the best x has -20.00. The gap of the cones is 4.00."
    )
    assert lesson.SignExplorer().frame(first=0)[1].startswith("Turned: nothing. 0 of 12")
    assert "edge 3, edge 5, all edges at v9" in lesson.SignExplorer().frame(second=5, vertex=9)[1]
    assert lesson.SignExplorer().frame(first=0)[1].endswith("No gap.")


def test_both_predictions_are_answered_by_their_figures():
    left, right = lesson.plot_sizes().axes
    for axes, alike in ((left, True), (right, False)):
        dense, sparse = (
            line_labelled(axes, name).get_ydata() for name in ("all pairs", "pairs with an entry")
        )
        assert np.allclose(dense, sparse, rtol=1e-5) == alike
    four = lesson.plot_cycles().axes[0]
    gap = line_labelled(four, "best signs of x").get_ydata() - line_labelled(four, "cone bound").get_ydata()
    assert gap.tolist() == [0, 4, 0, 4, 0]


def test_the_question_shows_two_kinds():
    a, b = (line_labelled(lesson.plot_question().axes[0], f"kind {k}").get_ydata() for k in "AB")
    assert max(a) < 1e-5 < 1e-2 < min(b)


def test_flows_agree_on_the_tree_and_part_on_the_loops():
    bound, cost = lesson.flow_costs(True).T
    np.testing.assert_allclose(bound, cost, atol=1e-4)
    bound, cost = lesson.flow_costs(False).T
    assert (cost[:-2] / bound[:-2] > 1.1).all()
    assert cost[-1] / bound[-1] == pytest.approx(1, abs=1e-3)


# Exercises


def test_other_forms_of_the_cone_are_accepted():
    cone = lambda f: lambda a, b, x: torch.tensor(f(a, b, x), dtype=torch.float64)  # noqa: E731
    assert grade("32.1", cone(lambda a, b, x: [a + b, 2 * x, b - a])).status == "solved"
    assert grade("32.1", cone(lambda a, b, x: [(a + b) / 2, (a - b) / 2, -x])).status == "solved"
    assert lesson.exercises._is_cone(1.46, -1.46, -0.6, torch.tensor([0, 2.92, -1.2], dtype=torch.float64))
    assert not lesson.exercises._is_cone(
        1.46, -1.46, -0.6, torch.tensor([1, 2.92, -1.2], dtype=torch.float64)
    )
    assert grade("32.1", cone(lambda a, b, x: [-a - b, a - b, 2 * x])).status == "wrong"
    assert grade("32.1", cone(lambda a, b, x: [a + 2 * b, a - b, 2 * x])).status == "wrong"


def test_counts_by_loops_are_accepted():
    def count_cones(matrices):
        n = matrices.shape[1]
        return sum(any(Q[i, j] != 0 for Q in matrices) for i in range(n) for j in range(i))

    assert grade("32.3", count_cones).status == "solved"
    assert grade("32.3", lambda matrices: count_cones(matrices) + 1).status == "wrong"


@pytest.mark.parametrize("positive", range(16))
def test_even_numbers_of_positive_signs_are_counterexamples(positive):
    answer = dict(zip("abcd", [0.5 if positive >> b & 1 else -3 for b in range(4)], strict=True))
    right = positive and bin(positive).count("1") % 2 == 0
    assert (grade("32.4", answer).status == "solved") == bool(right)


def test_switching_by_an_eigenvector_is_accepted():
    def by_eigenvector(Q):
        off = Q - torch.diag(Q.diagonal())
        return torch.linalg.eigh(off).eigenvectors[:, 0].sign()

    assert grade("32.5", by_eigenvector).status == "solved"
    assert grade("32.5", lambda Q: by_eigenvector(Q) * torch.tensor([-1.0] + [1.0] * 5)).status == "wrong"
