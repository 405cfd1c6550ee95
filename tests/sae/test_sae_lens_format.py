"""SAELens' format: what is in the files, by its equations; and, where it is installed, by its own loader."""

import json
import os
import subprocess

import pytest
import torch
from safetensors.torch import load_file, save_file

from course_lib import sae
from course_lib.sae import sae_lens_format

D, F = 12, 30
CLASSES = {
    "relu": (sae.ReluSparseAutoencoder, {"l1": 0.1}, "standard"),
    "topk": (sae.TopKSparseAutoencoder, {"k": 5}, "topk"),
    "batch_topk": (sae.BatchTopKSparseAutoencoder, {"k": 5}, "jumprelu"),
    "jump_relu": (sae.JumpReluSparseAutoencoder, {}, "jumprelu"),
    "gated": (sae.GatedSparseAutoencoder, {"l1": 0.1}, "gated"),
    "matryoshka_topk": (sae.MatryoshkaTopKSparseAutoencoder, {"k": 5, "aux_k": 3}, "topk"),
    "matryoshka_batch_topk": (sae.MatryoshkaBatchTopKSparseAutoencoder, {"k": 5}, "jumprelu"),
    "gba": (sae.GroupBiasAdaptedAutoencoder, {"groups": 3}, "jumprelu"),
}

PEER = """
import sys, torch
from pathlib import Path
from safetensors.torch import load_file, save_file
from sae_lens import SAE
x = load_file(sys.argv[1])["x"]
for directory in map(Path, sys.argv[2:]):
    made = SAE.load_from_disk(directory / "ours")
    with torch.no_grad():
        code = made.encode(x)
        save_file({"code": code.contiguous(), "x_hat": made.decode(code).contiguous()}, directory / "result")
    made.save_model(directory / "theirs")
"""


def rows(dtype=torch.float32):
    g = torch.Generator().manual_seed(5)
    return (torch.randn(200, D, generator=g, dtype=torch.float64) * torch.arange(1, D + 1) + 20).to(dtype)


def made(kind, *, dtype=torch.float32):
    """An autoencoder none of whose weights, biases and thresholds is at its start."""
    cls, options, _ = CLASSES[kind]
    g = torch.Generator().manual_seed(1)
    autoencoder = cls(D, F, generator=g, **options).to(dtype)
    autoencoder.fit_normalisation(rows(dtype))
    with torch.no_grad():
        for name, value in autoencoder.state_dict().items():
            if name in ("encoder_bias", "decoder_bias", "log_scale", "magnitude_bias"):
                value.copy_(0.05 * torch.randn(value.shape, generator=g, dtype=dtype))
            if name == "log_threshold":
                value.add_(torch.randn(value.shape, generator=g, dtype=dtype))
            if name == "threshold":
                value.fill_(0.07)
            if name == "decoder_weight":
                value.add_(0.1 * torch.randn(value.shape, generator=g, dtype=dtype))
        if kind == "gba":
            autoencoder.encoder_bias.copy_(-autoencoder.encoder_bias.abs())
            autoencoder.amplitude.mul_(torch.linspace(0.5, 2, F))
    return autoencoder.requires_grad_(False)


def as_sae_lens_computes(config, weights, x):
    """Its equations, written out."""
    centred = x - weights["b_dec"] * config["apply_b_dec_to_input"]
    if config["architecture"] == "gated":
        gate = centred @ weights["W_enc"] + weights["b_gate"]
        magnitude = centred @ (weights["W_enc"] * weights["r_mag"].exp()) + weights["b_mag"]
        code = (gate > 0) * magnitude.relu()
        return code, code @ weights["W_dec"] + weights["b_dec"]
    z = centred @ weights["W_enc"] + weights["b_enc"]
    if config["architecture"] == "jumprelu":
        code = z.relu() * (z > weights["threshold"])
    elif config["architecture"] == "topk":
        norms = (
            weights["W_dec"].norm(dim=1) if config["rescale_acts_by_decoder_norm"] else torch.ones(len(z[0]))
        )
        top = (z * norms).topk(config["k"], dim=1)
        code = torch.zeros_like(z).scatter(1, top.indices, top.values.relu())
        return code, (code / norms) @ weights["W_dec"] + weights["b_dec"]
    else:
        code = z.relu()
    return code, code @ weights["W_dec"] + weights["b_dec"]


