"""Where a computation runs: on which device, in which number format, on how many threads."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from course_lib import torch_private

WIDE = 512
"""d_model from which a second thread saves more time than it waits; see `threads_for`."""


def usable_device(name: torch.device | str | None = None) -> torch.device:
    """The device of that name; without one, the GPU where there is one. Raises ValueError for one that is not there."""
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # a torch built without CUDA asserts
        raise ValueError(f"device {str(name)!r} cannot be used: {str(error).splitlines()[0]}") from error
    return device


def multiplies_bfloat16(device: torch.device | str) -> bool:
    """Whether the device multiplies bfloat16 in hardware, and faster than float32.

    A processor that has AVX-512's instructions for it and no matrix unit has not: on a Xeon without AMX, products
    took twice the time of float32.
    """
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return _has(device, "amx_bf16", "arm_bf16", "bf16")


def multiplies_int8(device: torch.device | str) -> bool:
    """Whether it is a CPU that multiplies 8-bit integers in hardware, faster than float32, and torch offers it."""
    return torch_private.has_int8_products() and _has(torch.device(device), "avx512_vnni", "amx_int8")


def _has(device: torch.device, *names: str) -> bool:
    capabilities = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    return any(capabilities.get(name, False) for name in names)


def fast_dtype(device: torch.device | str) -> torch.dtype:
    """bfloat16 where the device multiplies it in hardware, float32 elsewhere."""
    return torch.bfloat16 if multiplies_bfloat16(device) else torch.float32


def describe(device: torch.device) -> str:
    """The device in words: "cpu", "cuda (NVIDIA H100)"."""
    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else device.type


def threads_for(d_model: int) -> int:
    """How many threads suit states of that width: one below `WIDE`, else as many as torch is set to.

    The threads of a matrix product wait for each other at its end, and where other processes want the cores
    they mostly wait for a core. On two cores with about eight busy processes, the MLP of a layer on 2,048 tokens
    took with two threads, as a multiple of the time with one: 11.4 at width 32, 1.66 at 256, 1.22 at
    512, 0.94 at 1,024. The width decides, and not how busy the machine is just now, because the number
    of threads changes the rounding of the results.
    """
    return 1 if d_model < WIDE else torch.get_num_threads()


@contextmanager
def threads(n: int | None) -> Iterator[None]:
    """Let torch use n threads on the CPU while the block runs (None: as many as it is set to).

    Raises ValueError for fewer than 1.
    """
    if n is not None and n < 1:
        raise ValueError(f"threads is {n}; expected 1 or more")
    before = torch.get_num_threads()
    torch.set_num_threads(n or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
