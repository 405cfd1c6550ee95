"""What a state of fixed size can recall: small decoders trained on pairs to look up and texts to copy (lesson 15).

Softmax attention keeps every token, in a memory that grows. Linear attention keeps d x d sums, in which pairs lie on top of
each other. Each decoder here is one layer of one head; its convolution lets the key of a token come from the token before,
so that one layer is enough to look up "what came after this token". All sums have d x d numbers (linear and decay one
column more, for the denominator), and the window of softmax as many: d / 2 keys and values. Positions are given to "softmax,
positions" only, which rotates queries and keys; a decay and the delta rule see the order of the tokens by themselves.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from course_lib.attention.layers import Decoder, DecoderConfig

HEAD_DIM = 16
NO_ANSWER = -100  # what cross_entropy leaves out
FORMS: Mapping[str, dict] = {
    "softmax": {"attention": "softmax"},
    "softmax, positions": {"attention": "softmax", "rope_base": 100},
    "softmax, window": {"attention": "softmax", "window": HEAD_DIM // 2},
    "linear": {"attention": "linear"},
    "decay": {"attention": "decay"},
    "delta": {"attention": "delta"},
}
Task = Callable[..., tuple[Tensor, Tensor]]


def associative_recall(
    batch: int,
    pairs: int,
    *,
    n_keys: int,
    n_values: int = 16,
    rewritten: bool = False,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> tuple[Int[Tensor, "batch tokens"], Int[Tensor, "batch tokens"]]:
    """Draw texts k_1 v_1 k_2 v_2 ... and then keys again, in another order: the answer at each is its latest value.

    Keys differ from each other; with `rewritten` they are drawn anew each time, so that most of them get new values.

    Shapes: 3 x `pairs` tokens each; keys are tokens 0 to n_keys - 1, values the n_values behind them. Answers are tokens,
    NO_ANSWER where nothing is asked.

    Raises:
        ValueError: a number is below 1, or there are more pairs than keys that differ.
    """
    if min(batch, pairs, n_keys, n_values) < 1:
        raise ValueError(
            f"numbers must be 1 or more, got batch {batch}, pairs {pairs}, n_keys {n_keys}, n_values {n_values}"
        )
    if pairs > n_keys and not rewritten:
        raise ValueError(f"{pairs} pairs need as many keys, got n_keys {n_keys}; or rewritten=True")
    options = {"generator": generator, "device": device}
    if rewritten:
        keys = torch.randint(n_keys, (batch, pairs), **options)
    else:
        keys = torch.rand(batch, n_keys, **options).argsort(-1)[:, :pairs]
    values = n_keys + torch.randint(n_values, (batch, pairs), **options)
    asked = keys.gather(1, torch.rand(batch, pairs, **options).argsort(-1))
    order = torch.arange(1, pairs + 1, device=keys.device)
    latest = ((asked[:, :, None] == keys[:, None, :]) * order).argmax(-1)
    told = torch.stack([keys, values], -1).flatten(1)
    answers = torch.cat([torch.full_like(told, NO_ANSWER), values.gather(1, latest)], 1)
    return torch.cat([told, asked], 1), answers


def copying(
    batch: int,
    length: int,
    *,
    n_tokens: int,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
) -> tuple[Int[Tensor, "batch tokens"], Int[Tensor, "batch tokens"]]:
    """Draw texts of tokens that differ, x_1 ... x_n, and then x_1 ... x_(n - 1): the answer at each is the next one.

    Shapes: 2 x `length` - 1 tokens each; answers as in `associative_recall`.

    Raises:
        ValueError: `length` is below 2 or above n_tokens.
    """
    if not 2 <= length <= n_tokens or batch < 1:
        raise ValueError(
            f"length must lie between 2 and n_tokens = {n_tokens} and batch be 1 or more, got {length} and {batch}"
        )
    text = torch.rand(batch, n_tokens, generator=generator, device=device).argsort(-1)[:, :length]
    answers = torch.cat([torch.full_like(text, NO_ANSWER), text[:, 1:]], 1)
    return torch.cat([text, text[:, :-1]], 1), answers


TASKS: Mapping[str, tuple[Task, int]] = {
    "recall": (partial(associative_recall, n_keys=32), 48),
    "rewritten": (partial(associative_recall, n_keys=8, rewritten=True), 24),
    "copying": (partial(copying, n_tokens=48), 48),
}


def recall_decoder(form: str, *, vocab_size: int, seed: int = 0) -> Decoder:
    """Return an untrained decoder of one layer and one head, with no network behind it.

    Raises:
        ValueError: the form is none of FORMS.
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {list(FORMS)}, got {form!r}")
    sizes = {"d_model": 64, "n_layers": 1, "n_heads": 1, "head_dim": HEAD_DIM, "d_mlp": 0, "conv_width": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Decoder(DecoderConfig(vocab_size, **{"rope_base": None} | sizes | FORMS[form]))


def train_to_recall(
    model: Decoder,
    task: Task,
    sizes: tuple[int, ...],
    *,
    steps: int,
    batch: int = 32,
    step_size: float = 2e-2,
    seed: int = 0,
) -> None:
    """Train on texts of all `sizes` in turn, by Adam with a step size that falls to 0; nothing is read back.

    Raises:
        ValueError: `steps` is below 20, too few for a step size that rises in the first tenth of them.
    """
    if steps < 20:
        raise ValueError(f"steps must be at least 20, got {steps}")
    device = model.embed.weight.device
    generator = torch.Generator(device).manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=step_size, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, step_size, total_steps=steps, pct_start=0.1)
    for step in range(steps):
        tokens, answers = task(batch, sizes[step % len(sizes)], generator=generator, device=device)
        loss = cross_entropy(model(tokens).flatten(0, 1), answers.flatten(), ignore_index=NO_ANSWER)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


@torch.no_grad()
def recall_accuracy(model: Decoder, task: Task, size: int, *, batch: int = 64, seed: int = 1) -> float:
    """Return the share of answers, on new texts, to which the model gives the largest logit."""
    device = model.embed.weight.device
    tokens, answers = task(batch, size, generator=torch.Generator(device).manual_seed(seed), device=device)
    asked = answers != NO_ANSWER
    return float((model(tokens).argmax(-1) == answers)[asked].double().mean())
