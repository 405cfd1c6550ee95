"""Softmax attention: the scale of its scores, and what is left when the scale grows without end (lesson 17).

Query i looks at all keys: its scores are s_ij = beta q_i.k_j, its weights are the softmax of row i of the scores,
and its output is the mean of the values under these weights. The scale beta is 1/sqrt(head_dim) unless something
else is asked for; a tensor of scales, one for each head, may be learned.

`naive_attention` says this in three lines. `attention` computes the same by torch's fused kernel, for any number of
leading dimensions. In all functions q is (..., q_len, head_dim), k is (..., k_len, head_dim), v is
(..., k_len, v_dim), with the same leading dimensions (batch, heads or more; none is fine).

Masks are those of `torch.nn.functional.scaled_dot_product_attention`: `attn_mask` broadcasts to (..., q_len, k_len)
and is either boolean, True where the query may look, or of q's dtype or float32 and added to the scores. `causal` lets
query i see keys 0 to i; both may be given. With fewer queries than keys, as behind a cache, causal queries are the last
of the sequence, and query i sees keys 0 to i + k_len - q_len (torch's `is_causal` lets it see 0 to i there). A query
that may look at nothing has weights 0 and output 0.
"""

import math
from typing import Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from course_lib.attention.shapes import (
    TorchOptions,
    check_causal,
    check_qkv,
    normalize_inputs,
    zero_hidden,
)
from course_lib.checks import named

Scale = float | int | Float[Tensor, "..."] | None


# What all forms of attention share


def _fits(shape: torch.Size, wanted: tuple[int, ...]) -> bool:
    """Whether a tensor of that shape broadcasts to `wanted` and to nothing larger."""
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and all(size in (1, target) for size, target in pairs)


def _check(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None, causal: bool, scale: Scale) -> None:
    check_qkv(q, k, v)
    if causal:
        check_causal(q, k)
    if attn_mask is not None:
        wanted = (*q.shape[:-1], k.shape[-2])
        if attn_mask.dtype not in (torch.bool, torch.float32, q.dtype):
            raise ValueError(
                f"attn_mask must be boolean or {q.dtype} as q is, or torch.float32, got {attn_mask.dtype}"
            )
        if not _fits(attn_mask.shape, wanted):
            raise ValueError(f"attn_mask must broadcast to {wanted}, got shape {tuple(attn_mask.shape)}")
    if isinstance(scale, Tensor):
        if not _fits(scale.shape, (*q.shape[:-2], 1, 1)):
            raise ValueError(
                "a tensor as scale must have shape () or end in (1, 1) and broadcast to "
                f"{(*q.shape[:-2], 1, 1)}, got {tuple(scale.shape)}"
            )
    elif scale is not None and not -math.inf < scale < math.inf:
        raise ValueError(f"scale must be a finite number, a tensor or None, got {scale}")
    elif scale is None and q.shape[-1] == 0:
        raise ValueError("head_dim is 0, and the default scale is 1/sqrt(head_dim): give scale")


def _cast_mask(attn_mask: Tensor | None, q: Tensor) -> Tensor | None:
    """Bring a mask that is added to the dtype of the scores."""
    return attn_mask if attn_mask is None or attn_mask.dtype == torch.bool else attn_mask.to(q.dtype)


def _close_future(attn_mask: Tensor | None, q_len: int, k_len: int, device: torch.device) -> Tensor:
    """Close the future: entry (i, j) of the mask stays as it is for j <= i + k_len - q_len only."""
    past = torch.ones(q_len, k_len, dtype=torch.bool, device=device).tril(k_len - q_len)
    if attn_mask is None:
        return past
    return attn_mask & past if attn_mask.dtype == torch.bool else attn_mask.masked_fill(~past, -math.inf)


def _is_blind(scores: Tensor) -> Tensor:
    return (scores == -math.inf).all(-1, keepdim=True)


def _softmax_rows(scores: Tensor) -> Tensor:
    """Softmax over the last dimension; a row of minus infinities gives zeros, and zeros as gradient, not NaN."""
    blind = _is_blind(scores)
    return torch.softmax(scores.masked_fill(blind, 0), -1).masked_fill(blind, 0)


# Attention by its definition


def attention_scores(
    q: Float[Tensor, "... q_len head_dim"],
    k: Float[Tensor, "... k_len head_dim"],
    *,
    attn_mask: Tensor | None = None,
    causal: bool = False,
    scale: Scale = None,
) -> Float[Tensor, "... q_len k_len"]:
    """s_ij = beta q_i.k_j (17.1), minus infinity where query i may not look at key j.

    Units: `scale` is beta, 1/sqrt(head_dim) for None; a tensor of shape () or (..., 1, 1), to be learned say,
    gives each head its own.

    Raises:
        ValueError: q and k do not belong together, mask or scale do not fit, or causal gets more queries than keys.
    """
    _check(q, k, k, attn_mask, causal, scale)
    attn_mask = _cast_mask(attn_mask, q)
    (k,) = zero_hidden(attn_mask, k)
    if scale is None:
        scale = q.shape[-1] ** -0.5
    scores = q @ k.mT * (scale.to(q.dtype) if isinstance(scale, Tensor) else scale)
    if causal:
        attn_mask = _close_future(attn_mask, q.shape[-2], k.shape[-2], q.device)
    if attn_mask is None:
        return scores
    if attn_mask.dtype == torch.bool:
        return scores.masked_fill(~attn_mask, -math.inf)
    return scores + attn_mask


