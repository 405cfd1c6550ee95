"""Pretraining on a table of parallel text: what is read, drawn and scored, and a short run from end to end."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, MBartForConditionalGeneration
from typer.testing import CliRunner

from course_lib.commands import app
from course_lib.language.corpus import LANGUAGES, draw_meanings, render
from course_lib.mbart.pretraining import text as text_module
from course_lib.mbart.pretraining.config import TextConfig
from course_lib.mbart.pretraining.pretrain import random_model
from course_lib.mbart.pretraining.text import (
    TextData,
    fitting,
    pretrain_on_text,
    read_table,
    text_config,
    text_tokenizer,
    train_on_text,
)
from course_lib.mbart.pretraining.text_scores import chrf, held_out_text_scores

TINY = TextConfig(
    d_model=16,
    layers=1,
    heads=2,
    ffn_dim=32,
    max_positions=128,
    pieces=300,
    max_tokens=64,
    noised_documents=60,
    denoising_steps=50,
    translation_steps=100,
    batch_size=8,
    step_size=1e-2,
    warmup_steps=2,
    dropout=0.1,
    precision="float32",
)
N_TEST = 12


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A table of generated sentences, in three languages, the first of which are held out."""
    path = tmp_path_factory.mktemp("table") / "t.tsv"
    lines = ["page\tid\tsplit\ten\tde\tfr_XX"]
    for i, meaning in enumerate(draw_meanings(120, seed=0)):
        said = [render(meaning, code).text for code in ("en_XX", "de_DE", "fr_XX")]
        lines.append("\t".join([f"page{i}", f"id{i}", "test" if i < N_TEST else "train", *said]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def table(path):
    return read_table(path)


@pytest.fixture(scope="module")
def config(table):
    return text_config(table, TINY)


@pytest.fixture(scope="module")
def pieces(table, config):
    return text_tokenizer(table, config)


@pytest.fixture(scope="module")
def data(table, pieces, config):
    return TextData(table, pieces, config, device="cpu")


def test_a_table_is_read_by_the_names_of_its_columns(table, config):
    assert table.languages == ("en_XX", "de_DE", "fr_XX")
    said = [render(m, "de_DE").text for m in draw_meanings(120, seed=0)]
    assert table.test["de_DE"] + table.train["de_DE"] == said
    assert (config.languages, config.n_meanings, len(config.text)) == (table.languages, 120 - N_TEST, 64)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"begins with \[\]; expected the names"),
        ("page\tid\ten\tde\n", "expected the names of columns"),
        ("split\ten\ntrain\ta\n", "expected the names of columns"),
        ("split\ten\tklingon\ntrain\ta\tb\n", "two or more of mBART-50's languages"),
        ("split\ten\tde\ntrain\ta\n", "line 2 has 2 columns; expected 3"),
        ("split\ten\tde\nboth\ta\tb\n", "line 2: split is 'both'; expected train or test"),
        ("split\ten\tde\ntrain\ta\t\n", "line 2: expected text in each language"),
        ("split\ten\tde\ntrain\ta\tb\n", "no row whose split is test"),
    ],
)
def test_what_is_no_table_of_parallel_text_is_named(tmp_path, text, message):
    (tmp_path / "t.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "t.tsv")


@pytest.mark.parametrize(
    "wrong", [{"dropout": 1.0}, {"label_smoothing": -0.1}, {"max_tokens": 7}, {"noised_documents": 0}]
)
def test_impossible_configurations_are_refused(wrong):
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        TextConfig(**wrong)


def test_rows_that_are_too_long_in_one_language_are_left_out_of_all(table, pieces, config):
    every = fitting(table.train, pieces, replace(config, max_tokens=128))
    assert every == table.train
    lengths = [
        [len(pieces(text, add_special_tokens=False)["input_ids"]) + 2 for text in row]
        for row in zip(*table.train.values(), strict=True)
    ]
    limit = sorted(map(max, lengths))[60]
    kept = fitting(table.train, pieces, replace(config, max_tokens=limit))
    rows = list(zip(*table.train.values(), strict=True))
    expected = [row for row, length in zip(rows, lengths, strict=True) if max(length) <= limit]
    assert list(zip(*kept.values(), strict=True)) == expected
    assert 0 < len(expected) < len(rows)
    with pytest.raises(ValueError, match="no row has at most 8 tokens in each language"):
        fitting(
            {code: column[:1] * 2 for code, column in table.train.items()},
            pieces,
            replace(config, max_tokens=8),
        )


def test_a_batch_says_the_same_in_two_languages_and_no_row_twice(table, pieces, data):
    rng = np.random.default_rng(0)
    where = {text: i for column in table.train.values() for i, text in enumerate(column)}
    pairs = set()
    for _ in range(30):
        sources, targets = data.batch(rng, 8, denoise=False)
        assert sources.shape == targets.shape
        codes = [{pieces.convert_ids_to_tokens(row[0].item()) for row in side} for side in (sources, targets)]
        assert [len(each) for each in codes] == [1, 1]
        pairs.add((codes[0].pop(), codes[1].pop()))
        said = [pieces.batch_decode(side, skip_special_tokens=True) for side in (sources, targets)]
        rows = [[where[text] for text in each] for each in said]
        assert rows[0] == rows[1]
        assert len(set(rows[0])) == len(rows[0])
    assert len(pairs) == 6


def test_a_batch_that_denoises_holds_documents_and_what_they_were(pieces, data):
    rng = np.random.default_rng(0)
    masked = 0
    for _ in range(10):
        sources, targets = data.batch(rng, 8, denoise=True)
        assert torch.equal(sources[:, 0], targets[:, 0])
        masked += int((sources == pieces.mask_token_id).sum())
        assert not (targets == pieces.mask_token_id).any()
    assert masked > 0


def test_a_run_that_was_killed_ends_with_the_same_weights(data, pieces, config, tmp_path, monkeypatch):
    whole = random_model(config, pieces, seed=0)
    losses, _ = train_on_text(whole, data, config, progress=False)
    assert np.mean(losses[30:50]) < np.mean(losses[:10]) - 0.5  # before alignment adds its own
    checkpoint, drawn = tmp_path / "checkpoint.pt", []
    draw = TextData.batch

    def killed(*args, **kwargs):
        drawn.append(0)
        if len(drawn) == 120:
            raise KeyboardInterrupt
        return draw(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(TextData, "batch", killed)
        with pytest.raises(KeyboardInterrupt):
            train_on_text(
                random_model(config, pieces, seed=0), data, config, checkpoint=checkpoint, checkpoint_every=50
            )
    again = random_model(config, pieces, seed=1)
    assert train_on_text(again, data, config, checkpoint=checkpoint, progress=False)[0] == losses
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), again.parameters(), strict=True))
    with pytest.raises(ValueError, match="another configuration"):
        train_on_text(again, data, replace(config, seed=1), checkpoint=checkpoint)


