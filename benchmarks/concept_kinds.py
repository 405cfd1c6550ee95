"""What each kind of sparse autoencoder makes of the concepts of `course-mbart`, at about as many active features.

Token states of the encoder, 2,048 features, trained as the pipeline does by default. k is 8; where a weight decides how
many features are active, it is one of `WEIGHTS`, with which they are about as many. The figures are those of
`features`, on the same sentences and seeds, and the held-out variance that is explained.

End to end: TopK, and after it `MORE` steps on the change of the model's output (KL) instead of the states. Beside it the
same number of further steps on the states. Of held-out sentences and their translations: the cross-entropy, and the KL,
when the reconstructions are put in.

Everything on `SEEDS`, each in a process of its own.
"""

import copy
import dataclasses
import math
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from benchmarks.features import SENTENCES, judged_figures, states_of
from benchmarks.timing import Spread
from course_lib import sae
from course_lib.language.corpus import draw_meanings, render
from course_lib.pipeline import SparseConfig
from course_lib.sae import metrics

FEATURES, K, SEEDS, MORE, PAIRS = 2048, 8, (0, 1), 300, 6000
CONFIG = SparseConfig().training
WEIGHTS = {"ReLU + L1": 0.2, "JumpReLU": 0.0034, "gated": 0.18}
Make = Callable[[int, torch.Generator], sae.SparseAutoencoder]
KINDS: dict[str, Make] = {
    "TopK": lambda d, g: sae.TopKSparseAutoencoder(d, FEATURES, k=K, generator=g),
    "TopK + AuxK": lambda d, g: sae.TopKSparseAutoencoder(
        d, FEATURES, k=K, aux_k=64, dead_after=50_000, generator=g
    ),
    "BatchTopK": lambda d, g: sae.BatchTopKSparseAutoencoder(d, FEATURES, k=K, generator=g),
    "Matryoshka TopK": lambda d, g: sae.MatryoshkaTopKSparseAutoencoder(d, FEATURES, k=K, generator=g),
    "Matryoshka BatchTopK": lambda d, g: sae.MatryoshkaBatchTopKSparseAutoencoder(
        d, FEATURES, k=K, generator=g
    ),
    "ReLU + L1": lambda d, g: sae.ReluSparseAutoencoder(d, FEATURES, l1=WEIGHTS["ReLU + L1"], generator=g),
    "JumpReLU": lambda d, g: sae.JumpReluSparseAutoencoder(d, FEATURES, l0=WEIGHTS["JumpReLU"], generator=g),
    "gated": lambda d, g: sae.GatedSparseAutoencoder(d, FEATURES, l1=WEIGHTS["gated"], generator=g),
}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def fitted(make: Make, rows: torch.Tensor, seed: int, config: sae.TrainConfig) -> sae.SparseAutoencoder:
    autoencoder = make(rows.shape[1], seeded(seed))
    sae.train(autoencoder, rows, config, generator=seeded(1000 + seed), progress=False)
    return autoencoder


@torch.no_grad()
def coded(autoencoder: sae.SparseAutoencoder, rows: torch.Tensor) -> dict[str, float]:
    features = autoencoder.encode(rows)
    return {
        "active features": metrics.l0(features),
        "variance explained, %": 100 * metrics.explained_variance(rows, autoencoder.decode(features)),
    }


def kinds(seed: int, states, config: sae.TrainConfig) -> dict[str, dict[str, float]]:
    """The figures of every kind."""
    train, held_out, grammar = states
    found = {}
    for name, make in KINDS.items():
        autoencoder = fitted(make, train.states, seed, config)
        found[name] = coded(autoencoder, held_out.states[:20_000]) | judged_figures(
            autoencoder, train, held_out, grammar, seed=seed
        )
    return found


def translations(n: int, *, split: str, seed: int):
    """Meanings of a split said in English and in German."""
    meanings = draw_meanings(n, seed=seed, split=split)
    return tuple([render(meaning, language) for meaning in meanings] for language in ("en_XX", "de_DE"))


def end_to_end(
    seed: int, states, config: sae.TrainConfig, more: int, n_pairs: int
) -> dict[str, dict[str, float]]:
    """TopK after further steps on the model's output, and after as many on the states."""
    from course_lib.mbart.activations import Site
    from course_lib.mbart.model import load
    from course_lib.mbart.splicing import loss_recovered
    from course_lib.pipeline.end_to_end import EndToEnd

    train, held_out, grammar = states
    model, tokenizer = load("course-mbart")
    model.requires_grad_(False)
    site = Site("encoder")
    read = translations(n_pairs, split="train", seed=seed)
    asked = translations(min(400, n_pairs), split="test", seed=seed)
    objectives = {
        "TopK": None,
        f"TopK and {more} steps on the states": None,
        f"TopK and {more} steps end to end": EndToEnd(model, tokenizer, site, *read),
    }
    first = fitted(KINDS["TopK"], train.states, seed, config)
    found = {}
    for name, objective in objectives.items():
        autoencoder = copy.deepcopy(first)
        if name != "TopK":
            again = dataclasses.replace(
                config, steps=more, step_size=5e-4, revive_every=0, batch_size=32 if objective else 1024
            )
            sae.train(
                autoencoder, train.states, again, generator=seeded(seed), progress=False, objective=objective
            )
        spliced = loss_recovered(model, tokenizer, autoencoder, site, *asked, progress=False)
        found[name] = {
            "cross-entropy as it is": spliced.clean,
            "cross-entropy, reconstructions put in": spliced.spliced,
            "KL, reconstructions put in": spliced.kl_spliced,
            **coded(autoencoder, held_out.states[:20_000]),
        }
        wanted = ("F1 0.9, %", "same unit at F1 0.8 in three languages, %")
        judged = judged_figures(autoencoder, train, held_out, grammar, seed=seed)
        found[name] |= {what: judged[what] for what in wanted}
    return found


def of_seed(seed: int, sentences: int, config: sae.TrainConfig, more: int, n_pairs: int):
    """All figures of one seed, by candidate."""
    torch.set_num_threads(1)
    train, _ = states_of("course-mbart", "encoder", split="train", sentences=sentences)
    held_out, grammar = states_of("course-mbart", "encoder", split="test", sentences=sentences)
    states = (train, held_out, grammar)
    return kinds(seed, states, config) | {
        f"end to end: {name}": row for name, row in end_to_end(seed, states, config, more, n_pairs).items()
    }


def run(
    *, seeds: tuple[int, ...] = SEEDS, sentences: int = SENTENCES, steps: int = CONFIG.steps,
    more: int = MORE, n_pairs: int = PAIRS,
) -> dict[str, Spread]:  # fmt: skip
    """Return the figures of every candidate over the seeds."""
    config = dataclasses.replace(CONFIG, steps=steps)
    jobs = min(len(seeds), os.cpu_count() or 1)
    with ProcessPoolExecutor(max_workers=jobs, mp_context=get_context("spawn")) as pool:
        asked = [pool.submit(of_seed, seed, sentences, config, more, n_pairs) for seed in seeds]
        runs = [one.result() for one in asked]
    values = {
        f"{name}: {what}": [run[name][what] for run in runs if not math.isnan(run[name][what])]
        for name, row in runs[0].items()
        for what in row
    }
    return {name: Spread.of(known) for name, known in values.items() if known}
