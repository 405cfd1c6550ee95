"""Figures, explorer and predictions of lesson 30, restricted minimax estimation."""

from functools import cache

import numpy as np
import torch
from IPython.display import Markdown
from scipy.stats import beta
from torch import Tensor

from course_lib.lessons.restricted_minimax.contents import lesson
from course_lib.teaching import Choice, Explorer, Slider, lines, markdown_table, panels
from course_lib.teaching.style import BLUE
from course_lib.theory.restricted_minimax import (
    Solution,
    classical_rule,
    minimax,
    one_trial_rule,
    risk,
    worst_case,
)

F64 = torch.float64
GREY = "0.45"
PLACES = torch.linspace(0, 1, 401, dtype=F64)


@cache
def solved(n: int, eta: float) -> Solution:
    """Return the minimax rule and its prior; each is computed once."""
    return minimax(n, eta)


def rivals(n: int, eta: float) -> dict[str, Tensor]:
    """Return sensible other rules, by name: vectors of n + 1 estimates, none outside [0, eta]."""
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


THETA = "true θ"
THREE = ("truncated x/n", "clipped classical", "uniform prior's mean")


@lesson.figure("One trial, θ at most 1/2: three sensible rules", THETA, "risk", ylim=(0, 0.14), legend="upper left")
def plot_question(axes):
    """Draw the risks of three rules for one trial."""
    theta = (0.5 * PLACES).numpy()
    lines(axes, theta, {name: curve(rivals(1, 0.5)[name], 0.5) for name in THREE})
    return (
        "Mean squared error against the true θ from 0 to 0.5, one trial. The truncated x/n rises from 0 to 0.125. The "
        "clipped classical rule falls from 0.0625 to 0.014 and ends at 0.031. The mean under a uniform prior falls from "
        "0.049 to 0.003 and rises to 0.052."
    )


# One trial


def practice_table() -> Markdown:
    """Return what the rules say of 20 parts of which at most 5% are bad, and their risks over the minimax risk."""
    best, others = solved(20, 0.05), rivals(20, 0.05)
    evenly = (torch.arange(4000, dtype=F64) + 0.5) / 4000 * 0.05
    rules = {"minimax": best.rule, **others, "plain $x/n$": torch.arange(21, dtype=F64) / 20}
    rows = []
    for name, rule in rules.items():
        largest, average = worst_case(rule, 0.05)[0] / best.upper, risk(rule, evenly).mean() / best.upper
        said = (f"{100 * estimate:.2f}%" for estimate in rule[:3].tolist())
        rows.append((name.replace(" x/n", " $x/n$"), *said, f"{float(largest):.2f}", f"{float(average):.2f}"))
    header = ("20 parts, at most 5% bad", "0 bad", "1 bad", "2 bad", "largest risk", "average risk")
    return markdown_table(header, rows)


