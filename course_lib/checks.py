"""What a function is given, checked against its own annotations before anything is computed.

`named` looks at the kinds of all arguments, and explains shapes only when the function fails: it costs some microseconds.
`checked` looks at shapes at every call, for functions that would give a wrong value instead of an error.
"""

import collections.abc
import dataclasses
import functools
import inspect
import os
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import torch
from jaxtyping import AbstractArray, jaxtyped
from torch import Tensor, nn

_HELD = {
    "Float": "floating-point numbers",
    "Float64": "64-bit floating-point numbers",
    "Bool": "booleans",
    "Int": "whole numbers",
    "Complex": "complex numbers",
}
P = ParamSpec("P")
R = TypeVar("R")


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that its tensors must have the kind and the shape that its annotations state.

    A dimension that has a name has one length in all arguments: nothing of size 1 is repeated in silence. A call costs
    some 30 microseconds more, so that it is not for what runs once a token. Parameters that may be something else
    than one kind of tensor, or None, are not looked at.

    The decorated function raises TypeError for what is no tensor, and ValueError for another dtype or shape; both
    name the argument, what came and what was expected.
    """
    signature = inspect.signature(function)
    annotated = {}
    for name, hint in typing.get_type_hints(function).items():
        kinds = set(typing.get_args(hint) or (hint,)) - {type(None)}
        if name != "return" and len(kinds) == 1 and _has_shape(kind := kinds.pop()):
            annotated[name] = kind

    @functools.wraps(function)
    def front(*args: P.args, **kwargs: P.kwargs) -> R:
        given = signature.bind(*args, **kwargs).arguments
        with jaxtyped("context"):
            seen = {}
            for name, kind in annotated.items():
                value = given.get(name)
                if value is None and signature.parameters[name].default is None:
                    continue
                if not isinstance(value, kind):
                    raise _refusal(name, value, kind, seen)
                seen[name] = tuple(value.shape)
        if len({given[name].device for name in seen}) > 1 and not torch.compiler.is_compiling():
            raise _elsewhere({name: given[name] for name in seen})
        return function(*args, **kwargs)

    return front


def named(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that an argument of another kind than annotated is refused by its name.

    Kinds are: tensor and what it holds, whole number (true is none), number, text, boolean, function, and instances of
    classes. A number may be numpy's, or a tensor without dimensions. What else annotations say is not looked at. Shapes
    cost nothing: only where the function raises are they compared with the annotations, and the error names the first
    argument that does not fit, if one does not. Inside `torch.compile` nothing is looked at.

    The decorated function raises TypeError or ValueError, which name the argument, what came and what was expected.
    """
    signature = inspect.signature(function)
    rules, shaped = _rules(function, signature)
    first_of = [(place, name, accept, expected) for place, (name, (accept, expected)) in rules]

    @functools.wraps(function)
    def front(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        for place, name, accept, expected in first_of:
            if place < len(args):
                value = args[place]
            elif name in kwargs:
                value = kwargs[name]
            else:
                continue
            if not accept(value):
                raise _wrong_kind(name, value, expected)
        try:
            return function(*args, **kwargs)
        except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
            refusal = None if _mentions(str(error), shaped) else _misfit(signature, shaped, args, kwargs)
            if refusal is not None:
                raise refusal from error
            raise

    return front


def check_fields(config: Any) -> None:
    """Raise TypeError where a field of a dataclass is not of the kind that its annotation states: for `__post_init__`."""
    for name, (accept, expected) in _field_rules(type(config)):
        value = getattr(config, name)
        if not accept(value):
            raise _wrong_kind(name, value, expected)


class _Accepted(NamedTuple):
    accept: Callable[[Any], bool]
    expected: str


@functools.cache
def _field_rules(cls: type) -> list[tuple[str, _Accepted]]:
    hints = typing.get_type_hints(cls)
    found = ((field.name, _accepted(hints[field.name])) for field in dataclasses.fields(cls))
    return [(name, rule) for name, rule in found if rule is not None]


def _rules(
    function: Callable, signature: inspect.Signature
) -> tuple[list[tuple[int, tuple[str, _Accepted]]], dict[str, type]]:
    """Place and name of each parameter that is looked at with what it may be, and those whose shape is annotated."""
    rules, shaped, never = [], {}, 1 << 30
    hints = typing.get_type_hints(function)
    for place, (name, parameter) in enumerate(signature.parameters.items()):
        hint = hints.get(name, Any)
        if parameter.kind is parameter.VAR_KEYWORD and typing.get_origin(hint) is typing.Unpack:
            for inner, kind in typing.get_type_hints(typing.get_args(hint)[0]).items():
                if (rule := _accepted(kind)) is not None:
                    rules.append((never, (inner, rule)))
            continue
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if (rule := _accepted(hint)) is not None:
            by_name = parameter.kind is parameter.KEYWORD_ONLY
            rules.append((never if by_name else place, (name, rule)))
        kinds = set(_alternatives(hint)) - {type(None)}
        if len(kinds) == 1 and _has_shape(kind := kinds.pop()):
            shaped[name] = kind
    return rules, shaped


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _accepted(hint: Any) -> _Accepted | None:
    """What values an annotation admits, None where that is not looked at."""
    plain: list[type] = []
    tests: list[Callable[[Any], bool]] = []
    words: list[str] = []
    numbers = False
    for kind in dict.fromkeys(_alternatives(hint)):
        origin = typing.get_origin(kind)
        if kind is type(None) or kind is None:
            plain.append(type(None))
            words.append("None")
        elif _has_shape(kind):
            tests.append(functools.partial(_is_tensor, dtypes=_dtypes_of(kind)))
            words.append("a tensor" if (held := _held(kind)) is None else f"a tensor of {held}")
        elif kind is float:
            tests.append(_is_number)
            numbers = True
        elif kind is int:
            tests.append(_is_whole)
            words.append("a whole number")
        elif kind is bool:
            plain += [bool, np.bool_]
            words.append("True or False")
        elif kind is str:
            plain.append(str)
            words.append("a text")
        elif kind in (torch.device, torch.dtype, Tensor, torch.Generator) or (
            isinstance(kind, type)
            and (dataclasses.is_dataclass(kind) or issubclass(kind, nn.Module) or hasattr(kind, "_fields"))
        ):
            plain.append(kind)
            words.append({Tensor: "a tensor"}.get(kind, f"a {kind.__name__}"))
        elif origin is collections.abc.Callable or kind is collections.abc.Callable:
            tests.append(callable)
            words.append("a function")
        elif origin is typing.Literal and all(isinstance(one, str) for one in typing.get_args(kind)):
            plain.append(str)
            words.append("a text")
        elif origin in (collections.abc.Sequence, collections.abc.Iterable, list, tuple):
            tests.append(_is_listed)
            words.append("a list")
        elif origin is type:
            plain.append(type)
            words.append("a class")
        elif kind is Path:
            plain.append(os.PathLike)
            words.append("a path")
        elif origin in (collections.abc.Mapping, dict):
            plain.append(collections.abc.Mapping)
            words.append("a dictionary")
        else:
            return None
    if numbers:
        words = ["a number", *(word for word in words if word != "a whole number")]
    expected = " or ".join(words)
    some = tuple(plain)
    if not tests:
        return _Accepted(lambda value: isinstance(value, some), expected)
    if len(tests) == 1 and not some:
        return _Accepted(tests[0], expected)
    return _Accepted(lambda value: isinstance(value, some) or any(test(value) for test in tests), expected)


def _is_tensor(value: Any, dtypes: frozenset[torch.dtype] | None) -> bool:
    return isinstance(value, Tensor) and (dtypes is None or value.dtype in dtypes)


def _is_listed(value: Any) -> bool:
    return isinstance(value, collections.abc.Iterable) and not isinstance(value, str | bytes | np.ndarray)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer | torch.SymInt) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    if isinstance(value, float | int | np.floating | np.integer | torch.SymFloat | torch.SymInt):
        return not isinstance(value, bool)
    return isinstance(value, Tensor) and value.ndim == 0 and value.dtype != torch.bool


