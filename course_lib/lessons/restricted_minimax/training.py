"""Rules for 20 tests that are trained: on the average risk, on the worst case, or against an opponent who learns too.

A run starts from 21 random reports. Each step measures the risk at 61 values of theta, moves the reports downhill on a
mixture of these risks, and keeps the rule whose largest risk was the smallest so far. The mixture is itself a prior: its
average over the steps gives a floor. Rates are chosen on five starts by what is left between ceiling and floor; what the
page shows is measured on five others.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product

import torch
from torch import Tensor

from course_lib.theory.restricted_minimax import bayes_risk, likelihood, worst_case

TESTS, BOUND, STEPS = 20, 0.3, 1000
MARKS = (10, 18, 32, 56, 100, 178, 316, 562, 1000)
CHOOSING, TESTING = (0, 1, 2, 3, 4), (5, 6, 7, 8, 9)
RATES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
ADAM_RATES = (0.001, 0.003, 0.01, 0.03, 0.1)
SPEEDS = (10.0, 30.0, 100.0, 300.0, 1000.0)


@dataclass(frozen=True)
class Arm:
    """How a rule is trained: whose risk counts, whether the rate falls to 0, and with which optimiser."""

    mixture: str
    falling: bool = False
    adam: bool = False

    def settings(self) -> list[tuple[float, float]]:
        """Return all pairs of a rate and a speed of the opponent that are tried."""
        speeds = SPEEDS if self.mixture == "opponent" else (0.0,)
        return list(product(ADAM_RATES if self.adam else RATES, speeds))


ARMS = {
    "average over θ": Arm("average"),
    "worst case": Arm("worst"),
    "worst case, falling step": Arm("worst", falling=True),
    "worst case, Adam, falling step": Arm("worst", falling=True, adam=True),
    "opponent who learns": Arm("opponent"),
    "opponent who learns, falling step": Arm("opponent", falling=True),
}


@dataclass(frozen=True)
class Trained:
    """Runs of one arm: largest risk of the rule kept and floor, after each number of steps of `at`; the last tallies."""

    rate: float
    speed: float
    at: tuple[int, ...]
    ceilings: Tensor
    floors: Tensor
    tally: Tensor
    rules: Tensor

    @property
    def gap(self) -> float:
        """What is left between ceiling and floor, relative to the floor, on average over the starts."""
        return float((self.ceilings[:, -1] / self.floors[:, -1] - 1).nan_to_num(torch.inf).mean())


def starts(seeds: tuple[int, ...]) -> Tensor:
    """Return random reports, one row a seed."""
    rows = [
        BOUND * torch.rand(TESTS + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        for seed in seeds
    ]
    return torch.stack(rows)


def train(
    arm: Arm, *, rate: float, speed: float = 0.0, seeds: tuple[int, ...] = TESTING, marks: tuple[int, ...] = MARKS
) -> Trained:
    """Train one rule for each seed."""
    places = torch.linspace(0, BOUND, 61, dtype=torch.float64)
    p, rules = likelihood(places, TESTS), starts(seeds)
    shares = torch.full((len(seeds), len(places)), 1 / len(places), dtype=torch.float64)
    tally, kept = torch.zeros_like(shares), rules.clone()
    lowest = torch.full((len(seeds),), torch.inf, dtype=torch.float64)
    first, second = torch.zeros_like(rules), torch.zeros_like(rules)
    ceilings, floors = [], []
    for step in range(1, STEPS + 1):
        risks = (p * (rules[:, None] - places[:, None]).square()).sum(-1)
        now = risks.amax(1)
        better = now < lowest
        lowest, kept = torch.where(better, now, lowest), torch.where(better[:, None], rules, kept)
        if arm.mixture == "worst":
            mixture = torch.nn.functional.one_hot(risks.argmax(1), len(places)).to(p.dtype)
        else:
            if arm.mixture == "opponent":
                shares = shares * (speed * (risks - risks.amax(1, keepdim=True))).exp()
                shares = shares / shares.sum(1, keepdim=True)
            mixture = shares
        tally = tally + mixture
        slope = 2 * ((mixture @ p) * rules - (mixture * places) @ p)
        length = rate * (1 - (step - 1) / STEPS) if arm.falling else rate
        if arm.adam:
            first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope.square()
            slope = first / (1 - 0.9**step) / ((second / (1 - 0.999**step)).sqrt() + 1e-12)
        rules = rules - length * slope
        if step in marks:
            ceilings.append(torch.tensor([worst_case(rule, BOUND, cells=300)[0] for rule in kept], dtype=p.dtype))
            # An opponent who learns gives two priors, her last one and the tally; the higher floor counts.
            priors = [tally / step, shares] if arm.mixture == "opponent" else [tally / step]
            found = [[float(bayes_risk(places, w, TESTS)) for w in prior] for prior in priors]
            floors.append(torch.tensor(found, dtype=p.dtype).nan_to_num(0.0).amax(0))
    return Trained(rate, speed, tuple(marks), torch.stack(ceilings, 1), torch.stack(floors, 1), tally, kept)


@cache
def chosen(name: str) -> tuple[float, float]:
    """Return the rate and speed of an arm that leave least between ceiling and floor, on the starts for choosing."""
    arm = ARMS[name]
    found = {
        setting: train(arm, rate=setting[0], speed=setting[1], seeds=CHOOSING, marks=(STEPS,)).gap
        for setting in arm.settings()
    }
    return min(found, key=found.get)


@cache
def tested(name: str) -> Trained:
    """Return the runs of an arm from the five other starts, at the rate that was chosen."""
    rate, speed = chosen(name)
    return train(ARMS[name], rate=rate, speed=speed)
