"""Whether features cause the words that they detect: `course-mbart`'s translations under changes, beside controls.

Dictionaries: TopK, 2,048 features, 8 active, 2,000 steps on the tokens of 24,000 sentences; at the encoder's end with
2 seeds, after the encoder's first layer and at the decoder's end with one. Concepts are those whose detector has an F1 of
0.8 or more on the training sentences. Each seed draws cases of its own: held-out sentences with one word to be
changed, at most one a concept more than any other, that the model translates right and in whose word the
detector fires. Tokens are the word's own unless an arm says "all tokens". Figures are pooled over seeds, and
changed, elsewhere, exact and aimed are shares of the cases with Wilson's 95% intervals (`Outcome`).

"features, 0.2" are a concept's detector and all features of which at least 20% of what they fire at are the
concept's words (`WordTable.features`). A control marked "as far" moves each state by the same length.
"""

import random
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor

from benchmarks.timing import Spread
from course_lib.interpret.concepts import LabelledRows, encode_rows, label_table
from course_lib.interpret.detectors import Detectors, best_detectors
from course_lib.interpret.interventions import (
    Edit,
    add_vectors,
    edit_all_tokens,
    edit_features,
    edit_other_feature,
    edit_tokens,
    erase_direction,
    find_word_tokens,
    keep_correct,
    measure_effects,
    move_randomly,
    reconstruct,
)
from course_lib.interpret.outcomes import Outcome
from course_lib.interpret.word_table import WordTable, number_concepts
from course_lib.language.corpus import LANGUAGES, LEXICAL_CONCEPTS, draw_meanings, render
from course_lib.language.lexicon import NOUNS
from course_lib.language.word_cases import Case, Effect, draw_cases, find_slots
from course_lib.mbart.activations import Site, extract
from course_lib.mbart.model import load
from course_lib.sae import TopKSparseAutoencoder, TrainConfig, train

