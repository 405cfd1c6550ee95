"""What excites the features of a run's sparse autoencoder, what they stand for, and what they do to a translation."""

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from course_lib import sae
from course_lib.language.corpus import Sentence
from course_lib.pipeline.config import site_of

if TYPE_CHECKING:
    from course_lib.pipeline.results import RunResult

NAMED_FROM = 0.8  # held-out F1 from which a feature is called by its concept


class Reading(NamedTuple):
    """What a sentence excites: its pieces, the features that fire, the strongest first, and their activations.

    `activation` has shape (features, pieces).
    """

    pieces: tuple[str, ...]
    features: tuple[int, ...]
    activation: np.ndarray


class Example(NamedTuple):
    """A sentence, how much it excites a feature, and between which characters."""

    activation: float
    sentence: Sentence
    span: tuple[int, int]


class Told(NamedTuple):
    """A concept whose detector a feature is, with its held-out F1 and AUROC.

    `reached` counts the languages in which the F1 is 0.8 or more, of `scored` that have enough sentences with it.
    """

    concept: str
    f1: float
    auroc: float
    reached: int
    scored: int


class FeatureBrowser:
    """A run's sparse autoencoder beside its model: what excites its features, and what they do.

    Activations are f_i ||W_d[:, i]||: the length of what a feature adds to a token's state, as a share of the
    root mean square length of the centred training states. What was computed once is kept. The first
    `n_sentences` held-out sentences are read again, to look in them for what excites a feature.
    """

    def __init__(self, run: "RunResult", *, n_sentences: int = 1200):
        from course_lib.mbart.activations import extract
        from course_lib.mbart.model import load

        self.model, self.tokenizer = load(run.metrics["run"]["model"])
        self.autoencoder = sae.load(run.out / "sparse")
        self.site = site_of(run.metrics["run"]["site"])
        content, concepts = {"skipped": [], "scores": {"features": []}}, run.out / "concepts.json"
        if concepts.is_file():  # a run on own text has none
            content = json.loads(concepts.read_text(encoding="utf-8"))
        self.skipped = frozenset(content["skipped"])
        self.rows: dict[int, list[dict[str, Any]]] = {}
        for row in sorted(content["scores"]["features"], key=lambda row: -row["f1"]):
            if row["sign"] > 0:
                self.rows.setdefault(row["unit"], []).append(row)
        with (run.out / "sentences.jsonl").open(encoding="utf-8") as file:
            rows = [row for row in map(json.loads, file) if row["split"] == "held_out"]
        self.sentences = [
            Sentence(row["text"], row["language"], frozenset(row["concepts"])) for row in rows[:n_sentences]
        ]
        self.languages = tuple(dict.fromkeys(sentence.language for sentence in self.sentences))
        self.states = extract(self.model, self.tokenizer, self.sentences, [self.site], progress=False)[
            self.site
        ]
        self.code = self.encode(self.states.values)
        self.top = float(self.code.max())
        self._kept: dict[tuple, Any] = {}

    @torch.no_grad()
    def encode(self, states: Tensor) -> Tensor:
        """Activations of all features at some states."""
        lengths = self.autoencoder.decoder_weight.norm(dim=0)
        return torch.cat([self.autoencoder.encode(rows.float()) * lengths for rows in states.split(4096)])

    def name(self, feature: int) -> str:
        """The best concept of a feature that detects one well, else its number."""
        best = self.rows.get(feature, [])[:1]
        return best[0]["concept"] if best and best[0]["f1"] >= NAMED_FROM else f"feature {feature}"

    def concepts(self, feature: int) -> list[Told]:
        """The concepts that have this feature as their best one, best first."""
        return [
            Told(row["concept"], row["f1"], row["auroc"], row["languages_reached"], row["languages_scored"])
            for row in self.rows.get(feature, [])
        ]

    def of_sentences(self, feature: int) -> Tensor:
        """The largest activation of a feature over the tokens of each held-out sentence."""
        zeros = torch.zeros(len(self.sentences))
        return zeros.scatter_reduce(0, self.states.sentence, self.code[:, feature], "amax")

    def examples(self, feature: int, *, n: int = 5, per_language: int = 2) -> list[Example]:
        """The held-out sentences that excite a feature most, at most a few of a language."""
        key = ("examples", feature, n, per_language)
        return self._once(key, lambda: self._examples(feature, n, per_language))

    def _examples(self, feature: int, n: int, per_language: int) -> list[Example]:
        column, found = self.code[:, feature], {}
        for row in column.argsort(descending=True).tolist():
            sentence = self.sentences[int(self.states.sentence[row])]
            if column[row] <= 0 or len(found) == n:
                break
            alike = sum(example.sentence.language == sentence.language for example in found.values())
            if sentence.text not in found and alike < per_language:
                # The language code comes first and shifts no offset: any source language will do.
                offsets = self.tokenizer(sentence.text, return_offsets_mapping=True)["offset_mapping"]
                span = word_at(sentence.text, *offsets[int(self.states.position[row])])
                found[sentence.text] = Example(float(column[row]), sentence, span)
        return list(found.values())

    def read(self, text: str, language: str) -> Reading:
        """The features that fire in a sentence, token by token.

        Raises ValueError for a text without a word.
        """
        return self._once(("read", text, language), lambda: self._read(text, language))

    def _read(self, text: str, language: str) -> Reading:
        from course_lib.mbart.activations import extract

        if not text.strip():
            raise ValueError(f"text is {text!r}; expected a sentence")
        states = extract(self.model, self.tokenizer, [Sentence(text, language)], [self.site], progress=False)[
            self.site
        ]
        code = self.encode(states.values)
        largest, order = code.amax(dim=0).sort(descending=True, stable=True)
        order = order[largest > 0]
        pieces = self.tokenizer.convert_ids_to_tokens(states.token.tolist())
        return Reading(
            tuple(piece.replace("▁", "") or "_" for piece in pieces),
            tuple(order.tolist()),
            code[:, order].T.numpy(),
        )

    def lexical(self, text: str, language: str) -> int | None:
        """The strongest feature of a sentence that is named by a word of content; None where there is none."""
        named = (i for i in self.read(text, language).features if ":" in self.name(i))
        return next((i for i in named if not self.name(i).startswith("grammar:")), None)

    def translate(
        self, text: str, language: str, target: str, changes: Mapping[int, float | int] | None = None
    ) -> str:
        """The decoder's greedy translation, with some features multiplied on the way."""
        changed = tuple(sorted((changes or {}).items()))
        key = ("translate", text, language, target, changed)
        return self._once(key, lambda: self._translate(text, language, target, dict(changed)))

    def _translate(self, text: str, language: str, target: str, changes: Mapping[int, float | int]) -> str:
        from course_lib.mbart.activations import tokenise, uncounted_ids
        from course_lib.mbart.families import languages
        from course_lib.mbart.scores import translate
        from course_lib.mbart.splicing import steered

        rows = tokenise(self.tokenizer, [Sentence(text, language)])
        code = languages(self.tokenizer)[target]
        skipped = uncounted_ids(self.tokenizer, include_special=False)
        with steered(self.model, self.autoencoder, self.site, changes, skipped_ids=skipped):
            written = translate(self.model, self.tokenizer, rows, [code])[0]
        return self.tokenizer.decode(written, skip_special_tokens=True)

    def _once(self, key: tuple, make: Any) -> Any:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]


def word_at(text: str, start: int, end: int) -> tuple[int, int]:
    """The word that some characters belong to, without the signs around it."""
    middle = min((start + end) // 2, len(text) - 1)
    for word in re.finditer(r"[\w'’-]+|\S", text):
        if word.start() <= middle < word.end():
            return word.span()
    return (start, end)
