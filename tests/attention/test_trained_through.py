"""Matrices trained through an estimate of attention, and what they fetch with the exact one."""

import pytest
import torch

from course_lib.attention.random_features import positive_features, random_feature_attention
from course_lib.attention.trained_through import (
    error,
    fresh_error,
    gradient,
    learn_to_fetch,
    texts,
    through_features,
    through_softmax,
)

IDENTITY = torch.eye(16, dtype=torch.float64)


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def test_texts_are_unit_vectors_with_values():
    x, values = texts(rng())
    assert x.shape == (16, 16, 16)
    assert values.shape == (16, 16, 4)
    assert torch.allclose(x.norm(dim=-1), torch.ones(16, 16, dtype=torch.float64))
    assert float(values.std()) == pytest.approx(1, abs=0.1)


def test_features_are_redrawn_at_each_step_or_kept():
    q, k, v = torch.randn(3, 2, 5, 16, generator=rng(), dtype=torch.float64)
    for redrawn in (True, False):
        attend = through_features(8, redrawn=redrawn)
        first, second = attend(q, k, v, 0), attend(q, k, v, 1)
        assert torch.equal(first, second) is not redrawn
        assert torch.equal(first, attend(q, k, v, 0))
    assert not torch.equal(first, through_features(8, redrawn=False, seed=1)(q, k, v, 0))


def test_many_features_are_softmax_attention():
    q, k, v = 0.5 * torch.randn(3, 2, 5, 16, generator=rng(), dtype=torch.float64)
    features = positive_features(16, 50_000, generator=rng(1), dtype=torch.float64)
    exact = through_softmax(q, k, v, 0)
    assert torch.allclose(exact, (q @ k.mT / 4).softmax(-1) @ v)
    assert torch.allclose(random_feature_attention(q, k, v, features=features), exact, atol=0.02)
    assert torch.allclose(through_features(50_000, redrawn=True)(q, k, v, 0), exact, atol=0.02)


def test_the_error_is_that_of_each_token_s_own_value():
    long, none = 10 * IDENTITY, 0 * IDENTITY
    assert float(error(long, long, through_softmax, rng(), 0)) < 1e-3
    # Equal weights for 16 tokens: the mean of the values, which has the error 1 - 1/16.
    assert fresh_error(none, none, through_softmax, seed=0) == pytest.approx(15 / 16, abs=0.03)
    zeros = lambda q, k, v, step: torch.zeros_like(v)  # noqa: E731
    assert fresh_error(long, long, zeros, seed=0) == pytest.approx(1, abs=0.03)


def test_the_gradient_is_that_of_finite_differences():
    found, step = gradient(1, through_softmax, seed=3), 1e-5
    for matrix, row, column in ((0, 2, 5), (1, 7, 7)):
        ends = []
        for sign in (1, -1):
            both = [IDENTITY.clone(), IDENTITY.clone()]
            both[matrix][row, column] += sign * step
            ends.append(float(error(*both, through_softmax, rng(20_003), 0)))
        assert float(found[matrix, row, column]) == pytest.approx(
            (ends[0] - ends[1]) / (2 * step), rel=1e-4, abs=1e-9
        )


def test_training_fetches_and_reports_both_losses():
    run = learn_to_fetch(through_softmax, step_size=0.2, seed=0, steps=40, every=20)
    assert len(run.own) == len(run.exact) == 3
    assert run.own == run.exact  # it is trained through what it is judged by
    assert run.exact[0] > 0.8 > 0.1 > run.exact[-1]
    again = learn_to_fetch(through_softmax, step_size=0.2, seed=0, steps=40)
    assert torch.equal(run.w_q, again.w_q)
    assert torch.equal(run.w_k, again.w_k)
    assert again.exact == [run.exact[0], run.exact[-1]]
    assert fresh_error(run.w_q, run.w_k, through_softmax, seed=0) == run.exact[-1]


def test_through_redrawn_features_the_matrices_are_better_than_the_estimate():
    run = learn_to_fetch(through_features(16, redrawn=True), step_size=0.2, seed=0, steps=60)
    assert run.own[-1] > 0.6
    assert run.exact[-1] < 0.15
