"""Figures, explorer and predictions of lesson 28, feature_recovery."""

import numpy as np
import torch
from matplotlib.axes import Axes

from course_lib.lessons.feature_recovery.contents import lesson
from course_lib.lessons.feature_recovery.measurements import (
    DIMENSIONS,
    LOG_RATIOS,
    RATIOS,
    RESONANCE,
    SMALL,
    TOY,
    curve,
    frequencies,
    small_run,
    small_setting,
)
from course_lib.measured import measured
from course_lib.sae.planted import PlantedDictionary
from course_lib.sae.resonance import resonance_band, thresholds
from course_lib.teaching import Explorer, Slider, lines, panels
from course_lib.teaching.style import BLACK, BLUE, RED


@lesson.figure(
    ["one atom in each row: rays", "two atoms in each row: a cloud"],
    "$x_1$",
    "$x_2$",
    grid=(1, 2),
    subplots={"sharex": True, "sharey": True},
    legend=["lower left", None],
    xlim=(-2.9, 2.9),
    ylim=(-2.9, 2.9),
    aspect="equal",
)
def plot_question(*axes):
    """Draw rows of five atoms in the plane, with one and with two of them active."""
    generator = torch.Generator().manual_seed(0)
    angles = torch.tensor([10.0, 75.0, 160.0, 215.0, 290.0]).deg2rad()
    planted = PlantedDictionary(5, 2, generator=generator)
    planted.atoms = torch.stack([angles.cos(), angles.sin()], dim=1)
    for active, panel in enumerate(axes, start=1):
        rows = planted.draw(350, active=active, generator=generator).rows
        panel.plot(*rows.T, ".", color=BLUE, markersize=4, label="rows", zorder=3)
        for j, atom in enumerate(planted.atoms):
            label = "atoms" if j == 0 else "_atom"
            panel.plot([0, 1.9 * atom[0]], [0, 1.9 * atom[1]], "-", color=RED, linewidth=1.2, label=label)
    return (
        "Rows made from five directions in the plane, more directions than dimensions. Left, with one active in each "
        "row, the rows lie on five rays that show the directions. Right, with two active, they fill wedges between "
        "the rays, and the directions can no longer be read off."
    )


@lesson.figure(None, "projection $y = v \\cdot x$", "strength $f$", legend="upper left", ylim=(-0.05, 1.65))
def plot_shrinkage(axes, penalty: float = 0.6):
    """Draw the strength that remains against the true one: L1, jump, identity."""
    y = np.linspace(-0.4, 1.6, 401)
    axes.plot(y, y.clip(0), color=BLACK, linestyle=":", linewidth=1.4, label="no penalty: $\\max(y, 0)$")
    shrunk, jump = (y - penalty / 2).clip(0), np.where(y > penalty / 2, y, 0)
    lines(axes, y, {"L1: $\\max(y - \\lambda/2, 0)$": shrunk, "jump at $\\lambda/2$": jump})
    axes.set_title(f"L1 takes $\\lambda/2$ from every strength ($\\lambda$ = {penalty:g})")
    return (
        f"The strength that is kept against the projection on a unit atom, for a penalty of {penalty:g}. Under L1 it is "
        f"0 up to {penalty / 2:g} and then stays {penalty / 2:g} below the line of no penalty. With a jump it is 0 up to "
        "the same place and full beyond it."
    )


def _mean_and_range(axes: Axes, x, runs: np.ndarray, label: str, place: int) -> None:
    """Draw the mean over runs (columns) and, shaded, their range."""
    (line,) = lines(axes, x, {label: runs.mean(1)}, first=place, marker="os^xD"[place], markersize=4)
    axes.fill_between(x, runs.min(1), runs.max(1), color=line.get_color(), alpha=0.15, linewidth=0)


@lesson.figure(
    "64 atoms: neurons find them when $p$ is near $f$",
    "target frequency over feature frequency, $p / f$",
    "share of atoms at cosine 0.9",
    legend={"loc": "upper right", "fontsize": 8},
    xscale="log",
    ylim=(-0.03, 1.05),
    xticks=(0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8),
    xticklabels=("0.05", "0.1", "0.25", "0.5", "1", "2", "4", "8"),
)
def plot_resonance(axes):
    """Draw the share recovered against p / f, with the band of the theorem for s = 2."""
    low, high = (edge * 32 for edge in resonance_band(64, 2))
    axes.axvspan(low, high, color="0.88", label="band of the theorem, $s$ = 2")
    for place, (d_model, active) in enumerate(RESONANCE):
        shares = np.array(measured("feature_recovery", f"resonance: {d_model}, {active}")).T
        _mean_and_range(axes, RATIOS, shares, f"$d$ = {d_model}, $s$ = {active}", place)
    axes.minorticks_off()
    best = np.mean(measured("feature_recovery", "resonance: 32, 2"), axis=0)
    return (
        "Share of 64 atoms recovered against the target frequency over the feature frequency, mean and range of three "
        f"seeds. With d = 32 and two active atoms it is {best[RATIOS.index(0.5)]:.2f} at a half, "
        f"{best[RATIOS.index(1)]:.2f} at one and {best[RATIOS.index(8)]:.2f} at eight. With three active atoms it is "
        "high for d = 64 and low for d = 16; with six active atoms nothing is recovered anywhere."
    )


