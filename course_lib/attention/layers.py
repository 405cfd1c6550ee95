"""A small decoder in which each form of attention is an option, with states to generate from (part III).

The parts are those of a Llama: RMSNorm before each layer, rotary positions, fewer heads of keys and values than of queries,
and a gated network behind the attention. What changes from form to form is what a layer keeps of the past: "softmax" all
keys and values, a memory that grows with the text; "linear", "decay", "ridge" and "delta" sums of a fixed size.

One call on a whole text, calls on its pieces that pass on a state, and one call a token give the same logits.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional

from course_lib.attention.kernelized import FeatureMap, LinearState, elu_features, linear_attention
from course_lib.attention.ridge import DeltaState, RidgeState, delta_rule, ridge_attention
from course_lib.attention.rotary import apply_rotary, rope_frequencies, rotary_table
from course_lib.attention.scaled_dot_product import attention
from course_lib.attention.states import AttentionState
from course_lib.checks import check_fields, named

KINDS = ("softmax", "linear", "decay", "ridge", "delta")
ROOM = 256  # tokens for which a cache makes room at a time: copying it then costs little beside reading it each time


@dataclass(frozen=True)
class DecoderConfig:
    """The sizes of a decoder and its form of attention.

    Shapes: `n_kv_heads` divides `n_heads`, which it is by default; `head_dim` is d_model / n_heads by default, and even
    where positions turn; `d_mlp` is the width of the gated network, 0 for none.
    Ranges: `attention` is one of "softmax", "linear" (with `feature_map`), "decay" (the same with a decay that each token
    chooses), "ridge" (with `penalty`) and "delta" (keys of length 1, a step size that each token chooses). `window` lets
    softmax see that many latest tokens, itself included. `conv_width` tokens, the latest first, mix in each entry of
    queries, keys and values. `rope_base` None leaves out the rotation by position.

    Raises:
        ValueError: a size is too small, heads do not divide each other, or an option belongs to another form.
    """

    vocab_size: int
    d_model: int = 64
    n_layers: int = 2
    n_heads: int = 4
    n_kv_heads: int | None = None
    head_dim: int | None = None
    d_mlp: int | None = None
    attention: str = "softmax"
    feature_map: FeatureMap = elu_features
    penalty: float | int = 1.0
    window: int | None = None
    conv_width: int = 1
    rope_base: float | int | None = 10_000.0

    def __post_init__(self):
        check_fields(self)
        for name in ("n_kv_heads", "head_dim", "d_mlp"):
            if getattr(self, name) is None:
                default = {
                    "n_kv_heads": self.n_heads,
                    "head_dim": self.d_model // max(1, self.n_heads),
                    "d_mlp": 2 * self.d_model,
                }
                object.__setattr__(self, name, default[name])
        for name in (
            "vocab_size",
            "d_model",
            "n_layers",
            "n_heads",
            "n_kv_heads",
            "head_dim",
            "conv_width",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")
        if self.d_mlp < 0:
            raise ValueError(f"d_mlp must be 0, for no such network, or more, got {self.d_mlp}")
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads must be a multiple of n_kv_heads, got {self.n_heads} and {self.n_kv_heads}"
            )
        if self.attention not in KINDS:
            raise ValueError(f"attention must be one of {list(KINDS)}, got {self.attention!r}")
        if self.window is not None and (self.attention != "softmax" or self.window < 1):
            raise ValueError(
                f"window must be 1 or more and belongs to softmax, got {self.window} with {self.attention!r}"
            )
        if self.rope_base is not None and self.head_dim % 2:
            raise ValueError(
                f"head_dim must be even, since its entries turn in pairs, got {self.head_dim}; or rope_base=None"
            )


# What is kept of the past


class _Room:
    """Memory for more tokens than a cache has, and how many of them are taken."""

    def __init__(self, keys: Tensor, values: Tensor, more: int):
        length = keys.shape[-2]
        size = ROOM * math.ceil((length + more) / ROOM)
        self.held = [t.new_empty(*t.shape[:-2], size, t.shape[-1]) for t in (keys, values)]
        self.taken = 0
        self.add(keys, values)

    def fits(self, length: int, more: int) -> bool:
        """Whether so many tokens may be added behind the first `length`: another text may have gone on from there."""
        return self.taken == length and length + more <= self.held[0].shape[-2]

    def add(self, *new: Tensor) -> None:
        start, self.taken = self.taken, self.taken + new[0].shape[-2]
        for held, tensor in zip(self.held, new, strict=True):
            held[..., start : self.taken, :] = tensor


@dataclass(frozen=True, eq=False)
class KeyValueCache(AttentionState):
    """The keys (..., n, d) and values (..., n, d_v) of the past, in their own dtype: what softmax attention has to keep."""

    keys: Tensor
    values: Tensor
    _room: _Room | None = None

    def _map(self, change: Callable[[Tensor], Tensor]) -> "KeyValueCache":
        return replace(super()._map(change), _room=None)

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> "KeyValueCache":
        """Return the cache on another device, or in another floating dtype, half precision included."""
        return self._map(lambda t: t.to(device=device, dtype=dtype))

    def append(
        self, k: Float[Tensor, "... new d"], v: Float[Tensor, "... new d_v"], *, window: int | None = None
    ) -> "KeyValueCache":
        """Return the cache with more tokens, or with the last `window` of them; this one stays as it is.

        Without gradients new tokens are written behind the old ones, into memory that both caches then share.

        Raises:
            ValueError: the new tokens do not fit those that are kept.
        """
        for name, old, new in (("k", self.keys, k), ("v", self.values, v)):
            if (old.shape[:-2], old.shape[-1], old.dtype) != (new.shape[:-2], new.shape[-1], new.dtype):
                raise ValueError(
                    f"{name} must be {old.dtype} of shape (*{tuple(old.shape[:-2])}, new, {old.shape[-1]}) as the cache is, "
                    f"got {new.dtype} of shape {tuple(new.shape)}"
                )
        learns = torch.is_grad_enabled() and any(t.requires_grad for t in (self.keys, self.values, k, v))
        if learns or window is not None or torch.compiler.is_compiling():
            start = 0 if window is None else max(0, self.keys.shape[-2] + k.shape[-2] - window)
            keys, values = (
                torch.cat(pair, -2)[..., start:, :] for pair in ((self.keys, k), (self.values, v))
            )
            return KeyValueCache(keys, values)
        length, room = self.keys.shape[-2], self._room
        if room is None or not room.fits(length, k.shape[-2]):
            room = _Room(self.keys, self.values, k.shape[-2])
        room.add(k, v)
        return KeyValueCache(*(held[..., : room.taken, :] for held in room.held), room)


@dataclass(frozen=True, eq=False)
class DecoderState:
    """What a decoder keeps of a text: a state of attention for each layer, and the latest inputs of its convolutions.

    Shapes: `recent` holds for each layer (batch, conv_width - 1, channels); `length` is the number of tokens so far.
    """

    attention: tuple[AttentionState, ...]
    recent: tuple[Tensor, ...]
    length: int

    def _map(self, of_state: Callable, of_tensor: Callable) -> "DecoderState":
        return replace(
            self,
            attention=tuple(of_state(state) for state in self.attention),
            recent=tuple(of_tensor(tensor) for tensor in self.recent),
        )

    def detach(self) -> "DecoderState":
        """Return the same state, through which no gradient flows."""
        return self._map(lambda s: s.detach(), torch.Tensor.detach)

    def to(self, device: torch.device | str) -> "DecoderState":
        """Return the state on another device."""
        return self._map(lambda s: s.to(device), lambda t: t.to(device))

    def index_select(self, index: Int[Tensor, " n"]) -> "DecoderState":
        """Return the texts `index` of the batch, in that order: the beams that go on, say."""
        return self._map(lambda s: s.index_select(0, index), lambda t: t.index_select(0, index))

    @property
    def nbytes(self) -> int:
        """How many bytes the tensors of the state hold."""
        return sum(s.nbytes for s in self.attention) + sum(t.nbytes for t in self.recent)


_STATES = {
    "softmax": KeyValueCache,
    "linear": LinearState,
    "decay": LinearState,
    "ridge": RidgeState,
    "delta": DeltaState,
}


# Layers


class CausalSelfAttention(nn.Module):
    """Queries, keys and values from one projection, mixed over a few tokens, turned by position, and attended to.

    Each head of keys serves n_heads / n_kv_heads neighbouring heads of queries. The forms of a fixed state keep one for each
    head of queries, and so are the decays and step sizes that a token chooses.

    Raises:
        ValueError: the state is that of another form.
    """

    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.config = config
        width = (config.n_heads + 2 * config.n_kv_heads) * config.head_dim
        self.project_in = nn.Linear(config.d_model, width, bias=False)
        self.project_out = nn.Linear(config.n_heads * config.head_dim, config.d_model, bias=False)
        if config.conv_width > 1:
            bound = config.conv_width**-0.5
            self.taps = nn.Parameter(torch.empty(config.conv_width, width).uniform_(-bound, bound))
        if config.attention in ("decay", "delta"):
            self.gate = nn.Linear(config.d_model, config.n_heads)
        if config.attention == "decay":
            # Heads start with memories of 8 to 256 tokens.
            lives = 2 ** torch.linspace(3, 8, config.n_heads)
            with torch.no_grad():
                self.gate.bias.copy_((1 - 1 / lives).logit())

    def _mixed(self, x: Tensor, recent: Tensor | None) -> tuple[Tensor, Tensor]:
        """The causal convolution of each channel: y_t = sum_i taps_i x_(t - i), and the inputs that the next call needs."""
        width, length = self.config.conv_width, x.shape[1]
        if recent is None:
            recent = x.new_zeros(x.shape[0], width - 1, x.shape[2])
        seen = torch.cat([recent, x], 1)
        if width == 1:
            return x, recent
        mixed = sum(self.taps[i] * seen[:, width - 1 - i :][:, :length] for i in range(width))
        return mixed, seen[:, length:]

    def _attend(self, q, k, v, x, state) -> tuple[Tensor, AttentionState]:
        kind, options = self.config.attention, {"initial_state": state, "return_state": True}
        if state is not None and not isinstance(state, _STATES[kind]):
            raise ValueError(
                f"the state of {kind!r} must be a {_STATES[kind].__name__}, got {type(state).__name__}: another decoder's?"
            )
        if kind == "softmax":
            return self._softmax(q, k, v, state)
        if kind == "ridge":
            return ridge_attention(q, k, v, penalty=self.config.penalty, enable_gqa=True, **options)
        if kind == "delta":
            q, k = (functional.normalize(t, dim=-1) for t in (q, k))
            return delta_rule(q, k, v, step_size=self.gate(x).sigmoid().mT, enable_gqa=True, **options)
        decay = self.gate(x).sigmoid().mT if kind == "decay" else None
        form = partial(linear_attention, feature_map=self.config.feature_map, causal=True, enable_gqa=True)
        return form(q, k, v, decay=decay, **options)

    def _softmax(self, q, k, v, state: KeyValueCache | None) -> tuple[Tensor, KeyValueCache]:
        if state is None:
            state = KeyValueCache(k[..., :0, :], v[..., :0, :])
        window, cached = self.config.window, state.keys.shape[-2]
        if window is None:
            state = state.append(k, v)
            return attention(q, state.keys, state.values, causal=True, enable_gqa=True), state
        keys, values = torch.cat([state.keys, k], -2), torch.cat([state.values, v], -2)
        near = torch.ones(k.shape[-2], keys.shape[-2], dtype=torch.bool, device=k.device)
        near = near.tril(cached).triu(cached - window + 1)
        out = attention(q, keys, values, attn_mask=near, enable_gqa=True)
        return out, state.append(k, v, window=window)

    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        table: Shaped[Tensor, "seq pairs"] | None = None,
        state: tuple[AttentionState, Tensor] | None = None,
    ) -> tuple[Float[Tensor, "batch seq d_model"], tuple[AttentionState, Tensor]]:
        """Return the output, and the state behind it: that of attention, and the latest inputs of the convolution.

        Shapes: `table` is that of the positions, as `rotary_table` makes it, None to turn nothing.
        """
        config = self.config
        past, recent = state or (None, None)
        mixed, recent = self._mixed(self.project_in(x), recent)
        heads = mixed.unflatten(-1, (-1, config.head_dim)).transpose(1, 2)
        q, k, v = heads.split((config.n_heads, config.n_kv_heads, config.n_kv_heads), dim=1)
        if table is not None:
            q, k = (apply_rotary(t, table, layout="half") for t in (q, k))
        out, past = self._attend(q, k, v, x, past)
        return self.project_out(out.transpose(1, 2).flatten(-2)), (past, recent)


class _GatedNetwork(nn.Module):
    """W_out (silu(W_gate x) * W_in x)."""

    def __init__(self, d_model: int, width: int):
        super().__init__()
        self.gate, self.project_in = (nn.Linear(d_model, width, bias=False) for _ in range(2))
        self.project_out = nn.Linear(width, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.project_out(functional.silu(self.gate(x)) * self.project_in(x))


class _Block(nn.Module):
    """x + attention(norm(x)), then x + network(norm(x))."""

    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.before_attention = nn.RMSNorm(config.d_model, eps=1e-6)
        self.attention = CausalSelfAttention(config)
        if config.d_mlp:
            self.network = nn.Sequential(
                nn.RMSNorm(config.d_model, eps=1e-6), _GatedNetwork(config.d_model, config.d_mlp)
            )

    def forward(self, x: Tensor, table: Tensor | None, state: tuple | None) -> tuple[Tensor, tuple]:
        attended, state = self.attention(self.before_attention(x), table, state)
        x = x + attended
        return (x + self.network(x) if self.attention.config.d_mlp else x), state


class Decoder(nn.Module):
    """Tokens to the logits of the next ones, through layers of causal attention.

    Shapes: `frequencies` are those of the head_dim / 2 pairs or of fewer, for a longer context than that of training, say,
    as `yarn_frequencies` and the others return them; with YaRN's belongs `attention_factor`.
    """

    @named
    def __init__(
        self,
        config: DecoderConfig,
        *,
        frequencies: Float[Tensor, " pairs"] | None = None,
        attention_factor: float | int = 1.0,
    ):
        super().__init__()
        self.config, self.attention_factor = config, attention_factor
        if frequencies is None and config.rope_base is not None:
            frequencies = rope_frequencies(config.head_dim, base=config.rope_base)
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.embed = nn.Embedding(config.vocab_size, config.d_model)
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.n_layers))
        self.norm = nn.RMSNorm(config.d_model, eps=1e-6)
        self.unembed = nn.Linear(config.d_model, config.vocab_size, bias=False)

    @named
    def forward(
        self,
        tokens: Int[Tensor, "batch seq"],
        *,
        state: DecoderState | None = None,
        return_state: bool = False,
    ) -> Float[Tensor, "batch seq vocab"] | tuple[Float[Tensor, "batch seq vocab"], DecoderState]:
        """Return the logits at each token, and with `return_state` the state behind the last one as well.

        With a `state` the tokens go on from the text that it stands for.

        Raises:
            ValueError: `tokens` are not whole numbers of shape (batch, seq), or the state has another number
                of layers or of texts, or is of another form of attention.
        """
        if tokens.ndim != 2 or tokens.dtype not in (torch.int64, torch.int32):
            raise ValueError(
                f"tokens must be int64 or int32 of shape (batch, seq), got {tokens.dtype} of shape {tuple(tokens.shape)}"
            )
        if state is not None:
            wanted, got = (len(self.blocks), len(tokens)), (len(state.attention), len(state.recent[0]))
            if wanted != got:
                raise ValueError(
                    f"state must have {wanted[0]} layers and a batch of {wanted[1]}, got {got[0]} and {got[1]}"
                )
        start, table, kept = 0 if state is None else state.length, None, []
        if self.frequencies is not None:
            positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
            table = rotary_table(positions, self.frequencies, attention_factor=self.attention_factor)
        x = self.embed(tokens)
        for number, block in enumerate(self.blocks):
            past = None if state is None else (state.attention[number], state.recent[number])
            x, past = block(x, table, past)
            kept.append(past)
        logits = self.unembed(self.norm(x))
        if not return_state:
            return logits
        attended, recent = zip(*kept, strict=True)
        return logits, DecoderState(attended, recent, start + tokens.shape[1])

    @torch.no_grad()
    @named
    def generate(
        self,
        prompt: Int[Tensor, "batch seq"],
        *,
        max_new_tokens: int,
        temperature: float | int = 0.0,
        generator: torch.Generator | None = None,
    ) -> Int[Tensor, "batch longer"]:
        """Return the prompt and `max_new_tokens` more: the most probable ones, or at a temperature above 0 drawn ones.

        The prompt is read at once, then one token at a time; nothing is read back to the host.

        Raises:
            ValueError: the prompt is empty, or a number is negative.
        """
        if prompt.ndim != 2 or not prompt.shape[1]:
            raise ValueError(
                f"prompt must hold a token or more, (batch, seq), got shape {tuple(prompt.shape)}"
            )
        if max_new_tokens < 0 or not 0 <= temperature < math.inf:
            raise ValueError(
                f"max_new_tokens and temperature must be 0 or more, got {max_new_tokens} and {temperature}"
            )
        found, state = [prompt], None
        for _ in range(max_new_tokens):
            logits, state = self(found[-1], state=state, return_state=True)
            last = logits[:, -1]
            if temperature == 0:
                found.append(last.argmax(-1, keepdim=True).to(prompt.dtype))
            else:
                probabilities = (last / temperature).softmax(-1)
                drawn = torch.multinomial(probabilities, 1, generator=generator)
                found.append(drawn.to(prompt.dtype))
        return torch.cat(found, 1)
