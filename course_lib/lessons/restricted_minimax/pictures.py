"""Figures, explorer and predictions of lesson 30, restricted minimax estimation."""

from functools import cache

import numpy as np
import torch
from IPython.display import Markdown
from matplotlib.path import Path
from scipy.stats import beta
from torch import Tensor

from course_lib.lessons.restricted_minimax.contents import lesson
from course_lib.lessons.restricted_minimax.training import ARMS, TESTING, Trained, starts, tested
from course_lib.teaching import Explorer, Slider, lines, markdown_table, panels, right
from course_lib.teaching.layout import LOOKS
from course_lib.teaching.style import BLACK, BLUE, RED
from course_lib.theory.restricted_minimax import (
    Solution,
    bayes_rule,
    classical_rule,
    minimax,
    one_trial_rule,
    prior_by_updates,
    risk,
    two_point_limit,
    worst_case,
)

F64 = torch.float64
GREY = "0.45"
BEST = LOOKS[2]["color"]  # of nature's best prior
TESTS, BOUND = 20, 0.3
PLACES = torch.linspace(0, 1, 401, dtype=F64)
THETA = "true failure rate θ"


@cache
def solved(n: int, eta: float) -> Solution:
    """Return the minimax rule and its prior; each is computed once."""
    return minimax(n, eta)


def rivals(n: int, eta: float) -> dict[str, Tensor]:
    """Return sensible other rules, by name: vectors of n + 1 reports, none outside [0, eta]."""
    x = torch.arange(n + 1, dtype=F64)
    more, less = (x + 1).numpy(), (n - x + 1).numpy()
    uniform = more / (more + less) * beta.cdf(eta, more + 1, less) / beta.cdf(eta, more, less)
    return {
        "truncated x/n": (x / n).clamp(max=eta),
        "clipped classical": classical_rule(n).clamp(max=eta),
        "clipped Jeffreys": ((x + 0.5) / (n + 1)).clamp(max=eta),
        "uniform prior's mean": torch.from_numpy(uniform),
    }


def curve(rule: Tensor, eta: float) -> np.ndarray:
    """Return the risk of a rule along [0, eta]."""
    return risk(rule, eta * PLACES).numpy()


def ratio(rule: Tensor, n: int, eta: float) -> float:
    """Return a rule's largest risk on [0, eta], in units of the minimax risk."""
    return worst_case(rule, eta)[0] / solved(n, eta).upper


# The question: five rules


NAMES = {
    "A": "x/n, at most 30%",
    "B": "(x + 1/2)/(n + 1), at most 30%",
    "C": "posterior mean, uniform prior on [0, 0.3]",
    "D": "posterior mean, another prior",
    "E": "best without the bound, cut at 30%",
}


def five_rules() -> dict[str, Tensor]:
    """Return the rules A to E for 20 tests and a rate of at most 30%, by what they report after no failure."""
    others = rivals(TESTS, BOUND)
    return {
        "A": others["truncated x/n"],
        "B": others["clipped Jeffreys"],
        "C": others["uniform prior's mean"],
        "D": solved(TESTS, BOUND).rule,
        "E": others["clipped classical"],
    }


@lesson.figure(
    "Five rules for 20 tests", "failures among 20 tests", "reported failure rate (%)", size=(5.6, 2.9), xlim=(-0.3, 10.3),
    ylim=(-1, 33), legend="lower right", xticks=range(11),
)  # fmt: skip
def plot_question(axes):
    """Draw what five rules report for 0 to 10 failures."""
    rules = five_rules()
    axes.axhline(30, color=GREY, linewidth=1, linestyle=":")
    lines(
        axes, np.arange(11), {name: 100 * rule[:11].numpy() for name, rule in rules.items()}, marker="o", markersize=4
    )
    said = ", ".join(f"{name} {100 * float(rule[0]):.1f}%" for name, rule in rules.items())
    return f"Reports of five rules against the number of failures. After no failure: {said}."


