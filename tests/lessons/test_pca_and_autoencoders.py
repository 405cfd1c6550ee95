"""What the curves of lesson 18 are, what its explorer says, and answers that its checkers must tell apart."""

import numpy as np
import pytest
import torch

from course_lib.lessons import pca_and_autoencoders as lesson
from course_lib.lessons.pca_and_autoencoders import VALUES, critical_point
from course_lib.representation.pca import linear_loss
from tests.drawing import line_labelled

EXERCISES = lesson.EXERCISES


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


def state_of(**settings):
    defaults = {name: control.default for name, control in lesson.PenaltyExplorer.controls.items()}
    return lesson.PenaltyExplorer().compute(**{**defaults, **settings})


def test_the_question_stands_still_at_the_losses_of_the_saddles():
    losses = lesson.plot_question().axes[0].lines[0].get_ydata()
    for level, step in ((7.3, 20), (3.3, 90), (1.3, 210), (0.3, 600)):
        assert losses[step] == pytest.approx(level, abs=0.03)


def test_the_explorer_shows_the_soft_threshold_and_the_loss_of_every_pair():
    state = state_of(penalty=1.5, pair="1 and 2")
    np.testing.assert_allclose(state["bars"], [2.5, 0.5, 0, 0])
    assert state["said"][3] == (0, pytest.approx(2 * 3 - 1.5**2 * (1 / 4 + 1 / 2) + 1.3))
    unpenalised = state_of(penalty=0.0)["points"]
    np.testing.assert_allclose(unpenalised, [[0, 1, 2, 2, 3, 4], [1.3, 2.3, 3, 4.3, 5, 6]])
    # Dead axes do not tell pairs apart: 13 and 14 have become one point, with one name.
    names = [words for *_, words in state["names"] if words]
    assert "13, 14" in names
    assert len(names) == 4


def test_words():
    explorer = lesson.PenaltyExplorer()
    assert (
        explorer.frame(penalty=0.5, pair="1 and 2")[1]
        == "λ = 0.50: factors 0.875 on axis 1 and 0.750 on axis 2. Loss 3.112, a minimum."
    )
    assert "a saddle: it falls in 1 direction." in explorer.frame(penalty=0.0, pair="1 and 3")[1]
    assert "both units are at 0. Loss 7.300, a minimum." in explorer.frame(penalty=4.5, pair="1 and 3")[1]
    # One unit on axis 2 is alive and axis 1 is free; the dead one can grow along axis 1.
    assert "falls in 2 directions" in explorer.frame(penalty=1.5, pair="2 and 3")[1]


def test_the_surface_is_the_loss_of_tied_weights():
    contour = lesson.plot_surface().axes[1]
    (blue,) = [line.get_xdata()[0] for line in contour.lines if line.get_marker() == "o"][:1]
    encoder, decoder = critical_point(torch.diag(VALUES[:2]), [0], 1, 1.5)
    assert abs(blue) == pytest.approx((1 - 1.5 / 4) ** 0.5) == float(encoder.norm())
    least = linear_loss(encoder, decoder, torch.diag(VALUES[:2]), 1.5)
    for seed in range(20):
        w = encoder + 0.1 * torch.randn(1, 2, generator=torch.Generator().manual_seed(seed)).double()
        assert linear_loss(w, w.T, torch.diag(VALUES[:2]), 1.5) >= least


def test_units_leave_the_axes_open_and_unequal_penalties_do_not():
    def off_axis(penalty):
        shares = [e.square().amax(1) / e.square().sum(1) for e in lesson.trained_encoders(penalty)]
        return 1 - float(torch.stack(shares).min())

    assert off_axis(0.0) > 0.3
    assert off_axis((0.4, 0.4)) > 0.2
    assert off_axis((0.2, 1.0)) < 0.01
    plane = [float(e[:, 2].abs().max()) for e in lesson.trained_encoders(0.0)]
    assert max(plane) < 0.05


def test_the_marks_of_the_escapes_lie_on_the_predicted_lines():
    axes = lesson.plot_escape().axes[1]
    marks = [line for line in axes.lines if not line.get_label().startswith("_")]
    dotted = [line for line in axes.lines if line.get_label().startswith("_predicted")]
    for found, wanted in zip(marks, dotted, strict=True):
        np.testing.assert_allclose(found.get_ydata(), wanted.get_ydata(), rtol=0.03)


def test_the_peak_of_the_raw_inputs_is_where_labels_equal_inputs():
    left, right = lesson.plot_labels().axes
    raw, ridge = (line_labelled(left, name).get_ydata() for name in ("40 raw inputs", "raw inputs, ridge"))
    assert lesson.FEW[int(np.argmax(raw))] == 40
    assert max(ridge) < 0.1
    assert min(line_labelled(right, "code of 5").get_ydata()) > 0.9


# Exercises


@pytest.mark.parametrize(
    "points", [(3, 1, 3, -1), (5.0, -2.0, 5.0, 2.0), (-2, 1.9, -2, -1.9), (1e5, 1, 1e5, -1)]
)
def test_every_pair_of_points_that_misleads_the_unit_is_accepted(points):
    assert grade("18.2", dict(zip("pqrt", points, strict=True))).status == "solved"


def test_points_that_meet_one_condition_only():
    assert grade("18.2", {"p": 3, "q": 1, "r": -3, "t": -1}).status == "wrong"  # one line through the origin
    assert grade("18.2", {"p": 2, "q": 2, "r": 2, "t": -2}).mistake == "moved too little"
    assert grade("18.2", {"p": 2, "q": 1, "r": 2, "t": 1}).status in ("wrong", "mistake")  # one point twice


def test_reconstruction_by_eigh_is_accepted_too():
    def back(x, k):
        mean = x.mean(dim=0, keepdim=True)
        _, vectors = torch.linalg.eigh(torch.cov(x.T))
        chosen = vectors[:, -k:]
        return (x - mean) @ chosen @ chosen.T + mean

    assert grade("18.1", back).status == "solved"


def test_the_gradient_through_second_moments_is_accepted_too():
    def gradient(encoder, decoder, x):
        s = x.T @ x
        return 2 * (decoder @ encoder - torch.eye(len(s))) @ s @ encoder.T

    assert grade("18.3", gradient).status == "solved"
    assert grade("18.3", lambda encoder, decoder, x: 0 * decoder).status != "solved"


def test_the_penalised_map_through_weights_is_accepted_and_saddles_are_not():
    def through_weights(moment, k, penalty):
        encoder, decoder = critical_point(moment, range(k), k, penalty)
        return decoder @ encoder

    assert grade("18.6", through_weights).status == "solved"

    def saddle(moment, k, penalty):
        encoder, decoder = critical_point(moment, range(1, k + 1), k, penalty)
        return decoder @ encoder

    assert grade("18.6", saddle).status == "wrong"
    assert grade("18.6", lambda moment, k, penalty: 0 * moment).status == "wrong"


def test_rounded_numbers_count():
    assert grade("18.5", 1.6875).status == grade("18.5", 1.688).status == "solved"
    assert grade("18.5", 1.7).status != "solved"