@lesson.explorer
class RuleExplorer(Explorer):
    """Choose both estimates of one trial; nature answers with the worst θ."""

    title = "Your rule against nature"
    summary = (
        "Left the risk of a rule for one trial against θ up to η, the largest value marked: that is nature's answer (at the "
        "top edge where it is above 0.26). The dotted line is the smallest value that the largest risk can have. Right both "
        "estimates, a after a failure and b after a success; the curves of the closed form appear when it is chosen."
    )
    a = Slider("after a failure, say", "a", "The estimate δ₀ when the trial fails", 0.25, 0.0, 0.5, 0.005)
    b = Slider("after a success, say", "b", "The estimate δ₁ when the trial succeeds", 0.5, 0.0, 1.0, 0.005)
    eta = Slider("largest possible θ", "η", "θ is known to lie between 0 and η", 0.5, 0.05, 1.0, 0.01)
    rule = Choice("rule", "Your a and b, or the best ones", "yours", ("yours", "closed form"))
    together = ("a", "b")
    size = (9.6, 4.0)
    layout = panels(
        ["risk of the rule", "the two estimates"],
        [THETA, "largest possible θ, η"],
        ["risk", "estimate"],
        grid=(1, 2),
        legend=["upper right", "upper left"],
        xlim=[(-0.02, 1.02), (0, 1.02)],
        ylim=[(0, 0.27), (-0.03, 1.05)],
    )
    at = np.linspace(0.01, 1, 199)

    def compute(self, *, a, b, eta, rule):
        """Return the risk curve, where it is largest, and both estimates."""
        best = one_trial_rule(eta)
        used = best if rule == "closed form" else (a, b)
        (first, second), theta = used, (eta * PLACES).numpy()
        slope, bend = second**2 - first**2 - 2 * first, 1 + 2 * first - 2 * second  # the quadratic (30.5)
        flat = abs(slope) + abs(bend) < 1e-9
        turn = -slope / (2 * bend) if bend < -1e-9 else 0.0
        candidates = np.array([0.0, eta] + [turn] * (0 < turn < eta))
        heights = first**2 + slope * candidates + bend * candidates**2
        value = float(heights.max())
        peaks = candidates[heights > value * (1 - 1e-6)]
        closed = np.array([one_trial_rule(float(x)) for x in self.at]).T if rule == "closed form" else None
        hidden = np.full_like(self.at, -1.0)  # below the axes
        return {
            "risk": (theta, first**2 + slope * theta + bend * theta**2),
            "worst": (peaks, np.full(len(peaks), min(value, 0.26))),
            "floor": ([0, eta], [best[0] ** 2] * 2),
            "end": ([eta, eta], [0, 0.27]),
            "dots": ([eta, eta], list(used)),
            "first": hidden if closed is None else closed[0],
            "second": hidden if closed is None else closed[1],
            "said": (rule, used, eta, value, peaks.tolist(), flat, best[0] ** 2),
        }

    def draw(self, left, right):
        """Draw what moves."""
        line = left.plot([], [], "-", color=BLUE, label="risk")[0]
        floor = left.plot([], [], ":", color="k", linewidth=1.3, label="smallest largest risk")[0]
        worst = left.plot([], [], "o", color="k", markersize=9, linestyle="none", label="nature's answer")[0]
        end = left.plot([], [], "--", color=GREY, linewidth=1, label="_end")[0]
        first, second = lines(right, self.at, ["a, closed form", "b, closed form"])
        dots = right.plot([], [], "o", color="k", markersize=8, linestyle="none", label="the rule")[0]
        moving = {"risk": line, "worst": worst, "floor": floor, "end": end, "dots": dots}
        return {**moving, "first": first, "second": second}

    def words(self, state):
        """Say what nature answers, and how far the rule is from the best."""
        rule, (a, b), eta, value, peaks, flat, floor = state["said"]
        where = "any θ: the risk is flat" if flat else "θ = " + " or ".join(f"{x:.3g}" for x in peaks)
        excess = 100 * (value / floor - 1)
        rest = "No rule does better." if excess < 0.005 else f"That is {excess:.1f}% above the smallest possible."
        return (
            f"η = {eta:.2f}, {'your rule' if rule == 'yours' else 'closed form'} a = {a:.3f}, b = {b:.3f}: "
            "nature answers "
            f"{where}, risk {value:.4f}. {rest}"
        )


@lesson.figure(
    "One trial, θ at most 1/2, and 1/2 after a success", "estimate a after a failure", "risk", legend="upper center",
    ylim=(0, 0.14),
)  # fmt: skip
def plot_ends(axes):
    """Draw the risk at both ends of [0, 1/2] against the estimate after a failure."""
    a = torch.linspace(0, 0.35, 141, dtype=F64)
    ends = risk(torch.stack([a, torch.full_like(a, 0.5)], dim=-1), torch.tensor([0, 0.5], dtype=F64)).numpy()
    lines(axes, a.numpy(), {"if θ = 0": ends[:, 0], "if θ = 1/2": ends[:, 1]})
    axes.plot(a, ends.max(1), color=GREY, linewidth=6, alpha=0.4, zorder=1, label="the larger one")
    least = one_trial_rule(0.5)[0]
    axes.plot([least], [least**2], "o", color="k", markersize=9, label=f"smallest at a = {least:.3f}")
    return (
        "Risk against the estimate a after a failure, from 0 to 0.35. If θ is 0 it rises from 0 to 0.12, if θ is 1/2 it "
        "falls from 0.125 to 0.01. The larger of the two is smallest where they cross, at a = 0.207, with the risk 0.043."
    )


