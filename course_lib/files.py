"""Files and directories that appear whole or not at all, and locks that end with their process.

What is written goes under another name beside its place, is flushed to the disk, and is renamed: a
process that is killed at any moment leaves what was there before, and at most a file or a directory whose name
ends in `.partial`. The next one that makes the same removes what dead processes left of it.
"""

import glob
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

SUMS = "SHA256SUMS"


@contextmanager
def replacing(path: Path | str) -> Iterator[BinaryIO]:
    """Give a file to write to, which takes the place of `path` when the block ends without an error.

    It survives a power failure: the bytes are on the disk before the name is. After an error `path` is as it was; an
    OSError that names no file names `path`.
    """
    path = Path(path)
    try:
        _remove_what_the_dead_left(path)
        with _held(path, lambda partial: partial.open("xb").close()) as partial:
            try:
                with partial.open("wb") as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
        _flush(path.parent)
    except OSError as error:
        _name(error, path)
        raise


def _name(error: OSError, path: Path) -> None:
    """Let an error that names no file, as that of a full disk, name what was being written."""
    if error.errno is not None and error.filename is None:
        error.filename = str(path)
    elif error.errno is None and type(error) is OSError:  # numpy's, which only counts bytes
        error.args = (f"{path} cannot be written: {error}",)


def _flush(path: Path) -> None:
    """Bring a file, or a directory's list of names, to the disk."""
    if os.name != "posix" and path.is_dir():
        return  # there a directory cannot be opened, nor need it be flushed
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_partials(directory: Path) -> None:
    """Remove what killed processes left behind; only for the one that holds the directory."""
    for path in directory.glob(".*.partial"):
        if not path.is_dir():
            path.unlink(missing_ok=True)  # another rank may be doing the same


@contextmanager
def new_directory(path: Path | str) -> Iterator[Path]:
    """Give a temporary directory beside `path` that becomes `path` when the block ends without an error.

    It survives a power failure: every file in it is on the disk before the name is. On any error or interrupt in
    the block it is removed: `path` is there whole or not at all, and an OSError that names no file names `path`. Where
    `path` is a link, what it points to is made.

    Raises FileExistsError where `path` already holds something. Where something took its place in the meantime,
    what was made is kept beside it, and the error names it.
    """
    path = Path(os.path.realpath(path))
    check_free(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_what_the_dead_left(path)
    with _held(path, Path.mkdir) as partial:
        try:
            yield partial
            for entry in partial.rglob("*"):
                _flush(entry)
            _flush(partial)
        except BaseException as error:
            shutil.rmtree(partial, ignore_errors=True)
            if isinstance(error, OSError):
                _name(error, path)
            raise
        try:
            if path.is_dir():
                path.rmdir()  # empty, as checked above; not every system renames onto a directory
            partial.replace(path)
        except OSError as error:
            kept = path.with_name(partial.stem.removeprefix("."))
            partial.replace(kept)
            raise FileExistsError(
                f"{path} was taken while it was being made ({error.strerror}); what was made is whole, in {kept}"
            ) from error
        _flush(path.parent)


@contextmanager
def _held(path: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Make something new beside `path`, locked as long as this process lives where the system can do so.

    It has a name of its own, so that a process that outlives its run cannot mix its bytes with ours.
    """
    while True:
        partial = path.with_name(f".{path.name}-{secrets.token_hex(4)}.partial")
        make(partial)
        if fcntl is None:
            yield partial
            return
        handle = os.open(partial, os.O_RDONLY)
        try:
            with suppress(OSError):  # a file system without locks: nobody will take it for a dead one's
                fcntl.flock(handle, fcntl.LOCK_EX)
            if partial.exists():  # else another process came in between and took it for a dead one's
                yield partial
                return
        finally:
            os.close(handle)


def _remove_what_the_dead_left(path: Path) -> None:
    """Remove what was begun in the place of `path` and no living process holds; without locks it all stays."""
    for left in path.parent.glob(f".{glob.escape(path.name)}-????????.partial"):
        if fcntl is None:
            continue
        with suppress(OSError):  # held, gone already, or another user's
            handle = os.open(left, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            finally:
                os.close(handle)


def write_sums(directory: Path) -> None:
    """Write SHA256SUMS: the digests of the directory's files, its README apart, as `sha256sum --check` reads them."""
    names = sorted(p.name for p in directory.iterdir() if p.is_file() and p.name not in (SUMS, "README.md"))
    rows = [f"{_digest(directory / name)}  {name}\n" for name in names]
    (directory / SUMS).write_bytes("".join(rows).encode())


def check_sums(directory: Path) -> None:
    """Raise ValueError, which names the file, where one is not as SHA256SUMS says, and OSError where one is not there."""
    rows = (directory / SUMS).read_bytes().decode(errors="replace").splitlines()
    if not rows:
        raise ValueError(f"{directory / SUMS} is damaged: it is empty")
    listed = set()
    for row in rows:
        digest, _, name = row.partition("  ")
        if not name or "\0" in name or digest != _digest(directory / name):
            raise ValueError(
                f"{directory / (name or SUMS)} is damaged: it has another SHA-256 than in {SUMS}"
            )
        listed.add(name)
    # A list that was cut off between two rows leaves files unchecked.
    for name in sorted(p.name for p in directory.iterdir() if p.is_file()):
        if name not in listed and name not in (SUMS, "README.md") and not name.startswith("."):
            raise ValueError(f"{directory / name} is not in {SUMS}, which may have been cut off")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_utf8(path: Path) -> None:
    """Raise ValueError for a path that is not UTF-8, whose files safetensors does not open."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 at character {error.start + 1}, and files of tensors are opened by UTF-8 names; give "
            "it another name"
        ) from None


def check_free(path: Path) -> None:
    """Raise FileExistsError unless `path` does not exist or is an empty directory."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"{path} already holds something; choose another directory or remove it")


@contextmanager
def locked(path: Path, *, busy: Exception, wait: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path`, whose directory is made; the system takes the lock back from a process that dies.

    Raises `busy` where another process still holds it after `wait` seconds, and OSError where the file cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path, timeout=wait)
    try:
        lock.acquire()
    except Timeout:
        raise busy from None
    try:
        yield
    finally:
        lock.release()
