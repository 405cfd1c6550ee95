"""Every stored number of the course, and where it comes from.

A part is a file of this folder, `attention` or, from a GPU, `gpu/attention`: its figures by name, and their origin. `make
bench PART` prints a part again; `python -m benchmarks PART --save` writes it.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

FORMAT = 1


@dataclass(frozen=True)
class Spread:
    """A median with its quartiles."""

    median: float
    q25: float
    q75: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Summarise a list of numbers."""
        import numpy as np

        q25, median, q75 = np.percentile(values, [25, 50, 75])
        return cls(round(float(median), 4), round(float(q25), 4), round(float(q75), 4))

    def __str__(self) -> str:
        median, q25, q75 = (
            f"{v:,.0f}" if v >= 1000 else f"{v:.3g}" for v in (self.median, self.q25, self.q75)
        )
        return f"{median} [{q25}..{q75}]"


def parts() -> list[str]:
    """Return the names of all parts."""
    here = files(__name__)
    found = [
        (prefix, file.name)
        for prefix, folder in (("", here), ("gpu/", here / "gpu"))
        for file in folder.iterdir()
    ]
    return sorted(f"{prefix}{name.removesuffix('.json')}" for prefix, name in found if name.endswith(".json"))


def _nearest(name: str, known: Iterable[str]) -> str:
    known = list(known)
    return ", ".join(repr(near) for near in get_close_matches(name, known, n=5, cutoff=0.3) or known[:5])


@cache
def _stored(part: str) -> dict[str, Any]:
    if part not in parts():
        raise LookupError(f"part must be one of {', '.join(parts())}, got {part!r}")
    stored = json.loads(files(__name__).joinpath(f"{part}.json").read_text(encoding="utf-8"))
    if stored.get("format") != FORMAT:
        raise ValueError(
            f"{part}.json has format {stored.get('format')!r}, expected {FORMAT}: store it again"
        )
    return stored


def _figure(part: str, name: str) -> Any:
    known = _stored(part)["figures"]
    if name not in known:
        raise LookupError(f"{part!r} holds no figure {name!r}; nearest: {_nearest(name, known)}")
    return known[name]


def measured(part: str, name: str) -> Any:
    """Return a stored figure: the median where a spread is stored, and else what is stored, say counts by name.

    Raises:
        LookupError: no such part or figure; the message names the nearest ones.
        ValueError: the file has another format.
    """
    figure = _figure(part, name)
    return figure["median"] if _is_spread(figure) else figure


def figures(part: str) -> dict[str, Any]:
    """Return all figures of a part by name, each as `measured` returns it."""
    return {name: measured(part, name) for name in _stored(part)["figures"]}


def spread(part: str, name: str) -> Spread:
    """Return a stored median with its quartiles.

    Raises:
        LookupError: no such part or figure, or it was stored without quartiles.
    """
    figure = _figure(part, name)
    if not _is_spread(figure):
        raise LookupError(f"{name!r} of {part!r} was stored without quartiles; take measured({part!r}, ...)")
    return Spread(**figure)


def quote(part: str, name: str, spec: str = "#.2g", *, scale: float = 1, quartiles: bool = False) -> str:
    """Return a stored number times `scale` as text, by default with two digits; with its quartiles, "0.71 [0.69..0.73]".

    Raises:
        LookupError: no such part or figure, or quartiles were asked for and not stored.
    """

    def said(value: float) -> str:
        return f"{value * scale:{spec}}".rstrip(".")

    if not quartiles:
        return said(measured(part, name))
    found = spread(part, name)
    return f"{said(found.median)} [{said(found.q25)}..{said(found.q75)}]"


def origin(part: str) -> dict[str, Any]:
    """Return where a part's figures come from: machine, date, command, versions, seeds; what is not known is None."""
    return dict(_stored(part)["origin"])


def _is_spread(figure: Any) -> bool:
    return isinstance(figure, dict) and set(figure) == {"median", "q25", "q75"}
