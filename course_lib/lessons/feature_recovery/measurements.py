"""What the figures of lesson 28 draw: the settings, and how one point of them is measured.

The curves over all settings take minutes: `make bench feature_recovery` measures them again.
"""

from functools import lru_cache

import numpy as np
import torch

from course_lib.measured import measured
from course_lib.sae.planted import PlantedDictionary, log_spaced_frequencies
from course_lib.sae.recovery import cosines, recovery
from course_lib.sae.resonance import random_neurons, resonate
from course_lib.sae.sparse import (
    GroupBiasAdaptedAutoencoder,
    ReluSparseAutoencoder,
    SparseAutoencoder,
    TopKSparseAutoencoder,
)
from course_lib.sae.train import TrainConfig, train

# 32 atoms in 24 dimensions; half of the rows hold 2 of them, half 6: each atom is in 1 row of 8.
TOY = {"n_atoms": 32, "d_model": 24, "active": (2, 6), "n_rows": 8000, "n_features": 128}
TRAINING = TrainConfig(steps=1000, batch_size=128, step_size=1e-2)
ADAPTATION = {"gamma": 0.05, "every": 2}
# What each trainer asks its user to choose. For GBA: the middle of a range of targets that spans a decade.
KNOBS = {
    "topk": (1, 2, 4, 6, 8, 16, 24, 32),
    "l1": (0.001, 0.01, 0.1, 1.0, 3.0),
    "gba": (0.005, 0.02, 0.04, 0.08, 0.16, 0.28),
    "one_group": (0.01, 0.04, 0.16, 0.5),
}
SEEDS = (0, 1, 2)


def toy(seed: int) -> tuple[PlantedDictionary, torch.Tensor]:
    """Return the planted dictionary of a seed and its rows, each of length 1."""
    generator = torch.Generator().manual_seed(seed)
    planted = PlantedDictionary(TOY["n_atoms"], TOY["d_model"], generator=generator)
    drawn = planted.draw(TOY["n_rows"], active=TOY["active"], generator=generator, unit_rows=True)
    return planted, drawn.rows


def build(trainer: str, knob: float | int, *, generator: torch.Generator) -> SparseAutoencoder:
    """Return an untrained autoencoder for the toy: `trainer` is a name in KNOBS, `knob` what it asks for."""
    shape = (TOY["d_model"], TOY["n_features"])
    if trainer == "topk":
        return TopKSparseAutoencoder(*shape, k=knob, generator=generator)
    if trainer == "l1":
        return ReluSparseAutoencoder(*shape, l1=knob, generator=generator)
    half = 10**0.5 if trainer == "gba" else 1
    groups = 6 if trainer == "gba" else 1
    options = {"groups": groups, "highest": knob * half, "lowest": knob / half, **ADAPTATION}
    return GroupBiasAdaptedAutoencoder(*shape, **options, generator=generator)


def measure_point(trainer: str, knob: float | int, seed: int) -> dict[str, float]:
    """Train once; return the shares recovered at cosine 0.8 and 0.9, the missing variance and L0."""
    planted, rows = toy(seed)
    generator = torch.Generator().manual_seed(100 + seed)
    autoencoder = build(trainer, knob, generator=generator)
    train(autoencoder, rows, TRAINING, generator=generator, progress=False)
    with torch.no_grad():
        found = recovery(autoencoder.decoder_weight, planted.atoms)
        missing = autoencoder.loss(rows)["reconstruction"].item()
        active = (autoencoder.encode(rows) > 0).sum(dim=1).float().mean().item()
    shares = {str(c): found.share_matched(c) for c in (0.8, 0.9)}
    return {**shares, "fvu": round(missing, 4), "l0": round(active, 2)}


# Frequencies 20 % ... 2 %: what a unit locked on a feature does when features are not equally frequent.
SPREAD = {"highest": 0.2, "lowest": 0.02}


