"""Figures, explorer, predictions and exercises of lesson 28, feature_recovery.

The curves over all settings take minutes and are measured once, by `python -m course_lib.lessons.feature_recovery`,
which writes what it found to feature_recovery.json beside this file. Figures draw those figures.
"""

import json
import math
import platform
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tqdm.auto import tqdm

from course_lib.sae.planted import PlantedDictionary, log_spaced_frequencies
from course_lib.sae.recovery import cosines, recovery
from course_lib.sae.resonance import random_neurons, resonance_band, resonate, thresholds
from course_lib.sae.sparse import (
    GroupBiasAdaptedAutoencoder,
    ReluSparseAutoencoder,
    SparseAutoencoder,
    TopKSparseAutoencoder,
)
from course_lib.sae.train import TrainConfig, train
from course_lib.teaching.exercise import Exercise, Mistake, Property
from course_lib.teaching.explorer import Explorer, Slider
from course_lib.teaching.prediction import Prediction
from course_lib.teaching.style import BLACK, BLUE, GREEN, ORANGE, RED, describe, new_figure, styled

MEASURED = Path(__file__).with_suffix(".json")

# Measurements

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
    drawn = planted.draw_independent(
        TOY["n_rows"], frequencies=frequencies, generator=generator, unit_rows=True
    )
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


def measure() -> dict:
    """Measure all that feature_recovery.json holds; about 3 minutes of one CPU thread."""
    torch.set_num_threads(1)
    result = {
        "settings": settings(),
        "seeds": SEEDS,
        "versions": {"torch": version("torch"), "python": platform.python_version()},
        "curves": {name: {} for name in KNOBS},
    }
    points = [(name, knob) for name, knobs in KNOBS.items() for knob in knobs]
    for name, knob in tqdm(points, desc="trainers"):
        result["curves"][name][str(knob)] = [measure_point(name, knob, seed) for seed in SEEDS]
    result["frequencies"] = [measure_frequencies(seed) for seed in tqdm(SEEDS, desc="frequencies")]
    result["resonance"] = {
        f"{d_model},{active}": [measure_resonance(d_model, active, seed) for seed in SEEDS]
        for d_model, active in tqdm(RESONANCE, desc="resonance")
    }
    result["explorer"] = measure_explorer()
    return result


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
        f"{d_model},{active}": [
            (small_run(ratio, d_model, active)[1].amax(dim=1) >= 0.9).double().mean().item()
            for ratio in LOG_RATIOS
        ]
        for d_model in DIMENSIONS
        for active in ACTIVE
    }


@cache
def measured() -> dict:
    """Return what was measured, as stored."""
    return json.loads(MEASURED.read_text())


# Figures


@styled
def plot_question() -> Figure:
    """Draw rows of five atoms in the plane, with one and with two of them active."""
    figure = new_figure(7.6, 4.0)
    generator = torch.Generator().manual_seed(0)
    angles = torch.tensor([10.0, 75.0, 160.0, 215.0, 290.0]).deg2rad()
    planted = PlantedDictionary(5, 2, generator=generator)
    planted.atoms = torch.stack([angles.cos(), angles.sin()], dim=1)
    for active, axes in zip((1, 2), figure.subplots(1, 2, sharex=True, sharey=True), strict=True):
        rows = planted.draw(350, active=active, generator=generator).rows
        axes.plot(*rows.T, ".", color=BLUE, markersize=4, linestyle="none", label="rows", zorder=3)
        for j, atom in enumerate(planted.atoms):
            label = "atoms" if j == 0 else "_atom"
            axes.plot([0, 1.9 * atom[0]], [0, 1.9 * atom[1]], "-", color=RED, linewidth=1.2, label=label)
        title = "one atom in each row: rays" if active == 1 else "two atoms in each row: a cloud"
        axes.set(
            xlabel="$x_1$", ylabel="$x_2$", xlim=(-2.9, 2.9), ylim=(-2.9, 2.9), aspect="equal", title=title
        )
    figure.axes[0].legend(loc="lower left")
    return describe(
        figure,
        "Rows made from five directions in the plane, more directions than dimensions. Left, with one active in each "
        "row, the rows lie on five rays that show the directions. Right, with two active, they fill wedges between "
        "the rays, and the directions can no longer be read off.",
    )


