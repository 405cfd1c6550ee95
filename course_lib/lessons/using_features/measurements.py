"""What lesson 38 measures: words in sentences, what features do at them, and what a translation becomes under a change.

One object serves text, claims, explorers and the long run: `setting()`, the shipped model with the shipped dictionary
and the words of some thousand training sentences. transformers is imported where it is needed.
"""

import random
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.interpret import interventions
from course_lib.interpret.concepts import encode_rows
from course_lib.interpret.interventions import Edit
from course_lib.interpret.outcomes import Outcome
from course_lib.interpret.word_table import WordTable, number_concepts
from course_lib.language.corpus import LEXICAL_CONCEPTS, Sentence, draw_meanings, generate, render
from course_lib.language.lexicon import NOUNS
from course_lib.language.word_cases import Case, draw_cases, find_slots, substitute_words
from course_lib.mbart.site import Site
from course_lib.sae import Autoencoder
from course_lib.sae.course_dictionary import course_dictionary, detectors

if TYPE_CHECKING:
    from course_lib.mbart.splicing import SplicedLoss
    from course_lib.mbart.translation import PreTrainedModel, PreTrainedTokenizerBase

SITE = Site("encoder")
GOOD = 0.8  # training F1 from which a feature counts as a word's detector
CONCEPTS = list(LEXICAL_CONCEPTS)
NUMBER = {concept: i for i, concept in enumerate(CONCEPTS)}
KINDS = [concept.partition(":")[0] for concept in CONCEPTS]
NOUN_CONCEPTS = sorted({noun.concept for noun in NOUNS.values()})
TEXT = "The young girl eats a green apple in the garden."
OTHER_LANGUAGES = ("de_DE", "fr_XX", "es_XX")


