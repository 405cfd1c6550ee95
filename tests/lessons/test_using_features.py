"""What lesson 38 measures: words and their labels, edits, exact translations; its figures, explorer and tables."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks import exchange as long_run
from course_lib.interpret import interventions
from course_lib.interpret.outcomes import Outcome
from course_lib.language.corpus import generate
from course_lib.language.word_cases import find_slots
from course_lib.lessons import using_features as lesson
from course_lib.lessons.using_features import measurements
from course_lib.measured import measured
from course_lib.teaching.style import text_alternative


@pytest.fixture(scope="module")
def setting():
    return lesson.setting()


@pytest.fixture(scope="module")
def cases(setting):
    return lesson.draw_word_cases(setting, lesson.NOUN_CONCEPTS, 30, seed=4)


# Labels


def test_so_many_occurrences_of_each_word_are_labelled_with_all_their_tokens(setting):
    words = setting.words
    for n in (1, 3):
        labelled = words.draw(n, seed=5, concepts=lesson.NOUN_CONCEPTS)
        seen = {}
        for sentence, concept in zip(
            words.sentence[labelled].tolist(), words.concept[labelled].tolist(), strict=True
        ):
            seen.setdefault(concept, set()).add(sentence)
        assert set(seen) == {lesson.NUMBER[c] for c in lesson.NOUN_CONCEPTS}
        assert {len(sentences) for sentences in seen.values()} == {n}
        # A word in several pieces is labelled whole.
        for sentence, concept in [(s, c) for c, found in seen.items() for s in found][:200]:
            whole = (words.sentence == sentence) & (words.concept == concept)
            assert labelled[whole].all()


def test_other_draws_label_other_occurrences(setting):
    one, other = (setting.words.draw(1, seed=seed) for seed in (0, 1))
    assert torch.equal(one, setting.words.draw(1, seed=0))
    assert not torch.equal(one, other)


def test_the_table_of_some_labels_reads_these_alone(setting):
    labelled = setting.words.draw(2, seed=3, concepts=lesson.NOUN_CONCEPTS)
    table = setting.words.table(labelled)
    number = lesson.NUMBER["food:apple"]
    rows = labelled & (setting.words.concept == number)
    torch.testing.assert_close(table.state[number], setting.words.states[rows].mean(dim=0))
    code = setting.autoencoder.encode(setting.words.states[rows])
    torch.testing.assert_close(table.activation[number], code.mean(dim=0))


def test_all_of_a_word_is_its_way_and_none_is_nothing(setting):
    number = lesson.NUMBER["food:apple"]
    parts = lesson.shares_of_way(setting, "food:apple")
    assert sum(share for _, share in parts) == pytest.approx(1)
    assert parts[0][1] == pytest.approx(float(setting.carried(setting.alone)[number]), abs=1e-4)
    carried = sum(share for _, share in parts[:-1])
    assert carried == pytest.approx(float(setting.carried(setting.features(0.1))[number]), abs=1e-4)


def test_a_word_is_told_from_its_kind_by_what_is_more_active_there(setting):
    """What the features add in (38.3) and what the dictionary leaves out make up the way from the kind to the word."""
    number, kind = lesson.NUMBER["food:apple"], [k == "food" for k in measurements.KINDS]
    mean = setting.table.activation
    torch.testing.assert_close(setting.more_active[number], mean[number] - mean[kind].mean(dim=0))
    every = setting.carried(torch.ones_like(setting.alone))
    nouns = [lesson.NUMBER[c] for c in setting.good(lesson.NOUN_CONCEPTS)]
    assert float((every[nouns] - 1).abs().max()) < 0.1


def test_each_token_is_in_the_cluster_whose_mean_direction_is_nearest(setting):
    words = measurements.labelled_words(
        setting.model, setting.tokenizer, setting.autoencoder, generate(40, seed=1)
    )
    found = words.clustered(12, rounds=3, seed=1)
    code = found.code.to_dense()
    assert code.shape == (len(words.states), 12)
    assert code.sum(dim=1).tolist() == [1] * len(code)
    assert found.firings.tolist() == code.sum(dim=0).tolist()
    unit = torch.nn.functional.normalize(words.states - words.states.mean(dim=0), dim=1)
    own = code.argmax(dim=1)

    def nearness(places):
        sums = torch.zeros(12, unit.shape[1]).index_add(0, places, unit)
        return sums.norm(dim=1).sum()

    start = unit[torch.randperm(len(unit), generator=torch.Generator().manual_seed(1))[:12]]
    assert nearness(own) >= nearness((unit @ start.T).argmax(dim=1))


# Cases


def test_cases_aim_at_another_word_of_their_kind(cases):
    assert len(cases) > 20
    for case, aim in zip(cases.cases, cases.aims, strict=True):
        assert aim.split(":")[0] == case.concept.split(":")[0]
        assert aim != case.concept
        assert not find_slots(case.meaning, aim)


def test_one_reading_decides_as_the_translation_does(setting, cases):
    for edit in (
        lesson.by_means(cases, setting.table),
        lesson.by_features(cases, setting.table, setting.alone),
        interventions.reconstruct(setting.autoencoder),
    ):
        written = [e.became == aim for e, aim in zip(cases.effects_of(edit), cases.aims, strict=True)]
        assert cases.hits(edit).tolist() == written
        exact = [t == aim.text for t, aim in zip(cases.written(edit), cases.aimed, strict=True)]
        assert exact == written


def test_a_mean_state_arrives_at_the_other_mean(setting, cases):
    x = setting.table.state[cases.concept]
    moved = lesson.by_means(cases, setting.table)(x, torch.arange(len(cases)))
    torch.testing.assert_close(moved, setting.table.state[cases.aim], atol=1e-4, rtol=1e-4)


def test_exchanged_features_are_set_and_the_others_stay(setting, cases):
    features = setting.features(0.05)
    x = setting.table.state[cases.concept]
    code = setting.autoencoder.encode(x)
    moved = lesson.by_features(cases, setting.table, features)(x, torch.arange(len(cases)))
    own, aim = features[cases.concept], features[cases.aim]
    expected = torch.where(own, 0, code)
    mean = torch.where(aim, setting.table.activation[cases.aim], 0)
    expected = torch.where(mean > 0, mean, expected)
    step = (expected - code) @ setting.autoencoder.decoder_weight.T * setting.autoencoder.input_scale
    torch.testing.assert_close(moved - x, step, atol=1e-3, rtol=1e-3)


def test_factors_act_where_a_feature_fires_only(setting):
    _, states, code = setting.read(lesson.TEXT, "en_XX")
    feature = int(setting.detector[lesson.NUMBER["food:apple"]])
    moved = measurements.multiply(setting.autoencoder, {feature: -1})(states, None)
    step = (
        -2
        * code[:, [feature]]
        * setting.autoencoder.decoder_weight[:, feature]
        * setting.autoencoder.input_scale
    )
    torch.testing.assert_close(moved - states, step, atol=1e-4, rtol=1e-4)
    assert (code[:, feature] > 0).sum() < len(code)


# The page's example


def test_the_apple_stays_without_its_detector_and_is_a_chair_with_it_turned_round(setting):
    apple = int(setting.detector[lesson.NUMBER["food:apple"]])
    assert lesson.held_out_f1(apple) >= 0.99
    off, turned = (
        setting.translate(lesson.TEXT, "en_XX", lesson.OTHER_LANGUAGES, {apple: c}) for c in (0, -1)
    )
    assert [word in text for word, text in zip(("Apfel", "pomme", "manzana"), off, strict=True)] == [True] * 3
    assert [word in text for word, text in zip(("Stuhl", "chaise", "silla"), turned, strict=True)] == [
        True
    ] * 3


@pytest.mark.parametrize(
    ("before", "after", "differ"),
    [
        ("Der Hund frisst einen Apfel.", "Der Hund frisst einen Apfel.", []),
        ("Sie isst einen Apfel.", "Sie isst einen Apfel im Garten.", ["im", "Garten"]),
        ("Der Hund schläft.", "Die Katze schläft.", ["Die", "Katze"]),
    ],
)
def test_words_are_marked_for_themselves_and_not_for_a_full_stop(before, after, differ):
    words = lesson.changed_words(before, after)
    assert [word for word, other in words if other] == differ
    assert lesson.marked(before, after).replace("**", "") == after


def test_a_translation_that_only_lost_words_is_marked():
    assert lesson.marked("Das junge Mädchen isst.", "Das Mädchen isst.") == "Das Mädchen isst. (–)"
    assert lesson.shown_words("Das junge Mädchen isst.", "Das Mädchen isst.")[-1] == ("(–)", False)
    assert lesson.shown_words("Das Mädchen isst.", "Das Mädchen isst.")[-1] == (".", False)


def test_a_translation_that_stays_is_not_written_again(setting):
    apple = int(setting.detector[lesson.NUMBER["food:apple"]])
    table = lesson.sentence_table(setting, {"off": {apple: 0}, "turned": {apple: -1}}).data
    assert (table.count("Apfel"), table.count("the same"), table.count("**Stuhl**")) == (1, 3, 1)


# The explorer


@pytest.fixture(scope="module")
def explorer(setting):
    return lesson.FeatureExplorer(setting)


def test_the_explorer_turns_the_features_that_are_strongest_at_the_word(explorer, setting):
    tokens, _, code = setting.read(lesson.TEXT, "en_XX")
    state = explorer.compute(word="apple", first=0, second=1, third=1)
    place = [token.strip("▁") for token in tokens].index("apple")
    assert state["features"] == code[place].topk(3).indices.tolist()
    assert state["before"] == pytest.approx(code[place].topk(3).values.tolist())


def test_what_the_explorer_says_is_what_the_model_writes(explorer, setting):
    for word, factors in (
        ("green", (0, 1, 1)),
        ("young", (1, 0, 2)),
        ("garden", (-1, 3, 1)),
        (lesson.SILENT, (0, -1, 3)),
    ):
        state = explorer.compute(word=word, **dict(zip(("first", "second", "third"), factors, strict=True)))
        turned = dict(zip(state["features"], factors, strict=True))
        written = setting.translate(lesson.TEXT, "en_XX", lesson.OTHER_LANGUAGES, turned)
        assert state["after"] == written
        said = explorer.words(state)
        for text, plain, language in zip(
            written, state["plain"], ("German", "French", "Spanish"), strict=True
        ):
            assert f"{language} {'stays' if text == plain else 'becomes'} “{text}”" in said


def test_a_silent_feature_does_nothing(explorer):
    state = explorer.compute(word=lesson.SILENT, first=-1, second=3, third=0)
    assert state["after"] == state["plain"]
    assert state["before"] == [0, 0, 0]
    assert "silent in this sentence" in explorer.words(state)


# Figures and tables


def test_arrows_end_at_the_reconstruction(setting):
    chains, state, features = lesson.arrow_chains(setting, "food:apple", (1, 0, -1))
    assert features[-1] == int(setting.detector[lesson.NUMBER["food:apple"]])
    np.testing.assert_allclose(chains[0][-1], chains[1][-2], atol=1e-5)
    np.testing.assert_allclose(chains[1][-1] + chains[-1][-1], 2 * chains[0][-1], atol=1e-4)
    assert np.abs(chains[1][-1] - state).max() < 0.3


def test_the_curves_are_the_stored_draws():
    shares = lesson.exchange_shares()
    figure = lesson.plot_exchange(shares)
    for arm, (label, *_) in lesson.CURVES.items():
        (curve,) = [line for line in figure.axes[0].lines if line.get_label() == label]
        stored = [np.mean(measured("steering", f"exchanged, N = {n}: {arm}")) for n in lesson.COUNTS]
        np.testing.assert_allclose(curve.get_ydata(), stored)
        assert all(len(shares[arm][n]) == 5 for n in lesson.COUNTS)


def test_the_live_run_repeats_the_stored_one(setting):
    """The same nouns, sentences and edits; another processor may turn a few translations."""
    found = lesson.measure_off(setting, 20)
    assert {name: list(arms) for name, arms in found.items()} == {
        name: list(arms) for name, arms in lesson.example_outcomes().items()
    }
    off, other = found["At the noun's tokens"], found["Another active feature"]
    assert off["its detector off"].changed < off["all its features off"].changed
    near, far = (other[f"pushed as far as detector {what}"] for what in ("off", "times -1"))
    assert near.elsewhere < far.elsewhere
    assert found["A random push"]["as far as detector times -1"].changed <= 2
    nouns, changed = lesson.without_detector(setting, 20)
    assert len(nouns) == off["its detector off"].n
    assert int(changed.sum()) == off["its detector off"].changed


@pytest.mark.parametrize("length", [0.5, 1, 3])
def test_pushes_of_one_length_differ_in_direction_only(setting, cases, length):
    """The detector loses so many times its activation; the controls move each token as far."""
    x = setting.table.state[cases.concept]
    row = torch.arange(len(cases))
    moved = {arm: edit(x, row) - x for arm, edit in lesson.push_edits(setting, cases, length).items()}
    detector = setting.detector[cases.concept]
    activation = setting.autoencoder.encode(x)[row, detector]
    columns = setting.autoencoder.decoder_weight.T[detector] * setting.autoencoder.input_scale
    torch.testing.assert_close(
        moved["detector"], -length * activation[:, None] * columns, atol=1e-3, rtol=1e-3
    )
    far = moved["detector"].norm(dim=1)
    torch.testing.assert_close(moved["random"].norm(dim=1), far)
    pushed = moved["another feature"].norm(dim=1)
    assert ((pushed - far).abs() < 1e-4)[pushed > 0].all()
    assert (pushed > 0).double().mean() > 0.8


def test_a_token_in_a_cluster_gets_the_mean_state_of_its_cluster(setting):
    words = measurements.labelled_words(
        setting.model, setting.tokenizer, setting.autoencoder, generate(40, seed=1)
    ).clustered(12, rounds=2)
    own = words.code.to_dense().argmax(dim=1)
    means = torch.stack([words.states[own == cluster].mean(dim=0) for cluster in own.unique().tolist()])
    found = words.cluster_means().states
    torch.testing.assert_close(found, means[own.unique(return_inverse=True)[1]], atol=1e-4, rtol=1e-4)


def test_arms_without_labels_read_none(setting, cases):
    """Rare features are those of few firings among all tokens, whatever the labels of other nouns."""
    exchange = long_run.Exchange(cases)
    labelled = exchange.labels(1, 0)
    table = setting.words.table(labelled)
    blind = replace(table, precision=torch.zeros_like(table.precision))
    for arm, knobs in (
        ("rare", (1.0, 0.004)),
        ("active", (1.0,)),
        ("clusters", (1.0,)),
        ("neighbours", (1.0, 10)),
    ):
        hits = exchange.hits(arm, labelled, table, knobs)
        assert torch.equal(hits, exchange.hits(arm, labelled, blind, knobs))
    rare = (table.recall > 0) & (setting.words.firings <= 0.004 * len(setting.words.states))
    expected = cases.hits(lesson.by_features(cases, table, rare))
    assert torch.equal(exchange.hits("rare", labelled, table, (1.0, 0.004)), expected)


def test_arms_are_drawn_as_they_are_counted():
    outcome = Outcome(n=4, changed=3, elsewhere=1, agreement=0, exact=0, words_changed=1, words=9)
    figure = lesson.plot_arms({"At the noun's tokens": {"its detector off": outcome}})
    assert "its detector off 75%, 25%" in text_alternative(figure)


def test_the_first_prediction_is_answered_by_the_outcomes():
    for changed, choice in ((95, "nine of ten"), (60, "six of ten"), (30, "three of ten"), (5, "one of ten")):
        one = Outcome(n=100, changed=changed, elsewhere=0, agreement=0, exact=0, words_changed=0, words=1)
        asked = lesson.ask_off(
            {"At the noun's tokens": {"its detector off": one, "all its features off": one}}
        )
        assert choice in asked.answer


def test_tables_hold_what_is_stored():
    outcome = measured("exchange", "all kinds: detector")
    assert f"{100 * outcome['changed'] / outcome['n']:.0f}%" in lesson.kinds_table().data
    values = measured("steering", "exchanged, N = 1: means")
    assert f"{np.mean(values):.0f}% ({min(values):.0f} to {max(values):.0f})" in lesson.exchange_table().data
    assert len(re.findall(r"seed \d", lesson.dictionaries_table().data)) == len(long_run.OTHERS)


# The long run


def test_the_long_run_takes_each_feature_for_what_it_is(setting):
    """Its strongest feature is the one that adds most at the word's tokens."""
    cases = lesson.draw_word_cases(setting, setting.good(), 8, seed=6)
    found = long_run.strongest(cases)
    assert found.sum(dim=1).tolist() == [1] * len(cases)
    for case, own, row in zip(cases.cases, cases.own, found, strict=True):
        _, _, code = setting.read(case.sentence.text, case.source)
        places = [i - 1 for i in own.nonzero()[:, 0].tolist()]  # the language code is token 0
        assert int(row.nonzero()) == int(code[places].sum(dim=0).argmax())