@styled
def plot_shrinkage(penalty: float = 0.6) -> Figure:
    """Draw the strength that remains against the true one: L1, jump, identity."""
    figure = new_figure(6.4, 3.9)
    axes = figure.add_subplot()
    y = np.linspace(-0.4, 1.6, 401)
    axes.plot(
        y, np.maximum(y, 0), color=BLACK, linestyle=":", linewidth=1.4, label="no penalty: $\\max(y, 0)$"
    )
    axes.plot(
        y, np.maximum(y - penalty / 2, 0), color=BLUE, linestyle="-", label="L1: $\\max(y - \\lambda/2, 0)$"
    )
    jump = np.where(y > penalty / 2, y, 0)
    axes.plot(y, jump, color=RED, linestyle="--", label="jump at $\\lambda/2$")
    axes.set(xlabel="projection $y = v \\cdot x$", ylabel="strength $f$", ylim=(-0.05, 1.65))
    axes.set_title(f"L1 takes $\\lambda/2$ from every strength ($\\lambda$ = {penalty:g})")
    axes.legend(loc="upper left")
    return describe(
        figure,
        f"The strength that is kept against the projection on a unit atom, for a penalty of {penalty:g}. Under L1 it is "
        f"0 up to {penalty / 2:g} and then stays {penalty / 2:g} below the line of no penalty. With a jump it is 0 up to "
        "the same place and full beyond it.",
    )


@styled
def plot_resonance() -> Figure:
    """Draw the share recovered against p / f, with the band of the theorem for s = 2."""
    figure = new_figure(7.2, 4.2)
    axes = figure.add_subplot()
    low, high = (edge * 32 for edge in resonance_band(64, 2))
    axes.axvspan(low, high, color="0.88", label="band of the theorem, $s$ = 2")
    looks = ((BLUE, "-", "o"), (GREEN, "-.", "s"), (ORANGE, "--", "^"), (RED, ":", "x"))
    for (d_model, active), (color, style, marker) in zip(RESONANCE, looks, strict=True):
        shares = np.array(measured()["resonance"][f"{d_model},{active}"])
        label = f"$d$ = {d_model}, $s$ = {active}"
        axes.plot(
            RATIOS, shares.mean(0), color=color, linestyle=style, marker=marker, markersize=5, label=label
        )
        axes.fill_between(RATIOS, shares.min(0), shares.max(0), color=color, alpha=0.15, linewidth=0)
    axes.set(xscale="log", xlabel="target frequency over feature frequency, $p / f$", ylim=(-0.03, 1.05))
    axes.set_xticks(
        [0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8], labels=["0.05", "0.1", "0.25", "0.5", "1", "2", "4", "8"]
    )
    axes.minorticks_off()
    axes.set(ylabel="share of atoms at cosine 0.9", title="64 atoms: neurons find them when $p$ is near $f$")
    axes.legend(loc="upper right", fontsize=8)
    best = np.array(measured()["resonance"]["32,2"]).mean(0)
    return describe(
        figure,
        "Share of 64 atoms recovered against the target frequency over the feature frequency, mean and range of three "
        f"seeds. With d = 32 and two active atoms it is {best[RATIOS.index(0.5)]:.2f} at a half, "
        f"{best[RATIOS.index(1)]:.2f} at one and {best[RATIOS.index(8)]:.2f} at eight. With three active atoms it is "
        "high for d = 64 and low for d = 16; with six active atoms nothing is recovered anywhere.",
    )