@lesson.figure(
    ["TopK", "ReLU + L1", "GBA"],
    ["$k$", "$\\lambda$", "middle of the targets over $f$"],
    ["share of atoms, or of variance", "share", "share"],
    grid=(1, 3),
    subplots={"sharey": True},
    legend=None,
    xscale="log",
    ylim=(-0.03, 1.05),
    xticks=[(1, 2, 4, 8, 16, 32), None, (0.05, 0.2, 1, 4)],
    xticklabels=[("1", "2", "4", "8", "16", "32"), None, ("0.05", "0.2", "1", "4")],
)
def plot_curves(left, middle, right):
    """Draw recovery and missing variance of all trainers against what each asks its user to choose."""
    frequency = sum(TOY["active"]) / 2 / TOY["n_atoms"]
    # The page speaks of a dotted line, the variance, and of an orange one: nothing else may look orange.
    shown = {"0.8": ("cosine 0.8", 0), "0.9": ("cosine 0.9", 2), "fvu": ("variance missing", 3)}
    for axes, trainer, unit in ((left, "topk", 1.0), (middle, "l1", 1.0), (right, "gba", frequency)):
        for what, (label, place) in shown.items():
            knob, values = curve(trainer, what)
            _mean_and_range(axes, knob / unit, values, label, place)
    knob, values = curve("one_group", "0.9")
    _mean_and_range(right, knob / frequency, values, "cosine 0.9, one group", 4)
    left.minorticks_off()
    right.minorticks_off()
    handles = [*left.get_lines(), right.get_lines()[-1]]
    left.figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return (
        "Three panels over what each trainer asks for: the share of atoms found at cosine 0.8 and 0.9, and the variance "
        "missing. TopK finds nearly all atoms for k from 4 to 8 at cosine 0.8, few at 16 and none at 32, where the "
        "least variance is missing. ReLU with L1 finds all of them at a penalty of 0.1, most at 1 and none at 0.001. Group "
        "bias adaptation finds most of them at cosine 0.8 while the middle of its targets lies between a sixth and two "
        "thirds of the features' frequency, up to three quarters at cosine 0.9, and next to none with targets well "
        "above it."
    )


@lesson.figure(
    "Units locked on a feature fire about as often as it occurs",
    "frequency of the feature",
    "frequency of the unit",
    legend={"loc": "upper left", "fontsize": 8},
    xscale="log",
    yscale="log",
    xlim=(0.006, 0.3),
    ylim=(0.006, 0.3),
    xticks=(0.01, 0.02, 0.05, 0.1, 0.2),
    xticklabels=("0.01", "0.02", "0.05", "0.1", "0.2"),
    yticks=(0.01, 0.02, 0.05, 0.1, 0.2),
    yticklabels=("0.01", "0.02", "0.05", "0.1", "0.2"),
)
def plot_frequencies(axes):
    """Draw realised against feature frequency for units that are locked on a feature, by target."""
    found = frequencies()
    axes.plot([0.006, 0.3], [0.006, 0.3], color=BLACK, linestyle="-", linewidth=1, label="equal")
    for place, target in enumerate(sorted(set(found[:, 0]), reverse=True)):
        _, realised, feature = found[found[:, 0] == target].T
        look = {"marker": "os^vDx"[place], "markersize": 5, "linestyle": "none", "alpha": 0.8}
        lines(axes, feature, {f"target {target:.3f}": realised}, first=place, **look)
    axes.minorticks_off()
    return (
        f"For {len(found)} units of three runs whose direction has cosine 0.9 or more with an atom: how often the unit "
        "fires against how often its atom occurs, both on logarithmic axes. The points lie along the diagonal, groups "
        "with lower targets further down."
    )


