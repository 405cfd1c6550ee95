"""Figures, explorers, tables and predictions of lesson 36, feature_recovery."""

import numpy as np
from IPython.display import Markdown
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from course_lib.lessons.feature_recovery.contents import lesson
from course_lib.lessons.feature_recovery.measurements import (
    BARE,
    CHOOSERS,
    KNOBS,
    LOOKED_AT,
    QUESTIONS,
    RATIOS,
    RESONANCE,
    ROWS,
    baseline,
    chosen,
    looked_at,
    seen,
    stored,
)
from course_lib.measured import measured
from course_lib.teaching import Choice, Explorer, Slider, Switch, lines, markdown_table, panels, right
from course_lib.teaching.style import BLACK, BLUE, RED

GRID = KNOBS["TopK"]
K_AXIS = {"xscale": "log", "xlim": (1.8, 36), "xticks": GRID, "xticklabels": tuple(map(str, GRID))}


def nearest(k: float | int) -> int:
    """Return the trained k that is nearest to a slider's place."""
    return min(GRID, key=lambda one: abs(one - k))


@lesson.figure(
    "Eight autoencoders and what they fail to rebuild",
    "$k$, active units in each row (log scale)",
    "variance missing (%)",
    size=(6.4, 3.3),
    legend=None,
    ylim=(-0.8, 24),
    **K_AXIS,
)
def plot_missing(axes):
    """Draw the error of the page's eight autoencoders on fresh rows."""
    axes.plot(GRID, [100 * seen(k)["missing"] for k in GRID], "o-", color=BLUE, markersize=6)
    axes.minorticks_off()
    return (
        "Share of the variance of fresh rows that eight autoencoders fail to rebuild. It falls from a fifth at k = 2 to "
        "nearly nothing at k = 24 and 32."
    )


@lesson.figure(
    "And what they found",
    "$k$, active units in each row (log scale)",
    "share (%)",
    size=(6.4, 3.5),
    legend={"loc": "center right", "fontsize": 9},
    ylim=(-3, 108),
    **K_AXIS,
)
def plot_found(axes):
    """Draw which share of the atoms the page's autoencoders hold, over the variance that is missing."""
    shares = [[100 * (seen(k)["cosine"] >= c).mean() for k in GRID] for c in (0.8, 0.9)]
    lines(axes, GRID, {"atoms at cosine 0.8": shares[0]}, first=1, marker="s", markersize=5)
    lines(axes, GRID, {"atoms at cosine 0.9": shares[1]}, first=2, marker="^", markersize=6)
    axes.plot(GRID, [100 * seen(k)["missing"] for k in GRID], "o-", color=BLUE, markersize=5, label="variance missing")
    axes.minorticks_off()
    return (
        "Share of the atoms that have a unit of their own at cosine 0.8 and 0.9, and the variance missing. All are found at "
        "k = 6. At cosine 0.9 none is at k = 2 and from k = 16 on, where the error is least."
    )


NO_CONSTANT = "constant 0"


def says(k: int, trained_k: int) -> str:
    """Return what a picture says of the slider's k and of the trained one that it shows."""
    return f"k = {k}" if k == trained_k else f"slider at k = {k}, shown: k = {trained_k}"


def writers(k: int, atom: int, most: int = 8) -> list[tuple[list[float], list[float]]]:
    """Return the arrows of the units that write an atom: its strongest ones, on alternating sides, as x and y of a line."""
    state = seen(k)
    strength, angle = state["strength"][atom][:most], np.deg2rad(state["angle"][atom][:most])
    side = np.where(np.arange(len(angle)) % 2, -1, 1)
    return [
        ([0.0, float(f * np.cos(a))], [0.0, float(s * f * np.sin(a))])
        for f, a, s in zip(strength, angle, side, strict=True)
    ]


def _atom(axes: Axes) -> None:
    axes.plot([0, 1], [0, 0], color=RED, linewidth=5, alpha=0.35, label="the atom", solid_capstyle="butt")


