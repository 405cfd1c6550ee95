"""Rows of token ids in a model's own format: padding them, and translating them greedily."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import LogitsProcessorList, PreTrainedModel, PreTrainedTokenizerBase

from course_lib.mbart import structure
from course_lib.mbart.families import CODE_LAST, decoder_start, framed, languages, shifted

IGNORED = -100
"""The label that transformers' loss leaves out."""


def pad_rows(rows: Sequence[Sequence[int]], value: int) -> Int[Tensor, "rows tokens"]:
    """Pad rows of token ids on the right with `value`."""
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value)


def translate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[Sequence[int]],
    codes: Sequence[int | None],
) -> list[list[int]]:
    """Greedy translations of token rows into the languages of `codes`, from language code to `</s>`.

    A code is an id of `families.languages`, None for a model that has none: the rows of BART, MVP and LED then begin
    with `<s>`, the others' with a word. A Marian model reads the code in front of the source, in place of one that stands
    there.

    Raises ValueError where the model predicts NaN or infinite values: no word is the most probable one of those.
    """
    config, known = model.config, languages(tokenizer).values()
    # The decoders of mBART-25 and PLBART begin with the code and no `</s>`.
    code_alone = config.model_type in CODE_LAST and tokenizer("")["input_ids"][-1] in known
    if config.model_type == "marian":
        bare = [row[1:] if row[0] in known else row for row in map(list, sources)]
        sources = [row if code is None else [code, *row] for row, code in zip(bare, codes, strict=True)]
    (frame,) = framed(tokenizer, [""], language=None, target=True)
    if code_alone or len(frame) == 2:
        first = [tokenizer.bos_token_id if code is None else code for code in codes]
        starts = [[code] if code_alone else shifted([code, tokenizer.eos_token_id], config) for code in first]
    else:  # nothing but the end
        starts = [[decoder_start(frame, config)] for _ in sources]
    inputs = pad_rows(sources, tokenizer.pad_token_id).to(model.device)
    longest, positions = 2 * inputs.shape[1] + 16, structure.positions(model, "decoder")
    if positions is not None:
        longest = min(longest, positions - len(starts[0]))
    with torch.inference_mode():
        out = model.generate(
            input_ids=inputs,
            attention_mask=(inputs != tokenizer.pad_token_id).long(),
            decoder_input_ids=torch.tensor(starts, device=model.device),
            decoder_start_token_id=[start[0] for start in starts],
            max_new_tokens=longest,
            num_beams=1,
            do_sample=False,
            logits_processor=LogitsProcessorList([_finite]),
        )
    rows = []
    for row in out[:, 0 if code_alone else 1 :].tolist():
        end = row.index(tokenizer.eos_token_id) + 1 if tokenizer.eos_token_id in row else len(row)
        rows.append(row[:end])
    return rows


def _finite(ids: Int[Tensor, "rows tokens"], scores: Float[Tensor, "rows vocabulary"]) -> Tensor:
    # What generation forbids stands there as -inf.
    if not (scores < torch.inf).all():
        raise ValueError("the model predicts NaN or infinite values; its weights or its states are too large")
    return scores