@dataclass(frozen=True)
class Words:
    """Tokens of labelled sentences: their `states`, the dictionary's `code` (sparse), and the word that each belongs to.

    `concept` numbers the word's concept (-1: none), `sentence` the token's sentence.
    """

    states: Float[Tensor, "tokens d_model"]
    code: Float[Tensor, "tokens features"]
    concept: Int[Tensor, " tokens"]
    sentence: Int[Tensor, " tokens"]

    @cached_property
    def _occurrences(self) -> tuple[Int[Tensor, " labelled"], Int[Tensor, " labelled"], Int[Tensor, " words"]]:
        """The tokens of words, the number of each one's occurrence, and the concept of each occurrence."""
        tokens = (self.concept >= 0).nonzero()[:, 0]
        keys, place = (self.sentence[tokens] * len(CONCEPTS) + self.concept[tokens]).unique(return_inverse=True)
        return tokens, place, keys % len(CONCEPTS)

    def draw(self, n: int, *, seed: int, concepts: Sequence[str] = CONCEPTS) -> Bool[Tensor, " tokens"]:
        """Label `n` occurrences of each of some words, drawn at random; of a rarer word all: which tokens these are."""
        tokens, place, held = self._occurrences
        wanted = torch.zeros(len(CONCEPTS), dtype=torch.bool)
        wanted[[NUMBER[concept] for concept in concepts]] = True
        order = torch.randperm(len(held), generator=torch.Generator().manual_seed(seed))
        order = order[held[order].argsort(stable=True)]  # word by word, at random within each
        count = held.bincount(minlength=len(CONCEPTS))
        first = (count.cumsum(0) - count)[held[order]]
        taken = torch.zeros(len(held), dtype=torch.bool)
        taken[order[(torch.arange(len(order)) - first < n) & wanted[held[order]]]] = True
        labelled = torch.zeros(len(self.states), dtype=torch.bool)
        labelled[tokens[taken[place]]] = True
        return labelled

    def table(self, labelled: Bool[Tensor, " tokens"] | None = None) -> WordTable:
        """What features and states do at each concept's tokens, by the labelled tokens alone or by all."""
        rows = slice(None) if labelled is None else labelled
        code = self.code if labelled is None else self.code.index_select(0, labelled.nonzero()[:, 0])
        return WordTable.of(self.states[rows], code, self.concept[rows], len(CONCEPTS))

    @cached_property
    def firings(self) -> Int[Tensor, " features"]:
        """At how many tokens each feature is active."""
        code = self.code.coalesce()
        return code.indices()[1, code.values() > 0].bincount(minlength=code.shape[1])

    @cached_property
    def _middle(self) -> Float[Tensor, " d_model"]:
        """The mean of all tokens' states."""
        return self.states.mean(dim=0)

    @cached_property
    def _unit(self) -> Float[Tensor, "tokens d_model"]:
        """States less the mean of all, scaled to length 1."""
        return torch.nn.functional.normalize(self.states - self._middle, dim=1)

    def neighbours(self, states: Float[Tensor, "rows d_model"], count: int) -> Float[Tensor, "rows d_model"]:
        """The mean of the `count` tokens nearest to each state. No label is read."""
        return self.states[self.nearest(states, count)].mean(dim=1)

    def nearest(self, states: Float[Tensor, "rows d_model"], count: int) -> Int[Tensor, "rows count"]:
        """The tokens nearest to each state: largest cosine after the mean of all is subtracted."""
        return ((states - self._middle) @ self._unit.T).topk(count, dim=1).indices

    def clustered(self, count: int, *, rounds: int = 4, seed: int = 0) -> "Words":
        """The same words with clusters in the place of the code: 1 for the cluster of the token, 0 for all others.

        Spherical k-means on the states less their mean, `rounds` times, from tokens drawn at random. No label is read.
        """

        def closest(middles: Tensor) -> Tensor:  # some tokens at a time: a table of all has 2,048 numbers a token
            return torch.cat([(some @ middles.T).argmax(dim=1) for some in self._unit.split(8192)])

        drawn = torch.randperm(len(self._unit), generator=torch.Generator().manual_seed(seed))[:count]
        middles = self._unit[drawn]
        for _ in range(rounds):
            own = closest(middles)
            sums = torch.zeros_like(middles).index_add(0, own, self._unit)
            middles = torch.nn.functional.normalize(torch.where(sums.any(dim=1, keepdim=True), sums, middles), dim=1)
        own = closest(middles)
        places = torch.stack([torch.arange(len(own)), own])
        size = (len(own), count)
        return replace(self, code=torch.sparse_coo_tensor(places, torch.ones(len(own)), size, check_invariants=True))

    def cluster_means(self) -> "Words":
        """Of words with clusters for code: each token's state is replaced by the mean state of its cluster."""
        own = self.code.coalesce().indices()[1]
        sums = torch.zeros(self.code.shape[1], self.states.shape[1]).index_add(0, own, self.states)
        return replace(self, states=(sums / self.firings.clamp(min=1)[:, None])[own])


