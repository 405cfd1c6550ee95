"""The commands on a T5 folder: from text to a report, a page of features, a store, and the loss that is recovered."""

import json

import pytest
from typer.testing import CliRunner

from course_lib.__main__ import app
from course_lib.interpret.browser.features import FeatureBrowser
from course_lib.mbart.activation_store import ActivationStore
from tests.tiny_mbart import SENTENCES
from tests.tiny_others import write_tiny

TEXTS = SENTENCES[:60]


def call(*arguments) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    directory = tmp_path_factory.mktemp("t5")
    (directory / "model").mkdir()
    write_tiny("t5", directory / "model")
    (directory / "text.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    return directory


@pytest.mark.parametrize("site", ["encoder", "decoder.1.mlp"])
def test_text_goes_to_a_report_and_a_page_of_features(site, folder, tmp_path):
    out, page = tmp_path / "out", tmp_path / "page.html"
    given = ("--model", folder / "model", "--text", folder / "text.txt", "--site", site, "--device", "cpu")
    call("pipeline", *given, "--out", out, "--features", 48, "--k", 4, "--steps", 30)
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["sparse"]["train"]["explained_variance"] > 0
    call("browse", out, "--export", page)
    assert page.is_file()
    browser = FeatureBrowser(out, device="cpu")
    tokens = browser.read(TEXTS[0], None).tokens
    assert "".join(token.replace("␣", "") for token in tokens) == TEXTS[0].replace(" ", "")
    found = browser.compare(TEXTS[0], None, None, [])
    assert found["changed"] == found["original"]
    with pytest.raises(ValueError, match=r"text has 5\d\d tokens; at most 503 are translated here"):
        browser.compare("the dog " * 260, None, None, [])


def test_a_store_is_trained_on_and_judged_by_the_models_loss(folder, tmp_path):
    store, made, pairs = tmp_path / "store", tmp_path / "sae", tmp_path / "pairs.txt"
    call("activations", "--model", folder / "model", "--text", folder / "text.txt", "--out", store)
    assert ActivationStore(store)[:].shape[1] == 32
    call("sae", "train", "--store", store, "--features", 48, "--k", 4, "--steps", 30, "--out", made)
    both = zip(TEXTS[:20], reversed(TEXTS[:20]), strict=True)
    pairs.write_text("\n".join(f"\t{a}\t\t{b}" for a, b in both), encoding="utf-8")
    said = call("sae", "evaluate", made, "--store", store, "--model", folder / "model", "--text", pairs)
    assert "cross-entropy" in said
