"""Checkpoints of a training run: written whole or not at all, checked when read, one run to a directory.

One file holds everything, `step-00000400.safetensors`: tensors, and in its header a description in JSON
and a checksum over both. The last two are kept.
"""

import hashlib
import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from course_lib import files

KEPT = 2


def only_run(directory: Path) -> AbstractContextManager[None]:
    """Hold the directory for this process while a block runs; the hold ends with the process, however it ends.

    Raises RuntimeError where another process holds it, and ValueError where its name is not UTF-8.
    """
    files.check_utf8(directory.absolute())
    busy = f"another process trains in {directory}; wait for it, stop it, or name another checkpoint_dir"
    return files.locked(directory / "lock", busy=RuntimeError(busy))


def write(directory: Path, step: int, tensors: dict[str, Tensor], description: dict[str, Any]) -> Path:
    """Write the checkpoint of a step and drop those that are no longer kept.

    Raises RuntimeError where a tensor is not finite, and OSError where the disk is full; the checkpoints
    before it stay as they are.
    """
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    bad = [name for name, value in tensors.items() if not _finite(value)]
    if bad:
        raise RuntimeError(
            f"{bad[0]} is not finite after step {step}; lower step_size and train again. "
            f"{_last_good(directory)}"
        )
    text = json.dumps(description)
    # One entry: safetensors writes several in an order of its own, and equal checkpoints would differ in bytes.
    header = {"checkpoint": json.dumps({"description": text, "sha256": _digest(tensors, text)})}
    path = directory / f"step-{step:08d}.safetensors"
    try:
        with files.replacing(path) as file:
            file.write(to_bytes(tensors, header))
    except OSError as error:
        raise OSError(
            error.errno,
            f"the checkpoint of step {step} ({sum(t.nbytes for t in tensors.values()) / 1e6:.0f} MB) could not be "
            f"written to {directory}: {error.strerror}. {_last_good(directory)} Make room, then call again to go on",
        ) from error
    for old in _all(directory)[:-KEPT]:
        old.unlink()
    return path


def latest(directory: Path) -> tuple[dict[str, Tensor], dict[str, Any], Path] | None:
    """Tensors, description and path of the newest checkpoint, or None where there is none.

    Raises ValueError for a file that is not what was written.
    """
    files.remove_partials(directory)
    found = _all(directory)
    if not found:
        return None
    for old in found[:-KEPT]:  # left by a process that was killed between writing one and removing another
        old.unlink(missing_ok=True)
    path = found[-1]
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["checkpoint"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        if _digest(tensors, header["description"]) != header["sha256"]:
            raise ValueError("its checksum differs from the one it was written with")
        return tensors, json.loads(header["description"]), path
    except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
        before = f"continue from {found[-2].name}" if len(found) > 1 else "begin anew"
        raise ValueError(f"{path} is damaged: {error}; remove it to {before}") from error


def _all(directory: Path) -> list[Path]:
    return sorted(directory.glob("step-*.safetensors"))


def _last_good(directory: Path) -> str:
    found = _all(directory)
    return f"The last checkpoint is {found[-1]}." if found else "There is no checkpoint before it."


def _finite(value: Tensor) -> bool:
    return not value.is_floating_point() or bool(value.isfinite().all())


def _digest(tensors: dict[str, Tensor], text: str) -> str:
    found = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        found.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        found.update(tensors[name].flatten().view(torch.uint8).numpy())
    return found.hexdigest()