@lesson.figure(
    "Risks of the five rules", THETA, "risk (thousandths)", size=(5.8, 3.1), ylim=(0, 9.2),
    legend={"loc": "lower right", "fontsize": 9, "ncols": 5}, xlim=(-0.005, 0.305),
)  # fmt: skip
def plot_risks(axes):
    """Draw the risk of the five rules, and where each is largest."""
    rules = five_rules()
    drawn = lines(axes, (BOUND * PLACES).numpy(), {k: 1000 * curve(rule, BOUND) for k, rule in rules.items()})
    drawn[3].set_linewidth(3.5)
    for line, rule in zip(drawn, rules.values(), strict=True):
        value, places = worst_case(rule, BOUND)
        axes.plot(places, 1000 * torch.full_like(places, value), "o", color=line.get_color(), markersize=7)
    tops = ", ".join(f"{name} {1000 * worst_case(rule, BOUND)[0]:.1f}" for name, rule in rules.items())
    return f"Risk against the true rate, with dots where it is largest. There, in thousandths: {tops}."


def five_table() -> Markdown:
    """Return what the five rules report after no failure, and their risks over D's largest."""
    evenly = (torch.arange(4000, dtype=F64) + 0.5) / 4000 * BOUND
    rows, unit = [], solved(TESTS, BOUND).upper
    for name, rule in five_rules().items():
        average = float(risk(rule, evenly).mean()) / unit
        largest = worst_case(rule, BOUND)[0] / unit
        rows.append((f"{name}: {NAMES[name]}", f"{100 * float(rule[0]):.1f}%", f"{largest:.2f}", f"{average:.2f}"))
    return markdown_table(("rule", "0 failures", "largest risk / D's", "average risk / D's largest"), rows)


# The explorer: play nature


