"""Almost-mBARTs: the model of `by_hand` with one thing done differently, and what it then translates (lesson 34).

The weights are those of a trained mBART. Nothing is trained again, so that a change shows what *these* weights rely on, and
not what a model trained with the change could do. Decoding is greedy and keeps keys and values of what is written.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from course_lib.language.corpus import LANGUAGES, draw_meanings, render
from course_lib.mbart import by_hand
from course_lib.mbart.by_hand import Config, Weights, layer_norm, linear, part, split_heads

ATTENTION = ("softmax", "even", "itself", "itself as long", "shuffled", "none")
"""What mixes the tokens: (34.2); equal weights for all visible keys; the token alone; the same, and what is written gets the
length that (34.2) would give it; another token's row; nothing."""


@dataclass(frozen=True)
class Recipe:
    """How the encoder or the decoder of an almost-mBART is computed. The defaults are mBART.

    `zero` names endings of weights that are set to 0. `attention` is one of `ATTENTION`, used in self-attention in the
    layers `layers` (numbered from 1; None for all). `row_seed` draws the other rows of "shuffled".
    """

    zero: tuple[str, ...] = ()
    scaled: bool = True
    positions: bool = True
    offset: int = by_hand.POSITION_OFFSET
    embedding_norm: bool = True
    post_norm: bool = False
    final_norm: bool = True
    padding_mask: bool = True
    attention: str = "softmax"
    layers: tuple[int, ...] | None = None
    row_seed: int = 0

    def __post_init__(self):
        if self.attention not in ATTENTION:
            raise ValueError(f"attention must be one of {', '.join(ATTENTION)}, got {self.attention!r}")

    def weights(self, weights: Weights) -> Weights:
        """Return the weights with those that `zero` names set to 0."""
        if not self.zero:
            return weights
        return {name: torch.zeros_like(w) if name.endswith(self.zero) else w for name, w in weights.items()}

    def mixes(self, layer: int) -> str:
        """Return what mixes the tokens in a layer, numbered from 0."""
        return self.attention if self.layers is None or layer + 1 in self.layers else "softmax"


MBART = Recipe()


class Written(NamedTuple):
    """What an encoder computed: its output, and the residual stream at each stop, with the stops' names."""

    output: Float[Tensor, "batch tokens d_model"]
    stream: list[Float[Tensor, "batch tokens d_model"]]
    stops: list[str]


def embed(
    weights: Weights,
    side: str,
    ids: Int[Tensor, "batch tokens"],
    recipe: Recipe,
    *,
    scale: bool,
    start: int = 0,
) -> Float[Tensor, "batch tokens d_model"]:
    """Return LN(s E[token] + P[t + 2]) (34.9) as the recipe has it, for tokens from place `start` on."""
    w, table = part(weights, f"model.{side}"), weights["model.shared.weight"]
    x = table[ids] * (table.shape[1] ** 0.5 if scale and recipe.scaled else 1.0)
    if recipe.positions:
        first = start + recipe.offset
        x = x + w["embed_positions.weight"][first : first + ids.shape[1]]
    return layer_norm(x, part(w, "layernorm_embedding")) if recipe.embedding_norm else x


def _sublayer(x: Tensor, norm: Weights, compute: Callable[[Tensor], Tensor], *, post_norm: bool) -> Tensor:
    """X + f(LN X), or as the original Transformer has it LN(X + f(X))."""
    return layer_norm(x + compute(x), norm) if post_norm else x + compute(layer_norm(x, norm))


def _mixed(
    q: Float[Tensor, "batch heads queries width"],
    k: Float[Tensor, "batch heads keys width"],
    v: Float[Tensor, "batch heads keys width"],
    visible: Bool[Tensor, "batch 1 queries keys"] | None,
    kind: str,
    w_out: Weights,
    rows: Tensor | None = None,
) -> Float[Tensor, "batch queries d_model"]:
    """Return what an attention writes; queries are the last ones of the tokens that have keys."""
    queries, keys = q.shape[-2], k.shape[-2]
    if kind == "none":
        return q.new_zeros(len(q), queries, w_out["weight"].shape[0])
    if kind == "itself as long":
        usual, own = (_mixed(q, k, v, visible, one, w_out) for one in ("softmax", "itself"))
        return own * usual.norm(dim=-1, keepdim=True) / own.norm(dim=-1, keepdim=True)
    if kind == "itself":
        weights = torch.eye(keys, dtype=q.dtype)[keys - queries :].expand(*q.shape[:2], -1, -1)
    elif kind == "even":
        seen = torch.ones(len(q), 1, queries, keys) if visible is None else visible.to(q.dtype)
        weights = (seen / seen.sum(-1, keepdim=True)).expand(-1, q.shape[1], -1, -1)
    else:
        weights = by_hand.attention_weights(q, k, visible=visible)
        if rows is not None and kind == "shuffled":
            weights = weights.gather(2, rows[:, None, :, None].expand_as(weights))
    return linear((weights @ v).transpose(1, 2).flatten(-2), w_out)