def attention_weights(
    q: Float[Tensor, "... q_len head_dim"],
    k: Float[Tensor, "... k_len head_dim"],
    *,
    attn_mask: Tensor | None = None,
    causal: bool = False,
    scale: Scale = None,
) -> Float[Tensor, "... q_len k_len"]:
    """alpha_ij = exp(s_ij) / sum_l exp(s_il) (17.1): rows that sum to 1, or to 0 for a query that may see nothing.

    Raises:
        ValueError: as `attention_scores`.
    """
    return _softmax_rows(attention_scores(q, k, attn_mask=attn_mask, causal=causal, scale=scale))


def naive_attention(
    q: Float[Tensor, "... q_len head_dim"],
    k: Float[Tensor, "... k_len head_dim"],
    v: Float[Tensor, "... k_len v_dim"],
    *,
    attn_mask: Tensor | None = None,
    causal: bool = False,
    scale: Scale = None,
) -> Float[Tensor, "... q_len v_dim"]:
    """o_i = sum_j alpha_ij v_j (17.1), with all weights in memory.

    Raises:
        ValueError: q, k and v do not belong together, mask or scale do not fit, or causal gets more queries than keys.
    """
    check_qkv(q, k, v)
    weights = attention_weights(q, k, attn_mask=attn_mask, causal=causal, scale=scale)
    return weights @ zero_hidden(attn_mask, v)[0]


# Attention by the fused kernel


def _four_dims(tensor: Tensor, n_lead: int) -> Tensor:
    """View (..., rows, columns) with `n_lead` leading dimensions as (batch, heads, rows, columns)."""
    if n_lead <= 2:
        return tensor.reshape((1,) * (2 - n_lead) + tensor.shape)
    return tensor.reshape(math.prod(tensor.shape[:-3]), *tensor.shape[-3:])


def _four_dims_mask(mask: Tensor, lead: torch.Size) -> Tensor:
    """Bring a mask to four dimensions; it is copied only where it differs within a merged dimension."""
    mask = mask[(None,) * (len(lead) + 2 - mask.ndim)]
    if any(size != 1 for size in mask.shape[:-3]):
        mask = mask.expand(*lead[:-1], *mask.shape[-3:])
    return _four_dims(mask, len(lead))


def _is_token_of_grouped_heads(q: Tensor, k: Tensor, v: Tensor, scale: Scale) -> bool:
    """Whether this is a step of decoding in which several heads of q belong to one of k and v."""
    if min(x.ndim for x in (q, k, v)) < 3 or q.shape[-2] != 1 or isinstance(scale, Tensor):
        return False
    heads = k.shape[-3]
    return 0 < heads == v.shape[-3] < q.shape[-3] and q.shape[-3] % heads == 0


@named
def attention(
    q: Float[Tensor, "... q_len head_dim"],
    k: Float[Tensor, "... k_len head_dim"],
    v: Float[Tensor, "... k_len v_dim"],
    *,
    attn_mask: Tensor | None = None,
    causal: bool = False,
    scale: Scale = None,
    dropout_p: float | int = 0.0,
    **call: Unpack[TorchOptions],
) -> Float[Tensor, "... q_len v_dim"]:
    """o_i = sum_j alpha_ij v_j (17.1), equal to `naive_attention` without its matrix of weights.

    torch chooses its fused kernels by the shape, and on a CPU takes them for four dimensions only. Any other number
    of dimensions is therefore turned into four, by views where the memory layout allows it.

    As torch calls it: `dropout_p` is the probability that a weight is set to 0, at every call: give 0 outside training;
    the other options are `TorchOptions`. A single query without a mask needs no repeated heads.

    Raises:
        ValueError: q, k and v do not belong together, masks, scale or dropout do not fit, or causal gets more queries
            than keys.
    """
    if not 0 <= dropout_p < 1:
        raise ValueError(f"dropout_p must lie between 0 and 1, without 1, got {dropout_p}")
    unmasked = attn_mask is None and call.get("padding_mask") is None
    if call.get("enable_gqa") and unmasked and _is_token_of_grouped_heads(q, k, v, scale):
        # Queries that share a head of keys stand as rows before it: the cache is not repeated.
        rows = q.squeeze(-2).unflatten(-2, (k.shape[-3], -1))
        return attention(rows, k, v, scale=scale, dropout_p=dropout_p).flatten(-3, -2).unsqueeze(-2)
    q, k, v, attn_mask, causal = normalize_inputs(q, k, v, attn_mask, causal, **call)
    _check(q, k, v, attn_mask, causal, scale)
    attn_mask = _cast_mask(attn_mask, q)
    if isinstance(scale, Tensor):  # torch's own argument takes a number and gives it no gradient
        q, scale = q * scale.to(q.dtype), 1.0
    lead, q_len, k_len = q.shape[:-2], q.shape[-2], k.shape[-2]
    k, v = zero_hidden(attn_mask, k, v)
    if causal and q_len == 1:
        causal = False  # the last token sees all keys
    if causal and (
        attn_mask is not None or q_len < k_len
    ):  # torch allows only one mask, and aligns at the top left
        attn_mask, causal = _close_future(attn_mask, q_len, k_len, q.device), False
    if attn_mask is not None:
        attn_mask = _four_dims_mask(attn_mask, lead)
    if len(lead) != 2:
        q, k, v = (_four_dims(tensor, len(lead)) for tensor in (q, k, v))
    output = functional.scaled_dot_product_attention(
        q, k, v, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=causal, scale=scale
    )
    return output if len(lead) == 2 else output.reshape(lead + output.shape[-2:])


