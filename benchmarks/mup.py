"""How far a step size found on a narrow network carries to a wide one, under SP and under muP, with Adam.

Two families: the multilayer perceptrons of lesson 07 (widths 32, 128, 512) and transformers of one block (widths 16, 64,
256, heads of size 16) that predict the next token of a random chain of order 2. Each is trained with every step size of
a grid at every width. Drift is the distance between the best exponents of the widest and the narrowest, by a parabola
through the logarithms; regret is what the widest loses at the narrowest's best step size. The loss of the transformers
is the excess over the entropy of the chain, so that a ratio of losses means something.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

from benchmarks.timing import Spread
from course_lib.lessons import maximal_update_parametrization as lesson
from course_lib.optimization.mup import param_groups, parametrize

VOCABULARY, LENGTH, HEAD = 8, 32, 16
TRANSFORMER_WIDTHS, TRANSFORMER_EXPONENTS = (16, 64, 256), tuple(range(-11, -2))
MLP_EXPONENTS = tuple(range(-10, -1))
STEPS, BATCH = 150, 8
MLP_SEEDS = 4
TRANSFORMER_SEEDS = {"cpu": 3, "cuda": 8}


class Transformer(nn.Module):
    """Token and position embeddings, one block with attention and a perceptron before it, a readout."""

    def __init__(self, width: int, *, seed: int):
        torch.manual_seed(seed)
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.norm, self.qkv, self.out = (
            nn.LayerNorm(width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )
        self.norm_2, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )
        self.norm_3, self.readout = nn.LayerNorm(width), nn.Linear(width, VOCABULARY)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)
                nn.init.zeros_(module.bias)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        q, k, v = (
            t.unflatten(-1, (-1, HEAD)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, dim=-1)
        )
        x = x + self.out(scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        x = x + self.down(gelu(self.up(self.norm_2(x))))
        return self.readout(self.norm_3(x))


class Chain:
    """A random chain of order 2: the next token depends on the last two."""

    def __init__(self, *, seed: int, device: str):
        generator = torch.Generator().manual_seed(seed)
        logits = 2 * torch.randn(VOCABULARY, VOCABULARY, VOCABULARY, generator=generator)
        self.law, self.device = logits.softmax(-1), device

    def draw(self, count: int, generator: torch.Generator) -> tuple[torch.Tensor, float]:
        """Return sequences, and the mean of -log p of their tokens after the second, by the chain itself."""
        rows = torch.randint(VOCABULARY, (count, 2), generator=generator)
        surprise = []
        for _ in range(LENGTH - 1):
            p = self.law[rows[:, -2], rows[:, -1]]
            new = torch.multinomial(p, 1, generator=generator)
            surprise.append(-p.gather(1, new).log())
            rows = torch.cat([rows, new], 1)
        return rows.to(self.device), float(torch.cat(surprise, 1).mean())


def excess(model: nn.Module, rows: torch.Tensor, entropy: float) -> torch.Tensor:
    """Loss of a model on sequences, above that of the chain itself."""
    return cross_entropy(model(rows[:, :-1])[:, 1:].flatten(0, 1), rows[:, 2:].flatten()) - entropy


def train(model: nn.Module, groups: Sequence[Mapping], rows: torch.Tensor) -> None:
    """Train on the rows once, in order, with step sizes that fall linearly to zero."""
    optimizer = torch.optim.Adam(groups, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / STEPS)
    for batch in rows.split(BATCH):
        optimizer.zero_grad()
        excess(model, batch, 0.0).backward()
        optimizer.step()
        schedule.step()


def groups_for(model: nn.Module, base: nn.Module, lr: float, *, mup: bool) -> Sequence[Mapping]:
    """One step size for all parameters, or muP's."""
    if mup:
        return param_groups(parametrize(model, base), torch.optim.Adam, lr)
    return [{"params": list(model.parameters()), "lr": lr}]


def transformer_losses(seed: int, *, mup: bool, device: str) -> dict[int, list[float]]:
    """Excess losses of the transformers by width, one for each exponent."""
    chain, generator = Chain(seed=seed, device=device), torch.Generator().manual_seed(seed)
    rows, _ = chain.draw(STEPS * BATCH, generator)
    test, entropy = chain.draw(200, generator)
    with torch.device("meta"):
        base = Transformer(min(TRANSFORMER_WIDTHS), seed=0)

    def final(width: int, lr: float) -> float:
        model = Transformer(width, seed=seed).to(device)
        train(model, groups_for(model, base, lr, mup=mup), rows)
        with torch.no_grad():
            return float(excess(model, test, entropy))

    return {width: [final(width, 2.0**e) for e in TRANSFORMER_EXPONENTS] for width in TRANSFORMER_WIDTHS}


def mlp_losses(seed: int, *, mup: bool) -> dict[int, list[float]]:
    """Test losses of the lesson's perceptrons by width, with another start, teacher and stream of data each seed."""

    def final(width: int, lr: float) -> float:
        model = lesson.network(width, seed=3 * seed)
        groups = groups_for(model, lesson.network(min(lesson.WIDTHS)), lr, mup=mup)
        return lesson.train(model, groups, target=lesson.teacher(3 * seed + 1), seed=3 * seed + 2)

    return {width: [final(width, 2.0**e) for e in MLP_EXPONENTS] for width in lesson.WIDTHS}


def summary(
    name: str, losses_of: Callable[..., dict[int, list[float]]], exponents: Sequence[int], seeds: int
) -> dict[str, Spread]:
    """Best exponents at each width, drift, regret and the smallest loss of the widest, over seeds."""
    rows: dict[str, Spread] = {}
    smallest = {}
    for label, mup in (("SP", False), ("muP", True)):
        runs = [losses_of(seed, mup=mup) for seed in range(seeds)]
        for width in runs[0]:
            best = [lesson.best_exponent(run[width], exponents) for run in runs]
            rows[f"{name}, {label}: best log2 step size, width {width}"] = Spread.of(best)
        drifts, regrets = zip(*(lesson.drift_and_regret(run, exponents) for run in runs), strict=True)
        rows[f"{name}, {label}: drift, octaves"] = Spread.of(drifts)
        rows[f"{name}, {label}: regret, loss / smallest loss"] = Spread.of(regrets)
        smallest[label] = [min(run[max(run)]) for run in runs]
    ratios = [ours / theirs for ours, theirs in zip(smallest["muP"], smallest["SP"], strict=True)]
    rows[f"{name}: smallest loss of the widest, muP / SP"] = Spread.of(ratios)
    return rows


def run() -> dict[str, Spread]:
    """Train everything on one thread, the transformers on the GPU where there is one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return {
            **summary("perceptron", mlp_losses, MLP_EXPONENTS, MLP_SEEDS),
            **summary(
                f"transformer ({device})",
                lambda seed, *, mup: transformer_losses(seed, mup=mup, device=device),
                TRANSFORMER_EXPONENTS,
                TRANSFORMER_SEEDS[device],
            ),
        }
    finally:
        torch.set_num_threads(threads)
