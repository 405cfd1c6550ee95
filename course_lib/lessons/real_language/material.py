"""What lesson 39 looks at: sentences of the page read by the shipped model, and what the stored runs counted in the manual.

transformers is imported where the model is read: the module itself stays light.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import median

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.interpret.across import SHRINKAGES
from course_lib.interpret.translated_words import words_of
from course_lib.language.corpus import Sentence
from course_lib.lessons.real_language.sentences import LANGUAGES, sentences
from course_lib.measured import measured
from course_lib.sae.course_dictionary import HELP_MODEL, NamedDetector, course_dictionary, detectors

NAMES = {"en_XX": "English", "de_DE": "German", "fr_XX": "French", "es_XX": "Spanish"}
OTHERS = ("de_DE", "fr_XX", "es_XX")
OWN_WORDS = ("cell", "file", "paragraph", "icon", "language", "window", "line", "border")
REACHED = 0.9  # part of the ceiling's F1 from which a feature counts as good as the words of the language
ENGLISH = "named in English"
_IN_ALL = "0.9 of the ceiling in the three others, %"


@dataclass(frozen=True)
class OwnText:
    """The page's sentences as the model reads them: states and codes, a row for each token, and the tokens' pieces."""

    sentences: list[Sentence]
    states: Float[Tensor, "tokens d_model"]
    code: Float[Tensor, "tokens features"]
    sentence: Int[Tensor, " tokens"]
    pieces: list[str]

    @cached_property
    def largest(self) -> Float[Tensor, "sentences features"]:
        """The largest activation of each feature over the tokens of each sentence."""
        index = self.sentence[:, None].expand_as(self.code)
        empty = self.code.new_zeros(len(self.sentences), self.code.shape[1])
        return empty.scatter_reduce(0, index, self.code, "amax")

    def holds(self, word: str) -> Bool[Tensor, " sentences"]:
        """Which sentences hold a word: those whose English version has it, by (39.1)."""
        english = [s.text for s in self.sentences if s.language == LANGUAGES[0]]
        return torch.tensor([word in words_of(english[s.meaning]) for s in self.sentences])

    def calls(self, word: str) -> Bool[Tensor, " sentences"]:
        """Which sentences the word's feature calls: those where it exceeds its threshold at some token."""
        one = detector(word)
        return self.largest[:, one.feature] > one.threshold

    def tokens(self, place: int, feature: int) -> tuple[list[str], list[float]]:
        """The pieces of a sentence, and the feature's activation at each."""
        rows = (self.sentence == place).nonzero()[:, 0]
        return [self.pieces[row] for row in rows.tolist()], self.code[rows, feature].tolist()

    def counts(self, word: str) -> dict[str, tuple[int, int, int]]:
        """By language: sentences with the word that are called, sentences with it, and called ones without it."""
        holds, calls = self.holds(word), self.calls(word)
        counted = {}
        for language in LANGUAGES:
            own = torch.tensor([s.language == language for s in self.sentences])
            counted[language] = tuple(int((which & own).sum()) for which in (holds & calls, holds, calls & ~holds))
        return counted


@lru_cache(maxsize=1)
def own_text() -> OwnText:
    """Read the page's sentences with the shipped model and its dictionary, once a process."""
    from course_lib.mbart.activations import Site, extract
    from course_lib.mbart.model import load

    model, tokenizer = load(HELP_MODEL)
    told, site = sentences(), Site("encoder")
    states = extract(model, tokenizer, told, [site], progress=False)[site]
    values = states.values.float()
    code = course_dictionary(HELP_MODEL).encode(values)
    return OwnText(told, values, code, states.sentence, tokenizer.convert_ids_to_tokens(states.token.tolist()))


@lru_cache(maxsize=1)
def named_words() -> dict[str, NamedDetector]:
    """The features of the shipped dictionary that were named on English paragraphs, by word."""
    return {one.concept.partition(":")[2]: one for one in detectors(HELP_MODEL)}


def detector(word: str) -> NamedDetector:
    """The feature of a word. Raises KeyError for a word that is not among the named ones."""
    return named_words()[word]


def words(*, translated: bool = True) -> list[str]:
    """The words of the stored run: those that no other language spells alike, or the others."""
    return [word for word, alike in measured("real_text", "words").items() if translated != bool(alike)]


def ceilings(language: str, *, translated: bool = True) -> dict[str, float]:
    """The ceiling of each word in a language, C in (39.3)."""
    stored = measured("real_text", f"ceiling of each word, {language}")
    every = dict(zip(measured("real_text", "words"), stored, strict=True))
    return {word: every[word] for word in words(translated=translated)}


def told_word_f1(language: str, *, translated: bool = True) -> dict[str, float]:
    """The held-out F1 of the one word of a language that fits each word best in training, told the labels there."""
    stored = measured("real_words", f"one word, told: F1 of each word, {language}")
    every = dict(zip(measured("real_text", "words"), stored, strict=True))
    return {word: every[word] for word in words(translated=translated)}


def share_at_ceiling(f1: Callable[..., dict[str, float]], *, translated: bool = True) -> float:
    """The share in % of the words with 0.9 of the ceiling in all three other languages, of F1 by language and word."""
    asked = words(translated=translated)
    good = [
        all(f1(c, translated=translated)[w] >= REACHED * ceilings(c, translated=translated)[w] for c in OTHERS)
        for w in asked
    ]
    return 100 * sum(good) / len(good)


def feature_f1(language: str, *, translated: bool = True) -> dict[str, float]:
    """The F1 of each word's feature in a language, named in English: the median over the five dictionaries."""
    stored = measured("real_text", f"features, {ENGLISH}: median over the seeds of each word, {language}")
    every = dict(zip(measured("real_text", "words"), stored, strict=True))
    return {word: every[word] for word in words(translated=translated)}


def _stored(arm: str, label: str) -> str:
    """The name of an arm in the stored run; of discriminants, in their favour, those whose shrinkage finds most words."""
    if not arm.startswith("LDA"):
        return f"{arm}, {label}"
    tried = [f"{arm} with shrinkage {shrinkage:g}, {label}" for shrinkage in SHRINKAGES]
    return max(tried, key=lambda name: median(measured("real_text", f"translated: {name}: {_IN_ALL}")))


def at_ceiling(arm: str, *, translated: bool = True, label: str = ENGLISH, tuned: bool = True) -> list[float]:
    """The share in % of the words with 0.9 of the ceiling in all three other languages, one number a dictionary.

    The shrinkage of discriminants is the one that finds most words there, or, not `tuned`, the best in training.
    """
    group = "translated" if translated else "alike"
    name = _stored(arm, label) if tuned else f"{arm}, {label}"
    return measured("real_text", f"{group}: {name}: {_IN_ALL}")


def median_f1(arm: str, language: str, *, translated: bool = True, label: str = ENGLISH) -> list[float]:
    """The median F1 over the words in a language, one number a dictionary."""
    group = "translated" if translated else "alike"
    return measured("real_text", f"{group}: {_stored(arm, label)}: median F1, {language}")
