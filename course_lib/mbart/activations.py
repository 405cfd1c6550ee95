"""One vector a sentence: masked means over the states of mBART's encoder and decoder."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from tqdm.auto import tqdm
from transformers import MBartForConditionalGeneration, PreTrainedTokenizerBase
from transformers.models.mbart.modeling_mbart import shift_tokens_right

from course_lib.mbart.corpus import Sentence


@dataclass(frozen=True)
class PooledStates:
    """Pooled states, float32 on the CPU, one row a sentence in the order of the input."""

    encoder: Float[Tensor, "sentences d_model"]
    decoder: Float[Tensor, "sentences d_model"]


def masked_mean(
    states: Float[Tensor, "sentences tokens d_model"], mask: Bool[Tensor, "sentences tokens"]
) -> Float[Tensor, "sentences d_model"]:
    """Mean of the states that count.

    h = sum_t m_t X_t / sum_t m_t, with m_t = 1 where the token counts and 0 where it does not. The mean
    over all T positions of a padded batch would depend on the padding.

    Every row of the mask must hold at least one True; a row without gives NaN.
    """
    weights = mask.to(states.dtype)
    return torch.einsum("st,std->sd", weights, states) / weights.sum(dim=1, keepdim=True)


def pooled_states(
    model: MBartForConditionalGeneration,
    tokenizer: PreTrainedTokenizerBase,
    sentences: Sequence[Sentence],
    *,
    tokens_per_batch: int = 2048,
    include_special: bool = False,
    progress: bool = True,
) -> PooledStates:
    """Masked means over the last hidden states of encoder and decoder, for each sentence.

    The last hidden state is the output of the stack, after its final LayerNorm (a hook on the last
    layer would give the value before it). What counts, for a sentence of tokens X in language `lang`:

    - encoder input `lang X </s>`: the positions of X;
    - decoder input `</s> lang X`, the sentence shifted right as MBart does it in training, so that the
      state at the token x_t has read x_1 to x_t (and, through cross-attention, the whole sentence) and
      predicts x_{t+1}: the positions of X;
    - `include_special=True` counts all of these tokens, the language code and `</s>` too. Pads never count.

    A sentence whose language is None is read in the tokenizer's default source language. Sentences are
    tokenised once, sorted by length and batched so that no batch holds more than `tokens_per_batch`
    tokens, pads included (a longer sentence goes alone); memory grows with that budget. Computed in
    the model's dtype on the model's device, in evaluation mode.

    Raises ValueError for an unknown language, a sentence without a token, a sentence longer than the
    model's positions, and a budget below 1.
    """
    if tokens_per_batch < 1:
        raise ValueError(f"tokens_per_batch is {tokens_per_batch}; expected 1 or more")
    ids = _tokenise(tokenizer, sentences)
    skipped = _uncounted_ids(tokenizer, include_special)
    _check_lengths(ids, sentences, skipped.tolist(), limit=model.config.max_position_embeddings)

    device, d_model = model.device, model.config.d_model
    encoder, decoder = torch.empty(2, len(ids), d_model).unbind()
    bar = tqdm(total=len(ids), desc="activations", unit="sentence", disable=not progress)
    with torch.inference_mode(), _evaluation_mode(model), bar:
        for rows in _batches([len(i) for i in ids], tokens_per_batch):
            inputs, real = _pad([ids[r] for r in rows], tokenizer.pad_token_id)
            shifted = shift_tokens_right(inputs, tokenizer.pad_token_id)
            # No mask for the decoder: it is causal, and the pads stand to the right of all that counts.
            output = model.model(
                input_ids=inputs.to(device),
                attention_mask=real.to(device),
                decoder_input_ids=shifted.to(device),
                use_cache=False,
            )
            # `real` serves both sides: the shift moves tokens but not how many there are.
            encoder_counts = real & ~torch.isin(inputs, skipped)
            decoder_counts = real & ~torch.isin(shifted, skipped)
            encoder[rows] = masked_mean(
                output.encoder_last_hidden_state.float(), encoder_counts.to(device)
            ).cpu()
            decoder[rows] = masked_mean(output.last_hidden_state.float(), decoder_counts.to(device)).cpu()
            bar.update(len(rows))
    return PooledStates(encoder=encoder, decoder=decoder)


def _tokenise(tokenizer: PreTrainedTokenizerBase, sentences: Sequence[Sentence]) -> list[list[int]]:
    """Token ids with language code and `</s>`, in the order of the sentences."""
    known = tokenizer.lang_code_to_id
    by_language: dict[str, list[int]] = {}
    for index, sentence in enumerate(sentences):
        language = sentence.language or tokenizer.src_lang
        if language not in known:
            raise ValueError(
                f"sentence {index + 1} has language {language!r}; this tokenizer knows {', '.join(sorted(known))}"
            )
        by_language.setdefault(language, []).append(index)
    ids: list[list[int]] = [[] for _ in sentences]
    default = tokenizer.src_lang
    try:
        for language, indices in by_language.items():
            tokenizer.src_lang = language
            encoded = tokenizer([sentences[i].text for i in indices])["input_ids"]
            for index, tokens in zip(indices, encoded, strict=True):
                ids[index] = tokens
    finally:
        tokenizer.src_lang = default
    return ids


def _uncounted_ids(tokenizer: PreTrainedTokenizerBase, include_special: bool) -> Tensor:
    """Ids that do not count. Unknown words and masks are part of a sentence and do."""
    if include_special:
        return torch.tensor([], dtype=torch.long)
    frame = {tokenizer.eos_token_id, *tokenizer.lang_code_to_id.values()}
    return torch.tensor(sorted(frame))


def _check_lengths(
    ids: list[list[int]], sentences: Sequence[Sentence], skipped: list[int], *, limit: int
) -> None:
    for index, (tokens, sentence) in enumerate(zip(ids, sentences, strict=True)):
        # Blanks alone can leave a lone blank piece, which says nothing.
        if not sentence.text.strip() or all(token in skipped for token in tokens):
            raise ValueError(
                f"sentence {index + 1} ({sentence.text!r}) has no token; remove it or give it text"
            )
        if len(tokens) > limit:
            raise ValueError(
                f"sentence {index + 1} has {len(tokens)} tokens; the model has {limit} positions: split it"
            )


def _batches(lengths: list[int], tokens_per_batch: int) -> Iterator[list[int]]:
    """Indices by falling length: rows of a batch are alike, and the largest batch comes first."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    start = 0
    while start < len(order):
        size = max(1, tokens_per_batch // lengths[order[start]])
        yield order[start : start + size]
        start += size


def _pad(rows: list[list[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Ids padded on the right, and which of them are real."""
    longest = max(map(len, rows))
    ids = torch.tensor([row + [pad_id] * (longest - len(row)) for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    return ids, torch.arange(longest) < lengths[:, None]


@contextmanager
def _evaluation_mode(model: MBartForConditionalGeneration) -> Iterator[None]:
    """Without dropout; the mode is restored afterwards."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
