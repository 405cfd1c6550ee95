"""A claim: a numbered statement of a lesson, measured where it stands.

The experiment is the code of the notebook cell, in the open; `claim` compares what it measured with what the
statement says, and prints both. A measured value that may differ from one machine to the next is printed behind the
sign ≈, and the strict check of notebooks (`tests/notebooks/sanitize.cfg`) masks the number behind that sign, and
nothing else. The comparison itself is never masked.
"""

import math
import re

import numpy as np

ABOUT = "≈"
FEW = 6  # entries of an array that a line shows one by one
PLACE = re.compile(r"\{(?::([^{}]*))?\}")  # where a statement shows the value: {} or {:.3f}


class ClaimError(AssertionError):
    """A measured statement of a lesson does not hold."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the sentence alone, since the way into the library says nothing about the claim."""
        return [str(self)]


def _as_array(name: str, value) -> np.ndarray:
    """Turn a number, array or tensor into float64, or say which argument was not one."""
    try:
        if isinstance(value, list | tuple):
            return np.array([_as_array(name, entry) for entry in value], dtype=np.float64)
        # A tensor becomes float64 before NumPy sees it, which knows no bfloat16.
        return np.asarray(value.detach().cpu().double() if hasattr(value, "detach") else value, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or an array of numbers, got {value!r}") from None


def _filled(statement: str, entries: np.ndarray, *, exact: bool) -> str:
    """Return the statement with the entries in the place of `{}`, in the format that is asked for."""

    def values(place: re.Match) -> str:
        written = (f"{float(v):{place[1]}}" if place[1] else readable(float(v)) for v in np.ravel(entries))
        return ", ".join(("" if exact else ABOUT) + value for value in written)

    return PLACE.sub(values, statement)


def readable(value: float) -> str:
    """Write a number as a learner reads it: whole ones in full, others with two digits."""
    if not math.isfinite(value):
        return str(value)
    if value == round(value) and abs(value) < 1e15:
        return f"{value + 0.0:,.0f}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}"


def fact(statement: str, measured, *, equals=None, within=None, at_most=None, at_least=None) -> str:
    """Return a measured statement as text, with the value in the place of `{}` and the bound behind it.

    Exactly one comparison is made:
    |measured - equals| <= within, or measured <= at_most, or measured >= at_least,
    or, with none of the three, measured must be true.

    Shapes: `measured` is a number, a bool, an array or a tensor; every entry must pass. Of an array, the entry that
    comes nearest to a bound is shown; beside `equals`, the entry that is farthest off, or all where they are few.
    Units: `within`, `at_most` and `at_least` are in the units of `measured`; `within=0` marks an exact value.

    Raises:
        ClaimError: the comparison fails, or the measured value is NaN.
        ValueError: none or several comparisons are named, `equals` comes without `within`, `measured` is
            not made of numbers or is empty, or `{}` asks for a value that there is not.
    """
    named = [
        name
        for name, value in (("equals", equals), ("at_most", at_most), ("at_least", at_least))
        if value is not None
    ]
    if len(named) > 1 or (equals is None) != (within is None):
        raise ValueError(
            f"{statement!r}: give equals= with within=, or at_most=, or at_least=, or none of them; "
            f"got {', '.join(named) or 'within alone'}"
        )
    if not named:
        if not isinstance(measured, bool | np.bool_):
            raise ValueError(f"{statement!r}: without a bound, measured must be a bool, got {measured!r}")
        if PLACE.search(statement):
            raise ValueError(f"{statement!r}: a bool has no value to show in the place of {{}}")
        if not measured:
            raise ClaimError(f"{statement}: false")
        return statement
    values = _as_array("measured", measured)
    if values.size == 0:
        raise ValueError(f"{statement!r}: measured is empty, and a statement about nothing would always hold")
    exact = False
    if equals is not None:
        wanted = np.broadcast_to(_as_array("equals", equals), values.shape)
        gaps = np.abs(values - wanted)
        holds, exact = np.all(gaps <= within), within == 0
        farthest = np.argmax(gaps)
        shown, target = values.ravel()[farthest], wanted.ravel()[farthest]
        if values.size <= FEW:
            shown = values
            target = wanted if np.any(wanted != wanted.ravel()[0]) else target
        bound = "" if exact else f", expected {_short(target)} within {within:g}"
    elif at_most is not None:
        holds, shown, bound = np.all(values <= at_most), values.max(), f", at most {_plain(at_most)}"
    else:
        holds, shown, bound = np.all(values >= at_least), values.min(), f", at least {_plain(at_least)}"
    said = _filled(statement, shown, exact=exact)
    if not holds or np.isnan(values).any():
        raise ClaimError(f"{said}{bound or f', expected {_short(equals)}'}; measured {_short(measured)}")
    return said + bound


def claim(number: str, statement: str, measured, *, equals=None, within=None, at_most=None, at_least=None):
    """Print that statement `number` holds, with what was measured, or raise `ClaimError`.

    The statement shows the measured value in the place of `{}`; the comparison and its errors are those of `fact`. A
    statement without `{}` prints its bound only.
    """
    bounds = {"equals": equals, "within": within, "at_most": at_most, "at_least": at_least}
    try:
        said = fact(statement, measured, **bounds)
    except ClaimError as error:
        raise ClaimError(f"claim ({number}) fails: {error}") from None
    except ValueError as error:
        raise ValueError(f"claim {number}: {error}") from None
    if PLACE.search(statement):
        print(f"({number}) {said}")
    else:  # the form of pages that were written before claims printed values
        print(f"({number}) holds: {statement}{_bound(**bounds)}")


def _bound(equals, within, at_most, at_least) -> str:
    if equals is not None:
        return f" [= {_short(equals)} within {within:g}]"
    if at_most is not None:
        return f" [at most {at_most:g}]"
    return f" [at least {at_least:g}]" if at_least is not None else ""


def _plain(bound) -> str:
    """Write a bound with the digits that it was given."""
    value = float(bound)
    return f"{value:,.0f}" if value == round(value) and 1000 <= abs(value) < 1e15 else f"{value:g}"


def _short(value) -> str:
    """Show a number or a short array without the noise of its last digits."""
    if isinstance(value, bool | np.bool_ | str):
        return str(value)
    array = _as_array("value", value)
    if array.ndim == 0:
        number = float(array)
        return f"{number:.6g}" if math.isfinite(number) else str(number)
    # On one line, as the claim itself.
    return " ".join(np.array2string(array, precision=6, threshold=8, max_line_width=1000).split())
