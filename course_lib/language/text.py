"""Text as all commands read it: lines of `sentence` or `language<TAB>sentence`, and tables of parallel text."""

import csv
import gzip
import io
import sys
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    return ((number, fields) for number, fields in _fields_of_lines(path) if any(fields[1:] or fields))


def _fields_of_lines(path: Path | str) -> Iterator[tuple[int, list[str]]]:
    """`read_fields` with the lines that name a language and say nothing."""
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
            if any(fields):
                yield number, fields


SPLITS = ("train", "test")
"""What the column `split` of a table of parallel text may hold; rows of test are held out."""
NO_LANGUAGES = ("page", "id", "split")
"""Columns of a table of parallel text that are never a language; Indonesian is id_ID there."""


@dataclass(frozen=True)
class ParallelTable:
    """A table of parallel text: the names of its columns, and its rows as they were read, with their lines in the file.

    `rows` are pairs of a line's number, counted from 1, and its fields, one for each name.
    """

    path: Path
    names: list[str]
    rows: list[tuple[int, list[str]]]

    def languages(self, known: Collection[str]) -> dict[str, int]:
        """The columns whose names are codes of `known`, or short for one ("en"): full code and place, in their order.

        Raises ValueError where two columns are of one language.
        """
        full, columns = full_codes(known), {}
        for place, name in enumerate(self.names):
            code = None if name in NO_LANGUAGES else full.get(name)
            if code in columns:
                raise ValueError(
                    f"{self.path} has two columns of {code}, {self.names[columns[code]]} and {name}; expected one"
                )
            if code is not None:
                columns[code] = place
        return columns

    def held_out(self) -> list[bool] | None:
        """Which rows the column `split` holds out; None where there is no such column.

        Raises ValueError, with the line, for a row that is neither of train nor of test.
        """
        if "split" not in self.names:
            return None
        place, found = self.names.index("split"), []
        for number, fields in self.rows:
            if fields[place] not in SPLITS:
                raise ValueError(
                    f"{self.path}, line {number}: split is {fields[place]!r}; expected train or test"
                )
            found.append(fields[place] == "test")
        return found


def read_parallel_table(path: Path | str) -> ParallelTable:
    """Read a UTF-8 table whose first line names its columns, separated by tabs, or by commas where it ends in .csv.

    Fields are stripped, and blank lines skipped. Fields of a .csv may stand in double quotes and hold ends of lines;
    between tabs a quote is a sign like others. What the columns hold is for the caller to say
    (`ParallelTable.languages`, `held_out`).

    Raises ValueError, with the line, for bytes that are not UTF-8, for a row with another number of fields than names,
    for a name that stands twice, and for a .csv whose quotes do not end.
    """
    path = Path(path)
    lines = _csv_fields(path) if path.suffix == ".csv" else _fields_of_lines(path)
    _, names = next(lines, (0, []))
    if len(set(names)) < len(names):
        raise ValueError(f"{path} begins with {names}; expected different names of columns")
    rows = []
    for number, fields in lines:
        if len(fields) != len(names):
            raise ValueError(f"{path}, line {number} has {len(fields)} columns; expected {len(names)}")
        rows.append((number, fields))
    return ParallelTable(path, names, rows)


def _csv_fields(path: Path) -> Iterator[tuple[int, list[str]]]:
    """`read_fields` of a table separated by commas."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{path}, line {line}: byte {error.object[error.start]:#04x} is not UTF-8; save the file as UTF-8"
        ) from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for fields in reader:
            stripped = [field.strip() for field in fields]
            if any(stripped):
                yield reader.line_num, stripped
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {reader.line_num}: {error}; expected a table separated by commas"
        ) from error


def full_codes(known: Collection[str]) -> dict[str, str]:
    """The codes themselves, and "en" for "en_XX" where one code alone begins so.

    Codes of other forms have no short one: NLLB-200's "est_Latn" is Estonian, and "es" is not.
    """
    short = Counter(code[:2] for code in known if code[2:3] == "_")
    return {code[:2]: code for code in known if short[code[:2]] == 1 and code[2:3] == "_"} | {
        code: code for code in known
    }
