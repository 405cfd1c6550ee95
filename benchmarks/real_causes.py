"""Do the features that detect words of a real text cause their translations? Words switched off and exchanged.

Text and model are those of `real_text`. A dictionary is trained as the pipeline does, on `ROWS` training rows in four
languages drawn with each seed; feature and threshold of each word are chosen by F1 on English training sentences. Words are
those that no other language spells alike and whose feature has an F1 of `NAMED` or more there.

A case is an English paragraph of at most `LONGEST` characters with a word, and another language. How a word is said there is
its spelling in it: of the word that fits best in the training rows, the first letters (four or more) with the largest F1,
anywhere in a paragraph; where that is below `JUDGED`, there are no cases. The model's own translation has this spelling.
There are up to `PER_WORD` held-out cases for each word and language, and as many `TUNING` ones from training rows that the
dictionary has not seen.

While the model translates, the states at the end of its encoder are edited. "Off": the word's feature, or all features that
fire mostly in sentences with the word, multiplied by 1 - s; at the tokens that LDA refitted calls, a step of s times the
component along LDA's direction, or along the difference of the mean states of tokens with and without the word, towards the
mean of all states. "Exchanged": the word's feature off, and another word's as strong as it is on average, times s; the
difference of the two mean states, times s. Of `STRENGTHS` each arm takes the one with most hits in tuning. Controls move
states as far as the word's feature: against another active feature, and in a random direction.

"hits, %": the spelling is gone (and, exchanged, the other word's is there), and of the translation's other words at least
`KEPT` are still there. "gone, %" and "rest kept, %" (mean) are its parts.
"""

import os
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

import torch
from torch import Tensor

from benchmarks.help_text import ENGLISH, SITE, Text, models, read_rows, text
from benchmarks.real_text import fitted, percent, sentences_of
from benchmarks.real_words import best_word, prefixes
from course_lib.interpret import interventions, rivals, translated_words
from course_lib.interpret.concepts import encode_rows
from course_lib.interpret.detectors import best_detectors
from course_lib.interpret.interventions import Edit
from course_lib.interpret.translated_words import words_of
from course_lib.language.corpus import Sentence
from course_lib.pipeline import SparseConfig

ROWS, SEEDS = 3_000, (0, 1, 2)
NAMED, JUDGED, LONGEST, PER_WORD, KEPT = 0.8, 0.8, 200, 2, 0.8
STRENGTHS = (1.0, 1.5, 2.0, 3.0, 4.0)
SHRINKAGE = 0.1  # of LDA
MOSTLY = 0.5  # share of a feature's sentences that hold the word
SETTINGS = {
    "training rows": ROWS,
    "F1 of a feature in training, at least": NAMED,
    "F1 of a spelling, at least": JUDGED,
    "characters, at most": LONGEST,
    "cases of a word and language, at most": PER_WORD,
    "strengths": STRENGTHS,
}


@dataclass(frozen=True)
class Case:
    """A paragraph with a word, the language it is translated into, and what the model itself writes."""

    word: int
    aim: int
    text: str
    target: str
    written: str

    @property
    def sentence(self) -> Sentence:
        return Sentence(self.text, ENGLISH)


def spelling(paragraphs: list[str], bags: list[frozenset[str]], holds: list[bool]) -> tuple[str, float]:
    """The first letters of the best word with the largest F1 of being somewhere in a paragraph, and this F1."""
    word = best_word(bags, holds)
    counted = prefixes(paragraphs, holds, word)
    shortest = min(4, len(word))
    f1, n = max(
        (2 * both / (called + sum(holds)), shortest + place)
        for place, (called, both) in enumerate(counted[shortest - 1 :])
    )
    return word[:n], f1


def spellings(known: Text, words: list[int]) -> dict[tuple[int, str], str]:
    """How each word is said in each other language, where the training rows decide it."""
    found = {}
    for code, column in known.texts.items():
        if code == ENGLISH:
            continue
        paragraphs = [one.lower() for one in column[: known.n_train]]
        bags = [words_of(one) for one in paragraphs]
        for word in words:
            said, f1 = spelling(paragraphs, bags, known.labels[: known.n_train, word].tolist())
            if f1 >= JUDGED:
                found[word, code] = said
    return found


def rest_kept(before: str, after: str, without: str) -> float:
    """The share of a translation's words that are still there, those with the spelling `without` left out."""
    others = {word for word in words_of(before) if without not in word}
    return len(others & words_of(after)) / len(others) if others else 1.0


