"""mBART by hand: every equation of the model as a function of tensors and weights (lesson 34).

The weights are a mapping from names to tensors, as `model.state_dict()` gives it and a checkpoint's
safetensors file holds it. Matrices are stored as torch stores them, (out, in), so that `x W` of the equations
is `x @ weight.T` here. In all functions states are (batch, tokens, d_model), and a mask is True where a key
may be seen.

The functions give what transformers' MBart computes in evaluation mode, layer by layer. They are written to be
read: no cache, no dropout, all attention weights kept.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

Weights = Mapping[str, Tensor]
States = Float[Tensor, "batch tokens d_model"]
Ids = Int[Tensor, "batch tokens"]
Visible = Bool[Tensor, "..."] | None

POSITION_OFFSET = (
    2  # rows 0 and 1 of the position table are never read: a leftover of fairseq's padding index
)
ACTIVATIONS = {"gelu": functional.gelu, "relu": functional.relu}


@runtime_checkable
class Config(Protocol):
    """What the weights do not tell: the part of `MBartConfig` that is read here."""

    encoder_attention_heads: int
    decoder_attention_heads: int
    encoder_layers: int
    decoder_layers: int
    scale_embedding: bool
    activation_function: str


class Stack(NamedTuple):
    """What one stack of layers computed.

    `states` holds n_layers + 1 tensors: after the embedding, then after each layer. `output` is the last of them
    after the stack's final LayerNorm. The attention weights of each layer are (batch, heads, queries, keys).
    """

    states: list[Tensor]
    output: Tensor
    self_attention: list[Tensor]
    cross_attention: list[Tensor]


def part(weights: Weights, name: str) -> dict[str, Tensor]:
    """Return the weights whose names start with `name` and a dot, without that start.

    Raises:
        ValueError: there are none.
    """
    found = {key[len(name) + 1 :]: tensor for key, tensor in weights.items() if key.startswith(f"{name}.")}
    if not found:
        raise ValueError(f"the weights hold nothing under {name!r}; they start with {sorted(weights)[:3]}")
    return found


# The pieces of a layer


def linear(x: Float[Tensor, "... d_in"], w: Weights) -> Float[Tensor, "... d_out"]:
    """x W + b."""
    return x @ w["weight"].T + w["bias"]


def layer_norm(x: Float[Tensor, "... d"], w: Weights, *, eps: float | int = 1e-5) -> Float[Tensor, "... d"]:
    """(x - mean) / sqrt(variance + eps) * gain + bias (34.5), over the entries of each state."""
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return centred / (variance + eps).sqrt() * w["weight"] + w["bias"]


def attention_weights(
    q: Float[Tensor, "... queries head_dim"],
    k: Float[Tensor, "... keys head_dim"],
    *,
    visible: Visible = None,
) -> Float[Tensor, "... queries keys"]:
    """A = softmax(Q K^T / sqrt(head_dim)) (34.2): each row over the keys that its query may see."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if visible is not None:
        scores = scores.masked_fill(~visible, -torch.inf)
    return torch.softmax(scores, dim=-1)


def _head_of(w: Weights, head: int, n_heads: int) -> dict[str, Tensor]:
    """Rows of one head in a projection, or of its bias."""
    width = len(w["weight"]) // n_heads
    return {name: tensor[head * width : (head + 1) * width] for name, tensor in w.items()}


def attention_head(
    x: Float[Tensor, "batch queries d_model"],
    y: Float[Tensor, "batch keys d_model"],
    w: Weights,
    *,
    head: int,
    n_heads: int,
    visible: Visible = None,
) -> Float[Tensor, "batch queries head_dim"]:
    """A V of one head, numbered from 0: queries from x, keys and values from y (34.1, 34.2).

    Self-attention has y = x. `visible` broadcasts to (batch, queries, keys).
    """
    q = linear(x, _head_of(part(w, "q_proj"), head, n_heads))
    k, v = (linear(y, _head_of(part(w, f"{name}_proj"), head, n_heads)) for name in "kv")
    return attention_weights(q, k, visible=visible) @ v


