"""The help of LibreOffice as parallel text: a table that is no part of the project, its words, and a model that read it."""

import os
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from course_lib.interpret import translated_words
from course_lib.interpret.concepts import LabelledRows, label_table
from course_lib.interpret.translated_words import TRANSLATED, TranslatedWord
from course_lib.language.corpus import Sentence
from course_lib.mbart.pretraining.text import Table, read_table

HELP_TABLE = "COURSE_HELP_TABLE"
MODEL, SITE, ENGLISH = "course-mbart-help", "encoder", "en_XX"
LEAST = 30  # held-out rows with a word


def table_path() -> Path:
    """The file of the text; ValueError where none is named."""
    if not os.environ.get(HELP_TABLE):
        raise ValueError(
            f"{HELP_TABLE} is not set; expected the file that `course corpus libreoffice-help --languages en de fr es --out "
            "help.tsv` writes"
        )
    return Path(os.environ[HELP_TABLE])


class Text:
    """The table, its concepts and which rows hold them: training rows first, then the held-out ones."""

    def __init__(self, table: Table) -> None:
        self.n_train = len(table.train[ENGLISH])
        self.texts = {code: table.train[code] + table.test[code] for code in table.languages}
        n = len(self.texts[ENGLISH])
        self.held_out = torch.arange(n) >= self.n_train
        words, _ = translated_words.find_words(self.texts, self.held_out.tolist(), pivot=ENGLISH)
        self.words: list[TranslatedWord] = [word for word in words if word.rows_held_out >= LEAST]
        self.translated = torch.tensor([word.category == TRANSLATED for word in self.words])
        held = translated_words.held_words(self.words, self.texts[ENGLISH])
        self.labels = label_table(held, [word.concept for word in self.words])

    def ceiling(self) -> dict[str, Tensor]:
        """The ceiling of each language, a held-out F1 for each word."""
        return {
            code: translated_words.word_ceiling(column, self.labels, self.held_out)
            for code, column in self.texts.items()
        }

    def drawn(self, n: int, seed: int) -> Tensor:
        """Training rows of a seed."""
        return torch.randperm(self.n_train, generator=torch.Generator().manual_seed(700 + seed))[:n]

    def sentences(self, rows: Tensor) -> list[Sentence]:
        return [
            Sentence(self.texts[code][row], code, frozenset(), row)
            for row in rows.tolist()
            for code in self.texts
        ]


def read_rows(text: Text, rows: Tensor, model, tokenizer) -> tuple[LabelledRows, Tensor]:
    """The states of the tokens of some rows in all languages, with the labels of their row, and the pieces of the tokens."""
    from course_lib.mbart.activations import Site, extract

    sentences, site = text.sentences(rows), Site(SITE)
    states = extract(model, tokenizer, sentences, [site], progress=False)[site]
    read = LabelledRows(
        states.values.float(),
        text.labels[rows].repeat_interleave(len(text.texts), dim=0),
        [sentence.language for sentence in sentences],
        [sentence.meaning for sentence in sentences],
        states.sentence,
    )
    return read, states.token


@cache
def text() -> Text:
    return Text(read_table(table_path()))


@cache
def models():
    """The shipped model and one of its shape with random weights, with their tokenizer."""
    from transformers import MBartForConditionalGeneration

    from course_lib.mbart.model import load

    model, tokenizer = load(MODEL)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return {"trained": model, "untrained": MBartForConditionalGeneration(model.config).eval()}, tokenizer
