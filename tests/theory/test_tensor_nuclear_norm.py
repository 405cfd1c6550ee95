"""Norms of worked examples, the fast maps against SVDs of every slice, and against neighbours that would be lower."""

import math

import pytest
import torch

from course_lib.theory import tensor_nuclear_norm as tnn
from course_lib.theory.tensor_nuclear_norm import LOW_RANK


def random_tensor(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def identity_and_swap():
    eye = torch.eye(2, dtype=torch.float64)
    return torch.stack([eye, eye.flip(0)], dim=-1)


def test_two_slices_of_rank_two_have_dft_slices_of_rank_one():
    tensor = identity_and_swap()
    assert tnn.numerical_ranks(tensor, "fourier", share=0.999).tolist() == [1, 1]
    assert tnn.numerical_ranks(tensor, "slices", share=0.999).tolist() == [2, 2]
    wanted = {"fourier": 8**0.5, "slices": 4, "unfolding": 8**0.5}
    for kind, norm in wanted.items():
        assert float(tnn.low_rank_norm(tensor, kind)) == pytest.approx(norm)


def test_a_circular_shift_keeps_the_fourier_norm_and_a_delay_of_one_place_changes_the_unfoldings():
    tensor = random_tensor(3, 4, 6)
    rolled = tensor.roll(2, dims=-1)
    for kind in LOW_RANK:
        torch.testing.assert_close(tnn.low_rank_norm(rolled, kind), tnn.low_rank_norm(tensor, kind))
    one = torch.ones(3, 4, 1) * torch.tensor([1.0, 0.5, 0, 0, 0, 0])
    late = one.clone()
    late[1] = late[1].roll(2, dims=-1)
    torch.testing.assert_close(tnn.low_rank_norm(late, "fourier"), tnn.low_rank_norm(one, "fourier"))
    assert float(tnn.low_rank_norm(late, "slices")) > 1.3 * float(tnn.low_rank_norm(one, "slices"))


def test_ranks_are_counted_over_the_tensor_as_a_whole():
    tensor = torch.zeros(3, 3, 2)
    tensor[..., 0] = torch.diag(torch.tensor([10.0, 5.0, 0.1]))
    tensor[..., 1] = torch.diag(torch.tensor([0.2, 0.0, 0.0]))
    assert tnn.numerical_ranks(tensor, "slices", share=0.99).tolist() == [2, 0]
    assert tnn.numerical_ranks(tensor, "slices", share=0.7).tolist() == [1, 0]
    assert tnn.numerical_ranks(tensor, "slices", share=0.9999).tolist() == [2, 1]


@pytest.mark.parametrize("kind", LOW_RANK)
@pytest.mark.parametrize("shape", [(4, 4, 5), (3, 5, 4), (5, 3, 1), (2, 3, 4, 6)], ids=str)
def test_fast_and_readable_map_agree(kind, shape):
    tensor = random_tensor(*shape)
    for threshold in (0.0, 0.7, 100.0):
        found = tnn.prox(tensor, threshold, kind)
        torch.testing.assert_close(found, tnn.prox_by_slices(tensor, threshold, kind), rtol=0, atol=1e-12)
    assert float(found.abs().max()) == 0


@pytest.mark.parametrize("kind", LOW_RANK)
def test_each_tensor_has_its_own_threshold(kind):
    tensor, each = random_tensor(2, 3, 4, 6), torch.tensor([0.3, 1.1], dtype=torch.float64)
    for form in (tnn.prox, tnn.prox_by_slices):
        together = form(tensor, each, kind)
        for place in (0, 1):
            torch.testing.assert_close(together[place], form(tensor[place], float(each[place]), kind))


@pytest.mark.parametrize("kind", LOW_RANK)
def test_no_neighbour_is_lower(kind):
    tensor, threshold = random_tensor(3, 3, 4), 0.8
    cost = lambda x: (x - tensor).square().sum((-1, -2, -3)) / 2 + threshold * tnn.low_rank_norm(x, kind)  # noqa: E731
    best = tnn.prox(tensor, threshold, kind)
    moved = best + 0.05 * random_tensor(300, 3, 3, 4, seed=1)
    assert float(cost(moved).min()) > float(cost(best))
    others = [tnn.prox(tensor, threshold * f, kind) for f in (0.8, 1.2)]
    others += [tnn.prox(tensor, threshold, other) for other in LOW_RANK if other != kind]
    assert all(float(cost(x)) > float(cost(best)) + 1e-3 for x in others)


def test_what_the_gram_matrix_loses():
    """Right to eps s_1 / t: the bound of `shrink`'s docstring; and the map by an SVD has no such limit."""
    u, v = (torch.linalg.qr(random_tensor(20, 20, seed=s)).Q for s in (1, 2))
    s = torch.logspace(0, -6, 20, dtype=torch.float64)
    matrix = (u * s) @ v.T
    for share in (1e-1, 1e-2, 1e-3):
        wanted = (u * (s - share).clamp(min=0)) @ v.T
        for dtype in (torch.float32, torch.float64):
            error = float((tnn.shrink(matrix.to(dtype), share).double() - wanted).norm())
            assert error <= 3 * torch.finfo(dtype).eps / share
    low = 1e-5
    wanted = (u * (s - low).clamp(min=0)) @ v.T
    by_gram, by_svd = (
        float((f(matrix.float(), low).double() - wanted).norm()) for f in (tnn.shrink, tnn.shrink_by_svd)
    )
    assert by_svd < 1e-5
    assert by_gram > 10 * by_svd


def test_zero_and_rank_deficient_matrices():
    assert float(tnn.shrink(torch.zeros(3, 4), 0.5).abs().max()) == 0
    ones = torch.ones(4, 3, dtype=torch.float64)
    torch.testing.assert_close(tnn.shrink(ones, 1.0), ones * (1 - 1 / math.sqrt(12)))


def test_gradients_of_the_norm_and_the_map():
    tensor = random_tensor(2, 3, 4).requires_grad_()
    for kind in LOW_RANK:
        assert torch.autograd.gradcheck(lambda x, kind=kind: tnn.low_rank_norm(x, kind), tensor)
    assert torch.autograd.gradcheck(lambda x: tnn.shrink(x, 0.1), random_tensor(4, 3).requires_grad_())


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"kind must be one of .*got 'tensor'"):
        tnn.prox(torch.zeros(2, 2, 2), 1.0, "tensor")
    with pytest.raises(ValueError, match=r"share must lie in \(0, 1\), got 1"):
        tnn.numerical_ranks(torch.zeros(2, 2, 2), "slices", share=1)
