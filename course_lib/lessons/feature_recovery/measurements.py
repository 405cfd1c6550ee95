"""What lesson 36 draws: the settings, and how one point is measured.

All points take minutes: `make bench feature_choice` trains the autoencoders again, `make bench feature_units` those whose
units are looked at one by one, `make bench feature_recovery` the neurons of the appendix.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from course_lib.measured import measured
from course_lib.sae.planted import PlantedDictionary
from course_lib.sae.recovery import assign, cosines, recovery
from course_lib.sae.resonance import random_neurons, resonate
from course_lib.sae.sparse import (
    GroupBiasAdaptedAutoencoder,
    ReluSparseAutoencoder,
    SparseAutoencoder,
    TopKSparseAutoencoder,
)
from course_lib.sae.train import TrainConfig, train

# The toy of the page: 32 atoms in 24 dimensions; half of the rows hold 2 of them, half 6.
TOY = {"n_atoms": 32, "d_model": 24, "active": (2, 6), "n_rows": 8000, "n_features": 128}
TRAINING = TrainConfig(steps=1000, batch_size=128, step_size=1e-2)
ADAPTATION = {"gamma": 0.05, "every": 2}
# Three kinds of rows: atoms, dimensions, and how many atoms a row holds.
ROWS = {"2 or 6 of 32": (32, 24, (2, 6)), "3 of 32": (32, 24, (3,)), "2 or 4 of 64": (64, 32, (2, 4))}
# What each trainer asks its user to choose. For GBA: the middle of a range of targets that spans a decade.
BARE = "TopK, constant 0"
KNOBS = {
    "TopK": (2, 4, 6, 8, 12, 16, 24, 32),
    BARE: (2, 4, 6, 8, 12, 16, 24, 32),
    "L1": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    "GBA": (0.01, 0.04, 0.08, 0.16),
}
# The page trains on dictionary 0; what is stored was measured on five others.
DICTIONARIES = (1, 2, 3, 4, 5)
HELD_OUT = 2000


class Toy(NamedTuple):
    """A planted dictionary, rows of length 1 to train on, fresh ones, and how many atoms each of these holds."""

    planted: PlantedDictionary
    rows: torch.Tensor
    held_out: torch.Tensor
    counts: torch.Tensor


@lru_cache(maxsize=4)
def toy(dictionary: int, kind: str = "2 or 6 of 32") -> Toy:
    """Return the toy of a dictionary, by its number and the kind of its rows."""
    n_atoms, d_model, active = ROWS[kind]
    generator = torch.Generator().manual_seed(dictionary)
    planted = PlantedDictionary(n_atoms, d_model, generator=generator)
    drawn, fresh = (
        planted.draw(n, active=active, generator=generator, unit_rows=True) for n in (TOY["n_rows"], HELD_OUT)
    )
    return Toy(planted, drawn.rows, fresh.rows, (fresh.codes > 0).sum(dim=1))


def build(trainer: str, knob: float | int, *, d_model: int, generator: torch.Generator) -> SparseAutoencoder:
    """Return an untrained autoencoder with 128 units: `trainer` is a name in KNOBS, `knob` what it asks for."""
    shape = (d_model, TOY["n_features"])
    if trainer in ("TopK", BARE):
        autoencoder = TopKSparseAutoencoder(*shape, k=knob, generator=generator)
        autoencoder.decoder_bias.requires_grad_(trainer == "TopK")  # it starts at 0
        return autoencoder
    if trainer == "L1":
        return ReluSparseAutoencoder(*shape, l1=knob, generator=generator)
    options = {"groups": 6, "highest": knob * 10**0.5, "lowest": knob / 10**0.5, **ADAPTATION}
    return GroupBiasAdaptedAutoencoder(*shape, **options, generator=generator)


@lru_cache(maxsize=64)
def trained(
    trainer: str, knob: float | int, seed: int, *, dictionary: int = 0, kind: str = "2 or 6 of 32"
) -> SparseAutoencoder:
    """Return an autoencoder after 1,000 steps on a toy's rows; its start and its batches are those of `seed`."""
    data = toy(dictionary, kind)
    generator = torch.Generator().manual_seed(100 + 10 * dictionary + seed)
    autoencoder = build(trainer, knob, d_model=data.planted.d_model, generator=generator)
    train(autoencoder, data.rows, TRAINING, generator=generator, progress=False)
    return autoencoder


def pair_agreement(one: torch.Tensor, other: torch.Tensor, weights: torch.Tensor | None = None) -> float:
    """Return the mean cosine of the columns of two decoders, each paired with one of the other.

    `weights`, one for each column of `one`, weigh the mean.
    """
    table = cosines(one, other.T)  # a row for each column of `other`
    if not min(table.shape):
        return 0.0
    rows, columns = assign(table)
    weights = torch.ones(len(columns)) if weights is None else weights[columns]
    return ((table[rows, columns] * weights).sum() / weights.sum()).item()


