"""Parallel text from the help of LibreOffice: the same paragraph has the same id in each language.

Debian packs it as `libreoffice-help-en-us`, `-de`, `-fr`, `-es` and thirty more, one page of HTML a topic. `read` takes
what is installed, an unpacked package or downloaded .deb files, and `write_table` writes the paragraphs that all
languages have to a table. The text is LibreOffice's, under the Mozilla Public License 2.0, and no part of it is in this
project.
"""

import hashlib
import re
import shutil
import string
import subprocess
import tempfile
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from html.parser import HTMLParser
from math import ceil
from pathlib import Path

from course_lib import files

LICENCE = "MPL-2.0"
INSTALLED = Path("/usr/share/libreoffice/help")
"""Where Debian's packages put the help."""
HELD_OUT_SHARE = 0.1
SPLITS = ("train", "test")
FEWEST_WORDS = 3
NEAR = 0.8
"""Paragraphs whose sets of words have at least this Jaccard similarity are near-doubles."""

_FOLDERS = {"en": "en-US"}
_BLOCKS = {"p", "h1", "h2", "h3", "h4", "h5", "h6"}
_PUNCTUATION = string.punctuation + "…–«»“”„‘’¿¡"
_WORD = re.compile(r"[^\W\d_]+|\d+")


class NotHelpError(ValueError):
    """What was given holds no help of LibreOffice in the languages asked for; the message says what was found."""


@dataclass(frozen=True)
class Paragraph:
    """A paragraph in each language: its page, its id there, on which side of the split it is, and its texts."""

    page: str
    id: str
    split: str
    texts: tuple[str, ...]


def read(sources: Sequence[Path | str] = (INSTALLED,), *, languages: Sequence[str]) -> list[Paragraph]:
    """The different paragraphs of a help that are translated into all `languages`, in the order of pages.

    `sources` are directories (the installed help, or what a package was unpacked to) and .deb files. Left out are
    paragraphs of fewer than `FEWEST_WORDS` words in one language, those that are alike in two languages, as untranslated
    ones and code are, and near-doubles of a paragraph on an earlier page in any language. A tenth of the pages is held
    out, chosen by a digest of their names, so that no text on one side is on the other, or nearly so.

    Raises NotHelpError where a source is no help, a language is missing or no paragraph is left, and RuntimeError
    where a .deb cannot be unpacked.
    """
    if len(set(languages)) < len(languages) or len(languages) < 2:
        raise NotHelpError(
            f"languages are {', '.join(languages) or 'none'}; expected two or more different ones"
        )
    with ExitStack() as stack:
        roots = [_root(Path(source), stack) for source in sources]
        pages = {language: _pages(roots, language) for language in languages}
        shared = sorted(set.intersection(*(set(found) for found in pages.values())))
        rows = [row for page in shared for row in _aligned(page, [pages[each][page] for each in languages])]
    kept = _different(rows)
    if not kept:
        raise NotHelpError(
            f"no paragraph of {FEWEST_WORDS} words or more is translated into all of {', '.join(languages)}: "
            f"{len(shared)} pages are in all of them, with {len(rows)} such paragraphs"
        )
    return [Paragraph(page, name, split_of(page), texts) for page, name, texts in kept]


def write_table(paragraphs: Iterable[Paragraph], path: Path | str, *, languages: Sequence[str]) -> None:
    """Write a table separated by tabs, with a line of names: page, id, split, and a column for each language."""
    lines = [("page", "id", "split", *languages), *((p.page, p.id, p.split, *p.texts) for p in paragraphs)]
    with files.replacing(path) as file:
        file.writelines(("\t".join(line) + "\n").encode() for line in lines)


def split_of(page: str) -> str:
    """The side of the split that a page is on; it depends on the page's name alone."""
    number = int.from_bytes(hashlib.sha256(page.encode()).digest()[:8], "big")
    return "test" if number < HELD_OUT_SHARE * 2**64 else "train"


def near_doubles(texts: Sequence[str], *, at_least: float = NEAR) -> Iterator[tuple[int, int]]:
    """Pairs (earlier, later) of texts whose sets of words have a Jaccard similarity of `at_least` or more.

    Case and punctuation do not count. Sets that similar share one of their rarest words, so that only those with one in
    common are compared (prefix filter of Bayardo, Ma and Srikant 2007); none is overlooked.
    """
    bags = [frozenset(_WORD.findall(text.lower())) for text in texts]
    frequency = Counter(word for bag in bags for word in bag)
    by_word: defaultdict[str, list[int]] = defaultdict(list)
    for later, bag in enumerate(bags):
        rarest = sorted(bag, key=lambda word: (frequency[word], word))
        prefix = rarest[: len(bag) - ceil(at_least * len(bag)) + 1]
        for earlier in sorted({i for word in prefix for i in by_word[word]}):
            common = len(bag & bags[earlier])
            if common >= at_least * (len(bag) + len(bags[earlier]) - common):
                yield earlier, later
        for word in prefix:
            by_word[word].append(later)


