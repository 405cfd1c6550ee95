"""What each kind of sparse autoencoder finds of planted dictionaries, at the same number of active features.

One site: 40 atoms in 24 dimensions, 3 active in a row on average. 8 of them are general and have 2 special atoms each,
which come only with theirs. Every kind has 128 features and takes the same steps on the same rows. Where a penalty
decides how many features are active, its weight is found by bisection on a seed of its own, such that they are as
many as TopK's. Shares are of the 40 atoms, in %, on 3 seeds; the rows are new ones.

Two sites: 32 atoms in 24 dimensions each, half of them written at both. A unit belongs to the atom whose strength it is
most correlated with, which asks nothing of its decoder, and its decoder norms say whether it is shared. Beside it,
the same answers dealt out to the units at random.

Time: CPU time of one step of `train`, 256 to 2,048 features, batches of 1,024, every kind once a round.
"""

import dataclasses
import math
from collections.abc import Callable

import torch

from benchmarks.sae import interleaved, our_step
from benchmarks.timing import Spread
from course_lib.sae import (
    BatchTopKSparseAutoencoder,
    CrosscoderSparseAutoencoder,
    GatedSparseAutoencoder,
    JumpReluSparseAutoencoder,
    MatryoshkaBatchTopKSparseAutoencoder,
    MatryoshkaTopKSparseAutoencoder,
    ReluSparseAutoencoder,
    SparseAutoencoder,
    TopKSparseAutoencoder,
    TrainConfig,
    metrics,
    train,
)
from course_lib.sae.planted import NO_PARENT, PlantedDictionary
from course_lib.sae.recovery import absorption, recovery, share_split
from course_lib.sae.sparse import exclusive_site
from course_lib.sae.sparse.crosscoder import SHARED

WIDTH, FEATURES, K, ROWS, SEEDS = 24, 128, 4, 20_000, (0, 1, 2)
CONFIG = TrainConfig(steps=1000, batch_size=128, step_size=1e-2, unit_norm_decoder=True)
AUX = {"aux_k": 16, "dead_after": 2500}
# General atoms and their special ones, then atoms on their own.
PARENTS = [*[NO_PARENT] * 8, *[general for general in range(8) for _ in range(2)], *[NO_PARENT] * 16]
FREQUENCIES = torch.tensor([0.1 if parent == NO_PARENT else 0.4 for parent in PARENTS])

Make = Callable[[int, int, torch.Generator], SparseAutoencoder]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


FIXED: dict[str, Make] = {
    "TopK": lambda d, n, g: TopKSparseAutoencoder(d, n, k=K, generator=g),
    "TopK + AuxK": lambda d, n, g: TopKSparseAutoencoder(d, n, k=K, **AUX, generator=g),
    "BatchTopK": lambda d, n, g: BatchTopKSparseAutoencoder(d, n, k=K, generator=g),
    "Matryoshka TopK": lambda d, n, g: MatryoshkaTopKSparseAutoencoder(d, n, k=K, generator=g),
    "Matryoshka BatchTopK": lambda d, n, g: MatryoshkaBatchTopKSparseAutoencoder(d, n, k=K, generator=g),
    "Matryoshka BatchTopK, 32 and 128": lambda d, n, g: MatryoshkaBatchTopKSparseAutoencoder(
        d, n, k=K, prefixes=(32, 128), generator=g
    ),
}
# Kinds whose number of active features a weight negotiates, for a weight.
NEGOTIATED: dict[str, Callable[[float], Make]] = {
    "ReLU + L1": lambda weight: lambda d, n, g: ReluSparseAutoencoder(d, n, l1=weight, generator=g),
    "JumpReLU": lambda weight: lambda d, n, g: JumpReluSparseAutoencoder(d, n, l0=weight, generator=g),
    "gated": lambda weight: lambda d, n, g: GatedSparseAutoencoder(d, n, l1=weight, generator=g),
}


def matched(
    trained: Callable[[float], float], *, target: float, low: float, high: float, rounds: int
) -> float:
    """The weight, by bisection of its logarithm, at which `trained(weight)` active features are `target`."""
    for _ in range(rounds):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if trained(middle) > target else (low, middle)
    return (low * high) ** 0.5