def curve(trainer: str, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the knob's values and, for each (rows) and seed (columns), what was measured: a key of `measure_point`."""
    points = measured()["curves"][trainer]
    return np.array([float(k) for k in points]), np.array(
        [[run[what] for run in runs] for runs in points.values()]
    )


def _draw_curves(axes: Axes, trainer: str, scale: float, looks: tuple) -> None:
    for what, label, color, style, marker in looks:
        knob, values = curve(trainer, what)
        axes.plot(
            knob * scale,
            values.mean(1),
            color=color,
            linestyle=style,
            marker=marker,
            markersize=4,
            label=label,
        )
        axes.fill_between(knob * scale, values.min(1), values.max(1), color=color, alpha=0.15, linewidth=0)


@styled
def plot_curves() -> Figure:
    """Draw recovery and missing variance of all trainers against what each asks its user to choose."""
    figure = new_figure(9.6, 4.0)
    left, middle, right = figure.subplots(1, 3, sharey=True)
    looks = (
        ("0.8", "cosine 0.8", BLUE, "-", "o"),
        ("0.9", "cosine 0.9", GREEN, "--", "s"),
        ("fvu", "variance missing", RED, ":", "x"),
    )
    for axes, trainer in ((left, "topk"), (middle, "l1")):
        _draw_curves(axes, trainer, 1.0, looks)
        axes.set_xscale("log")
    frequency = sum(TOY["active"]) / 2 / TOY["n_atoms"]
    _draw_curves(right, "gba", 1 / frequency, looks)
    one = ("0.9", "cosine 0.9, one group", ORANGE, "-.", "^")
    _draw_curves(right, "one_group", 1 / frequency, (one,))
    right.set_xscale("log")
    left.set(xlabel="$k$", ylabel="share of atoms, or of variance", title="TopK", ylim=(-0.03, 1.05))
    left.set_xticks([1, 2, 4, 8, 16, 32], labels=["1", "2", "4", "8", "16", "32"])
    middle.set(xlabel="$\\lambda$", ylabel="share", title="ReLU + L1")
    right.set(xlabel="middle of the targets over $f$", ylabel="share", title="GBA")
    right.set_xticks([0.05, 0.2, 1, 4], labels=["0.05", "0.2", "1", "4"])
    for axes in (left, right):
        axes.minorticks_off()
    handles = [*left.get_lines(), right.get_lines()[-1]]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=9)
    return describe(
        figure,
        "Three panels over what each trainer asks for: the share of atoms found at cosine 0.8 and 0.9, and the variance "
        "missing. TopK finds nearly all atoms for k from 4 to 8 at cosine 0.8, few at 16 and none at 32, where the "
        "least variance is missing. ReLU with L1 finds all of them at a penalty of 0.1, most at 1 and none at 0.001. Group "
        "bias adaptation finds most of them at cosine 0.8 while the middle of its targets lies between a sixth and two "
        "thirds of the features' frequency, up to three quarters at cosine 0.9, and next to none with targets well "
        "above it.",
    )


@styled
def plot_frequencies() -> Figure:
    """Draw realised against feature frequency for units that are locked on a feature, by target."""
    figure = new_figure(6.2, 4.4)
    axes = figure.add_subplot()
    found = np.array([row for run in measured()["frequencies"] for row in run])
    edges = [0.006, 0.3]
    axes.plot(edges, edges, color=BLACK, linestyle="-", linewidth=1, label="equal")
    looks = ((BLUE, "o"), (RED, "s"), (GREEN, "^"), (ORANGE, "v"), ("#CC79A7", "D"), (BLACK, "x"))
    for target, (color, marker) in zip(sorted(set(found[:, 0]), reverse=True), looks, strict=False):
        here = found[found[:, 0] == target]
        axes.plot(
            here[:, 2], here[:, 1], marker, color=color, markersize=5, linestyle="none", alpha=0.8,
            label=f"target {target:.3f}",
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlim=edges, ylim=edges)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks([0.01, 0.02, 0.05, 0.1, 0.2], labels=["0.01", "0.02", "0.05", "0.1", "0.2"])
    axes.minorticks_off()
    axes.set(xlabel="frequency of the feature", ylabel="frequency of the unit")
    axes.set_title("Units locked on a feature fire about as often as it occurs")
    axes.legend(loc="upper left", fontsize=8)
    return describe(
        figure,
        f"For {len(found)} units of three runs whose direction has cosine 0.9 or more with an atom: how often the unit "
        "fires against how often its atom occurs, both on logarithmic axes. The points lie along the diagonal, groups "
        "with lower targets further down.",
    )


# Explorer


