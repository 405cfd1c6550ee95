"""The report on concepts: planted units are found, nothing is chosen on the rows that are scored, gaps are said."""

import json
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course_lib.interpret import concepts
from course_lib.interpret.concept_report import absorbed_share, category_scores, concept_report, scores_of
from course_lib.interpret.concepts import LabelledRows, f1_scores
from course_lib.interpret.detectors import best_detectors, judge
from course_lib.sae.planted import PlantedDictionary


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


LANGUAGES = ("de_DE", "en_XX", "es_XX", "fr_XX")
NAMES = ["animal:dog", "animal:cat", "verb:eat", "grammar:plural", "place:rare", "food:nothing"]
CATEGORIES = {name: name.split(":")[0] for name in NAMES}
LEXICAL = [name for name in NAMES if not name.startswith("grammar")]


def world(n, seed):
    """States whose dimensions hold concepts.

    0: a dog; 1: no cat; 2: eating, but in English and French only; 3 and 4: the plural, half in each of the
    two; the rest is noise. One concept is too rare to score and one is in no dimension.
    """
    g = generator(seed)
    labels = torch.rand(n, len(NAMES), generator=g) < 0.2
    labels[:, 4] = torch.arange(n) < 3
    languages = [LANGUAGES[i % 4] for i in range(n)]
    states = 0.1 * torch.randn(n, 12, generator=g)
    dog, cat, eat, plural = labels[:, :4].float().T
    romance = torch.tensor([language in ("en_XX", "fr_XX") for language in languages]).float()
    states[:, 0] += dog
    states[:, 1] -= cat
    states[:, 2] += eat * romance
    states[:, 3] += plural + torch.randn(n, generator=g)
    states[:, 4] += plural - torch.randn(n, generator=g)
    return LabelledRows(states, labels, languages, range(seed * 10_000, seed * 10_000 + n))


def split(states):
    """Each dimension by its sign: 24 features of 12 dimensions that lose nothing."""
    return torch.cat([states.relu(), (-states).relu()], dim=1)


def reported(train, held_out, **changes):
    options = {"concepts": NAMES, "categories": CATEGORIES, "lexical": LEXICAL, "generator": generator()}
    features = [split(train.states), split(held_out.states)]
    return concept_report(features, train, held_out, **(options | changes))


@pytest.fixture(scope="module")
def report():
    return reported(world(1600, 0), world(800, 1))


def test_planted_units_are_found_with_their_sign_and_their_languages(report):
    for units, found in (
        ("features", {"dog": (0, 1), "cat": (13, 1)}),
        ("neurons", {"dog": (0, 1), "cat": (1, -1)}),
    ):
        rows = {row.concept.split(":")[1]: row for row in report.scores[units]}
        for name, place in found.items():
            assert (rows[name].unit, rows[name].sign) == place
            assert rows[name].f1 > 0.95
            assert rows[name].auroc > 0.99
            assert (rows[name].languages_reached, rows[name].languages_scored) == (4, 4)
    eat = next(row for row in report.scores["features"] if row.concept == "verb:eat")
    # It fires in English and French only: precise, with half of the recall.
    assert (eat.unit, eat.languages_reached) == (2, 2)
    assert eat.f1 == pytest.approx(2 / 3, abs=0.1)


def test_a_feature_s_own_concept_and_scores_by_language_are_those_of_its_calls(report):
    held_out = world(800, 1)
    table, names = split(held_out.states), {name: i for i, name in enumerate(NAMES)}
    assert [score.unit for score in report.named] == list(range(24))  # each is active at some training row
    assert next(score for score in report.named if score.unit == 0).concept == "animal:dog"
    for score in [*report.scores["features"], *report.named]:
        calls, holds = table[:, score.unit] > score.threshold, held_out.labels[:, names[score.concept]]
        assert score.f1 == pytest.approx(f1_scores(calls[:, None], holds[:, None]).item())
        assert set(score.by_language) == set(LANGUAGES)
        for language, f1 in score.by_language.items():
            own = torch.tensor([one == language for one in held_out.languages])
            assert f1 == pytest.approx(f1_scores(calls[own, None], holds[own, None]).item())


