"""What a request to the page's server may hold. Each error names the field, what came and what was expected.

JSON knows more than the page sends: texts with half of a surrogate pair, numbers of any length, lists as deep as the
stack of this process, and true where a number stands.
"""

import json
import reprlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_lib.interpret.browser.features import Change

_LONGEST_INTEGER = 18
_LONGEST_NOTE, _LONGEST_LIST, _MOST_LISTS = 10_000, 100, 50
_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 80


def body(content: bytes) -> dict[str, Any]:
    """The object that a request holds."""
    try:
        found = json.loads(content.decode(), parse_int=_integer)
    except UnicodeDecodeError as error:
        raise ValueError(f"the request is not UTF-8: {error}") from None
    except RecursionError:
        raise ValueError("the request is nested too deeply to be read") from None
    except ValueError as error:
        raise ValueError(f"the request is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"the request holds {type(found).__name__}; expected an object")
    return found


def text(given: dict[str, Any], name: str) -> str:
    """A text that can be written as UTF-8."""
    value = given.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} is {_short.repr(value)}; expected a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} has half of a surrogate pair at character {error.start}; expected a text"
        ) from None
    return value


def language(given: dict[str, Any], name: str) -> str | None:
    """The code of a language; None where the field is missing, null or empty."""
    return None if given.get(name) is None else text(given, name) or None


def integer(given: dict[str, Any], name: str) -> int:
    """A whole number; true is none, and 3.0 is none."""
    value = given.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} is {_short.repr(value)}; expected a whole number")
    return value


def changes(given: dict[str, Any]) -> list["Change"]:
    """The changes of features, none where the field is missing."""
    found = given.get("changes", [])
    if not isinstance(found, list):
        raise ValueError(f"changes is {_short.repr(found)}; expected a list")
    return [change(one, f"changes[{place}]") for place, one in enumerate(found)]


def notes(given: dict[str, Any], field: str = "features") -> dict[int, dict[str, Any]]:
    """The notes and lists of some features, by number: {"features": {"12": {"note": "...", "lists": ["..."]}}}."""
    found = given.get(field)
    if not isinstance(found, dict):
        raise ValueError(f"{field} is {_short.repr(found)}; expected an object with a note for each number")
    return {_number(name, field): _note(one, f"{field}[{_short.repr(name)}]") for name, one in found.items()}


def _number(name: str, field: str) -> int:
    if not (name.isascii() and name.isdigit() and len(name) <= _LONGEST_INTEGER):
        raise ValueError(f"{field} has {_short.repr(name)}; expected the number of a feature")
    return int(name)


def _note(given: Any, name: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ValueError(f"{name} is {_short.repr(given)}; expected an object")
    lists = given.get("lists", [])
    if not isinstance(lists, list) or len(lists) > _MOST_LISTS:
        raise ValueError(f"{name}: lists is {_short.repr(lists)}; expected at most {_MOST_LISTS} names")
    try:
        note = text({"note": given.get("note", "")}, "note")
        names = sorted({text({"name": one}, "name").strip() for one in lists} - {""})
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if len(note) > _LONGEST_NOTE or max(map(len, names), default=0) > _LONGEST_LIST:
        raise ValueError(
            f"{name} is too long; expected a note of at most {_LONGEST_NOTE} characters and lists whose names have "
            f"at most {_LONGEST_LIST}"
        )
    return {"note": note, "lists": names}


def change(given: Any, name: str = "change") -> "Change":
    """A change as the page sends it: feature, mode, number and token, which may be missing or null."""
    from course_lib.interpret.browser.features import Change

    if not isinstance(given, dict):
        raise ValueError(f"{name} is {_short.repr(given)}; expected an object")
    number = given.get("number")
    try:
        if not isinstance(number, int | float) or isinstance(number, bool):
            raise ValueError(f"number is {_short.repr(number)}; expected a number")
        token = None if given.get("token") is None else integer(given, "token")
        return Change(integer(given, "feature"), text(given, "mode"), float(number), token)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _integer(digits: str) -> int | float:
    """Longer whole numbers are floating-point ones, infinite where they are too large: no field holds any."""
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)