def _dtypes_of(kind: type) -> frozenset[torch.dtype] | None:
    if not isinstance(kind.dtypes, tuple):
        return None
    return frozenset(getattr(torch, name) for name in kind.dtypes if hasattr(torch, name))


def _held(kind: type) -> str | None:
    return _HELD.get(kind.__name__.split("[")[0])


def _wrong_kind(name: str, value: object, expected: str) -> Exception:
    got = f"a tensor of {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
    got += f" {value!r}" if isinstance(value, int | float | str) and len(repr(value)) < 40 else ""
    if isinstance(value, Tensor) and expected.startswith("a tensor of "):
        expected = expected.removeprefix("a tensor of ")
        return ValueError(f"{name} must hold {expected}, got {value.dtype}")
    return TypeError(f"{name} must be {expected}, got {got}")


def _misfit(
    signature: inspect.Signature, shaped: dict[str, type], args: tuple, kwargs: dict[str, Any]
) -> Exception | None:
    """The refusal of the first argument whose shape is not the annotated one; None where all fit."""
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        return None
    tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
    with jaxtyped("context"):
        seen: dict[str, tuple[int, ...]] = {}
        for name, kind in shaped.items():
            if name in tensors:
                if not isinstance(value := tensors[name], kind):
                    return _refusal(name, value, kind, seen)
                seen[name] = tuple(value.shape)
    return _elsewhere(tensors)