@lesson.figure(
    ["η = 0.5: equal at both ends", "η = 0.9: flat"], THETA, "risk", size=(8.8, 3.7), grid=(1, 2),
    legend=["upper right", "lower left"], ylim=(0, 0.075), xlim=[(-0.02, 0.52), (-0.04, 0.94)],
)  # fmt: skip
def plot_balance(*axes):
    """Draw the minimax risk of one trial for two values of eta beside the clipped classical rule."""
    for one, eta, atoms in zip(axes, (0.5, 0.9), ([0, 0.5], [0, 0.75]), strict=True):
        best = torch.tensor(one_trial_rule(eta), dtype=F64)
        clipped = rivals(1, eta)["clipped classical"]
        lines(one, (eta * PLACES).numpy(), {"minimax": curve(best, eta), "clipped classical": curve(clipped, eta)})
        one.plot(
            atoms, risk(best, torch.tensor(atoms, dtype=F64)), "o", color="k", markersize=9, label="nature's atoms"
        )
    return (
        "Risk for one trial. Left η = 0.5: the minimax rule, a = 0.207 and b = 0.5, has the risk 0.0429 at θ = 0 and at "
        "0.5 and less in between; the clipped classical rule has 0.0625 at 0. Right η = 0.9: the minimax rule has the risk "
        "0.0625 everywhere; the clipped classical rule is the same. Nature's atoms are 0 and 0.75."
    )


@lesson.figure(
    "The best estimates for one trial", "largest possible θ, η", "estimate", legend="upper left", ylim=(0, 1.05)
)
def plot_stick(axes):
    """Draw both minimax estimates for one trial against eta."""
    eta = np.linspace(0.01, 1, 200)
    a, b = np.array([one_trial_rule(float(x)) for x in eta]).T
    lines(axes, eta, {"b, after a success": b, "a, after a failure": a})
    axes.axvline(0.75, color=GREY, linewidth=1, linestyle=":")
    return (
        "Both estimates against η. b equals η up to 0.75 and stays at 0.75 from there on. a rises from 0 to 0.25 at "
        "η = 0.75 and stays there."
    )


# More trials


@lesson.figure(
    ["risks on [0, 0.3], 20 trials", "nature's prior"], THETA, ["risk", "weight"], size=(8.8, 3.8), grid=(1, 2),
    legend=[{"loc": "upper left", "fontsize": 8}, None], ylim=[(0, 0.0125), (0, 0.6)], xlim=(-0.01, 0.31),
)  # fmt: skip
def plot_touch(left, right):
    """Draw the minimax risk for 20 trials with its touching points, three rivals, and the prior."""
    best = solved(20, 0.3)
    curves = {"minimax": best.rule, **{name: rivals(20, 0.3)[name] for name in THREE}}
    lines(left, (0.3 * PLACES).numpy(), {name: curve(rule, 0.3) for name, rule in curves.items()})
    left.plot(best.atoms, risk(best.rule, best.atoms), "o", color="k", markersize=8, zorder=5)
    right.vlines(best.atoms, 0, best.weights, color="k", linewidth=4)
    return (
        "Left the risk on [0, 0.3] with 20 trials. The minimax curve touches its largest value, 0.0038, at three dots: "
        "0.032, 0.132 and 0.3. The truncated x/n reaches 0.0061, the clipped classical rule 0.0083, the mean under a "
        "uniform prior 0.0069. Right nature's prior: the same three points with the weights 0.13, 0.42 and 0.45."
    )


SIZES = (5, 20, 50)
ETAS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75)


@lesson.figure(
    [f"{n} trials" for n in SIZES], "largest possible θ, η", "nature's atoms", grid=(1, 3), legend=None,
    xlim=(0, 0.8), ylim=(-0.03, 0.8),
)  # fmt: skip
def plot_atoms(*axes):
    """Draw the atoms of nature's prior against eta for three numbers of trials."""
    for one, n in zip(axes, SIZES, strict=True):
        for eta in ETAS:
            found = solved(n, eta)
            one.scatter([eta] * len(found.atoms), found.atoms, s=6 + 70 * found.weights, color=BLUE, linewidths=0)
        one.plot([0, 0.8], [0, 0.8], ":", color=GREY, linewidth=1)
    return (
        "The atoms of nature's prior against η from 0.05 to 0.75; larger dots carry more weight. One atom is always η, on "
        "the dotted diagonal. With 5 trials there are 2 atoms at first and 3 at 0.75; with 20 trials 2 to 6; with 50 "
        "trials 2 to 9. The lowest atom leaves 0; later a new one, of little weight, enters at 0."
    )