@lesson.explorer
class NatureExplorer(Explorer):
    """Choose up to three places for theta and their shares; the statistician answers with the best rule."""

    title = "You are nature: 20 tests, θ at most 0.3"
    summary = (
        "Left: the risk of the reply to your prior against θ, on a logarithmic axis; dots stand at your places, larger ones "
        "have larger shares, and one on the lower edge has a risk below the axis. Triangles mark all three sliders. The "
        "dashed line is the floor, the dotted one the ceiling. Right: what the reply reports for each number of failures."
    )
    first = Slider("place", "θ₁", "Where the first place lies", 0.0, 0.0, 0.3, 0.01)
    second = Slider("place", "θ₂", "Where the second place lies", 0.15, 0.0, 0.3, 0.01)
    third = Slider("place", "θ₃", "Where the third place lies", 0.3, 0.0, 0.3, 0.01)
    w1 = Slider("parts", "w₁", "Shares are these parts over their sum", 50, 0, 100, 1)
    w2 = Slider("parts", "w₂", "Shares are these parts over their sum", 0, 0, 100, 1)
    w3 = Slider("parts", "w₃", "Shares are these parts over their sum", 50, 1, 100, 1)
    together = ("second", "w2")
    stills = ({}, {"w1": 1, "w2": 1, "w3": 1}, {"first": 0.15, "third": 0.15})
    size = (8.2, 2.9)
    strip_scale = 0.74
    layout = panels(
        ["risk of the best reply", "the best reply"],
        [THETA, "failures among 20 tests"],
        ["risk (thousandths)", "report"],
        grid=(1, 2),
        legend=[{"loc": "upper center", "fontsize": 9}, None],
        xlim=[(-0.01, 0.31), (-0.5, 20.5)],
        xticks=[[0, 0.1, 0.2, 0.3], [0, 5, 10, 15, 20]],
        yscale=["log", "linear"],
        ylim=[(0.01, 20000), (-0.01, 0.33)],
        yticks=[[0.01, 0.1, 1, 10], [0, 0.1, 0.2, 0.3]],
        yticklabels=[["0.01", "0.1", "1", "10"], ["0", "0.1", "0.2", "0.3"]],
    )

    def compute(self, *, first, second, third, w1, w2, w3):
        """Return the risk of the best reply to this prior, its average, its top and the reply."""
        parts: dict[float, int] = {}
        for place, part in sorted([(first, w1), (second, w2), (third, w3)]):
            if part:  # equal places count as one
                parts[place] = parts.get(place, 0) + part
        places = torch.tensor(list(parts), dtype=F64)
        shares = torch.tensor(list(parts.values()), dtype=F64) / sum(parts.values())
        found = Solution.of(places, shares, n=TESTS, eta=BOUND)
        at = torch.linspace(0, BOUND, 121, dtype=F64)
        seen = lambda values: np.clip(1000 * np.asarray(values), 0.0102, 100)  # noqa: E731
        floor, ceiling = found.lower, found.upper
        return {
            "risk": (at.numpy(), seen(risk(found.rule, at))),
            "floor": ([0, BOUND], seen([floor] * 2)),
            "ceiling": ([0, BOUND], seen([ceiling] * 2)),
            "dots": list(zip(places.tolist(), seen(risk(found.rule, places)), shares.tolist(), strict=True)),
            "marks": ([first, second, third], [0.014] * 3),
            "reply": (np.arange(TESTS + 1), found.rule.numpy()),
            "said": (1000 * floor, 1000 * ceiling, found.gap),
            "prior": [(float(t), float(w)) for t, w in zip(places, shares, strict=True)],
            "idle": [
                (name, place)
                for name, place, part in zip("₁₂₃", (first, second, third), (w1, w2, w3), strict=True)
                if not part
            ],
            "low": [
                (float(t), 1000 * float(R)) for t, R in zip(places, risk(found.rule, places), strict=True) if R < 1e-5
            ],
        }

    def draw(self, left, right_axes):
        """Draw what moves."""
        line = left.plot([], [], "-", color=BLUE, label="risk")[0]
        ceiling = left.plot([], [], ":", color=RED, linewidth=2, label="ceiling: its largest")[0]
        floor = left.plot([], [], "--", color=BLACK, linewidth=1.6, label="floor: its average")[0]
        dots = [left.plot([], [], "o", color=BLACK, zorder=5, label="_dot")[0] for _ in range(3)]
        marks = left.plot([], [], "^", color=BLACK, markersize=7, fillstyle="none", label="_marks")[0]
        reply = right_axes.plot([], [], "o-", color=BLUE, markersize=4)[0]
        return {"risk": line, "ceiling": ceiling, "floor": floor, "dots": dots, "marks": marks, "reply": reply}

    def update(self, artists, state):
        """Move the curves, and the dots with their sizes."""
        for name in ("risk", "ceiling", "floor", "marks", "reply"):
            artists[name].set_data(*state[name])
        for i, dot in enumerate(artists["dots"]):  # equal places are one dot, and a place without a share has none
            at = state["dots"][i : i + 1]
            dot.set_data([x for x, _, _ in at], [y for _, y, _ in at])
            for _, _, share in at:
                dot.set_markersize((20 + 250 * share) ** 0.5)

    def words(self, state):
        """Say the prior, which places have no share, floor and ceiling."""
        floor, ceiling, gap = state["said"]
        prior = ", ".join(f"{place:.2f} with share {share:.2f}" for place, share in state["prior"])
        prior += "".join(f"; θ{name} = {place:.2f} has none" for name, place in state["idle"])
        if len(state["prior"]) == 1:
            rest = "the statistician knows the rate."
        elif gap < 0.095:
            rest = f"the ceiling is {100 * gap:.1f}% above the floor."
        else:
            rest = f"the ceiling is {1 + gap:,.2f} times the floor."
        low = "".join(f" At θ = {at:.2f} the risk, {value:.5f}, is below the axis." for at, value in state["low"])
        return f"Your prior: {prior}. In thousandths, floor {floor:.3f}, ceiling {ceiling:.3f}: {rest}{low}"


# An average is never above the top


def some_priors() -> dict[str, Solution]:
    """Return priors for 20 tests and [0, 0.3] with their best replies: the explorer's tasks, evenly spread, and the best."""
    chosen = {
        "0 and 0.3, half each": ([0, 0.3], [0.5, 0.5]),
        "0, 0.15, 0.3, a third each": ([0, 0.15, 0.3], [1 / 3] * 3),
        "61 places, evenly": (torch.linspace(0, 0.3, 61).tolist(), [1 / 61] * 61),
        "0.03, 0.13, 0.3: 13, 42, 45%": ([0.03, 0.13, 0.3], [0.13, 0.42, 0.45]),
    }
    return {
        name: Solution.of(torch.tensor(at, dtype=F64), torch.tensor(w, dtype=F64), n=TESTS, eta=BOUND)
        for name, (at, w) in chosen.items()
    }


