"""What erasing a concept from the shipped model's states does to its translations, five times over.

Each seed has its own 1,200 sentences, to which erasers are fitted, and its own 1,000 pairs of new meanings to translate. At
three sites the language of the sentence (three directions) or the determiner (nine) is erased from the states of all
tokens, and as controls as many random directions of the whitened states. Beside the share of exact translations: R^2 of
least-squares probes, the least and the largest over the classes, the share of the variance that the change moves, and what
a linear probe and the nearest of 4,000 other states find of the language of 1,000 tokens of new sentences.
"""

import torch
from torch import Tensor

from course_lib.lessons.linear_purification.digits import nearest_accuracy, probe_accuracy
from course_lib.lessons.linear_purification.erased import (
    SITES,
    exact,
    mbart,
    moments_of,
    moved,
    pairs,
    states,
)
from course_lib.representation.erasure import Eraser, probe_r2

SEEDS = (0, 1, 2, 3, 4)
SETTINGS = {"fitted_sentences": 1200, "translations": 1000}
CONCEPTS = {"language": 3, "determiner": 9}


def readers(site: str, eraser: Eraser | None, seed: int) -> tuple[float, float]:
    """Return what a linear probe and the nearest neighbour find of the language of new tokens."""
    seen, new = states(site, seed=10 + seed), states(site, n=400, seed=50 + seed, split="test")
    change = (lambda t: t) if eraser is None else eraser.erase
    take = torch.randperm(len(seen.values), generator=torch.Generator().manual_seed(seed))[:4000]
    some = torch.randperm(len(new.values), generator=torch.Generator().manual_seed(seed))[:1000]

    def both(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([change(seen.values[a]), change(new.values[b])]), torch.cat(
            [seen.language[a], new.language[b]]
        )

    everything = torch.arange(len(seen.values)), torch.arange(len(new.values))
    return (
        probe_accuracy(*both(*everything), seen=len(seen.values)),
        nearest_accuracy(*both(take, some), seen=4000),
    )


def run() -> dict[str, list[float]]:
    """Erase, translate and count."""
    torch.set_num_threads(1)
    mbart()
    rows: dict[str, list[float]] = {}

    def note(name: str, value: float | Tensor) -> None:
        rows.setdefault(name, []).append(round(float(value), 5))

    for seed in SEEDS:
        asked = pairs(SETTINGS["translations"], seed=100 + seed)
        note("as the model is", exact(asked))
        note("wrong code", exact(asked.with_wrong_code()))
        for site in SITES:
            found = states(site, seed=10 + seed)
            for concept, rank in CONCEPTS.items():
                moments = moments_of(found, concept)
                r2 = probe_r2(found.values, getattr(found, concept))
                random = moments.random_eraser(rank, generator=torch.Generator().manual_seed(seed))
                note(f"{site}: {concept}, least R^2", r2.min())
                note(f"{site}: {concept}, largest R^2", r2.max())
                for name, eraser in ((concept, moments.eraser()), (f"{rank} random", random)):
                    note(f"{site}: {name}", exact(asked, eraser, site))
                    note(f"{site}: {name}, moved", moved(eraser, found.values))
                if concept == "language":
                    for when, eraser in (("before", None), ("after", moments.eraser())):
                        linear, nearest = readers(site, eraser, seed)
                        note(f"{site}: linear probe {when}", linear)
                        note(f"{site}: nearest {when}", nearest)
        new = states(SITES[0], n=400, seed=50 + seed, split="test").language
        note("commonest language", new.bincount().max() / len(new))
        print(seed, {name: values[-1] for name, values in rows.items()}, flush=True)
    return rows
