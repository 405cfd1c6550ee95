"""The source of a function, and functions made by changing some of it."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any


@dataclass(frozen=True)
class Edit:
    """A wrong solution as its difference from the reference: pairs of old and new source text, in order."""

    pairs: tuple[tuple[str, str], ...]


def edit(*texts: str) -> Edit:
    """Return the edit that puts the second text in the place of the first, the fourth in that of the third, ...

    Raises:
        ValueError: the number of texts is odd or zero.
    """
    if not texts or len(texts) % 2:
        raise ValueError(f"edit takes pairs of old and new text, got {len(texts)} texts")
    return Edit(tuple(zip(texts[::2], texts[1::2], strict=True)))


def source_of(function: Callable) -> str:
    """Return the source of a function from its `def` on, without decorators."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    start = ast.parse(source).body[0].lineno - 1
    return "".join(source.splitlines(keepends=True)[start:])


def edited_source(reference: Callable, change: Edit) -> str:
    """Return the source of the reference with some of it changed.

    Raises:
        ValueError: an old text does not stand in the source exactly once.
    """
    source = source_of(reference)
    for old, new in change.pairs:
        if (count := source.count(old)) != 1:
            raise ValueError(
                f"{old!r} stands {count} times in {reference.__name__}, and an edit needs it once:\n{source}"
            )
        source = source.replace(old, new)
    return source


@cache
def edited(reference: Callable, change: Edit) -> Callable:
    """Return the reference with some of its source changed.

    Raises:
        ValueError: an old text does not stand in the source exactly once.
    """
    source = edited_source(reference, change)
    scope: dict[str, Any] = {}
    exec(
        compile(source, f"<{reference.__name__} edited>", "exec"),
        inspect.unwrap(reference).__globals__,
        scope,
    )
    return scope[reference.__name__]