@dataclass(frozen=True)
class Setting:
    """The model, a dictionary, and labelled words: what the page works with."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    autoencoder: Autoencoder
    detector: Int[Tensor, " concepts"]
    f1_train: Float[Tensor, " concepts"]
    words: Words

    @cached_property
    def table(self) -> WordTable:
        """What features and states do at the words of all labelled sentences."""
        return self.words.table()

    @cached_property
    def of_kind(self) -> Float[Tensor, "concepts d_model"]:
        """The mean state of the words of each concept's kind."""
        return torch.stack([self.table.state[[k == kind for k in KINDS]].mean(dim=0) for kind in KINDS])

    @cached_property
    def more_active(self) -> Float[Tensor, "concepts features"]:
        """How much more active each feature is at a concept's words than on average over the concepts of its kind."""
        mean = self.table.activation
        return mean - torch.stack([mean[[k == kind for k in KINDS]].mean(dim=0) for kind in KINDS])

    def features(self, precision: float | int) -> Bool[Tensor, "concepts features"]:
        """The features of each concept: its detector, and all that fire at its words in such a share of their firings."""
        return self.table.features(self.detector, precision=float(precision))

    @property
    def alone(self) -> Bool[Tensor, "concepts features"]:
        """The detector of each concept and nothing else."""
        return torch.nn.functional.one_hot(self.detector, self.autoencoder.code_width).bool()

    def carried(self, features: Bool[Tensor, "concepts features"]) -> Float[Tensor, " concepts"]:
        """Of the way from its kind's mean state to a concept's own, the share that its features cover, (38.3)."""
        way = self.table.state - self.of_kind
        more = torch.where(features, self.more_active, 0)
        added = more @ self.autoencoder.decoder_weight.T * self.autoencoder.input_scale
        return (added * way).sum(dim=1) / way.square().sum(dim=1)

    def good(self, concepts: Sequence[str] = tuple(CONCEPTS)) -> list[str]:
        """The concepts whose detector has a training F1 of `GOOD` or more."""
        return [concept for concept in concepts if self.f1_train[NUMBER[concept]] >= GOOD]

    @torch.no_grad()
    def read(
        self, text: str, language: str
    ) -> tuple[list[str], Float[Tensor, "tokens d_model"], Float[Tensor, "tokens features"]]:
        """The tokens of a sentence, their states and their code."""
        from course_lib.mbart.activations import extract

        states = extract(self.model, self.tokenizer, [Sentence(text, language)], [SITE], progress=False)[SITE]
        tokens = self.tokenizer.convert_ids_to_tokens(states.token.tolist())
        return tokens, states.values, self.autoencoder.encode(states.values)

    def translate(
        self, text: str, language: str, targets: Sequence[str], factors: Mapping[int, float | int]
    ) -> list[str]:
        """Translate one sentence into some languages with features multiplied by factors at all its tokens, (38.1)."""
        sentences = [Sentence(text, language)] * len(targets)
        edits = {SITE: interventions.edit_all_tokens(multiply(self.autoencoder, factors))} if factors else {}
        return interventions.translate_edited(self.model, self.tokenizer, sentences, targets, edits)


def multiply(autoencoder: Autoencoder, factors: Mapping[int, float | int]) -> Edit:
    """Multiply features of every state by factors, (38.1)."""
    turned = torch.ones(autoencoder.code_width)
    turned[list(factors)] = torch.tensor([float(factor) for factor in factors.values()])

    @torch.no_grad()
    def edit(x: Tensor, sentence: Tensor | None) -> Tensor:
        code = autoencoder.encode(x)
        return x + (autoencoder.decode(code * turned) - autoencoder.decode(code))

    return edit


def labelled_words(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    autoencoder: Autoencoder,
    sentences: Sequence[Sentence],
) -> Words:
    """Read sentences and label their tokens."""
    from course_lib.mbart.activations import extract

    states = extract(model, tokenizer, sentences, [SITE], progress=False)[SITE]
    return Words(
        states.values,
        encode_rows(autoencoder, states.values),
        number_concepts(tokenizer, sentences, CONCEPTS),
        states.sentence,
    )


@lru_cache(maxsize=1)
def setting(n_sentences: int = 4000) -> Setting:
    """The shipped model and dictionary, and the words of `n_sentences` training sentences. Made once a process."""
    from course_lib.mbart.model import load

    model, tokenizer = load()
    model.requires_grad_(False)
    autoencoder, named = course_dictionary(), {one.concept: one for one in detectors()}
    return Setting(
        model=model,
        tokenizer=tokenizer,
        autoencoder=autoencoder,
        detector=torch.tensor([named[concept].feature for concept in CONCEPTS]),
        f1_train=torch.tensor([named[concept].f1_train for concept in CONCEPTS]),
        words=labelled_words(model, tokenizer, autoencoder, generate(n_sentences, seed=35, at_least=25)),
    )


def held_out_f1(feature: int) -> float:
    """The best held-out F1 of a feature among the concepts that it was chosen for."""
    return max(one.f1 for one in detectors() if one.feature == feature and one.f1 is not None)


def steered(setting: Setting, factors: Mapping[int, float | int]) -> AbstractContextManager[None]:
    """While the block runs, features are multiplied by factors at every position, (38.1)."""
    from course_lib.mbart import splicing

    return splicing.steered(setting.model, setting.autoencoder, SITE, factors)


def translation_pairs(
    n_pairs: int, *, source: str = "en_XX", target: str = "de_DE"
) -> tuple[list[Sentence], list[Sentence]]:
    """Held-out sentences and their translations."""
    meanings = draw_meanings(n_pairs, seed=29, split="test")
    return [render(m, source) for m in meanings], [render(m, target) for m in meanings]