@lesson.figure(
    None, "projection $y = v \\cdot x$", "strength $z$", size=(5.6, 3.1), legend="upper left", ylim=(-0.05, 1.65)
)
def plot_shrinkage(axes, penalty: float = 0.6):
    """Draw the strength that remains against the true one: L1, jump, identity."""
    y = np.linspace(-0.4, 1.6, 401)
    axes.plot(y, y.clip(0), color=BLACK, linestyle=":", linewidth=1.4, label="no penalty: $\\max(y, 0)$")
    shrunk, jump = (y - penalty / 2).clip(0), np.where(y > penalty / 2, y, 0)
    lines(axes, y, {"L1: $\\max(y - \\lambda/2, 0)$": shrunk, "jump at $\\lambda/2$": jump})
    axes.set_title(f"L1 takes $\\lambda/2$ from what it keeps ($\\lambda$ = {penalty:g})")
    return (
        f"The strength that is kept, for a penalty of {penalty:g}: under L1 it stays {penalty / 2:g} below the line of no "
        "penalty."
    )


def _mean_and_range(axes: Axes, x, runs: np.ndarray, label: str, place: int) -> None:
    """Draw the mean over runs (columns) and, shaded, their range."""
    (line,) = lines(axes, x, {label: runs.mean(1)}, first=place, marker="os^xD"[place], markersize=4)
    axes.fill_between(x, runs.min(1), runs.max(1), color=line.get_color(), alpha=0.15, linewidth=0)


@lesson.figure(
    "Which error goes with the atoms?",
    "variance missing on fresh rows (%, log scale)",
    "atoms at cosine 0.9 (%)",
    size=(6.4, 3.5),
    legend={"loc": "upper left", "fontsize": 9},
    xscale="log",
    xlim=(0.006, 130),
    ylim=(-5, 112),
    xticks=(0.01, 0.1, 1, 10, 100),
    xticklabels=("0.01", "0.1", "1", "10", "100"),
)
def plot_trainers(axes):
    """Draw atoms found against variance missing for all settings of TopK and L1, means of five dictionaries."""
    places = {"TopK": (-20, -4), "L1": (7, -2)}
    for place, (trainer, label) in enumerate({"TopK": "TopK, by $k$", "L1": "L1, by $\\lambda$"}.items()):
        knobs, missing = stored(trainer, "missing")
        found, x = 100 * stored(trainer, "0.9")[1].mean(1), 100 * missing.mean(1)
        lines(axes, x, {label: found}, first=place, marker="os"[place], markersize=6)
        for knob, one, share in zip(knobs, x, found, strict=True):
            if (trainer, knob) in (("TopK", 2), ("TopK", 4), ("TopK", 16), ("L1", 0.01), ("L1", 0.3), ("L1", 1.0)):
                axes.annotate(f"{knob:g}", (one, share), xytext=places[trainer], textcoords="offset points", fontsize=9)
    for text, at, to in (("6", (4.87, 98), (7, -12)), ("0.1", (3.63, 99), (-8, 6))):
        axes.annotate(text, at, xytext=to, textcoords="offset points", fontsize=9)
    return (
        "Share of the atoms found at cosine 0.9 against the variance missing, for settings of TopK and L1, means of five "
        "dictionaries. Both curves fall at their left end, where the error is least."
    )


@lesson.figure(
    "Do two trainings agree?",
    "$k$, active units in each row (log scale)",
    "share, or mean cosine",
    size=(6.0, 3.3),
    legend={"loc": "upper right", "fontsize": 9},
    ylim=(-0.03, 1.06),
    **K_AXIS,
)
def plot_agreement(axes):
    """Draw the agreement of two trainings and the share found over k, means and ranges of five dictionaries."""
    knobs, agreement = stored("TopK", "agreement")
    _mean_and_range(axes, knobs, agreement, "agreement of two trainings", 3)
    _mean_and_range(axes, knobs, stored("TopK", "0.9")[1], "atoms at cosine 0.9", 2)
    level = baseline("agreement").mean()
    axes.axhline(level, color=BLACK, linewidth=1.2, linestyle=(0, (1, 3)), label="agreement, untrained")
    axes.minorticks_off()
    return (
        "Agreement of two trainings and share of the atoms found, over k, five dictionaries. Agreement is about as high at "
        "k = 2, where nearly no atom is found, as at k = 6."
    )


