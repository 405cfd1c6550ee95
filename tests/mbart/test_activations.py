"""Pooled states: equal to one sentence at a time, whatever it is batched with."""

import dataclasses

import pytest
import torch
from transformers.models.mbart.modeling_mbart import shift_tokens_right

from course_lib.mbart.activations import masked_mean, pooled_states
from course_lib.mbart.corpus import Sentence, generate


def adversarial_sentences():
    """From one token to hundreds, out of order, in all languages, with a code or without."""
    short = [Sentence(".", "en_XX"), Sentence("dog", None), Sentence("Ж", "fr_XX")]
    long = [
        Sentence(" ".join(["Der Hund schläft."] * n), language)
        for n, language in ((20, "de_DE"), (1, "es_XX"), (17, None))
    ]
    return [*generate(9, seed=2), short[0], *long, *short[1:], *generate(4, seed=3)]


def by_hand(model, tokenizer, sentence, *, include_special=False):
    """One sentence, no padding, no masks: the definition."""
    tokenizer.src_lang = sentence.language or "en_XX"
    ids = tokenizer(sentence.text, return_tensors="pt")["input_ids"]
    tokenizer.src_lang = "en_XX"
    with torch.no_grad():
        shifted = shift_tokens_right(ids, tokenizer.pad_token_id)
        output = model.model(input_ids=ids, decoder_input_ids=shifted)
    # lang X </s> on one side and </s> lang X on the other
    encoder, decoder = (slice(None), slice(None)) if include_special else (slice(1, -1), slice(2, None))
    return output.encoder_last_hidden_state[0, encoder].mean(0), output.last_hidden_state[0, decoder].mean(0)


def test_masked_mean_worked_example():
    states = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]]])
    mask = torch.tensor([[True, True, False]])
    assert masked_mean(states, mask).tolist() == [[2.0, 3.0]]


@pytest.mark.parametrize("include_special", [False, True])
@pytest.mark.parametrize("tokens_per_batch", [1, 64, 2048])
def test_equal_to_one_sentence_at_a_time(tiny_model, tokenizer, tokens_per_batch, include_special):
    sentences = adversarial_sentences()
    states = pooled_states(
        tiny_model,
        tokenizer,
        sentences,
        tokens_per_batch=tokens_per_batch,
        include_special=include_special,
        progress=False,
    )
    for i, sentence in enumerate(sentences):
        encoder, decoder = by_hand(tiny_model, tokenizer, sentence, include_special=include_special)
        torch.testing.assert_close(states.encoder[i], encoder, atol=1e-5, rtol=0)
        torch.testing.assert_close(states.decoder[i], decoder, atol=1e-5, rtol=0)
    assert states.encoder.dtype == states.decoder.dtype == torch.float32


def test_order_is_that_of_the_input(tiny_model, tokenizer):
    sentences = adversarial_sentences()
    states = pooled_states(tiny_model, tokenizer, sentences, progress=False)
    reversed_ = pooled_states(tiny_model, tokenizer, sentences[::-1], progress=False)
    torch.testing.assert_close(states.encoder, reversed_.encoder.flip(0), atol=1e-5, rtol=0)
    torch.testing.assert_close(states.decoder, reversed_.decoder.flip(0), atol=1e-5, rtol=0)
    assert torch.cdist(states.encoder[:9], states.encoder[:9]).fill_diagonal_(1).min() > 1e-3


def test_counting_special_tokens_changes_the_mean(tiny_model, tokenizer):
    sentences = generate(3, seed=0)
    plain = pooled_states(tiny_model, tokenizer, sentences, progress=False)
    special = pooled_states(tiny_model, tokenizer, sentences, include_special=True, progress=False)
    assert (plain.encoder - special.encoder).abs().max() > 1e-3
    assert (plain.decoder - special.decoder).abs().max() > 1e-3


def test_the_language_decides_the_code_that_is_read(tiny_model, tokenizer):
    text = generate(1, seed=0)[0].text
    states = pooled_states(
        tiny_model, tokenizer, [Sentence(text, code) for code in ("en_XX", None, "fr_XX")], progress=False
    )
    torch.testing.assert_close(states.encoder[0], states.encoder[1], atol=1e-5, rtol=0)
    assert (states.encoder[0] - states.encoder[2]).abs().max() > 1e-4
    assert tokenizer.src_lang == "en_XX"


def test_dropout_is_off_and_the_training_mode_comes_back(tokenizer, tiny_model):
    tiny_model.train()
    tiny_model.model.encoder.dropout = 0.5
    try:
        first, second = (
            pooled_states(tiny_model, tokenizer, generate(4, seed=0), progress=False) for _ in range(2)
        )
        assert tiny_model.training
    finally:
        tiny_model.model.encoder.dropout = 0.0
        tiny_model.eval()
    assert torch.equal(first.encoder, second.encoder)


def test_no_sentences_give_no_rows(tiny_model, tokenizer):
    states = pooled_states(tiny_model, tokenizer, [], progress=False)
    assert states.encoder.shape == states.decoder.shape == (0, 16)


def test_half_precision_weights_give_float32_rows_close_to_the_full_ones(
    tokenizer, tiny_directory, tiny_model
):
    from course_lib.mbart.model import load

    sentences = generate(5, seed=0)
    half, _ = load(str(tiny_directory), dtype=torch.bfloat16)
    states = pooled_states(half, tokenizer, sentences, progress=False)
    full = pooled_states(tiny_model, tokenizer, sentences, progress=False)
    assert states.encoder.dtype == torch.float32
    assert torch.cosine_similarity(states.encoder, full.encoder).min() > 0.99


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        (Sentence("Ciao.", "it"), r"sentence 2 has language 'it'.*en_XX"),
        (Sentence("   ", "en_XX"), r"sentence 2 \('   '\) has no token"),
        (Sentence("", None), r"sentence 2 \(''\) has no token"),
        (Sentence("a " * 600, "en_XX"), r"sentence 2 has \d+ tokens; the model has 512 positions"),
    ],
)
def test_a_sentence_that_cannot_be_read_is_named(tiny_model, tokenizer, sentence, message):
    with pytest.raises(ValueError, match=message):
        pooled_states(tiny_model, tokenizer, [*generate(1, seed=0), sentence], progress=False)
    assert tokenizer.src_lang == "en_XX"


def test_a_budget_below_one_is_refused(tiny_model, tokenizer):
    with pytest.raises(ValueError, match="tokens_per_batch is 0"):
        pooled_states(tiny_model, tokenizer, generate(1, seed=0), tokens_per_batch=0)


def test_results_cannot_be_reassigned(tiny_model, tokenizer):
    states = pooled_states(tiny_model, tokenizer, generate(1, seed=0), progress=False)
    with pytest.raises(dataclasses.FrozenInstanceError):
        states.encoder = states.decoder
