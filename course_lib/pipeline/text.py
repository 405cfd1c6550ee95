"""The sentences of a run: where they come from, in which language they are, and which are held out.

A text that the model has not read is noticed by its unknown pieces, and by the model's own loss where its corpus is
known: what autoencoders find in such states says little about the text, however well they are trained.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from course_lib.interpret import concepts
from course_lib.interpret.token_words import word_places
from course_lib.language.corpus import LANGUAGES, Sentence, generate, split_of
from course_lib.language.text import TABLES, full_codes, read_fields
from course_lib.pipeline.config import InputError
from course_lib.pipeline.seeds import generator

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

BUILTIN = "builtin"
BUILTIN_SENTENCES = 12_000
# A concept's detector is judged on held-out sentences that hold it: of each lexical concept the built-in text has
# at least so many, in training too. 5,300 sentences suffice for that.
BUILTIN_HELD_OUT_SHARE = 11 / 24
BUILTIN_AT_LEAST = 30
MIN_SENTENCES = 50
HELD_OUT_SHARE = 0.1
UNKNOWN_FROM = 0.01  # share of unknown pieces from which a text is called foreign
UNREAD_LOSS = (
    1.0  # nats a token; of 600 held-out sentences of the corpus none has more than 0.7, half less than 0.002
)
UNREAD_FROM = 0.1  # share of the sample from which a text is called unread
SAMPLE = 100
_BATCH = 32
_CUT = 1024  # sentences that are cut into tokens at once


@dataclass(frozen=True)
class Line:
    """A sentence and the number of the line it came from, counted from 1."""

    number: int
    sentence: Sentence


def read_text(text: Path | str, *, seed: int, limit: int | None = None) -> list[Line]:
    """The sentences of a UTF-8 file, one a line, optionally `language<TAB>sentence`; or "builtin".

    Blank lines are skipped; a byte order mark and Windows line ends are accepted. With `limit` the rest of
    the file is not read. Languages are not checked here: which exist depends on the model.

    Raises InputError for a path that is no readable file, for bytes that are not UTF-8 (with the line), and
    for fewer than 50 different sentences.
    """
    if text == BUILTIN:
        n = limit or BUILTIN_SENTENCES
        n_held_out = round(n * BUILTIN_HELD_OUT_SHARE)
        generated = [
            sentence
            for split, count in (("train", n - n_held_out), ("test", n_held_out))
            for sentence in generate(count, seed=seed, split=split, at_least=BUILTIN_AT_LEAST)
        ]
        return [Line(number, sentence) for number, sentence in enumerate(generated, start=1)]
    path = Path(text)
    if path.is_dir():
        raise InputError(f"{path} is a directory; expected a text file, one sentence a line")
    if not path.exists():
        raise InputError(f"{path} does not exist; expected a text file, one sentence a line, or '{BUILTIN}'")
    try:
        lines = list(_file_lines(path, limit))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if not lines:
        raise InputError(f"{path} holds no sentence: it is empty or has only blank lines")
    different = len({line.sentence.text for line in lines})
    if different < MIN_SENTENCES:
        raise InputError(
            f"{path} gives {len(lines)} sentences, {different} of them different; at least {MIN_SENTENCES} "
            "different ones are needed to train on, and thousands for features worth reading"
        )
    return lines


def _file_lines(path: Path, limit: int | None) -> Iterator[Line]:
    if path.suffix in TABLES:
        raise InputError(
            f"{path} is a table; expected a text file, one sentence a line (`activations` reads both), or a table of "
            "parallel text, a column a language, separated by tabs or commas"
        )
    try:
        for number, fields in islice(read_fields(path), limit):
            if len(fields) > 2:
                raise InputError(
                    f"{path}, line {number} has {len(fields) - 1} tabs; expected none or one, language<TAB>sentence, "
                    "or a first line with the names of columns"
                )
            yield Line(number, Sentence(fields[-1], fields[0] if len(fields) == 2 and fields[0] else None))
    except ValueError as error:  # bytes that are not UTF-8
        raise InputError(str(error)) from error


def resolve_languages(lines: list[Line], *, known: Collection[str], source: str) -> list[Sentence]:
    """Sentences with full language codes; "en" is taken for "en_XX" where one code alone begins so.

    Raises InputError, with the line, for a language that the model does not know.
    """
    full = full_codes(known)
    sentences = []
    for line in lines:
        language = line.sentence.language
        if language is not None and language not in full:
            expected = f"one of {', '.join(sorted(known))} before the tab, or " if known else ""
            raise InputError(
                f"{source}, line {line.number}: the model does not know the language {language!r}; expected "
                f"{expected}a line without a tab"
            )
        sentences.append(replace(line.sentence, language=None if language is None else full[language]))
    return sentences


def split(sentences: list[Sentence], *, seed: int) -> Tensor:
    """Which sentences are held out, as booleans.

    Where all meanings are known (the built-in corpus): those of the corpus's test split, which the shipped
    model has not read either. Elsewhere a tenth of the different sentences; equal ones stay on one side.
    """
    if all(s.meaning is not None for s in sentences):
        return torch.tensor([split_of(s.meaning) == "test" for s in sentences])
    keys = [s.text if s.meaning is None else s.meaning for s in sentences]
    different = list(dict.fromkeys(keys))
    order = torch.randperm(len(different), generator=generator(seed, 0)).tolist()
    chosen = {different[i] for i in order[: max(2, round(HELD_OUT_SHARE * len(different)))]}
    return torch.tensor([key in chosen for key in keys])


def token_concepts(
    tokenizer: "PreTrainedTokenizerBase", sentences: list[Sentence], *, target: bool = False
) -> list[frozenset[str]]:
    """The concepts of whose word each token is a part, of the tokens that `extract` gives."""
    return [
        said
        for sentence, _, places in _placed(tokenizer, sentences, target=target)
        for said in concepts.token_concepts(sentence.words, places)
    ]


def token_words(
    tokenizer: "PreTrainedTokenizerBase",
    sentences: list[Sentence],
    tokens: Int[Tensor, " tokens"],
    *,
    target: bool = False,
) -> Int[Tensor, "tokens 2"] | None:
    """Between which characters of its sentence the word of each token stands, of the `tokens` that `extract` gives.

    None where the tokenizer does not say (Blenderbot small, ProphetNet), or cuts a text otherwise behind a language's code.
    """
    found = np.zeros((len(tokens), 2), np.int32)
    first = 0
    try:
        for sentence, ids, places in _placed(tokenizer, sentences, target=target):
            if tokens[first : first + len(ids)].tolist() != ids:
                return None
            if ids:
                found[first : first + len(ids)] = list(word_places([sentence.text], [0] * len(ids), places))
            first += len(ids)
    except ValueError:
        return None
    return torch.from_numpy(found) if first == len(tokens) else None


def _placed(
    tokenizer: "PreTrainedTokenizerBase", sentences: list[Sentence], *, target: bool
) -> Iterator[tuple[Sentence, list[int], list[tuple[int, int]]]]:
    """Each sentence with its tokens that `extract` gives, and the characters between which they stand."""
    from course_lib.mbart.activations import uncounted_ids
    from course_lib.mbart.families import spans

    skipped = set(uncounted_ids(tokenizer, include_special=False).tolist())
    for start in range(0, len(sentences), _CUT):
        chunk = sentences[start : start + _CUT]
        for sentence, row, places in zip(
            chunk, *spans(tokenizer, [one.text for one in chunk], target=target), strict=True
        ):
            kept = [at for at, token in enumerate(row) if token not in skipped]
            yield sentence, [row[at] for at in kept], [places[at] for at in kept]


def warn_of_unknown_pieces(pieces: Sequence[str], tokenizer: "PreTrainedTokenizerBase") -> list[str]:
    """A warning where many of a text's pieces are unknown to the tokenizer, else none."""
    share = sum(piece == tokenizer.unk_token for piece in pieces) / max(len(pieces), 1)
    if share < UNKNOWN_FROM:
        return []
    return [
        f"{share:.1%} of the text's pieces are unknown to the model's tokenizer: it was made for other text, whose "
        "states say more; choose a model that knows this script and language"
    ]


