"""Linear attention with the quadratic kernel for a GPU: few large products of matrices, all chunks at once (lesson 19).

A GPU is kept busy by much work of one shape: the sums of `quadratic_sums`, for all heads and chunks in one launch. The
gradient has the shape of the forward pass: queries pull at what keys and values wrote, keys read and pull at what queries
and gradients wrote, from the end of the sequence on.
"""

import os
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import pad

from course_lib.attention import quadratic_sums
from course_lib.attention.kernelized_chunks import Form, Tokens, attend_in_chunks
from course_lib.attention.quadratic_sums import Side

CHUNK = 512  # tokens that meet each other; a multiple of every tile of the kernels
WIDEST = (
    64  # entries of a head: of more, float32 tiles do not fit into the memory of a Hopper's multiprocessor
)
MOST = 65_535  # heads times batch, the most that a launch takes
SHORTEST = 256  # tokens below which there is too little work for all these launches


def fits(tokens: Tokens, form: Form) -> bool:
    """Whether the kernels take such a call: on a Hopper (H100, H200), where they were run, or in Triton's interpreter."""
    q, k, v = tokens[:3]
    return (
        (q.device.type == "cuda" or _interpreted())
        and find_spec("triton") is not None
        and type(q) in (Tensor, Parameter)  # not what stands for a tensor in a trace
        and not torch.compiler.is_compiling()
        and q.dtype != torch.float64
        and max(q.shape[-1], v.shape[-1]) <= WIDEST
        and 0 < len(q) <= MOST
        and min(q.shape[1], k.shape[1]) >= SHORTEST
        and (not form.causal or q.shape[1] == k.shape[1])
        and (_interpreted() or _is_hopper(q.device))
    )


def attend_in_parallel(tokens: Tokens, form: Form) -> Tensor:
    """Outputs (B, L, M) of `Quadratic` without decay, from no earlier sums; causal with as many queries as keys.

    Derivatives of any order are exact up to rounding; for the first one inputs, output and denominators are kept.
    """
    return _ParallelAttention.apply(*tokens[:5], form)[0]


def _interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def _is_hopper(device: torch.device) -> bool:
    return torch.version.cuda is not None and torch.cuda.get_device_capability(device)[0] == 9


def _forms(x: Tensor) -> ModuleType:
    """The module whose `write`, `read` and `pull` serve this device."""
    if x.device.type == "cuda" or _interpreted():
        from course_lib.attention import quadratic_triton

        return quadratic_triton
    return quadratic_sums


def _whole(x: Tensor, width: int) -> Tensor:
    """Zeros behind the end, until chunks and entries are whole; float16, whose range is narrow, becomes float32."""
    x = x.float() if x.dtype == torch.float16 else x
    more = width - x.shape[2], -x.shape[1] % CHUNK
    return (pad(x, (0, more[0], 0, more[1])) if any(more) else x).contiguous()


def _width(x: Tensor) -> int:
    return max(16, 1 << (x.shape[2] - 1).bit_length())


def _side(x: Tensor, value: Tensor, weight: Tensor) -> Side:
    return Side(_whole(x, _width(x)), _whole(value, _width(value)), _whole(weight, 1))


class _ParallelAttention(torch.autograd.Function):
    """Attention with the quadratic kernel: outputs (B, L, M) and their denominators (B, L, 1)."""

    @staticmethod
    def forward(q, k, v, weights, floor, form):
        forms, keys, direction = _forms(k), _side(k, v, weights), "past" if form.causal else ""
        sums = forms.write(keys, keys.x.shape[1] // CHUNK, direction)
        # Where rows were added, they divide by 0 and are cut off.
        below = _whole(floor, 1) if form.normalize else None
        queries = _whole(q, _width(q))
        out, total = forms.read(Side(queries, queries, floor), keys, sums, form.feature_map, direction, below)
        out = out[:, : q.shape[1], : v.shape[2]].to(v.dtype)
        return out, total[:, : q.shape[1]] if form.normalize else torch.ones_like(floor)

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.form = inputs
        ctx.save_for_backward(*tensors, *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, grad_out, _):
        q, k, v, weights, floor, out, total = ctx.saved_tensors
        form = ctx.form
        if torch.is_grad_enabled():  # create_graph: by operations with derivatives
            again = attend_in_chunks(Tokens(q, k, v, weights, floor), form, None, keep_features=True)[0]
            wanted = [t for t, need in zip((q, k, v), ctx.needs_input_grad, strict=False) if need]
            found = iter(torch.autograd.grad(again, wanted, grad_out, create_graph=True))
            return *(next(found) if need else None for need in ctx.needs_input_grad[:3]), None, None, None
        g = grad_out / total
        h = -(g * out).sum(-1, keepdim=True) if form.normalize else torch.zeros_like(total)
        forms, kernel = _forms(k), form.feature_map
        keys, queries = _side(k, v, weights), _side(q, g if q.dtype == torch.float16 else g.to(q.dtype), h)
        past, future = ("past", "future") if form.causal else ("", "")
        sums = forms.write(keys, keys.x.shape[1] // CHUNK, past)
        grad_q = forms.pull(queries, keys, sums, kernel, past)
        sums = forms.write(queries, queries.x.shape[1] // CHUNK, future)
        grad_v, _ = forms.read(keys, queries, sums, kernel, future, None)
        grad_k = forms.pull(keys, queries, sums, kernel, future)
        grads = zip((grad_q, grad_k, grad_v), (q, k, v), strict=True)
        return *(grad[:, : t.shape[1], : t.shape[2]].to(t.dtype) for grad, t in grads), None, None, None