@lesson.figure(
    "What the constant hides",
    "$k$, active units in each row (log scale)",
    "atoms at cosine 0.9 (%)",
    size=(6.0, 3.3),
    legend={"loc": "upper right", "fontsize": 9},
    ylim=(-4, 152),
    yticks=(0, 20, 40, 60, 80, 100),
    **K_AXIS,
)
def plot_constant(axes):
    """Draw the share of the atoms over k: as trained, without the mean's direction, and with the constant kept at 0."""
    curves = {
        "as trained": stored("TopK", "0.9")[1],
        "as trained, the mean's direction taken out": stored("TopK", "mean out")[1],
        "trained with the constant kept at 0": stored(BARE, "0.9")[1],
    }
    for place, (label, runs) in enumerate(curves.items()):
        _mean_and_range(axes, GRID, 100 * runs, label, place)
    axes.minorticks_off()
    first, second, third = (f"{100 * runs[0].mean():.0f}%" for runs in curves.values())
    return (
        f"Share of the atoms found over k, five dictionaries. At k = 2: {first} as trained, then {second} and {third}."
    )


def trainer_table() -> Markdown:
    """Return, for the best and the least-error setting of each trainer, what five dictionaries show on average."""
    rows = []
    for trainer in KNOBS:
        knobs, missing = stored(trainer, "missing")
        found = stored(trainer, "0.9")[1].mean(1)
        for name, place in (("most atoms", int(found.argmax())), ("least error", int(missing.mean(1).argmin()))):
            dead, copies = (stored(trainer, what)[1].mean(1)[place] for what in ("dead", "copies"))
            rows.append(
                (
                    f"{trainer}, {name}",
                    f"{knobs[place]:g}",
                    f"{missing.mean(1)[place]:.2%}",
                    f"{found[place]:.0%}",
                    f"{dead:.0f}",
                    f"{copies:.0%}",
                )
            )
    for name, what in (("128 random directions", "untrained"), ("128 of the rows", "rows")):
        rows.append((name, "", "", f"{baseline(what).mean():.0%}", "", ""))
    header = ("", "setting", "missing", "atoms", "never fire", "copied")
    return markdown_table(header, rows)


def chooser_table() -> Markdown:
    """Return what each way to choose a setting finds: mean and least of five dictionaries, and what it took."""

    def cell(found: list[tuple[float, float]]) -> str:
        shares = [share for _, share in found]
        taken = sorted({knob for knob, _ in found})
        ks = f"{taken[0]:g}" if len(taken) == 1 else f"{taken[0]:g}–{taken[-1]:g}"
        return f"{np.mean(shares):.0%} ({100 * min(shares):.0f}–{100 * max(shares):.0f}), {ks}"

    rows = [(name, *(cell(chosen(name, *asked)) for asked in QUESTIONS.values())) for name in CHOOSERS]
    shares = []
    for trainer, kind, least, most in QUESTIONS.values():
        knobs, found = stored(trainer, "0.9", kind)
        shares.append((knobs, found, (knobs >= least) & (knobs <= most)))
    fixed = [f"{found[list(knobs).index(6)].mean():.0%}" if 6 in knobs else "" for knobs, found, _ in shares]
    rows.append(("always $k = 6$", *fixed))
    rows.append(("any on the list, at random", *(f"{found[allowed].mean():.0%}" for _, found, allowed in shares)))
    rows.append(("with the answer key", *(f"{found[allowed].max(0).mean():.0%}" for _, found, allowed in shares)))
    return markdown_table(("chosen by", *QUESTIONS), rows)


