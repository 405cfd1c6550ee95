"""One attention head that learned "which letter stood five back?" on texts of 64 letters, and reads 256 and 1,024.

Five ways to tell it positions, five seeds, five rates, 600 steps of Adam on 8 new texts each. The head with rotary
positions is read by seven rules without further training. Every row - an arm, or a rule - is kept at the rate that is best
for it on texts of 1,024 letters that are used for nothing else, among those at which nine answers in ten are right on 64
letters; what is stored is the share of right answers at the last 16 places of 64 other texts, one figure a seed. "The
same heads" are those of the rate that is best where positions are read as in training. Beside them: heads with biases
that start eight times as large.
"""

import torch

from course_lib.lessons.rotary_position_embedding import experiment as of

SEEDS = (0, 1, 2, 3, 4)
RATES = (2e-3, 6e-3, 2e-2, 6e-2, 0.18)
LENGTHS = (64, 256, 1024)
SETTINGS = {
    "letters in training": of.TRAINED,
    "steps": of.STEPS,
    "texts a step": of.BATCH,
    "rates": list(RATES),
}


def rounded(values: torch.Tensor) -> list[float]:
    """Return shares to four decimals."""
    return [round(float(v), 4) for v in values]


def scored(weights: dict[str, torch.Tensor], length: int, **how) -> torch.Tensor:
    """Return the share of right answers of each seed on 64 texts, sixteen at a time."""
    return torch.stack([of.accuracy(weights, length, texts=16, seed=part, **how) for part in range(4)]).mean(
        0
    )


def run() -> dict:
    """Return for each arm and rule its best rate, its accuracies, and what else the page says of the rotary head."""
    torch.set_num_threads(1)
    figures = {}
    for arm in of.ARMS:
        heads = {rate: of.learn(arm, rate=rate, seeds=SEEDS) for rate in RATES}
        learned = {rate for rate, w in heads.items() if of.accuracy(w, 64, arm=arm, texts=16).mean() >= 0.9}
        for rule in of.RULES if arm == of.ROTARY else (of.AS_TRAINED,):
            how = {"arm": arm, "rule": rule}
            chosen = {
                r: float(of.accuracy(w, 1024, texts=16, seed=99, **how).mean()) for r, w in heads.items()
            }
            best = max(learned or RATES, key=chosen.get)
            figures[rule if arm == of.ROTARY else arm] = {
                "best rate": best,
                "mean by rate": {f"{rate:g}": round(mean, 4) for rate, mean in chosen.items()},
                "accuracy": {str(n): rounded(scored(heads[best], n, **how)) for n in LENGTHS},
            }
            if arm == of.ROTARY:
                head = heads[figures[of.AS_TRAINED]["best rate"]]
                figures[f"{rule}, the same heads"] = rounded(scored(head, 1024, **how))
        if arm == of.ROTARY:
            figures["64 letters from position 1,000"] = rounded(scored(head, 64, start=1000))
            squeezed = scored(head, 256, rule=of.INTERPOLATED, back=4 * of.BACK)
            figures["slowed alike by 4, asked for 20 back"] = rounded(squeezed)
            figures["hands"] = [
                [[round(float(h.real), 4), round(float(h.imag), 4)] for h in one] for one in of.hands(head)
            ]
    head = of.learn(of.ROTARY, rate=figures[of.AS_TRAINED]["best rate"], seeds=SEEDS, biases=1)
    figures["biases eight times as large"] = {str(n): rounded(scored(head, n)) for n in LENGTHS}
    return figures
