"""Layers that fetch each token's own value: what they miss, and the floor below which few features cannot get."""

import pytest
import torch

from course_lib.attention.retrieval import (
    SOFTMAX,
    SQUARE,
    Retrieval,
    elu_form,
    learn_to_retrieve,
    miss,
    unit_tokens,
)


def test_the_miss_is_the_mean_squared_error_of_random_values():
    weights = torch.rand(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(-1)
    values = torch.randn(6, 200_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    error = (weights @ values - values).square().mean() / values.square().mean()
    assert float(miss(weights)) == pytest.approx(float(error), rel=0.02)
    assert float(miss(torch.eye(4))) == 0
    assert float(miss(torch.zeros(4, 4))) == 1


@pytest.mark.parametrize("count", [1, 3, 5])
def test_groups_of_tokens_are_a_table_of_low_rank_at_the_floor(count):
    group = torch.arange(15) % count
    weights = (group[:, None] == group).double()
    weights /= weights.sum(-1, keepdim=True)
    assert int(torch.linalg.matrix_rank(weights)) == count
    assert float(miss(weights)) == pytest.approx(1 - count / 15)


def test_rows_add_up_to_one_and_have_no_more_than_the_features_rank():
    x = unit_tokens(60, 8, seed=0)
    assert torch.allclose(x.norm(dim=-1), torch.ones(60, dtype=torch.float64))
    # Of the 45 features of the square one is spare on unit vectors, whose squared entries add up to 1.
    for form, rank in ((SQUARE, 44), (elu_form(8), 8), (elu_form(20), 20)):
        weights = Retrieval(form, 8, generator=torch.Generator().manual_seed(0))(x)
        assert torch.allclose(weights.sum(-1), torch.ones(60, dtype=torch.float64))
        assert (weights >= 0).all()
        assert int(torch.linalg.matrix_rank(weights)) == rank


def test_learning_lowers_the_miss_to_the_floor_and_not_below():
    for form, floor in ((SOFTMAX, 0.0), (elu_form(2), 1 - 2 / 8)):
        layer, misses = learn_to_retrieve(form, length=8, step_size=0.1, seed=0, steps=150)
        assert len(misses) == 151
        assert min(misses) >= floor - 1e-9
        assert misses[-1] == pytest.approx(miss(layer(unit_tokens(8, 8, seed=0))).item())
        assert misses[-1] < floor + 0.05
        assert misses[0] > misses[-1] + 0.05


def test_the_same_seed_learns_the_same_and_another_one_does_not():
    runs = [learn_to_retrieve(SQUARE, length=8, step_size=0.1, seed=seed, steps=3)[1] for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]