def trusted_table() -> Markdown:
    """Return how many units one might trust and how many atoms they hold, by k, stored means of five dictionaries.

    In brackets: the atoms once the mean's direction is taken out.
    """
    rows = []
    for k in LOOKED_AT:
        found = looked_at(k)
        names = ("fire", "twice", "most", "nine tenths")
        cells = [f"{found[one]:.0f}: {found[f'{one}, atoms']:.0f} ({found[f'{one}, mean out']:.0f})" for one in names]
        rows.append((f"{k}", *cells))
    header = ("$k$", "all that fire", "found twice", "as many that write most", "nine tenths of all")
    return markdown_table(header, rows)


@lesson.figure(
    "64 atoms, 3,000 rows: with 2 a row most are found at $p$ below $f$",
    "target frequency over feature frequency, $p / f$",
    "share of atoms at cosine 0.9",
    size=(5.8, 3.2),
    legend={"loc": "upper right", "fontsize": 8},
    xscale="log",
    ylim=(-0.03, 1.05),
    xticks=(0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8),
    xticklabels=("0.05", "0.1", "0.25", "0.5", "1", "2", "4", "8"),
)
def plot_resonance(axes):
    """Draw the share recovered against p / f, for two and more atoms in a row."""
    for place, (d_model, active) in enumerate(RESONANCE):
        shares = np.array(measured("feature_recovery", f"resonance: {d_model}, {active}")).T
        _mean_and_range(axes, RATIOS, shares, f"$d$ = {d_model}, {active} a row", place)
    axes.minorticks_off()
    best = np.mean(measured("feature_recovery", "resonance: 32, 2"), axis=0)
    return (
        "Share of 64 atoms recovered against the target frequency over the feature frequency, mean and range of three "
        f"seeds. With d = 32 and two atoms in a row it is {best[RATIOS.index(0.5)]:.2f} at a half, "
        f"{best[RATIOS.index(1)]:.2f} at one and {best[RATIOS.index(8)]:.2f} at eight. With three it is "
        "high for d = 64 and low for d = 16; with six nothing is recovered anywhere."
    )


