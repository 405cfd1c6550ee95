"""What a state of fixed size can recall: small decoders trained on pairs to look up and texts to copy (lesson 20).

Softmax attention keeps every token, in a memory that grows. Linear attention keeps d x d sums, in which pairs lie on top of
each other. Each decoder here is one layer of one head; its convolution lets the key of a token come from the token before,
so that one layer is enough to look up "what came after this token". All sums have d x d numbers (linear and decay one
column more, for the denominator), and the window of softmax as many: d / 2 keys and values. Positions are given to "softmax,
positions" only, which rotates queries and keys; a decay and the delta rule see the order of the tokens by themselves.

`recall_decoder` makes a `Decoder` as it is used, with the feature map and the denominator of each form. `MemoryDecoders`
compares the rules alone: all see the same unit keys, each has one gate, none has a denominator, and many runs with seeds
and step sizes of their own are trained side by side, as one batch of products.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import cross_entropy

from course_lib.attention.feature_maps import elu_features
from course_lib.attention.layers import Decoder, DecoderConfig
from course_lib.attention.rotary import apply_rotary, rope_frequencies, rotary_table

HEAD_DIM = 16
D_MODEL = 64
WINDOW = HEAD_DIM // 2  # so many keys and values are as many numbers as the matrix
RULES = ("sums", "decay", "delta", "softmax", "window")
# The gate at the start: half a pair is written, or seven eighths of the past are kept.
GATE_BIAS = {"decay": math.log(7)}
NO_ANSWER = -100  # what cross_entropy leaves out
FORMS: Mapping[str, dict] = {
    "softmax": {"attention": "softmax"},
    "softmax, positions": {"attention": "softmax", "rope_base": 100},
    "softmax, window": {"attention": "softmax", "window": WINDOW},
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
    sizes = {
        "d_model": D_MODEL,
        "n_layers": 1,
        "n_heads": 1,
        "head_dim": HEAD_DIM,
        "d_mlp": 0,
        "conv_width": 2,
    }
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


# Many small decoders at once


class MemoryDecoders(nn.Module):
    """Decoders of one layer and one head, side by side, which differ in how a token is written and in nothing else.

    The first three rules keep a HEAD_DIM x HEAD_DIM matrix U of the past. They see the same unit keys and queries, have no
    denominator, and each has one gate a token, g = sigmoid(w.x + b). With k and v the key and the value of a token:

    - "sums": U += g k v^T, the gate is the strength of writing;
    - "decay": U = g U + k v^T, the gate is what is kept (20.6);
    - "delta": U += g k (v - U^T k)^T, the gate is the step size (20.4).

    A token reads U^T q after its own pair was written. With `positive`, keys and queries go through elu(x) + 1 before they
    are brought to length 1: no entry is negative, and a large one can stand nearly alone. Beside them stand "softmax" over
    all tokens, with rotary positions, and "window", softmax over the last WINDOW tokens; both take keys of any length and
    have no gate. A run starts from numbers that depend on its seed, not on the rule.

    Shapes: parameters and tokens have the runs, one for each of `seeds`, as first dimension.

    Raises:
        ValueError: the rule is none of RULES, or `seeds` is empty.
    """

    def __init__(self, rule: str, *, vocab_size: int, seeds: Sequence[int], positive: bool = False):
        super().__init__()
        if rule not in RULES or not seeds:
            raise ValueError(
                f"rule must be one of {list(RULES)} and seeds name a run or more, got {rule!r}, {seeds}"
            )
        self.rule, self.positive, self.seeds = rule, positive, tuple(seeds)
        shapes = {
            "project_in": (D_MODEL, 3 * HEAD_DIM),
            "taps": (2, 3 * HEAD_DIM),
            "project_out": (HEAD_DIM, D_MODEL),
            "unembed": (D_MODEL, vocab_size),
            "gate": (D_MODEL, 1),
        }
        drawn: dict[str, list[Tensor]] = {name: [] for name in ("embed", *shapes)}
        for seed in seeds:  # as nn.Embedding and nn.Linear start
            generator = torch.Generator().manual_seed(seed)
            options = {"generator": generator, "dtype": torch.float32}
            drawn["embed"].append(torch.randn(vocab_size, D_MODEL, **options))
            for name, (rows, columns) in shapes.items():
                drawn[name].append((2 * torch.rand(rows, columns, **options) - 1) * rows**-0.5)
        for name, tensors in drawn.items():
            self.register_parameter(name, nn.Parameter(torch.stack(tensors)))
        bias = torch.full((len(seeds), 1, 1), GATE_BIAS.get(rule, 0.0), dtype=torch.float32)
        self.gate_bias = nn.Parameter(bias)
        for name in ("norm_in", "norm_out"):
            weight = torch.ones(len(seeds), 1, 1, D_MODEL, dtype=torch.float32)
            self.register_parameter(name, nn.Parameter(weight))

    def forward(self, tokens: Int[Tensor, "runs batch seq"]) -> Float[Tensor, "runs batch seq vocab"]:
        """Return the logits at each token."""
        runs = torch.arange(len(tokens), device=tokens.device)[:, None, None]
        x = self.embed[runs, tokens]
        normed = functional.rms_norm(x, x.shape[-1:], eps=1e-6) * self.norm_in
        mixed = normed @ self.project_in[:, None]
        before = functional.pad(mixed, (0, 0, 1, 0))[..., :-1, :]
        mixed = mixed * self.taps[:, None, None, 0] + before * self.taps[:, None, None, 1]
        gate = (normed @ self.gate[:, None] + self.gate_bias[:, None])[..., 0].sigmoid()
        x = x + self._read(*mixed.chunk(3, -1), gate) @ self.project_out[:, None]
        return (functional.rms_norm(x, x.shape[-1:], eps=1e-6) * self.norm_out) @ self.unembed[:, None]

    def _read(self, q: Tensor, k: Tensor, v: Tensor, gate: Tensor) -> Tensor:
        """What each token reads, all tokens at once, (runs, batch, seq, d); `gate` is (runs, batch, seq)."""
        if self.rule in ("softmax", "window"):
            return self._softmax(q, k) @ v
        if self.positive:
            q, k = elu_features(q), elu_features(k)
        q, k = (functional.normalize(t, dim=-1) for t in (q, k))
        scores = (q @ k.mT).tril()
        if self.rule == "sums":
            return (scores * gate[..., None, :]) @ v
        if self.rule == "decay":  # the product of the gates behind token j, up to token i
            kept = gate.log().cumsum(-1)
            return (scores * (kept[..., :, None] - kept[..., None, :]).tril().exp()) @ v
        # What is written, u_i = g_i (v_i - sum_(j < i) (k_i.k_j) u_j), solves a triangular system.
        system = (gate[..., None] * (k @ k.mT)).tril(-1) + torch.eye(
            k.shape[-2], device=k.device, dtype=k.dtype
        )
        written = torch.linalg.solve_triangular(system, gate[..., None] * v, upper=False, unitriangular=True)
        return scores @ written

    def _softmax(self, q: Tensor, k: Tensor) -> Tensor:
        length = k.shape[-2]
        seen = torch.ones(length, length, dtype=torch.bool, device=k.device).tril()
        if self.rule == "window":
            seen = seen.triu(1 - WINDOW)
        else:
            table = rotary_table(torch.arange(length, device=k.device), rope_frequencies(HEAD_DIM, base=100))
            q, k = (apply_rotary(t, table, layout="half") for t in (q, k))
        return (q @ k.mT * HEAD_DIM**-0.5).masked_fill(~seen, -math.inf).softmax(-1)

    def texts(
        self, task: Task, batch: int, size: int, generators: Mapping[int, torch.Generator]
    ) -> tuple[Tensor, Tensor]:
        """Draw texts and answers for all runs, (runs, batch, seq): those of equal seeds get equal ones."""
        device = self.embed.device
        by_seed = {
            seed: task(batch, size, generator=generator, device=device)
            for seed, generator in generators.items()
        }
        tokens, answers = zip(*(by_seed[seed] for seed in self.seeds), strict=True)
        return torch.stack(tokens), torch.stack(answers)


def train_side_by_side(
    models: MemoryDecoders,
    task: Task,
    sizes: Sequence[int],
    *,
    steps: int,
    step_sizes: Sequence[float],
    batch: int = 16,
) -> None:
    """Train each run with its own step size: Adam, which rises for a tenth of the steps and falls to 0 by a cosine.

    Shapes: `step_sizes` has one number for each run; texts of all `sizes` come in turn.

    Raises:
        ValueError: there is not one step size for each run.
    """
    if len(step_sizes) != len(models.seeds):
        raise ValueError(
            f"step_sizes must hold {len(models.seeds)} numbers, one a run, got {len(step_sizes)}"
        )
    device = models.embed.device
    generators = {seed: torch.Generator(device).manual_seed(seed) for seed in models.seeds}
    rates = models.embed.new_tensor(step_sizes)
    weights = list(models.parameters())
    means = [torch.zeros_like(w) for w in weights]
    squares = [torch.zeros_like(w) for w in weights]
    for step in range(1, steps + 1):
        tokens, answers = models.texts(task, batch, sizes[step % len(sizes)], generators)
        asked = (answers[0] != NO_ANSWER).sum()
        # A sum over runs of means over answers: no run's gradient depends on another run.
        loss = cross_entropy(
            models(tokens).flatten(0, 2), answers.flatten(), ignore_index=NO_ANSWER, reduction="sum"
        )
        models.zero_grad()
        (loss / asked).backward()
        done = step / steps
        factor = min(10 * done, 0.5 + 0.5 * math.cos(math.pi * max(0.0, (done - 0.1) / 0.9)))
        with torch.no_grad():
            for weight, mean, square in zip(weights, means, squares, strict=True):
                if weight.grad is None:  # softmax has no gate
                    continue
                mean.lerp_(weight.grad, 0.1)
                square.lerp_(weight.grad**2, 0.05)
                change = (mean / (1 - 0.9**step)) / ((square / (1 - 0.95**step)).sqrt() + 1e-8)
                weight -= factor * rates.view(-1, *[1] * (weight.ndim - 1)) * change


@torch.no_grad()
def shares_right(
    models: MemoryDecoders, task: Task, size: int, *, batch: int = 128, first_seed: int = 10_000
) -> Float[Tensor, " runs"]:
    """Return for each run the share of answers, on new texts, to which it gives the largest logit."""
    device = models.embed.device
    generators = {seed: torch.Generator(device).manual_seed(first_seed + seed) for seed in models.seeds}
    tokens, answers = models.texts(task, batch, size, generators)
    asked = answers != NO_ANSWER
    right = (models(tokens).argmax(-1) == answers) & asked
    return right.flatten(1).sum(1) / asked.flatten(1).sum(1)
