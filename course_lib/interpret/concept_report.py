"""How well single units of a code detect known concepts, compared with baselines.

Everything that is chosen (the unit, its sign, its threshold) is chosen on training rows and scored on held-out rows,
so having thousands of units to choose from gains nothing by itself. The measure is F1. The AUROC of the same unit
stands beside it: AUROC is lenient where a concept is rare (see `detectors`).
"""

import json
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from course_lib.interpret import rivals
from course_lib.interpret.across import SHRINKAGES, AcrossLanguages, across_languages
from course_lib.interpret.concepts import (
    LabelledRows,
    best_thresholds,
    f1_scores,
    logistic_probe,
    principal_components,
    random_features,
)
from course_lib.interpret.detectors import (
    REACHED,
    SHARED,
    Detectors,
    Judged,
    best_concepts,
    best_detectors,
    joined_detectors,
    judge,
)
from course_lib.interpret.spans import SpanScore, span_scores, span_summary
from course_lib.interpret.splits import Shortfall, shortfalls
from course_lib.interpret.translated_words import (
    ALIKE,
    CEILING_REACHED,
    TRANSLATED,
    TranslatedWord,
    TranslatedWords,
)

AUROC_REACHED = 0.95  # the held-out AUROC shown beside F1: many units reach it that are no detectors
TOGETHER = (1, 2, 4)  # numbers of units whose calls are joined
_COLUMNS = 32  # of a table of units whose negative is looked at a part at a time
_TOLERANCE = 1e-3  # of the probe's gradient; 1e-5 takes twice the time and changes no F1 by 0.001


@dataclass(frozen=True)
class ConceptScore:
    """The detector of a concept: chosen on training rows, scored on held-out rows.

    sign * s > threshold is the call. `languages_reached` counts the languages on whose held-out rows its F1 is at
    least `SHARED`, of the `languages_scored` that have enough rows with the concept, and `by_language` holds its F1 on
    these. `together` holds the held-out F1 of the best 1, 2 and 4 features joined, for lexical concepts. `calls` counts
    the held-out rows that are called and `hits` those of them that hold the concept; None in older reports.
    """

    concept: str
    category: str
    positives_train: int
    positives_held_out: int
    unit: int
    sign: int
    threshold: float
    f1_train: float
    f1: float
    auroc: float
    languages_reached: int
    languages_scored: int
    together: tuple[float, ...] = ()
    by_language: dict[str, float] = field(default_factory=dict)
    calls: int | None = None
    hits: int | None = None


@dataclass(frozen=True)
class CategoryScore:
    """The best feature for "any word of this category", beside the words' own.

    `f1` is its held-out F1 for the category. `own_unit` is the number of the category's `n` words that have it as
    their detector, too: one feature for "a tool" is the best there is for "hammer".
    `silent` is the share of held-out rows with one of its words in which it does not fire: `with_special` for words
    that have a good detector of their own, `without` for the others; None where there are no such words.

    `absorbed` is the share of held-out rows with a word of the category in which it is silent and the word's own
    detector fires, each by its threshold: the mean over the words whose detector is another unit. `absorbed_random`
    is the same with each word paired with a random other category: the value for a unit that ignores the word. None
    where there are no such words, or no other category.
    """

    category: str
    n: int
    unit: int
    f1: float
    own_unit: int
    silent_with_special: float | None
    silent_without: float | None
    absorbed: float | None
    absorbed_random: float | None


