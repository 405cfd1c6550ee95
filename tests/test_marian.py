"""The commands on a Marian folder as a checkpoint has it: two SentencePiece models, one vocabulary, no language code."""

import json

import pytest
import torch
from typer.testing import CliRunner

from course_lib.__main__ import app
from course_lib.interpret.browser.features import FeatureBrowser
from course_lib.language.corpus import generate
from course_lib.mbart.activation_store import ActivationStore
from tests.tiny_families import write_tiny

TEXTS = [s.text for s in generate(200, seed=3, languages=["en_XX"]) if len(s.text) < 45][:60]


def call(*arguments) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    directory = tmp_path_factory.mktemp("marian")
    (directory / "model").mkdir()
    write_tiny("marian-two", directory / "model")
    (directory / "text.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    return directory


@pytest.mark.parametrize("site", ["encoder", "decoder"])
def test_text_goes_to_a_report_and_a_page_of_features(site, folder, tmp_path):
    out, page = tmp_path / "out", tmp_path / "page.html"
    given = ("--model", folder / "model", "--text", folder / "text.txt", "--site", site, "--device", "cpu")
    call("pipeline", *given, "--out", out, "--features", 48, "--k", 4, "--steps", 30)
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["run"]["languages"] == {"not given": len(TEXTS)}
    assert metrics["sparse"]["train"]["explained_variance"] > 0
    call("browse", out, "--export", page)
    assert page.is_file()
    # Typed in, a sentence has the tokens that the run read; its translation needs no language.
    browser = FeatureBrowser(out, device="cpu")
    tokens = browser.read(TEXTS[0], None).tokens
    assert "".join(token.replace("␣", "") for token in tokens) == TEXTS[0].replace(" ", "")
    cutter = browser.tokenizer.spm_source if site == "encoder" else browser.tokenizer.spm_target
    assert len(tokens) == len(cutter.encode(TEXTS[0]))
    found = browser.compare(TEXTS[0], None, None, [])
    assert found["changed"] == found["original"]
    with pytest.raises(ValueError, match="language is 'de'"):
        browser.read(TEXTS[0], "de")


def test_a_store_is_trained_on_and_judged_by_the_models_loss(folder, tmp_path):
    store, made, pairs = tmp_path / "store", tmp_path / "sae", tmp_path / "pairs.txt"
    call("activations", "--model", folder / "model", "--text", folder / "text.txt", "--out", store)
    states = ActivationStore(store)[:]
    assert states.shape[1] == 16
    assert torch.isfinite(states).all()
    call("sae", "train", "--store", store, "--features", 48, "--k", 4, "--steps", 30, "--out", made)
    german = [s.text for s in generate(200, seed=3, languages=["de_DE"])]
    english = [s.text for s in generate(200, seed=3, languages=["en_XX"])]
    both = [pair for pair in zip(english, german, strict=True) if max(map(len, pair)) < 45][:20]
    pairs.write_text("\n".join(f"\t{a}\t\t{b}" for a, b in both), encoding="utf-8")
    said = call("sae", "evaluate", made, "--store", store, "--model", folder / "model", "--text", pairs)
    assert "cross-entropy" in said


def test_a_code_before_the_sentence_is_refused_in_words(folder, tmp_path):
    given = ("pipeline", "--model", folder / "model", "--text", "builtin", "--sentences", 60)
    done = CliRunner().invoke(app, list(map(str, (*given, "--out", tmp_path / "out"))))
    assert done.exit_code == 2
    said = " ".join(done.stderr.split())
    assert "the model does not know the language 'en_XX'; expected a line without a tab" in said
