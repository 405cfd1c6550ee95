"""Examples that a model is trained on and scored on: tokenised texts, noised documents, translation pairs."""

import random
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from transformers import MBart50Tokenizer

from course_lib.language.corpus import Meaning, draw_meanings, minimal_pairs, split_of
from course_lib.language.noise import Document, Noised, Word, noise
from course_lib.mbart.pretraining.config import FAMILY, PretrainConfig


class Texts:
    """Tokenised sentences of many meanings in several languages; row i of every language says the same.

    Ids lie in one flat array a language, so that a million sentences take megabytes. `sentence` gives the
    ids of one, `words` the same grouped into words.
    """

    def __init__(self, texts: Mapping[str, Sequence[str]], tokenizer: MBart50Tokenizer) -> None:
        self.languages = tuple(texts)
        self._starts = _word_starts(tokenizer)
        self._ids: dict[str, np.ndarray] = {}
        self._ends: dict[str, np.ndarray] = {}
        for language, sentences in texts.items():
            encoded = tokenizer(list(sentences), add_special_tokens=False)["input_ids"]
            self._ids[language] = np.concatenate([np.asarray(ids, dtype=np.int32) for ids in encoded])
            self._ends[language] = np.cumsum([len(ids) for ids in encoded])
        self.n_meanings = len(self._ends[self.languages[0]])

    def sentence(self, language: str, meaning: int) -> list[int]:
        """Token ids of a sentence, without language code and `</s>`."""
        ends = self._ends[language]
        return self._ids[language][ends[meaning - 1] if meaning else 0 : ends[meaning]].tolist()

    def words(self, language: str, meaning: int) -> list[Word]:
        """Token ids of a sentence, grouped into words."""
        return _grouped(self.sentence(language, meaning), self._starts)


def denoising_pair(
    texts: Texts, tokenizer: MBart50Tokenizer, config: PretrainConfig, rng: np.random.Generator
) -> tuple[list[int], list[int]]:
    """A noised document of 1 to `config.max_document` sentences, and the original."""
    language = texts.languages[rng.integers(len(texts.languages))]
    code = tokenizer.lang_code_to_id[language]
    size = int(rng.integers(1, config.max_document + 1))
    document = [texts.words(language, i) for i in rng.integers(texts.n_meanings, size=size).tolist()]
    return (
        [code, *noised(document, tokenizer, config, rng).ids],
        [code, *flatten(document, tokenizer.eos_token_id)],
    )


def translation_pair(
    texts: Texts, tokenizer: MBart50Tokenizer, rng: np.random.Generator
) -> tuple[list[int], list[int]]:
    """A sentence and what it is in another language, all ordered pairs of languages alike."""
    return translation_pairs(texts, tokenizer, rng, [int(rng.integers(texts.n_meanings))])[0]


def translation_pairs(
    texts: Texts, tokenizer: MBart50Tokenizer, rng: np.random.Generator, meanings: Iterable[int]
) -> list[tuple[list[int], list[int]]]:
    """Sentences of some meanings and their translations, all from one language into one other."""
    sides = [texts.languages[side] for side in rng.choice(len(texts.languages), size=2, replace=False)]
    source, target = (
        [
            [tokenizer.lang_code_to_id[language], *texts.sentence(language, m), tokenizer.eos_token_id]
            for m in meanings
        ]
        for language in sides
    )
    return list(zip(source, target, strict=True))


def noised(
    document: Document, tokenizer: MBart50Tokenizer, config: PretrainConfig, rng: np.random.Generator
) -> Noised:
    """`noise` with the tokenizer's ids and the configuration's rates."""
    return noise(
        document,
        mask_id=tokenizer.mask_token_id,
        separator_id=tokenizer.eos_token_id,
        mask_share=config.mask_share,
        span_mean=config.span_mean,
        rng=rng,
    )


def flatten(document: Document, separator_id: int) -> list[int]:
    """The token ids of a document, each sentence ended by the separator."""
    return [t for sentence in document for word in (*sentence, (separator_id,)) for t in word]


def draw_families(n_meanings: int, *, seed: int) -> list[Meaning]:
    """Training meanings in families of `FAMILY`: one that is drawn, and others that differ from it in one
    concept (`minimal_pairs`).
    """
    rng = random.Random(seed)
    meanings = []
    for drawn in draw_meanings(n_meanings // FAMILY, seed=seed):
        family = [drawn]
        while len(family) < FAMILY:
            near = [m for m in minimal_pairs(drawn, rng) if split_of(m) == "train" and m not in family]
            family += rng.sample(near, min(len(near), FAMILY - len(family)))
        meanings += family
    return meanings


def _word_starts(tokenizer: MBart50Tokenizer) -> list[bool]:
    return [piece.startswith("▁") for piece in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))]


def _grouped(ids: Sequence[int], starts: Sequence[bool]) -> list[Word]:
    """Token ids grouped into words: a word starts at a piece that begins with the blank mark."""
    words: list[list[int]] = []
    for token in ids:
        if starts[token] or not words:
            words.append([])
        words[-1].append(token)
    return [tuple(word) for word in words]