@lesson.explorer
class AtomExplorer(Explorer):
    """The page's eight autoencoders: which atoms have a unit, and which units write one of them."""

    title = "One atom and the units that write it"
    summary = (
        "Left: the cosine of each of the 32 atoms with its own unit, in order, and a line at 0.9; a diamond marks the "
        "atom that is shown on the right. Right: a row that holds this atom alone, and what its strongest units "
        "write, each as a line at its true angle from the atom; sides alternate to keep the lines apart."
    )
    k = Slider("active units", "k", "The nearest of the eight trained values is shown", 16, 2, 32, 2)
    atom = Slider("atom", "j", "Which of the 32 atoms is shown on the right", 1, 1, 32, 1)
    size = (9.4, 4.0)
    stills = ({"k": 16}, {"k": 6}, {"k": 2})
    strip_scale = 0.75
    strip_dpi = 80
    most = 8
    together = ("k", "atom")
    layout = panels(
        ["Each atom's own unit", "What writes this atom"],
        ["atoms, by their cosine", "written along the atom"],
        ["cosine", "across it (side arbitrary)"],
        grid=(1, 2),
        legend=[{"loc": "lower left", "fontsize": 9}, {"loc": "lower left", "fontsize": 9}],
        xlim=[(0, 33), (-0.35, 1.35)],
        ylim=[(0, 1.05), (-1.3, 1.0)],
    )

    def compute(self, *, k, atom):
        """Return the cosines in order, the marked atom, and the lines of its strongest units."""
        trained_k = nearest(k)
        state = seen(trained_k)
        order = np.argsort(-state["cosine"])
        at = int(np.flatnonzero(order == atom - 1)[0])
        arrows = writers(trained_k, atom - 1, self.most)
        return {
            "cosines": state["cosine"][order],
            "mark": (at + 1, state["cosine"][atom - 1]),
            "units": arrows,
            "shown": says(k, trained_k),
            "asked": k,
            "k": trained_k,
            "missing": state["missing"],
            "dead": state["dead"],
            "found": int((state["cosine"] >= 0.9).sum()),
            "atom": atom,
            "share": float(state["share"][atom - 1]),
            "angle": float(state["angle"][atom - 1][0]),
        }

    def draw(self, left, right_axes):
        """Draw the line at 0.9 and the atom, which stay, and what moves."""
        left.axhline(0.9, color=BLACK, linewidth=1, linestyle=":", label="0.9")
        (points,) = left.plot(range(1, 33), [0] * 32, "o", color=BLUE, markersize=5, label="atoms")
        (mark,) = left.plot([], [], "D", color=RED, markersize=10, fillstyle="none", label="this atom")
        _atom(right_axes)
        shown = right_axes.text(1.3, 0.95, "", ha="right", va="top", fontsize=9)
        units = [
            right_axes.plot(
                [],
                [],
                "o-",
                color=BLUE,
                markersize=4,
                markevery=[1],
                label="its strongest units" if n == 0 else "_unit",
            )[0]
            for n in range(self.most)
        ]
        return {"cosines": points, "mark": mark, "units": units, "shown": shown}

    def words(self, state):
        """Say what is missing, how many atoms are found, and what the strongest unit writes of this one."""
        near = "" if state["k"] == state["asked"] else f" (the trained value nearest to {state['asked']})"
        return (
            f"k = {state['k']}{near}: {state['missing']:.2%} of the variance is missing, {state['found']} of 32 atoms have "
            f"a unit of their own at cosine 0.9, {state['dead']} of 128 units never fire. Of what all "
            f"units write along atom {state['atom']} the strongest writes {state['share']:.0%}, from {state['angle']:.0f} "
            "degrees."
        )


