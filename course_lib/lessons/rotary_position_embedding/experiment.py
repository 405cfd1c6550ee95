"""The closing experiment of lesson 18: one head learns which letter stood five back, and then reads longer texts.

Texts are random letters. The head sees texts of 64 letters in training; later it reads 256 or 1,024, and is asked at the
last 16 places. It reads longer texts by a rule: as in training, with frequencies slowed down in one of several ways, or
with every distance above 63 counted as 63, in all pairs or in some. Arms of training are rotary positions, the same with
slow pairs that never turn, learned positions, sinusoids, and no positions.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from course_lib.attention.rotary import (
    apply_rotary,
    llama3_frequencies,
    ntk_frequencies,
    rope_frequencies,
    rotary_table,
    turns_in,
)

LETTERS, BACK = 16, 5  # how many letters there are, and how far back the wanted one stands
WIDTH = HEAD = 64  # entries of a letter's vector, and of a query
TRAINED, ASKED = 64, 16  # letters of a text in training, and places that are scored, the last ones
LONGEST = 1024  # positions that the learned arm knows: it trains on texts that start anywhere in them
BATCH, STEPS = 8, 600

ROTARY, NEVER, LEARNED, SINES, NONE = ARMS = (
    "rotary positions",
    "slow pairs never turned",
    "learned positions, random starts",
    "sinusoids",
    "no positions",
)
AS_TRAINED, INTERPOLATED, NTK, LLAMA, SLOW_CAPPED, FAST_CAPPED, CAPPED = RULES = (
    "as trained",
    "all pairs slowed alike",
    "new base (NTK-aware)",
    "by turns (Llama 3)",
    "capped at 63 in the slow pairs",
    "capped at 63 in the fast pairs",
    "capped at 63 in all pairs",
)


def trained_frequencies(arm: str) -> Tensor:
    """Return the frequencies (32,) of an arm: those of base 10,000, or 0 for pairs with less than a turn in training."""
    plain = rope_frequencies(HEAD)
    return plain if arm == ROTARY else torch.where(turns_in(plain, TRAINED) < 1, 0.0, plain)


def capped_pairs(rule: str) -> Tensor | None:
    """Return which pairs (32,) count distances above 63 as 63: fast ones made a turn or more in training."""
    fast = turns_in(rope_frequencies(HEAD), TRAINED) >= 1
    return {SLOW_CAPPED: ~fast, FAST_CAPPED: fast, CAPPED: torch.ones_like(fast)}.get(rule)


def frequencies_by(rule: str, *, scale: float) -> Tensor:
    """Return the frequencies (32,) with which a rule reads texts that are `scale` times as long as those of training."""
    plain = rope_frequencies(HEAD)
    if rule == INTERPOLATED:
        return plain / scale
    if rule == NTK:
        return ntk_frequencies(HEAD, scale=scale)
    return llama3_frequencies(plain, scale=scale, trained_length=TRAINED) if rule == LLAMA else plain


def untrained(arm: str, seeds: Sequence[int], *, biases: float | int = 1 / 8) -> dict[str, Tensor]:
    """Return the weights of one head a seed, float32, with the seeds as first dimension.

    Letters and learned places have normal entries of spread 1, matrices 1/8; `biases` is the spread of the biases.
    """
    drawn: dict[str, list[Tensor]] = {}
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        shapes = {
            "letters": (LETTERS, WIDTH), "W_q": (WIDTH, HEAD), "b_q": (HEAD,), "W_k": (WIDTH, HEAD), "b_k": (HEAD,),
            "W_v": (WIDTH, WIDTH), "answers": (WIDTH, LETTERS), "places": (LONGEST if arm == LEARNED else 1, WIDTH),
        }  # fmt: skip
        for name, shape in shapes.items():
            spread = biases if len(shape) == 1 else 1.0 if name in ("letters", "places") else 1 / math.sqrt(WIDTH)
            drawn.setdefault(name, []).append(spread * torch.randn(shape, generator=generator, dtype=torch.float32))
    return {name: torch.stack(values).requires_grad_() for name, values in drawn.items()}


def read(
    weights: dict[str, Tensor],
    texts: Tensor,
    *,
    arm: str = ROTARY,
    frequencies: Tensor | None = None,
    start: int | Tensor = 0,
    last: int | None = None,
    capped: Tensor | None = None,
) -> Tensor:
    """Return the logits of the next answers, (seeds, texts, last, 16), for texts (seeds, texts, letters).

    `last` is the number of queries, all by default. The first letter stands at position `start`; learned positions take
    a start (texts,) for each text. The pairs that are `capped` (32,) count every distance above 63 as 63.
    """
    n = texts.shape[-1]
    last, positions = last or n, torch.arange(n)
    if arm == LEARNED:
        places = torch.as_tensor(start).reshape(-1, 1) + positions
    else:
        positions = positions + start
    x = torch.stack([letters[text] for letters, text in zip(weights["letters"], texts, strict=True)])
    if arm == LEARNED:
        x = x + weights["places"][:, places]
    if arm == SINES:
        table = rotary_table(positions, rope_frequencies(WIDTH))
        x = x + torch.cat([table.imag, table.real], dim=-1)
    q, k = (x @ weights[f"W_{name}"][:, None] + weights[f"b_{name}"][:, None, None] for name in "qk")
    q, distances = q[:, :, -last:], positions[-last:, None] - positions
    if arm in (ROTARY, NEVER):
        used = trained_frequencies(arm) if frequencies is None else frequencies
        turn = lambda t, where: apply_rotary(t, rotary_table(where, used), layout="interleaved")  # noqa: E731
        turned = turn(k, positions)
        scores = turn(q, positions[-last:]) @ turned.mT
        if capped is not None:
            part = q * capped.repeat_interleave(2)
            there = turn(part, torch.full((last,), TRAINED - 1)) @ k.mT
            here = turn(part, positions[-last:]) @ turned.mT
            scores = torch.where(distances >= TRAINED, scores - here + there, scores)
    else:
        scores = q @ k.mT
    scores = (scores / math.sqrt(HEAD)).masked_fill(distances < 0, -math.inf)
    return scores.softmax(-1) @ (x @ weights["W_v"][:, None]) @ weights["answers"][:, None]


def learn(
    arm: str, *, rate: float, seeds: Sequence[int], steps: int = STEPS, biases: float | int = 1 / 8
) -> dict[str, Tensor]:
    """Train one head a seed by Adam, with a rate that falls to 0 on a line; each step sees new texts of 64 letters."""
    weights, generator = untrained(arm, seeds, biases=biases), torch.Generator().manual_seed(99)
    optimizer = torch.optim.Adam(weights.values(), lr=rate)
    falling = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for _ in range(steps):
        texts = torch.randint(LETTERS, (len(seeds), BATCH, TRAINED), generator=generator)
        start = torch.randint(LONGEST - TRAINED + 1, (BATCH,), generator=generator) if arm == LEARNED else 0
        logits = read(weights, texts, arm=arm, start=start)[:, :, BACK:]
        # The sum over seeds: no head feels another.
        loss = len(seeds) * cross_entropy(logits.flatten(0, 2), texts[:, :, :-BACK].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        falling.step()
    return {name: value.detach() for name, value in weights.items()}


@torch.no_grad()
def accuracy(
    weights: dict[str, Tensor],
    length: int,
    *,
    rule: str = AS_TRAINED,
    arm: str = ROTARY,
    start: int = 0,
    back: int = BACK,
    texts: int = 64,
    seed: int = 0,
) -> Tensor:
    """Return, for each seed, the share of right answers at the last 16 places of new texts of `length` letters.

    A right answer names the letter `back` places earlier.
    """
    generator = torch.Generator().manual_seed(10_000 + seed)
    drawn = torch.randint(LETTERS, (1, texts, length), generator=generator)
    changed = rule in (INTERPOLATED, NTK, LLAMA)
    logits = read(
        weights,
        drawn.expand(len(weights["letters"]), -1, -1),
        arm=arm,
        start=start,
        last=ASKED,
        frequencies=frequencies_by(rule, scale=length / TRAINED) if changed else None,
        capped=capped_pairs(rule),
    )
    places = torch.arange(length - ASKED, length)
    return (logits.argmax(-1) == drawn[:, :, places - back]).float().mean((1, 2))


def hands(weights: dict[str, Tensor]) -> Tensor:
    """Return for each seed the 32 hands h_i of the mean query and the mean key, divided by 8 as scores are."""
    mean = weights["letters"].mean(1)
    q, k = (
        torch.view_as_complex(
            (torch.einsum("sd,sde->se", mean, weights[f"W_{name}"]) + weights[f"b_{name}"]).unflatten(-1, (-1, 2))
        )
        for name in "qk"
    )
    return (q * k.conj()).to(torch.complex128) / math.sqrt(HEAD)
