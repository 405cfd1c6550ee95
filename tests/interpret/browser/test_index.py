"""The index against what the model and the autoencoder say themselves, dense and one thing at a time."""

import dataclasses
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict

import numpy as np
import pytest
import torch

from course_lib import pipeline, sae
from course_lib.files import locked
from course_lib.interpret.browser import (
    FeatureIndex,
    IndexDamaged,
    IndexMissing,
    IndexOutdated,
    IndexUnavailable,
    browse,
    build,
)
from course_lib.interpret.browser.build import build_index
from course_lib.interpret.browser.features import EFFECT_SENTENCES, FeatureBrowser, strongest_sentences
from course_lib.interpret.browser.index import (
    DIRECTORY,
    Reading,
    by_feature,
    concept_rows,
    fingerprint,
    parts,
    shown,
    write_index,
)
from course_lib.interpret.browser.server import open_or_build
from course_lib.interpret.run_directory import RunDirectory, metrics_as_json
from course_lib.language.corpus import Sentence
from course_lib.mbart.activations import Site, extract
from course_lib.pipeline import SparseConfig, StackedConfig, report
from tests.interpret.browser.runs import HOSTILE, make_run, some_concepts, some_metrics, without_digests
from tests.tiny_mbart import SENTENCES


@pytest.fixture(scope="module")
def browser(run):
    return FeatureBrowser(run, threads=1)


@pytest.fixture(scope="module")
def sentences(run):
    return [Sentence(row.text, row.language) for row in RunDirectory(run).sentences]


@pytest.fixture(scope="module")
def dense(browser, sentences):
    """Activations (tokens, features) and the sentence of each token, by the parts of the library that are older."""
    states = extract(browser.model, browser.tokenizer, sentences, [Site("encoder")], progress=False)[
        Site("encoder")
    ]
    lengths = browser.autoencoder.decoder_weight.norm(dim=0)
    return (browser.autoencoder.encode(states.values) * lengths).numpy(), states.sentence.numpy()


def test_the_columns_are_the_code(index, dense):
    code, _ = dense
    found = np.zeros_like(code)
    for feature in range(index.n_features):
        tokens, values = index.column(feature)
        found[tokens, feature] = values
    np.testing.assert_allclose(found, code, rtol=1e-5, atol=1e-7)
    assert index.about["kept"] == pytest.approx(1)


def test_numbers_of_a_feature(index, dense):
    code, _ = dense
    for feature in (int(index.ranked()[0]), int(index.ranked()[20])):
        column, found = code[:, feature], index.feature(feature)
        active = column[column > 0]
        assert found["count"] == len(active) == sum(found["histogram"]["counts"])
        assert found["density"] == pytest.approx(len(active) / len(column), rel=1e-3)
        assert found["largest"] == pytest.approx(active.max(), rel=1e-3)
        assert found["mean"] == pytest.approx(active.mean(), rel=1e-3)
        assert found["strength"] == pytest.approx(np.sqrt(np.square(column).mean()), rel=1e-3)
        assert found["histogram"]["edges"][-1] == pytest.approx(active.max(), rel=1e-3)
    strengths = np.sqrt(np.square(code).mean(axis=0))
    np.testing.assert_allclose(strengths[index.ranked()], np.sort(strengths)[::-1], rtol=1e-5)


def test_sentences_are_the_strongest_different_ones_and_those_at_quantiles(index, dense, sentences):
    code, of = dense
    feature = int(index.ranked()[0])
    largest = np.zeros(len(sentences))
    np.maximum.at(largest, of, code[:, feature])
    groups = {group["quantile"]: group["sentences"] for group in index.feature(feature)["groups"]}
    strongest = [row["activation"] for row in groups["strongest"]]
    np.testing.assert_allclose(strongest, np.sort(largest)[::-1][: len(strongest)], rtol=1e-3)
    middle = np.median(largest[largest > 0])
    at_middle = [row["activation"] for row in groups[0.5]]
    assert min(at_middle) <= middle * 1.001
    assert max(at_middle) >= middle * 0.999
    assert list(groups) == ["strongest", 0.9, 0.75, 0.5, 0.25, 0.05]
    for row in groups["strongest"]:
        assert "".join(text for text, _ in row["parts"]) == sentences[row["id"]].text
        assert max(value or 0 for _, value in row["parts"]) == row["activation"]
        assert row["held_out"] == (row["id"] % 3 == 0)


