"""Who walks nearer to the bottom of a bowl with waves, from 16 samples a step: the path, the score function, or a mix?

Dimension k and number T of doublings span a map. On each of its places every arm is tried with twelve step sizes, powers of
two, and with smaller ones as long as the smallest is the best. The one with the smallest mean distance over the choosing
seeds is kept, and what is stored are the distances of other seeds. Rivals of the two are walked on three places of the map.
"""

import torch

from course_lib.lessons.gradient_estimators.waves import ARMS, SAMPLES, STD, STEPS, walk

CHOOSING, SCORED = range(10), range(10, 30)
SEEDS = tuple(SCORED)
DIMENSIONS, DOUBLINGS = (1, 4, 16, 64, 256), (3, 4, 5, 6, 7, 8)
STEP_SIZES = tuple(2.0**-k for k in range(1, 13))
MAPPED = ("path", "score", "mix")
FALLING = ("path", "score")
PLACES = ((1, 8), (64, 4), (256, 3))
SETTINGS = {
    "samples a step": SAMPLES,
    "steps": STEPS,
    "sigma": STD,
    "choosing seeds": len(CHOOSING),
    "step sizes": [STEP_SIZES[-1], STEP_SIZES[0]],
}


def _kept(values) -> list[float | None]:
    """Return distances to four decimals; one that is no number as None."""
    return [round(float(v), 4) if v < 1e6 else None for v in values]


def swept(arm: str, dimension: int, doublings: int, *, falling: bool = False) -> dict:
    """Return the best step size and its distances by seed, and the mean distance at each step size tried."""
    about = {"dimension": dimension, "doublings": doublings, "falling": falling}
    sizes = list(STEP_SIZES)
    while True:
        tried = torch.stack([walk(arm, step_sizes=sizes, seed=s, **about)[-1] for s in CHOOSING]).mean(0)
        best = int(tried.argmin())
        if best < len(sizes) - 1:
            break
        sizes.append(sizes[-1] / 2)
    scored = [walk(arm, step_sizes=sizes[best : best + 1], seed=s, **about)[-1, 0] for s in SCORED]
    return {
        "step size": sizes[best],
        "at an end of the grid": best == 0,
        "distances": _kept(scored),
        "by step size": _kept(tried),
    }


def run() -> dict:
    """Return what was found, by arm and place."""
    torch.set_num_threads(1)
    figures = {}
    for arm in MAPPED:
        for k in DIMENSIONS:
            for doublings in DOUBLINGS:
                figures[f"{arm}, k = {k}, T = {doublings}"] = swept(arm, k, doublings)
    for k, doublings in PLACES:
        for arm in ARMS[len(MAPPED) :]:
            figures[f"{arm}, k = {k}, T = {doublings}"] = swept(arm, k, doublings)
        for arm in FALLING:
            figures[f"{arm}, falling, k = {k}, T = {doublings}"] = swept(arm, k, doublings, falling=True)
    return figures
