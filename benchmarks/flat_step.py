"""How flat should a step be? A matrix learns 64 facts from samples, by momentum flattened more or less (lesson 08).

For each batch size and arm, momentum and rate are chosen on ten seeds and reported on twenty others. Rates are powers of the
root of 2; as long as the best lies at the edge of those tried, another is added. Momenta reach from none to 0.98. With all
facts in every batch nothing is drawn, and one run is reported.
"""

import torch

from course_lib.lessons.newton_schulz_and_muon.facts import ARMS, MOMENTUM, loss, shares, train

SEEDS = tuple(range(30))
CHOSEN_ON = 10
BATCHES = {"16": 16, "64": 64, "256": 256, "1024": 1024, "all": None}
MOMENTA = (0.0, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
SETTINGS = {
    "facts": 64,
    "steps": 50,
    "momenta": list(MOMENTA),
    "rates": "powers of the root of 2",
    "chosen on": "seeds 0 to 9, reported on seeds 10 to 29",
}


def mean_losses(arm: str, drawn: torch.Tensor, momentum: float) -> dict[int, float]:
    """Return the mean loss by power of the root of 2, with the best inside the powers tried."""
    powers = list(range(-12, 5)) if arm != MOMENTUM else list(range(0, 16))
    found = {}
    while powers:
        final = loss(train(arm, drawn, [2 ** (p / 2) for p in powers], momentum=momentum)).mean(0)
        found |= dict(zip(powers, final.tolist(), strict=True))
        best = min(sorted(found), key=found.get)
        edge = {min(found): min(found) - 1, max(found): max(found) + 1}
        powers = [edge[best]] if best in edge else []
    return found


def swept(arm: str, batch: int | None) -> dict:
    """Return the best momentum and rate of an arm, the losses of fresh seeds, and the best mean loss at each momentum."""
    drawn = shares(SEEDS, batch)
    tried = {momentum: mean_losses(arm, drawn[:CHOSEN_ON], momentum) for momentum in MOMENTA}
    lowest = {momentum: min(found.values()) for momentum, found in tried.items()}
    momentum = min(lowest, key=lowest.get)
    found = tried[momentum]
    best = min(found, key=found.get)
    rate = 2 ** (best / 2)
    fresh = drawn[CHOSEN_ON:] if batch else drawn[:1]
    final = loss(train(arm, fresh, [rate], momentum=momentum))[:, 0]
    return {
        "momentum": momentum,
        "rate": round(rate, 6),
        "losses": [round(x, 8) for x in final.tolist()],
        "chosen among rates": [round(2 ** (p / 2), 6) for p in (min(found), max(found))],
        "mean loss by momentum": {f"{m:g}": round(x, 6) for m, x in lowest.items()},
    }


def run() -> dict:
    """Return the sweep of every arm at every batch size."""
    torch.set_num_threads(1)
    return {f"{arm}, batch {name}": swept(arm, batch) for name, batch in BATCHES.items() for arm in ARMS}
