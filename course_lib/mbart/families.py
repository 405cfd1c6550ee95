"""What BART-like encoder-decoders do differently: where norms stand, how positions count, what frames a sentence.

| | norms | positions | the encoder reads | the decoder reads |
|---|---|---|---|---|
| mBART-50 | before each block, one at the end | learned | `lang X </s>` | `</s> lang Y` |
| mBART-25 | the same | learned | `X </s> lang` | `lang Y </s>` |
| M2M100, NLLB-200 | the same | sines | `lang X </s>` | `</s> lang Y` |
| BART | after each block | learned | `<s> X </s>` | `</s> <s> Y` |
| Marian | after each block | sines | `X </s>` | `<pad> Y` |

A Marian model of several target languages reads `>>lang<< X </s>`: there the code names the language of the output.
mBART and BART also normalise what the embeddings give. Sines of M2M100 are counted from the id of the pad on.
"""

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

from jaxtyping import Float, Int
from sentencepiece import SentencePieceProcessor
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

ACCEPTED = {
    "mbart": "mBART",
    "bart": "BART",
    "m2m_100": "M2M100 or NLLB-200",
    "marian": "Marian",
}
"""`model_type` of the configurations that are read here, and what they are called."""

_NLLB_CODE = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")


def languages(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """The language codes that a tokenizer knows, and their ids; none for BART and for Marian with one pair.

    Codes are those of the model: `en_XX` (mBART), `en` (M2M100), `eng_Latn` (NLLB-200), `fra` for `>>fra<<` (Marian).
    """
    if hasattr(tokenizer, "lang_code_to_id"):
        return tokenizer.lang_code_to_id
    if hasattr(tokenizer, "supported_language_codes"):
        codes = tokenizer.supported_language_codes
        return {code[2:-2]: tokenizer.convert_tokens_to_ids(code) for code in codes}
    codes = (token for token in tokenizer.all_special_tokens if _NLLB_CODE.fullmatch(token))
    return {code: tokenizer.convert_tokens_to_ids(code) for code in codes}


def framed(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], *, language: str | None, target: bool = False
) -> list[list[int]]:
    """Ids of texts with what frames them; `target` for what is to be predicted instead of read.

    The tokenizer is left in another source language: the caller puts it back (`course_lib.mbart.activations.tokenise`).
    """
    if hasattr(tokenizer, "supported_language_codes"):  # Marian
        if target:
            return tokenizer(text_target=texts)["input_ids"]
        return tokenizer([t if language is None else f">>{language}<< {t}" for t in texts])["input_ids"]
    if language is not None:
        tokenizer.src_lang = language
    rows = tokenizer(texts)["input_ids"]
    if target and getattr(tokenizer, "legacy_behaviour", False):
        # NLLB's first tokenizer put the source's code last; the target's always came first.
        return [row[-1:] + row[:-1] for row in rows]
    return rows


def spans(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], *, target: bool = False
) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
    """Ids of texts without what frames them, and between which characters of its text each token stands.

    Blanks before a word belong to its first token. `target` as in `framed`. Raises ValueError for a text in which
    special tokens are written out, for tokenizers without offsets of their own (Marian, M2M100).
    """
    if tokenizer.is_fast:
        encoded = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)
        return encoded["input_ids"], encoded["offset_mapping"]
    if hasattr(tokenizer, "sp_model"):
        cutter, ids = tokenizer.sp_model, tokenizer(texts, add_special_tokens=False)["input_ids"]
    else:
        cutter = tokenizer.spm_target if target else tokenizer.spm_source
        ids = tokenizer(**{"text_target" if target else "text": texts}, add_special_tokens=False)["input_ids"]
    places = [_piece_spans(cutter, text) for text in texts]
    for row, place, text in zip(ids, places, texts, strict=True):
        if len(row) != len(place):
            raise ValueError(f"{text!r} has {len(row)} tokens and {len(place)} pieces; expected as many")
    return ids, places


def _piece_spans(cutter: SentencePieceProcessor, text: str) -> list[tuple[int, int]]:
    """Where the pieces of a text stand in it: joined they are the normalised text, whose characters have places."""
    _, place = cutter.normalize(text, with_offsets=True)
    ends = list(accumulate(map(len, cutter.encode(text, out_type=str)), initial=0))
    return [(place[start], place[end]) for start, end in pairwise(ends)]


def decoder_start(row: Sequence[int], config: PreTrainedConfig) -> int:
    """The id that the decoder reads before a row: mBART's last of the row, the others' own."""
    return row[-1] if config.model_type == "mbart" else config.decoder_start_token_id


def shifted(row: Sequence[int], config: PreTrainedConfig) -> list[int]:
    """What the decoder reads when it is to predict a row: the row, one place to the right."""
    return [decoder_start(row, config), *row[:-1]]


def forced(row: Sequence[int], config: PreTrainedConfig) -> int | None:
    """The place in a row of what translation forces and nobody predicts: language code or `<s>`. Marian has none."""
    if config.model_type == "marian":
        return None
    return 0 if row[-1] == config.eos_token_id else len(row) - 1


def norm_first(config: PreTrainedConfig) -> bool:
    """Whether norms stand before each block and once more at the end; otherwise after each block."""
    return config.model_type in ("mbart", "m2m_100")


def embedded(
    stack: nn.Module, ids: Int[Tensor, " tokens"], positions: Int[Tensor, " tokens"], *, longest: int
) -> Float[Tensor, "tokens d_model"]:
    """What the first layer of an encoder or decoder reads; `longest` is the number of tokens of the longest sentence."""
    places = stack.embed_positions
    if hasattr(places, "weights"):  # M2M100, whose table grows
        first = places.padding_idx + 1
        if first + longest > len(places.weights):
            places.make_weights(first + longest, places.embedding_dim, places.padding_idx)
        table = places.weights
    else:  # mBART's and BART's tables start with two unused rows, Marian's does not
        table, first = places.weight, getattr(places, "offset", 0)
    # Marian scales outside of the module of its embeddings, the others inside.
    tokens = stack.embed_tokens(ids) * getattr(stack, "embed_scale", 1.0)
    x = tokens + functional.embedding(positions + first, table)
    return stack.layernorm_embedding(x) if hasattr(stack, "layernorm_embedding") else x