def test_concepts_with_too_few_rows_are_left_out_and_named(report):
    assert report.skipped == ["place:rare"]
    assert all("place:rare" not in {r.concept for r in rows} for rows in report.scores.values())
    assert {r.concept for r in report.scores["probe"]} == set(LEXICAL) - {"place:rare"}
    assert "grammar:plural" in {r.concept for r in report.scores["features"]}
    assert report.summary()["features"]["lexical_not_scored"] == 1


def test_what_is_chosen_in_one_language_is_scored_in_the_others(report):
    across = report.across
    assert (across.language, across.others, across.n) == ("en_XX", ["de_DE", "es_XX", "fr_XX"], 4)
    # In English three of the four are found; the unit of "eat" is silent in German and Spanish.
    assert (across.arms["features"].own, across.arms["features"].others) == (0.75, 0.5)
    assert across.arms["neurons"] == across.arms["features"]
    assert across.arms["lda"].own == 0.75
    # Rows that are single tokens leave nothing to guess.
    assert across.arms["refitted"] == across.arms["lda"]
    assert set(across.shrinkages) == {"lda", "refitted"}
    assert json.loads(report.to_json())["across"]["arms"]["features"] == {
        "own": 0.75,
        "others": 0.5,
    }
    one = [LabelledRows(rows.states, rows.labels) for rows in (world(1600, 0), world(800, 1))]
    assert reported(*one).across is None


def test_directions_from_labels_find_what_is_in_no_single_unit():
    """Two dimensions hold the concept and the same noise with opposite signs: only their sum is a detector."""
    sides = []
    for n, seed in ((600, 0), (400, 1)):
        labels = torch.rand(n, 1, generator=generator(seed)) < 0.3
        noise = 3 * torch.randn(n, 1, generator=generator(seed + 2))
        sides.append(LabelledRows(torch.cat([labels + noise, labels.float() - noise], dim=1), labels))
    options = {"concepts": ["a:b"], "categories": {"a:b": "a"}, "lexical": ["a:b"], "generator": generator()}
    found = concept_report([split(rows.states) for rows in sides], *sides, **options).scores
    assert found["lda"][0].f1 > 0.99
    assert found["neurons"][0].f1 < 0.6


def test_a_concept_of_all_training_rows_is_not_scored():
    train, held_out = world(400, 0), world(400, 1)
    train.labels[:, 3] = True
    assert "grammar:plural" in reported(train, held_out).skipped


def test_without_lexical_concepts_all_are_scored_and_no_shortfall_is_sought():
    report = reported(world(1600, 0), world(800, 1), lexical=[])
    assert {r.concept for r in report.scores["neurons"]} == set(NAMES) - {"place:rare"}
    assert min(r.f1 for r in report.scores["features"]) < 0.9
    assert report.shortfalls == []


def test_the_summary_counts_and_json_holds_it(report):
    features = report.summary()["features"]
    assert (features["n_concepts"], features["n_lexical"]) == (5, 4)
    assert features["lexical_reached"] == 0.5  # the dog and the cat
    assert features["lexical_judged"] == 4
    assert features["lexical_shared"] == 0.5
    assert features["categories"]["animal"] == {
        "n": 2,
        "reached": 1.0,
        "median_f1": pytest.approx(sum(r.f1 for r in report.scores["features"][:2]) / 2),
        "median_auroc": pytest.approx(sum(r.auroc for r in report.scores["features"][:2]) / 2),
    }
    assert list(features["lexical_together"]) == ["1", "2", "4"]
    assert report.summary()["probe"]["lexical_together"] == {}
    content = json.loads(report.to_json())
    assert content["summary"]["features"] == features
    assert content["settings"]["active_per_row"] == pytest.approx(12)


def test_choosing_among_thousands_of_units_gains_nothing_on_held_out_rows():
    g = generator(3)
    train, held_out = torch.randn(2, 300, 4096, generator=g)
    labels = torch.rand(2, 300, 20, generator=g) < 0.05
    rows = [LabelledRows(torch.zeros(300, 1), part) for part in labels]
    judged = judge(best_detectors(train, rows[0].labels), held_out, rows[1])
    names = [f"noise:{i}" for i in range(20)]
    scores = scores_of(judged, rows[0], concepts=names, categories=dict.fromkeys(names, "noise"))
    # Calling every row gives 0.1 without knowing anything.
    assert min(s.f1_train for s in scores) > 0.2
    assert sum(s.f1 for s in scores) / 20 < 0.1
    assert sum(s.auroc for s in scores) / 20 == pytest.approx(0.5, abs=0.1)