class Bench:
    """A dictionary of a seed, the features of its words, and the model's translations."""

    def __init__(self, seed: int, n_rows: int, steps: int) -> None:
        self.known, (both, self.tokenizer) = text(), models()
        self.model = both["trained"]
        config = replace(SparseConfig(), training=replace(SparseConfig().training, steps=steps))
        drawn = self.known.drawn(self.known.n_train, seed)
        rows, self.unseen = drawn[:n_rows], drawn[n_rows:]
        asked = self.known.labels[rows].sum(dim=0) >= translated_words.MIN_ROWS
        numbers = (asked & self.known.translated).nonzero()[:, 0]
        train, _ = read_rows(self.known, rows, self.model, self.tokenizer)
        self.made = fitted(train.states, seed, config)
        english, which = sentences_of(train, ENGLISH, numbers)
        code = encode_rows(self.made, train.states)
        table = train.largest(code).index_select(0, which)
        found = best_detectors(table.to_sparse_coo(), english.labels)
        good = found.f1 >= NAMED
        self.words = numbers[good].tolist()
        labels = english.labels[:, good].float()
        self.unit = found.unit[good]
        self.alone = torch.nn.functional.one_hot(self.unit, self.made.n_features).bool()
        fires = (table.to_dense() > 0).float()
        self.mostly = self.alone | ((labels.T @ fires) >= MOSTLY * fires.sum(dim=0).clamp(min=1))
        self.mostly &= (labels.T @ fires) > 0
        values = table.to_dense()[:, self.unit]
        called = (values > found.threshold[good]) & english.labels[:, good]
        self.strength = (values * called).sum(dim=0) / called.sum(dim=0)
        # The tokens that LDA refitted takes for the word, and their means.
        told = replace(english, labels=english.labels[:, good])
        self.lda = rivals.refitted_discriminants(told, shrinkage=SHRINKAGE)
        self.lda_threshold = rivals.own_detectors(
            rivals.largest_projections(told, self.lda), told.labels
        ).threshold
        at = (told.states @ self.lda > self.lda_threshold) & told.labels[told.groups]
        self.centre = told.states.mean(dim=0)
        self.means = (at.float().T @ told.states) / at.sum(dim=0)[:, None].clamp(min=1)
        self.said = spellings(self.known, self.words)

    def translate(self, cases: list[Case], edit: Edit | None) -> list[str]:
        from course_lib.mbart.activations import Site

        edits = {} if edit is None else {Site(SITE): interventions.edit_all_tokens(edit)}
        return interventions.translate_edited(
            self.model,
            self.tokenizer,
            [case.sentence for case in cases],
            [case.target for case in cases],
            edits,
        )

    def cases(self, rows: Tensor, per_word: int, seed: int) -> list[Case]:
        """Cases from these rows, in a random order of them; the aim is another word, at random."""
        rng = random.Random(seed)
        order = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))].tolist()
        tried = []
        for (word, code), said in self.said.items():
            number = self.words.index(word)
            others = [w for w in self.words if w != word and (w, code) in self.said]
            holding = [
                row
                for row in order
                if self.known.labels[row, word] and len(self.known.texts[ENGLISH][row]) <= LONGEST
            ]
            for row in holding[: 2 * per_word] if others else ():
                free = [
                    w for w in others if self.said[w, code] not in self.known.texts[code][row].lower()
                ] or others
                aim = self.words.index(rng.choice(free))
                tried.append(Case(number, aim, self.known.texts[ENGLISH][row], code, said))
        found: list[Case] = []
        count: dict[tuple[int, str], int] = {}
        for case, written in zip(tried, self.translate(tried, None), strict=True):
            aimed = self.said[self.words[case.aim], case.target]
            key = case.word, case.target
            if (
                case.written in written.lower()
                and aimed not in written.lower()
                and count.get(key, 0) < per_word
            ):
                count[key] = count.get(key, 0) + 1
                found.append(replace(case, written=written))
        return found

    def along(self, directions: Tensor, own: Tensor, strength: float) -> Edit:
        """A step towards the mean of all states along a direction, at the tokens that LDA calls."""
        unit = torch.nn.functional.normalize(directions, dim=1)

        def edit(x: Tensor, i: Tensor) -> Tensor:
            word = own[i]
            called = (x * self.lda.T[word]).sum(dim=1, keepdim=True) > self.lda_threshold[word][:, None]
            length = ((x - self.centre) * unit[word]).sum(dim=1, keepdim=True)
            return x - called * strength * length * unit[word]

        return edit

    def off(self, arm: str, cases: list[Case], strength: float) -> Edit:
        own = torch.tensor([case.word for case in cases])
        if arm == "LDA refitted":
            return self.along(self.lda.T, own, strength)
        if arm == "difference of means":
            return self.along(self.means - self.centre, own, strength)
        features = self.mostly if arm == "its features" else self.alone
        return interventions.edit_features(self.made, features[own], factor=1 - strength)

    def exchanged(self, arm: str, cases: list[Case], strength: float) -> Edit:
        own, aim = (torch.tensor([getattr(case, name) for case in cases]) for name in ("word", "aim"))
        if arm == "difference of means":

            def edit(x: Tensor, i: Tensor) -> Tensor:
                word, other = own[i], aim[i]
                called = (x * self.lda.T[word]).sum(dim=1, keepdim=True) > self.lda_threshold[word][:, None]
                return x + called * strength * (self.means[other] - self.means[word])

            return edit
        away = self.mostly if arm == "its features" else self.alone

        @torch.no_grad()
        def by_feature(x: Tensor, i: Tensor) -> Tensor:
            word, other = own[i], aim[i]
            code = self.made.encode(x)
            fires = code.gather(1, self.unit[word][:, None]) > 0
            edited = torch.where(away[word], 0, code)
            edited = edited.scatter(1, self.unit[other][:, None], strength * self.strength[other][:, None])
            return x + fires * (self.made.decode(edited) - self.made.decode(code))

        return by_feature

    def outcome(self, cases: list[Case], edit: Edit, *, exchanged: bool) -> dict[str, float]:
        gone, there, kept = [], [], []
        for case, after in zip(cases, self.translate(cases, edit), strict=True):
            said = self.said[self.words[case.word], case.target]
            gone.append(said not in after.lower())
            there.append(self.said[self.words[case.aim], case.target] in after.lower())
            kept.append(rest_kept(case.written, after, said))
        done, rest = torch.tensor(gone), torch.tensor(kept)
        if exchanged:
            done = done & torch.tensor(there)
        figures = {
            "hits, %": percent(done & (rest >= KEPT)),
            "gone, %": percent(torch.tensor(gone)),
            "rest kept, %": round(100 * float(rest.mean()), 2),
        }
        return figures | ({"other word there, %": percent(torch.tensor(there))} if exchanged else {})


