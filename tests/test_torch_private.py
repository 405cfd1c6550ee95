"""Private functions of torch and what stands in for them give the same."""

import pytest
import torch

from course_lib import torch_private

FOREACH = ("_foreach_lerp", "_foreach_lerp_", "_foreach_mul_")


def drawn(*shapes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def results():
    tensors, ends = drawn((3, 4), (5,)), drawn((3, 4), (5,), seed=1)
    between = torch_private.lerp_each(tensors, ends, 0.3)
    torch_private.lerp_each_(tensors, ends, 0.7)
    torch_private.multiply_each_(ends, 0.5)
    return [*between, *tensors, *ends]


def test_without_them_the_same_is_computed_tensor_by_tensor(monkeypatch):
    fast = results()
    for name in FOREACH:
        monkeypatch.delattr(torch, name)
    for ours, theirs in zip(results(), fast, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_gamma_variables_have_their_mean_and_repeat_themselves(monkeypatch):
    concentration = torch.full((20_000,), 2.5)
    draw = lambda: torch_private.draw_gamma(concentration, generator=torch.Generator().manual_seed(0))  # noqa: E731
    for _ in range(2):
        assert torch.equal(draw(), draw())
        # The variance of the mean is 2.5 / 20,000.
        assert abs(float(draw().mean()) - 2.5) < 6 * (2.5 / 20_000) ** 0.5
        monkeypatch.delattr(torch, "_standard_gamma", raising=False)


def test_integer_products_are_refused_where_there_are_none(monkeypatch):
    monkeypatch.delattr(torch, "_int_mm", raising=False)
    assert not torch_private.has_int8_products()
    small = torch.ones(17, 8, dtype=torch.int8)
    with pytest.raises(RuntimeError, match="multiplies no int8 matrices"):
        torch_private.multiply_int8(small, small.mT, out=torch.empty(17, 17, dtype=torch.int32))
