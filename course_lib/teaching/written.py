"""Values written as they would be typed into a cell, and how one output differs from another."""

import math
from collections.abc import Callable, Iterator, Mapping
from numbers import Real
from typing import Any

import numpy as np
import torch

ENTRIES = 40  # of an input; a larger tensor is named by its shape
PASTED = 450  # characters of a tensor that is still written out
COMPARED = 240  # characters of two outputs that are written side by side
LONGEST = 200  # characters of a value that no tensor holds
DEFAULT_DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
TIMES = {
    -1: "the opposite sign",
    2: "twice",
    3: "three times",
    4: "four times",
    10: "10 times",
    100: "100 times",
    1 / 2: "half",
    1 / 3: "a third of",
    1 / 4: "a quarter of",
    1 / 10: "a tenth of",
    1 / 100: "a hundredth of",
}


def is_number(value: Any) -> bool:
    """Whether a value is one real number: Python's, NumPy's, or a tensor without axes."""
    if isinstance(value, torch.Tensor):
        return value.ndim == 0 and value.dtype != torch.bool and not value.is_complex()
    if isinstance(value, np.ndarray | np.generic):
        return value.ndim == 0 and value.dtype.kind in "iuf"
    return isinstance(value, Real) and not isinstance(value, bool)


def as_float(number: Any) -> float:
    """Return a number as a float; a whole number too large for one counts as infinite."""
    try:
        return float(number)
    except OverflowError:
        return math.inf


def typed(value: Any) -> str:
    """Write an input so that a cell can read it back, all its digits included; a large tensor by its shape."""
    if isinstance(value, torch.Tensor):
        if value.numel() > ENTRIES:
            return f"a {value.dtype} tensor of shape {tuple(value.shape)}"
        if value.numel() == 0:
            return f"torch.empty({tuple(value.shape)}{_dtype(value)})"
        text = _tensor(value, _exact(value.dtype))
        return text if len(text) <= PASTED else f"a {value.dtype} tensor of shape {tuple(value.shape)}"
    if isinstance(value, list | tuple) and any(isinstance(one, torch.Tensor) for one in value):
        inside = ", ".join(typed(one) for one in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside},)"
    if isinstance(value, float):
        return _exact(torch.float64)(value)
    return " ".join(repr(value).split())


def typed_inputs(case: Mapping[str, Any]) -> str:
    """Write inputs as assignments, in one line."""
    return ", ".join(f"{name} = {typed(value)}" for name, value in case.items())


def shown(value: Any, digits: int | None = None) -> str:
    """Write an output to be read: numbers rounded to `digits` digits (6, and 4 inside a tensor, by default); whole ones
    in full."""
    if callable(value):
        return f"a function ({getattr(value, '__name__', type(value).__name__)})"
    if isinstance(value, torch.Tensor) and (value.ndim > 0 or not is_number(value)):
        if value.numel() > ENTRIES:
            return f"a {value.dtype} tensor of shape {tuple(value.shape)}"
        return _tensor(value, lambda one: str(_rounded(one, digits or 4)))
    if is_number(value):
        return _number(as_float(value), digits or 6, whole=_is_whole(value))
    if isinstance(value, dict) and digits:
        return "{" + ", ".join(f"{key!r}: {shown(one, digits)}" for key, one in value.items()) + "}"
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _is_whole(value: Any) -> bool:
    """Whether a number, or the entries of a tensor, are of a type of whole numbers."""
    if isinstance(value, torch.Tensor):
        return not (value.is_floating_point() or value.is_complex())
    return isinstance(value, int | np.integer)


def _number(value: float, digits: int, *, whole: bool) -> str:
    """Write a number with that many digits; a whole one with all of them, as far as a float holds them."""
    if whole and abs(value) < 2**53:
        return str(int(value))
    return f"{value + 0.0:.{digits}g}"  # + 0.0 writes -0.0 as 0


def _tensor(tensor: torch.Tensor, write: Callable[[Any], str]) -> str:
    def nested(entries: Any) -> str:
        return f"[{', '.join(map(nested, entries))}]" if isinstance(entries, list) else write(entries)

    return f"torch.tensor({nested(tensor.detach().tolist())}{_dtype(tensor)})"


def _dtype(tensor: torch.Tensor) -> str:
    return "" if tensor.dtype in DEFAULT_DTYPES else f", dtype={tensor.dtype}"


def _exact(dtype: torch.dtype) -> Callable[[Any], str]:
    """Return what writes a number of that type with as few digits as give it back."""

    def write(value: Any) -> str:
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if isinstance(value, float) and dtype == torch.float32:
            return str(np.float32(value))
        return repr(value + 0.0) if isinstance(value, float) else repr(value)  # + 0.0 writes -0.0 as 0

    return write