def other_rows(mask: Bool[Tensor, "batch tokens"], seed: int) -> Int[Tensor, "batch tokens"]:
    """Permute the tokens of each sentence at random, pads apart: which row each token gets."""
    drawn = torch.rand(mask.shape, generator=torch.Generator().manual_seed(seed)) + 2.0 * ~mask
    return drawn.argsort(dim=1)


@torch.no_grad()
def encode(
    weights: Weights,
    ids: Int[Tensor, "batch tokens"],
    mask: Bool[Tensor, "batch tokens"],
    recipe: Recipe = MBART,
    *,
    config: Config,
) -> Written:
    """Run the encoder of an almost-mBART and keep the residual stream after each sublayer."""
    weights, n_heads = recipe.weights(weights), config.encoder_attention_heads
    visible = mask[:, None, None, :].expand(-1, 1, ids.shape[1], -1) if recipe.padding_mask else None
    rows = other_rows(mask, recipe.row_seed) if recipe.attention == "shuffled" else None
    x = embed(weights, "encoder", ids, recipe, scale=config.scale_embedding)
    stream, stops = [x], ["embedding"]
    for layer in range(config.encoder_layers):
        w = part(weights, f"model.encoder.layers.{layer}")
        own = part(w, "self_attn")

        def attend(x: Tensor, own: Weights = own, kind: str = recipe.mixes(layer)) -> Tensor:
            q, k, v = (split_heads(linear(x, part(own, f"{name}_proj")), n_heads) for name in "qkv")
            return _mixed(q, k, v, visible, kind, part(own, "out_proj"), rows)

        x = _sublayer(x, part(w, "self_attn_layer_norm"), attend, post_norm=recipe.post_norm)
        stream.append(x)
        think = partial(by_hand.feed_forward, w=w, activation=config.activation_function)
        x = _sublayer(x, part(w, "final_layer_norm"), think, post_norm=recipe.post_norm)
        stream.append(x)
        stops += [f"attention {layer + 1}", f"feed-forward {layer + 1}"]
    output = layer_norm(x, part(weights, "model.encoder.layer_norm")) if recipe.final_norm else x
    return Written(output, stream, stops)


@torch.no_grad()
def decode(
    weights: Weights,
    memory: Float[Tensor, "batch keys d_model"],
    mask: Bool[Tensor, "batch keys"],
    codes: Sequence[int],
    recipe: Recipe = MBART,
    *,
    config: Config,
    end: int = 2,
    longest: int | None = None,
    cross: str = "softmax",
) -> list[list[int]]:
    """Translate greedily from the encoder's output into the languages of `codes`: from language code to `</s>`.

    `cross` mixes the encoder's states in cross-attention: "softmax", "even" or "none".

    Raises:
        ValueError: rows are to be shuffled, which a decoder that writes token after token does not have together.
    """
    if recipe.attention == "shuffled":
        raise ValueError("the decoder has one row at a time: attention must not be 'shuffled'")
    weights, n_heads = recipe.weights(weights), config.decoder_attention_heads
    longest = 2 * memory.shape[1] + 16 if longest is None else longest
    visible = mask[:, None, None, :] if recipe.padding_mask else None
    # Names are looked up once: `part` goes through all of them.
    layers = [part(weights, f"model.decoder.layers.{i}") for i in range(config.decoder_layers)]
    asked = [
        [split_heads(linear(memory, part(part(w, "encoder_attn"), f"{name}_proj")), n_heads) for name in "kv"]
        for w in layers
    ]
    kept: list[list[Tensor]] = [[] for _ in layers]
    table, final = weights["model.shared.weight"], weights["final_logits_bias"]
    written = torch.tensor([[end, code] for code in codes])
    done = torch.zeros(len(codes), dtype=torch.bool)
    for place in range(longest + 1):
        x = embed(
            weights,
            "decoder",
            written[:, place : place + 1],
            recipe,
            scale=config.scale_embedding,
            start=place,
        )
        for i, w in enumerate(layers):
            own, other = part(w, "self_attn"), part(w, "encoder_attn")

            def attend(x: Tensor, i: int = i, own: Weights = own) -> Tensor:
                q, *new = (split_heads(linear(x, part(own, f"{name}_proj")), n_heads) for name in "qkv")
                kept[i] = (
                    [torch.cat(pair, dim=2) for pair in zip(kept[i], new, strict=True)] if kept[i] else new
                )
                return _mixed(q, *kept[i], None, recipe.mixes(i), part(own, "out_proj"))

            def ask(x: Tensor, i: int = i, other: Weights = other) -> Tensor:
                q = split_heads(linear(x, part(other, "q_proj")), n_heads)
                return _mixed(q, *asked[i], visible, cross, part(other, "out_proj"))

            think = partial(by_hand.feed_forward, w=w, activation=config.activation_function)
            for norm, compute in (("self_attn", attend), ("encoder_attn", ask), ("final", think)):
                x = _sublayer(x, part(w, f"{norm}_layer_norm"), compute, post_norm=recipe.post_norm)
        if place == 0:  # the language code is given
            continue
        if recipe.final_norm:
            x = layer_norm(x, part(weights, "model.decoder.layer_norm"))
        token = (x[:, 0] @ table.T + final).argmax(-1)
        written = torch.cat([written, token[:, None]], dim=1)
        done |= token == end
        if done.all():
            break
    rows = [row[1:] for row in written.tolist()]
    return [row[: row.index(end) + 1] if end in row else row for row in rows]