@dataclass(frozen=True)
class ConceptReport:
    """Concept scores of an autoencoder's features and of the baselines beside them.

    `scores` holds one row for each concept in "features", "neurons", "components", "random", "means", "lda" and "probe":
    all concepts for the features, the lexical ones for the others. The last three are made from labels, and a concept's
    direction is a unit of its own: the difference of the tokens' means, that divided by how much the tokens vary (the
    shrinkage has the best F1 in training), and a logistic regression on the mean of a row's tokens.
    `skipped` are the concepts with too few rows: nothing is known about them.

    `spans` has a row for each lexical concept in "features", "neurons", "components", "random" and "directions" (as
    many random ones as neurons), where the tokens of its words are known.

    `shortfalls` has a row for each lexical concept whose feature does not reach `REACHED`, lowest F1 first: what it
    misses and what it calls instead. What divides hits from misses is a concept that is not lexical, or a language.

    `across` says what was chosen on the sentences of one language and found in the others, for the lexical concepts;
    None where that cannot be asked.

    `named` has a row for each feature that is ever active in training: the concept that it detects best there
    (`detectors.best_concepts`), which is its name where it is far enough above chance (`names.feature_names`). `scores` has
    for each concept the best feature, `named` for each feature the best concept.

    `translated` are the concepts of a table, words of one language or labels (`translated_words`), with the ceiling that
    the words of each language allow; None where the concepts are not from there.
    """

    scores: dict[str, list[ConceptScore]]
    categories: list[CategoryScore]
    lexical: frozenset[str]
    skipped: list[str]
    settings: dict[str, float | int]
    spans: dict[str, list[SpanScore]] = field(default_factory=dict)
    shortfalls: list[Shortfall] = field(default_factory=list)
    across: AcrossLanguages | None = None
    translated: TranslatedWords | None = None
    named: list[ConceptScore] = field(default_factory=list)

    def absorption(self) -> dict[str, float | int | None]:
        """Count the words whose detector is not their category's, and average both shares over them."""
        known = [c for c in self.categories if None not in (c.absorbed, c.absorbed_random)]
        words = [c.n - c.own_unit for c in known]
        mean = partial(statistics.fmean, weights=words) if words else (lambda shares: None)
        return {
            "words": sum(words),
            "absorbed": mean([c.absorbed for c in known]),
            "absorbed_random": mean([c.absorbed_random for c in known]),
        }

    def shortfall_summary(self) -> dict[str, int]:
        """Count the lexical concepts that fall short, and those that are split, merged, and neither."""
        neither = sum(not (s.split or s.merger) for s in self.shortfalls)
        splits, mergers = (sum(getattr(s, kind) for s in self.shortfalls) for kind in ("split", "merger"))
        return {"n": len(self.shortfalls), "split": splits, "merger": mergers, "neither": neither}

    def span_summary(self) -> dict[str, dict[str, float | int]]:
        """Summarise each set of units in `spans` by shares and medians over the concepts (`spans.span_summary`)."""
        return {name: span_summary(scores) for name, scores in self.spans.items()}

    def summary(self) -> dict[str, dict[str, object]]:
        """Summarise each set of units: shares of the scored lexical concepts, and figures by category.

        "lexical_reached" is the share with a held-out F1 of at least `REACHED`, "lexical_auroc" that with an AUROC
        of at least `AUROC_REACHED`. "lexical_judged" counts the concepts with enough rows in 3 languages or more,
        "lexical_shared" is the share of these whose one unit has an F1 of at least `SHARED` in 3 or more.
        "lexical_units" counts the different units, "lexical_not_scored" the concepts left out, and
        "lexical_together" gives the share reached by 1, 2 and 4 units joined.
        """
        return {name: self._summary_of(scores) for name, scores in self.scores.items()}

    def _summary_of(self, scores: list[ConceptScore]) -> dict[str, object]:
        lexical = [s for s in scores if s.concept in self.lexical]
        judged = [s for s in lexical if s.languages_scored >= 3]
        by_category: dict[str, list[ConceptScore]] = {}
        for score in scores:
            by_category.setdefault(score.category, []).append(score)
        return {
            "n_concepts": len(scores),
            "n_lexical": len(lexical),
            "lexical_not_scored": len(self.lexical & set(self.skipped)),
            "lexical_reached": _share(s.f1 >= REACHED for s in lexical),
            "lexical_auroc": _share(s.auroc >= AUROC_REACHED for s in lexical),
            "lexical_judged": len(judged),
            "lexical_shared": _share(s.languages_reached >= 3 for s in judged),
            "lexical_units": len({s.unit for s in lexical}),
            "lexical_median_f1": statistics.median(s.f1 for s in lexical) if lexical else None,
            "lexical_median_auroc": statistics.median(s.auroc for s in lexical) if lexical else None,
            "lexical_together": {
                str(size): _share(s.together[i] >= REACHED for s in lexical)
                for i, size in enumerate(TOGETHER)
                if all(s.together for s in lexical) and lexical
            },
            "categories": {
                category: {
                    "n": len(rows),
                    "reached": _share(s.f1 >= REACHED for s in rows),
                    "median_f1": statistics.median(s.f1 for s in rows),
                    "median_auroc": statistics.median(s.auroc for s in rows),
                }
                for category, rows in sorted(by_category.items())
            },
        }

    def translated_summary(self) -> dict[str, dict[str, object]]:
        """Summarise concepts from a table: all, words spelled alike somewhere, other words, values of each column.

        "n" counts the concepts, "median_f1" holds for each set of units, and for the "ceiling", the median F1 on the
        held-out sentences of each language. "at_ceiling" is the share of concepts whose feature has there at least
        `CEILING_REACHED` of the ceiling's F1.
        """
        if self.translated is None:
            return {}
        words, languages = self.translated.words, self.translated.languages
        groups = {"all": words} | {
            group: [word for word in words if word.category == group]
            for group in (TRANSLATED, ALIKE, *self.translated.labels)
        }
        f1 = {
            # In a table of one language, which may not be known, the score is that of its sentences.
            name: {
                score.concept: score.by_language if len(languages) > 1 else {languages[0]: score.f1}
                for score in scores
            }
            for name, scores in self.scores.items()
        }
        f1["ceiling"] = {
            word.concept: dict(zip(languages, row, strict=True))
            for word, row in zip(words, zip(*self.translated.ceiling.values(), strict=True), strict=True)
        }

        def at_ceiling(word: TranslatedWord, language: str) -> bool:
            found, most = (f1[name][word.concept][language] for name in ("features", "ceiling"))
            return found >= CEILING_REACHED * most

        return {
            group: {
                "n": len(chosen),
                "median_f1": {
                    name: {
                        language: statistics.median(rows[word.concept][language] for word in chosen)
                        for language in languages
                    }
                    for name, rows in f1.items()
                },
                "at_ceiling": {
                    language: _share(at_ceiling(word, language) for word in chosen) for language in languages
                },
            }
            for group, chosen in groups.items()
            if chosen
        }

    def to_json(self, *, indent: int | None = 2) -> str:
        """Settings, summary, the concepts left out, and every row."""
        content = {
            "settings": self.settings,
            "summary": self.summary(),
            "lexical": sorted(self.lexical),
            "skipped": self.skipped,
            "absorption": self.absorption(),
            "categories": [asdict(c) for c in self.categories],
            "span_summary": self.span_summary(),
            "spans": {name: [asdict(s) for s in rows] for name, rows in self.spans.items()},
            "across": None if self.across is None else asdict(self.across),
            "translated": None if self.translated is None else asdict(self.translated),
            "named": [asdict(s) for s in self.named],
            "shortfall_summary": self.shortfall_summary(),
            "shortfalls": [asdict(s) for s in self.shortfalls],
            "scores": {name: [asdict(s) for s in rows] for name, rows in self.scores.items()},
        }
        return json.dumps(content, indent=indent, allow_nan=False) + "\n"


