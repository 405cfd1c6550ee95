"""A claim: a numbered statement of a lesson, measured where it stands.

The experiment is the code of the notebook cell, in the open; `claim` only compares what it
measured with what the statement says. The line it prints holds the stated bound and never the
measured digits, so that it is the same on every machine and nbval can compare it.
"""

import math

import numpy as np


class ClaimError(AssertionError):
    """A measured statement of a lesson does not hold."""


def _as_array(name: str, value) -> np.ndarray:
    """Turn a number, array or tensor into float64, or say which argument was not one."""
    try:
        if isinstance(value, list | tuple):
            return np.array([_as_array(name, entry) for entry in value], dtype=np.float64)
        # A tensor becomes float64 before NumPy sees it, which knows no bfloat16.
        return np.asarray(value.detach().cpu().double() if hasattr(value, "detach") else value, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or an array of numbers, got {value!r}") from None


def claim(number: str, statement: str, measured, *, equals=None, within=None, at_most=None, at_least=None):
    """Print that statement `number` holds for the measured value, or raise `ClaimError`.

    Exactly one comparison is made:
    |measured - equals| <= within, or measured <= at_most, or measured >= at_least,
    or, with none of the three, measured must be true.

    Shapes: `measured` is a number, a bool, an array or a tensor; every entry must pass.
    Units: `within`, `at_most` and `at_least` are in the units of `measured`.

    Raises:
        ClaimError: the comparison fails, or the measured value is NaN.
        ValueError: none or several comparisons are named, `equals` comes without `within`, or `measured` is
            not made of numbers or is empty.
    """
    named = [
        name
        for name, value in (("equals", equals), ("at_most", at_most), ("at_least", at_least))
        if value is not None
    ]
    if len(named) > 1 or (equals is None) != (within is None):
        raise ValueError(
            f"claim {number}: give equals= with within=, or at_most=, or at_least=, or none of them; "
            f"got {', '.join(named) or 'within alone'}"
        )
    if not named:
        if not isinstance(measured, bool | np.bool_):
            raise ValueError(f"claim {number}: without a bound, measured must be a bool, got {measured!r}")
        holds, found = bool(measured), ""
    else:
        values = _as_array("measured", measured)
        if values.size == 0:
            raise ValueError(
                f"claim {number}: measured is empty, and a claim about nothing would always hold"
            )
        if equals is not None:
            holds = np.all(np.abs(values - _as_array("equals", equals)) <= within)
            found = f" [= {_short(equals)} within {within:g}]"
        elif at_most is not None:
            holds, found = np.all(values <= at_most), f" [at most {at_most:g}]"
        else:
            holds, found = np.all(values >= at_least), f" [at least {at_least:g}]"
        holds = bool(holds) and not np.isnan(values).any()
    if not holds:
        raise ClaimError(f"claim ({number}) fails: {statement}{found}; measured {_short(measured)}")
    print(f"({number}) holds: {statement}{found}")


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