TIP_RIGHT = Path([(0, 0), (-1, 0.5), (-1, -0.5), (0, 0)])  # triangles whose tips stand at the value
TIP_LEFT = Path([(0, 0), (1, 0.5), (1, -0.5), (0, 0)])


@lesson.figure(
    "Floors never pass ceilings", "risk (thousandths)", "four priors, five rules", size=(7.2, 3.3), xscale="log",
    xlim=(0.025, 60), ylim=(-4.8, 5.8), legend={"loc": "upper left", "fontsize": 9}, yticks=(),
)  # fmt: skip
def plot_bounds(axes):
    """Draw floors of priors and ceilings of rules on one axis."""
    priors, rules = some_priors(), five_rules()
    best = 1000 * solved(TESTS, BOUND).upper
    for row, (name, found) in enumerate(priors.items()):
        floor = 1000 * found.lower
        axes.plot([0.025, floor], [-row - 1] * 2, "-", color=BLUE, linewidth=1)
        axes.plot(floor, -row - 1, marker=TIP_RIGHT, linestyle="none", color=BLUE, markersize=16,
                  label="_prior" if row else "floor of a prior")  # fmt: skip
        axes.annotate(name, (best, -row - 1), (8, -4), textcoords="offset points", fontsize=8.5, color=BLUE)
    for row, (name, rule) in enumerate(rules.items()):
        top = 1000 * worst_case(rule, BOUND)[0]
        axes.plot([top, 60], [row + 1] * 2, "-", color=RED, linewidth=1)
        axes.plot(top, row + 1, marker=TIP_LEFT, linestyle="none", color=RED, markersize=16,
                  label="_rule" if row else "ceiling of a rule")  # fmt: skip
        axes.annotate(f"rule {name}", (best, row + 1), (-46, -4), textcoords="offset points", fontsize=8.5, color=RED)
    axes.axvline(best, color=BLACK, linewidth=1, linestyle="--")
    axes.set_xticks([0.03, 0.1, 0.3, 1, 3, 10, 30], ["0.03", "0.1", "0.3", "1", "3", "10", "30"])
    axes.set_xticks([], minor=True)
    return (
        "Risk in thousandths; the tips stand at the values. From above: the ceilings of the rules E, D, C, B and A, at 8.3, "
        "3.779, 6.9, 5.4 and 6.1, then four floors, at 0.036, 2.44, 3.06 and 3.777. The dashed line is at 3.779."
    )


# One test


@lesson.figure(
    "One test",
    THETA,
    "risk",
    size=(6.0, 3.2),
    legend={"loc": "lower right", "fontsize": 9},
    ylim=(0, 0.075),
    xlim=(-0.02, 0.92),
)
def plot_balance(axes):
    """Draw the minimax risk of one test for two values of eta, and the clipped classical rule for the smaller one."""
    half = {
        "safest for η = 0.5": torch.tensor(one_trial_rule(0.5), dtype=F64),
        "safest without the bound, cut at 0.5": rivals(1, 0.5)["clipped classical"],
    }
    lines(axes, (0.5 * PLACES).numpy(), {name: curve(rule, 0.5) for name, rule in half.items()})
    flat = torch.tensor(one_trial_rule(0.9), dtype=F64)
    lines(axes, (0.9 * PLACES).numpy(), {"safest for η = 0.9": curve(flat, 0.9)}, first=2)
    for rule, places in ((half["safest for η = 0.5"], [0, 0.5]), (flat, [0, 0.75])):
        at = torch.tensor(places, dtype=F64)
        axes.plot(
            at, risk(rule, at), "o", color=BLACK, markersize=8, label="_places" if rule is flat else "nature's places"
        )
    return (
        "Risk for one test. The safest rule for η = 0.5 has 0.043 at θ = 0 and at 0.5 and less in between; cutting the rule "
        "that is safest without the bound leaves 0.0625 at 0. For η = 0.9 the safest rule has 0.0625 everywhere."
    )


