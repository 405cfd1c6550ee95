"""Give every lesson the number of its place in the catalogue: `make renumber`.

Put the rows of `LESSONS` in `course_lib/lessons/catalog.py` into the order that the course shall have, each with the number
that it has (a lesson put in between takes any free one), and run this on a tree without changes. It rewrites, in all
tracked text:

- names that hold a number and a slug (`19_kernelized_attention`), and renames the notebooks;
- "lesson 19", "Lessons 04 and 23", the links `[19](19_kernelized_attention.ipynb)`, a number before its lesson's title, what
  commands are given (`make store LESSONS=15`), and the numbers of the catalogue;
- ids of exercises, predictions, sentences, claims and equations (`19.3`, `19.P1`, `15.m2`), which are told from decimals by
  what stands around them, and in Python by standing in a string or a comment;

and writes the ids that learners have answers to into `renumbered.json`, from which `course update` carries these over.

It refuses, before a file is written, where a reference does not resolve, or where a range of lessons would get another one
in between: say such a thing in other words first. What it leaves to its caller, since other tools write it: the calendar
(`course calendar`), the page of benchmarks (`python -m benchmarks --page`), and pictures that have an id in them
(`make store`).
"""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

from course_lib.files import replacing
from course_lib.update import NUMBER, RENUMBERED

CATALOG = "course_lib/lessons/catalog.py"
# No prose of ours: word lists, pinned versions, stored figures; and lessons that are made up.
NOT_READ = re.compile(
    r"tokenizer\.json$|^constraints\.txt$|^course_lib/measured/|^course_lib/lessons/renumbered\.json$|^tests/test_renumber\.py$"
)

IDS = r"(?:[PQ]\d{1,2}|\d{1,2}[a-z]?|[a-z]\w{0,3})"
ID = re.compile(rf"(?<![\w.,+-])(\d\d)\.({IDS})(?!\w|\.\d)")
DEFINED = re.compile(rf"tag\{{(\d\d\.{IDS})\}}|\\?[\"'](\d\d\.{IDS})\\?[\"']")
# What stands before an id whose digits could also be a decimal.
WORDS = "[Ee]xercises?|[Pp]redictions?|[Cc]laims?|[Ss]entences?|[Ee]quations?|[Aa]nswer (?:of|to)|points for"
BEFORE = re.compile(rf"(?:\(|\\?[\"'`]|[{{>*]|^ *- |(?:{WORDS}) )$")
GOES_ON = re.compile(r"\)?(?:,|,? and| or|;) \(?")
# "(15.2 to 16.3)" is a range of figures.
OPEN = re.compile(r"\)|[,;] | and | or ")
NAMES = re.compile(r"\b(\d\d)_([a-z]\w+)")
LINKS = re.compile(r"(\[)(\d\d)(\]\([^)\s]*\))")
LESSONS = re.compile(r"([Ll]essons? )(\d\d(?:(?:, | and | or |, and | to )\d\d)*)\b(?!\.\d)")
# What a command is given: `make store LESSONS=15`, `course hand-out runs/course 01 15`.
COMMANDS = re.compile(
    r"((?:LESSONS=|TEACHER_ARGS(?:=|\),)|course (?:plan|teacher|hand-out \S+) |notebooks\.neighbours )(?:\\?\")?)"
    r"(\d\d(?: \d\d)*)\b(?![.\d])"
)
ROWS = re.compile(r'^        \("(\d\d)", "(\w+)",.*, "[IV]*", "([\d ]*)", \d+\),$', re.M)
TITLE = re.compile(r'^        \("\d\d", "\w+", "(.*)", "[IV]*", "[\d ]*", \d+\),$', re.M)
QUOTED = re.compile(r'"(\d\d)"')
# In the metadata of a page.
METADATA = re.compile(r'^   "(?:number": "\d\d"|prerequisites": \[[^]]*\])', re.M)


class UnresolvedError(ValueError):
    """References that cannot be renumbered, one to a line."""


