"""A decoder that generates: the time of a token and the memory behind a text, against the length of the text.

Four layers of width 256, 8 heads of 32, a batch of one, float32; one thread and its CPU time, the forms in turn. The
networks around the attention are the same in all forms and count in all times.
"""

import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.timing import Spread, interleave
from course_lib.attention.kernelized import PENDING, Quadratic, elu_features
from course_lib.attention.layers import Decoder, DecoderConfig

CONTEXTS = (1_000, 8_000)
FORMS = {
    "linear, elu": {"attention": "linear", "feature_map": elu_features},
    "linear, quadratic": {"attention": "linear", "feature_map": Quadratic()},
    "decay, elu": {"attention": "decay", "feature_map": elu_features},
    "ridge": {"attention": "ridge"},
    "delta": {"attention": "delta"},
    "softmax, 2 heads of keys": {"attention": "softmax", "n_kv_heads": 2},
    "softmax": {"attention": "softmax"},
}


def behind(options: dict, context: int) -> tuple[Callable, list]:
    """Return a call that takes one token more each time, behind so many, and a list that holds the state."""
    torch.manual_seed(0)
    model = Decoder(DecoderConfig(vocab_size=256, d_model=256, n_layers=4, n_heads=8, **options))
    tokens = torch.randint(256, (1, context), generator=torch.Generator().manual_seed(1))
    held = [model(tokens, return_state=True)[1]]

    def step(_):
        held[0] = model(tokens[:, :1], state=held[0], return_state=True)[1]

    return step, held


@torch.no_grad()
def run() -> dict[str, Spread]:
    """Return milliseconds, ratios and megabytes."""
    torch.set_num_threads(1)
    rows: dict[str, Spread] = {}
    for context in CONTEXTS:
        made = {name: behind(options, context) for name, options in FORMS.items()}
        steps = {name: step for name, (step, _) in made.items()}
        seconds = interleave(steps, rounds=2 * PENDING, clock=time.thread_time, warm_up=2)
        # A round of 64 tokens holds one in which the waiting ones are added to the sums.
        means = {name: np.array(taken).reshape(-1, PENDING).mean(1) for name, taken in seconds.items()}
        for name, taken in means.items():
            rows[f"{name}, {context:,} tokens: ms a token"] = Spread.of(1e3 * taken)
            rows[f"{name}, {context:,} tokens: over softmax"] = Spread.of(taken / means["softmax"])
            rows[f"{name}, {context:,} tokens: MB of state"] = Spread.of([made[name][1][0].nbytes / 1e6])
    return rows
