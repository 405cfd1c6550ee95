"""Sentences of more tokens than wanted: cut or skipped, and counted with their places in the text."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from transformers import PreTrainedTokenizerBase

from course_lib.language.corpus import Sentence
from course_lib.mbart.activations import tokenise

TOO_LONG = ("cut", "skip")
LISTED = 5
_GROUP = 1024

Row = tuple[Sentence | None, ...]


class TokenLimit:
    """Cuts or skips sentences of more than `max_tokens` tokens, language code and `</s>` among them.

    A sentence is cut at the longest beginning found that has no more; with "skip" a row is skipped whole, in all
    languages, or as source and target. `numbers` are the places (lines, counted from 1) of rows where that happened,
    in the order of the text. With `targets` the second sentence of a row is what the decoder reads.

    Raises ValueError for a number that no sentence can keep, and for `too_long` that is neither "cut" nor "skip".
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        max_tokens: int,
        too_long: str = "cut",
        *,
        targets: bool = False,
    ) -> None:
        if too_long not in TOO_LONG:
            raise ValueError(f"too_long is {too_long!r}; expected 'cut' or 'skip'")
        self.tokenizer, self.max_tokens = tokenizer, max_tokens
        self.too_long, self.targets = too_long, targets
        self.numbers: list[int] = []
        frame = self._lengths([Sentence("", None)], target=False)[0]
        if max_tokens <= frame:
            raise ValueError(
                f"max_tokens is {max_tokens}; expected {frame + 1} or more, since {frame} tokens frame a sentence"
            )

    @property
    def settings(self) -> dict[str, Any]:
        """What was asked for."""
        return {"max_tokens": self.max_tokens, "too_long": self.too_long}

    @property
    def record(self) -> dict[str, Any]:
        """How many rows had a sentence that was too long, and where the first of them stand."""
        return {"too_long_rows": len(self.numbers), "first_too_long": self.numbers[:LISTED]}

    def apply(self, rows: Iterable[tuple[int, Row]]) -> Iterator[tuple[int, Row]]:
        """The rows that stay, read as they are needed, each with its number.

        Raises ValueError, with the number, where not even the beginning of a sentence has few enough tokens.
        """
        rows = iter(rows)
        while group := list(islice(rows, _GROUP)):
            lengths = [[0] * len(row) for _, row in group]
            for target in (False, True):
                places = [
                    (i, j)
                    for i, (_, row) in enumerate(group)
                    for j, sentence in enumerate(row)
                    if sentence is not None and self._is_target(j) == target
                ]
                found = self._lengths([group[i][1][j] for i, j in places], target=target)
                for (i, j), length in zip(places, found, strict=True):
                    lengths[i][j] = length
            for (number, row), of_row in zip(group, lengths, strict=True):
                if max(of_row) > self.max_tokens:
                    self.numbers.append(number)
                    if self.too_long == "skip":
                        continue
                    row = tuple(
                        self._cut(sentence, number, target=self._is_target(j))
                        if length > self.max_tokens
                        else sentence
                        for j, (sentence, length) in enumerate(zip(row, of_row, strict=True))
                    )
                yield number, row

    def note(self) -> list[str]:
        """A sentence that says how many were cut or skipped and where the first are; none where there are none."""
        if not self.numbers:
            return []
        count, first = len(self.numbers), self.numbers[:LISTED]
        more = f" and {count - LISTED:,} more" if count > LISTED else ""
        what, were = ("line", "was") if count == 1 else ("lines", "were")
        done = "cut to at most so many" if self.too_long == "cut" else "skipped"
        return [
            f"{count:,} {what} with a sentence of more than {self.max_tokens} tokens {were} {done}: "
            f"{what} {', '.join(map(str, first))}{more}"
        ]

    def _is_target(self, place: int) -> bool:
        return self.targets and place == 1

    def _lengths(self, sentences: list[Sentence], *, target: bool) -> list[int]:
        return [len(row) for row in tokenise(self.tokenizer, sentences, target=target)]

    def _cut(self, sentence: Sentence, number: int, *, target: bool) -> Sentence:
        fits, exceeds = 0, len(sentence.text)
        while exceeds - fits > 1:
            middle = (fits + exceeds) // 2
            beginning = replace(sentence, text=sentence.text[:middle].rstrip())
            if self._lengths([beginning], target=target)[0] <= self.max_tokens:
                fits = middle
            else:
                exceeds = middle
        text = sentence.text[:fits].rstrip()
        if not text:
            raise ValueError(
                f"max_tokens is {self.max_tokens}, and the first sign of a sentence on line {number} has more tokens with "
                "its frame; expected more, or too_long 'skip'"
            )
        return replace(sentence, text=text)
