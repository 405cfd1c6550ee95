"""Linear attention in chunks, with any feature map: the features of one chunk are all that stands in memory (lesson 19)."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from course_lib.attention.decay import decay_mask_with_past, decayed_sums
from course_lib.attention.feature_maps import FeatureMap, Quadratic, compute_features, sum_dtype


class Tokens(NamedTuple):
    """What one call attends to, with one leading dimension.

    Shapes: q (B, L, D), k (B, S, D), v (B, S, M); `weights` (B, S, 1) are 0 for masked keys, `floor` (B, L, 1) is added
    to the denominators; `decay` is (B, S) or None.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    weights: Tensor
    floor: Tensor
    decay: Tensor | None = None


class Form(NamedTuple):
    """Which attention it is; `chunk_size` tokens are computed at a time."""

    feature_map: FeatureMap
    causal: bool
    normalize: bool
    chunk_size: int

    def divide(self, numerators: Tensor, denominators: Tensor) -> Tensor:
        """The outputs: numerators as they are where nothing is to be normalised."""
        return numerators / denominators if self.normalize else numerators


def slices(length: int, chunk_size: int) -> list[slice]:
    """Where the chunks of a sequence lie."""
    return [slice(start, min(start + chunk_size, length)) for start in range(0, length, chunk_size)]


def attend_in_chunks(
    tokens: Tokens, form: Form, sums: Tensor | None, *, keep_features: bool = False
) -> tuple[Tensor, Tensor]:
    """Outputs (B, L, M), and the sums [U, z] after the last key (B, C, M + 1); `sums` are those before the first.

    Features are computed again for the gradient, unless `keep_features`.
    """
    q, k, v, weights, floor, decay = tokens
    dtype, features = sum_dtype(v.dtype), partial(compute_features, form.feature_map)
    probe = features(k[:, :1])
    if sums is None:
        sums = torch.zeros(len(v), probe.shape[-1], v.shape[-1] + 1, dtype=dtype, device=v.device)
    inputs = (probe, q, k, v, sums, *(() if decay is None else (decay,)))
    learns = torch.is_grad_enabled() and any(t.requires_grad for t in inputs) and not keep_features

    def call(chunk: Callable, *inputs: Tensor):
        return checkpoint(chunk, *inputs, use_reentrant=False) if learns else chunk(*inputs)

    def widen(value, weight):
        return torch.cat([value.to(dtype), weight.to(dtype)], -1)

    def divide(read, below):
        return form.divide(read[..., :-1], read[..., -1:] + below).to(v.dtype)

    def write(key, value, weight, sums):
        return sums + features(key).mT @ widen(value, weight)

    def read(query, below, sums):
        return divide(features(query) @ sums, below)

    def read_and_write(query, below, key, value, weight, sums):
        phi_q, phi_k, value = features(query), features(key) * weight, value.to(dtype)
        near = (phi_q @ phi_k.mT).tril()  # the chunk's own keys, each query up to itself
        # Where all are positive, a product of matrices would lose more of the digits than `sum` does.
        own = torch.cat([near @ value, near.sum(-1, keepdim=True)], -1)
        added = torch.cat([phi_k.mT @ value, phi_k.sum(-2).unsqueeze(-1)], -1)
        return divide(phi_q @ sums + own, below), sums + added

    def read_and_fade(query, below, key, value, weight, decay, sums):
        if not isinstance(form.feature_map, Quadratic):
            out, sums = decayed_sums(features(query), features(key), widen(value, weight), decay, sums)
            return divide(out, below), sums
        # Similarities cost less than products of so many features: the whole chunk meets itself.
        query, key, values = query.to(dtype), key.to(dtype), widen(value, weight)
        mask = decay_mask_with_past(decay.to(dtype))
        near = form.feature_map.similarity(query, key) * mask[:, 1:, 1:]
        out = mask[:, 1:, :1] * (features(query) @ sums) + near @ values
        sums = torch.baddbmm(mask[:, -1:, :1] * sums, features(key).mT, mask[:, -1, 1:, None] * values)
        return divide(out, below), sums

    outputs, chunk_size = [v.new_empty(len(v), 0, v.shape[-1])], form.chunk_size
    if not form.causal:
        for at in slices(k.shape[1], chunk_size):
            sums = call(write, k[:, at], v[:, at], weights[:, at], sums)
    if decay is not None:
        # Few features: chunks up to four times as long, whose features are no more numbers than the scores of a plain chunk.
        chunk_size *= max(1, min(4, chunk_size // probe.shape[-1]))
    for at in slices(q.shape[1], chunk_size):
        own = k[:, at], v[:, at], weights[:, at]
        if not form.causal:
            out = call(read, q[:, at], floor[:, at], sums)
        elif decay is None:
            out, sums = call(read_and_write, q[:, at], floor[:, at], *own, sums)
        else:
            out, sums = call(read_and_fade, q[:, at], floor[:, at], *own, decay[:, at], sums)
        outputs.append(out)
    return torch.cat(outputs, 1), sums
