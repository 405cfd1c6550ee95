"""Told which English sentences hold a word, what finds it in German, French and Spanish? Features and their rivals.

Text: `TEXT` training sentences, the languages in turn, and `HELD_OUT` held-out ones, 1,000 meanings in each
language. Five draws: each labels `LABELLED` of the English training sentences, and has a dictionary and centres of its
own seed. Concepts are those that at least `LEAST` labelled sentences hold,
and `LEAST_HELD_OUT` held-out ones in each language.

Everything is read at the end of `course-mbart`'s encoder, a value at each token, and a sentence's is the largest over its
tokens. What finds a concept is a column and a threshold, both with the largest F1 on the labelled sentences:

- told nothing before: TopK dictionaries (2,048 features, k = 8) of the trained and of the untrained model; the centres of
  spherical k-means, as many, on the same tokens; neurons of either sign; word pieces. Labels choose one of the columns:
  of equally good ones the first, and of features also ("strongest of equals") that with the largest mean activation in
  the labelled sentences with the word.
- told which sentences hold the word: difference of means; LDA with each shrinkage of `SHRINKAGES`, its covariance that of
  the labelled text, or of all the training text ("on all text"), which the dictionary has read, too.
- told the same, and guesses the tokens: "LDA refitted" labels in each sentence with the word the token of the largest
  value, and is fitted again on tokens. Of the shrinkages the one with the largest mean F1 on the labelled sentences is
  taken, so that no other language chooses anything.
- told which tokens are the word (more than the others): both again.
- the shipped dictionary, trained on more sentences for longer.

"English": share of the concepts with F1 0.9 on held-out English sentences. "the three others": with F1 0.8 in German, in
French and in Spanish, by the same column and threshold. "four languages": labels and test in all languages, F1 0.9.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import get_context

import torch
from torch import Tensor

from course_lib import sae
from course_lib.interpret import rivals
from course_lib.interpret.across import SHRINKAGES
from course_lib.interpret.concepts import (
    LabelledRows,
    auroc,
    encode_rows,
    f1_scores,
    label_table,
    paired_auroc,
)
from course_lib.interpret.detectors import REACHED, SHARED, Detectors, best_detectors, strongest_of_equals
from course_lib.language.corpus import LANGUAGES, LEXICAL_CONCEPTS, draw_meanings, generate, render
from course_lib.pipeline import SparseConfig
from course_lib.pipeline.text import token_concepts
from course_lib.sae.course_dictionary import course_dictionary

TEXT, HELD_OUT, LABELLED, SEEDS = 8_000, 4_000, 1_600, (0, 1, 2, 3, 4)
LEAST, LEAST_HELD_OUT = 5, 5  # sentences with a concept: labelled ones, and held-out ones in each language
FEATURES, K, STEPS, ROUNDS = 2048, 8, 600, 8
SETTINGS = {
    "text": TEXT, "held_out": HELD_OUT, "labelled": LABELLED, "least": LEAST, "features": FEATURES, "k": K,
    "steps": STEPS, "rounds": ROUNDS, "shrinkages": SHRINKAGES,
}  # fmt: skip
CONCEPTS = list(LEXICAL_CONCEPTS)
ENGLISH = "en_XX"
N_PIECES = 3200  # more than the tokenizer has ids
TIES = "strongest of equals"
DRAWN = (
    "dictionary",
    f"dictionary, {TIES}",
    "dictionary of the untrained model",
    "k-means, cosine",
)  # arms with a seed of their own
REFITTED = "LDA refitted, told sentences"


class Text:
    """Sentences, and what a model makes of their tokens: rows with labels, and which piece each token is."""

    def __init__(self, n_sentences: int, *, split: str, model, tokenizer) -> None:
        from course_lib.mbart.activations import Site, extract

        drawn = (
            generate(n_sentences, seed=300)
            if split == "train"
            # Each held-out meaning in all languages, so that they are judged on the same.
            else [
                render(m, code)
                for code in LANGUAGES
                for m in draw_meanings(n_sentences // 4, seed=400, split=split)
            ]
        )
        site = Site("encoder")
        states = extract(model, tokenizer, drawn, [site], progress=False)[site]
        self.token = states.token
        self.rows = LabelledRows(
            states.values.float(),
            label_table([s.concepts for s in drawn], CONCEPTS),
            [s.language for s in drawn],
            [s.meaning for s in drawn],
            states.sentence,
            label_table(token_concepts(tokenizer, drawn), CONCEPTS),
        )
        self.language = torch.tensor([LANGUAGES.index(s.language) for s in drawn])


def chosen_rows(text: Text, which: Tensor, concepts: Tensor) -> LabelledRows:
    """The sentences `which`, with the labels of these concepts."""
    rows, number = text.rows, torch.full((len(which),), -1)
    number[which] = torch.arange(int(which.sum()))
    kept = which[rows.groups]
    languages = [spoken for spoken, keep in zip(rows.languages, which.tolist(), strict=True) if keep]
    return LabelledRows(
        rows.states[kept],
        rows.labels[which][:, concepts],
        languages,
        groups=number[rows.groups[kept]],
        part_labels=rows.part_labels[kept][:, concepts],
    )


def fitted(states: Tensor, seed: int) -> sae.SparseAutoencoder:
    """A dictionary as the pipeline trains it, for fewer steps."""
    made = sae.TopKSparseAutoencoder(
        states.shape[1], FEATURES, k=K, generator=torch.Generator().manual_seed(seed)
    )
    config = replace(SparseConfig().training, steps=STEPS)
    sae.train(made, states, config, generator=torch.Generator().manual_seed(100 + seed), progress=False)
    return made.requires_grad_(False)


def told_directions(train: LabelledRows, unlabelled: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The directions that labels give, one column a concept."""
    for told, labels in (("sentences", train.labels[train.groups]), ("tokens", train.part_labels)):
        yield f"difference of means, told {told}", rivals.difference_of_means(train.states, labels)
        for shrinkage in SHRINKAGES:
            made = rivals.discriminants(train.states, labels, shrinkage=shrinkage)
            yield f"LDA, told {told}, shrinkage {shrinkage:g}", made
            made = rivals.discriminants(train.states, labels, shrinkage=shrinkage, unlabelled=unlabelled)
            yield f"LDA on all text, told {told}, shrinkage {shrinkage:g}", made


