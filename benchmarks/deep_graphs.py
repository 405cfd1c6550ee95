"""Graph networks of 2 to 32 layers, trained on 20 labels: plain, with a part kept, and with the common part removed.

Six graphs of 200 nodes in two communities; 16 channels; 150 steps of Adam on the labelled nodes. The rate that is best
on average on 60 hidden nodes of each graph is kept, one for each arm and depth; what is stored is the accuracy on the other
120, one figure a graph.
"""

import torch

from course_lib.lessons.graph_networks.communities import RATES, TRAINED, TRAINED_ON, scored, train

SEEDS = TRAINED_ON
DEPTHS = (2, 4, 8, 16, 32)
SETTINGS = {"steps": 150, "width": 16, "depths": list(DEPTHS), "rates": list(RATES)}


def run() -> dict:
    """Return for each arm and depth the best rate, the accuracies at it, and the mean of each rate where it was chosen."""
    torch.set_num_threads(1)
    figures = {}
    for depth in DEPTHS:
        for form in TRAINED:
            found = scored(train(form, depth, RATES, SEEDS), SEEDS)
            chosen = found["choosing"].mean(0)
            best = int(chosen.argmax())
            figures[f"{form}, {depth} layers"] = {
                "best rate": RATES[best],
                "accuracy": [round(float(v), 4) for v in found["test"][:, best]],
                "choosing by rate": {
                    f"{r:g}": round(float(v), 4) for r, v in zip(RATES, chosen, strict=True)
                },
            }
            print(f"{form}, {depth} layers", figures[f"{form}, {depth} layers"], flush=True)
    return figures