def test_held_out_rows_decide_nothing():
    """Other held-out rows and labels leave unit, sign and threshold as they are."""
    train = world(400, 0)
    chosen = []
    for seed, sign in ((1, 1), (2, -1)):
        other = world(400, seed)
        held_out = LabelledRows(sign * other.states, other.labels, other.languages, other.meanings)
        scores = reported(train, held_out, min_held_out=3).scores["neurons"]
        chosen.append([(s.unit, s.sign, s.threshold, s.f1_train) for s in scores])
        assert (scores[0].auroc > 0.99) == (sign == 1)
        assert (scores[0].auroc < 0.01) == (sign == -1)
    assert chosen[0] == chosen[1]


def test_meanings_that_were_trained_on_and_tables_that_do_not_fit_are_refused():
    rows = world(100, 0)
    with pytest.raises(ValueError, match="100 meanings, such as 0, are in train and in held_out"):
        reported(rows, rows)
    with pytest.raises(ValueError, match="no lexical concept has 10 rows in train and 90 in held_out"):
        reported(rows, world(100, 1), min_held_out=90)
    with pytest.raises(ValueError, match="train has labels for 6 concepts; 5 are named"):
        reported(rows, world(100, 1), concepts=NAMES[:5])


def test_a_feature_of_a_whole_category_is_told_from_those_of_its_words():
    """Ten tools, the first five with a unit of their own; unit 0 fires for every tool but those of the first three."""
    g = generator(6)
    tool = torch.randint(0, 40, (4000,), generator=g)
    labels = torch.stack([tool == i for i in range(10)], dim=1)
    general = (tool >= 3) & (tool < 10)
    tables = torch.cat([general[:, None], labels[:, :5]], dim=1).float().split(2000)
    sides = [LabelledRows(table, part) for table, part in zip(tables, labels.split(2000), strict=True)]
    names = [f"tool:{i}" for i in range(10)]
    judged = judge(best_detectors(tables[0], sides[0].labels), tables[1], sides[1])
    scores = scores_of(judged, sides[0], concepts=names, categories=dict.fromkeys(names, "tool"))
    (found,) = category_scores(tables, *sides, scores, generator=g)
    assert (found.category, found.n, found.unit, found.own_unit) == ("tool", 10, 0, 5)
    assert found.f1 == pytest.approx(2 * 7 / (7 + 10), abs=0.05)
    assert found.silent_with_special == pytest.approx(3 / 5, abs=0.1)
    assert found.silent_without is None  # the other words have no unit but this one
    # Five words have units of their own; where those of the first three fire the general one is silent.
    assert found.absorbed == pytest.approx(3 / 5, abs=1e-6)
    assert found.absorbed_random is None  # there is no other category
    with pytest.raises(ValueError, match="scores has 9 rows for 10 columns"):
        category_scores(tables, *sides, scores[:9], generator=g)


@pytest.mark.parametrize("absorbed", [0, 1])
def test_absorption_is_that_of_a_planted_dictionary(absorbed):
    """Two general atoms with three special ones each; a feature for each atom, the general ones silent or not.

    Special words of a category come alone or with none, so that a general feature stays worth finding.
    """
    g = generator(7)
    parents = [-1, -1, 0, 0, 0, 1, 1, 1]
    planted = PlantedDictionary(8, 8, generator=g)
    frequencies = torch.tensor([0.3, 0.3] + 6 * [0.25], dtype=torch.float64)
    code = planted.draw_nested(6000, parents=parents, frequencies=frequencies, generator=g).codes
    held = code > 0
    special = torch.stack(
        [held[:, [j for j, p in enumerate(parents) if p == i]].any(dim=1) for i in (0, 1)], 1
    )
    # Each category has three words that have features of their own, and one that has none but the general feature.
    plain = held[:, :2] & ~special
    features = code.clone()
    if absorbed:
        features[:, :2][special] = 0
    labels = torch.cat([held[:, 2:5], plain[:, :1], held[:, 5:], plain[:, 1:]], dim=1)
    names = [f"{category}:{i}" for category in ("tool", "food") for i in range(4)]
    kinds = {name: name.partition(":")[0] for name in names}
    sides = [LabelledRows(part, held) for part, held in zip(features.chunk(2), labels.chunk(2), strict=True)]
    tables = [side.states.to_sparse_coo() for side in sides]
    judged = judge(best_detectors(tables[0], sides[0].labels), tables[1], sides[1])
    scores = scores_of(judged, sides[0], concepts=names, categories=kinds)
    found = category_scores(tables, *sides, scores, generator=g)
    assert [row.unit for row in found] == [0, 1]
    assert [row.absorbed for row in found] == pytest.approx([absorbed, absorbed], abs=1e-9)
    # The other category's feature is silent in most sentences with the word, whatever this one does.
    silent = [(features[3000:, 1 - i] <= 0)[special[3000:, i]].double().mean().item() for i in (0, 1)]
    assert [row.absorbed_random for row in found] == pytest.approx(silent, abs=0.08)