def split_heads(x: Float[Tensor, "batch tokens d_model"], n_heads: int) -> Tensor:
    """(batch, tokens, heads * head_dim) as (batch, heads, tokens, head_dim)."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def multi_head_attention(
    x: Float[Tensor, "batch queries d_model"],
    y: Float[Tensor, "batch keys d_model"],
    w: Weights,
    *,
    n_heads: int,
    visible: Visible = None,
) -> tuple[Float[Tensor, "batch queries d_model"], Float[Tensor, "batch heads queries keys"]]:
    """[head_1, ..., head_H] W_O + b_O (34.3), the heads beside each other along the features; and their weights.

    All heads at once: the projections of `attention_head` are blocks of rows of one matrix. `visible`
    broadcasts to (batch, heads, queries, keys).
    """
    q = split_heads(linear(x, part(w, "q_proj")), n_heads)
    k, v = (split_heads(linear(y, part(w, f"{name}_proj")), n_heads) for name in "kv")
    weights = attention_weights(q, k, visible=visible)
    concatenated = (weights @ v).transpose(1, 2).flatten(-2)
    return linear(concatenated, part(w, "out_proj")), weights


def head_contributions(
    y: Float[Tensor, "batch keys d_model"], weights: Float[Tensor, "batch heads queries keys"], w: Weights
) -> Float[Tensor, "batch heads queries d_model"]:
    """A_h Y W_V^h W_O^h for each head h (34.4): what that head alone writes into the states.

    Their sum over the heads, and `attention_bias`, is `multi_head_attention`.
    """
    n_heads = weights.shape[1]
    w_v = w["v_proj.weight"].unflatten(0, (n_heads, -1))  # (heads, head_dim, d_model)
    w_o = w["out_proj.weight"].unflatten(1, (n_heads, -1))  # (d_model, heads, head_dim)
    return torch.einsum("bhqk,bkd,hed,ohe->bhqo", weights, y, w_v, w_o)


def attention_bias(w: Weights) -> Float[Tensor, " d_model"]:
    """b_V W_O + b_O (34.4): the same for all tokens, since the weights of a row sum to 1."""
    return w["v_proj.bias"] @ w["out_proj.weight"].T + w["out_proj.bias"]


def feed_forward(x: States, w: Weights, *, activation: str) -> States:
    """phi(x W_1 + b_1) W_2 + b_2 (34.7), at each position by itself.

    Raises:
        ValueError: the activation is not known here.
    """
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation is {activation!r}; expected one of {', '.join(ACTIVATIONS)}")
    return linear(ACTIVATIONS[activation](linear(x, part(w, "fc1"))), part(w, "fc2"))


# Masks


def causal(length: int, *, device: torch.device | str | None = None) -> Bool[Tensor, "queries keys"]:
    """True where the key stands at the query's position or before it (34.11)."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def _real_keys(ids: Tensor, mask: Tensor | None, name: str) -> Tensor:
    """(batch, 1, 1, keys), True for tokens and False for pads."""
    mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    if mask.shape != ids.shape:
        raise ValueError(f"{name} must have the shape of the ids {tuple(ids.shape)}, got {tuple(mask.shape)}")
    if not mask[:, 0].all():
        # A causal row would see nothing. The tokenizers of mBART pad on the right.
        raise ValueError(f"{name} hides the first token of a sentence: pads must stand on the right")
    return mask[:, None, None, :]


# Stacks


def embed(weights: Weights, side: str, ids: Ids, *, scale: bool) -> States:
    """LN(s E[token] + P[t + 2]) (34.9), with s = sqrt(d_model) for `scale` and 1 without.

    Shapes: E is (vocabulary, d_model), shared by both sides; P is (positions + 2, d_model), one for each side.

    Raises:
        ValueError: there are more tokens than positions.
    """
    w, table = part(weights, f"model.{side}"), weights["model.shared.weight"]
    positions = w["embed_positions.weight"][POSITION_OFFSET:]
    if ids.shape[1] > len(positions):
        raise ValueError(f"{side} ids have {ids.shape[1]} tokens; the model has {len(positions)} positions")
    x = table[ids] * (table.shape[1] ** 0.5 if scale else 1.0) + positions[: ids.shape[1]]
    return layer_norm(x, part(w, "layernorm_embedding"))


def encoder_layer(
    x: States, w: Weights, *, n_heads: int, visible: Visible = None, activation: str = "gelu"
) -> tuple[States, Float[Tensor, "batch heads tokens tokens"]]:
    """X + MHA(LN X), then X + FFN(LN X) (34.6, 34.8); and the attention weights."""
    normed = layer_norm(x, part(w, "self_attn_layer_norm"))
    attended, weights = multi_head_attention(
        normed, normed, part(w, "self_attn"), n_heads=n_heads, visible=visible
    )
    x = x + attended
    return x + feed_forward(layer_norm(x, part(w, "final_layer_norm")), w, activation=activation), weights


