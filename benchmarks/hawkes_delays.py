"""Lesson 31's closing experiment: kernels estimated by norms, or by their form, on three kinds of truths.

The relative error of the kernel, one number for each seed, and how many of the 24 delays are right. Weights of norms are
chosen on the last fifth of the bins; "chosen" is what the same bins choose among six arms that were fitted to the others.
Some minutes of one CPU thread.
"""

from collections import Counter

import torch

from course_lib.lessons.hawkes_tensor_recovery.closing import (
    CANDIDATES,
    KINDS,
    SHARES,
    SIMPLE,
    best_of,
    chosen,
    error,
    form_fit,
    norm_fit,
    process,
    simple_fit,
)
from course_lib.lessons.hawkes_tensor_recovery.delays import right_of_24

SEEDS = tuple(range(20))
FORMS = (
    "read",
    "read, corrected",
    "read at f = 1",
    "totals",
    "totals, corrected",
    "darkest",
    "peaks",
    "peaks, corrected",
    "peaks of Fourier",
    "peaks of Fourier, corrected",
    "no delays",
    "random",
    "true",
    "10 starts",
    "40 starts",
)
LENGTHS = (1000, 2000, 16_000)
SHORT = ("read, corrected", "true", "10 starts")


def run() -> dict[str, list[float] | dict[str, int]]:
    """Return errors, delays that are right, chosen weights and chosen arms."""
    torch.set_num_threads(1)
    rows: dict[str, list[float] | dict[str, int]] = {}
    for kind in KINDS:
        for name in ("none", *SHARES):
            rows[f"{kind}, {name}"] = [
                round(error(norm_fit(kind, s, name), process(kind, s).kernel), 4) for s in SEEDS
            ]
        for name in SHARES:
            shares = [best_of(process(kind, seed).counts, name)[1] for seed in SEEDS]
            rows[f"{kind}, {name}, shares"] = {str(k): n for k, n in sorted(Counter(shares).items())}
        for name in SIMPLE:
            rows[f"{kind}, {name}"] = [
                round(error(simple_fit(kind, s, name), process(kind, s).kernel), 4) for s in SEEDS
            ]
        for name in FORMS:
            found = [form_fit(kind, seed, name) for seed in SEEDS]
            rows[f"{kind}, {name}"] = [
                round(error(kernel, process(kind, seed).kernel), 4)
                for seed, (kernel, _) in zip(SEEDS, found, strict=True)
            ]
            if kind == "delayed":
                rows[f"{kind}, {name}, right"] = [
                    right_of_24(delays, process(kind, seed).delays)
                    for seed, (_, delays) in zip(SEEDS, found, strict=True)
                ]
        picks = [chosen(kind, seed) for seed in SEEDS]
        rows[f"{kind}, chosen, arms"] = {name: picks.count(name) for name in CANDIDATES}
        rows[f"{kind}, chosen"] = [
            rows[f"{kind}, {name}"][seed] for seed, name in zip(SEEDS, picks, strict=True)
        ]
    for name in ("none", *SHARES):
        rows[f"short, {name}"] = [
            round(error(norm_fit("short", s, name), process("short", s).kernel), 4) for s in SEEDS
        ]
    for bins in LENGTHS:
        for name in ("none", "fourier", *SHORT):
            for seed in SEEDS:
                given = process("delayed", seed, bins)
                if name in SHORT:
                    kernel, delays = form_fit("delayed", seed, name, bins)
                    rows.setdefault(f"{bins} bins, {name}, right", []).append(
                        right_of_24(delays, given.delays)
                    )
                else:
                    kernel = norm_fit("delayed", seed, name, bins)
                rows.setdefault(f"{bins} bins, {name}", []).append(round(error(kernel, given.kernel), 4))
    return rows