def test_equal_sentences_are_shown_once(tiny, tmp_path):
    run = make_run(tmp_path / "run", tiny, texts=[*SENTENCES[:3]] * 4)
    index = build_index(run, effects=0, threads=1, progress=False)
    shown_texts = [
        "".join(text for text, _ in row["parts"])
        for row in index.feature(int(index.ranked()[0]))["groups"][0]["sentences"]
    ]
    assert len(shown_texts) == len(set(shown_texts)) <= 3


def test_sentences_of_one_language(index):
    feature = int(index.ranked()[0])
    found = index.feature(feature, language="fr_XX")
    rows = [row for group in found["groups"] for row in group["sentences"]]
    assert {row["language"] for row in rows} == {"fr_XX"}
    assert 0 < found["sentences"] < index.feature(feature)["sentences"]


def test_tokens_and_languages(index, dense, sentences, browser):
    code, of = dense
    feature = int(index.ranked()[0])
    column = code[:, feature]
    ids, _ = browser.spans([sentence.text for sentence in sentences])
    pieces = np.array(browser.tokenizer.convert_ids_to_tokens([token for row in ids for token in row]))
    found = index.feature(feature)
    for row in found["tokens"][:3]:
        at = np.array([shown(piece) == row["token"] for piece in pieces])
        assert row["of"] == at.sum()
        assert row["count"] == (column[at] > 0).sum()
        assert row["share"] == pytest.approx(column[at].sum() / column.sum(), rel=1e-3)
    shares = [row["share"] for row in found["tokens"]]
    assert shares == sorted(shares, reverse=True)
    spoken = np.array([sentences[i].language for i in of])
    assert found["languages"] == [
        {"language": name, "rate": pytest.approx((column[spoken == name] > 0).mean(), rel=1e-3)}
        for name in ("en_XX", "fr_XX")
    ]


def test_nearest_features_by_the_decoder(index, browser):
    units = torch.nn.functional.normalize(browser.autoencoder.decoder_weight.detach().T, dim=1)
    cosine = units @ units.T
    cosine.fill_diagonal_(-2)
    found = index.feature(5)["nearest"]
    best = cosine[5].topk(8)
    assert [row["id"] for row in found] == best.indices.tolist()
    assert [row["cosine"] for row in found] == pytest.approx(best.values.tolist(), rel=1e-3)
    # The features are random directions here, and so is the control.
    assert index.about["random_nearest"] == pytest.approx(float(cosine.amax(dim=1).median()), rel=0.1)


def test_concepts_with_their_controls(index):
    assert index.feature(3)["concepts"] == [
        {
            "concept": "<b>tool:nail</b>",
            "named": True,
            "best": True,
            "tried": True,
            "f1": 0.95,
            "chance": 0.1818,
            "above_chance": 0.9389,
            "auroc": 0.99,
            "positives_held_out": 40,
            "languages_reached": 2,
            "languages_scored": 3,
            "precision": 0.95,
            "recall": 0.95,
            "false_alarms": 0.005556,
            "negatives_held_out": 360,
        },
        {
            "concept": "tool:hammer",
            "named": False,
            "best": True,
            "tried": False,
            "f1": 0.9123,
            "chance": 0.1818,
            "above_chance": 0.8929,
            "auroc": 0.99,
            "positives_held_out": 40,
            "languages_reached": 2,
            "languages_scored": 3,
            "f1_neurons": 0.25,
        },
    ]
    assert index.feature(4)["concepts"] == []
    assert index.summary([3])["concepts"] == [
        [["<b>tool:nail</b>", 0.95, 0.99], ["tool:hammer", 0.9123, 0.99]]
    ]


