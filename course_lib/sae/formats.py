"""Sparse autoencoders in any format that is known here, told apart by the files of a directory.

    model.safetensors, config.json      this library         `course_lib.sae.load`
    sae_weights.safetensors, cfg.json   SAELens              `course_lib.sae.sae_lens_format.load`
    ae.pt, config.json                  dictionary_learning  AutoEncoder, AutoEncoderNew, AutoEncoderTopK, BatchTopKSAE
    sae.safetensors, cfg.json           sparsify             TopK

None of these libraries is needed. ae.pt is a pickle; of it nothing but tensors and numbers is read.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from course_lib.sae import autoencoder, sae_lens_format
from course_lib.sae.autoencoder import Autoencoder
from course_lib.sae.batches import RowSource
from course_lib.sae.sparse import (
    BatchTopKSparseAutoencoder,
    ReluSparseAutoencoder,
    SparseAutoencoder,
    TopKSparseAutoencoder,
)


def load(directory: Path | str, *, device: torch.device | str = "cpu") -> Autoencoder:
    """Read the autoencoder of a directory, in whichever of the formats above it is.

    Those of dictionary_learning and sparsify read states as they are: their mean stays 0 and their scale 1. Features
    and reconstructions are the same as there, of BatchTopKSAE those of its threshold.

    Raises FileNotFoundError where no format has the files of `directory`, and ValueError, which names the file, where
    one cannot be read, does not fit the other, or describes what this library has no class for.
    """
    directory = Path(directory)
    for weights, config, read in _FORMATS:
        if (directory / weights).is_file() and (directory / config).is_file():
            return read(directory).to(device)
    known = ", ".join(f"{weights} with {config}" for weights, config, _ in _FORMATS)
    raise FileNotFoundError(f"{directory} holds no autoencoder; expected a directory with one of: {known}")


@torch.no_grad()
def fit_to_states(autoencoder: SparseAutoencoder, states: RowSource) -> None:
    """Fit the mean and scale of an autoencoder that `load` read to states, in place, and leave what it computes as it is.

    Lengths of what features add are then shares of the root mean square length of these states, centred. One whose
    mean or scale was fitted before is left as it is. Raises ValueError for states without variance.
    """
    if autoencoder.input_scale != 1 or autoencoder.input_mean.any():
        return
    autoencoder.fit_normalisation(states)
    mean, scale = autoencoder.input_mean, autoencoder.input_scale
    autoencoder.encoder_weight.mul_(scale)
    autoencoder.decoder_weight.div_(scale)
    autoencoder.decoder_bias.sub_(mean).div_(scale)


def _of_dictionary_learning(directory: Path) -> SparseAutoencoder:
    path = directory / "config.json"
    trainer = _described(path).get("trainer")
    if not isinstance(trainer, dict):
        raise ValueError(f"{path} has no object 'trainer'; expected a file that dictionary_learning wrote")
    kind = trainer.get("dict_class")
    if kind not in _DICTIONARIES:
        raise ValueError(f"{path} has dict_class {kind!r}; only {', '.join(_DICTIONARIES)} can be read")
    path = directory / "ae.pt"
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle raises whatever its bytes lead to
        raise ValueError(f"{path} cannot be read as a file of tensors: {error}") from error
    if not isinstance(tensors, dict):
        raise ValueError(f"{path} holds a {type(tensors).__name__}; expected tensors by name")
    sizes = {
        name: trainer.get(key) for name, key in (("d_model", "activation_dim"), ("n_features", "dict_size"))
    }
    return _filled(path, sizes, lambda: _DICTIONARIES[kind](tensors, trainer))


def _relu(t: dict[str, Tensor], trainer: dict[str, Any]) -> tuple[SparseAutoencoder, dict[str, Tensor]]:
    return ReluSparseAutoencoder(*_sizes(t)), _weights(t, t["bias"])


def _relu_of_raw_states(
    t: dict[str, Tensor], trainer: dict[str, Any]
) -> tuple[SparseAutoencoder, dict[str, Tensor]]:
    weights = _weights(t, t["decoder.bias"])
    # It does not take the decoder's bias off its input: W_e x + b_e = W_e (x - b_d) + (b_e + W_e b_d).
    weights["encoder_bias"] = t["encoder.bias"] + t["encoder.weight"] @ t["decoder.bias"]
    return ReluSparseAutoencoder(*_sizes(t)), weights


def _topk(t: dict[str, Tensor], trainer: dict[str, Any]) -> tuple[SparseAutoencoder, dict[str, Tensor]]:
    k = int(t.get("k", trainer.get("k", 0)))
    return TopKSparseAutoencoder(*_sizes(t), k=k), _weights(t, t["b_dec"])


def _batch_topk(t: dict[str, Tensor], trainer: dict[str, Any]) -> tuple[SparseAutoencoder, dict[str, Tensor]]:
    made = BatchTopKSparseAutoencoder(*_sizes(t), k=int(t.get("k", trainer.get("k", 0))))
    # z > threshold there, z >= threshold here: the number above it. Below 0 (not set) it is a ReLU.
    threshold = t["threshold"].to(t["encoder.weight"])
    above = torch.nextafter(threshold, threshold.new_tensor(torch.inf))
    return made, _weights(t, t["b_dec"]) | {"threshold": torch.where(threshold < 0, 0, above)}


_DICTIONARIES: dict[str, Callable[..., tuple[SparseAutoencoder, dict[str, Tensor]]]] = {
    "AutoEncoder": _relu,
    "AutoEncoderNew": _relu_of_raw_states,
    "AutoEncoderTopK": _topk,
    "BatchTopKSAE": _batch_topk,
}


def _of_sparsify(directory: Path) -> SparseAutoencoder:
    path = directory / "cfg.json"
    config = _described(path)
    for key, expected in (
        ("activation", "topk"),
        ("signed", False),
        ("transcode", False),
        ("skip_connection", False),
    ):
        if config.get(key, expected) != expected:
            raise ValueError(f"{path} has {key} {config[key]!r}; only {expected!r} can be read")
    path = directory / "sae.safetensors"
    try:
        t = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} cannot be read as a file of tensors: {error}") from error

    def made() -> tuple[SparseAutoencoder, dict[str, Tensor]]:
        weights = _weights(t | {"decoder.weight": t["W_dec"].T}, t["b_dec"])
        return TopKSparseAutoencoder(*_sizes(t), k=config["k"]), weights

    return _filled(
        path, {"d_model": config.get("d_in"), "n_features": config.get("num_latents") or None}, made
    )


def _described(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON in UTF-8: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds a {type(found).__name__}; expected an object")
    return found


def _sizes(t: dict[str, Tensor]) -> tuple[int, int]:
    """Width of states and number of features."""
    n_features, d_model = t["encoder.weight"].shape
    return d_model, n_features


def _weights(t: dict[str, Tensor], decoder_bias: Tensor) -> dict[str, Tensor]:
    return {
        "encoder_weight": t["encoder.weight"],
        "encoder_bias": t["encoder.bias"],
        "decoder_weight": t["decoder.weight"],
        "decoder_bias": decoder_bias,
    }


def _filled(
    path: Path,
    sizes: dict[str, int | None],
    make: Callable[[], tuple[SparseAutoencoder, dict[str, Tensor]]],
) -> SparseAutoencoder:
    """What `make` makes, with its weights, where it has the sizes that are known."""
    try:
        made, weights = make()
        for name, size in sizes.items():
            if size is not None and size != getattr(made, name):
                raise ValueError(
                    f"{name} is {getattr(made, name)} there and {size} in the configuration beside it"
                )
        made = made.to(weights["encoder_weight"].dtype)
        made.load_state_dict(made.state_dict() | weights)
    except KeyError as error:
        raise ValueError(f"{path} does not fit the configuration beside it: {error} is missing") from error
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{path} does not fit the configuration beside it: {error}") from error
    return made


_FORMATS: tuple[tuple[str, str, Callable[[Path], Autoencoder]], ...] = (
    ("model.safetensors", "config.json", autoencoder.load),
    (sae_lens_format.WEIGHTS, sae_lens_format.CONFIG, sae_lens_format.load),
    ("ae.pt", "config.json", _of_dictionary_learning),
    ("sae.safetensors", "cfg.json", _of_sparsify),
)