def of_seed(
    seed: int, n_rows: int, steps: int, per_word: int, strengths: tuple[float, ...]
) -> dict[str, float]:
    """The figures of a seed by name."""
    torch.set_num_threads(1)
    bench = Bench(seed, n_rows, steps)
    tuning = bench.cases(bench.unseen, per_word, 1000 + seed)
    testing = bench.cases(bench.known.held_out.nonzero()[:, 0], per_word, 2000 + seed)
    found: dict[str, float] = {
        "words with a feature": len(bench.words),
        "words and languages": len(bench.said),
        "cases": len(testing),
        "cases to choose on": len(tuning),
    }

    def chosen(make: Callable[[str, list[Case], float], Edit], arm: str, *, exchanged: bool) -> float:
        hits = {
            s: bench.outcome(tuning, make(arm, tuning, s), exchanged=exchanged)["hits, %"] for s in strengths
        }
        return max(hits, key=lambda s: hits[s])

    for what, make, arms in (
        ("off", bench.off, ("feature", "its features", "LDA refitted", "difference of means")),
        ("exchanged", bench.exchanged, ("feature", "its features", "difference of means")),
    ):
        exchanged = what == "exchanged"
        for arm in arms:
            strength = chosen(make, arm, exchanged=exchanged)
            found[f"{what}: {arm}: strength"] = strength
            seen = bench.outcome(testing, make(arm, testing, strength), exchanged=exchanged)
            found |= {f"{what}: {arm}: {name}": value for name, value in seen.items()}
    like = bench.off("feature", testing, found["off: feature: strength"])
    own = torch.tensor([case.word for case in testing])
    controls = {
        "another feature, as far": interventions.edit_other_feature(
            bench.made, bench.unit[own], ~bench.mostly[own], like=like
        ),
        "random, as far": interventions.move_randomly(like, torch.Generator().manual_seed(seed)),
        "reconstruction": interventions.reconstruct(bench.made),
    }
    for arm, edit in controls.items():
        seen = bench.outcome(testing, edit, exchanged=False)
        found |= {f"off: {arm}: {name}": value for name, value in seen.items()}
    return found


def run(
    *,
    seeds: tuple[int, ...] = SEEDS,
    rows: int = ROWS,
    steps: int = SparseConfig().training.steps,
    per_word: int = PER_WORD,
    strengths: tuple[float, ...] = STRENGTHS,
) -> dict[str, list[float]]:
    """Return each figure with all seeds, in their order."""
    with ProcessPoolExecutor(
        max_workers=min(2, os.cpu_count() or 1), mp_context=get_context("spawn")
    ) as pool:
        asked = [pool.submit(of_seed, seed, rows, steps, per_word, strengths) for seed in seeds]
        runs = [one.result() for one in asked]
    return {name: [one[name] for one in runs] for name in runs[0]}