class Renumbering:
    """Which number each lesson gets, and what is rewritten for it.

    Args:
        catalog: Text of the catalogue, its rows in the new order with their old numbers.
        defined: All ids that exist, with their old numbers.

    Raises:
        UnresolvedError: two rows have one number.
    """

    def __init__(self, catalog: str, defined: Iterable[str]):
        rows = ROWS.findall(catalog)
        self.moves = {old: f"{place:02}" for place, (old, _, _) in enumerate(rows)}
        if len(self.moves) < len(rows):
            numbers = [old for old, _, _ in rows]
            raise UnresolvedError(f"{CATALOG}: two lessons have the number {max(numbers, key=numbers.count)}")
        self.slugs = {slug: old for old, slug, _ in rows}
        titles = "|".join(map(re.escape, TITLE.findall(catalog)))
        self.titled = re.compile(rf"\b(\d\d)( (?:{titles}))")
        self.defined = frozenset(defined)
        self.unresolved: list[str] = []

    def name(self, path: str) -> str:
        """A path with the new number in it."""
        return NAMES.sub(lambda found: f"{self._of_slug(found, path)}_{found[2]}", path)

    def file(self, path: str, text: str) -> str:
        """The text of a file with all its references renumbered; what does not resolve is kept in `unresolved`."""
        if path == CATALOG:
            head, start, rest = text.partition("LESSONS = tuple(")
            rows, end, tail = rest.partition("\n# The name that a reader meets")
            rows = QUOTED.sub(lambda found: f'"{self._lesson(found[1], path)}"', rows)
            needs = re.compile(r'(", "[IV]*", ")(\d\d [\d ]+)(", \d+\),)')
            rows = needs.sub(lambda found: found[1] + self._needs(found[2], path) + found[3], rows)
            return self.text(head, path) + start + rows + end + self.text(tail, path)
        if path.endswith(".ipynb"):
            text = METADATA.sub(
                lambda found: QUOTED.sub(lambda one: f'"{self._lesson(one[1], path)}"', found[0]), text
            )
        if not path.endswith(".py"):
            return self.text(text, path)
        return "".join(
            self.text(part, path) if is_words else self.names(part, path)
            for part, is_words in words_of_python(text)
        )

    def names(self, text: str, path: str) -> str:
        return NAMES.sub(lambda found: f"{self._of_slug(found, path)}_{found[2]}", text)

    def text(self, text: str, path: str) -> str:
        """The same of a piece of text in which decimals and ids are told apart by what stands around them."""
        text = self.names(text, path)
        text = LINKS.sub(lambda found: found[1] + self._lesson(found[2], path) + found[3], text)
        text = LESSONS.sub(lambda found: found[1] + self._listed(found, path), text)
        text = COMMANDS.sub(lambda found: found[1] + self._numbers(found[2], path), text)
        text = self.titled.sub(lambda found: self._lesson(found[1], path) + found[2], text)
        parts, end, was_id = [], 0, False
        for found in ID.finditer(text):
            before = text[max(end, found.start() - 40) : found.start()].rsplit("\n", 1)[-1]
            follows = was_id and GOES_ON.fullmatch(text[end : found.start()])
            certain = found[1][0] == "0" or not found[2].isdigit()
            shown = BEFORE.search(before) and (
                not before.endswith("(") or OPEN.match(text[found.end() : found.end() + 5])
            )
            was_id = bool(certain or follows or shown)
            closed = before.endswith("(") and text[found.end() : found.end() + 1] == ")"
            parts.append(text[end : found.start()])
            parts.append(self._id(found, path, certain=certain or closed) if was_id else found[0])
            end = found.end()
        return "".join([*parts, text[end:]])

    def answered(self) -> dict[str, str]:
        """The ids that learners have answers to, the old ones and the new, where they differ."""
        pairs = (
            (one, f"{self.moves[one[:2]]}{one[2:]}") for one in sorted(self.defined) if NUMBER.fullmatch(one)
        )
        return {old: new for old, new in pairs if old != new}

    def _id(self, found: re.Match, path: str, *, certain: bool) -> str:
        if found[0] in self.defined:
            return f"{self.moves[found[1]]}.{found[2]}"
        if certain and found[1] in self.moves and not path.startswith("tests/"):
            self.unresolved.append(
                f"{path}: {found[0]} is no exercise, prediction, sentence, claim or equation"
            )
        return found[0]

    def _lesson(self, number: str, path: str) -> str:
        if number not in self.moves:
            if not path.startswith("tests/"):
                self.unresolved.append(f"{path}: there is no lesson {number}")
            return number
        return self.moves[number]

    def _needs(self, numbers: str, path: str) -> str:
        return " ".join(sorted(self._lesson(number, path) for number in numbers.split()))

    def _numbers(self, numbers: str, path: str) -> str:
        return re.sub(r"\d\d", lambda one: self._lesson(one[0], path), numbers)

    def _listed(self, found: re.Match, path: str) -> str:
        ranges = re.findall(r"(\d\d) to (\d\d)", found[2])
        for first, last in ranges:
            inside = [f"{number:02}" for number in range(int(first), int(last) + 1)]
            new = sorted(self.moves.get(number, number) for number in inside)
            if new != [f"{int(new[0]) + i:02}" for i in range(len(new))] or new[0] != self.moves.get(first):
                self.unresolved.append(f"{path}: lessons {first} to {last} will be {', '.join(new)}")
        return self._numbers(found[2], path)

    def _of_slug(self, found: re.Match, path: str) -> str:
        if found[2].removesuffix("_") not in self.slugs:
            return found[1]
        if self.slugs[found[2]] != found[1]:
            self.unresolved.append(f"{path}: {found[0]} is lesson {self.slugs[found[2]]}")
        return self.moves[self.slugs[found[2]]]


