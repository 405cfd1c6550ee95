"""Extraction at the width of mBART-large, against the matrix products alone and the usual ways to batch.

One layer of the encoder (d 1024, MLP 4096, 16 heads), random weights, 256 sentences whose lengths are
lognormal, 3 to 120 tokens, mean 30. All candidates run in one interleaved loop: one thread, CPU time of the whole
process (OpenVINO computes on a thread of its own); on a GPU, wall time. All but the naive loop run in inference mode.

- floor: the products of the linear layers with as many tokens as there are, in batches of 2048 (8192 on a GPU),
  and nothing else;
- packed: what `extract` does with tokenised sentences, up to the means of the final states;
- character-sorted: transformers' forward on padded batches of 32 sentences by number of characters, which is
  how sentence-transformers batches;
- dataset order: the same in the order of the text;
- naive: transformers' forward on one sentence after the other in float32, gradients left on;
- ONNX Runtime, OpenVINO (on the CPU, where they and onnxscript are installed: `pip install onnxruntime openvino onnx
  onnxscript`): the same encoder and means, exported by `torch.onnx.export`, on padded batches sorted by number of
  tokens, in each of the sizes `PEER_BATCHES`; the fastest counts. bfloat16 only where OpenVINO says that the processor
  has it; ONNX Runtime has no bfloat16 products on x86.
"""

import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import MBartConfig, MBartForConditionalGeneration

from benchmarks.timing import Spread, interleave
from course_lib.language.corpus import Sentence
from course_lib.mbart.activations import Reader, Site, States, Tokens, Window

ROUNDS = 7
LAYERS, D_MODEL, FFN = 1, 1024, 4096
BATCH = 32
PEER_BATCHES = (1, 4, 8, 32)
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


class Unused:
    """A tokenizer that frames sentences by `</s>`; the ids of this benchmark are drawn, not tokenised."""

    pad_token_id, lang_code_to_id = 1, {}

    def __call__(self, _text: str) -> dict[str, list[int]]:
        return {"input_ids": [2]}


def packed(mbart: MBartForConditionalGeneration, rows: list[list[int]]) -> Callable[[], dict[Site, States]]:
    """Return a call of the library on sentences that are tokenised already."""
    tokenizer = Unused()
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


class MeanStates(nn.Module):
    """What the peers compute: the encoder and the mean of its states over real tokens."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Means (sentences, d_model) of padded ids (sentences, tokens)."""
        states = self.encoder(ids, attention_mask=mask).last_hidden_state
        weights = mask[..., None].to(states.dtype)
        return (states * weights).sum(1) / weights.sum(1)


def peers(mbart: MBartForConditionalGeneration) -> dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]]:
    """Calls of the other engines that are installed here, by "NAME, DTYPE", for padded ids and their mask."""
    engines = [name for name in ("onnxruntime", "openvino") if find_spec(name)]
    if ON_GPU or not engines or not find_spec("onnxscript"):
        return {}
    found = {}
    sizes = {0: torch.export.Dim("sentences", min=1, max=4096), 1: torch.export.Dim("tokens", min=2, max=128)}
    example = torch.randint(5, 900, (3, 7)), torch.ones(3, 7, dtype=torch.long)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "encoder.onnx"
        torch.onnx.export(
            MeanStates(mbart.model.encoder),
            example,
            dynamo=True,
            dynamic_shapes={"ids": sizes, "mask": sizes},
            input_names=["ids", "mask"],
            output_names=["means"],
            verbose=False,
        ).save(path)
        # By name: the project does not depend on its peers.
        if "onnxruntime" in engines:
            runtime = import_module("onnxruntime")
            options = runtime.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            found["ONNX Runtime, float32"] = lambda ids, mask: session.run(None, {"ids": ids, "mask": mask})[
                0
            ]
        if "openvino" in engines:
            core = import_module("openvino").Core()
            able = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
            for name, hint in (("float32", "f32"), ("bfloat16", "bf16")):
                if hint == "f32" or "BF16" in able:
                    settings = {
                        "INFERENCE_NUM_THREADS": 1,
                        "NUM_STREAMS": 1,
                        "INFERENCE_PRECISION_HINT": hint,
                    }
                    compiled = core.compile_model(core.read_model(path), "CPU", settings)
                    found[f"OpenVINO, {name}"] = lambda ids, mask, run=compiled: run(
                        {"ids": ids, "mask": mask}
                    )[0]
    return found


def by_tokens(
    run: Callable[[np.ndarray, np.ndarray], np.ndarray], rows: list[list[int]], size: int
) -> Callable[[], np.ndarray]:
    """Return a call of an engine on padded batches of sentences of like numbers of tokens."""
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))

    def call() -> np.ndarray:
        means = np.empty((len(rows), D_MODEL), np.float32)
        for first in range(0, len(rows), size):
            chosen = order[first : first + size]
            ids = np.ones((len(chosen), len(rows[chosen[0]])), np.int64)
            for line, i in zip(ids, chosen, strict=True):
                line[: len(rows[i])] = rows[i]
            means[chosen] = run(ids, (ids != 1).astype(np.int64))
        return means

    return call


def _checked(call: Callable[[], np.ndarray], expected: Tensor, name: str) -> Callable[[], np.ndarray]:
    """The call, if it computes the same: what is fast and wrong is no peer."""
    error = np.abs(call() - expected.float().numpy()).max()
    if error > (1e-4 if name.endswith("float32") else 0.2):
        raise RuntimeError(f"{name} is {error:.2g} away from the library's means; expected the same numbers")
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
            with torch.inference_mode():
                expected = next(iter(packed(mbart, rows)().values())).values
            engines = peers(mbart)
            for engine, call in engines.items():
                for size in PEER_BATCHES:
                    batched = _checked(by_tokens(call, rows, size), expected, engine)
                    candidates[f"{engine}, {size}"] = _timed(batched)
            candidates["naive"] = _timed(padded(encoder, rows, as_given, 1), gradients=True)
    clock = time.perf_counter if ON_GPU else time.process_time
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
        for engine in (engine for engine in engines if engine.endswith(name)):
            best = min((seconds[f"{engine}, {size}"] for size in PEER_BATCHES), key=np.median)
            figures[f"{engine} / packed"] = Spread.of(best / ours)
        figures[f"naive float32 loop / packed, {name}{suffix}"] = Spread.of(seconds["naive"] / ours)
        figures[f"packed, thousand tokens a second, {name}{suffix}"] = Spread.of(tokens / 1000 / ours)
    return figures