class Tables:
    """The largest values of what was told nothing, by arm, in all training and all held-out sentences."""

    def __init__(self, texts: dict[str, tuple[Text, Text]], seed: int, n_pieces: int) -> None:
        train, held_out = texts["trained"]
        mean = train.rows.states.mean(dim=0)
        centres = rivals.spherical_kmeans(
            train.rows.states - mean, FEATURES, rounds=ROUNDS, generator=torch.Generator().manual_seed(seed)
        )
        self.of: dict[str, tuple[Tensor, Tensor]] = {}
        untrained = texts["untrained"]
        dictionaries = [
            ("dictionary", fitted(train.rows.states, seed), texts["trained"]),
            ("shipped dictionary", course_dictionary(), texts["trained"]),
            ("dictionary of the untrained model", fitted(untrained[0].rows.states, seed), untrained),
        ]
        for name, dictionary, pair in dictionaries:
            self.of[name] = tuple(
                text.rows.largest(encode_rows(dictionary, text.rows.states)).to_dense() for text in pair
            )
        self.of["k-means, cosine"] = tuple(
            self._cosines(text.rows, centres, mean) for text in (train, held_out)
        )
        self.of["neurons"] = tuple(
            torch.cat([text.rows.largest(text.rows.states), text.rows.largest(-text.rows.states)], dim=1)
            for text in (train, held_out)
        )
        self.of["word pieces"] = tuple(
            rivals.piece_table(
                text.token, text.rows.groups, n_sentences=len(text.rows.labels), n_pieces=n_pieces
            ).to_dense()
            for text in (train, held_out)
        )

    @staticmethod
    def _cosines(rows: LabelledRows, centres: Tensor, mean: Tensor) -> Tensor:
        unit = torch.nn.functional.normalize(rows.states - mean, dim=1)
        return rivals.largest_projections(replace(rows, states=unit, part_labels=None), centres.T)


def judged_arms(
    tables: Tables, texts: tuple[Text, Text], which: Tensor, concepts: Tensor, *, told: bool = True
) -> Iterator[tuple[str, Detectors, Tensor, LabelledRows]]:
    """Each arm, its detectors chosen on the sentences `which`, and its values in the held-out ones."""
    train = chosen_rows(texts[0], which, concepts)
    everywhere = torch.ones(len(texts[1].language), dtype=torch.bool)
    held_out = chosen_rows(texts[1], everywhere, concepts)
    for name, (known, other) in tables.of.items():
        table = known[which]
        sparse = name != "k-means, cosine" and name != "neurons"
        found = best_detectors(table.to_sparse_coo() if sparse else table, train.labels)
        yield name, found, other, held_out
        if name in ("dictionary", "shipped dictionary"):
            strongest, _ = strongest_of_equals(found, table, train.labels)
            yield f"{name}, {TIES}", strongest, other, held_out
    if not told:
        return
    for name, directions in told_directions(train, texts[0].rows.states):
        yield name, *_judged_directions(train, held_out, directions), held_out
    refitted = [
        _judged_directions(train, held_out, rivals.refitted_discriminants(train, shrinkage=shrinkage))
        for shrinkage in SHRINKAGES
    ]
    for shrinkage, (found, values) in zip(SHRINKAGES, refitted, strict=True):
        yield f"{REFITTED}, shrinkage {shrinkage:g}", found, values, held_out
    yield REFITTED, *max(refitted, key=lambda one: float(one[0].f1.mean())), held_out


