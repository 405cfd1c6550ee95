"""What the pictures of lesson 32 show, what its explorer says, and answers that its checkers must tell apart."""

import numpy as np
import pytest
import torch

from course_lib.lessons import sparse_socp as lesson
from course_lib.teaching.style import text_alternative
from course_lib.theory.frustration import best_seating, every_cycle, fewest_unhappy, semidefinite_bound
from tests.drawing import line_labelled

EXERCISES = lesson.EXERCISES


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


def state_of(**settings):
    defaults = {name: control.default for name, control in lesson.SeatingExplorer.controls.items()}
    return lesson.SeatingExplorer().compute(**{**defaults, **settings})


# Nine guests


def test_the_three_parties_are_those_of_the_text():
    assert [int((lesson.party(name).signs > 0).sum()) for name in "ABC"] == [1, 4, 7]
    assert [fewest_unhappy(lesson.party(name)) for name in "ABC"] == [1, 0, 0]
    # "In B the middle guest changes rooms, in C three guests do": the smaller of the two rooms.
    seats = {name: best_seating(lesson.party(name)) for name in "BC"}
    assert np.flatnonzero(seats["B"] != seats["B"][0]).tolist() == [4]
    assert min((seats["C"] > 0).sum(), (seats["C"] < 0).sum()) == 3


def test_stored_semidefinite_values_are_those_of_the_solver():
    seen = set()
    for flips in ([], [0], [8], [0, 4], [0, 9], [0, 2, 4, 6]):
        guests = lesson.nine(np.where(np.isin(np.arange(12), flips), 1.0, -1.0))
        seen.add(lesson.squares_of(guests))
        assert semidefinite_bound(guests) == pytest.approx(
            lesson.SDP_BOUNDS[lesson.squares_of(guests)], abs=1e-4
        )
    assert seen == set(lesson.SDP_BOUNDS)


def test_the_tasks_have_the_answers_that_the_text_gives():
    for border in range(1, 9):
        state = state_of(first=border, marked=True)
        assert state["said"] == (1, 1, (0.0, lesson.SDP_BOUNDS["1"], 1.0))
    for inner in range(9, 13):
        state = state_of(first=inner, marked=True)
        assert state["said"] == (1, 2, (0.0, lesson.SDP_BOUNDS["2 side by side"], 1.0))
    assert state_of(first=1, second=8)["said"][2] == (0.0, 0.0, 0.0)
    quarrels, _, values = state_of(first=1, second=8, vertex=5)["said"]
    assert (quarrels, values) == (6, (0.0, 0.0, 0.0))


@pytest.mark.parametrize("vertex", range(1, 10))
def test_switching_a_guest_changes_signs_and_no_value(vertex):
    before, after = state_of(marked=True), state_of(vertex=vertex, marked=True)
    assert after["said"][1:] == before["said"][1:]
    assert [len(x) for x, _ in after["quarrels"]] != [len(x) for x, _ in before["quarrels"]]


def test_the_best_seating_fails_as_many_pairs_as_it_says():
    for settings in ({}, {"first": 12}, {"first": 1, "second": 5, "vertex": 5}):
        state = state_of(**settings)
        assert state["dots"][2] == len(state["failed"][0])
        assert state["dots"][0] <= state["dots"][1] <= state["dots"][2]


def test_words():
    explorer = lesson.SeatingExplorer()
    assert explorer.frame(first=3)[1] == (
        "Turned: pair 3. 1 pair quarrels. The best seating leaves 1 pair unhappy. The bound pair by pair is 0, that of all "
        "together 0.68."
    )
    assert "odd" not in explorer.frame(first=3)[1]
    assert explorer.frame(first=3, marked=True)[1].endswith("Marked: 1 of 4 squares; half, rounded up: 1.")
    words = explorer.frame(first=0, second=0, vertex=0, marked=False)[1]
    assert words.startswith("Turned: nothing. 0 pairs quarrel. The best seating leaves nobody unhappy.")
    assert "pair 3, pair 5, all pairs of guest 9" in explorer.frame(first=3, second=5, vertex=9)[1]