def _share(holds) -> float | None:
    found = list(holds)
    return sum(found) / len(found) if found else None


class TooFewRowsError(ValueError):
    """There are too few rows to score any concept."""


class _Units(NamedTuple):
    """Values of a set of units on training and on held-out states; `signed` where a unit's negative counts, too."""

    values: Sequence[Float[Tensor, "_ units"]]
    signed: bool


@dataclass(frozen=True)
class _Sides:
    """Training and held-out rows with labels of the same `concepts`."""

    train: LabelledRows
    held_out: LabelledRows
    concepts: list[str]
    categories: Mapping[str, str]

    def __iter__(self) -> Iterator[LabelledRows]:
        return iter((self.train, self.held_out))

    def select(self, chosen: Bool[Tensor, " concepts"]) -> "_Sides":
        """Keep the labels of some concepts."""
        sides = (
            replace(
                rows,
                labels=rows.labels[:, chosen],
                part_labels=None if rows.part_labels is None else rows.part_labels[:, chosen],
            )
            for rows in self
        )
        names = [c for c, keep in zip(self.concepts, chosen.tolist(), strict=True) if keep]
        return _Sides(*sides, names, self.categories)

    def scores(self, judged: Judged) -> list[ConceptScore]:
        """Return one row for each concept."""
        return scores_of(judged, self.train, concepts=self.concepts, categories=self.categories)


