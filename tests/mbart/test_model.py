"""Loading: what works gives a model, what does not gives one clear message, and the hub is left alone."""

import json
import re
import shutil
import socket
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from course_lib.files import SUMS
from course_lib.mbart.model import COURSE_MBART, COURSE_MBART_DIR, SHIPPED, ModelUnavailable, load
from course_lib.sae.course_dictionary import course_dictionary


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Any attempt to look up a host fails, as it does offline, and is written down."""
    asked = []

    def refuse(host, *_args, **_kwargs):
        asked.append(host)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return asked


@pytest.fixture
def copy(tiny_directory, tmp_path):
    return shutil.copytree(tiny_directory, tmp_path / "model")


def test_a_directory_gives_the_same_weights_back_without_the_hub(
    tiny_directory, tiny_model, no_network, capfd
):
    model, tokenizer = load(str(tiny_directory))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), tiny_model.parameters(), strict=True))
    assert not model.training
    assert type(tokenizer).__name__ == "MBart50Tokenizer"
    assert no_network == []
    assert capfd.readouterr() == ("", "")


def test_dtype_is_that_asked_for(tiny_directory):
    assert load(str(tiny_directory), dtype=torch.bfloat16)[0].dtype == torch.bfloat16


def test_an_offline_hub_model_is_refused_at_once_with_advice(no_network, monkeypatch):
    waited = []  # the hub client itself would try again for half a minute
    monkeypatch.setattr(time, "sleep", waited.append)
    with pytest.raises(ModelUnavailable, match=r"(?s)not in the local cache.*HF_HUB_OFFLINE.*course-mbart"):
        load("facebook/no-such-mbart-in-any-cache")
    assert no_network
    assert waited == []


def test_hub_offline_makes_no_request(monkeypatch, no_network):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelUnavailable, match="HF_HUB_OFFLINE"):
        load("facebook/no-such-mbart-in-any-cache")
    assert no_network == []


@pytest.mark.parametrize("name", ["/no/such/directory", "./nothing", "a/b/c", ""])
def test_a_path_that_does_not_exist_is_not_asked_of_the_hub(name, no_network):
    with pytest.raises(ModelUnavailable, match="course-mbart"):
        load(name)
    assert no_network == []


def test_a_directory_without_a_configuration(tmp_path):
    with pytest.raises(ModelUnavailable, match=r"without config\.json"):
        load(str(tmp_path))


@pytest.mark.parametrize("shipped", [True, False])
def test_a_file_of_the_shipped_model_that_was_changed_is_named(shipped, tmp_path, monkeypatch):
    copy = Path(shutil.copytree(COURSE_MBART_DIR, tmp_path / "model"))
    if shipped:
        monkeypatch.setitem(SHIPPED, COURSE_MBART, copy)
    name, advice = (
        (COURSE_MBART, "install course-lib again") if shipped else (str(copy), "restore it, or remove")
    )
    load(name)
    names = {path.name for path in copy.iterdir()} - {"README.md"}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", SUMS} < names
    for file in names:
        path = copy / file
        good = path.read_bytes()
        middle = len(good) // 2
        for bad in (good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :], good[:-3], b""):
            path.write_bytes(bad)
            with pytest.raises(ModelUnavailable, match=advice) as error:
                load(name)
            assert str(path if file != SUMS else copy) in str(error.value)
        path.unlink()
        if file not in (SUMS, "config.json"):
            with pytest.raises(ModelUnavailable, match=re.escape(file)):
                load(name)
        path.write_bytes(good)
    (copy / SUMS).unlink()
    if shipped:
        with pytest.raises(ModelUnavailable, match=SUMS):
            load(name)
    else:
        load(name)


@pytest.mark.parametrize(
    "asked",
    [
        {"attn_implementation": "kernels-community/flash-attn"},
        {"_attn_implementation": "somebody/kernel"},
        {"attn_implementation": {"encoder": "eager", "decoder": "somebody/kernel@main"}},
        {"decoder": {"_attn_implementation_internal": "somebody/kernel"}},
    ],
)
def test_a_configuration_cannot_ask_for_code_of_the_hub(copy, asked, no_network):
    settings = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(settings | asked))
    with pytest.raises(ModelUnavailable, match="which transformers would download and run"):
        load(str(copy))
    assert no_network == []
    (copy / "config.json").write_text(json.dumps(settings | {"attn_implementation": "eager"}))
    load(str(copy))
    assert no_network == []


def test_what_is_shipped_is_read_without_any_connection(no_network, monkeypatch):
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: no_network.append(address))
    load(COURSE_MBART)
    course_dictionary()
    assert no_network == []
    with pytest.raises(ModelUnavailable):
        load("facebook/no-such-mbart-in-any-cache")
    assert no_network  # a hub name alone asks


def test_a_directory_without_a_tokenizer(copy):
    (copy / "tokenizer.json").unlink()
    with pytest.raises(ModelUnavailable, match="without tokenizer"):
        load(str(copy))


def test_another_architecture_is_named(copy):
    settings = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(settings | {"model_type": "bert"}))
    with pytest.raises(ModelUnavailable, match="'bert'"):
        load(str(copy))


def test_a_broken_configuration(copy):
    (copy / "config.json").write_text("{")
    with pytest.raises(ModelUnavailable, match="could not be read"):
        load(str(copy))


def test_truncated_weights(copy):
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ModelUnavailable, match="could not be read"):
        load(str(copy))


def test_missing_weights_are_not_replaced_by_random_ones(copy):
    tensors = load_file(copy / "model.safetensors")
    del tensors["model.encoder.layers.0.fc1.weight"]
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ModelUnavailable, match=r"lacks 1 weights, such as model\.encoder\.layers\.0\.fc1\.weight"
    ):
        load(str(copy))


def test_a_tokenizer_of_another_model(copy):
    tensors = load_file(copy / "model.safetensors")
    tensors["model.shared.weight"] = tensors["model.shared.weight"][:100].clone()
    tensors["final_logits_bias"] = tensors["final_logits_bias"][:, :100].clone()
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    settings = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(settings | {"vocab_size": 100}))
    with pytest.raises(ModelUnavailable, match="embeds 100 tokens"):
        load(str(copy))
