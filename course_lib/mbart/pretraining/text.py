"""Pretrain a small mBART on a table of parallel text, on a GPU or on the CPU.

The objectives are those of `pretrain`. What differs is what real text and a GPU ask for: the text is small and read many
times, so that there are dropout and label smoothing, and rows in place of families; all of it lies on the device as
padded rows of ids, from which a step takes the rows that the host has drawn, without waiting for the device.
"""

import hashlib
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional
from tqdm.auto import tqdm
from transformers import MBart50Tokenizer, MBartForConditionalGeneration
from transformers.models.mbart.modeling_mbart import shift_tokens_right
from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES

from course_lib.language.text import NO_LANGUAGES, SPLITS, read_parallel_table
from course_lib.mbart.activations import uncounted_ids
from course_lib.mbart.pretraining.config import TextConfig
from course_lib.mbart.pretraining.examples import Texts, denoising_pair
from course_lib.mbart.pretraining.model_card import text_card
from course_lib.mbart.pretraining.pretrain import (
    Made,
    alignment_loss,
    build,
    draw_kind,
    random_model,
    read_checkpoint,
    schedule,
    write_checkpoint,
)
from course_lib.mbart.pretraining.text_scores import chrf_of_sacrebleu, held_out_text_scores
from course_lib.mbart.pretraining.tokenizer import train_tokenizer
from course_lib.mbart.translation import pad_rows

_WIDTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
# Steps between two moments at which the host waits for the device, and at which a run can be saved.
_CHUNK = 50


@dataclass(frozen=True)
class Table:
    """Parallel text: the sentences of each side of the split in each language, row by row, and the file's SHA-256."""

    sha256: str
    train: dict[str, list[str]]
    test: dict[str, list[str]]

    @property
    def languages(self) -> tuple[str, ...]:
        """mBART-50's codes of the columns."""
        return tuple(self.train)


def read_table(path: Path | str) -> Table:
    """Read a table separated by tabs or, in a .csv, by commas (`read_parallel_table`).

    Its first line names the columns, among them split (train or test) and two or more languages: mBART-50's codes, or
    their first two letters; page and id are not read. Raises ValueError, with the line, for anything else, and where a
    side of the split has no row.
    """
    read = read_parallel_table(path)
    columns = read.languages(FAIRSEQ_LANGUAGE_CODES)
    others = set(read.names) - set(NO_LANGUAGES) - {read.names[place] for place in columns.values()}
    if "split" not in read.names or others or len(columns) < 2:
        raise ValueError(
            f"{path} begins with {read.names}; expected the names of columns: split, two or more of mBART-50's languages "
            "such as en or en_XX, and perhaps page and id"
        )
    sides: dict[str, dict[str, list[str]]] = {side: {code: [] for code in columns} for side in SPLITS}
    for (number, fields), out in zip(read.rows, read.held_out(), strict=True):
        if not all(fields[i] for i in columns.values()):
            raise ValueError(f"{path}, line {number}: expected text in each language")
        for code, i in columns.items():
            sides["test" if out else "train"][code].append(fields[i])
    for side in SPLITS:
        if not next(iter(sides[side].values())):
            raise ValueError(f"{path} has no row whose split is {side}")
    return Table(hashlib.sha256(Path(path).read_bytes()).hexdigest(), sides["train"], sides["test"])


def text_config(table: Table, config: TextConfig | None = None) -> TextConfig:
    """The configuration with what the table decides."""
    rows = len(table.train[table.languages[0]])
    return replace(config or TextConfig(), text=table.sha256, languages=table.languages, n_meanings=rows)


def pretrain_on_text(
    table: Table,
    config: TextConfig,
    out: Path | str,
    *,
    n_scored: int = 1000,
    checkpoint_every: int = 500,
    device: torch.device | str = "cpu",
    source: str = "",
    progress: bool = True,
) -> dict[str, float]:
    """Train tokenizer and model on the table's training rows, score them on `n_scored` held-out ones, write both to `out`.

    What is written, when, and how a run that was stopped continues are as in `pretrain`. `source` is a sentence for the
    model card on where the text is from and its licence. Raises ValueError where `config` is of another table, and
    RuntimeError where sacrebleu, which the extra `translation` brings, is not installed.
    """
    if config != text_config(table, config):
        raise ValueError("the configuration is of another table; expected text_config(table, config)")

    chrf_of_sacrebleu()  # better asked before the training than after it

    def made(checkpoint: Path) -> Made:
        tokenizer = text_tokenizer(table, config)
        data = TextData(table, tokenizer, config, device=device)
        model = random_model(config, tokenizer, seed=config.seed).to(device)
        started = time.perf_counter()
        losses, earlier = train_on_text(
            model, data, config, checkpoint=checkpoint, checkpoint_every=checkpoint_every, progress=progress
        )
        minutes = (earlier + time.perf_counter() - started) / 60
        model = model.half().float().eval()  # score what is stored
        scores = {"training_minutes": minutes, "final_training_loss": float(np.mean(losses[-50:]))}
        untrained = random_model(config, tokenizer, seed=config.seed + 1).to(device).eval()
        held_out = fitting(table.test, tokenizer, config)
        scores |= held_out_text_scores(model, tokenizer, config, held_out, n_scored=n_scored)
        measured = held_out_text_scores(untrained, tokenizer, config, held_out, n_scored=n_scored)
        of_the_text = ("rows", "chrf_copied")
        scores |= {f"random_weights_{n}": v for n, v in measured.items() if not n.startswith(of_the_text)}
        card = text_card(
            config,
            scores,
            name=Path(out).name,
            parameters=model.num_parameters(),
            device=model.device,
            source=source,
            rows=len(data),
        )
        return Made(model, tokenizer, scores, card)

    return build(config, Path(out), made)


