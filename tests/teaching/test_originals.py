"""Functions that a cell replaced are put back while an answer is judged, and only then."""

import math

import numpy as np
import torch

from course_lib.teaching.originals import original_libraries


def never(*_, **__):
    return False


def test_nothing_is_replaced_in_a_fresh_kernel():
    with original_libraries() as replaced:
        assert replaced == []


def test_another_default_dtype_replaces_nothing():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        storage = torch.Storage
        with original_libraries() as replaced:
            assert replaced == []
            assert torch.Storage is storage
    finally:
        torch.set_default_dtype(before)


def test_replaced_functions_are_put_back_for_the_block(monkeypatch):
    ours = {torch: "allclose", math: "isclose", np: "allclose", torch.Tensor: "all"}
    originals = {owner: getattr(owner, name) for owner, name in ours.items()}
    for owner, name in ours.items():
        monkeypatch.setattr(owner, name, never)
    with original_libraries() as replaced:
        assert sorted(replaced) == ["math.isclose", "numpy.allclose", "torch.Tensor.all", "torch.allclose"]
        assert all(getattr(owner, name) is originals[owner] for owner, name in ours.items())
    assert all(getattr(owner, name) is never for owner, name in ours.items())


def test_they_are_replaced_again_after_an_error(monkeypatch):
    monkeypatch.setattr(torch, "allclose", never)
    try:
        with original_libraries():
            raise KeyError("x")
    except KeyError:
        assert torch.allclose is never


def test_a_removed_function_is_put_back(monkeypatch):
    monkeypatch.delattr(torch, "allclose")
    with original_libraries() as replaced:
        assert replaced == ["torch.allclose"]
        assert torch.allclose(torch.ones(1), torch.ones(1))
    assert not hasattr(torch, "allclose")


def test_what_a_package_replaces_stays(monkeypatch):
    monkeypatch.setattr(torch, "manual_seed", torch.autograd.grad)  # as torch's compiler does with a wrapper
    with original_libraries() as replaced:
        assert replaced == []
        assert torch.manual_seed is torch.autograd.grad
