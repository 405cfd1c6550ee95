"""The object of lesson 14: networks of 24 units that have to name a symbol from many steps back, and how they are trained.

Networks of one kind are trained side by side, each with weights, data and a rate of its own: the loop over time costs
about as much for forty of these small networks as for one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

SYMBOLS, DISTRACTORS, UNITS, BATCH = 8, 4, 24, 24
WIDTH = SYMBOLS + DISTRACTORS
NEAR, FAR = 5, 40  # how many steps back the symbol lies
KINDS = ("tanh", "tanh, orthogonal", "LSTM", "LSTM, forget bias 4", "GRU", "GRU, keep bias 4")
LAYERS = {"tanh": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}
HELD_OUT, LOOK = 240, 20  # sequences of a test, steps between two of them
ENOUGH = 0.9  # a network has learned when it names this share of the symbols


def recall_batch(distance: int, generator: torch.Generator, *, batch: int = BATCH) -> tuple[Tensor, Tensor]:
    """Return sequences (distance + 1, batch, 12), one-hot, and the symbol that each begins with."""
    symbols = torch.randint(SYMBOLS, (batch,), generator=generator)
    tokens = SYMBOLS + torch.randint(DISTRACTORS, (distance + 1, batch), generator=generator)
    tokens[0] = symbols
    return nn.functional.one_hot(tokens, WIDTH).float(), symbols


def recall_batches(
    distance: int, generators: Sequence[torch.Generator], *, batch: int = BATCH
) -> tuple[Tensor, Tensor]:
    """Return one batch for each generator: sequences (time, networks, batch, 12) and symbols (networks, batch)."""
    x, symbols = zip(*(recall_batch(distance, generator, batch=batch) for generator in generators), strict=True)
    return torch.stack(x, dim=1), torch.stack(symbols)


class Recall(nn.Module):
    """Networks of one kind, one a seed, that read sequences and score the eight symbols at their end.

    All weights are those that PyTorch draws for a seed. `factor` then multiplies W_h of a tanh network; "orthogonal"
    replaces it; "bias 4" sets the input bias of the gate that keeps, which is the second of PyTorch's order in both.
    """

    def __init__(self, kind: str, seeds: Sequence[int] = (0,), *, factor: float = 1.0):
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {list(KINDS)}, got {kind!r}")
        self.name = kind.split(",")[0]
        if factor != 1.0 and self.name != "tanh":
            raise ValueError(f"only W_h of a tanh network takes a factor, got {factor} for {kind!r}")
        drawn = [_drawn(kind, seed, factor) for seed in seeds]
        stacked = [nn.Parameter(torch.stack(several)) for several in zip(*drawn, strict=True)]
        self.w_out, self.b_out, self.w_x, self.w_h, self.b_x, self.b_h = stacked

    def states(self, x: Tensor) -> Tensor:
        """The state after each step, (time, networks, batch, units), from inputs (time, networks, batch, width)."""
        step = {"tanh": self._tanh, "LSTM": self._lstm, "GRU": self._gru}[self.name]
        sums = x @ self.w_x.mT + self.b_x[:, None]  # all inputs at once
        h = x.new_zeros(*x.shape[1:3], UNITS)
        state, states = (h, h), []
        for s in sums.unbind():
            state = step(s, *state)
            states.append(state[0])
        return torch.stack(states)

    def _recurrent(self, h: Tensor) -> Tensor:
        return torch.baddbmm(self.b_h[:, None], h, self.w_h.mT)

    def _tanh(self, s: Tensor, h: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(s + self._recurrent(h))
        return h, h

    def _lstm(self, s: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, new, o = (s + self._recurrent(h)).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(new)
        return torch.sigmoid(o) * torch.tanh(c), c

    def _gru(self, s: Tensor, h: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        (s_r, s_z, s_n), (p_r, p_z, p_n) = s.chunk(3, dim=-1), self._recurrent(h).chunk(3, dim=-1)
        z = torch.sigmoid(s_z + p_z)
        h = torch.lerp(torch.tanh(s_n + torch.sigmoid(s_r + p_r) * p_n), h, z)
        return h, h

    def keep_products(self, x: Tensor) -> Tensor:
        """The product over all steps of each keep gate of a GRU, mean over sequences, (networks, units)."""
        states = self.states(x)
        before = torch.cat([torch.zeros_like(states[:1]), states[:-1]])
        sums = x @ self.w_x.mT + self.b_x[:, None] + before @ self.w_h.mT + self.b_h[:, None]
        return torch.sigmoid(sums.chunk(3, dim=-1)[1]).prod(0).mean(1)

    def forward(self, x: Tensor) -> Tensor:
        """Scores (networks, batch, symbols) from inputs (time, networks, batch, width)."""
        return self.states(x)[-1] @ self.w_out.mT + self.b_out[:, None]


def _drawn(kind: str, seed: int, factor: float) -> list[Tensor]:
    """Return the weights of one network, the output's first."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)  # PyTorch's layers draw their weights from the global generator
        read = nn.Linear(UNITS, SYMBOLS, dtype=torch.float32)
        core = LAYERS[kind.split(",")[0]](WIDTH, UNITS, dtype=torch.float32)
        if kind.endswith("orthogonal"):
            nn.init.orthogonal_(core.weight_hh_l0)
        if kind.endswith("bias 4"):
            core.bias_ih_l0[UNITS : 2 * UNITS] = 4.0
        core.weight_hh_l0 *= factor
    return [p.detach() for p in (*read.parameters(), *core.parameters())]