def concept_report(
    features: Sequence[Float[Tensor, "_ units"]],
    train: LabelledRows,
    held_out: LabelledRows,
    *,
    concepts: Sequence[str],
    categories: Mapping[str, str],
    lexical: Collection[str],
    generator: torch.Generator,
    min_train: int = 10,
    min_held_out: int = 30,
    ridge: float | int = 1e-4,
    translated: TranslatedWords | None = None,
) -> ConceptReport:
    """Score features on known concepts, beside neurons, PCA, random features and directions made from labels.

    `features` are the codes of the training and of the held-out states (`encode_rows`), sparse or dense and not
    negative. `concepts` names the labels' columns, `categories` gives the category of each and `lexical` those
    that are words of content. There are as many random features, with as many active in a state, as features are on
    average in training. Of rows with groups every unit's largest value counts, for neurons and components in
    either direction, and the probe alone reads the mean states. Where rows have `part_labels`, units are also scored as
    detectors of a concept's tokens (`spans`), beside random directions.

    With `translated` the concepts are those of a table: `across` begins in the language of its words, and what is asked of
    the words of a category together is left out, since their categories are no meanings.

    A concept is scored with `min_train` rows that hold it in training, one that does not, and `min_held_out` held-out
    ones.

    Raises ValueError where a held-out meaning is a training meaning and for tables that do not fit, and
    TooFewRowsError where no concept (of the lexical ones, where there are any) has enough rows.
    """
    sides = _Sides(train, held_out, list(concepts), categories)
    _check_sides(sides)
    kept, asked = _concepts_with_enough_rows(sides, lexical, min_train=min_train, min_held_out=min_held_out)
    all_kept, words = sides.select(kept), sides.select(asked)
    sparse = _largest_sparse(features, sides)
    tokens_known = all(rows.part_labels is not None for rows in words)
    judged = judge(best_detectors(sparse[0], all_kept.train.labels), sparse[1], all_kept.held_out)
    scores = {"features": _add_joined(all_kept.scores(judged), sparse, words)}
    spans = {"features": _score_spans(_Units(features, False), words)} if tokens_known else {}
    for name, units in _baselines(features[0], sides, generator):
        scores[name] = _score_units(units, words)
        if tokens_known:
            spans[name] = _score_spans(units, words)
    if tokens_known:
        spans["directions"] = _score_spans(_random_directions(words, generator), words)
    scores |= {name: words.scores(judged) for name, judged in _judge_directions(words).items()}
    scores["probe"] = words.scores(_judge_probes(*words, ridge=ridge))
    of_words = [score for score in scores["features"] if score.together]
    by_category = category_scores(sparse, *words, of_words, generator=generator) if translated is None else []
    below = sorted((score.f1, score.concept) for score in of_words if score.f1 < REACHED)
    short = _shortfalls(
        judged.detectors.calls(sparse[1]),
        all_kept,
        lexical,
        [concept for _, concept in below if concept in lexical],
        generator,
    )
    settings = {
        "rows_train": len(train.labels),
        "rows_held_out": len(held_out.labels),
        "d_model": train.states.shape[1],
        "n_features": features[0].shape[1],
        "active_per_row": _active_per_row(features[0]),
        "reached": REACHED,
        "shared": SHARED,
        "auroc_reached": AUROC_REACHED,
        "min_train": min_train,
        "min_held_out": min_held_out,
        "ridge": ridge,
    }
    skipped = sides.select(~kept).concepts
    across = across_languages(
        {"features": sparse, "neurons": _both_signs([rows.states.float() for rows in words], words)},
        *words,
        min_train=min_train,
        language=None if translated is None else translated.pivot,
    )
    named = _best_concepts(sparse, all_kept)
    return ConceptReport(
        scores, by_category, frozenset(lexical), skipped, settings, spans, short, across, translated, named
    )


