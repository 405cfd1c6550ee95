"""Pretrain a small mBART: denoising as published, with a share of translation as mBART-50 adds it.

Denoising alone gives each language states of its own; translation pairs make one meaning look alike in
all of them, which is what features across languages need. Text is in the format of mBART-50's
tokenizer: `lang X </s>` on both sides, documents of several sentences as `lang X </s> Y </s>`, and the
decoder reads the target shifted right, `</s> lang X`. (mBART's first release wrote `X </s> lang`.)
"""

import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import sentencepiece
import torch
from jaxtyping import Int
from torch import Tensor
from tqdm.auto import tqdm
from transformers import MBart50Tokenizer, MBartConfig, MBartForConditionalGeneration

from course_lib.mbart.corpus import LANGUAGES, draw_meanings, render
from course_lib.mbart.model_card import model_card
from course_lib.mbart.noise import Document, Word, noise

IGNORED = -100
"""The label that transformers' loss leaves out."""

# Characters that the tokenizer knows even where the corpus has none of them: learners type their own.
_REQUIRED_CHARACTERS = "".join(map(chr, range(33, 127))) + "àâäáçéèêëíîïñóôöœúùûüßÀÂÄÁÇÉÈÊËÍÎÏÑÓÔÖŒÚÙÛÜ¿¡«»’"


@dataclass(frozen=True)
class PretrainConfig:
    """What decides the result: model, data, noise and optimiser. The defaults made `course-mbart`.

    `span_mean` is BART's Poisson mean; mBART's paper prints 3.5. `translation_share` is the share of
    steps that translate a batch instead of denoising it. There is no dropout: text is drawn in such
    numbers that hardly any of it is seen twice.
    """

    d_model: int = 256
    layers: int = 3
    heads: int = 4
    ffn_dim: int = 768
    max_positions: int = 512
    pieces: int = 1600
    n_meanings: int = 60_000
    steps: int = 1800
    batch_size: int = 64
    max_document: int = 3
    translation_share: float = 0.5
    mask_share: float = 0.35
    span_mean: float = 3.0
    learning_rate: float = 1e-3
    warmup_steps: int = 100
    weight_decay: float = 0.01
    max_gradient_norm: float = 1.0
    seed: int = 0

    def __post_init__(self):
        if self.steps < 1 or self.n_meanings < 1 or self.batch_size < 1 or self.max_document < 1:
            raise ValueError(
                f"steps, n_meanings, batch_size and max_document are {self.steps}, {self.n_meanings}, "
                f"{self.batch_size}, {self.max_document}; expected 1 or more of each"
            )
        if not 0 <= self.translation_share <= 1:
            raise ValueError(f"translation_share is {self.translation_share}; expected a share in [0, 1]")


def pretrain(
    config: PretrainConfig, out: Path, *, n_scored: int = 1000, progress: bool = True
) -> dict[str, float]:
    """Train tokenizer and model, score them on `n_scored` held-out meanings, and write them to `out`.

    `out` then holds what `save_pretrained` writes for both (weights in half precision), `scores.json`
    and a model card. It appears only when it is complete. Returns the scores.

    The same configuration gives the same weights on the same machine, library versions and number of
    torch threads. Raises FileExistsError when `out` exists and is not an empty directory.
    """
    from course_lib.mbart.scores import held_out_scores  # it measures what this module builds

    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out} exists and is not an empty directory; name a new one or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    tokenizer, texts = _tokenizer_and_texts(config)
    model = random_model(config, tokenizer, seed=config.seed)
    losses = train(model, tokenizer, texts, config, progress=progress)
    minutes = (time.perf_counter() - started) / 60

    model = model.half().float().eval()  # score what is stored
    scores = {"training_minutes": minutes, "final_training_loss": float(np.mean(losses[-50:]))}
    untrained = random_model(config, tokenizer, seed=config.seed + 1).eval()
    for prefix, scored in (("", model), ("random_weights_", untrained)):
        measured = held_out_scores(scored, tokenizer, config, n_scored=n_scored, progress=progress)
        scores |= {prefix + name: value for name, value in measured.items()}

    partial = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        partial.chmod(0o755)
        model.half().save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        (partial / "pretrain.json").write_text(json.dumps(asdict(config), indent=2) + "\n")
        (partial / "scores.json").write_text(json.dumps(scores, indent=2) + "\n")
        card = model_card(
            config, scores, n_scored=n_scored, parameters=model.num_parameters(), languages=LANGUAGES
        )
        (partial / "README.md").write_text(card, encoding="utf-8")
        if out.exists():
            out.rmdir()  # empty, as checked above
        partial.replace(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return scores


def train_tokenizer(texts: Iterable[str], *, pieces: int, seed_sentences: int = 40_000) -> MBart50Tokenizer:
    """SentencePiece unigram pieces in transformers' own MBart50Tokenizer, with mBART-50's language codes.

    Token ids: `<s> <pad> </s> <unk>`, the pieces, 52 language codes, `<mask>`. The text is normalised as
    SentencePiece does it by default (nmt_nfkc), like mBART's. Raises ValueError when the text does not
    yield that many pieces.
    """
    trained = BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=trained,
            model_type="unigram",
            vocab_size=pieces,
            character_coverage=1.0,
            required_chars=_REQUIRED_CHARACTERS,
            num_threads=1,  # sums in one order: the same pieces every time
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(f"pieces is {pieces}, which this text does not yield: {error}") from error
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "sentencepiece.bpe.model").write_bytes(trained.getvalue())
        return MBart50Tokenizer.from_pretrained(directory)