def test_alignment_brings_translations_nearer_each_other(table, pieces, config, data):
    def found(share):
        model = random_model(config, pieces, seed=0)
        plain = replace(config, denoising_steps=0, denoising_share=0.0, alignment_share=share)
        train_on_text(model, data, plain, progress=False)
        return held_out_text_scores(model.eval(), pieces, config, table.train, n_scored=60)["retrieval"]

    assert found(1.0) > found(0.0) + 0.05


def test_chrf_is_100_for_the_right_text_and_0_for_nothing_of_it():
    pytest.importorskip("sacrebleu")
    assert chrf(["the dog", "a cat"], ["the dog", "a cat"]) == pytest.approx(100)
    assert chrf(["xyz", "xyz"], ["the dog", "a cat"]) == 0


def test_a_run_writes_a_model_its_scores_and_a_card(table, config, tmp_path):
    pytest.importorskip("sacrebleu")
    out = tmp_path / "model"
    scores = pretrain_on_text(table, config, out, n_scored=8, source="The text is made up.", progress=False)
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    model, tokenizer = MBartForConditionalGeneration.from_pretrained(out), AutoTokenizer.from_pretrained(out)
    assert model.config.vocab_size == len(tokenizer)
    assert model.dtype == torch.float16
    assert json.loads((out / "scores.json").read_text()) == scores
    assert scores["rows"] == 8
    assert scores["translation_loss"] < scores["random_weights_translation_loss"] - 0.5
    pairs = [f"{a}_{b}" for a in ("en", "de", "fr") for b in ("en", "de", "fr") if a != b]
    for name in ("translation_loss", "chrf", "chrf_copied", "retrieval"):
        assert scores[name] == pytest.approx(np.mean([scores[f"{name}_{pair}"] for pair in pairs]))
    card = (out / "README.md").read_text()
    assert "The text is made up." in card
    assert f"| {scores['retrieval']:.3f} | {scores['random_weights_retrieval']:.3f} |" in card
    assert pretrain_on_text.__name__ in card
    with pytest.raises(FileExistsError, match="already holds something"):
        pretrain_on_text(table, config, out)
    with pytest.raises(ValueError, match="of another table"):
        pretrain_on_text(table, replace(config, n_meanings=3), tmp_path / "other")


def test_the_command_reads_a_table(path, table, tmp_path, monkeypatch):
    seen = {}

    def recorded(table, config, out, *, device, progress):
        seen.update(table=table, config=config, out=out, device=device.type)
        return {"chrf": 50.0}

    monkeypatch.setattr(text_module, "pretrain_on_text", recorded)
    options = ["pretrain", "--text", str(path), "--out", str(tmp_path / "m"), "--device", "cpu"]
    done = CliRunner().invoke(app, [*options, "--steps", "7", "--batch-size", "6"])
    assert done.exit_code == 0, done.output
    assert seen["config"] == text_config(table, TextConfig(translation_steps=7, batch_size=6))
    assert (seen["table"], seen["device"]) == (table, "cpu")
    assert "chrf: 50" in done.stdout
    done = CliRunner().invoke(app, [*options, "--meanings", "8"])
    assert done.exit_code == 2
    assert "--meanings is for the built-in corpus" in done.stderr


def test_the_languages_of_the_generated_language_are_known_here():
    assert set(LANGUAGES) <= set(text_module.FAIRSEQ_LANGUAGE_CODES)
