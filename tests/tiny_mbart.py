"""A random mBART that is made in a second, with a tokenizer of the real class."""

from pathlib import Path

import torch
from transformers import MBart50Tokenizer, MBartConfig, MBartForConditionalGeneration

SUBJECTS = ("the dog", "the cat", "a child", "the old woman", "le chien", "der Hund", "el perro", "my friend")
VERBS = ("sees", "eats", "likes", "finds", "aime", "sieht", "come")
OBJECTS = ("the bread", "a house", "la maison", "das Brot", "el pan", "the river", "a blue bird")
SENTENCES = [f"{s} {v} {o}." for s in SUBJECTS for v in VERBS for o in OBJECTS]


def write_tiny_mbart(directory: Path) -> None:
    """Save a one-layer model and its tokenizer to `directory`."""
    words = sorted({word for sentence in SENTENCES for word in sentence.rstrip(".").split()})
    vocab = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0)]
    vocab += [(f"▁{word}", -5.0) for word in words] + [("▁", -6.0), (".", -6.0)]
    tokenizer = MBart50Tokenizer(vocab=vocab, bos_token="<s>", src_lang="en_XX")
    config = MBartConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=40,
        scale_embedding=True,
        init_std=0.1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MBartForConditionalGeneration(config)
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