# 0 and η, and what comes after


@cache
def births() -> list[Solution]:
    """Return nature's best priors for 20 tests, for bounds from 0.02 to 0.75; at a birth only a grid is found, left out."""
    found = [solved(TESTS, eta) for eta in (torch.arange(4, 151, dtype=F64) / 200).tolist()]
    return [one for one in found if len(one.atoms) < TESTS]


@lesson.figure(
    "Where nature's best prior lies, 20 tests", "largest possible rate η", "places θ", size=(5.8, 3.3), legend=None,
    xlim=(0, 0.77), ylim=(-0.07, 0.77),
)  # fmt: skip
def plot_births(axes):
    """Draw the places of nature's best prior against the largest possible rate."""
    found = births()
    etas = np.array([float(one.atoms[-1]) for one in found])
    counts = [len(one.atoms) for one in found]
    for rank in range(max(counts)):  # the largest place first: each rank is a curve that starts where it is born
        has = [one for one in found if len(one.atoms) > rank]
        axes.plot([float(one.atoms[-1]) for one in has], [float(one.atoms[-1 - rank]) for one in has], "-", color=BLUE)
    limit = two_point_limit(TESTS)
    axes.axvline(limit, color=BLACK, linewidth=1, linestyle="--")
    axes.annotate("0 and η suffice up to here", (limit, 0.66), (8, 0), textcoords="offset points", fontsize=9)
    starts = [float(etas[i]) for i in range(1, len(found)) if counts[i] > counts[i - 1]]
    axes.plot(starts, [0] * len(starts), "o", color=RED, markersize=7, clip_on=False)
    for start, number in zip(starts, range(3, 9), strict=False):
        axes.annotate(f"{number}", (start, 0), (-3, -16), textcoords="offset points", fontsize=10, color=RED)
    return (
        "Places of nature's best prior against η. Up to 0.045 they are 0 and η. Then the lower one leaves 0, and a third is "
        "born at 0 (red dot) between 0.12 and 0.13, a fourth near 0.33, a fifth near 0.54 and a sixth near 0.7."
    )


# Let nature learn


UPDATES = (0, 30, 1000, 10_000)


@cache
def learned(steps: int) -> Solution:
    """Return nature's prior for 20 tests and [0, 0.3] on 61 places after that many updates."""
    return prior_by_updates(TESTS, BOUND, points=61, steps=steps)


@lesson.figure(
    "Nature's prior while she learns", THETA, "updates (bars: share / largest)", size=(6.2, 3.4),
    legend={"loc": (0.66, 0.54), "fontsize": 9}, xlim=(-0.005, 0.305), ylim=(-3.72, 1.1),
    yticks=[[0, -1.2, -2.4, -3.6]], yticklabels=[[f"{steps:,}" for steps in UPDATES]],
)  # fmt: skip
def plot_learning(axes):
    """Draw nature's prior while she learns, one row after another, and the three places of the best one."""
    best = solved(TESTS, BOUND)
    for row, steps in enumerate(UPDATES):
        found, base = learned(steps), -1.2 * row
        axes.axhline(base, color=BLACK, linewidth=0.8, label="_base")
        axes.vlines(found.atoms, base, base + found.weights / found.weights.max(), color=BLUE, linewidth=3)
        axes.plot(best.atoms, 0 * best.atoms + base + 0.1, "D", color=BEST, markersize=6, fillstyle="none",
                  label="_best" if row else "best prior")  # fmt: skip
    return (
        "Nature's prior for 20 tests and η = 0.3: even at first, then more and more of it near the three places of the best "
        "prior (diamonds)."
    )


