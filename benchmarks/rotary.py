"""Rotary embedding: ours against transformers' Llama, both layouts, forward and backward, float32 and bfloat16.

One call turns queries and keys of shape 4 x 16 x 1024 x 64 each, from tables that were made beforehand, as in a
model; the peer is `apply_rotary_pos_emb`. The C library is asked to keep freed memory. By default it hands tensors of
this size back to the system after some calls and not after others, and page faults, not arithmetic, then decide: the
same pair of functions gave ratios from 0.09 to 0.32.
"""

import ctypes
import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.timing import Spread, interleave
from course_lib.attention.rotary import LAYOUTS, apply_rotary, rope_frequencies, rotary_table

SHAPE = (4, 16, 1024, 64)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ROUNDS = 15


def _keep_freed_memory() -> None:
    """Ask glibc neither to map large tensors one by one nor to trim its heap; other C libraries are left alone."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
        mallopt(mmap_threshold, 2**30)
        mallopt(trim_threshold, 2**30)


def _candidates(dtype: torch.dtype, device: str) -> dict[str, Callable]:
    """Return functions of (q, k) that turn both."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    seq, head_dim = SHAPE[-2:]
    positions = torch.arange(seq, device=device)
    table = rotary_table(positions, rope_frequencies(head_dim, device=device))
    config = LlamaConfig(hidden_size=16 * head_dim, num_attention_heads=16)
    cos, sin = LlamaRotaryEmbedding(config).to(device)(
        torch.empty(0, dtype=dtype, device=device), positions[None]
    )
    ours = {
        layout: lambda q, k, layout=layout: (
            apply_rotary(q, table, layout=layout),
            apply_rotary(k, table, layout=layout),
        )
        for layout in LAYOUTS
    }
    return {"transformers": lambda q, k: apply_rotary_pos_emb(q, k, cos, sin), **ours}


def _compare(dtype: torch.dtype, device: str, *, backward: bool) -> dict[str, Spread]:
    generator = torch.Generator().manual_seed(0)
    q, k, upstream = (torch.randn(SHAPE, generator=generator).to(device, dtype) for _ in range(3))
    q.requires_grad_(backward)
    k.requires_grad_(backward)

    def timed(turn):
        def call(_round):
            turned = turn(q, k)
            if backward:
                torch.autograd.grad(turned, (q, k), (upstream, upstream))
            if device != "cpu":
                torch.cuda.synchronize()

        return call

    seconds = interleave(
        {name: timed(turn) for name, turn in _candidates(dtype, device).items()},
        rounds=ROUNDS,
        clock=time.thread_time if device == "cpu" else time.perf_counter,
    )
    peer = np.array(seconds["transformers"])
    return {layout: Spread.of(np.array(seconds[layout]) / peer) for layout in LAYOUTS}


def run() -> dict[str, Spread]:
    """Return the ratios ours / transformers', on the CPU and on a GPU where there is one."""
    torch.set_num_threads(1)
    _keep_freed_memory()
    rows = {}
    for device in ("cpu", *(["cuda"] if torch.cuda.is_available() else [])):
        for name, dtype in DTYPES.items():
            for backward in (False, True):
                passes = "forward+backward" if backward else "forward"
                for layout, spread in _compare(dtype, device, backward=backward).items():
                    rows[f"RoPE {layout}, {name}, {passes}, {device}: ours / transformers"] = spread
    return rows
