"""How lesson 25 teaches course-mbart the fifth language, on the page and in the stored runs.

`make bench low_rank_adaptation` and `make bench adapter_scale` measure what the page reads. The model, and with it
transformers, is imported where it runs: the module itself stays light.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch
from torch import nn

from course_lib.language.corpus import draw_meanings
from course_lib.representation import lora

GOAL = 2.0
"""The loss on the fifth language at which all ways of training are compared, in nats a token."""
BATCH, ALPHA, EVERY, SCORED = 16, 32, 4, 40


@cache
def language() -> tuple[nn.Module, object, object, object]:
    """Return the model, its tokenizer, and sentences to train on and to be scored on, of other meanings."""
    from course_lib.mbart.model import load
    from course_lib.mbart.pretraining import fifth_language as fifth

    model, tokenizer = load()
    texts = fifth.parallel_texts(draw_meanings(4000, seed=20), tokenizer)
    return model, tokenizer, texts, fifth.parallel_texts(draw_meanings(SCORED, seed=21, split="test"), tokenizer)


@dataclass
class Taught:
    """A model after training, and its losses on the way: after how many steps, on the new language, on the old ones."""

    model: nn.Module
    steps: list[int] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
    old: list[float] = field(default_factory=list)

    def at_goal(self) -> tuple[float, float]:
        """Return steps and old loss where the new loss passes `GOAL`, between the two measurements around it."""
        if not self.new or self.new[-1] > GOAL:
            raise ValueError(f"the loss on the fifth language must have passed {GOAL}, got {self.new[-1:]}")
        last = next(i for i, loss in enumerate(self.new) if loss <= GOAL)
        if last == 0:
            return float(self.steps[0]), self.old[0]
        share = (self.new[last - 1] - GOAL) / (self.new[last - 1] - self.new[last])
        steps, old = ((1 - share) * v[last - 1] + share * v[last] for v in (self.steps, self.old))
        return steps, old


@torch.no_grad()
def loss_on(model: nn.Module, target: str | None) -> float:
    """Return the held-out loss of translations into the fifth language, or among the old ones for None, in nats a token."""
    from course_lib.mbart.pretraining import fifth_language as fifth

    _, tokenizer, _, test = language()
    rng = np.random.default_rng(12345)
    batch, _, _ = fifth.draw_batch(test, tokenizer, range(SCORED), rng, target=target)
    return fifth.batch_loss(model, tokenizer, batch).item()


def losses(model: nn.Module) -> tuple[float, float]:
    """Return the held-out losses on the fifth language and among the four old ones."""
    from course_lib.mbart.pretraining import fifth_language as fifth

    return loss_on(model, fifth.FIFTH), loss_on(model, None)


def with_adapter(rank: int, *, scale: float | int, seed: int = 0) -> nn.Module:
    """Return a copy of the model with an adapter on each of its linear layers: A random, B zero."""
    model = copy.deepcopy(language()[0])
    generator = torch.Generator().manual_seed(seed)
    lora.inject(model, rank=rank, alpha=scale * rank, targets="all-linear", generator=generator)
    return model


def teach(
    rank: int | None,
    *,
    rate: float | int,
    old: int = 0,
    seed: int = 0,
    linear: bool = False,
    goal: float | int = GOAL,
    steps: int = 80,
    every: int = EVERY,
) -> Taught:
    """Train on the fifth language until its held-out loss is at most `goal`: an adapter, or without `rank` the whole model.

    With `linear`, of the whole model only the weights that an adapter stands beside train.
    16 sentences a step, `old` of them translated among the four old languages.
    """
    from course_lib.mbart.pretraining import fifth_language as fifth

    model, tokenizer, texts, _ = language()
    if rank is None:
        taught = Taught(copy.deepcopy(model))
        linears = lora.find_linears(taught.model, lora.ALL_LINEAR).values()
        trained = [layer.weight for layer in linears] if linear else list(taught.model.parameters())
        groups = [{"params": trained, "lr": rate}]
    else:
        taught = Taught(with_adapter(rank, scale=ALPHA / rank, seed=seed))
        groups = lora.param_groups(taught.model, rate)

    def watch(step: int) -> bool:
        if step % every:
            return False
        new = loss_on(taught.model, fifth.FIFTH)
        if new < 1.5 * GOAL:  # before that nothing is compared
            taught.steps.append(step)
            taught.new.append(new)
            taught.old.append(loss_on(taught.model, None))
        return new <= goal

    options = {"batch_size": BATCH, "seed": seed, "old": old, "decay": False, "watch": watch}
    fifth.adapt_to_fifth(taught.model, tokenizer, texts, groups, steps=steps, **options)
    return taught


def turned_down(taught: Taught) -> tuple[float, float]:
    """Return the factor c, and the old loss, at which all that was learned, times c, has the new loss `GOAL`.

    An adapter's s B A is multiplied by c; of a whole model each number goes back to the share c of its change.
    """
    from course_lib.mbart.pretraining import fifth_language as fifth

    start = dict(language()[0].named_parameters())
    layers = lora.adapters(taught.model).values()
    learned = [m.lora_B for m in layers] or list(taught.model.parameters())
    zeros = [torch.zeros_like(p) for p in learned] if layers else [start[n] for n, _ in taught.model.named_parameters()]
    ends = [p.detach().clone() for p in learned]

    def scored(c: float) -> float:
        with torch.no_grad():
            for p, zero, end in zip(learned, zeros, ends, strict=True):
                p.copy_(zero + c * (end - zero))
        return loss_on(taught.model, fifth.FIFTH)

    low, high = 0.0, 1.0
    for _ in range(6):
        middle = (low + high) / 2
        low, high = (middle, high) if scored(middle) > GOAL else (low, middle)
    scored(high)
    found = loss_on(taught.model, None)
    scored(1.0)
    return high, found


# The long run: every arm, all seeds


@dataclass(frozen=True)
class Arm:
    """A way of training: the whole model or an adapter, with so many old sentences among 16, and its rates."""

    rank: int | None
    old: int
    rates: tuple[float, ...]

    @property
    def name(self) -> str:
        """What the store calls it."""
        what = "whole" if self.rank is None else f"rank {self.rank}"
        return f"{what}, {self.old} old"


SEEDS = (1, 2, 3, 4, 5)
WHOLE_RATES, ADAPTER_RATES = (3e-4, 6e-4, 1.2e-3), (1.5e-3, 3e-3, 6e-3)
ARMS = (
    Arm(None, 0, WHOLE_RATES),
    Arm(8, 0, ADAPTER_RATES),
    Arm(8, 4, ADAPTER_RATES[1:2]),
    Arm(8, 1, ADAPTER_RATES[1:2]),
    Arm(None, 4, WHOLE_RATES[1:2]),
    Arm(1, 0, ADAPTER_RATES[1:2]),
)
DEEPER = 1.4
"""Where the runs of `turned_down` end: the middle rate of the two ways of training without old sentences."""


def plan() -> Iterator[tuple[Arm, float, bool]]:
    """Give each arm with each of its rates, and whether it goes on to `DEEPER` to be turned down."""
    for arm in ARMS:
        for rate in arm.rates:
            yield arm, rate, arm.old == 0 and arm.rank in (None, 8) and len(arm.rates) > 1 and rate == arm.rates[1]


# The scale: two rules, two ranks, rates, all seeds

RANKS, RATES, STEPS, SCALE_ALPHA = (2, 32), (3e-3, 1e-2), 16, 32
SCALES = {"alpha/r": lambda r: SCALE_ALPHA / r, "alpha/sqrt(r)": lambda r: SCALE_ALPHA / np.sqrt(8 * r)}
"""Both rules give s = 4 at rank 8."""


def first_steps(rank: int, *, scale: float, rate: float, seed: int, steps: int = STEPS) -> float:
    """Return the held-out loss on the fifth language after a few steps of an adapter, with warm-up and linear decay."""
    from course_lib.mbart.pretraining import fifth_language as fifth

    _, tokenizer, texts, _ = language()
    model = with_adapter(rank, scale=float(scale), seed=seed)
    groups = lora.param_groups(model, rate)
    fifth.adapt_to_fifth(model, tokenizer, texts, groups, steps=steps, batch_size=BATCH, seed=seed)
    return loss_on(model, fifth.FIFTH)


# One step

STEP_RANKS, STEP_SIZE = (4, 16, 64), 1e-4


def one_batch(seed: int) -> tuple:
    """Return 16 sentences into the fifth language."""
    from course_lib.mbart.pretraining import fifth_language as fifth

    _, tokenizer, texts, _ = language()
    rng = np.random.default_rng(seed)
    rows = rng.integers(texts.n_meanings, size=BATCH).tolist()
    return fifth.draw_batch(texts, tokenizer, rows, rng, target=fifth.FIFTH)[0]


@torch.no_grad()
def last_states(model: nn.Module, batch: tuple) -> torch.Tensor:
    """Return the decoder's last states on a batch."""
    inputs, decoder, _ = batch
    mask = inputs != language()[1].pad_token_id
    options = {"attention_mask": mask, "decoder_input_ids": decoder, "use_cache": False}
    return model.model(input_ids=inputs, **options).last_hidden_state


def one_step(rank: int, *, rule: str, optimiser: type, seed: int = 0) -> float:
    """Return by how much one step of an adapter moves the decoder's last states, root mean square."""
    from course_lib.mbart.pretraining import fifth_language as fifth

    model, tokenizer, _, _ = language()
    batch, net = one_batch(seed), with_adapter(rank, scale=float(SCALES[rule](rank)), seed=seed)
    fifth.batch_loss(net, tokenizer, batch).backward()
    optimiser(lora.param_groups(net, STEP_SIZE)).step()
    return float((last_states(net, batch) - last_states(model, batch)).square().mean().sqrt())