def test_neighbours_of_a_state_are_the_tokens_in_its_direction_from_the_mean_of_all(setting):
    words = measurements.labelled_words(
        setting.model, setting.tokenizer, setting.autoencoder, generate(40, seed=1)
    )
    rows = words.states[:5] + words.states[5:10]
    centred, asked = (x.double() - words.states.double().mean(dim=0) for x in (words.states, rows))
    cosine = torch.nn.functional.cosine_similarity(asked[:, None], centred[None], dim=2)
    expected = torch.stack([words.states[row.argsort()[-3:]].mean(dim=0) for row in cosine])
    torch.testing.assert_close(words.neighbours(rows, 3), expected, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(words.neighbours(rows, 3), words.neighbours(rows, 4))


def test_firings_are_tokens_at_which_a_feature_is_active(setting):
    words = measurements.labelled_words(
        setting.model, setting.tokenizer, setting.autoencoder, generate(10, seed=2)
    )
    active = setting.autoencoder.encode(words.states) > 0
    assert words.firings.tolist() == active.sum(dim=0).tolist()


def test_the_turned_apple_is_near_no_food_and_the_apple_is_nearest_to_itself(setting):
    assert lesson.nearest_words(setting, "food:apple", 1)[0] == "apple"
    _, _, state, code = lesson.at_word(setting, "food:apple")
    feature = int(setting.detector[lesson.NUMBER["food:apple"]])
    column = setting.autoencoder.decoder_weight[:, feature] * setting.autoencoder.input_scale
    distance = (setting.table.state - (state - 2 * code[feature] * column)).norm(dim=1)
    distance[setting.table.n_tokens == 0] = torch.inf
    nearest = [lesson.CONCEPTS[i] for i in distance.argsort()[:5].tolist()]
    assert lesson.nearest_words(setting, "food:apple", -1) == [lesson.word_of(one) for one in nearest]
    assert not any(one.startswith("food:") for one in nearest)


def test_the_third_prediction_is_answered_by_the_stored_draws():
    arms = ("means", "neighbours", "features")
    means, neighbours, features = (np.mean(measured("steering", f"exchanged, N = 1: {arm}")) for arm in arms)
    assert abs(features - neighbours) < 5
    assert min(features, neighbours) - means >= 10