@lru_cache(maxsize=1)
def cross_entropies(n_pairs: int = 60) -> "SplicedLoss":
    """The cross-entropy of held-out German translations from own, reconstructed and mean states. Made once a process."""
    from course_lib.mbart.splicing import loss_recovered

    made = setting()
    pairs = translation_pairs(n_pairs)
    return loss_recovered(made.model, made.tokenizer, made.autoencoder, SITE, *pairs, progress=False)


# --- Words to be changed in sentences ----------------------------------------------------------------


@dataclass(frozen=True)
class Cases:
    """One word each in held-out sentences that the model translates right, and another word of its kind to aim at.

    `own` marks the tokens of the word, shape (cases, tokens); `concept` and `aim` are numbers in `CONCEPTS`.
    """

    setting: Setting
    cases: list[Case]
    aims: list[str]
    own: Bool[Tensor, "cases tokens"]
    concept: Int[Tensor, " cases"]
    aim: Int[Tensor, " cases"]

    def __len__(self) -> int:
        return len(self.cases)

    def translated(self, edit: Edit, *, everywhere: bool = False) -> Outcome:
        """Translate with the edit at the word's tokens, or at all tokens, and count what changed."""
        return Outcome.of(self.cases, self.effects_of(edit, everywhere=everywhere), self.aims)

    def written(self, edit: Edit) -> list[str]:
        """The translations with the edit at the word's tokens."""
        sentences, targets = [case.sentence for case in self.cases], [case.target for case in self.cases]
        edits = {SITE: interventions.edit_tokens(self.own, edit)}
        return interventions.translate_edited(self.setting.model, self.setting.tokenizer, sentences, targets, edits)

    def effects_of(self, edit: Edit, *, everywhere: bool = False) -> list:
        """What the edit does to each translation."""
        edits = interventions.edit_all_tokens(edit) if everywhere else interventions.edit_tokens(self.own, edit)
        return interventions.measure_effects(self.setting.model, self.setting.tokenizer, self.cases, {SITE: edits})

    @cached_property
    def aimed(self) -> list[Sentence]:
        """The right translation with the word that is aimed at."""
        return [
            render(substitute_words(case.meaning, case.concept)[aim], case.target)
            for case, aim in zip(self.cases, self.aims, strict=True)
        ]

    @cached_property
    def _read(self) -> tuple[dict[str, Tensor], Tensor, Tensor]:
        """The model's inputs with the aimed translations, these as labels, and the states at `SITE`."""
        from course_lib.mbart.activations import tokenise
        from course_lib.mbart.splicing import padded_pairs

        model, tokenizer = self.setting.model, self.setting.tokenizer
        read = tokenise(tokenizer, [case.sentence for case in self.cases])
        inputs, labels = padded_pairs(read, tokenise(tokenizer, self.aimed, what="target", target=True), model)
        with torch.no_grad():
            states = model.get_encoder()(inputs.pop("input_ids"), inputs["attention_mask"]).last_hidden_state
        return inputs, labels, states

    @torch.no_grad()
    def hits(self, edit: Edit) -> Bool[Tensor, " cases"]:
        """Where the translation, with the edit at the word's tokens, is exactly the one that is aimed at.

        Greedy decoding writes a text if and only if each of its tokens is the likeliest one after those before it. So one
        reading of the aimed translation by the decoder decides, several times cheaper than `translated`, and equal to it.
        """
        inputs, labels, states = self._read
        edited = states.clone()
        edited[self.own] = edit(states[self.own], self.own.nonzero()[:, 0])
        logits = self.setting.model(encoder_outputs=(edited,), use_cache=False, **inputs).logits
        return ((logits.argmax(dim=2) == labels) | (labels < 0)).all(dim=1)