def _different(rows: Sequence[tuple[str, str, tuple[str, ...]]]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Rows without those that nearly double one kept from another page, in any language."""
    earlier_ones = defaultdict(list)
    for texts in zip(*(texts for _, _, texts in rows), strict=True):
        for earlier, later in near_doubles(texts):
            if rows[earlier][0] != rows[later][0]:
                earlier_ones[later].append(earlier)
    kept: dict[int, None] = {}
    for i in range(len(rows)):
        if not any(earlier in kept for earlier in earlier_ones[i]):
            kept[i] = None
    return [rows[i] for i in kept]


def _root(source: Path, stack: ExitStack) -> Path:
    """The directory with a folder for each language that a source is, holds or unpacks to."""
    if source.is_file() and source.suffix == ".deb":
        source = _unpacked(source, Path(stack.enter_context(tempfile.TemporaryDirectory())))
    elif not source.is_dir():
        raise NotHelpError(
            f"{source} is neither a directory nor a .deb file; expected the installed help ({INSTALLED}), or a package "
            "libreoffice-help-... as Debian has it"
        )
    inside = source / INSTALLED.relative_to("/")
    return inside if inside.is_dir() else source


def _unpacked(package: Path, directory: Path) -> Path:
    program = shutil.which("dpkg-deb")
    if program is None:
        raise RuntimeError(
            f"{package} needs dpkg-deb to be unpacked; unpack it elsewhere and give the directory"
        )
    done = subprocess.run([program, "-x", package, directory], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{package} cannot be unpacked: {done.stderr.strip()}")
    return directory


def _pages(roots: Sequence[Path], language: str) -> dict[str, Path]:
    """The pages of a language by their path without ending."""
    folder = _FOLDERS.get(language, language)
    found = {
        page.relative_to(root / folder / "text").with_suffix("").as_posix(): page
        for root in roots
        for page in (root / folder / "text").rglob("*.html")
    }
    if not found:
        there = sorted({p.parent.name for root in roots for p in root.glob("*/text") if p.is_dir()})
        raise NotHelpError(
            f"no help in {language!r}: {', '.join(map(str, roots))} "
            + (f"has {', '.join(there)}" if there else "holds no help of LibreOffice")
            + f"; Debian's package is libreoffice-help-{folder.lower()}"
        )
    return found


def _aligned(page: str, versions: Sequence[Path]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The paragraphs of a page that all its versions have, translated."""
    first, *others = (paragraphs(version.read_text(encoding="utf-8")) for version in versions)
    for name, text in first.items():
        texts = (text, *(other.get(name, "") for other in others))
        if len(set(map(str.lower, texts))) == len(texts) and all(map(_says_something, texts)):
            yield page, name, texts


def _says_something(text: str) -> bool:
    """Whether a text has enough words, which formulas and lines of code have not."""
    return sum(word.strip(_PUNCTUATION).isalpha() for word in text.split()) >= FEWEST_WORDS


def paragraphs(html: str) -> Mapping[str, str]:
    """The text of each paragraph and heading that has an id, on one line and without markup.

    Where a page says one thing for one system or program and another for others, it is what the page says by default.
    Ids that occur twice are left out: they do not say which paragraph is meant.
    """
    parser = _Paragraphs()
    parser.feed(html)
    parser.close()
    return {name: texts[0] for name, texts in parser.found.items() if len(texts) == 1}


class _Paragraphs(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: defaultdict[str, list[str]] = defaultdict(list)
        self._name: str | None = None
        self._pieces: list[str] = []
        self._spans: list[
            bool
        ] = []  # of the open spans, whether each is an alternative that is not the default

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag in _BLOCKS:
            self._finish()
            name = given.get("id") or ""
            self._name = name if name and not name.startswith("bm_") else None
        elif tag == "span":
            self._spans.append("hidden" in given and not (given.get("id") or "").startswith("default"))
        elif tag == "br":
            self._pieces.append(" ")

    def handle_endtag(self, tag):
        if tag in _BLOCKS:
            self._finish()
        elif tag == "span" and self._spans:
            self._spans.pop()

    def handle_data(self, data):
        if self._name is not None and not any(self._spans):
            self._pieces.append(data)

    def close(self):
        super().close()
        self._finish()

    def _finish(self) -> None:
        if self._name is not None:
            text = unicodedata.normalize("NFC", "".join(self._pieces)).replace("\u00ad", "")
            self.found[self._name].append(" ".join(text.split()))
        self._name, self._pieces, self._spans = None, [], []
