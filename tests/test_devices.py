"""Devices, number formats and threads."""

import pytest
import torch

from course_lib import devices


def test_the_named_device_is_taken_and_a_missing_one_refused():
    assert devices.usable_device("cpu") == torch.device("cpu")
    assert devices.usable_device().type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("cuda:99", "abacus"):
        with pytest.raises(ValueError, match=f"device '{name}' cannot be used"):
            devices.usable_device(name)


def capable_of(monkeypatch, *names):
    monkeypatch.setattr(
        torch.cpu, "get_capabilities", lambda: dict.fromkeys(names, True) | {"avx512_f": False}
    )


@pytest.mark.parametrize("name", ["amx_bf16", "arm_bf16", "bf16"])
def test_a_processor_with_fast_bfloat16_products_is_known(name, monkeypatch):
    capable_of(monkeypatch, name)
    assert devices.fast_dtype("cpu") == torch.bfloat16
    # AVX-512 alone has the instructions, and products of half the speed of float32.
    capable_of(monkeypatch, "avx512_bf16", "avx512_vnni")
    assert devices.fast_dtype("cpu") == torch.float32
    assert devices.fast_dtype("meta") == torch.float32


@pytest.mark.parametrize("name", ["avx512_vnni", "amx_int8"])
def test_a_processor_with_fast_integer_products_is_known(name, monkeypatch):
    monkeypatch.setattr(torch, "_int_mm", print, raising=False)
    capable_of(monkeypatch, name)
    assert devices.multiplies_int8("cpu")
    assert not devices.multiplies_int8("meta")
    monkeypatch.delattr(torch, "_int_mm")
    assert not devices.multiplies_int8("cpu")
    capable_of(monkeypatch, "avx512_bf16", "avx_vnni")
    monkeypatch.setattr(torch, "_int_mm", print, raising=False)
    assert not devices.multiplies_int8("cpu")


def test_a_gpu_has_them_from_compute_capability_8_on(monkeypatch):
    asked = []
    capability = {0: (7, 5), 1: (8, 0)}
    monkeypatch.setattr(
        torch.cuda, "get_device_capability", lambda d: (asked.append(d), capability[d.index])[1]
    )
    assert [devices.multiplies_bfloat16(f"cuda:{i}") for i in (0, 1)] == [False, True]
    assert len(asked) == 2


def test_small_matrices_get_one_thread_and_wide_ones_what_torch_is_set_to():
    with devices.threads(3):
        assert [devices.threads_for(d) for d in (1, 256, devices.WIDE - 1)] == [1, 1, 1]
        assert [devices.threads_for(d) for d in (devices.WIDE, 1024)] == [3, 3]


@pytest.mark.parametrize("error", [None, RuntimeError])
def test_torchs_setting_comes_back(error):
    before = torch.get_num_threads()
    try:
        with devices.threads(before + 1):
            assert torch.get_num_threads() == before + 1
            if error:
                raise error
    except RuntimeError:
        assert error is RuntimeError
    assert torch.get_num_threads() == before
    with devices.threads(None):
        assert torch.get_num_threads() == before
    with pytest.raises(ValueError, match="threads is 0"), devices.threads(0):
        pass


def test_a_device_is_described_in_words(monkeypatch):
    assert devices.describe(torch.device("cpu")) == "cpu"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda d: "a GPU")
    assert devices.describe(torch.device("cuda")) == "cuda (a GPU)"
