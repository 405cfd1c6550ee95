"""Sparse autoencoders in the format of SAELens: a directory with cfg.json and sae_weights.safetensors.

There z = (x - b_dec) W_enc + b_enc, features are ReLU(z) ("standard"), the k largest of it ("topk"), z
where z > threshold ("jumprelu"), or ReLU(exp(r_mag) (z - b_gate) + b_mag) where z > 0 ("gated", whose b_enc is called
b_gate), and x' = f W_dec + b_dec. With our normalisation (x - m) / s folded in,

    b_dec = m + s b_d,   W_enc = W_e^T / s,   b_enc = b_e,   W_dec = s W_d^T

gives the same z, the same features and the same reconstruction of the raw states.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor

from course_lib.files import new_directory
from course_lib.sae.autoencoder import Autoencoder
from course_lib.sae.sparse import (
    BatchTopKSparseAutoencoder,
    GatedSparseAutoencoder,
    GroupBiasAdaptedAutoencoder,
    JumpReluSparseAutoencoder,
    ReluSparseAutoencoder,
    SparseAutoencoder,
    TopKSparseAutoencoder,
)

CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"


@torch.no_grad()
def export(
    autoencoder: Autoencoder, directory: Path | str, *, metadata: Mapping[str, Any] | None = None
) -> None:
    """Write a directory for `sae_lens.SAE.load_from_disk`, whole or not at all.

    ReLU becomes "standard", gated "gated", TopK "topk", and JumpReLU, BatchTopK with its learned threshold and GBA
    with its biases as thresholds "jumprelu". Nested dictionaries become what their features are, since prefixes and
    AuxK are of training alone: SAELens, too, stores a trained Matryoshka of BatchTopK as "jumprelu". `metadata` is
    kept as it is; SAELens looks for "model_name" and "hook_name".

    Raises ValueError for an autoencoder that the format has no architecture for (stacked, sigmoid units, crosscoder),
    and FileExistsError where the directory already holds something.
    """
    architecture, settings, own = _described(autoencoder)
    tensors = {name: getattr(autoencoder, name) for name in ("W_enc", "W_dec", "b_dec")} | own
    config = {
        "d_in": autoencoder.d_model,
        "d_sae": autoencoder.code_width,
        "dtype": str(autoencoder.input_scale.dtype).removeprefix("torch."),
        "device": "cpu",
        "apply_b_dec_to_input": True,
        "normalize_activations": "none",
        "reshape_activations": "none",
        "metadata": dict(metadata or {}),
        "architecture": architecture,
        **settings,
    }
    with new_directory(directory) as partial:
        stored = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        (partial / WEIGHTS).write_bytes(to_bytes(stored))
        (partial / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _described(autoencoder: Autoencoder) -> tuple[str, dict[str, Any], dict[str, Tensor]]:
    """Architecture, its settings, and its tensors besides the two weights and b_dec."""
    if isinstance(autoencoder, ReluSparseAutoencoder):
        return "standard", {}, {"b_enc": autoencoder.encoder_bias}
    if isinstance(autoencoder, GatedSparseAutoencoder):
        own = {"b_gate": autoencoder.encoder_bias, "b_mag": autoencoder.magnitude_bias}
        return "gated", {}, {**own, "r_mag": autoencoder.log_scale}
    if isinstance(autoencoder, JumpReluSparseAutoencoder):
        return "jumprelu", {}, {"b_enc": autoencoder.encoder_bias, "threshold": autoencoder.threshold}
    if isinstance(autoencoder, BatchTopKSparseAutoencoder):
        # z >= t here, z > threshold there: the number below t. At t = 0 both say z > 0.
        below = torch.nextafter(autoencoder.threshold, autoencoder.threshold.new_tensor(-torch.inf))
        threshold = below.clamp(min=0).expand_as(autoencoder.encoder_bias)
        return "jumprelu", {}, {"b_enc": autoencoder.encoder_bias, "threshold": threshold}
    if isinstance(autoencoder, TopKSparseAutoencoder):
        settings = {"k": autoencoder.k, "rescale_acts_by_decoder_norm": False}
        return "topk", settings, {"b_enc": autoencoder.encoder_bias}
    if isinstance(autoencoder, GroupBiasAdaptedAutoencoder):
        # A feature passes z = w.(x - b_d) where z > -b: the bias is a threshold and adds nothing.
        none = torch.zeros_like(autoencoder.encoder_bias)
        return "jumprelu", {}, {"b_enc": none, "threshold": -autoencoder.encoder_bias}
    raise ValueError(
        f"a {autoencoder.kind!r} autoencoder cannot be written in SAELens' format, which has one encoder layer "
        "for one site and ReLU, TopK, JumpReLU or gated features; use course_lib.sae.save for it"
    )


@torch.no_grad()
def load(directory: Path | str, *, device: torch.device | str = "cpu") -> SparseAutoencoder:
    """Read a directory that SAELens' `save_model` (or `export`) wrote.

    "standard" becomes ReLU, "gated" gated, "topk" TopK and "jumprelu" JumpReLU. Weights that expect b_dec not to be
    taken off the input, and TopK weights chosen by decoder norms, are folded so that features stay the same.

    Raises FileNotFoundError where a file is missing, and ValueError for another architecture, activations
    normalised or reshaped at run time, or files that cannot be read or do not fit each other.
    """
    directory = Path(directory)
    for name in (CONFIG, WEIGHTS):
        if not (directory / name).is_file():
            raise FileNotFoundError(f"{directory / name} is missing; expected a directory in SAELens' format")
    try:
        config = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
        tensors = load_file(directory / WEIGHTS)
        return _built(config, tensors).to(device)
    except (
        json.JSONDecodeError,
        SafetensorError,
        AttributeError,
        KeyError,
        RuntimeError,
        TypeError,
    ) as error:
        raise ValueError(f"{directory} does not hold a sparse autoencoder of SAELens: {error}") from error


def _built(config: dict[str, Any], tensors: dict[str, Tensor]) -> SparseAutoencoder:
    for key, expected in (("normalize_activations", "none"), ("reshape_activations", "none")):
        if config.get(key, expected) != expected:
            raise ValueError(
                f"{key} is {config[key]!r}; only {expected!r} can be read: fold it into the weights first"
            )
    sizes = {"d_model": config["d_in"], "n_features": config["d_sae"]}
    architecture = config["architecture"]
    w_enc, w_dec, b_dec = (tensors[name] for name in ("W_enc", "W_dec", "b_dec"))
    b_enc, b_mag = tensors["b_gate" if architecture == "gated" else "b_enc"], tensors.get("b_mag")
    if architecture == "standard":
        made = ReluSparseAutoencoder(**sizes)
    elif architecture == "topk":
        made = TopKSparseAutoencoder(**sizes, k=config["k"])
        if config.get("rescale_acts_by_decoder_norm"):
            norms = w_dec.norm(dim=1)
            w_enc, b_enc, w_dec = w_enc * norms, b_enc * norms, w_dec / norms[:, None]
    elif architecture == "jumprelu":
        made = JumpReluSparseAutoencoder(**sizes)
    elif architecture == "gated":
        made = GatedSparseAutoencoder(**sizes)
    else:
        raise ValueError(
            f"architecture is {architecture!r}; only 'standard', 'topk', 'jumprelu' and 'gated' can be read"
        )
    if not config.get("apply_b_dec_to_input", True):
        b_enc = b_enc + b_dec @ w_enc
        if architecture == "gated":
            b_mag = b_mag + tensors["r_mag"].exp() * (b_dec @ w_enc)
    made = made.to(w_enc.dtype)
    state = made.state_dict() | {
        "encoder_weight": w_enc.T,
        "encoder_bias": b_enc,
        "decoder_weight": w_dec.T,
        "decoder_bias": b_dec,
    }
    if architecture == "jumprelu":
        # Their ReLU silences what a negative threshold would pass.
        state["log_threshold"] = tensors["threshold"].clamp(min=0).log()
    if architecture == "gated":
        state |= {"log_scale": tensors["r_mag"], "magnitude_bias": b_mag}
    made.load_state_dict(state)
    return made