class Task(NamedTuple):
    """Sentences of the test part of the built-in corpus, each with a language that it is to be translated into."""

    ids: Int[Tensor, "batch tokens"]
    mask: Bool[Tensor, "batch tokens"]
    codes: list[int]
    references: list[list[int]]


def draw_task(tokenizer: Any, n: int, *, seed: int) -> Task:
    """Draw `n` test sentences, each with two languages at random: the sentence's own and the one to write."""
    rng, rows, codes, references = random.Random(seed), [], [], []
    for meaning in draw_meanings(n, seed=seed, split="test"):
        source, target = rng.sample(LANGUAGES, 2)
        for language, kept in ((source, rows), (target, references)):
            tokenizer.src_lang = language
            kept.append(tokenizer(render(meaning, language).text)["input_ids"])
        codes.append(tokenizer.lang_code_to_id[target])
    pad = tokenizer.pad_token_id
    ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=pad)
    return Task(ids, ids != pad, codes, references)


def gaps(found: Tensor, wanted: Tensor, mask: Bool[Tensor, "batch tokens"]) -> tuple[float, float]:
    """Return how far states are off at the tokens: largest gap over largest entry, and the same of root mean squares."""
    wanted, off = wanted[mask], (found - wanted)[mask]
    return float(off.abs().max() / wanted.abs().max()), float(
        (off.square().mean() / wanted.square().mean()).sqrt()
    )


def shared(one: Sequence[Sequence[int]], other: Sequence[Sequence[int]]) -> float:
    """Return the share of translations that are the same, token by token."""
    return sum(list(a) == list(b) for a, b in zip(one, other, strict=True)) / len(one)


def with_noise(states: Tensor, like: Tensor, mask: Bool[Tensor, "batch tokens"], *, seed: int) -> Tensor:
    """Move each token's state in a random direction, as far as it is from its place in `like`."""
    far = (like - states)[mask].norm(dim=-1, keepdim=True)
    drawn = torch.randn(len(far), states.shape[-1], generator=torch.Generator().manual_seed(seed))
    moved = states.clone()
    moved[mask] += far * drawn / drawn.norm(dim=-1, keepdim=True)
    return moved


def handed_on(states: Tensor, like: Tensor, mask: Bool[Tensor, "batch tokens"], *, seed: int) -> Tensor:
    """Move each token's state by the difference from `like` of another token, drawn without repetition."""
    off = (like - states)[mask]
    moved = states.clone()
    moved[mask] += off[torch.randperm(len(off), generator=torch.Generator().manual_seed(seed))]
    return moved


CHANGES = {
    "key biases 0": Recipe(zero=("k_proj.bias",)),
    "query biases 0": Recipe(zero=("q_proj.bias",)),
    "value biases 0": Recipe(zero=("v_proj.bias",)),
    "no LayerNorm after the embedding": Recipe(embedding_norm=False),
    "no padding mask": Recipe(padding_mask=False),
    "positions off by 2": Recipe(offset=0),
    "no positions": Recipe(positions=False),
    "embedding not scaled": Recipe(scaled=False),
    "LayerNorm after each sublayer": Recipe(post_norm=True),
    "no LayerNorm at the end": Recipe(final_norm=False),
    "attention: equal weights": Recipe(attention="even"),
    "attention: another token's row": Recipe(attention="shuffled"),
    "attention: nothing": Recipe(attention="none"),
    "attention: itself": Recipe(attention="itself"),
}
"""What an almost-mBART does differently, by name."""
