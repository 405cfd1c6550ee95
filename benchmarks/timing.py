"""Interleaved timing: every candidate once a round, ratios inside the round, medians with quartiles."""

import platform
import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from course_lib.measured import Spread

# What a figure may owe something to: torch's companions, and the peers.
LIBRARIES = (
    "clarabel", "concept-erasure", "cvxpy", "mambapy", "numpy", "onnxruntime", "openvino", "peft", "sae-lens",
    "scikit-learn", "torch", "torch-geometric", "transformer-lens", "transformers",
)  # fmt: skip

__all__ = ["Spread", "interleave", "machine", "run_module", "versions"]


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


def run_module(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of one module of benchmarks, and what of their origin is known in its process only."""
    module = import_module(f"benchmarks.{name}")
    figures = module.run()
    known = {"seeds": getattr(module, "SEEDS", None), "settings": getattr(module, "SETTINGS", None)}
    return figures, known | {"machine": machine(), "versions": versions()}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that this process has imported and that a figure may owe to."""
    owners = packages_distributions()
    found = {name for module in list(sys.modules) for name in owners.get(module, [])}
    return {"python": platform.python_version()} | {
        name: version(name) for name in sorted(found & {*LIBRARIES})
    }


def machine() -> dict[str, str | int]:
    """Describe the machine in public terms."""
    import os

    import torch

    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    described = Path("/proc/cpuinfo")
    models = re.findall(
        r"^model name\s*: (.*)$", described.read_text() if described.exists() else "", re.MULTILINE
    )
    return (
        gpu
        | ({"model": models[0]} if models else {})
        | {
            "system": platform.system(),
            "processor": platform.machine(),
            "cores": os.cpu_count() or 1,
        }
    )
