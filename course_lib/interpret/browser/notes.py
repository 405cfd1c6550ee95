"""A reader's notes on features and named lists of them, in one file beside a run, as the page reads and writes them."""

import json
from pathlib import Path
from typing import Any

from course_lib.files import replacing
from course_lib.interpret.browser import requests

FILE = "browse_notes.json"
"""Where in a run the notes are: beside the index, so that they stay when it is made again."""
FORMAT = 1


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

    def update(self, changed: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
        """Replace the notes of some features, leave those of the others, and return all.

        A feature with neither note nor list is left out. Raises ValueError for a feature that the run does not have.
        """
        for feature in changed:
            if feature >= self.n_features:
                raise ValueError(f"feature is {feature}; expected a number from 0 to {self.n_features - 1}")
        found = {n: one for n, one in (self.read() | changed).items() if one["note"].strip() or one["lists"]}
        content = {"format": FORMAT, "identity": self.identity, "features": dict(sorted(found.items()))}
        with replacing(self.path) as kept:
            kept.write(json.dumps(content, ensure_ascii=False, indent=1).encode())
        return found