def test_absorption_counts_what_the_definition_says():
    general, special, holds = torch.rand(3, 50, 4, generator=generator(8)) < 0.5
    holds[:, 3] = False
    expected = []
    for column in range(4):
        rows = [i for i in range(50) if holds[i, column]]
        hits = sum(bool(special[i, column] and not general[i, column]) for i in rows)
        expected.append(hits / len(rows) if rows else 0.0)
    assert absorbed_share(general, special, holds).tolist() == pytest.approx(expected)


def test_a_report_on_groups_finds_the_unit_that_any_part_excites():
    """A concept that one token of a sentence expresses, along one direction, in either sign for the neuron."""
    generator = torch.Generator().manual_seed(4)
    sides = []
    for n in (300, 200):
        labels = torch.rand(n, 2, generator=generator) < 0.3
        states = 0.1 * torch.randn(n, 5, 8, generator=generator)
        where = torch.randint(5, (n,), generator=generator)
        states[torch.arange(n), where, 2] -= 3 * labels[:, 0].float()
        states[torch.arange(n), where, 5] += 3 * labels[:, 1].float()
        parts = torch.zeros(n, 5, 2, dtype=torch.bool)
        parts[torch.arange(n), where] = labels
        groups = torch.arange(n).repeat_interleave(5)
        sides.append(
            LabelledRows(states.flatten(0, 1), labels, groups=groups, part_labels=parts.flatten(0, 1))
        )
    report = concept_report(
        [split(rows.states) for rows in sides],
        *sides,
        concepts=["a:down", "a:up"],
        categories={"a:down": "a", "a:up": "a"},
        lexical=["a:down", "a:up"],
        generator=generator,
    )
    down, up = report.scores["neurons"]
    assert (down.unit, down.sign, up.unit, up.sign) == (2, -1, 5, 1)
    assert min(down.f1, up.f1) > 0.99
    assert report.settings["rows_train"] == 300
    # By token the same units say where the concept stands.
    assert list(report.spans) == ["features", "neurons", "components", "random", "directions"]
    down, up = report.spans["neurons"]
    assert (down.unit, down.sign, up.unit, up.sign) == (2, -1, 5, 1)
    assert min(down.f1, up.f1) > 0.99
    assert report.span_summary()["neurons"]["reached"] == 1
    assert json.loads(report.to_json())["spans"]["neurons"][0]["concept"] == "a:down"


class LargestTable(TorchDispatchMode):
    """Keeps how many bytes the largest dense table of floating-point numbers takes that is made."""

    bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for one in tree_leaves(made):
            if isinstance(one, torch.Tensor) and one.layout == torch.strided and one.is_floating_point():
                self.bytes = max(self.bytes, one.untyped_storage().nbytes())
        return made


def test_no_table_is_larger_than_that_of_the_states(monkeypatch):
    monkeypatch.setattr(concepts, "_CHUNK", 1 << 14)
    g, sides, per_row = generator(5), [], 40
    for n, seed in ((320, 0), (160, 1)):
        rows = world(n, seed)
        states = rows.states.repeat_interleave(per_row, dim=0)
        states += 0.01 * torch.randn(states.shape, generator=g)
        groups = torch.arange(n).repeat_interleave(per_row)
        sides.append(replace(rows, states=states, groups=groups))
    features = [split(rows.states).to_sparse_coo() for rows in sides]
    with LargestTable() as largest:
        concept_report(
            features, *sides, concepts=NAMES, categories=CATEGORIES, lexical=LEXICAL, generator=generator()
        )
    assert largest.bytes <= sides[0].states.nbytes
