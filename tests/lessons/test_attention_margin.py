"""What the curves of lesson 24 are, what its explorer says, and answers that its checkers must tell apart."""

import numpy as np
import pytest
import torch

from course_lib.lessons import attention_margin as lesson
from course_lib.theory.attention_margin import Constraints, gradient_flow
from tests.drawing import line_labelled

EXERCISES = lesson.EXERCISES


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


def state_of(**settings):
    defaults = {name: control.default for name, control in lesson.PlaneExplorer.controls.items()}
    return lesson.PlaneExplorer().compute(**{**defaults, **settings})


@pytest.mark.parametrize("start", [0.01, 1.0, 10.0])
def test_the_plane_is_where_the_flow_goes(start):
    given = Constraints(*(torch.tensor(x).double() for x in ([[[2.0, 1.0]]], [[1.0]], [0.0])))
    zero = torch.zeros(2, dtype=torch.float64)
    beta = gradient_flow(given, [zero + start, zero], parametrisation="kq", margins=(30,)).products[0]
    margin = float(given.margin(beta))
    np.testing.assert_allclose(lesson.plane_point(start, margin), beta / margin, rtol=1e-4, atol=1e-6)


def test_the_explorer_moves_from_one_ball_to_the_other():
    small, large = (state_of(start=s)["said"][1] for s in (-2.0, 1.0))
    np.testing.assert_allclose(small, [0.5, 0], atol=1e-3)
    np.testing.assert_allclose(large, [0.4, 0.2], atol=0.02)
    state = state_of(trained="W")
    assert state["said"][1].tolist() == [0.4, 0.2]
    assert np.hypot(*state["ball"]) == pytest.approx(0.2**0.5)
    assert np.abs(state_of()["ball"]).sum(0) == pytest.approx(0.5)
    nuclear, frobenius = state_of()["nuclear"], state_of()["frobenius"]
    assert (np.diff(nuclear) < 0).all()
    assert (np.diff(frobenius) > 0).all()


def test_words():
    explorer = lesson.PlaneExplorer()
    assert explorer.frame(trained="W")[1] == (
        "Training W: β = (0.400, 0.200) per unit margin. Its nuclear norm 0.600 is 20.0% above the smallest, its "
        "Frobenius norm 0.447 is 0.0% above."
    )
    assert "β = (0.500, 0.000)" in explorer.frame(trained="k and q", start=-2.0, margin=4.0)[1]


def test_what_the_recipe_accepts_holds_on_each_of_the_ten_sets():
    assert lesson.cosines(1.0, 0)[-1].min() >= 0.95
    assert lesson.excesses(1.0)[-1].max() <= 0.06
    assert lesson.cosines(None, 1)[-1].min() >= 0.999
    assert lesson.excesses(None)[-1].min() >= 0.3
    assert min(lesson.excesses(s).min() for s in (1.0, None)) > -1e-9


def test_curves_of_the_starts_are_in_the_order_that_the_prediction_tells():
    left, right = lesson.plot_starts().axes
    ends = [line_labelled(left, f"k starts at {s:g}").get_ydata()[-1] for s in lesson.STARTS]
    assert int(np.argmax(ends)) == lesson.STARTS.index(1.0)
    early = [line_labelled(right, f"k starts at {s:g}").get_ydata()[3] for s in lesson.STARTS]
    assert early == sorted(early)


# Exercises


@pytest.mark.parametrize("pair", [(5, 2), (-12, 5), (2, 5.0), (1e5, -0.4e5), (1e-5, 0.42e-5)])
def test_every_ratio_between_a_third_and_a_half_is_accepted(pair):
    assert grade("24.5", dict(zip("ab", pair, strict=True))).status == "solved"


@pytest.mark.parametrize("pair", [(3, 2), (2, 1), (3, 1), (0, 0), (1e7, 0.4e7)])
def test_other_ratios_are_not(pair):
    assert grade("24.5", dict(zip("ab", pair, strict=True))).status in ("wrong", "mistake")


def test_rounded_numbers_count_and_near_ones_do_not():
    assert grade("24.4", {"first": 0.0, "second": -0.25}).status == "solved"
    assert grade("24.4", {"first": 0.02, "second": -0.235}).status == "wrong"
    assert grade("24.3", 3.75).status == "solved"
    assert grade("24.3", 3.7).status == "wrong"


def test_slopes_through_the_whole_softmax_and_the_velocity_by_transposes_are_accepted():
    def slopes(margins, gaps):
        p = torch.cat([margins.new_zeros(1), -margins]).softmax(0)
        jacobian = torch.diag(p) - torch.outer(p, p)
        return (jacobian @ torch.cat([gaps.new_zeros(1), gaps]))[1:]

    assert grade("24.2", slopes).status == "solved"
    assert grade("24.6", lambda K, Q, force: force @ (Q @ Q.T) + (K @ K.T) @ force).status == "solved"
    assert grade("24.6", lambda K, Q, force: 0 * force).status == "wrong"


def test_conditions_by_a_loop_are_accepted_and_the_feature_of_a_tie_is_not_asked():
    def conditions(tokens, query, scores):
        best = int(scores.argmax())
        return torch.stack([(tokens[best] - x) * query for t, x in enumerate(tokens) if t != best])

    assert grade("24.1", conditions).status == "solved"
    assert (
        grade("24.1", lambda tokens, query, scores: conditions(tokens, query, scores).flip(0)).status
        == "wrong"
    )
