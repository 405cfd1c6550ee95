"""Tables as the text of a run: each row is one meaning, and words of one language, or labels of the row, are its concepts.

A row is wholly on one side of the split, by the table's column `split` or drawn by seed, and a text that a training row
has is in no held-out row: a feature that is chosen in training is never judged on what it was chosen on.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool
from torch import Tensor

from course_lib.interpret import concepts, translated_words
from course_lib.interpret.translated_words import (
    LabelsError,
    NoWordsError,
    TranslatedWord,
    TranslatedWords,
)
from course_lib.language.corpus import Sentence
from course_lib.language.text import (
    NO_LANGUAGES,
    TABLES,
    ParallelTable,
    full_codes,
    read_fields,
    read_parallel_table,
)
from course_lib.pipeline.config import InputError
from course_lib.pipeline.seeds import generator
from course_lib.pipeline.text import BUILTIN_HELD_OUT_SHARE, HELD_OUT_SHARE, MIN_SENTENCES

if TYPE_CHECKING:
    from course_lib.mbart.too_long import TokenLimit

TEXT, LANGUAGE = "text", "language"
"""Columns of a table with labels and without a column of a language: what is read, and in which language each row is."""

_CODE = re.compile(r"[a-z]{2,3}(_[A-Z][A-Za-z]{1,3})?")


@dataclass(frozen=True)
class ParallelText:
    """The rows of a table that a run uses.

    `texts` has a column for each language, row by row, by the model's codes; `held_out` says which rows are not trained
    on. `words` are the concepts, among them the values of the columns `labels`, and `held` those of each row. `numbers`
    are the rows' lines in the file, and `notes` say what was left out. `spoken` is the language of each row, where the
    only column of texts is `TEXT`.
    """

    texts: dict[str, list[str]]
    held_out: Bool[Tensor, " rows"]
    numbers: list[int]
    pivot: str | None
    words: list[TranslatedWord]
    words_left_out: int
    held: list[frozenset[str]]
    notes: list[str]
    labels: tuple[str, ...] = ()
    spoken: list[str | None] | None = None

    @property
    def sentences(self) -> list[Sentence]:
        """The sentences, row after row, in the order of the columns; those of a row have one meaning and its concepts."""
        of_columns = list(self.texts)
        return [
            Sentence(text, language, held, number)
            for place, (number, held, row) in enumerate(
                zip(self.numbers, self.held, zip(*self.texts.values(), strict=True), strict=True)
            )
            for language, text in zip(
                of_columns if self.spoken is None else [self.spoken[place]], row, strict=True
            )
        ]

    @property
    def sentence_held_out(self) -> Bool[Tensor, " sentences"]:
        """Which sentences are held out."""
        return self.held_out.repeat_interleave(len(self.texts))

    @property
    def classes(self) -> list[str | None] | None:
        """Of each sentence the value of the first column of labels, None where it is no concept; None without labels."""
        if not self.labels:
            return None
        known = {word.concept for word in self.words if word.column == self.labels[0]}
        found = [next(iter(held & known), None) for held in self.held]
        return [one for one in found for _ in self.texts]

    def translated(self) -> TranslatedWords:
        """The concepts, with how well the words of each language tell them on the held-out rows."""
        labels = concepts.label_table(self.held, [word.concept for word in self.words])
        languages = sorted(self.texts, key=lambda language: language != self.pivot)
        ceiling = {
            language: translated_words.word_ceiling(self.texts[language], labels, self.held_out).tolist()
            for language in languages
        }
        return TranslatedWords(
            self.pivot, languages, self.words, ceiling, self.words_left_out, list(self.labels)
        )


def find_table(text: Path | str, *, labelled: bool = False) -> ParallelTable | None:
    """The table in a file; None for what is none: lines of text, and what is no file at all.

    A table ends in .csv, or its first line has three fields or more between tabs, or two that look like codes of
    languages; with `labelled` it is one in any case. Raises InputError for a table that cannot be read
    (`read_parallel_table`).
    """
    path = Path(text)
    if not path.is_file() or (path.suffix in TABLES and path.suffix != ".csv"):
        return None
    try:
        if path.suffix != ".csv" and not labelled:
            _, names = next(read_fields(path), (0, []))
            if len(names) < 3 and not (len(names) == 2 and all(map(_CODE.fullmatch, names))):
                return None
        return read_parallel_table(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(str(error)) from error


def parallel_text(
    table: ParallelTable,
    *,
    known: Collection[str],
    seed: int,
    limit: int | None = None,
    pivot: str | None = None,
    labels: Sequence[str] = (),
    max_tokens: "TokenLimit | None" = None,
) -> ParallelText:
    """The rows of a table that a run uses, with their sides of the split and their concepts.

    Columns are languages where their names are codes of `known`, or short for one; others are not read. Without a
    column `split` a tenth of the rows is held out, drawn by seed. Rows without text in some language are left out, and so
    are held-out rows with a text that a training row has in any language.

    `max_tokens` cuts or skips rows with a sentence that is too long, before the sides are drawn.

    `limit` counts sentences: so many rows are drawn by seed as have no more, and of these up to 11 in 24 are held out,
    as of the built-in text, since a word is judged on the held-out rows that have it. `pivot` is the language whose words
    are the concepts (default: the first column).

    `labels` are columns whose values are the concepts (`translated_words.find_labels`), in place of words, or with
    `pivot` beside them. One language is then enough, or, where no column is one, a column `text` and perhaps
    `language`, which may be empty in a row.

    Raises InputError for a table with fewer than two languages that the model knows, another split than train and test,
    fewer than 50 different sentences or a side without a row, a pivot that is no column, labels that are no columns or
    give no concept, and where no word is frequent enough (`translated_words.find_words`).
    """
    _check_labels(table, labels)
    try:
        columns, given = table.languages(known), table.held_out()
    except ValueError as error:
        raise InputError(str(error)) from error
    columns = {language: place for language, place in columns.items() if table.names[place] not in labels}
    spoken = None
    if labels and not columns and TEXT in table.names:
        columns, spoken = {TEXT: table.names.index(TEXT)}, _spoken(table, known)
    if len(columns) < (1 if labels else 2):
        found = f"one, {next(iter(columns))}" if columns else "none"
        raise InputError(
            f"{table.path} begins with {table.names}, of which the model knows {found}; expected the names of columns, "
            f"two or more of them languages of the model ({', '.join(sorted(known)) or 'it has no codes'}), with labels "
            f"one, or {TEXT}, or lines of sentence or language<TAB>sentence"
        )
    chosen = next(iter(columns)) if pivot is None else full_codes(known).get(pivot)
    if chosen not in columns:
        raise InputError(f"pivot is {pivot!r}; expected a language of {table.path}: {', '.join(columns)}")
    if pivot is not None and len(columns) < 2:
        raise InputError(f"pivot is {pivot!r}, and {table.path} has one language; expected two or more")
    if labels and pivot is None:
        chosen = None
    whole = [
        i for i, (_, fields) in enumerate(table.rows) if all(fields[place] for place in columns.values())
    ]
    rows = [tuple(table.rows[i][1][place] for place in columns.values()) for i in whole]
    without_text = len(table.rows) - len(rows)
    if max_tokens is not None:
        fits = _fitting(
            table,
            [table.rows[i][0] for i in whole],
            rows,
            columns,
            spoken and [spoken[i] for i in whole],
            max_tokens,
        )
        whole, rows = [whole[place] for place in fits], list(fits.values())
    held_out = _drawn(len(rows), seed) if given is None else torch.tensor([given[i] for i in whole]).bool()
    repeated = _repeated(rows, held_out)
    usable = _limited(~repeated, held_out, None if limit is None else max(2, limit // len(columns)), seed)
    texts = {language: [rows[i][place] for i in usable.tolist()] for place, language in enumerate(columns)}
    held_out = held_out[usable]
    _check_size(table.path, texts, held_out)
    used = [whole[i] for i in usable.tolist()]
    values = {name: [table.rows[i][1][table.names.index(name)] for i in used] for name in labels}
    words, left_out, held = [], 0, [frozenset()] * len(used)
    try:
        if chosen is not None:
            words, left_out = translated_words.find_words(texts, held_out.tolist(), pivot=chosen)
            held = translated_words.held_words(words, texts[chosen])
        if labels:
            found = translated_words.find_labels(values, held_out.tolist(), n_languages=len(texts))
            of_labels = translated_words.held_labels(found, values)
            words, held = words + found, [a | b for a, b in zip(held, of_labels, strict=True)]
    except (NoWordsError, LabelsError) as error:
        raise InputError(f"{table.path}: {error}") from error
    read = {*columns.values(), *(table.names.index(name) for name in labels)}
    unread = [
        name
        for place, name in enumerate(table.names)
        if place not in read and name not in NO_LANGUAGES and (spoken is None or name != LANGUAGE)
    ]
    return ParallelText(
        texts,
        held_out,
        [table.rows[i][0] for i in used],
        chosen,
        words,
        left_out,
        held,
        _notes(table, chosen, unread, without_text, int(repeated.sum()))
        + (max_tokens.note() if max_tokens else []),
        tuple(labels),
        None if spoken is None else [spoken[i] for i in used],
    )


def _fitting(
    table: ParallelTable,
    numbers: list[int],
    rows: list[tuple[str, ...]],
    languages: Collection[str],
    spoken: list[str | None] | None,
    limit: "TokenLimit",
) -> dict[int, tuple[str, ...]]:
    """The rows that are short enough or were cut, by their place among `rows`."""
    told = [tuple(languages)] * len(rows) if spoken is None else [(language,) for language in spoken]
    read = [tuple(map(Sentence, *both)) for both in zip(rows, told, strict=True)]
    place_of = {number: place for place, number in enumerate(numbers)}
    try:
        kept = list(limit.apply(zip(numbers, read, strict=True)))
    except ValueError as error:
        raise InputError(f"{table.path}: {error}") from error
    if not kept:
        raise InputError(
            f"max_tokens is {limit.max_tokens}, which leaves no row of {table.path}; expected more"
        )
    return {place_of[number]: tuple(sentence.text for sentence in row) for number, row in kept}


def _check_labels(table: ParallelTable, labels: Sequence[str]) -> None:
    for name in labels:
        if name not in table.names or list(labels).count(name) > 1:
            raise InputError(
                f"labels is {', '.join(labels)!r}; expected different columns of {table.path}: "
                f"{', '.join(table.names)}"
            )


def _spoken(table: ParallelTable, known: Collection[str]) -> list[str | None]:
    """The language of each row by its column `LANGUAGE`; None where it is empty or there is no such column."""
    if LANGUAGE not in table.names:
        return [None] * len(table.rows)
    place, full, found = table.names.index(LANGUAGE), full_codes(known), []
    for number, fields in table.rows:
        if fields[place] and fields[place] not in full:
            raise InputError(
                f"{table.path}, line {number}: the model does not know the language {fields[place]!r}; expected "
                f"{', '.join(sorted(known)) or 'nothing, since it has no codes'}"
            )
        found.append(full[fields[place]] if fields[place] else None)
    return found


def _drawn(n_rows: int, seed: int) -> Bool[Tensor, " rows"]:
    """A tenth of the rows, drawn by seed."""
    held_out = torch.zeros(n_rows, dtype=torch.bool)
    held_out[
        torch.randperm(n_rows, generator=generator(seed, 0))[: max(2, round(HELD_OUT_SHARE * n_rows))]
    ] = True
    return held_out


def _repeated(rows: Sequence[tuple[str, ...]], held_out: Bool[Tensor, " rows"]) -> Bool[Tensor, " rows"]:
    """Held-out rows with a text that a training row has, in whichever language."""
    sides = held_out.tolist()
    trained = {text for row, out in zip(rows, sides, strict=True) if not out for text in row}
    return torch.tensor(
        [out and not trained.isdisjoint(row) for row, out in zip(rows, sides, strict=True)], dtype=torch.bool
    )


def _limited(usable: Tensor, held_out: Tensor, limit: int | None, seed: int) -> Tensor:
    """Places of the usable rows, in order; of more than `limit` so many, drawn by seed, with enough held-out ones."""
    places = usable.nonzero()[:, 0]
    if limit is None or len(places) <= limit:
        return places
    order = places[torch.randperm(len(places), generator=generator(seed, 6))]
    out = held_out[order]
    n_held_out = min(int(out.sum()), round(limit * BUILTIN_HELD_OUT_SHARE))
    n_train = min(int((~out).sum()), limit - n_held_out)
    return torch.cat([order[out][: limit - n_train], order[~out][:n_train]]).sort().values


def _check_size(path: Path, texts: dict[str, list[str]], held_out: Tensor) -> None:
    different = len({text for column in texts.values() for text in column})
    if different < MIN_SENTENCES:
        raise InputError(
            f"{path} gives {len(held_out)} rows with {different} different sentences; at least {MIN_SENTENCES} are needed "
            "to train on, and thousands for features worth reading"
        )
    if int(held_out.sum()) < 2 or held_out.all():
        raise InputError(
            f"{path} gives {int((~held_out).sum())} rows to train on and {int(held_out.sum())} held-out ones; expected "
            "rows on both sides of the split"
        )


def _notes(
    table: ParallelTable, pivot: str | None, unread: list[str], without_text: int, repeated: int
) -> list[str]:
    notes = []
    if unread:
        notes.append(
            f"{table.path}: no language that the model knows, and not read: column{'s' * (len(unread) > 1)} "
            f"{', '.join(unread)}"
        )
    if without_text:
        notes.append(f"{without_text} rows without text in some language were left out")
    if repeated:
        notes.append(f"{repeated} held-out rows with a text that a training row has were left out")
    if pivot is not None and not translated_words.knows_grammar(pivot):
        notes.append(
            f"words of grammar are not known of {pivot}, and are among its concepts where they are frequent"
        )
    return notes