def test_a_feature_without_a_name_says_what_it_was_tried_with():
    report = some_concepts()
    tried = dataclasses.replace(
        report.scores["features"][0], concept="tool:axe", unit=5, f1=0.3, calls=0, hits=0
    )
    rows = concept_rows(dataclasses.replace(report, named=[tried]))
    (row,) = rows[5]
    assert (row["concept"], row["named"], row["best"], row["tried"]) == ("tool:axe", False, False, True)
    assert (row["precision"], row["recall"], row["false_alarms"]) == (None, 0.0, 0.0)
    assert not any(one["named"] or one["tried"] for one in rows[3])


def test_features_together_are_where_both_are_active(index, dense):
    code, sentence = dense
    active = code > 0
    ranked = index.ranked()[:6].tolist()
    pairs = index.pairs(ranked)
    directions = index.tables["direction"].astype(np.float64)
    joint = 0
    for a, b in itertools.combinations(sorted(ranked), 2):
        found = index.together(a, b)
        assert found["tokens"] == [
            active[:, a].sum(),
            active[:, b].sum(),
            (active[:, a] & active[:, b]).sum(),
        ]
        own = [set(sentence[active[:, feature]].tolist()) for feature in (a, b)]
        assert found["sentences"] == [len(own[0]), len(own[1]), len(own[0] & own[1])]
        assert found["cosine"] == pytest.approx(directions[a] @ directions[b], abs=1e-3)
        assert pairs[a][b] == (
            found["cosine"],
            found["tokens"][2],
            found["sentences"][2],
            [both[0]["id"] for both in found["examples"]],
        )
        shown_here = [both[0]["id"] for both in found["examples"]]
        assert set(shown_here) <= own[0] & own[1]
        joint += len(shown_here)
        weaker = [
            min(one["activation"] / index.tables["largest"][f] for f, one in zip((a, b), both, strict=True))
            for both in found["examples"]
        ]
        assert weaker == sorted(weaker, reverse=True) or np.diff(weaker).max() < 1e-3
    assert joint > 0
    turned = index.together(ranked[1], ranked[0])
    assert turned["tokens"][::-1][1:] == index.together(*ranked[:2])["tokens"][:2]
    with pytest.raises(ValueError, match="feature is 96; the run has 0 to 95"):
        index.together(0, 96)


