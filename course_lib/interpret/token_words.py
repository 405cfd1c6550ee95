"""Which word a token belongs to. Tokens may be pieces of words, which readers do not know: they are shown whole words.

A word is a run of letters, their marks and digits. Nothing but Python is imported here, as the index of the browser needs.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence


def in_word(sign: str) -> bool:
    """Whether a sign is a letter, a mark on one, or a digit."""
    return sign.isalnum() or unicodedata.category(sign).startswith("M")


def word_places(
    texts: Sequence[str], token_text: Iterable[int], token_span: Iterable[Sequence[int]]
) -> Iterator[tuple[int, int]]:
    """Between which characters of its text the word of each token stands.

    Tokens are in the order of the texts: of each the number of its text, and between which characters it stands. A token
    of several words has the first one's; one without any, as a full stop, stands for itself, without the blanks around it; a
    blank alone has the word, or the sign, that it begins.
    """
    last, text, spans = -1, "", []
    for number, (start, end) in zip(token_text, token_span, strict=True):
        if number != last:
            last, text = number, texts[number]
            spans = _word_spans(text)
        if not text[start:end].strip():
            start, end = end, min(end + 1, len(text))
        inside = next((spans[at] for at in range(start, end) if spans[at] is not None), None)
        yield inside or _without_blanks(text, start, end)


def _word_spans(text: str) -> list[tuple[int, int] | None]:
    """For each character the start and the end of its word; None where it is in none."""
    inside = [in_word(sign) for sign in text]
    found: list[tuple[int, int] | None] = [None] * len(text)
    start = 0
    for end, same in enumerate([*inside, False]):
        if not same:
            found[start:end] = [(start, end)] * (end - start)
            start = end + 1
    return found


def _without_blanks(text: str, start: int, end: int) -> tuple[int, int]:
    written = text[start:end]
    start += len(written) - len(written.lstrip())
    return start, start + len(written.strip())
