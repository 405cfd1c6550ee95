"""Small random models of every family that is read, with tokenizers of the real classes, made in a second."""

import json
from io import BytesIO
from pathlib import Path

import sentencepiece
import torch
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    BartTokenizer,
    M2M100Tokenizer,
    MarianTokenizer,
    MBart50Tokenizer,
    MBartTokenizer,
    NllbTokenizer,
)

from course_lib.language.corpus import generate
from course_lib.mbart.families import languages
from tests.tiny_mbart import SENTENCES

# What the checkpoints' config.json say of the architecture: sizes, activation, scale, start of the decoder.
FULL = {
    "facebook/mbart-large-50": dict(
        model_type="mbart", d_model=1024, encoder_layers=12, decoder_layers=12, encoder_attention_heads=16,
        decoder_attention_heads=16, encoder_ffn_dim=4096, decoder_ffn_dim=4096, activation_function="gelu",
        max_position_embeddings=1024, scale_embedding=True, decoder_start_token_id=2,
    ),
    "facebook/bart-large": dict(
        model_type="bart", d_model=1024, encoder_layers=12, decoder_layers=12, encoder_attention_heads=16,
        decoder_attention_heads=16, encoder_ffn_dim=4096, decoder_ffn_dim=4096, activation_function="gelu",
        max_position_embeddings=1024, scale_embedding=False, decoder_start_token_id=2,
    ),
    "facebook/m2m100_418M": dict(
        model_type="m2m_100", d_model=1024, encoder_layers=12, decoder_layers=12, encoder_attention_heads=16,
        decoder_attention_heads=16, encoder_ffn_dim=4096, decoder_ffn_dim=4096, activation_function="relu",
        max_position_embeddings=1024, scale_embedding=True, decoder_start_token_id=2,
    ),
    "Helsinki-NLP/opus-mt-en-de": dict(
        model_type="marian", d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, activation_function="swish",
        max_position_embeddings=512, scale_embedding=True,
    ),
}  # fmt: skip
FULL["facebook/nllb-200-distilled-600M"] = FULL["facebook/m2m100_418M"]
# Each family by the kind of its tokenizer, and the checkpoint whose settings it has.
FAMILIES = {
    "mbart50": "facebook/mbart-large-50",
    "mbart25": "facebook/mbart-large-50",
    "bart": "facebook/bart-large",
    "m2m100": "facebook/m2m100_418M",
    "nllb": "facebook/nllb-200-distilled-600M",
    "nllb-legacy": "facebook/nllb-200-distilled-600M",
    "marian": "Helsinki-NLP/opus-mt-en-de",
    "marian-many": "Helsinki-NLP/opus-mt-en-de",
    "marian-two": "Helsinki-NLP/opus-mt-en-de",
}
# Codes that the tests speak in, where there are any: two languages.
SPOKEN = {
    "mbart50": ("fr_XX", "de_DE"),
    "mbart25": ("fr_XX", "de_DE"),
    "bart": (None, None),
    "m2m100": ("fr", "de"),
    "nllb": ("fra_Latn", "deu_Latn"),
    "nllb-legacy": ("fra_Latn", "deu_Latn"),
    "marian": (None, None),
    "marian-many": ("fra", "deu"),
    "marian-two": (None, None),
}
SMALL = dict(
    d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=2,
    encoder_ffn_dim=24, decoder_ffn_dim=40, max_position_embeddings=64, init_std=0.3,
)  # fmt: skip


def make_tokenizer(family: str, directory: Path):
    """A tokenizer of the family's class for the tiny sentences; files that it needs go to `directory`."""
    words = sorted({word for sentence in SENTENCES for word in sentence.rstrip(".").split()})
    pieces = [*(f"▁{word}" for word in words), "▁", "."]
    if family in ("mbart50", "mbart25"):
        if family == "mbart50":
            first = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0)]
            vocab = [*first, *((piece, -5.0) for piece in pieces)]
            return MBart50Tokenizer(vocab=vocab, bos_token="<s>", src_lang="en_XX")
        first = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
        return MBartTokenizer(vocab=[*first, *((piece, -5.0) for piece in pieces)], src_lang="en_XX")
    letters = sorted({letter for sentence in SENTENCES for letter in sentence} - {" "})
    first = ["<s>", "<pad>", "</s>", "<unk>"]
    if family == "bart":
        return BartTokenizer(vocab={t: i for i, t in enumerate([*first, "Ġ", *letters, "<mask>"])}, merges=[])
    if family.startswith("nllb"):
        vocab = {token: i for i, token in enumerate([*first, "▁", *letters])}
        return NllbTokenizer(vocab=vocab, merges=[], legacy_behaviour=family == "nllb-legacy")
    if family == "marian-two":  # as the checkpoints have it: a model for each side, one vocabulary for both
        files, known = [], []
        for side, language in (("source", "en_XX"), ("target", "de_DE")):
            files.append(directory / f"{side}.model")
            spoken = [sentence.text for sentence in generate(300, seed=0, languages=[language])]
            known += train_pieces(spoken, files[-1], size=200)
        known = sorted(set(known))
    else:
        files = [directory / "pieces.model"] * 2
        known = train_pieces(SENTENCES, files[0], size=50)
    if family == "m2m100":
        vocab = {token: i for i, token in enumerate([*first, *known])}
    else:
        codes = [">>fra<<", ">>deu<<"] if family == "marian-many" else []
        vocab = {token: i for i, token in enumerate(["</s>", "<unk>", *codes, *known, "<pad>"])}
    (directory / "vocab.json").write_text(json.dumps(vocab))
    if family == "m2m100":
        return M2M100Tokenizer(str(directory / "vocab.json"), str(files[0]))
    return MarianTokenizer(*map(str, files), str(directory / "vocab.json"))


def train_pieces(texts: list[str], file: Path, *, size: int) -> list[str]:
    """Write a SentencePiece model of some texts, and return its pieces."""
    trained = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=trained, vocab_size=size, minloglevel=2, num_threads=1
    )
    file.write_bytes(trained.getvalue())
    spm = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    return [spm.id_to_piece(i) for i in range(3, len(spm))]


def make_model(family: str, tokenizer, **settings):
    """A random model with the settings of the family's checkpoint but for `settings`; its norms are no identities."""
    of_checkpoint = dict(FULL[FAMILIES[family]])
    kind = of_checkpoint.pop("model_type")
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "eos")}
    if kind == "marian":
        of_checkpoint |= {"decoder_start_token_id": tokenizer.pad_token_id, "forced_eos_token_id": 0}
    n_ids = max([len(tokenizer), *(1 + i for i in languages(tokenizer).values())])
    config = AutoConfig.for_model(kind, **of_checkpoint | ids | {"vocab_size": n_ids} | settings)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForSeq2SeqLM.from_config(config).eval()
        for name, weights in model.named_parameters():
            if "norm" in name:
                torch.nn.init.normal_(weights, mean=1.0, std=0.3)
    return model


def write_tiny(family: str, directory: Path) -> None:
    """Save a small model and its tokenizer to `directory`."""
    tokenizer = make_tokenizer(family, directory)
    make_model(family, tokenizer, **SMALL).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