def _check_sides(sides: _Sides) -> None:
    for name, rows in zip(("train", "held_out"), sides, strict=True):
        if rows.labels.shape[1] != len(sides.concepts):
            raise ValueError(
                f"{name} has labels for {rows.labels.shape[1]} concepts; {len(sides.concepts)} are named"
            )
    shared = set(sides.train.meanings or ()) & set(sides.held_out.meanings or ())
    if shared:
        raise ValueError(
            f"{len(shared)} meanings, such as {min(shared)}, are in train and in held_out; split rows by "
            "meaning, or a unit is scored on translations of what it was chosen on"
        )


def _concepts_with_enough_rows(
    sides: _Sides, lexical: Collection[str], *, min_train: int, min_held_out: int
) -> tuple[Bool[Tensor, " concepts"], Bool[Tensor, " concepts"]]:
    """Return which concepts have enough rows, and which of these are lexical (all, where none is lexical)."""
    train, held_out = (rows.labels.sum(dim=0) for rows in sides)
    kept = (train >= max(1, min_train)) & (held_out >= max(1, min_held_out))
    kept &= train < len(sides.train.labels)
    words = torch.tensor([concept in lexical for concept in sides.concepts])
    asked = kept & words if words.any() else kept
    if not asked.any():
        raise TooFewRowsError(
            f"no {'lexical ' * bool(words.any())}concept has {min_train} rows in train and {min_held_out} in "
            "held_out; give more rows or lower min_train and min_held_out"
        )
    return kept, asked


def _best_concepts(tables: Sequence[Tensor], sides: _Sides) -> list[ConceptScore]:
    """Choose each feature's best concept on training rows, and judge it on held-out rows."""
    concept, found = best_concepts(tables[0], sides.train.labels)
    train, held_out = (replace(rows, labels=rows.labels[:, concept], part_labels=None) for rows in sides)
    names = [sides.concepts[i] for i in concept.tolist()]
    judged = judge(found, tables[1], held_out)
    return scores_of(judged, train, concepts=names, categories=sides.categories)


def _add_joined(
    scores: Sequence[ConceptScore], tables: Sequence[Tensor], words: _Sides
) -> list[ConceptScore]:
    """Add the held-out F1 of joined features to the scores of `words`."""
    train, held_out = (table.to_dense() if table.is_sparse else table for table in tables)
    found = joined_detectors(train, words.train.labels, held_out, words.held_out.labels, sizes=TOGETHER)
    joined = {c: tuple(values) for c, values in zip(words.concepts, found.T.tolist(), strict=True)}
    return [replace(score, together=joined.get(score.concept, ())) for score in scores]


def _largest_sparse(values: Sequence[Tensor], sides: _Sides) -> list[Tensor]:
    """Return each side's largest values, which are not negative, as sparse tables."""
    largest = (rows.largest(table) for table, rows in zip(values, sides, strict=True))
    return [table if table.is_sparse else table.to_sparse_coo() for table in largest]


def _baselines(code: Tensor, sides: _Sides, generator: torch.Generator) -> Iterator[tuple[str, _Units]]:
    """Yield the units that features are compared with, on training and held-out states, one set after the other.

    Each has a table as large as the states: all of them together would take several times their memory.
    """
    states = tuple(rows.states.float() for rows in sides)
    yield "neurons", _Units(states, True)
    yield "components", _Units(principal_components(states[0], *states), True)
    active = max(1, round(_active_per_row(code)))
    random = random_features(states[0], *states, n_features=code.shape[1], active=active, generator=generator)
    yield "random", _Units(random, False)


def _random_directions(sides: _Sides, generator: torch.Generator) -> _Units:
    """Project the states on as many random directions as they have dimensions."""
    states = [rows.states.float() for rows in sides]
    directions = torch.randn(2 * [states[0].shape[1]], generator=generator)
    directions /= directions.norm(dim=0)
    mean = states[0].mean(dim=0)
    return _Units([(side - mean) @ directions for side in states], True)


def _score_units(units: _Units, words: _Sides) -> list[ConceptScore]:
    """Choose and score a unit for each concept, with its sign."""
    n_units = units.values[0].shape[1]
    found = words.scores(_judge_units(units, words))
    return [s if s.unit < n_units else replace(s, unit=s.unit - n_units, sign=-1) for s in found]