@lesson.figure(
    "What a sensible rule pays, 20 trials", "largest possible θ, η", "largest risk / minimax risk", yscale="log",
    ylim=(0.9, 12), legend="upper right",
)  # fmt: skip
def plot_worth(axes):
    """Draw the largest risk of four rules over the minimax risk against eta, 20 trials."""
    table = {name: [ratio(rivals(20, eta)[name], 20, eta) for eta in ETAS] for name in rivals(20, 0.5)}
    lines(axes, ETAS, table, marker="o", markersize=3)
    axes.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
    axes.minorticks_off()
    axes.axhline(1, color="k", linewidth=1)
    return (
        "Largest risk over the minimax risk against η, 20 trials, logarithmic. The clipped classical rule rises from 7.1 at "
        "η = 0.05 to 8.8 at 0.1 and falls to 1.03 at 0.75. The truncated x/n falls from 2.5 to 1.5. Clipped Jeffreys lies "
        "between 1.3 and 1.6, the mean under a uniform prior between 1.4 and 1.8."
    )


@lesson.figure(
    "A defect rate of at most 5%, 20 parts", "true defect rate (%)", "root mean squared error (percentage points)",
    ylim=(0, 5.4), legend={"loc": "upper right", "fontsize": 8},
)  # fmt: skip
def plot_practice(axes):
    """Draw the errors of the rules for a rate of at most 5 percent in 20 trials."""
    rules = {"minimax": solved(20, 0.05).rule, **rivals(20, 0.05)}
    lines(axes, (5 * PLACES).numpy(), {name: 100 * curve(rule, 0.05) ** 0.5 for name, rule in rules.items()})
    return (
        "Root mean squared error against the true rate from 0 to 5%. Minimax is at 1.88 near both ends and 1.5 at least. "
        "The truncated x/n rises from 0 to 3.0. The clipped classical rule always says 5%, and falls from 5 to 0. Clipped "
        "Jeffreys falls from 2.4 to 1.3 and ends at 1.6. The mean under a uniform prior falls from 2.1 to 0.6 and ends at "
        "2.2."
    )


# Predictions

clip_prediction = lesson.prediction(
    "30.P1",
    "A trial succeeds with probability $\\theta$. Without any knowledge of $\\theta$, the rule whose largest risk is "
    "smallest says 1/4 after a failure and 3/4 after a success. Now $\\theta \\le 1/2$ is known, so the rule says 1/2 after "
    "a success. What should it say after a failure, for the smallest largest risk?",
    {
        "0: what was observed": "Then θ = 1/2 is worst, with the risk 0.125: after a failure the rule is off by 1/2.",
        "1/4 still": "Then θ = 0 is worst, with the risk 1/16, as without the knowledge. A smaller estimate lowers it, "
        "until θ = 1/2 is as bad.",
        "About 0.21": "At (√2 - 1)/2 the risks at θ = 0 and at θ = 1/2 are equal. A smaller estimate raises the second, a "
        "larger one the first.",
        "More than 1/4: a failure tells less than before": "Then θ = 0 is worst: the risk there is the square of the "
        "estimate, more than 1/16.",
    },
    answer="About 0.21",
    reveal=plot_ends,
)

stick_prediction = lesson.prediction(
    "30.P2",
    "Still one trial. Let the known bound $\\eta$ grow from 0 to 1. What does the best rule say after a *success*?",
    {
        "η, all the way": "Up to 3/4 it does. At η = 1 a rule that says 1 has a larger risk than 1/16 somewhere, whatever "
        "it says after a failure.",
        "It grows smoothly to 3/4 and is always below η": "Up to 3/4 it is η itself: the worst case is a θ that is either 0 "
        "or η, and after a success only η is left.",
        "η until 3/4, and 3/4 from there on": "From η = 3/4 on, the risk of the best rule is 1/16 for every θ, so a longer "
        "interval does not raise the largest risk.",
    },
    answer="η until 3/4, and 3/4 from there on",
    reveal=plot_stick,
)

atoms_prediction = lesson.prediction(
    "30.P3",
    "20 trials, $\\theta \\le 0.3$. Nature draws $\\theta$ from the prior that is worst for the best rule. What "
    "does that prior look like?",
    {
        "Two points, 0 and 0.3": "Two points suffice up to η = 0.045. Here the risk is largest between them.",
        "Three points": "0.03, 0.13 and 0.3: exactly where the risk of the minimax rule touches its maximum.",
        "21 points, one for each count": "The risk has degree 22 in θ and could touch at 12 places; it touches at three.",
        "A density on the whole of [0, 0.3]": "A density would need a risk that is flat on the whole interval.",
    },
    answer="Three points",
    reveal=plot_touch,
)

FIGURES = lesson.figures
