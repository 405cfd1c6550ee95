"""Files and directories that appear whole or not at all, and locks that end with their process.

What is written goes under another name beside its place, is flushed to the disk, and is renamed: a
process that is killed at any moment leaves what was there before, and at most a file that ends in `.partial`.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout


@contextmanager
def replacing(path: Path | str) -> Iterator[BinaryIO]:
    """Give a file to write to, which takes the place of `path` when the block ends without an error.

    It survives a power failure: the bytes are on the disk before the name is. After an error `path` is as it was.
    """
    path = Path(path)
    # A name of its own, so that a process that outlives its run cannot mix its bytes with ours.
    partial = path.with_name(f".{path.name}-{secrets.token_hex(4)}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        if os.name == "posix":  # elsewhere a directory cannot be opened, nor need it be flushed
            directory = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
    finally:
        partial.unlink(missing_ok=True)


def remove_partials(directory: Path) -> None:
    """Remove what killed processes left behind; only for the one that holds the directory."""
    for path in directory.glob(".*.partial"):
        path.unlink(missing_ok=True)  # another rank may be doing the same


@contextmanager
def new_directory(path: Path | str) -> Iterator[Path]:
    """Give a temporary directory beside `path` that becomes `path` when the block ends without an error.

    On any error or interrupt it is removed: `path` is there whole or not at all.

    Raises FileExistsError where `path` already holds something.
    """
    path = Path(path).absolute()
    check_free(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial-{secrets.token_hex(4)}")
    partial.mkdir()
    try:
        yield partial
        if path.exists():
            path.rmdir()  # empty, as checked above; not every system renames onto a directory
        partial.replace(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def check_free(path: Path) -> None:
    """Raise FileExistsError unless `path` does not exist or is an empty directory."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"{path} already holds something; choose another directory or remove it")


@contextmanager
def locked(path: Path, *, busy: Exception) -> Iterator[None]:
    """Hold the lock file `path`, whose directory is made; the system takes the lock back from a process that dies.

    Raises `busy` where another process holds it, and OSError where the file cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise busy from None
    try:
        yield
    finally:
        lock.release()