@named
def qk_norm_attention(
    q: Float[Tensor, "... q_len head_dim"],
    k: Float[Tensor, "... k_len head_dim"],
    v: Float[Tensor, "... k_len v_dim"],
    *,
    scale: float | int | Float[Tensor, "..."],
    attn_mask: Tensor | None = None,
    causal: bool = False,
    dropout_p: float | int = 0.0,
    **call: Unpack[TorchOptions],
) -> Float[Tensor, "... q_len v_dim"]:
    """Attention with the scores g cos(q_i, k_j) (17.10): none is larger than g, whatever the weights of the layer.

    Units: `scale` is g, usually learned: a tensor of shape () or (..., 1, 1). All other options are those of `attention`.

    Raises:
        ValueError: as `attention`.
    Source: Henry, Dachapally, Pawar and Chen (2020), arXiv:2010.04245.
    """
    q, k, v, attn_mask, causal = normalize_inputs(q, k, v, attn_mask, causal, **call)
    _check(q, k, v, attn_mask, causal, scale)
    (k,) = zero_hidden(attn_mask, k)
    q, k = (functional.normalize(tensor, dim=-1) for tensor in (q, k))
    return attention(q, k, v, attn_mask=attn_mask, causal=causal, scale=scale, dropout_p=dropout_p)


# Hard attention


def argmax_keys(scores: Float[Tensor, "... q_len k_len"]) -> Int[Tensor, "... q_len"]:
    """Return the index of the largest score of each row; the first of several equal ones.

    Raises:
        ValueError: there are no keys.
    """
    if scores.shape[-1] == 0:
        raise ValueError(f"argmax needs at least one key, got scores of shape {tuple(scores.shape)}")
    return scores.argmax(-1)


def argmax_attention(
    q: Float[Tensor, "... q_len head_dim"],
    k: Float[Tensor, "... k_len head_dim"],
    v: Float[Tensor, "... k_len v_dim"],
    *,
    attn_mask: Tensor | None = None,
    causal: bool = False,
    scale: Scale = None,
) -> Float[Tensor, "... q_len v_dim"]:
    """o_i = v_j for the key j that scores highest: softmax attention (17.1) in the limit of a large scale.

    Queries and keys get no gradient; values get that of the selected rows. Of several equal scores the first key wins;
    a positive `scale` changes nothing.

    Raises:
        ValueError: q, k and v do not belong together, mask or scale do not fit, causal gets two lengths, or there
            is no key.
    """
    check_qkv(q, k, v)
    scores = attention_scores(q, k, attn_mask=attn_mask, causal=causal, scale=scale)
    weights = torch.zeros_like(scores).scatter(-1, argmax_keys(scores)[..., None], 1.0)
    weights = weights.masked_fill(_is_blind(scores), 0)
    return weights @ zero_hidden(attn_mask, v)[0]


# What the scale does


def score_moments(
    mean: Float[Tensor, " d"], *, std: float | int
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Mean ||mu||^2 and variance d sigma^4 + 2 sigma^2 ||mu||^2 of q.k (17.2).

    q and k are independent of each other, each with mean mu and covariance sigma^2 I; normality is not needed.
    Units: `std` is sigma.

    Raises:
        ValueError: `std` is negative or not finite.
    """
    if not 0 <= std < math.inf:
        raise ValueError(f"std must be a finite number, 0 or more, got {std}")
    square = mean.square().sum()
    return square, len(mean) * std**4 + 2 * std**2 * square


def softmax_jacobian(weights: Float[Tensor, "... n"]) -> Float[Tensor, "... n n"]:
    """diag(p) - p p^T, the derivative of p = softmax(s) by s (17.5), from the weights p themselves.

    Its largest singular value is at most 2 (1 - max_i p_i) (17.6), and never above 1/2.
    """
    return torch.diag_embed(weights) - weights[..., :, None] * weights[..., None, :]


def entropy(weights: Float[Tensor, "... n"]) -> Float[Tensor, "..."]:
    """-sum_j p_j log p_j of each row, in nats, with 0 log 0 = 0: log n for equal weights, 0 for a single one."""
    # The clamp changes no value: a weight of 0 is multiplied by a finite logarithm, so that its gradient is finite too.
    return -(weights * weights.clamp(min=torch.finfo(weights.dtype).tiny).log()).sum(-1)
