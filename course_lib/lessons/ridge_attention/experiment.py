"""The handwritten digits of lesson 22, and the memories that read them once."""

from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from course_lib import scikit_data
from course_lib.attention.ridge import ridge_memory

STORED, TUNING, SEEDS = 1000, 300, range(5)
ORDERS = ("mixed", "sorted")
STEPS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
PENALTIES = (1e-6, 1e-5, 1e-4, 0.001, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
SCALES = (2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
LENGTHS = (0.25, 0.5, 1.0, 1.5, 2.0, 2.5)
SMALL_LENGTHS = (0.03, 0.06, 0.12)  # for ridge attention, which takes smaller ones
SHRINKING = [(first, half) for first in (0.1, 0.3, 1.0) for half in (3, 10, 30, 100, 300, 1000)]
FEATURES, SAMPLE = 272, 41  # both hold about as many numbers as ridge attention: 10 * 272 and 41 * 65

Part = tuple[Tensor, Tensor]  # keys (n, d), labels (n)


@cache
def digits(seed: int = 0) -> tuple[Part, Part, Part]:
    """Return 1,000 digits to be stored, 300 to choose settings on and 497 new ones: keys of length 1, labels.

    A key is an image of 8 x 8 pixels, less the mean image of the 1,000, brought to length 1.
    """
    images, labels = scikit_data.digits()
    pixels, labels = torch.tensor(images, dtype=torch.float64), torch.tensor(labels)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    keys = normalize(pixels - pixels[order[:STORED]].mean(0), dim=1)
    parts = order.tensor_split((STORED, STORED + TUNING))
    return tuple((keys[part], labels[part]) for part in parts)


def in_order(labels: Tensor, order: str) -> Tensor:
    """Return the places of the digits as they are read: "mixed" as they come, "sorted" all zeros first, then all ones."""
    return torch.arange(len(labels)) if order == "mixed" else labels.argsort(stable=True)


def values_of(labels: Tensor) -> Tensor:
    """Return a value for each label: 1 at its place, 0 at the nine others."""
    return one_hot(labels, 10).double()


def right(memory: Tensor, part: Part) -> Tensor:
    """Return the share of digits whose largest answer stands at their label; of many memories, one share each."""
    keys, labels = part
    return ((keys @ memory).argmax(-1) == labels).double().mean(-1)


def by_delta_rule(keys: Tensor, values: Tensor, steps: Tensor) -> Tensor:
    """Return the memories of the delta rule after all pairs, one for each row of step sizes."""
    memory = keys.new_zeros(len(steps), keys.shape[1], values.shape[1])
    for key, value, step in zip(keys, values, steps.T, strict=True):
        memory = memory + step[:, None, None] * key[:, None] * (value - key @ memory)[:, None]
    return memory


def waves(seed: int, length: float, parts: tuple[Part, ...], count: int = FEATURES) -> tuple[Part, ...]:
    """Replace the 64 pixels by `count` random waves cos(w.k + b), less their mean over the stored digits, to length 1.

    The entries of w are normal with standard deviation `length`; b is uniform on a whole turn.
    """
    generator = torch.Generator().manual_seed(100 + seed)
    directions = torch.randn(64, count, generator=generator, dtype=torch.float64)
    phases = 2 * torch.pi * torch.rand(count, generator=generator, dtype=torch.float64)
    found = [(length * keys @ directions + phases).cos() for keys, _ in parts]
    return tuple((normalize(x - found[0].mean(0), dim=1), labels) for x, (_, labels) in zip(found, parts, strict=True))


def _ridges(keys: Tensor, values: Tensor) -> Tensor:
    return torch.stack([ridge_memory(keys, values, penalty=penalty) for penalty in PENALTIES])


def _softmax(part: Part, keys: Tensor, values: Tensor) -> Tensor:
    """Return the share right by softmax attention over pairs that are kept, for each scale."""
    queries, labels = part
    answers = [torch.softmax(scale * queries @ keys.T, 1) @ values for scale in SCALES]
    return torch.stack([(a.argmax(1) == labels).double().mean() for a in answers])


@cache
def swept(seed: int, order: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Return for each kind of memory the share right on the tuning digits and on the new ones, for all its settings."""
    parts = digits(seed)
    place = in_order(parts[0][1], order)
    keys, values = parts[0][0][place], values_of(parts[0][1][place])
    constant = torch.tensor(STEPS, dtype=torch.float64)[:, None].expand(-1, STORED)
    time = torch.arange(STORED, dtype=torch.float64)
    shrinking = torch.stack([first / (1 + time / half) for first, half in SHRINKING])
    memories = {
        "sums": (keys.T @ values)[None],
        "delta rule": by_delta_rule(keys, values, constant),
        "delta rule, shrinking step": by_delta_rule(keys, values, shrinking),
        "ridge": _ridges(keys, values),
    }
    shares = {name: tuple(right(m, p) for p in parts[1:]) for name, m in memories.items()}
    on_waves = {"delta rule on waves": [], "delta rule on waves, shrinking step": [], "ridge on waves": []}
    for length in LENGTHS:
        stored, *others = waves(seed, length, parts)
        wide = stored[0][place]
        by_step = by_delta_rule(wide, values, torch.cat([constant, shrinking])).tensor_split((len(STEPS),))
        for name, memory in zip(tuple(on_waves)[:2], by_step, strict=True):
            on_waves[name].append([right(memory, part) for part in others])
    on_waves["ridge on 64 waves"] = []
    for length in SMALL_LENGTHS + LENGTHS:
        for name, count in (("ridge on 64 waves", 64), ("ridge on waves", FEATURES)):
            stored, *others = waves(seed, length, parts, count)
            memory = _ridges(stored[0][place], values)
            on_waves[name].append([right(memory, part) for part in others])
    shares |= {name: tuple(map(torch.cat, zip(*rows, strict=True))) for name, rows in on_waves.items()}
    kept = torch.randperm(STORED, generator=torch.Generator().manual_seed(200 + seed))[:SAMPLE]
    sample = parts[0][0][kept], values_of(parts[0][1][kept])  # the same pairs in either order
    shares["softmax over 41 pairs"] = tuple(_softmax(p, *sample) for p in parts[1:])
    shares["softmax over all pairs"] = tuple(_softmax(p, keys, values) for p in parts[1:])
    return shares


@cache
def closing() -> dict[tuple[str, str], list[float]]:
    """Return the share of new digits right, by kind and order, in five splits, at the setting best on the tuning digits."""
    found = {}
    for order in ORDERS:
        for seed in SEEDS:
            for name, (tuning, new) in swept(seed, order).items():
                found.setdefault((name, order), []).append(float(new[tuning.argmax()]))
    return found