SENTENCES, FEATURES, K, STEPS, CASES, SEEDS = 24_000, 2048, 8, 2000, 310, (0, 1)
ENCODER, FIRST, DECODER = Site("encoder"), Site("encoder", 1), Site("decoder")
CONCEPTS = list(LEXICAL_CONCEPTS)
NUMBER = {concept: i for i, concept in enumerate(CONCEPTS)}
KINDS = [concept.partition(":")[0] for concept in CONCEPTS]
IS_NOUN = [concept in {noun.concept for noun in NOUNS.values()} for concept in CONCEPTS]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Training:
    """The training sentences, what the model makes of them, and what was trained on that."""

    def __init__(self, n_sentences: int = SENTENCES, steps: int = STEPS) -> None:
        self.model, self.tokenizer = load()
        self.model.requires_grad_(False)
        self.steps = steps
        meanings = draw_meanings(n_sentences, seed=100)
        turned = [LANGUAGES[i % 4] for i in range(n_sentences)]
        self.sentences = [render(m, language) for m, language in zip(meanings, turned, strict=True)]
        # What the decoder reads and writes: a translation into each other language in turn.
        self.targets = [render(m, LANGUAGES[(i + 1 + i // 4 % 3) % 4]) for i, m in enumerate(meanings)]
        self.labels = label_table([s.concepts for s in self.sentences], CONCEPTS)

    @cache  # noqa: B019  (one object a run)
    def states(self, site: Site):
        targets = self.targets if site.side == "decoder" else None
        return extract(self.model, self.tokenizer, self.sentences, [site], targets=targets, progress=False)[
            site
        ]

    def dictionary(self, site: Site, seed: int) -> "Dictionary":
        states = self.states(site)
        made = TopKSparseAutoencoder(states.values.shape[1], FEATURES, k=K, generator=seeded(seed))
        config = TrainConfig(
            steps=self.steps, batch_size=1024, step_size=3e-3, revive_every=200, unit_norm_decoder=True
        )
        train(made, states.values, config, generator=seeded(seed + 1), progress=False)
        made.requires_grad_(False)
        code = encode_rows(made, states.values)
        rows = LabelledRows(states.values, self.labels, groups=states.sentence)
        detectors = best_detectors(rows.largest(code).to_sparse_coo(), self.labels)
        read = self.targets if site.side == "decoder" else self.sentences
        held = number_concepts(self.tokenizer, read, CONCEPTS)
        return Dictionary(made, detectors, WordTable.of(states.values, code, held, len(CONCEPTS)))

    @cached_property
    def neurons(self) -> tuple[Tensor, Tensor]:
        """The best neuron of each concept at the encoder's end, by F1 and of either sign; and all neurons' means."""
        states = self.states(ENCODER)
        rows = LabelledRows(states.values, self.labels, groups=states.sentence)
        both = torch.cat([rows.largest(states.values), rows.largest(-states.values)], dim=1)
        found = best_detectors(both, self.labels)
        return found.unit % states.values.shape[1], states.values.mean(dim=0)


@dataclass(frozen=True)
class Dictionary:
    """An autoencoder, its detectors, and its features at words."""

    autoencoder: TopKSparseAutoencoder
    detectors: Detectors
    table: WordTable

    @cached_property
    def named(self) -> Tensor:
        """The concepts whose detector is good."""
        return self.detectors.f1 >= 0.8

    def features(self, precision: float) -> Tensor:
        """Features of each concept; above 1: its detector alone."""
        return self.table.features(self.detectors.unit, precision=precision)

    @cached_property
    def other(self) -> Tensor:
        """Features that are none of a concept's, for each concept."""
        return ~self.features(0.05)

    @cached_property
    def unnamed(self) -> Tensor:
        """Features that are no concept's detector."""
        found = torch.ones(FEATURES, dtype=torch.bool)
        found[self.detectors.unit[self.named]] = False
        return found

    @cached_property
    def of_kind(self) -> Tensor:
        """The mean state of the words of each concept's kind."""
        return torch.stack([self.table.state[[k == kind for k in KINDS]].mean(dim=0) for kind in KINDS])

    def carried(self, precision: float) -> Tensor:
        """How much of the way from its kind's mean state to a concept's own its features go, one share a concept."""
        way = self.table.state - self.of_kind
        mean = torch.where(self.features(precision), self.table.activation, 0)
        added = mean @ self.autoencoder.decoder_weight.T * self.autoencoder.input_scale
        return (added * way).sum(dim=1) / way.square().sum(dim=1)


class Study:
    """The cases of a dictionary at one site, and the arms that are tried on them."""

    def __init__(self, training: Training, dictionary: Dictionary, site: Site, cases: list[Case], seed: int):
        self.training, self.dictionary, self.site, self.cases, self.seed = (
            training,
            dictionary,
            site,
            cases,
            seed,
        )
        self.concept = torch.tensor([NUMBER[case.concept] for case in cases])
        self.unit = dictionary.detectors.unit[self.concept]
        self.own = find_word_tokens(training.tokenizer, cases)
        self.found: dict[str, list[Effect]] = {}

    def off(self, precision: float, factor: float = 0.0):
        """Switch off the features of each case's concept."""
        features = self.dictionary.features(precision)[self.concept]
        return edit_features(self.dictionary.autoencoder, features, factor=factor)

    def run(self, name: str, changes: dict) -> None:
        self.found[name] = measure_effects(self.training.model, self.training.tokenizer, self.cases, changes)

    def own_only(self, arms: dict) -> None:
        for name, edit in arms.items():
            self.run(name, {self.site: edit_tokens(self.own, edit)})


def set_states(states: Tensor) -> Edit:
    """Put one state for each case in the place of all."""
    return lambda x, case: states[case]


def set_neuron(neurons: Tensor, values: Tensor) -> Edit:
    """Set one coordinate of the states of each case to a value, such as its mean."""
    return lambda x, case: x.scatter(1, neurons[case, None], values[case, None])


def fires(training: Training, dictionary: Dictionary, cases: list[Case], features: Tensor) -> list[bool]:
    """Whether any of some features (cases, code) of each case fires at its word, at the encoder's end."""
    read = [case.sentence for case in cases]
    states = extract(training.model, training.tokenizer, read, [ENCODER], progress=False)[ENCODER]
    own = find_word_tokens(training.tokenizer, cases)[states.sentence, states.position]
    active = ((dictionary.autoencoder.encode(states.values) > 0) & features[states.sentence]).any(dim=1) & own
    return torch.zeros(len(cases)).index_add(0, states.sentence, active.float()).gt(0).tolist()


def switched_off(study: Study) -> None:
    """Arms and controls at the encoder's end."""
    made, table = study.dictionary.autoencoder, study.dictionary.table
    generator = seeded(1000 + study.seed)
    concept, unit = study.concept, study.unit
    one, many = study.off(2), study.off(0.2)
    way = table.state[concept] - study.dictionary.of_kind[concept]
    study.own_only(
        {
            "detector": one,
            "detector, factor -1": study.off(2, -1.0),
            "features, 0.5": study.off(0.5),
            "features, 0.2": many,
            "features, 0.1": study.off(0.1),
            "detector's direction, erased": erase_direction(
                made.decoder_weight.T[unit], study.dictionary.of_kind[concept]
            ),
            "difference of means, erased": erase_direction(way, study.dictionary.of_kind[concept]),
            "state of its kind": set_states(study.dictionary.of_kind[concept]),
        }
    )
    study.run("detector, all tokens", {study.site: edit_all_tokens(one)})
    study.run("features, 0.2, all tokens", {study.site: edit_all_tokens(many)})

    other, unnamed = study.dictionary.other[concept], study.dictionary.unnamed
    best, means = study.training.neurons
    study.own_only(
        {
            "control: random direction, as far as detector": move_randomly(one, generator),
            "control: random direction, as far as features": move_randomly(many, generator),
            "control: another active feature": edit_other_feature(made, unit, other),
            "control: another active feature, as far": edit_other_feature(made, unit, other, like=one),
            "control: unnamed active feature": edit_other_feature(made, unit, other & unnamed),
            "control: unnamed active feature, as far": edit_other_feature(
                made, unit, other & unnamed, like=one
            ),
            "control: best neuron, its mean": set_neuron(best[concept], means[best[concept]]),
        }
    )
    study.run("control: reconstruction, all tokens", {study.site: edit_all_tokens(reconstruct(made))})
    # Another word's features, where they fire: here "elsewhere" is that word.
    good = study.dictionary.named
    elsewhere = []
    for case in study.cases:
        said = [
            c for c in sorted(case.sentence.concepts) if c in NUMBER and c != case.concept and good[NUMBER[c]]
        ]
        elsewhere.append(
            NUMBER[random.Random(case.sentence.text).choice(said)] if said else NUMBER[case.concept]
        )
    features = study.dictionary.features(0.2)[torch.tensor(elsewhere)]
    has = torch.tensor(elsewhere) != concept
    study.run(
        "control: features of another word",
        {study.site: edit_all_tokens(edit_features(made, features & has[:, None]))},
    )


def aims(study: Study, *, same_kind: bool) -> list[str]:
    """A noun for each case that its sentence does not say, of the same kind or of any."""
    rng, chosen = random.Random(study.seed), []
    for case in study.cases:
        fitting = [
            c
            for i, c in enumerate(CONCEPTS)
            if IS_NOUN[i]
            and study.dictionary.named[i]
            and not find_slots(case.meaning, c)
            and (not same_kind or KINDS[i] == KINDS[NUMBER[case.concept]])
        ]
        chosen.append(rng.choice(fitting))
    return chosen


def exchanged(study: Study, aimed: list[str], *, arms: tuple[str, ...] | None = None) -> None:
    """Arms that put one noun in the place of another; `study.cases` are of nouns."""
    made, table = study.dictionary.autoencoder, study.dictionary.table
    generator, aim = seeded(2000 + study.seed), torch.tensor([NUMBER[c] for c in aimed])

    def swap(precision: float, strength: float = 1.0):
        features = study.dictionary.features(precision)
        values = torch.where(features[aim], strength * table.activation[aim], 0)
        return edit_features(made, features[study.concept], values=values)

    way = table.state[aim] - table.state[study.concept]
    alive = (table.recall.sum(dim=0) > 0) & ~study.dictionary.features(0.05).any(dim=0)
    others = alive.nonzero()[:, 0]
    drawn = others[torch.randint(len(others), (len(aim),), generator=generator)]
    strength = table.activation[aim, study.dictionary.detectors.unit[aim]]
    unnamed = torch.zeros(len(aim), FEATURES).scatter(1, drawn[:, None], 2 * strength[:, None])
    edits = {
        "detector": swap(2),
        "detector, twice as strong": swap(2, 2.0),
        "features, 0.2": swap(0.2),
        "features, 0.05": swap(0.05),
        "features, 0.05, 1.5 times as strong": swap(0.05, 1.5),
        "difference of means": add_vectors(way),
        "state of the other": set_states(table.state[aim]),
        "control: random direction, as far as features, 0.05": move_randomly(swap(0.05), generator),
        "control: unnamed feature for the other's, twice as strong": edit_features(
            made, study.dictionary.features(2)[study.concept], values=unnamed
        ),
    }
    study.own_only({name: edit for name, edit in edits.items() if arms is None or name in arms})


def earlier(training: Training, final: Study, nouns: Study, seed: int) -> dict[str, Outcome]:
    """The same cases, changed after the encoder's first layer."""
    dictionary = training.dictionary(FIRST, seed)
    study = Study(training, dictionary, FIRST, final.cases, seed)
    study.own_only(
        {
            "detector": study.off(2),
            "features, 0.2": study.off(0.2),
            "difference of means, erased": erase_direction(
                (dictionary.table.state - dictionary.of_kind)[study.concept],
                dictionary.of_kind[study.concept],
            ),
            "control: random direction, as far as features": move_randomly(study.off(0.2), seeded(seed)),
        }
    )
    found = counted("encoder.1, switched off", study)
    swap = Study(training, dictionary, FIRST, nouns.cases, seed)
    aimed = aims(nouns, same_kind=True)
    exchanged(swap, aimed, arms=("detector", "features, 0.05", "difference of means"))
    return found | counted("encoder.1, exchanged for a noun of its kind", swap, aimed)


def decoder(training: Training, final: Study, seed: int) -> dict[str, Outcome]:
    """The same cases, changed at the decoder's end, alone and together with the encoder's."""
    study = Study(training, training.dictionary(DECODER, seed), DECODER, final.cases, seed)
    one, many, inside = study.off(2), study.off(0.2), final.off(0.2)
    generator = seeded(seed)
    study.run("detector, all tokens", {DECODER: edit_all_tokens(one)})
    study.run("detector, factor -1, all tokens", {DECODER: edit_all_tokens(study.off(2, -1.0))})
    study.run("features, 0.2, all tokens", {DECODER: edit_all_tokens(many)})
    study.run(
        "control: random direction, as far as detector",
        {DECODER: edit_all_tokens(move_randomly(one, generator))},
    )
    study.run(
        "detector there, features 0.2 in the encoder",
        {ENCODER: edit_tokens(final.own, inside), DECODER: edit_all_tokens(one)},
    )
    return counted("decoder, switched off", study)


def share(yes: list[bool]) -> float:
    return sum(yes) / len(yes)


def counted(group: str, study: Study, aimed: list[str] | None = None) -> dict[str, Outcome]:
    return {f"{group}: {name}": Outcome.of(study.cases, found, aimed) for name, found in study.found.items()}


def by_speech(study: Study) -> dict[str, Outcome]:
    """The main arms by the part of speech of the word."""
    parts = [find_slots(case.meaning, case.concept)[0][1] for case in study.cases]
    found = {}
    for arm in ("detector", "features, 0.2"):
        for part in sorted(set(parts)):
            chosen = [i for i, other in enumerate(parts) if other == part]
            found[f"encoder, switched off, {part}: {arm}"] = Outcome.of(
                [study.cases[i] for i in chosen], [study.found[arm][i] for i in chosen]
            )
    return found


def run() -> dict[str, Outcome | Spread]:
    """All figures: outcomes are pooled over seeds, other figures have the seeds' quartiles."""
    training, pooled, seeds = Training(), {}, {}
    for seed in SEEDS:
        dictionary = training.dictionary(ENCODER, seed)
        named = [c for c, good in zip(CONCEPTS, dictionary.named.tolist(), strict=True) if good]
        drawn = draw_cases(named, CASES, seed=seed)
        right = keep_correct(training.model, training.tokenizer, drawn)
        unit = dictionary.detectors.unit[torch.tensor([NUMBER[case.concept] for case in right])]
        firing = fires(training, dictionary, right, torch.nn.functional.one_hot(unit, FEATURES).bool())
        final = Study(
            training, dictionary, ENCODER, [c for c, yes in zip(right, firing, strict=True) if yes], seed
        )
        switched_off(final)
        figures = counted("encoder, switched off", final) | by_speech(final)
        cases = [case for case in final.cases if IS_NOUN[NUMBER[case.concept]]]
        for same, group in ((True, "noun of its kind"), (False, "noun of any kind")):
            nouns = Study(training, dictionary, ENCODER, cases, seed)
            aimed = aims(nouns, same_kind=same)
            exchanged(nouns, aimed)
            figures |= counted(f"encoder, exchanged for a {group}", nouns, aimed)
        if seed == SEEDS[0]:
            figures |= earlier(training, final, nouns, seed) | decoder(training, final, seed)
        for name, outcome in figures.items():
            pooled[name] = pooled[name] + outcome if name in pooled else outcome
        good, other = dictionary.named, dictionary.other[final.concept]
        single = {
            "concepts with F1 0.8 or more, %": 100 * good.double().mean(),
            "translations that are right unchanged, %": 100 * len(right) / len(drawn),
            "words at which the detector fires, %": 100 * share(firing),
            "words with another active feature, %": 100
            * share(fires(training, dictionary, final.cases, other)),
            "words with an unnamed active feature, %": 100
            * share(fires(training, dictionary, final.cases, other & dictionary.unnamed)),
            "features of a concept at 0.2": dictionary.features(0.2)[good].sum(dim=1).double().mean(),
            "of the way from its kind's mean: detector, %": 100 * dictionary.carried(2)[good].median(),
            "of the way from its kind's mean: features 0.2, %": 100 * dictionary.carried(0.2)[good].median(),
        }
        main = ("encoder, switched off: detector", "encoder, switched off: features, 0.2")
        single |= {
            f"{name}, changed by seed, %": 100 * figures[name].changed / figures[name].n for name in main
        }
        for name, value in single.items():
            seeds.setdefault(name, []).append(float(value))
    return pooled | {name: Spread.of(values) for name, values in seeds.items()}
