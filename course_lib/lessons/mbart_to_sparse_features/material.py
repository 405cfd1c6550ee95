"""What the page looks at: one model, one dictionary, and sentences whose meaning is known, read once a process.

transformers is imported where the model is read: the module itself stays light.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.interpret.concepts import LabelledRows, encode_rows, label_table
from course_lib.language.corpus import (
    LANGUAGES,
    LEXICAL_CONCEPTS,
    Meaning,
    Sentence,
    concepts_of,
    draw_meanings,
    render,
)
from course_lib.sae import TopKSparseAutoencoder
from course_lib.sae.course_dictionary import course_dictionary

if TYPE_CHECKING:
    from course_lib.mbart.site import Site
    from course_lib.mbart.translation import PreTrainedModel, PreTrainedTokenizerBase

CONCEPTS = list(LEXICAL_CONCEPTS)
NAMES = {"en_XX": "English", "fr_XX": "French", "de_DE": "German", "es_XX": "Spanish"}
TEXT = "The young girl eats a green apple in the garden."
N_ENGLISH, N_MEANINGS, N_APPLES, N_DRAWN = 1600, 500, 30, 10_000
APPLE = "food:apple"
LEAST = 5  # sentences with a concept, without which nothing is chosen or judged


def site() -> "Site":
    """The place in the model whose states are read: the end of the encoder."""
    from course_lib.mbart.site import Site

    return Site("encoder")


@dataclass(frozen=True)
class ReadText:
    """Sentences as the model reads them: one row of states for each token, and the code of each row.

    `table` is the code as `encode_rows` gives it, sparse where few features are active: dense, the page's held-out text
    takes 160 MB.
    """

    sentences: list[Sentence]
    states: Float[Tensor, "tokens d_model"]
    sentence: Int[Tensor, " tokens"]
    token: Int[Tensor, " tokens"]
    pieces: list[str]
    table: Float[Tensor, "tokens features"]

    @property
    def code(self) -> Float[Tensor, "tokens features"]:
        """The code of all rows as a dense table, made anew each time."""
        return self.table.to_dense()

    def code_of(self, rows: Int[Tensor, " rows"]) -> Float[Tensor, "rows features"]:
        """The code of some rows, dense."""
        return self.table.index_select(0, rows).to_dense()

    @cached_property
    def labels(self) -> Bool[Tensor, "sentences concepts"]:
        """Which concept each sentence holds."""
        return label_table([s.concepts for s in self.sentences], CONCEPTS)

    @cached_property
    def language(self) -> Int[Tensor, " sentences"]:
        """The language of each sentence, its place in `LANGUAGES`."""
        return torch.tensor([LANGUAGES.index(s.language) for s in self.sentences])

    @cached_property
    def rows(self) -> LabelledRows:
        """The same as `interpret` takes it."""
        spoken = [s.language for s in self.sentences]
        return LabelledRows(self.states, self.labels, spoken, groups=self.sentence)

    def largest(self, values: Float[Tensor, "tokens units"]) -> Float[Tensor, "sentences units"]:
        """The largest value of each unit over the tokens of each sentence."""
        return self.rows.largest(values)

    @cached_property
    def scores(self) -> Float[Tensor, "sentences features"]:
        """The largest activation of each feature in each sentence."""
        return self.largest(self.table)

    def words(self, i: int) -> list[str]:
        """The pieces of a sentence, with a blank where a word begins."""
        return [self.pieces[row].replace("▁", " ") for row in (self.sentence == i).nonzero()[:, 0].tolist()]


@dataclass(frozen=True)
class Material:
    """The model, its dictionary, 1,600 English sentences to choose on, and held-out meanings in four languages."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    dictionary: TopKSparseAutoencoder
    english: ReadText
    held_out: ReadText

    def read(self, sentences: Sequence[Sentence]) -> ReadText:
        """Read sentences with the page's model and dictionary."""
        return read_text(self.model, self.tokenizer, self.dictionary, sentences)

    @cached_property
    def scored(self) -> Int[Tensor, " concepts"]:
        """The concepts that at least `LEAST` English sentences hold, and as many held-out meanings."""
        meanings = self.held_out.labels[self.held_out.language == 0].sum(dim=0)
        return ((self.english.labels.sum(dim=0) >= LEAST) & (meanings >= LEAST)).nonzero()[:, 0]


def read_text(model, tokenizer, dictionary, sentences: Sequence[Sentence]) -> ReadText:
    """Read sentences: states at the encoder's end, one row a token, and their sparse code."""
    from course_lib.mbart.activations import extract

    place = site()
    states = extract(model, tokenizer, sentences, [place], progress=False)[place]
    values = states.values.float()
    code = encode_rows(dictionary, values)
    return ReadText(
        list(sentences),
        values,
        states.sentence,
        states.token,
        tokenizer.convert_ids_to_tokens(states.token.tolist()),
        code.coalesce() if code.is_sparse else code,
    )


def with_apples(n_meanings: int, *, split: str) -> list[Meaning]:
    """Meanings drawn at random, `N_APPLES` of which hold the page's word: of a rare word a small draw has too few."""
    drawn = draw_meanings(N_DRAWN, seed=29, split=split)
    apples = [meaning for meaning in drawn if APPLE in concepts_of(meaning)][:N_APPLES]
    others = [meaning for meaning in drawn if APPLE not in concepts_of(meaning)]
    return apples + others[: n_meanings - len(apples)]


@lru_cache(maxsize=1)
def read_material() -> Material:
    """Read everything once a process: 1,600 English sentences and 500 held-out meanings in four languages."""
    from course_lib.mbart.model import load

    model, tokenizer = load("course-mbart")
    dictionary = course_dictionary()
    meanings = with_apples(N_MEANINGS, split="test")
    held_out = [render(meaning, language) for language in LANGUAGES for meaning in meanings]
    english = [render(meaning, "en_XX") for meaning in with_apples(N_ENGLISH, split="train")]
    return Material(
        model,
        tokenizer,
        dictionary,
        read_text(model, tokenizer, dictionary, english),
        read_text(model, tokenizer, dictionary, held_out),
    )