def without(columns: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """Return columns less what each of them has along a direction."""
    unit = direction / direction.norm()
    return columns - torch.outer(unit, unit @ columns)


def share_found(columns: torch.Tensor, data: Toy, out: torch.Tensor | None = None) -> float:
    """Return the share of the atoms that have a column of their own at cosine 0.9.

    The direction `out` is taken out of columns and atoms before they are compared.
    """
    atoms = data.planted.atoms
    if out is not None:
        columns, atoms = without(columns, out), without(atoms.T, out).T
        atoms = atoms / atoms.norm(dim=1, keepdim=True)
    return recovery(columns, atoms).share_matched(0.9)


def describe_pair(pair: list[SparseAutoencoder], data: Toy) -> dict[str, float]:
    """Return what two trainings show: the first two without the truth, the others about the units and the atoms.

    `missing`: share of the variance of fresh rows; `agreement`, of the units that fire in fresh rows; `all`, of all
    units, `weighted` by what those of the first write; `l0`: active units in a row; `dead` units; `copies`: share of the
    units with another at cosine 0.9; `0.8` and `0.9`: share of the atoms that have a unit of their own at that cosine,
    `mean out` at 0.9 once the direction of the mean row is taken out. Means over both, but for the agreement.
    """
    seen, firing = [], []
    mean = data.rows.mean(dim=0)
    with torch.no_grad():
        for autoencoder in pair:
            weight = autoencoder.decoder_weight.detach()
            code = autoencoder.encode(data.held_out)
            fires = (code > 0).any(dim=0)
            live = weight[:, fires]
            firing.append(live)
            found = recovery(weight, data.planted.atoms)
            seen.append(
                {
                    "missing": autoencoder.loss(data.held_out)["reconstruction"].item(),
                    "l0": (code > 0).sum(dim=1).double().mean().item(),
                    "dead": int((~fires).sum()),
                    "copies": share_copied(live),
                    "0.8": found.share_matched(0.8),
                    "0.9": found.share_matched(0.9),
                    "mean out": share_found(weight, data, out=mean),
                }
            )
    means = {name: sum(one[name] for one in seen) / len(seen) for name in seen[0]}
    whole = pair_agreement(*(one.decoder_weight.detach() for one in pair))
    return {name: round(value, 4) for name, value in means.items()} | {
        "agreement": round(pair_agreement(*firing), 4),
        "weighted": round(pair_agreement(*firing, weights=written(pair[0], data)[1]), 4),
        "all": round(whole, 4),
    }


def share_copied(columns: torch.Tensor) -> float:
    """Return the share of the columns that have another one at cosine 0.9 or more."""
    if columns.shape[1] < 2:
        return 0.0
    table = cosines(columns, columns.T).fill_diagonal_(-1)
    return (table.amax(dim=1) >= 0.9).double().mean().item()


def written(autoencoder: SparseAutoencoder, data: Toy) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the directions of the units that fire in fresh rows, and the sum of squares that each writes there."""
    with torch.no_grad():
        weight, code = autoencoder.decoder_weight.detach(), autoencoder.encode(data.held_out)
        fires = (code > 0).any(dim=0)
        return weight[:, fires], (code.square().sum(dim=0) * weight.square().sum(dim=0))[fires]


def found_twice(one: torch.Tensor, other: torch.Tensor, cosine: float = 0.9) -> torch.Tensor:
    """Return the columns of a decoder that have a partner at that cosine in another one, each column used once."""
    table = cosines(other, one.T)
    rows, columns = assign(table)
    return one[:, rows[table[rows, columns] >= cosine]]


def atoms_among(columns: torch.Tensor, data: Toy, out: torch.Tensor | None = None) -> int:
    """Return how many atoms have one of these columns for their own, as `share_found` counts."""
    if not columns.shape[1]:
        return 0
    return round(share_found(columns, data, out) * data.planted.n_atoms)


def trusted(pair: list[SparseAutoencoder], data: Toy) -> dict[str, int]:
    """Return how many units of the first autoencoder one might trust without the truth, and how many atoms they hold.

    `fire`: all that fire in fresh rows; `twice`: with a partner at cosine 0.9 in the other; `most`: as many as these, those
    that write the most (in squares) in fresh rows; `nine tenths`: the fewest that write nine tenths of all. `atoms` among
    them at cosine 0.9, and `mean out` once the direction of the mean row is taken out.
    """
    (one, energy), (other, _) = (written(autoencoder, data) for autoencoder in pair)
    order, twice = energy.argsort(descending=True), found_twice(one, other)
    enough = int((energy[order].cumsum(0) < 0.9 * energy.sum()).sum()) + 1
    kept = {"fire": one, "twice": twice, "most": one[:, order[: twice.shape[1]]], "nine tenths": one[:, order[:enough]]}
    counts = {name: columns.shape[1] for name, columns in kept.items()}
    mean = data.rows.mean(dim=0)
    for name, columns in kept.items():
        counts[f"{name}, atoms"] = atoms_among(columns, data)
        counts[f"{name}, mean out"] = atoms_among(columns, data, out=mean)
    return counts


def refitted(autoencoder: SparseAutoencoder, data: Toy) -> dict[str, float]:
    """Return what an autoencoder leaves of fresh rows, by the atoms in a row, before and after refitting its strengths.

    Refitted: the best strengths, of any sign, for the units that are active in the row; directions and constant stay.
    """
    with torch.no_grad():
        code = autoencoder.encode(data.held_out)
        constant = autoencoder.decode(torch.zeros_like(code[:1]))
        weight = (autoencoder.decode(torch.eye(code.shape[1])) - constant).T.double()
        rest = (data.held_out - constant).double()
        on = (code > 0).double()
        gram, ridge = weight.T @ weight, 1e-8 * torch.eye(weight.shape[1]).double()
        best = torch.cat(  # a system for each row: some rows at a time
            [
                torch.linalg.solve(gram * some[:, :, None] * some[:, None, :] + ridge, right[:, :, None])[:, :, 0]
                for some, right in zip(on.split(256), ((rest @ weight) * on).split(256), strict=True)
            ]
        )
        variance = (data.held_out - data.held_out.mean(dim=0)).double().square().sum(dim=1)
        shown = {"active": on.sum(dim=1).mean().item()}
        for name, strengths in (("", code.double()), ("refitted, ", best)):
            error = (strengths @ weight.T - rest).square().sum(dim=1)
            shown[f"{name}all"] = (error.sum() / variance.sum()).item()
            for count in data.counts.unique().tolist():
                these = data.counts == count
                shown[f"{name}{count}"] = (error[these].sum() / variance[these].sum()).item()
    return {name: round(value, 4) for name, value in shown.items()}


# The k whose units are looked at one by one.
LOOKED_AT = (2, 4, 6, 8, 16)


def measure_units(k: int, dictionary: int) -> dict[str, int]:
    """Train TopK twice on the same rows from different starts; return how many units one might trust."""
    return trusted([trained("TopK", k, seed, dictionary=dictionary) for seed in (0, 1)], toy(dictionary))


def looked_at(k: int) -> dict[str, float]:
    """Return the stored means of `trusted` over five dictionaries."""
    runs = measured("feature_units", f"TopK, {k}")
    return {name: sum(run[name] for run in runs) / len(runs) for name in runs[0]}


def measure_choice(kind: str, trainer: str, knob: float | int, dictionary: int) -> dict[str, float]:
    """Train twice on the same rows from different starts; return what both show."""
    pair = [trained(trainer, knob, seed, dictionary=dictionary, kind=kind) for seed in (0, 1)]
    return describe_pair(pair, toy(dictionary, kind))


def portrait(autoencoder: SparseAutoencoder, data: Toy, most: int = 8) -> dict:
    """Return which atoms an autoencoder has, and which units write an atom in a row that holds it alone.

    `missing` on fresh rows; `dead` units, which never fire there; `cosine` of each atom with its own unit; for each atom
    the `strength` and the `angle` in degrees of the `most` strongest units, and the `share` that the strongest one writes
    of what all units write along the atom (the constant is left out).
    """
    with torch.no_grad():
        weight, atoms = autoencoder.decoder_weight.detach(), data.planted.atoms
        table = cosines(weight, atoms)
        written = autoencoder.encode(atoms) * weight.norm(dim=0)
        order = written.argsort(dim=1, descending=True)
        strength, cosine = written.gather(1, order), table.gather(1, order)
        along = strength * cosine
        fires = (autoencoder.encode(data.held_out) > 0).any(dim=0)
        shown = {
            "cosine": table[assign(table)],
            "share": along[:, 0] / along.sum(dim=1),
            "strength": strength[:, :most],
            "angle": cosine[:, :most].clamp(-1, 1).arccos().rad2deg(),
        }
        missing = autoencoder.loss(data.held_out)["reconstruction"].item()
    rounded = {name: np.round(value.double().numpy(), 3) for name, value in shown.items()}
    return {"missing": round(missing, 5), "dead": int((~fires).sum()), **rounded}


def measure_page(k: int) -> dict:
    """Return the portrait of the page's autoencoder of that k, in what JSON holds."""
    found = portrait(trained("TopK", k, 0), toy(0))
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in found.items()}


