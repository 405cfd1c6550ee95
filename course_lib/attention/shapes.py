"""The shapes that every attention function of the course takes, checked in one place.

Queries, keys and values are laid out as in `torch.nn.functional.scaled_dot_product_attention`:
`(..., seq, head_dim)` with any leading dimensions, usually batch and heads. Inside, the leading dimensions are one:
a view where the memory allows it, so that a call with 2 or 5 dimensions costs what a call with 4 does.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, TypedDict

import torch
from torch import Tensor


def check_qkv(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Check that q (..., L, D), k (..., S, D) and v (..., S, M) belong together.

    Raises:
        ValueError: a tensor has fewer than two dimensions or is not floating point, leading dimensions, head
            dimensions or sequence lengths differ, or dtypes or devices do.
    """
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.ndim < 2:
            raise ValueError(f"{name} must have shape (..., seq, head_dim), got {tuple(tensor.shape)}")
        if not tensor.is_floating_point():
            raise ValueError(f"{name} must be floating point, got {tensor.dtype}")
        if (tensor.dtype, tensor.device) != (q.dtype, q.device):
            raise ValueError(
                f"q, k and v must share dtype and device, got q {q.dtype} on {q.device} and "
                f"{name} {tensor.dtype} on {tensor.device}"
            )
        if tensor.shape[:-2] != q.shape[:-2]:
            raise ValueError(
                f"q, k and v must have the same leading dimensions, got q {tuple(q.shape)} and {name} "
                f"{tuple(tensor.shape)}; those of size 1 are repeated, and with enable_gqa=True fewer heads of k and v"
            )
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q and k must have the same head_dim, got {q.shape[-1]} and {k.shape[-1]}")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"k and v must have the same length, got {k.shape[-2]} and {v.shape[-2]}")


class TorchOptions(TypedDict, total=False):
    """What attention functions take besides their own options, named as torch names it.

    `is_causal`, where given, counts in place of `causal`. With `enable_gqa` the dimension before seq is heads, and each head
    of k and v serves as many neighbouring heads of q as there are more of them. `padding_mask` is boolean, (batch, k_len),
    True takes part: the first leading dimension is the batch. Leading dimensions of size 1 are repeated.
    """

    is_causal: bool | None
    enable_gqa: bool
    padding_mask: Tensor | None


class Inputs(NamedTuple):
    """q, k and v with equal leading dimensions, one mask, and whether attention is causal."""

    q: Tensor
    k: Tensor
    v: Tensor
    attn_mask: Tensor | None
    causal: bool


