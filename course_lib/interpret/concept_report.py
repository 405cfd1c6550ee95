"""How well single units of a code say which known concepts a row holds, beside what nobody trained for it.

Whatever is chosen (the unit, its sign, its threshold) is chosen on training rows, and the score is that of
held-out rows, so having thousands of units to choose from gains nothing by itself. What counts is F1; the AUROC
of the same unit stands beside it, because it is lenient where a concept is rare (see `detectors`).
"""

import json
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

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
    best_detectors,
    joined_detectors,
    judge,
)
from course_lib.interpret.spans import SpanScore, span_scores, span_summary
from course_lib.interpret.splits import Shortfall, shortfalls

AUROC_REACHED = 0.95  # the held-out AUROC beside which F1 is shown: many units reach it that are no detectors
TOGETHER = (1, 2, 4)  # numbers of units whose calls are joined
_TOLERANCE = 1e-3  # of the probe's gradient; 1e-5 takes twice the time and changes no F1 by 0.001


@dataclass(frozen=True)
class ConceptScore:
    """The detector of a concept: chosen on training rows, scored on held-out rows.

    sign * s > threshold is the call. `languages_reached` counts the languages on whose held-out rows its F1 is at
    least `SHARED`, of the `languages_scored` that have enough rows with the concept. `together` holds the held-out
    F1 of the best 1, 2 and 4 features joined, for lexical concepts.
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


@dataclass(frozen=True)
class CategoryScore:
    """The best feature for "any word of this category", beside the words' own.

    `f1` is its held-out F1 for the category, `own_unit` the number of the category's `n` words that have it as
    their detector too: one feature that says "a tool" and stands for "hammer" because nothing better does.
    `silent` is the share of held-out rows with one of its words in which it does not fire, by whether that word
    has a feature of its own (`with_special`) or not (`without`); None where there are no such words.

    `absorbed` is the share of held-out rows with a word of it in which it is silent and the word's own detector
    fires, each by its threshold: the mean over the words whose detector is another unit. `absorbed_random` is the
    same where each word is paired with a random other category: what a unit that ignores the word comes to. None
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
    """Concept scores of an autoencoder's features and of the yardsticks beside them.

    `scores` holds one row a concept for each of "features", "neurons", "components", "random" and "probe": of all
    concepts for the features, of the lexical ones for the others. The probe of a concept is its own unit.
    `skipped` are the concepts with too few rows: nothing is known about them.

    `spans` has a row a lexical concept for "features", "neurons", "components", "random" and "directions" (as many
    random ones as neurons), where it is known which tokens are its words'.

    `shortfalls` says of each lexical concept whose feature does not reach `REACHED` what it misses and what it calls
    instead, lowest F1 first: what divides hits from misses is a concept that is not lexical, or a language.
    """

    scores: dict[str, list[ConceptScore]]
    categories: list[CategoryScore]
    lexical: frozenset[str]
    skipped: list[str]
    settings: dict[str, float | int]
    spans: dict[str, list[SpanScore]] = field(default_factory=dict)
    shortfalls: list[Shortfall] = field(default_factory=list)

    def absorption(self) -> dict[str, float | int | None]:
        """How many words have a detector other than their category's, and the means of both shares over them."""
        known = [c for c in self.categories if None not in (c.absorbed, c.absorbed_random)]
        words = [c.n - c.own_unit for c in known]
        mean = partial(statistics.fmean, weights=words) if words else (lambda shares: None)
        return {
            "words": sum(words),
            "absorbed": mean([c.absorbed for c in known]),
            "absorbed_random": mean([c.absorbed_random for c in known]),
        }

    def shortfall_summary(self) -> dict[str, int]:
        """How many lexical concepts fall short, how many are split, merged, and neither."""
        neither = sum(not (s.split or s.merger) for s in self.shortfalls)
        splits, mergers = (sum(getattr(s, kind) for s in self.shortfalls) for kind in ("split", "merger"))
        return {"n": len(self.shortfalls), "split": splits, "merger": mergers, "neither": neither}

    def span_summary(self) -> dict[str, dict[str, float | int]]:
        """For each set of units in `spans`: shares and medians over the concepts, see `spans.span_summary`."""
        return {name: span_summary(scores) for name, scores in self.spans.items()}

    def summary(self) -> dict[str, dict[str, object]]:
        """For each set of units: shares of the scored lexical concepts, and figures by category.

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
            "shortfall_summary": self.shortfall_summary(),
            "shortfalls": [asdict(s) for s in self.shortfalls],
            "scores": {name: [asdict(s) for s in rows] for name, rows in self.scores.items()},
        }
        return json.dumps(content, indent=indent, allow_nan=False) + "\n"


def _share(holds) -> float | None:
    found = list(holds)
    return sum(found) / len(found) if found else None


class TooFewRowsError(ValueError):
    """Rows that are too few to score any concept on."""


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
) -> ConceptReport:
    """Score features on known concepts, beside neurons, PCA, random features and a probe.

    `features` are the codes of the training and of the held-out states (`encode_rows`), sparse or dense and not
    negative. `concepts` names the labels' columns, `categories` gives the category of each and `lexical` those
    that are words of content. Random features are as many, with as many active in a state as the features have on
    the mean of the training states. Of rows with groups every unit's largest value counts, for neurons and
    components in either direction, and the probe reads the mean states. Where rows have `part_labels`, units are
    scored as detectors of a concept's tokens, too (`spans`), beside them random directions in either direction.

    A concept is scored with `min_train` rows that hold it in training and `min_held_out` held-out ones.

    Raises ValueError where a held-out meaning is a training meaning and for tables that do not fit, and
    TooFewRowsError where no concept (of the lexical ones, where there are any) has enough rows.
    """
    for name, rows in (("train", train), ("held_out", held_out)):
        if rows.labels.shape[1] != len(concepts):
            raise ValueError(
                f"{name} has labels for {rows.labels.shape[1]} concepts; {len(concepts)} are named"
            )
    shared = set(train.meanings or ()) & set(held_out.meanings or ())
    if shared:
        raise ValueError(
            f"{len(shared)} meanings, such as {min(shared)}, are in train and in held_out; split rows by "
            "meaning, or a unit is scored on translations of what it was chosen on"
        )
    kept = (train.labels.sum(dim=0) >= max(1, min_train)) & (
        held_out.labels.sum(dim=0) >= max(1, min_held_out)
    )
    words = torch.tensor([concept in lexical for concept in concepts])
    asked = kept & words if words.any() else kept
    if not asked.any():
        raise TooFewRowsError(
            f"no {'lexical ' * bool(words.any())}concept has {min_train} rows in train and {min_held_out} in "
            "held_out; give more rows or lower min_train and min_held_out"
        )

    def of(chosen: Tensor) -> tuple[LabelledRows, LabelledRows, list[str]]:
        sides = (
            replace(
                rows,
                labels=rows.labels[:, chosen],
                part_labels=None if rows.part_labels is None else rows.part_labels[:, chosen],
            )
            for rows in (train, held_out)
        )
        return *sides, [c for c, keep in zip(concepts, chosen.tolist(), strict=True) if keep]

    own_train, own_held_out, names = of(kept)
    tables = [rows.largest(code) for rows, code in zip((own_train, own_held_out), features, strict=True)]
    sparse = [table if table.is_sparse else table.to_sparse_coo() for table in tables]
    of_features = judge(best_detectors(sparse[0], own_train.labels), sparse[1], own_held_out)
    scores = {"features": scores_of(of_features, own_train, concepts=names, categories=categories)}

    word_train, word_held_out, names = of(asked)
    dense = [table.to_dense() if table.is_sparse else table for table in tables]
    together = joined_detectors(
        dense[0], word_train.labels, dense[1], word_held_out.labels, sizes=TOGETHER
    ).T.tolist()
    joined = {c: tuple(values) for c, values in zip(names, together, strict=True)}
    scores["features"] = [replace(s, together=joined.get(s.concept, ())) for s in scores["features"]]

    states = (train.states.float(), held_out.states.float())
    per_row = _active(features[0]) / len(train.states)
    yardsticks = {
        "neurons": (states, True),
        "components": (tuple(table.float() for table in principal_components(states[0], *states)), True),
        "random": (
            random_features(
                states[0],
                *states,
                n_features=features[0].shape[1],
                active=max(1, round(per_row)),
                generator=generator,
            ),
            False,
        ),
    }
    for name, (values, signed) in yardsticks.items():
        judged = _judge_units(values, word_train, word_held_out, signed=signed)
        found = scores_of(judged, word_train, concepts=names, categories=categories)
        n_units = values[0].shape[1]
        scores[name] = [s if s.unit < n_units else replace(s, unit=s.unit - n_units, sign=-1) for s in found]
    spans = {}
    if word_train.part_labels is not None and word_held_out.part_labels is not None:
        directions = torch.randn(2 * [train.states.shape[1]], generator=generator)
        directions /= directions.norm(dim=0)
        mean = states[0].mean(dim=0)
        sets = {"features": (features, False)} | yardsticks
        sets["directions"] = tuple((side - mean) @ directions for side in states), True
        for name, (values, signed) in sets.items():
            spans[name] = span_scores(
                *values,
                word_train.part_labels,
                word_held_out.part_labels,
                sentences=word_held_out.groups,
                concepts=names,
                categories=categories,
                signed=signed,
            )
    judged = _judge_probes(word_train, word_held_out, ridge=ridge)
    scores["probe"] = scores_of(judged, word_train, concepts=names, categories=categories)

    settings = {
        "rows_train": len(train.labels),
        "rows_held_out": len(held_out.labels),
        "d_model": train.states.shape[1],
        "n_features": features[0].shape[1],
        "active_per_row": per_row,
        "reached": REACHED,
        "shared": SHARED,
        "auroc_reached": AUROC_REACHED,
        "min_train": min_train,
        "min_held_out": min_held_out,
        "ridge": ridge,
    }
    skipped = [c for c, keep in zip(concepts, kept.tolist(), strict=True) if not keep]
    by_category = category_scores(
        sparse,
        word_train,
        word_held_out,
        [s for s in scores["features"] if s.concept in joined],
        generator=generator,
    )
    below = sorted((s.f1, s.concept) for s in scores["features"] if s.concept in joined and s.f1 < REACHED)
    short = _shortfalls(
        of_features.detectors.calls(sparse[1]),
        own_held_out,
        [s.concept for s in scores["features"]],
        lexical,
        [concept for _, concept in below],
        generator,
    )
    return ConceptReport(scores, by_category, frozenset(lexical), skipped, settings, spans, short)


def _shortfalls(
    calls: Tensor,
    rows: LabelledRows,
    names: Sequence[str],
    lexical: Collection[str],
    below: Sequence[str],
    generator: torch.Generator,
) -> list[Shortfall]:
    """Say of the concepts `below`, in their order, what they miss and what they call instead."""
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
    """Return one row a concept of what `judge` found, for units that are not negative."""
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
    return [ConceptScore(c, categories[c], *row) for c, row in zip(concepts, rows, strict=True)]


def category_scores(
    tables: Sequence[Float[Tensor, "_ units"]],
    train: LabelledRows,
    held_out: LabelledRows,
    scores: Sequence[ConceptScore],
    *,
    generator: torch.Generator,
) -> list[CategoryScore]:
    """Return for each category of two or more words the best unit for any of them.

    `tables` are the values of training and held-out rows, `scores` one row a column of the labels; the generator
    draws the random pairs of `absorbed_random`. Raises ValueError where they are not as many.
    """
    if len(scores) != train.labels.shape[1]:
        raise ValueError(f"scores has {len(scores)} rows for {train.labels.shape[1]} columns of labels")
    members: dict[str, list[int]] = {}
    for column, score in enumerate(scores):
        members.setdefault(score.category, []).append(column)
    members = {category: columns for category, columns in members.items() if len(columns) > 1}
    if not members:
        return []
    labels = [
        torch.stack([rows.labels[:, columns].any(dim=1) for columns in members.values()], dim=1)
        for rows in (train, held_out)
    ]
    found = best_detectors(tables[0], labels[0])
    judged = judge(found, tables[1], replace(held_out, labels=labels[1], part_labels=None))
    calls = found.calls(tables[1])
    words = Detectors(
        *(torch.tensor([getattr(score, name) for score in scores]) for name in ("unit", "threshold", "f1"))
    )
    special = words.calls(tables[1])
    result = []
    for i, (category, columns) in enumerate(members.items()):
        own = [c for c in columns if scores[c].unit != found.unit[i]]
        others = torch.tensor([j for j in range(len(members)) if j != i])
        holds, fires = held_out.labels[:, own], special[:, own]
        absorbed = absorbed_random = None
        if own:
            absorbed = absorbed_share(calls[:, [i] * len(own)], fires, holds).mean().item()
        if own and len(others):
            drawn = others[torch.randint(len(others), (len(own),), generator=generator)]
            absorbed_random = absorbed_share(calls[:, drawn], fires, holds).mean().item()

        def silent(special: bool, i: int = i, columns: list[int] = columns) -> float | None:
            chosen = [
                c for c in columns if (scores[c].f1 >= REACHED) == special and scores[c].unit != found.unit[i]
            ]
            rows = held_out.labels[:, chosen].any(dim=1)
            return (~calls[rows, i]).double().mean().item() if rows.any() else None

        unit = int(found.unit[i])
        same = sum(scores[c].unit == unit for c in columns)
        result.append(
            CategoryScore(
                category,
                len(columns),
                unit,
                float(judged.f1[i]),
                same,
                silent(True),
                silent(False),
                absorbed,
                absorbed_random,
            )
        )
    return result


def absorbed_share(
    general: Bool[Tensor, "rows pairs"],
    special: Bool[Tensor, "rows pairs"],
    holds: Bool[Tensor, "rows pairs"],
) -> Float[Tensor, " pairs"]:
    """Share of the rows that hold a word in which the general detector is silent and the word's own one calls.

    An autoencoder saves an active feature where the special one writes the general direction, too: the general feature
    is then absorbed. 0 where no row holds the word. Source: Chanin et al. (2024), arXiv:2409.14507.
    """
    return (~general & special & holds).sum(dim=0).double() / holds.sum(dim=0).clamp(min=1)


def _active(code: Tensor) -> int:
    return int((code.coalesce().values() if code.is_sparse else code).count_nonzero())


def _judge_units(
    values: Sequence[Tensor], train: LabelledRows, held_out: LabelledRows, *, signed: bool
) -> Judged:
    """Choose and judge units of a set; the largest value and the largest negative one are two things."""
    tables = []
    for table, rows in zip(values, (train, held_out), strict=True):
        if signed:
            tables.append(torch.cat([rows.largest(table), rows.largest(-table)], dim=1))
        else:
            largest = rows.largest(table)
            tables.append(largest if largest.is_sparse else largest.to_sparse_coo())
    return judge(best_detectors(tables[0], train.labels), tables[1], held_out)


def _judge_probes(train: LabelledRows, held_out: LabelledRows, *, ridge: float | int) -> Judged:
    """The probe of a concept is its one detector: there is no unit to choose."""
    weight, bias = logistic_probe(train.mean().float(), train.labels, ridge=ridge, tolerance=_TOLERANCE)
    logits = [rows.mean().float() @ weight + bias for rows in (train, held_out)]
    threshold = best_thresholds(logits[0], train.labels)
    f1 = f1_scores(logits[0] > threshold, train.labels)
    return judge(Detectors(torch.arange(len(f1)), threshold, f1), logits[1], held_out)
