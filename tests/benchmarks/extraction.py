"""Extraction at the width of mBART-large, against the matrix products alone and the usual ways to batch.

One layer of the encoder (d 1024, MLP 4096, 16 heads), random weights, 256 sentences whose lengths are
lognormal, 3 to 120 tokens, mean 30. All candidates run in one interleaved loop: one thread, CPU time; on a GPU,
wall time. All but the naive loop run in inference mode.

- floor: the products of the linear layers with as many tokens as there are, in batches of 2048 (8192 on a GPU),
  and nothing else;
- packed: what `extract` does with tokenised sentences, up to the means of the final states;
- character-sorted: transformers' forward on padded batches of 32 sentences by number of characters, which is
  how sentence-transformers batches;
- dataset order: the same in the order of the text;
- naive: transformers' forward on one sentence after the other in float32, gradients left on.
"""

import time
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import MBartConfig, MBartForConditionalGeneration

from course_lib.mbart.activations import Reader, Site, Tokens, Window
from course_lib.mbart.corpus import Sentence
from tests.benchmarks.timing import Spread, interleave

ROUNDS = 7
LAYERS, D_MODEL, FFN = 1, 1024, 4096
BATCH = 32
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
FLOOR_BATCH = 8192 if ON_GPU else 2048


def sentence_ids(n: int = 256) -> tuple[list[list[int]], np.ndarray]:
    """Token ids of sentences, and the number of characters that each would have."""
    rng = np.random.default_rng(0)
    lengths = np.clip(np.round(rng.lognormal(np.log(30) - 0.32, 0.8, n)), 3, 120).astype(int)
    rows = [rng.integers(5, 1000, size=length).tolist() for length in lengths]
    return rows, lengths * rng.lognormal(np.log(4.5), 0.25, n)


def model(dtype: torch.dtype) -> MBartForConditionalGeneration:
    """Return a slice of mBART-large with random weights."""
    config = MBartConfig(
        vocab_size=1000,
        d_model=D_MODEL,
        encoder_layers=LAYERS,
        decoder_layers=1,
        encoder_ffn_dim=FFN,
        decoder_ffn_dim=8,
        encoder_attention_heads=16,
        decoder_attention_heads=16,
        max_position_embeddings=128,
    )
    torch.manual_seed(0)
    return MBartForConditionalGeneration(config).eval().to(DEVICE, dtype)


def products(encoder: nn.Module, tokens: int) -> Callable[[], None]:
    """Return a call of the linear layers' products."""
    weights = [
        weight
        for layer in encoder.layers
        for weight in (
            *(getattr(layer.self_attn, f"{name}_proj").weight for name in ("q", "k", "v", "out")),
            layer.fc1.weight,
            layer.fc2.weight,
        )
    ]
    inputs = {
        width: torch.randn(tokens, width, device=DEVICE, dtype=weights[0].dtype) for width in (D_MODEL, FFN)
    }

    def call() -> None:
        for first in range(0, tokens, FLOOR_BATCH):
            for weight in weights:
                functional.linear(inputs[weight.shape[1]][first : first + FLOOR_BATCH], weight)

    return call


def packed(mbart: MBartForConditionalGeneration, rows: list[list[int]]) -> Callable[[], None]:
    """Return a call of the library on sentences that are tokenised already."""
    tokenizer = SimpleNamespace(eos_token_id=2, lang_code_to_id={})  # the ids are drawn, not tokenised
    reader = Reader(mbart, tokenizer, [Site("encoder")], pool="mean")
    spoken = [Sentence("", None)] * len(rows)
    return lambda: reader.read(Window(spoken, 0, Tokens.of(rows, skipped=reader.skipped), None))


def padded(encoder: nn.Module, rows: list[list[int]], order: np.ndarray, size: int) -> Callable[[], None]:
    """Return a call of transformers' encoder on padded batches, with their masked means."""

    def call() -> None:
        for first in range(0, len(rows), size):
            chosen = [torch.tensor(rows[i]) for i in order[first : first + size]]
            inputs = nn.utils.rnn.pad_sequence(chosen, batch_first=True, padding_value=1)
            mask = (inputs != 1).to(DEVICE)
            states: Tensor = encoder(inputs.to(DEVICE), attention_mask=mask).last_hidden_state
            weights = mask[..., None].to(states.dtype)
            ((states * weights).sum(1) / weights.sum(1)).cpu()

    return call


def _timed(call: Callable[[], None], *, gradients: bool = False) -> Callable[[int], None]:
    def run(_round: int) -> None:
        with torch.inference_mode(not gradients):
            call()
        if ON_GPU:
            torch.cuda.synchronize()

    return run


def run(rounds: int = ROUNDS, n_sentences: int = 256) -> dict[str, Spread]:
    """Measure all rows."""
    torch.set_num_threads(1)
    rows, characters = sentence_ids(n_sentences)
    tokens = sum(map(len, rows))
    by_characters, as_given = np.argsort(-characters), np.arange(len(rows))
    candidates = {}
    for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        mbart = model(dtype)
        encoder = mbart.model.encoder
        candidates |= {
            f"floor {name}": _timed(products(encoder, tokens)),
            f"packed {name}": _timed(packed(mbart, rows)),
            f"sorted {name}": _timed(padded(encoder, rows, by_characters, BATCH)),
            f"order {name}": _timed(padded(encoder, rows, as_given, BATCH)),
        }
        if dtype == torch.float32:
            candidates["naive"] = _timed(padded(encoder, rows, as_given, 1), gradients=True)
    clock = time.perf_counter if ON_GPU else time.thread_time
    measured = interleave(candidates, rounds=rounds, clock=clock, warm_up=1)
    seconds = {name: np.array(values) for name, values in measured.items()}
    suffix = ", GPU" if ON_GPU else ""
    figures = {}
    for name in ("float32", "bfloat16"):
        ours = seconds[f"packed {name}"]
        for other, label in (
            ("floor", "matrix products alone"),
            ("sorted", "character-sorted batches of 32"),
            ("order", "dataset order, batches of 32"),
        ):
            figures[f"{label} / packed, {name}{suffix}"] = Spread.of(seconds[f"{other} {name}"] / ours)
        figures[f"naive float32 loop / packed, {name}{suffix}"] = Spread.of(seconds["naive"] / ours)
        figures[f"packed, thousand tokens a second, {name}{suffix}"] = Spread.of(tokens / 1000 / ours)
    return figures
