"""What encoder-decoders do differently: where norms stand, how positions count, what frames a sentence.

| | norms | positions | the encoder reads | the decoder reads |
|---|---|---|---|---|
| mBART-50 | before each block, one at the end | learned | `lang X </s>` | `</s> lang Y` |
| mBART-25 | the same | learned | `X </s> lang` | `lang Y </s>` |
| M2M100, NLLB-200 | the same | sines | `lang X </s>` | `</s> lang Y` |
| BART | after each block | learned | `<s> X </s>` | `</s> <s> Y` |
| Marian | after each block | sines | `X </s>` | `<pad> Y` |
| T5, mT5, UMT5, LongT5, Switch | before, RMS | relative | `X </s>` | `<pad> Y` |
| T5Gemma | before and after, RMS | rotary | `<bos> X` | `<bos> Y` |
| NLLB-MoE | before each block, one at the end | sines | `lang X </s>` | `</s> lang Y` |
| Pegasus | the same | sines | `X </s>` | `<pad> Y` |
| BigBird-Pegasus | the same | learned | `X </s>` | `<s> Y` |
| Blenderbot | the same | learned | `X </s>` | `<s> Y` |
| Blenderbot small | after each block | learned | `X` | `__start__ Y` |
| PLBART | after each block | learned | `X </s> lang` | `lang Y </s>` |
| MVP, LED | after each block | learned | `<s> X </s>` | `</s> <s> Y` |
| ProphetNet | after each block | learned | `X [SEP]` | `[PAD] Y` |

A Marian model of several target languages reads `>>lang<< X </s>`: there the code names the language of the output.
mBART and BART also normalise what the embeddings give. Sines of M2M100 are counted from the id of the pad on. A
PLBART tokenizer without a language reads `X </s>`, and the decoder `</s> Y`. Every other encoder-decoder is framed by its
own tokenizer, and its decoder begins with what its configuration says (above: unless it says something else).

The first five rows are computed without padding (`course_lib.mbart.packed`), all others by transformers' own forward
(`course_lib.mbart.padded`), whose modules `course_lib.mbart.structure` finds.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

from jaxtyping import Float, Int
from sentencepiece import SentencePieceProcessor
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

PACKED = ("mbart", "bart", "m2m_100", "marian")
"""`model_type` of the configurations that are computed without padding."""
CODE_LAST = ("mbart", "plbart")
"""Those whose rows may end with the language code, with which the decoder then begins."""

_NLLB_CODE = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")


def languages(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """The language codes that a tokenizer knows, and their ids; none for BART, for T5, and for Marian with one pair.

    Codes are those of the model: `en_XX` (mBART), `en` (M2M100), `eng_Latn` (NLLB-200), `fra` for `>>fra<<` (Marian),
    `python` for `__python__` (PLBART).
    """
    if hasattr(tokenizer, "lang_code_to_id"):
        return {code.strip("_"): token for code, token in tokenizer.lang_code_to_id.items()}
    if hasattr(tokenizer, "supported_language_codes"):
        codes = tokenizer.supported_language_codes
        return {code[2:-2]: tokenizer.convert_tokens_to_ids(code) for code in codes}
    codes = (token for token in tokenizer.all_special_tokens if _NLLB_CODE.fullmatch(token))
    return {code: tokenizer.convert_tokens_to_ids(code) for code in codes}


def default_language(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """The code of `languages` in which a tokenizer reads a text that names none; None where it has no such code."""
    code = getattr(tokenizer, "src_lang", None)
    return None if code is None else code.strip("_")


def framed(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], *, language: str | None, target: bool = False
) -> list[list[int]]:
    """Ids of texts with what frames them; `target` for what is to be predicted instead of read.

    What looks like a special token in a text (`</s>`, `en_XX`) is text, see `as_text`. The tokenizer is left in another
    source language: the caller puts it back (`course_lib.mbart.activations.tokenise`).
    """
    texts = [as_text(tokenizer, text)[0] for text in texts]
    if hasattr(tokenizer, "supported_language_codes"):  # Marian
        if target:
            return tokenizer(text_target=texts, split_special_tokens=True)["input_ids"]
        texts = [t if language is None else f">>{language}<< {t}" for t in texts]
        return tokenizer(texts, split_special_tokens=True)["input_ids"]
    if language is not None:
        tokenizer.src_lang = language
    rows = tokenizer(texts, split_special_tokens=True)["input_ids"]
    if target and getattr(tokenizer, "legacy_behaviour", False):
        # NLLB's first tokenizer put the source's code last; the target's always came first.
        return [row[-1:] + row[:-1] for row in rows]
    if target:
        return [_ended(row, tokenizer) for row in rows]
    return rows


def as_text(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[str, list[int]]:
    """A text that holds no special token for a tokenizer which is told to split them, and where blanks were put in.

    Most tokenizers then read `</s>` as signs. For those of mBART-50 special tokens are pieces like others, too: there a
    blank is put behind their first sign. Places are counted in the text that is returned.
    """
    pattern = _pieces(tokenizer)
    if pattern is None or not pattern.search(text):
        return text, []
    places = [match.start() + 1 + n for n, match in enumerate(pattern.finditer(text))]
    return pattern.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text), places


@lru_cache(maxsize=8)
def _pieces(tokenizer: PreTrainedTokenizerBase) -> re.Pattern | None:
    """What finds the special tokens that a tokenizer reads in a text even where it is to split them; None for none."""
    special = [token for token in tokenizer.all_special_tokens if len(token) > 1]
    rows = tokenizer(special, split_special_tokens=True, add_special_tokens=False)["input_ids"]
    found = [
        token
        for token, row in zip(special, rows, strict=True)
        if tokenizer.convert_tokens_to_ids(token) in row and token != tokenizer.unk_token
    ]
    return re.compile("|".join(map(re.escape, found))) if found else None


def _ended(row: list[int], tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """What is to be predicted: the end where the tokenizer writes none (T5Gemma, Blenderbot small), and then no start."""
    if tokenizer.eos_token_id is None or tokenizer.eos_token_id in row:
        return row
    return [*(row[1:] if row[:1] == [tokenizer.bos_token_id] else row), tokenizer.eos_token_id]


def spans(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], *, target: bool = False
) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
    """Ids of texts without what frames them, and between which characters of its text each token stands.

    Blanks before a word belong to its first token. `target` as in `framed`. Raises ValueError for a tokenizer that says no
    places at all (Blenderbot small, ProphetNet).
    """
    read = [as_text(tokenizer, text) for text in texts]
    ids, places = _spans(tokenizer, [text for text, _ in read], target=target)
    return ids, [
        [tuple(place - bisect_left(blanks, place) for place in span) for span in row] if blanks else row
        for row, (_, blanks) in zip(places, read, strict=True)
    ]


def _spans(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], *, target: bool
) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
    options = {"add_special_tokens": False, "split_special_tokens": True}
    if tokenizer.is_fast:
        encoded = tokenizer(texts, return_offsets_mapping=True, **options)
        return encoded["input_ids"], encoded["offset_mapping"]
    if hasattr(tokenizer, "sp_model"):
        cutter, ids = tokenizer.sp_model, tokenizer(texts, **options)["input_ids"]
    elif not hasattr(tokenizer, "spm_source"):
        raise ValueError(
            f"{type(tokenizer).__name__} does not say where its tokens stand in a text; expected a fast tokenizer or "
            "one of SentencePiece"
        )
    else:
        cutter = tokenizer.spm_target if target else tokenizer.spm_source
        ids = tokenizer(**{"text_target" if target else "text": texts}, **options)["input_ids"]
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
    """The id that the decoder reads before a row: the row's last of mBART and PLBART, the others' own.

    Raises ValueError where the configuration names none.
    """
    if config.model_type in CODE_LAST:
        return row[-1]
    start = getattr(config, "decoder_start_token_id", None)
    if start is None and config.model_type == "t5gemma":
        start = config.decoder.bos_token_id
    if start is None:
        raise ValueError(f"the configuration of {config.model_type!r} names no decoder_start_token_id")
    return start


def shifted(row: Sequence[int], config: PreTrainedConfig) -> list[int]:
    """What the decoder reads when it is to predict a row: the row, one place to the right."""
    return [decoder_start(row, config), *row[:-1]]


def forced(row: Sequence[int], config: PreTrainedConfig) -> int | None:
    """The place in a row of what translation forces and nobody predicts: language code or `<s>`. Others have none."""
    if config.model_type in CODE_LAST and row[-1] != config.eos_token_id:
        return len(row) - 1
    coded = config.model_type in ("mbart", "m2m_100", "nllb-moe")
    return 0 if coded or row[0] == getattr(config, "bos_token_id", None) else None


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