def text_tokenizer(table: Table, config: TextConfig) -> MBart50Tokenizer:
    """SentencePiece unigram pieces of the training rows of all languages."""
    return train_tokenizer([text for texts in table.train.values() for text in texts], pieces=config.pieces)


def fitting(
    texts: dict[str, list[str]], tokenizer: MBart50Tokenizer, config: TextConfig
) -> dict[str, list[str]]:
    """The rows that have at most `config.max_tokens` tokens in each language, language code and `</s>` included.

    Raises ValueError where there is none.
    """
    lengths = [
        [len(ids) + 2 for ids in tokenizer(column, add_special_tokens=False)["input_ids"]]
        for column in texts.values()
    ]
    fits = [max(row) <= config.max_tokens for row in zip(*lengths, strict=True)]
    if not any(fits):
        raise ValueError(f"no row has at most {config.max_tokens} tokens in each language")
    return {
        code: [text for text, fit in zip(column, fits, strict=True) if fit] for code, column in texts.items()
    }


class TextData:
    """The training rows of a table, and noised documents of them, as padded ids on a device.

    `batch` takes rows of like length: what it pads is known beforehand for each pair of languages.
    """

    def __init__(
        self, table: Table, tokenizer: MBart50Tokenizer, config: TextConfig, *, device: torch.device | str
    ) -> None:
        texts = Texts(fitting(table.train, tokenizer, config), tokenizer)
        self._pad = tokenizer.pad_token_id
        self.device = torch.device(device)
        skipped = torch.tensor([self._pad, *uncounted_ids(tokenizer, include_special=False).tolist()])
        self.counted: Bool[Tensor, " ids"] = ~torch.isin(torch.arange(len(tokenizer)), skipped).to(
            self.device
        )
        sentences, lengths = [], []
        for code in texts.languages:
            begin, end = tokenizer.lang_code_to_id[code], tokenizer.eos_token_id
            rows = [[begin, *texts.sentence(code, i), end] for i in range(texts.n_meanings)]
            sentences.append(self._padded(rows, config.max_tokens))
            lengths.append(np.array([len(row) for row in rows]))
        self._sentences = torch.stack(sentences).to(self.device)
        self._pairs = [
            (a, b, _by_width(np.maximum(lengths[a], lengths[b])))
            for a in range(len(lengths))
            for b in range(len(lengths))
            if a != b
        ]
        rng = np.random.default_rng([config.seed, 1])
        drawn = (denoising_pair(texts, tokenizer, config, rng) for _ in range(config.noised_documents))
        documents = [pair for pair in drawn if max(map(len, pair)) <= config.max_tokens]
        self._documents = _by_width(np.array([max(map(len, pair)) for pair in documents], dtype=int))
        noised, originals = zip(*documents, strict=True) if documents else ((), ())
        self._noised, self._originals = (
            self._padded(rows, config.max_tokens).to(self.device) for rows in (noised, originals)
        )

    def __len__(self) -> int:
        return self._sentences.shape[1]

    def _padded(self, rows, width: int) -> Int[Tensor, "rows width"]:
        return pad_rows([*rows, [self._pad] * width], self._pad)[:-1].int()

    def batch(
        self, rng: np.random.Generator, size: int, *, denoise: bool
    ) -> tuple[Int[Tensor, "batch width"], Int[Tensor, "batch width"]]:
        """Rows to read and rows to write: documents and what they were, or sentences and their translations."""
        if denoise and self._documents:
            width, rows = self._draw(rng, self._documents, size)
            sources, targets = self._noised, self._originals
        else:
            source, target, by_width = self._pairs[rng.integers(len(self._pairs))]
            width, rows = self._draw(rng, by_width, size)
            sources, targets = self._sentences[source], self._sentences[target]
        return sources[rows, :width].long(), targets[rows, :width].long()

    def _draw(
        self, rng: np.random.Generator, by_width: dict[int, np.ndarray], size: int
    ) -> tuple[int, Tensor]:
        counts = np.array([len(rows) for rows in by_width.values()])
        width, rows = list(by_width.items())[rng.choice(len(counts), p=counts / counts.sum())]
        chosen = torch.from_numpy(rng.choice(rows, size=min(size, len(rows)), replace=False))
        if self.device.type == "cuda":
            chosen = chosen.pin_memory()
        return width, chosen.to(self.device, non_blocking=True)