def random_model(
    config: PretrainConfig, tokenizer: MBart50Tokenizer, *, seed: int
) -> MBartForConditionalGeneration:
    """The architecture with fresh weights."""
    architecture = MBartConfig(
        vocab_size=len(tokenizer),
        d_model=config.d_model,
        encoder_layers=config.layers,
        decoder_layers=config.layers,
        encoder_attention_heads=config.heads,
        decoder_attention_heads=config.heads,
        encoder_ffn_dim=config.ffn_dim,
        decoder_ffn_dim=config.ffn_dim,
        max_position_embeddings=config.max_positions,
        scale_embedding=True,
        dropout=0.0,
        decoder_start_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):  # transformers initialises from the global generator
        torch.manual_seed(seed)
        return MBartForConditionalGeneration(architecture)


def train(
    model: MBartForConditionalGeneration,
    tokenizer: MBart50Tokenizer,
    texts: dict[str, list[list[Word]]],
    config: PretrainConfig,
    *,
    progress: bool = True,
) -> list[float]:
    """Train in place; returns the loss of every step (mean cross-entropy a token, in nats).

    AdamW with linear warm-up and cosine decay. `texts` holds the words of each meaning by language.
    """
    rng = np.random.default_rng(config.seed)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=config.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _schedule(step, config))
    model.train()
    losses: list[float] = []
    with tqdm(range(config.steps), desc="pretraining", unit="step", disable=not progress) as bar:
        for _ in bar:
            translate = rng.random() < config.translation_share
            draw = translation_batch if translate else denoising_batch
            inputs, labels = draw(texts, tokenizer, config, rng)
            loss = model(
                input_ids=inputs, attention_mask=inputs != tokenizer.pad_token_id, labels=labels
            ).loss
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_gradient_norm)
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
            bar.set_postfix(loss=f"{np.mean(losses[-50:]):.3f}", refresh=False)
    return losses


def denoising_batch(
    texts: dict[str, list[list[Word]]],
    tokenizer: MBart50Tokenizer,
    config: PretrainConfig,
    rng: np.random.Generator,
) -> tuple[Int[Tensor, "batch source"], Int[Tensor, "batch target"]]:
    """Noised documents and the originals; all documents of a batch have the same number of sentences."""
    languages = list(texts)
    size = int(rng.integers(1, config.max_document + 1))
    sources, targets = [], []
    for _ in range(config.batch_size):
        language = languages[rng.integers(len(languages))]
        code = tokenizer.lang_code_to_id[language]
        document = [texts[language][i] for i in rng.integers(len(texts[language]), size=size)]
        sources.append([code, *noised(document, tokenizer, config, rng).ids])
        targets.append([code, *flatten(document, tokenizer.eos_token_id)])
    return _pad(sources, tokenizer.pad_token_id), _pad(targets, IGNORED)


def translation_batch(
    texts: dict[str, list[list[Word]]],
    tokenizer: MBart50Tokenizer,
    config: PretrainConfig,
    rng: np.random.Generator,
) -> tuple[Int[Tensor, "batch source"], Int[Tensor, "batch target"]]:
    """Sentences and what they are in another language, all ordered pairs of languages alike."""
    languages = list(texts)
    sources, targets = [], []
    for _ in range(config.batch_size):
        pair = rng.choice(len(languages), size=2, replace=False)
        meaning = rng.integers(len(texts[languages[0]]))
        for side, rows in zip(pair, (sources, targets), strict=True):
            sentence = texts[languages[side]][meaning]
            code = tokenizer.lang_code_to_id[languages[side]]
            rows.append([code, *flatten([sentence], tokenizer.eos_token_id)])
    return _pad(sources, tokenizer.pad_token_id), _pad(targets, IGNORED)


def noised(document: Document, tokenizer: MBart50Tokenizer, config: PretrainConfig, rng: np.random.Generator):
    """`noise` with the tokenizer's ids and the configuration's rates."""
    return noise(
        document,
        mask_id=tokenizer.mask_token_id,
        separator_id=tokenizer.eos_token_id,
        mask_share=config.mask_share,
        span_mean=config.span_mean,
        rng=rng,
    )


def flatten(document: Document, separator_id: int) -> list[int]:
    """The token ids of a document, each sentence ended by the separator."""
    return [t for sentence in document for word in (*sentence, (separator_id,)) for t in word]


def words_of(tokenizer: MBart50Tokenizer, texts: Sequence[str]) -> list[list[Word]]:
    """Token ids grouped into words: a word starts at a piece that begins with the blank mark."""
    encoded = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    vocabulary = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    starts = [piece.startswith("▁") for piece in vocabulary]
    sentences = []
    for ids in encoded:
        words: list[list[int]] = []
        for token in ids:
            if starts[token] or not words:
                words.append([])
            words[-1].append(token)
        sentences.append([tuple(word) for word in words])
    return sentences


def _tokenizer_and_texts(config: PretrainConfig) -> tuple[MBart50Tokenizer, dict[str, list[list[Word]]]]:
    meanings = draw_meanings(config.n_meanings, seed=config.seed)
    texts = {language: [render(m, language).text for m in meanings] for language in LANGUAGES}
    sample = [text for language in LANGUAGES for text in texts[language][:20_000]]
    tokenizer = train_tokenizer(sample, pieces=config.pieces)
    return tokenizer, {language: words_of(tokenizer, texts[language]) for language in LANGUAGES}


def _schedule(step: int, config: PretrainConfig) -> float:
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    done = (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps)
    return 0.5 * (1 + np.cos(np.pi * done))


def _pad(rows: list[list[int]], value: int) -> Int[Tensor, "batch tokens"]:
    longest = max(map(len, rows))
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])