# Pictures


def test_three_enemies_lie_where_the_caption_says():
    figure = lesson.plot_three_enemies()
    x, y = line_labelled(figure.axes[0], "all together").get_data()
    for u, v in zip(x[::20], y[::20], strict=True):
        X = np.array([[1, v, u], [v, 1, u], [u, u, 1]])
        assert np.linalg.eigvalsh(X)[0] == pytest.approx(0, abs=1e-7)  # on the border of semidefinite
    assert ((3 + y + 2 * x) / 2).min() == pytest.approx(0.75, abs=1e-3)
    triangle = line_labelled(figure.axes[0], "seatings and averages").get_data()
    assert ((3 + np.asarray(triangle[1]) + 2 * np.asarray(triangle[0])) / 2).min() == 1


def test_every_missing_entry_lies_in_the_middle_of_its_bar():
    axes = lesson.plot_completion().axes[0]
    on = line_labelled(axes, "pair with an entry")
    off = line_labelled(axes, "other pair: set to 0")
    assert (len(on.get_xdata()), len(off.get_xdata())) == (24, 96)
    assert np.abs(off.get_ydata()).max() == 0


def test_the_closing_picture_and_table_show_the_bounds():
    left, right = lesson.plot_closing().axes
    for axes, equal in ((left, True), (right, False)):
        closed = lesson.shares_closed("plane 4 × 4", equal, rounded=equal)
        np.testing.assert_allclose(closed["all of odd"], closed["odd squares"], atol=1e-6)
        np.testing.assert_allclose(closed["every square"], 1, atol=1e-6)
        drawn = np.concatenate([line.get_ydata() for line in axes.lines if len(line.get_xdata()) == 5])
        np.testing.assert_allclose(drawn, np.concatenate([closed[name] for name in lesson.BOUNDS]))
    assert (closed["together"] < 1 - 1e-5).sum() >= 12  # with weights hardly ever exact
    rows = lesson.closing_table().data.splitlines()[2:]
    assert len(rows) == 6
    assert "(13)" in rows[0]


def test_one_rule_for_each_odd_square_fails_on_larger_lattices():
    found = lesson.found_bounds("plane 10 × 10", True)
    assert (found["odd squares"] < found["truth"] - 1e-6).sum() >= 5
    assert (np.ceil(found["half"]) < found["truth"]).all()
    np.testing.assert_allclose(found["all cycles"], found["truth"], atol=1e-6)


@pytest.mark.parametrize("equal", [True, False])
def test_what_is_said_of_the_closing_experiment_holds_on_other_seeds(equal):
    found = lesson.found_bounds("plane 4 × 4", equal, seeds=(30, 31, 32))
    truth = found["truth"]
    np.testing.assert_allclose(found["all cycles"], truth, atol=1e-6)
    assert (found["every square"] / truth).mean() > 0.97
    if equal:
        np.testing.assert_allclose(found["odd squares"], truth, atol=1e-6)
    else:
        assert (found["odd squares"] / truth).mean() < 0.95
    assert (found["together"] / truth).mean() < 0.95


def test_the_picture_of_a_hundred_guests_joins_odd_squares():
    guests, bound, seats = lesson.hundred(0)
    assert guests.unhappy(seats) == pytest.approx(bound, abs=1e-6)
    i, j = guests.pairs.T
    unhappy = guests.signs * seats[i] * seats[j] > 0
    for square in guests.squares:
        assert unhappy[guests.around(square)].sum() % 2 == guests.is_odd(square)
    axes = lesson.plot_hundred().axes[0]
    assert len(line_labelled(axes, "unhappy pair").get_xdata()) == unhappy.sum()
    assert len(line_labelled(axes, "odd square").get_xdata()) == len(guests.odd_squares())
    assert every_cycle(guests)[0] == bound