@lesson.explorer
class ResonanceExplorer(Explorer):
    """Neurons forced to fire in a share p of the rows: how many of 64 atoms they find, and why."""

    title = "Neuron resonance"
    summary = (
        "Left: the share of 64 atoms that some neuron matches with cosine 0.9, against the target frequency over the "
        "feature frequency; the band of the theorem is shaded and the point is the present setting. Right: the "
        "projections of a typical neuron, for rows that hold its atom and rows that do not, and its threshold."
    )
    log_ratio = Slider(
        "frequency ratio",
        "log₂(p/f)",
        "How often each neuron fires, over how often an atom occurs: 0 is equal, 1 is twice",
        -1.0,
        -4.0,
        3.0,
        0.5,
    )
    d_model = Slider("dimension", "d", "Dimension of the rows; below 64 the atoms lie in superposition", 40, 16, 64, 8)
    active = Slider(
        "active atoms",
        "s",
        "How many of the 64 atoms each row holds; an atom then occurs in s / 64 of the rows",
        2,
        1,
        4,
        1,
    )
    together = ("log_ratio", "d_model")
    size = (9.6, 4.2)
    layout = panels(
        ["How many atoms are found", "A typical neuron"],
        ["$p / f$", "projection $w \\cdot x$"],
        ["share of atoms at cosine 0.9", "share of the rows of each kind"],
        grid=(1, 2),
        legend=[
            {"loc": "upper right", "ncols": 3, "fontsize": 8, "columnspacing": 1.0, "handlelength": 1.5},
            {"loc": "upper right", "ncols": 3, "fontsize": 8, "columnspacing": 0.8, "handlelength": 1.5},
        ],
        xlim=[(-4.2, 3.2), (-1.2, 2.2)],
        ylim=[(-0.03, 1.15), (0, 0.55)],
        xticks=[range(-4, 4), None],
        xticklabels=[("1/16", "1/8", "1/4", "1/2", "1", "2", "4", "8"), None],
    )
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
        feature = active / len(best)
        frequency = 2.0**log_ratio * feature
        threshold = float(thresholds(projections[:, None], frequency=frequency))
        fires, with_atom = projections > threshold, holds[:, typical]
        # What lies beyond the picture is counted at its edge.
        inside = projections.double().clamp(*self.bins[[0, -1]].tolist())
        counts = [
            np.histogram(inside[some], self.bins)[0] / max(int(some.sum()), 1) for some in (~with_atom, with_atom)
        ]
        found, band = int((best >= 0.9).sum()), [edge / feature for edge in resonance_band(len(best), active)]
        low, high = np.log2(band)
        return {
            # For s = 1 the band is a single point: a sliver keeps it in sight.
            "area": (low - 0.02, 0, high - low + 0.04, 0.86),
            "shares": np.array(measured("feature_recovery", f"explorer: {d_model}, {active}")),
            "point": (log_ratio, found / len(best)),
            "counts": counts,
            "cut": ([threshold] * 2, [0, 0.48]),
            "log_ratio": log_ratio,
            "frequency": frequency,
            "feature": feature,
            "found": found,
            "band": band,
            "threshold": threshold,
            "cosine": float(best[typical]),
            "purity": float(with_atom[fires].double().mean()),
        }

    def draw(self, share, projection):
        """Draw the band, the curve and the point; both histograms and the threshold."""
        middles = (self.bins[1:] + self.bins[:-1]) / 2
        thin = {"color": BLACK, "linestyle": "--", "linewidth": 1.3, "label": "without atom"}
        thick = {"color": BLUE, "linestyle": "-", "linewidth": 1.8, "label": "with atom"}
        return {
            "area": share.axvspan(-1, 0.5, color="0.87", label="band"),
            "shares": lines(share, LOG_RATIOS, ["measured"])[0],
            "point": share.plot([], [], "o", color=RED, markersize=9, label="this setting")[0],
            "counts": [
                projection.plot(middles, 0 * middles, drawstyle="steps-mid", **look)[0] for look in (thin, thick)
            ],
            "cut": projection.plot([], [], color=RED, linestyle=":", linewidth=2, label="threshold")[0],
        }

    def words(self, state):
        """Say how many atoms are found and what makes the typical neuron fire."""
        inside = state["band"][0] - 1e-9 <= 2.0 ** state["log_ratio"] <= state["band"][1] + 1e-9
        where = "inside" if inside else "outside"
        return (
            f"An atom occurs in {state['feature']:.3f} of the rows, a neuron fires in {state['frequency']:.4f}, {where} "
            f"the band: {state['found']} of {SMALL['n_atoms']} atoms are found. The typical neuron has cosine "
            f"{state['cosine']:.2f} with its atom, which is in {100 * state['purity']:.0f}% of the rows that make it fire."
        )


frequency_prediction = lesson.prediction(
    "28.P1",
    "64 atoms in 32 dimensions, two active in each row, so each atom occurs in a share $f = 1/32$ of the rows. All "
    "neurons are made to fire in a share $p$ of the rows. Which $p$ lets them find the most atoms?",
    {
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

error_prediction = lesson.prediction(
    "28.P2",
    "A TopK autoencoder with $k = 32$ is trained on rows of 24 dimensions that hold 2 or 6 of 32 atoms. Less than "
    "0.1% of the variance is missing from its reconstructions. How many of the atoms are among its directions?",
    {
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

FIGURES = lesson.figures
