"""Interleaved timing: every candidate once a round, ratios inside the round, medians with quartiles."""

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

import numpy as np


@dataclass(frozen=True)
class Spread:
    """A median with its quartiles."""

    median: float
    q25: float
    q75: float

    @classmethod
    def of(cls, values) -> "Spread":
        """Summarise a list of numbers."""
        q25, median, q75 = np.percentile(values, [25, 50, 75])
        return cls(round(float(median), 4), round(float(q25), 4), round(float(q75), 4))

    def __str__(self) -> str:
        median, q25, q75 = (
            f"{v:,.0f}" if v >= 1000 else f"{v:.3g}" for v in (self.median, self.q25, self.q75)
        )
        return f"{median} [{q25}..{q75}]"


def interleave(
    candidates: Mapping[str, Callable[[int], None]],
    *,
    rounds: int,
    clock: Callable[[], float],
    warm_up: int = 3,
) -> dict[str, list[float]]:
    """Call each candidate once a round, with the number of the round; return the seconds that each took."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for round_ in range(-warm_up, rounds):
        for name, call in candidates.items():
            start = clock()
            call(round_)
            if round_ >= 0:
                seconds[name].append(clock() - start)
    return seconds


def run_module(name: str) -> dict[str, Spread]:
    """Return the figures of one module of benchmarks."""
    return import_module(f"benchmarks.{name}").run()


def machine() -> dict[str, str | int]:
    """Describe the machine in public terms."""
    import os

    import torch

    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    return gpu | {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count() or 1,
        "python": platform.python_version(),
    }
