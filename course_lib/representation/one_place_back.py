"""One layer of attention whose keys, queries or values are mixed with those of another place (lesson 26).

Each head has one trained number. It starts at 0, where the layer is the plain one, so every mixed layer contains it.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.attention.rotary import rope
from course_lib.representation.attention_only import (
    AttentionOnly,
    SelfAttention,
    repeat_loss,
    repeated_sequences,
)

Part = Literal["q", "k", "v"]
VOCABULARY, LENGTH, PERIODS = 32, 25, range(12, 21)


def moved(
    x: Float[Tensor, "batch heads tokens d_head"], back: int
) -> Float[Tensor, "batch heads tokens d_head"]:
    """Return the rows `back` places earlier (later, if negative); where there is none, the row itself."""
    n = x.shape[2]
    return x[:, :, [t - back if 0 <= t - back < n else t for t in range(n)]]


class MixedAttention(SelfAttention):
    """Causal heads in which y_t = (1 - m) x_t + m x_(t - back) takes the place of the queries, keys or values x_t.

    `mixes` is "q", "k" or "v", m = `share` one trained number for each head, 0 at the start. With back = -1, values come
    from one place later, except a token's own: it would be the token to be predicted. `rotary` turns queries and keys by
    their places.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        mixes: Part | None = None,
        back: int = 1,
        rotary: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(d_model, n_heads, generator=generator)
        if back < 0 and mixes != "v":
            raise ValueError(f"only values may come from a later place, got mixes = {mixes!r}, back = {back}")
        self.mixes, self.back, self.rotary = mixes, back, rotary
        self.share = nn.Parameter(torch.zeros(n_heads))

    def forward(self, x: Float[Tensor, "batch tokens d_model"]) -> tuple[Tensor, Tensor]:
        """What the heads add to the stream, and their patterns (batch, heads, tokens, tokens)."""
        parts = {
            name: getattr(self, f"{name}_proj")(x)
            .unflatten(-1, (self.num_heads, self.head_dim))
            .transpose(1, 2)
            for name in ("q", "k", "v")
        }
        m = self.share[:, None, None]
        change = None
        if self.mixes:
            own = parts[self.mixes]
            change = m * (moved(own, self.back) - own)
            parts[self.mixes] = own + change
        q, k, v = parts["q"], parts["k"], parts["v"]
        if self.rotary:
            places = torch.arange(x.shape[1], device=x.device)
            q, k = rope(q, places), rope(k, places)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        pattern = (q @ k.mT / math.sqrt(self.head_dim)).masked_fill(later, -math.inf).softmax(dim=-1)
        result = pattern @ v
        if change is not None and self.back < 0:  # no token may see the one that comes after it
            result = result - pattern.diagonal(dim1=-2, dim2=-1)[..., None] * change
        return self.o_proj(result.transpose(1, 2).flatten(2)), pattern


class Widened(nn.Module):
    """Two linear maps with a ReLU between them, which act on each token alone: 16,512 weights for d_model 64."""

    def __init__(self, d_model: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(d_model, 2 * d_model), nn.Linear(2 * d_model, d_model)
        for linear in (self.up, self.down):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5, generator=generator)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Float[Tensor, "batch tokens d_model"]) -> tuple[Tensor, None]:
        """What it adds to the stream; there is no pattern."""
        return self.down(self.up(x).relu()), None


ARMS: dict[str, dict] = {
    "one layer": {},
    "keys, one place back": {"mixes": "k"},
    "queries, one place back": {"mixes": "q"},
    "values, one place back": {"mixes": "v"},
    "keys, two places back": {"mixes": "k", "back": 2},
    "values, one place ahead": {"mixes": "v", "back": -1},
    "keys all one place back, no new number": {"mixes": "k", "fixed": 1.0},
    "rotary positions": {"rotary": True},
    "an MLP after the layer": {"mlp": True},
    "twice the width": {"d_model": 128},
    "two layers": {"n_layers": 2},
}
MORE_HEADS: dict[str, dict] = {"16 heads, four times the width": {"d_model": 256, "n_heads": 16}}


def network(arm: str, seed: int) -> AttentionOnly:
    """Return the untrained network of an arm: 4 heads in a layer and d_model 64, unless the arm changes it.

    Arms of one size start from the same weights.

    Raises:
        ValueError: there is no such arm.
    """
    known = ARMS | MORE_HEADS
    if arm not in known:
        raise ValueError(f"arm must be one of {', '.join(known)}, got {arm!r}")
    about, plain = dict(known[arm]), {"d_model": 64, "n_layers": 1, "n_heads": 4}
    sizes = {name: about.pop(name, default) for name, default in plain.items()}
    fixed, mlp = about.pop("fixed", None), about.pop("mlp", False)
    generator = torch.Generator().manual_seed(seed)
    model = AttentionOnly(vocabulary=VOCABULARY, max_tokens=LENGTH - 1, **sizes, generator=generator)
    if about:
        mixed = MixedAttention(sizes["d_model"], 4, **about)
        mixed.load_state_dict(model.layers[0].state_dict(), strict=False)
        model.layers[0] = mixed
        if fixed is not None:
            mixed.share.data.fill_(fixed)
        mixed.share.requires_grad_(fixed is None and mixed.mixes is not None)
    if mlp:
        model.layers.append(Widened(sizes["d_model"], generator))
    if about.get("rotary"):  # in the place of the learned positions
        model.positions.data.zero_()
        model.positions.requires_grad_(False)
    return model


def weights(arm: str) -> int:
    """Return how many numbers of an arm are trained."""
    return sum(p.numel() for p in network(arm, 0).parameters() if p.requires_grad)


def sequences(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return sequences of 25 tokens out of 32 that repeat after 12 to 20, and which tokens can be known."""
    generator = torch.Generator().manual_seed(seed)
    return repeated_sequences(count, LENGTH, vocabulary=VOCABULARY, periods=PERIODS, generator=generator)


@torch.no_grad()
def loss_on(model: Callable[[Tensor], Tensor], tokens: Tensor, known: Tensor) -> float:
    """Return the mean loss in nats on the tokens that can be known."""
    return float(repeat_loss(model(tokens[:, :-1]), tokens, known))


def train(
    arm: str,
    *,
    seed: int,
    rate: float | int = 0.005,
    steps: int = 250,
    every: int = 10,
    see: Callable[[int, AttentionOnly], None] | None = None,
) -> AttentionOnly:
    """Train a network by Adam; each step has 32 new sequences, the same ones for every arm of a seed.

    `see` is called with the step and the model before the first step, then after each `every` steps.
    """
    model, data = network(arm, seed), torch.Generator().manual_seed(10_000 + seed)
    adam = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=rate, betas=(0.9, 0.99))
    for step in range(steps + 1):
        if see is not None and step % every == 0:
            see(step, model)
        if step == steps:
            break
        tokens, known = repeated_sequences(32, LENGTH, vocabulary=VOCABULARY, periods=PERIODS, generator=data)
        adam.zero_grad()
        repeat_loss(model(tokens[:, :-1]), tokens, known).backward()
        adam.step()
    return model.requires_grad_(False)