@pytest.mark.parametrize("kind", CLASSES)
def test_files_hold_the_same_autoencoder(tmp_path, kind):
    autoencoder, x = made(kind, dtype=torch.float64), rows(torch.float64)
    sae_lens_format.export(autoencoder, tmp_path / "out", metadata={"model_name": "course-mbart"})
    config = json.loads((tmp_path / "out" / "cfg.json").read_text())
    assert config["architecture"] == CLASSES[kind][2]
    assert (config["d_in"], config["d_sae"], config["dtype"]) == (D, F, "float64")
    assert config["normalize_activations"] == config["reshape_activations"] == "none"
    assert config["metadata"] == {"model_name": "course-mbart"}
    weights = load_file(tmp_path / "out" / "sae_weights.safetensors")
    assert weights["W_enc"].shape == (D, F)
    assert weights["W_dec"].shape == (F, D)
    code, x_hat = as_sae_lens_computes(config, weights, x)
    assert 0.02 < (code > 0).double().mean() < 0.9
    torch.testing.assert_close(code, autoencoder.encode(x), atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(x_hat, autoencoder(x), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("kind", CLASSES)
def test_what_is_written_can_be_read(tmp_path, kind):
    autoencoder, x = made(kind), rows()
    sae_lens_format.export(autoencoder, tmp_path / "out")
    again = sae_lens_format.load(tmp_path / "out")
    assert again.kind == {
        "relu": "relu",
        "topk": "topk",
        "matryoshka_topk": "topk",
        "gated": "gated",
    }.get(kind, "jump_relu")
    torch.testing.assert_close(again.encode(x), autoencoder.encode(x), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(again(x), autoencoder(x), atol=1e-4, rtol=1e-4)


def test_a_row_at_the_threshold_of_batch_topk_stays_active(tmp_path):
    autoencoder = sae.BatchTopKSparseAutoencoder(2, 2, k=1)
    with torch.no_grad():
        autoencoder.encoder_weight.copy_(torch.eye(2))
        autoencoder.threshold.fill_(0.1)
    x = torch.tensor([[0.1, 0.0999], [0.0, -1.0]])
    assert autoencoder.encode(x)[0].tolist() == [x[0, 0].item(), 0]
    sae_lens_format.export(autoencoder, tmp_path / "out")
    weights = load_file(tmp_path / "out" / "sae_weights.safetensors")
    assert ((x @ weights["W_enc"]) > weights["threshold"]).tolist() == [[True, False], [False, False]]


@pytest.mark.parametrize(
    "options",
    [
        {"architecture": "standard", "apply_b_dec_to_input": False},
        {"architecture": "topk", "k": 4, "rescale_acts_by_decoder_norm": True, "apply_b_dec_to_input": True},
        {"architecture": "topk", "k": 4, "rescale_acts_by_decoder_norm": True, "apply_b_dec_to_input": False},
        {"architecture": "jumprelu", "apply_b_dec_to_input": False},
        {"architecture": "gated", "apply_b_dec_to_input": False},
    ],
)
def test_other_conventions_are_folded(tmp_path, options):
    g = torch.Generator().manual_seed(2)
    own = {"jumprelu": ("b_enc", "threshold"), "gated": ("b_gate", "b_mag", "r_mag")}
    own = own.get(options["architecture"], ("b_enc",))
    weights = {"W_enc": (D, F), "W_dec": (F, D), "b_dec": (D,), **dict.fromkeys(own, (F,))}
    weights = {name: torch.randn(shape, generator=g, dtype=torch.float64) for name, shape in weights.items()}
    config = {"d_in": D, "d_sae": F, **options}
    save_file(weights, tmp_path / "sae_weights.safetensors")
    (tmp_path / "cfg.json").write_text(json.dumps(config))
    autoencoder, x = sae_lens_format.load(tmp_path), rows(torch.float64) / 20
    code, x_hat = as_sae_lens_computes(config, weights, x)
    with torch.no_grad():
        torch.testing.assert_close(autoencoder.encode(x), code)
        torch.testing.assert_close(autoencoder(x), x_hat)


def test_what_the_format_cannot_express_is_refused(tmp_path):
    crosscoder = sae.CrosscoderSparseAutoencoder(8, 16, sites=(4, 4), k=2)
    for autoencoder in (sae.StackedAutoencoder(8, [4]), sae.KLSparseAutoencoder(8, 16), crosscoder):
        with pytest.raises(ValueError, match=f"a '{autoencoder.kind}' autoencoder cannot be written"):
            sae_lens_format.export(autoencoder, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_what_cannot_be_read_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"cfg\.json is missing"):
        sae_lens_format.load(tmp_path)
    sae_lens_format.export(made("topk"), tmp_path / "out")
    with pytest.raises(FileExistsError):
        sae_lens_format.export(made("topk"), tmp_path / "out")
    file = tmp_path / "out" / "cfg.json"
    config = json.loads(file.read_text())
    for change, message in (
        ({"architecture": "temporal"}, "architecture is 'temporal'"),
        ({"normalize_activations": "layer_norm"}, "normalize_activations is 'layer_norm'"),
        ({"reshape_activations": "hook_z"}, "reshape_activations is 'hook_z'"),
        ({"d_in": D + 1}, "does not hold a sparse autoencoder of SAELens: .*size mismatch"),
    ):
        file.write_text(json.dumps(config | change))
        with pytest.raises(ValueError, match=f"(?s){message}"):
            sae_lens_format.load(tmp_path / "out")
    file.write_text("{")
    with pytest.raises(ValueError, match="does not hold"):
        sae_lens_format.load(tmp_path / "out")


def test_sae_lens_computes_the_same(tmp_path):
    python = os.environ.get("COURSE_PEERS_PYTHON")
    if not python:
        pytest.skip("COURSE_PEERS_PYTHON names no python that has sae-lens")
    x = rows()
    for kind in CLASSES:
        metadata = {"model_name": "course-mbart", "hook_name": "encoder.final"}
        sae_lens_format.export(made(kind), tmp_path / kind / "ours", metadata=metadata)
    save_file({"x": x}, tmp_path / "rows")
    directories = [str(tmp_path / kind) for kind in CLASSES]
    subprocess.run([python, "-c", PEER, str(tmp_path / "rows"), *directories], check=True)
    for kind in CLASSES:
        autoencoder, result = made(kind), load_file(tmp_path / kind / "result")
        code, x_hat = autoencoder.encode(x), autoencoder(x)
        of_code, of_state = (result["code"] - code).abs().max(), (result["x_hat"] - x_hat).abs().max()
        print(f"{kind}: largest difference {of_code:.1e} of features, {of_state:.1e} of states")
        torch.testing.assert_close(result["code"], code, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(result["x_hat"], x_hat, atol=1e-4, rtol=1e-5)
        # What SAELens itself writes is read as the same again.
        again = sae_lens_format.load(tmp_path / kind / "theirs")
        torch.testing.assert_close(again.encode(x), code, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(again(x), x_hat, atol=1e-4, rtol=1e-5)