def _judged_directions(
    train: LabelledRows, held_out: LabelledRows, directions: Tensor
) -> tuple[Detectors, Tensor]:
    found = rivals.own_detectors(rivals.largest_projections(train, directions), train.labels)
    return found, rivals.largest_projections(held_out, directions)


@cache
def read_texts(n_text: int, n_held_out: int) -> dict[str, tuple[Text, Text]]:
    """Training and held-out sentences as the trained and an untrained model read them, once a process."""
    from transformers import MBartForConditionalGeneration

    from course_lib.mbart.model import load

    model, tokenizer = load("course-mbart")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        untrained = MBartForConditionalGeneration(model.config).eval()
    return {
        name: (
            Text(n_text, split="train", model=read, tokenizer=tokenizer),
            Text(n_held_out, split="test", model=read, tokenizer=tokenizer),
        )
        for name, read in (("trained", model), ("untrained", untrained))
    }


def of_seed(seed: int, first: bool, n_text: int, n_held_out: int, n_labelled: int) -> dict[str, float]:
    """All figures of one draw, by name. What no draw changes (labels of the whole text) is left to the first."""
    torch.set_num_threads(1)
    texts = read_texts(n_text, n_held_out)
    tables, (train, held_out) = Tables(texts, seed, N_PIECES), texts["trained"]
    english = (train.language == LANGUAGES.index(ENGLISH)).nonzero()[:, 0]
    order = torch.randperm(len(english), generator=torch.Generator().manual_seed(500 + seed))
    labelled = torch.zeros(len(train.language), dtype=torch.bool)
    labelled[english[order[:n_labelled]]] = True
    scored = train.rows.labels.sum(dim=0) >= LEAST
    for number in range(len(LANGUAGES)):
        scored &= held_out.rows.labels[held_out.language == number].sum(dim=0) >= LEAST_HELD_OUT
    concepts = scored & (train.rows.labels[labelled].sum(dim=0) >= LEAST)
    figures: dict[str, float] = {"concepts with enough labelled English sentences": int(concepts.sum())}
    for name, found, values, rows in judged_arms(tables, texts["trained"], labelled, concepts):
        by_language = dict(rivals.language_scores(found, values, rows))
        others = torch.stack([f1 for language, f1 in by_language.items() if language != ENGLISH])
        figures[f"{name}: English, %"] = percent(by_language[ENGLISH] >= REACHED)
        figures[f"{name}: the three others, %"] = percent((others >= SHARED).all(dim=0))
        for language, f1 in by_language.items():
            figures[f"{name}: median F1, {language}"] = round(f1.nanmedian().item(), 4)
    whole = torch.ones_like(labelled)
    figures["concepts with enough sentences in all languages"] = int(scored.sum())
    for name, found, values, rows in judged_arms(tables, texts["trained"], whole, scored, told=first):
        if first or name in DRAWN:
            f1 = f1_scores(found.calls(values), rows.labels)
            figures[f"{name}: four languages, %"] = percent(f1 >= REACHED)
        if name == "neurons":
            figures |= neurons_by_auroc(tables.of[name], texts["trained"], scored)
    return figures


def neurons_by_auroc(
    pair: tuple[Tensor, Tensor], texts: tuple[Text, Text], concepts: Tensor
) -> dict[str, float]:
    """For how many concepts the neuron with the largest training AUROC has one of 0.95 on held-out sentences."""
    known, other = pair
    unit = auroc(known, texts[0].rows.labels[:, concepts]).argmax(dim=0)
    found = paired_auroc(other[:, unit], texts[1].rows.labels[:, concepts])
    return {"neurons: four languages, AUROC 0.95, %": percent(found >= 0.95)}


def percent(which: Tensor) -> float:
    return round(100 * which.double().mean().item(), 2)


def run(
    *,
    seeds: tuple[int, ...] = SEEDS,
    text: int = TEXT,
    held_out: int = HELD_OUT,
    labelled: int = LABELLED,
) -> dict[str, list[float]]:
    """Return for every arm and question the figures of all draws, in the order of the seeds."""
    with ProcessPoolExecutor(
        max_workers=min(2, os.cpu_count() or 1), mp_context=get_context("spawn")
    ) as pool:
        asked = [pool.submit(of_seed, seed, seed == seeds[0], text, held_out, labelled) for seed in seeds]
        runs = [one.result() for one in asked]
    return {"shrinkages": list(SHRINKAGES)} | {
        name: [one[name] for one in runs if name in one] for name in runs[0]
    }
