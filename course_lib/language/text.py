"""Lines of text as all commands read them: `sentence` or `language<TAB>sentence`."""

from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

TABLES = {".jsonl": "json", ".parquet": "parquet", ".csv": "csv"}
"""Endings of files that hold a table instead of lines, and what `datasets` calls their kind."""


def read_fields(path: Path | str) -> Iterator[tuple[int, list[str]]]:
    """Number, counted from 1, and tab-separated fields of each line of a UTF-8 file that says something.

    Fields are stripped. Blank lines are skipped, and lines that name a language and say nothing. A byte
    order mark and Windows line ends are accepted. Raises ValueError, with the line, for bytes that are not
    UTF-8.
    """
    with Path(path).open("rb") as file:
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