def draw_word_cases(
    setting: Setting, concepts: Sequence[str], n_cases: int, *, seed: int, pool: int = 3000, pool_seed: int = 200
) -> Cases:
    """Draw cases of these concepts from held-out sentences; the aim is another of them, of the same kind, at random."""
    drawn = draw_cases(concepts, n_cases, seed=seed, pool=pool, pool_seed=pool_seed)
    cases = interventions.keep_correct(setting.model, setting.tokenizer, drawn)
    rng, aims = random.Random(seed), []
    fitting = {case: [c for c in substitute_words(case.meaning, case.concept) if c in set(concepts)] for case in cases}
    for case in cases:
        kind = KINDS[NUMBER[case.concept]]
        aims.append(
            rng.choice([c for c in fitting[case] if KINDS[NUMBER[c]] == kind and not find_slots(case.meaning, c)])
        )
    return Cases(
        setting,
        cases,
        aims,
        own=interventions.find_word_tokens(setting.tokenizer, cases),
        concept=torch.tensor([NUMBER[case.concept] for case in cases]),
        aim=torch.tensor([NUMBER[aim] for aim in aims]),
    )


PUSHES = (0.5, 1, 1.5, 2, 3, 4)  # lengths of pushes, in units of the step that switches the detector off


def push_edits(setting: Setting, cases: Cases, length: float | int) -> dict[str, Edit]:
    """Pushes of one length at a noun's tokens: against its detector, another active feature, and in a random direction.

    A length of 1 switches the detector off, 2 multiplies it by -1. The other feature is the active one nearest in
    strength that has less than a twentieth of its firings at the noun.
    """
    own = cases.concept
    push = interventions.edit_features(setting.autoencoder, setting.alone[own], factor=1 - length)
    other, unit = ~setting.features(0.05)[own], setting.detector[own]
    return {
        "detector": push,
        "another feature": interventions.edit_other_feature(setting.autoencoder, unit, other, like=push),
        "random": interventions.move_randomly(push, torch.Generator().manual_seed(0)),
    }


def measure_off(setting: Setting, n_cases: int = 150, *, seed: int = 2) -> dict[str, dict[str, Outcome]]:
    """Translate nouns with their detector or all their features off, and under controls; the long run's cases."""
    cases = draw_word_cases(setting, setting.good(NOUN_CONCEPTS), n_cases, seed=seed)
    made, own = setting.autoencoder, cases.concept
    once, twice = (push_edits(setting, cases, length) for length in (1, 2))
    many = interventions.edit_features(made, setting.features(0.1)[own])
    other, unit = ~setting.features(0.05)[own], setting.detector[own]
    edits = {
        "At the noun's tokens": {
            "its detector off": once["detector"],
            "its detector times -1": twice["detector"],
            "all its features off": many,
        },
        "Another active feature": {
            "off": interventions.edit_other_feature(made, unit, other),
            "pushed as far as detector off": once["another feature"],
            "pushed as far as detector times -1": twice["another feature"],
            "pushed as far as all features off": interventions.edit_other_feature(made, unit, other, like=many),
        },
        "A random push": {
            "as far as detector times -1": twice["random"],
        },
    }
    return {group: {arm: cases.translated(edit) for arm, edit in arms.items()} for group, arms in edits.items()}


def without_detector(
    setting: Setting, n_cases: int = 150, *, seed: int = 2
) -> tuple[Int[Tensor, " nouns"], Bool[Tensor, " nouns"]]:
    """The nouns of `measure_off`, as numbers in `CONCEPTS`, and which of them change with their detector off."""
    cases = draw_word_cases(setting, setting.good(NOUN_CONCEPTS), n_cases, seed=seed)
    effects = cases.effects_of(push_edits(setting, cases, 1)["detector"])
    return cases.concept, torch.tensor([effect.changed for effect in effects])


# --- Exchanging one word for another ----------------------------------------------------------------


def by_means(cases: Cases, table: WordTable, *, strength: float | int = 1.0) -> Edit:
    """Add the difference of two mean states, (38.5), `strength` times."""
    return interventions.add_vectors(strength * (table.state[cases.aim] - table.state[cases.concept]))


def by_features(
    cases: Cases, table: WordTable, features: Bool[Tensor, "concepts features"], *, strength: float | int = 1.0
) -> Edit:
    """Switch off the features of one word, and set those of the other to their means there, (38.4), times `strength`."""
    values = torch.where(features[cases.aim], strength * table.activation[cases.aim], 0)
    return interventions.edit_features(cases.setting.autoencoder, features[cases.concept], values=values)