def measure_frequencies(seed: int, *, steps: int = 2000) -> list[tuple[float, float, float]]:
    """Return target, realised and feature frequency of every GBA unit with cosine 0.9 or more to an atom."""
    generator = torch.Generator().manual_seed(seed)
    planted = PlantedDictionary(TOY["n_atoms"], TOY["d_model"], generator=generator)
    frequencies = log_spaced_frequencies(planted.n_atoms, **SPREAD)
    drawn = planted.draw_independent(TOY["n_rows"], frequencies=frequencies, generator=generator, unit_rows=True)
    autoencoder = GroupBiasAdaptedAutoencoder(
        TOY["d_model"],
        TOY["n_features"],
        groups=6,
        highest=0.2,
        lowest=0.01,
        **ADAPTATION,
        generator=generator,
    )
    config = TrainConfig(steps=steps, batch_size=128, step_size=1e-2)
    train(autoencoder, drawn.rows, config, generator=generator, progress=False)
    with torch.no_grad():
        best, atom = cosines(autoencoder.decoder_weight, planted.atoms).max(dim=0)
        realised = (autoencoder.encode(drawn.rows) > 0).double().mean(dim=0)
    shares = (drawn.codes > 0).double().mean(dim=0)
    units = ((best >= 0.9) & (realised > 0)).nonzero()[:, 0]
    targets = autoencoder.target_frequency.double()
    found = torch.stack([targets[units], realised[units], shares[atom[units]]], dim=1)
    return [tuple(round(value, 4) for value in row) for row in found.tolist()]


RATIOS = (0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 4, 8)
# Dimension and active atoms, for 64 atoms.
RESONANCE = ((32, 2), (64, 3), (16, 3), (32, 6))


def measure_resonance(d_model: int, active: int, seed: int) -> list[float]:
    """Return the share of 64 atoms recovered at cosine 0.9 for each ratio p / f in RATIOS."""
    generator = torch.Generator().manual_seed(seed)
    planted = PlantedDictionary(64, d_model, generator=generator)
    rows = planted.draw(3000, active=active, generator=generator).rows
    start = random_neurons(512, d_model, generator=generator)
    shares = []
    for ratio in RATIOS:
        neurons = resonate(start, rows, frequency=ratio * active / 64)
        shares.append(((planted.atoms @ neurons.T).amax(dim=1) >= 0.9).double().mean().item())
    return shares


def settings() -> dict:
    """Return the settings of the trained toys, as they are stored beside what was measured."""
    training = {name: getattr(TRAINING, name) for name in ("steps", "batch_size", "step_size")}
    return {**TOY, "active": list(TOY["active"]), **training, **ADAPTATION}


# The explorer's own, smaller setting: a frame has to take milliseconds.
SMALL = {"n_atoms": 64, "n_rows": 1200, "n_neurons": 192, "steps": 5}
DIMENSIONS, ACTIVE = range(16, 65, 8), range(1, 5)
LOG_RATIOS = tuple(np.arange(-4, 3.5, 0.5).tolist())


@lru_cache(maxsize=8)
def small_setting(d_model: int, active: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return atoms, rows, which rows hold which atoms, and untrained neurons."""
    generator = torch.Generator().manual_seed(0)
    planted = PlantedDictionary(SMALL["n_atoms"], d_model, generator=generator)
    drawn = planted.draw(SMALL["n_rows"], active=active, generator=generator)
    start = random_neurons(SMALL["n_neurons"], d_model, generator=generator)
    return planted.atoms, drawn.rows, drawn.codes > 0, start


def small_run(log_ratio: float | int, d_model: int, active: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the neurons after a few resonance steps and their cosines with the atoms (atoms x neurons)."""
    atoms, rows, _, start = small_setting(d_model, active)
    frequency = 2.0**log_ratio * active / len(atoms)
    neurons = resonate(start, rows, frequency=frequency, steps=SMALL["steps"])
    return neurons, atoms @ neurons.T


def measure_explorer() -> dict[str, list[float]]:
    """Return the share recovered at cosine 0.9 for every dimension, number of active atoms and ratio."""
    return {
        f"{d_model}, {active}": [
            (small_run(ratio, d_model, active)[1].amax(dim=1) >= 0.9).double().mean().item() for ratio in LOG_RATIOS
        ]
        for d_model in DIMENSIONS
        for active in ACTIVE
    }


def frequencies() -> np.ndarray:
    """Return target, realised and feature frequency (columns) of every unit that was stored, of all seeds."""
    return np.array([unit for run in measured("feature_recovery", "frequencies") for unit in run])


def curve(trainer: str, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the knob's values and, for each (rows) and seed (columns), what was measured: a key of `measure_point`."""
    points = [measured("feature_recovery", f"curve: {trainer}, {knob}") for knob in KNOBS[trainer]]
    return np.array(KNOBS[trainer], dtype=float), np.array([[run[what] for run in runs] for runs in points])