@lesson.figure(
    ["nature's best prior", "where the risk of its reply is largest"], THETA, ["share (%)", "1 - risk / largest risk"],
    size=(7.4, 2.8), grid=(1, 2), legend=None, yscale="log", xlim=(-0.01, 0.77), ylim=[(0.01, 50), (1e-7, 0.3)],
)  # fmt: skip
def plot_nine(left, right_axes):
    """Draw nature's best prior for 50 tests and a rate of at most 0.75, and how far its reply's risk is below its top."""
    best = solved(50, 0.75)
    left.vlines(best.atoms, 0.01, 100 * best.weights, color=BLUE, linewidth=4)
    left.set_yticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
    at = torch.cat([0.75 * torch.linspace(0, 1, 2001, dtype=F64), best.atoms]).sort().values
    below = (1 - risk(best.rule, at) / best.upper).clamp(min=1e-8)
    lines(right_axes, at.numpy(), {"below": below.numpy()})
    at = ", ".join(f"{100 * place:.0f}" for place in best.atoms.tolist())
    return (
        f"50 tests, η = 0.75. Left, nature's best prior: places at {at} hundredths, the lowest with a share of 0.02%. "
        "Right, the risk of its reply reaches its largest value at these places only."
    )


# Training


@cache
def shown_run() -> Trained:
    """Return the runs of the page's arm, worst case at a fixed rate, from the five starts that chose no rate."""
    return tested("worst case")


@lesson.figure(
    ["How often each θ was the worst", "Ceiling, and floor of the tally"], [THETA, "step"],
    ["share of 1,000 steps (%)", "risk (thousandths)"], size=(7.8, 3.1), grid=(1, 2),
    legend=[{"loc": "upper left", "fontsize": 9}, {"loc": "upper right", "fontsize": 9}], xscale=["linear", "log"],
    yscale=["linear", "log"], xlim=[(-0.01, 0.31), (9, 1100)], ylim=[(0, 80), (0.8, 60)],
)  # fmt: skip
def plot_tally(left, right_axes):
    """Draw the tally of worst cases of one run with nature's best prior, and both bounds over five runs."""
    runs, best = shown_run(), solved(TESTS, BOUND)
    tally = 100 * runs.tally[0] / runs.tally[0].sum()
    at = torch.linspace(0, BOUND, len(tally))
    left.vlines(at, 0, tally, color=BLUE, linewidth=3, label="one of 61 values")
    clumps = [float(tally[(at > low) & (at < high)].sum()) for low, high in ((-1, 0.08), (0.08, 0.2), (0.2, 1))]
    left.plot(best.atoms, clumps, "s", color=BLACK, markersize=8, fillstyle="none", label="sum of a clump")
    left.plot(
        best.atoms, 100 * best.weights, "D", color=BEST, markersize=8, fillstyle="none", label="nature's best prior"
    )
    marks = np.array(runs.at)
    for look, name, found in (
        (LOOKS[1], "ceiling of the best rule so far", runs.ceilings),
        (LOOKS[0], "floor of the tally so far", runs.floors),
    ):
        values = 1000 * found.numpy()
        right_axes.plot(marks, values.mean(0), **look, label=name)
        right_axes.fill_between(marks, values.min(0), values.max(0), color=look["color"], alpha=0.2)
    right_axes.axhline(1000 * best.upper, color=BLACK, linewidth=1, linestyle=":", label="rule D: 3.779")
    for axis, ticks in ((right_axes.yaxis, (1, 2, 4, 10, 20)), (right_axes.xaxis, (10, 30, 100, 300, 1000))):
        axis.set_ticks(ticks, [f"{tick:,}" for tick in ticks])
        axis.set_ticks([], minor=True)
    return (
        "Left, one run: clumps around 0.03 and 0.13, and nearly half of the steps at 0.3 alone. Their sums lie near the "
        "shares of nature's best prior, 13, 42 and 45%. Right, mean and range of five runs."
    )