def _rounded(value: Any, digits: int) -> Any:
    if isinstance(value, complex):
        return complex(_rounded(value.real, digits), _rounded(value.imag, digits))
    return float(f"{value:.{digits}g}") + 0.0 if isinstance(value, float) else value


# Two outputs.


def _pairs(expected: Any, value: Any) -> Iterator[tuple[str, float, float]]:
    """Yield the entries of two outputs of one form that differ, each with where it stands."""
    if isinstance(expected, dict) and isinstance(value, dict):
        for key in expected:
            if key in value and is_number(expected[key]) and is_number(value[key]):
                pair = as_float(expected[key]), as_float(value[key])
                if pair[0] != pair[1]:
                    yield (f"[{key!r}]", *pair)
    elif is_number(expected) and is_number(value):
        pair = as_float(expected), as_float(value)
        if pair[0] != pair[1]:
            yield ("", *pair)
    elif (
        isinstance(expected, torch.Tensor)
        and isinstance(value, torch.Tensor)
        and expected.shape == value.shape
        and not expected.is_complex()
        and not value.is_complex()
    ):
        mine, theirs = value.detach().double(), expected.detach().double()
        for place in (mine != theirs).nonzero().tolist():
            yield (str(place), float(theirs[tuple(place)]), float(mine[tuple(place)]))


def _clearly(pairs: list[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    """Return the pairs that differ by more than rounding; all of them where none does."""
    return [pair for pair in pairs if not math.isclose(pair[1], pair[2], rel_tol=1e-6, abs_tol=1e-9)] or pairs


def _digits(pairs: list[tuple[str, float, float]], least: int) -> int:
    """Return with how many digits all of these pairs read differently."""
    for digits in range(least, 17):
        if all(f"{a:.{digits}g}" != f"{b:.{digits}g}" for _, a, b in pairs):
            return digits
    return 17


def difference(expected: Any, value: Any) -> str:
    """Say what was expected and what came, with as many digits as tell them apart, and how the second is off."""
    pairs = list(_pairs(expected, value))
    if not pairs:
        same = shown(expected) == shown(value)
        return (
            f"yours is {shown(value)}"
            if same
            else f"the expected output is {shown(expected)}, yours is {shown(value)}"
        )
    clear = _clearly(pairs)
    digits = _digits(clear, 6 if is_number(expected) else 4)
    off = how_off(expected, value)
    told = f"the expected output is {shown(expected, digits)}, yours is {shown(value, digits)}{off}"
    if isinstance(expected, torch.Tensor) and (expected.numel() > ENTRIES or len(told) > COMPARED):
        place, theirs, mine = clear[0]
        return (
            f"the expected output is of shape {tuple(expected.shape)}, yours is another one in {len(clear)} of "
            f"{expected.numel()} entries, first at {place}: {_number(theirs, digits, whole=_is_whole(expected))} is "
            f"expected, yours is {_number(mine, digits, whole=_is_whole(value))}{off}"
        )
    return told


def how_off(expected: Any, value: Any) -> str:
    """Say in a few words how an output is off, as the end of a sentence; nothing where no few words say it."""
    if is_number(expected) and is_number(value):
        return _number_off(as_float(expected), as_float(value))
    if not isinstance(expected, torch.Tensor) or expected.is_complex() or not expected.numel():
        return ""
    theirs, mine = expected.detach().double(), value.detach().double()
    near = {"rtol": 1e-6, "atol": 1e-9}
    for factor, words in TIMES.items():
        if torch.allclose(mine, factor * theirs, **near):
            if factor == -1:
                return ": every entry has the opposite sign"
            return f": every entry is {words} what is expected"
    if theirs.ndim == 2 and theirs.shape[0] == theirs.shape[1] and torch.allclose(mine, theirs.T, **near):
        return ": it is transposed"
    shift = (mine - theirs).flatten()
    if theirs.numel() > 1 and torch.allclose(shift, shift[0].expand_as(shift), **near):
        return (
            f": every entry is {'too large' if shift[0] > 0 else 'too small'} by {abs(float(shift[0])):.4g}"
        )
    return ""


def _number_off(expected: float, value: float) -> str:
    if not (math.isfinite(expected) and math.isfinite(value)):
        return ""
    for factor, words in TIMES.items():
        if expected and math.isclose(value, factor * expected, rel_tol=1e-6):
            return ", with the opposite sign" if factor == -1 else f", {words} that"
    return f", {'too large' if value > expected else 'too small'} by {abs(value - expected):.3g}"


def direction(expected: Any, value: Any) -> str:
    """Say whether a value is too large or too small, without telling the right one."""
    pairs = _clearly(list(_pairs(expected, value)))
    if not pairs:
        return f"{shown(value)} is not right."
    place, theirs, mine = pairs[0]
    name = place.removeprefix("[").removesuffix("]") or "Your number"
    return f"{name} is {'too large' if mine > theirs else 'too small'}."