def test_pairs_without_examples_and_the_strongest_of_many(index, monkeypatch):
    ranked = index.ranked()[:3].tolist()
    whole = index.pairs(ranked)
    counted = {a: {b: (*found[:3], []) for b, found in row.items()} for a, row in whole.items()}
    assert index.pairs(ranked, examples=False) == counted
    # The first that are sorted may all be of one text; then all others are looked at.
    monkeypatch.setattr(FeatureIndex, "text", lambda self, sentence: str(sentence // 20))
    monkeypatch.setattr(FeatureIndex, "language", lambda self, sentence: None)
    sentences, of_b = np.arange(200), np.linspace(1, 0.5, 200).astype(np.float32)
    n, shown_here = index._joint(np.ones(200, np.float32), sentences, of_b)
    assert (n, shown_here) == (200, [0, 20, 40, 60, 80, 100, 120, 140])


def test_sentences_with_words(index, sentences):
    texts = [sentence.text for sentence in sentences]
    own = [[word.lower() for word in re.findall(r"[^\W_]+", text)] for text in texts]
    for wanted, holds in (
        ("dog", lambda words: "dog" in words),
        ("DOG the", lambda words: {"dog", "the"} <= set(words)),
        ("do*", lambda words: any(word.startswith("do") for word in words)),
        ("the b*", lambda words: "the" in words and any(word.startswith("b") for word in words)),
        ("do", lambda words: False),
        ("script", lambda words: "script" in words),
    ):
        hits = [i for i, words in enumerate(own) if holds(words)]
        found = index.find(wanted, n=len(texts))
        assert found["count"] == len(hits)
        assert {row["text"] for row in found["sentences"]} == {texts[i] for i in hits}
        assert [row["text"] for row in found["sentences"]] == [texts[row["id"]] for row in found["sentences"]]
    # The words in this order come first, here a whole sentence; then the order of the text.
    found = index.find(texts[7])["sentences"]
    assert found[0]["id"] == 7
    assert [row["id"] for row in index.find("dog")["sentences"]] == sorted(
        row["id"] for row in index.find("dog")["sentences"]
    )
    assert all(texts[row["id"]].startswith("the dog") for row in index.find("the dog", n=3)["sentences"])
    rows = index.find("the", language="fr_XX")["sentences"]
    assert {row["language"] for row in rows} == {"fr_XX"}
    assert [row["id"] for row in index.find("</")["sentences"]] == [0]
    assert len(index.find("the", n=2)["sentences"]) == 2
    for wanted, language, words in (("  ", None, "nothing is looked for"), ("the", "xx", "language is 'xx'")):
        with pytest.raises(ValueError, match=words):
            index.find(wanted, language=language)


def test_the_features_of_a_sentence_are_those_of_the_code(index, dense, sentences):
    code, of = dense
    for sentence in (0, 7):
        own = code[of == sentence]
        largest = own.max(axis=0)
        found = index.sentence(sentence)
        assert found["text"] == sentences[sentence].text
        assert found["held_out"] == (sentence % 3 == 0)
        assert found["active"] == (largest > 0).sum()
        expected = np.sort(largest)[::-1][: min(found["active"], 32)]
        np.testing.assert_allclose([row["activation"] for row in found["features"]], expected, rtol=1e-3)
        for row in found["features"]:
            assert row["activation"] == pytest.approx(largest[row["id"]], rel=1e-3)
            assert [row["at"], row["activation"]] in row["parts"]
            assert row["parts"] == index.example(sentence, row["id"])["parts"]
        (hit,) = (row for row in index.find(found["text"])["sentences"] if row["id"] == sentence)
        assert hit["features"] == [
            {name: row[name] for name in ("id", "activation", "at")} for row in found["features"][:6]
        ]
    with pytest.raises(ValueError, match=r"sentence is \d+; the run has 0 to"):
        index.sentence(len(sentences))


def test_sentences_of_a_file_give_back_what_the_index_says(index):
    features = index.ranked()[:9].tolist()
    found = index.codes([7, 0, 7], features)
    assert list(found) == [0, 7]
    for sentence, one in found.items():
        assert set(one["code"]) <= set(features)
        for feature in features:
            parts_here = [[piece, None] for piece in one["pieces"]]
            numbers = one["code"].get(feature, [])
            for place, value in zip(numbers[::2], numbers[1::2], strict=True):
                parts_here[place][1] = value
            expected = [[piece, value or None] for piece, value in index.example(sentence, feature)["parts"]]
            assert parts_here == expected


def test_the_words_of_a_feature_are_whole_and_without_signs(tmp_path):
    text = "Zellen, cell. Cell cellular cafe\u0301"
    spans = [(0, 4), (4, 6), (6, 7), (8, 12), (12, 13), (14, 18), (19, 23), (23, 27), (28, 32), (32, 33)]
    value = np.array([1, 1, 0.25, 2, 0.5, 2, 0.75, 0.125, 0.0625, 0.03125], np.float32)
    n = len(spans)
    reading = Reading(
        [text],
        ["en_XX"],
        np.zeros(1, bool),
        np.zeros(n, np.int64),
        np.array(spans),
        np.arange(n),
        [text[slice(*span)] for span in spans],
        *by_feature(np.zeros(n, np.int32), np.arange(n, dtype=np.int32), value, n_features=1),
    )
    (tmp_path / DIRECTORY).mkdir()
    write_index(tmp_path / DIRECTORY, reading, np.ones((1, 4)), about={})
    index = FeatureIndex.read(tmp_path / DIRECTORY)
    (words,) = index.summary()["words"]
    assert words == ["cell", "zellen", "cellular", ".", ",", "cafe\u0301"]
    shares = index.tables["top_word_share"][0, : len(words)]
    assert shares == pytest.approx(np.array([4, 2, 0.875, 0.5, 0.25, 0.09375]) / value.sum())


def test_effects_are_those_of_switching_the_feature_off(index, browser):
    """Against transformers' own forward of one sentence after the other, with the state changed by `steered`."""
    from course_lib.mbart.activations import tokenise
    from course_lib.mbart.splicing import log_probabilities, padded_pairs, steered

    features = index.ranked()[:5].tolist()
    feature = features[1]
    rows = strongest_sentences(index, [feature])[0]
    assert len(rows) == EFFECT_SENTENCES
    change, divergence = torch.zeros(browser.model.config.vocab_size), 0.0
    with torch.no_grad():
        for sentence in rows:
            read = tokenise(browser.tokenizer, [sentence])
            inputs, labels = padded_pairs(read, read, browser.model)
            clean = log_probabilities(browser.model, inputs, labels != -100)
            with steered(
                browser.model, browser.autoencoder, browser.site, {feature: 0.0}, skipped_ids=browser.skipped
            ):
                off = log_probabilities(browser.model, inputs, labels != -100)
            change += (clean.exp() - off.exp()).sum(dim=0) / len(rows)
            divergence += float((clean.exp() * (clean - off)).sum()) / len(rows)
    found = index.feature(feature)["effect"]
    assert found["divergence"] == pytest.approx(divergence, rel=1e-2, abs=1e-7)
    for row, best in zip(found["raised"][:3], change.topk(3).values.tolist(), strict=True):
        assert row["change"] == pytest.approx(best, rel=1e-2)
    assert found["raised"][0]["token"] == shown(
        browser.tokenizer.convert_ids_to_tokens([int(change.argmax())])[0]
    )
    assert found["lowered"][0]["change"] == pytest.approx(float(change.min()), rel=1e-2)
    assert 0 < found["divergence_random"] != found["divergence"]
    assert index.feature(int(index.ranked()[5]))["effect"] is None
    now = browser.effects([feature], [rows]).row(0)
    assert now["raised"][0] == pytest.approx(found["raised"][0], rel=1e-3)


def test_at_the_decoders_end_effects_are_logits_of_all_features(tiny, tmp_path):
    run = make_run(tmp_path / "run", tiny, site="decoder")
    index = build_index(run, threads=1, progress=False)
    browser = FeatureBrowser(run, threads=1)
    feature = int(index.ranked()[3])
    mean = index.column(feature)[1].mean()
    state = torch.randn(32, generator=torch.Generator().manual_seed(1))
    direction = browser.autoencoder.decoder_weight[:, feature].detach()
    added = direction / direction.norm() * mean * browser.autoencoder.input_scale
    with torch.no_grad():
        change = browser.model.lm_head(state + added) - browser.model.lm_head(state)
    change = change - change.mean()
    found = index.feature(feature)["effect"]
    assert found["raised"][0]["change"] == pytest.approx(float(change.max()), rel=1e-2)
    assert found["raised"][0]["token"] == shown(
        browser.tokenizer.convert_ids_to_tokens([int(change.argmax())])[0]
    )
    assert found["lowered"][0]["change"] == pytest.approx(float(change.min()), rel=1e-2)
    assert found["divergence"] is None
    assert all(index.feature(other)["effect"] for other in index.ranked()[:10].tolist())
    rows = browser.spans([HOSTILE])[1][0]
    assert HOSTILE[slice(*rows[0])] == "the"


def test_a_run_of_the_pipeline_without_concepts_and_languages_opens(tiny, tmp_path, monkeypatch):
    drawn = defaultdict(lambda: report.PageFigure("", "", ""))  # the pictures take most of a run's time
    monkeypatch.setattr(report, "draw_figures", lambda *_: drawn)
    quick = sae.TrainConfig(steps=20, batch_size=64)
    (tmp_path / "own.txt").write_text("\n".join(SENTENCES[:80]))
    result = pipeline.run(
        out=tmp_path / "run",
        model=str(tiny),
        text=tmp_path / "own.txt",
        stacked=StackedConfig(training=quick),
        sparse=SparseConfig(n_features=64, training=quick),
        device="cpu",
        progress=False,
    )
    server = browse(result, effects=0, progress=False)
    try:
        assert "no feature gets a name" in result.metrics.run.warnings[0]
        assert server.index.about["warnings"] == result.metrics.run.warnings
        found = server.index.feature(int(server.index.ranked()[0]))
        assert (found["languages"], found["concepts"], found["effect"]) == ([], [], None)
        assert found["groups"][0]["sentences"][0]["language"] is None
        shown_here = server._repr_mimebundle_()
        assert server.address in shown_here["text/plain"]
        assert f'<iframe src="{server.address}"' in shown_here["text/html"]
    finally:
        server.close()
        server.close()


def test_a_site_in_the_middle_and_a_dense_code(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "MAX_ACTIVE", 5)
    generator = torch.Generator().manual_seed(0)
    autoencoder = sae.ReluSparseAutoencoder(32, 64, generator=generator)
    run = make_run(tmp_path / "run", tiny, site="encoder.1.mlp", autoencoder=autoencoder)
    index = build_index(run, effects=0, threads=1, progress=False)
    assert index.about["site"] == "encoder.1.mlp"
    active = np.zeros(index.about["tokens"], int)
    for feature in range(64):
        np.add.at(active, index.column(feature)[0], 1)
    assert active.max() == 5
    assert 0 < index.about["kept"] < 1


def test_what_is_unusable_is_named(run, index, tiny, tmp_path):
    with pytest.raises(ValueError, match="feature is 96; the run has 0 to 95"):
        index.feature(96)
    with pytest.raises(ValueError, match="language is 'xx'; the run has en_XX, fr_XX"):
        index.feature(0, language="xx")
    with pytest.raises(IndexMissing, match="expected the directory of a pipeline run"):
        build_index(tmp_path)
    with pytest.raises(ValueError, match="effects is -1"):
        build_index(run, effects=-1)
    other = tmp_path / "other"
    shutil.copytree(run, other)
    assert FeatureIndex.open(other).n_features == 96
    (other / "sentences.jsonl").write_text('{"text": "the dog.", "language": null}\n')
    with pytest.raises(IndexOutdated, match="made of other files"):
        FeatureIndex.open(other)
    shutil.rmtree(other / DIRECTORY)
    with (
        locked(other / f".{DIRECTORY}.lock", busy=RuntimeError()),
        pytest.raises(IndexUnavailable, match="another process"),
    ):
        build_index(other, progress=False)
    moved = metrics_as_json(some_metrics(str(tmp_path / "nowhere")), None)
    (other / "metrics.json").write_text(json.dumps(moved))
    with pytest.raises(IndexUnavailable, match="nowhere"):
        build_index(other, progress=False)


def test_a_stopped_build_leaves_nothing(tiny, tmp_path, monkeypatch):
    run = make_run(tmp_path / "run", tiny)

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "write_index", stop)
    with pytest.raises(KeyboardInterrupt):
        build_index(run, progress=False)
    assert sorted(path.name for path in run.iterdir() if not path.name.endswith(".lock")) == [
        "metrics.json",
        "sentences.jsonl",
        "sparse",
    ]


def test_an_autoencoder_that_is_not_sparse_or_of_another_width_is_refused(run, tiny, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(run, other, ignore=shutil.ignore_patterns("sparse", DIRECTORY))
    without_digests(other)
    sae.save(sae.StackedAutoencoder(32, (8, 4)), other / "sparse")
    with pytest.raises(ValueError, match="expected a sparse one"):
        FeatureBrowser(other)
    shutil.rmtree(other / "sparse")
    sae.save(sae.TopKSparseAutoencoder(16, 64, k=4), other / "sparse")
    with pytest.raises(ValueError, match="d_model 16, the model 32"):
        FeatureBrowser(other)


def test_opening_loads_no_torch(index, run):
    code = (
        "import sys\nfrom course_lib.interpret.browser.server import open_or_build\n"
        f"open_or_build({str(run)!r}).feature(0)\nprint(sorted({{'torch', 'transformers'}} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_entries_are_sorted_by_feature_and_stay_in_order():
    feature = np.array([2, 0, 2, 1, 0])
    start, token, value = by_feature(feature, np.arange(5), np.array([0.5, 1.0, 1.5, 2.0, 2.5]), n_features=4)
    assert start.tolist() == [0, 2, 3, 5, 5]
    assert token.tolist() == [1, 4, 3, 0, 2]
    assert value.tolist() == [1.0, 2.5, 2.0, 0.5, 1.5]


def test_parts_give_back_the_text():
    spans = np.array([(1, 3), (3, 3), (4, 6), (4, 6)])
    found = parts(" ab cd!", spans, np.array([0.5, 0.0, 0.0, 0.25]))
    assert found == [[" ", None], ["ab", 0.5], [" ", None], ["cd", 0.25], ["!", None]]
    assert [shown(piece) for piece in ("▁dog", "▁", "mer", ".")] == ["dog", "␣", "…mer", "."]


def test_the_fingerprint_is_of_the_content(run, tmp_path, monkeypatch):
    other = tmp_path / "other"
    shutil.copytree(run, other)
    text = other / "sentences.jsonl"
    os.utime(text, ns=(0, 0))  # a copy of another time
    assert FeatureIndex.open(other).n_features == 96
    text.write_bytes(text.read_bytes().replace(b"the", b"thy", 1))
    with pytest.raises(IndexOutdated):
        FeatureIndex.open(other)
    made_of = FeatureIndex.open(run).about["fingerprint"]
    monkeypatch.setattr("hashlib.file_digest", None)  # what was not touched is not read
    assert fingerprint(run, unless=made_of)


def changed_in_the_middle(data):
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


@pytest.mark.parametrize("damage", [changed_in_the_middle, lambda data: data[:-1], lambda _: b"\x00", None])
def test_no_file_of_an_index_is_read_when_it_is_not_as_it_was_written(damage, run, index, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(run, other)
    files = sorted((other / DIRECTORY).iterdir())
    assert {"about.json", "pieces.json", "text.npy", "effect_value.npy"} < {path.name for path in files}
    for path in files:
        good = path.read_bytes()
        path.unlink()
        if damage is not None:
            path.write_bytes(damage(good))
        with pytest.raises(IndexDamaged, match=f"{path} is damaged"):
            FeatureIndex.open(other)
        path.write_bytes(good)
    np.save(other / DIRECTORY / "more.npy", np.arange(3))
    with pytest.raises(IndexDamaged, match=r"more\.npy"):
        FeatureIndex.open(other)


def test_a_damaged_index_is_made_again(run, index, tmp_path, capsys):
    other = tmp_path / "other"
    shutil.copytree(run, other)
    path = other / DIRECTORY / "active_value.npy"
    good = {file.name: file.read_bytes() for file in path.parent.glob("*.npy")}
    path.write_bytes(changed_in_the_middle(good[path.name]))
    again = open_or_build(other, effects=5, threads=1, progress=False)
    said = capsys.readouterr().err
    assert (
        said
        == f"{path} is damaged: it has another SHA-256 than when it was written; the index is made again\n"
    )
    assert {file.name: file.read_bytes() for file in path.parent.glob("*.npy")} == good
    assert again.summary() == index.summary()
    open_or_build(other)
    assert capsys.readouterr().err == ""


def test_an_index_without_digests_opens_and_one_that_cannot_be_read_is_named(run, index, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(run, other)
    path = other / DIRECTORY / "about.json"
    about = json.loads(path.read_text())
    del about["sha256"]
    path.write_text(json.dumps(about))
    assert FeatureIndex.open(other).summary() == index.summary()
    for name in ("mean.npy", "concepts.json", "about.json"):
        path = other / DIRECTORY / name
        good = path.read_bytes()
        for cut in (good[: len(good) // 2], b""):
            path.write_bytes(cut)
            with pytest.raises(IndexDamaged, match=f"{path} is damaged"):
                FeatureIndex.open(other)
        path.write_bytes(good)