@lesson.explorer
class ChoiceExplorer(Explorer):
    """Two signs that need no answer key, as k moves, and the rectangle that they span."""

    title = "Which k would you take?"
    summary = (
        "Left: variance explained on fresh rows and agreement of two trainings over k, and, with the answer key, the share "
        "of the atoms found. Right: a rectangle as wide as the variance explained and as high as the agreement."
    )
    k = Slider("active units", "k", "The nearest of the eight trained values is shown", 32, 2, 32, 2)
    kind = Choice(
        "atoms in a row", "How many atoms a row holds, and of how many; last: with the constant kept at 0",
        "2 or 6 of 32", (*ROWS, f"2 or 6 of 32, {NO_CONSTANT}"),
    )  # fmt: skip
    key = Switch("answer key", "Draw the share of the atoms that are found")
    size = (9.4, 4.0)
    stills = ({"k": 32}, {"k": 8}, {"k": 2})
    strip_scale = 0.75
    strip_dpi = 80
    together = ("k", "kind")
    layout = panels(
        ["Two signs, five dictionaries", "Their product"],
        ["$k$ (log scale)", "variance explained"],
        ["share, or mean cosine", "agreement"],
        grid=(1, 2),
        legend=[{"loc": "upper center", "fontsize": 8, "ncols": 2, "columnspacing": 1.0, "handlelength": 1.6}, None],
        xscale=["log", "linear"],
        xlim=[(1.8, 36), (0, 1.05)],
        ylim=[(-0.03, 1.45), (0, 1.15)],
        xticks=[GRID, None],
        yticks=[(0, 0.2, 0.4, 0.6, 0.8, 1.0), None],
        xticklabels=[tuple(map(str, GRID)), None],
    )

    def compute(self, *, k, kind, key):
        """Return both curves, the one of the key or none, the points at k and the rectangle."""
        trained_k = nearest(k)
        place = GRID.index(trained_k)
        rows, bare, _ = kind.partition(f", {NO_CONSTANT}")
        missing, agreement, found = (
            stored(BARE if bare else "TopK", what, rows)[1].mean(1) for what in ("missing", "agreement", "0.9")
        )
        explained = 1 - missing
        return {
            "explained": (GRID, explained),
            "agreement": (GRID, agreement),
            "found": (GRID, found) if key else ([], []),
            "points": ([trained_k] * 2, [explained[place], agreement[place]]),
            "area": (0, 0, explained[place], agreement[place]),
            "shown": says(k, trained_k),
            "asked": k,
            "k": trained_k,
            "kind": kind,
            "signs": (explained[place], agreement[place]),
            "share": found[place] if key else None,
        }

    def draw(self, left, right_axes):
        """Draw empty curves, the points and the rectangle."""
        left.minorticks_off()
        curves = lines(left, [], ["variance explained"], first=0, marker="o", markersize=4)
        curves += lines(left, [], ["agreement"], first=3, marker="s", markersize=4)
        curves += lines(left, [], ["atoms at 0.9"], first=2, marker="^", markersize=5)
        (points,) = left.plot([], [], "D", color=BLACK, markersize=10, fillstyle="none", label="this $k$")
        area = right_axes.add_patch(Rectangle((0, 0), 0, 0, facecolor="0.85", edgecolor=BLACK))
        shown = right_axes.text(0.03, 1.12, "", ha="left", va="top", fontsize=9)
        named = dict(zip(("explained", "agreement", "found"), curves, strict=True))
        return named | {"points": points, "area": area, "shown": shown}

    def words(self, state):
        """Say both signs and their product, and the share of the atoms if it was asked for."""
        near = "" if state["k"] == state["asked"] else f" (the trained value nearest to {state['asked']})"
        explained, agreement = state["signs"]
        said = (
            f"{state['kind']} atoms in a row, k = {state['k']}{near}: {explained:.1%} of the variance explained, agreement "
            f"{agreement:.3f}, product {explained * agreement:.3f}."
        )
        return said + (f" Atoms found at cosine 0.9: {state['share']:.0%}." if state["share"] is not None else "")


ask_found = lesson.prediction(
    "36.P1",
    "The autoencoder with $k = 32$ rebuilds fresh rows almost exactly. For how many of the 32 atoms does it have a unit in "
    "their direction (a cosine of at least 0.9)?",
    {
        "None": right("What is rebuilt so well is written by units of which none is an atom."),
        "About half": "The other ones would have to be written as well. It turns out that all are shared.",
        "All, or nearly all": "So the error suggests. But other directions can rebuild the same rows.",
    },
    reveal=plot_found,
)

ask_penalty = lesson.prediction(
    "36.P2",
    "TopK with $k = 4$ misses a tenth of the variance of fresh rows and holds about half of the "
    "atoms (means of five stored dictionaries). An autoencoder with the penalty $\\lambda = 1$ on its strengths, in place "
    "of a $k$, misses more than half of the variance. How many of the atoms does it hold?",
    {
        "Nearly none": "The strengths are wrong, but what is asked for is the directions.",
        "About half, too": "The error is five times as large, and still most of the atoms are there.",
        "More than three quarters": right("Much of the error is in the strengths, not in the directions."),
    },
    reveal=plot_trainers,
)

ask_agreement = lesson.prediction(
    "36.P3",
    "For each of the eight $k$ two TopK autoencoders are trained from different starts, and you take the $k$ at which they "
    "agree most. How many of the 32 atoms does your choice hold at cosine 0.9, on average over five dictionaries?",
    {
        "At most a quarter": right("They agree most at k = 2 or 4, and k = 2 holds nearly none."),
        "About half": "Sometimes: it depends on the dictionary. The average is lower.",
        "Nearly all": "So one would hope: what is there should be found twice. But so can be what is no atom.",
    },
    reveal=plot_agreement,
)

FIGURES = lesson.figures