@lesson.figure(
    "One trained rule, from 21 random reports", "failures among 20 tests", "reported failure rate (%)", size=(5.8, 3.1),
    xlim=(-0.5, 20.5), ylim=(-1, 43),
    legend={"loc": "upper center", "fontsize": 8.5, "ncols": 4, "columnspacing": 1}, xticks=range(0, 21, 2),
    yticks=(0, 10, 20, 30),
)  # fmt: skip
def plot_reports(axes):
    """Draw the reports of one trained rule, of the reply to its tally, of rule D, and those it started from."""
    runs = shown_run()
    tally = runs.tally[0] / runs.tally[0].sum()
    reply = bayes_rule(torch.linspace(0, BOUND, len(tally), dtype=F64), tally, TESTS)
    x = np.arange(TESTS + 1)
    axes.plot(x, 100 * starts((TESTING[0],))[0], "x", color=GREY, markersize=8, label="random start")
    axes.plot(x, 100 * runs.rules[0], "o", color=BLUE, markersize=6, label="trained rule")
    axes.plot(x, 100 * reply, **LOOKS[1], label="reply to its tally")
    axes.plot(x, 100 * solved(TESTS, BOUND).rule, **LOOKS[3], label="rule D")
    return (
        "Reports for 0 to 20 failures. Up to 9 failures the trained rule, the reply to its tally and rule D nearly agree. "
        "From 13 on the trained rule stays near its random start, and both others report 30%."
    )


SHOWN = ("average over θ", "worst case", "worst case, falling step", "opponent who learns")


def training_table(*, every: bool = False) -> Markdown:
    """Return ceiling, floor and what separates them for these arms, in units of the minimax risk: mean and range."""
    unit = solved(TESTS, BOUND).upper

    def cell(values: Tensor) -> str:
        return f"≈{float(values.mean()):.3f} (≈{float(values.min()):.3f}–≈{float(values.max()):.3f})"

    rows = []
    for name in ARMS if every else SHOWN:
        runs = tested(name)
        ceiling, floor = runs.ceilings[:, -1] / unit, runs.floors[:, -1] / unit
        rows.append((name, runs.rate, cell(ceiling), cell(floor), f"≈{100 * float((ceiling / floor).mean() - 1):.1f}%"))
    return markdown_table(("trained on", "step size", "ceiling", "floor", "between them"), rows)


# Appendix


SIZES = (5, 20, 50)
ETAS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75)


# Predictions


ask_safest = lesson.prediction(
    "30.P1",
    "Which of the five rules has the smallest largest risk, over all $\\theta$ from 0 to 0.3?",
    {
        "A, which reports 0%": "For rates near 0.18 its reports scatter too much: 1.61 times the largest risk of D.",
        "B, which reports 2.4%": "It pulls its reports away from 0, but not far enough: 1.42 times the largest risk of D.",
        "C, which reports 4.5%": "It has the smallest risk on average over all θ. At θ = 0.3 it is worst: 1.82 times D.",
        "D, which reports 6.1%": right(
            "Its risk has three equal tops, near 0.03, near 0.13 and at 0.3. That is no accident."
        ),
        "E, which reports 9.1%": "That rule is the safest where nothing is known. At θ = 0 the report costs 2.21 times "
        "the largest risk of D.",
    },
    reveal=plot_risks,
)

ask_places = lesson.prediction(
    "30.P2",
    "For 20 tests and $\\eta = 0.75$ nature's best prior lies on 6 places. On how many does it lie for 50 tests?",
    {
        "6": "Measured: nine. With more tests she needs more places.",
        "9": right("Nine places, and the prior proves itself: floor and ceiling meet."),
        "15, in proportion to the tests": "Measured: nine. From 20 to 50 tests they grow more slowly than the tests.",
        "26": "No best prior can have more than 26, as the degree of the risk shows. It has far fewer.",
        "51, one for each count": "The risk touches its largest value at most 26 times, as its degree shows.",
    },
    reveal=plot_nine,
)

ask_tally = lesson.prediction(
    "30.P3",
    "The rule is trained for 1,000 steps. Which part of them has its worst $\\theta$ near 0.03, near 0.13 and near 0.3?",
    {
        "A third each": "Then the tally's floor would be lower: equal shares are not nature's.",
        "About 13, 42 and 45%, the shares of nature's best prior": right(
            "Nobody told the training about a prior. Its worst cases are one all the same."
        ),
        "About 45, 42 and 13%": "It is the other way round: near 0.03 are the fewest.",
        "Nearly all near 0.3": "A step there lowers the risk there, and then another value is worst.",
    },
    reveal=plot_tally,
)

FIGURES = lesson.figures