def _score_spans(units: _Units, words: _Sides) -> list[SpanScore]:
    """Score a set of units as detectors of the concepts' tokens, which are known."""
    return span_scores(
        *units.values,
        *(rows.part_labels for rows in words),
        sentences=words.held_out.groups,
        concepts=words.concepts,
        categories=words.categories,
        signed=units.signed,
    )


def _shortfalls(
    calls: Tensor, sides: _Sides, lexical: Collection[str], below: Sequence[str], generator: torch.Generator
) -> list[Shortfall]:
    """Find what the concepts `below` miss and what they call instead, in their order."""
    rows, names = sides.held_out, sides.concepts
    of_words = torch.tensor([name in lexical for name in names])
    spoken = sorted(set(rows.languages or ()))
    speaks = torch.tensor([[one == language for language in spoken] for one in rows.languages or ()])
    labels = rows.labels[:, ~of_words].bool()
    found = shortfalls(
        calls[:, of_words],
        rows.labels[:, of_words].bool(),
        concepts=[name for name in names if name in lexical],
        labels=torch.cat([labels, speaks], dim=1) if spoken else labels,
        names=[name for name in names if name not in lexical] + spoken,
        generator=generator,
        which=below,
    )
    by_name = {one.concept: one for one in found}
    return [by_name[concept] for concept in below]