def normalize_inputs(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    causal: bool = False,
    *,
    is_causal: bool | None = None,
    enable_gqa: bool = False,
    padding_mask: Tensor | None = None,
) -> Inputs:
    """Turn a call with `TorchOptions` into one without them, checked.

    The padding mask closes keys that `attn_mask` leaves open, be it boolean or added to the scores.

    Raises:
        ValueError: tensors do not belong together, heads are no multiple, the padding mask does not fit, or causal
            attention gets more queries than keys.
    """
    causal = causal if is_causal is None else is_causal
    if enable_gqa and min(x.ndim for x in (q, k, v)) >= 3:
        heads = q.shape[-3], k.shape[-3], v.shape[-3]
        if 0 in heads or heads[1] != heads[2] or heads[0] % heads[1]:
            raise ValueError(
                "enable_gqa needs as many heads of k as of v and a multiple of them of q, got "
                f"{heads[0]}, {heads[1]} and {heads[2]} heads of q, k and v"
            )
        k, v = (x.repeat_interleave(heads[0] // heads[1], dim=-3) for x in (k, v))
    if min(x.ndim for x in (q, k, v)) >= 2 and not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        pairs = zip(*(reversed(x.shape[:-2]) for x in (q, k, v)), strict=False)
        if all(len({n for n in sizes if n != 1}) <= 1 for sizes in pairs):
            lead = torch.broadcast_shapes(*(x.shape[:-2] for x in (q, k, v)))
            q, k, v = (x.expand(*lead, *x.shape[-2:]) for x in (q, k, v))
    check_qkv(q, k, v)
    if causal:
        check_causal(q, k)
    if padding_mask is None:
        return Inputs(q, k, v, attn_mask, causal)
    batch, length = q.shape[:-2][:1] or (1,), k.shape[-2]
    if padding_mask.dtype != torch.bool or padding_mask.shape != (*batch, length):
        raise ValueError(
            f"padding_mask must be boolean of shape {(*batch, length)}, True takes part, got {padding_mask.dtype} "
            f"of shape {tuple(padding_mask.shape)}"
        )
    padding_mask = padding_mask.reshape(*q.shape[:-2][:1], *[1] * (q.ndim - 2), length)
    if attn_mask is None:
        attn_mask = padding_mask
    elif attn_mask.dtype == torch.bool:
        attn_mask = attn_mask & padding_mask
    else:
        attn_mask = attn_mask.masked_fill(~padding_mask, -math.inf)
    return Inputs(q, k, v, attn_mask, causal)


def check_causal(q: Tensor, k: Tensor) -> None:
    """Check that the queries may be the last tokens of the sequence of keys: there are not more of them.

    Query i then sees the keys up to i + S - L, those before the first query included: the alignment at the bottom right
    that a cache of keys needs.

    Raises:
        ValueError: there are more queries than keys.
    """
    if q.shape[-2] > k.shape[-2]:
        raise ValueError(
            f"causal attention needs at least as many keys as queries, got {q.shape[-2]} queries and {k.shape[-2]} keys"
        )


def key_weights(attn_mask: Tensor | None, k: Tensor) -> Tensor | None:
    """Turn a mask over keys into numbers 0 and 1 of shape (..., S, 1) that multiply the keys' features.

    Shapes: `attn_mask` is None or boolean, (..., 1, S), as scaled_dot_product_attention takes it: True takes part.
    Attention in linear time never forms the scores, so a mask that depends on the query has no place in it.

    Raises:
        ValueError: the mask is not boolean, has a query dimension above 1, or does not fit the keys.
    """
    if attn_mask is None:
        return None
    if attn_mask.dtype != torch.bool:
        raise ValueError(
            f"attn_mask must be boolean (True takes part), got {attn_mask.dtype}: there are no scores it could be added to"
        )
    if attn_mask.ndim < 2 or attn_mask.shape[-2] != 1 or attn_mask.shape[-1] != k.shape[-2]:
        raise ValueError(
            f"attn_mask must have shape (..., 1, {k.shape[-2]}), one entry a key and the same for all queries, "
            f"got {tuple(attn_mask.shape)}"
        )
    try:
        weights = attn_mask.expand(*k.shape[:-2], 1, k.shape[-2])
    except RuntimeError:
        raise ValueError(
            f"attn_mask of shape {tuple(attn_mask.shape)} does not broadcast over leading dimensions {tuple(k.shape[:-2])}"
        ) from None
    return weights.mT.to(k.dtype)


def hide_keys(attn_mask: Tensor | None, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return k and v with masked keys set to 0, and the weights of the keys (`key_weights`).

    Raises:
        ValueError: as `key_weights`.
    """
    weights = key_weights(attn_mask, k)
    return *zero_hidden(attn_mask, k, v), weights


def zero_hidden(attn_mask: Tensor | None, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Set to 0 the keys or values that no query may look at: padding may hold anything, NaN and infinity included.

    A weight of 0 does not keep it out, since 0 times NaN is NaN; and a gradient of 0 does not either.

    Shapes: `attn_mask` is None or broadcasts to (..., L, S), boolean (True takes part) or added to the scores; each
    of `tensors` is (..., S, dim).
    """
    if attn_mask is None:
        return tensors
    is_open = attn_mask if attn_mask.dtype == torch.bool else attn_mask > -math.inf
    hidden = ~torch.atleast_2d(is_open).any(dim=-2).unsqueeze(-1)
    return tuple(tensor.masked_fill(hidden, 0) for tensor in tensors)


def without_autocast(device: torch.device) -> AbstractContextManager:
    """Keep sums, exponents and factorisations in their own dtype; a device without autocast does so anyway."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def merge_leading(tensor: Tensor) -> Tensor:
    """View (..., seq, dim) as (batch, seq, dim)."""
    return tensor.reshape(
        math.prod(tensor.shape[:-2]), *tensor.shape[-2:]
    )  # -1 would be ambiguous without elements