def test_flows_agree_on_the_tree_and_part_on_the_loops():
    bound, cost = lesson.flow_costs(True).T
    np.testing.assert_allclose(bound, cost, atol=1e-4)
    bound, cost = lesson.flow_costs(False).T
    assert (cost[:-2] / bound[:-2] > 1.1).all()
    assert cost[-1] / bound[-1] == pytest.approx(1, abs=1e-3)
    assert cost[0] == pytest.approx(3.904, abs=0.01)
    assert cost[0] / bound[0] > 2
    assert "more than twice" in text_alternative(lesson.plot_flows())


# Exercises


def test_other_forms_of_the_cone_are_accepted():
    cone = lambda f: lambda a, b, x: torch.tensor(f(a, b, x), dtype=torch.float64)  # noqa: E731
    assert grade("32.6", cone(lambda a, b, x: [a + b, 2 * x, b - a])).status == "solved"
    assert grade("32.6", cone(lambda a, b, x: [(a + b) / 2, (a - b) / 2, -x])).status == "solved"
    assert lesson.exercises._is_cone(1.46, -1.46, -0.6, torch.tensor([0, 2.92, -1.2], dtype=torch.float64))
    assert not lesson.exercises._is_cone(
        1.46, -1.46, -0.6, torch.tensor([1, 2.92, -1.2], dtype=torch.float64)
    )
    assert grade("32.6", cone(lambda a, b, x: [-a - b, a - b, 2 * x])).status == "wrong"
    assert grade("32.6", cone(lambda a, b, x: [a + 2 * b, a - b, 2 * x])).status == "wrong"


def test_counts_by_loops_are_accepted():
    def count_conditions(matrices):
        n = matrices.shape[1]
        return sum(any(Q[i, j] != 0 for Q in matrices) for i in range(n) for j in range(i))

    assert grade("32.2", count_conditions).status == "solved"
    assert grade("32.2", lambda matrices: count_conditions(matrices) + 1).status == "wrong"


@pytest.mark.parametrize("a", [-2, 1.5])
@pytest.mark.parametrize("b", [-1, 0.5])
@pytest.mark.parametrize("c", [-3, -2, -1, -0.5, 0, 0.9, 1, 2, 5])
def test_counterexamples_have_a_bound_below_the_minimum(a, b, c):
    """By trying: the two products that x allows, and the ends of what X_12 may be."""
    allowed = [2 * a * xx for xx in (-1, 1) if 2 * b * xx <= c]
    ends = np.linspace(-1, 1, 4001)
    bound = (2 * a * ends[2 * b * ends <= c]).min(initial=np.inf)
    gap = bool(allowed) and bound < min(allowed) - 1e-3
    assert (grade("32.5", {"a": a, "b": b, "c": c}).status == "solved") == gap


def test_switching_by_an_eigenvector_is_accepted():
    def by_eigenvector(Q):
        off = Q - torch.diag(Q.diagonal())
        return torch.linalg.eigh(off).eigenvectors[:, 0].sign()

    assert grade("32.3", by_eigenvector).status == "solved"
    assert grade("32.3", lambda Q: by_eigenvector(Q) * torch.tensor([-1.0] + [1.0] * 5)).status == "wrong"


def test_the_least_side_by_repairing_the_nearest_pattern_is_accepted():
    def least_side(u, odd):
        inside = u > 0.5
        total = torch.minimum(u, 1 - u).sum()
        if int(inside.sum()) % 2 == odd:  # the wrong parity: change the pair that costs least
            total = total + (1 - 2 * torch.minimum(u, 1 - u)).min()
        return float(total)

    assert grade("32.4", least_side).status == "solved"
    assert grade("32.4", lambda u, odd: least_side(u, odd) - 0.01).status == "wrong"