def _by_width(lengths: np.ndarray) -> dict[int, np.ndarray]:
    """The rows of each width to pad to, without widths that have none."""
    places = np.searchsorted(_WIDTHS, lengths)
    return {width: np.flatnonzero(places == i) for i, width in enumerate(_WIDTHS) if (places == i).any()}


def train_on_text(
    model: MBartForConditionalGeneration,
    data: TextData,
    config: TextConfig,
    *,
    checkpoint: Path | None = None,
    checkpoint_every: int = 500,
    progress: bool = True,
) -> tuple[list[float], float]:
    """Train in place; returns the loss of every step, and the seconds that went into the steps before this call.

    As `train`, with dropout; the loss is that with label smoothing, plus the loss of alignment where there is one.
    A run that continues from a checkpoint draws the batches, and the dropout, that it would have drawn without the stop.
    """
    rng = np.random.default_rng([config.seed, 0])
    fused = data.device.type in ("cpu", "cuda")
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=0.0, betas=(0.9, 0.98), weight_decay=config.weight_decay, fused=fused
    )
    losses: list[float] = []
    earlier, started = 0.0, time.perf_counter()
    if checkpoint and checkpoint.exists():
        losses, earlier = read_checkpoint(checkpoint, config, model, optimiser, rng)
    attention = model.config._attn_implementation
    model.set_attn_implementation("eager")  # it asks nothing of the device; sentences are short
    model.train()
    saved = len(losses)
    bar = tqdm(initial=saved, total=config.steps, desc="pretraining", unit="step", disable=not progress)
    devices = [data.device] if data.device.type == "cuda" else []
    with bar, torch.random.fork_rng(devices=devices):
        while len(losses) < config.steps:
            first, last = len(losses), min(len(losses) + _CHUNK, config.steps)
            torch.manual_seed(config.seed * 1_000_003 + first)  # of the dropout
            pending = []
            for step in range(first, last):
                denoise, aligned, _ = draw_kind(config, rng, step=step)
                sources, targets = data.batch(rng, config.batch_size, denoise=denoise)
                with torch.autocast(data.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
                    loss = _loss(model, data.counted, config, sources, targets, aligned=aligned)
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_gradient_norm)
                optimiser.param_groups[0]["lr"] = config.step_size * schedule(step, config)
                optimiser.step()
                pending.append(loss.detach())
            losses += torch.stack(pending).tolist()
            bar.update(last - first)
            bar.set_postfix(loss=f"{np.mean(losses[-_CHUNK:]):.3f}", refresh=False)
            if checkpoint and (len(losses) - saved >= checkpoint_every or last == config.steps):
                saved = len(losses)
                seconds = earlier + time.perf_counter() - started
                write_checkpoint(checkpoint, config, model, optimiser, rng, losses, seconds)
    model.set_attn_implementation(attention)
    return losses, earlier


def _loss(
    model: MBartForConditionalGeneration,
    counted: Bool[Tensor, " ids"],
    config: TextConfig,
    sources: Int[Tensor, "batch width"],
    targets: Int[Tensor, "batch width"],
    *,
    aligned: bool,
) -> Float[Tensor, ""]:
    """Cross-entropy of the targets with label smoothing, and with `aligned` the loss of alignment besides."""
    pad = model.config.pad_token_id
    encoded = model.model.encoder(input_ids=sources, attention_mask=sources != pad)
    logits = model(
        encoder_outputs=encoded,
        attention_mask=sources != pad,
        decoder_input_ids=shift_tokens_right(targets, pad),
        use_cache=False,
    ).logits
    loss = functional.cross_entropy(
        logits.flatten(0, 1).float(),
        targets.flatten(),
        ignore_index=pad,
        label_smoothing=config.label_smoothing,
    )
    if not aligned:
        return loss
    read = model.model.encoder(input_ids=targets, attention_mask=targets != pad)
    return loss + alignment_loss(
        encoded.last_hidden_state,
        counted[sources],
        read.last_hidden_state,
        counted[targets],
        config.alignment_temperature,
    )
