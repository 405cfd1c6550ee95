"""What the curves of lesson 19 are, what its explorer says, and answers that its checkers must tell apart."""

import numpy as np
import pytest
import torch

from course_lib.lessons import linear_purification as lesson
from course_lib.lessons.linear_purification import SPECTRUM, WAYS
from course_lib.representation.erasure import concept_columns, fit_eraser, probe_r2
from tests.drawing import line_labelled

EXERCISES = lesson.EXERCISES


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


def test_the_rows_have_the_notes_singular_values_and_the_class_sits_where_they_are_narrow():
    x, label = lesson.rows()
    torch.testing.assert_close(torch.linalg.svdvals(x), SPECTRUM, rtol=1e-9, atol=0)
    wide, narrow = probe_r2(x[:, :3], label), probe_r2(x[:, 3:7], label)
    assert wide.max() < 0.02
    assert narrow.min() > 0.3


def test_the_probe_is_least_squares_and_its_penalty_is_ridge():
    x, label = lesson.rows()
    z = concept_columns(label)
    weight, bias = lesson.probe(x, z)
    ones = torch.cat([x, torch.ones(len(x), 1)], dim=1)
    torch.testing.assert_close(torch.cat([weight, bias[None]]), torch.linalg.lstsq(ones, z).solution)
    centred = x - x.mean(0)
    wanted = torch.linalg.solve(centred.T @ centred + 2 * torch.eye(8), centred.T @ (z - z.mean(0)))
    torch.testing.assert_close(lesson.probe(x, z, ridge=2.0)[0], wanted)


def test_three_directions_suffice_if_chosen_by_whitening_and_for_every_penalty():
    for penalty in (1e-3, 1.0, 1e3):
        curves = lesson.erasing(penalty)
        assert curves["by whitening (LEACE)"][3] == pytest.approx(0.25, abs=0.05)
        assert min(curves["by whitening (LEACE)"][:2]) > 0.7
        for way in (WAYS[0], WAYS[2]):
            assert curves[way][3] > 0.6
        np.testing.assert_allclose(curves[WAYS[1]], lesson.erasing(0.1)[WAYS[1]], atol=1e-2)


def test_purified_rows_are_read_as_well_as_the_rows_by_least_squares_only():
    (axes,) = lesson.plot_purified().axes
    free = line_labelled(axes, "probe by least squares").get_ydata()
    penalised = line_labelled(axes, "probe with a penalty of 1").get_ydata()
    assert np.ptp(free) < 1e-9
    assert penalised[0] > 0.6
    assert penalised[-1] < 0.35


def test_the_plane_shows_two_that_erase_and_one_that_does_not():
    _, label = lesson.plane()
    left = {name: float(probe_r2(t, label).max()) for name, t in lesson.plane_ways().items()}
    assert left["probe's direction"] > 0.05
    assert max(left["difference of means"], left["LEACE"]) < 1e-12


def test_words_and_bars_of_the_explorer():
    explorer = lesson.PurifyExplorer()
    words = explorer.frame(power=0.0, erased=3)[1]
    assert words.startswith(
        "λ = 1: factors 0.941 on direction 3, 0.5 on 4, 0.0001 on 8. 3 erased: a new probe finds 25% (LEACE)"
    )
    state = explorer.compute(power=0.0, erased=3)
    np.testing.assert_allclose(state["bars"], (SPECTRUM**3 / (SPECTRUM**2 + 1)).tolist())
    assert state["at"][0] == [3, 3]


# Exercises


def test_rounded_numbers_count():
    assert grade("19.1", 3.0).status == "solved"
    assert grade("19.1", 2.9).status != "solved"


def test_the_purifier_by_other_ways_is_accepted_and_a_scaled_one_is_not():
    def by_svd(x, penalty):
        _, s, vh = torch.linalg.svd(x, full_matrices=False)
        return vh.T @ torch.diag(s**2 / (s**2 + penalty)) @ vh

    def stacked(x, penalty):
        root = penalty**0.5 * torch.eye(x.shape[1], dtype=x.dtype)
        return torch.linalg.lstsq(torch.cat([x, root]), torch.cat([x, 0 * root])).solution

    assert grade("19.2", by_svd).status == grade("19.2", stacked).status == "solved"
    assert grade("19.2", lambda x, penalty: 0.99 * by_svd(x, penalty)).status == "wrong"
    assert grade("19.2", lambda x, penalty: x @ x.T).status != "solved"


@pytest.mark.parametrize("numbers", [(1, 1, 0.5), (1, 1, -0.01), (2, 0.5, 0.9), (1e-3, 1e3, 0.5)])
def test_every_correlated_pair_is_a_counterexample(numbers):
    assert grade("19.3", dict(zip("abc", numbers, strict=True))).status == "solved"


def test_what_is_no_counterexample():
    assert grade("19.3", {"a": 3, "b": 5, "c": 0}).mistake == "unequal, uncorrelated"
    assert grade("19.3", {"a": 1, "b": 4, "c": 2}).mistake == "one feature twice"
    assert grade("19.3", {"a": 0, "b": 1, "c": 0.1}).mistake == "negative variance"


def test_an_eraser_by_regressions_is_accepted_and_one_that_uses_the_labels_of_new_rows_cannot_be_written():
    def by_library(x, label, new):
        return fit_eraser(x, label).erase(new)

    def by_regression(x, label, new):
        mean, y = x.mean(0), label.double() - label.double().mean()
        w = torch.linalg.lstsq(x - mean, y[:, None]).solution
        predicted = (x - mean) @ w
        back = torch.linalg.lstsq(predicted, x - mean).solution
        return new - (new - mean) @ w @ back

    assert grade("19.4", by_library).status == grade("19.4", by_regression).status == "solved"
    assert grade("19.4", lambda x, label, new: new).status != "solved"
    assert (
        grade("19.4", lambda x, label, new: new - 0.5 * (new - by_regression(x, label, new))).status
        == "wrong"
    )