def fitted(make: Make, rows: torch.Tensor, seed: int, config: TrainConfig) -> SparseAutoencoder:
    autoencoder = make(rows.shape[1], FEATURES, seeded(100 + seed))
    train(autoencoder, rows, config, generator=seeded(200 + seed), progress=False)
    return autoencoder.requires_grad_(False)


def planted(seed: int) -> tuple[PlantedDictionary, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A dictionary, rows to train on, and other rows with their codes."""
    generator = seeded(seed)
    made = PlantedDictionary(len(PARENTS), WIDTH, generator=generator)
    drawn = made.draw_nested(2 * ROWS, parents=PARENTS, frequencies=FREQUENCIES, generator=generator)
    return made, drawn.rows[:ROWS], drawn.rows[ROWS:], drawn.codes[ROWS:]


def measured(autoencoder: SparseAutoencoder, seed: int) -> dict[str, float]:
    """What the table says of one autoencoder, by name."""
    made, _, rows, codes = planted(seed)
    features = autoencoder.encode(rows)
    found = recovery(autoencoder.decoder_weight, made.atoms)
    absorbed = absorption(
        features, codes, parents=PARENTS, decoder_weight=autoencoder.decoder_weight, atoms=made.atoms
    )
    return {
        "active features": metrics.l0(features),
        "atoms at cosine 0.8, %": 100 * found.share_matched(0.8),
        "atoms at cosine 0.9, %": 100 * found.share_matched(0.9),
        "variance explained, %": 100 * metrics.explained_variance(rows, autoencoder.decode(features)),
        "dead features": (metrics.firing_rates(features) == 0).sum().item(),
        "atoms split, %": 100 * share_split(autoencoder.decoder_weight, made.atoms),
        "general silent with special, %": 100 * absorbed.with_special,
        "general silent alone, %": 100 * absorbed.alone,
        "general atoms found, of 8": absorbed.n_general,
    }


def spreads(name: str, runs: list[dict[str, float]]) -> dict[str, Spread]:
    """The figures of all seeds; a seed in which nothing could be looked at (NaN) is left out of a figure."""
    figures = {what: [run[what] for run in runs if not math.isnan(run[what])] for what in runs[0]}
    return {f"{name}: {what}": Spread.of(values) for what, values in figures.items() if values}


def one_site(config: TrainConfig, rounds: int) -> dict[str, Spread]:
    makers = dict(FIXED)
    for name, family in NEGOTIATED.items():

        def active(weight: float, family=family) -> float:
            _, rows, others, _ = planted(99)
            return metrics.l0(fitted(family(weight), rows, 99, config).encode(others))

        makers[name] = family(matched(active, target=K, low=1e-2, high=3.0, rounds=rounds))
    figures = {}
    for name, make in makers.items():
        runs = [measured(fitted(make, planted(seed)[1], seed, config), seed) for seed in SEEDS]
        figures |= spreads(name, runs)
    untrained = [
        recovery(makers["TopK"](WIDTH, FEATURES, seeded(100 + seed)).decoder_weight, planted(seed)[0].atoms)
        for seed in SEEDS
    ]
    shares = [100 * found.share_matched(0.8) for found in untrained]
    return figures | {"untrained: atoms at cosine 0.8, %": Spread.of(shares)}


def two_sites(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows of two sites side by side, codes, and of each atom where it is written: `SHARED`, 0 or 1."""
    generator = seeded(seed)
    sites = [PlantedDictionary(32, WIDTH, generator=generator) for _ in range(2)]
    where = torch.tensor([SHARED] * 16 + [0] * 8 + [1] * 8)
    codes = sites[0].draw_independent(2 * ROWS, frequencies=torch.full((32,), 0.1), generator=generator).codes
    rows = [(codes * ((where == SHARED) | (where == s))) @ site.atoms for s, site in enumerate(sites)]
    return torch.cat(rows, dim=1), codes, where


def told_apart(autoencoder: CrosscoderSparseAutoencoder, seed: int) -> dict[str, float]:
    rows, codes, where = two_sites(seed)
    rows, codes = rows[ROWS:], codes[ROWS:]
    features = autoencoder.encode(rows)
    alive = metrics.firing_rates(features) > 0
    features = features[:, alive]
    both = torch.corrcoef(torch.cat([features, codes], dim=1).T)[: features.shape[1], features.shape[1] :]
    strongest, atom = both.max(dim=1)
    known = strongest >= 0.5
    true = where[atom[known]]
    found = {
        "active features": metrics.l0(features),
        "variance explained, %": 100 * metrics.explained_variance(rows, autoencoder(rows)),
        "features that follow an atom, of 128": int(known.sum()),
        "atoms followed, of 32": len(set(atom[known].tolist())),
    }
    for threshold in (0.7, 0.9):
        said = exclusive_site(autoencoder.shares(), threshold=threshold)[alive][known]
        dealt = [said[torch.randperm(len(said), generator=seeded(i))] for i in range(50)]
        found[f"shared or whose, at {threshold}, % right"] = 100 * (said == true).double().mean().item()
        found[f"the same dealt out at random, at {threshold}, % right"] = (
            100 * torch.stack([(other == true).double().mean() for other in dealt]).mean().item()
        )
        shared = true == SHARED
        found[f"shared ones called so, at {threshold}, %"] = (
            100 * (said[shared] == SHARED).double().mean().item()
        )
    return found


def crosscoders(config: TrainConfig, rounds: int) -> dict[str, Spread]:
    def family(**options) -> Make:
        return lambda d, n, g: CrosscoderSparseAutoencoder(d, n, sites=(WIDTH, WIDTH), **options, generator=g)

    def active(weight: float) -> float:
        rows = two_sites(99)[0]
        return metrics.l0(fitted(family(l1=weight), rows[:ROWS], 99, config).encode(rows[ROWS:]))

    weight = matched(active, target=K, low=1e-2, high=3.0, rounds=rounds)
    figures = {}
    for name, make in (("crosscoder, TopK", family(k=K)), ("crosscoder, L1", family(l1=weight))):
        runs = [told_apart(fitted(make, two_sites(seed)[0][:ROWS], seed, config), seed) for seed in SEEDS]
        figures |= spreads(name, runs)
    return figures


def times(*, width: int = 256, features: int = 2048, batch: int = 1024, rounds: int = 7) -> dict[str, Spread]:
    x = torch.randn(8192, width, generator=seeded())
    config = TrainConfig(steps=10**6, batch_size=batch, warm_up=0, decay=0, precision="float32")
    wide: dict[str, Make] = {
        "TopK": lambda d, n, g: TopKSparseAutoencoder(d, n, k=32, generator=g),
        "TopK + AuxK": lambda d, n, g: TopKSparseAutoencoder(d, n, k=32, aux_k=64, generator=g),
        "BatchTopK": lambda d, n, g: BatchTopKSparseAutoencoder(d, n, k=32, generator=g),
        "Matryoshka TopK": lambda d, n, g: MatryoshkaTopKSparseAutoencoder(d, n, k=32, generator=g),
        "Matryoshka BatchTopK": lambda d, n, g: MatryoshkaBatchTopKSparseAutoencoder(d, n, k=32, generator=g),
        **{name: family(0.1) for name, family in NEGOTIATED.items()},
        "crosscoder, TopK": lambda d, n, g: CrosscoderSparseAutoencoder(
            d, n, sites=(d // 2, d // 2), k=32, generator=g
        ),
        "crosscoder, L1": lambda d, n, g: CrosscoderSparseAutoencoder(
            d, n, sites=(d // 2, d // 2), l1=0.1, generator=g
        ),
    }
    steps = {name: our_step(make(width, features, seeded()), x, config) for name, make in wide.items()}
    seconds = interleaved(steps, {}, rounds=rounds)
    return {
        f"{name}: time of a step / TopK's": Spread.of(values / seconds["TopK"])
        for name, values in seconds.items()
        if name != "TopK"
    }


def run(*, steps: int = CONFIG.steps, rounds: int = 6) -> dict[str, Spread]:
    """Return the tables of one site and of two, and the times."""
    torch.set_num_threads(1)
    config = dataclasses.replace(CONFIG, steps=steps)
    return one_site(config, rounds) | crosscoders(config, rounds) | times()
