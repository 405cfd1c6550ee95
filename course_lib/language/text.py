"""Lines of text as all commands read them: `sentence` or `language<TAB>sentence`."""

import gzip
import sys
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

TABLES = {".jsonl": "json", ".parquet": "parquet", ".csv": "csv"}
"""Endings of files that hold a table instead of lines, and what `datasets` calls their kind."""
STDIN = "-"
"""In place of a path: lines from the standard input."""


@contextmanager
def open_text(path: Path | str) -> Iterator[BinaryIO]:
    """The bytes of a text: a file, unpacked where it ends in .gz, or, for "-", the standard input.

    Raises ValueError, which names the file, inside the block where a .gz file is damaged or none.
    """
    if str(path) == STDIN:
        yield sys.stdin.buffer
        return
    with (gzip.open if Path(path).suffix == ".gz" else open)(path, "rb") as file:
        try:
            yield file
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path} cannot be unpacked: {error}") from error


def read_fields(path: Path | str) -> Iterator[tuple[int, list[str]]]:
    """Number, counted from 1, and tab-separated fields of each line of a UTF-8 text that says something.

    `path` is a file, which may end in .gz, or "-" for the standard input.

    Fields are stripped. Blank lines are skipped, and lines that name a language and say nothing. A byte
    order mark and Windows line ends are accepted. Raises ValueError, with the line, for bytes that are not
    UTF-8, for a .gz file that is damaged, and for one that holds a table.
    """
    if Path(path).suffix == ".gz" and Path(Path(path).stem).suffix in TABLES:
        raise ValueError(f"{path} is a packed table; expected lines of text")
    with open_text(path) as file:
        for number, raw in enumerate(file, start=1):
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}, line {number}: byte {raw[error.start]:#04x} is not UTF-8; save the file as UTF-8"
                ) from error
            fields = [field.strip() for field in line.split("\t")]
            if any(fields[1:] or fields):
                yield number, fields


def full_codes(known: Collection[str]) -> dict[str, str]:
    """The codes themselves, and "en" for "en_XX" where one code alone begins so.

    Codes of other forms have no short one: NLLB-200's "est_Latn" is Estonian, and "es" is not.
    """
    short = Counter(code[:2] for code in known if code[2:3] == "_")
    return {code[:2]: code for code in known if short[code[:2]] == 1 and code[2:3] == "_"} | {
        code: code for code in known
    }
