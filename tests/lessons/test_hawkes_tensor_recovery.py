"""What lesson 31 plants and draws, what its explorer says, and answers that its checkers must tell apart."""

import numpy as np
import pytest
import torch

from course_lib.lessons import hawkes_tensor_recovery as lesson
from course_lib.theory.hawkes import spectral_radius
from course_lib.theory.tensor_nuclear_norm import numerical_ranks

EXERCISES = lesson.EXERCISES


def grade(number, answer):
    return EXERCISES[number].grade(answer, generator=torch.Generator().manual_seed(0))


def delays(to, away):
    return dict(zip(("d1", "d2", "e1", "e2"), (*to, *away), strict=True))


def state_of(**settings):
    defaults = {name: control.default for name, control in lesson.DelayExplorer.controls.items()}
    return lesson.DelayExplorer().compute(**{**defaults, **settings})


@pytest.mark.parametrize(
    ("kind", "in_time", "in_frequency"),
    [("delayed", 4, 1), ("short", 3, 1), ("separable", 1, 1), ("random", 12, 12)],
)
def test_planted_kernels_have_the_ranks_that_the_page_states(kind, in_time, in_frequency):
    for seed in lesson.SEEDS:
        _, kernel = lesson.planted(kind, seed)
        assert int(numerical_ranks(kernel, "slices", share=1 - 1e-9).max()) == in_time
        assert int(numerical_ranks(kernel, "fourier", share=1 - 1e-9).max()) == in_frequency
        assert float(spectral_radius(kernel)) == pytest.approx(0.8)


def test_only_a_cut_or_other_delays_raise_the_rank_in_frequency():
    assert state_of(spread=8)["said"][0]["fourier"][0] == 1
    assert state_of(spread=4, window=10)["said"][0]["fourier"][0] == 1
    assert state_of(spread=4, window=6)["said"][0]["fourier"][0] > 1
    assert state_of(delays="distance")["said"][0]["fourier"][0] > 4
    norms = [state_of(spread=s)["said"][0]["fourier"][1] for s in range(9)]
    np.testing.assert_allclose(norms, norms[0])


def test_words_name_the_cut():
    assert "cut off at p = 6" in lesson.DelayExplorer().frame(spread=4, window=6)[1]
    assert "fits into p = 18" in lesson.DelayExplorer().frame(spread=4)[1]


@pytest.mark.parametrize(("to", "away"), [([0, 1], [0, 2]), ([0, 3], [0, 3]), ([3, 0], [0, 1])])
def test_every_cut_that_raises_the_rank_is_accepted(to, away):
    assert grade("31.5", delays(to, away)).status == "solved"


@pytest.mark.parametrize(
    ("to", "away"), [([0, 1], [0, 1]), ([2, 2], [0, 3]), ([0, 3], [1, 1]), ([0, 4], [0, 1])]
)
def test_other_delays_are_not(to, away):
    assert grade("31.5", delays(to, away)).status in ("wrong", "mistake")


def test_right_answers_by_other_ways_are_accepted():
    assert grade("31.1", lambda m, A, y: m + torch.einsum("ijt,tj->i", A, y[-2:].flip(0))).status == "solved"
    verdict = grade("31.2", lambda m, A: torch.linalg.inv(torch.eye(3, dtype=m.dtype) - A.sum(2)) @ m)
    assert verdict.status == "solved"
    assert grade("31.3", {"first": 1, "second": 1, "norm": 2.83}).status == "solved"
    assert grade("31.3", {"first": 1, "second": 1, "norm": 2.9}).status == "wrong"