@lru_cache(maxsize=16)
def seen(k: int) -> dict:
    """Return the stored portrait of the page's autoencoder of that k (dictionary 0)."""
    found = measured("feature_choice", f"page, {k}")
    return {name: np.array(value) if isinstance(value, list) else value for name, value in found.items()}


def measure_baselines(kind: str, dictionary: int) -> dict[str, float]:
    """Return the share of atoms at cosine 0.9 among 128 untrained units and among 128 rows, and what untrained agree."""
    data = toy(dictionary, kind)
    blank = [build("TopK", 6, d_model=data.planted.d_model, generator=torch.Generator().manual_seed(s)) for s in (0, 1)]
    decoders = [one.decoder_weight.detach() for one in blank]
    rows = data.rows[: TOY["n_features"]].T
    return {
        "untrained": recovery(decoders[0], data.planted.atoms).share_matched(0.9),
        "rows": recovery(rows, data.planted.atoms).share_matched(0.9),
        "agreement": round(pair_agreement(*decoders), 4),
    }


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
    """Return the settings of the trained toy, as they are stored beside what was measured."""
    training = {name: getattr(TRAINING, name) for name in ("steps", "batch_size", "step_size")}
    return {**TOY, "active": list(TOY["active"]), **training, **ADAPTATION}