def scores_of(
    judged: Judged, train: LabelledRows, *, concepts: Sequence[str], categories: Mapping[str, str]
) -> list[ConceptScore]:
    """Return one row for each concept of what `judge` found, for units that are not negative."""
    columns = (
        train.labels.sum(dim=0),
        judged.positives,
        judged.detectors.unit,
        torch.ones_like(judged.positives),
        judged.detectors.threshold,
        judged.detectors.f1,
        judged.f1,
        judged.auroc,
        judged.languages,
        judged.scored,
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    by_language = [
        {name: f1[i].item() for name, f1 in judged.by_language.items() if not f1[i].isnan()}
        for i in range(len(concepts))
    ]
    counted = zip(judged.calls.tolist(), judged.hits.tolist(), strict=True)
    return [
        ConceptScore(c, categories[c], *row, by_language=of_languages, calls=calls, hits=hits)
        for c, row, of_languages, (calls, hits) in zip(concepts, rows, by_language, counted, strict=True)
    ]


def category_scores(
    tables: Sequence[Float[Tensor, "_ units"]],
    train: LabelledRows,
    held_out: LabelledRows,
    scores: Sequence[ConceptScore],
    *,
    generator: torch.Generator,
) -> list[CategoryScore]:
    """Return for each category of two or more words the best unit for any of them.

    `tables` are the values of training and held-out rows, `scores` one row for each column of the labels; the
    generator draws the random pairs of `absorbed_random`. Raises ValueError where their numbers differ.
    """
    if len(scores) != train.labels.shape[1]:
        raise ValueError(f"scores has {len(scores)} rows for {train.labels.shape[1]} columns of labels")
    members = _members(scores)
    if not members:
        return []
    labels = [
        torch.stack([rows.labels[:, columns].any(dim=1) for columns in members.values()], dim=1)
        for rows in (train, held_out)
    ]
    found = best_detectors(tables[0], labels[0])
    judged = judge(found, tables[1], replace(held_out, labels=labels[1], part_labels=None))
    words = Detectors(
        *(torch.tensor([getattr(score, name) for score in scores]) for name in ("unit", "threshold", "f1"))
    )
    general, special, holds = found.calls(tables[1]), words.calls(tables[1]), held_out.labels
    result = []
    for i, (category, columns) in enumerate(members.items()):
        others = [c for c in columns if scores[c].unit != found.unit[i]]  # words with another detector
        pairs = _random_pairs(i, len(members), len(others), generator)
        reached = [[c for c in others if (scores[c].f1 >= REACHED) == good] for good in (True, False)]
        silent = [_silent_share(general[:, i], holds[:, chosen].any(dim=1)) for chosen in reached]
        absorbed = [
            absorbed_share(general[:, chosen], special[:, others], holds[:, others]).mean().item()
            if len(chosen)
            else None
            for chosen in ([i] * len(others), pairs)
        ]
        unit, f1, n = int(found.unit[i]), float(judged.f1[i]), len(columns)
        result.append(CategoryScore(category, n, unit, f1, n - len(others), *silent, *absorbed))
    return result


def _members(scores: Sequence[ConceptScore]) -> dict[str, list[int]]:
    """Return the columns of each category that has two or more."""
    members: dict[str, list[int]] = {}
    for column, score in enumerate(scores):
        members.setdefault(score.category, []).append(column)
    return {category: columns for category, columns in members.items() if len(columns) > 1}


def _random_pairs(i: int, n: int, size: int, generator: torch.Generator) -> Int[Tensor, " pairs"]:
    """Draw `size` categories out of `n`, none of them `i`; no pairs where there is no other category."""
    others = torch.tensor([j for j in range(n) if j != i], dtype=torch.long)
    if not size or not len(others):
        return others[:0]
    return others[torch.randint(len(others), (size,), generator=generator)]


def _silent_share(calls: Bool[Tensor, " rows"], chosen: Bool[Tensor, " rows"]) -> float | None:
    """Share of the chosen rows that are not called; None where no row is chosen."""
    return (~calls[chosen]).double().mean().item() if chosen.any() else None


def absorbed_share(
    general: Bool[Tensor, "rows pairs"],
    special: Bool[Tensor, "rows pairs"],
    holds: Bool[Tensor, "rows pairs"],
) -> Float[Tensor, " pairs"]:
    """Share of the rows that hold a word in which the general detector is silent and the word's own one calls.

    An autoencoder saves an active feature if the special one also writes the general direction: the general feature
    is then absorbed. 0 where no row holds the word. Source: Chanin et al. (2024), arXiv:2409.14507.
    """
    return (~general & special & holds).sum(dim=0).double() / holds.sum(dim=0).clamp(min=1)


def _active_per_row(code: Tensor) -> float:
    return int((code.coalesce().values() if code.is_sparse else code).count_nonzero()) / len(code)


def _judge_units(units: _Units, sides: _Sides) -> Judged:
    """Choose and judge units of a set; the largest value and the largest negative one count as two units."""
    tables = _both_signs(units.values, sides) if units.signed else _largest_sparse(units.values, sides)
    return judge(best_detectors(tables[0], sides.train.labels), tables[1], sides.held_out)


def _both_signs(values: Sequence[Tensor], sides: _Sides) -> list[Tensor]:
    """Return each side's largest values and largest negative ones, beside one another."""
    return [
        # A few columns at a time: the negative of a table of all tokens would be one more of its size.
        torch.cat(
            [rows.largest(sign * part) for sign in (1, -1) for part in table.split(_COLUMNS, dim=1)], dim=1
        )
        for table, rows in zip(values, sides, strict=True)
    ]


def _judge_directions(sides: _Sides) -> dict[str, Judged]:
    """Judge the directions that labels of rows give: there is no unit to choose, only a threshold."""
    train, held_out = (replace(rows, states=rows.states.float()) for rows in sides)
    labels = train.labels if train.groups is None else train.labels[train.groups]

    def judged(directions: Tensor) -> tuple[float, Judged]:
        found = rivals.own_detectors(rivals.largest_projections(train, directions), train.labels)
        return float(found.f1.mean()), judge(
            found, rivals.largest_projections(held_out, directions), held_out
        )

    _, means = judged(rivals.difference_of_means(train.states, labels))
    tried = [
        judged(rivals.discriminants(train.states, labels, shrinkage=shrinkage)) for shrinkage in SHRINKAGES
    ]
    return {"means": means, "lda": max(tried, key=lambda one: one[0])[1]}


def _judge_probes(train: LabelledRows, held_out: LabelledRows, *, ridge: float | int) -> Judged:
    """The probe of a concept is its one detector: there is no unit to choose."""
    weight, bias = logistic_probe(train.mean().float(), train.labels, ridge=ridge, tolerance=_TOLERANCE)
    logits = [rows.mean().float() @ weight + bias for rows in (train, held_out)]
    threshold = best_thresholds(logits[0], train.labels)
    f1 = f1_scores(logits[0] > threshold, train.labels)
    return judge(Detectors(torch.arange(len(f1)), threshold, f1), logits[1], held_out)
