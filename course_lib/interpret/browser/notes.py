"""A reader's notes on features and named lists of them, in one file beside a run, as the page reads and writes them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from course_lib.files import locked, replacing
from course_lib.interpret.browser import requests

FILE = "browse_notes.json"
"""Where in a run the notes are: beside the index, so that they stay when it is made again."""
FORMAT = 1
_PATIENCE = 5.0
"""Seconds to wait for another server that is writing notes, which takes it milliseconds."""


class Notes:
    """The notes of the features of one autoencoder, `identity` (`FeatureIndex.identity`), in the file `path`.

    A file of another autoencoder is neither shown nor written over: ValueError says so.
    """

    def __init__(self, path: Path, identity: str, n_features: int):
        self.path, self.identity, self.n_features = path, identity, n_features

    def read(self) -> dict[int, dict[str, Any]]:
        """The note and the names of the lists of each feature that has any; none where there is no file."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        try:
            given = requests.body(content)
            found = requests.notes(given)
        except ValueError as error:
            raise ValueError(f"{self.path} is damaged: {error}; repair or move it") from None
        if (given.get("format"), given.get("identity")) != (FORMAT, self.identity):
            raise ValueError(
                f"{self.path} holds notes on the features of another autoencoder; move it, and notes on this one are kept"
            )
        return found

    def update(
        self, changed: dict[int, dict[str, Any]], before: Mapping[int, dict[str, Any]] | None = None
    ) -> dict[int, dict[str, Any]]:
        """Change the notes of some features, leave those of the others, and return all.

        `before` has the notes from which the writer started, none where a feature is missing in it: what somebody else
        wrote on the same feature since then stays, see `merged`. Without `before` notes are replaced. A feature with
        neither note nor list is left out. Other processes may write to the same file: each reads and writes it under a
        lock.

        Raises ValueError for a feature that the run does not have, for a text that joined with another one is too long,
        and where the lock cannot be had, and OSError where the file cannot be written.
        """
        for feature in changed:
            if feature >= self.n_features:
                raise ValueError(f"feature is {feature}; expected a number from 0 to {self.n_features - 1}")
        busy = ValueError(f"another server is writing {self.path}; try again")
        with locked(self.path.with_name(f".{self.path.name}.lock"), busy=busy, wait=_PATIENCE):
            stored = self.read()
            if before is not None:
                changed = {
                    feature: merged(stored.get(feature, NONE), before.get(feature, NONE), one)
                    for feature, one in changed.items()
                }
            found = {n: one for n, one in (stored | changed).items() if one["note"].strip() or one["lists"]}
            requests.notes(
                {"features": {str(n): one for n, one in found.items()}}
            )  # joined, it may be too long
            content = {"format": FORMAT, "identity": self.identity, "features": dict(sorted(found.items()))}
            with replacing(self.path) as kept:
                kept.write(json.dumps(content, ensure_ascii=False, indent=1).encode())
        return found


NONE: dict[str, Any] = {"note": "", "lists": []}


def merged(stored: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What `after` changed of `before`, done to `stored`: the same as `after` where nobody else wrote in between.

    Of two new texts both are kept, one below the other, unless one holds the other.
    """
    note = after["note"]
    if note == before["note"]:
        note = stored["note"]
    elif stored["note"] not in (before["note"], note):
        note = joined(stored["note"], note)
    taken_off = set(before["lists"]) - set(after["lists"])
    return {"note": note, "lists": sorted({*stored["lists"], *after["lists"]} - taken_off)}


def joined(first: str, second: str) -> str:
    """Two texts, one below the other; one alone where it holds the other."""
    return first if second in first else second if first in second else f"{first}\n{second}"