def stored(trainer: str, what: str, kind: str = "2 or 6 of 32") -> tuple[np.ndarray, np.ndarray]:
    """Return the settings, and for each (rows) and dictionary (columns) what `describe_pair` kept under that name."""
    points = [measured("feature_choice", f"{kind}, {trainer}, {knob}") for knob in KNOBS[trainer]]
    return np.array(KNOBS[trainer], dtype=float), np.array([[run[what] for run in runs] for runs in points])


def baseline(what: str, kind: str = "2 or 6 of 32") -> np.ndarray:
    """Return a figure of `measure_baselines` for each dictionary."""
    return np.array([run[what] for run in measured("feature_choice", f"{kind}, baselines")])


def elbow(missing: np.ndarray, settings: np.ndarray) -> int:
    """Return the place that lies farthest below the straight line between the ends of the error's curve."""
    along = (settings - settings[0]) / (settings[-1] - settings[0])
    return int((missing[0] + along * (missing[-1] - missing[0]) - missing).argmax())


# How one might choose a setting: from the settings, from what is missing, from how far two trainings agree, and from that
# weighed by what the units write; returns a place.
CHOOSERS = {
    "least error": lambda knobs, missing, agreement, weighted: int(missing.argmin()),
    "sparsest setting": lambda knobs, missing, agreement, weighted: int(missing.argmax()),  # it misses the most
    "elbow of the error": lambda knobs, missing, agreement, weighted: elbow(missing, knobs),
    "elbow, settings on a log scale": lambda knobs, missing, agreement, weighted: elbow(missing, np.log(knobs)),
    "most agreement": lambda knobs, missing, agreement, weighted: int(agreement.argmax()),
    "explained × agreement (36.5)": lambda knobs, missing, agreement, weighted: int(
        ((1 - missing) * agreement).argmax()
    ),
    "(36.5), weighed by what units write": lambda knobs, missing, agreement, weighted: int(
        ((1 - missing) * weighted).argmax()
    ),
}


def chosen(
    chooser: str, trainer: str = "TopK", kind: str = "2 or 6 of 32", least: float | int = 0, most: float | int = 99
) -> list[tuple[float, float]]:
    """Return, for each dictionary, the setting that a chooser takes and the share of atoms found there at cosine 0.9.

    It may take settings from `least` to `most`.
    """
    knobs, missing = stored(trainer, "missing", kind)
    allowed = (knobs >= least) & (knobs <= most)
    agreement, weighted, found = (stored(trainer, what, kind)[1][allowed] for what in ("agreement", "weighted", "0.9"))
    knobs, missing = knobs[allowed], missing[allowed]
    signs = zip(missing.T, agreement.T, weighted.T, strict=True)
    places = [CHOOSERS[chooser](knobs, *each) for each in signs]
    return [(float(knobs[place]), float(found[place, run])) for run, place in enumerate(places)]


# What a chooser is asked: the title of the column, trainer, rows, and the least and largest setting on the list.
QUESTIONS = {
    "2 or 6 of 32": ("TopK", "2 or 6 of 32", 0, 99),
    "3 of 32": ("TopK", "3 of 32", 0, 99),
    "L1": ("L1", "2 or 6 of 32", 0, 99),
    "constant 0: 2 or 6": (BARE, "2 or 6 of 32", 0, 99),
    "constant 0: 3": (BARE, "3 of 32", 0, 99),
    "constant 0: 2 or 6, $k$ from 6 on": (BARE, "2 or 6 of 32", 6, 99),
}