def warn_of_unread_text(
    name: str, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", sentences: Sequence[Sentence]
) -> list[str]:
    """A warning where the shipped model of that name cannot read sentences back as it can those of its corpus, else none.

    A sample of the text, and as many held-out sentences of the corpus, are read and predicted again in their own
    language; a sentence without one in that of the corpus's languages that suits it best.
    """
    step = max(len(sentences) // SAMPLE, 1)
    of_text = _losses(model, tokenizer, sentences[::step][:SAMPLE])
    share = (of_text > UNREAD_LOSS).double().mean().item()
    if share < UNREAD_FROM:
        return []
    own = _losses(model, tokenizer, generate(SAMPLE, seed=1, split="test"))
    return [
        f"{name} has read nothing but the generated corpus of this course, and this text is another: reading "
        f"a sentence back costs it {of_text.median().item():.2g} nats a token (median of {len(of_text)}), one of its "
        f"corpus {own.median().item():.2g}; {share:.0%} of the text is beyond it, so its states say little about "
        "other text. Use --model course-mbart-help, which has read a software manual in four languages, or one that was "
        "trained on such text, for instance facebook/mbart-large-50"
    ]


def warn_of_no_names(sentences: Sequence[Sentence]) -> list[str]:
    """A warning where nothing is known of the sentences that a feature could be named by, else none."""
    if any(sentence.concepts for sentence in sentences):
        return []
    return [
        "no feature gets a name, because the lines say nothing but their text: names come from labels (--labels) or from "
        "translations, in the columns of a table"
    ]


@torch.no_grad()
def _losses(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", sentences: Sequence[Sentence]
) -> Float[Tensor, " sentences"]:
    """Cross-entropy a token of each sentence, read and predicted in one language."""
    from course_lib.mbart.activations import tokenise
    from course_lib.mbart.splicing import IGNORED, log_probabilities, padded_pairs

    spoken = [
        replace(s, language=code) for s in sentences for code in ([s.language] if s.language else LANGUAGES)
    ]
    rows, losses = tokenise(tokenizer, spoken), []
    for start in range(0, len(rows), _BATCH):
        some = rows[start : start + _BATCH]
        inputs, labels = padded_pairs(some, some, model)
        counted = labels != IGNORED
        found = log_probabilities(model, inputs, counted).gather(1, labels[counted][:, None])[:, 0]
        sums = found.new_zeros(len(some)).index_add(0, counted.nonzero()[:, 0], -found)
        losses.append((sums / counted.sum(dim=1)).cpu())
    every = torch.cat(losses).split([1 if s.language else len(LANGUAGES) for s in sentences])
    return torch.stack([of_sentence.min() for of_sentence in every])