def words_of_python(source: str) -> Iterator[tuple[str, bool]]:
    """The pieces of Python source in their order, each with whether it is a string or a comment."""
    kinds = {tokenize.STRING, tokenize.COMMENT} | {
        getattr(tokenize, name)
        for name in ("FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END")
        if hasattr(tokenize, name)
    }
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    end = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in kinds:
            first, last = (starts[row - 1] + column for row, column in (token.start, token.end))
            yield source[end:first], False
            yield source[first:last], True
            end = last
    yield source[end:], False


def defined_in(texts: dict[str, str]) -> set[str]:
    """All ids of exercises, predictions, sentences, claims and equations that pages and lessons define."""
    return {
        one
        for path, text in texts.items()
        if path.startswith(("notebooks/", "course_lib/lessons/"))
        for found in DEFINED.findall(text)
        for one in found
        if one
    }


def tracked(root: Path) -> list[str]:
    """Paths of all files that git tracks."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True).stdout
    return [path for path in listed.decode().split("\0") if path]


def read(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """The files among these that are text of ours."""
    texts = {}
    for path in paths:
        data = (root / path).read_bytes()
        if not NOT_READ.search(path) and b"\0" not in data:
            texts[path] = data.decode()
    return texts


def renumbered(texts: dict[str, str]) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Return, by old path, the new path and text of each file that changes, and the ids with answers, old to new.

    Raises:
        UnresolvedError: a reference does not resolve.
    """
    plan = Renumbering(texts[CATALOG], defined_in(texts))
    made = {path: (plan.name(path), plan.file(path, text)) for path, text in texts.items()}
    if plan.unresolved:
        raise UnresolvedError("\n".join(dict.fromkeys(plan.unresolved)))
    for path, (_, text) in made.items():
        if path.endswith(".py"):
            ast.parse(text)
        elif path.endswith((".ipynb", ".json")):
            json.loads(text)
    return {path: new for path, new in made.items() if new != (path, texts[path])}, plan.answered()


def main() -> int:
    root = Path(__file__).resolve().parents[1]
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=True
    )
    allowed = {f" M {CATALOG}", f"M  {CATALOG}"}
    if others := [line for line in changed.stdout.splitlines() if line not in allowed]:
        print(f"commit or undo what has changed beside the catalogue first: {others[0][3:]}")
        return 1
    texts = read(root, tracked(root))
    try:
        files, answered = renumbered(texts)
    except UnresolvedError as error:
        print(f"nothing was changed:\n{error}")
        return 1
    for path in files:
        (root / path).unlink()
    for new, text in files.values():
        with replacing(root / new) as file:
            file.write(text.encode())
    if answered:
        path = root / RENUMBERED
        steps = json.loads(path.read_text()) if path.is_file() else []
        with replacing(path) as file:
            file.write((json.dumps([*steps, answered], indent=1) + "\n").encode())
    print(f"{len(files)} files were rewritten; {len(answered)} ids with answers have other numbers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
