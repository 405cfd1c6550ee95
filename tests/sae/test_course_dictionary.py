"""The shipped dictionary: what its files say, and that they belong to the model that is shipped beside it."""

import json
import shutil
import sys

import pytest
import torch

from course_lib.interpret.concepts import encode_rows, f1_scores
from course_lib.language.corpus import LEXICAL_CONCEPTS, SPLITS
from course_lib.pipeline import SparseConfig
from course_lib.pipeline.config import InputError
from course_lib.pipeline.course_dictionary import make, make_of_table, named_detectors, token_rows
from course_lib.sae import TrainConfig, load
from course_lib.sae.course_dictionary import DIRECTORY, HELP_MODEL, course_dictionary, detectors, origin
from course_lib.sae.metrics import explained_variance


@pytest.fixture(scope="module")
def held_out():
    return token_rows(800, seed=7, split=SPLITS[-1])


def test_it_is_as_large_and_as_sparse_as_it_says(held_out):
    dictionary = course_dictionary()
    assert (dictionary.n_features, dictionary.d_model, dictionary.k) == (2048, 256, 8)
    assert not any(parameter.requires_grad for parameter in dictionary.parameters())
    assert (dictionary.decoder_weight.norm(dim=0) - 1).abs().max() < 2e-3
    assert all(file.stat().st_size < 2.5e6 for file in DIRECTORY.iterdir())
    assert float((dictionary.encode(held_out.states) > 0).sum(dim=1).double().mean()) <= 8


def test_its_origin_is_what_new_sentences_show(held_out):
    dictionary, about = course_dictionary(), origin()
    explained = explained_variance(held_out.states, dictionary(held_out.states))
    assert explained == pytest.approx(about["held-out variance explained"], abs=0.01)
    assert about["command"].startswith("python -m course_lib dictionary")
    assert (about["training sentences"], about["concepts"]) == (24_000, len(LEXICAL_CONCEPTS))


def test_its_detectors_find_their_words_in_new_sentences(held_out):
    named = detectors()
    assert [one.concept for one in named] == list(LEXICAL_CONCEPTS)
    scores = held_out.largest(encode_rows(course_dictionary(), held_out.states))
    units, cuts = (torch.tensor([getattr(one, name) for one in named]) for name in ("feature", "threshold"))
    f1 = f1_scores(scores[:, units] > cuts, held_out.labels)
    enough = held_out.labels.sum(dim=0) >= 10
    stored = torch.tensor([float("nan") if one.f1 is None else one.f1 for one in named], dtype=torch.float64)
    both = enough & ~stored.isnan()
    assert int(both.sum()) > 50
    assert float((f1 - stored)[both].abs().mean()) < 0.05
    reached = sum(one.f1 is not None and one.f1 >= 0.9 for one in named)
    assert reached == origin()["of these, at held-out F1 0.9 or more"]


def test_a_small_one_is_made_and_read_back(tmp_path):
    quick = SparseConfig(n_features=64, training=TrainConfig(steps=3, batch_size=64, unit_norm_decoder=True))
    about = make(tmp_path / "made", sentences=1500, held_out=120, config=quick, progress=False)
    made = load(tmp_path / "made")
    assert made.n_features == 64
    assert json.loads((tmp_path / "made" / "origin.json").read_text(encoding="utf-8")) == about
    rows = [token_rows(n, seed=0, split=split) for n, split in ((1500, "train"), (120, "test"))]
    named = json.loads((tmp_path / "made" / "detectors.json").read_text(encoding="utf-8"))
    assert [one.feature for one in named_detectors(made, *rows)] == [one["feature"] for one in named]
    with pytest.raises(FileExistsError):
        make(tmp_path / "made", sentences=1500, held_out=120, config=quick, progress=False)


def test_words_of_the_manual_are_named_in_english_and_found_in_the_other_languages():
    dictionary, about = course_dictionary(HELP_MODEL), origin(HELP_MODEL)
    assert (dictionary.n_features, dictionary.d_model, dictionary.k) == (2048, 256, 8)
    assert about["detectors chosen on"] == "training sentences in en_XX"
    named = {one.concept: one for one in detectors(HELP_MODEL)}
    assert len(named) == about["concepts"]
    assert min(named["en:file"].f1_by_language.values()) > 0.85
    assert sum(one.f1 >= 0.9 for one in named.values()) == about["of these, at held-out F1 0.9 or more"]


def test_a_model_without_a_dictionary_is_refused_by_name():
    with pytest.raises(ValueError, match="model is 'mbart'; expected 'course-mbart' or 'course-mbart-help'"):
        course_dictionary("mbart")


def test_one_is_made_of_a_table_and_its_words_are_named_in_english(tmp_path):
    rows = ["split\ten\tde"]
    fruits = {
        "apple": "Apfel",
        "pear": "Birne",
        "plum": "Pflaume",
        "lemon": "Zitrone",
        "cherry": "Kirsche",
        "fig": "Feige",
    }
    for i in range(180):
        fruit, obst = list(fruits.items())[i % 6]
        rows.append(f"{'test' if i >= 90 else 'train'}\tone {fruit} number {i}\tein {obst} Nummer {i}")
    table = tmp_path / "fruit.tsv"
    table.write_text("\n".join(rows) + "\n", encoding="utf-8")
    quick = SparseConfig(n_features=64, training=TrainConfig(steps=20, batch_size=64, unit_norm_decoder=True))
    about = make_of_table(table, tmp_path / "made", config=quick, progress=False)
    assert (about["training sentences"], about["held-out sentences"]) == (180, 180)
    named = json.loads((tmp_path / "made" / "detectors.json").read_text(encoding="utf-8"))
    assert [one["concept"] for one in named] == sorted(f"en:{fruit}" for fruit in fruits)
    assert all(set(one["f1_by_language"]) == {"en_XX", "de_DE"} for one in named)
    with pytest.raises(InputError, match="is no table of parallel text; expected a column for each language"):
        make_of_table(tmp_path / "none.txt", tmp_path / "other", progress=False)


def test_a_changed_file_is_refused_by_name(tmp_path, monkeypatch):
    dictionary_module = sys.modules[course_dictionary.__module__]
    copied = tmp_path / "dictionary"
    shutil.copytree(dictionary_module.DIRECTORY, copied)
    monkeypatch.setattr(dictionary_module, "DIRECTORY", copied)
    for name in ("detectors.json", "origin.json", "model.safetensors", "config.json"):
        data = (copied / name).read_bytes()
        (copied / name).write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
        for read in (
            dictionary_module.course_dictionary,
            dictionary_module.origin,
            dictionary_module.detectors,
        ):
            with pytest.raises(ValueError, match=name):
                read()
        (copied / name).write_bytes(data)
    (copied / "origin.json").unlink()
    with pytest.raises(FileNotFoundError, match="origin"):
        dictionary_module.origin()
