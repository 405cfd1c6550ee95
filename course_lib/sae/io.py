"""Autoencoders on disk: a directory with model.safetensors, and config.json, which holds the digest of both."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from course_lib.files import new_directory

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
_FORMER = {"sparse": "relu"}  # names of kinds in files from before there were several

T = TypeVar("T", bound=nn.Module)


class Stored(Protocol):
    """What is written of an autoencoder."""

    kind: str

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""

    def state_dict(self) -> dict[str, Tensor]:
        """Weights and normalisation."""


def save(autoencoder: Stored, directory: Path | str) -> None:
    """Write weights, normalisation and configuration to a new directory, whole or not at all.

    Raises FileExistsError where the directory already holds something.
    """
    tensors = {name: value.detach().cpu().contiguous() for name, value in autoencoder.state_dict().items()}
    with new_directory(directory) as partial:
        write_files(partial, tensors, autoencoder)


def write_files(directory: Path, tensors: dict[str, Tensor], autoencoder: Stored) -> None:
    """Write the two files of an autoencoder, whose weights are `tensors`, to a directory."""
    weights = to_bytes(tensors)
    description = {"format": FORMAT, "kind": autoencoder.kind, "config": autoencoder.config()}
    description["sha256"] = _digest(description, weights)
    # save_file would make the file readable by its owner alone.
    (directory / WEIGHTS).write_bytes(weights)
    (directory / CONFIG).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def read(directory: Path | str, kinds: Mapping[str, type[T]], *, device: torch.device | str = "cpu") -> T:
    """Read an autoencoder that `save` wrote, of one of these kinds.

    Raises FileNotFoundError where a file is missing, ValueError where one cannot be read, is not as it was written
    (files from before version 0.2 hold no digest to tell), or where the two do not belong together.
    """
    directory = Path(directory)
    for name in (CONFIG, WEIGHTS):
        if not (directory / name).is_file():
            raise FileNotFoundError(f"{directory / name} is missing; expected a directory written by save()")
    weights = (directory / WEIGHTS).read_bytes()
    try:
        description = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
        if description.get("sha256", digest := _digest(description, weights)) != digest:
            raise ValueError(
                "it and model.safetensors have another SHA-256 than when they were written; make them again"
            )
        kind = _FORMER.get(description["kind"], description["kind"])
        if kind not in kinds:
            raise ValueError(f"its kind is {kind!r}; expected {', '.join(sorted(kinds))}")
        autoencoder = kinds[kind](**description["config"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{directory / CONFIG} does not describe an autoencoder: {error}") from error
    try:
        tensors = from_bytes(weights)
        dtype = tensors["input_mean"].dtype
        autoencoder.to(dtype).load_state_dict(tensors)
    except (SafetensorError, KeyError, RuntimeError) as error:
        raise ValueError(
            f"{directory / WEIGHTS} does not hold the weights that config.json describes: {error}"
        ) from error
    return autoencoder.to(device)


def _digest(description: dict[str, Any], weights: bytes) -> str:
    """SHA-256 of all that is written, in hexadecimal digits."""
    told = {name: value for name, value in description.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode() + weights).hexdigest()
