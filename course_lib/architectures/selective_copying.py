"""Selective copying: memories that differ in what sets their decay, trained to hold the last flagged number (lesson 16).

A text is a stream of numbers, a few of them flagged; at every token the last flagged number is wanted. All networks
read a token through the same two layers and answer through the same two; between them stands a memory. Where the token
alone, or nobody, sets the decay, the memory is a scan. The GRU reads its own state to set it, and takes one token after
the other.

Several networks, one for each seed, are trained side by side in one module: small networks cost little more together
than one alone. They share nothing, and each has its own texts.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu

from course_lib.architectures.recurrent import gated_scan

MEMORIES = ("selective", "fixed", "two fixed layers", "fixed, divided", "GRU")


def flagged_texts(
    count: int, length: int, *, share: float, generator: torch.Generator
) -> tuple[Float[Tensor, "count length 2"], Float[Tensor, "count length"]]:
    """Draw texts with (number, flag) at each token, and the last flagged number at each token.

    Ranges: numbers are standard normal; each token is flagged with the probability `share`, from 0 to 1.
    """
    numbers = torch.randn(count, length, generator=generator, dtype=torch.float32)
    flags = torch.rand(count, length, generator=generator, dtype=torch.float32) < share
    return torch.stack([numbers, flags.to(numbers)], -1), last_flagged(numbers, flags.to(numbers))


def last_flagged(
    numbers: Float[Tensor, "*lead length"], flags: Float[Tensor, "*lead length"]
) -> Float[Tensor, "*lead length"]:
    """The last number whose flag is set, at each token; 0 before the first one."""
    places = torch.arange(1, numbers.shape[-1] + 1, device=numbers.device)
    last = ((flags > 0) * places).cummax(-1).values
    padded = torch.cat([torch.zeros_like(numbers[..., :1]), numbers], -1)
    return padded.gather(-1, last)


class _Linear(nn.Module):
    """One linear layer for each network, started as `nn.Linear` starts."""

    def __init__(self, inputs: int, outputs: int, draws: Sequence[torch.Generator]):
        super().__init__()

        def uniform(*shape: int) -> nn.Parameter:
            rows = [torch.rand(*shape, generator=draw, dtype=torch.float32) for draw in draws]
            return nn.Parameter((2 * torch.stack(rows) - 1) / inputs**0.5)

        self.weight, self.bias = uniform(inputs, outputs), uniform(1, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


class _Memory(nn.Module):
    """h_t = a_t h_(t-1) + sigmoid(G x_t) (W x_t): the entry has a gate that sees the token, whatever sets the decay.

    Selective: a_t = sigmoid(U x_t + b). Fixed: a = sigmoid(b), one number a unit. Divided: a fixed decay too; weights
    that are exponentials stand in the place of the gate, and the state is divided by what is left of their sum.
    """

    def __init__(self, inputs: int, units: int, kind: str, draws: Sequence[torch.Generator]):
        super().__init__()
        self.kind = kind
        self.value, self.gate = _Linear(inputs, units, draws), _Linear(inputs, units, draws)
        self.turn = _Linear(inputs, units, draws) if kind == "selective" else None
        # Decays from 0.5 to 0.993, as far as the token does not change them.
        self.rest = nn.Parameter(
            torch.linspace(0.0, 5.0, units, dtype=torch.float32).repeat(len(draws), 1, 1)
        )

    def decays(self, x: Tensor) -> Tensor:
        wanted = self.rest.expand(-1, x.shape[1], -1) if self.turn is None else self.turn(x) + self.rest
        return torch.sigmoid(wanted)

    def forward(self, x: Tensor, length: int) -> Tensor:
        a, value = self.decays(x), self.value(x)
        if self.kind != "fixed, divided":
            return _scan(a, torch.sigmoid(self.gate(x)) * value, length)
        weights = torch.exp(30 * torch.tanh(self.gate(x) / 3))
        return _scan(a, weights * value, length) / _scan(a, weights, length)


def _scan(a: Tensor, w: Tensor, length: int) -> Tensor:
    """The scan of (networks, length x batch, units), all tokens at once."""
    networks, rows, units = w.shape
    a, w = (t.view(networks, length, -1, units).transpose(0, 1).flatten(1, 2) for t in (a, w))
    return gated_scan(a, w).view(length, networks, -1, units).transpose(0, 1).reshape(networks, rows, units)


class _GRU(nn.Module):
    """A gated recurrent unit whose gates and candidate read its state: one token after the other."""

    def __init__(self, inputs: int, units: int, draws: Sequence[torch.Generator]):
        super().__init__()
        self.of_token, self.of_state = _Linear(inputs, 3 * units, draws), _Linear(units, 3 * units, draws)

    def forward(self, x: Tensor, length: int) -> Tensor:
        tokens = self.of_token(x).view(len(x), length, -1, self.of_token.weight.shape[-1])
        h, states = x.new_zeros(len(x), tokens.shape[2], tokens.shape[3] // 3), []
        for token in tokens.unbind(1):
            reset, keep, new = token.chunk(3, -1)
            r, k, n = self.of_state(h).chunk(3, -1)
            keep = torch.sigmoid(keep + k)
            h = keep * h + (1 - keep) * torch.tanh(new + torch.sigmoid(reset + r) * n)
            states.append(h)
        return torch.stack(states, 1).flatten(1, 2)


class CopyNetworks(nn.Module):
    """Two layers, a memory, two layers, once for each seed; the last two see the token as well as the memory.

    Raises:
        ValueError: `memory` is none of `MEMORIES`.
    """

    def __init__(self, memory: str, *, units: int, seeds: Sequence[int]):
        super().__init__()
        if memory not in MEMORIES:
            raise ValueError(f"memory must be one of {MEMORIES}, got {memory!r}")
        draws = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.memory, self.units = memory, units
        self.first, self.second = _Linear(2, units, draws), _Linear(units, units, draws)
        kind = "fixed" if memory == "two fixed layers" else memory
        self.cell = _GRU(units, units, draws) if memory == "GRU" else _Memory(units, units, kind, draws)
        self.on_top = _Memory(2 * units, units, "fixed", draws) if memory == "two fixed layers" else None
        self.third, self.last = _Linear(2 * units, units, draws), _Linear(units, 1, draws)

    def _read(self, texts: Tensor) -> Tensor:
        """The tokens behind the first two layers, (networks, length x batch, units)."""
        return gelu(self.second(gelu(self.first(texts.transpose(1, 2).flatten(1, 2)))))

    def forward(
        self, texts: Float[Tensor, "networks batch length 2"]
    ) -> Float[Tensor, "networks batch length"]:
        """The answer of each network at each token of its texts."""
        length, x = texts.shape[2], self._read(texts)
        h = self.cell(x, length)
        if self.on_top is not None:
            h = self.on_top(torch.cat([h, x], -1), length)
        answers = self.last(gelu(self.third(torch.cat([h, x], -1))))
        return answers.view(len(texts), length, -1).transpose(1, 2)

    def decays(self, texts: Float[Tensor, "networks batch length 2"]) -> Tensor:
        """By which factor each token multiplies each unit of the memory: (networks, batch, length, units).

        Raises:
            ValueError: the memory is a GRU, whose factor depends on its state.
        """
        if self.memory == "GRU":
            raise ValueError("the decays of a GRU depend on its state, not on the token alone")
        found = self.cell.decays(self._read(texts))
        return found.view(len(texts), texts.shape[2], -1, self.units).transpose(1, 2)


def parameter_count(memory: str, units: int) -> int:
    """The number of parameters of one network."""
    return sum(p.numel() for p in CopyNetworks(memory, units=units, seeds=(0,)).parameters())


def units_for(memory: str, *, parameters: int) -> int:
    """The number of units with which one network comes nearest to `parameters`."""
    return min(range(4, 129), key=lambda units: abs(parameter_count(memory, units) - parameters))


def train_to_copy(
    networks: CopyNetworks,
    *,
    seeds: Sequence[int],
    step_size: float,
    steps: int,
    batch: int = 32,
    length: int = 64,
    share: float = 0.1,
) -> Float[Tensor, "steps networks"]:
    """Train by Adam on fresh texts, with a step size that falls to 0 along a line; return the losses.

    Each network has its own loss, texts and limit on the norm of its gradient, 1.
    """
    draws = [torch.Generator().manual_seed(1000 + seed) for seed in seeds]
    parameters = list(networks.parameters())
    optimizer = torch.optim.Adam(parameters, lr=step_size, fused=True)
    losses = []
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = step_size * (1 - step / steps)
        drawn = [flagged_texts(batch, length, share=share, generator=draw) for draw in draws]
        texts, wanted = (torch.stack(part) for part in zip(*drawn, strict=True))
        loss = (networks(texts) - wanted).square().mean((1, 2))
        optimizer.zero_grad()
        loss.sum().backward()
        norm = sum(p.grad.flatten(1).square().sum(1) for p in parameters).sqrt()
        for p in parameters:
            p.grad *= (1 / norm.clamp(min=1)).view(-1, *[1] * (p.ndim - 1))
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


@torch.no_grad()
def copy_errors(
    networks: CopyNetworks, *, seeds: Sequence[int], length: int = 64, share: float = 0.1, texts: int = 256
) -> Float[Tensor, " networks"]:
    """Squared error of each network on fresh texts, over that of the answer 0: 0 is perfect, 1 is worth nothing."""
    draws = [torch.Generator().manual_seed(10_000 + seed) for seed in seeds]
    drawn = [flagged_texts(texts, length, share=share, generator=draw) for draw in draws]
    read, wanted = (torch.stack(part) for part in zip(*drawn, strict=True))
    return (networks(read) - wanted).square().mean((1, 2)) / wanted.square().mean((1, 2))


def sensitivities(
    networks: CopyNetworks, text: Float[Tensor, "length 2"]
) -> Float[Tensor, "networks length length"]:
    """Entry (t, j): by how much the answer at token t changes per unit of change of the number at token j, in size."""
    flags = text[:, 1]

    def answers(numbers: Tensor) -> Tensor:
        read = torch.stack([numbers, flags], -1)
        return networks(read.expand(networks.first.weight.shape[0], 1, -1, -1))[:, 0]

    return torch.autograd.functional.jacobian(answers, text[:, 0].clone()).abs()
