"""Checkpoints of a training run: written whole or not at all, checked when read, one run to a directory.

One file holds everything, `step-00000400.safetensors`: tensors, and in its header a description in JSON
and a checksum over both. The last two are kept.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

KEPT = 2


@contextmanager
def only_run(directory: Path) -> Iterator[None]:
    """Hold the directory for this process; the hold ends with the process, however it ends.

    Raises RuntimeError where another process holds it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    handle = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _lock(handle):
            raise RuntimeError(
                f"another process trains in {directory}; wait for it, stop it, or name another checkpoint_dir"
            )
        yield
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    """Lock an open file without waiting. The system drops the lock when the process ends."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
    header = {"description": text, "sha256": _digest(tensors, text)}
    path = directory / f"step-{step:08d}.safetensors"
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(to_bytes(tensors, header))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
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
    for leftover in directory.glob(".step-*.partial"):
        leftover.unlink()
    files = _all(directory)
    if not files:
        return None
    path = files[-1]
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        if _digest(tensors, header["description"]) != header["sha256"]:
            raise ValueError("its checksum differs from the one it was written with")
        return tensors, json.loads(header["description"]), path
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        before = f"continue from {files[-2].name}" if len(files) > 1 else "begin anew"
        raise ValueError(f"{path} is damaged: {error}; remove it to {before}") from error


def _all(directory: Path) -> list[Path]:
    return sorted(directory.glob("step-*.safetensors"))


def _last_good(directory: Path) -> str:
    files = _all(directory)
    return f"The last checkpoint is {files[-1]}." if files else "There is no checkpoint before it."


def _finite(value: Tensor) -> bool:
    return not value.is_floating_point() or bool(value.isfinite().all())


def _digest(tensors: dict[str, Tensor], text: str) -> str:
    found = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        found.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        found.update(tensors[name].flatten().view(torch.uint8).numpy())
    return found.hexdigest()
