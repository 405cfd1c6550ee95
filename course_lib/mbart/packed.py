"""mBART and its kin on sentences laid end to end, without padding: the same numbers with less work.

In a padded batch every matrix product also multiplies the pads. But all of a layer except attention treats
each token alone: embeddings, norms, projections and the MLP can run on one long row of tokens (tokens,
d_model), whichever sentence each token is from. Only attention must know where sentences end. Sentences
are sorted by length, so that those of equal length are neighbours, and each such run is attended to
as a batch of its own, which needs no mask.

The weights are those of transformers' modules, read where they are; what is computed is transformers'
forward in evaluation mode, layer for layer (`tests/mbart/test_families.py` holds the two together).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from course_lib.mbart.families import embedded, norm_first
from course_lib.mbart.site import Site


@dataclass(frozen=True)
class Packed:
    """Token ids of sentences laid end to end. Fast only where equally long sentences are neighbours."""

    ids: Int[Tensor, " tokens"]
    positions: Int[Tensor, " tokens"]
    lengths: list[int]

    def to(self, device: torch.device) -> "Packed":
        """The same on another device; to a GPU without waiting for it."""
        if device.type == "cuda":
            ids, positions = self.ids.pin_memory(), self.positions.pin_memory()
        else:
            ids, positions = self.ids, self.positions
        return Packed(
            ids.to(device, non_blocking=True), positions.to(device, non_blocking=True), self.lengths
        )


def stages(
    model: PreTrainedModel, source: Packed, target: Packed | None = None
) -> Iterator[tuple[Site, Float[Tensor, "tokens d_model"]]]:
    """Run encoder, then decoder where there is a target, and hand over every site when it is reached.

    Whoever stops asking stops the model: nothing after the last site that was asked for is computed. A
    tensor is valid until the next site is asked for, because the residual stream is added to in place.
    """
    encoder, decoder = model.model.encoder, model.model.decoder
    before, after = _norms(model)
    runs = _runs(source.lengths, source.lengths)
    x = _embed(encoder, source)
    yield Site("encoder", 0), x
    for i, layer in enumerate(encoder.layers, start=1):
        h = before(layer.self_attn_layer_norm, x)
        h = _attention(layer.self_attn, h, h, runs)
        yield Site("encoder", i, "attention"), h
        x = after(layer.self_attn_layer_norm, x.add_(h))
        h = _mlp(layer, before(layer.final_layer_norm, x))
        yield Site("encoder", i, "mlp"), h
        x = after(layer.final_layer_norm, x.add_(h))
        if x.dtype == torch.float16:  # as transformers does, in the encoder only
            limit = torch.finfo(x.dtype).max - 1000
            x.clamp_(-limit, limit)
        yield Site("encoder", i), x
    memory = encoder.layer_norm(x) if norm_first(model.config) else x
    yield Site("encoder"), memory
    if target is None:
        return

    runs = _runs(target.lengths, target.lengths)
    crossing = _runs(target.lengths, source.lengths)
    x = _embed(decoder, target)
    yield Site("decoder", 0), x
    for i, layer in enumerate(decoder.layers, start=1):
        h = before(layer.self_attn_layer_norm, x)
        h = _attention(layer.self_attn, h, h, runs, causal=True)
        yield Site("decoder", i, "attention"), h
        x = after(layer.self_attn_layer_norm, x.add_(h))
        h = _attention(layer.encoder_attn, before(layer.encoder_attn_layer_norm, x), memory, crossing)
        yield Site("decoder", i, "cross_attention"), h
        x = after(layer.encoder_attn_layer_norm, x.add_(h))
        h = _mlp(layer, before(layer.final_layer_norm, x))
        yield Site("decoder", i, "mlp"), h
        x = after(layer.final_layer_norm, x.add_(h))
        yield Site("decoder", i), x
    yield Site("decoder"), decoder.layer_norm(x) if norm_first(model.config) else x


def _norms(model: PreTrainedModel) -> tuple[Callable[[nn.Module, Tensor], Tensor], ...]:
    """What a norm does to what a block reads, and what it does to the stream after the block."""
    normed, unchanged = lambda norm, x: norm(x), lambda norm, x: x
    return (normed, unchanged) if norm_first(model.config) else (unchanged, normed)


def _embed(stack: nn.Module, packed: Packed) -> Float[Tensor, "tokens d_model"]:
    return embedded(stack, packed.ids, packed.positions, longest=max(packed.lengths, default=0))


def _attention(
    attention: nn.Module,
    queries: Float[Tensor, "targets d_model"],
    keys: Float[Tensor, "sources d_model"],
    runs: list[tuple[int, int, int]],
    *,
    causal: bool = False,
) -> Float[Tensor, "targets d_model"]:
    """Multi-head attention inside each sentence: projections on all tokens, softmax run by run."""
    q, k, v = attention.q_proj(queries), attention.k_proj(keys), attention.v_proj(keys)
    mixed, first_q, first_k = [], 0, 0
    for n, q_length, k_length in runs:
        last_q, last_k = first_q + n * q_length, first_k + n * k_length
        found = functional.scaled_dot_product_attention(
            *(
                t.view(n, length, attention.num_heads, attention.head_dim).transpose(1, 2)
                for t, length in (
                    (q[first_q:last_q], q_length),
                    (k[first_k:last_k], k_length),
                    (v[first_k:last_k], k_length),
                )
            ),
            is_causal=causal,
            scale=attention.scaling,
        )
        mixed.append(found.transpose(1, 2).reshape(n * q_length, -1))
        first_q, first_k = last_q, last_k
    return attention.out_proj(torch.cat(mixed))


def _mlp(layer: nn.Module, x: Float[Tensor, "tokens d_model"]) -> Float[Tensor, "tokens d_model"]:
    return layer.fc2(layer.activation_fn(layer.fc1(x)))


def _runs(queries: list[int], keys: list[int]) -> list[tuple[int, int, int]]:
    """How many neighbours share a length of queries and of keys: (sentences, queries, keys)."""
    return [(len(list(same)), *lengths) for lengths, same in groupby(zip(queries, keys, strict=True))]
