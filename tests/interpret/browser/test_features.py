"""What the model says of sentences that are typed in, against `steered` and `spliced`."""

import pytest
import torch

from course_lib.interpret.browser import features
from course_lib.interpret.browser.features import Change, FeatureBrowser
from course_lib.language.corpus import Sentence
from course_lib.mbart.activations import extract, tokenise
from course_lib.mbart.splicing import spliced, steered
from tests.interpret.browser.runs import HOSTILE, make_run

TEXT = "the dog sees the bread."


@pytest.fixture(scope="module")
def browser(run):
    return FeatureBrowser(run, threads=1)


def encoder_states(model, rows):
    with torch.no_grad():
        return model.model.encoder(input_ids=torch.tensor(rows)).last_hidden_state


def test_features_by_token_are_the_code(browser):
    found = browser.read(HOSTILE, "en_XX").as_dict()
    states = extract(
        browser.model, browser.tokenizer, [Sentence(HOSTILE, "en_XX")], [browser.site], progress=False
    )[browser.site]
    code = (
        browser.autoencoder.encode(states.values) * browser.autoencoder.decoder_weight.norm(dim=0)
    ).detach()
    assert len(found["tokens"]) == len(code)
    for token, row in zip(found["tokens"], code, strict=True):
        best = row.topk(4)
        assert [entry["id"] for entry in token["features"]] == best.indices[best.values > 0].tolist()
        assert token["active"] == int((row > 0).sum())
    assert found["features"][0]["id"] == int(code.amax(dim=0).argmax())
    assert all("".join(text for text, _ in row["parts"]) == HOSTILE for row in found["features"])


@pytest.mark.parametrize("mode", ["scale", "set"])
def test_the_translations_read_states_as_steered_and_spliced_make_them(browser, mode, monkeypatch):
    """The random model writes nothing; what its decoder would read is compared instead."""
    strongest = browser.read(TEXT, "en_XX").features[:3]
    numbers = dict(zip(strongest, (0.0, 2.0, 3.0), strict=True))
    lengths = browser.autoencoder.decoder_weight.detach().norm(dim=0)
    seen = []

    def noted(model, _, rows, codes):
        seen.append(encoder_states(model, rows))
        assert codes == [browser.tokenizer.lang_code_to_id["fr_XX"]]
        return [codes]

    monkeypatch.setattr(features, "translate", noted)
    browser.compare(TEXT, "en_XX", "fr_XX", [Change(i, mode, number) for i, number in numbers.items()])
    browser.compare(TEXT, "en_XX", "fr_XX", [])
    rows = tokenise(browser.tokenizer, [Sentence(TEXT, "en_XX")])
    given = {i: x / float(lengths[i]) for i, x in numbers.items()} if mode == "set" else numbers
    options = {"skipped_ids": browser.skipped}
    original = encoder_states(browser.model, rows)
    with spliced(browser.model, browser.autoencoder, browser.site, **options):
        reconstructed = encoder_states(browser.model, rows)
    named = "value" if mode == "set" else "factor"
    with steered(browser.model, browser.autoencoder, browser.site, given, mode=named, **options):
        changed = encoder_states(browser.model, rows)
    wanted = (original, reconstructed, changed, original, reconstructed, original)
    for found, expected in zip(seen, wanted, strict=True):
        torch.testing.assert_close(found, expected)
    assert not torch.allclose(original, changed, atol=0.01)


def test_a_change_at_one_token_leaves_the_others(browser):
    x = torch.randn(5, 32, generator=torch.Generator().manual_seed(3))
    feature = int(browser.autoencoder.encode(x).amax(dim=0).argmax())
    everywhere = browser._changed(x, [Change(feature, "set", 2.0)])
    at_two = browser._changed(x, [Change(feature, "set", 2.0, 2)])
    torch.testing.assert_close(at_two[2], everywhere[2])
    torch.testing.assert_close(at_two[[0, 1, 3, 4]], x[[0, 1, 3, 4]])
    assert not torch.allclose(everywhere[0], x[0])


def test_what_cannot_be_read_or_changed_is_named(browser, tiny, tmp_path):
    def compare(*changes, text=TEXT, source="en_XX", target="fr_XX"):
        return browser.compare(text, source, target, changes)

    for words, call in {
        "feature is 96; the run has 0 to 95": lambda: compare(Change(96, "scale", 0)),
        "token is 6; the sentence has 0 to 5": lambda: compare(Change(0, "scale", 0, 6)),
        "language is 'xx'": lambda: compare(target="xx"),
        "text is ' '": lambda: compare(text=" "),
        "at most 11 are translated": lambda: compare(text="the " * 20),
        "has no token": lambda: browser.read("  ", "en_XX"),
        "mode is 'off'": lambda: Change(0, "off", 0),
        "expected a finite number": lambda: Change(0, "scale", float("inf")),
        "expected 0 or more": lambda: Change(0, "set", -1),
    }.items():
        with pytest.raises(ValueError, match=words):
            call()
    decoder = FeatureBrowser(make_run(tmp_path / "run", tiny, site="decoder"), threads=1)
    with pytest.raises(ValueError, match="the decoder writes its own tokens"):
        decoder.compare(TEXT, "en_XX", "fr_XX", [Change(0, "scale", 0, 1)])
    assert decoder.compare(TEXT, None, "fr_XX", [Change(0, "scale", 0)]).keys()