@dataclass(frozen=True)
class Run:
    """What several networks did: losses (steps, networks), accuracy at every look, and when they had learned, 0 if never."""

    losses: Tensor
    accuracy: dict[int, Tensor]
    learned_at: Tensor


def train(
    net: Recall,
    distance: int,
    *,
    seeds: Sequence[int],
    rate: float | Sequence[float] = 0.005,
    steps: int = 200,
    epsilon: float = 1e-8,
) -> Run:
    """Train each network by Adam on fresh batches, its gradient clipped to length 1; test every 20 steps.

    `seeds` decides on the data of each network, `rate` is one for all or one for each; `epsilon` is Adam's.
    """
    fresh = [torch.Generator().manual_seed(seed) for seed in seeds]
    test, answers = recall_batches(
        distance, [torch.Generator().manual_seed(10_000 + seed) for seed in seeds], batch=HELD_OUT
    )
    weights = list(net.parameters())
    test = test.to(weights[0].dtype)
    rates = torch.as_tensor(rate, dtype=weights[0].dtype).expand(len(seeds))
    first, second = ([torch.zeros_like(w) for w in weights] for _ in range(2))
    losses, accuracy = [], {}
    learned_at = torch.zeros(len(seeds), dtype=torch.long)
    for step in range(1, steps + 1):
        x, symbols = recall_batches(distance, fresh)
        x = x.to(weights[0].dtype)
        loss = nn.functional.cross_entropy(net(x).flatten(0, 1), symbols.flatten(), reduction="none")
        loss = loss.view(len(seeds), -1).mean(1)
        gradients = torch.autograd.grad(loss.sum(), weights)
        length = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0).sqrt()
        clip = (1.0 / (length + 1e-6)).clamp(max=1.0)
        with torch.no_grad():
            for w, g, m, v in zip(weights, gradients, first, second, strict=True):
                each = (-1, *[1] * (w.ndim - 1))
                g = g * clip.view(each)
                m.lerp_(g, 0.1)
                v.lerp_(g * g, 0.001)
                size = (v / (1 - 0.999**step)).sqrt() + epsilon
                w -= rates.view(each) * m / (1 - 0.9**step) / size
            losses.append(loss.detach())
            if step % LOOK == 0:
                accuracy[step] = (net(test).argmax(2) == answers).double().mean(1)
                learned_at[(learned_at == 0) & (accuracy[step] >= ENOUGH)] = step
    return Run(torch.stack(losses), accuracy, learned_at)
