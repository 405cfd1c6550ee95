"""Small random encoder-decoders that are read by transformers' own forward, with tokenizers of their own classes."""

import json
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    BartTokenizer,
    BlenderbotSmallTokenizer,
    BlenderbotTokenizer,
    GemmaTokenizer,
    NllbTokenizer,
    PegasusTokenizer,
    PLBartTokenizer,
    ProphetNetTokenizer,
    T5Tokenizer,
)

from course_lib.mbart.families import languages
from tests.tiny_families import train_pieces
from tests.tiny_mbart import SENTENCES

_BART = dict(
    d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=2,
    encoder_ffn_dim=48, decoder_ffn_dim=40, max_position_embeddings=64, init_std=0.2,
)  # fmt: skip
_T5 = dict(
    d_model=32, d_kv=8, d_ff=48, num_layers=2, num_decoder_layers=2, num_heads=4, decoder_start_token_id=0
)
_SWITCH = dict(num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, num_experts=4, expert_capacity=3)
_GEMMA = dict(
    hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
    query_pre_attn_scalar=8, max_position_embeddings=64, sliding_window=6, initializer_range=0.2,
)  # fmt: skip
# Each family's `model_type`, and what its configuration says besides the tokenizer's ids.
SETTINGS = {
    "t5": ("t5", _T5 | {"feed_forward_proj": "relu"}),
    "t5-gated": ("t5", _T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "mt5": ("mt5", _T5),
    "umt5": ("umt5", _T5),
    "longt5": ("longt5", _T5 | {"local_radius": 3}),
    "longt5-global": (
        "longt5",
        _T5 | {"local_radius": 3, "encoder_attention_type": "transient-global", "global_block_size": 4},
    ),
    "switch": ("switch_transformers", _T5 | _SWITCH),
    # The decoder is narrower than the encoder.
    "t5gemma": ("t5gemma", {"encoder": _GEMMA | {"hidden_size": 48}, "decoder": _GEMMA}),
    "nllb-moe": (
        "nllb-moe",
        _BART | {"num_experts": 4, "encoder_sparse_step": 2, "decoder_sparse_step": 2, "decoder_start_token_id": 2},
    ),
    "pegasus": ("pegasus", _BART | {"decoder_start_token_id": 0, "scale_embedding": True}),
    "bigbird-pegasus": (
        "bigbird_pegasus",
        _BART | {"attention_type": "original_full", "decoder_start_token_id": 2},
    ),
    "blenderbot": ("blenderbot", _BART | {"decoder_start_token_id": 1}),
    "blenderbot-small": ("blenderbot-small", _BART | {"decoder_start_token_id": 1}),
    "plbart": ("plbart", _BART | {"scale_embedding": True}),
    "plbart-bare": ("plbart", _BART | {"scale_embedding": True}),
    "mvp": ("mvp", _BART | {"decoder_start_token_id": 2}),
    "led": (
        "led",
        _BART
        | {
            "attention_window": 4,
            "max_encoder_position_embeddings": 64,
            "max_decoder_position_embeddings": 64,
            "decoder_start_token_id": 2,
        },
    ),
    "prophetnet": (
        "prophetnet",
        dict(
            hidden_size=32, num_encoder_layers=2, num_decoder_layers=2, num_encoder_attention_heads=4,
            num_decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=40, max_position_embeddings=64,
            decoder_start_token_id=0, init_std=0.2,
        ),
    ),
}  # fmt: skip
# Languages that a text and its target are in, of the families that have them.
SPOKEN = {"nllb-moe": ("fra_Latn", "deu_Latn"), "plbart": ("python", "en_XX")}


def make_tokenizer(family: str, directory: Path):
    """A tokenizer of the family's class for the tiny sentences; files that it needs go to `directory`."""
    words = sorted({word for sentence in SENTENCES for word in sentence.rstrip(".").split()})
    letters = sorted({letter for sentence in SENTENCES for letter in sentence} - {" "})
    pieces = [(piece, -5.0) for piece in (*(f"▁{word}" for word in words), "▁", *letters)]
    kind = SETTINGS[family][0]
    fairseq = ["<s>", "<pad>", "</s>", "<unk>"]
    if kind in ("t5", "mt5", "umt5", "longt5", "switch_transformers"):
        return T5Tokenizer(vocab=[("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *pieces], extra_ids=5)
    if kind in ("pegasus", "bigbird_pegasus"):
        first = [
            ("<pad>", 0.0),
            ("</s>", 0.0),
            ("<s>", 0.0),
            ("<unk>", 0.0),
            ("<mask_1>", 0.0),
            ("<mask_2>", 0.0),
        ]
        bos = {} if kind == "pegasus" else {"bos_token": "<s>"}
        return PegasusTokenizer(vocab=[*first, *pieces], offset=5, **bos)
    if kind == "t5gemma":
        first = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
        return GemmaTokenizer(
            vocab={t: i for i, t in enumerate([*first, "▁", *letters])}, merges=[], add_bos_token=True
        )
    if kind == "nllb-moe":
        return NllbTokenizer(vocab={t: i for i, t in enumerate([*fairseq, "▁", *letters])}, merges=[])
    if kind == "plbart":
        file = directory / "sentencepiece.bpe.model"
        train_pieces(SENTENCES, file, size=50)
        spoken = {"src_lang": "java", "tgt_lang": "en_XX"} if family == "plbart" else {}
        return PLBartTokenizer(str(file), **spoken)
    if kind == "blenderbot":
        first = ["<pad>", "<s>", "</s>", "<unk>", "<mask>"]
        made = BlenderbotTokenizer(vocab={t: i for i, t in enumerate([*first, "Ġ", *letters])}, merges=[])
        # As the checkpoints' tokenizer.json has it; the class alone writes no end.
        ending = T5Tokenizer(vocab=[(token, 0.0) for token in first], extra_ids=0)
        made.backend_tokenizer.post_processor = ending.backend_tokenizer.post_processor
        return made
    if kind == "blenderbot-small":
        cut = [*(f"{letter}@@" for letter in letters), *letters]
        known = {t: i for i, t in enumerate(["__null__", "__start__", "__end__", "__unk__", *cut])}
        (directory / "vocab.json").write_text(json.dumps(known))
        (directory / "merges.txt").write_text("#version: 0.2\n")
        return BlenderbotSmallTokenizer(str(directory / "vocab.json"), str(directory / "merges.txt"))
    if kind == "prophetnet":
        whole = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[X_SEP]", "[MASK]", ".", *words]
        (directory / "prophetnet.tokenizer").write_text("\n".join(whole), encoding="utf-8")
        return ProphetNetTokenizer(str(directory / "prophetnet.tokenizer"))
    return BartTokenizer(vocab={t: i for i, t in enumerate([*fairseq, "Ġ", *letters, "<mask>"])}, merges=[])


def make_model(family: str, tokenizer):
    """A random model of the family; its norms are no identities."""
    kind, settings = SETTINGS[family]
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}
    ids = {name: value for name, value in ids.items() if value is not None}
    n_ids = max([len(tokenizer), *(1 + i for i in languages(tokenizer).values())])
    settings = settings | ids | {"vocab_size": n_ids}
    if kind == "t5gemma":
        settings |= {side: settings[side] | ids | {"vocab_size": n_ids} for side in ("encoder", "decoder")}
    config = AutoConfig.for_model(kind, **settings)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForSeq2SeqLM.from_config(config).eval()
        for name, weights in model.named_parameters():
            if "norm" in name:
                torch.nn.init.normal_(weights, mean=0.0 if kind == "t5gemma" else 1.0, std=0.3)
    return model


def write_tiny(family: str, directory: Path) -> None:
    """Save a small model and its tokenizer to `directory`."""
    tokenizer = make_tokenizer(family, directory)
    make_model(family, tokenizer).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
