"""Autoencoders on disk: a directory with model.safetensors and config.json."""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes

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
    description = {"format": FORMAT, "kind": autoencoder.kind, "config": autoencoder.config()}
    with new_directory(directory) as partial:
        # save_file would make the file readable by its owner alone.
        (partial / "model.safetensors").write_bytes(to_bytes(tensors))
        (partial / "config.json").write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def load(directory: Path | str, *, device: torch.device | str = "cpu") -> Autoencoder:
    """Read an autoencoder that `save` wrote.

    Raises FileNotFoundError where a file is missing, ValueError where one cannot be read or the two do
    not belong together.
    """
    directory = Path(directory)
    for name in ("config.json", "model.safetensors"):
        if not (directory / name).is_file():
            raise FileNotFoundError(f"{directory / name} is missing; expected a directory written by save()")
    try:
        description = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        autoencoder = KINDS[description["kind"]](**description["config"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{directory / 'config.json'} does not describe an autoencoder: {error}") from error
    try:
        tensors = load_file(directory / "model.safetensors")
        dtype = tensors["input_mean"].dtype
        autoencoder.to(dtype).load_state_dict(tensors)
    except (SafetensorError, KeyError, RuntimeError) as error:
        raise ValueError(
            f"{directory / 'model.safetensors'} does not hold the weights that config.json describes: {error}"
        ) from error
    return autoencoder.to(device)