def decoder_layer(
    x: States,
    memory: Float[Tensor, "batch keys d_model"],
    w: Weights,
    *,
    n_heads: int,
    visible: Visible,
    memory_visible: Visible = None,
    activation: str = "gelu",
) -> tuple[States, Tensor, Tensor]:
    """As an encoder layer, with cross-attention X + MHA(LN X, memory) between (34.12); and both weights."""
    normed = layer_norm(x, part(w, "self_attn_layer_norm"))
    attended, own = multi_head_attention(
        normed, normed, part(w, "self_attn"), n_heads=n_heads, visible=visible
    )
    x = x + attended
    normed = layer_norm(x, part(w, "encoder_attn_layer_norm"))
    attended, cross = multi_head_attention(
        normed, memory, part(w, "encoder_attn"), n_heads=n_heads, visible=memory_visible
    )
    x = x + attended
    x = x + feed_forward(layer_norm(x, part(w, "final_layer_norm")), w, activation=activation)
    return x, own, cross


def encoder(
    weights: Weights, input_ids: Ids, attention_mask: Tensor | None = None, *, config: Config
) -> Stack:
    """Run the encoder: embedding, layers, final LayerNorm (34.10).

    transformers' `hidden_states` are `states` with the last one replaced by `output`.

    Shapes: `input_ids` and `attention_mask` are (batch, tokens); the mask is true for tokens, false for pads.

    Raises:
        ValueError: mask and ids do not fit, pads stand on the left, or there are more tokens than positions.
    Source: Liu et al. (2020), arXiv:2001.08210.
    """
    visible = _real_keys(input_ids, attention_mask, "attention_mask")
    states, attention = [embed(weights, "encoder", input_ids, scale=config.scale_embedding)], []
    for layer in range(config.encoder_layers):
        x, own = encoder_layer(
            states[-1],
            part(weights, f"model.encoder.layers.{layer}"),
            n_heads=config.encoder_attention_heads,
            visible=visible,
            activation=config.activation_function,
        )
        states.append(x)
        attention.append(own)
    return Stack(states, layer_norm(states[-1], part(weights, "model.encoder.layer_norm")), attention, [])


def decoder(
    weights: Weights,
    input_ids: Ids,
    memory: Float[Tensor, "batch keys d_model"],
    attention_mask: Tensor | None = None,
    memory_mask: Tensor | None = None,
    *,
    config: Config,
) -> Stack:
    """Run the decoder on the encoder's output `memory`: causal self-attention, cross-attention, FFN (34.12).

    Shapes: `input_ids` and `attention_mask` are (batch, tokens), `memory_mask` is (batch, keys).

    Raises:
        ValueError: as `encoder`.
    """
    visible = _real_keys(input_ids, attention_mask, "attention_mask")
    visible = visible & causal(input_ids.shape[1], device=input_ids.device)
    memory_visible = _real_keys(memory[..., 0], memory_mask, "memory_mask")
    states, attention, cross_attention = (
        [embed(weights, "decoder", input_ids, scale=config.scale_embedding)],
        [],
        [],
    )
    for layer in range(config.decoder_layers):
        x, own, cross = decoder_layer(
            states[-1],
            memory,
            part(weights, f"model.decoder.layers.{layer}"),
            n_heads=config.decoder_attention_heads,
            visible=visible,
            memory_visible=memory_visible,
            activation=config.activation_function,
        )
        states.append(x)
        attention.append(own)
        cross_attention.append(cross)
    output = layer_norm(states[-1], part(weights, "model.decoder.layer_norm"))
    return Stack(states, output, attention, cross_attention)


def shift_right(ids: Ids, *, pad_id: int) -> Ids:
    """Put the last token that is no pad in front and move the others one place to the right (34.13).

    mBART-50 writes `lang X </s>`, so its decoder reads `</s> lang X` and predicts `lang X </s>`.
    """
    last = (ids != pad_id).sum(dim=1, keepdim=True) - 1
    return torch.cat([ids.gather(1, last), ids[:, :-1]], dim=1)


def logits(weights: Weights, output: States) -> Float[Tensor, "batch tokens vocabulary"]:
    """X E^T + c (34.14): the embedding table read backwards, and `final_logits_bias`, which is not trained."""
    return output @ weights["model.shared.weight"].T + weights["final_logits_bias"]
