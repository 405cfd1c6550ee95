"""Autoencoders on disk: a directory with model.safetensors, and config.json, which holds the digest of both."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from course_lib.files import new_directory
from course_lib.sae.autoencoder import Autoencoder
from course_lib.sae.sparse import (
    BatchTopKSparseAutoencoder,
    CrosscoderSparseAutoencoder,
    GatedSparseAutoencoder,
    GroupBiasAdaptedAutoencoder,
    JumpReluSparseAutoencoder,
    KLSparseAutoencoder,
    MatryoshkaBatchTopKSparseAutoencoder,
    MatryoshkaTopKSparseAutoencoder,
    ReluSparseAutoencoder,
    TopKSparseAutoencoder,
)
from course_lib.sae.stacked import StackedAutoencoder

FORMAT = 1

KINDS: dict[str, type[Autoencoder]] = {
    cls.kind: cls
    for cls in (
        StackedAutoencoder,
        ReluSparseAutoencoder,
        KLSparseAutoencoder,
        TopKSparseAutoencoder,
        BatchTopKSparseAutoencoder,
        JumpReluSparseAutoencoder,
        GroupBiasAdaptedAutoencoder,
        GatedSparseAutoencoder,
        MatryoshkaTopKSparseAutoencoder,
        MatryoshkaBatchTopKSparseAutoencoder,
        CrosscoderSparseAutoencoder,
    )
}
KINDS["sparse"] = ReluSparseAutoencoder  # its name in files written when it was the only one


def save(autoencoder: Autoencoder, directory: Path | str) -> None:
    """Write weights, normalisation and configuration to a new directory, whole or not at all.

    Raises FileExistsError where the directory already holds something.
    """
    tensors = {name: value.detach().cpu().contiguous() for name, value in autoencoder.state_dict().items()}
    with new_directory(directory) as partial:
        write_files(partial, tensors, autoencoder)


def write_files(directory: Path, tensors: dict[str, Tensor], autoencoder: Autoencoder) -> None:
    """Write the two files of an autoencoder, whose weights are `tensors`, to a directory."""
    weights = to_bytes(tensors)
    description = {"format": FORMAT, "kind": autoencoder.kind, "config": autoencoder.config()}
    description["sha256"] = _digest(description, weights)
    # save_file would make the file readable by its owner alone.
    (directory / "model.safetensors").write_bytes(weights)
    (directory / "config.json").write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def load(directory: Path | str, *, device: torch.device | str = "cpu") -> Autoencoder:
    """Read an autoencoder that `save` wrote.

    Raises FileNotFoundError where a file is missing, ValueError where one cannot be read, is not as it was written
    (files from before version 0.2 hold no digest to tell), or where the two do not belong together.
    """
    directory = Path(directory)
    for name in ("config.json", "model.safetensors"):
        if not (directory / name).is_file():
            raise FileNotFoundError(f"{directory / name} is missing; expected a directory written by save()")
    weights = (directory / "model.safetensors").read_bytes()
    try:
        description = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        if description.get("sha256", digest := _digest(description, weights)) != digest:
            raise ValueError(
                "it and model.safetensors have another SHA-256 than when they were written; make them again"
            )
        autoencoder = KINDS[description["kind"]](**description["config"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{directory / 'config.json'} does not describe an autoencoder: {error}") from error
    try:
        tensors = from_bytes(weights)
        dtype = tensors["input_mean"].dtype
        autoencoder.to(dtype).load_state_dict(tensors)
    except (SafetensorError, KeyError, RuntimeError) as error:
        raise ValueError(
            f"{directory / 'model.safetensors'} does not hold the weights that config.json describes: {error}"
        ) from error
    return autoencoder.to(device)


def _digest(description: dict[str, Any], weights: bytes) -> str:
    """SHA-256 of all that is written, in hexadecimal digits."""
    told = {name: value for name, value in description.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode() + weights).hexdigest()