class ResonanceExplorer(Explorer):
    """Neurons forced to fire in a share p of the rows: how many of 64 atoms they find, and why."""

    title = "Neuron resonance"
    summary = (
        "Left: the share of 64 atoms that some neuron matches with cosine 0.9, against the target frequency over the "
        "feature frequency; the band of the theorem is shaded and the point is the present setting. Right: the "
        "projections of a typical neuron, for rows that hold its atom and rows that do not, and its threshold."
    )
    controls = {  # noqa: RUF012 - shared by all instances, never changed
        "log_ratio": Slider(
            label="frequency ratio", symbol="log₂(p/f)", default=-1.0, minimum=-4.0, maximum=3.0,
            step=0.5, tooltip="How often each neuron fires, over how often an atom occurs: 0 is equal, 1 is twice",
        ),
        "d_model": Slider(
            label="dimension", symbol="d", default=40, minimum=16, maximum=64, step=8,
            tooltip="Dimension of the rows; below 64 the atoms lie in superposition",
        ),
        "active": Slider(
            label="active atoms", symbol="s", default=2, minimum=1, maximum=4, step=1,
            tooltip="How many of the 64 atoms each row holds; an atom then occurs in s / 64 of the rows",
        ),
    }  # fmt: skip
    size = (9.6, 4.2)
    bins = np.linspace(-1.2, 2.2, 35)

    def compute(self, *, log_ratio, d_model, active):
        """Run the neurons; return the curve, the band, and a typical neuron's projections."""
        # Sliders move in steps; code may ask for what lies between.
        d_model = min(DIMENSIONS, key=lambda d: abs(d - d_model))
        _, rows, holds, _ = small_setting(d_model, active)
        neurons, cosine = small_run(log_ratio, d_model, active)
        best, neuron = cosine.max(dim=1)
        typical = int(best.argsort()[len(best) // 2])
        projections = rows @ neurons[neuron[typical]]
        frequency = 2.0**log_ratio * active / len(best)
        threshold = float(thresholds(projections[:, None], frequency=frequency))
        fires, with_atom = projections > threshold, holds[:, typical]
        counts = [
            # What lies beyond the picture is counted at its edge.
            np.histogram(projections[chosen].double().clamp(*self.bins[[0, -1]].tolist()), self.bins)[0]
            / max(int(chosen.sum()), 1)
            for chosen in (~with_atom, with_atom)
        ]
        feature = active / len(best)
        return {
            "log_ratio": log_ratio,
            "frequency": frequency,
            "feature": feature,
            "d_model": d_model,
            "active": active,
            "shares": np.array(measured()["explorer"][f"{d_model},{active}"]),
            "found": int((best >= 0.9).sum()),
            "band": [edge / feature for edge in resonance_band(len(best), active)],
            "counts": counts,
            "threshold": threshold,
            "cosine": float(best[typical]),
            "purity": float(with_atom[fires].double().mean()),
        }

    def draw(self, figure):
        """Draw both axes with fixed limits."""
        share, projection = figure.subplots(1, 2)
        share.set(
            xlim=(-4.2, 3.2),
            ylim=(-0.03, 1.15),
            xlabel="$p / f$",
            ylabel="share of atoms at cosine 0.9",
            title="How many atoms are found",
        )
        ticks = [-4, -3, -2, -1, 0, 1, 2, 3]
        share.set_xticks(ticks, labels=["1/16", "1/8", "1/4", "1/2", "1", "2", "4", "8"])
        band = share.axvspan(-1, 0.5, color="0.87", label="band", ymax=0.86)
        (curve_line,) = share.plot([], [], color=BLUE, linestyle="-", label="measured")
        (point,) = share.plot([], [], "o", color=RED, markersize=9, linestyle="none", label="this setting")
        share.legend(loc="upper right", ncols=3, fontsize=8, columnspacing=1.0, handlelength=1.5)
        projection.set(
            xlim=(-1.2, 2.2),
            ylim=(0, 0.55),
            xlabel="projection $w \\cdot x$",
            ylabel="share of the rows of each kind",
            title="A typical neuron",
        )
        (without,) = projection.plot(
            [],
            [],
            color=BLACK,
            linestyle="--",
            linewidth=1.3,
            drawstyle="steps-mid",
            label="without atom",
        )
        (with_atom,) = projection.plot(
            [], [], color=BLUE, linestyle="-", linewidth=1.8, drawstyle="steps-mid", label="with atom"
        )
        (threshold,) = projection.plot([], [], color=RED, linestyle=":", linewidth=2, label="threshold")
        projection.legend(loc="upper right", ncols=3, fontsize=8, columnspacing=0.8, handlelength=1.5)
        return {
            "band": band,
            "curve": curve_line,
            "point": point,
            "without": without,
            "with": with_atom,
            "threshold": threshold,
        }

    def update(self, artists, state):
        """Move the band, the curve, the point, both histograms and the threshold."""
        low, high = np.log2(state["band"])
        # For s = 1 the band is a single point: a sliver keeps it in sight.
        artists["band"].set_x(low - 0.02)
        artists["band"].set_width(high - low + 0.04)
        artists["curve"].set_data(LOG_RATIOS, state["shares"])
        artists["point"].set_data([state["log_ratio"]], [state["found"] / SMALL["n_atoms"]])
        middles = (self.bins[1:] + self.bins[:-1]) / 2
        for name, counts in zip(("without", "with"), state["counts"], strict=True):
            artists[name].set_data(middles, counts)
        artists["threshold"].set_data([state["threshold"]] * 2, [0, 0.48])

    def words(self, state):
        """Say how many atoms are found and what makes the typical neuron fire."""
        inside = state["band"][0] - 1e-9 <= 2.0 ** state["log_ratio"] <= state["band"][1] + 1e-9
        where = "inside" if inside else "outside"
        return (
            f"An atom occurs in {state['feature']:.3f} of the rows, a neuron fires in {state['frequency']:.4f}, {where} "
            f"the band: {state['found']} of {SMALL['n_atoms']} atoms are found. The typical neuron has cosine "
            f"{state['cosine']:.2f} with its atom, which is in {100 * state['purity']:.0f}% of the rows that make it fire."
        )


# Predictions


def frequency_prediction() -> Prediction:
    """Ask how often a neuron should fire."""
    return Prediction(
        "28.P1",
        "64 atoms in 32 dimensions, two active in each row, so each atom occurs in a share $f = 1/32$ of the rows. All "
        "neurons are made to fire in a share $p$ of the rows. Which $p$ lets them find the most atoms?",
        choices={
            "p = f / 2": "A neuron that fires less often than its atom occurs takes only the rows where the atom is "
            "strong, and those are the cleanest.",
            "p = f": "Good, but not best: at p = f the threshold lies where weak rows with the atom and unlucky rows "
            "without it meet, so some wrong rows come in.",
            "p = 2f": "At least half of the rows that fire then do not hold the atom, and they pull the direction "
            "towards other atoms.",
            "p = 8f": "At least seven of eight firing rows do not hold the atom: nearly nothing is found.",
        },
        answer="p = f / 2",
        reveal=plot_resonance,
    )


def error_prediction() -> Prediction:
    """Ask what a tiny reconstruction error says about recovery."""
    return Prediction(
        "28.P2",
        "A TopK autoencoder with $k = 32$ is trained on rows of 24 dimensions that hold 2 or 6 of 32 atoms. Less than "
        "0.1% of the variance is missing from its reconstructions. How many of the atoms are among its directions?",
        choices={
            "Nearly all": "That is what a small error seems to promise. But 32 active units in 24 dimensions rebuild "
            "anything, so nothing in the loss asks for the atoms.",
            "About half": "The share is far lower: the loss has no reason to prefer atoms at all when k exceeds the "
            "number of dimensions.",
            "Almost none": "32 active units in 24 dimensions rebuild every row whatever their directions: the loss is "
            "satisfied long before it has found an atom.",
        },
        answer="Almost none",
        reveal=plot_curves,
    )


# Exercises


def _uniform(generator: torch.Generator, low: float, high: float, digits: int = 2) -> float:
    return round(low + (high - low) * float(torch.rand((), generator=generator)), digits)


def _near(value: float, *, within: float):
    """Return a test of an answer: whether it is `value` up to `within`."""
    return lambda inputs, answer: abs(float(answer) - value) <= within


_EDGE = Exercise(
    id="28.1",
    title="The upper edge of the band",
    kind="value",
    difficulty=1,
    minutes=3,
    prompt="There are $n = 64$ atoms, and $s = 3$ are active in each row. What is the upper edge $n^{-(1 + 1/s)/2}$ of "
    "the band of target frequencies in (28.13)? Give it to four decimals.",
    draw=lambda generator: {"seed": int(torch.randint(1000, (), generator=generator))},
    reference=64 ** (-2 / 3),
    properties=(
        Property(
            "The sixth power of the edge should be 64⁻⁴, since the exponent is -(1 + 1/3)/2 = -4/6.",
            lambda inputs, edge: 0 < float(edge) < 1 and abs(6 * math.log2(float(edge)) + 24) < 0.02,
        ),
    ),
    hints=(
        "Work out the exponent first: 1 + 1/3 is 4/3.",
        "Half of 4/3 is 2/3. Now take 64 to the power of minus that.",
        "64 is 4 cubed, so its cube root is a whole number. Square that and take the reciprocal.",
    ),
    mistakes=(
        Mistake("the feature frequency", 3 / 64, "That is f = s/n, how often an atom occurs. The edge is a power of n.",
                _near(3 / 64, within=4e-4)),
        Mistake("s without end", 0.125, "That is n^(-1/2), what the edge tends to for many active atoms. Here 1/s = 1/3.",
                _near(0.125, within=4e-4)),
        Mistake("the lower edge", 1 / 64, "That is 1/n, the lower edge of the band.", _near(1 / 64, within=2e-4)),
        Mistake("forgot the half", 64 ** (-4 / 3), "You left out the division by 2 in the exponent.",
                _near(64 ** (-4 / 3), within=1e-4)),
    ),
)  # fmt: skip

_BIAS = Exercise(
    id="28.2",
    title="A bias for a frequency",
    kind="value",
    difficulty=1,
    minutes=4,
    prompt="The projections $w \\cdot x$ of a neuron are distributed as $N(0, 1)$, and it fires where "
    "$w \\cdot x + b > 0$. Which bias $b$ makes it fire in 2.275% of the rows?",
    draw=lambda generator: {"seed": int(torch.randint(1000, (), generator=generator))},
    reference=-2.0,
    properties=(
        Property(
            "With your bias a standard normal number plus b is above 0 with another probability than 2.275%.",
            lambda inputs, b: abs(0.5 * math.erfc(-float(b) / math.sqrt(2)) - 0.02275) < 3e-4,
        ),
    ),
    hints=(
        "The neuron fires where w . x > -b. So -b is a quantile of the standard normal distribution.",
        "Firing is one-sided: only large projections count, not very negative ones.",
        "How many standard deviations leave 2.275% above them? (A table says 97.725% lie below.)",
    ),
    mistakes=(
        Mistake("the sign", 2.0, "With b = +2 it fires in 97.725% of the rows: a bias that makes firing rare is negative.",
                _near(2.0, within=0.02)),
        Mistake("two sides", -2.28, "You split 2.275% over both tails. A ReLU or a jump fires on one side only.",
                _near(-2.2776, within=0.02)),
        Mistake("two sides and the sign", 2.28, "Two things: firing is one-sided, and a bias that makes firing rare is "
                "negative.", _near(2.2776, within=0.02)),
        Mistake("the share itself", -0.02275, "That is the share. The bias is the quantile that belongs to it.",
                lambda inputs, b: abs(abs(float(b)) - 0.02275) < 1e-3),
    ),
)  # fmt: skip


def l1_strength(projection, penalty):
    """Return the minimiser of (projection - f)^2 + penalty f over f >= 0."""
    return max(projection - penalty / 2, 0.0)


def _is_lowest(inputs: Mapping, f) -> bool:
    y, penalty = inputs["projection"], inputs["penalty"]

    def objective(value: float) -> float:
        return (y - value) ** 2 + penalty * value

    others = np.linspace(0, 3, 601)
    return bool(float(f) >= 0 and objective(float(f)) <= min(objective(other) for other in others) + 1e-9)


_STRENGTH = Exercise(
    id="28.3",
    title="What L1 leaves",
    kind="function",
    difficulty=1,
    minutes=6,
    prompt="Write `l1_strength(projection, penalty)`: the $f \\ge 0$ that minimises "
    "$\\lVert x - f v\\rVert^2 + \\lambda f$ for a unit vector $v$. `projection` is $v \\cdot x$, any number; `penalty` is "
    "$\\lambda > 0$. Return a number.",
    draw=lambda generator: {
        "projection": _uniform(generator, -0.8, 1.8),
        "penalty": _uniform(generator, 0.2, 1.6),
    },
    reference=l1_strength,
    properties=(Property("Another strength of 0 or more has a lower loss than yours.", _is_lowest),),
    hints=(
        "Write the loss as a parabola in f: ‖x‖² - 2f(v . x) + f² + λf.",
        "Set its derivative in f to zero. What if the f that you find is negative?",
        "The derivative is 2f - 2(v . x) + λ. Where the root is below 0 the parabola rises on all of f ≥ 0.",
    ),
    mistakes=(
        Mistake("the other loss", lambda y, p: max(y - p, 0.0),
                "You subtracted λ. That belongs to the loss with 1/2 in front of the square; here it is λ/2."),
        Mistake("negative strengths", lambda y, p: y - p / 2, "Your strength can be negative, and f ≥ 0 was asked."),
        Mistake("kept it whole", lambda y, p: y if y > p / 2 else 0.0,
                "You cut off what is small and kept the rest whole: that is a jump. L1 takes λ/2 from the large ones too."),
        Mistake("no penalty", lambda y, p: max(y, 0.0), "That ignores the penalty."),
        Mistake("both signs", lambda y, p: math.copysign(max(abs(y) - p / 2, 0.0), y),
                "That is soft thresholding for codes of both signs. Here f ≥ 0: a negative projection gives 0."),
    ),
)  # fmt: skip


def adapt(bias, frequency, largest, target, gamma):
    """Return the biases of one group after one adaptation."""
    alive = largest > 0
    mean = largest[alive].mean() if alive.any() else torch.zeros((), dtype=largest.dtype)
    lowered = (bias - gamma * largest).clamp(min=-1)
    raised = (bias + gamma * mean).clamp(max=0)
    return torch.where(frequency > target, lowered, torch.where(frequency == 0, raised, bias))


def _draw_adaptation(generator: torch.Generator) -> dict:
    units = 6
    frequency = torch.rand(units, generator=generator, dtype=torch.float64).mul(0.3).round(decimals=2) + 0.01
    dead = torch.rand(units, generator=generator) < 0.35
    dead[:3] = torch.tensor([True, False, False])
    largest = 0.2 + torch.rand(units, generator=generator, dtype=torch.float64).round(decimals=2)
    bias = -torch.rand(units, generator=generator, dtype=torch.float64).round(decimals=2)
    # All kinds have to be met: a dead unit near 0, one that fires too often near -1, and one that may stay.
    bias[0] = -0.01
    bias[1], frequency[1] = -0.99, 0.4
    frequency[2] = 0.05
    return {
        "bias": bias,
        "frequency": torch.where(dead, 0.0, frequency),
        "largest": torch.where(dead, 0.0, largest),
        "target": 0.125,
        "gamma": _uniform(generator, 0.05, 0.2),
    }


def _adapted_one_by_one(inputs: Mapping, output: torch.Tensor) -> bool:
    q, r, b = inputs["frequency"].tolist(), inputs["largest"].tolist(), inputs["bias"].tolist()
    firing = [value for value in r if value > 0]
    for m, found in enumerate(output.tolist()):
        if q[m] > inputs["target"]:
            expected = max(b[m] - inputs["gamma"] * r[m], -1.0)
        elif q[m] == 0:
            expected = min(b[m] + inputs["gamma"] * sum(firing) / len(firing), 0.0)
        else:
            expected = b[m]
        if not math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-12):
            return False
    return True


def _adapt_with(*, low=-1.0, raised=None, mean=None, often=None, seldom=None):
    """Return an adaptation in which one part is done another way."""

    def wrong(bias, frequency, largest, target, gamma):
        group_mean = mean(largest) if mean else largest[largest > 0].mean()
        lowered = often(bias, largest, gamma) if often else (bias - gamma * largest).clamp(min=low)
        lifted = raised(bias + gamma * group_mean) if raised else (bias + gamma * group_mean).clamp(max=0)
        silent = seldom(frequency, target) if seldom else frequency == 0
        return torch.where(frequency > target, lowered, torch.where(silent, lifted, bias))

    return wrong


_ADAPT = Exercise(
    id="28.4",
    title="One adaptation",
    kind="function",
    difficulty=2,
    minutes=12,
    prompt="Write `adapt(bias, frequency, largest, target, gamma)`: the update (28.9) for the units of one group. `bias`, "
    "`frequency` and `largest` are $b$, $q$ and $r$, float64 tensors with one entry a unit; a dead unit has frequency 0 "
    "and largest 0. `target` and `gamma` are the numbers $p$ and $\\gamma$. At least one unit is alive. Return the new "
    "biases.",
    draw=_draw_adaptation,
    reference=adapt,
    properties=(
        Property("Going through the units one by one by (28.9) gives other biases.", _adapted_one_by_one),
    ),
    hints=(
        "There are three kinds of units: those that fire too often, the dead, and all others. Which of them move?",
        "The mean of the largest values is over the units that fired at all: `largest[largest > 0].mean()`.",
        "torch.where can be nested. `clamp(min=-1)` is a maximum with -1; which clamp is a minimum with 0?",
    ),
    mistakes=(
        Mistake("the printed maximum", _adapt_with(raised=lambda b: b.clamp(min=0)),
                "You took the maximum with 0, as one page prints it. Every dead unit then gets a bias of 0 or more at "
                "once and fires in half of the rows."),
        Mistake("mean over all", _adapt_with(mean=lambda r: r.mean()),
                "Your mean of the largest values counts the dead units as 0. It is over the units that fired."),
        Mistake("no floor", _adapt_with(low=-math.inf),
                "A bias of yours is below -1. Rows of length 1 cannot wake a unit there."),
        Mistake("raised all below the target", _adapt_with(seldom=lambda q, p: q <= p),
                "You raised every unit that fires less often than the target. Only dead ones are raised: a unit may fire "
                "as seldom as its feature does."),
        Mistake("the wrong way", _adapt_with(often=lambda b, r, g: (b + g * r).clamp(max=0)),
                "A unit that fires too often has to be made rarer: its bias goes down."),
    ),
)  # fmt: skip


def _direction(degrees) -> np.ndarray:
    return np.array([math.cos(math.radians(float(degrees))), math.sin(math.radians(float(degrees)))])


def _rebuilt(c: Mapping) -> np.ndarray:
    return sum(float(c[f"strength_{i}"]) * _direction(c[f"angle_{i}"]) for i in (1, 2))


def _exact(c: Mapping) -> bool:
    return bool(np.abs(_rebuilt(c) - [1.0, 0.0]).max() < 1e-3)


def _positive(c: Mapping) -> bool:
    return float(c["strength_1"]) > 0 and float(c["strength_2"]) > 0


def _unlike(c: Mapping) -> bool:
    return bool(max(_direction(c["angle_1"])[0], _direction(c["angle_2"])[0]) < 0.8)


_FLAW = Exercise(
    id="28.5",
    title="Perfect, and wrong",
    kind="flaw",
    difficulty=2,
    minutes=8,
    prompt="Somebody says: \"A TopK autoencoder that rebuilds all rows exactly has found the atoms.\" Let all rows be "
    "multiples of one atom, $v = (1, 0)$, and let $k = 2$. Give a counterexample: a dictionary with the angles `angle_1` "
    "and `angle_2` (in degrees, from $v$) of two unit vectors, and `strength_1` and `strength_2`, both above 0, that "
    "rebuild $v$ itself to three decimals, while neither unit has a cosine of 0.8 or more with $v$.",
    draw=lambda generator: {"seed": int(torch.randint(1000, (), generator=generator))},
    reference={"angle_1": 60.0, "angle_2": -60.0, "strength_1": 1.0, "strength_2": 1.0},
    properties=(
        Property("Both strengths should be above 0.", lambda inputs, c: _positive(c)),
        Property("Your two units do not rebuild (1, 0) to three decimals.", lambda inputs, c: _exact(c)),
        Property("One of your units has a cosine of 0.8 or more with the atom.", lambda inputs, c: _unlike(c)),
    ),
    hints=(
        "Let the two units lie on either side of the atom, so that what they write across it cancels.",
        "With angles a and -a and one strength f for both, the sum is (2f cos a, 0).",
        "The cosine with the atom is cos a: take a well above 37 degrees, and f = 1/(2 cos a).",
    ),
    mistakes=(
        Mistake("too close", {"angle_1": 30.0, "angle_2": -30.0, "strength_1": 3**-0.5, "strength_2": 3**-0.5},
                "It rebuilds the atom, but a unit of yours has a cosine of 0.8 or more with it and counts as a find.",
                lambda i, c: _positive(c) and _exact(c) and not _unlike(c)),
        Mistake("a negative strength", {"angle_1": 60.0, "angle_2": 120.0, "strength_1": 1.0, "strength_2": -1.0},
                "A strength is 0 or negative. Units add, they never subtract: both must be above 0.",
                lambda i, c: not _positive(c)),
        Mistake("wrong length", {"angle_1": 60.0, "angle_2": -60.0, "strength_1": 0.5, "strength_2": 0.5},
                "Your sum points along the atom but has another length: scale both strengths.",
                lambda i, c: _positive(c) and not _exact(c) and abs(_rebuilt(c)[1]) < 1e-3 < _rebuilt(c)[0]),
        Mistake("no way forward", {"angle_1": 120.0, "angle_2": -120.0, "strength_1": 1.0, "strength_2": 1.0},
                "Your sum is zero or points away from the atom, and no strengths can mend that: at least one unit has to "
                "have an angle below 90 degrees with it.",
                lambda i, c: _positive(c) and abs(_rebuilt(c)[1]) < 1e-3 and _rebuilt(c)[0] <= 1e-3),
        Mistake("does not cancel", {"angle_1": 60.0, "angle_2": -50.0, "strength_1": 1.0, "strength_2": 1.0},
                "What your two units write across the atom does not cancel.",
                lambda i, c: _positive(c) and abs(_rebuilt(c)[1]) >= 1e-3),
    ),
)  # fmt: skip

EXERCISES = {e.id: e for e in (_EDGE, _BIAS, _STRENGTH, _ADAPT, _FLAW)}

FIGURES = {
    "question": plot_question,
    "shrinkage": plot_shrinkage,
    "resonance": plot_resonance,
    "curves": plot_curves,
    "frequencies": plot_frequencies,
    "explorer": lambda: ResonanceExplorer().strip(),
}

if __name__ == "__main__":
    MEASURED.write_text(json.dumps(measure(), indent=1) + "\n")