def _elsewhere(tensors: dict[str, Tensor]) -> Exception | None:
    """The refusal of tensors that are on several devices, or on none (`meta`)."""
    devices = {str(value.device) for value in tensors.values()}
    if len(devices) < 2 and "meta" not in devices:
        return None
    places = ", ".join(f"{name} is on {value.device}" for name, value in tensors.items())
    return ValueError(f"{places}; expected one device, on which tensors hold numbers")


def _mentions(message: str, names: collections.abc.Iterable[str]) -> bool:
    """Whether a message speaks of one of the arguments as the library's own do: `q must ...`, `q has ...`, `q is ...`."""
    if message.startswith("Type-check error"):  # of tests that check all annotations
        return True
    return any(
        f"{name} {verb} " in message for name in names for verb in ("must", "has", "is", "and", "of", "needs")
    )


def check_source(name: str, rows: object) -> None:
    """Raise TypeError for what is neither a tensor of rows nor a store that gives tensors."""
    if isinstance(rows, Tensor):
        if not rows.ndim:
            raise ValueError(f"{name} must have shape (rows, d_model), got ()")
    elif isinstance(rows, str | bytes | list | tuple | np.ndarray) or not hasattr(rows, "__getitem__"):
        raise TypeError(f"{name} must be a tensor or a store of rows, got {type(rows).__name__}")


def check_finite(name: str, values: Tensor) -> None:
    """Raise ValueError where a tensor holds a NaN or an infinite value."""
    if type(values) is Tensor and not values.is_meta and not torch.isfinite(values).all():  # no fake ones
        raise ValueError(f"{name} has NaN or infinite values; expected finite numbers")


def all_finite(values: Tensor) -> bool:
    """Whether a tensor holds neither NaN nor infinite values: the smallest or the largest is NaN where one entry is.

    `isfinite` and a sum in float64 make tables as large as the tensor, or twice as large; this makes none.
    """
    return not values.numel() or bool(torch.stack(values.aminmax()).isfinite().all())


def _has_shape(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, AbstractArray)


def _refusal(name: str, value: object, kind: type, seen: dict[str, tuple[int, ...]]) -> Exception:
    if not isinstance(value, Tensor):
        return TypeError(f"{name} must be a tensor, got {type(value).__name__}")
    if (dtypes := _dtypes_of(kind)) is not None and value.dtype not in dtypes:
        return ValueError(f"{name} must hold {_held(kind)}, got {value.dtype}")
    beside = "".join(f", with {other} {shape}" for other, shape in seen.items())
    return ValueError(f"{name} must have shape ({kind.dim_str.strip()}){beside}, got {tuple(value.shape)}")
